"""Writes tests/golden/mutations.jsonl: configurations that something is wrong with, and what transformers makes of each.

usage: mutations.py FILE

A line: what was done to it, the text (not always JSON), and the parameters of transformers' class on the meta device, or
null where the class raises; whether memplan refuses it. tests/unit/test_mutations.c holds memplan to it: what is accepted has that count, what is
refused names the key.
"""
import copy
import json
import pathlib
import signal
import sys

import torch
import transformers

import families

GONE = object()
SMALL = families.SHAPES["small"]

OTHERS = {
    "t5": dict(model_type="t5", d_model=96, d_kv=16, d_ff=208, num_heads=6, num_layers=3, vocab_size=1234,
               architectures=["T5ForConditionalGeneration"]),
    "bart": dict(model_type="bart", d_model=96, encoder_layers=3, decoder_layers=2, encoder_attention_heads=6,
                 decoder_attention_heads=6, encoder_ffn_dim=208, decoder_ffn_dim=208, vocab_size=1234,
                 max_position_embeddings=64, architectures=["BartForConditionalGeneration"]),
    "mamba": dict(model_type="mamba", hidden_size=96, state_size=16, num_hidden_layers=3, vocab_size=1234),
    "mamba2": dict(model_type="mamba2", hidden_size=96, state_size=16, num_hidden_layers=3, vocab_size=1234, num_heads=12,
                   head_dim=16, n_groups=2),
    "jamba": dict(model_type="jamba", hidden_size=96, intermediate_size=208, num_attention_heads=6,
                  num_key_value_heads=2, num_hidden_layers=8, vocab_size=1234, num_experts=4, num_experts_per_tok=2,
                  mamba_dt_rank=8),
    "qwen3_next": dict(model_type="qwen3_next", hidden_size=96, intermediate_size=208, num_attention_heads=6, head_dim=16,
                       num_key_value_heads=2, num_hidden_layers=4, vocab_size=1234, num_experts=4, num_experts_per_tok=2,
                       moe_intermediate_size=48, shared_expert_intermediate_size=48, linear_num_key_heads=2,
                       linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16),
    "dbrx": dict(model_type="dbrx", d_model=96, n_heads=6, n_layers=3, max_seq_len=64, vocab_size=1234,
                 attn_config=dict(kv_n_heads=2, rope_theta=1e4), ffn_config=dict(ffn_hidden_size=208, moe_num_experts=4, moe_top_k=2)),
    "gemma3": dict(model_type="gemma3", architectures=["Gemma3ForConditionalGeneration"],
                   text_config=families.FAMILIES["gemma3_text"][0](SMALL)),
}

# (family, what is changed: path -> value or GONE)
CHANGES = [
    # missing
    ("llama", {"hidden_size": GONE}), ("llama", {"num_hidden_layers": GONE}), ("llama", {"num_attention_heads": GONE}),
    ("llama", {"intermediate_size": GONE}), ("llama", {"vocab_size": GONE}), ("llama", {"num_key_value_heads": GONE}),
    ("mistral", {"num_key_value_heads": GONE, "num_attention_heads": 16, "head_dim": GONE}),
    ("mixtral", {"num_local_experts": GONE}), ("mixtral", {"num_experts_per_tok": GONE}),
    ("phi3", {"num_key_value_heads": GONE}), ("gpt2", {"n_inner": GONE}), ("gpt2", {"n_embd": GONE}),
    ("gpt_neo", {"attention_types": GONE}), ("opt", {"ffn_dim": GONE}), ("bloom", {"n_head": GONE}),
    ("falcon", {"multi_query": GONE}), ("deepseek_v3", {"kv_lora_rank": GONE}), ("bert", {"type_vocab_size": GONE}),
    ("qwen2_moe", {"shared_expert_intermediate_size": GONE}), ("qwen3_moe", {"moe_intermediate_size": GONE}),
    ("t5", {"d_kv": GONE}), ("bart", {"decoder_layers": GONE}), ("bart", {"decoder_ffn_dim": 176}),
    ("bart", {"decoder_attention_heads": GONE}), ("vit", {"patch_size": GONE}),
    ("mamba", {"state_size": GONE}), ("jamba", {"mamba_dt_rank": GONE}), ("gemma", {"head_dim": GONE}),
    ("gpt_oss", {"num_local_experts": GONE}), ("gpt_oss", {"head_dim": GONE}), ("deepseek_v3", {"n_routed_experts": GONE}),
    ("deepseek_v3", {"first_k_dense_replace": GONE}), ("deepseek_v3", {"v_head_dim": GONE}),
    ("deepseek_v3", {"num_attention_heads": GONE}), ("glm4", {"num_key_value_heads": GONE}), ("qwen3", {"head_dim": GONE}),
    ("qwen3_next", {"linear_num_value_heads": GONE}), ("bart", {"encoder_layers": GONE}), ("mamba2", {"state_size": GONE}),
    ("phimoe", {"num_local_experts": GONE}), ("granitemoe", {"num_experts_per_tok": GONE}), ("olmoe", {"num_experts": GONE}),
    ("vit", {"image_size": GONE}), ("bart", {"num_hidden_layers": 7}),
    # class defaults only
    ("llama", {k: GONE for k in families.FAMILIES["llama"][0](SMALL) if k != "model_type"}),
    ("gpt2", {k: GONE for k in families.FAMILIES["gpt2"][0](SMALL) if k != "model_type"}),
    ("bert", {k: GONE for k in families.FAMILIES["bert"][0](SMALL) if k not in ("model_type", "architectures")}),
    ("qwen3", {k: GONE for k in families.FAMILIES["qwen3"][0](SMALL) if k != "model_type"}),
    ("gemma3_text", {k: GONE for k in families.FAMILIES["gemma3_text"][0](SMALL) if k != "model_type"}),
    ("mamba2", {k: GONE for k in OTHERS["mamba2"] if k != "model_type"}),
    # null
    ("llama", {"hidden_size": None}), ("llama", {"num_key_value_heads": None}), ("llama", {"head_dim": None}),
    ("mistral", {"num_key_value_heads": None}), ("mixtral", {"num_local_experts": None}),
    ("gpt2", {"n_inner": None}), ("gpt_neo", {"intermediate_size": None}), ("gptj", {"n_inner": None}),
    ("starcoder2", {"num_hidden_layers": None}), ("stablelm", {"vocab_size": None}),
    ("deepseek_v3", {"q_lora_rank": None}), ("deepseek_v2", {"kv_lora_rank": None}),
    ("gemma3", {"text_config": None}), ("dbrx", {"ffn_config": None}), ("mpt", {"attn_config": None}),
    ("falcon", {"ffn_hidden_size": None}), ("llama", {"tie_word_embeddings": None}), ("llama", {"model_type": None}),
    # a string, a list, an object, a truth for a number
    ("llama", {"hidden_size": "96"}), ("qwen2", {"num_hidden_layers": "three"}), ("gpt_neox", {"vocab_size": [1234]}),
    ("gemma2", {"num_attention_heads": {}}), ("olmo2", {"intermediate_size": True}), ("bert", {"hidden_size": [96]}),
    ("t5", {"d_model": "96"}), ("llama", {"tie_word_embeddings": "false"}), ("llama", {"attention_bias": "no"}),
    ("mamba", {"expand": [2]}), ("vit", {"image_size": "56"}), ("dbrx", {"ffn_config": [208]}),
    ("qwen3_moe", {"mlp_only_layers": 1}), ("qwen3_moe", {"mlp_only_layers": ["0"]}),
    ("gpt_neo", {"attention_types": "global"}), ("gemma3_text", {"layer_types": "full_attention"}),
    ("llama", {"architectures": "LlamaForCausalLM"}), ("llama", {"model_type": 7}), ("llama", {"hidden_act": 1}),
    # zero, negative, a fraction, huge
    ("llama", {"num_attention_heads": 0}), ("llama", {"num_key_value_heads": 0}), ("llama", {"hidden_size": 0}),
    ("qwen2", {"vocab_size": 0}), ("gpt2", {"n_layer": 0}), ("mixtral", {"num_experts_per_tok": 0}),
    ("mixtral", {"num_local_experts": 0}), ("bart", {"decoder_attention_heads": 0}), ("vit", {"patch_size": 0}),
    ("mamba2", {"n_groups": 0}), ("qwen3", {"hidden_size": -96}), ("olmo", {"num_hidden_layers": -1}),
    ("gptj", {"rotary_dim": -8}), ("cohere", {"num_key_value_heads": -2}), ("phi", {"intermediate_size": 208.5}),
    ("llama", {"hidden_size": 96.0}), ("gpt_bigcode", {"n_head": 6.5}), ("opt", {"num_hidden_layers": 0.5}),
    ("llama", {"vocab_size": 2**40}), ("llama", {"num_hidden_layers": 10**9}), ("bloom", {"hidden_size": 10**30}),
    ("llama", {"vocab_size": 1e400}), ("glm4_moe", {"n_routed_experts": 2**63}),
    # nested wrongly
    ("dbrx", {"ffn_config": GONE, "ffn_hidden_size": 208, "moe_num_experts": 4, "moe_top_k": 2}),
    ("gemma3", {"text_config": {"text_config": OTHERS["gemma3"]["text_config"]}}),
    ("gemma3", {"text_config": GONE}), ("gemma3", {"text_config": []}), ("gemma3", {"text_config": "gemma3_text"}),
    ("mpt", {"attn_config": {"attn_config": {"alibi": True}}}), ("llama", {"rope_scaling": "linear"}),
    ("llama", {"text_config": {"hidden_size": 128}}), ("gemma3_text", {"text_config": {"hidden_size": 128}}),
    # the wrong type
    ("llama", {"model_type": "lama"}), ("llama", {"model_type": ""}), ("llama", {"model_type": GONE}),
    ("llama", {"model_type": "gpt2"}), ("gpt2", {"model_type": "llama"}), ("llama", {"model_type": "Llama"}),
    ("mixtral", {"model_type": "mistral"}), ("bert", {"model_type": "llama"}), ("bert", {"model_type": "roberta"}),
    # keys that contradict each other
    ("gpt2", {"hidden_size": 128}), ("gpt2", {"num_hidden_layers": 5}), ("falcon", {"num_kv_heads": 3}),
    ("llama", {"num_attention_heads": 5, "head_dim": GONE}), ("llama", {"num_key_value_heads": 4}),
    ("gpt_oss", {"num_experts_per_tok": 2, "experts_per_token": 3}), ("mixtral", {"num_experts_per_tok": 9}),
    ("llama", {"num_key_value_heads": 12}), ("qwen3_moe", {"mlp_only_layers": [7]}),
    ("gemma3_text", {"layer_types": ["full_attention"]}), ("gemma3_text", {"layer_types": ["full_attention", "other", 3]}),
    ("granitemoe", {"num_local_experts": 5, "num_experts": 6}), ("t5", {"num_decoder_layers": 0}),
    ("qwen3_next", {"linear_num_value_heads": 3}), ("jamba", {"attn_layer_offset": 9}),
    ("deepseek_v3", {"first_k_dense_replace": 9}), ("vit", {"image_size": 7}), ("bloom", {"n_embed": 128}),
    ("stablelm", {"partial_rotary_factor": 3.0}), ("phi", {"hidden_dropout": 2}), ("mamba2", {"num_heads": 5}),
    # layers that the class has not
    ("qwen3", {"layer_types": ["full_attention", "linear_attention", "full_attention"]}),
    ("qwen2", {"layer_types": ["chunked_attention"] * 3}), ("gpt_oss", {"layer_types": ["mamba"] * 3}),
    ("smollm3", {"layer_types": ["linear_attention"] * 3}), ("llama4_text", {"layer_types": ["sliding_attention"] * 3}),
    ("qwen3_next", {"layer_types": ["sliding_attention"] * 4}), ("cohere2", {"layer_types": [None, None, None]}),
    ("olmo3", {"layer_types": {"full_attention": 3}}), ("ministral", {"layer_types": [["full_attention"]] * 3}),
    ("cwm", {"hidden_size": 100}), ("jais2", {"hidden_size": 100}), ("hyperclovax", {"hidden_size": 100}),
    ("llama", {"layer_types": ["linear_attention"] * 3}),
    # lists and objects for sizes
    ("llama", {"num_key_value_heads": [2, 2, 2]}), ("mistral", {"intermediate_size": [208, 208, 208]}),
    ("gemma2", {"num_hidden_layers": {"text": 3}}), ("t5", {"num_heads": [6]}), ("bart", {"encoder_layers": {}}),
    ("opt", {"word_embed_proj_dim": [96]}), ("mamba", {"time_step_rank": {}}), ("gpt_neo", {"attention_types": [["global"], 3]}),
    ("gpt_neo", {"attention_types": [[["global"], 2]]}), ("gpt_neo", {"attention_types": [[["global"], "3"]]}),
    # numbers that are none, or too large
    ("qwen3", {"head_dim": 0}), ("gemma", {"head_dim": -16}), ("gemma3_text", {"head_dim": 2**63}), ("llama", {"head_dim": 1e30}),
    ("mixtral", {"num_local_experts": 2.5}), ("mixtral", {"num_experts_per_tok": True}), ("olmoe", {"num_experts": "64"}),
    ("phimoe", {"num_local_experts": -1}), ("granitemoe", {"num_local_experts": 1e30}), ("glm4", {"vocab_size": 2**63}),
    ("deepseek_v3", {"kv_lora_rank": 0}), ("deepseek_v3", {"qk_rope_head_dim": -8}), ("deepseek_v2", {"v_head_dim": "24"}),
    ("deepseek_v3", {"n_shared_experts": 1.5}), ("jamba", {"attn_layer_period": 0}), ("jamba", {"mamba_d_state": 0}),
    ("mamba2", {"state_size": -1}), ("mamba2", {"conv_kernel": 0}), ("vit", {"num_channels": 0}), ("vit", {"hidden_size": 97}),
    ("bert", {"type_vocab_size": -1}), ("roberta", {"max_position_embeddings": 0}), ("t5", {"relative_attention_num_buckets": 0}),
    ("bloom", {"n_layer": "3"}), ("falcon", {"num_attention_heads": None}), ("gpt_bigcode", {"multi_query": "true"}),
    ("stablelm", {"use_parallel_residual": "yes"}), ("starcoder2", {"use_bias": 1}), ("opt", {"do_layer_norm_before": "false"}),
    # what the class asks of two together
    ("llama", {"hidden_size": 97}), ("gemma2", {"hidden_size": 100}), ("gemma3_text", {"num_attention_heads": 7}),
    ("llama", {"head_dim": 17}), ("qwen3", {"head_dim": 15}), ("cohere2", {"head_dim": None}), ("exaone4", {"head_dim": None}),
    ("qwen2", {"num_key_value_heads": GONE}), ("gemma", {"num_key_value_heads": None}), ("t5", {"is_gated_act": True}),
    ("bart", {"tie_word_embeddings": False}), ("gpt_oss", {"num_local_experts": 0}),
    # nothing that a shape depends on
    ("llama", {"quantization_config": {"quant_method": "gptq", "bits": 4}}), ("llama", {"rope_scaling": {"type": "yarn", "factor": 4.0}}),
    ("llama", {"\u00fc\u4e2d": "\ud83d\ude00"}), ("llama", {"x": [[[[[[[[1]]]]]]]]}),
]


# What memplan reads in its own way, and says so (models --import): the classes are given this instead.
MEANT = {
    ("mistral", "num_key_value_heads: null"): {"num_key_value_heads": 6},  # as the class did before version 5
    ("llama", "tie_word_embeddings: null"): {"tie_word_embeddings": False},  # likewise: null is no truth
    ("llama", "hidden_size: 96.0"): {"hidden_size": 96},
    ("llama", 'rope_scaling: "linear"'): {"rope_scaling": GONE},  # no shape depends on it
    ("gpt_neo", "no attention_types"): {"attention_types": [[["global"], 3]]},  # nor on this
    ("gpt2", 'model_type: "llama"'): dict(  # other families' names of a size are understood everywhere
        hidden_size=96, num_attention_heads=6, intermediate_size=208, num_hidden_layers=3, max_position_embeddings=64),
}


# What memplan accepts; all else it refuses.
ACCEPTED = {
    "llama": ["no num_key_value_heads", "num_key_value_heads: null", "head_dim: null", "tie_word_embeddings: null",
        'architectures: "LlamaForCausalLM"', "hidden_size: 96.0", 'rope_scaling: "linear"', 'model_type: "gpt2"'],
    "mistral": ["no num_key_value_heads, num_attention_heads: 16, no head_dim", "num_key_value_heads: null"],
    "mixtral": ["no num_local_experts", "no num_experts_per_tok"],
    "phi3": ["no num_key_value_heads"],
    "gpt2": ["no n_inner", "n_inner: null", 'model_type: "llama"'],
    "gpt_neo": ["no attention_types", "intermediate_size: null"],
    "falcon": ["no multi_query", "ffn_hidden_size: null", "num_kv_heads: 3"],
    "deepseek_v3": ["no kv_lora_rank", "no n_routed_experts", "no first_k_dense_replace", "no v_head_dim", "q_lora_rank: null"],
    "bert": ["no type_vocab_size", 'model_type: "roberta"'],
    "qwen2_moe": ["no shared_expert_intermediate_size"],
    "qwen3_moe": ["no moe_intermediate_size"],
    "t5": ["no d_kv"],
    "bart": ["no decoder_layers", "no encoder_layers", "no decoder_attention_heads", "decoder_ffn_dim: 176"],
    "vit": ["no patch_size", "no image_size"],
    "glm4": ["no num_key_value_heads"],
    "qwen3": ["no head_dim"],
    "qwen3_next": ["no linear_num_value_heads"],
    "mamba2": ["no state_size"],
    "phimoe": ["no num_local_experts"],
    "granitemoe": ["no num_experts_per_tok"],
    "olmoe": ["no num_experts"],
    "mamba": ["no state_size"],
    "jamba": ["no mamba_dt_rank"],
    "gemma": ["no head_dim"],
    "gemma3_text": ["class defaults only"],
    "gptj": ["n_inner: null"],
    "dbrx": ["ffn_config: null", "no ffn_config, ffn_hidden_size: 208, moe_num_experts: 4, moe_top_k: 2"],
    "mpt": ["attn_config: null", 'attn_config: {"attn_config": {"alibi": true}}'],
    "gpt_oss": ["no num_local_experts", "no head_dim", "num_experts_per_tok: 2, experts_per_token: 3"],
    "phi": ["hidden_dropout: 2"],
}
NO_SHAPE = ("quantization_config", "rope_scaling", "\u00fc\u4e2d", "x")


def made(name, change):
    base = OTHERS[name] if name in OTHERS else families.FAMILIES[name][0](SMALL)
    config = copy.deepcopy(base)
    for key, value in change.items():
        if value is GONE:
            config.pop(key, None)
        else:
            config[key] = value
    return config


def said(change):
    if len(change) > 4:
        return "class defaults only"
    return ", ".join(f"no {k}" if v is GONE else f"{k}: {json.dumps(v)[:50]}" for k, v in change.items())


def texts():
    for name, change in CHANGES:
        what = said(change)
        text = json.dumps(made(name, change)).replace("Infinity", "1e400")
        meant = json.dumps(made(name, {**change, **MEANT.get((name, what), {})}))
        one = list(change)[0] if len(change) < 5 else ""
        other = one == "model_type" and change[one] in transformers.CONFIG_MAPPING  # the rest of the file is wrong then
        yield name, what, "" if other else one, text, meant
    whole = json.dumps(made("llama", {}))
    broken = [("cut in a key", whole[:40]), ("cut after a value", whole[:whole.index(",")]), ("empty", ""),
              ("cut in a number", whole[:whole.index("96") + 1]), ("a list", f"[{whole}]"), ("a number", "7"),
              ("two objects", whole + whole), ("a comma too many", whole[:-1] + ",}"),
              ("one key twice", whole[:-1] + ', "hidden_size": 128}'), ("single quotes", whole.replace('"', "'")),
              ("NaN", whole.replace("96", "NaN")), ("an empty object", "{}"), ("a page instead", "<!DOCTYPE html>")]
    for what, text in broken:
        yield "llama", what, "", text, text


def count(text):
    """Parameters of the class, or None where it raises, or takes more than some seconds."""
    signal.alarm(5)
    try:
        raw = json.loads(text)
        config = transformers.CONFIG_MAPPING[raw["model_type"]].from_dict(raw)
        name = (raw.get("architectures") or [None])[0]
        known = getattr(transformers, name, None) if isinstance(name, str) and len(name) > 1 else None
        kind = known or transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
        with torch.device("meta"):
            model = kind(config)
        model.tie_weights()
        if hasattr(model, "vision_tower") or hasattr(getattr(model, "model", None), "vision_tower"):
            model = model.model.language_model  # memplan counts the text's part
        return sum(p.numel() for p in {id(p): p for p in model.parameters()}.values())
    except Exception:
        return None
    finally:
        signal.alarm(0)


def too_long(*_):
    raise TimeoutError


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, too_long)
    transformers.logging.set_verbosity_error()
    lines = [json.dumps(dict(family=name, what=what, key=key, text=text, parameters=count(meant),
                        refused=what not in ACCEPTED.get(name, []) and not what.startswith(NO_SHAPE)))
             for name, what, key, text, meant in texts()]
    pathlib.Path(sys.argv[1]).write_text("\n".join(lines) + "\n")
