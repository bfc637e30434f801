/*
 * The backward half of the walk: which gradient shares memory with which, when
 * a saved tensor dies, what a backward kernel needs for a moment, what
 * recomputation makes again. [docs/method.md eq. transient, eq. recompute]
 */
#include "fold/states.h"
#include "fold/walk_private.h"

#include "base/banned.h"

COLD static void tell_buffer(struct walk *w, uint32_t i, bool birth,
                             bool handed)
{
    walk_tell(
        w, (struct walk_event){ .birth = birth,
                                .what = WALK_GRADIENT,
                                .kept = handed,
                                .key = i,
                                .bytes = w->buffer[i].bytes,
                                .name = w->p->tensor[w->buffer[i].of].name });
}

COLD static void tell_stash(struct walk *w, uint32_t i, bool birth)
{
    walk_tell(
        w, (struct walk_event){ .birth = birth,
                                .what = WALK_STASH,
                                .key = i,
                                .bytes = w->buffer[i].bytes,
                                .name = w->p->tensor[w->buffer[i].of].name });
}

/* What was quantized for the way has its gradient in 16 bits. */
static uint64_t gradient_bytes(const struct tensor *t)
{
    if (t->shared_out)
        return 0;
    if (t->grad_in_8_bits)
        return t->elems;
    return t->dtype == DT_FP8 ? t->elems * dtype_size(DT_BF16) : t->bytes;
}

/* A walk that nobody follows, with nothing that few have: regions that are made
 * again, halves, parts, tensors on the host, graphs. What is done for each
 * operation is compiled twice, for these (`quiet`, a constant) and for any. */
static bool is_quiet(const struct walk *w)
{
    return w->tell == NULL && w->nodes == NULL && w->modules == NULL
           && !w->split && !w->unloads && !w->calls && w->regions == 0
           && w->step == STEP_EAGER;
}

/* The gradient of a tensor. */
INLINE int32_t take_buffer(struct walk *w, uint64_t bytes, tensor_id of,
                           bool quiet)
{
    const uint64_t counted = quiet ? UINT64_MAX : w->counted;
    const uint64_t rounded = walk_round(w, bytes) & counted;
    const uint32_t i = w->n_buffers++;
    w->buffer[i] = (struct walk_buffer){ rounded, 1, of, false, false };
    w->tmp += rounded;
    if (!quiet && w->tell != NULL)
        tell_buffer(w, i, true, false);
    return (int32_t)i;
}

static int32_t buffer_new(struct walk *w, uint64_t bytes, tensor_id of)
{
    return take_buffer(w, bytes, of, false);
}

INLINE void release_buffer(struct walk *w, int32_t i, bool quiet)
{
    if (i < 0 || --w->buffer[i].refs != 0)
        return;
    w->tmp -= w->buffer[i].bytes;
    if (quiet || w->tell == NULL)
        return;
    if (w->buffer[i].stashed)
        tell_stash(w, (uint32_t)i, false);
    else
        tell_buffer(w, (uint32_t)i, false, false);
}

void walk_buffer_release(struct walk *w, int32_t i)
{
    release_buffer(w, i, false);
}

/* What one part of a layer takes from another is a leaf: where somebody else has
 * its gradient, too, it gets a copy (torch/csrc/autograd/functions/
 * accumulate_grad.h, accumulateGrad). */
APART int32_t own_gradient(struct walk *w, const struct walk_slot *s,
                           tensor_id t, int32_t buffer)
{
    if (s == &w->slot[w->b->tensor_count] || s->root != s
        || walk_op_at(w, s->first_use)->node == walk_op_at(w, w->at)->node
        || w->buffer[buffer].refs == 1)
        return buffer;
    const int32_t copy = buffer_new(w, gradient_bytes(&w->p->tensor[t]), t);
    walk_note(w);
    walk_buffer_release(w, buffer);
    return copy;
}

/* Hands a gradient (with one reference) to a tensor. A second gradient is
 * added in place when the first is nobody else's and no view (a view holds its
 * base, so the storage has two owners), else into a new buffer
 * (torch/csrc/autograd/input_buffer.cpp, can_accumulate_inplace). */
INLINE void give_second(struct walk *w, struct walk_slot *s, tensor_id t,
                        int32_t buffer, bool quiet)
{
    if (w->buffer[s->grad].refs > 1 || s->grad_is_view) {
        const uint64_t bytes = gradient_bytes(&w->p->tensor[t]);
        const int32_t sum = take_buffer(w, bytes, t, quiet);
        walk_note(w);
        release_buffer(w, s->grad, quiet);
        s->grad = sum;
        s->grad_is_view = false;
    }
    walk_note(w);
    release_buffer(w, buffer, quiet);
}

INLINE void give(struct walk *w, struct walk_slot *s, tensor_id t,
                 int32_t buffer, bool view, bool quiet)
{
    if (s->grad != NO_GRAD) {
        give_second(w, s, t, buffer, quiet);
        return;
    }
    s->grad =
        quiet || w->nodes == NULL ? buffer : own_gradient(w, s, t, buffer);
    s->grad_is_view = view;
}

/* A linear works on rows: its input's gradient is the matrix product's result
 * seen in the input's shape. */
static bool gives_view(const struct walk *w, const struct op *op)
{
    const struct tensor *t = w->p->tensor;
    if (op->kind == OP_VIEW && op->n_out == 1) /* else a part: zeros, filled */
        return t[op->in[0]].elems == t[op->out[0]].elems && op->keep_in == 0;
    return op->kind == OP_LINEAR || op->kind == OP_MATMUL || op->kind == OP_VIEW
           || op->kind == OP_CAT;
}

/* True when the operand's gradient is the result's gradient itself, or a view
 * of it: no memory of its own. */
static inline bool aliases(const struct walk *w, const struct op *op,
                           unsigned i)
{
    const struct tensor *in = &w->p->tensor[op->in[i]];
    const struct tensor *out = &w->p->tensor[op->out[0]];
    const bool same = in->elems == out->elems && in->dtype == out->dtype;
    if (op->place == PLACE_GRADIENT && i == 0 && same)
        return true;
    switch (op->kind) {
    case OP_DROPOUT_ADD: return i == 1 && same; /* what is added to */
    case OP_ADD:
    case OP_MASKED_SOFTMAX: /* its backward works in place
                               (scaled_masked_softmax_cuda.cu) */
    case OP_ALL_REDUCE: return same;
    case OP_VIEW: return same && op->n_out == 1 && op->keep_in == 0;
    case OP_QUANTIZE: return in->elems == out->elems; /* passed through */
    case OP_CAT: return in->dtype == out->dtype;
    case OP_EMBEDDING:
    case OP_LINEAR:
    case OP_MATMUL:
    case OP_MUL:
    case OP_SCALE:
    case OP_NEG:
    case OP_DIV:
    case OP_POW:
    case OP_MEAN:
    case OP_RSQRT:
    case OP_TANH:
    case OP_SOFTMAX:
    case OP_LOG_SOFTMAX:
    case OP_NLL_LOSS:
    case OP_ACTIVATION:
    case OP_PYTHON_GELU:
    case OP_RELU:
    case OP_CAST:
    case OP_COPY:
    case OP_DROPOUT:
    case OP_LAYER_NORM:
    case OP_CONV:
    case OP_BATCH_NORM:
    case OP_MAX_POOL:
    case OP_AVG_POOL:
    case OP_RMS_NORM:
    case OP_FLASH_ATTENTION:
    case OP_SDPA:
    case OP_SWIGLU:
    case OP_CROSS_ENTROPY:
    case OP_COMPILED_CROSS_ENTROPY:
    case OP_FUSED_CROSS_ENTROPY:
    case OP_FUSED:
    case OP_FUNCTION:
    case OP_LOOP:
    case OP_SOLVE:
    case OP_CUMSUM:
    case OP_WHERE:
    case OP_TOPK:
    case OP_INDEX:
    case OP_RELEASE:
    case OP_ALL_GATHER:
    case OP_REDUCE_SCATTER:
    case OP_ALL_TO_ALL:
    case OP_KIND_COUNT: return false;
    }
    return false;
}

/* What comes into the region that w is at from another one, which discarded
 * it. */
static bool is_made_again(const struct walk *w, const struct walk_slot *s)
{
    return walk_is_discarded(w, s) && s->first_use < walk_run_first(w, w->at);
}

INLINE void release_each(struct walk *w)
{
    const uint32_t *from = &w->saved_from[w->at];
    for (uint32_t i = from[0], end = from[1]; i < end; i++) {
        struct walk_slot *s = w->saved[i];
        if (s->saves > 0 && --s->saves == 0)
            walk_slot_free(w, s);
    }
}

void walk_release_saved(struct walk *w)
{
    release_each(w);
}

/* A checkpoint's hold on the inputs of its region. */
APART void release_inputs(struct walk *w, const struct op *op,
                          const struct walk_operand *x)
{
    for (unsigned i = 0; i < op->n_in; i++) {
        struct walk_slot *s = x[i].root;
        if (s != NULL && (s->kept || is_made_again(w, s)) && s->saves > 0
            && --s->saves == 0)
            walk_slot_free(w, s);
    }
}

/* What the operation kept, and what a checkpoint did for it. */
INLINE void release_saved(struct walk *w, const struct op *op,
                          const struct walk_operand *x, bool quiet)
{
    if (quiet) {
        release_each(w);
        return;
    }
    if (walk_retains(w))
        return;
    if (w->remakes || !walk_defers(w, op) || op->stash_input)
        walk_release_saved(w);
    if (walk_region_active(w, op))
        release_inputs(w, op, x);
}

/* Weight gradients: what stays, and what is there for a moment. A weight that
 * the block uses twice has its second gradient added to the first. */
uint64_t walk_weight_grad(struct walk *w, const struct op *op, tensor_id id)
{
    const struct tensor *t = &w->p->tensor[id];
    struct walk_slot *s = walk_slot_of(w, id);
    const uint64_t bytes = walk_round(w, tensor_grad_bytes(t)) & w->counted;
    switch (w->mode) {
    case WGRAD_KEEP:
        if (t->again && !t->waits) /* added to the other one's */
            return bytes;
        if (s != NULL && s->has_wgrad)
            return bytes;
        if (s != NULL)
            s->has_wgrad = true;
        w->wgrad += bytes;
        walk_tell(w, (struct walk_event){ .birth = true,
                                          .what = WALK_WGRAD,
                                          .bytes = bytes,
                                          .name = t->name });
        return 0;
    case WGRAD_NONE:
        if (t->matmul && op->kind != OP_EMBEDDING)
            return 0;
        return bytes;
    case WGRAD_FREE:
    case WGRAD_MODES: return bytes;
    }
    return bytes;
}

/* A compiled kernel writes a gradient over one that it was the last to read
 * (torch/_inductor: inplace_buffers), and terms of a sum have one. */
static int32_t fused_grad(struct walk *w, const struct op *op, unsigned i,
                          const struct walk_operand *out, const int32_t *made,
                          uint32_t gives)
{
    const struct tensor *t = &w->p->tensor[op->in[i]];
    const uint64_t bytes = walk_round(w, t->bytes);
    for (unsigned k = 0; k < i; k++)
        if ((gives >> k & op->sum_in >> i & op->sum_in >> k & 1) != 0
            && w->buffer[made[k]].bytes == bytes) {
            w->buffer[made[k]].refs++;
            return made[k];
        }
    for (unsigned k = 0; k < op->n_out; k++) {
        const struct walk_slot *s = out[k].slot;
        if (s == NULL || s->grad == NO_GRAD || w->buffer[s->grad].refs != 1
            || w->buffer[s->grad].bytes != bytes)
            continue;
        w->buffer[s->grad].refs++;
        return s->grad;
    }
    return buffer_new(w, t->bytes, op->in[i]);
}

COLD static void tell_moment(struct walk *w, const struct op *op,
                             const struct walk_parts *parts, bool birth)
{
    for (uint32_t i = 0; i < parts->n; i++)
        walk_tell(w, (struct walk_event){ .birth = birth,
                                          .what = WALK_WORKSPACE,
                                          .key = i,
                                          .bytes = parts->v[i],
                                          .name = op->name });
}

INLINE void happens(struct walk *w, const struct op *op,
                    const struct walk_parts *parts, bool quiet)
{
    if (!quiet && w->tell != NULL)
        tell_moment(w, op, parts, true);
    w->tmp += parts->sum;
    walk_note(w);
    w->tmp -= parts->sum;
    if (!quiet && w->tell != NULL)
        tell_moment(w, op, parts, false);
}

/* A checkpoint's unpack hook keeps nothing of what it hands out
 * (torch/utils/checkpoint.py): it goes with the formula, before the engine
 * casts what that made; else the node holds it until then. */
INLINE bool lets_go_early(const struct walk *w, const struct op *op, bool quiet)
{
    return op->kind == OP_MUL && w->unpacks && op->place != PLACE_KEPT
           && !op->outside && (quiet || !walk_region_active(w, op));
}

/* The first that asks for a saved tensor has all of them made again. */
static void note_lead(struct walk *w, const struct op *op)
{
    tensor_id saved[SAVED_MAX];
    if (op->outside || op_saves(w->p, op, saved) == 0)
        return;
    w->led = true;
    w->lead = w->tmp;
}

/* What walk_weights.c finds. */
static void stash(struct walk *w, const struct op *op, struct walk_slot *s)
{
    s->stash = s->grad;
    if (op->stash_bytes != 0) {
        s->stash = buffer_new(w, op->stash_bytes, op->out[0]);
        walk_note(w);
        walk_buffer_release(w, s->grad);
    }
    w->buffer[s->stash].stashed = !w->delays;
}

/* A node's inputs are gone when it returns, before its results are added up
 * (torch/csrc/autograd/engine.cpp, call_function). */
INLINE void release_result_grads(struct walk *w, const struct op *op,
                                 const struct walk_operand *out, bool quiet)
{
    for (unsigned i = 0; i < op->n_out; i++) {
        struct walk_slot *s = out[i].slot;
        if (s == NULL || s->grad == NO_GRAD)
            continue;
        if (!quiet && i == 0 && walk_defers(w, op)) {
            stash(w, op, s);
        } else {
            release_buffer(w, s->grad, quiet);
        }
        s->grad = NO_GRAD;
    }
}

/* As they come, before others are made. */
APART void release_pieces(struct walk *w, const struct op *op,
                          const struct walk_operand *out)
{
    release_result_grads(w, op, out, false);
}

/* The gradient of logits that somebody else still holds: in the same memory. */
static bool writes_over_kept(const struct op *op,
                             const struct walk_operand *out)
{
    if (op->kind != OP_CROSS_ENTROPY || op->n_out < 2)
        return false;
    const struct walk_slot *s = out[1].root;
    return s != NULL && s->live;
}

/* A weight's update in a hook on its gradient: one after another, when what the
 * operation kept is gone; the gradients of the others wait. A tied head's waits
 * for the table's, whose sum with it takes its place. */
APART void update_weights(struct walk *w, const struct op *op)
{
    struct walk_parts moment;
    walk_parts_init(&moment);
    uint64_t largest = 0, projected = 0;
    for (unsigned i = 0; i < op->n_in; i++) {
        const struct tensor *t = &w->p->tensor[op->in[i]];
        if (t->role != ROLE_PARAM || !t->trainable || t->tied
            || walk_is_stand_in(w, op, i) || (i == 1 && walk_defers(w, op)))
            continue;
        const uint64_t bytes = walk_round(w, t->bytes);
        if (!t->words || !w->tied_table)
            walk_parts_add(&moment, bytes);
        if (t->projected)
            projected = max_u64(projected, projected_alone(w->projects, t));
        else
            largest = max_u64(largest, bytes);
    }
    if (moment.sum == 0 && largest == 0)
        return;
    if (projected > w->update_copies * largest)
        walk_parts_add(&moment, walk_round(w, projected));
    else
        for (unsigned i = 0; i < w->update_copies; i++)
            walk_parts_add(&moment, largest);
    happens(w, op, &moment, false);
}

/* The gradients of a product's factors come in the order of their names, mat2
 * before self, those of one with a bias as mat1 before mat2
 * (torch/csrc/autograd/generated/Functions.cpp, MmBackward0, AddmmBackward0).
 */
static bool weight_first(const struct walk *w, const struct op *op)
{
    return w->weights_first && op->kind == OP_LINEAR && op->n_in >= 2
           && (op->n_in == 2 || w->p->tensor[op->in[2]].role != ROLE_PARAM);
}

/* Of a weight that has a gradient; what is there for a moment. */
INLINE uint64_t moment_of_weight(struct walk *w, const struct op *op,
                                 const struct tensor *t, unsigned i, bool quiet)
{
    return quiet && w->mode == WGRAD_FREE ? walk_round(w, tensor_grad_bytes(t))
                                          : walk_weight_grad(w, op, op->in[i]);
}

/* The gradient of an operand that is no weight. `g`: the result's. */
INLINE int32_t operand_gradient(struct walk *w, const struct op *op, unsigned i,
                                const struct walk_operand *out, int32_t g,
                                bool quiet)
{
    if (g >= 0 && aliases(w, op, i)) {
        w->buffer[g].refs++;
        return g;
    }
    const bool over = writes_over_kept(op, out);
    return take_buffer(w, over ? 0 : gradient_bytes(&w->p->tensor[op->in[i]]),
                       op->in[i], quiet);
}

/* A table's gradient, and its sum with that of another who has the table. */
APART void add_to_other(struct walk *w, const struct tensor *t)
{
    const uint64_t bytes = walk_round(w, tensor_grad_bytes(t)) & w->counted;
    struct walk_parts moment;
    if (!t->trainable || w->mode == WGRAD_NONE)
        return;
    walk_parts_init(&moment);
    walk_parts_add(&moment, bytes);
    walk_parts_add(&moment, bytes);
    happens(w, &w->p->op[w->b->op_first + w->at], &moment, false);
}

/* `x`: the operation's operands. `g`: its result's gradient. */
INLINE void backward_grads(struct walk *w, const struct op *op,
                           const struct walk_operand *x, int32_t g, bool quiet)
{
    const unsigned n_in = op->n_in;
    const struct walk_operand *out = &x[n_in];
    int32_t made[OP_IN_MAX];
    uint64_t coming[OP_IN_MAX];
    uint32_t gives = 0, comes = 0; /* operands: whose of these there is */
    struct walk_parts moment;
    walk_parts_init(&moment);
    if (walk_has_workspace(w, op) && (quiet || w->counted != 0))
        walk_parts_add(&moment, walk_workspace(w, op, &moment));
    if (!quiet)
        walk_parts_add(&moment, w->copies);
    if (op->place == PLACE_KEPT)
        release_saved(w, op, x, quiet);
    if (op->place == PLACE_PIECES)
        release_pieces(w, op, out);
    const bool swap = weight_first(w, op);
    for (unsigned k = 0; k < n_in; k++) {
        const unsigned i = k < 2 ? k ^ swap : k;
        if (!x[i].wants)
            continue;
        const struct tensor *t = &w->p->tensor[op->in[i]];
        if (t->role == ROLE_PARAM) {
            if (!quiet && (i == 1 || w->graph) && walk_defers(w, op))
                continue;
            const uint64_t bytes = moment_of_weight(w, op, t, i, quiet);
            if (w->mode == WGRAD_FREE) {
                comes |= 1u << i;
                walk_gradient_comes(w, op, i, coming[i] = bytes);
            } else {
                walk_parts_add(&moment, bytes);
            }
        } else {
            made[i] = op->kind == OP_FUSED
                          ? fused_grad(w, op, i, out, made, gives)
                          : operand_gradient(w, op, i, out, g, quiet);
            gives |= 1u << i;
        }
        if (!quiet)
            walk_tell_product(w, op);
    }
    const bool early = lets_go_early(w, op, quiet);
    if (early) {
        struct walk_parts products;
        walk_parts_init(&products);
        walk_parts_add(&products, walk_uncast_factors(w, op));
        happens(w, op, &products, quiet);
        release_saved(w, op, x, quiet);
    }
    happens(w, op, &moment, quiet);
    release_result_grads(w, op, out, quiet);
    if (op->kind == OP_EMBEDDING && w->p->tensor[op->in[0]].sums)
        add_to_other(w, &w->p->tensor[op->in[0]]);
    const bool view = gives != 0 && gives_view(w, op);
    for (unsigned i = 0; gives != 0; i++, gives >>= 1)
        if ((gives & 1) != 0)
            give(w, x[i].slot, op->in[i], made[i], view, quiet);
    if (op->place != PLACE_KEPT && !early)
        release_saved(w, op, x, quiet);
    if (comes == 0)
        return;
    walk_gradients_arrive(w, op, coming, comes);
    if (w->update_copies != 0 || w->projects != NULL)
        update_weights(w, op);
}

/* An operation is over that took what is back from the host. */
APART void came_is_used(struct walk *w, uint32_t k)
{
    if (w->modules == NULL) {
        walk_called_back(w);
        return;
    }
    if (w->back)
        walk_modules_used(w);
    walk_modules_begun(w, k);
}

/* `x`: the operation's operands. */
INLINE void backward_op(struct walk *w, const struct op *op,
                        const struct walk_operand *x, uint32_t k, bool quiet)
{
    const struct walk_operand *out = &x[op->n_in];
    w->at = k;
    int32_t g = NO_GRAD;
    bool any = false;
    for (unsigned i = 0; i < op->n_out; i++) {
        const struct walk_slot *s = out[i].slot;
        if (s == NULL || s->grad == NO_GRAD)
            continue;
        any = true;
        if (i == 0)
            g = s->grad;
    }
    if (!quiet && w->step != STEP_EAGER)
        w->counted = walk_counts(w, op) ? UINT64_MAX : 0;
    if (any && w->unpacks && !w->led)
        note_lead(w, op);
    if (!quiet)
        w->copies = any && w->unloads ? walk_call_back(w, op, k) : 0;
    if (any)
        backward_grads(w, op, x, g, quiet);
    else
        release_saved(w, op, x, quiet);
    if (!quiet && w->calls)
        came_is_used(w, k);
}

COLD static void tell_again(struct walk *w, const struct op *op, uint64_t bytes,
                            bool birth)
{
    walk_tell(w, (struct walk_event){ .birth = birth,
                                      .what = WALK_AGAIN,
                                      .bytes = bytes,
                                      .name = op->name });
}

/* Makes again what a region kept nothing of: operations first..last. */
static void recompute_region(struct walk *w, uint32_t first, uint32_t last)
{
    uint64_t dups = 0;
    for (uint32_t k = first; k <= last; k++) {
        const struct op *op = &w->p->op[w->b->op_first + k];
        w->at = k;
        for (unsigned i = 0; i < op->n_out; i++) {
            struct walk_slot *s = walk_root_of(w, op->out[i]);
            if (s == NULL)
                continue;
            if (!s->live) {
                walk_slot_alloc(w, s);
            } else if (s->kept && s->first_use == k) {
                if (dups != 0) /* told as one */
                    tell_again(w, op, dups, false);
                dups += s->bytes; /* the region's result, a second time */
                w->tmp += s->bytes;
                tell_again(w, op, dups, true);
            }
        }
        walk_note(w);
        for (unsigned i = 0; i < op->n_in; i++) {
            struct walk_slot *s = walk_root_of(w, op->in[i]);
            if (s != NULL && s->live && !s->kept && s->saves == 0
                && s->last_use == k)
                walk_slot_free(w, s);
        }
    }
    w->tmp -= dups;
    if (dups != 0)
        tell_again(w, walk_op_at(w, last), dups, false);
    /* results that nobody keeps any more die with the recomputation's frame */
    for (uint32_t k = first; k <= last; k++) {
        const struct op *op = &w->p->op[w->b->op_first + k];
        for (unsigned i = 0; i < op->n_out; i++) {
            struct walk_slot *s = walk_root_of(w, op->out[i]);
            if (s != NULL && s->live && s->saves == 0)
                walk_slot_free(w, s);
        }
    }
}

static void recompute_once(struct walk *w, uint32_t k)
{
    const uint32_t first = walk_run_first(w, k);
    for (uint32_t i = 0; i < w->n_done; i++)
        if (w->done[i] == first)
            return;
    if (w->n_done < DONE_MAX)
        w->done[w->n_done++] = first;
    recompute_region(w, first, walk_run_last(w, k));
}

/* Makes again what the region that k is in takes from a region that discarded
 * it. */
static void restore_inputs(struct walk *w, uint32_t k)
{
    const uint32_t first = walk_run_first(w, k), last = walk_run_last(w, k);
    for (uint32_t i = first; i <= last; i++) {
        const struct op *op = walk_op_at(w, i);
        for (unsigned j = 0; j < op->n_in; j++) {
            const struct walk_slot *s = walk_root_of(w, op->in[j]);
            if (s != NULL && !s->live && s->first_use < first
                && walk_is_discarded(w, s))
                recompute_once(w, s->first_use);
        }
    }
}

/* Makes again what an operation kept but a region discarded. */
static void restore_saved(struct walk *w, const struct op *op)
{
    tensor_id saved[SAVED_MAX];
    const size_t n = op_saves(w->p, op, saved);
    for (size_t i = 0; i < n; i++) {
        const struct walk_slot *s = walk_root_of(w, saved[i]);
        if (s != NULL && !s->live && !s->kept && walk_is_discarded(w, s))
            recompute_once(w, s->first_use);
    }
}

/* A gradient that the blocks above made. */
static void comes_in(struct walk *w, tensor_id id)
{
    const struct tensor *t = &w->p->tensor[id];
    if (walk_wants_grad(w, id))
        walk_slot_of(w, id)->grad = buffer_new(w, gradient_bytes(t), id);
}

/* Gradients that are there when backward is over. */
COLD static void tell_left(struct walk *w)
{
    const int32_t input = w->slot[w->b->tensor_count].grad;
    for (uint32_t i = 0; i < w->n_buffers; i++)
        if (w->buffer[i].refs > 0 && w->buffer[i].stashed)
            tell_stash(w, i, true);
        else if (w->buffer[i].refs > 0) /* the input's: handed on */
            tell_buffer(w, i, false, (int32_t)i == input);
}

/* A graph hangs on its highest weight's operation: what is above, the loss, goes
 * (stage_backward_input detaches it). */
static void release_above_weights(struct walk *w)
{
    for (uint32_t k = w->b->op_count; k-- > 0;) {
        w->at = k;
        if (walk_has_weight(w, walk_op_at(w, k)))
            return;
        walk_release_saved(w);
    }
}

APART void backward_quiet(struct walk *w, const struct walk_operand *x,
                          uint32_t end, uint32_t first)
{
    const struct op *op = walk_op_at(w, end);
    for (uint32_t k = end; k-- > first;) {
        op--;
        x -= op->n_in + op->n_out;
        backward_op(w, op, x, k, true);
    }
}

APART void backward_any(struct walk *w, const struct walk_operand *x,
                        uint32_t end, uint32_t first)
{
    const struct op *op = walk_op_at(w, end);
    for (uint32_t k = end; k-- > first;) {
        op--;
        x -= op->n_in + op->n_out;
        walk_to_node(w, op->node, true);
        if (op->recalls != 0
            && walk_region_active(w, &w->p->op[op->recalls - 1]))
            recompute_once(w, op->recalls - 1 - w->b->op_first);
        if (w->regions != 0)
            restore_saved(w, op);
        if (walk_region_active(w, op)) {
            restore_inputs(w, k);
            recompute_once(w, k);
        }
        backward_op(w, op, x, k, false);
    }
}

void walk_backward_ops(struct walk *w, const struct walk_operand *x,
                       uint32_t end, uint32_t first)
{
    if (is_quiet(w))
        backward_quiet(w, x, end, first);
    else
        backward_any(w, x, end, first);
}

/* All operations; what blocks have in common once. */
static void run_back(struct walk *w)
{
    const struct block *b = w->b;
    const uint32_t common = w->begins && !w->split ? b->common_ops : 0;
    const struct walk_operand *x = w->operands_end;
    walk_backward_ops(w, x, b->op_count, common);
    if (common > 0)
        walk_common_back(w);
}

/* After walk_forward: everything kept is live. */
struct extremum walk_backward(struct walk *w, enum wgrad_mode mode)
{
    const struct block *b = w->b;
    w->pass = PASS_KEEP;
    w->mode = mode;
    w->n_buffers = 0;
    w->kept = w->tmp = w->wgrad = 0;
    w->top = w->since = (struct extremum){ 0 };
    if (w->nodes != NULL)
        walk_begin_nodes(w, true);
    w->split = w->split || (w->nodes != NULL && w->delays);
    const bool unloads = w->unloads || w->back;
    uint64_t kept = 0;
    for (struct walk_slot *s = w->slot, *end = s + b->tensor_count + 1; s < end;
         s++) {
        s->saves = s->saves_all;
        s->grad = s->stash = NO_GRAD;
        s->has_wgrad = false;
        s->live = s->kept && !(unloads && s->away);
        kept += s->live ? s->bytes : 0;
    }
    w->kept = kept;
    w->stretches = 0;
    w->calls = w->modules != NULL;
    if (w->back)
        walk_modules_come(w);
    w->holds = w->unloads;
    w->slot[b->tensor_count + 1].grad = NO_GRAD;
    if (w->step != STEP_EAGER && walk_graph_above(w))
        w->counted = 0;
    if (b->output != TENSOR_NONE)
        comes_in(w, b->output);
    w->counted = UINT64_MAX;
    const bool held =
        w->result_held && b->kind == BLOCK_LAYER && w->n_buffers > 0;
    if (held)
        w->buffer[0].refs++;
    if (b->memory != TENSOR_NONE && b->memory_waits)
        comes_in(w, b->memory);
    w->at = b->op_count == 0 ? 0 : b->op_count - 1;
    walk_note(w);
    if (w->nodes != NULL)
        walk_take_in_hand(w);
    w->lead = w->tmp;
    w->led = w->multiplied = false;

    w->n_done = 0;
    run_back(w);
    if (w->nodes != NULL && w->delays) {
        walk_to_node(w, NODE_ATTENTION_WEIGHTS, true);
        w->split = false;
    }
    if (w->stretch != NULL)
        w->stretch[w->stretches] = w->top;
    if (walk_retains(w) && b->kind == BLOCK_HEAD)
        release_above_weights(w);
    if (held)
        walk_buffer_release(w, 0);
    if (w->unloads)
        walk_called_back(w); /* the last ones */
    w->holds = false;
    if (w->tell != NULL)
        tell_left(w);
    for (uint32_t i = 0; i < b->tensor_count && w->stays; i++) {
        const struct tensor *t = &w->p->tensor[b->tensor_first + i];
        if (t->held || t->stays || w->slot[i].result)
            walk_slot_free(w, &w->slot[i]);
    }
    walk_to_node(w, LAYER_NODES, true);
    return w->top;
}
