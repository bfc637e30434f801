/*
 * What is cut adds up: over all ranks of any layout, weights, gradients,
 * moments and master weights are those of the model as one GPU has it, each
 * tensor as often as the layout copies it, and the padding of the cut, by its
 * rule. And more shards, or a higher ZeRO stage, hold more of nothing but of
 * buffers that are named here. MEMPLAN_PROPERTY_RUNS asks for more setups.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "shards.h"

static void test_states_add_up(void **state)
{
    (void)state;
    uint64_t answered = 0, by[FAMILIES] = { 0 };
    for (uint64_t i = 0; i < runs(); i++) {
        const struct trial t = trial_of(i), first = trial_alone(&t);
        memplan_report *r = trial_estimate(&t);
        memplan_report *one = r == NULL ? NULL : trial_estimate(&first);
        if (one != NULL) {
            check_states(r, one, &t);
            answered++;
            by[i % FAMILIES]++;
        }
        memplan_report_free(r);
        memplan_report_free(one);
    }
    assert_true(answered > runs() / 3);
    for (unsigned k = 0; k < FAMILIES; k++)
        assert_true(by[k] > runs() / FAMILIES / 8);
}

/* Adafactor under FSDP 1 is left out: a shard of a flat parameter has no rows
 * and columns to factor, so that two ranks hold a second moment of each element
 * where one held a row and a column of it, and that is as it is. */
static struct trial chain_of(uint64_t seed)
{
    struct trial t = trial_of(seed);
    for (size_t i = 0; i < CHOICES; i++)
        if (t.c[i].value != NULL && strcmp(t.c[i].value, "adafactor") == 0)
            t.c[i].value = "adamw";
    return t;
}

/* Bytes of the peak in terms that may rise. */
static uint64_t named(const struct moment *m, const enum term *terms, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += m->bytes[terms[i]];
    return sum;
}

/* What a chain of values may raise. */
struct rises {
    const enum term *term;
    size_t n;
    bool peak; /* else of states alone */
};

/* Of fp32 weights ZeRO-1 to -3 clone a partition, which stage 0 has not
 * (stage_1_and_2.py, single_partition_of_fp32_groups; stage3.py,
 * fp32_partitioned_groups_flat). */
static uint64_t fp32_partition(const memplan_report *before,
                               const memplan_report *r, uint64_t stage)
{
    return before->run.zero == 0 && r->run.zero > 0
                   && before->memory.stage[stage].rest.bytes[TERM_MASTER] == 0
               ? r->memory.stage[stage].rest.bytes[TERM_MASTER]
               : 0;
}

/* Stage 2 keeps tensors whole that touch a rank's partition: of few large ones
 * (modules trained in full beside adapters) more than its share. */
static uint64_t whole_tensors(const memplan_report *r,
                              const struct stage_result *s)
{
    const struct run *run = &r->run;
    const uint64_t master = dtype_size(run->prec.master);
    const uint64_t held = s->peak.bytes[TERM_GRAD_SHARDS];
    if (run->engine != ENGINE_DEEPSPEED || run->zero != 2 || master == 0)
        return 0;
    const uint64_t share =
        s->rest.bytes[TERM_MASTER] / master * dtype_size(run->prec.grad);
    return held > share ? held - share : 0;
}

/* Stage 3's partition of gradients is permanent; that of stage 2 is not there
 * where its peak comes before them, and few states are cut in exchange. */
static uint64_t permanent_partition(const memplan_report *r,
                                    const struct stage_result *a,
                                    const struct stage_result *b)
{
    const bool three = r->run.engine == ENGINE_DEEPSPEED && r->run.zero == 3;
    return three && a->peak.bytes[TERM_GRAD_SHARDS] == 0
                   && a->rest.bytes[TERM_GRAD_SHARDS] == 0
               ? b->rest.bytes[TERM_GRAD_SHARDS]
               : 0;
}

static void check_less(const memplan_report *before, const memplan_report *r,
                       const struct rises *may, const struct trial *t)
{
    for (uint64_t k = 0; k < r->memory.n_stages; k++) {
        const struct stage_result *a = &before->memory.stage[k];
        const struct stage_result *b = &r->memory.stage[k];
        const uint64_t copy = fp32_partition(before, r, k);
        const uint64_t some = named(&b->peak, may->term, may->n)
                              + whole_tensors(r, b)
                              + permanent_partition(r, a, b) + copy;
        if (b->model_states > a->model_states + copy)
            fail_msg("states rise from %" PRIu64 " to %" PRIu64 ": %s",
                     a->model_states, b->model_states, trial_text(t));
        if (may->peak && b->peak.total - some > a->peak.total)
            fail_msg("the peak rises from %" PRIu64 " to %" PRIu64
                     " beside buffers: %s",
                     a->peak.total, b->peak.total - some, trial_text(t));
    }
}

/* Sets a key to one value after the other; `scales`: so many GPUs as that
 * times `gpus`. True when two were answered. */
static bool check_chain(struct trial *t, const char *key,
                        const char *const *values, uint64_t gpus,
                        const struct rises *may)
{
    memplan_report *before = NULL;
    unsigned answered = 0;
    for (; *values != NULL; values++) {
        char text[24];
        trial_set(t, key, *values);
        if (gpus != 0) {
            (void)snprintf(text, sizeof text, "%" PRIu64,
                           gpus * strtoul(*values, NULL, 10));
            trial_set(t, "gpus", text);
        }
        memplan_report *r = trial_estimate(t);
        if (r == NULL)
            continue;
        if (before != NULL)
            check_less(before, r, may, t);
        memplan_report_free(before);
        before = r;
        answered++;
    }
    memplan_report_free(before);
    return answered > 1;
}

#define VALUES(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define COUNT_OF(x) (sizeof(x) / sizeof((x)[0]))

static const char *number(uint64_t n, char *text)
{
    (void)snprintf(text, 24, "%" PRIu64, n);
    return text;
}

/* From one rank to two there are DDP's buckets, a second copy of gradients that
 * one rank needs not. What ZeRO-3 gathers lies in a flat buffer, is copied out
 * of it, and stays, whole beside its shard, from forward to backward, where one
 * rank has or fetches what it uses; a gradient larger than the bucket is
 * reduced where it is. That is more than what is cut where weights lie on the
 * host, and where little is trained. FSDP 2 gathers the padding of tensors too:
 * with fewer experts than ranks so many experts as there are ranks. */
static void test_more_ranks_never_more(void **state)
{
    (void)state;
    static const enum term buffers[] = { TERM_BUCKETS, TERM_PREFETCHED,
                                         TERM_GATHERED, TERM_WGRAD_TMP };
    unsigned answered = 0;
    for (uint64_t i = 0; i < runs() / 10; i++) {
        struct trial t = chain_of(i);
        const char *engine = trial_word(&t, "engine");
        const bool more = trial_word(&t, "offload_params") != NULL
                          || trial_word(&t, "lora_rank") != NULL
                          || (engine != NULL && strcmp(engine, "fsdp2") == 0);
        const struct rises may = { buffers, more ? COUNT_OF(buffers) : 1,
                                   true };
        trial_set(&t, "shard_degree", NULL);
        const uint64_t one = trial_number(&t, "tp") * trial_number(&t, "pp")
                             * trial_number(&t, "cp");
        answered +=
            check_chain(&t, "dp", VALUES("1", "2", "4", "8", "16"), one, &may);
    }
    assert_true(answered > runs() / 30);
}

/* Of so many ranks, in larger groups that share states. A group of one sends
 * nothing: from two on there is the copy of a bucket while it is reduced, which
 * shows where states that lie on the host make room for nothing. One group of
 * all is not MiCS, which gathers each weight where it will be (mics.py): there
 * are flat buffers, and copies out of them. FSDP 2 gathers padding. */
static void test_larger_groups_never_more(void **state)
{
    (void)state;
    static const enum term buffers[] = { TERM_REDUCE_TMP, TERM_PREFETCHED,
                                         TERM_GATHERED };
    const struct rises may = { buffers, COUNT_OF(buffers), true };
    unsigned answered = 0;
    for (uint64_t i = 0; i < runs() / 10; i++) {
        struct trial t = chain_of(i);
        char text[24];
        trial_set(&t, "mics_shard_size", NULL);
        const uint64_t one = trial_number(&t, "tp") * trial_number(&t, "pp")
                             * trial_number(&t, "cp");
        trial_set(&t, "gpus", number(16 * one, text));
        answered += check_chain(&t, "shard_degree",
                                VALUES("1", "2", "4", "8", "16"), 0, &may);
    }
    assert_true(answered > runs() / 60);
}

/* With as many data-parallel ranks and, in Megatron and torchtitan, sequence
 * parallelism: states alone, for replicated activations are not its matter.
 * Experts are as whole as ep 1 leaves them. */
static void test_tensor_ranks_never_more_states(void **state)
{
    (void)state;
    const struct rises may = { NULL, 0, false };
    unsigned answered = 0;
    for (uint64_t i = 0; i < runs() / 10; i++) {
        struct trial t = chain_of(i);
        const uint64_t dp = i % 2 == 0 ? 4 : 6;
        trial_set(&t, "ep", NULL);
        trial_set(&t, "etp", NULL);
        trial_set(&t, "shard_degree", NULL);
        trial_set(&t, "vocab_multiple", "1024");
        answered += check_chain(
            &t, "tp", VALUES("1", "2", "4", "8"),
            dp * trial_number(&t, "pp") * trial_number(&t, "cp"), &may);
    }
    assert_true(answered > runs() / 60);
}

/* To each stage from the one below may rise:
 * 1: the flat copy that gradients are reduced in, and the rank's partition of
 *    gradients, which are there beside all gradients, that stage 0 has too; a
 *    gradient in double precision for its norm;
 * 2: what a bucket sends, in the type of the wire: with a bucket that has room
 *    for all, a copy as large as the gradients of stage 1 (fp32 under
 * autocast); a gradient larger than the bucket, until the next one comes; 3:
 * the permanent bucket, which stages 1 and 2 make in backward, and tensors
 *    below the persistence threshold, whole beside their shards; what is
 *    gathered to be used, and fetched ahead.
 * Adapters that zero.Init makes are left in the type that they have, which
 * stages 1 and 2 cast: bf16 in all.
 * MiCS shards stage 3 over fewer ranks than stages 2 and 1: set aside.
 * Under FSDP stage 2 shards gradients and states, and has whole weights from
 * forward to backward; stage 3 gathers them again. */
static const struct rises stage_rises[] = {
    { NULL, 0, true },
    { (const enum term[]){ TERM_BUCKETS, TERM_GRAD_SHARDS, TERM_CLIP_TMP }, 3,
      true },
    { (const enum term[]){ TERM_REDUCE_TMP, TERM_WGRAD_TMP }, 2, true },
    { (const enum term[]){ TERM_BUCKETS, TERM_GATHERED }, 2, true },
};

static void test_higher_stages_never_more(void **state)
{
    (void)state;
    unsigned answered[4] = { 0 };
    static const char *const zero[] = { "0", "1", "2", "3" };
    for (uint64_t i = 0; i < runs() / 6; i++) {
        uint64_t s = i;
        struct trial t = chain_of(i);
        trial_set(&t, "mics_shard_size", NULL);
        if (trial_word(&t, "lora_rank") != NULL)
            trial_set(&t, "lora_dtype", "bf16");
        trial_set(&t, "micro_batch", PICK(&s, "1", "4"));
        trial_set(&t, "grad_accum", PICK(&s, "1", "4"));
        trial_set(&t, "recompute", PICK(&s, "none", "full"));
        for (unsigned z = 1; z < 4; z++)
            answered[z] += check_chain(&t, "zero", VALUES(zero[z - 1], zero[z]),
                                       0, &stage_rises[z]);
    }
    for (unsigned z = 1; z < 4; z++)
        assert_true(answered[z] > runs() / 60);
}

/* States to the host, and to a disk: what goes to and fro has buffers.
 * To the host: the gradient on its way (BUCKETS), and weights on theirs to the
 * ranks that gather them (PREFETCHED).
 * To a disk: gradients cast to fp32 before they leave (REDUCE_TMP). */
static void test_offload_never_more(void **state)
{
    (void)state;
    static const enum term buffers[] = { TERM_BUCKETS, TERM_REDUCE_TMP,
                                         TERM_PREFETCHED };
    const struct rises may = { buffers, COUNT_OF(buffers), true };
    unsigned answered[2] = { 0 };
    for (uint64_t i = 0; i < runs() / 10; i++) {
        struct trial t = chain_of(i);
        answered[0] += check_chain(&t, "offload_optimizer",
                                   VALUES("none", "cpu", "nvme"), 0, &may);
        trial_set(&t, "offload_optimizer",
                  trial_word(&t, "offload_params") != NULL ? "cpu" : NULL);
        answered[1] += check_chain(&t, "offload_params",
                                   VALUES("none", "cpu", "nvme"), 0, &may);
    }
    assert_true(answered[0] > runs() / 60);
    assert_true(answered[1] > runs() / 120);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states_add_up),
        cmocka_unit_test(test_more_ranks_never_more),
        cmocka_unit_test(test_larger_groups_never_more),
        cmocka_unit_test(test_tensor_ranks_never_more_states),
        cmocka_unit_test(test_higher_stages_never_more),
        cmocka_unit_test(test_offload_never_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
