/*
 * A forward of one micro-batch beside a backward of another, layer by layer and
 * part by part, so that the tokens of the one are on their way to experts, or
 * back, while the other computes: Megatron's --overlap-moe-expert-parallel-comm.
 * Owns the order of the parts and what is alive of either pass between them.
 * [Megatron-LM core/models/common/model_chunk_schedule_plan.py, run;
 * docs/method.md eq. ep-overlap]
 */
#include "fold/overlap.h"

#include "base/banned.h"

/* TransformerLayerSchedulePlan.run */
struct turn_of {
    bool back;
    enum layer_node node;
};
enum { TURNS_MAX = 2 * NODE_POST + 2 };
struct turns_of {
    uint32_t n;
    struct turn_of turn[TURNS_MAX];
};
#define TURN(is_back, part)                                                    \
    {                                                                          \
        is_back, NODE_##part                                                   \
    }
static const struct turns_of turns[2][2] = {
    { { 8,
        { TURN(true, COMBINE), TURN(false, ATTENTION), TURN(true, EXPERTS),
          TURN(false, DISPATCH), TURN(true, DISPATCH), TURN(false, EXPERTS),
          TURN(false, COMBINE), TURN(true, ATTENTION) } },
      /* ... with ep_overlap_early_attn_memory_release */
      { 8,
        { TURN(true, COMBINE), TURN(false, ATTENTION), TURN(true, EXPERTS),
          TURN(false, DISPATCH), TURN(true, DISPATCH), TURN(true, ATTENTION),
          TURN(false, EXPERTS), TURN(false, COMBINE) } } },
    /* ... with delay_wgrad_compute */
    { { 10,
        { TURN(true, COMBINE), TURN(false, ATTENTION), TURN(true, EXPERTS),
          TURN(false, DISPATCH), TURN(true, EXPERTS_WEIGHTS),
          TURN(true, DISPATCH), TURN(false, EXPERTS), TURN(false, COMBINE),
          TURN(true, ATTENTION), TURN(true, ATTENTION_WEIGHTS) } },
      { 10,
        { TURN(true, COMBINE), TURN(false, ATTENTION), TURN(true, EXPERTS),
          TURN(false, DISPATCH), TURN(true, EXPERTS_WEIGHTS),
          TURN(true, DISPATCH), TURN(true, ATTENTION), TURN(false, EXPERTS),
          TURN(false, COMBINE), TURN(true, ATTENTION_WEIGHTS) } } }
};

/* The passes as they go. */
struct passes {
    const struct stage *s;
    const struct overlap *o;
    uint64_t now[2]; /* alive of the forward, the backward */
    uint32_t next;   /* the first position that the forward has not come to */
    uint32_t last;   /* the lowest one that the backward has */
    bool done;       /* ... with all of it */
    overlap_fn *each;
    void *ctx;
};

static uint64_t of_micro_batch(const struct stage *s)
{
    return s->shared_kept + s->inputs;
}

/* What a pass has all along: a micro-batch's own counts with its first chunk. */
static uint64_t own(const struct stage *s, uint32_t chunk)
{
    return s->stage_input + (chunk == 0 ? of_micro_batch(s) : 0);
}

static bool has_embedding(const struct stage *s, uint32_t chunk)
{
    return s->embed && chunk == 0;
}

static bool has_head(const struct stage *s, uint32_t chunk)
{
    return s->head && chunk == s->chunks - 1;
}

/* Kept by a chunk's positions before one. */
static uint64_t kept_before(const struct stage *s, uint32_t chunk,
                            uint32_t position)
{
    const struct prefix *from = &s->before[stage_chunk_first(s, chunk)];
    const struct prefix *to = &s->before[position];
    const bool table = has_embedding(s, chunk) && position > 0;
    return to->kept_layers - from->kept_layers
           + (table ? s->walk[s->p->embed].kept : 0);
}

/* One of its own, that predicts tokens after the next. */
static bool head_has_layer(const struct stage *s)
{
    const struct block *b = &s->p->block[s->p->head];
    return b->op_count > 0 && s->p->op[b->op_first].node != NODE_POST;
}

static struct span layers_of(const struct stage *s, uint32_t chunk)
{
    return (struct span){
        stage_chunk_first(s, chunk) + (has_embedding(s, chunk) ? 1u : 0u),
        stage_chunk_first(s, chunk + 1)
            - (has_head(s, chunk) && !head_has_layer(s) ? 1u : 0u)
    };
}

static const struct block_walk *walk_at(const struct stage *s,
                                        uint32_t position)
{
    return &s->walk[stage_block(s, position)];
}

/* Alive of a forward when a block, or a part of a layer, is done. */
static uint64_t after_forward(const struct passes *x, uint32_t position,
                              enum layer_node node)
{
    const struct stage *s = x->s;
    const uint32_t chunk = x->o->forward;
    const struct block_walk *w = walk_at(s, position);
    const uint64_t here = w->overlap != NULL
                              ? extremum_total(&w->overlap->forward.end[node])
                              : w->kept + (w->keeps_output ? 0 : w->output);
    /* the embedding's is counted there */
    const bool table = s->embed && position == 0;
    return own(s, chunk) + here + (table ? 0 : kept_before(s, chunk, position));
}

static uint64_t after_backward(const struct passes *x, uint32_t position,
                               enum layer_node node)
{
    const struct stage *s = x->s;
    const uint32_t chunk = x->o->backward;
    const struct block_walk *w = walk_at(s, position);
    const enum wgrad_mode mode = engine_wgrad_mode(s, x->o->later);
    const uint64_t here =
        s->embed && position == 0 ? 0
        : w->overlap != NULL
            ? extremum_total(&w->overlap->backward[mode].end[node])
            : w->input;
    return own(s, chunk) + here + kept_before(s, chunk, position);
}

static bool has_forward(const struct passes *x)
{
    return x->o->forward < x->s->chunks;
}

static bool has_backward(const struct passes *x)
{
    return x->o->backward < x->s->chunks;
}

/* A dispatcher's probabilities are in the graph of the part that routed last, up
 * to the layer's input, a leaf, with its gradient: until the next forward routes,
 * taken to be when it comes to the layer. */
static void find_stale(const struct passes *x, struct beside *to)
{
    const struct stage *s = x->s;
    uint32_t stale = x->next;
    if (has_backward(x))
        stale = (uint32_t)max_u64(stale, x->done ? x->last : x->last + 1);
    to->stale = stale < s->n ? stale : s->n;
    to->begins =
        has_backward(x) && x->done && to->stale == x->last && x->last < s->n;
}

/* Of `node`, or of all of a block (LAYER_NODES). */
static bool step(struct passes *x, bool back, uint32_t position, unsigned node,
                 bool inner)
{
    const struct stage *s = x->s;
    const uint32_t chunk = back ? x->o->backward : x->o->forward;
    const bool whole = node == LAYER_NODES;
    const bool head = s->head && position + 1 == s->n;
    struct overlap_step to = {
        .back = back,
        .inner = inner,
        .at = { .phase = back   ? PHASE_BACKWARD
                         : head ? PHASE_LOSS
                                : PHASE_FORWARD,
                .position = position,
                .later = x->o->later,
                .beside = { .is = true,
                            .node = (uint8_t)(whole ? 0 : node + 1),
                            .others = x->o->others
                                      - (chunk > 0 ? of_micro_batch(s) : 0),
                            .pass = x->now[!back] } }
    };
    if (!back)
        x->next = position + 1;
    find_stale(x, &to.at.beside);
    if (!x->each(x->ctx, &to))
        return false;
    const enum layer_node done = whole ? NODE_POST : (enum layer_node)node;
    x->now[back] = back ? after_backward(x, position, done)
                        : after_forward(x, position, done);
    if (back) {
        x->last = position;
        x->done =
            whole || node == NODE_ATTENTION || node == NODE_ATTENTION_WEIGHTS;
    }
    return true;
}

/* Layers of a kind on either side. */
static bool is_inner(const struct stage *s, uint32_t position)
{
    const uint32_t b = stage_block(s, position);
    return stage_block(s, position - 1) == b
           && stage_block(s, position + 1) == b;
}

/* Nearer to each other than this the passes' layers cross in this turn, the one
 * before or the one after: stale modules become fewer there. */
enum { CROSSING = 3 };

/* The other pass's turns are nobody's; the last layer's attention's weights have
 * theirs when its gradient has been sent. */
static bool take_turns(struct passes *x, const uint32_t at[2], bool there,
                       bool back, bool last, bool inner)
{
    const struct run *run = x->s->run;
    const struct turns_of *t = &turns[run->delay_wgrad][run->ep_overlap_early];
    for (uint32_t k = 0; k < t->n; k++) {
        const struct turn_of *turn = &t->turn[k];
        if (!(turn->back ? back : there)
            || (last && turn->node == NODE_ATTENTION_WEIGHTS))
            continue;
        if (!step(x, turn->back, at[turn->back], turn->node, inner))
            return false;
    }
    return true;
}

static bool run_layers(struct passes *x, struct span f, struct span b)
{
    const struct stage *s = x->s;
    const uint32_t nf = f.end - f.first, nb = b.end - b.first;
    const uint32_t n = nf > nb ? nf : nb;
    for (uint32_t i = 0; i < n; i++) {
        const bool there = i < nf, back = i < nb;
        const uint32_t at[2] = { f.first + i, b.end - 1 - i };
        const bool cross = at[0] < at[1] + CROSSING && at[1] < at[0] + CROSSING;
        const bool inner = i > 0 && i + 1 < nf && i + 1 < nb && !cross
                           && is_inner(s, at[0]) && is_inner(s, at[1]);
        if (!take_turns(x, at, there, back, i + 1 == nb, inner))
            return false;
    }
    return nb == 0 || !s->run->delay_wgrad
           || step(x, true, b.first, NODE_ATTENTION_WEIGHTS, false);
}

/* Kept by a chunk whose backward has not begun. */
static uint64_t whole_chunk(const struct stage *s, uint32_t chunk)
{
    return own(s, chunk) + s->chunk_kept[chunk]
           + (has_head(s, chunk) ? s->walk[s->p->head].kept : 0);
}

static bool passes_begin(struct passes *x)
{
    const struct stage *s = x->s;
    const uint32_t f = x->o->forward, b = x->o->backward;
    x->next = has_forward(x) ? stage_chunk_first(s, f) : 0;
    x->last = has_backward(x) ? stage_chunk_first(s, b + 1) : 0;
    x->now[0] = has_forward(x) ? own(s, f) : 0;
    x->now[1] = has_backward(x) ? whole_chunk(s, b) : 0;
    return !has_forward(x) || !has_embedding(s, f)
           || step(x, false, 0, LAYER_NODES, false);
}

bool overlap_steps(const struct stage *s, const struct overlap *o,
                   overlap_fn *each, void *ctx)
{
    struct passes x = { .s = s, .o = o, .each = each, .ctx = ctx };
    const struct span none = { 0, 0 };
    const uint32_t head = s->n - 1;
    const unsigned post =
        s->head && head_has_layer(s) ? NODE_POST : LAYER_NODES;
    const bool f = has_forward(&x), b = has_backward(&x);
    if (!passes_begin(&x))
        return false;
    if (b && has_head(s, o->backward) && !step(&x, true, head, post, false))
        return false;
    if (!run_layers(&x, f ? layers_of(s, o->forward) : none,
                    b ? layers_of(s, o->backward) : none))
        return false;
    if (f && has_head(s, o->forward) && !step(&x, false, head, post, false))
        return false;
    return !b || !has_embedding(s, o->backward)
           || step(&x, true, 0, LAYER_NODES, false);
}

/* ---- which passes meet ---- */

static uint64_t in_flight_beside(const struct stage *s, const struct slot *slot,
                                 const struct slot *other)
{
    uint64_t micros = slot->other_micros + (slot->chunk > 0 ? 1 : 0);
    uint64_t chunks = slot->other_chunks;
    if (other != NULL) {
        micros -= other->chunk == 0 ? 1 : 0;
        chunks--;
    }
    return slot->kept + micros * of_micro_batch(s) + chunks * s->stage_input;
}

struct overlap overlap_of(const struct stage *s, const struct slot *forward,
                          const struct slot *backward)
{
    const struct slot *one = forward == NULL ? backward : forward;
    return (struct overlap){
        .forward = forward == NULL ? s->chunks : forward->chunk,
        .backward = backward == NULL ? s->chunks : backward->chunk,
        .later = backward == NULL ? one->later : backward->later,
        .others = in_flight_beside(s, one, one == forward ? backward : NULL)
    };
}

static bool note_passes(void *ctx, const struct slot *forward,
                        const struct slot *backward)
{
    const struct stage *s = ctx;
    const struct overlap o = overlap_of(s, forward, backward);
    uint64_t *most =
        &s->met[2 * ((s->chunks + 1) * o.backward + o.forward) + o.later];
    *most = *most == NEVER ? o.others : max_u64(*most, o.others);
    return true;
}

void overlap_kept(struct stage *s, uint64_t micros)
{
    for (uint32_t i = 0; i < overlap_room(s->chunks); i++)
        s->met[i] = NEVER;
    schedule_overlapped(s, &micros, note_passes, s);
}

bool overlap_next(const struct stage *s, struct overlap *o)
{
    const uint32_t sides = s->chunks + 1;
    for (uint32_t i = o->next; s->met != NULL && i < overlap_room(s->chunks);
         i++) {
        if (s->met[i] == NEVER)
            continue;
        o->later = i % 2 != 0;
        o->forward = i / 2 % sides;
        o->backward = i / 2 / sides;
        o->others = s->met[i];
        o->next = i + 1;
        return true;
    }
    return false;
}
