/*
 * Owns what JSON is: RFC 8259 to the letter, as a scanner without recursion
 * and with a depth limit, and the words for what is wrong with a text. Refuses
 * to know what the values mean, and to accept anything for kindness. Bytes and
 * characters are json_text.c's.
 */
#include "json/json_scan.h"

#include <stdarg.h>
#include <string.h>

#include "base/banned.h"

/* ---- bytes ---- */

static bool is_word_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c)
           || c == '_';
}

/* ---- what is wrong ---- */

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static memplan_error *
syntax_error(struct json_scan *s, size_t at, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    memplan_error *e = diag_vadd(s->diag, MEMPLAN_E_SYNTAX, format, args);
    va_end(args);
    json_place(e, s->text, s->len, at);
    return e;
}

/* The word at a place, a '-' before it included; empty when there is none. */
static struct str word_at(const struct json_scan *s, size_t at)
{
    size_t end = at;
    if (end < s->len && s->text[end] == '-')
        end++;
    if (end < s->len && is_digit(s->text[end]))
        return (struct str){ s->text + at, 0 };
    size_t begin = end;
    while (end < s->len && is_word_byte(s->text[end]))
        end++;
    return (struct str){ s->text + at, end > begin ? end - at : 0 };
}

enum { FOUND_MAX = 48 };

static void describe_found(const struct json_scan *s, size_t at,
                           char buf[FOUND_MAX])
{
    if (at >= s->len) {
        str_format(buf, FOUND_MAX, "the end of the text");
        return;
    }
    const char *p = s->text + at;
    struct str word = word_at(s, at);
    size_t len = json_utf8_length(p, s->len - at);
    if (word.n > 24)
        str_format(buf, FOUND_MAX, "'%.24s...'", p);
    else if (word.n > 0)
        str_format(buf, FOUND_MAX, "'%.*s'", (int)word.n, p);
    else if (*p == '"')
        str_format(buf, FOUND_MAX, "a string");
    else if (*p > 0x20 && *p < 0x7F)
        str_format(buf, FOUND_MAX, "'%c'", *p);
    else if (len > 1)
        str_format(buf, FOUND_MAX, "character U+%04X",
                   json_utf8_decode(p, len));
    else
        str_format(buf, FOUND_MAX, "byte 0x%02X", (unsigned)(unsigned char)*p);
}

static const char *expected_text(enum json_expect expect)
{
    switch (expect) {
    case JSON_EXPECT_VALUE: return "a value";
    case JSON_EXPECT_FIRST_ELEMENT: return "a value or ']'";
    case JSON_EXPECT_FIRST_KEY: return "a key in double quotes or '}'";
    case JSON_EXPECT_KEY: return "a key in double quotes";
    case JSON_EXPECT_COLON: return "':' after the key";
    case JSON_EXPECT_ARRAY_MORE: return "',' or ']'";
    case JSON_EXPECT_OBJECT_MORE: return "',' or '}'";
    case JSON_EXPECT_END: return "nothing after the value";
    }
    return "a value";
}

/* Words of other languages, with what JSON writes. */
static const struct {
    const char *word;
    const char *hint;
} foreign_words[] = {
    { "None", "write null" },      { "nil", "write null" },
    { "undefined", "write null" }, { "Null", "write null" },
    { "NULL", "write null" },      { "True", "write true" },
    { "TRUE", "write true" },      { "False", "write false" },
    { "FALSE", "write false" },
};

static bool is_not_finite(struct str word)
{
    static const char *const words[] = { "NaN", "Infinity", "inf" };
    if (word.n > 0 && word.p[0] == '-')
        word = (struct str){ word.p + 1, word.n - 1 };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (str_same_name(word, str_of(words[i])))
            return true;
    }
    return false;
}

static const char *hint_for_word(enum json_expect expect, struct str word)
{
    for (size_t i = 0; i < sizeof(foreign_words) / sizeof(*foreign_words); i++)
        if (str_is(word, foreign_words[i].word))
            return foreign_words[i].hint;
    if (expect == JSON_EXPECT_KEY || expect == JSON_EXPECT_FIRST_KEY)
        return "put the key in double quotes";
    if (expect == JSON_EXPECT_VALUE || expect == JSON_EXPECT_FIRST_ELEMENT)
        return "put text in double quotes; the bare words are true, false "
               "and null";
    return "";
}

static const char *hint_for_character(unsigned code)
{
    switch (code) {
    case '\'': return "strings and keys take double quotes";
    case '/':
    case '#': return "JSON has no comments; remove it";
    case '=': return "write ':' between key and value";
    case ';': return "write ','";
    case ',': return "remove the extra comma";
    case '+': return "write the number without '+'";
    case '.': return "write a digit before the point, such as 0.5";
    case 0x00:
        return "this looks like a binary or UTF-16 file; save it as "
               "UTF-8 text";
    case 0x2018:
    case 0x2019:
    case 0x201C:
    case 0x201D: return "write straight double quotes";
    case 0xA0:
    case 0x0B:
    case 0x0C:
    case 0x200B:
    case 0x2060:
    case 0xFEFF: return "remove the invisible character";
    default: return "";
    }
}

static bool starts_value(char c)
{
    return c == '"' || c == '{' || c == '[' || c == '-' || is_word_byte(c);
}

static void hint_unexpected(struct json_scan *s, memplan_error *e, size_t at)
{
    if (at >= s->len) {
        if (s->depth > 0) {
            size_t open = s->open[s->depth - 1];
            diag_hint(e, "the '%c' on line %u is not closed", s->text[open],
                      (unsigned)json_line(s->text, s->len, open));
        }
        return;
    }
    const char *p = s->text + at;
    struct str word = word_at(s, at);
    size_t len = json_utf8_length(p, s->len - at);
    const char *hint = "";
    if (word.n > 0)
        hint = hint_for_word(s->expect, word);
    else if (len > 0)
        hint = hint_for_character(json_utf8_decode(p, len));
    else
        hint = "save the file as UTF-8";

    bool more = s->expect == JSON_EXPECT_ARRAY_MORE
                || s->expect == JSON_EXPECT_OBJECT_MORE;
    if (more && starts_value(*p))
        hint = "put a comma before it";
    else if (s->expect == JSON_EXPECT_END && hint[0] == '\0')
        hint = "a file holds one value; remove what follows it";
    diag_hint(e, "%s", hint);
}

static enum json_token unexpected(struct json_scan *s, size_t at)
{
    bool value = s->expect == JSON_EXPECT_VALUE
                 || s->expect == JSON_EXPECT_FIRST_ELEMENT;
    struct str word = word_at(s, at);
    if (value && is_not_finite(word)) {
        memplan_error *e = syntax_error(s, at, "JSON has no number '%.*s'",
                                        (int)word.n, word.p);
        diag_hint(e, "write null, or leave the key out");
        return JSON_TOKEN_ERROR;
    }
    char found[FOUND_MAX];
    describe_found(s, at, found);
    memplan_error *e = syntax_error(s, at, "expected %s, found %s",
                                    expected_text(s->expect), found);
    hint_unexpected(s, e, at);
    return JSON_TOKEN_ERROR;
}

/* ---- tokens ---- */

void json_scan_init(struct json_scan *s, const char *text, size_t len,
                    struct diag *d)
{
    memset(s, 0, sizeof(*s));
    s->text = len > 0 ? text : "";
    s->len = len;
    s->expect = JSON_EXPECT_VALUE;
    s->diag = d;
}

static void skip_blanks(struct json_scan *s)
{
    while (s->pos < s->len) {
        char c = s->text[s->pos];
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r')
            return;
        s->pos++;
    }
}

static enum json_expect after_value(const struct json_scan *s)
{
    if (s->depth == 0)
        return JSON_EXPECT_END;
    return s->text[s->open[s->depth - 1]] == '{' ? JSON_EXPECT_OBJECT_MORE
                                                 : JSON_EXPECT_ARRAY_MORE;
}

static enum json_token finish(struct json_scan *s, size_t end,
                              enum json_token token)
{
    s->pos = end;
    s->end = end;
    s->expect = after_value(s);
    return token;
}

/* Files that are not UTF-8 text at all fail at their first byte, where a
 * message about an unexpected character would explain nothing. */
static bool check_beginning(struct json_scan *s)
{
    const char *t = s->text;
    if (s->len >= 3 && memcmp(t, "\xEF\xBB\xBF", 3) == 0) {
        memplan_error *e =
            syntax_error(s, 0, "the text starts with a UTF-8 byte order mark");
        diag_hint(e, "save the file as UTF-8 without byte order mark (BOM)");
        return false;
    }
    bool mark =
        s->len >= 2
        && (memcmp(t, "\xFF\xFE", 2) == 0 || memcmp(t, "\xFE\xFF", 2) == 0);
    bool zeros = s->len >= 2 && (t[0] == '\0') != (t[1] == '\0');
    if (mark || zeros) {
        memplan_error *e = syntax_error(s, 0, "the text is UTF-16, not UTF-8");
        diag_hint(e, "save the file as UTF-8 without byte order mark (BOM)");
        return false;
    }
    return true;
}

static enum json_token scan_open(struct json_scan *s)
{
    if (s->depth == JSON_MAX_DEPTH) {
        syntax_error(s, s->pos, "nested deeper than %d levels",
                     (int)JSON_MAX_DEPTH);
        return JSON_TOKEN_ERROR;
    }
    s->open[s->depth++] = s->pos;
    s->end = ++s->pos;
    if (s->text[s->start] == '{') {
        s->expect = JSON_EXPECT_FIRST_KEY;
        return JSON_TOKEN_OBJECT;
    }
    s->expect = JSON_EXPECT_FIRST_ELEMENT;
    return JSON_TOKEN_ARRAY;
}

static enum json_token scan_close(struct json_scan *s)
{
    enum json_token token =
        s->text[s->pos] == '}' ? JSON_TOKEN_OBJECT_END : JSON_TOKEN_ARRAY_END;
    s->depth--;
    return finish(s, s->pos + 1, token);
}

static enum json_token scan_literal(struct json_scan *s)
{
    struct str word = word_at(s, s->pos);
    if (str_is(word, "Infinity"))
        return finish(s, s->pos + word.n, JSON_TOKEN_NUMBER);
    if (str_is(word, "true"))
        return finish(s, s->pos + 4, JSON_TOKEN_TRUE);
    if (str_is(word, "false"))
        return finish(s, s->pos + 5, JSON_TOKEN_FALSE);
    if (str_is(word, "null"))
        return finish(s, s->pos + 4, JSON_TOKEN_NULL);
    return unexpected(s, s->pos);
}

static size_t skip_digits(const struct json_scan *s, size_t p)
{
    while (p < s->len && is_digit(s->text[p]))
        p++;
    return p;
}

static enum json_token bad_number(struct json_scan *s, size_t at,
                                  const char *what, const char *hint)
{
    char found[FOUND_MAX];
    describe_found(s, at, found);
    memplan_error *e =
        syntax_error(s, at, "expected %s, found %s", what, found);
    diag_hint(e, "%s", hint);
    return JSON_TOKEN_ERROR;
}

static enum json_token scan_number(struct json_scan *s)
{
    const char *t = s->text;
    if (str_is(word_at(s, s->pos), "-Infinity"))
        return finish(s, s->pos + strlen("-Infinity"), JSON_TOKEN_NUMBER);
    size_t p = s->pos + (t[s->pos] == '-');
    size_t whole = p;
    p = skip_digits(s, p);
    if (p == whole)
        return word_at(s, s->pos).n > 0
                   ? unexpected(s, s->pos)
                   : bad_number(s, p, "a digit after '-'", "");
    if (t[whole] == '0' && p > whole + 1) {
        memplan_error *e =
            syntax_error(s, whole, "a number must not start with 0");
        diag_hint(e, "remove the leading zeros");
        return JSON_TOKEN_ERROR;
    }
    if (p < s->len && t[p] == '.') {
        size_t fraction = ++p;
        p = skip_digits(s, p);
        if (p == fraction)
            return bad_number(s, p, "a digit after the decimal point",
                              "write 1.0 or 1");
    }
    if (p < s->len && (t[p] == 'e' || t[p] == 'E')) {
        p++;
        p += p < s->len && (t[p] == '+' || t[p] == '-');
        size_t power = p;
        p = skip_digits(s, p);
        if (p == power)
            return bad_number(s, p, "a digit in the exponent",
                              "write 1e9, in digits");
    }
    if (p < s->len
        && (is_word_byte(t[p]) || t[p] == '.' || t[p] == '+' || t[p] == '-'))
        return bad_number(s, p, "the number to end",
                          "write the number in decimal digits, or put text "
                          "in double quotes");
    return finish(s, p, JSON_TOKEN_NUMBER);
}

/* Four hexadecimal digits; above 0xFFFF when they are not there. */
static unsigned scan_hex4(const struct json_scan *s, size_t at)
{
    unsigned code = 0;
    if (s->len - at < 4)
        return 0x10000;
    for (size_t i = at; i < at + 4; i++) {
        unsigned v = json_hex_value(s->text[i]);
        if (v > 15)
            return 0x10000;
        code = code << 4 | v;
    }
    return code;
}

/* The escape at p; returns the place behind it, or 0 after reporting. */
static size_t scan_escape(struct json_scan *s, size_t p)
{
    const char *t = s->text;
    char c = p + 1 < s->len ? t[p + 1] : '\0';
    if (c != '\0' && strchr("\"\\/bfnrt", c))
        return p + 2;
    if (c != 'u') {
        bool plain = c > 0x20 && c < 0x7F;
        memplan_error *e =
            syntax_error(s, p, "unknown escape \\%.*s", plain ? 1 : 0, &c);
        diag_hint(e, "write a backslash as \\\\; the escapes are "
                     "\\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX");
        return 0;
    }
    unsigned code = scan_hex4(s, p + 2);
    if (code > 0xFFFF) {
        syntax_error(s, p, "\\u takes four hexadecimal digits");
        return 0;
    }
    bool pair = json_is_high_surrogate(code) && s->len - p >= 12
                && t[p + 6] == '\\' && t[p + 7] == 'u'
                && json_is_low_surrogate(scan_hex4(s, p + 8));
    if (pair)
        return p + 12;
    if (json_is_high_surrogate(code) || json_is_low_surrogate(code)) {
        memplan_error *e =
            syntax_error(s, p, "\\u%04x is half a surrogate pair", code);
        diag_hint(e, "write the character itself, or both halves");
        return 0;
    }
    return p + 6;
}

/* A byte at p that must not stand in a string as it is. */
static void bad_string_byte(struct json_scan *s, size_t p)
{
    unsigned byte = (unsigned char)s->text[p];
    if (byte == '\n' || byte == '\r') {
        memplan_error *e = syntax_error(s, p,
                                        "the string does not end on its "
                                        "line");
        diag_hint(e, "close it with a double quote, or write \\n");
    } else if (byte < 0x20) {
        memplan_error *e =
            syntax_error(s, p, "control character 0x%02X in a string", byte);
        diag_hint(e, byte == '\t' ? "write \\t" : "write \\u%04x", byte);
    } else {
        memplan_error *e =
            syntax_error(s, p, "byte 0x%02X is not valid UTF-8", byte);
        diag_hint(e, "save the file as UTF-8");
    }
}

/* The string at pos; returns the place behind it, or 0 after reporting. */
static size_t scan_string(struct json_scan *s)
{
    const char *t = s->text;
    size_t p = s->pos + 1;
    while (p < s->len && t[p] != '"') {
        if (t[p] == '\\') {
            p = scan_escape(s, p);
            if (p == 0)
                return 0;
            continue;
        }
        size_t len = json_utf8_length(t + p, s->len - p);
        if (len == 0 || (unsigned char)t[p] < 0x20) {
            bad_string_byte(s, p);
            return 0;
        }
        p += len;
    }
    if (p < s->len)
        return p + 1;
    memplan_error *e = syntax_error(s, p, "the text ends inside a string");
    diag_hint(e, "the '\"' on line %u is not closed",
              (unsigned)json_line(t, s->len, s->pos));
    return 0;
}

static enum json_token scan_key(struct json_scan *s)
{
    if (s->text[s->pos] != '"')
        return unexpected(s, s->pos);
    size_t end = scan_string(s);
    if (end == 0)
        return JSON_TOKEN_ERROR;
    s->end = end;
    s->pos = end;
    s->expect = JSON_EXPECT_COLON;
    skip_blanks(s);
    if (s->pos == s->len || s->text[s->pos] != ':')
        return unexpected(s, s->pos);
    s->pos++;
    s->expect = JSON_EXPECT_VALUE;
    return JSON_TOKEN_KEY;
}

static enum json_token scan_value(struct json_scan *s)
{
    char c = s->text[s->pos];
    if (c == '{' || c == '[')
        return scan_open(s);
    if (c == '-' || is_digit(c))
        return scan_number(s);
    if (c != '"')
        return scan_literal(s);
    size_t end = scan_string(s);
    return end > 0 ? finish(s, end, JSON_TOKEN_STRING) : JSON_TOKEN_ERROR;
}

/* Takes the ',' between two members or elements. */
static bool take_comma(struct json_scan *s, char closer)
{
    if (s->text[s->pos] != ',') {
        unexpected(s, s->pos);
        return false;
    }
    s->pos++;
    skip_blanks(s);
    s->expect = closer == '}' ? JSON_EXPECT_KEY : JSON_EXPECT_VALUE;
    if (s->pos < s->len && s->text[s->pos] == closer) {
        memplan_error *e =
            syntax_error(s, s->start, "comma before '%c'", closer);
        diag_hint(e, "remove the comma");
        return false;
    }
    s->start = s->pos;
    if (s->pos == s->len) {
        unexpected(s, s->pos);
        return false;
    }
    return true;
}

enum json_token json_scan_next(struct json_scan *s)
{
    if (s->pos == 0 && !check_beginning(s))
        return JSON_TOKEN_ERROR;
    skip_blanks(s);
    s->start = s->pos;
    if (s->pos == s->len) {
        s->end = s->pos;
        return s->expect == JSON_EXPECT_END ? JSON_TOKEN_END
                                            : unexpected(s, s->pos);
    }
    char c = s->text[s->pos];
    char closer = s->expect == JSON_EXPECT_FIRST_ELEMENT
                          || s->expect == JSON_EXPECT_ARRAY_MORE
                      ? ']'
                      : '}';
    switch (s->expect) {
    case JSON_EXPECT_FIRST_ELEMENT:
        return c == closer ? scan_close(s) : scan_value(s);
    case JSON_EXPECT_FIRST_KEY:
        return c == closer ? scan_close(s) : scan_key(s);
    case JSON_EXPECT_ARRAY_MORE:
        if (c == closer)
            return scan_close(s);
        return take_comma(s, closer) ? scan_value(s) : JSON_TOKEN_ERROR;
    case JSON_EXPECT_OBJECT_MORE:
        if (c == closer)
            return scan_close(s);
        return take_comma(s, closer) ? scan_key(s) : JSON_TOKEN_ERROR;
    case JSON_EXPECT_VALUE: return scan_value(s);
    case JSON_EXPECT_KEY:   /* take_comma goes on to it */
    case JSON_EXPECT_COLON: /* scan_key takes it */
    case JSON_EXPECT_END: break;
    }
    return unexpected(s, s->pos);
}
