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
    return DIM("c*p*p", build_product(b, m->channels, m->patch * m->patch));
}

static struct dim patches(struct builder *b)
{
    return DIM("b*(s-1)", build_product(b, b->micro.n, b->sq.n - 1));
}

/* What does not fill a patch is there too, and not looked at. */
void hf_image_input(struct builder *b)
{
    const struct spec *m = b->spec;
    const struct shape pixels = SHAPE(b->micro, DIM("c", m->channels),
                                      DIM("image", m->image * m->image));
    b->ids = build_input(b, "pixel_values", DT_FP32, &pixels);
}

/* A convolution whose patches do not overlap is a product of each; it keeps its
 * weight too. */
static tensor_id patch_product(struct builder *b)
{
    tensor_id x = b->ids;
    if (b->stream != DT_FP32) /* ViTModel.forward */
        x = build_cast(b, "pixels", x, b->stream);
    const tensor_id weight =
        build_param(b, &(struct param){ .name = "patch_embeddings",
                                        .group = PG_EMBED,
                                        .rows = b->h,
                                        .cols = patch_pixels(b),
                                        .matmul = true });
    const tensor_id bias = build_vector(b, "bias", PG_EMBED, b->h, 0);
    const tensor_id in[] = { build_autocast(b, "autocast", x),
                             build_autocast(b, "autocast", weight),
                             build_autocast(b, "autocast", bias) };
    const struct shape shape = SHAPE(patches(b), b->h);
    const tensor_id y =
        build_tensor(b, "patch_embeddings", tensor_of(b, in[1])->dtype, &shape);
    struct op *op = build_op(b, OP_CONV, "patch_embeddings", in, 3);
    op_result(b, op, y);
    op->flop_full = op->flop_causal =
        2.0 * (double)tensor_of(b, y)->elems * (double)patch_pixels(b).n;
    return y;
}

tensor_id hf_image_embed(struct builder *b)
{
    const struct shape all = SHAPE(b->t, b->h);
    const tensor_id patch = patch_product(b);
    const tensor_id class = build_vector(b, "cls_token", PG_EMBED, b->h, 0);
    const tensor_id x = build_cat(b, "class and patches", class, patch, &all);
    const tensor_id table = build_position_table(b, "position_embeddings");
    return build_add(b, "embeddings + positions", x, table);
}
