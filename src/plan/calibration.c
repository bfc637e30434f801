/*
 * Owns a calibration: measured steps read as a score reads them, which of them
 * are fitted to, and the public calls. Refuses to know how it is fitted
 * (calibration_fit.c) and written (report/report_calibration.c).
 */
#include "plan/calibration.h"

#include <math.h>
#include <string.h>

#include "base/banned.h"

memplan_status memplan_calibration_new(memplan_calibration **out,
                                       const memplan_allocator *allocator,
                                       memplan_errors *errs)
{
    struct diag d;
    struct arena arena;
    memplan_score *score = NULL;
    diag_init(&d, errs);
    if (out == NULL)
        return diag_add(&d, MEMPLAN_E_ARG, "no place for the calibration")
            ->status;
    *out = NULL;
    const memplan_status status = memplan_score_new(&score, allocator, errs);
    if (status != MEMPLAN_OK)
        return status;
    arena_init(&arena, allocator);
    memplan_calibration *c =
        arena.alloc.resize(arena.alloc.ctx, NULL, 0, sizeof *c);
    if (c == NULL) {
        memplan_score_free(score);
        return diag_nomem(&d);
    }
    *c = (memplan_calibration){ .score = score, .rows = score, .arena = arena };
    score->keeps = true;
    *out = c;
    return MEMPLAN_OK;
}

void memplan_calibration_free(memplan_calibration *c)
{
    if (c == NULL)
        return;
    const memplan_allocator a = c->arena.alloc;
    memplan_score_free(c->score);
    arena_release(&c->arena);
    a.resize(a.ctx, c, sizeof *c, 0);
}

memplan_status memplan_calibration_parse(memplan_calibration *c,
                                         const char *text, size_t len,
                                         memplan_errors *errs)
{
    struct diag d;
    diag_init(&d, errs);
    if (c == NULL)
        return diag_add(&d, MEMPLAN_E_ARG, "no calibration")->status;
    c->gpu = NULL;
    return memplan_score_parse(c->score, text, len, errs);
}

/* ---- which rows ---- */

/* The same run told again would count twice. */
static bool is_again(const memplan_calibration *c, const struct score_row *row)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct score_row *r = c->row[i].row;
        if (strcmp(r->id, row->id) == 0 && strcmp(r->group, row->group) == 0
            && r->metric == row->metric
            && fabs(r->measured - row->measured) <= 0)
            return true;
    }
    return false;
}

/* Why it is not fitted to; NULL: it is. */
static const char *why_not(memplan_calibration *c, const struct score_row *row)
{
    if (row->reason != NULL)
        return row->reason;
    if (row->needs[0] != '\0')
        return arena_printf(&c->arena, "x-needs: %s", row->needs);
    if (row->report->compute.mfu_given)
        return "its setup gives 'mfu', which is what is predicted";
    if (!row->report->time.known || !(row->predicted > 0))
        return "no step time is predicted of it";
    if (is_again(c, row))
        return "it is there twice";
    return NULL;
}

static bool choose_rows(memplan_calibration *c)
{
    const size_t most = c->score->n_rows + 1;
    c->n = c->n_skips = 0;
    c->row = ARENA_NEW(&c->arena, struct calibration_row, most);
    c->skip = ARENA_NEW(&c->arena, struct calibration_skip, most);
    if (c->row == NULL || c->skip == NULL)
        return false;
    for (struct score_row *r = c->score->first; r != NULL; r = r->next) {
        const char *why = why_not(c, r);
        if (why != NULL)
            c->skip[c->n_skips++] = (struct calibration_skip){ r->id, why };
        else
            c->row[c->n++] = (struct calibration_row){ .row = r };
    }
    return !c->arena.failed;
}

static memplan_status no_rows(const memplan_calibration *c, struct diag *d)
{
    memplan_error *e = diag_add(
        d, MEMPLAN_E_ARG, "no measured step of a run that memplan can predict");
    if (c->n_skips > 0)
        diag_hint(e, "'%.60s': %.150s", c->skip[0].id, c->skip[0].why);
    else
        diag_hint(e, "rows of \"kind\": \"throughput\" are read (man memplan, "
                     "SCORE)");
    return d->status;
}

static memplan_status one_gpu(memplan_calibration *c, struct diag *d)
{
    const struct score_row *first = c->row[0].row;
    c->gpu = first->report->run.gpu.name;
    for (size_t i = 1; i < c->n; i++) {
        const struct score_row *row = c->row[i].row;
        const char *gpu = row->report->run.gpu.name;
        if (strcmp(gpu, c->gpu) == 0)
            continue;
        memplan_error *e =
            diag_add(d, MEMPLAN_E_CONFLICT,
                     "rows of two GPUs: '%.60s' of %s, '%.60s' of %s",
                     first->id, c->gpu, row->id, gpu);
        diag_hint(e, "calibrate each GPU from a file of its own");
        c->gpu = NULL;
        return d->status;
    }
    return MEMPLAN_OK;
}

memplan_status memplan_calibration_fit(memplan_calibration *c,
                                       memplan_errors *errs)
{
    struct diag d;
    struct arena scratch;
    diag_init(&d, errs);
    if (c == NULL)
        return diag_add(&d, MEMPLAN_E_ARG, "no calibration")->status;
    arena_rewind(&c->arena);
    c->gpu = NULL;
    if (!choose_rows(c))
        return diag_nomem(&d);
    if (c->n == 0)
        return no_rows(c, &d);
    if (one_gpu(c, &d) != MEMPLAN_OK)
        return d.status;
    arena_init(&scratch, &c->arena.alloc);
    const bool ok = calibration_fit(c, &scratch);
    arena_release(&scratch);
    if (!ok)
        c->gpu = NULL;
    return ok ? MEMPLAN_OK : diag_nomem(&d);
}

/* ---- numbers ---- */

memplan_status memplan_calibration_number(double *out,
                                          const memplan_calibration *c,
                                          const char *name)
{
    if (out == NULL)
        return MEMPLAN_E_ARG;
    *out = 0;
    if (c == NULL || name == NULL)
        return MEMPLAN_E_ARG;
    if (c->gpu == NULL)
        return MEMPLAN_E_UNKNOWN;
    double n_bound = 0, n_stray = 0;
    for (size_t i = 0; i < c->n; i++)
        n_stray += calibration_row_strays(&c->row[i]) ? 1 : 0;
    for (int i = 0; i < SPEED_SCALES; i++)
        n_bound += c->bound[i] ? 1 : 0;
    const struct {
        const char *name;
        double value;
    } errors[] = { { "error.before", c->error.before },
                   { "error.after", c->error.after },
                   { "error.left_out", c->error.left_out },
                   { "at_bound", n_bound },
                   { "stray", n_stray } };
    for (int i = 0; i < SPEED_SCALES; i++) {
        if (strcmp(speed_scale_name((enum speed_scale)i), name) != 0)
            continue;
        *out = c->scale[i];
        return MEMPLAN_OK;
    }
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (strcmp(errors[i].name, name) != 0 || isnan(errors[i].value))
            continue;
        *out = errors[i].value;
        return MEMPLAN_OK;
    }
    return MEMPLAN_E_UNKNOWN;
}
