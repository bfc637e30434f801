"""What FSDP version 1 holds of checkpoints' inputs in backward, and which layer it fetches ahead.

Two ranks over gloo, four layers of a linear each.  What is trained: all; adapters, as PEFT wraps them, units of their own inside
of layers that are not trained; adapters of some layers; the last layers alone.  Checkpoints are around the units, as where
transformers' Trainer asked the model for them before 4.53, or inside, as since.

usage: fsdp_hooks.py FILE      writes one run a line; a list's place is the layer
    adapters    the layers that have some; trained: of a run without, the last layers, where not all
    inputs      inputs of layers above that are alive when the gradient of this layer's input is there
    gradients   of these inputs' gradients, those alive then
    fetches     when the layer below is fetched ahead: "begin" of this layer's backward, its "end", or "never"
"""
import functools
import gc
import json
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel, _runtime_utils
from torch.distributed.fsdp.wrap import _or_policy, lambda_auto_wrap_policy, transformer_auto_wrap_policy
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import checkpoint

HIDDEN, LAYERS, RANK = 16, 4, 2


class Adapted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.base = torch.nn.Linear(HIDDEN, HIDDEN)
        self.lora_A = torch.nn.Linear(HIDDEN, RANK, bias=False)
        self.lora_B = torch.nn.Linear(RANK, HIDDEN, bias=False)

    def forward(self, x):
        return self.base(x) + self.lora_B(self.lora_A(x))


class Layer(torch.nn.Module):
    def __init__(self, adapted, recompute):
        super().__init__()
        self.norm = torch.nn.LayerNorm(HIDDEN)
        self.linear = Adapted() if adapted else torch.nn.Linear(HIDDEN, HIDDEN)
        self.recompute = recompute

    def own(self, x):
        return x + torch.tanh(self.linear(self.norm(x)))

    def forward(self, x):
        if not self.recompute.endswith("inside"):
            return self.own(x)
        return checkpoint(self.own, x, use_reentrant=self.recompute == "reentrant inside")


class Model(torch.nn.Module):
    def __init__(self, recompute, adapters, frozen):
        super().__init__()
        self.embed = torch.nn.Embedding(10, HIDDEN)
        self.layers = torch.nn.ModuleList(Layer(i in adapters, recompute) for i in range(LAYERS))
        self.head = torch.nn.Linear(HIDDEN, 10)
        self.recompute = recompute
        for name, p in self.named_parameters():
            p.requires_grad_("lora_" in name if adapters else not frozen or name.split(".")[1] in "23" and "layers" in name)
        self.forget()

    def forget(self):
        self.inputs, self.grads = [], {}
        self.alive = {"inputs": [0] * LAYERS, "gradients": [0] * LAYERS}

    def look(self, grad, i):
        self.alive["inputs"][i] = sum(not r.expired() for r in self.inputs[i + 1:])
        self.alive["gradients"][i] = sum(not r.expired() for r in self.grads.values())
        self.grads[i] = StorageWeakRef(grad.untyped_storage())

    def forward(self, ids):
        x = self.embed(ids)
        if not x.requires_grad and self.recompute != "none":    # enable_input_require_grads
            x.requires_grad_(True)
        for i, layer in enumerate(self.layers):
            self.inputs.append(StorageWeakRef(x.untyped_storage()))
            if x.requires_grad:
                x.register_hook(functools.partial(self.look, i=i))
            if self.recompute == "none" or self.recompute.endswith("inside"):
                x = layer(x)
            else:
                x = checkpoint(layer.__call__, x, use_reentrant=self.recompute == "reentrant")
        return self.head(x).sum()


def wrapped(model, adapters):
    layers = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Layer})
    trained = functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda m: not list(m.named_children()) and
                                getattr(m, "weight", None) is not None and m.weight.requires_grad)
    policy = functools.partial(_or_policy, policies=[trained, layers]) if adapters else layers
    return FullyShardedDataParallel(model, auto_wrap_policy=policy, use_orig_params=True, device_id=torch.device("cpu"),
                                    backward_prefetch=BackwardPrefetch.BACKWARD_PRE)


def watch(whole, fetches):
    """Has what is fetched ahead in backward written to a list: by which unit, and which."""
    names = {id(m._handle): name.replace("_fsdp_wrapped_module.", "") for name, m in whole.named_modules()
             if isinstance(m, FullyShardedDataParallel) and m._handle is not None}
    prefetch = _runtime_utils._prefetch_handle

    def watched(state, handle, mode):
        if mode == _runtime_utils._PrefetchMode.BACKWARD and handle is not None:
            target = _runtime_utils._get_handle_to_prefetch(state, handle)
            if target is not None:
                fetches.append((names[id(handle)], names[id(target)]))
        return prefetch(state, handle, mode)

    _runtime_utils._prefetch_handle = watched
    return prefetch


def when(fetches, i):
    by = [unit for unit, target in fetches if i > 0 and target == f"layers.{i - 1}"]
    return "never" if not by else "begin" if by[0] == f"layers.{i}" else "end"


def run(rank, recompute, adapters, frozen, path):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29611")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = Model(recompute, adapters, frozen)
    whole = wrapped(model, adapters)
    fetches = []
    prefetch = watch(whole, fetches)
    gc.disable()                        # what only a collection would free counts as held
    for _ in range(2):                  # the second step: the first one learns the order
        model.forget()
        fetches.clear()
        whole(torch.zeros(3, 5, dtype=torch.long)).backward()
    _runtime_utils._prefetch_handle = prefetch
    if rank == 0:
        row = {"recompute": recompute, "adapters": adapters, "trained": LAYERS - frozen, **model.alive,
               "fetches": [when(fetches, i) for i in range(LAYERS)]}
        with open(path, "a") as f:
            f.write(json.dumps(row) + "\n")
    dist.destroy_process_group()


def main(path):
    open(path, "w").close()
    for recompute in ("none", "full", "reentrant", "full inside", "reentrant inside"):
        for adapters in ([], list(range(LAYERS)), [1, 3], [0, 1]):
            mp.spawn(run, (recompute, adapters, 0, path), nprocs=2)
        mp.spawn(run, (recompute, [], 2, path), nprocs=2)


if __name__ == "__main__":
    main(sys.argv[1])
