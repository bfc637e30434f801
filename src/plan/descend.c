/*
 * The simplex of Nelder and Mead (Computer Journal 7, 1965), for a handful of
 * numbers and a function without derivatives. Knows nothing of what it
 * minimizes.
 */
#include "plan/calibration.h"

#include <string.h>

#include "base/banned.h"

enum { POINTS = SPEED_SCALES + 1 };

struct point {
    double x[SPEED_SCALES], value;
};

struct simplex {
    const struct descent *d;
    struct point at[POINTS]; /* the best first */
};

/* The centre of all but the worst, and from there `by` times the way that
 * leads away from the worst. */
static struct point beyond(const struct simplex *s, double by)
{
    const size_t n = s->d->n;
    struct point p = { .value = 0 };
    for (size_t k = 0; k < n; k++) {
        double centre = 0;
        for (size_t i = 0; i < n; i++)
            centre += s->at[i].x[k] / (double)n;
        p.x[k] = centre + by * (centre - s->at[n].x[k]);
    }
    p.value = s->d->f(s->d->ctx, p.x);
    return p;
}

static void sort(struct simplex *s)
{
    for (size_t i = 1; i <= s->d->n; i++) {
        const struct point p = s->at[i];
        size_t j = i;
        for (; j > 0 && s->at[j - 1].value > p.value; j--)
            s->at[j] = s->at[j - 1];
        s->at[j] = p;
    }
}

static void shrink(struct simplex *s)
{
    for (size_t i = 1; i <= s->d->n; i++) {
        for (size_t k = 0; k < s->d->n; k++)
            s->at[i].x[k] = (s->at[0].x[k] + s->at[i].x[k]) / 2;
        s->at[i].value = s->d->f(s->d->ctx, s->at[i].x);
    }
}

static void turn(struct simplex *s)
{
    const size_t n = s->d->n;
    struct point p = beyond(s, 1);
    if (p.value < s->at[0].value) {
        const struct point further = beyond(s, 2);
        s->at[n] = further.value < p.value ? further : p;
    } else if (p.value < s->at[n - 1].value) {
        s->at[n] = p;
    } else {
        p = beyond(s, p.value < s->at[n].value ? 0.5 : -0.5);
        if (p.value < s->at[n].value)
            s->at[n] = p;
        else
            shrink(s);
    }
    sort(s);
}

double descend(const struct descent *d, double *x)
{
    struct simplex s = { .d = d };
    for (size_t i = 0; i <= d->n; i++) {
        memcpy(s.at[i].x, x, d->n * sizeof *x);
        if (i > 0)
            s.at[i].x[i - 1] += d->step;
        s.at[i].value = d->f(d->ctx, s.at[i].x);
    }
    sort(&s);
    for (int i = 0; d->n > 0 && i < d->turns; i++)
        turn(&s);
    memcpy(x, s.at[0].x, d->n * sizeof *x);
    return s.at[0].value;
}
