/*
 * Owns what Qwen3-VL has between its parts besides one row of tokens
 * (transformers 5.23, modeling_qwen3_vl.py): a table of places that is
 * resampled to the size of an image, and mergers behind some layers of its
 * vision part, whose tokens are added to the states of as many layers of its
 * text. Refuses to know layers, and the merger behind the last one
 * (hf_window.c).
 */
#include "lower/hf.h"

#include "base/banned.h"

/* ---- places ---- */

/* pos_embed(interp_indices) * interp_weights, summed over four neighbours: in
 * fp32, as the weights are. */
tensor_id hf_add_places(struct builder *b, tensor_id x)
{
    const struct shape taps = SHAPE(b->t, DIM("4", 4), b->h);
    const struct shape rows = SHAPE(b->t, b->h);
    const tensor_id table = build_param(
        b, &(struct param){ .name = "pos_embed",
                            .group = PG_POSITION,
                            .rows = DIM("places", b->spec->patch_places),
                            .cols = b->h });
    const tensor_id found =
        build_embedding(b, "pos_embed", hf_table(b, HF_TAPS), table, &taps);
    const tensor_id product = build_tensor(b, "weighted", DT_FP32, &taps);
    const tensor_id in[] = { found, hf_table(b, HF_SHARES) };
    struct op *op = build_op(b, OP_FUSED, "interpolated", in, 2);
    const tensor_id places = build_tensor(b, "interpolated", DT_FP32, &rows);
    op_result(b, op, places);
    op_byproduct(op, product);
    op->keep_in = 2;
    if (tensor_of(b, found)->dtype != DT_FP32)
        op->back_bytes = tensor_of(b, product)->bytes;
    const tensor_id low =
        build_cast(b, "places", places, tensor_of(b, x)->dtype);
    const tensor_id sum = build_add(b, "patches + places", x, low);
    if (b->whole->vision != NULL) /* pos_embeds, to the last merger */
        hf_frame(b, places);
    else
        hf_linger(b, places);
    return sum;
}

/* ---- features ---- */

static const struct spec *seeing(const struct builder *b)
{
    return b->whole->vision != NULL ? b->whole->vision : b->whole;
}

/* Tokens of the micro-batch's images. */
static struct dim tokens_of(struct builder *b)
{
    const struct spec *v = seeing(b);
    return DIM("tokens",
               build_product(b, build_images(b),
                             v->max_positions / (v->merge * v->merge)));
}

/* Of a text one merger's, which one layer takes; of a vision part that is all
 * of the model those of all but a last layer's, for its loss. */
void hf_deep_features(struct builder *b)
{
    const struct spec *v = seeing(b);
    uint64_t n = v->deep_layers;
    if (v->merge == 0 || n == 0 || build_images(b) == 0)
        return;
    n -= pattern_has(&v->deep, v->layers - 1);
    if (b->whole->vision != NULL)
        n = 1;
    if (n == 0)
        return;
    const struct shape shape =
        SHAPE(DIM("features", n), tokens_of(b), DIM("out", v->vision_width));
    b->deep = build_tensor(b, "deepstack features",
                           b->autocast ? b->compute : b->stream, &shape);
}

static struct param merger_param(struct builder *b, const char *name,
                                 struct dim rows, struct dim cols)
{
    (void)b;
    return (struct param){ .name = name,
                           .group = PG_PROJECTOR,
                           .rows = rows,
                           .cols = cols,
                           .matmul = true };
}

static struct dim wide_dim(struct builder *b)
{
    const uint64_t merge = b->spec->merge;
    return DIM("h*m*m", build_product(b, b->h.n, merge * merge));
}

/* Qwen3VLVisionPatchMerger, which norms neighbours side by side. */
void hf_deep_merger(struct builder *b, tensor_id x)
{
    const struct spec *m = b->spec;
    const uint32_t first = b->p->n_ops;
    const bool projects = b->projects;
    const struct dim wide = wide_dim(b);
    const struct dim tokens = DIM("b*s/m/m", b->t.n / (m->merge * m->merge));
    const struct shape merged = SHAPE(tokens, wide);
    struct linear l = { .name = "deepstack_merger.fc1",
                        .in = wide,
                        .out = wide,
                        .group = PG_PROJECTOR,
                        .bias = true,
                        .lora = LORA_NAMELESS };
    b->projects = b->whole->vision != NULL;
    const tensor_id normed = hf_norm(
        b, &(struct hf_norm){ .name = "deepstack_merger.norm",
                              .x = build_view(b, "neighbours", x, &merged),
                              .kind = m->norm,
                              .n = wide });
    l.x = normed;
    l.x = build_activation(b, "merger act", ACT_GELU, build_linear(b, &l));
    l.name = "deepstack_merger.fc2";
    l.out = DIM("out", m->vision_width);
    const tensor_id y = build_linear(b, &l);
    hf_hold(b, "x", normed);
    hf_frame(b, y);                     /* deepstack_feature_lists */
    if (b->block->kind == BLOCK_HEAD) { /* its loss follows */
        b->deep_last = y;
    } else {
        b->block->memory = y;
        b->block->memory_waits = b->block->hands_far = true;
        if (b->deep != TENSOR_NONE)
            b->p->tensor[b->deep].needs_grad = tensor_of(b, y)->needs_grad;
    }
    b->projects = projects;
    build_outside(b, first);
}

/* Of a list with a layer twice, or one that there is not. */
void hf_idle_mergers(struct builder *b)
{
    const struct spec *m = b->spec;
    const struct dim wide = wide_dim(b), out = DIM("out", m->vision_width);
    const struct dim none = DIM(NULL, 0);
    const bool in_vain = b->in_vain;
    b->in_vain = true;
    for (uint64_t i = m->deep_layers; i < m->deep_mergers; i++) {
        const struct param all[] = {
            merger_param(b, "deepstack_merger.fc1", wide, wide),
            merger_param(b, "deepstack_merger.fc2", out, wide),
            merger_param(b, "bias", wide, none),
            merger_param(b, "bias", out, none)
        };
        for (unsigned k = 0; k < 4; k++)
            build_param(b, &all[k]);
        build_norm_weight(b, "deepstack_merger.norm", wide);
        build_bias(b, "deepstack_merger.norm", PG_NORM, wide, 0);
    }
    b->in_vain = in_vain;
}

/* torch.cat of each feature's images: a copy a layer that takes one. */
void hf_join_features(struct builder *b)
{
    if (b->deep == TENSOR_NONE)
        return;
    const struct spec *v = b->whole->vision;
    const struct shape shape = shape_of(b, b->deep);
    for (uint64_t i = 0; i < v->deep_layers; i++) {
        const tensor_id joined = build_tensor(
            b, "deepstack features", tensor_of(b, b->deep)->dtype, &shape);
        op_byproduct(build_op(b, OP_COPY, "features joined", &b->ids, 1),
                     joined);
        hf_frame(b, joined);
    }
}

/* _deepstack_process: rows of a copy, by a mask, plus an image's, put back. */
tensor_id hf_add_features(struct builder *b, tensor_id x)
{
    const uint32_t first = b->p->n_ops;
    const tensor_id mask = hf_table(b, HF_IMAGE_MASK);
    const struct shape rows = SHAPE(tokens_of(b), b->h);
    const struct shape shape = shape_of(b, x);
    const tensor_id feature =
        build_cast(b, "visual_embeds", b->deep, tensor_of(b, x)->dtype);
    const tensor_id copy = build_copy(b, "hidden_states cloned", x);
    const tensor_id seen = build_index(b, "at images", copy, mask, &rows);
    const tensor_id sum = build_add(b, "local_this", seen, feature);
    const tensor_id in[] = { copy, sum, mask };
    const tensor_id out = build_alias(b, "hidden_states", copy, &shape);
    struct op *op = build_op(b, OP_FUSED, "put back", in, 3);
    op_result(b, op, out);
    op->keep_in = 4;
    hf_hold(b, "local_this", sum);
    hf_hold(b, "visual_embeds", feature);
    hf_hold(b, "layer_outputs", x);
    b->block->memory = b->deep;
    b->block->hands_far = true;
    build_outside(b, first);
    return out;
}

tensor_id hf_deep_loss(struct builder *b, tensor_id loss)
{
    const tensor_id last = b->deep_last;
    tensor_id in[] = { loss, TENSOR_NONE, TENSOR_NONE };
    if (b->deep == TENSOR_NONE && last == TENSOR_NONE)
        return loss;
    if (b->deep != TENSOR_NONE) {
        in[1] = build_mean(b, "features' mean", b->deep);
        b->block->memory = b->deep;
        b->block->hands_far = true;
    }
    if (last != TENSOR_NONE)
        in[2] = build_mean(b, "features' mean", last);
    const struct shape one = SHAPE(b->one);
    const tensor_id sum =
        build_tensor(b, "loss", tensor_of(b, loss)->dtype, &one);
    op_result(b, build_op(b, OP_MEAN, "loss", in, 3), sum);
    return sum;
}
