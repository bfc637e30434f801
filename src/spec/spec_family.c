/*
 * Owns which family a file is of: by model_type, by class, by what the caller
 * says, and what is said where none is known. Refuses to read fields.
 */
#include "spec/import.h"

#include <inttypes.h>
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
    { "Qwen3_5ForCausalLM", FAM_QWEN3_5 },
    { "Qwen3_5MoeForCausalLM", FAM_QWEN3_5_MOE },
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
    { "xlm-roberta", FAM_ROBERTA }, /* RoBERTa's code, other words */
    { "XLMRobertaForMaskedLM", FAM_ROBERTA },
    { "XLMRobertaForSequenceClassification", FAM_ROBERTA },
    { "XLMRobertaForTokenClassification", FAM_ROBERTA },
    { "XLMRobertaForQuestionAnswering", FAM_ROBERTA },
    { "XLMRobertaModel", FAM_ROBERTA },
    { "camembert", FAM_ROBERTA },
    { "CamembertForMaskedLM", FAM_ROBERTA },
    { "CamembertForSequenceClassification", FAM_ROBERTA },
    { "CamembertForTokenClassification", FAM_ROBERTA },
    { "CamembertForQuestionAnswering", FAM_ROBERTA },
    { "CamembertModel", FAM_ROBERTA },
    { "DistilBertForMaskedLM", FAM_DISTILBERT },
    { "DistilBertForSequenceClassification", FAM_DISTILBERT },
    { "DistilBertForTokenClassification", FAM_DISTILBERT },
    { "DistilBertForQuestionAnswering", FAM_DISTILBERT },
    { "ArceeForCausalLM", FAM_ARCEE },
    { "HeliumForCausalLM", FAM_HELIUM },
    { "InternLM3ForCausalLM", FAM_INTERNLM3 },
    { "Ministral3ForCausalLM", FAM_MINISTRAL3 },
    { "CwmForCausalLM", FAM_CWM },
    { "Jais2ForCausalLM", FAM_JAIS2 },
    { "HyperCLOVAXForCausalLM", FAM_HYPERCLOVAX },
    { "YoutuForCausalLM", FAM_YOUTU },
    { "MiniMaxM2ForCausalLM", FAM_MINIMAX_M2 },
    { "SolarOpenForCausalLM", FAM_SOLAR_OPEN },
    { "Glm4MoeLiteForCausalLM", FAM_GLM4_MOE_LITE },
    { "FlexOlmoForCausalLM", FAM_FLEX_OLMO },
    { "ExaoneMoeForCausalLM", FAM_EXAONE_MOE },
    { "VaultGemmaForCausalLM", FAM_VAULTGEMMA },
    { "GraniteMoeSharedForCausalLM", FAM_GRANITEMOES },
    { "GraniteMoeHybridForCausalLM", FAM_GRANITE_HYB },
    { "BambaForCausalLM", FAM_BAMBA },
    { "NemotronHForCausalLM", FAM_NEMOTRON_H },
    { "FalconH1ForCausalLM", FAM_FALCON_H1 },
    { "Lfm2ForCausalLM", FAM_LFM2 },
    { "Lfm2MoeForCausalLM", FAM_LFM2_MOE },
    { "T5ForConditionalGeneration", FAM_T5 },
    { "MT5ForConditionalGeneration", FAM_MT5 },
    { "UMT5ForConditionalGeneration", FAM_UMT5 },
    { "BartForConditionalGeneration", FAM_BART },
    { "WhisperForConditionalGeneration", FAM_WHISPER },
    { "WhisperModel", FAM_WHISPER },
    { "Transformer2DModel", FAM_DIT_DIFFUSERS }, /* which it was part of */
    { "ViTForImageClassification", FAM_VIT },
    { "ViTModel", FAM_VIT },
    { "qwen3_vl_moe_vision", FAM_QWEN3_VISION },
    { "qwen3_5_vision", FAM_QWEN3_VISION },
    { "qwen3_5_moe_vision", FAM_QWEN3_VISION },
};

/* Keys of a family's that a class of it has not. */
static const struct {
    const char *type, *key;
} lacking[] = {
    { "qwen3_5_vision", "deepstack_visual_indexes" },
    { "qwen3_5_moe_vision", "deepstack_visual_indexes" },
};

/* ---- which family ---- */

bool import_lacks(const struct import *im, const char *key)
{
    for (size_t i = 0; i < COUNT_OF(lacking); i++)
        if (strcmp(im->model_type, lacking[i].type) == 0
            && strcmp(key, lacking[i].key) == 0)
            return true;
    return false;
}

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
        if (family_is_part((enum family)i))
            continue;
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

/* The nearest one, and those that the keys do not tell from it. */
static void hint_nearest(memplan_error *e, const struct nearest *near)
{
    enum { ROOM = 40 }; /* for the words between, and after the last one */
    str_append(e->hint, sizeof(e->hint),
               "the fields are those of '%s': if the layers are too, --as %s "
               "reads it so",
               near->name[0], near->name[0]);
    for (size_t i = 1; i < near->n; i++) {
        const size_t left = sizeof(e->hint) - strlen(e->hint);
        const bool fits = strlen(near->name[i]) + ROOM < left;
        str_append(e->hint, sizeof(e->hint), "%s%s",
                   i > 1 ? ", " : "; they are as much those of ",
                   fits ? near->name[i] : "others");
        if (!fits)
            return;
    }
}

static void unknown_family(struct import *im, const struct json *at)
{
    memplan_error *e = import_error(im, at, MEMPLAN_E_UNKNOWN,
                                    "unknown model type '%.60s'", at->text.p);
    const char *best = near_family(at->text);
    const bool open = !im->strict && im->as == NULL;
    const char *tell = NULL;
    const char *whole = open ? import_nearest_whole(im, &tell) : NULL;
    struct nearest near;
    import_nearest(
        im, at->parent->kind == JSON_ARRAY ? at->parent->parent : at->parent,
        &near);
    if (best)
        str_append(e->hint, sizeof(e->hint), "the nearest name is '%s'; ",
                   best);
    if (whole)
        str_append(
            e->hint, sizeof(e->hint),
            "'%s' is a key of '%s' files: if the rest is, --as %s reads it "
            "so",
            tell, whole, whole);
    else if (open && at->parent == im->root && import_has_parts(im))
        str_append(e->hint, sizeof(e->hint),
                   "its file has a 'text_config' and a 'vision_config': if "
                   "what joins them is a projector as LLaVA's, --as llava "
                   "reads it so");
    else if (near.n > 0)
        hint_nearest(e, &near);
    else
        str_append(e->hint, sizeof(e->hint),
                   "a decoder (or encoder) of any name can be written as "
                   "\"model_type\": \"decoder\" with the keys of that type");
}

static void no_family(struct import *im, const struct json *at)
{
    char list[250] = "";
    if (at && at->kind == JSON_STRING && strlen(at->text.p) < at->text.n) {
        memplan_error *e = import_error(im, at, MEMPLAN_E_SCHEMA,
                                        "the model type has a NUL inside");
        diag_hint(e, "take \\u0000 out of it");
        return;
    }
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

/* The family that an object says, else the one that it is like; FAM_COUNT. */
static enum family family_of(struct import *im, const struct json *object)
{
    const struct json *at = type_of(object);
    enum family family;
    if (at && at->kind == JSON_STRING && find_family(at->text, &family))
        return family;
    struct nearest near;
    import_nearest(im, object, &near);
    for (size_t i = 0; i < near.n; i++) {
        if (find_family(str_of(near.name[i]), &family) && family == im->family)
            return family;
    }
    return near.n > 0 && find_family(str_of(near.name[0]), &family) ? family
                                                                    : FAM_COUNT;
}

/* A size that the file gives under a name which the family does not read would
 * be the class's own, and nobody would know. */
static bool fits_named_family(struct import *im)
{
    const enum family like = family_of(im, im->object);
    const struct json *at = like != im->family ? import_unread(im, like) : NULL;
    if (at == NULL)
        return true;
    memplan_error *e = import_error(im, at, MEMPLAN_E_CONFLICT,
                                    "--as %.40s: '%.40s' is not read by it",
                                    im->as, at->key.p);
    if (like != FAM_COUNT)
        diag_hint(e, "the fields are those of '%s'", family_name(like));
    else
        diag_hint(e, "its class default would stand in for it: name a family "
                     "that has this key");
    return false;
}

/* What the caller says the file is. */
static bool has_named_family(struct import *im, const struct json *nested)
{
    im->object = !im->strict && nested && nested->kind == JSON_OBJECT
                     ? nested
                     : im->root;
    im->model_type = im->as;
    if (find_family(str_of(im->as), &im->family))
        return fits_named_family(im);
    const struct json *object = im->object;
    const char *part = import_whole_text(im->as);
    if (part != NULL) {
        memplan_error *e =
            diag_add(im->d, MEMPLAN_E_UNSUPPORTED,
                     "--as names one model, and '%.60s' is several", im->as);
        diag_hint(e,
                  "the file has no 'text_config' and 'vision_config'; a "
                  "text part by itself is of type %s",
                  part);
        return false;
    }
    memplan_error *e = diag_add(im->d, MEMPLAN_E_UNKNOWN,
                                "--as: unknown model type '%.60s'", im->as);
    const char *best = near_family(str_of(im->as));
    struct nearest near;
    import_nearest(im, object, &near);
    if (best)
        diag_hint(e, "did you mean '%s'?", best);
    else if (near.n > 0)
        diag_hint(e, "the fields are those of '%s'", near.name[0]);
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
        || (nested != im->root && im->as == NULL && type_of(nested) != NULL)
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
    memplan_error *e = import_error(
        im, nested ? nested : im->root, MEMPLAN_E_SCHEMA,
        "a '%.60s' file needs a 'text_config' with a 'model_type', and it is "
        "%s",
        at->text.p,
        nested ? json_kind_name(nested->kind) : "null or not there");
    diag_hint(e, "\"text_config\": {\"model_type\": \"%s\", ...}", part);
    return true;
}

/* A nested language model comes first: the top of such a file describes a
 * whole. */
bool import_choose_family(struct import *im)
{
    const struct json *nested = import_text_part(im);
    const bool whole = im->as && import_whole_text(im->as);
    if (im->as && !(whole && !im->strict && import_has_parts(im)))
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
    const struct json *type =
        !im->strict && nested && nested->kind == JSON_OBJECT ? type_of(nested)
                                                             : NULL;
    if (type)
        no_family(im, type);
    else if (!lacks_text_config(im, nested))
        no_family(im, type_of(im->root));
    return false;
}

bool spec_translates_targets(const struct spec *spec)
{
    static const enum family fused[] = {
        FAM_MIXTRAL,     FAM_OLMOE,         FAM_QWEN3_MOE,    FAM_QWEN3_NEXT,
        FAM_QWEN3_5_MOE, FAM_GLM4_MOE,      FAM_DOTS1,        FAM_ERNIE_MOE,
        FAM_DEEPSEEK_V2, FAM_DEEPSEEK_V3,   FAM_DEEPSEEK_V32, FAM_MINIMAX_M2,
        FAM_SOLAR_OPEN,  FAM_GLM4_MOE_LITE, FAM_FLEX_OLMO,    FAM_EXAONE_MOE,
    };
    for (size_t i = 0; i < sizeof(fused) / sizeof(fused[0]); i++) {
        if (fused[i] == spec->family)
            return spec->experts > 0;
    }
    return false;
}
