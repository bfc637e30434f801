/*
 * What older packages did otherwise, and trl: the loss's copy of the logits,
 * what k-bit training casts, where gradients are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "estimate.h"
#include "fold/trace.h"
#include "plan/report_data.h"

#define PAIRS(...) ((const char *const[]){ __VA_ARGS__, NULL })

enum { VOCAB = 32000, HIDDEN = 4096, LAYERS = 32, BATCH = 2, LENGTH = 512 };

/* Bytes of the tensors of that name that a forward makes. */
static uint64_t made(const memplan_report *r, const char *name)
{
    struct arena a;
    struct memory_fold f;
    struct stage s;
    struct trace t;
    uint64_t sum = 0;
    arena_init(&a, NULL);
    assert_true(memory_fold_init(&f, &r->program, &r->run, &a));
    stage_init(&s, &f, 0, 0);
    assert_true(trace_stage(&t, &f, &s, TRACE_LATER, &a));
    for (size_t i = 0; i < t.n; i++)
        if (t.event[i].birth && t.event[i].phase == PHASE_LOSS
            && strcmp(t.event[i].name, name) == 0)
            sum += t.event[i].bytes;
    arena_release(&a);
    return sum;
}

/* loss/loss_utils.py: of transformers 4.46 to 4.48 a copy in fp32 without each
 * sequence's last row; since 4.49 the labels are shifted. */
static void the_loss_shifts(void **state)
{
    (void)state;
    const uint64_t rows = BATCH * (LENGTH - 1);
    const uint64_t copy = rows * VOCAB * 4;
    memplan_report *shifts =
        estimate("llama-7b", PAIRS("lora_rank", "16", "micro_batch", "2",
                                   "seq_len", "512", "shift_logits", "true"));
    memplan_report *labels =
        estimate("llama-7b", PAIRS("lora_rank", "16", "micro_batch", "2",
                                   "seq_len", "512"));
    memplan_report *fp32 =
        estimate("llama-7b", PAIRS("lora_rank", "16", "micro_batch", "2",
                                   "seq_len", "512", "fp32_logits", "true"));
    const uint64_t got = made(shifts, "shift_logits");
    assert_true(got >= copy && got < copy + (1 << 20)); /* rounded */
    assert_int_equal(made(labels, "shift_logits"), 0);
    assert_int_equal(made(fp32, "shift_logits"), got);
    assert_true(shifts->memory.peak > labels->memory.peak);
    /* the model's own logits wait in 16 bits for who asked for them */
    assert_true(shifts->memory.peak > fp32->memory.peak);
    memplan_report_free(fp32);
    memplan_report_free(labels);
    memplan_report_free(shifts);
}

static uint64_t held(const char *fp32, const char *keeps)
{
    memplan_report *r = estimate(
        "llama-7b",
        PAIRS("framework", "torchtune", "engine", "ddp", "precision", "bf16",
              "recompute", "full", "micro_batch", "2", "seq_len", "512", "loss",
              "standard", "fp32_logits", fp32, "keep_outputs", keeps));
    const uint64_t bytes = r->memory.steady;
    memplan_report_free(r);
    return bytes;
}

/* torchtune until August 2024: TransformerDecoder.forward ends in
 * self.output(h).float(), and the recipes hold what it gave until the next
 * pass has given its own (lora_finetune_single_device.py @0217d44c2, train). */
static void torchtune_handed_out_fp32(void **state)
{
    (void)state;
    const uint64_t logits = BATCH * LENGTH * VOCAB;
    const uint64_t none = held("true", "false");
    assert_int_equal(held("false", "false"), none);
    const uint64_t low = held("false", "true") - none;
    const uint64_t high = held("true", "true") - none;
    assert_true(low >= 2 * logits && low < 2 * logits + (2 << 20));
    assert_true(high >= 4 * logits && high < 4 * logits + (2 << 20));
}

static uint64_t at_rest(const char *cast, const char *base)
{
    memplan_report *r =
        estimate("llama-7b", PAIRS("lora_rank", "16", "lora_dtype", "fp32",
                                   "base_dtype", base, "micro_batch", "2",
                                   "seq_len", "512", "kbit_cast", cast));
    const uint64_t bytes = r->memory.stage[0].rest.bytes[TERM_FROZEN];
    memplan_report_free(r);
    return bytes;
}

/* trl's peft_module_casting_to_bf16 leaves norms in fp32. */
static void kbit_training_casts(void **state)
{
    (void)state;
    const uint64_t ends = UINT64_C(2) * VOCAB * HIDDEN;
    const uint64_t norms = (UINT64_C(2) * LAYERS + 1) * HIDDEN;
    const uint64_t all = at_rest("all", "nf4");
    assert_int_equal(all - at_rest("norms", "nf4"), 2 * ends);
    assert_int_equal(all - at_rest("none", "nf4"), 2 * (ends + norms));
    memplan_report *r =
        estimate("llama-7b", PAIRS("lora_rank", "16", "base_dtype", "int4",
                                   "lora_dtype", "fp32", "seq_len", "512"));
    assert_int_equal(r->run.kbit_cast, KBIT_CAST_NONE);
    memplan_report_free(r);
}

struct gradients {
    uint64_t between, while_back; /* steps */
};

static struct gradients gradients_of(const char *framework,
                                     const char *precision)
{
    memplan_report *r =
        estimate("llama-7b", PAIRS("framework", framework, "implementation",
                                   "megatron-local", "engine", "megatron",
                                   "zero", "0", "gpus", "8", "tp", "8",
                                   "precision", precision, "seq_len", "512"));
    const struct stage_result *stage = &r->memory.stage[0];
    const struct gradients g = { stage->rest.bytes[TERM_GRAD_BUFFER],
                                 stage->peak.bytes[TERM_GRADS] };
    memplan_report_free(r);
    return g;
}

/* Megatron's gradients have a buffer of their own. Megatron-DeepSpeed's without
 * its engine have one for sums in fp32 alone; those of 16 bits stay as main_grad
 * beside what the next backward makes. */
static void gradients_have_a_buffer(void **state)
{
    (void)state;
    const struct gradients fp32 = gradients_of("megatron", "bf16-mixed");
    const struct gradients fp16 = gradients_of("megatron", "fp16-mixed");
    const struct gradients fork32 =
        gradients_of("megatron-deepspeed", "bf16-mixed");
    const struct gradients fork16 =
        gradients_of("megatron-deepspeed", "fp16-mixed");
    assert_true(fp32.between > 0);
    assert_int_equal(fp16.between, fp32.between / 2);
    assert_int_equal(fork32.between, fp32.between);
    assert_int_equal(fork16.between, fp16.between);
    assert_int_equal(fp16.while_back, 0);
    assert_int_equal(fork32.while_back, 0);
    assert_true(fork16.while_back > 0);
}

static double kept_over(const char *kernel)
{
    double bytes = 0;
    memplan_report *r = estimate(
        "llama-7b", PAIRS("lora_rank", "16", "base_dtype", "int4", "precision",
                          "fp16", "seq_len", "512", "gptq_kernel", kernel));
    assert_int_equal(memplan_report_number(&bytes, r, "memory.activations"),
                     MEMPLAN_OK);
    memplan_report_free(r);
    return bytes;
}

/* AutoGPTQ's product that is PyTorch's own keeps each weight of a layer in 16
 * bits, Triton's none. */
static void products_of_packed_integers(void **state)
{
    (void)state;
    enum { FFN = 11008 };
    const double layer = 4.0 * HIDDEN * HIDDEN + 3.0 * HIDDEN * FFN;
    const double more = kept_over("cuda_old") - kept_over("triton_v2");
    assert_true(more <= 2 * LAYERS * layer && more >= 2 * LAYERS * layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loss_shifts),
        cmocka_unit_test(torchtune_handed_out_fp32),
        cmocka_unit_test(kbit_training_casts),
        cmocka_unit_test(gradients_have_a_buffer),
        cmocka_unit_test(products_of_packed_integers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
