/*
 * What each rank has of its partition after each reduction of DeepSpeed's
 * ZeRO-1 and -2, where that is not a matter of order: with round_robin_gradients
 * tensors are dealt to the ranks in turn, without contiguous_gradients those of
 * a rank stay where they were made. Read in DeepSpeed 0.19.8 runtime/zero/
 * stage_1_and_2.py (_round_robin_reorder, reduce_ipg_grads,
 * buffered_reduce_fallback) and held against it (tests/oracle/zero.py).
 * [docs/method.md eq. buckets]
 */
#include "fold/engine_private.h"

#include "base/banned.h"

bool ledger_needed(const struct run *run)
{
    return run_deals_tensors(run) || (run_is_loose(run) && run->zero < 3);
}

bool ledger_matters(const struct stage *s)
{
    return s->loose || s->sum.tensors > s->run->shard;
}

bool ledger_room(struct memory_fold *f, size_t positions)
{
    const struct program *p = f->p;
    uint32_t most = 0;
    for (uint32_t i = 0; i < p->n_blocks; i++)
        most =
            most > p->block[i].tensor_count ? most : p->block[i].tensor_count;
    struct zero_ledger *l = ARENA_NEW(f->a, struct zero_ledger, 1);
    if (l == NULL)
        return false;
    *l = (struct zero_ledger){ .room = positions * most };
    l->place = ARENA_ROOM(f->a, struct zero_place, l->room);
    l->made = ARENA_ROOM(f->a, struct zero_made, l->room + 2);
    l->waiting[0] = ARENA_ROOM(f->a, size_t, l->room);
    l->waiting[1] = ARENA_ROOM(f->a, size_t, l->room);
    f->ledger = l;
    return !f->a->failed;
}

/* ---- where tensors lie ---- */

void ledger_begin(struct stage *s)
{
    struct zero_ledger *l = s->ledger;
    l->places = l->n_waiting[0] = l->n_waiting[1] = 0;
    l->elems = l->large = 0;
}

void ledger_add(struct stage *s, uint64_t elems)
{
    struct zero_ledger *l = s->ledger;
    const struct zero_place *last =
        l->places == 0 ? NULL : &l->place[l->places - 1];
    const uint64_t at = last == NULL ? 0 : last->at + last->elems;
    l->place[l->places++] = (struct zero_place){ at, at, elems };
}

/* Every N-th tensor one after another, of the first, the second, ...: lists that
 * are cut without regard to how long each is. */
void ledger_deal(struct stage *s)
{
    struct zero_ledger *l = s->ledger;
    const uint64_t ranks = s->run->shard;
    uint64_t flat = 0;
    if (!run_deals_tensors(s->run))
        return;
    for (size_t first = 0; first < ranks && first < l->places; first++) {
        for (size_t i = first; i < l->places; i += (size_t)ranks) {
            l->place[i].flat = flat;
            flat += l->place[i].elems;
        }
    }
}

static size_t place_of(const struct zero_ledger *l, uint64_t at)
{
    size_t low = 0, high = l->places;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (l->place[middle].at <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

uint64_t ledger_flat(const struct stage *s, uint64_t at)
{
    return s->ledger->place[place_of(s->ledger, at)].flat;
}

/* ---- what each rank has ---- */

void ledger_take(struct stage *s, bool low, uint64_t at)
{
    struct zero_ledger *l = s->ledger;
    l->waiting[low][l->n_waiting[low]++] = place_of(l, at);
}

/* Elements of a tensor in a rank's partition. */
static uint64_t slice_of(const struct zero_place *t, uint64_t rank,
                         uint64_t share)
{
    const uint64_t from = max_u64(t->flat, rank * share);
    return min_u64(t->flat + t->elems, (rank + 1) * share) - from;
}

static void reduce_tensor(struct stage *s, const struct zero_place *t)
{
    const bool large = t->elems > s->run->reduce_bucket;
    const uint64_t last = (t->flat + t->elems - 1) / s->share;
    for (uint64_t r = t->flat / s->share; r <= last; r++) {
        struct zero_part *part = &s->rank[r];
        part->reduced += t->elems;
        part->latest += t->elems;
        part->latest_slice =
            max_u64(part->latest_slice, slice_of(t, r, s->share));
        part->reduced_large += large ? t->elems : 0;
    }
    s->ledger->elems += t->elems;
    s->ledger->large += large ? t->elems : 0;
}

/* A rank's own of the buckets before, and its slice of one in this one, cast to
 * be added in fp32 (_add_to_grad_partition_buffer). */
static void note_reducing(const struct stage *s, const struct zero_part *r,
                          struct zero_made *m)
{
    const uint64_t arriving = zero_arriving_bytes(s->run);
    const uint64_t before = r->reduced - r->latest;
    const uint64_t slice = s->run->prec.reduce != DT_FP32 ? r->latest_slice : 0;
    if (before * arriving + slice * FP32
        <= m->before * arriving + m->slice * FP32)
        return;
    m->before = before;
    m->slice = slice;
}

/* Gradients stay where they were made; messages beside the backward leave those
 * of other ranks until the next one (previous_reduced_grads). */
static void note_loose(const struct stage *s, const struct zero_part *r,
                       uint64_t latest, struct zero_made *m)
{
    const uint64_t others = s->run->overlap_comm ? latest - r->latest : 0;
    m->partition = max_u64(m->partition, r->reduced);
    m->told_partition = max_u64(m->told_partition, r->reduced + others);
    m->again = max_u64(m->again, r->whole + r->reduced);
    m->told_kept = max_u64(m->told_kept, r->whole + r->reduced + others);
}

/* One buffer for the partition; of what is larger than the bucket stage 1 keeps
 * the others' where it was made. */
static void note_contiguous(const struct stage *s, const struct zero_part *r,
                            uint64_t alone, struct zero_made *m)
{
    const uint64_t kept =
        s->run->zero == 1 ? s->ledger->large - r->reduced_large : 0;
    const uint64_t leaves = r->latest == 0 ? min_u64(alone, kept) : 0;
    const bool there =
        r->reduced != 0
        && !(s->run->zero == 1 && engine_optimizer_offloaded(s->run));
    const uint64_t whole = there ? r->whole : 0;
    if (whole + kept > m->partition + m->kept) {
        m->partition = whole;
        m->kept = kept;
    }
    if (whole + kept - leaves > m->told_partition + m->told_kept) {
        m->told_partition = whole;
        m->told_kept = kept - leaves;
    }
}

static void note_ranks(const struct stage *s, uint64_t latest, uint64_t alone,
                       struct zero_made *m)
{
    const bool first = s->run->zero_rank == ZERO_RANK_FIRST;
    const uint64_t ranks = first ? 1 : s->run->shard;
    for (uint64_t r = 0; r < ranks; r++) {
        const struct zero_part *part = &s->rank[r];
        if (s->loose && run_sums_in_fp32(s->run))
            note_reducing(s, part, m);
        if (s->loose)
            note_loose(s, part, latest, m);
        else
            note_contiguous(s, part, alone, m);
    }
}

/* Stage 2's partitions are all there is of the ranks: the largest so far, or one
 * of those that begin now. */
static void note_begun(const struct stage *s, bool low, struct zero_made *m)
{
    const struct zero_ledger *l = s->ledger;
    const bool first = s->run->zero_rank == ZERO_RANK_FIRST;
    for (size_t i = 0; i < l->n_waiting[low]; i++) {
        const struct zero_place *t = &l->place[l->waiting[low][i]];
        const uint64_t last = (t->flat + t->elems - 1) / s->share;
        for (uint64_t r = t->flat / s->share; r <= last; r++)
            if (!first || r == 0)
                note_contiguous(s, &s->rank[r], 0, m);
    }
}

void ledger_reduce(struct stage *s, bool low, uint64_t nth)
{
    struct zero_ledger *l = s->ledger;
    struct zero_made *m = &l->made[nth];
    const uint64_t before = l->elems, large = l->large;
    const bool alone = !s->loose && s->run->zero == 2;
    *m = alone && nth > 0 ? l->made[nth - 1] : (struct zero_made){ 0 };
    for (uint64_t r = 0; r < s->run->shard && !alone; r++)
        s->rank[r].latest = s->rank[r].latest_slice = 0;
    for (size_t i = 0; i < l->n_waiting[low]; i++)
        reduce_tensor(s, &l->place[l->waiting[low][i]]);
    if (alone)
        note_begun(s, low, m);
    l->n_waiting[low] = 0;
    if (alone)
        return;
    if (s->loose && s->run->zero == 1)
        m->kept = m->again_kept = l->elems; /* nothing clears them */
    else
        note_ranks(s, l->elems - before, l->large - large, m);
    if (s->loose && s->run->zero == 2) {
        m->kept = m->told_partition - m->partition;
        m->again_kept = m->told_kept - m->again;
    }
}
