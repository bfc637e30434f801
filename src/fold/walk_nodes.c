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
    for (uint32_t i = 0; i < w->n_buffers && w->node < LAYER_NODES; i++) {
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
    const struct extremum now = { w->kept, w->tmp, w->wgrad,
                                  w->b->op_first + w->at };
    w->nodes->top[w->node] = w->top;
    w->nodes->end[w->node] = now;
    w->fullest = *extremum_fuller(&w->fullest, &w->top);
    w->top = now;
}

void walk_comes_to(struct walk *w, unsigned node, bool back)
{
    while (w->node != node) {
        const unsigned done = w->node;
        const unsigned next = !back       ? done + 1
                              : done == 0 ? LAYER_NODES
                                          : done - 1;
        if (back) { /* which lets go of what it had in hand */
            w->node = next;
            walk_take_in_hand(w);
            w->node = done;
        }
        node_ends(w);
        w->node = next;
        walk_tell(w, (struct walk_event){ .what = WALK_NODE, .key = next });
    }
    if (node == LAYER_NODES)
        w->top = w->fullest;
}
