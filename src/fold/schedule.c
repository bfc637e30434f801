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

/* Before it runs: less is kept beside a backward, by what it is of. */
static void slot_begins(struct walking *w, const struct slot *slot,
                        uint32_t *mine)
{
    if (slot->kind == SLOT_BACKWARD || slot->kind == SLOT_INPUT) {
        w->micros -= *mine == 1;
        w->chunks--;
        w->kept -= w->s->chunk_kept[slot->chunk];
        --*mine;
    } else if (slot->kind == SLOT_WEIGHT) {
        w->kept -= w->s->chunk_stash[slot->chunk];
        w->waiting--;
    }
}

bool schedule_slot(struct walking *w, struct slot *slot, slot_fn *each,
                   void *ctx)
{
    if (w->s->chunk_kept == NULL)
        return each(ctx, slot); /* asked for its order alone */
    const uint32_t place = slot->micro;
    uint32_t *mine = &w->in_flight[place < w->ring ? place : place % w->ring];
    slot_begins(w, slot, mine);
    slot->other_micros = w->micros - (*mine > 0);
    slot->other_chunks = w->chunks;
    slot->waiting = w->waiting;
    slot->kept = w->kept;
    if (slot->kind == SLOT_FORWARD) {
        w->micros += *mine == 0;
        w->chunks++;
        w->kept += w->s->chunk_kept[slot->chunk];
        ++*mine;
    } else if (slot->kind == SLOT_INPUT) {
        w->kept += w->s->chunk_stash[slot->chunk];
        w->waiting++;
    }
    return each(ctx, slot);
}

void schedule_interleaved(const struct stage *s, const uint64_t *micros,
                          uint32_t *in_flight, slot_fn *each, void *ctx)
{
    struct walking w = { .s = s,
                         .in_flight = in_flight,
                         .ring = schedule_micros(s->run) };
    struct turn forward = { 0 }, backward = { 0 };
    for (;;) {
        const uint64_t all = *micros * s->chunks;
        if (backward.done >= all)
            return;
        const bool back =
            forward.done == all || forward.done - backward.done == s->in_flight;
        struct turn *turn = back ? &backward : &forward;
        struct slot slot = slot_of(s, turn, back);
        slot.later = back ? slot.micro > 0 : backward.done > 0;
        if (!schedule_slot(&w, &slot, each, ctx))
            return;
        turn_on(turn, s);
    }
}
