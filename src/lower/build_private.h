/*
 * What the files of the builder (build*.c) share beyond build.h; lowerings do
 * not include it.
 */
#ifndef MEMPLAN_LOWER_BUILD_PRIVATE_H
#define MEMPLAN_LOWER_BUILD_PRIVATE_H

#include "lower/build.h"

/* Above this a tensor's bytes do not fit in 64 bits. */
#define ELEMS_MAX (UINT64_MAX / 8)

static inline uint64_t at_least_one(uint64_t n)
{
    return n == 0 ? 1 : n;
}

static inline bool needs_grad(const struct builder *b, tensor_id id)
{
    return tensor_of(b, id)->needs_grad;
}

/* c's value; that it overflowed is noted for build_finish(). */
static inline uint64_t build_checked(struct builder *b, struct count c)
{
    b->over = b->over || c.over;
    return c.v;
}

/* Common factors of shapes on this rank, of the part at hand. (build_dims.c) */
void build_dims(struct builder *b);

/* A product with a quantised weight. (build_quantised.c) */
struct quantised_product {
    const char *name;
    tensor_id x, weight, bias; /* bias: TENSOR_NONE where there is none */
    struct dim out;
};
tensor_id build_quantised_product(struct builder *b,
                                  const struct quantised_product *q);
/* What lies beside a quantised weight of [out, in], `copies` times: scales,
 * zero points, code tables. They are no parameters. (build_quantised.c) */
void build_statistics(struct builder *b, enum dtype dtype, struct dim out,
                      struct dim in, uint64_t copies);

/* ---- products in 8 bits (build_fp8.c) ---- */

/* What stands for a linear's input in backward, TENSOR_NONE where it stands for
 * itself, and the copy that only the product reads. */
struct fp8_input {
    tensor_id keep, scales, rows;
};
/* Whether a linear is among those that are asked for in 8 bits at all. */
bool build_is_in_8_bits(const struct linear *l);
bool build_is_fp8(const struct builder *b, const struct linear *l);
void build_fp8_input(struct builder *b, const struct linear *l,
                     struct fp8_input *q);
/* The same of a frozen weight, for whose gradient nothing is kept. */
void build_fp8_passing(struct builder *b, const struct linear *l,
                       struct fp8_input *q);
/* Of the operation that was built last: what its backward makes, and the end of
 * what its forward made. */
void build_fp8_backward(struct builder *b, const struct linear *l,
                        const struct fp8_input *q, struct op *op);
/* Of both layouts of a weight. */
uint64_t build_fp8_weight_scales(const struct builder *b, uint64_t rows,
                                 uint64_t cols);

/* Lists a parameter, or a buffer, as one of the block's. (build.c) */
void build_rests(struct builder *b, tensor_id id);

/* So many more, that nobody has written to; false, and none, when out of memory.
 * (build.c) */
bool build_take_rows(struct builder *b, uint32_t tensors, uint32_t ops);

/* Whether layers of two kinds have the same part with attention.
 * (build_stack.c) */
bool build_begins_alike(const struct layer_kind *x, const struct layer_kind *y);

/* An activation of x's shape; and of its dtype. (build.c) */
tensor_id build_in_shape_of(struct builder *b, const char *name,
                            enum dtype dtype, tensor_id x);
tensor_id build_like(struct builder *b, const char *name, tensor_id x);

/* An operation of two operands (TENSOR_NONE for none) with the one result
 * `out`, which it returns. (build.c) */
tensor_id build_one_result(struct builder *b, enum op_kind kind,
                           const char *name, const tensor_id in[2],
                           tensor_id out);

/* DoRA around the products of an adapter. (build_dora.c) The norm first: of the
 * weight and what the adapter adds to it, for the input x; then its results. */
struct dora {
    tensor_id weight, norm;
    tensor_id held[4]; /* until the results are there */
    unsigned n;
};
struct dora_results {
    tensor_id x;    /* the adapter's input */
    tensor_id base; /* x W^T + bias, as the layer gave it */
    tensor_id lora; /* x A^T B^T */
    uint64_t full_out;
};
void build_dora_norm(struct builder *b, struct dora *d, const struct linear *l,
                     tensor_id x, tensor_id weight);
tensor_id build_dora_result(struct builder *b, const struct dora *d,
                            const struct linear *l,
                            const struct dora_results *r);

/* Makes compiled kernels of a block's element-wise operations. (build_fuse.c)
 */
void build_fuse(struct builder *b, struct block *block);

/* Marks what outlives a checkpoint around the block, operation by operation.
 * (build_policy.c) */
void build_policy(struct builder *b, const struct block *block);

#endif
