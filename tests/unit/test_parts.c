/*
 * Files with a text part and a vision part: exact counts of each and of the
 * whole, which part is meant where nobody says, and what is told of parts that
 * are not there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "memplan/memplan.h"

#include "plan/report_data.h"
#include "json/json.h"

static memplan_error slot[4];

static memplan_errors fresh(void)
{
    memset(slot, 0, sizeof(slot));
    return (memplan_errors){ slot, 4, 0 };
}

static memplan_model *parse(const char *json, size_t n)
{
    memplan_errors errs = fresh();
    memplan_model *m = NULL;
    if (memplan_model_parse(&m, json, n, "it", NULL, &errs) != MEMPLAN_OK)
        fail_msg("%s: %s (%s)\n%.*s", slot[0].pointer, slot[0].message,
                 slot[0].hint, (int)n, json);
    return m;
}

static void select_part(memplan_model *m, const char *part)
{
    memplan_errors errs = fresh();
    if (memplan_model_select(m, part, &errs) != MEMPLAN_OK)
        fail_msg("%s: %s (%s)", part, slot[0].message, slot[0].hint);
}

static uint64_t number_of(const struct json *line, const char *key)
{
    const struct json *at = json_member(line, key);
    assert_non_null(at);
    return (uint64_t)at->number;
}

static bool differs(const struct json *line, memplan_model *m, const char *part)
{
    select_part(m, part);
    const uint64_t want = number_of(line, part);
    const uint64_t got = memplan_model_parameters(m);
    if (got == want)
        return false;
    print_error("%s: %llu parameters, not %llu\n", part,
                (unsigned long long)got, (unsigned long long)want);
    return true;
}

static bool check_line(const char *text, size_t len)
{
    static const char *const parts[] = { "text", "vision", "all", "text" };
    struct arena a;
    struct diag d;
    bool bad = false;
    arena_init(&a, NULL);
    diag_init(&d, NULL);
    const struct json *line = json_parse(&a, text, len, &d);
    assert_non_null(line);
    const struct json *config = json_member(line, "config");
    memplan_model *m = parse(text + config->offset,
                             json_value_length(text, len, config->offset));
    const struct json *type = json_member(config, "model_type");
    const char *usual = str_is(type->text, "clip") ? "all" : "text";
    bad |= memplan_model_parameters(m) != number_of(line, usual);
    for (size_t i = 0; i < 4; i++)
        bad |= differs(line, m, parts[i]);
    memplan_model_free(m);
    arena_release(&a);
    if (bad)
        print_error("%.*s\n", (int)len, text);
    return bad;
}

/* tests/oracle/parts.py */
static void test_counts(void **state)
{
    (void)state;
    static char text[1 << 16];
    unsigned lines = 0, bad = 0;
    FILE *f = fopen(MEMPLAN_SOURCE_DIR "/tests/golden/parts.jsonl", "r");
    assert_non_null(f);
    for (; fgets(text, sizeof(text), f) != NULL; lines++)
        bad += check_line(text, strlen(text));
    (void)fclose(f);
    assert_true(lines > 20);
    assert_int_equal(bad, 0);
}

#define TEXT_PART                                                              \
    "\"text_config\": {\"model_type\": \"llama\", \"hidden_size\": 64, "       \
    "\"intermediate_size\": 128, \"num_hidden_layers\": 2, "                   \
    "\"num_attention_heads\": 4, \"vocab_size\": 256}"

static void refused(const char *json, const char *part, memplan_status status,
                    const char *message, const char *hint)
{
    memplan_model *m = parse(json, strlen(json));
    const uint64_t before = memplan_model_parameters(m);
    memplan_errors errs = fresh();
    assert_int_equal(memplan_model_select(m, part, &errs), status);
    assert_non_null(strstr(slot[0].message, message));
    assert_non_null(strstr(slot[0].hint, hint));
    assert_int_equal(memplan_model_parameters(m), before);
    memplan_model_free(m);
}

static void test_refused(void **state)
{
    (void)state;
    refused("{\"model_type\": \"mistral3\", " TEXT_PART
            ", \"vision_config\": {\"model_type\": \"pixtral\"}}",
            "vision", MEMPLAN_E_UNSUPPORTED, "no part 'vision'",
            "type 'pixtral' is not modelled");
    refused("{\"model_type\": \"gemma3\", " TEXT_PART "}", "all",
            MEMPLAN_E_UNSUPPORTED, "no part 'all'", "one model");
    refused("{\"model_type\": \"gemma3\", " TEXT_PART "}", "audio",
            MEMPLAN_E_UNKNOWN, "no part 'audio'", "text, vision, all");
    memplan_model *m = NULL;
    assert_int_equal(memplan_model_select(m, "text", NULL), MEMPLAN_E_ARG);
}

/* A bad value in either part is an error wherever it stands. */
static void test_bad_values(void **state)
{
    (void)state;
    static const char json[] =
        "{\"model_type\": \"llava\", " TEXT_PART
        ", \"vision_config\": {\"model_type\": \"clip_vision_model\", "
        "\"hidden_size\": \"wide\", \"image_size\": 8, \"patch_size\": 16}}";
    memplan_errors errs = fresh();
    memplan_model *m = NULL;
    assert_int_equal(
        memplan_model_parse(&m, json, strlen(json), "it", NULL, &errs),
        MEMPLAN_E_SCHEMA);
    assert_int_equal(errs.count, 2);
    assert_string_equal(slot[0].pointer, "/vision_config/hidden_size");
    assert_string_equal(slot[1].pointer, "/vision_config/patch_size");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bad_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
