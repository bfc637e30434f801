/*
 * Owns JSON as it leaves: commas, indentation, escapes. What it writes is
 * always valid JSON, whatever bytes a string holds. Refuses to know where it
 * goes, and to check that the caller closes what he opened.
 */
#include "json/json_scan.h"

#include "base/unit.h"

#include <math.h>
#include <string.h>

#include "base/banned.h"

static void emit(struct json_writer *w, const char *text, size_t len)
{
    if (!w->failed && len > 0 && !w->write(w->ctx, text, len))
        w->failed = true;
}

static void emit_text(struct json_writer *w, const char *text)
{
    emit(w, text, strlen(text));
}

static void new_line(struct json_writer *w)
{
    if (!w->pretty)
        return;
    emit_text(w, "\n");
    for (unsigned i = 0; i < w->depth; i++)
        emit_text(w, "  ");
}

/* What goes before a key or an element: a comma, a new line; nothing between
 * a key and its value, and nothing before the top value. */
static void separate(struct json_writer *w)
{
    if (w->after_key) {
        w->after_key = false;
        return;
    }
    if (w->depth == 0)
        return;
    if (!w->first)
        emit_text(w, ",");
    new_line(w);
    w->first = false;
}

static void emit_value(struct json_writer *w, const char *text)
{
    separate(w);
    emit_text(w, text);
}

static void begin(struct json_writer *w, const char *bracket)
{
    emit_value(w, bracket);
    w->depth++;
    w->first = true;
}

static void end(struct json_writer *w, const char *bracket)
{
    bool empty = w->first;
    w->depth--;
    w->first = false;
    if (!empty)
        new_line(w);
    emit_text(w, bracket);
}

/* The escape for a byte that cannot stand for itself; "" for one that can. */
static const char *escape_of(char c, char buf[8])
{
    switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\b': return "\\b";
    case '\f': return "\\f";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: break;
    }
    if ((unsigned char)c >= 0x20 && c != 0x7F)
        return "";
    str_format(buf, 8, "\\u%04x", (unsigned)(unsigned char)c);
    return buf;
}

static void emit_quoted(struct json_writer *w, const char *text)
{
    size_t n = strlen(text);
    size_t done = 0; /* text[done..i) can go out as it is */
    emit_text(w, "\"");
    for (size_t i = 0; i < n;) {
        char buf[8];
        size_t len = json_utf8_length(text + i, n - i);
        /* A file name may be in any encoding. */
        const char *escape = len > 0 ? escape_of(text[i], buf) : "\\ufffd";
        if (len == 0)
            len = 1;
        if (escape[0] != '\0') {
            emit(w, text + done, i - done);
            emit_text(w, escape);
            done = i + len;
        }
        i += len;
    }
    emit(w, text + done, n - done);
    emit_text(w, "\"");
}

void json_writer_init(struct json_writer *w, bool pretty,
                      memplan_write_fn *write, void *ctx)
{
    *w = (struct json_writer){ .write = write, .ctx = ctx, .pretty = pretty };
}

void json_begin_object(struct json_writer *w)
{
    begin(w, "{");
}

void json_end_object(struct json_writer *w)
{
    end(w, "}");
}

void json_begin_array(struct json_writer *w)
{
    begin(w, "[");
}

void json_end_array(struct json_writer *w)
{
    end(w, "]");
}

void json_key(struct json_writer *w, const char *key)
{
    separate(w);
    emit_quoted(w, key);
    emit_text(w, w->pretty ? ": " : ":");
    w->after_key = true;
}

void json_string(struct json_writer *w, const char *text)
{
    if (!text) {
        json_null(w);
        return;
    }
    separate(w);
    emit_quoted(w, text);
}

void json_u64(struct json_writer *w, uint64_t v)
{
    char buf[24];
    str_format(buf, sizeof(buf), "%llu", (unsigned long long)v);
    emit_value(w, buf);
}

void json_number(struct json_writer *w, double v)
{
    char buf[UNIT_TEXT_MAX];
    emit_value(w, isfinite(v) ? unit_format_double(buf, v) : "null");
}

void json_bool(struct json_writer *w, bool v)
{
    emit_value(w, v ? "true" : "false");
}

void json_null(struct json_writer *w)
{
    emit_value(w, "null");
}

void json_raw(struct json_writer *w, const char *json)
{
    emit_value(w, json);
}

void json_end(struct json_writer *w)
{
    emit_text(w, "\n");
}
