/*
 * Owns what others say of the rows, matched by id: the figures of other
 * estimators, held against memplan's on the very same rows, and remarks.
 */
#include "plan/score.h"

#include <math.h>
#include <string.h>

#include "base/banned.h"

/* A figure with the row that it is about. */
struct pair {
    struct score_row theirs; /* the row, with the peer's figure */
    const struct score_row *ours;
    const char *name;
};

static int by_id_of_row(const void *x, const void *y)
{
    const struct score_row *a = x, *b = y;
    return strcmp(a->id, b->id);
}

static int by_id_of_peer(const void *x, const void *y)
{
    const struct score_peer *a = x, *b = y;
    return strcmp(a->id, b->id);
}

static int by_error(const void *x, const void *y)
{
    const struct score_row *a = x, *b = y;
    return (fabs(a->error) > fabs(b->error))
           - (fabs(a->error) < fabs(b->error));
}

static int by_group(const void *x, const void *y)
{
    const struct pair *a = x, *b = y;
    int c = strcmp(a->ours->group, b->ours->group);
    if (c == 0)
        c = (a->ours->metric > b->ours->metric)
            - (a->ours->metric < b->ours->metric);
    return c != 0 ? c : strcmp(a->name, b->name);
}

/* The rows and the figures that can be compared, each by id. */
static bool collect(struct score_list *rows, struct score_list *peers,
                    struct arena *a, const memplan_score *score)
{
    if (!score_list_new(rows, a, score->n_rows)
        || !score_list_new(peers, a, score->n_peers))
        return false;
    for (const struct score_row *r = score->first; r; r = r->next)
        if (r->kind == SCORE_MEMORY && !r->reason && r->needs[0] == '\0')
            rows->item[rows->n++] = r;
    for (const struct score_peer *p = score->first_peer; p; p = p->next)
        peers->item[peers->n++] = p;
    return score_sort(rows, by_id_of_row, a)
           && score_sort(peers, by_id_of_peer, a);
}

/* struct pair: both lists are in order of their ids. */
static bool match(struct score_list *pairs, struct arena *a,
                  const struct score_list *rows, const struct score_list *peers)
{
    struct pair *pair = ARENA_NEW(a, struct pair, peers->n);
    size_t at = 0;
    if (!pair || !score_list_new(pairs, a, peers->n))
        return false;
    for (size_t i = 0; i < peers->n; i++) {
        const struct score_peer *p = peers->item[i];
        const struct score_row *r = NULL;
        for (; at < rows->n; at++) {
            r = rows->item[at];
            if (strcmp(r->id, p->id) >= 0)
                break;
        }
        if (at == rows->n || strcmp(r->id, p->id) != 0)
            continue;
        struct pair *q = &pair[pairs->n];
        *q = (struct pair){ *r, r, p->name };
        q->theirs.error = p->bytes / r->measured - 1;
        pairs->item[pairs->n++] = q;
    }
    return score_sort(pairs, by_group, a);
}

/* Of n pairs; which row of them, `theirs` says. */
static bool count(struct score_stats *out, struct arena *a,
                  const void *const *pair, size_t n, bool theirs)
{
    struct score_list rows;
    if (!score_list_new(&rows, a, n))
        return false;
    for (; rows.n < n; rows.n++) {
        const struct pair *p = pair[rows.n];
        rows.item[rows.n] = theirs ? &p->theirs : p->ours;
    }
    if (!score_sort(&rows, by_error, a))
        return false;
    *out = score_stats_of((const struct score_row *const *)rows.item, n);
    return true;
}

bool score_peers(struct score_list *out, struct arena *a,
                 const memplan_score *score)
{
    struct score_list rows, peers, pairs;
    if (!collect(&rows, &peers, a, score) || !match(&pairs, a, &rows, &peers)
        || !score_list_new(out, a, pairs.n))
        return false;
    for (size_t i = 0, end = 0; i < pairs.n; i = end) {
        const struct pair *p = pairs.item[i];
        for (end = i + 1; end < pairs.n; end++)
            if (by_group(p, pairs.item[end]) != 0)
                break;
        struct score_peer_group *g = ARENA_NEW(a, struct score_peer_group, 1);
        if (!g)
            return false;
        *g = (struct score_peer_group){ .group = p->ours->group,
                                        .name = p->name,
                                        .metric = p->ours->metric };
        if (!count(&g->theirs, a, pairs.item + i, end - i, true)
            || !count(&g->ours, a, pairs.item + i, end - i, false))
            return false;
        out->item[out->n++] = g;
    }
    return true;
}

/* ---- remarks ---- */

static int by_id_of_remark(const void *x, const void *y)
{
    const struct score_remark *a = x, *b = y;
    return strcmp(a->id, b->id);
}

static bool give(struct score_row *row, const struct score_remark *remark,
                 struct arena *a)
{
    if (row->why[0] == '\0')
        row->why = remark->why;
    if (remark->doubtful && row->needs[0] == '\0')
        row->needs = arena_printf(a, "doubtful figure: %s", remark->why);
    return row->needs != NULL;
}

/* The remark of a row's id; NULL: none. */
static const struct score_remark *find(const struct score_list *remarks,
                                       const char *id)
{
    size_t from = 0, to = remarks->n;
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        const struct score_remark *m = remarks->item[middle];
        const int c = strcmp(m->id, id);
        if (c == 0)
            return m;
        if (c < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return NULL;
}

bool score_remark(memplan_score *score)
{
    struct arena a;
    struct score_list remarks;
    arena_init(&a, &score->arena.alloc);
    bool ok = score_list_new(&remarks, &a, score->n_remarks);
    for (const struct score_remark *m = score->first_remark; ok && m;
         m = m->next)
        remarks.item[remarks.n++] = m;
    ok = ok && score_sort(&remarks, by_id_of_remark, &a);
    for (struct score_row *r = score->first; ok && remarks.n > 0 && r;
         r = r->next) {
        const struct score_remark *m = find(&remarks, r->id);
        ok = !m || give(r, m, &score->arena);
    }
    arena_release(&a);
    return ok;
}
