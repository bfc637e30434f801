"""One rank's share of Ulysses: whole steps of FSDP2 (engines.py), attention by DeepSpeed's UlyssesSPAttentionHF.

The sequence is cut over groups of ranks that follow one another; around attention heads are exchanged for tokens.  The
process group only pretends: an all-to-all is an empty tensor.  Inputs are as Accelerate and the Trainer hand them on: a
shard of the ids, positions and shifted labels.

usage: DS_ACCELERATOR=cpu ulysses.py FOLDER        writes FOLDER/ulysses.json, one run a line; deepspeed==0.19.8
"""
import dataclasses
import sys

import engines  # noqa: F401  (before torch: it loads device.py)
import step
import torch
import torch.distributed as dist
from transformers import modeling_flash_attention_utils, modeling_utils

import deepspeed
import deepspeed.comm
from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF

import measure

ATTENTION = modeling_utils.ALL_ATTENTION_FUNCTIONS
NAMES = {"flash": "flash_attention_2", "sdpa": "sdpa"}
PLAIN = {name: ATTENTION[name] for name in NAMES.values()}


@dataclasses.dataclass(frozen=True)
class Run(engines.Run):
    precision: str = "bf16-mixed"
    reduce_dtype: str = "fp32"
    cp: int = 2


def listed(outputs, x, group=None):
    """deepspeed.comm.all_gather wants a backend's own; the positions are all that comes here."""
    return None


class Ranks(engines.Ranks):
    def measure(self, count=3):
        """Attention is wrapped once the group is there, as register_with_transformers does it."""
        def engine(model, mesh):
            deepspeed.comm.init_distributed("fake", verbose=False, auto_mpi_discovery=False)
            config = model.config
            wrapped = UlyssesSPAttentionHF(
                attn=PLAIN[NAMES[self.run.attention]], batch_size=step.shape_of(self.run)["b"],
                attn_head_count=config.num_attention_heads, attn_head_size=config.head_dim,
                kv_head_count=config.num_key_value_heads, num_hidden_layers=config.num_hidden_layers,
                process_group=dist.new_group(list(range(self.run.cp))), seq_length_is_variable=True)

            def attention(module, query, key, value, mask, *args, **more):
                return wrapped(module, query, key, value, None, *args, **more)

            ATTENTION[NAMES[self.run.attention]] = attention
            return engines.Ranks.engine(self, model, mesh)
        self.engine = engine
        try:
            return super().measure(count)
        finally:
            ATTENTION[NAMES[self.run.attention]] = PLAIN[NAMES[self.run.attention]]
            deepspeed.comm.comm.cdb = None

    def micro_batch(self, model, ids, index):
        with self.accumulates(model, index):
            self.enter("forward", index)
            with measure.autocast(self.where, False):
                loss = model(input_ids=self.shard["ids"], position_ids=self.shard["positions"],
                             labels=self.shard["labels"], shift_labels=self.shard["labels"]).loss
            self.enter("backward", index)
            (loss / self.run.grad_accum).backward()

    def step(self, model, optimizer, ids):
        if not hasattr(self, "shard"):
            b, s = ids.shape
            self.shard = {name: torch.zeros(b, s // self.run.cp, dtype=torch.long, device=ids.device)
                          for name in ("ids", "positions", "labels")}
            ids.untyped_storage().resize_(0)
        super().step(model, optimizer, ids)


def setup_of(run):
    return dict(engines.setup_of(run), attention=run.attention, cp=run.cp, cp_comm="a2a")


def record(run):
    ranks = Ranks(run)
    first, later = ranks.measure()
    print(run, file=sys.stderr, flush=True)
    return dict(config=ranks.settings, setup=setup_of(run), parameters=ranks.parameters, weight_bytes=ranks.weights,
                first=first, later=later)


def runs(_):
    for attention in ("sdpa", "flash"):
        for shape in ("wide", "long"):
            base = dict(shape=shape, attention=attention)
            yield Run(**base)
            yield Run(**base, cp=4)
            yield Run(**base, recompute="full")
        yield Run(shape="wide", attention=attention, cp=8, gpus=16)
        yield Run(shape="long", attention=attention, precision="bf16", optimizer_impl="fused", grad_accum=2)


modeling_flash_attention_utils._is_packed_sequence = lambda *_, **__: False  # reads values: what it answers for whole samples

if __name__ == "__main__":
    step.main_of(["ulysses"], runs, record, "DS_ACCELERATOR=cpu python tests/oracle/ulysses.py tests/golden/oracle/steps")
