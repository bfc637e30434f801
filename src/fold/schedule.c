/*
 * Walks the schedule of one stage, chunk by chunk. Owns the interleaved order;
 * what a chunk keeps is the stage's, the other orders are schedule_zero.c's.
 */
#include "fold/schedule_private.h"

#include "base/banned.h"

bool schedule_keeps_graph(const struct run *run)
{
    return run_splits_backward(run) && run_torch_pipelines(run);
}

bool schedule_is_dual(const struct run *run)
{
    return run->schedule == SCHED_DUALPIPE && run->pp > 1;
}

bool schedule_walked(const struct run *run)
{
    return run->schedule == SCHED_INTERLEAVED || run_splits_backward(run)
           || run->ep_overlap;
}

uint64_t schedule_micros(const struct run *run)
{
    switch (run->schedule) {
    case SCHED_ZB_H1: return min_u64(run->grad_accum, 2 * run->pp + 2);
    case SCHED_ZB_V:
    case SCHED_DUALPIPE:
    case SCHED_DUALPIPE_V: return min_u64(run->grad_accum, 2 * run->pp + 4);
    case SCHED_ZB_INTERLEAVED:
        return min_u64(run->grad_accum, 4 * run_round(run));
    case SCHED_1F1B:
    case SCHED_GPIPE:
    case SCHED_INTERLEAVED:
    case SCHED_NAIVE:
    case SCHEDULE_COUNT: break;
    }
    /* and the last one, where that is shorter */
    const uint64_t round = run_round(run);
    return min_u64(run->grad_accum, 3 * round + run->grad_accum % round);
}

uint64_t schedule_room(const struct run *run, uint64_t micros)
{
    enum { PASSES = 3 }; /* forward, and two of backward */
    return run_splits_backward(run) ? PASSES * run_chunks(run) * micros : 0;
}

/* Rounds of micro-batches go through the chunks, backward from the last: how far
 * forwards have come, or backwards. */
struct turn {
    uint64_t done;
    uint32_t round;               /* so many, but the last one's `rest` */
    uint32_t rest;                /* 0: as many */
    uint32_t group, micro, chunk; /* the round's first, and which of it */
};

static struct turn turn_first(const struct stage *s, uint64_t micros)
{
    const uint64_t round = run_round(s->run);
    return (struct turn){ .round = (uint32_t)round,
                          .rest = (uint32_t)(micros % round) };
}

/* Micro-batches of the round that it is at; `micros`: all. */
static uint32_t turn_round(const struct turn *t, uint64_t micros)
{
    return t->rest > 0 && t->group + t->rest >= micros ? t->rest : t->round;
}

static struct slot slot_of(const struct stage *s, const struct turn *t,
                           bool back)
{
    return (struct slot){ .kind = back ? SLOT_BACKWARD : SLOT_FORWARD,
                          .micro = t->group + t->micro,
                          .chunk = back ? s->chunks - 1 - t->chunk : t->chunk };
}

/* No further than to the round's end. */
static void turn_by(struct turn *t, const struct stage *s, uint64_t micros,
                    uint64_t n)
{
    const uint32_t round = turn_round(t, micros);
    t->done += n;
    t->micro += (uint32_t)n;
    if (t->micro < round)
        return;
    t->micro = 0;
    if (++t->chunk < s->chunks)
        return;
    t->chunk = 0;
    t->group += round;
}

static void turn_on(struct turn *t, const struct stage *s, uint64_t micros)
{
    turn_by(t, s, micros, 1);
}

/* Forwards until so many are in flight, then one of each, then backwards. */
static bool is_back(const struct stage *s, const struct turn *forward,
                    const struct turn *backward, uint64_t all)
{
    return forward->done == all
           || forward->done - backward->done == s->in_flight;
}

/* Turns one after another that have the same chunks: so many forwards, or
 * backwards, or one of each, the backward first. */
struct leap {
    uint64_t n;
    bool back, forward;
    uint32_t from, to; /* chunks, of its backwards and forwards */
    bool later;        /* its backwards are of micro-batches after the first */
};

static struct leap leap_from(const struct stage *s, const struct turn *forward,
                             const struct turn *backward, uint64_t micros)
{
    const uint64_t all = micros * s->chunks;
    struct leap l = { .n = forward->round,
                      .back = is_back(s, forward, backward, all),
                      .from = s->chunks - 1 - backward->chunk,
                      .to = forward->chunk };
    l.forward = forward->done < all;
    l.later = backward->group + backward->micro > 0;
    if (l.forward)
        l.n = turn_round(forward, micros) - forward->micro;
    if (l.back)
        l.n = l.later
                  ? min_u64(l.n, turn_round(backward, micros) - backward->micro)
                  : 1;
    else
        l.n = min_u64(l.n, s->in_flight - (forward->done - backward->done));
    return l;
}

static void keep_most(uint64_t *most, uint32_t chunk, enum slot_kind kind,
                      bool later, uint64_t kept)
{
    uint64_t *here = &most[2 * (SLOT_KINDS * chunk + kind) + later];
    *here = *here == NEVER ? kept : max_u64(*here, kept);
}

void schedule_interleaved_kept(const struct stage *s, uint64_t micros,
                               uint64_t *most)
{
    const uint64_t all = micros * s->chunks;
    const uint64_t micro = s->shared_kept + s->inputs;
    struct turn forward = turn_first(s, micros), backward = forward;
    uint64_t kept = 0; /* in flight; a micro-batch's own with its first chunk */
    while (backward.done < all) {
        const struct leap l = leap_from(s, &forward, &backward, micros);
        const uint64_t own = s->stage_input;
        const uint64_t from =
            s->chunk_kept[l.from] + own + (l.from == 0 ? micro : 0);
        const uint64_t to = s->chunk_kept[l.to] + own + (l.to == 0 ? micro : 0);
        const uint64_t less = l.back ? from : 0;
        const uint64_t stays =
            l.back && l.from + 1 == s->chunks ? pipe_outputs(s) : 0;
        const uint64_t more = (l.forward ? to : 0) + stays;
        /* beside the first of them, or the last */
        const uint64_t beside =
            kept - less + (more > less ? (l.n - 1) * (more - less) : 0);
        const bool later = l.back || backward.done > 0;
        if (l.back)
            keep_most(most, l.from, SLOT_BACKWARD, l.later,
                      (l.from == 0 ? beside : beside - micro)
                          + (l.later ? s->outputs_before : 0));
        if (l.forward)
            keep_most(most, l.to, SLOT_FORWARD, later,
                      (l.to == 0 ? beside : beside - micro) + stays
                          + (later ? s->outputs_before : 0));
        kept += l.n * (more - less);
        if (l.back)
            turn_by(&backward, s, micros, l.n);
        if (l.forward)
            turn_by(&forward, s, micros, l.n);
    }
}

void schedule_interleaved(const struct stage *s, const uint64_t *micros,
                          slot_fn *each, void *ctx)
{
    struct walking w = { .s = s, .each = each, .ctx = ctx };
    struct turn forward = turn_first(s, *micros), backward = forward;
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
        turn_on(turn, s, *micros);
    }
}

/* Each is in flight while the other runs. */
static void count_beside(struct slot *slot, const struct slot *other)
{
    slot->other_chunks++;
    slot->other_micros += other->chunk == 0;
}

void schedule_overlapped(const struct stage *s, const uint64_t *micros,
                         passes_fn *each, void *ctx)
{
    struct walking w = { .s = s };
    struct turn forward = turn_first(s, *micros), backward = forward;
    for (;;) {
        const uint64_t all = *micros * s->chunks;
        if (backward.done >= all)
            return;
        const bool back = is_back(s, &forward, &backward, all);
        const bool ahead = !back || forward.done < all;
        struct slot f = slot_of(s, &forward, false);
        struct slot b = slot_of(s, &backward, true);
        b.later = b.micro > 0;
        f.later = back ? b.later : backward.done > 0;
        if (back)
            schedule_beside(&w, &b, b.chunk > 0);
        if (ahead)
            schedule_beside(&w, &f, f.chunk > 0);
        if (back && ahead) {
            count_beside(&f, &b);
            count_beside(&b, &f);
        }
        if (!each(ctx, ahead ? &f : NULL, back ? &b : NULL))
            return;
        if (back)
            turn_on(&backward, s, *micros);
        if (ahead)
            turn_on(&forward, s, *micros);
    }
}
