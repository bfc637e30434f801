/*
 * Sizes that a file leaves out. Of every configuration of
 * tests/golden/counts.jsonl each number is taken away in turn: the file is
 * refused, or has the parameters that it had, or the size follows from others,
 * or what stands in for it is said (struct spec, defaulted).
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

#include "spec/spec.h"
#include "json/json.h"

#include "base/banned.h"

#ifndef MEMPLAN_SOURCE_DIR
#define MEMPLAN_SOURCE_DIR "."
#endif

enum { TEXT_MAX = 4096, TEXTS_MAX = 1 << 20 };

static size_t length_of(const char *text, const struct json *at)
{
    const char *from = text + at->offset, *end = from;
    if (at->kind == JSON_ARRAY || at->kind == JSON_OBJECT)
        return json_value_length(text, strlen(text), at->offset);
    if (at->kind == JSON_STRING)
        return (size_t)(strchr(from + 1, '"') - from) + 1;
    while (strchr(",]} ", *end) == NULL)
        end++;
    return (size_t)(end - from);
}

/* The object's text without one member, or with all of them. */
static void without(char out[TEXT_MAX], const char *text,
                    const struct json *object, const struct json *gone)
{
    size_t n = 0;
    for (const struct json *at = object->child; at != NULL; at = at->next) {
        if (at == gone)
            continue;
        n += (size_t)snprintf(out + n, TEXT_MAX - n, "%s\"%s\": %.*s",
                              n == 0 ? "{" : ", ", at->key.p,
                              (int)length_of(text, at), text + at->offset);
        assert_true(n + 2 < TEXT_MAX);
    }
    memcpy(out + n, "}", 2);
}

static uint64_t parameters(const char *text)
{
    memplan_model *m = NULL;
    uint64_t n = 0;
    if (memplan_model_parse(&m, text, strlen(text), "it", NULL, NULL)
        == MEMPLAN_OK)
        n = memplan_model_parameters(m);
    memplan_model_free(m);
    return n;
}

/* Whether a field that had no key but a number of the class is said. */
static bool is_said(const char *text, const char *key)
{
    struct arena a;
    struct diag d;
    struct spec s;
    bool good = true;
    arena_init(&a, NULL);
    diag_init(&d, NULL);
    const struct json *root = json_parse(&a, text, strlen(text), &d);
    const struct spec_text in = {
        .root = root, .text = text, .len = strlen(text), .name = "it"
    };
    assert_int_equal(spec_import(&s, &in, &a, &d), MEMPLAN_OK);
    for (size_t i = 0; i < s.notes; i++) {
        const struct spec_note *note = &s.note[i];
        if (note->origin != NOTE_DEFAULT || strcmp(note->key, key) != 0
            || strncmp(note->why, "default", 7) != 0)
            continue;
        /* a first layer 0, or every 1st: all layers */
        good = s.default_sizes || strstr(s.defaulted, key) != NULL
               || strcmp(note->value, "0") == 0
               || strcmp(note->value, "1") == 0;
    }
    arena_release(&a);
    return good;
}

static unsigned check_line(const char *line)
{
    struct arena a;
    struct diag d;
    char text[TEXT_MAX];
    unsigned silent = 0;
    arena_init(&a, NULL);
    diag_init(&d, NULL);
    const struct json *root = json_parse(&a, line, strlen(line), &d);
    assert_non_null(root);
    const struct json *config = json_member(root, "config");
    without(text, line, config, NULL);
    const uint64_t whole = parameters(text);
    assert_true(whole > 0);
    for (const struct json *at = config->child; at != NULL; at = at->next) {
        if (at->kind != JSON_NUMBER)
            continue;
        without(text, line, config, at);
        const uint64_t n = parameters(text);
        if (n == 0 || n == whole || is_said(text, at->key.p))
            continue;
        print_error("without '%s': %s\n", at->key.p, text);
        silent++;
    }
    arena_release(&a);
    return silent;
}

static void test_absent(void **state)
{
    (void)state;
    static char text[TEXTS_MAX];
    FILE *f = fopen(MEMPLAN_SOURCE_DIR "/tests/golden/counts.jsonl", "rb");
    assert_non_null(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    fclose(f);
    unsigned silent = 0, lines = 0;
    char *at = text;
    for (char *end; (end = strchr(at, '\n')) != NULL; at = end + 1, lines++) {
        *end = '\0';
        silent += check_line(at);
    }
    assert_true(lines > 300);
    assert_int_equal(silent, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_absent) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
