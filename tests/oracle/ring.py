"""One rank's share of Accelerate's context parallelism: whole steps of FSDP2 (engines.py), attention by torch's context_parallel.

The sequence is cut over groups of ranks that follow one another, heads and tails of it in pairs; each rank's queries meet
the keys and values of all.  Accelerate's own hooks take the masks away; inputs are as the Trainer hands them on.  Two things
are put right that fake tensors of a CPU build have otherwise: wait_tensor hands its input back, and so does a fake group's
all-to-all of one tensor.

usage: ring.py FOLDER        writes FOLDER/ring.json, one run a line; accelerate==1.15.0
"""
import dataclasses
import sys

import engines  # noqa: F401  (before torch: it loads device.py)
import step
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from accelerate.big_modeling import _attach_context_parallel_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import set_rotate_method

from transformers import masking_utils

import attention
import measure

masking_utils._ignore_causal_mask_sdpa = lambda *_, **__: True  # reads values: what it answers for whole samples
functional = torch.ops._c10d_functional
step.SHAPES["heads"] = dict(b=2, s=2048, h=512, a=8, kv=4, d=64, f=512, v=256, L=4)  # whose attention is the fullest moment


class Local(engines.Local):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is functional.wait_tensor.default:
            return args[0]
        return super().__torch_dispatch__(function, types, args, kwargs)


engines.Local = Local


@dataclasses.dataclass(frozen=True)
class Run(engines.Run):
    precision: str = "bf16-mixed"
    reduce_dtype: str = "fp32"
    cp: int = 4
    cp_comm: str = "all_gather"
    rank: int = 1               # of the sequence's, one that has half the keys in one turn, half the queries in others


class Ranks(engines.Ranks):
    def engine(self, model, mesh):
        attention.cuda_sdpa.__name__ = "scaled_dot_product_attention"  # by which context_parallel replaces it
        set_rotate_method({"all_gather": "allgather", "p2p": "alltoall"}[self.run.cp_comm])
        with unset_fake_temporarily():  # numbers of ranks, which are read
            self.ring = init_device_mesh("cuda", (self.run.gpus // self.run.cp, self.run.cp), mesh_dim_names=("dp", "cp"))["cp"]
        _attach_context_parallel_hooks(model)
        return super().engine(model, mesh)

    def micro_batch(self, model, ids, index):
        b, s = ids.shape
        with self.accumulates(model, index):
            self.enter("forward", index)
            names = ("input_ids", "labels", "shift_labels", "attention_mask", "position_ids")
            batch = {name: torch.ones(b, s, dtype=torch.long, device=ids.device) for name in names}
            with context_parallel(self.ring, buffers=list(batch.values()), buffer_seq_dims=[1] * len(batch),
                                  no_restore_buffers=set(batch.values())):
                with measure.autocast(self.where, False):
                    loss = model(**batch).loss
                del batch
                self.enter("backward", index)
                (loss / self.run.grad_accum).backward()


def setup_of(run):
    return dict(engines.setup_of(run), attention=run.attention, cp=run.cp, cp_comm=run.cp_comm)


def record(run):
    ranks = Ranks(run)
    first, later = ranks.measure()
    print(run, file=sys.stderr, flush=True)
    return dict(config=ranks.settings, setup=setup_of(run), rank=run.rank, parameters=ranks.parameters,
                weight_bytes=ranks.weights, first=first, later=later)


def runs(_):
    for comm in ("all_gather", "p2p"):
        yield Run(shape="wide", cp_comm=comm)
        yield Run(shape="long", cp_comm=comm)
        yield Run(shape="long", cp_comm=comm, recompute="full", grad_accum=2)
        for recompute in ("none", "full"):
            yield Run(shape="heads", cp_comm=comm, recompute=recompute)


if __name__ == "__main__":
    step.main_of(["ring"], runs, record, "python tests/oracle/ring.py tests/golden/oracle/steps")
