/*
 * Owns what classes call their modules: for PEFT matches by name. Refuses to
 * know the rest of PEFT's file, config_peft.c does, and what is made of a name
 * that a model has not.
 */
#include "spec/peft_names.h"

#include <string.h>

#include "base/banned.h"

enum {
    Q = 1 << LORA_Q,
    K = 1 << LORA_K,
    V = 1 << LORA_V,
    O = 1 << LORA_O,
    GATE = 1 << LORA_GATE,
    UP = 1 << LORA_UP,
    DOWN = 1 << LORA_DOWN,
    IN = 1 << LORA_IN_PROJ,
    X_PROJ = 1 << LORA_X_PROJ,
    OUT = 1 << LORA_OUT_PROJ,
    Q_A = 1 << LORA_Q_A,
    Q_B = 1 << LORA_Q_B,
    KV_A = 1 << LORA_KV_A,
    KV_B = 1 << LORA_KV_B,
    IN_QKVZ = 1 << LORA_IN_QKVZ,
    IN_BA = 1 << LORA_IN_BA,
    IN_QKV = 1 << LORA_IN_QKV,
    IN_Z = 1 << LORA_IN_Z,
    IN_B = 1 << LORA_IN_B,
    IN_A = 1 << LORA_IN_A
};

#define NAME_MAP(X)                                                            \
    X(Q_PROJ, "q_proj", Q)                                                     \
    X(K_PROJ, "k_proj", K)                                                     \
    X(V_PROJ, "v_proj", V)                                                     \
    X(O_PROJ, "o_proj", O)                                                     \
    X(GATE_PROJ, "gate_proj", GATE)                                            \
    X(UP_PROJ, "up_proj", UP)                                                  \
    X(DOWN_PROJ, "down_proj", DOWN)                                            \
    X(FC1, "fc1", UP)                                                          \
    X(FC2, "fc2", DOWN)                                                        \
    X(C_ATTN, "c_attn", Q | K | V)                                             \
    X(QUERY_KEY_VALUE, "query_key_value", Q | K | V)                           \
    X(WQKV, "Wqkv", Q | K | V)                                                 \
    X(QKV_PROJ, "qkv_proj", Q | K | V)                                         \
    X(W_PACK, "W_pack", Q | K | V)                                             \
    X(C_PROJ, "c_proj", O | DOWN)                                              \
    X(MLP_C_PROJ, "mlp.c_proj", DOWN)                                          \
    X(C_FC, "c_fc", UP)                                                        \
    X(H_TO_4H, "dense_h_to_4h", UP)                                            \
    X(TO_H, "dense_4h_to_h", DOWN)                                             \
    X(MLP_TO_H, "mlp.dense_4h_to_h", DOWN)                                     \
    X(GATE_UP_PROJ, "gate_up_proj", GATE | UP)                                 \
    X(FC_IN, "fc_in", UP)                                                      \
    X(FC_OUT, "fc_out", DOWN)                                                  \
    X(IN_PROJ, "in_proj", IN)                                                  \
    X(NAME_X_PROJ, "x_proj", X_PROJ)                                           \
    X(NAME_OUT_PROJ, "out_proj", OUT)                                          \
    X(DENSE, "dense", O)                                                       \
    X(W1, "w1", GATE)                                                          \
    X(W2, "w2", DOWN)                                                          \
    X(W3, "w3", UP)                                                            \
    X(Q_A_PROJ, "q_a_proj", Q_A)                                               \
    X(Q_B_PROJ, "q_b_proj", Q_B)                                               \
    X(KV_A_PROJ, "kv_a_proj_with_mqa", KV_A)                                   \
    X(KV_B_PROJ, "kv_b_proj", KV_B)                                            \
    X(IN_PROJ_QKVZ, "in_proj_qkvz", IN_QKVZ)                                   \
    X(IN_PROJ_BA, "in_proj_ba", IN_BA)                                         \
    X(IN_PROJ_QKV, "in_proj_qkv", IN_QKV)                                      \
    X(IN_PROJ_Z, "in_proj_z", IN_Z)                                            \
    X(IN_PROJ_B, "in_proj_b", IN_B)                                            \
    X(IN_PROJ_A, "in_proj_a", IN_A)

#define NAME_ENUM(id, text, words) AT_##id,
enum { NAME_MAP(NAME_ENUM) NAMES };
#undef NAME_ENUM

static const struct {
    const char *name;
    unsigned words;
} names[] = {
#define NAME_ROW(id, text, words) { text, words },
    NAME_MAP(NAME_ROW)
#undef NAME_ROW
};

#define HAS(id) (UINT64_C(1) << AT_##id)

/* What classes of a kind have. */
#define HAS_QKV (HAS(Q_PROJ) | HAS(K_PROJ) | HAS(V_PROJ))
#define HAS_LLAMA                                                              \
    (HAS_QKV | HAS(O_PROJ) | HAS(GATE_PROJ) | HAS(UP_PROJ) | HAS(DOWN_PROJ))
#define HAS_GPT2 (HAS(C_ATTN) | HAS(C_PROJ) | HAS(MLP_C_PROJ) | HAS(C_FC))
#define HAS_NEOX                                                               \
    (HAS(QUERY_KEY_VALUE) | HAS(DENSE) | HAS(H_TO_4H) | HAS(TO_H)              \
     | HAS(MLP_TO_H))
#define HAS_MLP (HAS(C_FC) | HAS(C_PROJ) | HAS(MLP_C_PROJ))
#define HAS_WS (HAS(W1) | HAS(W2) | HAS(W3))
#define HAS_MIXTRAL (HAS_QKV | HAS(O_PROJ) | HAS_WS)
#define HAS_LFM2 (HAS_QKV | HAS(NAME_OUT_PROJ) | HAS(IN_PROJ) | HAS_WS)

/* Classes with other names yet are not here. PEFT finds experts' parameters by
 * the names that their modules had (utils/transformers_weight_conversion.py). */
static const struct {
    const char *type;
    uint64_t has;
} classes[] = {
    { "llama", HAS_LLAMA },
    { "mistral", HAS_LLAMA },
    { "qwen2", HAS_LLAMA },
    { "qwen3", HAS_LLAMA },
    { "gemma", HAS_LLAMA },
    { "gemma2", HAS_LLAMA },
    { "gemma3_text", HAS_LLAMA },
    { "stablelm", HAS_LLAMA },
    { "olmo", HAS_LLAMA },
    { "olmo2", HAS_LLAMA },
    { "cohere", HAS_LLAMA },
    { "cohere2", HAS_LLAMA },
    { "granite", HAS_LLAMA },
    { "smollm3", HAS_LLAMA },
    { "ministral3", HAS_LLAMA },
    { "cwm", HAS_LLAMA },
    { "hyperclovax", HAS_LLAMA },
    { "vaultgemma", HAS_LLAMA },
    { "phi", HAS_QKV | HAS(DENSE) | HAS(FC1) | HAS(FC2) },
    { "opt", HAS_QKV | HAS(NAME_OUT_PROJ) | HAS(FC1) | HAS(FC2) },
    { "gptj", HAS_QKV | HAS(NAME_OUT_PROJ) | HAS(FC_IN) | HAS(FC_OUT) },
    { "gpt_neo", HAS_QKV | HAS(NAME_OUT_PROJ) | HAS_MLP },
    { "starcoder2", HAS_QKV | HAS(O_PROJ) | HAS_MLP },
    { "gpt2", HAS_GPT2 },
    { "gpt_bigcode", HAS_GPT2 },
    { "gpt_neox", HAS_NEOX },
    { "bloom", HAS_NEOX },
    { "falcon", HAS_NEOX },
    { "mpt", HAS(WQKV) | HAS(NAME_OUT_PROJ) | HAS(UP_PROJ) | HAS(DOWN_PROJ) },
    { "mixtral", HAS_MIXTRAL },
    { "minimax_m2", HAS_MIXTRAL },
    { "lfm2", HAS_LFM2 },
    { "lfm2_moe", HAS_LFM2 },
    { "bamba", HAS_LLAMA | HAS(IN_PROJ) | HAS(NAME_OUT_PROJ) },
    { "falcon_h1", HAS_LLAMA | HAS(IN_PROJ) | HAS(NAME_OUT_PROJ) },
    { "granitemoehybrid",
      HAS_QKV | HAS(O_PROJ) | HAS(IN_PROJ) | HAS(NAME_OUT_PROJ) },
    { "nemotron_h", HAS_QKV | HAS(O_PROJ) | HAS(UP_PROJ) | HAS(DOWN_PROJ)
                        | HAS(IN_PROJ) | HAS(NAME_OUT_PROJ) },
    { "jamba",
      HAS_LLAMA | HAS(IN_PROJ) | HAS(NAME_X_PROJ) | HAS(NAME_OUT_PROJ) },
    { "phi3",
      HAS(O_PROJ) | HAS(QKV_PROJ) | HAS(GATE_UP_PROJ) | HAS(DOWN_PROJ) },
};

unsigned peft_name_find(struct str name)
{
    for (unsigned i = 0; i < NAMES; i++)
        if (str_is(name, names[i].name))
            return i;
    return PEFT_NAMES_MAX;
}

const char *peft_module(unsigned i)
{
    return i < NAMES ? names[i].name : NULL;
}

uint64_t peft_name_words(unsigned i)
{
    return i < NAMES ? names[i].words : 0;
}

uint64_t peft_names_of(const struct spec *spec)
{
    if (spec->vision != NULL || spec->decoder_layers > 0)
        return 0;
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
        if (strcmp(spec->model_type, classes[i].type) == 0)
            return classes[i].has;
    return 0;
}

uint64_t peft_names_vague(void)
{
    return HAS(DENSE) | HAS(NAME_OUT_PROJ);
}

/* attention's is c_proj only where its other one is c_attn, and out_proj only
 * where no state's is */
static uint64_t words_in(unsigned i, uint64_t of)
{
    if (i == AT_C_PROJ && (of & HAS(C_ATTN)) == 0)
        return DOWN;
    if (i == AT_NAME_OUT_PROJ && (of & HAS(IN_PROJ)) == 0)
        return O;
    return names[i].words;
}

uint64_t peft_names_words(uint64_t set, uint64_t of)
{
    uint64_t words = 0;
    for (unsigned i = 0; i < NAMES; i++)
        if ((set >> i & 1) != 0)
            words |= words_in(i, of);
    return words;
}

const char *peft_names_text(uint64_t set, char buf[PEFT_NAMES_TEXT])
{
    buf[0] = '\0';
    for (unsigned i = 0; i < NAMES; i++)
        if ((set >> i & 1) != 0)
            str_append_item(buf, PEFT_NAMES_TEXT, names[i].name);
    return buf;
}
