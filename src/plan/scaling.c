/*
 * Scaling laws with their published constants. Owns constants and the closed
 * form of the optimum; knows no GPU. Where a paper prints rounded constants
 * and its source has unrounded ones, the unrounded are used: rounding alone
 * moves the optimum of the parametric fit by half.
 */
#include "plan/scaling.h"

#include <math.h>

#include "base/banned.h"

/* L(N, D) = E + (A / N^alpha + B / D^beta)^gamma; neither E nor gamma moves the
 * optimum. */
struct parametric {
    double a, b, alpha, beta, e, gamma;
};

/* Hoffmann et al. 2022, approach 3, constants of the paper's TeX source:
 * ln A = 6.0073404, ln B = 6.0179186. */
static const struct parametric hoffmann_3 = { 406.400,   410.722, 0.33917084,
                                              0.2849083, 1.69337, 1 };
/* Besiroglu et al. 2024 (arXiv:2404.10102), replication of the same fit. */
static const struct parametric besiroglu = { 482.01, 2085.43, 0.3478,
                                             0.3658, 1.8172,  1 };
/* Muennighoff et al. 2023 (arXiv:2305.16264), C4: ln A = 6.255414, ln B =
 * 7.3049974, ln E = 0.6254804 (huggingface/datablations); and how fast what is
 * seen again, and parameters beyond what the data wants, lose their worth. */
static const struct parametric muennighoff = { 520.82,    1487.7,  0.3526596,
                                               0.3526596, 1.86914, 1 };
static const double repeats_worth = 15.387756, excess_worth = 5.309743;

/* N = k C^a. */
struct power {
    double k, a;
};

/* Power law through the nine rows of Hoffmann et al. 2022, table 3. */
static const struct power hoffmann_1 = { 0.0992, 0.4981 };
/* ... of table A3, approach 2. */
static const struct power hoffmann_2 = { 0.14488, 0.48994 };
/* Kaplan et al. 2020 (arXiv:2001.08361), table 6: N = 1.3e9 parameters at one
 * PF-day, exponent 0.73; without embeddings. */
static const double kaplan_params = 1.3e9, kaplan_exponent = 0.73;
/* ... table 2: (N_c / N)^(alpha_N / alpha_D) + D_c / D, to the power alpha_D; N_c
 * 6.4e13, D_c 1.8e13, alpha_N 0.076, alpha_D 0.103. What is least by it is not
 * table 6's optimum, which is of models that are not trained to their end. */
static const struct parametric kaplan_loss = {
    1.538453e10, 1.8e13, 0.076 / 0.103, 1, 0, 0.103
};
static const double pf_day_flop = 8.64e19;

/* Where the fitted runs are centred, and two-sided 80 % of a normal law. */
static const double data_centre_flop = 1e20;
static const double quantile_80 = 1.2816;
/* Besiroglu et al. 2024: standard error of the exponent a = 0.513. */
static const double besiroglu_se = 0.020;
/* Hoffmann et al. 2022, table 2: 10th and 90th percentile of a. */
static const double hoffmann_1_low = 0.488, hoffmann_1_high = 0.502;

/* G of the optimum: N = G (C / 6)^(beta / (alpha + beta)).
 * [method.md eq. scaling-closed] */
static double balance(const struct parametric *p)
{
    return pow(p->alpha * p->a / (p->beta * p->b), 1 / (p->alpha + p->beta));
}

static double parametric_params(const struct parametric *p, double flops)
{
    return balance(p) * pow(flops / 6, p->beta / (p->alpha + p->beta));
}

static double kaplan(double flops)
{
    return kaplan_params * pow(flops / pf_day_flop, kaplan_exponent);
}

static const char *law_source(enum scaling_law law)
{
    switch (law) {
    case LAW_CHINCHILLA:
        return "rule of thumb after Hoffmann et al. 2022, table 3";
    case LAW_HOFFMANN_1:
        return "Hoffmann et al. 2022, approach 1 (power law through table 3)";
    case LAW_HOFFMANN_2:
        return "Hoffmann et al. 2022, approach 2 (power law through table A3)";
    case LAW_MUENNIGHOFF:
        return "Muennighoff et al. 2023, data seen more than once";
    case LAW_HOFFMANN_3:
        return "Hoffmann et al. 2022, approach 3 (unrounded constants)";
    case LAW_BESIROGLU:
        return "Besiroglu et al. 2024, replication of approach 3";
    case LAW_KAPLAN: return "Kaplan et al. 2020, without embeddings";
    case SCALING_LAW_COUNT: break;
    }
    return "";
}

const char *scaling_name(enum scaling_law law)
{
    static const char *const names[] = {
#define LAW_TEXT(id, text) text,
        SCALING_LAW_MAP(LAW_TEXT)
#undef LAW_TEXT
    };
    return names[law];
}

static const struct parametric *parametric_of(enum scaling_law law)
{
    switch (law) {
    case LAW_HOFFMANN_3: return &hoffmann_3;
    case LAW_BESIROGLU: return &besiroglu;
    case LAW_MUENNIGHOFF: return &muennighoff;
    case LAW_KAPLAN: return &kaplan_loss;
    case LAW_CHINCHILLA:
    case LAW_HOFFMANN_1:
    case LAW_HOFFMANN_2:
    case SCALING_LAW_COUNT: break;
    }
    return NULL;
}

enum scaling_law scaling_with_loss(enum scaling_law law)
{
    return parametric_of(law) != NULL ? law : LAW_BESIROGLU;
}

/* ---- what is seen again ---- */

/* Worth of x where `worth_whole` of it is fresh, and the rest fades. */
static double faded(double x, double fresh, double fades)
{
    if (x <= fresh)
        return x;
    const double more = x / fresh - 1;
    return fresh + fresh * fades * (1 - exp(-more / fades));
}

/* The model that so many tokens are the optimum of. */
static double matched_params(const struct parametric *p, double tokens)
{
    const double g = balance(p);
    return g * pow(tokens * g, p->beta / p->alpha);
}

static double loss_of(const struct parametric *p, double params, double tokens,
                      double unique)
{
    if (unique > 0 && tokens > unique) {
        params = faded(params, matched_params(p, unique), excess_worth);
        tokens = faded(tokens, unique, repeats_worth);
    }
    const double sum =
        p->a / pow(params, p->alpha) + p->b / pow(tokens, p->beta);
    return p->e + pow(sum, p->gamma);
}

/* What both terms may be together for a loss; NAN: it is below E. */
static double room_of(const struct parametric *p, double loss)
{
    return pow(loss - p->e, 1 / p->gamma);
}

double scaling_loss(enum scaling_law law, double params, double tokens,
                    const struct law_question *q)
{
    const struct parametric *p = parametric_of(law);
    if (p == NULL || !(params > 0) || !(tokens > 0))
        return (double)NAN;
    return loss_of(p, params, tokens, q->unique_tokens);
}

/* ---- searches: each over one logarithm ---- */

typedef double cost_fn(const void *ctx, double log_params);

/* Where a function with one valley is least. */
static double least(cost_fn *cost, const void *ctx, double low, double high)
{
    enum { ROUNDS = 120 };
    const double golden = 0.6180339887498949;
    double a = high - golden * (high - low), b = low + golden * (high - low);
    double at_a = cost(ctx, a), at_b = cost(ctx, b);
    for (int i = 0; i < ROUNDS; i++) {
        if (at_a <= at_b) {
            high = b, b = a, at_b = at_a;
            a = high - golden * (high - low), at_a = cost(ctx, a);
        } else {
            low = a, a = b, at_a = at_b;
            b = low + golden * (high - low), at_b = cost(ctx, b);
        }
    }
    return (low + high) / 2;
}

/* ln of 1 and of 1e18 parameters or tokens. */
static const double log_least = 0, log_most = 41.4;

struct spending {
    const struct parametric *p;
    double flops, loss;
    const struct law_question *q;
};

static double loss_of_spending(const void *ctx, double log_params)
{
    const struct spending *s = ctx;
    const double params = exp(log_params);
    return loss_of(s->p, params, s->flops / (6 * params), s->q->unique_tokens);
}

/* N of a budget: in closed form while all data is fresh. */
static double repeated_params(const struct parametric *p, double flops,
                              const struct law_question *q)
{
    const double params = parametric_params(p, flops);
    if (q->unique_tokens <= 0 || flops / (6 * params) <= q->unique_tokens)
        return params;
    const struct spending s = { .p = p, .flops = flops, .q = q };
    return exp(least(loss_of_spending, &s, log(params) - 5, log(params) + 12));
}

/* The x of `room` = c / x^e; NAN: none that anybody will ever have. */
static double power_of_room(double c, double e, double room)
{
    const double x = room > 0 ? pow(c / room, 1 / e) : (double)NAN;
    return x <= exp(log_most) ? x : (double)NAN;
}

typedef bool short_fn(const void *ctx, double x);

/* The least number that is not too small; NAN: all are up to 1e18. */
static double least_enough(short_fn *is_short, const void *ctx)
{
    enum { HALVINGS = 100 }; /* more than a double has bits */
    double low = log_least, high = log_most;
    if (is_short(ctx, exp(high)))
        return (double)NAN;
    for (int i = 0; i < HALVINGS; i++) {
        const double mid = (low + high) / 2;
        if (is_short(ctx, exp(mid)))
            low = mid;
        else
            high = mid;
    }
    return exp(high);
}

struct reaching {
    const struct parametric *p;
    double given, loss, unique; /* given: parameters, or tokens */
};

static bool tokens_fall_short(const void *ctx, double tokens)
{
    const struct reaching *x = ctx;
    return loss_of(x->p, x->given, tokens, x->unique) > x->loss;
}

static bool params_fall_short(const void *ctx, double params)
{
    const struct reaching *x = ctx;
    return loss_of(x->p, params, x->given, x->unique) > x->loss;
}

/* Tokens with which so many parameters reach a loss; NAN: none do. In closed
 * form while all data is fresh. */
static double tokens_of_loss(const struct parametric *p, double params,
                             double loss, double unique)
{
    const double fresh = power_of_room(
        p->b, p->beta, room_of(p, loss) - p->a / pow(params, p->alpha));
    if (unique <= 0 || fresh <= unique)
        return fresh;
    const struct reaching x = { p, params, loss, unique };
    return least_enough(tokens_fall_short, &x);
}

double scaling_tokens_for_loss(enum scaling_law law, double params, double loss,
                               const struct law_question *q)
{
    return tokens_of_loss(parametric_of(scaling_with_loss(law)), params, loss,
                          q->unique_tokens);
}

double scaling_params_for_loss(enum scaling_law law, double tokens, double loss,
                               const struct law_question *q)
{
    const struct parametric *p = parametric_of(scaling_with_loss(law));
    if (q->unique_tokens <= 0 || tokens <= q->unique_tokens)
        return power_of_room(p->a, p->alpha,
                             room_of(p, loss) - p->b / pow(tokens, p->beta));
    const struct reaching x = { p, tokens, loss, q->unique_tokens };
    return least_enough(params_fall_short, &x);
}

/* Training, and what is served after it; a model that never gets there costs
 * more than any that does. */
static double cost_of_loss(const void *ctx, double log_params)
{
    const struct spending *s = ctx;
    const double params = exp(log_params);
    const double tokens =
        tokens_of_loss(s->p, params, s->loss, s->q->unique_tokens);
    if (!(tokens > 0))
        return 1e60 / params;
    return 6 * params * tokens + 2 * params * s->q->inference_tokens;
}

/* N of a loss that costs least: in closed form while all data is fresh and
 * nothing is served, for then both terms of the loss fall equally fast.
 * [method.md eq. scaling-loss] */
static double params_for_loss(const struct spending *s)
{
    const struct parametric *p = s->p;
    const double params = power_of_room(p->a * (1 + p->alpha / p->beta),
                                        p->alpha, room_of(p, s->loss));
    const double unique = s->q->unique_tokens;
    if (s->q->inference_tokens <= 0
        && (unique <= 0 || tokens_of_loss(p, params, s->loss, 0) <= unique))
        return params;
    return exp(least(cost_of_loss, s, log_least + 5, log_most));
}

struct law_result scaling_served(enum scaling_law law, double loss,
                                 const struct law_question *q)
{
    const enum scaling_law with = scaling_with_loss(law);
    const struct spending s = { .p = parametric_of(with),
                                .loss = loss,
                                .q = q };
    struct law_result r = { .law = with, .range_note = "" };
    r.source = law_source(with);
    r.params = params_for_loss(&s);
    r.tokens = tokens_of_loss(s.p, r.params, loss, q->unique_tokens);
    r.tokens_per_param = r.tokens / r.params;
    if (!(r.tokens > 0))
        r.params = (double)NAN;
    return r;
}

struct law_result scaling_for_loss(enum scaling_law law, double loss,
                                   const struct law_question *q)
{
    struct law_question trained = *q;
    trained.inference_tokens = 0;
    return scaling_served(law, loss, &trained);
}

static double law_params(enum scaling_law law, double flops,
                         const struct law_question *q)
{
    switch (law) {
    case LAW_CHINCHILLA: return sqrt(flops / (6 * q->tokens_per_param));
    case LAW_HOFFMANN_2: return hoffmann_2.k * pow(flops, hoffmann_2.a);
    case LAW_MUENNIGHOFF: return repeated_params(&muennighoff, flops, q);
    case LAW_HOFFMANN_1: return hoffmann_1.k * pow(flops, hoffmann_1.a);
    case LAW_HOFFMANN_3: return repeated_params(&hoffmann_3, flops, q);
    case LAW_BESIROGLU: return repeated_params(&besiroglu, flops, q);
    case LAW_KAPLAN: return kaplan(flops);
    case SCALING_LAW_COUNT: break;
    }
    return (double)NAN;
}

/* An error of the exponent tilts the law about the centre of its data. */
static void range(struct law_result *r, double flops, double low, double high,
                  const char *note)
{
    const double away = flops / data_centre_flop;
    const double a = r->params * pow(away, low);
    const double b = r->params * pow(away, high);
    r->has_range = true;
    r->params_low = fmin(a, b);
    r->params_high = fmax(a, b);
    r->tokens_low = flops / (6 * r->params_high);
    r->tokens_high = flops / (6 * r->params_low);
    r->range_note = note;
}

struct law_result scaling_optimum(enum scaling_law law, double flops,
                                  const struct law_question *q)
{
    struct law_result r = { .law = law,
                            .range_note = "",
                            .source = law_source(law) };
    r.params = law_params(law, flops, q);
    r.tokens = flops / (6 * r.params);
    r.tokens_per_param = r.tokens / r.params;
    r.loss = scaling_loss(law, r.params, r.tokens, q);
    if (law == LAW_BESIROGLU)
        range(&r, flops, -quantile_80 * besiroglu_se,
              quantile_80 * besiroglu_se,
              "80 % by the standard error of the exponent");
    else if (law == LAW_HOFFMANN_1)
        range(&r, flops, hoffmann_1_low - hoffmann_1.a,
              hoffmann_1_high - hoffmann_1.a,
              "10th to 90th percentile of the exponent");
    return r;
}

/* Tokens that so many parameters are the optimum of, all of them fresh. */
static double matched_tokens(const struct parametric *p, double params)
{
    const double g = balance(p);
    return pow(params / g, p->alpha / p->beta) / g;
}

/* The budget whose optimum is `params`: N grows with the budget, so halving
 * the interval of its logarithm finds it. */
static double repeated_tokens(const struct parametric *p, double params,
                              const struct law_question *q)
{
    const double fresh = matched_tokens(p, params);
    if (q->unique_tokens <= 0 || fresh <= q->unique_tokens)
        return fresh;
    double low = 0, high = 100; /* log10 of FLOPs */
    for (int i = 0; i < 100; i++) {
        const double mid = (low + high) / 2;
        if (repeated_params(p, pow(10, mid), q) < params)
            low = mid;
        else
            high = mid;
    }
    return pow(10, low) / (6 * params);
}

static double power_tokens(double k, double a, double params)
{
    return pow(params / k, 1 / a) / (6 * params);
}

double scaling_tokens(enum scaling_law law, double params,
                      const struct law_question *q)
{
    switch (law) {
    case LAW_CHINCHILLA: return q->tokens_per_param * params;
    case LAW_HOFFMANN_1:
        return power_tokens(hoffmann_1.k, hoffmann_1.a, params);
    case LAW_HOFFMANN_2:
        return power_tokens(hoffmann_2.k, hoffmann_2.a, params);
    case LAW_MUENNIGHOFF: return repeated_tokens(&muennighoff, params, q);
    case LAW_HOFFMANN_3: return repeated_tokens(&hoffmann_3, params, q);
    case LAW_BESIROGLU: return repeated_tokens(&besiroglu, params, q);
    case LAW_KAPLAN:
        return pf_day_flop * pow(params / kaplan_params, 1 / kaplan_exponent)
               / (6 * params);
    case SCALING_LAW_COUNT: break;
    }
    return (double)NAN;
}

struct matching {
    enum scaling_law law;
    double tokens;
    const struct law_question *q;
};

static bool matches_fewer(const void *ctx, double params)
{
    const struct matching *x = ctx;
    return scaling_tokens(x->law, params, x->q) < x->tokens;
}

double scaling_params(enum scaling_law law, double tokens,
                      const struct law_question *q)
{
    const struct matching x = { law, tokens, q };
    if (scaling_tokens(law, exp(log_least), q) > tokens)
        return (double)NAN;
    return least_enough(matches_fewer, &x);
}
