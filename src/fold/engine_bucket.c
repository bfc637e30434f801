/*
 * How gradients fill DeepSpeed's bucket, one after another, in ZeRO-2 and -3,
 * and in ZeRO-1 that reduces beside its only backward: when it is full and
 * reduced, by way of a copy or not, and when a rank's partition is made. Read in
 * DeepSpeed 0.19.8 runtime/zero (stage_1_and_2.py:
 * reduce_independent_p_g_buckets_and_remove_grads, average_tensor,
 * reduce_ipg_grads, copy_grads_in_partition; stage3.py) and held against it
 * gradient by gradient (tests/oracle/zero.py). [docs/method.md eq. buckets]
 */
#include "fold/engine_private.h"

#include "base/banned.h"

/* overlap_comm's hooks reduce once a step in stage 1, which is while its last
 * micro-batch runs backward (stage_1_and_2.py, process_gradients). After others
 * all gradients are there before: engine.c. */
static bool reduces_beside(const struct run *run)
{
    const bool widened = run->prec.grad == DT_FP32 && run->prec.param != DT_FP32
                         && !run_adapts(run);
    return run->zero == 1 && run->overlap_comm && run->grad_accum == 1
           && !run_pipelines(run) && !engine_keeps_fp32_buffer(run) && !widened
           && run->offload_optimizer == OFFLOAD_NONE;
}

bool zero_fills_bucket(const struct run *run)
{
    return run->engine == ENGINE_DEEPSPEED
           && (run->zero >= 2 || reduces_beside(run));
}

/* As autograd makes one, whatever they are added up in. */
static uint64_t arriving_bytes(const struct run *run)
{
    const enum dtype param = run->prec.param;
    const bool half = param == DT_BF16 || param == DT_FP16;
    return dtype_size(half && !run_adapts(run) ? param : run->prec.grad);
}

/* A list of slices, each of one rank, is flattened; one is reduced where it
 * is. What is longer than a bucket goes in turns (allreduce_and_scatter). */
static uint64_t slices_copy(const struct stage *s, uint64_t first, uint64_t n)
{
    const uint64_t share = s->share, end = first + n;
    uint64_t most = 0, elems = 0, slices = 0;
    for (uint64_t at = first; at < end;) {
        const uint64_t slice = min_u64(end - at, share - at % share);
        at += slice;
        elems += slice;
        slices++;
        if (elems <= s->run->reduce_bucket && at < end)
            continue;
        if (slices > 1)
            most = max_u64(most, elems);
        elems = slices = 0;
    }
    return most;
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
static uint64_t copy_of(const struct stage *s, const struct bucket_content *c)
{
    const struct run *run = s->run;
    if (c->tensors == 0 || run_reduces_in_4_bits(run))
        return 0;
    if (run->zero == 3)
        return c->tensors > 1 || c->elems % run->shard != 0 ? c->elems : 0;
    if (c->large != 0)
        return slices_copy(s, c->first, c->large);
    return c->low == c->high ? 0 : c->elems;
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
    for (uint64_t r = c->low; r <= c->high && (!first || r == 0); r++)
        most = max_u64(most, s->rank[r].whole);
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
    f->added = min_u64(max_u64(c->largest, c->large), s->share);
    if (c->large == 0 && c->tensors > 1)
        f->copy = c->elems;
}

/* Stage 3 has a bucket in the type that is sent, and casts what is too large
 * for it; what comes back is cast. Stage 2 casts what it sends
 * (allreduce_bucket). */
static void note_low(const struct stage *s, const struct bucket_content *c,
                     struct bucket_fill *f)
{
    const bool scatters = s->run->zero == 3;
    f->cast = scatters ? f->copy + c->large : c->elems;
    f->added = scatters ? div_up(c->elems, s->run->shard) : 0;
    if (scatters)
        f->copy = 0;
}

/* Stage 3 adds up in fp32 what it sent in 16 bits (__avg_scatter_grads). */
static bool casts_back(const struct run *run)
{
    return run->zero == 3 && run->prec.grad == DT_FP32
           && run->prec.reduce != DT_FP32 && !run_reduces_in_4_bits(run);
}

static void note_reduced(const struct stage *s, struct bucket_fill *f, bool low)
{
    const struct bucket_content *c = low ? &f->low : &f->in;
    f->copy = copy_of(s, c);
    f->cast = f->added = f->packed = 0;
    if (c->tensors > 0 && low)
        note_low(s, c, f);
    else if (c->tensors > 0 && casts_back(s->run))
        f->added = div_up(c->elems, s->run->shard);
    if (c->tensors > 0 && run_sums_in_fp32(s->run))
        note_summed(s, c, f);
    if (c->tensors > 0 && run_reduces_in_4_bits(s->run))
        f->packed = in_4_bits(s->run, c);
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

static void close_partition(const struct stage *s, struct zero_beside *b,
                            uint64_t rank)
{
    const struct zero_part *r = &s->rank[rank];
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
    note_kept(s, f);
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
        const bool open = r + b->begun == s->run->shard;
        const uint64_t own = open ? b->own : s->rank[r].large;
        const uint64_t all = s->rank[r].whole + b->large - own;
        if (all <= most)
            continue;
        most = all;
        told->partition = s->rank[r].whole;
        told->kept = b->large - own;
    }
}

/* ---- one after another ---- */

static struct bucket_fill emptied(const struct stage *s,
                                  const struct bucket_fill *f, bool low)
{
    const struct bucket_content none = { 0 };
    const struct bucket_content *c = low ? &f->low : &f->in;
    struct bucket_fill x = { .in = low ? f->in : none,
                             .low = low ? none : f->low,
                             .partition = made_by(s, c, f->partition),
                             .kept = f->kept,
                             .beside = f->beside,
                             .reduced = f->reduced + 1,
                             .begun = true };
    if (s->run->zero == 1)
        reduced_beside(s, &x, c);
    return x;
}

/* Ranks matter where each has its own part of the gradients. */
static void take_ranks(const struct stage *s, struct bucket_content *c,
                       uint64_t first, uint64_t end)
{
    if (s->run->zero == 3)
        return;
    const uint64_t low = first / s->share, high = (end - 1) / s->share;
    c->low = c->tensors == 0 ? low : min_u64(c->low, low);
    c->high = c->tensors == 0 ? high : max_u64(c->high, high);
}

static void take_largest(struct bucket_content *c, uint64_t elems)
{
    c->second = max_u64(c->second, min_u64(c->largest, elems));
    c->largest = max_u64(c->largest, elems);
}

static void take(const struct stage *s, struct bucket_content *c,
                 uint64_t first, uint64_t elems)
{
    take_ranks(s, c, first, first + elems);
    c->first = first;
    c->elems += elems;
    c->tensors++;
    take_largest(c, elems);
    if (elems > s->run->reduce_bucket)
        c->large = elems;
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
    take_largest(c, a->largest);
    take_largest(c, a->second);
    f->begun = true;
}

bool bucket_overflows(const struct stage *s, const struct bucket_fill *f,
                      const struct arrival *a)
{
    const struct bucket_content *c = a->low ? &f->low : &f->in;
    return a->elems != 0 && c->tensors > 0
           && c->elems + a->elems > s->run->reduce_bucket;
}

void bucket_take(const struct stage *s, uint32_t position,
                 const struct arrival *a, struct bucket_fill *f)
{
    if (a->elems == 0)
        return;
    f->begun = true;
    take(s, a->low ? &f->low : &f->in, s->before[position].elems + a->offset,
         a->elems);
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
    const struct bucket_fill f = t->after;
    const struct bucket_content *c = low ? &f.low : &f.in;
    note_reduced(s, &t->reduced, low);
    t->told = t->after = emptied(s, &f, low);
    if (low)
        t->told.low.large = f.low.large;
    else
        t->told.in.large = f.in.large;
    if (s->run->zero == 1 && c->large != 0)
        told_beside(s, &t->told, c);
    note_normed(s, t, c);
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
    return s->sum.low_elems == 0
           && f->in.elems + a->elems <= s->run->reduce_bucket;
}

void bucket_init(struct stage *s)
{
    s->fill[s->n] = (struct bucket_fill){ .begun = false };
    for (uint32_t i = s->n; i-- > 0;) {
        const struct block_walk *w = &s->walk[stage_block(s, i)];
        struct bucket_fill f = s->fill[i + 1];
        const bool room = has_room(s, &f, &w->arrived);
        if (room)
            take_block(s, &f, s->before[i].elems, &w->arrived);
        for (uint32_t k = 0; k < w->arrivals && !room; k++) {
            const struct arrival *a = &w->arrival[k];
            if (bucket_overflows(s, &f, a))
                f = emptied(s, &f, a->low);
            bucket_take(s, i, a, &f);
        }
        s->fill[i] = f;
    }
}

bool bucket_calm(const struct stage *s, uint32_t position)
{
    const struct bucket_fill *f = &s->fill[position + 1];
    const struct bucket_fill *after = &s->fill[position];
    return f->begun && f->reduced == after->reduced
           && (f->in.large | f->low.large | after->in.large | after->low.large)
                  == 0;
}

/* ---- bytes ---- */

const char *zero_partition_label(const struct run *run)
{
    return run_sums_in_fp32(run) ? "gradient partition, in fp32"
                                 : "gradient partition, tensors whole";
}

/* A later micro-batch makes a second one, and adds it to the first. */
static uint64_t partitions(const struct stage *s, const struct bucket_fill *f,
                           bool later)
{
    return later && 2 * f->partition > s->partition && !run_sums_in_fp32(s->run)
               ? 2
               : 1;
}

static uint64_t partition_elems(const struct stage *s,
                                const struct bucket_fill *f, bool later)
{
    if (s->run->offload_optimizer != OFFLOAD_NONE)
        return 0;
    return later && partitions(s, f, later) == 1 ? s->partition : f->partition;
}

static bool has_bucket(const struct stage *s, const struct bucket_fill *f)
{
    return s->run->zero != 3
           && (f->begun || s->run->zero_bucket == BUCKET_BACKWARD);
}

/* Norms are of the sums of all micro-batches. */
static uint64_t normed_bytes(const struct run *run, const struct bucket_fill *f,
                             bool later)
{
    enum { DOUBLE = 8 };
    return later || run->grad_accum == 1 ? f->normed * DOUBLE : 0;
}

/* One for each type that gradients are sent in. */
uint64_t zero_buckets(const struct stage *s)
{
    const uint64_t low = s->sum.low_elems;
    return low != 0 && low < s->sum.elems ? 2 : 1;
}

uint64_t bucket_bytes(const struct stage *s, const struct bucket_fill *f,
                      bool later)
{
    const struct run *run = s->run;
    const uint64_t wire = dtype_size(run->prec.reduce);
    const uint64_t grad = dtype_size(run->prec.grad);
    const uint64_t buckets = (run->overlap_comm ? 2 : 1) * zero_buckets(s);
    const uint64_t large = f->in.large + f->low.large;
    return (has_bucket(s, f) ? run->reduce_bucket * wire * buckets : 0)
           + (large == 0 ? 0 : large * arriving_bytes(run)) + f->copy * wire
           + f->packed + f->added * FP32 + f->cast * FP16
           + normed_bytes(run, f, later) + f->kept * grad
           + (run->zero == 3 ? 0
                             : partition_elems(s, f, later)
                                   * partitions(s, f, later) * grad);
}

uint64_t bucket_most(const struct stage *s, uint64_t largest)
{
    const struct run *run = s->run;
    const uint64_t wire = dtype_size(run->prec.reduce);
    const uint64_t grad = dtype_size(run->prec.grad);
    const uint64_t in_it = max_u64(run->reduce_bucket, largest);
    uint64_t most = largest * arriving_bytes(run);
    if (run_sums_in_fp32(run))
        most += s->share * FP32;
    if (casts_back(run))
        most += in_it * FP32;
    most += zero_normed(run, s->share, largest) * 8;
    if (s->sum.low_elems != 0) /* one that waits, what is cast and cast back */
        most += largest * FP32 + in_it * (2 * FP16 + FP32);
    if (run->zero != 3)
        most += 2 * zero_buckets(s) * run->reduce_bucket * wire
                + 2 * s->partition * grad;
    if (run->zero == 1)
        most += s->sum.elems * grad;
    if (run_reduces_in_4_bits(run))
        return most + largest + 3 * largest / run->gpus_per_node
               + max_u64(4 * largest / run->shard, largest / 2)
               + 2 * in_it / run->shard;
    return most + in_it * wire;
}

void bucket_put(struct put *p, const struct stage *s,
                const struct bucket_fill *f, bool later)
{
    const struct run *run = s->run;
    const uint64_t wire = dtype_size(run->prec.reduce);
    const uint64_t grad = dtype_size(run->prec.grad);
    if (has_bucket(s, f))
        PUT(p, TERM_BUCKETS, "reduce bucket",
            F("reduce_bucket", run->reduce_bucket), F("bytes", wire),
            A("buckets", (run->overlap_comm ? 2 : 1) * zero_buckets(s)));
    PUT(p, TERM_WGRAD_TMP,
        "a gradient larger than the bucket, until the next one comes",
        F("elements", f->in.large + f->low.large),
        F("bytes", arriving_bytes(run)));
    PUT(p, TERM_WGRAD_TMP,
        "gradients larger than the bucket, of other ranks' partitions",
        F("elements", f->kept), F("bytes", grad));
    if (run->zero != 3)
        PUT(p, TERM_GRAD_SHARDS, zero_partition_label(run),
            F("elements", partition_elems(s, f, later)),
            F("bytes per gradient", grad),
            A("partitions", partitions(s, f, later)));
    PUT(p, TERM_REDUCE_TMP, "gradients cast to 16 bits, to be sent",
        F("elements", f->cast), F("bytes", FP16));
    PUT(p, TERM_REDUCE_TMP, "a part cast to be added in fp32",
        F("elements", f->added), F("bytes", FP32));
    PUT(p, TERM_REDUCE_TMP, "a gradient in double precision for its norm",
        F("bytes", normed_bytes(run, f, later)));
    PUT(p, TERM_REDUCE_TMP, "a gradient in 4 bits, sent and received",
        F("bytes", f->packed));
    PUT(p, TERM_REDUCE_TMP, "copy of a full bucket while it is reduced",
        F("elements", f->copy), F("bytes", wire));
}
