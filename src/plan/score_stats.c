/*
 * Owns counting: groups of rows, their medians, percentiles and biases, the
 * worst rows, the reasons. Everything is sorted by a merge sort, which is
 * n log n on any input, and stable.
 */
#include "plan/score.h"

#include <math.h>
#include <string.h>

#include "base/banned.h"

typedef int compare_fn(const void *x, const void *y);

static void merge(const void **to, const void *const *from, size_t at,
                  size_t middle, size_t end, compare_fn *compare)
{
    size_t i = at, j = middle;
    for (size_t k = at; k < end; k++) {
        const bool left =
            i < middle && (j >= end || compare(from[i], from[j]) <= 0);
        to[k] = left ? from[i++] : from[j++];
    }
}

bool score_sort(struct score_list *list, compare_fn *compare, struct arena *a)
{
    const size_t n = list->n;
    const void **from = list->item;
    const void **to = ARENA_NEW(a, const void *, n);
    if (!to)
        return false;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t at = 0; at < n; at += 2 * width) {
            const size_t middle = at + width < n ? at + width : n;
            const size_t end = middle + width < n ? middle + width : n;
            merge(to, from, at, middle, end, compare);
        }
        const void **swap = from;
        from = to;
        to = swap;
    }
    list->item = from;
    return true;
}

bool score_list_new(struct score_list *list, struct arena *a, size_t capacity)
{
    *list = (struct score_list){ ARENA_NEW(a, const void *, capacity), 0 };
    return list->item != NULL;
}

static int by_number(double x, double y)
{
    return (x > y) - (x < y);
}

static double magnitude(const struct score_row *row)
{
    return fabs(row->error);
}

static int by_count(uint64_t x, uint64_t y)
{
    return (x > y) - (x < y);
}

/* ---- groups ---- */

/* A row with what it is grouped by. */
struct member {
    const struct score_row *row;
    const char *text;
    uint64_t order;
    enum score_metric metric;
    size_t index;
};

static int by_group_of(const struct member *x, const struct member *y)
{
    int c = strcmp(x->text, y->text);
    if (c == 0)
        c = by_count(x->order, y->order);
    if (c == 0)
        c = by_count(x->metric, y->metric);
    return c != 0 ? c : strcmp(x->row->needs, y->row->needs);
}

static int by_group_and_error(const void *x, const void *y)
{
    const struct member *a = x, *b = y;
    const int c = by_group_of(a, b);
    return c != 0 ? c : by_number(magnitude(a->row), magnitude(b->row));
}

static int by_place(const void *x, const void *y)
{
    const struct score_group *a = x, *b = y;
    int c = (a->needs[0] != '\0') - (b->needs[0] != '\0');
    if (c == 0)
        c = by_count(a->order, b->order);
    return c != 0 ? c : by_count(a->first, b->first);
}

static void put_member(struct member *m, const struct score_row *row,
                       enum score_by by)
{
    m->row = row;
    m->text = "";
    m->metric = row->metric;
    if (by == BY_GROUP)
        m->text = row->group;
    else if (by == BY_METRIC)
        m->order = row->metric;
    else if (by < BY_COUNT)
        m->order = row->key[by - BY_FIRST_KEY];
    else
        m->metric = METRIC_COUNT;
    if (by == BY_KIND)
        m->order = row->kind;
}

/* "zero 3", "recompute full" */
static const char *key_label(struct arena *a, enum setup_key key, uint64_t n)
{
    if (key == KEY_LORA_RANK && n == 0)
        return "no LoRA";
    struct setup s = { .pipeline_count = 0 };
    char value[64];
    s.v[key].n = n;
    s.set[key] = true;
    return arena_printf(a, "%s %s", setup_field(key)->key,
                        setup_value_text(&s, key, value, sizeof(value)));
}

static const char *label_of(struct arena *a, const struct member *m,
                            enum score_by by)
{
    if (by == BY_GROUP)
        return m->text;
    if (by == BY_METRIC)
        return score_metric_name(m->metric);
    if (by == BY_KIND)
        return score_kind_name(m->row->kind);
    if (by == BY_NOTHING)
        return "all";
    return key_label(a, score_key(by), m->order);
}

struct score_stats score_stats_of(const struct score_row *const *row, size_t n)
{
    struct score_stats s = { .count = n };
    s.has_error = score_has_error(row[0]);
    for (size_t i = 0; i < n; i++) {
        s.right += !s.has_error && score_is_right(row[i]);
        s.bias += row[i]->error / (double)n;
    }
    s.median = (magnitude(row[(n - 1) / 2]) + magnitude(row[n / 2])) / 2;
    s.p90 = magnitude(row[(9 * n + 9) / 10 - 1]);
    s.worst = magnitude(row[n - 1]);
    return s;
}

/* The n members are one group. */
static struct score_group *make_group(struct arena *a,
                                      const void *const *member, size_t n,
                                      enum score_by by)
{
    const struct member *m = member[0];
    struct score_group *g = ARENA_NEW(a, struct score_group, 1);
    const struct score_row **row = ARENA_NEW(a, const struct score_row *, n);
    if (!g || !row)
        return NULL;
    for (size_t i = 0; i < n; i++)
        row[i] = ((const struct member *)member[i])->row;
    *g = (struct score_group){ .label = label_of(a, m, by),
                               .needs = m->row->needs,
                               .kind = m->row->kind,
                               .metric = m->metric,
                               .stats = score_stats_of(row, n),
                               .order = m->order,
                               .first = m->index };
    for (size_t i = 1; i < n; i++) {
        const struct member *next = member[i];
        g->first = next->index < g->first ? next->index : g->first;
    }
    g->note = ARENA_NEW(a, size_t, 1);
    g->name = g->label;
    if (g->needs[0] != '\0' && g->label)
        g->name = arena_printf(a, "%s (needs %s)", g->label, g->needs);
    return g;
}

/* Predicted and, where one number is asked for, able to give it. */
static bool is_asked_for(const struct score_row *r, enum score_by by)
{
    if (by == BY_NOTHING)
        return score_has_error(r) && r->needs[0] == '\0';
    return by != BY_KIND || r->needs[0] == '\0';
}

/* Rows to group; `memory`: only those of memory that need nothing, their metrics
 * together. */
static bool collect(struct score_list *out, struct arena *a,
                    const memplan_score *score, enum score_by by, bool memory)
{
    struct member *m = ARENA_NEW(a, struct member, score->n_rows);
    size_t index = 0;
    if (!m || !score_list_new(out, a, score->n_rows))
        return false;
    for (const struct score_row *r = score->first; r; r = r->next, index++) {
        const bool in = memory ? r->kind == SCORE_MEMORY && r->needs[0] == '\0'
                               : is_asked_for(r, by);
        if (r->reason || !in)
            continue;
        put_member(&m[out->n], r, by);
        if (memory)
            m[out->n].metric = METRIC_COUNT;
        m[out->n].index = index;
        out->item[out->n] = &m[out->n];
        out->n++;
    }
    return true;
}

static bool make_groups(struct score_list *out, struct arena *a,
                        struct score_list *members, enum score_by by)
{
    if (!score_sort(members, by_group_and_error, a)
        || !score_list_new(out, a, members->n))
        return false;
    for (size_t i = 0, end = 0; i < members->n; i = end) {
        for (end = i + 1; end < members->n; end++)
            if (by_group_of(members->item[i], members->item[end]) != 0)
                break;
        out->item[out->n++] = make_group(a, members->item + i, end - i, by);
    }
    return !a->failed && score_sort(out, by_place, a);
}

bool score_group(struct score_list *out, struct arena *a,
                 const memplan_score *score, enum score_by by)
{
    struct score_list members;
    return collect(&members, a, score, by, false)
           && make_groups(out, a, &members, by);
}

/* One list, the keys one after the other; not those in which all rows agree,
 * which would only say the overall figures again. */
bool score_features(struct score_list *out, struct arena *a,
                    const memplan_score *score)
{
    struct score_list groups[BY_COUNT];
    size_t n = 0;
    for (int by = BY_FIRST_KEY; by < BY_COUNT; by++) {
        struct score_list members;
        if (!collect(&members, a, score, (enum score_by)by, true)
            || !make_groups(&groups[by], a, &members, (enum score_by)by))
            return false;
        if (groups[by].n == 1)
            groups[by].n = 0;
        n += groups[by].n;
    }
    if (!score_list_new(out, a, n))
        return false;
    for (int by = BY_FIRST_KEY; by < BY_COUNT; by++)
        for (size_t i = 0; i < groups[by].n; i++)
            out->item[out->n++] = groups[by].item[i];
    return true;
}

static int by_needs(const void *x, const void *y)
{
    const struct score_group *a = x, *b = y;
    return strcmp(a->needs, b->needs);
}

bool score_notes(struct score_list *out, struct arena *a,
                 const struct score_list *groups)
{
    struct score_list sorted;
    if (!score_list_new(&sorted, a, groups->n)
        || !score_list_new(out, a, groups->n))
        return false;
    for (size_t i = 0; i < groups->n; i++) {
        const struct score_group *g = groups->item[i];
        if (g->needs[0] != '\0')
            sorted.item[sorted.n++] = g;
    }
    if (!score_sort(&sorted, by_needs, a))
        return false;
    for (size_t i = 0; i < sorted.n; i++) {
        const struct score_group *g = sorted.item[i];
        if (i == 0 || by_needs(sorted.item[i - 1], g) != 0)
            out->item[out->n++] = g;
        *g->note = out->n;
    }
    return true;
}

/* ---- one median ---- */

static int by_error(const void *x, const void *y)
{
    const struct score_row *a = x, *b = y;
    return by_number(magnitude(a), magnitude(b));
}

memplan_status memplan_score_median(double *out, const memplan_score *score,
                                    const char *group, const char *metric)
{
    struct arena a;
    struct score_list rows;
    *out = 0;
    if (!score)
        return MEMPLAN_E_UNKNOWN;
    arena_init(&a, &score->arena.alloc);
    bool ok = score_list_new(&rows, &a, score->n_rows);
    for (const struct score_row *r = score->first; ok && r; r = r->next) {
        if (score_has_error(r) && r->needs[0] == '\0'
            && (!group || strcmp(r->group, group) == 0)
            && (!metric || strcmp(score_metric_name(r->metric), metric) == 0))
            rows.item[rows.n++] = r;
    }
    ok = ok && score_sort(&rows, by_error, &a);
    if (ok && rows.n > 0)
        *out = (magnitude(rows.item[(rows.n - 1) / 2])
                + magnitude(rows.item[rows.n / 2]))
               / 2;
    arena_release(&a);
    if (!ok)
        return MEMPLAN_E_NOMEM;
    return rows.n > 0 ? MEMPLAN_OK : MEMPLAN_E_UNKNOWN;
}

/* ---- the worst rows, the reasons ---- */

static int by_error_down(const void *x, const void *y)
{
    return by_error(y, x);
}

bool score_worst(struct score_list *out, struct arena *a,
                 const memplan_score *score, enum score_kind kind)
{
    if (!score_list_new(out, a, score->n_rows))
        return false;
    for (const struct score_row *r = score->first; r; r = r->next)
        if (r->kind == kind && score_has_error(r) && r->needs[0] == '\0')
            out->item[out->n++] = r;
    return score_sort(out, by_error_down, a);
}

static int by_reason(const void *x, const void *y)
{
    const struct score_row *a = x, *b = y;
    return strcmp(a->reason, b->reason);
}

static int by_frequency(const void *x, const void *y)
{
    const struct score_reason *a = x, *b = y;
    const int c = by_count(b->count, a->count);
    return c != 0 ? c : strcmp(a->text, b->text);
}

bool score_reasons(struct score_list *out, struct arena *a,
                   const memplan_score *score)
{
    struct score_list rows;
    struct score_reason *reason =
        ARENA_NEW(a, struct score_reason, score->n_skipped);
    if (!reason || !score_list_new(&rows, a, score->n_skipped)
        || !score_list_new(out, a, score->n_skipped))
        return false;
    for (const struct score_row *r = score->first; r; r = r->next)
        if (r->reason)
            rows.item[rows.n++] = r;
    if (!score_sort(&rows, by_reason, a))
        return false;
    for (size_t i = 0; i < rows.n; i++) {
        const struct score_row *r = rows.item[i];
        if (i == 0 || by_reason(rows.item[i - 1], r) != 0) {
            reason[out->n].text = r->reason;
            out->item[out->n] = &reason[out->n];
            out->n++;
        }
        reason[out->n - 1].count++;
    }
    return score_sort(out, by_frequency, a);
}
