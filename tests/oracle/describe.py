"""Writes, for every family, one layer as the ordered list of autograd operations with what each saves, and the formula.

usage: describe.py FOLDER [family ...]   (writes FOLDER/<family>.md)
"""
import pathlib
import re
import sys

import device  # noqa: F401
import families
import measure
import symbolic

VIEWS = {"View", "UnsafeView", "Transpose", "T", "Slice", "Split", "SplitWithSizes", "Unsqueeze", "Squeeze", "Expand",
         "Permute", "Select", "Alias", "Unbind", "ReshapeAlias", "AsStrided", "Chunk"}
LAYER = re.compile(r"^(.*?\b(?:layers|layer|h|blocks)\.)(\d+)(?:\.(.*))?$")


def layer_of(module):
    m = LAYER.match(module)
    return (int(m.group(2)), m.group(3) or "") if m else (None, module)


def middle(run, layer=1):
    """Storages whose first saver is in the given layer, and its operations."""
    keys = [k for k, v in run.storages.items() if layer_of(v["savers"][0][2])[0] == layer]
    return keys, [o for o in run.operations if layer_of(o["module"])[0] == layer]


def outside(run):
    keys = [k for k, v in run.storages.items() if layer_of(v["savers"][0][2])[0] is None]
    shared = [k for k, v in run.storages.items()
              if layer_of(v["savers"][0][2])[0] == 0 and any(layer_of(s[2])[0] not in (0, None) for s in v["savers"])]
    return shared, keys


def fit_list(family, runs, key_lists, environments):
    names, terms, bad = {}, {}, []
    for i, key in enumerate(key_lists[0]):
        sizes = [r.storages[ks[i]]["bytes"] for r, ks in zip(runs, key_lists)]
        entry = runs[0].storages[key]
        c = environments[0]
        shape = entry["shape"]
        heads = c["d"] in shape and (c["a"] in shape or c["kv"] in shape or c["a"] * c["b"] in shape)
        found = symbolic.fit(sizes, environments, heads, family.split("-")[0] in ("gptj", "gpt_neox", "stablelm"))
        if found is None:
            bad.append((entry["savers"][0], shape, sizes))
            names[key] = f"?{sizes}"
            continue
        factor, name = found
        terms[name] = terms.get(name, 0) + factor
        names[key] = f"{factor}{name}" if name else str(factor)
    return names, terms, bad


def operations_text(operations, names):
    lines, current, order = [], None, {}
    for o in operations:
        place = layer_of(o["module"])[1] or "(layer)"
        if place != current:
            current = place
            lines.append([place, []])
        if o["op"] in VIEWS and not o["saved"]:
            word = o["op"].lower()
            if lines[-1][1] and lines[-1][1][-1].startswith("~"):
                lines[-1][1][-1] += "," + word
            else:
                lines[-1][1].append("~" + word)
            continue
        saved = []
        for attribute, key, t in o["saved"]:
            if key in order:
                saved.append(f"{attribute}=#{order[key]}")
            else:
                order[key] = len(order) + 1
                size = names.get(key, "shared")
                saved.append(f"{attribute}=#{order[key]} {size} {str(t.dtype).removeprefix('torch.')}")
        word = re.sub(r"(?<!^)(?=[A-Z][a-z])", "_", o["op"]).lower()
        lines[-1][1].append(word + (f"[{'; '.join(saved)}]" if saved else ""))
    return "\n".join(f"    {place}: " + " > ".join(ops) for place, ops in lines)


def merge_heads(run):
    """Per-head norms (stablelm's qk_layernorm) become one storage per kind, so that the number is the same at all sizes."""
    merged, where = {}, {}
    for key, entry in run.storages.items():
        layer = layer_of(entry["savers"][0][2])[0]
        first = entry["savers"][0]
        kind = (layer, first[0], first[1], re.sub(r"norms\.\d+", "norms.*", first[2])) if "norms." in first[2] else key
        where[key] = kind
        if kind in merged:
            merged[kind]["bytes"] += entry["bytes"]
        else:
            merged[kind] = dict(entry)
    run.storages = merged
    for operation in run.operations:
        operation["module"] = re.sub(r"norms\.\d+", "norms.*", operation["module"])
        operation["saved"] = [(a, where[k], t) for a, k, t in operation["saved"]]
    folded = []
    for operation in run.operations:
        if not (folded and "norms.*" in operation["module"] and folded[-1]["module"] == operation["module"]
                and folded[-1]["op"] == operation["op"]):
            folded.append(operation)
    run.operations = folded


def study(family, dtype, attn, dropout, experts="grouped_mm", multiple16=False):
    shapes, check = symbolic.shapes_for(family)
    if multiple16:
        shapes = [dict(c, s=s) for c, s in zip(shapes, (48, 32, 16, 48))]
    runs = [measure.Run(family, shape, dtype, attn, dropout, experts=experts) for shape in shapes]
    environments = [symbolic.symbols(family, shape) for shape in shapes]
    if "qknorm" in family and "stablelm" in family:
        for run in runs:
            merge_heads(run)
    lists = [middle(r)[0] for r in runs]
    if len({len(x) for x in lists}) != 1:
        raise RuntimeError(f"different numbers of storages: {[len(x) for x in lists]}")
    names, terms, bad = fit_list(family, runs, lists, environments)
    shared = [outside(r)[0] for r in runs]
    shared_names, shared_terms, more = fit_list(family, runs, shared, environments)
    out = [outside(r)[1] for r in runs]
    out_names, out_terms, worse = fit_list(family, runs, out, environments)
    equal = []
    for shape, three in zip(shapes + [check], runs + [None]):
        three = three or measure.Run(family, shape, dtype, attn, dropout, experts=experts)
        two = measure.Run(family, shape, dtype, attn, dropout, layers=2, experts=experts)
        c = symbolic.symbols(family, shape)
        total = (3 * symbolic.evaluate(terms, c) + symbolic.evaluate(shared_terms, c)
                 + symbolic.evaluate(out_terms, c))
        equal.append((three.total - two.total - symbolic.evaluate(terms, c), three.total - total))
    names.update(shared_names)
    names.update(out_names)
    return dict(run=runs[0], names=names, terms=terms, shared=shared_terms, outside=out_terms, bad=bad + more + worse,
                equal=equal, operations=middle(runs[0])[1], sdpa=runs[0].sdpa)


def supports(family, attn):
    return attn == "eager" or family.split("-")[0] not in {
        "sdpa": {"gpt_neo", "gptj", "bloom", "mpt", "gemma2", "mamba", "mamba2"},
        "flash": {"bloom", "mpt", "mamba", "mamba2"}}[attn]


def settings(family):
    config, _ = measure.make_config(family, families.SHAPES["small"])
    drops = ["default"] + (["0"] if any(v for k, v in families.dropout_fields(config).items()
                                        if k not in ("classifier_dropout",)) else [])
    for dtype in ("bf16", "fp32", "autocast"):
        for attn in ("eager", "sdpa", "flash"):
            if supports(family, attn):
                for drop in drops:
                    if family in families.FEW and (attn != "sdpa" or drop == "0"):
                        continue
                    yield dtype, attn, drop


def describe(family, write):
    config, _ = measure.make_config(family, families.SHAPES["small"])
    write(f"## {family}\n")
    write(f"default dropouts: {families.dropout_fields(config)}\n")
    studies = {}
    for setting in settings(family):
        try:
            studies[setting] = study(family, *setting)
            if "abs*up16(s)" in studies[setting]["terms"]:  # a mask whose rows are not aligned is copied and kept
                studies[setting]["equal"].pop()
                studies[setting]["note"] = " for s not a multiple of 16"
                studies[(*setting, "s%16==0")] = study(family, *setting, multiple16=True)
        except Exception as e:  # noqa: BLE001
            write(f"- {'/'.join(setting)}: FAILED {type(e).__name__}: {str(e)[:300]}")
    for setting, result in studies.items():
        checked = all(d == (0, 0) for d in result["equal"]) and not result["bad"]
        write(f"- **{'/'.join(setting)}**{' (kernel ' + ','.join(result['sdpa']) + ')' if result['sdpa'] else ''}: layer = "
              f"`{symbolic.text(result['terms'])}`; shared by all layers `{symbolic.text(result['shared'])}`; outside "
              f"`{symbolic.text(result['outside'])}` — "
              + (f"equal to the byte at {len(result['equal'])} shapes{result.get('note', '')}" if checked else
                 f"NOT EXACT {result['equal']} {result['bad'][:3]}"))
    listed = [s for s in studies if s[2] == "default" and s[:2] in (("bf16", "eager"), ("bf16", "sdpa"), ("bf16", "flash"),
                                                                    ("autocast", "eager"))]
    for setting in listed:
        result = studies[setting]
        write(f"\n  operations of a middle layer, {'/'.join(setting)}:\n")
        write(operations_text(result["operations"], result["names"]))
    first = studies.get(("bf16", "eager", "default"))
    if first:
        write("\n  operations outside the layers, bf16/eager/default:\n")
        write(operations_text([o for o in first["run"].operations if layer_of(o["module"])[0] is None],
                              first["names"]))
    write("")


if __name__ == "__main__":
    folder, wanted = pathlib.Path(sys.argv[1]), sys.argv[2:] or list(families.FAMILIES)
    for name in wanted:
        with open(folder / f"{name}.md", "w") as out:
            describe(name, lambda line: (out.write(line + "\n"), out.flush()))
