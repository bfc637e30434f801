/*
 * Owns networks of convolutions that are a list of layers: PyTorch's modules of
 * these names, one after the other, each result held until the last layer that
 * takes it has run. Refuses to infer shapes (spec/conv_shapes.c has).
 *
 * Nothing says what a module of several layers is. The first block ends with
 * the first layer that is trained, so that what comes out of it has a gradient;
 * the other layers are one block, and the loss is the head.
 */
#include "lower/build_conv.h"

#include "base/banned.h"

/* A list as it is lowered: what each layer so far gives. */
struct lowering {
    struct builder *b;
    const struct spec *m;
    tensor_id *x; /* [n_conv] */
    tensor_id pixels;
};

static const char *name_of(const struct conv_layer *c)
{
    return c->name[0] != '\0' ? c->name : conv_kind_name(c->kind);
}

static struct extent extent_of(const struct lowering *l, int32_t layer)
{
    if (layer >= 0)
        return l->m->conv[layer].gives;
    return (struct extent){ l->m->channels,
                            { l->m->resnet.height, l->m->resnet.width_pixels },
                            false };
}

static tensor_id tensor_at(const struct lowering *l, int32_t layer)
{
    return layer >= 0 ? l->x[layer] : l->pixels;
}

static struct picture picture_of(const struct extent *e, tensor_id x)
{
    return (struct picture){ x, e->channels, e->side[0], e->side[1] };
}

static tensor_id conv(struct lowering *l, const struct conv_layer *c,
                      const struct picture *x)
{
    const struct conv it = { .name = name_of(c),
                             .out = c->out,
                             .height = c->gives.side[0],
                             .width = c->gives.side[1],
                             .kernel = { c->window.kernel[0],
                                         c->window.kernel[1] },
                             .groups = c->groups,
                             .bias = c->bias };
    return build_conv(l->b, x, &it).x;
}

static tensor_id pool(struct lowering *l, const struct conv_layer *c,
                      struct picture *x)
{
    struct picture y = picture_of(&c->gives, TENSOR_NONE);
    if (c->kind == CL_MAX_POOL)
        build_max_pool(l->b, name_of(c), x, &y);
    else if (c->pooled[0] == 1 && c->pooled[1] == 1)
        build_global_pool(l->b, name_of(c), x);
    else
        build_avg_pool(l->b, name_of(c), x, &y);
    return y.x == TENSOR_NONE ? x->x : y.x;
}

static tensor_id linear(struct lowering *l, const struct conv_layer *c,
                        const struct picture *x)
{
    const bool last = c == &l->m->conv[l->m->n_conv - 1];
    return build_linear(
        l->b, &(struct linear){ .name = name_of(c),
                                .x = x->x,
                                .in = DIM("c", x->channels),
                                .out = DIM(last ? "classes" : "c_out", c->out),
                                .group = last ? PG_HEAD : PG_MLP,
                                .bias = c->bias });
}

static tensor_id sum(struct lowering *l, const struct conv_layer *c,
                     tensor_id x)
{
    const tensor_id other = tensor_at(l, c->from);
    return c->in_place
               ? build_binary_in_place(l->b, OP_ADD, name_of(c), x, other)
               : build_binary(l->b, OP_ADD, name_of(c), x, other);
}

static tensor_id layer(struct lowering *l, const struct conv_layer *c)
{
    struct builder *b = l->b;
    const struct extent in = extent_of(l, c->input);
    struct picture x = picture_of(&in, tensor_at(l, c->input));
    const bool dropout = b->run->given[KEY_DROPOUT];
    switch (c->kind) {
    case CL_CONV: return conv(l, c, &x);
    case CL_BATCH_NORM: return build_batch_norm(b, name_of(c), x).x;
    case CL_RELU:
        return c->in_place ? build_unary_in_place(b, OP_RELU, name_of(c), x.x)
                           : build_unary(b, OP_RELU, name_of(c), x.x);
    case CL_MAX_POOL:
    case CL_AVG_POOL: return pool(l, c, &x);
    case CL_LINEAR: return linear(l, c, &x);
    case CL_FLATTEN:
        return build_view(b, name_of(c), x.x,
                          &SHAPE(b->micro, DIM("c*h*w", c->gives.channels)));
    case CL_DROPOUT:
        return build_dropout(b, name_of(c), x.x,
                             dropout ? b->run->hidden_dropout : c->p);
    case CL_ADD: return sum(l, c, x.x);
    case CONV_KINDS: break;
    }
    return x.x;
}

/* How many layers the first block has. */
static uint64_t first_block(const struct spec *m)
{
    uint64_t i = 0;
    while (m->conv[i].kind != CL_CONV && m->conv[i].kind != CL_LINEAR
           && m->conv[i].kind != CL_BATCH_NORM)
        i++;
    return i + 1;
}

void lower_conv_list(struct builder *b)
{
    const struct spec *m = b->spec;
    struct lowering l = { .b = b, .m = m, .pixels = b->ids };
    const uint64_t n = m->n_conv, first = first_block(m);
    l.x = ARENA_NEW(b->arena, tensor_id, n);
    if (l.x == NULL) {
        b->failed = true;
        return;
    }
    build_begin(b, BLOCK_EMBED, "first layer");
    if (b->stream != DT_FP32)
        l.pixels = build_cast(b, "pixels", l.pixels, b->stream);
    for (uint64_t i = 0; i < first; i++)
        l.x[i] = layer(&l, &m->conv[i]);
    build_end(b, l.x[first - 1]);
    l.x[first - 1] = build_begin(b, BLOCK_LAYER, "layers");
    b->block->open = true;
    for (uint64_t i = first; i < n; i++)
        l.x[i] = layer(&l, &m->conv[i]);
    if (first == n) { /* its result is the first block's */
        const struct shape same = shape_of(b, l.x[n - 1]);
        l.x[n - 1] = build_view(b, "logits", l.x[n - 1], &same);
    }
    build_end(b, l.x[n - 1]);
    program_set_layers(b->p, 0, 1, b->p->n_blocks - 1);
    const tensor_id logits = build_begin(b, BLOCK_HEAD, "loss");
    build_end(b, build_cross_entropy(b, "loss", logits, b->labels));
}
