"""Qwen's first generation, whose code is no part of transformers but comes with its weights.

usage: qwen_remote.py FOLDER CODE     CODE holds modeling_qwen.py and its two companions, as in Qwen/Qwen-7B on the Hub

Writes FOLDER/qwen-<setting>-<dtype>-<attention>-0.json, as golden.py and golden_lora.py do.  Flash attention and its rotary
kernel are emulated: apply_rotary_emb keeps the halves of cos and sin that it is given (flash_attn/layers/rotary.py).
"""
import importlib.util
import pathlib
import sys
import types

import device  # noqa: F401
import torch

import adapters
import attention
import families
import golden
import measure

CONFIG = dict(model_type="qwen", bf16=True, no_bias=True, attn_dropout_prob=0.0, emb_dropout_prob=0.0)
NAMES = ["c_attn", "c_proj", "w1", "w2"]
RUNS = {  # adapters: None, or what golden_lora.py has with Qwen's names
    ("plain", "autocast", "flash"): None,
    ("plain", "fp16", "flash"): None,
    ("plain", "autocast", "sdpa"): None,
    ("plain", "fp16", "sdpa"): None,
    ("per-head", "autocast", "sdpa"): None,  # as PyTorch 2.1.1 had it
    ("lora-fp32", "autocast", "sdpa"): dict(rank=8, targets=["c_attn"], dropout=0.05, dtype="fp32", base="bf16"),
    ("lora-bf16", "autocast", "flash"): dict(rank=8, targets=NAMES, dropout=0.05, dtype="bf16", base="bf16"),
    ("lora-fp32", "autocast", "flash"): dict(rank=8, targets=NAMES, dropout=0.05, dtype="fp32", base="bf16"),
    ("lora-fp16", "fp16", "flash"): dict(rank=8, targets=NAMES, dropout=0.0, dtype="fp16", base="fp16"),
    ("full-bf16", "autocast", "flash"): dict(rank=8, targets=NAMES, dropout=0.0, dtype="bf16", base="bf16",
                                             full=["wte", "lm_head"]),
}


class Rotary(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx, grad):
        return torch.empty_like(grad), None, None


def load(code):
    package = types.ModuleType("qwen_code")
    package.__path__ = [str(code)]
    sys.modules["qwen_code"] = package
    install = attention.install

    def install_too(cuda):
        install(cuda)
        layers, rotary = types.ModuleType("flash_attn.layers"), types.ModuleType("flash_attn.layers.rotary")
        rotary.apply_rotary_emb_func = Rotary.apply
        sys.modules["flash_attn.layers"], sys.modules["flash_attn.layers.rotary"] = layers, rotary
        interface = types.ModuleType("flash_attn.flash_attn_interface")
        interface.flash_attn_func = attention.flash_attn_func
        interface.flash_attn_varlen_func = attention.flash_attn_varlen_func  # for batches above 1
        sys.modules["flash_attn.flash_attn_interface"] = interface
    attention.install = install_too
    return importlib.import_module("qwen_code.configuration_qwen"), importlib.import_module("qwen_code.modeling_qwen")


def settings(c):
    return dict(CONFIG, vocab_size=c["v"], hidden_size=c["h"], num_hidden_layers=c["L"], num_attention_heads=c["a"],
                kv_channels=c["d"], intermediate_size=2 * c["f"], max_position_embeddings=128)


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    configuration, modeling = load(pathlib.Path(sys.argv[2]).resolve())
    families.FAMILIES["qwen"] = (settings, False)
    families.SHAPES["one"] = dict(families.SHAPES["small"], b=1, s=120)  # its flash attention is another for batches
    golden.SHAPE = "one"

    def make_config(family, shape, dropout="default", layers=None):
        known = settings(dict(shape, **({"L": layers} if layers else {})))
        return configuration.QWenConfig(seq_length=128, use_flash_attn=True, use_cache=False, **known), known

    def make_model(config, stored, name, **_):
        attention.install(True)
        config.use_flash_attn = name == "flash_attention_2"
        if not config.use_flash_attn:  # what a model before imported
            modeling.apply_rotary_emb_func = modeling.flash_attn_unpadded_func = modeling.flash_attn_func = None
        if stored != torch.bfloat16:
            config.bf16, config.fp16, config.fp32 = False, stored == torch.float16, stored == torch.float32
        if stored == torch.float32:
            config.fp32, config.bf16, config.use_flash_attn = False, True, name == "flash_attention_2"
        model = modeling.QWenLMHeadModel(config)
        return model.to(stored)

    # transformers 5 has no such method; without a mask it gave a None a layer
    modeling.QWenModel.get_head_mask = lambda self, mask, n: [None] * n
    measure.make_config, measure.make_model = make_config, make_model
    targets = families.targets
    for (kind, dtype, attn), setting in RUNS.items():
        attention.mask_per_head = kind == "per-head"
        # a collator's mask, here no tensor of its own, which flash attention over one sequence does not look at
        families.targets = lambda n, ids, given=attn == "sdpa": dict(targets(n, ids), **dict(attention_mask=ids) if given else {})
        result = golden.record("qwen", dtype, attn, "0", setting)
        result["command"] = "python tests/oracle/qwen_remote.py tests/golden/oracle CODE"
        if attention.mask_per_head:
            result["mask_per_head"] = True
        if setting:
            result["adapters"] = setting
        for key in ("layer", "shared_by_layers", "outside"):
            del result[key]
        (folder / f"qwen-{kind}-{dtype}-{attn}-0.json").write_text(golden.dump(result))
