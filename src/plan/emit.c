/*
 * Owns memplan_emit: writes a setup in another program's words, reads that
 * again, and lets it pass only when both mean the same run and the same peak.
 */
#include "plan/emit.h"

#include "plan/plan.h"

#include <string.h>

#include "base/banned.h"

static bool is_named(const struct config_dialect *of, const char *name)
{
    return str_same_name(str_of(of->name), str_of(name))
           || (of->also != NULL
               && str_same_name(str_of(of->also), str_of(name)));
}

const struct config_dialect *emit_find_writer(const char *name, struct diag *d)
{
    size_t i = 0;
    const struct config_dialect *of = config_dialect(0);
    while (of != NULL && (of->render == NULL || !is_named(of, name)))
        of = config_dialect(++i);
    if (of == NULL)
        diag_hint(
            diag_add(d, MEMPLAN_E_UNKNOWN,
                     "no file of '%.40s' is "
                     "written",
                     name),
            "use deepspeed, torchtitan, megatron, accelerate, torchrun, peft or "
            "training-args");
    return of;
}

/* Megatron-LM's whole setup is on torchrun's line. */
const struct config_dialect *emit_writer_for(const struct config_dialect *of,
                                             const struct run *r,
                                             struct diag *d)
{
    const bool megatron = r->framework == FW_MEGATRON;
    return of->table == &config_torchrun && megatron
               ? emit_find_writer("megatron", d)
               : of;
}

/* Given beside a launch file: another file or the code has it. */
static bool is_beside(enum config_beside beside, enum setup_key key)
{
    static const struct {
        enum setup_key key;
        enum config_beside least;
    } keys[] = {
        { KEY_SEQ_LEN, BESIDE_FEW },
        { KEY_DECODER_SEQ_LEN, BESIDE_FEW },
        { KEY_IMAGE, BESIDE_FEW },
        { KEY_IMAGES, BESIDE_FEW },
        { KEY_ATTENTION, BESIDE_FEW },
        { KEY_DROPOUT, BESIDE_FEW },
        { KEY_SSM_KERNEL, BESIDE_FEW },
        { KEY_MOE_IMBALANCE, BESIDE_FEW },
        { KEY_ZERO_RANK, BESIDE_FEW }, /* whose memory is asked for */
        { KEY_RECOMPUTE, BESIDE_MODEL },
        { KEY_GRAD_SYNC, BESIDE_MODEL },
        /* the loop's, a release's: nobody's word */
        { KEY_KEEP_OUTPUTS, BESIDE_REST },
        { KEY_DROP_OUTPUTS, BESIDE_REST },
        { KEY_FP32_LOGITS, BESIDE_REST },
        { KEY_SHIFT_LOGITS, BESIDE_REST },
        { KEY_KBIT_CAST, BESIDE_REST },
    };
    static const struct {
        const char *group;
        enum config_beside least;
    } groups[] = {
        { "Hardware", BESIDE_FEW },
        { "Adapters", BESIDE_FEW },
        { "Allocator", BESIDE_FEW },
        { "Training run", BESIDE_FEW },
        { "Attention and loss", BESIDE_MODEL },
        { "Kernels and experts", BESIDE_MODEL },
        { "Batch", BESIDE_SCRIPT },
        { "Optimizer", BESIDE_SCRIPT },
    };
    if (beside == BESIDE_REST)
        return true;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (key == keys[i].key)
            return beside >= keys[i].least;
    }
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        if (strcmp(setup_field(key)->group, groups[i].group) == 0)
            return beside >= groups[i].least;
    }
    return false;
}

/* device_map is the loading code's: TrainingArguments run in one process. */
static bool is_loaded(const struct emit *e, enum setup_key key)
{
    return e->dialect->table == &config_training_args && run_spreads(e->run)
           && (key == KEY_SCHEDULE || key == KEY_PP
               || key == KEY_PIPELINE_LAYERS);
}

/* The user's setup with the file's keys instead of its own. */
static void replace_launch(struct setup *s, const struct setup *file,
                           const struct emit *e)
{
    const enum config_beside beside = e->dialect->table->beside;
    struct setup mixed = *file;
    for (size_t k = 0; k < KEY_COUNT; k++) {
        const enum setup_key key = (enum setup_key)k;
        if (mixed.set[k] || !s->set[k]
            || (!is_beside(beside, key) && !is_loaded(e, key)))
            continue;
        mixed.set[k] = true;
        mixed.v[k] = s->v[k];
    }
    if (!file->set[KEY_PIPELINE_LAYERS]) {
        memcpy(mixed.pipeline_layers, s->pipeline_layers,
               sizeof(mixed.pipeline_layers));
        mixed.pipeline_count = s->pipeline_count;
    }
    memcpy(mixed.image, s->image, sizeof(mixed.image));
    memcpy(mixed.lengths, s->lengths, sizeof(mixed.lengths));
    mixed.lengths_count = s->lengths_count;
    if (!file->set[KEY_LAYERS_TO_TRANSFORM])
        memcpy(mixed.layers, s->layers, sizeof(mixed.layers));
    if (!file->set[KEY_RANK_PATTERN])
        memcpy(mixed.rank, s->rank, sizeof(mixed.rank));
    *s = mixed;
}

/* A node that is not full has as many GPUs as there are. */
bool emit_same_value(const struct run *a, const struct run *b,
                     enum setup_key key)
{
    enum { TEXT = 2048 };
    char left[TEXT], right[TEXT];
    if (key == KEY_GPUS_PER_NODE && a->gpus <= a->gpus_per_node
        && b->gpus <= b->gpus_per_node)
        return true;
    if ((key == KEY_RECOMPUTE_EVERY || key == KEY_RECOMPUTE_LAYERS
         || key == KEY_RECOMPUTE_GRANULARITY)
        && a->recompute != RECOMP_FULL && b->recompute == a->recompute)
        return true; /* of none, or of all */
    if (key == KEY_PIPELINE_LAYERS && a->pp == b->pp)
        return memcmp(a->stage_layers, b->stage_layers,
                      a->pp * sizeof(a->stage_layers[0]))
               == 0;
    return strcmp(setup_value_text(&a->setup, key, left, TEXT),
                  setup_value_text(&b->setup, key, right, TEXT))
           == 0;
}

const char *emit_own_file(enum framework framework)
{
    switch (framework) {
    case FW_HF: return "training-args";
    case FW_DEEPSPEED: return "deepspeed";
    case FW_FSDP: return "accelerate";
    case FW_TORCHTITAN: return "torchtitan";
    case FW_MEGATRON:
    case FW_NEMO: return "megatron";
    case FW_TORCHTUNE: return "torchrun";
    case FW_MEGATRON_DEEPSPEED:
    case FRAMEWORK_COUNT: break;
    }
    return NULL;
}

/* With another framework the rest may be impossible: its own file is not. */
static void hint_framework(memplan_error *e, const struct run *a,
                           const char *got)
{
    const char *own = emit_own_file(a->framework);
    if (own != NULL)
        diag_hint(e, "its own is --emit %s; or use --framework %s", own, got);
    else
        diag_hint(e, "use --framework %s", got);
}

static void report(const struct run *a, const struct setup *b, const char *name,
                   enum setup_key key, struct diag *d)
{
    enum { TEXT = 256 };
    char left[TEXT], right[TEXT];
    const char *got = setup_value_text(b, key, right, TEXT);
    memplan_error *e = setup_error(
        d, MEMPLAN_E_UNSUPPORTED, key, "%s '%s' has no word in a file of %s",
        setup_field(key)->key, setup_value_text(&a->setup, key, left, TEXT),
        name);
    if (key == KEY_FRAMEWORK)
        hint_framework(e, a, got);
    else if (got[0] != '\0')
        diag_hint(e,
                  "the file says '%s': ask for that, or for another "
                  "program's file",
                  got);
    else
        diag_hint(e, "leave it out, or ask for another program's file");
}

/* What follows from others says nothing where one of those was given. */
static bool same_runs(const struct run *a, const struct run *b,
                      const char *name, struct diag *d)
{
    for (int asked = 1; asked >= 0 && d->status == MEMPLAN_OK; asked--) {
        for (size_t k = 0; k < KEY_COUNT; k++) {
            const enum setup_key key = (enum setup_key)k;
            if (a->given[k] == (asked != 0) && !emit_same_value(a, b, key))
                report(a, &b->setup, name, key, d);
        }
    }
    return d->status == MEMPLAN_OK;
}

memplan_status emit_read(struct setup *file, const struct emit *e,
                         struct diag *d)
{
    const struct config_dialect *of = e->dialect;
    struct arena arena;
    arena_init(&arena, NULL);
    const struct json *root = of->parse(&arena, e->text, strlen(e->text), d);
    if (root != NULL)
        config_read(&(struct config){ .s = file,
                                      .table = of->table,
                                      .root = root,
                                      .text = e->text,
                                      .len = strlen(e->text),
                                      .name = "what is written",
                                      .d = d });
    arena_release(&arena);
    return d->status;
}

static memplan_status read_back(struct setup *s, const struct emit *e,
                                struct diag *d)
{
    struct setup file = { .notes = 0 };
    emit_read(&file, e, d);
    replace_launch(s, &file, e);
    return d->status;
}

/* The file alone would be refused: in what words, it says itself. */
static void report_refused(const memplan_error *why, const char *name,
                           struct diag *d)
{
    memplan_error *e =
        diag_add(d, MEMPLAN_E_UNSUPPORTED, "a file of %s cannot say it: %s",
                 name, why->message);
    diag_hint(e, "%s", why->hint);
}

/* NeMo runs Megatron Core: what it does Megatron-LM's flags say. */
static bool is_kin(const struct run *a, const struct setup *back)
{
    return a->framework == FW_NEMO && back->v[KEY_FRAMEWORK].n == FW_MEGATRON;
}

static void check_back(const memplan_model *model, struct memplan_report *a,
                       const struct setup *user, const struct emit *e)
{
    const char *name = e->asked;
    memplan_error slot;
    memplan_errors errs = { &slot, 1, 0 };
    struct diag refused;
    struct setup back = *user;
    struct memplan_report *b = plan_report_new(NULL);
    diag_init(&refused, &errs);
    if (b == NULL) {
        diag_nomem(e->d);
        return;
    }
    const bool reads = read_back(&back, e, &refused) == MEMPLAN_OK;
    if (is_kin(&a->run, &back))
        back.v[KEY_FRAMEWORK].n = a->run.framework;
    if (reads && back.set[KEY_FRAMEWORK]
        && back.v[KEY_FRAMEWORK].n != a->run.framework)
        report(&a->run, &back, name, KEY_FRAMEWORK, e->d);
    else if (refused.status != MEMPLAN_OK
             || plan_estimate(b, &model->spec, &model->params, &back, &refused)
                    != MEMPLAN_OK)
        report_refused(&slot, name, e->d);
    else if (same_runs(&a->run, &b->run, name, e->d)
             && a->memory.peak != b->memory.peak)
        diag_hint(diag_add(e->d, MEMPLAN_E_UNSUPPORTED,
                           "the file would have another peak"),
                  "report this, please");
    memplan_report_free(b);
}

static memplan_status write_checked(const memplan_model *model,
                                    const memplan_setup *setup,
                                    const struct config_dialect *of,
                                    struct emit *e)
{
    struct memplan_report *a = plan_report_new(NULL);
    if (a == NULL) {
        diag_nomem(e->d);
    } else if (plan_estimate(a, &model->spec, &model->params, &setup->setup,
                             e->d)
               == MEMPLAN_OK) {
        of = emit_writer_for(of, &a->run, e->d);
        e->spec = &model->spec;
        if (config_emit(e, of, &a->run, e->d))
            check_back(model, a, &setup->setup, e);
    }
    memplan_report_free(a);
    return e->d->status;
}

memplan_status memplan_emit(const memplan_model *model,
                            const memplan_setup *setup, const char *dialect,
                            memplan_write_fn *write, void *ctx,
                            memplan_errors *errs)
{
    struct diag d;
    struct emit e = { .text = "", .d = &d, .asked = dialect };
    diag_init(&d, errs);
    if (model == NULL || setup == NULL || dialect == NULL || write == NULL) {
        diag_add(&d, MEMPLAN_E_ARG, "no model, setup, dialect or writer");
        return d.status;
    }
    const struct config_dialect *of = emit_find_writer(dialect, &d);
    if (of == NULL)
        return d.status;
    if (write_checked(model, setup, of, &e) == MEMPLAN_OK
        && !write(ctx, e.text, strlen(e.text)))
        diag_add(&d, MEMPLAN_E_WRITE, "the text could not be written");
    return d.status;
}
