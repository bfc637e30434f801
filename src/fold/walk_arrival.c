/*
 * Weights' gradients that do not stay: how long each is there, and what else is
 * when the engine is told of it.
 */
#include "fold/walk_private.h"

#include "base/banned.h"

COLD static void tell_arrival(struct walk *w, const struct op *op, unsigned i,
                              uint64_t bytes, bool birth)
{
    walk_tell(w, (struct walk_event){ .birth = birth,
                                      .what = WALK_ARRIVAL,
                                      .key = i,
                                      .bytes = bytes,
                                      .name = w->p->tensor[op->in[i]].name });
}

void walk_gradient_comes(struct walk *w, const struct op *op, unsigned i,
                         uint64_t bytes)
{
    w->tmp += bytes;
    if (w->tell != NULL)
        tell_arrival(w, op, i, bytes, true);
}

static uint64_t lay_out(struct walk *w, bool last, uint64_t offset)
{
    const struct block *b = w->b;
    const struct tensor *t;
    for (tensor_id id = b->weights; id != TENSOR_NONE; id = t->next) {
        t = &w->p->tensor[id];
        if (!walk_is_weight(w, id) || program_comes_last(w->p, b, t) != last)
            continue;
        w->slot[id - b->tensor_first].offset = offset;
        offset += t->again || t->tied ? 0 : t->elems;
    }
    return offset;
}

void walk_lay_out(struct walk *w)
{
    const uint64_t first = lay_out(w, false, 0);
    w->norms_from = w->p->norms_last ? first : NEVER_LAST;
    if (w->p->norms_last)
        lay_out(w, true, first);
}

/* A linear's weight is all that its module has, but for a bias, which is told
 * first; experts are one module, and a tied table is used again. */
static bool ends_module(const struct walk *w, const struct tensor *t)
{
    return t->matmul && !t->tied && !t->again && t->group != PG_EXPERT
           && t->elems > w->persists;
}

static void note_arrival(struct walk *w, tensor_id id)
{
    const struct tensor *t = &w->p->tensor[id];
    if (w->arrival == NULL)
        return;
    w->arrival[w->arrivals++] =
        (struct arrival){ .elems = t->again || t->tied ? 0 : t->elems,
                          .low = t->low,
                          .goes = ends_module(w, t) ? t->bytes : 0,
                          .offset = walk_slot_of(w, id)->offset,
                          .until = w->since,
                          .at = walk_now(w) };
    w->since = (struct extremum){ 0 };
}

/* Hooks run before any other node (torch/csrc/autograd/engine.cpp: gradients
 * are accumulated first); a bias is the first of a linear's inputs. */
void walk_gradients_arrive(struct walk *w, const struct op *op,
                           const uint64_t *bytes, uint32_t come)
{
    for (unsigned k = 0; k < op->n_in; k++) {
        const unsigned i = op->kind == OP_LINEAR ? op->n_in - 1 - k : k;
        if ((come >> i & 1) == 0 || bytes[i] == 0)
            continue;
        note_arrival(w, op->in[i]);
        walk_tell(w, (struct walk_event){ .what = WALK_ARRIVES });
        w->tmp -= bytes[i];
        if (w->tell != NULL)
            tell_arrival(w, op, i, bytes[i], false);
    }
}
