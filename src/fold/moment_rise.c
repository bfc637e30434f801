/*
 * How much more there is at the last of a row of equal layers than at its first,
 * and in a checkpointed layer's backward than while it is made again: which is
 * the fuller one is known before either is looked at. Owns what of a moment
 * follows from the position where an engine shards nothing.
 * [docs/method.md eq. peak]
 */
#include "fold/stage.h"

#include "base/banned.h"

bool moment_rises(const struct stage *s)
{
    const struct run *run = s->run;
    return run->engine == ENGINE_MEGATRON && s->group == 1 && !s->hands_far
           && s->n_frames == 0 && s->waiting == 0 && s->away == NULL
           && s->reload == NULL && !stage_offloads(s) && !run->keep_outputs
           && !run->ep_overlap;
}

/* The gradient that a backward begins with, where it is one of those that
 * dispatchers name (engine_megatron.c, named_above). */
static uint64_t begins(const struct stage *s, uint32_t position)
{
    const uint32_t next = position + 1;
    return next < s->n && stage_recomputed(s, next)
                   && s->p->block[stage_block(s, next)].names_graph
               ? s->walk[stage_block(s, next)].input
               : 0;
}

/* Of sums before two positions. */
static int64_t more(uint64_t first, uint64_t last)
{
    return (int64_t)(last - first);
}

int64_t moment_rise(const struct stage *s, const struct instant *when,
                    uint32_t last)
{
    const uint32_t first = when->position;
    const struct prefix *a = &s->before[first], *b = &s->before[last];
    const int64_t stash = more(a->stash, b->stash);
    const int64_t named = more(a[1].named, b[1].named);
    const int64_t kept =
        more(a->kept_layers + a->checkpoints, b->kept_layers + b->checkpoints);
    if (when->phase == PHASE_FORWARD)
        return kept + more(a->lingers, b->lingers) - (when->later ? named : 0);
    const int64_t back = more(begins(s, last), begins(s, first)) - named;
    if (when->slot == SLOT_WEIGHT)
        return back + stash;
    /* equal blocks: what one leaves above is what it leaves below */
    return back + kept - (when->slot == SLOT_INPUT ? stash : 0);
}

int64_t moment_rise_back(const struct stage *s, const struct instant *when)
{
    const uint32_t i = when->position;
    const struct block_walk *w = &s->walk[stage_block(s, i)];
    const struct extremum *back = moment_back_of(s, when);
    const uint64_t frame = s->run->recompute_reentrant ? w->output : 0;
    const uint64_t there = frame + stretch_keeps(s, i, back) + back->tmp
                           + back->wgrad + stage_shared_back(s, i);
    const uint64_t again = extremum_total(moment_again_of(s, i)) - w->input
                           + stage_lead(s, i) + s->shared;
    return more(again, there);
}
