/*
 * Looks at every moment of a stage's step that can be the fullest: the ends of
 * rows of equal layers, and where an engine's terms bend between them.
 * [docs/method.md eq. peak]
 */
#include "fold/glances.h"
#include "fold/overlap.h"

#include "data/constants.h"

#include "base/banned.h"

/* Gradients, of which frozen weights have none, fill a bucket. */
static bool gradients_reach(const struct stage *s, uint32_t i, uint64_t elems)
{
    const uint64_t all = s->before[s->n].elems;
    const uint64_t low = all - s->before[i + 2].elems;
    const uint64_t high = all - s->before[i - 1].elems;
    return low <= elems && elems <= high;
}

static bool engine_bends(const struct run *run)
{
    return run->engine == ENGINE_DEEPSPEED
           || run->engine == ENGINE_MEGATRON_FSDP;
}

/* What a bucket adds is more where it is reduced; in ZeRO-2 some of that stays,
 * and those below have more, too. */
static bool bucket_bends_at(const struct stage *s, uint32_t i)
{
    if (s->run->engine != ENGINE_DEEPSPEED)
        return false;
    if (s->run->offload_optimizer == OFFLOAD_NVME
        && gradients_reach(s, i, s->run->reduce_bucket))
        return true; /* from there on they are on their way to disk */
    if (s->fill == NULL)
        return false;
    return s->run->zero == 3 ? !bucket_calm(s, i)
                             : s->fill[i - 1].reduced != s->fill[i + 2].reduced;
}

static bool alike(const struct stage *s, uint32_t i, uint32_t k)
{
    return stage_block(s, k) == stage_block(s, i)
           && stage_recomputed(s, k) == stage_recomputed(s, i)
           && (s->chunks == 1 || stage_chunk(s, k) == stage_chunk(s, i));
}

/* Positions one after another that differ in nothing. From `even` to before
 * `bend` every term changes by the same amount from one to the next, but for an
 * engine's that bend: the fullest moment is beside these, or at a bend. */
struct row {
    uint32_t first, end;
    uint32_t even, bend;
    /* What an engine gathers, or has of gradients, comes, goes or bends where
       so many parameters lie below: the first so many in forward, too. */
    uint64_t bends[3];
    unsigned n_bends, n_forward;
    bool rises; /* moment_rise() tells which of its ends is fuller */
};

/* Whether the sums before a position tell all that changes from one of a row
 * to the next: its engine gathers and reduces nothing beside it, and nothing
 * begins or ends inside. The last of a row may have one input more that a
 * dispatcher names (engine_megatron.c), which is an end. */
static bool sums_tell(const struct stage *s)
{
    const struct run *run = s->run;
    return s->group == 1 && !run_torch_pipelines(run)
           && (run->engine == ENGINE_DDP || run->engine == ENGINE_MEGATRON)
           && s->n_frames == 0 && !s->hands_far;
}

/* Forward has as much ahead from its first position on, and each of the row's
 * even positions. */
static void zero3_bends(struct row *row, const struct stage *s)
{
    const uint64_t all = s->before[s->n].all_elems;
    const uint64_t most = min_u64(zero3_most(s, row->even), all);
    row->bends[0] = s->released;
    row->bends[1] = all - most;
    row->bends[2] = most;
    row->n_bends = 3;
    row->n_forward = 2;
}

static void row_bends(struct row *row, const struct stage *s)
{
    if (run_zero_is(s->run, 3))
        zero3_bends(row, s);
    if (s->run->engine != ENGINE_MEGATRON_FSDP)
        return;
    const uint64_t all = s->before[s->n].all_elems;
    if (all < MEGATRON_FSDP_QUEUE_ELEMS)
        return;
    row->bends[0] = all - MEGATRON_FSDP_QUEUE_ELEMS;
    row->n_bends = row->n_forward = 1;
}

/* Else what is alike has equal neighbours on either side, a checkpoint's layers
 * each. A checkpoint of several layers has bends of all of them. */
static struct row row_from(const struct stage *s, uint32_t first)
{
    struct row row = { .first = first, .end = first + 1 };
    if (s->recomputed == 0 && s->chunks == 1)
        row.end = stage_row_end(s, first);
    while (row.end < s->n && alike(s, first, row.end))
        row.end++;
    const bool tell = sums_tell(s);
    const uint64_t reach = tell ? 1 : 2 * s->group;
    const uint64_t edge = tell ? 0 : reach + 1;
    row.rises = tell && row.end > first + 1 && moment_rises(s);
    if (row.end <= reach || s->n <= edge || stage_offloads(s)
        || (s->group > 1 && engine_bends(s->run)))
        return row;
    row.even = (uint32_t)max_u64(first + reach, edge);
    row.bend = (uint32_t)min_u64(row.end - reach, s->n - edge);
    if (row.even < row.bend)
        row_bends(&row, s);
    return row;
}

static bool even(const struct row *row, uint32_t i)
{
    return row->even <= i && i < row->bend;
}

/* Of a position that is even: its neighbours are, too. */
static bool bends_at(const struct stage *s, const struct row *row, uint32_t i,
                     bool forward)
{
    const unsigned n = forward ? row->n_forward : row->n_bends;
    const uint64_t low = s->before[i - 1].all_elems;
    const uint64_t high = s->before[i + 2].all_elems;
    for (unsigned k = 0; k < n; k++)
        if (low <= row->bends[k] && row->bends[k] <= high)
            return true;
    return false;
}

/* From a position of a row on, the first that is not even, or where something
 * bends: sums grow from one to the next. */
static uint32_t interior_end(const struct stage *s, const struct row *row,
                             uint32_t from)
{
    const struct prefix *before = s->before;
    if (!even(row, from))
        return from;
    uint32_t end = row->bend;
    for (unsigned k = 0; k < row->n_bends; k++) {
        const uint64_t at = row->bends[k];
        uint32_t low = from, high = end; /* the first that reaches it */
        while (low < high) {
            const uint32_t middle = low + (high - low) / 2;
            if (before[middle + 2].all_elems < at)
                low = middle + 1;
            else
                high = middle;
        }
        if (low < end && before[low - 1].all_elems <= at)
            end = low;
    }
    return end;
}

/* `x`: pools_of() it. */
static void keep_pools(struct peak *best, const struct moment *m,
                       const struct pools *x)
{
    pools_keep(&best->pools, x);
    if (m->total > best->moment.total)
        best->moment = *m;
}

static void keep_fuller(struct peak *best, const struct stage *s,
                        const struct moment *m)
{
    struct pools x;
    pools_of(&x, s, m);
    keep_pools(best, m, &x);
}

static bool runs_back(enum phase phase)
{
    return phase == PHASE_BACKWARD || phase == PHASE_RECOMPUTE;
}

/* Of a checkpointed layer's backward and its second forward the one that is less,
 * or of which the other, first, is as full: no need to look. */
static bool is_beside_fuller(const struct peak *best, const struct stage *s,
                             const struct instant *when)
{
    if (!best->rises || !runs_back(when->phase) || when->slot == SLOT_WEIGHT
        || !stage_recomputed(s, when->position))
        return false;
    return (moment_rise_back(s, when) > 0) == (when->phase == PHASE_RECOMPUTE);
}

/* A moment, in `room` or where first ones are; where a later micro-batch but
 * adds to what the first one has, from that. Clears ok when a sum does not fit.
 */
INLINE const struct moment *find_moment(struct moment *room, struct peak *best,
                                        const struct stage *s,
                                        const struct instant *when, bool *ok)
{
    struct moment *first =
        &best->first[when->phase == PHASE_RECOMPUTE][when->slot];
    if (when->later && first->phase == when->phase
        && first->position == when->position) {
        *room = *first;
        *ok = moment_make_later(room, s, when->slot) && *ok;
        return room;
    }
    struct moment *m =
        !when->later && megatron_adds_later(s->run) ? first : room;
    *ok = (s->splits && runs_back(when->phase)
               ? moment_in_slot(m, s, when)
               : moment_at(m, s, when->phase, when->position, when->later))
          && *ok;
    return m;
}

/* The fullest kind of backward. */
static bool look_at_slots(struct peak *best, const struct stage *s,
                          struct instant when)
{
    struct moment room[2];
    const struct moment *most = NULL;
    struct pools x, its = { .flat = 0 };
    bool ok = true;
    while (moment_next_slot(s, &when)) {
        if ((best->known != 0 && glances_know(best->known, s, &when))
            || is_beside_fuller(best, s, &when))
            continue;
        const struct moment *m =
            find_moment(&room[most == room], best, s, &when, &ok);
        pools_of(&x, s, m);
        if (best->seen != NULL)
            glances_note(best->seen, s, m, &x, when.slot);
        if (most != NULL && m->total <= most->total)
            continue;
        most = m;
        its = x;
    }
    if (ok && most != NULL)
        keep_pools(best, most, &its);
    return ok;
}

static bool look(struct peak *best, const struct stage *s, enum phase phase,
                 uint32_t position, bool later)
{
    const bool forward = phase == PHASE_FORWARD || phase == PHASE_LOSS;
    struct instant when = { phase, position, later, SLOT_FORWARD };
    struct moment room;
    struct pools x;
    bool ok = true;
    if (runs_back(phase) && s->splits)
        return look_at_slots(best, s, when);
    if (!forward)
        when.slot = SLOT_BACKWARD;
    if ((best->known != 0 && glances_know(best->known, s, &when))
        || is_beside_fuller(best, s, &when))
        return true;
    const struct moment *m = find_moment(&room, best, s, &when, &ok);
    if (!ok)
        return false;
    pools_of(&x, s, m);
    if (best->seen != NULL)
        glances_note(best->seen, s, m, &x, when.slot);
    keep_pools(best, m, &x);
    return true;
}

/* Two chunks have a second backward in one micro-batch. */
static unsigned passes_of(const struct stage *s)
{
    return s->run->grad_accum > 1 || s->chunks > 1 ? 2 : 1;
}

/* Stage 3 finds the same in a later micro-batch's backward, and makes the same:
 * what it has of gradients is there from the start. */
static bool backward_repeats(const struct stage *s)
{
    const struct run *run = s->run;
    return run_zero_is(run, 3) && !s->loose && s->others == NULL
           && s->in_flight <= 1 && run_second_parts(run) == 0
           && run->offload_optimizer == OFFLOAD_NONE;
}

static unsigned backwards_of(const struct peak *best, const struct stage *s)
{
    return best->seen == NULL && backward_repeats(s) ? 1 : passes_of(s);
}

/* An end of a row that the other one is fuller than, or of which the first is as
 * full: no need to look. Of slots that a backward has, in each. */
static bool is_less(const struct stage *s, const struct row *row, uint32_t i,
                    enum phase phase, bool later)
{
    const uint32_t last = row->end - 1;
    struct instant when = { phase, row->first, later, SLOT_FORWARD };
    if (i != row->first && i != last)
        return false;
    if (phase == PHASE_FORWARD)
        return (moment_rise(s, &when, last) > 0) == (i == row->first);
    if (!s->splits) {
        when.slot = SLOT_BACKWARD;
        return (moment_rise(s, &when, last) > 0) == (i == row->first);
    }
    while (moment_next_slot(s, &when))
        if ((moment_rise(s, &when, last) > 0) != (i == row->first))
            return false;
    return true;
}

static bool look_at_forward(struct peak *best, const struct stage *s,
                            const struct row *row, uint32_t i, bool later)
{
    const bool head = s->head && i == s->n - 1;
    return !stage_happens(s, i, false, later)
           || (row->rises && is_less(s, row, i, PHASE_FORWARD, later))
           || look(best, s, head ? PHASE_LOSS : PHASE_FORWARD, i, later);
}

static bool look_at_backward(struct peak *best, const struct stage *s,
                             const struct row *row, uint32_t i, bool later)
{
    bool ok = true;
    if (!stage_happens(s, i, true, later) || !stage_turns(s, i))
        return true;
    if (stage_recomputed(s, i)
        && !(row->rises && is_less(s, row, i, PHASE_RECOMPUTE, later)))
        ok = look(best, s, PHASE_RECOMPUTE, i, later);
    if (!(row->rises && is_less(s, row, i, PHASE_BACKWARD, later)))
        ok = look(best, s, PHASE_BACKWARD, i, later) && ok;
    return ok;
}

static bool look_at_position(struct peak *best, const struct stage *s,
                             const struct row *row, uint32_t i)
{
    const bool forward = !even(row, i) || bends_at(s, row, i, true);
    const unsigned backwards = backwards_of(best, s);
    bool ok = true;
    for (unsigned later = 0; later < passes_of(s); later++) {
        if (forward)
            ok = look_at_forward(best, s, row, i, later != 0) && ok;
        if (later < backwards)
            ok = look_at_backward(best, s, row, i, later != 0) && ok;
    }
    return ok;
}

/* Interior positions one after another where the bucket bends what else grows
 * evenly: from the first and the last of them follows what the bucket adds to
 * at those between. */
struct bends {
    uint32_t first, last;
    enum phase phase;
    bool later;
};

/* Of a line through two positions that lie n apart, rounded up where it is no
 * line. */
static uint64_t evenly(uint64_t first, uint64_t last, uint32_t i, uint32_t n)
{
    return last >= first ? first + div_up(last - first, n) * i
                         : first - (first - last) / n * i;
}

static bool look_between(struct peak *best, const struct stage *s,
                         const struct bends *b)
{
    const uint32_t n = b->last - b->first;
    struct moment first, last;
    uint64_t from, to;
    bool ok = moment_and_bucket(&first, &from, s, b->phase, b->first, b->later)
              && moment_and_bucket(&last, &to, s, b->phase, b->last, b->later);
    if (!ok)
        return false;
    keep_fuller(best, s, &first);
    keep_fuller(best, s, &last);
    from = first.total - from;
    to = last.total - to;
    const uint64_t most = moment_of_bucket_most(s, b->first);
    uint32_t known = b->last;
    uint64_t bucket = last.total - to;
    for (uint32_t i = b->first + 1; ok && i < b->last; i++) {
        const uint64_t beside = evenly(from, to, i - b->first, n);
        if (!bucket_bends_at(s, i) || beside + most <= best->moment.total)
            continue;
        if (!bucket_alike(s, i, known))
            bucket = moment_of_bucket(s, b->phase, i, b->later);
        known = i;
        if (beside + bucket > best->moment.total) {
            ok = look(best, s, b->phase, i, b->later);
            continue;
        }
        const uint32_t end = bucket_row_end(s, i, b->last) - 1;
        if (evenly(from, to, end - b->first, n) + bucket <= best->moment.total)
            i = end; /* what lies between is no fuller than either */
    }
    return ok;
}

/* From a position to before another one, all interior. */
static bool look_at_bends(struct peak *best, const struct stage *s,
                          const struct row *row, uint32_t from, uint32_t to)
{
    const unsigned backwards = backwards_of(best, s);
    bool ok = true;
    while (from < to && !bucket_bends_at(s, from))
        from++;
    while (from < to && !bucket_bends_at(s, to - 1))
        to--;
    if (to - from < 3 || s->run->offload_optimizer == OFFLOAD_NVME) {
        for (uint32_t i = from; i < to; i++)
            for (unsigned later = 0; later < backwards && bucket_bends_at(s, i);
                 later++)
                ok = look_at_backward(best, s, row, i, later != 0) && ok;
        return ok;
    }
    for (unsigned later = 0; later < backwards; later++) {
        struct bends b = { from, to - 1, PHASE_RECOMPUTE, later != 0 };
        if (!stage_happens(s, from, true, b.later) || !stage_turns(s, from)
            || !bucket_fills(s, b.later))
            continue;
        if (stage_recomputed(s, from))
            ok = look_between(best, s, &b) && ok;
        b.phase = PHASE_BACKWARD;
        ok = look_between(best, s, &b) && ok;
    }
    return ok;
}

static bool look_at_row(struct peak *best, const struct stage *s,
                        const struct row *row)
{
    bool ok = true;
    for (uint32_t i = row->first; i < row->end;) {
        const uint32_t from = i;
        i = interior_end(s, row, from);
        ok = look_at_bends(best, s, row, from, i) && ok;
        if (i < row->end)
            ok = look_at_position(best, s, row, i++) && ok;
    }
    return ok;
}

static void peak_begin(struct peak *best, const struct stage *s)
{
    best->moment = (struct moment){ .op = "" };
    best->pools = (struct pools){ .flat = 0 };
    best->known = 0;
    best->rises = moment_rises(s);
    for (unsigned slot = 0; slot < SLOT_KINDS; slot++)
        best->first[0][slot].phase = best->first[1][slot].phase = PHASE_REST;
}

/* Of positions up to before one. */
static bool look_at_rows(struct peak *best, const struct stage *s,
                         uint32_t first, uint32_t end)
{
    bool ok = true;
    for (struct row row = { .end = first }; row.end < end;) {
        row = row_from(s, row.end);
        ok = look_at_row(best, s, &row) && ok;
    }
    return ok;
}

static bool look_at_ends(struct peak *best, const struct stage *s)
{
    bool ok = true;
    for (unsigned later = 0; later < passes_of(s); later++)
        if (engine_accumulates(s->run, later != 0)
            && stage_happens(s, 0, true, later != 0))
            ok = look(best, s, PHASE_ACCUMULATE, 0, later != 0) && ok;
    ok = look(best, s, PHASE_REDUCE, 0, false) && ok;
    ok = look(best, s, PHASE_CLIP, 0, false) && ok;
    return look(best, s, PHASE_STEP, 0, false) && ok;
}

/* ---- two passes that take turns ---- */

struct looking {
    struct peak *best;
    const struct stage *s;
    bool ok;
};

static bool look_at_turn(void *ctx, const struct overlap_step *step)
{
    struct looking *x = ctx;
    struct moment m;
    if (step->inner)
        return true;
    x->ok = moment_of(&m, x->s, &step->at, NULL, COMP_COUNT) && x->ok;
    keep_fuller(x->best, x->s, &m);
    return true;
}

static bool look_at_overlaps(struct peak *best, const struct stage *s)
{
    struct looking x = { best, s, true };
    struct overlap o = { 0 };
    while (overlap_next(s, &o))
        overlap_steps(s, &o, look_at_turn, &x);
    return x.ok;
}

/* ---- a chunk like the one before ---- */

/* Which differs from it in what is in flight alone. */
static bool chunk_repeats(const struct stage *s, uint32_t chunk)
{
    const uint32_t first = stage_chunk_first(s, chunk);
    const uint32_t end = stage_chunk_first(s, chunk + 1);
    const uint32_t n = end - first;
    if (chunk == 0 || stage_chunk_first(s, chunk - 1) + n != first
        || (s->embed && chunk == 1) || (s->head && end == s->n)
        || s->before[s->n].named != 0 || stage_offloads(s) || !sums_tell(s))
        return false;
    for (uint32_t i = first; i < end; i++)
        if (stage_block(s, i) != stage_block(s, i - n)
            || stage_recomputed(s, i) != stage_recomputed(s, i - n))
            return false;
    const uint64_t *others = &s->others[2 * SLOT_KINDS * chunk];
    for (uint32_t i = 0; i < 2 * SLOT_KINDS; i++)
        if ((others[i] == NEVER) != (*(others + i - 2 * SLOT_KINDS) == NEVER))
            return false;
    return true;
}

bool stage_chunks_repeat(const struct stage *s)
{
    for (uint32_t c = 1; c < s->chunks; c++)
        if (chunk_repeats(s, c))
            return true;
    return false;
}

bool stage_peak(struct peak *best, const struct stage *s, struct glances *seen)
{
    bool again = false;
    uint32_t looks = 0; /* at the chunk before */
    peak_begin(best, s);
    best->seen = seen;
    if (seen != NULL)
        glances_begin(seen, s);
    bool ok = look(best, s, PHASE_REST, 0, false);
    for (uint32_t c = 0; c < s->chunks; c++) {
        if (seen != NULL && seen->n > 0 && chunk_repeats(s, c)) {
            glances_repeat(seen, s, c, looks);
            again = true;
            continue;
        }
        looks = seen == NULL ? 0 : seen->looks;
        ok = look_at_rows(best, s, stage_chunk_first(s, c),
                          stage_chunk_first(s, c + 1))
             && ok;
        looks = seen == NULL ? 0 : seen->looks - looks;
    }
    ok = look_at_overlaps(best, s) && ok;
    ok = look_at_ends(best, s) && ok;
    return again ? stage_peak_again(best, s, seen, NULL) && ok : ok;
}

uint64_t stage_passes_most(const struct stage *s)
{
    struct peak best;
    peak_begin(&best, s);
    best.seen = NULL;
    for (uint32_t c = 0; c < s->chunks; c++)
        if (!look_at_rows(&best, s, stage_chunk_first(s, c),
                          stage_chunk_first(s, c + 1)))
            return 0;
    return best.moment.total;
}

/* ---- a stage like the one before ---- */

/* What it does, and those before did not. */
static bool look_at_more(struct peak *best, const struct stage *s,
                         struct glances *seen)
{
    best->known = seen->known;
    if (!glances_widen(seen, s))
        return true;
    best->seen = seen;
    return look_at_rows(best, s, 0, s->n);
}

/* Of the stage before, but for what is in flight. */
static void with_others(struct moment *m, const struct moment *before,
                        uint64_t others)
{
    *m = *before;
    m->total += others - m->bytes[TERM_IN_FLIGHT];
    m->bytes[TERM_IN_FLIGHT] = others;
}

bool stage_peak_again(struct peak *best, const struct stage *s,
                      struct glances *seen, const struct moment *before)
{
    peak_begin(best, s);
    bool ok = look_at_more(best, s, seen);
    const struct glance *g = glances_fullest(&best->pools, seen, s);
    const uint32_t last = seen->last;
    seen->last = (uint32_t)(g - seen->at);
    if (before != NULL && seen->last == last) {
        with_others(&best->moment, before, moment_of_others(s, &g->when));
        return ok;
    }
    const struct moment *m = find_moment(&best->moment, best, s, &g->when, &ok);
    if (m != &best->moment)
        best->moment = *m;
    return ok;
}
