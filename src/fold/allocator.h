/*
 * A simulation of PyTorch's CUDA caching allocator: which requests make it ask
 * the device for another segment, and so how much it reserves. Its rules are
 * those of c10/cuda/CUDACachingAllocator.cpp; replayed traces of real runs are
 * in tests/measured/test_cuda_traces.c.
 *
 * Deterministic: the same requests in the same order give the same addresses.
 * Not modelled: CUDA graphs' private pools, sharing between processes, memory
 * that others hold on the device, and where the driver puts a segment (here
 * each lies above those made before, so that the lowest address is also the
 * oldest segment; see allocator_place_fn).
 */
#ifndef MEMPLAN_FOLD_ALLOCATOR_H
#define MEMPLAN_FOLD_ALLOCATOR_H

#include "base/arena.h"

/* kMinBlockSize, kSmallSize, kSmallBuffer, kLargeBuffer, kMinLargeAlloc and
 * kRoundLarge of CUDACachingAllocator.cpp, in bytes. */
enum {
    ALLOCATOR_MIN_BLOCK = 512,
    ALLOCATOR_SMALL_REQUEST = 1 << 20,  /* the largest of the small pool */
    ALLOCATOR_SMALL_SEGMENT = 2 << 20,  /* what the small pool asks for */
    ALLOCATOR_LARGE_SEGMENT = 20 << 20, /* for requests of 1 to 10 MiB */
    ALLOCATOR_OWN_SEGMENT = 10 << 20,   /* from here on, one of its own, */
    ALLOCATOR_ROUND_SEGMENT = 2 << 20   /* rounded up to this */
};

/* Asked where the next segment lies, when the device is about to grant one of
 * `size` bytes (expandable: a range of addresses of that size). False: the
 * device refuses. Segments must not overlap. */
typedef bool allocator_place_fn(void *ctx, uint64_t size, bool small,
                                uint64_t *base);

/* What PYTORCH_CUDA_ALLOC_CONF sets. All zero: PyTorch's defaults, on a device
 * without end. */
struct allocator_config {
    bool expandable;          /* expandable_segments:True */
    uint64_t max_split_bytes; /* max_split_size_mb; 0: none. PyTorch wants more
                                 than 20 MiB */
    uint64_t capacity;        /* what the device grants in all; 0: no end */
    /* one figure for requests of every size; 0 and 1: off */
    unsigned roundup_power2_divisions;
    /* garbage_collection_threshold, a share of capacity; 0: off */
    double gc_threshold;
    /* NULL: each segment above the last */
    allocator_place_fn *place;
    void *place_ctx;
};

enum allocator_result {
    ALLOCATOR_OK,
    ALLOCATOR_OOM,  /* the simulated device has no room */
    ALLOCATOR_NOMEM /* the arena has none; nothing was lost */
};

struct allocator_gauge {
    uint64_t now, peak;
};

enum allocator_state {
    ALLOCATOR_FREE,     /* cached */
    ALLOCATOR_USED,     /* handed out */
    ALLOCATOR_RETIRED,  /* given back, another stream still at work on it */
    ALLOCATOR_UNMAPPED, /* addresses without memory, of expandable segments */
    ALLOCATOR_SPARE     /* no block: a struct waiting to be used */
};

struct allocator_block;

/* What one cudaMalloc returned, or one range of addresses that grows. */
struct allocator_segment {
    uint64_t base;
    uint64_t size;   /* expandable: of the range */
    uint64_t mapped; /* bytes with memory behind them */
    uint32_t stream;
    bool small, expandable;
    struct allocator_block *first;         /* in order of address */
    struct allocator_segment *prev, *next; /* in order of making */
};

/* Blocks tile a segment. A handle is good until the block is freed. */
struct allocator_block {
    uint64_t address; /* address - segment->base is its offset */
    uint64_t size;
    uint64_t requested;
    struct allocator_segment *segment;
    struct allocator_block *prev, *next; /* neighbours in the segment */
    uint32_t stream;
    enum allocator_state state;
    /* its place in a tree of its pool, or in the list of retired or of spare
       blocks: left to allocator_block.c */
    uint32_t priority;
    uint64_t key;
    struct allocator_block *up, *left, *right;
    uint64_t born; /* searches of the pool so far when it was last freed */
};

struct allocator_tree {
    struct allocator_block *root;
};

struct allocator_pool {
    struct allocator_tree cached;   /* by stream, size, address */
    struct allocator_tree unmapped; /* by stream, address */
    uint64_t searches;
    uint64_t releasable; /* of the cached, that the device may have back */
};

struct allocator {
    struct allocator_config config;
    struct arena *arena;

    /* torch.cuda.memory_stats() has the same: */
    struct allocator_gauge requested; /* requested_bytes: as asked for */
    struct allocator_gauge allocated; /* allocated_bytes: blocks handed out,
                                         with rounding and remainders that
                                         were not split off */
    struct allocator_gauge active;    /* active_bytes: and retired blocks */
    struct allocator_gauge reserved;  /* reserved_bytes */
    uint64_t device_allocs; /* num_device_alloc: cudaMalloc, or mappings */
    uint64_t device_frees;  /* num_device_free */
    uint64_t retries;       /* num_alloc_retries: after freeing the cache */
    uint64_t ooms;          /* num_ooms */

    uint64_t allocated_at_peak; /* once the request that raised `reserved` to
                                   its peak was served */
    uint64_t segments;          /* with memory behind them */

    struct allocator_segment *first, *last;
    struct allocator_pool pool[2]; /* large, small */

    /* private */
    uint64_t top; /* the address after the last segment placed */
    struct allocator_block *retired_first, *retired_last;
    struct allocator_block *spare;
    uint64_t spares, blocks_made;
    struct allocator_segment *spare_segment;
};

/* Allocates nothing yet. The arena keeps what the simulation needs (blocks are
 * used again, so it grows with the most blocks at one time), and must outlive
 * it. There is nothing to release but the arena. */
void allocator_init(struct allocator *a, const struct allocator_config *config,
                    struct arena *arena);

/* *out is NULL unless ALLOCATOR_OK, and for 0 bytes, as in PyTorch. */
enum allocator_result allocator_malloc(struct allocator *a,
                                       struct allocator_block **out,
                                       uint64_t bytes, uint32_t stream);

/* NULL is allowed. Needs no memory. */
void allocator_free(struct allocator *a, struct allocator_block *block);

/* Frees a block that another stream still works on (record_stream): no longer
 * allocated, but active, and not to be used again before allocator_sync, or
 * before the device runs out. */
void allocator_retire(struct allocator *a, struct allocator_block *block);
/* The other streams have come that far: retired blocks are freed. */
void allocator_sync(struct allocator *a);

/* torch.cuda.empty_cache(): gives back segments, or pages of expandable ones,
 * that nothing uses. False: out of memory, not all was given back. */
bool allocator_empty_cache(struct allocator *a);

/* torch.cuda.reset_peak_memory_stats() */
void allocator_reset_peaks(struct allocator *a);

/* What was reserved at its peak and not allocated. */
uint64_t allocator_fragmentation(const struct allocator *a);

/* The largest cached block, of any pool and stream; 0: none. */
uint64_t allocator_largest_free(const struct allocator *a);

/* A segment that was there before the simulation began. */
struct allocator_span {
    uint64_t address, size;
};
struct allocator_start {
    uint64_t base, size;
    uint32_t stream;
    bool small;
    const struct allocator_span *used; /* its blocks in use, ascending */
    size_t n_used;
};

/* Adds a segment as it was. blocks[i] becomes the handle of used[i]. False when
 * out of memory, or when `used` does not fit in the segment. */
bool allocator_adopt(struct allocator *a, const struct allocator_start *start,
                     struct allocator_block **blocks);

#endif
