"""State-space layers with the kernels that people train with, whose packages need a GPU to be built or run.

usage: state_space.py FOLDER CODE [family ...]   CODE holds the packages mamba_ssm, causal_conv1d and fla as they are in
       state-spaces/mamba, Dao-AILab/causal-conv1d and fla-org/flash-linear-attention; needs triton and einops

transformers' classes call these packages' autograd functions, and those run here as they are: what they save, recompute
and allocate is theirs.  Only what would be launched on a GPU is not: Triton kernels do nothing (their results are tensors
that Python made), and the two C++ extensions are stand-ins that allocate what csrc/selective_scan/selective_scan.cpp and
csrc/causal_conv1d.cpp do.  Writes FOLDER/<family>-<dtype>-<attention>-default.json as golden.py does, and
lora-<family>-in-<adapters' dtype>-... with adapters on the mixers' projections that are called (needs peft), and
FOLDER/steps/<family>.json as step.py does.
"""
import contextlib
import pathlib
import sys
import types

import device  # noqa: F401
import torch

import families
import golden
import step

SMS = 132  # of an H100: rows of partial sums in the gated norm's backward (layernorm_gated.py)
CHUNK = 2048  # tokens that one block of the selective scan goes over (selective_scan.cpp)


class Refused(Exception):
    """What the C++ code checks."""


def scan_forward(u, delta, A, B, C, D, z, delta_bias, delta_softplus):
    if not u.dtype == delta.dtype == B.dtype == C.dtype == z.dtype:  # TORCH_CHECK(B.scalar_type() == input_type)
        raise Refused(f"u {u.dtype}, delta {delta.dtype}, B {B.dtype}, C {C.dtype}, z {z.dtype}")
    out_z = [torch.empty_like(z)] if z is not None else []
    out = torch.empty_like(delta)
    chunks = -(-u.shape[2] // CHUNK)
    x = torch.empty(u.shape[0], u.shape[1], chunks, 2 * A.shape[1], dtype=A.dtype, device=u.device)
    return [out, x, *out_z]


def scan_backward(u, delta, A, B, C, D, z, delta_bias, dout, x, out, dz, delta_softplus, recompute_out_z):
    if z is not None and dz is None:
        dz = torch.empty_like(z)
    out_z = torch.empty_like(out) if recompute_out_z else None
    du, ddelta, dA = torch.empty_like(u), torch.empty_like(delta), torch.zeros_like(A)
    dB, dC = (torch.zeros_like(t, dtype=torch.float32) for t in (B, C))
    dD, dbias = torch.zeros_like(D), torch.zeros_like(delta_bias)
    low_B, low_C = dB.to(B.dtype), dC.to(C.dtype)
    return [du, ddelta, dA, low_B, low_C, dD, dbias, *([dz] if z is not None else []),
            *([out_z] if recompute_out_z else [])]


def nothing(*_, **__):
    return None


def install(code):
    sys.path.insert(0, str(code))
    scan, conv = types.ModuleType("selective_scan_cuda"), types.ModuleType("causal_conv1d_cuda")
    scan.fwd, scan.bwd = scan_forward, scan_backward
    conv.causal_conv1d_fwd = conv.causal_conv1d_bwd = conv.causal_conv1d_update = nothing
    sys.modules["selective_scan_cuda"], sys.modules["causal_conv1d_cuda"] = scan, conv
    for name in ("fla.models", "fla.layers"):  # fla registers models of its own under the names of transformers'
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__all__ = []
    from triton.runtime import autotuner, jit

    def tuned(self, *_, **__):
        self.best_config = self.configs[0]
    autotuner.Autotuner.run = tuned
    autotuner.Heuristics.run = jit.JITFunction.run = nothing
    torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(multi_processor_count=SMS)
    torch.cuda.device = lambda *_: contextlib.nullcontext()
    import causal_conv1d.cpp_functions as functions  # a custom op of outputs that it fills
    functions._causal_conv1d_fwd_cpp = functions._causal_conv1d_bwd_cpp = nothing


def resolved(module, *names):
    """Transformers falls back in silence: make sure that it did not."""
    for name in names:
        kept = [c.cell_contents for c in getattr(module, name).__closure__]
        assert True in [k for k in kept if isinstance(k, bool)], f"{name} is transformers' own"


ADAPTED = {  # what PEFT lets and the kernels call
    "mamba": ["in_proj"], "mamba2": ["in_proj"], "jamba": ["in_proj", "x_proj", "out_proj"],
    "qwen3_next": ["in_proj_qkvz", "in_proj_ba", "out_proj"],
    "qwen3_5": ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"],
}


def with_adapters(folder, family, targets):
    import peft
    attention = "eager" if family.startswith("mamba") else "sdpa"
    for adapters in ("fp32", "bf16"):
        for dtype in ("bf16", "autocast"):
            setting = dict(rank=8, targets=targets, dropout=0.0, dtype=adapters, base="bf16")
            result = golden.record(family, dtype, attention, "0", setting)
            result["command"] = "python tests/oracle/state_space.py tests/golden/oracle CODE"
            result["adapters"] = dict(setting, peft=peft.__version__)
            for key in ("layer", "shared_by_layers", "outside"):
                del result[key]
            (folder / f"lora-{family}-in-{adapters}-{dtype}-{attention}-0.json").write_text(golden.dump(result))


def steps(family):
    attention = "eager" if family.startswith("mamba") else "sdpa"
    for shape in step.SHAPES:
        base = dict(family=family, shape=shape, attention=attention)
        for precision in ("bf16", "bf16-amp", "fp32"):
            for recompute in ("none", "full"):
                yield step.Run(**base, precision=precision, recompute=recompute)
        yield step.Run(**base, precision="bf16", grad_accum=3, optimizer_impl="fused")


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    install(pathlib.Path(sys.argv[2]).resolve())
    from transformers.models.jamba import modeling_jamba
    from transformers.models.mamba import modeling_mamba
    from transformers.models.mamba2 import modeling_mamba2
    from transformers.models.qwen3_5 import modeling_qwen3_5
    from transformers.models.qwen3_next import modeling_qwen3_next
    resolved(modeling_mamba, "mamba_inner_fn", "causal_conv1d_fn", "mamba_selective_scan")
    resolved(modeling_jamba, "causal_conv1d_fn", "mamba_selective_scan")
    resolved(modeling_mamba2, "mamba2_split_conv1d_scan_combined", "causal_conv1d_fn", "mamba2_chunk_scan")
    for module in (modeling_qwen3_next, modeling_qwen3_5):
        resolved(module, "torch_chunk_gated_delta_rule", "causal_conv1d_fn")
    import describe
    for name in sys.argv[3:] or families.STATE_SPACE:
        for setting in describe.settings(name):
            path = folder / f"{name}-{'-'.join(setting)}.json"
            try:
                result = golden.record(name, *setting)
            except Refused as e:  # Jamba under autocast: norms in fp32
                print(f"{path.name}: refused: {e}")
                continue
            result["command"] = f"python tests/oracle/state_space.py tests/golden/oracle CODE {name}"
            path.write_text(golden.dump(result))
        if name in ADAPTED:
            with_adapters(folder, name, ADAPTED[name])
        if name in ("mamba", "mamba2", "qwen3_next", "qwen3_5"):
            head = step.head("python tests/oracle/state_space.py tests/golden/oracle CODE")
            rows = [step.record(run) for run in steps(name)]
            (folder / "steps" / f"{name}.json").write_text(step.dump(head, rows))
