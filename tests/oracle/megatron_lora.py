"""Adapters in Megatron-core's layers, as Megatron-Bridge has them: whole steps, and what autograd keeps, at tp 1, 2 and 4.

Everything beneath is megatron_tp.py's.  The adapters, what they freeze and how checkpoints get an input with a gradient are
Megatron-Bridge's own: src/megatron/bridge/peft and src/megatron/bridge/utils of the commit below, without their __init__.py,
in a folder megatron/bridge outside of this repository.  Transformer Engine, which it imports for linears that are not used
here, is an empty module.

usage: PYTHONPATH=MEGATRON:BRIDGE megatron_lora.py FOLDER      writes FOLDER/megatron_lora.json, a run a line
"""
import dataclasses
import json
import pathlib
import sys
import types

import megatron_tp as dense
import step
import torch

BRIDGE = "067f987df"


def stub(name, **what):
    module = sys.modules[name] = types.ModuleType(name)
    vars(module).update(what)
    return module


stub("megatron.bridge.utils.common_utils", print_rank_0=lambda *_: None)
from megatron.bridge.peft import utils  # noqa: E402

utils.HAVE_TE = False  # Megatron-core has classes of these names without it, too
utils.ParallelLinearAdapter.bfloat16 = lambda adapter: adapter  # its linears are, by the configuration
te = stub("transformer_engine.pytorch", ops=types.SimpleNamespace(Sequential=object))
stub("transformer_engine", pytorch=te)
from megatron.bridge.peft.lora import LoRA  # noqa: E402

WORDS = dict(linear_qkv="q,k,v", linear_proj="o", linear_fc1="gate,up", linear_fc2="down")


@dataclasses.dataclass(frozen=True)
class Run(dense.Run):
    rank: int = 16
    targets: tuple = tuple(WORDS)
    dropout: float = 0.0


def adapt(run, model):
    LoRA(target_modules=list(run.targets), dim=run.rank, alpha=2 * run.rank, dropout=run.dropout)(model, training=True)


def words_of(run):
    if len(run.targets) == len(WORDS):
        return "all-linear"
    return ",".join(w if run.gated else w.replace("gate,", "") for w in (WORDS[t] for t in run.targets))


def setup_of(run):
    words = dict(dense.setup_of(run), lora_rank=run.rank, lora_targets=words_of(run))
    if run.dropout:
        words["lora_dropout"] = run.dropout
    return words


def record(run):
    core = dense.Core(run)
    first, later = core.measure()
    print(run, file=sys.stderr, flush=True)
    return dict(config=core.settings, setup=setup_of(run), parameters=core.parameters, weight_bytes=core.weights,
                kept_bytes=sum(r[0] for r in core.kept.values()), first=first, later=later), core.kept


def runs():
    for tp, sequence in dense.LAYOUTS:
        base = dict(tp=tp, sequence=sequence)
        yield Run(**base)
        yield Run(**base, dropout=0.1)
        yield Run(**base, gated=False, tied=True)
        yield Run(**base, shape="grouped", tied=True)
        yield Run(**base, shape="long", grad_accum=2, rank=64)
        yield Run(**base, shape="long", targets=("linear_qkv",))
        yield Run(**base, shape="grouped", targets=("linear_qkv", "linear_proj"), dropout=0.1)
        yield Run(**base, shape="long", targets=("linear_fc1", "linear_fc2"))
        yield Run(**base, shape="grouped", targets=("linear_fc2",))
        yield Run(**base, shape="long", precision="fp32")
        for shape in ("long", "grouped"):
            yield Run(**base, shape=shape, recompute="selective")
            yield Run(**base, shape=shape, recompute="full")
        yield Run(**base, shape="long", recompute="full", dropout=0.1, grad_accum=2)
        if tp > 1:
            yield Run(**base, shape="long", copies=2, zero=1)


dense.ADAPT.append(adapt)
COMMAND = "PYTHONPATH=MEGATRON:BRIDGE python tests/oracle/megatron_lora.py tests/golden/oracle/steps"


def main(folder):
    head, rows = dict(torch=torch.__version__, megatron_core=dense.CORE, megatron_bridge=BRIDGE, command=COMMAND), []
    for run in runs():
        rows.append(record(run)[0])
        (folder / "megatron_lora.json").write_text(step.dump(head, rows))


if __name__ == "__main__":
    if sys.argv[1] == "show":  # what one run keeps
        row, kept = record(Run(**eval("dict(" + sys.argv[2] + ")")))
        for r in kept.values():
            print(r)
        print(json.dumps(row))
    else:
        main(pathlib.Path(sys.argv[1]))
