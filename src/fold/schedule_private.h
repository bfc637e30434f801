/*
 * What the orders of schedule.c and schedule_zero.c share. Nothing else
 * includes this.
 */
#ifndef MEMPLAN_FOLD_SCHEDULE_PRIVATE_H
#define MEMPLAN_FOLD_SCHEDULE_PRIVATE_H

#include "fold/schedule.h"

struct walking {
    const struct stage *s;
    uint32_t *in_flight; /* chunks, by micro-batch modulo ring */
    uint64_t ring;
    uint32_t micros, chunks;
    uint32_t waiting; /* backwards whose weights' gradients come later */
    uint64_t kept;
};

/* Says of a slot what is in flight beside it, and hands it on. */
bool schedule_slot(struct walking *w, struct slot *slot, slot_fn *each,
                   void *ctx);

#endif
