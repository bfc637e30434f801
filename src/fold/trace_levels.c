/*
 * What the engine holds while the trace goes on: weights, states, buffers,
 * gathered layers. Owns how a term is cut into allocations and on which stream
 * they are made; how many bytes there are, and when, engine.c says.
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
    FIXED
};

/* ---- cutting ---- */

enum cut {
    CUT_WHOLE,
    CUT_TENSORS, /* in proportion to the stage's tensors */
    CUT_OWN,     /* as many whole tensors as it takes: a rank's own range */
    CUT_BLOCKS,  /* in proportion to the layers; the edges are one */
    CUT_BUCKETS  /* whole tensors, from the last one on, until one is full */
};

static bool deepspeed(const struct run *run)
{
    return run->engine == ENGINE_DEEPSPEED;
}

/* Weights, and what follows their shape. DeepSpeed's are views into one flat
 * buffer (stages 0 to 2: _flatten_dense_tensors; 3: defragment), so are
 * Megatron's under the distributed optimizer (param_and_grad_buffer.py). FSDP
 * version 1 has one flat parameter a unit. */
static enum cut cut_weights(const struct run *run)
{
    switch (run->engine) {
    case ENGINE_DEEPSPEED:
        return run->zero == 0 && run->prec.master == DT_NONE ? CUT_TENSORS
                                                             : CUT_WHOLE;
    case ENGINE_MEGATRON: return run->zero == 0 ? CUT_TENSORS : CUT_WHOLE;
    case ENGINE_FSDP: return run->zero == 0 ? CUT_TENSORS : CUT_BLOCKS;
    case ENGINE_DDP:
    case ENGINE_FSDP2:
    case ENGINE_MEGATRON_FSDP:
    case ENGINE_COUNT: break;
    }
    return CUT_TENSORS;
}

/* Of the weights that the optimizer steps: Megatron's keeps the pieces of
 * tensors that lie in the rank's range (distrib_optimizer.py). */
static enum cut cut_states(const struct run *run)
{
    if (run->engine == ENGINE_MEGATRON && run->zero != 0)
        return CUT_OWN;
    return cut_weights(run);
}

static enum cut cut_of(const struct run *run, enum term term)
{
    switch (term) {
    case TERM_WEIGHTS: return cut_weights(run);
    case TERM_FROZEN:
        return deepspeed(run) && run->zero < 3 ? CUT_TENSORS : cut_weights(run);
    case TERM_MASTER:
    case TERM_MOMENTS:
    case TERM_STEP_TMP: return cut_states(run);
    case TERM_FP8_WEIGHTS: return CUT_TENSORS;
    case TERM_SECOND:      /* a torch.empty each, as they come */
    case TERM_GRAD_SHARDS: /* ZeRO-2: grads_in_partition, one torch.empty */
        return CUT_WHOLE;
    case TERM_BUCKETS:
        return run->engine == ENGINE_DDP ? CUT_BUCKETS : CUT_WHOLE;
    case TERM_GRADS:
    case TERM_GRAD_BUFFER:
    case TERM_SAVED_EMBED:
    case TERM_SAVED_LAYERS:
    case TERM_SAVED_HEAD:
    case TERM_CHECKPOINTS:
    case TERM_RECOMPUTED:
    case TERM_IN_FLIGHT:
    case TERM_HANDED_OVER:
    case TERM_PIPE:
    case TERM_OUTPUTS:
    case TERM_SHARED:
    case TERM_INPUTS:
    case TERM_FORWARD_TMP:
    case TERM_BACKWARD_TMP:
    case TERM_WGRAD_TMP:
    case TERM_GATHERED:
    case TERM_PREFETCHED:
    case TERM_REDUCE_TMP:
    case TERM_CLIP_TMP:
    case TERM_WORKSPACE:
    case TERM_ROUNDING:
    case TERM_COUNT: break;
    }
    return CUT_WHOLE;
}

/* Moments of a tensor: allocations the optimizer makes for its state. */
static uint64_t moments_of(enum optimizer o)
{
    switch (o) {
    case OPT_ADAMW:
    case OPT_LAMB:
    case OPT_ADAM8BIT:
    case OPT_PAGED_ADAM8BIT:
    case OPT_ADAM4BIT:
    case OPT_ADAFACTOR:
    case OPT_GALORE:
    case OPT_GALORE8BIT:
    case OPT_APOLLO: return 2;
    case OPT_MOMENTUM:
    case OPT_LION:
    case OPT_LION8BIT:
    case OPT_ADAGRAD:
    case OPT_RMSPROP:
    case OPT_MUON:
    case OPT_SGD:
    case OPT_NONE:
    case OPTIMIZER_COUNT: break;
    }
    return 1;
}

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

static void level_piece(struct tracer *r, struct level *l, uint64_t bytes)
{
    const struct term_info *info = term_info(l->term);
    const bool named = info->component == COMP_TEMPORARY && l->what[0] != '\0';
    const char *name = named ? l->what : info->label;
    r->waits = l->waits;
    level_push(r, l,
               tracer_birth(r, info->component, name, bytes,
                            engine_stream(r->s->run, l->term)));
    r->waits = false;
}

/* So many pieces of one size, the last with what is left over. */
static void level_equal(struct tracer *r, struct level *l, uint64_t bytes,
                        uint64_t piece)
{
    for (; bytes > piece && piece > 0 && !r->failed; bytes -= piece)
        level_piece(r, l, piece);
    level_piece(r, l, bytes);
}

/* One tensor's part: of each of `copies`, a piece. */
static uint64_t level_tensor(struct tracer *r, struct level *l, uint64_t bytes,
                             uint64_t copies)
{
    for (uint64_t k = 0; k < copies; k++)
        level_piece(r, l, bytes / copies + (k == 0 ? bytes % copies : 0));
    return bytes;
}

static void level_cut(struct tracer *r, struct level *l, uint64_t bytes,
                      const struct sizes *sizes, uint64_t copies)
{
    uint64_t left = bytes;
    const bool exact = sizes->sum != 0 && bytes % sizes->sum == 0;
    const double each =
        sizes->sum == 0 ? 0 : (double)bytes / (double)sizes->sum;
    for (size_t i = 0; i < sizes->n && !r->failed; i++) {
        uint64_t part = exact ? sizes->v[i] * (bytes / sizes->sum)
                              : (uint64_t)((double)sizes->v[i] * each);
        part = i + 1 == sizes->n ? left : min_u64(part, left);
        left -= level_tensor(r, l, part, copies);
    }
    level_piece(r, l, left);
}

/* Whole tensors, `unit` bytes an element, from the last one on. */
static void level_own(struct tracer *r, struct level *l, uint64_t bytes,
                      uint64_t unit, uint64_t copies)
{
    const struct sizes *sizes = &r->trained;
    uint64_t left = bytes;
    for (size_t i = sizes->n; i-- > 0 && left > 0 && !r->failed;)
        left -= level_tensor(r, l, min_u64(left, sizes->v[i] * unit * copies),
                             copies);
    level_piece(r, l, left);
}

/* A bucket is closed by the tensor that fills it (reducer.cpp,
 * compute_bucket_assignment_by_size), so there are no more than tensors. */
static void level_buckets(struct tracer *r, struct level *l, uint64_t bytes)
{
    const struct sizes *sizes = &r->trained;
    const double each =
        sizes->sum == 0 ? 0 : (double)bytes / (double)sizes->sum;
    uint64_t left = bytes, bucket = 0;
    for (size_t i = sizes->n; i-- > 0 && !r->failed;) {
        bucket += (uint64_t)((double)sizes->v[i] * each);
        if (bucket < r->s->run->ddp_bucket_bytes || bucket > left)
            continue;
        level_piece(r, l, bucket);
        left -= bucket;
        bucket = 0;
    }
    level_piece(r, l, left);
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

static uint64_t unit_of(const struct run *run, enum term term)
{
    return dtype_size(term == TERM_MOMENTS ? run->prec.optim
                                           : run->prec.master);
}

/* An optimizer's loop has temporaries of one tensor in hand, the largest. */
static uint64_t loop_pieces(const struct run *run)
{
    const uint64_t size = update_size(run);
    const uint64_t copies = update_temporaries(run, size);
    if (run->optimizer == OPT_ADAFACTOR) /* in fp32, whatever the weight is */
        return copies * size / dtype_size(DT_FP32);
    return max_u64(copies, 1);
}

static void level_fill(struct tracer *r, struct level *l, uint64_t bytes)
{
    const struct run *run = r->s->run;
    const bool frozen = l->term == TERM_FROZEN;
    const bool scalars = l->term == TERM_MOMENTS && l->pieces > 1;
    const uint64_t copies = l->term == TERM_MOMENTS && !scalars
                                ? moments_of(run->optimizer)
                                : l->pieces;
    if (l == &r->level[LEVEL_SHARED]) {
        level_shared(r, l, bytes);
        return;
    }
    if (l->term == TERM_STEP_TMP && update_loops(run)
        && run->engine != ENGINE_DEEPSPEED) {
        level_equal(r, l, bytes, div_up(bytes, loop_pieces(run)));
        return;
    }
    if (l->pieces == PIECES_TENSORS) {
        level_cut(r, l, bytes, &r->trained, 1);
        return;
    }
    switch (scalars ? CUT_WHOLE : cut_of(run, l->term)) {
    case CUT_WHOLE:
        level_equal(r, l, bytes, div_up(bytes, max_u64(copies, 1)));
        return;
    case CUT_TENSORS:
        level_cut(r, l, bytes, frozen ? &r->frozen : &r->trained, copies);
        return;
    case CUT_OWN: level_own(r, l, bytes, unit_of(run, l->term), copies); return;
    case CUT_BLOCKS:
        level_cut(r, l, bytes, frozen ? &r->frozen_blocks : &r->trained_blocks,
                  copies);
        return;
    case CUT_BUCKETS: level_buckets(r, l, bytes); return;
    }
}

/* What is there already only grows by the difference. */
static void level_grow(struct tracer *r, struct level *l)
{
    if (l->want <= l->bytes)
        return;
    if (l->bytes == 0)
        level_fill(r, l, l->want);
    else
        level_piece(r, l, l->want - l->bytes);
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

void levels_take(struct tracer *r, enum term term, hold_id id)
{
    level_push(r, &r->level[level_find(r, term, "", false)], id);
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

void levels_keep(struct tracer *r, enum term term, const char *what, hold_id id)
{
    level_push(r, &r->level[level_find(r, term, what, false)], id);
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
    for (uint32_t i = 0; i < t->n; i++) {
        struct level *l = &r->level[t->v[i].level];
        l->pieces = t->v[i].pieces;
        if (is_to_come(r, l->term))
            continue;
        l->whole = t->v[i].bytes;
        l->want = is_in_turn(r, l) ? made_in_turn(r, l) : l->whole;
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
enum at { AT_FORWARD, AT_BACKWARD, AT_DONE, AT_COPIES_OUT = AT_DONE + 2 };

static void targets_at(struct tracer *r, struct targets *t, uint32_t position,
                       enum at at)
{
    const bool back = at == AT_BACKWARD;
    struct moment m = { .op = "" };
    struct collect c = { .r = r };
    struct put p = { .m = &m,
                     .only = COMP_COUNT,
                     .copies_out = at == AT_COPIES_OUT,
                     .each = collect,
                     .ctx = &c };
    engine_rest(&p, r->s);
    if (back)
        engine_backward(&p, r->s, position, r->later);
    else {
        loop_forward(&p, r->s);
        engine_forward(&p, r->s, position, r->later);
    }
    add_waits(&c, position, back);
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
    if (phase == PHASE_FORWARD || phase == PHASE_RECOMPUTE)
        return s->shared;
    if (is_inside(r, phase))
        return stage_shared_inside(s);
    return phase == PHASE_LOSS ? s->shared_late
                               : stage_shared_back(s, position);
}

static void levels_for(struct tracer *r, enum phase phase, uint32_t position,
                       enum at at)
{
    const struct stage *s = r->s;
    const bool back = at == AT_BACKWARD;
    struct targets *t = targets_of(r, position, at);
    if (t->v == NULL)
        targets_at(r, t, position, at);
    const bool done = r->slot == SLOT_WEIGHT;
    r->level[LEVEL_SHARED].want = shared_wanted(r, phase, position);
    r->level[LEVEL_INPUTS].want = done ? 0 : s->inputs;
    r->level[LEVEL_STAGE_INPUT].want = done ? 0 : s->stage_input;
    r->level[LEVEL_IN_FLIGHT].want =
        r->other_micros * (s->shared_kept + s->inputs)
        + r->other_chunks * s->stage_input;
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
    r->level[LEVEL_FAR].want = back ? stage_far_gradients(s, position) : 0;
    set_levels(r, t);
    if (back && bucket_fills(s, r->later))
        r->bucket = s->fill[position + 1];
}

void levels_at(struct tracer *r, enum phase phase, uint32_t position)
{
    const bool back = phase == PHASE_BACKWARD || phase == PHASE_RECOMPUTE;
    levels_for(r, phase, position, back ? AT_BACKWARD : AT_FORWARD);
}

void levels_copied_out(struct tracer *r)
{
    levels_for(r, r->phase, r->position, AT_COPIES_OUT);
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
    set_levels(r, t);
    if (makes_moments(r, phase)) /* other than in later steps */
        *t = (struct targets){ .n = 0 };
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
                 mixed ? t->bytes : t->elems);
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
    };
    for (uint32_t i = 0; i < FIXED; i++)
        r->level[i] =
            (struct level){ .term = fixed[i], .what = "", .pieces = 1 };
    r->n_levels = FIXED;
    return sizes_init(r);
}
