/*
 * The caching allocator's simulation against traces of the real one
 * (torch.cuda.memory snapshots): the same requests must get the same
 * addresses, and the device must be asked for the same segments.
 *
 * A line of a trace, addresses hexadecimal and relative:
 *     S address size pool     a segment there at the start, `large` or `small`
 *     B address size          a block in use at the start
 *     G address size          cudaMalloc: the next A asked for it
 *     R address size          cudaFree
 *     A address bytes         a request, and the block it got
 *     F address               its end
 *     # end reserved N [allocated N]      what the snapshot says at the end
 *
 * Replays tests/measured/traces, and the folder that the environment variable
 * MEMPLAN_TRACES names, if it does: *.txt, and *.txt.gz through `gzip -dc`.
 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* popen, opendir */
#endif

#include "fold/allocator.h"

#include <dirent.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* ---- blocks by recorded address ---- */

struct entry {
    uint64_t address;
    struct allocator_block *block; /* NULL: was here once, or never */
    bool used;
};

enum { MAP_SIZE = 1 << 18, STARTS_MAX = 1 << 12, SPANS_MAX = 1 << 16 };

struct trace {
    const char *name;
    struct allocator a;
    struct entry *map;
    struct allocator_start start[STARTS_MAX];
    struct allocator_span span[SPANS_MAX];
    struct allocator_block *block[SPANS_MAX];
    size_t n_starts, n_spans;
    bool started;
    struct allocator_span granted; /* size 0: none is waiting */
    uint64_t strange;              /* where a segment nobody recorded lies */
    uint64_t allocations, frees, equal, differing, unknown;
    uint64_t segments, segments_equal;
    uint64_t released; /* by cudaFree, as recorded */
    bool releasing;
    uint64_t end_reserved, end_allocated;
    bool has_end, has_allocated;
};

static struct entry *entry_of(struct trace *t, uint64_t address)
{
    size_t i = (size_t)((address >> 9) * 0x9e3779b97f4a7c15u >> 46);
    for (size_t tries = 0; tries < MAP_SIZE; tries++, i++) {
        struct entry *e = &t->map[i % MAP_SIZE];
        if (!e->used)
            *e = (struct entry){ address, NULL, true };
        if (e->address == address)
            return e;
    }
    fail_msg("%s: too many addresses", t->name);
    return NULL;
}

/* ---- replay ---- */

/* The device grants the segment the trace says, or one nobody recorded. */
static bool place(void *ctx, uint64_t size, bool small, uint64_t *base)
{
    struct trace *t = ctx;
    (void)small;
    if (t->granted.size == size) {
        *base = t->granted.address;
        t->granted.size = 0;
        t->segments_equal++;
        return true;
    }
    *base = t->strange;
    t->strange += (uint64_t)1 << 40;
    return true;
}

/* The size of a B whose end is in the trace is what was asked for, rounded. Of
 * the large pool no cached block is as small as 1 MiB, since such remainders
 * are not split off: a gap that small is part of the block before it. */
static void widen(struct allocator_span *span, size_t n,
                  const struct allocator_start *s)
{
    for (size_t i = 0; i < n; i++) {
        const uint64_t next =
            i + 1 < n ? span[i + 1].address : s->base + s->size;
        if (next - span[i].address - span[i].size <= ALLOCATOR_SMALL_REQUEST)
            span[i].size = next - span[i].address;
    }
}

/* B lines are ascending, so each segment's are together. */
static void begin(struct trace *t)
{
    size_t next = 0;
    t->started = true;
    for (size_t i = 0; i < t->n_starts; i++) {
        struct allocator_start *s = &t->start[i];
        const size_t first = next;
        while (next < t->n_spans && t->span[next].address - s->base < s->size)
            next++;
        s->used = &t->span[first];
        s->n_used = next - first;
        if (!s->small)
            widen(&t->span[first], s->n_used, s);
        if (!allocator_adopt(&t->a, s, &t->block[first]))
            fail_msg("%s: cannot adopt segment %" PRIx64, t->name, s->base);
    }
    if (next != t->n_spans)
        fail_msg("%s: a block outside of every segment", t->name);
    for (size_t i = 0; i < t->n_spans; i++)
        entry_of(t, t->span[i].address)->block = t->block[i];
}

static void on_alloc(struct trace *t, uint64_t address, uint64_t bytes)
{
    struct allocator_block *b = NULL;
    struct entry *e = entry_of(t, address);
    if (e->block != NULL) /* its end is not in the trace */
        allocator_free(&t->a, e->block);
    if (allocator_malloc(&t->a, &b, bytes, 0) != ALLOCATOR_OK)
        fail_msg("%s: a request of %" PRIu64 " failed", t->name, bytes);
    e->block = b;
    t->allocations++;
    if (b->address == address)
        t->equal++;
    else if (t->differing++ < 20)
        print_message("  request %" PRIu64 " of %" PRIu64 ": %" PRIx64
                      ", not %" PRIx64 "\n",
                      t->allocations, bytes, b->address, address);
    t->granted.size = 0;
}

static void on_free(struct trace *t, uint64_t address)
{
    struct entry *e = entry_of(t, address);
    t->frees++;
    t->unknown += e->block == NULL;
    allocator_free(&t->a, e->block);
    e->block = NULL;
}

static void on_start(struct trace *t, char kind, uint64_t address,
                     uint64_t size, bool small)
{
    if (kind == 'S' && t->n_starts < STARTS_MAX)
        t->start[t->n_starts++] = (struct allocator_start){ .base = address,
                                                            .size = size,
                                                            .small = small };
    else if (kind == 'B' && t->n_spans < SPANS_MAX)
        t->span[t->n_spans++] = (struct allocator_span){ address, size };
    else
        fail_msg("%s: too long", t->name);
}

static void on_event(struct trace *t, char kind, uint64_t address,
                     uint64_t size)
{
    if (!t->started)
        begin(t);
    if (kind == 'R' && !t->releasing && !allocator_empty_cache(&t->a))
        fail_msg("%s: out of memory", t->name);
    t->releasing = kind == 'R';
    if (kind == 'G') {
        t->granted = (struct allocator_span){ address, size };
        t->segments++;
    } else if (kind == 'A') {
        on_alloc(t, address, size);
    } else if (kind == 'F') {
        on_free(t, address);
    } else if (kind == 'R') {
        t->released += size;
    } else {
        fail_msg("%s: a line that begins with '%c'", t->name, kind);
    }
}

static void on_line(struct trace *t, const char *line)
{
    char kind = 0;
    char pool[8] = "";
    uint64_t address = 0, size = 0;
    if (line[0] == '#') {
        const int n =
            sscanf(line, "# end reserved %" SCNu64 " allocated %" SCNu64,
                   &t->end_reserved, &t->end_allocated);
        t->has_end = t->has_end || n >= 1;
        t->has_allocated = t->has_allocated || n >= 2;
        return;
    }
    if (sscanf(line, "%c %" SCNx64 " %" SCNu64 " %7s", &kind, &address, &size,
               pool)
        < 2)
        fail_msg("%s: \"%s\"", t->name, line);
    if (kind == 'S' || kind == 'B')
        on_start(t, kind, address, size, strcmp(pool, "small") == 0);
    else
        on_event(t, kind, address, size);
}

static void report(const struct trace *t, double seconds)
{
    const uint64_t held = t->a.reserved.now;
    print_message(
        "%s: %" PRIu64 " allocations, %" PRIu64 " equal addresses, %" PRIu64
        " differing; %" PRIu64 " cudaMalloc, %" PRIu64 " equal, %" PRIu64
        " in the simulation; reserved %" PRIu64 " (recorded %" PRIu64 ")",
        t->name, t->allocations, t->equal, t->differing, t->segments,
        t->segments_equal, t->a.device_allocs - t->n_starts, held,
        t->end_reserved);
    if (t->has_allocated)
        print_message(", allocated %" PRIu64 " (recorded %" PRIu64 ")",
                      t->a.allocated.now, t->end_allocated);
    print_message("; %.1f ms\n", seconds * 1e3);
}

static void check(const struct trace *t)
{
    assert_true(t->allocations > 0);
    assert_int_equal(t->differing, 0);
    assert_int_equal(t->unknown, 0);
    assert_int_equal(t->segments_equal, t->segments);
    assert_int_equal(t->a.device_allocs - t->n_starts, t->segments);
    assert_true(t->has_end);
    assert_int_equal(t->a.reserved.now, t->end_reserved);
    if (t->has_allocated)
        assert_int_equal(t->a.allocated.now, t->end_allocated);
}

static void replay(FILE *in, const char *name)
{
    struct arena arena;
    char line[1024];
    arena_init(&arena, NULL);
    struct trace *t = ARENA_NEW(&arena, struct trace, 1);
    t->map = ARENA_NEW(&arena, struct entry, MAP_SIZE);
    t->name = name;
    t->strange = (uint64_t)1 << 60;
    const struct allocator_config config = { .place = place, .place_ctx = t };
    allocator_init(&t->a, &config, &arena);
    const clock_t from = clock();
    while (fgets(line, sizeof line, in) != NULL)
        on_line(t, line);
    report(t, (double)(clock() - from) / CLOCKS_PER_SEC);
    check(t);
    arena_release(&arena);
}

/* ---- files ---- */

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static int by_name(const void *x, const void *y)
{
    return strcmp(x, y);
}

enum { FILES_MAX = 64, NAME_BYTES = 256 };

static void replay_file(const char *folder, const char *name)
{
    char path[4096];
    char command[4200];
    const bool packed = ends_with(name, ".gz");
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_true(n > 0 && (size_t)n < sizeof path);
    /* the shell is to see one word */
    assert_null(strchr(path, '\''));
    snprintf(command, sizeof command, "gzip -dc '%s'", path);
    FILE *in = packed ? popen(command, "r") : fopen(path, "r");
    assert_non_null(in);
    replay(in, name);
    assert_int_equal(packed ? pclose(in) : fclose(in), 0);
}

static size_t replay_folder(const char *folder)
{
    static char name[FILES_MAX][NAME_BYTES];
    size_t n = 0;
    DIR *dir = opendir(folder);
    if (dir == NULL)
        fail_msg("%s: cannot be opened", folder);
    const struct dirent *d;
    while ((d = readdir(dir)) != NULL) {
        if (!ends_with(d->d_name, ".txt") && !ends_with(d->d_name, ".txt.gz"))
            continue;
        assert_true(n < FILES_MAX && strlen(d->d_name) < NAME_BYTES);
        snprintf(name[n++], NAME_BYTES, "%s", d->d_name);
    }
    closedir(dir);
    qsort(name, n, NAME_BYTES, by_name);
    for (size_t i = 0; i < n; i++)
        replay_file(folder, name[i]);
    return n;
}

static void test_excerpt(void **state)
{
    (void)state;
    assert_true(replay_folder(MEMPLAN_SOURCE_DIR "/tests/measured/traces") > 0);
}

static void test_named_folder(void **state)
{
    (void)state;
    const char *folder = getenv("MEMPLAN_TRACES");
    if (folder == NULL || *folder == '\0')
        skip();
    assert_true(replay_folder(folder) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_excerpt),
        cmocka_unit_test(test_named_folder),
    };
    return cmocka_run_group_tests_name("cuda_traces", tests, NULL, NULL);
}
