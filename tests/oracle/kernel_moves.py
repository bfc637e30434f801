"""Writes tests/golden/kernels.jsonl: what a layer of each family starts, forward and backward, and the bytes that moves.

Fake CUDA tensors, SDPA's flash kernel, no dropout; operations of aten that compute something, by a dispatch mode: three
layers less two.  Products and attention are counted apart.  An operation is a kernel, but these: a slice's gradient is
zeros and a copy, native norms' gradients are two kernels, a linear's bias is part of its product.

usage: kernel_moves.py FILE
"""
import collections
import json
import pathlib
import sys

import device  # noqa: F401  (before torch)
import step

import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import families
from passes import size_read as size

FAMILIES = """llama qwen2 qwen3 gemma phi3 gpt2 gpt_neox opt starcoder2 stablelm olmo olmo2 cohere phi granite glm
exaone4 ernie4_5 seed_oss""".split()
BATCH, LENGTH = 2, 64
NO_KERNEL = set("""view _unsafe_view transpose t expand unsqueeze squeeze slice select split split_with_sizes detach alias
as_strided permute reshape _reshape_alias unbind chunk empty empty_like empty_strided new_empty is_same_size lift_fresh
narrow device size stride dim layout numel sym_size sym_numel sym_stride sym_storage_offset is_contiguous
is_strides_like_format is_non_overlapping_and_dense unsafe_split""".split())
MORE = {"slice_backward": 2}
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}


class Log(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.phase, self.kernels, self.bytes = "forward", collections.Counter(), collections.Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if name in NO_KERNEL:
            return result
        kind = "product" if name in PRODUCTS else "attention" if "attention" in name else "other"
        moved = sum(size(t) for t in tree_leaves((args, kwargs, result)) if isinstance(t, torch.Tensor))
        self.kernels[self.phase, kind] += MORE.get(name, 1)
        self.bytes[self.phase, kind] += moved
        self.bytes[self.phase, kind] += size(result) if name == "slice_backward" else 0
        if name == "native_layer_norm_backward" and args[5] is not None:
            self.kernels[self.phase, kind] += 1
            self.bytes[self.phase, kind] += size(args[0]) + size(args[1])
        return result


def run(settings, dtype, layers):
    settings = dict(settings)
    settings["n_layer" if "n_layer" in settings else "num_hidden_layers"] = layers
    config = transformers.AutoConfig.for_model(**settings)
    config.use_cache = False
    stored = torch.bfloat16 if dtype == "bf16" else torch.float32
    log = Log()
    with FakeTensorMode(allow_non_fake_inputs=True), step.cuda_switches():
        with torch.device("cuda"):
            net = transformers.AutoModelForCausalLM.from_config(config, dtype=stored, attn_implementation="sdpa")
            ids = torch.zeros(BATCH, LENGTH, dtype=torch.long)
        net.train()
        with log:
            with torch.autocast("cuda", torch.bfloat16, enabled=dtype == "autocast"):
                loss = net(input_ids=ids, labels=ids).loss
            log.phase = "backward"
            loss.backward()
    return log


def bare(settings):
    """Without dropout."""
    fields = families.dropout_fields(transformers.AutoConfig.for_model(**settings))
    return dict(settings, **{name: 0.0 for name in fields})


def layer(settings, dtype):
    three, two = run(settings, dtype, 3), run(settings, dtype, 2)
    return {phase: {kind: [three.kernels[phase, kind] - two.kernels[phase, kind],
                           three.bytes[phase, kind] - two.bytes[phase, kind]]
                    for kind in ("product", "attention", "other")} for phase in ("forward", "backward")}


def main():
    lines = []
    for name in FAMILIES:
        settings = bare(families.FAMILIES[name][0](families.SHAPES["small"]))
        for dtype in ("bf16", "autocast"):
            found = layer(settings, dtype)
            lines.append(json.dumps(dict(family=name, dtype=dtype, batch=BATCH, seq_len=LENGTH, **found,
                                         config=settings)))
            print(name, dtype, found, flush=True)
    pathlib.Path(sys.argv[1]).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
