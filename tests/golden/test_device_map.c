/*
 * What each GPU keeps of a model that one process spread over several, against
 * what autograd keeps on each device under accelerate's hooks
 * (tests/oracle/device_map.py), to the byte.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fold/stage.h"
#include "spec/spec.h"
#include "json/json.h"

#define FOLDER MEMPLAN_SOURCE_DIR "/tests/golden/device_map"

#include "read_json.h"

static void lay_out(struct run *run, const struct json *root)
{
    const bool bf16 = strcmp(json_member(root, "dtype")->text.p, "bf16") == 0;
    run->prec.param = run->prec.compute = bf16 ? DT_BF16 : DT_FP32;
    run->prec.grad = run->prec.reduce = run->prec.param;
    run->impl = IMPL_HF;
    run->attention = ATTN_EAGER;
    run->schedule = SCHED_NAIVE;
    run->micro_batch = (uint64_t)json_member(root, "b")->number;
    run->seq_len = (uint64_t)json_member(root, "s")->number;
    if (json_member(root, "recompute")->truth) {
        run->recompute = RECOMP_FULL;
        run->recompute_layers = UINT64_MAX;
        run->recompute_granularity = 1;
    }
    run->pp = 0;
    for (const struct json *n = json_member(root, "layers")->child; n;
         n = n->next)
        run->stage_layers[run->pp++] = (uint16_t)n->number;
    run->gpus = run->pp;
}

/* The final norm of tied weights lies on the last GPU, and here with the head,
 * on the first: then only the sum is compared. */
static unsigned compare(const char *file, const uint64_t *got,
                        const struct json *root)
{
    const struct json *tied =
        json_member(json_member(root, "config"), "tie_word_embeddings");
    const struct json *want = json_member(root, "kept_bytes")->child;
    unsigned bad = 0;
    uint64_t sum = 0, sum_wanted = 0;
    for (int i = 0; want; i++, want = want->next) {
        const uint64_t n = (uint64_t)want->number;
        sum += got[i];
        sum_wanted += n;
        if (tied->truth || got[i] == n)
            continue;
        printf("%s: stage %d keeps %llu, measured %llu\n", file, i,
               (unsigned long long)got[i], (unsigned long long)n);
        bad++;
    }
    if (sum != sum_wanted)
        printf("%s: all keep %llu, measured %llu\n", file,
               (unsigned long long)sum, (unsigned long long)sum_wanted);
    return bad + (sum != sum_wanted);
}

/* Token ids are not counted, nor what a checkpoint's closure holds. */
static uint64_t kept(const struct stage *s)
{
    const struct prefix *all = &s->before[s->n];
    uint64_t bytes = all->kept_layers + all->checkpoints;
    if (s->embed)
        bytes += s->walk[s->p->embed].kept;
    if (s->head)
        bytes += s->walk[s->p->head].kept;
    return bytes + (s->recomputed > 0 ? 0 : s->shared_kept);
}

static unsigned differences(const char *file)
{
    struct arena a;
    struct program p;
    struct run run;
    arena_init(&a, NULL);
    const struct json *root = lower_recording(&p, &run, file, lay_out, &a);
    struct memory_fold f;
    assert_true(memory_fold_init(&f, &p, &run, &a));
    uint64_t layer = 0, got[STAGES_MAX];
    assert_true(run.pp <= STAGES_MAX);
    for (uint64_t i = 0; i < run.pp; i++) {
        struct stage s;
        stage_init(&s, &f, i, layer);
        layer += run.stage_layers[i];
        got[i] = kept(&s);
    }
    const unsigned bad = compare(file, got, root);
    arena_release(&a);
    return bad;
}

static void test_kept(void **state)
{
    (void)state;
    unsigned bad;
    const unsigned files = each_recording(differences, &bad);
    assert_int_equal(files, 24);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_kept) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
