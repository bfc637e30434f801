"""Live bytes through a training step: a dispatch mode that sees every storage appear and polls for its death.

A dispatch mode sees the operations, not the allocator, and PyTorch runs slightly other operations while one is on.  What
differs from a step without a mode, and is put right here (peaks.py checks the result against the allocator's own events):

1. Sums of gradients.  The engine adds a second gradient for the same place with InputBuffer::accumulate
   (torch/csrc/autograd/input_buffer.cpp): `old.add_(new)` if old may be overwritten, else `old + new`.  Only old, the
   gradient that came first, is looked at: it must be a plain tensor, non-overlapping and dense, its tensor held by nobody
   else and its storage by no other tensor.  While a mode is on no tensor counts as plain, so every sum comes out of place.
   Here the same rule is read off the reference counts when the sum is seen; if it holds, the sum takes over old's storage.
   Most linear layers fail it: their input's gradient is a view of a matrix product, and a view keeps its base.
2. Formulas that write out of place for tensor subclasses, and for everything while a mode is on: index_put of an index's
   gradient and scatter of topk's (FunctionsManual.cpp), the mask's addition in the math kernel of
   scaled_dot_product_attention (transformers/attention.cpp).  They too take over the first operand's storage.
3. Buffers inside one operation: `inner_bytes`.
"""
import sys

import torch
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import attention

aten = torch.ops.aten


def holders(t):
    """References to a tensor and to its storage, those of the call that is just being dispatched included."""
    return t._use_count(), torch._C._storage_Use_Count(t.untyped_storage()._cdata)


class _Sole(TorchDispatchMode):
    """Learns what `holders` gives for a gradient that only the engine holds."""
    seen = None

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is aten.add.Tensor:
            self.seen = holders(args[0])
        return function(*args, **(kwargs or {}))


def caller_of(frame):
    """Who dispatched; once torch._dynamo is imported (transformers' selective scan does) modes run in a wrapper of its."""
    while frame.f_code.co_filename.endswith(("eval_frame.py", "_compile.py")):
        frame = frame.f_back
    return frame.f_code.co_name


def _sole_holder():
    x = torch.ones(2, requires_grad=True)
    loss = (x * 2).sum() + (x * 3).sum()
    with _Sole() as mode:
        loss.backward()
    return mode.seen


def inner_bytes(function, args, result, fake):
    """The most bytes one operation holds beside its inputs and results.

    Not here: workspaces of attention kernels, cuBLAS and sorting; layer_norm's backward needs partial sums only beyond
    64k rows and embedding's only beyond 3072 indices, neither of which the test shapes reach.
    """
    if function is aten._softmax_backward_data.default and fake:  # cuda/SoftMax.cu: `Tensor tmp = grad * output`
        grad, output = args[:2]
        return grad.numel() * torch.promote_types(grad.dtype, output.dtype).itemsize
    if function is aten._safe_softmax.default:  # transformers/attention.cpp, composite on every device
        # softmax, the bool mask of its -inf and that mask's rows; the result is written over the softmax
        rows = result.numel() // result.shape[args[1]]
        return result.numel() + rows + result.element_size()
    return 0


class Tracker(TorchDispatchMode):
    keep = False          # record what is alive at each peak

    def __init__(self, fake=True):
        super().__init__()
        self.fake = fake
        self.live, self.now, self.phase = {}, 0, "rest"
        self.phases = {}      # phase -> dict(start, peak, peak_op, end)
        self.sole = _sole_holder()

    def watch(self, tensors, tag, inner=0):
        for t in tree_leaves(tensors):
            if isinstance(t, torch.Tensor):
                self._born(t, tag)
        if inner:
            self._peak(self.now + inner, tag)

    def _born(self, t, tag):
        ref = StorageWeakRef(t.untyped_storage())
        if ref.cdata in self.live or t.device.type == "meta" or t.device.type == "cpu" and self.fake:
            return
        size = t.untyped_storage().nbytes()
        self.live[ref.cdata] = (ref, size, tag)
        self.now += size
        self._peak(self.now, tag)

    def _peak(self, size, tag):
        entry = self.phases.setdefault(self.phase, dict(start=self.now, peak=0, op=""))
        if size > entry["peak"]:
            entry["peak"], entry["op"] = size, tag
            entry["alive"] = {k: (v[1], v[2]) for k, v in self.live.items()} if self.keep else None

    def poll(self):
        for key in [k for k, v in self.live.items() if v[0].expired()]:
            self.now -= self.live.pop(key)[1]

    def enter(self, phase):
        self.poll()
        if self.phase in self.phases:
            self.phases[self.phase]["end"] = self.now
        self.phase = phase
        self.phases.setdefault(phase, dict(start=self.now, peak=self.now, op="(start)"))

    def overwrites(self, function, args, caller):
        """Whether PyTorch without a mode writes this result over the first operand; see 1 and 2 above."""
        if function is aten.add.Tensor and attention.inside_math and not self.phase.startswith("backward"):
            return True
        if not self.phase.startswith("backward") or caller != "_engine_run_backward":
            return False  # a caller other than the engine: Python code, as in bloom's GeLUFunction
        if function in (aten.index_put.default, aten.scatter.src):
            return True
        return (function is aten.add.Tensor and holders(args[0]) == self.sole
                and args[0].shape == args[1].shape and is_non_overlapping_and_dense_or_false(args[0]))

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.poll()
        over = self.overwrites(function, args, caller_of(sys._getframe(1)))
        result = function(*args, **(kwargs or {}))
        tag = str(function).removeprefix("aten.").removesuffix(".default")
        old = over and self.live.pop(args[0].untyped_storage()._cdata, None)
        if old:
            ref = StorageWeakRef(result.untyped_storage())
            self.live[ref.cdata] = (ref, *old[1:])
        self.watch(result, tag, inner_bytes(function, args, result, self.fake))
        return result
