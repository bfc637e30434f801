"""Writes tests/golden/oracle/lora-<setting>-<dtype>-<attention>.json: one step with adapters, as golden.py records it.

usage: golden_lora.py FOLDER
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

if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    adapters.check_sizes()
    for name, setting in adapters.SETTINGS.items():
        for family, dtype, attn in RUNS:
            result = golden.record(family, dtype, attn, "0", setting)
            result["command"] = "python tests/oracle/golden_lora.py tests/golden/oracle"
            result["adapters"] = dict(setting, peft=peft.__version__, bitsandbytes=bitsandbytes.__version__)
            for key in ("layer", "shared_by_layers", "outside"):
                del result[key]
            (folder / f"lora-{family}-{name}-{dtype}-{attn}-0.json").write_text(golden.dump(result))
