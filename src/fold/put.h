/*
 * One memory term as a quotient of named factors. The number and its
 * explanation come from the same factors, so that they cannot differ.
 */
#ifndef MEMPLAN_FOLD_PUT_H
#define MEMPLAN_FOLD_PUT_H

#include "fold/result.h"

#include "base/cold.h"
#include "base/count.h"

enum factor_kind {
    FACTOR_TIMES,
    FACTOR_DIVIDES,
    FACTOR_PIECES, /* so many allocations, each of the rest of the product */
    FACTOR_TENSORS /* an allocation for each of the stage's trained tensors */
};

struct factor {
    const char *sym;
    uint64_t v;
    enum factor_kind kind;
};

#define F(sym, v)                                                              \
    {                                                                          \
        (sym), (v), FACTOR_TIMES                                               \
    }
#define D(sym, v)                                                              \
    {                                                                          \
        (sym), (v), FACTOR_DIVIDES                                             \
    }
#define A(sym, v)                                                              \
    {                                                                          \
        (sym), (v), FACTOR_PIECES                                              \
    }

#define T(sym, v)                                                              \
    {                                                                          \
        (sym), (v), FACTOR_TENSORS                                             \
    }

/* One term as it was put, for whoever wants to follow. */
enum { PIECES_TENSORS = 0 };
struct put_event {
    enum term term;
    const char *what;
    uint64_t bytes, pieces;
};
typedef void put_fn(void *ctx, const struct put_event *e);

/* What a stage does with one chunk of one micro-batch. */
enum slot_kind {
    SLOT_FORWARD,
    SLOT_BACKWARD, /* whole */
    SLOT_INPUT,    /* backward without the gradients of linears' weights */
    SLOT_WEIGHT,   /* these */
    SLOT_KINDS
};

/* Where a moment's terms go. */
struct put {
    struct moment *m;
    struct explanation *why; /* NULL: numbers only */
    enum component only;     /* of why: the one that is recorded */
    enum slot_kind slot;     /* what the moment is part of */
    uint64_t lacks; /* bytes of weights' gradients that chunks do not have, or
                       have cut, beside the fullest of what is in flight */
    /* DeepSpeed's bucket; NULL: as the block's backward finds it */
    const struct bucket_fill *fill;
    uint64_t *bucket; /* takes moment_of_bucket(); NULL: nobody asks */
    bool inside;      /* the head's block, before the model's forward returns */
    bool copies_out;  /* before the block runs: engine_copies_out */
    bool copied_in;   /* engine_reduce: FSDP version 2's whole gradients are */
    bool makes_moments; /* in the optimizer's first step */
    bool over;          /* a product did not fit into 64 bits */
    put_fn *each;       /* NULL: nobody follows */
    void *ctx;
};

/* Of whole weights' gradients what chunks have. */
static inline uint64_t put_less_lacking(const struct put *p, uint64_t whole)
{
    return whole - min_u64(p->lacks, whole);
}

/* Whoever follows is told of a term: its bytes are the quotient of n factors. */
COLD void put_tell(struct put *p, enum term term, const char *what,
                   const struct factor *f, size_t n);

/* ceil(product / divisors) */
INLINE struct count put_quotient(const struct factor *f, size_t n)
{
    struct count c = count_of(1);
    uint64_t divisor = 1;
    for (size_t i = 0; i < n; i++)
        if (f[i].kind == FACTOR_DIVIDES)
            divisor *= f[i].v; /* shard degrees: at most gpus, < 2^40 */
        else
            c = i == 0 ? count_of(f[i].v) : count_mul(c, count_of(f[i].v));
    return divisor == 1 ? c : count_div_up(c, divisor);
}

/* Adds it in bytes to a term; a sum that does not fit into 64 bits is `over`.
 * Nothing happens for 0, as most are. True where somebody follows. */
INLINE bool put_term(struct put *p, enum term term, const struct factor *f,
                     size_t n)
{
    const struct count c = put_quotient(f, n);
    if (c.v == 0 && !c.over)
        return false;
    const struct count sum = count_add(count_of(p->m->total), c);
    p->m->total = sum.v;
    p->m->bytes[term] += c.v; /* no more than the total */
    p->over = p->over || sum.over;
    return p->each != NULL || p->why != NULL;
}

#define FACTORS(...)                                                           \
    (const struct factor[]){ __VA_ARGS__ },                                    \
        sizeof((const struct factor[]){ __VA_ARGS__ }) / sizeof(struct factor)

/* `what` says what it is, in `explain`. The factors are evaluated again for
 * whoever follows: else they need not be in memory, nor their names. */
#define PUT(p, term, what, ...)                                                \
    do {                                                                       \
        if (put_term((p), (term), FACTORS(__VA_ARGS__)))                       \
            put_tell((p), (term), (what), FACTORS(__VA_ARGS__));               \
    } while (0)

#endif
