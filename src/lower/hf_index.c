/*
 * Owns the indexer of DeepSeek V3.2: small heads that score every key for every
 * query, and the mask of the keys that score best. All of it runs without
 * gradients, so that nothing is kept and nothing of it is trained with the
 * model; but its scores are as large as those of attention. Refuses to know
 * attention. (transformers/models/deepseek_v32/modeling_deepseek_v32.py)
 */
#include "lower/hf.h"

#include "base/banned.h"

/* torch.no_grad: the same numbers, from which nothing goes back. */
static tensor_id detached(struct builder *b, tensor_id x)
{
    const struct shape shape = shape_of(b, x);
    const tensor_id y = build_view(b, "detached", x, &shape);
    b->p->tensor[y].needs_grad = false;
    return y;
}

struct index_dims {
    struct dim heads, d, width; /* heads * d */
};

static tensor_id product(struct builder *b, const char *name, tensor_id x,
                         struct dim in, struct dim out)
{
    return build_linear(b, &(struct linear){ .name = name,
                                             .x = x,
                                             .in = in,
                                             .out = out,
                                             .group = PG_ATTENTION,
                                             .fixed = true,
                                             .lora = LORA_NAMELESS });
}

/* A part of each head rotates, half by half; the parts are joined again. */
static tensor_id rotated(struct builder *b, tensor_id x, struct dim d)
{
    const struct shape whole = shape_of(b, x);
    const struct shape parts[] = {
        shape_last(b, x, b->rope), shape_last(b, x, DIM("d-r", d.n - b->rope.n))
    };
    tensor_id part[2];
    build_slices(b, "rotary part", x, part, parts, 2);
    const tensor_id turned = hf_rotate_part(b, part[0], b->rope);
    return build_cat(b, "rope", turned, part[1], &whole);
}

static tensor_id keys(struct builder *b, tensor_id x, struct dim d)
{
    const struct shape shape = SHAPE(b->micro, b->sq, b->one, d);
    const tensor_id k = product(b, "indexer.wk", x, b->h, d);
    tensor_id pair[2];
    for (unsigned i = 0; i < 2; i++)
        pair[i] = build_param(
            b, &(struct param){ .name = i == 0 ? "indexer.k_norm" : "bias",
                                .of = i == 0 ? NULL : "indexer.k_norm",
                                .group = PG_NORM,
                                .rows = d,
                                .fixed = true });
    const tensor_id y =
        build_layer_norm(b, "indexer.k_norm", k, pair[0], pair[1]);
    return rotated(b, build_view(b, "k", y, &shape), d);
}

/* relu(q k) of every head: [b, s, heads, s], in fp32. */
static tensor_id scores_of(struct builder *b, tensor_id q, tensor_id k,
                           const struct index_dims *n)
{
    const struct shape all = SHAPE(b->micro, b->sq, n->heads, b->s);
    const struct shape each = SHAPE(b->micro, b->sq, n->d, b->s);
    q = build_cast(b, "q fp32", q, DT_FP32);
    k = build_cast(b, "k fp32", k, DT_FP32);
    if (b->micro.n > 1) /* bmm wants one batch: keys for each query */
        k = build_copy_as(b, "k for each query", k, &each);
    tensor_id y = build_matmul(b, "index scores", q, k, &all);
    y = build_scale(b, "index scores scaled", y);
    return build_unary(b, OP_RELU, "relu", y);
}

/* The heads' scores weighted into one: [b, s, s]. */
static tensor_id weighted(struct builder *b, tensor_id x, tensor_id scores,
                          const struct index_dims *n)
{
    const struct shape row = SHAPE(b->micro, b->sq, b->one, n->heads);
    const struct shape sum = SHAPE(b->micro, b->sq, b->s);
    tensor_id w = product(b, "indexer.weights_proj", x, b->h, n->heads);
    w = build_cast(b, "index weights", w, DT_FP32);
    w = build_scale(b, "index weights scaled", w);
    w = build_view(b, "index weights", w, &row);
    return build_matmul(b, "index scores weighted", w, scores, &sum);
}

/* Which keys are not among the best, and what that makes of the mask. */
static tensor_id mask_of_best(struct builder *b, tensor_id scores)
{
    const struct shape square = SHAPE(b->micro, b->sq, b->s);
    const tensor_id model = hf_table(b, HF_MASK);
    const tensor_id masked = build_add(b, "index scores masked", scores, model);
    tensor_id best;
    build_topk(b, "best keys", masked,
               DIM("k", min_u64(b->spec->index_topk, b->s.n)), &best);
    const tensor_id ones = build_tensor(b, "ones", DT_BOOL, &square);
    op_result(b, build_op(b, OP_CAST, "ones", &best, 1), ones);
    const tensor_id others = build_copy(b, "not chosen", ones);
    const tensor_id mask = build_tensor(b, "mask of the layer",
                                        tensor_of(b, model)->dtype, &square);
    const tensor_id in[] = { model, others };
    op_result(b, build_op(b, OP_WHERE, "mask of the layer", in, 2), mask);
    return mask;
}

tensor_id hf_index(struct builder *b, tensor_id x, tensor_id q)
{
    const struct spec *m = b->spec;
    const struct index_dims n = { .heads = DIM("a_index", m->index_heads),
                                  .d = DIM("d_index", m->index_dim),
                                  .width = DIM("a_index*d_index",
                                               build_product(b, m->index_heads,
                                                             m->index_dim)) };
    const struct shape split = SHAPE(b->micro, b->sq, n.heads, n.d);
    x = detached(b, x);
    const tensor_id y =
        product(b, "indexer.wq_b", detached(b, q), b->rq, n.width);
    const tensor_id qi = rotated(b, build_view(b, "q", y, &split), n.d);
    const tensor_id ki = keys(b, x, n.d);
    const tensor_id all = scores_of(b, qi, ki, &n);
    return mask_of_best(b, weighted(b, x, all, &n));
}
