"""Bytes and kernels of Megatron's vocabulary-parallel cross entropy: prints each operation, per logit and per token.

Eager: the operations of aten that compute something, by a dispatch mode, on the CPU, over a fake group of two ranks; two
vocabularies, so that what grows with them is apart.  An index is one value of each row, read or written, and exp(out=x) reads x once.
--compiled: what Inductor makes for an H100 of the four pieces of fused_cross_entropy.py, loads and stores of each kernel, as
inductor_layer.py has it made without a GPU; torch==2.6.0 triton==3.2.0.

usage: loss_moves.py MEGATRON_LM [--compiled]      MEGATRON_LM: a checkout of d98e8a64
"""
import importlib.util
import pathlib
import re
import sys
import types

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from passes import size_read as size

TOKENS, WORDS = 64, 1000
NO_KERNEL = set("view unsqueeze lift_fresh allreduce_".split())


def package(name, **members):
    module = types.ModuleType(name)
    module.__path__ = []
    module.__dict__.update(members)
    sys.modules[name] = module


class VocabUtility:
    @staticmethod
    def vocab_range_from_per_partition_vocab_size(size, rank, world_size):
        return rank * size, (rank + 1) * size


def load(root, name):
    """A file of megatron.core alone: the package imports what is not installed."""
    spec = importlib.util.spec_from_file_location(name, pathlib.Path(root) / (name.replace(".", "/") + ".py"))
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stubs():
    for name in ("megatron", "megatron.core", "megatron.core.tensor_parallel"):
        package(name)
    package("megatron.core.parallel_state", get_tensor_model_parallel_group=lambda: dist.group.WORLD)
    package("megatron.core.utils", get_pg_rank=dist.get_rank, get_pg_size=dist.get_world_size)
    package("megatron.core.jit", jit_fuser=lambda function: function)
    package("megatron.core.tensor_parallel.utils", VocabUtility=VocabUtility)


class Log(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.rows = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        name = function.overloadpacket.__name__
        given = [t for t in tree_leaves(args) if isinstance(t, torch.Tensor)]
        moved = sum(map(size, given)) + sum(size(t) for t in tree_leaves(result) if isinstance(t, torch.Tensor))
        if name == "index" or name == "index_put_" and given[1].dtype == torch.int64:
            moved = sum(map(size, given[1:])) + TOKENS * given[0].element_size()  # and of all a value of each row
        if name not in NO_KERNEL or name == "allreduce_":
            self.rows.append((name, moved))
        return result


def eager(function, words):
    logits = torch.randn(TOKENS, 1, words, requires_grad=True) * 1
    labels = torch.randint(0, 2 * words, (TOKENS, 1))
    there, back = Log(), Log()
    with there:
        loss = function.apply(logits, labels, 0.0, dist.group.WORLD)
    gradient = torch.ones_like(loss)
    with back:
        torch.autograd.grad(loss, logits, gradient)
    return there.rows, back.rows


def print_eager(function):
    small, large = eager(function, WORDS), eager(function, 2 * WORDS)
    for phase, a, b in zip(("forward", "backward"), small, large):
        total = [0, 0.0, 0.0]
        for (name, x), (_, y) in zip(a, b):
            logit, token = (y - x) / (TOKENS * WORDS), (2 * x - y) / TOKENS
            print(f"{phase:9} {name:12} {logit:5.1f} a logit {token:6.1f} a token")
            if name not in NO_KERNEL:
                total = [total[0] + 1, total[1] + logit, total[2] + token]
        print(f"{phase:9} {total[0]} kernels, {total[1]:.1f} bytes a logit, {total[2]:.1f} a token")


def graph_of(function, *args):
    """What AOTAutograd makes of it; not run."""
    from torch._inductor.compile_fx import compile_fx

    found = []

    def inner(gm, example, **kw):
        found.append((gm, example, kw))
        given = [n.name for n in gm.graph.nodes if n.op == "placeholder"]

        def run(inputs):
            results = next(n for n in gm.graph.nodes if n.op == "output").args[0]
            return tuple(inputs[given.index(v.name)] if v.op == "placeholder"
                         else torch.empty(v.meta["val"].shape, dtype=v.meta["val"].dtype) for v in results)

        run._boxed_call = True
        return run

    with torch.no_grad():
        torch.compile(function, fullgraph=True, backend=lambda gm, ex: compile_fx(gm, ex, inner_compile=inner))(*args)
    return found[0]


def print_compiled(module):
    import inductor_layer
    from torch._subclasses.fake_tensor import FakeTensorMode

    tokens, words = 1024, 25216
    half, whole = torch.empty(tokens, 1, words, dtype=torch.bfloat16), torch.empty(tokens, 1, words)
    row, labels = torch.empty(tokens, 1), torch.zeros(tokens, 1, dtype=torch.long)
    pieces = {"calculate_logits_max": (half,), "calculate_predicted_logits": (whole, labels, row, 0, words),
              "calculate_cross_entropy_loss": (whole, torch.empty(2 * tokens, 1)),
              "calculate_gradients": (whole, row, labels > 0, labels.view(-1))}
    graphs = {name: graph_of(getattr(module, name), *args) for name, args in pieces.items()}
    inductor_layer.pretend()
    for name, (gm, example, kw) in graphs.items():
        modes = [e.fake_mode for e in example if hasattr(e, "fake_mode")]
        code, _ = inductor_layer.lower(gm, example, kw, (modes or [FakeTensorMode()])[0])
        print(name)
        for line in code.splitlines():
            if re.search(r"def triton_|tl\.load|tl\.store|for roffset|\.run\(", line):
                print("   ", line.strip()[:150])


def main():
    root = sys.argv[1]
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    stubs()
    plain = load(root, "megatron.core.tensor_parallel.cross_entropy")
    if "--compiled" in sys.argv:
        print_compiled(load(root, "megatron.core.fusions.fused_cross_entropy"))
    else:
        print_eager(plain._VocabParallelCrossEntropy)


if __name__ == "__main__":
    main()
