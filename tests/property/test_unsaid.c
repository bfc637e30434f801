/*
 * Of every setup key and every launch file: what is written, read again, with
 * what memplan_emit_unsaid tells set beside it, is the setup that it was of.
 * Nothing that the file leaves to others is left untold.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "memplan/memplan.h"

enum { PAIRS = 10, VALUES = 16, VALUE_MAX = 64, UNSAID_MAX = 32 };

struct text {
    char p[65536];
    size_t n;
};

static bool take(void *ctx, const char *text, size_t len)
{
    struct text *t = ctx;
    if (t->n + len >= sizeof t->p)
        return false;
    memcpy(t->p + t->n, text, len);
    t->n += len;
    t->p[t->n] = '\0';
    return true;
}

/* A setup that a dialect has words for, to which one key is added. */
static const struct base {
    const char *dialect;
    const char *pair[PAIRS][2];
} bases[] = {
    { "deepspeed",
      { { "framework", "deepspeed" }, { "zero", "3" }, { "gpus", "8" } } },
    { "deepspeed",
      { { "framework", "deepspeed" }, { "zero", "2" }, { "lora_rank", "4" } } },
    { "training-args", { { "framework", "hf" }, { "gpus", "8" } } },
    { "training-args", { { "framework", "fsdp" }, { "gpus", "8" } } },
    { "training-args",
      { { "framework", "deepspeed" }, { "zero", "3" }, { "gpus", "8" } } },
    { "accelerate", { { "framework", "hf" }, { "gpus", "16" } } },
    { "accelerate",
      { { "framework", "deepspeed" }, { "zero", "3" }, { "gpus", "8" } } },
    { "accelerate",
      { { "framework", "fsdp" },
        { "recompute", "full" },
        { "grad_accum", "4" },
        { "gpus", "8" } } },
    { "accelerate",
      { { "framework", "megatron" },
        { "tp", "2" },
        { "deterministic", "false" },
        { "grad_accum_fusion", "true" },
        { "gpus", "8" } } },
    { "megatron", { { "framework", "megatron" }, { "gpus", "8" } } },
    { "megatron",
      { { "framework", "nemo" },
        { "gpus", "8" },
        { "pp", "2" },
        { "recompute", "full" },
        { "grad_accum", "8" } } },
    { "torchtitan", { { "framework", "torchtitan" }, { "gpus", "8" } } },
    { "torchtitan",
      { { "framework", "torchtitan" },
        { "gpus", "8" },
        { "tp", "2" },
        { "compile", "true" } } },
    { "torchrun", { { "framework", "fsdp" }, { "gpus", "16" } } },
    { "torchrun", { { "framework", "torchtune" }, { "gpus", "8" } } },
    { "torchrun", { { "framework", "megatron" }, { "gpus", "8" } } },
    { "peft", { { "framework", "hf" }, { "lora_rank", "4" } } },
};

/* ---- values of a key ---- */

static size_t split(char value[VALUES][VALUE_MAX], const char *words)
{
    size_t n = 0;
    while (*words != '\0' && n < VALUES) {
        const size_t len = strcspn(words, " ");
        assert_true(len < VALUE_MAX);
        memcpy(value[n], words, len);
        value[n++][len] = '\0';
        words += len + (words[len] == ' ');
    }
    return n;
}

/* Numbers that are possible more often than others. */
static const char *numbers(const memplan_field *f)
{
    static const struct {
        const char *key, *words;
    } special[] = {
        { "seq_len", "256 512" },
        { "decoder_seq_len", "256" },
        { "tokens", "1e9" },
        { "pipeline_layers", "6,6 5,7" },
        { "layers_to_transform", "0-3 2,5" },
        { "rank_pattern", "q=2" },
        { "lengths", "128,256" },
        { "length_mean", "128" },
        { "gpu", "h100-80gb v100-16gb" },
    };
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++) {
        if (strcmp(special[i].key, f->key) == 0)
            return special[i].words;
    }
    switch (f->type) {
    case MEMPLAN_TYPE_COUNT: return "1 2 4 16 50000000";
    case MEMPLAN_TYPE_BYTES: return "64MiB 20GiB";
    case MEMPLAN_TYPE_REAL: return "0.1 0.5 2";
    case MEMPLAN_TYPE_BOOL: return "true false";
    case MEMPLAN_TYPE_CHOICE:
    case MEMPLAN_TYPE_LIST:
    case MEMPLAN_TYPE_NAME: break;
    }
    return "2 4,4";
}

static size_t values_of(char value[VALUES][VALUE_MAX], const memplan_field *f)
{
    return split(value, f->choices[0] != '\0' ? f->choices : numbers(f));
}

/* ---- one setup ---- */

struct wanted {
    const struct base *base;
    const char *key, *value;
};

static const char *value_in(const struct wanted *w, const char *key)
{
    if (strcmp(w->key, key) == 0)
        return w->value;
    for (size_t i = 0; i < PAIRS && w->base->pair[i][0] != NULL; i++) {
        if (strcmp(w->base->pair[i][0], key) == 0)
            return w->base->pair[i][1];
    }
    return strcmp(key, "fast") == 0 ? "true" : NULL;
}

/* False where the value is none. */
static bool fill(memplan_setup *setup, const struct wanted *w)
{
    for (size_t i = 0; i < PAIRS && w->base->pair[i][0] != NULL; i++)
        assert_int_equal(memplan_setup_set(setup, w->base->pair[i][0],
                                           w->base->pair[i][1], NULL),
                         MEMPLAN_OK);
    assert_int_equal(memplan_setup_set(setup, "fast", "true", NULL),
                     MEMPLAN_OK);
    return memplan_setup_set(setup, w->key, w->value, NULL) == MEMPLAN_OK;
}

/* "setup" of the estimate's JSON, every key resolved. */
static void resolved(struct text *out, const memplan_model *model,
                     const memplan_setup *setup)
{
    const memplan_style style = { .format = MEMPLAN_FORMAT_JSON };
    memplan_report *report = NULL;
    out->n = 0;
    out->p[0] = '\0';
    if (memplan_estimate(&report, model, setup, NULL, NULL) != MEMPLAN_OK)
        return;
    assert_int_equal(memplan_report_write(report, MEMPLAN_VIEW_SUMMARY, &style,
                                          take, out, NULL),
                     MEMPLAN_OK);
    memplan_report_free(report);
    char *from = strstr(out->p, "\"setup\"");
    assert_non_null(from);
    char *to = strstr(from, "\"gpu\": {");
    assert_non_null(to);
    *to = '\0';
    memmove(out->p, from, (size_t)(to - from) + 1);
}

/* Reads the file, and sets beside it what is told of it. */
static void read_told(memplan_setup *back, const struct wanted *w,
                      const struct text *file, const memplan_errors *unsaid)
{
    const bool megatron = strstr(file->p, "pretrain_gpt.py") != NULL;
    const char *name = megatron ? "megatron-args" : w->base->dialect;
    assert_int_equal(
        memplan_setup_import(back, name, file->p, file->n, "f", NULL),
        MEMPLAN_OK);
    assert_true(unsaid->count <= unsaid->capacity);
    for (size_t i = 0; i < unsaid->count; i++) {
        const char *value = value_in(w, unsaid->item[i].key);
        if (value == NULL)
            fail_msg("%s: %s is told, which is not in the setup",
                     w->base->dialect, unsaid->item[i].key);
        assert_true(unsaid->item[i].hint[0] != '\0');
        assert_int_equal(
            memplan_setup_set(back, unsaid->item[i].key, value, NULL),
            MEMPLAN_OK);
    }
}

/* As memplan_emit takes them for the same: a node that is not full, and layers
 * of which none, or all, are recomputed. */
static bool is_same_anyway(const char *line, const char *setup)
{
    static const char node[] = "    \"gpus_per_node\": ";
    static const char layers[] = "    \"recompute_";
    return strncmp(line, node, sizeof node - 1) == 0
           || (strncmp(line, layers, sizeof layers - 1) == 0
               && strstr(setup, "\"recompute\": \"full\"") == NULL);
}

static void compare(const struct wanted *w, const char *one, const char *other)
{
    const char *a = one, *b = other;
    while (*a != '\0' && *b != '\0') {
        const size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
        if ((n != m || memcmp(a, b, n) != 0) && !is_same_anyway(a, one))
            fail_msg("%s of %s with %s %s: read again with what is told it "
                     "has '%.*s', not '%.*s'",
                     w->base->dialect, w->base->pair[0][1], w->key, w->value,
                     (int)m, b, (int)n, a);
        a += n + (a[n] != '\0');
        b += m + (b[m] != '\0');
    }
    assert_true(*a == *b);
}

/* True where such a file is written. */
static bool is_told(const memplan_model *model, const struct wanted *w)
{
    static struct text file, one, other;
    memplan_error item[UNSAID_MAX];
    memplan_errors unsaid = { item, UNSAID_MAX, 0 };
    memplan_setup *setup = NULL, *back = NULL;
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    assert_int_equal(memplan_setup_new(&back, NULL, NULL), MEMPLAN_OK);
    file.n = 0;
    const bool written =
        fill(setup, w)
        && memplan_emit(model, setup, w->base->dialect, take, &file, NULL)
               == MEMPLAN_OK;
    if (written) {
        assert_int_equal(
            memplan_emit_unsaid(model, setup, w->base->dialect, &unsaid, NULL),
            MEMPLAN_OK);
        read_told(back, w, &file, &unsaid);
        resolved(&one, model, setup);
        resolved(&other, model, back);
        compare(w, one.p, other.p);
    }
    memplan_setup_free(setup);
    memplan_setup_free(back);
    return written;
}

static void test_unsaid_is_told(void **state)
{
    (void)state;
    memplan_model *model = NULL;
    unsigned written = 0;
    assert_int_equal(memplan_model_builtin(&model, "gpt2", NULL, NULL),
                     MEMPLAN_OK);
    for (size_t b = 0; b < sizeof bases / sizeof bases[0]; b++) {
        const memplan_field *f;
        for (size_t k = 0; (f = memplan_setup_field(k)) != NULL; k++) {
            char value[VALUES][VALUE_MAX];
            const size_t n = values_of(value, f);
            for (size_t i = 0; i < n; i++)
                written += is_told(
                    model, &(struct wanted){ &bases[b], f->key, value[i] });
        }
    }
    memplan_model_free(model);
    assert_true(written > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_unsaid_is_told) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
