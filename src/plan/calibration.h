/*
 * What is inside a memplan_calibration: measured steps of one GPU, and the
 * constants with which they are predicted best. [docs/method.md
 * eq. calibration]
 */
#ifndef MEMPLAN_PLAN_CALIBRATION_H
#define MEMPLAN_PLAN_CALIBRATION_H

#include "plan/score.h"

/* A row and ln(predicted / measured) of it: without the constants, with them,
 * and with those fitted to other rows. */
struct calibration_row {
    struct score_row *row;
    double before, after, left_out;
};

/* A row that is not fitted to, and why. */
struct calibration_skip {
    const char *id, *why;
};

/* Means of |predicted / measured - 1|. */
struct calibration_error {
    double before, after, left_out; /* NAN: too few rows to leave any out */
};

struct memplan_calibration {
    memplan_score *score;
    const memplan_score *rows; /* the same, to read */
    struct arena arena;        /* of what is fitted */
    struct calibration_row *row;
    size_t n;
    struct calibration_skip *skip;
    size_t n_skips;
    size_t n_parts;  /* that were left out in turn; 0 none */
    const char *gpu; /* NULL: not fitted yet */
    double scale[SPEED_SCALES];
    bool told[SPEED_SCALES];  /* rows say something of it */
    bool bound[SPEED_SCALES]; /* it would go further than it may */
    struct calibration_error error;
};

/* The row's error now, ln(predicted / measured). */
double calibration_row_error(const struct score_row *row);

/* No constant moves further than by this factor. */
#define CALIBRATION_FURTHEST 5

/* Whether a row is further off, with the constants, than any may move: its
 * figure is in another unit, or its setup is not the run's. */
bool calibration_row_strays(const struct calibration_row *row);

/* Fits scale, told, bound, the rows' errors and their means. False: out of
 * memory. */
bool calibration_fit(struct memplan_calibration *c, struct arena *scratch);

/* Least f by Nelder and Mead's simplex, from x on, of n <= SPEED_SCALES
 * numbers; x becomes where it is. */
struct descent {
    double (*f)(void *ctx, const double *x);
    void *ctx;
    size_t n;
    double step; /* of the first simplex */
    int turns;
};
double descend(const struct descent *d, double *x);

/* Reads a file that a calibration was written to. Returns d's status. */
memplan_status calibration_read(struct calibration *out, const char *text,
                                size_t len, const char *name,
                                const memplan_allocator *alloc, struct diag *d);

#endif
