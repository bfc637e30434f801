/*
 * Time of an optimizer's step on a rank's share: an engine's passes over
 * gradients and weights, what the update reads and writes, the search for the
 * codes of moments in 8 bits, and the host that starts all of it. Refuses to know
 * which blocks a rank has. [docs/method.md eq. step-time, eq. optimizer-passes]
 */
#include "fold/time.h"

#include "fold/engine_private.h"
#include "fold/fold.h"
#include "fold/time_private.h"

#include <math.h>

#include "base/banned.h"

/* Bytes a second that a multiprocessor moves at most of an optimizer's and of
 * clipping's, which go through lists of tensors: an H100 2.26 (16 bits) to 2.62
 * TB/s (32) where other kernels have 3.0 (tests/measured/moves.csv). */
#define OPTIMIZER_BYTES_S 18e9
/* Of the time of AdamW in one kernel that it takes operation by operation: on an
 * H100 2.2 and 2.5 (a tensor at a time, 16 and 32 bits), 2.7 and 2.8 (lists of
 * them) [tests/measured/moves.csv; docs/method.md eq. step-time]. */
#define UNFUSED_PASSES 2.5
/* Elements a second of a multiprocessor in bitsandbytes' update of moments in 8
 * bits: a block for 256 of them, a thread each, loads the codes' tables, reduces
 * the largest of each moment and searches its code in 7 steps that wait for each
 * other (csrc/kernels.cu @95f9af3, kOptimizerStatic8bit1StateBlockwise,
 * ...2State...). An H100's kernels: 6.92e9 elements of OLMoE under Lion in 112.4
 * ms, 1.41e9 of Pythia 1.4B under Adam in 40.8 (rows of oracle-gpu-drawn), 0.49
 * and 0.56 TB/s. */
#define CODED_1_ELEMENTS_S 466e6
#define CODED_2_ELEMENTS_S 263e6

/* Of flat buffers a rank has as many of the tensors as of the elements. */
static double own_tensors(const struct run *run, double elems,
                          const struct block_states *b)
{
    const double whole = (double)(b->elems - b->dropped);
    const double tensors = (double)b->tensors;
    return run_sharding(run) == SHARDING_FLAT && whole > 0
               ? tensors * elems / whole
               : tensors;
}

static struct shard_of elements_of(const struct run *run,
                                   const struct block_states *b)
{
    if (run_sharding(run) != SHARDING_FLAT)
        return (struct shard_of){ .elems =
                                      (double)(b->own_elems - b->own_dropped),
                                  .moment_bytes = (double)b->own_moment_bytes
                                                  + (double)b->paged_bytes,
                                  .coded = (double)b->own_coded_elems };
    const double dense = (double)max_u64(run->shard, 1);
    const double expert = (double)max_u64(run->expert_shard, 1);
    const double paged = (double)b->expert_paged_bytes;
    const double of_experts =
        (double)b->moment_bytes - (double)b->dense_moment_bytes + paged;
    const double of_others =
        (double)b->dense_moment_bytes + (double)b->paged_bytes - paged;
    return (struct shard_of){
        .elems =
            (double)b->dense_elems / dense + (double)b->expert_elems / expert,
        .moment_bytes = of_others / dense + of_experts / expert,
        .coded = (double)(b->own_coded_elems - b->expert_coded_elems) / dense
                 + (double)b->expert_coded_elems / expert
    };
}

struct shard_of time_own_share(const struct run *run,
                               const struct block_states *b)
{
    struct shard_of own = elements_of(run, b);
    own.tensors = own_tensors(run, own.elems, b);
    own.whole = (double)(b->elems - b->dropped);
    own.whole_tensors = (double)b->tensors;
    return own;
}

/* ---- the host ---- */

/* The host starts a tensor's kernels when it has what the last one's made: the
 * first one's start is bare, and of the others what the GPU does not take. */
static double bare_starts(const struct clock *c, double bytes, double kernels)
{
    const double start = HOST_FORWARD_S * c->run->scale[SPEED_HOST];
    return fmax(start, kernels * start - time_bytes(c, bytes));
}

/* Of a tensor on average over the ranks: of flat buffers one has some tensors,
 * else a piece of each. */
static double waited_of(const struct clock *c, const struct optimizer_pass *p,
                        const struct tensor *t)
{
    const struct run *run = c->run;
    const double elems = (double)t->elems;
    const double ranks = (double)max_u64(
        tensor_is_expert(t) ? run->expert_shard : run->shard, 1);
    if (p->whole > 0)
        return bare_starts(c, p->whole * elems, p->kernels);
    switch (run_sharding(run)) {
    case SHARDING_NONE: break;
    case SHARDING_FLAT:
        return bare_starts(c, p->own * elems, p->kernels) / ranks;
    case SHARDING_TENSOR:
    case SHARDING_ROWS:
        return bare_starts(c, p->own * (double)states_own_elems(run, t),
                           p->kernels);
    }
    return bare_starts(c, p->own * elems, p->kernels);
}

double time_waited(const struct clock *c, const struct optimizer_passes *x,
                   const struct block *b, bool counts_tied)
{
    double sum = 0;
    for (unsigned i = 0; i < x->n; i++) {
        const struct optimizer_pass *p = &x->at[i];
        if (!p->waits)
            continue;
        for (tensor_id id = b->weights; id != TENSOR_NONE;
             id = c->p->tensor[id].next) {
            const struct tensor *t = &c->p->tensor[id];
            if (t->role == ROLE_PARAM && op_grads(t) && !t->again
                && (counts_tied || !t->tied))
                sum += waited_of(c, p, t);
        }
    }
    return sum;
}

/* ---- the GPU ---- */

/* The update's reads and writes of an element; each pass of an unfused one reads
 * and writes again. bitsandbytes' are one kernel. Nothing without an
 * optimizer. */
static double update_bytes(const struct run *run,
                           const struct optimizer_passes *x,
                           const struct shard_of *own)
{
    if (run->optimizer == OPT_NONE)
        return 0;
    const double once = own->elems * x->update + 2 * own->moment_bytes;
    const bool fused = run->optimizer_impl == OPTIMPL_FUSED || own->coded > 0
                       || run_pages(run);
    return (fused ? 1 : UNFUSED_PASSES) * once;
}

static double listed_seconds(const struct clock *c, double bytes)
{
    const double rate =
        c->run->gpu.sm_count * OPTIMIZER_BYTES_S * c->run->scale[SPEED_MEMORY];
    return fmax(time_bytes(c, bytes), bytes / rate);
}

static double pass_bytes(const struct optimizer_pass *p,
                         const struct shard_of *own)
{
    return p->own * own->elems + p->whole * own->whole;
}

static double update_seconds(const struct clock *c,
                             const struct optimizer_passes *x,
                             const struct shard_of *own)
{
    const struct run *run = c->run;
    const double bytes = update_bytes(run, x, own);
    if (!(own->coded > 0))
        return listed_seconds(c, bytes);
    const double share = fmin(1, own->coded / own->elems);
    const double each = run->optimizer == OPT_LION8BIT ? CODED_1_ELEMENTS_S
                                                       : CODED_2_ELEMENTS_S;
    const double search =
        own->coded / (run->gpu.sm_count * each * run->scale[SPEED_MEMORY]);
    return listed_seconds(c, bytes * (1 - share))
           + fmax(listed_seconds(c, bytes * share), search);
}

double time_optimizer_pass(const struct clock *c,
                           const struct optimizer_passes *x,
                           const struct optimizer_pass *pass,
                           const struct shard_of *own)
{
    if (pass == NULL)
        return update_seconds(c, x, own);
    const double bytes = pass_bytes(pass, own);
    return pass->listed ? listed_seconds(c, bytes) : time_bytes(c, bytes);
}

/* Kernels that nothing waits for are started ahead of the GPU, if they take it as
 * long. The host is not taken to be ahead when it begins: transformers' Trainer
 * asks after each backward whether the loss is a number (trainer.py,
 * logging_nan_inf_filter), DeepSpeed and Megatron whether gradients
 * overflowed. */
struct update_time time_update(const struct clock *c,
                               const struct optimizer_passes *x,
                               const struct shard_of *own)
{
    const double start = HOST_FORWARD_S * c->run->scale[SPEED_HOST];
    double ahead = update_seconds(c, x, own), waited = 0;
    double kernels = x->update_kernels * own->tensors;
    for (unsigned i = 0; i < x->n; i++) {
        const struct optimizer_pass *p = &x->at[i];
        const double seconds = time_optimizer_pass(c, x, p, own);
        *(p->waits ? &waited : &ahead) += seconds;
        if (!p->waits)
            kernels +=
                p->kernels * (p->own > 0 ? own->tensors : own->whole_tensors);
    }
    return (struct update_time){ .gpu = ahead + waited,
                                 .host = fmax(0, kernels * start - ahead)
                                         + own->waited_s + x->waits * start,
                                 .kernels = kernels,
                                 .ahead = ahead };
}
