/*
 * The interleaved schedule: in which order a stage runs its chunks forward and
 * backward, and what the others keep meanwhile. [Narayanan et al. 2021;
 * Megatron-LM schedules.py, forward_backward_pipelining_with_interleaving]
 */
#ifndef MEMPLAN_FOLD_SCHEDULE_H
#define MEMPLAN_FOLD_SCHEDULE_H

#include "fold/stage.h"

/* One chunk of one micro-batch, in one direction. */
struct slot {
    bool back;
    bool later; /* forward: after the first backward of the step; backward: of
                   a micro-batch after the first */
    uint32_t micro, chunk;
    uint32_t other_micros, other_chunks; /* in flight beside this one */
    uint64_t kept;                       /* by those chunks' blocks */
};

/* False stops. */
typedef bool slot_fn(void *ctx, const struct slot *slot);

/* Micro-batches after which everything has occurred that ever does: the
 * schedule goes in groups of as many as there are stages, and the third is as
 * those after it. */
uint64_t schedule_micros(const struct run *run);

/* in_flight: [schedule_micros()], zero. *micros may become less meanwhile, by
 * groups that have not begun. */
void schedule_interleaved(const struct stage *s, const uint64_t *micros,
                          uint32_t *in_flight, slot_fn *each, void *ctx);

#endif
