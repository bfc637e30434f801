/*
 * Owns which of Hugging Face's classes can be spread over ranks, and how: their
 * own layers know of one rank, and a library beside them does the rest. Changes
 * nothing.
 */
#include "spec/resolve.h"

#include "base/count.h"
#include "base/unit.h"

#include <inttypes.h>

#include "base/banned.h"

/* ---- Ulysses ---- */

/* Classes that call attention by name (ALL_ATTENTION_FUNCTIONS), which is where
 * UlyssesSPAttentionHF stands, and whose configuration says how many heads of
 * keys there are, all of one width: read in transformers 5.23 and DeepSpeed
 * 0.19.8 (runtime/sequence_parallel/ulysses_sp.py). */
static bool calls_by_name(enum family family)
{
    static const enum family some[] = {
        FAM_DECODER,     FAM_LLAMA,      FAM_MISTRAL,     FAM_QWEN2,
        FAM_QWEN3,       FAM_QWEN2_MOE,  FAM_QWEN3_MOE,   FAM_GEMMA,
        FAM_GEMMA2,      FAM_GEMMA3,     FAM_PHI,         FAM_PHI3,
        FAM_OLMO,        FAM_OLMO2,      FAM_OLMO3,       FAM_OLMOE,
        FAM_COHERE,      FAM_COHERE2,    FAM_MIXTRAL,     FAM_GRANITE,
        FAM_STABLELM,    FAM_GRANITEMOE, FAM_STARCODER2,  FAM_GLM,
        FAM_GLM4,        FAM_GLM4_MOE,   FAM_SMOLLM3,     FAM_SEED_OSS,
        FAM_ERNIE,       FAM_ERNIE_MOE,  FAM_MINISTRAL,   FAM_HUNYUAN,
        FAM_DOTS1,       FAM_NEMOTRON,   FAM_EXAONE4,     FAM_ARCEE,
        FAM_HELIUM,      FAM_MINISTRAL3, FAM_CWM,         FAM_JAIS2,
        FAM_HYPERCLOVAX, FAM_MINIMAX_M2, FAM_SOLAR_OPEN,  FAM_FLEX_OLMO,
        FAM_EXAONE_MOE,  FAM_VAULTGEMMA, FAM_GRANITEMOES,
    };
    return IS_AMONG(family, some);
}

static void refuse_exchange(const struct run *r, const struct spec *s,
                            const char *what, struct diag *d)
{
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_CP, "%s has no %s",
                    run_rings(r) ? "Accelerate's context parallelism"
                                 : "UlyssesSPAttentionHF",
                    what);
    if (spec_is_language(s) && s->decoder_layers == 0)
        diag_hint(e, "use --framework megatron, or leave cp out");
    else
        diag_hint(e, "leave cp out");
}

static const char *unexchanged(const struct spec *s)
{
    if (s->vision != NULL || !spec_is_language(s) || s->bidirectional
        || s->decoder_layers > 0)
        return "models but decoders of words";
    if (s->kv_rank > 0)
        return "latent attention, whose keys and values differ in width";
    if (s->mixer != MIX_ATTENTION)
        return "layers that run along the sequence";
    if (!calls_by_name(s->family))
        return "way into the attention of this family's class";
    return NULL;
}

/* A rank has whole heads, of keys at least one, that others may have too. */
static void check_exchanged_heads(const struct run *r, const struct spec *s,
                                  struct diag *d)
{
    const uint64_t n = r->cp;
    const uint64_t kv = s->kv_heads;
    if (s->heads % n == 0 && (kv % n == 0 || n % kv == 0))
        return;
    const bool queries = s->heads % n != 0;
    const uint64_t heads = queries ? s->heads : kv;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_CONFLICT, KEY_CP,
                    "%" PRIu64 " %s %s not split over cp %" PRIu64
                    " ranks that exchange them",
                    heads, queries ? "attention" : "key-value",
                    heads == 1 ? "head does" : "heads do", n);
    resolve_hint_divisors(e, gcd_u64(s->heads, r->gpus));
}

static void check_exchange(const struct run *r, const struct spec *s,
                           struct diag *d)
{
    const char *what = unexchanged(s);
    memplan_error *e = NULL;
    if (what != NULL) {
        refuse_exchange(r, s, what, d);
        return;
    }
    if (r->attention == ATTN_EAGER) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_ATTENTION,
                        "attention 'eager' with cp_comm 'a2a', which DeepSpeed "
                        "refuses");
        diag_hint(e, "use --attention flash or sdpa");
    } else if (r->attention == ATTN_SDPA && s->sliding_layers > 0
               && s->sliding_window < r->seq_len) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_ATTENTION,
                        "attention 'sdpa' with cp_comm 'a2a', which drops the "
                        "masks that windows are made by");
        diag_hint(e, "use --attention flash");
    }
    check_exchanged_heads(r, s, d);
}

/* ---- Accelerate's context parallelism: a ring ---- */

/* _prepare_context_parallel_inputs of transformers' Trainer, and accelerate's
 * _attach_context_parallel_hooks, refuse the others (transformers 5.23,
 * accelerate 1.15); its mesh is FSDP2's. */
static void check_ring(const struct run *r, const struct spec *s,
                       struct diag *d)
{
    const char *what = unexchanged(s);
    memplan_error *e = NULL;
    if (what != NULL) {
        refuse_exchange(r, s, what, d);
    } else if (r->engine != ENGINE_FSDP2) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_CP_COMM,
                        "Accelerate's context parallelism is of FSDP2 alone");
        diag_hint(e, "use --framework fsdp --engine fsdp2, or --cp-comm a2a");
    } else if (r->attention != ATTN_SDPA) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_ATTENTION,
                        "transformers' Trainer has context parallelism with "
                        "attention sdpa alone");
        diag_hint(e, "use --attention sdpa, or --cp-comm a2a");
    } else if (s->sliding_layers > 0) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_CP_COMM,
                        "sliding windows, whose masks Accelerate's context "
                        "parallelism would drop");
        diag_hint(e, "use --cp-comm a2a --attention flash");
    } else if (r->prec.compute == DT_FP32) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_PRECISION,
                        "context parallelism of the kernel that takes 32 bits "
                        "is not modelled");
        diag_hint(e, "use --precision bf16-mixed");
    }
}

/* ---- tensor parallelism ---- */

/* base_model_tp_plan of transformers 5.23: q, k, v, gate and up by columns, o
 * and down by rows, nothing gathered in between. */
static bool has_plain_plan(enum family family)
{
    static const enum family some[] = {
        FAM_DECODER,    FAM_LLAMA,       FAM_MISTRAL,    FAM_QWEN2,
        FAM_QWEN3,      FAM_GEMMA,       FAM_GEMMA2,     FAM_GEMMA3,
        FAM_OLMO,       FAM_COHERE,      FAM_COHERE2,    FAM_GRANITE,
        FAM_STARCODER2, FAM_SMOLLM3,     FAM_SEED_OSS,   FAM_ERNIE,
        FAM_ARCEE,      FAM_HELIUM,      FAM_MINISTRAL,  FAM_NEMOTRON,
        FAM_EXAONE4,    FAM_PHI,         FAM_MINISTRAL3, FAM_CWM,
        FAM_JAIS2,      FAM_HYPERCLOVAX, FAM_VAULTGEMMA,
    };
    return IS_AMONG(family, some);
}

/* One that gathers, or that is of experts. */
static bool has_other_plan(enum family family)
{
    static const enum family some[] = {
        FAM_PHI3,         FAM_OLMO2,       FAM_OLMO3,         FAM_OLMOE,
        FAM_GLM,          FAM_GLM4,        FAM_GLM4_MOE,      FAM_GPT_NEOX,
        FAM_MIXTRAL,      FAM_QWEN2_MOE,   FAM_QWEN3_MOE,     FAM_GRANITEMOE,
        FAM_PHIMOE,       FAM_JAMBA,       FAM_QWEN3_NEXT,    FAM_DEEPSEEK_V2,
        FAM_DOTS1,        FAM_ERNIE_MOE,   FAM_DEEPSEEK_V3,   FAM_DEEPSEEK_V32,
        FAM_MINICPM3,     FAM_LLAMA4,      FAM_QWEN2_VL,      FAM_QWEN2_5_VL,
        FAM_QWEN3_VL_MOE, FAM_QWEN3_5,     FAM_QWEN3_5_MOE,   FAM_YOUTU,
        FAM_MINIMAX_M2,   FAM_SOLAR_OPEN,  FAM_GLM4_MOE_LITE, FAM_FLEX_OLMO,
        FAM_EXAONE_MOE,   FAM_GRANITEMOES, FAM_GRANITE_HYB,   FAM_NEMOTRON_H,
        FAM_LFM2_MOE,
    };
    return IS_AMONG(family, some);
}

static bool check_plan(const struct spec *s, struct diag *d)
{
    if (s->vision == NULL && has_plain_plan(s->family))
        return true;
    const bool other = s->vision != NULL || has_other_plan(s->family);
    memplan_error *e = setup_error(
        d, MEMPLAN_E_UNSUPPORTED, KEY_TP,
        other ? "the tensor-parallel plan of a '%s' model is not modelled yet"
              : "transformers has no tensor-parallel plan for a '%s' model",
        s->model_type);
    const bool elsewhere = spec_is_language(s) && s->mixer == MIX_ATTENTION;
    diag_hint(e, elsewhere ? "use --framework megatron, or leave tp out"
                           : "leave tp out");
    return false;
}

/* Weights that are DTensors already: FSDP 2 shards them further, nothing else
 * takes them. */
static void check_plan_engine(const struct run *r, struct diag *d)
{
    memplan_error *e = NULL;
    if (r->engine == ENGINE_DEEPSPEED) {
        e = setup_error(
            d, MEMPLAN_E_UNSUPPORTED, KEY_TP,
            "DeepSpeed's AutoTP (tp %" PRIu64 ") is not modelled yet", r->tp);
        diag_hint(e, "use --framework fsdp --engine fsdp2, or megatron");
    } else if (r->engine == ENGINE_FSDP
               || (r->engine == ENGINE_DDP && r->dp * r->cp > 1)) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_TP,
                        "tp %" PRIu64 " with %s, which takes no DTensors",
                        r->tp, r->engine == ENGINE_DDP ? "DDP" : "FSDP 1");
        diag_hint(e, "use --framework fsdp --engine fsdp2");
    }
}

static const char *beside_plan(const struct run *r)
{
    return r->cp > 1                    ? "cp"
           : r->lora_rank > 0           ? "lora_rank"
           : r->impl == IMPL_HF_LIGER   ? "Liger's kernels"
           : r->loss != LOSS_STANDARD   ? "loss but 'standard'"
           : r->sequence_parallel       ? "sequence_parallel"
           : run_has_8bit_moments(r)    ? "8-bit optimizers"
           : r->optimizer == OPT_GALORE ? "optimizer 'galore'"
           : r->optimizer == OPT_MUON   ? "optimizer 'muon'"
                                        : NULL;
}

static void check_plan_beside(const struct run *r, struct diag *d)
{
    const char *what = beside_plan(r);
    if (what == NULL)
        return;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_TP,
                    "tp %" PRIu64 " of Hugging Face's layers beside %s is not "
                    "modelled yet",
                    r->tp, what);
    diag_hint(e, "leave one of the two out");
}

/* ---- context parallelism of Transformer Engine ---- */

static bool has_short_window(const struct run *r, const struct spec *s)
{
    return s->sliding_layers > 0 && s->sliding_window < r->seq_len;
}

struct heads {
    uint64_t a, kv;
};

/* That tp leaves a rank. */
static struct heads heads_of(const struct run *r, const struct spec *s)
{
    const uint64_t keys = s->kv_rank > 0 ? s->heads : s->kv_heads;
    return (struct heads){ max_u64(s->heads / r->tp, 1),
                           max_u64(keys / r->tp, 1) };
}

/* AttnFuncWithCPAndQKVOA2A asserts it. */
static bool exchanges_evenly(const struct run *r, const struct spec *s)
{
    const struct heads n = heads_of(r, s);
    return n.a % r->cp == 0 && n.kv % r->cp == 0;
}

static void no_even_exchange(const struct run *r, const struct spec *s,
                             struct diag *d)
{
    const struct heads all = heads_of(r, s);
    const bool queries = all.a % r->cp != 0;
    const uint64_t n = queries ? all.a : all.kv;
    memplan_error *e = setup_error(
        d, MEMPLAN_E_CONFLICT, KEY_CP_COMM,
        "%" PRIu64 " %s head%s a rank, which cp %" PRIu64
        " ranks cannot share out",
        n, queries ? "attention" : "key-value", n == 1 ? "" : "s", r->cp);
    if (s->attention_sinks)
        diag_hint(e, "leave cp out");
    else
        diag_hint(e, "use --cp-comm %sall_gather",
                  has_short_window(r, s) ? "" : "p2p or ");
}

/* What attn_forward_func_with_cp and get_attention_backend leave out
 * (attention/dot_product_attention/context_parallel.py, utils.py). */
static void check_cut_attention(const struct run *r, const struct spec *s,
                                struct diag *d)
{
    char comm[RESOLVE_TEXT_MAX];
    memplan_error *e = NULL;
    if (r->attention == ATTN_EAGER) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_ATTENTION,
                        "attention 'eager' with cp %" PRIu64
                        ", which Transformer Engine's unfused attention does "
                        "not know",
                        r->cp);
        diag_hint(e, "use --attention flash with 16-bit numbers, or leave cp "
                     "out");
    } else if (s->attention_sinks && r->cp_comm != CP_A2A) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_CP_COMM,
                        "cp_comm '%s' with attention sinks, which Transformer "
                        "Engine has with a2a alone",
                        resolve_text(r, KEY_CP_COMM, comm));
        diag_hint(e, exchanges_evenly(r, s) ? "use --cp-comm a2a"
                                            : "leave cp out");
    } else if (r->cp_comm == CP_P2P && has_short_window(r, s)) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_CP_COMM,
                        "cp_comm 'p2p' with sliding windows, which Transformer "
                        "Engine refuses");
        diag_hint(e, "use --cp-comm %sall_gather",
                  exchanges_evenly(r, s) ? "a2a or " : "");
    }
    if (r->cp_comm == CP_A2A && !exchanges_evenly(r, s))
        no_even_exchange(r, s, d);
}

/* torchtitan, torchtune: torch's context_parallel. */
static bool no_such_exchange(const struct run *r)
{
    return run_has_torch_rings(r) ? r->cp_comm == CP_A2A : r->cp_comm != CP_P2P;
}

static void refuse_comm(const struct run *r, struct diag *d)
{
    char comm[RESOLVE_TEXT_MAX], impl[RESOLVE_TEXT_MAX];
    memplan_error *e = setup_error(
        d, MEMPLAN_E_UNSUPPORTED, KEY_CP_COMM,
        "cp_comm '%s' with implementation '%s', which sends keys and "
        "values round%s",
        resolve_text(r, KEY_CP_COMM, comm),
        resolve_text(r, KEY_IMPLEMENTATION, impl),
        run_has_torch_rings(r) ? " or gathers them" : "");
    diag_hint(e, "use --cp-comm p2p%s, or --framework megatron%s",
              run_has_torch_rings(r) ? " or all_gather" : "",
              r->cp_comm == CP_A2A ? " or deepspeed" : "");
}

void resolve_check_ranks(const struct run *r, const struct spec *s,
                         struct diag *d)
{
    if (run_is_litgpt(r)) /* resolve_litgpt.c */
        return;
    /* of convolutions: resolve_stacks.c; without a plan no engine helps */
    if (r->tp > 1 && run_is_hf(r) && !spec_is_convnet(s) && check_plan(s, d)) {
        check_plan_engine(r, d);
        check_plan_beside(r, d);
    }
    if (run_exchanges_heads(r))
        check_exchange(r, s, d);
    else if (run_rings(r))
        check_ring(r, s, d);
    else if (r->cp > 1 && r->impl == IMPL_MEGATRON)
        check_cut_attention(r, s, d);
    else if (r->cp > 1 && !resolve_is_megatron(r) && !run_is_hf(r)
             && no_such_exchange(r))
        refuse_comm(r, d);
}
