"""One rank's share of FSDP version 1 over models of which a part is frozen, or nothing: steps as whole.py measures them.

LLaVA without its vision part, projector or text; Llama without its ends, or but for the last layers.  What is frozen is so
before the model is wrapped, as transformers' Trainer and accelerate have it.  Both values of use_orig_params, and hybrid
sharding.

usage: frozen.py FOLDER        writes FOLDER/frozen.json, one run a line
"""
import contextlib
import dataclasses

import engines
import step
import torch
import torch.distributed as dist
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp._traversal_utils import _get_fsdp_handles
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers.models.clip.modeling_clip import CLIPEncoderLayer
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

import attention
import whole

LLAMA = {**whole.WORDS, "max_position_embeddings": whole.PLACES}

LAYERS = (CLIPEncoderLayer, LlamaDecoderLayer)
HYBRID = {2: ShardingStrategy._HYBRID_SHARD_ZERO2, 3: ShardingStrategy.HYBRID_SHARD}
UNITS = dict(layers=LAYERS, embedding=(*LAYERS, torch.nn.Embedding))


@dataclasses.dataclass(frozen=True)
class Run(engines.Run):
    engine: str = "fsdp"
    model: str = "llama"
    freeze: str = ""
    layers: int = 0             # that are trained, the last ones; 0: all
    tied: bool = False
    units: str = "layers"
    orig: bool = True           # use_orig_params


def settings_of(run):
    if run.model == "llava":
        return whole.LLAVA
    return {**LLAMA, **(dict(tie_word_embeddings=True) if run.tied else {})}


def freeze(run, model):
    parts = run.freeze.split(",") if run.freeze else []
    if run.model == "llava":
        inner = model.model
        own = dict(vision=[inner.vision_tower], projector=[inner.multi_modal_projector],
                   text=[inner.language_model, model.lm_head])
    else:
        own = dict(embed=[model.model.embed_tokens], norm=[model.model.norm], head=[model.lm_head])
        if run.layers:
            model.model.layers[:-run.layers].requires_grad_(False)
    for part in parts:
        for module in own[part]:
            module.requires_grad_(False)


def shards_of(run, model):
    """By parameter, in the model's order: elements before it in its unit's flat parameter, and those of a shard of that."""
    units = [m for m in model.modules() if isinstance(m, UNITS[run.units])]
    inside = {id(p): unit for unit in units for p in unit.parameters()}
    sizes, places = {}, []
    for p in model.parameters():
        unit = id(inside.get(id(p)))
        places.append((p, unit, sizes.get(unit, 0)))
        sizes[unit] = sizes.get(unit, 0) + p.numel()
    return [(p, at, -(-sizes[unit] // run.gpus)) for p, unit, at in places]


def fullest_rank(run, model):
    """A flat parameter is cut where its shards end, whatever lies there: some ranks have moments of the root, some none.  Of
    those that have most, a loop is fullest on the one with the largest pieces of parameters that follow one another."""
    ranks = run.shard_degree or run.gpus
    run = dataclasses.replace(run, gpus=ranks)

    def fullness(rank):
        trained = most = before = 0
        for p, at, size in shards_of(run, model):
            piece = max(0, min(at + p.numel(), (rank + 1) * size) - max(at, rank * size))
            if p.requires_grad and piece:
                trained, most, before = trained + piece, max(most, 2 * piece + before), piece
        return trained, most if run.optimizer_impl == "loop" and run.orig else 0

    return max(range(ranks), key=fullness)


class Frozen(whole.Whole):
    def engine(self, model, _):
        run = self.run
        dtype = {"bf16-mixed": torch.bfloat16, "fp32": torch.float32}[run.precision]
        mixed = MixedPrecision(param_dtype=dtype, reduce_dtype={"": dtype, "fp32": torch.float32}[run.reduce_dtype])
        more = dict(sharding_strategy=whole.STRATEGY[run.zero])
        if run.shard_degree > 0:
            more = dict(sharding_strategy=HYBRID[run.zero], device_mesh=self.mesh)
        return FullyShardedDataParallel(
            model, **more, mixed_precision=mixed, use_orig_params=run.orig,
            auto_wrap_policy=ModuleWrapPolicy(set(UNITS[run.units])), device_id=torch.device("cuda", 0))

    def accumulates(self, model, index):
        last = index + 1 == self.run.grad_accum
        return model.no_sync() if self.run.grad_sync == "last" and not last else contextlib.nullcontext()

    def micro_batch(self, model, ids, index):
        seen = dict(pixel_values=self.pixels) if self.run.model == "llava" else {}
        with self.accumulates(model, index):
            self.enter("forward", index)
            loss = model(input_ids=ids, labels=ids, use_cache=False, **seen).loss
            self.enter("backward", index)
            (loss / self.run.grad_accum).backward()

    def build(self):
        run = self.run
        self.settings = settings_of(run)
        config = transformers.AutoConfig.for_model(**self.settings)
        attention.install(True)
        kind = transformers.LlavaForConditionalGeneration if run.model == "llava" else transformers.LlamaForCausalLM
        with torch.device("meta"):
            model = kind._from_config(config, dtype=torch.float32, attn_implementation="sdpa")
        freeze(run, model)
        if run.recompute == "full":
            model.gradient_checkpointing_enable(dict(use_reentrant=False, preserve_rng_state=False))
        return model

    def measure(self, count=3):
        run, model = self.run, self.build()
        dist.init_process_group("fake", store=FakeStore(), rank=fullest_rank(run, model), world_size=run.gpus)
        self.mesh = engines.mesh_of(run) if run.shard_degree > 0 else None
        self.tracker = tracker = engines.Local(True)
        with FakeTensorMode(allow_non_fake_inputs=True), step.cuda_switches(), engines.follows(tracker):
            model.to_empty(device="cuda").train()
            model.tie_weights()
            ids = torch.zeros(1, whole.PLACES, dtype=torch.long, device="cuda")
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
            tracker.watch([ids] + ([self.pixels] if run.model == "llava" else []), "ids")
            head.register_forward_hook(lambda *_: self.enter("loss", 0))
            optimizer = step.make_optimizer(run, [p for p in model.parameters() if p.requires_grad])
            first, later = self.follow(model, optimizer, ids, count)
        dist.destroy_process_group()
        return first, later


def setup_of(run):
    more = dict(freeze=run.freeze) if run.freeze else {}
    if run.layers:
        more["freeze_trainable_layers"] = run.layers
    if run.grad_accum > 1:
        more["grad_sync"] = run.grad_sync
    if run.units != "layers":
        more["fsdp_units"] = run.units
    if not run.orig:
        more["use_orig_params"] = False
    if run.shard_degree > 0:
        more["shard_degree"] = run.shard_degree
    return {**whole.setup_of(run), **more}


def record(run):
    ranks = Frozen(run)
    first, later = ranks.measure()
    more = dict(part="all") if run.model == "llava" else {}
    return dict(config=ranks.settings, **more, setup=setup_of(run), parameters=ranks.parameters, weight_bytes=ranks.weights,
                first=first, later=later)


def runs(_):
    plain = dict(precision="bf16-mixed", reduce_dtype="fp32")
    for parts in ("vision", "projector", "vision,projector", "text", "text,projector", "text,vision"):
        yield Run(model="llava", gpus=8, freeze=parts, **plain)
        yield Run(model="llava", gpus=8, freeze=parts, **plain, recompute="full")
    yield Run(model="llava", gpus=64, freeze="vision", precision="bf16-mixed", optimizer_impl="fused", recompute="full")
    for orig in (True, False):
        base = dict(plain, gpus=8, orig=orig)
        for recompute in ("none", "full"):
            yield Run(**base, recompute=recompute)
            yield Run(**base, recompute=recompute, grad_accum=2)
            yield Run(**base, recompute=recompute, grad_accum=2, grad_sync="last")
            yield Run(**base, recompute=recompute, freeze="embed,norm,head")
            yield Run(**base, recompute=recompute, freeze="embed,norm,head", layers=2)
            yield Run(**base, recompute=recompute, freeze="embed,norm,head", layers=2, grad_accum=2)
            yield Run(**base, recompute=recompute, freeze="embed,norm,head", layers=2, grad_accum=2, grad_sync="last")
        yield Run(**base, zero=2, grad_accum=2)
        for degree in (4, 2):
            yield Run(**base, shard_degree=degree)
            yield Run(**base, shard_degree=degree, zero=2, recompute="full")
            yield Run(**base, shard_degree=degree, grad_accum=2)
    for recompute in ("none", "full"):
        base = dict(plain, gpus=8, recompute=recompute)
        for parts in ("embed", "head", "norm", "embed,head"):
            yield Run(**base, freeze=parts)
        yield Run(**base, freeze="embed", layers=2)
        yield Run(**base, freeze="embed", layers=2, zero=2)
        yield Run(**base, freeze="embed,norm,head", layers=2, zero=2)
        yield Run(**base, zero=2)
        yield Run(**base, freeze="embed", layers=2, units="embedding")
        yield Run(**base, freeze="embed", layers=2, tied=True)
        yield Run(**base, freeze="embed", layers=2, grad_accum=2, grad_sync="last")
        yield Run(**base, freeze="embed", grad_accum=2)
    for orig in (True, False):
        base = dict(plain, gpus=8, orig=orig, optimizer_impl="loop")
        yield Run(**base)
        yield Run(**base, zero=2, recompute="full")
        yield Run(**base, freeze="embed,norm,head", layers=2)
        yield Run(**base, tied=True)
        yield Run(**base, shard_degree=2)
        yield Run(**base, units="embedding")
    yield Run(**plain, gpus=8, optimizer_impl="loop", freeze="embed", layers=2)
    yield Run(**plain, gpus=8, optimizer_impl="loop", freeze="head")
    yield Run(model="llava", gpus=8, freeze="vision", optimizer_impl="loop", **plain)
    yield Run(gpus=64, precision="fp32", freeze="embed", layers=2)
    yield Run(gpus=64, precision="bf16-mixed", optimizer_impl="fused", freeze="embed,head", layers=1)


if __name__ == "__main__":
    step.main_of(["frozen"], runs, record, "python tests/oracle/frozen.py tests/golden/oracle/steps")
