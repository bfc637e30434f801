/*
 * Runs the JSON layer over the parsing suite of Nicolas Seriot's "Parsing JSON
 * is a minefield" (github.com/nst/JSONTestSuite), where the environment says
 * MEMPLAN_JSON_SUITE=<folder of y_*.json, n_*.json, i_*.json>; and always over
 * a few cases of the same kinds, kept here.
 *
 * One exception to the suite, on purpose: duplicate keys, valid there, are bad
 * input here. They are told apart by their status, E_SCHEMA: the text got past
 * the syntax.
 */
#include "json/json.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* Parses a copy of exactly len bytes; an error has a place and a text. */
static memplan_status parse(const char *name, const char *text, size_t len)
{
    char *copy = malloc(len > 0 ? len : 1);
    assert_non_null(copy);
    if (len > 0)
        memcpy(copy, text, len);
    memplan_error slot;
    memplan_errors errs = { &slot, 1, 0 };
    struct arena a;
    struct diag d;
    arena_init(&a, NULL);
    diag_init(&d, &errs);
    bool good = json_parse(&a, copy, len, &d) != NULL;
    if (good != (d.status == MEMPLAN_OK) || good != (errs.count == 0))
        fail_msg("%s: result and status disagree", name);
    if (!good
        && (slot.line == 0 || slot.column == 0 || slot.offset > len
            || slot.message[0] == '\0'))
        fail_msg("%s: error without place or text", name);
    arena_release(&a);
    free(copy);
    return d.status;
}

/* 'y' must be accepted, or be refused past the syntax for its duplicate keys;
 * 'n' must be refused as syntax; 'i' may be either. */
static void check(const char *name, const char *text, size_t len)
{
    memplan_status status = parse(name, text, len);
    memplan_status wanted =
        strstr(name, "duplicated_key") ? MEMPLAN_E_SCHEMA : MEMPLAN_OK;
    if (name[0] == 'y' && status != wanted)
        fail_msg("%s: status %d", name, (int)status);
    if (name[0] == 'n' && status != MEMPLAN_E_SYNTAX)
        fail_msg("%s: status %d", name, (int)status);
    if (name[0] == 'i' && status != MEMPLAN_OK && status != MEMPLAN_E_SYNTAX
        && status != MEMPLAN_E_RANGE)
        fail_msg("%s: status %d", name, (int)status);
}

#define CASE(name, text)                                                       \
    {                                                                          \
        name,                                                                  \
        {                                                                      \
            text, sizeof(text) - 1                                             \
        }                                                                      \
    }

static void test_own_cases(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        struct str text;
    } rows[] = {
        CASE("y_empty_array", "[]"),
        CASE("y_blanks", " \t\r\n[ ] \n"),
        CASE("y_top_string", "\"\""),
        CASE("y_top_number", "-0"),
        CASE("y_exponents", "[1e1, 1E+2, 1e-2, 0e+1, 1.5E0]"),
        CASE("y_tiny", "[1e-4000]"),
        CASE("y_zero_escape", "{\"a\\u0000b\": \"\\u0000\"}"),
        CASE("y_noncharacter", "[\"\\uFFFF\", \"\xEF\xBF\xBF\"]"),
        CASE("y_delete", "[\"\x7F\"]"),
        CASE("y_line_separators", "[\"\xE2\x80\xA8\xE2\x80\xA9\"]"),
        CASE("y_pair", "[\"\\uDBFF\\uDFFF\"]"),
        CASE("y_same_key_elsewhere", "{\"a\": {\"a\": 1}, \"b\": {\"a\": 1}}"),
        CASE("y_keys_of_other_case", "{\"a\": 1, \"A\": 1}"),
        CASE("y_keys_alike_up_to_zero", "{\"a\\u0000\": 1, \"a\": 1}"),
        CASE("y_duplicated_key", "{\"a\": 1, \"a\": 1}"),
        CASE("y_duplicated_key_escaped", "{\"a\": 1, \"\\u0061\": 1}"),
        CASE("n_no_data", ""),
        CASE("n_blank", " "),
        CASE("n_mark_only", "\xEF\xBB\xBF"),
        CASE("n_vertical_tab", "[\v]"),
        CASE("n_form_feed", "[\f]"),
        CASE("n_zero_byte", "[1\0]"),
        CASE("n_zero_byte_behind", "123\0"),
        CASE("n_zero_byte_in_string", "[\"a\0b\"]"),
        CASE("n_escape_zero_byte", "[\"\\\0\"]"),
        CASE("n_escape_at_end", "[\"\\"),
        CASE("n_half_pair_at_end", "[\"\\uD834\\uDd"),
        CASE("n_comment", "[1/* x */]"),
        CASE("n_comma_first", "[,1]"),
        CASE("n_only_comma", "[,]"),
        CASE("n_colon_in_array", "[\"a\": 1]"),
        CASE("n_no_value", "{\"a\":}"),
        CASE("n_no_key", "{:1}"),
        CASE("n_two_colons", "{\"a\"::1}"),
        CASE("n_key_number", "{1:1}"),
        CASE("n_bracket_swapped", "[{]}"),
        CASE("n_minus_space", "[- 1]"),
        CASE("n_two_points", "[1..2]"),
        CASE("n_exponent_point", "[1e1.5]"),
        CASE("n_full_width_digit", "[\xEF\xBC\x91]"),
        CASE("n_literal_glued", "[truefalse]"),
        CASE("i_huge", "[1e4000]"),
        CASE("i_half_pair", "[\"\\uD800\"]"),
        CASE("i_latin_1", "[\"\xE9\"]"),
        CASE("i_mark", "\xEF\xBB\xBF{}"),
    };
    for (size_t i = 0; i < LENGTH(rows); i++)
        check(rows[i].name, rows[i].text.p, rows[i].text.n);
}

static char *read_file(const char *path, size_t *len)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("cannot open %s", path);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    assert_true(size >= 0);
    rewind(file);
    *len = (size_t)size;
    char *text = malloc(*len + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, *len, file), *len);
    fclose(file);
    return text;
}

static void test_suite(void **state)
{
    (void)state;
    const char *folder = getenv("MEMPLAN_JSON_SUITE");
    if (!folder || folder[0] == '\0') {
        skip();
        return;
    }
    DIR *dir = opendir(folder);
    if (!dir)
        fail_msg("cannot open the folder %s", folder);
    size_t counts[3] = { 0, 0, 0 };
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        const char *kind = strchr("yni", entry->d_name[0]);
        if (!kind || *kind == '\0' || entry->d_name[1] != '_')
            continue;
        char path[4096];
        size_t len;
        str_format(path, sizeof(path), "%s/%s", folder, entry->d_name);
        char *text = read_file(path, &len);
        check(entry->d_name, text, len);
        free(text);
        counts[*kind == 'y' ? 0 : *kind == 'n' ? 1 : 2]++;
    }
    closedir(dir);
    print_message("suite: %zu y_, %zu n_, %zu i_ files\n", counts[0], counts[1],
                  counts[2]);
    assert_true(counts[0] > 0 && counts[1] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_cases),
        cmocka_unit_test(test_suite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
