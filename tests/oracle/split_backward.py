"""What PyTorch's pipelines keep between the gradients of inputs and those of weights, on the CPU.

torch.distributed.pipelining splits autograd's graph (stage_backward_input, stage_backward_weight), as torchtitan's
ZBVZeroBubble and DualPipeV do. Prints bytes of a stage of four Llama-like layers: kept after forward, between the two
halves, and of the gradients held between.

usage: split_backward.py
"""
import gc
import weakref

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight
from torch.utils._python_dispatch import TorchDispatchMode

WIDTH, FFN, BATCH, TOKENS, LAYERS, HEADS = 256, 704, 2, 128, 4, 4


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(2))
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(WIDTH, FFN, bias=False) for _ in range(2))
        self.down = nn.Linear(FFN, WIDTH, bias=False)

    def forward(self, x):
        y = self.norms[0](x)
        q, k, v = (f(y).view(BATCH, TOKENS, HEADS, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(BATCH, TOKENS, WIDTH))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Live(TorchDispatchMode):
    """Bytes of storages that operations made and something holds."""

    def __init__(self):
        super().__init__()
        self.now, self.sizes = 0, {}

    def gone(self, key):
        self.now -= self.sizes.pop(key)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for t in torch.utils._pytree.tree_leaves(out):
            if isinstance(t, torch.Tensor) and t.untyped_storage()._cdata not in self.sizes:
                storage = t.untyped_storage()
                self.sizes[storage._cdata] = storage.nbytes()
                self.now += storage.nbytes()
                weakref.finalize(storage, self.gone, storage._cdata)
        return out


def held(groups):
    storages = [g.untyped_storage() for group in groups for grads in group["grads"] for g in grads if g is not None]
    return sum({s._cdata: s.nbytes() for s in storages}.values())


def main():
    stage = nn.Sequential(*[Layer() for _ in range(LAYERS)]).bfloat16()
    x = torch.randn(BATCH, TOKENS, WIDTH, dtype=torch.bfloat16, requires_grad=True)
    gradient = torch.randn(BATCH, TOKENS, WIDTH, dtype=torch.bfloat16)
    with Live() as live:
        outputs = [stage(x)]
        kept = live.now
        _, groups = stage_backward_input(outputs, [gradient], [x], stage.parameters())
        del outputs[:]
        gc.collect()
        print(f"kept {kept} between {live.now} of that gradients {held(groups)}")
        stage_backward_weight(stage.parameters(), groups)


if __name__ == "__main__":
    main()
