"""nn.RMSNorm as CUDA has it, where fake tensors on a CPU build take the formula apart."""
import torch


def _one_norm():
    """CUDA's kernel in place of the formula: its result, 1/rms of each row, and backward's two gradients."""
    library = torch.library.Library("aten", "IMPL")

    def never(*_):
        raise AssertionError("fake tensors do not get here")

    def forward(x, shape, weight, eps):
        return torch.empty_like(x), x.new_empty(*x.shape[:-1], 1, dtype=torch.float32)

    def backward(grad, x, shape, rstd, weight, mask):
        return tuple(torch.empty_like(t) if wanted else None for t, wanted in zip((x, weight), mask))

    library.impl("_fused_rms_norm", never, "CUDA")
    library.impl("_fused_rms_norm_backward", never, "CUDA")
    return library, {torch.ops.aten._fused_rms_norm.default: forward, torch.ops.aten._fused_rms_norm_backward.default: backward}


library, KERNELS = _one_norm()


def watched(tracker, function, args):
    tracker.poll()
    result = KERNELS[function](*args)
    tracker.watch(result, str(function).removeprefix("aten.").removesuffix(".default"))
    return result
