/*
 * What a block keeps when it is compiled, or wrapped in a checkpoint that
 * decides operation by operation, against what PyTorch's partitioner and its
 * caching mode keep (tests/oracle/compiled.py), to the byte.
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

#define FOLDER MEMPLAN_SOURCE_DIR "/tests/golden/compiled"

#include "read_json.h"

static bool is(const struct json *o, const char *key, const char *value)
{
    return strcmp(json_member(o, key)->text.p, value) == 0;
}

static void lay_out(struct run *run, const struct json *root)
{
    run->impl = is(root, "implementation", "torchtune") ? IMPL_TORCHTUNE
                                                        : IMPL_TORCHTITAN;
    run->norm_kernel = run->impl == IMPL_TORCHTITAN ? NORM_FUSED : NORM_EAGER;
    run->compile = json_member(root, "compile")->truth;
    run->recompute = is(root, "recompute", "ops") ? RECOMP_OPS : RECOMP_NONE;
    run->micro_batch = (uint64_t)json_member(root, "b")->number;
    run->seq_len = (uint64_t)json_member(root, "s")->number;
}

/* The CPU's attention keeps no random states. */
static uint64_t random_states(const struct program *p, const struct block *b)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < b->tensor_count; i++) {
        const struct tensor *t = &p->tensor[b->tensor_first + i];
        if (strcmp(t->name, "random state") == 0)
            bytes += t->bytes;
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
    const struct block *b = &p.block[p.layer_block[0]];
    struct block_walk w;
    walk_block(&w, &p, b, 0, 1u << WGRAD_KEEP, &scratch);
    const uint64_t got = (is(root, "recompute", "ops") ? w.checkpoint : w.kept)
                         - random_states(&p, b);
    const uint64_t want = (uint64_t)json_member(root, "kept_bytes")->number;
    if (got != want)
        printf("%s: keeps %llu, measured %llu\n", file, (unsigned long long)got,
               (unsigned long long)want);
    arena_release(&a);
    return got != want;
}

static void test_compiled(void **state)
{
    (void)state;
    unsigned bad;
    const unsigned files = each_recording(differs, &bad);
    assert_true(files >= 12);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_compiled) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
