/*
 * What is inside a memplan_score, for the files that read rows, predict them,
 * count the errors and write them.
 */
#ifndef MEMPLAN_PLAN_SCORE_H
#define MEMPLAN_PLAN_SCORE_H

#include "plan/report_data.h"

enum score_kind {
    SCORE_MEMORY,
    SCORE_THROUGHPUT,
    SCORE_FIT, /* the run went through */
    SCORE_OOM, /* it ran out of memory */
    SCORE_KINDS
};

#define SCORE_METRIC_MAP(X)                                                    \
    X(PEAK_ALLOCATED, "peak_allocated", SCORE_MEMORY)                          \
    X(STEADY_ALLOCATED, "steady_allocated", SCORE_MEMORY)                      \
    X(PEAK_RESERVED, "peak_reserved", SCORE_MEMORY)                            \
    X(DEVICE_TOTAL, "device_total", SCORE_MEMORY)                              \
    X(TOKENS_PER_S_PER_GPU, "tokens_per_s_per_gpu", SCORE_THROUGHPUT)          \
    X(STEP_TIME_S, "step_time_s", SCORE_THROUGHPUT)                            \
    X(TFLOPS_PER_GPU, "tflops_per_gpu", SCORE_THROUGHPUT)                      \
    X(MFU, "mfu", SCORE_THROUGHPUT)                                            \
    X(FIT, "fit", SCORE_FIT)                                                   \
    X(OOM, "oom", SCORE_OOM)
#define SCORE_METRIC_ENUM(id, text, kind) METRIC_##id,
enum score_metric { SCORE_METRIC_MAP(SCORE_METRIC_ENUM) METRIC_COUNT };
#undef SCORE_METRIC_ENUM

enum score_rank { RANK_MAX, RANK_LAST, RANK_FIRST, RANK_COUNT };
enum score_flops { FLOPS_CAUSAL, FLOPS_FULL, FLOPS_HARDWARE, FLOPS_COUNT };

/* The setup keys that rows can be grouped by, as --by spells them. */
#define SCORE_KEY_MAP(X)                                                       \
    X(ZERO, "zero")                                                            \
    X(TP, "tp")                                                                \
    X(PP, "pp")                                                                \
    X(VPP, "vpp")                                                              \
    X(CP, "cp")                                                                \
    X(EP, "ep")                                                                \
    X(RECOMPUTE, "recompute")                                                  \
    X(LORA_RANK, "lora")                                                       \
    X(BASE_DTYPE, "base_dtype")                                                \
    X(PRECISION, "precision")                                                  \
    X(OPTIMIZER, "optimizer")                                                  \
    X(OFFLOAD_OPTIMIZER, "offload_optimizer")                                  \
    X(OFFLOAD_PARAMS, "offload_params")                                        \
    X(OFFLOAD_ACTIVATIONS, "offload_activations")                              \
    X(FRAMEWORK, "framework")

/* What rows are grouped by; the last two serve the summary, and leave out rows
 * that need something. */
#define SCORE_KEY_BY(id, text) BY_##id,
enum score_by {
    BY_GROUP,
    BY_METRIC,
    SCORE_KEY_MAP(SCORE_KEY_BY) BY_COUNT,
    BY_KIND = BY_COUNT,
    BY_NOTHING /* one group of the rows that have an error and need nothing */
};
#undef SCORE_KEY_BY
enum { BY_FIRST_KEY = BY_METRIC + 1, SCORE_KEYS = BY_COUNT - BY_FIRST_KEY };

/* One measured run. Of fit and oom rows `measured` and `predicted` are 1 for
 * "fits" and 0, and there is no error. */
struct score_row {
    const char *id, *group;
    const char *needs;  /* what no setup key can say; "" nothing */
    const char *reason; /* why it was not predicted; NULL when it was */
    const char *why;    /* a remark on its error; "" none */
    enum score_kind kind;
    enum score_metric metric;
    enum score_rank rank;
    enum score_flops flops;
    double measured, predicted;
    double error;                  /* predicted / measured - 1 */
    uint64_t key[SCORE_KEYS];      /* resolved: setup keys to group by */
    struct memplan_report *report; /* its own, of a score that keeps them */
    struct score_row *next;
};

/* What another estimator says of a row. */
struct score_peer {
    const char *id; /* of the row */
    const char *name;
    double bytes;
    const struct score_peer *next;
};

/* What somebody found out about a row: why its prediction is off, or why its
 * figure is doubtful. */
struct score_remark {
    const char *id, *why;
    bool doubtful; /* no overall figure counts the row */
    const struct score_remark *next;
};

struct memplan_score {
    struct arena arena;
    struct score_row *first, *last;
    struct score_peer *first_peer, *last_peer;
    size_t n_peers;
    struct score_remark *first_remark;
    size_t n_remarks;
    size_t n_rows; /* the skipped among them */
    size_t n_skipped;
    struct memplan_report report; /* its memory serves every row */
    /* For a calibration: rows of times alone, each with its report, so that
     * they can be predicted again. */
    bool keeps;
    size_t n_passed;                /* of other kinds */
    struct calibration calibration; /* of times; rows == 0: none */
};

const char *score_kind_name(enum score_kind kind);
/* Of by >= BY_FIRST_KEY, below BY_COUNT. */
enum setup_key score_key(enum score_by by);
const char *score_metric_name(enum score_metric metric);
enum score_kind score_metric_kind(enum score_metric metric);
bool score_has_error(const struct score_row *row);
bool score_is_right(const struct score_row *row); /* of fit and oom rows */

/* Fills predicted, error and keys of a row whose other members are set.
 * Returns d's status. */
memplan_status score_predict(memplan_score *score, struct score_row *row,
                             const struct memplan_model *model,
                             const struct setup *setup, struct diag *d);

/* Predicts a kept row again, at other speeds. False: out of memory. */
bool score_again(struct score_row *row, const double scale[SPEED_SCALES],
                 struct arena *scratch);

/* ---- score_stats.c ---- */

/* Of |error|, except bias, which is the mean of the signed errors. The median
 * of an even count is the mean of the two in the middle; the 90th percentile
 * is the nearest rank, the smallest that 90 % of the rows do not exceed. Of
 * fit and oom rows only how many are right. */
struct score_stats {
    size_t count, right;
    bool has_error;
    double median, p90, worst, bias;
};

struct score_group {
    const char *label; /* "zero 3" */
    const char *needs;
    const char *name; /* label, and the needs in parentheses */
    size_t *note;     /* number of the needs' text, which may be long; or 0 */
    enum score_kind kind;
    enum score_metric metric; /* METRIC_COUNT: several */
    struct score_stats stats;
    uint64_t order; /* of the key */
    size_t first;   /* index of the first row */
};

struct score_reason {
    const char *text;
    size_t count;
};

/* In order; what the items are, the function that made the list says. */
struct score_list {
    const void **item;
    size_t n;
};

bool score_list_new(struct score_list *list, struct arena *a, size_t capacity);
/* By a stable merge sort. False when out of memory. */
bool score_sort(struct score_list *list,
                int (*compare)(const void *x, const void *y), struct arena *a);
/* Of n >= 1 rows of one kind, in order of |error|. */
struct score_stats score_stats_of(const struct score_row *const *row, size_t n);

/* struct score_group, by key, metric and needs: those that need nothing first,
 * each half in the order of the keys, then of the rows. All of these
 * return false when out of memory. */
bool score_group(struct score_list *out, struct arena *a,
                 const memplan_score *score, enum score_by by);

/* struct score_group, of memory rows that need nothing, whatever their metric:
 * by each key in turn in which the rows differ. */
bool score_features(struct score_list *out, struct arena *a,
                    const memplan_score *score);

/* struct score_group, one for each text of needs; numbers them from 1. */
bool score_notes(struct score_list *out, struct arena *a,
                 const struct score_list *groups);

/* struct score_row of a kind that have an error and need nothing, the worst
 * first. */
bool score_worst(struct score_list *out, struct arena *a,
                 const memplan_score *score, enum score_kind kind);

/* struct score_reason: why rows were skipped, the most frequent first. */
bool score_reasons(struct score_list *out, struct arena *a,
                   const memplan_score *score);

/* ---- score_peers.c ---- */

/* An estimator on the rows of a group that it and memplan both predict. */
struct score_peer_group {
    const char *group, *name;
    enum score_metric metric;
    struct score_stats theirs, ours;
};

/* struct score_peer_group, by group, metric and estimator. Rows that need what
 * no key says are left out, and figures of rows that are not in the score. */
bool score_peers(struct score_list *out, struct arena *a,
                 const memplan_score *score);

/* Gives each remark to the rows of its id, those of doubtful rows as what they
 * need. False when out of memory. */
bool score_remark(memplan_score *score);

#endif
