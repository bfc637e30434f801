/*
 * Between the pieces of transformers' state-space layers without kernels
 * (hf_torch*.c). Nobody else includes this.
 */
#ifndef MEMPLAN_LOWER_HF_TORCH_H
#define MEMPLAN_LOWER_HF_TORCH_H

#include "lower/hf_scan.h"

/* ---- hf_torch.c ---- */

/* What the steps of a loop, the operation built last, keep one by one. */
tensor_id torch_pieces(struct builder *b, struct op *op, const char *name,
                       enum dtype dtype, const struct shape *shape);
tensor_id torch_fp32(struct builder *b, const char *name, tensor_id x);
tensor_id torch_softplus(struct builder *b, tensor_id x);
/* causal_conv1d_fn, transformers' own. */
tensor_id torch_conv(struct builder *b, const struct ssm_dims *d, tensor_id x,
                     const struct ssm_conv *conv);
/* The same without an activation: the padded result stays for its view. */
tensor_id torch_plain_conv(struct builder *b, const struct ssm_dims *d,
                           tensor_id x, const struct ssm_conv *conv);

/* ---- hf_torch_chunk.c ---- */

/* A square of booleans, made beside x. */
tensor_id torch_mask(struct builder *b, tensor_id beside, struct dim side);
/* masked_fill */
tensor_id torch_masked(struct builder *b, const char *name, tensor_id x,
                       tensor_id mask);
tensor_id torch_cumsum(struct builder *b, const char *name, tensor_id x);
tensor_id torch_exp(struct builder *b, const char *name, tensor_id x);
/* A copy whose gradient is the copy's own. */
tensor_id torch_clone(struct builder *b, const char *name, tensor_id x);
/* A batched product, of no FLOPs in the model's count. */
tensor_id torch_product(struct builder *b, const char *name,
                        const tensor_id x[2], const struct shape *shape,
                        double flops);
tensor_id torch_mamba2(struct builder *b, const struct ssm_dims *d,
                       tensor_id x);

/* ---- hf_torch_delta.c ---- */

/* torch_chunk_gated_delta_rule, as hf_delta_rule. */
tensor_id torch_delta_rule(struct builder *b, const struct ssm_dims *d,
                           const struct ssm_delta *in);

#endif
