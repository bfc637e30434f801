/*
 * The walks of a block told event by event, each way and variant of it: what a
 * trace is written from. Owns no rule; the sums of walk_block() are of the same.
 */
#include "fold/walk_private.h"

#include "base/banned.h"

void walk_told(struct walk *w, const struct walk_event *e)
{
    w->tell(w->ctx, e);
}

static void listen(struct walk *w, const struct walk_telling *how)
{
    w->tell = how->tell;
    w->ctx = how->ctx;
}

/* The second half of a split backward: the first has nobody who listens. */
static void tell_weights(struct walk *w, const struct walk_telling *how)
{
    walk_init(w);
    w->split = true;
    w->remakes = w->unpacks = how->way != TELL_WEIGHTS;
    w->topmost = how->way == TELL_REMADE_TOPMOST;
    walk_backward(w, how->mode);
    walk_input_handed(w);
    listen(w, how);
    if (w->remakes)
        walk_remade_weights(w, NULL);
    else
        walk_weights(w);
}

void walk_tell_block(const struct walk_telling *how,
                     struct walk_scratch *scratch)
{
    struct walk w = walk_on(how->p, how->block, how->regions, scratch);
    const enum away_how away = walk_how(scratch, how->block);
    struct away sum;
    struct modules_walk modules;
    if (how->way == TELL_WEIGHTS || how->way == TELL_REMADE_WEIGHTS
        || how->way == TELL_REMADE_TOPMOST) {
        tell_weights(&w, how);
        return;
    }
    walk_init(&w);
    if (away == AWAY_MODULES)
        walk_takes_modules(&w, scratch, &modules);
    if (away != AWAY_NOTHING)
        walk_find_away(&w, &sum, away);
    listen(&w, how);
    struct node_walk nodes;
    if (walk_has_nodes(scratch, how->block))
        w.nodes = &nodes;
    switch (how->way) {
    case TELL_FORWARD: walk_forward(&w, how->pass); return;
    case TELL_AWAY:
        w.unloads = true;
        walk_forward(&w, PASS_KEEP);
        return;
    case TELL_UNPACKED: w.unpacks = true; break;
    case TELL_RELOADED:
        w.reloads = away == AWAY_LAYERS;
        w.unloads = away == AWAY_TENSORS;
        w.back = away == AWAY_MODULES;
        break;
    case TELL_REMADE_SPLIT: w.unpacks = w.remakes = w.split = true; break;
    case TELL_SPLIT: w.split = true; break;
    case TELL_BACKWARD:
    case TELL_WEIGHTS:
    case TELL_REMADE_WEIGHTS:
    case TELL_REMADE_TOPMOST: break;
    }
    walk_backward(&w, how->mode);
}
