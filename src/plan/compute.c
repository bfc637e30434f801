/*
 * From FLOPs to hours, days and dollars, and back from a deadline to GPUs.
 * Owns the chain of equations; the utilisation is the user's or, until there
 * is a model of time, a documented default. [docs/method.md eq. compute]
 */
#include "plan/plan.h"
#include "plan/scaling.h"

#include "fold/time.h"

#include <math.h>

#include "base/banned.h"

enum { SECONDS_PER_HOUR = 3600, HOURS_PER_DAY = 24 };

/* What a node draws over the TDP of its GPUs: 76 % of 10.2 kW for 8 x 700 W,
 * measured in training (Newkirk et al. 2025, arXiv:2506.14551); and a data
 * centre over that (Wu et al. 2022, arXiv:2111.00364, the 1.1 of the Llama
 * papers). */
#define ENERGY_NODE 1.38
#define ENERGY_CENTRE 1.1
/* Where the TDP is a module's, of GPU and CPU: JEDI, 24 nodes of 4 GH200 of 680 W
 * each (recalled), draws 62 kW in Linpack (4.5 PFLOP/s, 72.7 GFLOP/s a watt), 0.95
 * of it. */
#define ENERGY_NODE_OF_MODULES 1.0

static bool has_law(const struct memplan_report *r)
{
    return !r->has_model || spec_is_language(&r->spec);
}

static struct law_question question(const struct run *run)
{
    return (struct law_question){ .tokens_per_param = run->tokens_per_param,
                                  .unique_tokens = run->unique_tokens,
                                  .inference_tokens = run->inference_tokens };
}

/* N and D of a loss to be reached: what is given of them, and the rest. */
static void sizes_of_loss(struct compute_result *c, const struct run *run,
                          double loss)
{
    const struct law_question q = question(run);
    if (c->params > 0 && run->given[KEY_TOKENS])
        return;
    if (c->params > 0) {
        c->tokens =
            ceil(scaling_tokens_for_loss(run->law, c->params, loss, &q));
    } else if (run->given[KEY_TOKENS]) {
        c->params =
            ceil(scaling_params_for_loss(run->law, c->tokens, loss, &q));
    } else {
        const struct law_result best = scaling_served(run->law, loss, &q);
        c->params = ceil(best.params);
        c->tokens = ceil(best.tokens);
    }
}

/* What is given of N and D, 0 what is not. */
static struct compute_result given_sizes(const struct memplan_report *r)
{
    return (struct compute_result){ .params = r->has_model
                                                  ? (double)r->params.active
                                                  : r->run.params,
                                    .tokens = r->run.tokens };
}

static bool reaches(const struct memplan_report *r, double loss)
{
    struct compute_result c = given_sizes(r);
    sizes_of_loss(&c, &r->run, loss);
    return isfinite(c.params) && isfinite(c.tokens) && c.tokens >= 1;
}

double plan_least_loss(const struct memplan_report *r)
{
    enum { PARTS = 1000, MOST = 100 * PARTS }; /* of a nat; of setup.def */
    int low = 0, high = MOST;
    if (!reaches(r, MOST / PARTS))
        return (double)NAN;
    while (high - low > 1) {
        const int mid = low + (high - low) / 2;
        if (reaches(r, (double)mid / PARTS))
            high = mid;
        else
            low = mid;
    }
    return (double)high / PARTS;
}

/* N and D: of the model, as given, or what a budget leaves of C = 6 N D. */
static void sizes(struct compute_result *c, const struct memplan_report *r)
{
    const struct run *run = &r->run;
    const double budget = run->budget_flop;
    *c = given_sizes(r);
    const struct law_question q = question(run);
    if (run->target_loss > 0) {
        sizes_of_loss(c, run, run->target_loss);
    } else if (c->params == 0 && run->given[KEY_TOKENS]) {
        c->params = budget > 0 ? floor(budget / (6 * c->tokens))
                               : floor(scaling_params(run->law, c->tokens, &q));
    } else if (c->params == 0) {
        const struct law_result best = scaling_optimum(run->law, budget, &q);
        c->params = floor(best.params);
        c->tokens = floor(best.tokens);
    } else if (budget > 0 && !run->given[KEY_TOKENS]) {
        c->tokens = floor(budget / (6 * c->params));
    } else if (c->tokens == 0) {
        c->tokens = run->tokens_per_param * c->params;
    }
    c->flops_6nd = has_law(r) ? 6 * c->params * c->tokens : (double)NAN;
}

static void flops(struct compute_result *c, const struct memplan_report *r)
{
    c->has_exact = r->has_model;
    if (!r->has_model) {
        c->flops_per_token = c->flops_per_token_full = 6 * c->params;
        c->model_flops = c->model_flops_full = c->flops_6nd;
        c->hardware_flops = c->flops_6nd;
        return;
    }
    c->flops_per_token = r->flops.model_causal;
    c->flops_per_token_full = r->flops.model_full;
    c->model_flops = c->tokens * r->flops.model_causal;
    c->model_flops_full = c->tokens * r->flops.model_full;
    c->hardware_flops = c->tokens * r->flops.hardware_causal;
}

/* Given, or what follows from the predicted step; without a model a default of
 * the hardware: recomputed FLOPs are part of that, and not of MFU. */
static void utilisation(struct compute_result *c,
                        const struct memplan_report *r)
{
    const struct run *run = &r->run;
    const double extra = c->hardware_flops / c->model_flops;
    c->mfu_given = run->given[KEY_MFU];
    c->mfu_predicted = !c->mfu_given && r->has_model && r->time.known;
    c->mfu = c->mfu_given ? run->mfu : run->mfu / extra;
    if (c->mfu_predicted)
        c->mfu = (double)run->global_batch * (double)run->seq_len
                 * c->flops_per_token
                 / (r->time.step_s * (double)run->gpus * run->peak_flop_s);
    c->hfu = c->mfu * extra;
    c->mfu_full = c->has_exact
                      ? c->mfu * c->flops_per_token_full / c->flops_per_token
                      : (double)NAN;
    c->peak_flop_s = run->peak_flop_s;
    c->availability = run->availability;
    c->price_usd_h = run->price_usd_h;
    c->price_source = run->given[KEY_PRICE] ? "" : run->gpu.price_source;
}

/* Without a model the deadline decides the GPUs; with one its layout does,
 * which memory and step are of. */
static void cluster(struct compute_result *c, const struct run *run)
{
    c->gpu_hours = c->model_flops / (c->peak_flop_s * c->mfu) / SECONDS_PER_HOUR
                   / c->availability;
    c->has_deadline = run->days > 0;
    c->deadline_days = run->days;
    c->gpus = (double)run->gpus;
    if (c->has_deadline) {
        /* a hair less than whole is whole: rounding of the quotient */
        const double need = c->gpu_hours / (HOURS_PER_DAY * run->days);
        const double whole = ceil(need - 1e-9);
        const double node = (double)run->gpus_per_node;
        const double layout = (double)(run->tp * run->pp * run->cp);
        c->gpus_needed = ceil(fmax(whole, 1) / layout) * layout;
        if (!run->given[KEY_GPUS] && !c->has_exact)
            c->gpus = c->gpus_needed;
        c->gpus_in_nodes = ceil(c->gpus_needed / node) * node;
    }
    c->days = c->gpu_hours / (HOURS_PER_DAY * c->gpus);
    c->cost_usd = c->gpu_hours * c->price_usd_h; /* NAN: not known */
    c->tdp_w = run->gpu.tdp_w;
    c->tdp_with_cpu = run->gpu.tdp_with_cpu;
    c->node_share = c->tdp_with_cpu ? ENERGY_NODE_OF_MODULES : ENERGY_NODE;
    c->energy_kwh = c->tdp_w > 0 ? c->gpu_hours * c->tdp_w / 1000
                                       * c->node_share * ENERGY_CENTRE
                                 : (double)NAN;
}

/* By each number's own step; none where no number is enough. */
static void needed(struct compute_result *c, const struct memplan_report *r)
{
    const struct deadline_result *x = &r->deadline;
    const double node = (double)r->run.gpus_per_node;
    c->gpus_needed = x->met ? x->gpus : (double)NAN;
    c->gpus_in_nodes = ceil(c->gpus_needed / node) * node;
}

/* Idle time of a rank over what it computes. Forward and the two halves of
 * backward are taken as equally long. [docs/method.md eq. zero-bubble] */
static double bubble(const struct run *run)
{
    const double p = (double)run->pp, m = (double)run->grad_accum;
    switch (run->schedule) {
    case SCHED_ZB_H1: return (p - 1) / (3 * m);
    case SCHED_DUALPIPE: return (p - 2) / (3 * m);
    case SCHED_DUALPIPE_V: return (p - 1) / (3 * m);
    case SCHED_ZB_INTERLEAVED: return (p - 1) / (3 * (double)run->vpp * m);
    case SCHED_ZB_V: return 0;
    case SCHED_NAIVE: return p - 1;
    case SCHED_1F1B:
    case SCHED_GPIPE:
    case SCHED_INTERLEAVED:
    case SCHEDULE_COUNT: break;
    }
    return (p - 1) / ((double)run->vpp * m);
}

static void step(struct compute_result *c, const struct memplan_report *r)
{
    const struct run *run = &r->run;
    c->step_time_s = c->tokens_per_s = c->tokens_per_step = c->steps =
        (double)NAN;
    c->communication_bytes = c->bubble_fraction = (double)NAN;
    c->tokens_per_s = c->gpus * c->peak_flop_s * c->mfu / c->flops_per_token;
    if (!r->has_model)
        return;
    c->tokens_per_step = (double)run->global_batch * (double)run->seq_len;
    c->steps = ceil(c->tokens / c->tokens_per_step);
    c->step_time_s = c->tokens_per_step / c->tokens_per_s;
    c->communication_bytes = r->comm.total;
    c->bubble_fraction = r->time.known ? r->time.bubble : bubble(run);
}

/* What the same loss costs at the least: how much over-training costs, and
 * what it saves when the model is served. */
static void losses(struct law_answers *c, const struct run *run,
                   const struct law_question *q)
{
    const enum scaling_law law = scaling_with_loss(run->law);
    c->loss = scaling_loss(law, c->params, c->tokens, q);
    if (!isfinite(c->loss))
        return;
    c->same_loss = scaling_for_loss(law, c->loss, q);
    c->same_loss_flops = 6 * c->same_loss.params * c->same_loss.tokens;
    c->extra_training = c->flops_6nd / c->same_loss_flops - 1;
    if (q->inference_tokens <= 0)
        return;
    c->served = scaling_served(law, c->loss, q);
    c->served_flops = 6 * c->served.params * c->served.tokens
                      + 2 * c->served.params * q->inference_tokens;
    c->served_flops_here = c->flops_6nd + 2 * c->params * q->inference_tokens;
}

void report_laws(struct law_answers *c, const struct memplan_report *r)
{
    const struct law_question q = question(&r->run);
    const struct run *run = &r->run;
    *c = (struct law_answers){ .params = r->compute.params,
                               .tokens = r->compute.tokens,
                               .flops_6nd = r->compute.flops_6nd,
                               .loss = (double)NAN,
                               .extra_training = (double)NAN,
                               .budget_flops = (double)NAN,
                               .tokens_optimal = (double)NAN,
                               .tokens_per_param_optimal = (double)NAN };
    if (!has_law(r) || run_adapts(run)) /* laws train from the start */
        return;
    c->budget_flops = run->budget_flop > 0 ? run->budget_flop : c->flops_6nd;
    for (int l = 0; l < SCALING_LAW_COUNT; l++) {
        if (l == (int)run->law)
            c->chosen_law = c->n_laws;
        c->law[c->n_laws++] =
            scaling_optimum((enum scaling_law)l, c->budget_flops, &q);
    }
    c->tokens_optimal = scaling_tokens(run->law, c->params, &q);
    c->tokens_per_param_optimal = c->tokens_optimal / c->params;
    losses(c, run, &q);
}

void plan_compute(struct memplan_report *r)
{
    struct compute_result *c = &r->compute;
    sizes(c, r);
    flops(c, r);
    utilisation(c, r);
    cluster(c, &r->run);
    if (r->deadline.searched)
        needed(c, r);
    step(c, r);
}

/* ---- explanation ---- */

static void add(struct explanation *x, struct explain_entry e)
{
    if (isfinite(e.value))
        explain_add(x, e);
}

static void explain_flops_of_run(struct explanation *x,
                                 const struct compute_result *c)
{
    struct arena *a = x->arena;
    add(x, (struct explain_entry){
               .section = "training run",
               .name = "6 N D",
               .unit = "FLOP",
               .value = c->flops_6nd,
               .formula = "6 * N * D",
               .numbers = NUMBERS(a, "6 * # * #", c->params, c->tokens),
               .equation = "compute",
               .source = "" });
    add(x, (struct explain_entry){
               .section = "training run",
               .name = "model FLOPs, causal",
               .unit = "FLOP",
               .value = c->model_flops,
               .formula = "FLOPs per token * D",
               .numbers = NUMBERS(a, "# * #", c->flops_per_token, c->tokens),
               .equation = "flops",
               .source = "" });
}

/* One follows from the other: MFU from a step that is predicted, a step from an
 * MFU that is given. */
static void explain_mfu(struct explanation *x, const struct compute_result *c)
{
    struct arena *a = x->arena;
    const bool predicted = c->mfu_predicted;
    add(x, (struct explain_entry){
               .section = "training run",
               .name = predicted ? "MFU" : "step time",
               .unit = predicted ? "" : "s",
               .value = predicted ? c->mfu : c->step_time_s,
               .formula = predicted ? "tokens per step * FLOPs per token / "
                                      "(step time * GPUs * peak)"
                                    : "tokens per step * FLOPs per token / "
                                      "(GPUs * peak * MFU)",
               .numbers = predicted
                              ? NUMBERS(a, "# * # / (# * # * #)",
                                        c->tokens_per_step, c->flops_per_token,
                                        c->step_time_s, c->gpus, c->peak_flop_s)
                              : NUMBERS(a, "# * # / (# * # * #)",
                                        c->tokens_per_step, c->flops_per_token,
                                        c->gpus, c->peak_flop_s, c->mfu),
               .equation = predicted ? "step-time" : "compute",
               .source = "" });
}

/* The same by the other ways of counting. */
static void explain_counted_so(struct explanation *x,
                               const struct compute_result *c)
{
    struct arena *a = x->arena;
    if (!c->has_exact)
        return;
    add(x, (struct explain_entry){
               .section = "training run",
               .name = "MFU, full",
               .unit = "",
               .value = c->mfu_full,
               .formula = "MFU * FLOPs per token, attention scores whole / "
                          "FLOPs per token",
               .numbers = NUMBERS(a, "# * # / #", c->mfu,
                                  c->flops_per_token_full, c->flops_per_token),
               .equation = "compute",
               .source = "" });
    add(x, (struct explain_entry){
               .section = "training run",
               .name = "HFU",
               .unit = "",
               .value = c->hfu,
               .formula = "MFU * hardware FLOPs / model FLOPs",
               .numbers = NUMBERS(a, "# * # / #", c->mfu, c->hardware_flops,
                                  c->model_flops),
               .equation = "compute",
               .source = "" });
}

static void explain_run(struct explanation *x, const struct compute_result *c)
{
    struct arena *a = x->arena;
    explain_mfu(x, c);
    explain_counted_so(x, c);
    add(x, (struct explain_entry){
               .section = "training run",
               .name = "GPU-hours",
               .unit = "h",
               .value = c->gpu_hours,
               .formula = "model FLOPs / (peak * MFU * 3600 * availability)",
               .numbers = NUMBERS(a, "# / (# * # * 3600 * #)", c->model_flops,
                                  c->peak_flop_s, c->mfu, c->availability),
               .equation = "compute",
               .source = c->mfu_given       ? ""
                         : c->mfu_predicted ? "MFU is predicted"
                                            : "MFU is a default" });
    add(x, (struct explain_entry){
               .section = "training run",
               .name = "days",
               .unit = "d",
               .value = c->days,
               .formula = "GPU-hours / (24 * GPUs)",
               .numbers = NUMBERS(a, "# / (24 * #)", c->gpu_hours, c->gpus),
               .equation = "compute",
               .source = "" });
    add(x, (struct explain_entry){
               .section = "training run",
               .name = "cost",
               .unit = "USD",
               .value = c->cost_usd,
               .formula = "GPU-hours * price",
               .numbers = NUMBERS(a, "# * #", c->gpu_hours, c->price_usd_h),
               .equation = "compute",
               .source = c->price_source });
    add(x, (struct explain_entry){
               .section = "training run",
               .name = "energy",
               .unit = "kWh",
               .value = c->energy_kwh,
               .formula = "GPU-hours * TDP * node * data centre",
               .numbers = NUMBERS(a, "# * # W / 1000 * # * #", c->gpu_hours,
                                  c->tdp_w, c->node_share, ENERGY_CENTRE),
               .equation = "compute",
               .source = "arXiv:2506.14551, arXiv:2111.00364" });
}

/* "calibrated by 'mine.json': products 0.9, ..." */
static const char *calibration_words(struct arena *a, const struct run *run)
{
    const struct calibration *c = &run->setup.calibration;
    char text[ASSUMPTION_TEXT];
    if (c->rows == 0)
        return "";
    str_format(text, sizeof text, "calibrated by '%s':", c->name);
    for (int i = 0; i < SPEED_SCALES; i++)
        str_append(text, sizeof text, "%s %s %.3g", i > 0 ? "," : "",
                   speed_scale_name((enum speed_scale)i), run->scale[i]);
    const char *words = arena_printf(a, "%s", text);
    return words == NULL ? "" : words;
}

static void explain_time(struct explanation *x, const struct memplan_report *r)
{
    const struct time_result *t = &r->time;
    add(x, (struct explain_entry){ .section = "time of a step",
                                   .name = "step time",
                                   .unit = "s",
                                   .value = t->step_s,
                                   .formula = "sum over the parts below",
                                   .numbers = "",
                                   .equation = "step-time",
                                   .source =
                                       calibration_words(x->arena, &r->run) });
    for (int i = 0; i < TIME_PARTS; i++) {
        const char *source = time_part_source((enum time_part)i, &r->run);
        if (t->part[i] <= 0)
            continue;
        add(x, (struct explain_entry){
                   .section = "time of a step",
                   .name = time_part_label((enum time_part)i),
                   .unit = "s",
                   .value = t->part[i],
                   .formula = time_part_rule((enum time_part)i),
                   .numbers = i == TIME_BUBBLE
                                  ? NUMBERS(x->arena, "# of # s busy",
                                            t->bubble, t->part[i] / t->bubble)
                                  : "",
                   .equation = i < TIME_TP ? "kernels" : "step-time",
                   .source = source == NULL ? t->source : source,
                   .depth = 1 });
    }
}

static void explain_laws(struct explanation *x, const struct memplan_report *r)
{
    struct law_answers answers;
    const struct law_answers *c = &answers;
    report_laws(&answers, r);
    for (size_t i = 0; i < c->n_laws; i++) {
        const struct law_result *l = &c->law[i];
        const char *name = arena_printf(
            x->arena, "%s: compute-optimal parameters", scaling_name(l->law));
        add(x,
            (struct explain_entry){
                .section = "scaling laws",
                .name = name == NULL ? scaling_name(l->law) : name,
                .unit = "",
                .value = round(l->params),
                .formula = "the law's optimum under C = 6 N D",
                .numbers = NUMBERS(x->arena, "C = #: N = #, D = #, D / N = #",
                                   c->budget_flops, l->params, l->tokens,
                                   l->tokens_per_param),
                .equation = "scaling",
                .source = l->source });
    }
}

static void explain_comm(struct explanation *x, const struct comm_result *r)
{
    for (size_t i = 0; i < r->n; i++) {
        const struct comm_row *row = &r->row[i];
        add(x, (struct explain_entry){
                   .section = "communication per GPU and step",
                   .name = row->label,
                   .unit = "B",
                   .value = row->bytes,
                   .bytes = (uint64_t)row->bytes,
                   .formula = row->formula,
                   .numbers =
                       NUMBERS(x->arena, row->pattern, row->factor[0],
                               row->factor[1], row->factor[2], row->factor[3]),
                   .equation = row->equation,
                   .source = "",
                   .depth = 1 });
    }
}

bool explain_compute(struct explanation *x, const struct memplan_report *r)
{
    explain_flops_of_run(x, &r->compute);
    explain_run(x, &r->compute);
    if (r->compute.mfu_predicted) {
        explain_time(x, r);
        if (!fold_time_explain(x, &r->program, &r->run))
            return false;
    }
    explain_laws(x, r);
    if (r->has_model)
        explain_comm(x, &r->comm);
    return !x->failed && !x->arena->failed;
}
