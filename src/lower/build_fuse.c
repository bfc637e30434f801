/*
 * Owns what torch.compile makes of a block: element-wise operations and the
 * reductions of norms that follow one another become one kernel, which writes
 * only what others read. Of what their backward needs, the partitioner keeps
 * what such a kernel reads or writes anyway and the results of reductions;
 * the rest is computed again within the backward kernel
 * (torch/_functorch/partitioners.py, min_cut_rematerialization_partition).
 * What a matrix product keeps stays kept, for it would have to be written.
 * Refuses to know products, attention and collectives. [docs/method.md
 * eq. torchtitan]
 */
#include "lower/build_private.h"

#include <string.h>

#include "base/banned.h"

enum {
    MOST_OPS = 256, /* of a block; a larger one is left as it is */
    MOST_TENSORS = 512,
    NO_OP = 0xffff
};

struct fuser {
    struct program *p;
    const struct block *block;
    struct op *op; /* the block's, as they were */
    uint32_t n;
    uint16_t maker[MOST_TENSORS]; /* operation, by tensor of the block */
    uint16_t group[MOST_OPS];     /* first operation of its kernel */
    bool closed[MOST_OPS];        /* by group: something else has read it */
};

static bool fuses(enum op_kind kind)
{
    switch (kind) {
    case OP_ADD:
    case OP_MUL:
    case OP_SCALE:
    case OP_NEG:
    case OP_DIV:
    case OP_POW:
    case OP_MEAN:
    case OP_RSQRT:
    case OP_TANH:
    case OP_ACTIVATION:
    case OP_RELU:
    case OP_CAST:
    case OP_COPY:
    case OP_VIEW:
    case OP_LAYER_NORM:
    case OP_RMS_NORM:
    case OP_SWIGLU:
    case OP_WHERE: return true;
    case OP_EMBEDDING:
    case OP_LINEAR:
    case OP_MATMUL:
    case OP_CONV:
    case OP_BATCH_NORM:
    case OP_MAX_POOL:
    case OP_AVG_POOL:
    case OP_SOFTMAX:
    case OP_MASKED_SOFTMAX:
    case OP_LOG_SOFTMAX:
    case OP_NLL_LOSS:
    case OP_PYTHON_GELU:
    case OP_CAT:
    case OP_DROPOUT:
    case OP_DROPOUT_ADD:
    case OP_FLASH_ATTENTION:
    case OP_SDPA:
    case OP_CROSS_ENTROPY:
    case OP_COMPILED_CROSS_ENTROPY:
    case OP_FUSED_CROSS_ENTROPY:
    case OP_TOPK:
    case OP_INDEX:
    case OP_QUANTIZE:
    case OP_RELEASE:
    case OP_ALL_REDUCE:
    case OP_ALL_GATHER:
    case OP_REDUCE_SCATTER:
    case OP_ALL_TO_ALL:
    case OP_FUSED:
    case OP_FUNCTION:
    case OP_LOOP:
    case OP_SOLVE:
    case OP_CUMSUM:
    case OP_KIND_COUNT: return false;
    }
    return false;
}

static uint16_t maker_of(const struct fuser *f, tensor_id t)
{
    if (t < f->block->tensor_first
        || t - f->block->tensor_first >= f->block->tensor_count)
        return NO_OP;
    return f->maker[t - f->block->tensor_first];
}

static tensor_id root_of(const struct fuser *f, tensor_id t)
{
    return f->p->tensor[t].storage;
}

/* Group of the operation that made t, NO_OP when none that fuses did. */
static uint16_t group_of(const struct fuser *f, tensor_id t)
{
    const uint16_t k = maker_of(f, t);
    return k == NO_OP || !fuses(f->op[k].kind) ? NO_OP : f->group[k];
}

/* ---- groups ---- */

static void merge(struct fuser *f, uint16_t into, uint16_t from, uint32_t upto)
{
    for (uint32_t i = 0; i < upto; i++)
        if (f->group[i] == from)
            f->group[i] = into;
}

/* An operation joins the kernels that made its operands, unless something else
 * has read from them: then it may depend on that, and comes later. */
static void place(struct fuser *f, uint16_t k)
{
    const struct op *op = &f->op[k];
    const bool joins = fuses(op->kind);
    f->group[k] = k;
    f->closed[k] = !joins;
    for (unsigned i = 0; i < op->n_in; i++) {
        const uint16_t g = group_of(f, op->in[i]);
        if (g == NO_OP)
            continue;
        if (!joins)
            f->closed[g] = true;
        else if (!f->closed[g] && g != f->group[k])
            merge(f, g, f->group[k], k + 1u);
    }
    for (unsigned i = 0; i < op->n_out; i++)
        f->maker[op->out[i] - f->block->tensor_first] = k;
}

/* A kernel of its own is not what one operation, seen differently, becomes. */
static bool is_kernel(const struct fuser *f, uint16_t g)
{
    unsigned works = 0;
    for (uint32_t k = 0; k < f->n; k++)
        works += f->group[k] == g && f->op[k].kind != OP_VIEW;
    return works > 1;
}

/* ---- one kernel ---- */

static bool add_unique(tensor_id *list, uint8_t *n, unsigned most, tensor_id t)
{
    for (unsigned i = 0; i < *n; i++)
        if (list[i] == t)
            return true;
    if (*n == most)
        return false;
    list[(*n)++] = t;
    return true;
}

static bool is_read_elsewhere(const struct fuser *f, tensor_id t, uint16_t g)
{
    if (f->block->output != TENSOR_NONE
        && (t == f->block->output || t == root_of(f, f->block->output)))
        return true;
    for (uint32_t k = 0; k < f->n; k++)
        for (unsigned i = 0; f->group[k] != g && i < f->op[k].n_in; i++)
            if (f->op[k].in[i] == t)
                return true;
    return false;
}

/* What the kernel reads and writes; false when it is too much for one. */
static bool operands(const struct fuser *f, uint16_t g, struct op *out)
{
    bool fits = true;
    for (uint32_t k = 0; k < f->n; k++) {
        const struct op *op = &f->op[k];
        if (f->group[k] != g)
            continue;
        for (unsigned i = 0; i < op->n_in; i++)
            if (group_of(f, op->in[i]) != g)
                fits = add_unique(out->in, &out->n_in, OP_IN_MAX, op->in[i])
                       && fits;
        for (unsigned i = 0; i < op->n_out; i++)
            if (is_read_elsewhere(f, op->out[i], g))
                fits = add_unique(out->out, &out->n_out, OP_OUT_MAX, op->out[i])
                       && fits;
    }
    return fits;
}

/* Gradients of terms of one sum are one tensor. */
static void mark_sums(const struct fuser *f, uint16_t g, struct op *out)
{
    for (uint32_t k = 0; k < f->n; k++) {
        const struct op *op = &f->op[k];
        if (f->group[k] != g || op->kind != OP_ADD)
            continue;
        for (unsigned i = 0; i < out->n_in; i++)
            for (unsigned j = 0; j < op->n_in; j++)
                if (out->in[i] == op->in[j])
                    out->sum_in |= UINT32_C(1) << i;
    }
}

static bool keep_if_among(const struct fuser *f, const tensor_id *list,
                          unsigned n, tensor_id root, uint32_t *mask)
{
    for (unsigned i = 0; i < n; i++) {
        if (root_of(f, list[i]) != root)
            continue;
        *mask |= UINT32_C(1) << i;
        return true;
    }
    return false;
}

/* A result of a reduction: several times smaller than what it was made from
 * (a quarter, in the partitioner), it is kept, never computed again. */
static bool is_reduced(const struct fuser *f, const struct op *out,
                       tensor_id root)
{
    enum { SMALLER = 4 };
    uint64_t most = 0;
    for (unsigned i = 0; i < out->n_in; i++)
        most = max_u64(most, f->p->tensor[out->in[i]].elems);
    return f->p->tensor[root].elems < most / SMALLER;
}

/* Keeps a storage that backward needs, or what it is made from. Operations are
 * in order, so that the chain back ends. */
static bool keep_for(const struct fuser *f, struct op *out, tensor_id root)
{
    tensor_id stack[MOST_OPS];
    unsigned n = 0;
    stack[n++] = root;
    while (n > 0) {
        const tensor_id t = root_of(f, stack[--n]);
        if (keep_if_among(f, out->in, out->n_in, t, &out->keep_in)
            || keep_if_among(f, out->out, out->n_out, t, &out->keep_out))
            continue;
        if (is_reduced(f, out, t)) {
            if (!add_unique(out->out, &out->n_out, OP_OUT_MAX, t))
                return false;
            out->keep_out |= UINT32_C(1) << (out->n_out - 1);
            continue;
        }
        const uint16_t k = maker_of(f, t);
        for (unsigned i = 0; k != NO_OP && i < f->op[k].n_in; i++) {
            if (n == MOST_OPS)
                return false;
            stack[n++] = f->op[k].in[i];
        }
    }
    return true;
}

/* The kernel of a group; false when it does not fit an operation. */
static bool kernel(const struct fuser *f, uint16_t g, struct op *out)
{
    *out = (struct op){ .kind = OP_FUSED };
    if (!operands(f, g, out))
        return false;
    mark_sums(f, g, out);
    for (uint32_t k = 0; k < f->n; k++) {
        if (f->group[k] != g)
            continue;
        out->name = f->op[k].name;
        out->region = f->op[k].region;
        out->node = f->op[k].node;
        tensor_id saved[SAVED_MAX];
        const size_t n = op_saves(f->p, &f->op[k], saved);
        for (size_t i = 0; i < n; i++)
            if (!keep_for(f, out, saved[i]))
                return false;
    }
    return true;
}

/* ---- the block ---- */

static bool is_last_of(const struct fuser *f, uint32_t k)
{
    for (uint32_t i = k + 1; i < f->n; i++)
        if (f->group[i] == f->group[k])
            return false;
    return true;
}

/* Groups that are no kernel stay as they were. */
static void dissolve(struct fuser *f)
{
    struct op unused;
    for (uint16_t g = 0; g < f->n; g++) {
        const bool one = is_kernel(f, g) && kernel(f, g, &unused);
        for (uint32_t k = 0; !one && k < f->n; k++)
            if (f->group[k] == g && k != g)
                f->group[k] = NO_OP;
    }
    for (uint16_t k = 0; k < f->n; k++)
        if (f->group[k] == k && !is_kernel(f, k))
            f->group[k] = NO_OP;
}

static uint32_t write_ops(const struct fuser *f, struct op *to)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < f->n; k++) {
        if (f->group[k] == NO_OP)
            to[n++] = f->op[k];
        else if (is_last_of(f, k))
            kernel(f, f->group[k], &to[n++]);
    }
    return n;
}

void build_fuse(struct builder *b, struct block *block)
{
    struct program *p = b->p;
    if (block->op_count > MOST_OPS || block->tensor_count > MOST_TENSORS
        || b->failed)
        return;
    struct fuser *f = ARENA_NEW(b->arena, struct fuser, 1);
    struct op *copy = ARENA_NEW(b->arena, struct op, block->op_count);
    if (f == NULL || copy == NULL) {
        b->failed = true;
        return;
    }
    struct op *ops = &p->op[block->op_first];
    memcpy(copy, ops, block->op_count * sizeof(*ops));
    *f = (struct fuser){
        .p = p, .block = block, .op = copy, .n = block->op_count
    };
    memset(f->maker, 0xff, sizeof(f->maker));
    for (uint16_t k = 0; k < f->n; k++)
        place(f, k);
    dissolve(f);
    block->op_count = write_ops(f, ops);
    p->n_ops = block->op_first + block->op_count;
}
