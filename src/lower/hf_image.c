/*
 * Owns what ViT has in place of words: pixels, the product of each patch, the
 * token of the class (transformers, ViTEmbeddings). Refuses to know the layers,
 * which are any encoder's.
 */
#include "lower/hf.h"

#include "base/banned.h"

static struct dim patch_pixels(struct builder *b)
{
    const struct spec *m = b->spec;
    if (m->frames > 1)
        return DIM("c*f*p*p", build_product(b, m->channels * m->frames,
                                            m->patch * m->patch));
    return DIM("c*p*p", build_product(b, m->channels, m->patch * m->patch));
}

static struct dim patches(struct builder *b)
{
    const uint64_t others = b->spec->class_token ? 1 : 0;
    return DIM(others ? "b*(s-1)" : "b*s",
               build_product(b, b->micro.n, b->sq.n - others));
}

/* ViTEmbeddings adds its table; the others look every place up in theirs. */
static bool looks_up(const struct spec *m)
{
    return m->family == FAM_CLIP_VISION || m->family == FAM_SIGLIP_VISION;
}

/* Llama4UnfoldConvolution: patches laid out, then a product. */
static bool unfolds(const struct spec *m)
{
    return m->family == FAM_LLAMA4_VISION;
}

/* What does not fill a patch is there too, and not looked at. */
void hf_image_input(struct builder *b)
{
    const struct spec *m =
        b->whole->vision != NULL ? b->whole->vision : b->spec;
    const struct shape pixels =
        SHAPE(DIM("images", build_images(b)), DIM("c", m->channels),
              DIM("image", m->image * m->image));
    const struct shape places = SHAPE(DIM("s", m->max_positions));
    const struct shape rows = SHAPE(
        DIM("patches", build_product(b, build_images(b), m->max_positions)),
        DIM("c*f*p*p",
            build_product(b, m->channels * m->frames, m->patch * m->patch)));
    if (m->merge > 0) { /* the processor cuts them out */
        b->pixels = build_input(b, "pixel_values", DT_FP32, &rows);
        return;
    }
    /* Llama 4's class does not cast them: they come as its weights are */
    b->pixels = build_input(b, "pixel_values", unfolds(m) ? b->stream : DT_FP32,
                            &pixels);
    if (looks_up(m))
        (void)build_input(b, "image position_ids", DT_INT64, &places);
}

/* A convolution whose patches do not overlap is a product of each; it keeps its
 * weight too. */
tensor_id hf_patch_product(struct builder *b, tensor_id x)
{
    const tensor_id weight = build_param(
        b, &(struct param){ .name = "patch_embeddings",
                            .group = PG_EMBED,
                            .rows = b->h,
                            .cols = patch_pixels(b),
                            .last = { b->spec->patch, b->spec->patch },
                            .matmul = true,
                            .bare = true });
    const tensor_id bias =
        b->spec->patch_bias
            ? build_bias(b, "patch_embeddings", PG_EMBED, b->h, 0)
            : TENSOR_NONE;
    const tensor_id in[] = {
        build_autocast(b, "autocast", x), build_autocast(b, "autocast", weight),
        bias == TENSOR_NONE ? bias : build_autocast(b, "autocast", bias)
    };
    const struct shape shape = SHAPE(patches(b), b->h);
    const tensor_id y =
        build_tensor(b, "patch_embeddings", tensor_of(b, in[1])->dtype, &shape);
    struct op *op = build_op(b, OP_CONV, "patch_embeddings", in, 3);
    op_result(b, op, y);
    op->flop_full = op->flop_causal =
        2.0 * (double)tensor_of(b, y)->elems * (double)patch_pixels(b).n;
    return y;
}

/* Patches lie column by column, which the product has put in order. */
static tensor_id unfolded_product(struct builder *b, tensor_id x)
{
    const struct shape rows = SHAPE(patches(b), patch_pixels(b));
    x = build_copy_as(b, "unfold", x, &rows);
    x = build_copy(b, "in order", build_autocast(b, "autocast", x));
    return build_linear(b, &(struct linear){ .name = "patch_embeddings",
                                             .x = x,
                                             .in = patch_pixels(b),
                                             .out = b->h,
                                             .group = PG_EMBED,
                                             .lora = LORA_NAMELESS });
}

/* Llama4VisionRotaryEmbedding: a complex number for every two of a head. */
static void rotary_buffer(struct builder *b)
{
    const struct shape shape = SHAPE(b->s, b->d);
    (void)build_buffer(b, "freqs_ci", DT_FP32, &shape);
}

static tensor_id places(struct builder *b)
{
    const tensor_id table = build_position_table(b, "position_embeddings");
    const struct shape each = SHAPE(b->sq, b->h);
    if (!looks_up(b->spec))
        return table;
    return build_embedding(b, "positions", b->pixels + 1, table, &each);
}

tensor_id hf_image_embed(struct builder *b)
{
    const struct shape all = SHAPE(b->t, b->h);
    tensor_id x = b->pixels;
    if (b->stream != DT_FP32) /* ViTModel.forward */
        x = build_cast(b, "pixels", x, b->stream);
    x = unfolds(b->spec) ? unfolded_product(b, x) : hf_patch_product(b, x);
    if (unfolds(b->spec))
        rotary_buffer(b);
    if (b->spec->merge > 0)
        return hf_window_embed(b, x);
    if (b->spec->class_token) {
        const tensor_id class = build_vector(b, "cls_token", PG_EMBED, b->h, 0);
        x = build_cat(b, "class and patches", class, x, &all);
    }
    x = build_add(b, "embeddings + positions", x, places(b));
    if (b->spec->embedding_norm)
        x = hf_hidden_norm(b, "embedding norm", x);
    return x;
}
