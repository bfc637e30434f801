"""Fake CUDA tensors on a CPU-only PyTorch.

FakeTensorMode gives tensors with device "cuda" that own no memory but take PyTorch's CUDA code paths: native_dropout with
a bool mask, fp32 layer-norm statistics, addmm for a Linear with a bias, CUDA autocast.  Autograd also asks the CUDA device
guard and hooks, which a CPU build lacks; cuda_guard.cpp supplies empty ones.  Import this module before torch.

silu_backward has a CUDA kernel and, for other devices, a composite formula.  Autograd looks for the kernel of the tensor's
device, finds none on a CPU build, and runs the formula (sigmoid, empty_like, fill_, sub_, mul, add, mul, mul: five buffers
where the kernel has one result).  A CUDA entry keeps it whole; fake tensors then take its Meta kernel, which allocates the
result only, as cuda/ActivationSiluKernel.cu does.  It is the only such operation in our runs: the operations dispatched for
fake CUDA and for real CPU tensors, compared over all golden settings, differ otherwise only by dropout, autocast and
attention.
"""
import ctypes
import importlib.util
import pathlib
import subprocess
import tempfile


def _load_guard():
    torch_dir = pathlib.Path(importlib.util.find_spec("torch").origin).parent
    source = pathlib.Path(__file__).with_name("cuda_guard.cpp")
    library = pathlib.Path(tempfile.gettempdir()) / "memplan-oracle-cuda-guard.so"
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        subprocess.run(["g++", "-std=c++20", "-O1", "-fPIC", "-shared", str(source), f"-I{torch_dir}/include",
                        f"-L{torch_dir}/lib", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{torch_dir}/lib",
                        "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


guard = _load_guard()

import torch  # noqa: E402

_aten = torch.library.Library("aten", "IMPL")


def _never(*_):
    raise AssertionError("fake tensors do not get here")


_aten.impl("silu_backward", _never, "CUDA")

torch.cuda.get_device_capability = lambda *_: (9, 0)  # asked by transformers' grouped matrix product

from transformers import masking_utils  # noqa: E402

masking_utils.is_tracing = lambda *_: False  # fake tensors look like a trace, for which causal masks are never skipped
masking_utils.find_packed_sequence_indices = lambda *_: None  # reads values: what it answers for unpacked sequences
