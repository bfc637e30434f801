/*
 * GPUs for a deadline: the fewest of a model's valid layouts whose predicted
 * time is short enough. [docs/method.md eq. deadline]
 */
#ifndef MEMPLAN_PLAN_DEADLINE_H
#define MEMPLAN_PLAN_DEADLINE_H

#include "plan/plan.h"

struct deadline_question {
    const struct spec *spec;
    const struct params_result *params;
    const struct setup *setup;
    bool decides; /* the GPUs, where the setup leaves them open */
};

/* r holds FLOPs, time and r->compute of a setup that asks for days. Fills
 * r->deadline, and where that decides the GPUs r with as many as are needed,
 * or where no number is enough, with the fastest. Returns d's status. */
memplan_status plan_deadline(struct memplan_report *r,
                             const struct deadline_question *q, struct diag *d);

#endif
