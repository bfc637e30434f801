/*
 * How the tensors of a stage lie in the parts of DeepSpeed's ZeRO: partitions
 * that hold tensors whole, sub-groups, a pipeline's buckets. Read in DeepSpeed
 * 0.19.8 runtime/zero and held against it (tests/oracle/zero.py).
 * [docs/method.md eq. buckets, eq. step]
 */
#include "fold/engine_private.h"

#include "base/banned.h"

/* Walks the trained tensors of a stage in order. */
struct zero_layout {
    bool passes;               /* lists them only, or: */
    struct zero1 *reduces;     /* sends them */
    const struct block *block; /* at hand: whose tensors are listed */
    uint32_t n;                /* ... so many */
    uint64_t elems, largest;   /* ... of all, and of the largest */
    uint64_t larger;           /* ... of those larger than the bucket */
    bool in_row;               /* ranks have theirs one after another, and that
                                  is all that is asked of them: */
    struct zero_part part;     /* of the rank at hand */
    uint64_t whole, slice;     /* of the partitions so far, the most */
    uint64_t norm;             /* ... bytes with a norm's */
    bool makes;                /* ZeRO-1's partitions, after backward */
    bool large;                /* one is larger than the bucket */
    uint64_t at;               /* elements so far */
    uint64_t rank, end;     /* whose partition they are in; where that ends */
    uint64_t bucket[2];     /* in ZeRO-1's buckets at hand, by tensor.low */
    uint64_t gone;          /* with those before */
    uint64_t begun;         /* ranks that have a tensor */
    uint64_t open[2];       /* ... when they were begun */
    uint64_t group, groups; /* shards of the sub-group at hand; the largest */
    uint64_t ended;         /* sub-groups before it */
    uint64_t stay;          /* so many of the first stay on the GPU */
    uint64_t stays, largest_stays; /* their elements, in all and of one */
};

/* Partitions are made when the bucket of their first tensor is reduced: of
 * interest where all are reduced after backward. */
static void end_bucket(struct stage *s, struct zero_layout *l, bool low)
{
    for (uint64_t *open = &l->open[low]; *open < l->begun; (*open)++) {
        struct zero_part *r = &s->rank[s->rank[*open].nth];
        if (r->gone == 0)
            r->gone = l->gone;
    }
    l->bucket[low] = 0;
}

enum { DOUBLE = 8 };

/* Norms are taken in double precision, a tensor's own part at a time, beside
 * the partition. */
static void note_rank(const struct stage *s, struct zero_layout *l,
                      const struct zero_part *r)
{
    const uint64_t grad = dtype_size(s->run->prec.grad);
    l->whole = max_u64(l->whole, r->whole);
    l->slice = max_u64(l->slice, r->slice);
    l->norm = max_u64(l->norm, r->whole * grad + r->slice * DOUBLE);
}

static bool only_first(const struct run *run)
{
    return run->zero_rank == ZERO_RANK_FIRST;
}

/* Of ZeRO-2's nothing else is asked: there may be thousands. */
static void keep_ranks(struct stage *s, uint64_t first, uint64_t n,
                       const struct zero_part *it)
{
    const uint64_t end = first + n;
    if (s->run->zero == 2)
        for (uint64_t r = first; r < end; r++)
            s->whole[r] = it->whole;
    else
        for (uint64_t r = first; r < end; r++)
            s->rank[r] = *it;
}

/* The rank at hand has all of its own. */
static void end_rank(struct stage *s, struct zero_layout *l)
{
    keep_ranks(s, l->rank, 1, &l->part);
    if (l->rank == 0 || !only_first(s->run))
        note_rank(s, l, &l->part);
    l->rank++;
    l->end += s->share;
    l->part = (struct zero_part){ .whole = 0 };
}

/* The last ones may have nothing. */
static void end_ranks(struct stage *s, struct zero_layout *l)
{
    end_rank(s, l);
    keep_ranks(s, l->rank, s->run->shard - l->rank, &l->part);
}

/* The next ones that a tensor fills have it alone. */
static void fill_ranks(struct stage *s, struct zero_layout *l, uint64_t n,
                       const struct zero_part *it)
{
    if (n == 0)
        return;
    keep_ranks(s, l->rank, n, it);
    if (!only_first(s->run))
        note_rank(s, l, it);
    l->rank += n;
    l->end += n * s->share;
}

static void take(struct zero_part *r, uint64_t n, uint64_t slice,
                 uint64_t large)
{
    r->whole += n;
    r->slice = max_u64(r->slice, slice);
    r->large += large;
}

static void add_in_row(struct stage *s, struct zero_layout *l, uint64_t n)
{
    const struct zero_part it = { .whole = n,
                                  .slice = s->share,
                                  .large = n > s->run->reduce_bucket ? n : 0 };
    const uint64_t room = l->end - l->at;
    uint64_t left = n;
    if (n > room) {
        if (room > 0)
            take(&l->part, n, room, it.large);
        end_rank(s, l);
        const uint64_t filled = (n - room - 1) / s->share;
        fill_ranks(s, l, filled, &it);
        left = n - room - filled * s->share;
    }
    take(&l->part, n, left, it.large);
    l->at += n;
}

/* A rank's partition holds whole every tensor that touches it. */
static void add_to_ranks(struct stage *s, struct zero_layout *l, uint64_t n)
{
    const uint64_t large = n > s->run->reduce_bucket ? n : 0;
    uint64_t at = l->at, rank = l->rank, end = l->end, begun = l->begun;
    for (uint64_t left = n, part; left > 0; left -= part) {
        if (at == end) {
            rank++;
            end += s->share;
        }
        struct zero_part *r = &s->rank[rank];
        part = min_u64(left, end - at);
        at += part;
        if (l->makes && r->whole == 0)
            s->rank[begun++].nth = rank;
        r->whole += n;
        r->slice = max_u64(r->slice, part);
        r->large += large;
    }
    l->at = at;
    l->rank = rank;
    l->end = end;
    l->begun = begun;
}

/* One larger than the bucket is reduced where it is. */
static void add_to_partition(struct stage *s, struct zero_layout *l,
                             const struct tensor *t)
{
    const uint64_t n = t->elems;
    const bool large = n > s->run->reduce_bucket;
    if (l->in_row) {
        add_in_row(s, l, n);
        return;
    }
    if (l->bucket[t->low] + n > s->run->reduce_bucket)
        end_bucket(s, l, t->low);
    if (s->ledger != NULL) {
        l->at = ledger_flat(s, l->gone);
        l->rank = l->at / s->share;
        l->end = (l->rank + 1) * s->share;
    }
    add_to_ranks(s, l, n);
    l->large = l->large || large;
    if (large)
        end_bucket(s, l, t->low);
    l->gone += n;
    l->bucket[t->low] += large ? 0 : n;
}

/* A sub-group ends with the parameter that takes it to the size
 * (stage3.py, _create_fp16_sub_groups). */
static void end_group(struct zero_layout *l)
{
    if (l->ended < l->stay) {
        l->stays += l->group;
        l->largest_stays = max_u64(l->largest_stays, l->group);
    }
    l->ended++;
    l->group = 0;
}

static void add_to_group(struct zero_layout *l, uint64_t n, uint64_t size)
{
    l->group += n;
    l->groups = max_u64(l->groups, l->group);
    if (l->group >= size)
        end_group(l);
}

/* ---- a pipeline's buckets ---- */

static bool trained_here(const struct stage *s, const struct tensor *t)
{
    return t->role == ROLE_PARAM && t->trainable && !t->again
           && !(t->tied && s->tied_here != 0);
}

/* A bucket takes tensors until one more would be too many; a single tensor is
 * reduced where it is: flattening makes no copy of it
 * (reduce_independent_p_g_buckets_and_remove_grads;
 * torch/csrc/utils/tensor_flatten.h). */
void zero_each_bucket(const struct stage *s,
                      void (*each)(void *ctx, uint64_t elems), void *ctx)
{
    uint64_t elems = 0, tensors = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct block *b = &s->p->block[stage_block(s, i)];
        const struct tensor *t;
        for (tensor_id id = b->weights; id != TENSOR_NONE; id = t->next) {
            t = &s->p->tensor[id];
            if (!trained_here(s, t))
                continue;
            if (elems + t->elems > s->run->reduce_bucket) {
                if (tensors > 1)
                    each(ctx, elems);
                elems = tensors = 0;
            }
            elems += t->elems;
            tensors++;
        }
    }
    if (tensors > 1)
        each(ctx, elems);
}

static void keep_largest(void *ctx, uint64_t elems)
{
    uint64_t *most = ctx;
    *most = max_u64(*most, elems);
}

/* Not laid out, but listed or sent. */
static void pass_tensor(struct stage *s, struct zero_layout *l,
                        const struct tensor *t)
{
    if (l->reduces != NULL)
        zero1_add(s, l->reduces, t->elems, t->low);
    else
        ledger_add(s, t->elems);
}

/* What is laid out of a tensor: stage 3 cuts each, the others all in a row. */
static void add_tensor(struct stage *s, struct zero_layout *l,
                       const struct tensor *t)
{
    const struct run *run = s->run;
    if (l->passes)
        pass_tensor(s, l, t);
    else if (run->zero == 3)
        add_to_group(l, div_up(t->elems, run->shard), run->sub_group_size);
    else
        add_to_partition(s, l, t);
}

/* Of a block, the tensors that come last in it, or the others. */
static void list_tensors(const struct stage *s, struct zero_layout *l,
                         bool last)
{
    const struct tensor *t;
    for (tensor_id id = l->block->weights; id != TENSOR_NONE; id = t->next) {
        t = &s->p->tensor[id];
        if (trained_here(s, t) && program_comes_last(s->p, l->block, t) == last)
            s->trained[l->n++] = t;
    }
}

static void list_block(const struct stage *s, struct zero_layout *l,
                       const struct block *b)
{
    l->block = b;
    l->n = 0;
    list_tensors(s, l, false);
    if (s->p->norms_last && b->kind == BLOCK_LAYER)
        list_tensors(s, l, true);
    l->elems = l->largest = l->larger = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        const uint64_t n = s->trained[i]->elems;
        l->elems += n;
        l->largest = max_u64(l->largest, n);
        l->larger += n > s->run->reduce_bucket ? n : 0;
    }
}

static void add_block(struct stage *s, struct zero_layout *l,
                      const struct block *b)
{
    if (l->block != b)
        list_block(s, l, b);
    if (l->in_row && l->elems <= l->end - l->at) { /* all the rank's at hand */
        take(&l->part, l->elems, l->largest, l->larger);
        l->at += l->elems;
        return;
    }
    for (uint32_t i = 0; i < l->n; i++)
        add_tensor(s, l, s->trained[i]);
}

/* Shards of a block's tensors. */
static uint64_t group_elems(const struct stage *s, const struct block *b)
{
    uint64_t sum = 0;
    const struct tensor *t;
    for (tensor_id id = b->weights; id != TENSOR_NONE; id = t->next) {
        t = &s->p->tensor[id];
        if (trained_here(s, t))
            sum += div_up(t->elems, s->run->shard);
    }
    return sum;
}

/* Equal blocks, or one, within which no sub-group ends are added whole. */
static void zero3_groups(struct stage *s, struct zero_layout *l)
{
    const uint64_t size = s->run->sub_group_size;
    for (uint32_t i = 0, end; i < s->n; i = end) {
        const struct block *b = &s->p->block[stage_block(s, i)];
        const uint64_t elems = group_elems(s, b);
        end = stage_row_end(s, i);
        if (l->group + (end - i) * elems < size) {
            add_to_group(l, (end - i) * elems, size);
            continue;
        }
        for (uint32_t k = i; k < end; k++)
            if (l->group + elems < size)
                add_to_group(l, elems, size);
            else
                add_block(s, l, b);
    }
    s->sub_group = l->groups;
}

/* Of the sub-groups, the first stay on the GPU that make no more than the rest
 * of the ratio (stage3.py, subgroup_to_device). */
static void zero3_stays(struct stage *s, const struct zero_layout *all)
{
    const uint64_t groups = all->ended + (all->group > 0 ? 1 : 0);
    const double share = 1 - s->run->offload_ratio;
    struct zero_layout l = { .stay = (uint64_t)(share * (double)groups) };
    s->stay_groups = l.stay;
    if (l.stay == 0)
        return;
    zero3_groups(s, &l);
    if (l.group > 0)
        end_group(&l);
    s->stays = l.stays;
    s->largest_stays = l.largest_stays;
}

/* In what partitions they lie, once all are known. */
static void deal_tensors(struct stage *s)
{
    struct zero_layout l = { .passes = true };
    ledger_begin(s);
    for (uint32_t i = 0; i < s->n; i++)
        add_block(s, &l, &s->p->block[stage_block(s, i)]);
    ledger_deal(s);
}

/* A bucket of one type, none of whose gradients is larger than it, takes away as
 * much as its copy is; otherwise it matters when each goes. */
static void reduce_tensors(struct stage *s)
{
    struct zero1 z;
    struct zero_layout l = { .passes = true, .reduces = &z };
    s->made = 0;
    zero1_begin(s, &z);
    for (uint32_t i = 0; i < s->n; i++)
        add_block(s, &l, &s->p->block[stage_block(s, i)]);
    zero1_end(s, &z);
}

/* Of the ranks that are asked for. */
static void note_ranks(struct stage *s, struct zero_layout *l, uint64_t ranks)
{
    for (uint64_t r = 0; r < ranks; r++) {
        const struct zero_part *k = &s->rank[r];
        note_rank(s, l, k);
        if (l->makes && k->whole > k->gone)
            s->made = max_u64(s->made, k->whole - k->gone);
    }
}

static void clear_ranks(struct stage *s)
{
    for (uint64_t r = 0; r < s->run->shard; r++)
        s->rank[r] = (struct zero_part){ .whole = 0 };
}

static void zero_partition(struct stage *s, struct zero_layout *l)
{
    const struct run *run = s->run;
    const uint64_t ranks = only_first(run) ? 1 : run->shard;
    l->in_row = s->ledger == NULL && !l->makes;
    if (s->ledger != NULL)
        deal_tensors(s);
    if (!l->in_row)
        clear_ranks(s);
    for (uint32_t i = 0; i < s->n; i++)
        add_block(s, l, &s->p->block[stage_block(s, i)]);
    end_bucket(s, l, true);
    end_bucket(s, l, false);
    s->made = s->sent = 0;
    if (l->in_row)
        end_ranks(s, l);
    else
        note_ranks(s, l, ranks);
    s->partition = l->whole;
    s->norm = l->norm - s->partition * dtype_size(run->prec.grad);
    if (l->makes && (l->large || bucket_casts(s) || run_is_loose(run)))
        reduce_tensors(s);
    if (run_sums_in_fp32(run)) { /* no tensor is in it whole */
        s->partition = s->share;
        s->norm = l->slice * DOUBLE;
    }
}

void zero_layout(struct stage *s)
{
    const struct run *run = s->run;
    if (run->engine != ENGINE_DEEPSPEED || run->zero == 0
        || s->sum.elems == 0) {
        s->fill = NULL;
        return;
    }
    s->share = engine_flat_share(run, s->sum.elems, 0);
    if (s->ledger != NULL && !ledger_matters(s))
        s->ledger = NULL;
    struct zero_layout l = { .makes = run->zero == 1 && !zero_fills_bucket(run),
                             .end = s->share };
    s->bucket = 0;
    if (engine_steps_views(run))
        zero_each_bucket(s, keep_largest, &s->bucket);
    if (run->zero == 3)
        zero3_groups(s, &l);
    if (run->zero == 3 && run->offload_ratio < 1)
        zero3_stays(s, &l);
    if (run->zero != 3)
        zero_partition(s, &l);
    if (zero_fills_bucket(run))
        bucket_init(s);
}
