/*
 * The content of a memplan_report: what was asked and what was found. Made by
 * src/plan, written out by src/report.
 */
#ifndef MEMPLAN_PLAN_REPORT_DATA_H
#define MEMPLAN_PLAN_REPORT_DATA_H

#include "fold/result.h"

enum report_kind { REPORT_NONE, REPORT_ESTIMATE, REPORT_COMPUTE };

/* Optimal sizes for a compute budget by one scaling law.
 * [method.md eq. scaling] */
struct law_result {
    enum scaling_law law;
    double params, tokens, tokens_per_param;
    double loss; /* NAN: the law gives none */
    bool has_range;
    double params_low, params_high, tokens_low, tokens_high;
    const char *range_note; /* "10th to 90th percentile", ... or "" */
    const char *source;
};
enum { LAW_MAX = 8 };

struct compute_result {
    double params;  /* N of 6 N D */
    double tokens;  /* D */
    bool has_exact; /* FLOPs were counted from a model */
    double flops_6nd;
    double flops_per_token; /* causal, forward + backward */
    double flops_per_token_full;
    double model_flops; /* whole training, causal convention */
    double model_flops_full;
    double hardware_flops; /* with recomputation */
    double mfu, hfu;
    double mfu_full; /* attention scores whole; NAN: without a model */
    bool mfu_given, mfu_predicted;
    double peak_flop_s;
    double gpu_hours, days, cost_usd, energy_kwh; /* NAN: not known */
    double gpus;          /* used; without a model what the deadline needs */
    double gpus_needed;   /* for the deadline; NAN: no number is enough */
    double gpus_in_nodes; /* needed, rounded up to whole nodes */
    bool has_deadline;
    double deadline_days;
    double step_time_s, tokens_per_s, tokens_per_step, steps;
    double communication_bytes; /* per GPU and step; NAN unknown */
    double bubble_fraction;
    double availability, price_usd_h, tdp_w;
    bool tdp_with_cpu;
    double node_share; /* what a node draws, of its GPUs' TDP */
    const char *price_source;
};

/* What scaling laws say of it. */
struct law_answers {
    double params, tokens; /* asked about */
    double flops_6nd;
    double tokens_optimal; /* that the chosen law matches to `params` */
    double tokens_per_param_optimal;
    double budget_flops; /* what the laws were asked about */
    struct law_result law[LAW_MAX];
    size_t n_laws;
    size_t chosen_law; /* index into law */
    /* of params and tokens, by a law that gives a loss; NAN: none */
    double loss;
    struct law_result same_loss;            /* with the least training */
    double same_loss_flops, extra_training; /* share of that */
    struct law_result served; /* with the least training and serving */
    double served_flops, served_flops_here;
};

/* GPUs for so many days, of layouts that are possible, each with its own
 * utilisation. [method.md eq. deadline] */
struct deadline_result {
    bool searched, met;
    double gpus, days, mfu; /* the fewest that are enough; or the fastest */
    uint64_t looked;        /* numbers of GPUs */
    bool too_large;         /* none that is in time fits, this one neither */
};

/* What was asked, of which changes are looked for. */
struct change_question {
    struct params_result params;
    struct setup setup;
};

/* A change that would make it fit, evaluated. */
enum { CHANGE_TEXT_MAX = 160 };
struct change {
    char text[CHANGE_TEXT_MAX]; /* "--zero 3" ; as options to add */
    uint64_t device_total, peak;
    bool fits;
    uint64_t host_node; /* host memory that a node must have; 0: none */
    bool lower_stage;   /* of ZeRO, than the report's */
};
enum { CHANGE_MAX = 10 };
struct changes {
    struct change row[CHANGE_MAX];
    size_t n;
};

struct memplan_report {
    struct arena arena;        /* everything below points in here */
    struct arena length_arena; /* while samples of one length are simulated */
    enum report_kind kind;
    bool has_model;
    struct spec spec; /* strings copied into the arena */
    struct run run;
    struct program program;
    struct params_result params;
    struct flops_result flops;
    struct memory_result memory;
    struct comm_result comm;
    struct time_result time;
    struct compute_result compute;
    struct deadline_result deadline;
    const struct change_question *question; /* NULL: it fits */
};

/* What would make it fit; nothing of a report that fits. Each change is an
 * estimate, some twenty in all: they are made when they are read, and the report
 * stays as it is. False when out of memory; nothing then. */
bool report_changes(struct changes *out, const struct memplan_report *report);

/* Likewise made when it is read. */
void report_laws(struct law_answers *out, const struct memplan_report *report);

/* Both. */
struct answers {
    struct changes changes;
    struct law_answers laws;
};

/* Fills x with every number of the report, unfolded: the folds run again with
 * a recorder. False when out of memory. */
bool report_explain(const struct memplan_report *report, struct explanation *x);

struct memplan_model {
    struct arena arena;
    struct spec spec;
    struct params_result params;
    struct program program; /* bare: one GPU, one token; for `models NAME` */
};

struct memplan_setup {
    memplan_allocator alloc;
    struct setup setup;
};

#endif
