/*
 * Lives through a step: tells the walks of every block of every micro-batch,
 * one after the other in the order of the schedule, and between them moves the
 * engine's buffers to where they are at each position. Owns the order of
 * events; every number comes from the walks and the engine.
 */
#include "fold/trace.h"

#include "base/banned.h"

enum { NO_ID = 0 };

/* What is alive of one block of one micro-batch. */
struct resident {
    uint32_t *slot; /* ids by slot, NO_ID when dead */
    uint32_t checkpoint;
};

/* What the engine holds of one term: allocations, the latest last. */
struct level {
    struct trace_event *piece;
    size_t n, capacity;
    uint64_t bytes;
};

struct tracer {
    struct trace *t;
    struct memory_fold *f;
    const struct stage *s;
    uint64_t regions;
    struct resident *resident; /* [micro-batches][positions] */
    uint32_t *buffer;          /* ids of gradients of the running block */
    struct level level[TERM_COUNT];
    struct trace_event *wgrad; /* births of the running block's */
    uint32_t n_wgrads;
    uint32_t workspace, again;
    /* where we are */
    enum phase phase;
    uint32_t position, micro;
    uint32_t others; /* micro-batches in flight beside this one */
    struct resident *here;
    uint32_t hidden_slot; /* slot of the block's input */
    uint32_t skip;        /* slot that is not told, + 1: the checkpoint */
};

/* ---- events ---- */

static void push(struct trace *t, struct trace_event e)
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

static const char *block_name(const struct tracer *r)
{
    if (r->here == NULL)
        return "";
    return r->s->p->block[stage_block(r->s, r->position)].name;
}

static uint32_t born(struct tracer *r, enum component c, const char *name,
                     uint64_t bytes)
{
    if (bytes == 0)
        return NO_ID;
    const uint32_t id = ++r->t->next_id;
    push(r->t, (struct trace_event){ .bytes = bytes,
                                     .id = id,
                                     .birth = true,
                                     .phase = r->phase,
                                     .component = c,
                                     .position = r->position,
                                     .micro_batch = r->micro,
                                     .name = name,
                                     .block = block_name(r) });
    return id;
}

static void died(struct tracer *r, uint32_t *id, enum component c,
                 const char *name, uint64_t bytes)
{
    if (*id == NO_ID || bytes == 0)
        return;
    push(r->t, (struct trace_event){ .bytes = bytes,
                                     .id = *id,
                                     .phase = r->phase,
                                     .component = c,
                                     .position = r->position,
                                     .micro_batch = r->micro,
                                     .name = name,
                                     .block = block_name(r) });
    *id = NO_ID;
}

/* ---- the walks ---- */

static void tensor_event(struct tracer *r, const struct walk_event *e)
{
    if (e->key + 1 == r->skip)
        return;
    const enum component c = e->kept ? COMP_ACTIVATIONS : COMP_TEMPORARY;
    uint32_t *id = &r->here->slot[e->key];
    if (e->birth)
        *id = born(r, c, e->name, e->bytes);
    else
        died(r, id, c, e->name, e->bytes);
}

static void follow(void *ctx, const struct walk_event *e)
{
    struct tracer *r = ctx;
    uint32_t *id = NULL;
    switch (e->what) {
    case WALK_TENSOR: tensor_event(r, e); return;
    case WALK_WGRAD:
        if (born(r, COMP_GRADIENTS, e->name, e->bytes) != NO_ID
            && !r->t->failed)
            r->wgrad[r->n_wgrads++] = r->t->event[r->t->n - 1];
        return;
    case WALK_GRADIENT: id = &r->buffer[e->key]; break;
    case WALK_WORKSPACE: id = &r->workspace; break;
    case WALK_AGAIN: /* births one by one, one death for all */
        if (e->birth)
            r->again = born(r, COMP_TEMPORARY, e->name, e->bytes);
        else
            died(r, &r->again, COMP_TEMPORARY, e->name, e->bytes);
        return;
    }
    if (e->birth)
        *id = born(r, COMP_TEMPORARY, e->name, e->bytes);
    else
        died(r, id, COMP_TEMPORARY, e->name, e->bytes);
}

static const struct block *block_of(const struct tracer *r, uint32_t position)
{
    return &r->s->p->block[stage_block(r->s, position)];
}

static void enter(struct tracer *r, enum phase phase, uint32_t micro,
                  uint32_t position)
{
    r->phase = phase;
    r->micro = micro;
    r->position = position;
    r->here = &r->resident[(size_t)micro * r->s->n + position];
    r->hidden_slot = block_of(r, position)->tensor_count;
    r->skip = 0;
}

/* Slot of a block's result: what the next block takes over. */
static bool output_slot(const struct tracer *r, uint32_t position,
                        uint32_t *slot)
{
    const struct block *b = block_of(r, position);
    if (b->output == TENSOR_NONE)
        return false;
    const tensor_id root = r->s->p->tensor[b->output].storage;
    if (root < b->tensor_first || root - b->tensor_first >= b->tensor_count)
        return false;
    *slot = root - b->tensor_first;
    return true;
}

/* The result changes hands: it goes on as the next block's input. */
static void hand_on(struct tracer *r, uint32_t position)
{
    uint32_t slot;
    if (!output_slot(r, position, &slot))
        return;
    const struct block_walk *w = &r->f->walk[stage_block(r->s, position)];
    uint32_t *id = &r->here->slot[slot];
    died(r, id, COMP_TEMPORARY, "hidden states", w->output);
}

static void forward_block(struct tracer *r, enum walk_pass pass)
{
    walk_tell_forward(r->s->p, block_of(r, r->position), r->regions, pass,
                      &r->f->scratch, follow, r);
    hand_on(r, r->position);
}

/* ---- what the engine holds ---- */

static void level_push(struct tracer *r, struct level *l, struct trace_event e)
{
    if (l->n == l->capacity) {
        const size_t more = l->capacity == 0 ? 16 : 2 * l->capacity;
        struct trace_event *bigger =
            ARENA_NEW(r->t->arena, struct trace_event, more);
        if (bigger == NULL) {
            r->t->failed = true;
            return;
        }
        for (size_t i = 0; i < l->n; i++)
            bigger[i] = l->piece[i];
        l->piece = bigger;
        l->capacity = more;
    }
    l->piece[l->n++] = e;
    l->bytes += e.bytes;
}

static void level_grow(struct tracer *r, enum term term, uint64_t bytes)
{
    const struct term_info *info = term_info(term);
    struct level *l = &r->level[term];
    if (bytes > l->bytes
        && born(r, info->component, info->label, bytes - l->bytes) != NO_ID
        && !r->t->failed)
        level_push(r, l, r->t->event[r->t->n - 1]);
}

/* The latest goes first; what went too far comes again. */
static void level_shrink(struct tracer *r, enum term term, uint64_t bytes)
{
    struct level *l = &r->level[term];
    while (l->bytes > bytes && l->n > 0) {
        struct trace_event e = l->piece[--l->n];
        l->bytes -= e.bytes;
        died(r, &e.id, e.component, e.name, e.bytes);
    }
}

static void set_levels(struct tracer *r, const struct moment *m)
{
    for (unsigned t = 0; t < TERM_COUNT; t++)
        level_shrink(r, (enum term)t, m->bytes[t]);
    for (unsigned t = 0; t < TERM_COUNT; t++)
        level_grow(r, (enum term)t, m->bytes[t]);
}

/* The engine at a position, and what a micro-batch has all along. */
static void level_at(struct tracer *r, enum phase phase, uint32_t position,
                     bool later)
{
    struct moment m = { .op = "" };
    struct put p = { .m = &m, .only = COMP_COUNT };
    const bool back = phase == PHASE_BACKWARD || phase == PHASE_RECOMPUTE;
    engine_rest(&p, r->s);
    if (back)
        engine_backward(&p, r->s, position, later);
    else
        engine_forward(&p, r->s, position, later);
    const bool masks = phase == PHASE_FORWARD || phase == PHASE_RECOMPUTE;
    m.bytes[TERM_SHARED] += masks ? r->s->shared : r->s->shared_kept;
    if (!back)
        m.bytes[TERM_FORWARD_TMP] += r->s->before[position].casts;
    m.bytes[TERM_INPUTS] += r->s->inputs;
    m.bytes[TERM_SAVED_LAYERS] += r->s->stage_input;
    m.bytes[TERM_IN_FLIGHT] +=
        r->others * (r->s->shared_kept + r->s->inputs + r->s->stage_input);
    set_levels(r, &m);
}

static void level_after(struct tracer *r, enum phase phase)
{
    struct moment m;
    r->here = NULL;
    r->phase = phase;
    moment_with(&m, r->s, phase, 0, false, NULL, COMP_COUNT);
    set_levels(r, &m);
}

/* ---- micro-batches ---- */

static void micro_forward(struct tracer *r, uint32_t micro, bool later)
{
    const struct stage *s = r->s;
    for (uint32_t i = 0; i < s->n; i++) {
        const bool head = s->head && i == s->n - 1;
        const bool re = stage_recomputed(s, i);
        enter(r, head ? PHASE_LOSS : PHASE_FORWARD, micro, i);
        level_at(r, r->phase, i, later);
        forward_block(r, re ? PASS_CHECKPOINT : PASS_KEEP);
        if (re && stage_group_first(s, i) == i)
            r->here->checkpoint = born(r, COMP_ACTIVATIONS, "checkpoint",
                                       r->f->walk[stage_block(s, i)].input);
    }
}

/* Runs a checkpoint's layers forward again; the result waits. */
static uint32_t recompute_group(struct tracer *r, uint32_t micro, uint32_t last,
                                bool later)
{
    const struct stage *s = r->s;
    const uint32_t first = stage_group_first(s, last);
    const uint64_t output = r->f->walk[stage_block(s, last)].output;
    uint32_t grad = NO_ID;
    for (uint32_t i = first; i <= last; i++) {
        const struct block_walk *w = &r->f->walk[stage_block(s, i)];
        enter(r, PHASE_RECOMPUTE, micro, i);
        level_at(r, PHASE_RECOMPUTE, last, later);
        if (grad == NO_ID)
            grad = born(r, COMP_TEMPORARY,
                        "gradient of the checkpoint's result", w->output);
        if (i == first && w->keeps_input)
            r->skip = r->hidden_slot + 1;
        forward_block(r, PASS_AGAIN);
    }
    died(r, &grad, COMP_TEMPORARY, "gradient of the checkpoint's result",
         output);
    if (!s->run->recompute_reentrant)
        return NO_ID;
    return born(r, COMP_ACTIVATIONS, "recomputed result", output);
}

static void backward_block(struct tracer *r, bool later)
{
    walk_tell_backward(r->s->p, block_of(r, r->position), r->regions,
                       engine_wgrad_mode(r->s, later), &r->f->scratch, follow,
                       r);
    const uint64_t sum =
        block_of(r, r->position)->kind == BLOCK_EMBED
            ? stage_tied_sum(r->s, engine_wgrad_mode(r->s, later))
            : 0;
    uint32_t id = born(r, COMP_TEMPORARY, "sum of tied gradients", sum);
    died(r, &id, COMP_TEMPORARY, "sum of tied gradients", sum);
}

/* A block's own gradients are the engine's from here on: where they were made,
 * or reduced and gone. */
static void hand_over_wgrads(struct tracer *r)
{
    const bool stay = !engine_reduces_blocks(r->s->run);
    for (uint32_t i = 0; i < r->n_wgrads; i++) {
        struct trace_event *e = &r->wgrad[i];
        if (stay)
            level_push(r, &r->level[TERM_GRADS], *e);
        else
            died(r, &e->id, e->component, e->name, e->bytes);
    }
    r->n_wgrads = 0;
}

static void micro_backward(struct tracer *r, uint32_t micro, bool later)
{
    const struct stage *s = r->s;
    uint32_t held = NO_ID;
    for (uint32_t i = s->n; i-- > 0;) {
        const bool re = stage_recomputed(s, i);
        const uint64_t out = r->f->walk[stage_block(s, i)].output;
        if (re && stage_group_last(s, i) == i)
            held = recompute_group(r, micro, i, later);
        enter(r, PHASE_BACKWARD, micro, i);
        level_at(r, PHASE_BACKWARD, i, later);
        if (re && i == stage_group_first(s, i)
            && r->f->walk[stage_block(s, i)].keeps_input)
            r->skip = r->hidden_slot + 1;
        backward_block(r, later);
        hand_over_wgrads(r);
        if (re && i == stage_group_first(s, i)) {
            died(r, &held, COMP_ACTIVATIONS, "recomputed result", out);
            died(r, &r->here->checkpoint, COMP_ACTIVATIONS, "checkpoint",
                 r->f->walk[stage_block(s, i)].input);
        }
    }
}

/* ---- the step ---- */

static bool tracer_init(struct tracer *r, uint32_t micros)
{
    const struct stage *s = r->s;
    const struct program *p = s->p;
    struct arena *a = r->t->arena;
    uint32_t most = 0, operands = 0;
    for (uint32_t b = 0; b < p->n_blocks; b++) {
        most =
            most > p->block[b].tensor_count ? most : p->block[b].tensor_count;
        uint32_t n = 0;
        for (uint32_t k = 0; k < p->block[b].op_count; k++)
            n += p->op[p->block[b].op_first + k].n_in;
        operands = operands > n ? operands : n;
    }
    const size_t cells = (size_t)micros * s->n;
    r->resident = ARENA_NEW(a, struct resident, cells);
    uint32_t *slots = ARENA_NEW(a, uint32_t, cells * (most + 1));
    r->buffer = ARENA_NEW(a, uint32_t, 2 * (size_t)operands + 1);
    r->wgrad = ARENA_NEW(a, struct trace_event, (size_t)operands + 1);
    if (r->resident == NULL || slots == NULL || r->buffer == NULL
        || r->wgrad == NULL)
        return false;
    for (size_t i = 0; i < cells; i++)
        r->resident[i].slot = slots + i * (most + 1);
    return true;
}

/* 1F1B and, where all are in flight, GPipe: forwards until the stage is full,
 * then a backward and a forward in turn. */
static void run_schedule(struct tracer *r, uint32_t micros)
{
    const uint64_t full = r->s->in_flight;
    uint32_t forward = 0, backward = 0;
    while (backward < micros) {
        if (forward < micros && forward - backward < full) {
            r->others = forward - backward;
            micro_forward(r, forward, backward > 0);
            forward++;
        } else {
            r->others = forward - backward - 1;
            micro_backward(r, backward, backward > 0);
            backward++;
        }
    }
}

bool trace_stage(struct trace *t, struct memory_fold *f, const struct stage *s,
                 struct arena *a)
{
    *t = (struct trace){ .arena = a };
    const struct run *run = s->run;
    const uint32_t micros =
        (uint32_t)min_u64(run->grad_accum, s->in_flight + 2);
    struct tracer r = { .t = t, .f = f, .s = s };
    r.regions = run->recompute == RECOMP_SELECTIVE ? run->recompute_modules : 0;
    if (!tracer_init(&r, micros))
        return false;
    level_after(&r, PHASE_REST);
    run_schedule(&r, micros);
    level_after(&r, PHASE_REDUCE);
    level_after(&r, PHASE_CLIP);
    level_after(&r, PHASE_STEP);
    level_after(&r, PHASE_REST);
    return !t->failed;
}
