"""Writes tests/golden/counts.jsonl: configurations and how many parameters transformers' class makes of each.

usage: counts.py FILE

The indexer of DeepSeek V3.2 runs without gradients and is not counted as trained, whatever its weights ask for.
Nothing is allocated: the classes are built on the meta device.  The configurations are those of families.py, each with
one key at a time changed, so that every default and every key of a family's rows counts at least once.
"""
import json
import pathlib
import sys

import torch
import transformers

import families

DECODERS = ["smollm3", "granite", "glm", "seed_oss", "ministral", "hunyuan_v1_dense", "ernie4_5", "ernie4_5_moe", "dots1",
            "nemotron", "olmo3", "exaone4", "cohere2", "gemma3_text", "minicpm3", "deepseek_v32", "llama4_text",
            "arcee", "helium", "internlm3", "ministral3", "cwm", "jais2", "hyperclovax", "youtu", "minimax_m2", "solar_open",
            "glm4_moe_lite", "flex_olmo", "exaone_moe", "vaultgemma", "granitemoeshared", "granitemoehybrid", "bamba",
            "nemotron_h", "lfm2", "lfm2_moe", "falcon_h1"]

# Each alone on top of the family's configuration; None takes the key away. Classes ignore what is not theirs.
CHANGES = [{}, {"attention_bias": True}, {"attention_bias": False}, {"attention_out_bias": True}, {"mlp_bias": True},
           {"use_bias": True}, {"tie_word_embeddings": True}, {"tie_word_embeddings": False},
           {"num_key_value_heads": 6}, {"head_dim": 20}, {"num_hidden_layers": 7}, {"hidden_act": "gelu"},
           {"moe_layer_start_index": 1}, {"moe_layer_end_index": 1}, {"moe_layer_interval": 2},
           {"moe_num_shared_experts": 0}, {"use_post_norm": False}, {"num_shared_experts": 3}, {"shared_intermediate_size": 0}, {"first_k_dense_replace": 2}, {"n_shared_experts": 3},
           {"moe_intermediate_size": 48}, {"q_lora_rank": 52}, {"v_head_dim": 12}, {"qk_rope_head_dim": 4},
           {"index_n_heads": 3}, {"index_head_dim": 28}, {"index_topk": 4}, {"mlp_layer_types": ["sparse", "dense", "sparse"]},
           {"moe_layers": [1]}, {"moe_layers": []}, {"interleave_moe_layer_step": 2}, {"intermediate_size_mlp": 112},
           {"use_qk_norm": False}, {"no_rope_layers": [0, 1, 0]}]

# The same of keys that others' classes have in another sense.
MAMBA_KEYS = [{"mamba_d_head": "auto"}, {"mamba_n_heads": 4, "mamba_d_head": "auto"}, {"mamba_expand": 4, "mamba_d_head": 32},
              {"mamba_d_state": 20}, {"mamba_n_groups": 3}, {"mamba_d_conv": 3}, {"mamba_proj_bias": True},
              {"mamba_conv_bias": False}, {"num_key_value_heads": None}]
OWN = {"granitemoehybrid": [*MAMBA_KEYS, {"layer_types": ["mamba", "attention", "mamba"]}, {"num_local_experts": 0},
                            {"layers_block_type": ["linear_attention", "linear_attention", "full_attention"]},
                            {"layer_types": ["full_attention"] * 3, "position_embedding_type": "rope"}],
       "nemotron_h": [{"layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"]},
                      {"layers_block_type": ["mamba", "mlp", "attention"], "num_hidden_layers": 7},
                      {"layers_block_type": None, "hybrid_override_pattern": "M-M*E"}, {"layers_block_type": None},
                      {"layers_block_type": ["moe"], "moe_latent_size": 56}, {"layers_block_type": ["moe"], "mlp_bias": True},
                      {"layers_block_type": ["moe", "mlp"], "moe_latent_size": 56, "mlp_bias": True},
                      {"layers_block_type": ["mlp"], "n_routed_experts": 0}, {"mamba_num_heads": 4, "mamba_head_dim": 24},
                      {"n_groups": 3, "mamba_n_groups": 3}, {"mamba_d_conv": 3}, {"use_bias": True}, {"use_conv_bias": False},
                      {"mamba_conv_bias": False}, {"ssm_state_size": 20}],
       "lfm2": [{"layer_types": ["conv", "full_attention", "conv"]}, {"full_attn_idxs": [1]}, {"full_attn_idxs": [0, 9]},
                {"full_attn_idxs": []}, {"conv_bias": True, "full_attn_idxs": []}, {"conv_L_cache": 4, "full_attn_idxs": []},
                {"block_auto_adjust_ff_dim": False}, {"block_ffn_dim_multiplier": 1.3},
                {"block_multiple_of": 96}, {"block_ff_dim": 320, "intermediate_size": 320}, {"tie_embedding": False}],
       "lfm2_moe": [{"layer_types": kinds, **more} for kinds in (["conv"] * 3, ["full_attention", "conv", "full_attention"])
                    for more in ({}, {"num_dense_layers": 2}, {"num_dense_layers": 3}, {"use_expert_bias": False}, {"conv_bias": True},
                                 {"conv_L_cache": 4}, {"tie_word_embeddings": False}, {"moe_intermediate_size": 48})],
       "falcon_h1": [{"mamba_d_head": "auto"}, {"mamba_d_ssm": 192, "mamba_d_head": 32}, {"mamba_d_ssm": None, "mamba_d_head": 32},
                     {"mamba_d_state": 20}, {"mamba_n_groups": 3}, {"mamba_d_conv": 3}, {"mamba_proj_bias": True},
                     {"projectors_bias": True}, {"mamba_conv_bias": False}, {"mamba_rms_norm": True},
                     {"num_key_value_heads": None}],
       "exaone_moe": [{"num_nextn_predict_layers": 1}],  # which its class does not make
       "bamba": [*MAMBA_KEYS, {"attn_layer_indices": [1]}, {"attn_layer_indices": [0, 2]}, {"attn_layer_indices": []}]}

# Keys that published files of the family leave out: the class's own default counts.
ABSENT = {"gemma3_text": ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                          "num_key_value_heads", "head_dim"],
          "smollm3": ["num_key_value_heads"], "glm": ["num_key_value_heads", "head_dim"],
          "seed_oss": ["num_key_value_heads", "head_dim"], "ministral": ["num_key_value_heads"],
          "ernie4_5": ["num_key_value_heads", "head_dim"],
          "ernie4_5_moe": ["num_key_value_heads", "head_dim", "moe_num_experts", "moe_intermediate_size",
                           "moe_num_shared_experts", "moe_layer_start_index"],
          "minicpm3": ["q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"],
          "deepseek_v32": ["q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim", "index_n_heads",
                           "index_head_dim", "index_topk", "n_routed_experts", "moe_intermediate_size",
                           "n_shared_experts", "first_k_dense_replace"],
          "llama4_text": ["num_key_value_heads", "head_dim", "intermediate_size_mlp", "num_local_experts",
                          "num_experts_per_tok", "intermediate_size"],
          "ministral3": ["num_key_value_heads", "head_dim"], "cwm": ["num_key_value_heads", "head_dim"],
          "minimax_m2": ["head_dim", "num_local_experts"], "hyperclovax": ["head_dim"],
          "solar_open": ["head_dim", "n_routed_experts", "moe_intermediate_size", "n_shared_experts"],
          "youtu": ["q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"],
          "flex_olmo": ["num_experts"], "vaultgemma": ["num_key_value_heads", "head_dim"],
          "exaone_moe": ["num_key_value_heads", "head_dim", "num_experts", "moe_intermediate_size", "first_k_dense_replace"],
          "granitemoeshared": ["num_local_experts", "shared_intermediate_size"],
          "glm4_moe_lite": ["q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim", "n_routed_experts",
                            "moe_intermediate_size", "n_shared_experts", "mlp_layer_types"],
          "granitemoehybrid": ["num_local_experts", "shared_intermediate_size", "num_key_value_heads", "mamba_d_head",
                               "mamba_d_state", "mamba_n_groups"],
          "nemotron_h": ["num_key_value_heads", "head_dim", "intermediate_size", "mamba_head_dim", "ssm_state_size", "n_groups",
                         "n_routed_experts", "moe_intermediate_size", "moe_shared_expert_intermediate_size",
                         "layers_block_type"],
          "falcon_h1": ["num_key_value_heads", "mamba_d_state", "mamba_n_groups"],
          "lfm2": ["num_key_value_heads", "intermediate_size", "block_multiple_of"],
          "lfm2_moe": ["num_key_value_heads", "num_experts", "moe_intermediate_size", "num_dense_layers", "intermediate_size"],
          "bamba": ["num_key_value_heads", "mamba_d_state", "mamba_n_groups"],
          "dots1": ["num_key_value_heads", "head_dim", "moe_intermediate_size", "first_k_dense_replace"]}

WIDE = dict(families.SHAPES["small"], h=384, a=32)  # whose heads any class's number of key heads divides


# Of two stacks, and diffusers' class, whose config.json has its name: keys changed, then keys left out, one at a time.
WHISPER = dict(model_type="whisper", d_model=96, encoder_layers=3, decoder_layers=2, encoder_attention_heads=8,
               decoder_attention_heads=8, encoder_ffn_dim=208, decoder_ffn_dim=208, vocab_size=1234, num_mel_bins=20,
               max_source_positions=40, max_target_positions=48, pad_token_id=0)
BART = dict(model_type="bart", d_model=96, encoder_layers=3, decoder_layers=2, encoder_attention_heads=8,
            decoder_attention_heads=8, encoder_ffn_dim=208, decoder_ffn_dim=208, vocab_size=1234, max_position_embeddings=64)
WIDTHS = [{}, {"decoder_ffn_dim": 112}, {"decoder_attention_heads": 12}, {"encoder_layers": 1}, {"decoder_layers": 5},
          {"tie_word_embeddings": False}]  # not of BART, which then has a table that nothing uses
DIT = dict(_class_name="DiTTransformer2DModel", num_attention_heads=6, attention_head_dim=16, in_channels=4, out_channels=8,
           num_layers=3, sample_size=16, patch_size=2, num_embeds_ada_norm=10, attention_bias=True,
           norm_elementwise_affine=False)
MORE = [(BART, WIDTHS[:-1]), (WHISPER, WIDTHS),
        (DIT, [{}, {"attention_bias": False}, {"norm_elementwise_affine": True}, {"patch_size": 4}, {"in_channels": 3}])]


def more():
    for base, changes in MORE:
        for change in changes:
            yield {**base, **change}
        for key in base:
            if key not in ("model_type", "_class_name", "pad_token_id"):
                yield {k: v for k, v in base.items() if k != key}


# A class's own number of heads of keys and values, and defaults that differ from the family's of the same name.
KV_HEADS = ["qwen2", "qwen3", "gemma", "gemma2", "starcoder2", "stablelm", "glm4", "qwen2_moe", "qwen3_moe", "gpt_oss", "glm4_moe"]


def silent():
    for name in KV_HEADS:
        yield {k: v for k, v in families.FAMILIES[name][0](WIDE).items() if k != "num_key_value_heads"}
    small = families.SHAPES["small"]
    yield {k: v for k, v in families.FAMILIES["glm4_moe"][0](small).items() if k != "head_dim"}
    yield {**{k: v for k, v in families.FAMILIES["glm4_moe"][0](small).items() if k != "head_dim"}, "num_attention_heads": 7,
           "num_key_value_heads": 1}  # 96 / 7, as the class's own 4096 / 96, rounded down
    yield {**families.FAMILIES["deepseek_v2"][0](small), "mlp_bias": True}
    yield {k: v for k, v in families.FAMILIES["roberta"][0](small).items() if k != "max_position_embeddings"}
    for base in (BART, WHISPER):  # the encoder's depth and heads under the names that decoders have
        other = {"encoder_layers": "num_hidden_layers", "encoder_attention_heads": "num_attention_heads"}
        yield {other.get(k, k): v for k, v in base.items()}
    yield dict(model_type="mt5", d_model=96, d_kv=16, d_ff=208, num_heads=6, num_layers=3, vocab_size=1234,
               tie_word_embeddings=True)  # gated, unlike T5; whose class ties whatever a file says
    for more in ({}, dict(feed_forward_proj="relu", num_decoder_layers=2)):
        yield dict(model_type="umt5", d_model=96, d_kv=16, d_ff=208, num_heads=6, num_layers=3, vocab_size=1234, **more)


def build(settings):
    if "_class_name" in settings:
        import diffusers
        with torch.device("meta"):
            return diffusers.DiTTransformer2DModel.from_config(settings)
    config = transformers.AutoConfig.for_model(**settings)
    stacks = transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, transformers.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING
    classes = stacks if getattr(config, "is_encoder_decoder", False) else [transformers.MODEL_FOR_CAUSAL_LM_MAPPING]
    with torch.device("meta"):
        model = next(c for c in classes if type(config) in c)[type(config)](config)
    model.tie_weights()
    return model


def buffers(model):
    """Elements that a checkpoint has beside the parameters."""
    return sum(b.numel() for m in model.modules() for name, b in m._buffers.items()
               if b is not None and name not in m._non_persistent_buffers_set)


def count(settings):
    model = build(settings)
    named = dict(model.named_parameters())  # tied ones once
    return dict(config=settings, parameters=sum(p.numel() for p in named.values()),
                trainable=sum(p.numel() for n, p in named.items() if p.requires_grad and ".indexer." not in n),
                buffers=buffers(model))


def variants(name):
    base = families.FAMILIES[name][0](families.SHAPES["small"])
    for key in ("layer_types", "mlp_layer_types"):  # the class's own, of any number of layers
        if name != "lfm2_moe":  # whose class has none
            base.pop(key, None)
    config = transformers.AutoConfig.for_model(**base)
    for change in CHANGES:
        if name == "internlm3" and any(key.endswith("_bias") for key in change):
            continue  # the class wants all biases alike
        if name in ("helium", "hyperclovax", "youtu", "glm4_moe_lite") and "head_dim" in change:
            continue  # makes weights that do not run
        if name == "lfm2_moe" and "num_hidden_layers" in change:
            continue  # not of its list
        if all(hasattr(config, key) for key in change):
            yield {**base, **change}
    for change in OWN.get(name, []):
        yield {**base, **change}
    wide = families.FAMILIES[name][0](WIDE)
    for key in ABSENT.get(name, []):
        yield {k: v for k, v in wide.items() if k != key}


if __name__ == "__main__":
    seen, lines = set(), []
    for settings in [s for name in DECODERS for s in variants(name)] + list(more()) + list(silent()):
        line = json.dumps(count(settings))
        if line not in seen:
            seen.add(line)
            lines.append(line)
    pathlib.Path(sys.argv[1]).write_text("\n".join(lines) + "\n")
