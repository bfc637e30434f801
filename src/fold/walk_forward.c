/*
 * The forward half of the walk: when an operation's results come, and when what
 * nobody keeps goes; what a second forward, out of a checkpoint, runs.
 * [docs/method.md eq. saved, eq. recompute]
 */
#include "fold/walk_private.h"

#include "base/banned.h"

/* A variable's, or a copy's, that its last use does not end: in a second forward
 * only what the graph's nodes hold. */
static inline bool outlives(const struct walk *w, const struct walk_slot *s)
{
    return walk_is_again(w) ? s->past : s->lingers || s->framed;
}

/* Pieces that do not stay are not there together: tensor.lone is what is. */
static inline bool is_made(struct walk *w, const struct op *op, unsigned i,
                           const struct walk_slot *root)
{
    const struct tensor *t = &w->p->tensor[op->out[i]];
    if (walk_stays(w, root))
        return true;
    if (!t->lone)
        return !t->pieces;
    for (unsigned k = 0; k < op->n_out; k++) {
        const struct walk_slot *s = walk_root_of(w, op->out[k]);
        if (w->p->tensor[op->out[k]].pieces && s != NULL && walk_stays(w, s))
            return false;
    }
    return true;
}

INLINE void make(struct walk *w, const struct op *op,
                 const struct walk_operand *x, unsigned i)
{
    struct walk_slot *s = x[op->n_in + i].root;
    if (s != NULL && !s->live && is_made(w, op, i, s))
        walk_slot_alloc(w, s);
}

/* A dropout's mask (aten/src/ATen/native/cuda/Dropout.cu). */
static bool makes_last_first(const struct op *op)
{
    return op->kind == OP_DROPOUT && op->n_out == 2;
}

APART void make_mask(struct walk *w, const struct op *op,
                     const struct walk_operand *x)
{
    make(w, op, x, 1);
}

/* The model's forward returns here, or the loop's variables are renamed. */
static void leave_forward(struct walk *w, const struct op *op)
{
    if (op->returns) {
        w->returns = true;
        w->inside = w->top;
        w->top = (struct extremum){ 0 };
        walk_tell(
            w, (struct walk_event){ .what = WALK_RETURNS, .name = op->name });
    }
    if (op->renames) {
        w->renames = true;
        w->before = w->top;
        w->top = (struct extremum){ 0 };
        walk_tell(
            w, (struct walk_event){ .what = WALK_RENAMES, .name = op->name });
    }
}

static void forward_op(struct walk *w, const struct op *op,
                       const struct walk_operand *x,
                       const struct walk_slot *output)
{
    const uint32_t k = w->at;
    const bool holds = w->b->kind == BLOCK_LAYER && !w->b->open;
    if (op->returns || op->renames)
        leave_forward(w, op);
    const unsigned n_out = op->n_out, n = op->n_in + n_out;
    if (makes_last_first(op))
        make_mask(w, op, x);
    for (unsigned i = 0; i < n_out; i++)
        make(w, op, x, i);
    walk_tell_product(w, op);
    walk_note(w);
    for (unsigned i = 0; i < n; i++) {
        struct walk_slot *s = x[i].root;
        if (s != NULL && s->last_use == k && s->live && s != output
            && !walk_stays(w, s) && !outlives(w, s)
            && !(holds && walk_is_input(w, s)))
            walk_slot_free(w, s);
    }
    if (w->unloads)
        walk_let_go(w, k);
}

static bool makes_kept(struct walk *w, const struct op *op)
{
    for (unsigned k = 0; k < op->n_out; k++) {
        const struct walk_slot *s = walk_root_of(w, op->out[k]);
        if (s != NULL && s->kept)
            return true;
    }
    return false;
}

/* Operations that a second forward runs. A checkpoint that is not reentrant
 * ends it when the last tensor has been saved: inputs are, before the kernel
 * runs (torch/utils/checkpoint.py, early_stop; torch/csrc/autograd's
 * VariableType). */
static uint32_t ops_run(struct walk *w)
{
    uint32_t end = w->b->op_count;
    if (w->pass != PASS_AGAIN_EARLY)
        return end;
    while (end > 0) {
        const struct op *op = walk_op_at(w, end - 1);
        bool result = false;
        if (op->outside) {
            end--;
            continue;
        }
        const bool saves = op_saves_any(w->p, op, &result);
        if (result || makes_kept(w, op))
            return end;
        end--;
        if (saves)
            return end;
    }
    return w->b->op_count;
}

/* Its frame is left: what it had in hand goes. */
static void leave_frame(struct walk *w)
{
    for (uint32_t i = 0; i < w->b->tensor_count; i++)
        if (!walk_stays(w, &w->slot[i]))
            walk_slot_free(w, &w->slot[i]);
}

/* Tensor by tensor, as whoever listens wants it told. */
static void follow_forward(struct walk *w, uint32_t end,
                           const struct walk_slot *output)
{
    const struct block *b = w->b;
    const bool again = walk_is_again(w);
    for (uint32_t i = 0; i <= b->tensor_count && (w->walked || again); i++) {
        struct walk_slot *s = &w->slot[i];
        s->live = again && s->checkpointed;
        if (s->live)
            w->kept += s->bytes;
    }
    w->walked = true;
    if (w->nodes != NULL)
        walk_begin_nodes(w, false);
    if (b->input != TENSOR_NONE)
        walk_slot_alloc(w, &w->slot[b->tensor_count]);
    const struct walk_operand *x = w->operand;
    const struct op *op = walk_op_at(w, 0);
    for (uint32_t k = 0; k < end; k++, op++) {
        walk_to_node(w, op->node, false);
        w->at = k;
        if (!again || !op->outside)
            forward_op(w, op, x, output);
        x += op->n_in + op->n_out;
    }
    if (end < b->op_count || (again && w->outside))
        leave_frame(w);
    w->ended = !again;
    for (uint32_t i = 0; i < b->tensor_count && w->outlives; i++) {
        struct walk_slot *s = &w->slot[i]; /* block_walk counts on */
        if (outlives(w, s) && s != output && !walk_stays(w, s))
            walk_slot_free(w, s);
    }
    w->ended = false;
    /* a layer's caller holds its input until it has the result */
    struct walk_slot *in = &w->slot[b->tensor_count];
    if (in != output && !walk_stays(w, in))
        walk_slot_free(w, in);
    walk_to_node(w, LAYER_NODES, false);
}

/* What no node waits for goes with it: the second forward has a graph of its
 * own. */
COLD void walk_again(struct walk *w)
{
    const struct walk before = *w;
    const struct walk_slot *output =
        w->b->output == TENSOR_NONE ? NULL : walk_root_of(w, w->b->output);
    w->pass = PASS_AGAIN;
    w->multiplied = true; /* nobody asks for the first product */
    follow_forward(w, w->b->op_count, output);
    for (uint32_t i = 0; i < w->b->tensor_count; i++)
        if (!w->slot[i].kept || w->slot[i].saves == 0)
            walk_slot_free(w, &w->slot[i]);
    *w = before;
}

/* ---- where nobody follows ---- */

/* Whether all that a forward makes stays, or goes at one operation: the sums
 * then follow from slots, and operands need not be asked. */
static bool is_plain(const struct walk *w)
{
    return w->tell == NULL && w->nodes == NULL && !w->unloads && !w->pieces
           && !(walk_is_again(w) && (w->outside || w->policy));
}

/* What is there after so many operations, and slots that come. */
struct summed {
    uint64_t kept, tmp;
    struct walk_slot *const *made;
    uint32_t at;
};

/* Of what an operation makes. */
INLINE void sum_birth(const struct walk *w, struct summed *x,
                      const struct walk_slot *s, const struct walk_slot *output)
{
    const uint64_t bytes = s->bytes;
    if (walk_stays(w, s)) {
        x->kept += bytes;
        return;
    }
    x->tmp += bytes;
    if (s != output && !outlives(w, s))
        w->ends[s->last_use] += bytes;
}

/* ... and of what comes in, which a layer's caller holds. */
static void sum_input(const struct walk *w, struct summed *x,
                      const struct walk_slot *output)
{
    const struct walk_slot *s = &w->slot[w->b->tensor_count];
    if (w->b->kind != BLOCK_LAYER || w->b->open)
        sum_birth(w, x, s, output);
    else
        *(walk_stays(w, s) ? &x->kept : &x->tmp) += s->bytes;
}

INLINE void sum_top(struct walk *w, const struct summed *x)
{
    if (x->kept + x->tmp > w->top.kept + w->top.tmp)
        w->top = (struct extremum){ x->kept, x->tmp, 0, w->b->op_first + x->at,
                                    false };
}

/* The fullest moment of operations before `end`, of which none leaves forward, as
 * forward_op() finds it. Where one makes nothing, there was more before it. */
static void sum_ops(struct walk *w, struct summed *so_far, uint32_t end,
                    const struct walk_slot *output)
{
    const uint64_t *ends = w->ends;
    struct walk_slot *const *last = w->made + w->n_made;
    struct summed x = *so_far;
    if (x.at < end)
        sum_top(w, &x);
    for (; x.made < last; x.made++) {
        const struct walk_slot *s = *x.made;
        const uint32_t k = s->birth;
        if (k >= end)
            break;
        if (x.at < k) { /* which makes something, as the one before did */
            sum_top(w, &x);
            do
                x.tmp -= ends[x.at];
            while (++x.at < k);
        }
        sum_birth(w, &x, s, output);
    }
    if (x.at < end)
        sum_top(w, &x);
    while (x.at < end)
        x.tmp -= ends[x.at++];
    *so_far = x;
}

/* ... and of all before `end`. */
static void sum_forward(struct walk *w, uint32_t end,
                        const struct walk_slot *output)
{
    struct summed x = { .made = w->made };
    for (uint32_t k = 0; k < w->b->op_count; k++)
        w->ends[k] = 0;
    if (w->b->input != TENSOR_NONE)
        sum_input(w, &x, output);
    for (uint32_t k = 0; w->leaves && k < end; k++) {
        const struct op *op = walk_op_at(w, k);
        if (!op->returns && !op->renames)
            continue;
        sum_ops(w, &x, k, output);
        w->at = k;
        leave_forward(w, op);
    }
    sum_ops(w, &x, end, output);
}

/* ---- all of it ---- */

struct extremum walk_forward(struct walk *w, enum walk_pass pass)
{
    const struct block *b = w->b;
    w->pass = pass;
    w->kept = w->tmp = w->wgrad = 0;
    w->top = w->before = w->inside = (struct extremum){ 0 };
    w->renames = w->returns = w->multiplied = false;
    const struct walk_slot *output =
        b->output == TENSOR_NONE ? NULL : walk_root_of(w, b->output);
    if (is_plain(w))
        sum_forward(w, ops_run(w), output);
    else
        follow_forward(w, ops_run(w), output);
    return *extremum_fuller(&w->inside, extremum_fuller(&w->before, &w->top));
}
