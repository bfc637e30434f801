/*
 * Owns the file of measured runs: one JSON object a line, what is in it, where
 * each mistake is. A line that is no such row is an error; a row that says
 * clearly what memplan cannot predict is kept with the reason.
 */
#include "plan/score.h"

#include "json/json.h"

#include <math.h>
#include <string.h>

#include "base/banned.h"

struct reader {
    memplan_score *score;
    const char *text; /* the line */
    size_t len;
    struct diag *diag;
    struct arena arena; /* the line's JSON tree */
};

static memplan_error *report_at(struct reader *r, memplan_status status,
                                const struct json *at, const char *message)
{
    memplan_error *e = diag_add(r->diag, status, "%s", message);
    json_locate(e, r->text, r->len, at);
    return e;
}

/* ---- members ---- */

static const struct json *required(struct reader *r, const struct json *object,
                                   const char *key)
{
    char message[64];
    const struct json *v = json_member(object, key);
    if (v)
        return v;
    str_format(message, sizeof(message), "there is no '%s'", key);
    report_at(r, MEMPLAN_E_SCHEMA, object, message);
    return NULL;
}

/* NULL when it is absent, or no text: then that is reported. */
static const struct json *word(struct reader *r, const struct json *v,
                               const char *key)
{
    char message[96];
    if (!v || (v->kind == JSON_STRING && v->text.n > 0))
        return v;
    str_format(message, sizeof(message), "'%s' is a text, not %s", key,
               v->kind == JSON_STRING ? "an empty one"
                                      : json_kind_name(v->kind));
    report_at(r, MEMPLAN_E_SCHEMA, v, message);
    return NULL;
}

/* The index of the member's word among `n` names; `fallback` where there is no
 * such member, `n` after a report. */
static size_t choice(struct reader *r, const struct json *v, const char *key,
                     const char *const *names, size_t n, size_t fallback)
{
    char message[128], list[160] = "";
    if (!v)
        return fallback;
    if (!word(r, v, key))
        return n;
    for (size_t i = 0; i < n; i++) {
        if (str_is(v->text, names[i]))
            return i;
        str_append(list, sizeof(list), "%s%s", i > 0 ? " " : "", names[i]);
    }
    str_format(message, sizeof(message), "'%s' is not '%.48s'", key, v->text.p);
    diag_hint(report_at(r, MEMPLAN_E_UNKNOWN, v, message), "write one of: %s",
              list);
    return n;
}

/* A key that is nearly one of ours is a mistake; any other is a note. */
static void check_keys(struct reader *r, const struct json *object,
                       const char *known)
{
    for (const struct json *v = object->child; v; v = v->next) {
        char message[128];
        struct str near = STR("");
        bool found = false;
        for (size_t i = 0; choice_word(known, i).n > 0; i++) {
            const struct str name = choice_word(known, i);
            found = found || str_eq(v->key, name);
            if (str_near(v->key, name, str_distance(v->key, name)))
                near = name;
        }
        if (found || near.n == 0)
            continue;
        str_format(message, sizeof(message), "there is no key '%.*s' here",
                   (int)(v->key.n < 64 ? v->key.n : 64), v->key.p);
        diag_hint(report_at(r, MEMPLAN_E_UNKNOWN, v, message),
                  "did you mean '%.*s'?", (int)near.n, near.p);
    }
}

/* ---- x-needs ---- */

/* A text, or a list of them, as one text; "" where there is none. */
static const char *read_needs(struct reader *r, const struct json *row)
{
    struct arena *a = &r->score->arena;
    const struct json *v = json_member(row, "x-needs");
    const char *needs = "";
    if (!v || v->kind == JSON_NULL)
        return needs;
    if (v->kind != JSON_ARRAY)
        return word(r, v, "x-needs") ? arena_copy(a, v->text.p, v->text.n)
                                     : needs;
    size_t n = 0, at = 0;
    for (const struct json *one = v->child; one; one = one->next)
        n += word(r, one, "x-needs") ? one->text.n + 2 : 0;
    char *text = ARENA_NEW(a, char, n + 1);
    for (const struct json *one = v->child; text && one; one = one->next) {
        if (one->kind != JSON_STRING)
            continue;
        if (at > 0)
            at += str_format(text + at, n + 1 - at, ", ");
        at += str_format(text + at, n + 1 - at, "%s", one->text.p);
    }
    return text ? text : needs;
}

/* ---- what was measured ---- */

enum { TFLOPS_MOST = 1000000 }; /* a GPU of the catalogue has 15,000 */

/* Bytes that a double holds exactly, or any number above nothing. */
static double positive(struct reader *r, const struct json *measured,
                       const char *key, bool whole)
{
    char message[96];
    const struct json *v = required(r, measured, key);
    if (!v)
        return 1;
    const double x = v->number;
    const bool fits = v->kind == JSON_NUMBER && x > 0 && isfinite(x)
                      && (!whole || (x < 0x1p53 && (double)(uint64_t)x >= x));
    if (fits)
        return x;
    str_format(message, sizeof(message), "'%s' is a%s number above 0", key,
               whole ? " whole" : "");
    report_at(r, MEMPLAN_E_RANGE, v, message);
    return 1;
}

static void read_fits(struct reader *r, struct score_row *row,
                      const struct json *measured)
{
    const struct json *v = required(r, measured, "fits");
    row->metric = row->kind == SCORE_FIT ? METRIC_FIT : METRIC_OOM;
    row->measured = row->kind == SCORE_FIT ? 1 : 0;
    if (!v)
        return;
    if (v->kind != JSON_BOOL)
        report_at(r, MEMPLAN_E_SCHEMA, v, "'fits' is true or false");
    else if (v->truth != (row->kind == SCORE_FIT))
        report_at(r, MEMPLAN_E_CONFLICT, v, "'kind' says the opposite");
}

/* 45 for 45 %, or FLOP/s for TFLOP/s: no GPU is as fast. */
static void check_unit(struct reader *r, const struct score_row *row,
                       const struct json *measured)
{
    const struct json *v = json_member(measured, "value");
    if (row->metric == METRIC_MFU && row->measured > 1)
        diag_hint(report_at(r, MEMPLAN_E_RANGE, v,
                            "an MFU is a share of the peak, at most 1"),
                  "write %g for %g %%", row->measured / 100, row->measured);
    if (row->metric == METRIC_TFLOPS_PER_GPU && row->measured >= TFLOPS_MOST)
        diag_hint(
            report_at(r, MEMPLAN_E_RANGE, v, "no GPU does as many TFLOP/s"),
            "write %g for %g FLOP/s", row->measured / 1e12, row->measured);
}

static void read_figure(struct reader *r, struct score_row *row,
                        const struct json *measured)
{
    static const char *const conventions[] = { "causal", "full", "hardware" };
    const char *names[METRIC_COUNT];
    size_t first = METRIC_COUNT, n = 0;
    for (size_t i = 0; i < METRIC_COUNT; i++) {
        if (score_metric_kind((enum score_metric)i) != row->kind)
            continue;
        first = n == 0 ? i : first;
        names[n++] = score_metric_name((enum score_metric)i);
    }
    const struct json *metric = required(r, measured, "metric");
    const size_t at = choice(r, metric, "metric", names, n, n);
    row->metric = (enum score_metric)(first + (at < n ? at : 0));
    row->flops = (enum score_flops)choice(
        r, json_member(measured, "flops_convention"), "flops_convention",
        conventions, FLOPS_COUNT, FLOPS_CAUSAL);
    const bool memory = row->kind == SCORE_MEMORY;
    row->measured = positive(r, measured, memory ? "bytes" : "value", memory);
    check_unit(r, row, measured);
}

static void read_measured(struct reader *r, struct score_row *row,
                          const struct json *object)
{
    const struct json *measured = required(r, object, "measured");
    if (!measured || row->kind == SCORE_KINDS)
        return;
    if (measured->kind != JSON_OBJECT) {
        report_at(r, MEMPLAN_E_SCHEMA, measured, "'measured' is an object");
        return;
    }
    check_keys(r, measured, "metric bytes value fits flops_convention");
    if (row->kind == SCORE_FIT || row->kind == SCORE_OOM)
        read_fits(r, row, measured);
    else
        read_figure(r, row, measured);
}

/* ---- rows ---- */

static void read_row(struct reader *r, struct score_row *row,
                     const struct json *object)
{
    static const char *const kinds[] = { "memory", "throughput", "fit", "oom" };
    static const char *const ranks[] = { "max", "last-stage", "first-stage" };
    struct arena *a = &r->score->arena;
    check_keys(r, object, "id group kind model setup rank measured x-needs");
    const struct json *id = word(r, required(r, object, "id"), "id");
    const struct json *group = word(r, required(r, object, "group"), "group");
    row->id = id ? arena_copy(a, id->text.p, id->text.n) : "";
    row->group = group ? arena_copy(a, group->text.p, group->text.n) : "";
    row->needs = read_needs(r, object);
    row->why = "";
    row->kind = (enum score_kind)choice(r, required(r, object, "kind"), "kind",
                                        kinds, SCORE_KINDS, SCORE_KINDS);
    row->rank = (enum score_rank)choice(r, json_member(object, "rank"), "rank",
                                        ranks, RANK_COUNT, RANK_MAX);
    read_measured(r, row, object);
    const struct json *model = required(r, object, "model");
    if (model && model->kind != JSON_STRING && model->kind != JSON_OBJECT)
        diag_hint(report_at(r, MEMPLAN_E_SCHEMA, model,
                            "a model is a name or a specification"),
                  "write \"llama-7b\" or {\"model_type\": ...}");
    const struct json *setup = required(r, object, "setup");
    if (setup && setup->kind != JSON_OBJECT)
        report_at(r, MEMPLAN_E_SCHEMA, setup, "a setup is an object of keys");
}

/* ---- what others say ---- */

/* {"id", "kind": "peer", "peer", "bytes"}: another estimator's figure. */
static void keep_peer(struct reader *r, const struct json *object)
{
    memplan_score *s = r->score;
    check_keys(r, object, "id kind peer bytes source");
    const struct json *id = word(r, required(r, object, "id"), "id");
    const struct json *name = word(r, required(r, object, "peer"), "peer");
    const double bytes = positive(r, object, "bytes", true);
    if (!id || !name || r->diag->status != MEMPLAN_OK)
        return;
    struct score_peer *p = ARENA_NEW(&s->arena, struct score_peer, 1);
    const char *id_text = arena_copy(&s->arena, id->text.p, id->text.n);
    const char *name_text = arena_copy(&s->arena, name->text.p, name->text.n);
    if (s->arena.failed) {
        diag_nomem(r->diag);
        return;
    }
    *p = (struct score_peer){ id_text, name_text, bytes, NULL };
    if (s->last_peer)
        s->last_peer->next = p;
    else
        s->first_peer = p;
    s->last_peer = p;
    s->n_peers++;
}

/* {"id", "kind": "remark", "why", "doubtful"}: what was found out of a row. */
static void keep_remark(struct reader *r, const struct json *object)
{
    memplan_score *s = r->score;
    check_keys(r, object, "id kind why doubtful");
    const struct json *id = word(r, required(r, object, "id"), "id");
    const struct json *why = word(r, required(r, object, "why"), "why");
    const struct json *doubtful = json_member(object, "doubtful");
    if (doubtful && doubtful->kind != JSON_BOOL)
        report_at(r, MEMPLAN_E_SCHEMA, doubtful, "'doubtful' is true or false");
    if (!id || !why || r->diag->status != MEMPLAN_OK)
        return;
    struct score_remark *m = ARENA_NEW(&s->arena, struct score_remark, 1);
    const char *id_text = arena_copy(&s->arena, id->text.p, id->text.n);
    const char *why_text = arena_copy(&s->arena, why->text.p, why->text.n);
    if (s->arena.failed) {
        diag_nomem(r->diag);
        return;
    }
    *m = (struct score_remark){ id_text, why_text, doubtful && doubtful->truth,
                                s->first_remark };
    s->first_remark = m;
    s->n_remarks++;
}

static bool is_kind(const struct json *object, const char *name)
{
    const struct json *kind = json_member(object, "kind");
    return kind && kind->kind == JSON_STRING && str_is(kind->text, name);
}

/* ---- prediction ---- */

static memplan_status make_model(struct reader *r, memplan_model **out,
                                 const struct score_row *row,
                                 const struct json *value, memplan_errors *errs)
{
    const memplan_allocator *alloc = &r->score->arena.alloc;
    if (value->kind == JSON_STRING)
        return memplan_model_builtin(out, value->text.p, alloc, errs);
    const size_t n = json_value_length(r->text, r->len, value->offset);
    return memplan_model_parse(out, r->text + value->offset, n, row->id, alloc,
                               errs);
}

/* The reason is the first error; the key it is about stands before it. */
static void skip(struct reader *r, struct score_row *row,
                 const memplan_error *e)
{
    const bool about_key = e->key[0] != '\0' && !strstr(e->message, e->key);
    row->reason =
        arena_printf(&r->score->arena, "%s%s%s", about_key ? e->key : "",
                     about_key ? ": " : "", e->message);
}

static memplan_status predict(struct reader *r, struct score_row *row,
                              const struct json *object, struct diag *d)
{
    memplan_model *model = NULL;
    struct setup setup = { .pipeline_count = 0 };
    memplan_status status =
        make_model(r, &model, row, json_member(object, "model"), d->errs);
    if (status == MEMPLAN_OK)
        status = setup_parse(&setup, json_member(object, "setup"), r->text,
                             r->len, d);
    if (row->kind == SCORE_THROUGHPUT)
        setup.calibration = r->score->calibration;
    if (status == MEMPLAN_OK)
        status = score_predict(r->score, row, model, &setup, d);
    memplan_model_free(model);
    return status;
}

/* Only a row that is written well is kept, predicted or not. */
static void keep_row(struct reader *r, const struct json *object)
{
    memplan_score *s = r->score;
    memplan_error slot[1] = { { MEMPLAN_OK, 0, 0, 0, "", "", "", "" } };
    memplan_errors errs = { slot, 1, 0 };
    struct diag inner;
    struct score_row *row = ARENA_NEW(&s->arena, struct score_row, 1);
    if (row)
        read_row(r, row, object);
    if (s->arena.failed) {
        diag_nomem(r->diag);
        return;
    }
    if (r->diag->status != MEMPLAN_OK)
        return;
    if (s->keeps && row->kind != SCORE_THROUGHPUT) {
        s->n_passed++;
        return;
    }
    diag_init(&inner, &errs);
    const memplan_status status = predict(r, row, object, &inner);
    if (status != MEMPLAN_OK && status != MEMPLAN_E_NOMEM)
        skip(r, row, &slot[0]);
    if (status == MEMPLAN_E_NOMEM || s->arena.failed) {
        memplan_report_free(row->report);
        diag_nomem(r->diag);
        return;
    }
    if (s->last)
        s->last->next = row;
    else
        s->first = row;
    s->last = row;
    s->n_rows++;
    s->n_skipped += row->reason != NULL;
}

static void read_line(struct reader *r)
{
    arena_rewind(&r->arena);
    const struct json *object = json_parse(&r->arena, r->text, r->len, r->diag);
    if (!object)
        return;
    if (object->kind != JSON_OBJECT)
        report_at(r, MEMPLAN_E_SCHEMA, object, "a row is an object");
    else if (is_kind(object, "peer"))
        keep_peer(r, object);
    else if (is_kind(object, "remark"))
        keep_remark(r, object);
    else
        keep_row(r, object);
}

/* ---- lines ---- */

/* A line is read as a text of its own, whose only line is number 1. */
static void say_this_line(char *text, size_t size)
{
    static const char one[] = "on line 1";
    char rest[256];
    char *at = strstr(text, one);
    if (!at)
        return;
    str_format(rest, sizeof(rest), "%s", at + sizeof(one) - 1);
    *at = '\0';
    str_append(text, size, "on this line%s", rest);
}

/* Errors from number `from` on are about a line that begins at `offset`. */
static void move_errors(memplan_errors *errs, size_t from, uint32_t lines,
                        size_t offset)
{
    for (size_t i = from; errs && i < errs->count && i < errs->capacity; i++) {
        if (errs->item[i].line == 0)
            continue;
        errs->item[i].line += lines;
        errs->item[i].offset += offset;
        say_this_line(errs->item[i].message, sizeof(errs->item[i].message));
        say_this_line(errs->item[i].hint, sizeof(errs->item[i].hint));
    }
}

static bool is_blank(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != ' ' && p[i] != '\t' && p[i] != '\r')
            return false;
    return true;
}

static void read_lines(struct reader *r, const char *text, size_t len,
                       memplan_errors *errs)
{
    memplan_status first = MEMPLAN_OK;
    uint32_t lines = 0;
    for (size_t at = 0; at < len && first != MEMPLAN_E_NOMEM; lines++) {
        const char *end = memchr(text + at, '\n', len - at);
        const size_t begin = at, from = errs ? errs->count : 0;
        r->text = text + at;
        r->len = end ? (size_t)(end - r->text) : len - at;
        at += r->len + (end ? 1 : 0);
        if (is_blank(r->text, r->len))
            continue;
        r->diag->status = MEMPLAN_OK; /* whether this line is good */
        read_line(r);
        move_errors(errs, from, lines, begin);
        if (first == MEMPLAN_OK || r->diag->status == MEMPLAN_E_NOMEM)
            first = r->diag->status;
    }
    r->diag->status = first;
}

memplan_status memplan_score_parse(memplan_score *score, const char *text,
                                   size_t len, memplan_errors *errs)
{
    struct diag d;
    diag_init(&d, errs);
    if (!score || (!text && len > 0)) {
        diag_add(&d, MEMPLAN_E_ARG, "no score, or no text");
        return d.status;
    }
    score->arena.failed = false; /* memory may be there again */
    struct reader r = { .score = score, .diag = &d };
    arena_init(&r.arena, &score->arena.alloc);
    read_lines(&r, text, len, errs);
    arena_release(&r.arena);
    if (d.status != MEMPLAN_E_NOMEM && !score_remark(score))
        return diag_nomem(&d);
    return d.status;
}
