/*
 * Owns the attention and activation of Phi-3 small, whose code comes with its
 * weights: microsoft/Phi-3-small-8k-instruct, modeling_phi3_small.py and
 * triton_flash_blocksparse_attn.py, read at the revision of May 2024; no run of
 * it was recorded. Its rotary embedding is taken to be the plain one. Layers
 * attend to blocks of keys by a kernel of Triton, or to all by flash attention
 * of packed keys and values. Refuses to know what stands around them.
 */
#include "lower/hf.h"

#include "base/banned.h"

/* Queries by a view of each group that cannot be flattened, and is copied;
 * keys and values by a list for an index, whose place is kept. All of them are
 * then made contiguous, head by head. */
static tensor_id queries_of(struct builder *b, tensor_id qkv)
{
    const struct shape shape = SHAPE(b->micro, b->a, b->sq, b->d);
    const tensor_id flat = build_copy_as(b, "q", qkv, &shape);
    return build_copy(b, "q", flat);
}

static tensor_id indexed(struct builder *b, const char *name, tensor_id qkv)
{
    const struct shape shape = SHAPE(b->micro, b->kv, b->sq, b->d);
    const struct shape one = SHAPE(b->one);
    const tensor_id place = build_copy_as(b, "index", b->ids, &one);
    return build_copy(b, name, build_index(b, name, qkv, place, &shape));
}

static tensor_id rotated(struct builder *b, tensor_id x)
{
    return hf_rotate_part(b, x, b->d);
}

/* cat, then repeat_interleave: an entry of the index for each query head. */
static tensor_id keys_and_values(struct builder *b, tensor_id k, tensor_id v)
{
    const struct dim two_k = DIM("2*kv", 2 * b->kv.n);
    const struct dim two = DIM("2*a", 2 * b->a.n);
    const struct shape narrow = SHAPE(b->micro, two_k, b->sq, b->d);
    const struct shape wide = SHAPE(b->micro, two, b->sq, b->d);
    const struct shape heads = SHAPE(b->a);
    const tensor_id both = build_cat(b, "k, v", k, v, &narrow);
    const tensor_id index = build_copy_as(b, "repeats", b->ids, &heads);
    return build_index(b, "k, v repeated", both, index, &wide);
}

/* Copies of keys and values apart; of each query's softmax the kernel keeps
 * the largest score beside the sum. */
static tensor_id of_blocks(struct builder *b, tensor_id q,
                           const tensor_id kv[2])
{
    const struct shape rows = SHAPE(b->micro, b->a, b->sq);
    const tensor_id k = build_copy(b, "k", kv[0]),
                    v = build_copy(b, "v", kv[1]);
    const tensor_id out = build_attention(
        b,
        &(struct attention_args){ .name = "blocks", .q = q, .k = k, .v = v });
    op_byproduct(&b->p->op[b->p->n_ops - 1],
                 build_tensor(b, "largest scores", DT_FP32, &rows));
    return out;
}

/* flash_attn_varlen_kvpacked_func of [tokens, 2, heads, d]. */
static tensor_id of_all(struct builder *b, tensor_id q, const tensor_id kv[2])
{
    const struct dim two = DIM("2*a", 2 * b->a.n);
    const struct shape wide = SHAPE(b->micro, b->sq, two, b->d);
    const struct shape half = SHAPE(b->micro, b->a, b->sq, b->d);
    q = build_copy(b, "q", q);
    const tensor_id k = build_copy(b, "k", kv[0]),
                    v = build_copy(b, "v", kv[1]);
    const tensor_id packed = build_cat(b, "kv packed", k, v, &wide);
    tensor_id part[2];
    build_split(b, "k, v", packed, part, (const struct shape[]){ half, half },
                2);
    const tensor_id out = build_attention(
        b, &(struct attention_args){
               .name = "attention", .q = q, .k = part[0], .v = part[1] });
    return build_copy(b, "context", out);
}

tensor_id hf_blocks(struct builder *b, tensor_id x)
{
    const struct shape tokens = SHAPE(b->t, b->O);
    const struct shape half = SHAPE(b->micro, b->a, b->sq, b->d);
    struct linear l = linear_of_qkv(b, "query_key_value", x);
    l.bias = true;
    const tensor_id qkv = hf_linear(b, &l);
    tensor_id q = queries_of(b, qkv), k = indexed(b, "k", qkv);
    const tensor_id v = indexed(b, "v", qkv);
    q = rotated(b, q);
    k = rotated(b, k);
    tensor_id kv[2];
    build_split(b, "k, v", keys_and_values(b, k, v), kv,
                (const struct shape[]){ half, half }, 2);
    const tensor_id out = b->local ? of_blocks(b, q, kv) : of_all(b, q, kv);
    return build_copy_as(b, "heads merged", out, &tokens);
}

/* Clamped, unless infinite: the clamp keeps what it was given, the choice its
 * condition. */
static tensor_id clamped(struct builder *b, const char *name, tensor_id x)
{
    const struct shape shape = shape_of(b, x);
    const tensor_id infinite = build_tensor(b, "isinf", DT_BOOL, &shape);
    op_result(b, build_op(b, OP_CAST, "isinf", &x, 1), infinite);
    b->p->tensor[infinite].needs_grad = false;
    const tensor_id y = build_unary(b, OP_ACTIVATION, name, x);
    return build_where(b, name, infinite, y);
}

/* x sigmoid(1.702 x) of every other entry, times the ones between plus one. */
tensor_id hf_gegelu(struct builder *b, tensor_id both)
{
    const struct shape half = shape_last(b, both, b->f);
    tensor_id part[2];
    build_split(b, "gelu, linear", both, part,
                (const struct shape[]){ half, half }, 2);
    const tensor_id x = clamped(b, "gelu clamped", part[0]);
    const tensor_id line = clamped(b, "linear clamped", part[1]);
    const tensor_id s =
        build_unary(b, OP_TANH, "sigmoid", build_scale(b, "1.702 x", x));
    const tensor_id gelu = build_mul(b, "quick gelu", x, s);
    const tensor_id plus = build_unary(b, OP_ADD, "linear + 1", line);
    return build_mul(b, "gegelu", gelu, plus);
}
