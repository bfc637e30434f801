/*
 * Builds a pipeline stage for the memory fold: which blocks lie on it, how many
 * micro-batches are in flight, what is kept and owned before each position.
 * Knows no moment of the step. [docs/method.md eq. pipeline]
 */
#include "fold/fold.h"
#include "fold/graphs.h"
#include "fold/overlap.h"

#include "base/banned.h"

/* Shapes of weights on a stage; more are not counted. */
enum { DUMMY_SHAPES_MAX = 32 };

/* Of DTensors the table's own is of all words; a copy of this rank's part is
 * added to the head's, which makes a third. */
static uint64_t tied_parts(const struct stage *s, enum wgrad_mode mode)
{
    const uint64_t beside = s->run->tp + (mode == WGRAD_KEEP ? 1 : 2);
    return mode == WGRAD_NONE ? 0 : beside * s->tied_here;
}

uint64_t stage_tied_sum(const struct stage *s, enum wgrad_mode mode)
{
    if (s->run->tp > 1 && run_is_hf(s->run))
        return tied_parts(s, mode);
    if (s->low_layers != s->layers) /* of two micro-batches */
        return 0;
    if (s->tied_cast) /* into it the table's own is added */
        return 0;
    if (s->tied_sum)
        return mode == WGRAD_FREE ? s->tied_here : 0;
    switch (mode) {
    case WGRAD_KEEP: return s->tied_here;
    case WGRAD_FREE: return 2 * s->tied_here;
    case WGRAD_NONE: /* both products add into the one buffer */
    case WGRAD_MODES: return 0;
    }
    return 0;
}

uint64_t stage_wgrads_above(const struct stage *s, uint32_t position)
{
    const uint64_t all = s->before[s->n].wgrad - s->before[position + 1].wgrad;
    return position < s->waits_to ? all - s->waiting : all;
}

uint64_t stage_others(const struct stage *s, bool later)
{
    const struct run *run = s->run;
    /* once no new micro-batch follows, each backward leaves one less */
    const uint64_t gone = later && run->grad_accum <= s->in_flight ? 2 : 1;
    return s->in_flight > gone ? s->in_flight - gone : 0;
}

/* Of a stage that need not have its positions yet. */
static uint32_t block_at(const struct stage *s, uint32_t position)
{
    if (s->embed && position == 0)
        return s->p->embed;
    if (s->head && position == s->n - 1)
        return s->p->head;
    return s->p->layer_block[stage_model_layer(s, position)];
}

static bool recomputes(const struct stage *s, uint32_t position, uint32_t block)
{
    return s->recomputed != 0 && stage_is_layer(s, position)
           && stage_layer(s, position) < s->recomputed
           && (s->every == 1 || (stage_layer(s, position) + 1) % s->every == 0)
           && s->p->block[block].kind != BLOCK_JOINT && !s->walk[block].idle;
}

static void stage_positions(struct stage *s)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const uint32_t block = block_at(s, i);
        s->at[i] =
            (struct stage_block){ .block = block,
                                  .recomputed = recomputes(s, i, block) };
        if (block == s->at[first].block)
            continue;
        s->at[first].end = i;
        first = i;
    }
    s->at[first].end = s->n;
    if (s->chunks > 1)
        stage_chunks_place(s);
}

bool stage_comes_back(const struct stage *s, uint32_t position)
{
    const struct block_walk *w = &s->walk[stage_block(s, position)];
    return !s->run->stops || !w->idle || w->held > 0;
}

bool stage_turns(const struct stage *s, uint32_t position)
{
    return stage_comes_back(s, position) || fsdp_left_whole(s, position);
}

static uint64_t kept_but_input(const struct block_walk *w)
{
    return w->kept - (w->keeps_input ? w->input : 0);
}

bool stage_offloads(const struct stage *s)
{
    return s->run->offload_activations != OFFLOAD_NONE;
}

/* [Megatron-LM tensor_parallel/random.py, CheckpointFunction; DeepSpeed
 * activation_checkpointing/checkpointing.py, partition_activations] */
uint64_t stage_checkpoint_part(const struct stage *s,
                               const struct block_walk *w)
{
    return s->run->distributes_saved ? div_up(w->input, s->run->tp) : w->input;
}

uint64_t stage_checkpoint_kept(const struct stage *s,
                               const struct block_walk *w)
{
    return w->checkpoint - w->input
           + (stage_offloads(s) ? 0 : stage_checkpoint_part(s, w));
}

/* Inside a checkpoint a module's tensors lead to the checkpoint's own copy of
 * its input, a leaf, which holds its gradient: where the whole layer is one, of
 * the first in its group that does so, or its experts. A part of a layer that is
 * scheduled by itself has such a leaf, too. */
static uint64_t named_by_module(const struct stage *s, uint32_t position)
{
    const struct block *b = s->p->block;
    const uint32_t block = stage_block(s, position);
    if (!b[block].names_graph)
        return 0;
    if (stage_recomputed(s, position)) {
        for (uint32_t i = stage_group_first(s, position); i < position; i++)
            if (b[stage_block(s, i)].names_graph)
                return 0;
    } else if ((run_regions(s->run) >> REMOD_MOE & 1) == 0
               && !(s->run->ep_overlap && s->chunks == 1)) {
        return 0;
    }
    return 2 * s->walk[block].input;
}

/* ... for weights' gradients, of a split backward. A checkpoint's frame has its
 * input as long as there is a node of its layer. */
static void weights_wait(const struct stage *s, const struct block_walk *w,
                         bool recomputed, struct prefix *x)
{
    const bool remade = recomputed && s->graph;
    x->stash = remade ? w->remade_stash + w->input : w->stash;
    x->left = remade ? w->remade_left + w->input : w->left;
}

/* What the block at a position adds. */
static struct prefix prefix_of(const struct stage *s, uint32_t i)
{
    const uint32_t b = stage_block(s, i);
    const struct block_walk *w = &s->walk[b];
    const struct block_states *st = &s->states[b];
    const bool re = stage_recomputed(s, i);
    struct prefix x = { .lingers = re ? w->lingers_nograd : w->lingers,
                        .past = re ? w->past_nograd : w->past,
                        .elems = st->elems,
                        .all_elems = st->elems + st->frozen_elems,
                        .bytes = st->bytes,
                        .stored = st->stored_bytes,
                        .wgrad = w->wgrad,
                        .own_elems = st->own_elems,
                        .second = st->second_elems,
                        .held = w->held,
                        .named = named_by_module(s, i) };
    weights_wait(s, w, re, &x);
    if (!re) {
        x.kept_layers = stage_is_layer(s, i) ? w->kept : 0;
        x.kept_layers -= stage_module_goes(s, i) ? w->away.bytes : 0;
        return x;
    }
    if (stage_group_first(s, i) != i) {
        x.regrown = w->kept; /* inside a group the inputs come back too */
        return x;
    }
    x.regrown = kept_but_input(w);
    x.checkpoints = stage_checkpoint_kept(s, w);
    x.hooked = stage_hooks_hold(s, i) ? w->input : 0;
    return x;
}

static void prefix_add(struct prefix *sum, const struct prefix *x)
{
    sum->kept_layers += x->kept_layers;
    sum->checkpoints += x->checkpoints;
    sum->hooked += x->hooked;
    sum->regrown += x->regrown;
    sum->lingers += x->lingers;
    sum->past += x->past;
    sum->elems += x->elems;
    sum->all_elems += x->all_elems;
    sum->bytes += x->bytes;
    sum->stored += x->stored;
    sum->wgrad += x->wgrad;
    sum->own_elems += x->own_elems;
    sum->second += x->second;
    sum->held += x->held;
    sum->stash += x->stash;
    sum->left += x->left;
    sum->named += x->named;
}

/* Nor is it the first or another one of a checkpoint's layers. */
static bool adds_as_before(const struct stage *s, uint32_t i)
{
    return i > 0 && s->group == 1 && stage_block(s, i) == stage_block(s, i - 1)
           && stage_recomputed(s, i) == stage_recomputed(s, i - 1)
           && stage_module_goes(s, i) == stage_module_goes(s, i - 1);
}

static void stage_prefix(struct stage *s)
{
    struct prefix sum = { 0 }, x = { 0 };
    for (uint32_t i = 0; i < s->n; i++) {
        s->before[i] = sum;
        if (!adds_as_before(s, i))
            x = prefix_of(s, i);
        prefix_add(&sum, &x);
    }
    s->before[s->n] = sum;
}

/* Of n equal blocks one after another. */
static void states_add(struct block_states *sum, const struct block_states *b,
                       uint64_t n, const struct run *run)
{
    for (uint64_t i = 0; i < n; i++)
        update_loop_add(&sum->loop, &b->loop, run);
    sum->elems += n * b->elems;
    sum->frozen_elems += n * b->frozen_elems;
    sum->dense_elems += n * b->dense_elems;
    sum->expert_elems += n * b->expert_elems;
    sum->expert_bytes += n * b->expert_bytes;
    sum->fp8_elems += n * b->fp8_elems;
    sum->fp8_scale_bytes += n * b->fp8_scale_bytes;
    sum->bytes += n * b->bytes;
    sum->grad_elems += n * b->grad_elems;
    sum->part_bytes += n * b->part_bytes;
    if (b->largest > sum->largest) {
        sum->largest = b->largest;
        sum->largest_bytes = b->largest_bytes;
    }
    sum->largest_grad = max_u64(sum->largest_grad, b->largest_grad);
    sum->largest_own = max_u64(sum->largest_own, b->largest_own);
    sum->tensors += n * b->tensors;
    sum->whole_bytes += n * b->whole_bytes;
    sum->adapter_bytes += n * b->adapter_bytes;
    sum->largest_trained_bytes =
        max_u64(sum->largest_trained_bytes, b->largest_trained_bytes);
    sum->coded += n * b->coded;
    sum->own_elems += n * b->own_elems;
    sum->own_dropped += n * b->own_dropped;
    sum->dropped += n * b->dropped;
    sum->packed_elems += n * b->packed_elems;
    sum->packed_bytes += n * b->packed_bytes;
    sum->frozen_bytes += n * b->frozen_bytes;
    sum->own_frozen_bytes += n * b->own_frozen_bytes;
    sum->statistic_bytes += n * b->statistic_bytes;
    sum->own_moment_bytes += n * b->own_moment_bytes;
    sum->moment_bytes += n * b->moment_bytes;
    sum->dense_moment_bytes += n * b->dense_moment_bytes;
    sum->paged_bytes += n * b->paged_bytes;
    sum->expert_paged_bytes += n * b->expert_paged_bytes;
    sum->persistent_elems += n * b->persistent_elems;
    sum->second_elems += n * b->second_elems;
    sum->low_elems += n * b->low_elems;
    sum->buffer_bytes += n * b->buffer_bytes;
}

/* [Narayanan et al. 2021; Megatron-LM schedules.py] */
uint64_t stage_in_flight(const struct run *run, uint64_t r)
{
    const uint64_t m = run->grad_accum, p = run->pp, v = run->vpp;
    switch (run->schedule) {
    case SCHED_GPIPE: return m;
    case SCHED_INTERLEAVED:
        return min_u64(2 * (p - r - 1) + (v - 1) * run_round(run) + 1, m * v);
    case SCHED_ZB_H1:
    case SCHED_ZB_V:
    case SCHED_DUALPIPE:
    case SCHED_DUALPIPE_V:
    case SCHED_ZB_INTERLEAVED: return p == 1 ? 1 : 0; /* note_slot counts */
    case SCHED_NAIVE: return 1;
    case SCHED_1F1B:
    case SCHEDULE_COUNT: break;
    }
    return p == 1 ? 1 : min_u64(m, p - r);
}

uint64_t stage_tied_bytes(const struct program *p)
{
    const struct block *h = &p->block[p->head];
    const struct tensor *t;
    for (tensor_id id = h->weights; id != TENSOR_NONE; id = t->next) {
        t = &p->tensor[id];
        if (t->tied && !t->again && t->trainable)
            return round_alloc(t->bytes);
    }
    return 0;
}

/* Under autocast the head's product takes a copy of the table: the gradient of
 * that is cast back, into a tensor that is no view of a product's. */
bool stage_ties_cast(const struct program *p)
{
    const struct block *h = &p->block[p->head];
    for (uint32_t k = 0; k < h->op_count; k++) {
        const struct op *op = &p->op[h->op_first + k];
        if (op->kind == OP_CAST && p->tensor[op->in[0]].role == ROLE_PARAM
            && p->tensor[op->in[0]].tied)
            return true;
    }
    return false;
}

/* In the lower block, which has the tensor, backward adds its own. */
static void find_waiting(struct stage *s)
{
    const uint32_t above = stage_row_end(s, 0);
    for (uint32_t i = above; i < s->n && s->embed; i = stage_row_end(s, i)) {
        const struct block *b = &s->p->block[stage_block(s, i)];
        const struct tensor *t;
        uint64_t sum = 0;
        if (b->kind == BLOCK_LAYER)
            continue;
        for (tensor_id id = b->weights; id != TENSOR_NONE; id = t->next) {
            t = &s->p->tensor[id];
            if (t->waits && t->trainable)
                sum += round_alloc(t->bytes);
        }
        if (sum == 0)
            continue;
        s->waiting = sum;
        s->waits_from = i;
        s->waits_to = b->kind == BLOCK_HEAD ? 1 : 0;
        return;
    }
}

static bool sums_at_joint(const struct stage *s)
{
    if (s->joint >= s->n)
        return false;
    const struct block *b = &s->p->block[stage_block(s, s->joint)];
    for (tensor_id id = b->weights; id != TENSOR_NONE;
         id = s->p->tensor[id].next)
        if (s->p->tensor[id].sums)
            return true;
    return false;
}

static uint64_t held_bytes(const struct program *p, const struct block *b)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < b->tensor_count; i++) {
        const struct tensor *t = &p->tensor[b->tensor_first + i];
        if (t->held)
            sum += round_alloc(t->bytes);
    }
    return sum;
}

/* A product that added its weight's gradient into the main gradients hands
 * autograd a dummy, so that hooks still run; there is one for all weights of a
 * shape, never freed (transformer_engine/pytorch/module/base.py,
 * get_dummy_wgrad; megatron/core/tensor_parallel/layers.py for the head).
 * The router's product is a plain one. */
static uint64_t dummy_wgrads(const struct stage *s)
{
    const struct tensor *seen[DUMMY_SHAPES_MAX];
    size_t n = 0;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->n; i = stage_row_end(s, i)) {
        const struct block *b = &s->p->block[stage_block(s, i)];
        const struct tensor *t;
        for (tensor_id id = b->weights; id != TENSOR_NONE; id = t->next) {
            t = &s->p->tensor[id];
            if (t->role != ROLE_PARAM || !t->trainable || !t->matmul
                || t->group == PG_ROUTER || t->group == PG_ADAPTER)
                continue;
            size_t at = 0;
            while (at < n
                   && (seen[at]->dim[0].n != t->dim[0].n
                       || seen[at]->dim[1].n != t->dim[1].n))
                at++;
            if (at < n || n == DUMMY_SHAPES_MAX)
                continue;
            seen[n++] = t;
            sum +=
                round_alloc(t->dim[0].n * t->dim[1].n * dtype_size(t->dtype));
        }
    }
    return sum;
}

static uint64_t role_bytes(const struct program *p, tensor_id first, uint64_t n)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        const struct tensor *t = &p->tensor[first + i];
        if (t->storage == first + i)
            sum += round_alloc(t->bytes);
    }
    return sum;
}

/* Layers spread over GPUs of one process get the keywords of their call copied
 * to their own, each layer for itself, where they are not there already: rotary
 * tables are made on the last, masks where the tokens are. A checkpoint is
 * inside of that, and holds its copies. [accelerate hooks.py, AlignDevicesHook;
 * transformers modeling_layers.py; docs/method.md eq. spread] */
static void share(struct stage *s, const struct memory_fold *f)
{
    const struct run *run = f->run;
    const bool spread = run_spreads(run);
    const uint64_t rotary = spread && s->index + 1 < run->pp ? s->layers : 1;
    const uint64_t others = spread && s->index > 0 ? s->layers : 1;
    const struct shared_bytes *r = &f->rotary, *o = &f->shared;
    s->shared = rotary * r->all + others * o->all;
    s->shared_kept = rotary * r->kept + others * o->kept;
    s->shared_late = rotary * r->late + others * o->late;
    s->sum.buffer_bytes += f->resting;
    /* a checkpoint keeps what its layers share: masks too; so does a schedule of
       their parts (ModelChunkState) */
    if (s->recomputed > 0 || run->ep_overlap)
        s->shared_kept = s->shared_late = s->shared;
    /* to the end of backward where it is a keyword's value (ctx.run_function,
       modeling_layers.py, GradientCheckpointingLayer) */
    const bool stays =
        !run_is_hf(run) || (s->recomputed > 0 && run->recompute_reentrant);
    for (uint32_t i = 0; i < s->p->n_spans; i++) {
        const struct tensor *t = &s->p->tensor[s->p->span[i].of];
        const bool kept = f->span_kept[i] || s->shared_kept == s->shared;
        s->span_bytes[i] = kept && s->shared > 0 ? round_alloc(t->bytes) : 0;
    }
    s->shared_last =
        stays ? s->shared_kept : rotary * r->last + others * o->last;
}

static uint64_t first_layer_of(const struct run *run, uint64_t stage)
{
    uint64_t sum = 0;
    for (uint64_t r = 0; r < stage; r++)
        sum += run->stage_layers[r];
    return sum;
}

/* Rank r of p holds the r-th and the last but r of 2 p halves of what ranks
 * hold: the first has embedding and head. */
static void stage_is_v(struct stage *s)
{
    const uint64_t half = run_fold_low(s->run, s->index);
    uint64_t below = 0, above = s->layers - half;
    for (uint64_t r = 0; r < s->index; r++) {
        below += run_fold_low(s->run, r);
        above += s->run->stage_layers[r] - run_fold_low(s->run, r);
    }
    s->first_layer = below;
    s->low_layers = half;
    s->high_layer = first_layer_of(s->run, s->run->pp) - above;
    s->embed = s->head = s->index == 0;
    s->chunks = 2;
}

/* Rank r of p holds stages r and p - 1 - r, the other way round on the one
 * opposite: the first and the last rank both have embedding and head. */
static void stage_is_dual(struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t low = min_u64(s->index, run->pp - 1 - s->index);
    const uint64_t high = run->pp - 1 - low;
    s->first_layer = first_layer_of(run, low);
    s->low_layers = run->stage_layers[low];
    s->high_layer = first_layer_of(run, high);
    s->layers = s->low_layers + run->stage_layers[high];
    s->embed = s->head = low == 0;
    s->chunks = 2;
}

/* Tied weights stay on one GPU where a process spreads its layers.
 * [accelerate utils/modeling.py, infer_auto_device_map] */
static uint64_t head_stage(const struct program *p, const struct run *run)
{
    const struct block *h = &p->block[p->head];
    bool tied = false;
    for (tensor_id id = h->weights; id != TENSOR_NONE; id = p->tensor[id].next)
        tied = tied || p->tensor[id].tied;
    return tied && run_spreads(run) ? 0 : run->pp - 1;
}

/* Which layers lie on it, and what it shares with all stages. */
static void stage_place(struct stage *s, const struct memory_fold *f,
                        uint64_t index, uint64_t first_layer)
{
    const struct run *run = f->run;
    const struct program *p = f->p;
    *s = (struct stage){ .p = p,
                         .run = run,
                         .index = index,
                         .first_layer = first_layer,
                         .layers = run->stage_layers[index],
                         .embed = index == 0,
                         .head = index == head_stage(p, run),
                         .walk = f->walk,
                         .states = f->states,
                         .at = f->at,
                         .before = f->before,
                         .rank = f->rank,
                         .whole = f->whole,
                         .trained = f->trained,
                         .fill = f->fill,
                         .row = f->row,
                         .ledger = f->ledger,
                         .ends = f->ends,
                         .loose = run_is_loose(run),
                         .splits = run_splits_backward(run),
                         .graph = schedule_keeps_graph(run),
                         .chunks = 1 };
    s->pipes = run_pipelines(run) || run_torch_pipelines(run);
    s->low_layers = s->layers;
    if (schedule_is_dual(run))
        stage_is_dual(s);
    if (run_folds(run))
        stage_is_v(s);
    if (schedule_loops(run->schedule))
        s->chunks = (uint32_t)run->vpp;
    s->chunk_first = f->chunk_first;
    if (f->chunk_at != NULL) {
        s->chunk_at = f->chunk_at + index;
        s->first_layer = s->chunk_at[0];
    }
    s->in_flight = stage_in_flight(run, index);
    s->n = (uint32_t)s->layers + (s->embed ? 1 : 0) + (s->head ? 1 : 0);
}

void stage_init(struct stage *s, struct memory_fold *f, uint64_t index,
                uint64_t first_layer)
{
    const struct run *run = f->run;
    const struct program *p = f->p;
    stage_place(s, f, index, first_layer);
    s->group = max_u64(run->recompute_granularity, 1);
    s->every = max_u64(run->recompute_every, 1);
    if (run_checkpoints(run))
        s->recomputed = s->every > 1
                            ? s->layers
                            : min_u64(run->recompute_layers, s->layers);
    stage_positions(s);
    s->tied_here = s->embed && s->head ? stage_tied_bytes(p) : 0;
    s->tied_cast = stage_ties_cast(p);
    if (f->states[p->head].ties)
        states_of_block(&f->states[p->head], p, &p->block[p->head], run,
                        !(s->embed && s->head));
    if (f->reload != NULL)
        stage_modules_init(s, f);
    stage_prefix(s);
    if (f->away != NULL)
        stage_away_init(s, f);
    s->joint = s->n;
    for (uint32_t i = 0, end; i < s->n; i = end) {
        const struct block *b = &p->block[stage_block(s, i)];
        end = stage_row_end(s, i);
        if (b->kind == BLOCK_JOINT)
            s->joint = end - 1;
        states_add(&s->sum, &s->states[stage_block(s, i)], end - i, run);
        s->global_buffer_bytes =
            max_u64(s->global_buffer_bytes, b->global_buffer_bytes);
    }
    fsdp_fullest_rank(s);
    fsdp_flat_loop(s);
    zero_layout(s);
    if (run_zero_is(run, 3))
        zero3_layout(s);
    megatron_stays(s);
    deferred_init(s);
    s->wgrad = s->before[s->n].wgrad;
    find_waiting(s);
    s->tied_sum = s->tied_here > 0 && sums_at_joint(s);
    s->wgrad -= s->tied_here + s->waiting; /* one tensor, one gradient */
    share(s, f);
    if (engine_wgrad_mode(s, false) == WGRAD_NONE)
        s->dummy_wgrads = dummy_wgrads(s);
    s->inputs = role_bytes(p, p->first_input, p->n_input);
    s->stage_input = stage_held_input(s) + pipe_micro_batch(s);
    s->outputs = held_bytes(p, &p->block[p->head]);
    stage_frames_init(s);
    s->micro_batch_kept = stage_micro_batch_kept(s);
    if (schedule_walked(run))
        stage_chunks_init(s, f);
    graphs_init(s);
}

/* Where nothing but what others keep follows from a stage's place or from how
 * many are in flight. DeepSpeed's buckets are looked at by what is fuller. */
static bool repeats_by_blocks(const struct stage *s)
{
    const struct run *run = s->run;
    return s->index + 1 < run->pp && !s->embed && !s->head && !stage_offloads(s)
           && run->engine != ENGINE_DEEPSPEED
           && run->engine != ENGINE_MEGATRON_FSDP && !run_spreads(run)
           && !run_torch_pipelines(run) && !run->ep_overlap
           && run->graph_step == STEP_EAGER;
}

bool stage_repeats(struct stage *next, const struct stage *s,
                   const struct memory_fold *f)
{
    if (!repeats_by_blocks(s))
        return false;
    /* with chunks, stages find their first layers themselves */
    stage_place(next, f, s->index + 1,
                s->first_layer + s->run->stage_layers[s->index]);
    bool same = !next->head && next->layers == s->layers
                && next->low_layers == s->low_layers;
    for (uint32_t i = 0; same && i < s->n; i++)
        same = stage_block(s, i) == block_at(next, i);
    return same;
}

/* Without chunks: forwards come after the first backward. */
static bool forwards_follow(const struct stage *s)
{
    return s->run->grad_accum > s->in_flight;
}

bool stage_advance(struct stage *s, const struct stage *next,
                   struct memory_fold *f)
{
    const bool before = forwards_follow(s);
    s->index = next->index;
    s->first_layer = next->first_layer;
    s->chunk_at = next->chunk_at;
    s->high_layer = next->high_layer;
    s->in_flight = next->in_flight;
    s->stashes = 0;
    if (schedule_walked(s->run))
        stage_chunks_init(s, f);
    return s->others != NULL || forwards_follow(s) == before;
}

bool stage_stops_early(const struct stage *s, uint32_t position)
{
    return checkpoint_stops_early(s->run)
           && stage_group_last(s, position) == position;
}

bool stage_unpacks(const struct stage *s, uint32_t position)
{
    return run_unpacks(s->run) && stage_recomputed(s, position);
}

uint64_t stage_lead(const struct stage *s, uint32_t position)
{
    const struct block_walk *w =
        &s->walk[stage_block(s, stage_group_last(s, position))];
    return run_unpacks(s->run) ? w->lead : w->output + w->waiting;
}
