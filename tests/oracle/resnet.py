"""Residual networks: saved bytes and peaks of forward and backward, and whole steps of SGD with momentum.

usage: resnet.py FOLDER       writes FOLDER/resnet-<kind>-<dtype>.json of small networks, FOLDER/resnet-50-<stem>-<dtype>-<batch>.json,
                              and FOLDER/steps/resnet.json

The network is He et al. 2016 as training code has it: convolution without bias, batch norm, ReLU in place, the block's sum in
place, the stride at the convolution of 3.  torchvision itself does not import beside this torch.
"""
import dataclasses
import json
import pathlib
import sys

import device  # noqa: F401
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

import measure
import saved
import step as whole_step
from tracker import Tracker

SMALL = dict(b=4, side=64, classes=10)
KINDS = {"basic": dict(blocks=[2, 2], bottleneck=False, width=16, stem="imagenet"),
         "bottleneck": dict(blocks=[2, 3, 1], bottleneck=True, width=16, stem="imagenet"),
         "cifar": dict(blocks=[3, 2], bottleneck=False, width=16, stem="cifar")}


FIFTY = {stem: dict(blocks=[3, 4, 6, 3], bottleneck=True, width=64, stem=stem) for stem in ("imagenet", "cifar")}
SIDES = {"imagenet": dict(side=224, classes=1000), "cifar": dict(side=32, classes=10)}
BATCHES = (32, 64, 128, 256, 512, 1024)
FIFTY_PARAMETERS = 25557032  # what torchvision publishes of its resnet50, ImageNet's stem and classes


def conv(inside, outside, kernel, stride=1):
    return nn.Sequential(nn.Conv2d(inside, outside, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outside))


class Block(nn.Module):
    def __init__(self, inside, width, outside, stride, bottleneck):
        super().__init__()
        if bottleneck:
            self.inner = nn.ModuleList([conv(inside, width, 1), conv(width, width, 3, stride), conv(width, outside, 1)])
        else:
            self.inner = nn.ModuleList([conv(inside, width, 3, stride), conv(width, outside, 3)])
        self.around = conv(inside, outside, 1, stride) if stride > 1 or inside != outside else None

    def forward(self, x):
        out = x
        for i, layer in enumerate(self.inner):
            out = layer(out)
            if i + 1 < len(self.inner):
                out = F.relu(out, inplace=True)
        identity = x if self.around is None else self.around(x)
        out += identity
        return F.relu(out, inplace=True)


class ResNet(nn.Module):
    recompute = False

    def __init__(self, blocks, bottleneck, width, stem, classes):
        super().__init__()
        self.big = stem == "imagenet"
        self.stem = conv(3, width, 7 if self.big else 3, 2 if self.big else 1)
        inside, stages = width, []
        for s, n in enumerate(blocks):
            outside = (width << s) * (4 if bottleneck else 1)
            for i in range(n):
                stages.append(Block(inside, width << s, outside, 2 if i == 0 and s > 0 else 1, bottleneck))
                inside = outside
        self.blocks = nn.ModuleList(stages)
        self.fc = nn.Linear(inside, classes)

    def forward(self, x, labels):
        x = F.relu(self.stem(x), inplace=True)
        if self.big:
            x = F.max_pool2d(x, 3, 2, 1)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False) if self.recompute else block(x)
        x = torch.flatten(F.adaptive_avg_pool2d(x, 1), 1)
        return F.cross_entropy(self.fc(x), labels)


def config_of(kind, shape):
    return dict(model_type="convnet", input=[3, shape["side"], shape["side"]], num_classes=shape["classes"], resnet=kind)


def batch_of(shape):
    return torch.zeros(shape["b"], 3, shape["side"], shape["side"]), torch.zeros(shape["b"], dtype=torch.long)


def build(kind, shape):
    """A network and a batch, inside the caller's fake mode."""
    with torch.device("cuda"):
        return ResNet(**kind, classes=shape["classes"]).train().requires_grad_(), *batch_of(shape)


def bytes_of(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def step(kind, shape, dtype):
    with FakeTensorMode(allow_non_fake_inputs=True):
        model, x, labels = build(kind, shape)
        if kind is FIFTY["imagenet"]:
            assert sum(p.numel() for p in model.parameters()) == FIFTY_PARAMETERS
        outside = list(model.parameters()) + list(model.buffers()) + [x, labels]
        spans = saved.Spans(model)
        with measure.autocast("cuda", dtype == "autocast"):
            loss = model(x, labels)
        spans.remove()
        total = sum(v["bytes"] for v in saved.storages(saved.collect(loss, spans, outside)).values())
        del loss
        tracker = Tracker(True)
        tracker.watch(outside, "rest")
        with tracker:
            tracker.enter("forward")
            with measure.autocast("cuda", dtype == "autocast"):
                loss = model(x, labels)
            tracker.enter("backward")
            loss.backward()
            tracker.enter("after")
    phases = {n: {k: v[k] for k in ("start", "peak", "op", "end") if k in v} for n, v in tracker.phases.items() if n != "after"}
    return dict(family="resnet", torch=torch.__version__, command="python tests/oracle/resnet.py tests/golden/oracle",
                config=config_of(kind, shape), dtype=dtype, attention="eager", b=shape["b"], s=1, saved_total_bytes=total,
                parameter_bytes=bytes_of(model.parameters()), buffer_bytes=bytes_of(model.buffers()),
                input_bytes=4 * x.numel() + 8 * shape["b"], phases=phases)


# ---- whole steps ----


@dataclasses.dataclass(frozen=True)
class Run:
    stem: str = "cifar"
    b: int = 256
    precision: str = "fp32"
    optimizer: str = "momentum"
    optimizer_impl: str = "foreach"
    grad_accum: int = 1
    recompute: str = "none"
    clip_grad: bool = False
    set_to_none: bool = True


class Steps(whole_step.Steps):
    """The loop lets go of a batch when its backward is done."""

    def micro_batch(self, model, shape, index):
        self.enter("forward", index)
        with torch.device("cuda"):
            batch = batch_of(shape)
        with measure.autocast("cuda", self.run.precision == "bf16-amp"):
            loss = model(*batch)
        self.enter("backward", index)
        (loss / self.run.grad_accum).backward()

    def measure(self, count=3):
        with FakeTensorMode(allow_non_fake_inputs=True), whole_step.cuda_switches():
            shape = dict(b=self.run.b, **SIDES[self.run.stem])
            model = build(FIFTY[self.run.stem], shape)[0]
            model.recompute = self.run.recompute == "full"
            self.tracker = tracker = self.observer(True)
            tracker.watch(list(model.parameters()) + list(model.buffers()), "weights")
            self.weights = tracker.now
            optimizer = whole_step.make_optimizer(self.run, model.parameters())
            ends = []
            with tracker:
                for _ in range(count):
                    self.step(model, optimizer, shape)
                    ends.append(len(self.order))
                self.enter("rest", 0)
        rows = [[phase, micro, *(tracker.phases[name].get(k) for k in ("peak", "op", "end"))]
                for name, phase, micro in self.order[:-1]]
        return rows[:ends[0]], rows[ends[-2]:]


def runs():
    for stem in FIFTY:
        for precision in ("fp32", "bf16-amp"):
            for b in BATCHES:
                yield Run(stem, b, precision)
            yield Run(stem, 64, precision, grad_accum=4)
            yield Run(stem, 256, precision, recompute="full")
            yield Run(stem, 1024, precision, recompute="full")
            yield Run(stem, 32, precision, optimizer_impl="loop")


def record(run):
    steps = Steps(run)
    first, later = steps.measure()
    setup = dict(framework="hf", micro_batch=run.b, precision=run.precision, optimizer=run.optimizer,
                 optimizer_impl=run.optimizer_impl, grad_accum=run.grad_accum, clip_grad=run.clip_grad, recompute=run.recompute)
    return dict(config=config_of(FIFTY[run.stem], SIDES[run.stem]), setup=setup, weight_bytes=steps.weights, first=first, later=later)


def write(path, result):
    path.write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in result.items()) + "\n}\n")


def main(folder):
    for dtype in ("fp32", "autocast"):
        for kind, network in KINDS.items():
            write(folder / f"resnet-{kind}-{dtype}.json", step(network, SMALL, dtype))
        for stem, network in FIFTY.items():
            for b in BATCHES:
                write(folder / f"resnet-50-{stem}-{dtype}-{b}.json", step(network, dict(b=b, **SIDES[stem]), dtype))
    head = whole_step.head("python tests/oracle/resnet.py tests/golden/oracle")
    (folder / "steps" / "resnet.json").write_text(whole_step.dump(head, [record(run) for run in runs()]))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
