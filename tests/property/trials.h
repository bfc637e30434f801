/*
 * Random setups of the property tests: choices from a seed, so that a failure
 * can be run again, and how many of them.
 */
#ifndef MEMPLAN_TESTS_TRIALS_H
#define MEMPLAN_TESTS_TRIALS_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "memplan/memplan.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define SANITIZED
#endif
#ifdef SANITIZED /* slow */
enum { DEFAULT_RUNS = 450 };
#else
enum { DEFAULT_RUNS = 3000 };
#endif

static inline uint64_t runs(void)
{
    const char *text = getenv("MEMPLAN_PROPERTY_RUNS");
    const unsigned long n = text == NULL ? 0 : strtoul(text, NULL, 10);
    return n == 0 ? DEFAULT_RUNS : n;
}

/* splitmix64 */
static inline uint64_t next(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline const char *pick(uint64_t *seed, const char *const *words)
{
    size_t n = 0;
    while (words[n] != NULL)
        n++;
    return words[next(seed) % n];
}

#define PICK(seed, ...) pick((seed), (const char *const[]){ __VA_ARGS__, NULL })

/* A setup as text, so that a failure can name it and a variant change it. */
struct choice {
    const char *key, *value; /* NULL: not given */
};

/* Of a model of the catalogue, or of a text; `part`: of such a text, or NULL.
 * NULL where it is refused, which is an answer too. */
memplan_report *choices_estimate(const char *model, const char *part,
                                 const struct choice *c, size_t n);
/* " --key value" of each. */
void choices_describe(const struct choice *c, size_t n, char *buf, size_t size);

#endif
