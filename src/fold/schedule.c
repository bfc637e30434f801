/*
 * Walks the interleaved schedule of one stage. Owns the order of chunks; what a
 * chunk keeps is the stage's.
 */
#include "fold/schedule.h"

#include "base/banned.h"

struct walking {
    const struct stage *s;
    uint32_t *in_flight; /* chunks, by micro-batch modulo ring */
    uint64_t ring;
    uint32_t micros, chunks;
    uint64_t kept;
};

uint64_t schedule_micros(const struct run *run)
{
    return min_u64(run->grad_accum, 3 * run->pp);
}

/* The k-th forward or backward: groups of as many micro-batches as there are
 * stages go through the chunks, backward from the last. */
static struct slot slot_at(const struct stage *s, uint64_t k, bool back)
{
    const uint64_t p = s->run->pp, v = s->chunks;
    const uint64_t chunk = k % (p * v) / p;
    return (struct slot){ .back = back,
                          .micro = (uint32_t)(k / (p * v) * p + k % p),
                          .chunk = (uint32_t)(back ? v - 1 - chunk : chunk) };
}

static bool run_slot(struct walking *w, struct slot slot, slot_fn *each,
                     void *ctx)
{
    uint32_t *mine = &w->in_flight[slot.micro % w->ring];
    const uint64_t kept = w->s->chunk_kept[slot.chunk];
    if (slot.back) {
        w->micros -= *mine == 1;
        w->chunks--;
        w->kept -= kept;
        --*mine;
    }
    slot.other_micros = w->micros - (*mine > 0);
    slot.other_chunks = w->chunks;
    slot.kept = w->kept;
    if (!slot.back) {
        w->micros += *mine == 0;
        w->chunks++;
        w->kept += kept;
        ++*mine;
    }
    return each(ctx, &slot);
}

void schedule_interleaved(const struct stage *s, const uint64_t *micros,
                          uint32_t *in_flight, slot_fn *each, void *ctx)
{
    struct walking w = { .s = s,
                         .in_flight = in_flight,
                         .ring = schedule_micros(s->run) };
    uint64_t forward = 0, backward = 0;
    for (;;) {
        const uint64_t all = *micros * s->chunks;
        if (backward >= all)
            return;
        const bool back = forward == all || forward - backward == s->in_flight;
        struct slot slot = slot_at(s, back ? backward : forward, back);
        slot.later = back ? slot.micro > 0 : backward > 0;
        if (!run_slot(&w, slot, each, ctx))
            return;
        *(back ? &backward : &forward) += 1;
    }
}
