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

/* What it makes is of these sides, as spec/conv_shapes.c infers them. */
struct conv {
    const char *name;
    uint64_t out, height, width;
    uint64_t kernel[2];
    uint64_t groups;
    bool bias;
};
struct picture build_conv(struct builder *b, const struct picture *x,
                          const struct conv *c);
struct picture build_batch_norm(struct builder *b, const char *name,
                                struct picture x);
/* Pools to the sides of y, whose x it sets. */
void build_max_pool(struct builder *b, const char *name,
                    const struct picture *x, struct picture *y);
void build_avg_pool(struct builder *b, const char *name,
                    const struct picture *x, struct picture *y);
/* Pools to one number a channel. */
void build_global_pool(struct builder *b, const char *name, struct picture *x);

/* A 'layers' list. (convnet_list.c) */
void lower_conv_list(struct builder *b);

#endif
