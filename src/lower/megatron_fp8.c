/*
 * Owns what Megatron's layers keep in 8 bits beside the inputs of linears, and
 * which linears keep their input as it came: Megatron-LM d98e8a64,
 * core/transformer (attention.py, mlp.py, moe/), core/fusions/
 * fused_bias_swiglu.py; and what the DeepSeek-V3 report says instead
 * (arXiv:2412.19437, sections 3.2.3 and 3.3). Refuses to know the copies of a
 * linear (build_fp8.c). [docs/method.md eq. eight-bits]
 */
#include "lower/megatron.h"

#include "base/banned.h"

bool megatron_is_deepseek(const struct builder *b)
{
    return b->fp8 && b->run->fp8_recipe == FP8_DEEPSEEK;
}

/* set_save_original_input: somebody else keeps the same tensor, or it is made
 * again. Not with scales from history, which cannot be had again. */
bool megatron_shares_input(const struct builder *b)
{
    return b->fp8 && b->run->fp8_recipe != FP8_DELAYED;
}

/* ---- attention ---- */

/* "Inputs of the Linear after the attention operator": 12 bits, for the
 * backward of both. */
void megatron_context(struct builder *b, tensor_id context, struct linear *out)
{
    out->x = context;
    out->keeps_input = megatron_shares_input(b);
    if (!megatron_is_deepseek(b))
        return;
    struct op *last = &b->p->op[b->p->n_ops - 1];
    const bool kernel = last->kind == OP_FLASH_ATTENTION;
    out->keeps_input = false;
    out->has_made_from = true;
    out->made_from[0] =
        build_fp8_copy(b, "attention result in 12 bits", DT_E5M6, context);
    out->made_from[1] = build_fp8_scales(b, context, 1);
    if (kernel) { /* statistics, and these in place of the result */
        const uint32_t all = (UINT32_C(1) << last->n_out) - 1;
        const uint32_t others =
            (last->keep_out != 0 ? last->keep_out : all) & ~UINT32_C(1);
        last->keep_out = others | UINT32_C(3) << last->n_out;
        last->back_bytes += tensor_of(b, context)->bytes;
    } else {
        last = build_op(b, OP_QUANTIZE, "12 bits", &context, 1);
    }
    op_byproduct(last, out->made_from[0]);
    op_byproduct(last, out->made_from[1]);
}

/* ---- activation function ---- */

/* An operand that the kernel's backward reads in place of its input; its bits
 * in keep_in are `probs` and whatever follows. */
static tensor_id stored(struct builder *b, const tensor_id in[4], uint64_t back)
{
    struct shape shape = shape_of(b, in[0]);
    struct dim *last = &shape.dim[shape.rank - 1];
    *last = DIM(last->sym[0] == '2' && last->sym[1] == '*' ? last->sym + 2
                                                           : last->sym,
                last->n / 2);
    const tensor_id out =
        build_tensor(b, "activation", tensor_of(b, in[0])->dtype, &shape);
    struct op *op = build_op(b, OP_SWIGLU, "activation", in, 4);
    op->keep_in = ((UINT32_C(1) << op->n_in) - 1) & ~UINT32_C(1);
    op->back_bytes = back;
    op_result(b, op, out);
    return out;
}

/* Megatron casts to e4m3 without a scale, and back before backward. DeepSeek
 * has scales, and makes the result again for the gradient of the next
 * weight. */
void megatron_swiglu(struct builder *b, tensor_id z, tensor_id probs,
                     struct linear *fc2)
{
    const bool again = megatron_is_deepseek(b);
    const tensor_id q = build_fp8_copy(b, "activation input in fp8", DT_FP8, z);
    const tensor_id scales =
        again ? build_fp8_scales(b, z, fc2->copies) : TENSOR_NONE;
    struct op *op = build_op(b, OP_QUANTIZE, "activation input", &z, 1);
    op_byproduct(op, q);
    if (again)
        op_byproduct(op, scales);
    const tensor_id in[] = { z, probs, q, scales };
    fc2->x = stored(b, in, again ? 0 : tensor_of(b, z)->bytes);
    fc2->has_made_from = again;
    fc2->made_from[0] = q;
    fc2->made_from[1] = scales;
}

/* ---- experts ---- */

/* Sent in 8 bits. */
tensor_id megatron_sent(struct builder *b, tensor_id y)
{
    if (!megatron_is_deepseek(b))
        return y;
    const tensor_id q = build_fp8_copy(b, "tokens in fp8", DT_FP8, y);
    op_result(b, build_op(b, OP_QUANTIZE, "tokens in fp8", &y, 1), q);
    return q;
}

/* Rows of each expert are padded to what 8-bit products take, and cut again
 * (core/extensions/transformer_engine.py, Fp8Padding): copies of all of them,
 * as counts of tokens are hardly ever multiples already. */
tensor_id megatron_padded(struct builder *b, const char *name, tensor_id rows)
{
    const bool arrive_padded = megatron_is_flex(b);
    return b->fp8 && !megatron_is_deepseek(b) && !arrive_padded
               ? build_copy(b, name, rows)
               : rows;
}
