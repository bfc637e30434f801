/*
 * FSDP version 1's flat parameter of what no layer's unit has, some of it
 * frozen: which rank has the most of what an optimizer updates.
 * [docs/method.md eq. states]
 */
#include "fold/engine_fsdp.h"

#include "base/banned.h"

/* Where a part ends, whatever lies there: ranks differ in how much of theirs is
 * trained. Of the parts, one is looked at. */
struct cut {
    uint64_t first, last; /* of the flat parameter's elements */
    uint64_t at, trained; /* elements up to here; trained ones in the part */
};

static uint64_t overlap(const struct cut *x, uint64_t elems)
{
    const uint64_t from = max_u64(x->at, x->first);
    const uint64_t to = min_u64(x->at + elems, x->last);
    return to > from ? to - from : 0;
}

void fsdp_each_tensor(const struct stage *s, uint32_t position,
                      void (*each)(void *ctx, const struct tensor *t),
                      void *ctx)
{
    const struct block *b = &s->p->block[stage_block(s, position)];
    const struct tensor *t;
    for (tensor_id id = b->weights; id != TENSOR_NONE; id = t->next) {
        t = &s->p->tensor[id];
        const bool again = t->tied && s->embed && b->kind == BLOCK_HEAD;
        if (t->role == ROLE_PARAM && !t->statistic && !t->apart && !again)
            each(ctx, t);
    }
}

void fsdp_each_root_tensor(const struct stage *s,
                           void (*each)(void *ctx, const struct tensor *t),
                           void *ctx)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (!fsdp_is_unit(s, i))
            fsdp_each_tensor(s, i, each, ctx);
}

static void take_tensor(void *ctx, const struct tensor *t)
{
    struct cut *x = ctx;
    if (t->trainable && !t->dropped)
        x->trained += overlap(x, t->elems);
    x->at += t->elems;
}

static uint64_t trained_in(const struct stage *s, uint64_t index, uint64_t size)
{
    struct cut x = { .first = index * size, .last = (index + 1) * size };
    fsdp_each_root_tensor(s, take_tensor, &x);
    return x.trained;
}

/* The fullest part is one that a trained tensor begins or ends in, or the one
 * after that. */
struct fullest {
    const struct stage *s;
    uint64_t size, at, most;
};

static void look_around(void *ctx, const struct tensor *t)
{
    struct fullest *f = ctx;
    const uint64_t ends[] = { f->at / f->size, f->at / f->size + 1,
                              (f->at + t->elems - 1) / f->size };
    for (unsigned i = 0; i < 3 && t->trainable && !t->dropped; i++)
        f->most = max_u64(f->most, trained_in(f->s, ends[i], f->size));
    f->at += t->elems;
}

static void add_elems(void *ctx, const struct tensor *t)
{
    *(uint64_t *)ctx += t->elems;
}

void fsdp_fullest_rank(struct stage *s)
{
    uint64_t all = 0, share = 0, moments = 0;
    if (s->sum.dropped == 0)
        return;
    fsdp_each_root_tensor(s, add_elems, &all);
    struct fullest f = { .s = s, .size = div_up(all, s->run->shard) };
    fsdp_each_root_tensor(s, look_around, &f);
    for (uint32_t i = 0; i < s->n; i++) {
        const struct block_states *b = &s->states[stage_block(s, i)];
        if (fsdp_is_unit(s, i))
            continue;
        share += b->own_elems - b->own_dropped;
        moments += b->own_moment_bytes;
    }
    if (share == 0 || f.most <= share)
        return;
    const uint64_t more = min_u64(f.most - share, s->sum.own_dropped);
    s->sum.own_dropped -= more;
    s->sum.own_moment_bytes +=
        (uint64_t)((double)moments / (double)share * (double)more);
}
