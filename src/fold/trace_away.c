/*
 * Activations that leave the GPU for the host and come back, event by event:
 * stage_away.c says of which layers, the walk of which tensors.
 */
#include "fold/trace_private.h"

#include "base/banned.h"

/* Of the micro-batch at hand: there is one in flight. */
static struct resident *resident_at(const struct tracer *r, uint32_t position)
{
    return &r->resident[(size_t)(r->micro % r->ring) * r->s->n + position];
}

/* The layer's forward, written down, has each of its tensors once. */
static const struct script *tensors_of(const struct tracer *r,
                                       uint32_t position)
{
    return &r->script[stage_block(r->s, position)][stage_unloads(r->s, position)
                                                       ? SCRIPT_AWAY
                                                       : SCRIPT_FORWARD];
}

static bool goes(const struct walk_event *e)
{
    return e->birth && e->what == WALK_TENSOR && e->away;
}

static void leave(struct tracer *r, uint32_t position)
{
    const struct script *s = tensors_of(r, position);
    struct resident *of = resident_at(r, position);
    for (uint32_t i = 0; i < s->n; i++)
        if (goes(&s->v[i]))
            tracer_death(r, &of->slot[s->v[i].key]);
    tracer_death(r, &of->copies);
}

static void come_back(struct tracer *r, uint32_t position)
{
    const struct script *s = tensors_of(r, position);
    struct resident *of = resident_at(r, position);
    for (uint32_t i = 0; i < s->n && !r->failed; i++)
        if (goes(&s->v[i]))
            of->slot[s->v[i].key] =
                tracer_born(r, COMP_ACTIVATIONS, s->v[i].name, s->v[i].bytes);
    of->copies =
        tracer_born(r, COMP_ACTIVATIONS, "rotary table",
                    r->f->walk[stage_block(r->s, position)].away.copies);
}

void trace_left(struct tracer *r, bool begins)
{
    const struct stage *s = r->s;
    const uint32_t i = r->position;
    if (i > 0 && stage_unloads(s, i - 1) && begins != stage_unloads(s, i))
        leave(r, i - 1);
}

void trace_leaves(struct tracer *r, bool back)
{
    const struct stage *s = r->s;
    if (back && r->position + 1 == s->n && stage_goes(s, r->position))
        leave(r, r->position);
    if (s->away == NULL)
        return;
    if (run_away(s->run) == AWAY_TENSORS) {
        if (!back)
            trace_left(r, true);
        return;
    }
    if (back) { /* the layer above is done */
        if (stage_is_layer(s, r->position) && stage_goes(s, r->position + 1))
            leave(r, r->position + 1);
        return;
    }
    const uint32_t end = stage_gone(s, r->position).end;
    if (r->position > 0 && stage_gone(s, r->position - 1).end < end)
        leave(r, end - 1);
}

void trace_comes_back(struct tracer *r)
{
    const struct stage *s = r->s;
    if (s->away == NULL || r->position + 1 >= s->n
        || run_away(s->run) == AWAY_TENSORS)
        return;
    const uint32_t end = stage_gone(s, r->position).end;
    if (end < stage_gone(s, r->position + 1).end)
        come_back(r, end);
}

void trace_away_ends(struct tracer *r)
{
    if (r->s->away != NULL && run_away(r->s->run) == AWAY_LAYERS)
        leave(r, stage_away_layers(r->s).first);
}
