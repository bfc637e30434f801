/*
 * What blocks begin with alike is walked once: the same comes out where each is
 * walked alone. What is not asked of an operation, since its kind never has it, it
 * has not.
 */
#ifndef MEMPLAN_TESTS_COMMON_H
#define MEMPLAN_TESTS_COMMON_H

#include "fold/walk.h"

/* Walks all blocks of a program both ways, in the modes and with the settings of
 * a scratch. Returns what differs, static; NULL: nothing. Counts the blocks that
 * begin as another one. */
const char *common_differs(const struct program *p,
                           const struct walk_scratch *settings,
                           uint64_t regions, unsigned modes, struct arena *a,
                           unsigned *alike);

#endif
