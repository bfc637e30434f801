/*
 * Kernels of a layer and the bytes that they move, products and attention
 * aside, against what PyTorch starts (tests/oracle/kernel_moves.py): forward and
 * backward of 19 families, in 16 bits and under autocast.
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

enum { LINE_LEN = 4096, ROWS_LEAST = 38 };
/* Forward is all counted, but a family's ropes; of backward not the copies that
 * put transposed gradients in order. */
#define FORWARD_OFF 0.05
#define BACKWARD_OFF 0.11
#define KERNELS_OFF 0.1

static memplan_report *estimate_text(const char *config, const char *precision)
{
    memplan_model *model = NULL;
    memplan_setup *setup = NULL;
    memplan_report *r = NULL;
    const char *const pairs[] = { "gpu",     "h100-80gb", "framework",
                                  "hf",      "attention", "flash",
                                  "seq_len", "64",        "micro_batch",
                                  "2",       "precision", precision };
    assert_int_equal(memplan_model_parse(&model, config, strlen(config),
                                         "recorded", NULL, NULL),
                     MEMPLAN_OK);
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i += 2)
        assert_int_equal(memplan_setup_set(setup, pairs[i], pairs[i + 1], NULL),
                         MEMPLAN_OK);
    assert_int_equal(memplan_estimate(&r, model, setup, NULL, NULL),
                     MEMPLAN_OK);
    memplan_setup_free(setup);
    memplan_model_free(model);
    return r;
}

/* A layer on a memory of 1 byte/s, which nothing is slower than: its seconds
 * are bytes. */
static struct block_time layer_time(const memplan_report *r)
{
    struct run run = r->run;
    struct clock c;
    struct block_time t;
    clock_init(&c, &r->program, &run);
    struct kernel_speed speed = *c.speed;
    run.gpu.bandwidth_bytes_s = 1;
    speed.memory_share = 1;
    c.speed = &speed;
    const uint64_t last = r->program.layers - 1;
    time_block(&t, &c, &r->program.block[r->program.layer_block[last]]);
    return t;
}

struct found {
    double kernels, bytes;
};

static bool is_near(const char *what, struct found got,
                    const struct json *phase, double off)
{
    struct found want = { 0, 0 };
    static const char *const kinds[] = { "product", "attention", "other" };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        want.kernels += json_member(phase, kinds[i])->child->number;
    want.bytes = json_member(phase, "other")->child->next->number;
    const bool good = fabs(got.kernels / want.kernels - 1) <= KERNELS_OFF
                      && fabs(got.bytes / want.bytes - 1) <= off;
    if (!good)
        printf("%s: %.0f kernels, %.0f bytes; PyTorch %.0f, %.0f\n", what,
               got.kernels, got.bytes, want.kernels, want.bytes);
    return good;
}

static unsigned differs(char *line)
{
    struct arena a;
    struct diag d;
    char what[64];
    arena_init(&a, NULL);
    diag_init(&d, NULL);
    const struct json *root = json_parse(&a, line, strlen(line), &d);
    assert_non_null(root);
    const char *dtype = json_member(root, "dtype")->text.p;
    const bool cast = strcmp(dtype, "autocast") == 0;
    snprintf(what, sizeof what, "%s, %s", json_member(root, "family")->text.p,
             dtype);
    char *config = strstr(line, "\"config\": "); /* the last member */
    assert_non_null(config);
    *strrchr(config, '}') = '\0';
    memplan_report *r = estimate_text(config + strlen("\"config\": "),
                                      cast ? "bf16-amp" : "bf16");
    const struct block_time t = layer_time(r);
    const struct found there = { t.forward.kernels,
                                 t.forward.part[TIME_MEMORY] };
    const struct found back = { t.input.kernels + t.weight.kernels,
                                t.input.part[TIME_MEMORY]
                                    + t.weight.part[TIME_MEMORY] };
    /* both are told */
    const bool forward =
        is_near(what, there, json_member(root, "forward"), FORWARD_OFF);
    const bool backward =
        is_near(what, back, json_member(root, "backward"), BACKWARD_OFF);
    memplan_report_free(r);
    arena_release(&a);
    return !(forward && backward);
}

static void test_layers_move_what_pytorch_does(void **state)
{
    (void)state;
    char line[LINE_LEN];
    unsigned rows = 0, bad = 0;
    FILE *f = fopen(MEMPLAN_SOURCE_DIR "/tests/golden/kernels.jsonl", "rb");
    assert_non_null(f);
    for (; fgets(line, sizeof line, f) != NULL; rows++)
        bad += differs(line);
    fclose(f);
    assert_true(rows >= ROWS_LEAST);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(
        test_layers_move_what_pytorch_does) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
