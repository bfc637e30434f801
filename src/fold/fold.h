/* The folds that are plain sums over the step program. */
#ifndef MEMPLAN_FOLD_FOLD_H
#define MEMPLAN_FOLD_FOLD_H

#include "fold/result.h"

/* Parameters of the whole model, before any sharding; tied tensors once. False
 * on overflow. [method.md eq. params] */
bool fold_params(struct params_result *out, const struct program *p,
                 const struct spec *spec);

/* Whether a rank's products are a whole model's, of the rank's tokens. */
bool flops_are_whole(const struct run *run);
/* FLOPs per token of a program lowered without model parallelism: what one
 * rank computes is then what the model computes. `run` says what is
 * recomputed. [method.md eq. flops] */
void fold_flops(struct flops_result *out, const struct program *p,
                const struct run *run, const struct params_result *params);
/* The same, unfolded, with every product of one rank. */
bool explain_flops(struct explanation *x, const struct flops_result *flops,
                   const struct program *p, const struct params_result *params);

/* Forward products again in backward: one for each operand's gradient. */
double op_backward_products(const struct program *p, const struct op *op);
/* A checkpoint that is not reentrant ends its second forward when the last
 * tensor has been saved. */
bool checkpoint_stops_early(const struct run *run);
/* How many of a block's operations a second forward comes to. */
uint32_t ops_run_again(const struct program *p, const struct block *b,
                       const struct run *run);
/* Operations of a block that make gradients of weights. */
uint32_t ops_with_weights(const struct program *p, const struct block *b);
/* True when the operation runs a second time, in backward. */
bool op_runs_again(const struct op *op, const struct run *run,
                   enum block_kind kind);

/* Bytes of the gradient that the first stage and the last add up, once a step; 0:
 * none. [method.md eq. communication] */
double pipe_tied_bytes(const struct program *p, const struct run *run);

/* Bytes that one GPU sends in one optimizer step, on the busiest kind of
 * stage. `params`: elements per rank of the largest stage, dense and expert.
 * [method.md eq. communication] */
struct comm_group_input {
    uint64_t trained;      /* elements per rank, before sharding: gradients */
    uint64_t weight_bytes; /* of what is gathered, as the layers see it */
    uint64_t ranks;        /* data-parallel ranks that hold the same */
    uint64_t shard;        /* ranks over which they are sharded */
};
struct comm_input {
    const struct program *program; /* of this rank */
    const struct run *run;
    struct comm_group_input dense, expert;
    uint64_t layers;     /* of the stage */
    uint64_t recomputed; /* of those */
    bool at_one_end;     /* the first stage or the last, which share words */
};
void fold_comm(struct comm_result *out, const struct comm_input *in);

#endif
