/*
 * Owns which results outlive a checkpoint that decides operation by operation:
 * torchtitan's policy (distributed/activation_checkpoint.py, SelectiveAC; the
 * same from 2024 on). Attention's results stay, what a reduce-scatter brought,
 * and of the matrix products the first, the third, and so on; float8 products
 * count with the others, for they are dispatched as such. Refuses to know what
 * a step does with a checkpoint. [docs/method.md eq. recompute]
 */
#include "lower/build_private.h"

#include "base/banned.h"

static bool outlives(const struct op *op, unsigned *products)
{
    switch (op->kind) {
    case OP_CONV:
    case OP_LINEAR:
    case OP_MATMUL: return ++*products % 2 == 1;
    case OP_FLASH_ATTENTION:
    case OP_SDPA:
    case OP_REDUCE_SCATTER: return true;
    case OP_EMBEDDING:
    case OP_ADD:
    case OP_MUL:
    case OP_SCALE:
    case OP_NEG:
    case OP_DIV:
    case OP_POW:
    case OP_MEAN:
    case OP_RSQRT:
    case OP_TANH:
    case OP_SOFTMAX:
    case OP_MASKED_SOFTMAX:
    case OP_LOG_SOFTMAX:
    case OP_NLL_LOSS:
    case OP_ACTIVATION:
    case OP_PYTHON_GELU:
    case OP_RELU:
    case OP_CAST:
    case OP_COPY:
    case OP_VIEW:
    case OP_CAT:
    case OP_DROPOUT:
    case OP_DROPOUT_ADD:
    case OP_LAYER_NORM:
    case OP_BATCH_NORM:
    case OP_MAX_POOL:
    case OP_AVG_POOL:
    case OP_RMS_NORM:
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
    case OP_QUANTIZE:
    case OP_RELEASE:
    case OP_ALL_REDUCE:
    case OP_ALL_GATHER:
    case OP_ALL_TO_ALL:
    case OP_KIND_COUNT: return false;
    }
    return false;
}

static bool *needed_of(struct builder *b, const struct block *block,
                       bool *needed, tensor_id t)
{
    const tensor_id root = b->p->tensor[t].storage;
    if (root < block->tensor_first
        || root - block->tensor_first >= block->tensor_count)
        return NULL;
    return &needed[root - block->tensor_first];
}

static bool makes_needed(struct builder *b, const struct block *block,
                         bool *needed, const struct op *op)
{
    for (unsigned i = 0; i < op->n_out; i++) {
        const bool *one = needed_of(b, block, needed, op->out[i]);
        if (one != NULL && *one)
            return true;
    }
    return false;
}

/* Compiled, a checkpoint is one graph: what no gradient depends on is neither
 * kept nor made again. */
static void forget_unneeded(struct builder *b, const struct block *block)
{
    bool *needed = ARENA_NEW(b->arena, bool, block->tensor_count + 1u);
    if (needed == NULL) {
        b->failed = true;
        return;
    }
    for (uint32_t k = 0; k < block->op_count; k++) {
        tensor_id saved[SAVED_MAX];
        const size_t n = op_saves(b->p, &b->p->op[block->op_first + k], saved);
        for (size_t i = 0; i < n; i++) {
            bool *one = needed_of(b, block, needed, saved[i]);
            if (one != NULL)
                *one = true;
        }
    }
    for (uint32_t k = block->op_count; k-- > 0;) {
        struct op *op = &b->p->op[block->op_first + k];
        if (!makes_needed(b, block, needed, op)) {
            op->checkpointed = false;
            continue;
        }
        for (unsigned i = 0; !op->checkpointed && i < op->n_in; i++) {
            bool *one = needed_of(b, block, needed, op->in[i]);
            if (one != NULL)
                *one = true;
        }
    }
}

void build_policy(struct builder *b, const struct block *block)
{
    unsigned products = 0;
    for (uint32_t k = 0; k < block->op_count; k++) {
        struct op *op = &b->p->op[block->op_first + k];
        op->checkpointed = outlives(op, &products);
    }
    if (b->run->compile && !b->failed)
        forget_unneeded(b, block);
}
