"""Adds rows of Megatron-core's optimizers to tests/golden/optimizer_passes.jsonl, as optimizer_passes.py writes them.

megatron_tp.py's model on one rank, its gradient buffers and optimizer, on fake CUDA tensors.  Kernels over lists (apex's, or
Transformer Engine's) are counted here: the norm reads, a scale reads one list and writes the other.  Numbers that the host
asks for are waits; the clipping of this version asks for the norm, later ones' kernel (clip_grads.py,
multi_tensor_scale_tensor) does not, so that waits are those without it.

usage: PYTHONPATH=MEGATRON megatron_passes.py FILE      (megatron-core==0.16.1)
"""
import functools
import json
import pathlib
import sys

import step  # noqa: F401  (before torch)
import megatron_tp

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.optimizer import OptimizerConfig, clip_grads, get_megatron_optimizer, optimizer
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

import passes

DTYPES = dict(fp16=torch.float16, bf16=torch.bfloat16, fp32=torch.float32)
CONFIG = megatron_tp.config_of
DDP = megatron_tp.DistributedDataParallelConfig


def config_of(run, precision):
    config = CONFIG(run)
    config.fp16, config.bf16 = precision == "fp16", precision == "bf16"
    config.params_dtype = config.pipeline_dtype = DTYPES[precision]
    return config


def record(precision, grad, zero):
    log = passes.Log()

    def applier(kernel, _, lists, *__):
        log.bytes += passes.size(lists)
        return torch.ones(1, device="cuda"), None

    def item(_):
        log.waits += 1
        return 0.0 if precision == "fp16" and log.waits == 1 else 1.0  # nothing overflowed; the norm

    megatron_tp.ADAPT[:] = [lambda _, model: setattr(model, "half", lambda: model)]  # it is
    run = megatron_tp.Run(tp=1, sequence=False, precision="fp32" if precision == "fp32" else "bf16", zero=zero)
    megatron_tp.config_of = functools.partial(config_of, precision=precision)
    megatron_tp.DistributedDataParallelConfig = lambda **_: DDP(grad_reduce_in_fp32=grad == "fp32",
                                                                 use_distributed_optimizer=zero > 0)
    clip_grads.multi_tensor_applier = optimizer.multi_tensor_applier = applier
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
    with FakeTensorMode(allow_non_fake_inputs=True), step.cuda_switches():
        model, *_ = megatron_tp.build(run)
        elements = sum(p.numel() for p in model.parameters())
        tensors = len(list(model.parameters()))
        whole = get_megatron_optimizer(OptimizerConfig(
            optimizer="adam", lr=1e-3, bf16=precision == "bf16", fp16=precision == "fp16", params_dtype=DTYPES[precision],
            clip_grad=0.5, use_distributed_optimizer=zero > 0), [model], use_gloo_process_groups=False)
        for one in getattr(whole, "chained_optimizers", [whole]):
            one.optimizer.step = lambda *_, **__: None
        kept, torch.Tensor.item = torch.Tensor.item, item
        with log:
            model.zero_grad_buffer()
            whole.zero_grad()
            whole.step()
        torch.Tensor.item = kept
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()
    setup = dict(framework="megatron", zero=str(zero), precision=precision if precision == "fp32" else precision + "-mixed",
                 grad_dtype=grad)
    return dict(setup=setup, tensors=tensors, bytes=round(log.bytes / elements, 2), waits=log.waits - 1)


def main(path):
    path = pathlib.Path(path)
    rows = [line for line in path.read_text().splitlines() if json.loads(line)["setup"]["framework"] != "megatron"]
    for precision, grad, zero in [("bf16", "fp32", 0), ("bf16", "bf16", 0), ("fp16", "fp16", 0), ("fp16", "fp32", 0),
                                  ("fp32", "fp32", 0), ("bf16", "fp32", 1), ("bf16", "bf16", 1), ("fp16", "fp16", 1)]:
        rows.append(json.dumps(record(precision, grad, zero)))
        print(rows[-1], flush=True)
    path.write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
