/*
 * Operations on pictures, for lowerings that have some.
 */
#ifndef MEMPLAN_LOWER_BUILD_CONV_H
#define MEMPLAN_LOWER_BUILD_CONV_H

#include "lower/build.h"

/* [b, channels, height, width] */
struct picture {
    tensor_id x;
    uint64_t channels, height, width;
};

/* Padded by half the kernel. */
struct conv {
    const char *name;
    uint64_t out, kernel, stride;
};

/* Without a bias: a batch norm follows. */
struct picture build_conv(struct builder *b, const struct picture *x,
                          const struct conv *c);
struct picture build_batch_norm(struct builder *b, const char *name,
                                struct picture x);
/* c: kernel and stride */
struct picture build_max_pool(struct builder *b, const char *name,
                              const struct picture *x, const struct conv *c);

#endif
