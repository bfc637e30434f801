/*
 * Owns a score: measured runs and what is predicted of each. Only what a row
 * asks for is computed, into one report for all of them. Refuses to know how
 * rows are written in a file, and how they are counted.
 */
#include "plan/score.h"

#include "fold/memory.h"
#include "fold/time.h"
#include "plan/plan.h"

#include "base/unit.h"

#include <math.h>
#include <string.h>

#include "base/banned.h"

const char *score_kind_name(enum score_kind kind)
{
    static const char *const names[] = { [SCORE_MEMORY] = "memory",
                                         [SCORE_THROUGHPUT] = "throughput",
                                         [SCORE_FIT] = "fit",
                                         [SCORE_OOM] = "oom" };
    return kind < SCORE_KINDS ? names[kind] : "";
}

#define SCORE_METRIC_ROW(id, text, kind) { text, kind },
static const struct {
    const char *name;
    enum score_kind kind;
} metrics[] = { SCORE_METRIC_MAP(SCORE_METRIC_ROW) };
#undef SCORE_METRIC_ROW

const char *score_metric_name(enum score_metric metric)
{
    return metric < METRIC_COUNT ? metrics[metric].name : "";
}

enum score_kind score_metric_kind(enum score_metric metric)
{
    return metric < METRIC_COUNT ? metrics[metric].kind : SCORE_KINDS;
}

bool score_has_error(const struct score_row *row)
{
    return !row->reason
           && (row->kind == SCORE_MEMORY || row->kind == SCORE_THROUGHPUT);
}

bool score_is_right(const struct score_row *row)
{
    return (row->measured > 0) == (row->predicted > 0);
}

/* ---- prediction ---- */

static uint64_t stage_bytes(const struct memory_result *m, uint64_t index,
                            enum score_metric metric)
{
    const struct stage_result *s = &m->stage[index];
    if (metric == METRIC_PEAK_ALLOCATED)
        return s->peak.total;
    if (metric == METRIC_STEADY_ALLOCATED)
        return s->rest.total;
    if (metric == METRIC_DEVICE_TOTAL)
        return s->reserved + m->outside + s->paged_here;
    return s->reserved;
}

/* The maximum over ranks is that of the figure asked for: between steps
 * another stage may hold the most than at the peak. */
static uint64_t rank_bytes(const struct memory_result *m,
                           const struct score_row *row)
{
    if (row->rank == RANK_FIRST)
        return stage_bytes(m, 0, row->metric);
    if (row->rank == RANK_LAST)
        return stage_bytes(m, m->n_stages - 1, row->metric);
    uint64_t most = 0;
    for (uint64_t i = 0; i < m->n_stages; i++)
        most = max_u64(most, stage_bytes(m, i, row->metric));
    return most;
}

/* Share of the GPU's peak FLOPs, as the row's source counts them. */
static double utilisation_of(const struct compute_result *c,
                             enum score_flops convention)
{
    if (convention == FLOPS_HARDWARE)
        return c->hfu;
    if (convention == FLOPS_FULL)
        return c->mfu_full;
    return c->mfu;
}

static double throughput_of(const struct compute_result *c,
                            const struct score_row *row)
{
    if (row->metric == METRIC_TOKENS_PER_S_PER_GPU)
        return c->tokens_per_s / c->gpus;
    if (row->metric == METRIC_STEP_TIME_S)
        return c->step_time_s;
    const double share = utilisation_of(c, row->flops);
    return row->metric == METRIC_MFU ? share : share * c->peak_flop_s / 1e12;
}

#define SCORE_KEY_ID(id, text) KEY_##id,
static const enum setup_key keys[] = { SCORE_KEY_MAP(SCORE_KEY_ID) };
#undef SCORE_KEY_ID

enum setup_key score_key(enum score_by by)
{
    return keys[by - BY_FIRST_KEY];
}

static void keep_keys(struct score_row *row, const struct run *run)
{
    for (size_t i = 0; i < SCORE_KEYS; i++)
        row->key[i] = run->setup.v[keys[i]].n;
}

memplan_status score_predict(memplan_score *score, struct score_row *row,
                             const struct memplan_model *model,
                             const struct setup *setup, struct diag *d)
{
    struct memplan_report *r = &score->report;
    if (score->keeps)
        r = row->report = plan_report_new(&score->arena.alloc);
    if (r == NULL)
        return diag_nomem(d);
    memplan_status status =
        row->kind == SCORE_THROUGHPUT
            ? plan_compute_model(r, model, setup, d)
            : plan_memory(r, &model->spec, &model->params, setup, d);
    if (status == MEMPLAN_OK && row->kind != SCORE_THROUGHPUT)
        status = plan_allocator(r, true, d);
    if (status != MEMPLAN_OK)
        return status;
    switch (row->kind) {
    case SCORE_MEMORY:
        row->predicted = (double)rank_bytes(&r->memory, row);
        break;
    case SCORE_THROUGHPUT:
        row->predicted = throughput_of(&r->compute, row);
        break;
    case SCORE_FIT:
    case SCORE_OOM: row->predicted = r->memory.fits ? 1 : 0; break;
    case SCORE_KINDS: break;
    }
    if (score_has_error(row))
        row->error = row->predicted / row->measured - 1;
    keep_keys(row, &r->run);
    return MEMPLAN_OK;
}

bool score_again(struct score_row *row, const double scale[SPEED_SCALES],
                 struct arena *scratch)
{
    struct memplan_report *r = row->report;
    arena_rewind(scratch);
    memcpy(r->run.scale, scale, sizeof r->run.scale);
    if (!fold_time(&r->time, &r->program, &r->run, NULL, scratch))
        return false;
    plan_compute(r);
    row->predicted = throughput_of(&r->compute, row);
    row->error = row->predicted / row->measured - 1;
    return true;
}

/* ---- public ---- */

memplan_status memplan_score_new(memplan_score **out,
                                 const memplan_allocator *allocator,
                                 memplan_errors *errs)
{
    struct diag d;
    struct arena arena;
    diag_init(&d, errs);
    if (!out) {
        diag_add(&d, MEMPLAN_E_ARG, "no place for the score");
        return d.status;
    }
    arena_init(&arena, allocator);
    *out = ARENA_NEW(&arena, struct memplan_score, 1);
    if (!*out) {
        arena_release(&arena);
        return diag_nomem(&d);
    }
    (*out)->arena = arena;
    report_arenas(&(*out)->report, &arena.alloc);
    return MEMPLAN_OK;
}

void memplan_score_free(memplan_score *score)
{
    if (!score)
        return;
    for (struct score_row *row = score->first; row; row = row->next)
        memplan_report_free(row->report);
    struct arena arena = score->arena; /* the score lies in it */
    report_release(&score->report);
    arena_release(&arena);
}

size_t memplan_score_predicted(const memplan_score *score)
{
    return score == NULL ? 0 : score->n_rows - score->n_skipped;
}

memplan_status memplan_score_held(bool *held, const memplan_score *score,
                                  const char *limit, memplan_errors *errs)
{
    struct diag d;
    double most = 0, median = 0;
    diag_init(&d, errs);
    if (held)
        *held = false;
    if (!held || !score || !limit) {
        diag_add(&d, MEMPLAN_E_ARG, "no place for the answer, score or limit");
        return d.status;
    }
    if (unit_parse_real(str_of(limit), &most) != UNIT_OK || most < 0) {
        memplan_error *e = diag_add(&d, MEMPLAN_E_ARG,
                                    "'%.64s' is no share, 0 or more", limit);
        str_format(e->key, sizeof(e->key), "limit_median");
        diag_hint(e, "write 2%% or 0.02");
        return d.status;
    }
    const memplan_status status =
        memplan_score_median(&median, score, NULL, NULL);
    if (status == MEMPLAN_E_NOMEM)
        return diag_nomem(&d);
    /* what nothing was measured of is not within any limit */
    *held = status == MEMPLAN_OK && median <= most;
    return MEMPLAN_OK;
}
