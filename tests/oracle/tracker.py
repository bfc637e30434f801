"""Live bytes through a training step: a dispatch mode that sees every storage appear and polls for its death."""
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Tracker(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.live, self.now, self.phase = {}, 0, "rest"
        self.phases = {}      # phase -> dict(start, peak, peak_op, end)

    def watch(self, tensors, tag):
        for t in tree_leaves(tensors):
            if isinstance(t, torch.Tensor):
                self._born(t, tag)

    def _born(self, t, tag):
        ref = StorageWeakRef(t.untyped_storage())
        if ref.cdata in self.live or t.device.type == "cpu" and self.fake:
            return
        size = t.untyped_storage().nbytes()
        self.live[ref.cdata] = (ref, size, tag)
        self.now += size
        entry = self.phases.setdefault(self.phase, dict(start=self.now, peak=0, op=""))
        if self.now > entry["peak"]:
            entry["peak"], entry["op"] = self.now, tag
            entry["alive"] = {k: (v[1], v[2]) for k, v in self.live.items()} if self.keep else None

    fake = True
    keep = False

    def poll(self):
        for key in [k for k, v in self.live.items() if v[0].expired()]:
            self.now -= self.live.pop(key)[1]

    def enter(self, phase):
        self.poll()
        if self.phase in self.phases:
            self.phases[self.phase]["end"] = self.now
        self.phase = phase
        self.phases.setdefault(phase, dict(start=self.now, peak=self.now, op="(start)"))

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.poll()
        result = function(*args, **(kwargs or {}))
        self.watch(result, str(function).removeprefix("aten.").removesuffix(".default"))
        return result
