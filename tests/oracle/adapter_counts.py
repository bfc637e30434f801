"""Writes tests/golden/adapter_counts.jsonl: how many parameters PEFT trains of small models under all-linear, and under its
other methods (METHODS: memplan's setup, PEFT's configuration).

usage: adapter_counts.py FILE

The adapters of DeepSeek V3.2's indexer never have a gradient, and are not counted as trained.
"""
import json
import sys

import peft

import counts

SMALL = dict(hidden_size=96, num_attention_heads=6, intermediate_size=208, vocab_size=1234, num_hidden_layers=3,
             max_position_embeddings=64)
KEYS = dict(SMALL, num_key_value_heads=2)
EXPERTS = dict(KEYS, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=40)
LATENT = dict(SMALL, num_key_value_heads=6, q_lora_rank=72, kv_lora_rank=40, qk_nope_head_dim=16, qk_rope_head_dim=8,
              v_head_dim=16, n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=40, n_shared_experts=2,
              first_k_dense_replace=1, n_group=1, topk_group=1)
GPT = dict(n_embd=96, n_head=6, n_layer=3, vocab_size=1234, n_positions=64)
MODELS = {
    "deepseek_v2": LATENT, "deepseek_v3": LATENT,
    "qwen2_moe": dict(EXPERTS, shared_expert_intermediate_size=56),
    "qwen3_next": dict(EXPERTS, num_hidden_layers=4, head_dim=16, shared_expert_intermediate_size=56,
                       linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
                       linear_value_head_dim=16),
    "qwen3_5_text": dict(KEYS, num_hidden_layers=4, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4,
                         linear_key_head_dim=16, linear_value_head_dim=16),
    "glm4_moe": dict(KEYS, head_dim=16, n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=40,
                     n_shared_experts=1, first_k_dense_replace=1),
    "jamba": dict(KEYS, num_hidden_layers=8, num_experts=4, num_experts_per_tok=2, mamba_d_state=8, mamba_dt_rank=6),
    "mixtral": dict(KEYS, num_local_experts=4), "qwen3_moe": dict(EXPERTS, head_dim=16), "olmoe": dict(KEYS, num_experts=8, num_experts_per_tok=2),
    "gpt_oss": dict(KEYS, num_local_experts=4, head_dim=16), "granitemoe": dict(KEYS, num_local_experts=4),
    "llama": KEYS, "gpt2": GPT, "gptj": dict(GPT, rotary_dim=8), "falcon": SMALL, "phi": SMALL, "phi3": dict(KEYS, pad_token_id=0),
    "gpt_neox": SMALL, "bloom": dict(hidden_size=96, n_head=6, n_layer=3, vocab_size=1234),
    "opt": dict(hidden_size=96, num_attention_heads=6, ffn_dim=208, num_hidden_layers=3, word_embed_proj_dim=48,
                vocab_size=1234, max_position_embeddings=64),
    "mpt": dict(d_model=96, n_heads=6, n_layers=3, vocab_size=1234, max_seq_len=64),
    "stablelm": KEYS, "cohere": dict(KEYS, pad_token_id=0)}
TIED = {"qwen2": dict(KEYS, tie_word_embeddings=True), "bart": counts.BART}
RANK = 4


def configurations():
    seen = {name: dict(model_type=name, **settings) for name, settings in MODELS.items()}
    for name in counts.DECODERS + ["bart", "whisper"]:
        base = {"bart": counts.BART, "whisper": counts.WHISPER}.get(name)
        seen[name] = base or counts.families.FAMILIES[name][0](counts.families.SHAPES["small"])
    return seen.values()


def count(settings):
    model = peft.get_peft_model(counts.build(settings), peft.LoraConfig(r=RANK, target_modules="all-linear"))
    return dict(config=settings, lora_rank=RANK,
                trainable=sum(p.numel() for n, p in model.named_parameters()
                              if p.requires_grad and ".indexer." not in n))


QV, SEVEN = ["q_proj", "v_proj"], ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
NAMES = dict(q_proj="q", k_proj="k", v_proj="v", o_proj="o", gate_proj="gate", up_proj="up", down_proj="down", c_attn="q",
             query_key_value="q", q_a_proj="q_a", q_b_proj="q_b", kv_a_proj_with_mqa="kv_a", kv_b_proj="kv_b", in_proj_qkvz="in_proj_qkvz", in_proj_ba="in_proj_ba",
             in_proj_qkv="in_proj_qkv", in_proj_z="in_proj_z", in_proj_b="in_proj_b", in_proj_a="in_proj_a", out_proj="out_proj")


def lora(targets, rank=4, **more):
    setup = dict(lora_rank=rank, lora_targets=",".join(NAMES[t] for t in targets))
    theirs = dict(r=rank, target_modules=targets)
    if "layers" in more:
        setup["layers_to_transform"] = theirs["layers_to_transform"] = more["layers"]
    if "ranks" in more:
        setup["rank_pattern"] = [f"{NAMES[n]}={r}" for n, r in more["ranks"].items()]
        theirs["rank_pattern"] = more["ranks"]
    if "full" in more:
        setup["lora_full_modules"] = more["full"]
        theirs["modules_to_save"] = [dict(embed="embed_tokens", head="lm_head", norm="norm")[m] for m in more["full"]]
    if "one" in more:
        setup["ensure_weight_tying"] = theirs["ensure_weight_tying"] = True
    return setup, peft.LoraConfig(**theirs)


def ia3(targets, feedforward, **more):
    setup = dict(peft_type="ia3", **more)
    if targets:
        setup.update(lora_targets=[NAMES[t] for t in targets], feedforward_modules=[NAMES[t] for t in feedforward])
    return setup, peft.IA3Config(target_modules=targets, feedforward_modules=feedforward)


def virtual(kind, n, **more):
    config = {"prompt-tuning": peft.PromptTuningConfig, "p-tuning": peft.PromptEncoderConfig,
              "prefix-tuning": peft.PrefixTuningConfig}[kind]
    return (dict(peft_type=kind, num_virtual_tokens=n, **more),
            config(num_virtual_tokens=n, task_type="CAUSAL_LM", **more))


METHODS = [
    ("llama", lora(QV, layers=[1])), ("llama", lora(SEVEN, layers=[0, 2])), ("llama", lora(SEVEN, ranks={"q_proj": 8, "down_proj": 2})),
    ("llama", lora(QV, layers=[2], ranks={"q_proj": 16}, full=["head"])), ("llama", lora(QV, full=["embed", "norm"])),
    *(("qwen2", lora(QV, full=full, **one)) for full in (["head"], ["embed"], ["embed", "head"]) for one in ({}, dict(one=True))),
    *(("bart", lora(QV, full=full, **one)) for full in (["head"], ["embed"], ["embed", "head"]) for one in ({}, dict(one=True))),
    ("gpt2", lora(["c_attn"], full=["head"])), ("gpt2", lora(["c_attn"], layers=[0])), ("falcon", lora(["query_key_value"], layers=[1, 2], ranks={"query_key_value": 12})),
    ("llama", ia3(None, None)), ("gpt2", ia3(None, None)), ("falcon", ia3(None, None)), ("phi", ia3(None, None)),
    ("opt", ia3(None, None)), ("llama", ia3(QV + ["up_proj"], ["up_proj"])),
    ("llama", virtual("prompt-tuning", 20)), ("gpt2", virtual("prompt-tuning", 8)),
    ("llama", virtual("p-tuning", 20)), ("gpt2", virtual("p-tuning", 8, encoder_hidden_size=40)),
    ("llama", virtual("prefix-tuning", 20)), ("gpt2", virtual("prefix-tuning", 8)),
    ("llama", virtual("prefix-tuning", 12, prefix_projection=True)),
    ("gpt2", virtual("prefix-tuning", 8, prefix_projection=True, encoder_hidden_size=40)),
    *((name, lora([one])) for name in ("deepseek_v2", "deepseek_v3") for one in ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")),
    ("deepseek_v3", lora(["q_a_proj", "kv_b_proj", "o_proj"], layers=[1])),
    ("qwen3_next", lora(["in_proj_qkvz"])), ("qwen3_next", lora(["in_proj_ba", "q_proj", "out_proj"])),
    *(("qwen3_5_text", lora([one])) for one in ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")),
    ("glm4_moe", virtual("prefix-tuning", 8)), ("qwen3_moe", virtual("prefix-tuning", 8, prefix_projection=True)),
]


def method(name, setup, config):
    settings = {"model_type": name, **(TIED.get(name) or MODELS[name])}
    model = peft.get_peft_model(counts.build(settings), config)
    trained, total = model.get_nb_trainable_parameters()  # what print_trainable_parameters() prints
    return dict(config=settings, setup=setup, trainable=trained, all=total)


def main():
    with open(sys.argv[1], "w") as out:
        for settings in configurations():
            out.write(json.dumps(count(settings)) + "\n")
        for name, (setup, config) in METHODS:
            out.write(json.dumps(method(name, setup, config)) + "\n")


main()
