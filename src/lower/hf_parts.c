/*
 * Owns what stands between a vision part and a text part, and on CLIP's two
 * towers: norms and adapters at the end of the first, projectors, image tokens
 * in place of words, products to one width. Refuses to know the layers.
 */
#include "lower/hf.h"

#include "base/banned.h"

/* ---- the end of a vision part ---- */

static struct linear projection(tensor_id x, const char *name, struct dim in,
                                struct dim out)
{
    return (struct linear){
        .name = name, .x = x, .in = in, .out = out, .group = PG_PROJECTOR
    };
}

/* Llama4VisionPixelShuffleMLP: patches side by side become one token, in two
 * copies (pixel_shuffle). */
static tensor_id adapter(struct builder *b, tensor_id x)
{
    const struct spec *m = b->spec;
    const uint64_t side = m->image / m->patch;
    const uint64_t fewer = (uint64_t)((double)side * m->pixel_shuffle);
    const struct dim tokens =
        DIM("tokens", build_product(b, b->micro.n, fewer * fewer));
    const struct dim in = DIM("f", m->ffn), mid = DIM("in", m->adapter_in);
    const struct dim out = DIM("out", m->adapter_out);
    const struct shape patches =
        SHAPE(b->micro, DIM("patches", side * side), b->h);
    const struct shape shuffled = SHAPE(tokens, in);
    x = build_view(b, "patches", x, &patches);
    x = build_copy(b, "pixel shuffle", x);
    x = build_copy_as(b, "pixel shuffle", x, &shuffled);
    struct linear l = projection(x, "adapter fc1", in, mid);
    x = build_activation(b, "adapter act", ACT_GELU, build_linear(b, &l));
    l = projection(x, "adapter fc2", out, out);
    return build_activation(b, "adapter act", ACT_GELU, build_linear(b, &l));
}

/* SiglipMultiheadAttentionPoolingHead: one learned query a sequence. */
static tensor_id pooling_head(struct builder *b, tensor_id x)
{
    const struct shape one = SHAPE(b->micro, b->h);
    const struct dim h3 = DIM("3*h", build_product(b, 3, b->h.n));
    (void)build_param(
        b, &(struct param){ .name = "probe", .group = PG_HEAD, .rows = b->h });
    struct linear l = projection(x, "head in_proj", b->h, h3);
    l.group = PG_HEAD;
    l.bias = true;
    x = build_view(b, "pooled", build_linear(b, &l), &one);
    l = projection(x, "head out_proj", b->h, b->h);
    l.group = PG_HEAD;
    l.bias = true;
    x = hf_hidden_norm(b, "head norm", build_linear(b, &l));
    return build_add(b, "residual", x, hf_mlp(b, x));
}

/* One token of each sequence: that of the class; in CLIP's text the last
 * (pooled_output). */
static tensor_id one_token(struct builder *b, tensor_id x)
{
    const struct shape one = SHAPE(b->micro, b->h);
    return build_view(b, "pooled token", x, &one);
}

tensor_id hf_states(struct builder *b, tensor_id x)
{
    if (b->spec->head == HEAD_ONE) {
        if (b->spec->bidirectional) /* post_layernorm after, in the text before
                                     */
            return hf_hidden_norm(b, "post_layernorm", one_token(b, x));
        return one_token(b, hf_hidden_norm(b, "final norm", x));
    }
    x = hf_hidden_norm(b, "post_layernorm", x);
    if (b->spec->pooling_head)
        return pooling_head(b, x);
    return b->spec->pixel_shuffle > 0 ? adapter(b, x) : x;
}

/* ---- projectors ---- */

/* Gemma3MultiModalProjector: averages of squares of patches, normed. */
static tensor_id project_gemma3(struct builder *b, tensor_id x, struct dim in)
{
    const struct dim tokens =
        DIM("tokens", build_product(b, b->seqs, b->whole->image_tokens));
    const struct shape pooled = SHAPE(tokens, in);
    x = build_copy(b, "patches, transposed", x);
    x = build_copy_as(b, "avg_pool", x, &pooled);
    x = hf_norm(
        b, &(struct hf_norm){
               .name = "mm_soft_emb_norm", .x = x, .kind = NORM_RMS, .n = in });
    const struct linear l = projection(x, "mm_input_projection", in, b->h);
    return build_linear(b, &l);
}

static tensor_id project_llava(struct builder *b, tensor_id x, struct dim in)
{
    const struct spec *m = b->whole;
    struct dim wide = in;
    if (m->joint_layers > 1)
        wide = DIM("layers*h_v", build_product(b, m->joint_layers, in.n));
    struct linear l = projection(x, "linear_1", wide, b->h);
    l.bias = m->joint_bias;
    x = build_activation(b, "projector act", m->joint_act, build_linear(b, &l));
    l = projection(x, "linear_2", b->h, b->h);
    l.bias = m->joint_bias;
    return build_linear(b, &l);
}

/* b is the text's. */
static tensor_id project(struct builder *b, tensor_id x)
{
    const struct spec *v = b->whole->vision;
    const struct dim width = DIM("h_v", v->hidden);
    switch (b->whole->joint) {
    case JOINT_GEMMA3: return project_gemma3(b, x, width);
    case JOINT_LLAMA4: {
        const struct linear l = projection(
            x, "projector", DIM("vision_output", v->vision_width), b->h);
        return build_linear(b, &l);
    }
    case JOINT_LLAVA: return project_llava(b, x, width);
    case JOINT_CLIP:
    case JOINT_NONE: break;
    }
    return x;
}

/* ---- between the parts ---- */

static tensor_id clip_product(struct builder *b, const char *name, tensor_id x,
                              uint64_t in)
{
    const struct linear l = projection(
        x, name, DIM("h", in), DIM("projection", b->whole->joint_width));
    return build_linear(b, &l);
}

tensor_id hf_to_text(struct builder *b, tensor_id x)
{
    const bool clip = b->whole->joint == JOINT_CLIP;
    /* LLaVA reads a layer below the last; the norm above has no gradient */
    x = hf_states(b, x);
    if (clip)
        x = clip_product(b, "visual_projection", x, b->spec->hidden);
    build_to_text(b);
    if (!clip)
        x = project(b, x);
    const struct shape all = SHAPE(b->t, b->h);
    const tensor_id words = hf_words(b);
    return clip ? words : build_cat(b, "image tokens", words, x, &all);
}

/* CLIPModel: both normed to length one, a scale, each against each. */
tensor_id hf_contrast(struct builder *b, tensor_id x)
{
    x = hf_states(b, x);
    x = clip_product(b, "text_projection", x, b->spec->hidden);
    (void)build_param(b, &(struct param){ .name = "logit_scale",
                                          .group = PG_PROJECTOR,
                                          .rows = b->one });
    return build_mean(b, "loss", x);
}
