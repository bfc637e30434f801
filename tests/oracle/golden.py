"""Writes tests/golden/oracle/<family>-<dtype>-<attention>-<dropout>.json: saved bytes and the live-byte peak of one step.

usage: golden.py FOLDER [family ...]
"""
import json
import pathlib
import re
import sys

import device  # noqa: F401
import torch
import transformers

import describe
import families
import measure

SHAPE = "small"


def compact(run, keys):
    """[bytes, dtype, shape, savers] per storage; savers are place inside the layer:operation.attribute.

    Per-head norms fold into one row with their number as a fifth element.
    """
    rows = []
    for key in keys:
        entry = run.storages[key]
        savers = sorted({f"{describe.layer_of(m)[1]}:{op}.{attribute}" for op, attribute, m in entry["savers"]
                         if describe.layer_of(m)[0] in (None, describe.layer_of(entry["savers"][0][2])[0])})
        row = [entry["bytes"], entry["dtype"], list(entry["shape"]),
               " ".join(sorted({re.sub(r"norms\.\d+", "norms.*", s) for s in savers}))]
        same = next((r for r in rows if r[:4] == row and "norms.*" in row[3]), None)
        if same:
            same[4:] = [(same[4] if len(same) > 4 else 1) + 1]
        else:
            rows.append(row)
    return rows


def sequence(config, shape):
    """Tokens of a sequence: of an image its patches and the class."""
    if hasattr(config, "image_size"):
        return (config.image_size // config.patch_size) ** 2 + 1
    return shape["s"]


def record(family, dtype, attn, dropout, setting=None, padded=False, **sizes):
    kind = "long" if family in families.LONG else "odd" if family in families.ODD else SHAPE
    shape = dict(families.SHAPES[kind], **sizes)
    more = dict(setting=setting, padded=padded)
    three = measure.Run(family, shape, dtype, attn, dropout, **more)
    two = measure.Run(family, shape, dtype, attn, dropout, layers=2, **more)
    step = measure.Run(family, shape, dtype, attn, dropout, backward=True, **more)
    phases = {name: {k: v[k] for k in ("start", "peak", "op", "end") if k in v}
              for name, v in step.tracker.phases.items() if name != "after"}
    top = max((v["peak"], n) for n, v in phases.items())
    shared, out = describe.outside(three)
    config = dict(three.settings)
    drops = {k: v for k, v in families.dropout_fields(three.config).items()}
    kernel = three.sdpa[0] if three.sdpa else "eager"
    result = dict(
        family=family, torch=torch.__version__, transformers=transformers.__version__,
        command=f"python tests/oracle/golden.py tests/golden/oracle {family}", config=config, dropout=drops, dtype=dtype, attention=attn, kernel=kernel,
        b=shape["b"], s=sequence(three.config, shape), layers=shape["L"],
        runs_on_a_gpu=not (attn == "flash" and dtype == "fp32"),
        parameter_bytes=sum({p.untyped_storage()._cdata: p.untyped_storage().nbytes()
                             for p in list(three.model.parameters()) + three.beside}.values()),
        buffer_bytes=sum({p.untyped_storage()._cdata: p.untyped_storage().nbytes()
                          for p in three.model.buffers()}.values()),
        saved_total_bytes=three.total, saved_per_layer_bytes=three.total - two.total,
        peak_bytes=top[0], peak_phase=top[1], peak_op=phases[top[1]]["op"], phases=phases,
        layer=compact(three, describe.middle(three)[0]), shared_by_layers=compact(three, shared),
        outside=compact(three, out))
    if hasattr(three.config, "image_size"):  # pixels and labels, in place of words
        result["input_bytes"] = 4 * shape["b"] * three.config.num_channels * three.config.image_size ** 2 + 8 * shape["b"]
    if getattr(three.config, "_experts_implementation", None) and family == "mixtral":
        result["experts_implementation"] = three.config._experts_implementation
    return result


def dump(result):
    """JSON with one line per storage."""
    lines = []
    for key, value in result.items():
        if key in ("layer", "shared_by_layers", "outside"):
            inside = ",\n".join("  " + json.dumps(row) for row in value)
            lines.append(f' {json.dumps(key)}: [\n{inside}\n ]' if value else f" {json.dumps(key)}: []")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    folder, wanted = pathlib.Path(sys.argv[1]), sys.argv[2:] or list(families.FAMILIES)
    for name in wanted:
        for setting in describe.settings(name):
            path = folder / f"{name}-{'-'.join(setting)}.json"
            try:
                path.write_text(dump(record(name, *setting)))
            except Exception as e:  # noqa: BLE001
                print(f"{path.name}: {type(e).__name__}: {str(e)[:200]}", flush=True)
