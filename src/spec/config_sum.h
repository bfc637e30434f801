/* Whole-number arithmetic of launch scripts. */
#ifndef MEMPLAN_SPEC_CONFIG_SUM_H
#define MEMPLAN_SPEC_CONFIG_SUM_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

#define SUM_MAX UINT64_C(1000000000000000)

/* False when the text is no sum, or its value negative or above SUM_MAX. */
bool sum_of(struct str text, uint64_t *out);

#endif
