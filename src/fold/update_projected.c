/*
 * What updates of matrices in a projection of low rank keep and hold at their
 * fullest: GaLore's and APOLLO's, matrix by matrix, with what variables of the
 * loop still name of the matrix before.
 * [docs/method.md eq. projected]
 */
#include "fold/states.h"

#include "base/unit.h"

#include "base/banned.h"

static uint64_t short_side(const struct tensor *t)
{
    return min_u64(t->rows, t->cols);
}

static uint64_t long_side(const struct tensor *t)
{
    return max_u64(t->rows, t->cols);
}

static uint64_t rank_of(const struct run *run, const struct tensor *t)
{
    return run->optimizer == OPT_APOLLO
               ? run->optimizer_rank /* of random numbers: any */
               : min_u64(short_side(t), run->optimizer_rank);
}

uint64_t projected_elems(const struct run *run, const struct tensor *t)
{
    return long_side(t) * rank_of(run, t);
}

/* Of GaLore in fp32 a view of the decomposition's factor, which stays whole;
 * what is narrower is copied (galore_torch/galore_projector.py,
 * get_orthogonal_matrix). */
uint64_t projection_elems(const struct run *run, const struct tensor *t)
{
    const bool view =
        run->optimizer != OPT_APOLLO && update_size(run) == dtype_size(DT_FP32);
    return short_side(t) * (view ? short_side(t) : rank_of(run, t));
}

/* A new projection is made in fp32, of a copy where gradients are narrower.
 * GaLore decomposes a matrix, of which CUDA's solver overwrites a copy; then it
 * multiplies the factor that it does not need. APOLLO draws numbers, and
 * divides them (random_projector.py). The solver's workspace is not known. */
static uint64_t refresh_bytes(const struct run *run, const struct tensor *t)
{
    const uint64_t fp32 = dtype_size(DT_FP32);
    const uint64_t side = short_side(t), rank = rank_of(run, t);
    const uint64_t copy = update_size(run) < fp32 ? t->elems : 0;
    if (run->optimizer == OPT_APOLLO)
        return fp32 * (copy + 2 * rank * side);
    const uint64_t factors = t->elems + side * side + side;
    const uint64_t unused = projected_elems(run, t) + rank * rank;
    return fp32 * (copy + factors + max_u64(t->elems, unused));
}

static struct projected projected_of(const struct run *run,
                                     const struct tensor *t)
{
    return (struct projected){
        .whole = t->elems * update_size(run),
        .low = projected_elems(run, t) * update_size(run),
        .refresh = refresh_bytes(run, t),
    };
}

/* Bytes at the fullest of one update; `denom` and `update` are what variables
 * hold of the tensor before. */
static uint64_t fullest(const struct run *run, const struct projected *q,
                        uint64_t denom, uint64_t update)
{
    if (run->optimizer == OPT_GALORE8BIT) /* the weight, saved, beside its low
                                             stand-in and the gradient's */
        return max_u64(q->refresh, 2 * q->low + q->whole);
    /* the projected gradient, its denominator, their quotient; then the update
       as large as the matrix, twice */
    const uint64_t scaled = run->optimizer == OPT_APOLLO ? q->whole : 0;
    const uint64_t begins = denom + update + max_u64(q->refresh, 2 * q->low);
    const uint64_t ends = 3 * q->low + 2 * q->whole;
    return max_u64(max_u64(begins, ends), update + 3 * q->low + scaled);
}

uint64_t projected_alone(const struct run *run, const struct tensor *t)
{
    const struct projected q = projected_of(run, t);
    return fullest(run, &q, 0, 0);
}

uint64_t projected_after(const struct run *run,
                         const struct projected_loop *loop, uint64_t last)
{
    if (loop->count == 0)
        return 0;
    return max_u64(loop->most, fullest(run, &loop->first, last, last));
}

void projected_take(struct projected_loop *l, const struct run *run,
                    const struct tensor *t)
{
    const struct projected q = projected_of(run, t);
    const struct projected_loop one = {
        .first = q,
        .last = q,
        .most = fullest(run, &q, 0, 0),
        /* galore_torch/adamw8bit.py: p.grad = grad */
        .freed = run->optimizer == OPT_GALORE8BIT ? q.whole - q.low : 0,
        .count = 1,
    };
    projected_add(l, &one, run);
}

void projected_add(struct projected_loop *sum,
                   const struct projected_loop *next, const struct run *run)
{
    if (next->count == 0)
        return;
    if (sum->count == 0) {
        *sum = *next;
        return;
    }
    const uint64_t meet =
        fullest(run, &next->first, sum->last.low, sum->last.whole);
    const uint64_t here = max_u64(next->most, meet);
    sum->most = max_u64(sum->most, here - min_u64(here, sum->freed));
    sum->last = next->last;
    sum->freed += next->freed;
    sum->count += next->count;
}
