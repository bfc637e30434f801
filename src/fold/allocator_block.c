/*
 * Blocks of the caching allocator's simulation: what tiles a segment, and the
 * ordered sets that blocks are looked up in (treaps, with parents so that
 * nothing recurses; a block's priority is fixed and says nothing of its
 * place). Knows no rule of the allocator but that free neighbours merge.
 */
#include "fold/allocator_private.h"

#include "base/banned.h"

/* ---- trees ---- */

static bool comes_before(const struct allocator_block *x,
                         const struct allocator_block *y)
{
    if (x->stream != y->stream)
        return x->stream < y->stream;
    if (x->key != y->key)
        return x->key < y->key;
    return x->address < y->address;
}

/* The block takes its parent's place, the parent becomes its child. */
static void rotate_up(struct allocator_tree *tree, struct allocator_block *b)
{
    struct allocator_block *p = b->up;
    struct allocator_block *g = p->up;
    struct allocator_block *inner;
    if (p->left == b) {
        inner = b->right;
        p->left = inner;
        b->right = p;
    } else {
        inner = b->left;
        p->right = inner;
        b->left = p;
    }
    if (inner != NULL)
        inner->up = p;
    p->up = b;
    b->up = g;
    if (g == NULL)
        tree->root = b;
    else if (g->left == p)
        g->left = b;
    else
        g->right = b;
}

static void tree_insert(struct allocator_tree *tree, struct allocator_block *b)
{
    struct allocator_block *parent = NULL;
    struct allocator_block **link = &tree->root;
    while (*link != NULL) {
        parent = *link;
        link = comes_before(b, parent) ? &parent->left : &parent->right;
    }
    *link = b;
    b->up = parent;
    b->left = b->right = NULL;
    while (b->up != NULL && b->up->priority < b->priority)
        rotate_up(tree, b);
}

static void tree_remove(struct allocator_tree *tree, struct allocator_block *b)
{
    while (b->left != NULL && b->right != NULL)
        rotate_up(tree,
                  b->left->priority > b->right->priority ? b->left : b->right);
    struct allocator_block *child = b->left != NULL ? b->left : b->right;
    if (child != NULL)
        child->up = b->up;
    if (b->up == NULL)
        tree->root = child;
    else if (b->up->left == b)
        b->up->left = child;
    else
        b->up->right = child;
    b->up = b->left = b->right = NULL;
}

static bool is_below(const struct allocator_block *b, uint32_t stream,
                     uint64_t key)
{
    return b->stream != stream ? b->stream < stream : b->key < key;
}

struct allocator_block *allocator_at_least(const struct allocator_tree *tree,
                                           uint32_t stream, uint64_t key)
{
    struct allocator_block *best = NULL;
    struct allocator_block *b = tree->root;
    while (b != NULL) {
        if (is_below(b, stream, key)) {
            b = b->right;
        } else {
            best = b;
            b = b->left;
        }
    }
    return best;
}

struct allocator_block *allocator_below(const struct allocator_tree *tree,
                                        uint32_t stream, uint64_t key)
{
    struct allocator_block *best = NULL;
    struct allocator_block *b = tree->root;
    while (b != NULL) {
        if (is_below(b, stream, key)) {
            best = b;
            b = b->right;
        } else {
            b = b->left;
        }
    }
    return best;
}

struct allocator_block *allocator_first(const struct allocator_tree *tree)
{
    struct allocator_block *b = tree->root;
    while (b != NULL && b->left != NULL)
        b = b->left;
    return b;
}

struct allocator_block *allocator_last(const struct allocator_tree *tree)
{
    struct allocator_block *b = tree->root;
    while (b != NULL && b->right != NULL)
        b = b->right;
    return b;
}

struct allocator_block *allocator_next(const struct allocator_block *block)
{
    struct allocator_block *b = block->right;
    if (b != NULL) {
        while (b->left != NULL)
            b = b->left;
        return b;
    }
    while (block->up != NULL && block->up->right == block)
        block = block->up;
    return block->up;
}

struct allocator_block *allocator_prev(const struct allocator_block *block)
{
    struct allocator_block *b = block->left;
    if (b != NULL) {
        while (b->right != NULL)
            b = b->right;
        return b;
    }
    while (block->up != NULL && block->up->left == block)
        block = block->up;
    return block->up;
}

/* ---- spare structs ---- */

enum { BATCH = 64 };

/* A permutation of 32 bits (Murmur3's finaliser): as good as chance. */
static uint32_t scramble(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}

static void spare_block(struct allocator *a, struct allocator_block *b)
{
    b->state = ALLOCATOR_SPARE;
    b->segment = NULL;
    b->right = a->spare;
    a->spare = b;
    a->spares++;
}

static struct allocator_block *new_block(struct allocator *a)
{
    struct allocator_block *b = a->spare;
    a->spare = b->right;
    a->spares--;
    b->up = b->left = b->right = b->prev = b->next = NULL;
    b->requested = 0;
    return b;
}

bool allocator_ensure(struct allocator *a, uint64_t n)
{
    if (a->spare_segment == NULL)
        a->spare_segment = ARENA_NEW(a->arena, struct allocator_segment, 1);
    if (a->spare_segment == NULL)
        return false;
    while (a->spares < n) {
        struct allocator_block *b =
            ARENA_NEW(a->arena, struct allocator_block, BATCH);
        if (b == NULL)
            return false;
        for (size_t i = BATCH; i-- > 0;) {
            b[i].priority = scramble((uint32_t)++a->blocks_made);
            spare_block(a, &b[i]);
        }
    }
    return true;
}

/* ---- segments ---- */

struct allocator_block *allocator_segment_new(
    struct allocator *a, const struct allocator_segment *like)
{
    struct allocator_segment *s = a->spare_segment;
    struct allocator_block *b = new_block(a);
    a->spare_segment = s->next;
    *s = *like;
    s->first = b;
    s->next = NULL;
    s->prev = a->last;
    if (a->last != NULL)
        a->last->next = s;
    else
        a->first = s;
    a->last = s;

    b->segment = s;
    b->stream = s->stream;
    b->address = s->base;
    b->size = s->size;
    b->state = ALLOCATOR_USED;
    return b;
}

void allocator_segment_drop(struct allocator *a, struct allocator_segment *s)
{
    spare_block(a, s->first);
    if (s->prev != NULL)
        s->prev->next = s->next;
    else
        a->first = s->next;
    if (s->next != NULL)
        s->next->prev = s->prev;
    else
        a->last = s->prev;
    s->first = NULL;
    s->next = a->spare_segment;
    a->spare_segment = s;
}

/* ---- blocks ---- */

static struct allocator_tree *tree_of(struct allocator *a,
                                      const struct allocator_block *b)
{
    struct allocator_pool *pool = allocator_pool_of(a, b->segment);
    return b->state == ALLOCATOR_UNMAPPED ? &pool->unmapped : &pool->cached;
}

struct allocator_block *allocator_split(struct allocator *a,
                                        struct allocator_block *block,
                                        uint64_t size)
{
    struct allocator_block *rest = new_block(a);
    rest->segment = block->segment;
    rest->stream = block->stream;
    rest->state = block->state;
    rest->address = block->address + size;
    rest->size = block->size - size;
    block->size = size;
    rest->prev = block;
    rest->next = block->next;
    if (rest->next != NULL)
        rest->next->prev = rest;
    block->next = rest;
    return rest;
}

/* The left one grows over its right neighbour; neither is in a tree. */
static void swallow_next(struct allocator *a, struct allocator_block *left)
{
    struct allocator_block *right = left->next;
    left->size += right->size;
    left->next = right->next;
    if (left->next != NULL)
        left->next->prev = left;
    spare_block(a, right);
}

struct allocator_block *allocator_put(struct allocator *a,
                                      struct allocator_block *block,
                                      enum allocator_state state)
{
    block->state = state;
    if (block->prev != NULL && block->prev->state == state) {
        block = block->prev;
        allocator_take(a, block);
        swallow_next(a, block);
    }
    if (block->next != NULL && block->next->state == state) {
        allocator_take(a, block->next);
        swallow_next(a, block);
    }
    block->requested = 0;
    block->key = state == ALLOCATOR_UNMAPPED ? 0 : block->size;
    struct allocator_pool *pool = allocator_pool_of(a, block->segment);
    block->born = pool->searches;
    if (state == ALLOCATOR_FREE && allocator_is_releasable(block))
        pool->releasable++;
    tree_insert(tree_of(a, block), block);
    return block;
}

void allocator_take(struct allocator *a, struct allocator_block *block)
{
    if (block->state == ALLOCATOR_FREE && allocator_is_releasable(block))
        allocator_pool_of(a, block->segment)->releasable--;
    tree_remove(tree_of(a, block), block);
}
