/*
 * The accelerator catalogue: what a GPU holds, how fast it is, what it costs.
 *
 * All rows are constant and live as long as the program; nothing returned
 * here is owned by the caller, and nothing here allocates. Numbers are for
 * one device as PyTorch counts devices (half a module on the MI250X).
 */
#ifndef MEMPLAN_DATA_GPU_H
#define MEMPLAN_DATA_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gpu_arch {
    ARCH_VOLTA,
    ARCH_TURING,
    ARCH_AMPERE,
    ARCH_ADA,
    ARCH_HOPPER,
    ARCH_BLACKWELL, /* Blackwell Ultra included */
    ARCH_CDNA2,
    ARCH_CDNA3,
    ARCH_CDNA4
};

/* No string is NULL; "" where there is nothing to say. */
struct gpu {
    const char *name;    /* canonical: "a100-80gb" */
    const char *title;   /* as the vendor writes it: "NVIDIA A100-SXM4-80GB" */
    const char *aliases; /* other names, separated by one blank */
    const char *vendor;
    enum gpu_arch arch;
    uint64_t memory_bytes;  /* on the card, as the driver reports it */
    uint64_t visible_bytes; /* what the framework can use */
    double bandwidth_bytes_s;
    double peak_fp32_flop_s; /* peaks are dense; 0: the GPU has none */
    double peak_tf32_flop_s;
    double peak_fp16_flop_s;
    double peak_bf16_flop_s;
    double peak_fp8_flop_s;
    double peak_fp4_flop_s;
    uint32_t sm_count; /* streaming multiprocessors or compute units */
    uint32_t gpus_per_node;
    uint32_t link_gpus;        /* that the link joins, beyond a node; 0: those
                                * of a node */
    const char *link;          /* inside the node: "NVLink3 + NVSwitch" */
    double intra_node_bytes_s; /* per GPU and direction */
    double inter_node_bytes_s; /* per GPU and direction */
    double host_link_bytes_s;  /* to the CPU, per direction: PCIe, NVLink-C2C */
    double price_usd_h;        /* indicative, per GPU; 0: none known */
    const char *price_source;  /* with its date */
    double tdp_w;
    bool tdp_with_cpu;      /* a module's, of GPU, CPU and the memory of both */
    const char *unverified; /* comma list of fields above that are leads, not
                             * read at a source; "all" for every number */
    const char *source;
    const char *note;
};

/* CUDA's, 90 for 9.0; of Blackwell's chips with HBM 100, for 10.3 too; 0: other
 * than NVIDIA's. */
unsigned gpu_capability(const struct gpu *gpu);

/* How many threads one of its multiprocessors holds at a time; 0: not known,
 * other than NVIDIA's. (CUDA C Programming Guide, compute capabilities.) */
uint32_t gpu_threads_per_sm(const struct gpu *gpu);

/* How many rows there are. */
size_t gpu_count(void);

/* The row at index i, in order of the names; NULL past the end. */
const struct gpu *gpu_at(size_t i);

/*
 * The row whose name, alias or title is the `len` bytes at `name`, ASCII case
 * and the difference between '-', '_' and ' ' aside. NULL when there is none
 * (or when name is NULL).
 */
const struct gpu *gpu_find(const char *name, size_t len);

/*
 * The row with the name or alias that takes the fewest edits to reach, for
 * "did you mean". NULL when that is more than half of what was typed, or when
 * what was typed is longer than any name can be.
 */
const struct gpu *gpu_nearest(const char *name, size_t len);

#endif
