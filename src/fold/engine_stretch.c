/*
 * The backward of a block whose gradients fill DeepSpeed's bucket, in stretches:
 * what the block has at its fullest between two gradients, with what ZeRO has
 * of gradients then. engine_bucket.c says what is in the bucket.
 * [docs/method.md eq. buckets]
 */
#include "fold/engine_private.h"

#include "base/banned.h"

/* `beside`: bytes of the bucket. */
static void consider(struct stretch *best, const struct extremum *e,
                     const struct bucket_fill *f, uint64_t beside)
{
    const uint64_t total = extremum_total(e) + beside;
    if (best->e != NULL && total <= best->total)
        return;
    best->e = e;
    best->fill = *f;
    best->total = total;
}

/* A gradient for which there is no room: what is there is reduced, and told. */
static void consider_turn(struct stretch *best, const struct stage *s,
                          uint32_t position, bool later,
                          const struct arrival *a, struct bucket_fill *f)
{
    struct bucket_turn t;
    t.after = *f;
    bucket_arrival(s, position, a, &t);
    consider(best, &a->at, &t.reduced, bucket_bytes(s, &t.reduced, later));
    consider(best, &a->at, &t.told, bucket_bytes(s, &t.told, later));
    *f = t.after;
}

static void find_fullest(struct stretch *best, const struct stage *s,
                         uint32_t position, bool later)
{
    const struct block_walk *w = &s->walk[stage_block(s, position)];
    const bool unpacks = stage_unpacks(s, position);
    const struct arrival *arrival = unpacks ? w->unpacked_arrival : w->arrival;
    const bool moves = bucket_moves(s);
    const struct bucket_fill *above = &s->fill[position + 1];
    uint64_t beside = bucket_bytes(s, above, later);
    best->e = NULL;
    if (bucket_calm(s, position)) {
        const bool goes = above->held != 0;
        const struct calm *c = unpacks ? w->unpacked_calm : w->calm;
        const uint64_t gone = min_u64(above->held, c[goes].gone);
        consider(best, &c[goes].e, above, beside - gone);
        best->fill.held -= gone;
        return;
    }
    struct bucket_fill f = *above;
    for (uint32_t k = 0; k < w->arrivals; k++) {
        const struct arrival *a = &arrival[k];
        consider(best, &a->until, &f, beside);
        if (bucket_overflows(s, &f, a)) {
            consider_turn(best, s, position, later, a, &f);
            beside = bucket_bytes(s, &f, later);
            continue;
        }
        if (!f.begun && a->elems != 0) {
            f.begun = true;
            beside = bucket_bytes(s, &f, later);
        }
        consider(best, &a->at, &f, beside);
        bucket_take(s, position, a, &f);
        if (f.in.large + f.low.large + f.held != 0 || moves)
            beside = bucket_bytes(s, &f, later);
    }
    consider(best, &arrival[w->arrivals].until, &f, beside);
}

/* Whether a position's is that of another one, but for what was reduced above. */
static bool is_of_row(const struct row_stretch *known, const struct stage *s,
                      uint32_t position, bool later)
{
    return known->known && known->later == later
           && bucket_alike(s, position, known->position)
           && stage_recomputed(s, position)
                  == stage_recomputed(s, known->position);
}

/* Beside it. */
static bool has_alike(const struct stage *s, uint32_t position)
{
    return s->fill[position].row != position
           || (position > 0 && bucket_alike(s, position, position - 1));
}

void stretch_fullest(struct stretch *best, const struct stage *s,
                     uint32_t position, bool later)
{
    struct row_stretch *known = s->row;
    const struct bucket_fill *above = &s->fill[position + 1];
    if (!has_alike(s, position)) {
        find_fullest(best, s, position, later);
        return;
    }
    if (!is_of_row(known, s, position, later)) {
        find_fullest(&known->of, s, position, later);
        known->known = true;
        known->later = later;
        known->position = position;
    }
    const struct bucket_fill *there = &s->fill[known->position + 1];
    *best = known->of;
    best->fill.gone += above->gone - there->gone;
    best->fill.reduced += above->reduced - there->reduced;
}

uint64_t stretch_keeps(const struct stage *s, uint32_t position,
                       const struct extremum *e)
{
    const struct block_walk *w = &s->walk[stage_block(s, position)];
    if (!stage_recomputed(s, position))
        return e->kept;
    const uint32_t first = stage_group_first(s, position);
    const uint64_t input = position == first && e->input ? w->input : 0;
    return e->kept - input + s->before[position].regrown
           - s->before[first].regrown;
}

/* Weights are told by their place, but for those that have gone since. */
uint64_t stretch_total(const struct stretch *x, const struct stage *s,
                       uint32_t position)
{
    return x->total - s->fill[position + 1].held - x->e->kept
           + stretch_keeps(s, position, x->e);
}

static uint64_t recomputed(const struct stage *s, uint32_t position, bool later)
{
    const struct bucket_fill *f = &s->fill[stage_group_last(s, position) + 1];
    return bucket_bytes(s, f, later) - f->held;
}

uint64_t moment_of_bucket(const struct stage *s, enum phase phase,
                          uint32_t position, bool later)
{
    if (phase == PHASE_RECOMPUTE)
        return recomputed(s, position, later);
    struct stretch x;
    stretch_fullest(&x, s, position, later);
    return stretch_total(&x, s, position);
}

uint64_t moment_of_bucket_most(const struct stage *s, uint32_t position)
{
    const struct block_walk *w = &s->walk[stage_block(s, position)];
    const struct calm *calm =
        stage_unpacks(s, position) ? w->unpacked_calm : w->calm;
    uint64_t regrown = 0;
    if (stage_recomputed(s, position))
        regrown = s->before[position].regrown
                  - s->before[stage_group_first(s, position)].regrown;
    uint64_t largest = 0;
    for (uint32_t b = 0; b < s->p->n_blocks; b++)
        largest = max_u64(largest, s->walk[b].arrived.largest);
    return extremum_total(&calm[false].e) + regrown + bucket_most(s, largest);
}
