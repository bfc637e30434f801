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
    unsigned added;  /* bits of chunks: weights' gradients wait to be added */
    unsigned summed; /* ... there is something to add them to */
};

/* Gradients of weights that PyTorch's split backward has made are added to those
 * of before in the next backward of the chunk: fsdp_casts_later(). Of what they
 * are added to, which is counted from the step's first backward on, some chunks
 * have none yet. */
static inline void schedule_add(struct walking *w, struct slot *slot)
{
    const struct stage *s = w->s;
    const unsigned bit = 1u << slot->chunk;
    const bool back = slot->kind == SLOT_BACKWARD || slot->kind == SLOT_INPUT;
    const bool adds = back && (w->added & bit) != 0;
    slot->adds = adds && (w->summed & bit) != 0;
    if (adds) {
        w->kept -= s->chunk_added[slot->chunk];
        w->added &= ~bit;
    }
    if (adds || slot->kind == SLOT_BACKWARD
        || (slot->kind == SLOT_WEIGHT && s->chunk_added[slot->chunk] == 0))
        w->summed |= bit;
    slot->missing = 0;
    for (uint32_t c = 0; c < s->chunks; c++)
        slot->missing += (w->summed >> c & 1) != 0 ? 0 : s->chunk_sum[c];
}

/* What a slot leaves of that, and of the gradient that it sends. */
static inline void schedule_leave(struct walking *w, const struct slot *slot)
{
    const unsigned bit = 1u << slot->chunk;
    const uint64_t added = w->s->chunk_added[slot->chunk];
    if (slot->kind == SLOT_INPUT)
        w->kept += w->s->chunk_sent[slot->chunk];
    if (slot->kind == SLOT_WEIGHT && added > 0 && (w->added & bit) == 0) {
        w->kept += added;
        w->added |= bit;
    }
}

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
    if (w->s->graph)
        schedule_add(w, slot);
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
    if (w->s->graph)
        schedule_leave(w, slot);
}

/* ... and hands it on. */
static inline bool schedule_slot(struct walking *w, struct slot *slot,
                                 bool beside)
{
    schedule_beside(w, slot, beside);
    return w->each(w->ctx, slot);
}

#endif
