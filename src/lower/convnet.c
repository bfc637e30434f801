/*
 * Owns residual networks as torchvision has them (models/resnet.py: ReLU and
 * the sum of a block work in place, a block's stride is at its convolution of
 * 3), whatever engine trains them. Other networks are lists of layers
 * (convnet_list.c).
 *
 * What a block's last ReLU writes over is kept by it and by the next block: it
 * stands there, at the beginning, so that it counts once. Where every block is
 * a checkpoint it counts twice, once as the next one's input and once made
 * again: there it stands where it is run.
 */
#include "lower/build_conv.h"

#include "base/banned.h"

/* Padded by half the kernel, as everywhere here. */
struct square {
    const char *name, *norm;
    uint64_t out, kernel, stride;
};

/* A block of a stage: its first changes channels and size. */
struct place {
    uint64_t stage;
    bool first;
};

static uint64_t widening(const struct resnet *r)
{
    return r->bottleneck ? 4 : 1;
}

static uint64_t width_of(const struct resnet *r, uint64_t stage)
{
    return r->width << stage;
}

static uint64_t side_after(uint64_t side, const struct square *c)
{
    return (side + 2 * (c->kernel / 2) - c->kernel) / c->stride + 1;
}

static struct picture conv_norm(struct builder *b, const struct picture *x,
                                struct square c)
{
    const struct conv conv = { .name = c.name,
                               .out = c.out,
                               .height = side_after(x->height, &c),
                               .width = side_after(x->width, &c),
                               .kernel = { c.kernel, c.kernel },
                               .groups = 1 };
    return build_batch_norm(b, c.norm, build_conv(b, x, &conv));
}

static struct picture conv_norm_relu(struct builder *b, const struct picture *x,
                                     struct square c)
{
    struct picture y = conv_norm(b, x, c);
    y.x = build_unary_in_place(b, OP_RELU, "relu", y.x);
    return y;
}

/* Every block is a checkpoint of its own, which lets its result go. */
static bool has_own_relus(const struct builder *b)
{
    const struct run *r = b->run;
    return r->recompute == RECOMP_FULL && !r->recompute_reentrant
           && r->recompute_granularity <= 1 && r->recompute_every <= 1
           && !r->given[KEY_RECOMPUTE_LAYERS];
}

/* ---- ends ---- */

static struct picture stem(struct builder *b)
{
    const struct spec *m = b->spec;
    const struct resnet *r = &m->resnet;
    const uint64_t kernel = r->small_stem ? 3 : 7;
    const uint64_t stride = r->small_stem ? 1 : 2;
    struct picture x = { b->ids, m->channels, r->height, r->width_pixels };
    build_begin(b, BLOCK_EMBED, "stem");
    if (b->stream != DT_FP32)
        x.x = build_cast(b, "pixels", x.x, b->stream);
    x = conv_norm(b, &x,
                  (struct square){ "conv1", "bn1", r->width, kernel, stride });
    if (!r->small_stem) {
        x.x = build_unary_in_place(b, OP_RELU, "relu", x.x);
        const struct square pool = { "maxpool", NULL, 0, 3, 2 };
        struct picture y = { .channels = x.channels,
                             .height = side_after(x.height, &pool),
                             .width = side_after(x.width, &pool) };
        build_max_pool(b, pool.name, &x, &y);
        x = y;
    }
    build_end(b, x.x);
    return x;
}

/* Pooled to one number a channel, then a class. */
static void head(struct builder *b, const struct picture *last)
{
    const struct dim c = DIM("c", last->channels);
    const struct shape rows = SHAPE(b->micro, c);
    struct picture y = *last;
    y.x = build_begin(b, BLOCK_HEAD, "head");
    if (!has_own_relus(b))
        y.x = build_unary_in_place(b, OP_RELU, "relu", y.x);
    build_global_pool(b, "avgpool", &y);
    const tensor_id x = build_view(b, "flatten", y.x, &rows);
    const tensor_id logits = build_linear(
        b, &(struct linear){ .name = "fc",
                             .x = x,
                             .in = c,
                             .out = DIM("classes", b->spec->labels),
                             .group = PG_HEAD,
                             .bias = true });
    build_end(b, build_cross_entropy(b, "loss", logits, b->labels));
}

/* ---- a block ---- */

static struct picture inner(struct builder *b, const struct picture *x,
                            struct place at, uint64_t out)
{
    const struct resnet *r = &b->spec->resnet;
    const uint64_t w = width_of(r, at.stage);
    const uint64_t stride = at.first && at.stage > 0 ? 2 : 1;
    if (r->bottleneck) {
        struct picture y =
            conv_norm_relu(b, x, (struct square){ "conv1", "bn1", w, 1, 1 });
        y = conv_norm_relu(b, &y,
                           (struct square){ "conv2", "bn2", w, 3, stride });
        return conv_norm(b, &y, (struct square){ "conv3", "bn3", out, 1, 1 });
    }
    struct picture y =
        conv_norm_relu(b, x, (struct square){ "conv1", "bn1", w, 3, stride });
    return conv_norm(b, &y, (struct square){ "conv2", "bn2", out, 3, 1 });
}

static struct picture block(struct builder *b, const struct picture *x,
                            struct place at)
{
    const struct resnet *r = &b->spec->resnet;
    const uint64_t out = width_of(r, at.stage) * widening(r);
    const uint64_t stride = at.first && at.stage > 0 ? 2 : 1;
    struct picture y = inner(b, x, at, out);
    struct picture around = *x;
    if (stride > 1 || x->channels != out)
        around = conv_norm(
            b, x,
            (struct square){ "downsample.0", "downsample.1", out, 1, stride });
    y.x = build_binary_in_place(b, OP_ADD, "sum", y.x, around.x);
    if (has_own_relus(b))
        y.x = build_unary_in_place(b, OP_RELU, "relu", y.x);
    return y;
}

/* ---- the network ---- */

static struct picture stages(struct builder *b, struct picture x)
{
    const struct resnet *r = &b->spec->resnet;
    static const char *const name[STAGES_MAX][2] = {
        { "stage 1 block", "stage 1 first block" },
        { "stage 2 block", "stage 2 first block" },
        { "stage 3 block", "stage 3 first block" },
        { "stage 4 block", "stage 4 first block" },
    };
    uint64_t layer = 0;
    for (uint64_t s = 0; s < r->stages; s++) {
        for (uint64_t i = 0; i < r->blocks[s]; i++, layer++) {
            if (i < 2) { /* the others are like the second */
                const struct place at = { s, i == 0 };
                x.x = build_begin(b, BLOCK_LAYER, name[s][at.first]);
                if (layer > 0 ? !has_own_relus(b)
                              : r->small_stem) /* else pooled */
                    x.x = build_unary_in_place(b, OP_RELU, "relu", x.x);
                x = block(b, &x, at);
                build_end(b, x.x);
            }
            program_set_layers(b->p, layer, layer + 1, b->p->n_blocks - 1);
        }
    }
    return x;
}

void lower_convnet(struct builder *b)
{
    const struct spec *m = b->spec;
    const struct shape pixels =
        SHAPE(b->micro, DIM("c", m->channels), DIM("h", m->resnet.height),
              DIM("w", m->resnet.width_pixels));
    b->ids = build_input(b, "pixels", DT_FP32, &pixels);
    if (m->n_conv > 0) {
        lower_conv_list(b);
        return;
    }
    const struct picture last = stages(b, stem(b));
    head(b, &last);
}
