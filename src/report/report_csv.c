/*
 * Owns a report as CSV: one line a value, named by its place in the JSON.
 */
#include "report/report_rows.h"

#include "report/report_view.h"

#include "base/str.h"

#include "base/banned.h"

enum { DEPTH_MAX = 8, PATH_TEXT_MAX = 256 };

struct csv_visitor {
    struct visitor base;
    struct out *out;
    char path[PATH_TEXT_MAX];
    size_t length[DEPTH_MAX]; /* of the path, by depth */
    size_t index[DEPTH_MAX];
    size_t depth;
};

/* Adds ".key" or "[i]". */
static void path_push(struct csv_visitor *c, const char *key)
{
    if (!key)
        str_append(c->path, sizeof(c->path), "[%zu]", c->index[c->depth]++);
    else
        str_append(c->path, sizeof(c->path), "%s%s", c->depth > 1 ? "." : "",
                   key);
}

static bool csv_begin(struct visitor *v, const char *key, bool array)
{
    struct csv_visitor *c = (struct csv_visitor *)v;
    (void)array;
    if (c->depth + 1 >= DEPTH_MAX)
        return false;
    if (c->depth > 0)
        path_push(c, key);
    c->depth++;
    c->length[c->depth] = str_of(c->path).n;
    c->index[c->depth] = 0;
    return true;
}

static void csv_end(struct visitor *v, bool array)
{
    struct csv_visitor *c = (struct csv_visitor *)v;
    (void)array;
    c->depth--;
    c->path[c->length[c->depth]] = '\0';
}

static void csv_value(struct visitor *v, const char *key, struct value value)
{
    struct csv_visitor *c = (struct csv_visitor *)v;
    char buf[VALUE_TEXT_MAX];
    path_push(c, key);
    out_csv(c->out, true, c->path);
    out_csv(c->out, false, value_text(buf, value));
    out_csv(c->out, false, value.unit);
    out_csv_end(c->out);
    c->path[c->length[c->depth]] = '\0';
}

void report_write_csv(struct out *o, const struct memplan_report *report,
                      const struct answers *answers)
{
    struct csv_visitor c = {
        .base = { csv_begin, csv_end, csv_value },
        .out = o,
    };
    out_csv(o, true, "name");
    out_csv(o, false, "value");
    out_csv(o, false, "unit");
    out_csv_end(o);
    report_visit(report, answers, &c.base);
}
