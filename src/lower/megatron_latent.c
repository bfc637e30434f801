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
    part[1] = build_copy(b, "q rope", part[1]);
    k_rope = build_copy(b, "k rope", k_rope);
    qkv[0] = build_cat(b, "q", part[0], part[1], &q_whole);
    qkv[1] = build_cat(b, "k", half[0], k_rope, &q_whole);
    qkv[2] = build_copy_as(b, "v", half[1], &v_whole);
}

/* YarnRotaryEmbedding, which every layer has one of: cosines and sines for the
 * first positions, converted with the weights; the angles of the sequence are
 * cached by the class (core/models/common/embeddings/
 * yarn_rotary_pos_embedding.py). */
static void tables(struct builder *b)
{
    enum { ORIGINAL_POSITIONS = 4096 }; /* MLATransformerConfig */
    const struct dim first = DIM("4096", ORIGINAL_POSITIONS);
    const struct shape each = SHAPE(first, b->rope);
    const struct shape angles = SHAPE(b->sq, b->rope);
    build_buffer(b, "cos_cached", b->param, &each);
    build_buffer(b, "sin_cached", b->param, &each);
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
    rotate_and_join(b, q, kv, part[1], qkv);
    b->region = outer;
}
