"""Writes tests/golden/compiled/<norm>[-qknorm]-<case>.json: what a Llama block of torchtitan keeps between forward and
backward when torch.compile partitions it, or when a per-operation checkpoint wraps it.

usage: compiled.py FOLDER

The block is written after torchtitan's models/llama3 and distributed/activation_checkpoint.py (fused: F.rms_norm;
plain: the norm in primitives and a copy of k and v for each query head, as torchtune has them).  The partitioner's answer is the output of the compiled forward;
an eager checkpoint's is what its caching mode stored.  Parameters, rope tables and random states are left out.
"""
import functools
import json
import pathlib
import sys

import torch
import torch._inductor.decomposition
import torch.nn.functional as F
import torch.utils.checkpoint as checkpoint
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition, nop
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

H, A, KV, D, FFN, B, S = 64, 8, 4, 8, 160, 2, 48


class Norm(nn.Module):
    def __init__(self, n, fused):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))
        self.fused = fused

    def forward(self, x):
        if self.fused:
            return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)
        return y.type_as(x) * self.weight


def rotate(x, table):
    z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(z * table[None, :, None, :]).flatten(3).type_as(x)


def linear(i, o):
    return nn.Linear(i, o, bias=False)


class Block(nn.Module):
    def __init__(self, fused, qknorm):
        super().__init__()
        self.norm1, self.norm2 = Norm(H, fused), Norm(H, fused)
        self.q_norm, self.k_norm = (Norm(D, fused), Norm(D, fused)) if qknorm else (None, None)
        self.wq, self.wk, self.wv, self.wo = linear(H, A * D), linear(H, KV * D), linear(H, KV * D), linear(A * D, H)
        self.w1, self.w2, self.w3 = linear(H, FFN), linear(FFN, H), linear(H, FFN)

    def forward(self, x, table):
        y = self.norm1(x)
        q, k, v = (w(y).view(B, S, -1, D) for w in (self.wq, self.wk, self.wv))
        if self.q_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotate(q, table), rotate(k, table)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        if not self.norm1.fused:
            k, v = (t.unsqueeze(2).expand(B, KV, A // KV, S, D).flatten(1, 2) for t in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.wo(out.transpose(1, 2).contiguous().view(B, S, -1))
        y = self.norm2(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))


def policy():
    count = {False: 0, True: 0}

    def decide(ctx, func, *args, **kwargs):
        if func == torch.ops.aten.mm.default:
            count[ctx.is_recompute] += 1
            if count[ctx.is_recompute] % 2 == 0:
                return checkpoint.CheckpointPolicy.PREFER_RECOMPUTE
            return checkpoint.CheckpointPolicy.MUST_SAVE
        if "scaled_dot_product" in str(func):
            return checkpoint.CheckpointPolicy.MUST_SAVE
        return checkpoint.CheckpointPolicy.PREFER_RECOMPUTE

    return decide


def contexts(modes):
    both = checkpoint.create_selective_checkpoint_contexts(policy())
    modes.append(both[0])
    return both


def row(name, t):
    return [t.numel() * t.element_size(), str(t.dtype).removeprefix("torch."), list(t.shape), name]


def stored(mode):
    """What a caching mode holds of each operation's results."""
    rows = []
    for calls in mode.storage.values():
        for value in torch.utils._pytree.tree_leaves(calls):
            t = getattr(value, "val", value)
            if isinstance(t, torch.Tensor) and t.is_floating_point():
                rows.append(row("stored", t))
    return rows


def partitioned(block, x, table):
    rows = []

    def forward_graph(graph, inputs):
        results = next(n for n in graph.graph.nodes if n.op == "output").args[0]
        seen = set()
        for node in results[1:]:
            t = node.meta.get("val") if hasattr(node, "meta") else None
            if not isinstance(t, torch.Tensor) or not t.is_floating_point():
                continue  # rope tables are complex, random states integers
            if node.op == "placeholder" and t.shape != x.shape:
                continue  # parameters
            base = node
            while base.op == "call_function" and base.target in VIEWS:
                base = base.args[0]
            if base not in seen:
                seen.add(base)
                rows.append(row(node.name, t))
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=forward_graph, bw_compiler=nop, partition_fn=min_cut_rematerialization_partition,
                           decompositions=torch._inductor.decomposition.select_decomp_table())
    torch._dynamo.reset()
    torch.compile(block, backend=backend)(x, table).float().sum().backward()
    return rows


ATEN = torch.ops.aten
VIEWS = {ATEN.view.default, ATEN.alias.default, ATEN.permute.default, ATEN.transpose.int, ATEN.unsqueeze.default,
         ATEN.reshape.default}


def record(fused, qknorm, case):
    torch.manual_seed(0)
    block = Block(fused, qknorm).bfloat16()
    table = torch.polar(torch.ones(S, D // 2), torch.rand(S, D // 2))
    x = torch.randn(B, S, H, dtype=torch.bfloat16, requires_grad=True)
    modes = []
    if "ops" in case:
        block = checkpoint_wrapper(block, context_fn=functools.partial(contexts, modes), preserve_rng_state=False)
    if "compile" in case:
        kept = partitioned(block, x, table)
    else:
        result = block(x, table)
        kept = [row("input", x)] + stored(modes[0])
        del result
    config = {"model_type": "qwen3" if qknorm else "llama", "hidden_size": H, "num_attention_heads": A, "head_dim": D,
              "num_key_value_heads": KV, "intermediate_size": FFN, "num_hidden_layers": 1, "vocab_size": 128,
              "max_position_embeddings": 64}
    return {"torch": torch.__version__, "command": "python tests/oracle/compiled.py tests/golden/compiled",
            "implementation": "torchtitan" if fused else "torchtune", "compile": "compile" in case,
            "recompute": "ops" if "ops" in case else "none", "b": B, "s": S, "config": config,
            "kept_bytes": sum(r[0] for r in kept), "kept": kept}


def dump(result):
    lines = []
    for key, value in result.items():
        if key == "kept":
            value = "[\n" + ",\n".join("  " + json.dumps(r) for r in value) + "\n ]"
        else:
            value = json.dumps(value)
        lines.append(f" {json.dumps(key)}: {value}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    for fused in (True, False):
        for qknorm in (False, True):
            for case in ("compile", "compile-ops", "ops"):
                name = f"{'fused' if fused else 'plain'}{'-qknorm' if qknorm else ''}-{case}.json"
                (pathlib.Path(sys.argv[1]) / name).write_text(dump(record(fused, qknorm, case)))
