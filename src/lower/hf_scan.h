/*
 * Between the mixers (hf_ssm.c) and the kernels' autograd functions
 * (hf_scan.c, hf_chunk.c): the factors of a state-space layer's shapes, and how
 * a function is written down that makes more than its result. Nobody else
 * includes this.
 */
#ifndef MEMPLAN_LOWER_HF_SCAN_H
#define MEMPLAN_LOWER_HF_SCAN_H

#include "lower/hf.h"

struct ssm_dims {
    struct dim inner, inner2; /* D, 2*D */
    struct dim heads, width;  /* H heads of P channels */
    struct dim state, groups; /* N, G */
    struct dim conv;          /* channels of the convolution */
    struct dim taps;
    struct dim rank, x_dbl; /* R, R+2*N */
    struct dim chunks;      /* of a sequence */
    enum param_group group; /* of the parameters */
};
struct ssm_dims ssm_dims(struct builder *b);

/* Of the convolution: weight, and bias or TENSOR_NONE. */
struct ssm_conv {
    tensor_id weight, bias;
};

/* ---- what the mixers have in common (hf_ssm.c) ---- */

tensor_id ssm_vector(struct builder *b, const struct ssm_dims *d,
                     const char *name, struct dim n);
tensor_id ssm_matrix(struct builder *b, const struct ssm_dims *d,
                     struct param p);
struct ssm_conv ssm_conv_params(struct builder *b, const struct ssm_dims *d);
tensor_id ssm_project(struct builder *b, const struct ssm_dims *d,
                      struct linear l);
/* A mixer's first and last product. */
tensor_id ssm_project_in(struct builder *b, const struct ssm_dims *d,
                         tensor_id x, struct dim out);
/* The first of them between Falcon-H1's multipliers; of others alone. */
tensor_id ssm_project_scaled(struct builder *b, const struct ssm_dims *d,
                             tensor_id x, struct dim out);
tensor_id ssm_project_out(struct builder *b, const struct ssm_dims *d,
                          tensor_id x);
/* -exp(A_log.float()) */
tensor_id ssm_decay(struct builder *b, tensor_id log);
/* x, seen with the sequence last: a product's gradient of it lies so, and is
 * put in order first, but of one sequence. */
tensor_id ssm_transposed(struct builder *b, const char *name, tensor_id x);
tensor_id ssm_norm(struct builder *b, const char *name, tensor_id x,
                   struct dim n);
/* LFM2's gates about a convolution. (hf_short.c) */
tensor_id hf_short_conv(struct builder *b, const struct ssm_dims *d,
                        tensor_id x);
/* Without the packages' kernels: PyTorch's own operations. (hf_torch.c) */
tensor_id hf_torch_mixer(struct builder *b, enum mixer mixer,
                         const struct ssm_dims *d, tensor_id x);

/* ---- the packages' functions ---- */

/* causal_conv1d_fn (Dao-AILab/causal-conv1d): of x, [b*s, channels]. */
tensor_id hf_causal_conv(struct builder *b, const struct ssm_dims *d,
                         tensor_id x, const struct ssm_conv *conv);

/* selective_scan_fn (state-spaces/mamba): operands lie across, and are copied;
 * dt, B and C are the layer's, z is the gate. Returns [b*s, D], across. */
struct ssm_scan {
    tensor_id u, dt, A, B, C, D, z, dt_bias;
};
tensor_id hf_selective_scan(struct builder *b, const struct ssm_dims *d,
                            const struct ssm_scan *in);

/* mamba_inner_fn: the whole of a Mamba layer behind its first projection. */
struct ssm_inner {
    struct ssm_conv conv;
    tensor_id x_proj, dt_proj, out_proj, out_bias, A, D, dt_bias;
};
tensor_id hf_mamba_inner(struct builder *b, const struct ssm_dims *d,
                         tensor_id xz, const struct ssm_inner *in);

/* mamba_split_conv1d_scan_combined: the same of Mamba-2. */
struct ssm_combined {
    struct ssm_conv conv;
    tensor_id dt_bias, A, D, norm, out_proj, out_bias;
};
tensor_id hf_mamba2_combined(struct builder *b, const struct ssm_dims *d,
                             tensor_id zxbcdt, const struct ssm_combined *in);

/* chunk_gated_delta_rule (fla-org/flash-linear-attention). Returns
 * [b*s, D]. */
struct ssm_delta {
    tensor_id q, k, v, g, beta;
};
tensor_id hf_delta_rule(struct builder *b, const struct ssm_dims *d,
                        const struct ssm_delta *in);

/* ---- for the functions themselves (hf_scan.c) ---- */

/* What a backward has alive, allocation by allocation. */
struct alive {
    struct builder *b;
    uint64_t now, most;
};
void alive_take(struct alive *a, uint64_t bytes);
void alive_drop(struct alive *a, uint64_t bytes);
/* There, and gone. */
void alive_touch(struct alive *a, uint64_t bytes);
/* Gradients of a convolution's weight and bias: summed in fp32, and cast where
 * those are narrower (causal_conv1d/cpp_functions.py). */
void alive_conv_weights(struct alive *a, const struct ssm_conv *conv);

uint64_t hf_bytes(struct builder *b, struct count c);
#define BYTES(b, ...) hf_bytes((b), PROD(__VA_ARGS__))
/* 0 for TENSOR_NONE. */
uint64_t hf_size(const struct builder *b, tensor_id id);

/* What forward makes before its result: no gradient passes here. */
struct op *hf_inside(struct builder *b, const char *name, tensor_id x);
/* A tensor that the function makes, and autograd does not see. */
tensor_id hf_temporary(struct op *op, tensor_id id);
/* The function built last keeps it. */
void hf_keep(struct builder *b, tensor_id id);
/* `to(dtype=...)` of a weight under autocast: a copy that the function keeps in
 * its place; else the weight itself. */
tensor_id hf_low(struct builder *b, struct op *op, tensor_id weight);
/* The walk gives each operand its gradient; the rest of the most that backward
 * has alive is the function's own. */
void hf_finish(const struct builder *b, struct op *op, uint64_t most);

double hf_conv_flops(const struct builder *b, const struct ssm_dims *d);
double hf_scan_flops(const struct builder *b, const struct ssm_dims *d);

#endif
