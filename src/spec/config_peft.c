/*
 * Owns the dialect of PEFT's adapter_config.json: which method, of what size,
 * on which modules. What PEFT calls a module a model's class decides; here are
 * the names of all classes to read, and to write those of the classes whose
 * projections are apart. [peft/tuners/lora/config.py, ia3/config.py,
 * prompt_tuning/config.py, p_tuning/config.py, prefix_tuning/config.py, 0.21]
 */
#include "spec/config_emit.h"
#include "spec/config_hf.h"
#include "spec/peft_names.h"

#include "base/unit.h"

#include <string.h>

#include "base/banned.h"

static const struct config_row rows[] = {
    WORDS("peft_type", KEY_PEFT_TYPE,
          "LORA=lora IA3=ia3 PROMPT_TUNING=prompt-tuning P_TUNING=p-tuning "
          "PREFIX_TUNING=prefix-tuning ADALORA=? LOHA=? LOKR=? OFT=? BOFT=? "
          "ADAPTION_PROMPT=? MULTITASK_PROMPT_TUNING=? POLY=? LN_TUNING=? "
          "VERA=? FOURIERFT=? XLORA=? HRA=? VBLORA=? CPT=? BONE=? "
          "TRAINABLE_TOKENS=? RANDLORA=? ROAD=? SHIRA=? C3A=? MISS=?"),
    LATER_SAME("r", KEY_LORA_RANK),
    SAME("lora_dropout", KEY_LORA_DROPOUT),
    LATER_BOOL("use_rslora"),
    LATER_BOOL("use_dora"),
    LATER("target_modules"),
    LATER("feedforward_modules"),
    LATER("layers_to_transform"),
    LATER("rank_pattern"),
    LATER("modules_to_save"),
    LATER_BOOL("ensure_weight_tying"),
    SAME("num_virtual_tokens", KEY_NUM_VIRTUAL_TOKENS),
    SAME("prefix_projection", KEY_PREFIX_PROJECTION),
    LATER("encoder_hidden_size"),
    LATER("encoder_reparameterization_type"),
    ONLY("bias", "none"),
    ONLY("lora_bias", "false"),
    ONLY("use_qalora", "false"),
    ONLY("use_bdlora", "false"),
    LATER("exclude_modules"),
    LATER("target_parameters"),
    LATER("trainable_token_indices"),
    LATER("layer_replication"),
    LATER("velora_config"),
    LATER("kasa_config"),
    LATER("monteclora_config"),

    /* the model's own, which PEFT fills in: looked at when that is known */
    LATER("num_layers"),
    LATER("num_attention_heads"),
    SHAPE("num_transformer_submodules"),
    LATER("token_dim"),

    /* what is not seen in memory */
    QUIET("layers_pattern"),
    LATER("alpha_pattern"),
    QUIET("lora_alpha"),
    QUIET("init_lora_weights"),
    QUIET("init_ia3_weights"),
    QUIET("init_weights"),
    QUIET("fan_in_fan_out"),
    QUIET("task_type"),
    QUIET("base_model_name_or_path"),
    QUIET("auto_mapping"),
    QUIET("revision"),
    QUIET("inference_mode"),
    QUIET("peft_version"),
    QUIET("prompt_tuning_init"),
    QUIET("prompt_tuning_init_text"),
    QUIET("prompt_tuning_init_state_dict_path"),
    QUIET("tokenizer_name_or_path"),
    QUIET("tokenizer_kwargs"),
    QUIET("encoder_dropout"),
    QUIET("encoder_num_layers"),
    QUIET("loftq_config"),
    QUIET("eva_config"),
    QUIET("corda_config"),
    QUIET("lora_ga_config"),
    QUIET("runtime_config"),
    QUIET("megatron_config"),
    QUIET("megatron_core"),
    QUIET("qalora_group_size"),
    QUIET("arrow_config"),
    QUIET("alora_invocation_tokens"),
};

/* ---- names of modules ---- */

static void unknown_module(struct config *c, const struct json *at)
{
    const int n = (int)(at->text.n < 40 ? at->text.n : 40);
    diag_hint(config_bad(c, at, MEMPLAN_E_UNKNOWN,
                         "'%.*s' is no module that is known", n,
                         at->kind == JSON_STRING ? at->text.p : ""),
              "such as q_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, "
              "c_attn, query_key_value; or \"all-linear\", and no list");
}

/* PEFT takes all-linear in any case, and all else that is no list for a regular
 * expression (tuners/tuners_utils.py, check_target_module_exists). */
static void one_string(struct config *c, const struct json *of,
                       enum setup_key key)
{
    if (str_same_name(of->text, STR("all-linear"))) {
        config_set(c, of, key, "all-linear");
        return;
    }
    diag_hint(config_bad(c, of, MEMPLAN_E_UNSUPPORTED,
                         "a string is a regular expression to PEFT, which is "
                         "not read"),
              "write a list, such as [\"q_proj\", \"v_proj\"], or "
              "\"all-linear\"");
}

bool config_is_end(struct config *c, const struct json *at, struct str name)
{
    static const char *const ends[] = { "lm_head", "embed_out", "embed_tokens",
                                        "wte", "embed_in" };
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        if (str_is(name, ends[i])) {
            diag_hint(config_bad(c, at, MEMPLAN_E_UNSUPPORTED,
                                 "adapters of '%s' are not modelled", ends[i]),
                      "leave it out, or use \"modules_to_save\": [\"%s\"], "
                      "which trains all of it",
                      ends[i]);
            return true;
        }
    return false;
}

/* all-linear, or a list of names; these are told. */
static uint64_t modules_at(struct config *c, const char *path,
                           enum setup_key key)
{
    char list[LORA_WORDS_MAX];
    uint64_t names = 0;
    uint64_t words = 0;
    const struct json *of = config_at(c, path);
    if (of == NULL || (of->kind == JSON_ARRAY && of->child == NULL))
        return 0;
    if (of->kind == JSON_STRING) {
        one_string(c, of, key);
        return 0;
    }
    const struct json *one = of->kind == JSON_ARRAY ? of->child : of;
    for (; one != NULL; one = of->kind == JSON_ARRAY ? one->next : NULL) {
        const unsigned i = one->kind == JSON_STRING ? peft_name_find(one->text)
                                                    : PEFT_NAMES_MAX;
        if (one->kind == JSON_STRING && config_is_end(c, one, one->text))
            return 0;
        if (i == PEFT_NAMES_MAX) {
            unknown_module(c, one);
            return 0;
        }
        names |= UINT64_C(1) << i;
        words |= peft_name_words(i);
    }
    config_set(c, of, key, lora_words(words, list));
    return names;
}

/* ---- what rows alone do not say ---- */

/* ms-swift fills in the last two itself (swift/pipelines/train/tuner.py,
 * get_modules_to_save). */
static const struct {
    const char *name, *word;
} saved[] = {
    { "embed_tokens", "embed" },  { "lm_head", "head" },
    { "norm", "norm" },           { "multi_modal_projector", "projector" },
    { "wte", "embed" },           { "embed_in", "embed" },
    { "embed_out", "head" },      { "ln_f", "norm" },
    { "all-embedding", "embed" }, { "all-norm", "norm" },
};
enum { SAVED = sizeof(saved) / sizeof(saved[0]), SAVED_LIST = 80 };

/* By the end of a module's name, as PEFT finds it. */
static bool add_saved(struct config *c, const struct json *at, struct str name,
                      char list[SAVED_LIST])
{
    struct str end = name;
    for (size_t i = name.n; i > 0 && end.n == name.n; i--)
        if (name.p[i - 1] == '.')
            end = (struct str){ name.p + i, name.n - i };
    for (size_t i = 0; i < SAVED; i++)
        if (str_is(end, saved[i].name)) {
            str_append(list, SAVED_LIST, "%s%s", list[0] != '\0' ? "," : "",
                       saved[i].word);
            return true;
        }
    diag_hint(config_bad(c, at, MEMPLAN_E_UNSUPPORTED,
                         "'%.*s', trained in full, is not modelled",
                         (int)(name.n < 40 ? name.n : 40), name.p),
              "known are embed_tokens, lm_head, norm and "
              "multi_modal_projector");
    return false;
}

/* One name, or several with commas or spaces between. */
static bool add_all_saved(struct config *c, const struct json *at,
                          char list[SAVED_LIST])
{
    if (at->kind != JSON_STRING)
        return add_saved(c, at, (struct str){ "", 0 }, list);
    struct str rest = at->text, left;
    while (rest.n > 0)
        for (struct str w = str_cut(rest, ',', &rest); w.n > 0; w = left) {
            const struct str name = str_cut(w, ' ', &left);
            if (name.n > 0 && !add_saved(c, at, name, list))
                return false;
        }
    return true;
}

void config_full_modules(struct config *c, const struct json *of)
{
    char list[SAVED_LIST] = "";
    const struct json *one = of->kind == JSON_ARRAY ? of->child : of;
    for (; one != NULL; one = of->kind == JSON_ARRAY ? one->next : NULL)
        if (!add_all_saved(c, one, list))
            return;
    if (list[0] != '\0')
        config_set(c, of, KEY_LORA_FULL_MODULES, list);
}

static bool knows_end(struct str names)
{
    bool found = false;
    struct str left;
    while (names.n > 0)
        for (struct str w = str_cut(names, ',', &names); w.n > 0; w = left) {
            const struct str name = str_cut(w, ' ', &left);
            found |= str_is(name, "embed_tokens") || str_is(name, "lm_head");
        }
    return found;
}

/* PEFT looks for these two names alone, so that of GPT-2's wte it makes a copy
 * (utils/constants.py, EMBEDDING_LAYER_NAMES). */
void config_full_tying(struct config *c, const struct json *at,
                       const struct json *of)
{
    bool found = false;
    const struct json *one = of->kind == JSON_ARRAY ? of->child : of;
    for (; one != NULL; one = of->kind == JSON_ARRAY ? one->next : NULL)
        found |= one->kind == JSON_STRING && knows_end(one->text);
    if (found) {
        config_set_json(c, at, KEY_ENSURE_WEIGHT_TYING);
        return;
    }
    if (at->kind == JSON_BOOL && at->truth)
        config_note(c,
                    "'%.*s' has no effect: PEFT knows embed_tokens and lm_head "
                    "alone",
                    (int)at->key.n, at->key.p);
    config_set(c, at, KEY_ENSURE_WEIGHT_TYING, "false");
}

static void full_modules(struct config *c)
{
    const struct json *of = config_at(c, "modules_to_save");
    const struct json *at = config_at(c, "ensure_weight_tying");
    if (of == NULL || of->kind != JSON_ARRAY)
        return;
    config_full_modules(c, of);
    if (at != NULL)
        config_full_tying(c, at, of);
}

/* What it scales changes no byte; only names are looked at. */
static void alphas(struct config *c)
{
    const struct json *of = config_at(c, "alpha_pattern");
    c->s->peft_alphas = 0;
    if (of == NULL || of->kind != JSON_OBJECT)
        return;
    for (const struct json *one = of->child; one != NULL; one = one->next) {
        const unsigned i = peft_name_find(one->key);
        if (i < PEFT_NAMES_MAX)
            c->s->peft_alphas |= UINT64_C(1) << i;
    }
}

/* IA3Config wants one to be in the other (ia3/config.py, __post_init__). */
static void check_inputs(struct config *c)
{
    const struct json *at = config_at(c, "feedforward_modules");
    const uint64_t of = c->s->peft_names, in = c->s->peft_inputs;
    char names[PEFT_NAMES_TEXT];
    if (at != NULL && of != 0 && (in & ~of) != 0)
        diag_hint(config_bad(c, at, MEMPLAN_E_CONFLICT,
                             "%s of feedforward_modules is not among "
                             "target_modules",
                             peft_names_text(in & ~of, names)),
                  "PEFT refuses that: add it there, or leave it out here");
}

/* Names alone: an expression of one layer's is another rank in that layer. */
static void ranks(struct config *c)
{
    enum { LIST = 256 };
    char list[LIST] = "";
    const struct json *of = config_at(c, "rank_pattern");
    c->s->peft_ranks = 0;
    if (of == NULL || of->kind != JSON_OBJECT)
        return;
    for (const struct json *one = of->child; one != NULL; one = one->next) {
        char buf[LORA_WORDS_MAX];
        const unsigned i = peft_name_find(one->key);
        const char *words = lora_words(peft_name_words(i), buf);
        if (words[0] == '\0' || strchr(words, ',') != NULL
            || one->kind != JSON_NUMBER) {
            diag_hint(config_bad(c, one, MEMPLAN_E_UNSUPPORTED,
                                 "a rank of some layers, or of several "
                                 "modules, is not modelled"),
                      "such as {\"q_proj\": 16}");
            return;
        }
        c->s->peft_ranks |= UINT64_C(1) << i;
        str_append(list, LIST, "%s%s=%.0f", list[0] != '\0' ? "," : "", words,
                   one->number);
    }
    if (list[0] != '\0')
        config_set(c, of, KEY_RANK_PATTERN, list);
}

static void layers(struct config *c)
{
    const struct json *of = config_at(c, "layers_to_transform");
    if (of != NULL && (of->kind != JSON_ARRAY || of->child != NULL))
        config_set_json(c, of, KEY_LAYERS_TO_TRANSFORM);
}

/* What would be other tensors, each with what it does to memory. */
static void refuse_others(struct config *c)
{
    static const struct {
        const char *path, *why, *hint;
    } others[] = {
        { "exclude_modules", "modules without adapters",
          "list all others as target_modules" },
        { "target_parameters", "adapters of parameters that are no module's",
          "leave it out, or name modules" },
        { "trainable_token_indices",
          "each forward copies the table of words, and a tied head keeps it",
          "use \"modules_to_save\": [\"embed_tokens\"], which trains all rows" },
        { "layer_replication", "layers that are there twice",
          "leave it out, or give the model as many layers" },
        { "velora_config", "inputs that are kept compressed", "leave it out" },
        { "kasa_config", "singular values beside the adapters",
          "leave it out" },
        { "monteclora_config", "samples of adapters", "leave it out" },
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        const struct json *at = config_at(c, others[i].path);
        const bool none =
            at == NULL || at->kind == JSON_NULL
            || ((at->kind == JSON_ARRAY || at->kind == JSON_OBJECT)
                && at->child == NULL);
        if (!none)
            diag_hint(config_bad(c, at, MEMPLAN_E_UNSUPPORTED,
                                 "%s is not modelled: %s", others[i].path,
                                 others[i].why),
                      "%s", others[i].hint);
    }
}

/* PEFT fills it in for every encoder; of prefixes that nothing projects it says
 * nothing. */
static void encoder(struct config *c)
{
    const struct json *type = config_at(c, "peft_type");
    const struct json *wide = config_at(c, "encoder_hidden_size");
    const bool prefix = type != NULL && str_is(type->text, "PREFIX_TUNING");
    const struct json *how = config_at(c, "encoder_reparameterization_type");
    if (how != NULL && !prefix
        && (how->kind != JSON_STRING || !str_is(how->text, "MLP")))
        diag_hint(config_bad(c, how, MEMPLAN_E_UNSUPPORTED,
                             "an encoder of prompts other than MLP is not "
                             "modelled: an LSTM has weights and states of its "
                             "own"),
                  "write \"MLP\", PEFT's default");
    if (wide != NULL && wide->kind == JSON_NUMBER
        && (!prefix || config_is_true(c, "prefix_projection")))
        config_set_json(c, wide, KEY_ENCODER_HIDDEN_SIZE);
}

/* PEFT refuses 0 (lora/layer.py, update_layer), which here is none at all. */
void config_lora_rank(struct config *c, const struct json *rank)
{
    uint64_t n = 1;
    char shown[CONFIG_PATH_MAX], name[CONFIG_PATH_MAX];
    if (rank->kind == JSON_NUMBER)
        n = rank->number > 0;
    else if (rank->kind == JSON_STRING)
        unit_parse_count(rank->text, &n);
    str_format(name, sizeof(name), "%.*s", (int)rank->key.n, rank->key.p);
    if (n > 0)
        config_set_json(c, rank, KEY_LORA_RANK);
    else
        diag_hint(config_bad(c, rank, MEMPLAN_E_RANGE,
                             "'%s' of adapters is a whole number of one or "
                             "more",
                             config_shown(c, name, shown)),
                  "such as 16; to train without adapters leave them out");
}

/* A number of the model's; 0 where there is none. */
static uint64_t shape_at(struct config *c, const char *path)
{
    const struct json *at = config_at(c, path);
    if (at == NULL)
        return 0;
    if (at->kind == JSON_NUMBER && at->number >= 1 && at->number < 0x1p32)
        return (uint64_t)at->number;
    config_bad(c, at, MEMPLAN_E_ARG, "'%s' takes a count", path);
    return 0;
}

/* PEFT's LoraConfig: rank 8, which a file that it wrote always has. */
static void together(struct config *c)
{
    const struct json *type = config_at(c, "peft_type");
    const bool lora = type == NULL || str_is(type->text, "LORA");
    const struct json *rank = config_at(c, "r");
    if (rank != NULL)
        config_lora_rank(c, rank);
    else if (lora)
        config_set(c, c->root, KEY_LORA_RANK, "8");
    if (config_is_true(c, "use_dora"))
        config_set(c, config_at(c, "use_dora"), KEY_LORA_VARIANT, "dora");
    else if (config_is_true(c, "use_rslora"))
        config_set(c, config_at(c, "use_rslora"), KEY_LORA_VARIANT, "rslora");
    const struct json *targets = config_at(c, "target_modules");
    c->s->peft_list = lora && targets == NULL;
    c->s->peft_names = modules_at(c, "target_modules", KEY_LORA_TARGETS);
    c->s->peft_inputs =
        modules_at(c, "feedforward_modules", KEY_FEEDFORWARD_MODULES);
    check_inputs(c);
    layers(c);
    ranks(c);
    alphas(c);
    full_modules(c);
    encoder(c);
    refuse_others(c);
    c->s->peft_layers = shape_at(c, "num_layers");
    c->s->peft_heads = shape_at(c, "num_attention_heads");
    c->s->peft_width = shape_at(c, "token_dim");
}

/* ---- and back ---- */

/* Classes whose projections are q_proj, k_proj, ..., each apart. */
static bool has_names(const struct spec *s)
{
    static const char *const others[] = { "phi",     "opt",        "gptj",
                                          "gpt_neo", "starcoder2", "gpt2",
                                          "qwen" };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strcmp(s->model_type, others[i]) == 0)
            return false;
    return !s->fused_qkv && !s->bidirectional && s->decoder_layers == 0
           && s->vision == NULL && s->experts == 0 && s->kv_rank == 0
           && s->mixer == MIX_ATTENTION;
}

/* Their names of a set of ours: ["q_proj", "v_proj"]. */
static void put_modules(struct emit *e, const char *path, enum setup_key key,
                        uint64_t set)
{
    enum { LIST = 160 };
    char list[LIST] = "";
    if ((set >> LORA_ALL_LINEAR & 1) != 0) {
        emit_word(e, path, "all-linear");
        return;
    }
    if (!has_names(e->spec)) {
        emit_refuse(e, key,
                    "use --lora-targets all-linear: the class has "
                    "other names for its modules");
        return;
    }
    for (unsigned i = 0; i <= LORA_DOWN; i++)
        if ((set >> i & 1) != 0)
            str_append(list, LIST, "%s\"%s\"", list[0] != '\0' ? ", " : "",
                       peft_module(i));
    emit_raw(e, path, "[%s]", list);
}

static void put_layers(struct emit *e, const struct run *r)
{
    enum { LIST = 2600 };
    char list[LIST] = "";
    for (unsigned i = 0; i < SETUP_LIST_MAX; i++)
        if (run_adapts_layer(r, i))
            str_append(list, LIST, list[0] != '\0' ? ", %u" : "%u", i);
    emit_raw(e, "layers_to_transform", "[%s]", list);
}

static void put_saved(struct emit *e, const struct run *r)
{
    enum { LIST = 120 };
    char list[LIST] = "";
    for (unsigned i = 0; i < LORA_FULL_COUNT; i++)
        if ((r->lora_full >> i & 1) != 0)
            str_append(list, LIST, "%s\"%s\"", list[0] != '\0' ? ", " : "",
                       saved[i].name);
    emit_raw(e, "modules_to_save", "[%s]", list);
    if (r->ties_full)
        emit_bool(e, "ensure_weight_tying", true);
}

static void put_lora(struct emit *e, const struct run *r)
{
    if (r->lora_variant != LORA_VARIANT_LORA)
        emit_bool(
            e, r->lora_variant == LORA_VARIANT_DORA ? "use_dora" : "use_rslora",
            true);
    if (r->some_layers)
        put_layers(e, r);
    for (unsigned i = 0; i <= LORA_DOWN && r->given[KEY_RANK_PATTERN]; i++) {
        char path[CONFIG_PATH_MAX];
        str_format(path, sizeof(path), "rank_pattern.%s", peft_module(i));
        if (r->setup.rank[i] != 0)
            emit_count(e, path, r->setup.rank[i]);
    }
    if (r->given[KEY_RANK_PATTERN] && !has_names(e->spec))
        emit_refuse(e, KEY_RANK_PATTERN, "leave it out");
}

static void apart(struct emit *e, const struct run *r)
{
    if (!run_adapts(r)) {
        diag_hint(setup_error(e->d, MEMPLAN_E_UNSUPPORTED, KEY_LORA_RANK,
                              "without adapters there is no "
                              "adapter_config.json"),
                  "add --lora-rank 16, or ask for another program's file");
        return;
    }
    if (e->spec->head == HEAD_LM && e->spec->decoder_layers == 0)
        emit_word(e, "task_type", "CAUSAL_LM");
    if (r->peft == PEFT_LORA || r->peft == PEFT_IA3)
        put_modules(e, "target_modules", KEY_LORA_TARGETS, r->lora_targets);
    if (r->peft == PEFT_IA3)
        put_modules(e, "feedforward_modules", KEY_FEEDFORWARD_MODULES,
                    r->feedforward);
    if (r->peft == PEFT_LORA)
        put_lora(e, r);
    if (r->lora_full != 0)
        put_saved(e, r);
    if (r->given[KEY_ENCODER_HIDDEN_SIZE])
        emit_count(e, "encoder_hidden_size", r->encoder_hidden);
}

/* Keys of one method. */
static bool writes(const struct run *r, const char *path)
{
    const bool lora =
        strcmp(path, "r") == 0 || strcmp(path, "lora_dropout") == 0;
    const bool tokens = strcmp(path, "num_virtual_tokens") == 0;
    if (lora)
        return r->peft == PEFT_LORA;
    if (tokens)
        return r->virtual_tokens > 0;
    if (strcmp(path, "prefix_projection") == 0)
        return r->peft == PEFT_PREFIX;
    return run_adapts(r);
}

const struct config_table config_peft = {
    rows,        sizeof(rows) / sizeof(rows[0]),
    false,       false,
    NULL,        together,
    apart,       writes,
    BESIDE_REST,
};
