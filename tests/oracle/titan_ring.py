"""One rank's share of torchtitan's Llama under context parallelism, over FSDP2 and with tensor parallelism: whole steps as
tensor_parallel.py has them.

torchtitan's own hooks make DTensors of what goes into attention (apply_cp_to_attention_module); heads and tails of the
sequence are dealt out before a micro-batch (prepare_context_parallel_input).  Its trainer hands context_parallel_rotate_method
to nobody in 0.2.2, so that alltoall here is torch's own switch.  Two things are put right beside tensor_parallel.py's: the
kernel is the one that CUDA would take (device.py's guard), and a fake group's all-to-all of one tensor hands on a new one.

usage: PYTHONPATH=TORCHTITAN titan_ring.py FOLDER        writes FOLDER/titan_ring.json, a run a line
"""
import dataclasses
import pathlib
import sys

import tensor_parallel as tp
import step
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.tensor.experimental._attention import set_rotate_method

from torchtitan.components.loss import cross_entropy_loss
from torchtitan.distributed.context_parallel import prepare_context_parallel_input

tp.SHAPES["heads"] = dict(b=2, s=2048, h=512, a=8, kv=4, f=512, v=256, L=4)  # whose attention is the fullest moment



@dataclasses.dataclass(frozen=True)
class Run(tp.Run):
    tp: int = 1
    cp: int = 4
    cp_comm: str = "all_gather"
    rank: int = 1               # of the sequence's, one that has half the keys in one turn, half the queries in others


class Titan(tp.Titan):
    def measure(self, count=3):
        set_rotate_method({"all_gather": "allgather", "p2p": "alltoall"}[self.run.cp_comm])
        return super().measure(count)

    def micro_batch(self, model, ids, index):
        self.enter("forward", index)
        with self.context():
            with unset_fake_temporarily():
                ring = self.dims.get_mesh("cp")
            inputs, labels, more = prepare_context_parallel_input(ids, ids, {}, ring, ids.device)
            pred = model(inputs, **more)
            loss = cross_entropy_loss(pred, labels) / self.run.grad_accum
            del pred
            self.enter("backward", index)
            loss.backward()


def setup_of(run):
    """FSDP's shards are those of the ring too."""
    made = tp.setup_of(run)
    return dict(made, engine="fsdp2", fsdp_units="ends", reduce_dtype="fp32", gpus=run.cp * made["gpus"], cp=run.cp,
                cp_comm=run.cp_comm)


def record(run):
    titan = Titan(run)
    first, later = titan.measure()
    print(run, file=sys.stderr, flush=True)
    return dict(config=titan.settings, setup=setup_of(run), rank=run.rank, parameters=titan.parameters,
                weight_bytes=titan.weights, first=first, later=later)


def runs():
    for comm in ("all_gather", "p2p"):
        for shape in ("wide", "long", "heads"):
            yield Run(shape=shape, cp_comm=comm)
        for recompute in ("full", "ops"):
            yield Run(shape="heads", cp_comm=comm, recompute=recompute)
        yield Run(shape="long", cp_comm=comm, shards=2, recompute="full", grad_accum=2)
        yield Run(shape="heads", cp_comm=comm, cp=8, shards=2)
        yield Run(shape="heads", cp_comm=comm, cp=2, tp=2, rank=0)  # the last rank joins no halves, and of two is the other
        yield Run(shape="long", cp_comm=comm, cp=4, tp=2, rank=2, recompute="full")


COMMAND = "PYTHONPATH=TORCHTITAN python tests/oracle/titan_ring.py tests/golden/oracle/steps"

if __name__ == "__main__":
    path = pathlib.Path(sys.argv[1]) / "titan_ring.json"
    path.write_text(step.dump(tp.head(COMMAND), [record(run) for run in runs()]))
