/*
 * Megatron's tensor-parallel messages beside the products around them: what
 * docs/method.md (step-time) says, by hand.
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

#include "estimate.h"
#include "fold/fold.h"
#include "fold/time_private.h"
#include "plan/report_data.h"

#include "base/banned.h"

#define PAIRS(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define SHARDS                                                                 \
    "framework", "megatron", "tp", "8", "sequence_parallel", "true", "gpus",   \
        "8", "gpu", "h100-80gb", "global_batch", "1"

static bool close_to(double x, double want)
{
    return fabs(x - want) <= 1e-9 * fabs(want);
}

static double total_of(const struct pass *p)
{
    double sum = 0;
    for (int i = 0; i < TIME_PARTS; i++)
        sum += p->part[i];
    return sum;
}

struct expected {
    double there, back, slowed;
};

/* Of a layer, what the fold makes of its messages. */
static void takes(const memplan_report *r, const struct block *b,
                  const struct expected *e)
{
    struct clock c;
    struct block_time t;
    clock_init(&c, &r->program, &r->run);
    time_block(&t, &c, b);
    assert_true(close_to(t.forward.part[TIME_TP], e->there));
    assert_true(close_to(t.input.part[TIME_TP], e->back));
    assert_true(close_to(
        t.forward.part[TIME_SLOWED] + t.input.part[TIME_SLOWED], e->slowed));
}

static void beside(struct expected *e, double *part, double message,
                   double product)
{
    *part += fmax(0, message - product);
    e->slowed += 0.15 * fmin(message, product);
}

/* Of a layer, each product and message by itself. */
static struct expected by_hand(const memplan_report *r, const struct block *b,
                               bool buffers)
{
    struct expected e = { 0, 0, 0 };
    struct clock c;
    struct block_time t, gather = { 0 }, last = { 0 };
    clock_init(&c, &r->program, &r->run);
    const double others = 1 - 1.0 / (double)r->run.tp;
    for (uint32_t i = 0; i < b->op_count; i++) {
        const struct op *op = &r->program.op[b->op_first + i];
        time_op(&t, &c, op);
        const double there = t.forward.part[TIME_TP];
        if (op->kind == OP_ALL_GATHER) {
            gather = t;
        } else if (op->kind == OP_LINEAR) {
            const double whole = gather.forward.part[TIME_TP];
            const double product = t.forward.part[TIME_PRODUCTS];
            beside(&e, &e.back, gather.mirrored, t.weight.part[TIME_PRODUCTS]);
            beside(&e, &e.back, whole, t.input.part[TIME_PRODUCTS]);
            beside(&e, &e.there, whole, buffers ? others * product : 0);
            gather = (struct block_time){ 0 };
            last = t;
        } else if (op->kind == OP_REDUCE_SCATTER) {
            const double product = last.forward.part[TIME_PRODUCTS];
            e.there += buffers ? there / 4 : 0;
            beside(&e, &e.there, buffers ? 0.75 * there : there,
                   buffers ? 0.75 * product : 0);
            beside(&e, &e.back, t.input.part[TIME_TP],
                   buffers ? others * last.input.part[TIME_PRODUCTS] : 0);
        }
    }
    return e;
}

/* What is gathered for a product is gathered again in backward, beside the
 * product of its gradient; the gradient is scattered beside the weight's. Short
 * sequences' messages take longer than their products, long ones' do not. */
static void test_messages_beside_products(void **state)
{
    (void)state;
    static const char *const length[] = { "512", "8192" };
    double left[2];
    for (unsigned i = 0; i < 4; i++) {
        const bool buffers = i >= 2;
        memplan_report *r =
            estimate("llama-2-70b",
                     PAIRS(SHARDS, "seq_len", length[i % 2], "tp_comm_overlap",
                           buffers ? "true" : "false"));
        const struct block *b = &r->program.block[r->program.layer_block[0]];
        const struct expected e = by_hand(r, b, buffers);
        takes(r, b, &e);
        assert_true(e.slowed > 0);
        left[i % 2] = e.there + e.back;
        if (i >= 2)
            assert_true(e.there + e.back < left[i % 2] + 1e-12);
        memplan_report_free(r);
    }
}

/* Of a layer of torchtitan's whose products are one operation with their
 * gathers and scatters. */
static struct expected pipelined_by_hand(const memplan_report *r,
                                         const struct block *b)
{
    struct expected e = { 0, 0, 0 };
    struct clock c;
    struct block_time t, last = { 0 };
    clock_init(&c, &r->program, &r->run);
    const double others = 1 - 1.0 / (double)r->run.tp;
    tensor_id whole = TENSOR_NONE;
    double left = 0; /* of what is gathered */
    for (uint32_t i = 0; i < b->op_count; i++) {
        const struct op *op = &r->program.op[b->op_first + i];
        time_op(&t, &c, op);
        const double there = t.forward.part[TIME_TP];
        const double product = others * t.forward.part[TIME_PRODUCTS];
        if (op->kind == OP_ALL_GATHER) {
            left = there;
            whole = op->out[0];
            e.there += there;
            e.back += t.input.part[TIME_TP]; /* of a sum: bare */
        } else if (op->kind == OP_LINEAR) {
            const double hidden = op->in[0] == whole ? fmin(left, product) : 0;
            e.there -= hidden;
            e.slowed += 0.15 * hidden;
            left -= hidden;
            last = t;
        } else if (op->kind == OP_REDUCE_SCATTER) {
            beside(&e, &e.there, there,
                   others * last.forward.part[TIME_PRODUCTS]);
            beside(&e, &e.back, t.input.part[TIME_TP],
                   others * last.input.part[TIME_PRODUCTS]);
        }
    }
    return e;
}

static void test_messages_in_products(void **state)
{
    (void)state;
    static const char *const length[] = { "256", "8192" };
    static const char *const precision[] = { "bf16-mixed", "fp8-mixed" };
    for (unsigned i = 0; i < 4; i++) {
        memplan_report *r = estimate(
            "llama-3-70b",
            PAIRS("framework", "torchtitan", "gpus", "8", "tp", "8", "compile",
                  "true", "gpu", "h100-96gb", "async_tp", "true", "seq_len",
                  length[i % 2], "precision", precision[i / 2]));
        const struct block *b = &r->program.block[r->program.layer_block[0]];
        const struct expected e = pipelined_by_hand(r, b);
        takes(r, b, &e);
        assert_true(e.slowed > 0 && e.back > 0);
        memplan_report_free(r);
    }
}

/* Without sequence shards backward sums the gradient of what comes into a
 * branch, beside the product of its first weight; the embedding's sum is the
 * head's, whose product is longer. */
static void test_sums_beside_products(void **state)
{
    (void)state;
    memplan_report *r = estimate(
        "llama-2-70b", PAIRS("framework", "megatron", "tp", "8", "gpus", "8",
                             "gpu", "h100-80gb", "sequence_parallel", "false"));
    const struct program *p = &r->program;
    const struct block *b = &p->block[p->layer_block[0]];
    struct clock c;
    struct block_time t, first = { 0 };
    double back = 0, slowed = 0;
    clock_init(&c, p, &r->run);
    for (uint32_t i = 0; i < b->op_count; i++) {
        const struct op *op = &p->op[b->op_first + i];
        time_op(&t, &c, op);
        if (op->kind == OP_LINEAR && first.weight.kernels < 1)
            first = t;
        if (op->kind != OP_ALL_REDUCE)
            continue;
        const double weight = first.weight.part[TIME_PRODUCTS];
        assert_true(weight > 0 && t.mirrored > 0);
        back += fmax(0, t.mirrored - weight);
        slowed += 0.15 * fmin(t.mirrored, weight);
        first = (struct block_time){ 0 };
    }
    time_block(&t, &c, b);
    assert_true(back > 0);
    assert_true(fabs(t.input.part[TIME_TP] - back) <= 1e-12);
    assert_true(close_to(t.input.part[TIME_SLOWED], slowed));
    time_block(&t, &c, &p->block[p->embed]);
    assert_true(t.input.part[TIME_TP] < 1e-12);
    assert_true(t.input.part[TIME_SLOWED] > 0);
    memplan_report_free(r);
}

/* A pipeline of one micro-batch does what one stage does, and sends: what
 * messages slow is in its bubble once. */
static void test_slowed_once(void **state)
{
    (void)state;
    double passes[2], slowed = 0;
    for (unsigned i = 0; i < 2; i++) {
        memplan_report *r = estimate(
            "llama-2-70b",
            PAIRS("framework", "megatron", "tp", "8", "sequence_parallel",
                  "true", "gpu", "h100-80gb", "gpus", "16", "global_batch",
                  i == 0 ? "2" : "1", "pp", i == 0 ? "1" : "2"));
        const struct time_result *t = &r->time;
        passes[i] = t->step_s - t->part[TIME_OPTIMIZER] - t->part[TIME_DP];
        slowed = t->part[TIME_SLOWED];
        memplan_report_free(r);
    }
    assert_true(fabs(passes[1] - passes[0]) < slowed / 2);
}

/* Of one micro-batch the last stage makes the gradient of the head's weight
 * beside the first one's backward, which is longer. */
static void test_deferred_beside_flush(void **state)
{
    (void)state;
    double steps[2], product = 0;
    for (unsigned i = 0; i < 2; i++) {
        memplan_report *r = estimate(
            "llama-3-8b",
            PAIRS("framework", "megatron", "gpu", "h100-80gb", "gpus", "2",
                  "pp", "2", "grad_accum", "1", "grad_accum_fusion", "true",
                  "defer_embedding_wgrad_compute", i == 0 ? "false" : "true"));
        struct clock c;
        struct block_time t;
        clock_init(&c, &r->program, &r->run);
        time_op(&t, &c, program_words_product(&r->program));
        product = t.weight.part[TIME_PRODUCTS];
        steps[i] = r->time.step_s;
        memplan_report_free(r);
    }
    assert_true(product > 0);
    assert_true(fabs(steps[0] - steps[1] - product) <= 1e-9 * steps[0]);
}

/* The same pipeline with a head of its own and with the words', whose gradient two
 * ranks add up in fp32: 96 MiB of GPT-2 small's 50,432 x 768 words over two tensor-
 * parallel ranks, apart by `tp` stages of a node, or of two. */
static void test_tied_words_meet(void **state)
{
    (void)state;
    static const char *const gpus[] = { "8", "16" };
    for (unsigned i = 0; i < 2; i++) {
        double dp[2], sent[2], pair = 0;
        for (unsigned tie = 0; tie < 2; tie++) {
            memplan_model *model = NULL;
            char text[512];
            snprintf(text, sizeof text,
                     "{\"model_type\": \"decoder\", \"hidden_size\": 768, "
                     "\"num_hidden_layers\": 12, \"num_attention_heads\": "
                     "12, \"intermediate_size\": 3072, "
                     "\"vocab_size\": 50257, \"tie_word_embeddings\": "
                     "%s}",
                     tie ? "true" : "false");
            assert_int_equal(memplan_model_parse(&model, text, strlen(text),
                                                 "by hand", NULL, NULL),
                             MEMPLAN_OK);
            memplan_report *r = estimate_model(
                model, PAIRS("framework", "megatron", "gpu", "a100-80gb", "tp",
                             "2", "pp", "4", "gpus", gpus[i], "global_batch",
                             "8", "seq_len", "1024", "zero", "0"));
            const double bytes = 50432.0 / 2 * 768 * 4;
            struct clock c;
            clock_init(&c, &r->program, &r->run);
            dp[tie] = r->time.part[TIME_DP];
            sent[tie] = 0;
            for (unsigned k = 0; k < r->comm.n; k++)
                if (strcmp(r->comm.row[k].key, "tied_gradient") == 0)
                    sent[tie] = r->comm.row[k].bytes;
            /* 6 ranks apart of 8 in a node; 12 */
            pair = time_wire(&c, WIRE_ALL_REDUCE,
                             (struct ranks){ 2, i == 0 ? 1 : 12 }, bytes);
            assert_true(sent[tie] <= 0 || close_to(sent[tie], bytes));
            memplan_report_free(r);
        }
        assert_true(sent[0] <= 0 && sent[1] > 0);
        assert_true(close_to(dp[1] - dp[0], pair));
    }
}

/* Stages that lie in a V have the first and the last on one rank; one stage has
 * both. */
static void test_words_on_one_rank(void **state)
{
    (void)state;
    const char *const *const setups[] = {
        PAIRS("framework", "megatron", "gpu", "a100-80gb", "tp", "2", "gpus",
              "2"),
        PAIRS("framework", "megatron", "gpu", "a100-80gb", "pp", "2",
              "schedule", "zb-v", "gpus", "2", "global_batch", "8"),
    };
    for (unsigned i = 0; i < 2; i++) {
        memplan_report *r = estimate("gpt2", setups[i]);
        assert_true(pipe_tied_bytes(&r->program, &r->run) <= 0);
        memplan_report_free(r);
    }
}

/* Two gathers of a layer and the head's, and as many bytes scattered: three
 * times what is gathered, twice what is scattered first. */
static void test_bytes_gathered_again(void **state)
{
    (void)state;
    memplan_report *r =
        estimate("llama-2-70b", PAIRS(SHARDS, "seq_len", "4096"));
    const struct comm_result *comm = &r->comm;
    const double whole = 7.0 / 8 * 4096 * 8192 * 2;
    const double gathers = 2 * 80 + 1, scatters = 2 * 80 + 1;
    bool found = false;
    for (size_t i = 0; i < comm->n; i++) {
        if (strcmp(comm->row[i].key, "tensor_parallel") != 0)
            continue;
        found = true;
        assert_true(
            close_to(comm->row[i].bytes, (3 * gathers + 2 * scatters) * whole));
    }
    assert_true(found);
    memplan_report_free(r);
}

/* ---- between replicas ---- */

static double sent(const memplan_report *r, const char *key)
{
    for (size_t i = 0; i < r->comm.n; i++)
        if (strcmp(r->comm.row[i].key, key) == 0)
            return r->comm.row[i].bytes;
    return 0;
}

/* Frozen weights, which no update changes, are gathered where they lie in
 * shards alone. [method.md eq. communication] */
static void test_frozen_weights_stay(void **state)
{
    (void)state;
    static const struct {
        const char *framework, *zero;
        bool shards;
    } all[] = { { "megatron", "1", false },
                { "deepspeed", "1", false },
                { "deepspeed", "2", false },
                { "deepspeed", "3", true } };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        memplan_report *r =
            estimate("llama-3-8b",
                     PAIRS("framework", all[i].framework, "zero", all[i].zero,
                           "gpus", "8", "tp", "1", "gpu", "h100-80gb",
                           "lora_rank", "16", "lora_dtype", "bf16"));
        const struct params_result *n = &r->params;
        const double elems = (double)(all[i].shards ? n->total : n->trainable);
        assert_true(n->trainable > 0 && n->trainable < n->total / 100);
        assert_true(close_to(sent(r, "parameters"), 7.0 / 8 * 2 * elems));
        const double all_of = 7.0 / 8 * 2 * (double)n->total;
        assert_true(all[i].shards
                    || r->time.part[TIME_DP]
                           < all_of / 450e9); /* one way of NVLink's */
        memplan_report_free(r);
    }
}

static double adapted(const char *engine, const char *targets, const char *key,
                      const char *value)
{
    memplan_report *r = estimate(
        "llama-2-7b", PAIRS("framework", "fsdp", "engine", engine, "gpus", "8",
                            "gpu", "a100-80gb", "seq_len", "4096", "recompute",
                            "full", "recompute_reentrant", "true", key, value,
                            "lora_rank", "16", "lora_targets", targets));
    const double left = r->time.part[TIME_DP];
    memplan_report_free(r);
    return left;
}

/* FSDP 1 has adapters as units of their own, between which no layer is gathered
 * ahead: in backward all of it is bare, twice where a checkpoint is around the
 * unit; in forward what comes after the last adapter hides it. FSDP 2 wraps
 * layers. */
static void test_adapters_hold_gathers(void **state)
{
    (void)state;
    const double ahead = adapted("fsdp2", "all-linear", "micro_batch", "1"),
                 back = adapted("fsdp", "q,v", "micro_batch", "1"),
                 both = adapted("fsdp", "all-linear", "micro_batch", "1"),
                 thrice = adapted("fsdp", "all-linear", "recompute_in_unit",
                                  "false");
    const double pass = both - back;
    assert_true(pass > 5 * ahead);
    assert_true(fabs(back - ahead - pass) < 0.2 * pass);
    assert_true(fabs(thrice - both - pass) < 0.2 * pass);
}

/* DeepSpeed's ZeRO-2 sums gradients for all ranks, twice what it sends where each
 * part goes to its owner; BF16_Optimizer whatever it is told, its fp32 ones in the
 * type that the engine sends (communication_data_type). */
static void test_sums_for_all(void **state)
{
    (void)state;
    static const struct {
        const char *zero, *grads, *all;
        double times;
    } rows[] = { { "2", "bf16", "true", 2 },
                 { "2", "bf16", "false", 1 },
                 { "1", "bf16", "true", 2 },
                 { "1", "fp32", "false", 2 } };
    double waited[4];
    for (unsigned i = 0; i < 4; i++) {
        memplan_report *r = estimate(
            "llama-7b", PAIRS("framework", "deepspeed", "gpus", "64", "zero",
                              rows[i].zero, "grad_dtype", rows[i].grads,
                              "grad_accum", "1", "overlap_comm", "false",
                              "multi_rank_bucket_allreduce", rows[i].all));
        const double elems = (double)r->params.total;
        assert_true(close_to(sent(r, "gradients"),
                             rows[i].times * 63 / 64 * elems * 2));
        waited[i] = r->time.part[TIME_DP];
        memplan_report_free(r);
    }
    assert_true(waited[0] > 1.3 * waited[1]);
    assert_true(close_to(waited[0], waited[2]));
    assert_true(close_to(waited[3], waited[0]));
}

/* Sums of gradients are bare in Megatron-DeepSpeed, where nothing else is said; in
 * Transformer Engine's layers they never are. */
static void test_bare_sums(void **state)
{
    (void)state;
    static const struct {
        const char *framework, *layers, *key, *value;
    } rows[] = {
        { "megatron-deepspeed", "megatron-local", "zero", "0" },
        { "megatron-deepspeed", "megatron-local",
          "async_tensor_model_parallel_allreduce", "true" },
        { "megatron", "megatron", "zero", "0" },
        { "megatron", "megatron", "async_tensor_model_parallel_allreduce",
          "false" },
        { "megatron", "megatron-local", "zero", "0" },
        { "megatron", "megatron-local", "async_tensor_model_parallel_allreduce",
          "false" },
    };
    double waited[6];
    for (unsigned i = 0; i < 6; i++) {
        memplan_report *r =
            estimate("megatron-22b",
                     PAIRS("framework", rows[i].framework, "implementation",
                           rows[i].layers, "tp", "4", "gpus", "4",
                           "vocab_multiple", "256", "sequence_parallel",
                           "false", rows[i].key, rows[i].value));
        waited[i] = r->time.part[TIME_TP];
        memplan_report_free(r);
    }
    assert_true(waited[0] > 1.2 * waited[1]);
    assert_true(close_to(waited[2], waited[3]));
    assert_true(waited[5] > 1.2 * waited[4]);
}

/* Experts that tensor parallelism cuts are on fewer ranks: of 32, with two times
 * four in a group, 4 have the same ones, which share their states; without ZeRO
 * these add up 3/4 of their gradients twice, and there are no other replicas. */
static void test_experts_cut_in_parts(void **state)
{
    (void)state;
    static const char *const stages[] = { "0", "1" };
    for (unsigned i = 0; i < 2; i++) {
        memplan_report *r = estimate(
            "mixtral-8x7b",
            PAIRS("framework", "megatron", "tp", "4", "ep", "2", "etp", "4",
                  "gpus", "32", "grad_accum", "1", "zero", stages[i]));
        double elems = 0;
        for (uint64_t l = 0; l < r->program.layers; l++)
            elems += (double)r->memory.states[r->program.layer_block[l]]
                         .expert_elems;
        assert_true(elems > 0);
        assert_true(
            close_to(sent(r, "expert_gradients"), (2 - i) * 0.75 * elems * 4));
        assert_true(sent(r, "replicas") <= 0);
        memplan_report_free(r);
    }
}

/* What an explanation has of a step's messages is what is sent: weights gathered
 * and gradients either summed for all or scattered. */
static void test_messages_told(void **state)
{
    (void)state;
    static struct time_log log;
    static const char *const whole[] = { "true", "false" };
    struct arena a;
    arena_init(&a, NULL);
    for (unsigned i = 0; i < 2; i++) {
        memplan_report *r = estimate(
            "llama-7b",
            PAIRS("framework", "deepspeed", "gpus", "8", "zero", "2",
                  "grad_accum", "1", "multi_rank_bucket_allreduce", whole[i]));
        struct time_result t;
        time_log_clear(&log);
        assert_true(fold_time_logged(&t, &r->program, &r->run, NULL, &a, &log));
        assert_int_equal(log.n_wires, 2);
        assert_int_equal(log.wire[0].wire, WIRE_ALL_GATHER);
        assert_int_equal(log.wire[1].wire,
                         i == 0 ? WIRE_ALL_REDUCE : WIRE_REDUCE_SCATTER);
        assert_true(close_to(log.wire[0].seconds + log.wire[1].seconds,
                             t.part[TIME_DP]));
        memplan_report_free(r);
    }
    arena_release(&a);
}

/* 0.6 to 0.9, which came with Megatron-DeepSpeed, had no such all-reduce, but put
 * whole tensors together in stage 1, as is done without contiguous_gradients, and
 * not beside backward; BF16_Optimizer sums as today's does. */
static void test_sums_of_older_versions(void **state)
{
    (void)state;
    const struct {
        const char *const *setup;
        bool whole, beside;
    } rows[] = {
        { PAIRS("framework", "megatron-deepspeed", "gpus", "8", "zero", "2",
                "precision", "fp16-mixed", "overlap_comm", "true"),
          false, true },
        { PAIRS("framework", "megatron-deepspeed", "gpus", "8", "zero", "2",
                "precision", "fp16-mixed", "multi_rank_bucket_allreduce",
                "true"),
          true, false },
        { PAIRS("framework", "megatron-deepspeed", "gpus", "8", "zero", "1",
                "precision", "fp16-mixed", "overlap_comm", "true"),
          true, false },
        { PAIRS("framework", "megatron-deepspeed", "gpus", "8", "zero", "1",
                "precision", "fp16-mixed", "offload_optimizer", "cpu"),
          false, false },
        { PAIRS("framework", "megatron-deepspeed", "gpus", "8", "zero", "1",
                "precision", "bf16-mixed", "grad_dtype", "fp32", "overlap_comm",
                "true"),
          true, false },
        { PAIRS("framework", "deepspeed", "gpus", "8", "zero", "1", "precision",
                "fp16-mixed", "overlap_comm", "true"),
          true, true },
        { PAIRS("framework", "deepspeed", "gpus", "8", "zero", "2",
                "contiguous_gradients", "false", "overlap_comm", "true",
                "multi_rank_bucket_allreduce", "false"),
          true, true },
        { PAIRS("framework", "deepspeed", "implementation", "megatron-local",
                "gpus", "16", "pp", "2", "zero", "1", "precision", "fp16-mixed",
                "overlap_comm", "true", "grad_accum", "4"),
          true, false },
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        memplan_report *r = estimate("gpt2", rows[i].setup);
        if (run_sums_whole(&r->run) != rows[i].whole
            || run_reduces_beside(&r->run) != rows[i].beside)
            fail_msg("row %u", i);
        memplan_report_free(r);
    }
}

/* Megatron-DeepSpeed's stages send a part each by either engine, unless told
 * otherwise or where tokens are split already; Megatron's of today do not. */
static void test_stages_send_parts(void **state)
{
    (void)state;
#define STAGES                                                                 \
    "tp", "2", "pp", "2", "gpus", "4", "grad_accum", "2", "sequence_parallel"
    const struct {
        const char *const *setup;
        bool parts;
    } rows[] = {
        { PAIRS("framework", "megatron-deepspeed", "engine", "megatron", STAGES,
                "false"),
          true },
        { PAIRS("framework", "megatron-deepspeed", "engine", "megatron", STAGES,
                "false", "scatter_gather_tensors_in_pipeline", "false"),
          false },
        { PAIRS("framework", "megatron-deepspeed", "engine", "megatron", STAGES,
                "true"),
          false },
        { PAIRS("framework", "megatron-deepspeed", "implementation",
                "megatron-local", STAGES, "false"),
          true },
        { PAIRS("framework", "megatron", STAGES, "false"), false },
    };
#undef STAGES
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        memplan_report *r = estimate("gpt2", rows[i].setup);
        if (run_sends_parts(&r->run) != rows[i].parts)
            fail_msg("row %u", i);
        memplan_report_free(r);
    }
}

/* Between DeepSpeed's stages, of tensors of 64 MiB: the bytes of what its engine
 * copies, and what the host starts between its waits. */
static void test_exchange_by_hand(void **state)
{
    (void)state;
    const double n = 64 << 20, part = n / 4;
    memplan_report *r =
        estimate("gpt2", PAIRS("framework", "megatron-deepspeed", "tp", "4",
                               "pp", "2", "gpus", "8", "gpu", "h100-80gb"));
    struct clock c;
    struct pass there = { 0 }, back = { 0 };
    clock_init(&c, &r->program, &r->run);
    const double gather =
        time_wire(&c, WIRE_ALL_GATHER, (struct ranks){ 4, 1 }, n);
    const double whole = time_bytes(&c, 5 * n + 2 * part);
    const double clone = time_bytes(&c, 2 * part);
    assert_true(close_to(time_exchange_send(&c, n),
                         time_send(&c, 4, 0) + time_send(&c, 4, part)));
    time_exchange_before(&there, &back, &c, n);
    assert_true(close_to(there.part[TIME_MEMORY], 2 * clone + whole));
    assert_true(close_to(there.part[TIME_TP], gather));
    assert_true(close_to(there.part[TIME_HOST],
                         (2 + 1) * HOST_MESSAGE_S + (4 + 3) * HOST_FORWARD_S));
    assert_true(close_to(total_of(&back), clone));
    there = back = (struct pass){ { 0 }, 0, 0, 0, 0 };
    time_exchange_after(&there, &back, &c, n);
    assert_true(close_to(total_of(&there), clone));
    assert_true(close_to(back.part[TIME_MEMORY], 2 * whole));
    assert_true(close_to(back.part[TIME_TP], 2 * gather));
    assert_true(close_to(back.part[TIME_HOST],
                         (2 + 2) * HOST_MESSAGE_S + 6 * HOST_FORWARD_S));
    /* since 0.12.6 nothing waits for what arrived, and parts come where they
       stay */
    r->run.framework = FW_DEEPSPEED;
    clock_init(&c, &r->program, &r->run);
    there = back = (struct pass){ { 0 }, 0, 0, 0, 0 };
    time_exchange_before(&there, &back, &c, n);
    time_exchange_after(&there, &back, &c, n);
    const double now = time_bytes(&c, 3 * n);
    assert_true(close_to(there.part[TIME_MEMORY], 3 * clone + now));
    assert_true(close_to(back.part[TIME_MEMORY], clone + 2 * now));
    assert_true(close_to(there.part[TIME_TP], gather));
    assert_true(close_to(there.part[TIME_HOST], 2 * HOST_MESSAGE_S));
    assert_true(close_to(back.part[TIME_HOST], 2 * HOST_MESSAGE_S));
    r->run.tp = 1; /* nothing is cut, and the host waits for nothing */
    clock_init(&c, &r->program, &r->run);
    there = back = (struct pass){ { 0 }, 0, 0, 0, 0 };
    time_exchange_before(&there, &back, &c, n);
    time_exchange_after(&there, &back, &c, n);
    assert_true(close_to(total_of(&there), 2 * time_bytes(&c, 2 * n)));
    assert_true(total_of(&back) <= 0);
    assert_true(
        close_to(time_exchange_send(&c, n), time_send(&c, r->run.dp, n)));
    memplan_report_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_beside_products),
        cmocka_unit_test(test_messages_in_products),
        cmocka_unit_test(test_sums_beside_products),
        cmocka_unit_test(test_slowed_once),
        cmocka_unit_test(test_deferred_beside_flush),
        cmocka_unit_test(test_tied_words_meet),
        cmocka_unit_test(test_words_on_one_rank),
        cmocka_unit_test(test_bytes_gathered_again),
        cmocka_unit_test(test_frozen_weights_stay),
        cmocka_unit_test(test_adapters_hold_gathers),
        cmocka_unit_test(test_sums_for_all),
        cmocka_unit_test(test_bare_sums),
        cmocka_unit_test(test_experts_cut_in_parts),
        cmocka_unit_test(test_messages_told),
        cmocka_unit_test(test_sums_of_older_versions),
        cmocka_unit_test(test_stages_send_parts),
        cmocka_unit_test(test_exchange_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
