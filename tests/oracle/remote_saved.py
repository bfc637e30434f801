"""What autograd keeps of classes whose code comes with their weights and is no part of transformers.

usage: remote_saved.py FOLDER CODE      CODE as for remote.py; sentencepiece is not called and need not be there

Writes FOLDER/<name>-<dtype>-<attention>-0.json: kept bytes as golden.py has them, without phases.  transformers 5.23 runs
this code of 2023 with what it has lost since put back; functions that torch.jit.script made are run as they are written.
Tables of cosines that all layers share are left out: of ChatGLM it is the whole of its longest sequence's.
"""
import os
os.environ["PYTORCH_JIT"] = "0"  # before torch
import contextlib  # noqa: E402
import importlib.machinery  # noqa: E402
import pathlib  # noqa: E402
import sys  # noqa: E402
import types  # noqa: E402

import device  # noqa: E402, F401
import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import modeling_utils, pytorch_utils  # noqa: E402
from transformers.utils import import_utils  # noqa: E402

import attention  # noqa: E402
import describe  # noqa: E402
import families  # noqa: E402
import golden  # noqa: E402
import measure  # noqa: E402
import remote  # noqa: E402


def sizes(c, **more):
    return dict(hidden_size=c["h"], num_hidden_layers=c["L"], num_attention_heads=c["a"], intermediate_size=c["f"],
                vocab_size=c["v"], max_position_embeddings=64, **more)


def glm(c, **more):
    return dict(num_layers=c["L"], padded_vocab_size=c["v"], hidden_size=c["h"], ffn_hidden_size=c["f"], kv_channels=c["d"],
                num_attention_heads=c["a"], seq_length=64, original_rope=True, **more)


def baichuan13b(c):
    return dict({k: v for k, v in sizes(c).items() if k != "max_position_embeddings"}, model_max_length=64)


def phi(c):
    return dict(n_layer=c["L"], n_embd=c["h"], n_head=c["a"], n_positions=64, vocab_size=c["v"], n_inner=c["f"], rotary_dim=8,
                pad_vocab_size_multiple=1)


RUNS = {  # name: folder of remote.CLASSES, settings, attention
    "chatglm": ("chatglm", lambda c: glm(c, multi_query_attention=True, multi_query_group_num=c["kv"], add_qkv_bias=True),
                ["sdpa"]),
    "chatglm-heads": ("chatglm", lambda c: glm(c, add_bias_linear=True), ["sdpa"]),
    "internlm": ("internlm", sizes, ["eager"]),
    "internlm2": ("internlm2", lambda c: sizes(c, num_key_value_heads=c["kv"], bias=False), ["eager"]),
    "minicpm": ("minicpm", lambda c: sizes(c, num_key_value_heads=c["kv"], scale_emb=12, scale_depth=1.4, dim_model_base=32,
                                           tie_word_embeddings=True), ["eager", "flash"]),
    "phi-msft": ("phi_msft", phi, ["eager"]),
    "baichuan-13b": ("baichuan13b", baichuan13b, ["eager"]),
}


def full(size, fill, **more):
    """torch.full of a tensor, which is the least number of its type: fake tensors have no values."""
    return FULL(size, torch.finfo(fill.dtype).min if isinstance(fill, torch.Tensor) else fill, **more)


FULL = torch.full
SHAPES = {"baichuan-13b": dict(families.SHAPES["small"], h=5120, a=40, kv=40, d=128)}  # the width tells it from 7B
NO_HEAD = ["baichuan-13b"]  # whose loss has more terms than one


def put_back():
    torch.full = full
    import_utils.is_torch_fx_available = lambda: False
    pytorch_utils.ALL_LAYERNORM_LAYERS = getattr(pytorch_utils, "ALL_LAYERNORM_LAYERS", [])
    pytorch_utils.is_torch_greater_or_equal_than_1_13 = True
    for name in ("is_flash_attn_2_available", "is_flash_attn_greater_or_equal_2_10"):
        if not hasattr(transformers.utils, name):
            setattr(transformers.utils, name, lambda: True)
    pieces = types.ModuleType("sentencepiece")
    pieces.__spec__ = importlib.machinery.ModuleSpec("sentencepiece", None)
    sys.modules.setdefault("sentencepiece", pieces)


def classes(code, folder):
    stem, config_name, model_name = remote.CLASSES[folder][:3]
    configuration, modeling = remote.modules(code, folder, stem)
    for one in list(vars(modeling).values()):
        if isinstance(one, type) and issubclass(one, modeling_utils.PreTrainedModel):
            one._tied_weights_keys = None
            one.post_init = lambda self: None
            one._supports_sdpa = one._supports_flash_attn = one._supports_flash_attn_2 = True
    modeling.flash_attn_func = attention.flash_attn_func
    return getattr(configuration, config_name), getattr(modeling, model_name)


def tie(model):
    head = model.get_output_embeddings()
    if head is not None and getattr(model.config, "tie_word_embeddings", False):
        head.weight = model.get_input_embeddings().weight


def outside(run, layers):
    """Phi's first module and its last are the embedding and the head."""
    inside = range(1, layers + 1) if run.family == "phi-msft" else range(layers)
    return [k for k, v in run.storages.items() if describe.layer_of(v["savers"][0][2])[0] not in inside]


def on_gpu(run, keys):
    """Not the least number of a type, which torch.max is given from the CPU."""
    return [k for k in keys if not any(op + attribute == "Maximumother" for op, attribute, _ in run.storages[k]["savers"])]


def install(name, code):
    folder, settings, _ = RUNS[name]
    make, model_class = classes(code, folder)
    kind = remote.CLASSES[folder][3]
    model_class.tie_weights = lambda self, *_, **__: tie(self)
    families.FAMILIES[name] = (settings, False)

    def make_config(family, shape, dropout="default", layers=None):
        known = settings(dict(shape, **({"L": layers} if layers else {})))
        config = make(**known)
        type(config).use_return_dict = True
        for key, value in dict(max_length=20, output_attentions=False, output_hidden_states=False, pretraining_tp=1,
                               use_cache=False, rope_scaling=None, rope_theta=10000.0, torch_dtype=None,
                               gradient_checkpointing=False).items():
            with contextlib.suppress(AttributeError):
                object.__setattr__(config, key, value)
        return config, dict(known, model_type=kind)

    def make_model(config, stored, kernel, **_):
        config.torch_dtype = None
        config.attn_implementation = config._attn_implementation = kernel
        return model_class(config).to(stored)

    measure.make_config, measure.make_model = make_config, make_model


def record(name, dtype, kernel):
    shape = SHAPES.get(name, families.SHAPES["small"])
    run = measure.Run(name, shape, dtype, kernel, "0")
    out = outside(run, shape["L"])
    result = dict(
        family=name, torch=torch.__version__, transformers=transformers.__version__,
        command="python tests/oracle/remote_saved.py tests/golden/remote CODE", config=run.settings, dtype=dtype,
        attention=kernel, b=shape["b"], s=shape["s"], layers=shape["L"],
        parameter_bytes=sum({p.untyped_storage()._cdata: p.untyped_storage().nbytes()
                             for p in run.model.parameters()}.values()),
        layer=golden.compact(run, on_gpu(run, describe.middle(run)[0])), outside=golden.compact(run, out))
    if name in NO_HEAD:
        del result["outside"]
    return result


if __name__ == "__main__":
    put_back()
    target, source = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    target.mkdir(exist_ok=True)
    for each, (_, _, kernels) in RUNS.items():
        install(each, source)
        for form in ("bf16", "fp32", "autocast"):
            for kernel_name in kernels:
                if kernel_name == "flash" and form == "fp32":
                    continue
                path = target / f"{each}-{form}-{kernel_name}-0.json"
                path.write_text(golden.dump(record(each, form, kernel_name)))
