/*
 * The keys of a file that are no fields: unknown ones, which are errors where
 * the text says "memplan": 1, and those that ask for what is not modelled,
 * which are errors everywhere. Refuses to know what fields mean.
 */
#include "spec/import.h"

#include <string.h>

#include "base/banned.h"

/* Keys that a class reads for nothing that memory depends on, and those that
 * another key overrides; a file with "memplan": 1 may have them too. */
static const struct inert {
    enum family family; /* FAM_COUNT: all */
    const char *keys;
} inerts[] = {
    { FAM_COUNT, "memplan name source notes parameters model_type "
                 "architectures quantization_config" },
    { FAM_GEMMA, "hidden_act" },
    { FAM_GEMMA2, "hidden_act query_pre_attn_scalar" },
    { FAM_VAULTGEMMA, "hidden_act query_pre_attn_scalar" },
    { FAM_GEMMA3, "hidden_act query_pre_attn_scalar rope_local_base_freq" },
    { FAM_ERNIE, "attention_dropout" },
    { FAM_ERNIE_MOE, "attention_dropout moe_layer_end_index" },
    { FAM_QWEN, "padded_vocab_size seq_length" },
    { FAM_QWEN2_VL, "vision_config" }, /* beside its keys: spec_parts.c */
    { FAM_QWEN2_5_VL, "vision_config" },
    { FAM_STARCODER2, "activation_function" },
    { FAM_MPT, "learned_pos_emb" },
    { FAM_BERT, "id2label" },
    { FAM_ROBERTA, "id2label" },
    { FAM_DISTILBERT, "id2label" },
    { FAM_VIT, "id2label" },
    { FAM_T5, "feed_forward_proj" },
    { FAM_MT5, "feed_forward_proj" },
    { FAM_UMT5, "feed_forward_proj" },
    { FAM_DIT_DIFFUSERS, "_class_name" },
    { FAM_CONVNET, "input layers resnet resnet.blocks resnet.bottleneck "
                   "resnet.width "
                   "resnet.stem" },
    { FAM_DEEPSEEK_V2, "num_key_value_heads head_dim moe_layer_freq" },
    { FAM_DEEPSEEK_V3, "num_key_value_heads head_dim moe_layer_freq" },
    { FAM_DEEPSEEK_V3, "num_nextn_predict_layers" },
    { FAM_DEEPSEEK_V32, "num_key_value_heads head_dim moe_layer_freq "
                        "num_nextn_predict_layers layer_types" },
    { FAM_MINICPM3, "num_key_value_heads head_dim scale_emb scale_depth "
                    "dim_model_base" },
    { FAM_LLAMA4, "attn_temperature_tuning" },
    { FAM_GROK,
      "hidden_act embedding_multiplier_scale attn_output_multiplier" },
    { FAM_PHI3SMALL, "attention_bias mup_embedding_multiplier" },
    { FAM_GLM4_MOE, "num_nextn_predict_layers" },
    { FAM_EXAONE_MOE, "num_nextn_predict_layers" },
    { FAM_GLM4_MOE_LITE,
      "num_nextn_predict_layers num_key_value_heads head_dim" },
    { FAM_SOLAR_OPEN, "intermediate_size" },
    { FAM_YOUTU, "num_key_value_heads head_dim" },
    { FAM_MINISTRAL3, "layer_types" },
    { FAM_MINIMAX_M2, "use_qk_norm qk_norm_type num_mtp_modules use_mtp "
                      "mtp_transformer_layers attn_type_list "
                      "shared_intermediate_size" },
    { FAM_GPT_OSS, "experts_per_token hidden_act" },
    { FAM_GRANITE_HYB, "position_embedding_type" },
    { FAM_NEMOTRON_H, "num_hidden_layers n_shared_experts sliding_window "
                      "attention_bias hidden_dropout num_nextn_predict_layers "
                      "tie_word_embeddings expand mamba_hidden_act" },
    { FAM_CHATGLM, "attention_dropout tie_word_embeddings" },
    { FAM_BAMBA, "layer_types layers_block_type" }, /* refused */
};

enum test {
    TEST_POSITIVE, /* a number above 0 */
    TEST_TRUE,
    TEST_FALSE,
    TEST_GIVEN, /* anything but null */
    TEST_NOT_IN /* a string, or list of strings, not among `words` */
};

/* What changes shapes and is not modelled. A row about all families is silent
 * where the family reads the key. */
static const struct refusal {
    enum family family; /* FAM_COUNT: all */
    enum test test;
    const char *keys;
    const char *words;
    const char *what;
} refusals[] = {
    { FAM_COUNT, TEST_POSITIVE,
      "num_experts num_local_experts n_routed_experts "
      "num_experts_per_tok moe_intermediate_size n_shared_experts "
      "shared_expert_intermediate_size",
      "", "a mixture of experts" },
    { FAM_COUNT, TEST_POSITIVE,
      "q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim",
      "", "multi-head latent attention" },
    { FAM_COUNT, TEST_POSITIVE, "num_nextn_predict_layers", "",
      "multi-token prediction" },
    { FAM_CHATGLM, TEST_GIVEN, "position_encoding_2d inner_hidden_size", "",
      "the first generation" },
    { FAM_CHATGLM, TEST_POSITIVE, "pre_seq_len", "", "a trained prefix" },
    { FAM_CHATGLM, TEST_TRUE, "fp32_residual_connection", "",
      "a residual in fp32" },
    { FAM_CHATGLM, TEST_TRUE, "apply_residual_connection_post_layernorm", "",
      "a residual after the norm" },
    { FAM_COUNT, TEST_TRUE, "is_encoder_decoder add_cross_attention", "",
      "an encoder, or attention to one," },
    { FAM_COUNT, TEST_GIVEN, "text_config", "", "a nested language model" },
    { FAM_COUNT, TEST_GIVEN, "vision_config audio_config", "",
      "a vision or audio part" },
    { FAM_ENCODER, TEST_GIVEN, "layer_types", "", "a list of layers" },
    { FAM_ENCODER_DECODER, TEST_GIVEN, "layer_types", "", "a list of layers" },
    { FAM_COUNT, TEST_NOT_IN, "layer_types", "full_attention sliding_attention",
      "a layer of this type" },
    { FAM_MPT, TEST_TRUE, "attn_config.qk_ln attn_config.qk_gn", "",
      "a norm on queries and keys of MPT" },
    { FAM_MPT, TEST_TRUE, "attn_config.rope", "", "rotary MPT" },
    { FAM_MPT, TEST_NOT_IN, "attn_config.attn_type",
      "multihead_attention grouped_query_attention", "this attention" },
    { FAM_MPT, TEST_NOT_IN, "norm_type", "low_precision_layernorm layernorm",
      "this norm" },
    { FAM_MPT, TEST_NOT_IN, "ffn_config.ffn_type", "mptmlp", "this MLP" },
    { FAM_GEMMA3, TEST_TRUE, "use_bidirectional_attention", "",
      "attention in both directions" },
    { FAM_PHI3SMALL, TEST_NOT_IN, "hidden_act", "gegelu", "this activation" },
    { FAM_PHI3SMALL, TEST_GIVEN, "ff_dim_multiplier", "",
      "a width by a multiplier" },
    { FAM_NEMOTRON_H, TEST_NOT_IN, "mamba_hidden_act", "silu swish",
      "this activation of Mamba's" },
    { FAM_BAMBA, TEST_POSITIVE, "z_loss_coefficient", "",
      "a loss of the logits' size" },
    { FAM_BART, TEST_FALSE, "tie_word_embeddings", "",
      "a table of words for each stack and the head" },
    { FAM_BAMBA, TEST_GIVEN, "layer_types layers_block_type", "",
      "a list of layers (but attn_layer_indices)" },
    { FAM_BERT, TEST_TRUE, "is_decoder", "", "a causal mask" },
    { FAM_ROBERTA, TEST_TRUE, "is_decoder", "", "a causal mask" },
    { FAM_BERT, TEST_NOT_IN, "position_embedding_type", "absolute",
      "this kind of position" },
    { FAM_ROBERTA, TEST_NOT_IN, "position_embedding_type", "absolute",
      "this kind of position" },
    { FAM_DIT_DIFFUSERS, TEST_NOT_IN, "norm_type", "ada_norm_zero",
      "this norm" },
    { FAM_DIT_DIFFUSERS, TEST_POSITIVE,
      "cross_attention_dim num_vector_embeds caption_channels", "",
      "an encoder's result, or discrete latents," },
    { FAM_DIT_DIFFUSERS, TEST_TRUE,
      "double_self_attention only_cross_attention", "",
      "another attention than DiT's" },
    { FAM_STARCODER2, TEST_NOT_IN, "mlp_type", "default", "this MLP" },
    { FAM_STARCODER2, TEST_NOT_IN, "norm_type", "layer_norm", "this norm" },
};

static bool in_list(const char *list, struct str word)
{
    struct str rest = str_of(list);
    while (rest.n > 0) {
        if (str_eq(str_cut(rest, ' ', &rest), word))
            return true;
    }
    return false;
}

/* ---- unknown keys ---- */

struct known {
    struct str key[256];
    size_t count;
};

static void add_known(struct known *k, const char *keys)
{
    struct str rest = str_of(keys);
    while (rest.n > 0 && k->count < COUNT_OF(k->key))
        k->key[k->count++] = str_cut(rest, ' ', &rest);
}

static void gather_known(struct known *k, const struct import *im)
{
    k->count = 0;
    for (int id = 0; id < F_COUNT; id++)
        add_known(k, im->keys[id]);
    for (size_t i = 0; i < COUNT_OF(inerts); i++) {
        if (inerts[i].family == im->family || inerts[i].family == FAM_COUNT)
            add_known(k, inerts[i].keys);
    }
    const char *list;
    for (size_t next = 0; (list = import_layer_list(im->family, &next));)
        add_known(k, list);
    add_known(k, import_class_keys(im));
    for (size_t i = 0; i < COUNT_OF(refusals); i++) {
        if (refusals[i].family == im->family || refusals[i].family == FAM_COUNT)
            add_known(k, refusals[i].keys);
    }
}

/* A known key, or an object that has one: "attn_config". */
static bool is_known(const struct known *k, struct str path, bool *holds)
{
    *holds = false;
    for (size_t i = 0; i < k->count; i++) {
        if (str_eq(k->key[i], path))
            return true;
        if (k->key[i].n > path.n && k->key[i].p[path.n] == '.'
            && memcmp(k->key[i].p, path.p, path.n) == 0) {
            *holds = true;
            return true;
        }
    }
    return false;
}

static void unknown_key(struct import *im, const struct known *k,
                        const struct json *at, struct str path)
{
    memplan_error *e = import_error(im, at, MEMPLAN_E_UNKNOWN,
                                    "unknown key '%.60s'", at->key.p);
    struct str best = { "", 0 };
    unsigned least = UINT32_MAX;
    for (size_t i = 0; i < k->count; i++) {
        unsigned far = str_distance(k->key[i], path);
        if (far < least) {
            best = k->key[i];
            least = far;
        }
    }
    if (str_near(best, path, least))
        diag_hint(e, "did you mean '%.*s'?", (int)best.n, best.p);
    else
        diag_hint(e, "a '%s' model has no such key; 'x-%.60s' is ignored",
                  family_name(im->family), at->key.p);
}

static bool is_free(struct str key)
{
    return key.n >= 2 && memcmp(key.p, "x-", 2) == 0;
}

/* The members of the file, and of the objects among them that hold keys. */
static void check_keys(struct import *im)
{
    struct known known;
    gather_known(&known, im);
    for (const struct json *at = im->root->child; at; at = at->next) {
        bool holds;
        if (is_free(at->key))
            continue;
        if (!is_known(&known, at->key, &holds)) {
            unknown_key(im, &known, at, at->key);
            continue;
        }
        if (!holds || at->kind != JSON_OBJECT)
            continue;
        for (const struct json *in = at->child; in; in = in->next) {
            char path[128];
            size_t n =
                str_format(path, sizeof(path), "%s.%s", at->key.p, in->key.p);
            if (!is_free(in->key)
                && !is_known(&known, (struct str){ path, n }, &holds))
                unknown_key(im, &known, in, (struct str){ path, n });
        }
    }
}

/* Objects that hold keys have to be objects. */
static void check_holders(struct import *im)
{
    struct known known;
    gather_known(&known, im);
    for (const struct json *at = im->object->child; at; at = at->next) {
        bool holds;
        if (is_known(&known, at->key, &holds) && holds
            && at->kind != JSON_OBJECT && at->kind != JSON_NULL)
            import_error(im, at, MEMPLAN_E_SCHEMA,
                         "'%s' must be an object, not %s", at->key.p,
                         json_kind_name(at->kind));
    }
}

/* ---- what is not modelled ---- */

/* The value that a refusal is about: of a list the first that offends. */
static const struct json *offender(const struct refusal *r,
                                   const struct json *at)
{
    switch (r->test) {
    case TEST_POSITIVE:
        return at->kind == JSON_NUMBER && at->number > 0 ? at : NULL;
    case TEST_TRUE: return at->kind == JSON_BOOL && at->truth ? at : NULL;
    case TEST_FALSE: return at->kind == JSON_BOOL && !at->truth ? at : NULL;
    case TEST_GIVEN: return at->kind != JSON_NULL ? at : NULL;
    case TEST_NOT_IN: break;
    }
    const struct json *one = at->kind == JSON_ARRAY ? at->child : at;
    for (; one; one = at->kind == JSON_ARRAY ? one->next : NULL) {
        if (one->kind == JSON_STRING && !in_list(r->words, one->text))
            return one;
    }
    return NULL;
}

bool import_is_inert(const struct import *im, struct str key)
{
    const char *list;
    for (size_t next = 0; (list = import_layer_list(im->family, &next));) {
        if (str_is(key, list))
            return true;
    }
    for (size_t i = 0; i < COUNT_OF(inerts); i++) {
        if (inerts[i].family == im->family && in_list(inerts[i].keys, key))
            return true;
    }
    return false;
}

bool import_reads(const struct import *im, struct str key)
{
    for (int id = 0; id < F_COUNT; id++) {
        if (in_list(im->keys[id], key))
            return true;
    }
    return false;
}

static void refuse(struct import *im, const struct refusal *r)
{
    struct str rest = str_of(r->keys);
    while (rest.n > 0) {
        struct str key = str_cut(rest, ' ', &rest);
        const struct json *at = import_find(im->object, key);
        const struct json *bad =
            at
                    && !(r->family == FAM_COUNT
                         && (import_reads(im, key) || import_is_inert(im, key)))
                ? offender(r, at)
                : NULL;
        if (!bad)
            continue;
        memplan_error *e =
            import_error(im, bad, MEMPLAN_E_UNSUPPORTED,
                         "%s is not modelled in a '%s' "
                         "model ('%.*s')",
                         r->what, family_name(im->family), (int)key.n, key.p);
        if (r->words[0])
            diag_hint(e, "modelled: %s", r->words);
        else
            diag_hint(e,
                      "without '%.*s' the rest of the model can be "
                      "estimated",
                      (int)key.n, key.p);
        return; /* one report a feature, however many keys it has */
    }
}

static void check_refusals(struct import *im)
{
    for (size_t i = 0; i < COUNT_OF(refusals); i++) {
        if (refusals[i].family == im->family || refusals[i].family == FAM_COUNT)
            refuse(im, &refusals[i]);
    }
}

void import_keys(struct import *im)
{
    if (im->strict)
        check_keys(im);
    check_holders(im);
    check_refusals(im);
}
