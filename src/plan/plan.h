/*
 * The pipeline behind the public calls: resolve, lower, fold, and what follows
 * from the numbers.
 */
#ifndef MEMPLAN_PLAN_PLAN_H
#define MEMPLAN_PLAN_PLAN_H

#include "base/diag.h"
#include "plan/report_data.h"

/* A zeroed report's arenas. */
void report_arenas(struct memplan_report *r,
                   const memplan_allocator *allocator);
void report_release(struct memplan_report *r);

/* Resolves, lowers and folds memory into r (whose arena is rewound first):
 * run, program, memory. `spec` must outlive r unless its strings are copied
 * later. Returns d's status. */
memplan_status plan_memory(struct memplan_report *r, const struct spec *spec,
                           const struct params_result *params,
                           const struct setup *setup, struct diag *d);

/* Assumptions of the report that its figures show: of a model's parts, of its
 * memory, of its time and utilisation. */
void plan_say_parts(struct memplan_report *r);
void plan_say_memory(struct memplan_report *r);
void plan_say_time(struct memplan_report *r);

/* After plan_memory(), unless the setup says fast: with the caching allocator
 * simulated: of all stages, or of as many as
 * the answer stays instant with. Searches leave it out. Returns d's status. */
memplan_status plan_allocator(struct memplan_report *r, bool all,
                              struct diag *d);

/* The whole estimate; what would make it fit is report_changes()'s. Returns d's
 * status. */
memplan_status plan_estimate(struct memplan_report *r, const struct spec *spec,
                             const struct params_result *params,
                             const struct setup *setup, struct diag *d);

/* An empty one, for memplan_report_free; NULL: out of memory. */
struct memplan_report *plan_report_new(const memplan_allocator *allocator);

/* Fills r->compute from run, params and (when has_model) flops, comm. */
void plan_compute(struct memplan_report *r);
/* The least target_loss, in thousandths, that the setup's law has for what else
 * is given; NAN: none. */
double plan_least_loss(const struct memplan_report *r);

/* Memory, FLOPs, communication and r->compute of a model as it is set up, and
 * no proposals. Returns d's status. */
memplan_status plan_compute_spec(struct memplan_report *r,
                                 const struct spec *spec,
                                 const struct params_result *params,
                                 const struct setup *setup, struct diag *d);
memplan_status plan_compute_model(struct memplan_report *r,
                                  const memplan_model *model,
                                  const struct setup *setup, struct diag *d);

/* After plan_compute_spec(): r->memory.fits becomes what an estimate has, whose
 * allocator is asked where the closed form is not sure. Returns d's status. */
memplan_status plan_settle_fits(struct memplan_report *r, struct diag *d);

/* What memplan_compute() puts into a report; model may be NULL. Returns d's
 * status. */
memplan_status plan_compute_answer(struct memplan_report *r,
                                   const memplan_model *model,
                                   const struct setup *setup, struct diag *d);

/* Which ranks share what. False when out of memory. */
bool explain_groups(struct explanation *x, const struct run *run, bool experts,
                    bool tied);

bool explain_compute(struct explanation *x, const struct memplan_report *r);

#endif
