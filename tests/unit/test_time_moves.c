/*
 * Time of the kernels that compute little, of optimizers and of the
 * memory-efficient attention: what docs/method.md (moves, kernels, step-time)
 * says by hand, of an H100.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "estimate.h"
#include "fold/time.h"
#include "plan/report_data.h"

#include "base/banned.h"

#define PAIRS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static const double latency = 3e-6, units = 132;

/* Seconds of the memory at the share that moves have of it. */
static double moved(double bytes)
{
    return bytes / (3.35e12 * 0.9);
}

static bool close_to(double x, double want)
{
    return fabs(x - want) <= 1e-3 * fabs(want);
}

/* The first operation of that kind and, unless NULL, name; of its result the
 * bytes and elements. */
struct timed {
    struct block_time time;
    double bytes, elems;
};

static struct timed time_of(const memplan_report *r, enum op_kind kind,
                            const char *name)
{
    const struct program *p = &r->program;
    struct timed t = { .bytes = 0 };
    struct clock c;
    clock_init(&c, p, &r->run);
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct op *op = &p->op[i];
        if (op->kind != kind || (name != NULL && strcmp(op->name, name) != 0))
            continue;
        const struct tensor *y = &p->tensor[op->out[0]];
        time_op(&t.time, &c, op);
        t.bytes = (double)y->bytes;
        t.elems = (double)y->elems;
        return t;
    }
    fail_msg("no %s", name != NULL ? name : "operation of that kind");
    return t;
}

static double memory_of(const struct pass *p)
{
    return p->part[TIME_MEMORY];
}

static memplan_report *bloom(const char *tokens)
{
    return estimate("bloom-1b7",
                    PAIRS("gpu", "h100-80gb", "framework", "hf", "precision",
                          "bf16-amp", "attention", "eager", "micro_batch", "3",
                          "seq_len", tokens));
}

/* Six passes over one tensor and three over two there; ten and eight back. */
static void test_gelu_that_is_written_out(void **state)
{
    (void)state;
    memplan_report *r = bloom("2048");
    const struct timed t = time_of(r, OP_PYTHON_GELU, NULL);
    assert_true(close_to(memory_of(&t.time.forward),
                         moved((6 * 2 + 3 * 3) * t.bytes) + 9 * latency));
    assert_true(close_to(memory_of(&t.time.input),
                         moved((10 * 2 + 8 * 3) * t.bytes) + 18 * latency));
    memplan_report_free(r);
}

/* A product with the result comes first; rows of 48 KiB are read once. */
static void test_softmax_backward(void **state)
{
    (void)state;
    static const struct {
        const char *tokens;
        double passes;
    } cases[] = { { "512", 6 }, { "2048", 6 }, { "16384", 7 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memplan_report *r = bloom(cases[i].tokens);
        const struct timed t = time_of(r, OP_SOFTMAX, NULL);
        assert_true(close_to(memory_of(&t.time.input),
                             moved(cases[i].passes * t.bytes) + 2 * latency));
        memplan_report_free(r);
    }
}

/* Scores of 16 bits and a mask of 32 for all heads: an element at a time, each
 * asked for its type. Timed: 1289 us. */
static void test_operands_of_two_types(void **state)
{
    (void)state;
    memplan_report *r = bloom("2048");
    const struct timed t = time_of(r, OP_ADD, "masked");
    assert_true(close_to(memory_of(&t.time.forward),
                         t.elems / (units * 1.5e9) + latency));
    memplan_report_free(r);
}

/* GPTQ: half a byte a weight is shifted out in int32, one by one, made int8, four
 * at once, and masked there; zero points, and scales of another type, are one for
 * a group of weights, so that these are taken off and multiplied one by one. */
static void test_weights_of_integers(void **state)
{
    (void)state;
    static const struct {
        enum op_kind kind;
        const char *name;
        double bytes, each; /* of a weight; weights a second a multiprocessor */
    } kernels[] = { { OP_CAST, "unpacked int32", 4.5, 2.3e9 },
                    { OP_CAST, "unpacked int8", 5, 0 },
                    { OP_QUANTIZE, "lowest 4 bits", 2, 0 },
                    { OP_QUANTIZE, "less zero points", 2, 2.3e9 },
                    { OP_CAST, "dequantised weight", 3, 1.5e9 } };
    memplan_report *r = estimate(
        "llama-7b", PAIRS("gpu", "h100-80gb", "lora_rank", "16", "base_dtype",
                          "int4", "precision", "fp16", "seq_len", "512"));
    for (unsigned i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        const struct timed t = time_of(r, kernels[i].kind, kernels[i].name);
        const double least = moved(kernels[i].bytes * t.elems);
        const double lone =
            kernels[i].each > 0 ? t.elems / (units * kernels[i].each) : 0;
        assert_true(
            close_to(memory_of(&t.time.forward), fmax(least, lone) + latency));
        assert_true(memory_of(&t.time.input) <= 0);
    }
    memplan_report_free(r);
}

/* alibi.baddbmm(): alibi is copied over all scores, which the product reads. */
static void test_product_onto_a_copy(void **state)
{
    (void)state;
    memplan_report *r = bloom("2048");
    const struct timed scores = time_of(r, OP_MATMUL, "scores");
    const struct timed context = time_of(r, OP_MATMUL, "context");
    assert_true(close_to(memory_of(&scores.time.forward),
                         scores.elems / (units * 2.3e9) + latency));
    assert_true(memory_of(&context.time.forward) <= 0);
    assert_true(scores.time.forward.part[TIME_ATTENTION]
                > 1.5 * context.time.forward.part[TIME_ATTENTION]);
    memplan_report_free(r);
}

static double unpacked(const char *base, const char *framework)
{
    memplan_report *r =
        estimate("llama-2-7b",
                 PAIRS("gpu", "h100-80gb", "framework", framework, "precision",
                       "bf16", "lora_rank", "8", "base_dtype", base));
    const struct timed t = time_of(r, OP_CAST, "dequantised weight");
    memplan_report_free(r);
    return memory_of(&t.time.forward) / t.elems;
}

/* bitsandbytes' kernel; timed 1.14 to 1.19 ps. */
static void test_four_bits_are_unpacked(void **state)
{
    (void)state;
    const double each = unpacked("nf4", "hf");
    assert_true(each > 1.14e-12 && each < 1.5e-12);
    assert_true(close_to(unpacked("fp4", "hf"), each));
    assert_true(unpacked("nf4", "torchtune") > 1.5 * each);
}

static double optimizer_of(const char *optimizer, const char *impl,
                           const char *embedding)
{
    memplan_report *r =
        estimate("pythia-1.4b",
                 PAIRS("gpu", "h100-80gb", "framework", "hf", "precision",
                       "bf16-amp", "clip_grad", "false", "optimizer", optimizer,
                       "optimizer_impl", impl, "embedding_states", embedding));
    const double seconds = r->time.part[TIME_OPTIMIZER];
    memplan_report_free(r);
    return seconds;
}

/* A search in a table of codes for each moment, whatever memory does: 1.41e9
 * elements took 40.8 ms. Those of embeddings in fp32 are not searched. */
static void test_moments_in_8_bits(void **state)
{
    (void)state;
    const double two = optimizer_of("adam8bit", "fused", "8bit");
    assert_true(two > 40e-3 && two < 42e-3);
    assert_true(close_to(optimizer_of("adam8bit", "foreach", "8bit"), two));
    assert_true(close_to(optimizer_of("paged-adam8bit", "fused", "8bit"), two));
    assert_true(
        close_to(optimizer_of("lion8bit", "fused", "8bit") / two, 263.0 / 466));
    const double less = optimizer_of("adam8bit", "fused", "fp32");
    assert_true(less < 0.97 * two && less > 0.9 * two);
}

/* No weight is read or written where nothing is updated. */
static void test_no_optimizer_takes_no_time(void **state)
{
    (void)state;
    assert_true(optimizer_of("none", "fused", "fp32") <= 0);
    assert_true(optimizer_of("sgd", "fused", "fp32") > 0);
}

/* Two of StarCoder2 3B, whose window is 4096: as many tokens make a mask, and
 * every block is computed, by 24 heads of 128. */
static double attention_of(const char *tokens)
{
    memplan_report *r = estimate("starcoder2-3b",
                                 PAIRS("gpu", "h100-80gb", "framework", "hf",
                                       "precision", "bf16", "attention", "sdpa",
                                       "micro_batch", "2", "seq_len", tokens));
    const double seconds = r->time.part[TIME_ATTENTION];
    memplan_report_free(r);
    return seconds;
}

static void test_masks_leave_no_block_out(void **state)
{
    (void)state;
    const double flop = 30 * 2 * 24 * 4.0 * 4096 * 4096 * 128;
    const double want = flop / 989.4e12 * (1 / 0.181 + 2.5 / 0.1386);
    const double there = attention_of("4096");
    assert_true(there > want && there < 1.1 * want);
    assert_true(attention_of("4095") < 0.25 * there);
}

/* Mixtral's two rows a token to the experts and back: by index and scatter_add,
 * or by kernels that read each token's once. `tokens` of the bytes of hidden
 * states. */
static void test_rows_of_experts(void **state)
{
    static const struct {
        const char *fusion, *name;
        double forward, back, kernels;
    } cases[] = {
        { "false", "permute", 4, 5, 1 }, { "false", "unpermute", 5, 4, 2 },
        { "true", "permute", 3, 3, 1 },  { "true", "unpermute", 3, 3, 1 },
        { "true", "sort", 4, 4, 1 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memplan_report *r = estimate(
            "mixtral-8x7b",
            PAIRS("gpu", "h100-80gb", "gpus", "8", "ep", "4", "framework",
                  "megatron", "moe_permute_fusion", cases[i].fusion));
        const double tokens = (double)r->program.tokens * 4096 * 2;
        const struct timed t = time_of(r, OP_INDEX, cases[i].name);
        assert_true(close_to(memory_of(&t.time.forward),
                             moved(cases[i].forward * tokens)
                                 + cases[i].kernels * latency));
        assert_true(close_to(memory_of(&t.time.input),
                             moved(cases[i].back * tokens) + latency));
        memplan_report_free(r);
    }
}

static unsigned ops_named(const memplan_report *r, const char *name)
{
    unsigned n = 0;
    for (uint32_t i = 0; i < r->program.n_ops; i++)
        n += strcmp(r->program.op[i].name, name) == 0;
    return n;
}

static memplan_report *flex(const char *backend)
{
    return estimate("mixtral-8x7b",
                    PAIRS("gpu", "h100-80gb", "gpus", "8", "ep", "4",
                          "framework", "megatron", "precision", "fp8-mixed",
                          "moe_permute_fusion", "true", "moe_dispatcher",
                          "flex", "moe_flex_dispatcher_backend", backend));
}

/* Two experts of a token are on 4 (1 - (3/4)^2) = 1.75 of four ranks: so often
 * DeepEP sends it, and puts what came by expert; HybridEP does both, and moves
 * what came once more. Neither sorts, nor pads apart. */
static void test_tokens_once_a_rank(void **state)
{
    (void)state;
    const double ranks = 1.75;
    memplan_report *deep = flex("deepep"), *hybrid = flex("hybridep");
    const double tokens = (double)deep->program.tokens * 4096 * 2;
    const struct timed there = time_of(deep, OP_ALL_TO_ALL, NULL);
    const struct timed all = time_of(hybrid, OP_ALL_TO_ALL, NULL);
    const struct timed placed = time_of(deep, OP_INDEX, "permute");
    assert_true(close_to(there.bytes, ranks * tokens));
    assert_true(close_to(all.bytes, 2 * tokens));
    assert_true(close_to(memory_of(&placed.time.forward),
                         moved((ranks + 2) * tokens) + latency));
    assert_true(close_to(memory_of(&all.time.forward),
                         moved((ranks + 2) * tokens) + latency));
    assert_true(close_to(all.time.forward.part[TIME_EP],
                         there.time.forward.part[TIME_EP]));
    assert_int_equal(ops_named(hybrid, "permute"), 0);
    assert_int_equal(ops_named(deep, "sort") + ops_named(hybrid, "sort"), 0);
    assert_int_equal(ops_named(deep, "padded") + ops_named(hybrid, "padded"),
                     0);
    memplan_report_free(deep);
    memplan_report_free(hybrid);
}

static double dispatch_of(const char *ep, const char *tp, const char *backend,
                          const char *imbalance)
{
    memplan_report *r = estimate(
        "deepseek-v3", PAIRS("gpu", "h100-80gb", "gpus", "8", "ep", ep, "tp",
                             tp, "framework", "megatron", "moe_dispatcher",
                             "flex", "moe_flex_dispatcher_backend", backend,
                             "fast", "true", "moe_imbalance", imbalance));
    const struct timed t = time_of(r, OP_ALL_TO_ALL, NULL);
    memplan_report_free(r);
    return t.time.forward.part[TIME_EP];
}

/* Of two ranks a router's groups leave one open: what comes is as many rows as
 * went, each of them for eight experts. What the fullest rank gets more is
 * not sent by one, of experts in shards neither. */
static void test_what_is_sent_once(void **state)
{
    (void)state;
    assert_true(close_to(dispatch_of("2", "1", "deepep", "1"),
                         dispatch_of("2", "1", "hybridep", "1")));
    assert_true(close_to(dispatch_of("4", "1", "deepep", "1.5"),
                         dispatch_of("4", "1", "deepep", "1")));
    assert_true(close_to(dispatch_of("4", "2", "deepep", "1.5"),
                         dispatch_of("4", "2", "deepep", "1")));
}

/* A capacity below the balanced number drops tokens before they are sent. */
static void test_what_is_dropped_is_not_sent(void **state)
{
    static const char *const backend[] = { "deepep", "hybridep" };
    double seconds[2][2];
    (void)state;
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < 2; k++) {
            memplan_report *r = estimate(
                "mixtral-8x7b",
                PAIRS("gpu", "h100-80gb", "gpus", "8", "ep", "4", "framework",
                      "megatron", "moe_dispatcher", "flex",
                      "moe_flex_dispatcher_backend", backend[i], "fast", "true",
                      "moe_expert_capacity_factor", k == 0 ? "0.25" : "0.5"));
            const struct timed t = time_of(r, OP_ALL_TO_ALL, NULL);
            seconds[i][k] = t.time.forward.part[TIME_EP];
            memplan_report_free(r);
        }
    assert_true(close_to(seconds[0][0], seconds[1][0]));
    assert_true(close_to(seconds[0][1], seconds[1][1]));
    assert_true(seconds[0][0] < 0.6 * seconds[0][1]);
}

/* Padded again is what attention gives: of DeepSeek's heads, as wide as values. */
static void test_all_tokens_are_as_wide_as_values(void **state)
{
    (void)state;
    memplan_report *r =
        estimate("deepseek-v3", PAIRS("framework", "hf", "attention", "flash",
                                      "attention_mask", "padding", "seq_len",
                                      "128", "fast", "true"));
    const struct timed out = time_of(r, OP_FLASH_ATTENTION, NULL);
    const struct timed all = time_of(r, OP_INDEX, "all tokens");
    assert_true(close_to(all.elems, 128.0 * 128 * 128));
    assert_true(close_to(all.elems, out.elems));
    memplan_report_free(r);
}

/* The map of fused sorts is made of how many there are, not of the rows. */
static void test_a_map_reads_no_rows(void **state)
{
    (void)state;
    memplan_report *r =
        estimate("mixtral-8x7b",
                 PAIRS("gpu", "h100-80gb", "gpus", "8", "ep", "4", "framework",
                       "megatron", "moe_permute_fusion", "true"));
    const struct timed t = time_of(r, OP_CAST, "chunk map");
    assert_true(memory_of(&t.time.forward) < 2 * latency);
    memplan_report_free(r);
}

/* ---- GPT-OSS by Megatron ---- */

static memplan_report *gpt_oss_of(const char *gpu, const char *fuser,
                                  const char *grouped)
{
    return estimate("gpt-oss-20b",
                    PAIRS("gpu", gpu, "gpus", "8", "ep", "8", "framework",
                          "megatron", "precision", "fp8-mixed", "fp8_recipe",
                          strcmp(gpu, "b200") == 0 ? "mxfp8" : "tensorwise",
                          "use_transformer_engine_op_fuser", fuser,
                          "grouped_gemm", grouped));
}

static memplan_report *gpt_oss(const char *gpu, const char *fuser)
{
    return gpt_oss_of(gpu, fuser, "true");
}

/* What PyTorch 2.13 starts for each: of a clamp, where each bound is met and the
 * gradient there, between them a choice of both; of a bias that is weighed, two
 * products and two sums, 16 bits as 12 bytes an element there and 16 back with
 * the sum, the copy and the split around them. */
static void test_clamps_and_weighed_biases(void **state)
{
    (void)state;
    memplan_report *r = gpt_oss("h100-80gb", "false");
    const struct timed gate = time_of(r, OP_ACTIVATION, "gate clamped");
    const struct timed up = time_of(r, OP_ACTIVATION, "up clamped");
    const struct timed bias = time_of(r, OP_MUL, "weighed bias");
    const double lone = gate.elems / (units * 2.3e9);
    assert_true(close_to(memory_of(&gate.time.forward), lone + latency));
    assert_true(close_to(memory_of(&gate.time.input), 2 * lone + 2 * latency));
    assert_true(close_to(memory_of(&up.time.input),
                         3 * lone + moved(3 * up.elems) + 4 * latency));
    const double each = bias.elems / (units * 2.3e9);
    const double weights = 2.0 * 2880 * 4, probs = bias.elems / 2880 * 2;
    assert_true(close_to(memory_of(&bias.time.forward), each + latency));
    assert_true(close_to(memory_of(&bias.time.input),
                         2 * each + moved(2 * bias.bytes + weights + probs)
                             + 4 * latency));
    const struct timed joined = time_of(r, OP_CAT, "experts");
    assert_true(close_to(memory_of(&joined.time.forward),
                         moved(2 * bias.bytes) + latency));
    memplan_report_free(r);
}

/* YaRN's factor is not the fused kernel's; what is between the products is. */
static void test_what_is_fused_of_gpt_oss(void **state)
{
    static const char *const apart[] = { "gate clamped", "clamped",
                                         "weighed bias" };
    (void)state;
    memplan_report *r = gpt_oss("b200", "false"),
                   *fused = gpt_oss("b200", "true");
    const unsigned blocks = ops_named(r, "clamped");
    assert_true(blocks >= 2);
    for (size_t i = 0; i < sizeof apart / sizeof apart[0]; i++) {
        assert_int_equal(ops_named(r, apart[i]), blocks);
        assert_int_equal(ops_named(fused, apart[i]), 0);
    }
    assert_int_equal(ops_named(r, "times cos"), 2 * blocks);
    assert_int_equal(ops_named(fused, "times cos"), 2 * blocks);
    const struct timed act = time_of(r, OP_SWIGLU, NULL);
    const struct timed none = time_of(fused, OP_SWIGLU, NULL);
    assert_true(memory_of(&act.time.forward) > latency);
    assert_true(memory_of(&none.time.forward) <= 0);
    assert_true(memory_of(&none.time.input) <= 0);
    /* the gradient of the first product's result is cast where it is made */
    const struct timed first = time_of(r, OP_LINEAR, "experts.linear_fc1");
    const struct timed cast = time_of(fused, OP_LINEAR, "experts.linear_fc1");
    const double cast_s = 4 * first.elems / (7.7e12 * 0.67) + latency;
    assert_true(close_to(
        memory_of(&first.time.input) - memory_of(&cast.time.input), cast_s));
    memplan_report_free(r);
    memplan_report_free(fused);
}

/* Experts that are modules, one by one, are no operations of Transformer Engine's
 * (core/models/gpt/moe_module_specs.py). */
static void test_only_grouped_experts_are_fused(void **state)
{
    (void)state;
    memplan_report *r = gpt_oss_of("b200", "false", "false"),
                   *asked = gpt_oss_of("b200", "true", "false");
    assert_true(ops_named(r, "clamped") > 0);
    assert_int_equal(ops_named(asked, "clamped"), ops_named(r, "clamped"));
    assert_true(close_to(asked->time.step_s, r->time.step_s));
    assert_int_equal(asked->memory.peak, r->memory.peak);
    memplan_report_free(r);
    memplan_report_free(asked);
}

/* ---- attention in 8 bits ---- */

static memplan_report *some_in_16_bits(const char *layers, const char *eight)
{
    return estimate("llama-3.1-8b",
                    PAIRS("gpu", "b200", "gpus", "8", "framework", "megatron",
                          "precision", "fp8-mixed", "fp8_recipe", "mxfp8",
                          "num_layers_at_start_in_bf16", layers,
                          "num_layers_at_end_in_bf16", layers,
                          "fp8_dot_product_attention", eight));
}

static double more_by_8_bits(const char *layers)
{
    memplan_report *r = some_in_16_bits(layers, "false"),
                   *eight = some_in_16_bits(layers, "true");
    const double more = eight->time.step_s - r->time.step_s;
    memplan_report_free(r);
    memplan_report_free(eight);
    return more;
}

/* A layer in 16 bits is out of the context that 8 bits are asked for in
 * (fp8_autocast), attention with it. */
static void test_layers_in_16_bits_attend_in_16(void **state)
{
    (void)state;
    const double all = more_by_8_bits("0");
    assert_true(fabs(all) > 1e-5);
    assert_true(fabs(more_by_8_bits("8") - all / 2) < 1e-2 * fabs(all));
    assert_true(fabs(more_by_8_bits("16")) < 1e-9);
}

/* ---- two micro-batches beside each other ---- */

static memplan_report *overlapped(const char *dispatcher, const char *backend,
                                  const char *overlap)
{
    return estimate("mixtral-8x7b",
                    PAIRS("gpu", "h100-80gb", "gpus", "16", "ep", "8",
                          "framework", "megatron", "grad_accum", "64",
                          "moe_permute_fusion", "true", "moe_dispatcher",
                          dispatcher, "moe_flex_dispatcher_backend", backend,
                          "ep_overlap", overlap));
}

/* Whoever sends tokens, what it takes is beside the other micro-batch, and the
 * layer's input and its gradient stay between steps: Megatron's own dispatcher
 * and both libraries. */
static void test_every_dispatcher_overlaps(void **state)
{
    static const char *const how[][2] = { { "alltoall", "deepep" },
                                          { "flex", "deepep" },
                                          { "flex", "hybridep" } };
    (void)state;
    for (size_t i = 0; i < sizeof how / sizeof how[0]; i++) {
        memplan_report *r = overlapped(how[i][0], how[i][1], "true");
        memplan_report *alone = overlapped(how[i][0], how[i][1], "false");
        const double bare = alone->time.part[TIME_EP];
        const uint64_t held = 2 * 32 * alone->program.tokens * 4096 * 2;
        assert_true(bare > 0);
        assert_true(r->time.part[TIME_EP] < 0.05 * bare);
        assert_int_equal(r->memory.steady, alone->memory.steady + held);
        memplan_report_free(r);
        memplan_report_free(alone);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_experts),
        cmocka_unit_test(test_tokens_once_a_rank),
        cmocka_unit_test(test_what_is_sent_once),
        cmocka_unit_test(test_what_is_dropped_is_not_sent),
        cmocka_unit_test(test_all_tokens_are_as_wide_as_values),
        cmocka_unit_test(test_a_map_reads_no_rows),
        cmocka_unit_test(test_every_dispatcher_overlaps),
        cmocka_unit_test(test_clamps_and_weighed_biases),
        cmocka_unit_test(test_what_is_fused_of_gpt_oss),
        cmocka_unit_test(test_only_grouped_experts_are_fused),
        cmocka_unit_test(test_layers_in_16_bits_attend_in_16),
        cmocka_unit_test(test_gelu_that_is_written_out),
        cmocka_unit_test(test_softmax_backward),
        cmocka_unit_test(test_operands_of_two_types),
        cmocka_unit_test(test_weights_of_integers),
        cmocka_unit_test(test_product_onto_a_copy),
        cmocka_unit_test(test_four_bits_are_unpacked),
        cmocka_unit_test(test_moments_in_8_bits),
        cmocka_unit_test(test_no_optimizer_takes_no_time),
        cmocka_unit_test(test_masks_leave_no_block_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
