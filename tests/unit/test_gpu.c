/* The accelerator catalogue: its rows are sound and can be found. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "data/gpu.h"

enum { LONGEST_NAME = 63 };

static const struct gpu *find(const char *name)
{
    return gpu_find(name, strlen(name));
}

static const struct gpu *nearest(const char *name)
{
    return gpu_nearest(name, strlen(name));
}

static bool is_kebab(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        const char c = text[i];
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-') {
            return false;
        }
    }
    return len > 0 && len <= LONGEST_NAME;
}

static bool is_rate(double value)
{
    return isfinite(value) && value > 0.0;
}

static bool is_rate_or_none(double value)
{
    return isfinite(value) && value >= 0.0;
}

static void names_are_sorted_and_unique(void **state)
{
    (void)state;
    assert_true(gpu_count() > 30);
    for (size_t i = 0; i < gpu_count(); i++) {
        const struct gpu *gpu = gpu_at(i);
        assert_non_null(gpu);
        assert_true(is_kebab(gpu->name, strlen(gpu->name)));
        if (i > 0) {
            assert_true(strcmp(gpu_at(i - 1)->name, gpu->name) < 0);
        }
    }
    assert_null(gpu_at(gpu_count()));
    assert_null(gpu_at(SIZE_MAX));
}

/* A name, alias or title that two rows share would find the first only. */
static void every_name_finds_its_own_row(void **state)
{
    (void)state;
    for (size_t i = 0; i < gpu_count(); i++) {
        const struct gpu *gpu = gpu_at(i);
        assert_ptr_equal(find(gpu->name), gpu);
        assert_ptr_equal(find(gpu->title), gpu);
        const char *alias = gpu->aliases;
        while (*alias != '\0') {
            const size_t len = strcspn(alias, " ");
            assert_true(is_kebab(alias, len));
            assert_ptr_equal(gpu_find(alias, len), gpu);
            alias += len;
            if (*alias == ' ') {
                alias++;
                assert_true(*alias != '\0');
            }
        }
    }
}

static void aliases_are_unique(void **state)
{
    (void)state;
    for (size_t i = 0; i < gpu_count(); i++) {
        const struct gpu *gpu = gpu_at(i);
        for (const char *a = gpu->aliases; *a != '\0';) {
            const size_t len = strcspn(a, " ");
            assert_false(len == strlen(gpu->name)
                         && strncmp(a, gpu->name, len) == 0);
            const char *rest = a + len;
            while (*rest == ' ') {
                rest++;
                const size_t other = strcspn(rest, " ");
                assert_false(len == other && strncmp(a, rest, len) == 0);
                rest += other;
            }
            a += len;
            if (*a == ' ') {
                a++;
            }
        }
    }
}

static void texts_are_there(void **state)
{
    (void)state;
    for (size_t i = 0; i < gpu_count(); i++) {
        const struct gpu *gpu = gpu_at(i);
        assert_true(gpu->title[0] != '\0');
        assert_true(gpu->vendor[0] != '\0');
        assert_true(gpu->link[0] != '\0');
        assert_true(gpu->source[0] != '\0');
        assert_non_null(gpu->aliases);
        assert_non_null(gpu->unverified);
        assert_non_null(gpu->note);
        assert_non_null(gpu->price_source);
        assert_int_equal(gpu->price_usd_h > 0.0, gpu->price_source[0] != '\0');
    }
}

static void numbers_are_plausible(void **state)
{
    (void)state;
    const uint64_t gib = (uint64_t)1 << 30;
    for (size_t i = 0; i < gpu_count(); i++) {
        const struct gpu *gpu = gpu_at(i);
        assert_true(gpu->memory_bytes >= 8 * gib);
        assert_true(gpu->memory_bytes <= 1024 * gib);
        assert_true(gpu->visible_bytes <= gpu->memory_bytes);
        assert_true(gpu->visible_bytes >= gpu->memory_bytes / 100 * 95);
        assert_true(is_rate(gpu->bandwidth_bytes_s));
        assert_true(is_rate(gpu->peak_fp32_flop_s));
        assert_true(is_rate(gpu->peak_fp16_flop_s));
        assert_true(is_rate_or_none(gpu->peak_tf32_flop_s));
        assert_true(is_rate_or_none(gpu->peak_bf16_flop_s));
        assert_true(is_rate_or_none(gpu->peak_fp8_flop_s));
        assert_true(is_rate_or_none(gpu->peak_fp4_flop_s));
        assert_true(gpu->peak_fp16_flop_s > gpu->peak_fp32_flop_s);
        assert_true(gpu->sm_count > 0);
        assert_true(gpu->gpus_per_node > 0);
        assert_true(is_rate(gpu->intra_node_bytes_s));
        assert_true(is_rate(gpu->inter_node_bytes_s));
        assert_true(is_rate(gpu->host_link_bytes_s));
        assert_true(is_rate_or_none(gpu->price_usd_h));
        assert_true(is_rate(gpu->tdp_w));
    }
}

/* What the hardware generations can do. */
static void peaks_follow_the_architecture(void **state)
{
    (void)state;
    for (size_t i = 0; i < gpu_count(); i++) {
        const struct gpu *gpu = gpu_at(i);
        const bool bf16 = gpu->peak_bf16_flop_s > 0.0;
        const bool fp8 = gpu->peak_fp8_flop_s > 0.0;
        const bool fp4 = gpu->peak_fp4_flop_s > 0.0;
        switch (gpu->arch) {
        case ARCH_VOLTA:
        case ARCH_TURING: assert_false(bf16 || fp8 || fp4); break;
        case ARCH_AMPERE:
        case ARCH_CDNA2: assert_true(bf16 && !fp8 && !fp4); break;
        case ARCH_ADA:
        case ARCH_HOPPER:
        case ARCH_CDNA3: assert_true(bf16 && fp8 && !fp4); break;
        case ARCH_BLACKWELL:
        case ARCH_CDNA4: assert_true(bf16 && fp8 && fp4); break;
        }
    }
}

static void known_cards_have_their_figures(void **state)
{
    (void)state;
    const struct gpu *a100 = find("a100-80gb");
    assert_non_null(a100);
    assert_int_equal(a100->memory_bytes, (uint64_t)80 << 30);
    assert_true(a100->peak_bf16_flop_s == 312e12);
    assert_int_equal(a100->arch, ARCH_AMPERE);
    const struct gpu *gcd = find("mi250x");
    assert_non_null(gcd);
    assert_true(gcd->memory_bytes <= (uint64_t)64 << 30);
    assert_int_equal(gcd->gpus_per_node, 8);
}

static void lookup_ignores_case_and_separators(void **state)
{
    (void)state;
    const struct gpu *a100 = find("a100-80gb");
    assert_ptr_equal(find("A100"), a100);
    assert_ptr_equal(find("a100_80GB"), a100);
    assert_ptr_equal(find("A100 SXM4 80GB"), a100);
    assert_ptr_equal(find("NVIDIA A100-SXM4-80GB"), a100);
    assert_ptr_equal(gpu_find("a100-80gb-and-more", 9), a100);
    assert_string_equal(find("GeForce RTX 3090")->name, "rtx-3090");
    assert_string_equal(find("v100")->name, "v100-16gb");
}

static void unknown_names_find_nothing(void **state)
{
    (void)state;
    assert_null(find("a101"));
    assert_null(find("a100-80gb "));
    assert_null(find("a100 a100-sxm4-80gb")); /* two aliases are not one */
    assert_null(find(""));
    assert_null(gpu_find(NULL, 3));
}

/* "h800" is "h800-80gb" where that is the one size it comes in. */
static void one_size_needs_no_size(void **state)
{
    (void)state;
    for (size_t i = 0; i < gpu_count(); i++) {
        const char *name = gpu_at(i)->name;
        const char *dash = strrchr(name, '-');
        if (dash == NULL || strstr(dash, "gb") == NULL)
            continue;
        const size_t stem = (size_t)(dash - name);
        size_t sizes = 0;
        for (size_t k = 0; k < gpu_count(); k++) {
            const char *other = strrchr(gpu_at(k)->name, '-');
            sizes += other != NULL && strstr(other, "gb") != NULL
                     && (size_t)(other - gpu_at(k)->name) == stem
                     && strncmp(gpu_at(k)->name, name, stem) == 0;
        }
        if (sizes == 1)
            assert_ptr_equal(gpu_find(name, stem), gpu_at(i));
    }
}

static void suggests_the_nearest(void **state)
{
    (void)state;
    assert_string_equal(nearest("a100-80")->name, "a100-80gb");
    assert_string_equal(nearest("A100 SXM5")->name, "a100-80gb");
    assert_string_equal(nearest("h100-8gb")->name, "h100-80gb");
    assert_string_equal(nearest("rtx_4091")->name, "rtx-4090");
    assert_string_equal(nearest("mi300")->name, "mi300x");
    assert_null(nearest("a-very-different-thing"));
    assert_null(nearest("?"));
    assert_null(nearest(""));
    assert_null(gpu_nearest(NULL, 3));
    char longer[LONGEST_NAME + 1];
    memset(longer, 'a', sizeof longer);
    assert_null(gpu_nearest(longer, sizeof longer));
    assert_null(gpu_nearest(longer, sizeof longer - 1));
}

/* deviceQuery's "Maximum number of threads per multiprocessor": one chip of
 * each capability that the catalogue has. */
static void threads_of_a_multiprocessor(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned capability;
        uint32_t threads;
    } chips[] = {
        { "v100-32gb", 70, 2048 }, { "t4", 75, 1024 },
        { "a100-80gb", 80, 2048 }, { "rtx-3090", 86, 1536 },
        { "rtx-4090", 89, 1536 },  { "h100-80gb", 90, 2048 },
        { "b200", 100, 2048 },     { "rtx-5090", 120, 1536 },
        { "mi300x", 0, 0 },
    };
    enum { CHIPS = sizeof(chips) / sizeof(chips[0]) };
    for (size_t i = 0; i < CHIPS; i++) {
        assert_int_equal(gpu_capability(find(chips[i].name)),
                         chips[i].capability);
        assert_int_equal(gpu_threads_per_sm(find(chips[i].name)),
                         chips[i].threads);
    }
    for (size_t k = 0; k < gpu_count(); k++) { /* no capability is another */
        size_t i = 0;
        while (i < CHIPS && chips[i].capability != gpu_capability(gpu_at(k)))
            i++;
        assert_true(i < CHIPS);
        assert_int_equal(gpu_threads_per_sm(gpu_at(k)), chips[i].threads);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_sorted_and_unique),
        cmocka_unit_test(every_name_finds_its_own_row),
        cmocka_unit_test(aliases_are_unique),
        cmocka_unit_test(texts_are_there),
        cmocka_unit_test(numbers_are_plausible),
        cmocka_unit_test(peaks_follow_the_architecture),
        cmocka_unit_test(known_cards_have_their_figures),
        cmocka_unit_test(lookup_ignores_case_and_separators),
        cmocka_unit_test(unknown_names_find_nothing),
        cmocka_unit_test(one_size_needs_no_size),
        cmocka_unit_test(suggests_the_nearest),
        cmocka_unit_test(threads_of_a_multiprocessor),
    };
    return cmocka_run_group_tests_name("gpu", tests, NULL, NULL);
}
