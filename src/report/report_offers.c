/*
 * Owns how a training's cost on each GPU of the catalogue looks.
 */
#include "plan/offers.h"
#include "report/report_rows.h"
#include "report/report_view.h"

#include "base/unit.h"

#include <math.h>

#include "base/banned.h"

/* ---- text ---- */

static void number(struct table *t, double x, int decimals)
{
    char buf[UNIT_TEXT_MAX];
    table_cell(t, isfinite(x) ? unit_format_grouped(buf, x, decimals) : "-");
}

/* A '!' after what is too late, its place kept elsewhere. */
static void days_cell(struct table *t, const struct offer *o)
{
    char buf[UNIT_TEXT_MAX];
    unit_format_grouped(buf, o->days, o->days < 10 ? 2 : o->days < 1000);
    str_append(buf, sizeof buf, o->late ? "!" : " ");
    table_cell(t, buf);
}

static void fill_offers(struct table *t, const void *ctx)
{
    const struct memplan_offers *x = ctx;
    for (size_t i = 0; i < x->n; i++) {
        const struct offer *o = &x->row[i];
        char buf[UNIT_TEXT_MAX];
        if (!o->possible)
            continue;
        table_row(t, 0, PAINT_NONE);
        table_cell(t, o->gpu);
        table_cell(t, !x->has_model ? "" : o->fits ? "yes" : "no");
        number(t, o->gpus, 0);
        table_cell(t, text_percent(buf, o->mfu));
        days_cell(t, o);
        number(t, o->gpu_hours, 0);
        number(t, o->cost_usd, 0);
        number(t, o->energy_kwh, 0);
        number(t, o->price_usd_h, 2);
        table_end_row(t);
    }
}

static void write_refused(struct out *o, const struct memplan_offers *x)
{
    for (size_t i = 0; i < x->n; i++) {
        char text[TEXT_BLOCK_MAX];
        if (x->row[i].possible)
            continue;
        str_format(text, sizeof text, "%s: %s", x->row[i].gpu, x->row[i].why);
        out_item(o, text);
    }
}

static bool any_late(const struct memplan_offers *x)
{
    for (size_t i = 0; i < x->n; i++)
        if (x->row[i].possible && x->row[i].late)
            return true;
    return false;
}

static void write_text(struct out *o, const struct memplan_offers *x)
{
    static const struct column columns[] = {
        { "GPU", COLUMN_LEFT },        { "fits", COLUMN_LEFT },
        { "GPUs", COLUMN_RIGHT },      { "MFU", COLUMN_RIGHT },
        { "days ", COLUMN_RIGHT },     { "GPU-hours", COLUMN_RIGHT },
        { "USD", COLUMN_RIGHT },       { "kWh", COLUMN_RIGHT },
        { "USD/GPU-h", COLUMN_RIGHT },
    };
    /* A narrow terminal has no room for the last two. */
    enum { COLUMNS = sizeof(columns) / sizeof(columns[0]), ALL_COLUMNS = 100 };
    const bool narrow = o->width > 0 && o->width < ALL_COLUMNS;
    char text[TEXT_BLOCK_MAX], buf[UNIT_TEXT_MAX];
    str_format(text, sizeof text, "%s%s%s parameter%s", x->name,
               x->name[0] != '\0' ? ": " : "",
               unit_format_count(buf, x->params), unit_s(x->params));
    str_append(text, sizeof text,
               " on %s token%s, on each GPU of the catalogue",
               unit_format_count(buf, x->tokens), unit_s(x->tokens));
    if (x->days > 0)
        str_append(text, sizeof text, ", in %s day%s",
                   unit_format_double(buf, x->days), unit_s(x->days));
    out_title(o, text);
    table_write(o, columns, COLUMNS - (narrow ? 2 : 0), fill_offers, x);
    write_refused(o, x);
    str_format(text, sizeof text, "the cheapest%s first; %sprices are ",
               x->has_model ? " that fits" : "",
               !any_late(x)  ? ""
               : x->has_gpus ? "! late on so many; "
                             : "! no number of them is in time; ");
    str_append(text, sizeof text,
               "indicative and dated: memplan gpus NAME says whose and when, "
               "--prices FILE has yours");
    out_paragraph(o, PAINT_FAINT, text);
}

/* ---- JSON, CSV ---- */

static const struct row offer_rows[] = {
    ROW(struct offer, gpu, "gpu", ""),
    ROW(struct offer, fits, "fits", ""),
    ROW(struct offer, late, "late", ""),
    ROW_OR_NONE(struct offer, gpus, "gpus", ""),
    ROW_OR_NONE(struct offer, mfu, "mfu", ""),
    ROW_OR_NONE(struct offer, step_time_s, "step_time_s", "s"),
    ROW_OR_NONE(struct offer, days, "days", "d"),
    ROW_OR_NONE(struct offer, gpu_hours, "gpu_hours", "h"),
    ROW(struct offer, cost_usd, "cost_usd", "USD"),
    ROW_OR_NONE(struct offer, energy_kwh, "energy_kwh", "kWh"),
    ROW(struct offer, price_usd_h, "price_usd_h", "USD"),
    ROW_OR_NONE(struct offer, price_source, "price_source", ""),
};

/* Without a model nothing is known to fit. */
static struct value offer_value(const struct memplan_offers *x,
                                const struct row *row, const struct offer *o)
{
    if (!x->has_model && row->offset == offsetof(struct offer, fits))
        return (struct value){ .kind = VALUE_NONE, .unit = row->unit };
    return row_value(row, o);
}

static void write_json(struct out *o, const struct memplan_offers *x)
{
    struct json_visitor json;
    json_visitor_init(&json, o);
    struct visitor *v = &json.base;
    v->begin(v, NULL, false);
    visit_text(v, "schema", "memplan.offers/1");
    visit_text(v, "model", x->name[0] != '\0' ? x->name : NULL);
    visit_real(v, "parameters", "", x->params);
    visit_real(v, "tokens", "", x->tokens);
    visit_real(v, "deadline_days", "d", x->days > 0 ? x->days : (double)NAN);
    v->begin(v, "offers", true);
    for (size_t i = 0; i < x->n; i++) {
        if (!x->row[i].possible)
            continue;
        v->begin(v, NULL, false);
        for (size_t r = 0; r < ROW_COUNT(offer_rows); r++)
            visit_value(v, offer_rows[r].key,
                        offer_value(x, &offer_rows[r], &x->row[i]));
        v->end(v, false);
    }
    v->end(v, true);
    v->begin(v, "impossible", true);
    for (size_t i = 0; i < x->n; i++) {
        if (x->row[i].possible)
            continue;
        v->begin(v, NULL, false);
        visit_text(v, "gpu", x->row[i].gpu);
        visit_text(v, "reason", x->row[i].why);
        v->end(v, false);
    }
    v->end(v, true);
    v->end(v, false);
    json_end(&json.w);
}

static void write_csv(struct out *o, const struct memplan_offers *x)
{
    for (size_t r = 0; r < ROW_COUNT(offer_rows); r++)
        out_csv(o, r == 0, offer_rows[r].key);
    out_csv_end(o);
    for (size_t i = 0; i < x->n; i++) {
        if (!x->row[i].possible)
            continue;
        for (size_t r = 0; r < ROW_COUNT(offer_rows); r++) {
            char buf[VALUE_TEXT_MAX];
            out_csv(
                o, r == 0,
                value_text(buf, offer_value(x, &offer_rows[r], &x->row[i])));
        }
        out_csv_end(o);
    }
}

memplan_status memplan_offers_write(const memplan_offers *offers,
                                    const memplan_style *style,
                                    memplan_write_fn *write, void *ctx,
                                    memplan_errors *errs)
{
    struct out o;
    out_init(&o, style, write, ctx);
    switch (o.format) {
    case MEMPLAN_FORMAT_TABLE:
    case MEMPLAN_FORMAT_MARKDOWN: write_text(&o, offers); break;
    case MEMPLAN_FORMAT_JSON: write_json(&o, offers); break;
    case MEMPLAN_FORMAT_CSV: write_csv(&o, offers); break;
    case MEMPLAN_FORMAT_SVG: out_no_picture(&o); break;
    }
    return out_close(&o, errs);
}
