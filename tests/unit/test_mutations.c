/*
 * Configurations that something is wrong with (tests/oracle/mutations.py):
 * missing, null, of the wrong kind, zero, negative, huge, contradictory,
 * nested wrongly, cut off. Each is refused with a message that names what is
 * wrong and says what to write, or has exactly the parameters that
 * transformers' class makes of it; and which of the two is held too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "memplan/memplan.h"

#include "json/json.h"

#include "base/banned.h"

#ifndef MEMPLAN_SOURCE_DIR
#define MEMPLAN_SOURCE_DIR "."
#endif

enum { ERRORS = 16, FAMILIES_MAX = 64 };

static char *read_all(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        fail_msg("cannot open %s", path);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    const size_t len = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(len + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, len, f), len);
    text[len] = '\0';
    fclose(f);
    return text;
}

/* What it is told that it should be, or may be. */
static bool says_what(const memplan_error *e)
{
    static const char *const words[] = { "must be", "expected", "exceeds",
                                         "is an object" };
    bool says = e->hint[0] != '\0';
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        says |= strstr(e->message, words[i]) != NULL;
    return says;
}

/* The key that was changed, in one of the messages: by its own name, or by
 * the field's where the key is not there. */
static bool is_refused_well(const memplan_errors *errs, const char *key)
{
    bool named = key[0] == '\0';
    for (size_t i = 0; i < errs->count && i < ERRORS; i++) {
        const memplan_error *e = &errs->item[i];
        if (!says_what(e))
            return false;
        named |= strstr(e->pointer, key) != NULL
                 || strstr(e->message, key) != NULL
                 || strstr(e->hint, key) != NULL;
    }
    return errs->count > 0 && named;
}

struct line {
    const char *text, *what, *key, *family;
    const struct json *parameters;
    bool refused;
};

static bool check(const struct line *l)
{
    memplan_error slot[ERRORS] = { 0 };
    memplan_errors errs = { slot, ERRORS, 0 };
    memplan_model *m = NULL;
    const memplan_status status =
        memplan_model_parse(&m, l->text, strlen(l->text), "it", NULL, &errs);
    bool good = (status != MEMPLAN_OK) == l->refused;
    if (status != MEMPLAN_OK)
        good &= is_refused_well(&errs, l->key);
    else
        good &= l->parameters->kind == JSON_NUMBER
                && (double)memplan_model_parameters(m) == l->parameters->number;
    if (!good)
        print_error("%s, %s: %llu parameters, class %.0f; %s: %s (%s)\n",
                    l->family, l->what,
                    m ? (unsigned long long)memplan_model_parameters(m) : 0,
                    l->parameters->number, slot[0].pointer, slot[0].message,
                    slot[0].hint);
    memplan_model_free(m);
    return good;
}

static const char *text_of(const struct json *row, const char *key)
{
    const struct json *at = json_member(row, key);
    assert_true(at != NULL && at->kind == JSON_STRING);
    return at->text.p;
}

static void test_mutations(void **state)
{
    (void)state;
    unsigned lines = 0, refused = 0, bad = 0;
    char *text = read_all(MEMPLAN_SOURCE_DIR "/tests/golden/mutations.jsonl");
    const char *at = text;
    for (char *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        struct arena a;
        struct diag d;
        arena_init(&a, NULL);
        diag_init(&d, NULL);
        const struct json *row = json_parse(&a, at, (size_t)(end - at), &d);
        assert_non_null(row);
        const struct line l = {
            .text = text_of(row, "text"),
            .what = text_of(row, "what"),
            .key = text_of(row, "key"),
            .family = text_of(row, "family"),
            .parameters = json_member(row, "parameters"),
            .refused = json_member(row, "refused")->truth,
        };
        lines++;
        refused += l.refused;
        bad += !check(&l);
        arena_release(&a);
    }
    free(text);
    print_message("%u configurations, %u refused\n", lines, refused);
    assert_int_equal(bad, 0);
    assert_true(lines >= 211);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
