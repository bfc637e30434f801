/*
 * What is inside a memplan_check, for the file that evaluates, the one that
 * reads cases and the one that writes results.
 */
#ifndef MEMPLAN_PLAN_CHECK_H
#define MEMPLAN_PLAN_CHECK_H

#include "base/arena.h"
#include "base/diag.h"
#include "base/str.h"

enum relation { AT_MOST, AT_LEAST, IS };

struct assertion {
    memplan_assertion told; /* what the public header shows of it */
    enum relation relation;
    bool of_capacity; /* "5%" is a share of memory.capacity */
};

/* An assertion with its limit. Whole numbers of a report stay below 2^53, so
 * that a double holds each exactly. */
struct limit {
    const struct assertion *assertion;
    double value; /* BOOL: 1 or 0 */
    bool share;   /* value is a fraction of the capacity */
};

struct outcome {
    struct limit limit; /* a share turned into bytes */
    bool known;         /* the report has the number */
    double actual;
    bool ok;
};

struct check_case {
    const char *name;
    bool ok;
    struct outcome *outcome;
    size_t n;
    struct check_case *next;
};

struct memplan_check {
    struct arena arena;
    struct check_case *first, *last;
};

/* Reads one assertion; NULL, or the error it added. */
memplan_error *check_limit(struct limit *out, struct str name, struct str text,
                           struct diag *d);

/* Holds the limits against a report and keeps the result; with no limit, that
 * it fits. False when out of memory. */
bool check_evaluate(bool *held, memplan_check *check, struct str name,
                    const memplan_report *report, const struct limit *limit,
                    size_t n);

#endif
