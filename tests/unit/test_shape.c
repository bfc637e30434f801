/*
 * What a Megatron script says of its model, held against MODEL: nothing is said
 * of the same one, both values of another.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "memplan/memplan.h"

#include "plan/plan.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define ROTARY " --normalization RMSNorm --position-embedding-type rope"
#define OTHER "the launch file is of another model than MODEL: "

static memplan_report *estimate(const char *name, const char *script)
{
    memplan_model *model = NULL;
    memplan_setup *setup = NULL;
    memplan_report *r = NULL;
    assert_int_equal(memplan_model_builtin(&model, name, NULL, NULL),
                     MEMPLAN_OK);
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    assert_int_equal(memplan_setup_import(setup, "megatron-args", script,
                                          strlen(script), "run.sh", NULL),
                     MEMPLAN_OK);
    assert_int_equal(memplan_estimate(&r, model, setup, NULL, NULL),
                     MEMPLAN_OK);
    memplan_setup_free(setup);
    memplan_model_free(model);
    return r;
}

/* The lines of it, one after the other. */
static void differences(const memplan_report *r, char *out, size_t size)
{
    out[0] = '\0';
    for (size_t i = 0; i < r->run.n_assumptions; i++) {
        char buf[ASSUMPTION_TEXT];
        const char *text = assumption_text(&r->run.assumption[i], buf);
        if (strncmp(text, OTHER, strlen(OTHER)) == 0)
            strncat(out, text + strlen(OTHER), size - strlen(out) - 1);
    }
}

static void test_differences(void **state)
{
    (void)state;
    static const struct {
        const char *model, *script, *text;
    } rows[] = {
        { "llama-7b",
          "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
          "--ffn-hidden-size 11008 --swiglu --vocab-size 32000 "
          "--untie-embeddings-and-output-weights" ROTARY,
          "" },
        { "llama-2-70b",
          "--num-layers 80 --hidden-size 8192 --num-attention-heads 64 "
          "--ffn-hidden-size 28672 --group-query-attention "
          "--num-query-groups 8 --kv-channels 128 --swiglu "
          "--untie-embeddings-and-output-weights" ROTARY,
          "" },
        { "llama-2-70b", /* Megatron-DeepSpeed's words */
          "--num-layers 80 --hidden-size 8192 --num-attention-heads 64 "
          "--ffn-hidden-size 28672 --num-key-value-heads 8 --num-experts 1 "
          "--swiglu --untie-embeddings-and-output-weights" ROTARY,
          "" },
        { "gpt3-175b",
          "--num-layers 96 --hidden-size 12288 --num-attention-heads 96", "" },
        { "mixtral-8x7b",
          "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
          "--ffn-hidden-size 14336 --num-experts 8 --moe-router-topk 2 "
          "--group-query-attention --num-query-groups 8 --swiglu "
          "--untie-embeddings-and-output-weights" ROTARY,
          "" },
        { "deepseek-v2-lite",
          "--num-layers 27 --hidden-size 2048 --num-attention-heads 16 "
          "--ffn-hidden-size 10944 --moe-ffn-hidden-size 1408 "
          "--num-experts 64 --moe-router-topk 6 "
          "--moe-shared-expert-intermediate-size 2816 "
          "--multi-latent-attention --kv-lora-rank 512 --kv-channels 16 "
          "--swiglu --untie-embeddings-and-output-weights" ROTARY,
          "" },
        /* part of a script: what is not there is not meant */
        { "llama-7b", "--num-layers 32", "" },
        { "llama-7b", "--num-layers 24", "num_layers 24, MODEL's 32" },
        { "llama-7b", "model:\n  num_layers: 24\n  hidden_size: 4096\n",
          "num_layers 24, MODEL's 32" },
        /* all of one: what is not there is Megatron's default */
        { "llama-7b",
          "--num-layers 32 --hidden-size 4096 --num-attention-heads 32" ROTARY,
          "ffn_hidden_size 16384, MODEL's 11008; swiglu false, MODEL's true; "
          "untie_embeddings_and_output_weights false, MODEL's true" },
        { "llama-2-70b",
          "--num-layers 80 --hidden-size 8192 --num-attention-heads 64 "
          "--ffn-hidden-size 28672 --swiglu "
          "--untie-embeddings-and-output-weights" ROTARY,
          "num_query_groups 64, MODEL's 8" },
        { "llama-7b",
          "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
          "--ffn-hidden-size 11008 --swiglu "
          "--untie-embeddings-and-output-weights",
          "normalization LayerNorm, MODEL's RMSNorm; position_embedding_type "
          "learned_absolute, MODEL's rope" },
        { "gpt2", "--normalization RMSNorm --use-rotary-position-embeddings",
          "normalization RMSNorm, MODEL's LayerNorm; position_embedding_type "
          "rope, MODEL's learned_absolute" },
        { "llama-7b", "--position-embedding-type alibi",
          "position_embedding_type alibi, MODEL's rope" },
        { "llama-7b", "model:\n  normalization: rmsnorm\n", "" },
        { "llama-7b", "model:\n  normalization: layernorm1p\n",
          "normalization LayerNorm, MODEL's RMSNorm" },
        { "llama-7b", "--num-experts 8 --moe-router-topk 2",
          "num_experts 8, MODEL's 0" },
        { "mixtral-8x7b", "--moe-router-topk 1 --moe-ffn-hidden-size 4096",
          "moe_router_topk 1, MODEL's 2; moe_ffn_hidden_size 4096, MODEL's "
          "14336" },
        { "mixtral-8x7b", "--ffn-hidden-size 4096",
          "moe_ffn_hidden_size 4096, MODEL's 14336" },
        { "gpt2", "--vocab-size 50257 --num-layers 12", "" },
        { "gpt2", "--vocab-size 50256 --num-layers 12", "" },
        { "gpt2", "--vocab-size 32000", "vocab_size 32000, MODEL's 50257" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[800];
        memplan_report *r = estimate(rows[i].model, rows[i].script);
        differences(r, text, sizeof text);
        assert_string_equal(text, rows[i].text);
        memplan_report_free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
