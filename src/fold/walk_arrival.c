/*
 * Weights' gradients that do not stay: how long each is there, and what else is
 * when the engine is told of it.
 */
#include "fold/walk_private.h"

#include "base/banned.h"

static void tell_arrival(struct walk *w, const struct op *op, unsigned i,
                         bool birth)
{
    walk_tell(w,
              (struct walk_event){
                  .birth = birth,
                  .what = WALK_ARRIVAL,
                  .key = i,
                  .bytes = round_to(w->p->tensor[op->in[i]].bytes, w->granule),
                  .name = w->p->tensor[op->in[i]].name });
}

void walk_gradient_comes(struct walk *w, const struct op *op, unsigned i,
                         uint64_t bytes)
{
    w->tmp += bytes;
    tell_arrival(w, op, i, true);
}

/* Elements that come before one in the order of the module's parameters. */
static uint64_t offset_of(const struct walk *w, tensor_id id)
{
    const struct block *b = w->b;
    const bool last = program_comes_last(w->p, b, &w->p->tensor[id]);
    uint64_t sum = 0;
    for (tensor_id k = b->tensor_first; k < b->tensor_first + b->tensor_count;
         k++) {
        const struct tensor *t = &w->p->tensor[k];
        const bool after = program_comes_last(w->p, b, t);
        if (t->role == ROLE_PARAM && t->trainable && !t->again && !t->tied
            && (after == last ? k < id : last))
            sum += t->elems;
    }
    return sum;
}

static void note_arrival(struct walk *w, tensor_id id)
{
    const struct tensor *t = &w->p->tensor[id];
    if (w->arrival == NULL)
        return;
    w->arrival[w->arrivals++] =
        (struct arrival){ .elems = t->again || t->tied ? 0 : t->elems,
                          .offset = offset_of(w, id),
                          .until = w->since,
                          .at = { w->kept, w->tmp, w->wgrad,
                                  w->b->op_first + w->at } };
    w->since = (struct extremum){ 0 };
}

/* Hooks run before any other node (torch/csrc/autograd/engine.cpp: gradients
 * are accumulated first); a bias is the first of a linear's inputs. */
void walk_gradients_arrive(struct walk *w, const struct op *op,
                           const uint64_t *bytes)
{
    for (unsigned k = 0; k < op->n_in; k++) {
        const unsigned i = op->kind == OP_LINEAR ? op->n_in - 1 - k : k;
        if (bytes[i] == 0)
            continue;
        note_arrival(w, op->in[i]);
        walk_tell(w, (struct walk_event){ .what = WALK_ARRIVES });
        w->tmp -= bytes[i];
        tell_arrival(w, op, i, false);
    }
}
