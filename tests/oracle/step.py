"""Whole training steps: forward, loss, backward of each micro-batch, clip, optimizer, zero_grad; the first step and a later one.

Fake CUDA tensors (device.py) in one process, sizes as the caching allocator hands them out: multiples of 512 bytes.  This
takes the CUDA branches of autocast, attention, foreach and fused kernels; real CPU tensors would take others.  What it
cannot see is what kernels and libraries hold inside one operation (tracker.py names them).

usage: step.py FOLDER [family ...]        writes FOLDER/<family>.json, one run a line
"""
import contextlib
import dataclasses
import json
import pathlib
import sys

import device  # noqa: F401  (before torch)
import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode

import attention
import families
import measure
from tracker import Tracker

GRANULE = 512  # kMinBlockSize of CUDACachingAllocator.cpp
STORED = {"fp32": torch.float32, "bf16-amp": torch.float32, "bf16": torch.bfloat16}


@dataclasses.dataclass(frozen=True)
class Run:
    """What is run, in memplan's words; what no setup key says stands below the line."""
    family: str = "llama"
    shape: str = "wide"
    precision: str = "bf16-amp"
    attention: str = "sdpa"
    optimizer: str = "adamw"
    optimizer_impl: str = "foreach"
    grad_accum: int = 1
    clip_grad: bool = True
    recompute: str = "none"
    recompute_reentrant: bool = False
    # ---
    set_to_none: bool = True


SHAPES = {  # sizes whose tensors are multiples of 512 bytes; "wide": weights and the step, "long": activations and the loss
    "wide": dict(b=1, s=128, h=512, a=8, kv=4, d=64, f=1408, v=4096, L=4),
    "long": dict(b=4, s=256, h=256, a=4, kv=2, d=64, f=768, v=2048, L=6),
}
LATE = {  # fullest when backward ends: mostly words, under a mask; "root": words apart from the head, in shards
    "masked": dict(b=1, s=256, h=1024, a=32, kv=32, d=32, f=256, v=8192, L=1),
    "root": dict(b=1, s=64, h=512, a=8, kv=4, d=64, f=512, v=8192, L=2),
}
STATE = dict(b=2, s=72, h=256, a=4, kv=2, d=64, f=512, v=2048, L=2)  # of layers with a loop over tokens


def shape_of(run):
    return STATE if run.shape == "state" else LATE.get(run.shape) or SHAPES[run.shape]


class Rounded(Tracker):
    """Counts what the allocator hands out."""

    def _born(self, t, tag):
        before = self.now
        super()._born(t, tag)
        grown = self.now - before
        if grown % GRANULE:
            ref, size, tag = self.live[t.untyped_storage()._cdata]
            more = -size % GRANULE
            self.live[t.untyped_storage()._cdata] = (ref, size + more, tag)
            self.now += more
            self._peak(self.now, tag)


def sizes(family, c):
    if family == "gpt2":
        return dict(model_type="gpt2", n_embd=c["h"], n_head=c["a"], n_inner=c["f"], vocab_size=c["v"], n_layer=c["L"],
                    n_positions=c["s"])
    if family in families.MIXED:
        return families.MIXED[family](c)
    if family in families.ROUTED:
        return families.ROUTED[family](c)
    if family in families.STATE_SPACE:
        return families.STATE_SPACE[family][0](c)
    if family == "falcon-rw":
        return dict(families.FAMILIES[family][0](c), tie_word_embeddings=True)
    if family != "llama":
        other = families.FAMILIES[family][0](c)
        return dict(other, **{k: c["s"] for k in ("max_position_embeddings", "n_positions", "max_seq_len") if k in other})
    return dict(model_type="llama", hidden_size=c["h"], num_attention_heads=c["a"], num_key_value_heads=c["kv"],
                head_dim=c["d"], intermediate_size=c["f"], vocab_size=c["v"], num_hidden_layers=c["L"],
                max_position_embeddings=c["s"])


@contextlib.contextmanager
def cuda_switches():
    """A checkpoint opens torch.autocast("cuda") when it recomputes, which a CPU build refuses."""
    common = torch.cuda.amp.common
    old = common.amp_definitely_not_available, torch.cuda.is_bf16_supported
    common.amp_definitely_not_available, torch.cuda.is_bf16_supported = lambda: False, lambda *_, **__: True
    try:
        yield
    finally:
        common.amp_definitely_not_available, torch.cuda.is_bf16_supported = old


def build(run, where="cuda"):
    """The model, without memory yet; its configuration."""
    c = shape_of(run)
    settings = sizes(run.family, c)
    config = transformers.AutoConfig.for_model(**settings)
    config.use_cache = False
    if getattr(run, "dropout", "default") == "0":
        families.without_dropout(config)
    attention.install(where == "cuda")
    name = {"flash": "flash_attention_2"}.get(run.attention, run.attention)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=STORED[run.precision],
                                                              attn_implementation=name)
    if run.recompute == "full":  # the state of the random generators lies in host memory: it is left out
        model.gradient_checkpointing_enable(dict(use_reentrant=run.recompute_reentrant, preserve_rng_state=False))
    return model, settings


def materialize(run, model, where):
    """Gives it memory, inside the caller's fake mode; token ids."""
    model.to_empty(device=where)
    if where == "cpu":
        with torch.no_grad():
            for t in [*model.parameters(), *model.buffers()]:
                t.normal_(std=0.05) if t.requires_grad else t.fill_(1)
    model.tie_weights()
    model.train()
    return torch.zeros(shape_of(run)["b"], shape_of(run)["s"], dtype=torch.long, device=where)


def make_optimizer(run, parameters):
    impl = dict(foreach=run.optimizer_impl == "foreach", fused=run.optimizer_impl == "fused")
    if run.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=1e-3, **impl)
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9 if run.optimizer == "momentum" else 0, **impl)


class Steps:
    """Runs steps under a tracker and keeps [phase, micro-batch, peak, operation at the peak, bytes at the end]."""

    def __init__(self, run, where="cuda", observer=Rounded):
        self.run, self.where, self.observer = run, where, observer
        self.order = []

    def enter(self, phase, micro):
        name = f"{phase} {len(self.order)}"
        self.order.append((name, phase, micro))
        self.tracker.enter(name)

    def micro_batch(self, model, ids, index):
        self.enter("forward", index)
        with measure.autocast(self.where, self.run.precision == "bf16-amp"):
            loss = model(input_ids=ids, labels=ids).loss
        self.enter("backward", index)
        (loss / self.run.grad_accum).backward()

    def step(self, model, optimizer, ids):
        for index in range(self.run.grad_accum):
            self.micro_batch(model, ids, index)
        if self.run.clip_grad:
            self.enter("clip", 0)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        self.enter("step", 0)
        optimizer.step()
        self.enter("zero_grad", 0)
        optimizer.zero_grad(set_to_none=self.run.set_to_none)

    def measure(self, count=3):
        """The first step and the third: the second may still hold what the first left."""
        fake = FakeTensorMode(allow_non_fake_inputs=True) if self.where == "cuda" else contextlib.nullcontext()
        model, self.settings = build(self.run, self.where)
        with fake, cuda_switches():
            ids = materialize(self.run, model, self.where)
            self.tracker = tracker = self.observer(self.where == "cuda")
            tracker.watch(list(model.parameters()) + list(model.buffers()), "weights")
            self.weights = tracker.now
            tracker.watch(ids, "ids")
            model.get_output_embeddings().register_forward_hook(
                lambda *_: self.enter("loss", 0))
            optimizer = make_optimizer(self.run, model.parameters())
            first, later = self.follow(model, optimizer, ids, count)
        self.parameters = sum(p.numel() for p in model.parameters())
        return first, later

    def follow(self, model, optimizer, ids, count):
        """The steps, tracked; rows of the first and of the last."""
        ends, tracker = [], self.tracker
        with tracker:
            for _ in range(count):
                self.step(model, optimizer, ids)
                ends.append(len(self.order))
            self.enter("rest", 0)
        rows = [[phase, micro, *(tracker.phases[name].get(k) for k in ("peak", "op", "end"))]
                for name, phase, micro in self.order[:-1]]
        return rows[:ends[0]], rows[ends[-2]:]


def setup_of(run):
    """memplan's keys; attention as the kernel that ran."""
    more = dict(recompute_reentrant=True) if run.recompute_reentrant else {}
    if not run.set_to_none:
        more["zero_grad_set_to_none"] = False
    masked = run.precision == "fp32" or run.shape == "masked"  # flash has no masks
    kernel = "flash" if run.attention == "sdpa" and not masked else run.attention
    return dict(framework="hf", micro_batch=shape_of(run)["b"], seq_len=shape_of(run)["s"],
                precision=run.precision, attention=kernel, optimizer=run.optimizer, optimizer_impl=run.optimizer_impl,
                grad_accum=run.grad_accum, clip_grad=run.clip_grad, recompute=run.recompute, **more)


def record(run):
    steps = Steps(run)
    first, later = steps.measure()
    return dict(config=steps.settings, setup=setup_of(run), parameters=steps.parameters,
                weight_bytes=steps.weights, first=first, later=later)


def runs(family):
    base = dict(family=family)
    for shape in SHAPES:
        for precision in STORED:
            yield Run(**base, shape=shape, precision=precision)
        for impl in ("fused", "loop"):
            yield Run(**base, shape=shape, optimizer_impl=impl)
            yield Run(**base, shape=shape, precision="bf16", optimizer_impl=impl)
        for optimizer in ("momentum", "sgd"):
            yield Run(**base, shape=shape, optimizer=optimizer)
        yield Run(**base, shape=shape, optimizer="momentum", optimizer_impl="loop")
        yield Run(**base, shape=shape, grad_accum=3)
        yield Run(**base, shape=shape, precision="bf16", grad_accum=3, optimizer_impl="fused")
        yield Run(**base, shape=shape, clip_grad=False)
        for precision in STORED:
            yield Run(**base, shape=shape, precision=precision, recompute="full")
            yield Run(**base, shape=shape, precision=precision, recompute="full",
                      recompute_reentrant=True)
        yield Run(**base, shape=shape, recompute="full", grad_accum=2, optimizer_impl="fused")
        yield Run(**base, shape=shape, set_to_none=False)
        yield Run(**base, shape=shape, attention="eager", precision="bf16")


def late(_):
    base = dict(family="falcon-rw", shape="masked", precision="bf16")
    yield Run(**base)
    yield Run(**base, optimizer_impl="fused", recompute="full")
    yield Run(**base, recompute="full", recompute_reentrant=True)
    yield Run(**base, grad_accum=2)
    yield Run(**{**base, "precision": "bf16-amp"}, optimizer_impl="fused")


def dump(head, rows):
    lines = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in head.items()]
    body = ",\n".join("  " + json.dumps(r) for r in rows)
    return "{\n" + ",\n".join(lines) + f',\n "runs": [\n{body}\n ]\n}}\n'


def head(command):
    return dict(torch=torch.__version__, transformers=transformers.__version__, command=command)


def main_of(names, runs_of, record_of, command):
    folder, wanted = pathlib.Path(sys.argv[1]), sys.argv[2:] or names
    for name in wanted:
        (folder / f"{name}.json").write_text(dump(head(command), [record_of(r) for r in runs_of(name)]))


if __name__ == "__main__":
    main_of(["llama", "gpt2", "late"], lambda name: late(name) if name == "late" else runs(name), record,
            "python tests/oracle/step.py tests/golden/oracle/steps")
