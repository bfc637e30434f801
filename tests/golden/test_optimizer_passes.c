/*
 * What an optimizer's step moves around its update, for each element, and how
 * often the host waits for the GPU, against DeepSpeed's own, Megatron-core's,
 * PyTorch's clipping and GradScaler (tests/oracle/optimizer_passes.py,
 * megatron_passes.py).
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fold/time.h"
#include "memplan/memplan.h"
#include "plan/report_data.h"
#include "json/json.h"

#include "base/banned.h"

enum { LINE_LEN = 1024, ROWS_LEAST = 29 };
/* Of bytes an element: norms and flags, one number each. */
#define BYTES_OFF 0.02

static memplan_report *estimate_row(const struct json *setup)
{
    memplan_model *model = NULL;
    memplan_setup *s = NULL;
    memplan_report *r = NULL;
    assert_int_equal(memplan_model_builtin(&model, "gpt2", NULL, NULL),
                     MEMPLAN_OK);
    assert_int_equal(memplan_setup_new(&s, NULL, NULL), MEMPLAN_OK);
    for (const struct json *x = setup->child; x != NULL; x = x->next)
        assert_int_equal(memplan_setup_set(s, x->key.p, x->text.p, NULL),
                         MEMPLAN_OK);
    assert_int_equal(memplan_estimate(&r, model, s, NULL, NULL), MEMPLAN_OK);
    memplan_setup_free(s);
    memplan_model_free(model);
    return r;
}

static bool differs(const struct json *root)
{
    struct optimizer_passes x;
    memplan_report *r = estimate_row(json_member(root, "setup"));
    optimizer_passes_of(&x, &r->run);
    memplan_report_free(r);
    double bytes = 0, waits = x.waits;
    for (unsigned i = 0; i < x.n; i++) {
        bytes += x.at[i].own + x.at[i].whole; /* of one rank */
        if (x.at[i].waits)
            waits += json_member(root, "tensors")->number;
    }
    return fabs(bytes - json_member(root, "bytes")->number) > BYTES_OFF
           || fabs(waits - json_member(root, "waits")->number) > 0;
}

static void test_passes_are_the_engines(void **state)
{
    (void)state;
    char line[LINE_LEN];
    unsigned rows = 0, bad = 0;
    FILE *f =
        fopen(MEMPLAN_SOURCE_DIR "/tests/golden/optimizer_passes.jsonl", "rb");
    assert_non_null(f);
    for (; fgets(line, sizeof line, f) != NULL; rows++) {
        struct arena a;
        struct diag d;
        arena_init(&a, NULL);
        diag_init(&d, NULL);
        const struct json *root = json_parse(&a, line, strlen(line), &d);
        assert_non_null(root);
        if (differs(root)) {
            printf("%s", line);
            bad++;
        }
        arena_release(&a);
    }
    fclose(f);
    assert_true(rows >= ROWS_LEAST);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(
        test_passes_are_the_engines) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
