"""Whole training steps with adapters: what step.py does, of a model that adapters.py has wrapped; checkpoints and optimizer.

usage: step_lora.py FOLDER [lora] [prefix]        writes FOLDER/lora.json, FOLDER/prefix.json: PEFT's prefix tuning
"""
import dataclasses

import device  # noqa: F401  (before torch)
import torch

import adapters
import measure
import step

TARGET = dict(q_proj="q", v_proj="v")


@dataclasses.dataclass(frozen=True)
class Run(step.Run):
    setting: str = "all-fp32"


def setting_of(run):
    return adapters.SETTINGS.get(run.setting) or adapters.OTHERS[run.setting]


def build(run, where="cuda"):
    """Checkpoints last: they go around layers that are wrapped already."""
    plain = dataclasses.replace(run, recompute="none", precision="bf16")
    model, settings = old_build(plain, where)
    model = adapters.wrap(model, setting_of(run))
    if run.recompute == "full":
        model.gradient_checkpointing_enable(dict(use_reentrant=run.recompute_reentrant, preserve_rng_state=False))
    return model, settings


class Steps(step.Steps):
    def measure(self, count=3):
        """As step.py, but that only adapters go to the optimizer, and scales of 4-bit weights come with them."""
        def materialize(run, model, where):
            model.to_empty(device=where)
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
    s = adapters.SETTINGS[run.setting]
    targets = s["targets"] if isinstance(s["targets"], str) else ",".join(TARGET[t] for t in s["targets"])
    more = dict(lora_full_modules="embed,head") if "full" in s else {}
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


def runs(name):
    if name == "prefix":
        yield from prefixes()
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
    step.main_of(["lora", "prefix"], runs, record, "python tests/oracle/step_lora.py tests/golden/oracle/steps")
