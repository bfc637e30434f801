/*
 * What was seen of a stage's moments, for a stage that differs from it in what
 * is in flight alone: of the moments that have the same of other micro-batches
 * the fullest, less that.
 */
#ifndef MEMPLAN_FOLD_GLANCES_H
#define MEMPLAN_FOLD_GLANCES_H

#include "fold/stage.h"

/* Each pool at its own fullest. */
struct glance {
    struct instant when;
    uint32_t nth; /* moment that was looked at; 0: none */
    uint64_t total;
    struct pools pools;
};

enum { GLANCES = 64 };
struct glances {
    struct glance at[GLANCES]; /* by what of others they have */
    uint32_t n;                /* of these; 0: more than there is room for */
    uint32_t looks;
    uint32_t last;  /* the fullest of the stage before; GLANCES: not told */
    uint64_t known; /* of stage.others those that were looked at, a bit each */
};

void glances_begin(struct glances *seen, const struct stage *s);
/* A moment, and pools_of() it. */
void glances_note(struct glances *seen, const struct stage *s,
                  const struct moment *m, const struct pools *pools,
                  enum slot_kind slot);
/* What was seen of the chunk before one is what is seen of this one, after so
 * many looks at that. */
void glances_repeat(struct glances *seen, const struct stage *s, uint32_t chunk,
                    uint32_t looks);
/* Whether the like of a moment is among those, as glances.known. */
bool glances_know(uint64_t known, const struct stage *s,
                  const struct instant *when);
/* Adds to seen->known what this stage does and those before did not; false where
 * there is none. */
bool glances_widen(struct glances *seen, const struct stage *s);
/* The fullest with what is in flight on this stage, and the pools; of equal ones
 * that which was looked at first. */
const struct glance *glances_fullest(struct pools *most,
                                     const struct glances *seen,
                                     const struct stage *s);

#endif
