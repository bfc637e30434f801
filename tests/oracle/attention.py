"""Attention kernels as CUDA dispatches them: FlashAttention-2 and the choice that scaled_dot_product_attention makes."""
import importlib.machinery
import sys
import types

import device
import torch
import torch.nn.functional as F

aten = torch.ops.aten
math_sdpa = F.scaled_dot_product_attention
KERNELS = {0: "math", 1: "flash", 2: "efficient"}  # at::SDPBackend
last_choice = []
mask_per_head = False
inside_math = 0  # asked by tracker.py


class Flash2(torch.autograd.Function):
    """flash_attn_func of flash-attn 2: (b, s, a, d) tensors, keeps q, k, v, out, lse (fp32 b*a*s) and two int64 of RNG.

    As there, out = empty_like(q): it keeps q's order of strides, so a q laid out (b, a, s, d) gives such an out.
    """

    @staticmethod
    def forward(ctx, q, k, v):
        out = torch.empty_like(q)
        lse = torch.empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float32, device=q.device)
        rng = torch.empty(2, dtype=torch.int64, device=q.device)
        if q.device.type == "cpu":
            for t in (out, lse, rng):
                t.zero_()
        ctx.save_for_backward(q, k, v, out, lse, rng)
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, *_ = ctx.saved_tensors
        return tuple(torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (q, k, v))


def _autocast(*tensors):
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind):
        return tensors
    low = torch.get_autocast_dtype(kind)
    return tuple(t.to(low) if t is not None and t.is_floating_point() else t for t in tensors)


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                    alibi_slopes=None, deterministic=False, return_attn_probs=False):
    last_choice.append("flash2")
    return Flash2.apply(q, k, v)


class Flash2Varlen(torch.autograd.Function):
    """flash_attn_varlen_func: (tokens, a, d) tensors; keeps the places where sequences begin too, and lse of (a, tokens)."""

    @staticmethod
    def forward(ctx, q, k, v, cu_seqlens):
        out = torch.empty_like(q)
        lse = torch.empty(q.shape[1], q.shape[0], dtype=torch.float32, device=q.device)
        ctx.save_for_backward(q, k, v, out, lse, cu_seqlens, torch.empty(2, dtype=torch.int64, device=q.device))
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, *_ = ctx.saved_tensors
        return *(torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (q, k, v)), None


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0,
                           softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
                           deterministic=False, return_attn_probs=False, block_table=None):
    last_choice.append("flash2")
    assert cu_seqlens_q is cu_seqlens_k
    return Flash2Varlen.apply(q, k, v, cu_seqlens_q)


class PutFirst(torch.autograd.Function):
    """index_put_first_axis of flash-attn (flash_attn/bert_padding.py), by which pad_input makes rows of real tokens all rows."""

    @staticmethod
    def forward(ctx, values, indices, rows):
        ctx.save_for_backward(indices)
        output = torch.zeros(rows, *values.shape[1:], device=values.device, dtype=values.dtype)
        output[indices] = values
        return output

    @staticmethod
    def backward(ctx, grad):
        indices, = ctx.saved_tensors
        return grad[indices], None, None


def pad_input(values, indices, batch, seqlen):
    return PutFirst.apply(values, indices, batch * seqlen).view(batch, seqlen, *values.shape[1:])


class GroupedMm(torch.autograd.Function):
    """torch.nn.functional.grouped_mm for fp32: its kernels take fp32, the rule that makes fake tensors does not."""

    @staticmethod
    def forward(ctx, x, weight, offs):
        ctx.save_for_backward(x, weight, offs)
        return torch.empty(x.shape[0], weight.shape[-1], dtype=x.dtype, device=x.device)

    @staticmethod
    def backward(ctx, grad):
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight), None


real_grouped_mm = F.grouped_mm


def grouped_mm(x, weight, *, offs=None, **more):
    if x.dtype == torch.bfloat16 or x.device.type != "cuda":
        return real_grouped_mm(x, weight, offs=offs, **more)
    return GroupedMm.apply(x, weight, offs)


def cuda_sdpa(*args, **more):
    """PyTorch's own function on fake CUDA tensors, the kernel chosen by cuda_guard.cpp."""
    if mask_per_head and more.get("attn_mask") is not None:
        return sdpa_of_2_1(*args, **more)
    out = in_math(*args, **more)
    last_choice.append(KERNELS[device.guard.last_sdpa()])
    return out


def sdpa_of_2_1(query, key, value, attn_mask, dropout_p=0.0, is_causal=False, scale=None):
    """With a mask, as PyTorch 2.1.0 and 2.1.1 had it: expanded to all heads before unaligned rows are padded."""
    query, key, value, attn_mask = _autocast(query, key, value, attn_mask)
    last_choice.append("efficient")
    if attn_mask.dtype == torch.bool:
        attn_mask = torch.where(attn_mask, 0.0, torch.full((), float("-inf"), dtype=query.dtype, device=query.device))
    attn_mask = attn_mask.expand(*query.shape[:3], key.shape[2])
    width = attn_mask.shape[-1]
    if width % 16:
        attn_mask = F.pad(attn_mask, (0, -width % 16))[..., :width]
    elif any(st % 16 for st in attn_mask.stride()[:3]):
        attn_mask = attn_mask.contiguous()
    return aten._scaled_dot_product_efficient_attention(query, key, value, attn_mask, True, dropout_p, is_causal,
                                                        scale=scale)[0]


def in_math(*args, **more):
    """PyTorch's own function, whatever kernel it takes."""
    global inside_math
    inside_math += 1
    try:
        return math_sdpa(*args, **more)
    finally:
        inside_math -= 1


def install(cuda):
    """Routes transformers to these kernels; its own code around them (casts, transposes, masks) stays."""
    from transformers import modeling_flash_attention_utils, modeling_utils
    package = types.ModuleType("flash_attn")
    package.flash_attn_func, package.flash_attn_varlen_func = flash_attn_func, flash_attn_varlen_func
    package.flash_attn_with_kvcache = None
    package.__spec__ = importlib.machinery.ModuleSpec("flash_attn", None)
    package.__version__ = "2.8.3"
    padding = types.ModuleType("flash_attn.bert_padding")
    padding.pad_input, padding.unpad_input = pad_input, None
    sys.modules["flash_attn"], sys.modules["flash_attn.bert_padding"] = package, padding
    modeling_flash_attention_utils.is_flash_attn_2_available = lambda *_, **__: True
    modeling_flash_attention_utils.flash_attn_supports_top_left_mask = lambda *_, **__: False
    modeling_utils.PreTrainedModel._flash_attn_can_dispatch = lambda self, *_, **__: self._supports_flash_attn or refuse()
    F.scaled_dot_product_attention = cuda_sdpa if cuda else in_math
    F.grouped_mm = grouped_mm


def refuse():
    raise ValueError("no flash attention in this family")
