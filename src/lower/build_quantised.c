/*
 * Owns products with quantised weights: bitsandbytes' 4-bit formats and
 * LLM.int8(), and GPTQ's int4 as AutoGPTQ unpacks it in PyTorch; and what lies
 * in memory beside the packed numbers. Refuses to know which linears are
 * quantised (build.c) and what adapters add (build_linear.c).
 * [docs/method.md eq. quantised]
 */
#include "data/constants.h"
#include "lower/build_private.h"

#include "base/banned.h"

/* bitsandbytes: elements with one scale; scales with one scale of their own
 * under double quantisation; entries of the 4-bit and the 8-bit code
 * (functional.py, quantize_4bit, create_dynamic_map). */
enum {
    BNB_4BIT_BLOCK = 64,
    BNB_SCALE_BLOCK = 256,
    BNB_4BIT_CODES = 16,
    BNB_8BIT_CODES = 256
};
/* GPTQ: 4-bit zero points to an int32. */
enum { GPTQ_PER_INT32 = 8 };

/* ---- statistics ---- */

static void statistic(struct builder *b, const char *name, enum dtype dtype,
                      uint64_t n)
{
    build_param(b, &(struct param){ .name = name,
                                    .group = PG_ATTENTION,
                                    .rows = DIM(name, n),
                                    .statistic = true,
                                    .dtype = dtype });
}

static void statistics_4bit(struct builder *b, uint64_t elems, uint64_t copies)
{
    const uint64_t blocks =
        build_product(b, div_up(elems, BNB_4BIT_BLOCK), copies);
    statistic(b, "quant code", DT_FP32, BNB_4BIT_CODES * copies);
    if (!b->run->double_quant) {
        statistic(b, "absmax", DT_FP32, blocks);
        return;
    }
    statistic(b, "absmax", DT_INT8, blocks);
    statistic(b, "absmax of absmax", DT_FP32, div_up(blocks, BNB_SCALE_BLOCK));
    statistic(b, "absmax code", DT_FP32, BNB_8BIT_CODES * copies);
    statistic(b, "absmax offset", DT_FP32, copies);
}

static void statistics_gptq(struct builder *b, struct dim out, struct dim in,
                            uint64_t copies)
{
    const uint64_t groups = build_product(b, div_up(in.n, GPTQ_GROUP), copies);
    statistic(b, "scales", b->compute, build_product(b, groups, out.n));
    statistic(b, "qzeros", DT_INT32,
              build_product(b, groups, div_up(out.n, GPTQ_PER_INT32)));
    statistic(b, "g_idx", DT_INT32, build_product(b, in.n, copies));
}

void build_statistics(struct builder *b, enum dtype dtype, struct dim out,
                      struct dim in, uint64_t copies)
{
    copies = at_least_one(copies);
    switch (dtype) {
    case DT_NF4:
    case DT_FP4:
        statistics_4bit(b, build_product(b, out.n, in.n), copies);
        return;
    case DT_INT8: /* Int8Params.SCB: one a row */
        statistic(b, "row scales", DT_FP32, build_product(b, out.n, copies));
        return;
    case DT_INT4: statistics_gptq(b, out, in, copies); return;
    case DT_FP32:
    case DT_BF16:
    case DT_FP16:
    case DT_FP8:
    case DT_E5M6:
    case DT_NONE:
    case DT_BOOL:
    case DT_INT32:
    case DT_INT64:
    case DTYPE_COUNT: return;
    }
}

/* ---- products ---- */

/* keeps: the input is kept though only the weight's gradient would need it. */
static tensor_id product(struct builder *b, const struct quantised_product *q,
                         const tensor_id in[4], enum dtype dtype, bool keeps)
{
    const struct shape shape = shape_last(b, in[0], q->out);
    const tensor_id out = build_tensor(b, q->name, dtype, &shape);
    struct op *op = build_op(b, OP_LINEAR, q->name, in, 4);
    op_result(b, op, out);
    op->keep_in = keeps ? 1 : 0;
    op->flop_full = op->flop_causal =
        2.0 * (double)tensor_of(b, in[0])->elems * (double)q->out.n;
    return out;
}

/* Linear4bit: the input in the compute dtype, the weight dequantised for the
 * product and again in backward (MatMul4Bit keeps the packed one), the result
 * in the input's dtype. Scales that are quantised themselves are unpacked
 * first, and gone before the product. */
static tensor_id product_4bit(struct builder *b,
                              const struct quantised_product *q)
{
    const enum dtype dtype = tensor_of(b, q->x)->dtype;
    const tensor_id x = build_cast(b, q->name, q->x, b->compute);
    /* lightning quantises what it has cast to fp16, and so gets that back
       (fabric/plugins/precision/bitsandbytes.py) */
    const bool old = run_is_litgpt(b->run);
    tensor_id w = q->weight;
    if (old)
        w = build_cast(b, "dequantised weight fp16", w, DT_FP16);
    w = build_cast(b, "dequantised weight", w, b->compute);
    if (b->run->double_quant) {
        const uint64_t n =
            div_up(tensor_of(b, q->weight)->elems, BNB_4BIT_BLOCK);
        const struct shape blocks = SHAPE(DIM("P/64", n));
        op_byproduct(&b->p->op[b->p->n_ops - 1],
                     build_tensor(b, "absmax fp32", DT_FP32, &blocks));
    }
    const tensor_id in[] = { x, w, q->bias, q->weight };
    /* with the input in versions before 0.44, which LitGPT asked for: as an
       attribute of the graph's node (ctx.tensors), which backward leaves */
    const tensor_id y = product(b, q, in, b->compute, old);
    /* the fp16 copy again in backward, gone before the result */
    const uint64_t half = tensor_of(b, w)->bytes, dx = tensor_of(b, x)->bytes;
    if (old && b->compute != DT_FP16 && half > dx)
        b->p->op[b->p->n_ops - 1].back_bytes = half - dx;
    if (old && needs_grad(b, x) && b->run->recompute == RECOMP_NONE)
        build_hold(b, x);
    return build_cast(b, q->name, y, dtype);
}

/* MatMul8bitLt has its input as an attribute of the graph's node (ctx.tensors),
 * which a checkpoint that is not reentrant does not see: it stays until the
 * graph goes, and is not kept a second time. A reentrant one makes a graph of
 * its own, which goes when all of its backward is done; the block's input is
 * its checkpoint. */
static bool holds_past(struct builder *b, tensor_id x)
{
    const tensor_id root = tensor_of(b, x)->storage;
    struct tensor *t = &b->p->tensor[root];
    if (b->run->recompute == RECOMP_NONE || t->role != ROLE_ACTIVATION
        || !needs_grad(b, x))
        return false;
    t->stays = b->run->recompute_reentrant && root >= b->block->tensor_first;
    t->past = !b->run->recompute_reentrant;
    return t->past;
}

/* MatMul8bitLt: the input in fp16, then in int8 with a scale a row; sums in
 * int32; fp16 results in the input's dtype. The input is kept, and backward
 * dequantises the weight. Columns with outliers are not counted: few. */
static tensor_id product_int8(struct builder *b,
                              const struct quantised_product *q)
{
    const enum dtype dtype = tensor_of(b, q->x)->dtype;
    const struct shape whole = shape_of(b, q->x), rows = shape_rows(b, q->x);
    const struct shape sums = shape_last(b, q->x, q->out);
    const tensor_id half = build_cast(b, "input fp16", q->x, DT_FP16);
    const tensor_id packed = build_tensor(b, "input int8", DT_INT8, &whole);
    struct op *op = build_op(b, OP_QUANTIZE, "input int8", &half, 1);
    op_byproduct(op, packed);
    op_byproduct(op, build_tensor(b, "row scales", DT_FP32, &rows));
    /* A.abs() >= threshold (backends/cuda/ops.py) */
    op_byproduct(op, build_tensor(b, "magnitudes", DT_FP16, &whole));
    op_byproduct(op, build_tensor(b, "outliers", DT_BOOL, &whole));
    const tensor_id sum = build_tensor(b, "int32 sums", DT_INT32, &sums);
    op_byproduct(build_op(b, OP_QUANTIZE, q->name, &packed, 1), sum);
    if (dtype != DT_FP16) {
        const tensor_id y = build_tensor(b, "fp16 result", DT_FP16, &sums);
        op_byproduct(build_op(b, OP_QUANTIZE, q->name, &sum, 1), y);
    }
    const tensor_id in[] = { q->x, q->weight, q->bias, TENSOR_NONE };
    return product(b, q, in, dtype, !holds_past(b, q->x));
}

/* Its other operand is one number for a group of rows. */
static void last_is_of_groups(struct builder *b)
{
    b->p->op[b->p->n_ops - 1].strided = true;
}

/* AutoGPTQ's QuantLinear for training (qlinear_cuda_old.py): packed numbers
 * shifted out in int32, then int8, masked where they are, less their zero points,
 * then times their scales in 16 bits. */
static tensor_id weight_gptq(struct builder *b, tensor_id packed)
{
    const tensor_id shifted = build_cast(b, "unpacked int32", packed, DT_INT32);
    const tensor_id small = build_cast(b, "unpacked int8", shifted, DT_INT8);
    const tensor_id masked =
        build_unary_in_place(b, OP_QUANTIZE, "lowest 4 bits", small);
    const tensor_id centred =
        build_unary(b, OP_QUANTIZE, "less zero points", masked);
    last_is_of_groups(b);
    const tensor_id w =
        build_cast(b, "dequantised weight", centred, b->compute);
    last_is_of_groups(b);
    return w;
}

/* The product is PyTorch's own and keeps the weight in 16 bits; of triton_v2 one
 * kernel makes that weight, and again in backward (triton_utils/dequant.py,
 * QuantLinearFunction). The bias is added after. */
static tensor_id product_gptq(struct builder *b,
                              const struct quantised_product *q)
{
    const bool again = b->run->gptq_kernel == GPTQ_TRITON_V2;
    const tensor_id w =
        again ? build_cast(b, "dequantised weight", q->weight, b->compute)
              : weight_gptq(b, q->weight);
    const tensor_id x = build_autocast(b, q->name, q->x);
    const tensor_id in[] = { x, w, TENSOR_NONE,
                             again ? q->weight : TENSOR_NONE };
    const tensor_id y =
        build_cast(b, q->name, product(b, q, in, b->compute, false),
                   tensor_of(b, q->x)->dtype);
    return q->bias == TENSOR_NONE ? y : build_add(b, "bias", y, q->bias);
}

tensor_id build_quantised_product(struct builder *b,
                                  const struct quantised_product *q)
{
    switch (tensor_of(b, q->weight)->dtype) {
    case DT_NF4:
    case DT_FP4: return product_4bit(b, q);
    case DT_INT8: return product_int8(b, q);
    case DT_INT4: return product_gptq(b, q);
    case DT_FP32:
    case DT_BF16:
    case DT_FP16:
    case DT_FP8:
    case DT_E5M6:
    case DT_NONE:
    case DT_BOOL:
    case DT_INT32:
    case DT_INT64:
    case DTYPE_COUNT: break;
    }
    return q->x;
}
