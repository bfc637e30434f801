/* TOML 1.0 as its specification has it: what each form means, which texts are
 * none, and where they stop being TOML. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "json/toml.h"

static struct {
    memplan_error slot[2];
    memplan_errors errs;
    struct arena arena;
} got;

static const struct json *parse(const char *text, size_t len)
{
    struct diag d;
    got.errs = (memplan_errors){ got.slot, 2, 0 };
    diag_init(&d, &got.errs);
    arena_release(&got.arena);
    arena_init(&got.arena, NULL);
    return toml_parse(&got.arena, text, len, &d);
}

/* ---- the tree as one line ---- */

/* `a={b=1,} c=['s',2,]`: numbers bare, strings between single quotes. */
static void write_scalar(char *buf, size_t size, const struct json *v)
{
    switch (v->kind) {
    case JSON_BOOL: str_append(buf, size, v->truth ? "true" : "false"); return;
    case JSON_NUMBER: str_append(buf, size, "%s", v->text.p); return;
    case JSON_STRING:
        str_append(buf, size, "'%.*s'", (int)v->text.n, v->text.p);
        return;
    case JSON_NULL: str_append(buf, size, "null"); return;
    case JSON_ARRAY: str_append(buf, size, "["); return;
    case JSON_OBJECT: str_append(buf, size, "{"); return;
    }
}

static void write_tree(char *buf, size_t size, const struct json *root)
{
    const struct json *v = root->child;
    buf[0] = '\0';
    while (v != NULL && v != root) {
        if (v->parent->kind == JSON_OBJECT)
            str_append(buf, size, "%.*s=", (int)v->key.n, v->key.p);
        write_scalar(buf, size, v);
        if (v->child != NULL) {
            v = v->child;
            continue;
        }
        if (v->kind == JSON_ARRAY || v->kind == JSON_OBJECT)
            str_append(buf, size, v->kind == JSON_ARRAY ? "]" : "}");
        while (v != root && v->next == NULL) {
            v = v->parent;
            if (v != root)
                str_append(buf, size, v->kind == JSON_ARRAY ? "]" : "}");
        }
        if (v != root) {
            str_append(buf, size, " ");
            v = v->next;
        }
    }
}

static void means(const char *text, const char *tree)
{
    char buf[512];
    const struct json *root = parse(text, strlen(text));
    if (root == NULL)
        fail_msg("%s\nis refused: %s", text, got.slot[0].message);
    write_tree(buf, sizeof(buf), root);
    assert_string_equal(buf, tree);
}

static void fails(const char *text, memplan_status status, unsigned line,
                  unsigned column)
{
    if (parse(text, strlen(text)) != NULL)
        fail_msg("%s\nis taken", text);
    if (got.slot[0].line != line || got.slot[0].column != column)
        fail_msg("%s\nfails at %u:%u (%s), not %u:%u", text,
                 (unsigned)got.slot[0].line, (unsigned)got.slot[0].column,
                 got.slot[0].message, line, column);
    assert_int_equal(got.slot[0].status, status);
    assert_true(got.slot[0].message[0] != '\0');
    assert_true(got.slot[0].hint[0] != '\0');
}

/* ---- what is TOML ---- */

static void test_keys(void **state)
{
    (void)state;
    means("", "");
    means("# nothing but this", "");
    means("key = \"value\" # why\nbare_key = 1\nbare-key = 2\n1234 = 3",
          "key='value' bare_key=1 bare-key=2 1234=3");
    means("\"127.0.0.1\" = 1\n'quoted \"value\"' = 2\n\"\" = 3",
          "127.0.0.1=1 quoted \"value\"=2 =3");
    means("physical.color = 1\nphysical.\"x.y\" = 2\n fruit . flavor = 3",
          "physical={color=1 x.y=2} fruit={flavor=3}");
    means("apple.type = 1\norange.type = 2\napple.skin = 3",
          "apple={type=1 skin=3} orange={type=2}");
    means("3.14159 = 1", "3={14159=1}");
}

static void test_strings(void **state)
{
    (void)state;
    means("s = \"I'm \\\"Jos\\u00E9\\\"\\tSF\\U0001F600\"",
          "s='I'm \"Jos\xc3\xa9\"\tSF\xf0\x9f\x98\x80'");
    means("s = \"\"\"\nRoses\nViolets\"\"\"", "s='Roses\nViolets'");
    means("s = \"\"\"\r\nRoses\r\nViolets\"\"\"", "s='Roses\nViolets'");
    means("s = \"\"\"\nThe \\\n\n\n   fox \\  \n  jumps \\\n \"\"\"",
          "s='The fox jumps '");
    means("s = \"\"\"two quotes: \"\".\"\"\"", "s='two quotes: \"\".'");
    means("s = \"\"\"three: \"\"\\\".\"\"\"", "s='three: \"\"\".'");
    means("s = \"\"\"\"two\"\"\"\"\"", "s='\"two\"\"'");
    means("s = \"\"\"\"\"\"", "s=''");
    means("s = 'C:\\Users\\n'", "s='C:\\Users\\n'");
    means("s = '''I [dw]on't ''two'''''", "s='I [dw]on't ''two'''");
}

static void test_numbers(void **state)
{
    (void)state;
    means("a = +99\nb = 42\nc = 0\nd = -17\ne = 1_000\nf = 5_349_221",
          "a=99 b=42 c=0 d=-17 e=1000 f=5349221");
    means("a = 0xDEAD_beef\nb = 0o01234567\nc = 0b11010110\nd = 0x0",
          "a=3735928559 b=342391 c=214 d=0");
    means("a = 9223372036854775807\nb = -9223372036854775808\nc = -0",
          "a=9223372036854775807 b=-9223372036854775808 c=-0");
    means("a = +1.0\nb = 3.1415\nc = 5e+22\nd = 1e06\ne = -2E-2\n"
          "f = 6.626e-34\ng = 224_617.445_991_228",
          "a=1.0 b=3.1415 c=5e22 d=1e06 e=-2e-2 f=6.626e-34 "
          "g=224617.445991228");
    means("a = inf\nb = -inf\nc = +nan\nd = true\ne = false",
          "a='inf' b='-inf' c='+nan' d=true e=false");
    const char text[] = "n = 1_0.5";
    assert_true(parse(text, strlen(text))->child->number > 10.4999);
    assert_int_equal(parse(text, strlen(text))->child->offset, 4);
}

static void test_times(void **state)
{
    (void)state;
    means("a = 1979-05-27T07:32:00Z\nb = 1979-05-27T00:32:00.999999-07:00\n"
          "c = 1979-05-27 07:32:00z # blank",
          "a='1979-05-27T07:32:00Z' b='1979-05-27T00:32:00.999999-07:00' "
          "c='1979-05-27 07:32:00z'");
    means("a = 1979-05-27t07:32:00\nb = 1979-05-27 # day\nc = 07:32:00.5",
          "a='1979-05-27t07:32:00' b='1979-05-27' c='07:32:00.5'");
    means("a = 2000-02-29\nb = 2024-02-29", "a='2000-02-29' b='2024-02-29'");
}

static void test_containers(void **state)
{
    (void)state;
    means("a = [ [1, 2], [\"x\", 'y',], [] ]", "a=[[1 2] ['x' 'y'] []]");
    means("a = [\n  1, # one\n\n  2 # two\n  , ]", "a=[1 2]");
    means("p = { x = 1, y.z = 2, y.w = [ { a = 1 }, {} ] }",
          "p={x=1 y={z=2 w=[{a=1} {}]}}");
    means("a = {}\nb = { c = { d = {} } }", "a={} b={c={d={}}}");
}

static void test_tables(void **state)
{
    (void)state;
    means("[t-1]\nk = 1\n[dog.\"tater.man\"]\nname = 2\n[ j . 'l' ]\n",
          "t-1={k=1} dog={tater.man={name=2}} j={l={}}");
    means("[x.y.z.w]\n[x]\nk = 1", "x={y={z={w={}}} k=1}");
    means("[fruit]\napple.color = 1\napple.taste.sweet = true\n"
          "[fruit.apple.texture]\nsmooth = true",
          "fruit={apple={color=1 taste={sweet=true} texture={smooth=true}}}");
    means("[[p]]\nn = 1\n[[p]]\n[[p]]\nn = 2", "p=[{n=1} {} {n=2}]");
    means("[[f]]\nn = 1\n[f.p]\nc = 2\n[[f.v]]\nm = 3\n[[f.v]]\nm = 4\n"
          "[[f]]\n[[f.v]]\nm = 5",
          "f=[{n=1 p={c=2} v=[{m=3} {m=4}]} {v=[{m=5}]}]");
    means("[a.b.c]\nz = 9\n[a]\nb.d = 1", "a={b={c={z=9} d=1}}");
}

/* ---- what is not ---- */

#define SYNTAX MEMPLAN_E_SYNTAX
#define TWICE MEMPLAN_E_SCHEMA

static void test_bad_keys(void **state)
{
    (void)state;
    fails("key = # what", SYNTAX, 1, 7);
    fails("first = 1 last = 2", SYNTAX, 1, 11);
    fails("= 1", SYNTAX, 1, 1);
    fails("a b = 1", SYNTAX, 1, 3);
    fails("a. = 1", SYNTAX, 1, 4);
    fails("key", SYNTAX, 1, 4);
    fails("ok = 1\n\"\"\"a\"\"\" = 1", SYNTAX, 2, 1);
    fails("name = 1\n\"name\" = 2", TWICE, 2, 1);
    fails("apple = 1\napple.smooth = 2", TWICE, 2, 1);
    fails("\xc3\xa9 = 1", SYNTAX, 1, 1);
    fails("\xef\xbb\xbf"
          "a = 1",
          SYNTAX, 1, 1);
}

static void test_bad_strings(void **state)
{
    (void)state;
    fails("s = \"open", SYNTAX, 1, 5);
    fails("s = 'open\n'", SYNTAX, 1, 5);
    fails("s = \"\"\"open\"\"", SYNTAX, 1, 5);
    fails("s = \"\\x41\"", SYNTAX, 1, 6);
    fails("s = \"\\u12\"", SYNTAX, 1, 6);
    fails("s = \"\\uD800\"", SYNTAX, 1, 6);
    fails("s = \"\\U00110000\"", SYNTAX, 1, 6);
    fails("s = \"\"\"a \\ b\"\"\"", SYNTAX, 1, 10);
    fails("s = '''a''''''", SYNTAX, 1, 14);
    fails("s = '\x01'", SYNTAX, 1, 6);
    fails("s = '\xff'", SYNTAX, 1, 6);
    fails("s = 1 # \r", SYNTAX, 1, 9);
}

static void test_bad_numbers(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "012",  "1__0",  "_1",   "1_",    "+0x1", "0x",     "0xg",
        "0o8",  "0b2",   "0X1",  ".7",    "7.",   "3.e+20", "1e",
        "1e_5", "1._5",  "00.5", "1.2.3", "++1",  "True",   "FALSE",
        "Inf",  "value", "1_e5", "0x_1",  "--1",  "1e5.5",  "0b1_",
    };
    char text[32];
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        str_format(text, sizeof(text), "n = %s", bad[i]);
        fails(text, SYNTAX, 1, 5);
    }
    fails("n = 9223372036854775808", MEMPLAN_E_RANGE, 1, 5);
    fails("n = -9223372036854775809", MEMPLAN_E_RANGE, 1, 5);
    fails("n = 0x8000000000000000", MEMPLAN_E_RANGE, 1, 5);
    fails("n = 1e999", MEMPLAN_E_RANGE, 1, 5);
}

static void test_bad_times(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "1979-13-01",
        "1979-00-01",
        "1979-02-30",
        "1900-02-29",
        "2023-02-29",
        "1979-5-27",
        "07:32",
        "24:00:00",
        "07:60:00",
        "07:32:61",
        "07:32:00.",
        "1979-05-27T",
        "1979-05-27T07:32",
        "1979-05-27T07:32:00+7",
        "07:32:00Z",
        "1979-05-27 07:32:00X",
    };
    char text[64];
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        str_format(text, sizeof(text), "t = %s", bad[i]);
        fails(text, SYNTAX, 1, 5);
    }
}

static void test_bad_containers(void **state)
{
    (void)state;
    fails("a = [1, 2", SYNTAX, 1, 5);
    fails("a = [1 2]", SYNTAX, 1, 8);
    fails("a = [,]", SYNTAX, 1, 6);
    fails("a = [1,,2]", SYNTAX, 1, 8);
    fails("a = [1]]", SYNTAX, 1, 8);
    fails("a = {b = 1,}", SYNTAX, 1, 12);
    fails("a = {b = 1\n}", SYNTAX, 1, 11);
    fails("a = {b = 1 c = 2}", SYNTAX, 1, 12);
    fails("a = {b}", SYNTAX, 1, 7);
    fails("a = {b = 1, b = 2}", TWICE, 1, 13);
    fails("a = {b = {c = 1}, b.d = 2}", TWICE, 1, 19);
}

static void test_bad_tables(void **state)
{
    (void)state;
    fails("[]", SYNTAX, 1, 2);
    fails("[a.]", SYNTAX, 1, 4);
    fails("[a\nb = 1", SYNTAX, 1, 1);
    fails("[[a]", SYNTAX, 1, 1);
    fails("[ [a]]", SYNTAX, 1, 3);
    fails("[a] b = 1", SYNTAX, 1, 5);
    fails("[fruit]\n[fruit]", TWICE, 2, 2);
    fails("[fruit]\napple = 1\n[fruit.apple]", TWICE, 3, 8);
    fails("[fruit]\napple.color = 1\n[fruit.apple]", TWICE, 3, 8);
    fails("[a.b.c]\nz = 9\n[a]\nb.c.t = 1", TWICE, 4, 3);
    fails("[product]\ntype = {name = 1}\ntype.edible = 2", TWICE, 3, 1);
    fails("[product]\ntype.name = 1\ntype = {edible = 2}", TWICE, 3, 1);
    fails("a = {}\n[a.b]", TWICE, 2, 2);
    fails("fruits = []\n[[fruits]]", TWICE, 2, 3);
    fails("[fruit.physical]\n[[fruit]]", TWICE, 2, 3);
    fails("[[f]]\n[[f.v]]\n[f.v]", TWICE, 3, 4);
    fails("[[a]]\n[a]", TWICE, 2, 2);
}

static void test_depth(void **state)
{
    (void)state;
    char text[400] = "a = ";
    memset(text + 4, '[', sizeof(text) - 5);
    assert_null(parse(text, strlen(text)));
    assert_string_equal(got.slot[0].message, "too deep");
    for (size_t i = 0; i + 1 < sizeof(text); i++)
        text[i] = i % 2 ? '.' : 'a';
    assert_null(parse(text, strlen(text)));
    assert_string_equal(got.slot[0].message, "too deep");
}

/* Every prefix of a text is read or refused, and none is read beyond. */
static void test_cut(void **state)
{
    (void)state;
    static const char text[] =
        "a.\"b\" = [1, { c = '''x''' }, \"\\u00e9\", 1979-05-27 07:32:00]\r\n"
        "[[t.u]] # c\nd = \"\"\"y \\\n  z\"\"\"\n";
    char cut[sizeof(text)];
    for (size_t n = 0; n < sizeof(text); n++) {
        memcpy(cut, text, n);
        const struct json *root = parse(cut, n);
        assert_true(root != NULL || got.errs.count == 1);
    }
}

static int teardown(void **state)
{
    (void)state;
    arena_release(&got.arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_containers),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_bad_keys),
        cmocka_unit_test(test_bad_strings),
        cmocka_unit_test(test_bad_numbers),
        cmocka_unit_test(test_bad_times),
        cmocka_unit_test(test_bad_containers),
        cmocka_unit_test(test_bad_tables),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_cut),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
