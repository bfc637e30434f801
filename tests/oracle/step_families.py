"""Whole steps of families whose classes hold other things than Llama's: what step.py does.

usage: step_families.py FOLDER [checkpoints]
checkpoints: under autocast, of Falcon
"""
import device  # noqa: F401  (before torch)

import attention
import step

CHECKPOINTS = ("falcon", "falcon-new")


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
            yield step.Run(family=family, shape="long", recompute="full", recompute_reentrant=reentrant)


RUNS = dict(checkpoints=checkpoints)


if __name__ == "__main__":
    step.main_of(list(RUNS), lambda name: RUNS[name](), record_of(step.record), "python tests/oracle/step_families.py tests/golden/oracle/steps")
