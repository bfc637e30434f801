/*
 * Owns how Megatron's flags say what becomes of activations that layers keep:
 * lists of modules, those that wait on the host, and the way back of all.
 */
#include "spec/config_megatron.h"

#include "base/unit.h"
#include "spec/config_emit.h"

#include <string.h>

#include "base/banned.h"

/* ---- lists of modules ---- */

/* "core_attn mlp", "[core_attn, mlp]" as core_attn,mlp. */
static void add_words(char list[CONFIG_LIST_MAX], struct str rest)
{
    while (rest.n > 0) {
        struct str word = str_cut(rest, ' ', &rest);
        while (word.n > 0 && memchr("[],", word.p[0], 3) != NULL)
            word = (struct str){ word.p + 1, word.n - 1 };
        while (word.n > 0 && memchr("[],", word.p[word.n - 1], 3) != NULL)
            word.n--;
        if (word.n > 0)
            str_append(list, CONFIG_LIST_MAX, "%s%.*s", list[0] ? "," : "",
                       (int)word.n, word.p);
    }
}

void config_modules(const struct config *c, const char *flag,
                    char list[CONFIG_LIST_MAX])
{
    const struct json *v = config_at(c, flag);
    const bool several = v != NULL && v->kind == JSON_ARRAY;
    list[0] = '\0';
    for (const struct json *one = several ? v->child : v; one != NULL;
         one = several ? one->next : NULL)
        if (one->kind == JSON_STRING)
            add_words(list, one->text);
}

/* ---- modules that wait on the host ---- */

/* Takes out of a list what has no place here: is said. */
static void leave_out(struct config *c, char list[CONFIG_LIST_MAX])
{
    static const char *const others[] = { "fused_group_mlp", "gdp_qkv" };
    char all[CONFIG_LIST_MAX];
    str_format(all, sizeof(all), "%s", list);
    list[0] = '\0';
    for (struct str rest = str_of(all); rest.n > 0;) {
        const struct str word = str_cut(rest, ',', &rest);
        bool known = true;
        for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
            if (!str_is(word, others[i]))
                continue;
            known = false;
            config_note(c,
                        "--offload-modules %s is not modelled: it stays on "
                        "the GPU",
                        others[i]);
        }
        if (known)
            str_append(list, CONFIG_LIST_MAX, "%s%.*s", list[0] ? "," : "",
                       (int)word.n, word.p);
    }
}

static bool is_number(const struct config *c, const char *flag, double number)
{
    const struct json *v = config_at(c, flag);
    double x = 0;
    if (v == NULL)
        return true;
    if (v->kind == JSON_NUMBER)
        return !(v->number < number) && !(v->number > number);
    return v->kind == JSON_STRING && unit_parse_real(v->text, &x) == UNIT_OK
           && !(x < number) && !(x > number);
}

void config_megatron_offload(struct config *c)
{
    static const char least[] = "min_offloaded_tensor_size";
    char list[CONFIG_LIST_MAX];
    const bool named = config_at(c, "offload_modules") != NULL;
    if (!config_is_true(c, "fine_grained_activation_offloading")) {
        if (named)
            config_note(c, "--offload-modules has no effect without "
                           "--fine-grained-activation-offloading");
        return;
    }
    if (!named) /* core/transformer/transformer_config.py, __post_init__ */
        config_note(c, "--fine-grained-activation-offloading without "
                       "--offload-modules, which Megatron refuses: nothing "
                       "waits on the CPU");
    config_modules(c, "offload_modules", list);
    leave_out(c, list);
    if (list[0] == '\0')
        return;
    config_set(c, config_at(c, "offload_modules"), KEY_OFFLOAD_MODULES, list);
    if (config_at(c, least) != NULL)
        config_set_json(c, config_at(c, least), KEY_MIN_OFFLOADED_TENSOR_SIZE);
    if (!is_number(c, "activation_offload_fraction", 1))
        config_note(c, "--activation-offload-fraction is not modelled: all "
                       "groups of the modules wait on the CPU");
    if (!is_number(c, "delta_offload_bytes_across_pp_ranks", 0))
        config_note(c, "--delta-offload-bytes-across-pp-ranks is not "
                       "modelled: all ranks send as much");
}

/* ---- and back ---- */

void config_emit_modules(struct emit *e, const struct run *r, const char *flag,
                         enum setup_key key)
{
    char words[CONFIG_LIST_MAX], list[CONFIG_LIST_MAX];
    str_format(words, sizeof(words), "%s",
               setup_value_text(&r->setup, key, list, sizeof(list)));
    for (char *p = words; *p != '\0'; p++)
        *p = (char)(*p == ',' ? ' ' : *p);
    emit_raw(e, flag, "%s", words);
}

void config_megatron_keeps(struct emit *e, const struct run *r)
{
    const bool block = r->given[KEY_RECOMPUTE_LAYERS];
    if (r->recompute == RECOMP_FULL) {
        emit_word(e, "recompute_granularity", "full");
        emit_word(e, "recompute_method", block ? "block" : "uniform");
        emit_count(e, "recompute_num_layers",
                   block ? r->recompute_layers : r->recompute_granularity);
    } else if (r->recompute == RECOMP_SELECTIVE) {
        emit_word(e, "recompute_granularity", "selective");
        config_emit_modules(e, r, "recompute_modules", KEY_RECOMPUTE_MODULES);
    }
    if (r->away_layers > 0)
        emit_count(e, "cpu_offloading_num_layers", r->away_layers);
    if (r->offload_modules == 0)
        return;
    emit_bool(e, "fine_grained_activation_offloading", true);
    config_emit_modules(e, r, "offload_modules", KEY_OFFLOAD_MODULES);
    if (r->given[KEY_MIN_OFFLOADED_TENSOR_SIZE])
        emit_count(e, "min_offloaded_tensor_size", r->offload_min_elems);
}
