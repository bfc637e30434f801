"""Writes tests/golden/oracle/resnet-<kind>-<dtype>.json: saved bytes and peaks of a step of a small residual network.

usage: resnet.py FOLDER

The network is He et al. 2016 as training code has it: convolution without bias, batch norm, ReLU in place, the block's sum in
place, the stride at the convolution of 3.  torchvision itself does not import beside this torch.
"""
import json
import pathlib
import sys

import device  # noqa: F401
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

import measure
import saved
from tracker import Tracker

B, SIDE, CLASSES = 4, 64, 10
KINDS = {"basic": dict(blocks=[2, 2], bottleneck=False, width=16, stem="imagenet"),
         "bottleneck": dict(blocks=[2, 3, 1], bottleneck=True, width=16, stem="imagenet"),
         "cifar": dict(blocks=[3, 2], bottleneck=False, width=16, stem="cifar")}


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
    def __init__(self, blocks, bottleneck, width, stem):
        super().__init__()
        self.big = stem == "imagenet"
        self.stem = conv(3, width, 7 if self.big else 3, 2 if self.big else 1)
        inside, stages = width, []
        for s, n in enumerate(blocks):
            outside = (width << s) * (4 if bottleneck else 1)
            for i in range(n):
                stages.append(Block(inside, width << s, outside, 2 if i == 0 and s > 0 else 1, bottleneck))
                inside = outside
        self.blocks = nn.Sequential(*stages)
        self.fc = nn.Linear(inside, CLASSES)

    def forward(self, x, labels):
        x = F.relu(self.stem(x), inplace=True)
        if self.big:
            x = F.max_pool2d(x, 3, 2, 1)
        x = torch.flatten(F.adaptive_avg_pool2d(self.blocks(x), 1), 1)
        return F.cross_entropy(self.fc(x), labels)


def step(kind, dtype):
    with FakeTensorMode(allow_non_fake_inputs=True):
        with torch.device("cuda"):
            model = ResNet(**KINDS[kind]).train()
            x, labels = torch.zeros(B, 3, SIDE, SIDE), torch.zeros(B, dtype=torch.long)
        model.requires_grad_()
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
    config = dict(model_type="convnet", input=[3, SIDE, SIDE], num_classes=CLASSES, resnet=KINDS[kind])
    return dict(family="resnet", torch=torch.__version__, command="python tests/oracle/resnet.py tests/golden/oracle",
                config=config, dtype=dtype, attention="eager", b=B, s=1, saved_total_bytes=total,
                parameter_bytes=sum(p.numel() * p.element_size() for p in model.parameters()),
                buffer_bytes=sum(p.numel() * p.element_size() for p in model.buffers()),
                input_bytes=4 * x.numel() + 8 * B, phases=phases)


if __name__ == "__main__":
    for kind in KINDS:
        for dtype in ("fp32", "autocast"):
            path = pathlib.Path(sys.argv[1]) / f"resnet-{kind}-{dtype}.json"
            lines = ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in step(kind, dtype).items())
            path.write_text("{\n" + lines + "\n}\n")
