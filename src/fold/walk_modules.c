/*
 * What modules of a layer keep, where that waits on the host: which tensors go,
 * when their memory does, and what is there of them in backward. Every tensor that
 * an operation inside of a module saves is a copy of its own there and back; a
 * storage leaves the GPU when nobody outside keeps it, or when the module lets
 * go of it whoever does. When groups come back is stage_modules.c's. [Megatron-LM
 * core/pipeline_parallel/fine_grained_activation_offload.py at d98e8a64;
 * docs/method.md eq. offload]
 */
#include "fold/walk_private.h"

#include "base/banned.h"

static struct module_group *group_of(struct walk *w, const struct op *op,
                                     uint32_t k)
{
    struct modules_walk *all = w->modules;
    const enum offload_module id = (enum offload_module)(op->module - 1);
    for (uint32_t i = 0; i < all->n; i++)
        if (all->group[i].id == id)
            return &all->group[i];
    all->group[all->n] = (struct module_group){ .id = id, .first = k };
    return &all->group[all->n++];
}

static bool is_large(const struct walk *w, const struct tensor *t)
{
    return t->elems >= w->least_elems;
}

/* Copied when its module is done: once for each that saves it. */
static bool goes(struct walk *w, struct module_group *g, tensor_id id,
                 uint32_t k)
{
    const struct tensor *t = &w->p->tensor[id];
    if (g == NULL || t->role == ROLE_PARAM || !is_large(w, t))
        return false;
    const uint64_t back = walk_round(w, t->bytes);
    w->entry[w->n_entries++] =
        (struct module_entry){ .op = k, .bytes = back, .name = t->name };
    g->back += back;
    g->moved += t->bytes;
    g->pinned += round_to_power(t->bytes);
    return true;
}

static void note_saved(struct walk *w, struct module_group *g, tensor_id id,
                       uint32_t k)
{
    struct walk_slot *s = walk_root_of(w, id);
    const bool sent = goes(w, g, id, k);
    if (s == NULL)
        return;
    if (!sent)
        walk_way_out_of(w, s)->remains = true;
    else
        walk_way_out_of(w, s)->sent = (uint32_t)(g - w->modules->group);
}

/* A checkpoint keeps its inputs, each once. */
static void note_inputs(struct walk *w, struct module_group *g, uint32_t k)
{
    const struct op *op = walk_op_at(w, k);
    const uint32_t first = walk_run_first(w, k);
    for (unsigned i = 0; i < op->n_in; i++) {
        struct walk_slot *s = walk_root_of(w, op->in[i]);
        if (s == NULL
            || (s != &w->slot[w->b->tensor_count] && s->first_use >= first))
            continue;
        struct walk_way_out *x = walk_way_out_of(w, s);
        if (x->number != first + 1)
            note_saved(w, g, op->in[i], k);
        x->number = first + 1;
    }
}

static void note_op(struct walk *w, uint32_t k)
{
    const struct op *op = walk_op_at(w, k);
    struct module_group *g = op->module == 0 ? NULL : group_of(w, op, k);
    tensor_id saved[SAVED_MAX];
    if (walk_region_active(w, op)) {
        note_inputs(w, g, k);
        return;
    }
    const size_t n = op_saves(w->p, op, saved);
    for (size_t i = 0; i < n; i++)
        note_saved(w, g, saved[i], k);
}

/* The module is done. What its callers name it lets go of by force. */
static void note_commit(struct walk *w, uint32_t k)
{
    const struct op *op = walk_op_at(w, k);
    struct modules_walk *all = w->modules;
    struct module_group *g = group_of(w, op, k);
    g->commit = k;
    all->order[all->committed++] = (uint32_t)(g - all->group);
    for (unsigned i = 0; i < op->n_in; i++) {
        struct walk_slot *s = walk_root_of(w, op->in[i]);
        if (s == NULL || !is_large(w, &w->p->tensor[op->in[i]]))
            continue;
        walk_way_out_of(w, s)->forced = true;
        walk_way_out_of(w, s)->gone = k;
    }
}

void walk_find_modules(struct walk *w, struct away *sum)
{
    *w->modules = (struct modules_walk){ 0 };
    w->n_entries = 0;
    for (uint32_t i = 0; i <= w->b->tensor_count; i++)
        w->way_out[i] =
            (struct walk_way_out){ .sent = NEVER_SENT, .gone = NEVER_SENT };
    for (uint32_t k = 0; k < w->b->op_count; k++)
        if (walk_op_at(w, k)->commits)
            note_commit(w, k);
        else
            note_op(w, k);
    for (uint32_t i = 0; i <= w->b->tensor_count; i++) {
        struct walk_slot *s = &w->slot[i];
        struct walk_way_out *x = &w->way_out[i];
        s->away = x->forced || (x->sent != NEVER_SENT && !x->remains);
        if (s->away && !x->forced)
            x->gone = w->modules->group[x->sent].commit;
    }
    const uint32_t in = w->b->tensor_count;
    w->modules->named_input = w->slot[in].away && !w->way_out[in].forced;
    for (uint32_t i = 0; i < w->modules->n; i++) {
        sum->moved += w->modules->group[i].moved;
        sum->pinned += w->modules->group[i].pinned;
    }
}

void walk_modules_let_go(struct walk *w, uint32_t k)
{
    for (uint32_t i = 0; i <= w->b->tensor_count; i++) {
        struct walk_slot *s = &w->slot[i];
        const struct walk_way_out *x = &w->way_out[i];
        const bool named = i == w->b->tensor_count && k + 1 < w->b->op_count;
        if (s->away && s->live && x->gone <= k
            && (x->forced || (s->last_use <= k && !named)))
            walk_slot_free(w, s);
    }
}

/* ---- backward ---- */

static void tell_entry(struct walk *w, uint32_t i, bool birth)
{
    walk_tell(w, (struct walk_event){ .birth = birth,
                                      .what = WALK_BACK,
                                      .key = i,
                                      .bytes = w->entry[i].bytes,
                                      .name = w->entry[i].name });
}

void walk_modules_come(struct walk *w)
{
    for (uint32_t i = 0; i < w->n_entries; i++) {
        w->kept += w->entry[i].bytes;
        tell_entry(w, i, true);
    }
}

void walk_modules_used(struct walk *w)
{
    for (uint32_t i = 0; i < w->n_entries; i++) {
        if (w->entry[i].op != w->at)
            continue;
        w->kept -= w->entry[i].bytes;
        tell_entry(w, i, false);
    }
}

/* The start of a module, in backward its end: the next group comes. */
void walk_modules_begun(struct walk *w, uint32_t k)
{
    for (uint32_t i = 0; i < w->modules->n; i++) {
        if (w->modules->group[i].first != k)
            continue;
        if (w->stretch != NULL)
            w->stretch[w->stretches] = w->top;
        w->stretches++;
        w->top = (struct extremum){ 0 };
        walk_tell(w, (struct walk_event){ .birth = true, .what = WALK_AHEAD });
        walk_note(w);
    }
}
