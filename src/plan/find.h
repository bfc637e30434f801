/*
 * What is inside a memplan_found, for the file that searches, the one that
 * makes candidates and the one that writes the answer.
 */
#ifndef MEMPLAN_PLAN_FIND_H
#define MEMPLAN_PLAN_FIND_H

#include "plan/plan.h"

/* id, word */
#define FIND_MAP(X)                                                            \
    X(FIND_MICRO_BATCH, "micro_batch")                                         \
    X(FIND_SEQ_LEN, "seq_len")                                                 \
    X(FIND_GPUS, "gpus")                                                       \
    X(FIND_LAYERS, "layers")                                                   \
    X(FIND_PARAMS, "params")

enum find_what {
#define FIND_ENUM(id, text) id,
    FIND_MAP(FIND_ENUM)
#undef FIND_ENUM
        FIND_COUNT
};
const char *find_name(enum find_what what);

enum { FIND_TEXT = 256 };

struct memplan_found {
    memplan_allocator alloc;
    enum find_what what;
    struct memplan_report *best; /* of the extreme that fits; NULL: none does */
    struct memplan_report *next; /* of the candidate after it, or where nothing
                                    fits of the least demanding; NULL: none */
    bool passed;                 /* over some of what lies before the answer */
    uint64_t looked, simulated;  /* candidates: by the closed form, and with
                                    the allocator too */
    uint64_t refused;            /* impossible ones among the former */
    char held[FIND_TEXT];        /* what does not vary, and what follows */
    char end[FIND_TEXT];         /* why there is none after `best`; or "" */
};

/* The number that was looked for, of one candidate's estimate. */
uint64_t find_value(enum find_what what, const struct memplan_report *r);

/* ---- candidates ---- */

/* In order of how much they are wanted, so that the last that fits is the
 * answer: batches grow, GPUs become fewer. */
struct candidates {
    enum find_what what;
    const memplan_model *model;
    const struct setup *setup;
    struct arena *list_arena;  /* of the list */
    struct arena arena;        /* of the last candidate */
    uint64_t *list;            /* values; NULL: unit, 2 unit, 3 unit ... */
    uint64_t unit, n, skipped; /* units that are too few for any setup */
    bool monotone; /* each needs at least what the one before it does */
    /* the last one made */
    struct setup changed;
    struct spec spec;
};

/* Refuses what contradicts the question, by name. `held` is FIND_TEXT long.
 * Returns d's status. */
memplan_status candidates_init(struct candidates *c, char *held,
                               struct diag *d);
/* Makes number `index`: c->changed, c->spec. False when out of memory. */
bool candidates_make(struct candidates *c, uint64_t index);

#endif
