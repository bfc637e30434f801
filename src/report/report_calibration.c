/*
 * Owns how a calibration looks: what moved, and what is left; as JSON, the
 * file that is read again.
 */
#include "base/diag.h"
#include "base/unit.h"
#include "plan/calibration.h"
#include "report/report_rows.h"

#include <math.h>

#include "base/banned.h"

enum { PERCENT_MAX = 32 };

/* "3.2 %", of a share. */
static const char *percent(char buf[PERCENT_MAX], double x, bool sign)
{
    if (isnan(x))
        str_format(buf, PERCENT_MAX, "-");
    else
        str_format(buf, PERCENT_MAX, sign ? "%+.1f %%" : "%.1f %%", 100 * x);
    return buf;
}

/* ---- text ---- */

static const char *moved(char buf[PERCENT_MAX], const memplan_calibration *c,
                         int i)
{
    if (!c->told[i])
        return "not told";
    if (c->bound[i])
        return "at its bound";
    return percent(buf, c->scale[i] - 1, true);
}

static void fill_constants(struct table *t, const void *ctx)
{
    const memplan_calibration *c = ctx;
    for (int i = 0; i < SPEED_SCALES; i++) {
        const enum speed_scale scale = (enum speed_scale)i;
        char value[PERCENT_MAX], buf[PERCENT_MAX];
        str_format(value, sizeof value, "%.3f", c->scale[i]);
        table_row(t, 0, PAINT_NONE);
        table_cell(t, speed_scale_name(scale));
        table_cell(t, value);
        table_cell(t, moved(buf, c, i));
        table_cell(t, speed_scale_text(scale));
        table_end_row(t);
    }
}

static void fill_errors(struct table *t, const void *ctx)
{
    const memplan_calibration *c = ctx;
    char buf[PERCENT_MAX];
    table_row(t, 0, PAINT_STRONG);
    table_cell(t, "mean, without signs");
    table_cell(t, percent(buf, c->error.before, false));
    table_cell(t, percent(buf, c->error.after, false));
    table_cell(t, percent(buf, c->error.left_out, false));
    table_end_row(t);
    for (size_t i = 0; i < c->n; i++) {
        const struct calibration_row *r = &c->row[i];
        table_row(t, 0, PAINT_NONE);
        table_cell(t, r->row->id);
        table_cell(t, percent(buf, expm1(r->before), true));
        table_cell(t, percent(buf, expm1(r->after), true));
        table_cell(t, c->n_parts > 0 ? percent(buf, expm1(r->left_out), true)
                                     : "-");
        table_end_row(t);
    }
}

static void fill_skips(struct table *t, const void *ctx)
{
    const memplan_calibration *c = ctx;
    for (size_t i = 0; i < c->n_skips; i++) {
        table_row(t, 0, PAINT_NONE);
        table_cell(t, c->skip[i].id);
        table_cell(t, c->skip[i].why);
        table_end_row(t);
    }
}

static void write_unused(struct out *o, const memplan_calibration *c)
{
    static const struct column columns[] = { { "row", COLUMN_LEFT },
                                             { "why", COLUMN_NOTE } };
    char text[TEXT_BLOCK_MAX];
    if (c->n_skips > 0) {
        out_heading(o, "not fitted to");
        table_write(o, columns, ROW_COUNT(columns), fill_skips, c);
    }
    if (c->rows->n_passed == 0)
        return;
    str_format(text, sizeof text, "passed over: %zu row%s of other kinds",
               c->rows->n_passed, c->rows->n_passed == 1 ? "" : "s");
    out_paragraph(o, PAINT_FAINT, text);
}

/* A constant that would go on is no speed of a machine. */
static void warn_of_bounds(struct out *o, const memplan_calibration *c)
{
    char text[TEXT_BLOCK_MAX] = "";
    size_t n = 0;
    for (int i = 0; i < SPEED_SCALES; i++)
        if (c->bound[i])
            str_append(text, sizeof text, "%s%s", n++ > 0 ? ", " : "",
                       speed_scale_name((enum speed_scale)i));
    if (n == 0)
        return;
    str_append(text, sizeof text,
               " stopped at %s bound, a factor of %d: look for a figure in "
               "another unit, or for a setup that is not the run's, before "
               "predicting with this",
               n == 1 ? "its" : "their", CALIBRATION_FURTHEST);
    out_paragraph(o, PAINT_BAD, text);
}

/* It has moved the constants too. */
static void warn_of_strays(struct out *o, const memplan_calibration *c)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct calibration_row *r = &c->row[i];
        char text[TEXT_BLOCK_MAX];
        if (!calibration_row_strays(r))
            continue;
        str_format(text, sizeof text,
                   "row '%s': %s %.4g where %.4g is predicted: is the unit "
                   "right, and the setup the run's? Mend it or take it out",
                   r->row->id, score_metric_name(r->row->metric),
                   r->row->measured, r->row->measured * exp(r->after));
        out_paragraph(o, PAINT_BAD, text);
    }
}

static void write_text(struct out *o, const memplan_calibration *c)
{
    static const struct column constants[] = { { "constant", COLUMN_LEFT },
                                               { "is", COLUMN_RIGHT },
                                               { "moved", COLUMN_RIGHT },
                                               { "of", COLUMN_NOTE } };
    static const struct column errors[] = { { "row", COLUMN_LEFT },
                                            { "before", COLUMN_RIGHT },
                                            { "after", COLUMN_RIGHT },
                                            { "left out", COLUMN_RIGHT } };
    char text[TEXT_BLOCK_MAX];
    str_format(text, sizeof text, "calibration of %s, %zu measured step%s",
               c->gpu, c->n, c->n == 1 ? "" : "s");
    out_title(o, text);
    out_heading(o, "constants");
    table_write(o, constants, ROW_COUNT(constants), fill_constants, c);
    warn_of_bounds(o, c);
    out_heading(o, "predicted over measured");
    table_write(o, errors, ROW_COUNT(errors), fill_errors, c);
    warn_of_strays(o, c);
    if (c->n == 1)
        out_paragraph(o, PAINT_FAINT,
                      "one row is one number: constants moved together, each "
                      "by its share of that step; other layouts may differ");
    else if (c->n_parts == 0)
        out_paragraph(o, PAINT_FAINT, "too few rows to leave any out");
    else if (c->n_parts < c->n) {
        str_format(text, sizeof text,
                   "left out: fitted without each of %zu parts of the rows in "
                   "turn",
                   c->n_parts);
        out_paragraph(o, PAINT_FAINT, text);
    } else
        out_paragraph(o, PAINT_FAINT,
                      "left out: fitted without each row in turn");
    write_unused(o, c);
}

/* ---- JSON ---- */

static void number(struct json_writer *w, const char *key, double x)
{
    json_key(w, key);
    json_number(w, x);
}

static void json_row(struct json_writer *w, const memplan_calibration *c,
                     const struct calibration_row *r)
{
    json_begin_object(w);
    json_key(w, "id");
    json_string(w, r->row->id);
    json_key(w, "metric");
    json_string(w, score_metric_name(r->row->metric));
    number(w, "measured", r->row->measured);
    number(w, "before", expm1(r->before));
    number(w, "after", expm1(r->after));
    number(w, "left_out", c->n_parts > 0 ? expm1(r->left_out) : (double)NAN);
    json_end_object(w);
}

static void json_bounds(struct json_writer *w, const memplan_calibration *c)
{
    json_key(w, "at_bound");
    json_begin_array(w);
    for (int i = 0; i < SPEED_SCALES; i++)
        if (c->bound[i])
            json_string(w, speed_scale_name((enum speed_scale)i));
    json_end_array(w);
}

static void json_skips(struct json_writer *w, const memplan_calibration *c)
{
    json_key(w, "skipped");
    json_begin_array(w);
    for (size_t i = 0; i < c->n_skips; i++) {
        json_begin_object(w);
        json_key(w, "id");
        json_string(w, c->skip[i].id);
        json_key(w, "reason");
        json_string(w, c->skip[i].why);
        json_end_object(w);
    }
    json_end_array(w);
}

static void write_json(struct out *o, const memplan_calibration *c)
{
    struct json_writer w;
    json_writer_init(&w, true, out_sink, o);
    json_begin_object(&w);
    json_key(&w, "schema");
    json_string(&w, "memplan.calibration/1");
    json_key(&w, "gpu");
    json_string(&w, c->gpu);
    json_key(&w, "constants");
    json_begin_object(&w);
    for (int i = 0; i < SPEED_SCALES; i++)
        number(&w, speed_scale_name((enum speed_scale)i), c->scale[i]);
    json_end_object(&w);
    json_bounds(&w, c);
    json_key(&w, "rows");
    json_u64(&w, c->n);
    json_key(&w, "error");
    json_begin_object(&w);
    number(&w, "before", c->error.before);
    number(&w, "after", c->error.after);
    number(&w, "left_out", c->error.left_out);
    json_end_object(&w);
    json_key(&w, "measured");
    json_begin_array(&w);
    for (size_t i = 0; i < c->n; i++)
        json_row(&w, c, &c->row[i]);
    json_end_array(&w);
    json_skips(&w, c);
    json_end_object(&w);
    json_end(&w);
    o->failed = o->failed || w.failed;
}

/* ---- CSV ---- */

static void csv_number(struct out *o, double x)
{
    char buf[UNIT_TEXT_MAX];
    out_csv(o, false, isfinite(x) ? unit_format_double(buf, x) : "");
}

static void write_csv(struct out *o, const memplan_calibration *c)
{
    static const char *const heads[] = { "id",     "metric", "measured",
                                         "before", "after",  "left_out" };
    for (size_t i = 0; i < ROW_COUNT(heads); i++)
        out_csv(o, i == 0, heads[i]);
    out_csv_end(o);
    for (size_t i = 0; i < c->n; i++) {
        const struct calibration_row *r = &c->row[i];
        out_csv(o, true, r->row->id);
        out_csv(o, false, score_metric_name(r->row->metric));
        csv_number(o, r->row->measured);
        csv_number(o, expm1(r->before));
        csv_number(o, expm1(r->after));
        csv_number(o, c->n_parts > 0 ? expm1(r->left_out) : (double)NAN);
        out_csv_end(o);
    }
}

/* ---- public ---- */

memplan_status memplan_calibration_write(const memplan_calibration *c,
                                         const memplan_style *style,
                                         memplan_write_fn *write, void *ctx,
                                         memplan_errors *errs)
{
    struct out o;
    struct diag d;
    diag_init(&d, errs);
    if (c == NULL || write == NULL || c->gpu == NULL)
        return diag_add(&d, MEMPLAN_E_ARG, "no calibration, or no writer")
            ->status;
    out_init(&o, style, write, ctx);
    switch (o.format) {
    case MEMPLAN_FORMAT_TABLE:
    case MEMPLAN_FORMAT_MARKDOWN: write_text(&o, c); break;
    case MEMPLAN_FORMAT_JSON: write_json(&o, c); break;
    case MEMPLAN_FORMAT_CSV: write_csv(&o, c); break;
    case MEMPLAN_FORMAT_SVG: out_no_picture(&o); break;
    }
    return out_close(&o, errs);
}
