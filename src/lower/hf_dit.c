/*
 * Owns diffusion transformers (Peebles and Xie 2023): diffusers' class,
 * models/transformers/dit_transformer_2d.py, each of whose layers has embedders
 * of time and class of its own, and the original (facebookresearch/DiT,
 * models.py), whose layers share one. Refuses to know attention and MLP, which
 * are any encoder's.
 *
 * The loss is the mean square of what is predicted less what was asked for.
 */
#include "lower/hf.h"

#include "base/banned.h"

enum { TIME_WIDTH = 256 }; /* sines and cosines of a time */

static bool is_original(const struct builder *b)
{
    return b->spec->shared_embedder;
}

static struct shape pixels(struct builder *b, uint64_t channels)
{
    const uint64_t side = b->spec->image;
    return SHAPE(b->micro, DIM("c", channels), DIM("image", side * side));
}

/* ---- inputs; b->ids are the times, b->labels the classes ---- */

static tensor_id wanted(const struct builder *b)
{
    return b->pixels + 1;
}

void hf_dit_input(struct builder *b)
{
    const struct spec *m = b->spec;
    const struct shape in = pixels(b, m->channels);
    const struct shape out = pixels(b, m->out_channels);
    b->pixels = build_input(b, "latents", b->stream, &in);
    (void)build_input(b, "target", b->stream, &out);
}

void hf_dit_shared(struct builder *b)
{
    const struct shape shape = SHAPE(b->micro, b->h);
    if (b->spec->classes == 0 || !is_original(b))
        return;
    const tensor_id c = build_shared(b, "conditioning", b->stream, &shape);
    b->p->tensor[c].needs_grad = true;
}

/* ---- times and classes ---- */

static tensor_id linear(struct builder *b, const char *name, tensor_id x,
                        struct dim in, struct dim out)
{
    return build_linear(b, &(struct linear){ .name = name,
                                             .x = x,
                                             .in = in,
                                             .out = out,
                                             .group = PG_CONDITION,
                                             .bias = true });
}

/* Of a layer's embedder. In the head it is the first layer's, whose weight
 * autocast has cast already. */
static tensor_id embedder(struct builder *b, const char *name, tensor_id x,
                          struct dim in)
{
    if (b->block->kind != BLOCK_HEAD)
        return linear(b, name, x, in, b->h);
    const tensor_id weight =
        build_param(b, &(struct param){ .name = name,
                                        .group = PG_CONDITION,
                                        .rows = b->h,
                                        .cols = in,
                                        .matmul = true,
                                        .again = true });
    struct tensor *t = &b->p->tensor[weight];
    if (b->autocast) {
        t->dtype = b->compute;
        t->bytes = t->elems * dtype_size(t->dtype);
    }
    return build_linear(b, &(struct linear){ .name = name,
                                             .x = x,
                                             .in = in,
                                             .out = b->h,
                                             .group = PG_CONDITION,
                                             .bias = true,
                                             .weight = weight,
                                             .has_weight = true });
}

/* Sines of the times, in fp32, through two products. */
static tensor_id embed_times(struct builder *b)
{
    const struct dim width = DIM("256", TIME_WIDTH);
    const struct shape waves = SHAPE(b->micro, width);
    tensor_id x = build_tensor(b, "time_proj", DT_FP32, &waves);
    op_result(b, build_op(b, OP_COPY, "time_proj", &b->ids, 1), x);
    if (!b->autocast)
        x = build_cast(b, "time_proj", x, b->stream);
    x = embedder(b, "timestep_embedder.linear_1", x, width);
    x = build_unary(b, OP_ACTIVATION, "silu", x);
    return embedder(b, "timestep_embedder.linear_2", x, b->h);
}

/* Some labels are dropped for one that means none. */
static tensor_id embed_classes(struct builder *b)
{
    const struct shape each = SHAPE(b->micro), shape = SHAPE(b->micro, b->h);
    const tensor_id table = build_param(
        b, &(struct param){ .name = "class_embedder",
                            .group = PG_CONDITION,
                            .rows = DIM("classes+1", b->spec->classes + 1),
                            .cols = b->h });
    const tensor_id labels = build_copy_as(b, "labels", b->labels, &each);
    return build_embedding(b, "classes", labels, table, &shape);
}

static tensor_id conditioning(struct builder *b)
{
    const tensor_id times = embed_times(b);
    return build_add(b, "conditioning", times, embed_classes(b));
}

/* The first layer's embedders again. */
static tensor_id conditioning_again(struct builder *b)
{
    const tensor_id first = b->p->n_tensors;
    const tensor_id x = conditioning(b);
    for (tensor_id id = first; id < b->p->n_tensors; id++) {
        struct tensor *t = &b->p->tensor[id];
        t->tied = t->again = t->role == ROLE_PARAM;
    }
    return x;
}

static tensor_id condition_of(struct builder *b)
{
    if (is_original(b))
        return b->p->first_shared;
    return b->block->kind == BLOCK_HEAD ? conditioning_again(b)
                                        : conditioning(b);
}

/* `n` rows of numbers for each image, of one product. */
static void modulation(struct builder *b, const char *name, tensor_id *row,
                       unsigned n)
{
    const struct shape one = SHAPE(b->micro, b->h);
    const struct shape rows[] = { one, one, one };
    const tensor_id c = condition_of(b);
    const tensor_id act = build_unary(b, OP_ACTIVATION, "silu", c);
    const tensor_id all =
        linear(b, name, act, b->h, DIM(n == 6 ? "6*h" : "2*h", n * b->h.n));
    for (unsigned i = 0; i < n; i += 3)
        build_split(b, "shift, scale, gate", all, row + i, rows,
                    n - i < 3 ? n - i : 3);
}

/* x (1 + scale) + shift */
static tensor_id modulate(struct builder *b, tensor_id x, tensor_id shift,
                          tensor_id scale)
{
    const tensor_id more = build_unary(b, OP_ADD, "1 + scale", scale);
    return build_add(b, "shifted", build_mul(b, "scaled", x, more), shift);
}

/* ---- ends ---- */

/* A convolution whose patches do not overlap is a product of each. */
tensor_id hf_dit_embed(struct builder *b)
{
    const struct dim positions = DIM("s", b->spec->max_positions);
    const tensor_id x = hf_patch_product(b, b->pixels);
    const struct shape table = SHAPE(positions, b->h);
    if (is_original(b)) {
        const tensor_id c = conditioning(b);
        b->p->tensor[c].storage = b->p->first_shared;
    }
    const tensor_id sines =
        is_original(b) ? build_param(b, &(struct param){ .name = "pos_embed",
                                                         .group = PG_POSITION,
                                                         .rows = positions,
                                                         .cols = b->h,
                                                         .fixed = true })
                       : build_buffer(b, "pos_embed", b->stream, &table);
    const tensor_id sum = build_add(b, "embeddings + positions", x, sines);
    return is_original(b)
               ? sum
               : build_cast(b, "as it was", sum, tensor_of(b, x)->dtype);
}

/* The loss of patches put together again. */
tensor_id hf_dit_head(struct builder *b, tensor_id x)
{
    const struct spec *m = b->spec;
    const struct dim width =
        DIM("p*p*c", build_product(b, m->patch * m->patch, m->out_channels));
    const struct shape image = pixels(b, m->out_channels);
    const struct shape scalar = SHAPE(b->one);
    tensor_id row[3];
    modulation(b, "proj_out_1", row, 2);
    const tensor_id hidden = x;
    x = build_layer_norm(b, "norm_out", x, TENSOR_NONE, TENSOR_NONE);
    x = modulate(b, x, row[0], row[1]);
    hf_hold(b, "hidden_states", hidden);
    x = build_linear(b, &(struct linear){ .name = "proj_out_2",
                                          .x = x,
                                          .in = b->h,
                                          .out = width,
                                          .group = PG_HEAD,
                                          .bias = true });
    x = build_copy_as(b, "patches together", x, &image);
    if (b->autocast)
        x = build_cast(b, "autocast", x, DT_FP32);
    const tensor_id in[] = { x, wanted(b) };
    const tensor_id loss =
        build_tensor(b, "loss", tensor_of(b, in[0])->dtype, &scalar);
    struct op *op = build_op(b, OP_FUSED, "mean square", in, 2);
    op_result(b, op, loss);
    op->keep_in = 3;
    return loss;
}

/* ---- a layer ---- */

static tensor_id gated(struct builder *b, tensor_id x, tensor_id y,
                       tensor_id gate)
{
    return build_add(b, "residual", x, build_mul(b, "gated", y, gate));
}

tensor_id hf_dit_layer(struct builder *b, tensor_id x)
{
    tensor_id row[6]; /* shift, scale, gate of attention, of the MLP */
    modulation(b, "norm1.linear", row, 6);
    tensor_id y = build_layer_norm(b, "norm1", x, TENSOR_NONE, TENSOR_NONE);
    y = hf_attention(b, modulate(b, y, row[0], row[1]));
    if (!is_original(b)) { /* Attention: to_out[1]; rescale_output_factor */
        y = build_dropout(b, "hidden dropout", y, b->run->hidden_dropout);
        y = build_scale(b, "rescaled", y);
    }
    x = gated(b, x, y, row[2]);
    y = hf_hidden_norm(b, "norm3", x);
    y = hf_mlp(b, modulate(b, y, row[3], row[4]));
    return gated(b, x, y, row[5]);
}
