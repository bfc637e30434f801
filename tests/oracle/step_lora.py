"""Whole training steps with adapters: what step.py does, of a model that adapters.py has wrapped; checkpoints and optimizer.

usage: step_lora.py FOLDER [lora] [prefix] [tied]     writes FOLDER/lora.json, FOLDER/prefix.json: PEFT's prefix tuning, and
                                                      FOLDER/tied.json: ends trained of a model whose head is the words' table
"""
import dataclasses

import device  # noqa: F401  (before torch)
import torch

import adapters
import measure
import step

TARGET = dict(q_proj="q", v_proj="v")
FULL = dict(embed_tokens="embed", lm_head="head")


@dataclasses.dataclass(frozen=True)
class Run(step.Run):
    setting: str = "all-fp32"


def setting_of(run):
    return (adapters.SETTINGS | adapters.TIED | adapters.OTHERS)[run.setting]


def build(run, where="cuda"):
    """Checkpoints last: they go around layers that are wrapped already."""
    plain = dataclasses.replace(run, recompute="none", precision="bf16")
    model, settings = old_build(plain, where)
    if run.setting in adapters.TIED:
        settings = dict(settings, tie_word_embeddings=True)
        model.config.tie_word_embeddings = True
        model.tie_weights()
    model = adapters.wrap(model, setting_of(run))
    if run.recompute == "full":
        model.gradient_checkpointing_enable(dict(use_reentrant=run.recompute_reentrant, preserve_rng_state=False))
    return model, settings


def to_memory(model, where):
    """to_empty(), after which what was one parameter is one again: PEFT's copies are apart from what they copied."""
    places = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        places.setdefault(id(p), []).append(name)
    model.to_empty(device=where)
    for first, *others in places.values():
        for name in others:
            module, _, last = name.rpartition(".")
            setattr(model.get_submodule(module), last, model.get_parameter(first))


class Steps(step.Steps):
    def measure(self, count=3):
        """As step.py, but that only adapters go to the optimizer, and scales of 4-bit weights come with them."""
        def materialize(run, model, where):
            to_memory(model, where)
            setting = setting_of(run)
            self.beside = adapters.quantise(model, setting, where) if setting["base"] != "bf16" else []
            for i, t in enumerate(self.beside):
                model.register_buffer(f"scale{i}", t, persistent=False)
            model.train()
            c = step.SHAPES[run.shape]
            return torch.zeros(c["b"], c["s"], dtype=torch.long, device=where)

        def make_optimizer(run, parameters):
            return old_optimizer(run, [p for p in parameters if p.requires_grad])
        step.materialize, step.make_optimizer = materialize, make_optimizer
        return super().measure(count)


def prefix_setup(run):
    s = setting_of(run)
    more = dict(prefix_projection=True, encoder_hidden_size=s["encoder_hidden"]) if "projection" in s else {}
    return dict(step.setup_of(run), attention=run.attention, peft_type=s["peft_type"], num_virtual_tokens=s["virtual"], lora_dtype=s["dtype"],
                base_dtype=s["base"], **more)


def setup_of(run):
    if "virtual" in setting_of(run):
        return prefix_setup(run)
    s = setting_of(run)
    targets = s["targets"] if isinstance(s["targets"], str) else ",".join(TARGET[t] for t in s["targets"])
    more = dict(lora_full_modules=",".join(FULL[m] for m in s["full"])) if "full" in s else {}
    if "one" in s:
        more["ensure_weight_tying"] = True
    if s["base"][:3] in ("nf4", "fp4"):
        more["double_quant"] = s["base"] == "nf4-double"
    return dict(step.setup_of(run), lora_rank=s["rank"], lora_targets=targets, lora_dtype=s["dtype"],
                base_dtype=s["base"].split("-")[0], lora_dropout=s["dropout"], **more)


def record(run):
    steps = Steps(run)
    try:
        first, later = steps.measure()
    except RuntimeError:  # of a process's first model to_empty() cannot swap a parameter: a weak reference to it
        steps = Steps(run)
        first, later = steps.measure()
    return dict(config=steps.settings, setup=setup_of(run), parameters=steps.parameters, weight_bytes=steps.weights,
                first=first, later=later)


def prefixes():
    for shape in step.SHAPES:
        for setting in ("prefix", "prefix-projection"):
            for attention in ("sdpa", "flash")[:step.SHAPES[shape]["b"]]:  # of one sequence the latter reads positions
                yield Run(shape=shape, setting=setting, attention=attention)
        yield Run(shape=shape, setting="prefix", attention="eager", precision="bf16")
        yield Run(shape=shape, setting="prefix", grad_accum=2, optimizer_impl="fused")


def tied():
    for shape in step.SHAPES:
        for setting in adapters.TIED:
            base = dict(shape=shape, setting=setting, precision="bf16" if setting.endswith("bf16") else "bf16-amp")
            yield Run(**base)
            yield Run(**base, recompute="full")
            yield Run(**base, grad_accum=2, optimizer_impl="fused")


def runs(name):
    if name == "prefix":
        yield from prefixes()
        return
    if name == "tied":
        yield from tied()
        return
    for shape in step.SHAPES:
        for setting in adapters.SETTINGS:
            precision = "bf16" if setting.endswith("bf16") else "bf16-amp"
            yield Run(shape=shape, setting=setting, precision=precision)
            for reentrant in (False, True):
                yield Run(shape=shape, setting=setting, precision=precision, recompute="full",
                          recompute_reentrant=reentrant)


if __name__ == "__main__":
    old_build, old_optimizer = step.build, step.make_optimizer
    step.build = build
    step.main_of(["lora", "prefix", "tied"], runs, record, "python tests/oracle/step_lora.py tests/golden/oracle/steps")
