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

uint64_t schedule_room(const struct run *run, uint64_t micros)
{
    return !schedule_splits(run) ? 0 : run_folds(run) ? 2 * micros : micros;
}

/* Groups of as many micro-batches as there are stages go through the chunks,
 * backward from the last: how far forwards have come, or backwards. */
struct turn {
    uint64_t done;
    uint32_t group, micro, chunk; /* the group's first, and which of it */
};

static struct slot slot_of(const struct stage *s, const struct turn *t,
                           bool back)
{
    return (struct slot){ .kind = back ? SLOT_BACKWARD : SLOT_FORWARD,
                          .micro = t->group + t->micro,
                          .chunk = back ? s->chunks - 1 - t->chunk : t->chunk };
}

static void turn_on(struct turn *t, const struct stage *s)
{
    t->done++;
    if (++t->micro < s->run->pp)
        return;
    t->micro = 0;
    if (++t->chunk < s->chunks)
        return;
    t->chunk = 0;
    t->group += (uint32_t)s->run->pp;
}

void schedule_turns(const struct stage *s, uint64_t micros, bool back,
                    slot_fn *each, void *ctx)
{
    const uint64_t all = micros * s->chunks;
    for (struct turn t = { 0 }; t.done < all; turn_on(&t, s)) {
        const struct slot slot = slot_of(s, &t, back);
        if (!each(ctx, &slot))
            return;
    }
}

/* Forwards until so many are in flight, then one of each, then backwards. */
static bool is_back(const struct stage *s, const struct turn *forward,
                    const struct turn *backward, uint64_t all)
{
    return forward->done == all
           || forward->done - backward->done == s->in_flight;
}

void schedule_interleaved_kept(const struct stage *s, uint64_t micros,
                               uint64_t *most)
{
    const uint64_t all = micros * s->chunks;
    const uint64_t micro = s->shared_kept + s->inputs;
    struct turn forward = { 0 }, backward = { 0 };
    uint64_t kept = 0; /* in flight; a micro-batch's own with its first chunk */
    while (backward.done < all) {
        const bool back = is_back(s, &forward, &backward, all);
        struct turn *turn = back ? &backward : &forward;
        const uint32_t chunk = back ? s->chunks - 1 - turn->chunk : turn->chunk;
        const uint64_t own = s->chunk_kept[chunk] + s->stage_input;
        const bool later =
            back ? turn->group + turn->micro > 0 : backward.done > 0;
        uint64_t *here = &most[2
                                   * (SLOT_KINDS * chunk
                                      + (back ? SLOT_BACKWARD : SLOT_FORWARD))
                               + later];
        kept -= !back ? 0 : chunk == 0 ? own + micro : own;
        const uint64_t beside = chunk == 0 ? kept : kept - micro;
        *here = *here == NEVER ? beside : max_u64(*here, beside);
        kept += back ? 0 : chunk == 0 ? own + micro : own;
        turn_on(turn, s);
    }
}

void schedule_interleaved(const struct stage *s, const uint64_t *micros,
                          slot_fn *each, void *ctx)
{
    struct walking w = { .s = s, .each = each, .ctx = ctx };
    struct turn forward = { 0 }, backward = { 0 };
    for (;;) {
        const uint64_t all = *micros * s->chunks;
        if (backward.done >= all)
            return;
        const bool back = is_back(s, &forward, &backward, all);
        struct turn *turn = back ? &backward : &forward;
        struct slot slot = slot_of(s, turn, back);
        slot.later = back ? slot.micro > 0 : backward.done > 0;
        if (!schedule_slot(&w, &slot, slot.chunk > 0))
            return;
        turn_on(turn, s);
    }
}
