"""Writes tests/golden/oracle/peft-<family>-<setting>-<dtype>-<attention>-0.json: one step of what peft has beside LoRA of
all layers, and of models whose top layers are trained, as golden.py records it; backward is one phase.

usage: golden_peft.py FOLDER [setting ...]
dtype is bf16, or autocast (over bf16 weights under adapters, over fp32 ones else).
"""
import pathlib
import sys

import device  # noqa: F401
import peft

import adapters
import golden

RUNS = [("llama", "autocast", "sdpa"), ("llama", "bf16", "eager"), ("qwen2", "autocast", "flash"), ("llama", "bf16", "sdpa")]

# classes that call a cache in ways of their own
MORE = [("gpt2", "bf16", "sdpa"), ("gpt2", "bf16", "eager"), ("gpt2", "bf16", "flash"), ("gpt_neox", "bf16", "sdpa"),
        ("opt", "bf16", "eager"), ("phi", "bf16", "eager"), ("phi3", "bf16", "sdpa"), ("qwen3", "bf16", "sdpa"),
        ("mixtral", "bf16", "sdpa"), ("llama", "bf16", "flash")]


def trained(family, dtype, attn, setting):
    import measure
    run = measure.Run(family, golden.families.SHAPES[golden.SHAPE], dtype, attn, "0", setting=setting)
    return sum(p.numel() for p in run.model.parameters() if p.requires_grad)


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    for name in sys.argv[2:] or adapters.OTHERS:
        setting = adapters.OTHERS[name]
        for family, dtype, attn in RUNS + (MORE if name == "prefix" else []):
            path = folder / f"peft-{family}-{name}-{dtype}-{attn}-0.json"
            try:
                result = golden.record(family, dtype, attn, "0", setting)
                result["command"] = "python tests/oracle/golden_peft.py tests/golden/oracle"
                result["adapters"] = dict(setting, peft=peft.__version__)
                result["trainable"] = trained(family, dtype, attn, setting)
                for key in ("layer", "shared_by_layers", "outside"):
                    if len(sys.argv) < 4 or sys.argv[-1] != "-v":
                        del result[key]
                path.write_text(golden.dump(result))
                print(path.name, flush=True)
            except Exception as e:  # noqa: BLE001
                import traceback
                traceback.print_exc(limit=-4)
                print(f"{path.name}: {type(e).__name__}: {str(e)[:300]}", flush=True)
