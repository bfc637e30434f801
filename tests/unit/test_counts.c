/*
 * Parameter counts of published models, each exact: in all, by kind, used per
 * token, trained, and the buffers that a checkpoint has beside them
 * (tests/golden/published.jsonl). A line without `config` is an entry of the
 * catalogue. Where the numbers are from: tests/oracle/README.md.
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

#include "plan/report_data.h"
#include "json/json.h"

#include "base/banned.h"

#ifndef MEMPLAN_SOURCE_DIR
#define MEMPLAN_SOURCE_DIR "."
#endif

struct lines {
    char *text;
    size_t len;
};

static struct lines read_lines(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        fail_msg("cannot open %s", path);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    struct lines in = { NULL, (size_t)ftell(f) };
    rewind(f);
    in.text = malloc(in.len + 1);
    assert_non_null(in.text);
    assert_int_equal(fread(in.text, 1, in.len, f), in.len);
    in.text[in.len] = '\0';
    fclose(f);
    return in;
}

static bool differs(const char *name, const char *what, uint64_t got,
                    const struct json *want)
{
    if (want == NULL)
        return false;
    const uint64_t n = (uint64_t)want->number;
    if (got == n)
        return false;
    print_error("%s: %s %llu, published %llu\n", name, what,
                (unsigned long long)got, (unsigned long long)n);
    return true;
}

/* "shared_experts" for "shared experts". */
static const struct json *kind_of(const struct json *kinds, unsigned group)
{
    char key[32];
    snprintf(key, sizeof(key), "%s", param_group_name(group));
    for (char *c = key; *c != '\0'; c++)
        *c = *c == ' ' ? '_' : *c;
    return json_member(kinds, key);
}

static bool check_kinds(const char *name, const struct params_result *p,
                        const struct json *row)
{
    const struct json *kinds = json_member(row, "kinds");
    bool bad = false;
    for (unsigned g = 0; kinds != NULL && g < PG_COUNT; g++)
        bad |=
            differs(name, param_group_name(g), p->group[g], kind_of(kinds, g));
    return bad;
}

static bool check_params(const char *name, const struct params_result *p,
                         const struct json *row)
{
    const struct {
        const char *key;
        uint64_t got;
    } all[] = {
        { "parameters", p->total },
        { "trainable", p->trainable },
        { "buffers", p->buffers },
        { "active", p->active },
        { "active_without_input", p->active_without_input },
        { "active_without_words", p->active_without_words },
    };
    bool bad = check_kinds(name, p, row);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        bad |=
            differs(name, all[i].key, all[i].got, json_member(row, all[i].key));
    assert_int_equal(p->trainable + p->frozen, p->total);
    return bad;
}

static bool check_line(const char *line, size_t len)
{
    struct arena a;
    struct diag d;
    memplan_error slot[4] = { 0 };
    memplan_errors errs = { slot, 4, 0 };
    memplan_model *m = NULL;
    arena_init(&a, NULL);
    diag_init(&d, NULL);
    const struct json *row = json_parse(&a, line, len, &d);
    assert_non_null(row);
    const struct json *config = json_member(row, "config");
    char name[64];
    snprintf(name, sizeof(name), "%s", json_member(row, "name")->text.p);
    memplan_status status =
        config == NULL
            ? memplan_model_builtin(&m, name, NULL, &errs)
            : memplan_model_parse(&m, line + config->offset,
                                  json_value_length(line, len, config->offset),
                                  name, NULL, &errs);
    if (status != MEMPLAN_OK)
        fail_msg("%s: %s: %s", name, slot[0].pointer, slot[0].message);
    const bool bad = check_params(name, &m->params, row);
    memplan_model_free(m);
    arena_release(&a);
    return bad;
}

static void test_published(void **state)
{
    (void)state;
    unsigned lines = 0, bad = 0;
    struct lines in =
        read_lines(MEMPLAN_SOURCE_DIR "/tests/golden/published.jsonl");
    const char *line = in.text;
    for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1)
        bad += check_line(line, (size_t)(end - line));
    for (line = in.text; (line = strchr(line, '\n')) != NULL; line++)
        lines++;
    free(in.text);
    print_message("%u published models\n", lines);
    assert_int_equal(bad, 0);
    assert_true(lines >= 151);
}

/* A tensor that is told by another's name alone says whose it is. */
static void check_names(const struct program *p)
{
    static const char *const bare[] = { "bias", "weight", "q", "k" };
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct tensor *t = &p->tensor[i];
        for (size_t n = 0; n < sizeof(bare) / sizeof(bare[0]); n++)
            if (t->role == ROLE_PARAM && t->of == NULL)
                assert_string_not_equal(t->name, bare[n]);
    }
}

/* What is frozen, and what is used, of every model there is. */
static void test_catalogue(void **state)
{
    (void)state;
    const char *name;
    for (size_t i = 0; (name = memplan_builtin_name(i)) != NULL; i++) {
        memplan_model *m = NULL;
        assert_int_equal(memplan_model_builtin(&m, name, NULL, NULL),
                         MEMPLAN_OK);
        const struct params_result *p = &m->params;
        uint64_t sum = 0;
        for (unsigned g = 0; g < PG_COUNT; g++)
            sum += p->group[g];
        assert_int_equal(sum, p->total);
        assert_int_equal(p->trainable + p->frozen, p->total);
        assert_true(p->active <= p->total);
        assert_true(p->active_without_input <= p->active);
        assert_true(p->active_without_words <= p->active_without_input);
        if (m->spec.experts == 0)
            assert_int_equal(p->active, p->total);
        check_names(&m->program);
        memplan_model_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_catalogue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
