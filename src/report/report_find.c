/*
 * Owns how the answer to an inverse question looks: the value, and what the
 * next one would need.
 */
#include "plan/find.h"
#include "report/report_rows.h"
#include "report/report_view.h"

#include "base/unit.h"

#include <math.h>

#include "base/banned.h"

#define GIB 1073741824.0

static bool smallest(enum find_what what)
{
    return what == FIND_GPUS;
}

static const struct memplan_report *either(const memplan_found *found)
{
    return found->best != NULL ? found->best : found->next;
}

static const char *model_name(const struct memplan_report *r)
{
    return r->spec.name[0] != '\0' ? r->spec.name : r->spec.model_type;
}

/* "12", "13.5B" */
static const char *value_words(char buf[UNIT_TEXT_MAX], enum find_what what,
                               const struct memplan_report *r)
{
    const double value = (double)find_value(what, r);
    return what == FIND_PARAMS ? unit_format_count(buf, value)
                               : unit_format_grouped(buf, value, 0);
}

/* ---- text ---- */

static const struct {
    const char *before, *after, *none; /* around the value */
} title_words[] = {
    [FIND_MICRO_BATCH] = { "the largest micro_batch that fits is", "",
                           "no micro_batch fits" },
    [FIND_SEQ_LEN] = { "the longest sequence that fits has", " tokens",
                       "no sequence fits" },
    [FIND_GPUS] = { "it fits on", " GPUs and no fewer",
                    "no number of GPUs up to 65,536 is enough" },
    [FIND_LAYERS] = { "the deepest model that fits has", " layers",
                      "no number of layers fits" },
    [FIND_PARAMS] = { "the largest model that fits has", " parameters",
                      "no model of these proportions fits" },
};

/* Behind the value, or where there is none: no more than was looked at. */
static const char *title_end(const memplan_found *found)
{
    if (found->what != FIND_GPUS)
        return found->best != NULL ? title_words[found->what].after
                                   : title_words[found->what].none;
    if (found->best == NULL)
        return found->passed ? "of the numbers of GPUs up to 65,536 that were "
                               "looked at none is enough"
                             : title_words[FIND_GPUS].none;
    if (find_value(FIND_GPUS, found->best) == 1)
        return " GPU";
    return found->passed ? " GPUs, the fewest that were looked at"
                         : title_words[FIND_GPUS].after;
}

static void write_title(struct out *o, const memplan_found *found)
{
    const struct memplan_report *r = either(found);
    char text[TEXT_BLOCK_MAX];
    char value[UNIT_TEXT_MAX], gpus[UNIT_TEXT_MAX];
    unit_format_grouped(gpus, (double)r->run.gpus, 0);
    str_format(text, sizeof(text), "%s on ", model_name(r));
    if (found->what != FIND_GPUS)
        str_append(text, sizeof(text), "%s x ", gpus);
    str_append(text, sizeof(text), "%s: ", r->run.gpu.name);
    if (found->best == NULL)
        str_append(text, sizeof(text), "%s", title_end(found));
    else
        str_append(
            text, sizeof(text), "%s %s%s", title_words[found->what].before,
            value_words(value, found->what, found->best), title_end(found));
    out_title(o, text);
}

static void shape_words(char *text, size_t size, const struct spec *m)
{
    const uint64_t ffn = m->ffn > 0 ? m->ffn : m->expert_ffn;
    str_format(text, size, "%llu layer%s of %llu",
               (unsigned long long)m->layers, unit_s((double)m->layers),
               (unsigned long long)m->hidden);
    if (m->heads > 0)
        str_append(text, size, ", %llu head%s", (unsigned long long)m->heads,
                   unit_s((double)m->heads));
    if (ffn > 0)
        str_append(text, size, ", MLP %llu", (unsigned long long)ffn);
}

static bool shows_shape(enum find_what what)
{
    return what == FIND_LAYERS || what == FIND_PARAMS;
}

static void candidate_row(struct table *t, const memplan_found *found,
                          const struct memplan_report *r)
{
    char text[TEXT_BLOCK_MAX], number[UNIT_TEXT_MAX];
    if (r == NULL)
        return;
    const struct memory_result *m = &r->memory;
    const double apart =
        m->headroom < 0 ? -(double)m->headroom : (double)m->headroom;
    table_row(t, 0, m->fits ? PAINT_GOOD : PAINT_BAD);
    table_cell(t, value_words(number, found->what, r));
    if (shows_shape(found->what)) {
        shape_words(text, sizeof(text), &r->spec);
        table_cell(t, text);
    }
    table_cell(t,
               unit_format_grouped(number, (double)m->device_total / GIB, 2));
    unit_format_grouped(number, apart / GIB, 2);
    str_format(text, sizeof(text), m->fits ? "fits, %s free" : "%s too much",
               number);
    table_cell(t, text);
    text_peak(text, sizeof(text), r);
    if (m->retries)
        str_append(text, sizeof(text),
                   "; the allocator gives back and tries again");
    table_cell(t, text);
    table_end_row(t);
}

static void fill_candidates(struct table *t, const void *ctx)
{
    const memplan_found *found = ctx;
    candidate_row(t, found, found->best);
    candidate_row(t, found, found->next);
}

static void write_table(struct out *o, const memplan_found *found)
{
    const struct column shaped[] = {
        { find_name(found->what), COLUMN_RIGHT },
        { "shape", COLUMN_LEFT },
        { "GiB", COLUMN_RIGHT },
        { "", COLUMN_LEFT },
        { "", COLUMN_NOTE },
    };
    const struct column plain[] = {
        { find_name(found->what), COLUMN_RIGHT },
        { "GiB", COLUMN_RIGHT },
        { "", COLUMN_LEFT },
        { "", COLUMN_NOTE },
    };
    if (shows_shape(found->what))
        table_write(o, shaped, ROW_COUNT(shaped), fill_candidates, found);
    else
        table_write(o, plain, ROW_COUNT(plain), fill_candidates, found);
}

static void write_notes(struct out *o, const memplan_found *found)
{
    const struct memplan_report *r = either(found);
    const uint64_t limit = r->spec.max_positions;
    char text[TEXT_BLOCK_MAX], buf[UNIT_TEXT_MAX], number[UNIT_TEXT_MAX];
    str_format(text, sizeof(text), "of %s GiB on each %s; %s",
               unit_format_grouped(number, (double)r->memory.capacity / GIB, 2),
               r->run.gpu.name, found->held);
    out_paragraph(o, PAINT_NONE, text);
    str_format(text, sizeof(text),
               "micro_batch %llu, grad_accum %llu, global_batch %llu",
               (unsigned long long)r->run.micro_batch,
               (unsigned long long)r->run.grad_accum,
               (unsigned long long)r->run.global_batch);
    out_paragraph(o, PAINT_NONE, text);
    if (found->end[0] != '\0')
        out_paragraph(o, PAINT_NONE, found->end);
    if (found->what == FIND_SEQ_LEN && limit > 0 && r->run.seq_len > limit) {
        str_format(text, sizeof(text),
                   "that is beyond the model's own limit of %s token%s",
                   unit_format_grouped(buf, (double)limit, 0),
                   unit_s((double)limit));
        out_paragraph(o, PAINT_NONE, text);
    }
    str_format(text, sizeof(text),
               "%llu candidate%s by the closed form, %llu impossible; %llu "
               "with the allocator%s",
               (unsigned long long)found->looked, unit_s((double)found->looked),
               (unsigned long long)found->refused,
               (unsigned long long)found->simulated,
               found->passed ? ", others passed over" : "");
    out_paragraph(o, PAINT_FAINT, text);
}

/* ---- JSON, CSV ---- */

/* What tells one candidate from another, and how it came out. */
struct figures {
    uint64_t value, parameters, layers, hidden, heads, kv_heads, ffn;
    uint64_t gpus, dp, micro_batch, grad_accum, global_batch, seq_len;
    uint64_t peak, reserved, total, capacity, stage;
    double layer; /* NAN: the peak is in no layer */
    int64_t headroom;
    bool fits, retries;
    const char *phase, *block, *op;
};

#define FIGURE(member, key, unit) ROW(struct figures, member, key, unit)
static const struct row figure_rows[] = {
    FIGURE(value, "value", ""),
    FIGURE(fits, "fits", ""),
    FIGURE(parameters, "parameters", ""),
    FIGURE(layers, "num_hidden_layers", ""),
    FIGURE(hidden, "hidden_size", ""),
    ROW_OR_NONE(struct figures, heads, "num_attention_heads", ""),
    ROW_OR_NONE(struct figures, kv_heads, "num_key_value_heads", ""),
    ROW_OR_NONE(struct figures, ffn, "intermediate_size", ""),
    FIGURE(gpus, "gpus", ""),
    FIGURE(dp, "dp", ""),
    FIGURE(micro_batch, "micro_batch", ""),
    FIGURE(grad_accum, "grad_accum", ""),
    FIGURE(global_batch, "global_batch", ""),
    FIGURE(seq_len, "seq_len", ""),
    FIGURE(peak, "peak_allocated", "B"),
    FIGURE(reserved, "peak_reserved", "B"),
    FIGURE(total, "device_total", "B"),
    FIGURE(capacity, "capacity", "B"),
    FIGURE(headroom, "headroom", "B"),
    FIGURE(retries, "retries", ""),
    FIGURE(phase, "peak_phase", ""),
    FIGURE(block, "peak_block", ""),
    FIGURE(layer, "peak_layer", ""),
    FIGURE(op, "peak_op", ""),
    FIGURE(stage, "worst_stage", ""),
};

static struct figures figures_of(enum find_what what,
                                 const struct memplan_report *r)
{
    const struct memory_result *m = &r->memory;
    const struct stage_result *s = &m->stage[m->worst];
    const struct spec *spec = &r->spec;
    return (struct figures){
        .value = find_value(what, r),
        .fits = m->fits,
        .parameters = r->params.total,
        .layers = spec->layers,
        .hidden = spec->hidden,
        .heads = spec->heads,
        .kv_heads = spec->kv_heads,
        .ffn = spec->ffn > 0 ? spec->ffn : spec->expert_ffn,
        .gpus = r->run.gpus,
        .dp = r->run.dp,
        .micro_batch = r->run.micro_batch,
        .grad_accum = r->run.grad_accum,
        .global_batch = r->run.global_batch,
        .seq_len = r->run.seq_len,
        .peak = m->peak,
        .reserved = m->reserved,
        .total = m->device_total,
        .capacity = m->capacity,
        .headroom = m->headroom,
        .retries = m->retries,
        .phase = phase_name(s->peak.phase),
        .block = s->peak_block,
        .layer = peak_is_in_layer(r, s) ? (double)s->peak_layer : (double)NAN,
        .op = s->peak.op,
        .stage = m->worst,
    };
}

static void visit_candidate(struct visitor *v, const char *key,
                            enum find_what what, const struct memplan_report *r)
{
    if (r == NULL) {
        visit_text(v, key, NULL);
        return;
    }
    const struct figures f = figures_of(what, r);
    v->begin(v, key, false);
    visit_rows(v, figure_rows, ROW_COUNT(figure_rows), &f);
    v->end(v, false);
}

static void write_json(struct out *o, const memplan_found *found)
{
    const struct memplan_report *r = either(found);
    struct json_visitor json;
    json_visitor_init(&json, o);
    struct visitor *v = &json.base;
    v->begin(v, NULL, false);
    visit_text(v, "schema", "memplan.find/1");
    visit_text(v, "find", find_name(found->what));
    visit_text(v, "extreme", smallest(found->what) ? "smallest" : "largest");
    visit_text(v, "model", model_name(r));
    visit_text(v, "gpu", r->run.gpu.name);
    visit_bool(v, "fits", found->best != NULL);
    if (found->best != NULL)
        visit_u64(v, "value", "", find_value(found->what, found->best));
    else
        visit_text(v, "value", NULL);
    visit_text(v, "held", found->held);
    visit_text(v, "end", found->end[0] != '\0' ? found->end : NULL);
    visit_u64(v, "looked", "", found->looked);
    visit_u64(v, "refused", "", found->refused);
    visit_u64(v, "simulated", "", found->simulated);
    visit_candidate(v, "best", found->what, found->best);
    visit_candidate(v, "next", found->what, found->next);
    v->begin(v, "assumptions", true);
    for (size_t i = 0; i < r->run.n_assumptions; i++) {
        char text[ASSUMPTION_TEXT];
        visit_text(v, NULL, assumption_text(&r->run.assumption[i], text));
    }
    v->end(v, true);
    v->end(v, false);
    json_end(&json.w);
}

static void csv_line(struct out *o, const memplan_found *found,
                     const struct memplan_report *r)
{
    if (r == NULL)
        return;
    const struct figures f = figures_of(found->what, r);
    out_csv(o, true, find_name(found->what));
    for (size_t i = 0; i < ROW_COUNT(figure_rows); i++) {
        char buf[VALUE_TEXT_MAX];
        out_csv(o, false, value_text(buf, row_value(&figure_rows[i], &f)));
    }
    out_csv_end(o);
}

static void write_csv(struct out *o, const memplan_found *found)
{
    out_csv(o, true, "find");
    for (size_t i = 0; i < ROW_COUNT(figure_rows); i++)
        out_csv(o, false, figure_rows[i].key);
    out_csv_end(o);
    csv_line(o, found, found->best);
    csv_line(o, found, found->next);
}

memplan_status memplan_found_write(const memplan_found *found,
                                   const memplan_style *style,
                                   memplan_write_fn *write, void *ctx,
                                   memplan_errors *errs)
{
    struct out o;
    out_init(&o, style, write, ctx);
    switch (o.format) {
    case MEMPLAN_FORMAT_TABLE:
    case MEMPLAN_FORMAT_MARKDOWN:
        write_title(&o, found);
        write_table(&o, found);
        write_notes(&o, found);
        text_assumptions(&o, either(found));
        break;
    case MEMPLAN_FORMAT_JSON: write_json(&o, found); break;
    case MEMPLAN_FORMAT_CSV: write_csv(&o, found); break;
    case MEMPLAN_FORMAT_SVG: out_no_picture(&o); break;
    }
    return out_close(&o, errs);
}
