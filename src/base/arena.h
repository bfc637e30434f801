/*
 * A chunked arena on the caller's allocator. One per public handle; freed as
 * a whole. Failure is sticky: after the first failed allocation every later one
 * returns NULL, so that a sequence of allocations can be checked once.
 */
#ifndef MEMPLAN_BASE_ARENA_H
#define MEMPLAN_BASE_ARENA_H

#include "memplan/memplan.h"

struct arena_chunk;

struct arena {
    memplan_allocator alloc;
    struct arena_chunk *first;   /* list in order of making */
    struct arena_chunk *current; /* being filled */
    size_t used;                 /* of current */
    bool failed;
};

/* alloc NULL: malloc and free. Allocates nothing yet. */
void arena_init(struct arena *a, const memplan_allocator *alloc);

/* Frees every chunk. */
void arena_release(struct arena *a);

/* Forgets the contents, keeps the chunks; clears `failed`. */
void arena_rewind(struct arena *a);

/* n * size bytes, zeroed, aligned for any type; NULL on failure or overflow.
 * n == 0 gives a valid pointer to nothing. */
void *arena_alloc(struct arena *a, size_t n, size_t size);

/* The same, not zeroed: for what is set before it is read. */
void *arena_room(struct arena *a, size_t n, size_t size);

/* A NUL-terminated copy of len bytes; NULL on failure. */
char *arena_copy(struct arena *a, const char *text, size_t len);

/* printf into the arena; NULL on failure. */
char *arena_printf(struct arena *a, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* An array of n T. */
#define ARENA_NEW(a, T, n) ((T *)arena_alloc((a), (n), sizeof(T)))
#define ARENA_ROOM(a, T, n) ((T *)arena_room((a), (n), sizeof(T)))

/* The allocator that malloc and free make. */
memplan_allocator allocator_default(void);

#endif
