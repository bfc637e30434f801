/*
 * What an optimizer's loop holds under FSDP version 1, whose ranks have pieces
 * of flat parameters: with use_orig_params what is theirs of each parameter,
 * up to a whole shard, without it the shards themselves.
 * [docs/method.md eq. step]
 */
#include "fold/engine_fsdp.h"

#include "base/banned.h"

/* Where a tensor lies in its unit's flat parameter. */
struct place {
    const struct tensor *t;
    uint64_t at;   /* elements before it */
    uint64_t size; /* of a shard */
};

typedef void each_place(void *ctx, const struct place *place);

static bool is_flattened(const struct stage *s, uint32_t position,
                         const struct tensor *t)
{
    const struct block *b = &s->p->block[stage_block(s, position)];
    const bool twice = t->tied && s->embed && b->kind == BLOCK_HEAD;
    return t->role == ROLE_PARAM && !t->statistic && !twice && !t->again
           && (!t->apart || fsdp_is_unit(s, position));
}

static uint64_t flat_elems(const struct stage *s, uint32_t position)
{
    const struct block *b = &s->p->block[stage_block(s, position)];
    const struct tensor *t;
    uint64_t elems = 0;
    for (tensor_id id = b->weights; id != TENSOR_NONE; id = t->next) {
        t = &s->p->tensor[id];
        elems += is_flattened(s, position, t) ? t->elems : 0;
    }
    return elems;
}

static uint64_t root_elems(const struct stage *s)
{
    uint64_t elems = 0;
    for (uint32_t i = 0; i < s->n; i++)
        elems += fsdp_is_unit(s, i) ? 0 : flat_elems(s, i);
    return elems;
}

/* The third and later of equal layers bring no other meeting of pieces. */
static bool is_told(const struct stage *s, uint32_t i)
{
    return i > 1 && fsdp_is_unit(s, i)
           && stage_block(s, i) == stage_block(s, i - 1)
           && stage_block(s, i) == stage_block(s, i - 2);
}

static void each_of_block(const struct stage *s, uint32_t position,
                          uint64_t *at, uint64_t size, each_place *each,
                          void *ctx)
{
    const struct block *b = &s->p->block[stage_block(s, position)];
    const struct tensor *t;
    for (int last = 0; last <= 1; last++)
        for (tensor_id id = b->weights; id != TENSOR_NONE; id = t->next) {
            t = &s->p->tensor[id];
            if (!is_flattened(s, position, t)
                || program_comes_last(s->p, b, t) != (last == 1))
                continue;
            each(ctx, &(struct place){ .t = t, .at = *at, .size = size });
            *at += t->elems;
        }
}

/* Parameters in the order in which a loop comes to them. */
static void each_tensor(const struct stage *s, each_place *each, void *ctx)
{
    const uint64_t root = div_up(root_elems(s), s->run->shard);
    uint64_t root_at = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        uint64_t own_at = 0;
        if (is_told(s, i))
            continue;
        if (fsdp_is_unit(s, i))
            each_of_block(s, i, &own_at,
                          div_up(flat_elems(s, i), s->run->shard), each, ctx);
        else
            each_of_block(s, i, &root_at, root, each, ctx);
    }
}

static void loop_add(struct update_loop *loop, const struct run *run,
                     uint64_t elems)
{
    const struct update_loop one = {
        .first = elems,
        .last = elems,
        .most = update_temporaries(run, update_size(run)) * elems,
        .elems = elems,
    };
    if (elems > 0) /* without a gradient the optimizer passes it by */
        update_loop_add(loop, &one, run);
}

/* The pieces of one rank. */
struct pieces {
    const struct run *run;
    uint64_t rank;
    struct update_loop loop;
};

static void take_piece(void *ctx, const struct place *place)
{
    struct pieces *x = ctx;
    const struct tensor *t = place->t;
    const uint64_t from = max_u64(place->at, x->rank * place->size);
    const uint64_t to =
        min_u64(place->at + t->elems, (x->rank + 1) * place->size);
    if (t->trainable && !t->dropped && to > from)
        loop_add(&x->loop, x->run, to - from);
}

/* ---- the rank whose moments and temporaries are most together ---- */

struct marks {
    bool *ends;
    uint64_t ranks;
};

static void mark(const struct marks *x, uint64_t rank)
{
    if (rank < x->ranks)
        x->ends[rank] = true;
}

/* Ranks between those that tensors end in, and their neighbours, have no more
 * of anything than these. */
static void mark_around(void *ctx, const struct place *place)
{
    const struct marks *x = ctx;
    const uint64_t end = (place->at + place->t->elems) / place->size;
    if (end > 0)
        mark(x, end - 1);
    mark(x, end);
    mark(x, end + 1);
}

static uint64_t of_pieces(const struct stage *s, uint64_t moment_bytes)
{
    const struct run *run = s->run;
    struct marks marks = { .ends = s->ends, .ranks = run->shard };
    uint64_t most = 0, fullest = 0;
    for (uint64_t rank = 0; rank < run->shard; rank++)
        s->ends[rank] = false;
    each_tensor(s, mark_around, &marks);
    for (uint64_t rank = 0; rank < run->shard; rank++) {
        struct pieces x = { .run = run, .rank = rank };
        if (!s->ends[rank])
            continue;
        each_tensor(s, take_piece, &x);
        const uint64_t bytes =
            x.loop.elems * moment_bytes + x.loop.most * update_size(run);
        if (bytes > fullest) {
            fullest = bytes;
            most = x.loop.most;
        }
    }
    return most;
}

/* The root's flat parameter is the first of the wrapped model's. */
static uint64_t of_shards(const struct stage *s)
{
    const struct run *run = s->run;
    struct update_loop loop = { 0 };
    if (fsdp_root_sums(s).elems > 0)
        loop_add(&loop, run, div_up(root_elems(s), run->shard));
    for (uint32_t i = 0; i < s->n; i++)
        if (fsdp_is_unit(s, i) && s->states[stage_block(s, i)].elems > 0)
            loop_add(&loop, run, div_up(flat_elems(s, i), run->shard));
    return loop.most;
}

void fsdp_flat_loop(struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t trained = s->sum.own_elems - s->sum.own_dropped;
    if (run->engine != ENGINE_FSDP || !update_loops(run) || run_adapts(run)
        || run_sharding(run) != SHARDING_TENSOR || trained == 0)
        return;
    if (!run->use_orig_params) {
        s->sum.loop.most = of_shards(s);
        return;
    }
    s->sum.loop.most = of_pieces(s, s->sum.own_moment_bytes / trained);
}
