"""One rank's share of DDP and FSDP2: whole steps as step.py measures them, under a process group that only pretends.

PyTorch's fake process group (torch.testing._internal.distributed.fake_pg) lets one process be rank 0 of 8 or of 64; the
collectives do nothing, the engines allocate, free and resize all their buffers.  Streams and events are empty: everything
is in the order in which the host runs it, so a buffer is counted from where it is allocated to where it is released, and
waits of one stream for another make no difference, as they do not to the allocator's figures of allocated bytes.

usage: engines.py FOLDER [engine ...]        writes FOLDER/fsdp2.json, ddp.json, hsdp.json (hybrid) and fsdp2_root.json, one run a line
"""
import contextlib
import dataclasses
import warnings

import step  # noqa: F401  (before torch: it loads device.py)
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.testing._internal.distributed.fake_pg import FakeStore

import measure

warnings.filterwarnings("ignore")
BF16, FP32 = torch.bfloat16, torch.float32


class Idle:
    """A stream or an event of a machine without any."""
    device, device_index, device_type, stream_id = torch.device("cuda", 0), 0, 1, 0

    def __init__(self, *_, **__):
        pass

    def nothing(self, *_):
        return None

    wait_stream = wait_event = record = wait = synchronize = nothing

    def record_event(self, *_):
        return Idle()

    def query(self):
        return True


def idle_cuda():
    cuda = torch.cuda
    cuda.Stream = cuda.Event = Idle
    cuda.current_stream = lambda *_: Idle()
    cuda.stream = lambda *_: contextlib.nullcontext()
    cuda.set_stream = cuda.set_device = cuda.synchronize = lambda *_: None
    cuda.current_device, cuda.device_count = lambda: 0, lambda: 8


def meshes_are_real():
    """fully_shard joins its mesh and that of the DTensors: numbers of ranks, which are read."""
    join = DeviceMesh._concatenate

    def joined(*args):
        with unset_fake_temporarily():
            return join(*args)

    DeviceMesh._concatenate = staticmethod(joined)


class Local(step.Rounded):
    """Counts a rank's own tensors: DTensors hand on their local ones, storages grow and shrink in place."""
    paused = False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented
        return super().__torch_dispatch__(function, types, args, kwargs)

    def _born(self, t, tag):
        if not self.paused:
            super()._born(t, tag)

    def resized(self, storage):
        entry = self.live.get(storage._cdata)
        if entry is None:
            return
        ref, old, tag = entry
        size = -(-storage.nbytes() // step.GRANULE) * step.GRANULE
        self.live[storage._cdata] = (ref, size, tag)
        self.now += size - old
        self._peak(self.now, "resize " + tag)


@contextlib.contextmanager
def follows(tracker):
    """Tells the tracker of resized storages, and not of the tensors by which DTensor tries out shapes."""
    resize, propagate = torch.UntypedStorage.resize_, ShardingPropagator._propagate_tensor_meta_non_cached

    def resize_and_tell(storage, size):
        tracker.poll()
        result = resize(storage, size)
        tracker.resized(storage)
        return result

    def propagate_unseen(*args):
        tracker.paused, old = True, tracker.paused
        try:
            return propagate(*args)
        finally:
            tracker.paused = old

    torch.UntypedStorage.resize_, ShardingPropagator._propagate_tensor_meta_non_cached = (resize_and_tell,
                                                                                       propagate_unseen)
    try:
        yield
    finally:
        torch.UntypedStorage.resize_, ShardingPropagator._propagate_tensor_meta_non_cached = resize, propagate


@dataclasses.dataclass(frozen=True)
class Run(step.Run):
    engine: str = "fsdp2"
    gpus: int = 8
    zero: int = 3
    reduce_dtype: str = ""      # "": the policy's default
    grad_sync: str = "each"
    dropout: str = "default"
    shard_degree: int = 0       # 0: all ranks
    fsdp_units: str = "layers"  # "ends": embedding and head wrapped on their own
    # --- what no key says
    bucket_view: bool = False


def shard(run, model, mesh):
    dtype = {"bf16-mixed": BF16, "fp32": None, "bf16": None}[run.precision]
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype={"": None, "fp32": FP32, "bf16": BF16}[run.reduce_dtype])
    more = dict(mesh=mesh, mp_policy=policy, **({} if run.zero == 3 else dict(reshard_after_forward=False)))
    base = model.model if run.family == "llama" else model.transformer
    for layer in base.layers if run.family == "llama" else base.h:
        fully_shard(layer, **more)
    if run.fsdp_units == "ends":
        fully_shard(model.get_input_embeddings(), **more)  # as torchtitan does: norm and head one unit, kept for backward
        fully_shard([base.norm, model.get_output_embeddings()], **dict(more, reshard_after_forward=False))
    return fully_shard(model, **more)


def mesh_of(run):
    """Hybrid sharding: a mesh of two dimensions, copies and shards."""
    if run.shard_degree == 0:
        return init_device_mesh("cuda", (run.gpus,))
    shape = (run.gpus // run.shard_degree, run.shard_degree)
    return init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))


def reduced(_, bucket):
    """As DDP's own all-reduce: divides in place, the result is the bucket."""
    future = torch.futures.Future()
    future.set_result(bucket.buffer().div_(dist.get_world_size()))
    return future


class Ranks(step.Steps):
    def __init__(self, run):
        super().__init__(run, "cpu" if run.engine == "ddp" else "cuda")

    def engine(self, model, mesh):
        if self.run.engine == "fsdp2":
            return shard(self.run, model, mesh)
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=self.run.bucket_view)
        model.register_comm_hook(None, reduced)  # the fake group's future has no result
        return model

    def accumulates(self, model, index):
        """Gradients of all but the last micro-batch stay on the rank in DDP, and where grad_sync says so, as with no_sync()."""
        last = index + 1 == self.run.grad_accum
        if self.run.engine == "ddp" and not last:
            return model.no_sync()
        if self.run.grad_sync == "last":
            model.set_requires_gradient_sync(last)
        return contextlib.nullcontext()

    def micro_batch(self, model, ids, index):
        with self.accumulates(model, index):
            super().micro_batch(model, ids, index)

    def measure(self, count=3):
        run = self.run
        model, self.settings = step.build(run)
        dist.init_process_group("fake", store=FakeStore(), rank=getattr(run, "rank", 0), world_size=run.gpus)
        real = self.where == "cpu"
        mesh = None if real else mesh_of(run)
        self.tracker = tracker = Local(not real)
        fake = contextlib.nullcontext() if real else FakeTensorMode(allow_non_fake_inputs=True)
        with fake, step.cuda_switches(), follows(tracker):
            ids = step.materialize(run, model, self.where)
            self.parameters = sum(p.numel() for p in model.parameters())
            head = model.get_output_embeddings()
            with tracker if real else contextlib.nullcontext():  # buckets are made here, shards replace parameters
                self.enter("init", 0)
                model = self.engine(model, mesh)
            self.order.clear()
            tracker.watch([p.to_local() if isinstance(p, DTensor) else p for p in model.parameters()]
                          + list(model.buffers()), "weights")
            self.weights = tracker.now
            tracker.watch(ids, "ids")
            head.register_forward_hook(lambda *_: self.enter("loss", 0))
            optimizer = step.make_optimizer(run, model.parameters())
            first, later = self.follow(model, optimizer, ids, count)
        dist.destroy_process_group()
        return first, later


def setup_of(run):
    more = dict(engine=run.engine, gpus=run.gpus, **(dict(dropout=0) if run.dropout == "0" else {}))
    if run.engine == "fsdp2":
        more.update(framework="fsdp", zero=run.zero, **(dict(reduce_dtype=run.reduce_dtype) if run.reduce_dtype else {}))
        if run.shard_degree > 0:
            more["shard_degree"] = run.shard_degree
        if run.fsdp_units != "layers":
            more["fsdp_units"] = run.fsdp_units
        if run.grad_accum > 1:
            more["grad_sync"] = run.grad_sync
    return {**step.setup_of(run), **more}


def record(run):
    ranks = Ranks(run)
    first, later = ranks.measure()
    more = {k: True for k in ("bucket_view",) if getattr(run, k)}
    return dict(config=ranks.settings, setup=setup_of(run), **more, parameters=ranks.parameters,
                weight_bytes=ranks.weights, first=first, later=later)


def hybrid():
    """Shards over 4 of 8 ranks, over 8 of 64."""
    for family in ("llama", "gpt2"):
        for gpus, degree in ((8, 4), (64, 8)):
            for shape in ("wide", "long"):
                base = dict(family=family, shape=shape, gpus=gpus, shard_degree=degree)
                yield Run(**base, precision="bf16-mixed", reduce_dtype="fp32")
                yield Run(**base, precision="bf16-mixed", optimizer_impl="fused", recompute="full")
                yield Run(**base, precision="bf16-mixed", reduce_dtype="fp32", zero=2)
                yield Run(**base, precision="fp32")
                yield Run(**base, precision="bf16-mixed", reduce_dtype="fp32", grad_accum=2)
                yield Run(**base, precision="bf16-mixed", reduce_dtype="fp32", grad_accum=2, grad_sync="last")


def root():
    """Mostly words: the root's reduction is the fullest."""
    for gpus in (2, 8, 64):
        base = dict(shape="root", gpus=gpus, optimizer_impl="fused", recompute="full")
        yield Run(**base, precision="bf16-mixed", reduce_dtype="fp32")
        if gpus == 2:
            yield Run(**base, precision="bf16-mixed")
        yield Run(**base, precision="bf16-mixed", reduce_dtype="fp32", grad_accum=2, grad_sync="last")
        yield Run(**base, precision="bf16", grad_accum=2, grad_sync="last")


def runs(engine):
    if engine in ("hsdp", "fsdp2_root"):
        yield from hybrid() if engine == "hsdp" else root()
        return
    for family in ("llama", "gpt2"):
        for gpus in (8, 64):
            base = dict(family=family, gpus=gpus, engine=engine)
            shapes = ("wide", "long")
            if engine == "ddp":
                for shape in shapes:
                    more = dict(shape=shape, zero=0, attention="eager", dropout="0")  # CPU: other kernels for both
                    yield Run(**base, **more, precision="fp32")
                    yield Run(**base, **more, precision="fp32", bucket_view=True)
                    yield Run(**base, **more, precision="bf16", optimizer_impl="fused", grad_accum=2)
                    yield Run(**base, **more, precision="bf16", optimizer_impl="fused", grad_accum=2, bucket_view=True)
                    yield Run(**base, **more, precision="fp32", recompute="full", optimizer="momentum")
                continue
            for shape in shapes:
                yield Run(**base, shape=shape, precision="bf16-mixed", reduce_dtype="fp32")
                yield Run(**base, shape=shape, precision="bf16-mixed", optimizer_impl="fused", recompute="full")
                yield Run(**base, shape=shape, precision="bf16-mixed", reduce_dtype="fp32", grad_accum=2)
                yield Run(**base, shape=shape, precision="bf16-mixed", reduce_dtype="fp32", zero=2)
                yield Run(**base, shape=shape, precision="fp32")
                yield Run(**base, shape=shape, precision="bf16", optimizer_impl="fused")
                for accum in (2, 4):
                    yield Run(**base, shape=shape, precision="bf16-mixed", reduce_dtype="fp32", grad_accum=accum, grad_sync="last")
                yield Run(**base, shape=shape, precision="bf16-mixed", grad_accum=4, grad_sync="last", zero=2)
                yield Run(**base, shape=shape, precision="bf16", optimizer_impl="fused", grad_accum=4, grad_sync="last", recompute="full")
                if family == "llama":  # gpt2's head is its embedding
                    yield Run(**base, shape=shape, precision="bf16-mixed", fsdp_units="ends")


step.STORED["bf16-mixed"] = FP32
idle_cuda()

if __name__ == "__main__":
    step.main_of(["fsdp2", "ddp", "hsdp", "fsdp2_root"], runs, record, "python tests/oracle/engines.py tests/golden/oracle/steps")
