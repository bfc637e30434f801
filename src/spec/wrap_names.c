/*
 * Owns what classes call a layer: for the names in Accelerate's files. Refuses
 * to know models of several parts, and what is made of a wrong one.
 */
#include "spec/wrap_names.h"

#include <string.h>

#include "base/banned.h"

static const struct {
    const char *type, *name;
} layers[] = {
    { "llama", "LlamaDecoderLayer" },
    { "mistral", "MistralDecoderLayer" },
    { "mixtral", "MixtralDecoderLayer" },
    { "qwen2", "Qwen2DecoderLayer" },
    { "qwen3", "Qwen3DecoderLayer" },
    { "qwen2_moe", "Qwen2MoeDecoderLayer" },
    { "qwen3_moe", "Qwen3MoeDecoderLayer" },
    { "gemma", "GemmaDecoderLayer" },
    { "gemma2", "Gemma2DecoderLayer" },
    { "gemma3_text", "Gemma3DecoderLayer" },
    { "gpt2", "GPT2Block" },
    { "gpt_neo", "GPTNeoBlock" },
    { "gpt_neox", "GPTNeoXLayer" },
    { "gptj", "GPTJBlock" },
    { "opt", "OPTDecoderLayer" },
    { "bloom", "BloomBlock" },
    { "falcon", "FalconDecoderLayer" },
    { "phi", "PhiDecoderLayer" },
    { "phi3", "Phi3DecoderLayer" },
    { "mpt", "MptBlock" },
    { "gpt_bigcode", "GPTBigCodeBlock" },
    { "starcoder2", "Starcoder2DecoderLayer" },
    { "stablelm", "StableLmDecoderLayer" },
    { "cohere", "CohereDecoderLayer" },
    { "cohere2", "Cohere2DecoderLayer" },
    { "olmo", "OlmoDecoderLayer" },
    { "olmo2", "Olmo2DecoderLayer" },
    { "olmoe", "OlmoeDecoderLayer" },
    { "granite", "GraniteDecoderLayer" },
    { "granitemoe", "GraniteMoeDecoderLayer" },
    { "smollm3", "SmolLM3DecoderLayer" },
    { "bert", "BertLayer" },
    { "roberta", "RobertaLayer" },
    { "t5", "T5Block" },
    { "mt5", "MT5Block" },
    { "umt5", "UMT5Block" },
    { "vit", "ViTLayer" },
    { "deepseek_v2", "DeepseekV2DecoderLayer" },
    { "deepseek_v3", "DeepseekV3DecoderLayer" },
    { "glm4_moe", "Glm4MoeDecoderLayer" },
    { "gpt_oss", "GptOssDecoderLayer" },
    { "dbrx", "DbrxBlock" },
    { "qwen3_next", "Qwen3NextDecoderLayer" },
    { "llama4_text", "Llama4TextDecoderLayer" },
    { "dots1", "Dots1DecoderLayer" },
    { "exaone4", "Exaone4DecoderLayer" },
    { "nemotron", "NemotronDecoderLayer" },
    { "ministral3", "Ministral3DecoderLayer" },
    { "minimax_m2", "MiniMaxM2DecoderLayer" },
    { "glm4_moe_lite", "Glm4MoeLiteDecoderLayer" },
};
enum { LAYERS = sizeof(layers) / sizeof(layers[0]) };
_Static_assert(LAYERS <= 64, "a bit for each");

uint64_t wrap_name_bit(struct str name)
{
    for (unsigned i = 0; i < LAYERS; i++)
        if (str_is(name, layers[i].name))
            return UINT64_C(1) << i;
    return 0;
}

uint64_t wrap_names_of(const struct spec *spec)
{
    if (spec->vision != NULL)
        return 0;
    for (unsigned i = 0; i < LAYERS; i++)
        if (strcmp(spec->model_type, layers[i].type) == 0)
            return UINT64_C(1) << i;
    return 0;
}

const char *wrap_names_text(uint64_t set, char buf[WRAP_NAMES_TEXT])
{
    buf[0] = '\0';
    for (unsigned i = 0; i < LAYERS; i++)
        if ((set >> i & 1) != 0)
            str_append_item(buf, WRAP_NAMES_TEXT, layers[i].name);
    return buf;
}
