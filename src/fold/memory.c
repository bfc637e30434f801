/*
 * Puts a step together: what each block keeps and needs (walk.c), what the
 * engine adds (engine.c), how many micro-batches are in flight on a stage;
 * looks at every moment that can be the fullest and reports the fullest.
 * Owns the order of the step. [docs/method.md eq. peak, eq. pipeline]
 */
#include "fold/memory.h"

#include "data/constants.h"
#include "fold/stage.h"

/* What all stages share. */
struct memory_fold {
    const struct program *p;
    const struct run *run;
    struct arena *a;
    struct walk_scratch scratch;
    struct block_walk walk[BLOCK_MAX];
    struct block_states states[BLOCK_MAX];
    struct prefix *before;
    uint64_t shared, shared_kept;
};

/* ---- the stage ---- */

uint32_t stage_block(const struct stage *s, uint32_t position)
{
    if (s->embed && position == 0)
        return s->p->embed;
    if (s->head && position == s->n - 1)
        return s->p->head;
    return s->p->layer_block[s->first_layer + stage_layer(s, position)];
}

uint64_t stage_layer(const struct stage *s, uint32_t position)
{
    return position - (s->embed ? 1u : 0u);
}

static bool is_layer(const struct stage *s, uint32_t position)
{
    return !(s->embed && position == 0)
           && !(s->head && position == s->n - 1);
}

bool stage_recomputed(const struct stage *s, uint32_t position)
{
    return is_layer(s, position) && stage_layer(s, position) < s->recomputed;
}

/* First position of the checkpoint group that a recomputed layer is in. */
static uint32_t group_first(const struct stage *s, uint32_t position)
{
    const uint64_t l = stage_layer(s, position);
    return position - (uint32_t)(l % s->group);
}

static uint32_t group_last(const struct stage *s, uint32_t position)
{
    const uint64_t l = stage_layer(s, position);
    const uint64_t end = min_u64(l - l % s->group + s->group, s->recomputed);
    return position + (uint32_t)(end - 1 - l);
}

static uint64_t kept_but_input(const struct block_walk *w)
{
    return w->kept - (w->keeps_input ? w->input : 0);
}

static void stage_prefix(struct stage *s)
{
    struct prefix sum = { 0 };
    for (uint32_t i = 0; i < s->n; i++) {
        s->before[i] = sum;
        const uint32_t b = stage_block(s, i);
        const struct block_walk *w = &s->walk[b];
        const struct block_states *st = &s->states[b];
        if (stage_recomputed(s, i)) {
            if (group_first(s, i) == i)
                sum.checkpoints += w->input;
            /* inside a group the inputs come back too */
            sum.regrown += group_first(s, i) == i ? kept_but_input(w)
                                                  : w->kept;
        } else if (is_layer(s, i)) {
            sum.kept_layers += w->kept;
        }
        sum.elems += st->elems;
        sum.bytes += st->bytes;
        sum.wgrad += w->wgrad;
        sum.own_elems += st->own_elems;
    }
    s->before[s->n] = sum;
}

static void states_add(struct block_states *sum, const struct block_states *b)
{
    sum->elems += b->elems;
    sum->frozen_elems += b->frozen_elems;
    sum->dense_elems += b->dense_elems;
    sum->expert_elems += b->expert_elems;
    sum->matmul_elems += b->matmul_elems;
    sum->bytes += b->bytes;
    sum->grad_elems += b->grad_elems;
    sum->largest = max_u64(sum->largest, b->largest);
    sum->largest_grad = max_u64(sum->largest_grad, b->largest_grad);
    sum->tensors += b->tensors;
    sum->own_elems += b->own_elems;
    sum->own_frozen += b->own_frozen;
    sum->own_moment_bytes += b->own_moment_bytes;
    sum->moment_bytes += b->moment_bytes;
    sum->dense_moment_bytes += b->dense_moment_bytes;
    sum->persistent_elems += b->persistent_elems;
}

/* Micro-batches (interleaved: chunks) whose activations stage r holds at
 * most. [Narayanan et al. 2021; Megatron-LM schedules.py] */
static uint64_t in_flight(const struct run *run, uint64_t r)
{
    const uint64_t m = run->grad_accum, p = run->pp, v = run->vpp;
    switch (run->schedule) {
    case SCHED_GPIPE:
        return m;
    case SCHED_INTERLEAVED:
        return min_u64(2 * (p - r - 1) + (v - 1) * p + 1, m * v);
    case SCHED_1F1B:
    case SCHED_ZB_H1:
    case SCHED_ZB_V:
    case SCHED_DUALPIPE:
    case SCHED_NAIVE:
    case SCHEDULE_COUNT:
        break;
    }
    return p == 1 ? 1 : min_u64(m, p - r);
}

/* Bytes of the head's gradient of the embedding's tensor; 0 when untied. */
static uint64_t tied_bytes(const struct program *p)
{
    const struct block *h = &p->block[p->head];
    for (uint32_t i = 0; i < h->tensor_count; i++) {
        const struct tensor *t = &p->tensor[h->tensor_first + i];
        if (t->tied && t->trainable)
            return round_alloc(t->bytes);
    }
    return 0;
}

static uint64_t role_bytes(const struct program *p, tensor_id first,
                           uint64_t n)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        const struct tensor *t = &p->tensor[first + i];
        if (t->storage == first + i)
            sum += round_alloc(t->bytes);
    }
    return sum;
}

/* Of what a micro-batch shares, the tensors that some operation keeps: rope
 * tables are, a mask that is only added is not. */
static uint64_t shared_kept(const struct program *p)
{
    uint64_t sum = 0;
    for (tensor_id id = p->first_shared; id < p->first_shared + p->n_shared;
         id++) {
        bool kept = false;
        for (uint32_t k = 0; k < p->n_ops && !kept; k++) {
            tensor_id saved[SAVED_MAX];
            const size_t n = op_saves(p, &p->op[k], saved);
            for (size_t i = 0; i < n; i++)
                kept = kept || p->tensor[saved[i]].storage == id;
        }
        if (kept)
            sum += round_alloc(p->tensor[id].bytes);
    }
    return sum;
}

static void stage_init(struct stage *s, struct memory_fold *f, uint64_t index,
                       uint64_t first_layer)
{
    const struct run *run = f->run;
    const struct program *p = f->p;
    *s = (struct stage){ .p = p, .run = run, .index = index,
                         .first_layer = first_layer,
                         .layers = run->stage_layers[index],
                         .embed = index == 0, .head = index + 1 == run->pp,
                         .walk = f->walk, .states = f->states,
                         .before = f->before };
    s->in_flight = in_flight(run, index);
    s->n = (uint32_t)s->layers + (s->embed ? 1 : 0) + (s->head ? 1 : 0);
    s->group = max_u64(run->recompute_granularity, 1);
    if (run->recompute == RECOMP_FULL)
        s->recomputed = min_u64(run->recompute_layers, s->layers);
    s->tied_here = s->embed && s->head ? tied_bytes(p) : 0;
    states_of_block(&f->states[p->head], p, &p->block[p->head], run,
                    !(s->embed && s->head));
    stage_prefix(s);
    for (uint32_t i = 0; i < s->n; i++)
        states_add(&s->sum, &s->states[stage_block(s, i)]);
    s->wgrad = s->before[s->n].wgrad;
    s->wgrad -= s->tied_here; /* one tensor, one gradient */
    s->shared = f->shared;
    s->shared_kept = f->shared_kept;
    s->inputs = role_bytes(p, p->first_input, p->n_input);
    const struct block_walk *w = &s->walk[stage_block(s, 0)];
    if (!s->embed && !w->keeps_input && !stage_recomputed(s, 0))
        s->stage_input = w->input; /* received, kept for its gradient */
}

/* ---- activations ---- */

static uint64_t edge_kept(const struct stage *s, uint32_t position,
                          enum block_kind kind)
{
    const uint32_t b =
        kind == BLOCK_EMBED ? s->p->embed : s->p->head;
    const bool there = kind == BLOCK_EMBED ? s->embed && position > 0
                                           : s->head && position == s->n;
    return there ? s->walk[b].kept : 0;
}

/* Everything one micro-batch keeps between its forward and its backward. The
 * head keeps nothing of another micro-batch, but under GPipe: its backward
 * follows its forward at once. */
static uint64_t micro_batch_kept(const struct stage *s)
{
    const struct prefix *all = &s->before[s->n];
    const bool waits = s->run->schedule == SCHED_GPIPE;
    return all->kept_layers + all->checkpoints
           + edge_kept(s, s->n, BLOCK_EMBED)
           + (waits ? edge_kept(s, s->n, BLOCK_HEAD) : 0) + s->shared_kept
           + s->inputs + s->stage_input;
}

/* Kept by the positions before one, and what a micro-batch has all along. */
static void put_kept(struct put *p, const struct stage *s, uint32_t position)
{
    const struct prefix *b = &s->before[position];
    PUT(p, TERM_SAVED_EMBED, "kept by the embedding",
        F("bytes", edge_kept(s, position, BLOCK_EMBED)));
    PUT(p, TERM_SAVED_LAYERS, "kept by the layers before",
        F("bytes", b->kept_layers));
    PUT(p, TERM_CHECKPOINTS, "inputs of the checkpoints before",
        F("bytes", b->checkpoints));
    const bool in_layers = p->m->phase == PHASE_FORWARD
                           || p->m->phase == PHASE_RECOMPUTE;
    PUT(p, TERM_SHARED, "made once a micro-batch",
        F("bytes", in_layers ? s->shared : s->shared_kept));
    PUT(p, TERM_INPUTS, "token ids and labels", F("bytes", s->inputs));
    PUT(p, TERM_SAVED_LAYERS, "hidden states received from the stage before",
        F("bytes", s->stage_input));
    const struct run *run = s->run;
    const uint64_t v = run->schedule == SCHED_INTERLEAVED ? run->vpp : 1;
    if (s->in_flight > v)
        PUT(p, TERM_IN_FLIGHT, "other micro-batches of this stage",
            F("bytes of one", micro_batch_kept(s)),
            F("in flight beside this one", s->in_flight - v), D("chunks", v));
}

static enum term kept_term(const struct stage *s, uint32_t position)
{
    switch (s->p->block[stage_block(s, position)].kind) {
    case BLOCK_EMBED:
        return TERM_SAVED_EMBED;
    case BLOCK_HEAD:
        return TERM_SAVED_HEAD;
    case BLOCK_LAYER:
        break;
    }
    return stage_recomputed(s, position) ? TERM_RECOMPUTED
                                         : TERM_SAVED_LAYERS;
}

static const char *op_name(const struct stage *s, const struct extremum *e)
{
    return s->p->n_ops == 0 ? "" : s->p->op[e->op].name;
}

static void put_forward(struct put *p, const struct stage *s,
                        uint32_t position, bool later)
{
    const struct block_walk *w = &s->walk[stage_block(s, position)];
    const bool re = stage_recomputed(s, position);
    const struct extremum *e = re ? &w->forward_nograd : &w->forward;
    p->m->op = op_name(s, e);
    put_kept(p, s, position);
    PUT(p, kept_term(s, position), "kept by this block so far",
        F("bytes", e->kept));
    PUT(p, TERM_FORWARD_TMP, "alive for a moment in this block",
        F("bytes", e->tmp));
    engine_forward(p, s, position, later);
}

/* A checkpoint runs its group forward again, gradients of its result waiting.
 */
static void put_recompute(struct put *p, const struct stage *s,
                          uint32_t position, bool later)
{
    const struct block_walk *w = &s->walk[stage_block(s, position)];
    const uint32_t first = group_first(s, position);
    const struct extremum *e = &w->forward;
    p->m->op = op_name(s, e);
    put_kept(p, s, first);
    PUT(p, TERM_CHECKPOINTS, "input of this checkpoint",
        F("bytes", s->walk[stage_block(s, first)].input));
    uint64_t own = e->kept;
    if (position == first && w->keeps_input)
        own -= w->input; /* is the checkpoint */
    PUT(p, TERM_RECOMPUTED, "made again in this checkpoint",
        F("bytes", s->before[position].regrown - s->before[first].regrown
                       + own));
    PUT(p, TERM_FORWARD_TMP, "alive for a moment in this block",
        F("bytes", e->tmp));
    PUT(p, TERM_BACKWARD_TMP, "gradient of the checkpoint's result",
        F("bytes", w->output));
    engine_backward(p, s, group_last(s, position), later);
}

static void put_wgrad(struct put *p, const struct stage *s, uint32_t position,
                      uint64_t bytes)
{
    const bool table = s->p->block[stage_block(s, position)].kind
                           == BLOCK_EMBED
                       && bytes >= s->tied_here;
    if (table && s->tied_here != 0) {
        /* the head's is there: a second one, and their sum */
        PUT(p, TERM_WGRAD_TMP, "tied embedding: second gradient and sum",
            F("bytes", s->tied_here), F("tensors", 2));
        bytes -= s->tied_here;
    }
    if (engine_reduces_blocks(s->run))
        PUT(p, TERM_WGRAD_TMP, "whole gradients of this block",
            F("bytes", bytes));
    else
        PUT(p, TERM_GRADS, "gradients of this block so far",
            F("bytes", bytes));
}

static void put_backward(struct put *p, const struct stage *s,
                         uint32_t position, bool later)
{
    const struct block_walk *w = &s->walk[stage_block(s, position)];
    const struct extremum *e = &w->backward[engine_wgrad_mode(s, later)];
    const bool re = stage_recomputed(s, position);
    p->m->op = op_name(s, e);
    uint64_t kept = e->kept;
    if (re) {
        const uint32_t first = group_first(s, position);
        put_kept(p, s, first);
        PUT(p, TERM_CHECKPOINTS, "input of this checkpoint",
            F("bytes", s->walk[stage_block(s, first)].input));
        if (position == first && w->keeps_input)
            kept -= min_u64(kept, w->input);
        kept += s->before[position].regrown - s->before[first].regrown;
        PUT(p, TERM_RECOMPUTED, "the recomputed result, held by its frame",
            F("bytes", w->output));
    } else {
        put_kept(p, s, position);
    }
    PUT(p, kept_term(s, position), "kept by this block, not yet used",
        F("bytes", kept));
    PUT(p, TERM_BACKWARD_TMP, "gradients of activations in this block",
        F("bytes", e->tmp));
    put_wgrad(p, s, position, e->wgrad);
    engine_backward(p, s, position, later);
}

/* ---- moments ---- */

static void put_moment(struct put *p, const struct stage *s)
{
    const struct moment *m = p->m;
    engine_rest(p, s);
    switch (m->phase) {
    case PHASE_REST:
        return;
    case PHASE_FORWARD:
    case PHASE_LOSS:
        put_forward(p, s, m->position, m->later);
        return;
    case PHASE_BACKWARD:
        put_backward(p, s, m->position, m->later);
        return;
    case PHASE_RECOMPUTE:
        put_recompute(p, s, m->position, m->later);
        return;
    case PHASE_REDUCE:
        engine_reduce(p, s);
        return;
    case PHASE_CLIP:
        engine_clip(p, s);
        return;
    case PHASE_STEP:
        engine_step(p, s);
        return;
    case PHASE_COUNT:
        return;
    }
}

/* Sets m to what is alive at a moment; true when nothing overflowed. */
static bool moment_at(struct moment *m, const struct stage *s,
                      enum phase phase, uint32_t position, bool later,
                      struct explanation *why)
{
    *m = (struct moment){ .phase = phase, .position = position,
                          .later = later, .op = "" };
    struct put p = { m, why, false };
    put_moment(&p, s);
    return !p.over;
}

/* Between two equal neighbours on either side a position changes every term
 * by the same amount: the fullest moment is at an end of such a run. */
static bool interior(const struct stage *s, uint32_t i)
{
    const uint32_t reach = 1 + (uint32_t)min_u64(s->group, 1u << 20);
    if (i < reach + 1 || i + reach + 1 >= s->n)
        return false;
    for (uint32_t k = i - reach; k <= i + reach; k++) {
        if (stage_block(s, k) != stage_block(s, i)
            || stage_recomputed(s, k) != stage_recomputed(s, i))
            return false;
    }
    return true;
}

static bool look(struct moment *best, const struct stage *s, enum phase phase,
                 uint32_t position, bool later)
{
    struct moment m;
    if (!moment_at(&m, s, phase, position, later, NULL))
        return false;
    if (m.total > best->total)
        *best = m;
    return true;
}

static bool look_at_position(struct moment *best, const struct stage *s,
                             uint32_t i, bool later)
{
    const bool head = s->head && i == s->n - 1;
    bool ok = look(best, s, head ? PHASE_LOSS : PHASE_FORWARD, i, later);
    if (stage_recomputed(s, i))
        ok = look(best, s, PHASE_RECOMPUTE, i, later) && ok;
    return look(best, s, PHASE_BACKWARD, i, later) && ok;
}

static bool stage_peak(struct moment *best, const struct stage *s)
{
    bool ok = moment_at(best, s, PHASE_REST, 0, false, NULL);
    const unsigned passes = s->run->grad_accum > 1 ? 2 : 1;
    for (uint32_t i = 0; i < s->n; i++) {
        if (interior(s, i))
            continue;
        for (unsigned later = 0; later < passes; later++)
            ok = look_at_position(best, s, i, later != 0) && ok;
    }
    ok = look(best, s, PHASE_REDUCE, 0, false) && ok;
    ok = look(best, s, PHASE_CLIP, 0, false) && ok;
    return look(best, s, PHASE_STEP, 0, false) && ok;
}

static bool in_a_block(enum phase phase)
{
    return phase == PHASE_FORWARD || phase == PHASE_LOSS
           || phase == PHASE_BACKWARD || phase == PHASE_RECOMPUTE;
}

/* Weights, gradients as the engine holds them when all have come, optimizer
 * states; no buffers. [Rajbhandari et al. 2020, figure 1] */
static uint64_t model_states(const struct stage *s, const struct moment *rest)
{
    uint64_t sum = 0;
    for (unsigned t = 0; t < TERM_COUNT; t++) {
        const enum component c = term_info((enum term)t)->component;
        if (c == COMP_PARAMETERS || c == COMP_GRADIENTS || c == COMP_OPTIMIZER)
            sum += rest->bytes[t];
    }
    return sum + engine_gradients(s);
}

static bool stage_result_of(struct stage_result *out, const struct stage *s)
{
    *out = (struct stage_result){
        .index = s->index, .first_layer = s->first_layer,
        .layers = s->layers, .has_embedding = s->embed, .has_head = s->head,
        .parameters = s->sum.elems + s->sum.frozen_elems,
        .in_flight = s->in_flight, .peak_block = ""
    };
    bool ok = moment_at(&out->rest, s, PHASE_REST, 0, false, NULL);
    out->model_states = model_states(s, &out->rest);
    ok = stage_peak(&out->peak, s) && ok;
    for (unsigned t = 0; t < TERM_COUNT; t++)
        out->component[term_info((enum term)t)->component] +=
            out->peak.bytes[t];
    if (!in_a_block(out->peak.phase) || s->n == 0)
        return ok;
    const uint32_t i = out->peak.position;
    out->peak_block = s->p->block[stage_block(s, i)].name;
    if (is_layer(s, i))
        out->peak_layer = s->first_layer + stage_layer(s, i);
    return ok;
}

/* ---- outside the allocator ---- */

static void outside_add(struct memory_result *m, struct outside_row row)
{
    if (row.bytes == 0)
        return;
    m->outside_row[m->n_outside++] = row;
    m->outside += row.bytes;
}

static void put_outside(struct memory_result *m, const struct run *run)
{
    outside_add(m, (struct outside_row){
                       "context", "CUDA context and kernels",
                       CUDA_CONTEXT_BYTES, 1,
                       "stas00/ml-engineering: A100, torch 2.1, lazy loading",
                       run->gpu.arch != ARCH_AMPERE });
    const uint64_t group[] = { run->dp * run->cp, run->tp, run->pp };
    uint64_t count = 0, bytes = 0;
    for (size_t i = 0; i < sizeof group / sizeof group[0]; i++) {
        if (group[i] <= 1)
            continue;
        count++;
        bytes += group[i] == 2 ? NCCL_PAIR_BYTES : NCCL_GROUP_BYTES;
    }
    outside_add(m, (struct outside_row){
                       "communicators", "NCCL buffers", bytes, count,
                       "NVIDIA/nccl#964: 544 MB (2 GPUs), 688 MB (more)",
                       run->gpu.arch != ARCH_AMPERE });
}

/* ---- the fold ---- */

static unsigned modes_needed(const struct run *run)
{
    const struct stage s = { .run = run };
    return 1u << engine_wgrad_mode(&s, false)
           | 1u << engine_wgrad_mode(&s, true);
}

static bool fold_init(struct memory_fold *f, const struct program *p,
                      const struct run *run, struct arena *a)
{
    *f = (struct memory_fold){ .p = p, .run = run, .a = a };
    uint64_t most = 0;
    for (uint64_t r = 0; r < run->pp; r++)
        most = max_u64(most, run->stage_layers[r]);
    f->before = ARENA_NEW(a, struct prefix, (size_t)most + 3);
    if (f->before == NULL || !walk_scratch_init(&f->scratch, p, a))
        return false;
    f->shared = role_bytes(p, p->first_shared, p->n_shared);
    f->shared_kept = shared_kept(p);
    const uint64_t regions =
        run->recompute == RECOMP_SELECTIVE ? run->recompute_modules : 0;
    for (uint32_t b = 0; b < p->n_blocks; b++) {
        walk_block(&f->walk[b], p, &p->block[b], regions, modes_needed(run),
                   &f->scratch);
        states_of_block(&f->states[b], p, &p->block[b], run, true);
    }
    return true;
}

static void finish(struct memory_result *out, const struct run *run)
{
    for (uint64_t r = 1; r < out->n_stages; r++)
        if (out->stage[r].peak.total > out->stage[out->worst].peak.total)
            out->worst = r;
    const struct stage_result *w = &out->stage[out->worst];
    out->peak = w->peak.total;
    out->steady = w->rest.total;
    /* the allocator reserves whole segments of 2 MiB */
    out->reserved = div_up(out->peak
                               + out->peak / 1000
                                     * RESERVED_OVER_ALLOCATED_PERMILLE,
                           MIB(2))
                    * MIB(2);
    put_outside(out, run);
    out->device_total = out->reserved + out->outside;
    out->capacity = run->capacity_bytes;
    out->headroom = (int64_t)out->capacity - (int64_t)out->device_total;
    out->fits = out->headroom >= 0;
}

bool fold_memory(struct memory_result *out, const struct program *p,
                 const struct run *run, struct arena *a, bool *over)
{
    *out = (struct memory_result){ .n_stages = run->pp };
    *over = false;
    struct memory_fold f;
    out->stage = ARENA_NEW(a, struct stage_result, (size_t)run->pp);
    if (out->stage == NULL || !fold_init(&f, p, run, a))
        return false;
    uint64_t layer = 0;
    for (uint64_t r = 0; r < run->pp; r++) {
        struct stage s;
        stage_init(&s, &f, r, layer);
        if (!stage_result_of(&out->stage[r], &s))
            *over = true;
        layer += run->stage_layers[r];
    }
    if (*over)
        return false;
    finish(out, run);
    return true;
}

/* ---- explanation ---- */

struct kept_list {
    struct explanation *x;
    const char *section;
};

static const char *shape_text(struct arena *a, const struct tensor *t,
                              bool numbers)
{
    char buf[160] = "";
    for (unsigned i = 0; i < t->rank; i++) {
        const char *link = i == 0 ? "" : " * ";
        if (numbers)
            str_append(buf, sizeof buf, "%s%llu", link,
                       (unsigned long long)t->dim[i].n);
        else
            str_append(buf, sizeof buf, "%s%s", link, t->dim[i].sym);
    }
    if (numbers)
        str_append(buf, sizeof buf, " * %llu",
                   (unsigned long long)dtype_size(t->dtype));
    else
        str_append(buf, sizeof buf, " * %s", dtype_name(t->dtype));
    return arena_copy(a, buf, str_of(buf).n);
}

static void explain_kept(void *ctx, const struct tensor *t,
                         const struct op *op, uint64_t bytes)
{
    struct kept_list *l = ctx;
    struct arena *a = l->x->arena;
    explain_add(l->x, (struct explain_entry){
                          .section = l->section,
                          .name = t->name,
                          .unit = "B",
                          .value = (double)bytes,
                          .bytes = bytes,
                          .formula = shape_text(a, t, false),
                          .numbers = shape_text(a, t, true),
                          .equation = "saved",
                          .source = arena_printf(
                              a, "kept by %s: a %s keeps %s", op->name,
                              op_kind_name(op->kind), op_kind_keeps(op->kind)),
                          .depth = 2,
                      });
}

static void explain_blocks(struct explanation *x, struct memory_fold *f)
{
    const struct run *run = f->run;
    const uint64_t regions =
        run->recompute == RECOMP_SELECTIVE ? run->recompute_modules : 0;
    for (uint32_t b = 0; b < f->p->n_blocks; b++) {
        const struct block *block = &f->p->block[b];
        struct kept_list l = {
            x, arena_printf(x->arena, "kept for backward by one %s",
                            block->name)
        };
        explain_add(x, (struct explain_entry){
                           .section = l.section, .name = "sum", .unit = "B",
                           .value = (double)f->walk[b].kept,
                           .bytes = f->walk[b].kept,
                           .formula = "sum over the storages below",
                           .numbers = "", .equation = "saved", .source = "",
                           .depth = 0 });
        walk_kept(f->p, block, regions, &f->scratch, explain_kept, &l);
    }
}

static void explain_moment(struct explanation *x, const struct stage *s,
                           const struct moment *m, const char *what)
{
    explain_add(x, (struct explain_entry){
                       .section = what, .name = phase_name(m->phase),
                       .unit = "B", .value = (double)m->total,
                       .bytes = m->total,
                       .formula = "sum over the terms below", .numbers = "",
                       .equation = "peak", .source = "", .depth = 0 });
    struct moment again;
    moment_at(&again, s, m->phase, m->position, m->later, x);
}

static void explain_outside(struct explanation *x,
                            const struct memory_result *m)
{
    const char *section = "on the device";
    for (size_t i = 0; i < m->n_outside; i++) {
        const struct outside_row *r = &m->outside_row[i];
        explain_add(x, (struct explain_entry){
                           .section = section, .name = r->label, .unit = "B",
                           .value = (double)r->bytes, .bytes = r->bytes,
                           .formula = "measured constant", .numbers = "",
                           .equation = "constants", .source = r->source,
                           .depth = 1 });
    }
    explain_add(x, (struct explain_entry){
                       .section = section, .name = "reserved by the allocator",
                       .unit = "B", .value = (double)m->reserved,
                       .bytes = m->reserved,
                       .formula = "peak * 1.026, in segments of 2 MiB",
                       .numbers = arena_printf(x->arena, "%llu * 1.026",
                                               (unsigned long long)m->peak),
                       .equation = "reserved",
                       .source = "median of 14 simulated traces",
                       .depth = 1 });
    explain_add(x, (struct explain_entry){
                       .section = section, .name = "device total",
                       .unit = "B", .value = (double)m->device_total,
                       .bytes = m->device_total,
                       .formula = "reserved + outside",
                       .numbers = arena_printf(
                           x->arena, "%llu + %llu",
                           (unsigned long long)m->reserved,
                           (unsigned long long)m->outside),
                       .equation = "peak", .source = "", .depth = 0 });
}

bool explain_memory(struct explanation *x, const struct memory_result *memory,
                    const struct program *p, const struct run *run)
{
    struct memory_fold f;
    if (!fold_init(&f, p, run, x->arena))
        return false;
    uint64_t layer = 0;
    for (uint64_t r = 0; r < memory->worst; r++)
        layer += run->stage_layers[r];
    struct stage s;
    stage_init(&s, &f, memory->worst, layer);
    const struct stage_result *w = &memory->stage[memory->worst];
    explain_moment(x, &s, &w->peak, "peak");
    explain_moment(x, &s, &w->rest, "between steps");
    explain_blocks(x, &f);
    explain_outside(x, memory);
    return !x->failed && !x->arena->failed;
}
