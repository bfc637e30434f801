"""Whole steps of the real DeepSpeed on its CPU accelerator: ZeRO 0 to 3, two and four ranks over gloo.

Every rank is a process that follows its own live bytes as step.py does, on real CPU tensors; a row's peak and end are the
worst rank's.  DeepSpeed's CPU accelerator runs the same Python as on a GPU, without streams: buffers have the sizes and
the order of a GPU's, and nothing overlaps.  Eager attention, no dropout, because kernels on the CPU are others.

usage: DS_ACCELERATOR=cpu zero.py FOLDER [overflow|offload|hpz|mics|quantized|ratio|formats|autocast|knobs|others|clip|beside|dealt|loose|wire]   writes FOLDER/zero.json, one run a line

With "overflow", under a DeepSpeed of 0.8.2 to 0.17.0, FOLDER/zero_overflow.json: fp16, whose first steps overflow; what is
recorded is a step after those.

With "offload", FOLDER/zero_offload.json: states and weights on the CPU, which is where everything is, so that what is
alive is the sum of what would be on the GPU and on the host, unrounded.

With "hpz", FOLDER/zero_hpz.json: ZeRO++'s second shards of weights, in groups of ranks.

With "mics", under a DeepSpeed up to 0.18, FOLDER/zero_mics.json: states in groups of ranks, replicated over groups.

With "quantized", FOLDER/zero_quantized.json: ZeRO++'s weights and gradients sent in 8 and 4 bits. The kernels are CUDA's:
Quantizer below stands in for them, with outputs of the sizes that csrc/quantization/pt_binding.cpp allocates.

With "ratio", FOLDER/zero_ratio.json: some sub-groups of the optimizer on the CPU, the others not.

With "formats", FOLDER/zero_formats.json: fp32, and bf16 with masters and moments in bf16. With "autocast",
FOLDER/zero_autocast.json: fp32 weights under torch_autocast.

With "knobs", FOLDER/zero_knobs.json: fp32 gradients in ZeRO-2, fp16 whose steps do not overflow, messages beside the
backward (overlap_comm). With "others", what is not modelled: ZeRO-1 whose fp16 gradients are added in fp32, or whose bucket
comes in the midst of the head's backward; ZeRO-3 whose peak is where weights of a layer have gone that is not done.

With "dealt", FOLDER/zero_dealt.json: round_robin_gradients. With "loose", FOLDER/zero_loose.json: contiguous_gradients off.
With "wire", FOLDER/zero_wire.json: communication_data_type, gradients larger than ZeRO-1's bucket. On a busy machine gloo's
threads can hold what was sent until the next copy is made: a run that has exactly one bucket more than another is run again.

With "clip", FOLDER/zero_clip.json: an offloaded optimizer with and without clipping. With "beside", FOLDER/zero_beside.json:
ZeRO-1 that reduces beside its backward.
"""
import dataclasses
import gc
import os
import pathlib
import sys
import warnings

os.environ["DS_ACCELERATOR"] = "cpu"
warnings.filterwarnings("ignore")

import step  # noqa: E402  (before torch: it loads device.py)
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing  # noqa: E402

import deepspeed  # noqa: E402
from deepspeed.accelerator import get_accelerator  # noqa: E402
from deepspeed.runtime import torch_autocast  # noqa: E402
from deepspeed.runtime.comm import coalesced_collectives  # noqa: E402
from deepspeed.runtime.zero import partition_parameters, stage3  # noqa: E402

deepspeed.utils.logging.logger.setLevel("ERROR")
LINEAR = torch.nn.functional.linear
type(get_accelerator()).is_fp16_supported = lambda self: True  # slow on most CPUs, of the same sizes


@dataclasses.dataclass(frozen=True)
class Run(step.Run):
    shape: str = "wide"
    precision: str = "bf16-mixed"
    attention: str = "eager"
    dropout: str = "0"
    optimizer_impl: str = "foreach"
    zero: int = 2
    gpus: int = 2
    reduce_bucket: int = 3000000
    prefetch_bucket: int = 1000000
    persistence_threshold: int = 10000
    sub_group_size: int = 1000000000
    overlap_comm: bool = False
    grad_dtype: str = ""
    reduce_dtype: str = ""
    zero_overflow: str = ""
    offload_optimizer: str = ""
    offload_params: str = ""
    hpz_partition_size: int = 1
    mics_shard_size: int = 0
    mics_hierarchical_params_gather: bool = False
    zero_quantized_weights: bool = False
    zero_quantized_gradients: bool = False
    gpus_per_node: int = 0
    offload_ratio: float = 1
    round_robin_gradients: bool = False
    contiguous_gradients: bool = True


KEYS = dict(reduce_bucket="reduce_bucket_size", overlap_comm="overlap_comm")
KEYS_OF_3 = dict(prefetch_bucket="stage3_prefetch_bucket_size", sub_group_size="sub_group_size",
                 persistence_threshold="stage3_param_persistence_threshold")


FLAGS = ("mics_shard_size", "mics_hierarchical_params_gather", "zero_quantized_weights", "zero_quantized_gradients")


def keys_of(run):
    return {} if run.zero == 0 else {**KEYS, **(KEYS_OF_3 if run.zero == 3 else {})}


def config_of(run):
    zero = dict(stage=run.zero, **{name: getattr(run, key) for key, name in keys_of(run).items()})
    for key, name in dict(offload_optimizer="offload_optimizer", offload_params="offload_param").items():
        if getattr(run, key):
            zero[name] = dict(device=getattr(run, key), pin_memory=False)
    if run.offload_ratio < 1:
        zero["offload_optimizer"]["ratio"] = run.offload_ratio
    for key in FLAGS:
        if getattr(run, key):
            zero[key] = getattr(run, key)
    for key in ("round_robin_gradients", "contiguous_gradients"):
        if getattr(run, key) != getattr(Run, key):
            zero[key] = getattr(run, key)
    if run.hpz_partition_size > 1:
        zero["zero_hpz_partition_size"] = run.hpz_partition_size
    more = dict(data_types=dict(grad_accum_dtype=run.grad_dtype)) if run.grad_dtype else {}
    if run.reduce_dtype:
        more["communication_data_type"] = run.reduce_dtype
    if run.precision == "bf16-amp":
        more["torch_autocast"] = dict(enabled=True, dtype="bfloat16")
    pure = run.precision == "bf16"
    return dict(train_micro_batch_size_per_gpu=step.SHAPES[run.shape]["b"], gradient_accumulation_steps=run.grad_accum,
                bf16=dict(enabled=pure or run.precision == "bf16-mixed", bf16_master_weights_and_grads=pure,
                          bf16_optimizer_states=pure), zero_optimization=zero,
                fp16=dict(enabled=run.precision == "fp16-mixed", initial_scale_power=18 if run.zero_overflow else 8, hysteresis=1),
                gradient_clipping=1.0 if run.clip_grad else 0.0, zero_force_ds_cpu_optimizer=False,
                zero_allow_untested_optimizer=True, **more)


class WithoutGloo(step.Rounded):
    """Not what gloo's reduce-scatter copies its input to: NCCL reads it where it is."""
    inside = False

    def _born(self, t, tag):
        if not WithoutGloo.inside:
            super()._born(t, tag)


def unseen(collective):
    def run(*args, **more):
        WithoutGloo.inside = True
        try:
            return collective(*args, **more)
        finally:
            WithoutGloo.inside = False
    return run


def one_by_one(self, outputs, inputs, group=None, async_op=False):
    """gloo joins no all-gathers; NCCL does, into the same outputs."""
    for out, own in zip(outputs, inputs):
        last = dist.all_gather_into_tensor(out, own, group=group, async_op=True)
        last.wait()
    return last


class Quantizer:
    """Symmetric quantization in groups, as the kernels of csrc/quantization allocate for it; in fp32 and slow."""
    Symmetric = 0

    @staticmethod
    def _cut(x, groups, bits, out, scales):
        most = 2 ** (bits - 1) - 1
        rows = x.reshape(groups, -1).float()
        scales.copy_(rows.abs().amax(1).clamp(min=1e-8) / most)
        codes = (rows / scales[:, None]).round().clamp(-most - 1, most).to(torch.int8).flatten()
        out.flatten().copy_(codes if bits == 8 else (codes[0::2] & 15) | (codes[1::2] << 4))

    @staticmethod
    def _codes(q, bits):
        q = q.flatten()
        return q if bits == 8 else torch.stack([(q << 4) >> 4, q >> 4], 1).flatten()

    def quantize(self, x, groups, bits, kind):
        scales = torch.empty(groups)
        out = torch.empty(*x.shape[:-1], x.shape[-1] * bits // 8, dtype=torch.int8)
        unseen(self._cut)(x, groups, bits, out, scales)
        return out, scales

    def swizzle_quant(self, x, groups, bits, kind, pipeline, nodes, devices):
        scales = torch.empty(groups)
        out = torch.empty(x.numel() * bits // 8, dtype=torch.int8)
        unseen(self._cut)(x, groups, bits, out, scales)
        return out, scales

    def dequantize(self, q, scales, groups, bits, kind):
        out = torch.empty(*q.shape[:-1], q.shape[-1] * 8 // bits, dtype=torch.half)

        def fill():
            out.flatten().copy_((self._codes(q, bits).view(groups, -1) * scales.view(groups, 1)).flatten())
        unseen(fill)()
        return out

    def quantized_reduction(self, q, scales, groups, new_groups, bits, kind, devices):
        new_scales = torch.empty(new_groups)
        out = torch.empty(*q.shape[:-1], q.shape[-1] // devices, dtype=torch.int8)

        def fill():
            wide = self._codes(q, bits).view(groups, -1) * scales.view(groups, 1)
            self._cut(wide.view(devices, -1).mean(0), new_groups, bits, out, new_scales)
        unseen(fill)()
        return out, new_scales


class Zero(step.Steps):
    def __init__(self, run, where="cpu", observer=WithoutGloo):
        super().__init__(run, where, observer)

    def micro_batch(self, engine, ids, index):
        self.enter("forward", index)
        loss = engine(input_ids=ids, labels=ids).loss
        self.enter("backward", index)
        engine.backward(loss)
        if index + 1 < self.run.grad_accum:
            engine.step()

    def step(self, engine, ids):
        for index in range(self.run.grad_accum):
            self.micro_batch(engine, ids, index)
        self.enter("step", 0)
        engine.step()
        self.enter("zero_grad", 0)

    def measure(self, count=3):
        model, self.settings = step.build(self.run, "cpu")
        self.tracker = tracker = self.observer(False)
        ids = step.materialize(self.run, model, "cpu")
        self.parameters = sum(p.numel() for p in model.parameters())
        head = model.get_output_embeddings()
        tracker.watch([*model.parameters(), *model.buffers()], "weights")
        tracker.watch(ids, "ids")
        optimizer = step.make_optimizer(self.run, model.parameters())
        ends, overflows = [], []
        with tracker:
            self.enter("init", 0)
            engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config_of(self.run))
            head.register_forward_hook(lambda *_: self.enter("loss", 0))
            start = len(self.order)
            for _ in range(count):
                self.step(engine, ids)
                ends.append(len(self.order))
                overflows.append(getattr(engine.optimizer, "overflow", False))
            self.enter("rest", 0)
        last = count - 1  # that did not overflow, and with zero_overflow came after one that did
        if self.run.zero_overflow:
            last = max(i for i in range(count) if not overflows[i] and any(overflows[:i]))
        rows = [[phase, micro, *(tracker.phases[name].get(k) for k in ("peak", "op", "end"))]
                for name, phase, micro in self.order[:-1]]
        return dict(init=rows[:start], first=rows[start:ends[0]], later=rows[ends[last - 1]:ends[last]])


def worst(ranks):
    """Row by row the fullest rank."""
    return [max(rows, key=lambda r: r[2])[:4] + [max(r[4] for r in rows)] for rows in zip(*ranks)]


def work(rank, todo, port, queue):
    torch.set_num_threads(1)
    gpus = todo[0].gpus
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(gpus),
                      LOCAL_RANK=str(rank), LOCAL_SIZE=str(todo[0].gpus_per_node or gpus),
                      NDEV_PER_NODE=str(todo[0].gpus_per_node or gpus))
    dist.reduce_scatter_tensor = unseen(dist.reduce_scatter_tensor)
    deepspeed.init_distributed("gloo", verbose=False)
    if todo[0].mics_shard_size:
        type(deepspeed.comm.comm.cdb).all_gather_coalesced = one_by_one
    if hasattr(partition_parameters, "CUDAQuantizer"):
        stage3.DeepSpeedCPUAdam = torch.optim.AdamW  # what a ratio asks for, and what it checks
        partition_parameters.CUDAQuantizer.quantizer_cuda_module = coalesced_collectives.quantizer_module = Quantizer()
    for run in todo:
        deepspeed.utils.groups._ZERO_PARAM_INTRA_PARALLEL_GROUP = None  # else the run before's
        torch_autocast.TORCH_AUTOCAST_INITIALIZED = False
        torch.nn.functional.linear = LINEAR  # ZeRO-3 leaves its own
        steps = Zero(run)
        rows, found = steps.measure(5 if run.zero_overflow else 3), [None] * gpus
        dist.all_gather_object(found, rows)
        if rank == 0:
            print(run, flush=True)
            queue.put(dict(config=steps.settings, setup=setup_of(run), parameters=steps.parameters,
                           **{part: worst([f[part] for f in found]) for part in ("init", "first", "later")}))
        del steps
        gc.collect()
    dist.destroy_process_group()


def setup_of(run):
    more = {key: getattr(run, key) for key in keys_of(run)}
    if run.zero_overflow:
        more["zero_overflow"] = run.zero_overflow
    if run.grad_dtype:
        more["grad_dtype"] = run.grad_dtype
    if run.reduce_dtype:
        more["reduce_dtype"] = run.reduce_dtype
    if run.hpz_partition_size > 1:
        more["hpz_partition_size"] = run.hpz_partition_size
    more.update({key: getattr(run, key) for key in (*FLAGS, "gpus_per_node") if getattr(run, key)})
    for key in ("round_robin_gradients", "contiguous_gradients"):
        if getattr(run, key) != getattr(Run, key):
            more[key] = getattr(run, key)
    if run.offload_ratio < 1:
        more["offload_ratio"] = run.offload_ratio
    away = {key: getattr(run, key) for key in ("offload_optimizer", "offload_params") if getattr(run, key)}
    if away:
        more.update(away, pin_memory=False)
    return {**step.setup_of(run), **dict(framework="deepspeed", gpus=run.gpus, zero=run.zero, dropout=0), **more}


def record(todo):
    """All runs of one number of ranks, in the same processes."""
    if not todo:
        return []
    context = torch.multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    port = 29600 + todo[0].gpus + 8 * todo[0].gpus_per_node
    processes = [context.Process(target=work, args=(rank, todo, port, queue))
                 for rank in range(todo[0].gpus)]
    for p in processes:
        p.start()
    rows = [queue.get() for _ in todo]
    for p in processes:
        p.join()
    return rows


def runs():
    for gpus in (2, 4):
        for shape in ("wide", "long"):
            base = dict(gpus=gpus, shape=shape)
            for zero in (0, 1, 2, 3):
                yield Run(**base, zero=zero)
            if gpus == 4 and shape == "long":
                continue
            for zero in (1, 2, 3):
                yield Run(**base, zero=zero, grad_accum=2)
            yield Run(**base, zero=1, grad_dtype="fp32")
            yield Run(**base, zero=2, overlap_comm=True)
            yield Run(**base, zero=2, recompute="full")
            yield Run(**base, zero=2, reduce_bucket=500000)
            yield Run(**base, zero=3, recompute="full", overlap_comm=True)
            yield Run(**base, zero=3, sub_group_size=1000000)
            yield Run(**base, zero=3, family="gpt2", prefetch_bucket=0, persistence_threshold=0)
            yield Run(**base, zero=2, family="gpt2")


def overflows():
    for zero in (1, 2):
        yield Run(zero=zero, precision="fp16-mixed", zero_overflow="kept")


def offloads():
    for shape in ("wide", "long"):
        for grad_accum in (1, 2):
            base = dict(shape=shape, grad_accum=grad_accum)
            for zero in (1, 2, 3):
                yield Run(**base, zero=zero, offload_optimizer="cpu")
            yield Run(**base, zero=3, offload_optimizer="cpu", offload_params="cpu")
            yield Run(**base, zero=3, offload_params="cpu")


def hpzs():
    for gpus, size, grad_accum in ((2, 2, 1), (4, 2, 2), (4, 4, 1)):
        yield Run(gpus=gpus, zero=3, hpz_partition_size=size, grad_accum=grad_accum)
    yield Run(gpus=4, zero=3, hpz_partition_size=2, family="gpt2", prefetch_bucket=0, persistence_threshold=0)


def micses():
    for gpus, size, grad_accum in ((4, 2, 1), (4, 2, 2), (4, 4, 1), (2, 1, 1)):
        yield Run(gpus=gpus, zero=3, mics_shard_size=size, grad_accum=grad_accum)
    yield Run(gpus=4, zero=3, mics_shard_size=2, shape="long", recompute="full", overlap_comm=True)
    yield Run(gpus=4, zero=3, mics_shard_size=2, family="gpt2", prefetch_bucket=0, persistence_threshold=0)
    for family in ("llama", "gpt2"):
        yield Run(gpus=4, zero=3, mics_shard_size=4, mics_hierarchical_params_gather=True, gpus_per_node=2, family=family)
    for shape in ("wide", "long"):
        yield Run(gpus=2, zero=3, mics_shard_size=2, shape=shape, prefetch_bucket=10000000)


def quantizeds():
    for more in (dict(grad_accum=2), dict(family="gpt2", prefetch_bucket=0, persistence_threshold=0)):
        yield Run(gpus=2, zero=3, zero_quantized_weights=True, **more)
    base = dict(gpus=4, gpus_per_node=2, zero=3, zero_quantized_gradients=True)
    yield Run(**base)
    yield Run(**base, zero_quantized_weights=True, hpz_partition_size=2)


def ratios():
    for ratio in (0.0, 0.4, 1.0):
        yield Run(zero=3, offload_optimizer="cpu", offload_ratio=ratio,
                  sub_group_size=300000)


def formats(precisions=("fp32", "bf16")):
    for precision in precisions:
        base = dict(precision=precision)
        for zero in (0, 1, 2, 3):
            if (precision, zero) == ("bf16", 0):
                continue
            for shape in ("wide", "long"):
                yield Run(**base, zero=zero, shape=shape)
            yield Run(**base, zero=zero, grad_accum=2)
            yield Run(**base, zero=zero, gpus=4, clip_grad=False)
        yield Run(**base, zero=2, gpus=4, family="gpt2")
        yield Run(**base, zero=2, reduce_bucket=500000)
        yield Run(**base, zero=3, family="gpt2", prefetch_bucket=0, persistence_threshold=0)


def autocasts():
    """Without GPT-2: autocast's lists on the CPU have no pow."""
    yield from (r for r in formats(["bf16-amp"]) if r.family == "llama" and (r.zero, r.shape) != (1, "long"))
    yield from more_autocasts()


def more_autocasts():
    base = dict(precision="bf16-amp")
    for zero in (1, 2, 3):
        yield Run(**base, zero=zero, shape="long", recompute="full")
    for zero in (2, 3):
        yield Run(**base, zero=zero, grad_accum=2, overlap_comm=True)
    yield Run(**base, zero=3, shape="long", reduce_bucket=500000)
    yield Run(**base, zero=3, shape="long", prefetch_bucket=0, persistence_threshold=0)


def knobs():
    wide = dict(zero=2, grad_dtype="fp32")
    for gpus in (2, 4):
        for shape in ("wide", "long"):
            yield Run(**wide, gpus=gpus, shape=shape)
        yield Run(**wide, gpus=gpus, grad_accum=2)
    yield Run(**wide, gpus=4, overlap_comm=True)
    yield Run(**wide, gpus=4, family="gpt2")
    yield Run(**wide, reduce_bucket=500000)
    yield Run(**wide, gpus=4, recompute="full", grad_accum=2)
    for zero in (0, 1, 2, 3):
        yield Run(zero=zero, precision="fp16-mixed")
    yield Run(zero=2, gpus=4, overlap_comm=True)
    for zero in (1, 2, 3):
        yield Run(zero=zero, gpus=4, overlap_comm=True, grad_accum=2)
    yield Run(zero=3, gpus=4, overlap_comm=True)


def others():
    """Read, not modelled: not among the goldens."""
    yield Run(zero=1, precision="fp16-mixed", grad_dtype="fp32")
    yield Run(zero=1, precision="fp16-mixed", grad_dtype="fp32", gpus=4, grad_accum=2)
    yield Run(zero=1, precision="bf16-amp", shape="long")
    yield Run(zero=3, contiguous_gradients=False)


def besides():
    """ZeRO-1 that reduces beside its backward."""
    for gpus in (2, 4):
        base = dict(zero=1, gpus=gpus, overlap_comm=True)
        for shape in ("wide", "long"):
            yield Run(**base, shape=shape)
            yield Run(**base, shape=shape, reduce_bucket=500000)
        yield Run(**base, shape="long", recompute="full")
        yield Run(**base, precision="fp32")
        yield Run(**base, precision="bf16")
        yield Run(**base, grad_dtype="fp32")
        yield Run(**base, grad_accum=2)
        yield Run(**base, shape="long", grad_accum=3, reduce_bucket=500000)
        yield Run(**base, family="gpt2", reduce_bucket=200000)
        if gpus == 2:
            yield Run(**base, precision="bf16-amp", grad_accum=2)
            for shape in ("wide", "long"):
                yield Run(**base, shape=shape, offload_optimizer="cpu")
                yield Run(**base, shape=shape, offload_optimizer="cpu", reduce_bucket=500000)
            yield Run(**base, shape="long", offload_optimizer="cpu", reduce_bucket=500000, grad_accum=2)


def dealt():
    """Tensors dealt to the ranks' partitions in turn."""
    base = dict(round_robin_gradients=True)
    for zero in (1, 2):
        yield Run(**base, zero=zero)
    yield Run(**base, zero=2, reduce_bucket=500000)
    yield Run(**base, zero=1, overlap_comm=True, shape="long", reduce_bucket=500000)
    for zero in (1, 2):
        yield Run(**base, zero=zero, gpus=4)
    yield Run(**base, zero=2, gpus=4, grad_accum=2, shape="long")
    yield Run(**base, zero=2, gpus=4, grad_dtype="fp32")
    yield Run(**base, zero=1, gpus=4, overlap_comm=True)
    yield Run(**base, zero=2, gpus=4, family="gpt2")


def loose():
    """Gradients that wait where they were made."""
    base = dict(contiguous_gradients=False)
    yield Run(**base, zero=1)
    yield Run(**base, zero=2)
    yield Run(**base, zero=2, overlap_comm=True)
    yield Run(**base, zero=1, overlap_comm=True)
    yield Run(**base, zero=2, shape="long", grad_accum=2)
    yield Run(**base, zero=2, grad_dtype="fp32")
    yield Run(**base, zero=2, gpus=4)
    yield Run(**base, zero=2, gpus=4, overlap_comm=True, grad_accum=2)
    yield Run(**base, zero=2, gpus=4, round_robin_gradients=True, reduce_bucket=500000)
    yield Run(**base, zero=3, gpus=4, shape="long", grad_accum=2)
    yield Run(**base, zero=2, grad_dtype="fp32", reduce_bucket=500000)
    for reduce_bucket in (3000000, 500000):
        yield Run(**base, zero=3, reduce_dtype="fp32", reduce_bucket=reduce_bucket)
    yield Run(**base, zero=3, precision="bf16-amp")


def wires():
    """Gradients sent in another type than they are made in; ZeRO-1 with gradients that are larger than its bucket."""
    for zero in (1, 2):
        for reduce_bucket in (3000000, 500000):
            yield Run(zero=zero, reduce_dtype="fp32", reduce_bucket=reduce_bucket)
    yield Run(zero=1, reduce_bucket=500000)
    yield Run(zero=1, reduce_bucket=500000, grad_accum=2, shape="long")
    yield Run(zero=1, reduce_bucket=200000, family="gpt2")
    for reduce_bucket in (3000000, 500000):
        yield Run(zero=3, reduce_dtype="fp32", reduce_bucket=reduce_bucket)


def clips():
    for zero in (1, 2):
        for clip_grad in (True, False):
            yield Run(zero=zero, clip_grad=clip_grad, offload_optimizer="cpu")
    for shape in ("wide", "long"):
        for grad_accum in (1, 2):
            yield Run(zero=3, shape=shape, grad_accum=grad_accum, offload_optimizer="cpu")
    yield Run(zero=3, offload_optimizer="cpu", prefetch_bucket=0, persistence_threshold=0)
    yield Run(zero=3, recompute="full", shape="long", offload_optimizer="cpu")


step.STORED["bf16-mixed"] = torch.bfloat16
step.STORED["fp16-mixed"] = torch.float16

if __name__ == "__main__":
    folder, what = pathlib.Path(sys.argv[1]), "".join(sys.argv[2:])
    todo = list({"": runs, "overflow": overflows, "offload": offloads, "hpz": hpzs, "mics": micses,
                 "quantized": quantizeds, "ratio": ratios, "formats": formats,
                 "autocast": autocasts, "knobs": knobs, "others": others, "clip": clips, "beside": besides,
                 "dealt": dealt, "loose": loose, "wire": wires}[what]())
    name = f"zero_{what}.json" if what else "zero.json"
    command = " ".join(["DS_ACCELERATOR=cpu python tests/oracle/zero.py tests/golden/oracle/steps", *sys.argv[2:]])
    places = sorted({(r.gpus, r.gpus_per_node) for r in todo})
    rows = [row for place in places for row in record([r for r in todo if (r.gpus, r.gpus_per_node) == place])]
    (folder / name).write_text(step.dump(dict(step.head(command), deepspeed=deepspeed.__version__), rows))
