/* What the files of the caching allocator's simulation share. */
#ifndef MEMPLAN_FOLD_ALLOCATOR_PRIVATE_H
#define MEMPLAN_FOLD_ALLOCATOR_PRIVATE_H

#include "fold/allocator.h"

/* ---- allocator_block.c ---- */

/* Makes sure that n blocks and a segment can be had without asking the arena.
 * False: out of memory. */
bool allocator_ensure(struct allocator *a, uint64_t n);

/* One block over all of a segment, in no tree. Needs allocator_ensure(1). */
struct allocator_block *allocator_segment_new(
    struct allocator *a, const struct allocator_segment *like);
/* The only block left, in no tree, goes with it. */
void allocator_segment_drop(struct allocator *a, struct allocator_segment *s);

/* The block keeps its first `size` bytes; returns the rest, of the same state,
 * in no tree. Needs allocator_ensure(1). */
struct allocator_block *allocator_split(struct allocator *a,
                                        struct allocator_block *block,
                                        uint64_t size);
/* Puts a block, in no tree, into the one of its state, merged with neighbours
 * of the same. Returns what it became. */
struct allocator_block *allocator_put(struct allocator *a,
                                      struct allocator_block *block,
                                      enum allocator_state state);
/* Takes a cached or unmapped block out of its tree. */
void allocator_take(struct allocator *a, struct allocator_block *block);

/* The first block of the tree not below (stream, key, address), the last one
 * below; NULL: none. key: the size, 0 in the tree of unmapped blocks. */
struct allocator_block *allocator_at_least(const struct allocator_tree *tree,
                                           uint32_t stream, uint64_t key);
struct allocator_block *allocator_below(const struct allocator_tree *tree,
                                        uint32_t stream, uint64_t key);
struct allocator_block *allocator_first(const struct allocator_tree *tree);
struct allocator_block *allocator_last(const struct allocator_tree *tree);
struct allocator_block *allocator_next(const struct allocator_block *block);
struct allocator_block *allocator_prev(const struct allocator_block *block);

static inline struct allocator_pool *allocator_pool_of(
    struct allocator *a, const struct allocator_segment *s)
{
    return &a->pool[s->small ? 1 : 0];
}

static inline bool allocator_is_whole(const struct allocator_block *block)
{
    return block->prev == NULL && block->next == NULL;
}

/* Of a cached block: all of its segment, or pages of one that grows. */
static inline bool allocator_is_releasable(const struct allocator_block *block)
{
    return block->segment->expandable || allocator_is_whole(block);
}

static inline void allocator_raise(struct allocator_gauge *g, uint64_t by)
{
    g->now += by;
    if (g->peak < g->now)
        g->peak = g->now;
}

/* ---- allocator.c ---- */

/* Bytes of memory came to, or left, a segment. */
void allocator_grew(struct allocator *a, struct allocator_segment *s,
                    uint64_t bytes);
void allocator_shrank(struct allocator *a, struct allocator_segment *s,
                      uint64_t bytes);
/* Whether the device has this much left. */
bool allocator_has_room(const struct allocator *a, uint64_t bytes);
/* Where a new segment lies; false: refused. */
bool allocator_place(struct allocator *a, uint64_t size, bool small,
                     uint64_t *base);

/* ---- allocator_expand.c ---- */

struct allocator_request {
    uint64_t size; /* rounded */
    uint32_t stream;
    bool small;
};

/* Among blocks of an expandable segment, the best fit counts a block that can
 * grow by what it can grow to. `block` is the first that fits. */
struct allocator_block *allocator_expand_choose(struct allocator_block *block);
/* Grows an expandable segment, or begins one, until a cached block holds the
 * request; takes it out of its tree. NULL: no room. Needs
 * allocator_ensure(ALLOCATOR_EXPAND_BLOCKS). */
enum { ALLOCATOR_EXPAND_BLOCKS = 2 };
struct allocator_block *allocator_expand(
    struct allocator *a, const struct allocator_request *request);
/* Gives back the pages that lie wholly within a cached block. False: out of
 * memory. */
bool allocator_unmap(struct allocator *a, struct allocator_block *block);

#endif
