/*
 * The public estimate: resolve the setup, lower the model, run the folds, keep
 * what they found. Owns their order; every number is a fold's.
 */
#include "plan/plan.h"

#include "plan/deadline.h"
#include "plan/scaling.h"

#include "fold/fold.h"
#include "fold/graphs.h"
#include "fold/memory.h"
#include "fold/states.h"
#include "fold/time.h"

#include "base/unit.h"
#include "data/constants.h"

#include <math.h>
#include <string.h>

#include "base/banned.h"

void report_arenas(struct memplan_report *r, const memplan_allocator *allocator)
{
    arena_init(&r->arena, allocator);
    arena_init(&r->length_arena, allocator);
}

void report_release(struct memplan_report *r)
{
    arena_release(&r->arena);
    arena_release(&r->length_arena);
}

static bool copy_text(struct arena *a, const char **text)
{
    *text = arena_copy(a, *text, str_of(*text).n);
    return *text != NULL;
}

static bool copy_pattern(struct arena *a, struct pattern *p, uint64_t layers)
{
    if (p->listed == NULL)
        return true;
    uint8_t *listed = ARENA_NEW(a, uint8_t, layers);
    if (listed != NULL)
        memcpy(listed, p->listed, layers);
    p->listed = listed;
    return listed != NULL;
}

static bool copy_conv(struct arena *a, struct spec *to)
{
    const struct conv_layer *from = to->conv;
    if (to->n_conv == 0)
        return true;
    to->conv = ARENA_NEW(a, struct conv_layer, to->n_conv);
    for (uint64_t i = 0; i < to->n_conv && to->conv != NULL; i++) {
        to->conv[i] = from[i];
        if (!copy_text(a, &to->conv[i].name))
            return false;
    }
    return to->conv != NULL;
}

static bool copy_owned(struct arena *a, struct spec *to)
{
    to->note = NULL; /* of the model's reading */
    to->notes = 0;
    return copy_pattern(a, &to->slides, to->layers)
           && copy_pattern(a, &to->rotates, to->layers)
           && copy_pattern(a, &to->attends, to->layers)
           && copy_pattern(a, &to->mixes, to->layers)
           && copy_pattern(a, &to->sparse, to->layers)
           && copy_pattern(a, &to->deep, to->layers) && copy_conv(a, to)
           && copy_text(a, &to->name) && copy_text(a, &to->source)
           && copy_text(a, &to->model_type)
           && (to->defaulted == NULL || copy_text(a, &to->defaulted));
}

/* The report may outlive the model, and asks of it again when it is written:
 * report_changes. */
static bool copy_spec(struct memplan_report *r, const struct spec *spec)
{
    r->spec = *spec;
    if (!copy_owned(&r->arena, &r->spec))
        return false;
    if (spec->vision == NULL)
        return true;
    struct spec *vision = ARENA_NEW(&r->arena, struct spec, 1);
    if (vision == NULL)
        return false;
    *vision = *spec->vision;
    r->spec.vision = vision;
    return copy_owned(&r->arena, vision);
}

/* Images of another size than the file says, or the class. */
static memplan_status see(struct memplan_report *r, const uint16_t image[3],
                          struct diag *d)
{
    if (r->spec.vision == NULL)
        return spec_set_image(&r->spec, image, d);
    struct spec *vision = ARENA_NEW(&r->arena, struct spec, 1);
    if (vision == NULL)
        return diag_nomem(d);
    *vision = *r->spec.vision;
    return spec_set_whole_image(&r->spec, vision, image, d);
}

memplan_status plan_memory(struct memplan_report *r, const struct spec *spec,
                           const struct params_result *params,
                           const struct setup *setup, struct diag *d)
{
    arena_rewind(&r->arena);
    r->kind = REPORT_NONE;
    r->question = NULL;
    r->deadline = (struct deadline_result){ 0 };
    r->has_model = true;
    r->params = *params;
    if (!copy_spec(r, spec))
        return diag_nomem(d);
    if (setup->set[KEY_IMAGE] && see(r, setup->image, d) != MEMPLAN_OK)
        return d->status;
    if (setup_resolve(&r->run, setup, &r->spec, params->active, d)
        != MEMPLAN_OK)
        return d->status;
    if (lower_model(&r->program, &r->spec, &r->run, &r->arena, d) != MEMPLAN_OK)
        return d->status;
    /* adapters, and what they leave frozen, are the setup's */
    if (!fold_params(&r->params, &r->program, &r->spec))
        return diag_add(d, MEMPLAN_E_OVERFLOW, "too many parameters")->status;
    bool over;
    const bool folded =
        r->run.cuda_graph
            ? fold_graphs(&r->memory, &r->program, &r->run, &r->arena, &over)
            : fold_memory(&r->memory, &r->program, &r->run, &r->arena, &over);
    if (!folded) {
        if (!over)
            return diag_nomem(d);
        memplan_error *e = diag_add(d, MEMPLAN_E_OVERFLOW,
                                    "the bytes do not fit into 64 bits");
        diag_hint(e, "check the model's sizes, 'micro_batch', 'seq_len'");
        return d->status;
    }
    plan_say_parts(r);
    r->kind = REPORT_ESTIMATE;
    return MEMPLAN_OK;
}

/* The program of samples that are so long, all else alike. */
struct other_length {
    const struct spec *spec;
    struct run run;
};

static bool lower_length(void *ctx, uint64_t length, struct program *p,
                         struct arena *a)
{
    struct other_length *x = ctx;
    struct diag d;
    diag_init(&d, NULL);
    x->run.seq_len = length;
    return lower_model(p, x->spec, &x->run, a, &d) == MEMPLAN_OK;
}

static bool set_lengths(struct length_code *code, struct memplan_report *r)
{
    if (r->run.lengths.kind == LENGTHS_EQUAL)
        return true;
    struct other_length *x = ARENA_NEW(&r->arena, struct other_length, 1);
    if (x == NULL)
        return false;
    *x = (struct other_length){ &r->spec, r->run };
    *code = (struct length_code){ .lower = lower_length,
                                  .ctx = x,
                                  .a = &r->length_arena };
    return true;
}

memplan_status plan_allocator(struct memplan_report *r, bool all,
                              struct diag *d)
{
    enum { INSTANT = 100000 }; /* some 20 ms */
    if (r->run.fast)
        return MEMPLAN_OK;
    struct allocator_input in = { .program = &r->program,
                                  .run = &r->run,
                                  .a = &r->arena,
                                  .births = all ? UINT64_MAX : INSTANT };
    if (set_lengths(&in.lengths, r) && fold_allocator(&r->memory, &in))
        return MEMPLAN_OK;
    r->kind = REPORT_NONE;
    return diag_nomem(d);
}

/* The program without model parallelism, of a run that is as it was after. */
static memplan_status lower_whole(struct program *program,
                                  struct memplan_report *r, struct diag *d)
{
    struct run *run = &r->run;
    const uint64_t tp = run->tp, cp = run->cp, ep = run->ep, etp = run->etp;
    const bool sequence_parallel = run->sequence_parallel;
    run->tp = run->cp = run->ep = run->etp = 1;
    run->sequence_parallel = false;
    const memplan_status status =
        lower_model(program, &r->spec, run, &r->arena, d);
    run->tp = tp, run->cp = cp, run->ep = ep, run->etp = etp;
    run->sequence_parallel = sequence_parallel;
    return status;
}

/* FLOPs of the whole model: lowered again where the rank's program has only a
 * share. */
static memplan_status sum_flops(struct memplan_report *r, struct diag *d)
{
    struct program whole;
    if (flops_are_whole(&r->run)) {
        fold_flops(&r->flops, &r->program, &r->run, &r->params);
        return MEMPLAN_OK;
    }
    if (lower_whole(&whole, r, d) != MEMPLAN_OK)
        return d->status;
    fold_flops(&r->flops, &whole, &r->run, &r->params);
    return MEMPLAN_OK;
}

static memplan_status count_flops(struct memplan_report *r, struct diag *d)
{
    const memplan_status status = sum_flops(r, d);
    if (!spec_is_language(&r->spec))
        r->flops.six_n = (double)NAN;
    return status;
}

static void add_weights(struct comm_input *in, const struct block_states *b,
                        uint64_t times)
{
    in->dense.trained += times * (b->cut_elems - b->expert_cut_elems);
    in->dense.weight_bytes += times * (b->sent_bytes - b->expert_sent_bytes);
    in->expert.trained += times * b->expert_cut_elems;
    in->expert.weight_bytes += times * b->expert_sent_bytes;
}

static uint64_t layer_of(const struct run *run, const struct stage_result *s,
                         uint64_t l)
{
    if (run_loops(run)) {
        const uint64_t c = run_layer_chunk(run, s->index, l);
        return run_chunk_first(run, s->index, c) + l
               - run_layers_before(run, s->index, c);
    }
    return l < s->low_layers ? s->first_layer + l
                             : s->high_layer + l - s->low_layers;
}

/* Of the stage that decides memory. Experts are replicated over what expert
 * parallelism, and tensor parallelism inside them, leave of all the ranks of a
 * stage. */
static void count_communication(struct memplan_report *r)
{
    const struct stage_result *s = &r->memory.stage[r->memory.worst];
    const struct run *run = &r->run;
    const uint64_t ranks = run->dp * run->cp * run_copies(run);
    struct comm_input in = { .program = &r->program,
                             .run = run,
                             .layers = s->layers,
                             .at_one_end = s->has_embedding || s->has_head };
    in.dense.ranks = ranks;
    in.dense.shard = run->shard;
    in.expert.ranks = max_u64(ranks * run->tp / (run->ep * run->etp), 1);
    in.expert.shard = run->expert_shard;
    if (run->recompute == RECOMP_FULL)
        in.recomputed = min_u64(run->recompute_layers, s->layers);
    struct block_states own[BLOCK_MAX];
    const struct block_states *b[BLOCK_MAX];
    for (uint32_t i = 0; i < r->program.n_blocks; i++) {
        b[i] = &r->memory.states[i];
        if (!b[i]->ties)
            continue;
        states_of_block(&own[i], &r->program, &r->program.block[i], run,
                        !s->has_embedding);
        b[i] = &own[i];
    }
    uint64_t times[BLOCK_MAX] = { 0 };
    for (uint64_t l = 0; l < s->layers; l++)
        times[r->program.layer_block[layer_of(run, s, l)]]++;
    times[r->program.embed] += s->has_embedding;
    times[r->program.head] += s->has_head;
    for (uint32_t i = 0; i < r->program.n_blocks; i++)
        add_weights(&in, b[i], times[i]);
    fold_comm(&r->comm, &in);
}

/* Tokens that are no model's optimum. */
static memplan_status check_matched(struct memplan_report *r, struct diag *d)
{
    const struct run *run = &r->run;
    if (!run->given[KEY_TOKENS]
        || (isfinite(r->compute.params) && r->compute.params >= 1))
        return MEMPLAN_OK;
    memplan_error *e =
        diag_add(d, MEMPLAN_E_CONFLICT,
                 run->budget_flop > 0
                     ? "%g tokens are more than the budget gives one parameter"
                     : "%g tokens are no model's optimum by this law",
                 run->tokens);
    str_format(e->key, sizeof(e->key), "tokens");
    diag_hint(e, "say how large the model is: --params, or ask another law: "
                 "--scaling-law");
    r->kind = REPORT_NONE;
    return d->status;
}

/* Whose loss it is that nothing reaches: "of 7B parameters". */
static void write_limited(char *buf, size_t n, const struct memplan_report *r)
{
    char count[UNIT_TEXT_MAX];
    const double params =
        r->has_model ? (double)r->params.active : r->run.params;
    buf[0] = '\0';
    if (params > 0)
        str_format(buf, n, " of %s parameter%s",
                   unit_format_count(count, params), unit_s(params));
    else if (r->run.given[KEY_TOKENS])
        str_format(buf, n, " on %s token%s",
                   unit_format_count(count, r->run.tokens),
                   unit_s(r->run.tokens));
}

/* A loss below what the law has for any data, or any model. */
static memplan_status check_reached(struct memplan_report *r, struct diag *d)
{
    const struct compute_result *c = &r->compute;
    if (r->run.target_loss == 0 && !r->has_model)
        return check_matched(r, d);
    if (r->run.target_loss == 0
        || (isfinite(c->params) && isfinite(c->tokens) && c->tokens >= 1))
        return MEMPLAN_OK;
    char limited[80];
    const double least = plan_least_loss(r);
    write_limited(limited, sizeof limited, r);
    memplan_error *e =
        diag_add(d, MEMPLAN_E_CONFLICT, "no training%s reaches a loss of %g",
                 limited, r->run.target_loss);
    str_format(e->key, sizeof(e->key), "target_loss");
    if (isfinite(least))
        diag_hint(e, "by %s %.3f is the least there%s",
                  scaling_name(scaling_with_loss(r->run.law)), least,
                  r->run.unique_tokens > 0 ? ", of so many unique tokens" : "");
    else
        diag_hint(e, "no loss of 100 is reached there: say more of 'params' or "
                     "'tokens'");
    r->kind = REPORT_NONE;
    return d->status;
}

/* Not every law gives a loss. */
static void say_law(struct memplan_report *r)
{
    const enum scaling_law with = scaling_with_loss(r->run.law);
    char text[ASSUMPTION_TEXT];
    if (r->run.target_loss == 0 || with == r->run.law)
        return;
    str_format(text, sizeof text,
               "%s gives no loss: sizes for the target are %s's "
               "(--scaling-law)",
               scaling_name(r->run.law), scaling_name(with));
    run_assume(&r->run, KEY_SCALING_LAW, text);
}

/* Where the utilisation is given, only a pipeline's bubble is asked for. */
static memplan_status predict_time(struct memplan_report *r, struct diag *d)
{
    r->time = (struct time_result){ .known = false };
    if ((r->run.given[KEY_MFU] && r->run.pp == 1)
        || fold_time(&r->time, &r->program, &r->run, &r->memory, &r->arena))
        return MEMPLAN_OK;
    return diag_nomem(d);
}

/* The report may outlive the setup, too. */
static memplan_status keep_question(struct memplan_report *r,
                                    const struct params_result *params,
                                    const struct setup *setup, struct diag *d)
{
    if (r->memory.fits)
        return MEMPLAN_OK;
    struct change_question *q = ARENA_NEW(&r->arena, struct change_question, 1);
    if (q == NULL) {
        r->kind = REPORT_NONE;
        return diag_nomem(d);
    }
    *q = (struct change_question){ *params, *setup };
    r->question = q;
    return MEMPLAN_OK;
}

memplan_status plan_estimate(struct memplan_report *r, const struct spec *spec,
                             const struct params_result *params,
                             const struct setup *setup, struct diag *d)
{
    if (plan_memory(r, spec, params, setup, d) != MEMPLAN_OK
        || plan_allocator(r, false, d) != MEMPLAN_OK)
        return d->status;
    plan_say_memory(r);
    if (count_flops(r, d) != MEMPLAN_OK) {
        r->kind = REPORT_NONE;
        return d->status;
    }
    count_communication(r);
    if (predict_time(r, d) != MEMPLAN_OK)
        return d->status;
    plan_compute(r);
    plan_say_time(r);
    say_law(r);
    if (check_reached(r, d) != MEMPLAN_OK)
        return d->status;
    return keep_question(r, params, setup, d);
}

struct memplan_report *plan_report_new(const memplan_allocator *allocator)
{
    const memplan_allocator a =
        allocator == NULL ? allocator_default() : *allocator;
    struct memplan_report *r = a.resize(a.ctx, NULL, 0, sizeof *r);
    if (r == NULL)
        return NULL;
    *r = (struct memplan_report){ .kind = REPORT_NONE };
    report_arenas(r, &a);
    return r;
}

void memplan_report_free(memplan_report *report)
{
    if (report == NULL)
        return;
    const memplan_allocator a = report->arena.alloc;
    report_release(report);
    a.resize(a.ctx, report, sizeof *report, 0);
}

static bool searches_deadline(const struct memplan_report *r)
{
    return r->compute.mfu_predicted
           || (r->compute.mfu_given && r->run.given[KEY_GLOBAL_BATCH]);
}

/* An estimate is of its own GPUs; how many a deadline takes is told beside. */
static memplan_status estimate_model(struct memplan_report *r,
                                     const memplan_model *model,
                                     const struct setup *setup, struct diag *d)
{
    const struct deadline_question q = { .spec = &model->spec,
                                         .params = &model->params,
                                         .setup = setup };
    if (plan_estimate(r, q.spec, q.params, setup, d) != MEMPLAN_OK)
        return d->status;
    if (r->run.days <= 0 || !searches_deadline(r))
        return MEMPLAN_OK;
    if (plan_deadline(r, &q, d) == MEMPLAN_OK)
        plan_compute(r);
    return d->status;
}

memplan_status memplan_estimate(memplan_report **out,
                                const memplan_model *model,
                                const memplan_setup *setup,
                                const memplan_allocator *allocator,
                                memplan_errors *errs)
{
    struct diag d;
    diag_init(&d, errs);
    if (out != NULL)
        *out = NULL;
    if (out == NULL || model == NULL || setup == NULL) {
        diag_add(&d, MEMPLAN_E_ARG, "no place for the report, model or setup");
        return d.status;
    }
    struct memplan_report *r = plan_report_new(allocator);
    if (r == NULL)
        return diag_nomem(&d);
    if (estimate_model(r, model, &setup->setup, &d) != MEMPLAN_OK) {
        memplan_report_free(r);
        return d.status;
    }
    *out = r;
    return MEMPLAN_OK;
}

memplan_status memplan_estimate_again(memplan_report *report,
                                      const memplan_model *model,
                                      const memplan_setup *setup,
                                      memplan_errors *errs)
{
    struct diag d;
    diag_init(&d, errs);
    if (report == NULL || model == NULL || setup == NULL) {
        diag_add(&d, MEMPLAN_E_ARG, "no report, model or setup");
        return d.status;
    }
    return estimate_model(report, model, &setup->setup, &d);
}

/* ---- compute ---- */

memplan_status plan_compute_spec(struct memplan_report *r,
                                 const struct spec *spec,
                                 const struct params_result *params,
                                 const struct setup *setup, struct diag *d)
{
    if (plan_memory(r, spec, params, setup, d) != MEMPLAN_OK
        || count_flops(r, d) != MEMPLAN_OK)
        return d->status;
    count_communication(r);
    if (predict_time(r, d) != MEMPLAN_OK)
        return d->status;
    plan_compute(r);
    plan_say_time(r);
    return MEMPLAN_OK;
}

memplan_status plan_compute_model(struct memplan_report *r,
                                  const memplan_model *model,
                                  const struct setup *setup, struct diag *d)
{
    return plan_compute_spec(r, &model->spec, &model->params, setup, d);
}

/* A deadline decides the GPUs, and they decide batch, steps and messages: the
 * layout is resolved again with as many as are needed. */
static memplan_status compute_deadline(struct memplan_report *r,
                                       const memplan_model *model,
                                       const struct setup *setup,
                                       struct diag *d)
{
    const double gpus = r->compute.gpus_needed;
    char text[32];
    struct setup more = *setup;
    str_format(text, sizeof text, "%llu", (unsigned long long)gpus);
    if (setup_set(&more, STR("gpus"), str_of(text), d) != MEMPLAN_OK)
        return d->status;
    return plan_compute_model(r, model, &more, d);
}

/* By the step that each number of GPUs has, or the utilisation that is given:
 * with that it is division, but for a batch that they have to share evenly. */
static memplan_status answer_deadline(struct memplan_report *r,
                                      const memplan_model *model,
                                      const struct setup *setup, struct diag *d)
{
    const struct deadline_question q = { .spec = &model->spec,
                                         .params = &model->params,
                                         .setup = setup,
                                         .decides = true };
    if (searches_deadline(r))
        return plan_deadline(r, &q, d);
    const bool open = !setup->set[KEY_GPUS] && !setup->set[KEY_DP];
    return open ? compute_deadline(r, model, setup, d) : MEMPLAN_OK;
}

/* Of the card: the closed form tells what is reserved within 24 % of the
 * simulation in nine of ten, as an estimate with `fast` says. */
enum { SURE_PERCENT = 75 };

memplan_status plan_settle_fits(struct memplan_report *r, struct diag *d)
{
    const struct memory_result *m = &r->memory;
    const bool may_fit = m->peak + m->outside <= m->capacity;
    const bool sure = m->device_total <= m->capacity / 100 * SURE_PERCENT;
    return may_fit && !sure ? plan_allocator(r, false, d) : MEMPLAN_OK;
}

/* Hours of a step that cannot run mislead where nothing is said of memory. */
static memplan_status say_fits(struct memplan_report *r, struct diag *d)
{
    if (plan_settle_fits(r, d) != MEMPLAN_OK)
        return d->status;
    if (!r->memory.fits)
        run_assume(&r->run, KEY_GPUS,
                   "time alone: the setup does not fit on these GPUs (memplan "
                   "estimate says what would make it)");
    return MEMPLAN_OK;
}

memplan_status plan_compute_answer(struct memplan_report *r,
                                   const memplan_model *model,
                                   const struct setup *setup, struct diag *d)
{
    if (model != NULL) {
        if (plan_compute_model(r, model, setup, d) != MEMPLAN_OK)
            return d->status;
        if (r->run.days > 0
            && answer_deadline(r, model, setup, d) != MEMPLAN_OK)
            return d->status;
        if (say_fits(r, d) != MEMPLAN_OK)
            return d->status;
    } else if (setup_resolve(&r->run, setup, NULL, 0, d) != MEMPLAN_OK) {
        return d->status;
    }
    if (model == NULL && r->run.params == 0 && r->run.budget_flop == 0
        && r->run.target_loss == 0 && !r->run.given[KEY_TOKENS]) {
        memplan_error *e =
            diag_add(d, MEMPLAN_E_ARG, "nothing says how large the model is");
        diag_hint(e, "name a model, or set 'params' (13B), 'tokens' (1.4T), "
                     "'budget' (1e24) or 'target_loss' (2.0)");
        return d->status;
    }
    r->kind = REPORT_COMPUTE;
    plan_compute(r);
    say_law(r);
    return check_reached(r, d);
}

memplan_status memplan_compute(memplan_report **out, const memplan_model *model,
                               const memplan_setup *setup,
                               const memplan_allocator *allocator,
                               memplan_errors *errs)
{
    struct diag d;
    diag_init(&d, errs);
    if (out != NULL)
        *out = NULL;
    if (out == NULL || setup == NULL) {
        diag_add(&d, MEMPLAN_E_ARG, "no place for the report, or no setup");
        return d.status;
    }
    struct memplan_report *r = plan_report_new(allocator);
    if (r == NULL)
        return diag_nomem(&d);
    if (plan_compute_answer(r, model, &setup->setup, &d) != MEMPLAN_OK) {
        memplan_report_free(r);
        return d.status;
    }
    *out = r;
    return MEMPLAN_OK;
}

/* ---- explanation ---- */

bool report_explain(const struct memplan_report *report, struct explanation *x)
{
    const struct memplan_report *r = report;
    if (r->kind == REPORT_ESTIMATE
        && !explain_groups(x, &r->run, r->spec.experts > 0, r->spec.tied))
        return false;
    if (r->kind == REPORT_ESTIMATE
        && !explain_memory(x, &r->memory, &r->program, &r->run))
        return false;
    if (r->has_model && !explain_flops(x, &r->flops, &r->program, &r->params))
        return false;
    return explain_compute(x, r);
}
