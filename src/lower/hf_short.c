/*
 * Owns LFM2's short convolutions: two gates about a convolution of a few taps
 * (Lfm2ShortConv), with causal-conv1d's kernel or without. Refuses to know what
 * stands before and after them.
 */
#include "lower/hf_torch.h"

#include "base/banned.h"

tensor_id hf_short_conv(struct builder *b, const struct ssm_dims *d,
                        tensor_id x)
{
    const struct shape rows = SHAPE(b->t, b->h);
    const struct dim three = DIM("3*h", build_product(b, 3, b->h.n));
    const tensor_id in = ssm_project_in(b, d, x, three);
    tensor_id part[3];
    build_split(b, "B, C, x", ssm_transposed(b, "BCx", in), part,
                (const struct shape[]){ rows, rows, rows }, 3);
    const tensor_id gated = build_mul(b, "B x", part[0], part[2]);
    const struct ssm_conv conv = ssm_conv_params(b, d);
    const tensor_id mixed = b->run->ssm_kernel == SSM_KERNEL_TORCH
                                ? torch_plain_conv(b, d, gated, &conv)
                                : hf_causal_conv(b, d, gated, &conv);
    const tensor_id y = build_mul(b, "C times", part[1], mixed);
    const tensor_id out = ssm_project_out(b, d, y);
    hf_hold(b, "BCx", in);
    hf_hold(b, "hidden_states", mixed);
    hf_hold(b, "y", y);
    return out;
}
