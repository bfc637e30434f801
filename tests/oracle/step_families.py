"""Whole steps of families whose classes hold other things than Llama's: what step.py and step_lora.py do.

usage: step_families.py FOLDER [checkpoints] [variables] [leaf] [noise] [balance]
checkpoints: under autocast, of experts and of Falcon; variables: adapters in layers whose variables hold what attention was
given, and gave; leaf: adapters where a class makes something of the words' embedding, which is a leaf; noise: what
training multiplies the input of experts by; balance: a loss of routers' logits
"""
import device  # noqa: F401  (before torch)

import attention
import step
import step_lora

CHECKPOINTS = ("falcon", "falcon-new", "mixtral", "olmoe", "granitemoe", "llama4_text", "gpt_oss")
VARIABLES = ("phi", "stablelm", "cohere-qknorm", "mpt")
LEAF = ("gpt2", "opt", "gpt_bigcode", "granite", "bloom")
NOISE = ("mixtral-noise", "phimoe-noise")
BALANCE = ("qwen3_moe-balance", "granitemoe-balance")
EAGER = ("bloom", "mpt", "gpt_oss")  # of these transformers has no other kernel


def kernel(run):
    """In memplan's words: the math kernel is what sdpa takes where it has no other."""
    ran = set(attention.last_choice)
    return "eager" if run.attention == "eager" else "flash" if ran == {"flash"} else "sdpa"


def record_of(record):
    def recorded(run):
        attention.last_choice.clear()
        row = record(run)
        row["setup"]["attention"] = kernel(run)
        return row
    return recorded


def checkpoints():
    for family in CHECKPOINTS:
        for reentrant in (False, True):
            yield step.Run(family=family, shape="long", attention="eager" if family in EAGER else "sdpa", recompute="full",
                           recompute_reentrant=reentrant)


def adapted(families):
    for family in families:
        base = dict(family=family, shape="long", attention="eager" if family in EAGER else "sdpa")
        yield step_lora.Run(**base, setting="all-bf16", precision="bf16")
        for recompute in ("none", "full"):
            yield step_lora.Run(**base, setting="all-fp32-dropout", recompute=recompute)


def routed(families):
    for family in families:
        for precision in ("bf16", "bf16-amp"):
            for recompute, reentrant in (("none", False), ("full", False), ("full", True)):
                yield step.Run(family=family, shape="long", precision=precision, recompute=recompute,
                               recompute_reentrant=reentrant)


RUNS = dict(checkpoints=checkpoints, variables=lambda: adapted(VARIABLES), leaf=lambda: adapted(LEAF),
            noise=lambda: routed(NOISE), balance=lambda: routed(BALANCE))


def record(run):
    adapted = isinstance(run, step_lora.Run)
    step.build = step_lora.build if adapted else step_lora.old_build
    return record_of((step_lora if adapted else step).record)(run)


if __name__ == "__main__":
    step_lora.old_build, step_lora.old_optimizer = step.build, step.make_optimizer
    step.main_of(list(RUNS), lambda name: RUNS[name](), record, "python tests/oracle/step_families.py tests/golden/oracle/steps")
