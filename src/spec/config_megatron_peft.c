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

/* A linear's name, and where it stands below a layer of the decoder: a prediction
 * module's are refused (resolve_bridge.c). */
static const struct {
    const char *linear, *words, *places;
} linears[] = {
    { "linear_qkv", "q,k,v", "self_attention.linear_qkv" },
    { "linear_proj", "o", "self_attention.linear_proj" },
    { "linear_fc1", "gate,up",
      "mlp.linear_fc1 mlp.experts.linear_fc1 mlp.shared_experts.linear_fc1 "
      "mlp.experts.local_experts.0.linear_fc1 "
      "mlp.experts.local_experts.17.linear_fc1" },
    { "linear_fc2", "down",
      "mlp.linear_fc2 mlp.experts.linear_fc2 mlp.shared_experts.linear_fc2 "
      "mlp.experts.local_experts.0.linear_fc2 "
      "mlp.experts.local_experts.17.linear_fc2" },
};
static const char *const layers[] = { "decoder.layers.0.", "decoder.layers.7.",
                                      "decoder.layers.61." };
/* What other modules are called: no plain name above is theirs. */
static const char other_places[] =
    "self_attention self_attention.core_attention self_attention.q_layernorm "
    "self_attention.linear_q_proj self_attention.linear_q_down_proj "
    "self_attention.linear_q_up_proj self_attention.linear_kv_down_proj "
    "self_attention.linear_kv_up_proj self_attention.in_proj "
    "self_attention.out_proj mixer.in_proj mixer.out_proj mlp mlp.router "
    "mlp.experts mlp.shared_experts cross_attention.linear_q "
    "cross_attention.linear_kv";
static const char other_modules[] =
    "output_layer embedding.word_embeddings decoder.final_layernorm "
    "mtp.layers.0.eh_proj";

/* module_matcher.py, wildcard_match: '*' is any text, '.' any byte, for the
 * pattern is made a regular expression's. */
static bool matches(struct str pattern, const char *name)
{
    struct str rest = { 0 };
    const char *from = NULL; /* what the last '*' may still take */
    while (*name != '\0' || pattern.n > 0) {
        const char c = pattern.n > 0 ? pattern.p[0] : '\0';
        if (c == '*') {
            pattern = rest = (struct str){ pattern.p + 1, pattern.n - 1 };
            from = name;
        } else if (*name != '\0' && (c == *name || c == '.')) {
            pattern = (struct str){ pattern.p + 1, pattern.n - 1 };
            name++;
        } else if (from != NULL && *from != '\0') {
            pattern = rest;
            name = ++from;
        } else {
            return false;
        }
    }
    return true;
}

/* How many of the places below some layers it matches, and how many there are. */
static size_t matches_below(struct str pattern, const char *places, size_t *all)
{
    enum { NAME = 96 };
    size_t n = *all = 0;
    for (struct str rest = str_of(places); rest.n > 0;) {
        const struct str place = str_cut(rest, ' ', &rest);
        for (size_t i = 0; i < sizeof(layers) / sizeof(layers[0]); i++) {
            char name[NAME];
            str_format(name, sizeof(name), "%s%.*s", layers[i], (int)place.n,
                       place.p);
            n += matches(pattern, name);
            ++*all;
        }
    }
    return n;
}

static bool matches_others(struct str pattern)
{
    size_t all;
    if (matches_below(pattern, other_places, &all) > 0)
        return true;
    for (struct str rest = str_of(other_modules); rest.n > 0;) {
        enum { NAME = 64 };
        char name[NAME];
        const struct str one = str_cut(rest, ' ', &rest);
        str_format(name, sizeof(name), "%.*s", (int)one.n, one.p);
        if (matches(pattern, name))
            return true;
    }
    return false;
}

/* Adds what a name, or a pattern of the same linears of every layer, is to
 * `words`; false: it is another one. */
static bool add_target(char words[CONFIG_LIST_MAX], struct str name)
{
    bool some = false;
    for (size_t i = 0; i < sizeof(linears) / sizeof(linears[0]); i++) {
        size_t all;
        const size_t n = matches_below(name, linears[i].places, &all);
        const bool is = str_is(name, linears[i].linear) || n == all;
        if (!is && n > 0)
            return false;
        if (is)
            str_append(words, CONFIG_LIST_MAX, "%s%s",
                       words[0] != '\0' ? "," : "", linears[i].words);
        some = some || is;
    }
    return some && !matches_others(name);
}

/* None at all are all linears (ModuleMatcher.match), the head's too; a text
 * would be taken letter by letter. */
static void bad_targets(struct config *c, const struct json *where)
{
    const bool none = where->kind == JSON_NULL || where->kind == JSON_ARRAY;
    diag_hint(config_bad(c, where, none ? MEMPLAN_E_UNSUPPORTED : MEMPLAN_E_ARG,
                         none ? "peft.target_modules without names is every "
                                "linear, the head's too, which is not modelled"
                              : "peft.target_modules takes a list of names"),
              "write [linear_qkv, linear_proj, linear_fc1, linear_fc2], which "
              "leaving it out is, or some of them");
}

static void targets(struct config *c)
{
    const struct json *where = json_member(c->root, "peft_target_modules");
    char words[CONFIG_LIST_MAX] = "";
    if (where == NULL)
        return;
    if (where->kind != JSON_ARRAY || where->child == NULL) {
        bad_targets(c, where);
        return;
    }
    for (const struct json *v = where->child; v != NULL; v = v->next) {
        if (v->kind == JSON_STRING && add_target(words, v->text))
            continue;
        diag_hint(config_bad(c, where, MEMPLAN_E_UNSUPPORTED,
                             "peft.target_modules '%.*s' is not modelled",
                             (int)v->text.n, v->text.p),
                  "use linear_qkv, linear_proj, linear_fc1 or linear_fc2");
        return;
    }
    config_set(c, where, KEY_LORA_TARGETS, words);
}

/* Beside names (ModuleMatcher.match asserts it), which are there by default. */
static void exclusions(struct config *c)
{
    const struct json *where = config_at(c, "peft_exclude_modules");
    if (where == NULL || (where->kind == JSON_ARRAY && where->child == NULL))
        return;
    diag_hint(config_bad(c, where, MEMPLAN_E_CONFLICT,
                         "peft.exclude_modules beside target_modules: "
                         "Megatron-Bridge refuses it"),
              "leave it out, and name the modules in target_modules");
}

/* The class adds nothing to what it is given: null, or a text, is no number in
 * its products. */
static void number(struct config *c, const char *path, enum setup_key key,
                   double least)
{
    const struct json *v = json_member(c->root, path);
    if (v == NULL)
        return;
    if (v->kind == JSON_NUMBER && v->number >= least) {
        config_set_json(c, v, key);
        return;
    }
    const bool rank = key == KEY_LORA_RANK;
    diag_hint(
        config_bad(c, v, MEMPLAN_E_ARG, "peft.%s takes %s", path + 5,
                   rank ? "a whole number, 1 or more" : "a number from 0 to 1"),
        "leave it out for the class's own, %s", rank ? BRIDGE_RANK : "0");
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
        said = json_member(c->root, "peft_target_modules");
    if (said != NULL && json_member(c->root, "peft_dim") == NULL)
        config_set(c, said, KEY_LORA_RANK, BRIDGE_RANK);
    number(c, "peft_dim", KEY_LORA_RANK, 1);
    number(c, "peft_dropout", KEY_LORA_DROPOUT, 0);
    targets(c);
    exclusions(c);
    if (position == NULL)
        return;
    if (position->kind != JSON_STRING
        || (!str_is(position->text, "pre") && !str_is(position->text, "post")))
        diag_hint(config_bad(c, position, MEMPLAN_E_UNKNOWN,
                             "unknown peft.dropout_position"),
                  "known are pre, post");
    else if (str_is(position->text, "post"))
        config_note(c, "peft.dropout_position is not modelled: dropout comes "
                       "before the adapters");
}
