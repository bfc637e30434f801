/*
 * Random layouts (shards_draw.c) and what all ranks of one hold together
 * (shards_sum.c): what test_shards.c asks of both.
 */
#ifndef MEMPLAN_TESTS_SHARDS_H
#define MEMPLAN_TESTS_SHARDS_H

#include "plan/report_data.h"

#include "trials.h"

enum { CHOICES = 32 };
struct trial {
    const char *model;
    struct choice c[CHOICES];
};

/* How trials are drawn, in turn: of a framework, or something rare. */
enum { FAMILIES = 16 };
struct trial trial_of(uint64_t seed);
/* The same on one GPU, which has the whole model, its vocabulary padded
 * alike, and nothing elsewhere. */
struct trial trial_alone(const struct trial *t);

void trial_set(struct trial *t, const char *key, const char *value);
/* 1 where it is not given. */
uint64_t trial_number(const struct trial *t, const char *key);
/* NULL where it is not given. */
const char *trial_word(const struct trial *t, const char *key);
/* NULL where it is refused, which is an answer too. */
memplan_report *trial_estimate(const struct trial *t);
/* Text that lasts until the next call. */
const char *trial_text(const struct trial *t);

/* Fails unless weights, gradients, moments and master weights of all ranks, and
 * what they have beside the GPU, are those of `one`, each as often as the
 * layout copies it. */
void check_states(const memplan_report *r, const memplan_report *one,
                  const struct trial *t);

#endif
