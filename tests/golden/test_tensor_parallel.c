/*
 * What a rank keeps of torchtitan's Llama under tensor parallelism with
 * sequence parallelism, plain and in a checkpoint that decides operation by
 * operation, against what autograd and that checkpoint's caching mode keep of
 * DTensors (tests/oracle/tensor_parallel.py), to the byte.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fold/walk.h"
#include "spec/spec.h"
#include "json/json.h"

#define FOLDER MEMPLAN_SOURCE_DIR "/tests/golden/tensor_parallel"

#include "read_json.h"

static void lay_out(struct run *run, const struct json *root)
{
    run->impl = IMPL_TORCHTITAN;
    run->norm_kernel = NORM_FUSED;
    run->tp = run->gpus = (uint64_t)json_member(root, "tp")->number;
    run->sequence_parallel = true;
    if (strcmp(json_member(root, "recompute")->text.p, "ops") == 0)
        run->recompute = RECOMP_OPS;
    run->micro_batch = (uint64_t)json_member(root, "b")->number;
    run->seq_len = (uint64_t)json_member(root, "s")->number;
}

/* Random states and labels are not counted. */
static uint64_t left_out(const struct program *p, const struct block *b)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < b->tensor_count; i++) {
        const struct tensor *t = &p->tensor[b->tensor_first + i];
        if (strcmp(t->name, "random state") == 0)
            bytes += t->bytes;
    }
    return bytes;
}

/* Of a checkpoint without the layer's input, which it has beside the mode. */
static uint64_t kept(const struct program *p, const struct run *run,
                     struct walk_scratch *scratch)
{
    uint64_t bytes = 0;
    const bool ops = run->recompute == RECOMP_OPS;
    for (uint32_t i = 0; i < p->n_blocks; i++) {
        const struct block *b = &p->block[i];
        const uint64_t times = b->kind == BLOCK_LAYER ? p->layers : 1;
        struct block_walk w;
        walk_block(&w, p, b, 0, 1u << WGRAD_KEEP, scratch);
        if (ops && b->kind != BLOCK_LAYER)
            continue;
        bytes +=
            times * ((ops ? w.checkpoint - w.input : w.kept) - left_out(p, b));
    }
    return bytes;
}

static unsigned differs(const char *file)
{
    struct arena a;
    struct program p;
    struct run run;
    struct walk_scratch scratch = { .bare = true };
    arena_init(&a, NULL);
    const struct json *root = lower_recording(&p, &run, file, lay_out, &a);
    assert_true(walk_scratch_init(&scratch, &p, &a));
    scratch.granule = 1;
    const uint64_t got = kept(&p, &run, &scratch);
    const uint64_t want = (uint64_t)json_member(root, "kept_bytes")->number;
    if (got != want)
        printf("%s: keeps %llu, measured %llu\n", file, (unsigned long long)got,
               (unsigned long long)want);
    arena_release(&a);
    return got != want;
}

static void test_kept(void **state)
{
    (void)state;
    unsigned bad;
    const unsigned files = each_recording(differs, &bad);
    assert_int_equal(files, 12);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_kept) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
