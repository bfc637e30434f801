"""Writes tests/golden/adapter_counts.jsonl: how many parameters PEFT trains of small models under all-linear.

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


def main():
    with open(sys.argv[1], "w") as out:
        for settings in configurations():
            out.write(json.dumps(count(settings)) + "\n")


main()
