/* Scaling laws: how large a model, on how many tokens, for a budget.
 * [docs/method.md eq. scaling] */
#ifndef MEMPLAN_PLAN_SCALING_H
#define MEMPLAN_PLAN_SCALING_H

#include "plan/report_data.h"

/* The optimum of one law under flops = 6 N D. flops > 0. */
struct law_result scaling_optimum(enum scaling_law law, double flops,
                                  double tokens_per_param);

/* The tokens that the law matches to a model of `params`. */
double scaling_tokens(enum scaling_law law, double params,
                      double tokens_per_param);

#endif
