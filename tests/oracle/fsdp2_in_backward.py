"""One rank's share of FSDP2 with the update in backward: whole steps as engines.py measures them.

As torchtune (optimizer_in_bwd) and torchtitan (early_step_in_backward) have it: one optimizer a sharded parameter, in a hook that
fully_shard calls when it has reduced the gradients of the parameter's unit.  Shards over all ranks, and over some of them.

usage: fsdp2_in_backward.py FOLDER [fsdp2_in_backward]     writes FOLDER/fsdp2_in_backward.json, one run a line
"""
import dataclasses

import engines
import fsdp2_padded
import step


@dataclasses.dataclass(frozen=True)
class Run(fsdp2_padded.Run):
    clip_grad: bool = False


class Hooked:
    """Nothing is left for the step."""

    def __init__(self, run, parameters):
        of = {p: plain_optimizer(run, [p]) for p in parameters}

        def hook(p):
            of[p].step()
            of[p].zero_grad()
        for p in of:
            p.register_post_accumulate_grad_hook(hook)

    def step(self):
        pass

    def zero_grad(self, set_to_none=True):
        pass


def record(run):
    ranks = fsdp2_padded.Ranks(run)
    step.make_optimizer = Hooked
    first, later = ranks.measure()
    return dict(config=ranks.settings, setup=dict(engines.setup_of(run), optimizer_in_backward=True),
                parameters=ranks.parameters, weight_bytes=ranks.weights, first=first, later=later)


def runs(_):
    cases = [dict(gpus=8), dict(family="gpt2", gpus=8), dict(gpus=24), dict(gpus=8, shard_degree=4),
             dict(family="mixtral", experts=6, gpus=4)]
    for case in cases:
        for shape in ("wide", "long"):
            base = dict(case, shape=shape)
            for impl in ("foreach", "loop"):
                yield Run(**base, precision="bf16-mixed", reduce_dtype="fp32", optimizer_impl=impl)
                yield Run(**base, precision="bf16-mixed", optimizer_impl=impl, recompute="full")
            yield Run(**base, precision="bf16-mixed", reduce_dtype="fp32", optimizer_impl="fused", zero=2)
            yield Run(**base, precision="bf16", optimizer_impl="foreach", recompute="full")
            yield Run(**base, precision="fp32", optimizer="momentum", recompute="full")
            if case == dict(gpus=8):
                yield Run(**base, precision="bf16-mixed", reduce_dtype="fp32", fsdp_units="ends", recompute="full")
    for gpus in (2, 8):
        base = dict(shape="root", gpus=gpus, recompute="full")
        yield Run(**base, precision="bf16-mixed", reduce_dtype="fp32")
        yield Run(**base, precision="bf16-mixed", optimizer_impl="fused")
        yield Run(**base, precision="bf16", optimizer_impl="loop")


step.SHAPES["root"] = step.LATE["root"]
plain_optimizer = step.make_optimizer

if __name__ == "__main__":
    step.main_of(["fsdp2_in_backward"], runs, record,
                 "python tests/oracle/fsdp2_in_backward.py tests/golden/oracle/steps")
