/*
 * Owns reading a value out of a struct by its table row, and handing values to
 * a visitor. Refuses to know whose rows they are.
 */
#include "report/report_rows.h"

#include "base/unit.h"

#include <math.h>
#include <string.h>

#include "base/banned.h"

static struct value none(const char *unit)
{
    return (struct value){ .kind = VALUE_NONE, .unit = unit };
}

static bool is_zero(struct value v)
{
    switch (v.kind) {
    case VALUE_U64: return v.u64 == 0;
    case VALUE_I64: return v.i64 == 0;
    case VALUE_REAL: return !(v.real > 0) && !(v.real < 0);
    case VALUE_TEXT: return v.text[0] == '\0';
    case VALUE_BOOL:
    case VALUE_NONE: break;
    }
    return false;
}

struct value row_value(const struct row *row, const void *base)
{
    struct value v = none(row->unit);
    if (!base)
        return v;
    const void *at = (const char *)base + row->offset;
    switch (row->kind) {
    case ROW_U32:
        v.kind = VALUE_U64;
        v.u64 = *(const uint32_t *)at;
        break;
    case ROW_U64:
        v.kind = VALUE_U64;
        v.u64 = *(const uint64_t *)at;
        break;
    case ROW_I64:
        v.kind = VALUE_I64;
        v.i64 = *(const int64_t *)at;
        break;
    case ROW_REAL:
        v.kind = VALUE_REAL;
        v.real = *(const double *)at;
        break;
    case ROW_BOOL:
        v.kind = VALUE_BOOL;
        v.truth = *(const bool *)at;
        break;
    case ROW_TEXT:
        v.text = *(const char *const *)at;
        v.kind = v.text ? VALUE_TEXT : VALUE_NONE;
        break;
    }
    if (v.kind == VALUE_REAL && !isfinite(v.real))
        return none(row->unit);
    return row->zero_is_none && is_zero(v) ? none(row->unit) : v;
}

void visit_rows(struct visitor *v, const struct row *row, size_t n,
                const void *base)
{
    for (size_t i = 0; i < n; i++)
        v->value(v, row[i].key, row_value(&row[i], base));
}

void visit_value(struct visitor *v, const char *key, struct value value)
{
    v->value(v, key, value);
}

/* "" is a text; NULL is none. */
void visit_text(struct visitor *v, const char *key, const char *text)
{
    struct value value = none("");
    if (text) {
        value.kind = VALUE_TEXT;
        value.text = text;
    }
    v->value(v, key, value);
}

void visit_u64(struct visitor *v, const char *key, const char *unit, uint64_t n)
{
    struct value value = none(unit);
    value.kind = VALUE_U64;
    value.u64 = n;
    v->value(v, key, value);
}

void visit_real(struct visitor *v, const char *key, const char *unit, double x)
{
    struct value value = none(unit);
    if (isfinite(x)) {
        value.kind = VALUE_REAL;
        value.real = x;
    }
    v->value(v, key, value);
}

void visit_bool(struct visitor *v, const char *key, bool truth)
{
    struct value value = none("");
    value.kind = VALUE_BOOL;
    value.truth = truth;
    v->value(v, key, value);
}

const char *value_text(char buf[VALUE_TEXT_MAX], struct value value)
{
    buf[0] = '\0';
    switch (value.kind) {
    case VALUE_NONE: break;
    case VALUE_U64:
        str_format(buf, VALUE_TEXT_MAX, "%llu", (unsigned long long)value.u64);
        break;
    case VALUE_I64:
        str_format(buf, VALUE_TEXT_MAX, "%lld", (long long)value.i64);
        break;
    case VALUE_REAL: return unit_format_double(buf, value.real);
    case VALUE_BOOL: return value.truth ? "true" : "false";
    case VALUE_TEXT: return value.text;
    }
    return buf;
}

/* ---- JSON ---- */

static void json_value(struct json_writer *w, struct value value)
{
    switch (value.kind) {
    case VALUE_NONE: json_null(w); return;
    case VALUE_U64: json_u64(w, value.u64); return;
    case VALUE_I64:
        /* Below zero a double is exact down to -2^53: 8 PiB too much. */
        if (value.i64 < 0)
            json_number(w, (double)value.i64);
        else
            json_u64(w, (uint64_t)value.i64);
        return;
    case VALUE_REAL: json_number(w, value.real); return;
    case VALUE_BOOL: json_bool(w, value.truth); return;
    case VALUE_TEXT: json_string(w, value.text); return;
    }
}

static struct json_writer *writer_of(struct visitor *v)
{
    return &((struct json_visitor *)v)->w;
}

static bool json_visit_begin(struct visitor *v, const char *key, bool array)
{
    struct json_writer *w = writer_of(v);
    if (key)
        json_key(w, key);
    if (array)
        json_begin_array(w);
    else
        json_begin_object(w);
    return true;
}

static void json_visit_end(struct visitor *v, bool array)
{
    if (array)
        json_end_array(writer_of(v));
    else
        json_end_object(writer_of(v));
}

static void json_visit_value(struct visitor *v, const char *key,
                             struct value value)
{
    if (key)
        json_key(writer_of(v), key);
    json_value(writer_of(v), value);
}

void json_visitor_init(struct json_visitor *v, struct out *o)
{
    *v = (struct json_visitor){ .base = { json_visit_begin, json_visit_end,
                                          json_visit_value } };
    json_writer_init(&v->w, true, out_sink, o);
}
