/*
 * How fast kernels and collectives run: constants of curves fitted to measured
 * timings, one row a GPU (kernel.def), and of its family where nobody measured
 * it. Knows no model and no step; [docs/method.md eq. kernels, eq. collectives]
 */
#ifndef MEMPLAN_DATA_KERNEL_H
#define MEMPLAN_DATA_KERNEL_H

#include <stdbool.h>

#include "data/gpu.h"

/* A matrix product: t = max(2mnk / (P share) (1 + quantum) (1 + depth/k),
 * bytes / memory) + launch. */
struct product_speed {
    double share;    /* of the peak, of large products */
    double launch_s; /* before it runs, and after */
    double depth;    /* k at which half of the time is not the product's */
    double quantum;  /* how much of the last wave's idle units shows */
};

/* Five products in backward for two in forward (Dao 2023, FlashAttention-2). */
#define ATTENTION_BACK_FLOPS 2.5

/* A fused kernel: share of the peak that long causal sequences and heads of 128
 * reach, of the FLOPs of forward and of ATTENTION_BACK_FLOPS times as many in
 * backward; length and width of heads at which the rate is half. */
struct attention_speed {
    double forward, backward, half_tokens, half_head;
};

/* Share of the peak at most, whatever the length, of heads of more than 128, as
 * timed. Of rate 0: as heads of 128. */
struct wide_speed {
    double forward, backward;
};

/* A collective of S bytes (the whole tensor): t = latency + F S / rate
 * (1 + sqrt(half / S)); F = (n-1)/n, of an all-reduce twice that. */
struct wire_speed {
    double latency_s, bytes_s, half_bytes;
};

enum wire { WIRE_ALL_REDUCE, WIRE_ALL_GATHER, WIRE_REDUCE_SCATTER, WIRE_A2A };
enum { WIRES = 4, WIRE_SIZES = 3 }; /* 2, 4 and 8 ranks */

struct kernel_speed {
    const char *gpu;       /* of the catalogue; "" the family's */
    const char *same_chip; /* others, untimed, that have it, and tensor cores at
                              as much of their rate: blanks between; or NULL */
    enum gpu_arch arch;    /* of the family */
    struct product_speed bits16, bits8;
    double share32; /* of fp32's peak, large products without tensor cores; 0:
                       as bits16's */
    /* of a product's rate, in a training step: clocks, caches and
       multiprocessors are shared there; of 16 and of 8 bits */
    double in_situ, in_situ8;
    double exact8; /* of bits8's rate, where sums are kept in fp32; 0: all */
    double in_situ_alone; /* of 16 bits on one GPU, where no messages go beside;
                             0: in_situ */
    struct attention_speed flash1; /* FlashAttention 1; of rate 0: a share of
                                      version 2's */
    struct attention_speed triton; /* version 1 in Triton, as MPT has it (flash-
                                      attn's flash_attn_triton.py); of rate 0:
                                      as flash1 */
    struct attention_speed flash2, fused;      /* version 2, which PyTorch has;
                                             cuDNN's, and version 3 */
    struct wide_speed flash2_wide, fused_wide; /* the same two */
    /* PyTorch's memory-efficient attention, in 16 bits and in 32, without tensor
       cores; of rate 0: a share of version 2's */
    struct attention_speed efficient, efficient32;
    struct wide_speed efficient_wide; /* in 16 bits */
    double memory_share; /* of the bandwidth, element-wise kernels */
    struct wire_speed wire[WIRES][WIRE_SIZES]; /* inside a node */
    double link_bytes_s; /* of the GPU that those are of; 0: of a GPU's own */
    const char *source;
    const char *stand_in; /* whose timings a GPU's own row has of what nobody
                             timed on it; NULL: all are its own */
    bool own_products;    /* beside a stand-in */
    bool untimed;         /* nobody timed a GPU of this family */
};

/* What a calibration multiplies, apart from which GPU it is: rates, and of the
 * host the time that a kernel's start takes. [docs/method.md eq. calibration] */
#define SPEED_SCALE_MAP(X)                                                     \
    X(SPEED_PRODUCTS, "products", "rate of matrix products")                   \
    X(SPEED_ATTENTION, "attention", "rate of attention's kernels")             \
    X(SPEED_MEMORY, "memory", "rate of kernels that move bytes")               \
    X(SPEED_NETWORK, "network", "rate of messages")                            \
    X(SPEED_HOST, "host", "time that the host takes to start a kernel")
#define SPEED_SCALE_ENUM(id, text, doc) id,
enum speed_scale { SPEED_SCALE_MAP(SPEED_SCALE_ENUM) SPEED_SCALES };
#undef SPEED_SCALE_ENUM
const char *speed_scale_name(enum speed_scale scale);
const char *speed_scale_text(enum speed_scale scale);

/* The row of a GPU, of one with its chip, or its family's. Never NULL.
 * *measured: it is its own. */
const struct kernel_speed *kernel_speed_of(const struct gpu *gpu,
                                           bool *measured);

/* What the slowest of n GPUs takes for what they all compute, over the middle
 * one, in the median of such groups; 1 of one. [docs/method.md eq. kernels] */
double kernel_slowest(uint64_t n);

#endif
