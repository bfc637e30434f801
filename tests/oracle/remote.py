"""Parameters of classes whose code comes with their weights and is no part of transformers.

usage: remote.py CODE FILE      CODE has a folder for each name of CLASSES, with configuration_*.py, modeling_*.py and
                                what they import, as on the Hub

Nothing of that code is kept here.  Each configuration has one key changed, taken away or null; a configuration that the
class itself refuses is left out.  The code is of its time: torch 2.13.0, transformers 4.37.2, tokenizers 0.15.2,
huggingface_hub 0.23.5, accelerate 0.27.2, einops.
"""
import importlib
import json
import pathlib
import sys
import types

import torch

SIZES = dict(hidden_size=96, num_hidden_layers=3, num_attention_heads=6, intermediate_size=208, vocab_size=1234,
             max_position_embeddings=64)
TIES = [{"tie_word_embeddings": True}, {"tie_word_embeddings": False}]
KV = [{"num_key_value_heads": 2}, {"num_key_value_heads": None}, {"num_key_value_heads": 1}]
BIAS = [{"bias": True}, {"bias": False}]
GLM = dict(num_layers=3, padded_vocab_size=1234, hidden_size=96, ffn_hidden_size=208, kv_channels=16, num_attention_heads=6,
           seq_length=64, original_rope=True)
PHI = dict(n_layer=3, n_embd=96, n_head=6, n_positions=64, vocab_size=1216, n_inner=208, rotary_dim=8)

CLASSES = {  # folder: module, classes, model_type, base, changes
    "chatglm": ("chatglm", "ChatGLMConfig", "ChatGLMForConditionalGeneration", "chatglm", GLM, TIES + [
        {"add_bias_linear": True}, {"add_bias_linear": False}, {"add_qkv_bias": True}, {"kv_channels": 20},
        {"add_bias_linear": True, "add_qkv_bias": True}, {"multi_query_attention": True},
        {"multi_query_attention": True, "multi_query_group_num": 2}, {"multi_query_group_num": 2}, {"rmsnorm": False},
        {"post_layer_norm": False}, {"vocab_size": 999}, {"num_layers": 5}, {"ffn_hidden_size": 112},
        {"pre_seq_len": None}, {"intermediate_size": 77}, {"num_key_value_heads": 2}]),
    "internlm": ("internlm", "InternLMConfig", "InternLMForCausalLM", "internlm", SIZES, TIES + BIAS + KV),
    "internlm2": ("internlm2", "InternLM2Config", "InternLM2ForCausalLM", "internlm2", SIZES, TIES + BIAS + KV + [
        {"head_dim": 20}, {"mlp_bias": True}, {"attention_bias": True}]),
    "baichuan7b": ("baichuan", "BaiChuanConfig", "BaiChuanForCausalLM", "baichuan", dict(SIZES, vocab_size=64000),
                   TIES + KV + BIAS + [{"head_dim": 20}]),
    "baichuan13b": ("baichuan", "BaichuanConfig", "BaichuanForCausalLM", "baichuan",
                    dict({k: v for k, v in SIZES.items() if k != "max_position_embeddings"}, model_max_length=64,
                         hidden_size=5120, num_attention_heads=40, num_hidden_layers=1),
                    TIES + KV + [{"vocab_size": 64000}, {"attention_bias": True}]),
    "minicpm": ("minicpm", "MiniCPMConfig", "MiniCPMForCausalLM", "minicpm", dict(SIZES, tie_word_embeddings=True),
                TIES + KV + [{"attention_bias": True}, {"mlp_bias": True}, {"scale_emb": 12}, {"head_dim": 20}]),
    "qwen": ("qwen", "QWenConfig", "QWenLMHeadModel", "qwen",
             dict(SIZES, intermediate_size=416, kv_channels=16, seq_length=64, bf16=True), TIES + KV + [
                 {"no_bias": False}, {"no_bias": True}, {"kv_channels": 20}, {"use_logn_attn": False},
                 {"intermediate_size": 224}, {"attention_bias": False}]),
    "phi_msft": ("mixformer_sequential", "MixFormerSequentialConfig", "MixFormerSequentialForCausalLM",
                 "mixformer-sequential", PHI, TIES + [
                     {"n_inner": None}, {"n_head_kv": 2}, {"n_head_kv": None}, {"rotary_dim": 64}, {"vocab_size": 1234},
                     {"vocab_size": 1234, "pad_vocab_size_multiple": 8}, {"vocab_size": 1234, "pad_vocab_size_multiple": 1},
                     {"rotary_dim": 16}]),
}


XFORMERS = types.ModuleType("xformers")  # of which Baichuan imports what is not called here
XFORMERS.ops = None


def modules(code, folder, stem):
    sys.modules.setdefault("xformers", XFORMERS)
    package = types.ModuleType("remote_" + folder)
    package.__path__ = [str(code / folder)]
    sys.modules["remote_" + folder] = package
    return [importlib.import_module(f"remote_{folder}.{part}_{stem}") for part in ("configuration", "modeling")]


def count(make_config, make_model, settings, kind):
    config = make_config(**settings)
    with torch.device("meta"):
        model = make_model(config)
    model.tie_weights()
    named = dict(model.named_parameters())
    return dict(config=dict(settings, model_type=kind), parameters=sum(p.numel() for p in named.values()),
                trainable=sum(p.numel() for p in named.values() if p.requires_grad))


def variants(base, changes):
    yield base
    for change in changes:
        yield {**base, **change}


def lines(code):
    for folder, (stem, config_name, model_name, kind, base, changes) in CLASSES.items():
        configuration, modeling = modules(code, folder, stem)
        make_config, make_model = getattr(configuration, config_name), getattr(modeling, model_name)
        for settings in variants(base, changes):
            try:
                yield json.dumps(count(make_config, make_model, settings, kind))
            except (ValueError, AssertionError, TypeError, ZeroDivisionError) as refused:
                print(folder, settings, type(refused).__name__, refused, file=sys.stderr)


if __name__ == "__main__":
    pathlib.Path(sys.argv[2]).write_text("\n".join(dict.fromkeys(lines(pathlib.Path(sys.argv[1]).resolve()))) + "\n")
