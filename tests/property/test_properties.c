/*
 * What must hold for any model and setup: sums are exact, nothing crashes,
 * less is never more. Random pairs from a fixed seed, so that a failure can be
 * run again; MEMPLAN_PROPERTY_RUNS asks for more of them.
 */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "memplan/memplan.h"

#include "fold/memory.h"
#include "fold/overlap.h"
#include "fold/simulate.h"
#include "fold/stage.h"
#include "fold/trace.h"
#include "plan/report_data.h"

#include "common.h"
#include "trials.h"

enum { FIRST_ADAPTER = 37, FIRST_EIGHT = 87, FIRST_PART = 93, CHOICES = 98 };
struct trial {
    uint64_t index;
    const char *model;
    struct choice c[CHOICES];
};

/* What the catalogue has not: prediction modules, with latent attention and a
 * shared expert. */
static const char predicting[] =
    "{\"model_type\": \"decoder\", \"num_hidden_layers\": 6,"
    "\"hidden_size\": 1024, \"num_attention_heads\": 16,"
    "\"intermediate_size\": 2048, \"vocab_size\": 32000,"
    "\"q_lora_rank\": 384, \"kv_lora_rank\": 128, \"qk_nope_head_dim\": 64,"
    "\"qk_rope_head_dim\": 32, \"v_head_dim\": 64, \"num_experts\": 8,"
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 512,"
    "\"n_shared_experts\": 1, \"first_k_dense_replace\": 2,"
    "\"num_nextn_predict_layers\": 2}";

/* Nor two kinds of layers, some without rotation, some dense, with a parameter
 * that no optimizer sees. */
static const char sparse[] =
    "{\"model_type\": \"ernie4_5_moe\", \"num_hidden_layers\": 6,"
    "\"hidden_size\": 1024, \"num_attention_heads\": 16,"
    "\"intermediate_size\": 2048, \"vocab_size\": 32000,"
    "\"moe_num_experts\": 8, \"moe_k\": 2, \"use_bias\": true}";

/* Every token through every expert, chunks, layers without rotation. */
static const char chunked[] =
    "{\"model_type\": \"llama4_text\", \"num_hidden_layers\": 8,"
    "\"hidden_size\": 1024, \"num_attention_heads\": 16, \"head_dim\": 64,"
    "\"intermediate_size\": 1024, \"intermediate_size_mlp\": 2048,"
    "\"num_local_experts\": 4, \"interleave_moe_layer_step\": 2,"
    "\"vocab_size\": 32000, \"attention_chunk_size\": 256}";

/* Small heads that choose keys, without gradients. */
static const char indexed[] =
    "{\"model_type\": \"deepseek_v32\", \"num_hidden_layers\": 6,"
    "\"hidden_size\": 1024, \"num_attention_heads\": 16,"
    "\"intermediate_size\": 2048, \"vocab_size\": 32000,"
    "\"q_lora_rank\": 384, \"kv_lora_rank\": 128, \"qk_nope_head_dim\": 64,"
    "\"qk_rope_head_dim\": 32, \"v_head_dim\": 64, \"n_routed_experts\": 8,"
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 512,"
    "\"index_n_heads\": 8, \"index_head_dim\": 64, \"index_topk\": 128}";

/* Two towers, of which the first one's result waits for the second's. */
static const char towers[] =
    "{\"model_type\": \"clip\", \"projection_dim\": 256,"
    "\"text_config\": {\"hidden_size\": 512, \"num_hidden_layers\": 4,"
    "\"max_position_embeddings\": 1024},"
    "\"vision_config\": {\"num_hidden_layers\": 6, \"patch_size\": 16}}";

/* Embedders of times and classes in each layer. */
static const char diffused[] =
    "{\"_class_name\": \"DiTTransformer2DModel\", \"num_layers\": 4,"
    "\"num_attention_heads\": 6, \"attention_head_dim\": 64,"
    "\"out_channels\": 8, \"num_embeds_ada_norm\": 100}";

/* An encoder of images before a decoder, whose head is tied to the table
 * between them. */
static const char merged[] =
    "{\"model_type\": \"gemma3\", \"mm_tokens_per_image\": 16,"
    "\"text_config\": {\"model_type\": \"gemma3_text\", \"hidden_size\": 512,"
    "\"num_hidden_layers\": 8, \"vocab_size\": 32000,"
    "\"sliding_window\": 512}, \"vision_config\": {"
    "\"model_type\": \"siglip_vision_model\", \"num_hidden_layers\": 6,"
    "\"vision_use_head\": false}}";

/* The same of which the last two layers run in vain. */
static const char looked[] =
    "{\"model_type\": \"llava\", \"vision_feature_layer\": -3,"
    "\"text_config\": {\"model_type\": \"qwen2\", \"hidden_size\": 512,"
    "\"num_hidden_layers\": 8, \"vocab_size\": 32000,"
    "\"intermediate_size\": 1024, \"num_attention_heads\": 8,"
    "\"num_key_value_heads\": 2, \"tie_word_embeddings\": true},"
    "\"vision_config\": {\"model_type\": \"siglip_vision_model\","
    "\"num_hidden_layers\": 6, \"image_size\": 112}}";

/* An encoder that rotates, with an adapter, before experts. */
static const char tiled[] =
    "{\"model_type\": \"llama4\", \"text_config\": {"
    "\"model_type\": \"llama4_text\", \"hidden_size\": 512,"
    "\"num_hidden_layers\": 4, \"vocab_size\": 32000, \"head_dim\": 64,"
    "\"num_attention_heads\": 8, \"num_key_value_heads\": 2,"
    "\"intermediate_size\": 512, \"intermediate_size_mlp\": 1024,"
    "\"num_local_experts\": 4, \"interleave_moe_layer_step\": 2},"
    "\"vision_config\": {\"model_type\": \"llama4_vision_model\","
    "\"hidden_size\": 384, \"num_attention_heads\": 6, \"image_size\": 112,"
    "\"num_hidden_layers\": 5, \"intermediate_size\": 1536,"
    "\"projector_input_dim\": 256, \"projector_output_dim\": 256,"
    "\"vision_output_dim\": 256}}";

/* Images as large as one likes, of which most layers see windows. */
static const char rowed[] =
    "{\"model_type\": \"qwen2_5_vl\", \"text_config\": {"
    "\"hidden_size\": 512, \"num_hidden_layers\": 6, \"vocab_size\": 32000,"
    "\"intermediate_size\": 1024, \"num_attention_heads\": 8,"
    "\"num_key_value_heads\": 2}, \"vision_config\": {"
    "\"depth\": 6, \"hidden_size\": 384, \"num_heads\": 6,"
    "\"intermediate_size\": 1024, \"out_hidden_size\": 512,"
    "\"fullatt_block_indexes\": [2, 5]}}";

/* Mergers of its layers, the last one among them, for as many of the text. */
static const char stacked[] =
    "{\"model_type\": \"qwen3_vl\", \"text_config\": {"
    "\"hidden_size\": 512, \"num_hidden_layers\": 6, \"vocab_size\": 32000,"
    "\"intermediate_size\": 1024, \"num_attention_heads\": 8,"
    "\"num_key_value_heads\": 2, \"head_dim\": 64}, \"vision_config\": {"
    "\"depth\": 7, \"hidden_size\": 384, \"num_heads\": 6,"
    "\"intermediate_size\": 1024, \"out_hidden_size\": 512,"
    "\"deepstack_visual_indexes\": [0, 3, 6]}}";

static bool is_whole(const char *model)
{
    return model == merged || model == looked || model == tiled
           || model == rowed || model == stacked;
}

/* Attention in every fourth layer, delta nets in the others. */
static const char mixed[] =
    "{\"model_type\": \"qwen3_5_text\", \"hidden_size\": 512,"
    "\"num_hidden_layers\": 8, \"vocab_size\": 32000,"
    "\"intermediate_size\": 1024, \"num_attention_heads\": 8,"
    "\"num_key_value_heads\": 2, \"head_dim\": 64,"
    "\"linear_num_key_heads\": 4, \"linear_num_value_heads\": 8,"
    "\"linear_key_head_dim\": 64, \"linear_value_head_dim\": 64}";

/* States beside attention: in turn, with experts and without; side by side, with
 * the kernels' norm and without; layers of one part each; short convolutions. */
static const char *const hybrids[] = {
    "{\"model_type\": \"granitemoehybrid\", \"hidden_size\": 512,"
    "\"num_hidden_layers\": 8, \"vocab_size\": 32000,"
    "\"intermediate_size\": 256, \"shared_intermediate_size\": 512,"
    "\"num_attention_heads\": 8, \"num_key_value_heads\": 2,"
    "\"mamba_n_heads\": 16, \"num_local_experts\": 8,"
    "\"layer_types\": [\"mamba\", \"mamba\", \"attention\", \"mamba\","
    "\"mamba\", \"mamba\", \"attention\", \"mamba\"]}",
    "{\"model_type\": \"bamba\", \"hidden_size\": 512,"
    "\"num_hidden_layers\": 8, \"vocab_size\": 32000,"
    "\"intermediate_size\": 1024, \"num_attention_heads\": 8,"
    "\"num_key_value_heads\": 2, \"mamba_n_heads\": 16,"
    "\"attn_layer_indices\": [2, 5]}",
    "{\"model_type\": \"falcon_h1\", \"hidden_size\": 512,"
    "\"num_hidden_layers\": 8, \"vocab_size\": 32000,"
    "\"intermediate_size\": 1024, \"num_attention_heads\": 8,"
    "\"num_key_value_heads\": 2, \"mamba_n_heads\": 16,"
    "\"mamba_rms_norm\": true}",
    "{\"model_type\": \"falcon_h1\", \"hidden_size\": 512,"
    "\"num_hidden_layers\": 8, \"vocab_size\": 32000,"
    "\"intermediate_size\": 1024, \"num_attention_heads\": 8,"
    "\"num_key_value_heads\": 2, \"mamba_n_heads\": 16}",
    "{\"model_type\": \"nemotron_h\", \"hidden_size\": 512,"
    "\"vocab_size\": 32000, \"intermediate_size\": 1024,"
    "\"num_attention_heads\": 8, \"num_key_value_heads\": 2,"
    "\"head_dim\": 64, \"mamba_num_heads\": 16, \"n_routed_experts\": 8,"
    "\"moe_intermediate_size\": 256,"
    "\"moe_shared_expert_intermediate_size\": 512,"
    "\"hybrid_override_pattern\": \"M-MEM*-MEM*-\"}",
    "{\"model_type\": \"lfm2\", \"hidden_size\": 512,"
    "\"num_hidden_layers\": 8, \"vocab_size\": 32000,"
    "\"intermediate_size\": 1024, \"num_attention_heads\": 8,"
    "\"num_key_value_heads\": 2, \"full_attn_idxs\": [2, 5]}",
    "{\"model_type\": \"lfm2_moe\", \"hidden_size\": 512,"
    "\"num_hidden_layers\": 6, \"vocab_size\": 32000,"
    "\"intermediate_size\": 1024, \"moe_intermediate_size\": 256,"
    "\"num_experts\": 8, \"num_attention_heads\": 8,"
    "\"num_key_value_heads\": 2, \"layer_types\": [\"conv\", \"conv\","
    "\"full_attention\", \"conv\", \"full_attention\", \"conv\"]}",
};
enum { HYBRIDS = sizeof hybrids / sizeof hybrids[0] };

/* Windows over an image, smaller ones at its edges. */
static const char windowed[] =
    "{\"model_type\": \"qwen2_5_vl_vision\", \"depth\": 6,"
    "\"hidden_size\": 256, \"num_heads\": 4, \"intermediate_size\": 512,"
    "\"out_hidden_size\": 384, \"fullatt_block_indexes\": [2, 5]}";

/* Mergers whose results are the loss's. */
static const char towered[] =
    "{\"model_type\": \"qwen3_vl_vision\", \"depth\": 8,"
    "\"hidden_size\": 256, \"num_heads\": 4, \"intermediate_size\": 512,"
    "\"out_hidden_size\": 384, \"deepstack_visual_indexes\": [1, 4, 7]}";

/* A learned query over all patches. */
static const char pooled[] =
    "{\"model_type\": \"siglip_vision_model\", \"num_hidden_layers\": 6,"
    "\"hidden_size\": 384, \"num_attention_heads\": 6,"
    "\"intermediate_size\": 1024}";

/* Refused elsewhere than by transformers, and with flash attention. */
static bool is_only_hf(const char *model)
{
    return strcmp(model, "grok-1") == 0 || strcmp(model, "dit-s-2") == 0
           || strcmp(model, "whisper-base") == 0 || model == diffused
           || model == chunked || model == indexed || model == tiled;
}

/* Experts one after another. */
static const char in_turn[] =
    "{\"model_type\": \"dbrx\", \"d_model\": 1024, \"n_heads\": 16,"
    "\"n_layers\": 8, \"max_seq_len\": 2048, \"vocab_size\": 32000,"
    "\"attn_config\": {\"kv_n_heads\": 4, \"clip_qkv\": 8},"
    "\"ffn_config\": {\"ffn_hidden_size\": 1792, \"moe_num_experts\": 6,"
    "\"moe_top_k\": 2}}";

/* Nor a list of layers. */
static const char listed[] =
    "{\"model_type\": \"convnet\", \"input\": [3, 64, 64],"
    "\"num_classes\": 100, \"layers\": ["
    "{\"type\": \"conv2d\", \"out\": 64, \"kernel\": 3, \"padding\": 1},"
    "{\"type\": \"relu\", \"name\": \"stem\"},"
    "{\"type\": \"conv2d\", \"out\": 64, \"kernel\": 1},"
    "{\"type\": \"batchnorm2d\"}, {\"type\": \"add\", \"from\": \"stem\"},"
    "{\"type\": \"relu\", \"inplace\": true},"
    "{\"type\": \"maxpool2d\", \"kernel\": 2}, {\"type\": \"dropout\"},"
    "{\"type\": \"conv2d\", \"out\": 128, \"kernel\": 3, \"groups\": 4},"
    "{\"type\": \"avgpool2d\", \"output\": 4}, {\"type\": \"flatten\"},"
    "{\"type\": \"linear\", \"out\": 512}, {\"type\": \"relu\"},"
    "{\"type\": \"linear\", \"out\": 100}]}";

/* Three quarters of the wholes; not PICK, as below. */
static const char *frozen_of(const struct trial *t, uint64_t seed)
{
    static const char *const parts[] = {
        NULL,
        "vision",
        "text",
        "projector",
        "vision,projector",
        "vision,text",
        "text,projector",
        "vision",
        NULL,
    };
    if (t->model != towers && !is_whole(t->model))
        return NULL;
    return parts[seed / 2 % (sizeof parts / sizeof parts[0])];
}

/* Of wholes; Llama 4's all-linear is refused. */
static const char *targets_of(const struct trial *t, uint64_t seed)
{
    if (t->model == tiled)
        return seed % 2 == 0 ? "q,v" : "q,k,v,o,gate,up,down";
    return seed % 3 == 0 ? "q,v" : seed % 3 == 1 ? "all-linear" : "q,up,o";
}

static const char *full_of(const struct trial *t, uint64_t seed)
{
    const char *frozen = frozen_of(t, seed);
    if (!is_whole(t->model) && t->model != towers)
        return seed % 5 == 1 ? "head" : seed % 5 == 2 ? "embed" : "embed,head";
    if (frozen != NULL && strstr(frozen, "projector") != NULL)
        return strstr(frozen, "text") != NULL ? "norm" : "head";
    return frozen == NULL || strstr(frozen, "text") == NULL ? "projector,head"
                                                            : "projector";
}

/* None where nothing trains what they go through; not PICK, as below. */
static const char *images_of(const struct trial *t, uint64_t seed)
{
    static const char *const numbers[] = { NULL, "2", "3", "1", "2" };
    const char *frozen = frozen_of(t, seed);
    if (!is_whole(t->model))
        return NULL;
    if (frozen != NULL && strcmp(frozen, "vision,projector") == 0
        && seed / 18 % 2 == 0)
        return "0";
    return numbers[seed / 2 % (sizeof numbers / sizeof numbers[0])];
}

static bool is_chosen(const struct trial *t, const char *key, const char *value)
{
    for (unsigned i = 0; i < FIRST_EIGHT; i++) {
        const struct choice *c = &t->c[i];
        if (strcmp(c->key, key) == 0 && c->value != NULL
            && strcmp(c->value, value) == 0)
            return true;
    }
    return false;
}

static const char **value_of(struct trial *t, const char *key)
{
    for (size_t i = 0; i < CHOICES && t->c[i].key != NULL; i++)
        if (strcmp(t->c[i].key, key) == 0)
            return &t->c[i].value;
    return NULL;
}

static uint64_t number_of(struct trial *t, const char *key)
{
    const char **value = value_of(t, key);
    return value == NULL || *value == NULL ? 1 : strtoul(*value, NULL, 10);
}

static bool is_encoder_decoder(const char *model)
{
    return strcmp(model, "t5-base") == 0 || strcmp(model, "bart-large") == 0
           || strcmp(model, "flan-t5-large") == 0
           || strcmp(model, "megatron-t5-220m") == 0
           || strcmp(model, "whisper-base") == 0;
}

/* Most of what would be refused by two choices that do not go together is made
 * to, so that other choices are tried too. */
static void mend(struct trial *t)
{
    const uint64_t gpus = number_of(t, "gpus");
    if (gpus % (number_of(t, "tp") * number_of(t, "pp") * number_of(t, "cp"))
        != 0)
        *value_of(t, "gpus") = "64";
    if (gpus > 1 && is_chosen(t, "framework", "hf"))
        *value_of(t, "optimizer_in_backward") = "false";
    if (number_of(t, "cp") > 1 && is_chosen(t, "framework", "megatron")) {
        *value_of(t, "precision") = "bf16-mixed";
        *value_of(t, "attention") = "flash";
    }
    if (is_chosen(t, "precision", "fp32") && is_chosen(t, "attention", "flash"))
        *value_of(t, "attention") = "eager";
    if (is_chosen(t, "loss", "chunked") || is_chosen(t, "loss", "xentropy"))
        *value_of(t, "fp32_logits") = NULL;
    const bool stacks = is_whole(t->model) || is_encoder_decoder(t->model);
    if (number_of(t, "recompute_every") > 1 || stacks || t->model == towered)
        *value_of(t, "recompute_granularity") = NULL;
    if (stacks)
        *value_of(t, "cp") = NULL;
}

/* What depends on other choices. */
static void more_of(struct trial *t, uint64_t seed)
{
    const bool hf = is_chosen(t, "implementation", "hf");
    const bool old = hf || is_chosen(t, "framework", "megatron");
    struct choice *const c = &t->c[FIRST_EIGHT - 3];
    if (is_chosen(t, "keep_outputs", "true"))
        c[0].value = PICK(&seed, "true", "false");
    if (old && !is_chosen(t, "attention", "sdpa"))
        c[1].value = PICK(&seed, "true", "false");
    if (hf)
        c[2].value = PICK(&seed, "model", "none", "padding");
    if (is_chosen(t, "framework", "megatron")
        && strncmp(t->model, "llama", 5) == 0)
        t->c[FIRST_EIGHT - 6].value = PICK(&seed, "true", "false");
}

/* Tensor parallelism of Hugging Face's layers, of those that have a plan: by
 * itself, and inside FSDP 2. */
static void in_parts(struct trial *t, uint64_t seed)
{
    static const char *const models[] = { "llama-3-8b", "qwen2.5-0.5b",
                                          "gemma-2-9b", "smollm3-3b",
                                          "phi-2",      "gemma-3-1b" };
    const bool fsdp = is_chosen(t, "framework", "fsdp");
    if (seed % 9 != 4 || value_of(t, "lora_rank") != NULL
        || (!fsdp && !is_chosen(t, "framework", "hf"))
        || is_chosen(t, "schedule", "naive"))
        return;
    t->model = models[seed / 9 % 6];
    for (size_t i = 0; i < CHOICES && t->c[i].key != NULL; i++)
        if (strcmp(t->c[i].key, "tp") == 0)
            t->c[i].value = "2";
        else if (strcmp(t->c[i].key, "loss") == 0)
            t->c[i].value = "standard";
    *value_of(t, "gpus") = fsdp ? "8" : "2";
    *value_of(t, "cp") = *value_of(t, "freeze") = NULL;
    if (fsdp)
        *value_of(t, "engine") = "fsdp2";
}

/* Sequences of Hugging Face's layers, cut as Accelerate does it. */
static void in_ring(struct trial *t, uint64_t seed)
{
    static const char *const models[] = { "llama-3-8b", "qwen2.5-0.5b", "phi-2",
                                          "mixtral-8x7b" };
    if (seed % 9 != 7 || value_of(t, "lora_rank") != NULL
        || !is_chosen(t, "framework", "fsdp"))
        return;
    t->model = models[seed / 9 % 4];
    *value_of(t, "gpus") = "8";
    *value_of(t, "cp") = seed / 36 % 2 == 0 ? "2" : "4";
    *value_of(t, "cp_comm") = seed / 72 % 2 == 0 ? "all_gather" : "p2p";
    *value_of(t, "attention") = "sdpa";
    *value_of(t, "precision") = "bf16-mixed";
    *value_of(t, "freeze") = NULL;
    *value_of(t, "engine") = "fsdp2";
}

/* Hooks on FSDP 2's shards that update them, some of copies of shards. */
static void in_backward(struct trial *t, uint64_t seed)
{
    const bool titan = is_chosen(t, "framework", "torchtitan")
                       || is_chosen(t, "framework", "torchtune");
    const uint64_t gpus = number_of(t, "gpus") / number_of(t, "tp");
    if (seed % 5 > 1 || value_of(t, "lora_rank") != NULL
        || (!titan && !is_chosen(t, "framework", "fsdp")))
        return;
    if (!titan)
        *value_of(t, "engine") = "fsdp2";
    *value_of(t, "optimizer_in_backward") = "true";
    *value_of(t, "grad_accum") = "1";
    *value_of(t, "zero_grad_set_to_none") = "true";
    for (size_t i = 0; i < CHOICES && t->c[i].key != NULL; i++)
        if (seed % 3 == 0 && gpus > 4
            && strcmp(t->c[i].key, "wgrad_deferral_limit") == 0)
            t->c[i] = (struct choice){ "shard_degree", "4" };
}

/* Both are drawn, whichever it is. */
static const char *either(bool first, const char *a, const char *b)
{
    return first ? a : b;
}

/* The head's weight gradients wait for the pipeline's end, where that goes. */
static void deferred(struct trial *t, uint64_t seed)
{
    const bool order = is_chosen(t, "schedule", "1f1b")
                       || is_chosen(t, "schedule", "interleaved");
    if (seed % 3 == 0 || !order || number_of(t, "pp") == 1
        || !is_chosen(t, "implementation", "megatron")
        || is_chosen(t, "zero", "3") || is_encoder_decoder(t->model)
        || strstr(t->model, "bert") != NULL || t->model == predicting)
        return;
    *value_of(t, "defer_embedding_wgrad_compute") = "true";
    *value_of(t, "wgrad_deferral_limit") = seed % 3 == 1 ? NULL : "2";
    *value_of(t, "grad_accum_fusion") = "true";
}

/* Products in 8 bits, of a third of those that Transformer Engine runs; not
 * PICK, as below. Scales from history cannot be had again in backward. */
static void in_eight_bits(struct trial *t, uint64_t seed)
{
    static const char *const gpus[] = { "h100-80gb", "b200", "h800-80gb" };
    static const char *const recipes[] = {
        NULL, "tensorwise", "mxfp8", "deepseek", "blockwise", "deepseek"
    };
    struct choice *c = &t->c[FIRST_EIGHT];
    const bool te = strcmp(t->c[1].value, "megatron") == 0;
    const bool shards = strcmp(t->c[3].value, "3") == 0;
    const bool gated =
        strstr(t->model, "gpt") == NULL && strstr(t->model, "bert") == NULL;
    if (te && seed % 5 == 2 && strcmp(t->c[4].value, "1") != 0)
        c[5] = (struct choice){ "tp_comm_overlap", "true" };
    if (seed % 3 != 1 || !te)
        return;
    c[0] = (struct choice){ "gpu", gpus[seed / 3 % 3] };
    c[1] = (struct choice){ "precision", "fp8-mixed" };
    c[2] = (struct choice){ "fp8_recipe", recipes[seed / 9 % 6] };
    c[3] = (struct choice){ "fp8_params",
                            !shards && seed / 54 % 3 == 0 ? "true" : NULL };
    c[4] = (struct choice){ "activation_func_fp8_input_store",
                            gated && seed / 7 % 4 == 0 ? "true" : NULL };
    const bool ends = c[2].value != NULL && seed / 11 % 3 == 0;
    c[6] = (struct choice){ "num_layers_at_start_in_bf16", ends ? "1" : NULL };
    c[7] = (struct choice){ "num_layers_at_end_in_bf16",
                            ends && seed % 2 == 0 ? "2" : NULL };
    if (strcmp(c[0].value, "b200") != 0 || seed % 4 != 0)
        return;
    c[1].value = "fp4-mixed"; /* of one recipe */
    for (unsigned i = 2; i <= 5; i++)
        c[i].value = NULL;
}

static void split_backwards(struct trial *t, bool loops, uint64_t seed)
{
    *value_of(t, "schedule") = loops          ? "zb-interleaved"
                               : seed % 5 < 2 ? "dualpipe-v"
                                              : "zb-v";
    *value_of(t, "grad_accum") = seed / 12 % 2 == 0 ? "8" : "20";
    if (!is_chosen(t, "recompute", "full")) /* PyTorch fails under a policy */
        *value_of(t, "recompute") = "none";
    *value_of(t, "recompute_reentrant") = NULL;
    *value_of(t, "recompute_granularity") = NULL;
    *value_of(t, "compile") = "false";
    *value_of(t, "grad_sync") = "last";
}

/* Stages of torchtitan, which the trial itself gives to Megatron alone. */
static void in_stages(struct trial *t, uint64_t seed)
{
    const bool two = seed / 2 % 3 == 0;
    const bool cuts = strcmp(t->c[3].value, "3") == 0;
    if (strcmp(t->c[1].value, "torchtitan") == 0 && seed % 5 == 1
        && is_chosen(t, "compile", "true")
        && (is_chosen(t, "tp", "2") || is_chosen(t, "tp", "4")))
        t->c[FIRST_EIGHT + 1] = (struct choice){ "async_tp", "true" };
    if (strcmp(t->c[1].value, "torchtitan") != 0 || seed % 2 != 0)
        return;
    *value_of(t, "pp") = seed / 6 % 2 == 0 ? "2" : "4";
    *value_of(t, "vpp") = !two ? "1" : seed % 5 < 2 ? "3" : "2";
    *value_of(t, "schedule") = two             ? "interleaved"
                               : seed % 5 == 0 ? "gpipe"
                                               : "1f1b";
    *value_of(t, "grad_accum") = seed / 12 % 2 == 0 ? "4" : "8";
    *value_of(t, "grad_sync") = "last";
    t->c[FIRST_EIGHT] =
        (struct choice){ "reshard_after_forward",
                         cuts && seed % 3 == 0 ? "true" : NULL };
    if (seed / 24 % 3 == 0) {
        split_backwards(t, two, seed);
        return;
    }
    *value_of(t, "return_outputs") = seed / 2 % 4 == 1 ? "true" : NULL;
    *value_of(t, "keep_reduce_scatter") = seed / 2 % 5 == 1 ? "true" : NULL;
}

static bool has_rank(const struct trial *t)
{
    for (size_t i = FIRST_ADAPTER; i < FIRST_EIGHT; i++)
        if (strcmp(t->c[i].key, "lora_rank") == 0)
            return true;
    return false;
}

/* Adapters in some layers, of other ranks, or another method than LoRA; the last
 * layers alone. Not PICK, as below. */
static void beside_lora(struct trial *t, uint64_t seed)
{
    static const char *const layers[] = { "1-3", "0,2", "0", "5-23", "7" };
    static const char *const targets[] = { "q,v,down", "q,k,v,o,gate,up,down",
                                           "q,up" };
    static const char *const methods[] = { "ia3", "prompt-tuning", "p-tuning",
                                           "prefix-tuning" };
    static const char *const plain[] = { "llama-7b", "gpt2-xl", "gemma-2-9b",
                                         "opt-1.3b", "qwen2.5-0.5b" };
    static const char *const ends[] = { NULL, "embed,norm,head", "norm", "head",
                                        "embed,head" };
    struct choice *c = &t->c[FIRST_PART];
    if (seed % 11 != 2 || seed % 9 == 4 || strcmp(t->c[1].value, "hf") != 0
        || is_whole(t->model))
        return;
    seed /= 11;
    if (has_rank(t)) {
        c[0] = (struct choice){ "lora_targets", targets[seed % 3] };
        c[1] = (struct choice){ "layers_to_transform", layers[seed % 5] };
        c[2] = (struct choice){ "rank_pattern",
                                seed % 2 == 0 ? "q=4,down=128" : NULL };
    } else if (seed % 2 == 0) {
        c[0] = (struct choice){ "freeze_trainable_layers", seed % 3 == 0 ? "2"
                                                           : seed % 3 == 1
                                                               ? "0"
                                                               : "11" };
        c[1] = (struct choice){ "freeze", ends[seed / 2 % 5] };
    } else {
        if (strcmp(t->c[0].value, "fsdp") == 0)
            return;
        t->model = plain[seed / 2 % 5];
        if (strcmp(t->c[0].value, "deepspeed") == 0)
            c[2] = (struct choice){ "zero", "2" };
        c[0] = (struct choice){ "peft_type", methods[seed / 2 % 4] };
        c[1] = (struct choice){ seed / 2 % 4 > 0 ? "num_virtual_tokens"
                                                 : "lora_targets",
                                seed / 2 % 4 > 0 ? "20" : "q,v,down" };
    }
}

/* Adapters in Megatron's layers. Not PICK, as above. */
static void beside_megatron(struct trial *t, uint64_t seed)
{
    static const char *const targets[] = { "all-linear", "q,k,v", "q,k,v,o",
                                           "gate,up,down", "down" };
    struct choice *c = &t->c[FIRST_PART + 2];
    if (seed % 4 != 1)
        return;
    seed /= 4;
    c[0] = (struct choice){ "lora_rank", seed % 2 == 0 ? "8" : "64" };
    c[1] = (struct choice){ "lora_targets", targets[seed % 5] };
    c[2] = (struct choice){ "lora_dropout", seed / 2 % 3 == 0 ? "0.1" : NULL };
}

static struct trial trial_of(uint64_t seed)
{
    uint64_t s = seed;
    struct trial t = {
        .index = seed,
        .model = PICK(&s, "llama-7b", "llama-3-8b", "gpt2-xl", "gpt3-13b",
                      "mistral-7b-v0.1", "gemma-2-9b", "pythia-1.4b",
                      "opt-1.3b", "falcon-7b", "mixtral-8x7b", "qwen2.5-0.5b",
                      "bloom-1b7", "bert-large", "megatron-t5-220m", "t5-base",
                      "bart-large", "resnet-50", "vit-large-patch16-224",
                      "deepseek-v2-lite", "qwen1.5-moe-a2.7b", "gpt-oss-20b",
                      "phi-2", "smollm3-3b", "gemma-3-1b", "minicpm3-4b",
                      "grok-1", "phi-3-small-8k", "whisper-base", "dit-s-2",
                      diffused, predicting, sparse, chunked, indexed, towers)
    };
    static const char *const wholes[] = { merged, looked, tiled };
    if (t.model == towers && seed % 4 != 1) /* which trials follow stays */
        t.model = wholes[seed % 3];
    if (seed % 29 == 5)
        t.model = wholes[seed / 29 % 3];
    if (seed % 29 == 9)
        t.model = rowed;
    static const char *const remote[] = { "chatglm3-6b", "internlm-7b",
                                          "minicpm-2b", "internlm2-20b" };
    if (seed % 29 == 13)
        t.model = remote[seed / 29 % 4];
    if (seed % 29 == 21 || seed % 29 == 25)
        t.model = stacked;
    if (seed % 29 == 17)
        t.model = towered;
    if (seed % 29 == 2) /* its head is not tied to the words of both stacks */
        t.model = "flan-t5-large";
    if (seed % 23 == 7) /* not PICK, as below */
        t.model = listed;
    if (seed % 23 == 11)
        t.model = "resnet-50-cifar";
    if (seed % 23 == 13)
        t.model = windowed;
    if (seed % 23 == 3)
        t.model = "phi-3.5-moe";
    if (seed % 23 == 17)
        t.model = in_turn;
    if (seed % 23 == 19)
        t.model = pooled;
    const char *fw = PICK(&s, "hf", "deepspeed", "fsdp", "megatron", "megatron",
                          "megatron-deepspeed", "torchtitan", "torchtune");
    if (is_only_hf(t.model) || t.model == sparse || t.model == towers
        || is_whole(t.model) || t.model == windowed || t.model == pooled
        || t.model == towered || strcmp(t.model, "minicpm3-4b") == 0
        || strcmp(t.model, "gemma-3-1b") == 0
        || strcmp(t.model, "phi-3-small-8k") == 0)
        fw = PICK(&s, "hf", "deepspeed", "fsdp");
    const bool tune = strcmp(fw, "torchtune") == 0;
    const bool titan = tune || strcmp(fw, "torchtitan") == 0;
    if (titan)
        t.model = PICK(&s, "llama-7b", "llama-3-8b", "qwen3-8b");
    const bool fork = strcmp(fw, "megatron-deepspeed") == 0;
    const bool megatron = fork || strcmp(fw, "megatron") == 0;
    if (megatron && next(&s) % 4 != 0) /* what it has; the others: refused */
        t.model = PICK(&s, "llama-7b", "gpt2-xl", "gpt3-13b", "mixtral-8x7b",
                       "qwen2.5-0.5b", "bert-large", "megatron-t5-220m",
                       "deepseek-v2-lite", "qwen1.5-moe-a2.7b", predicting);
    const bool state = !megatron && !titan && next(&s) % 8 == 0;
    if (state)
        t.model = PICK(&s, "mamba-370m", "mamba2-780m", "jamba-v0.1",
                       "qwen3-next-80b-a3b");
    if (state && seed % 5 == 2) /* not PICK, as above */
        t.model = mixed;
    if (state && seed % 5 > 2)
        t.model = hybrids[seed / 5 % HYBRIDS];
    const bool ddp = strcmp(fw, "hf") == 0;
    const bool fsdp = strcmp(fw, "fsdp") == 0;
    const char *re = titan      ? PICK(&s, "none", "full", "ops")
                     : megatron ? PICK(&s, "none", "full", "selective")
                                : PICK(&s, "none", "full");
    const char *tp = megatron || titan ? PICK(&s, "1", "2", "4") : "1";
    /* adapters, a third of the time: where not, tp is said again */
    const bool lora = !megatron && !titan && next(&s) % 3 == 0;
    const bool parts = t.model == towers || is_whole(t.model);
    const bool modules = megatron && strcmp(re, "selective") == 0;
    const bool full = lora && next(&s) % 4 == 0;
    const char *base = state ? "bf16" : PICK(&s, "bf16", "nf4", "int8", "int4");
    const char *optimizer = ddp && !lora && next(&s) % 3 == 0
                                ? PICK(&s, "galore", "galore8bit", "apollo")
                                : PICK(&s, "adamw", "sgd", "momentum",
                                       "adam8bit", "adafactor", "lion", "muon");
    const bool spread = ddp && s % 6 == 1;
    const char *pp = megatron ? PICK(&s, "1", "2", "4") : "1";
    const char *vpp =
        pp[0] != '1' && next(&s) % 2 == 0 ? PICK(&s, "2", "4") : "1";
    const char *schedule = vpp[0] != '1' ? "interleaved"
                           : pp[0] != '1'
                               ? PICK(&s, "1f1b", "gpipe", "zb-h1", "dualpipe",
                                      "zb-v", "dualpipe-v", "naive")
                               : "1f1b";
    const bool loops = state && s % 2 == 0;
    const bool plain = s % 3 == 0; /* not PICK: which trials follow stays */
    const bool spectral = strcmp(t.model, "whisper-base") == 0
                          || t.model == windowed || t.model == towered
                          || t.model == pooled;
    const bool files = strcmp(re, "full") == 0 && plain && !tune && !titan
                       && !megatron && !fork && !spectral && !spread
                       && seed % 2 == 0;
    const bool routed = t.model == predicting || t.model == sparse
                        || strstr(t.model, "moe") != NULL
                        || strstr(t.model, "gpt-oss") != NULL
                        || strstr(t.model, "mixtral") != NULL;
    const bool dora = lora && !state && !routed && !tune && base[0] != 'i'
                      && strstr(t.model, "deepseek") == NULL && s % 4 == 1;
    /* not PICK either: refused where the stage has no such thing */
    const bool deepspeed = strcmp(fw, "deepspeed") == 0;
    const char *const away = deepspeed  ? (s % 5 == 0   ? "cpu"
                                           : s % 5 == 1 ? "nvme"
                                                        : NULL)
                             : megatron ? (s % 7 == 0 ? "cpu" : NULL)
                                        : NULL;
    const char *const away_weights = s % 4 == 0   ? "none"
                                     : s % 4 == 1 ? "cpu"
                                                  : "nvme";
    /* alone: beside others they are refused */
    const bool alone = deepspeed && away == NULL && s % 11 > 2;
    const bool grouped = alone && s % 5 == 2, sends_less = alone && s % 5 == 3;
    const bool distributes =
        megatron && strcmp(re, "full") == 0 && tp[0] != '1' && seed % 3 == 2;
    const struct choice c[CHOICES] = {
        { "framework", fw },
        { "implementation", fork       ? "megatron-local"
                            : megatron ? PICK(&s, "megatron", "megatron-local")
                            : tune     ? "torchtune"
                            : titan    ? "torchtitan"
                                       : "hf" },
        { "gpus", either(spread, "2", PICK(&s, "1", "8", "16", "64")) },
        { "zero", megatron        ? PICK(&s, "0", "1", "3")
                  : ddp           ? "0"
                  : fsdp || titan ? PICK(&s, "2", "3")
                                  : PICK(&s, "0", "1", "2", "3") },
        { "tp", tp },
        { "pp", spread ? "2" : pp },
        { "vpp", vpp },
        { "schedule", spread ? "naive" : schedule },
        { "deterministic", PICK(&s, "true", "false") },
        { "loss", megatron ? PICK(&s, "standard", "fused") : "standard" },
        { "ce_fusion", PICK(&s, "te", "native") },
        { "fused_softmax", plain ? "false" : "true" },
        { "softmax_fp32", !plain       ? NULL
                          : s % 2 == 0 ? "true"
                                       : "false" },
        { "replay_batches", PICK(&s, "true", "false") },
        { "ssm_kernel", loops ? "torch" : "fused" },
        { "micro_batch", PICK(&s, "1", "2", "4") },
        { "grad_accum", vpp[0] == '1' && schedule[0] != 'd'
                            ? PICK(&s, "1", "4")
                            : PICK(&s, "4", "8", "16", "20") },
        { "seq_len", spectral ? NULL /* a spectrum has its length */
                              : PICK(&s, ddp ? "252" : "256", "512", "1024") },
        { "recompute", re },
        { "sequence_parallel", distributes ? "false" : NULL },
        { "distribute_saved_activations", distributes ? "true" : NULL },
        { "recompute_reentrant", files ? "true"
                                 : strcmp(re, "full") == 0
                                     ? PICK(&s, "true", "false")
                                     : "false" },
        { "compile", titan ? PICK(&s, "true", "false") : "false" },
        { "loss", strcmp(fw, "hf") == 0
                      ? PICK(&s, "standard", "chunked", "xentropy")
                  : titan ? PICK(&s, "standard", "chunked", "xentropy")
                          : "standard" },
        { "mask_per_head", seed % 3 == 1 ? "true" : NULL },
        { "fp32_logits", megatron || tune ? NULL : PICK(&s, "true", "false") },
        { "offload_activations", strcmp(re, "none") == 0 && ddp && seed % 4 == 1
                                     ? "cpu"
                                 : files                   ? "nvme"
                                 : strcmp(re, "full") != 0 ? "none"
                                 : tune         ? PICK(&s, "cpu", "none")
                                 : plain && ddp ? "cpu"
                                                : "none" },
        { "offload_optimizer", away },
        { deepspeed && away != NULL ? "offload_params" : "tp",
          deepspeed && away != NULL ? away_weights : tp },
        { "fsdp_units", PICK(&s, "layers", "ends", "embedding") },
        { "optimizer_in_backward", ddp ? PICK(&s, "true", "false") : "false" },
        { "optimizer", optimizer },
        { "precision", ddp ? PICK(&s, "bf16-amp", "fp32", "bf16")
                       : deepspeed && seed % 7 == 3
                           ? "bf16-amp"
                           : PICK(&s, "bf16-mixed", "fp32", "fp16-mixed") },
        { "attention",
          titan || is_only_hf(t.model)
              ? PICK(&s, is_only_hf(t.model) ? "eager" : "flash", "sdpa")
              : PICK(&s, "flash", "sdpa", "eager") },
        { "reduce_bucket", PICK(&s, "500M", "20M", "200M", "4G", "3M") },
        { "overlap_comm", deepspeed && s % 3 == 1 ? "true" : NULL },
        { "contiguous_gradients", deepspeed && s % 5 == 1 ? "false" : NULL },
        { "round_robin_gradients", deepspeed && s % 7 < 2 ? "true" : NULL },
        { fsdp ? "offload_params" : "tp",
          fsdp ? PICK(&s, "none", "none", "cpu") : tp },
        { lora ? "lora_rank" : "tp", lora ? PICK(&s, "8", "64") : tp },
        { lora ? "base_dtype" : "tp", lora ? base : tp },
        { lora && (state || parts) ? "lora_targets" : "tp",
          lora && state   ? "in_proj"
          : lora && parts ? targets_of(&t, seed)
                          : tp },
        { lora ? "lora_dtype" : "tp", lora ? PICK(&s, "fp32", "bf16") : tp },
        { full ? "lora_full_modules" : "tp", full ? full_of(&t, seed) : tp },
        { lora ? "lora_dropout" : "tp", lora ? PICK(&s, "0", "0.05") : tp },
        { dora ? "lora_variant" : "tp", dora ? "dora" : tp },
        { "recompute_modules",
          modules ? PICK(&s, "core_attn", "layernorm,mlp", "mla_up_proj",
                         "mla_up_proj,layernorm,moe_act", "moe",
                         "core_attn,shared_experts")
                  : NULL },
        { "zero_bucket", PICK(&s, "gradient", "backward") },
        { "zero_overflow", PICK(&s, "freed", "kept") },
        { "grad_sync", PICK(&s, "each", "last") },
        { "zero_rank", PICK(&s, "fullest", "first") },
        { "zero_grad_set_to_none", next(&s) % 3 == 0 ? "false" : "true" },
        { "use_orig_params", fsdp && seed % 3 == 0 ? "false" : NULL },
        { "keep_outputs",
          !megatron && !tune && next(&s) % 3 == 0 ? "true" : NULL },
        { "optimizer_impl",
          strcmp(optimizer, "adamw") == 0
              ? PICK(&s, "fused", "foreach", "foreach-2.0", "loop")
              : PICK(&s, "fused", "loop") },
        { "ep", routed && megatron ? PICK(&s, "1", "2", "4") : NULL },
        { "moe_imbalance", next(&s) % 2 == 0 ? "1.3" : NULL },
        { "moe_expert_capacity_factor", next(&s) % 4 == 0 ? "1.1" : NULL },
        { "freeze", frozen_of(&t, seed) },
        { "images", images_of(&t, seed) },
        { "image", t.model == rowed     ? "3x224x224"
                   : t.model == stacked ? "3x256x256"
                   : t.model == towered ? "3x512x512"
                                        : NULL },
        { "engine", fsdp && frozen_of(&t, seed) != NULL && seed % 2 == 0
                        ? "fsdp2"
                        : NULL },
        { "recompute_every",
          strcmp(re, "full") == 0 ? PICK(&s, "1", "1", "2", "3") : NULL },
        { "hpz_partition_size", !deepspeed || grouped ? NULL
                                : s % 3 == 0          ? "2"
                                : s % 3 == 1          ? "8"
                                                      : NULL },
        { "mics_shard_size", !grouped     ? NULL
                             : s % 2 == 0 ? "2"
                                          : "4" },
        { "offload_ratio", deepspeed && s % 10 == 0 ? "0.4" : NULL },
        { "sub_group_size", s % 2 == 0 ? "20M" : NULL },
        { "norm_kernel", megatron || seed % 5 != 2 ? NULL
                         : seed % 2 == 0           ? "eager"
                                                   : "fused" },
        { "grad_dtype", deepspeed && s % 6 == 5 ? "fp32" : NULL },
        { "zero_quantized_weights", sends_less ? "true" : NULL },
        { "zero_quantized_gradients", sends_less && s % 4 < 3 ? "true" : NULL },
        { "gpus_per_node",
          sends_less && s % 7 < 4 ? (s % 7 < 2 ? "1" : "2") : NULL },
        { "cp", titan || state ? NULL
                : megatron     ? (s % 7 == 1 ? "2" : NULL)
                : s % 11 < 2   ? "2"
                : s % 11 == 2  ? "4"
                               : NULL },
        { "defer_embedding_wgrad_compute", NULL }, /* these three: deferred */
        { "wgrad_deferral_limit", NULL },
        { "grad_accum_fusion", NULL },
        { "cp_comm", s % 2 == 0               ? "a2a"
                     : megatron && s % 4 == 1 ? "all_gather"
                                              : NULL },
        { "recompute_granularity", strcmp(re, "full") != 0 ? NULL
                                   : s % 5 == 0            ? "2"
                                   : s % 5 == 1            ? "3"
                                                           : NULL },
        { "optimizer_rank", s % 3 == 0 ? "8" : NULL },
        { "optimizer_targets", s % 4 == 0   ? "q,v"
                               : s % 4 == 1 ? "all-linear,head"
                                            : NULL },
        { "microbatch_group_size_per_vp_stage",
          megatron && vpp[0] != '1' && seed % 6 == 0
              ? (seed % 12 == 0 ? "6" : "5")
              : NULL },
        { "dropout_mask", NULL },   /* more_of */
        { "return_outputs", NULL }, /* these two: in_stages */
        { "keep_reduce_scatter", NULL },
        { "drop_outputs", NULL }, /* these three: more_of */
        { "softmax_input", NULL },
        { "attention_mask", NULL },
        { "ensure_weight_tying", full && seed % 4 == 3 ? "true" : NULL },
    };
    memcpy(t.c, c, sizeof c);
    more_of(&t, seed);
    if (megatron)
        deferred(&t, seed), in_eight_bits(&t, seed), beside_megatron(&t, seed);
    else
        in_stages(&t, seed);
    in_parts(&t, seed);
    in_ring(&t, seed);
    in_backward(&t, seed);
    beside_lora(&t, seed);
    mend(&t);
    return t;
}

static void describe(const struct trial *t, char *buf, size_t size)
{
    const size_t n = (size_t)snprintf(buf, size, "trial %" PRIu64 ": %s",
                                      t->index, t->model);
    if (n < size)
        choices_describe(t->c, CHOICES, buf + n, size - n);
}

/* NULL when the layout is refused, which is an answer too. */
static memplan_report *estimate_as(const struct trial *t, bool fast)
{
    struct choice c[CHOICES + 1];
    memcpy(c, t->c, sizeof t->c);
    c[CHOICES] = (struct choice){ "fast", fast ? "true" : NULL };
    return choices_estimate(t->model, is_whole(t->model) ? "all" : NULL, c,
                            CHOICES + 1);
}

static memplan_report *estimate(const struct trial *t)
{
    return estimate_as(t, true);
}

/* ---- properties ---- */

static void check_sums(const memplan_report *r, const struct trial *t)
{
    char text[1024];
    for (uint64_t k = 0; k < r->memory.n_stages; k++) {
        const struct stage_result *s = &r->memory.stage[k];
        uint64_t terms = 0, components = 0;
        for (unsigned i = 0; i < TERM_COUNT; i++)
            terms += s->peak.bytes[i];
        for (unsigned i = 0; i < COMP_COUNT; i++)
            components += s->component[i];
        if (terms == s->peak.total && components == s->peak.total
            && s->rest.total <= s->peak.total
            && s->peak.total <= r->memory.peak)
            continue;
        describe(t, text, sizeof text);
        fail_msg("sums differ: %s", text);
    }
}

static void test_sums(void **state)
{
    (void)state;
    uint64_t answered = 0;
    for (uint64_t i = 0; i < runs(); i++) {
        const struct trial t = trial_of(i);
        memplan_report *r = estimate(&t);
        if (r == NULL)
            continue;
        answered++;
        check_sums(r, &t);
        memplan_report_free(r);
    }
    /* about a third of what is drawn: keys that go with few others are many */
    assert_true(answered > runs() * 3 / 10);
}

struct turns_seen {
    const struct stage *st;
    uint64_t most;
};

static bool keep_turn(void *ctx, const struct overlap_step *step)
{
    struct turns_seen *x = ctx;
    struct moment m;
    moment_of(&m, x->st, &step->at, NULL, COMP_COUNT);
    x->most = max_u64(x->most, m.total);
    return true;
}

/* ... of passes that take turns. */
static uint64_t fullest_turn(const struct stage *st)
{
    struct turns_seen x = { st, 0 };
    struct overlap o = { 0 };
    while (overlap_next(st, &o))
        overlap_steps(st, &o, keep_turn, &x);
    return x.most;
}

/* Every moment of a stage, none left out: the fullest is the one reported. */
static uint64_t fullest(const struct stage *st, const struct run *run)
{
    static const enum phase ends[] = { PHASE_REST, PHASE_REDUCE, PHASE_CLIP,
                                       PHASE_STEP };
    uint64_t most = fullest_turn(st);
    struct moment m;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        moment_with(&m, st, ends[i], 0, false, NULL, COMP_COUNT);
        most = max_u64(most, m.total);
    }
    for (unsigned later = 0; later < (run->grad_accum > 1 ? 2u : 1u); later++)
        if (engine_accumulates(run, later != 0)
            && stage_happens(st, 0, true, later != 0)) {
            moment_with(&m, st, PHASE_ACCUMULATE, 0, later != 0, NULL,
                        COMP_COUNT);
            most = max_u64(most, m.total);
        }
    /* two chunks have a second backward in one micro-batch */
    const unsigned passes = run->grad_accum > 1 || st->chunks > 1 ? 2 : 1;
    for (uint32_t i = 0; i < st->n; i++)
        for (unsigned later = 0; later < passes; later++) {
            const bool head = st->head && i == st->n - 1;
            if (stage_happens(st, i, false, later != 0)) {
                moment_with(&m, st, head ? PHASE_LOSS : PHASE_FORWARD, i,
                            later != 0, NULL, COMP_COUNT);
                most = max_u64(most, m.total);
            }
            if (!stage_happens(st, i, true, later != 0) || !stage_turns(st, i))
                continue;
            moment_with(&m, st, PHASE_BACKWARD, i, later != 0, NULL,
                        COMP_COUNT);
            most = max_u64(most, m.total);
            if (st->fill != NULL)
                assert_true(moment_of_bucket(st, PHASE_BACKWARD, i, later != 0)
                            <= moment_of_bucket_most(st, i));
            if (!stage_recomputed(st, i))
                continue;
            moment_with(&m, st, PHASE_RECOMPUTE, i, later != 0, NULL,
                        COMP_COUNT);
            most = max_u64(most, m.total);
        }
    return most;
}

/* Living through the step, event by event, reaches the same peak to the byte,
 * and ends where it began. */
static void check_trace(const struct trial *t, struct memory_fold *f,
                        const struct stage *st, const struct stage_result *k)
{
    struct arena a;
    struct trace trace;
    arena_init(&a, NULL);
    assert_true(trace_stage(&trace, f, st, TRACE_LATER, &a));
    if (trace.peak != k->peak.total || trace.live != k->rest.total) {
        char text[4096];
        describe(t, text, sizeof text);
        const struct trace_event *e = &trace.event[trace.peak_at];
        fail_msg("trace %llu (%s %s %s), closed form %llu (%s %s); rest %llu "
                 "%llu: %s",
                 (unsigned long long)trace.peak, phase_name(e->phase), e->block,
                 e->name, (unsigned long long)k->peak.total,
                 phase_name(k->peak.phase), k->peak.op,
                 (unsigned long long)trace.live,
                 (unsigned long long)k->rest.total, text);
    }
    arena_release(&a);
}

/* Looked at by itself a stage reserves as much as it does beside its kin, of
 * which only what is in flight is counted again. */
static void check_reserve(const struct trial *t, struct stage *st,
                          const struct stage_result *k)
{
    struct peak peak;
    assert_true(moment_at(&st->rest, st, PHASE_COUNT, 0, false));
    st->has_rest = true;
    assert_true(stage_peak(&peak, st, NULL));
    const struct reserve r = pools_reserve(&peak.pools, st, peak.moment.total);
    st->has_rest = false;
    if (r.about == k->reserve.about && r.least == k->reserve.least
        && st->in_flight == k->in_flight && st->stashes == k->waiting)
        return;
    char text[1024];
    describe(t, text, sizeof text);
    fail_msg("stage %llu reserves otherwise: %s", (unsigned long long)st->index,
             text);
}

static uint64_t total_at(const struct stage *st, const struct instant *when)
{
    struct moment m;
    const bool slot = st->splits && when->phase != PHASE_FORWARD;
    assert_true(
        slot ? moment_in_slot(&m, st, when)
             : moment_at(&m, st, when->phase, when->position, when->later));
    return m.total;
}

static void check_rise(const struct trial *t, const struct stage *st,
                       const struct instant *first, uint32_t last)
{
    struct instant at_last = *first;
    at_last.position = last;
    if (total_at(st, first) + (uint64_t)moment_rise(st, first, last)
        == total_at(st, &at_last))
        return;
    char text[1024];
    describe(t, text, sizeof text);
    fail_msg("from position %u to %u, %s: not what rises: %s", first->position,
             last, phase_name(first->phase), text);
}

/* Of a checkpointed layer: what its backward has more than its second forward. */
static void check_rise_back(const struct trial *t, const struct stage *st,
                            struct instant when)
{
    struct instant back = when;
    back.phase = PHASE_BACKWARD;
    when.phase = PHASE_RECOMPUTE;
    if (when.slot == SLOT_WEIGHT
        || total_at(st, &when) + (uint64_t)moment_rise_back(st, &when)
               == total_at(st, &back))
        return;
    char text[1024];
    describe(t, text, sizeof text);
    fail_msg("position %u: not what rises in backward: %s", when.position,
             text);
}

/* Each layer, in each slot. */
static void check_rises_back(const struct trial *t, const struct stage *st)
{
    for (uint32_t i = 0; moment_rises(st) && i < st->n; i++) {
        for (unsigned later = 0; later < 2 && stage_recomputed(st, i);
             later++) {
            struct instant when = { PHASE_RECOMPUTE, i, later != 0,
                                    SLOT_FORWARD };
            if (!stage_happens(st, i, true, when.later))
                continue;
            while (st->splits && moment_next_slot(st, &when))
                check_rise_back(t, st, when);
            when.slot = SLOT_BACKWARD;
            if (!st->splits)
                check_rise_back(t, st, when);
        }
    }
}

/* ... of equal positions one after another, each pair; says whether it could. */
static bool check_rises(const struct trial *t, const struct stage *st)
{
    static const enum phase phases[] = { PHASE_FORWARD, PHASE_BACKWARD,
                                         PHASE_RECOMPUTE };
    bool some = false;
    for (uint32_t i = 0; moment_rises(st) && i + 1 < st->n; i++) {
        const bool re = stage_recomputed(st, i);
        if (!stage_is_layer(st, i) || !stage_is_layer(st, i + 1)
            || stage_block(st, i) != stage_block(st, i + 1)
            || re != stage_recomputed(st, i + 1)
            || stage_chunk(st, i) != stage_chunk(st, i + 1))
            continue;
        for (unsigned k = 0; k < (re ? 6u : 4u); k++) {
            struct instant when = { phases[k / 2], i, k % 2 != 0,
                                    SLOT_FORWARD };
            const bool back = when.phase != PHASE_FORWARD;
            if (!stage_happens(st, i, back, when.later))
                continue;
            some = true;
            if (!back)
                check_rise(t, st, &when, i + 1);
            when.slot = SLOT_BACKWARD;
            if (back && !st->splits)
                check_rise(t, st, &when, i + 1);
            when.slot = SLOT_FORWARD;
            while (back && st->splits && moment_next_slot(st, &when))
                check_rise(t, st, &when, i + 1);
        }
    }
    return some;
}

/* Of each schedule, and of models that are trained in part. */
enum {
    ANSWER_FROZEN = SCHEDULE_COUNT,
    ANSWER_FLAT, /* of one parameter that is frozen in part, or a unit's */
    ANSWER_TOP,
    ANSWER_SOME,
    ANSWER_IA3,
    ANSWER_PROMPT,
    ANSWER_PREFIX,
    ANSWER_AWAY,
    ANSWER_REMADE, /* checkpoints under PyTorch's split backwards */
    ANSWER_LIKE,   /* stages that differ in what is in flight alone */
    ANSWER_RISE,   /* of which it is known where in a row there is more */
    ANSWER_ALIKE,  /* blocks that begin as another one */
    ANSWER_HYBRID, /* of each */
    ANSWERS = ANSWER_HYBRID + HYBRIDS
};

/* In modes by the trial's number. */
static void check_common(const struct trial *t, const memplan_report *r,
                         const struct memory_fold *f, struct arena *a,
                         unsigned *alike)
{
    const unsigned walks[] = { WALK_EARLY, WALK_SPLIT, WALK_CHECKPOINT,
                               WALK_UNPACKS };
    unsigned modes = ((1u << WGRAD_MODES) - 1) | WALK_ARRIVALS;
    for (size_t i = 0; i < sizeof walks / sizeof walks[0]; i++)
        modes |= (t->index >> i & 1) != 0 ? walks[i] : 0;
    const char *what = common_differs(&r->program, &f->scratch,
                                      run_regions(&r->run), modes, a, alike);
    if (what == NULL)
        return;
    char text[1024];
    describe(t, text, sizeof text);
    fail_msg("%s of a block that begins as another one: %s", what, text);
}

/* Each stage's peak is the fullest moment, and its trace's. */
static void check_stages(const struct trial *t, const struct program *p,
                         const struct run *run,
                         const struct memory_result *memory,
                         unsigned answered[ANSWERS])
{
    struct arena a;
    struct memory_fold f;
    arena_init(&a, NULL);
    assert_true(memory_fold_init(&f, p, run, &a));
    uint64_t layer = 0;
    for (uint64_t k = 0; k < memory->n_stages; k++) {
        struct stage st, next;
        stage_init(&st, &f, k, layer);
        layer += run->stage_layers[k];
        if (fullest(&st, run) != memory->stage[k].peak.total) {
            char text[1024];
            describe(t, text, sizeof text);
            fail_msg("a fuller moment was missed: %s", text);
        }
        check_trace(t, &f, &st, &memory->stage[k]);
        check_reserve(t, &st, &memory->stage[k]);
        answered[ANSWER_LIKE] += stage_repeats(&next, &st, &f);
        answered[ANSWER_RISE] += check_rises(t, &st);
        check_rises_back(t, &st);
    }
    arena_release(&a);
}

static void check_no_moment_missed(const struct trial *t,
                                   unsigned answered[ANSWERS])
{
    memplan_report *r = estimate(t);
    if (r == NULL)
        return;
    answered[r->run.schedule]++;
    for (unsigned i = 0; i < HYBRIDS; i++)
        answered[ANSWER_HYBRID + i] += t->model == hybrids[i];
    answered[ANSWER_FROZEN] += r->run.freeze != 0;
    answered[ANSWER_FLAT] += r->run.freeze != 0 && r->run.engine == ENGINE_FSDP;
    answered[ANSWER_TOP] += r->run.given[KEY_FREEZE_TRAINABLE_LAYERS];
    answered[ANSWER_SOME] += r->run.some_layers;
    answered[ANSWER_IA3] += r->run.peft == PEFT_IA3;
    answered[ANSWER_PROMPT] += run_prompts(&r->run);
    answered[ANSWER_PREFIX] += run_prefixes(&r->run);
    answered[ANSWER_REMADE] +=
        r->run.recompute == RECOMP_FULL && schedule_keeps_graph(&r->run);
    answered[ANSWER_AWAY] += run_away(&r->run) == AWAY_TENSORS;
    struct arena a;
    struct memory_fold f;
    arena_init(&a, NULL);
    assert_true(memory_fold_init(&f, &r->program, &r->run, &a));
    check_common(t, r, &f, &a, &answered[ANSWER_ALIKE]);
    arena_release(&a);
    check_stages(t, &r->program, &r->run, &r->memory, answered);
    memplan_report_free(r);
}

/* What few trials have at their fullest: a frozen embedding's unit, that FSDP 1
 * fetches and no backward cuts; a second forward of which less outlives its use
 * than of the first; a chunk's last gradients of weights, when more of those of
 * the other chunk is cut than is in flight beside it; a forward, where the head
 * is all that trains and no layer runs back; a unit that is copied out before its
 * checkpoint comes back from the host; a layer's first norm, after the last use
 * of the input, which its checkpoint holds. */
static const uint64_t rare[] = { 23949, 54974, 9296, 96681, 87416, 306050 };

static void test_no_moment_missed(void **state)
{
    unsigned answered[ANSWERS] = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof rare / sizeof rare[0]; i++) {
        const struct trial t = trial_of(rare[i]);
        check_no_moment_missed(&t, answered);
    }
    for (uint64_t i = 0; i < 10 * runs() / 3; i++) {
        const struct trial t = trial_of(i);
        check_no_moment_missed(&t, answered);
    }
    assert_true(answered[SCHED_1F1B] > runs() / 10);
    assert_true(answered[SCHED_GPIPE] > runs() / 300);
    assert_true(answered[SCHED_INTERLEAVED] > runs() / 300);
    assert_true(answered[SCHED_ZB_H1] > runs() / 600);
    assert_true(answered[SCHED_DUALPIPE] > runs() / 600);
    assert_true(answered[SCHED_ZB_V] > runs() / 1000);
    assert_true(answered[SCHED_DUALPIPE_V] > runs() / 1000);
    assert_true(answered[SCHED_NAIVE] > runs() / 600);
    assert_true(answered[ANSWER_FROZEN] > runs() / 300);
    assert_true(answered[ANSWER_FLAT] >= runs() / 600);
    assert_true(answered[ANSWER_TOP] >= runs() / 600);
    assert_true(answered[ANSWER_SOME] >= runs() / 1000);
    assert_true(answered[ANSWER_REMADE] > runs() / 1000);
    assert_true(answered[ANSWER_IA3] >= runs() / 1000);
    assert_true(answered[ANSWER_PROMPT] >= runs() / 1000);
    assert_true(answered[ANSWER_PREFIX] >= runs() / 2000);
    assert_true(answered[ANSWER_AWAY] >= runs() / 300);
    assert_true(answered[ANSWER_LIKE] >= runs() / 100);
    assert_true(answered[ANSWER_ALIKE] >= runs() / 20);
    for (unsigned i = 0; i < HYBRIDS; i++)
        assert_true(answered[ANSWER_HYBRID + i] >= runs() / 1000);
}

static void check_step(struct trace *t, struct memory_fold *f,
                       const struct stage *st, const struct stage_result *k)
{
    struct arena a;
    arena_init(&a, NULL);
    assert_true(trace_stage(t, f, st, TRACE_FIRST, &a));
    assert_true(t->peak <= k->peak.total);
    assert_int_equal(t->live, k->rest.total);
    arena_release(&a);
}

/* The first step ends where later ones do, and is never fuller. */
static void test_first_step(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < runs() / 10; i++) {
        const struct trial t = trial_of(i);
        memplan_report *r = estimate(&t);
        if (r == NULL)
            continue;
        struct arena a;
        struct memory_fold f;
        struct stage st;
        struct trace trace;
        arena_init(&a, NULL);
        assert_true(memory_fold_init(&f, &r->program, &r->run, &a));
        stage_init(&st, &f, 0, 0);
        check_step(&trace, &f, &st, &r->memory.stage[0]);
        arena_release(&a);
        memplan_report_free(r);
    }
}

/* ---- explanations ---- */

/* A number, or "ceil(a / b)". */
static bool factor_of(const char **text, double *value)
{
    char *end = NULL;
    double of = 1;
    if (strncmp(*text, "ceil(", 5) != 0) {
        *value = strtod(*text, &end);
        const bool number = end != *text;
        *text = end;
        return number;
    }
    *value = strtod(*text + 5, &end);
    while (strncmp(end, " * ", 3) == 0)
        *value *= strtod(end + 3, &end);
    if (strncmp(end, " / ", 3) == 0)
        of = strtod(end + 3, &end);
    *value = ceil(*value / of);
    *text = end + 1;
    return *end == ')';
}

/* "3 * 4 / 2"; false for anything that is not a product. */
static bool product_of(const char *text, double *value)
{
    double x = 0;
    if (!factor_of(&text, value))
        return false;
    while (strncmp(text, " * ", 3) == 0 || strncmp(text, " / ", 3) == 0) {
        const bool times = text[1] == '*';
        text += 3;
        if (!factor_of(&text, &x))
            return false;
        *value = times ? *value * x : *value / x;
    }
    return *text == '\0';
}

/* Decimals have six digits, quotients are rounded up. */
static bool multiplies_out(const struct explain_entry *e)
{
    double value = 0;
    return strcmp(e->unit, "B") != 0 || !product_of(e->numbers, &value)
           || fabs(value - (double)e->bytes) <= 1 + value * 1e-5;
}

/* The numbers of a formula are those of its value. */
static void test_explained(void **state)
{
    (void)state;
    uint64_t products = 0;
    for (uint64_t i = 0; i < runs() / 20; i++) {
        const struct trial t = trial_of(i);
        memplan_report *r = estimate(&t);
        if (r == NULL)
            continue;
        struct arena a;
        arena_init(&a, NULL);
        struct explanation x = { .arena = &a };
        assert_true(report_explain(r, &x));
        for (size_t k = 0; k < x.n; k++) {
            const struct explain_entry *e = &x.entry[k];
            products += strchr(e->numbers, '*') != NULL;
            if (!multiplies_out(e))
                fail_msg("trial %" PRIu64 ", %s: %s is no %" PRIu64, i, e->name,
                         e->numbers, e->bytes);
        }
        arena_release(&a);
        memplan_report_free(r);
    }
    assert_true(products > runs() / 2); /* ten or more a trial */
}

/* What the allocator hands out is what is alive, and its rounding. */
static void check_simulated(const memplan_report *fast,
                            const memplan_report *full, const struct trial *t)
{
    char text[2048];
    describe(t, text, sizeof text);
    for (uint64_t k = 0; k < full->memory.n_stages; k++) {
        const struct stage_result *s = &full->memory.stage[k];
        const struct stage_result *live = &fast->memory.stage[k];
        if (!s->sim.done && k == full->memory.worst)
            fail_msg("not simulated: %s", text);
        if (s->peak.total < live->peak.total || s->rest.total < live->rest.total
            || s->reserved < s->peak.total
            || s->peak.bytes[TERM_ROUNDING] > s->peak.total / 10 + (64u << 20))
            fail_msg("alive %llu, allocated %llu, reserved %llu: %s",
                     (unsigned long long)live->peak.total,
                     (unsigned long long)s->peak.total,
                     (unsigned long long)s->reserved, text);
    }
}

static void test_simulated(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < runs() / 10; i++) {
        const struct trial t = trial_of(i);
        memplan_report *fast = estimate(&t);
        memplan_report *full = estimate_as(&t, false);
        assert_true((fast == NULL) == (full == NULL));
        if (fast != NULL) {
            check_sums(full, &t);
            check_simulated(fast, full, &t);
        }
        memplan_report_free(fast);
        memplan_report_free(full);
    }
}

/* What stays between steps lies in other blocks from step to step: one that is
 * not split for less than a MiB counts whole (c10's kSmallSize). */
static bool is_near(uint64_t x, uint64_t y)
{
    const uint64_t unsplit = UINT64_C(2) << 20;
    return x < y ? y - x <= unsplit : x - y <= unsplit;
}

/* Ten steps or more, every micro-batch of them, end as the few that are
 * simulated. */
static void check_stopped(const memplan_report *r, const struct trial *t)
{
    struct arena a;
    struct memory_fold f;
    struct stage st;
    struct simulated few, all;
    arena_init(&a, NULL);
    assert_true(memory_fold_init(&f, &r->program, &r->run, &a));
    stage_init(&st, &f, 0, 0);
    assert_true(
        simulate_stage(&few, &f, &st, &(struct simulate_limits){ .a = &a }));
    const struct simulate_limits whole = {
        .steps = few.steps > 10 ? (unsigned)few.steps : 10, .a = &a
    };
    assert_true(simulate_stage(&all, &f, &st, &whole));
    if (few.reserved != all.reserved || few.allocated != all.allocated
        || !is_near(few.steady, all.steady) || few.births > all.births) {
        char text[512];
        describe(t, text, sizeof text);
        fail_msg("reserved %llu %llu, allocated %llu %llu after %llu steps: %s",
                 (unsigned long long)few.reserved,
                 (unsigned long long)all.reserved,
                 (unsigned long long)few.allocated,
                 (unsigned long long)all.allocated,
                 (unsigned long long)few.steps, text);
    }
    arena_release(&a);
}

static void check_stops_early(uint64_t i)
{
    struct trial t = trial_of(i);
    const bool chunks = (*value_of(&t, "vpp"))[0] != '1';
    *value_of(&t, "grad_accum") = chunks ? "40" : i % 2 == 0 ? "1" : "37";
    memplan_report *r = estimate(&t);
    if (r != NULL)
        check_stopped(r, &t);
    memplan_report_free(r);
}

/* First what few trials have: a root of FSDP 2 whose reduction after the last
 * micro-batch leaves other segments than the one between two. */
static void test_stopped_early(void **state)
{
    (void)state;
    check_stops_early(217);
    for (uint64_t i = 0; i < runs() / 30; i++)
        check_stops_early(i);
}

/* ---- samples of different lengths ---- */

/* On 8 GPUs without model parallelism, which mostly is refused. */
static struct trial lengths_trial(uint64_t i)
{
    struct trial t = trial_of(i);
    *value_of(&t, "pp") = *value_of(&t, "vpp") = *value_of(&t, "tp") = "1";
    *value_of(&t, "gpus") = "8";
    *value_of(&t, "ep") = *value_of(&t, "schedule") = NULL;
    return t;
}

/* The same run with other lengths of samples; NULL where they are refused. */
static memplan_report *estimate_lengths(const struct trial *t,
                                        const char *lengths)
{
    struct trial x = *t;
    *value_of(&x, "schedule") = lengths;
    for (size_t i = 0; i < CHOICES; i++)
        if (x.c[i].key != NULL && strcmp(x.c[i].key, "schedule") == 0)
            x.c[i].key = "lengths";
    return estimate_as(&x, false);
}

/* Samples that differ change what is reserved and nothing else, never to less;
 * the same samples, the same answer; all as long as seq_len, one length's. */
static void check_lengths(const memplan_report *one, const memplan_report *many,
                          const struct trial *t, bool alike)
{
    const uint64_t reserved = one->memory.reserved;
    const struct simulated *s = &many->memory.stage[many->memory.worst].sim;
    const uint64_t most = s->reserved_most;
    if (many->memory.peak == one->memory.peak
        && many->memory.steady == one->memory.steady
        && (alike ? many->memory.reserved == reserved
                  : many->memory.reserved >= reserved)
        && (most == 0
            || (s->reserved_least <= s->reserved && s->reserved <= most)))
        return;
    char text[2048];
    describe(t, text, sizeof text);
    fail_msg("one length %llu, allocated %llu; many %llu, allocated %llu%s: %s",
             (unsigned long long)reserved, (unsigned long long)one->memory.peak,
             (unsigned long long)many->memory.reserved,
             (unsigned long long)many->memory.peak, alike ? ", alike" : "",
             text);
}

static void test_lengths(void **state)
{
    (void)state;
    uint64_t answered = 0, more = 0;
    for (uint64_t i = 0; i < runs() / 15; i++) {
        const struct trial t = lengths_trial(i);
        memplan_report *alike = estimate_lengths(&t, "1024");
        if (alike == NULL)
            continue;
        memplan_report *one = estimate_as(&t, false);
        memplan_report *many = estimate_lengths(&t, "40,150,1024");
        memplan_report *again = estimate_lengths(&t, "40,150,1024");
        check_lengths(one, alike, &t, true);
        check_lengths(one, many, &t, false);
        assert_int_equal(many->memory.reserved, again->memory.reserved);
        answered++;
        more += many->memory.reserved > one->memory.reserved;
        memplan_report_free(alike);
        memplan_report_free(one);
        memplan_report_free(many);
        memplan_report_free(again);
    }
    assert_true(answered > runs() / 150 && more > answered / 4);
}

/* Input and result of the recomputed layer: the frame that recomputes holds
 * them, which is all that recomputation may add. */
static uint64_t checkpoint_frame(const memplan_report *r)
{
    const struct program *p = &r->program;
    const struct block *b = &p->block[p->layer_block[0]];
    bool names = false;
    for (uint32_t i = 0; i < p->n_blocks; i++)
        names = names || p->block[i].names_graph;
    uint64_t shared = 0; /* kept for it to the end: T5's biases, masks */
    for (tensor_id i = 0; i < p->n_shared; i++)
        shared += p->tensor[p->first_shared + i].bytes;
    /* where a module names a checkpoint's graph: its input and that one's
       gradient, of every layer that has run backward */
    const uint64_t layers = names ? p->layers : 0;
    return p->tensor[b->input].bytes + p->tensor[b->output].bytes + shared
           + layers * 2 * p->tensor[b->input].bytes;
}

/* Says the framework again in place of what trial_of() said of adapters: a
 * shard of theirs is so small that 8-bit states stay in fp32, and a flat
 * buffer of them has no rows and columns to factor. */
static void train_it_all(struct trial *t)
{
    for (size_t i = FIRST_ADAPTER; i < CHOICES; i++)
        t->c[i] = t->c[0];
}

/* bitsandbytes keeps embeddings' moments in fp32 (transformers registers them
 * so), which is more than AdamW has of one in 16 bits; a decoder has its own,
 * among the layers. */
static uint64_t embedding_moments(const memplan_report *r)
{
    const struct program *p = &r->program;
    const uint64_t narrow = dtype_size(r->run.prec.optim);
    uint64_t elems = 0;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct tensor *t = &p->tensor[i];
        const bool embeds = t->group == PG_EMBED || t->group == PG_POSITION;
        if (embeds && t->role == ROLE_PARAM && t->trainable && !t->tied)
            elems += t->elems;
    }
    return narrow < 4 ? 2 * elems * (4 - narrow) : 0;
}

/* What the new value may add, where that is known. */
static uint64_t known_more(const memplan_report *from, const memplan_report *to,
                           const char *value)
{
    if (strcmp(value, "full") == 0 && schedule_keeps_graph(&to->run))
        return NEVER; /* for each weight a layer's tensors are made again */
    if (strcmp(value, "full") == 0 && run_away(&from->run) == AWAY_TENSORS)
        return NEVER; /* the host has what a checkpoint's layer makes again, and
                         what 8-bit layers hold past it */
    if (strcmp(value, "full") == 0)
        return checkpoint_frame(to);
    return strcmp(value, "adam8bit") == 0 ? embedding_moments(from) : 0;
}

/* Changes one key; with the new value the peak must not be larger. */
static void never_more(const char *key, const char *from, const char *to)
{
    for (uint64_t i = 0; i < runs() / 10; i++) {
        struct trial a = trial_of(i);
        if (strcmp(key, "optimizer") == 0)
            train_it_all(&a);
        if (strcmp(key, "recompute") == 0) /* gives what is frozen a gradient */
            for (size_t k = FIRST_PART; k < CHOICES; k++)
                a.c[k].value = NULL;
        *value_of(&a, key) = from;
        struct trial b = a;
        *value_of(&b, key) = to;
        memplan_report *ra = estimate(&a), *rb = estimate(&b);
        const uint64_t more =
            ra != NULL && rb != NULL ? known_more(ra, rb, to) : NEVER;
        if (more != NEVER && rb->memory.peak > ra->memory.peak + more) {
            char text[1024];
            describe(&b, text, sizeof text);
            fail_msg("%s %s -> %s needs more: %s", key, from, to, text);
        }
        memplan_report_free(ra);
        memplan_report_free(rb);
    }
}

static void test_recompute_never_more(void **state)
{
    (void)state;
    never_more("recompute", "none", "full");
    never_more("recompute", "none", "ops");
    never_more("compile", "false", "true");
}

static void test_shorter_never_more(void **state)
{
    (void)state;
    never_more("seq_len", "1024", "512");
    never_more("micro_batch", "2", "1");
}

static void test_smaller_optimizer_never_more(void **state)
{
    (void)state;
    never_more("optimizer", "adamw", "adam8bit");
    never_more("optimizer", "adamw", "lion");
    never_more("optimizer", "momentum", "sgd");
}

/* States at rest: a higher stage, or more ranks, never holds more of them. */
static uint64_t states(const memplan_report *r)
{
    return r->memory.stage[0].model_states;
}

static void test_sharding_never_more_states(void **state)
{
    (void)state;
    static const char *const zero[] = { "0", "1", "2", "3" };
    for (uint64_t i = 0; i < runs() / 10; i++) {
        struct trial t = trial_of(i);
        *value_of(&t, "framework") = "deepspeed";
        train_it_all(&t);
        *value_of(&t, "implementation") = "hf";
        *value_of(&t, "precision") = "bf16-mixed";
        *value_of(&t, "tp") = *value_of(&t, "pp") = "1";
        uint64_t before = UINT64_MAX;
        for (size_t z = 0; z < 4; z++) {
            *value_of(&t, "zero") = zero[z];
            memplan_report *r = estimate(&t);
            if (r == NULL)
                break;
            /* padding: a few elements a tensor */
            if (states(r) > before && states(r) - before > 1u << 20) {
                char text[1024];
                describe(&t, text, sizeof text);
                fail_msg("more states: %s", text);
            }
            before = states(r);
            memplan_report_free(r);
        }
    }
}

/* ---- beside the GPU ---- */

/* Bytes of a row on the host, of the elements that it has. */
static double on_host(const memplan_report *r, const char *label, bool elements)
{
    const struct offload_result *o = &r->memory.offload;
    for (size_t i = 0; i < o->n; i++)
        if (strcmp(o->row[i].label, label) == 0
            && (o->row[i].kind == OFFLOAD_ON_HOST
                || o->row[i].kind == OFFLOAD_ON_PINNED))
            return elements ? o->row[i].factor[0] : (double)o->row[i].bytes;
    return 0;
}

/* What a whole copy comes to: fp32 master weights, two moments, a gradient and
 * DeepSpeed's partition of them; all but moments pinned, which may double it. */
static void check_host_is_less(const memplan_report *r, const char *text)
{
    const uint64_t whole = r->params.trainable * (2 * (4 + 4 + 4) + 8);
    if (r->memory.offload.host > whole)
        fail_msg("%" PRIu64 " bytes on the host, of %" PRIu64 ": %s",
                 r->memory.offload.host, whole, text);
}

/* Moments are where their weights are: of each element as many bytes as when
 * all of them move, here or there. */
static void check_moments_follow(const memplan_report *some,
                                 const memplan_report *all, const char *text)
{
    static const char MASTER[] = "master weights",
                      MOMENTS[] = "optimizer moments";
    const double elems = on_host(all, MASTER, true);
    const double each = on_host(all, MOMENTS, false) / elems;
    const double away = on_host(some, MASTER, true);
    const double stay = (double)some->memory.stage[0].rest.bytes[TERM_MOMENTS];
    const double host = on_host(some, MOMENTS, false);
    const double rounding = 64; /* a few elements, of a flat share */
    if (fabs(host - away * each) > rounding
        || fabs(stay - (elems - away) * each) > rounding)
        fail_msg("moments: %.0f on the host, %.0f here, of %.0f and %.0f "
                 "elements: %s",
                 host, stay, away, elems - away, text);
}

/* Of what stays: Megatron's fp32 weights are updated as they are. */
static void check_master_stays(const memplan_report *some,
                               const memplan_report *all, const char *text)
{
    const bool none = strstr(text, "--framework megatron") != NULL
                      && strstr(text, "--precision fp32") != NULL;
    const double stay = on_host(all, "master weights", true)
                        - on_host(some, "master weights", true);
    const double held = (double)some->memory.stage[0].rest.bytes[TERM_MASTER];
    if (held != (none ? 0 : 4 * stay))
        fail_msg("%.0f bytes of master weights of %.0f elements: %s", held,
                 stay, text);
}

static struct trial offloaded_trial(uint64_t seed)
{
    uint64_t s = seed;
    const bool megatron = seed % 2 == 0;
    struct trial t = { .model = PICK(&s, "gpt2", "llama-7b", "mixtral-8x7b") };
    const struct choice c[] = {
        { "offload_ratio", PICK(&s, "0", "0.1", "0.37", "0.5", "0.9") },
        { "framework", megatron ? "megatron" : "deepspeed" },
        { "zero", megatron ? "1" : "3" },
        { "offload_optimizer", "cpu" },
        { "gpus", PICK(&s, "1", "3", "7", "8") },
        { "sub_group_size", PICK(&s, "1M", "20M", "1G") },
        { "optimizer_dtype",
          next(&s) % 2 == 0 ? NULL : PICK(&s, "fp32", "bf16", "fp16") },
        { "master_dtype",
          next(&s) % 2 == 0 ? NULL : PICK(&s, "fp32", "bf16", "none") },
        { "precision", PICK(&s, "bf16-mixed", "bf16", "fp16-mixed", "fp32") },
        { "pin_memory", PICK(&s, "true", "false") },
    };
    memcpy(t.c, c, sizeof c);
    return t;
}

static void test_offload_is_a_share(void **state)
{
    (void)state;
    unsigned answered = 0;
    enum { TRIES = 600 };
    for (uint64_t i = 0; i < TRIES; i++) {
        char text[1024];
        struct trial t = offloaded_trial(i);
        memplan_report *some = estimate(&t);
        if (some == NULL)
            continue;
        describe(&t, text, sizeof text);
        t.c[0].value = "1";
        memplan_report *all = estimate(&t);
        assert_non_null(all);
        check_host_is_less(some, text);
        check_host_is_less(all, text);
        check_moments_follow(some, all, text);
        check_master_stays(some, all, text);
        memplan_report_free(some);
        memplan_report_free(all);
        answered++;
    }
    assert_true(answered > TRIES / 12);
}

/* A forward beside another micro-batch's backward (ep_overlap). */
static struct trial overlapped_trial(uint64_t seed)
{
    uint64_t s = seed;
    struct trial t = { .index = seed,
                       .model = PICK(&s, "mixtral-8x7b", "deepseek-v2-lite",
                                     "qwen1.5-moe-a2.7b", predicting) };
    const char *pp = PICK(&s, "1", "1", "2", "4");
    const char *re = PICK(&s, "none", "selective");
    const struct choice c[] = {
        { "ep_overlap", "true" },
        { "ep_overlap_early_attn_memory_release",
          next(&s) % 2 == 0 ? NULL : "true" },
        { "framework", "megatron" },
        { "implementation", PICK(&s, "megatron", "megatron-local") },
        { "delay_wgrad_compute", seed % 3 == 0 ? "true" : NULL },
        { "gpus", PICK(&s, "32", "64") },
        { "gpu", "h200" },
        { "tp", PICK(&s, "1", "2") },
        { "ep", PICK(&s, "2", "4") },
        { "etp", next(&s) % 2 == 0 ? NULL : "1" },
        { "pp", pp },
        { "vpp", pp[0] == '1' ? NULL : PICK(&s, "2", "3") },
        { "pipeline_layers",
          t.model == predicting && pp[0] == '2' && next(&s) % 2 == 0 ? "4,2"
                                                                     : NULL },
        { "grad_accum", PICK(&s, "4", "8", "12") },
        { "micro_batch", PICK(&s, "1", "2") },
        { "seq_len", PICK(&s, "256", "1024") },
        { "attention", PICK(&s, "flash", "eager") },
        { "recompute", re },
        { "recompute_modules",
          re[0] == 'n' ? NULL
                       : PICK(&s, "core_attn", "layernorm,moe_act", "mlp",
                              "mla_up_proj,layernorm", "shared_experts") },
        { "grad_accum_fusion", PICK(&s, "true", "false") },
        { "precision", PICK(&s, "bf16-mixed", "fp16-mixed", "fp8-mixed") },
        { "zero", PICK(&s, "0", "1") },
        { "loss", PICK(&s, "standard", "fused") },
        { "moe_permute_fusion", PICK(&s, "true", "false") },
        { "replay_batches", next(&s) % 2 == 0 ? NULL : "true" },
    };
    memcpy(t.c, c, sizeof c);
    return t;
}

/* The closed form is the trace to the byte, and a pass beside another needs more
 * than one alone: what is in flight is as much. */
static void test_passes_that_meet(void **state)
{
    (void)state;
    unsigned answered[ANSWERS] = { 0 }, all = 0, chunks = 0, deeper = 0,
             delayed = 0;
    enum { TRIES = 600 };
    for (uint64_t i = 0; i < TRIES; i++) {
        struct trial t = overlapped_trial(i);
        memplan_report *r = estimate(&t);
        if (r == NULL)
            continue;
        all++;
        chunks += r->run.pp > 1;
        t.c[0].value = NULL;
        t.c[1].value = NULL;
        delayed += r->run.delay_wgrad;
        *value_of(&t, "delay_wgrad_compute") = NULL;
        memplan_report *alone = estimate(&t);
        assert_non_null(alone);
        deeper += r->memory.peak > alone->memory.peak;
        memplan_report_free(alone);
        memplan_report_free(r);
        t = overlapped_trial(i);
        check_no_moment_missed(&t, answered);
    }
    assert_true(all > TRIES / 4);
    assert_true(chunks > TRIES / 20);
    assert_true(delayed > TRIES / 60);
    assert_true(deeper > all / 2);
}

/* Transformer Engine's layers on the host. */
static struct trial away_trial(uint64_t seed)
{
    uint64_t s = seed;
    struct trial t = { .model = PICK(&s, "llama-7b", "gpt2-xl", "gpt3-13b",
                                     "mixtral-8x7b", "qwen2.5-0.5b",
                                     "bert-large", "deepseek-v2-lite",
                                     "qwen1.5-moe-a2.7b", predicting) };
    const bool fsdp = next(&s) % 4 == 0;
    const bool routed =
        strcmp(t.model, "mixtral-8x7b") == 0 || strstr(t.model, "moe") != NULL;
    const struct choice c[] = {
        { "cpu_offloading_num_layers", PICK(&s, "1", "2", "5", "11", "22") },
        { "framework", "megatron" },
        { "engine", fsdp ? "megatron-fsdp" : "megatron" },
        { "zero", fsdp ? PICK(&s, "1", "2", "3") : PICK(&s, "0", "1") },
        { "gpu", PICK(&s, "a100-80gb", "h100-80gb") },
        { "gpus", "8" },
        { "tp", PICK(&s, "1", "2", "4") },
        { "ep", routed ? PICK(&s, "1", "2") : NULL },
        { "cp", next(&s) % 6 == 0 ? "2" : NULL },
        { "micro_batch", PICK(&s, "1", "2", "3") },
        { "grad_accum", PICK(&s, "1", "4") },
        { "seq_len", PICK(&s, "256", "512", "1024") },
        { "attention", PICK(&s, "flash", "eager") },
        { "precision", PICK(&s, "bf16-mixed", "fp16-mixed", "fp8-mixed") },
        { "optimizer", PICK(&s, "adamw", "sgd") },
        { "dropout", PICK(&s, "0", "0.1") },
        { "offload_optimizer", !fsdp && next(&s) % 4 == 0 ? "cpu" : NULL },
        { "attention_mask", PICK(&s, "none", "dataloader") },
    };
    memcpy(t.c, c, sizeof c);
    return t;
}

static uint64_t saved_at_loss(const memplan_report *r)
{
    struct arena a;
    struct memory_fold f;
    struct stage st;
    struct moment m;
    arena_init(&a, NULL);
    assert_true(memory_fold_init(&f, &r->program, &r->run, &a));
    stage_init(&st, &f, 0, 0);
    moment_with(&m, &st, PHASE_LOSS, st.n - 1, false, NULL, COMP_COUNT);
    uint64_t gone = 0;
    for (uint32_t i = 1; i <= r->run.away_layers; i++)
        gone += st.walk[stage_block(&st, i)].away.bytes;
    arena_release(&a);
    return m.bytes[TERM_SAVED_LAYERS] + gone;
}

/* What is kept is here or there, whatever goes; and the more go, the less is
 * here at any moment. */
static void test_layers_go_and_come(void **state)
{
    (void)state;
    unsigned answered = 0, moved = 0;
    enum { TRIES = 300 };
    for (uint64_t i = 0; i < TRIES; i++) {
        unsigned kinds[ANSWERS] = { 0 };
        char text[1024];
        struct trial t = away_trial(i);
        memplan_report *some = estimate(&t);
        if (some == NULL)
            continue;
        check_no_moment_missed(&t, kinds);
        describe(&t, text, sizeof text);
        t.c[0].value = "0";
        memplan_report *none = estimate(&t);
        assert_non_null(none);
        if (saved_at_loss(some) != saved_at_loss(none))
            fail_msg("lost on the way: %s", text);
        moved += some->memory.peak < none->memory.peak;
        memplan_report_free(some);
        memplan_report_free(none);
        answered++;
    }
    assert_true(answered > TRIES / 3);
    assert_true(moved > answered / 2);
}

/* Megatron's modules on the host. */
static struct trial modules_trial(uint64_t seed)
{
    uint64_t s = seed;
    struct trial t = { .model = PICK(&s, "llama-7b", "mixtral-8x7b",
                                     "deepseek-v2-lite", "qwen1.5-moe-a2.7b",
                                     "qwen3-30b-a3b", predicting) };
    const char *pp = PICK(&s, "1", "1", "2", "4");
    const bool fsdp = next(&s) % 5 == 0;
    const bool folds = pp[0] != '1' && next(&s) % 3 == 0;
    const char *re =
        PICK(&s, "core_attn", "layernorm,moe_act", "mla_up_proj,layernorm",
             "layernorm,mlp,moe_act", "shared_experts,moe_act");
    const struct choice c[] = {
        { "offload_modules",
          PICK(&s, "core_attn", "core_attn,attn_proj", "expert_fc1,moe_act",
               "attn_norm,mlp_norm", "qkv_linear", "qkv_linear,mlp_norm",
               "attn_norm,qkv_linear,core_attn,attn_proj,mlp_norm,expert_fc1,"
               "moe_act",
               "core_attn,expert_fc1", "moe_act") },
        { "framework", "megatron" },
        { "gpu", PICK(&s, "a100-80gb", "h100-80gb") },
        { "gpus", "16" },
        { "zero", fsdp ? PICK(&s, "1", "2", "3") : PICK(&s, "0", "1") },
        { "tp", PICK(&s, "1", "2", "4") },
        { "pp", pp },
        { "vpp", folds ? PICK(&s, "2", "3") : NULL },
        { "ep", PICK(&s, "1", "2") },
        { "cp", next(&s) % 6 == 0 ? "2" : NULL },
        { "min_offloaded_tensor_size", PICK(&s, "0", "1048576", "100k") },
        { "micro_batch", PICK(&s, "1", "2", "3") },
        { "grad_accum", PICK(&s, "1", "2", "4", "8") },
        { "seq_len", PICK(&s, "256", "512", "1024") },
        { "attention", PICK(&s, "flash", "eager") },
        { "precision", PICK(&s, "bf16-mixed", "fp16-mixed", "fp8-mixed") },
        { "dropout", PICK(&s, "0", "0.1") },
        { "recompute_modules", next(&s) % 2 == 0 ? re : NULL },
        { "grouped_gemm", PICK(&s, "true", "true", "false") },
        { "grad_accum_fusion", PICK(&s, "true", "false") },
        { "moe_dispatcher", PICK(&s, "alltoall", "allgather") },
        { "engine", fsdp ? "megatron-fsdp" : NULL },
        { "offload_optimizer", !fsdp && next(&s) % 4 == 0 ? "cpu" : NULL },
        { "attention_mask", PICK(&s, "none", "dataloader") },
    };
    memcpy(t.c, c, sizeof c);
    return t;
}

/* The closed form's peak is the trace's wherever groups go and come, and none
 * is here more than without. */
static void test_modules_go_and_come(void **state)
{
    (void)state;
    unsigned answered = 0, moved = 0, kinds[ANSWERS] = { 0 };
    for (uint64_t i = 0; i < runs() / 3; i++) {
        struct trial t = modules_trial(i);
        memplan_report *some = estimate(&t);
        if (some == NULL)
            continue;
        check_no_moment_missed(&t, kinds);
        t.c[0].value = t.c[10].value = NULL;
        memplan_report *none = estimate(&t);
        assert_non_null(none);
        moved += some->memory.peak < none->memory.peak;
        memplan_report_free(some);
        memplan_report_free(none);
        answered++;
    }
    assert_true(answered > runs() / 12);
    assert_true(moved > answered / 3);
    assert_true(kinds[SCHED_INTERLEAVED] > answered / 30);
}

/* CUDA graphs of Megatron's layers. */
static struct trial graphs_trial(uint64_t seed)
{
    uint64_t s = seed;
    struct trial t = { .model = PICK(&s, "llama-7b", "mixtral-8x7b",
                                     "deepseek-v2-lite", "qwen1.5-moe-a2.7b",
                                     "qwen3-30b-a3b", predicting) };
    const char *pp = PICK(&s, "1", "1", "2", "4");
    const bool folds = pp[0] != '1' && next(&s) % 3 == 0;
    const struct choice c[] = {
        { "cuda_graph", "true" },
        { "cuda_graph_scope",
          PICK(&s, "attn", "attn,mlp", "mlp", "moe_router",
               "attn,mlp,moe_router,moe_preprocess", "attn,moe_router",
               "attn,moe_router,moe_preprocess", NULL) },
        { "cuda_graph_warmup_steps", PICK(&s, "0", "3") },
        { "framework", "megatron" },
        { "gpu", PICK(&s, "a100-80gb", "h100-80gb") },
        { "gpus", "16" },
        { "zero", PICK(&s, "0", "1") },
        { "tp", PICK(&s, "1", "2", "4") },
        { "pp", pp },
        { "vpp", folds ? PICK(&s, "2", "3") : NULL },
        { "ep", PICK(&s, "1", "2") },
        { "cp", next(&s) % 6 == 0 ? "2" : NULL },
        { "micro_batch", PICK(&s, "1", "2", "3") },
        { "grad_accum", PICK(&s, "1", "2", "4", "8") },
        { "seq_len", PICK(&s, "256", "512", "1024") },
        { "attention", PICK(&s, "flash", "eager") },
        { "precision", PICK(&s, "bf16-mixed", "fp16-mixed", "fp8-mixed") },
        { "dropout", PICK(&s, "0", "0.1") },
        { "recompute_modules",
          next(&s) % 2 == 0
              ? PICK(&s, "core_attn", "mlp,moe_act", "mla_up_proj", "layernorm",
                     "shared_experts,moe_act")
              : NULL },
        { "grouped_gemm", PICK(&s, "true", "true", "false") },
        { "grad_accum_fusion", PICK(&s, "true", "false") },
        { "moe_permute_fusion", PICK(&s, "true", "false") },
        { "offload_optimizer", next(&s) % 4 == 0 ? "cpu" : NULL },
        { "attention_mask", PICK(&s, "none", "dataloader") },
    };
    memcpy(t.c, c, sizeof c);
    return t;
}

/* Of each kind of step the closed form's peak is the trace's; what graphs are
 * captured with is what no other step has of their parts, and between steps
 * there is more than without. */
static void test_graphs_of_layers(void **state)
{
    (void)state;
    unsigned answered = 0, folded = 0, kinds[ANSWERS] = { 0 };
    for (uint64_t i = 0; i < runs() / 3; i++) {
        const struct trial t = graphs_trial(i);
        memplan_report *r = estimate(&t);
        if (r == NULL)
            continue;
        for (unsigned k = 0; k < GRAPH_STEPS; k++) {
            struct memory_result m;
            struct run run = r->run;
            struct arena a;
            bool over = false;
            arena_init(&a, NULL);
            run.graph_step = (enum graph_step)k;
            assert_true(fold_memory(&m, &r->program, &run, &a, &over));
            check_stages(&t, &r->program, &run, &m, kinds);
            assert_true(
                r->memory.peak >= m.peak
                || (k == STEP_EAGER && run.cuda_graph_warmup_steps == 0));
            if (k == STEP_REPLAY) /* what rests then */
                assert_int_equal(r->memory.stage[0].rest.total,
                                 m.stage[0].rest.total);
            arena_release(&a);
        }
        folded += r->run.schedule == SCHED_INTERLEAVED;
        answered++;
        memplan_report_free(r);
    }
    assert_true(answered > runs() / 12);
    assert_true(folded > answered / 30);
}

/* ---- launch files ---- */

struct text {
    char p[16384];
    size_t n;
};

static bool take_text(void *ctx, const char *text, size_t len)
{
    struct text *t = ctx;
    if (t->n + len >= sizeof t->p)
        return false;
    memcpy(t->p + t->n, text, len);
    t->n += len;
    return true;
}

/* What a file has no word for is given beside it. */
static void set_launch(memplan_setup *setup, const char *keys[][2], size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(memplan_setup_set(setup, keys[i][0], keys[i][1], NULL),
                         MEMPLAN_OK);
}

static uint64_t peak_under(const memplan_model *model,
                           const memplan_setup *setup)
{
    memplan_report *report = NULL;
    uint64_t peak = 0;
    assert_int_equal(memplan_estimate(&report, model, setup, NULL, NULL),
                     MEMPLAN_OK);
    assert_int_equal(
        memplan_report_bytes(&peak, report, "memory.peak_allocated"),
        MEMPLAN_OK);
    memplan_report_free(report);
    return peak;
}

/* The file of a setup, read by a setup that knows nothing else but what
 * stands beside it, has the same peak. True when such a file was written. */
static bool comes_back(const memplan_model *model, const char *dialect,
                       const char *keys[][2], size_t beside, size_t n)
{
    /* Megatron-LM's torchrun line is its whole setup */
    const bool megatron = strcmp(dialect, "megatron") == 0;
    const char *read_as = megatron ? "megatron-args" : dialect;
    struct text text = { .n = 0 };
    memplan_setup *setup = NULL, *back = NULL;
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    assert_int_equal(memplan_setup_new(&back, NULL, NULL), MEMPLAN_OK);
    set_launch(setup, keys, n);
    set_launch(back, keys, beside);
    const bool written =
        memplan_emit(model, setup, dialect, take_text, &text, NULL)
        == MEMPLAN_OK;
    if (written) {
        assert_int_equal(
            memplan_setup_import(back, read_as, text.p, text.n, "f", NULL),
            MEMPLAN_OK);
        assert_int_equal(peak_under(model, setup), peak_under(model, back));
    }
    memplan_setup_free(setup);
    memplan_setup_free(back);
    return written;
}

#define COUNT_OF(keys) (sizeof(keys) / sizeof((keys)[0]))

static unsigned torchtitan_comes_back(const memplan_model *model, uint64_t s)
{
    const char *re = PICK(&s, "none", "full", "ops");
    const char *pp = PICK(&s, "1", "1", "2", "4");
    const char *keys[][2] = {
        { "gpu", PICK(&s, "a100-80gb", "h100-80gb") },
        { "attention", PICK(&s, "flash", "sdpa") },
        { "framework", "torchtitan" },
        { "gpus", PICK(&s, "32", "64") },
        { "tp", PICK(&s, "1", "2", "4") },
        { "pp", pp },
        { "cp", PICK(&s, "1", "2") },
        { "zero", PICK(&s, "2", "3") },
        { "micro_batch", PICK(&s, "1", "2") },
        { "grad_accum", PICK(&s, "1", "4", "8") },
        { "seq_len", PICK(&s, "1024", "2048") },
        { "recompute", re },
        { "recompute_every", re[0] == 'f' ? PICK(&s, "1", "2", "3") : "1" },
        { "compile", PICK(&s, "true", "false") },
        { "precision", PICK(&s, "bf16-mixed", "fp32", "bf16") },
        { "optimizer_impl", PICK(&s, "fused", "foreach", "loop") },
        { "schedule", pp[0] == '1' ? "1f1b" : PICK(&s, "1f1b", "gpipe") },
        { "offload_params", PICK(&s, "none", "none", "cpu") },
        { "pipeline_layers", PICK(&s, "6,8,9,9", "8,8,8,8") },
    };
    const size_t n = COUNT_OF(keys) - (pp[0] == '4' ? 0 : 1);
    return comes_back(model, "torchtitan", keys, 2, n);
}

static unsigned megatron_comes_back(const memplan_model *model, uint64_t s)
{
    const char *pp = PICK(&s, "1", "1", "2", "4");
    const char *re = PICK(&s, "none", "full", "selective");
    const bool away = pp[0] == '1' && re[0] == 'n';
    const bool modules = !away && re[0] != 'f' && next(&s) % 2 == 0;
    const bool least = modules && next(&s) % 2 == 0;
    const char *sent = PICK(&s, "core_attn", "qkv_linear,core_attn,attn_proj");
    const char *tp = PICK(&s, "1", "2", "4");
    const char *fw = s % 3 == 0 ? "nemo" : "megatron"; /* not PICK, as above */
    const char *keys[][2] = {
        { "gpu", PICK(&s, "a100-80gb", "h100-80gb") },
        { "framework", fw },
        { "gpus", PICK(&s, "4", "32", "64") },
        { "tp", tp },
        { "pp", pp },
        { "cp", PICK(&s, "1", "2") },
        { "zero", PICK(&s, "0", "1") },
        { "micro_batch", PICK(&s, "1", "2") },
        { "grad_accum", PICK(&s, "1", "4", "8") },
        { "seq_len", PICK(&s, "1024", "2048") },
        { "recompute", re },
        { "cpu_offloading_num_layers", away ? PICK(&s, "0", "3") : "0" },
        { modules ? "offload_modules" : "tp", modules ? sent : tp },
        { least ? "min_offloaded_tensor_size" : "tp", least ? "65536" : tp },
        { "precision", PICK(&s, "bf16-mixed", "fp32", "fp16-mixed") },
        { "attention", PICK(&s, "flash", "eager") },
        { "overlap_comm", PICK(&s, "true", "false") },
        { "attention_mask", PICK(&s, "none", "dataloader") },
        { "loss", PICK(&s, "standard", "fused") },
        { "optimizer", PICK(&s, "adamw", "momentum") },
        { "dropout", PICK(&s, "0", "0.1", "0.2") },
        { "deterministic", PICK(&s, "true", "false") },
        { "pipeline_layers", PICK(&s, "6,8,9,9", "7,9,9,7", "8,8,8,8") },
    };
    /* without the last two: deterministic as memplan takes it for granted */
    const size_t fewer = PICK(&s, "1", "2")[0] == '1' ? 1 : 2;
    const size_t n = COUNT_OF(keys) - (pp[0] == '4' ? 0 : fewer);
    return comes_back(model, PICK(&s, "megatron", "megatron-args"), keys, 1, n);
}

static unsigned deepspeed_comes_back(const memplan_model *model, uint64_t s)
{
    const char *keys[][2] = {
        { "gpus", PICK(&s, "2", "8", "16") },
        { "seq_len", PICK(&s, "512", "2048") },
        { "recompute", PICK(&s, "none", "full") },
        { "framework", "deepspeed" },
        { "zero", PICK(&s, "0", "1", "2", "3") },
        { "micro_batch", PICK(&s, "1", "4") },
        { "grad_accum", PICK(&s, "1", "4") },
        { "precision", PICK(&s, "bf16-mixed", "fp16-mixed", "fp32", "bf16-amp",
                            "fp16-amp", "bf16") },
        { "clip_grad", PICK(&s, "true", "false") },
        { "optimizer", PICK(&s, "adamw", "lion", "momentum", "sgd") },
        { "reduce_bucket", PICK(&s, "500M", "20M", "200M") },
        { "offload_optimizer", PICK(&s, "none", "none", "cpu") },
        { "hpz_partition_size", PICK(&s, "1", "2") },
        { "mics_shard_size", PICK(&s, "0", "0", "2") },
        { "offload_ratio", PICK(&s, "1", "0.5") },
        { "zero_quantized_weights", PICK(&s, "true", "false") },
        { "zero_quantized_gradients", PICK(&s, "true", "false") },
        { "sub_group_size", PICK(&s, "1e9", "1M") },
        { "contiguous_gradients", PICK(&s, "true", "false") },
        { "round_robin_gradients", PICK(&s, "true", "false") },
        { "multi_rank_bucket_allreduce", PICK(&s, "true", "false") },
    };
    return comes_back(model, "deepspeed", keys, 3, COUNT_OF(keys));
}

/* TrainingArguments say batches and optimizer, Accelerate's file says nodes;
 * the rest of each is beside. */
static unsigned hugging_face_comes_back(const memplan_model *model,
                                        const char *dialect, uint64_t s)
{
    enum { NEITHER, ARGS = 1, FILE_TOO = 2, BOTH = 3 };
    const char *framework = PICK(&s, "hf", "deepspeed", "fsdp");
    const bool hf = framework[0] == 'h', ds = framework[0] == 'd';
    const char *engine = PICK(&s, "fsdp", "fsdp2");
    const struct {
        const char *key, *value;
        int said; /* by which of the two */
    } all[] = {
        { "seq_len", PICK(&s, "512", "2048"), NEITHER },
        { "gpu", PICK(&s, "a100-80gb", "h100-80gb"), NEITHER },
        { "framework", framework, BOTH },
        { "gpus", PICK(&s, "2", "8", "16"), FILE_TOO },
        { "micro_batch", PICK(&s, "1", "4"), ARGS },
        { "grad_accum", PICK(&s, "1", "4"), ARGS },
        { "recompute", PICK(&s, "none", "full"), ARGS },
        { "optimizer", PICK(&s, "adamw", "adam8bit", "sgd", "lion"), ARGS },
        { "clip_grad", PICK(&s, "true", "false"), ARGS },
        { "zero", hf ? "0" : PICK(&s, "2", "3"), BOTH },
        { "precision",
          hf ? PICK(&s, "bf16-amp", "fp16-amp", "fp32", "bf16")
             : PICK(&s, "bf16-mixed", "fp16-mixed", "fp32"),
          BOTH },
        { "engine", engine, BOTH },
        { "offload_params", PICK(&s, "none", "none", "cpu"), BOTH },
        { "reduce_dtype", PICK(&s, "bf16", "fp32"), BOTH },
        { "use_orig_params",
          engine[4] == '2' ? "false" : PICK(&s, "true", "false"), BOTH },
    };
    const int by = dialect[0] == 'a' ? FILE_TOO : ARGS;
    const size_t n = COUNT_OF(all) - (hf || ds ? 4 : 0); /* of fsdp alone */
    const char *keys[COUNT_OF(all)][2];
    size_t count = 0, beside = 0;
    for (int said = 0; said < 2; said++) {
        for (size_t i = 0; i < n; i++) {
            if (((all[i].said & by) != 0) != (said != 0))
                continue;
            keys[count][0] = all[i].key;
            keys[count++][1] = all[i].value;
        }
        beside = said == 0 ? count : beside;
    }
    return comes_back(model, dialect, keys, beside, count);
}

/* All but the number of GPUs is in another file. */
static unsigned torchrun_comes_back(const memplan_model *model, uint64_t s)
{
    const char *keys[][2] = {
        { "framework", PICK(&s, "hf", "deepspeed", "fsdp", "torchtitan") },
        { "gpus_per_node", PICK(&s, "4", "8") },
        { "gpus", PICK(&s, "2", "6", "8", "64") },
    };
    return comes_back(model, "torchrun", keys, 1, COUNT_OF(keys));
}

/* All but the adapters is in the code. */
static unsigned peft_comes_back(const memplan_model *model, uint64_t s)
{
    const char *kind = PICK(&s, "lora", "lora", "ia3", "p-tuning",
                            "prompt-tuning", "prefix-tuning");
    const bool lora = kind[0] == 'l', ia3 = kind[0] == 'i';
    const bool prefix = strcmp(kind, "prefix-tuning") == 0;
    const bool some = next(&s) % 2 == 0;
    const char *rank = lora ? "lora_rank" : "gpu";
    const char *n = !lora && !ia3 ? "num_virtual_tokens" : "gpu";
    const bool projects = prefix && next(&s) % 2 == 0;
    const char *wide = projects || strcmp(kind, "p-tuning") == 0
                           ? "encoder_hidden_size"
                           : "gpu";
    const char *keys[][2] = {
        { "gpu", "h100-80gb" },
        { "framework", PICK(&s, "hf", "deepspeed") },
        { "precision", PICK(&s, "bf16", "fp32") },
        { "micro_batch", PICK(&s, "1", "2") },
        { "recompute", prefix ? "none" : PICK(&s, "none", "full") },
        { "base_dtype", lora ? PICK(&s, "bf16", "nf4") : "bf16" },
        { "peft_type", kind },
        { rank, lora ? PICK(&s, "4", "64") : "h100-80gb" },
        { lora || ia3 ? "lora_targets" : "gpu",
          !lora && !ia3 ? "h100-80gb"
          : some        ? PICK(&s, "q,v", "q,k,v,o,gate,up,down", "o,up")
          : lora        ? "all-linear"
                        : "k,v,down" },
        { lora && some ? "layers_to_transform" : "gpu",
          lora && some ? PICK(&s, "3", "0-7", "2,16-31") : "h100-80gb" },
        { lora && some ? "rank_pattern" : "gpu",
          lora && some ? PICK(&s, "q=2", "o=16,up=8") : "h100-80gb" },
        { lora ? "lora_dropout" : "gpu",
          lora ? PICK(&s, "0", "0.05") : "h100-80gb" },
        { lora ? "lora_variant" : "gpu",
          lora ? PICK(&s, "lora", "rslora", "dora") : "h100-80gb" },
        { ia3 ? "feedforward_modules" : "gpu",
          ia3 ? PICK(&s, "down", "up,down") : "h100-80gb" },
        { lora || ia3 ? "lora_full_modules" : "gpu",
          lora || ia3 ? PICK(&s, "head", "embed,norm") : "h100-80gb" },
        { n, n[0] == 'n' ? PICK(&s, "8", "100") : "h100-80gb" },
        { wide, wide[0] == 'e' ? PICK(&s, "64", "8192") : "h100-80gb" },
        { projects ? "prefix_projection" : "gpu",
          projects ? "true" : "h100-80gb" },
    };
    return comes_back(model, "peft", keys, 6, COUNT_OF(keys));
}

static void test_launch_files_come_back(void **state)
{
    (void)state;
    enum { TRIES = 60 };
    memplan_model *model = NULL;
    unsigned titan = 0, deepspeed = 0, megatron = 0;
    unsigned arguments = 0, accelerate = 0, torchrun = 0, adapters = 0;
    assert_int_equal(memplan_model_builtin(&model, "llama-7b", NULL, NULL),
                     MEMPLAN_OK);
    for (uint64_t seed = 1; seed <= TRIES; seed++) {
        titan += torchtitan_comes_back(model, seed);
        megatron += megatron_comes_back(model, seed);
        deepspeed += deepspeed_comes_back(model, seed);
        arguments += hugging_face_comes_back(model, "training-args", seed);
        accelerate += hugging_face_comes_back(model, "accelerate", seed);
        torchrun += torchrun_comes_back(model, seed);
        adapters += peft_comes_back(model, seed);
    }
    memplan_model_free(model);
    assert_true(titan > TRIES / 3);
    assert_true(deepspeed > TRIES / 3);
    assert_true(megatron > TRIES / 4);
    assert_true(arguments > TRIES / 4);
    assert_true(accelerate > TRIES / 4);
    assert_true(torchrun > TRIES / 3);
    assert_true(adapters > TRIES / 2);
}

/* With an argument, only the properties that it matches: test_sum*. */
int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_no_moment_missed),
        cmocka_unit_test(test_first_step),
        cmocka_unit_test(test_explained),
        cmocka_unit_test(test_simulated),
        cmocka_unit_test(test_stopped_early),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_recompute_never_more),
        cmocka_unit_test(test_launch_files_come_back),
        cmocka_unit_test(test_shorter_never_more),
        cmocka_unit_test(test_smaller_optimizer_never_more),
        cmocka_unit_test(test_sharding_never_more_states),
        cmocka_unit_test(test_offload_is_a_share),
        cmocka_unit_test(test_passes_that_meet),
        cmocka_unit_test(test_layers_go_and_come),
        cmocka_unit_test(test_modules_go_and_come),
        cmocka_unit_test(test_graphs_of_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
