/*
 * Owns what a product in 8 bits keeps of its input, and what it makes for a
 * moment: the copies and scales of Transformer Engine's recipes, read at
 * d0067d0d (pytorch/module/linear.py, layernorm_linear.py, grouped_linear.py;
 * csrc/quantizer.cpp; tensor/float8_blockwise_tensor.py, mxfp8_tensor.py), and
 * those that the DeepSeek-V3 report names (arXiv:2412.19437, section 3.3).
 * Refuses to know which linear has what for an input. [docs/method.md eq.
 * eight-bits]
 */
#include "lower/build_private.h"

#include "data/constants.h"

#include "base/banned.h"

/* Elements along the summed dimension that share a scale; 0: all of them. */
static uint64_t tile_of(const struct builder *b)
{
    switch (b->run->fp8_recipe) {
    case FP8_DELAYED:
    case FP8_TENSORWISE:
    case FP8_ROWWISE: /* torchao keeps none of it */
    case FP8_ROWWISE_GW_HP: return 0;
    case FP8_BLOCKWISE:
    case FP8_DEEPSEEK: return FP8_TILE;
    case FP8_MXFP8: return MXFP8_TILE;
    case FP8_NVFP4: return NVFP4_TILE;
    case FP8_RECIPE_COUNT: break;
    }
    return 0;
}

/* A byte each; the others' are fp32. */
static bool has_byte_scales(const struct builder *b)
{
    return b->run->fp8_recipe == FP8_MXFP8 || b->run->fp8_recipe == FP8_NVFP4;
}

static enum dtype format_of(const struct builder *b)
{
    return b->run->fp8_recipe == FP8_NVFP4 ? DT_FP4 : DT_FP8;
}

/* One layout serves all three products: no transpose beside the copy. */
static bool serves_both(const struct builder *b)
{
    return run_fp8_is_whole(b->run) && b->run->gpu.arch == ARCH_BLACKWELL;
}

/* Of x, a scale a tile down each column (the gradient of the weight sums over
 * tokens), of each of `parts` pieces: fp32 over tiles of 128, a byte over those
 * of 32 and 16, whose table is padded; a scale a piece where the tensor has one. */
tensor_id build_fp8_scales(struct builder *b, tensor_id x, uint64_t parts)
{
    const struct tensor *t = tensor_of(b, x);
    const uint64_t width = t->rank == 0 ? 1 : t->dim[t->rank - 1].n;
    const uint64_t n = at_least_one(parts), tile = tile_of(b);
    const struct dim pieces = DIM("parts", n);
    if (tile == 0)
        return build_tensor(b, "fp8 scales", DT_FP32, &SHAPE(pieces));
    const uint64_t rows = div_up(t->elems / at_least_one(width), n);
    const bool bytes = has_byte_scales(b);
    const uint64_t down = div_up(rows, tile), to = bytes ? 128 : 4;
    const struct shape shape =
        SHAPE(pieces, DIM("tiles", bytes ? div_up(down, 4) * 4 : down),
              DIM("width", div_up(width, to) * to));
    return build_tensor(b, "fp8 scales", bytes ? DT_FP8 : DT_FP32, &shape);
}

tensor_id build_fp8_copy(struct builder *b, const char *name, enum dtype dtype,
                         tensor_id x)
{
    const struct shape shape = shape_of(b, x);
    const tensor_id q = build_tensor(b, name, dtype, &shape);
    const uint64_t elems = tensor_of(b, x)->elems;
    struct tensor *t = &b->p->tensor[q];
    t->elems = elems; /* copies of experts are not among the factors */
    t->bytes = dtype_bytes_of(dtype, elems);
    return q;
}

bool build_is_in_8_bits(const struct linear *l)
{
    return !l->in_16_bits && l->group != PG_HEAD && l->group != PG_ROUTER
           && l->group != PG_ADAPTER;
}

bool build_is_fp8(const struct builder *b, const struct linear *l)
{
    return b->fp8 && build_is_in_8_bits(l);
}

/* Tiles along a row are others than those down a column, and tensor cores
 * before Blackwell read 8-bit operands along the summed dimension alone: the
 * copy by rows, or the gathered one, is there until the product is done. */
static bool has_rows_apart(const struct builder *b, const struct linear *l)
{
    if (tensor_of(b, l->x)->dtype == DT_FP8)
        return false;
    return !(run_fp8_is_whole(b->run) && (l->has_keep || serves_both(b)));
}

/* In one layout, with scales: tiles of 128 have four bytes, those of 32 and 16
 * one. */
static uint64_t copy_bytes(const struct builder *b, uint64_t elems)
{
    const uint64_t a_byte =
        b->run->fp8_recipe == FP8_NVFP4 ? NVFP4_TILE : MXFP8_TILE;
    return dtype_bytes_of(format_of(b), elems)
           + (tile_of(b) == 0 ? 0 : elems / a_byte);
}

void build_fp8_input(struct builder *b, const struct linear *l,
                     struct fp8_input *q)
{
    const tensor_id from = l->has_keep ? l->keep : l->x;
    struct op *op;
    *q = (struct fp8_input){ TENSOR_NONE, TENSOR_NONE, TENSOR_NONE };
    const tensor_id rows =
        has_rows_apart(b, l) || l->keeps_input || l->has_made_from
            ? build_fp8_copy(b, "fp8 rows", format_of(b), from)
            : TENSOR_NONE;
    if (rows != TENSOR_NONE)
        b->p->tensor[rows].bytes = copy_bytes(b, tensor_of(b, rows)->elems);
    if (l->has_made_from) {
        q->keep = l->made_from[0];
        q->scales = l->made_from[1];
    } else if (!l->keeps_input) {
        q->keep = build_fp8_copy(b, "fp8 input", format_of(b), from);
        q->scales = build_fp8_scales(b, from, l->copies);
    } else if (l->has_keep) {
        const struct shape shape = shape_of(b, from);
        q->keep = build_alias(b, "sequence shard", from, &shape);
    }
    op = build_op(b, OP_QUANTIZE, l->name, &from, 1);
    if (!l->has_made_from && !l->keeps_input) {
        op_byproduct(op, q->keep);
        op_byproduct(op, q->scales);
    }
    if (rows != TENSOR_NONE)
        op_byproduct(op, rows);
    q->rows = rows;
}

void build_fp8_passing(struct builder *b, const struct linear *l,
                       struct fp8_input *q)
{
    const tensor_id from = l->has_keep ? l->keep : l->x;
    *q = (struct fp8_input){ TENSOR_NONE, TENSOR_NONE, TENSOR_NONE };
    if (tensor_of(b, from)->dtype == DT_FP8)
        return;
    q->rows = build_fp8_copy(b, "fp8 rows", format_of(b), from);
    b->p->tensor[q->rows].bytes = copy_bytes(b, tensor_of(b, q->rows)->elems);
    op_byproduct(build_op(b, OP_QUANTIZE, l->name, &from, 1), q->rows);
}

/* The gradient of the result in both layouts, above a frozen weight in one;
 * where the input was kept as it came, or as something else, that too. Put off,
 * the product for the weight holds both operands in 8 bits: Transformer
 * Engine's gradient still in both layouts (WeightGradStore), DeepSeek's taken to
 * be in the one. */
void build_fp8_backward(struct builder *b, const struct linear *l,
                        const struct fp8_input *q, struct op *op)
{
    const uint64_t out = copy_bytes(b, tensor_of(b, op->out[0])->elems);
    const bool frozen = !needs_grad(b, op->in[1]);
    const uint64_t layouts = serves_both(b) || frozen ? 1 : 2;
    const bool lean = b->run->fp8_recipe == FP8_DEEPSEEK;
    /* a row-parallel one's is gathered in 8 bits, where the program gathers
       16: as much as both layouts are */
    const bool gathers = l->parallel == PAR_ROW && build_has_sequence_shards(b);
    op->stash_input = !frozen && (l->keeps_input || l->has_made_from);
    const uint64_t in =
        op->stash_input ? copy_bytes(b, tensor_of(b, op->in[0])->elems) : 0;
    op->back_bytes += in + (gathers ? 0 : layouts * out);
    if (gathers && b->run->fp8_recipe == FP8_NVFP4) { /* ... as half of it */
        b->p->tensor[op->out[0]].grad_in_8_bits = true;
        const uint64_t there = tensor_of(b, op->out[0])->elems;
        op->back_bytes += layouts * out - min_u64(layouts * out, there);
    }
    op->stash_bytes = in + (lean ? 1 : layouts) * out;
    if (q->rows != TENSOR_NONE)
        build_op(b, OP_RELEASE, "fp8 rows", &q->rows, 1);
}

uint64_t build_fp8_weight_scales(const struct builder *b, uint64_t rows,
                                 uint64_t cols)
{
    const uint64_t tile = tile_of(b);
    if (tile == 0)
        return 0;
    if (has_byte_scales(b)) /* along the rows, and down the columns; those of
                               squares of 16 are written out for each row */
        return 2 * div_up(rows * cols, tile);
    /* squares, in both layouts; a row of the table is padded to four */
    const uint64_t down = div_up(rows, FP8_TILE),
                   across = div_up(cols, FP8_TILE);
    return 4 * (down * div_up(across, 4) * 4 + across * div_up(down, 4) * 4);
}
