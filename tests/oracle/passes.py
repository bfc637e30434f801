"""What operations of aten move, by a dispatch mode: each reads its operands and writes its results.

isinf is two kernels (absolute values, compared with infinity), which the mode does not see; what asks for a number on the
GPU is a wait of the host.  Messages are left out.
"""
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

VIEWS = set("""view _unsafe_view transpose t expand unsqueeze squeeze slice select split split_with_sizes detach alias
as_strided narrow unbind chunk empty empty_like new_empty empty_strided lift_fresh set_ resize_ device size stride layout
dim numel is_contiguous sym_size sym_stride sym_numel sym_storage_offset""".split())
WRITES = {"zero_", "fill_", "_foreach_zero_"}  # what they write is not read


def size(values):
    return sum(t.numel() * t.element_size() for t in tree_leaves(values) if isinstance(t, torch.Tensor))


def size_read(tensor):
    """What is read of it: an expanded one's own elements."""
    count = 1
    for n, stride in zip(tensor.shape, tensor.stride()):
        count *= n if stride else 1
    return count * tensor.element_size()


def moved(name, args, kwargs, result):
    if name in WRITES:
        return size(args[0])
    if name == "copy_":
        return size(args)
    if name == "isinf":
        return 2 * size(args) + size(args) + size(result)
    if name.startswith("_foreach") and name.endswith("_"):
        return size((args, kwargs)) + size(args[0])
    if name.startswith("_amp_foreach"):
        return 2 * size(args[0])
    return size((args, kwargs, result))


class Log(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.bytes, self.waits = 0, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if name == "_local_scalar_dense":
            self.waits += 1
        elif name not in VIEWS and function.namespace != "c10d":
            self.bytes += moved(name, args, kwargs, result)
        return result
