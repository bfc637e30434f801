/*
 * What the engine holds while the trace goes on: weights, states, buffers,
 * gathered layers. Owns when they come and go; how many bytes there are
 * engine.c says, in which pieces trace_cut.c.
 */
#include "fold/trace_private.h"

#include "data/constants.h"

#include <string.h>

#include "base/banned.h"

/* Levels that a micro-batch moves, first in the list. */
enum {
    LEVEL_SHARED,
    LEVEL_INPUTS,
    LEVEL_STAGE_INPUT,
    LEVEL_IN_FLIGHT,
    LEVEL_CASTS,
    LEVEL_PAST,
    LEVEL_FRAMES,
    LEVEL_FAR,
    LEVEL_GRAPH,
    LEVEL_AHEAD,
    LEVEL_OUTPUTS,
    FIXED
};

/* ---- levels ---- */

static void level_push(struct tracer *r, struct level *l, hold_id id)
{
    if (id == NO_HOLD)
        return;
    if (l->n == l->capacity) {
        const size_t more = l->capacity == 0 ? 16 : 2 * l->capacity;
        hold_id *bigger = ARENA_NEW(r->a, hold_id, more);
        if (bigger == NULL) {
            r->failed = true;
            return;
        }
        for (size_t i = 0; i < l->n; i++)
            bigger[i] = l->piece[i];
        l->piece = bigger;
        l->capacity = more;
    }
    l->piece[l->n++] = id;
    l->bytes += r->hold[id].bytes;
}

void level_piece(struct tracer *r, struct level *l, uint64_t bytes)
{
    const struct term_info *info = term_info(l->term);
    const bool named = info->component == COMP_TEMPORARY && l->what[0] != '\0';
    const char *name = named ? l->what : info->label;
    r->waits = l->waits;
    level_push(r, l,
               tracer_birth(r, info->component, name, bytes,
                            engine_stream(r->s->run, l->term, l->what)));
    r->waits = false;
}

/* What goes last is made first, so that it stays where it is. */
static void level_shared(struct tracer *r, struct level *l, uint64_t bytes)
{
    const uint64_t kept = min_u64(r->s->shared_kept, bytes);
    const uint64_t late = max_u64(min_u64(r->s->shared_late, bytes), kept);
    level_piece(r, l, kept);
    level_piece(r, l, late - kept);
    level_piece(r, l, bytes - late);
}

/* What is there already only grows by the difference. */
static void level_grow(struct tracer *r, struct level *l)
{
    if (l->want <= l->bytes)
        return;
    if (l == &r->level[LEVEL_SHARED] && l->bytes == 0)
        level_shared(r, l, l->want);
    else if (l->bytes == 0)
        level_fill(r, l, l->want);
    else
        level_add(r, l, l->want - l->bytes);
}

/* The latest goes first; what went too far comes again. */
static void level_shrink(struct tracer *r, struct level *l)
{
    while (l->bytes > l->want && l->n > 0) {
        hold_id id = l->piece[--l->n];
        l->bytes -= r->hold[id].bytes;
        tracer_death(r, &id);
    }
}

static uint32_t level_find(struct tracer *r, enum term term, const char *what,
                           bool waits)
{
    uint32_t i = FIXED;
    while (i < r->n_levels
           && (r->level[i].term != term || r->level[i].waits != waits
               || strcmp(r->level[i].what, what) != 0))
        i++;
    if (i == LEVEL_MAX) {
        r->failed = true;
        return 0;
    }
    if (i == r->n_levels)
        r->level[r->n_levels++] =
            (struct level){ .term = term, .what = what, .waits = waits };
    return i;
}

void levels_take(struct tracer *r, enum term term, const char *what, hold_id id)
{
    level_push(r, &r->level[level_find(r, term, what, false)], id);
}

bool levels_give(struct tracer *r, enum term term, const char *what,
                 uint64_t bytes)
{
    struct level *l = &r->level[level_find(r, term, what, false)];
    size_t i = 0;
    while (i < l->n && round_alloc(r->hold[l->piece[i]].bytes) != bytes)
        i++;
    if (i == l->n)
        return false;
    l->bytes -= r->hold[l->piece[i]].bytes;
    tracer_death(r, &l->piece[i]);
    for (l->n--; i < l->n; i++)
        l->piece[i] = l->piece[i + 1];
    return true;
}

void levels_frame(struct tracer *r, hold_id id)
{
    level_push(r, &r->level[LEVEL_FRAMES], id);
}

void levels_linger(struct tracer *r, hold_id id, bool past)
{
    level_push(r, &r->level[past ? LEVEL_PAST : LEVEL_CASTS], id);
}

/* Backward begins: it stays where it is under another name. */
static void keep_past(struct tracer *r)
{
    struct level *l = &r->level[LEVEL_PAST];
    if (l->n == 0)
        return;
    struct level *saved =
        &r->level[level_find(r, TERM_SAVED_LAYERS, PAST_LABEL, false)];
    for (size_t i = 0; i < l->n; i++) {
        const uint64_t bytes = r->hold[l->piece[i]].bytes;
        level_push(r, saved,
                   tracer_handed(r, &l->piece[i], COMP_ACTIVATIONS, PAST_LABEL,
                                 bytes));
    }
    l->n = 0;
    l->bytes = 0;
}

/* DeepSpeed before 0.13.3 ran a step without gradients as it started. */
static bool makes_moments_early(const struct run *run)
{
    return run_pipelines(run) && run->prec.master != DT_NONE;
}

/* Not yet there: moments before the first step, flat gradients before the first
 * backward, outputs of a micro-batch before the first. */
static bool is_to_come(const struct tracer *r, enum term term)
{
    if (r->step == TRACE_LATER)
        return false;
    if (term == TERM_OUTPUTS)
        return !r->done;
    if (term == TERM_GRAD_SHARDS)
        return r->phase == PHASE_REST && run_keeps_flat_grads(r->s->run);
    return term == TERM_MOMENTS && r->phase != PHASE_STEP
           && !makes_moments_early(r->s->run);
}

void levels_drop(struct tracer *r, enum term term)
{
    for (uint32_t i = FIXED; i < r->n_levels; i++)
        if (r->level[i].term == term) {
            r->level[i].want = 0;
            level_shrink(r, &r->level[i]);
        }
}

void levels_reshard(struct tracer *r)
{
    const struct run *run = r->s->run;
    for (uint32_t i = FIXED; i < r->n_levels; i++) {
        struct level *l = &r->level[i];
        if (run->engine != ENGINE_FSDP2 || l->term != TERM_GATHERED
            || strcmp(l->what, UNIT_LABEL) != 0)
            continue;
        l->want = 0;
        level_shrink(r, l);
    }
}

/* A workspace a thread, made when it first multiplies matrices
 * (aten/src/ATen/cuda/CublasHandlePool.cpp, getCurrentCUDABlasHandle): in the
 * midst of what is there then. Only where it lies differs from one made
 * early. */
static bool is_in_turn(const struct tracer *r, const struct level *l)
{
    return r->sim != NULL && r->step == TRACE_FIRST && l->term == TERM_WORKSPACE
           && strcmp(l->what, CUBLAS_LABEL) == 0;
}

static uint64_t made_in_turn(const struct tracer *r, const struct level *l)
{
    const unsigned threads = r->multiplied[0] + r->multiplied[1];
    return l->whole / CUBLAS_WORKSPACES * threads;
}

void levels_product(struct tracer *r)
{
    const bool back = r->phase == PHASE_BACKWARD || r->phase == PHASE_RECOMPUTE;
    if (r->multiplied[back])
        return;
    r->multiplied[back] = true;
    for (uint32_t i = FIXED; i < r->n_levels; i++) {
        struct level *l = &r->level[i];
        if (!is_in_turn(r, l))
            continue;
        l->pieces = 1;
        l->want = made_in_turn(r, l);
        level_grow(r, l);
    }
}

static void set_levels(struct tracer *r, const struct targets *t)
{
    for (uint32_t i = FIXED; i < r->n_levels; i++)
        r->level[i].want = 0;
    uint64_t less = r->apart < 0 ? (uint64_t)-r->apart : 0;
    for (uint32_t i = 0; i < t->n; i++) {
        struct level *l = &r->level[t->v[i].level];
        l->pieces = t->v[i].pieces;
        if (is_to_come(r, l->term))
            continue;
        l->whole = t->v[i].bytes;
        l->want = is_in_turn(r, l) ? made_in_turn(r, l) : l->whole;
        if (l->term == TERM_GRADS)
            l->want -= min_u64(l->want, r->missing);
        if (l->term == TERM_PIPE && less > 0) { /* counted as kept */
            const uint64_t here = min_u64(l->want, less);
            l->want -= here;
            less -= here;
        }
    }
    for (uint32_t i = 0; i < r->n_levels; i++)
        level_shrink(r, &r->level[i]);
    for (uint32_t i = 0; i < r->n_levels; i++)
        level_grow(r, &r->level[i]);
}

/* ---- targets ---- */

struct collect {
    struct tracer *r;
    struct target v[LEVEL_MAX];
    uint32_t n;
    bool waits;
};

static void collect(void *ctx, const struct put_event *e)
{
    struct collect *c = ctx;
    /* these stay where they are, whatever they are called meanwhile */
    const bool moves = e->term == TERM_GRADS || e->term == TERM_GRAD_SHARDS
                       || e->term == TERM_OUTPUTS;
    const uint32_t level =
        level_find(c->r, e->term, moves ? "" : e->what, c->waits);
    uint32_t i = 0;
    while (i < c->n && c->v[i].level != level)
        i++;
    if (i == LEVEL_MAX)
        return;
    if (i == c->n)
        c->v[c->n++] = (struct target){ level, 0, e->pieces };
    c->v[i].bytes += e->bytes;
}

static bool keep_targets(struct targets *t, const struct collect *c)
{
    t->v = ARENA_NEW(c->r->length_a, struct target, (size_t)c->n + 1);
    if (t->v == NULL)
        return false;
    for (uint32_t i = 0; i < c->n; i++)
        t->v[i] = c->v[i];
    t->n = c->n;
    return true;
}

/* What no one may use yet matters to the allocator alone. */
static void add_waits(struct collect *c, uint32_t position, bool back)
{
    struct moment m = { .op = "" };
    struct put p = { .m = &m, .only = COMP_COUNT, .each = collect, .ctx = c };
    if (c->r->sim == NULL)
        return;
    c->waits = true;
    engine_waits(&p, c->r->s, position, back);
}

/* What levels are kept for: tracer.at. */
enum at {
    AT_FORWARD,
    AT_BACKWARD,
    AT_DONE,
    AT_COPIES_OUT = AT_DONE + 3,
    AT_WEIGHTS,
    AT_COPIES_BACK
};

static bool goes_back(enum at at)
{
    return at == AT_BACKWARD || at == AT_WEIGHTS || at == AT_COPIES_BACK;
}

static void collect_at(struct tracer *r, struct collect *c, uint32_t position,
                       enum at at)
{
    const bool back = goes_back(at);
    struct moment m = { .op = "", .beside = r->beside };
    struct put p = { .m = &m,
                     .only = COMP_COUNT,
                     .copies_out = at == AT_COPIES_OUT || at == AT_COPIES_BACK,
                     .slot = at == AT_WEIGHTS ? SLOT_WEIGHT : SLOT_BACKWARD,
                     .each = collect,
                     .ctx = c };
    engine_rest(&p, r->s);
    if (back)
        engine_backward(&p, r->s, position, r->later);
    else {
        loop_forward(&p, r->s);
        engine_forward(&p, r->s, position, r->later);
    }
    add_waits(c, position, back);
}

static void targets_at(struct tracer *r, struct targets *t, uint32_t position,
                       enum at at)
{
    struct collect c = { .r = r };
    collect_at(r, &c, position, at);
    if (!keep_targets(t, &c))
        r->failed = true;
}

static struct targets *targets_of(struct tracer *r, uint32_t position,
                                  unsigned what)
{
    return &r->at[TARGETS * (size_t)position + 2 * what + (r->later ? 1u : 0u)];
}

void levels_done(struct tracer *r, enum unit_done when)
{
    struct targets *t = targets_of(r, r->position, AT_DONE + (unsigned)when);
    struct moment m = { .op = "" };
    struct collect c = { .r = r };
    struct put p = { .m = &m, .only = COMP_COUNT, .each = collect, .ctx = &c };
    if (t->v == NULL) {
        engine_rest(&p, r->s);
        engine_unit_done(&p, r->s, r->position, r->later, when);
        add_waits(&c, r->position, true);
        if (!keep_targets(t, &c))
            r->failed = true;
    }
    set_levels(r, t);
}

/* Only what an engine's terms say changes: not asked again where they say the
 * same. */
static bool same_levels(const struct stage *s, const struct bucket_fill *a,
                        const struct bucket_fill *b)
{
    if (bucket_moves(s)
        && (a->in.elems != b->in.elems || a->low.elems != b->low.elems
            || a->again != b->again || a->again_kept != b->again_kept))
        return false;
    return a->in.large == b->in.large && a->low.large == b->low.large
           && a->cast == b->cast && a->partition == b->partition
           && a->kept == b->kept && a->held == b->held && a->copied == b->copied
           && a->packed == b->packed && a->added == b->added
           && a->normed == b->normed && a->begun == b->begun;
}

void levels_bucket(struct tracer *r, const struct bucket_fill *fill)
{
    struct moment m = { .op = "" };
    struct collect c = { .r = r };
    struct put p = {
        .m = &m, .only = COMP_COUNT, .fill = fill, .each = collect, .ctx = &c
    };
    if (same_levels(r->s, fill, &r->bucket))
        return;
    r->bucket = *fill;
    engine_rest(&p, r->s);
    engine_backward(&p, r->s, r->position, r->later);
    add_waits(&c, r->position, true);
    const struct targets t = { .v = c.v, .n = c.n };
    set_levels(r, &t);
}

/* In the head's block up to where the model's forward returns. */
static bool is_inside(const struct tracer *r, enum phase phase)
{
    return phase == PHASE_LOSS && r->s->walk[r->s->p->head].returns;
}

static uint64_t shared_wanted(const struct tracer *r, enum phase phase,
                              uint32_t position)
{
    const struct stage *s = r->s;
    if (r->slot == SLOT_WEIGHT) /* done, but for its weights */
        return 0;
    if (phase == PHASE_FORWARD)
        return stage_shared_ahead(s, position);
    if (phase == PHASE_RECOMPUTE)
        return stage_shared_again(s, position);
    if (is_inside(r, phase))
        return stage_shared_inside(s);
    return phase == PHASE_LOSS ? s->shared_late
                               : stage_shared_back(s, position);
}

static void levels_for(struct tracer *r, enum phase phase, uint32_t position,
                       enum at at)
{
    const struct stage *s = r->s;
    const bool back = goes_back(at);
    struct targets *t = targets_of(r, position, at);
    struct collect turn = { .r = r }; /* never twice the same */
    struct targets now;
    if (r->beside.is) {
        collect_at(r, &turn, position, at);
        now = (struct targets){ .v = turn.v, .n = turn.n };
        t = &now;
    } else if (t->v == NULL) {
        targets_at(r, t, position, at);
    }
    const bool done = r->slot == SLOT_WEIGHT;
    const uint64_t logits =
        s->run->schedule == SCHED_GPIPE ? pipe_logits(s) : 0;
    r->level[LEVEL_SHARED].want = shared_wanted(r, phase, position);
    r->level[LEVEL_INPUTS].want = done ? 0 : s->inputs;
    r->level[LEVEL_STAGE_INPUT].want = done && !s->graph ? 0 : s->stage_input;
    r->level[LEVEL_IN_FLIGHT].want =
        r->other_micros * (s->shared_kept + s->inputs + logits)
        /* a graph's inputs lie in buffers that are there in any case */
        + (s->graph ? (uint64_t)(r->apart > 0 ? r->apart : 0)
                    : r->other_chunks * s->stage_input);
    const struct prefix *begun = stage_chunk_before(s, position);
    const uint64_t past = back ? 0 : s->before[position].past - begun->past;
    r->level[LEVEL_CASTS].want =
        back ? 0 : s->before[position].lingers - begun->lingers - past;
    r->level[LEVEL_PAST].want = past;
    if (back)
        keep_past(r);
    r->level[LEVEL_FRAMES].want = back ? 0
                                  : is_inside(r, phase)
                                      ? stage_frames_inside(s)
                                      : stage_frames(s, position);
    r->level[LEVEL_GRAPH].want = r->left_sum + r->sent;
    r->level[LEVEL_AHEAD].want =
        stage_ahead(s, position, back, r->other_chunks > 0);
    r->level[LEVEL_OUTPUTS].want = r->outputs;
    r->level[LEVEL_FAR].want = back ? stage_far_gradients(s, position) : 0;
    set_levels(r, t);
    if (back && bucket_fills(s, r->later))
        r->bucket = s->fill[position + 1];
}

void levels_at(struct tracer *r, enum phase phase, uint32_t position)
{
    const bool back = phase == PHASE_BACKWARD || phase == PHASE_RECOMPUTE;
    levels_for(r, phase, position,
               r->slot == SLOT_WEIGHT ? AT_WEIGHTS
               : back                 ? AT_BACKWARD
                                      : AT_FORWARD);
}

void levels_copied_out(struct tracer *r)
{
    levels_for(r, r->phase, r->position, AT_COPIES_OUT);
}

void levels_copied_back(struct tracer *r, uint32_t position)
{
    levels_for(r, PHASE_BACKWARD, position, AT_COPIES_BACK);
}

void levels_ahead(struct tracer *r, uint64_t bytes)
{
    struct level *l = &r->level[LEVEL_AHEAD];
    l->want += bytes;
    level_grow(r, l);
}

/* The model's forward does. */
void levels_return(struct tracer *r)
{
    r->level[LEVEL_SHARED].want = r->s->shared_late;
    r->level[LEVEL_FRAMES].want = stage_frames(r->s, r->position);
    level_shrink(r, &r->level[LEVEL_SHARED]);
    level_shrink(r, &r->level[LEVEL_FRAMES]);
    level_grow(r, &r->level[LEVEL_SHARED]);
    level_grow(r, &r->level[LEVEL_FRAMES]);
}

static bool makes_moments(const struct tracer *r, enum phase phase)
{
    return r->step == TRACE_FIRST && phase == PHASE_STEP
           && !makes_moments_early(r->s->run);
}

static void targets_after(struct tracer *r, struct targets *t, enum phase phase)
{
    struct moment m = { .op = "" };
    struct collect c = { .r = r };
    struct put p = { .m = &m,
                     .only = COMP_COUNT,
                     .makes_moments = makes_moments(r, phase),
                     .each = collect,
                     .ctx = &c };
    engine_rest(&p, r->s);
    if (phase == PHASE_REST) {
        loop_rest(&p, r->s);
        engine_between(&p, r->s);
    } else {
        loop_idle(&p, r->s);
    }
    engine_idle(&p, r->s);
    if (phase != PHASE_REDUCE)
        engine_stepped(&p, r->s);
    if (phase == PHASE_REDUCE)
        engine_reduce(&p, r->s);
    else if (phase == PHASE_CLIP)
        engine_clip(&p, r->s);
    else if (phase == PHASE_STEP)
        engine_step(&p, r->s);
    if (!keep_targets(t, &c))
        r->failed = true;
}

void levels_after(struct tracer *r, enum phase phase)
{
    struct targets *t = &r->after[phase];
    r->here = NULL;
    r->phase = phase;
    if (t->v == NULL)
        targets_after(r, t, phase);
    for (uint32_t i = 0; i < FIXED; i++)
        r->level[i].want = 0;
    r->level[LEVEL_OUTPUTS].want = r->outputs;
    set_levels(r, t);
    if (makes_moments(r, phase)) /* other than in later steps */
        *t = (struct targets){ .n = 0 };
}

void levels_copied_in(struct tracer *r)
{
    struct moment m = { .op = "" };
    struct collect c = { .r = r };
    struct put p = { .m = &m,
                     .only = COMP_COUNT,
                     .copied_in = true,
                     .each = collect,
                     .ctx = &c };
    engine_rest(&p, r->s);
    loop_idle(&p, r->s);
    engine_idle(&p, r->s);
    engine_reduce(&p, r->s);
    const struct targets t = { .v = c.v, .n = c.n };
    set_levels(r, &t);
}

void levels_accumulate(struct tracer *r)
{
    struct targets *t = &r->after[PHASE_ACCUMULATE];
    r->phase = PHASE_ACCUMULATE;
    if (t->v == NULL) {
        struct moment m = { .op = "" };
        struct collect c = { .r = r };
        struct put p = {
            .m = &m, .only = COMP_COUNT, .each = collect, .ctx = &c
        };
        engine_rest(&p, r->s);
        engine_accumulate(&p, r->s);
        if (!keep_targets(t, &c))
            r->failed = true;
    }
    set_levels(r, t);
}

/* ---- sizes ---- */

static void add_size(struct sizes *s, uint64_t elems)
{
    if (elems == 0)
        return;
    s->v[s->n++] = elems;
    s->sum += elems;
}

static void add_block(struct tracer *r, uint32_t position)
{
    const struct stage *s = r->s;
    const struct block *b = &s->p->block[stage_block(s, position)];
    const bool both = s->embed && s->head;
    uint64_t trained = 0, frozen = 0;
    for (uint32_t i = 0; i < b->tensor_count; i++) {
        const struct tensor *t = &s->p->tensor[b->tensor_first + i];
        if (t->role != ROLE_PARAM || t->again
            || (t->tied && b->kind == BLOCK_HEAD && both))
            continue;
        /* in proportion: bytes where an element has no one size */
        const bool mixed = t->trainable && states_mixed_bytes(&s->sum) != 0;
        add_size(t->trainable ? &r->trained : &r->frozen,
                 mixed ? t->bytes : trace_size_of(r, t));
        *(t->trainable ? &trained : &frozen) += t->elems;
    }
    add_size(&r->trained_blocks, trained);
    add_size(&r->frozen_blocks, frozen);
}

static bool sizes_init(struct tracer *r)
{
    const struct stage *s = r->s;
    size_t tensors = 0;
    for (uint32_t i = 0; i < s->n; i++)
        tensors += s->p->block[stage_block(s, i)].tensor_count;
    r->trained.v = ARENA_NEW(r->a, uint64_t, tensors);
    r->frozen.v = ARENA_NEW(r->a, uint64_t, tensors);
    r->unit.v = ARENA_NEW(r->a, uint64_t, tensors);
    r->trained_blocks.v = ARENA_NEW(r->a, uint64_t, s->n);
    r->frozen_blocks.v = ARENA_NEW(r->a, uint64_t, s->n);
    if (r->a->failed)
        return false;
    for (uint32_t i = 0; i < s->n; i++)
        add_block(r, i);
    return true;
}

bool levels_init(struct tracer *r)
{
    static const enum term fixed[FIXED] = {
        [LEVEL_SHARED] = TERM_SHARED,
        [LEVEL_INPUTS] = TERM_INPUTS,
        [LEVEL_STAGE_INPUT] = TERM_SAVED_LAYERS,
        [LEVEL_IN_FLIGHT] = TERM_IN_FLIGHT,
        [LEVEL_CASTS] = TERM_FORWARD_TMP,
        [LEVEL_PAST] = TERM_FORWARD_TMP,
        [LEVEL_FRAMES] = TERM_FORWARD_TMP,
        [LEVEL_FAR] = TERM_BACKWARD_TMP,
        [LEVEL_GRAPH] = TERM_IN_FLIGHT,
        [LEVEL_AHEAD] = TERM_SAVED_LAYERS,
        [LEVEL_OUTPUTS] = TERM_IN_FLIGHT,
    };
    for (uint32_t i = 0; i < FIXED; i++)
        r->level[i] =
            (struct level){ .term = fixed[i], .what = "", .pieces = 1 };
    r->n_levels = FIXED;
    return sizes_init(r);
}
