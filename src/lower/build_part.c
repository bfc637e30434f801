/*
 * Owns what layers of several kinds begin with alike, such as the attention of
 * dense ones and of those with experts: lowered for the first of them, copied for
 * the next. Refuses to know what it does.
 */
#include "lower/build_private.h"

#include <string.h>

#include "base/banned.h"

/* ---- what there is to copy ---- */

/* Whether nothing of the block stands before what follows, and its operations
 * stay as they are built. */
static bool begins_block(const struct builder *b)
{
    const struct program *p = b->p;
    return p->n_ops == b->block->op_first
           && p->n_tensors == b->block->tensor_first && b->n_frame == 0
           && !b->run->compile && b->run->recompute != RECOMP_OPS;
}

static bool is_of(const struct beginning *part, tensor_id id)
{
    return id - part->tensor_first < part->n_tensors; /* huge when before it */
}

/* The input differs, and what the block before it has is anybody's. */
static bool is_known(const struct beginning *part, tensor_id id)
{
    return is_of(part, id) || id == part->input || id < part->tensor_first;
}

static bool knows_operands(const struct builder *b,
                           const struct beginning *part)
{
    for (uint32_t k = 0; k < part->n_ops; k++) {
        const struct op *op = &b->p->op[part->op_first + k];
        for (unsigned i = 0; i < op->n_in; i++)
            if (!is_known(part, op->in[i]))
                return false;
    }
    return true;
}

static bool same_input(const struct builder *b, tensor_id x, tensor_id y)
{
    const struct tensor *t = tensor_of(b, x), *u = tensor_of(b, y);
    return t->needs_grad == u->needs_grad && t->dtype == u->dtype
           && t->elems == u->elems;
}

/* ---- the copy ---- */

/* What stands for a tensor of the part in its copy, which takes x. */
static tensor_id again(const struct beginning *part, tensor_id id, tensor_id x,
                       uint32_t further)
{
    if (is_of(part, id))
        return id + further;
    return id == part->input ? x : id;
}

static void copy_tensors(struct builder *b, const struct beginning *part,
                         tensor_id x, uint32_t further)
{
    struct tensor *t = &b->p->tensor[part->tensor_first + further];
    memcpy(t, &b->p->tensor[part->tensor_first], part->n_tensors * sizeof *t);
    for (uint32_t i = 0; i < part->n_tensors; i++, t++) {
        t->storage = again(part, t->storage, x, further);
        if (t->role == ROLE_PARAM || t->role == ROLE_BUFFER)
            build_rests(b, part->tensor_first + further + i);
    }
}

static void copy_ops(const struct builder *b, const struct beginning *part,
                     tensor_id x, uint32_t further, uint32_t later)
{
    struct op *op = &b->p->op[part->op_first + later], *end = op + part->n_ops;
    memcpy(op, &b->p->op[part->op_first], part->n_ops * sizeof *op);
    for (; op < end; op++) {
        op->recalls += op->recalls != 0 ? later : 0;
        for (unsigned i = 0; i < op->n_in; i++)
            op->in[i] = again(part, op->in[i], x, further);
        for (unsigned i = 0; i < op->n_out; i++)
            op->out[i] = again(part, op->out[i], x, further);
    }
}

static tensor_id copy_part(struct builder *b, const struct beginning *part,
                           tensor_id x)
{
    const uint32_t further = b->p->n_tensors - part->tensor_first;
    const uint32_t later = b->p->n_ops - part->op_first;
    if (!build_take_rows(b, part->n_tensors, part->n_ops))
        return x;
    copy_tensors(b, part, x, further);
    copy_ops(b, part, x, further, later);
    b->weights = again(part, part->weights, x, further);
    b->branch = again(part, part->branch, x, further);
    b->module = part->module;
    b->block->global_buffer_bytes = part->global_buffer_bytes;
    return again(part, part->result, x, further);
}

/* ---- either ---- */

tensor_id build_part(struct builder *b, const struct layer_kind *kind,
                     tensor_id x, layer_fn *make)
{
    struct program *p = b->p;
    struct beginning *part = &b->part;
    const uint32_t block = (uint32_t)(b->block - p->block);
    if (b->failed || !b->in_layers || !begins_block(b))
        return make(b, kind, x);
    if (part->n_ops > 0 && build_begins_alike(&part->kind, kind)
        && same_input(b, part->input, x) && knows_operands(b, part)) {
        struct block *first = &p->block[part->block];
        b->block->common_ops = first->common_ops = part->n_ops;
        b->block->common_tensors = first->common_tensors = part->n_tensors;
        b->block->begins_as = part->block;
        return copy_part(b, part, x);
    }
    const tensor_id result = make(b, kind, x);
    const bool whole = b->n_frame == 0;
    *part = (struct beginning){
        .kind = *kind,
        .block = block,
        .op_first = b->block->op_first,
        .n_ops = whole ? p->n_ops - b->block->op_first : 0,
        .tensor_first = b->block->tensor_first,
        .n_tensors = p->n_tensors - b->block->tensor_first,
        .input = x,
        .result = result,
        .weights = b->weights,
        .branch = b->branch,
        .module = b->module,
        .global_buffer_bytes = b->block->global_buffer_bytes,
    };
    return result;
}
