/*
 * GPUs for a deadline: the fewest of a model's valid layouts whose predicted
 * time is short enough. [docs/method.md eq. deadline]
 */
#ifndef MEMPLAN_PLAN_DEADLINE_H
#define MEMPLAN_PLAN_DEADLINE_H

#include "plan/plan.h"

/* r holds plan_compute_model() of model and setup, which asks for days. Fills
 * r->deadline, and where the setup leaves the GPUs open r with as many as are
 * needed, or where no number is enough, with the fastest. Returns d's
 * status. */
memplan_status plan_deadline(struct memplan_report *r,
                             const memplan_model *model,
                             const struct setup *setup, struct diag *d);

#endif
