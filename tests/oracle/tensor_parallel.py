"""One rank's share of torchtitan's Llama under tensor parallelism with sequence parallelism, alone and over FSDP2: whole steps,
and what autograd keeps, as engines.py has them for FSDP2 alone.

The model, its plan and the order of a step are torchtitan's own (a released version; nothing of it lies here): parallelize.py
makes DTensors of the weights, train.py's forward_backward_step is written out in Titan.micro_batch.  Ranks are PyTorch's fake
process group, a mesh of copies x shards x tp.  Three things are put right that fake tensors of a CPU build have otherwise:
nn.RMSNorm is one kernel with its result and a row of fp32 (CUDA's _fused_rms_norm); wait_tensor hands its input back, where
the rule for fake tensors makes a new one; DTensor's trials of shapes are not seen (engines.py).

usage: PYTHONPATH=TORCHTITAN tensor_parallel.py FOLDER      writes FOLDER/oracle/steps/tp.json, a run a line, and
                                                            FOLDER/tensor_parallel/<shape>-tp<N>-<recompute>.json
"""
import dataclasses
import json
import pathlib
import sys
import types
from unittest.mock import MagicMock

import engines
import one_norm
import step
import torch
import torch.distributed as dist
import torch.utils.checkpoint
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

import saved

for name in ("datasets", "datasets.distributed", "torchtitan.models.moe.kernels", "torch.utils.tensorboard"):
    sys.modules[name] = MagicMock()  # asked for by torchtitan, not used here
for name in ("torchdata", "torchdata.stateful_dataloader"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].StatefulDataLoader = torch.utils.data.DataLoader

import torchtitan.tools.logging  # noqa: E402
from torchtitan.config import JobConfig  # noqa: E402
from torchtitan.distributed import ParallelDims, utils  # noqa: E402
from torchtitan.components.loss import cross_entropy_loss  # noqa: E402
from torchtitan.models.llama3.infra.parallelize import parallelize_llama  # noqa: E402
from torchtitan.models.llama3.model.args import TransformerModelArgs  # noqa: E402
from torchtitan.models.llama3.model.model import Transformer  # noqa: E402

TITAN = "0.2.2"
functional = torch.ops._c10d_functional

SHAPES = {  # sizes whose tensors are multiples of 512 bytes on each of 4 ranks
    "wide": dict(b=1, s=256, h=512, a=8, kv=4, f=1536, v=8192, L=4),
    "long": dict(b=4, s=512, h=256, a=4, kv=4, f=768, v=4096, L=6),
    "grouped": dict(b=2, s=1024, h=512, a=16, kv=4, f=1536, v=2048, L=4),
}


class Local(engines.Local):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is functional.wait_tensor.default:
            return args[0]
        if function in one_norm.KERNELS and not any(issubclass(t, DTensor) for t in types):
            return one_norm.watched(self, function, args)
        return super().__torch_dispatch__(function, types, args, kwargs)


@dataclasses.dataclass(frozen=True)
class Run:
    shape: str = "wide"
    tp: int = 2
    shards: int = 1
    copies: int = 1
    precision: str = "bf16-mixed"
    recompute: str = "none"
    optimizer_impl: str = "fused"
    grad_accum: int = 1
    clip_grad: bool = True
    optimizer: str = "adamw"
    set_to_none: bool = True


def job_of(run):
    job = JobConfig()
    job.training.seq_len = SHAPES[run.shape]["s"]
    job.training.dtype = "bfloat16" if run.precision == "bf16" else "float32"
    if run.precision != "bf16-mixed":
        job.training.mixed_precision_param = job.training.dtype
    job.activation_checkpoint.mode = {"none": "none", "full": "full", "ops": "selective"}[run.recompute]
    job.activation_checkpoint.selective_ac_option = "op"
    job.activation_checkpoint.preserve_rng_state = False  # it lies in host memory
    return job


def build(run):
    c = SHAPES[run.shape]
    args = TransformerModelArgs(dim=c["h"], n_layers=c["L"], n_heads=c["a"], n_kv_heads=c["kv"], vocab_size=c["v"],
                                multiple_of=c["f"], ffn_dim_multiplier=0.1, max_seq_len=c["s"])
    with torch.device("meta"):
        model = Transformer(args)
    for p in model.parameters():  # not the rotary table, which is complex
        p.data = p.data.to(getattr(torch, job_of(run).training.dtype))
    assert model.layers["0"].feed_forward.w1.out_features == c["f"]
    return model, dict(model_type="llama", hidden_size=c["h"], num_attention_heads=c["a"], num_key_value_heads=c["kv"],
                       head_dim=c["h"] // c["a"], intermediate_size=c["f"], vocab_size=c["v"], num_hidden_layers=c["L"],
                       max_position_embeddings=c["s"])


def local_of(t):
    t = t._local_tensor if isinstance(t, DTensor) else t
    return getattr(t, "elem", t)  # AsyncCollectiveTensor


def row(t, name):
    return [t.untyped_storage().nbytes(), str(t.dtype).removeprefix("torch."), list(t.shape), name]


class Titan(step.Steps):
    def micro_batch(self, model, ids, index):
        self.enter("forward", index)
        with self.context():
            pred = model(ids)
            loss = cross_entropy_loss(pred, ids) / self.run.grad_accum
            del pred
            if self.kept is None and self.run.recompute != "full":
                self.keep(loss, model, ids)
            self.enter("backward", index)
            loss.backward()

    def keep(self, loss, model, ids):
        """To ask what lies behind a checkpoint would run it again: its caching modes say what they stored."""
        self.tracker.paused = True
        skip = {local_of(t).untyped_storage()._cdata for t in [*model.parameters(), *model.buffers(), ids]}
        operations = [] if self.modes else saved.collect(loss, types.SimpleNamespace(module_of=lambda _: ""), [])
        named = [(t, o["op"] + "." + attribute) for o in operations for attribute, _, t in o["saved"]]
        for mode in self.modes:
            for calls in mode.storage.values():
                named += [(getattr(v, "val", v), "stored") for v in torch.utils._pytree.tree_leaves(calls)]
        self.kept = {}
        for t, name in named:
            t = local_of(t)
            if isinstance(t, torch.Tensor) and t.is_floating_point():  # not the random states of attention, nor labels
                key = t.untyped_storage()._cdata
                if key not in skip and not (t.device.type == "cpu" and t.dim() == 0):
                    self.kept.setdefault(key, row(t, name))
        self.tracker.paused = False

    def note_modes(self):
        make = torch.utils.checkpoint.create_selective_checkpoint_contexts

        def noted(*args):
            both = make(*args)
            self.modes.append(both[0])
            return both

        torch.utils.checkpoint.create_selective_checkpoint_contexts = noted
        return make

    def measure(self, count=3):
        run = self.run
        job, (model, self.settings) = job_of(run), build(run)
        cp = getattr(run, "cp", 1)
        world = run.tp * cp * run.shards * run.copies
        dist.init_process_group("fake", store=FakeStore(), rank=getattr(run, "rank", 0), world_size=world)
        self.dims = dims = ParallelDims(dp_replicate=run.copies, dp_shard=run.shards, cp=cp, tp=run.tp, pp=1, ep=1, etp=1,
                                        world_size=world)
        self.kept, self.modes, make = None, [], self.note_modes()
        self.context = utils.get_train_context(run.tp > 1)
        self.tracker = tracker = Local(True)
        self.parameters = sum(p.numel() for p in model.parameters())
        dims.build_mesh()
        with FakeTensorMode(allow_non_fake_inputs=True), step.cuda_switches(), engines.follows(tracker):
            parallelize_llama(model, dims, job)
            model.to_empty(device="cuda")
            model.train()
            tracker.watch([local_of(t) for t in [*model.parameters(), *model.buffers()]], "weights")
            self.weights = sum(local_of(p).untyped_storage().nbytes() for p in model.parameters())
            ids = torch.zeros(SHAPES[run.shape]["b"], SHAPES[run.shape]["s"], dtype=torch.long, device="cuda")
            tracker.watch(ids, "ids")
            ends, optimizer = [], step.make_optimizer(run, model.parameters())
            with tracker:
                for _ in range(count):
                    self.step(model, optimizer, ids)
                    ends.append(len(self.order))
                self.enter("rest", 0)
        dist.destroy_process_group()
        torch.utils.checkpoint.create_selective_checkpoint_contexts = make
        rows = [[phase, micro, *(tracker.phases[name].get(k) for k in ("peak", "op", "end"))]
                for name, phase, micro in self.order[:-1]]
        return rows[:ends[0]], rows[ends[-min(2, count)]:]





def setup_of(run):
    more = dict(fsdp_units="ends", reduce_dtype="fp32") if run.shards > 1 else dict(engine="ddp")
    more.update(dict(shard_degree=run.shards) if run.copies > 1 else {})
    c = SHAPES[run.shape]
    return dict(framework="torchtitan", gpus=run.tp * run.shards * run.copies, tp=run.tp, **more, micro_batch=c["b"],
                seq_len=c["s"], precision=run.precision, attention="flash", optimizer=run.optimizer,
                optimizer_impl=run.optimizer_impl, grad_accum=run.grad_accum, clip_grad=run.clip_grad, recompute=run.recompute)


def record(run):
    titan = Titan(run)
    first, later = titan.measure()
    return dict(config=titan.settings, setup=setup_of(run), parameters=titan.parameters, weight_bytes=titan.weights,
                first=first, later=later)


def runs(_):
    """Of tp 2 and 4 over 2, 4 and 8 shards; hybrid, two copies of 2 or 4 shards."""
    for tp in (2, 4):
        for shards, shape in ((2, "wide"), (4, "long"), (8, "grouped")):
            for recompute in ("none", "full", "ops"):
                yield Run(shape=shape, tp=tp, shards=shards, recompute=recompute)
        yield Run(shape="wide", tp=tp, shards=2, precision="bf16", optimizer_impl="foreach")
        yield Run(shape="long", tp=tp, shards=4, grad_accum=2)
        for shape in ("wide", "grouped"):
            yield Run(shape=shape, tp=tp, shards=2, copies=2)
            yield Run(shape=shape, tp=tp, shards=4, copies=2, recompute="full")
            yield Run(shape=shape, tp=tp, shards=4, copies=2, recompute="ops", grad_accum=2)


def kept_of(run):
    """What stays between forward and backward, a row a storage."""
    titan = Titan(run)
    titan.measure(1)
    rows = list(titan.kept.values())
    return dict(torch=torch.__version__, torchtitan=TITAN, command=COMMAND, config=titan.settings, tp=run.tp,
                recompute=run.recompute, b=SHAPES[run.shape]["b"], s=SHAPES[run.shape]["s"],
                kept_bytes=sum(r[0] for r in rows), kept=rows)


def kept_runs():
    for tp in (2, 4):
        for shape in SHAPES:
            for recompute in ("none", "ops"):
                yield f"{shape}-tp{tp}-{recompute}.json", Run(shape=shape, tp=tp, precision="bf16", recompute=recompute)


COMMAND = "PYTHONPATH=TORCHTITAN python tests/oracle/tensor_parallel.py tests/golden"


def head(command):
    return dict(torch=torch.__version__, torchtitan=TITAN, command=command)


def dump_kept(result):
    *head, (last, rows) = result.items()
    lines = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in head]
    return "{\n" + ",\n".join(lines) + f',\n "{last}": [\n' + ",\n".join("  " + json.dumps(r) for r in rows) + "\n ]\n}\n"


def main(folder):
    (folder / "oracle/steps/tp.json").write_text(step.dump(head(COMMAND), [record(r) for r in runs("tp")]))
    (folder / "tensor_parallel").mkdir(exist_ok=True)
    for name, run in kept_runs():
        (folder / "tensor_parallel" / name).write_text(dump_kept(kept_of(run)))


engines.meshes_are_real()

if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
