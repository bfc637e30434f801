/*
 * Orders that compute gradients of weights apart: ZB-H1, ZB-V and DualPipe, as
 * their authors' programs run them, and PyTorch's of chunks. Owns the order;
 * what it keeps is the stage's.
 * [docs/method.md eq. zero-bubble]
 */
#include "fold/schedule_private.h"

#include "base/cold.h"

#include "base/banned.h"

/* An order as it is listed, in directions that are its chunks. Micro-batches of
 * DualPipe are told apart by direction: the k-th of direction d is 2 k + d. */
struct order {
    struct step *step;
    struct refrain *refrain; /* NULL: steps are listed each time they come */
    size_t n, sung;          /* steps; those that refrains have by now */
    uint32_t refrains, steady;
    uint64_t split; /* backwards without weights' gradients, that wait */
    size_t waits;   /* the first step that may be such a one */
    uint64_t forward[2], backward[2], weight[2]; /* done, by direction */
    uint64_t done;                               /* backwards, of all */
    uint64_t micros;                             /* of a direction */
    bool dual, chunks;
};

/* A micro-batch on its way through chunks is in flight until it is back from the
 * one that it came to first. */
static bool is_beside(const struct order *o, enum slot_kind kind, uint64_t k,
                      unsigned d)
{
    return o->chunks && d > 0 && (kind != SLOT_WEIGHT || o->backward[0] <= k);
}

/* Steps up to before one that are in none, as a refrain. */
static void sing(struct order *o, size_t end, uint64_t times)
{
    if (end == o->sung)
        return;
    o->refrain[o->refrains++] =
        (struct refrain){ (uint32_t)(end - o->sung), (uint32_t)times };
    o->sung = end;
}

static void run_pass(struct order *o, enum slot_kind kind, uint64_t k,
                     unsigned d)
{
    o->step[o->n++] =
        (struct step){ .kind = (uint8_t)kind,
                       .later = o->done > (kind == SLOT_WEIGHT ? 1 : 0),
                       .chunk = (uint8_t)d,
                       .beside = is_beside(o, kind, k, d),
                       .micro = (uint32_t)(o->dual ? 2 * k + d : k) };
}

static void forward(struct order *o, unsigned d)
{
    if (o->forward[d] < o->micros)
        run_pass(o, SLOT_FORWARD, o->forward[d], d);
    o->forward[d]++;
}

static void backward(struct order *o, unsigned d, bool split)
{
    const uint64_t k = o->backward[d];
    if (k < o->micros) {
        if (o->split == 0)
            o->waits = o->n;
        run_pass(o, split ? SLOT_INPUT : SLOT_BACKWARD, k, d);
        o->split += split;
    }
    o->backward[d]++;
    o->done++;
}

/* Of the first backward that waits. */
static void weights(struct order *o)
{
    if (o->split == 0)
        return;
    while (o->step[o->waits].kind != SLOT_INPUT)
        o->waits++;
    const struct step *x = &o->step[o->waits++];
    o->split--;
    run_pass(o, SLOT_WEIGHT, o->dual ? x->micro / 2 : x->micro, x->chunk);
}

/* 1F1B; the first backwards of rank r leave as many gradients of weights behind
 * as there are ranks before it, for when no forward is left. Between, both
 * halves of a backward run at once. */
static void zb_h1(struct order *o, const struct run *run, uint64_t rank,
                  uint64_t m)
{
    const uint64_t warm_up = min_u64(m, run->pp - rank - 1);
    const uint64_t last = m - warm_up; /* of the steady state */
    for (uint64_t i = 0; i < warm_up; i++)
        forward(o, 0);
    for (uint64_t i = 0; i < m; i++) {
        if (i < last)
            forward(o, 0);
        const bool tail = i + 1 >= last;
        const bool split = rank > 0 && (i < rank || tail);
        backward(o, 0, split);
        if (split && tail && i >= rank)
            weights(o);
    }
    while (o->split > 0)
        weights(o);
}

static void weights_of(struct order *o, unsigned d)
{
    const uint64_t k = o->weight[d]++;
    if (k < o->micros)
        run_pass(o, SLOT_WEIGHT, k, d);
}

/* Forward of one direction, then both halves of a backward. */
static void v_turn(struct order *o, unsigned forward_of, unsigned backward_of)
{
    forward(o, forward_of);
    backward(o, backward_of, true);
    weights_of(o, backward_of);
}

static void v_fill(struct order *o, uint64_t p, uint64_t rank)
{
    for (uint64_t i = 0; i < 2 * (p - rank) - 1; i++)
        forward(o, 0);
    for (uint64_t i = 0; i < rank; i++) {
        forward(o, 1);
        forward(o, 0);
    }
    for (uint64_t i = 0; i < p - rank; i++)
        v_turn(o, 1, 1);
}

/* The gradients of weights that are left come last, the upper chunk's first. */
static void v_drain(struct order *o, uint64_t p, uint64_t rank)
{
    for (uint64_t i = 0; i < rank; i++) {
        backward(o, 0, true);
        backward(o, 1, true);
    }
    for (uint64_t i = 0; i < p - rank; i++) {
        backward(o, 0, true);
        weights_of(o, 0);
    }
    for (unsigned d = 2; d-- > 0;)
        while (o->weight[d] < o->backward[d])
            weights_of(o, d);
}

/* Fewer than 2 p - 1 micro-batches run as that many do, without the rest. */
static void zb_v(struct order *o, const struct run *run, uint64_t rank)
{
    const uint64_t m = max_u64(2 * run->pp - 1, o->micros);
    v_fill(o, run->pp, rank);
    while (o->forward[1] < o->forward[0] || o->forward[0] < m) {
        if (o->forward[0] < m)
            forward(o, 0);
        backward(o, 0, true);
        weights_of(o, 0);
        v_turn(o, 1, 1);
    }
    v_drain(o, run->pp, rank);
}

/* ---- DualPipe ---- */

/* Steps from `from` on, so many times more, of the next micro-batches: each
 * backward among them that leaves weights' gradients finds these there. */
static void again(struct order *o, size_t from, uint64_t times)
{
    const size_t n = o->n - from;
    for (const struct step *x = &o->step[from]; x < &o->step[o->n]; x++) {
        o->forward[x->chunk] += x->kind == SLOT_FORWARD ? times : 0;
        if (x->kind != SLOT_BACKWARD && x->kind != SLOT_INPUT)
            continue;
        o->backward[x->chunk] += times;
        o->done += times;
    }
    if (o->refrain != NULL) {
        sing(o, from, 1);
        sing(o, o->n, 1 + times);
        return;
    }
    struct step *to = &o->step[o->n], *end = to + n * times;
    for (; to < end; to++) {
        *to = to[-(ptrdiff_t)n];
        to->micro += o->dual ? 2 : 1;
    }
    o->n += n * (size_t)times;
}

/* Directions that a backward has come of. */
static unsigned came_back(const struct order *o)
{
    return (o->backward[0] > 0 ? 1 : 0) + (o->backward[1] > 0 ? 1 : 0);
}

/* So many, which differ in nothing but micro-batches once none has a direction's
 * first backward; gradients of weights come after a backward in each. */
static void turns(struct order *o, uint64_t times, void (*turn)(struct order *))
{
    for (; times > 0; times--) {
        const size_t from = o->n;
        const unsigned back = came_back(o);
        turn(o);
        const bool alike = came_back(o) == back;
        if (times == 1 || !alike)
            continue;
        again(o, from, times - 1);
        return;
    }
}

static void one_forward(struct order *o)
{
    forward(o, 0);
}

static void both_forward(struct order *o)
{
    forward(o, 0);
    forward(o, 1);
}

static void back_and_forth(struct order *o)
{
    backward(o, 1, true);
    weights(o);
    forward(o, 1);
}

static void dual_turn(struct order *o)
{
    forward(o, 0);
    backward(o, 1, false);
    forward(o, 1);
    backward(o, 0, false);
}

static void turn_of_three(struct order *o)
{
    backward(o, 1, false);
    forward(o, 1);
    backward(o, 0, false);
}

static void both_backward(struct order *o)
{
    backward(o, 1, false);
    backward(o, 0, false);
}

/* Its eight steps. `half`: distance of the rank from the nearer end; m
 * micro-batches come in at either. DualPipeV has one end, of twice as many
 * stages. */
static void dual_fill(struct order *o, uint64_t pairs, uint64_t half)
{
    const uint64_t inner = pairs - half - 1;
    turns(o, 2 * inner, one_forward);
    turns(o, half + 1, both_forward);
    turns(o, inner, back_and_forth);
}

static void dual_drain(struct order *o, uint64_t pairs, uint64_t half)
{
    const uint64_t inner = pairs - half - 1, middle = (half + 1) / 2;
    turns(o, inner, turn_of_three);
    turns(o, middle, both_backward);
    /* from here on weights' gradients are left */
    backward(o, 1, half % 2 == 1);
    backward(o, 0, true);
    for (uint64_t i = middle + 1; i < half + 1; i++) {
        backward(o, 1, true);
        backward(o, 0, true);
    }
    for (uint64_t i = 0; i < inner; i++) {
        weights(o);
        backward(o, 0, true);
    }
    while (o->split > 0)
        weights(o);
}

static void dual(struct order *o, uint64_t pairs, uint64_t half)
{
    dual_fill(o, pairs, half);
    turns(o, o->micros + half + 1 - 2 * pairs, dual_turn);
    if (o->refrains > 0 && o->sung == o->n)
        o->steady = o->refrains - 1;
    dual_drain(o, pairs, half);
}

/* The i-th of a rank's passes: rounds of micro-batches go through the chunks,
 * backward from the last. */
static void loop_pass(struct order *o, const struct run *run,
                      enum slot_kind kind, uint64_t i)
{
    const uint64_t round = run_round(run), v = run->vpp;
    const uint64_t c = i / round % v, k = i / (round * v) * round + i % round;
    const uint64_t chunk = kind == SLOT_FORWARD ? c : v - 1 - c;
    run_pass(o, kind, k, (unsigned)chunk);
    if (kind == SLOT_INPUT) {
        o->backward[0] += chunk == 0;
        o->done++;
    }
}

/* 1F1B of chunks; gradients of weights come so many backwards later as there
 * are ranks before it. */
static void zb_interleaved(struct order *o, const struct run *run,
                           uint64_t rank)
{
    const uint64_t all = run->vpp * o->micros;
    const uint64_t warm_up =
        min_u64(all, (run->vpp - 1) * run_round(run) + run->pp - 1 - rank);
    for (uint64_t i = 0; i < warm_up; i++)
        loop_pass(o, run, SLOT_FORWARD, i);
    for (uint64_t i = 0; i < all; i++) {
        if (warm_up + i < all)
            loop_pass(o, run, SLOT_FORWARD, warm_up + i);
        loop_pass(o, run, SLOT_INPUT, i);
        if (i >= rank)
            loop_pass(o, run, SLOT_WEIGHT, i - rank);
    }
    for (uint64_t i = all - min_u64(all, rank); i < all; i++)
        loop_pass(o, run, SLOT_WEIGHT, i);
}

static void walk_order(struct order *o, const struct run *run, uint64_t rank,
                       uint64_t micros)
{
    o->micros = micros;
    switch (run->schedule) {
    case SCHED_ZB_H1: zb_h1(o, run, rank, micros); break;
    case SCHED_ZB_V: zb_v(o, run, rank); break;
    case SCHED_DUALPIPE:
        o->dual = true;
        o->micros = micros / 2;
        dual(o, run->pp / 2, min_u64(rank, run->pp - 1 - rank));
        break;
    case SCHED_DUALPIPE_V: dual(o, run->pp, rank); break;
    case SCHED_ZB_INTERLEAVED: zb_interleaved(o, run, rank); break;
    case SCHED_1F1B:
    case SCHED_GPIPE:
    case SCHED_INTERLEAVED:
    case SCHED_NAIVE:
    case SCHEDULE_COUNT: break;
    }
}

/* PyTorch runs both halves of the model's first chunk, whose input has no
 * gradient, in the second one's place (torch/distributed/pipelining/stage.py,
 * backward_one_chunk). */
static size_t first_is_whole(struct step *step, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (step[i].chunk == 0 && step[i].kind == SLOT_INPUT)
            continue;
        step[kept] = step[i];
        if (step[i].chunk == 0 && step[i].kind == SLOT_WEIGHT)
            step[kept].kind = SLOT_BACKWARD;
        kept++;
    }
    return kept;
}

size_t schedule_steps(struct step *to, const struct run *r, uint64_t rank,
                      uint64_t micros)
{
    struct order o = { .step = to, .chunks = run_folds(r) || run_loops(r) };
    walk_order(&o, r, rank, micros);
    return rank == 0 && run_torch_pipelines(r) ? first_is_whole(to, o.n) : o.n;
}

bool schedule_is_short(const struct run *run)
{
    return schedule_is_dual(run)
           || (run->schedule == SCHED_DUALPIPE_V && !run_torch_pipelines(run));
}

/* So many micro-batches have each turn of both DualPipes twice. */
uint64_t schedule_short_room(const struct run *run, uint64_t micros)
{
    const uint64_t some =
        schedule_is_short(run) ? schedule_micros(run) : micros;
    return schedule_room(run, min_u64(micros, some));
}

void schedule_short(struct rank_order *to, const struct run *r, uint64_t rank,
                    uint64_t micros)
{
    struct order o = { .step = to->step,
                       .refrain = to->refrain,
                       .steady = REFRAINS_MAX,
                       .chunks = run_folds(r) || run_loops(r) };
    if (schedule_is_short(r))
        walk_order(&o, r, rank, micros);
    else
        o.n = schedule_steps(to->step, r, rank, micros);
    sing(&o, o.n, 1);
    to->n = o.refrains;
    to->steady = o.steady;
}

/* DualPipeV's are those of dual_fill() and dual_drain(). */
double schedule_split_share(const struct run *run, uint64_t rank,
                            uint64_t chunk)
{
    if (!schedule_keeps_graph(run) || (rank == 0 && chunk == 0))
        return 0;
    if (run->schedule != SCHED_DUALPIPE_V)
        return 1;
    const uint64_t some = run->pp - rank - 1 + rank / 2;
    const uint64_t odd = chunk == 0 ? 1 : rank % 2;
    return (double)min_u64(some + odd, run->grad_accum)
           / (double)run->grad_accum;
}

static struct slot slot_of(const struct step *x)
{
    return (struct slot){ .kind = (enum slot_kind)x->kind,
                          .micro = x->micro,
                          .chunk = x->chunk,
                          .later = x->later };
}

void schedule_walk(const struct stage *s, uint64_t micros, struct step *room,
                   slot_fn *each, void *ctx)
{
    struct walking w = { .s = s, .each = each, .ctx = ctx, .all = micros };
    const size_t n = schedule_steps(room, s->run, s->index, micros);
    for (size_t i = 0; i < n; i++) {
        struct slot slot = slot_of(&room[i]);
        if (!schedule_slot(&w, &slot, room[i].beside))
            return;
    }
}

/* Beside gradients, all of which are counted but those that are missing. */
static bool is_fuller(uint64_t kept, uint64_t missing, uint64_t most,
                      uint64_t lacks)
{
    return most == NEVER || kept + lacks > most + missing;
}

static void note_graph(struct stage *s, const struct slot *slot, uint64_t kept)
{
    struct adding *adding = &s->adding[SLOT_KINDS * slot->chunk + slot->kind];
    if (slot->adds && slot->later
        && is_fuller(kept, slot->missing, adding->kept, adding->lacks))
        *adding = (struct adding){ kept, slot->missing };
    if (slot->kind == SLOT_INPUT)
        s->sent_back += s->chunk_sent[slot->chunk];
}

/* Where a graph is kept. */
static void note_slot(struct stage *s, const struct slot *slot)
{
    const uint32_t at = SLOT_KINDS * slot->chunk + slot->kind;
    uint64_t *most = &s->others[2 * at + slot->later];
    uint64_t unused = 0, *lacks = slot->later ? &s->lacking[at] : &unused;
    const uint64_t missing = slot->later ? slot->missing : 0;
    if (slot->kind != SLOT_WEIGHT)
        s->in_flight = max_u64(s->in_flight, slot->other_chunks + 1);
    else
        s->stashes = max_u64(s->stashes, slot->waiting + 1);
    uint64_t kept = slot->kept
                    + slot->other_micros * (s->shared_kept + s->inputs)
                    + slot->other_chunks * s->stage_input;
    if (slot->later)
        kept += s->sent_before;
    note_graph(s, slot, kept);
    /* no fuller than with these gradients, wherever its own have come to */
    if (slot->kind == SLOT_WEIGHT && slot->adds)
        kept -= s->chunk_added[slot->chunk];
    if (!is_fuller(kept, missing, *most, *lacks))
        return;
    *most = kept;
    *lacks = missing;
}

/* `here` or more; of NEVER, the largest there is, `here`. */
static void keep_most(uint64_t *most, uint64_t here)
{
    if (*most + 1 <= here)
        *most = here;
}

/* Where no graph is kept: others are one sum, which a pass takes its own from or
 * adds it to. */
struct flying {
    uint64_t kept, chunks, waiting;
};

INLINE void sum_steps(struct stage *s, struct flying *f,
                      const struct step *step, size_t n)
{
    const uint64_t micro = s->shared_kept + s->inputs;
    uint64_t kept = f->kept;
    for (const struct step *x = step; x < step + n; x++) {
        const uint64_t beside = x->beside ? micro : 0;
        const uint64_t own =
            s->chunk_kept[x->chunk] + s->stage_input + micro - beside;
        uint64_t *most =
            &s->others[2 * (SLOT_KINDS * x->chunk + x->kind) + x->later];
        switch ((enum slot_kind)x->kind) {
        case SLOT_FORWARD:
            keep_most(most, kept - beside);
            kept += own;
            s->in_flight = max_u64(s->in_flight, ++f->chunks);
            break;
        case SLOT_BACKWARD:
            f->chunks--;
            kept -= own;
            keep_most(most, kept - beside);
            break;
        case SLOT_INPUT:
            f->chunks--;
            f->waiting++;
            kept -= own;
            keep_most(most, kept - beside);
            kept += s->chunk_stash[x->chunk];
            break;
        case SLOT_WEIGHT:
            s->stashes = max_u64(s->stashes, f->waiting--);
            kept -= s->chunk_stash[x->chunk];
            keep_most(most, kept - beside);
            break;
        case SLOT_KINDS: break;
        }
    }
    f->kept = kept;
}

/* Each time as much more, or less, as the first: the most is there the first
 * time or the last. */
static void sum_refrain(struct stage *s, struct flying *f,
                        const struct step *step, const struct refrain *x)
{
    const struct flying from = *f;
    sum_steps(s, f, step, x->steps);
    if (x->times == 1
        || (f->kept == from.kept && f->chunks == from.chunks
            && f->waiting == from.waiting))
        return;
    const uint64_t between = x->times - 2;
    f->kept += between * (f->kept - from.kept);
    f->chunks += between * (f->chunks - from.chunks);
    f->waiting += between * (f->waiting - from.waiting);
    sum_steps(s, f, step, x->steps);
}

static void note_graphs(struct stage *s, const struct step *step, size_t n,
                        uint64_t micros)
{
    struct walking w = { .s = s, .all = micros };
    for (size_t i = 0; i < n; i++) {
        struct slot slot = slot_of(&step[i]);
        schedule_beside(&w, &slot, step[i].beside);
        note_slot(s, &slot);
    }
}

void schedule_split_kept(struct stage *s, uint64_t micros,
                         struct rank_order *to)
{
    if (s->graph) {
        note_graphs(s, to->step,
                    schedule_steps(to->step, s->run, s->index, micros), micros);
        return;
    }
    schedule_short(to, s->run, s->index,
                   schedule_is_short(s->run) ? s->run->grad_accum : micros);
    struct flying f = { 0, 0, 0 };
    const struct step *step = to->step;
    for (uint32_t i = 0; i < to->n; step += to->refrain[i++].steps)
        sum_refrain(s, &f, step, &to->refrain[i]);
}
