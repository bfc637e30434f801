/*
 * Owns the reading of "memplan.calibration/1": every mistake in it has its
 * place. What it means for times is the resolved run's.
 */
#include "plan/calibration.h"

#include "json/json.h"

#include <string.h>

#include "base/banned.h"

static const char schema[] = "memplan.calibration/1";

struct file_reader {
    const char *text;
    size_t len;
    struct diag *d;
};

static memplan_error *report_at(struct file_reader *r, memplan_status status,
                                const struct json *at, const char *message)
{
    memplan_error *e = diag_add(r->d, status, "%s", message);
    json_locate(e, r->text, r->len, at);
    return e;
}

static const struct json *member(struct file_reader *r,
                                 const struct json *object, const char *key,
                                 enum json_kind kind)
{
    char message[96];
    const struct json *v = json_member(object, key);
    if (v != NULL && v->kind == kind)
        return v;
    if (v == NULL)
        str_format(message, sizeof message, "there is no '%s'", key);
    else
        str_format(message, sizeof message, "'%s' cannot be %s", key,
                   json_kind_name(v->kind));
    diag_hint(report_at(r, MEMPLAN_E_SCHEMA, v != NULL ? v : object, message),
              "'memplan calibrate --json' writes such a file");
    return NULL;
}

static size_t find_scale(struct str key)
{
    size_t i = 0;
    while (i < SPEED_SCALES
           && !str_is(key, speed_scale_name((enum speed_scale)i)))
        i++;
    return i;
}

/* A constant that is left out is 1. */
static void read_constants(struct file_reader *r, struct calibration *out,
                           const struct json *constants)
{
    for (const struct json *v = constants->child; v != NULL; v = v->next) {
        const size_t i = find_scale(v->key);
        if (i == SPEED_SCALES) {
            memplan_error *e =
                report_at(r, MEMPLAN_E_UNKNOWN, v, "there is no such constant");
            diag_hint(e, "they are products, attention, memory, network and "
                         "host");
        } else if (v->kind != JSON_NUMBER || v->number < 0.01
                   || v->number > 100) {
            report_at(r, MEMPLAN_E_RANGE, v,
                      "a constant is a number from 0.01 to 100");
        } else {
            out->scale[i] = v->number;
        }
    }
}

/* Constants that the fit stopped at the bound of; it may be left out. */
static void read_bounds(struct file_reader *r, struct calibration *out,
                        const struct json *bounds)
{
    if (bounds == NULL)
        return;
    const struct json *v = bounds->child;
    for (; bounds->kind == JSON_ARRAY && v != NULL; v = v->next) {
        const size_t i =
            v->kind == JSON_STRING ? find_scale(v->text) : SPEED_SCALES;
        if (i == SPEED_SCALES)
            break;
        out->bound[i] = true;
    }
    if (bounds->kind != JSON_ARRAY || v != NULL)
        diag_hint(report_at(r, MEMPLAN_E_SCHEMA,
                            bounds->kind == JSON_ARRAY ? v : bounds,
                            "'at_bound' is a list of constants"),
                  "such as [\"products\"], or leave it out");
}

static void read_gpu(struct file_reader *r, struct calibration *out,
                     const struct json *gpu)
{
    char message[96];
    const struct gpu *row = gpu_find(gpu->text.p, gpu->text.n);
    if (row == NULL) {
        str_format(message, sizeof message, "no GPU is called '%.40s'",
                   gpu->text.p);
        diag_hint(report_at(r, MEMPLAN_E_UNKNOWN, gpu, message),
                  "'memplan gpus' lists them");
        return;
    }
    str_format(out->gpu, sizeof out->gpu, "%s", row->name);
}

static void read_object(struct file_reader *r, struct calibration *out,
                        const struct json *root)
{
    const struct json *is = member(r, root, "schema", JSON_STRING);
    if (is == NULL)
        return;
    if (!str_is(is->text, schema)) {
        diag_hint(
            report_at(r, MEMPLAN_E_SCHEMA, is, "this is no calibration file"),
            "the schema is \"%s\"", schema);
        return;
    }
    const struct json *gpu = member(r, root, "gpu", JSON_STRING);
    const struct json *rows = member(r, root, "rows", JSON_NUMBER);
    const struct json *constants = member(r, root, "constants", JSON_OBJECT);
    if (gpu != NULL)
        read_gpu(r, out, gpu);
    if (rows != NULL && rows->number >= 1 && rows->number < 0x1p32)
        out->rows = (size_t)rows->number;
    else if (rows != NULL)
        report_at(r, MEMPLAN_E_RANGE, rows, "'rows' is 1 or more");
    if (constants != NULL)
        read_constants(r, out, constants);
    read_bounds(r, out, json_member(root, "at_bound"));
}

/* Measured rows, an object a line, are what is fitted, not what comes of it. */
static bool is_rows(const char *text, size_t len,
                    const memplan_allocator *alloc)
{
    struct str rest = { text, len };
    struct str line = { text, 0 };
    struct arena arena;
    struct diag quiet;
    while (line.n == 0 && rest.n > 0)
        line = str_cut(rest, '\n', &rest);
    arena_init(&arena, alloc);
    diag_init(&quiet, NULL);
    const struct json *row = json_parse(&arena, line.p, line.n, &quiet);
    const bool rows = row != NULL && row->kind == JSON_OBJECT
                      && json_member(row, "measured") != NULL
                      && json_member(row, "schema") == NULL;
    arena_release(&arena);
    return rows;
}

static memplan_status report_rows(struct file_reader *r, const char *name)
{
    memplan_error *e =
        diag_add(r->d, MEMPLAN_E_SCHEMA,
                 "these are measured rows, not what is fitted to them");
    diag_hint(e,
              "fit them: memplan calibrate %.80s --json > fitted.json, then "
              "--calibration fitted.json",
              name);
    return r->d->status;
}

memplan_status calibration_read(struct calibration *out, const char *text,
                                size_t len, const char *name,
                                const memplan_allocator *alloc, struct diag *d)
{
    struct file_reader r = { text, len, d };
    struct calibration got = { .rows = 0 };
    struct arena arena;
    for (int i = 0; i < SPEED_SCALES; i++)
        got.scale[i] = 1;
    str_format(got.name, sizeof got.name, "%s", name);
    if (is_rows(text, len, alloc))
        return report_rows(&r, name);
    arena_init(&arena, alloc);
    const struct json *root = json_parse(&arena, text, len, d);
    if (root != NULL && root->kind != JSON_OBJECT)
        report_at(&r, MEMPLAN_E_SCHEMA, root, "a calibration is an object");
    else if (root != NULL)
        read_object(&r, &got, root);
    arena_release(&arena);
    if (d->status == MEMPLAN_OK)
        *out = got;
    return d->status;
}

memplan_status memplan_setup_calibrate(memplan_setup *setup, const char *text,
                                       size_t len, const char *name,
                                       memplan_errors *errs)
{
    struct diag d;
    diag_init(&d, errs);
    if (setup == NULL || name == NULL || (text == NULL && len > 0))
        return diag_add(&d, MEMPLAN_E_ARG, "no setup, text or name")->status;
    return calibration_read(&setup->setup.calibration, text, len, name,
                            &setup->alloc, &d);
}

memplan_status memplan_score_calibrate(memplan_score *score, const char *text,
                                       size_t len, const char *name,
                                       memplan_errors *errs)
{
    struct diag d;
    diag_init(&d, errs);
    if (score == NULL || name == NULL || (text == NULL && len > 0))
        return diag_add(&d, MEMPLAN_E_ARG, "no score, text or name")->status;
    return calibration_read(&score->calibration, text, len, name,
                            &score->arena.alloc, &d);
}
