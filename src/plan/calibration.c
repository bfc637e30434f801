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

static bool is_used(memplan_calibration *c, const struct score_row *row)
{
    if (row->reason != NULL)
        return false;
    const bool needy = row->needs[0] != '\0';
    const bool given = row->report->compute.mfu_given
                       || !row->report->time.known || !(row->predicted > 0);
    c->n_needy += needy;
    c->n_given += !needy && given;
    return !needy && !given;
}

static memplan_status no_rows(const memplan_calibration *c, struct diag *d)
{
    memplan_error *e = diag_add(
        d, MEMPLAN_E_ARG, "no measured step of a run that memplan can predict");
    const struct score_row *first = c->score->first;
    if (first != NULL && first->reason != NULL)
        diag_hint(e, "'%.60s': %.150s", first->id, first->reason);
    else if (c->n_needy > 0)
        diag_hint(e, "rows with 'x-needs' are left out");
    else if (c->n_given > 0)
        diag_hint(e, "leave 'mfu' out of the rows: it is what is predicted");
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
    c->n = c->n_needy = c->n_given = 0;
    c->row = ARENA_NEW(&c->arena, struct calibration_row, c->score->n_rows + 1);
    if (c->row == NULL)
        return diag_nomem(&d);
    for (struct score_row *r = c->score->first; r != NULL; r = r->next)
        if (is_used(c, r))
            c->row[c->n++] = (struct calibration_row){ .row = r };
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
    const struct {
        const char *name;
        double value;
    } errors[] = { { "error.before", c->error.before },
                   { "error.after", c->error.after },
                   { "error.left_out", c->error.left_out } };
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
