/*
 * What a step tells, event by event: what is alive, under which name, and what
 * the walk of a block says of it. Owns holds and the list of events; which
 * block comes when is trace.c's.
 */
#include "fold/trace_private.h"

#include "base/banned.h"

/* ---- events ---- */

static void list_event(struct trace *t, struct trace_event e)
{
    if (t->n == t->capacity) {
        const size_t more = t->capacity == 0 ? 1024 : 2 * t->capacity;
        struct trace_event *bigger =
            ARENA_NEW(t->arena, struct trace_event, more);
        if (bigger == NULL) {
            t->failed = true;
            return;
        }
        for (size_t i = 0; i < t->n; i++)
            bigger[i] = t->event[i];
        t->event = bigger;
        t->capacity = more;
    }
    t->event[t->n++] = e;
    t->live = e.birth ? t->live + e.bytes : t->live - e.bytes;
    if (t->live > t->peak) {
        t->peak = t->live;
        t->peak_at = t->n - 1;
    }
}

const struct block *tracer_block(const struct tracer *r, uint32_t position)
{
    return &r->s->p->block[stage_block(r->s, position)];
}

static void tell(struct tracer *r, const struct hold *h, bool birth)
{
    const char *block =
        r->here == NULL ? "" : tracer_block(r, r->position)->name;
    list_event(r->list, (struct trace_event){ .bytes = h->bytes,
                                              .id = h->event,
                                              .birth = birth,
                                              .phase = r->phase,
                                              .component = h->component,
                                              .position = r->position,
                                              .micro_batch = r->micro,
                                              .name = h->name,
                                              .block = block });
}

/* ---- what is alive ---- */

static hold_id hold_new(struct tracer *r)
{
    if (r->spare != NO_HOLD) {
        const hold_id id = r->spare;
        r->spare = r->hold[id].next;
        return id;
    }
    if (r->holds == r->hold_capacity) {
        const uint32_t more = r->holds == 0 ? 1024 : 2 * r->holds;
        struct hold *bigger = ARENA_NEW(r->a, struct hold, more);
        if (bigger == NULL) {
            r->failed = true;
            return NO_HOLD;
        }
        for (uint32_t i = 0; i < r->holds; i++)
            bigger[i] = r->hold[i];
        r->hold = bigger;
        r->hold_capacity = more;
        if (r->holds == 0)
            r->holds = NO_HOLD + 1;
    }
    return r->holds++;
}

hold_id tracer_birth(struct tracer *r, enum component c, const char *name,
                     uint64_t bytes, enum stream stream)
{
    const hold_id id = bytes == 0 ? NO_HOLD : hold_new(r);
    if (id == NO_HOLD)
        return NO_HOLD;
    struct hold *h = &r->hold[id];
    *h = (struct hold){ .bytes = bytes,
                        .name = name,
                        .component = c,
                        .stream = stream,
                        .waits = r->waits };
    if (r->sim != NULL)
        simulate_birth(r, h);
    if (r->list != NULL) {
        h->event = ++r->list->next_id;
        tell(r, h, true);
    }
    return id;
}

void tracer_death(struct tracer *r, hold_id *id)
{
    if (*id == NO_HOLD)
        return;
    struct hold *h = &r->hold[*id];
    if (r->sim != NULL)
        simulate_death(r, h);
    if (r->list != NULL)
        tell(r, h, false);
    h->next = r->spare;
    r->spare = *id;
    *id = NO_HOLD;
}

hold_id tracer_born(struct tracer *r, enum component c, const char *name,
                    uint64_t bytes)
{
    return tracer_birth(r, c, name, bytes, STREAM_COMPUTE);
}

hold_id tracer_handed(struct tracer *r, hold_id *from, enum component c,
                      const char *name, uint64_t bytes)
{
    const hold_id id = *from;
    if (id == NO_HOLD || r->hold[id].bytes != bytes) {
        tracer_death(r, from);
        return tracer_born(r, c, name, bytes);
    }
    struct hold *h = &r->hold[id];
    if (r->list != NULL)
        tell(r, h, false);
    h->component = c;
    h->name = name;
    if (r->list != NULL) {
        h->event = ++r->list->next_id;
        tell(r, h, true);
    }
    *from = NO_HOLD;
    return id;
}

/* ---- the walks ---- */

/* The loop holds it on: tensor.held. */
static bool is_held(const struct tracer *r, const struct walk_event *e)
{
    const struct block *b = tracer_block(r, r->position);
    return r->s->run->keep_outputs && e->key < b->tensor_count
           && r->s->p->tensor[b->tensor_first + e->key].held;
}

/* Variables of the model's forward do: tensor.framed. */
static bool is_framed(const struct tracer *r, const struct walk_event *e)
{
    const struct block *b = tracer_block(r, r->position);
    return !e->birth && !e->kept && e->key < b->tensor_count
           && r->s->p->tensor[b->tensor_first + e->key].framed
           && r->here->slot[e->key] != NO_HOLD;
}

/* ... and of backward: tensor.past. */
static bool is_past(const struct tracer *r, const struct walk_event *e)
{
    const struct block *b = tracer_block(r, r->position);
    return e->key < b->tensor_count
           && r->s->p->tensor[b->tensor_first + e->key].past;
}

/* Of a tensor that is there already. */
static void remade_event(struct tracer *r, const struct walk_event *e)
{
    hold_id *id = &r->here->slot[e->key];
    const hold_id before = *id;
    if (e->birth) {
        *id = tracer_born(r, COMP_ACTIVATIONS, e->name, e->bytes);
        if (*id == NO_HOLD)
            *id = before;
        else
            r->hold[*id].next = before;
    } else if (before != NO_HOLD) {
        const hold_id next = r->hold[before].next;
        tracer_death(r, id);
        *id = next;
    }
}

void tracer_all_die(struct tracer *r, uint32_t slot)
{
    while (r->here->slot[slot] != NO_HOLD)
        remade_event(r, &(struct walk_event){ .key = slot });
}

static void tensor_event(struct tracer *r, const struct walk_event *e)
{
    if (e->key + 1 == r->skip)
        return;
    const enum component c = e->kept ? COMP_ACTIVATIONS : COMP_TEMPORARY;
    hold_id *id = &r->here->slot[e->key];
    if (r->remakes && e->kept)
        remade_event(r, e);
    else if (e->birth && e->key == r->hidden_slot)
        *id = tracer_handed(r, &r->hidden, c, e->name, e->bytes);
    else if (e->birth)
        *id = tracer_born(r, c, e->name, e->bytes);
    else if (e->key == r->hidden_slot && r->keeps_checkpoint)
        r->here->checkpoint =
            tracer_handed(r, id, COMP_ACTIVATIONS, "checkpoint", e->bytes);
    else if (e->lingers && *id != NO_HOLD)
        levels_linger(r,
                      tracer_handed(r, id, COMP_TEMPORARY,
                                    "held to the end of forward", e->bytes),
                      is_past(r, e));
    else if (is_framed(r, e))
        levels_frame(r, tracer_handed(r, id, COMP_TEMPORARY,
                                      "held by variables", e->bytes));
    else if (is_held(r, e))
        levels_take(r, TERM_OUTPUTS, "",
                    tracer_handed(r, id, COMP_ACTIVATIONS,
                                  term_info(TERM_OUTPUTS)->label, e->bytes));
    else
        tracer_death(r, id);
}

/* The first is the gradient of the block's result, the last to die, at the
 * end, that of its input. */
static void gradient_event(struct tracer *r, const struct walk_event *e)
{
    hold_id *id = &r->buffer[e->key];
    if (e->birth) {
        *id = tracer_handed(r, &r->grad, COMP_TEMPORARY, e->name, e->bytes);
    } else if (e->kept) {
        tracer_death(r, &r->grad);
        r->grad = *id;
        *id = NO_HOLD;
    } else {
        tracer_death(r, id);
    }
}

static void stash_event(struct tracer *r, const struct walk_event *e)
{
    if (e->birth)
        r->here->stash[e->key] = tracer_handed(
            r, &r->buffer[e->key], COMP_ACTIVATIONS, e->name, e->bytes);
    else
        tracer_death(r, &r->here->stash[e->key]);
}

/* The engine is told of a gradient, which goes then. */
static void arrives(struct tracer *r)
{
    const struct stage *s = r->s;
    const struct block_walk *w = &s->walk[stage_block(s, r->position)];
    if (!bucket_fills(s, r->later))
        return;
    bucket_arrival(s, r->position, &w->arrival[r->arrived++], &r->turn);
    levels_bucket(r, &r->turn.reduced);
    levels_bucket(r, &r->turn.told);
}

static void arrival_event(struct tracer *r, const struct walk_event *e)
{
    hold_id *id = &r->arriving[e->key];
    if (e->birth) {
        *id = tracer_born(r, COMP_TEMPORARY, e->name, e->bytes);
        return;
    }
    tracer_death(r, id);
    if (bucket_fills(r->s, r->later))
        levels_bucket(r, &r->turn.after);
}

/* Copies that are back when the layer's backward begins. */
static void back_event(struct tracer *r, const struct walk_event *e)
{
    if (e->birth)
        r->back[e->key] = tracer_born(r, COMP_ACTIVATIONS, e->name, e->bytes);
    else
        tracer_death(r, &r->back[e->key]);
}

static void follow(struct tracer *r, const struct walk_event *e)
{
    hold_id *id = NULL;
    switch (e->what) {
    case WALK_TENSOR: tensor_event(r, e); return;
    case WALK_GRADIENT: gradient_event(r, e); return;
    case WALK_WGRAD:
        r->wgrad[r->n_wgrads++] =
            tracer_born(r, COMP_GRADIENTS, e->name, e->bytes);
        return;
    case WALK_WORKSPACE: id = &r->workspace[e->key]; break;
    case WALK_AGAIN: id = &r->again; break; /* one death for all */
    case WALK_RENAMES: levels_drop(r, TERM_OUTPUTS); return;
    case WALK_RETURNS: levels_return(r); return;
    case WALK_PRODUCT: levels_product(r); return;
    case WALK_ARRIVAL: arrival_event(r, e); return;
    case WALK_ARRIVES: arrives(r); return;
    case WALK_STASH: stash_event(r, e); return;
    case WALK_REMADE: tracer_all_die(r, e->key); return;
    case WALK_BACK: back_event(r, e); return;
    case WALK_AHEAD:
        levels_ahead(
            r, stage_comes(r->s, r->position, r->ended++, r->other_chunks > 0));
        return;
    case WALK_NODE: return;
    }
    if (e->birth)
        *id = tracer_born(r, COMP_TEMPORARY, e->name, e->bytes);
    else
        tracer_death(r, id);
}

static void mark_node(struct script *s, uint32_t node)
{
    if (s->node > 0)
        s->to[s->node - 1] = s->n;
    if (node == LAYER_NODES)
        return;
    s->from[node] = s->n;
    s->node = node + 1;
}

static void write_down(void *ctx, const struct walk_event *e)
{
    struct tracer *r = ctx;
    struct script *s = r->writing;
    if (e->what == WALK_NODE) {
        mark_node(s, e->key);
        return;
    }
    if (s->n == s->capacity) {
        const uint32_t more = s->capacity == 0 ? 64 : 2 * s->capacity;
        struct walk_event *bigger =
            ARENA_NEW(r->length_a, struct walk_event, more);
        if (bigger == NULL) {
            r->failed = true;
            return;
        }
        for (uint32_t i = 0; i < s->n; i++)
            bigger[i] = s->v[i];
        s->v = bigger;
        s->capacity = more;
    }
    s->v[s->n++] = *e;
}

static enum walk_way way_of(unsigned which)
{
    static const enum walk_way backward[] = {
        TELL_BACKWARD,       TELL_SPLIT,          TELL_WEIGHTS,
        TELL_UNPACKED,       TELL_RELOADED,       TELL_REMADE_SPLIT,
        TELL_REMADE_WEIGHTS, TELL_REMADE_TOPMOST,
    }; /* as SCRIPT_BACKWARD and what follows */
    if (which == SCRIPT_AWAY)
        return TELL_AWAY;
    return which < SCRIPT_BACKWARD
               ? TELL_FORWARD
               : backward[(which - SCRIPT_BACKWARD) / WGRAD_MODES];
}

static void tell_script(struct tracer *r, const struct block *block,
                        unsigned which)
{
    struct walk_telling how = { .p = r->s->p,
                                .block = block,
                                .regions = r->regions,
                                .way = way_of(which),
                                .tell = write_down,
                                .ctx = r };
    if (which >= SCRIPT_BACKWARD)
        how.mode = (enum wgrad_mode)((which - SCRIPT_BACKWARD) % WGRAD_MODES);
    else
        how.pass = (enum walk_pass)which;
    walk_tell_block(&how, &r->f->scratch);
}

/* One direction of the block at hand. Every layer of a kind is alike, so that
 * the walk is walked once. */
static const struct script *script_of(struct tracer *r, unsigned which)
{
    const uint32_t b = stage_block(r->s, r->position);
    const struct block *block = &r->s->p->block[b];
    struct script *s = &r->script[b][which];
    if (!s->written) {
        r->writing = s;
        tell_script(r, block, which);
        s->written = !r->failed;
    }
    return s;
}

void tracer_play(struct tracer *r, unsigned which)
{
    const struct script *s = script_of(r, which);
    for (uint32_t i = 0; i < s->n && !r->failed; i++)
        follow(r, &s->v[i]);
}

void tracer_play_node(struct tracer *r, unsigned which, enum layer_node node)
{
    const struct script *s = script_of(r, which);
    for (uint32_t i = s->from[node]; i < s->to[node] && !r->failed; i++)
        follow(r, &s->v[i]);
}
