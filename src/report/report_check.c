/*
 * Owns how the results of a check look: a line a case.
 */
#include "base/unit.h"
#include "plan/check.h"
#include "report/report_rows.h"

#include <math.h>
#include <string.h>

#include "base/banned.h"

enum { DECIMALS_MOST = 9 }; /* of unit_format_grouped() */

static int decimals_of(double x)
{
    if (fabs(x) >= 1000 || !(x > floor(x)))
        return 0;
    return fabs(x) < 1 ? 4 : 2;
}

/* "41.20 GiB", and past DECIMALS_MOST "44,238,213,120 B" */
static void bytes_words(char buf[UNIT_TEXT_MAX], double x, int decimals)
{
    char plain[UNIT_TEXT_MAX];
    if (decimals < DECIMALS_MOST)
        unit_format_bytes(plain, (uint64_t)fabs(x));
    else
        str_format(plain, sizeof plain, "%s B",
                   unit_format_grouped(buf, fabs(x), 0));
    str_format(buf, UNIT_TEXT_MAX, "%s%s", x < 0 ? "-" : "", plain);
}

/* "6,738,415,616", "0.45", "true"; of what is not whole so many decimals, or
 * as many as it has by itself. */
static void number_words(char buf[UNIT_TEXT_MAX], memplan_type type, double x,
                         int decimals)
{
    const bool whole = !(x > floor(x));
    if (type == MEMPLAN_TYPE_BOOL)
        str_format(buf, UNIT_TEXT_MAX, "%s", x > 0 ? "true" : "false");
    else if (type == MEMPLAN_TYPE_BYTES)
        bytes_words(buf, x, decimals);
    else
        unit_format_grouped(buf, x,
                            whole          ? 0
                            : decimals < 0 ? decimals_of(x)
                                           : decimals);
}

/* Bytes are whole: 5 % of a GPU is rounded so that the same holds. */
static double whole_bytes(const struct outcome *o, double x)
{
    return o->limit.assertion->relation == AT_LEAST ? ceil(x) : floor(x);
}

/* With which decimals a figure and its limit are not the same; -1: their own.
 * "9,006 > 9,006" and "1.00 > 1" say nothing. */
static int decimals_apart(const struct outcome *o)
{
    const memplan_type type = o->limit.assertion->told.type;
    const double a = o->actual, b = o->limit.value;
    char one[UNIT_TEXT_MAX], other[UNIT_TEXT_MAX];
    if (type == MEMPLAN_TYPE_BYTES) {
        bytes_words(one, a, 0);
        bytes_words(other, b, 0);
        return strcmp(one, other) == 0 ? DECIMALS_MOST : -1;
    }
    const int own = (int)fmax(decimals_of(a), decimals_of(b));
    int n = own;
    for (; n < DECIMALS_MOST; n++) {
        unit_format_grouped(one, a, n);
        unit_format_grouped(other, b, n);
        if (strcmp(one, other) != 0)
            break;
    }
    return n > own ? n : -1;
}

static const char *relation_words(enum relation relation, bool ok)
{
    switch (relation) {
    case AT_MOST: return ok ? "<=" : ">";
    case AT_LEAST: return ok ? ">=" : "<";
    case IS: return ok ? "is" : "is not";
    }
    return "";
}

/* "memory.device_total 41.20 GiB <= 70.00 GiB" */
static void append_outcome(char *text, size_t size, const struct outcome *o)
{
    const memplan_assertion *told = &o->limit.assertion->told;
    char actual[UNIT_TEXT_MAX], limit[UNIT_TEXT_MAX];
    const int decimals = o->ok ? -1 : decimals_apart(o);
    number_words(actual, told->type, o->actual, decimals);
    number_words(limit, told->type,
                 told->type == MEMPLAN_TYPE_BYTES
                     ? whole_bytes(o, o->limit.value)
                     : o->limit.value,
                 decimals);
    if (!o->known)
        str_append(text, size, "%s is not known (%s)", told->path, told->name);
    else if (told->type == MEMPLAN_TYPE_BOOL)
        str_append(text, size, "%s %s %s", told->path,
                   relation_words(IS, o->ok), limit);
    else
        str_append(text, size, "%s %s %s %s", told->path, actual,
                   relation_words(o->limit.assertion->relation, o->ok), limit);
}

/* The outcome that decides: the first that fails, else the first. */
static const struct outcome *decisive(const struct check_case *c)
{
    for (size_t i = 0; i < c->n; i++) {
        if (!c->outcome[i].ok)
            return &c->outcome[i];
    }
    return &c->outcome[0];
}

/* ---- text: of a failure, what failed; of a success, all ---- */

static void write_line(struct out *o, const struct check_case *c)
{
    bool first = true;
    out_paint(o, c->ok ? PAINT_GOOD : PAINT_BAD);
    out_text(o, c->ok ? "ok" : "FAIL");
    out_paint(o, PAINT_NONE);
    out_text(o, c->ok ? "   " : " ");
    out_plain(o, c->name, str_of(c->name).n);
    for (size_t i = 0; i < c->n; i++) {
        char text[160] = "";
        if (c->outcome[i].ok != c->ok)
            continue;
        append_outcome(text, sizeof(text), &c->outcome[i]);
        out_text(o, first ? ": " : ", ");
        out_text(o, text);
        first = false;
    }
    out_text(o, "\n");
}

static void fill_cases(struct table *t, const void *ctx)
{
    const memplan_check *check = ctx;
    for (const struct check_case *c = check->first; c; c = c->next) {
        for (size_t i = 0; i < c->n; i++) {
            char text[160] = "";
            append_outcome(text, sizeof(text), &c->outcome[i]);
            table_row(t, 0, c->outcome[i].ok ? PAINT_NONE : PAINT_BAD);
            table_cell(t, c->outcome[i].ok ? "ok" : "FAIL");
            table_cell(t, c->name);
            table_cell(t, text);
            table_end_row(t);
        }
    }
}

static void write_markdown(struct out *o, const memplan_check *check)
{
    static const struct column columns[] = {
        { "", COLUMN_LEFT },
        { "case", COLUMN_LEFT },
        { "what holds", COLUMN_LEFT },
    };
    table_write(o, columns, sizeof(columns) / sizeof(columns[0]), fill_cases,
                check);
}

/* ---- JSON, CSV ---- */

static struct value number_value(const struct outcome *o, double x, bool known)
{
    struct value v = { .kind = VALUE_NONE, .unit = "" };
    if (!known)
        return v;
    if (o->limit.assertion->told.type == MEMPLAN_TYPE_BOOL) {
        v.kind = VALUE_BOOL;
        v.truth = x > 0;
    } else if (o->limit.assertion->told.type == MEMPLAN_TYPE_BYTES
               && fabs(x) < 0x1p63) {
        v.kind = VALUE_I64;
        v.i64 = (int64_t)whole_bytes(o, x);
    } else {
        v.kind = VALUE_REAL;
        v.real = x;
    }
    return v;
}

static void visit_outcome(struct visitor *v, const struct outcome *o)
{
    visit_text(v, "assertion", o->limit.assertion->told.name);
    visit_text(v, "path", o->limit.assertion->told.path);
    visit_value(v, "actual", number_value(o, o->actual, o->known));
    visit_value(v, "limit", number_value(o, o->limit.value, true));
}

static void visit_case(struct visitor *v, const struct check_case *c)
{
    v->begin(v, NULL, false);
    visit_text(v, "name", c->name);
    visit_bool(v, "ok", c->ok);
    visit_outcome(v, decisive(c));
    v->begin(v, "assertions", true);
    for (size_t i = 0; i < c->n; i++) {
        v->begin(v, NULL, false);
        visit_bool(v, "ok", c->outcome[i].ok);
        visit_outcome(v, &c->outcome[i]);
        v->end(v, false);
    }
    v->end(v, true);
    v->end(v, false);
}

static void write_json(struct out *o, const memplan_check *check)
{
    struct json_visitor json;
    json_visitor_init(&json, o);
    struct visitor *v = &json.base;
    v->begin(v, NULL, false);
    visit_text(v, "schema", "memplan.check/1");
    v->begin(v, "cases", true);
    for (const struct check_case *c = check->first; c; c = c->next)
        visit_case(v, c);
    v->end(v, true);
    v->end(v, false);
    json_end(&json.w);
}

static void write_csv(struct out *o, const memplan_check *check)
{
    out_text(o, "name,ok,assertion,actual,limit");
    out_csv_end(o);
    for (const struct check_case *c = check->first; c; c = c->next) {
        for (size_t i = 0; i < c->n; i++) {
            const struct outcome *x = &c->outcome[i];
            char actual[VALUE_TEXT_MAX], limit[VALUE_TEXT_MAX];
            out_csv(o, true, c->name);
            out_csv(o, false, x->ok ? "true" : "false");
            out_csv(o, false, x->limit.assertion->told.name);
            out_csv(o, false,
                    value_text(actual, number_value(x, x->actual, x->known)));
            out_csv(o, false,
                    value_text(limit, number_value(x, x->limit.value, true)));
            out_csv_end(o);
        }
    }
}

memplan_status memplan_check_write(const memplan_check *check,
                                   const memplan_style *style,
                                   memplan_write_fn *write, void *ctx,
                                   memplan_errors *errs)
{
    struct out o;
    out_init(&o, style, write, ctx);
    switch (o.format) {
    case MEMPLAN_FORMAT_TABLE:
        for (const struct check_case *c = check->first; c; c = c->next)
            write_line(&o, c);
        break;
    case MEMPLAN_FORMAT_JSON: write_json(&o, check); break;
    case MEMPLAN_FORMAT_CSV: write_csv(&o, check); break;
    case MEMPLAN_FORMAT_MARKDOWN: write_markdown(&o, check); break;
    case MEMPLAN_FORMAT_SVG: out_no_picture(&o); break;
    }
    return out_close(&o, errs);
}
