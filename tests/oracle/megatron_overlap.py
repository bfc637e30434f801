"""One rank's share of Megatron-core's experts where a forward runs beside another micro-batch's backward: megatron_moe.py's whole
steps with --overlap-moe-expert-parallel-comm.

The schedule, its nodes and what these free are Megatron's own (core/pipeline_parallel/combined_1f1b.py).  Every node says whose
it is when it begins; a phase of a micro-batch is all that runs in its name, so that it ends and begins again.

Weights' gradients that are delayed are Transformer Engine's (WeightGradStore), which has no CPU build: a linear stands in that puts
its input and its result's gradient aside and makes the weight's when backward_dw() is called, by Megatron's nodes.  These let go of
gradients as d98e8a64's do (TransformerLayerNode.backward_impl); 0.16.1's hold all of a part's to there.

usage: PYTHONPATH=MEGATRON megatron_overlap.py FOLDER      writes FOLDER/megatron_overlap.json, a run a line
"""
import dataclasses
import pathlib
import sys

import megatron_moe as moe
import megatron_tp as dense
import step
import torch
from megatron.core.models.gpt import fine_grained_callables as nodes
from megatron.core.pipeline_parallel import combined_1f1b, utils
from megatron.core.tensor_parallel import layers
from megatron.core.transformer.transformer_layer import TransformerLayer


@dataclasses.dataclass(frozen=True)
class Run(moe.Run):
    ep: int = 2
    copies: int = 2
    grad_accum: int = 3
    early: bool = False
    delay: bool = False


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


class Delayed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return torch.matmul(x, weight.t())

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        weight.aside = x, grad
        return grad.matmul(weight), None


@torch.no_grad()
def backward_dw(linear):
    x, grad = linear.weight.aside
    linear.weight.aside = None
    gradient = grad.reshape(-1, grad.shape[-1]).t().matmul(x.reshape(-1, x.shape[-1]))
    linear.weight.main_grad.add_(gradient)


def product(x, weight, *args, **kwargs):
    return Delayed.apply(x, weight) if getattr(weight, "delayed", False) else inner_product(x, weight, *args, **kwargs)


def node_backward(self, outputs, output_grad):
    grads = output_grad + tuple(e.grad for e in self.detached)
    self.default_backward_func(outputs + self.before_detached, grads)
    self.delay_grads_release = len(self.bwd_dw_callables) > 0
    self.output_grads = ()
    return grads


inner_product, inner_backward = layers.linear_with_grad_accumulation_and_async_allreduce, nodes.TransformerLayerNode.backward_impl
product.warned = True
layers.linear_with_grad_accumulation_and_async_allreduce = product
LINEARS = (layers.ColumnParallelLinear, layers.RowParallelLinear)
for linear in LINEARS:
    linear.backward_dw = backward_dw


def delayed(model, run):
    nodes.TransformerLayerNode.backward_impl = node_backward if run.delay else inner_backward
    for layer in model.modules():
        if run.delay and isinstance(layer, TransformerLayer):
            for part in layer.modules():
                if isinstance(part, LINEARS):
                    part.weight.delayed = True


def build(run):
    old, moe.config_of = moe.config_of, overlapped(moe.config_of)
    try:
        model, config, settings = moe.build(run)
        delayed(model, run)
        return model, config, settings
    finally:
        moe.config_of = old


def overlapped(make):
    def call(run):
        config = make(run)
        config.overlap_moe_expert_parallel_comm = True
        config.ep_overlap_early_attn_memory_release = run.early
        config.delay_wgrad_compute = run.delay
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
    more = dict(delays=True) if run.delay else {}  # Megatron's own layers have no such key
    return dict(config=core.settings, setup=words, **more, parameters=core.parameters, weight_bytes=core.weights,
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
    yield Run(delay=True)
    yield Run(delay=True, early=True)
    yield Run(delay=True, ep=4, copies=4, shape="short")
    yield Run(delay=True, shape="short", early=True, grad_accum=2)


COMMAND = "PYTHONPATH=MEGATRON python tests/oracle/megatron_overlap.py tests/golden/oracle/steps"


def main(folder):
    head, rows = dict(torch=torch.__version__, megatron_core=dense.CORE, command=COMMAND), []
    for run in runs():
        rows.append(record(run))
        (folder / "megatron_overlap.json").write_text(step.dump(head, rows))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
