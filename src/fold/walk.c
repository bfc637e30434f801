/*
 * The liveness of one block, forward and backward. Owns the rules of an
 * autograd engine that are not save rules: when a tensor dies, where gradient
 * buffers are shared, added in place or made anew, and what a backward kernel
 * needs for a moment. Knows no optimizer, engine or pipeline.
 * [docs/method.md eq. saved, eq. transient]
 */
#include "fold/walk.h"

/* One a tensor of the block, and one for the block's input. Storage-related
 * members are used on the root of a view chain only. */
struct walk_slot {
    uint64_t bytes;     /* as allocated; 0 for weights, inputs, shared */
    uint32_t first_use; /* operation that makes it */
    uint32_t last_use;
    uint32_t saves;     /* operations that keep it, not yet done */
    uint32_t saves_all; /* the same, before backward */
    int32_t grad;       /* index of its gradient's buffer, -1 none */
    bool grad_is_view;  /* of that buffer */
    bool local;         /* a storage this block accounts for */
    bool kept;          /* alive from forward to backward */
    bool live;
};

struct walk_buffer {
    uint64_t bytes;
    uint32_t refs;
};

/* Runs of recompute regions in one block: Megatron has at most a norm, an
 * attention, a norm, an MLP or MoE part of a few regions. */
enum { DONE_MAX = 16 };

struct walk {
    const struct program *p;
    const struct block *b;
    struct walk_slot *slot;
    struct walk_buffer *buffer;
    uint32_t n_buffers;
    uint64_t regions;
    uint64_t granule;
    bool bare;
    enum wgrad_mode mode;
    uint32_t done[DONE_MAX]; /* first operations of regions made again */
    uint32_t n_done;
    uint64_t kept, tmp, wgrad; /* alive now */
    struct extremum top;
    uint32_t at; /* operation being walked */
};

enum { NO_GRAD = -1 };

bool walk_scratch_init(struct walk_scratch *s, const struct program *p,
                       struct arena *a)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < p->n_blocks; i++)
        if (p->block[i].tensor_count > most)
            most = p->block[i].tensor_count;
    s->capacity = most + 1;
    s->granule = ALLOC_ROUND;
    s->slot = ARENA_NEW(a, struct walk_slot, s->capacity);
    /* every gradient allocation of a backward gets a fresh buffer: at most
       one an operand, and one more where gradients are added */
    s->buffer = ARENA_NEW(a, struct walk_buffer, (size_t)s->capacity * 4);
    return s->slot != NULL && s->buffer != NULL;
}

/* ---- slots ---- */

static struct walk_slot *slot_of(const struct walk *w, tensor_id t)
{
    if (t == w->b->input)
        return &w->slot[w->b->tensor_count];
    if (t < w->b->tensor_first || t - w->b->tensor_first >= w->b->tensor_count)
        return NULL;
    return &w->slot[t - w->b->tensor_first];
}

static struct walk_slot *root_of(struct walk *w, tensor_id t)
{
    struct walk_slot *s = slot_of(w, w->p->tensor[t].storage);
    return s != NULL && s->local ? s : NULL;
}

static bool region_active(const struct walk *w, const struct op *op)
{
    return op->region != 0 && (w->regions >> (op->region - 1) & 1) != 0;
}

/* Megatron's CheckpointWithoutOutput: not even the result stays; it is made
 * again for whoever kept it (megatron/core/tensor_parallel/random.py). The
 * other regions are plain checkpoints, whose result lives on. */
static bool discards_result(const struct op *op)
{
    const unsigned m = op->region - 1u;
    return op->region != 0
           && (m == REMOD_LAYERNORM || m == REMOD_MOE_ACT
               || m == REMOD_MLA_UP_PROJ);
}

static const struct op *op_at(const struct walk *w, uint32_t k)
{
    return &w->p->op[w->b->op_first + k];
}

/* First and last operation of the run of one region that k is in. */
static uint32_t run_first(const struct walk *w, uint32_t k)
{
    while (k > 0 && op_at(w, k - 1)->region == op_at(w, k)->region)
        k--;
    return k;
}

static uint32_t run_last(const struct walk *w, uint32_t k)
{
    while (k + 1 < w->b->op_count
           && op_at(w, k + 1)->region == op_at(w, k)->region)
        k++;
    return k;
}

static void slot_init(struct walk *w, struct walk_slot *s, tensor_id id)
{
    const struct tensor *t = &w->p->tensor[id];
    *s = (struct walk_slot){ .grad = NO_GRAD };
    s->local =
        t->storage == id && (t->role == ROLE_ACTIVATION || id == w->b->input);
    s->bytes = s->local ? round_to(t->bytes, w->granule) : 0;
}

static void note_uses(struct walk *w, const struct op *op, uint32_t k)
{
    for (unsigned i = 0; i < op->n_in; i++) {
        struct walk_slot *s = root_of(w, op->in[i]);
        if (s != NULL)
            s->last_use = k;
    }
    for (unsigned i = 0; i < op->n_out; i++) {
        struct walk_slot *s = root_of(w, op->out[i]);
        if (s == NULL)
            continue;
        s->last_use = k;
        if (w->p->tensor[op->out[i]].storage == op->out[i])
            s->first_use = k;
    }
}

static bool is_input(const struct walk *w, const struct walk_slot *s)
{
    return s == &w->slot[w->b->tensor_count];
}

/* Made by an active region that does not keep its result. */
static bool is_discarded(const struct walk *w, const struct walk_slot *s)
{
    if (is_input(w, s))
        return false;
    const struct op *maker = op_at(w, s->first_use);
    return region_active(w, maker) && discards_result(maker);
}

/* A storage is kept when an operation outside active regions keeps it; inside
 * a region only what comes in from outside is kept, the rest is made again. */
static void note_saves(struct walk *w, const struct op *op, uint32_t first)
{
    tensor_id saved[SAVED_MAX];
    const size_t n = op_saves(w->p, op, saved);
    for (size_t i = 0; i < n; i++) {
        struct walk_slot *s = root_of(w, saved[i]);
        if (s == NULL)
            continue;
        s->saves++;
        const bool outside = is_input(w, s) || s->first_use < first;
        if (!region_active(w, op) || outside)
            s->kept = s->kept || !is_discarded(w, s);
    }
    if (!region_active(w, op))
        return;
    /* a checkpoint keeps its inputs, needed or not */
    for (unsigned i = 0; i < op->n_in; i++) {
        struct walk_slot *s = root_of(w, op->in[i]);
        if (s != NULL && (is_input(w, s) || s->first_use < first)) {
            s->kept = s->kept || !is_discarded(w, s);
            s->saves++;
        }
    }
}

static void walk_init(struct walk *w)
{
    const struct block *b = w->b;
    for (uint32_t i = 0; i < b->tensor_count; i++)
        slot_init(w, &w->slot[i], b->tensor_first + i);
    struct walk_slot *in = &w->slot[b->tensor_count];
    if (b->input != TENSOR_NONE)
        slot_init(w, in, b->input);
    else
        *in = (struct walk_slot){ .grad = NO_GRAD };
    for (uint32_t k = 0; k < b->op_count; k++)
        note_uses(w, &w->p->op[b->op_first + k], k);
    uint32_t first = 0;
    for (uint32_t k = 0; k < b->op_count; k++) {
        const struct op *op = op_at(w, k);
        if (k == 0 || op[-1].region != op->region)
            first = k;
        note_saves(w, op, first);
    }
    for (uint32_t i = 0; i <= b->tensor_count; i++)
        w->slot[i].saves_all = w->slot[i].saves;
}

/* ---- accounting ---- */

static void note(struct walk *w)
{
    if (w->kept + w->tmp + w->wgrad > extremum_total(&w->top))
        w->top = (struct extremum){ w->kept, w->tmp, w->wgrad,
                                    w->b->op_first + w->at };
}

static void slot_alloc(struct walk *w, struct walk_slot *s, bool grad)
{
    s->live = true;
    if (grad && s->kept)
        w->kept += s->bytes;
    else
        w->tmp += s->bytes;
}

static void slot_free(struct walk *w, struct walk_slot *s, bool grad)
{
    if (!s->live)
        return;
    s->live = false;
    if (grad && s->kept)
        w->kept -= s->bytes;
    else
        w->tmp -= s->bytes;
}

/* ---- forward ---- */

static void forward_op(struct walk *w, const struct op *op, uint32_t k,
                       const struct walk_slot *output, bool grad)
{
    w->at = k;
    for (unsigned i = 0; i < op->n_out; i++) {
        struct walk_slot *s = root_of(w, op->out[i]);
        if (s != NULL && !s->live)
            slot_alloc(w, s, grad);
    }
    note(w);
    const unsigned n = op->n_in + op->n_out;
    for (unsigned i = 0; i < n; i++) {
        const tensor_id t = i < op->n_in ? op->in[i] : op->out[i - op->n_in];
        struct walk_slot *s = root_of(w, t);
        if (s != NULL && s->last_use == k && s != output && !(grad && s->kept))
            slot_free(w, s, grad);
    }
}

/* The fullest moment of forward; leaves what is kept, and the output, live. */
static struct extremum walk_forward(struct walk *w, bool grad)
{
    const struct block *b = w->b;
    for (uint32_t i = 0; i <= b->tensor_count; i++)
        w->slot[i].live = false;
    w->kept = w->tmp = w->wgrad = 0;
    w->top = (struct extremum){ 0 };
    const struct walk_slot *output =
        b->output == TENSOR_NONE ? NULL : root_of(w, b->output);
    if (b->input != TENSOR_NONE)
        slot_alloc(w, &w->slot[b->tensor_count], grad);
    for (uint32_t k = 0; k < b->op_count; k++)
        forward_op(w, &w->p->op[b->op_first + k], k, output, grad);
    return w->top;
}

/* ---- backward ---- */

static int32_t buffer_new(struct walk *w, uint64_t bytes)
{
    const uint64_t rounded = round_to(bytes, w->granule);
    w->buffer[w->n_buffers] = (struct walk_buffer){ rounded, 1 };
    w->tmp += rounded;
    return (int32_t)w->n_buffers++;
}

static void buffer_release(struct walk *w, int32_t i)
{
    if (i >= 0 && --w->buffer[i].refs == 0)
        w->tmp -= w->buffer[i].bytes;
}

/* Hands a gradient (with one reference) to a tensor. A second gradient is
 * added in place when the first is nobody else's and no view (a view holds its
 * base, so the storage has two owners), else into a new buffer
 * (torch/csrc/autograd/input_buffer.cpp, can_accumulate_inplace). */
static void give(struct walk *w, tensor_id t, int32_t buffer, bool view)
{
    struct walk_slot *s = slot_of(w, t);
    if (s->grad == NO_GRAD) {
        s->grad = buffer;
        s->grad_is_view = view;
        return;
    }
    if (w->buffer[s->grad].refs > 1 || s->grad_is_view) {
        const int32_t sum = buffer_new(w, w->p->tensor[t].bytes);
        note(w);
        buffer_release(w, s->grad);
        s->grad = sum;
        s->grad_is_view = false;
    }
    note(w);
    buffer_release(w, buffer);
}

static bool wants_grad(const struct walk *w, tensor_id id)
{
    const struct tensor *t = &w->p->tensor[id];
    if (t->role == ROLE_PARAM)
        return t->trainable;
    return t->role == ROLE_ACTIVATION && t->needs_grad
           && slot_of(w, id) != NULL;
}

/* A linear works on rows: its input's gradient is the matrix product's result
 * seen in the input's shape. */
static bool gives_view(const struct op *op)
{
    return op->kind == OP_LINEAR || op->kind == OP_MATMUL || op->kind == OP_VIEW
           || op->kind == OP_CAT;
}

/* A linear's operands after the weight are its bias and what it keeps in place
 * of its input; only the bias has a gradient of its own. */
static bool is_stand_in(const struct walk *w, const struct op *op, unsigned i)
{
    return op->kind == OP_LINEAR && i >= 2
           && w->p->tensor[op->in[i]].role != ROLE_PARAM;
}

/* True when the operand's gradient is the result's gradient itself, or a view
 * of it: no memory of its own. */
static bool aliases(const struct walk *w, const struct op *op, unsigned i)
{
    const struct tensor *in = &w->p->tensor[op->in[i]];
    const struct tensor *out = &w->p->tensor[op->out[0]];
    const bool same = in->elems == out->elems && in->dtype == out->dtype;
    switch (op->kind) {
    case OP_ADD:
    case OP_ALL_REDUCE: return same;
    case OP_VIEW: return same && op->n_out == 1;
    case OP_CAT: return in->dtype == out->dtype;
    case OP_INDEX_ADD: return i == 0 && same;
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
    case OP_SIGMOID:
    case OP_TANH:
    case OP_EXP:
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
    case OP_RMS_NORM:
    case OP_FLASH_ATTENTION:
    case OP_SDPA:
    case OP_SWIGLU:
    case OP_CROSS_ENTROPY:
    case OP_FUSED_CROSS_ENTROPY:
    case OP_WHERE:
    case OP_TOPK:
    case OP_INDEX:
    case OP_QUANTIZE:
    case OP_RELEASE:
    case OP_ALL_GATHER:
    case OP_REDUCE_SCATTER:
    case OP_ALL_TO_ALL:
    case OP_KIND_COUNT: return false;
    }
    return false;
}

/* Up to the next multiple, for the flash kernels' padded scratch. */
static uint64_t pad_to(uint64_t n, uint64_t multiple)
{
    return div_up(n, multiple) * multiple;
}

/* An input that was gathered for the product is gathered again, a quantised
 * weight is dequantised again. */
static uint64_t linear_again(const struct walk *w, const struct op *op)
{
    const struct tensor *in = &w->p->tensor[op->in[0]];
    uint64_t bytes = 0;
    for (unsigned i = 2; i < op->n_in; i++) {
        const struct tensor *t = &w->p->tensor[op->in[i]];
        if (is_stand_in(w, op, i) && t->elems < in->elems)
            bytes += in->bytes;
        else if (t->role == ROLE_PARAM && t->matmul)
            bytes += w->p->tensor[op->in[1]].bytes;
    }
    return bytes;
}

/* A factor's gradient is made in the product's shape and dtype: summed where
 * the factor was broadcast, cast where it is narrower. */
static uint64_t factor_workspace(const struct walk *w, const struct op *op,
                                 const struct tensor *out)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < op->n_in; i++) {
        const struct tensor *t = &w->p->tensor[op->in[i]];
        if (wants_grad(w, op->in[i])
            && (t->elems < out->elems || t->dtype != out->dtype))
            bytes = max_u64(bytes, out->bytes);
    }
    return bytes;
}

/* dq is summed in fp32; grouped k, v get a gradient a query head first
 * (flash-attention csrc/flash_attn/flash_api.cpp). */
static uint64_t flash_workspace(const struct walk *w, const struct op *op)
{
    const struct tensor *q = &w->p->tensor[op->in[0]];
    const struct tensor *k = &w->p->tensor[op->in[1]];
    if (w->bare)
        return 0;
    return pad_to(q->elems, 128) * 4 + (k->elems < q->elems ? 2 * q->bytes : 0);
}

/* What a backward kernel has for a moment beside its results. */
static uint64_t backward_workspace(const struct walk *w, const struct op *op)
{
    const struct tensor *in = &w->p->tensor[op->in[0]];
    const struct tensor *out = &w->p->tensor[op->out[0]];
    switch (op->kind) {
    case OP_POW: /* x^(c-1) and c times it live to the end of the expression
                    grad * (c * x.pow(c - 1)) (FunctionsManual.cpp) */
        return 2 * in->bytes;
    case OP_MUL: return factor_workspace(w, op, out);
    case OP_FLASH_ATTENTION: return flash_workspace(w, op);
    case OP_LINEAR: return linear_again(w, op);
    case OP_PYTHON_GELU: /* bloom_gelu_back: five temporaries at most, the
                            result when they are gone (modeling_bloom.py) */
        return 4 * out->bytes;
    case OP_SOFTMAX: /* grad * output first (aten/src/ATen/native/cuda/
                        SoftMax.cu, softmax_backward_cuda_out) */
        return out->bytes;
    case OP_ALL_GATHER:
    case OP_EMBEDDING:
    case OP_MATMUL:
    case OP_ADD:
    case OP_SCALE:
    case OP_NEG:
    case OP_DIV:
    case OP_MEAN:
    case OP_RSQRT:
    case OP_SIGMOID:
    case OP_TANH:
    case OP_EXP:
    case OP_LOG_SOFTMAX:
    case OP_NLL_LOSS:
    case OP_ACTIVATION:
    case OP_RELU:
    case OP_CAST:
    case OP_COPY:
    case OP_VIEW:
    case OP_CAT:
    case OP_DROPOUT:
    case OP_LAYER_NORM:
    case OP_RMS_NORM:
    case OP_SDPA:
    case OP_SWIGLU:
    case OP_CROSS_ENTROPY:
    case OP_FUSED_CROSS_ENTROPY:
    case OP_WHERE:
    case OP_TOPK:
    case OP_INDEX:
    case OP_INDEX_ADD:
    case OP_QUANTIZE:
    case OP_RELEASE:
    case OP_ALL_REDUCE:
    case OP_REDUCE_SCATTER:
    case OP_ALL_TO_ALL:
    case OP_KIND_COUNT: return 0;
    }
    return 0;
}

static void release_saved(struct walk *w, const struct op *op)
{
    tensor_id saved[SAVED_MAX];
    const size_t n = op_saves(w->p, op, saved);
    for (size_t i = 0; i < n; i++) {
        struct walk_slot *s = root_of(w, saved[i]);
        if (s == NULL || s->saves == 0)
            continue;
        if (--s->saves == 0)
            slot_free(w, s, true);
    }
    if (!region_active(w, op))
        return;
    /* the checkpoint's hold on the region's inputs */
    for (unsigned i = 0; i < op->n_in; i++) {
        struct walk_slot *s = root_of(w, op->in[i]);
        if (s != NULL && s->kept && s->saves > 0 && --s->saves == 0)
            slot_free(w, s, true);
    }
}

/* Weight gradients: what stays, and what is there for a moment. */
static uint64_t weight_grad(struct walk *w, const struct tensor *t)
{
    const uint64_t bytes = round_to(t->bytes, w->granule);
    switch (w->mode) {
    case WGRAD_KEEP: w->wgrad += bytes; return 0;
    case WGRAD_NONE:
        if (t->matmul)
            return 0;
        return bytes;
    case WGRAD_FREE:
    case WGRAD_MODES: return bytes;
    }
    return bytes;
}

static void backward_grads(struct walk *w, const struct op *op, int32_t g)
{
    int32_t made[OP_IN_MAX];
    uint64_t moment = backward_workspace(w, op);
    /* cross entropies write the gradient over what forward kept */
    if (op->kind == OP_CROSS_ENTROPY || op->kind == OP_FUSED_CROSS_ENTROPY)
        release_saved(w, op);
    for (unsigned i = 0; i < op->n_in; i++) {
        made[i] = NO_GRAD;
        if (is_stand_in(w, op, i) || !wants_grad(w, op->in[i]))
            continue;
        const struct tensor *t = &w->p->tensor[op->in[i]];
        if (t->role == ROLE_PARAM) {
            moment += weight_grad(w, t);
        } else if (g >= 0 && aliases(w, op, i)) {
            made[i] = g;
            w->buffer[g].refs++;
        } else {
            made[i] = buffer_new(w, t->bytes);
        }
    }
    w->tmp += moment;
    note(w);
    w->tmp -= moment;
    for (unsigned i = 0; i < op->n_in; i++)
        if (made[i] != NO_GRAD)
            give(w, op->in[i], made[i], gives_view(op));
    if (op->kind != OP_CROSS_ENTROPY && op->kind != OP_FUSED_CROSS_ENTROPY)
        release_saved(w, op);
}

static void backward_op(struct walk *w, const struct op *op, uint32_t k)
{
    w->at = k;
    int32_t g = NO_GRAD;
    bool any = false;
    for (unsigned i = 0; i < op->n_out; i++) {
        const struct walk_slot *s = slot_of(w, op->out[i]);
        if (s == NULL || s->grad == NO_GRAD)
            continue;
        any = true;
        if (i == 0)
            g = s->grad;
    }
    if (any)
        backward_grads(w, op, g);
    else
        release_saved(w, op);
    for (unsigned i = 0; i < op->n_out; i++) {
        struct walk_slot *s = slot_of(w, op->out[i]);
        if (s == NULL || s->grad == NO_GRAD)
            continue;
        buffer_release(w, s->grad);
        s->grad = NO_GRAD;
    }
}

/* Makes again what a region kept nothing of: operations first..last. */
static void recompute_region(struct walk *w, uint32_t first, uint32_t last)
{
    uint64_t dups = 0;
    for (uint32_t k = first; k <= last; k++) {
        const struct op *op = &w->p->op[w->b->op_first + k];
        w->at = k;
        for (unsigned i = 0; i < op->n_out; i++) {
            struct walk_slot *s = root_of(w, op->out[i]);
            if (s == NULL)
                continue;
            if (!s->live) {
                slot_alloc(w, s, true);
            } else if (s->kept && s->first_use == k) {
                dups += s->bytes; /* the region's result, a second time */
                w->tmp += s->bytes;
            }
        }
        note(w);
        for (unsigned i = 0; i < op->n_in; i++) {
            struct walk_slot *s = root_of(w, op->in[i]);
            if (s != NULL && s->live && !s->kept && s->saves == 0
                && s->last_use == k)
                slot_free(w, s, true);
        }
    }
    w->tmp -= dups;
    /* results that nobody keeps die with the recomputation's frame */
    for (uint32_t k = first; k <= last; k++) {
        const struct op *op = &w->p->op[w->b->op_first + k];
        for (unsigned i = 0; i < op->n_out; i++) {
            struct walk_slot *s = root_of(w, op->out[i]);
            if (s != NULL && s->live && !s->kept && s->saves == 0)
                slot_free(w, s, true);
        }
    }
}

static void recompute_once(struct walk *w, uint32_t k)
{
    const uint32_t first = run_first(w, k);
    for (uint32_t i = 0; i < w->n_done; i++)
        if (w->done[i] == first)
            return;
    if (w->n_done < DONE_MAX)
        w->done[w->n_done++] = first;
    recompute_region(w, first, run_last(w, k));
}

/* Makes again what an operation kept but a region discarded. */
static void restore_saved(struct walk *w, const struct op *op)
{
    tensor_id saved[SAVED_MAX];
    const size_t n = op_saves(w->p, op, saved);
    for (size_t i = 0; i < n; i++) {
        const struct walk_slot *s = root_of(w, saved[i]);
        if (s != NULL && !s->live && !s->kept && is_discarded(w, s))
            recompute_once(w, s->first_use);
    }
}

/* After walk_forward: everything kept is live. */
static struct extremum walk_backward(struct walk *w, enum wgrad_mode mode)
{
    const struct block *b = w->b;
    w->mode = mode;
    w->n_buffers = 0;
    w->kept = w->tmp = w->wgrad = 0;
    w->top = (struct extremum){ 0 };
    for (uint32_t i = 0; i <= b->tensor_count; i++) {
        struct walk_slot *s = &w->slot[i];
        s->saves = s->saves_all;
        s->grad = NO_GRAD;
        s->live = s->kept;
        if (s->kept)
            w->kept += s->bytes;
    }
    if (b->output != TENSOR_NONE && wants_grad(w, b->output))
        slot_of(w, b->output)->grad =
            buffer_new(w, w->p->tensor[b->output].bytes);
    w->at = b->op_count == 0 ? 0 : b->op_count - 1;
    note(w);

    w->n_done = 0;
    for (uint32_t k = b->op_count; k-- > 0;) {
        const struct op *op = op_at(w, k);
        restore_saved(w, op);
        if (region_active(w, op))
            recompute_once(w, k);
        backward_op(w, op, k);
    }
    return w->top;
}

/* ---- results ---- */

static uint64_t weight_grads(const struct program *p, const struct block *b,
                             uint64_t granule)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < b->tensor_count; i++) {
        const struct tensor *t = &p->tensor[b->tensor_first + i];
        if (t->role == ROLE_PARAM && t->trainable)
            sum += round_to(t->bytes, granule);
    }
    return sum;
}

void walk_block(struct block_walk *out, const struct program *p,
                const struct block *block, uint64_t regions, unsigned modes,
                struct walk_scratch *scratch)
{
    struct walk w = { .p = p,
                      .b = block,
                      .slot = scratch->slot,
                      .buffer = scratch->buffer,
                      .regions = regions,
                      .granule = scratch->granule,
                      .bare = scratch->bare };
    *out = (struct block_walk){ 0 };
    walk_init(&w);
    const struct walk_slot *in = &w.slot[block->tensor_count];
    out->keeps_input = in->kept;
    out->input = in->bytes;
    if (block->output != TENSOR_NONE)
        out->output =
            round_to(p->tensor[block->output].bytes, scratch->granule);
    for (uint32_t i = 0; i <= block->tensor_count; i++)
        if (w.slot[i].kept)
            out->kept += w.slot[i].bytes;
    out->wgrad = weight_grads(p, block, scratch->granule);
    out->forward_nograd = walk_forward(&w, false);
    out->forward = walk_forward(&w, true);
    for (unsigned m = 0; m < WGRAD_MODES; m++)
        if ((modes >> m & 1) != 0)
            out->backward[m] = walk_backward(&w, (enum wgrad_mode)m);
}

static void list_kept(struct walk *w, tensor_id id, const struct op *op,
                      walk_kept_fn *each, void *ctx)
{
    struct walk_slot *s = root_of(w, id);
    if (s == NULL || !s->kept)
        return;
    s->kept = false; /* listed once */
    each(ctx, &w->p->tensor[w->p->tensor[id].storage], op, s->bytes);
}

void walk_kept(const struct program *p, const struct block *block,
               uint64_t regions, struct walk_scratch *scratch,
               walk_kept_fn *each, void *ctx)
{
    struct walk w = { .p = p,
                      .b = block,
                      .slot = scratch->slot,
                      .buffer = scratch->buffer,
                      .regions = regions,
                      .granule = scratch->granule,
                      .bare = scratch->bare };
    walk_init(&w);
    for (uint32_t k = 0; k < block->op_count; k++) {
        const struct op *op = op_at(&w, k);
        tensor_id saved[SAVED_MAX];
        const size_t n = op_saves(p, op, saved);
        for (size_t i = 0; i < n; i++)
            list_kept(&w, saved[i], op, each, ctx);
        if (!region_active(&w, op))
            continue;
        for (unsigned i = 0; i < op->n_in; i++) /* a checkpoint's inputs */
            list_kept(&w, op->in[i], op, each, ctx);
    }
}
