/*
 * Owns the rows of kernel.def, and which GPU has which. Refuses to compute.
 */
#include "data/kernel.h"

#include <string.h>

#include "base/banned.h"

static const struct kernel_speed rows[] = {
#include "data/kernel.def"
};

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
        if (rows[i].gpu[0] == '\0' && rows[i].arch == gpu->arch)
            family = &rows[i];
    }
    return family;
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
