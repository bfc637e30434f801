/*
 * Time of Megatron's losses over a vocabulary that ranks share: bytes, kernels
 * and messages as docs/method.md (moves) says, by hand, of an H100.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "estimate.h"
#include "fold/time.h"
#include "plan/report_data.h"

#include "base/banned.h"

#define PAIRS(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* Llama 2 has 32,000 words, in Megatron padded to a multiple of 128 tp. */
static const double latency = 3e-6, units = 132, tokens = 4096;

static double moved(double bytes)
{
    return bytes / (3.35e12 * 0.9);
}

/* Elements one at a time. */
static double lone(double elems)
{
    return elems / (units * 2.3e9);
}

static bool close_to(double x, double want)
{
    return fabs(x - want) <= 1e-3 * fabs(want);
}

struct told {
    struct block_time time;
    double logits;   /* of a rank */
    double messages; /* seconds, by the wire's own time */
};

/* Messages of so many bytes of each token, until one of none. */
static struct told loss_of(const char *const *pairs, enum wire wire,
                           const double *bytes)
{
    memplan_report *r = estimate("llama-2-7b", pairs);
    const struct program *p = &r->program;
    struct told x = { .logits = 0 };
    struct clock c;
    clock_init(&c, p, &r->run);
    const struct op *op = p->op;
    while (op < p->op + p->n_ops && op->kind != OP_CROSS_ENTROPY
           && op->kind != OP_COMPILED_CROSS_ENTROPY)
        op++;
    assert_true(op < p->op + p->n_ops);
    x.logits = (double)p->tensor[op->in[0]].elems;
    time_op(&x.time, &c, op);
    for (; *bytes > 0; bytes++)
        x.messages += time_wire(&c, wire, (struct ranks){ r->run.tp, 1 },
                                *bytes * tokens);
    memplan_report_free(r);
    return x;
}

#define SETUP "framework", "megatron", "gpu", "h100-80gb", "seq_len", "4096"

/* 32 bytes of an fp32 logit there, 8 back, of which subtracting, dividing and
 * multiplying have an operand for each row; 12 and 6 kernels on tokens. */
static void test_spelled_out(void **state)
{
    (void)state;
    const double bytes[] = { 4, 4, 4, 0 };
    const struct told x =
        loss_of(PAIRS(SETUP, "gpus", "8", "tp", "8", "global_batch", "1"),
                WIRE_ALL_REDUCE, bytes);
    assert_true(close_to(x.logits, tokens * 32768 / 8));
    assert_true(lone(1) > moved(8)); /* an H100's memory is faster */
    assert_true(
        close_to(x.time.forward.part[TIME_MEMORY],
                 moved(16 * x.logits) + lone(2 * x.logits) + 17 * latency));
    assert_true(
        close_to(x.time.input.part[TIME_MEMORY], lone(x.logits) + 7 * latency));
    assert_true(close_to(x.time.forward.part[TIME_TP], x.messages));
    assert_true(close_to(x.time.forward.kernels, 17 + 3));
    assert_true(close_to(x.time.forward.messages, 3));
    assert_true(close_to(x.time.input.kernels, 7));
    assert_true(x.time.input.part[TIME_TP] <= 0);
}

/* A group of one rank is called and sends nothing. */
static void test_one_rank_sends_nothing(void **state)
{
    (void)state;
    const double none = 0;
    const struct told x = loss_of(PAIRS(SETUP), WIRE_ALL_REDUCE, &none);
    assert_true(x.time.forward.part[TIME_TP] <= 0);
    assert_true(close_to(x.time.forward.messages, 3));
    assert_true(close_to(x.time.forward.kernels, 17));
}

/* Inductor: 6 for an fp32 copy, 16 for exponentials, 8 for their quotients; back
 * a clone of 8, and 10 for the product. The last two messages are one. */
static void test_compiled(void **state)
{
    (void)state;
    const double bytes[] = { 4, 8, 0 };
    const struct told x =
        loss_of(PAIRS(SETUP, "gpus", "2", "tp", "2", "global_batch", "1",
                      "loss", "fused", "ce_fusion", "native"),
                WIRE_ALL_REDUCE, bytes);
    assert_true(close_to(x.time.forward.part[TIME_MEMORY],
                         moved((6 + 16 + 8) * x.logits) + 6 * latency));
    assert_true(close_to(x.time.input.part[TIME_MEMORY],
                         moved((8 + 10) * x.logits) + 3 * latency));
    assert_true(close_to(x.time.forward.part[TIME_TP], x.messages));
}

/* Transformer Engine's: read, read again and written in 16 bits, and once more
 * read and written in backward; three values of each rank's tokens gathered. */
static void test_two_passes(void **state)
{
    (void)state;
    const double bytes[] = { 2 * 12, 0 };
    const struct told x =
        loss_of(PAIRS(SETUP, "gpus", "2", "tp", "2", "global_batch", "1",
                      "loss", "fused", "ce_fusion", "te"),
                WIRE_ALL_GATHER, bytes);
    assert_true(close_to(x.time.forward.part[TIME_MEMORY],
                         moved(6 * x.logits) + 4 * latency));
    assert_true(close_to(x.time.input.part[TIME_MEMORY],
                         moved(4 * x.logits) + latency));
    assert_true(close_to(x.time.forward.part[TIME_TP], x.messages));
}

/* Liger's: 8,192 tokens of Llama 3 8B are 32 chunks, each of which casts and adds a
 * gradient of all 128,256 x 4,096 weights: read in 16 bits, written and read in
 * fp32, added to what is read and written in 16. */
static void test_chunks_sum_a_weight_each(void **state)
{
    (void)state;
    memplan_report *r =
        estimate("llama-3-8b",
                 PAIRS("framework", "hf", "implementation", "hf-liger", "gpu",
                       "h100-80gb", "seq_len", "8192", "precision", "bf16"));
    const struct program *p = &r->program;
    struct clock c;
    struct block_time t;
    clock_init(&c, p, &r->run);
    const struct op *op = p->op;
    while (op < p->op + p->n_ops && op->kind != OP_FUSED_CROSS_ENTROPY)
        op++;
    assert_true(op < p->op + p->n_ops);
    time_op(&t, &c, op);
    const double weight = 128256.0 * 4096, x = 8192.0 * 4096;
    const double logits = 8192.0 * 128256;
    const double sums = 31 * 14 * weight;
    /* once: operands, results, and what was kept of them */
    const double once = 2 * (2 * x + 2 * weight + logits / 32) + 8 * 8192;
    assert_true(close_to(t.forward.part[TIME_MEMORY],
                         moved(once + sums + 3 * 2 * logits + 3 * 2 * x)
                             + (1 + 32 * 3 + 31 * 2) * latency));
    memplan_report_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spelled_out),
        cmocka_unit_test(test_one_rank_sends_nothing),
        cmocka_unit_test(test_compiled),
        cmocka_unit_test(test_two_passes),
        cmocka_unit_test(test_chunks_sum_a_weight_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
