/*
 * Runs the steps of one stage through PyTorch's caching allocator, from the
 * loading of the weights on, until nothing changes any more: what the
 * allocator hands out and reserves at most. [docs/method.md eq. reserved]
 */
#ifndef MEMPLAN_FOLD_SIMULATE_H
#define MEMPLAN_FOLD_SIMULATE_H

#include "fold/lengths.h"
#include "fold/stage.h"

/* What the device grants (0: no end), how long to go on, where to keep
 * things. */
struct simulate_limits {
    uint64_t device_bytes;
    uint64_t births; /* allocations; 0: no end */
    unsigned steps;  /* 0: until nothing changes, micro-batches that would
                        change nothing left out; else all of so many */
    struct arena *a;
    /* not NULL: steps of micro-batches as long as the setup's samples, in one
     * of the orders */
    const struct length_code *lengths;
    unsigned order;
};

/* False when out of memory. out->done is false when it took too many
 * allocations; nothing else is known then. */
bool simulate_stage(struct simulated *out, struct memory_fold *f,
                    const struct stage *s, const struct simulate_limits *most);

#endif
