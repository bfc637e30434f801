/*
 * FSDP version 1 wraps a model unit by unit: what that takes is left in the
 * allocator's cache, and the shards lie where it put them (PyTorch
 * distributed/fsdp/_init_utils.py, _init_param_handle_from_module). Owns nothing
 * that is alive afterwards but the shards and what is quantised's scales.
 */
#include "fold/trace_private.h"

#include "base/banned.h"

static hold_id born(struct tracer *r, uint64_t bytes)
{
    return tracer_birth(r, COMP_TEMPORARY, "start", bytes, STREAM_COMPUTE);
}

/* A unit while it is wrapped: its tensors, on the GPU. */
struct unit {
    hold_id *tensor;
    size_t n;
    uint64_t bytes, own; /* of its flat parameter, of this rank's shard */
    bool trained;
};

/* torch/distributed/utils.py, PARAM_BROADCAST_BUCKET_SIZE; c10d reducer.cpp,
 * broadcast_coalesced: a bucket of one tensor is sent as it is. */
enum { BROADCAST_BUCKET = 250 << 20 };

/* Rank 0's weights are sent to the others through flat copies (as scripts of
 * Hugging Face's have it, sync_module_states), which may not be used again
 * before they have been sent: the CPU is ahead of that. Their holds stand behind
 * the tensors'. */
static size_t broadcast(struct tracer *r, const struct unit *u)
{
    uint64_t bucket = 0;
    size_t in_bucket = 0, copies = 0;
    if (r->s->run->impl != IMPL_HF || r->s->run->dp <= 1)
        return 0;
    for (size_t i = 0; i < u->n; i++) {
        bucket += r->hold[u->tensor[i]].bytes;
        in_bucket++;
        if (bucket < BROADCAST_BUCKET && i + 1 < u->n)
            continue;
        if (in_bucket > 1)
            u->tensor[u->n + copies++] = born(r, bucket);
        bucket = in_bucket = 0;
    }
    return copies;
}

/* Joined to one flat parameter, of which this rank keeps its shard: on the CPU
 * where that is where shards live. */
static void wrap(struct tracer *r, struct unit *u)
{
    if (u->n == 0)
        return;
    const size_t copies = broadcast(r, u);
    hold_id flat = born(r, u->bytes);
    for (size_t i = 0; i < u->n; i++)
        tracer_death(r, &u->tensor[i]);
    hold_id own = born(r, u->own);
    tracer_death(r, &flat);
    for (size_t i = 0; i < copies; i++)
        tracer_death(r, &u->tensor[u->n + i]);
    if (r->s->run->offload_params != OFFLOAD_NONE)
        tracer_death(r, &own);
    else if (!u->trained)
        levels_take(r, TERM_FROZEN, FROZEN_SHARDS, own);
    else
        levels_take(r, TERM_WEIGHTS, WEIGHT_SHARDS, own);
    u->n = 0;
    u->bytes = u->own = 0;
    u->trained = false;
}

static void moved(struct tracer *r, struct unit *u, const struct tensor *t)
{
    const struct run *run = r->s->run;
    const uint64_t n = t->group == PG_EXPERT ? run->expert_shard : run->shard;
    const uint64_t share = div_up(t->elems, n);
    const enum dtype dtype =
        t->trainable ? run->prec.param : states_frozen_dtype(run, t);
    const uint64_t bytes = dtype_bytes_of(dtype, t->elems);
    const hold_id id = born(r, bytes);
    if (id == NO_HOLD)
        return;
    u->tensor[u->n++] = id;
    u->bytes += bytes;
    u->own += dtype_bytes_of(dtype, share);
    u->trained = u->trained || t->trainable;
}

/* Adapters are wrapped one by one, before the layer that they are in. */
static void wrap_block(struct tracer *r, struct unit *u, uint32_t position,
                       bool adapters)
{
    const struct stage *s = r->s;
    const struct block *b = &s->p->block[stage_block(s, position)];
    const bool tied = b->kind == BLOCK_HEAD && s->embed;
    const bool lora = run_adapts(s->run);
    for (uint32_t i = 0; i < b->tensor_count && !r->failed; i++) {
        const struct tensor *t = &s->p->tensor[b->tensor_first + i];
        if (t->role != ROLE_PARAM || t->statistic || t->again
            || (t->tied && tied) || (lora && t->trainable) != adapters)
            continue;
        moved(r, u, t);
        if (adapters)
            wrap(r, u);
    }
}

/* Scales of quantised weights stay where loading put them. */
static void keep_scales(struct tracer *r)
{
    const struct stage *s = r->s;
    const char *what =
        s->run->offload_params != OFFLOAD_NONE ? FROZEN_SCALES : FROZEN_SHARDS;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct block *b = &s->p->block[stage_block(s, i)];
        for (uint32_t k = 0; k < b->tensor_count; k++) {
            const struct tensor *t = &s->p->tensor[b->tensor_first + k];
            if (t->role == ROLE_PARAM && t->statistic)
                levels_take(r, TERM_FROZEN, what, born(r, t->bytes));
        }
    }
}

void trace_wrap(struct tracer *r)
{
    const struct stage *s = r->s;
    struct unit u = { .n = 0 };
    size_t most = 0;
    for (uint32_t i = 0; i < s->n; i++)
        most += s->p->block[stage_block(s, i)].tensor_count;
    u.tensor = ARENA_NEW(r->a, hold_id, 2 * most + 1);
    if (u.tensor == NULL) {
        r->failed = true;
        return;
    }
    keep_scales(r);
    for (uint32_t i = 0; i < s->n; i++) {
        wrap_block(r, &u, i, true);
        if (!fsdp_is_unit(s, i))
            continue;
        wrap_block(r, &u, i, false);
        wrap(r, &u);
    }
    for (uint32_t i = 0; i < s->n; i++) /* the root, last */
        if (!fsdp_is_unit(s, i))
            wrap_block(r, &u, i, false);
    wrap(r, &u);
}
