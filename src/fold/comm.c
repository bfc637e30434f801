/*
 * Bytes that one GPU puts on the wire in one optimizer step, by purpose. Ring
 * algorithms: an all-reduce of S bytes over n ranks sends 2 (n-1)/n S, an
 * all-gather, reduce-scatter or all-to-all (n-1)/n S. Knows no time.
 */
#include "fold/fold.h"

#include "fold/states.h"

#include "data/constants.h"

#include "base/banned.h"

static double ring(uint64_t n)
{
    return n <= 1 ? 0 : (double)(n - 1) / (double)n;
}

static void add(struct comm_result *r, struct comm_row row)
{
    if (row.bytes <= 0 || r->n == COMM_ROW_MAX)
        return;
    row.equation = "communication";
    r->row[r->n++] = row;
    r->total += row.bytes;
}

/* ---- data parallel: gradients out, parameters in ---- */

struct exchange {
    const char *key, *label, *collective;
    double bytes, ranks, times;
};

/* `times` messages of so many bytes round a ring. */
static void exchange(struct comm_result *r, struct exchange e)
{
    const double f = e.ranks > 1 ? (e.ranks - 1) / e.ranks : 0;
    add(r, (struct comm_row){ .key = e.key,
                              .label = e.label,
                              .collective = e.collective,
                              .group = "data parallel",
                              .bytes = e.bytes * f * e.times,
                              .formula = "bytes * (n-1)/n * messages",
                              .pattern = "# * # * #",
                              .factor = { e.bytes, f, e.times } });
}

struct names {
    const char *grads_key, *grads, *params_key, *params, *back_key, *back;
    const char *group_key, *group;
};

static const struct names dense_names = {
    "gradients",           "gradients",
    "parameters",          "parameters",
    "parameters_backward", "parameters for backward",
    "parameters_group",    "parameters, in groups of hpz_partition_size"
};
static const struct names expert_names = {
    "expert_gradients",
    "gradients of experts",
    "expert_parameters",
    "parameters of experts",
    "expert_parameters_backward",
    "parameters of experts for backward",
    "expert_parameters_group",
    "parameters of experts, in groups of hpz_partition_size"
};

/* Of weights on the wire, over their bytes: ZeRO++ sends a byte of each, and
 * scales. */
static double gathered_share(const struct run *run)
{
    return run_gathers_in_8_bits(run)
               ? (1 + (double)dtype_size(DT_FP32) / (double)QWZ_GROUP_ELEMS)
                     / (double)dtype_size(run->prec.param)
               : 1;
}

/* With second shards a step's first gather of a trained weight is over all
 * ranks, every other one inside a group. */
static void gather_second(struct comm_result *r, const struct run *run,
                          const struct comm_group_input *g,
                          const struct names *n)
{
    const double passes = 2 * (double)run->grad_accum;
    const double share = gathered_share(run);
    const double first =
        (double)g->trained * (double)dtype_size(run->prec.param) * share;
    exchange(r, (struct exchange){ n->params_key, n->params, "all-gather",
                                   first, (double)g->shard, 1 });
    exchange(
        r, (struct exchange){ n->group_key, n->group, "all-gather",
                              passes * (double)g->weight_bytes * share - first,
                              (double)run->hpz_partition_size, 1 });
}

/* Gathered whole for every pass (ZeRO-3, FSDP). */
static void gather(struct comm_result *r, const struct run *run,
                   const struct comm_group_input *g, const struct names *n)
{
    const bool kept = run->engine != ENGINE_DEEPSPEED && !run->reshard;
    const bool once = kept && run_reduces_last(run) && run_torch_pipelines(run);
    const double m = once ? 1 : (double)run->grad_accum;
    const double ranks = (double)g->shard;
    const double bytes = (double)g->weight_bytes * gathered_share(run);
    exchange(r, (struct exchange){ n->params_key, n->params, "all-gather",
                                   bytes, ranks, m });
    if (!kept)
        exchange(r, (struct exchange){ n->back_key, n->back, "all-gather",
                                       bytes, ranks, m });
}

/* qgZ: all-to-all in 4 bits inside a node, and of the node's sums between
 * nodes; scales of rows are not counted (coalesced_collectives.py,
 * all_to_all_quant_reduce). */
static void reduce_in_4_bits(struct comm_result *r, const struct run *run,
                             const struct comm_group_input *g,
                             const struct names *n)
{
    const double node = (double)run->gpus_per_node;
    const double bytes = (double)g->trained / 2, m = (double)run->grad_accum;
    exchange(r, (struct exchange){ n->grads_key, n->grads, "all-to-all", bytes,
                                   node, m });
    exchange(r, (struct exchange){ "gradients_nodes",
                                   "gradients between nodes, the node's sums",
                                   "all-to-all", bytes / node,
                                   (double)g->shard / node, m });
}

/* Gradients out, parameters in, for one group of weights. */
static void data_parallel(struct comm_result *r, const struct run *run,
                          const struct comm_group_input *g,
                          const struct names *n)
{
    const double size = (double)dtype_size(run->prec.reduce);
    const double grads = (double)g->trained * size;
    const double ranks = (double)g->ranks, shard = (double)g->shard;
    const enum sharding sharding = run_sharding(run);
    const bool whole = sharding == SHARDING_TENSOR || sharding == SHARDING_ROWS;
    /* DeepSpeed's stage 2, and whoever gathers, reduce every micro-batch,
       FSDP not under no_sync */
    const bool each = (whole && !run_reduces_last(run)) || run_zero_is(run, 2);
    const double m = each ? (double)run->grad_accum : 1;
    if (sharding == SHARDING_NONE) {
        exchange(r, (struct exchange){ n->grads_key, n->grads, "all-reduce",
                                       grads, ranks, 2 });
        return;
    }
    if (run_second_parts(run) != 0)
        gather_second(r, run, g, n);
    else if (whole)
        gather(r, run, g, n);
    else
        exchange(r, (struct exchange){ n->params_key, n->params, "all-gather",
                                       (double)g->weight_bytes, shard, 1 });
    if (run_reduces_in_4_bits(run)) {
        reduce_in_4_bits(r, run, g, n);
        return;
    }
    if (run_sums_whole(run)) {
        exchange(r, (struct exchange){ n->grads_key, n->grads, "all-reduce",
                                       grads, ranks, 2 * m });
        return;
    }
    exchange(r, (struct exchange){ n->grads_key, n->grads, "reduce-scatter",
                                   grads, shard, m });
    if (g->shard < g->ranks) /* hybrid: replicas of the shards agree; MiCS's
                                when all micro-batches are done (mics.py,
                                allreduce_mics_shard_grads) */
        exchange(r, (struct exchange){ "replicas", "gradients between replicas",
                                       "all-reduce", grads / shard,
                                       ranks / shard, run->mics ? 2 : 2 * m });
}

/* ---- inside the layers ---- */

static uint64_t group_size(const struct run *run, enum comm_group group)
{
    switch (group) {
    case COMM_TP: return run->tp;
    case COMM_CP: return run->cp;
    case COMM_EP: return run->ep;
    case COMM_ETP: return run->etp;
    }
    return 1;
}

/* What is sent in 8 bits has its gradient in 16 bits, or the other way round:
 * the mean of both ways. */
static double sent_bytes(const struct tensor *t)
{
    const double elems = (double)t->elems;
    const bool half = t->dtype == DT_FP8 || t->grad_in_8_bits;
    return half ? (elems + 2 * elems) / 2 : (double)t->bytes;
}

static double op_bytes(const struct program *p, const struct op *op,
                       const struct run *run)
{
    const double f = ring(group_size(run, op->group)); /* each way */
    if (f == 0)
        return 0;
    const double in = sent_bytes(&p->tensor[op->in[0]]);
    const double out = sent_bytes(&p->tensor[op->out[0]]);
    switch (op->kind) {
    case OP_ALL_REDUCE: return 2 * f * in;
    case OP_VIEW: /* the gradient of a part is gathered */
        return !op->one_way ? 0 : in > out ? f * in : 2 * f * in;
    case OP_ALL_GATHER: return f * out;
    case OP_REDUCE_SCATTER:
    case OP_ALL_TO_ALL: return f * in;
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
    case OP_CAT:
    case OP_DROPOUT:
    case OP_DROPOUT_ADD:
    case OP_LAYER_NORM:
    case OP_CONV:
    case OP_BATCH_NORM:
    case OP_MAX_POOL:
    case OP_AVG_POOL:
    case OP_RMS_NORM:
    case OP_FLASH_ATTENTION:
    case OP_SDPA:
    case OP_SWIGLU:
    case OP_CROSS_ENTROPY:
    case OP_COMPILED_CROSS_ENTROPY:
    case OP_FUSED_CROSS_ENTROPY:
    case OP_FUSED:
    case OP_FUNCTION:
    case OP_LOOP:
    case OP_SOLVE:
    case OP_CUMSUM:
    case OP_WHERE:
    case OP_TOPK:
    case OP_INDEX:
    case OP_QUANTIZE:
    case OP_RELEASE:
    case OP_KIND_COUNT: return 0;
    }
    return 0;
}

/* That a layer of this rank sees in a step. */
static double micro_batches(const struct run *run)
{
    return (double)run->grad_accum / (double)run_copies(run);
}

/* A gradient needs the whole that was gathered for the product after it, of
 * which Megatron keeps a shard. */
static bool gathers_again(const struct program *p, const struct block *b,
                          const struct op *op, const struct run *run)
{
    const struct op *end = &p->op[b->op_first + b->op_count];
    if (op->kind != OP_ALL_GATHER || op->group != COMM_TP
        || run->engine != ENGINE_MEGATRON)
        return false;
    for (const struct op *next = op + 1; next < end; next++)
        if (next->kind == OP_LINEAR)
            return next->in[0] == op->out[0] && op_keeps_shard(p, next)
                   && p->tensor[next->in[1]].trainable;
    return false;
}

/* Forward, the mirrored collective of backward, and once more for what is
 * recomputed. */
static double passes_of(const struct op *op, double again)
{
    if (!op->one_way)
        return 2 + again;
    return op->kind == OP_VIEW ? 1 : 1 + again;
}

static double again_of(const struct comm_input *in)
{
    return in->layers == 0 ? 0 : (double)in->recomputed / (double)in->layers;
}

/* A recompute region runs again, whichever layers do. */
static bool runs_again(const struct run *run, uint8_t region)
{
    return region != 0 && (run_regions(run) >> (region - 1) & 1) != 0;
}

/* Backward gathers the parts that ranks keep. */
static double distributed_checkpoints(const struct comm_input *in)
{
    const struct program *p = in->program;
    const struct run *run = in->run;
    if (!run->distributes_saved)
        return 0;
    const double n =
        (double)in->recomputed / (double)max_u64(run->recompute_granularity, 1);
    return n * ring(run->tp)
           * sent_bytes(&p->tensor[p->block[p->layer_block[0]].input]);
}

static void collectives(struct comm_result *r, const struct comm_input *in)
{
    const struct program *p = in->program;
    const struct run *run = in->run;
    const double again = again_of(in);
    const bool alone = run->tp * run->cp * run->ep * run->etp == 1;
    double tp = 0, ep = 0, cp = 0;
    for (uint32_t b = 0; b < p->n_blocks && !alone; b++) {
        const bool layer = p->block[b].kind == BLOCK_LAYER;
        double times = layer ? 0 : 1;
        for (uint64_t l = 0; layer && l < in->layers; l++)
            times += p->layer_block[l] == b ? 1 : 0;
        for (uint32_t i = 0; i < p->block[b].op_count; i++) {
            const struct op *op = &p->op[p->block[b].op_first + i];
            const double once = op_bytes(p, op, run);
            if (once == 0) /* most send nothing */
                continue;
            const double more = runs_again(run, op->region) ? 1
                                : layer                     ? again
                                                            : 0;
            const bool whole = gathers_again(p, &p->block[b], op, run);
            const double bytes =
                times * once * (passes_of(op, more) + (whole ? 1 : 0));
            switch (op->group) {
            case COMM_TP: tp += bytes; break;
            case COMM_CP: cp += bytes; break;
            case COMM_EP:
            case COMM_ETP: ep += bytes; break;
            }
        }
    }
    tp += distributed_checkpoints(in);
    const double m = micro_batches(run);
    const char *formula = "bytes of a micro-batch * micro-batches";
    add(r,
        (struct comm_row){ .key = "tensor_parallel",
                           .label = "activations between tensor-parallel ranks",
                           .collective = run->sequence_parallel
                                             ? "all-gather, reduce-scatter"
                                             : "all-reduce",
                           .group = "tensor parallel",
                           .bytes = tp * m,
                           .formula = formula,
                           .pattern = "# * #",
                           .factor = { tp, m } });
    add(r, (struct comm_row){ .key = "expert_parallel",
                              .label = "tokens to experts and back",
                              .collective = "all-to-all",
                              .group = "expert parallel",
                              .bytes = ep * m,
                              .formula = formula,
                              .pattern = "# * #",
                              .factor = { ep, m } });
    add(r, (struct comm_row){ .key = "context_parallel",
                              .label = "heads for tokens, and back",
                              .collective = "all-to-all",
                              .group = "context parallel",
                              .bytes = cp * m,
                              .formula = formula,
                              .pattern = "# * #",
                              .factor = { cp, m } });
}

/* Ring: k and v of the local chunk go round; backward takes k, v and their
 * gradients. Gathered ones are as many bytes: backward gathers again, and
 * scatters the sums of gradients. */
static void context_parallel(struct comm_result *r, const struct comm_input *in,
                             double kv_bytes)
{
    const struct run *run = in->run;
    const bool ring = run->cp_comm == CP_P2P;
    const bool twice = runs_again(run, 1 + REMOD_CORE_ATTN);
    const double again = twice ? 1 : again_of(in);
    const double hops = (3 + again) * (double)(run->cp - 1);
    const double layers = (double)in->layers, m = micro_batches(run);
    add(r, (struct comm_row){ .key = "context_parallel",
                              .label = "keys and values",
                              .collective = ring ? "point-to-point"
                                                 : "all-gather, reduce-scatter",
                              .group = "context parallel",
                              .bytes = hops * kv_bytes * layers * m,
                              .formula =
                                  "passes * (cp-1) * bytes of k, v * layers * "
                                  "micro-batches",
                              .pattern = "# * # * # * #",
                              .factor = { hops, kv_bytes, layers, m } });
}

/* Of a stage between two others. */
static void gathered_parts(struct comm_result *r, const struct run *run,
                           double bytes, double times)
{
    const double each = run->engine == ENGINE_DEEPSPEED ? 3 : 2;
    const double f = ring(run->tp);
    add(r, (struct comm_row){
               .key = "pipeline_parts",
               .label = "parts of hidden states and their gradients",
               .collective = "all-gather",
               .group = "tensor parallel",
               .bytes = each * bytes * f * times,
               .formula = "gathers * bytes of hidden states * (t-1)/t * "
                          "micro-batches",
               .pattern = "# * # * # * #",
               .factor = { each, bytes, f, times } });
}

static void pipeline(struct comm_result *r, const struct comm_input *in)
{
    const struct run *run = in->run;
    if (run->pp <= 1)
        return;
    const struct program *p = in->program;
    const struct block *first = &p->block[p->layer_block[0]];
    const double hidden = (double)p->tensor[first->input].bytes;
    const double m = (double)run->grad_accum, v = (double)run_chunks(run);
    const double sent =
        run_sends_parts(run) ? hidden / (double)run->tp : hidden;
    add(r, (struct comm_row){
               .key = "pipeline",
               .label = "hidden states and their gradients",
               .collective = "point-to-point",
               .group = "pipeline",
               .bytes = 2 * sent * m * v,
               .formula = "2 * bytes of hidden states * micro-batches * "
                          "chunks",
               .pattern = "# * # * # * #",
               .factor = { 2, sent, m, v } });
    if (run_sends_parts(run)) /* DeepSpeed's own output, too */
        gathered_parts(r, run, hidden, m * v);
}

/* Two ranks: each sends as many bytes as there are. */
static void tied(struct comm_result *r, const struct comm_input *in)
{
    const double bytes = pipe_tied_bytes(in->program, in->run);
    if (!in->at_one_end)
        return;
    add(r, (struct comm_row){ .key = "tied_gradient",
                              .label = "gradient of words that are tied",
                              .collective = "all-reduce",
                              .group = "first and last stage",
                              .bytes = bytes,
                              .formula = "bytes",
                              .pattern = "#",
                              .factor = { bytes } });
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
    out->n = 0;
    out->total = 0;
    data_parallel(out, in->run, &in->dense, &dense_names);
    data_parallel(out, in->run, &in->expert, &expert_names);
    collectives(out, in);
    if (in->run->cp_comm != CP_A2A)
        context_parallel(out, in, kv_bytes(in->program));
    pipeline(out, in);
    tied(out, in);
}
