/*
 * Owns the section `peft` of a file of Megatron-Bridge's: an object of one of
 * its classes, whose names of linears are Megatron's. Refuses the classes, and
 * the parts of a model, that no key has. [Megatron-Bridge 067f987d,
 * src/megatron/bridge/peft/lora.py, module_matcher.py; docs/method.md
 * eq. bridge-lora]
 */
#include "spec/config_megatron.h"

#include <string.h>

#include "base/banned.h"

/* class LoRA: dim. */
#define BRIDGE_RANK "32"

static const struct {
    const char *linear, *words;
} linears[] = {
    { "linear_qkv", "q,k,v" },
    { "linear_proj", "o" },
    { "linear_fc1", "gate,up" },
    { "linear_fc2", "down" },
};

/* "*.linear_qkv" is all of them, as the name alone is. */
static struct str linear_of(struct str name)
{
    const bool any = name.n > 2 && name.p[0] == '*' && name.p[1] == '.';
    return any ? (struct str){ name.p + 2, name.n - 2 } : name;
}

static void targets(struct config *c)
{
    const struct json *where = config_at(c, "peft_target_modules");
    char names[CONFIG_LIST_MAX], words[CONFIG_LIST_MAX] = "";
    if (where == NULL)
        return;
    config_modules(c, "peft_target_modules", names);
    for (struct str rest = str_of(names); rest.n > 0;) {
        const struct str name = str_cut(rest, ',', &rest);
        const char *is = NULL;
        for (size_t i = 0; i < sizeof(linears) / sizeof(linears[0]); i++)
            if (str_is(linear_of(name), linears[i].linear))
                is = linears[i].words;
        if (is == NULL) {
            diag_hint(config_bad(c, where, MEMPLAN_E_UNSUPPORTED,
                                 "peft.target_modules '%.*s' is not modelled",
                                 (int)name.n, name.p),
                      "use linear_qkv, linear_proj, linear_fc1 or linear_fc2");
            return;
        }
        str_append(words, sizeof(words), "%s%s", words[0] ? "," : "", is);
    }
    if (words[0] != '\0')
        config_set(c, where, KEY_LORA_TARGETS, words);
}

/* The class is named as Hydra instantiates it. */
static const struct json *class_of(struct config *c)
{
    static const char last[] = ".LoRA";
    const struct json *where = config_at(c, "peft__target_");
    if (where == NULL || where->kind != JSON_STRING)
        return NULL;
    const struct str name = where->text;
    const size_t n = sizeof(last) - 1;
    if (name.n < n || memcmp(name.p + name.n - n, last, n) != 0)
        diag_hint(config_bad(c, where, MEMPLAN_E_UNSUPPORTED,
                             "peft._target_ '%.*s' is not modelled",
                             (int)name.n, name.p),
                  "use megatron.bridge.peft.lora.LoRA");
    return where;
}

/* A scheme alone names no rank: a recipe's, or that of NeMo 1, which has a
 * section for each. What follows would be an estimate of all weights. */
static void refuse_scheme(struct config *c, const char *key)
{
    const struct json *where = config_at(c, key);
    if (where == NULL || where->kind != JSON_STRING || where->text.n == 0
        || str_is(where->text, "none") || str_is(where->text, "null"))
        return;
    diag_hint(config_bad(c, where, MEMPLAN_E_UNSUPPORTED,
                         "adapters by the name '%.*s' are not read",
                         (int)where->text.n, where->text.p),
              "leave it out and add --lora-rank, --lora-targets and "
              "--lora-dropout");
}

void config_megatron_peft(struct config *c)
{
    refuse_scheme(c, "peft");
    refuse_scheme(c, "peft_peft_scheme");
    const struct json *said = class_of(c);
    const struct json *position = config_at(c, "peft_dropout_position");
    if (said == NULL)
        said = config_at(c, "peft_target_modules");
    if (said != NULL && config_at(c, "peft_dim") == NULL)
        config_set(c, said, KEY_LORA_RANK, BRIDGE_RANK);
    targets(c);
    if (position != NULL && position->kind == JSON_STRING
        && !str_is(position->text, "pre"))
        config_note(c, "peft.dropout_position is not modelled: dropout comes "
                       "before the adapters");
}
