/*
 * Time of an optimizer's step on a rank's share: clipping, what the update reads
 * and writes, and the search for the codes of moments in 8 bits. Refuses to know
 * which blocks a rank has. [docs/method.md eq. step-time]
 */
#include "fold/time.h"

#include "fold/engine_private.h"
#include "fold/fold.h"

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

struct shard_of time_own_share(const struct run *run,
                               const struct block_states *b)
{
    if (run_sharding(run) != SHARDING_FLAT)
        return (struct shard_of){ (double)(b->own_elems - b->own_dropped),
                                  (double)b->own_moment_bytes
                                      + (double)b->paged_bytes,
                                  (double)b->own_coded_elems };
    const double dense = (double)max_u64(run->shard, 1);
    const double expert = (double)max_u64(run->expert_shard, 1);
    const double paged = (double)b->expert_paged_bytes;
    const double of_experts =
        (double)b->moment_bytes - (double)b->dense_moment_bytes + paged;
    const double of_others =
        (double)b->dense_moment_bytes + (double)b->paged_bytes - paged;
    return (struct shard_of){
        (double)b->dense_elems / dense + (double)b->expert_elems / expert,
        of_others / dense + of_experts / expert,
        (double)(b->own_coded_elems - b->expert_coded_elems) / dense
            + (double)b->expert_coded_elems / expert
    };
}

/* Reads and writes of an element beside its moments: gradient, master copy and
 * weight; each pass of an unfused one reads and writes again. bitsandbytes' are
 * one kernel. Nothing without an optimizer. */
static double step_bytes(const struct run *run, const struct shard_of *own)
{
    if (run->optimizer == OPT_NONE)
        return 0;
    const double elems = own->elems, moments = own->moment_bytes;
    const double master = run->prec.master == DT_NONE
                              ? 0
                              : 2 * (double)dtype_size(run->prec.master);
    const double once = elems
                            * ((double)dtype_size(run->prec.grad) + master
                               + 2 * (double)dtype_size(run->prec.param))
                        + 2 * moments;
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

double time_update(const struct clock *c, const struct shard_of *own)
{
    const struct run *run = c->run;
    const double clip =
        run->clip_grad ? 3 * own->elems * (double)dtype_size(run->prec.grad)
                       : 0;
    const double bytes = step_bytes(run, own);
    if (!(own->coded > 0))
        return listed_seconds(c, bytes + clip);
    const double share = fmin(1, own->coded / own->elems);
    const double each = run->optimizer == OPT_LION8BIT ? CODED_1_ELEMENTS_S
                                                       : CODED_2_ELEMENTS_S;
    const double search =
        own->coded / (run->gpu.sm_count * each * run->scale[SPEED_MEMORY]);
    return listed_seconds(c, bytes * (1 - share) + clip)
           + fmax(listed_seconds(c, bytes * share), search);
}
