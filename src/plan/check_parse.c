/*
 * Owns the file of cases: what is in it, where each mistake is, and running
 * the cases. Refuses to know what assertions mean.
 */
#include "plan/check.h"

#include "base/unit.h"
#include "plan/report_data.h"
#include "json/json.h"

#include <string.h>

#include "base/banned.h"

enum { ERRORS_KEPT = 8 };

struct reader {
    memplan_check *check;
    const char *text;
    size_t len;
    memplan_load_fn *load;
    void *load_ctx;
    struct diag *diag;
    struct arena arena; /* the JSON tree and limits */
    bool held;
};

static memplan_error *report_at(struct reader *r, memplan_status status,
                                const struct json *at, const char *message)
{
    memplan_error *e = diag_add(r->diag, status, "%s", message);
    json_locate(e, r->text, r->len, at);
    return e;
}

/* ---- errors of what is called, told at a place of this text ---- */

static void copy_error(memplan_error *to, const memplan_error *from)
{
    diag_hint(to, "%s", from->hint);
    str_format(to->key, sizeof(to->key), "%s", from->key);
}

/* About a text within ours that begins at `at`. */
static void forward_inner(struct reader *r, const struct json *at,
                          const memplan_errors *errs)
{
    for (size_t i = 0; i < errs->count && i < errs->capacity; i++) {
        const memplan_error *from = &errs->item[i];
        memplan_error *to = report_at(r, from->status, at, from->message);
        copy_error(to, from);
        str_append(to->pointer, sizeof(to->pointer), "%s", from->pointer);
        if (from->line == 0)
            continue;
        char pointer[sizeof(to->pointer)];
        str_format(pointer, sizeof(pointer), "%s", to->pointer);
        struct json inside = { .offset = at->offset + from->offset };
        json_locate(to, r->text, r->len, &inside);
        str_format(to->pointer, sizeof(to->pointer), "%s", pointer);
    }
}

/* About another text, called `name`. */
static void forward_named(struct reader *r, const struct json *at,
                          const char *name, const memplan_errors *errs)
{
    for (size_t i = 0; i < errs->count && i < errs->capacity; i++) {
        const memplan_error *from = &errs->item[i];
        char message[sizeof(from->message)];
        str_format(message, sizeof(message), "%s:", name);
        if (from->line > 0)
            str_append(message, sizeof(message), "%u:%u:", (unsigned)from->line,
                       (unsigned)from->column);
        str_append(message, sizeof(message), " %s%s%s", from->pointer,
                   from->pointer[0] != '\0' ? ": " : "", from->message);
        copy_error(report_at(r, from->status, at, message), from);
    }
}

/* About what the keys of `setup` mean together. */
static void forward_keys(struct reader *r, const struct json *entry,
                         const struct json *setup, const memplan_errors *errs)
{
    for (size_t i = 0; i < errs->count && i < errs->capacity; i++) {
        const memplan_error *from = &errs->item[i];
        const struct json *at = setup && from->key[0] != '\0'
                                    ? json_member(setup, from->key)
                                    : NULL;
        if (!at)
            at = setup ? setup : entry;
        copy_error(report_at(r, from->status, at, from->message), from);
    }
}

/* ---- models ---- */

static memplan_model *inline_model(struct reader *r, const struct json *value,
                                   const char *name)
{
    memplan_error slot[ERRORS_KEPT];
    memplan_errors errs = { slot, ERRORS_KEPT, 0 };
    memplan_model *model = NULL;
    size_t len = json_value_length(r->text, r->len, value->offset);
    if (memplan_model_parse(&model, r->text + value->offset, len, name,
                            &r->check->arena.alloc, &errs)
        != MEMPLAN_OK)
        forward_inner(r, value, &errs);
    return model;
}

/* A catalogue name, else whatever the caller's loader makes of it. */
static memplan_model *named_model(struct reader *r, const struct json *value)
{
    memplan_error slot[ERRORS_KEPT];
    memplan_errors errs = { slot, ERRORS_KEPT, 0 };
    const memplan_allocator *alloc = &r->check->arena.alloc;
    const char *name = value->text.p;
    const char *text = NULL;
    size_t len = 0;
    memplan_model *model = NULL;
    memplan_status status = memplan_model_builtin(&model, name, alloc, &errs);
    if (status == MEMPLAN_OK)
        return model;
    if (status == MEMPLAN_E_UNKNOWN && r->load
        && r->load(r->load_ctx, name, &text, &len)) {
        errs.count = 0;
        if (memplan_model_parse(&model, text, len, name, alloc, &errs)
            != MEMPLAN_OK)
            forward_named(r, value, name, &errs);
        return model;
    }
    forward_keys(r, value, NULL, &errs);
    return NULL;
}

static memplan_model *read_model(struct reader *r, const struct json *entry,
                                 const char *name)
{
    const struct json *value = json_member(entry, "model");
    if (!value) {
        diag_hint(
            report_at(r, MEMPLAN_E_SCHEMA, entry, "the case has no 'model'"),
            "add \"model\": \"llama-7b\"");
        return NULL;
    }
    if (value->kind == JSON_STRING)
        return named_model(r, value);
    if (value->kind == JSON_OBJECT)
        return inline_model(r, value, name);
    diag_hint(report_at(r, MEMPLAN_E_SCHEMA, value,
                        "a model is a name or a specification"),
              "write \"llama-7b\", a path, or {\"model_type\": ...}");
    return NULL;
}

/* ---- assertions ---- */

static struct str limit_text(const struct json *value, char buf[UNIT_TEXT_MAX])
{
    switch (value->kind) {
    case JSON_STRING: return value->text;
    case JSON_NUMBER: return str_of(unit_format_double(buf, value->number));
    case JSON_BOOL: return value->truth ? STR("true") : STR("false");
    case JSON_NULL:
    case JSON_ARRAY:
    case JSON_OBJECT: break;
    }
    return str_of(json_kind_name(value->kind));
}

static size_t read_limits(struct reader *r, const struct json *entry,
                          struct limit **out)
{
    const struct json *object = json_member(entry, "assert");
    size_t n = 0;
    *out = NULL;
    if (!object)
        return 0;
    if (object->kind != JSON_OBJECT) {
        diag_hint(report_at(r, MEMPLAN_E_SCHEMA, object,
                            "'assert' is an object of limits"),
                  "write {\"max_memory\": \"70GiB\"}");
        return 0;
    }
    for (const struct json *v = object->child; v; v = v->next)
        n++;
    *out = ARENA_NEW(&r->arena, struct limit, n);
    if (!*out)
        return 0;
    n = 0;
    for (const struct json *v = object->child; v; v = v->next) {
        char buf[UNIT_TEXT_MAX];
        memplan_error *e =
            check_limit(&(*out)[n++], v->key, limit_text(v, buf), r->diag);
        if (e)
            json_locate(e, r->text, r->len, v);
    }
    return n;
}

/* ---- cases ---- */

static void check_keys(struct reader *r, const struct json *object,
                       const char *known)
{
    for (const struct json *v = object->child; v; v = v->next) {
        bool is_note = str_is(v->key, "source") || str_is(v->key, "notes")
                       || (v->key.n >= 2 && memcmp(v->key.p, "x-", 2) == 0);
        bool found = is_note;
        char message[128];
        for (size_t i = 0; choice_word(known, i).n > 0; i++)
            found = found || str_eq(v->key, choice_word(known, i));
        if (found)
            continue;
        str_format(message, sizeof(message), "there is no key '%.*s' here",
                   (int)(v->key.n < 64 ? v->key.n : 64), v->key.p);
        diag_hint(report_at(r, MEMPLAN_E_UNKNOWN, v, message),
                  "the keys are: %s", known);
    }
}

static struct str case_name(struct reader *r, const struct json *entry)
{
    const struct json *name = json_member(entry, "name");
    const struct json *model = json_member(entry, "model");
    if (name && name->kind == JSON_STRING)
        return name->text;
    if (model && model->kind == JSON_STRING)
        return model->text;
    return str_of(arena_printf(&r->arena, "case %zu", entry->index + 1));
}

static void estimate_case(struct reader *r, const struct json *entry,
                          const memplan_model *model,
                          const memplan_setup *setup, const struct limit *limit,
                          size_t n)
{
    memplan_error slot[ERRORS_KEPT];
    memplan_errors errs = { slot, ERRORS_KEPT, 0 };
    memplan_report *report = NULL;
    bool held = false;
    if (memplan_estimate(&report, model, setup, &r->check->arena.alloc, &errs)
        != MEMPLAN_OK) {
        forward_keys(r, entry, json_member(entry, "setup"), &errs);
        return;
    }
    if (!check_evaluate(&held, r->check, case_name(r, entry), report, limit, n))
        diag_nomem(r->diag);
    r->held = r->held && held;
    memplan_report_free(report);
}

/* Reads all of a case, so that every mistake in it is reported. */
static void try_case(struct reader *r, const struct json *entry,
                     memplan_setup *setup)
{
    struct limit *limit = NULL;
    const struct json *keys = json_member(entry, "setup");
    const struct json *name = json_member(entry, "name");
    check_keys(r, entry, "name model setup assert");
    if (name && name->kind != JSON_STRING)
        report_at(r, MEMPLAN_E_SCHEMA, name, "a case's name is a string");
    size_t n = read_limits(r, entry, &limit);
    if (keys && keys->kind != JSON_NULL)
        setup_parse(&setup->setup, keys, r->text, r->len, r->diag);
    memplan_model *model = read_model(r, entry, case_name(r, entry).p);
    if (r->arena.failed)
        diag_nomem(r->diag);
    if (r->diag->status == MEMPLAN_OK)
        estimate_case(r, entry, model, setup, limit, n);
    memplan_model_free(model);
}

static void read_case(struct reader *r, const struct json *entry)
{
    memplan_setup *setup = NULL;
    if (entry->kind != JSON_OBJECT) {
        report_at(r, MEMPLAN_E_SCHEMA, entry, "a case is an object");
        return;
    }
    if (memplan_setup_new(&setup, &r->check->arena.alloc, NULL) != MEMPLAN_OK) {
        diag_nomem(r->diag);
        return;
    }
    /* Whether this case is good is its own affair. */
    memplan_status before = r->diag->status;
    r->diag->status = MEMPLAN_OK;
    try_case(r, entry, setup);
    if (before != MEMPLAN_OK)
        r->diag->status = before;
    memplan_setup_free(setup);
}

static void read_cases(struct reader *r, const struct json *root)
{
    const struct json *cases = json_member(root, "cases");
    if (!cases || cases->kind != JSON_ARRAY) {
        diag_hint(report_at(r, MEMPLAN_E_SCHEMA, cases ? cases : root,
                            "a file of cases has an array 'cases'"),
                  "write {\"cases\": [{\"model\": \"llama-7b\", \"setup\": "
                  "{...}, \"assert\": {...}}]}");
        return;
    }
    check_keys(r, root, "cases");
    if (!cases->child)
        report_at(r, MEMPLAN_E_SCHEMA, cases, "there is no case");
    for (const struct json *v = cases->child; v; v = v->next)
        read_case(r, v);
}

memplan_status memplan_check_parse(bool *held, memplan_check *check,
                                   const char *json, size_t len,
                                   memplan_load_fn *load, void *ctx,
                                   memplan_errors *errs)
{
    struct diag d;
    diag_init(&d, errs);
    if (held)
        *held = false;
    if (!check || (!json && len > 0)) {
        diag_add(&d, MEMPLAN_E_ARG, "no check, or no text");
        return d.status;
    }
    check->arena.failed = false; /* memory may be there again */
    struct reader r = {
        .check = check,
        .text = json,
        .len = len,
        .load = load,
        .load_ctx = ctx,
        .diag = &d,
        .held = true,
    };
    arena_init(&r.arena, &check->arena.alloc);
    const struct json *root = json_parse(&r.arena, json, len, &d);
    if (root)
        read_cases(&r, root);
    arena_release(&r.arena);
    if (held)
        *held = r.held && d.status == MEMPLAN_OK;
    return d.status;
}
