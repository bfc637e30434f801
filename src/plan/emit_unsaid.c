/*
 * Owns memplan_emit_unsaid: which keys of a setup its launch file does not say,
 * and who does. Refuses to know how a file is written, and whether it may be.
 */
#include "plan/emit.h"

#include "plan/plan.h"

#include <string.h>

#include "base/banned.h"

struct unsaid {
    const struct run *run;
    const struct emit *file;
    struct emit args;  /* the same run in TrainingArguments' words */
    struct setup back; /* the file's, and what is told */
    bool told[KEY_COUNT];
    struct memplan_report *trial; /* whose run is of `back` without a key */
    uint64_t params;
    struct diag *d; /* where what is unsaid goes */
};

/* ---- who says it ---- */

static bool has_trainer(const struct run *r)
{
    return r->framework == FW_HF || r->framework == FW_DEEPSPEED
           || r->framework == FW_FSDP;
}

static bool is_file(const struct unsaid *u, const struct config_table *t)
{
    return u->file->dialect->table == t;
}

static bool is_called(const struct config_dialect *of, const char *name)
{
    return strcmp(of->name, name) == 0
           || (of->also != NULL && strcmp(of->also, name) == 0);
}

/* Of what the Trainer says beyond the rows of its table. */
static bool is_of(const char *path, enum setup_key key)
{
    static const struct {
        enum setup_key key;
        const char *path;
    } paths[] = {
        { KEY_FRAMEWORK, "fsdp" },
        { KEY_FRAMEWORK, "deepspeed.zero_optimization.stage" },
        { KEY_ENGINE, "fsdp_config.version" },
        { KEY_ZERO, "fsdp" },
        { KEY_ZERO, "deepspeed.zero_optimization.stage" },
        { KEY_RECOMPUTE, "fsdp_config.activation_checkpointing" },
        { KEY_OPTIMIZER, "optim" },
        { KEY_OPTIMIZER_IMPL, "optim" },
        { KEY_OPTIMIZER_RANK, "optim_args" },
        { KEY_OPTIMIZER_TARGETS, "optim_target_modules" },
        { KEY_CLIP_GRAD, "max_grad_norm" },
        { KEY_GLOBAL_BATCH, "gradient_accumulation_steps" },
        { KEY_OFFLOAD_ACTIVATIONS, "activation_offloading" },
        { KEY_DDP_BUCKET, "ddp_bucket_cap_mb" },
    };
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        if (paths[i].key == key && strcmp(paths[i].path, path) == 0)
            return true;
    }
    return false;
}

static bool names(const struct config_table *t, const char *path,
                  enum setup_key key)
{
    for (size_t i = 0; i < t->rows; i++) {
        if (t->row[i].key == key && t->row[i].write != WRITE_NEVER
            && strcmp(t->row[i].path, path) == 0)
            return true;
    }
    return false;
}

/* "gradient_checkpointing true of TrainingArguments", as they would say it. */
static bool says_argument(const struct unsaid *u, enum setup_key key,
                          memplan_error *e)
{
    if (!has_trainer(u->run) || is_file(u, &config_training_args))
        return false;
    for (size_t i = 0; i < u->args.entries; i++) {
        const char *path = u->args.entry[i].path;
        if (!is_of(path, key) && !names(&config_training_args, path, key))
            continue;
        diag_hint(e, "%s %s of TrainingArguments says it", path,
                  u->args.entry[i].value);
        return true;
    }
    return false;
}

/* Words of the user's code, or of its environment. */
static const char *said_by_code(const struct unsaid *u, enum setup_key key)
{
    const bool hf = has_trainer(u->run);
    if (key == KEY_SEQ_LEN && hf)
        return "the data's collator says it: max_length of TRL's SFTConfig";
    if (key == KEY_ATTENTION && hf)
        return "attn_implementation says it where the model is loaded";
    if (key == KEY_BASE_DTYPE && hf)
        return u->run->base_dtype == DT_INT4
                   ? "GPTQConfig says it where the model is loaded"
                   : "BitsAndBytesConfig or dtype say it where the model is "
                     "loaded";
    if (key == KEY_GPTQ_KERNEL)
        return "the code that loads the model chooses it";
    if (key == KEY_DROPOUT)
        return "the model's config.json says it";
    if (key == KEY_ALLOCATOR)
        return "PYTORCH_CUDA_ALLOC_CONF says it: expandable_segments:True";
    if (key == KEY_RECOMPUTE && hf)
        return "the model's code says it";
    if (key == KEY_FRAMEWORK)
        return "it is the program that is started";
    if (key == KEY_FREEZE || key == KEY_FREEZE_TRAINABLE_LAYERS)
        return "the code freezes it";
    return NULL;
}

static const char *said_by_adapters(const struct unsaid *u)
{
    return u->run->impl == IMPL_MEGATRON || u->run->impl == IMPL_MEGATRON_LOCAL
               ? "a recipe of Megatron-Bridge's has the adapters, as peft.dim "
                 "and peft.target_modules"
               : "--emit peft writes the adapters' adapter_config.json";
}

static bool is_group(enum setup_key key, const char *group)
{
    return strcmp(setup_field(key)->group, group) == 0;
}

/* No program that trains asks for them. */
static bool is_memplans(enum setup_key key)
{
    return is_group(key, "Training run") || is_group(key, "Hardware")
           || key == KEY_FAST || key == KEY_CUDA_CONTEXT || key == KEY_ZERO_RANK
           || key == KEY_MOE_IMBALANCE;
}

static void hint_who(const struct unsaid *u, enum setup_key key,
                     memplan_error *e)
{
    const char *own = emit_own_file(u->run->framework);
    const bool gpus = key == KEY_GPUS || key == KEY_GPUS_PER_NODE;
    const char *code = said_by_code(u, key);
    if (gpus)
        diag_hint(e, "the launcher says it: --emit torchrun");
    else if (is_memplans(key))
        diag_hint(e, "no launch file says it");
    else if (says_argument(u, key, e))
        return;
    else if (code != NULL)
        diag_hint(e, "%s", code);
    else if (is_group(key, "Adapters") && !is_file(u, &config_peft))
        diag_hint(e, "%s", said_by_adapters(u));
    else if (own != NULL && !is_called(u->file->dialect, own))
        diag_hint(e, "see --emit %s", own);
    else
        diag_hint(e, "the program's code or recipe says it");
}

/* ---- what is unsaid ---- */

/* NeMo runs Megatron Core, whose flags do not name it. */
static bool is_other_program(const struct run *r, const struct setup *file)
{
    return r->framework == FW_NEMO && file->set[KEY_FRAMEWORK]
           && file->v[KEY_FRAMEWORK].n != FW_NEMO;
}

/* The user's setup with the file's words instead of its own. */
static void put_file(struct unsaid *u, const struct setup *user,
                     const struct setup *file)
{
    u->back = *user;
    for (size_t k = 0; k < KEY_COUNT; k++) {
        const bool own =
            !file->set[k]
            || (k == KEY_FRAMEWORK && is_other_program(u->run, file));
        u->told[k] = own && user->set[k];
        if (own)
            continue;
        u->back.set[k] = true;
        u->back.v[k] = file->v[k];
        u->back.automatic[k] = file->automatic[k];
    }
    if (file->set[KEY_PIPELINE_LAYERS]) {
        memcpy(u->back.pipeline_layers, file->pipeline_layers,
               sizeof(file->pipeline_layers));
        u->back.pipeline_count = file->pipeline_count;
    }
    if (file->set[KEY_LAYERS_TO_TRANSFORM])
        memcpy(u->back.layers, file->layers, sizeof(file->layers));
    if (file->set[KEY_RANK_PATTERN])
        memcpy(u->back.rank, file->rank, sizeof(file->rank));
}

/* The same run without it: it has its default, or follows from others. */
static bool follows(struct unsaid *u, enum setup_key key)
{
    struct run *without = &u->trial->run;
    struct diag unheard;
    diag_init(&unheard, NULL);
    u->back.set[key] = false;
    bool same =
        setup_resolve(without, &u->back, u->file->spec, u->params, &unheard)
        == MEMPLAN_OK;
    for (size_t k = 0; k < KEY_COUNT && same; k++)
        same = emit_same_value(u->run, without, (enum setup_key)k);
    u->back.set[key] = !same;
    return same;
}

/* From the last: of what three keys say twice the first two are told. */
static void leave_out(struct unsaid *u)
{
    for (size_t k = KEY_COUNT; k > 0; k--)
        u->told[k - 1] = u->told[k - 1] && !follows(u, (enum setup_key)(k - 1));
}

static void tell(struct unsaid *u, const struct setup *user)
{
    enum { TEXT = 160 };
    char value[TEXT];
    for (size_t k = 0; k < KEY_COUNT; k++) {
        const enum setup_key key = (enum setup_key)k;
        if (!u->told[k])
            continue;
        memplan_error *e = setup_error(
            u->d, MEMPLAN_OK, key, "%s '%s' is not in it",
            setup_field(key)->key, setup_value_text(user, key, value, TEXT));
        hint_who(u, key, e);
    }
}

/* The Trainer's own words of the run, refusals unheard. */
static void put_arguments(struct unsaid *u)
{
    struct diag unheard;
    diag_init(&unheard, NULL);
    u->args = (struct emit){ .asked = "training-args",
                             .spec = u->file->spec,
                             .d = &unheard,
                             .run = u->run,
                             .dialect = u->file->dialect,
                             .prefix = "" };
    if (has_trainer(u->run))
        emit_table(&u->args, &config_training_args, "");
}

static memplan_status find_unsaid(struct unsaid *u, const struct setup *user,
                                  const struct emit *e)
{
    struct setup file = { .notes = 0 };
    u->trial = plan_report_new(NULL);
    if (u->trial == NULL)
        return diag_nomem(e->d);
    put_arguments(u);
    if (emit_read(&file, e, e->d) == MEMPLAN_OK) {
        put_file(u, user, &file);
        leave_out(u);
        tell(u, user);
    }
    memplan_report_free(u->trial);
    return e->d->status;
}

static memplan_status write_unread(const memplan_model *model,
                                   const struct setup *user, struct emit *e,
                                   struct diag *out)
{
    const struct config_dialect *of = emit_find_writer(e->asked, e->d);
    if (of == NULL)
        return e->d->status;
    struct memplan_report *a = plan_report_new(NULL);
    if (a == NULL)
        return diag_nomem(e->d);
    if (plan_memory(a, &model->spec, &model->params, user, e->d)
        == MEMPLAN_OK) {
        struct unsaid u = {
            .run = &a->run, .file = e, .params = model->params.active, .d = out
        };
        e->spec = &a->spec;
        of = emit_writer_for(of, &a->run, e->d);
        if (config_emit(e, of, &a->run, e->d))
            find_unsaid(&u, user, e);
    }
    memplan_report_free(a);
    return e->d->status;
}

memplan_status memplan_emit_unsaid(const memplan_model *model,
                                   const memplan_setup *setup,
                                   const char *dialect, memplan_errors *unsaid,
                                   memplan_errors *errs)
{
    struct diag d, out;
    struct emit e = { .text = "", .d = &d, .asked = dialect };
    diag_init(&d, errs);
    diag_init(&out, unsaid);
    if (model == NULL || setup == NULL || dialect == NULL || unsaid == NULL) {
        diag_add(&d, MEMPLAN_E_ARG,
                 "no model, setup, dialect or place for what is unsaid");
        return d.status;
    }
    return write_unread(model, &setup->setup, &e, &out);
}
