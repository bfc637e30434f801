#include "common.h"

#include "fold/walk_private.h"

/* ---- operations ---- */

static bool same_op(const struct op *x, const struct op *y)
{
    return x->kind == y->kind && x->n_in == y->n_in && x->n_out == y->n_out
           && x->node == y->node && x->region == y->region
           && x->core_attention == y->core_attention && x->place == y->place
           && x->keep_in == y->keep_in && x->keep_out == y->keep_out
           && x->sum_in == y->sum_in && x->flop_full == y->flop_full
           && x->flop_causal == y->flop_causal
           && x->stash_input == y->stash_input && x->indexed == y->indexed
           && x->strided == y->strided && x->onto == y->onto
           && x->checkpointed == y->checkpointed && x->outside == y->outside
           && x->in_8_bits == y->in_8_bits && x->one_way == y->one_way
           && x->renames == y->renames && x->returns == y->returns
           && x->module == y->module && x->commits == y->commits
           && x->back_bytes == y->back_bytes && x->stash_bytes == y->stash_bytes
           && x->flop_idle == y->flop_idle && x->pieces == y->pieces
           && x->group == y->group;
}

/* What stands in a block for a tensor of the one it begins as. */
static tensor_id of_block(const struct block *as, const struct block *b,
                          tensor_id id)
{
    const uint32_t i = id - as->tensor_first;
    if (id == as->input)
        return b->input;
    return i < as->common_tensors ? b->tensor_first + i : id;
}

static bool same_operands(const struct block *as, const struct block *b,
                          const struct op *x, const struct op *y)
{
    for (unsigned i = 0; i < x->n_in; i++)
        if (of_block(as, b, x->in[i]) != y->in[i])
            return false;
    for (unsigned i = 0; i < x->n_out; i++)
        if (of_block(as, b, x->out[i]) != y->out[i])
            return false;
    return true;
}

static bool same_tensor(const struct tensor *x, const struct tensor *y)
{
    return x->elems == y->elems && x->bytes == y->bytes && x->dtype == y->dtype
           && x->role == y->role && x->group == y->group && x->rank == y->rank
           && x->trainable == y->trainable && x->matmul == y->matmul
           && x->tied == y->tied && x->again == y->again && x->waits == y->waits
           && x->low == y->low && x->projected == y->projected
           && x->words == y->words && x->grad_copies == y->grad_copies;
}

static bool begins_as(const struct program *p, const struct block *b)
{
    const struct block *as = &p->block[b->begins_as];
    for (uint32_t k = 0; k < b->common_ops; k++) {
        const struct op *x = &p->op[as->op_first + k];
        const struct op *y = &p->op[b->op_first + k];
        if (!same_op(x, y) || !same_operands(as, b, x, y))
            return false;
    }
    for (uint32_t i = 0; i < b->common_tensors; i++)
        if (!same_tensor(&p->tensor[as->tensor_first + i],
                         &p->tensor[b->tensor_first + i]))
            return false;
    return as->common_ops == b->common_ops
           && as->common_tensors == b->common_tensors;
}

/* ---- walks ---- */

static bool same(const struct extremum *x, const struct extremum *y)
{
    return x->kept == y->kept && x->tmp == y->tmp && x->wgrad == y->wgrad
           && x->op == y->op && x->input == y->input;
}

static bool same_passes(const struct block_walk *x, const struct block_walk *y)
{
    return same(&x->forward, &y->forward) && same(&x->inside, &y->inside)
           && same(&x->before, &y->before) && same(&x->after, &y->after)
           && same(&x->forward_nograd, &y->forward_nograd)
           && same(&x->again, &y->again)
           && same(&x->again_early, &y->again_early) && x->renames == y->renames
           && x->returns == y->returns;
}

static bool same_backwards(const struct block_walk *x,
                           const struct block_walk *y)
{
    bool all = x->lead == y->lead && x->stash == y->stash && x->left == y->left
               && x->stashes_input == y->stashes_input;
    for (unsigned m = 0; m < WGRAD_MODES; m++)
        all = all && same(&x->backward[m], &y->backward[m])
              && same(&x->unpacked[m], &y->unpacked[m])
              && same(&x->split[m], &y->split[m])
              && same(&x->weights[m], &y->weights[m]);
    return all;
}

static bool same_arrivals(const struct arrival *x, const struct arrival *y,
                          uint32_t n)
{
    if (x == NULL || y == NULL)
        return x == y;
    for (uint32_t i = 0; i < n; i++)
        if (x[i].elems != y[i].elems || x[i].low != y[i].low
            || x[i].goes != y[i].goes || x[i].offset != y[i].offset
            || !same(&x[i].until, &y[i].until) || !same(&x[i].at, &y[i].at))
            return false;
    return same(&x[n].until, &y[n].until);
}

static bool same_bytes(const struct block_walk *x, const struct block_walk *y)
{
    return x->kept == y->kept && x->input == y->input && x->output == y->output
           && x->keeps_input == y->keeps_input
           && x->keeps_output == y->keeps_output && x->lingers == y->lingers
           && x->lingers_nograd == y->lingers_nograd && x->past == y->past
           && x->past_nograd == y->past_nograd && x->wgrad == y->wgrad
           && x->held == y->held && x->framed == y->framed
           && x->takes == y->takes && x->checkpoint == y->checkpoint;
}

static const char *differs(const struct block_walk *x,
                           const struct block_walk *y)
{
    if (!same_bytes(x, y))
        return "what it keeps";
    if (!same_passes(x, y))
        return "a forward";
    if (!same_backwards(x, y))
        return "a backward";
    if (x->arrivals != y->arrivals
        || !same_arrivals(x->arrival, y->arrival, x->arrivals)
        || !same_arrivals(x->unpacked_arrival, y->unpacked_arrival,
                          x->arrivals))
        return "an arrival";
    return NULL;
}

/* ---- what is not asked ---- */

/* Of kinds that are said to save nothing, or to need nothing beside their
 * results, and operations of no special kind, the rules themselves say so. */
static bool shortcuts_hold(const struct program *p, const struct block *b,
                           const struct walk_scratch *scratch)
{
    const struct walk w = walk_on(p, b, 0, scratch);
    for (uint32_t k = 0; k < b->op_count; k++) {
        const struct op *op = &p->op[b->op_first + k];
        tensor_id saved[SAVED_MAX];
        struct walk_parts parts;
        walk_parts_init(&parts);
        if (!op_kind_saves(op->kind) && op_saves(p, op, saved) != 0)
            return false;
        if (op->n_in > 0 && op->n_out > 0 && !walk_has_workspace(&w, op)
            && (walk_workspace(&w, op, &parts) != 0 || parts.n != 0))
            return false;
        if (op_is_plain(op)
            != !(op->checkpointed || op->outside || op->renames || op->returns))
            return false;
    }
    for (uint32_t i = 0; i < b->tensor_count; i++) {
        const struct tensor *t = &p->tensor[b->tensor_first + i];
        if (tensor_is_plain(t)
            && (t->framed || t->pooled || t->shared_out || t->lingers
                || t->stays || t->past || t->pieces || t->lone || t->handed
                || t->held))
            return false;
    }
    return true;
}

const char *common_differs(const struct program *p,
                           const struct walk_scratch *settings,
                           uint64_t regions, unsigned modes, struct arena *a,
                           unsigned *alike)
{
    struct walk_scratch together = *settings, alone = *settings;
    const char *what = NULL;
    if (!walk_scratch_init(&together, p, a) || !walk_scratch_init(&alone, p, a))
        return "memory";
    together.overlap = alone.overlap = NULL;
    alone.common = NULL;
    for (uint32_t b = 0; b < p->n_blocks && what == NULL; b++) {
        struct block_walk x, y;
        if (!begins_as(p, &p->block[b]))
            return "an operation";
        if (!shortcuts_hold(p, &p->block[b], &alone))
            return "a shortcut";
        walk_block(&x, p, &p->block[b], regions, modes, &together);
        walk_block(&y, p, &p->block[b], regions, modes, &alone);
        what = differs(&x, &y);
        *alike += p->block[b].begins_as != b;
    }
    return what;
}
