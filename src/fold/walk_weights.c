/*
 * The gradients of linears' weights on their own, as zero-bubble pipelines
 * compute them: what a split backward leaves for them, and how it goes. An
 * operation's input is kept on, and so is the gradient of its result.
 * [Qi et al. 2024, arXiv:2401.10241; TransformerEngine
 * pytorch/module/_common.py, WeightGradStore; docs/method.md eq. zero-bubble]
 */
#include "fold/walk_private.h"

#include "base/banned.h"

static void tell_gradient(struct walk *w, const struct op *op, uint64_t bytes,
                          bool birth)
{
    if (bytes != 0)
        walk_tell(w, (struct walk_event){ .birth = birth,
                                          .what = WALK_WORKSPACE,
                                          .bytes = bytes,
                                          .name = op->name });
}

static void release(struct walk *w, const struct op *op)
{
    if (!op->stash_input)
        walk_release_saved(w);
}

static void weight_of(struct walk *w, const struct op *op)
{
    struct walk_slot *s = walk_slot_of(w, op->out[0]);
    if (s == NULL || s->stash == NO_GRAD) {
        release(w, op);
        return;
    }
    uint64_t moment = walk_gathers_again(w, op);
    for (unsigned i = 1; i < op->n_in; i++)
        if (i == 1 || (w->graph && walk_is_weight(w, op->in[i])))
            moment += walk_weight_grad(w, op, op->in[i]);
    tell_gradient(w, op, moment, true);
    w->tmp += moment;
    walk_note(w);
    w->tmp -= moment;
    tell_gradient(w, op, moment, false);
    walk_buffer_release(w, s->stash);
    s->stash = NO_GRAD;
    release(w, op);
}

/* One after the other in the order of the modules, a layer's norms last; what
 * else was kept stays, as it hangs on those above
 * (torch/distributed/pipelining/_backward.py, stage_backward_weight). */
static void weights_of_graph(struct walk *w, bool products)
{
    for (uint32_t k = 0; k < w->b->op_count; k++) {
        const struct op *op = walk_op_at(w, k);
        w->at = k;
        if (walk_defers(w, op) && (op->kind == OP_LINEAR) == products)
            weight_of(w, op);
    }
}

struct extremum walk_weights(struct walk *w)
{
    const struct block *b = w->b;
    w->top = (struct extremum){ 0 };
    w->at = b->op_count == 0 ? 0 : b->op_count - 1;
    walk_note(w);
    if (w->graph) {
        weights_of_graph(w, true);
        weights_of_graph(w, false);
        return w->top;
    }
    for (uint32_t k = b->op_count; k-- > 0;) {
        const struct op *op = walk_op_at(w, k);
        w->at = k;
        if (walk_defers(w, op))
            weight_of(w, op);
    }
    return w->top;
}
