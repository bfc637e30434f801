/*
 * Orders that compute gradients of weights apart: ZB-H1 and DualPipe, as their
 * authors' programs run them. Owns the order; what it keeps is the stage's.
 * [docs/method.md eq. zero-bubble]
 */
#include "fold/schedule_private.h"

#include "base/banned.h"

/* A walk under way. Micro-batches of DualPipe are told apart by direction: the
 * k-th of direction d is 2 k + d, and d is the chunk it goes through. */
struct order {
    struct walking w;
    slot_fn *each;
    void *ctx;
    uint32_t *queue; /* micro-batches that wait for weights' gradients, in
                        order of their backward */
    uint64_t put, taken;
    uint64_t forward[2], backward[2]; /* done, by direction */
    bool dual, stopped;
};

static void run(struct order *o, enum slot_kind kind, uint64_t micro)
{
    const uint64_t done = o->backward[0] + o->backward[1];
    struct slot slot = { .kind = kind,
                         .micro = (uint32_t)micro,
                         .chunk = o->dual ? (uint32_t)(micro & 1) : 0,
                         .later = kind == SLOT_WEIGHT ? done > 1 : done > 0 };
    if (!o->stopped && !schedule_slot(&o->w, slot, o->each, o->ctx))
        o->stopped = true;
}

static uint64_t micro_of(const struct order *o, uint64_t k, unsigned d)
{
    return o->dual ? 2 * k + d : k;
}

static void forward(struct order *o, unsigned d)
{
    run(o, SLOT_FORWARD, micro_of(o, o->forward[d], d));
    o->forward[d]++;
}

static void backward(struct order *o, unsigned d, bool split)
{
    const uint64_t micro = micro_of(o, o->backward[d], d);
    run(o, split ? SLOT_INPUT : SLOT_BACKWARD, micro);
    o->backward[d]++;
    if (split)
        o->queue[o->put++] = (uint32_t)micro;
}

static void weights(struct order *o)
{
    if (o->taken < o->put)
        run(o, SLOT_WEIGHT, o->queue[o->taken++]);
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
    while (o->taken < o->put)
        weights(o);
}

/* Its eight steps. `half`: distance of the rank from the nearer end; half of
 * the micro-batches, m, come in at either. */
static void dual_fill(struct order *o, uint64_t pairs, uint64_t half)
{
    const uint64_t inner = pairs - half - 1;
    for (uint64_t i = 0; i < 2 * inner; i++)
        forward(o, 0);
    for (uint64_t i = 0; i < half + 1; i++) {
        forward(o, 0);
        forward(o, 1);
    }
    for (uint64_t i = 0; i < inner; i++) {
        backward(o, 1, true);
        weights(o);
        forward(o, 1);
    }
}

static void dual_steady(struct order *o, uint64_t pairs, uint64_t half,
                        uint64_t m)
{
    const uint64_t steps = m + half + 1 - 2 * pairs;
    for (uint64_t i = 0; i < steps; i++) {
        forward(o, 0);
        backward(o, 1, false);
        forward(o, 1);
        backward(o, 0, false);
    }
}

static void dual_drain(struct order *o, uint64_t pairs, uint64_t half)
{
    const uint64_t inner = pairs - half - 1;
    for (uint64_t i = 0; i < inner; i++) {
        backward(o, 1, false);
        forward(o, 1);
        backward(o, 0, false);
    }
    /* from the middle of these on, weights' gradients are left */
    for (uint64_t i = 0; i < half + 1; i++) {
        const bool past = i > (half + 1) / 2, at = i == (half + 1) / 2;
        backward(o, 1, past || (at && half % 2 == 1));
        backward(o, 0, past || at);
    }
    for (uint64_t i = 0; i < inner; i++) {
        weights(o);
        backward(o, 0, true);
    }
    while (o->taken < o->put)
        weights(o);
}

static void walk_order(struct order *o, const struct run *run, uint64_t rank,
                       uint64_t micros)
{
    o->dual = schedule_is_dual(run);
    if (!o->dual) {
        zb_h1(o, run, rank, micros);
        return;
    }
    const uint64_t pairs = run->pp / 2;
    const uint64_t half = min_u64(rank, run->pp - 1 - rank);
    dual_fill(o, pairs, half);
    dual_steady(o, pairs, half, micros / 2);
    dual_drain(o, pairs, half);
}

void schedule_walk(const struct stage *s, uint64_t micros, uint32_t *in_flight,
                   slot_fn *each, void *ctx)
{
    const uint64_t ring = schedule_micros(s->run);
    struct order o = {
        .w = { .s = s, .in_flight = in_flight, .ring = ring },
        .each = each,
        .ctx = ctx,
        .queue = in_flight + ring,
    };
    walk_order(&o, s->run, s->index, micros);
}
