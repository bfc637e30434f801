/*
 * What a backward kernel has for a moment beside its results, kind by kind.
 * [docs/method.md eq. transient]
 */
#include "fold/walk_private.h"

#include "base/banned.h"

/* Up to the next multiple, for the flash kernels' padded scratch. */
static uint64_t pad_to(uint64_t n, uint64_t multiple)
{
    return div_up(n, multiple) * multiple;
}

static bool regathered(const struct walk *w, const struct op *op, unsigned i)
{
    const struct tensor *in = &w->p->tensor[op->in[0]];
    const bool first = i == 2 || !walk_is_stand_in(w, op, i - 1);
    return first && walk_is_stand_in(w, op, i)
           && w->p->tensor[op->in[i]].elems < in->elems && !in->pooled
           && !in->shared_out;
}

/* For the weight's gradient. */
uint64_t walk_gathers_again(const struct walk *w, const struct op *op)
{
    uint64_t bytes = 0;
    for (unsigned i = 2; i < op->n_in; i++)
        if (regathered(w, op, i))
            bytes += w->p->tensor[op->in[0]].bytes;
    return bytes;
}

/* A sum over rows, as of a bias's gradient: threads take four columns each, and
 * rows are split over blocks of 128 threads where a thread would have 256 or
 * more. What is set aside for their partial sums is four columns by 32 threads
 * for each block and output, 128 times what is used
 * (aten/src/ATen/native/cuda/Reduce.cuh, setReduceConfig, global_memory_size).
 */
static uint64_t sum_workspace(const struct walk *w, uint64_t columns,
                              uint64_t rows)
{
    enum { VECTOR = 4, WARP = 32, WARPS = 4, FEWEST = 16, MOST = 256 };
    const uint64_t each = div_up(rows, WARPS);
    const uint64_t grid = div_up(columns, (uint64_t)VECTOR * WARP);
    if (w->bare || w->reduce_blocks == 0 || columns % VECTOR != 0
        || columns < (uint64_t)VECTOR * WARP || each < MOST
        || grid > w->reduce_blocks)
        return 0;
    const uint64_t split =
        max_u64(min_u64(div_up(w->reduce_blocks, grid), div_up(each, FEWEST)),
                div_up(each, MOST));
    return split * columns * VECTOR * WARP * sizeof(float);
}

APART uint64_t bias_workspace(const struct walk *w, const struct op *op)
{
    const struct tensor *out = &w->p->tensor[op->out[0]];
    uint64_t most = 0;
    for (unsigned i = 2; i < op->n_in; i++) {
        const struct tensor *t = &w->p->tensor[op->in[i]];
        if (t->role == ROLE_PARAM && !t->matmul && t->elems != 0
            && walk_wants_grad(w, op->in[i]))
            most = max_u64(most,
                           sum_workspace(w, t->elems, out->elems / t->elems));
    }
    return most;
}

/* Of more words than 3072, sorted: a row for each segment of at most ten equal
 * ones, in fp32, room for the most that there can be
 * (aten/src/ATen/native/cuda/Embedding.cu, EmbeddingBackwardKernel.cu). */
APART uint64_t table_workspace(const struct walk *w, const struct op *op)
{
    enum { UNSORTED = 3072, SEGMENT = 10, WARP = 32 };
    const struct tensor *table = &w->p->tensor[op->in[0]];
    const struct tensor *out = &w->p->tensor[op->out[0]];
    const uint64_t width = table->cols;
    if (w->bare || w->reduce_blocks == 0 || table->role != ROLE_PARAM
        || width == 0 || !walk_wants_grad(w, op->in[0]))
        return 0;
    const uint64_t words = out->elems / width;
    if (words <= UNSORTED)
        return 0;
    const uint64_t segments = words / SEGMENT + min_u64(words, table->rows);
    return segments * pad_to(width, WARP) * sizeof(float);
}

/* An input that was gathered for the product is gathered again, a quantised
 * weight is dequantised again: 4-bit ones as in forward, int8 ones in the
 * input's dtype. */
APART uint64_t linear_again(const struct walk *w, const struct op *op)
{
    const struct tensor *in = &w->p->tensor[op->in[0]];
    const struct tensor *weight = &w->p->tensor[op->in[1]];
    uint64_t bytes = op->back_bytes;
    if (weight->role == ROLE_PARAM && weight->dtype == DT_INT8)
        bytes += weight->elems * dtype_size(in->dtype);
    if (!walk_defers(w, op))
        bytes += walk_gathers_again(w, op);
    for (unsigned i = 2; i < op->n_in; i++) {
        const struct tensor *t = &w->p->tensor[op->in[i]];
        if (!regathered(w, op, i) && t->role == ROLE_PARAM && t->matmul)
            bytes += weight->bytes;
    }
    return bytes;
}

/* A factor's gradient is made in the product's shape and dtype. All are, before
 * the engine looks at them one by one: sums those of what was broadcast, casts
 * those of what is narrower (torch/csrc/autograd/engine.cpp,
 * validate_outputs). What they will be is counted apart: the most that is there
 * beyond it. */
APART void factor_workspace(const struct walk *w, const struct op *op,
                            const struct tensor *out, struct walk_parts *parts)
{
    uint64_t later = 0, most = 0, rest = 0, sum = 0;
    for (unsigned i = op->n_in; i-- > 0;) {
        const struct tensor *t = &w->p->tensor[op->in[i]];
        if (!walk_wants_grad(w, op->in[i])
            || (t->elems == out->elems && t->dtype == out->dtype))
            continue;
        if (out->bytes + later > most + rest) {
            most = out->bytes;
            rest = later;
        }
        later += out->bytes - min_u64(t->bytes, out->bytes);
        if (t->role == ROLE_PARAM && t->elems < out->elems && t->elems != 0)
            sum = sum_workspace(w, t->elems, out->elems / t->elems);
    }
    walk_parts_add(parts, most);
    walk_parts_add(parts, rest);
    walk_parts_add(parts, sum);
}

/* The same before any is cast, when saved tensors are still there. */
uint64_t walk_uncast_factors(const struct walk *w, const struct op *op)
{
    const struct tensor *out = &w->p->tensor[op->out[0]];
    uint64_t sum = 0;
    for (unsigned i = 0; i < op->n_in; i++) {
        const struct tensor *t = &w->p->tensor[op->in[i]];
        if (walk_wants_grad(w, op->in[i])
            && (t->elems != out->elems || t->dtype != out->dtype))
            sum += out->bytes - min_u64(t->bytes, out->bytes);
    }
    return sum;
}

/* dq is summed in fp32; grouped k, v get a gradient a query head first
 * (flash-attention csrc/flash_attn/flash_api.cpp). */
APART uint64_t flash_workspace(const struct walk *w, const struct op *op,
                               struct walk_parts *parts)
{
    const struct tensor *q = &w->p->tensor[op->in[0]];
    const struct tensor *k = &w->p->tensor[op->in[1]];
    const uint64_t sums = op->n_out > 1 ? w->p->tensor[op->out[1]].bytes : 0;
    if (w->bare)
        return 0;
    if (w->cudnn) /* in one piece; 256: its own, in forward too */
        return q->elems * 4 + sums + 256
               + (k->elems < q->elems ? 2 * q->bytes : 0);
    if (k->elems < q->elems) {
        walk_parts_add(parts, q->bytes);
        walk_parts_add(parts, q->bytes);
    }
    return pad_to(q->elems, 128) * 4;
}

/* In the allocator's eyes two tensors are not one of twice the size: that finds
 * no room where each of them does. */
static uint64_t fused_workspace(const struct op *op, struct walk_parts *parts)
{
    const uint64_t n = max_u64(op->back_pieces, 1);
    for (uint64_t i = 1; i < n; i++)
        walk_parts_add(parts, op->back_bytes / n);
    return op->back_bytes / n;
}

/* What a backward kernel has for a moment beside its results. */
uint64_t walk_workspace(const struct walk *w, const struct op *op,
                        struct walk_parts *parts)
{
    const struct tensor *in = &w->p->tensor[op->in[0]];
    const struct tensor *out = &w->p->tensor[op->out[0]];
    switch (op->kind) {
    case OP_POW: /* x^(c-1) and c times it live to the end of the expression
                    grad * (c * x.pow(c - 1)) (FunctionsManual.cpp) */
        walk_parts_add(parts, in->bytes);
        return in->bytes;
    case OP_MUL: factor_workspace(w, op, out, parts); return 0;
    case OP_FUSED: return fused_workspace(op, parts);
    case OP_FUNCTION:
    case OP_LOOP:
    case OP_ALL_GATHER:
    case OP_REDUCE_SCATTER:
    case OP_SWIGLU: return op->back_bytes;
    case OP_EMBEDDING:
        walk_parts_add(parts, table_workspace(w, op));
        return op->back_bytes;
    case OP_SOLVE: /* the system's gradient is a product, negated and cut to its
                      triangle: two of them at a time (FunctionsManual.cpp,
                      linalg_solve_triangular_backward) */
        return in->bytes;
    case OP_CUMSUM: /* summed up from the other end: flipped, summed, flipped
                       (cumsum_backward) */
        walk_parts_add(parts, in->bytes);
        return in->bytes;
    case OP_FLASH_ATTENTION:
        walk_parts_add(parts, op->back_bytes);
        return flash_workspace(w, op, parts);
    case OP_LINEAR: /* one after the other */
        return max_u64(linear_again(w, op), bias_workspace(w, op));
    case OP_PYTHON_GELU: /* bloom_gelu_back: five temporaries at most, the
                            result when they are gone (modeling_bloom.py) */
        return 4 * out->bytes;
    case OP_COMPILED_CROSS_ENTROPY: /* a clone of the softmax, that the target's
                                       entries are put into */
        return w->p->tensor[op->out[2]].bytes;
    case OP_SOFTMAX: /* grad * output first (aten/src/ATen/native/cuda/
                        SoftMax.cu, softmax_backward_cuda_out) */
        return out->bytes;
    case OP_MASKED_SOFTMAX:
    case OP_MATMUL:
    case OP_ADD:
    case OP_SCALE:
    case OP_NEG:
    case OP_DIV:
    case OP_MEAN:
    case OP_RSQRT:
    case OP_TANH:
    case OP_LOG_SOFTMAX:
    case OP_NLL_LOSS:
    case OP_ACTIVATION:
    case OP_RELU:
    case OP_CAST:
    case OP_COPY:
    case OP_VIEW:
    case OP_CAT:
    case OP_DROPOUT:
    case OP_DROPOUT_ADD:
    case OP_LAYER_NORM:
    case OP_CONV:
    case OP_BATCH_NORM:
    case OP_MAX_POOL:
    case OP_AVG_POOL:
    case OP_RMS_NORM:
    case OP_SDPA:
    case OP_CROSS_ENTROPY:
    case OP_FUSED_CROSS_ENTROPY:
    case OP_WHERE:
    case OP_TOPK:
    case OP_INDEX:
    case OP_QUANTIZE:
    case OP_RELEASE:
    case OP_ALL_REDUCE:
    case OP_ALL_TO_ALL:
    case OP_KIND_COUNT: return 0;
    }
    return 0;
}
