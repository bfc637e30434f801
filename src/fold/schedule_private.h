/*
 * What the orders of schedule.c and schedule_zero.c share. Nothing else
 * includes this.
 */
#ifndef MEMPLAN_FOLD_SCHEDULE_PRIVATE_H
#define MEMPLAN_FOLD_SCHEDULE_PRIVATE_H

#include "fold/schedule.h"

struct walking {
    const struct stage *s;
    slot_fn *each;
    void *ctx;
    uint32_t micros, chunks; /* in flight */
    uint32_t waiting;        /* backwards whose weights' gradients come later */
    uint64_t kept;
};

/* Says of a slot what is in flight beside it. `beside`: so is another chunk of
 * its micro-batch, the first that it came to. */
static inline void schedule_beside(struct walking *w, struct slot *slot,
                                   bool beside)
{
    const uint64_t kept = w->s->chunk_kept[slot->chunk];
    const uint64_t stash = w->s->chunk_stash[slot->chunk];
    if (slot->kind == SLOT_BACKWARD || slot->kind == SLOT_INPUT) {
        w->micros -= !beside;
        w->chunks--;
        w->kept -= kept;
    } else if (slot->kind == SLOT_WEIGHT) {
        w->kept -= stash;
        w->waiting--;
    }
    slot->other_micros = w->micros - beside;
    slot->other_chunks = w->chunks;
    slot->waiting = w->waiting;
    slot->kept = w->kept;
    if (slot->kind == SLOT_FORWARD) {
        w->micros += !beside;
        w->chunks++;
        w->kept += kept;
    } else if (slot->kind == SLOT_INPUT) {
        w->kept += stash;
        w->waiting++;
    }
}

/* ... and hands it on. */
static inline bool schedule_slot(struct walking *w, struct slot *slot,
                                 bool beside)
{
    schedule_beside(w, slot, beside);
    return w->each(w->ctx, slot);
}

#endif
