"""One rank's share of Megatron-core's experts where a forward runs beside another micro-batch's backward: megatron_moe.py's whole
steps with --overlap-moe-expert-parallel-comm.

The schedule, its nodes and what these free are Megatron's own (core/pipeline_parallel/combined_1f1b.py).  Every node says whose
it is when it begins; a phase of a micro-batch is all that runs in its name, so that it ends and begins again.

usage: PYTHONPATH=MEGATRON megatron_overlap.py FOLDER      writes FOLDER/megatron_overlap.json, a run a line
"""
import dataclasses
import pathlib
import sys

import megatron_moe as moe
import megatron_tp as dense
import step
import torch
from megatron.core.pipeline_parallel import combined_1f1b, utils


@dataclasses.dataclass(frozen=True)
class Run(moe.Run):
    ep: int = 2
    copies: int = 2
    grad_accum: int = 3
    early: bool = False


class Core(dense.Core):
    """Says at each node which micro-batch it is of."""

    def __init__(self, run):
        super().__init__(run)
        self.ahead = self.behind = 0

    def of(self, phase):
        self.enter(phase, self.ahead - 1 if phase == "forward" else self.behind - 1)

    def forward(self, _, model, return_schedule_plan=False):
        """pretrain_gpt.py, forward_step."""
        batch = self.batch()
        mask = batch["loss_mask"]
        plan = model.build_schedule_plan(batch["tokens"], batch["position_ids"], batch["attention_mask"], labels=batch["labels"],
                                         loss_mask=mask)

        def loss_func(out):
            losses = out.view(-1).float()
            loss = torch.sum(losses * mask.view(-1))
            tokens = mask.sum().clone().detach().to(torch.int)
            return loss, tokens, {"lm loss": torch.cat([loss.clone().detach().view(1), tokens.view(1)])}

        return plan, loss_func

    def step(self, model, config, optimizer):
        self.ahead = self.behind = 0
        self.kept = {}
        super().step(model, config, optimizer)

    def rows(self, rows):
        """Phases that were left and entered again are one."""
        out = {}
        for phase, micro, peak, op, end in rows:
            old = out.get((phase, micro))
            out[phase, micro] = [phase, micro, peak, op, end] if old is None or peak > old[2] else [*old[:4], end]
        return list(out.values())


def says(node_class, name, phase):
    inner = getattr(node_class, name)

    def call(self, *args, **kwargs):
        CORE[0].of(phase)
        return inner(self, *args, **kwargs)

    setattr(node_class, name, call)


CORE = []
says(utils.ScheduleNode, "_forward", "forward")
says(utils.ScheduleNode, "_backward", "backward")
combined, autograd_backward = combined_1f1b.combined_forward_backward_step, torch.autograd.backward


def combined_and_told(step_func, data, f_model, many, inputs, store, b_model, *args, **kwargs):
    CORE[0].ahead += f_model is not None
    CORE[0].behind += b_model is not None
    CORE[0].of("backward" if f_model is None else "forward")
    return combined(step_func, data, f_model, many, inputs, store, b_model, *args, **kwargs)


def backward_and_told(*args, **kwargs):
    if CORE and CORE[0].behind:
        CORE[0].of("backward")
    return autograd_backward(*args, **kwargs)


torch.cuda.nvtx.range_push = torch.cuda.nvtx.range_pop = lambda *_: None
torch.Tensor.record_stream = lambda *_: None
combined_1f1b.combined_forward_backward_step = combined_and_told
torch.autograd.backward = backward_and_told


def build(run):
    old, moe.config_of = moe.config_of, overlapped(moe.config_of)
    try:
        return moe.build(run)
    finally:
        moe.config_of = old


def overlapped(make):
    def call(run):
        config = make(run)
        config.overlap_moe_expert_parallel_comm = True
        config.ep_overlap_early_attn_memory_release = run.early
        return config

    return call


def record(run):
    c = moe.SHAPES[run.shape]
    dense.parallel_state.initialize_model_parallel = moe.initialize(run)
    moe.Local.share = c["k"] / c["E"]
    core = Core(run)
    CORE[:] = [core]
    first, later = core.measure()
    CORE.clear()
    print(run, file=sys.stderr, flush=True)
    words = dict(moe.setup_of(run), ep_overlap=True)
    if run.early:
        words["ep_overlap_early_attn_memory_release"] = True
    return dict(config=core.settings, setup=words, parameters=core.parameters, weight_bytes=core.weights,
                first=core.rows(first), later=core.rows(later))


dense.build = build


def runs():
    yield Run()
    yield Run(early=True)
    yield Run(grad_accum=2)
    yield Run(ep=4, copies=4)
    yield Run(ep=4, copies=4, early=True, shape="short")
    yield Run(shape="short", fp32=True)
    yield Run(recompute="selective")
    yield Run(modules="shared_experts")
    yield Run(tp=2, sequence=True, shape="wide", fp32=True)
    yield Run(tp=2, sequence=True, shape="wide", early=True)


COMMAND = "PYTHONPATH=MEGATRON python tests/oracle/megatron_overlap.py tests/golden/oracle/steps"


def main(folder):
    head, rows = dict(torch=torch.__version__, megatron_core=dense.CORE, command=COMMAND), []
    for run in runs():
        rows.append(record(run))
        (folder / "megatron_overlap.json").write_text(step.dump(head, rows))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
