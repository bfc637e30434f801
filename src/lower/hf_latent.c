/*
 * Owns multi-head latent attention as DeepSeek's classes in transformers write
 * it: queries, keys and values from compressed vectors, a rotary part beside
 * the plain one, and one rotary key for all heads. Refuses to know the kernel
 * (hf_attention.c). (transformers/models/deepseek_v3/modeling_deepseek_v3.py;
 * deepseek_v2's differs in how it rotates.)
 */
#include "lower/hf.h"

#include "base/banned.h"

static struct shape heads_shape(const struct builder *b, struct dim heads,
                                struct dim width)
{
    return SHAPE(b->micro, heads, b->sq, width);
}

/* ---- projections ---- */

static struct linear down_of(const struct builder *b, const char *name,
                             tensor_id x, struct dim out,
                             enum lora_target target)
{
    return (struct linear){ .name = name,
                            .x = x,
                            .in = b->h,
                            .out = out,
                            .group = PG_ATTENTION,
                            .bias = b->spec->q_bias,
                            .lora = LORA_MASK(target) };
}

static struct linear up_of(const char *name, tensor_id x, struct dim in,
                           struct dim out, enum lora_target target)
{
    return (struct linear){ .name = name,
                            .x = x,
                            .in = in,
                            .out = out,
                            .group = PG_ATTENTION,
                            .parallel = PAR_COLUMN,
                            .lora = LORA_MASK(target) };
}

static tensor_id latent_norm(struct builder *b, const char *name, tensor_id x,
                             struct dim n)
{
    if (!b->spec->latent_norm)
        return x;
    return hf_norm(b,
                   &(struct hf_norm){
                       .name = name, .x = x, .kind = b->spec->norm, .n = n });
}

/* *low: what they come from. */
static tensor_id queries(struct builder *b, tensor_id x, tensor_id *low)
{
    struct linear l = linear_of_q(b, "q_proj", x);
    if (b->spec->q_rank > 0) {
        const struct linear down = down_of(b, "q_a_proj", x, b->rq, LORA_Q_A);
        tensor_id y = hf_linear(b, &down);
        y = latent_norm(b, "q_a_layernorm", y, b->rq);
        l = up_of("q_b_proj", y, b->rq, b->A, LORA_Q_B);
        *low = y;
    }
    l.bias = false;
    return hf_linear(b, &l);
}

/* ---- rotary part ---- */

static tensor_id rotate(struct builder *b, tensor_id x)
{
    if (b->spec->family == FAM_DEEPSEEK_V2)
        return hf_rotate_complex(b, x);
    if (b->spec->family == FAM_MINICPM3)
        return hf_rotate_part(b, x, b->rope);
    return hf_rotate_halves(b, x, b->rope);
}

/* ---- q, k, v ---- */

static void make_keys(struct builder *b, tensor_id x, tensor_id *k_rot,
                      tensor_id *k_nope, tensor_id *v)
{
    const struct linear down =
        down_of(b, "kv_a_proj_with_mqa", x, b->latent, LORA_KV_A);
    const tensor_id both = hf_linear(b, &down);
    const struct shape parts[] = { shape_last(b, both, b->rkv),
                                   shape_last(b, both, b->rope) };
    tensor_id part[2];
    build_split(b, "kv, k rope", both, part, parts, 2);
    const tensor_id y = latent_norm(b, "kv_a_layernorm", part[0], b->rkv);
    const struct shape one = heads_shape(b, b->one, b->rope);
    *k_rot = build_view(b, "k rope", part[1], &one);
    const struct linear up = up_of("kv_b_proj", y, b->rkv, b->kv_up, LORA_KV_B);
    const tensor_id kv = hf_linear(b, &up);
    const struct shape halves[] = { heads_shape(b, b->a, b->nope),
                                    heads_shape(b, b->a, b->dv) };
    tensor_id half[2];
    build_split(b, "k, v", kv, half, halves, 2);
    *k_nope = half[0];
    *v = half[1];
}

void hf_latent(struct builder *b, tensor_id x, struct hf_qkv *out)
{
    const struct shape whole = heads_shape(b, b->a, b->d);
    tensor_id low = x;
    const tensor_id q = queries(b, x, &low);
    const struct shape parts[] = { heads_shape(b, b->a, b->nope),
                                   heads_shape(b, b->a, b->rope) };
    tensor_id part[2];
    build_split(b, "q, q rope", q, part, parts, 2);
    tensor_id k_rot, k_nope, v;
    out->hidden = tensor_of(b, x)->dtype;
    make_keys(b, x, &k_rot, &k_nope, &v);
    const tensor_id q_rot = rotate(b, part[1]);
    k_rot = rotate(b, k_rot);
    out->q.x = build_cat(b, "q", part[0], q_rot, &whole);
    out->k.x = build_cat(b, "k", k_nope, k_rot, &whole);
    out->v.x = v;
    out->q.layout = out->k.layout = HF_HEADS;
    out->v.layout = HF_SLICE;
    out->q.n = out->k.n = out->v.n = b->a;
    if (b->spec->index_heads > 0)
        out->mask = hf_index(b, x, low);
}
