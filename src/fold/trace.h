/*
 * The trace: every allocation and release of one stage's step, in order, as
 * the walks and the engine make them. The closed form (memory.c) looks at the
 * moments that can be the fullest; the trace lives through all of them, and
 * both must agree to the byte. [docs/method.md eq. peak]
 */
#ifndef MEMPLAN_FOLD_TRACE_H
#define MEMPLAN_FOLD_TRACE_H

#include "fold/stage.h"

/* The first step makes the optimizer's moments when it comes to need them;
 * they are there when any later one begins. */
enum trace_step { TRACE_FIRST, TRACE_LATER };

struct trace_event {
    uint64_t bytes;
    uint32_t id; /* a birth and its death share it */
    bool birth;
    enum phase phase;
    enum component component;
    uint32_t position; /* block position on the stage */
    uint32_t micro_batch;
    const char *name;  /* of the tensor or buffer */
    const char *block; /* "layer"; "" outside the blocks */
};

struct trace {
    struct arena *arena;
    enum trace_step step;
    struct trace_event *event;
    size_t n, capacity;
    bool failed;         /* out of memory */
    uint64_t live, peak; /* bytes */
    size_t peak_at;      /* event that made the peak */
    uint32_t next_id;
};

/* Traces a step of stage s from rest to rest: as many micro-batches as make
 * every moment occur (those in flight and two more at most; interleaved: three
 * groups). False when out of memory. */
bool trace_stage(struct trace *t, struct memory_fold *f, const struct stage *s,
                 enum trace_step step, struct arena *a);

#endif
