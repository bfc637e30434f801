/*
 * One memory term as a quotient of named factors. The number and its
 * explanation come from the same factors, so that they cannot differ.
 */
#ifndef MEMPLAN_FOLD_PUT_H
#define MEMPLAN_FOLD_PUT_H

#include "fold/result.h"

struct factor {
    const char *sym;
    uint64_t v;
    bool divides;
};

#define F(sym, v)                                                              \
    {                                                                          \
        (sym), (v), false                                                      \
    }
#define D(sym, v)                                                              \
    {                                                                          \
        (sym), (v), true                                                       \
    }

/* Where a moment's terms go. */
struct put {
    struct moment *m;
    struct explanation *why; /* NULL: numbers only */
    enum component only;     /* of why: the one that is recorded */
    bool over;               /* a product did not fit into 64 bits */
};

/* Adds ceil(product / divisors) bytes to a term; `what` says what it is, in
 * `explain`. Nothing happens for 0. */
void put_term(struct put *p, enum term term, const char *what,
              const struct factor *f, size_t n);

#define PUT(p, term, what, ...)                                                \
    put_term((p), (term), (what), (const struct factor[]){ __VA_ARGS__ },      \
             sizeof((const struct factor[]){ __VA_ARGS__ })                    \
                 / sizeof(struct factor))

#endif
