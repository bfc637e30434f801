/*
 * Layers whose products are in 8 bits, against the kernels of real ones: what
 * tests/oracle/gpu_float8.py found of Llama 3 8B, compiled, by torchao's recipes
 * (casts.csv). What casts take is what the layer's other kernels take beyond
 * those of 16 bits.
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
#include "plan/report_data.h"
#include "unit/estimate.h"

#include "base/banned.h"

enum { LINE_LEN = 512 };

/* Of a layer, in one pass. */
struct layer {
    double products, other;
};

static bool is_pass(const char *name, bool back)
{
    return strcmp(name, back ? "backward" : "forward") == 0;
}

static struct layer timed(const char *recipe, bool back)
{
    char path[LINE_LEN], line[LINE_LEN];
    struct layer found = { 0, 0 };
    snprintf(path, sizeof path, "%s/tests/measured/casts.csv",
             MEMPLAN_SOURCE_DIR);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL) {
        char name[32], pass[32];
        struct layer x;
        if (sscanf(line,
                   "h100-80gb,%31[^,],llama-3-8b,8192,%31[^,],%*[^,],%lf,%*[^,]"
                   ",%lf",
                   name, pass, &x.products, &x.other)
                == 4
            && strcmp(name, recipe) == 0 && is_pass(pass, back))
            found = x;
    }
    fclose(f);
    assert_true(found.products > 0 && found.other > 0);
    return found;
}

static struct layer predicted(const char *recipe, bool back)
{
    const bool eight = strcmp(recipe, "bf16") != 0;
    const char *const pairs[] = { "framework",
                                  "torchtitan",
                                  "gpu",
                                  "h100-80gb",
                                  "seq_len",
                                  "8192",
                                  "compile",
                                  "true",
                                  "recompute",
                                  "none",
                                  "precision",
                                  eight ? "fp8-mixed" : "bf16",
                                  eight ? "fp8_recipe" : NULL,
                                  recipe,
                                  NULL };
    memplan_report *r = estimate("llama-3-8b", pairs);
    struct clock c;
    struct block_time t;
    clock_init(&c, &r->program, &r->run);
    time_block(&t, &c, &r->program.block[r->program.layer_block[0]]);
    const struct layer forward = { t.forward.part[TIME_PRODUCTS],
                                   t.forward.part[TIME_MEMORY] };
    const struct layer behind = {
        t.input.part[TIME_PRODUCTS] + t.weight.part[TIME_PRODUCTS],
        t.input.part[TIME_MEMORY] + t.weight.part[TIME_MEMORY]
    };
    memplan_report_free(r);
    return back ? behind : forward;
}

static void near(const char *what, const char *recipe, double got, double want,
                 double within)
{
    print_message("%s, %s: %.3g ms, timed %.3g\n", recipe, what, 1e3 * got,
                  1e3 * want);
    if (fabs(got / want - 1) > within)
        fail_msg("%s of %s: %.3g s, timed %.3g s", what, recipe, got, want);
}

static void test_layer_in_8_bits(void **state)
{
    (void)state;
    static const char *const recipes[] = { "tensorwise", "rowwise",
                                           "rowwise_with_gw_hp" };
    static const char *const casts[] = { "casts forward", "casts backward" };
    static const char *const products[] = { "products forward",
                                            "products backward" };
    for (int back = 0; back < 2; back++) {
        const struct layer plain = predicted("bf16", back);
        const struct layer real = timed("bf16", back);
        for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++) {
            const struct layer got = predicted(recipes[i], back);
            const struct layer want = timed(recipes[i], back);
            near(casts[back], recipes[i], got.other - plain.other,
                 want.other - real.other, 0.12);
            near(products[back], recipes[i], got.products, want.products, 0.15);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layer_in_8_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
