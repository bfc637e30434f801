/*
 * Owns memplan_emit: writes a setup in another program's words, reads that
 * again, and lets it pass only when both mean the same run and the same peak.
 */
#include "plan/plan.h"
#include "plan/report_data.h"
#include "spec/config.h"

#include <string.h>

#include "base/banned.h"

static const struct config_dialect *find_writer(const char *name)
{
    size_t i = 0;
    const struct config_dialect *of = config_dialect(0);
    while (
        of != NULL
        && (of->emit == NULL || !str_same_name(str_of(of->name), str_of(name))))
        of = config_dialect(++i);
    return of;
}

/* Given beside a launch file: no program's file has a word for it, or only
 * some have. */
static bool is_beside(enum setup_key key)
{
    static const char *const groups[] = {
        "Hardware",           "Recomputation",
        "Attention and loss", "Kernels and experts",
        "Adapters",           "Buckets",
        "Allocator",          "Training run"
    };
    static const enum setup_key keys[] = { KEY_SEQ_LEN, KEY_DECODER_SEQ_LEN,
                                           KEY_IMAGE, KEY_IMAGES };
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (key == keys[i])
            return true;
    }
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        if (strcmp(setup_field(key)->group, groups[i]) == 0)
            return true;
    }
    return false;
}

/* The user's setup with the file's keys instead of its own. */
static void replace_launch(struct setup *s, const struct setup *file)
{
    struct setup mixed = *file;
    for (size_t k = 0; k < KEY_COUNT; k++) {
        if (mixed.set[k] || !s->set[k] || !is_beside((enum setup_key)k))
            continue;
        mixed.set[k] = true;
        mixed.v[k] = s->v[k];
    }
    memcpy(mixed.image, s->image, sizeof(mixed.image));
    *s = mixed;
}

static bool same_runs(const struct run *a, const struct run *b,
                      const char *name, struct diag *d)
{
    enum { TEXT = 256 };
    for (size_t k = 0; k < KEY_COUNT; k++) {
        const enum setup_key key = (enum setup_key)k;
        char left[TEXT], right[TEXT];
        const char *want = setup_value_text(&a->setup, key, left, TEXT);
        const char *got = setup_value_text(&b->setup, key, right, TEXT);
        if (strcmp(want, got) == 0)
            continue;
        memplan_error *e = setup_error(d, MEMPLAN_E_UNSUPPORTED, key,
                                       "%s '%s' has no word in a file of %s",
                                       setup_field(key)->key, want, name);
        diag_hint(e,
                  got[0] != '\0' ? "it would be read as '%s': ask for that, "
                                   "or for another program's file"
                                 : "leave it out%s",
                  got);
    }
    return d->status == MEMPLAN_OK;
}

static memplan_status read_back(struct setup *s,
                                const struct config_dialect *of,
                                const struct emit *e, struct diag *d)
{
    struct setup file = { .notes = 0 };
    struct arena arena;
    arena_init(&arena, NULL);
    const struct json *root = of->parse(&arena, e->text, strlen(e->text), d);
    if (root != NULL)
        config_read(&(struct config){ .s = &file,
                                      .table = of->table,
                                      .root = root,
                                      .text = e->text,
                                      .len = strlen(e->text),
                                      .name = "what is written",
                                      .d = d });
    arena_release(&arena);
    replace_launch(s, &file);
    return d->status;
}

static memplan_status write_checked(const memplan_model *model,
                                    const memplan_setup *setup,
                                    const struct config_dialect *of,
                                    struct emit *e, struct diag *d)
{
    struct memplan_report *a = plan_report_new(NULL);
    struct memplan_report *b = plan_report_new(NULL);
    struct setup back = setup->setup;
    if (a == NULL || b == NULL) {
        diag_nomem(d);
    } else if (plan_estimate(a, &model->spec, &model->params, &setup->setup, d)
               == MEMPLAN_OK) {
        of->emit(e, &a->run);
        if (read_back(&back, of, e, d) == MEMPLAN_OK
            && plan_estimate(b, &model->spec, &model->params, &back, d)
                   == MEMPLAN_OK
            && same_runs(&a->run, &b->run, of->name, d)
            && a->memory.peak != b->memory.peak)
            diag_hint(diag_add(d, MEMPLAN_E_UNSUPPORTED,
                               "the file would have another peak"),
                      "report this, please");
    }
    memplan_report_free(a);
    memplan_report_free(b);
    return d->status;
}

memplan_status memplan_emit(const memplan_model *model,
                            const memplan_setup *setup, const char *dialect,
                            memplan_write_fn *write, void *ctx,
                            memplan_errors *errs)
{
    struct diag d;
    struct emit e = { .text = "" };
    diag_init(&d, errs);
    if (model == NULL || setup == NULL || dialect == NULL || write == NULL) {
        diag_add(&d, MEMPLAN_E_ARG, "no model, setup, dialect or writer");
        return d.status;
    }
    const struct config_dialect *of = find_writer(dialect);
    if (of == NULL) {
        diag_hint(diag_add(&d, MEMPLAN_E_UNKNOWN,
                           "no file of '%.40s' is "
                           "written",
                           dialect),
                  "use deepspeed, torchtitan or megatron-args");
        return d.status;
    }
    if (write_checked(model, setup, of, &e, &d) == MEMPLAN_OK
        && !write(ctx, e.text, strlen(e.text)))
        diag_add(&d, MEMPLAN_E_WRITE, "the text could not be written");
    return d.status;
}
