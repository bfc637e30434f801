"""One rank's share of Megatron-core's experts and latent attention without Transformer Engine: megatron_tp.py's whole steps of them.

Routing is even, by hand: collectives of a fake process group do nothing and fake tensors have no values, so that what is read from
the GPU is given instead, each expert k T / E tokens of each rank.
- masked_select, whose result is as long as the mask has ones, gets that length (operators and what they keep are PyTorch's);
- the dispatchers' counts on the host are numpy's, made where the copies to the host are waited for;
- the orders of chunks, tensors on the CPU there, are numpy's.
Of Transformer Engine, which has no CPU build, two pure functions stand in, of latent attention: Megatron-core's own attention
module does not take it (its constructor has no k_channels).  They are the linear that every rank has whole, which keeps its
input, and one kernel, which keeps queries, keys, values, its result, a sum a row and the state of its generator.  With tp > 1 what
autograd keeps of it is recorded and no phase: gathered inputs lie elsewhere there.

usage: PYTHONPATH=MEGATRON megatron_moe.py FOLDER      writes FOLDER/megatron_moe.json, a run a line
"""
import dataclasses
import pathlib
import sys

import megatron_tp as dense
import numpy
import step
import torch
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer import multi_latent_attention
from megatron.core.transformer.moe import moe_utils, token_dispatcher
from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

SHAPES = {
    "wide": dict(b=1, s=512, h=512, a=8, kv=4, f=1024, v=1024, L=2, E=4, k=2, fe=512, fs=0),
    "long": dict(b=2, s=512, h=256, a=4, kv=4, f=768, v=512, L=2, E=8, k=4, fe=256, fs=512),
    "short": dict(b=4, s=256, h=256, a=4, kv=4, f=768, v=2048, L=2, E=8, k=4, fe=256, fs=512),
    "one": dict(b=2, s=512, h=512, a=8, kv=8, f=1024, v=512, L=2, E=4, k=2, fe=512, fs=0),
}
LATENT = dict(kv_rank=256, nope=64, rope=32, dv=64)


@dataclasses.dataclass(frozen=True)
class Run(dense.Run):
    shape: str = "long"
    tp: int = 1
    sequence: bool = False
    ep: int = 1
    etp: int = 1
    experts: bool = True
    dispatcher: str = "alltoall"
    modules: str = ""           # of selective recomputation
    fp32: bool = False          # --moe-router-dtype
    aux: str = "none"           # --moe-router-load-balancing-type
    score: str = "softmax"
    bias: bool = False          # of experts' choice
    latent: bool = False
    q_rank: int = 0
    norms: bool = True          # --qk-layernorm


class Counts:
    """What the real dispatchers read back, of even routing."""

    @staticmethod
    def alltoall(self, point, tokens_per_expert=None):
        if point != self.cuda_dtoh_point:
            return tokens_per_expert
        each = self.num_out_tokens // self.num_experts
        many = self.ep_size * self.tp_size
        if many > 1:
            self.input_splits = numpy.full(self.ep_size, each * self.num_local_experts)
            self.output_splits = numpy.full(self.ep_size, each * self.num_local_experts)
            self.output_splits_tp = numpy.full(self.tp_size, each * self.num_local_experts * self.ep_size)
        if self.num_local_experts > 1:
            self.num_global_tokens_per_local_expert = numpy.full((many, self.num_local_experts), each)
            chunks = numpy.arange(self.num_experts * self.tp_size)
            self.sort_input_by_local_experts = chunks.reshape(-1, self.num_local_experts).T.ravel()
            self.restore_output_by_local_experts = chunks.reshape(self.num_local_experts, -1).T.ravel()
        return numpy.full(self.num_local_experts, each * many)

    @staticmethod
    def allgather(self, hidden_states, probs):
        tokens, local = hidden_states.shape[0], self.num_local_experts
        out, _, kept = ORDER(self, hidden_states, probs)
        return out, numpy.full(local, tokens * self.router_topk * local // self.config.num_moe_experts // local), kept


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        s, b, a = q.shape[:3]
        out = q.new_empty(s, b, a * v.shape[-1])
        ctx.save_for_backward(q, k, v, out, q.new_empty(b, a, s, dtype=torch.float32),
                              q.new_empty(2, dtype=torch.int64))
        return out

    @staticmethod
    def backward(ctx, grad):
        return tuple(torch.empty_like(x) for x in ctx.saved_tensors[:3])


class Attention(torch.nn.Module):
    def __init__(self, **_):
        super().__init__()

    def forward(self, q, k, v, *_, **__):
        return Kernel.apply(q, k, v)


class Whole(torch.nn.Module):
    def __init__(self, inner, outer, *, config, **_):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(outer, inner, device="cuda", dtype=config.params_dtype))
        self.weight.sequence_parallel = config.sequence_parallel

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight), None


def with_stand_ins(spec):
    """Latent attention's layers."""
    parts = spec.submodules.self_attention.submodules
    parts.linear_q_down_proj = parts.linear_kv_down_proj = Whole
    parts.core_attention = Attention
    return spec


multi_latent_attention.TELinear = Whole
moe_utils.te_general_gemm = None  # a name that this version looks up without Transformer Engine, too
ORDER = token_dispatcher.MoEAllGatherTokenDispatcher.dispatch_postprocess
token_dispatcher.MoEAllGatherTokenDispatcher.dispatch_postprocess = Counts.allgather
token_dispatcher.MoEAlltoAllTokenDispatcher._maybe_dtoh_and_synchronize = Counts.alltoall


class Local(dense.Local):
    share = 0.0  # of a mask that is true

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.masked_select.default:
            self.poll()
            result = args[0].new_empty(round(args[1].numel() * self.share))
            self.watch(result, "masked_select")
            return result
        return super().__torch_dispatch__(function, types, args, kwargs)


def config_of(run):
    c = SHAPES[run.shape]
    old = {f.name: getattr(dense_config(run), f.name) for f in dataclasses.fields(TransformerConfig) if f.init}
    keep = ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "hidden_dropout",
            "attention_dropout", "gated_linear_unit", "add_bias_linear", "activation_func", "normalization",
            "bias_activation_fusion", "bias_dropout_fusion", "masked_softmax_fusion", "bf16", "params_dtype", "pipeline_dtype",
            "tensor_model_parallel_size", "sequence_parallel", "perform_initialization", "gradient_accumulation_fusion",
            "apply_rope_fusion", "attention_softmax_in_fp32", "persist_layer_norm", "recompute_granularity",
            "recompute_method", "recompute_num_layers")
    more = {k: old[k] for k in keep}
    if run.modules:
        more.update(recompute_granularity="selective", recompute_modules=run.modules.split(","))
    if run.experts:
        more.update(num_moe_experts=c["E"], moe_router_topk=c["k"], moe_ffn_hidden_size=c["fe"],
                    moe_token_dispatcher_type=run.dispatcher, expert_model_parallel_size=run.ep,
                    expert_tensor_parallel_size=run.etp, moe_router_load_balancing_type=run.aux,
                    moe_aux_loss_coeff=0.0 if run.aux == "none" else 0.01, moe_router_score_function=run.score,
                    moe_router_enable_expert_bias=run.bias, moe_router_dtype="fp32" if run.fp32 else None,
                    moe_shared_expert_intermediate_size=c["fs"] or None)
    if not run.latent:
        return TransformerConfig(**more)
    more["apply_rope_fusion"] = False
    return MLATransformerConfig(
        multi_latent_attention=True, q_lora_rank=run.q_rank or None, kv_lora_rank=LATENT["kv_rank"],
        qk_head_dim=LATENT["nope"], qk_pos_emb_head_dim=LATENT["rope"], v_head_dim=LATENT["dv"], **more)


def settings_of(run):
    c = SHAPES[run.shape]
    base = dict(hidden_size=c["h"], num_attention_heads=c["a"], num_key_value_heads=c["kv"], head_dim=c["h"] // c["a"],
                intermediate_size=c["f"], vocab_size=c["v"], num_hidden_layers=c["L"], max_position_embeddings=c["s"],
                tie_word_embeddings=run.tied)
    more = dict(model_type="decoder", norm="rmsnorm", gated_mlp=True, hidden_act="silu", position_embedding="rope")
    if run.experts:
        base.update(num_experts=c["E"], num_experts_per_tok=c["k"], moe_intermediate_size=c["fe"])
        if c["fs"]:
            base.update(shared_expert_intermediate_size=c["fs"])
    if run.score == "sigmoid":  # a class whose router has it
        del base["num_experts"], base["shared_expert_intermediate_size"]
        base.update(n_routed_experts=c["E"], n_shared_experts=c["fs"] // c["fe"], first_k_dense_replace=0,
                    partial_rotary_factor=1.0, use_qk_norm=False, attention_bias=False, n_group=1, topk_group=1)
        more = dict(model_type="glm4_moe")
    if run.latent:
        del base["head_dim"]
        base.update(num_key_value_heads=c["a"], q_lora_rank=run.q_rank or None, kv_lora_rank=LATENT["kv_rank"],
                    qk_nope_head_dim=LATENT["nope"], qk_rope_head_dim=LATENT["rope"], v_head_dim=LATENT["dv"])
    return {**more, **base}


def build(run):
    c, config = SHAPES[run.shape], config_of(run)
    torch.set_default_dtype(config.params_dtype)
    spec = get_gpt_layer_local_spec(num_experts=c["E"] if run.experts else None, normalization=config.normalization,
                                    qk_layernorm=run.latent and run.norms, multi_latent_attention=run.latent)
    if run.latent:
        spec = with_stand_ins(spec)
    with torch.device("cuda"):
        model = GPTModel(config, spec, vocab_size=c["v"], max_sequence_length=c["s"], position_embedding_type="rope",
                         share_embeddings_and_output_weights=run.tied)
        for adapt in dense.ADAPT:
            adapt(run, model)
    torch.set_default_dtype(torch.float32)
    if run.precision == "bf16":
        model.bfloat16 = lambda: model  # it is
        model = dense.Float16Module(config, model)
    more = dense.DistributedDataParallelConfig(grad_reduce_in_fp32=run.precision == "bf16",
                                               use_distributed_optimizer=run.zero > 0)
    return dense.DistributedDataParallel(config, more, model), config, settings_of(run)


dense_config, dense_setup = dense.config_of, dense.setup_of


def setup_of(run):
    words = dense_setup(run)
    if run.experts:
        words.update(ep=run.ep, etp=run.etp, moe_dispatcher=run.dispatcher)
        if run.fp32:
            words["moe_router_dtype"] = "fp32"
        if run.aux != "none":
            words["moe_aux_loss"] = run.aux
    if run.latent:
        words.update(implementation="megatron", attention="flash", gpu="h100-80gb", grouped_gemm=False)
    if run.modules:
        words.update(recompute="selective", recompute_modules=run.modules)
    return words


def initialize(run):
    def call(**more):
        return make_groups(expert_model_parallel_size=run.ep, expert_tensor_parallel_size=run.etp, **more)

    return call


make_groups = parallel_state.initialize_model_parallel


def record(run):
    c = SHAPES[run.shape]
    dense.parallel_state.initialize_model_parallel = initialize(run)
    Local.share = c["k"] / c["E"] if run.experts else 0
    core = dense.Core(run)
    first, later = core.measure()
    if run.latent and run.tp > 1:
        first, later = [], []
    print(run, file=sys.stderr, flush=True)
    return dict(config=core.settings, setup=setup_of(run), parameters=core.parameters, weight_bytes=core.weights,
                kept_bytes=sum(r[0] for r in core.kept.values()), first=first, later=later)


dense.SHAPES, dense.build, dense.Local = SHAPES, build, Local


def runs():
    for dispatcher in ("alltoall", "allgather"):
        base = dict(dispatcher=dispatcher)
        yield Run(**base)
        yield Run(**base, ep=4, copies=4)
        two = dict(base, ep=2, copies=2)
        shards = dict(base, tp=2, sequence=True)
        yield Run(**shards, ep=2, copies=2, shape="wide")
        yield Run(**shards, ep=2, etp=2, copies=2, shape="wide", fp32=True)
        yield Run(**shards, etp=2, shape="one", grad_accum=2)
        yield Run(**base, ep=4, copies=4, shape="one")
        yield Run(**two)
        yield Run(**two, fp32=True)
        yield Run(**two, recompute="selective")
        yield Run(**two, recompute="full", shape="short")
        for modules in ("moe", "shared_experts"):
            yield Run(**two, modules=modules)
        yield Run(**two, modules="core_attn,moe,mlp", shape="short")
    two = dict(ep=2, copies=2)
    for aux in ("aux_loss", "seq_aux_loss", "global_aux_loss"):
        yield Run(**two, aux=aux)
    yield Run(**two, aux="aux_loss", fp32=True)
    yield Run(**two, score="sigmoid", bias=True, fp32=True, aux="seq_aux_loss")
    yield Run(**two, score="sigmoid", bias=True)
    for tp, sequence in ((1, False), (2, True), (4, True)):
        base = dict(latent=True, experts=False, tp=tp, sequence=sequence)
        yield Run(**base)
        yield Run(**base, q_rank=128)
        if tp == 1:
            yield Run(**base, q_rank=128, modules="core_attn")
    yield Run(latent=True, q_rank=128, **two)


COMMAND = "PYTHONPATH=MEGATRON python tests/oracle/megatron_moe.py tests/golden/oracle/steps"


def main(folder):
    head, rows = dict(torch=torch.__version__, megatron_core=dense.CORE, command=COMMAND), []
    for run in runs():
        rows.append(record(run))
        (folder / "megatron_moe.json").write_text(step.dump(head, rows))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
