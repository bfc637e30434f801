/*
 * State-space layers and linear attention: the count of their work, the kinds
 * of layers of hybrids, what adapters reach, and what the kernels refuse. What
 * they keep is held against recordings (test_hf.c, tests/golden).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fold/fold.h"
#include "memplan/memplan.h"
#include "json/json.h"

enum { ERRORS_MAX = 8, PAIRS_MAX = 8 };

struct answer {
    memplan_status status;
    memplan_error slot[ERRORS_MAX];
    memplan_errors errs;
};

/* An estimate of a catalogue's model, or of a text that begins with a brace. */
static struct answer *ask(const char *model, const char *const *pairs)
{
    static struct answer a;
    memplan_model *m = NULL;
    memplan_setup *setup = NULL;
    memplan_report *report = NULL;
    memset(&a, 0, sizeof a);
    a.errs = (memplan_errors){ a.slot, ERRORS_MAX, 0 };
    const memplan_status read =
        model[0] == '{'
            ? memplan_model_parse(&m, model, strlen(model), "given", NULL, NULL)
            : memplan_model_builtin(&m, model, NULL, NULL);
    assert_int_equal(read, MEMPLAN_OK);
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    for (; *pairs != NULL; pairs += 2)
        assert_int_equal(memplan_setup_set(setup, pairs[0], pairs[1], NULL),
                         MEMPLAN_OK);
    a.status = memplan_estimate(&report, m, setup, NULL, &a.errs);
    memplan_report_free(report);
    memplan_setup_free(setup);
    memplan_model_free(m);
    return &a;
}

#define PAIRS(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* ---- programs ---- */

struct fixture {
    struct arena arena;
    struct spec spec;
    struct run run;
    struct program program;
};

static enum ssm_kernel kernel; /* of the programs below */

static void lower(struct fixture *f, const char *text, uint64_t s)
{
    struct diag d;
    diag_init(&d, NULL);
    arena_init(&f->arena, NULL);
    const struct json *root = json_parse(&f->arena, text, strlen(text), &d);
    assert_non_null(root);
    const struct spec_text in = {
        .root = root, .text = text, .len = strlen(text), .name = "given"
    };
    assert_int_equal(spec_import(&f->spec, &in, &f->arena, &d), MEMPLAN_OK);
    run_bare(&f->run, &f->spec);
    f->run.micro_batch = 1;
    f->run.seq_len = s;
    f->run.ssm_kernel = kernel;
    assert_int_equal(lower_model(&f->program, &f->spec, &f->run, &f->arena, &d),
                     MEMPLAN_OK);
}

/* Of one token, through all layers, forward: causal and full. */
static void layers_flops(const struct fixture *f, double *causal, double *full)
{
    *causal = *full = 0;
    for (uint64_t i = 0; i < f->program.layers; i++) {
        const struct block *b = &f->program.block[f->program.layer_block[i]];
        for (uint32_t k = 0; k < b->op_count; k++) {
            const struct op *op = &f->program.op[b->op_first + k];
            *causal += op->flop_causal / (double)f->program.tokens;
            *full += op->flop_full / (double)f->program.tokens;
        }
    }
}

static void expect(double got, double want)
{
    if (got < want * (1 - 1e-12) || got > want * (1 + 1e-12))
        fail_msg("%.17g, not %.17g", got, want);
}

static const char mamba[] =
    "{\"model_type\": \"mamba\", \"hidden_size\": 64, \"num_hidden_layers\": 1,"
    "\"vocab_size\": 100, \"state_size\": 16, \"time_step_rank\": 4}";
static const char mamba2[] =
    "{\"model_type\": \"mamba2\", \"hidden_size\": 64, "
    "\"num_hidden_layers\": 1, \"vocab_size\": 100, \"num_heads\": 8, "
    "\"head_dim\": 16, \"state_size\": 32, \"n_groups\": 2, "
    "\"chunk_size\": 64}";
static const char delta[] =
    "{\"model_type\": \"qwen3_next\", \"hidden_size\": 64, "
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 4, "
    "\"vocab_size\": 100, \"num_experts\": 0, \"intermediate_size\": 96, "
    "\"layer_types\": [\"linear_attention\"], \"linear_num_value_heads\": 8, "
    "\"linear_num_key_heads\": 4, \"linear_value_head_dim\": 16, "
    "\"linear_key_head_dim\": 32}";

/* Every product twice its weight, the convolution twice its taps, the scan as
 * docs/method.md has it. */
static void test_flops(void **state)
{
    (void)state;
    struct fixture f;
    double causal, full;
    lower(&f, mamba, 512);
    layers_flops(&f, &causal, &full);
    const double products = 64 * 256 + 128 * 36 + 4 * 128 + 128 * 64;
    expect(causal, 2 * products + 2 * 128 * 4 + 7 * 128 * 16);
    expect(full, causal);
    arena_release(&f.arena);

    lower(&f, mamba2, 512);
    layers_flops(&f, &causal, &full);
    const double rest = 2 * (64 * (256 + 128 + 8) + 128 * 64) + 2 * 256 * 4;
    expect(causal, rest + 7 * 128 * 32);
    expect(full, rest + 2 * (64 * (2 * 32 + 128) + 2 * 128 * 32));
    arena_release(&f.arena);

    lower(&f, delta, 512);
    layers_flops(&f, &causal, &full);
    const double own = 2 * (64 * (2 * 128 + 2 * 128 + 16) + 128 * 64)
                       + 2 * 384 * 4 + 2 * 3 * 64 * 96;
    expect(causal, own + 8 * 8 * 32 * 16);
    expect(full, own + 8 * (6 * 64 * 32 + 4 * 64 * 16 + 6 * 32 * 16));
    arena_release(&f.arena);
}

/* Linear in the sequence: the same for each token. */
static void test_linear_time(void **state)
{
    (void)state;
    static const char *const all[] = { mamba, mamba2, delta };
    for (unsigned i = 0; i < 3; i++) {
        struct fixture f;
        double at[2], full;
        for (unsigned k = 0; k < 2; k++) {
            lower(&f, all[i], k == 0 ? 256 : 8192);
            layers_flops(&f, &at[k], &full);
            arena_release(&f.arena);
        }
        expect(at[0], at[1]);
    }
}

/* Attention and state, dense and sparse, each once; and of 16-bit weights a
 * first layer whose input is not yet fp32. */
static void test_kinds(void **state)
{
    (void)state;
    struct fixture f;
    lower(&f,
          "{\"model_type\": \"jamba\", \"hidden_size\": 64, "
          "\"num_hidden_layers\": 16, \"num_attention_heads\": 8, "
          "\"vocab_size\": 100, \"intermediate_size\": 96}",
          64);
    assert_int_equal(f.program.n_blocks, 2 + 3);
    assert_string_equal(f.program.block[f.program.layer_block[4]].name,
                        "layer");
    assert_string_equal(f.program.block[f.program.layer_block[5]].name,
                        "mamba moe layer");
    assert_int_equal(f.program.layer_block[0], f.program.layer_block[14]);
    arena_release(&f.arena);
    lower(&f,
          "{\"model_type\": \"mamba\", \"hidden_size\": 64, "
          "\"num_hidden_layers\": 3, \"vocab_size\": 100}",
          64);
    assert_string_equal(f.program.block[f.program.layer_block[0]].name,
                        "first mamba layer");
    assert_int_equal(f.program.layer_block[1], f.program.layer_block[2]);
    const struct block *b = &f.program.block[f.program.layer_block[2]];
    assert_int_equal(f.program.tensor[b->input].dtype, DT_FP32);
    arena_release(&f.arena);
}

/* ---- what cannot be ---- */

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *model, *pairs[PAIRS_MAX], *message, *hint;
    } rows[] = {
        { "jamba-v0.1",
          { "precision", "bf16-amp", "gpus", "64" },
          "norms give the scan fp32",
          "bf16 or bf16-mixed" },
        { "mamba-370m",
          { "implementation", "hf-liger" },
          "'hf-liger' of a 'mamba' model is not modelled yet",
          "hf" },
        { "mamba-370m",
          { "ssm_kernel", "torch", "compile", "true" },
          "'compile' is not modelled for hf layers",
          "leave it out" },
        { "mamba-370m",
          { "ssm_kernel", "torch", "lora_rank", "8" },
          "PEFT refuses adapters on out_proj",
          "--lora-targets in_proj" },
        { "mamba-370m",
          { "loss", "chunked" },
          "which LitGPT has not",
          "leave it out" },
        { "mamba-370m",
          { "framework", "megatron" },
          "no layers without attention",
          "framework hf" },
        { "qwen3-next-80b-a3b",
          { "framework", "torchtitan", "gpus", "64" },
          "no experts",
          "" },
        { "mamba-370m",
          { "lora_rank", "8" },
          "PEFT refuses adapters on "
          "out_proj",
          "--lora-targets in_proj" },
        { "mamba2-370m",
          { "lora_rank", "8", "lora_targets", "x_proj" },
          "not called by the kernel",
          "--lora-targets in_proj" },
        { "jamba-v0.1",
          { "lora_rank", "8", "base_dtype", "nf4" },
          "'nf4' of a 'jamba' model is not modelled yet",
          "bf16" },
        { "{\"model_type\": \"mamba\", \"hidden_size\": 64, "
          "\"num_hidden_layers\": 1, \"vocab_size\": 9, \"use_bias\": true, "
          "\"conv_kernel\": 5, \"hidden_act\": \"gelu\", "
          "\"state_size\": 512}",
          { "gpus", "1" },
          "2 to 4 taps",
          "is 5 wide" },
        { "{\"model_type\": \"mamba2\", \"hidden_size\": 12, "
          "\"num_hidden_layers\": 1, \"vocab_size\": 9, \"num_heads\": 6, "
          "\"head_dim\": 4, \"n_groups\": 1, \"state_size\": 2}",
          { "gpus", "1" },
          "multiple of 8 channels",
          "has 28" },
        { "{\"model_type\": \"falcon_h1\", \"hidden_size\": 64, "
          "\"num_hidden_layers\": 1, \"vocab_size\": 9, "
          "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
          "\"intermediate_size\": 64, \"mamba_d_ssm\": 64, "
          "\"mamba_n_heads\": 4}",
          { "gpus", "1" },
          "without mamba_rms_norm is not modelled yet",
          "use --ssm-kernel torch" },
        { "nemotron-nano-9b-v2",
          { "lora_rank", "8", "ssm_kernel", "torch" },
          "PEFT refuses adapters on out_proj",
          "--lora-targets in_proj" },
        { "granite-4.0-h-tiny",
          { "lora_rank", "8" },
          "adapters on out_proj are not called by the kernel",
          "--lora-targets in_proj, or --ssm-kernel torch" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct answer *a = ask(rows[i].model, rows[i].pairs);
        const bool ok = a->status != MEMPLAN_OK && a->errs.count > 0
                        && strstr(a->slot[0].message, rows[i].message)
                        && strstr(a->slot[0].hint, rows[i].hint);
        if (!ok)
            fail_msg("%s: %d %s [%s]", rows[i].message, (int)a->status,
                     a->slot[0].message, a->slot[0].hint);
    }
    assert_int_equal(ask(rows[10].model, rows[10].pairs)->errs.count, 4);
    assert_int_equal(
        ask("granite-4.0-h-tiny", PAIRS("implementation", "hf-liger"))
            ->errs.count,
        1);
}

/* Without kernels: what only they refuse, and a model's count of work. */
static void test_loops(void **state)
{
    (void)state;
    assert_int_equal(ask("jamba-v0.1", PAIRS("precision", "bf16-amp", "gpus",
                                             "64", "ssm_kernel", "torch"))
                         ->status,
                     MEMPLAN_OK);
    assert_int_equal(
        ask("{\"model_type\": \"mamba\", \"hidden_size\": 64, "
            "\"num_hidden_layers\": 1, \"vocab_size\": 9, \"use_bias\": true, "
            "\"conv_kernel\": 5, \"state_size\": 512}",
            PAIRS("ssm_kernel", "torch"))
            ->status,
        MEMPLAN_OK);
    assert_int_equal(ask("granite-4.0-h-tiny",
                         PAIRS("ssm_kernel", "torch", "lora_rank", "8"))
                         ->status,
                     MEMPLAN_OK);
    assert_int_equal(ask("mamba-370m", PAIRS("ssm_kernel", "torch", "lora_rank",
                                             "8", "lora_targets", "x_proj"))
                         ->status,
                     MEMPLAN_OK);
    static const char *const all[] = { mamba, mamba2, delta };
    for (unsigned i = 0; i < 3; i++) {
        struct fixture f;
        double causal[2], full[2];
        for (unsigned k = 0; k < 2; k++) {
            kernel = k == 0 ? SSM_KERNEL_FUSED : SSM_KERNEL_TORCH;
            lower(&f, all[i], 512);
            layers_flops(&f, &causal[k], &full[k]);
            arena_release(&f.arena);
        }
        kernel = SSM_KERNEL_FUSED;
        expect(causal[1], causal[0]);
        /* heads of a group each with their own scores, states handed on by a
           square of the chunks; the delta rule's triangles are solved */
        const double more[] = { 0,
                                2 * 64 * 32 * (8 - 2)
                                    + 2.0 * 128 * 32 * 81 / 512,
                                -8.0 * 64 * (32 + 16) };
        expect(full[1], full[0] + more[i]);
    }
}

static void test_runs(void **state)
{
    (void)state;
    assert_int_equal(ask("jamba-v0.1", PAIRS("gpus", "8"))->status, MEMPLAN_OK);
    assert_int_equal(ask("mamba2-2.7b", PAIRS("recompute", "full"))->status,
                     MEMPLAN_OK);
    assert_int_equal(
        ask("mamba-2.8b", PAIRS("lora_rank", "8", "lora_targets", "in_proj"))
            ->status,
        MEMPLAN_OK);
    /* no layer has a state: nothing of kernels, whatever else the file says */
    assert_int_equal(
        ask("{\"model_type\": \"granitemoehybrid\", \"hidden_size\": 64, "
            "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
            "\"vocab_size\": 96, \"num_local_experts\": 0, "
            "\"mamba_n_heads\": 8, \"mamba_d_conv\": 5, "
            "\"layer_types\": [\"attention\", \"attention\"]}",
            PAIRS("lora_rank", "8", "base_dtype", "nf4"))
            ->status,
        MEMPLAN_OK);
    /* adapters over 16-bit weights: so are the norms */
    assert_int_equal(
        ask("jamba-v0.1", PAIRS("gpus", "8", "precision", "bf16-amp",
                                "lora_rank", "8", "base_dtype", "bf16"))
            ->status,
        MEMPLAN_OK);
    assert_int_equal(
        ask("qwen3-next-80b-a3b", PAIRS("framework", "fsdp", "gpus", "64"))
            ->status,
        MEMPLAN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flops), cmocka_unit_test(test_linear_time),
        cmocka_unit_test(test_kinds), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_runs),  cmocka_unit_test(test_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
