"""Writes tests/golden/oracle/lora-<setting>-<dtype>-<attention>.json: one step with adapters, as golden.py records it.

usage: golden_lora.py FOLDER [setting ...]
LINEAR: families with linears that only all-linear names, or shared experts; of those settings.  FUSED: those whose experts
PEFT 0.21 adapts as fused parameters, without dropout.
dtype is bf16, or autocast (over bf16 weights, as the Trainer's bf16 flag does).  Needs peft and bitsandbytes.
"""
import pathlib
import sys

import device  # noqa: F401
import bitsandbytes
import peft

import adapters
import golden

RUNS = [("llama", "autocast", "sdpa"), ("llama", "bf16", "sdpa"), ("llama", "autocast", "eager"),
        ("qwen2", "autocast", "flash")]

LINEAR = ["minicpm3", "qwen2_moe"]
FUSED = ["mixtral", "olmoe", "qwen3_moe", "glm4_moe", "dots1", "ernie4_5_moe", "deepseek_v2", "deepseek_v3"]


def runs():
    for name in sys.argv[2:] or adapters.SETTINGS:
        for run in RUNS:
            yield name, *run
    for family in [] if sys.argv[2:] else LINEAR + FUSED:
        for name in ("all-bf16", "all-fp32" if family in FUSED else "all-fp32-dropout"):
            yield name, family, "autocast", "sdpa"
            yield name, family, "bf16", "eager"


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    adapters.check_sizes()
    for name, family, dtype, attn in runs():
        setting = adapters.SETTINGS[name]
        result = golden.record(family, dtype, attn, "0", setting)
        result["command"] = "python tests/oracle/golden_lora.py tests/golden/oracle"
        result["adapters"] = dict(setting, peft=peft.__version__, bitsandbytes=bitsandbytes.__version__)
        for key in ("layer", "shared_by_layers", "outside"):
            del result[key]
        (folder / f"lora-{family}-{name}-{dtype}-{attn}-0.json").write_text(golden.dump(result))
