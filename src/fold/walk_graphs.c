/*
 * What of a block's walk counts where a part of it runs in CUDA graphs: while
 * they are captured what is allocated inside, once they run what is not. What
 * comes to a graph is copied into an input of its own, which rests.
 * [transformer_engine/pytorch/graph.py at d0067d0d, _make_graphed_callables with
 * _reuse_graph_input_output_buffers; docs/method.md eq. graphs]
 */
#include "fold/walk_private.h"

#include "base/banned.h"

/* Layers on either side are taken to be alike; no other block is. */
bool walk_graph_below(const struct walk *w)
{
    const uint32_t n = w->b->op_count;
    return w->b->kind == BLOCK_LAYER && n > 0 && walk_op_at(w, n - 1)->graphed;
}

bool walk_graph_above(const struct walk *w)
{
    if (w->step == STEP_CAPTURE) /* counted with what rests */
        return true;
    return w->b->kind == BLOCK_LAYER && w->b->op_count > 0
           && walk_op_at(w, 0)->graphed;
}

/* Strong references, until its backward is captured. */
static void stays(struct walk *w, struct walk_slot *s)
{
    if (s == NULL || s->bytes == 0 || walk_is_input(w, s))
        return;
    s->kept = s->result = w->stays = true;
    s->saves_all++; /* which nobody lets go of */
}

/* What a graph makes and others take. */
static void note_results(struct walk *w)
{
    const struct walk_operand *x = w->operand;
    for (uint32_t k = 0; k < w->b->op_count; k++) {
        const struct op *op = walk_op_at(w, k);
        for (unsigned i = 0; i < op->n_in && !op->graphed; i++)
            stays(w, x[i].root);
        x += op->n_in + op->n_out;
    }
    if (w->b->output != TENSOR_NONE)
        stays(w, walk_root_of(w, w->b->output));
}

void walk_graphs_init(struct walk *w)
{
    struct walk_slot *in = &w->slot[w->b->tensor_count];
    for (uint32_t i = 0; i < w->n_made; i++)
        if (!walk_counts(w, walk_op_at(w, w->made[i]->birth)))
            w->made[i]->bytes = 0;
    if (w->step == STEP_CAPTURE)
        note_results(w);
    if (w->step == STEP_CAPTURE || walk_graph_below(w))
        in->bytes = 0;
}
