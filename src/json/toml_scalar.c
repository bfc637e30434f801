/*
 * Owns what a line of TOML is made of: blanks, comments, keys, strings and
 * numbers, exactly as TOML 1.0's grammar has them [toml.io/en/v1.0.0,
 * toml.abnf]. Refuses to know tables.
 */
#include "json/toml_scan.h"

#include "base/unit.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

enum { QUOTES = 3 /* around a string of several lines */ };

bool toml_refuse(struct toml_scan *s, size_t offset, memplan_status status,
                 const char *message, const char *hint)
{
    memplan_error *e = diag_add(s->diag, status, "%s", message);
    json_place(e, s->text, s->len, offset);
    diag_hint(e, "%s", hint);
    return false;
}

static bool refuse_syntax(struct toml_scan *s, size_t offset,
                          const char *message, const char *hint)
{
    return toml_refuse(s, offset, MEMPLAN_E_SYNTAX, message, hint);
}

/* ---- characters ---- */

static bool is_bare(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c)
           || c == '_' || c == '-';
}

/* A carriage return stands before a line feed only. */
bool toml_scan_check(struct toml_scan *s)
{
    for (size_t i = 0; i < s->len;) {
        const unsigned char c = (unsigned char)s->text[i];
        const size_t n = json_utf8_length(s->text + i, s->len - i);
        const bool ends =
            c == '\n'
            || (c == '\r' && i + 1 < s->len && s->text[i + 1] == '\n');
        if (n == 0)
            return refuse_syntax(s, i, "not UTF-8", "save the file as UTF-8");
        if ((c < 0x20 && c != '\t' && !ends) || c == 0x7f)
            return refuse_syntax(s, i, "a control character",
                                 "write \\u and its four digits, in a "
                                 "\"string\"");
        i += n;
    }
    return true;
}

char toml_peek(const struct toml_scan *s)
{
    if (s->at >= s->len)
        return '\0';
    return (char)(s->text[s->at] == '\r' ? '\n' : s->text[s->at]);
}

static bool starts(const struct toml_scan *s, const char *with)
{
    const size_t n = strlen(with);
    return s->len - s->at >= n && memcmp(s->text + s->at, with, n) == 0;
}

static void skip_newline(struct toml_scan *s)
{
    s->at += s->text[s->at] == '\r';
    s->at++;
}

void toml_skip_blanks(struct toml_scan *s)
{
    while (toml_peek(s) == ' ' || toml_peek(s) == '\t')
        s->at++;
}

bool toml_skip_end(struct toml_scan *s)
{
    if (toml_peek(s) == '#') {
        while (s->at < s->len && toml_peek(s) != '\n')
            s->at++;
    }
    if (s->at == s->len)
        return true;
    if (toml_peek(s) != '\n')
        return false;
    skip_newline(s);
    return true;
}

/* ---- strings ---- */

/* A string being read; `out` has room, since no escape is longer than what it
 * is written with. */
struct string {
    size_t begin; /* of its first quote */
    char quote;
    bool lines; /* of several lines */
    char *out;
    size_t n;
};

static void put(struct string *str, char c)
{
    str->out[str->n++] = c;
}

static void put_code(struct string *str, unsigned code)
{
    if (code < 0x80) {
        put(str, (char)code);
        return;
    }
    const unsigned more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = { 0, 0xc0, 0xe0, 0xf0 };
    put(str, (char)(lead[more] | code >> (6 * more)));
    for (unsigned i = more; i-- > 0;)
        put(str, (char)(0x80 | (code >> (6 * i) & 0x3f)));
}

/* \uXXXX or \UXXXXXXXX, at its letter. */
static bool take_code(struct toml_scan *s, struct string *str)
{
    const size_t begin = s->at - 1;
    const size_t digits = s->text[s->at] == 'u' ? 4 : 8;
    unsigned code = 0;
    s->at++;
    for (size_t i = 0; i < digits; i++, s->at++) {
        const unsigned x = s->at < s->len ? json_hex_value(s->text[s->at]) : 16;
        if (x == 16 || code > 0x10ffff)
            return refuse_syntax(s, begin, "an escape without its digits",
                                 "write \\u and 4 hexadecimal digits, or \\U "
                                 "and 8");
        code = code << 4 | x;
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return refuse_syntax(s, begin, "an escape of no character",
                             "characters go to \\U0010FFFF, without "
                             "\\uD800 to \\uDFFF");
    put_code(str, code);
    return true;
}

/* A backslash that ends a line takes all blanks and lines behind it. */
static bool take_joined(struct toml_scan *s)
{
    const size_t begin = s->at;
    toml_skip_blanks(s);
    if (s->at == s->len || toml_peek(s) != '\n') {
        s->at = begin;
        return false;
    }
    while (s->at < s->len
           && (toml_peek(s) == ' ' || toml_peek(s) == '\t'
               || toml_peek(s) == '\n'))
        s->at++;
    return true;
}

static bool take_escape(struct toml_scan *s, struct string *str)
{
    static const char from[] = "btnfr\"\\";
    static const char to[] = "\b\t\n\f\r\"\\";
    const size_t begin = s->at++;
    if (str->lines && take_joined(s))
        return true;
    const char c = toml_peek(s);
    const char *simple = c == '\0' ? NULL : strchr(from, c);
    if (c == 'u' || c == 'U')
        return take_code(s, str);
    if (simple == NULL)
        return refuse_syntax(s, begin, "not an escape",
                             "known are \\b \\t \\n \\f \\r \\\" \\\\ \\u \\U; "
                             "a 'string' has none");
    put(str, to[simple - from]);
    s->at++;
    return true;
}

/* Quotes within a string of several lines: up to two of them, and as many
 * before the three that end it. True at the end. */
static bool take_quotes(struct toml_scan *s, struct string *str)
{
    size_t n = 0;
    while (s->at < s->len && s->text[s->at] == str->quote
           && n < 2 * QUOTES - 1) {
        s->at++;
        n++;
    }
    const bool ends = n >= QUOTES;
    for (size_t i = ends ? QUOTES : 0; i < n; i++)
        put(str, str->quote);
    return ends;
}

static bool refuse_open(struct toml_scan *s, const struct string *str)
{
    return refuse_syntax(s, str->begin, "a string without its end",
                         str->lines ? "close it with three quotes"
                                    : "close it on its line, or open it with "
                                      "three quotes");
}

static bool take_rest(struct toml_scan *s, struct string *str)
{
    while (s->at < s->len) {
        const char c = s->text[s->at];
        const bool newline = c == '\n' || c == '\r';
        if (newline && !str->lines)
            return refuse_open(s, str);
        if (newline) {
            skip_newline(s);
            put(str, '\n');
        } else if (c == str->quote && !str->lines) {
            s->at++;
            return true;
        } else if (c == str->quote) {
            if (take_quotes(s, str))
                return true;
        } else if (c == '\\' && str->quote == '"') {
            if (!take_escape(s, str))
                return false;
        } else {
            put(str, c);
            s->at++;
        }
    }
    return refuse_open(s, str);
}

/* At most as long as what is left, which the end bounds: a longer file of many
 * strings would else take the square of its length. */
static size_t room_for(const struct toml_scan *s, const struct string *str)
{
    size_t i = s->at;
    size_t run = 0;
    const size_t wanted = str->lines ? QUOTES : 1;
    for (; i < s->len && run < wanted; i++) {
        if (!str->lines && s->text[i] == '\n')
            break;
        run = s->text[i] == str->quote ? run + 1 : 0;
        if (s->text[i] == '\\' && str->quote == '"')
            i++;
    }
    return i - s->at + QUOTES;
}

static bool take_string(struct toml_scan *s, bool may_have_lines,
                        struct str *out)
{
    struct string str = { .begin = s->at, .quote = s->text[s->at] };
    str.lines = starts(s, str.quote == '"' ? "\"\"\"" : "'''");
    if (str.lines && !may_have_lines)
        return refuse_syntax(s, s->at, "a key of several lines",
                             "write it between single quotes");
    s->at += str.lines ? QUOTES : 1;
    if (str.lines && s->at < s->len && toml_peek(s) == '\n')
        skip_newline(s);
    str.out = arena_alloc(s->arena, room_for(s, &str) + 1, 1);
    if (str.out == NULL) {
        diag_nomem(s->diag);
        return false;
    }
    if (!take_rest(s, &str))
        return false;
    str.out[str.n] = '\0';
    *out = (struct str){ str.out, str.n };
    return true;
}

bool toml_take_key(struct toml_scan *s, struct str *out)
{
    const size_t begin = s->at;
    if (toml_peek(s) == '"' || toml_peek(s) == '\'')
        return take_string(s, false, out);
    while (s->at < s->len && is_bare(s->text[s->at]))
        s->at++;
    if (s->at == begin)
        return refuse_syntax(s, begin, "a key is expected here",
                             "of A-Z a-z 0-9 _ and -, or in quotes");
    const char *copy = arena_copy(s->arena, s->text + begin, s->at - begin);
    if (copy == NULL) {
        diag_nomem(s->diag);
        return false;
    }
    *out = (struct str){ copy, s->at - begin };
    return true;
}

/* ---- dates and times ---- */

/* `n` digits of a number within bounds, taken off the front. */
static bool take_digits(struct str *w, size_t n, unsigned least, unsigned most)
{
    unsigned x = 0;
    if (w->n < n)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!is_digit(w->p[i]))
            return false;
        x = x * 10 + (unsigned)(w->p[i] - '0');
    }
    *w = (struct str){ w->p + n, w->n - n };
    return x >= least && x <= most;
}

static bool take_byte(struct str *w, const char *any)
{
    if (w->n == 0 || strchr(any, w->p[0]) == NULL)
        return false;
    *w = (struct str){ w->p + 1, w->n - 1 };
    return true;
}

static unsigned two(const char *p)
{
    return (unsigned)(p[0] - '0') * 10 + (unsigned)(p[1] - '0');
}

static bool take_date(struct str *w)
{
    static const unsigned char days[] = { 31, 29, 31, 30, 31, 30,
                                          31, 31, 30, 31, 30, 31 };
    const char *p = w->p;
    if (!take_digits(w, 4, 0, 9999) || !take_byte(w, "-")
        || !take_digits(w, 2, 1, 12) || !take_byte(w, "-")
        || !take_digits(w, 2, 1, 31))
        return false;
    const unsigned year = two(p) * 100 + two(p + 2);
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    const unsigned month = two(p + 5);
    return two(p + 8) <= days[month - 1]
           && (leap || month != 2 || two(p + 8) <= 28);
}

/* A leap second is the 60th. */
static bool take_time(struct str *w)
{
    if (!take_digits(w, 2, 0, 23) || !take_byte(w, ":")
        || !take_digits(w, 2, 0, 59) || !take_byte(w, ":")
        || !take_digits(w, 2, 0, 60))
        return false;
    if (!take_byte(w, "."))
        return true;
    bool any = false;
    while (take_digits(w, 1, 0, 9))
        any = true;
    return any;
}

static bool take_offset(struct str *w)
{
    if (w->n == 0 || take_byte(w, "Zz"))
        return true;
    return take_byte(w, "+-") && take_digits(w, 2, 0, 23) && take_byte(w, ":")
           && take_digits(w, 2, 0, 59);
}

/* "2026-11-22", "07:32:00.5", both, with an offset or without. */
static bool is_time(struct str w)
{
    struct str date = w, time = w;
    if (take_time(&time))
        return time.n == 0;
    if (!take_date(&date))
        return false;
    return date.n == 0
           || (take_byte(&date, "Tt ") && take_time(&date) && take_offset(&date)
               && date.n == 0);
}

/* ---- numbers ---- */

/* Digits of a base with '_' between them, copied without it; the count. */
static size_t copy_digits(struct str *w, unsigned base, char *out)
{
    size_t n = 0;
    bool after_digit = false;
    while (w->n > 0) {
        const char c = w->p[0];
        const bool digit = json_hex_value(c) < base;
        if (!digit
            && !(c == '_' && after_digit && w->n > 1
                 && json_hex_value(w->p[1]) < base))
            break;
        if (digit)
            out[n++] = c;
        after_digit = digit;
        *w = (struct str){ w->p + 1, w->n - 1 };
    }
    return n;
}

enum parsed { PARSED, NOT_ONE, TOO_LARGE };

/* 0x, 0o and 0b, behind their two characters. */
static enum parsed take_based(struct str w, unsigned base, char *out,
                              size_t size)
{
    uint64_t x = 0;
    const size_t n = copy_digits(&w, base, out);
    if (n == 0 || w.n > 0)
        return NOT_ONE;
    for (size_t i = 0; i < n; i++) {
        if (x > (uint64_t)INT64_MAX / base)
            return TOO_LARGE;
        x = x * base + json_hex_value(out[i]);
    }
    if (x > (uint64_t)INT64_MAX)
        return TOO_LARGE;
    str_format(out, size, "%" PRIu64, x);
    return PARSED;
}

static bool is_beyond(const char *digits, size_t n, bool negative)
{
    const char *most = negative ? "9223372036854775808" : "9223372036854775807";
    const size_t length = strlen(most);
    return n > length || (n == length && memcmp(digits, most, n) > 0);
}

static enum parsed take_decimal(struct str w, char *out)
{
    char *p = out;
    const bool negative = w.n > 0 && w.p[0] == '-';
    if (negative)
        *p++ = '-';
    take_byte(&w, "+-");
    const char *digits = p;
    const size_t whole = copy_digits(&w, 10, p);
    if (whole == 0 || (whole > 1 && digits[0] == '0'))
        return NOT_ONE;
    p += whole;
    if (w.n == 0) {
        *p = '\0';
        return is_beyond(digits, whole, negative) ? TOO_LARGE : PARSED;
    }
    if (take_byte(&w, ".")) {
        *p++ = '.';
        const size_t n = copy_digits(&w, 10, p);
        if (n == 0)
            return NOT_ONE;
        p += n;
    }
    if (take_byte(&w, "eE")) {
        *p++ = 'e';
        if (w.n > 0 && w.p[0] == '-')
            *p++ = '-';
        take_byte(&w, "+-");
        const size_t n = copy_digits(&w, 10, p);
        if (n == 0)
            return NOT_ONE;
        p += n;
    }
    *p = '\0';
    return w.n == 0 ? PARSED : NOT_ONE;
}

static enum parsed take_number(struct str w, char *out, size_t size)
{
    static const struct {
        const char *prefix;
        unsigned base;
    } bases[] = { { "0x", 16 }, { "0o", 8 }, { "0b", 2 } };
    for (size_t i = 0; i < sizeof(bases) / sizeof(bases[0]); i++) {
        if (w.n > 2 && memcmp(w.p, bases[i].prefix, 2) == 0)
            return take_based((struct str){ w.p + 2, w.n - 2 }, bases[i].base,
                              out, size);
    }
    return take_decimal(w, out);
}

static void skip_word(struct toml_scan *s)
{
    while (s->at < s->len
           && (is_bare(s->text[s->at]) || memchr("+.:", s->text[s->at], 3)))
        s->at++;
}

/* The word at hand. A date may be followed by a blank and a time. */
static struct str take_word(struct toml_scan *s)
{
    struct str w = { s->text + s->at, 0 };
    skip_word(s);
    w.n = (size_t)(s->text + s->at - w.p);
    struct str date = w;
    const bool time_follows =
        take_date(&date) && date.n == 0 && s->len - s->at > 3
        && s->text[s->at] == ' ' && is_digit(s->text[s->at + 1])
        && is_digit(s->text[s->at + 2]) && s->text[s->at + 3] == ':';
    if (!time_follows)
        return w;
    s->at++;
    skip_word(s);
    w.n = (size_t)(s->text + s->at - w.p);
    return w;
}

static bool is_unbounded(struct str w)
{
    if (w.n > 0 && (w.p[0] == '+' || w.p[0] == '-'))
        w = (struct str){ w.p + 1, w.n - 1 };
    return str_is(w, "inf") || str_is(w, "nan");
}

static bool take_plain(struct toml_scan *s, struct json *v)
{
    enum { ROOM = 24 /* of 64 bits in base ten, at least */ };
    const size_t begin = s->at;
    const struct str w = take_word(s);
    char *text = arena_alloc(s->arena, w.n + ROOM, 1);
    if (text == NULL) {
        diag_nomem(s->diag);
        return false;
    }
    if (str_is(w, "true") || str_is(w, "false")) {
        v->kind = JSON_BOOL;
        v->truth = w.n == 4;
        return true;
    }
    if (is_unbounded(w) || is_time(w)) {
        memcpy(text, w.p, w.n);
        v->kind = JSON_STRING;
        v->text = (struct str){ text, w.n };
        return true;
    }
    enum parsed how = take_number(w, text, w.n + ROOM);
    v->kind = JSON_NUMBER;
    v->text = str_of(text);
    if (how == PARSED && unit_parse_real(v->text, &v->number) != UNIT_OK)
        how = TOO_LARGE;
    switch (how) {
    case PARSED: return true;
    case NOT_ONE:
        return refuse_syntax(s, begin, "not a value",
                             "write a \"string\" in quotes, a number, true, "
                             "false, a date, [...] or {...}");
    case TOO_LARGE:
        return toml_refuse(s, begin, MEMPLAN_E_RANGE,
                           "a number that is too large",
                           "whole numbers have 64 bits");
    }
    return false;
}

bool toml_take_scalar(struct toml_scan *s, struct json *v)
{
    if (toml_peek(s) != '"' && toml_peek(s) != '\'')
        return take_plain(s, v);
    v->kind = JSON_STRING;
    return take_string(s, true, &v->text);
}
