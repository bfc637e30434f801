/*
 * Owns the rows of kernel.def, which GPU has which, and how much GPUs of one
 * model differ. Refuses to time anything.
 */
#include "data/kernel.h"

#include "base/str.h"

#include <math.h>
#include <string.h>

#include "base/banned.h"

static const struct kernel_speed rows[] = {
#include "data/kernel.def"
};

static bool has_chip_of(const struct gpu *gpu, const struct kernel_speed *row)
{
    if (row->same_chip == NULL)
        return false;
    for (struct str rest = str_of(row->same_chip); rest.n > 0;)
        if (str_eq(str_cut(rest, ' ', &rest), str_of(gpu->name)))
            return true;
    return false;
}

const struct kernel_speed *kernel_speed_of(const struct gpu *gpu,
                                           bool *measured)
{
    const size_t n = sizeof rows / sizeof rows[0];
    const struct kernel_speed *family = &rows[n - 1];
    *measured = false;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(rows[i].gpu, gpu->name) == 0) {
            *measured = true;
            return &rows[i];
        }
        if (has_chip_of(gpu, &rows[i]))
            return &rows[i];
        if (rows[i].gpu[0] == '\0' && rows[i].arch == gpu->arch)
            family = &rows[i];
    }
    return family;
}

/* Deviation of what GPUs of one model take for the same kernels: from end to
 * end they differ by 8 %, outliers left out (Sinha et al. 2022,
 * arXiv:2208.11035, the mean of five clusters), and a normal distribution's box
 * plot has 5.4 deviations between its whiskers. */
#define GPU_DEVIATION (0.08 / 5.4)

/* The standard normal's quantile of 0.5^(1/n), which is the largest's median: by
 * Newton's method on the logarithm of the tail, which bends one way and is all but
 * a parabola, so that a few steps are enough at any n. */
double kernel_slowest(uint64_t n)
{
    enum { STEPS = 6 };
    if (n <= 1)
        return 1;
    const double above = -expm1(log(0.5) / (double)n);
    const double per_root = 1 / sqrt(2 * acos(-1));
    double z = sqrt(2 * log((double)n));
    for (int i = 0; i < STEPS; i++) {
        const double tail = erfc(z / sqrt(2)) / 2, before = z;
        z += log(tail / above) * tail / (per_root * exp(-z * z / 2));
        if (z == before)
            break;
    }
    return 1 + GPU_DEVIATION * z;
}

#define SPEED_SCALE_NAME(id, text, doc) text,
#define SPEED_SCALE_TEXT(id, text, doc) doc,

const char *speed_scale_name(enum speed_scale scale)
{
    static const char *const names[] = { SPEED_SCALE_MAP(SPEED_SCALE_NAME) };
    return scale < SPEED_SCALES ? names[scale] : "";
}

const char *speed_scale_text(enum speed_scale scale)
{
    static const char *const texts[] = { SPEED_SCALE_MAP(SPEED_SCALE_TEXT) };
    return scale < SPEED_SCALES ? texts[scale] : "";
}
