/*
 * A forward beside another micro-batch's backward: ep_overlap.
 */
#ifndef MEMPLAN_FOLD_OVERLAP_H
#define MEMPLAN_FOLD_OVERLAP_H

#include "fold/schedule.h"

/* Two passes that take turns, or one alone. */
struct overlap {
    uint32_t forward, backward; /* chunks; as many as there are: no such pass */
    bool later;                 /* of a micro-batch after the first */
    uint64_t others; /* kept by other chunks in flight, and by micro-batches of
                        these two that came in earlier chunks */
    uint32_t next;   /* overlap_next() */
};

/* One turn: of a block, or a part of one. */
struct overlap_step {
    bool back;
    bool inner; /* one before and one after it differ from it by as much */
    struct point at;
};

/* False stops. */
typedef bool overlap_fn(void *ctx, const struct overlap_step *step);

/* Tells the turns in order, each with what is alive beside it; false when it was
 * stopped. */
bool overlap_steps(const struct stage *s, const struct overlap *o,
                   overlap_fn *each, void *ctx);

/* Of slots as schedule_overlapped() tells them. */
struct overlap overlap_of(const struct stage *s, const struct slot *forward,
                          const struct slot *backward);

/* How many of s->met there are. */
static inline uint32_t overlap_room(uint32_t chunks)
{
    return 2 * (chunks + 1) * (chunks + 1);
}

/* Sets s->met: what passes have beside them, at most. */
void overlap_kept(struct stage *s, uint64_t micros);

/* The next passes that meet, with the most that is ever beside them; from { 0 }
 * on; false when there are no more. */
bool overlap_next(const struct stage *s, struct overlap *o);

#endif
