/*
 * Scaling laws with their published constants. Owns constants and the closed
 * form of the optimum; knows no GPU. Where a paper prints rounded constants
 * and its source has unrounded ones, the unrounded are used: rounding alone
 * moves the optimum of the parametric fit by half.
 */
#include "plan/scaling.h"

#include <math.h>

#include "base/banned.h"

/* L(N, D) = E + A / N^alpha + B / D^beta; E does not move the optimum. */
struct parametric {
    double a, b, alpha, beta;
};

/* Hoffmann et al. 2022, approach 3, constants of the paper's TeX source:
 * ln A = 6.0073404, ln B = 6.0179186. */
static const struct parametric hoffmann_3 = { 406.400, 410.722, 0.33917084,
                                              0.2849083 };
/* Besiroglu et al. 2024 (arXiv:2404.10102), replication of the same fit. */
static const struct parametric besiroglu = { 482.01, 2085.43, 0.3478, 0.3658 };

/* N = k C^a. */
struct power {
    double k, a;
};

/* Power law through the nine rows of Hoffmann et al. 2022, table 3. */
static const struct power hoffmann_1 = { 0.0992, 0.4981 };
/* Kaplan et al. 2020 (arXiv:2001.08361), table 6: N = 1.3e9 parameters at one
 * PF-day, exponent 0.73; without embeddings. */
static const double kaplan_params = 1.3e9, kaplan_exponent = 0.73;
static const double pf_day_flop = 8.64e19;

/* Where the fitted runs are centred, and two-sided 80 % of a normal law. */
static const double data_centre_flop = 1e20;
static const double quantile_80 = 1.2816;
/* Besiroglu et al. 2024: standard error of the exponent a = 0.513. */
static const double besiroglu_se = 0.020;
/* Hoffmann et al. 2022, table 2: 10th and 90th percentile of a. */
static const double hoffmann_1_low = 0.488, hoffmann_1_high = 0.502;

/* [method.md eq. scaling-closed] */
static double parametric_params(const struct parametric *p, double flops)
{
    const double g =
        pow(p->alpha * p->a / (p->beta * p->b), 1 / (p->alpha + p->beta));
    return g * pow(flops / 6, p->beta / (p->alpha + p->beta));
}

static double kaplan(double flops)
{
    return kaplan_params * pow(flops / pf_day_flop, kaplan_exponent);
}

static double law_params(enum scaling_law law, double flops,
                         double tokens_per_param)
{
    switch (law) {
    case LAW_CHINCHILLA: return sqrt(flops / (6 * tokens_per_param));
    case LAW_HOFFMANN_1: return hoffmann_1.k * pow(flops, hoffmann_1.a);
    case LAW_HOFFMANN_3: return parametric_params(&hoffmann_3, flops);
    case LAW_BESIROGLU: return parametric_params(&besiroglu, flops);
    case LAW_KAPLAN: return kaplan(flops);
    case SCALING_LAW_COUNT: break;
    }
    return (double)NAN;
}

static const char *law_source(enum scaling_law law)
{
    switch (law) {
    case LAW_CHINCHILLA:
        return "rule of thumb after Hoffmann et al. 2022, table 3";
    case LAW_HOFFMANN_1:
        return "Hoffmann et al. 2022, approach 1 (power law through table 3)";
    case LAW_HOFFMANN_3:
        return "Hoffmann et al. 2022, approach 3 (unrounded constants)";
    case LAW_BESIROGLU:
        return "Besiroglu et al. 2024, replication of approach 3";
    case LAW_KAPLAN: return "Kaplan et al. 2020, without embeddings";
    case SCALING_LAW_COUNT: break;
    }
    return "";
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
                                  double tokens_per_param)
{
    struct law_result r = { .law = law,
                            .range_note = "",
                            .source = law_source(law) };
    r.params = law_params(law, flops, tokens_per_param);
    r.tokens = flops / (6 * r.params);
    r.tokens_per_param = r.tokens / r.params;
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

/* The budget whose optimum is `params`: N grows with the budget, so halving
 * the interval of its logarithm finds it. */
double scaling_tokens(enum scaling_law law, double params,
                      double tokens_per_param)
{
    if (law == LAW_CHINCHILLA)
        return tokens_per_param * params;
    double low = 0, high = 100; /* log10 of FLOPs */
    for (int i = 0; i < 100; i++) {
        const double mid = (low + high) / 2;
        if (law_params(law, pow(10, mid), tokens_per_param) < params)
            low = mid;
        else
            high = mid;
    }
    return pow(10, low) / (6 * params);
}
