/*
 * A pipeline's run, and what a closed form takes from it. Files named time_pipe
 * and time_simulate include it.
 */
#ifndef MEMPLAN_FOLD_TIME_PIPE_H
#define MEMPLAN_FOLD_TIME_PIPE_H

#include "fold/time.h"

/* Of so many micro-batches; arena. */
struct pipe_run {
    uint64_t micros;       /* DualPipe: of a direction */
    uint64_t round;        /* that go one after another */
    const double *forward; /* [stages][micros]: when each is over */
};
/* As pipe_simulated(). */
double pipe_run(struct pipe_run *out, const struct pipe *x, uint64_t micros,
                struct arena *a);
/* Micro-batches that go one after another, as they are listed. */
uint64_t pipe_round(const struct run *run);
/* Sends of schedules without chunks are waited for by the sender, too. */
bool pipe_blocks(const struct run *run);
/* Stages beside each other send one after the other, each of which waits for
 * both: a forward's result and a backward's cross. */
bool pipe_takes_turns(const struct run *run);

#endif
