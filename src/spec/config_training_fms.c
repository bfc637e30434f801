/*
 * What fms-hf-tuning's files have beside TrainingArguments: PEFT's own names
 * for adapters, its defaults, and fms-acceleration's plugins.
 * [tuning/config/configs.py, peft_config.py, acceleration_configs, at 0202bc95]
 */
#include "spec/config_hf.h"

#include "base/banned.h"

bool config_fms_is(const struct config *c)
{
    return config_at(c, "peft_method") != NULL
           || config_at(c, "training_data_path") != NULL
           || config_at(c, "data_config_path") != NULL;
}

static bool is_word(const struct json *v, const char *word)
{
    return v != NULL && v->kind == JSON_STRING && str_is(v->text, word);
}

bool config_fms_loads_bf16(const struct config *c)
{
    return config_fms_is(c) && config_at(c, "torch_dtype") == NULL;
}

/* "pt" is prompt tuning, of eight tokens where nothing is said. */
static void prompts(struct config *c, const struct json *method)
{
    config_set(c, method, KEY_PEFT_TYPE, "prompt-tuning");
    const struct json *n = config_at(c, "num_virtual_tokens");
    if (n != NULL)
        config_set_json(c, n, KEY_NUM_VIRTUAL_TOKENS);
    else
        config_set(c, method, KEY_NUM_VIRTUAL_TOKENS, "8");
}

bool config_fms_adapters(struct config *c, bool *lora)
{
    const struct json *method = config_at(c, "peft_method");
    const bool typed = method != NULL && method->kind == JSON_STRING
                       && method->text.n > 0 && !is_word(method, "none");
    *lora = is_word(method, "lora");
    if (!typed || *lora)
        return true;
    if (is_word(method, "pt")) {
        prompts(c, method);
        return true;
    }
    diag_hint(config_bad(c, method, MEMPLAN_E_UNSUPPORTED,
                         "peft_method '%.*s' is not modelled",
                         (int)(method->text.n < 40 ? method->text.n : 40),
                         method->text.p),
              "known are lora, pt and none");
    return false;
}

/* A plugin's values: "nf4 False", ["nf4", false]. */
static bool has_value(const struct json *v, const char *word)
{
    bool found = v->kind == JSON_BOOL && v->truth && str_is(STR("true"), word);
    struct str rest = v->kind == JSON_STRING ? v->text : (struct str){ "", 0 };
    while (rest.n > 0)
        found = str_same_name(str_cut(rest, ' ', &rest), str_of(word)) || found;
    const struct json *one = v->kind == JSON_ARRAY ? v->child : NULL;
    for (; one != NULL; one = one->next)
        found = (one->kind == JSON_BOOL
                     ? one->truth && str_is(STR("true"), word)
                     : one->kind == JSON_STRING
                           && str_same_name(one->text, str_of(word)))
                || found;
    return found;
}

static bool says_no(const struct json *given)
{
    return (given->kind == JSON_BOOL && !given->truth)
           || (given->kind == JSON_STRING
               && (given->text.n == 0 || is_word(given, "false")));
}

void config_fms_base(struct config *c)
{
    const struct json *packed = config_at(c, "bnb_qlora");
    const struct json *gptq = config_at(c, "auto_gptq");
    if (gptq != NULL && !says_no(gptq)) {
        config_set(c, gptq, KEY_BASE_DTYPE, "int4");
        /* the one kernel that the plugin has (framework_plugin_autogptq.py) */
        config_set(c, gptq, KEY_GPTQ_KERNEL, "triton_v2");
    }
    if (packed == NULL || says_no(packed))
        return;
    config_set(c, packed, KEY_BASE_DTYPE,
               has_value(packed, "fp4") ? "fp4" : "nf4");
    config_set(c, packed, KEY_DOUBLE_QUANT, "true");
    /* no_peft_model leaves that to PEFT; the plugin's own casts nothing
       (framework_plugin_bnb.py, _prepare_model_for_kbit_training) */
    if (!has_value(packed, "true"))
        config_set(c, packed, KEY_KBIT_CAST, "none");
}

void config_fms_attention(struct config *c)
{
    const struct json *said = config_at(c, "use_flash_attn");
    const struct json *which = config_at(c, "flash_attn_implementation");
    if (!config_fms_is(c) || which != NULL
        || (said != NULL && !config_is_true(c, "use_flash_attn")))
        return;
    config_set(c, said != NULL ? said : c->root, KEY_ATTENTION, "flash");
    config_set(c, said != NULL ? said : c->root, KEY_ATTENTION_KERNEL,
               "flash2");
}
