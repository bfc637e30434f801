"""Pipelines of torchtitan over torch.distributed.pipelining: whole steps of one rank, action by action, and the orders.

torchtitan's own code cuts its Llama (pipeline_llm), wraps the parts in FSDP2 and builds the schedule; the ranks are PyTorch's
fake process group, tensors are fake (tensor_parallel.py), so that what a rank would receive is there at once.  What stages
send is told them beforehand (PipelineStage's input_args and output_args), where they would run the model once to learn it.

usage: PYTHONPATH=TORCHTITAN pipeline.py FOLDER       writes FOLDER/oracle/steps/pipeline.json, a run a line, and
                                                      FOLDER/pipeline_orders.jsonl, an order a line
"""
import contextlib
import dataclasses
import json
import pathlib
import sys
import types

import tensor_parallel as tp
import engines
import step
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState
from torch.distributed.pipelining import PipelineStage, schedules
from torch.testing._internal.distributed.fake_pg import FakeStore

from torchtitan.components.loss import cross_entropy_loss
from torchtitan.distributed import ParallelDims, activation_checkpoint, pipeline_parallel
from torchtitan.models.llama3.infra.parallelize import parallelize_llama

SHAPES = {
    "wide": dict(b=1, s=256, h=512, a=8, kv=4, f=1536, v=8192, L=6),
    "long": dict(b=4, s=512, h=256, a=4, kv=4, f=768, v=4096, L=10),
    "deep": dict(b=2, s=256, h=256, a=4, kv=4, f=768, v=4096, L=14),
    "words": dict(b=2, s=256, h=256, a=4, kv=4, f=512, v=16384, L=6),  # the loss is the fullest
}
tp.SHAPES.update({"pipe-" + name: shape for name, shape in SHAPES.items()})
NAMES = {"1F1B": "1f1b", "Interleaved1F1B": "interleaved", "ZBVZeroBubble": "zb-v", "DualPipeV": "dualpipe-v",
         "InterleavedZeroBubble": "zb-interleaved", "GPipe": "gpipe"}


@dataclasses.dataclass(frozen=True)
class Run(tp.Run):
    shape: str = "pipe-wide"
    tp: int = 1
    shards: int = 2
    pp: int = 2
    rank: int = 0
    micros: int = 4
    schedule: str = "ZBVZeroBubble"
    vpp: int = 2            # stages of a rank, where the schedule has several
    every: int = 1          # with recompute: each so-manieth layer of a rank
    reshard: str = "default"
    outputs: bool = False   # the schedule hands out the logits, as it did for torchtitan before October 2025
    callback: bool = True   # the root's, at the end; without it as PyTorch before 2.7 (#144535)


class Told(PipelineStage):
    """A stage that need not run its module to know what it takes and gives."""
    run = None

    def __init__(self, submodule, index, stages, device, group):
        c = tp.SHAPES[self.run.shape]
        # the stages' hidden states have the type that the layers compute in
        hidden = torch.empty(c["b"], c["s"], c["h"], dtype=torch.float32 if self.run.precision == "fp32" else torch.bfloat16,
                             device="meta", requires_grad=True)
        ids = torch.empty(c["b"], c["s"], dtype=torch.long, device="meta")
        logits = torch.empty(c["b"], c["s"], c["v"], dtype=hidden.dtype, device="meta", requires_grad=True)
        super().__init__(submodule, index, stages, device, group=group, input_args=ids if index == 0 else hidden,
                         output_args=logits if index == stages - 1 else hidden)

    def _warmup_forward_vote(self, *_, **__):
        return torch.ones(1)

    def _warmup_backward_result(self, *_, **__):
        return types.SimpleNamespace(item=lambda: 1)


def split_outside(split):
    """Copies of the model are no fake tensors."""
    def outside(*args):
        with unset_fake_temporarily():
            return split(*args)
    return outside


pipeline_parallel.pipeline_module_split = split_outside(pipeline_parallel.pipeline_module_split)
@contextlib.contextmanager
def final_callback(there):
    """The one that lets go of what the last unit's reduce-scatter reads."""
    old = FSDPState._root_post_backward_final_callback

    def without(state):
        kept = list(state._comm_ctx.reduce_scatter_states)
        old(state)
        state._comm_ctx.reduce_scatter_states[:] = kept

    if not there:
        FSDPState._root_post_backward_final_callback = without
    try:
        yield
    finally:
        FSDPState._root_post_backward_final_callback = old


torch.random.fork_rng = lambda *_, **__: contextlib.nullcontext()  # asks the GPU


class Pipe(step.Steps):
    def note(self, stage, name, kind):
        old = getattr(stage, name)

        def noted(*args, **kwargs):
            short = kind if kind != "B" or kwargs.get("full_backward", True) else "I"
            self.enter(f"{short}{stage.stage_index}", args[0] if kind != "R" else 0)
            return old(*args, **kwargs)

        setattr(stage, name, noted)

    def one_step(self, schedule, parts, optimizers, ids):
        first, last = (any(getattr(s, k) for s in self.stages) for k in ("is_first", "is_last"))
        self.enter("start", 0)
        losses = [] if last else None
        schedule.step(*([ids] if first else []), target=ids if last else None, losses=losses,
                      return_outputs=self.run.outputs)
        if last:
            loss = torch.sum(torch.stack(losses))
            del loss
        del losses
        if self.run.clip_grad:
            self.enter("clip", 0)
            torch.nn.utils.clip_grad_norm_([p for m in parts for p in m.parameters()], 1.0, foreach=True)
        self.enter("step", 0)
        for optimizer in optimizers:
            optimizer.step()
        self.enter("zero_grad", 0)
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)

    def measure(self, count=2):
        run = self.run
        job, (model, self.settings) = tp.job_of(run), tp.build(run)
        c = tp.SHAPES[run.shape]
        job.training.local_batch_size = c["b"] * run.micros
        activation_checkpoint._layer_sac_count = 0
        if run.every > 1:
            job.activation_checkpoint.mode, job.activation_checkpoint.selective_ac_option = "selective", str(run.every)
        p = job.parallelism
        p.pipeline_parallel_degree, p.pipeline_parallel_schedule = run.pp, run.schedule
        p.pipeline_parallel_microbatch_size, p.fsdp_reshard_after_forward = c["b"], run.reshard
        if run.vpp > 2:
            p.pipeline_parallel_layers_per_stage = (c["L"] + 2) // (run.pp * run.vpp)
        p.pipeline_parallel_expert_parallel_overlap = False  # two threads, where there are experts to wait for
        world = run.pp * run.shards
        dist.init_process_group("fake", store=FakeStore(), rank=run.rank * run.shards, world_size=world)
        dims = ParallelDims(dp_replicate=1, dp_shard=run.shards, cp=1, tp=1, pp=run.pp, ep=1, etp=1, world_size=world)
        dims.build_mesh()
        self.tracker = tracker = tp.Local(True)
        self.parameters = sum(p.numel() for p in model.parameters())
        Told.run, pipeline_parallel.PipelineStage = run, Told
        with FakeTensorMode(allow_non_fake_inputs=True), step.cuda_switches(), engines.follows(tracker), final_callback(run.callback):
            schedule, parts, _, _ = pipeline_parallel.pipeline_llm(
                model, dims, job, torch.device("cuda"), model.model_args, parallelize_llama, cross_entropy_loss)
            self.stages = getattr(schedule, "_stages", None) or [schedule._stage]
            for m in parts:
                m.to_empty(device="cuda")
                m.train()
            for s in self.stages:
                for name, kind in (("forward_one_chunk", "F"), ("backward_one_chunk", "B"), ("backward_weight_one_chunk", "W"),
                                   ("perform_reduce_grad", "R")):
                    self.note(s, name, kind)
            merge = schedule._merge_outputs

            def noted_merge(chunks):
                self.enter("merge", 0)
                return merge(chunks)

            schedule._merge_outputs = noted_merge
            tracker.watch([tp.local_of(t) for m in parts for t in [*m.parameters(), *m.buffers()]], "weights")
            self.weights = sum(tp.local_of(t).untyped_storage().nbytes() for m in parts for t in m.parameters())
            ids = torch.zeros(c["b"] * run.micros, c["s"], dtype=torch.long, device="cuda")
            tracker.watch(ids, "ids")
            optimizers = [step.make_optimizer(run, m.parameters()) for m in parts]
            begins = []
            with tracker:
                for _ in range(count):
                    begins.append(len(self.order))
                    self.one_step(schedule, parts, optimizers, ids)
                self.enter("rest", 0)
        dist.destroy_process_group()
        rows = [[phase, micro, *(tracker.phases[name].get(k) for k in ("peak", "op", "end"))]
                for name, phase, micro in self.order[:-1]]
        self.layers = [len(s.submod.layers) for s in self.stages]
        return rows[begins[-1]:]


def setup_of(run):
    c = tp.SHAPES[run.shape]
    engine = dict(fsdp_units="ends", reduce_dtype="fp32") if run.shards > 1 else dict(engine="ddp")
    vpp = dict(vpp=run.vpp) if run.schedule.startswith("Interleaved") else {}
    old = dict(return_outputs=True) if run.outputs else {}
    if not run.callback:
        old["keep_reduce_scatter"] = True
    every = dict(recompute_every=run.every) if run.every > 1 else {}
    return dict(framework="torchtitan", gpus=run.pp * run.shards, pp=run.pp, schedule=NAMES[run.schedule], **vpp, **engine,
                micro_batch=c["b"], seq_len=c["s"], precision=run.precision, attention="flash", optimizer=run.optimizer,
                optimizer_impl=run.optimizer_impl, grad_accum=run.micros, clip_grad=run.clip_grad, recompute=run.recompute, **every,
                **old)


def record(run):
    pipe = Pipe(run)
    rows = pipe.measure()
    print(run, max(r[2] for r in rows), file=sys.stderr, flush=True)
    return dict(config=pipe.settings, setup=setup_of(run), rank=run.rank, layers=pipe.layers, weight_bytes=pipe.weights,
                later=rows)


class Place:
    """What a schedule asks of a stage before it runs."""

    def __init__(self, rank, ranks, index, stages):
        self.group_rank, self.group_size, self.stage_index, self.num_stages = rank, ranks, index, stages
        self.is_first, self.is_last, self.submod, self.has_backward = index == 0, index + 1 == stages, None, True


def order_of(name, ranks, micros, vpp=2):
    """Of each rank what it computes, "3I0": on stage 3 the gradients of inputs of micro-batch 0; W: of weights, B: both."""
    own = (0, 2 * ranks - 1) if name in V else range(0, vpp * ranks, ranks)
    stages = [Place(0, ranks, i, vpp * ranks) for i in own]
    schedule = schedules.get_schedule_class(name)(stages, micros, loss_fn=lambda *_: None)
    rows = []
    for rank in range(ranks):
        each = [sub for a in schedule.pipeline_order[rank] if a for sub in a.sub_actions or [a]]
        rows.append([str(a) for a in each])
    return rows


def without_first_halves(rows):
    """Of the model's first stage the first half does nothing, and the second all (stage.py, backward_one_chunk)."""
    return [[a.replace("0W", "0B") if a.startswith("0W") else a for a in row if not a.startswith("0I")] for row in rows]


V = ("ZBVZeroBubble", "DualPipeV")


def orders():
    for name in V:
        for ranks in (2, 3, 4, 8):
            for micros in sorted({1, 3, 2 * ranks - 1, 2 * ranks, 2 * ranks + 3, 4 * ranks}):
                if name == "ZBVZeroBubble" or micros >= 2 * ranks:
                    yield dict(schedule=NAMES[name], pp=ranks, vpp=1, micros=micros,
                               ranks=without_first_halves(order_of(name, ranks, micros)))
    for name in ("Interleaved1F1B", "InterleavedZeroBubble"):
        for ranks, vpp in ((2, 2), (2, 3), (3, 2), (4, 2), (4, 3), (8, 2)):
            for micros in sorted({1, ranks - 1, ranks, ranks + 1, 2 * ranks, 2 * ranks + 2, 5 * ranks}):
                if micros % max(1, micros // ranks) == 0:  # what else there is PyTorch refuses
                    yield dict(schedule=NAMES[name], pp=ranks, vpp=vpp, micros=micros,
                               ranks=without_first_halves(order_of(name, ranks, micros, vpp)))


def runs():
    for name in V:
        for rank in (0, 1):
            yield Run(schedule=name, rank=rank)
    yield Run(schedule="ZBVZeroBubble", rank=0, shape="pipe-long", micros=6)
    yield Run(schedule="ZBVZeroBubble", rank=1, shape="pipe-long", micros=6)
    yield Run(schedule="ZBVZeroBubble", rank=1, shards=1, precision="bf16")
    for rank in (0, 1):
        yield Run(schedule="DualPipeV", rank=rank, shape="pipe-words", micros=6)
    for rank in (0, 2):
        yield Run(schedule="ZBVZeroBubble", rank=rank, pp=4, shape="pipe-deep", micros=10)
        yield Run(schedule="DualPipeV", rank=rank, pp=4, shape="pipe-deep", micros=8)
    for name in ("1F1B", "GPipe", "Interleaved1F1B"):
        yield Run(schedule=name, rank=1)
    for rank in (0, 1):  # rounds of as many micro-batches as come out even
        yield Run(schedule=name, rank=rank, micros=3)
        yield Run(schedule=name, rank=rank, micros=5, pp=4, shape="pipe-deep")
        yield Run(schedule=name, rank=rank, micros=10, pp=4, shape="pipe-deep")
    name = "InterleavedZeroBubble"
    for rank in (0, 1):
        yield Run(schedule=name, rank=rank)
        yield Run(schedule=name, rank=rank, shape="pipe-words", micros=6)
        yield Run(schedule=name, rank=rank, shape="pipe-long", micros=8, vpp=3)
    yield Run(schedule=name, rank=1, shards=1, precision="bf16")
    for rank in (0, 2, 3):
        yield Run(schedule=name, rank=rank, pp=4, shape="pipe-deep", micros=12)
    for rank in (0, 1):  # checkpoints, which each weight's gradient comes to once more
        yield Run(schedule="ZBVZeroBubble", rank=rank, recompute="full")
        yield Run(schedule="DualPipeV", rank=rank, recompute="full", shape="pipe-words", micros=6)
        yield Run(schedule=name, rank=rank, recompute="full", shape="pipe-long", micros=8, vpp=3)
        yield Run(schedule="ZBVZeroBubble", rank=rank, recompute="full", every=2, shape="pipe-long", micros=6)
    yield Run(schedule="ZBVZeroBubble", rank=1, recompute="full", shards=1, precision="bf16")
    yield Run(schedule="ZBVZeroBubble", rank=2, recompute="full", pp=4, shape="pipe-deep", micros=10)
    for name in ("1F1B", "GPipe", "Interleaved1F1B"):  # as torchtitan of December 2024 had them
        yield Run(schedule=name, rank=1, outputs=True)
        yield Run(schedule=name, rank=1, outputs=True, callback=False, shape="pipe-words", micros=6)
        yield Run(schedule=name, rank=0, callback=False)
    yield Run(schedule="1F1B", rank=2, pp=4, shape="pipe-deep", micros=8, callback=False, outputs=True)
    yield Run(schedule="1F1B", rank=3, pp=4, shape="pipe-deep", micros=8, callback=False, outputs=True, recompute="full")
    yield Run(schedule="Interleaved1F1B", rank=3, pp=4, shape="pipe-deep", micros=12, outputs=True)
    yield Run(schedule="Interleaved1F1B", rank=1, shards=1, precision="bf16", outputs=True)


COMMAND = "PYTHONPATH=TORCHTITAN python tests/oracle/pipeline.py tests/golden/pipeline"


def dump(name, rows):
    body = ",\n".join("  " + json.dumps(row) for row in rows)
    lines = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in tp.head(COMMAND).items()]
    return "{\n" + ",\n".join(lines) + f',\n "{name}": [\n{body}\n ]\n}}\n'


def main(folder):
    (folder / "orders.json").write_text(dump("orders", orders()))
    (folder / "steps.json").write_text(dump("runs", [record(run) for run in runs()]))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
