"""Whole training steps with adapters: what step.py does, of a model that adapters.py has wrapped; checkpoints and optimizer.

usage: step_lora.py FOLDER        writes FOLDER/lora.json
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


def build(run, where="cuda"):
    """Checkpoints last: they go around layers that are wrapped already."""
    plain = dataclasses.replace(run, recompute="none", precision="bf16")
    model, settings = old_build(plain, where)
    model = adapters.wrap(model, adapters.SETTINGS[run.setting])
    if run.recompute == "full":
        model.gradient_checkpointing_enable(dict(use_reentrant=run.recompute_reentrant, preserve_rng_state=False))
    return model, settings


class Steps(step.Steps):
    def measure(self, count=3):
        """As step.py, but that only adapters go to the optimizer, and scales of 4-bit weights come with them."""
        def materialize(run, model, where):
            model.to_empty(device=where)
            setting = adapters.SETTINGS[run.setting]
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


def setup_of(run):
    s = adapters.SETTINGS[run.setting]
    targets = s["targets"] if isinstance(s["targets"], str) else ",".join(TARGET[t] for t in s["targets"])
    more = dict(lora_full_modules="embed,head") if "full" in s else {}
    if s["base"][:3] in ("nf4", "fp4"):
        more["double_quant"] = s["base"] == "nf4-double"
    return dict(step.setup_of(run), lora_rank=s["rank"], lora_targets=targets, lora_dtype=s["dtype"],
                base_dtype=s["base"].split("-")[0], lora_dropout=s["dropout"], **more)


def record(run):
    steps = Steps(run)
    first, later = steps.measure()
    return dict(config=steps.settings, setup=setup_of(run), parameters=steps.parameters, weight_bytes=steps.weights,
                first=first, later=later)


def runs(_):
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
    step.main_of(["lora"], runs, record, "python tests/oracle/step_lora.py tests/golden/oracle/steps")
