"""Writes tests/golden/optimizer_passes.jsonl: bytes that an optimizer's step moves around its update, for each element, and
how often the host waits.

The real DeepSpeed on its CPU accelerator, one rank; PyTorch's clip_grad_norm_ and GradScaler.  What the basic optimizer's
step() does is left out.

usage: DS_ACCELERATOR=cpu PYTHONPATH=DEEPSPEED optimizer_passes.py FILE      (deepspeed==0.19.8)
"""
import json
import os
import pathlib
import sys
import tempfile

os.environ["DS_ACCELERATOR"] = "cpu"
for name, value in dict(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500").items():
    os.environ.setdefault(name, value)

import torch
import torch.distributed as dist

import deepspeed
import deepspeed.runtime.engine
from deepspeed.accelerator import get_accelerator

from passes import Log

WIDTH, TENSORS = 512, 6
type(get_accelerator()).is_fp16_supported = lambda self: True  # slow on most CPUs, of the same sizes


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(TENSORS))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x.float().pow(2).mean()


class Fused(torch.optim.AdamW):
    """Stands for DeepSpeed's FusedAdam, whose step is left out."""


deepspeed.runtime.engine.FusedAdam = Fused


def deepspeed_step(zero, dtype, optimizer, grad="", clip=1e-9):
    config = dict(train_micro_batch_size_per_gpu=1, gradient_clipping=clip, zero_optimization=dict(stage=zero),
                  zero_allow_untested_optimizer=True, zero_force_ds_cpu_optimizer=False,
                  fp16=dict(enabled=dtype == "fp16", initial_scale_power=4), bf16=dict(enabled=dtype == "bf16"))
    if grad:
        config["data_types"] = dict(grad_accum_dtype=grad)
    net = Net()
    engine, *_ = deepspeed.initialize(model=net, optimizer=optimizer(net.parameters(), lr=1e-4), config=config)
    x = torch.ones(1, WIDTH, dtype=dict(fp16=torch.float16, bf16=torch.bfloat16, fp32=torch.float32)[dtype])
    log = Log()
    for last in (False, True):  # states are made in the first
        engine.backward(engine(x))
        if last:
            engine.basic_optimizer.step = lambda *_, **__: None
            with log:
                engine.step()
        else:
            engine.step()
    return log


def torch_step(dtype, clip, foreach=True, scaler=False):
    grads = [torch.ones(WIDTH, WIDTH, dtype=dtype) for _ in range(TENSORS)]
    weights = [torch.nn.Parameter(torch.ones_like(g)) for g in grads]
    for w, g in zip(weights, grads):
        w.grad = g
    optimizer = torch.optim.SGD(weights, lr=0.1)
    scale = torch.amp.GradScaler("cpu", enabled=scaler)
    scale.scale(torch.ones(()))
    optimizer.step = lambda *_, **__: None
    log = Log()
    with log:
        if clip:
            scale.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(weights, 1.0, foreach=foreach)
        scale.step(optimizer)
    return log


DEEPSPEED = [  # memplan's keys; the optimizer; gradients
    (0, "fp16", Fused, ""), (0, "bf16", Fused, ""), (0, "fp16", torch.optim.AdamW, ""), (0, "fp32", Fused, ""),
    (1, "fp16", Fused, ""), (1, "bf16", Fused, ""), (1, "fp32", Fused, ""), (1, "bf16", Fused, "fp32"),
    (2, "fp16", Fused, ""), (2, "bf16", Fused, ""), (2, "bf16", Fused, "fp32"),
    (3, "fp16", Fused, ""), (3, "bf16", Fused, ""), (3, "bf16", Fused, "fp32"), (3, "fp32", Fused, ""),
]
MIXED = dict(fp16="fp16-mixed", bf16="bf16-mixed", fp32="fp32")


def row(setup, log):
    elements = WIDTH * WIDTH * TENSORS
    setup = {key: str(value) for key, value in setup.items()}
    return dict(setup=setup, tensors=TENSORS, bytes=round(log.bytes / elements, 2), waits=log.waits)


def main(path):
    rows = []
    for zero, dtype, optimizer, grad in DEEPSPEED:
        setup = dict(framework="deepspeed", zero=zero, precision=MIXED[dtype],
                     optimizer_impl="fused" if optimizer is Fused else "foreach")
        if grad:
            setup["grad_dtype"] = grad
        rows.append(row(setup, deepspeed_step(zero, dtype, optimizer, grad)))
    for precision, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        for impl in ("foreach", "loop"):
            rows.append(row(dict(framework="hf", precision=precision, optimizer_impl=impl),
                            torch_step(dtype, True, impl == "foreach")))
    for clip in ("true", "false"):
        rows.append(row(dict(framework="hf", precision="fp16-amp", optimizer_impl="foreach", clip_grad=clip),
                        torch_step(torch.float32, clip == "true", scaler=True)))
    pathlib.Path(path).write_text("".join(json.dumps(r) + "\n" for r in rows))


if __name__ == "__main__":
    deepspeed.utils.logging.logger.setLevel("ERROR")
    with tempfile.NamedTemporaryFile() as store:
        dist.init_process_group("gloo", init_method=f"file://{store.name}", rank=0, world_size=1)
        deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
        main(sys.argv[1])
        dist.destroy_process_group()
