/*
 * Owns the fit: what is minimized, which constants rows say nothing of, and
 * what is left when a part of the rows is kept out. [docs/method.md
 * eq. calibration]
 */
#include "plan/calibration.h"

#include <math.h>
#include <string.h>

#include "base/banned.h"

/* Of ln(constant) squared, beside the sum of |ln(predicted / measured)|: what is
 * likeliest where a row is off by 5 % on average and constants differ by 22 %
 * from cluster to cluster, 0.05 / (2 * 0.22^2). Few rows are held by it, many
 * outweigh it; where rows do not tell constants apart it shares the move out by
 * how much of the step each decides. */
#define PRIOR 0.5
/* Nearer to its bound than this, of its logarithm, a constant is at it. */
#define AT_BOUND 1e-3
/* Rows tell of a constant when 10 % of it change one of them by so much. */
#define TOLD 1e-3

enum { FIT_TURNS = 200, AGAIN_TURNS = 80, PARTS_MOST = 12, PARTS_FROM = 3 };

struct fit {
    struct memplan_calibration *c;
    struct arena *scratch;
    size_t part, parts; /* rows whose number is `part` of `parts` are left out;
                           0: none */
    bool failed;
};

double calibration_row_error(const struct score_row *row)
{
    return log(row->predicted / row->measured);
}

bool calibration_row_strays(const struct calibration_row *row)
{
    return fabs(row->after) > log(CALIBRATION_FURTHEST);
}

static bool is_left_out(const struct fit *f, size_t i)
{
    return f->parts > 0 && i % f->parts == f->part;
}

/* The constants of the told ones' logarithms. */
static void unfold(const struct fit *f, const double *x,
                   double scale[SPEED_SCALES])
{
    const double most = log(CALIBRATION_FURTHEST);
    for (size_t i = 0, k = 0; i < SPEED_SCALES; i++)
        scale[i] = f->c->told[i] ? exp(fmax(-most, fmin(most, x[k++]))) : 1;
}

static double row_error(struct fit *f, size_t i,
                        const double scale[SPEED_SCALES])
{
    struct score_row *row = f->c->row[i].row;
    if (!score_again(row, scale, f->scratch))
        f->failed = true;
    return calibration_row_error(row);
}

static double loss(void *ctx, const double *x)
{
    struct fit *f = ctx;
    double scale[SPEED_SCALES], sum = 0;
    unfold(f, x, scale);
    for (size_t i = 0; i < f->c->n && !f->failed; i++)
        sum += is_left_out(f, i) ? 0 : fabs(row_error(f, i, scale));
    for (int i = 0; i < SPEED_SCALES; i++)
        sum += PRIOR * log(scale[i]) * log(scale[i]);
    return sum;
}

/* Started anew from where it ends: a simplex can collapse on a fold of |x|. */
static void minimize(struct fit *f, double *x, size_t n, int turns)
{
    static const double steps[] = { 0.2, -0.1, 0.05 };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        descend(&(struct descent){ loss, f, n, steps[i], turns }, x);
}

static size_t find_told(struct fit *f)
{
    static const double plain[SPEED_SCALES] = { 1, 1, 1, 1, 1 };
    size_t n = 0;
    for (size_t i = 0; i < f->c->n; i++)
        f->c->row[i].before = row_error(f, i, plain);
    for (int k = 0; k < SPEED_SCALES; k++) {
        double scale[SPEED_SCALES];
        memcpy(scale, plain, sizeof scale);
        scale[k] = 1.1;
        f->c->told[k] = false;
        for (size_t i = 0; i < f->c->n; i++)
            f->c->told[k] =
                f->c->told[k]
                || fabs(row_error(f, i, scale) - f->c->row[i].before) > TOLD;
        n += f->c->told[k];
    }
    return n;
}

/* Each part in turn is predicted by constants fitted to the others. */
static void leave_out(struct fit *f, const double *best, size_t n)
{
    struct memplan_calibration *c = f->c;
    if (c->n < PARTS_FROM)
        return;
    f->parts = c->n_parts = min_u64(c->n, PARTS_MOST);
    for (f->part = 0; f->part < f->parts && !f->failed; f->part++) {
        double x[SPEED_SCALES], scale[SPEED_SCALES];
        memcpy(x, best, sizeof x);
        minimize(f, x, n, AGAIN_TURNS);
        unfold(f, x, scale);
        for (size_t i = f->part; i < c->n; i += f->parts)
            c->row[i].left_out = row_error(f, i, scale);
    }
    f->parts = 0;
}

static void mean_errors(struct memplan_calibration *c)
{
    struct calibration_error e = { 0, 0, c->n_parts > 0 ? 0 : (double)NAN };
    const double n = (double)c->n;
    for (size_t i = 0; i < c->n; i++) {
        e.before += fabs(expm1(c->row[i].before)) / n;
        e.after += fabs(expm1(c->row[i].after)) / n;
        e.left_out += fabs(expm1(c->row[i].left_out)) / n;
    }
    c->error = e;
}

static void find_bounds(struct memplan_calibration *c)
{
    const double most = log(CALIBRATION_FURTHEST) - AT_BOUND;
    for (int i = 0; i < SPEED_SCALES; i++)
        c->bound[i] = fabs(log(c->scale[i])) >= most;
}

bool calibration_fit(struct memplan_calibration *c, struct arena *scratch)
{
    struct fit f = { .c = c, .scratch = scratch };
    double x[SPEED_SCALES] = { 0 };
    c->n_parts = 0;
    const size_t n = find_told(&f);
    minimize(&f, x, n, FIT_TURNS);
    leave_out(&f, x, n);
    unfold(&f, x, c->scale);
    find_bounds(c);
    for (size_t i = 0; i < c->n; i++)
        c->row[i].after = row_error(&f, i, c->scale);
    mean_errors(c);
    return !f.failed;
}
