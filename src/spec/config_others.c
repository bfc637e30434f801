/*
 * Owns which files are for trainers that have defaults of their own, neither
 * Hugging Face's nor Megatron-LM's, and are read by none of the tables: they
 * are refused. ms-swift's and LLaMA-Factory's on Megatron Core, LLaMA-Factory's
 * version 1. [swift/megatron/arguments/megatron_args.py, ms-swift at 3602360a;
 * llamafactory/train/mca, llamafactory/v1/config, LLaMA-Factory at ff6d4d12]
 */
#include "spec/config_hf.h"

#include <string.h>

#include "base/banned.h"

static bool begins(struct str s, const char *word)
{
    const size_t n = strlen(word);
    return s.n >= n && memcmp(s.p, word, n) == 0;
}

/* "megatron sft" and its kin in a line of a script. */
static bool calls_swift(struct str line)
{
    static const char *const commands[] = { "megatron sft", "megatron pt",
                                            "megatron rlhf" };
    for (size_t at = 0; at < line.n; at++) {
        const struct str rest = { line.p + at, line.n - at };
        for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
            const size_t n = strlen(commands[i]);
            if (begins(rest, commands[i]) && (at == 0 || line.p[at - 1] == ' ')
                && (rest.n == n || rest.p[n] == ' '))
                return true;
        }
    }
    return false;
}

static bool is_swifts(const struct config *c)
{
    struct str rest = { c->text, c->len };
    if (!str_is(c->root->key, CONFIG_DASHES))
        return false;
    while (rest.n > 0) {
        const struct str line = str_trim(str_cut(rest, '\n', &rest));
        if (!begins(line, "#") && calls_swift(line))
            return true;
    }
    return false;
}

static const char *whose(const struct config *c)
{
    if (is_swifts(c) || config_at(c, "tuner_type") != NULL)
        return "ms-swift";
    return config_at(c, "finetuning_type") != NULL ? "LLaMA-Factory" : NULL;
}

static const struct {
    const char *entry, *option;
} sizes[] = {
    { "tensor_model_parallel_size", "--tp" },
    { "pipeline_model_parallel_size", "--pp" },
    { "virtual_pipeline_model_parallel_size", "--vpp" },
    { "expert_model_parallel_size", "--ep" },
};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void refuse(struct config *c, const struct json *at, const char *who)
{
    char options[128] = "";
    for (size_t i = 0; i < SIZES; i++) {
        const struct json *v = config_at(c, sizes[i].entry);
        if (v != NULL && v->kind == JSON_NUMBER)
            str_append(options, sizeof(options), " %s %.0f", sizes[i].option,
                       v->number);
        else if (v != NULL && v->kind == JSON_STRING && v->text.n < 8)
            str_append(options, sizeof(options), " %s %.*s", sizes[i].option,
                       (int)v->text.n, v->text.p);
    }
    memplan_error *e =
        config_bad(c, at, MEMPLAN_E_UNSUPPORTED,
                   "%s trains this with Megatron Core and defaults of its own, "
                   "which are not read",
                   who != NULL ? who : "another program");
    diag_hint(e,
              "write it as options: --framework megatron%s, --seq-len, "
              "--micro-batch, --global-batch, --recompute",
              options);
}

/* Its plugins, each an object with a name. */
static const struct json *version_1(const struct config *c)
{
    static const char *const plugins[] = { "dist_config.name",
                                           "peft_config.name",
                                           "quant_config.name" };
    for (size_t i = 0; i < sizeof(plugins) / sizeof(plugins[0]); i++) {
        const struct json *v = config_at(c, plugins[i]);
        if (v != NULL && config_at(c, "model") != NULL)
            return v;
    }
    return NULL;
}

bool config_others_trainer(struct config *c)
{
    const struct json *at = is_swifts(c) ? c->root : NULL;
    for (size_t i = 0; i < SIZES && at == NULL; i++)
        at = config_at(c, sizes[i].entry);
    if (at != NULL) {
        refuse(c, at, whose(c));
        return true;
    }
    at = version_1(c);
    if (at != NULL)
        diag_hint(config_bad(c, at, MEMPLAN_E_UNSUPPORTED,
                             "files of LLaMA-Factory's version 1 are not read"),
                  "write it as options: --framework fsdp --engine fsdp2 or "
                  "--zero 3, --lora-rank, --base-dtype, --micro-batch, "
                  "--seq-len, --precision");
    return at != NULL;
}

bool config_others_megatron(struct config *c)
{
    const char *who = whose(c);
    if (who != NULL)
        refuse(c, c->root, who);
    return who != NULL;
}
