/*
 * Owns rotary embeddings as Hugging Face's classes write them out: rotate_half
 * as negate and concatenate, times cos, times sin, add. Refuses to know how
 * the tables are made (hf.c).
 */
#include "lower/hf.h"

#include "base/banned.h"

static struct dim half_of(struct dim d)
{
    return DIM("r/2", d.n / 2);
}

static struct dim rotated_dim(const struct builder *b)
{
    const uint64_t r = b->spec->rotary_dim;
    return r == 0 || r == b->d.n ? b->d : DIM("r", r);
}

static bool is_ernie(enum family family)
{
    return family == FAM_ERNIE || family == FAM_ERNIE_MOE;
}

/* apply_rotary_pos_emb of Baichuan 2: q.float(), and again what is turned. */
static bool rotates_wide(const struct spec *m)
{
    return m->family == FAM_BAICHUAN && m->head_norm;
}

/* x cos + rotate(x) sin; x is [..., d]. Ernie casts both operands. */
static tensor_id rotated(struct builder *b, tensor_id x, tensor_id cos,
                         tensor_id sin, struct dim d)
{
    const bool wide = rotates_wide(b->spec);
    const enum dtype dtype =
        wide || is_ernie(b->spec->family) ? DT_FP32 : tensor_of(b, x)->dtype;
    const tensor_id straight =
        build_mul(b, "x cos", build_cast(b, "rope fp32", x, dtype), cos);
    if (wide)
        x = build_cast(b, "rope fp32", x, dtype);
    const struct shape whole = shape_last(b, x, d);
    const struct shape part = shape_last(b, x, half_of(d));
    tensor_id half[2];
    build_slices(b, "halves", x, half, (const struct shape[]){ part, part }, 2);
    const tensor_id negative = build_neg(b, "-x2", half[1]);
    tensor_id turned = build_cat(b, "rotate_half", negative, half[0], &whole);
    turned = build_cast(b, "rope fp32", turned, dtype);
    const tensor_id crossed = build_mul(b, "rotated sin", turned, sin);
    return build_add(b, "rope", straight, crossed);
}

/* Heads come before tokens there, and the tables are broadcast. */
static tensor_id rotate(struct builder *b, tensor_id x, tensor_id cos,
                        tensor_id sin, struct dim d)
{
    const uint32_t first = b->p->n_ops;
    const tensor_id y = rotated(b, x, cos, sin, d);
    for (uint32_t i = first; i < b->p->n_ops; i++)
        b->p->op[i].strided = true;
    return y;
}

/* x1 cos - x2 sin and x2 cos + x1 sin, then a concatenation: GPT-OSS, and the
 * pairs of DeepSeek (apply_rotary_pos_emb_interleave). */
tensor_id hf_rotate_halves(struct builder *b, tensor_id x, struct dim d)
{
    const struct dim half = half_of(d);
    const struct shape whole = shape_last(b, x, d);
    const struct shape part = shape_last(b, x, half);
    const struct shape row = SHAPE(b->sq, half);
    const tensor_id cos = build_view(b, "cos", hf_rope_table(b, HF_COS), &row);
    const tensor_id sin = build_view(b, "sin", hf_rope_table(b, HF_SIN), &row);
    tensor_id x1[2];
    build_slices(b, "halves", x, x1, (const struct shape[]){ part, part }, 2);
    const tensor_id a = build_mul(b, "x1 cos", x1[0], cos);
    const tensor_id c = build_mul(b, "x2 sin", x1[1], sin);
    const tensor_id first = build_add(b, "x1 cos - x2 sin", a, c);
    const tensor_id e = build_mul(b, "x2 cos", x1[1], cos);
    const tensor_id f = build_mul(b, "x1 sin", x1[0], sin);
    const tensor_id second = build_add(b, "x2 cos + x1 sin", e, f);
    return build_cat(b, "rope", first, second, &whole);
}

tensor_id hf_rotate_part(struct builder *b, tensor_id x, struct dim d)
{
    return rotate(b, x, hf_rope_table(b, HF_COS), hf_rope_table(b, HF_SIN), d);
}

tensor_id hf_rotate_complex(struct builder *b, tensor_id x)
{
    const enum dtype dtype = tensor_of(b, x)->dtype;
    tensor_id y = build_cast(b, "complex", x, DT_FP32);
    y = build_mul(b, "times freqs_cis", y, hf_rope_table(b, HF_COS));
    return build_cast(b, "rope", y, dtype);
}

/* The families whose apply_rotary_pos_emb always joins a rotated and a plain
 * part, even where the plain part is empty. */
static bool always_joins(enum family family)
{
    return family == FAM_PHI3 || family == FAM_GPT_NEOX
           || family == FAM_STABLELM || family == FAM_GPTJ
           || family == FAM_NEMOTRON || family == FAM_GLM
           || family == FAM_MINIMAX_M2;
}

static bool casts_back(enum family family)
{
    return family == FAM_OLMO || family == FAM_OLMO2 || family == FAM_OLMO3
           || family == FAM_FLEX_OLMO || family == FAM_COHERE
           || family == FAM_COHERE2 || family == FAM_MINICPM
           || is_ernie(family);
}

/* The tables are gathered in every layer; of most each entry comes twice
 * (repeat_interleave). */
static bool interleaves(enum family family)
{
    return family == FAM_GLM || family == FAM_GLM4 || is_ernie(family)
           || family == FAM_HELIUM
           || family == FAM_GROK /* cos[position_ids], as the next */
           || family == FAM_INTERNLM || family == FAM_INTERNLM2
           || family == FAM_MINICPM || family == FAM_BAICHUAN;
}

static bool in_fp32(enum family family)
{
    return family == FAM_COHERE || family == FAM_COHERE2
           || family == FAM_MINICPM;
}

static void rope_whole(struct builder *b, struct hf_heads *h, tensor_id cos,
                       tensor_id sin)
{
    const enum dtype dtype = tensor_of(b, h->x)->dtype;
    tensor_id x = h->x;
    if (in_fp32(b->spec->family))
        x = build_cast(b, "rope fp32", x, DT_FP32);
    x = rotate(b, x, cos, sin, b->d);
    if (casts_back(b->spec->family) || rotates_wide(b->spec))
        x = build_cast(b, "rope", x, dtype);
    h->x = x;
    if (h->layout == HF_SLICE)
        h->layout = HF_TOKENS;
}

static void rope_part(struct builder *b, struct hf_heads *h, tensor_id cos,
                      tensor_id sin)
{
    const struct dim r = rotated_dim(b);
    const struct dim pass = DIM("d-r", b->d.n - r.n);
    const struct shape whole = shape_of(b, h->x);
    const struct shape parts[] = { shape_last(b, h->x, r),
                                   shape_last(b, h->x, pass) };
    tensor_id part[2];
    build_slices(b, "rotary part", h->x, part, parts, 2);
    const tensor_id turned = rotate(b, part[0], cos, sin, r);
    h->x = build_cat(b, "rope", turned, part[1], &whole);
    /* a concatenation is contiguous in the order its operands are seen in:
       GPT-J rotates [b, s, heads, d], ChatGLM [s, b, heads, d], the others
       [b, heads, s, d] */
    const bool tokens =
        b->spec->family == FAM_GPTJ || b->spec->family == FAM_CHATGLM;
    h->layout = tokens ? HF_TOKENS : HF_HEADS;
}

/* GPT-J gathers its table in every layer, and repeats it for q and for k
 * (modeling_gptj.py, get_embed_positions, apply_rotary_pos_emb). */
static void rope_gptj(struct builder *b, struct hf_qkv *qkv)
{
    const struct dim r = rotated_dim(b);
    const struct shape rows = SHAPE(b->sq, r);
    const struct shape half = SHAPE(b->sq, half_of(r));
    const tensor_id buffer = hf_sincos_buffer(b);
    const tensor_id table = build_copy(b, "embed_positions", buffer);
    tensor_id sincos =
        build_index(b, "sincos", table, hf_table(b, HF_POSITIONS), &rows);
    sincos = build_cast(b, "sincos", sincos, tensor_of(b, qkv->k.x)->dtype);
    tensor_id part[2];
    build_split(b, "sin, cos", sincos, part,
                (const struct shape[]){ half, half }, 2);
    struct hf_heads *const both[] = { &qkv->k, &qkv->q };
    for (unsigned i = 0; i < 2; i++) {
        const tensor_id sin = build_copy_as(b, "sin", part[0], &rows);
        const tensor_id cos = build_copy_as(b, "cos", part[1], &rows);
        rope_part(b, both[i], cos, sin);
    }
}

/* apply_rotary_pos_emb of Qwen/Qwen-7B, modeling_qwen.py: in fp32; by one
 * kernel of flash-attn where that is there. */
static void rope_qwen(struct builder *b, struct hf_heads *h)
{
    const enum dtype dtype = tensor_of(b, h->x)->dtype;
    const tensor_id cos = hf_table(b, HF_COS), sin = hf_table(b, HF_SIN);
    tensor_id x = build_cast(b, "rope fp32", h->x, DT_FP32);
    if (hf_kernel(b) == ATTN_FLASH) {
        x = build_mul(b, "rope", x, cos);
        x = build_binary_in_place(b, OP_MUL, "rope", x, sin);
    } else {
        x = rotate(b, x, cos, sin, b->d);
        x = build_copy(b, "rope joined", x); /* with an empty rest */
    }
    h->x = build_cast(b, "rope", x, dtype);
    h->layout = HF_TOKENS;
}

/* liger_kernel/ops/rope.py: q and k are turned in place by one kernel,
 * their gradients too. */
static void rope_liger(struct builder *b, struct hf_qkv *qkv)
{
    qkv->q.x = build_unary_in_place(b, OP_SCALE, "rope", qkv->q.x);
    build_place(b, PLACE_GRADIENT);
    qkv->k.x = build_unary_in_place(b, OP_SCALE, "rope", qkv->k.x);
    build_place(b, PLACE_GRADIENT);
}

/* vision_apply_rotary_emb of Llama 4: by a buffer of complex numbers. */
static tensor_id rotate_in_image(struct builder *b, tensor_id x)
{
    const enum dtype dtype = tensor_of(b, x)->dtype;
    tensor_id y = build_cast(b, "complex", x, DT_FP32);
    y = build_scale(b, "times freqs_ci", y);
    return build_cast(b, "rope", y, dtype);
}

/* Of the gathered tables: that of what they turn, in the code that comes with
 * the weights (RotaryEmbedding.forward); MiniCPM asks for fp32, but where sdpa
 * is called. */
static enum dtype table_type(struct builder *b, const struct hf_qkv *qkv)
{
    static const enum family of_x[] = { FAM_GROK, FAM_INTERNLM, FAM_INTERNLM2,
                                        FAM_BAICHUAN };
    const enum dtype x = tensor_of(b, qkv->k.x)->dtype;
    if (rotates_wide(b->spec))
        return DT_FP32;
    if (b->spec->family == FAM_MINICPM)
        return hf_kernel(b) == ATTN_SDPA ? x : DT_FP32;
    return IS_AMONG(b->spec->family, of_x)
               ? x
               : tensor_of(b, hf_rope_table(b, HF_COS))->dtype;
}

/* _apply_rotary_emb_qkv of Phi as first uploaded: halves in fp32, with tables
 * of half the width that each layer makes itself. */
static void turn_mixformer(struct builder *b, struct hf_heads *h, tensor_id cos,
                           tensor_id sin)
{
    const struct dim r = rotated_dim(b);
    const struct shape all = shape_of(b, h->x), turned = shape_last(b, h->x, r);
    const struct shape parts[] = {
        turned, shape_last(b, h->x, DIM("d-r", b->d.n - r.n))
    };
    const struct shape half = shape_last(b, h->x, half_of(r));
    const enum dtype dtype = tensor_of(b, h->x)->dtype;
    tensor_id part[2], x[2];
    build_slices(b, "rotary part", h->x, part, parts, 2);
    build_slices(b, "halves", part[0], x, (const struct shape[]){ half, half },
                 2);
    x[0] = build_cast(b, "x1", x[0], DT_FP32);
    x[1] = build_cast(b, "x2", x[1], DT_FP32);
    const tensor_id a = build_mul(b, "x1 cos", x[0], cos);
    const tensor_id c = build_mul(b, "x2 sin", x[1], sin);
    const tensor_id first = build_add(b, "x1 cos - x2 sin", a, c);
    const tensor_id e = build_mul(b, "x1 sin", x[0], sin);
    const tensor_id f = build_mul(b, "x2 cos", x[1], cos);
    const tensor_id second = build_add(b, "x1 sin + x2 cos", e, f);
    tensor_id y = build_cat(b, "turned", first, second, &turned);
    y = build_cast(b, "turned", y, dtype);
    h->x = build_cat(b, "rope", y, part[1], &all);
    h->layout = HF_TOKENS;
}

static void rope_mixformer(struct builder *b, struct hf_qkv *qkv)
{
    const struct shape rows = SHAPE(b->sq, half_of(rotated_dim(b)));
    tensor_id table[2];
    for (unsigned i = 0; i < 2; i++) {
        table[i] = build_copy_as(
            b, "table", hf_rope_table(b, i == 0 ? HF_COS : HF_SIN), &rows);
        table[i] = build_cast(b, "table", table[i], DT_FP32);
    }
    turn_mixformer(b, &qkv->q, table[0], table[1]);
    turn_mixformer(b, &qkv->k, table[0], table[1]);
}

void hf_rope(struct builder *b, struct hf_qkv *qkv)
{
    if (!build_rotates(b))
        return;
    if (b->spec->family == FAM_LLAMA4_VISION) {
        qkv->q.x = rotate_in_image(b, qkv->q.x);
        qkv->k.x = rotate_in_image(b, qkv->k.x);
        return;
    }
    if (b->spec->family == FAM_GPTJ) {
        rope_gptj(b, qkv);
        return;
    }
    if (b->spec->family == FAM_QWEN) {
        rope_qwen(b, &qkv->q);
        rope_qwen(b, &qkv->k);
        return;
    }
    const bool part =
        always_joins(b->spec->family) || rotated_dim(b).n != b->d.n;
    if (hf_is_liger(b) && !part && !b->autocast) {
        rope_liger(b, qkv);
        return;
    }
    tensor_id cos = hf_rope_table(b, HF_COS), sin = hf_rope_table(b, HF_SIN);
    if (b->spec->family == FAM_LLAMA4) {
        qkv->q.x = hf_rotate_complex(b, qkv->q.x);
        qkv->k.x = hf_rotate_complex(b, qkv->k.x);
        return;
    }
    if (b->spec->family == FAM_GPT_OSS) {
        qkv->q.x = hf_rotate_halves(b, qkv->q.x, b->d);
        qkv->k.x = hf_rotate_halves(b, qkv->k.x, b->d);
        qkv->q.layout = qkv->k.layout = HF_HEADS;
        return;
    }
    if (b->spec->family == FAM_PHI_MSFT) {
        rope_mixformer(b, qkv);
        return;
    }
    if (interleaves(b->spec->family)) { /* in every layer */
        const enum dtype dtype = table_type(b, qkv);
        cos = build_cast(b, "cos", build_copy(b, "cos", cos), dtype);
        sin = build_cast(b, "sin", build_copy(b, "sin", sin), dtype);
    }
    if (part) {
        rope_part(b, &qkv->q, cos, sin);
        rope_part(b, &qkv->k, cos, sin);
        return;
    }
    const tensor_id given[] = { qkv->q.x, qkv->k.x };
    rope_whole(b, &qkv->q, cos, sin);
    rope_whole(b, &qkv->k, cos, sin);
    /* the caller's names take what comes back together (modeling_llama.py,
       query_states, key_states) */
    build_op(b, OP_RELEASE, "query, key", given, 2);
}
