/*
 * What each optimizer keeps of one weight, worked out by hand from its rule
 * (docs/method.md, eq. optimizers), and how each engine cuts weights up.
 */
#include "fold/states.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* 4,096 x 1,024 of a linear, the same of the head, 64 x 100 of a linear, a
 * vector of 1,000: too few elements for 8 or 4 bits. */
enum { LARGE, HEAD, SMALL, VECTOR, WEIGHTS };

static const struct tensor weights[WEIGHTS] = {
    [LARGE] = { .rows = 4096,
                .cols = 1024,
                .matmul = true,
                .projected = true,
                .group = PG_MLP },
    [HEAD] = { .rows = 4096, .cols = 1024, .matmul = true, .group = PG_HEAD },
    [SMALL] = { .rows = 64,
                .cols = 100,
                .matmul = true,
                .projected = true,
                .group = PG_MLP },
    [VECTOR] = { .rows = 1000, .cols = 1, .group = PG_NORM },
};

/* Moments in fp32 where the name does not say otherwise. */
static const struct row {
    enum optimizer optimizer;
    uint64_t bytes[WEIGHTS];
} rows[] = {
    { OPT_ADAMW, { 33554432, 33554432, 51200, 8000 } },
    { OPT_LAMB, { 33554432, 33554432, 51200, 8000 } },
    /* a constant of 4 bytes for 256 elements; for 128 with 4 bits */
    { OPT_ADAM8BIT, { 8519680, 8519680, 13000, 8000 } },
    { OPT_PAGED_ADAM8BIT, { 131072, 131072, 13000, 8000 } },
    { OPT_PAGED_ADAMW, { 0, 0, 51200, 8000 } },
    { OPT_ADAM4BIT, { 4456576, 4456576, 6928, 8000 } }, /* and 16 codes */
    { OPT_LION8BIT, { 4259840, 4259840, 6500, 4000 } },
    { OPT_LION, { 16777216, 16777216, 25600, 4000 } },
    { OPT_MOMENTUM, { 16777216, 16777216, 25600, 4000 } },
    { OPT_ADAGRAD, { 16777216, 16777216, 25600, 4000 } },
    { OPT_RMSPROP, { 16777216, 16777216, 25600, 4000 } },
    { OPT_ADAFACTOR, { 20480, 20480, 656, 4000 } }, /* 4 (rows + cols) */
    { OPT_MUON, { 16777216, 33554432, 25600, 8000 } },
    /* 2 x 4,096 x rank 128, and 1,024 x 1,024; of the small one both whole */
    { OPT_GALORE, { 8388608, 33554432, 67584, 8000 } },
    { OPT_GALORE8BIT, { 5259264, 8519680, 29384, 8000 } },
    /* 1,024 x 128; of the small one rank 128, which is more than it has */
    { OPT_APOLLO, { 4718592, 33554432, 135168, 8000 } },
    { OPT_SGD, { 0 } },
    { OPT_NONE, { 0 } },
};

static void optimizers_keep_what_their_rule_says(void **state)
{
    (void)state;
    assert_int_equal(sizeof(rows) / sizeof(rows[0]), OPTIMIZER_COUNT);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct run run = { .optimizer = rows[i].optimizer,
                           .optimizer_rank = 128 };
        run.prec.optim = run.prec.param = DT_FP32;
        for (unsigned w = 0; w < WEIGHTS; w++) {
            const struct tensor *t = &weights[w];
            assert_int_equal(optimizer_bytes(&run, t, t->rows, t->cols),
                             rows[i].bytes[w]);
        }
        const bool none =
            rows[i].bytes[LARGE] == 0 && rows[i].bytes[VECTOR] == 0;
        assert_int_equal(strcmp(optimizer_rule(rows[i].optimizer), "none") == 0,
                         none);
    }
}

/* Of each matrix that the last two dimensions make: 8 experts, a convolution of
 * 64 channels into 128, one of 4 taps a channel; biases of experts are a matrix. */
static void adafactor_factors_the_last_two_dimensions(void **state)
{
    (void)state;
    static const struct {
        struct tensor t;
        uint64_t bytes;
    } of[] = {
        { { .rows = 8 * 512, .cols = 256, .last = { 512, 256 } },
          4 * 8 * (512 + 256) },
        { { .rows = 128, .cols = 64 * 9, .last = { 3, 3 } },
          4 * 128 * 64 * (3 + 3) },
        { { .rows = 96, .cols = 4, .last = { 1, 4 } }, 4 * 96 * (1 + 4) },
        { { .rows = 8 * 512, .cols = 1, .last = { 8, 512 } }, 4 * (8 + 512) },
    };
    struct run run = { .optimizer = OPT_ADAFACTOR, .engine = ENGINE_DDP };
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++)
        assert_int_equal(
            optimizer_bytes(&run, &of[i].t, of[i].t.rows, of[i].t.cols),
            of[i].bytes);
}

/* The Trainer's, of nn.Embedding; what is paged is not the allocator's. */
static void embeddings_have_fp32_moments(void **state)
{
    (void)state;
    const struct tensor table = { .rows = 4096,
                                  .cols = 1024,
                                  .group = PG_EMBED };
    struct run run = { .optimizer = OPT_ADAM8BIT,
                       .embedding_states = EMBEDDING_STATES_FP32 };
    assert_int_equal(optimizer_bytes(&run, &table, 4096, 1024), 33554432);
    assert_int_equal(optimizer_bytes(&run, &weights[LARGE], 4096, 1024),
                     8519680);
    run.optimizer = OPT_LION8BIT;
    assert_int_equal(optimizer_bytes(&run, &table, 4096, 1024), 16777216);
    run.optimizer = OPT_PAGED_ADAM8BIT;
    assert_int_equal(optimizer_bytes(&run, &table, 4096, 1024), 0);
    assert_int_equal(optimizer_bytes(&run, &table, 64, 100), 51200);
}

/* --optimizer-dtype bf16: half as large. */
static void moments_have_a_dtype(void **state)
{
    (void)state;
    struct run run = { .optimizer = OPT_ADAMW };
    run.prec.optim = DT_BF16;
    const struct tensor *t = &weights[LARGE];
    assert_int_equal(optimizer_bytes(&run, t, t->rows, t->cols), 16777216);
}

static void engines_cut_weights(void **state)
{
    static const struct {
        enum engine engine;
        uint64_t zero;
        enum sharding want;
    } cuts[] = {
        { ENGINE_DDP, 0, SHARDING_NONE },
        { ENGINE_DEEPSPEED, 0, SHARDING_NONE },
        { ENGINE_DEEPSPEED, 1, SHARDING_FLAT },
        { ENGINE_DEEPSPEED, 2, SHARDING_FLAT },
        { ENGINE_DEEPSPEED, 3, SHARDING_TENSOR },
        { ENGINE_FSDP, 3, SHARDING_TENSOR },
        { ENGINE_FSDP, 0, SHARDING_NONE },
        { ENGINE_FSDP2, 3, SHARDING_ROWS },
        { ENGINE_MEGATRON, 0, SHARDING_NONE },
        { ENGINE_MEGATRON, 1, SHARDING_FLAT },
        { ENGINE_MEGATRON_FSDP, 3, SHARDING_TENSOR },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        struct run run = { .engine = cuts[i].engine,
                           .zero = cuts[i].zero,
                           .shard = 8 };
        assert_int_equal(run_sharding(&run), cuts[i].want);
        assert_int_equal(run_shards_weights(&run), cuts[i].zero == 3);
        run.shard = 1; /* one rank cuts nothing */
        assert_int_equal(run_sharding(&run), SHARDING_NONE);
    }
}

/* 8 experts over 16 ranks: whole ones, and as much padding; 6 rows over 4. */
static void rows_are_padded(void **state)
{
    (void)state;
    struct tensor tensors[] = {
        { .next = 1,
          .rows = 8 * 100,
          .cols = 10,
          .slab = 100,
          .elems = 8000,
          .bytes = 16000,
          .dtype = DT_BF16,
          .trainable = true },
        { .next = TENSOR_NONE,
          .rows = 6,
          .cols = 10,
          .elems = 60,
          .bytes = 120,
          .dtype = DT_BF16,
          .trainable = true },
    };
    const struct program p = { .tensor = tensors };
    const struct block block = { .tensor_count = 2, .weights = 0 };
    struct run run = { .engine = ENGINE_FSDP2, .zero = 3, .shard = 16 };
    struct block_states s;
    states_of_block(&s, &p, &block, &run, false);
    assert_int_equal(s.elems, 8060);
    assert_int_equal(s.own_elems, 1000 + 10);
    assert_int_equal(s.cut_elems, 16 * 1010);
    assert_int_equal(s.bytes, 2 * 16 * 1010);
    run.shard = 4;
    states_of_block(&s, &p, &block, &run, false);
    assert_int_equal(s.own_elems, 2000 + 20);
    assert_int_equal(s.bytes, 2 * (8000 + 80));
    run.engine = ENGINE_DEEPSPEED;
    states_of_block(&s, &p, &block, &run, false);
    assert_int_equal(s.own_elems, 2000 + 15);
    assert_int_equal(s.bytes, 2 * 8060);
}

/* Of 1,000,003 elements a sixteenth is 62,501, padded; groups of four hold four
 * of those. The vector stays gathered. */
static void second_shards_are_whole_shards(void **state)
{
    (void)state;
    struct tensor tensors[] = {
        { .next = 1,
          .rows = 1000003,
          .cols = 1,
          .elems = 1000003,
          .trainable = true },
        { .next = TENSOR_NONE,
          .rows = 1000,
          .cols = 1,
          .elems = 1000,
          .trainable = true },
    };
    const struct program p = { .tensor = tensors };
    const struct block block = { .tensor_count = 2, .weights = 0 };
    struct run run = { .engine = ENGINE_DEEPSPEED,
                       .zero = 3,
                       .shard = 16,
                       .hpz_partition_size = 4,
                       .persistence_threshold = 1000 };
    struct block_states s;
    states_of_block(&s, &p, &block, &run, false);
    assert_int_equal(s.own_elems, 62501 + 63);
    assert_int_equal(run_second_parts(&run), 4);
    assert_int_equal(s.second_elems, 250004);
    run.hpz_partition_size = 1;
    states_of_block(&s, &p, &block, &run, false);
    assert_int_equal(s.second_elems, 0);
    run.hpz_partition_size = 4;
    run.zero = 2;
    assert_int_equal(run_second_parts(&run), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimizers_keep_what_their_rule_says),
        cmocka_unit_test(embeddings_have_fp32_moments),
        cmocka_unit_test(adafactor_factors_the_last_two_dimensions),
        cmocka_unit_test(moments_have_a_dtype),
        cmocka_unit_test(engines_cut_weights),
        cmocka_unit_test(rows_are_padded),
        cmocka_unit_test(second_shards_are_whole_shards),
    };
    return cmocka_run_group_tests_name("states", tests, NULL, NULL);
}
