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
    if (!op->stash_input && !w->remakes)
        walk_release_saved(w);
}

/* ---- out of a checkpoint ---- */

/* A checkpoint has of a second forward what nodes that are not done saved. */
static bool is_remade(const struct walk *w, const struct walk_slot *s)
{
    return s->kept && !s->checkpointed && s->saves > 0 && !walk_is_input(w, s);
}

/* Each call of autograd that unpacks a saved tensor runs the layer once more
 * (torch/utils/checkpoint.py: recomputed[gid], of a graph task each), and each
 * gradient of a weight is such a call. What that made of the tensors of other
 * nodes stays with these. */
static void remake(struct walk *w, const struct extremum *again)
{
    if (w->tell != NULL) {
        walk_again(w);
    } else {
        const struct extremum now = { w->kept + again->kept,
                                      w->tmp + again->tmp, w->wgrad, again->op,
                                      false };
        w->top = *extremum_fuller(&now, &w->top);
    }
    w->times++;
    w->kept += w->each;
}

/* A node is gone, and all that was made of what it saved. */
static void release_remade(struct walk *w)
{
    w->ends[w->at] = true;
    const uint32_t end = w->saved_from[w->at + 1];
    for (uint32_t i = w->saved_from[w->at]; i < end; i++) {
        struct walk_slot *s = w->saved[i];
        const bool remade = is_remade(w, s);
        if (s->saves == 0 || --s->saves > 0 || !remade)
            continue;
        w->each -= s->bytes;
        w->kept -= w->times * s->bytes;
        walk_tell(w, (struct walk_event){ .what = WALK_REMADE,
                                          .key = (uint32_t)(s - w->slot),
                                          .bytes = s->bytes });
    }
}

static bool waits(const struct walk *w, const struct op *op)
{
    const struct walk_slot *s = walk_slot_of(w, op->out[0]);
    return walk_defers(w, op) && s != NULL && s->stash != NO_GRAD;
}

/* Nodes that those which wait do not lead to go: nothing above holds them. */
static void release_unreached(struct walk *w)
{
    for (uint32_t i = 0; i <= w->b->tensor_count; i++)
        w->slot[i].reached = false;
    for (uint32_t k = w->b->op_count; k-- > 0;) {
        const struct op *op = walk_op_at(w, k);
        bool reached = waits(w, op);
        for (unsigned i = 0; i < op->n_out && !reached; i++) {
            const struct walk_slot *s = walk_slot_of(w, op->out[i]);
            reached = s != NULL && s->reached;
        }
        for (unsigned i = 0; i < op->n_in && reached; i++) {
            struct walk_slot *s = walk_slot_of(w, op->in[i]);
            if (s != NULL)
                s->reached = true;
        }
        w->at = k;
        if (!reached && !w->ends[k])
            release_remade(w);
    }
}

static void node_is_done(struct walk *w)
{
    release_remade(w);
    if (w->topmost)
        release_unreached(w);
}

static void begin_remaking(struct walk *w)
{
    w->kept = w->each = 0;
    w->times = 0;
    for (uint32_t k = 0; k < w->b->op_count; k++)
        w->ends[k] = false;
    for (uint32_t i = 0; i < w->b->tensor_count; i++) {
        struct walk_slot *s = &w->slot[i];
        s->saves = s->saves_all;
        w->each += is_remade(w, s) ? s->bytes : 0;
    }
}

/* ---- one after another ---- */

static void weight_at(struct walk *w, uint32_t k, const struct extremum *again)
{
    const struct op *op = walk_op_at(w, k);
    w->at = k;
    struct walk_slot *s = walk_slot_of(w, op->out[0]);
    if (s == NULL || s->stash == NO_GRAD) {
        release(w, op);
        return;
    }
    if (w->remakes)
        remake(w, again);
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
    if (w->remakes)
        node_is_done(w);
    release(w, op);
}

/* One after the other in the order of the modules, a layer's norms last; what
 * else was kept stays, as it hangs on those above
 * (torch/distributed/pipelining/_backward.py, stage_backward_weight). */
static void weights_of_graph(struct walk *w, bool products,
                             const struct extremum *again)
{
    const uint32_t end = w->b->op_count;
    uint32_t late = end;
    for (uint32_t k = 0; k < end; k++) {
        const struct op *op = walk_op_at(w, k);
        if (!walk_defers(w, op) || (op->kind == OP_LINEAR) != products)
            continue;
        if (op->registered_late) {
            late = k;
            continue;
        }
        weight_at(w, k, again);
        if (late < end)
            weight_at(w, late, again);
        late = end;
    }
    if (late < end)
        weight_at(w, late, again);
}

/* The head's product is no module of Transformer Engine's. */
void walk_node_weights(struct walk *w, unsigned node)
{
    const uint32_t at = w->at;
    for (uint32_t k = w->b->op_count; k-- > 0;)
        if (walk_op_at(w, k)->node == node && walk_defers(w, walk_op_at(w, k)))
            weight_at(w, k, NULL);
    w->at = at;
}

struct extremum walk_weights(struct walk *w)
{
    const struct block *b = w->b;
    w->top = (struct extremum){ 0 };
    w->at = b->op_count == 0 ? 0 : b->op_count - 1;
    walk_note(w);
    if (w->graph) {
        weights_of_graph(w, true, NULL);
        weights_of_graph(w, false, NULL);
        return w->top;
    }
    for (uint32_t k = b->op_count; k-- > 0;)
        if (walk_defers(w, walk_op_at(w, k)))
            weight_at(w, k, NULL);
    return w->top;
}

struct extremum walk_remade_weights(struct walk *w,
                                    const struct extremum *again)
{
    w->top = (struct extremum){ 0 };
    begin_remaking(w);
    walk_note(w);
    weights_of_graph(w, true, again);
    weights_of_graph(w, false, again);
    return w->top;
}

/* ---- both halves ---- */

/* A split backward, and what remains of it. */
static void two_halves(struct walk *w, struct block_walk *out,
                       enum wgrad_mode mode)
{
    w->split = true;
    out->split[mode] = walk_backward(w, mode);
    walk_input_handed(w);
    out->stash = w->kept + w->tmp;
    out->stashes_input = w->slot[w->b->tensor_count].live;
    out->weights[mode] = walk_weights(w);
    out->left = w->kept;
    w->split = false;
}

/* The same out of a checkpoint, whose input is there all along. */
static void remade_halves(struct walk *w, struct block_walk *out,
                          enum wgrad_mode mode)
{
    const uint64_t input = w->slot[w->b->tensor_count].bytes;
    struct extremum again = out->again;
    *(out->keeps_input ? &again.kept : &again.tmp) -= input;
    w->split = w->unpacks = w->remakes = true;
    w->topmost = true;
    walk_backward(w, mode);
    walk_input_handed(w);
    out->remade_topmost[mode] = walk_remade_weights(w, &again);
    w->topmost = false;
    out->remade_split[mode] = walk_backward(w, mode);
    walk_input_handed(w);
    out->remade_stash = w->tmp;
    out->remade_weights[mode] = walk_remade_weights(w, &again);
    out->remade_left = w->kept;
    w->split = w->unpacks = w->remakes = false;
}

void walk_halves(struct walk *w, struct block_walk *out, unsigned modes)
{
    for (unsigned m = 0; m < WGRAD_MODES; m++) {
        if ((modes >> m & 1) == 0)
            continue;
        two_halves(w, out, (enum wgrad_mode)m);
        if ((modes & WALK_REMAKES) != 0 && !out->idle)
            remade_halves(w, out, (enum wgrad_mode)m);
    }
}
