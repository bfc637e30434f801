/*
 * Owns the Trainer's words for optimizers: --optim, its arguments, and the
 * modules whose gradients are projected; read and written.
 */
#include "spec/config_emit.h"
#include "spec/config_hf.h"

#include "base/unit.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

/* training_args.py's OptimizerNames. `impl` "" leaves the default. */
static const struct optim {
    const char *name, *optimizer, *impl;
    bool layerwise; /* updates in hooks on gradients */
    bool others;    /* a word of programs around it alone */
} optims[] = {
    { "adamw_torch", "adamw", "foreach", false, false },
    { "adamw_torch_fused", "adamw", "fused", false, false },
    { "adamw_hf", "adamw", "loop", false,
      false }, /* before 5: transformers' own */
    { "adamw_torch_4bit", "adam4bit", "", false, false },
    { "adafactor", "adafactor", "", false, false },
    { "sgd", "sgd", "foreach", false, false },
    { "sgd", "momentum", "foreach", false, false }, /* its optim_args say so */
    { "adagrad", "adagrad", "foreach", false, false },
    { "rmsprop", "rmsprop", "foreach", false, false },
    { "adamw_8bit", "adam8bit", "", false, false },
    { "adamw_bnb_8bit", "adam8bit", "", false, false },
    { "paged_adamw_8bit", "paged-adam8bit", "", false, false },
    { "adamw_torch_8bit", "adam8bit", "", false, false }, /* torchao's */
    { "ao_adamw_8bit", "adam8bit", "", false, false },
    { "ao_adamw_4bit", "adam4bit", "", false, false },
    { "paged_adamw_32bit", "paged-adamw", "", false, false },
    { "paged_adamw", "paged-adamw", "", false, false },
    { "muon", "muon", "", false, true }, /* ms-swift's, axolotl's */
    { "lion_32bit", "lion", "", false, false },
    { "lion_8bit", "lion8bit", "", false, false },
    { "galore_adamw", "galore", "", false, false },
    { "galore_adamw_layerwise", "galore", "", true, false },
    { "galore_adamw_8bit", "galore8bit", "", false, false },
    { "galore_adamw_8bit_layerwise", "galore8bit", "", true, false },
    { "apollo_adamw", "apollo", "", false, false },
    { "apollo_adamw_layerwise", "apollo", "", true, false },
};
enum { OPTIMS = sizeof(optims) / sizeof(optims[0]) };

static int quoted(struct str s)
{
    return (int)(s.n < 40 ? s.n : 40);
}

/* ---- optim_args: "rank=64, update_proj_gap=200" ---- */

/* The value of one of them; n is 0 where it is not there. */
static struct str argument(const struct config *c, const char *name)
{
    const struct json *args = config_at(c, "optim_args");
    struct str rest = args != NULL && args->kind == JSON_STRING
                          ? args->text
                          : (struct str){ "", 0 };
    while (rest.n > 0) {
        struct str value = { "", 0 };
        const struct str one = str_cut(rest, ',', &rest);
        if (str_is(str_trim(str_cut(one, '=', &value)), name))
            return str_trim(value);
    }
    return (struct str){ "", 0 };
}

/* All but one of the libraries' ways to project are other programs. */
static void only_argument(struct config *c, const char *name, const char *value)
{
    const struct str got = argument(c, name);
    if (got.n == 0 || str_is(got, value))
        return;
    memplan_error *e =
        config_bad(c, config_at(c, "optim_args"), MEMPLAN_E_UNSUPPORTED,
                   "%s=%.*s is not modelled", name, quoted(got), got.p);
    diag_hint(e, "use %s=%s, the default", name, value);
}

static void projection(struct config *c)
{
    char text[40];
    const struct str rank = argument(c, "rank");
    if (rank.n > 0) {
        str_format(text, sizeof(text), "%.*s", quoted(rank), rank.p);
        config_set(c, config_at(c, "optim_args"), KEY_OPTIMIZER_RANK, text);
    }
    only_argument(c, "proj_type", "std");
    only_argument(c, "proj", "random");
}

/* ---- optim_target_modules ---- */

enum { TARGET_ATTENTION = 1, TARGET_MLP = 2 };

/* A part of a module's name, or a pattern: ".*.attn.*". */
static struct str bare_name(struct str s)
{
    s = str_trim(s);
    while (s.n > 0 && (s.p[0] == '.' || s.p[0] == '*'))
        s = (struct str){ s.p + 1, s.n - 1 };
    while (s.n > 0 && (s.p[s.n - 1] == '.' || s.p[s.n - 1] == '*'))
        s.n--;
    return s;
}

/* Adds to `list`, or sets a bit of `parts`. False when it is none of ours. */
static bool add_module(char list[128], unsigned *parts, struct str name)
{
    static const char *const ours[][2] = {
        { "q_proj", "q" },
        { "k_proj", "k" },
        { "v_proj", "v" },
        { "o_proj", "o" },
        { "gate_proj", "gate" },
        { "up_proj", "up" },
        { "down_proj", "down" },
        { "lm_head", "head" },
        { "all-linear", "all-linear,head" },
        { "all_linear", "all-linear,head" },
    };
    if (str_is(name, "attn") || str_is(name, "self_attn")) {
        *parts |= TARGET_ATTENTION;
        return true;
    }
    if (str_is(name, "mlp")) {
        *parts |= TARGET_MLP;
        return true;
    }
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        if (str_is(name, ours[i][0])) {
            str_append(list, 128, "%s%s", list[0] != '\0' ? "," : "",
                       ours[i][1]);
            return true;
        }
    return false;
}

static void modules(struct config *c, const struct json *where)
{
    static const char *const of_parts[] = {
        [TARGET_ATTENTION] = "q,k,v,o",
        [TARGET_MLP] = "gate,up,down",
        [TARGET_ATTENTION | TARGET_MLP] = "all-linear",
    };
    char list[128] = "";
    unsigned parts = 0;
    bool known = true;
    const struct json *of = config_at(c, "optim_target_modules");
    if (of == NULL) {
        diag_hint(config_bad(c, where, MEMPLAN_E_CONFLICT,
                             "the Trainer refuses it without "
                             "optim_target_modules"),
                  "such as \"optim_target_modules\": [\"attn\", \"mlp\"]");
        return;
    }
    const struct json *one = of->kind == JSON_ARRAY ? of->child : of;
    for (; one != NULL; one = of->kind == JSON_ARRAY ? one->next : NULL)
        known = one->kind == JSON_STRING
                && add_module(list, &parts, bare_name(one->text)) && known;
    if (parts != 0)
        str_append(list, sizeof(list), "%s%s", list[0] != '\0' ? "," : "",
                   of_parts[parts]);
    if (known && list[0] != '\0')
        config_set(c, of, KEY_OPTIMIZER_TARGETS, list);
    else
        diag_hint(
            config_bad(c, of, MEMPLAN_E_UNKNOWN, "matrices that are not known"),
            "of attn, mlp, q_proj, k_proj, v_proj, o_proj, gate_proj, "
            "up_proj, down_proj, lm_head, or all-linear; see "
            "--optimizer-targets");
}

/* ---- optim ---- */

static void set_optim(struct config *c, const struct json *where,
                      const struct optim *o)
{
    const bool momentum =
        strcmp(o->name, "sgd") == 0 && argument(c, "momentum").n > 0;
    config_set(c, where, KEY_OPTIMIZER, momentum ? "momentum" : o->optimizer);
    if (o->impl[0] != '\0')
        config_set(c, where, KEY_OPTIMIZER_IMPL, o->impl);
    if (o->layerwise)
        config_set(c, where, KEY_OPTIMIZER_IN_BACKWARD, "true");
    if (strncmp(o->name, "galore", 6) == 0
        || strncmp(o->name, "apollo", 6) == 0) {
        projection(c);
        modules(c, where);
    }
}

/* Of what is not modelled, why. */
static const struct {
    const char *name, *why, *hint;
} refused[] = {
    { "lomo",
      "it updates a weight when the next one's gradient comes, in backward",
      "use sgd; --optimizer-in-backward true comes near" },
    { "adalomo",
      "it updates a weight when the next one's gradient comes, in backward",
      "use adafactor; --optimizer-in-backward true comes near" },
    { "galore_adafactor", "the factored moments of a projected gradient",
      "use galore_adamw" },
    { "galore_adafactor_layerwise",
      "the factored moments of a projected gradient",
      "use galore_adamw_layerwise" },
};

bool optimizer_absent(struct str name, const char **why, const char **hint)
{
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        if (str_is(name, refused[i].name)) {
            *why = refused[i].why;
            *hint = refused[i].hint;
            return true;
        }
    return false;
}

static void refuse_optim(struct config *c, const struct json *optim)
{
    const char *why, *hint;
    if (optim->kind == JSON_STRING
        && optimizer_absent(optim->text, &why, &hint)) {
        diag_hint(config_bad(c, optim, MEMPLAN_E_UNSUPPORTED,
                             "optim '%.*s' is not modelled: %s",
                             quoted(optim->text), optim->text.p, why),
                  "%s", hint);
        return;
    }
    memplan_error *e = config_bad(c, optim, MEMPLAN_E_UNSUPPORTED,
                                  "optim '%.*s' is not modelled",
                                  quoted(optim->text), optim->text.p);
    diag_hint(e, "such as adamw_torch, adamw_torch_fused, adamw_bnb_8bit, "
                 "paged_adamw_8bit, adafactor, lion_32bit, lion_8bit, sgd, "
                 "galore_adamw, apollo_adamw; the key of it here is "
                 "--optimizer");
}

void config_hf_optimizer(struct config *c)
{
    const struct json *optim = config_at(c, "optim");
    const struct json *old = config_at(c, "adafactor");
    if (optim == NULL)
        optim = config_at(c, "optimizer");
    if (config_is_true(c, "adafactor")) {
        config_set(c, old, KEY_OPTIMIZER, "adafactor");
        return;
    }
    if (optim == NULL)
        return;
    for (size_t i = 0; optim->kind == JSON_STRING && i < OPTIMS; i++)
        if (str_is(optim->text, optims[i].name)) {
            set_optim(c, optim, &optims[i]);
            return;
        }
    refuse_optim(c, optim);
}

/* ---- and back ---- */

static const char *word_of(const struct run *r)
{
    char a[48], b[48];
    const struct str optimizer =
        str_of(setup_value_text(&r->setup, KEY_OPTIMIZER, a, sizeof(a)));
    const struct str impl =
        str_of(setup_value_text(&r->setup, KEY_OPTIMIZER_IMPL, b, sizeof(b)));
    const bool layerwise = run_projects(r) && r->optimizer_in_backward;
    for (size_t i = 0; i < OPTIMS; i++) {
        if (str_is(optimizer, optims[i].optimizer)
            && optims[i].layerwise == layerwise && !optims[i].others
            && (optims[i].impl[0] == '\0' || str_is(impl, optims[i].impl)))
            return optims[i].name;
    }
    return NULL;
}

static void put_modules(struct emit *e, uint64_t on)
{
    static const struct {
        unsigned target;
        const char *name;
    } modules[] = {
        { LORA_ALL_LINEAR, "\"attn\", \"mlp\"" },
        { LORA_Q, "\"q_proj\"" },
        { LORA_K, "\"k_proj\"" },
        { LORA_V, "\"v_proj\"" },
        { LORA_O, "\"o_proj\"" },
        { LORA_GATE, "\"gate_proj\"" },
        { LORA_UP, "\"up_proj\"" },
        { LORA_DOWN, "\"down_proj\"" },
        { OPTIMIZER_TARGET_HEAD, "\"lm_head\"" },
    };
    char list[256] = "";
    if ((on >> LORA_ALL_LINEAR & 1) != 0
        && (on >> OPTIMIZER_TARGET_HEAD & 1) != 0) {
        emit_word(e, "optim_target_modules", "all-linear");
        return;
    }
    for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++)
        if ((on >> modules[i].target & 1) != 0)
            str_append_item(list, sizeof(list), modules[i].name);
    emit_raw(e, "optim_target_modules", "[%s]", list);
}

void config_hf_put_optim(struct emit *e, const struct run *r)
{
    const char *optim = word_of(r);
    if (optim == NULL)
        return;
    emit_word(e, "optim", optim);
    if (r->optimizer == OPT_MOMENTUM)
        emit_word(e, "optim_args", "momentum=0.9");
    if (!run_projects(r))
        return;
    emit_raw(e, "optim_args", "\"rank=%" PRIu64 "\"", r->optimizer_rank);
    put_modules(e, r->optimizer_targets);
}
