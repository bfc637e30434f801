"""megatron_lora.py's adapters in layers with experts and with latent attention, by megatron_moe.py's stand-ins.

usage: PYTHONPATH=MEGATRON:BRIDGE megatron_lora_moe.py FOLDER      writes FOLDER/megatron_lora_moe.json, a run a line
"""
import dataclasses
import json
import pathlib
import sys

import megatron_moe as moe
import megatron_lora as lora
import step
import torch

dense = moe.dense


ALL = tuple(lora.WORDS)


@dataclasses.dataclass(frozen=True)
class Run(moe.Run):
    rank: int = 16
    targets: tuple = ("linear_qkv", "linear_proj")
    dropout: float = 0.0


dense_setup = moe.setup_of


def setup_of(run):
    words = dict(dense_setup(run), lora_rank=run.rank, lora_targets=lora.words_of(run))
    if run.dropout:
        words["lora_dropout"] = run.dropout
    return words


moe.setup_of = setup_of


def runs():
    for dispatcher in ("alltoall", "allgather"):
        base = dict(dispatcher=dispatcher)
        two = dict(base, ep=2, copies=2)
        yield Run(**two)
        yield Run(**base, tp=2, sequence=True, ep=2, copies=2, shape="wide")
        yield Run(**two, recompute="full", shape="short")
        yield Run(**two, modules="moe")
        yield Run(**two, aux="aux_loss", fp32=True, dropout=0.1)
        yield Run(**two, targets=ALL)
        yield Run(**base, ep=4, copies=4, targets=ALL[2:], dropout=0.1)
        yield Run(**base, ep=4, copies=4, shape="one", targets=ALL[3:])
        yield Run(**base, tp=2, sequence=True, ep=2, copies=2, shape="wide", targets=ALL)
        yield Run(**base, tp=2, sequence=True, ep=2, copies=2, targets=ALL, dropout=0.1)
        yield Run(**two, recompute="full", shape="short", targets=ALL)
        yield Run(**two, modules="moe", targets=ALL)
        yield Run(**two, zero=1, targets=ALL, grad_accum=2)
    for tp, sequence in ((1, False), (2, True)):
        base = dict(latent=True, experts=False, tp=tp, sequence=sequence, targets=ALL[1:])
        yield Run(**base)
        yield Run(**base, q_rank=128, dropout=0.0 if sequence else 0.1)  # linears gather after it here, Transformer Engine before
    yield Run(latent=True, q_rank=128, ep=2, copies=2, targets=ALL[1:])


COMMAND = "PYTHONPATH=MEGATRON:BRIDGE python tests/oracle/megatron_lora_moe.py tests/golden/oracle/steps"


def main(folder):
    head, rows = dict(torch=torch.__version__, megatron_core=dense.CORE, megatron_bridge=lora.BRIDGE, command=COMMAND), []
    for run in runs():
        rows.append(moe.record(run))
        (folder / "megatron_lora_moe.json").write_text(step.dump(head, rows))


if __name__ == "__main__":
    if sys.argv[1] == "show":
        print(json.dumps(moe.record(Run(**eval("dict(" + sys.argv[2] + ")")))))
    else:
        main(pathlib.Path(sys.argv[1]))
