"""One rank's share of FSDP2 where ranks do not divide the first dimension of tensors: as engines.py measures them.

Mixtral, whose experts are one tensor of three dimensions, cut between experts; Llama over a number of ranks that divides none
of its sizes.

usage: fsdp2_padded.py FOLDER [fsdp2_padded]     writes FOLDER/fsdp2_padded.json, one run a line
"""
import dataclasses

import engines
import step


@dataclasses.dataclass(frozen=True)
class Run(engines.Run):
    experts: int = 0            # 0: a Llama


def sizes(family, c):
    settings = old_sizes("llama", c)
    if family == "mixtral":
        settings.update(model_type="mixtral", num_local_experts=c["E"], num_experts_per_tok=2)
    return settings


def build(run, where="cuda"):
    shape = step.SHAPES[run.shape]
    step.SHAPES[run.shape] = dict(shape, E=run.experts, f=256 if run.experts else shape["f"])
    try:
        return old_build(run, where)
    finally:
        step.SHAPES[run.shape] = shape


class Ranks(engines.Ranks):
    def engine(self, model, mesh):
        return engines.shard(dataclasses.replace(self.run, family="llama"), model, mesh)


def record(run):
    ranks = Ranks(run)
    first, later = ranks.measure()
    return dict(config=ranks.settings, setup=engines.setup_of(run), parameters=ranks.parameters, weight_bytes=ranks.weights,
                first=first, later=later)


def runs(_):
    cases = [dict(family="mixtral", experts=4, gpus=4), dict(family="mixtral", experts=4, gpus=16),
             dict(family="mixtral", experts=6, gpus=4), dict(gpus=24)]
    for case in cases:
        for shape in ("wide", "long"):
            base = dict(case, shape=shape)
            yield Run(**base, precision="bf16-mixed", reduce_dtype="fp32")
            yield Run(**base, precision="bf16-mixed", optimizer_impl="fused", recompute="full")
            yield Run(**base, precision="bf16-mixed", reduce_dtype="fp32", zero=2)
            yield Run(**base, precision="bf16-mixed", reduce_dtype="fp32", grad_accum=2)
            waits = dict(precision="bf16-mixed", reduce_dtype="fp32", grad_accum=2, grad_sync="last")
            yield Run(**base, **waits)
            if case["gpus"] == 16:
                yield Run(**base, **waits, recompute="full")
            yield Run(**base, precision="fp32")


old_sizes, old_build = step.sizes, step.build
step.sizes, step.build = sizes, build

if __name__ == "__main__":
    step.main_of(["fsdp2_padded"], runs, record, "python tests/oracle/fsdp2_padded.py tests/golden/oracle/steps")
