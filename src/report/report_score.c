/*
 * Owns how a score looks: errors by group and overall, the worst rows, what
 * was skipped and why.
 */
#include "base/diag.h"
#include "base/unit.h"
#include "plan/score.h"
#include "report/report_rows.h"

#include <math.h>
#include <string.h>

#include "base/banned.h"

enum { WORST_SHOWN = 10 };
/* Of memory, on a page that is kept, every row that is further off: the 90th
 * percentile that runs are aimed at. */
static const double far_off = 0.10;

/* What is written, sorted and counted. */
struct view {
    const memplan_score *score;
    enum score_by by;
    struct score_list groups, overall, all, reasons;
    struct score_list worst[SCORE_KINDS];
    struct score_list needs;
    struct score_list peers, features;
};

/* ---- numbers ---- */

/* "2.31%", "+2.31%" */
static const char *percent(char buf[UNIT_TEXT_MAX], double x, bool sign)
{
    unit_format_grouped(buf, 100 * fabs(x), 2);
    char digits[UNIT_TEXT_MAX];
    str_format(digits, sizeof(digits), "%s", buf);
    str_format(buf, UNIT_TEXT_MAX, "%s%s%%", !sign ? "" : (x < 0 ? "-" : "+"),
               digits);
    return buf;
}

static const char *amount(char buf[UNIT_TEXT_MAX], enum score_kind kind,
                          double x)
{
    if (kind == SCORE_MEMORY && x < 0x1p63)
        return unit_format_bytes(buf, (uint64_t)x);
    return unit_format_short(buf, x);
}

/* ---- tables ---- */

/* A number stands for the text of what is needed, which may be long. */
static void group_cell(struct table *t, const struct score_group *g)
{
    char text[256];
    if (g->needs[0] == '\0')
        str_format(text, sizeof(text), "%s", g->label);
    else
        str_format(text, sizeof(text), "%.200s (needs %zu)", g->label,
                   *g->note);
    table_cell(t, text);
}

static void stats_cells(struct table *t, const struct score_stats *s)
{
    char buf[UNIT_TEXT_MAX];
    table_cell(t, unit_format_grouped(buf, (double)s->count, 0));
    if (s->has_error) {
        table_cell(t, percent(buf, s->median, false));
        table_cell(t, percent(buf, s->p90, false));
        table_cell(t, percent(buf, s->worst, false));
        table_cell(t, percent(buf, s->bias, true));
        table_cell(t, "");
        return;
    }
    for (int i = 0; i < 4; i++)
        table_cell(t, "");
    str_format(buf, sizeof(buf), "%zu", s->right);
    table_cell(t, buf);
}

#define STATS_COLUMNS                                                          \
    { "rows", COLUMN_RIGHT }, { "median", COLUMN_RIGHT },                      \
        { "90 %", COLUMN_RIGHT }, { "worst", COLUMN_RIGHT },                   \
        { "bias", COLUMN_RIGHT },                                              \
    {                                                                          \
        "right", COLUMN_RIGHT                                                  \
    }

static void fill_groups(struct table *t, const void *ctx)
{
    const struct view *v = ctx;
    for (size_t i = 0; i < v->groups.n; i++) {
        const struct score_group *g = v->groups.item[i];
        table_row(t, 0, PAINT_NONE);
        group_cell(t, g);
        table_cell(t, score_metric_name(g->metric));
        stats_cells(t, &g->stats);
        table_end_row(t);
    }
}

static void write_groups(struct out *o, const struct view *v)
{
    static const struct column columns[] = { { "group", COLUMN_LEFT },
                                             { "metric", COLUMN_LEFT },
                                             STATS_COLUMNS };
    if (v->groups.n == 0)
        return;
    out_heading(o, "by group");
    table_write(o, columns, ROW_COUNT(columns), fill_groups, v);
}

/* Rows of a kind, those that need something apart from the others. */
static void fill_overall(struct table *t, const void *ctx)
{
    const struct view *v = ctx;
    for (size_t i = 0; i < v->overall.n; i++) {
        const struct score_group *g = v->overall.item[i];
        table_row(t, 0, PAINT_NONE);
        table_cell(t, g->label);
        stats_cells(t, &g->stats);
        table_end_row(t);
    }
    if (v->all.n == 0)
        return;
    const struct score_group *g = v->all.item[0];
    table_row(t, 0, PAINT_STRONG);
    table_cell(t, "all that have an error");
    stats_cells(t, &g->stats);
    table_end_row(t);
}

static void write_overall(struct out *o, const struct view *v)
{
    static const struct column columns[] = { { "kind", COLUMN_LEFT },
                                             STATS_COLUMNS };
    if (v->overall.n == 0)
        return;
    out_heading(o, "overall, without the rows that need what no key says");
    table_write(o, columns, ROW_COUNT(columns), fill_overall, v);
}

static void fill_features(struct table *t, const void *ctx)
{
    const struct view *v = ctx;
    for (size_t i = 0; i < v->features.n; i++) {
        const struct score_group *g = v->features.item[i];
        table_row(t, 0, PAINT_NONE);
        table_cell(t, g->label);
        stats_cells(t, &g->stats);
        table_end_row(t);
    }
}

/* Only where rows were not already grouped by something of theirs. */
static void write_features(struct out *o, const struct view *v)
{
    static const struct column columns[] = { { "feature", COLUMN_LEFT },
                                             STATS_COLUMNS };
    if (v->features.n == 0 || v->by != BY_GROUP)
        return;
    out_heading(o, "memory by feature");
    table_write(o, columns, ROW_COUNT(columns), fill_features, v);
}

static void write_needs(struct out *o, const struct view *v)
{
    char text[TEXT_BLOCK_MAX];
    if (v->needs.n == 0)
        return;
    out_heading(o, "what runs need that no setup key says");
    for (size_t i = 0; i < v->needs.n; i++) {
        const struct score_group *g = v->needs.item[i];
        str_format(text, sizeof(text), "needs %zu: %s", i + 1, g->needs);
        out_item(o, text);
    }
}

/* ---- the worst rows ---- */

/* The first of them, as many as are shown. */
struct shown {
    const struct score_list *worst;
    size_t n;
};

static struct shown shown_of(const struct out *o,
                             const struct score_list *worst,
                             enum score_kind kind)
{
    struct shown x = { worst, 0 };
    const bool all =
        o->format == MEMPLAN_FORMAT_MARKDOWN && kind == SCORE_MEMORY;
    for (; x.n < worst->n; x.n++) {
        const struct score_row *r = worst->item[x.n];
        if (x.n >= WORST_SHOWN && (!all || fabs(r->error) <= far_off))
            break;
    }
    return x;
}

static void fill_worst(struct table *t, const void *ctx)
{
    const struct shown *shown = ctx;
    for (size_t i = 0; i < shown->n; i++) {
        const struct score_row *r = shown->worst->item[i];
        char buf[UNIT_TEXT_MAX];
        table_row(t, 0, PAINT_NONE);
        table_cell(t, r->id);
        table_cell(t, r->group);
        table_cell(t, score_metric_name(r->metric));
        table_cell(t, amount(buf, r->kind, r->measured));
        table_cell(t, amount(buf, r->kind, r->predicted));
        table_cell(t, percent(buf, r->error, true));
        table_cell(t, r->why);
        table_end_row(t);
    }
}

static void write_worst(struct out *o, const struct view *v)
{
    static const struct column columns[] = {
        { "row", COLUMN_LEFT },        { "group", COLUMN_LEFT },
        { "metric", COLUMN_LEFT },     { "measured", COLUMN_RIGHT },
        { "predicted", COLUMN_RIGHT }, { "error", COLUMN_RIGHT },
        { "why", COLUMN_NOTE },
    };
    for (int k = 0; k < SCORE_KINDS; k++) {
        char text[64];
        if (v->worst[k].n == 0)
            continue;
        str_format(text, sizeof(text), "the worst of %s",
                   score_kind_name((enum score_kind)k));
        out_heading(o, text);
        const struct shown shown =
            shown_of(o, &v->worst[k], (enum score_kind)k);
        table_write(o, columns, ROW_COUNT(columns), fill_worst, &shown);
    }
}

/* ---- other estimators ---- */

static void fill_peers(struct table *t, const void *ctx)
{
    const struct score_list *peers = ctx;
    for (size_t i = 0; i < peers->n; i++) {
        const struct score_peer_group *g = peers->item[i];
        char buf[UNIT_TEXT_MAX];
        table_row(t, 0, PAINT_NONE);
        table_cell(t, g->group);
        table_cell(t, score_metric_name(g->metric));
        table_cell(t, g->name);
        table_cell(t, unit_format_grouped(buf, (double)g->theirs.count, 0));
        table_cell(t, percent(buf, g->theirs.median, false));
        table_cell(t, percent(buf, g->theirs.p90, false));
        table_cell(t, percent(buf, g->ours.median, false));
        table_cell(t, percent(buf, g->ours.p90, false));
        table_end_row(t);
    }
}

static void write_peers(struct out *o, const struct view *v)
{
    static const struct column columns[] = {
        { "group", COLUMN_LEFT },           { "metric", COLUMN_LEFT },
        { "estimator", COLUMN_LEFT },       { "rows", COLUMN_RIGHT },
        { "median", COLUMN_RIGHT },         { "90 %", COLUMN_RIGHT },
        { "memplan median", COLUMN_RIGHT }, { "memplan 90 %", COLUMN_RIGHT },
    };
    if (v->peers.n == 0)
        return;
    out_heading(o, "beside other estimators, on the rows that both predict");
    table_write(o, columns, ROW_COUNT(columns), fill_peers, &v->peers);
}

/* ---- what was skipped ---- */

static void fill_reasons(struct table *t, const void *ctx)
{
    const struct score_list *reasons = ctx;
    for (size_t i = 0; i < reasons->n; i++) {
        const struct score_reason *r = reasons->item[i];
        char buf[UNIT_TEXT_MAX];
        table_row(t, 0, PAINT_NONE);
        table_cell(t, unit_format_grouped(buf, (double)r->count, 0));
        table_cell(t, r->text);
        table_end_row(t);
    }
}

static void write_reasons(struct out *o, const struct view *v)
{
    static const struct column columns[] = { { "rows", COLUMN_RIGHT },
                                             { "reason", COLUMN_NOTE } };
    if (v->reasons.n == 0)
        return;
    out_heading(o, "skipped");
    table_write(o, columns, ROW_COUNT(columns), fill_reasons, &v->reasons);
}

static void write_text(struct out *o, const struct view *v)
{
    const memplan_score *s = v->score;
    char text[TEXT_BLOCK_MAX];
    str_format(text, sizeof(text), "measured runs: %zu predicted, %zu skipped",
               s->n_rows - s->n_skipped, s->n_skipped);
    out_title(o, text);
    if (v->worst[SCORE_THROUGHPUT].n > 0)
        out_paragraph(o, PAINT_FAINT,
                      "Throughput is predicted: kernels and links as timed "
                      "alone, put together as the framework runs them.");
    write_groups(o, v);
    write_overall(o, v);
    write_features(o, v);
    write_peers(o, v);
    write_needs(o, v);
    write_worst(o, v);
    write_reasons(o, v);
}

/* ---- JSON, CSV ---- */

static struct value figure(const struct score_row *r, double x)
{
    struct value v = { .kind = VALUE_REAL, .unit = "", .real = x };
    if (r->kind == SCORE_FIT || r->kind == SCORE_OOM) {
        v.kind = VALUE_BOOL;
        v.truth = x > 0;
    } else if (r->kind == SCORE_MEMORY && x < 0x1p63) {
        v.kind = VALUE_U64;
        v.u64 = (uint64_t)x;
    }
    return v;
}

static struct value error_value(const struct score_row *r)
{
    struct value v = { .kind = VALUE_NONE, .unit = "" };
    if (score_has_error(r)) {
        v.kind = VALUE_REAL;
        v.real = r->error;
    }
    return v;
}

static void visit_row(struct visitor *v, const struct score_row *r)
{
    v->begin(v, NULL, false);
    visit_text(v, "id", r->id);
    visit_text(v, "group", r->group);
    visit_text(v, "kind", score_kind_name(r->kind));
    visit_text(v, "metric", score_metric_name(r->metric));
    visit_value(v, "measured", figure(r, r->measured));
    visit_value(v, "predicted", figure(r, r->predicted));
    visit_value(v, "error", error_value(r));
    visit_text(v, "needs", r->needs[0] != '\0' ? r->needs : NULL);
    visit_text(v, "why", r->why[0] != '\0' ? r->why : NULL);
    v->end(v, false);
}

static void visit_stat(struct visitor *v, const char *key, bool known, double x)
{
    const struct value none = { .kind = VALUE_NONE, .unit = "" };
    if (known)
        visit_real(v, key, "", x);
    else
        visit_value(v, key, none);
}

static void visit_group(struct visitor *v, const char *key,
                        const struct score_group *g)
{
    const struct score_stats *s = &g->stats;
    v->begin(v, key, false);
    visit_text(v, "group", g->name);
    visit_text(v, "metric",
               g->metric < METRIC_COUNT ? score_metric_name(g->metric) : NULL);
    visit_u64(v, "count", "", s->count);
    visit_stat(v, "median", s->has_error, s->median);
    visit_stat(v, "p90", s->has_error, s->p90);
    visit_stat(v, "worst", s->has_error, s->worst);
    visit_stat(v, "bias", s->has_error, s->bias);
    visit_stat(v, "accuracy", !s->has_error,
               (double)s->right / (double)s->count);
    v->end(v, false);
}

static void visit_peers(struct visitor *v, const struct score_list *peers)
{
    v->begin(v, "peers", true);
    for (size_t i = 0; i < peers->n; i++) {
        const struct score_peer_group *g = peers->item[i];
        v->begin(v, NULL, false);
        visit_text(v, "group", g->group);
        visit_text(v, "metric", score_metric_name(g->metric));
        visit_text(v, "peer", g->name);
        visit_u64(v, "count", "", g->theirs.count);
        visit_real(v, "median", "", g->theirs.median);
        visit_real(v, "p90", "", g->theirs.p90);
        visit_real(v, "memplan_median", "", g->ours.median);
        visit_real(v, "memplan_p90", "", g->ours.p90);
        v->end(v, false);
    }
    v->end(v, true);
}

static void visit_groups(struct visitor *v, const char *key,
                         const struct score_list *groups)
{
    v->begin(v, key, true);
    for (size_t i = 0; i < groups->n; i++)
        visit_group(v, NULL, groups->item[i]);
    v->end(v, true);
}

static void write_json(struct out *o, const struct view *view)
{
    struct json_visitor json;
    json_visitor_init(&json, o);
    struct visitor *v = &json.base;
    v->begin(v, NULL, false);
    visit_text(v, "schema", "memplan.score/1");
    v->begin(v, "rows", true);
    for (const struct score_row *r = view->score->first; r; r = r->next)
        if (!r->reason)
            visit_row(v, r);
    v->end(v, true);
    v->begin(v, "skipped", true);
    for (const struct score_row *r = view->score->first; r; r = r->next) {
        if (!r->reason)
            continue;
        v->begin(v, NULL, false);
        visit_text(v, "id", r->id);
        visit_text(v, "reason", r->reason);
        v->end(v, false);
    }
    v->end(v, true);
    visit_groups(v, "groups", &view->groups);
    visit_groups(v, "kinds", &view->overall);
    visit_peers(v, &view->peers);
    if (view->all.n > 0)
        visit_group(v, "overall", view->all.item[0]);
    v->end(v, false);
    json_end(&json.w);
}

static void write_csv(struct out *o, const memplan_score *score)
{
    out_text(o, "id,group,kind,metric,measured,predicted,error,needs,skipped");
    out_csv_end(o);
    for (const struct score_row *r = score->first; r; r = r->next) {
        char buf[VALUE_TEXT_MAX];
        const struct value none = { .kind = VALUE_NONE, .unit = "" };
        out_csv(o, true, r->id);
        out_csv(o, false, r->group);
        out_csv(o, false, score_kind_name(r->kind));
        out_csv(o, false, score_metric_name(r->metric));
        out_csv(o, false, value_text(buf, figure(r, r->measured)));
        out_csv(o, false,
                value_text(buf, r->reason ? none : figure(r, r->predicted)));
        out_csv(o, false, value_text(buf, error_value(r)));
        out_csv(o, false, r->needs);
        out_csv(o, false, r->reason ? r->reason : "");
        out_csv_end(o);
    }
}

/* ---- public ---- */

static bool view_fill(struct view *v, struct arena *a, enum score_by by)
{
    bool ok = score_group(&v->groups, a, v->score, by)
              && score_group(&v->overall, a, v->score, BY_KIND)
              && score_group(&v->all, a, v->score, BY_NOTHING)
              && score_reasons(&v->reasons, a, v->score)
              && score_notes(&v->needs, a, &v->groups)
              && score_peers(&v->peers, a, v->score)
              && score_features(&v->features, a, v->score);
    for (int k = 0; k < SCORE_KINDS; k++)
        ok = ok && score_worst(&v->worst[k], a, v->score, (enum score_kind)k);
    return ok;
}

static memplan_status find_by(enum score_by *out, const char *by,
                              struct diag *d)
{
#define SCORE_KEY_NAME(id, text) " " text
    static const char names[] = "group metric" SCORE_KEY_MAP(SCORE_KEY_NAME);
#undef SCORE_KEY_NAME
    *out = BY_GROUP;
    if (!by)
        return MEMPLAN_OK;
    for (size_t i = 0; i < BY_COUNT; i++) {
        *out = (enum score_by)i;
        if (str_eq(choice_word(names, i), str_of(by)))
            return MEMPLAN_OK;
    }
    memplan_error *e =
        diag_add(d, MEMPLAN_E_UNKNOWN, "'%.64s' is nothing to group by", by);
    diag_hint(e, "write one of: %s", names);
    return d->status;
}

memplan_status memplan_score_write(const memplan_score *score, const char *by,
                                   const memplan_style *style,
                                   memplan_write_fn *write, void *ctx,
                                   memplan_errors *errs)
{
    struct out o;
    struct arena a;
    struct diag d;
    struct view view = { .score = score };
    enum score_by grouping;
    diag_init(&d, errs);
    if (!score || !write)
        return diag_add(&d, MEMPLAN_E_ARG, "no score, or no writer")->status;
    if (find_by(&grouping, by, &d) != MEMPLAN_OK)
        return d.status;
    view.by = grouping;
    arena_init(&a, &score->arena.alloc);
    if (!view_fill(&view, &a, grouping)) {
        arena_release(&a);
        return diag_nomem(&d);
    }
    out_init(&o, style, write, ctx);
    switch (o.format) {
    case MEMPLAN_FORMAT_TABLE:
    case MEMPLAN_FORMAT_MARKDOWN: write_text(&o, &view); break;
    case MEMPLAN_FORMAT_JSON: write_json(&o, &view); break;
    case MEMPLAN_FORMAT_CSV: write_csv(&o, score); break;
    case MEMPLAN_FORMAT_SVG: out_no_picture(&o); break;
    }
    arena_release(&a);
    return out_close(&o, errs);
}
