/*
 * Owns memory: a list of chunks taken from the caller's allocator, filled one
 * after another. Refuses to know what is put there, and to free one thing
 * alone. The only file that calls malloc and free.
 */
#include "base/arena.h"

#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"

struct arena_chunk {
    struct arena_chunk *next;
    size_t size;        /* of data, in bytes */
    max_align_t data[]; /* so that the first byte suits any type */
};

enum { ARENA_FIRST_CHUNK = 4096, ARENA_LAST_CHUNK = 1 << 20 };

static void *resize_with_malloc(void *ctx, void *ptr, size_t old_size,
                                size_t new_size)
{
    (void)ctx;
    (void)old_size;
    if (new_size == 0) {
        free(ptr);
        return NULL;
    }
    return realloc(ptr, new_size);
}

memplan_allocator allocator_default(void)
{
    return (memplan_allocator){ resize_with_malloc, NULL };
}

void arena_init(struct arena *a, const memplan_allocator *alloc)
{
    *a = (struct arena){ .alloc = alloc ? *alloc : allocator_default() };
}

void arena_release(struct arena *a)
{
    struct arena_chunk *chunk = a->first;
    while (chunk) {
        struct arena_chunk *next = chunk->next;
        a->alloc.resize(a->alloc.ctx, chunk, sizeof(*chunk) + chunk->size, 0);
        chunk = next;
    }
    arena_init(a, &(memplan_allocator){ a->alloc.resize, a->alloc.ctx });
}

void arena_rewind(struct arena *a)
{
    a->current = a->first;
    a->used = 0;
    a->failed = false;
}

/* Chunks double in size, so that their number stays logarithmic. */
static size_t next_chunk_size(const struct arena *a, size_t wanted)
{
    size_t size = ARENA_FIRST_CHUNK;
    if (a->current && a->current->size < ARENA_LAST_CHUNK / 2)
        size = a->current->size * 2;
    else if (a->current)
        size = ARENA_LAST_CHUNK;
    return wanted > size ? wanted : size;
}

/* Makes `current` a chunk with room for `wanted` bytes, one kept from before a
 * rewind if there is one: the same sequence of requests then meets the same
 * chunks and allocates nothing. */
static bool move_to_chunk(struct arena *a, size_t wanted)
{
    struct arena_chunk *last = a->current;
    struct arena_chunk *chunk = last ? last->next : NULL;
    for (; chunk; last = chunk, chunk = chunk->next) {
        if (chunk->size >= wanted) {
            a->current = chunk;
            a->used = 0;
            return true;
        }
    }

    size_t size = next_chunk_size(a, wanted);
    if (size > SIZE_MAX - sizeof(*chunk))
        return false;
    chunk = a->alloc.resize(a->alloc.ctx, NULL, 0, sizeof(*chunk) + size);
    if (!chunk)
        return false;
    chunk->next = NULL;
    chunk->size = size;
    if (last)
        last->next = chunk;
    else
        a->first = chunk;
    a->current = chunk;
    a->used = 0;
    return true;
}

void *arena_room(struct arena *a, size_t n, size_t size)
{
    const size_t align = sizeof(max_align_t);
    if (a->failed)
        return NULL;
    if (size != 0 && n > (SIZE_MAX - align) / size) {
        a->failed = true;
        return NULL;
    }

    size_t bytes = n * size;
    size_t taken = (bytes + align - 1) / align * align;
    if (!a->current || a->current->size - a->used < taken) {
        if (!move_to_chunk(a, taken)) {
            a->failed = true;
            return NULL;
        }
    }
    char *place = (char *)a->current->data + a->used;
    a->used += taken;
    return place;
}

void *arena_alloc(struct arena *a, size_t n, size_t size)
{
    void *place = arena_room(a, n, size);
    return place == NULL ? NULL : memset(place, 0, n * size);
}

char *arena_copy(struct arena *a, const char *text, size_t len)
{
    if (len == SIZE_MAX) {
        a->failed = true;
        return NULL;
    }
    char *copy = arena_alloc(a, len + 1, 1);
    if (copy && len > 0)
        memcpy(copy, text, len);
    return copy;
}

char *arena_printf(struct arena *a, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (len < 0) {
        a->failed = true;
        return NULL;
    }

    char *text = arena_alloc(a, (size_t)len + 1, 1);
    if (!text)
        return NULL;
    va_start(args, format);
    str_vformat(text, (size_t)len + 1, format, args);
    va_end(args);
    return text;
}
