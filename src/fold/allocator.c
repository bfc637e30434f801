/*
 * The rules of PyTorch's CUDA caching allocator: rounding, pools, best fit,
 * splitting, when to ask the device, and what to give back when it refuses.
 * Owns the counters. Refuses to know what is allocated, or when.
 * [c10/cuda/CUDACachingAllocator.cpp: malloc, get_free_block, should_split,
 * alloc_block, release_available_cached_blocks, release_cached_blocks,
 * garbage_collect_cached_blocks]
 */
#include "fold/allocator_private.h"

#include "base/count.h"

#include <assert.h>

#include "base/banned.h"

/* No request comes near; sums of a few of these do not overflow. */
#define REQUEST_MAX (UINT64_MAX / 8)

void allocator_init(struct allocator *a, const struct allocator_config *config,
                    struct arena *arena)
{
    *a = (struct allocator){ .config = *config, .arena = arena };
    if (a->config.max_split_bytes == 0)
        a->config.max_split_bytes = UINT64_MAX;
}

/* ---- counters ---- */

void allocator_grew(struct allocator *a, struct allocator_segment *s,
                    uint64_t bytes)
{
    if (s->mapped == 0)
        a->segments++;
    s->mapped += bytes;
    a->device_allocs++;
    allocator_raise(&a->reserved, bytes);
}

void allocator_shrank(struct allocator *a, struct allocator_segment *s,
                      uint64_t bytes)
{
    s->mapped -= bytes;
    if (s->mapped == 0)
        a->segments--;
    a->device_frees++;
    a->reserved.now -= bytes;
}

void allocator_reset_peaks(struct allocator *a)
{
    a->requested.peak = a->requested.now;
    a->allocated.peak = a->allocated.now;
    a->active.peak = a->active.now;
    a->reserved.peak = a->reserved.now;
    a->allocated_at_peak = a->allocated.now;
}

uint64_t allocator_fragmentation(const struct allocator *a)
{
    return a->reserved.peak - a->allocated_at_peak;
}

uint64_t allocator_largest_free(const struct allocator *a)
{
    uint64_t largest = 0;
    for (size_t i = 0; i < 2; i++) {
        /* the last one of each stream is its largest */
        const struct allocator_tree *tree = &a->pool[i].cached;
        const struct allocator_block *b = allocator_last(tree);
        for (; b != NULL; b = allocator_below(tree, b->stream, 0))
            largest = max_u64(largest, b->size);
    }
    return largest;
}

/* ---- sizes ---- */

static unsigned floor_log2(uint64_t v)
{
    unsigned log = 0;
    while (v >>= 1)
        log++;
    return log;
}

/* With divisions: up to the next of so many equal steps between two powers of
 * two. A step is then no less than a block. */
static uint64_t round_request(uint64_t bytes, unsigned divisions)
{
    uint64_t step = ALLOCATOR_MIN_BLOCK;
    if (divisions > 1 && bytes > (uint64_t)ALLOCATOR_MIN_BLOCK * divisions)
        step = (uint64_t)1 << (floor_log2(bytes) - floor_log2(divisions));
    return div_up(bytes, step) * step;
}

static uint64_t segment_size(const struct allocator_request *request)
{
    if (request->small)
        return ALLOCATOR_SMALL_SEGMENT;
    if (request->size < ALLOCATOR_OWN_SEGMENT)
        return ALLOCATOR_LARGE_SEGMENT;
    return div_up(request->size, ALLOCATOR_ROUND_SEGMENT)
           * ALLOCATOR_ROUND_SEGMENT;
}

/* ---- the cache ---- */

static struct allocator_block *take_cached(
    struct allocator *a, const struct allocator_request *request)
{
    struct allocator_pool *pool = &a->pool[request->small];
    const uint64_t max_split = a->config.max_split_bytes;
    pool->searches++;
    struct allocator_block *b =
        allocator_at_least(&pool->cached, request->stream, request->size);
    if (b == NULL || b->stream != request->stream)
        return NULL;
    if (b->segment->expandable)
        b = allocator_expand_choose(b);
    /* Oversize blocks are not for smaller requests, nor for much smaller
       oversize ones. */
    if (request->size < max_split && b->size >= max_split)
        return NULL;
    if (request->size >= max_split
        && b->size >= request->size + ALLOCATOR_LARGE_SEGMENT)
        return NULL;
    allocator_take(a, b);
    return b;
}

static bool should_split(const struct allocator *a,
                         const struct allocator_block *b, uint64_t size)
{
    const uint64_t rest = b->size - size;
    if (b->segment->small || b->segment->expandable)
        return rest >= ALLOCATOR_MIN_BLOCK;
    return size < a->config.max_split_bytes && rest > ALLOCATOR_SMALL_REQUEST;
}

static void cache_block(struct allocator *a, struct allocator_block *b)
{
    a->requested.now -= b->requested;
    a->active.now -= b->size;
    allocator_put(a, b, ALLOCATOR_FREE);
}

void allocator_free(struct allocator *a, struct allocator_block *block)
{
    if (block == NULL)
        return;
    assert(block->state == ALLOCATOR_USED);
    a->allocated.now -= block->size;
    cache_block(a, block);
}

void allocator_retire(struct allocator *a, struct allocator_block *block)
{
    if (block == NULL)
        return;
    assert(block->state == ALLOCATOR_USED);
    a->allocated.now -= block->size;
    block->state = ALLOCATOR_RETIRED;
    block->right = NULL;
    if (a->retired_last != NULL)
        a->retired_last->right = block;
    else
        a->retired_first = block;
    a->retired_last = block;
}

void allocator_sync(struct allocator *a)
{
    struct allocator_block *b = a->retired_first;
    a->retired_first = a->retired_last = NULL;
    while (b != NULL) {
        struct allocator_block *next = b->right;
        cache_block(a, b);
        b = next;
    }
}

/* ---- giving back to the device ---- */

/* cudaFree of a cached block that is all of its segment. */
static void release_segment(struct allocator *a, struct allocator_block *b)
{
    allocator_take(a, b);
    allocator_shrank(a, b->segment, b->size);
    allocator_segment_drop(a, b->segment);
}

static bool can_release(const struct allocator_block *b)
{
    return !b->segment->expandable && allocator_is_whole(b);
}

/* Without a walk where there is nothing to give: a step that does not fit asks
 * for it at each of its allocations. */
static bool release_pool(struct allocator *a, struct allocator_pool *pool)
{
    bool ok = true;
    struct allocator_block *b =
        pool->releasable > 0 ? allocator_first(&pool->cached) : NULL;
    while (b != NULL && ok) {
        /* Stays good: what leaves the tree is b, and what comes are its ends,
           less than a page each. */
        struct allocator_block *next = allocator_next(b);
        if (b->segment->expandable)
            ok = allocator_unmap(a, b);
        else if (can_release(b))
            release_segment(a, b);
        b = next;
    }
    return ok;
}

bool allocator_empty_cache(struct allocator *a)
{
    allocator_sync(a);
    return release_pool(a, &a->pool[0]) && release_pool(a, &a->pool[1]);
}

/* Where oversize blocks are kept apart: the one that would have done, or as
 * many of the largest as make up for it. */
static bool release_oversize(struct allocator *a,
                             const struct allocator_request *request)
{
    const uint64_t max_split = a->config.max_split_bytes;
    if (max_split == UINT64_MAX)
        return false;
    const struct allocator_tree *tree = &a->pool[request->small].cached;
    const uint64_t want = max_u64(request->size, max_split);
    struct allocator_block *b = allocator_at_least(tree, request->stream, want);
    if (b != NULL && b->stream == request->stream && can_release(b)) {
        release_segment(a, b);
        return true;
    }
    uint64_t released = 0;
    b = allocator_below(tree, request->stream, want);
    while (b != NULL && b->stream == request->stream && b->size >= max_split
           && released < want) {
        struct allocator_block *prev = allocator_prev(b);
        if (can_release(b)) {
            released += b->size;
            release_segment(a, b);
        }
        b = prev;
    }
    return released >= want;
}

/* garbage_collection_threshold: large segments that many searches have passed
 * over, the older half again and again until enough is free. */
static void collect_garbage(struct allocator *a)
{
    struct allocator_pool *pool = &a->pool[0];
    const double limit = a->config.gc_threshold * (double)a->config.capacity;
    if (!(a->config.gc_threshold > 0) || a->config.capacity == 0
        || (double)a->reserved.now <= limit)
        return;
    const uint64_t target = a->reserved.now - (uint64_t)limit;
    uint64_t ages = 0, n = 0, freed = 0;
    struct allocator_block *b = allocator_first(&pool->cached);
    for (; b != NULL; b = allocator_next(b)) {
        if (can_release(b)) {
            ages += pool->searches - b->born;
            n++;
        }
    }
    bool any = true;
    while (any && n > 0 && freed < target) {
        const double mean = (double)ages / (double)n;
        any = false;
        b = allocator_first(&pool->cached);
        while (b != NULL) {
            struct allocator_block *next = allocator_next(b);
            const uint64_t age = pool->searches - b->born;
            if (can_release(b) && (double)age >= mean) {
                any = true;
                freed += b->size;
                ages -= age;
                n--;
                release_segment(a, b);
            }
            b = next;
        }
    }
}

/* ---- asking the device ---- */

bool allocator_has_room(const struct allocator *a, uint64_t bytes)
{
    const uint64_t capacity = a->config.capacity;
    return capacity == 0
           || (bytes <= capacity && a->reserved.now <= capacity - bytes);
}

bool allocator_place(struct allocator *a, uint64_t size, bool small,
                     uint64_t *base)
{
    if (a->config.place != NULL)
        return a->config.place(a->config.place_ctx, size, small, base);
    const uint64_t room =
        div_up(size, ALLOCATOR_ROUND_SEGMENT) * ALLOCATOR_ROUND_SEGMENT;
    if (room > UINT64_MAX - a->top)
        return false;
    *base = a->top;
    a->top += room;
    return true;
}

static struct allocator_block *ask_device(
    struct allocator *a, const struct allocator_request *request)
{
    if (a->config.expandable)
        return allocator_expand(a, request);
    struct allocator_segment s = { .size = segment_size(request),
                                   .stream = request->stream,
                                   .small = request->small };
    if (!allocator_has_room(a, s.size)
        || !allocator_place(a, s.size, s.small, &s.base))
        return NULL;
    struct allocator_block *b = allocator_segment_new(a, &s);
    allocator_grew(a, b->segment, s.size);
    return b;
}

/* One for ask_device's segment, or what an expandable one takes; one for the
 * remainder. */
enum { MALLOC_BLOCKS = ALLOCATOR_EXPAND_BLOCKS + 1 };

/* NULL: no room, or, with *nomem, no memory for the simulation. */
static struct allocator_block *get_block(
    struct allocator *a, const struct allocator_request *request, bool *nomem)
{
    *nomem = !allocator_ensure(a, MALLOC_BLOCKS);
    if (*nomem)
        return NULL;
    struct allocator_block *b = take_cached(a, request);
    if (b != NULL)
        return b;
    collect_garbage(a);
    b = ask_device(a, request);
    if (b == NULL && release_oversize(a, request))
        b = ask_device(a, request);
    if (b != NULL)
        return b;
    *nomem = !allocator_empty_cache(a) || !allocator_ensure(a, MALLOC_BLOCKS);
    if (*nomem)
        return NULL;
    a->retries++;
    return ask_device(a, request);
}

static void hand_out(struct allocator *a, struct allocator_block *b,
                     uint64_t bytes, uint64_t size)
{
    b->state = ALLOCATOR_USED;
    if (should_split(a, b, size))
        allocator_put(a, allocator_split(a, b, size), ALLOCATOR_FREE);
    b->requested = bytes;
    allocator_raise(&a->requested, bytes);
    allocator_raise(&a->allocated, b->size);
    allocator_raise(&a->active, b->size);
}

enum allocator_result allocator_malloc(struct allocator *a,
                                       struct allocator_block **out,
                                       uint64_t bytes, uint32_t stream)
{
    *out = NULL;
    if (bytes == 0)
        return ALLOCATOR_OK;
    struct allocator_request request = { .stream = stream };
    struct allocator_block *b = NULL;
    const uint64_t peak = a->reserved.peak;
    bool nomem = false;
    if (bytes <= REQUEST_MAX) {
        request.size = round_request(bytes, a->config.roundup_power2_divisions);
        request.small = request.size <= ALLOCATOR_SMALL_REQUEST;
        b = get_block(a, &request, &nomem);
    }
    if (b != NULL)
        hand_out(a, b, bytes, request.size);
    if (a->reserved.peak > peak)
        a->allocated_at_peak = a->allocated.now;
    if (nomem)
        return ALLOCATOR_NOMEM;
    a->ooms += b == NULL;
    *out = b;
    return b != NULL ? ALLOCATOR_OK : ALLOCATOR_OOM;
}

/* ---- a state to begin with ---- */

static bool spans_fit(const struct allocator_start *start)
{
    uint64_t at = start->base;
    if (start->size == 0 || start->size > UINT64_MAX - start->base)
        return false;
    const uint64_t end = start->base + start->size;
    for (size_t i = 0; i < start->n_used; i++) {
        const struct allocator_span *u = &start->used[i];
        if (u->address < at || u->address > end || u->size == 0
            || u->size > end - u->address)
            return false;
        at = u->address + u->size;
    }
    return true;
}

bool allocator_adopt(struct allocator *a, const struct allocator_start *start,
                     struct allocator_block **blocks)
{
    if (!spans_fit(start) || start->n_used > UINT64_MAX / 4
        || !allocator_ensure(a, 2 * (uint64_t)start->n_used + 2))
        return false;
    const struct allocator_segment like = { .base = start->base,
                                            .size = start->size,
                                            .stream = start->stream,
                                            .small = start->small };
    const uint64_t peak = a->reserved.peak;
    struct allocator_block *rest = allocator_segment_new(a, &like);
    a->top = max_u64(a->top, start->base + start->size);
    allocator_grew(a, rest->segment, start->size);
    for (size_t i = 0; i < start->n_used; i++) {
        const struct allocator_span *u = &start->used[i];
        struct allocator_block *b = rest;
        if (u->address > b->address) {
            b = allocator_split(a, b, u->address - b->address);
            allocator_put(a, rest, ALLOCATOR_FREE);
        }
        rest = b->size > u->size ? allocator_split(a, b, u->size) : NULL;
        b->requested = u->size;
        allocator_raise(&a->requested, u->size);
        allocator_raise(&a->allocated, u->size);
        allocator_raise(&a->active, u->size);
        blocks[i] = b;
    }
    if (rest != NULL)
        allocator_put(a, rest, ALLOCATOR_FREE);
    if (a->reserved.peak > peak)
        a->allocated_at_peak = a->allocated.now;
    return true;
}
