/*
 * From JSON to a struct spec: which family a file is of, and what a row of
 * field.def or family.def cannot say. Owns the order of things and the checks
 * that look at several fields; spec_field.c owns single fields, spec_keys.c
 * the keys that are none. Refuses to know what a shape costs.
 */
#include "spec/import.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/banned.h"

static const char *const family_names[FAM_COUNT] = {
#define FAMILY_NAME(id, text) [FAM_##id] = text,
    FAMILY_MAP(FAMILY_NAME)
#undef FAMILY_NAME
};

const char *family_name(enum family family)
{
    return family < FAM_COUNT ? family_names[family] : "";
}

/* Other names of families: model types of the first uploads, and classes, for
 * files that have no model_type. Only classes whose head is modelled. */
static const struct other_name {
    const char *text;
    enum family family;
} other_names[] = {
    { "RefinedWeb", FAM_FALCON },      /* 40b as first published */
    { "RefinedWebModel", FAM_FALCON }, /* 7b, rw */
    { "LlamaForCausalLM", FAM_LLAMA },
    { "LLaMAForCausalLM", FAM_LLAMA },
    { "MistralForCausalLM", FAM_MISTRAL },
    { "MixtralForCausalLM", FAM_MIXTRAL },
    { "QWenLMHeadModel", FAM_QWEN },
    { "Qwen2ForCausalLM", FAM_QWEN2 },
    { "Qwen3ForCausalLM", FAM_QWEN3 },
    { "Qwen2MoeForCausalLM", FAM_QWEN2_MOE },
    { "Qwen3MoeForCausalLM", FAM_QWEN3_MOE },
    { "OlmoeForCausalLM", FAM_OLMOE },
    { "GraniteMoeForCausalLM", FAM_GRANITEMOE },
    { "PhimoeForCausalLM", FAM_PHIMOE },
    { "DbrxForCausalLM", FAM_DBRX },
    { "GptOssForCausalLM", FAM_GPT_OSS },
    { "MambaForCausalLM", FAM_MAMBA },
    { "Mamba2ForCausalLM", FAM_MAMBA2 },
    { "JambaForCausalLM", FAM_JAMBA },
    { "Qwen3NextForCausalLM", FAM_QWEN3_NEXT },
    { "DeepseekForCausalLM", FAM_DEEPSEEK },
    { "DeepseekV2ForCausalLM", FAM_DEEPSEEK_V2 },
    { "DeepseekV3ForCausalLM", FAM_DEEPSEEK_V3 },
    { "kimi_k2", FAM_DEEPSEEK_V3 }, /* its config class, with other sizes */
    { "PhiForCausalLM", FAM_PHI },
    { "mixformer-sequential", FAM_PHI_MSFT }, /* phi-1.5 as first uploaded */
    { "ChatGLMModel", FAM_CHATGLM },
    { "ChatGLMForConditionalGeneration", FAM_CHATGLM },
    { "BaichuanForCausalLM", FAM_BAICHUAN },
    { "InternLMForCausalLM", FAM_INTERNLM },
    { "InternLM2ForCausalLM", FAM_INTERNLM2 },
    { "MiniCPMForCausalLM", FAM_MINICPM },
    { "Glm4ForCausalLM", FAM_GLM4 },
    { "Glm4MoeForCausalLM", FAM_GLM4_MOE },
    { "SmolLM3ForCausalLM", FAM_SMOLLM3 },
    { "GraniteForCausalLM", FAM_GRANITE },
    { "GlmForCausalLM", FAM_GLM },
    { "SeedOssForCausalLM", FAM_SEED_OSS },
    { "MinistralForCausalLM", FAM_MINISTRAL },
    { "HunYuanDenseV1ForCausalLM", FAM_HUNYUAN },
    { "Ernie4_5ForCausalLM", FAM_ERNIE },
    { "Ernie4_5_MoeForCausalLM", FAM_ERNIE_MOE },
    { "Dots1ForCausalLM", FAM_DOTS1 },
    { "NemotronForCausalLM", FAM_NEMOTRON },
    { "Olmo3ForCausalLM", FAM_OLMO3 },
    { "Exaone4ForCausalLM", FAM_EXAONE4 },
    { "Cohere2ForCausalLM", FAM_COHERE2 },
    { "Gemma3ForCausalLM", FAM_GEMMA3 },
    { "MiniCPM3ForCausalLM", FAM_MINICPM3 },
    { "DeepseekV32ForCausalLM", FAM_DEEPSEEK_V32 },
    { "Llama4ForCausalLM", FAM_LLAMA4 },
    { "Grok1ModelForCausalLM", FAM_GROK },
    { "Phi3SmallForCausalLM", FAM_PHI3SMALL },
    { "GemmaForCausalLM", FAM_GEMMA },
    { "Gemma2ForCausalLM", FAM_GEMMA2 },
    { "Phi3ForCausalLM", FAM_PHI3 },
    { "GPT2LMHeadModel", FAM_GPT2 },
    { "GPTNeoForCausalLM", FAM_GPT_NEO },
    { "GPTJForCausalLM", FAM_GPTJ },
    { "GPTNeoXForCausalLM", FAM_GPT_NEOX },
    { "OPTForCausalLM", FAM_OPT },
    { "BloomForCausalLM", FAM_BLOOM },
    { "FalconForCausalLM", FAM_FALCON },
    { "RWForCausalLM", FAM_FALCON },
    { "MPTForCausalLM", FAM_MPT },
    { "MptForCausalLM", FAM_MPT },
    { "Starcoder2ForCausalLM", FAM_STARCODER2 },
    { "GPTBigCodeForCausalLM", FAM_GPT_BIGCODE },
    { "StableLmForCausalLM", FAM_STABLELM },
    { "OlmoForCausalLM", FAM_OLMO },
    { "Olmo2ForCausalLM", FAM_OLMO2 },
    { "CohereForCausalLM", FAM_COHERE },
    { "BertForMaskedLM", FAM_BERT },
    { "BertForPreTraining", FAM_BERT },
    { "BertForSequenceClassification", FAM_BERT },
    { "BertForTokenClassification", FAM_BERT },
    { "BertForQuestionAnswering", FAM_BERT },
    { "BertModel", FAM_BERT },
    { "RobertaForMaskedLM", FAM_ROBERTA },
    { "RobertaForSequenceClassification", FAM_ROBERTA },
    { "RobertaForTokenClassification", FAM_ROBERTA },
    { "RobertaForQuestionAnswering", FAM_ROBERTA },
    { "RobertaModel", FAM_ROBERTA },
    { "T5ForConditionalGeneration", FAM_T5 },
    { "MT5ForConditionalGeneration", FAM_MT5 },
    { "BartForConditionalGeneration", FAM_BART },
    { "WhisperForConditionalGeneration", FAM_WHISPER },
    { "WhisperModel", FAM_WHISPER },
    { "Transformer2DModel", FAM_DIT_DIFFUSERS }, /* which it was part of */
    { "ViTForImageClassification", FAM_VIT },
    { "ViTModel", FAM_VIT },
};

/* ---- which family ---- */

static bool find_family(struct str text, enum family *out)
{
    for (int i = 0; i < FAM_COUNT; i++) {
        if (str_is(text, family_names[i])) {
            *out = (enum family)i;
            return true;
        }
    }
    for (size_t i = 0; i < COUNT_OF(other_names); i++) {
        if (str_is(text, other_names[i].text)) {
            *out = other_names[i].family;
            return true;
        }
    }
    return false;
}

/* Where an object says what it is: model_type, else architectures[0], else the
 * class that diffusers writes. */
static const struct json *type_of(const struct json *object)
{
    const struct json *at = json_member(object, "model_type");
    if (at && at->kind != JSON_NULL)
        return at;
    at = json_member(object, "architectures");
    if (at && at->kind == JSON_ARRAY && at->child)
        return at->child;
    at = json_member(object, "_class_name");
    return at && at->kind != JSON_NULL ? at : NULL;
}

static bool has_family(struct import *im, const struct json *object)
{
    const struct json *at = type_of(object);
    if (!at || at->kind != JSON_STRING || !find_family(at->text, &im->family))
        return false;
    im->object = object;
    im->model_type = at->text.p;
    return true;
}

/* The family whose name is like this one, or begins like it ("qwen2_moe");
 * NULL when none is. */
static const char *near_family(struct str text)
{
    enum { PREFIX_MIN = 3 };
    const char *best = NULL;
    unsigned least = 0;
    size_t longest = PREFIX_MIN;
    for (int i = 0; i < FAM_COUNT; i++) {
        struct str one = str_of(family_names[i]);
        unsigned far = str_distance(one, text);
        bool begins = one.n > longest && one.n < text.n
                      && memcmp(one.p, text.p, one.n) == 0;
        if (begins)
            longest = one.n;
        if (begins
            || (longest == PREFIX_MIN && str_near(one, text, far)
                && (!best || far < least))) {
            best = family_names[i];
            least = far;
        }
    }
    return best;
}

static void unknown_family(struct import *im, const struct json *at)
{
    memplan_error *e = import_error(im, at, MEMPLAN_E_UNKNOWN,
                                    "unknown model type '%.60s'", at->text.p);
    const char *best = near_family(at->text);
    const char *like = import_nearest(
        im, at->parent->kind == JSON_ARRAY ? im->root : at->parent);
    if (best)
        str_append(e->hint, sizeof(e->hint), "the nearest name is '%s'; ",
                   best);
    if (like)
        str_append(e->hint, sizeof(e->hint),
                   "the fields are those of '%s': if the layers are too, "
                   "--as %s reads it so",
                   like, like);
    else
        str_append(e->hint, sizeof(e->hint),
                   "a decoder (or encoder) of any name can be written as "
                   "\"model_type\": \"decoder\" with the keys of that type");
}

static void no_family(struct import *im, const struct json *at)
{
    char list[250] = "";
    if (at && at->kind == JSON_STRING) {
        unknown_family(im, at);
        return;
    }
    memplan_error *e =
        at ? import_error(im, at, MEMPLAN_E_SCHEMA,
                          "the model type must be a string, not %s",
                          json_kind_name(at->kind))
           : import_error(im, im->root, MEMPLAN_E_SCHEMA,
                          "'model_type' is missing");
    for (int i = 0; i < FAM_COUNT; i++)
        str_append(list, sizeof(list), "%s%s", i ? ", " : "", family_names[i]);
    diag_hint(e, "known: %s", list);
}

/* What the caller says the file is. */
static bool has_named_family(struct import *im, const struct json *nested)
{
    im->object = !im->strict && nested && nested->kind == JSON_OBJECT
                     ? nested
                     : im->root;
    im->model_type = im->as;
    if (find_family(str_of(im->as), &im->family))
        return true;
    const struct json *object = im->object;
    memplan_error *e = diag_add(im->d, MEMPLAN_E_UNKNOWN,
                                "--as: unknown model type '%.60s'", im->as);
    const char *best = near_family(str_of(im->as));
    const char *like = import_nearest(im, object);
    if (best)
        diag_hint(e, "did you mean '%s'?", best);
    else if (like)
        diag_hint(e, "the fields are those of '%s'", like);
    else
        diag_hint(e, "use a 'model_type' of Hugging Face, such as llama");
    return false;
}

bool import_named(struct import *im, const char *type)
{
    return find_family(str_of(type), &im->family);
}

/* What the whole's class makes of a text part that does not say it. */
static bool is_usual_part(struct import *im, const struct json *nested)
{
    const char *type = import_text_type(im);
    if (type == NULL || nested->kind != JSON_OBJECT
        || (nested != im->root && type_of(nested) != NULL)
        || !import_named(im, type))
        return false;
    im->object = nested;
    im->model_type = type;
    return true;
}

/* "gemma3" alone is the whole of which "gemma3_text" is the part. */
static bool lacks_text_config(struct import *im, const struct json *nested)
{
    const struct json *at = type_of(im->root);
    char part[80];
    enum family family;
    if (!at || at->kind != JSON_STRING)
        return false;
    str_format(part, sizeof(part), "%.60s_text", at->text.p);
    if (!find_family(str_of(part), &family))
        return false;
    const bool object = nested && nested->kind == JSON_OBJECT;
    memplan_error *e = import_error(
        im, nested ? nested : im->root, MEMPLAN_E_SCHEMA,
        "a '%.60s' file needs a 'text_config' with a 'model_type', and it %s%s",
        at->text.p, object ? "has none" : "is ",
        object   ? ""
        : nested ? json_kind_name(nested->kind)
                 : "null or not there");
    diag_hint(e, "\"text_config\": {\"model_type\": \"%s\", ...}", part);
    return true;
}

/* A nested language model comes first: the top of such a file describes a
 * whole. */
static bool choose_family(struct import *im)
{
    const struct json *nested = import_text_part(im);
    if (im->as)
        return has_named_family(im, nested);
    if (!im->strict && nested
        && ((nested != im->root && has_family(im, nested))
            || is_usual_part(im, nested))) {
        if (im->family == FAM_LLAMA && import_is_llava(im))
            im->family = FAM_LLAVA_TEXT;
        return true;
    }
    if (has_family(im, im->root))
        return true;
    if (!lacks_text_config(im, nested))
        no_family(im, type_of(im->root));
    return false;
}

/* ---- what a row cannot say ---- */

/* falcon-40b as first published has a model_type instead of the key. The old
 * generation has one kv head or all of them, whatever num_kv_heads says; the
 * new one has two norms side by side, but falcon-11b one. */
static void fix_falcon(struct import *im)
{
    struct value *v = im->v;
    const struct json *kv = v[F_KV_HEADS].at;
    if (!v[F_NEW_FALCON].at
        && (strcmp(im->model_type, "RefinedWeb") == 0
            || (kv && str_is(kv->key, "n_head_kv"))))
        v[F_NEW_FALCON].n = 1;
    bool new = v[F_NEW_FALCON].n != 0;
    if (!new) {
        v[F_KV_HEADS].n = v[F_MULTI_QUERY].n ? 1 : v[F_HEADS].n;
        v[F_KV_HEADS].bad = v[F_HEADS].bad || v[F_MULTI_QUERY].bad;
    }
    v[F_SHARED_NORM].n =
        v[F_PARALLEL].n && (!new || v[F_PARALLEL_NORMS].n == 1);
    if (new && !v[F_PARALLEL].n && !v[F_PARALLEL].bad)
        import_error(im, import_at(im, F_PARALLEL), MEMPLAN_E_UNSUPPORTED,
                     "a new falcon decoder without 'parallel_attn' is not "
                     "modelled");
}

/* Qwen 1: half of intermediate_size for each of the two parallel matrices. */
static void fix_qwen(struct import *im)
{
    struct value *f = &im->v[F_FFN];
    if (f->bad)
        return;
    if (f->n % 2 != 0) {
        memplan_error *e =
            import_error(im, import_at(im, F_FFN), MEMPLAN_E_CONFLICT,
                         "'%s' (%" PRIu64 ") must be even in a 'qwen' model",
                         import_key(im, F_FFN), f->n);
        diag_hint(e, "it is twice the width of a matrix");
        f->bad = true;
        return;
    }
    f->n /= 2;
}

static void fix_opt(struct import *im)
{
    if (!im->v[F_NORM_FIRST].n)
        im->v[F_FINAL_NORM].n = 0;
}

/* Shared experts: so many of the expert's width, or one of a width. */
static void fix_shared_experts(struct import *im)
{
    const struct value *n = &im->v[F_SHARED_EXPERTS];
    struct value *width = &im->v[F_SHARED_FFN];
    if (n->bad || width->bad || im->v[F_EXPERT_FFN].bad || n->n == 0)
        return;
    uint64_t sum = n->n * im->v[F_EXPERT_FFN].n;
    if (width->at && width->n != sum) {
        import_error(im, width->at, MEMPLAN_E_CONFLICT,
                     "'%s' is %" PRIu64 ", but %" PRIu64
                     " shared experts are %" PRIu64 " wide",
                     width->at->key.p, width->n, n->n, sum);
        return;
    }
    width->n = sum;
}

/* Two rows of the table are for padding (create_position_ids_from_input_ids):
 * the key counts them. */
static void fix_roberta(struct import *im)
{
    struct value *rows = &im->v[F_MAX_POSITIONS];
    const uint64_t padding = im->v[F_EXTRA_POSITIONS].n;
    if (rows->at && !rows->bad && rows->n > padding)
        rows->n -= padding;
}

/* "relu", "gated-gelu": the latter is GPT-2's gelu written out, in T5Config. */
static void fix_t5(struct import *im)
{
    const struct json *at = json_member(im->object, "feed_forward_proj");
    if (!at || at->kind == JSON_NULL)
        return;
    im->v[F_GATED].n = true;
    if (at->kind == JSON_STRING && str_is(at->text, "gated-gelu")) {
        im->v[F_ACT].n = ACT_GELU_NEW;
    } else if (at->kind == JSON_STRING && str_is(at->text, "gated-silu")) {
        im->v[F_ACT].n = ACT_SILU;
    } else {
        im->v[F_GATED].n = false;
        if (at->kind == JSON_STRING && str_is(at->text, "relu"))
            return;
        memplan_error *e = import_error(im, at, MEMPLAN_E_UNKNOWN,
                                        "'feed_forward_proj' is not known");
        diag_hint(e, "known: relu, gated-gelu, gated-silu");
    }
}

/* Whole patches, and the token of the class. */
static void fix_images(struct import *im)
{
    const struct value *image = &im->v[F_IMAGE], *patch = &im->v[F_PATCH];
    struct value *tokens = &im->v[F_MAX_POSITIONS];
    tokens->bad = image->bad || patch->bad;
    if (tokens->bad)
        return;
    const uint64_t side = image->n / patch->n;
    tokens->at = image->at ? image->at : patch->at;
    tokens->n = side * side + im->v[F_CLASS_TOKEN].n;
    if (side > 0)
        return;
    import_error(im, import_at(im, F_PATCH), MEMPLAN_E_CONFLICT,
                 "'%s' (%" PRIu64 ") exceeds '%s' (%" PRIu64 ")",
                 import_key(im, F_PATCH), patch->n, import_key(im, F_IMAGE),
                 image->n);
    tokens->bad = true;
}

static void fix_whisper(struct import *im)
{
    const struct value *h = &im->v[F_HIDDEN], *a = &im->v[F_DECODER_HEADS];
    if (h->bad || a->bad)
        return;
    if (h->n % 2 != 0) /* sinusoids() */
        import_error(im, import_at(im, F_HIDDEN), MEMPLAN_E_CONFLICT,
                     "'%s' (%" PRIu64 ") must be even: half of a position is "
                     "sines, half cosines",
                     import_key(im, F_HIDDEN), h->n);
}

/* A head of the decoder is as wide as divides the hidden size. */
static void check_decoder_heads(struct import *im)
{
    const struct value *h = &im->v[F_HIDDEN], *a = &im->v[F_DECODER_HEADS];
    if (h->bad || a->bad || a->n == 0 || h->n % a->n == 0)
        return;
    import_error(im, import_at(im, F_DECODER_HEADS), MEMPLAN_E_CONFLICT,
                 "'%s' (%" PRIu64 ") does not divide '%s' (%" PRIu64 ")",
                 import_key(im, F_DECODER_HEADS), a->n,
                 import_key(im, F_HIDDEN), h->n);
}

/* Under its older name the class is a DiT by the kind of its norms only
 * (diffusers, models/model_loading_utils.py, _fetch_remapped_cls_from_config).
 */
static void check_dit_norm(struct import *im)
{
    const struct json *at = json_member(im->object, "norm_type");
    if (at ? at->kind == JSON_STRING
           : strcmp(im->model_type, "Transformer2DModel") != 0)
        return;
    memplan_error *e =
        at ? import_error(im, at, MEMPLAN_E_SCHEMA,
                          "'norm_type' must be a string, not %s",
                          json_kind_name(at->kind))
           : import_error(im, im->object, MEMPLAN_E_SCHEMA,
                          "'norm_type' is missing in a 'Transformer2DModel'");
    diag_hint(e, "a DiT says \"norm_type\": \"ada_norm_zero\"");
}

/* A token a patch. The original's output has a variance for each channel. */
static void fix_dit(struct import *im)
{
    struct value *v = im->v;
    const struct value *image = &v[F_IMAGE], *patch = &v[F_PATCH];
    if (im->family == FAM_DIT_DIFFUSERS) {
        v[F_HIDDEN] =
            (struct value){ .n = v[F_HEADS].n * v[F_HEAD_DIM].n,
                            .bad = v[F_HEADS].bad || v[F_HEAD_DIM].bad };
        v[F_EMBED_DIM] = v[F_HIDDEN];
        v[F_FFN].n = 4 * v[F_HIDDEN].n;
        check_dit_norm(im);
    } else {
        v[F_OUT_CHANNELS].n = v[F_CHANNELS].n * (v[F_LEARN_SIGMA].n ? 2 : 1);
    }
    fix_images(im);
    if (image->bad || patch->bad || image->n % patch->n == 0)
        return;
    memplan_error *e = import_error(
        im, import_at(im, F_PATCH), MEMPLAN_E_CONFLICT,
        "'%s' (%" PRIu64 ") does not divide '%s' (%" PRIu64 ")",
        import_key(im, F_PATCH), patch->n, import_key(im, F_IMAGE), image->n);
    diag_hint(e, "an image is made of whole patches");
}

/* Every width the generic types can do without, and those they cannot. */
static void fix_generic(struct import *im)
{
    struct value *v = im->v;
    if (v[F_SHARED_NORM].n && !v[F_PARALLEL].n && !v[F_PARALLEL].bad)
        import_error(im, import_at(im, F_SHARED_NORM), MEMPLAN_E_CONFLICT,
                     "'shared_norm' needs 'parallel_residual'");
    if (v[F_ACT].n == ACT_SWIGLU) {
        v[F_ACT].n = ACT_SILU;
        if (!v[F_GATED].n && !v[F_GATED].bad)
            import_error(im, import_at(im, F_GATED), MEMPLAN_E_CONFLICT,
                         "'hidden_act' is swiglu, but 'gated_mlp' is false");
    }
    bool all_sparse = v[F_EXPERTS].n > 0 && v[F_EXPERT_FFN].at
                      && v[F_FIRST_DENSE].n == 0 && v[F_MOE_EVERY].n == 1;
    if (v[F_FFN].at)
        ;
    else if (all_sparse)
        v[F_FFN] = (struct value){ .n = v[F_EXPERT_FFN].n,
                                   .bad = v[F_EXPERT_FFN].bad };
    else if (v[F_GATED].n)
        import_missing(im, F_FFN);
    else
        v[F_FFN] =
            (struct value){ .n = 4 * v[F_HIDDEN].n, .bad = v[F_HIDDEN].bad };
    if (v[F_EXPERTS].n == 0)
        return;
    if (!v[F_EXPERT_FFN].at)
        v[F_EXPERT_FFN] =
            (struct value){ .n = v[F_FFN].n, .bad = v[F_FFN].bad };
    if (!v[F_EXPERTS_PER_TOKEN].at)
        import_missing(im, F_EXPERTS_PER_TOKEN);
}

/* 13B has alibi, under the same name; only the width tells. NormHead is of
 * version 2, which has the larger vocabulary. */
static void fix_baichuan(struct import *im)
{
    enum { BAICHUAN1_VOCAB = 64000, HIDDEN_13B = 5120 };
    struct value *v = im->v;
    v[F_HEAD_NORM].n = v[F_VOCAB].n != BAICHUAN1_VOCAB;
    if (v[F_HIDDEN].n == HIDDEN_13B)
        v[F_POSITION].n = POS_ALIBI;
}

/* Both ways to the inner width agree (Mamba2Config.validate_architecture). */
static void fix_mamba2(struct import *im)
{
    struct value *v = im->v;
    struct value *heads = &v[F_SSM_HEADS];
    if (heads->bad || v[F_SSM_HEAD_DIM].bad || v[F_SSM_INNER].bad)
        return;
    const uint64_t width = heads->n * v[F_SSM_HEAD_DIM].n;
    if (width == v[F_SSM_INNER].n)
        return;
    memplan_error *e =
        import_error(im, import_at(im, F_SSM_HEADS), MEMPLAN_E_CONFLICT,
                     "%" PRIu64 " heads of %" PRIu64 " are %" PRIu64
                     " channels, but 'expand' times 'hidden_size' is %" PRIu64,
                     heads->n, v[F_SSM_HEAD_DIM].n, width, v[F_SSM_INNER].n);
    diag_hint(e, "change 'num_heads', 'head_dim', 'expand' or 'hidden_size'");
    heads->bad = true;
}

/* Fewer than two experts: an MLP (JambaMambaDecoderLayer). */
static void fix_jamba(struct import *im)
{
    struct value *v = im->v;
    if (v[F_EXPERTS].n == 1)
        v[F_EXPERTS].n = 0;
    if (v[F_EXPERTS].n == 0)
        v[F_EXPERTS_PER_TOKEN].n = v[F_EXPERT_FFN].n = 0;
}

/* A list of [[types], times]. Which layers are local changes no size. */
static void fix_gpt_neo(struct import *im)
{
    const struct json *at = json_member(im->object, "attention_types");
    if (!at || at->kind == JSON_NULL || at->kind == JSON_ARRAY)
        return;
    memplan_error *e = import_error(im, at, MEMPLAN_E_SCHEMA,
                                    "'attention_types' must be a list, not %s",
                                    json_kind_name(at->kind));
    diag_hint(e, "[[[\"global\", \"local\"], 12]] is 24 layers");
}

static void fix_family(struct import *im)
{
    if (im->family == FAM_FALCON)
        fix_falcon(im);
    else if (im->family == FAM_QWEN)
        fix_qwen(im);
    else if (im->family == FAM_OPT)
        fix_opt(im);
    else if (im->family == FAM_ROBERTA)
        fix_roberta(im);
    else if (im->family == FAM_BAICHUAN)
        fix_baichuan(im);
    else if (im->family == FAM_VIT || family_is_vision(im->family))
        fix_images(im);
    else if (im->family == FAM_DIT || im->family == FAM_DIT_DIFFUSERS)
        fix_dit(im);
    else if (im->family == FAM_WHISPER)
        fix_whisper(im);
    else if (im->family == FAM_T5 || im->family == FAM_MT5)
        fix_t5(im);
    else if (im->family == FAM_MAMBA2)
        fix_mamba2(im);
    else if (im->family == FAM_JAMBA)
        fix_jamba(im);
    else if (im->family == FAM_GPT_NEO)
        fix_gpt_neo(im);
    else if (import_is_generic(im))
        fix_generic(im);
    if (im->v[F_EXPERTS].n > 0)
        fix_shared_experts(im);
}

/* ---- fields together ---- */

static void divisors(char *buf, size_t size, uint64_t n)
{
    enum { MOST = 16 };
    int found = 0;
    buf[0] = '\0';
    for (uint64_t i = 1; i <= n && found < MOST; i++) {
        if (n % i == 0)
            str_append(buf, size, "%s%" PRIu64, found++ ? ", " : "", i);
    }
}

static void check_heads(struct import *im)
{
    const struct value *h = &im->v[F_HEADS], *kv = &im->v[F_KV_HEADS];
    if (h->bad || kv->bad || kv->n == 0 || h->n % kv->n == 0)
        return;
    char list[200];
    memplan_error *e = import_error(
        im, import_at(im, F_KV_HEADS), MEMPLAN_E_CONFLICT,
        "'%s' (%" PRIu64 ") does not divide '%s' (%" PRIu64 ")",
        import_key(im, F_KV_HEADS), kv->n, import_key(im, F_HEADS), h->n);
    divisors(list, sizeof(list), h->n);
    diag_hint(e, "use one of %s", list);
}

static void check_positions(struct import *im)
{
    struct value *v = im->v;
    if (v[F_POSITION].bad)
        return;
    if (v[F_POSITION].n == POS_LEARNED && !v[F_MAX_POSITIONS].at
        && !v[F_MAX_POSITIONS].bad && v[F_MAX_POSITIONS].n == 0)
        import_missing(im, F_MAX_POSITIONS);
    if (v[F_POSITION].n != POS_ROPE) {
        v[F_ROTARY_DIM].n = 0;
        return;
    }
    if (v[F_HEAD_DIM].bad || v[F_ROTARY_PART].bad || v[F_ROTARY_DIM].bad)
        return;
    if (v[F_ROTARY_DIM].n == 0)
        v[F_ROTARY_DIM].n =
            (uint64_t)floor((double)v[F_HEAD_DIM].n * v[F_ROTARY_PART].x);
    if (v[F_ROTARY_DIM].n > v[F_HEAD_DIM].n)
        import_error(im, import_at(im, F_ROTARY_DIM), MEMPLAN_E_CONFLICT,
                     "'rotary_dim' (%" PRIu64 ") exceeds the width of a head "
                     "(%" PRIu64 ")",
                     v[F_ROTARY_DIM].n, v[F_HEAD_DIM].n);
}

/* Classes that build their experts whatever the file says: of none they would
 * make a model that does not run. */
static bool needs_experts(enum family family)
{
    static const enum family all[] = {
        FAM_MIXTRAL,     FAM_OLMOE,        FAM_GRANITEMOE, FAM_PHIMOE,
        FAM_DBRX,        FAM_GPT_OSS,      FAM_GLM4_MOE,   FAM_DOTS1,
        FAM_DEEPSEEK_V3, FAM_DEEPSEEK_V32, FAM_ERNIE_MOE,  FAM_LLAMA4,
        FAM_GROK,
    };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        if (all[i] == family)
            return true;
    }
    return false;
}

static void no_experts(struct import *im)
{
    memplan_error *e =
        import_error(im, import_at(im, F_EXPERTS), MEMPLAN_E_RANGE,
                     "'%s' is 0, but a '%s' model has experts",
                     import_key(im, F_EXPERTS), family_name(im->family));
    diag_hint(e, "a dense model is of another 'model_type'");
}

static void check_experts(struct import *im)
{
    static const enum field_id parts[] = {
        F_EXPERTS_PER_TOKEN, F_EXPERT_FFN,  F_SHARED_EXPERTS,
        F_SHARED_FFN,        F_FIRST_DENSE, F_ROUTER_BIAS,
    };
    struct value *v = im->v;
    if (v[F_EXPERTS].bad)
        return;
    if (v[F_EXPERTS].n == 0 && needs_experts(im->family)) {
        no_experts(im);
        return;
    }
    const bool said = v[F_EXPERTS].at != NULL; /* that there are none */
    for (size_t i = 0; i < COUNT_OF(parts) && v[F_EXPERTS].n == 0; i++) {
        struct value *part = &v[parts[i]];
        if (part->at && part->n > 0 && !said)
            import_error(im, part->at, MEMPLAN_E_CONFLICT,
                         "'%s' is given, but 'num_experts' is not",
                         part->at->key.p);
    }
    if (v[F_EXPERTS].n == 0) { /* a file may say 0 experts, 2 per token */
        v[F_EXPERTS_PER_TOKEN].n = v[F_EXPERT_FFN].n = v[F_SHARED_FFN].n = 0;
        return;
    }
    if (!v[F_EXPERTS_PER_TOKEN].bad
        && v[F_EXPERTS_PER_TOKEN].n > v[F_EXPERTS].n)
        import_error(im, import_at(im, F_EXPERTS_PER_TOKEN), MEMPLAN_E_CONFLICT,
                     "'%s' (%" PRIu64 ") exceeds '%s' (%" PRIu64 ")",
                     import_key(im, F_EXPERTS_PER_TOKEN),
                     v[F_EXPERTS_PER_TOKEN].n, import_key(im, F_EXPERTS),
                     v[F_EXPERTS].n);
    if (!v[F_LAYERS].bad && v[F_FIRST_DENSE].at
        && v[F_FIRST_DENSE].n > v[F_LAYERS].n)
        import_error(im, import_at(im, F_FIRST_DENSE), MEMPLAN_E_CONFLICT,
                     "'%s' (%" PRIu64 ") exceeds '%s' (%" PRIu64 ")",
                     import_key(im, F_FIRST_DENSE), v[F_FIRST_DENSE].n,
                     import_key(im, F_LAYERS), v[F_LAYERS].n);
}

/* Latent attention has four widths, all or none: a key head a query head,
 * and its own rotary part whatever else tells positions. */
static void check_latent(struct import *im)
{
    static const enum field_id parts[] = { F_Q_RANK, F_NOPE_DIM, F_ROPE_DIM,
                                           F_V_DIM };
    struct value *v = im->v;
    if (v[F_KV_RANK].bad)
        return;
    const bool latent = v[F_KV_RANK].n > 0;
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        struct value *part = &v[parts[i]];
        if (!latent && part->at && part->n > 0)
            import_error(im, part->at, MEMPLAN_E_CONFLICT,
                         "'%s' is given, but 'kv_lora_rank' is not",
                         part->at->key.p);
        else if (latent && parts[i] != F_Q_RANK && part->n == 0 && !part->bad)
            import_missing(im, parts[i]);
    }
    if (!latent)
        return;
    v[F_KV_HEADS] = v[F_HEADS];
    v[F_HEAD_DIM] =
        (struct value){ .n = v[F_NOPE_DIM].n + v[F_ROPE_DIM].n,
                        .bad = v[F_NOPE_DIM].bad || v[F_ROPE_DIM].bad };
    if (v[F_INDEX_HEADS].n > 0 && v[F_Q_RANK].n == 0 && !v[F_Q_RANK].bad)
        import_error(im, import_at(im, F_Q_RANK), MEMPLAN_E_CONFLICT,
                     "'%s' is 0, but the indexer takes compressed queries",
                     import_key(im, F_Q_RANK));
    if (v[F_INDEX_HEADS].n > 0 && !v[F_INDEX_DIM].bad && !v[F_ROPE_DIM].bad
        && v[F_INDEX_DIM].n < v[F_ROPE_DIM].n)
        import_error(im, import_at(im, F_INDEX_DIM), MEMPLAN_E_CONFLICT,
                     "'%s' (%" PRIu64 ") is less than '%s' (%" PRIu64
                     "), which is a part of it",
                     import_key(im, F_INDEX_DIM), v[F_INDEX_DIM].n,
                     import_key(im, F_ROPE_DIM), v[F_ROPE_DIM].n);
    v[F_LATENT_NORM].n = !v[F_HAS_QK_NORM].at || v[F_HAS_QK_NORM].n;
    v[F_QK_NORM].n = QK_NONE;
    v[F_ROTARY_DIM].n = v[F_ROPE_DIM].n;
}

static void check_offset(struct import *im, enum field_id at,
                         enum field_id every)
{
    const struct value *v = im->v;
    if (v[at].bad || v[every].bad || v[every].n == 0 || v[at].n < v[every].n)
        return;
    memplan_error *e = import_error(
        im, import_at(im, at), MEMPLAN_E_CONFLICT,
        "'%s' (%" PRIu64 ") must be below '%s' (%" PRIu64 ")",
        import_key(im, at), v[at].n, import_key(im, every), v[every].n);
    diag_hint(e, "the first layer is number 0");
}

/* Heads of a state-space layer share their groups' B and C evenly. */
static void check_ssm(struct import *im)
{
    const struct value *heads = &im->v[F_SSM_HEADS];
    const struct value *groups = &im->v[F_SSM_GROUPS];
    if (im->family == FAM_JAMBA) {
        check_offset(im, F_ATTENDS_AT, F_ATTENDS_EVERY);
        check_offset(im, F_MOE_AT, F_MOE_EVERY);
    }
    if (groups->n == 0 || heads->bad || groups->bad
        || heads->n % groups->n == 0)
        return;
    memplan_error *e =
        import_error(im, import_at(im, F_SSM_GROUPS), MEMPLAN_E_CONFLICT,
                     "'%s' (%" PRIu64 ") does not divide '%s' (%" PRIu64 ")",
                     import_key(im, F_SSM_GROUPS), groups->n,
                     import_key(im, F_SSM_HEADS), heads->n);
    char list[200];
    divisors(list, sizeof(list), heads->n);
    diag_hint(e, "use one of %s", list);
}

/* A whole says it where its text part does not. */
static void tie_by_whole(struct import *im)
{
    const struct json *at = json_member(im->root, "tie_word_embeddings");
    struct value *tied = &im->v[F_TIED];
    if (im->object == im->root || tied->at || im->keys[F_TIED][0] == '\0' || !at
        || at->kind != JSON_BOOL)
        return;
    tied->at = at;
    tied->n = at->truth;
}

static void settle(struct import *im)
{
    struct value *v = im->v;
    tie_by_whole(im);
    fix_family(im);
    import_class(im);
    check_latent(im);
    check_heads(im);
    check_decoder_heads(im);
    check_positions(im);
    check_experts(im);
    check_ssm(im);
    if (!v[F_USE_SLIDING].n)
        v[F_SLIDING_WINDOW].n = 0;
    if (v[F_SLIDING_WINDOW].n == 0)
        v[F_SLIDING_EVERY].n = v[F_SLIDING_FROM].n = 0;
}

/* ---- the file ---- */

static void check_version(struct import *im)
{
    const struct json *at = json_member(im->root, "memplan");
    im->strict = at != NULL;
    if (!at || (at->kind == JSON_NUMBER && at->number >= 1 && at->number <= 1))
        return;
    memplan_error *e;
    if (at->kind == JSON_NUMBER)
        e = import_error(im, at, MEMPLAN_E_UNSUPPORTED,
                         "this format version is not known");
    else
        e = import_error(im, at, MEMPLAN_E_SCHEMA,
                         "'memplan' must be a number, not %s",
                         json_kind_name(at->kind));
    diag_hint(e, "write \"memplan\": 1");
}

/* A string of the file, in the spec's arena; "" when there is none. In a plain
 * config.json these keys are anybody's, and other kinds are passed over. */
static const char *import_text(struct import *im, const char *key,
                               struct arena *a)
{
    const struct json *at = json_member(im->root, key);
    if (!at || at->kind == JSON_NULL)
        return "";
    if (at->kind == JSON_STRING)
        return arena_copy(a, at->text.p, at->text.n);
    if (im->strict)
        import_error(im, at, MEMPLAN_E_SCHEMA, "'%s' must be a string, not %s",
                     key, json_kind_name(at->kind));
    return "";
}

static void import_head(struct spec *out, struct import *im, const char *name,
                        struct arena *a)
{
    static const double exact_max = 9007199254740992.0; /* 2^53 */
    const struct json *at = json_member(im->root, "parameters");
    if (im->strict && at && at->kind != JSON_NULL)
        (void)import_count(im, at, 1, exact_max, &out->published_parameters);
    out->source = import_text(im, "source", a);
    out->name = import_text(im, "name", a);
    if (out->name && out->name[0] == '\0' && name)
        out->name = arena_copy(a, name, strlen(name));
}

void import_object(struct import *im, struct spec *out, struct arena *a)
{
    import_rules(im);
    import_keys(im);
    import_fields(im);
    settle(im);
    import_store(out, im);
    import_layers(im, out, a);
    if (im->family == FAM_CONVNET)
        import_convnet(im, out, a);
    out->family = im->family;
    out->model_type = arena_copy(a, im->model_type, strlen(im->model_type));
    out->read_as = im->as != NULL;
    out->learned_positions =
        out->position == POS_LEARNED || im->family == FAM_LLAMA4_VISION
            ? out->max_positions + im->v[F_EXTRA_POSITIONS].n
            : 0;
    import_notes(im, out, a);
}

memplan_status spec_import(struct spec *out, const struct spec_text *in,
                           struct arena *a, struct diag *d)
{
    const struct json *root = in->root;
    struct import im = {
        .root = root, .text = in->text, .len = in->len, .as = in->as, .d = d
    };
    *out = (struct spec){ .name = "", .source = "", .model_type = "" };
    im.object = root;
    if (root->kind != JSON_OBJECT) {
        import_error(&im, root, MEMPLAN_E_SCHEMA,
                     "a model specification is an object, not %s",
                     json_kind_name(root->kind));
        return d->status;
    }
    check_version(&im);
    import_head(out, &im, in->name, a);
    if (choose_family(&im)) {
        import_object(&im, out, a);
        import_parts(&im, out, a);
    }
    if (!out->name || !out->source || !out->model_type)
        return diag_nomem(d);
    return d->status;
}
