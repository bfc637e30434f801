/*
 * The shapes of a network of convolutions: 'input', a list, and 'resnet', an
 * object, or 'layers' (spec_conv_list.c). Refuses to know what they cost.
 */
#include "spec/import.h"

#include "base/banned.h"

enum { SIDE_MAX = 65535, CHANNELS_MAX = 65535, BLOCKS_MAX = 1000 };

static void missing(struct import *im, const char *key, const char *like)
{
    memplan_error *e =
        import_error(im, im->object, MEMPLAN_E_SCHEMA, "'%s' is missing", key);
    diag_hint(e, "add \"%s\": %s", key, like);
}

/* A list of `least` to `most` whole numbers; how many, 0 after reporting. */
static size_t list(struct import *im, const struct json *at, uint64_t *out,
                   size_t least, size_t most)
{
    size_t n = 0;
    if (at->kind == JSON_ARRAY) {
        for (const struct json *one = at->child; one; one = one->next, n++)
            if (n < most && !import_count(im, one, 1, SIDE_MAX, &out[n]))
                return 0;
    }
    if (n >= least && n <= most)
        return n;
    memplan_error *e = import_error(im, at, MEMPLAN_E_SCHEMA,
                                    "'%s' must be a list of %zu to %zu numbers",
                                    at->key.p, least, most);
    diag_hint(e, "such as [3, 224, 224] for 'input', [3, 4, 6, 3] for "
                 "'blocks'");
    return 0;
}

static void import_input(struct import *im, struct spec *out)
{
    uint64_t shape[3];
    const struct json *at = json_member(im->object, "input");
    if (!at) {
        missing(im, "input", "[3, 224, 224]");
    } else if (list(im, at, shape, 3, 3) == 3) {
        out->channels = shape[0];
        out->resnet.height = shape[1];
        out->resnet.width_pixels = shape[2];
    }
}

static void import_stem(struct import *im, struct resnet *r,
                        const struct json *at)
{
    if (!at || (at->kind == JSON_STRING && str_is(at->text, "imagenet")))
        return;
    r->small_stem = at->kind == JSON_STRING && str_is(at->text, "cifar");
    if (r->small_stem)
        return;
    memplan_error *e = import_error(im, at, MEMPLAN_E_UNKNOWN,
                                    "'stem' must be imagenet or cifar");
    diag_hint(e, "imagenet: a convolution of 7 and a pooling; cifar: one of 3");
}

static void import_flag(struct import *im, bool *out, const struct json *at)
{
    if (!at)
        return;
    if (at->kind == JSON_BOOL)
        *out = at->truth;
    else
        import_error(im, at, MEMPLAN_E_SCHEMA,
                     "'%s' must be true or false, not %s", at->key.p,
                     json_kind_name(at->kind));
}

static void import_resnet(struct import *im, struct spec *out,
                          const struct json *at)
{
    struct resnet *r = &out->resnet;
    if (!at || at->kind != JSON_OBJECT) {
        missing(im, "resnet", "{\"blocks\": [3, 4, 6, 3]}, or 'layers'");
        return;
    }
    const struct json *blocks = json_member(at, "blocks");
    const struct json *width = json_member(at, "width");
    if (!blocks)
        missing(im, "resnet.blocks", "[3, 4, 6, 3]");
    else
        r->stages = list(im, blocks, r->blocks, 1, STAGES_MAX);
    if (width)
        (void)import_count(im, width, 1, CHANNELS_MAX, &r->width);
    import_flag(im, &r->bottleneck, json_member(at, "bottleneck"));
    import_stem(im, r, json_member(at, "stem"));
    out->layers = 0;
    for (size_t i = 0; i < r->stages; i++) {
        out->layers += r->blocks[i];
        if (r->blocks[i] > BLOCKS_MAX)
            import_error(im, blocks, MEMPLAN_E_RANGE,
                         "a stage of more than 1000 blocks");
    }
}

void import_convnet(struct import *im, struct spec *out, struct arena *a)
{
    const struct json *resnet = json_member(im->object, "resnet");
    const struct json *layers = json_member(im->object, "layers");
    out->resnet = (struct resnet){ .width = 64, .bottleneck = true };
    import_input(im, out);
    if (resnet && layers)
        diag_hint(import_error(im, layers, MEMPLAN_E_CONFLICT,
                               "both 'resnet' and 'layers' are given"),
                  "leave one out");
    else if (layers)
        import_conv_list(im, out, a);
    else
        import_resnet(im, out, resnet);
}
