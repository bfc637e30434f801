/*
 * Time of a step: every operation's kernels by a roofline, messages by their
 * link, and what of them waits for what. [docs/method.md eq. kernels,
 * eq. collectives, eq. step-time]
 */
#ifndef MEMPLAN_FOLD_TIME_H
#define MEMPLAN_FOLD_TIME_H

#include "fold/result.h"
#include "fold/states.h"

#include "data/kernel.h"

/* The machine as a run sees it. */
struct clock {
    const struct program *p;
    const struct run *run;
    const struct kernel_speed *speed;
    bool measured;
};

void clock_init(struct clock *c, const struct program *p,
                const struct run *run);

/* ---- time_kernel.c ---- */

/* A product of m x k by k x n, `copies` at once, of operands of a type. */
struct product {
    double m, n, k, copies;
    enum dtype dtype;
    bool fp8;
    double result_bytes; /* of an element; read too where it is added to */
};
double time_product(const struct clock *c, const struct product *x);
/* Element-wise kernels that move so many bytes. */
double time_bytes(const struct clock *c, double bytes);

/* One pass over a block, by part of the step (up to TIME_EP). `hidden` of its
 * messages may run beside `cover` of its products. */
struct pass {
    double part[TIME_PARTS];
    double kernels; /* that the host starts */
    double hidden, cover;
};

/* Of one micro-batch. `again`: what of forward runs in backward too. */
struct block_time {
    struct pass forward, input, weight, again;
};
void time_block(struct block_time *out, const struct clock *c,
                const struct block *b);

/* ---- time_wire.c ---- */

/* Ranks that send to each other: how many, and how far apart in the order in
 * which they are numbered (tp, cp, dp, pp). */
struct ranks {
    uint64_t n, stride;
};
/* A collective of a tensor of so many bytes, whole. */
double time_wire(const struct clock *c, enum wire wire, struct ranks r,
                 double bytes);
/* From one rank to another, `stride` away. */
double time_send(const struct clock *c, uint64_t stride, double bytes);
/* Whether all of them are in one node. */
bool wire_inside(const struct clock *c, struct ranks r);

/* ---- time_step.c ---- */

void fold_time(struct time_result *out, const struct program *p,
               const struct run *run);

#endif
