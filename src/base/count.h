/*
 * Checked arithmetic on bytes and element counts. Overflow is sticky: a
 * formula is written plainly and looked at once, at the end of a fold.
 */
#ifndef MEMPLAN_BASE_COUNT_H
#define MEMPLAN_BASE_COUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct count {
    uint64_t v;
    bool over; /* some step did not fit; v is meaningless then */
};

static inline struct count count_of(uint64_t v)
{
    return (struct count){ v, false };
}

static inline struct count count_add(struct count a, struct count b)
{
    struct count r = { a.v + b.v, a.over || b.over };
    r.over = r.over || r.v < a.v;
    return r;
}

static inline struct count count_mul(struct count a, struct count b)
{
#if defined(__GNUC__)
    struct count r;
    r.over = __builtin_mul_overflow(a.v, b.v, &r.v) || a.over || b.over;
#else
    struct count r = { a.v * b.v, a.over || b.over };
    if ((a.v | b.v) >> 32 != 0) /* else there is no need to divide */
        r.over = r.over || (b.v != 0 && a.v > UINT64_MAX / b.v);
#endif
    return r;
}

/* Rounded up; b == 0 is marked as overflow. */
static inline struct count count_div_up(struct count a, uint64_t b)
{
    if (b == 0)
        return (struct count){ 0, true };
    return (struct count){ a.v / b + (a.v % b != 0), a.over };
}

/* Up to the next multiple of b. */
static inline struct count count_round_up(struct count a, uint64_t b)
{
    return count_mul(count_div_up(a, b), count_of(b));
}

static inline struct count count_product(const uint64_t *f, size_t n)
{
    struct count r = count_of(1);
    for (size_t i = 0; i < n; i++)
        r = count_mul(r, count_of(f[i]));
    return r;
}

/* PROD(a, b, ...): the product of any number of uint64_t. */
#define PROD(...)                                                              \
    count_product((const uint64_t[]){ __VA_ARGS__ },                           \
                  sizeof((const uint64_t[]){ __VA_ARGS__ })                    \
                      / sizeof(uint64_t))

static inline uint64_t div_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

static inline uint64_t gcd_u64(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

#endif
