/*
 * Owns what TrainingArguments mean together: who holds the states, number
 * formats, the optimizer, adapters; and in which of the ways that scripts take
 * them a text has them.
 */
#include "spec/config_hf.h"

#include "base/unit.h"
#include "json/yaml.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

static const struct json *either(const struct config *c, const char *a,
                                 const char *b)
{
    const struct json *value = config_at(c, a);
    return value != NULL ? value : config_at(c, b);
}

/* ---- who holds what ---- */

/* A word of `fsdp`: "full_shard auto_wrap", or a list of such. */
static bool has_option(const struct json *fsdp, const char *option)
{
    const struct json *one = fsdp->kind == JSON_ARRAY ? fsdp->child : fsdp;
    for (; one != NULL; one = fsdp->kind == JSON_ARRAY ? one->next : NULL) {
        struct str rest =
            one->kind == JSON_STRING ? one->text : (struct str){ "", 0 };
        while (rest.n > 0) {
            if (str_is(str_cut(rest, ' ', &rest), option))
                return true;
        }
    }
    return false;
}

/* ms-swift's script may name a file with `fsdp` and `fsdp_config` in it. */
static bool is_file(struct config *c, const struct json *one)
{
    static const char end[] = ".json";
    const size_t n = sizeof(end) - 1;
    if (one->kind != JSON_STRING || one->text.n < n
        || memcmp(one->text.p + one->text.n - n, end, n) != 0)
        return false;
    diag_hint(config_bad(c, one, MEMPLAN_E_UNSUPPORTED,
                         "a file in 'fsdp', as ms-swift has it, is not read"),
              "add its entries to those of this file: \"fsdp\" and "
              "\"fsdp_config\", in one JSON or YAML");
    return true;
}

/* trainer_utils.FSDPOption: transformers refuses any other word. */
static void check_options(struct config *c, const struct json *fsdp)
{
    static const char known[] =
        "full_shard shard_grad_op no_shard hybrid_shard "
        "hybrid_shard_zero2 offload auto_wrap true fsdp2";
    const struct json *one = fsdp->kind == JSON_ARRAY ? fsdp->child : fsdp;
    for (; one != NULL; one = fsdp->kind == JSON_ARRAY ? one->next : NULL) {
        struct str rest =
            one->kind == JSON_STRING ? one->text : (struct str){ "", 0 };
        bool good = one->kind == JSON_STRING || one->kind == JSON_BOOL;
        while (rest.n > 0) {
            const struct str word = str_cut(rest, ' ', &rest);
            bool found = word.n == 0;
            for (size_t i = 0; choice_word(known, i).n > 0; i++)
                found = found || str_eq(word, choice_word(known, i));
            good = good && found;
        }
        if (!good && !is_file(c, one))
            diag_hint(config_bad(c, one, MEMPLAN_E_UNKNOWN,
                                 "unknown option in 'fsdp'"),
                      "known are full_shard, shard_grad_op, no_shard, "
                      "hybrid_shard, hybrid_shard_zero2, offload, auto_wrap");
    }
}

static bool is_on(const struct json *fsdp)
{
    if (fsdp == NULL)
        return false;
    switch (fsdp->kind) {
    case JSON_BOOL: return fsdp->truth;
    case JSON_STRING: return fsdp->text.n > 0;
    case JSON_ARRAY: return fsdp->child != NULL;
    case JSON_NULL:
    case JSON_NUMBER:
    case JSON_OBJECT: return false;
    }
    return false;
}

/* fsdp_config may write its keys with fsdp_ before them. */
static const struct json *fsdp_entry(const struct config *c, const char *name)
{
    char path[96];
    str_format(path, sizeof(path), "fsdp_config.%s", name);
    const struct json *value = config_at(c, path);
    if (value == NULL) {
        str_format(path, sizeof(path), "fsdp_config.fsdp_%s", name);
        value = config_at(c, path);
    }
    return value;
}

/* full_shard is reshard_after_forward, shard_grad_op is not. */
static void fsdp_stage(struct config *c, const struct json *fsdp)
{
    const struct json *old = fsdp_entry(c, "sharding_strategy");
    const struct json *reshard =
        old != NULL ? old : fsdp_entry(c, "reshard_after_forward");
    const bool gathered = has_option(fsdp, "shard_grad_op")
                          || has_option(fsdp, "hybrid_shard_zero2")
                          || config_says(reshard, "false")
                          || config_says(reshard, "shard_grad_op");
    if (has_option(fsdp, "no_shard") || config_says(reshard, "no_shard")) {
        config_set(c, fsdp, KEY_ZERO, "0");
        return;
    }
    config_set(c, fsdp, KEY_ZERO, gathered ? "2" : "3");
    if (has_option(fsdp, "hybrid_shard")
        || config_says(reshard, "hybrid_shard"))
        config_note(c, "hybrid_shard shards within a node: add "
                       "--shard-degree, GPUs of a node");
}

void config_both_recompute(struct config *c, const struct json *at)
{
    diag_hint(config_bad(c, at, MEMPLAN_E_CONFLICT,
                         "both gradient_checkpointing and FSDP's own "
                         "activation_checkpointing are true"),
              config_at(c, "base_model") != NULL
                  ? "keep FSDP's: the Trainer refuses both, of Axolotl's own "
                    "examples too"
                  : "keep FSDP's: the Trainer refuses both");
}

/* Axolotl tells the Trainer of no checkpoints where activations are offloaded
 * (core/builders/base.py, _configure_gradient_checkpointing). */
static bool hides_checkpoints(const struct config *c)
{
    const struct json *to = config_at(c, "activation_offloading");
    return config_at(c, "base_model") != NULL && to != NULL
           && !config_says(to, "false") && !config_says(to, "hidden_states");
}

static enum config_holder read_fsdp(struct config *c, const struct json *fsdp)
{
    if (fsdp->kind != JSON_OBJECT)
        check_options(c, fsdp);
    const struct json *inner = config_at(c, "fsdp_config");
    if (inner != NULL && inner->kind == JSON_STRING)
        diag_hint(config_bad(c, inner, MEMPLAN_E_UNSUPPORTED,
                             "'fsdp_config' in a file of its own"),
                  "write its content here, as an object");
    const struct json *version = fsdp_entry(c, "version");
    if (version == NULL)
        version = config_at(c, "fsdp_version");
    const bool one = config_says(version, "1")
                     || (version != NULL && version->kind == JSON_NUMBER
                         && version->number < 2);
    config_set(c, fsdp, KEY_FRAMEWORK, "fsdp");
    config_set(c, fsdp, KEY_ENGINE, one ? "fsdp" : "fsdp2");
    if (version == NULL)
        config_note(c, "fsdp_config does not say its version: 2, as since "
                       "Transformers 5 (--engine fsdp before)");
    config_orig_params(c, fsdp_entry(c, "use_orig_params"), !one);
    fsdp_stage(c, fsdp);
    if (has_option(fsdp, "offload")
        || config_says(fsdp_entry(c, "cpu_offload"), "true")
        || config_says(fsdp_entry(c, "offload_params"), "true"))
        config_set(c, fsdp, KEY_OFFLOAD_PARAMS, "cpu");
    const struct json *again = fsdp_entry(c, "activation_checkpointing");
    if (!config_says(again, "true"))
        return HOLD_FSDP;
    config_set(c, again, KEY_RECOMPUTE, "full");
    if ((config_is_true(c, "gradient_checkpointing")
         || config_is_true(c, "activation_checkpointing"))
        && !hides_checkpoints(c))
        config_both_recompute(c, again);
    return HOLD_FSDP;
}

const struct json *config_deepspeed_file(const struct config *c)
{
    const struct json *ds = config_at(c, "deepspeed");
    const struct json *file =
        either(c, "deepspeed_config", "deepspeed_config_file");
    if (file != NULL && (ds == NULL || ds->kind == JSON_BOOL))
        return file;
    const bool off = ds != NULL && ds->kind == JSON_BOOL && !ds->truth;
    return off ? NULL : ds;
}

/* A DeepSpeed configuration inside this one, or the name of its file. */
static void read_deepspeed(struct config *c, const struct json *value)
{
    config_set(c, value, KEY_FRAMEWORK, "deepspeed");
    if (value->kind == JSON_BOOL) {
        config_note(c, "'deepspeed' without its file: add --deepspeed FILE");
        return;
    }
    if (value->kind == JSON_STRING
        && memchr(value->text.p, '$', value->text.n) != NULL) {
        config_note(c, "which file 'deepspeed' is the script does not say: add "
                       "--deepspeed FILE");
        return;
    }
    if (value->kind == JSON_STRING && config_kin_zero(c, value))
        return;
    if (value->kind == JSON_STRING) {
        config_goes_on(c, value, "deepspeed");
        return;
    }
    struct config inner = *c;
    inner.table = &config_deepspeed;
    inner.root = value;
    config_read(&inner);
}

/* accelerate launch --config_file FILE: who holds what is said there. */
static void read_accelerate(struct config *c)
{
    const struct json *file = config_at(c, "config_file");
    if (file == NULL || file->kind != JSON_STRING)
        return;
    if (memchr(file->text.p, '$', file->text.n) != NULL) {
        config_note(c, "which file 'config_file' is the script does not say: "
                       "add --accelerate FILE");
        return;
    }
    config_goes_on(c, file, "accelerate");
    c->s->pending_keeps = true;
}

static enum config_holder who_holds(struct config *c)
{
    const struct json *ds = config_deepspeed_file(c);
    const struct json *inner = config_at(c, "fsdp_config");
    /* axolotl's files have no other word for it */
    const bool axolotl = config_at(c, "base_model") != NULL && inner != NULL
                         && inner->kind == JSON_OBJECT;
    const struct json *fsdp = axolotl ? inner : config_at(c, "fsdp");
    const bool sharded = axolotl || is_on(fsdp);
    if (ds != NULL && sharded) {
        memplan_error *e = config_bad(c, ds, MEMPLAN_E_CONFLICT,
                                      "both 'deepspeed' and 'fsdp' are set");
        diag_hint(e, "keep one: the Trainer refuses both");
        return HOLD_DEEPSPEED;
    }
    if (ds != NULL)
        return HOLD_DEEPSPEED;
    if (sharded)
        return read_fsdp(c, fsdp);
    enum config_holder launched = HOLD_DDP;
    const bool said = config_launched(c, &launched);
    read_accelerate(c);
    if (said && launched != HOLD_DEEPSPEED)
        return launched;
    if (launched == HOLD_DEEPSPEED || config_at(c, "zero_stage") != NULL
        || json_member(c->root, "ds.zero_stage") != NULL) {
        config_set(c, c->root, KEY_FRAMEWORK, "deepspeed");
        return HOLD_DEEPSPEED;
    }
    config_set(c, c->root, KEY_FRAMEWORK, "hf");
    return HOLD_DDP;
}

void config_hf_precision(struct config *c, enum config_holder holder,
                         const char *mixed)
{
    const bool half =
        str_is(str_of(mixed), "bf16") || str_is(str_of(mixed), "fp16");
    char word[16];
    str_format(word, sizeof(word), "%s%s", mixed,
               !half                ? ""
               : holder == HOLD_DDP ? "-amp"
                                    : "-mixed");
    config_set(c, c->root, KEY_PRECISION, word);
    if (holder == HOLD_FSDP && half)
        config_set(c, c->root, KEY_REDUCE_DTYPE, mixed);
}

/* LLaMA-Factory's word for weights and adapters that stay in 16 bits, without
 * autocast; under FSDP's mixed precision Accelerate makes them 32-bit all the
 * same. [hparams/parser.py; model/adapter.py, init_adapter] */
static bool is_pure(struct config *c, enum config_holder h, bool bf16)
{
    const struct json *pure = config_at(c, "pure_bf16");
    if (!config_is_true(c, "pure_bf16"))
        return false;
    if (h == HOLD_DEEPSPEED) {
        config_note(c, "pure_bf16 beside DeepSpeed is not modelled: false is "
                       "assumed; with ZeRO-3 LLaMA-Factory refuses it");
        return false;
    }
    if (h == HOLD_FSDP && bf16) {
        config_note(c, "pure_bf16 beside bf16: FSDP makes what is trained "
                       "32-bit all the same");
        return false;
    }
    config_set(c, pure, KEY_PRECISION, "bf16");
    if (c->s->set[KEY_LORA_RANK])
        config_set(c, pure, KEY_LORA_DTYPE, "bf16");
    return true;
}

static void precision(struct config *c, enum config_holder h)
{
    const struct json *word = config_at(c, "bf16");
    const struct json *mixed = config_at(c, "mixed_precision");
    const bool bf16 = config_is_true(c, "bf16") || config_says(mixed, "bf16")
                      || config_kin_is_bf16(c)
                      || config_says(word, "auto") /* axolotl's */
                      || config_says(word, "full");
    const bool fp16 = config_is_true(c, "fp16") || config_says(mixed, "fp16")
                      || config_is_true(c, "float16");
    if (bf16 && fp16) {
        memplan_error *e =
            config_bad(c, config_at(c, "fp16"), MEMPLAN_E_CONFLICT,
                       "bf16 and fp16 are both true");
        diag_hint(e, "keep one: TrainingArguments refuses both");
        return;
    }
    c->s->trainer.half = bf16 ? "bf16" : fp16 ? "fp16" : NULL;
    c->s->line_mixed = mixed != NULL;
    const bool tf32 =
        config_is_true(c, "tf32") || config_says(config_at(c, "tf32"), "auto");
    if (!fp16 && is_pure(c, h, bf16))
        return;
    const struct json *loaded = either(c, "torch_dtype", "dtype");
    const bool brain =
        config_fms_loads_bf16(c) || config_says(loaded, "bfloat16");
    const bool whole = !c->s->set[KEY_LORA_RANK]; /* PEFT's are in fp32 */
    /* autocast finds nothing to cast, and the optimizer 16-bit weights; under
       mixed precision the others make 32-bit ones (accelerate's prepare) */
    const bool kept = h == HOLD_DDP || (h == HOLD_FSDP && !bf16);
    if (kept && brain && whole && !fp16) {
        config_set(c, loaded != NULL ? loaded : c->root, KEY_PRECISION, "bf16");
        return;
    }
    config_hf_precision(c, h,
                        bf16 || (brain && !fp16 && !whole) ? "bf16"
                        : fp16                             ? "fp16"
                        : tf32                             ? "tf32"
                                                           : "fp32");
}

/* ---- the rest ---- */

static void ddp_bucket(struct config *c)
{
    const struct json *mb = config_at(c, "ddp_bucket_cap_mb");
    char bytes[40];
    if (mb != NULL && mb->kind == JSON_NUMBER)
        str_format(bytes, sizeof(bytes), "%.0fMiB", mb->number);
    else if (mb != NULL && mb->kind == JSON_STRING && mb->text.n < 20)
        str_format(bytes, sizeof(bytes), "%.*sMiB", (int)mb->text.n,
                   mb->text.p);
    else
        return;
    config_set(c, mb, KEY_DDP_BUCKET, bytes);
}

/* Preferences are learned beside a model that stays as it is. */
static void stage(struct config *c)
{
    const struct json *of = either(c, "stage", "rl");
    if (of != NULL && of->kind == JSON_STRING && of->text.n > 0
        && !str_is(of->text, "sft") && !str_is(of->text, "pt"))
        config_note(c,
                    "%.*s '%.*s' is not modelled: no second model is held, and "
                    "a sample is one sequence",
                    (int)of->key.n, of->key.p,
                    (int)(of->text.n < 20 ? of->text.n : 20), of->text.p);
}

/* ---- what a DeepSpeed file has to agree with ---- */

/* A number, or a flag's text; `otherwise` where there is none. */
static double number_at(const struct config *c, const char *path,
                        double otherwise)
{
    const struct json *v = config_at(c, path);
    double x = otherwise;
    if (v != NULL && v->kind == JSON_NUMBER)
        return v->number;
    if (v != NULL && v->kind == JSON_STRING
        && unit_parse_real(v->text, &x) != UNIT_OK)
        return otherwise;
    return x;
}

/* transformers/integrations/deepspeed.py, trainer_config_process. Only what is
 * written here: of a script's flags the rest may be another program's. */
static void keep_said(struct config *c)
{
    struct setup_trainer *t = &c->s->trainer;
    *t = (struct setup_trainer){ .half = NULL };
    str_format(t->file, sizeof(t->file), "%s", c->name);
    t->bf16_said = config_at(c, "bf16") != NULL;
    t->fp16_said = config_at(c, "fp16") != NULL;
    t->clip_said = config_at(c, "max_grad_norm") != NULL;
    t->max_grad_norm = number_at(c, "max_grad_norm", 0);
    t->grad_accum = number_at(c, "gradient_accumulation_steps", 0);
    t->checkpoints = config_is_true(c, "gradient_checkpointing");
    if (t->checkpoints && c->s->fsdp_checkpoints)
        config_both_recompute(c, config_at(c, "gradient_checkpointing"));
    if (!config_is_true(c, "auto_find_batch_size"))
        t->micro_batch = number_at(c, "per_device_train_batch_size", 0);
}

/* ---- files ---- */

/* A "--word" outside of comments. */
static bool has_flag(const char *text, size_t len)
{
    bool comment = false;
    for (size_t i = 0; i + 2 < len; i++) {
        const bool begins = i == 0 || text[i - 1] == ' ' || text[i - 1] == '\t'
                            || text[i - 1] == '\n';
        if (text[i] == '\n')
            comment = false;
        else if (text[i] == '#' && begins)
            comment = true;
        else if (!comment && begins && text[i] == '-' && text[i + 1] == '-'
                 && text[i + 2] >= 'A')
            return true;
    }
    return false;
}

struct json *config_parse_training_args(struct arena *a, const char *text,
                                        size_t len, struct diag *d)
{
    size_t i = 0;
    while (i < len
           && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n'
               || text[i] == '\r' || (unsigned char)text[i] >= 0x80))
        i++;
    const bool json = i == len || text[i] == '{' || text[i] == '[';
    struct config_launcher of;
    config_find_launcher(text, len, &of);
    if (!json && (has_flag(text, len) || of.program != NULL))
        return config_parse_flags(a, text, len, d);
    if (!json)
        return yaml_parse(a, text, len, d);
    return json_parse(a, text, len, d);
}

void config_training_args_together(struct config *c)
{
    if (config_others_trainer(c))
        return;
    config_world(c);
    config_kin(c);
    config_hf_wraps(c);
    stage(c);
    keep_said(c);
    const enum config_holder h = who_holds(c);
    precision(c, h);
    config_hf_optimizer(c);
    config_clipping(c, "max_grad_norm");
    ddp_bucket(c);
    const struct json *ds = config_deepspeed_file(c);
    if (h == HOLD_DEEPSPEED && ds != NULL)
        read_deepspeed(c, ds);
}
