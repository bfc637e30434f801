/*
 * What the caching allocator reserves, told from moments, where nobody simulates
 * it: memory that cannot take another's place is there at its own fullest, not
 * at the fullest of all. Owns which stream an allocation is made on. Knows no
 * block of the allocator. [docs/method.md eq. reserved]
 */
#include "data/constants.h"
#include "fold/stage.h"

#include <string.h>

#include "base/banned.h"

/* FSDP version 2 gathers on a stream of its own (foreach_all_gather in the
 * all_gather_copy_in_stream) and copies out on the compute stream; its sharded
 * gradients are views of the reduce-scatter's output, made on the reduce
 * stream (foreach_reduce). Version 1 unshards on one stream and reduces on
 * another (_runtime_utils.py). DeepSpeed gathers on its all-gather stream and
 * reduces on the reduction stream where it overlaps. Megatron's buffers are
 * made once, DDP's too. */
enum stream engine_stream(const struct run *run, enum term term,
                          const char *what)
{
    const bool gathered = term == TERM_PREFETCHED || term == TERM_GATHERED;
    const bool shards = term == TERM_GRAD_SHARDS;
    const bool reduced =
        term == TERM_REDUCE_TMP
        && (strcmp(what, REDUCED_LABEL) == 0 || strcmp(what, RECAST_LABEL) == 0
            || strcmp(what, ALL_REDUCED_LABEL) == 0);
    switch (run->engine) {
    case ENGINE_FSDP2:
        return term == TERM_PREFETCHED ? STREAM_GATHER
               : shards || reduced
                       || (term == TERM_STEP_TMP && run->optimizer_in_backward)
                   ? STREAM_REDUCE
                   : STREAM_COMPUTE;
    case ENGINE_FSDP:
        return gathered                            ? STREAM_GATHER
               : shards || term == TERM_REDUCE_TMP ? STREAM_REDUCE
                                                   : STREAM_COMPUTE;
    case ENGINE_DEEPSPEED:
        if (run->zero == 3 && gathered)
            return STREAM_GATHER;
        return run->overlap_comm
                       && (term == TERM_REDUCE_TMP
                           || (shards && run->zero < 3
                               && zero_fills_bucket(run)))
                   ? STREAM_REDUCE
                   : STREAM_COMPUTE;
    case ENGINE_DDP:
    case ENGINE_MEGATRON:
    case ENGINE_MEGATRON_FSDP:
    case ENGINE_COUNT: break;
    }
    return STREAM_COMPUTE;
}

/* ---- pools ---- */

/* What the optimizer steps is one buffer, and so is all that its step and the
 * buckets of gradients make: no piece of a layer's size holds them. */
static uint64_t flat_bytes(const struct stage *s, const struct moment *m)
{
    const struct run *run = s->run;
    const bool flat =
        (run->engine == ENGINE_DEEPSPEED || run->engine == ENGINE_MEGATRON)
        && run->zero != 0;
    return flat ? m->bytes[TERM_STEP_TMP] + m->bytes[TERM_BUCKETS] : 0;
}

/* What FSDP version 1 has released and may not use yet is in its pools, too. */
static void add_waits(struct moment *m, const struct stage *s)
{
    struct put p = { .m = m, .only = COMP_COUNT };
    if (m->phase == PHASE_FORWARD || m->phase == PHASE_LOSS)
        engine_waits(&p, s, m->position, false);
    else if (m->phase == PHASE_BACKWARD)
        engine_waits(&p, s, m->position, true);
}

static void streams_of(struct pools *x, const struct stage *s,
                       const struct moment *m)
{
    static const enum term moving[] = { TERM_GATHERED, TERM_PREFETCHED,
                                        TERM_GRAD_SHARDS, TERM_REDUCE_TMP };
    uint64_t rest = m->total;
    *x = (struct pools){ .flat = flat_bytes(s, m) };
    for (size_t i = 0; i < sizeof moving / sizeof moving[0]; i++) {
        const uint64_t bytes = m->bytes[moving[i]];
        const enum stream at =
            bytes == 0 ? STREAM_COMPUTE : engine_stream(s->run, moving[i], "");
        if (at == STREAM_COMPUTE)
            continue;
        x->stream[at] += bytes;
        rest -= bytes;
    }
    x->stream[STREAM_COMPUTE] = rest - x->flat;
}

void pools_of(struct pools *x, const struct stage *s, const struct moment *m)
{
    if (s->run->engine != ENGINE_FSDP) {
        streams_of(x, s, m);
        return;
    }
    struct moment all = *m;
    add_waits(&all, s);
    streams_of(x, s, &all);
}

void pools_keep(struct pools *most, const struct pools *x)
{
    for (unsigned i = 0; i < STREAM_COUNT; i++)
        most->stream[i] = max_u64(most->stream[i], x->stream[i]);
    most->flat = max_u64(most->flat, x->flat);
}

/* ---- what is reserved ---- */

/* Freed before the first step, in pieces as large as weights. [trace_start.c] */
static uint64_t left_by_start(const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t all = s->sum.elems * dtype_size(run->prec.param);
    const bool here = run_flattens(run) && run->zero_flatten == FLATTEN_GPU
                      && 2 * all <= run->capacity_bytes;
    return here ? all : 0;
}

/* States lie still; what comes and goes does not come back to where it was. */
uint64_t reserve_with_gaps(uint64_t rest, uint64_t all, uint64_t permille)
{
    const uint64_t moving = (all - rest) / 1000 * permille;
    return div_up(rest + moving, MIB(2)) * MIB(2);
}

struct reserve pools_reserve(const struct pools *x, const struct stage *s,
                             uint64_t peak)
{
    const uint64_t rest = s->rest.total;
    const uint64_t least = rest - flat_bytes(s, &s->rest) + left_by_start(s);
    const uint64_t sum = max_u64(x->stream[STREAM_COMPUTE], least)
                         + x->stream[STREAM_GATHER] + x->stream[STREAM_REDUCE]
                         + x->flat;
    const uint64_t pools = max_u64(sum, peak);
    return (struct reserve){
        .rest = rest,
        .pools = pools,
        .permille = RESERVED_OF_POOLS_PERMILLE,
        .about = reserve_with_gaps(rest, pools, RESERVED_OF_POOLS_PERMILLE),
        .least = reserve_with_gaps(rest, peak, RESERVED_AT_LEAST_PERMILLE)
    };
}

uint64_t reserve_on(const struct reserve *r, uint64_t room)
{
    return r->about > room && r->least <= room ? room : r->about;
}
