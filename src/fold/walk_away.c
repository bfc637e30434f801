/*
 * What Transformer Engine moves to the host of what a layer keeps: tensors of
 * so many elements that are no weights. Owns which; when they go and come back
 * is stage_away.c's. [transformer_engine/pytorch/cpu_offload.py at d0067d0d;
 * docs/method.md eq. offload]
 */
#include "fold/walk_private.h"

#include "base/banned.h"

/* A storage has left the GPU when nobody keeps it there: an operation whose
 * tensor is too small does. Grouped products keep a part for each expert
 * (module/grouped_linear.py). */
static void note_op(struct walk *w, const struct op *op, uint64_t away_elems)
{
    tensor_id saved[SAVED_MAX];
    const size_t n = op_saves(w->p, op, saved);
    for (size_t i = 0; i < n; i++) {
        struct walk_slot *s = walk_root_of(w, saved[i]);
        const struct tensor *t = &w->p->tensor[w->p->tensor[saved[i]].storage];
        if (s != NULL && t->elems / max_u64(op->pieces, 1) < away_elems)
            s->away = false;
    }
}

/* Each layer's rotary kernels keep the table that all share, and each comes
 * back on its own (attention/rope.py, FusedRoPEFunc). */
static void add_copies(const struct walk *w, struct away *sum,
                       uint64_t away_elems)
{
    for (uint32_t i = 0; i < w->p->n_shared; i++) {
        const struct tensor *t = &w->p->tensor[w->p->first_shared + i];
        if (!t->rotary || t->elems < away_elems)
            continue;
        sum->copies += round_to(t->bytes, w->granule);
        sum->moved += t->bytes;
        sum->pinned += round_to_power(t->bytes);
    }
}

void walk_find_away(struct walk *w, struct away *sum, uint64_t away_elems)
{
    const struct block *b = w->b;
    *sum = (struct away){ 0 };
    for (uint32_t i = 0; i <= b->tensor_count; i++)
        w->slot[i].away = w->slot[i].kept;
    for (uint32_t i = 0; i < b->tensor_count; i++) {
        const struct tensor *t = &w->p->tensor[b->tensor_first + i];
        if (t->held || t->stays || t->past)
            w->slot[i].away = false;
    }
    for (uint32_t k = 0; k < b->op_count; k++)
        note_op(w, walk_op_at(w, k), away_elems);
    for (uint32_t i = 0; i <= b->tensor_count; i++) {
        const struct walk_slot *s = &w->slot[i];
        const tensor_id id =
            i == b->tensor_count ? b->input : b->tensor_first + i;
        if (!s->away)
            continue;
        sum->bytes += s->bytes;
        sum->moved += w->p->tensor[id].bytes;
        sum->pinned += round_to_power(w->p->tensor[id].bytes);
    }
    add_copies(w, sum, away_elems);
}
