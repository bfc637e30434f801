/*
 * How gradients fill DeepSpeed's bucket, one after another, in ZeRO-2 and -3,
 * and in ZeRO-1 that reduces beside the last of its backwards: when it is full
 * and reduced, by way of a copy or not, and when a rank's partition is made.
 * Read in DeepSpeed 0.19.8 runtime/zero (stage_1_and_2.py:
 * reduce_independent_p_g_buckets_and_remove_grads, average_tensor,
 * reduce_ipg_grads, copy_grads_in_partition; stage3.py) and held against it
 * gradient by gradient (tests/oracle/zero.py). [docs/method.md eq. buckets]
 */
#include "fold/engine_private.h"

#include "base/banned.h"

/* overlap_comm's hooks reduce once a step in stage 1, which is while its last
 * micro-batch runs backward (stage_1_and_2.py, process_gradients). */
static bool reduces_beside(const struct run *run)
{
    return run->zero == 1 && run->overlap_comm && !run_pipelines(run)
           && !run_is_bf16_optimizer(run);
}

bool zero_fills_bucket(const struct run *run)
{
    return run->engine == ENGINE_DEEPSPEED
           && (run->zero >= 2 || reduces_beside(run));
}

/* After several micro-batches all gradients are there when it reduces the
 * first, which has its place in the sum of those. */
bool zero1_has_all(const struct run *run)
{
    return run->zero == 1 && run->grad_accum > 1;
}

bool zero_fills_in(const struct run *run, bool later)
{
    return zero_fills_bucket(run) && (later || !zero1_has_all(run));
}

bool bucket_fills(const struct stage *s, bool later)
{
    return s->fill != NULL && zero_fills_in(s->run, later);
}

bool bucket_moves(const struct stage *s)
{
    return s->loose || zero1_has_all(s->run);
}

/* As autograd makes one, whatever they are added up in. */
uint64_t zero_arriving_bytes(const struct run *run)
{
    const enum dtype param = run->prec.param;
    const bool half = param == DT_BF16 || param == DT_FP16;
    return dtype_size(half && !run_adapts(run) ? param : run->prec.grad);
}

/* What is put into a bucket is of the type in which autograd made it, in stage
 * 3 of the one that is sent (stage_1_and_2.py, setup_buckets,
 * _gradient_reduction_buffer_dtype; stage3.py, ipg_buckets). */
uint64_t bucket_width(const struct run *run)
{
    return run->zero == 3 ? dtype_size(run->prec.reduce)
                          : zero_arriving_bytes(run);
}

/* What is sent of a list of slices, each of one rank: it is flattened, one is
 * reduced where it is, and cast where another type is sent
 * (allreduce_bucket). */
static struct sent sent_of(const struct run *run, uint64_t elems,
                           uint64_t slices, bool low)
{
    const uint64_t own = bucket_width(run);
    const uint64_t wire =
        dtype_size(low ? run->prec.compute : run->prec.reduce);
    return (struct sent){ .copied = slices > 1 ? elems * own : 0,
                          .cast = wire != own ? elems * wire : 0 };
}

bool bucket_casts(const struct stage *s)
{
    return s->sum.low_elems != 0
           || dtype_size(s->run->prec.reduce) != bucket_width(s->run);
}

/* What is longer than a bucket goes in turns (allreduce_and_scatter). */
static struct sent slices_sent(const struct stage *s, uint64_t first,
                               uint64_t n, bool low)
{
    const uint64_t share = s->share, end = first + n;
    struct sent most = { 0, 0 };
    uint64_t elems = 0, slices = 0;
    for (uint64_t at = first; at < end;) {
        const uint64_t slice = min_u64(end - at, share - at % share);
        at += slice;
        elems += slice;
        slices++;
        if (elems <= s->run->reduce_bucket && at < end)
            continue;
        const struct sent x = sent_of(s->run, elems, slices, low);
        if (x.copied + x.cast > most.copied + most.cast)
            most = x;
        elems = slices = 0;
    }
    return most;
}

struct sent bucket_sent(const struct stage *s, const struct bucket_content *c,
                        bool low)
{
    const struct run *run = s->run;
    if (c->large != 0)
        return slices_sent(s, c->first, c->large, low);
    /* what is added in fp32 is a slice of its own */
    const bool first = run->zero_rank == ZERO_RANK_FIRST && c->low > 0;
    const bool apart = run_sums_in_fp32(run) && !first;
    const bool one = s->loose
                         ? c->tensors == 1
                         : c->low == c->high && (!apart || c->tensors == 1);
    return sent_of(run, c->elems, one ? 1 : 2, low);
}

/* qgZ, tensor by tensor: 4 bits to be sent and as much received, of the node's
 * sum likewise, that as fp16. Then either the nodes' parts are added, two sums
 * at a time, or what the next one sends comes before all that is let go. Beside
 * it the shares of those before (coalesced_collectives.py,
 * all_to_all_quant_reduce). In bytes. */
static uint64_t in_4_bits(const struct run *run, const struct bucket_content *c)
{
    const uint64_t n = c->largest, ranks = run->shard;
    const uint64_t held = n + 3 * n / run->gpus_per_node;
    const uint64_t summed = 4 * n / ranks + 2 * (c->elems - n) / ranks;
    return held + max_u64(summed, c->second / 2 + 2 * c->elems / ranks);
}

/* ZeRO-3 puts the ranks' parts of several tensors in order, be it one rank
 * (coalesced_collectives.py, reduce_scatter_coalesced). */
static uint64_t scattered(const struct run *run, const struct bucket_content *c)
{
    if (run_reduces_in_4_bits(run))
        return 0;
    return c->tensors > 1 || c->elems % run->shard != 0 ? c->elems : 0;
}

/* The largest partition, with that of the ranks that a full bucket has tensors
 * of. */
static uint64_t made_by(const struct stage *s, const struct bucket_content *c,
                        uint64_t most)
{
    if (s->run->zero != 2 || c->tensors == 0)
        return most;
    const bool first = s->run->zero_rank == ZERO_RANK_FIRST;
    if (run_sums_in_fp32(s->run))
        return first && c->low > 0 ? most : s->share;
    if (s->ledger != NULL) /* which says it */
        return most;
    if (first)
        return c->low > 0 ? most : max_u64(most, s->whole[0]);
    for (uint64_t r = c->low; r <= c->high; r++)
        most = max_u64(most, s->whole[r]);
    return most;
}

/* Of a rank that has some of it: its tensors are slices of their own, each of
 * which is cast to be added to the partition, that there is by then
 * (_get_compact_grad_partition_slice, _add_to_grad_partition_buffer). */
static void note_summed(const struct stage *s, const struct bucket_content *c,
                        struct bucket_fill *f)
{
    if (s->run->zero_rank == ZERO_RANK_FIRST && c->low > 0)
        return;
    f->partition = made_by(s, c, f->partition);
    if (s->run->prec.reduce != DT_FP32)
        f->added = c->slice;
}

/* Stage 3 adds up in another type than it sent (__avg_scatter_grads). */
bool zero3_casts_back(const struct run *run, enum dtype sent)
{
    return run->zero == 3 && run->prec.grad != sent
           && !run_reduces_in_4_bits(run);
}

bool zero3_casts(const struct run *run)
{
    return run->zero == 3 && run->prec.reduce != run->prec.param;
}

/* ... and casts what is not in a buffer of the type that is sent: what is too
 * large for it, and all where there is none. */
static void note_scattered(const struct stage *s,
                           const struct bucket_content *c, bool low,
                           struct bucket_fill *f)
{
    const struct run *run = s->run;
    const enum dtype sent = low ? run->prec.compute : run->prec.reduce;
    const uint64_t wire = dtype_size(sent), copied = scattered(run, c);
    const uint64_t outside = s->loose ? c->elems : c->large;
    const bool casts = low || zero3_casts(run);
    f->copied = low ? 0 : copied * wire;
    f->cast = ((casts ? outside : 0) + (low ? copied : 0)) * wire;
    if (zero3_casts_back(run, sent))
        f->added = div_up(c->elems, run->shard);
    if (run_reduces_in_4_bits(run))
        f->packed = in_4_bits(run, c);
}

static void note_reduced(const struct stage *s, struct bucket_fill *f, bool low)
{
    const struct bucket_content *c = low ? &f->low : &f->in;
    f->copied = f->cast = f->added = f->packed = 0;
    if (c->tensors == 0)
        return;
    if (s->run->zero == 3) {
        note_scattered(s, c, low, f);
        return;
    }
    const struct sent sent = bucket_sent(s, c, low);
    f->copied = sent.copied;
    f->cast = sent.cast;
    if (run_sums_in_fp32(s->run))
        note_summed(s, c, f);
}

/* ---- ZeRO-1 beside its backward ---- */

/* The partition that began last, less what of the large gradients it has taken;
 * where `beside` counts one rank alone, that one's. */
static void note_kept(const struct stage *s, struct bucket_fill *f)
{
    const struct zero_beside *b = &f->beside;
    const uint64_t open = s->run->shard - b->begun;
    const struct zero_part *r = b->begun == 0 ? NULL : &s->rank[open];
    const bool first = s->run->zero_rank == ZERO_RANK_FIRST && open > 0;
    const bool it = r != NULL && r->whole - b->own >= b->whole - b->its;
    f->partition = first ? 0 : it ? r->whole : b->whole;
    f->kept = b->large - (first ? 0 : it ? b->own : b->its);
}

/* Of large, what is some rank's own at least. */
static uint64_t least_own(const struct stage *s, const struct zero_beside *b)
{
    const uint64_t ranks = s->run->shard;
    if (b->begun < ranks)
        return 0;
    return s->run->zero_rank == ZERO_RANK_FIRST || ranks == 1
               ? b->own
               : min_u64(b->own, b->its);
}

/* On their way to the CPU a rank's own go as they are reduced. */
static void note_others(const struct stage *s, struct bucket_fill *f)
{
    f->kept = f->beside.large - least_own(s, &f->beside);
}

static void close_partition(const struct stage *s, struct zero_beside *b,
                            uint64_t rank)
{
    const struct zero_part *r = &s->rank[rank];
    if (engine_optimizer_offloaded(s->run)) {
        b->its = b->begun == 1 ? r->large : min_u64(b->its, r->large);
        return;
    }
    if (r->whole - r->large <= b->whole - b->its)
        return;
    b->whole = r->whole;
    b->its = r->large;
}

/* What is reduced has begun the partitions of its ranks; all that are above the
 * lowest of them have all of theirs. */
static void reduced_beside(const struct stage *s, struct bucket_fill *f,
                           const struct bucket_content *c)
{
    struct zero_beside *b = &f->beside;
    const uint64_t ranks = s->run->shard;
    if (c->tensors == 0)
        return;
    while (ranks - b->begun > c->low) {
        if (b->begun > 0 && s->run->zero_rank != ZERO_RANK_FIRST)
            close_partition(s, b, ranks - b->begun);
        b->begun++;
        b->own = 0;
    }
    b->large += c->large;
    b->own += ranks - b->begun == c->low ? c->large : 0;
    if (engine_optimizer_offloaded(s->run))
        note_others(s, f);
    else
        note_kept(s, f);
}

static uint64_t own_large(const struct stage *s, const struct zero_beside *b,
                          uint64_t rank)
{
    return rank + b->begun == s->run->shard ? b->own : s->rank[rank].large;
}

/* A rank takes the norm of what is its own, then lets it go; others keep what is
 * large. */
static void told_offloaded(const struct stage *s, struct bucket_fill *told,
                           const struct bucket_content *c)
{
    enum { DOUBLE = 8 };
    const bool first = s->run->zero_rank == ZERO_RANK_FIRST;
    const uint64_t grad = dtype_size(s->run->prec.grad);
    const uint64_t norm = zero_normed(s->run, s->share, c->largest);
    told->kept -= min_u64(told->kept, c->large);
    uint64_t most = told->kept * grad;
    for (uint64_t r = c->low; r <= c->high && (!first || r == 0); r++) {
        const uint64_t kept =
            told->beside.large - own_large(s, &told->beside, r);
        if (kept * grad + norm * DOUBLE <= most)
            continue;
        most = kept * grad + norm * DOUBLE;
        told->kept = kept;
        told->normed = norm;
    }
}

/* A large gradient is copied out of where it was made, by the ranks whose
 * partition it touches; for the others it is there once. */
static void told_beside(const struct stage *s, struct bucket_fill *told,
                        const struct bucket_content *c)
{
    const bool first = s->run->zero_rank == ZERO_RANK_FIRST;
    uint64_t most = told->partition + told->kept - c->large;
    told->kept -= min_u64(told->kept, c->large);
    for (uint64_t r = c->low; r <= c->high && (!first || r == 0); r++) {
        const struct zero_beside *b = &told->beside;
        const uint64_t own = own_large(s, b, r);
        const uint64_t all = s->rank[r].whole + b->large - own;
        if (all <= most)
            continue;
        most = all;
        told->partition = s->rank[r].whole;
        told->kept = b->large - own;
    }
}

static void told_dealt(const struct stage *s, struct bucket_fill *told,
                       uint64_t nth)
{
    const struct zero_made *m = &s->ledger->made[nth];
    if (s->loose || run_sums_in_fp32(s->run))
        return;
    told->partition = m->told_partition;
    told->kept = m->told_kept;
}

/* ---- one after another ---- */

/* ... as the ledger has it; a partition in fp32 has gradients beside it where
 * they stay, and is of one size. */
static void take_made(const struct stage *s, uint64_t nth,
                      struct bucket_fill *x)
{
    const struct zero_made *m = &s->ledger->made[nth];
    x->again = m->again;
    x->again_kept = m->again_kept;
    x->kept = m->kept;
    if (!run_sums_in_fp32(s->run))
        x->partition = m->partition;
    else if (s->loose)
        x->kept += m->partition;
}

/* While it is reduced without contiguous_gradients: others' were let go before.
 * Of its own a rank has some as well, and a sum in fp32. */
static void note_before(const struct stage *s, uint64_t nth,
                        struct bucket_fill *x)
{
    const struct zero_made *m = &s->ledger->made[nth];
    const bool sums = run_sums_in_fp32(s->run);
    x->again_kept = 0;
    x->kept = sums ? m->before : 0;
    x->added = sums ? m->slice : 0;
}

static void emptied(const struct stage *s, struct bucket_fill *f, bool low)
{
    const struct bucket_content c = low ? f->low : f->in;
    const uint64_t nth = f->reduced;
    *(low ? &f->low : &f->in) = (struct bucket_content){ 0 };
    f->partition = made_by(s, &c, f->partition);
    f->gone += c.elems;
    f->reduced++;
    f->copied = f->packed = f->added = f->cast = f->normed = 0;
    f->begun = true;
    if (s->ledger != NULL)
        take_made(s, nth, f);
    else if (s->run->zero == 1)
        reduced_beside(s, f, &c);
}

/* Ranks matter where each has its own part of the gradients. Most are of those
 * that the bucket has some of: no need to divide. */
static void take_ranks(const struct stage *s, struct bucket_content *c,
                       uint64_t first, uint64_t end)
{
    const uint64_t share = s->share;
    if (s->run->zero == 3)
        return;
    if (c->tensors == 0)
        c->low = c->high = first / share;
    else if (first < c->low * share)
        c->low = first / share;
    if (end > (c->high + 1) * share)
        c->high = (end - 1) / share;
}

static void take_largest(struct bucket_content *c, uint64_t elems,
                         uint64_t zero)
{
    if (zero == 3)
        c->second = max_u64(c->second, min_u64(c->largest, elems));
    c->largest = max_u64(c->largest, elems);
}

/* Of a tensor what lies in one rank's partition, the most; `low`: no rank after
 * its first. */
static uint64_t largest_slice(const struct stage *s, uint64_t low,
                              uint64_t first, uint64_t elems)
{
    const uint64_t at = first - low * s->share;
    const uint64_t in_it = at < s->share ? at : at % s->share;
    const uint64_t begins = min_u64(elems, s->share - in_it);
    const uint64_t rest = elems - begins;
    return max_u64(begins, min_u64(rest, s->share));
}

void bucket_take_ranks(const struct stage *s, struct bucket_content *c,
                       uint64_t first, uint64_t elems)
{
    take_ranks(s, c, first, first + elems);
    c->slice = max_u64(c->slice, largest_slice(s, c->low, first, elems));
}

/* A block's gradients, all of which the bucket has room for. */
static void take_block(const struct stage *s, struct bucket_fill *f,
                       uint64_t before, const struct arrived *a)
{
    struct bucket_content *c = &f->in;
    if (a->tensors == 0)
        return;
    take_ranks(s, c, before + a->offset, before + a->end);
    c->first = before + a->latest;
    c->elems += a->elems;
    c->tensors += a->tensors;
    take_largest(c, a->largest, s->run->zero);
    take_largest(c, a->second, s->run->zero);
    if (s->run->zero != 3)
        c->slice = max_u64(c->slice, min_u64(a->largest, s->share));
    f->begun = true;
}

uint64_t zero_normed(const struct run *run, uint64_t share, uint64_t elems)
{
    /* _constant_buffered_norm2 of stage3.py, buffer_size (DeepSpeed 0.19.8) */
    enum { AT_ONCE = 250000000 };
    if (run->offload_optimizer == OFFLOAD_NONE)
        return 0;
    return run->zero == 3 ? min_u64(div_up(elems, run->shard), AT_ONCE)
                          : min_u64(elems, share);
}

/* Beside what stage 3 has in order, and where stage 2 has taken its part. */
static void note_normed(const struct stage *s, struct bucket_turn *t,
                        const struct bucket_content *c)
{
    const uint64_t n = zero_normed(s->run, s->share, c->largest);
    if (s->run->zero == 3)
        t->reduced.normed = n;
    else
        t->told.normed = n;
}

/* Reduced, and told: out of a large one it is copied, too. */
static void reduce(const struct stage *s, struct bucket_turn *t, bool low)
{
    const struct bucket_content c = low ? t->after.low : t->after.in;
    const uint64_t nth = t->after.reduced;
    note_reduced(s, &t->reduced, low);
    if (s->loose && s->run->zero == 2)
        note_before(s, nth, &t->reduced);
    emptied(s, &t->after, low);
    t->told = t->after;
    if (low)
        t->told.low.large = c.large;
    else
        t->told.in.large = c.large;
    const bool beside = s->run->zero == 1 && s->ledger == NULL;
    if (beside && engine_optimizer_offloaded(s->run)) {
        told_offloaded(s, &t->told, &c);
        return;
    }
    if (s->ledger != NULL)
        told_dealt(s, &t->told, nth);
    else if (beside && c.large != 0)
        told_beside(s, &t->told, &c);
    note_normed(s, t, &c);
}

void bucket_arrival(const struct stage *s, uint32_t position,
                    const struct arrival *a, struct bucket_turn *t)
{
    t->reduced = t->told = t->after;
    if (a->elems == 0)
        return;
    t->reduced.begun = t->told.begun = true;
    t->reduced.normed = t->told.normed = 0;
    if (bucket_overflows(s, &t->after, a))
        reduce(s, t, a->low);
    if (zero1_has_all(s->run)) { /* its hook runs when what it added is gone */
        t->reduced.gone += a->elems;
        t->told.gone += a->elems;
    }
    bucket_take(s, position, a, &t->after);
}

/* It is made of the last gradients that come. */
struct bucket_fill bucket_before_sum(const struct stage *s, uint32_t position)
{
    const struct block_walk *w = &s->walk[stage_block(s, position)];
    struct bucket_turn t = { .after = s->fill[position + 1] };
    for (uint32_t k = 0; k + 1 < w->arrivals; k++)
        bucket_arrival(s, position, &w->arrival[k], &t);
    return t.after;
}

static void keep_fuller(const struct stage *s, struct bucket_fill *best,
                        const struct bucket_fill *f, bool later)
{
    if (bucket_bytes(s, f, later) > bucket_bytes(s, best, later))
        *best = *f;
}

/* Both buckets, one after the other. */
struct bucket_fill bucket_rest(const struct stage *s, bool later)
{
    struct bucket_turn t = { .reduced = s->fill[0], .after = s->fill[0] };
    const bool two = s->fill[0].low.tensors != 0;
    struct bucket_fill best;
    reduce(s, &t, two);
    best = t.reduced;
    if (two) {
        struct bucket_turn other = { .reduced = s->fill[0], .after = t.after };
        reduce(s, &other, false);
        keep_fuller(s, &best, &other.reduced, later);
        t.told.partition = other.told.partition;
        t.told.kept = other.told.kept;
        t.told.in.large = other.told.in.large;
        t.told.normed = max_u64(t.told.normed, other.told.normed);
    }
    keep_fuller(s, &best, &t.told, later);
    return best;
}

/* Whether a block's gradients all have room, and one bucket is theirs. */
static bool has_room(const struct stage *s, const struct bucket_fill *f,
                     const struct arrived *a)
{
    return s->sum.low_elems == 0 && s->ledger == NULL
           && f->in.elems + a->elems <= s->run->reduce_bucket;
}

static void take_arrival(struct stage *s, uint32_t position,
                         const struct arrival *a, struct bucket_fill *f)
{
    if (bucket_overflows(s, f, a)) {
        if (s->ledger != NULL)
            ledger_reduce(s, a->low, f->reduced);
        emptied(s, f, a->low);
    }
    if (s->ledger != NULL && a->elems != 0)
        ledger_take(s, a->low, s->before[position].elems + a->offset);
    bucket_take(s, position, a, f);
}

/* A rank, and where the elements of its partition begin and end. */
struct rank_span {
    uint64_t rank, begin, end;
};

/* A tensor's elements, and the first of its ranks. */
static void take_across(const struct stage *s, struct bucket_content *c,
                        struct rank_span *at, uint64_t first, uint64_t elems)
{
    bucket_take_ranks(s, c, first, elems);
    at->rank = first / s->share;
    at->begin = at->rank * s->share;
    at->end = at->begin + s->share;
}

/* Of those that lie in it whole. */
static void take_within(struct bucket_content *c, const struct rank_span *at,
                        uint64_t elems)
{
    const bool none = c->tensors == 0;
    c->low = none ? at->rank : min_u64(c->low, at->rank);
    c->high = none ? at->rank : max_u64(c->high, at->rank);
    c->slice = max_u64(c->slice, elems);
}

/* Stages 1 and 2, one bucket: as many in order as it has room for. Ranks of most
 * are known from the one before. Returns how many. */
static uint32_t take_row(const struct stage *s, struct bucket_content *c,
                         struct rank_span *at, uint64_t before,
                         const struct arrival *a, uint32_t n)
{
    const uint64_t room = s->run->reduce_bucket;
    uint32_t k = 0;
    for (; k < n; k++) {
        const uint64_t elems = a[k].elems, first = before + a[k].offset;
        if (elems == 0)
            continue;
        if (c->elems + elems > room)
            break;
        if (at->begin <= first && first + elems <= at->end)
            take_within(c, at, elems);
        else
            take_across(s, c, at, first, elems);
        bucket_count(c, first, elems);
    }
    return k;
}

static void take_rows(struct stage *s, uint32_t position,
                      const struct block_walk *w, struct bucket_fill *f)
{
    const uint64_t before = s->before[position].elems;
    struct rank_span at = { 0, 0, 0 };
    for (uint32_t k = 0; k < w->arrivals;) {
        k += take_row(s, &f->in, &at, before, &w->arrival[k], w->arrivals - k);
        f->begun = f->begun || f->in.tensors > 0;
        if (k == w->arrivals)
            return;
        if (f->in.tensors > 0)
            emptied(s, f, false);
        else
            take_arrival(s, position, &w->arrival[k++], f);
    }
}

/* Stage 3, one bucket: as many in order as it has room for. Returns how many. */
static uint32_t take_fitting(struct bucket_content *c, uint64_t room,
                             uint64_t before, const struct arrival *a,
                             uint32_t n)
{
    uint64_t elems = c->elems, largest = c->largest, second = c->second;
    uint32_t k = 0;
    for (; k < n && a[k].elems != 0 && elems + a[k].elems <= room; k++) {
        second = max_u64(second, min_u64(largest, a[k].elems));
        largest = max_u64(largest, a[k].elems);
        elems += a[k].elems;
    }
    if (k == 0)
        return 0;
    c->first = before + a[k - 1].offset;
    c->tensors += k;
    c->elems = elems;
    c->largest = largest;
    c->second = second;
    return k;
}

/* The gradients of a block, one after another; of stage 3 most find room in the
 * only bucket. */
static void take_arrivals(struct stage *s, uint32_t position,
                          const struct block_walk *w, struct bucket_fill *f)
{
    if (s->run->zero != 3 && s->ledger == NULL && s->sum.low_elems == 0) {
        take_rows(s, position, w, f);
        return;
    }
    const uint64_t before = s->before[position].elems;
    const uint64_t room = s->run->zero == 3 && s->sum.low_elems == 0
                                  && s->ledger == NULL && f->held == 0
                              ? s->run->reduce_bucket
                              : 0;
    for (uint32_t k = 0; k < w->arrivals;) {
        const uint32_t n =
            take_fitting(&f->in, room, before, &w->arrival[k], w->arrivals - k);
        f->begun = f->begun || n > 0;
        k += n;
        if (k < w->arrivals)
            take_arrival(s, position, &w->arrival[k++], f);
    }
}

/* As bucket_rest() goes about it. */
static void reduce_rest(struct stage *s)
{
    const struct bucket_fill *f = &s->fill[0];
    const bool two = f->low.tensors != 0;
    if (two)
        ledger_reduce(s, true, f->reduced);
    ledger_reduce(s, false, f->reduced + (two ? 1 : 0));
}

/* As the block above, which found the same: layers with a gradient larger than
 * the bucket do. */
static void fill_again(struct bucket_fill *f)
{
    *f = f[1];
    f->gone += f[1].gone - f[2].gone;
    f->reduced += f[1].reduced - f[2].reduced;
}

static bool same_content(const struct bucket_content *a,
                         const struct bucket_content *b)
{
    return a->elems == b->elems && a->tensors == b->tensors
           && a->largest == b->largest && a->second == b->second
           && a->large == b->large;
}

/* The block at a position finds what the one above it found: that left it
 * so, or found what it left. */
static bool finds_the_same(const struct stage *s, uint32_t position)
{
    const struct bucket_fill *a = &s->fill[position + 1], *b = a + 1;
    if (position + 1 == s->n || a->in.elems != b->in.elems || s->run->zero != 3
        || stage_block(s, position) != stage_block(s, position + 1))
        return false;
    return a->row != position + 1
           || (a->begun == b->begun && a->held == b->held
               && same_content(&a->in, &b->in)
               && same_content(&a->low, &b->low));
}

void bucket_init(struct stage *s)
{
    s->fill[s->n] = (struct bucket_fill){ .begun = false };
    s->row->known = false;
    for (uint32_t i = s->n; i-- > 0;) {
        struct bucket_fill *f = &s->fill[i];
        if (finds_the_same(s, i)) {
            fill_again(f);
            continue;
        }
        const struct block_walk *w = &s->walk[stage_block(s, i)];
        *f = s->fill[i + 1];
        f->row = i;
        if (has_room(s, f, &w->arrived))
            take_block(s, f, s->before[i].elems, &w->arrived);
        else
            take_arrivals(s, i, w, f);
    }
    if (s->ledger != NULL)
        reduce_rest(s);
}

bool bucket_calm(const struct stage *s, uint32_t position)
{
    const struct bucket_fill *f = &s->fill[position + 1];
    const struct bucket_fill *after = &s->fill[position];
    return f->begun && f->reduced == after->reduced && !bucket_moves(s)
           && (f->in.large | f->low.large | after->in.large | after->low.large)
                  == 0;
}
