/*
 * Counts floating-point operations of matrix products and attention; nothing
 * else counts, as in every published MFU. A product of m x k by k x n is
 * 2 m n k. Backward costs one product for each operand that needs a gradient.
 */
#include "fold/fold.h"
#include "fold/schedule.h"

#include "base/str.h"

#include <math.h>

#include "base/banned.h"

/* Forward products again in backward: one for each operand's gradient. */
static double backward_factor(const struct program *p, const struct op *op)
{
    double factor = 0;
    for (unsigned i = 0; i < op->n_in && i < 2; i++) {
        const struct tensor *t = &p->tensor[op->in[i]];
        if (t->role == ROLE_PARAM ? t->trainable : t->needs_grad)
            factor += 1;
    }
    return factor;
}

double op_backward_products(const struct program *p, const struct op *op)
{
    switch (op->kind) {
    case OP_LINEAR:
    case OP_CONV:
    case OP_MATMUL:
    case OP_FUSED: /* a loss over the head's chunks; else without products */
    case OP_FUSED_CROSS_ENTROPY: return backward_factor(p, op);
    case OP_FLASH_ATTENTION:
    case OP_SDPA:
    case OP_FUNCTION:
    case OP_LOOP:
    case OP_SOLVE: return p->tensor[op->in[0]].needs_grad ? 2 : 0;
    case OP_EMBEDDING:
    case OP_ADD:
    case OP_MUL:
    case OP_SCALE:
    case OP_NEG:
    case OP_DIV:
    case OP_POW:
    case OP_MEAN:
    case OP_RSQRT:
    case OP_TANH:
    case OP_SOFTMAX:
    case OP_MASKED_SOFTMAX:
    case OP_LOG_SOFTMAX:
    case OP_NLL_LOSS:
    case OP_ACTIVATION:
    case OP_PYTHON_GELU:
    case OP_RELU:
    case OP_CAST:
    case OP_COPY:
    case OP_VIEW:
    case OP_CAT:
    case OP_CUMSUM:
    case OP_DROPOUT:
    case OP_DROPOUT_ADD:
    case OP_LAYER_NORM:
    case OP_BATCH_NORM:
    case OP_MAX_POOL:
    case OP_AVG_POOL:
    case OP_RMS_NORM:
    case OP_SWIGLU:
    case OP_CROSS_ENTROPY:
    case OP_COMPILED_CROSS_ENTROPY:
    case OP_WHERE:
    case OP_TOPK:
    case OP_INDEX:
    case OP_QUANTIZE:
    case OP_RELEASE:
    case OP_ALL_REDUCE:
    case OP_ALL_GATHER:
    case OP_REDUCE_SCATTER:
    case OP_ALL_TO_ALL:
    case OP_KIND_COUNT: return 0;
    }
    return 0;
}

bool op_runs_again(const struct op *op, const struct run *run,
                   enum block_kind kind)
{
    switch (run->recompute) {
    case RECOMP_FULL:
        return (kind == BLOCK_LAYER && !op->outside)
               || op->region == REGION_LAYER;
    case RECOMP_SELECTIVE:
        return op->region != 0
               && (run->recompute_modules >> (op->region - 1) & 1) != 0;
    case RECOMP_OPS: return kind == BLOCK_LAYER && !op->checkpointed;
    case RECOMP_NONE:
    case RECOMPUTE_COUNT: return false;
    }
    return false;
}

/* torch.utils.checkpoint's default since PyTorch 2.1; torchtitan says no
 * (distributed/activation_checkpoint.py), Megatron's own is reentrant. */
bool checkpoint_stops_early(const struct run *run)
{
    return run->recompute == RECOMP_FULL && !run->recompute_reentrant
           && run->impl != IMPL_TORCHTITAN;
}

uint32_t ops_run_again(const struct program *p, const struct block *b,
                       const struct run *run)
{
    if (!checkpoint_stops_early(run) || b->kind != BLOCK_LAYER
        || run->recompute_granularity != 1)
        return b->op_count;
    for (uint32_t end = b->op_count; end > 0; end--) {
        const struct op *op = &p->op[b->op_first + end - 1];
        bool result = false;
        if (!op->outside && op_saves_any(p, op, &result))
            return result ? end : end - 1;
    }
    return b->op_count;
}

/* Megatron's ranks send tokens to experts and are sent as many: what a rank
 * computes of those is what a whole model does of its own. */
bool flops_are_whole(const struct run *run)
{
    const bool experts_alone =
        run_is_megatron(run) && run->etp <= 1 && !(run->moe_imbalance > 1);
    return run->tp * run->cp == 1 && (run->ep == 1 || experts_alone);
}

uint32_t ops_with_weights(const struct program *p, const struct block *b)
{
    uint32_t n = 0;
    for (const struct op *op = &p->op[b->op_first], *end = op + b->op_count;
         op < end; op++) {
        bool any = false;
        for (unsigned i = 0; i < op->n_in; i++) {
            const struct tensor *t = &p->tensor[op->in[i]];
            any = any || (t->role == ROLE_PARAM && t->trainable);
        }
        n += any;
    }
    return n;
}

/* Of the layers' backwards that PyTorch's pipelines split, the share. */
static double split_share(const struct run *run, uint64_t layers)
{
    double split = 0;
    if (run->recompute != RECOMP_FULL || !schedule_keeps_graph(run))
        return 0;
    for (uint64_t r = 0; r < run->pp; r++)
        for (uint64_t c = 0; c < run_chunks(run); c++)
            split += schedule_split_share(run, r, c)
                     * (double)(run_layers_before(run, r, c + 1)
                                - run_layers_before(run, r, c));
    return split / (double)layers;
}

struct block_flops {
    double causal, full; /* forward */
    double back_causal, back_full;
    double again;             /* recomputed, causal */
    double idle;              /* forward, backward and again */
    double attention, linear; /* forward, causal */
};

static void sum_block(struct block_flops *s, const struct program *p,
                      const struct block *b, const struct run *run)
{
    *s = (struct block_flops){ 0 };
    const uint32_t again = ops_run_again(p, b, run);
    const struct op *op = &p->op[b->op_first];
    for (uint32_t i = 0; i < b->op_count; i++, op++) {
        if (op->flop_full == 0)
            continue;
        const double back = op_backward_products(p, op);
        s->causal += op->flop_causal;
        s->full += op->flop_full;
        s->back_causal += back * op->flop_causal;
        s->back_full += back * op->flop_full;
        if (op->core_attention)
            s->attention += op->flop_causal;
        else
            s->linear += op->flop_causal;
        s->idle += (1 + back) * op->flop_idle;
        if (i >= again || !op_runs_again(op, run, b->kind))
            continue;
        s->again += op->flop_causal + op->flop_idle;
    }
}

void fold_flops(struct flops_result *out, const struct program *p,
                const struct run *run, const struct params_result *params)
{
    *out = (struct flops_result){ .six_n = 6.0 * (double)params->active };
    struct block_flops sum[BLOCK_MAX];
    const double tokens = (double)p->tokens;
    /* the first layers of a stage are the recomputed ones */
    const double share =
        run->recompute == RECOMP_SELECTIVE || run->pp == 0 || p->layers == 0
            ? 1
            : (double)min_u64(run->recompute_layers * run->pp, p->layers)
                  / (double)p->layers;
    const double split = split_share(run, p->layers);
    for (uint32_t b = 0; b < p->n_blocks; b++) {
        sum_block(&sum[b], p, &p->block[b], run);
        if (split > 0)
            sum[b].again *= 1 + split * ops_with_weights(p, &p->block[b]);
        const double n = (double)program_times(p, b) / tokens;
        out->forward_causal += n * sum[b].causal;
        out->forward_full += n * sum[b].full;
        out->model_causal += n * (sum[b].causal + sum[b].back_causal);
        out->model_full += n * (sum[b].full + sum[b].back_full);
        out->hardware_causal += n
                                * (sum[b].causal + sum[b].back_causal
                                   + sum[b].idle + sum[b].again * share);
        out->attention_forward_causal += n * sum[b].attention;
        if (p->block[b].kind == BLOCK_HEAD)
            out->head_forward += n * sum[b].causal;
        else
            out->linear_forward += n * sum[b].linear;
    }
}

/* ---- explanation ---- */

static void add(struct explanation *x, const char *name, double value,
                const char *formula, const char *numbers, unsigned depth)
{
    explain_add(x, (struct explain_entry){ .section = "FLOPs per token",
                                           .name = name,
                                           .unit = "FLOP",
                                           .value = value,
                                           .formula = formula,
                                           .numbers = numbers,
                                           .equation = "flops",
                                           .source = "",
                                           .depth = depth });
}

static void explain_op(struct explanation *x, const struct program *p,
                       const struct block *b, const struct op *op)
{
    const double tokens = (double)p->tokens;
    const bool core = op->core_attention;
    add(x, arena_printf(x->arena, "%s: %s", b->name, op->name),
        op->flop_causal / tokens,
        core ? "forward, causal half of 2 m n k" : "forward, 2 m n k",
        NUMBERS(x->arena,
                p->tokens == 1 ? "# / # token; backward # times that"
                               : "# / # tokens; backward # times that",
                op->flop_causal, tokens, op_backward_products(p, op)),
        2);
}

bool explain_flops(struct explanation *x, const struct flops_result *f,
                   const struct program *p, const struct params_result *params)
{
    struct arena *a = x->arena;
    if (isfinite(f->six_n))
        add(x, "6 N", f->six_n, "6 * N",
            arena_printf(a, "6 * %llu", (unsigned long long)params->active), 0);
    add(x, "forward and backward, causal", f->model_causal,
        "sum over products: forward + one for each gradient",
        NUMBERS(a, "linear #, attention #, head # forward", f->linear_forward,
                f->attention_forward_causal, f->head_forward),
        0);
    add(x, "forward and backward, full attention", f->model_full,
        "the same, the whole score matrix counted", "", 0);
    add(x, "hardware, with recomputation", f->hardware_causal,
        "causal + what is run again, and for tokens that it is not of",
        NUMBERS(a, "# + #", f->model_causal,
                f->hardware_causal - f->model_causal),
        0);
    for (uint32_t b = 0; b < p->n_blocks; b++)
        for (uint32_t i = 0; i < p->block[b].op_count; i++) {
            const struct op *op = &p->op[p->block[b].op_first + i];
            if (op->flop_full != 0)
                explain_op(x, p, &p->block[b], op);
        }
    return !x->failed && !a->failed;
}
