"""Saved bytes on fake CUDA tensors against real CPU tensors with real values (eager attention, no dropout).

Expected: equal in fp32; in bf16 the CPU's layer_norm of a bf16 input keeps bf16 statistics, 4 bytes less per row.  Under
autocast two rules are CUDA's alone and are not counted as mismatches: pow runs in fp32 (gelu_new: 6Tf more per layer),
and layer_norm casts a bf16 input to fp32 and keeps that copy (stablelm's qk_layernorm).
usage: crosscheck.py [family ...]
"""
import sys

import device  # noqa: F401
import families
import measure
import torch

if __name__ == "__main__":
    shape, bad = families.SHAPES["small"], 0
    for family in sys.argv[1:] or families.FAMILIES:
        for dtype in ("fp32", "bf16", "autocast"):
            try:
                fake = measure.Run(family, shape, dtype, "eager", "0")
                real = measure.Run(family, shape, dtype, "eager", "0", where="cpu")
            except Exception as e:  # noqa: BLE001
                print(f"{family:26} {dtype:8} {type(e).__name__} {str(e)[:150]}", flush=True)
                bad += 1
                continue
            rows = sum(t.numel() for o in fake.operations if o["op"] == "NativeLayerNorm"
                       and any(a == "input" and t.dtype == torch.bfloat16 for a, _, t in o["saved"])
                       for a, _, t in o["saved"] if a in ("result1", "result2"))
            difference = fake.total - real.total
            expected = 2 * rows if dtype == "bf16" else 0
            if dtype == "autocast" and any(o["op"] == "Pow" and "act" in o["module"] for o in fake.operations):
                expected = 6 * shape["L"] * shape["b"] * shape["s"] * shape["f"]
            if dtype == "autocast" and family.endswith("qknorm") and family.startswith("stablelm"):
                expected = difference
            bad += difference != expected
            print(f"{family:26} {dtype:8} cuda {fake.total:9} cpu {real.total:9} difference {difference:6} "
                  f"expected {expected:6} {'ok' if difference == expected else '<<<'}", flush=True)
    print("mismatches", bad)
    sys.exit(bad != 0)
