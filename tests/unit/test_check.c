/* Assertions on estimates, one by one and from a file of cases. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/report_data.h"
#include "json/json.h"

#define GIB ((uint64_t)1073741824)

static char text[1 << 16];
static size_t text_n;

static bool keep(void *ctx, const char *piece, size_t len)
{
    (void)ctx;
    assert_true(text_n + len < sizeof(text));
    memcpy(text + text_n, piece, len);
    text_n += len;
    text[text_n] = '\0';
    return true;
}

static bool refuse(void *ctx, const char *piece, size_t len)
{
    (void)ctx;
    (void)piece;
    (void)len;
    return false;
}

static const char *written(const memplan_check *check, memplan_format format)
{
    memplan_style style = { format, false, 0 };
    text_n = 0;
    text[0] = '\0';
    assert_int_equal(memplan_check_write(check, &style, keep, NULL, NULL),
                     MEMPLAN_OK);
    return text;
}

static memplan_check *new_check(void)
{
    memplan_check *check = NULL;
    assert_int_equal(memplan_check_new(&check, NULL, NULL), MEMPLAN_OK);
    return check;
}

/* 60 GiB of 80 GiB, 1000 GPU-hours, no price. */
static const memplan_report *report(void)
{
    static struct stage_result stage;
    static struct memplan_report r;
    memset(&r, 0, sizeof(r));
    r.kind = REPORT_ESTIMATE;
    r.has_model = true;
    r.spec.name = r.spec.model_type = r.spec.source = "";
    r.params.total = 7000000000;
    r.memory.stage = &stage;
    r.memory.n_stages = 1;
    r.memory.peak = 50 * GIB;
    r.memory.device_total = 60 * GIB;
    r.memory.capacity = 80 * GIB;
    r.memory.headroom = (int64_t)(20 * GIB);
    r.memory.fits = true;
    r.compute.gpu_hours = 1000;
    r.compute.mfu = 0.4;
    r.compute.cost_usd = strtod("nan", NULL);
    r.compute.price_source = "";
    return &r;
}

/* ---- one case ---- */

static bool holds(const char *name, const char *limit)
{
    memplan_check *check = new_check();
    bool held = false;
    assert_int_equal(memplan_check_case(&held, check, "a case", report(), &name,
                                        &limit, 1, NULL),
                     MEMPLAN_OK);
    memplan_check_free(check);
    return held;
}

static void limits_are_held(void **state)
{
    (void)state;
    assert_true(holds("max_memory", "60GiB"));
    assert_false(holds("max_memory", "59.99GiB"));
    assert_true(holds("max-memory", "64424509440"));
    assert_true(holds("max_peak", "50 GiB"));
    assert_true(holds("min_headroom", "20GiB"));
    assert_false(holds("min_headroom", "21GiB"));
    assert_true(holds("min_headroom", "25%"));
    assert_false(holds("min_headroom", "25.1%"));
    assert_true(holds("max_gpu_hours", "1k"));
    assert_true(holds("max_gpu_hours", "1000.0"));
    assert_false(holds("max_gpu_hours", "999.9"));
    assert_true(holds("min_mfu", "40%"));
    assert_false(holds("min_mfu", "0.41"));
    assert_true(holds("max_parameters", "7B"));
    assert_true(holds("fits", "true"));
    assert_false(holds("fits", "false"));
    assert_false(holds("max_cost", "1e18")); /* not known */
}

static void bad_assertions_are_told(void **state)
{
    static const char *const names[] = { "max_memroy", "max_memory", "fits",
                                         "max_memory", "max_days" };
    static const char *const limits[] = { "1GiB", "lots", "maybe",
                                          "99999999999999999999GiB", "5%%" };
    static const memplan_status wanted[] = { MEMPLAN_E_UNKNOWN, MEMPLAN_E_ARG,
                                             MEMPLAN_E_ARG, MEMPLAN_E_RANGE,
                                             MEMPLAN_E_ARG };
    memplan_error slots[8];
    memplan_errors errs = { slots, 8, 0 };
    memplan_check *check = new_check();
    bool held = true;
    (void)state;
    assert_int_equal(memplan_check_case(&held, check, "c", report(), names,
                                        limits, 5, &errs),
                     MEMPLAN_E_UNKNOWN);
    assert_false(held);
    assert_int_equal(errs.count, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(slots[i].status, wanted[i]);
        assert_true(slots[i].hint[0] != '\0');
    }
    assert_string_equal(slots[0].hint, "did you mean 'max_memory'?");
    assert_string_equal(written(check, MEMPLAN_FORMAT_TABLE), "");
    assert_int_equal(
        memplan_check_case(&held, check, "c", NULL, NULL, NULL, 0, NULL),
        MEMPLAN_E_ARG);
    memplan_check_free(check);
    memplan_check_free(NULL);
}

static void table_of_assertions_is_sound(void **state)
{
    (void)state;
    for (size_t i = 0; memplan_check_assertion(i); i++) {
        const memplan_assertion *a = memplan_check_assertion(i);
        uint64_t n = 0;
        double x = 0;
        assert_true(a->doc[0] != '\0' && a->placeholder[0] != '\0');
        if (a->type == MEMPLAN_TYPE_BYTES)
            assert_int_equal(memplan_report_bytes(&n, report(), a->path),
                             MEMPLAN_OK);
        if (strcmp(a->name, "max_gpu_hours") == 0)
            assert_int_equal(memplan_report_number(&x, report(), a->path),
                             MEMPLAN_OK);
    }
}

static memplan_check *three_cases(void)
{
    static const char *const names[] = { "max_memory", "min_mfu" };
    static const char *const good[] = { "70GiB", "0.4" };
    static const char *const bad[] = { "70GiB", "0.5" };
    static const char *const cost[] = { "max_cost" };
    static const char *const much[] = { "100" };
    memplan_check *check = new_check();
    bool held = false;
    assert_int_equal(
        memplan_check_case(&held, check, "one", report(), names, good, 2, NULL),
        MEMPLAN_OK);
    assert_int_equal(memplan_check_case(&held, check, "two, quoted", report(),
                                        names, bad, 2, NULL),
                     MEMPLAN_OK);
    assert_int_equal(
        memplan_check_case(NULL, check, "three", report(), cost, much, 1, NULL),
        MEMPLAN_OK);
    assert_int_equal(
        memplan_check_case(&held, check, "four", report(), NULL, NULL, 0, NULL),
        MEMPLAN_OK);
    assert_true(held);
    return check;
}

static void results_are_written(void **state)
{
    memplan_check *check = three_cases();
    memplan_error slot;
    memplan_errors errs = { &slot, 1, 0 };
    (void)state;
    assert_string_equal(written(check, MEMPLAN_FORMAT_TABLE),
                        "ok   one: memory.device_total 60.00 GiB <= 70.00 GiB, "
                        "compute.mfu 0.4000 >= 0.4000\n"
                        "FAIL two, quoted: compute.mfu 0.4000 < 0.5000\n"
                        "FAIL three: compute.cost_usd is not known (max_cost)\n"
                        "ok   four: memory.fits is true\n");
    assert_string_equal(written(check, MEMPLAN_FORMAT_CSV),
                        "name,ok,assertion,actual,limit\r\n"
                        "one,true,max_memory,64424509440,75161927680\r\n"
                        "one,true,min_mfu,0.4,0.4\r\n"
                        "\"two, quoted\",true,max_memory,64424509440,"
                        "75161927680\r\n"
                        "\"two, quoted\",false,min_mfu,0.4,0.5\r\n"
                        "three,false,max_cost,,100\r\n"
                        "four,true,fits,true,true\r\n");
    assert_string_equal(
        written(check, MEMPLAN_FORMAT_MARKDOWN),
        "| | case | what holds |\n"
        "| :-- | :-- | :-- |\n"
        "| ok | one | memory.device_total 60.00 GiB \\<= 70.00 GiB |\n"
        "| ok | one | compute.mfu 0.4000 >= 0.4000 |\n"
        "| ok | two, quoted | memory.device_total 60.00 GiB \\<= 70.00 GiB |\n"
        "| **FAIL** | **two, quoted** | **compute.mfu 0.4000 \\< 0.5000** |\n"
        "| **FAIL** | **three** | **compute.cost_usd is not known "
        "(max_cost)** |\n"
        "| ok | four | memory.fits is true |\n");
    assert_int_equal(memplan_check_write(check, NULL, refuse, NULL, &errs),
                     MEMPLAN_E_WRITE);
    assert_int_equal(errs.count, 1);
    memplan_check_free(check);
}

static void results_are_json(void **state)
{
    memplan_check *check = three_cases();
    struct arena a;
    struct diag d;
    (void)state;
    arena_init(&a, NULL);
    diag_init(&d, NULL);
    written(check, MEMPLAN_FORMAT_JSON);
    const struct json *root = json_parse(&a, text, text_n, &d);
    assert_non_null(root);
    assert_string_equal(json_member(root, "schema")->text.p, "memplan.check/1");
    const struct json *one = json_member(root, "cases")->child;
    assert_true(json_member(one, "ok")->truth);
    assert_true(json_member(one, "actual")->number == 60.0 * (double)GIB);
    /* the one that failed, not the first */
    const struct json *two = one->next;
    assert_string_equal(json_member(two, "name")->text.p, "two, quoted");
    assert_string_equal(json_member(two, "assertion")->text.p, "min_mfu");
    assert_true(json_member(two, "limit")->number == 0.5);
    assert_int_equal(json_member(two, "assertions")->child->next->index, 1);
    const struct json *three = two->next;
    assert_true(json_member(three, "actual")->kind == JSON_NULL);
    assert_true(json_member(three->next, "actual")->truth);
    assert_null(three->next->next);
    arena_release(&a);
    memplan_check_free(check);
}

/* ---- a file of cases ---- */

static const char mini[] =
    "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"intermediate_size\":128,\"vocab_size\":256,"
    "\"max_position_embeddings\":128}";

static bool load_mini(void *ctx, const char *name, const char **out,
                      size_t *len)
{
    (void)ctx;
    bool broken = strcmp(name, "broken.json") == 0;
    if (!broken && strcmp(name, "mini.json") != 0)
        return false;
    *out = broken ? "{\n  \"model_type\": 7}" : mini;
    *len = strlen(*out);
    return true;
}

static memplan_status parse(memplan_check *check, bool *held, const char *json,
                            memplan_errors *errs)
{
    return memplan_check_parse(held, check, json, strlen(json), load_mini, NULL,
                               errs);
}

static void cases_are_run(void **state)
{
    char json[2048];
    memplan_check *check = new_check();
    bool held = false;
    (void)state;
    str_format(json, sizeof(json),
               "{\"notes\": \"x\", \"cases\": ["
               "{\"name\": \"inline\", \"model\": %s,"
               " \"setup\": {\"gpus\": 8, \"zero\": 3},"
               " \"assert\": {\"max_parameters\": \"1M\", \"fits\": true}},"
               "{\"model\": \"mini.json\","
               " \"assert\": {\"max_parameters\": 10}}]}",
               mini);
    assert_int_equal(parse(check, &held, json, NULL), MEMPLAN_OK);
    assert_false(held);
    written(check, MEMPLAN_FORMAT_TABLE);
    assert_memory_equal(text, "ok   inline: model.parameters ", 30);
    assert_non_null(strstr(text, "\nFAIL mini.json: model.parameters "));
    memplan_check_free(check);
}

/* Line 1 is "{"cases": ["; each case stands on a line of its own. */
static void every_mistake_has_a_place(void **state)
{
    static const char json[] =
        "{\"cases\": [\n"
        "{\"model\": \"mini.json\", \"setup\": {\"gpu\": \"nope\"}},\n"
        "{\"model\": \"no-such-model\"},\n"
        "{\"model\": \"broken.json\"},\n"
        "{\"model\": {\"model_type\": \"llama\", \"hidden_size\": -1}},\n"
        "{\"model\": \"mini.json\", \"assert\": {\"max_memroy\": \"1GiB\"}},\n"
        "{\"model\": \"mini.json\", \"setup\": {\"gpus\": 8, \"tp\": 3}},\n"
        "{\"modle\": \"mini.json\"},\n"
        "7]}";
    static const struct {
        uint32_t line;
        const char *pointer;
    } wanted[] = {
        { 2, "/cases/0/setup/gpu" },
        { 3, "/cases/1/model" },
        { 4, "/cases/2/model" },
        { 5, "/cases/3/model/hidden_size" },
        { 6, "/cases/4/assert/max_memroy" },
        { 7, "/cases/5/setup/tp" },
        { 8, "/cases/6/modle" },
        { 8, "/cases/6" },
        { 9, "/cases/7" },
    };
    memplan_error slots[32];
    memplan_errors errs = { slots, 32, 0 };
    memplan_check *check = new_check();
    bool held = true;
    (void)state;
    assert_true(parse(check, &held, json, &errs) != MEMPLAN_OK);
    assert_false(held);
    for (size_t w = 0; w < sizeof(wanted) / sizeof(wanted[0]); w++) {
        bool found = false;
        for (size_t i = 0; i < errs.count && i < errs.capacity; i++)
            found = found
                    || (slots[i].line == wanted[w].line
                        && strcmp(slots[i].pointer, wanted[w].pointer) == 0);
        if (!found) {
            for (size_t i = 0; i < errs.count && i < errs.capacity; i++)
                print_error("%u:%u %s: %s\n", slots[i].line, slots[i].column,
                            slots[i].pointer, slots[i].message);
            fail_msg("no error at %s", wanted[w].pointer);
        }
    }
    assert_string_equal(written(check, MEMPLAN_FORMAT_TABLE), "");
    memplan_check_free(check);
}

static void good_cases_run_beside_bad_ones(void **state)
{
    static const char json[] = "{\"cases\": [{\"model\": \"mini.json\", "
                               "\"setup\": {\"zero\": 9}},"
                               "{\"model\": \"mini.json\"}]}";
    memplan_check *check = new_check();
    bool held = true;
    (void)state;
    assert_int_equal(parse(check, &held, json, NULL), MEMPLAN_E_RANGE);
    assert_false(held);
    assert_string_equal(written(check, MEMPLAN_FORMAT_TABLE),
                        "ok   mini.json: memory.fits is true\n");
    memplan_check_free(check);
}

static void files_that_are_none(void **state)
{
    static const char *const bad[] = {
        "", "[]", "{}", "{\"cases\": {}}", "{\"cases\": []}", "{\"cases\": ["
    };
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        memplan_error slots[4];
        memplan_errors errs = { slots, 4, 0 };
        memplan_check *check = new_check();
        bool held = true;
        assert_true(parse(check, &held, bad[i], &errs) != MEMPLAN_OK);
        assert_false(held);
        assert_true(errs.count > 0);
        memplan_check_free(check);
    }
}

/* ---- memory running out ---- */

struct budget {
    size_t left;
};

static void *limited(void *ctx, void *ptr, size_t old_size, size_t new_size)
{
    struct budget *b = ctx;
    memplan_allocator a = allocator_default();
    if (new_size > 0 && b->left == 0)
        return NULL;
    b->left -= new_size > 0;
    return a.resize(a.ctx, ptr, old_size, new_size);
}

static void memory_may_run_out(void **state)
{
    static const char json[] = "{\"cases\": [{\"model\": \"mini.json\"},"
                               "{\"model\": \"mini.json\"}]}";
    memplan_status status = MEMPLAN_E_NOMEM;
    (void)state;
    for (size_t n = 0; status != MEMPLAN_OK; n++) {
        struct budget budget = { n };
        memplan_allocator alloc = { limited, &budget };
        memplan_check *check = NULL;
        bool held = false;
        assert_true(n < 1000);
        status = memplan_check_new(&check, &alloc, NULL);
        if (status == MEMPLAN_OK)
            status = parse(check, &held, json, NULL);
        assert_true(status == MEMPLAN_OK || status == MEMPLAN_E_NOMEM);
        assert_true(held == (status == MEMPLAN_OK));
        memplan_check_free(check);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_are_held),
        cmocka_unit_test(bad_assertions_are_told),
        cmocka_unit_test(table_of_assertions_is_sound),
        cmocka_unit_test(results_are_written),
        cmocka_unit_test(results_are_json),
        cmocka_unit_test(cases_are_run),
        cmocka_unit_test(every_mistake_has_a_place),
        cmocka_unit_test(good_cases_run_beside_bad_ones),
        cmocka_unit_test(files_that_are_none),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
