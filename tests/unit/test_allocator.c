/*
 * Tests of src/fold/allocator*.c: each rule of PyTorch's caching allocator by a
 * sequence made by hand, then random sequences under every setting, whose
 * states must hold together, and memory that runs out.
 */
#include "fold/allocator.h"
#include "fold/allocator_private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

struct sim {
    struct arena arena;
    struct allocator a;
};

static void sim_begin(struct sim *s, const struct allocator_config *config)
{
    arena_init(&s->arena, NULL);
    allocator_init(&s->a, config, &s->arena);
}

/* ---- what always holds ---- */

struct sums {
    uint64_t free, used, retired, unmapped, requested, segments, cached;
    uint64_t largest, releasable;
};

static void check_block(const struct allocator_block *b, struct sums *sum)
{
    const struct allocator_segment *s = b->segment;
    assert_int_equal((b->address - s->base) % ALLOCATOR_MIN_BLOCK, 0);
    assert_int_equal(b->size % ALLOCATOR_MIN_BLOCK, 0);
    assert_true(b->size > 0);
    assert_int_equal(b->stream, s->stream);
    sum->requested += b->requested;
    if (b->state == ALLOCATOR_FREE) {
        sum->free += b->size;
        sum->cached++;
        sum->releasable +=
            s->expandable || (b->prev == NULL && b->next == NULL);
        if (b->size > sum->largest)
            sum->largest = b->size;
    } else if (b->state == ALLOCATOR_USED) {
        sum->used += b->size;
        assert_in_range(b->requested, 1, b->size);
    } else if (b->state == ALLOCATOR_RETIRED) {
        sum->retired += b->size;
    } else {
        assert_int_equal(b->state, ALLOCATOR_UNMAPPED);
        assert_true(s->expandable);
        sum->unmapped += b->size;
    }
}

/* Blocks tile their segment; no two that are free lie side by side. */
static void check_segment(const struct allocator_segment *s, struct sums *sum)
{
    const uint64_t unmapped = sum->unmapped;
    uint64_t at = s->base;
    const struct allocator_block *before = NULL;
    for (const struct allocator_block *b = s->first; b != NULL; b = b->next) {
        assert_ptr_equal(b->segment, s);
        assert_ptr_equal(b->prev, before);
        assert_int_equal(b->address, at);
        if (before != NULL && before->state == b->state)
            assert_true(b->state == ALLOCATOR_USED
                        || b->state == ALLOCATOR_RETIRED);
        check_block(b, sum);
        at += b->size;
        before = b;
    }
    assert_int_equal(at, s->base + s->size);
    assert_int_equal(s->mapped, s->size - (sum->unmapped - unmapped));
    sum->segments += s->mapped > 0;
}

/* In order, and all there. */
static uint64_t count_tree(const struct allocator_tree *tree)
{
    uint64_t n = 0;
    const struct allocator_block *last = NULL;
    const struct allocator_block *b = allocator_first(tree);
    for (; b != NULL; last = b, b = allocator_next(b), n++) {
        assert_true(b->up == NULL || b->up->priority >= b->priority);
        if (last == NULL)
            continue;
        assert_ptr_equal(allocator_prev(b), last);
        assert_true(
            last->stream < b->stream
            || (last->stream == b->stream
                && (last->key < b->key
                    || (last->key == b->key && last->address < b->address))));
    }
    assert_ptr_equal(allocator_last(tree), last);
    return n;
}

static void check_all(const struct allocator *a)
{
    struct sums sum = { 0 };
    for (const struct allocator_segment *s = a->first; s != NULL; s = s->next)
        check_segment(s, &sum);
    assert_int_equal(sum.used, a->allocated.now);
    assert_int_equal(sum.used + sum.retired, a->active.now);
    assert_int_equal(sum.used + sum.retired + sum.free, a->reserved.now);
    assert_int_equal(sum.requested, a->requested.now);
    assert_int_equal(sum.segments, a->segments);
    assert_int_equal(sum.largest, allocator_largest_free(a));
    assert_int_equal(sum.cached, count_tree(&a->pool[0].cached)
                                     + count_tree(&a->pool[1].cached));
    assert_int_equal(sum.releasable,
                     a->pool[0].releasable + a->pool[1].releasable);
    if (a->config.capacity > 0)
        assert_true(a->reserved.peak <= a->config.capacity);
    assert_true(a->reserved.peak >= a->reserved.now);
    assert_true(a->active.peak <= a->reserved.peak);
    assert_true(a->allocated.peak <= a->active.peak);
    assert_true(a->requested.peak <= a->active.peak);
    assert_true(a->allocated_at_peak <= a->reserved.peak);
}

static void sim_end(struct sim *s)
{
    check_all(&s->a);
    arena_release(&s->arena);
}

static struct allocator_block *get_on(struct sim *s, uint64_t bytes,
                                      uint32_t stream)
{
    struct allocator_block *b = NULL;
    assert_int_equal(allocator_malloc(&s->a, &b, bytes, stream), ALLOCATOR_OK);
    assert_non_null(b);
    assert_int_equal(b->requested, bytes);
    return b;
}

static struct allocator_block *get(struct sim *s, uint64_t bytes)
{
    return get_on(s, bytes, 0);
}

static uint64_t offset(const struct allocator_block *b)
{
    return b->address - b->segment->base;
}

static const struct allocator_config plain;

/* ---- rounding ---- */

static void test_rounds_to_512(void **state)
{
    (void)state;
    static const uint64_t want[][2] = {
        { 1, 512 },           { 511, 512 },           { 512, 512 },
        { 513, 1024 },        { 1025, 1536 },         { MIB - 1, MIB },
        { MIB, MIB },         { MIB + 1, MIB + 512 }, { 3 * MIB, 3 * MIB },
        { 3000000, 3000320 },
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        struct sim s;
        sim_begin(&s, &plain);
        assert_int_equal(get(&s, want[i][0])->size, want[i][1]);
        assert_int_equal(s.a.allocated.now, want[i][1]);
        assert_int_equal(s.a.requested.now, want[i][0]);
        sim_end(&s);
    }
}

static void test_rounds_to_divisions(void **state)
{
    (void)state;
    /* steps of a quarter of a power of two, above 4 * 512 bytes */
    static const uint64_t want[][2] = {
        { 1, 512 },
        { 1200, 1536 },
        { 2048, 2048 },
        { 2049, 2560 },
        { 4097, 5120 },
        { 5 * MIB, 5 * MIB },
        { 5 * MIB + 1, 6 * MIB },
        { 8 * MIB, 8 * MIB },
        { 15 * MIB, 16 * MIB },
    };
    const struct allocator_config config = { .roundup_power2_divisions = 4 };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        struct sim s;
        sim_begin(&s, &config);
        assert_int_equal(get(&s, want[i][0])->size, want[i][1]);
        sim_end(&s);
    }
}

static void test_nothing_for_nothing(void **state)
{
    (void)state;
    struct sim s;
    sim_begin(&s, &plain);
    struct allocator_block *b = NULL;
    assert_int_equal(allocator_malloc(&s.a, &b, 0, 0), ALLOCATOR_OK);
    assert_null(b);
    allocator_free(&s.a, b);
    allocator_retire(&s.a, b);
    assert_int_equal(s.a.reserved.now, 0);
    assert_int_equal(allocator_largest_free(&s.a), 0);
    sim_end(&s);
}

static void test_beyond_any_device(void **state)
{
    (void)state;
    for (int expandable = 0; expandable < 2; expandable++) {
        const struct allocator_config config = { .expandable = expandable };
        struct sim s;
        struct allocator_block *b = NULL;
        sim_begin(&s, &config);
        assert_int_equal(allocator_malloc(&s.a, &b, UINT64_MAX, 0),
                         ALLOCATOR_OOM);
        assert_null(b);
        while (allocator_malloc(&s.a, &b, UINT64_MAX / 8, 0) == ALLOCATOR_OK)
            assert_true(s.a.segments < 10);
        assert_int_equal(s.a.ooms, 2);
        get(&s, 1);
        sim_end(&s);
    }
}

/* ---- segments ---- */

static void test_segment_sizes(void **state)
{
    (void)state;
    static const uint64_t want[][2] = {
        { 1, 2 * MIB },
        { MIB, 2 * MIB },
        { MIB + 1, 20 * MIB },
        { 10 * MIB - 512, 20 * MIB },
        { 10 * MIB, 10 * MIB },
        { 10 * MIB + 1, 12 * MIB },
        { 21 * MIB, 22 * MIB },
        { 40960000, 40 * MIB },
        { 1000 * MIB, 1000 * MIB },
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        struct sim s;
        sim_begin(&s, &plain);
        get(&s, want[i][0]);
        assert_int_equal(s.a.reserved.now, want[i][1]);
        assert_int_equal(s.a.segments, 1);
        assert_int_equal(s.a.device_allocs, 1);
        sim_end(&s);
    }
}

static void test_small_and_large_apart(void **state)
{
    (void)state;
    struct sim s;
    sim_begin(&s, &plain);
    allocator_free(&s.a, get(&s, 12 * MIB));
    /* 12 MiB are cached, and no use to the small pool */
    struct allocator_block *b = get(&s, MIB);
    assert_int_equal(s.a.reserved.now, 14 * MIB);
    assert_true(b->segment->small);
    /* nor 1 MiB of a small segment to the large one */
    get(&s, MIB + 1);
    assert_int_equal(s.a.reserved.now, 14 * MIB);
    assert_int_equal(s.a.segments, 2);
    sim_end(&s);
}

static void test_streams_apart(void **state)
{
    (void)state;
    struct sim s;
    sim_begin(&s, &plain);
    struct allocator_block *b = get_on(&s, 5 * MIB, 7);
    const uint64_t address = b->address;
    allocator_free(&s.a, b);
    assert_true(get_on(&s, 5 * MIB, 6)->address != address);
    assert_true(get_on(&s, 5 * MIB, 8)->address != address);
    assert_int_equal(s.a.segments, 3);
    assert_int_equal(get_on(&s, 5 * MIB, 7)->address, address);
    assert_int_equal(s.a.segments, 3);
    assert_int_equal(allocator_largest_free(&s.a), 15 * MIB);
    sim_end(&s);
}

/* ---- splitting ---- */

static void test_small_splits_off_512(void **state)
{
    (void)state;
    struct sim s;
    sim_begin(&s, &plain);
    struct allocator_block *b = get(&s, MIB);
    assert_int_equal(offset(get(&s, MIB - 512)), MIB);
    assert_int_equal(allocator_largest_free(&s.a), 512);
    assert_int_equal(offset(get(&s, 1)), 2 * MIB - 512);
    assert_int_equal(s.a.segments, 1);
    assert_int_equal(offset(b), 0);
    sim_end(&s);
}

/* 40,960,000 bytes count as 40 MiB: seen in traces of real runs. */
static void test_large_remainder_stays(void **state)
{
    (void)state;
    struct sim s;
    sim_begin(&s, &plain);
    struct allocator_block *b = get(&s, 40960000);
    assert_int_equal(b->size, 40 * MIB);
    assert_int_equal(s.a.allocated.now, 40 * MIB);
    assert_int_equal(s.a.requested.now, 40960000);
    allocator_free(&s.a, b);
    /* exactly 1 MiB left: stays inside */
    b = get(&s, 39 * MIB);
    assert_int_equal(b->size, 40 * MIB);
    allocator_free(&s.a, b);
    /* 512 bytes more: split off */
    b = get(&s, 39 * MIB - 512);
    assert_int_equal(b->size, 39 * MIB - 512);
    assert_int_equal(allocator_largest_free(&s.a), MIB + 512);
    assert_int_equal(s.a.allocated.peak, 40 * MIB);
    sim_end(&s);
}

/* ---- best fit ---- */

static void test_smallest_that_fits(void **state)
{
    (void)state;
    struct sim s;
    sim_begin(&s, &plain);
    struct allocator_block *big = get(&s, 30 * MIB);
    struct allocator_block *mid = get(&s, 20 * MIB);
    struct allocator_block *low = get(&s, 12 * MIB);
    const uint64_t at_mid = mid->address, at_big = big->address;
    allocator_free(&s.a, big);
    allocator_free(&s.a, mid);
    allocator_free(&s.a, low);
    assert_int_equal(get(&s, 13 * MIB)->address, at_mid);
    assert_int_equal(get(&s, 14 * MIB)->address, at_big);
    assert_int_equal(s.a.segments, 3);
    sim_end(&s);
}

static void test_lowest_of_equals(void **state)
{
    (void)state;
    struct sim s;
    sim_begin(&s, &plain);
    struct allocator_block *b[5];
    uint64_t low = UINT64_MAX;
    for (size_t i = 0; i < 5; i++) {
        b[i] = get(&s, 16 * MIB);
        low = b[i]->address < low ? b[i]->address : low;
    }
    static const size_t order[] = { 3, 0, 4, 2, 1 };
    for (size_t i = 0; i < 5; i++)
        allocator_free(&s.a, b[order[i]]);
    uint64_t last = 0;
    for (size_t i = 0; i < 5; i++) {
        const uint64_t at = get(&s, 16 * MIB)->address;
        assert_true(i == 0 ? at == low : at > last);
        last = at;
    }
    sim_end(&s);
}

/* ---- merging ---- */

static void test_merges_with_neighbours(void **state)
{
    (void)state;
    struct sim s;
    sim_begin(&s, &plain);
    struct allocator_block *b[4];
    for (size_t i = 0; i < 4; i++) {
        b[i] = get(&s, 5 * MIB);
        assert_int_equal(offset(b[i]), i * 5 * MIB);
    }
    allocator_free(&s.a, b[0]);
    allocator_free(&s.a, b[2]);
    assert_int_equal(allocator_largest_free(&s.a), 5 * MIB);
    check_all(&s.a);
    allocator_free(&s.a, b[1]); /* both sides */
    assert_int_equal(allocator_largest_free(&s.a), 15 * MIB);
    check_all(&s.a);
    allocator_free(&s.a, b[3]); /* to the left */
    assert_int_equal(allocator_largest_free(&s.a), 20 * MIB);
    assert_true(allocator_is_whole(s.a.first->first));
    assert_int_equal(s.a.allocated.now, 0);
    assert_int_equal(s.a.reserved.now, 20 * MIB);
    sim_end(&s);
}

static void test_segments_do_not_merge(void **state)
{
    (void)state;
    struct sim s;
    sim_begin(&s, &plain);
    struct allocator_block *x = get(&s, 10 * MIB);
    struct allocator_block *y = get(&s, 10 * MIB);
    assert_int_equal(y->address, x->address + 10 * MIB);
    allocator_free(&s.a, x);
    allocator_free(&s.a, y);
    assert_int_equal(allocator_largest_free(&s.a), 10 * MIB);
    sim_end(&s);
}

/* ---- oversize ---- */

static void test_max_split(void **state)
{
    (void)state;
    const struct allocator_config config = { .max_split_bytes = 64 * MIB };
    struct sim s;
    sim_begin(&s, &config);
    struct allocator_block *b = get(&s, 100 * MIB);
    const uint64_t at = b->address;
    allocator_free(&s.a, b);
    /* not for less than 64 MiB */
    assert_true(get(&s, 30 * MIB)->address != at);
    /* nor for 20 MiB less or more than that */
    b = get(&s, 80 * MIB);
    assert_true(b->address != at);
    allocator_free(&s.a, b);
    b = get(&s, 80 * MIB + 512);
    assert_true(b->address == at);
    assert_int_equal(b->size, 100 * MIB);
    /* below 64 MiB blocks are split */
    b = get(&s, 60 * MIB);
    allocator_free(&s.a, b);
    assert_int_equal(get(&s, 32 * MIB)->size, 32 * MIB);
    sim_end(&s);
}

static void test_oversize_given_back_first(void **state)
{
    (void)state;
    const struct allocator_config config = { .max_split_bytes = 64 * MIB,
                                             .capacity = 300 * MIB };
    struct sim s;
    sim_begin(&s, &config);
    struct allocator_block *b[3] = { get(&s, 70 * MIB), get(&s, 80 * MIB),
                                     get(&s, 100 * MIB) };
    struct allocator_block *small = get(&s, 30 * MIB);
    for (size_t i = 0; i < 3; i++)
        allocator_free(&s.a, b[i]);
    allocator_free(&s.a, small);
    /* 20 MiB are left: the smallest oversize block makes room enough */
    get(&s, 60 * MIB);
    assert_int_equal(s.a.device_frees, 1);
    assert_int_equal(s.a.retries, 0);
    assert_int_equal(s.a.reserved.now, (80 + 100 + 30 + 60) * MIB);
    /* no block holds 130 MiB: both go, the larger first; 30 MiB stay */
    get(&s, 130 * MIB);
    assert_int_equal(s.a.device_frees, 3);
    assert_int_equal(s.a.retries, 0);
    assert_int_equal(s.a.reserved.now, (30 + 60 + 130) * MIB);
    sim_end(&s);
}

/* ---- the device runs out ---- */

static void test_retry_frees_cache(void **state)
{
    (void)state;
    const struct allocator_config config = { .capacity = 100 * MIB };
    struct sim s;
    struct allocator_block *b = NULL;
    sim_begin(&s, &config);
    struct allocator_block *kept = get(&s, 10 * MIB);
    struct allocator_block *part = get(&s, 2 * MIB); /* of 20 MiB */
    allocator_free(&s.a, get(&s, 70 * MIB));
    assert_int_equal(s.a.reserved.now, 100 * MIB);
    get(&s, 72 * MIB - 2 * MIB); /* cached: no need */
    assert_int_equal(s.a.retries, 0);
    assert_int_equal(allocator_malloc(&s.a, &b, 72 * MIB, 0), ALLOCATOR_OOM);
    assert_null(b);
    assert_int_equal(s.a.ooms, 1);
    check_all(&s.a);
    allocator_free(&s.a, kept);
    /* 10 MiB cached and unsplit can be given back, the 20 cannot */
    assert_int_equal(allocator_malloc(&s.a, &b, 18 * MIB + 512, 0),
                     ALLOCATOR_OOM);
    assert_int_equal(s.a.reserved.now, 90 * MIB);
    get(&s, 10 * MIB);
    allocator_free(&s.a, part);
    assert_int_equal(s.a.retries, 2);
    sim_end(&s);
}

static void test_empty_cache(void **state)
{
    (void)state;
    struct sim s;
    sim_begin(&s, &plain);
    struct allocator_block *x = get(&s, 5 * MIB);
    struct allocator_block *y = get(&s, 5 * MIB);
    allocator_free(&s.a, get(&s, 512));
    allocator_free(&s.a, get_on(&s, 50 * MIB, 3));
    allocator_free(&s.a, x);
    assert_true(allocator_empty_cache(&s.a));
    assert_int_equal(s.a.reserved.now, 20 * MIB);
    assert_int_equal(s.a.segments, 1);
    assert_int_equal(s.a.device_frees, 2);
    allocator_free(&s.a, y);
    assert_true(allocator_empty_cache(&s.a));
    assert_int_equal(s.a.reserved.now, 0);
    assert_null(s.a.first);
    assert_int_equal(s.a.reserved.peak, 72 * MIB);
    sim_end(&s);
}

static bool refuse(void *ctx, uint64_t size, bool small, uint64_t *base)
{
    uint64_t *left = ctx;
    (void)small;
    (void)size;
    *base = *left * 1024 * MIB;
    return *left > 0 && (*left)-- > 0;
}

static void test_device_that_refuses(void **state)
{
    (void)state;
    uint64_t left = 2;
    const struct allocator_config config = { .place = refuse,
                                             .place_ctx = &left };
    struct sim s;
    struct allocator_block *b = NULL;
    sim_begin(&s, &config);
    struct allocator_block *high = get(&s, 10 * MIB);
    struct allocator_block *low = get(&s, 10 * MIB);
    assert_int_equal(high->address, 2048 * MIB);
    assert_int_equal(low->address, 1024 * MIB);
    assert_int_equal(allocator_malloc(&s.a, &b, 1, 0), ALLOCATOR_OOM);
    allocator_free(&s.a, high);
    allocator_free(&s.a, low);
    /* ties go by address, not by age */
    assert_int_equal(get(&s, 10 * MIB)->address, 1024 * MIB);
    sim_end(&s);
}

/* ---- retired blocks ---- */

static void test_retired_until_sync(void **state)
{
    (void)state;
    const struct allocator_config config = { .capacity = 64 * MIB };
    struct sim s;
    sim_begin(&s, &config);
    struct allocator_block *b = get(&s, 20 * MIB);
    const uint64_t at = b->address;
    allocator_retire(&s.a, b);
    assert_int_equal(s.a.allocated.now, 0);
    assert_int_equal(s.a.active.now, 20 * MIB);
    b = get(&s, 20 * MIB);
    assert_true(b->address != at);
    check_all(&s.a);
    allocator_sync(&s.a);
    assert_int_equal(s.a.active.now, 20 * MIB);
    assert_int_equal(get(&s, 20 * MIB)->address, at);
    /* the device runs out: it is waited for */
    allocator_retire(&s.a, b);
    get(&s, 30 * MIB);
    assert_int_equal(s.a.active.now, 50 * MIB);
    assert_int_equal(s.a.retries, 1);
    sim_end(&s);
}

/* ---- garbage collection ---- */

static void test_garbage_is_old(void **state)
{
    (void)state;
    const struct allocator_config config = { .capacity = 1000 * MIB,
                                             .gc_threshold = 0.1 };
    struct sim s;
    sim_begin(&s, &config);
    struct allocator_block *old = get(&s, 40 * MIB);
    struct allocator_block *fresh = get(&s, 50 * MIB);
    allocator_free(&s.a, old);
    for (int i = 0; i < 50; i++) {
        allocator_free(&s.a, fresh);
        fresh = get(&s, 50 * MIB);
    }
    allocator_free(&s.a, fresh);
    /* 90 MiB are not yet a tenth */
    struct allocator_block *b = get(&s, 60 * MIB);
    assert_int_equal(s.a.device_frees, 0);
    /* 150 are: the 40 have waited longer than the 50, and go; that is not
       enough, so the 50 go as well */
    get(&s, 70 * MIB);
    assert_int_equal(s.a.device_frees, 2);
    assert_int_equal(s.a.reserved.now, 130 * MIB);
    allocator_free(&s.a, b);
    sim_end(&s);
}

static void test_garbage_spares_the_young(void **state)
{
    (void)state;
    const struct allocator_config config = { .capacity = 1000 * MIB,
                                             .gc_threshold = 0.1 };
    struct sim s;
    sim_begin(&s, &config);
    struct allocator_block *old = get(&s, 40 * MIB);
    struct allocator_block *fresh = get(&s, 70 * MIB);
    allocator_free(&s.a, old);
    for (int i = 0; i < 50; i++) {
        allocator_free(&s.a, fresh);
        fresh = get(&s, 70 * MIB);
    }
    allocator_free(&s.a, fresh);
    get(&s, 80 * MIB); /* 110: 10 too many, the 40 make up for it */
    assert_int_equal(s.a.device_frees, 1);
    assert_int_equal(allocator_largest_free(&s.a), 70 * MIB);
    sim_end(&s);
}

/* ---- expandable segments ---- */

static void test_expandable_grows(void **state)
{
    (void)state;
    const struct allocator_config config = { .expandable = true,
                                             .capacity = 1024 * MIB };
    struct sim s;
    sim_begin(&s, &config);
    struct allocator_block *x = get(&s, 30 * MIB);
    assert_int_equal(s.a.reserved.now, 40 * MIB); /* two pages of 20 MiB */
    assert_int_equal(x->size, 30 * MIB);
    struct allocator_block *y = get(&s, 25 * MIB);
    /* 10 MiB were free at the end: one page more */
    assert_int_equal(s.a.reserved.now, 60 * MIB);
    assert_int_equal(y->address, x->address + 30 * MIB);
    assert_int_equal(s.a.segments, 1);
    get(&s, 1); /* a segment of its own, in pages of 2 MiB */
    assert_int_equal(s.a.reserved.now, 62 * MIB);
    assert_int_equal(s.a.segments, 2);
    get_on(&s, 3 * MIB, 1);
    assert_int_equal(s.a.reserved.now, 82 * MIB);
    assert_int_equal(s.a.segments, 3);
    sim_end(&s);
}

static void test_expandable_splits_off_512(void **state)
{
    (void)state;
    const struct allocator_config config = { .expandable = true };
    struct sim s;
    sim_begin(&s, &config);
    struct allocator_block *b = get(&s, 40960000);
    assert_int_equal(b->size, 40960000);
    assert_int_equal(s.a.reserved.now, 40 * MIB);
    assert_int_equal(allocator_largest_free(&s.a), 40 * MIB - 40960000);
    sim_end(&s);
}

/* What can grow counts as large, and a hole that fits comes first. */
static void test_expandable_prefers_holes(void **state)
{
    (void)state;
    const struct allocator_config config = { .expandable = true };
    struct sim s;
    sim_begin(&s, &config);
    struct allocator_block *hole = get(&s, 18 * MIB);
    get(&s, 7 * MIB); /* 15 MiB are left at the end */
    const uint64_t at = hole->address;
    allocator_free(&s.a, hole);
    assert_int_equal(get(&s, 12 * MIB)->address, at);
    assert_int_equal(s.a.reserved.now, 40 * MIB);
    sim_end(&s);
}

static void test_expandable_unmaps_pages(void **state)
{
    (void)state;
    const struct allocator_config config = { .expandable = true,
                                             .capacity = 200 * MIB };
    struct sim s;
    sim_begin(&s, &config);
    struct allocator_block *x = get(&s, 10 * MIB);
    struct allocator_block *y = get(&s, 100 * MIB);
    struct allocator_block *z = get(&s, 10 * MIB);
    assert_int_equal(s.a.reserved.now, 120 * MIB);
    allocator_free(&s.a, y);
    /* free from 10 to 110: pages from 20 to 100 */
    assert_true(allocator_empty_cache(&s.a));
    assert_int_equal(s.a.reserved.now, 40 * MIB);
    assert_int_equal(s.a.segments, 1);
    assert_int_equal(allocator_largest_free(&s.a), 10 * MIB);
    check_all(&s.a);
    /* the gap is filled again, from its lowest address on */
    y = get(&s, 50 * MIB);
    assert_int_equal(offset(y), 10 * MIB);
    assert_int_equal(s.a.reserved.now, 80 * MIB);
    check_all(&s.a);
    allocator_free(&s.a, x);
    allocator_free(&s.a, y);
    allocator_free(&s.a, z);
    assert_true(allocator_empty_cache(&s.a));
    assert_int_equal(s.a.reserved.now, 0);
    assert_null(s.a.first);
    sim_end(&s);
}

/* Several holes in a row, with what is cached between them. */
static void test_expandable_fills_many_gaps(void **state)
{
    (void)state;
    const struct allocator_config config = { .expandable = true,
                                             .capacity = 400 * MIB };
    struct sim s;
    sim_begin(&s, &config);
    struct allocator_block *b[10];
    for (size_t i = 0; i < 10; i++)
        b[i] = get(&s, 20 * MIB);
    for (size_t i = 0; i < 10; i += 2)
        allocator_free(&s.a, b[i]);
    assert_true(allocator_empty_cache(&s.a));
    assert_int_equal(s.a.reserved.now, 100 * MIB);
    for (size_t i = 1; i < 9; i += 2)
        allocator_free(&s.a, b[i]);
    check_all(&s.a);
    struct allocator_block *all = get(&s, 170 * MIB);
    assert_int_equal(offset(all), 0);
    assert_int_equal(s.a.reserved.now, 200 * MIB);
    sim_end(&s);
}

static void test_expandable_runs_out(void **state)
{
    (void)state;
    const struct allocator_config config = { .expandable = true,
                                             .capacity = 100 * MIB };
    struct sim s;
    struct allocator_block *b = NULL;
    sim_begin(&s, &config);
    get(&s, 50 * MIB); /* 60 */
    allocator_free(&s.a, get_on(&s, 20 * MIB, 1));
    /* another stream's pages are taken back for this one */
    get(&s, 50 * MIB);
    assert_int_equal(s.a.reserved.now, 100 * MIB);
    assert_int_equal(s.a.retries, 1);
    assert_int_equal(allocator_malloc(&s.a, &b, 1, 0), ALLOCATOR_OOM);
    assert_int_equal(allocator_malloc(&s.a, &b, 200 * MIB, 0), ALLOCATOR_OOM);
    assert_int_equal(s.a.ooms, 2);
    sim_end(&s);
}

/* ---- peaks, and a start ---- */

static void test_peaks(void **state)
{
    (void)state;
    struct sim s;
    sim_begin(&s, &plain);
    struct allocator_block *x = get(&s, 5 * MIB);
    struct allocator_block *y = get(&s, 17 * MIB);
    assert_int_equal(s.a.reserved.peak, 38 * MIB);
    /* 22 MiB, and the 1 MiB not split off */
    assert_int_equal(s.a.allocated.now, 23 * MIB);
    assert_int_equal(allocator_fragmentation(&s.a), 15 * MIB);
    struct allocator_block *z = get(&s, 5 * MIB);
    /* it was not what made the peak */
    assert_int_equal(allocator_fragmentation(&s.a), 15 * MIB);
    assert_int_equal(s.a.allocated.peak, 28 * MIB);
    allocator_free(&s.a, x);
    allocator_free(&s.a, z);
    allocator_reset_peaks(&s.a);
    assert_int_equal(s.a.allocated.peak, 18 * MIB);
    assert_int_equal(s.a.reserved.peak, 38 * MIB);
    assert_int_equal(allocator_fragmentation(&s.a), 20 * MIB);
    allocator_free(&s.a, y);
    sim_end(&s);
}

static void test_adopts(void **state)
{
    (void)state;
    struct sim s;
    sim_begin(&s, &plain);
    const uint64_t at = 64 * MIB;
    const struct allocator_span used[] = { { at + 2 * MIB, 3 * MIB },
                                           { at + 5 * MIB, 2 * MIB } };
    struct allocator_start start = {
        .base = at, .size = 20 * MIB, .used = used, .n_used = 2
    };
    struct allocator_block *b[2];
    assert_true(allocator_adopt(&s.a, &start, b));
    assert_int_equal(s.a.allocated.now, 5 * MIB);
    assert_int_equal(s.a.reserved.now, 20 * MIB);
    check_all(&s.a);
    assert_int_equal(get(&s, 2 * MIB)->address, at);
    assert_true(get(&s, 30 * MIB)->address >= at + 20 * MIB);
    allocator_free(&s.a, b[1]);
    assert_int_equal(allocator_largest_free(&s.a), 15 * MIB);
    allocator_free(&s.a, b[0]);
    /* refused, and nothing done: past the end; over one another */
    const struct allocator_span past[] = { { at + 19 * MIB, 2 * MIB } };
    const struct allocator_span over[] = { { at, 2 * MIB }, { at + 1, MIB } };
    start.used = past;
    start.n_used = 1;
    assert_false(allocator_adopt(&s.a, &start, b));
    start.used = over;
    start.n_used = 2;
    assert_false(allocator_adopt(&s.a, &start, b));
    start.size = 0;
    start.n_used = 0;
    assert_false(allocator_adopt(&s.a, &start, b));
    assert_int_equal(s.a.segments, 2);
    sim_end(&s);
}

/* ---- random sequences ---- */

static uint32_t next_random(uint32_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}

static uint64_t random_size(uint32_t *seed)
{
    const uint64_t r = next_random(seed);
    switch (next_random(seed) % 6) {
    case 0: return r % 4096;
    case 1: return r % MIB;
    case 2: return r % (12 * MIB);
    case 3: return (r % 32) * MIB;
    case 4: return (r % 64) * 512;
    default: return r % (90 * MIB);
    }
}

enum { LIVE_MAX = 96, STEPS = 3000 };

/* One step of a random life; false when the arena ran out. */
static bool random_step(struct sim *s, struct allocator_block **live,
                        uint32_t *seed)
{
    struct allocator_block **b = &live[next_random(seed) % LIVE_MAX];
    const uint32_t dice = next_random(seed) % 64;
    const uint32_t stream = next_random(seed) % 3;
    if (dice == 0)
        return allocator_empty_cache(&s->a);
    if (dice == 1) {
        allocator_sync(&s->a);
        return true;
    }
    if (*b == NULL)
        return allocator_malloc(&s->a, b, random_size(seed), stream)
               != ALLOCATOR_NOMEM;
    if (dice < 8)
        allocator_retire(&s->a, *b);
    else
        allocator_free(&s->a, *b);
    *b = NULL;
    return true;
}

static bool free_all(struct sim *s, struct allocator_block **live)
{
    for (size_t i = 0; i < LIVE_MAX; i++)
        allocator_free(&s->a, live[i]);
    allocator_sync(&s->a);
    check_all(&s->a);
    assert_int_equal(s->a.active.now, 0);
    for (const struct allocator_segment *g = s->a.first; g != NULL; g = g->next)
        assert_true(g->expandable || allocator_is_whole(g->first));
    return allocator_empty_cache(&s->a);
}

static const struct allocator_config every[] = {
    { .capacity = 0 },
    { .capacity = 800 * MIB },
    { .max_split_bytes = 32 * MIB, .capacity = 700 * MIB },
    { .max_split_bytes = 2 * MIB, .capacity = 600 * MIB },
    { .roundup_power2_divisions = 8, .capacity = 900 * MIB },
    { .gc_threshold = 0.6, .capacity = 900 * MIB },
    { .expandable = true },
    { .expandable = true, .capacity = 700 * MIB },
    { .expandable = true, .capacity = 300 * MIB, .gc_threshold = 0.5 },
    { .expandable = true, .capacity = 600 * MIB, .max_split_bytes = 40 * MIB },
};
enum { CONFIGS = sizeof every / sizeof every[0] };

static void test_random_lives(void **state)
{
    (void)state;
    for (size_t c = 0; c < CONFIGS; c++) {
        struct sim s;
        struct allocator_block *live[LIVE_MAX] = { NULL };
        uint32_t seed = 2463534242u + (uint32_t)c;
        sim_begin(&s, &every[c]);
        for (int i = 0; i < STEPS; i++) {
            assert_true(random_step(&s, live, &seed));
            if (i % 4 == 0)
                check_all(&s.a);
        }
        if (every[c].capacity > 0)
            assert_true(s.a.retries > 0);
        assert_true(free_all(&s, live));
        assert_int_equal(s.a.reserved.now, 0);
        assert_null(s.a.first);
        sim_end(&s);
    }
}

/* The same again gives the same, and blocks are used again. */
static void test_repeats_itself(void **state)
{
    (void)state;
    uint64_t peak[2], made[2];
    for (size_t round = 0; round < 2; round++) {
        struct sim s;
        struct allocator_block *live[LIVE_MAX] = { NULL };
        uint32_t seed = 99;
        sim_begin(&s, &plain);
        for (int i = 0; i < STEPS * 10; i++)
            assert_true(random_step(&s, live, &seed));
        peak[round] = s.a.reserved.peak;
        made[round] = s.a.blocks_made;
        sim_end(&s);
    }
    assert_int_equal(peak[0], peak[1]);
    assert_int_equal(made[0], made[1]);
    assert_true(made[0] < STEPS);
}

/* ---- memory runs out ---- */

struct meter {
    size_t calls, fail_at;
};

static void *metered(void *ctx, void *ptr, size_t old_size, size_t new_size)
{
    struct meter *m = ctx;
    (void)old_size;
    if (new_size == 0) {
        free(ptr);
        return NULL;
    }
    return m->calls++ >= m->fail_at ? NULL : realloc(ptr, new_size);
}

/* True when it got to its end without a failure. */
static bool live_until_failure(const struct allocator_config *config,
                               size_t fail_at)
{
    struct meter m = { 0, fail_at };
    const memplan_allocator alloc = { metered, &m };
    struct sim s;
    struct allocator_block *live[LIVE_MAX] = { NULL };
    uint32_t seed = 7;
    bool ok = true;
    arena_init(&s.arena, &alloc);
    allocator_init(&s.a, config, &s.arena);
    for (int i = 0; i < STEPS && ok; i++)
        ok = random_step(&s, live, &seed);
    check_all(&s.a);
    ok = free_all(&s, live) && ok;
    sim_end(&s);
    return ok;
}

static void test_every_failure(void **state)
{
    (void)state;
    for (size_t c = 0; c < CONFIGS; c++) {
        size_t n = 0;
        while (!live_until_failure(&every[c], n))
            assert_true(++n < 1000);
        assert_true(n > 1);
    }
}

static void test_adopt_fails(void **state)
{
    (void)state;
    struct meter m = { 0, 0 };
    const memplan_allocator alloc = { metered, &m };
    struct sim s;
    arena_init(&s.arena, &alloc);
    allocator_init(&s.a, &plain, &s.arena);
    const struct allocator_start start = { .size = 2 * MIB, .small = true };
    assert_false(allocator_adopt(&s.a, &start, NULL));
    struct allocator_block *b = NULL;
    assert_int_equal(allocator_malloc(&s.a, &b, 1, 0), ALLOCATOR_NOMEM);
    assert_null(b);
    assert_int_equal(s.a.ooms, 0);
    sim_end(&s);
}

/* Unmapping needs structs for what stays mapped: without any, it stops, and
 * what it did holds together. */
static void test_unmap_fails(void **state)
{
    (void)state;
    struct meter m = { 0, SIZE_MAX };
    const memplan_allocator alloc = { metered, &m };
    const struct allocator_config config = { .expandable = true };
    struct sim s;
    arena_init(&s.arena, &alloc);
    allocator_init(&s.a, &config, &s.arena);
    static const uint64_t mib[] = { 10, 60, 10, 70, 10 };
    struct allocator_block *b[5], *small = NULL;
    for (size_t i = 0; i < 5; i++)
        b[i] = get(&s, mib[i] * MIB);
    m.fail_at = 0;
    while (allocator_malloc(&s.a, &small, 512, 0) == ALLOCATOR_OK)
        assert_non_null(small);
    assert_int_equal(s.a.spares, 2);
    allocator_free(&s.a, b[1]);
    allocator_free(&s.a, b[3]);
    const uint64_t reserved = s.a.reserved.now;
    assert_false(allocator_empty_cache(&s.a));
    assert_int_equal(s.a.reserved.now, reserved - 40 * MIB);
    sim_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds_to_512),
        cmocka_unit_test(test_rounds_to_divisions),
        cmocka_unit_test(test_nothing_for_nothing),
        cmocka_unit_test(test_beyond_any_device),
        cmocka_unit_test(test_segment_sizes),
        cmocka_unit_test(test_small_and_large_apart),
        cmocka_unit_test(test_streams_apart),
        cmocka_unit_test(test_small_splits_off_512),
        cmocka_unit_test(test_large_remainder_stays),
        cmocka_unit_test(test_smallest_that_fits),
        cmocka_unit_test(test_lowest_of_equals),
        cmocka_unit_test(test_merges_with_neighbours),
        cmocka_unit_test(test_segments_do_not_merge),
        cmocka_unit_test(test_max_split),
        cmocka_unit_test(test_oversize_given_back_first),
        cmocka_unit_test(test_retry_frees_cache),
        cmocka_unit_test(test_empty_cache),
        cmocka_unit_test(test_device_that_refuses),
        cmocka_unit_test(test_retired_until_sync),
        cmocka_unit_test(test_garbage_is_old),
        cmocka_unit_test(test_garbage_spares_the_young),
        cmocka_unit_test(test_expandable_grows),
        cmocka_unit_test(test_expandable_splits_off_512),
        cmocka_unit_test(test_expandable_prefers_holes),
        cmocka_unit_test(test_expandable_unmaps_pages),
        cmocka_unit_test(test_expandable_fills_many_gaps),
        cmocka_unit_test(test_expandable_runs_out),
        cmocka_unit_test(test_peaks),
        cmocka_unit_test(test_adopts),
        cmocka_unit_test(test_random_lives),
        cmocka_unit_test(test_repeats_itself),
        cmocka_unit_test(test_every_failure),
        cmocka_unit_test(test_adopt_fails),
        cmocka_unit_test(test_unmap_fails),
    };
    return cmocka_run_group_tests_name("allocator", tests, NULL, NULL);
}
