/*
 * Expandable segments of the caching allocator's simulation: a segment is a
 * range of addresses wide enough for the whole device, and memory is put
 * behind it page by page, so that what is free at its end can grow.
 * [c10/cuda/CUDACachingAllocator.cpp, Note "Expandable Segments"]
 */
#include "fold/allocator_private.h"

#include "base/count.h"

#include "base/banned.h"

/* The width of a range on a device without end: 16 TiB. */
#define ENDLESS_RANGE ((uint64_t)1 << 44)

static uint64_t page_of(bool small)
{
    return small ? ALLOCATOR_SMALL_SEGMENT : ALLOCATOR_LARGE_SEGMENT;
}

static uint64_t can_grow_to(const struct allocator_block *b)
{
    const struct allocator_block *n = b->next;
    return b->size
           + (n != NULL && n->state == ALLOCATOR_UNMAPPED ? n->size : 0);
}

struct allocator_block *allocator_expand_choose(struct allocator_block *block)
{
    /* A block that cannot grow is as small as its size, so this ends at the
       first such. */
    while (block->segment->expandable) {
        struct allocator_block *next = allocator_next(block);
        if (next == NULL || next->stream != block->stream
            || can_grow_to(next) >= can_grow_to(block))
            break;
        block = next;
    }
    return block;
}

static bool is_open(const struct allocator_block *b)
{
    return b != NULL
           && (b->state == ALLOCATOR_FREE || b->state == ALLOCATOR_UNMAPPED);
}

static bool has_room(const struct allocator_block *b, uint64_t size)
{
    uint64_t bytes = 0;
    for (; bytes < size && is_open(b); b = b->next)
        bytes += b->size;
    return bytes >= size;
}

/* A new range: the device's memory and an eighth of it, as in PyTorch. */
static struct allocator_block *begin_segment(
    struct allocator *a, const struct allocator_request *request)
{
    const uint64_t page = page_of(request->small);
    const uint64_t capacity = a->config.capacity;
    uint64_t want = max_u64(request->size, ENDLESS_RANGE);
    if (capacity > 0) {
        if (request->size > capacity || capacity > UINT64_MAX / 2)
            return NULL;
        want = capacity + capacity / 8;
    }
    struct allocator_segment s = { .stream = request->stream,
                                   .small = request->small,
                                   .expandable = true };
    s.size = div_up(want, page) * page;
    if (!allocator_place(a, s.size, s.small, &s.base))
        return NULL;
    return allocator_put(a, allocator_segment_new(a, &s), ALLOCATOR_UNMAPPED);
}

/* The lowest addresses where the request fits: an unmapped block, or a cached
 * one right before it. */
static struct allocator_block *find_addresses(
    struct allocator *a, const struct allocator_request *request)
{
    const struct allocator_tree *tree = &a->pool[request->small].unmapped;
    struct allocator_block *b = allocator_at_least(tree, request->stream, 0);
    for (; b != NULL && b->stream == request->stream; b = allocator_next(b)) {
        struct allocator_block *from = is_open(b->prev) ? b->prev : b;
        if (has_room(from, request->size))
            return from;
    }
    return begin_segment(a, request);
}

/* Puts memory behind the first `size` bytes of an unmapped block, in whole
 * pages. Returns the cached block they are now part of; NULL: no room. */
static struct allocator_block *map_pages(struct allocator *a,
                                         struct allocator_block *block,
                                         uint64_t size)
{
    struct allocator_segment *s = block->segment;
    const uint64_t page = page_of(s->small);
    const uint64_t bytes = div_up(size, page) * page;
    if (!allocator_has_room(a, bytes))
        return NULL;
    allocator_take(a, block);
    if (bytes < block->size) {
        struct allocator_block *rest = allocator_split(a, block, bytes);
        block->state = ALLOCATOR_FREE; /* not to be merged with */
        allocator_put(a, rest, ALLOCATOR_UNMAPPED);
    }
    allocator_grew(a, s, bytes);
    return allocator_put(a, block, ALLOCATOR_FREE);
}

struct allocator_block *allocator_expand(
    struct allocator *a, const struct allocator_request *request)
{
    struct allocator_block *b = find_addresses(a, request);
    if (b != NULL && b->state == ALLOCATOR_UNMAPPED)
        b = map_pages(a, b, min_u64(b->size, request->size));
    while (b != NULL && b->size < request->size) {
        /* what follows is unmapped, or find_addresses had not chosen it */
        const uint64_t missing = request->size - b->size;
        b = map_pages(a, b->next, min_u64(b->next->size, missing));
    }
    if (b != NULL)
        allocator_take(a, b);
    return b;
}

bool allocator_unmap(struct allocator *a, struct allocator_block *block)
{
    struct allocator_segment *s = block->segment;
    const uint64_t page = page_of(s->small);
    const uint64_t from = block->address - s->base;
    const uint64_t first = div_up(from, page) * page;
    const uint64_t end = (from + block->size) / page * page;
    if (first >= end)
        return true;
    if (!allocator_ensure(a, 2))
        return false;

    allocator_take(a, block);
    block->state = ALLOCATOR_USED; /* so that the pieces do not merge */
    struct allocator_block *pages = block;
    if (first > from)
        pages = allocator_split(a, block, first - from);
    if (pages->size > end - first)
        allocator_put(a, allocator_split(a, pages, end - first),
                      ALLOCATOR_FREE);
    if (pages != block)
        allocator_put(a, block, ALLOCATOR_FREE);
    pages = allocator_put(a, pages, ALLOCATOR_UNMAPPED);
    allocator_shrank(a, s, end - first);
    if (allocator_is_whole(pages)) {
        allocator_take(a, pages);
        allocator_segment_drop(a, s);
    }
    return true;
}
