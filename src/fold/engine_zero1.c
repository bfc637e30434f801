/*
 * ZeRO-1 without overlap_comm: all gradients are there when it reduces them, in
 * the order of the model's modules. What fits into the bucket is gone as it is
 * copied; a larger gradient is sent where it lies and goes into the partition of
 * the rank whose it is, on the others it stays to the end. Without
 * contiguous_gradients all stay where they are. Read in DeepSpeed
 * 0.19.8 runtime/zero/stage_1_and_2.py (reduce_gradients, reduce_ipg_grads,
 * copy_grads_in_partition) and held against it (tests/oracle/zero.py).
 * [docs/method.md eq. buckets]
 */
#include "fold/engine_private.h"

#include "base/banned.h"

void zero1_begin(const struct stage *s, struct zero1 *z)
{
    *z = (struct zero1){ .at = 0 };
    for (uint64_t r = 0; r < s->run->shard; r++) {
        s->rank[r].reduced = s->rank[r].reduced_large = 0;
        s->rank[r].in = 0;
    }
}

/* Of a rank, more than of large gradients that went into it. */
static uint64_t partition_of(const struct stage *s, uint64_t rank)
{
    const struct zero_part *r = &s->rank[rank];
    if (r->reduced == 0 || s->loose
        || (s->run->zero_rank == ZERO_RANK_FIRST && rank > 0))
        return 0;
    return r->whole - r->reduced_large;
}

static uint64_t most_open(const struct stage *s, const struct zero1 *z,
                          uint64_t end)
{
    uint64_t most = z->done;
    for (uint64_t r = z->open; r < end; r++)
        most = max_u64(most, partition_of(s, r));
    return most;
}

/* Ranks that nothing is to come of any more: tensors in order have passed them.
 */
static void close_ranks(const struct stage *s, struct zero1 *z, uint64_t next)
{
    if (run_deals_tensors(s->run))
        return;
    for (unsigned low = 0; low < 2; low++)
        if (z->in[low].tensors > 0)
            next = min_u64(next, z->in[low].low);
    for (; z->open < next; z->open++)
        z->done = max_u64(z->done, partition_of(s, z->open));
}

/* Its gradients are sent, then come into the partitions of their ranks, which
 * are made for the first. */
static void reduce(struct stage *s, struct zero1 *z, bool low)
{
    struct bucket_content *c = &z->in[low];
    const uint64_t grad = dtype_size(s->run->prec.grad);
    const uint64_t end =
        run_deals_tensors(s->run) ? s->run->shard : c->high + 1;
    if (c->tensors == 0)
        return;
    const struct sent sent = bucket_sent(s, c, low);
    const uint64_t there =
        most_open(s, z, end) * grad + sent.copied + sent.cast;
    if (there > z->moved * grad)
        s->sent = max_u64(s->sent, there - z->moved * grad);
    for (uint64_t r = z->open; r < end; r++)
        s->rank[r].reduced += s->rank[r].in & 1u << low ? 1 : 0;
    const uint64_t made = most_open(s, z, end);
    if (made > z->moved)
        s->made = max_u64(s->made, made - z->moved);
    for (uint64_t r = z->open; r < end; r++) {
        if (s->rank[r].in & 1u << low)
            s->rank[r].reduced_large += c->large;
        s->rank[r].in &= ~(1u << low);
    }
    const uint64_t next = c->high;
    *c = (struct bucket_content){ 0 };
    close_ranks(s, z, next);
}

void zero1_add(struct stage *s, struct zero1 *z, uint64_t elems, bool low)
{
    struct bucket_content *c = &z->in[low];
    if (c->elems + elems > s->run->reduce_bucket)
        reduce(s, z, low);
    bucket_add(s, c, z->at, elems);
    const uint64_t last = (c->first + elems - 1) / s->share;
    for (uint64_t r = c->first / s->share; r <= last; r++)
        s->rank[r].in |= 1u << low;
    z->at += elems;
    z->moved += c->large == 0 && !s->loose ? elems : 0;
}

/* 16 bits first (sort_dtypes). */
void zero1_end(struct stage *s, struct zero1 *z)
{
    reduce(s, z, true);
    reduce(s, z, false);
}

/* ---- bytes ---- */

/* Of the largest, less the gradients that are in its bucket. */
static void zero1_norms(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t largest = s->sum.largest_grad;
    const uint64_t norm = zero_normed(run, s->share, largest) * 8;
    const uint64_t in_it = largest > run->reduce_bucket
                               ? 0
                               : min_u64(run->reduce_bucket, s->sum.elems)
                                     * dtype_size(run->prec.grad);
    if (norm > in_it)
        PUT(p, TERM_REDUCE_TMP,
            "a gradient in double precision for its norm, less those in its "
            "bucket",
            F("bytes", norm - in_it));
}

/* ZeRO-1 without overlap reduces all gradients at the end, bucket by bucket:
 * those of a bucket are freed as they are copied into it, then the partition is
 * made. */
void zero1_put(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    if (run_is_loose(run))
        PUT(p, TERM_REDUCE_TMP, "copy of a full bucket while it is reduced",
            F("bytes", s->sent));
    else if (engine_optimizer_offloaded(run))
        zero1_norms(p, s);
    else if (s->sent > s->made * dtype_size(run->prec.grad))
        PUT(p, TERM_REDUCE_TMP,
            "what is sent of a bucket, and partition, less gradients that are "
            "in buckets",
            F("bytes", s->sent));
    else
        PUT(p, TERM_GRAD_SHARDS,
            "gradient partition, less gradients that are in buckets",
            F("elements", s->made),
            F("bytes per gradient", dtype_size(run->prec.grad)));
}
