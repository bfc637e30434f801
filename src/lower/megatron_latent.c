/*
 * Owns multi-head latent attention as Megatron-core builds it with Transformer
 * Engine: down-projections that every rank has whole, norms fused into the
 * up-projections, the rotary part, and q, k, v made anew. Refuses to know
 * attention itself. Read at Megatron-LM d98e8a64,
 * core/transformer/multi_latent_attention.py, MLASelfAttention.
 * [docs/method.md eq. latent]
 */
#include "lower/megatron.h"

#include "base/banned.h"

/* TELinear in mode 'duplicated': whole on each rank, from a sequence shard to
 * a sequence shard. No bias, whatever the other linears have. */
static tensor_id down(struct builder *b, const char *name, tensor_id x,
                      struct dim out)
{
    return build_linear(
        b, &(struct linear){ .name = name,
                             .x = x,
                             .in = b->h,
                             .out = out,
                             .keeps_input =
                                 megatron_shares_input(b)
                                 && megatron_recomputes(b, REMOD_LAYERNORM),
                             .group = PG_ATTENTION });
}

/* TELayerNormColumnParallelLinear; without --qk-layernorm the linear alone. */
static tensor_id up(struct builder *b, struct linear *l)
{
    l->group = PG_ATTENTION;
    l->parallel = PAR_COLUMN;
    b->frame[b->n_frame++] = l->x; /* q_compressed, kv_compressed */
    if (b->spec->latent_norm)
        l->x = megatron_norm(b, l->name, l->x, l->in);
    return build_column(b, l);
}

static tensor_id queries(struct builder *b, tensor_id from)
{
    struct linear l = { .name = "linear_q_up_proj",
                        .x = from,
                        .in = b->rq,
                        .out = b->A,
                        .full_out = b->full_A };
    if (b->spec->q_rank > 0)
        return up(b, &l);
    l = linear_of_q(b, "linear_q_proj", from);
    l.bias = false;
    return build_column(b, &l);
}

/* _FusedMLARoPEInplace turns q where it lies, and its gradient;
 * _FusedMLARoPEKVSplit makes k and v of their product and the rotary key
 * (core/fusions/fused_mla_yarn_rope_apply.py). Both keep the layer's own tables
 * of cosines and sines, which rest. */
static void fused_rope(struct builder *b, tensor_id q, tensor_id kv,
                       tensor_id k_rope, tensor_id qkv[3])
{
    const struct shape key = SHAPE(b->t, b->A), value = SHAPE(b->t, b->O);
    const tensor_id in[] = { kv, k_rope };
    qkv[0] = build_unary_in_place(b, OP_SCALE, "q rope", q);
    b->p->op[b->p->n_ops - 1].place = PLACE_GRADIENT;
    const enum dtype dtype = tensor_of(b, kv)->dtype;
    qkv[1] = build_tensor(b, "k", dtype, &key);
    qkv[2] = build_tensor(b, "v", dtype, &value);
    struct op *op = build_op(b, OP_FUNCTION, "k, v", in, 2);
    op_result(b, op, qkv[1]);
    op_result(b, op, qkv[2]);
    build_op(b, OP_RELEASE, "k, v", in, 2);
}

/* The rotary part is turned on its own and joined to the plain part; one
 * rotary key serves all heads. */
static void rotate_and_join(struct builder *b, tensor_id q, tensor_id kv,
                            tensor_id k_rope, tensor_id qkv[3])
{
    const struct shape q_whole = SHAPE(b->t, b->A);
    const struct shape q_parts[] = { SHAPE(b->t, b->a, b->nope),
                                     SHAPE(b->t, b->a, b->rope) };
    const struct shape kv_parts[] = { SHAPE(b->t, b->a, b->nope),
                                      SHAPE(b->t, b->a, b->dv) };
    const struct shape v_whole = SHAPE(b->t, b->O);
    tensor_id part[2], half[2];
    build_split(b, "q", q, part, q_parts, 2);
    build_split(b, "k, v", kv, half, kv_parts, 2);
    /* every other element first: halves put side by side */
    part[1] = megatron_rotated(b, "q rope", build_copy(b, "q rope", part[1]),
                               b->rope);
    k_rope =
        megatron_rotated(b, "k rope", build_copy(b, "k rope", k_rope), b->rope);
    qkv[0] = build_cat(b, "q", part[0], part[1], &q_whole);
    qkv[1] = build_cat(b, "k", half[0], k_rope, &q_whole);
    qkv[2] = build_copy_as(b, "v", half[1], &v_whole);
    const tensor_id named[] = { q, kv, part[1], k_rope };
    build_op(b, OP_RELEASE, "q, k, v", named, 4);
}

/* YarnRotaryEmbedding, which every layer has one of: cosines and sines for the
 * first positions, or with its own kernels for all, converted with the weights;
 * else the angles of the sequence are cached by the class (core/models/common/
 * embeddings/yarn_rotary_pos_embedding.py). */
static void tables(struct builder *b)
{
    enum { ORIGINAL_POSITIONS = 4096 }; /* MLATransformerConfig */
    const bool all = b->run->rope_fusion && b->sq.n > ORIGINAL_POSITIONS;
    const struct dim first = all ? b->sq : DIM("4096", ORIGINAL_POSITIONS);
    const struct shape each = SHAPE(first, b->rope);
    const struct shape angles = SHAPE(b->sq, b->rope);
    build_buffer(b, "cos_cached", b->param, &each);
    build_buffer(b, "sin_cached", b->param, &each);
    if (!b->run->rope_fusion)
        build_buffer(b, "rotary_pos_emb", DT_FP32, &angles);
}

void megatron_latent(struct builder *b, tensor_id x, tensor_id qkv[3])
{
    const bool shards = build_has_sequence_shards(b);
    tables(b);
    tensor_id q = x;
    if (b->spec->q_rank > 0)
        q = down(b, "linear_q_down_proj", x, b->rq);
    const tensor_id both = down(b, "linear_kv_down_proj", x, b->latent);
    const struct shape parts[] = { shape_last(b, both, b->rkv),
                                   shape_last(b, both, b->rope) };
    tensor_id part[2];
    build_split(b, "kv, k rope", both, part, parts, 2);
    const struct shape whole = SHAPE(b->t, b->rope);
    if (shards)
        part[1] = build_collective(b, OP_ALL_GATHER, COMM_TP, part[1], &whole);
    const uint8_t outer = b->region;
    if ((b->run->recompute_modules >> REMOD_MLA_UP_PROJ & 1) != 0)
        build_region(b, REMOD_MLA_UP_PROJ);
    q = queries(b, q);
    struct linear l = {
        .name = "linear_kv_up_proj", .x = part[0], .in = b->rkv, .out = b->kv_up
    };
    const tensor_id kv = up(b, &l);
    if (b->run->rope_fusion)
        fused_rope(b, q, kv, part[1], qkv);
    else
        rotate_and_join(b, q, kv, part[1], qkv);
    for (unsigned i = 0; i < 3 && b->region == outer; i++)
        b->frame[b->n_frame++] = qkv[i];
    b->region = outer;
}

/* Its callers' variables die with attention; a checkpoint without its output
 * has emptied theirs before. */
void megatron_latent_returns(struct builder *b)
{
    build_op(b, OP_RELEASE, "latent attention", b->frame, b->n_frame);
    b->n_frame = 0;
}
