/*
 * Owns rotary embeddings of Megatron-core that no fused kernel turns
 * (core/models/common/embeddings/rope_utils.py, read at d98e8a64). Refuses to
 * know what is turned. [docs/method.md eq. megatron]
 */
#include "lower/megatron.h"

#include "base/banned.h"

/* YaRN scales what it turns, 0.1 ln(factor) + 1 where a model says no factor of
 * its own (GPT-OSS: 1.35), which Transformer Engine's kernel cannot
 * (apply_rotary_pos_emb: mscale). Latent attention has kernels of its own. */
bool megatron_turns_unfused(const struct builder *b)
{
    return b->spec->family == FAM_GPT_OSS && build_rotates(b);
}

/* Cosines or sines of the rank's positions in the type of x, made anew for each
 * call and kept by it. */
static tensor_id turns(struct builder *b, const char *name, tensor_id x,
                       struct dim width)
{
    const struct shape shape = SHAPE(b->sq, width);
    const tensor_id table =
        build_tensor(b, name, tensor_of(b, x)->dtype, &shape);
    struct op *op = build_op(b, OP_CAST, name, &x, 1);
    op_byproduct(op, table);
    return table;
}

/* _apply_rotary_pos_emb_bshd: two products and their sum; joined with the
 * nothing that is not turned, a copy. */
tensor_id megatron_rotated(struct builder *b, const char *name, tensor_id x,
                           struct dim width)
{
    const tensor_id cos = turns(b, "cos", x, width);
    const tensor_id sin = turns(b, "sin", x, width);
    const tensor_id plain = build_mul(b, "times cos", x, cos);
    const tensor_id half = build_copy(b, "rotated half", x);
    const tensor_id turned = build_mul(b, "times sin", half, sin);
    const tensor_id sum = build_add(b, "rotated", plain, turned);
    build_op(b, OP_RELEASE, "products", &plain, 1);
    return build_copy(b, name, sum);
}
