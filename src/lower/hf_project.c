/*
 * Owns the way from a layer's normed input to q, k and v: one matrix or three,
 * norms on q and k, and which results are views. Refuses to know rotary
 * embeddings and attention.
 */
#include "lower/hf.h"

#include "base/banned.h"

tensor_id hf_linear(struct builder *b, const struct linear *l)
{
    struct linear whole = *l;
    if (l->parallel == PAR_COLUMN)
        whole.x = hf_to_columns(b, l->x);
    /* FalconLinear: input @ weight.T, + bias apart */
    whole.by_view = b->spec->family == FAM_FALCON;
    if (!whole.by_view || !l->bias)
        return build_linear(b, &whole);
    struct linear plain = whole;
    plain.bias = false;
    const tensor_id y = build_linear(b, &plain);
    const uint64_t full = l->parallel == PAR_COLUMN ? l->full_out : 0;
    const tensor_id bias = build_bias(b, l->name, l->group, l->out, full);
    const tensor_id sum = build_add(b, l->name, y, bias);
    hf_hold_frozen(b, "input", l->x);
    hf_hold(b, "hidden_states", y);
    return sum;
}

/* transpose(1, 2).contiguous(): of one head, or one token, a view. */
static void make_contiguous(struct builder *b, struct hf_heads *h)
{
    const struct shape shape = shape_of(b, h->x);
    h->layout = HF_HEADS;
    if (shape.dim[1].n > 1 && shape.dim[2].n > 1)
        h->x = build_copy_as(b, "contiguous", h->x, &shape);
}

static struct hf_heads heads_of(struct builder *b, const char *name,
                                tensor_id x, struct dim n)
{
    const struct shape shape = hf_shape(b, n);
    struct hf_heads h = { .layout = HF_TOKENS, .n = n };
    h.x = build_view(b, name, x, &shape);
    if (b->spec->family == FAM_WHISPER)
        make_contiguous(b, &h);
    return h;
}

/* ---- norms on q and k ---- */

static const char *norm_name(const char *normed)
{
    return normed[0] == 'q' ? "q_norm" : "k_norm";
}

tensor_id hf_norm_heads(struct builder *b, const char *name, tensor_id x,
                        struct dim heads)
{
    const struct spec *m = b->spec;
    const struct shape shape = SHAPE(b->micro, b->sq, heads, b->d);
    const bool shared = m->qk_norm == QK_PER_HEAD;
    struct hf_norm n = { .name = norm_name(name),
                         .kind = m->qk_norm_kind,
                         .n = b->d };
    n.x = build_view(b, name, x, &shape);
    if (!shared) {
        n.n = heads.n == b->a.n ? b->A : b->K;
        n.full = heads.n == b->a.n ? b->full_A : b->full_K;
    }
    return hf_norm(b, &n);
}

static struct hf_heads normed_heads(struct builder *b, const char *name,
                                    tensor_id x, struct dim heads)
{
    const bool q = heads.n == b->a.n;
    struct hf_norm full = { .name = norm_name(name),
                            .x = x,
                            .n = q ? b->A : b->K,
                            .kind = b->spec->qk_norm_kind,
                            .full = q ? b->full_A : b->full_K };
    struct hf_heads h = { .x = x, .layout = HF_TOKENS, .n = heads };
    if (b->spec->family == FAM_HUNYUAN) /* after they have rotated */
        return heads_of(b, name, x, heads);
    switch (b->spec->qk_norm) {
    case QK_UNIT: /* likewise */
    case QK_NONE: return heads_of(b, name, x, heads);
    case QK_FULL: return heads_of(b, name, hf_norm(b, &full), heads);
    case QK_PER_HEAD:
        return heads_of(b, name, hf_norm_heads(b, name, x, heads), heads);
    case QK_EACH_HEAD: h.x = hf_norm_heads(b, name, x, heads); break;
    }
    if (b->spec->family != FAM_STABLELM)
        return heads_of(b, name, h.x, heads);
    /* StableLmLayerNormPerHead: a norm a head, their results joined. As one
       norm here: it keeps the same bytes */
    const struct shape shape = hf_shape(b, heads);
    h.x = build_copy_as(b, "heads joined", h.x, &shape);
    h.layout = HF_HEADS;
    return h;
}

/* ---- three matrices ---- */

/* clamp keeps what it was given, as an activation does. */
static tensor_id clipped(struct builder *b, const char *name, tensor_id x)
{
    if (b->spec->clip_qkv <= 0)
        return x;
    return build_unary(b, OP_ACTIVATION, name, x);
}

/* Qwen3NextAttention: a head's queries, then as many numbers that scale what
 * attention gives it. */
static struct linear with_gate(struct builder *b, struct linear l)
{
    if (!b->spec->attention_gate)
        return l;
    l.out = DIM(b->run->tp > 1 ? "2*a*d/tp" : "2*a*d",
                build_product(b, 2, l.out.n));
    l.full_out = build_product(b, 2, l.full_out);
    return l;
}

static tensor_id split_gate(struct builder *b, tensor_id q, struct hf_qkv *o)
{
    const struct shape half = SHAPE(b->micro, b->sq, b->a, b->d);
    const struct shape rows = SHAPE(b->t, b->A);
    tensor_id part[2];
    build_split(b, "q, gate", q, part, (const struct shape[]){ half, half }, 2);
    o->gate = build_copy_as(b, "gate", part[1], &rows);
    return part[0];
}

static void project_apart(struct builder *b, tensor_id x, struct hf_qkv *o)
{
    const struct linear lq = with_gate(b, linear_of_q(b, "q_proj", x));
    const struct linear lk = linear_of_k(b, "k_proj", x);
    const struct linear lv = linear_of_v(b, "v_proj", x);
    tensor_id q = hf_linear(b, &lq);
    if (b->spec->attention_gate)
        q = split_gate(b, q, o);
    if (b->spec->family == FAM_OPT || b->spec->family == FAM_WHISPER)
        q = build_scale(b, "q scaled", q);
    o->q = normed_heads(b, "q", clipped(b, "q clipped", q), b->a);
    const tensor_id k = clipped(b, "k clipped", hf_linear(b, &lk));
    o->k = normed_heads(b, "k", k, b->kv);
    const tensor_id v = clipped(b, "v clipped", hf_linear(b, &lv));
    o->v = heads_of(b, "v", v, b->kv);
}

void hf_project_cross(struct builder *b, tensor_id x, struct hf_qkv *o)
{
    const struct linear lq = linear_of_q(b, "cross q_proj", x);
    const struct linear lk = linear_of_k(b, "cross k_proj", b->memory);
    const struct linear lv = linear_of_v(b, "cross v_proj", b->memory);
    const struct shape keys = SHAPE(b->micro, b->kv, b->s, b->d);
    o->hidden = tensor_of(b, x)->dtype;
    tensor_id q = hf_linear(b, &lq);
    if (b->spec->family == FAM_WHISPER)
        q = build_scale(b, "q scaled", q);
    o->q = heads_of(b, "q", q, b->a);
    o->k = o->v =
        (struct hf_heads){ .layout = HF_TOKENS, .n = b->kv, .rows = b->s };
    o->k.x = build_view(b, "k", hf_linear(b, &lk), &keys);
    if (b->spec->family == FAM_WHISPER)
        make_contiguous(b, &o->k);
    o->v.x = build_view(b, "v", hf_linear(b, &lv), &keys);
    if (b->spec->family == FAM_WHISPER)
        make_contiguous(b, &o->v);
}

/* ---- one matrix ---- */

static tensor_id project_fused(struct builder *b, tensor_id x)
{
    struct linear l = linear_of_qkv(b, "qkv_proj", x);
    l.bias = b->spec->q_bias;
    return hf_linear(b, &l);
}

static void slice_qkv(struct builder *b, tensor_id qkv, struct hf_qkv *o)
{
    const struct shape parts[] = { hf_shape(b, b->a), hf_shape(b, b->kv),
                                   hf_shape(b, b->kv) };
    tensor_id part[3];
    (b->spec->family == FAM_PHI3 ? build_slices : build_split)(
        b, "q, k, v", qkv, part, parts, 3);
    o->q = (struct hf_heads){ .x = part[0], .layout = HF_SLICE, .n = b->a };
    o->k = (struct hf_heads){ .x = part[1], .layout = HF_SLICE, .n = b->kv };
    o->v = (struct hf_heads){ .x = part[2], .layout = HF_SLICE, .n = b->kv };
}

/* fused_qkv[..., [-1], :]: a list for an index makes a copy, and its place is
 * sent to the GPU and kept. */
static tensor_id falcon_index(struct builder *b, const char *name,
                              tensor_id qkv)
{
    const struct shape one = SHAPE(b->one);
    const struct shape shape = hf_shape(b, b->kv);
    const tensor_id place = build_copy_as(b, "index", b->ids, &one);
    return build_index(b, name, qkv, place, &shape);
}

/* FalconAttention._split_heads. */
static void split_falcon(struct builder *b, tensor_id qkv, struct hf_qkv *o)
{
    if (b->spec->kv_heads == b->spec->heads) {
        slice_qkv(b, qkv, o); /* falcon-rw */
        return;
    }
    const struct shape q = hf_shape(b, b->a);
    o->q = (struct hf_heads){ .x = build_view(b, "q", qkv, &q),
                              .layout = HF_SLICE,
                              .n = b->a };
    o->k = (struct hf_heads){ .x = falcon_index(b, "k", qkv),
                              .layout = HF_TOKENS,
                              .n = b->kv };
    o->v = (struct hf_heads){ .x = falcon_index(b, "v", qkv),
                              .layout = HF_TOKENS,
                              .n = b->kv };
    if (b->spec->kv_heads == 1)
        return;
    /* the new decoder repeats k and v before anything else, and flattens */
    struct hf_heads *const all[] = { &o->q, &o->k, &o->v };
    for (unsigned i = 0; i < 3; i++) {
        all[i]->x = build_copy_as(b, "broadcast", all[i]->x, &q);
        all[i]->layout = HF_TOKENS;
        all[i]->n = b->a;
    }
}

void hf_project(struct builder *b, tensor_id x, struct hf_qkv *out)
{
    out->hidden = tensor_of(b, x)->dtype;
    out->fused = TENSOR_NONE;
    if (!b->spec->fused_qkv) {
        project_apart(b, x, out);
        return;
    }
    const tensor_id qkv = clipped(b, "qkv clipped", project_fused(b, x));
    out->fused = qkv;
    if (b->spec->family == FAM_FALCON)
        split_falcon(b, qkv, out);
    else
        slice_qkv(b, qkv, out);
}
