/*
 * CUDA graphs: what of them rests on a stage, and the fold of all steps of a run
 * that has them.
 */
#ifndef MEMPLAN_FOLD_GRAPHS_H
#define MEMPLAN_FOLD_GRAPHS_H

#include "fold/memory.h"
#include "fold/stage.h"

/* Sets s->graphs; of STEP_EAGER nothing is there. */
void graphs_init(struct stage *s);
void graphs_rest(struct put *p, const struct stage *s);

/* fold_memory() of each kind of step that the run has, into *out those of the
 * fullest, which run->graph_step then is; between steps, what rests when graphs
 * are there; and what their pool reserves. As fold_memory(). */
bool fold_graphs(struct memory_result *out, const struct program *p,
                 struct run *run, struct arena *a, bool *over);

#endif
