/*
 * What DeepSpeed's pipeline engine makes and lets go of a piece at a time: the
 * closed form knows the largest piece, here come all of them, since each needs
 * room in one piece. Those of the gather are never the fullest moment: no
 * larger than the gradients, which are gone by then. [docs/method.md eq.
 * buckets, eq. step]
 */
#include "fold/trace_private.h"

#include "base/banned.h"

/* There and gone. */
static void passes(struct tracer *r, const char *name, uint64_t bytes)
{
    hold_id id = tracer_birth(r, COMP_TEMPORARY, name, bytes, STREAM_COMPUTE);
    tracer_death(r, &id);
}

struct buckets {
    struct tracer *r;
    bool seen; /* the moment's own */
};

static void bucket_passes(void *ctx, uint64_t elems)
{
    struct buckets *b = ctx;
    struct tracer *r = b->r;
    if (elems == r->s->bucket && !b->seen)
        b->seen = true;
    else
        passes(r, "flattened gradients on their way",
               elems * dtype_size(r->s->run->prec.reduce));
}

void trace_reduce(struct tracer *r)
{
    struct buckets b = { .r = r };
    if (!engine_steps_views(r->s->run))
        return;
    levels_drop(r, TERM_REDUCE_TMP);
    zero_each_bucket(r->s, bucket_passes, &b);
}

void trace_accumulate(struct tracer *r)
{
    enum { FP32 = 4 };
    bool seen = false;
    levels_drop(r, TERM_WGRAD_TMP);
    if (engine_reduces_blocks(r->s->run))
        return;
    for (size_t i = 0; i < r->trained.n; i++) {
        if (!seen && r->trained.v[i] == r->s->sum.largest_grad)
            seen = true; /* the moment's own */
        else
            passes(r, "a gradient in fp32, to be added",
                   r->trained.v[i] * FP32);
    }
}

void trace_gather(struct tracer *r)
{
    const uint64_t size = dtype_size(r->s->run->prec.param);
    uint64_t elems = zero_gather_flat(r->s, 0);
    for (uint64_t i = 1; elems != 0; i++) {
        passes(r, "updated weights, gathered flat", elems * size);
        elems = zero_gather_flat(r->s, i);
    }
}
