/*
 * A layer's walk part by part, as Megatron schedules its parts one by one: what
 * is alive between them, and what a part's backward has in hand. Knows no
 * schedule. [docs/method.md eq. ep-overlap]
 */
#include "fold/walk_private.h"

#include "base/banned.h"

void walk_take_in_hand(struct walk *w)
{
    for (uint32_t i = 0; i < w->n_buffers; i++) {
        const bool held = w->buffer[i].in_hand;
        w->buffer[i].in_hand = false;
        if (held)
            walk_buffer_release(w, (int32_t)i);
    }
    for (uint32_t i = 0; i < w->n_buffers && w->node <= NODE_POST; i++) {
        w->buffer[i].in_hand = w->buffer[i].refs > 0;
        w->buffer[i].refs += w->buffer[i].in_hand;
    }
}

void walk_begin_nodes(struct walk *w, bool back)
{
    w->fullest = (struct extremum){ 0 };
    w->node = !back                      ? NODE_ATTENTION
              : w->b->kind == BLOCK_HEAD ? NODE_POST
                                         : NODE_COMBINE;
    walk_tell(w, (struct walk_event){ .what = WALK_NODE, .key = w->node });
}

static void node_ends(struct walk *w)
{
    const struct extremum now = walk_now(w);
    w->nodes->top[w->node] = w->top;
    w->nodes->end[w->node] = now;
    w->fullest = *extremum_fuller(&w->fullest, &w->top);
    w->top = now;
}

/* A part's weights have theirs after it [core/models/common/
 * model_chunk_schedule_plan.py, TransformerLayerSchedulePlan.run; TransformerEngine
 * pytorch/module/_common.py, WeightGradStore]. */
static unsigned node_below(const struct walk *w)
{
    switch ((enum layer_node)w->node) {
    case NODE_ATTENTION:
        return w->delays ? NODE_ATTENTION_WEIGHTS : LAYER_NODES;
    case NODE_EXPERTS: return w->delays ? NODE_EXPERTS_WEIGHTS : NODE_DISPATCH;
    case NODE_EXPERTS_WEIGHTS: return NODE_DISPATCH;
    case NODE_DISPATCH: return NODE_ATTENTION;
    case NODE_COMBINE: return NODE_EXPERTS;
    case NODE_POST: return NODE_COMBINE;
    case NODE_ATTENTION_WEIGHTS:
    case LAYER_NODES: break;
    }
    return LAYER_NODES;
}

static unsigned node_above(const struct walk *w)
{
    return w->node == NODE_POST ? LAYER_NODES : w->node + 1;
}

void walk_comes_to(struct walk *w, unsigned node, bool back)
{
    while (w->node != node) {
        const unsigned done = w->node;
        const unsigned next = back ? node_below(w) : node_above(w);
        if (back) { /* which lets go of what it had in hand */
            w->node = next;
            walk_take_in_hand(w);
            w->node = done;
        }
        node_ends(w);
        w->node = next;
        walk_tell(w, (struct walk_event){ .what = WALK_NODE, .key = next });
        if (next == NODE_EXPERTS_WEIGHTS || next == NODE_ATTENTION_WEIGHTS)
            walk_node_weights(w, done);
    }
    if (node == LAYER_NODES)
        w->top = w->fullest;
}
