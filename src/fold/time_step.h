/*
 * What the files of a step's time share: a rank's chunk, the blocks in it and how
 * long they take. Files named time_step and time_replicas include it.
 */
#ifndef MEMPLAN_FOLD_TIME_STEP_H
#define MEMPLAN_FOLD_TIME_STEP_H

#include "fold/time_private.h"

/* A chunk of a rank: the layers that a micro-batch goes through at once. */
struct chunk {
    struct pass forward, input, weight;
};

struct step_clock {
    struct clock c;
    struct block_time block[BLOCK_MAX];
    struct block_states states[BLOCK_MAX];
    struct shard_of own[BLOCK_MAX];
    struct optimizer_passes passes;
    uint64_t away[BLOCK_MAX]; /* bytes that a layer sends to its host */
    struct beside_gpu there;
};

/* Blocks of a chunk, and how many of them run forward again in backward. */
struct counts {
    uint32_t all[BLOCK_MAX], again[BLOCK_MAX];
};

/* Seconds of all parts of a pass. */
static inline double pass_total(const struct pass *p)
{
    double sum = 0;
    for (int i = 0; i < TIME_PARTS; i++)
        sum += p->part[i];
    return sum;
}

/* What the host takes to start a pass's kernels, of `per_kernel` each. */
double pass_starts(const struct pass *p, double per_kernel);

/* ---- time_replicas.c ---- */

/* Weights of a stage that replicas share. */
struct weights {
    double trained, bytes, expert_trained, expert_bytes;
};

void replicas_add_weights(struct weights *w, const struct block_states *b);
/* Ranks that share out states, of experts or of all else. */
struct ranks replicas_shards(const struct run *run, bool experts);
/* Gathered whole for every pass, unit by unit, the next one's beside what is
 * computed (ZeRO-3, FSDP): the first gather and the last reduction are bare. */
void replicas_gather(struct time_result *out, const struct step_clock *s,
                     const struct counts *n, const struct chunk *k);
/* Gradients out and weights in once a step, or each micro-batch. */
void replicas_exchange(struct time_result *out, const struct step_clock *s,
                       const struct weights *w, const struct chunk *k);
/* After the pipeline's last backward and the replicas' sum, so that nothing hides
 * it; whichever rank is busiest waits, as all do for clipping. */
void replicas_sum_tied(struct time_result *out, const struct step_clock *s);

#endif
