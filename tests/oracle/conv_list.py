"""Writes tests/golden/oracle/layers-<kind>-<dtype>.json: networks that are lists of layers, interpreted with PyTorch's modules.

usage: conv_list.py FOLDER
"""
import pathlib
import sys

import device  # noqa: F401
import torch
import torch.nn as nn

import resnet


def conv(out, kernel, **more):
    return dict(type="conv2d", out=out, kernel=kernel, **more)


def named(kind, name="", **more):
    return dict(type=kind, **(dict(name=name) if name else {}), **more)


VGG = [conv(16, 3, padding=1), named("relu"), conv(16, 3, padding=1), named("relu"), named("maxpool2d", kernel=2),
       conv(32, 3, padding=1), named("relu", inplace=True), conv(32, 3, padding=1), named("relu", inplace=True),
       named("maxpool2d", kernel=2), named("avgpool2d", output=4), named("flatten"), named("linear", out=64), named("relu"),
       named("dropout"), named("linear", out=64), named("relu"), named("dropout"), named("linear", out=10)]

# shortcuts of both kinds, depthwise and dilated convolutions, uneven windows, every pooling
MIXED = [conv(32, 3, stride=2, padding=1, bias=False), named("batchnorm2d"), named("relu", inplace=True),
         named("maxpool2d", "stem", kernel=3, stride=2, ceil_mode=True),
         conv(32, 3, padding=1, groups=32, bias=False), named("batchnorm2d"), named("relu", inplace=True),
         conv(32, 1, bias=False), named("batchnorm2d"), named("add", **{"from": "stem"}), named("relu", "first"),
         conv(48, [3, 1], padding=[2, 0], dilation=2, stride=[1, 2], bias=False), named("batchnorm2d", "inner"),
         conv(48, 1, stride=[1, 2], bias=False, input="first"), named("batchnorm2d", "around"),
         named("add", input="inner", inplace=True, **{"from": "around"}), named("relu", "second", inplace=True),
         named("dropout", p=0.2), conv(48, 3, padding=1), named("add", **{"from": "second"}),
         named("avgpool2d", kernel=2, padding=1, ceil_mode=True), conv(64, 1), named("relu"), named("avgpool2d", output=1),
         named("flatten"), named("linear", out=10, bias=False)]

MLP = [named("flatten"), named("linear", out=256), named("relu"), named("linear", out=128), named("relu"), named("linear", out=10)]

KINDS = {"vgg": VGG, "mixed": MIXED, "mlp": MLP, "one": MLP[:1] + MLP[-1:]}


class Network(nn.Module):
    def __init__(self, layers, shape):
        super().__init__()
        self.layers, self.names = layers, {l["name"]: i for i, l in enumerate(layers) if "name" in l}
        self.parts = nn.ModuleList()
        made, sides = [], torch.zeros(2, 3, shape["side"], shape["side"], device="cuda")
        with torch.no_grad():
            for i, layer in enumerate(layers):
                taken = made[self.place(layer["input"])] if "input" in layer else made[-1] if made else sides
                part = self.part(layer, taken)
                self.parts.append(part)
                other = [made[self.place(layer["from"])]] if layer["type"] == "add" else []
                made.append(part(taken.clone(), *other))

    def place(self, which):
        return self.names[which] if isinstance(which, str) else which - 1

    def part(self, layer, x):
        keys = {k: tuple(v) if isinstance(v, list) else v for k, v in layer.items() if k not in ("type", "name", "input", "from")}
        out, kernel = keys.pop("out", None), keys.pop("kernel", None)
        with torch.device("cuda"):
            match layer["type"]:
                case "conv2d":
                    return nn.Conv2d(x.shape[1], out, kernel, **keys)
                case "batchnorm2d":
                    return nn.BatchNorm2d(x.shape[1])
                case "relu":
                    return nn.ReLU(**keys)
                case "maxpool2d":
                    return nn.MaxPool2d(kernel, **keys)
                case "avgpool2d":
                    return nn.AdaptiveAvgPool2d(keys["output"]) if "output" in keys else nn.AvgPool2d(kernel, **keys)
                case "linear":
                    return nn.Linear(x.shape[1], out, **keys)
                case "flatten":
                    return nn.Flatten()
                case "dropout":
                    return nn.Dropout(**keys)
                case "add":
                    return Add(**keys)

    def forward(self, x, labels):
        last = {}  # the layer that is the last to take one
        for i, layer in enumerate(self.layers):
            last[self.place(layer["input"]) if "input" in layer else i - 1] = i
            if layer["type"] == "add":
                last[self.place(layer["from"])] = i
        made = {-1: x}
        del x
        for i, (layer, part) in enumerate(zip(self.layers, self.parts)):
            taken = self.place(layer["input"]) if "input" in layer else i - 1
            made[i] = part(made[taken], made[self.place(layer["from"])]) if layer["type"] == "add" else part(made[taken])
            for k in [k for k in made if k < i and last.get(k, -1) <= i]:
                del made[k]
        return nn.functional.cross_entropy(made[len(self.layers) - 1], labels)


class Add(nn.Module):
    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace

    def forward(self, x, y):
        if self.inplace:
            x += y
            return x
        return x + y


def build(layers, shape):
    network = Network(layers, shape).train()
    with torch.device("cuda"):
        x, labels = resnet.batch_of(shape)
    return network, x, labels


def main(folder):
    resnet.build = build
    for kind, layers in KINDS.items():
        for dtype in ("fp32", "autocast"):
            result = resnet.step(layers, resnet.SMALL, dtype)
            result.update(family="layers", command="python tests/oracle/conv_list.py tests/golden/oracle",
                          config=dict(model_type="convnet", input=[3, 64, 64], num_classes=10, layers=layers))
            resnet.write(folder / f"layers-{kind}-{dtype}.json", result)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
