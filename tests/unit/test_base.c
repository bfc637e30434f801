/*
 * Tests of src/base: what an arena promises when memory runs out, how alike
 * names are, and numbers as people write them.
 */
#include "base/arena.h"
#include "base/count.h"
#include "base/diag.h"
#include "base/str.h"
#include "base/unit.h"

#include <float.h>
#include <limits.h>
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

/* ---- an allocator that counts, and fails when told ---- */

struct meter {
    size_t calls;   /* that wanted memory */
    size_t fail_at; /* this call fails, and every later one */
    size_t live;    /* bytes not given back */
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
    if (m->calls++ >= m->fail_at)
        return NULL;
    void *p = realloc(ptr, new_size);
    assert_non_null(p);
    m->live += new_size - old_size;
    return p;
}

static memplan_allocator metered(struct meter *m)
{
    return (memplan_allocator){ metered_resize, m };
}

/* ---- arena ---- */

static void test_arena_zeroed_and_aligned(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL);
    for (size_t n = 0; n < 300; n++) {
        unsigned char *p = arena_alloc(&a, n, 7);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % _Alignof(max_align_t), 0);
        for (size_t i = 0; i < n * 7; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xA5, n * 7);
    }
    arena_rewind(&a);
    unsigned char *p = arena_alloc(&a, 4000, 1);
    for (size_t i = 0; i < 4000; i++)
        assert_int_equal(p[i], 0);
    arena_release(&a);
    assert_null(a.first);
}

static void test_arena_text(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL);
    assert_string_equal(arena_copy(&a, "abcdef", 3), "abc");
    assert_string_equal(arena_copy(&a, NULL, 0), "");
    assert_string_equal(arena_printf(&a, "%s-%d", "tp", 8), "tp-8");
    assert_string_equal(arena_printf(&a, "%s", ""), "");
    arena_release(&a);
}

static void test_arena_overflow_is_sticky(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL);
    assert_null(arena_alloc(&a, SIZE_MAX / 2, 3));
    assert_null(arena_alloc(&a, 1, 1));
    assert_true(a.failed);
    arena_rewind(&a);
    assert_non_null(arena_alloc(&a, 1, 1));
    assert_null(arena_alloc(&a, SIZE_MAX, 1));
    arena_rewind(&a);
    assert_null(arena_copy(&a, "x", SIZE_MAX));
    arena_release(&a);
}

/* Sizes that need chunks of several kinds. */
static bool fill(struct arena *a)
{
    static const size_t sizes[] = { 10,    4000, 100,  9000,   50,
                                    70000, 20,   5000, 300000, 1 };
    for (size_t round = 0; round < 20; round++) {
        for (size_t i = 0; i < LENGTH(sizes); i++)
            arena_alloc(a, sizes[i], 1);
    }
    return !a->failed;
}

static void test_arena_rewound_allocates_nothing(void **state)
{
    (void)state;
    struct meter m = { 0, SIZE_MAX, 0 };
    memplan_allocator alloc = metered(&m);
    struct arena a;
    arena_init(&a, &alloc);
    assert_int_equal(m.calls, 0);
    assert_true(fill(&a));
    size_t calls = m.calls;
    for (int i = 0; i < 3; i++) {
        arena_rewind(&a);
        assert_true(fill(&a));
        assert_int_equal(m.calls, calls);
    }
    arena_release(&a);
    assert_int_equal(m.live, 0);
}

static void test_arena_every_failure(void **state)
{
    (void)state;
    bool done = false;
    for (size_t n = 0; !done; n++) {
        struct meter m = { 0, n, 0 };
        memplan_allocator alloc = metered(&m);
        struct arena a;
        arena_init(&a, &alloc);
        done = fill(&a);
        if (!done) {
            assert_int_equal(m.calls, n + 1);
            assert_null(arena_alloc(&a, 0, 1));
            assert_null(arena_copy(&a, "x", 1));
            assert_null(arena_printf(&a, "x"));
        }
        arena_release(&a);
        assert_int_equal(m.live, 0);
        assert_true(n < 1000);
    }
}

/* ---- str ---- */

static void test_str_slices(void **state)
{
    (void)state;
    struct str rest;
    struct str head = str_cut(STR("a=b=c"), '=', &rest);
    assert_true(str_is(head, "a"));
    assert_true(str_is(rest, "b=c"));
    head = str_cut(STR("abc"), '=', &rest);
    assert_true(str_is(head, "abc"));
    assert_int_equal(rest.n, 0);
    assert_int_equal(str_of(NULL).n, 0);
    assert_true(str_is(str_trim(STR(" \t a b\t ")), "a b"));
    assert_int_equal(str_trim(STR("   ")).n, 0);
    assert_true(str_ends_with(STR("x.json"), ".json"));
    assert_true(str_ends_with(STR("x"), ""));
    assert_false(str_ends_with(STR("json"), ".json"));
    assert_true(str_eq(STR(""), str_of(NULL)));
    assert_false(str_eq(STR("ab"), STR("ac")));
    assert_true(str_same_name(STR("Micro-Batch"), STR("micro_batch")));
    assert_true(str_same_name(STR("A100 80GB"), STR("a100-80gb")));
    assert_false(str_same_name(STR("tp"), STR("tp1")));
    assert_false(str_same_name(STR("tp"), STR("dp")));
}

static void test_str_distance(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        unsigned distance;
        bool near;
    } rows[] = {
        { "", "", 0, true },
        { "zero", "zero", 0, true },
        { "zer", "zero", 1, true },
        { "zreo", "zero", 1, true },
        { "Zero", "ZERO", 0, true },
        { "tp", "dp", 1, true },
        { "a", "b", 1, false },
        { "kitten", "sitting", 3, false },
        { "", "abc", 3, false },
        { "seq", "gpus", 4, false },
        { "a-b", "a_b", 0, true },
        { "ca", "abc", 3, false },
        { "micro_bacth", "micro_batch", 1, true },
        { "llama-7b", "llama2-7b", 1, true },
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct str a = str_of(rows[i].a);
        struct str b = str_of(rows[i].b);
        unsigned d = str_distance(a, b);
        assert_int_equal(d, rows[i].distance);
        assert_int_equal(str_distance(b, a), d);
        assert_int_equal(str_near(a, b, d), rows[i].near);
    }
    char x[200];
    char y[200];
    memset(x, 'x', sizeof(x));
    memset(y, 'y', sizeof(y));
    struct str a = { x, sizeof(x) };
    struct str b = { y, sizeof(y) };
    assert_int_equal(str_distance(a, b), 63);
}

/* Without vsnprintf(), and with it. */
static void test_str_format_numbers(void **state)
{
    (void)state;
    char buf[64];
    str_format(buf, sizeof buf, "%u of %lu, %llu", 0u, 10ul, ULLONG_MAX);
    assert_string_equal(buf, "0 of 10, 18446744073709551615");
    str_format(buf, sizeof buf, "%u%% %03u %s", 7u, 7u, "x");
    assert_string_equal(buf, "7% 007 x");
    assert_int_equal(str_format(buf, 5, "ab%u", 12u), 4);
    assert_int_equal(str_format(buf, 4, "ab%u", 12u), 3);
    assert_string_equal(buf, "ab1");
}

/* Decimals are rounded here as printf() rounds them: ties of the double itself,
 * and neighbours of such. */
static void test_str_format_decimals(void **state)
{
    (void)state;
    char mine[64], theirs[64];
    uint64_t x = 1;
    for (int i = 0; i < 20000; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        double v = (double)(x >> 40) / (double)(1u << (x >> 32 & 15));
        if (i % 3 == 1)
            v = nextafter(v, i % 2 == 0 ? 0 : 1e9);
        if (i % 3 == 2)
            v = (double)(x >> 44) / 1000;
        for (int decimals = 0; decimals <= 3; decimals++) {
            str_format(mine, sizeof mine, "%s%.*f", "", decimals, v);
            snprintf(theirs, sizeof theirs, "%.*f", decimals, v);
            assert_string_equal(mine, theirs);
        }
    }
    str_format(mine, sizeof mine, "%.1f %.2f %.0f %.3f", -0.04, 1e300 / 1e297,
               2.5, 0.0005);
    assert_string_equal(mine, "-0.0 1000.00 2 0.001");
    str_format(mine, sizeof mine, "%u.%02u %02u %.3s %% %.*s|%5.1f", 1u, 5u,
               95u, "abcd", 1, "xy", 2.25);
    assert_string_equal(mine, "1.05 95 abc % x|  2.2");
}

static void test_str_format(void **state)
{
    (void)state;
    char buf[8] = "";
    assert_int_equal(str_format(buf, sizeof(buf), "%s", "abc"), 3);
    assert_int_equal(str_append(buf, sizeof(buf), "%d", 12), 5);
    assert_string_equal(buf, "abc12");
    assert_int_equal(str_append(buf, sizeof(buf), "%s", "xyz"), 7);
    assert_string_equal(buf, "abc12xy");
    assert_int_equal(str_append(buf, sizeof(buf), "more"), 7);
    assert_int_equal(str_format(buf, sizeof(buf), "%s-%s%s", "ab", "", "c"), 4);
    assert_string_equal(buf, "ab-c");
    assert_int_equal(str_format(buf, sizeof(buf), "%s %%%s", "a", "b"), 4);
    assert_string_equal(buf, "a %b");
    assert_int_equal(str_format(buf, sizeof(buf), "%s%.1f", "x", 0.5), 4);
    assert_string_equal(buf, "x0.5");
    assert_int_equal(str_format(buf, 5, "ab%s", "cd"), 4);
    assert_int_equal(str_format(buf, 4, "ab%s", "cd"), 3);
    assert_string_equal(buf, "abc");
    assert_int_equal(str_format(NULL, 0, "abc"), 0);
    assert_int_equal(str_append(NULL, 0, "abc"), 0);
    char list[8] = "";
    assert_int_equal(str_append_item(list, sizeof(list), "a"), 1);
    assert_int_equal(str_append_item(list, sizeof(list), "bc"), 5);
    assert_string_equal(list, "a, bc");
    assert_int_equal(str_append_item(list, sizeof(list), "def"), 7);
    assert_string_equal(list, "a, bc, ");
    assert_int_equal(str_append_item(NULL, 0, "abc"), 0);
    /* A character of two, three, four bytes is not cut in half. */
    assert_int_equal(str_format(buf, 4, "ab\xC3\xA9"), 2);
    assert_string_equal(buf, "ab");
    assert_int_equal(str_format(buf, 5, "ab\xC3\xA9z"), 4);
    assert_string_equal(buf, "ab\xC3\xA9");
    assert_int_equal(str_format(buf, 4, "a\xE2\x82\xAC"), 1);
    assert_int_equal(str_format(buf, 4, "\xF0\x9D\x84\x9E"), 0);
}

/* ---- diag and status ---- */

static void test_diag(void **state)
{
    (void)state;
    memplan_error slot[2];
    memset(slot, 0xEE, sizeof(slot));
    memplan_errors errs = { slot, 2, 0 };
    struct diag d;
    diag_init(&d, &errs);
    assert_int_equal(d.status, MEMPLAN_OK);
    memplan_error *e = diag_add(&d, MEMPLAN_E_RANGE, "tp is %d", 0);
    diag_hint(e, "at least %d", 1);
    diag_add(&d, MEMPLAN_E_SCHEMA, "second");
    diag_hint(diag_add(&d, MEMPLAN_E_ARG, "lost"), "lost too");
    assert_int_equal(diag_nomem(&d), MEMPLAN_E_NOMEM);
    assert_int_equal(d.status, MEMPLAN_E_RANGE);
    assert_int_equal(errs.count, 4);
    assert_int_equal(slot[0].status, MEMPLAN_E_RANGE);
    assert_string_equal(slot[0].message, "tp is 0");
    assert_string_equal(slot[0].hint, "at least 1");
    assert_string_equal(slot[0].pointer, "");
    assert_int_equal(slot[0].line, 0);
    assert_string_equal(slot[1].message, "second");

    diag_init(&d, NULL);
    char text[400];
    memset(text, 'x', sizeof(text));
    e = diag_add(&d, MEMPLAN_E_ARG, "%.*s", (int)sizeof(text), text);
    assert_int_equal(strlen(e->message), sizeof(e->message) - 1);
    memplan_errors empty = { NULL, 5, 0 };
    diag_init(&d, &empty);
    assert_non_null(diag_add(&d, MEMPLAN_E_ARG, "x"));
    assert_int_equal(empty.count, 1);
}

static void test_status(void **state)
{
    (void)state;
    assert_string_equal(memplan_version(), MEMPLAN_VERSION);
    assert_string_equal(memplan_status_text(MEMPLAN_OK), "success");
    assert_string_equal(memplan_status_text(MEMPLAN_E_WRITE), "write failed");
    assert_string_equal(memplan_status_text((memplan_status)11),
                        "unknown status");
}

static void test_count(void **state)
{
    (void)state;
    assert_int_equal(PROD(3, 4, 5).v, 60);
    assert_true(PROD(UINT64_MAX, 2).over);
    assert_true(count_add(count_of(UINT64_MAX), count_of(1)).over);
    assert_true(count_div_up(count_of(1), 0).over);
    assert_int_equal(count_round_up(count_of(513), 512).v, 1024);
    assert_true(count_round_up(count_of(UINT64_MAX), 512).over);
}

/* ---- unit: reading ---- */

struct whole_row {
    const char *text;
    enum unit_result result;
    uint64_t value;
};

static void check_whole(const struct whole_row *rows, size_t n,
                        enum unit_result (*parse)(struct str, uint64_t *))
{
    for (size_t i = 0; i < n; i++) {
        uint64_t value = 77;
        enum unit_result result = parse(str_of(rows[i].text), &value);
        if (result != rows[i].result || value != rows[i].value)
            fail_msg("'%s': result %d, value %llu", rows[i].text, (int)result,
                     (unsigned long long)value);
    }
}

static void test_parse_count(void **state)
{
    (void)state;
    static const struct whole_row rows[] = {
        { "0", UNIT_OK, 0 },
        { "64", UNIT_OK, 64 },
        { " 64 ", UNIT_OK, 64 },
        { "007", UNIT_OK, 7 },
        { "13B", UNIT_OK, UINT64_C(13000000000) },
        { "13b", UNIT_OK, UINT64_C(13000000000) },
        { "13 G", UNIT_OK, UINT64_C(13000000000) },
        { "1.4T", UNIT_OK, UINT64_C(1400000000000) },
        { "260e9", UNIT_OK, UINT64_C(260000000000) },
        { "2.6E+11", UNIT_OK, UINT64_C(260000000000) },
        { "8k", UNIT_OK, 8000 },
        { "8Ki", UNIT_OK, 8192 },
        { "0.5Ki", UNIT_OK, 512 },
        { "1_000_000", UNIT_OK, 1000000 },
        { "1.50", UNIT_BAD, 0 },
        { "1.0", UNIT_OK, 1 },
        { "15e-1", UNIT_BAD, 0 },
        { "1500e-2", UNIT_OK, 15 },
        { "1.5k", UNIT_OK, 1500 },
        { "1.2345k", UNIT_BAD, 0 },
        { "9223372036854775807", UNIT_OK, INT64_MAX },
        { "9223372036854775808", UNIT_RANGE, 0 },
        { "9.3e18", UNIT_RANGE, 0 },
        { "1e999999999999", UNIT_RANGE, 0 },
        { "0e999999999999", UNIT_OK, 0 },
        { "1e-999999999999", UNIT_BAD, 0 },
        { "100000000000000000000000000000000000000000", UNIT_RANGE, 0 },
        { "1.00000000000000000000000000000000000000000001", UNIT_BAD, 0 },
        { "1.00000000000000000000000000000000000000000000", UNIT_OK, 1 },
        { "-1", UNIT_RANGE, 0 },
        { "-0", UNIT_OK, 0 },
        { "", UNIT_BAD, 0 },
        { "  ", UNIT_BAD, 0 },
        { "B", UNIT_BAD, 0 },
        { "+1", UNIT_BAD, 0 },
        { "1e", UNIT_BAD, 0 },
        { "1e+", UNIT_BAD, 0 },
        { "1.", UNIT_BAD, 0 },
        { ".5", UNIT_BAD, 0 },
        { ".5k", UNIT_OK, 500 },
        { "1_", UNIT_BAD, 0 },
        { "_1", UNIT_BAD, 0 },
        { "1__0", UNIT_BAD, 0 },
        { "1,000", UNIT_BAD, 0 },
        { "1 2", UNIT_BAD, 0 },
        { "0x10", UNIT_BAD, 0 },
        { "8GB", UNIT_BAD, 0 },
        { "eight", UNIT_BAD, 0 },
        { "nan", UNIT_BAD, 0 },
        { "--1", UNIT_BAD, 0 },
    };
    check_whole(rows, LENGTH(rows), unit_parse_count);
}

static void test_parse_bytes(void **state)
{
    (void)state;
    static const struct whole_row rows[] = {
        { "80GiB", UNIT_OK, UINT64_C(80) << 30 },
        { "24GB", UNIT_OK, UINT64_C(24000000000) },
        { "24gb", UNIT_OK, UINT64_C(24000000000) },
        { "512 MiB", UNIT_OK, UINT64_C(512) << 20 },
        { "1024", UNIT_OK, 1024 },
        { "7 B", UNIT_OK, 7 },
        { "1.5TiB", UNIT_OK, UINT64_C(1536) << 30 },
        { "0.3GiB", UNIT_OK, 322122547 },
        { "1.5", UNIT_OK, 1 },
        { "0.1B", UNIT_OK, 0 },
        { "4KiB", UNIT_OK, 4096 },
        { "4kB", UNIT_OK, 4000 },
        { "1PiB", UNIT_OK, UINT64_C(1) << 50 },
        { "8191PiB", UNIT_OK, UINT64_C(8191) << 50 },
        { "8192PiB", UNIT_RANGE, 0 },
        { "1e30PiB", UNIT_RANGE, 0 },
        { "-1GiB", UNIT_RANGE, 0 },
        { "80G", UNIT_BAD, 0 },
        { "80Gi", UNIT_BAD, 0 },
        { "GiB", UNIT_BAD, 0 },
        { "80GiBs", UNIT_BAD, 0 },
        { "80 G iB", UNIT_BAD, 0 },
    };
    check_whole(rows, LENGTH(rows), unit_parse_bytes);
}

static void test_parse_real(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum unit_result result;
        double value;
    } rows[] = {
        { "0.45", UNIT_OK, 0.45 },
        { "1e-3", UNIT_OK, 1e-3 },
        { "45%", UNIT_OK, 0.45 },
        { "45.5 %", UNIT_OK, 0.455 },
        { "-2.5", UNIT_OK, -2.5 },
        { ".5", UNIT_OK, 0.5 },
        { "0", UNIT_OK, 0 },
        { "1_000.5", UNIT_OK, 1000.5 },
        { "3.141592653589793238462643383279502884197169399375105", UNIT_OK,
          3.141592653589793 },
        { "1.7976931348623157e308", UNIT_OK, DBL_MAX },
        { "5e-324", UNIT_OK, 4.9406564584124654e-324 },
        { "1e-400", UNIT_OK, 0 },
        { "340282366920938463463374607431768211455", UNIT_OK, 0x1p128 },
        { "1e309", UNIT_RANGE, 0 },
        { "-1e309", UNIT_RANGE, 0 },
        { "1e99999999999", UNIT_RANGE, 0 },
        { "inf", UNIT_BAD, 0 },
        { "nan", UNIT_BAD, 0 },
        { "", UNIT_BAD, 0 },
        { "%", UNIT_BAD, 0 },
        { "1%%", UNIT_BAD, 0 },
        { "0,5", UNIT_BAD, 0 },
        { "0x1p3", UNIT_BAD, 0 },
        { "1k", UNIT_BAD, 0 },
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        double value = 77;
        enum unit_result r = unit_parse_real(str_of(rows[i].text), &value);
        if (r != rows[i].result || value < rows[i].value
            || value > rows[i].value)
            fail_msg("'%s': result %d, value %.17g", rows[i].text, (int)r,
                     value);
    }
}

/* ---- unit: writing ---- */

static void test_format_bytes(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {
        { 0, "0 B" },
        { 512, "512 B" },
        { 1023, "1023 B" },
        { 1024, "1.00 KiB" },
        { UINT64_C(13475460710), "12.55 GiB" },
        { UINT64_C(80) << 30, "80.00 GiB" },
        { (UINT64_C(100) << 30) - 1, "100.0 GiB" },
        { UINT64_C(1000) << 30, "1000.0 GiB" },
        { (UINT64_C(1) << 40) - 1, "1.00 TiB" },
        { UINT64_MAX, "16.00 EiB" },
    };
    char buf[UNIT_TEXT_MAX];
    for (size_t i = 0; i < LENGTH(rows); i++)
        assert_string_equal(unit_format_bytes(buf, rows[i].bytes),
                            rows[i].text);
}

static void test_format_count(void **state)
{
    (void)state;
    static const struct {
        double count;
        const char *text;
    } rows[] = {
        { 0, "0" },
        { 1, "1" },
        { 0.5, "0.5" },
        { 999, "999" },
        { 999.6, "1k" },
        { 1000, "1k" },
        { 6.738415616e9, "6.74B" },
        { 260e9, "260B" },
        { 1.4e12, "1.4T" },
        { 999499, "999k" },
        { 999999, "1M" },
        { -13e9, "-13B" },
        { 9.999e6, "10M" },
        { 99.99e6, "100M" },
        { 3e15, "3P" },
        { 2.5e22, "2.50e+22" },
        { 1e-5, "1.00e-05" },
    };
    char buf[UNIT_TEXT_MAX];
    for (size_t i = 0; i < LENGTH(rows); i++)
        assert_string_equal(unit_format_count(buf, rows[i].count),
                            rows[i].text);
    assert_string_equal(unit_format_count(buf, (double)INFINITY), "inf");
    assert_string_equal(unit_format_count(buf, -(double)INFINITY), "-inf");
    assert_string_equal(unit_format_count(buf, (double)NAN), "nan");
    assert_string_equal(unit_format_flop(buf, 2.027e22), "2.03e+22");
    assert_string_equal(unit_s(1), "");
    assert_string_equal(unit_s(0), "s");
    assert_string_equal(unit_s(1.5), "s");
}

static void test_format_grouped(void **state)
{
    (void)state;
    static const struct {
        double value;
        int decimals;
        const char *text;
    } rows[] = {
        { 45139, 0, "45,139" },
        { 1335.5, 1, "1,335.5" },
        { 0, 0, "0" },
        { 999, 0, "999" },
        { 1000, 2, "1,000.00" },
        { -1234567, 0, "-1,234,567" },
        { 999999.6, 0, "1,000,000" },
        { -0.4, 0, "0" },
        { -123, 0, "-123" },
        { 1e17, 9, "100,000,000,000,000,000.000000000" },
        { 1e18, 0, "1.00e+18" },
        { 1e300, 2, "1.00e+300" },
        { 5, 99, "5.000000000" },
        { 5, -1, "5" },
    };
    char buf[UNIT_TEXT_MAX];
    for (size_t i = 0; i < LENGTH(rows); i++)
        assert_string_equal(
            unit_format_grouped(buf, rows[i].value, rows[i].decimals),
            rows[i].text);
}

static void check_doubles(void)
{
    static const struct {
        double value;
        const char *text;
    } rows[] = {
        { 0, "0" },
        { 0.1, "0.1" },
        { 1.0 / 3, "0.3333333333333333" },
        { 0.1 + 0.2, "0.30000000000000004" },
        { -2.5, "-2.5" },
        { 12345678901234, "12345678901234" },
        { 1e22, "1e+22" },
        { DBL_MAX, "1.7976931348623157e+308" },
    };
    char buf[UNIT_TEXT_MAX];
    for (size_t i = 0; i < LENGTH(rows); i++) {
        double back = 0;
        unit_format_double(buf, rows[i].value);
        assert_string_equal(buf, rows[i].text);
        assert_int_equal(unit_parse_real(str_of(buf), &back), UNIT_OK);
        assert_memory_equal(&back, &rows[i].value, sizeof(back));
    }
    assert_string_equal(unit_format_bytes(buf, 1536), "1.50 KiB");
    assert_string_equal(unit_format_count(buf, 1500), "1.5k");
    assert_string_equal(unit_format_grouped(buf, 1335.5, 1), "1,335.5");
}

static void test_format_double(void **state)
{
    (void)state;
    check_doubles();
    /* Random bit patterns come back as they went. */
    uint64_t bits = 88172645463325252;
    for (int i = 0; i < 20000; i++) {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        double value;
        double back = 0;
        char buf[UNIT_TEXT_MAX];
        memcpy(&value, &bits, sizeof(value));
        unit_format_double(buf, value);
        if (!isfinite(value))
            continue;
        assert_int_equal(unit_parse_real(str_of(buf), &back), UNIT_OK);
        assert_memory_equal(&back, &value, sizeof(back));
    }
}

/* The host's decimal comma changes nothing. */
static void test_locale(void **state)
{
    (void)state;
    static const char *const names[] = { "de_DE.UTF-8", "fr_FR.UTF-8",
                                         "ps_AF.UTF-8" };
    bool any = false;
    for (size_t i = 0; i < LENGTH(names); i++) {
        if (!setlocale(LC_NUMERIC, names[i]))
            continue;
        any = true;
        check_doubles();
        test_parse_real(NULL);
        test_format_bytes(NULL);
    }
    setlocale(LC_NUMERIC, "C");
    if (!any)
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena_zeroed_and_aligned),
        cmocka_unit_test(test_arena_text),
        cmocka_unit_test(test_arena_overflow_is_sticky),
        cmocka_unit_test(test_arena_rewound_allocates_nothing),
        cmocka_unit_test(test_arena_every_failure),
        cmocka_unit_test(test_str_slices),
        cmocka_unit_test(test_str_distance),
        cmocka_unit_test(test_str_format),
        cmocka_unit_test(test_str_format_numbers),
        cmocka_unit_test(test_str_format_decimals),
        cmocka_unit_test(test_diag),
        cmocka_unit_test(test_status),
        cmocka_unit_test(test_count),
        cmocka_unit_test(test_parse_count),
        cmocka_unit_test(test_parse_bytes),
        cmocka_unit_test(test_parse_real),
        cmocka_unit_test(test_format_bytes),
        cmocka_unit_test(test_format_count),
        cmocka_unit_test(test_format_grouped),
        cmocka_unit_test(test_format_double),
        cmocka_unit_test(test_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
