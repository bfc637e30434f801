/* Scaling laws: how large a model, on how many tokens, for a budget.
 * [docs/method.md eq. scaling] */
#ifndef MEMPLAN_PLAN_SCALING_H
#define MEMPLAN_PLAN_SCALING_H

#include "plan/report_data.h"

struct law_question {
    double tokens_per_param;
    double unique_tokens; /* 0: as many as are wanted */
    double inference_tokens;
};

const char *scaling_name(enum scaling_law law);

/* The optimum of one law under flops = 6 N D. flops > 0. */
struct law_result scaling_optimum(enum scaling_law law, double flops,
                                  const struct law_question *q);

/* The tokens that the law matches to a model of `params`. */
double scaling_tokens(enum scaling_law law, double params,
                      const struct law_question *q);

/* The model that the law matches to so many tokens; NAN: none of 1 to 1e18
 * parameters. */
double scaling_params(enum scaling_law law, double tokens,
                      const struct law_question *q);

/* Loss in nats a token, of a law that gives one; NAN of others. */
double scaling_loss(enum scaling_law law, double params, double tokens,
                    const struct law_question *q);
/* The law itself where it gives a loss, else Besiroglu et al.'s. */
enum scaling_law scaling_with_loss(enum scaling_law law);

/* The least training that reaches a loss; params NAN: none does. Of a law that
 * gives one. [docs/method.md eq. scaling-loss] */
struct law_result scaling_for_loss(enum scaling_law law, double loss,
                                   const struct law_question *q);
/* Tokens that bring a model to a loss, or a model that does it with so many
 * tokens; NAN: nothing does. */
double scaling_tokens_for_loss(enum scaling_law law, double params, double loss,
                               const struct law_question *q);
double scaling_params_for_loss(enum scaling_law law, double tokens, double loss,
                               const struct law_question *q);

/* The least training and serving together that reaches a loss: 6 N D + 2 N of
 * each token served. [docs/method.md eq. scaling-inference] */
struct law_result scaling_served(enum scaling_law law, double loss,
                                 const struct law_question *q);

#endif
