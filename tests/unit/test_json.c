/*
 * Tests of src/json: what is said about each kind of bad text, and where; that
 * values, strings and numbers arrive as written; the writer; no memory.
 */
#include "json/json.h"
#include "json/json_scan.h"

#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* ---- one parse, with everything it needs ---- */

struct parse {
    struct arena arena;
    struct diag diag;
    memplan_error slot[4];
    memplan_errors errs;
    char *text; /* of exactly len bytes, so that ASan sees one too many read */
    size_t len;
    struct json *root;
};

static void parse_begin(struct parse *p, const char *text, size_t len)
{
    memset(p, 0, sizeof(*p));
    p->errs = (memplan_errors){ p->slot, LENGTH(p->slot), 0 };
    p->text = malloc(len > 0 ? len : 1);
    assert_non_null(p->text);
    if (len > 0)
        memcpy(p->text, text, len);
    p->len = len;
    arena_init(&p->arena, NULL);
    diag_init(&p->diag, &p->errs);
    p->root = json_parse(&p->arena, p->text, len, &p->diag);
    assert_true((p->root != NULL) == (p->diag.status == MEMPLAN_OK));
    assert_true((p->root != NULL) == (p->errs.count == 0));
}

static void parse_end(struct parse *p)
{
    arena_release(&p->arena);
    free(p->text);
}

static void parse_good(struct parse *p, const char *text)
{
    parse_begin(p, text, strlen(text));
    if (!p->root)
        fail_msg("'%s': %s", text, p->slot[0].message);
}

/* ---- errors ---- */

struct bad_row {
    struct str text;
    memplan_status status;
    uint32_t line, column;
    const char *pointer;
    const char *message; /* the whole of it */
    const char *hint;    /* some part of it */
};

#define SYNTAX(text, line, column, message, hint)                              \
    {                                                                          \
        { text, sizeof(text) - 1 }, MEMPLAN_E_SYNTAX, line, column, "",        \
            message, hint                                                      \
    }
#define OTHER(text, status, line, column, pointer, message, hint)              \
    {                                                                          \
        { text, sizeof(text) - 1 }, MEMPLAN_##status, line, column, pointer,   \
            message, hint                                                      \
    }

static const struct bad_row bad_rows[] = {
    SYNTAX("", 1, 1, "expected a value, found the end of the text", ""),
    SYNTAX(" \n ", 2, 2, "expected a value, found the end of the text", ""),
    SYNTAX("\xEF\xBB\xBF{}", 1, 1,
           "the text starts with a UTF-8 byte order mark", "without"),
    SYNTAX("\xFF\xFE{\0}\0", 1, 1, "the text is UTF-16, not UTF-8", "UTF-8"),
    SYNTAX("{\0}\0", 1, 1, "the text is UTF-16, not UTF-8", "UTF-8"),
    SYNTAX("\0{\0}", 1, 1, "the text is UTF-16, not UTF-8", "UTF-8"),
    SYNTAX("{\"a\": 1,\n \"b\" 2}", 2, 6,
           "expected ':' after the key, found '2'", ""),
    SYNTAX("{\"a\" = 1}", 1, 6, "expected ':' after the key, found '='", "':'"),
    SYNTAX("{\"a\": 1\n\"b\": 2}", 2, 1, "expected ',' or '}', found a string",
           "comma"),
    SYNTAX("[1 2]", 1, 4, "expected ',' or ']', found '2'", "comma"),
    SYNTAX("[1,\n2,\n]", 2, 2, "comma before ']'", "remove the comma"),
    SYNTAX("{\"a\": 1,}", 1, 8, "comma before '}'", "remove the comma"),
    SYNTAX("[1,,2]", 1, 4, "expected a value, found ','", "extra comma"),
    SYNTAX("[1;2]", 1, 3, "expected ',' or ']', found ';'", "','"),
    SYNTAX("{a: 1}", 1, 2, "expected a key in double quotes or '}', found 'a'",
           "quotes"),
    SYNTAX("{'a': 1}", 1, 2,
           "expected a key in double quotes or '}', found '''",
           "double quotes"),
    SYNTAX("{1: 1}", 1, 2, "expected a key in double quotes or '}', found '1'",
           ""),
    SYNTAX("{\"a\": None}", 1, 7, "expected a value, found 'None'", "null"),
    SYNTAX("{\"a\": True}", 1, 7, "expected a value, found 'True'", "true"),
    SYNTAX("[nul]", 1, 2, "expected a value or ']', found 'nul'", "null"),
    SYNTAX("[nullx]", 1, 2, "expected a value or ']', found 'nullx'", ""),
    SYNTAX("{\"a\": NaN}", 1, 7, "JSON has no number 'NaN'", "write null"),
    SYNTAX("[Infinite]", 1, 2, "expected a value or ']', found 'Infinite'",
           "null"),
    SYNTAX("[-inf]", 1, 2, "JSON has no number '-inf'", "null"),
    SYNTAX("{} // x", 1, 4, "expected nothing after the value, found '/'",
           "comment"),
    SYNTAX("# x\n{}", 1, 1, "expected a value, found '#'", "comment"),
    SYNTAX("{}{}", 1, 3, "expected nothing after the value, found '{'",
           "one value"),
    SYNTAX("{}\0", 1, 3, "expected nothing after the value, found byte 0x00",
           "binary"),
    SYNTAX("]", 1, 1, "expected a value, found ']'", ""),
    SYNTAX("{\"a\": 1, 5}", 1, 10, "expected a key in double quotes, found '5'",
           ""),
    SYNTAX("{\"a\": 1, b: 2}", 1, 10,
           "expected a key in double quotes, found 'b'",
           "put the key in double quotes"),
    SYNTAX("{\"a\" b}", 1, 6, "expected ':' after the key, found 'b'", ""),
    SYNTAX("[1}", 1, 3, "expected ',' or ']', found '}'", ""),
    SYNTAX("{\"a\": {\n\"b\": 1\n", 3, 1,
           "expected ',' or '}', found the end of the text",
           "the '{' on line 1 is not closed"),
    SYNTAX("[1,", 1, 4, "expected a value, found the end of the text",
           "'[' on line 1"),
    SYNTAX("{\"a\"", 1, 5,
           "expected ':' after the key, found the end of the "
           "text",
           "'{' on line 1"),
    SYNTAX("\"abc", 1, 5, "the text ends inside a string", "line 1"),
    SYNTAX("{\"a\": \"x\n}", 1, 9, "the string does not end on its line",
           "close it"),
    SYNTAX("[\"a\tb\"]", 1, 4, "control character 0x09 in a string", "\\t"),
    SYNTAX("[\"a\0\"]", 1, 4, "control character 0x00 in a string", "\\u0000"),
    SYNTAX("[\"C:\\dir\"]", 1, 5, "unknown escape \\d", "\\\\"),
    SYNTAX("[\"\\u12g4\"]", 1, 3, "\\u takes four hexadecimal digits", ""),
    SYNTAX("[\"\\u12", 1, 3, "\\u takes four hexadecimal digits", ""),
    SYNTAX("[\"\\ud800\"]", 1, 3, "\\ud800 is half a surrogate pair", "both"),
    SYNTAX("[\"\\ud800\\u0041\"]", 1, 3, "\\ud800 is half a surrogate pair",
           "both"),
    SYNTAX("[\"\\uDC00\"]", 1, 3, "\\udc00 is half a surrogate pair", "both"),
    SYNTAX("[\"caf\xE9\"]", 1, 6, "byte 0xE9 is not valid UTF-8", "UTF-8"),
    SYNTAX("[\"\xC0\x80\"]", 1, 3, "byte 0xC0 is not valid UTF-8", "UTF-8"),
    SYNTAX("[\"\xED\xA0\x80\"]", 1, 3, "byte 0xED is not valid UTF-8", ""),
    SYNTAX("[\"\xF4\x90\x80\x80\"]", 1, 3, "byte 0xF4 is not valid UTF-8", ""),
    SYNTAX("\xE9", 1, 1, "expected a value, found byte 0xE9", "UTF-8"),
    SYNTAX("{\xE2\x80\x9C"
           "a\xE2\x80\x9D: 1}",
           1, 2,
           "expected a key in double quotes or '}', found character U+201C",
           "straight"),
    SYNTAX("[1,\xC2\xA0"
           "2]",
           1, 4, "expected a value, found character U+00A0", "invisible"),
    SYNTAX("[01]", 1, 2, "a number must not start with 0", "zeros"),
    SYNTAX("[-01]", 1, 3, "a number must not start with 0", "zeros"),
    SYNTAX("[1.]", 1, 4, "expected a digit after the decimal point, found ']'",
           "1.0"),
    SYNTAX("[.5]", 1, 2, "expected a value or ']', found '.'", "0.5"),
    SYNTAX("[+1]", 1, 2, "expected a value or ']', found '+'", "without"),
    SYNTAX("[-]", 1, 3, "expected a digit after '-', found ']'", ""),
    SYNTAX("[1e]", 1, 4, "expected a digit in the exponent, found ']'", ""),
    SYNTAX("[1e+", 1, 5,
           "expected a digit in the exponent, found the end of the text", ""),
    SYNTAX("[0x1F]", 1, 3, "expected the number to end, found 'x1F'",
           "decimal"),
    SYNTAX("[1_000]", 1, 3, "expected the number to end, found '_000'",
           "decimal"),
    SYNTAX("[1.2.3]", 1, 5, "expected the number to end, found '.'", ""),
    SYNTAX("[averyveryverylongwordthatgoeson]", 1, 2,
           "expected a value or ']', found 'averyveryverylongwordtha...'", ""),
    OTHER("{\"a\": [1, 1e999]}", E_RANGE, 1, 11, "/a/1",
          "1e999 is beyond a double's range", "1.8e308"),
    OTHER("[-1e999]", E_RANGE, 1, 2, "/0", "-1e999 is beyond a double's range",
          ""),
    OTHER("[1e0000000000000000000000000000000000000000000000000000000000999]",
          E_RANGE, 1, 2, "/0",
          "1e0000000000000000000000000000000000000... is beyond a double's "
          "range",
          ""),
    OTHER("{\"a\": 1,\n \"b\": 2,\n  \"a\": 3}", E_SCHEMA, 3, 3, "/a",
          "duplicate key \"a\", first given on line 1", "keep one"),
    OTHER("{\"x/y\": [{}, {\"~\": 1, \"\\u007e\": 2}]}", E_SCHEMA, 1, 23,
          "/x~1y/1/~0", "duplicate key \"~\", first given on line 1", ""),
    OTHER("{\"a\\u0000b\": 1, \"a\\u0000b\": 2}", E_SCHEMA, 1, 17, "/a?b",
          "duplicate key \"a?b\", first given on line 1", ""),
};

static void check_bad(const struct bad_row *row)
{
    struct parse p;
    parse_begin(&p, row->text.p, row->text.n);
    if (p.root)
        fail_msg("'%s' was accepted", row->text.p);
    const memplan_error *e = &p.slot[0];
    if (p.errs.count != 1 || e->status != row->status || e->line != row->line
        || e->column != row->column || strcmp(e->pointer, row->pointer) != 0
        || strcmp(e->message, row->message) != 0 || !strstr(e->hint, row->hint))
        fail_msg("'%s': %zu errors, status %d, %u:%u '%s' '%s' '%s'",
                 row->text.p, p.errs.count, (int)e->status, e->line, e->column,
                 e->pointer, e->message, e->hint);
    parse_end(&p);
}

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(bad_rows); i++)
        check_bad(&bad_rows[i]);
}

/* Every text cut short anywhere is refused, and never read past its end. */
static void test_cut_short(void **state)
{
    (void)state;
    static const char text[] = "{\"k\\u00e9\": [-1.5e+3, \"\\ud834\\udd1e\", "
                               "true, false, null, {\"\xC3\xA9\": {}}]}";
    struct parse p;
    for (size_t n = 0; n < sizeof(text) - 1; n++) {
        parse_begin(&p, text, n);
        assert_null(p.root);
        assert_int_equal(p.slot[0].status, MEMPLAN_E_SYNTAX);
        assert_true(p.slot[0].line == 1 && p.slot[0].column >= 1);
        assert_true(p.slot[0].offset <= n);
        parse_end(&p);
    }
    parse_good(&p, text);
    parse_end(&p);
}

/* All of the wrong numbers and keys, up to a page of them. */
static void test_many_errors(void **state)
{
    (void)state;
    struct parse p;
    const char two[] = "{\"b\":1, \"a\":1e999, \"a\":1, \"b\":1, \"b\":1}";
    parse_begin(&p, two, strlen(two));
    assert_int_equal(p.errs.count, 4);
    assert_int_equal(p.diag.status, MEMPLAN_E_RANGE);
    assert_string_equal(p.slot[1].pointer, "/a");
    assert_int_equal(p.slot[1].column, 20);
    assert_int_equal(p.slot[2].column, 27);
    assert_int_equal(p.slot[3].column, 34);
    parse_end(&p);

    char text[1000] = "[1e999";
    for (int i = 0; i < 100; i++)
        str_append(text, sizeof(text), ",1e999");
    str_append(text, sizeof(text), "]");
    parse_begin(&p, text, strlen(text));
    assert_int_equal(p.errs.count, 16);
    parse_end(&p);
}

/* ---- values ---- */

static void test_values(void **state)
{
    (void)state;
    struct parse p;
    parse_good(&p, "{\"n\": 4096, \"s\": \"a\\n\\\"\\\\\\/\\b\\f\\r\\t\","
                   " \"u\": \"\\u00e9\\u20ac\\ud834\\udd1e\","
                   " \"l\": [true, false, null, -0.5, [], {}], \"\": 7}");
    assert_int_equal(p.root->kind, JSON_OBJECT);
    const struct json *v = json_member(p.root, "n");
    assert_true(v->kind == JSON_NUMBER && v->number == 4096);
    assert_int_equal(v->offset, 6);
    assert_int_equal(v->key_offset, 1);
    v = json_member(p.root, "s");
    assert_string_equal(v->text.p, "a\n\"\\/\b\f\r\t");
    assert_int_equal(v->text.n, strlen(v->text.p));
    v = json_member(p.root, "u");
    assert_string_equal(v->text.p, "\xC3\xA9\xE2\x82\xAC\xF0\x9D\x84\x9E");
    v = json_member(p.root, "l");
    assert_int_equal(v->kind, JSON_ARRAY);
    assert_int_equal(v->index, 3);
    static const enum json_kind kinds[] = {
        JSON_BOOL, JSON_BOOL, JSON_NULL, JSON_NUMBER, JSON_ARRAY, JSON_OBJECT
    };
    size_t n = 0;
    for (const struct json *e = v->child; e; e = e->next, n++) {
        assert_int_equal(e->kind, kinds[n]);
        assert_int_equal(e->index, n);
        assert_ptr_equal(e->parent, v);
        assert_int_equal(e->key.n, 0);
    }
    assert_int_equal(n, 6);
    assert_true(v->child->truth);
    assert_false(v->child->next->truth);
    assert_true(json_member(p.root, "")->number == 7);
    assert_null(json_member(p.root, "N"));
    assert_null(json_member(v, "n"));
    assert_null(json_member(NULL, "n"));
    parse_end(&p);
}

static void test_zero_byte_is_kept(void **state)
{
    (void)state;
    struct parse p;
    parse_good(&p, "{\"a\": \"x\\u0000y\", \"a\\u0000\": 1, "
                   "\"a\\u0000b\": 2}");
    const struct json *v = json_member(p.root, "a");
    assert_int_equal(v->text.n, 3);
    assert_memory_equal(v->text.p, "x\0y", 4);
    assert_int_equal(v->next->key.n, 2);
    assert_int_equal(v->next->next->key.n, 3);
    parse_end(&p);
}

/* Same length as a double's text or longer than cJSON's buffer for one. */
static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
    } rows[] = {
        { "0", 0.0 },
        { "-0", -0.0 },
        { "2.5", 2.5 },
        { "3000000000", 3000000000.0 },
        { "9007199254740993", 9007199254740992.0 },
        { "1E400", -1 }, /* refused: beyond double */
        { "Infinity", HUGE_VAL },
        { "-Infinity", -HUGE_VAL },
        { "1e-400", 0.0 },
        { "-1.7976931348623157e308", -1.7976931348623157e308 },
        { "0.1000000000000000000000000000000000000000000000000000000000000000",
          0.1 },
        { "-100000000000000000000000000000000000000000000000000000000000000000",
          -1e65 },
        { "0.000000000000000000000000000000000000000000000000000000000000001e9",
          1e-54 },
        { "12345678901234567890123456789012345678901234567890123456789012345."
          "5E-60",
          12345.678901234567 },
        { "0.000000000000000000000000000000000000000000000000000000000000000",
          0.0 },
        { "1e00000000000000000000000000000000000000000000000000000000000000002",
          100.0 },
        { "1e-99999999999999999999999999999999999999999999999999999999999999",
          0.0 },
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct parse p;
        char text[200];
        str_format(text, sizeof(text), "[\"x\",%s, true]", rows[i].text);
        parse_begin(&p, text, strlen(text));
        if (p.root) {
            double v = p.root->child->next->number;
            assert_memory_equal(&v, &rows[i].value, sizeof(v));
            assert_true(p.root->child->next->next->truth);
        } else {
            assert_true(rows[i].value == -1);
            assert_int_equal(p.diag.status, MEMPLAN_E_RANGE);
        }
        parse_end(&p);
    }
}

static void test_top_level_scalars(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "1", "-1", "\"x\"", "true", " null ", "[]", "{}", "\n0.5e1\r\n"
    };
    for (size_t i = 0; i < LENGTH(texts); i++) {
        struct parse p;
        parse_good(&p, texts[i]);
        assert_null(p.root->parent);
        parse_end(&p);
    }
}

static void test_locale(void **state)
{
    (void)state;
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8")) {
        skip();
        return;
    }
    struct parse p;
    parse_good(&p, "[0.5]");
    assert_true(p.root->child->number == 0.5);
    parse_end(&p);
    setlocale(LC_NUMERIC, "C");
}

/* ---- size ---- */

static char *repeated(const char *piece, size_t times, size_t *len)
{
    size_t n = strlen(piece);
    *len = n * times;
    char *text = malloc(*len);
    assert_non_null(text);
    for (size_t i = 0; i < times; i++)
        memcpy(text + i * n, piece, n);
    return text;
}

static void test_depth(void **state)
{
    (void)state;
    struct parse p;
    static const char *const pieces[] = { "[", "{\"a\":" };
    for (size_t i = 0; i < LENGTH(pieces); i++) {
        size_t len;
        char *text = repeated(pieces[i], 100000, &len);
        parse_begin(&p, text, len);
        assert_int_equal(p.diag.status, MEMPLAN_E_SYNTAX);
        assert_string_equal(p.slot[0].message, "nested deeper than 64 levels");
        assert_int_equal(p.slot[0].column, 64 * strlen(pieces[i]) + 1);
        parse_end(&p);
        free(text);
    }
    char text[2 * JSON_MAX_DEPTH + 2];
    memset(text, '[', JSON_MAX_DEPTH);
    memset(text + JSON_MAX_DEPTH, ']', JSON_MAX_DEPTH);
    parse_begin(&p, text, 2 * JSON_MAX_DEPTH);
    assert_non_null(p.root);
    const struct json *v = p.root;
    while (v->child)
        v = v->child;
    char pointer[300];
    json_pointer(v, pointer, sizeof(pointer));
    assert_int_equal(strlen(pointer), 2 * (JSON_MAX_DEPTH - 1));
    parse_end(&p);
}

static void test_large_array(void **state)
{
    (void)state;
    enum { COUNT = 300000 };
    size_t len;
    char *text = repeated("[0],", COUNT, &len);
    char *whole = malloc(len + 1);
    assert_non_null(whole);
    whole[0] = '[';
    memcpy(whole + 1, text, len - 1);
    whole[len] = ']';
    struct parse p;
    parse_begin(&p, whole, len + 1);
    assert_non_null(p.root);
    size_t n = 0;
    for (const struct json *v = p.root->child; v; v = v->next)
        n++;
    assert_int_equal(n, COUNT);
    parse_end(&p);
    free(whole);
    free(text);
}

/* Not quadratic: some seconds here would be hours there. */
static void test_large_object(void **state)
{
    (void)state;
    enum { COUNT = 300000, WIDTH = 13 };
    size_t len = (size_t)COUNT * WIDTH + 1;
    char *text = malloc(len + 1);
    assert_non_null(text);
    text[0] = '{';
    for (size_t i = 0; i < COUNT; i++)
        str_format(text + 1 + i * WIDTH, WIDTH + 1, "\"k%07zu\":1,", i);
    text[len - 1] = '}';
    struct parse p;
    parse_begin(&p, text, len);
    assert_non_null(p.root);
    parse_end(&p);

    memcpy(text + 1 + (size_t)(COUNT - 1) * WIDTH, "\"k0000000\"", 10);
    parse_begin(&p, text, len);
    assert_null(p.root);
    assert_int_equal(p.diag.status, MEMPLAN_E_SCHEMA);
    assert_int_equal(p.errs.count, 1);
    assert_int_equal(p.slot[0].offset, 1 + (size_t)(COUNT - 1) * WIDTH);
    parse_end(&p);
    free(text);
}

/* ---- places ---- */

static void test_locate(void **state)
{
    (void)state;
    struct parse p;
    parse_good(&p, "{\n  \"a\": {\"b/c~\": [10,\n 20]},\n  \"\xC3\xA9\": 1}");
    memplan_error e;
    memset(&e, 0, sizeof(e));
    const struct json *list = json_member(p.root, "a")->child;
    json_locate(&e, p.text, p.len, list->child->next);
    assert_string_equal(e.pointer, "/a/b~1c~0/1");
    assert_int_equal(e.line, 3);
    assert_int_equal(e.column, 2);
    assert_memory_equal(p.text + e.offset, "20", 2);
    json_locate(&e, p.text, p.len, p.root);
    assert_string_equal(e.pointer, "");
    assert_true(e.line == 1 && e.column == 1 && e.offset == 0);
    json_locate(&e, p.text, p.len, json_member(p.root, "\xC3\xA9"));
    assert_string_equal(e.pointer, "/\xC3\xA9");
    assert_true(e.line == 4 && e.column == 9);
    json_locate(&e, p.text, p.len, NULL);
    assert_int_equal(e.line, 4);

    char buf[16];
    json_pointer(list->child->next, buf, 12);
    assert_string_equal(buf, "/a/b~1c~0/1");
    json_pointer(list->child->next, buf, 11);
    assert_string_equal(buf, "/a/b~1c~0");
    json_pointer(list->child->next, buf, 9);
    assert_string_equal(buf, "/a");
    json_pointer(list->child->next, buf, 1);
    assert_string_equal(buf, "");
    parse_end(&p);
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(json_kind_name(JSON_NULL), "null");
    assert_string_equal(json_kind_name(JSON_OBJECT), "an object");
    assert_int_equal(strncmp(json_library_name(), "cJSON ", 6), 0);
    assert_string_equal(json_library_name() + 6, json_library_version());
}

/* Places past the end are the end; no byte is no character. */
static void test_edges_of_the_text(void **state)
{
    (void)state;
    memplan_error e = { .line = 0 };
    json_place(&e, "a\nbc", 4, 100);
    assert_int_equal(e.line, 2);
    assert_int_equal(e.column, 3);
    assert_int_equal(e.offset, 4);
    assert_int_equal(json_utf8_length("x", 0), 0);
    assert_int_equal(json_utf8_length("\xC3\xA9", 1), 0);
    assert_int_equal(json_utf8_length("\xC3\xA9", 2), 2);
}

/* ---- writing ---- */

struct sink {
    char text[4096];
    size_t len;
    size_t calls;
    size_t fail_at;
};

static bool sink_write(void *ctx, const char *text, size_t len)
{
    struct sink *s = ctx;
    if (s->calls++ == s->fail_at)
        return false;
    assert_true(s->len + len < sizeof(s->text));
    memcpy(s->text + s->len, text, len);
    s->len += len;
    s->text[s->len] = '\0';
    return true;
}

static bool write_sample(struct sink *s, bool pretty)
{
    struct json_writer w;
    json_writer_init(&w, pretty, sink_write, s);
    json_begin_object(&w);
    json_key(&w, "empty");
    json_begin_array(&w);
    json_end_array(&w);
    json_key(&w, "list");
    json_begin_array(&w);
    json_u64(&w, UINT64_MAX);
    json_number(&w, 0.1);
    json_number(&w, (double)INFINITY);
    json_begin_object(&w);
    json_end_object(&w);
    json_bool(&w, true);
    json_bool(&w, false);
    json_null(&w);
    json_end_array(&w);
    json_key(&w, "q\"\n");
    json_string(&w, "\\ \x01\x7F \xC3\xA9 \xFF \t\b\f\r");
    json_key(&w, "none");
    json_string(&w, NULL);
    json_end_object(&w);
    json_end(&w);
    return !w.failed;
}

static const char compact[] =
    "{\"empty\":[],\"list\":[18446744073709551615,0.1,null,{},true,false,null"
    "],\"q\\\"\\n\":\"\\\\ \\u0001\\u007f \xC3\xA9 \\ufffd \\t\\b\\f\\r\","
    "\"none\":null}\n";

static const char pretty[] =
    "{\n"
    "  \"empty\": [],\n"
    "  \"list\": [\n"
    "    18446744073709551615,\n"
    "    0.1,\n"
    "    null,\n"
    "    {},\n"
    "    true,\n"
    "    false,\n"
    "    null\n"
    "  ],\n"
    "  \"q\\\"\\n\": \"\\\\ \\u0001\\u007f \xC3\xA9 \\ufffd \\t\\b\\f\\r\",\n"
    "  \"none\": null\n"
    "}\n";

static void test_write(void **state)
{
    (void)state;
    struct sink s = { .fail_at = SIZE_MAX };
    assert_true(write_sample(&s, false));
    assert_string_equal(s.text, compact);
    s = (struct sink){ .fail_at = SIZE_MAX };
    assert_true(write_sample(&s, true));
    assert_string_equal(s.text, pretty);
    struct parse p;
    parse_good(&p, s.text);
    parse_end(&p);

    struct json_writer w;
    s = (struct sink){ .fail_at = SIZE_MAX };
    json_writer_init(&w, true, sink_write, &s);
    json_string(&w, "x");
    json_end(&w);
    assert_string_equal(s.text, "\"x\"\n");
}

static void test_write_fails_once(void **state)
{
    (void)state;
    bool done = false;
    for (size_t n = 0; !done; n++) {
        struct sink s = { .fail_at = n };
        done = write_sample(&s, true);
        if (!done)
            assert_int_equal(s.calls, n + 1); /* not called again */
        assert_int_equal(strncmp(s.text, pretty, s.len), 0);
        assert_true(n < 1000);
    }
}

static const struct json *write_tree(struct json_writer *w,
                                     const struct json *v)
{
    if (v->parent && v->parent->kind == JSON_OBJECT)
        json_key(w, v->key.p);
    switch (v->kind) {
    case JSON_NULL: json_null(w); break;
    case JSON_BOOL: json_bool(w, v->truth); break;
    case JSON_NUMBER: json_number(w, v->number); break;
    case JSON_STRING: json_string(w, v->text.p); break;
    case JSON_ARRAY: json_begin_array(w); break;
    case JSON_OBJECT: json_begin_object(w); break;
    }
    if (v->child)
        return v->child;
    for (;; v = v->parent) {
        if (v->kind == JSON_ARRAY)
            json_end_array(w);
        else if (v->kind == JSON_OBJECT)
            json_end_object(w);
        if (v->next || !v->parent)
            return v->next;
    }
}

/* What was written, read, and written again is the same. */
static void test_round_trip(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a\":[1,-2.5,1e+22,\"x\\ny\",[],{},[[0]]],\"b\":{\"c\":{\"d\":null"
        "}},\"\":[true,false,\"\xF0\x9D\x84\x9E\"]}";
    struct parse p;
    parse_good(&p, text);
    struct sink s = { .fail_at = SIZE_MAX };
    struct json_writer w;
    json_writer_init(&w, false, sink_write, &s);
    for (const struct json *v = p.root; v;)
        v = write_tree(&w, v);
    assert_string_equal(s.text, text);
    parse_end(&p);
}

/* ---- no memory ---- */

struct meter {
    size_t calls;
    size_t fail_at;
    size_t live;
};

static void *metered_resize(void *ctx, void *ptr, size_t old_size,
                            size_t new_size)
{
    struct meter *m = ctx;
    if (new_size == 0) {
        m->live -= old_size;
        free(ptr);
        return NULL;
    }
    if (m->calls++ == m->fail_at)
        return NULL;
    m->live += new_size - old_size;
    return realloc(ptr, new_size);
}

static void test_every_failure(void **state)
{
    (void)state;
    char text[4000] = "{\"n\":0."
                      "00000000000000000000000000000000000000000000000000000"
                      "000000000001";
    for (int i = 0; i < 300; i++)
        str_append(text, sizeof(text), ",\"%d\":\"x\"", i);
    str_append(text, sizeof(text), "}");
    bool done = false;
    for (size_t n = 0; !done; n++) {
        struct meter m = { 0, n, 0 };
        memplan_allocator alloc = { metered_resize, &m };
        struct arena a;
        struct diag d;
        memplan_error slot;
        memplan_errors errs = { &slot, 1, 0 };
        arena_init(&a, &alloc);
        diag_init(&d, &errs);
        done = json_parse(&a, text, strlen(text), &d) != NULL;
        if (!done) {
            assert_int_equal(d.status, MEMPLAN_E_NOMEM);
            assert_int_equal(errs.count, 1);
            assert_string_equal(slot.message, "out of memory");
        }
        arena_release(&a);
        assert_int_equal(m.live, 0);
        assert_true(n < 100);
        if (done)
            assert_true(n > 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_many_errors),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_zero_byte_is_kept),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_top_level_scalars),
        cmocka_unit_test(test_locale),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_large_array),
        cmocka_unit_test(test_large_object),
        cmocka_unit_test(test_locate),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_edges_of_the_text),
        cmocka_unit_test(test_write),
        cmocka_unit_test(test_write_fails_once),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_every_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
