"""One rank's share of FSDP version 1 over a whole LLaVA: steps as engines.py measures them, with use_orig_params=True.

Each layer of either stack is a unit (transformer_auto_wrap_policy), the root has the rest: patches, projector, words, norm
and head.  Whether a unit is cut already is a question of addresses, which fake tensors do not have: of storages here.

usage: whole.py FOLDER        writes FOLDER/whole.json, one run a line
"""
import contextlib
import dataclasses
import functools
import json

import engines
import step
import torch
import torch.distributed as dist
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.fsdp import _flat_param, _runtime_utils, FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp._traversal_utils import _get_fsdp_handles
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers.models.clip.modeling_clip import CLIPEncoderLayer
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from transformers.models.llava import modeling_llava

import attention

modeling_llava.torch_compilable_check = lambda *_: None
torch.cuda.is_available = lambda: True  # asked before a first forward
torch.Tensor.record_stream = lambda *_: None


def reshard_what_is_whole(state):
    """torch's _catch_all_reshard: what backward left whole is cut at its end."""
    handle = state._handle
    if not handle:
        return
    flat = handle.flat_param
    if flat.untyped_storage()._cdata != flat._local_shard.untyped_storage()._cdata or handle._skipped_use_sharded_views:
        _runtime_utils._reshard(state, handle, _runtime_utils._should_free_in_backward(state, handle))


_runtime_utils._catch_all_reshard = reshard_what_is_whole
_flat_param._same_storage = lambda a, b: a.untyped_storage()._cdata == b.untyped_storage()._cdata
_flat_param._data_ptr_allocated = lambda tensor: tensor.untyped_storage().nbytes() > 0
STRATEGY = {2: ShardingStrategy.SHARD_GRAD_OP, 3: ShardingStrategy.FULL_SHARD}
WORDS = dict(model_type="llama", hidden_size=512, num_attention_heads=8, num_key_value_heads=4, head_dim=64,
             intermediate_size=1408, vocab_size=4096, num_hidden_layers=4, max_position_embeddings=256)
EYE = dict(model_type="clip_vision_model", hidden_size=512, num_attention_heads=8, intermediate_size=1024,
           num_hidden_layers=4, image_size=112, patch_size=8, num_channels=3)
LLAVA = dict(model_type="llava", image_token_index=1200, text_config=WORDS, vision_config=EYE)
PLACES = 256


@dataclasses.dataclass(frozen=True)
class Run(engines.Run):
    engine: str = "fsdp"


class Whole(engines.Ranks):
    def __init__(self, run):
        step.Steps.__init__(self, run, "cuda")

    def engine(self, model, _):
        run = self.run
        dtype = {"bf16-mixed": torch.bfloat16, "fp32": torch.float32}[run.precision]
        mixed = MixedPrecision(param_dtype=dtype, reduce_dtype={"": dtype, "fp32": torch.float32}[run.reduce_dtype])
        return FullyShardedDataParallel(
            model, sharding_strategy=STRATEGY[run.zero], mixed_precision=mixed, use_orig_params=True,
            auto_wrap_policy=ModuleWrapPolicy({CLIPEncoderLayer, LlamaDecoderLayer}), device_id=torch.device("cuda", 0))

    def accumulates(self, model, index):
        return contextlib.nullcontext()

    def micro_batch(self, model, ids, index):
        self.enter("forward", index)
        loss = model(input_ids=ids, labels=ids, pixel_values=self.pixels, use_cache=False).loss
        self.enter("backward", index)
        (loss / self.run.grad_accum).backward()

    def build(self):
        config = transformers.AutoConfig.for_model(**json.loads(json.dumps(LLAVA)))
        attention.install(True)
        with torch.device("meta"):
            model = transformers.LlavaForConditionalGeneration._from_config(config, dtype=torch.float32,
                                                                            attn_implementation="sdpa")
        if self.run.recompute == "full":
            model.gradient_checkpointing_enable(dict(use_reentrant=False, preserve_rng_state=False))
        return model

    def measure(self, count=3):
        run, model = self.run, self.build()
        self.settings = LLAVA
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=run.gpus)
        self.tracker = tracker = engines.Local(True)
        with FakeTensorMode(allow_non_fake_inputs=True), step.cuda_switches(), engines.follows(tracker):
            model.to_empty(device="cuda").train()
            model.tie_weights()
            ids = torch.zeros(1, PLACES, dtype=torch.long, device="cuda")
            self.pixels = torch.zeros(1, 3, 112, 112, device="cuda")
            self.parameters = sum(p.numel() for p in model.parameters())
            head = model.get_output_embeddings()
            with tracker:
                self.enter("init", 0)
                model = self.engine(model, None)
            self.order.clear()
            tracker.watch([h.flat_param.data for h in _get_fsdp_handles(model)] + list(model.buffers()), "weights")
            tracker.poll()
            self.weights = tracker.now
            tracker.watch([ids, self.pixels], "ids")
            head.register_forward_hook(lambda *_: self.enter("loss", 0))
            optimizer = step.make_optimizer(run, model.parameters())
            first, later = self.follow(model, optimizer, ids, count)
        dist.destroy_process_group()
        return first, later


def setup_of(run):
    more = dict(reduce_dtype=run.reduce_dtype) if run.reduce_dtype else {}
    return {**step.setup_of(run), "framework": "fsdp", "engine": "fsdp", "gpus": run.gpus, "zero": run.zero,
            "micro_batch": 1, "seq_len": PLACES, **more}


def record(run):
    ranks = Whole(run)
    first, later = ranks.measure()
    return dict(config=LLAVA, part="all", setup=setup_of(run), parameters=ranks.parameters, weight_bytes=ranks.weights,
                first=first, later=later)


def runs(_):
    for gpus in (8, 64):
        yield Run(gpus=gpus, precision="bf16-mixed", reduce_dtype="fp32")
        yield Run(gpus=gpus, precision="bf16-mixed", reduce_dtype="fp32", recompute="full")
        yield Run(gpus=gpus, precision="bf16-mixed", optimizer_impl="fused", recompute="full")
        yield Run(gpus=gpus, precision="bf16-mixed", optimizer_impl="fused")


if __name__ == "__main__":
    step.main_of(["whole"], runs, record, "python tests/oracle/whole.py tests/golden/oracle/steps")
