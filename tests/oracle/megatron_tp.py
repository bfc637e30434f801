"""One rank's share of Megatron-core's GPT without Transformer Engine: whole steps, and what autograd keeps, of its local layers at
tp 1, 2 and 4, with sequence parallelism and without.

The model, its DistributedDataParallel, its optimizer and the loop over micro-batches are Megatron's own (a released version;
nothing of it lies here).  Ranks are PyTorch's fake process group.  What a GPU has and this machine has not:
- norms are PyTorch's, also under sequence parallelism, which Megatron leaves to apex: the same tensors are saved;
- the fused softmax is a kernel with one result, whose backward writes over its gradient (apex, megatron_softmax);
- what Megatron compiles is one kernel each, whose inner results nobody sees;
- the states of random generators lie in host memory anyway;
- norms of all gradients are one kernel (apex's), AdamW is PyTorch's fused one.

usage: PYTHONPATH=MEGATRON megatron_tp.py FOLDER      writes FOLDER/megatron.json, a run a line
"""
import contextlib
import dataclasses
import functools
import json
import pathlib
import sys
import types

import engines
import one_norm
import step
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.testing._internal.distributed.fake_pg import FakeStore

import saved

CORE = "0.16.1"
KERNELS_OF = []  # trackers that are told of what one compiled kernel leaves
ADAPT = []  # called with a run and its model, before that is wrapped


def one_kernel(f=None, **_):
    """In place of torch.compile: what happens inside is not seen, what is left of it is."""
    if f is None:
        return one_kernel

    @functools.wraps(f)
    def call(*args, **kwargs):
        if not KERNELS_OF or KERNELS_OF[0].inside:
            return f(*args, **kwargs)
        with KERNELS_OF[0].one(f.__name__):
            return f(*args, **kwargs)

    return call


def softmax_kernel(name):
    module = types.ModuleType(name)
    module.forward = lambda x, *_: torch.empty_like(x)
    module.backward = lambda grad, *_: grad.contiguous()
    module.get_batch_per_block = lambda sq, *_: 4 if sq > 128 else 8
    sys.modules[name] = module


class Rotated(torch.autograd.Function):
    """Transformer Engine's kernel, or apex's, which keeps nothing but the table."""

    @staticmethod
    def forward(ctx, x, table):
        ctx.save_for_backward(table)
        return x.new_empty(x.shape)

    @staticmethod
    def backward(ctx, grad):
        return grad.new_empty(grad.shape), None


torch.compile = one_kernel
for name in ("scaled_upper_triang_masked_softmax_cuda", "scaled_masked_softmax_cuda", "scaled_softmax_cuda"):
    softmax_kernel(name)

from megatron.core import parallel_state  # noqa: E402
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads  # noqa: E402
from megatron.core.distributed import param_and_grad_buffer  # noqa: E402
from megatron.core.models import backends  # noqa: E402
from megatron.core.models.common.embeddings import rope_utils  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: E402
from megatron.core.optimizer import clip_grads  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.tensor_parallel import random as generators  # noqa: E402
from megatron.core.transformer import transformer_block  # noqa: E402
from megatron.core.transformer.module import Float16Module  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402

SHAPES = {  # sizes whose tensors are multiples of 512 bytes on each of 4 ranks
    "wide": dict(b=1, s=256, h=512, a=8, kv=8, f=2048, v=8192, L=3),
    "long": dict(b=4, s=512, h=256, a=4, kv=4, f=768, v=4096, L=3),
    "grouped": dict(b=2, s=1024, h=512, a=16, kv=4, f=1536, v=2048, L=3),
}


def same_everywhere(objects, mine, *_, **__):
    objects[:] = [mine] * len(objects)


class Norm:
    def __new__(cls, config, hidden_size, eps=1e-5, **_):
        make = torch.nn.RMSNorm if config.normalization == "RMSNorm" else torch.nn.LayerNorm
        norm = make(hidden_size, eps=eps, device="cuda", dtype=config.params_dtype)
        for p in norm.parameters():
            p.sequence_parallel = config.sequence_parallel
        return norm


class NoStates(generators.CudaRNGStatesTracker):
    def fork(self, *_):
        return contextlib.nullcontext()


rope_utils.fused_apply_rotary_pos_emb = lambda x, table, **_: Rotated.apply(x, table)
backends.LNImpl = backends.WrappedTorchNorm = transformer_block.LayerNormImpl = Norm
generators._CUDA_RNG_STATE_TRACKER, generators._CUDA_RNG_STATE_TRACKER_INITIALIZED = NoStates(), True
generators._get_cuda_rng_state = generators._set_cuda_rng_state = lambda *_, **__: None
generators._set_all_rng_states = lambda *_: None
torch.cuda.get_rng_state = lambda *_: None
dist.all_gather_object = same_everywhere
clip_grads.multi_tensor_applier = lambda *_: (torch.zeros(1, device="cuda"), None)  # apex: a kernel for all
param_and_grad_buffer._coalescing_manager = lambda *_, **__: contextlib.nullcontext(engines.Idle())


@dataclasses.dataclass(frozen=True)
class Run:
    shape: str = "wide"
    tp: int = 2
    sequence: bool = True
    copies: int = 1
    precision: str = "bf16"
    recompute: str = "none"
    gated: bool = True          # RMSNorm, rope, SwiGLU, no biases; else LayerNorm, learned positions, gelu, biases, dropout
    tied: bool = False
    zero: int = 0
    grad_accum: int = 1
    softmax: bool = True        # one kernel
    rope: bool = True           # one kernel
    distribute: bool = False    # parts of checkpoints


class Local(engines.Local):
    inside = False

    def __init__(self, *args):
        super().__init__(*args)
        self.unseen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._local_scalar_dense.default:
            return 1.0 if args[0].dtype.is_floating_point else 1  # read by the host
        if function in one_norm.KERNELS:
            return one_norm.watched(self, function, args)
        return super().__torch_dispatch__(function, types, args, kwargs)

    @contextlib.contextmanager
    def one(self, name):
        self.inside, self.unseen = True, []
        try:
            yield
        finally:
            self.inside = False
            left, self.unseen = self.unseen, []
            for ref, size in left:
                if not ref.expired() and ref.cdata not in self.live:
                    size = -(-size // step.GRANULE) * step.GRANULE
                    self.live[ref.cdata] = (ref, size, name)
                    self.now += size
            self._peak(self.now, name)

    def _born(self, t, tag):
        if not self.inside:
            super()._born(t, tag)
        elif t.device.type == "cuda":
            self.unseen.append((StorageWeakRef(t.untyped_storage()), t.untyped_storage().nbytes()))


def config_of(run):
    c = SHAPES[run.shape]
    dtype = torch.float32 if run.precision == "fp32" else torch.bfloat16
    recompute = {"none": {}, "selective": dict(recompute_granularity="selective"),
                 "full": dict(recompute_granularity="full", recompute_method="uniform", recompute_num_layers=1)}
    drop = 0.0 if run.gated else 0.1
    return TransformerConfig(
        num_layers=c["L"], hidden_size=c["h"], ffn_hidden_size=c["f"], num_attention_heads=c["a"], num_query_groups=c["kv"],
        hidden_dropout=drop, attention_dropout=drop, gated_linear_unit=run.gated, add_bias_linear=not run.gated,
        activation_func=torch.nn.functional.silu if run.gated else torch.nn.functional.gelu,
        normalization="RMSNorm" if run.gated else "LayerNorm", bias_activation_fusion=True, bias_dropout_fusion=True,
        masked_softmax_fusion=run.softmax, bf16=dtype is torch.bfloat16, params_dtype=dtype, pipeline_dtype=dtype,
        tensor_model_parallel_size=run.tp, sequence_parallel=run.sequence, distribute_saved_activations=run.distribute, perform_initialization=False,
        gradient_accumulation_fusion=False, apply_rope_fusion=run.rope, attention_softmax_in_fp32=False, persist_layer_norm=False,
        **recompute[run.recompute])


def build(run):
    c, config = SHAPES[run.shape], config_of(run)
    torch.set_default_dtype(config.params_dtype)
    with torch.device("cuda"):
        model = GPTModel(config, get_gpt_layer_local_spec(normalization=config.normalization), vocab_size=c["v"],
                         max_sequence_length=c["s"], position_embedding_type="rope" if run.gated else "learned_absolute",
                         share_embeddings_and_output_weights=run.tied)
        for adapt in ADAPT:
            adapt(run, model)
    torch.set_default_dtype(torch.float32)
    settings = dict(model_type="llama" if run.gated else "gpt2", hidden_size=c["h"], num_attention_heads=c["a"],
                    num_key_value_heads=c["kv"], head_dim=c["h"] // c["a"], intermediate_size=c["f"], vocab_size=c["v"],
                    num_hidden_layers=c["L"], max_position_embeddings=c["s"], tie_word_embeddings=run.tied)
    if not run.gated:
        settings = dict(model_type="gpt2", n_embd=c["h"], n_head=c["a"], n_inner=c["f"], vocab_size=c["v"], n_layer=c["L"],
                        n_positions=c["s"], tie_word_embeddings=run.tied, activation_function="gelu")
    if run.precision == "bf16":
        model.bfloat16 = lambda: model  # it is
        model = Float16Module(config, model)
    more = DistributedDataParallelConfig(grad_reduce_in_fp32=run.precision == "bf16", use_distributed_optimizer=run.zero > 0)
    return DistributedDataParallel(config, more, model), config, settings


class Core(step.Steps):
    def batch(self):
        c = SHAPES[self.run.shape]
        b, s = c["b"], c["s"]
        ids = torch.zeros(b, s, dtype=torch.long, device="cuda")
        return dict(tokens=ids, labels=torch.zeros_like(ids), position_ids=torch.zeros_like(ids),
                    loss_mask=torch.ones(b, s, device="cuda"),
                    attention_mask=torch.zeros(b, 1, s, s, dtype=torch.bool, device="cuda"))

    def forward(self, _, model):
        """pretrain_gpt.py, forward_step."""
        self.enter("forward", self.index)
        batch = self.batch()
        mask = batch["loss_mask"]
        out = model(batch["tokens"], batch["position_ids"], batch["attention_mask"], labels=batch["labels"])

        def loss_func(out):
            losses = out.view(-1).float()
            loss = torch.sum(losses * mask.view(-1))
            if self.kept is None:
                self.keep(loss, model, batch)
            tokens = mask.sum().clone().detach().to(torch.int)
            report = torch.cat([loss.clone().detach().view(1), tokens.view(1)])
            self.enter("backward", self.index)
            self.index += 1
            return loss, tokens, {"lm loss": report}

        return out, loss_func

    def keep(self, loss, model, batch):
        self.tracker.paused = True
        skip = {t.untyped_storage()._cdata for t in [*model.parameters(), *batch.values()]}
        self.kept = {}
        for o in saved.collect(loss, types.SimpleNamespace(module_of=lambda _: ""), []):
            for attribute, key, t in o["saved"]:
                if key not in skip and t.device.type != "cpu":
                    name = o["op"] + "." + attribute
                    row = [t.untyped_storage().nbytes(), str(t.dtype).removeprefix("torch."), list(t.shape), name]
                    self.kept.setdefault(key, row)
        self.tracker.paused = False

    def step(self, model, config, optimizer):
        """training.py, train_step."""
        self.index = 0
        model.zero_grad_buffer()
        optimizer.zero_grad()
        get_forward_backward_func()(forward_step_func=self.forward, data_iterator=None, model=[model],
                                    num_microbatches=self.run.grad_accum, seq_length=SHAPES[self.run.shape]["s"],
                                    micro_batch_size=SHAPES[self.run.shape]["b"], forward_only=False)
        self.enter("step", 0)
        optimizer.step()
        self.enter("zero_grad", 0)

    def measure(self, count=3):
        run = self.run
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=run.tp * run.copies)
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=run.tp, create_gloo_process_groups=False)
        parallel_state.destroy_global_memory_buffer()
        parallel_state._set_global_memory_buffer()
        self.tracker = tracker = Local(True)
        KERNELS_OF[:] = [tracker]
        self.kept = None
        with FakeTensorMode(allow_non_fake_inputs=True), step.cuda_switches(), engines.follows(tracker):
            model, config, self.settings = build(run)
            config.finalize_model_grads_func = finalize_model_grads
            self.parameters = sum(p.numel() for p in model.parameters())
            tracker.watch([*model.parameters(), *model.module.buffers()], "weights")
            self.weights = tracker.now
            tracker.watch([b.grad_data for b in model.buffers + model.expert_parallel_buffers], "main gradients")
            with tracker:  # which copies the weights in fp32
                optimizer = get_megatron_optimizer(OptimizerConfig(
                    optimizer="adam", lr=1e-3, bf16=run.precision == "bf16", params_dtype=config.params_dtype,
                    use_distributed_optimizer=run.zero > 0), [model], use_gloo_process_groups=False)
            ends = []
            with tracker:
                for _ in range(count):
                    self.step(model, config, optimizer)
                    ends.append(len(self.order))
                self.enter("rest", 0)
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()
        rows = [[phase, micro, *(tracker.phases[name].get(k) for k in ("peak", "op", "end"))]
                for name, phase, micro in self.order[:-1]]
        return rows[:ends[0]], rows[ends[-min(2, count)]:]


def setup_of(run):
    c = SHAPES[run.shape]
    words = dict(framework="megatron", implementation="megatron-local", gpus=run.tp * run.copies, tp=run.tp,
                 sequence_parallel=run.sequence, zero=run.zero, micro_batch=c["b"], seq_len=c["s"],
                 precision="fp32" if run.precision == "fp32" else "bf16-mixed", attention="eager",
                 attention_mask="dataloader", optimizer_impl="fused", grad_accum_fusion=False, grad_accum=run.grad_accum,
                 recompute=run.recompute, replay_batches=False, vocab_multiple=1, deterministic=False)
    if not run.softmax:
        words["fused_softmax"] = False
    if run.distribute:
        words["distribute_saved_activations"] = True
    return words


def record(run):
    core = Core(run)
    first, later = core.measure()
    print(run, file=sys.stderr, flush=True)
    return dict(config=core.settings, setup=setup_of(run), parameters=core.parameters, weight_bytes=core.weights,
                kept_bytes=sum(r[0] for r in core.kept.values()), first=first, later=later)


engines.meshes_are_real()
torch.optim.AdamW = functools.partial(torch.optim.AdamW, fused=True)

LAYOUTS = ((1, False), (2, True), (4, True), (2, False), (4, False))


def runs(_):
    for tp, sequence in LAYOUTS:
        base = dict(tp=tp, sequence=sequence)
        yield Run(**base)
        yield Run(**base, gated=False, tied=True)
        yield Run(**base, shape="grouped", tied=True)
        yield Run(**base, shape="long", grad_accum=2)
        yield Run(**base, shape="long", precision="fp32")
        for shape in ("long", "grouped"):
            yield Run(**base, shape=shape, recompute="selective")
            yield Run(**base, shape=shape, recompute="full")
        yield Run(**base, shape="long", gated=False, recompute="selective")
        yield Run(**base, shape="long", gated=False, softmax=False)
    for tp in (2, 4):
        for shape in ("long", "grouped"):
            yield Run(tp=tp, sequence=False, shape=shape, recompute="full", distribute=True)


COMMAND = "PYTHONPATH=MEGATRON python tests/oracle/megatron_tp.py tests/golden/oracle/steps"


def main(folder):
    head, rows = dict(torch=torch.__version__, megatron_core=CORE, command=COMMAND), []
    for run in runs(""):
        rows.append(record(run))
        (folder / "megatron.json").write_text(step.dump(head, rows))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
