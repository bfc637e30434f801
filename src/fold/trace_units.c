/*
 * What the allocator sees of a unit of FSDP version 2 and no moment has: the
 * shard cast to be gathered, the unit's parameters gone before the next one's
 * come. [docs/method.md eq. reserved]
 */
#include "fold/trace_private.h"

#include "base/banned.h"

/* Shards of another type than the layers' are cast into one buffer, which goes
 * when the rank's part of the output is filled (_fsdp_collectives.py,
 * _get_param_all_gather_inputs). No shard on the CPU is. */
static bool casts_shards(const struct run *run)
{
    return run->offload_params == OFFLOAD_NONE
           && dtype_size(run->prec.param) != dtype_size(run_layer_dtype(run));
}

static void cast_in(struct tracer *r, uint64_t whole, bool there)
{
    if (whole == 0 || !casts_shards(r->s->run))
        return;
    hold_id cast = tracer_birth(r, COMP_TEMPORARY, "a shard, cast",
                                div_up(whole, r->s->run->shard), STREAM_GATHER);
    hold_id out = there ? NO_HOLD
                        : tracer_birth(r, COMP_TEMPORARY, "all-gather output",
                                       whole, STREAM_GATHER);
    tracer_death(r, &cast);
    tracer_death(r, &out);
}

/* Between micro-batches nothing is gathered, nor on its way. */
static void let_go(struct tracer *r)
{
    static const enum term passing[] = { TERM_GATHERED, TERM_PREFETCHED,
                                         TERM_REDUCE_TMP, TERM_WGRAD_TMP };
    for (size_t i = 0; i < sizeof passing / sizeof passing[0]; i++)
        levels_drop(r, passing[i]);
}

void units_gather(struct tracer *r)
{
    const struct stage *s = r->s;
    const struct run *run = s->run;
    if (r->sim == NULL || run->engine != ENGINE_FSDP2 || run->zero == 0
        || (r->later && fsdp_reduces_at_last(run)))
        return;
    if (r->position == 0) {
        if (run->pp == 1)
            let_go(r);
        cast_in(r, fsdp_root_bytes(s), false);
    }
    cast_in(r, fsdp_unit_bytes(s, r->position), false);
}

void units_prefetched(struct tracer *r)
{
    const struct run *run = r->s->run;
    if (r->sim != NULL && run->engine == ENGINE_FSDP2 && run->zero != 0
        && run->reshard && r->position > 0)
        cast_in(r, fsdp_unit_bytes(r->s, r->position - 1), true);
}

void units_reduced(struct tracer *r)
{
    const struct run *run = r->s->run;
    if (r->sim != NULL && run->engine == ENGINE_FSDP2 && run->zero != 0
        && !fsdp_reduces_at_last(run))
        levels_copied_in(r);
}

bool units_root(struct tracer *r)
{
    const struct run *run = r->s->run;
    if (r->sim == NULL || run->engine != ENGINE_FSDP2 || run->zero == 0
        || fsdp_defers(run))
        return false;
    levels_after(r, PHASE_REDUCE);
    units_reduced(r);
    return true;
}
