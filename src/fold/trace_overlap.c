/*
 * The trace of a forward beside another micro-batch's backward: plays the parts
 * of layers in the order that overlap.c says.
 */
#include "fold/overlap.h"
#include "fold/trace_private.h"

#include "base/banned.h"

struct overlapping {
    struct tracer *r;
    uint64_t micros, begun;     /* micro-batches */
    const struct slot *slot[2]; /* of the forward, the backward at hand */
    hold_id held;
};

static void begin_pass(struct tracer *r, const struct slot *slot)
{
    r->later = slot->later;
    r->slot = slot->kind;
    r->other_micros = slot->other_micros;
    r->other_chunks = slot->other_chunks;
    r->done = r->done || slot->kind == SLOT_BACKWARD;
}

static void forward_node(struct tracer *r, const struct point *at,
                         uint32_t micro, enum layer_node node)
{
    tracer_enter(r, at->phase, micro, at->position);
    levels_at(r, at->phase, at->position);
    tracer_play_node(r, SCRIPT_FORWARD, node);
    if (node == NODE_COMBINE)
        trace_hand_on(r);
}

static void backward_node(struct tracer *r, const struct point *at,
                          uint32_t micro, enum layer_node node)
{
    const enum wgrad_mode mode = engine_wgrad_mode(r->s, r->later);
    tracer_enter(r, PHASE_BACKWARD, micro, at->position);
    trace_begin_backward(r);
    tracer_play_node(r, SCRIPT_BACKWARD + (unsigned)mode, node);
    if (node
        == (r->s->run->delay_wgrad ? NODE_ATTENTION_WEIGHTS : NODE_ATTENTION))
        trace_hand_over_wgrads(r);
}

static bool play_turn(void *ctx, const struct overlap_step *step)
{
    struct overlapping *x = ctx;
    struct tracer *r = x->r;
    const struct point *at = &step->at;
    const struct slot *slot = x->slot[step->back];
    begin_pass(r, slot);
    r->beside = at->beside;
    const enum layer_node node = (enum layer_node)(at->beside.node - 1);
    if (at->beside.node == 0 && step->back)
        trace_backward(r, slot->micro, at->position, &x->held);
    else if (at->beside.node == 0)
        trace_forward(r, slot->micro, at->position);
    else if (step->back)
        backward_node(r, at, slot->micro, node);
    else
        forward_node(r, at, slot->micro, node);
    return !r->failed;
}

static bool run_passes(void *ctx, const struct slot *forward,
                       const struct slot *backward)
{
    struct overlapping *x = ctx;
    struct tracer *r = x->r;
    const uint64_t group = run_round(r->s->run);
    if (forward != NULL)
        x->begun = max_u64(x->begun, (forward->micro / group + 1) * group);
    const struct overlap o = overlap_of(r->s, forward, backward);
    x->slot[false] = forward;
    x->slot[true] = backward;
    x->held = NO_HOLD;
    overlap_steps(r->s, &o, play_turn, x);
    r->beside = (struct beside){ .is = false };
    tracer_death(r, &r->hidden); /* sent on */
    tracer_death(r, &r->grad);   /* sent back */
    const bool ends = backward != NULL && backward->chunk == 0
                      && (backward->micro + 1) % group == 0;
    if (r->sim != NULL && ends && x->begun < x->micros)
        x->micros -= group
                     * simulate_skip(r, (backward->micro + 1) / group,
                                     (x->micros - x->begun) / group);
    return !r->failed && !r->settled;
}

void trace_overlapped(struct tracer *r)
{
    const struct run *run = r->s->run;
    struct overlapping x = { .r = r, .micros = run->grad_accum };
    if (r->sim == NULL)
        x.micros = schedule_micros(run);
    schedule_overlapped(r->s, &x.micros, run_passes, &x);
}
