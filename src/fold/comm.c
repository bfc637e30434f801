/*
 * Bytes that one GPU puts on the wire in one optimizer step, by purpose. Ring
 * algorithms: an all-reduce of S bytes over n ranks sends 2 (n-1)/n S, an
 * all-gather, reduce-scatter or all-to-all (n-1)/n S. Knows no time.
 */
#include "fold/fold.h"

#include "fold/states.h"

static double ring(uint64_t n)
{
    return n <= 1 ? 0 : (double)(n - 1) / (double)n;
}

static void add(struct comm_result *r, const char *key, const char *label,
                const char *collective, const char *group, double bytes)
{
    if (bytes <= 0 || r->n == COMM_ROW_MAX)
        return;
    r->row[r->n++] = (struct comm_row){ key, label, collective, group, bytes,
                                        "communication" };
    r->total += bytes;
}

/* ---- data parallel: gradients out, parameters in ---- */

static void data_parallel(struct comm_result *r, const struct comm_input *in)
{
    const struct run *run = in->run;
    const uint64_t n = run->dp * run->cp;
    const double p = (double)(in->dense_elems + in->expert_elems);
    const double grad = p * (double)dtype_size(run->prec.reduce) * ring(n);
    const double weight =
        p * (double)dtype_size(run_layer_dtype(run)) * ring(n);
    const double m = (double)run->grad_accum;
    if (n <= 1)
        return;
    switch (run_sharding(run)) {
    case SHARDING_NONE:
        add(r, "gradients", "gradients", "all-reduce", "data parallel",
            2 * grad);
        return;
    case SHARDING_FLAT: {
        /* DeepSpeed's stage 2 reduces after every micro-batch */
        const bool each = run->engine == ENGINE_DEEPSPEED && run->zero == 2;
        add(r, "gradients", "gradients", "reduce-scatter", "data parallel",
            grad * (each ? m : 1));
        add(r, "parameters", "updated parameters", "all-gather",
            "data parallel", weight);
        return;
    }
    case SHARDING_TENSOR:
    case SHARDING_ROWS: {
        const bool kept = run->engine != ENGINE_DEEPSPEED && run->zero == 2;
        add(r, "parameters_forward", "parameters for forward", "all-gather",
            "data parallel", weight * m);
        if (!kept)
            add(r, "parameters_backward", "parameters for backward",
                "all-gather", "data parallel", weight * m);
        add(r, "gradients", "gradients", "reduce-scatter", "data parallel",
            grad * m);
        return;
    }
    }
}

/* ---- inside the layers ---- */

static uint64_t group_size(const struct run *run, enum comm_group group)
{
    switch (group) {
    case COMM_TP:
        return run->tp;
    case COMM_CP:
        return run->cp;
    case COMM_EP:
        return run->ep;
    }
    return 1;
}

static double op_bytes(const struct program *p, const struct op *op,
                       const struct run *run)
{
    const double f = ring(group_size(run, op->group));
    const double in = (double)p->tensor[op->in[0]].bytes;
    const double out = (double)p->tensor[op->out[0]].bytes;
    switch (op->kind) {
    case OP_ALL_REDUCE:
        return 2 * f * in;
    case OP_ALL_GATHER:
        return f * out;
    case OP_REDUCE_SCATTER:
    case OP_ALL_TO_ALL:
        return f * in;
    case OP_EMBEDDING:
    case OP_LINEAR:
    case OP_MATMUL:
    case OP_ADD:
    case OP_MUL:
    case OP_SCALE:
    case OP_NEG:
    case OP_DIV:
    case OP_POW:
    case OP_MEAN:
    case OP_RSQRT:
    case OP_SIGMOID:
    case OP_TANH:
    case OP_EXP:
    case OP_SOFTMAX:
    case OP_LOG_SOFTMAX:
    case OP_NLL_LOSS:
    case OP_ACTIVATION:
    case OP_RELU:
    case OP_CAST:
    case OP_COPY:
    case OP_VIEW:
    case OP_CAT:
    case OP_DROPOUT:
    case OP_LAYER_NORM:
    case OP_RMS_NORM:
    case OP_FLASH_ATTENTION:
    case OP_SDPA:
    case OP_SWIGLU:
    case OP_CROSS_ENTROPY:
    case OP_FUSED_CROSS_ENTROPY:
    case OP_WHERE:
    case OP_TOPK:
    case OP_INDEX:
    case OP_INDEX_ADD:
    case OP_QUANTIZE:
    case OP_RELEASE:
    case OP_KIND_COUNT:
        return 0;
    }
    return 0;
}

/* Forward, the mirrored collective of backward, and once more for what is
 * recomputed. */
static void collectives(struct comm_result *r, const struct comm_input *in)
{
    const struct program *p = in->program;
    const struct run *run = in->run;
    const bool again = run->recompute == RECOMP_FULL;
    double tp = 0, ep = 0;
    for (uint32_t b = 0; b < p->n_blocks; b++) {
        const bool layer = p->block[b].kind == BLOCK_LAYER;
        double times = layer ? 0 : 1;
        for (uint64_t l = 0; layer && l < in->layers; l++)
            times += p->layer_block[l] == b ? 1 : 0;
        for (uint32_t i = 0; i < p->block[b].op_count; i++) {
            const struct op *op = &p->op[p->block[b].op_first + i];
            const double bytes = times * op_bytes(p, op, run)
                                 * (layer && again ? 3 : 2);
            if (bytes > 0 && op->group == COMM_EP)
                ep += bytes;
            else if (bytes > 0)
                tp += bytes;
        }
    }
    const double m = (double)run->grad_accum;
    add(r, "tensor_parallel", "activations between tensor-parallel ranks",
        run->sequence_parallel ? "all-gather, reduce-scatter" : "all-reduce",
        "tensor parallel", tp * m);
    add(r, "expert_parallel", "tokens to experts and back", "all-to-all",
        "expert parallel", ep * m);
}

static void context_parallel(struct comm_result *r,
                             const struct comm_input *in, double kv_bytes)
{
    const struct run *run = in->run;
    if (run->cp <= 1)
        return;
    /* ring: k and v of the local chunk go round; backward takes k, v and
       their gradients */
    const double hops = (double)(run->cp - 1);
    add(r, "context_parallel", "keys and values", "point-to-point",
        "context parallel",
        3 * hops * kv_bytes * (double)in->layers * (double)run->grad_accum);
}

static void pipeline(struct comm_result *r, const struct comm_input *in)
{
    const struct run *run = in->run;
    if (run->pp <= 1)
        return;
    const struct program *p = in->program;
    const struct block *first = &p->block[p->layer_block[0]];
    const double hidden = (double)p->tensor[first->input].bytes;
    add(r, "pipeline", "hidden states and their gradients",
        "point-to-point", "pipeline",
        2 * hidden * (double)run->grad_accum * (double)run->vpp);
}

static double kv_bytes(const struct program *p)
{
    const struct block *b = &p->block[p->layer_block[0]];
    for (uint32_t i = 0; i < b->op_count; i++) {
        const struct op *op = &p->op[b->op_first + i];
        if (op->kind == OP_FLASH_ATTENTION || op->kind == OP_SDPA)
            return (double)p->tensor[op->in[1]].bytes
                   + (double)p->tensor[op->in[2]].bytes;
    }
    return 0;
}

void fold_comm(struct comm_result *out, const struct comm_input *in)
{
    *out = (struct comm_result){ 0 };
    data_parallel(out, in);
    collectives(out, in);
    context_parallel(out, in, kv_bytes(in->program));
    pipeline(out, in);
}
