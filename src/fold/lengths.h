/*
 * How long micro-batches are, one after another, where samples differ: drawn
 * from what the setup says of them, the same each time.
 * [docs/method.md eq. lengths]
 */
#ifndef MEMPLAN_FOLD_LENGTHS_H
#define MEMPLAN_FOLD_LENGTHS_H

#include "ir/program.h"

/* Orders in which samples may come; what is reserved is the median. */
enum { LENGTH_ORDERS = 15 };

/* Who makes the program of another length: `a` is rewound before each. */
struct length_code {
    bool (*lower)(void *ctx, uint64_t length, struct program *p,
                  struct arena *a);
    void *ctx;
    struct arena *a;
    bool all; /* micro-batches, as many as TURNS_MAX: tests */
};

/* A micro-batch of one rank, in tokens; whether the optimizer steps after. */
struct turn {
    uint32_t length;
    bool steps;
    uint64_t step;
};

/* Those that matter to the allocator: the first few, then those longer than all
 * before, and the first of a step that has such. The longest is as long as
 * seq_len. */
enum { TURNS_MAX = 256 };
struct lengths {
    struct turn v[TURNS_MAX];
    size_t n;
};

/* In one of the orders. */
void lengths_draw(struct lengths *out, const struct run *run, unsigned order,
                  bool all);

#endif
