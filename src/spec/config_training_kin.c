/*
 * Owns what programs around TrainingArguments have in words of their own:
 * adapters and how the frozen weights are kept, and defaults that differ from
 * the Trainer's: TRL, LLaMA-Factory, axolotl, ms-swift, OpenRLHF.
 */
#include "spec/config_hf.h"
#include "spec/peft_names.h"

#include "base/unit.h"
#include "json/yaml.h"

#include <string.h>

#include "base/banned.h"

static const struct json *first_of(const struct config *c,
                                   const char *const *names, size_t n)
{
    const struct json *value = NULL;
    for (size_t i = 0; i < n && value == NULL; i++)
        value = config_at(c, names[i]);
    return value;
}

#define FIRST_OF(c, ...)                                                       \
    first_of((c), (const char *const[]){ __VA_ARGS__ },                        \
             sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))

static bool is_text(const struct json *v, const char *word)
{
    return v != NULL && v->kind == JSON_STRING
           && str_same_name(v->text, str_of(word));
}

static bool any_is_true(const struct config *c, const char *const *names,
                        size_t n)
{
    bool found = false;
    for (size_t i = 0; i < n; i++)
        found = found || config_is_true(c, names[i]);
    return found;
}

#define ANY_IS_TRUE(c, ...)                                                    \
    any_is_true((c), (const char *const[]){ __VA_ARGS__ },                     \
                sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))

/* ---- who reads the file ---- */

enum kin { KIN_OTHER, KIN_FACTORY, KIN_SWIFT, KIN_FMS };

static bool starts(const struct config *c, const char *command)
{
    const size_t n = strlen(command);
    for (size_t i = 0; i + n <= c->len; i++) {
        if (memcmp(c->text + i, command, n) == 0)
            return true;
    }
    return false;
}

static enum kin kin_of(const struct config *c)
{
    const bool script = str_is(c->root->key, CONFIG_DASHES);
    if (config_at(c, "tuner_type") != NULL || config_at(c, "train_type") != NULL
        || (script
            && (starts(c, "swift sft") || starts(c, "swift rlhf")
                || starts(c, "swift pt"))))
        return KIN_SWIFT;
    if (config_at(c, "finetuning_type") != NULL
        || (config_at(c, "stage") != NULL && config_at(c, "template") != NULL))
        return KIN_FACTORY;
    return config_fms_is(c) ? KIN_FMS : KIN_OTHER;
}

/* ---- which matrices have adapters ---- */

struct targets {
    uint64_t words; /* LORA_... */
    uint64_t names; /* by places of peft_module() */
    bool others;    /* words that are none of PEFT's names for modules */
};

/* Words of these programs. */
static bool add_own(struct targets *t, struct str name)
{
    static const struct {
        const char *name;
        enum lora_target word;
    } ours[] = {
        { "all", LORA_ALL_LINEAR },
        { "all-linear", LORA_ALL_LINEAR },
    };
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        if (str_is(name, ours[i].name)) {
            t->words |= UINT64_C(1) << ours[i].word;
            t->others = true;
            return true;
        }
    }
    return false;
}

/* By the last part of a module's name, or the last two; where one matrix is
 * several of ours it is all of them. */
static bool add_target(struct targets *t, struct str name)
{
    unsigned at = peft_name_find(name);
    for (size_t i = 0; i < name.n && at == PEFT_NAMES_MAX; i++) {
        if (name.p[i] == '.')
            at = peft_name_find((struct str){ name.p + i + 1, name.n - i - 1 });
    }
    if (at < PEFT_NAMES_MAX) {
        t->words |= peft_name_words(at);
        t->names |= UINT64_C(1) << at;
        return true;
    }
    for (size_t i = name.n; i > 0; i--) {
        if (name.p[i - 1] == '.')
            return add_own(t, (struct str){ name.p + i, name.n - i });
    }
    return add_own(t, name);
}

/* A pattern over modules: the alternatives of "(q|k|v)_proj" are read, of
 * every layer. */
static bool add_pattern(struct targets *t, struct str text)
{
    static const char end[] = ")_proj";
    const size_t n = sizeof(end) - 1;
    for (size_t i = 0; i + n <= text.n; i++) {
        if (memcmp(text.p + i, end, n) != 0)
            continue;
        size_t open = i;
        while (open > 0 && text.p[open - 1] != '(')
            open--;
        struct str rest = { text.p + open, i - open };
        while (rest.n > 0) {
            char name[32];
            const struct str one = str_cut(rest, '|', &rest);
            str_format(name, sizeof(name), "%.*s_proj", (int)one.n, one.p);
            if (!add_target(t, str_of(name)))
                return false;
        }
    }
    return t->words != 0;
}

static void bad_target(struct config *c, const struct json *of, struct str name)
{
    if (config_is_end(c, of, name))
        return;
    diag_hint(config_bad(c, of, MEMPLAN_E_UNKNOWN,
                         "'%.*s' is none of the matrices that are known",
                         (int)(name.n < 40 ? name.n : 40), name.p),
              "all, or of q_proj, k_proj, v_proj, o_proj, gate_proj, "
              "up_proj, down_proj; see --lora-targets");
}

static bool add_all(struct config *c, const struct json *one, struct targets *t)
{
    struct str rest =
        one->kind == JSON_STRING ? one->text : (struct str){ "", 0 };
    while (rest.n > 0) {
        struct str left;
        const struct str names = str_trim(str_cut(rest, ',', &rest));
        for (struct str w = names; w.n > 0; w = left) {
            const struct str name = str_cut(w, ' ', &left);
            if (name.n > 0 && !add_target(t, name)) {
                bad_target(c, one, name);
                return false;
            }
        }
    }
    return true;
}

static void targets(struct config *c, const struct json *of)
{
    char list[LORA_WORDS_MAX];
    struct targets t = { 0, 0, false };
    const struct json *one = of->kind == JSON_ARRAY ? of->child : of;
    for (; one != NULL; one = of->kind == JSON_ARRAY ? one->next : NULL) {
        if (one->kind != JSON_STRING
            || memchr(one->text.p, '(', one->text.n) == NULL) {
            if (!add_all(c, one, &t))
                return;
            continue;
        }
        t.others = true;
        if (!add_pattern(&t, one->text)) {
            bad_target(c, one, one->text);
            return;
        }
        config_note(c,
                    "of the pattern in '%.*s' the matrices are read, "
                    "and adapters are in every layer",
                    (int)of->key.n, of->key.p);
    }
    if (t.words == 0)
        return;
    config_set(c, of, KEY_LORA_TARGETS, lora_words(t.words, list));
    c->s->peft_names = t.others ? 0 : t.names;
}

/* ---- adapters ---- */

/* How the frozen weights are kept. */
static void base(struct config *c, enum kin kin)
{
    const struct json *bits = FIRST_OF(c, "quantization_bit", "quant_bits");
    const struct json *type = config_at(c, "bnb_4bit_quant_type");
    const struct json *where = bits != NULL ? bits : c->root;
    enum { MOST_BITS = 64 }; /* no weight has more */
    uint64_t n = 0;
    if (bits != NULL && bits->kind == JSON_NUMBER)
        n = bits->number > 0 && bits->number < MOST_BITS
                ? (uint64_t)bits->number
                : 0;
    else if (bits != NULL && bits->kind == JSON_STRING)
        unit_parse_count(bits->text, &n);
    if (kin == KIN_FMS)
        config_fms_base(c);
    const bool four =
        n == 4 || n == 3 || n == 2 || n == 1
        || ANY_IS_TRUE(c, "load_in_4bit", "use_4bit_quantization");
    if (four)
        config_set(c, where, KEY_BASE_DTYPE,
                   is_text(type, "fp4") ? "fp4" : "nf4");
    else if (bits != NULL
             || ANY_IS_TRUE(c, "load_in_8bit", "use_8bit_quantization"))
        config_set(c, where, KEY_BASE_DTYPE, "int8");
    const struct json *twice =
        FIRST_OF(c, "double_quantization", "use_bnb_nested_quant",
                 "use_nested_quant", "bnb_4bit_use_double_quant");
    const bool packed =
        four || bits != NULL
        || ANY_IS_TRUE(c, "load_in_8bit", "use_8bit_quantization");
    if (kin == KIN_OTHER && packed
        && ANY_IS_TRUE(c, "use_peft", "use_peft_lora")) {
        config_set(c, where, KEY_LORA_DTYPE, "bf16");
        config_note(c, "adapters over quantised weights are in bf16, and "
                       "nothing is cast, as TRL has it since 0.26; before: "
                       "--lora-dtype fp32 --kbit-cast norms");
    }
    const bool by_default =
        twice == NULL && (kin == KIN_FACTORY || kin == KIN_SWIFT);
    if (four
        && (by_default
            || ANY_IS_TRUE(c, "double_quantization", "use_bnb_nested_quant",
                           "use_nested_quant", "bnb_4bit_use_double_quant")))
        config_set(c, where, KEY_DOUBLE_QUANT, "true");
}

static bool names_module(const struct json *list, const char *name)
{
    const struct json *one =
        list != NULL && list->kind == JSON_ARRAY ? list->child : list;
    for (; one != NULL; one = list->kind == JSON_ARRAY ? one->next : NULL) {
        struct str rest =
            one->kind == JSON_STRING ? one->text : (struct str){ "", 0 };
        while (rest.n > 0)
            if (str_is(str_trim(str_cut(rest, ',', &rest)), name))
                return true;
    }
    return false;
}

/* LLaMA-Factory's finetuning_type freeze: two layers unless the file says more,
 * and nothing else but freeze_extra_modules (model/adapter.py,
 * _setup_freeze_tuning). */
static void top_layers(struct config *c, const struct json *type)
{
    const struct json *n = config_at(c, "freeze_trainable_layers");
    const struct json *more = config_at(c, "freeze_extra_modules");
    const struct json *only = config_at(c, "freeze_trainable_modules");
    const bool embed = names_module(more, "embed_tokens");
    const bool norm = names_module(more, "norm");
    const bool head = names_module(more, "lm_head");
    if ((n != NULL && n->kind == JSON_NUMBER && n->number < 0)
        || (only != NULL && !names_module(only, "all"))
        || (embed && norm && head)) {
        diag_hint(config_bad(c, n != NULL ? n : type, MEMPLAN_E_UNSUPPORTED,
                             "first layers, parts of layers, or all but layers "
                             "are not modelled"),
                  "known are the last layers, whole; see "
                  "--freeze-trainable-layers");
        return;
    }
    if (n != NULL)
        config_set_json(c, n, KEY_FREEZE_TRAINABLE_LAYERS);
    else
        config_set(c, type, KEY_FREEZE_TRAINABLE_LAYERS, "2");
    char list[32] = "";
    str_append(list, sizeof(list), "%s%s%s", embed ? "" : ",embed",
               norm ? "" : ",norm", head ? "" : ",head");
    config_set(c, more != NULL ? more : type, KEY_FREEZE, list + 1);
}

/* What is trained; false where the file's word for it is not modelled. */
static bool trains_adapters(struct config *c, enum kin kin, bool *lora)
{
    const struct json *type =
        FIRST_OF(c, "finetuning_type", "tuner_type", "train_type");
    if (kin == KIN_FMS)
        return config_fms_adapters(c, lora);
    const struct json *adapter = config_at(c, "adapter");
    const bool named =
        adapter != NULL && adapter->kind == JSON_STRING && adapter->text.n > 0;
    const bool typed = type != NULL && type->kind == JSON_STRING;
    *lora = named || ANY_IS_TRUE(c, "use_peft", "use_peft_lora")
            || (typed ? str_is(type->text, "lora") : kin != KIN_OTHER);
    if (typed && kin == KIN_FACTORY && str_is(type->text, "freeze")) {
        top_layers(c, type);
        return true;
    }
    if (!typed || str_is(type->text, "lora") || str_is(type->text, "full"))
        return true;
    diag_hint(
        config_bad(c, type, MEMPLAN_E_UNSUPPORTED,
                   "%.*s '%.*s' is not modelled", (int)type->key.n, type->key.p,
                   (int)(type->text.n < 40 ? type->text.n : 40), type->text.p),
        "known are lora and full, and LLaMA-Factory's freeze");
    return false;
}

/* What they hand to PEFT as modules_to_save: LLaMA-Factory's, ms-swift's, TRL's
 * and Axolotl's word for it, and Axolotl's for ensure_weight_tying. */
static void full_modules(struct config *c, bool lora)
{
    const struct json *of = FIRST_OF(c, "additional_target", "modules_to_save",
                                     "lora_modules_to_save");
    const struct json *tying = config_at(c, "peft_ensure_weight_tying");
    if (of == NULL)
        return;
    if (!lora) {
        config_note(c, "%.*s has no effect without adapters", (int)of->key.n,
                    of->key.p);
        return;
    }
    config_full_modules(c, of);
    if (tying != NULL)
        config_full_tying(c, tying, of);
}

/* These libraries' scripts hand these to peft and bitsandbytes. LLaMA-Factory
 * and ms-swift train adapters of rank 8 on all products by default, TRL of 16
 * on what peft has for the model, and fms-hf-tuning of 8 there; axolotl says
 * all. [llamafactory/hparams/finetuning_args.py, LLaMA-Factory 0.9.3;
 * swift/llm/argument/tuner_args.py, ms-swift 3.5.0; trl/trainer/model_config.py
 * at f2cd5771; tuning/config/peft_config.py at 0202bc95] */
#define RANK_OF_TRL "16"
#define RANK_OF_OTHERS "8"

static void adapters(struct config *c, enum kin kin)
{
    const bool fms = kin == KIN_FMS;
    const struct json *rank =
        fms ? config_at(c, "r") : FIRST_OF(c, "lora_rank", "lora_r");
    const struct json *of =
        FIRST_OF(c, "lora_target", "lora_target_modules", "target_modules");
    const struct json *dropout = config_at(c, "lora_dropout");
    bool lora = false;
    if (!trains_adapters(c, kin, &lora))
        return;
    full_modules(c, lora);
    if (!lora) {
        if (rank != NULL)
            config_note(c, "%.*s without adapters: all is trained",
                        (int)rank->key.n, rank->key.p);
        return;
    }
    if (rank != NULL)
        config_lora_rank(c, rank);
    else
        config_set(c, c->root, KEY_LORA_RANK,
                   kin == KIN_OTHER ? RANK_OF_TRL : RANK_OF_OTHERS);
    if (config_is_true(c, "lora_target_linear"))
        config_set(c, config_at(c, "lora_target_linear"), KEY_LORA_TARGETS,
                   "all-linear");
    else if (of != NULL)
        targets(c, of);
    if (dropout != NULL)
        config_set_json(c, dropout, KEY_LORA_DROPOUT);
    else if (kin == KIN_SWIFT || fms)
        config_set(c, c->root, KEY_LORA_DROPOUT, "0.05");
    base(c, kin);
}

/* ---- recomputation ---- */

/* activation_offloading: TRL's OffloadActivations, around checkpoints, which
 * its trainers have where nothing is said. Axolotl's trainer is told to have
 * none beside adapters, but its model has them already (loaders/model.py,
 * gradient_checkpointing_enable), and it has older ways too. 'disk' is the CPU since 277d524b
 * (0.18), and was plain checkpoints from 99187cd20 (0.12) on: the disk's own are
 * asked for by a word that its schema does not take. gradient_checkpointing
 * 'offload_disk' was these from c0a0c7534 (0.9.2) to then (axolotl
 * core/builders/base.py, loaders/model.py, loaders/patch_manager.py at
 * 067b021c). */
static void offloading(struct config *c, const struct json *said)
{
    const bool old = is_text(said, "offload") || is_text(said, "offload_disk");
    const struct json *v = old ? said : config_at(c, "activation_offloading");
    const bool axolotl = config_at(c, "base_model") != NULL
                         || config_at(c, "sequence_len") != NULL;
    const bool word = is_text(v, "legacy") || is_text(v, "hidden_states");
    const bool disk = is_text(v, "disk") || is_text(v, "offload_disk");
    if (v == NULL
        || !(old || word || disk || ANY_IS_TRUE(c, "activation_offloading")))
        return;
    if (said == NULL || axolotl)
        config_set(c, v, KEY_RECOMPUTE, "full");
    config_set(c, v, KEY_OFFLOAD_ACTIVATIONS, "cpu");
    if (is_text(said, "offload_disk"))
        config_note(c, "gradient_checkpointing 'offload_disk' moves "
                       "activations to the CPU's memory since Axolotl 0.18; "
                       "0.9.2 to 0.11 write them to a disk: "
                       "--offload-activations nvme");
    else if (disk)
        config_note(c, "activation_offloading 'disk' moves activations to the "
                       "CPU's memory, not to a disk, since Axolotl 0.18; in "
                       "releases since July 2025 before that it moved none: "
                       "--recompute full --offload-activations none");
}

/* LLaMA-Factory recomputes unless told not to, ms-swift too. [model_utils/
 * checkpointing.py, swift/trainers/arguments.py] */
static void recompute(struct config *c, enum kin kin)
{
    const struct json *said =
        FIRST_OF(c, "gradient_checkpointing", "activation_checkpointing");
    const struct json *more = config_at(c, "gradient_checkpointing_kwargs");
    if (kin == KIN_FACTORY) {
        const bool off = config_is_true(c, "disable_gradient_checkpointing");
        const struct json *re = config_at(c, "use_reentrant_gc");
        config_set(c, c->root, KEY_RECOMPUTE, off ? "none" : "full");
        if (!off)
            config_set(c, re != NULL ? re : c->root, KEY_RECOMPUTE_REENTRANT,
                       re == NULL || config_is_true(c, "use_reentrant_gc")
                           ? "true"
                           : "false");
    } else if (kin == KIN_SWIFT && said == NULL) {
        config_set(c, c->root, KEY_RECOMPUTE, "full");
    } else if (said == NULL && config_at(c, "activation_offloading") == NULL
               && FIRST_OF(c, "use_peft", "packing") != NULL) {
        config_note(c, "TRL's trainers recompute where gradient_checkpointing "
                       "is not said, since 2025: --recompute full");
    }
    if (is_text(said, "unsloth")) {
        config_set(c, said, KEY_RECOMPUTE, "full");
        config_set(c, said, KEY_OFFLOAD_ACTIVATIONS, "cpu");
    }
    offloading(c, said);
    if (more != NULL && more->kind == JSON_STRING) { /* a script's JSON */
        const char *at = strstr(more->text.p, "use_reentrant");
        if (at != NULL)
            config_set(c, more, KEY_RECOMPUTE_REENTRANT,
                       strstr(at, "rue") != NULL ? "true" : "false");
    }
}

/* ---- OpenRLHF's flags ---- */

static void open_rlhf(struct config *c)
{
    const struct json *whole = json_member(c->root, "train.batch_size");
    const struct json *old = config_at(c, "train_batch_size");
    if (json_member(c->root, "train.micro_batch_size") != NULL && whole != NULL)
        config_set_json(c, whole, KEY_GLOBAL_BATCH);
    else if (config_at(c, "micro_train_batch_size") != NULL && old != NULL)
        config_set_json(c, old, KEY_GLOBAL_BATCH);
    else if (old != NULL)
        config_note(c, "train_batch_size is each script's own: see "
                       "--micro-batch, --global-batch");
    if (starts(c, "train_ppo") || starts(c, "train_dpo")
        || starts(c, "train_kto"))
        config_note(c, "the other models of OpenRLHF's run are not modelled: "
                       "the one that is trained is");
}

bool config_kin_is_bf16(const struct config *c)
{
    const struct json *dtype = json_member(c->root, "ds.param_dtype");
    const struct json *loaded = config_at(c, "torch_dtype");
    if (dtype == NULL)
        dtype = config_at(c, "param_dtype");
    return is_text(dtype, "bf16") || is_text(dtype, "bfloat16")
           || (kin_of(c) == KIN_SWIFT && config_at(c, "fp16") == NULL
               && (loaded == NULL || is_text(loaded, "bfloat16")));
}

/* ms-swift's own files by name. [swift/config] */
bool config_kin_zero(struct config *c, const struct json *value)
{
    static const struct {
        const char *name, *zero;
        bool offloads;
    } known[] = {
        { "zero0", "0", false },        { "zero1", "1", false },
        { "zero2", "2", false },        { "zero3", "3", false },
        { "zero2_offload", "2", true }, { "zero3_offload", "3", true },
    };
    size_t i = 0;
    const size_t n = sizeof(known) / sizeof(known[0]);
    while (i < n && !str_is(value->text, known[i].name))
        i++;
    if (i == n)
        return false;
    const bool whole = known[i].zero[0] == '3';
    config_set(c, value, KEY_ZERO, known[i].zero);
    config_set(c, value, KEY_OVERLAP_COMM, "false");
    if (known[i].offloads)
        config_set(c, value, KEY_OFFLOAD_OPTIMIZER, "cpu");
    if (known[i].offloads && whole)
        config_set(c, value, KEY_OFFLOAD_PARAMS, "cpu");
    c->s->automatic[KEY_REDUCE_BUCKET] = whole;
    c->s->automatic[KEY_PREFETCH_BUCKET] = whole;
    c->s->automatic[KEY_PERSISTENCE_THRESHOLD] = whole;
    if (!whole) {
        config_set(c, value, KEY_REDUCE_BUCKET, "200000000");
        config_set(c, value, KEY_ALLGATHER_BUCKET, "200000000");
    }
    return true;
}

static void attention(struct config *c)
{
    static const struct {
        const char *flag, *attention, *kernel;
    } flags[] = {
        { "flash_attention", "flash", "flash2" },
        { "use_flash_attn", "flash", "flash2" },
        { "flash_attn_2", "flash", "flash2" },
        { "sdp_attention", "sdpa", NULL },
        { "xformers_attention", "sdpa", NULL },
        { "eager_attention", "eager", NULL },
    };
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        const struct json *at = config_at(c, flags[i].flag);
        if (!config_is_true(c, flags[i].flag))
            continue;
        config_set(c, at, KEY_ATTENTION, flags[i].attention);
        if (flags[i].kernel != NULL)
            config_set(c, at, KEY_ATTENTION_KERNEL, flags[i].kernel);
    }
}

static bool ends(struct str s, const char *with)
{
    const size_t n = strlen(with);
    return s.n >= n && memcmp(s.p + s.n - n, with, n) == 0;
}

/* Axolotl's, by their classes; what Liger's does entries of its own say. */
static void plugins(struct config *c)
{
    static const struct {
        const char *name, *why;
    } known[] = {
        { "LigerPlugin", NULL },
        { "SwanLabPlugin", NULL },
        { "LMEvalPlugin", NULL },
        { "CutCrossEntropyPlugin",
          "see --loss fused, which keeps no logits either" },
        { "KernelsPlugin", "layers are transformers' own code" },
        { "ExpertParallelPlugin", "see --ep" },
    };
    enum { KNOWN = sizeof(known) / sizeof(known[0]) };
    const struct json *of = config_at(c, "plugins");
    if (of == NULL || of->kind != JSON_ARRAY)
        return;
    for (const struct json *one = of->child; one != NULL; one = one->next) {
        size_t i = 0;
        while (i < KNOWN
               && !(one->kind == JSON_STRING && ends(one->text, known[i].name)))
            i++;
        if (i == KNOWN)
            config_note(c, "plugins: %.*s is not modelled",
                        (int)(one->text.n < 60 ? one->text.n : 60),
                        one->kind == JSON_STRING ? one->text.p : "");
        else if (known[i].why != NULL)
            config_note(c, "plugins: %s is not modelled: %s", known[i].name,
                        known[i].why);
    }
}

void config_kin(struct config *c)
{
    const enum kin kin = kin_of(c);
    if (kin == KIN_FACTORY) /* which reads by OmegaConf */
        yaml_refuse_again(c->root, c->text, c->len, c->d);
    adapters(c, kin);
    recompute(c, kin);
    open_rlhf(c);
    attention(c);
    config_fms_attention(c);
    plugins(c);
    if (ANY_IS_TRUE(c, "liger_fused_linear_cross_entropy")
        && ANY_IS_TRUE(c, "liger_rms_norm"))
        config_set(c, config_at(c, "liger_rms_norm"), KEY_IMPLEMENTATION,
                   "hf-liger");
}
