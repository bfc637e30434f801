/*
 * Owns the shapes of a list of layers: what each gives when it is given what
 * the layer before gives, and which cannot be. Also another image than the
 * file's. Refuses to know JSON, and what a shape costs.
 */
#include "spec/setup.h"
#include "spec/spec.h"

#include "base/unit.h"

#include <inttypes.h>

#include "base/banned.h"

static const char *const kind_words[CONV_KINDS] = {
#define CONV_WORD(id, text) [CL_##id] = text,
    CONV_MAP(CONV_WORD)
#undef CONV_WORD
};

const char *conv_kind_name(enum conv_kind kind)
{
    return kind < CONV_KINDS ? kind_words[kind] : "";
}

enum { EXTENT_TEXT = 72 };

static const char *extent_text(char *buf, const struct extent *x)
{
    if (x->flat)
        str_format(buf, EXTENT_TEXT, "%" PRIu64 " number%s", x->channels,
                   unit_s((double)x->channels));
    else
        str_format(buf, EXTENT_TEXT, "%" PRIu64 "x%" PRIu64 "x%" PRIu64,
                   x->channels, x->side[0], x->side[1]);
    return buf;
}

static bool same_extent(const struct extent *x, const struct extent *y)
{
    return x->flat == y->flat && x->channels == y->channels
           && (x->flat
               || (x->side[0] == y->side[0] && x->side[1] == y->side[1]));
}

/* What the shapes are inferred of. */
struct inferring {
    const struct spec *spec;
    struct conv_fault *fault;
    uint64_t at;
};

/* "layer 3 ('fc', linear) ..." */
static void fault(struct inferring *f, const char *what, const char *hint)
{
    const struct conv_layer *c = &f->spec->conv[f->at];
    const bool named = c->name[0] != '\0';
    f->fault->layer = f->at;
    str_format(f->fault->message, sizeof f->fault->message,
               "layer %" PRIu64 " (%s%.40s%s%s) %s", f->at + 1,
               named ? "'" : "", c->name, named ? "', " : "",
               conv_kind_name(c->kind), what);
    str_format(f->fault->hint, sizeof f->fault->hint, "%s", hint);
}

static struct extent extent_of(const struct spec *spec, int32_t layer)
{
    if (layer >= 0)
        return spec->conv[layer].gives;
    return (struct extent){ spec->channels,
                            { spec->resnet.height, spec->resnet.width_pixels },
                            false };
}

/* The side after a window has slid over it; 0: it does not fit. PyTorch's
 * pooling_output_shape: with ceil the last window begins inside. */
static uint64_t side_after(const struct window *w, unsigned k, uint64_t side)
{
    const uint64_t padded = side + 2 * w->padding[k];
    const uint64_t reach = w->dilation[k] * (w->kernel[k] - 1) + 1;
    if (padded < reach)
        return 0;
    const uint64_t more = w->ceil ? w->stride[k] - 1 : 0;
    uint64_t n = (padded - reach + more) / w->stride[k] + 1;
    if (w->ceil && (n - 1) * w->stride[k] >= side + w->padding[k])
        n--;
    return n;
}

static bool slide(struct inferring *f, const struct conv_layer *c,
                  const struct extent *in, struct extent *out)
{
    char text[EXTENT_TEXT], what[120];
    for (unsigned k = 0; k < 2; k++) {
        out->side[k] = side_after(&c->window, k, in->side[k]);
        if (out->side[k] > 0)
            continue;
        str_format(
            what, sizeof what,
            "has a window of %" PRIu64 "x%" PRIu64 ", but what comes in is %s",
            c->window.kernel[0], c->window.kernel[1], extent_text(text, in));
        fault(f, what, "use a smaller kernel, more padding, or larger images");
        return false;
    }
    return true;
}

static bool wants_picture(struct inferring *f, const struct extent *in)
{
    char text[EXTENT_TEXT], what[120];
    if (!in->flat)
        return true;
    str_format(what, sizeof what,
               "wants channels x height x width, but %s "
               "come in",
               extent_text(text, in));
    fault(f, what, "put it before the layer 'flatten'");
    return false;
}

static bool infer_conv(struct inferring *f, const struct conv_layer *c,
                       const struct extent *in, struct extent *out)
{
    char text[EXTENT_TEXT], what[120];
    if (in->channels % c->groups != 0 || c->out % c->groups != 0) {
        str_format(what, sizeof what,
                   "has %" PRIu64 " groups and makes %" PRIu64
                   " channels, but what comes in is %s",
                   c->groups, c->out, extent_text(text, in));
        fault(f, what, "'groups' must divide the channels on both sides");
        return false;
    }
    out->channels = c->out;
    return slide(f, c, in, out);
}

static bool infer_linear(struct inferring *f, const struct conv_layer *c,
                         const struct extent *in, struct extent *out)
{
    char text[EXTENT_TEXT], what[120];
    out->channels = c->out;
    if (in->flat)
        return true;
    str_format(what, sizeof what,
               "wants a row of numbers, but what comes in "
               "is %s",
               extent_text(text, in));
    fault(f, what, "put a layer {\"type\": \"flatten\"} before it");
    return false;
}

static bool infer_add(struct inferring *f, const struct conv_layer *c,
                      const struct extent *in)
{
    char text[EXTENT_TEXT], other_text[EXTENT_TEXT], what[160];
    const struct extent other = extent_of(f->spec, c->from);
    if (same_extent(in, &other))
        return true;
    str_format(
        what, sizeof what, "adds %s to %s, which layer %" PRId32 " gives",
        extent_text(text, in), extent_text(other_text, &other), c->from + 1);
    fault(f, what, "both must have one shape: give the shortcut a conv2d of 1");
    return false;
}

static bool infer_pool(struct inferring *f, const struct conv_layer *c,
                       const struct extent *in, struct extent *out)
{
    if (c->pooled[0] == 0)
        return slide(f, c, in, out);
    out->side[0] = c->pooled[0];
    out->side[1] = c->pooled[1];
    return true;
}

static bool infer(struct inferring *f, struct conv_layer *c)
{
    const struct extent in = extent_of(f->spec, c->input);
    struct extent out = in;
    bool good = true;
    switch (c->kind) {
    case CL_CONV:
        good = wants_picture(f, &in) && infer_conv(f, c, &in, &out);
        break;
    case CL_BATCH_NORM: good = wants_picture(f, &in); break;
    case CL_MAX_POOL:
    case CL_AVG_POOL:
        good = wants_picture(f, &in) && infer_pool(f, c, &in, &out);
        break;
    case CL_LINEAR: good = infer_linear(f, c, &in, &out); break;
    case CL_FLATTEN:
        if (!in.flat)
            out.channels = in.channels * in.side[0] * in.side[1];
        out.flat = true;
        break;
    case CL_ADD: good = infer_add(f, c, &in); break;
    case CL_RELU:
    case CL_DROPOUT:
    case CONV_KINDS: break;
    }
    c->gives = out;
    return good;
}

/* The network's result: a number a class. */
static bool infer_last(struct inferring *f)
{
    char text[EXTENT_TEXT], what[160];
    const struct spec *s = f->spec;
    const struct extent *last = &s->conv[s->n_conv - 1].gives;
    f->at = s->n_conv - 1;
    if (last->flat && last->channels == s->labels)
        return true;
    str_format(what, sizeof what,
               "is the last and gives %s, not the %" PRIu64 " of 'num_classes'",
               extent_text(text, last), s->labels);
    fault(f, what,
          "end with {\"type\": \"flatten\"} and a linear to 'num_classes'");
    return false;
}

/* Whether backward needs what a layer takes. */
static bool keeps_input(const struct conv_layer *c)
{
    switch (c->kind) {
    case CL_CONV:
    case CL_BATCH_NORM:
    case CL_MAX_POOL:
    case CL_LINEAR: return true;
    case CL_AVG_POOL: return c->pooled[0] != 1 || c->pooled[1] != 1;
    case CL_RELU:
    case CL_FLATTEN:
    case CL_DROPOUT:
    case CL_ADD:
    case CONV_KINDS: break;
    }
    return false;
}

/* The layer whose memory the result of one is in. */
static int32_t root_of(const struct spec *s, int32_t layer)
{
    while (layer >= 0
           && (s->conv[layer].in_place || s->conv[layer].kind == CL_FLATTEN))
        layer = s->conv[layer].input;
    return layer;
}

/* PyTorch refuses in backward what was written over after it was kept. */
static bool check_in_place(struct inferring *f)
{
    char what[120];
    const struct spec *s = f->spec;
    if (!s->conv[f->at].in_place)
        return true;
    const int32_t root = root_of(s, s->conv[f->at].input);
    for (uint64_t k = 0; k < f->at; k++) {
        const struct conv_layer *c = &s->conv[k];
        const bool kept =
            (keeps_input(c) && root_of(s, c->input) == root)
            || (c->kind == CL_RELU && root_of(s, (int32_t)k) == root);
        if (!kept || root < 0)
            continue;
        str_format(what, sizeof what,
                   "is in place, over what layer %" PRIu64
                   " (%s) keeps for backward",
                   k + 1, conv_kind_name(c->kind));
        fault(f, what, "leave its 'inplace' out");
        return false;
    }
    return true;
}

bool spec_conv_shapes(struct spec *spec, struct conv_fault *out)
{
    struct inferring f = { .spec = spec, .fault = out };
    for (; f.at < spec->n_conv; f.at++)
        if (!infer(&f, &spec->conv[f.at]) || !check_in_place(&f))
            return false;
    return spec->n_conv == 0 || infer_last(&f);
}

/* ---- another image ---- */

static memplan_error *not_an_image(struct diag *d, const char *what,
                                   const char *hint)
{
    memplan_error *e =
        setup_error(d, MEMPLAN_E_CONFLICT, KEY_IMAGE, "%s", what);
    diag_hint(e, "%s", hint);
    return e;
}

/* Of Qwen's vision parts: whole tokens, each of some patches; the processor
 * makes them so (smart_resize). */
static memplan_error *set_tokens(struct spec *spec, const uint16_t image[3],
                                 struct diag *d)
{
    const uint64_t unit = spec->patch * spec->merge;
    const uint64_t side = image[1] / spec->patch;
    char hint[120];
    spec->image = image[1];
    spec->max_positions = side * side;
    if (image[1] % unit != 0) {
        str_format(hint, sizeof(hint),
                   "use sides of %llu, or another multiple of %llu",
                   (unsigned long long)((image[1] / unit + 1) * unit),
                   (unsigned long long)unit);
        return not_an_image(d, "the image is not made of whole tokens", hint);
    }
    if (image[0] == spec->channels)
        return NULL;
    return not_an_image(d, "the model's file says how many channels there are",
                        "three, as in 3x448x448");
}

static memplan_error *set_patches(struct spec *spec, const uint16_t image[3],
                                  struct diag *d)
{
    const uint64_t side = image[1] / spec->patch;
    if (spec->family != FAM_VIT && spec->merge == 0)
        return not_an_image(d,
                            "'image' is for networks of convolutions, ViT "
                            "and Qwen's vision parts",
                            "leave it out: the model's file says how large "
                            "images are");
    if (image[1] != image[2])
        return not_an_image(d,
                            spec->merge > 0
                                ? "images of this model that are not square "
                                  "are not modelled yet"
                                : "this model takes square images",
                            "make height and width alike");
    if (side == 0)
        return not_an_image(d, "the image is smaller than a patch",
                            "use a larger one");
    if (spec->merge > 0)
        return set_tokens(spec, image, d);
    spec->image = image[1];
    spec->max_positions = spec->learned_positions =
        side * side + 1; /* fix_images */
    return NULL;
}

static bool has_whole(const struct spec *spec)
{
    return spec->parts != NULL && spec->parts->part[PART_ALL] != NULL;
}

memplan_status spec_set_image(struct spec *spec, const uint16_t image[3],
                              struct diag *d)
{
    struct conv_fault fault;
    memplan_error *e = NULL;
    /* a report that asks again has a spec whose model may be gone: not its
       parts */
    if (spec->channels == 0)
        e = not_an_image(d, "'image' is given, but the model reads words",
                         has_whole(spec)
                             ? "add --part all: its file has a vision part too"
                             : "leave it out; --seq-len is how long a text is");
    else if (!spec_is_convnet(spec))
        e = set_patches(spec, image, d);
    if (e != NULL)
        return e->status;
    spec->channels = image[0];
    spec->resnet.height = image[1];
    spec->resnet.width_pixels = image[2];
    if (spec_conv_shapes(spec, &fault))
        return MEMPLAN_OK;
    e = not_an_image(d, fault.message, fault.hint);
    return e->status;
}
