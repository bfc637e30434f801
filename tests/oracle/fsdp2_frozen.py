"""One rank's share of FSDP2 over models of which a part is frozen, or that adapters are trained over: as engines.py measures them.

Llama without its embedding, or but for the last layers; Llama in 16 bits under PEFT's adapters.  What is frozen is so before
the model is sharded.

usage: fsdp2_frozen.py FOLDER [fsdp2_frozen] [fsdp2_lora]     writes FOLDER/fsdp2_frozen.json, fsdp2_lora.json, one run a line
"""
import dataclasses

import engines
import step
import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import adapters
import step_lora


@dataclasses.dataclass(frozen=True)
class Run(engines.Run):
    freeze: str = ""
    layers: int = 0             # that are trained, the last ones; 0: all
    units: str = "layers"
    setting: str = ""


def base_of(model):
    return getattr(model, "base_model", model).model if hasattr(model, "peft_config") else model


def freeze(run, model):
    own = dict(embed=model.model.embed_tokens, norm=model.model.norm, head=model.lm_head)
    for part in filter(None, run.freeze.split(",")):
        own[part].requires_grad_(False)
    if run.layers:
        model.model.layers[:-run.layers].requires_grad_(False)


def build(run, where="cuda"):
    """Weights under adapters are in 16 bits.  Checkpoints last: they go around layers that are wrapped already."""
    plain = dataclasses.replace(run, recompute="none", **(dict(precision="bf16") if run.setting else {}))
    model, settings = old_build(plain, where)
    if run.setting:
        model = adapters.wrap(model, step_lora.setting_of(run))
    else:
        freeze(run, model)
    if run.recompute == "full":
        model.gradient_checkpointing_enable(dict(use_reentrant=False, preserve_rng_state=False))
    return model, settings


def materialize(run, model, where):
    step_lora.to_memory(model, where)
    model.train()
    return torch.zeros(step.SHAPES[run.shape]["b"], step.SHAPES[run.shape]["s"], dtype=torch.long, device=where)


class Ranks(engines.Ranks):
    def engine(self, model, mesh):
        run = self.run
        dtype = {"bf16-mixed": torch.bfloat16, "fp32": None, "bf16": None}[run.precision]
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype={"": None, "fp32": torch.float32}[run.reduce_dtype])
        more = dict(mesh=mesh, mp_policy=policy, **({} if run.zero == 3 else dict(reshard_after_forward=False)))
        base = base_of(model)
        for layer in base.model.layers:
            fully_shard(layer, **more)
        if run.units == "ends":
            fully_shard(base.get_input_embeddings(), **more)
            fully_shard([base.model.norm, base.get_output_embeddings()], **dict(more, reshard_after_forward=False))
        return fully_shard(model, **more)


def setup_of(run):
    more = dict(freeze=run.freeze) if run.freeze else {}
    if run.layers:
        more["freeze_trainable_layers"] = run.layers
    if run.units != "layers":
        more["fsdp_units"] = run.units
    if run.setting:
        more.update(step_lora.setup_of(run))
    return {**more, **engines.setup_of(run)}


def record(run):
    ranks = Ranks(run)
    first, later = ranks.measure()
    return dict(config=ranks.settings, setup=setup_of(run), parameters=ranks.parameters, weight_bytes=ranks.weights,
                first=first, later=later)


def frozen():
    for shape in step.SHAPES:
        plain = dict(shape=shape, precision="bf16-mixed", reduce_dtype="fp32")
        for recompute in ("none", "full"):
            base = dict(plain, recompute=recompute)
            for parts in ("embed", "head", "embed,head", "embed,norm,head"):
                yield Run(**base, freeze=parts)
            for parts, layers in (("embed", 2), ("embed", 1), ("embed,norm,head", 2)):
                yield Run(**base, freeze=parts, layers=layers)
            yield Run(**base, freeze="embed", layers=2, zero=2)
            yield Run(**base, freeze="embed", layers=2, units="ends")
            for sync in ("each", "last"):
                yield Run(**base, freeze="embed", layers=2, grad_accum=2, grad_sync=sync)
        yield Run(shape=shape, precision="fp32", freeze="embed", layers=2)
        yield Run(shape=shape, precision="bf16", optimizer_impl="fused", freeze="embed,head", layers=1, gpus=64)


def lora():
    for shape in step.SHAPES:
        plain = dict(shape=shape, precision="bf16-mixed", reduce_dtype="fp32")
        for setting in ("qv-fp32", "all-fp32", "all-fp32-dropout"):
            yield Run(**plain, setting=setting)
            yield Run(**plain, setting=setting, recompute="full")
        yield Run(**plain, setting="all-fp32", zero=2)
        yield Run(**plain, setting="all-fp32", grad_accum=2)
        yield Run(**plain, setting="all-fp32", units="ends")
        yield Run(shape=shape, precision="bf16", setting="qv-bf16", optimizer_impl="fused")


def runs(name):
    return frozen() if name == "fsdp2_frozen" else lora()


torch.accelerator.current_stream = engines.Idle  # an all-gather that no one waits for
old_build, old_optimizer = step.build, step.make_optimizer
step.build, step.materialize = build, materialize
step.make_optimizer = lambda run, parameters: old_optimizer(run, [p for p in parameters if p.requires_grad])

if __name__ == "__main__":
    step.main_of(["fsdp2_frozen", "fsdp2_lora"], runs, record, "python tests/oracle/fsdp2_frozen.py tests/golden/oracle/steps")
