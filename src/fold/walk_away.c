/*
 * What is on the host, between forward and backward, of what a layer keeps.
 * Owns which tensors, and, where they go one by one, when; when those of whole
 * layers go and come back is stage_away.c's. [transformer_engine/pytorch/
 * cpu_offload.py at d0067d0d; trl/models/activation_offloading.py at f2cd5771;
 * docs/method.md eq. offload]
 */
#include "fold/walk_private.h"

#include "data/constants.h"

#include "base/banned.h"

static const struct tensor *tensor_of_slot(const struct walk *w, uint32_t i)
{
    const struct block *b = w->b;
    return &w->p->tensor[i == b->tensor_count ? b->input : b->tensor_first + i];
}

static void add_moved(struct away *sum, const struct tensor *t)
{
    sum->moved += t->bytes;
    sum->pinned += round_to_power(t->bytes);
}

/* ---- layer by layer: Transformer Engine ---- */

/* A storage has left the GPU when nobody keeps it there: an operation whose
 * tensor is too small does. Grouped products keep a part for each expert
 * (module/grouped_linear.py). */
static void note_op(struct walk *w, const struct op *op)
{
    tensor_id saved[SAVED_MAX];
    const size_t n = op_saves(w->p, op, saved);
    for (size_t i = 0; i < n; i++) {
        struct walk_slot *s = walk_root_of(w, saved[i]);
        const struct tensor *t = &w->p->tensor[w->p->tensor[saved[i]].storage];
        if (s != NULL
            && t->elems / max_u64(op->pieces, 1) < TE_OFFLOAD_MIN_ELEMS)
            s->away = false;
    }
}

/* Each layer's rotary kernels keep the table that all share, and each comes
 * back on its own (attention/rope.py, FusedRoPEFunc). */
static void add_copies(const struct walk *w, struct away *sum)
{
    for (uint32_t i = 0; i < w->p->n_shared; i++) {
        const struct tensor *t = &w->p->tensor[w->p->first_shared + i];
        if (!t->rotary || t->elems < TE_OFFLOAD_MIN_ELEMS)
            continue;
        sum->copies += round_to(t->bytes, w->granule);
        add_moved(sum, t);
    }
}

static void find_layer(struct walk *w, struct away *sum)
{
    for (uint32_t i = 0; i <= w->b->tensor_count; i++)
        w->slot[i].away = w->slot[i].kept;
    for (uint32_t k = 0; k < w->b->op_count; k++)
        note_op(w, walk_op_at(w, k));
    add_copies(w, sum);
}

/* ---- tensor by tensor: OffloadActivations ---- */

/* Of those on their way, the ones before the latest few are waited for and let
 * go when another one is sent (max_fwd_stash_size). */
static void let_earlier_go(struct walk *w, uint32_t number, uint32_t k)
{
    for (uint32_t i = 0; i <= w->b->tensor_count; i++) {
        struct walk_way_out *x = &w->way_out[i];
        if (x->sent != NEVER_SENT && x->gone == NEVER_SENT
            && x->number + TRL_OFFLOAD_STASH <= number)
            x->gone = k;
    }
}

/* What it tells tensors apart by: where they begin, so that parts of a storage
 * are tensors of their own. */
static struct walk_slot *key_of(struct walk *w, tensor_id id)
{
    struct walk_slot *root = walk_root_of(w, id);
    const struct tensor *t = &w->p->tensor[id];
    const bool part = t->elems < w->p->tensor[t->storage].elems;
    return root != NULL && part ? walk_slot_of(w, id) : root;
}

/* One that is still on its way is not sent again, and stays. */
static void send(struct walk *w, struct away *sum, tensor_id id,
                 uint32_t number, uint32_t k)
{
    const struct tensor *t = &w->p->tensor[id];
    struct walk_slot *s = key_of(w, id);
    if (t->role == ROLE_PARAM || t->bytes < TRL_OFFLOAD_MIN_BYTES)
        return;
    if (s == NULL) { /* other blocks', and there with or without it */
        if (t->role == ROLE_SHARED)
            let_earlier_go(w, number, k);
        return;
    }
    struct walk_way_out *x = walk_way_out_of(w, s);
    if (x->sent != NEVER_SENT && x->gone == NEVER_SENT)
        s->away = false;
    if (x->sent != NEVER_SENT && !s->away)
        return;
    let_earlier_go(w, number, k);
    s->away = true;
    x->sent = k;
    x->number = number;
    x->gone = NEVER_SENT;
    add_moved(sum, t);
}

/* Parts that are all away are as the whole. */
static void join_parts(struct walk *w)
{
    for (uint32_t i = 0; i < w->b->tensor_count; i++) {
        const struct walk_slot *part = &w->slot[i];
        const struct walk_way_out *x = &w->way_out[i];
        struct walk_slot *root = walk_root_of(w, w->b->tensor_first + i);
        if (root == NULL || root == part || x->sent == NEVER_SENT)
            continue;
        struct walk_way_out *of = walk_way_out_of(w, root);
        const bool first = of->sent == NEVER_SENT;
        root->away = part->away && (first || root->away);
        of->gone = first || x->gone > of->gone ? x->gone : of->gone;
        of->sent = x->sent;
    }
}

static void find_tensors(struct walk *w, struct away *sum)
{
    uint32_t number = 0;
    for (uint32_t i = 0; i <= w->b->tensor_count; i++) {
        w->slot[i].away = false;
        w->way_out[i] =
            (struct walk_way_out){ .sent = NEVER_SENT, .gone = NEVER_SENT };
    }
    for (uint32_t k = 0; k < w->b->op_count; k++) {
        tensor_id saved[SAVED_MAX];
        const struct op *op = walk_op_at(w, k);
        const size_t n = op_saves(w->p, op, saved);
        if (w->b->kind == BLOCK_HEAD && op->kind == OP_LINEAR)
            break; /* left out; and of the loss nothing has gone by then */
        for (size_t i = 0; i < n; i++)
            send(w, sum, saved[i], ++number, k);
    }
    join_parts(w);
}

void walk_let_go(struct walk *w, uint32_t k)
{
    if (w->modules != NULL) {
        walk_modules_let_go(w, k);
        return;
    }
    for (uint32_t i = 0; i <= w->b->tensor_count; i++) {
        struct walk_slot *s = &w->slot[i];
        const bool held = i == w->b->tensor_count && k + 1 < w->b->op_count;
        if (s->away && s->live && w->way_out[i].gone <= k && s->last_use <= k
            && !held)
            walk_slot_free(w, s);
    }
}

uint64_t walk_call_back(struct walk *w, const struct op *op, uint32_t k)
{
    tensor_id saved[SAVED_MAX];
    const size_t n = op_saves(w->p, op, saved);
    uint64_t copies = 0;
    for (size_t i = 0; i < n; i++) {
        struct walk_slot *s = walk_root_of(w, saved[i]);
        struct walk_way_out *x = s == NULL ? NULL : walk_way_out_of(w, s);
        if (x == NULL || x->sent == NEVER_SENT)
            continue;
        if (s->away && !s->live) {
            walk_slot_alloc(w, s);
            x->coming = w->calls = true;
        } else if (!s->away && x->sent == k) {
            copies += s->bytes;
            w->calls = true;
        }
    }
    return copies;
}

void walk_called_back(struct walk *w)
{
    w->holds = false;
    for (uint32_t i = 0; i <= w->b->tensor_count; i++) {
        struct walk_way_out *x = &w->way_out[i];
        if (x->came)
            walk_slot_free(w, &w->slot[i]);
        x->came = x->coming;
        x->coming = false;
    }
    w->holds = true;
    w->calls = false;
}

/* ---- both ---- */

/* What somebody else holds on is not away for it. */
static bool is_held(struct walk *w, uint32_t i)
{
    const struct walk_slot *s = &w->slot[i];
    const struct tensor *t = tensor_of_slot(w, i);
    const bool result =
        w->b->output != TENSOR_NONE && s == walk_root_of(w, w->b->output);
    return !s->kept || s->lingers || s->framed || s->past
           || (i < w->b->tensor_count && (t->held || t->stays))
           || (result && i < w->b->tensor_count);
}

void walk_find_away(struct walk *w, struct away *sum, enum away_how how)
{
    *sum = (struct away){ 0 };
    switch (how) {
    case AWAY_NOTHING: return;
    case AWAY_LAYERS: find_layer(w, sum); break;
    case AWAY_TENSORS: find_tensors(w, sum); break;
    case AWAY_MODULES: walk_find_modules(w, sum); break;
    }
    for (uint32_t i = 0; i <= w->b->tensor_count; i++) {
        struct walk_slot *s = &w->slot[i];
        s->away = s->away && !is_held(w, i) && s->bytes > 0;
        if (!s->away)
            continue;
        sum->bytes += s->bytes;
        if (how == AWAY_LAYERS)
            add_moved(sum, tensor_of_slot(w, i));
        else if (how == AWAY_TENSORS && w->way_out[i].gone == NEVER_SENT)
            sum->left += s->bytes;
    }
}
