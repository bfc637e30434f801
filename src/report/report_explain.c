/*
 * Owns how an explanation looks: a list of numbers, each with its formula, the
 * numbers put in, and where both come from. Refuses to know what they mean.
 */
#include "report/report_rows.h"

#include "report/report_view.h"

#include <math.h>
#include <string.h>

#include "base/banned.h"

static bool is_bytes(const struct explain_entry *e)
{
    return e->unit && strcmp(e->unit, "B") == 0;
}

static bool is_given(const char *text)
{
    return text && text[0] != '\0';
}

/* "12.55 GiB (13,475,438,592 B)", "1.23e+20 FLOP", "0.45" */
static void value_words(char buf[128], const struct explain_entry *e)
{
    char a[UNIT_TEXT_MAX], b[UNIT_TEXT_MAX];
    if (is_bytes(e)) {
        str_format(buf, 128, "%s", unit_format_bytes(a, e->bytes));
        if (e->bytes >= 1024)
            str_append(buf, 128, " (%s B)",
                       unit_format_grouped(b, (double)e->bytes, 0));
        return;
    }
    double size = fabs(e->value);
    bool whole = fabs(e->value - floor(e->value)) <= 0;
    int decimals = whole ? 0 : size >= 1000 ? 1 : size >= 1 ? 3 : 4;
    bool power = size >= 1e15 || (size > 0 && size < 0.01);
    const char *text = power ? unit_format_flop(a, e->value)
                             : unit_format_grouped(a, e->value, decimals);
    str_format(buf, 128, "%s%s%s", text, is_given(e->unit) ? " " : "",
               is_given(e->unit) ? e->unit : "");
}

/* "docs/method.md#eq-states; Rajbhandari et al. 2020" */
static void reference_words(char buf[TEXT_BLOCK_MAX],
                            const struct explain_entry *e)
{
    bool both = is_given(e->equation) && is_given(e->source);
    str_format(buf, TEXT_BLOCK_MAX, "%s%s%s%s",
               is_given(e->equation) ? "docs/method.md#eq-" : "",
               is_given(e->equation) ? e->equation : "", both ? "; " : "",
               is_given(e->source) ? e->source : "");
}

/* ---- text ---- */

/* A line that goes on below itself where it is longer than the terminal. */
static void text_line(struct out *o, size_t indent, enum paint paint,
                      const char *before, const char *text)
{
    size_t at = indent + out_columns(before);
    out_blanks(o, indent);
    out_text(o, before);
    if (paint != PAINT_NONE)
        out_paint(o, paint);
    out_wrap(o, at, at, text);
    if (paint != PAINT_NONE)
        out_paint(o, PAINT_NONE);
    out_text(o, "\n");
}

static void text_entry(struct out *o, const struct explain_entry *e)
{
    char value[128];
    char text[TEXT_BLOCK_MAX];
    size_t indent = 2 + 2 * (size_t)e->depth;
    value_words(value, e);
    str_format(text, sizeof(text), "%s = %s", e->name, value);
    text_line(o, indent, e->depth == 0 ? PAINT_STRONG : PAINT_NONE, "", text);
    if (is_given(e->formula))
        text_line(o, indent + 6, PAINT_NONE, "", e->formula);
    if (is_given(e->numbers))
        text_line(o, indent + 4, PAINT_NONE, "= ", e->numbers);
    reference_words(text, e);
    if (text[0] != '\0')
        text_line(o, indent + 6, PAINT_FAINT, "", text);
}

/* ---- Markdown ---- */

static void markdown_head(struct out *o)
{
    out_block(o, FORM_TABLE);
    out_text(o, "| what | value | formula | numbers | from |\n"
                "| :-- | --: | :-- | :-- | :-- |\n");
}

static void markdown_entry(struct out *o, const struct explain_entry *e)
{
    char value[128];
    value_words(value, e);
    out_text(o, "| ");
    for (unsigned i = 0; i < e->depth; i++)
        out_text(o, "&nbsp;&nbsp;");
    out_plain(o, e->name, strlen(e->name));
    out_text(o, " | ");
    out_text(o, value);
    const char *const cells[] = { e->formula, e->numbers };
    for (size_t i = 0; i < 2; i++) {
        out_text(o, " | ");
        if (is_given(cells[i]))
            out_plain(o, cells[i], strlen(cells[i]));
    }
    out_text(o, " | ");
    char reference[TEXT_BLOCK_MAX];
    reference_words(reference, e);
    out_plain(o, reference, strlen(reference));
    out_text(o, " |\n");
}

static bool same_section(const struct explanation *x, size_t a, size_t b)
{
    const char *s = x->entry[a].section, *t = x->entry[b].section;
    return s == t || strcmp(s, t) == 0;
}

/* Whether entry `at` is the first of its section from `from` on. */
static bool opens_section(const struct explanation *x, size_t from, size_t at)
{
    for (size_t i = from; i < at; i++) {
        if (same_section(x, i, at))
            return false;
    }
    return true;
}

/* The entries of first's section before `to`. */
static void write_section(struct out *o, const struct explanation *x,
                          size_t first, size_t to)
{
    bool markdown = o->format == MEMPLAN_FORMAT_MARKDOWN;
    for (size_t i = first; i < to; i++) {
        if (!same_section(x, first, i))
            continue;
        if (markdown)
            markdown_entry(o, &x->entry[i]);
        else
            text_entry(o, &x->entry[i]);
    }
}

/* A sum with its parts. The folds come to a component of it more than once;
 * people want each in one place. */
static void write_people(struct out *o, const char *model,
                         const struct explanation *x)
{
    char text[TEXT_BLOCK_MAX];
    const char *heading = "";
    str_format(text, sizeof(text), "%s%swhere each number comes from", model,
               model[0] != '\0' ? ": " : "");
    out_title(o, text);
    for (size_t from = 0, to = 0; from < x->n; from = to) {
        for (to = from + 1; to < x->n && x->entry[to].depth > 0;)
            to++;
        for (size_t i = from; i < to; i++) {
            const char *section = x->entry[i].section;
            if (!opens_section(x, from, i))
                continue;
            if (strcmp(heading, section) != 0) {
                out_heading(o, section);
                if (o->format == MEMPLAN_FORMAT_MARKDOWN)
                    markdown_head(o);
            }
            heading = section;
            write_section(o, x, i, to);
        }
    }
}

/* ---- JSON, CSV ---- */

static struct value entry_value(const struct explain_entry *e)
{
    struct value v = { .kind = VALUE_NONE, .unit = "" };
    if (is_bytes(e)) {
        v.kind = VALUE_U64;
        v.u64 = e->bytes;
    } else if (isfinite(e->value)) {
        v.kind = VALUE_REAL;
        v.real = e->value;
    }
    return v;
}

static const struct row entry_rows[] = {
    ROW_OR_NONE(struct explain_entry, formula, "formula", ""),
    ROW_OR_NONE(struct explain_entry, numbers, "numbers", ""),
    ROW_OR_NONE(struct explain_entry, equation, "equation", ""),
    ROW_OR_NONE(struct explain_entry, source, "source", ""),
};

static void write_json(struct out *o, const char *model,
                       const struct explanation *x)
{
    struct json_visitor json;
    json_visitor_init(&json, o);
    struct visitor *v = &json.base;
    v->begin(v, NULL, false);
    visit_text(v, "schema", "memplan.explain/1");
    visit_text(v, "model", model[0] != '\0' ? model : NULL);
    v->begin(v, "entries", true);
    for (size_t i = 0; i < x->n; i++) {
        const struct explain_entry *e = &x->entry[i];
        v->begin(v, NULL, false);
        visit_text(v, "section", e->section);
        visit_text(v, "name", e->name);
        visit_text(v, "unit", e->unit);
        visit_value(v, "value", entry_value(e));
        visit_rows(v, entry_rows, ROW_COUNT(entry_rows), e);
        visit_u64(v, "depth", "", e->depth);
        v->end(v, false);
    }
    v->end(v, true);
    v->end(v, false);
    json_end(&json.w);
}

static void write_csv(struct out *o, const struct explanation *x)
{
    static const char *const names[] = { "section",  "name",    "value",
                                         "unit",     "formula", "numbers",
                                         "equation", "source",  "depth" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        out_csv(o, i == 0, names[i]);
    out_csv_end(o);
    for (size_t i = 0; i < x->n; i++) {
        const struct explain_entry *e = &x->entry[i];
        char value[VALUE_TEXT_MAX], depth[VALUE_TEXT_MAX];
        str_format(depth, sizeof(depth), "%u", e->depth);
        const char *const cells[] = {
            e->section,  e->name,    value_text(value, entry_value(e)),
            e->unit,     e->formula, e->numbers,
            e->equation, e->source,  depth,
        };
        for (size_t c = 0; c < sizeof(cells) / sizeof(cells[0]); c++)
            out_csv(o, c == 0, cells[c] ? cells[c] : "");
        out_csv_end(o);
    }
}

void explain_write(struct out *o, const struct memplan_report *report,
                   const struct explanation *x)
{
    const char *model =
        report->has_model && report->spec.name ? report->spec.name : "";
    switch (o->format) {
    case MEMPLAN_FORMAT_TABLE:
    case MEMPLAN_FORMAT_MARKDOWN: write_people(o, model, x); break;
    case MEMPLAN_FORMAT_JSON: write_json(o, model, x); break;
    case MEMPLAN_FORMAT_CSV: write_csv(o, x); break;
    case MEMPLAN_FORMAT_SVG: out_no_picture(o); break;
    }
}
