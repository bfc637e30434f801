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
    const uint64_t moment =
        walk_gathers_again(w, op) + walk_weight_grad(w, op, op->in[1]);
    tell_gradient(w, op, moment, true);
    w->tmp += moment;
    walk_note(w);
    w->tmp -= moment;
    tell_gradient(w, op, moment, false);
    walk_buffer_release(w, s->stash);
    s->stash = NO_GRAD;
    release(w, op);
}

struct extremum walk_weights(struct walk *w)
{
    const struct block *b = w->b;
    w->top = (struct extremum){ 0 };
    w->at = b->op_count == 0 ? 0 : b->op_count - 1;
    walk_note(w);
    for (uint32_t k = b->op_count; k-- > 0;) {
        const struct op *op = walk_op_at(w, k);
        w->at = k;
        if (walk_defers(w, op))
            weight_of(w, op);
    }
    return w->top;
}
