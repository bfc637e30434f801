"""One rank's share of transformers' tensor parallelism (tp_plan="auto"), whole steps as step.py measures them.

The process group only pretends, as in engines.py.  Weights are DTensors by the class's own plan, norms are not; the
optimizer has a group of each, and gradients of each are clipped by themselves, as the Trainer does it.  Where there are
more shards than one FSDP2 has the rest of the ranks, on a mesh of two dimensions.

usage: hf_tp.py FOLDER        writes FOLDER/hf_tp.json, one run a line
"""
import dataclasses
import sys

import engines  # noqa: F401  (before torch: it loads device.py)
import step
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import modeling_flash_attention_utils
from transformers.distributed.configuration_utils import DistributedConfig
from transformers.distributed.tensor_parallel import apply_tensor_parallelism
from transformers.initialization import no_tie_weights


@dataclasses.dataclass(frozen=True)
class Run(step.Run):
    tp: int = 2
    shards: int = 1             # FSDP2 over the rest, each layer a unit, as Accelerate has it
    tied: bool = False


class Local(engines.Local):
    """What waits for a collective is its result; the rule that makes fake tensors gives another one."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops._c10d_functional.wait_tensor.default and not any(issubclass(t, DTensor) for t in types):
            return args[0]
        return super().__torch_dispatch__(function, types, args, kwargs)


def by_mesh(parameters):
    """DTensors of each mesh, and plain tensors: neither fused kernels nor norms take both at once
    (Trainer.create_optimizer)."""
    split = {}
    for p in parameters:
        split.setdefault(p.device_mesh if isinstance(p, DTensor) else None, []).append(p)
    return list(split.values())


def build(run):
    if not run.tied:
        return step.build(run)
    sizes = step.sizes
    step.sizes = lambda *args: dict(sizes(*args), tie_word_embeddings=True)
    try:
        with no_tie_weights():  # from_pretrained ties them once they are DTensors
            return step.build(run)
    finally:
        step.sizes = sizes


def shard(run, model, mesh):
    dtype = torch.bfloat16 if run.precision == "bf16-mixed" else None
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32 if dtype else None)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


class Ranks(step.Steps):
    def step(self, model, optimizer, ids):
        for index in range(self.run.grad_accum):
            self.micro_batch(model, ids, index)
        if self.run.clip_grad:
            self.enter("clip", 0)
            groups, norms = by_mesh(model.parameters()), []
            for group in groups:
                norm = torch.nn.utils.get_total_norm([p.grad for p in group])
                norms.append(norm.full_tensor() if isinstance(norm, DTensor) else norm)
            total = torch.linalg.vector_norm(torch.stack(norms))
            for group in groups:
                whole = DTensor.from_local(total, group[0].device_mesh) if isinstance(group[0], DTensor) else total
                torch.nn.utils.clip_grads_with_norm_(group, 1.0, whole)
            del groups, group, norms, norm, total, whole
        self.enter("step", 0)
        optimizer.step()
        self.enter("zero_grad", 0)
        optimizer.zero_grad(set_to_none=True)

    def measure(self, count=3):
        run = self.run
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=run.tp * run.shards)
        both = init_device_mesh("cuda", (run.shards, run.tp), mesh_dim_names=("dp", "tp"))
        self.mesh = both["tp"]
        model, self.settings = build(run)
        plan, *_ = model._resolve_parallel_plans(DistributedConfig(tp_size=run.tp))
        self.parameters = sum(p.numel() for p in model.parameters())
        apply_tensor_parallelism(model, self.mesh, plan)
        model.tie_weights()
        self.tracker = tracker = Local(True)
        with FakeTensorMode(allow_non_fake_inputs=True), step.cuda_switches(), engines.follows(tracker):
            if run.shards > 1:
                shard(run, model, both["dp"])
            ids = step.materialize(run, model, self.where)
            tracker.watch([p.to_local() if isinstance(p, DTensor) else p for p in model.parameters()]
                          + list(model.buffers()), "weights")
            self.weights = tracker.now
            tracker.watch(ids, "ids")
            model.get_output_embeddings().register_forward_hook(lambda *_: self.enter("loss", 0))
            optimizer = step.make_optimizer(run, [dict(params=group) for group in by_mesh(model.parameters())])
            first, later = self.follow(model, optimizer, ids, count)
        dist.destroy_process_group()
        return first, later


def setup_of(run):
    more = dict(framework="fsdp", engine="fsdp2", zero=3, reduce_dtype="fp32") if run.shards > 1 else {}
    if run.precision == "bf16":
        more.pop("reduce_dtype", None)
    return dict(step.setup_of(run), tp=run.tp, gpus=run.tp * run.shards, attention=run.attention, **more)


def record(run):
    ranks = Ranks(run)
    first, later = ranks.measure()
    print(run, file=sys.stderr, flush=True)
    return dict(config=ranks.settings, setup=setup_of(run), parameters=ranks.parameters, weight_bytes=ranks.weights,
                first=first, later=later)


def runs(_):
    for precision in ("bf16-amp", "bf16", "fp32"):
        yield Run(precision=precision, tp=4)
        yield Run(precision=precision, recompute="full")
        yield Run(shape="long", precision=precision)
    yield Run(precision="bf16-amp", tp=2)
    yield Run(precision="bf16", attention="flash", optimizer_impl="fused", grad_accum=2)
    yield Run(shape="long", precision="bf16", attention="eager", optimizer_impl="loop")
    for shape in step.SHAPES:
        yield Run(shape=shape, tied=True, precision="bf16-amp")
        yield Run(shape=shape, tied=True, precision="bf16", recompute="full")
        for recompute in ("none", "full"):
            yield Run(shape=shape, shards=4, precision="bf16-mixed", recompute=recompute, optimizer_impl="fused")
        yield Run(shape=shape, shards=4, precision="bf16", grad_accum=2)
    yield Run(shards=4, tp=4, tied=True, precision="bf16-mixed", optimizer_impl="fused")


engines.meshes_are_real()
modeling_flash_attention_utils._is_packed_sequence = lambda *_, **__: False  # reads values: what it answers for whole samples

if __name__ == "__main__":
    step.main_of(["hf_tp"], runs, record, "python tests/oracle/hf_tp.py tests/golden/oracle/steps")
