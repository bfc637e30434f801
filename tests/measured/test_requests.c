/*
 * The trace's requests against those of whole runs on a GPU, recorded by
 * tests/oracle/gpu.py: how many of each size above 1 MiB three steps make.
 * What is left is counted, and does not grow. (In which order they come, and
 * where they lie, peak_reserved of memory-gpu.jsonl says.)
 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* popen */
#endif

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../unit/estimate.h"

#include "fold/trace.h"
#include "plan/report_data.h"

enum { SIZES_MAX = 512, LARGE = 1 << 20 };

/* How many requests of a size: recorded less told. */
struct tally {
    uint64_t bytes[SIZES_MAX];
    int64_t n[SIZES_MAX];
    size_t sizes;
    uint64_t recorded;
};

static void count(struct tally *t, uint64_t bytes, int64_t n)
{
    const uint64_t size = round_alloc(bytes);
    size_t i = 0;
    if (bytes <= LARGE)
        return;
    while (i < t->sizes && t->bytes[i] != size)
        i++;
    assert_true(i < SIZES_MAX);
    if (i == t->sizes)
        t->bytes[t->sizes++] = size;
    t->n[i] += n;
}

static void count_recorded(struct tally *t, const char *name)
{
    char command[4096], line[256];
    const int n = snprintf(command, sizeof command, "gzip -dc '%s/%s.txt.gz'",
                           MEMPLAN_SOURCE_DIR "/tests/measured/traces", name);
    assert_true(n > 0 && (size_t)n < sizeof command);
    FILE *in = popen(command, "r");
    assert_non_null(in);
    while (fgets(line, sizeof line, in) != NULL) {
        uint64_t address = 0, bytes = 0;
        if (sscanf(line, "A %" SCNx64 " %" SCNu64, &address, &bytes) != 2)
            continue;
        count(t, bytes, 1);
        t->recorded += bytes > LARGE;
    }
    assert_int_equal(pclose(in), 0);
}

/* The same memory under another name: no request. */
static bool is_handed(const struct trace_event *from,
                      const struct trace_event *to)
{
    return !from->birth && from->bytes == to->bytes
           && (from->component != to->component || from->phase != to->phase
               || from->position != to->position
               || strcmp(to->name, "checkpoint") == 0
               || strncmp(to->name, "held", 4) == 0);
}

static void count_told(struct tally *t, memplan_report *r, enum trace_step step,
                       int64_t steps)
{
    struct arena a;
    struct memory_fold f;
    struct stage s;
    struct trace told;
    arena_init(&a, NULL);
    assert_true(memory_fold_init(&f, &r->program, &r->run, &a));
    stage_init(&s, &f, 0, 0);
    assert_true(trace_stage(&told, &f, &s, step, &a));
    for (size_t i = 1; i < told.n; i++) {
        const struct trace_event *e = &told.event[i];
        const bool there =
            e->phase == PHASE_REST
            && (step == TRACE_LATER || strcmp(e->name, CUBLAS_LABEL) != 0);
        if (e->birth && !there && !is_handed(e - 1, e))
            count(t, e->bytes, -steps);
    }
    arena_release(&a);
}

/* As many per 1000 may be too many, or too few, in all. */
static void compare(const char *recording, const char *model,
                    const char *const *keys, uint64_t permille)
{
    struct tally t = { .sizes = 0 };
    memplan_report *r = estimate(model, keys);
    uint64_t off = 0;
    count_recorded(&t, recording);
    count_told(&t, r, TRACE_FIRST, 1);
    count_told(&t, r, TRACE_LATER, 2);
    for (size_t i = 0; i < t.sizes; i++)
        off += (uint64_t)(t.n[i] < 0 ? -t.n[i] : t.n[i]);
    print_message("%s: %" PRIu64 " requests, %" PRIu64 " too many or too few\n",
                  recording, t.recorded, off);
    assert_true(t.recorded > 0);
    assert_true(off * 1000 <= permille * t.recorded);
    memplan_report_free(r);
}

#define COMPARE(recording, model, permille, ...)                               \
    compare((recording), (model),                                              \
            (const char *const[]){ "fast", "true", "framework", "hf", "gpu",   \
                                   "h100-80gb", "attention", "flash",          \
                                   "attention_kernel", "cudnn", __VA_ARGS__,   \
                                   NULL },                                     \
            (permille))

static void test_gpt2(void **state)
{
    (void)state;
    COMPARE("gpt2-precisionbf16-amp", "gpt2", 75, "optimizer_impl", "fused",
            "seq_len", "1024", "precision", "bf16-amp");
}

static void test_bert(void **state)
{
    (void)state;
    COMPARE("bert-base-microbatch8-seqlen512-precisionbf16-amp", "bert-base",
            40, "optimizer_impl", "fused", "micro_batch", "8", "seq_len", "512",
            "precision", "bf16-amp");
}

static void test_checkpoints(void **state)
{
    (void)state;
    COMPARE("llama-3p2-1b-seqlen2048-precisionbf16-recomputefull",
            "llama-3.2-1b", 120, "optimizer_impl", "fused", "seq_len", "2048",
            "precision", "bf16", "recompute", "full");
}

static void test_foreach(void **state)
{
    (void)state;
    COMPARE("llama-3p2-1b-optimizerimplforeach-precisionbf16-amp",
            "llama-3.2-1b", 50, "optimizer_impl", "foreach", "seq_len", "1024",
            "precision", "bf16-amp");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_bert),
        cmocka_unit_test(test_checkpoints),
        cmocka_unit_test(test_foreach),
    };
    return cmocka_run_group_tests_name("requests", tests, NULL, NULL);
}
