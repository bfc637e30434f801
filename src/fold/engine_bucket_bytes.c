/*
 * What there is of gradients and of DeepSpeed's bucket at a moment of a
 * backward that fills it: in bytes, for the closed form, and term by term.
 * engine_bucket.c says what is in it. [docs/method.md eq. buckets]
 */
#include "fold/engine_private.h"

#include "base/banned.h"

const char *zero_partition_label(const struct run *run)
{
    return run_sums_in_fp32(run) ? "gradient partition, in fp32"
                                 : "gradient partition, tensors whole";
}

/* Gradients of a rank's partition stay where they were made, and those of a
 * later micro-batch beside those that they are added to. */
static bool adds_where_made(const struct stage *s)
{
    return s->loose && s->run->zero == 2 && !run_sums_in_fp32(s->run);
}

static uint64_t kept_bytes(const struct stage *s, const struct bucket_fill *f,
                           bool later)
{
    const struct run *run = s->run;
    const uint64_t size =
        s->loose ? zero_arriving_bytes(run) : dtype_size(run->prec.grad);
    return (later && adds_where_made(s) ? f->again_kept : f->kept) * size;
}

/* ... in buckets that are lists of them. */
static uint64_t waiting_bytes(const struct stage *s,
                              const struct bucket_fill *f)
{
    return s->loose ? (f->in.elems + f->low.elems) * zero_arriving_bytes(s->run)
                    : 0;
}

/* A later micro-batch makes a second one, and adds it to the first. */
static uint64_t partitions(const struct stage *s, const struct bucket_fill *f,
                           bool later)
{
    return later && s->run->zero == 2 && 2 * f->partition > s->partition
                   && !run_sums_in_fp32(s->run) && !adds_where_made(s)
               ? 2
               : 1;
}

static uint64_t partition_elems(const struct stage *s,
                                const struct bucket_fill *f, bool later)
{
    if (s->run->zero == 1)
        return f->partition;
    if (s->run->offload_optimizer != OFFLOAD_NONE)
        return 0;
    if (adds_where_made(s))
        return later ? max_u64(f->again, s->partition) : f->partition;
    return later && partitions(s, f, later) == 1 ? s->partition : f->partition;
}

static bool has_bucket(const struct stage *s, const struct bucket_fill *f)
{
    return s->run->zero != 3 && !s->loose
           && (f->begun || zero1_has_all(s->run)
               || s->run->zero_bucket == BUCKET_BACKWARD);
}

/* Norms are of the sums of all micro-batches. */
static uint64_t normed_bytes(const struct run *run, const struct bucket_fill *f,
                             bool later)
{
    enum { DOUBLE = 8 };
    return later || run->grad_accum == 1 ? f->normed * DOUBLE : 0;
}

/* How many are filled: one for each type that gradients are sent in. */
static uint64_t zero_buckets(const struct stage *s)
{
    const uint64_t low = s->sum.low_elems;
    return low != 0 && low < s->sum.elems ? 2 : 1;
}

/* ... and a second one to fill while that is sent. */
static uint64_t buffers(const struct stage *s)
{
    return (s->run->overlap_comm ? 2 : 1) * zero_buckets(s);
}

static uint64_t zero_bucket_bytes(const struct stage *s)
{
    return s->run->reduce_bucket * bucket_width(s->run) * buffers(s);
}

void zero_put_bucket(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    PUT(p, TERM_BUCKETS, "reduce bucket",
        F("reduce_bucket", run->reduce_bucket), F("bytes", bucket_width(run)),
        A("buckets", buffers(s)));
}

/* What there is of gradients that were told. */
static uint64_t told_bytes(const struct stage *s, const struct bucket_fill *f,
                           bool later)
{
    const struct run *run = s->run;
    const uint64_t large = f->in.large + f->low.large;
    const uint64_t waits = large == 0 ? 0 : large * zero_arriving_bytes(run);
    if (run->zero == 3)
        return waits + waiting_bytes(s, f);
    const uint64_t grad = dtype_size(run->prec.grad);
    const uint64_t all =
        waits + kept_bytes(s, f, later) + waiting_bytes(s, f)
        + partition_elems(s, f, later) * partitions(s, f, later) * grad;
    if (!zero1_has_all(run))
        return all;
    /* what another term has of all gradients, be there fewer: then the backward
       was fuller before */
    const uint64_t told = (f->gone + f->in.elems + f->low.elems) * grad;
    return all > told ? all - told : 0;
}

uint64_t bucket_bytes(const struct stage *s, const struct bucket_fill *f,
                      bool later)
{
    return (has_bucket(s, f) ? zero_bucket_bytes(s) : 0)
           + told_bytes(s, f, later) + f->held + f->copied + f->packed
           + f->added * dtype_size(s->run->prec.grad) + f->cast
           + normed_bytes(s->run, f, later);
}

uint64_t bucket_most(const struct stage *s, uint64_t largest)
{
    const struct run *run = s->run;
    const uint64_t own = bucket_width(run);
    const uint64_t wire = dtype_size(run->prec.reduce);
    const uint64_t grad = dtype_size(run->prec.grad);
    const uint64_t in_it = max_u64(run->reduce_bucket, largest);
    uint64_t most = largest * zero_arriving_bytes(run);
    if (run_sums_in_fp32(run))
        most += s->share * FP32;
    if (zero3_casts_back(run, run->prec.reduce))
        most += in_it * grad;
    if (zero3_casts(run))
        most += in_it * wire;
    most += zero_normed(run, s->share, largest) * 8;
    if (s->sum.low_elems != 0) /* one that waits, what is cast and cast back */
        most += largest * FP32 + in_it * (2 * FP16 + FP32);
    if (run->zero != 3)
        most += 2 * zero_buckets(s) * run->reduce_bucket * own
                + 2 * s->partition * grad;
    if (run->zero == 1)
        most += s->sum.elems * grad;
    if (run_is_loose(run)) /* wait, and of the partition are there */
        most += (2 * in_it + s->sum.elems) * zero_arriving_bytes(run);
    if (run_reduces_in_4_bits(run))
        return most + largest + 3 * largest / run->gpus_per_node
               + max_u64(4 * largest / run->shard, largest / 2)
               + 2 * in_it / run->shard;
    return most + in_it * (own + (wire != own ? wire : 0));
}

static void put_told(struct put *p, const struct stage *s,
                     const struct bucket_fill *f, bool later)
{
    const struct run *run = s->run;
    if (zero1_has_all(run)) {
        PUT(p, TERM_GRAD_SHARDS,
            "gradient partition, less gradients that went into it and buckets",
            F("bytes", told_bytes(s, f, later)));
        return;
    }
    PUT(p, TERM_WGRAD_TMP,
        "a gradient larger than the bucket, until the next one comes",
        F("elements", f->in.large + f->low.large),
        F("bytes", zero_arriving_bytes(run)));
    PUT(p, TERM_WGRAD_TMP,
        run_is_loose(run)
            ? "gradients that have been reduced and not let go"
            : "gradients larger than the bucket, of other ranks' partitions",
        F("bytes", kept_bytes(s, f, later)));
    PUT(p, TERM_WGRAD_TMP, "gradients that wait to be reduced",
        F("bytes", waiting_bytes(s, f)));
    if (run->zero != 3)
        PUT(p, TERM_GRAD_SHARDS, zero_partition_label(run),
            F("elements", partition_elems(s, f, later)),
            F("bytes per gradient", dtype_size(run->prec.grad)),
            A("partitions", partitions(s, f, later)));
}

void bucket_put(struct put *p, const struct stage *s,
                const struct bucket_fill *f, bool later)
{
    if (has_bucket(s, f))
        zero_put_bucket(p, s);
    put_told(p, s, f, later);
    PUT(p, TERM_REDUCE_TMP, "gradients cast to the type that is sent",
        F("bytes", f->cast));
    PUT(p, TERM_REDUCE_TMP, "a part cast to the type it is added in",
        F("elements", f->added), F("bytes", dtype_size(s->run->prec.grad)));
    PUT(p, TERM_REDUCE_TMP, "a gradient in double precision for its norm",
        F("bytes", normed_bytes(s->run, f, later)));
    PUT(p, TERM_REDUCE_TMP, "a gradient in 4 bits, sent and received",
        F("bytes", f->packed));
    PUT(p, TERM_REDUCE_TMP, "copy of a full bucket while it is reduced",
        F("bytes", f->copied));
}
