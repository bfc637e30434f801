/*
 * Models behind the public calls: text to specification, and the look at it
 * (a bare program, parameter counts) that every model carries.
 */
#include "data/models.h"
#include "fold/fold.h"
#include "plan/report_data.h"
#include "json/json.h"

#include "base/banned.h"

static void check_published(const struct spec *spec, uint64_t counted,
                            struct diag *d)
{
    if (spec->published_parameters == 0
        || spec->published_parameters == counted)
        return;
    memplan_error *e =
        diag_add(d, MEMPLAN_E_CONFLICT,
                 "the shapes make %llu parameters, not the %llu that "
                 "'parameters' says",
                 (unsigned long long)counted,
                 (unsigned long long)spec->published_parameters);
    str_format(e->pointer, sizeof e->pointer, "/parameters");
    diag_hint(e, "correct the shapes, or leave 'parameters' out");
}

static memplan_status look(struct memplan_model *m, struct diag *d)
{
    struct run *run = ARENA_NEW(&m->arena, struct run, 1);
    if (run == NULL)
        return diag_nomem(d);
    run_bare(run, &m->spec);
    if (lower_model(&m->program, &m->spec, run, &m->arena, d) != MEMPLAN_OK)
        return d->status;
    if (!fold_params(&m->params, &m->program, &m->spec))
        diag_add(d, MEMPLAN_E_OVERFLOW,
                 "the model has more parameters than fit into 64 bits");
    else
        check_published(&m->spec, m->params.total, d);
    return d->status;
}

static memplan_status parse(struct memplan_model *m, struct spec_text *in,
                            struct diag *d)
{
    in->root = json_parse(&m->arena, in->text, in->len, d);
    if (in->root == NULL)
        return d->status;
    if (spec_import(&m->spec, in, &m->arena, d) != MEMPLAN_OK)
        return d->status;
    return look(m, d);
}

memplan_status memplan_model_parse(memplan_model **out, const char *json,
                                   size_t len, const char *name,
                                   const memplan_allocator *allocator,
                                   memplan_errors *errs)
{
    return memplan_model_parse_as(out, json, len, name, NULL, allocator, errs);
}

memplan_status memplan_model_parse_as(memplan_model **out, const char *json,
                                      size_t len, const char *name,
                                      const char *as,
                                      const memplan_allocator *allocator,
                                      memplan_errors *errs)
{
    struct spec_text in = { .text = json, .len = len, .name = name, .as = as };
    struct diag d;
    diag_init(&d, errs);
    if (out == NULL || (json == NULL && len != 0)) {
        diag_add(&d, MEMPLAN_E_ARG, "no place for the model, or no text");
        return d.status;
    }
    *out = NULL;
    struct arena arena;
    arena_init(&arena, allocator);
    struct memplan_model *m = ARENA_NEW(&arena, struct memplan_model, 1);
    if (m == NULL) {
        arena_release(&arena);
        return diag_nomem(&d);
    }
    m->arena = arena;
    if (parse(m, &in, &d) != MEMPLAN_OK) {
        memplan_model_free(m);
        return d.status;
    }
    *out = m;
    return MEMPLAN_OK;
}

memplan_status memplan_model_builtin(memplan_model **out, const char *name,
                                     const memplan_allocator *allocator,
                                     memplan_errors *errs)
{
    struct diag d;
    diag_init(&d, errs);
    if (out == NULL || name == NULL) {
        diag_add(&d, MEMPLAN_E_ARG, "no place for the model, or no name");
        return d.status;
    }
    *out = NULL;
    const struct str s = str_of(name);
    const struct model_text *t = model_text_find(s.p, s.n);
    if (t != NULL)
        return memplan_model_parse(out, t->json, t->len, t->name, allocator,
                                   errs);
    memplan_error *e =
        diag_add(&d, MEMPLAN_E_UNKNOWN,
                 "there is no model '%.80s' in the catalogue", name);
    const char *near = model_text_nearest(s.p, s.n);
    if (near != NULL)
        diag_hint(e, "did you mean '%s'? 'memplan models' lists all", near);
    else
        diag_hint(e, "'memplan models' lists all; a path to a config.json "
                     "works too");
    return d.status;
}

void memplan_model_free(memplan_model *model)
{
    if (model == NULL)
        return;
    struct arena arena = model->arena; /* the model lies in it */
    arena_release(&arena);
}

/* Why there is no such part. */
static memplan_status no_part(const struct spec *spec, const char *name,
                              struct diag *d)
{
    const bool known = part_find(name) != PART_COUNT;
    memplan_error *e =
        diag_add(d, known ? MEMPLAN_E_UNSUPPORTED : MEMPLAN_E_UNKNOWN,
                 known ? "there is no part '%.40s' of this model"
                       : "there is no part '%.40s'",
                 name);
    if (!known)
        diag_hint(e, "parts are: text, vision, all");
    else if (spec->parts != NULL && spec->parts->missing[0] != '\0')
        diag_hint(e, "%s; its text part is", spec->parts->missing);
    else if (spec->parts != NULL)
        diag_hint(e, "%s", spec->parts->unjoined);
    else if (spec->read_as)
        diag_hint(e, "--as reads one model of a file; leave it out for parts");
    else
        diag_hint(e, "its file describes one model, without 'text_config' and "
                     "'vision_config'");
    return d->status;
}

memplan_status memplan_model_select(memplan_model *model, const char *part,
                                    memplan_errors *errs)
{
    struct diag d;
    diag_init(&d, errs);
    if (model == NULL || part == NULL) {
        diag_add(&d, MEMPLAN_E_ARG, "no model, or no part");
        return d.status;
    }
    const struct spec_parts *parts = model->spec.parts;
    const enum part which = part_find(part);
    const enum part own = model->spec.image > 0 ? PART_VISION : PART_TEXT;
    if (parts == NULL && which == own)
        return MEMPLAN_OK;
    if (which == PART_COUNT || parts == NULL || parts->part[which] == NULL)
        return no_part(&model->spec, part, &d);
    const struct spec before = model->spec;
    model->spec = *parts->part[which];
    if (look(model, &d) != MEMPLAN_OK)
        model->spec = before;
    return d.status;
}

const char *memplan_model_name(const memplan_model *model)
{
    return model->spec.name;
}

uint64_t memplan_model_parameters(const memplan_model *model)
{
    return model->params.total;
}

const char *memplan_builtin_name(size_t index)
{
    return index < model_text_count() ? model_text_at(index)->name : NULL;
}

const char *memplan_gpu_name(size_t index)
{
    return index < gpu_count() ? gpu_at(index)->name : NULL;
}

const char *memplan_json_library(void)
{
    return json_library_name();
}
