/*
 * Walks the schedule of one stage, chunk by chunk. Owns the interleaved order;
 * what a chunk keeps is the stage's, the other orders are schedule_zero.c's.
 */
#include "fold/schedule_private.h"

#include "base/banned.h"

bool schedule_splits(const struct run *run)
{
    switch (run->schedule) {
    case SCHED_ZB_H1:
    case SCHED_ZB_V:
    case SCHED_DUALPIPE:
    case SCHED_DUALPIPE_V: return run->pp > 1;
    case SCHED_1F1B:
    case SCHED_GPIPE:
    case SCHED_INTERLEAVED:
    case SCHED_NAIVE:
    case SCHEDULE_COUNT: break;
    }
    return false;
}

bool schedule_is_dual(const struct run *run)
{
    return run->schedule == SCHED_DUALPIPE && run->pp > 1;
}

bool schedule_walked(const struct run *run)
{
    return run->schedule == SCHED_INTERLEAVED || schedule_splits(run);
}

uint64_t schedule_micros(const struct run *run)
{
    switch (run->schedule) {
    case SCHED_ZB_H1: return min_u64(run->grad_accum, 2 * run->pp + 2);
    case SCHED_ZB_V:
    case SCHED_DUALPIPE:
    case SCHED_DUALPIPE_V: return min_u64(run->grad_accum, 2 * run->pp + 4);
    case SCHED_1F1B:
    case SCHED_GPIPE:
    case SCHED_INTERLEAVED:
    case SCHED_NAIVE:
    case SCHEDULE_COUNT: break;
    }
    return min_u64(run->grad_accum, 3 * run->pp);
}

uint64_t schedule_room(const struct run *run)
{
    const uint64_t lists = !schedule_splits(run) ? 1 : run_folds(run) ? 3 : 2;
    return lists * schedule_micros(run);
}

/* The k-th forward or backward: groups of as many micro-batches as there are
 * stages go through the chunks, backward from the last. */
static struct slot slot_at(const struct stage *s, uint64_t k, bool back)
{
    const uint64_t p = s->run->pp, v = s->chunks;
    const uint64_t chunk = k % (p * v) / p;
    return (struct slot){ .kind = back ? SLOT_BACKWARD : SLOT_FORWARD,
                          .micro = (uint32_t)(k / (p * v) * p + k % p),
                          .chunk = (uint32_t)(back ? v - 1 - chunk : chunk) };
}

bool schedule_slot(struct walking *w, struct slot slot, slot_fn *each,
                   void *ctx)
{
    uint32_t *mine = &w->in_flight[slot.micro % w->ring];
    const uint64_t kept = w->s->chunk_kept[slot.chunk];
    const uint64_t stash = w->s->chunk_stash[slot.chunk];
    if (slot.kind == SLOT_BACKWARD || slot.kind == SLOT_INPUT) {
        w->micros -= *mine == 1;
        w->chunks--;
        w->kept -= kept;
        --*mine;
    } else if (slot.kind == SLOT_WEIGHT) {
        w->kept -= stash;
        w->waiting--;
    }
    slot.other_micros = w->micros - (*mine > 0);
    slot.other_chunks = w->chunks;
    slot.waiting = w->waiting;
    slot.kept = w->kept;
    if (slot.kind == SLOT_FORWARD) {
        w->micros += *mine == 0;
        w->chunks++;
        w->kept += kept;
        ++*mine;
    } else if (slot.kind == SLOT_INPUT) {
        w->kept += stash;
        w->waiting++;
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
        if (!schedule_slot(&w, slot, each, ctx))
            return;
        *(back ? &backward : &forward) += 1;
    }
}
