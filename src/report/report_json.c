/*
 * Owns a report as JSON, and looking numbers up by their place in it.
 */
#include "report/report_rows.h"

#include "report/report_view.h"

#include "base/unit.h"

#include <string.h>

#include "base/banned.h"

void report_write_json(struct out *o, const struct memplan_report *report,
                       const struct answers *answers)
{
    struct json_visitor v;
    json_visitor_init(&v, o);
    report_visit(report, answers, &v.base);
    json_end(&v.w);
}

/* ---- lookup ---- */

enum { DEPTH_MAX = 8 };

/* Goes down one path, "memory.stages[1].layers", skipping all beside it. */
struct lookup {
    struct visitor base;
    const char *rest[DEPTH_MAX]; /* of the path, by depth */
    size_t index[DEPTH_MAX];     /* of the next element, in an array */
    size_t depth;
    bool found;
    struct value value;
};

/* What follows `key`, or the next element's "[i]", in the path; NULL when the
 * path goes elsewhere. */
static const char *follow(struct lookup *l, const char *key)
{
    char index[24];
    const char *rest = l->rest[l->depth];
    if (!key) {
        str_format(index, sizeof(index), "[%zu]", l->index[l->depth]++);
        key = index;
    } else if (l->depth > 1) {
        if (*rest != '.')
            return NULL;
        rest++;
    }
    size_t n = strlen(key);
    return strncmp(rest, key, n) == 0 ? rest + n : NULL;
}

static bool lookup_begin(struct visitor *v, const char *key, bool array)
{
    struct lookup *l = (struct lookup *)v;
    (void)array;
    bool top = l->depth == 0;
    const char *rest = top ? l->rest[0] : follow(l, key);
    bool ends = rest && (*rest == '.' || *rest == '[');
    if (l->found || (!top && !ends) || l->depth + 1 >= DEPTH_MAX)
        return false;
    l->depth++;
    l->rest[l->depth] = rest;
    l->index[l->depth] = 0;
    return true;
}

static void lookup_end(struct visitor *v, bool array)
{
    (void)array;
    ((struct lookup *)v)->depth--;
}

static void lookup_value(struct visitor *v, const char *key, struct value value)
{
    struct lookup *l = (struct lookup *)v;
    const char *rest = l->found ? NULL : follow(l, key);
    if (!rest || *rest != '\0')
        return;
    l->found = true;
    l->value = value;
}

/* They are not made for another number. */
static bool asks_for_changes(const char *path)
{
    static const char key[] = "changes[";
    return strncmp(path, key, sizeof key - 1) == 0;
}

/* A text found is no number, and must not outlive the visit. */
static struct value find(const struct memplan_report *report, const char *path)
{
    struct lookup l = {
        .base = { lookup_begin, lookup_end, lookup_value },
    };
    struct answers answers = { .changes.n = 0 };
    l.rest[0] = path;
    if (report && path && asks_for_changes(path))
        (void)report_changes(&answers.changes, report);
    if (report && path) {
        report_laws(&answers.laws, report);
        report_visit(report, &answers, &l.base);
    }
    if (l.value.kind == VALUE_TEXT)
        l.value.kind = VALUE_NONE;
    return l.value;
}

memplan_status memplan_report_bytes(uint64_t *out,
                                    const struct memplan_report *report,
                                    const char *path)
{
    struct value v = find(report, path);
    *out = 0;
    if (v.kind == VALUE_U64)
        *out = v.u64;
    else if (v.kind == VALUE_I64 && v.i64 >= 0)
        *out = (uint64_t)v.i64;
    else
        return MEMPLAN_E_UNKNOWN;
    return MEMPLAN_OK;
}

memplan_status memplan_report_number(double *out,
                                     const struct memplan_report *report,
                                     const char *path)
{
    struct value v = find(report, path);
    *out = 0;
    if (v.kind == VALUE_U64)
        *out = (double)v.u64;
    else if (v.kind == VALUE_I64)
        *out = (double)v.i64;
    else if (v.kind == VALUE_REAL)
        *out = v.real;
    else
        return MEMPLAN_E_UNKNOWN;
    return MEMPLAN_OK;
}

bool memplan_report_fits(const struct memplan_report *report)
{
    return report && report->kind == REPORT_ESTIMATE && report->memory.fits;
}
