/*
 * Owns the views of a trace: what is alive at the fullest moment, tensor by
 * tensor (table, Markdown); every allocation and release in order (CSV); the
 * same as a timeline that Perfetto and chrome://tracing open (JSON).
 */
#include "report/report_svg.h"

#include "base/diag.h"
#include "fold/trace.h"
#include "json/json.h"

#include <string.h>

#include "base/banned.h"

/* ---- the inventory ---- */

/* Allocations of one name in one kind of block, alive at the peak. */
struct alive {
    const char *name, *block;
    enum component component;
    uint64_t bytes, count;
};

struct inventory {
    struct alive *row;
    size_t n;
    uint64_t total;
};

static void count_alive(struct inventory *v, const struct trace_event *e)
{
    struct alive *row = NULL;
    for (size_t i = 0; i < v->n && row == NULL; i++) {
        struct alive *r = &v->row[i];
        if (r->component == e->component && strcmp(r->name, e->name) == 0
            && strcmp(r->block, e->block) == 0)
            row = r;
    }
    if (row == NULL) {
        row = &v->row[v->n++];
        *row = (struct alive){ e->name, e->block, e->component, 0, 0 };
    }
    row->bytes += e->bytes;
    row->count++;
    v->total += e->bytes;
}

/* Largest first; equal ones in order of their birth. */
static void sort_alive(struct inventory *v)
{
    for (size_t i = 1; i < v->n; i++) {
        const struct alive row = v->row[i];
        size_t k = i;
        for (; k > 0 && v->row[k - 1].bytes < row.bytes; k--)
            v->row[k] = v->row[k - 1];
        v->row[k] = row;
    }
}

/* What was born up to the peak and has not died by then. */
static bool take_inventory(struct inventory *v, const struct trace *t,
                           struct arena *a)
{
    bool *dead = ARENA_NEW(a, bool, (size_t)t->next_id + 1);
    size_t births = 0;
    if (dead == NULL)
        return false;
    for (size_t i = 0; i <= t->peak_at; i++) {
        births += t->event[i].birth;
        if (!t->event[i].birth)
            dead[t->event[i].id] = true;
    }
    *v = (struct inventory){ .row = ARENA_NEW(a, struct alive, births) };
    if (v->row == NULL)
        return false;
    for (size_t i = 0; i <= t->peak_at; i++)
        if (t->event[i].birth && !dead[t->event[i].id])
            count_alive(v, &t->event[i]);
    sort_alive(v);
    return true;
}

static void fill_inventory(struct table *t, const void *ctx)
{
    const struct inventory *v = ctx;
    for (size_t i = 0; i < v->n; i++) {
        const struct alive *r = &v->row[i];
        char buf[UNIT_TEXT_MAX];
        table_row(t, 0, PAINT_NONE);
        table_cell(t, unit_format_bytes(buf, r->bytes));
        table_cell(t, unit_format_grouped(buf, (double)r->count, 0));
        table_cell(t, component_label(r->component));
        table_cell(t, r->block);
        table_cell(t, r->name);
        table_end_row(t);
    }
}

/* The moment in the words of an estimate, which is of a later step: in the
 * first one another may be fuller. */
static void moment_text(char *text, size_t size, const struct memplan_report *r,
                        const struct trace *t)
{
    const struct trace_event *e = &t->event[t->peak_at];
    const struct stage_result *s = &r->memory.stage[r->memory.worst];
    const char *block = s->peak_block != NULL ? s->peak_block : "";
    if (e->phase == s->peak.phase && strcmp(e->block, block) == 0) {
        text_peak(text, size, r);
        return;
    }
    str_format(text, size, "peak in %s%s%s", phase_name(e->phase),
               e->block[0] == '\0' ? "" : " of ", e->block);
    text_worst_stage(text, size, r);
}

static void write_inventory(struct out *o, const struct memplan_report *report,
                            const struct trace *t, const struct inventory *v)
{
    static const struct column columns[] = {
        { "bytes", COLUMN_RIGHT },           { "times", COLUMN_RIGHT },
        { "component", COLUMN_LEFT },        { "block", COLUMN_LEFT },
        { "tensor or buffer", COLUMN_LEFT },
    };
    const struct trace_event *e = &t->event[t->peak_at];
    char text[TEXT_BLOCK_MAX], bytes[UNIT_TEXT_MAX];
    str_format(text, sizeof(text), "%s: what is alive at the peak",
               report->spec.name);
    out_title(o, text);
    char moment[TEXT_BLOCK_MAX];
    moment_text(moment, sizeof(moment), report, t);
    str_format(text, sizeof(text),
               "%s, %s, when '%s' was made; %llu allocations and releases in "
               "%s",
               unit_format_bytes(bytes, t->peak), moment, e->name,
               (unsigned long long)t->n,
               t->step == TRACE_FIRST ? "the first step" : "a later step");
    out_paragraph(o, PAINT_STRONG, text);
    table_write(o, columns, sizeof(columns) / sizeof(columns[0]),
                fill_inventory, v);
}

/* ---- the timeline ---- */

static void csv_number(struct out *o, uint64_t n)
{
    char buf[UNIT_TEXT_MAX];
    str_format(buf, sizeof(buf), "%llu", (unsigned long long)n);
    out_csv(o, false, buf);
}

static void write_timeline(struct out *o, const struct trace *t)
{
    static const char *const heads[] = { "event",       "id",       "phase",
                                         "micro_batch", "position", "block",
                                         "component",   "name",     "bytes",
                                         "live" };
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
        out_csv(o, i == 0, heads[i]);
    out_csv_end(o);
    uint64_t live = 0;
    for (size_t i = 0; i < t->n; i++) {
        const struct trace_event *e = &t->event[i];
        live = e->birth ? live + e->bytes : live - e->bytes;
        out_csv(o, true, e->birth ? "alloc" : "free");
        csv_number(o, e->id);
        out_csv(o, false, phase_name(e->phase));
        csv_number(o, e->micro_batch);
        csv_number(o, e->position);
        out_csv(o, false, e->block);
        out_csv(o, false, component_key(e->component));
        out_csv(o, false, e->name);
        csv_number(o, e->bytes);
        csv_number(o, live);
        out_csv_end(o);
    }
}

/* ---- trace events ---- */

static void chrome_head(struct json_writer *w, const char *name,
                        const char *kind, uint64_t at)
{
    json_begin_object(w);
    json_key(w, "name");
    json_string(w, name);
    json_key(w, "ph");
    json_string(w, kind);
    json_key(w, "ts"); /* there is no model of time: an event a microsecond */
    json_u64(w, at);
    json_key(w, "pid");
    json_u64(w, 0);
    json_key(w, "tid");
    json_u64(w, 0);
}

static void chrome_slice(struct json_writer *w, const struct trace *t,
                         size_t from, size_t to)
{
    const struct trace_event *e = &t->event[from];
    chrome_head(w, phase_name(e->phase), "X", from);
    json_key(w, "dur");
    json_u64(w, to - from);
    json_key(w, "args");
    json_begin_object(w);
    json_key(w, "micro_batch");
    json_u64(w, e->micro_batch);
    json_key(w, "block");
    json_string(w, e->block);
    json_key(w, "position");
    json_u64(w, e->position);
    json_end_object(w);
    json_end_object(w);
}

static bool same_place(const struct trace_event *a, const struct trace_event *b)
{
    return a->phase == b->phase && a->position == b->position
           && a->micro_batch == b->micro_batch && a->block == b->block;
}

static void write_chrome(struct out *o, const struct trace *t)
{
    struct json_writer w;
    json_writer_init(&w, false, out_sink, o);
    json_begin_object(&w);
    json_key(&w, "displayTimeUnit");
    json_string(&w, "ns");
    json_key(&w, "traceEvents");
    json_begin_array(&w);
    size_t from = 0;
    uint64_t by[COMP_COUNT] = { 0 };
    for (size_t i = 0; i < t->n; i++) {
        const struct trace_event *e = &t->event[i];
        uint64_t *sum = &by[e->component];
        *sum = e->birth ? *sum + e->bytes : *sum - e->bytes;
        chrome_head(&w, "memory", "C", i);
        json_key(&w, "args");
        json_begin_object(&w);
        for (unsigned c = 0; c < COMP_COUNT; c++) {
            json_key(&w, component_key((enum component)c));
            json_u64(&w, by[c]);
        }
        json_end_object(&w);
        json_end_object(&w);
        if (i + 1 == t->n || !same_place(e, &t->event[i + 1])) {
            chrome_slice(&w, t, from, i + 1);
            from = i + 1;
        }
    }
    json_end_array(&w);
    json_end_object(&w);
    json_end(&w);
}

/* ---- the view ---- */

/* A trace of the fullest stage, in the arena. */
static bool make_trace(struct trace *t, const struct memplan_report *report,
                       enum trace_step step, struct arena *a)
{
    struct memory_fold f;
    struct stage s;
    uint64_t layer = 0;
    if (!memory_fold_init(&f, &report->program, &report->run, a))
        return false;
    for (uint64_t r = 0; r < report->memory.worst; r++)
        layer += report->run.stage_layers[r];
    stage_init(&s, &f, report->memory.worst, layer);
    return trace_stage(t, &f, &s, step, a);
}

static bool write_view(struct out *o, const struct memplan_report *report,
                       enum trace_step step, struct arena *a)
{
    struct trace t;
    struct inventory v;
    if (!make_trace(&t, report, step, a))
        return false;
    switch (o->format) {
    case MEMPLAN_FORMAT_TABLE:
    case MEMPLAN_FORMAT_MARKDOWN:
        if (!take_inventory(&v, &t, a))
            return false;
        write_inventory(o, report, &t, &v);
        break;
    case MEMPLAN_FORMAT_JSON: write_chrome(o, &t); break;
    case MEMPLAN_FORMAT_CSV: write_timeline(o, &t); break;
    case MEMPLAN_FORMAT_SVG: return report_svg_trace(o, report, &t, a);
    }
    return true;
}

memplan_status report_write_trace(struct out *o,
                                  const struct memplan_report *report,
                                  bool first, memplan_errors *errs)
{
    struct diag d;
    diag_init(&d, errs);
    if (report->kind != REPORT_ESTIMATE) {
        diag_add(&d, MEMPLAN_E_ARG, "only an estimate has a trace");
        return d.status;
    }
    struct arena a;
    arena_init(&a, &report->arena.alloc);
    const bool ok =
        write_view(o, report, first ? TRACE_FIRST : TRACE_LATER, &a);
    arena_release(&a);
    return ok ? out_close(o, errs) : diag_nomem(&d);
}
