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
    int64_t apart;
    uint64_t added;  /* bits of chunks: weights' gradients wait to be added */
    uint64_t summed; /* ... there is something to add them to */
    uint64_t reduced;
    uint64_t all; /* micro-batches */
};

/* Gradients of weights that PyTorch's split backward has made are added to those
 * of before in the next backward of the chunk: fsdp_casts_later(); until then
 * others of weights are added to them. Of what they are added to, which is
 * counted from the step's first backward on, some chunks have none yet, or only
 * their shards any more. */
static inline void schedule_add(struct walking *w, struct slot *slot)
{
    const struct stage *s = w->s;
    const uint64_t bit = UINT64_C(1) << slot->chunk;
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
    if (slot->kind == SLOT_WEIGHT)
        slot->adds = (w->added & bit) != 0;
    slot->missing = 0;
    for (uint32_t c = 0; c < s->chunks; c++) {
        slot->missing += (w->summed >> c & 1) != 0 ? 0 : s->chunk_sum[c];
        slot->missing += (w->reduced >> c & 1) != 0 ? s->chunk_cut[c] : 0;
    }
}

/* What a slot leaves of that, and of the gradient that it sends. */
static inline void schedule_leave(struct walking *w, struct slot *slot)
{
    const uint64_t bit = UINT64_C(1) << slot->chunk;
    const uint64_t added = w->s->chunk_added[slot->chunk];
    if (slot->kind == SLOT_INPUT)
        w->kept += w->s->chunk_sent[slot->chunk];
    if (slot->kind == SLOT_WEIGHT && added > 0 && (w->added & bit) == 0) {
        w->kept += added;
        w->added |= bit;
    }
    const bool whole = slot->kind == SLOT_BACKWARD || slot->kind == SLOT_WEIGHT;
    slot->reduces = whole && slot->micro + 1 == w->all;
    if (!slot->reduces)
        return;
    w->reduced |= bit; /* schedules.py, REDUCE_GRAD */
    if ((w->added & bit) != 0)
        w->kept -= added;
    w->added &= ~bit;
}

/* A chunk is in flight, or waits for its weights' gradients; no more (-1). */
static inline void schedule_apart(struct walking *w, const struct slot *slot,
                                  bool forward, int64_t times)
{
    const struct stage *s = w->s;
    const bool last = s->head && slot->chunk == s->chunks - 1;
    const int64_t logits = forward && last ? (int64_t)pipe_logits(s) : 0;
    w->apart += times * (s->chunk_apart[slot->chunk] + logits);
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
    if (w->s->graph) {
        schedule_add(w, slot);
        if (slot->kind != SLOT_FORWARD)
            schedule_apart(w, slot, slot->kind != SLOT_WEIGHT, -1);
    }
    slot->apart = w->apart;
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
    if (w->s->graph) {
        schedule_leave(w, slot);
        if (slot->kind == SLOT_FORWARD || slot->kind == SLOT_INPUT)
            schedule_apart(w, slot, slot->kind == SLOT_FORWARD, 1);
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
