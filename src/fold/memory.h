/* The memory fold: every stage of a step program, every moment of the step,
 * and the fullest of them. [docs/method.md eq. peak] */
#ifndef MEMPLAN_FOLD_MEMORY_H
#define MEMPLAN_FOLD_MEMORY_H

#include "fold/lengths.h"
#include "fold/result.h"

/* Fills out; stage arrays live in the arena. False when out of memory, or
 * when a number overflowed (*over says which). */
bool fold_memory(struct memory_result *out, const struct program *p,
                 const struct run *run, struct arena *a, bool *over);

/* Sets the largest figure of any stage, from what stages have. */
void memory_finish(struct memory_result *out, const struct run *run);

/* The same with the caching allocator at hand, after fold_memory(): of the
 * fullest stage, and of others, fuller ones first, while no more than `births`
 * allocations have to be simulated. Sets what is reserved, and the allocator's
 * rounding in peak and rest. False when out of memory. */
struct allocator_input {
    const struct program *program;
    const struct run *run;
    struct arena *a;
    uint64_t births;
    struct length_code lengths; /* where samples differ in length */
};
bool fold_allocator(struct memory_result *out,
                    const struct allocator_input *in);

/* Unfolds the worst stage's peak, its rest, and what is outside the
 * allocator: the same functions with a recorder. False when out of memory. */
bool explain_memory(struct explanation *x, const struct memory_result *memory,
                    const struct program *p, const struct run *run);

#endif
