/*
 * In which pieces an engine allocates what it holds: a tensor each, one flat
 * buffer, one a layer, buckets. Knows no moment; how many bytes there are
 * engine.c says, when trace_levels.c.
 */
#include "fold/trace_private.h"

#include <string.h>

#include "base/banned.h"

enum cut {
    CUT_WHOLE,
    CUT_TENSORS, /* in proportion to the stage's tensors */
    CUT_OWN,     /* as many whole tensors as it takes: a rank's own range */
    CUT_BLOCKS,  /* in proportion to the layers; the edges are one */
    CUT_BUCKETS  /* whole tensors, from the last one on, until one is full */
};

static bool deepspeed(const struct run *run)
{
    return run->engine == ENGINE_DEEPSPEED;
}

/* Weights, and what follows their shape. DeepSpeed's are views into one flat
 * buffer (stages 0 to 2: _flatten_dense_tensors; 3: defragment), so are
 * Megatron's under the distributed optimizer (param_and_grad_buffer.py). FSDP
 * version 1 has one flat parameter a unit. */
static enum cut cut_weights(const struct run *run)
{
    switch (run->engine) {
    case ENGINE_DEEPSPEED:
        return run->zero == 0 && run->prec.master == DT_NONE ? CUT_TENSORS
                                                             : CUT_WHOLE;
    case ENGINE_MEGATRON: return run->zero == 0 ? CUT_TENSORS : CUT_WHOLE;
    case ENGINE_FSDP: return run->zero == 0 ? CUT_TENSORS : CUT_BLOCKS;
    case ENGINE_DDP:
    case ENGINE_FSDP2:
    case ENGINE_MEGATRON_FSDP:
    case ENGINE_COUNT: break;
    }
    return CUT_TENSORS;
}

/* Of the weights that the optimizer steps: Megatron's keeps the pieces of
 * tensors that lie in the rank's range (distrib_optimizer.py). */
static enum cut cut_states(const struct run *run)
{
    if (run->engine == ENGINE_MEGATRON && run->zero != 0)
        return CUT_OWN;
    return cut_weights(run);
}

static enum cut cut_of(const struct run *run, enum term term)
{
    switch (term) {
    case TERM_WEIGHTS: return cut_weights(run);
    case TERM_FROZEN:
        return deepspeed(run) && run->zero < 3 ? CUT_TENSORS : cut_weights(run);
    case TERM_MASTER:
    case TERM_MOMENTS:
    case TERM_STEP_TMP: return cut_states(run);
    case TERM_FP8_WEIGHTS: return CUT_TENSORS;
    case TERM_SECOND:      /* a torch.empty each, as they come */
    case TERM_GRAD_SHARDS: /* ZeRO-2: grads_in_partition, one torch.empty */
        return CUT_WHOLE;
    case TERM_BUCKETS:
        return run->engine == ENGINE_DDP ? CUT_BUCKETS : CUT_WHOLE;
    case TERM_GRADS:
    case TERM_GRAD_BUFFER:
    case TERM_SAVED_EMBED:
    case TERM_SAVED_LAYERS:
    case TERM_SAVED_HEAD:
    case TERM_CHECKPOINTS:
    case TERM_RECOMPUTED:
    case TERM_IN_FLIGHT:
    case TERM_HANDED_OVER:
    case TERM_DEFERRED:
    case TERM_PIPE:
    case TERM_OUTPUTS:
    case TERM_GRAPHS:
    case TERM_SHARED:
    case TERM_INPUTS:
    case TERM_FORWARD_TMP:
    case TERM_BACKWARD_TMP:
    case TERM_WGRAD_TMP:
    case TERM_GATHERED:
    case TERM_PREFETCHED:
    case TERM_REDUCE_TMP:
    case TERM_CLIP_TMP:
    case TERM_WORKSPACE:
    case TERM_ROUNDING:
    case TERM_COUNT: break;
    }
    return CUT_WHOLE;
}

/* Moments of a tensor: allocations the optimizer makes for its state. */
static uint64_t moments_of(enum optimizer o)
{
    switch (o) {
    case OPT_ADAMW:
    case OPT_LAMB:
    case OPT_ADAM8BIT:
    case OPT_PAGED_ADAM8BIT:
    case OPT_PAGED_ADAMW:
    case OPT_ADAM4BIT:
    case OPT_ADAFACTOR:
    case OPT_GALORE:
    case OPT_GALORE8BIT:
    case OPT_APOLLO: return 2;
    case OPT_MOMENTUM:
    case OPT_LION:
    case OPT_LION8BIT:
    case OPT_ADAGRAD:
    case OPT_RMSPROP:
    case OPT_MUON:
    case OPT_SGD:
    case OPT_NONE:
    case OPTIMIZER_COUNT: break;
    }
    return 1;
}

/* So many pieces of one size, the last with what is left over. */
static void level_equal(struct tracer *r, struct level *l, uint64_t bytes,
                        uint64_t piece)
{
    for (; bytes > piece && piece > 0 && !r->failed; bytes -= piece)
        level_piece(r, l, piece);
    level_piece(r, l, bytes);
}

/* One tensor's part: of each of `copies`, a piece. */
static uint64_t level_tensor(struct tracer *r, struct level *l, uint64_t bytes,
                             uint64_t copies)
{
    for (uint64_t k = 0; k < copies; k++)
        level_piece(r, l, bytes / copies + (k == 0 ? bytes % copies : 0));
    return bytes;
}

static void level_cut(struct tracer *r, struct level *l, uint64_t bytes,
                      const struct sizes *sizes, uint64_t copies)
{
    uint64_t left = bytes;
    const bool exact = sizes->sum != 0 && bytes % sizes->sum == 0;
    const double each =
        sizes->sum == 0 ? 0 : (double)bytes / (double)sizes->sum;
    for (size_t i = 0; i < sizes->n && !r->failed; i++) {
        uint64_t part = exact ? sizes->v[i] * (bytes / sizes->sum)
                              : (uint64_t)((double)sizes->v[i] * each);
        part = i + 1 == sizes->n ? left : min_u64(part, left);
        left -= level_tensor(r, l, part, copies);
    }
    level_piece(r, l, left);
}

/* Whole tensors, `unit` bytes an element, from the last one on. */
static void level_own(struct tracer *r, struct level *l, uint64_t bytes,
                      uint64_t unit, uint64_t copies)
{
    const struct sizes *sizes = &r->trained;
    uint64_t left = bytes;
    for (size_t i = sizes->n; i-- > 0 && left > 0 && !r->failed;)
        left -= level_tensor(r, l, min_u64(left, sizes->v[i] * unit * copies),
                             copies);
    level_piece(r, l, left);
}

/* A bucket is closed by the tensor that fills it (reducer.cpp,
 * compute_bucket_assignment_by_size), so there are no more than tensors. */
static void level_buckets(struct tracer *r, struct level *l, uint64_t bytes)
{
    const struct sizes *sizes = &r->trained;
    const double each =
        sizes->sum == 0 ? 0 : (double)bytes / (double)sizes->sum;
    uint64_t left = bytes, bucket = 0;
    for (size_t i = sizes->n; i-- > 0 && !r->failed;) {
        bucket += (uint64_t)((double)sizes->v[i] * each);
        if (bucket < r->s->run->ddp_bucket_bytes || bucket > left)
            continue;
        level_piece(r, l, bucket);
        left -= bucket;
        bucket = 0;
    }
    level_piece(r, l, left);
}

static uint64_t unit_of(const struct run *run, enum term term)
{
    return dtype_size(term == TERM_MOMENTS ? run->prec.optim
                                           : run->prec.master);
}

/* An optimizer's loop has temporaries of one tensor in hand, the largest. */
static uint64_t loop_pieces(const struct run *run)
{
    const uint64_t size = update_size(run);
    const uint64_t copies = update_temporaries(run, size);
    if (run->optimizer == OPT_ADAFACTOR) /* in fp32, whatever the weight is */
        return copies * size / dtype_size(DT_FP32);
    return max_u64(copies, 1);
}

/* Version 2 of FSDP copies a unit's parameters out of what it gathered, to a
 * tensor each (_fsdp_param.py, alloc_all_gather_outputs). */
static bool copies_out(const struct run *run, enum term term)
{
    return run->engine == ENGINE_FSDP2 && term == TERM_GATHERED;
}

/* Shards of rows are padded, some more than others. */
uint64_t trace_size_of(const struct tracer *r, const struct tensor *t)
{
    const struct run *run = r->s->run;
    return run_sharding(run) == SHARDING_ROWS ? states_own_elems(run, t)
                                              : t->elems;
}

static void add_params(struct tracer *r, struct sizes *sizes, uint32_t position)
{
    const struct stage *s = r->s;
    const struct block *b = &s->p->block[stage_block(s, position)];
    const bool both = s->embed && s->head && b->kind == BLOCK_HEAD;
    for (uint32_t i = 0; i < b->tensor_count; i++) {
        const struct tensor *t = &s->p->tensor[b->tensor_first + i];
        if (t->role != ROLE_PARAM || t->statistic || t->again
            || (t->tied && both) || t->elems == 0)
            continue;
        sizes->v[sizes->n++] = trace_size_of(r, t);
        sizes->sum += trace_size_of(r, t);
    }
}

/* Those of the unit at hand, or of the root. */
static void level_unit(struct tracer *r, struct level *l, uint64_t bytes)
{
    const bool root =
        strcmp(l->what, ROOT_LABEL) == 0 || !fsdp_is_unit(r->s, r->position);
    struct sizes *sizes = &r->unit;
    sizes->n = 0;
    sizes->sum = 0;
    for (uint32_t i = 0; i < r->s->n && root; i++)
        if (!fsdp_is_unit(r->s, i))
            add_params(r, sizes, i);
    if (!root)
        add_params(r, sizes, r->position);
    level_cut(r, l, bytes, sizes, 1);
}

void level_add(struct tracer *r, struct level *l, uint64_t bytes)
{
    if (copies_out(r->s->run, l->term))
        level_unit(r, l, bytes);
    else
        level_piece(r, l, bytes);
}

void level_fill(struct tracer *r, struct level *l, uint64_t bytes)
{
    const struct run *run = r->s->run;
    const bool frozen = l->term == TERM_FROZEN;
    const bool scalars = l->term == TERM_MOMENTS && l->pieces > 1;
    const uint64_t copies = l->term == TERM_MOMENTS && !scalars
                                ? moments_of(run->optimizer)
                                : l->pieces;
    if (l->term == TERM_STEP_TMP && update_loops(run)
        && run->engine != ENGINE_DEEPSPEED) {
        level_equal(r, l, bytes, div_up(bytes, loop_pieces(run)));
        return;
    }
    if (l->pieces == PIECES_TENSORS) {
        level_cut(r, l, bytes, &r->trained, 1);
        return;
    }
    if (copies_out(run, l->term)) {
        level_unit(r, l, bytes);
        return;
    }
    switch (scalars ? CUT_WHOLE : cut_of(run, l->term)) {
    case CUT_WHOLE:
        level_equal(r, l, bytes, div_up(bytes, max_u64(copies, 1)));
        return;
    case CUT_TENSORS:
        level_cut(r, l, bytes, frozen ? &r->frozen : &r->trained, copies);
        return;
    case CUT_OWN: level_own(r, l, bytes, unit_of(run, l->term), copies); return;
    case CUT_BLOCKS:
        level_cut(r, l, bytes, frozen ? &r->frozen_blocks : &r->trained_blocks,
                  copies);
        return;
    case CUT_BUCKETS: level_buckets(r, l, bytes); return;
    }
}
