/*
 * Lives through a step: tells the walks of every block of every micro-batch,
 * one after the other in the order of the schedule, and between them has the
 * engine's buffers moved to where they are at each position. Owns the order of
 * events; what each is, trace_tell.c says, and every number comes from the
 * walks and the engine.
 */
#include "fold/trace_private.h"

#include "base/banned.h"

/* ---- from block to block ---- */

void tracer_enter(struct tracer *r, enum phase phase, uint32_t micro,
                  uint32_t position)
{
    r->phase = phase;
    r->micro = micro;
    r->position = position;
    r->here = &r->resident[(size_t)(micro % r->ring) * r->s->n + position];
    r->hidden_slot = tracer_block(r, position)->tensor_count;
    r->skip = 0;
    r->keeps_checkpoint = false;
}

/* The block's result changes hands: the next block's input. Graphs that are
 * captured have inputs of their own. */
void trace_hand_on(struct tracer *r)
{
    const struct block *b = tracer_block(r, r->position);
    if (b->output == TENSOR_NONE || r->s->run->graph_step == STEP_CAPTURE)
        return;
    const tensor_id root = r->s->p->tensor[b->output].storage;
    if (root < b->tensor_first || root - b->tensor_first >= b->tensor_count)
        return;
    hold_id *id = &r->here->slot[root - b->tensor_first];
    tracer_death(r, &r->hidden);
    r->hidden = *id;
    *id = NO_HOLD;
}

/* ---- micro-batches ---- */

/* What another rank sent is there by then. */
static void copy_out(struct tracer *r)
{
    if (r->hidden == NO_HOLD)
        r->hidden =
            tracer_born(r, COMP_TEMPORARY, "the block's input",
                        r->s->walk[stage_block(r->s, r->position)].input);
    units_gather(r);
    levels_copied_out(r);
}

/* Of a checkpoint that is not all kept as it is: what is, when the layer is
 * done, and the whole again. */
static void checkpoint_kept(struct tracer *r)
{
    const struct stage *s = r->s;
    const struct block_walk *w = &r->f->walk[stage_block(s, r->position)];
    hold_id part = NO_HOLD;
    if (!stage_offloads(s)) {
        if (!r->keeps_checkpoint || !s->run->distributes_saved)
            return;
        part = tracer_born(r, COMP_ACTIVATIONS, "part of a checkpoint",
                           stage_checkpoint_part(s, w));
    }
    tracer_death(r, &r->here->checkpoint);
    r->here->checkpoint = part;
}

static void checkpoint_whole(struct tracer *r, uint64_t bytes)
{
    hold_id part = r->here->checkpoint;
    if (!r->s->run->distributes_saved && !stage_offloads(r->s))
        return;
    r->here->checkpoint = tracer_born(r, COMP_ACTIVATIONS, "checkpoint", bytes);
    tracer_death(r, &part);
}

void trace_forward(struct tracer *r, uint32_t micro, uint32_t i)
{
    const struct stage *s = r->s;
    const bool head = s->head && i == s->n - 1;
    const bool re = stage_recomputed(s, i);
    tracer_enter(r, head ? PHASE_LOSS : PHASE_FORWARD, micro, i);
    trace_leaves(r, false);
    if (engine_copies_out(s, i, r->later))
        copy_out(r);
    else if (i == 0)
        units_gather(r);
    levels_at(r, r->phase, i);
    r->keeps_checkpoint = re && stage_group_first(s, i) == i;
    tracer_play(r, re ? SCRIPT_CHECKPOINT
                   : stage_unloads(s, i) || stage_module_goes(s, i)
                       ? SCRIPT_AWAY
                       : SCRIPT_FORWARD);
    trace_hand_on(r);
    levels_reshard(r);
    trace_left(r, false);
    checkpoint_kept(r);
}

static void micro_forward(struct tracer *r, uint32_t micro, uint32_t chunk)
{
    const uint32_t end = stage_chunk_first(r->s, chunk + 1);
    for (uint32_t i = stage_chunk_first(r->s, chunk); i < end; i++)
        trace_forward(r, micro, i);
    tracer_death(r, &r->hidden); /* sent on */
}

/* What is there of gradients then: that of the result, or what is left of it,
 * and more. */
static hold_id gradients_lead(struct tracer *r, uint64_t lead, uint64_t result)
{
    const bool whole = lead >= result;
    if (whole)
        r->grad = tracer_handed(r, &r->grad, COMP_TEMPORARY,
                                "gradient of the checkpoint's result", result);
    else
        tracer_death(r, &r->grad);
    return tracer_born(r, COMP_TEMPORARY,
                       "gradients that wait for what is made again",
                       whole ? lead - result : lead);
}

static void graph_leaves(struct tracer *r, uint32_t chunk, uint64_t bytes)
{
    r->left_sum += bytes - r->left[chunk];
    r->left[chunk] = bytes;
}

/* Of a chunk's weights' gradients those of blocks up to one wait to be added, as
 * its backward comes to that; where they become the sum they are counted as
 * that. */
static void graph_adds(struct tracer *r, uint32_t chunk, uint32_t position)
{
    const struct prefix *from = &r->s->before[stage_chunk_first(r->s, chunk)];
    const uint64_t below = r->s->before[position + 1].wgrad - from->wgrad;
    if (r->s->graph && r->left[chunk] != 0)
        graph_leaves(r, chunk, r->adds ? below : 0);
}

/* Runs a checkpoint's layers forward again, the gradient of the result
 * waiting; the result stays. */
static hold_id recompute_group(struct tracer *r, uint32_t micro, uint32_t last)
{
    const struct stage *s = r->s;
    const uint32_t first = stage_group_first(s, last);
    const struct block_walk *top = &r->f->walk[stage_block(s, last)];
    const uint64_t result = top->output;
    hold_id waiting = NO_HOLD;
    for (uint32_t i = first; i <= last; i++) {
        tracer_enter(r, PHASE_RECOMPUTE, micro, i);
        graph_adds(r, stage_chunk(s, last), last);
        if (i == first && engine_copies_back(s, last))
            levels_copied_back(r, last);
        levels_at(r, PHASE_RECOMPUTE, last);
        if (i == first)
            waiting = gradients_lead(r, stage_lead(s, last), result);
        if (i == first)
            checkpoint_whole(r, r->f->walk[stage_block(s, i)].input);
        if (i == first)
            r->skip = r->hidden_slot + 1;
        tracer_play(r, stage_stops_early(s, i) ? SCRIPT_AGAIN_EARLY
                                               : SCRIPT_AGAIN);
        if (i < last || !top->keeps_output) /* else its backward needs it */
            trace_hand_on(r);
    }
    tracer_death(r, &waiting);
    if (!s->run->recompute_reentrant) {
        tracer_death(r, &r->hidden);
        return NO_HOLD;
    }
    return tracer_handed(r, &r->hidden, COMP_ACTIVATIONS, "recomputed result",
                         result);
}

/* A frozen embedding has no use for the gradient of its result. */
static bool takes_gradient(const struct tracer *r)
{
    const struct block *b = tracer_block(r, r->position);
    return b->output == TENSOR_NONE || r->s->p->tensor[b->output].needs_grad;
}

/* Gradients that wait for others: to be stepped, or for the root's reduction. */
static enum term waits_in(const struct stage *s, const char **what)
{
    const bool root = engine_reduces_blocks(s->run);
    *what = root ? ROOT_GRADS_LABEL : "";
    return root ? TERM_WGRAD_TMP : TERM_GRADS;
}

/* The table's own gradient is gone; in its place is `sum`, where that is not
 * the head's, which stays. */
static void tied_sum_stays(struct tracer *r, hold_id *sum)
{
    const uint64_t bytes = r->s->tied_here;
    const char *what;
    const enum term term = waits_in(r->s, &what);
    uint32_t i = 0;
    while (i < r->n_wgrads
           && (r->wgrad[i] == NO_HOLD
               || round_alloc(r->hold[r->wgrad[i]].bytes) != bytes))
        i++;
    if (i == r->n_wgrads
        || (*sum != NO_HOLD && !levels_give(r, term, what, bytes)))
        return;
    const char *name = r->hold[r->wgrad[i]].name;
    tracer_death(r, &r->wgrad[i]);
    if (*sum != NO_HOLD)
        r->wgrad[i] =
            tracer_handed(r, sum, COMP_GRADIENTS, name, r->hold[*sum].bytes);
}

/* To the head's gradient of a tied table its own is added: in place where the
 * head's is no view, else in a tensor of its own. */
static void add_tied(struct tracer *r, enum wgrad_mode mode)
{
    const struct stage *s = r->s;
    const uint64_t sum = stage_tied_sum(s, mode);
    if (sum != 0 && bucket_fills(s, r->later)) {
        const struct bucket_fill fill = bucket_before_sum(s, r->position);
        levels_bucket(r, &fill);
    }
    hold_id id = tracer_born(r, COMP_TEMPORARY, "sum of tied gradients", sum);
    if (mode == WGRAD_KEEP && s->tied_here != 0
        && (sum == s->tied_here || s->tied_cast || s->tied_sum))
        tied_sum_stays(r, &id);
    tracer_death(r, &id);
}

static void backward_block(struct tracer *r)
{
    const enum wgrad_mode mode = engine_wgrad_mode(r->s, r->later);
    r->arrived = r->ended = 0;
    if (bucket_fills(r->s, r->later))
        r->turn.after = r->turn.told = r->s->fill[r->position + 1];
    tracer_play(r, (r->slot == SLOT_INPUT && stage_remakes(r->s, r->position)
                        ? SCRIPT_REMADE_SPLIT
                    : r->slot == SLOT_INPUT            ? SCRIPT_SPLIT
                    : stage_unpacks(r->s, r->position) ? SCRIPT_UNPACKED
                    : stage_goes(r->s, r->position)
                            || stage_module_goes(r->s, r->position)
                        ? SCRIPT_RELOADED
                        : SCRIPT_BACKWARD)
                       + (unsigned)mode);
    if (stage_block(r->s, r->position) == r->s->p->words)
        add_tied(r, mode);
}

/* A block's own gradients are the engine's from here on: where they were made,
 * or reduced and gone. */
void trace_hand_over_wgrads(struct tracer *r)
{
    const struct stage *s = r->s;
    const bool root =
        engine_reduces_blocks(s->run) && !fsdp_is_unit(s, r->position);
    const bool stay = root || !engine_drops_blocks(s->run);
    const char *what;
    const enum term term = waits_in(s, &what);
    for (uint32_t i = 0; i < r->n_wgrads; i++) {
        if (stay)
            levels_take(r, term, what, r->wgrad[i]);
        else
            tracer_death(r, &r->wgrad[i]);
    }
    r->n_wgrads = 0;
}

/* Joined to one, under FSDP version 1. */
static void flatten_wgrads(struct tracer *r)
{
    levels_done(r, UNIT_FLATTENED);
    for (uint32_t i = 0; i < r->n_wgrads; i++)
        tracer_death(r, &r->wgrad[i]);
    r->n_wgrads = 0;
    if (fsdp_casts_grads(r->s))
        levels_done(r, UNIT_CAST);
    if (engine_steps_units(r->s->run))
        levels_done(r, UNIT_STEPPED);
}

static void checkpoint_over(struct tracer *r, hold_id *result)
{
    tracer_death(r, result);
    if (r->slot == SLOT_INPUT && stage_remakes(r->s, r->position))
        return;
    if (r->slot == SLOT_INPUT
        && r->f->walk[stage_block(r->s, r->position)].stashes_input) {
        r->here->slot[r->hidden_slot] = r->here->checkpoint;
        r->here->checkpoint = NO_HOLD;
    }
    tracer_death(r, &r->here->checkpoint);
}

static void graph_sends(struct tracer *r, uint32_t chunk)
{
    if (!r->s->graph)
        return;
    graph_leaves(r, chunk, 0);
    if (r->slot == SLOT_INPUT)
        r->sent += r->s->chunk_sent[chunk];
}

void trace_begin_backward(struct tracer *r)
{
    if (!takes_gradient(r))
        tracer_death(r, &r->grad);
    trace_leaves(r, true);
    graph_adds(r, stage_chunk(r->s, r->position), r->position);
    if (!stage_recomputed(r->s, r->position)
        && engine_copies_back(r->s, r->position))
        levels_copied_back(r, r->position);
    levels_at(r, PHASE_BACKWARD, r->position);
    units_prefetched(r);
    trace_comes_back(r);
}

void trace_backward(struct tracer *r, uint32_t micro, uint32_t i, hold_id *held)
{
    const struct stage *s = r->s;
    const bool re = stage_recomputed(s, i);
    if (!stage_turns(s, i))
        return;
    if (re && stage_group_last(s, i) == i)
        *held = recompute_group(r, micro, i);
    tracer_enter(r, PHASE_BACKWARD, micro, i);
    trace_begin_backward(r);
    if (re && i == stage_group_first(s, i))
        r->skip = r->hidden_slot + 1;
    backward_block(r);
    const bool over = re && i == stage_group_first(s, i);
    if (over && (fsdp_joins(s, i) || fsdp_overlaps(s, i)))
        checkpoint_over(r, held);
    if (fsdp_joins(s, i))
        flatten_wgrads(r);
    else if (fsdp_overlaps(s, i))
        levels_done(r, UNIT_FLATTENED);
    trace_hand_over_wgrads(r);
    levels_reshard(r);
    if (over)
        checkpoint_over(r, held);
}

static void micro_backward(struct tracer *r, uint32_t micro, uint32_t chunk)
{
    const uint32_t first = stage_chunk_first(r->s, chunk);
    hold_id held = NO_HOLD;
    r->done = true;
    for (uint32_t i = stage_chunk_first(r->s, chunk + 1); i-- > first;)
        trace_backward(r, micro, i, &held);
    tracer_death(r, &r->grad); /* sent back */
    graph_sends(r, chunk);
    if (chunk + 1 == r->s->chunks)
        r->outputs += pipe_outputs(r->s);
    trace_away_ends(r);
    if (engine_accumulates(r->s->run, r->later)) {
        levels_accumulate(r);
        trace_accumulate(r);
    }
}

/* Gradients of linears' weights, that a backward left for later. */
static void block_weights(struct tracer *r, uint32_t micro, uint32_t i,
                          enum wgrad_mode mode)
{
    if (!stage_turns(r->s, i))
        return;
    tracer_enter(r, PHASE_BACKWARD, micro, i);
    levels_at(r, PHASE_BACKWARD, i);
    r->remakes = stage_remakes(r->s, i);
    if (r->remakes)
        r->skip = r->hidden_slot + 1; /* the checkpoint's */
    tracer_play(r, (stage_is_topmost(r->s, i) ? SCRIPT_REMADE_TOPMOST
                    : r->remakes              ? SCRIPT_REMADE_WEIGHTS
                                              : SCRIPT_WEIGHTS)
                       + (unsigned)mode);
    r->remakes = false;
    trace_hand_over_wgrads(r);
}

/* From the first block up; then the graph goes with all that it holds. */
static void graph_weights(struct tracer *r, uint32_t micro, uint32_t chunk)
{
    const struct stage *s = r->s;
    const uint32_t first = stage_chunk_first(s, chunk);
    const uint32_t end = stage_chunk_first(s, chunk + 1);
    const bool adds = r->left[chunk] != 0;
    const enum wgrad_mode mode =
        adds ? WGRAD_FREE : engine_wgrad_mode(s, r->later);
    for (uint32_t i = first; i < end; i++) {
        block_weights(r, micro, i, mode);
        if (s->chunk_added[chunk] != 0 && !adds)
            graph_leaves(r, chunk,
                         s->before[i + 1].wgrad - s->before[first].wgrad);
    }
    for (uint32_t i = first; i < end; i++) {
        tracer_enter(r, PHASE_BACKWARD, micro, i);
        for (uint32_t k = 0; k < r->slots; k++)
            tracer_all_die(r, k);
        tracer_death(r, &r->here->checkpoint);
    }
}

static void micro_weights(struct tracer *r, uint32_t micro, uint32_t chunk)
{
    const uint32_t first = stage_chunk_first(r->s, chunk);
    if (r->s->graph) {
        graph_weights(r, micro, chunk);
        return;
    }
    for (uint32_t i = stage_chunk_first(r->s, chunk + 1); i-- > first;)
        block_weights(r, micro, i, engine_wgrad_mode(r->s, r->later));
}

/* ---- the step ---- */

/* Logits of the step before go; of micro-batches that are left out they are there
 * from the start. */
static void outputs_begin(struct tracer *r, uint64_t micros)
{
    r->outputs = (r->s->run->grad_accum - micros) * pipe_outputs(r->s);
}

/* 1F1B and, where all are in flight, GPipe: forwards until the stage is full,
 * then a backward and a forward in turn. */
static void run_schedule(struct tracer *r)
{
    const uint64_t full = r->s->in_flight;
    uint64_t micros = r->s->run->grad_accum;
    r->slot = SLOT_BACKWARD;
    if (r->sim == NULL) /* every moment occurs in so many */
        micros = min_u64(micros, full + 2);
    outputs_begin(r, micros);
    uint64_t forward = 0, backward = 0;
    while (backward < micros && !r->failed) {
        r->later = backward > 0;
        if (forward < micros && forward - backward < full) {
            if (r->turns != NULL && !turns_next(r)) {
                micros = forward;
                continue;
            }
            r->other_micros = r->other_chunks = forward - backward;
            micro_forward(r, (uint32_t)forward++, 0);
            continue;
        }
        r->other_micros = r->other_chunks = forward - backward - 1;
        micro_backward(r, (uint32_t)backward++, 0);
        /* the last one's root is reduced as the step ends: one is left */
        const bool rooted = backward < micros && units_root(r);
        const uint64_t ends = rooted && forward == backward ? 1 : 0;
        if (r->sim != NULL && forward < micros)
            micros -= simulate_skip(r, backward, micros - forward - ends);
        if (r->settled)
            return;
    }
}

/* What the interleaved schedule has come to. */
struct interleaving {
    struct tracer *r;
    uint64_t micros, begun; /* micro-batches */
};

static bool run_slot(void *ctx, const struct slot *slot)
{
    struct interleaving *x = ctx;
    struct tracer *r = x->r;
    const uint64_t group = run_round(r->s->run);
    r->later = slot->later;
    r->slot = slot->kind;
    r->other_micros = slot->other_micros;
    r->other_chunks = slot->other_chunks;
    if (slot->kind == SLOT_FORWARD) {
        x->begun = max_u64(x->begun, (slot->micro / group + 1) * group);
        micro_forward(r, slot->micro, slot->chunk);
        return !r->failed;
    }
    micro_backward(r, slot->micro, slot->chunk);
    const bool ends = slot->chunk == 0 && (slot->micro + 1) % group == 0;
    if (r->sim != NULL && ends && x->begun < x->micros)
        x->micros -= group
                     * simulate_skip(r, (slot->micro + 1) / group,
                                     (x->micros - x->begun) / group);
    return !r->failed && !r->settled;
}

static bool run_split_slot(void *ctx, const struct slot *slot)
{
    struct tracer *r = ctx;
    r->later = slot->later;
    r->missing = slot->later ? slot->missing : 0;
    r->apart = slot->apart;
    r->adds = slot->adds;
    r->slot = slot->kind;
    r->other_micros = slot->other_micros;
    r->other_chunks = slot->other_chunks;
    switch (slot->kind) {
    case SLOT_FORWARD: micro_forward(r, slot->micro, slot->chunk); break;
    case SLOT_BACKWARD:
    case SLOT_INPUT: micro_backward(r, slot->micro, slot->chunk); break;
    case SLOT_WEIGHT: micro_weights(r, slot->micro, slot->chunk); break;
    case SLOT_KINDS: break;
    }
    if (slot->reduces)
        graph_leaves(r, slot->chunk, 0);
    return !r->failed;
}

/* The steady state, twice as long, is as it is. */
static void run_split(struct tracer *r)
{
    for (uint32_t c = 0; c < r->s->chunks; c++)
        graph_leaves(r, c, 0);
    r->sent = r->s->sent_before;
    schedule_walk(r->s, schedule_micros(r->s->run), r->steps, run_split_slot,
                  r);
    r->missing = 0;
    r->apart = 0;
}

static void run_interleaved(struct tracer *r)
{
    const struct run *run = r->s->run;
    struct interleaving x = { .r = r, .micros = run->grad_accum };
    if (r->sim == NULL)
        x.micros = schedule_micros(run);
    outputs_begin(r, x.micros);
    schedule_interleaved(r->s, &x.micros, run_slot, &x);
}

static void forget_targets(struct tracer *r)
{
    for (size_t i = 0; i < TARGETS * (size_t)r->s->n; i++)
        r->at[i].v = NULL;
    for (unsigned p = 0; p < PHASE_COUNT; p++)
        r->after[p].v = NULL;
}

/* The first step finds no gradients, and nothing that a step before reduced them
 * from, whatever becomes of both after it: the stage as it is for an engine that
 * keeps none. */
static void first_step_begins(struct tracer *r)
{
    struct stage *s = ARENA_NEW(r->a, struct stage, 1);
    struct run *run = ARENA_NEW(r->a, struct run, 1);
    if (s == NULL || run == NULL) {
        r->failed = true;
        return;
    }
    *run = *r->s->run;
    run->zeroes_grads = false;
    run->keep_reduce_scatter = false;
    *s = *r->s;
    s->run = run;
    s->has_rest = false;
    r->whole_stage = r->s;
    r->s = s;
}

static void first_step_ends(struct tracer *r)
{
    r->s = r->whole_stage;
    forget_targets(r);
    if (r->turns != NULL)
        turns_forget(r);
}

void tracer_step(struct tracer *r, enum trace_step step)
{
    const bool bare =
        step == TRACE_FIRST
        && (run_keeps_grads(r->s->run) || r->s->run->keep_reduce_scatter);
    r->step = step;
    if (bare)
        first_step_begins(r);
    if (r->failed)
        return;
    if (step == TRACE_LATER)
        outputs_begin(r, 0);
    levels_after(r, PHASE_REST);
    if (r->s->splits)
        run_split(r);
    else if (r->s->met != NULL)
        trace_overlapped(r);
    else if (r->s->chunks > 1)
        run_interleaved(r);
    else
        run_schedule(r);
    if (r->settled)
        return;
    outputs_begin(r, 0);
    levels_after(r, PHASE_REDUCE);
    units_reduced(r);
    trace_reduce(r);
    levels_after(r, PHASE_CLIP);
    levels_after(r, PHASE_STEP);
    r->step = TRACE_LATER; /* the moments are there */
    if (bare)
        first_step_ends(r);
    levels_after(r, PHASE_REST);
    trace_gather(r);
}

/* The largest block's tensors and operands. */
static void room(const struct program *p, uint32_t *tensors, uint32_t *operands)
{
    *tensors = *operands = 0;
    for (uint32_t b = 0; b < p->n_blocks; b++) {
        const struct block *block = &p->block[b];
        uint32_t n = 0;
        for (uint32_t k = 0; k < block->op_count; k++)
            n += p->op[block->op_first + k].n_in;
        *operands = *operands > n ? *operands : n;
        *tensors =
            *tensors > block->tensor_count ? *tensors : block->tensor_count;
    }
}

/* Micro-batches alive at a time. */
static void tracer_ring(struct tracer *r)
{
    const struct run *run = r->s->run;
    uint64_t ring = min_u64(run->grad_accum, r->s->in_flight);
    if (schedule_walked(run))
        ring = schedule_micros(run);
    r->ring = (uint32_t)max_u64(ring, 1);
}

bool tracer_room(struct tracer *r)
{
    struct arena *a = r->length_a;
    uint32_t operands;
    room(r->s->p, &r->slots, &operands);
    r->slots++; /* the input */
    const size_t cells = (size_t)r->ring * r->s->n;
    const size_t buffers = 2 * (size_t)operands + 2;
    hold_id *stash = NULL;
    r->resident = ARENA_NEW(a, struct resident, cells);
    hold_id *slots = ARENA_NEW(a, hold_id, cells * r->slots);
    if (r->s->splits)
        stash = ARENA_NEW(a, hold_id, cells * buffers);
    r->buffer = ARENA_NEW(a, hold_id, buffers);
    r->wgrad = ARENA_NEW(a, hold_id, (size_t)operands + 1);
    if (r->s->reload != NULL)
        r->back = ARENA_NEW(a, hold_id, r->f->scratch.entries_room);
    r->at = ARENA_NEW(a, struct targets, TARGETS * (size_t)r->s->n);
    if (a->failed)
        return false;
    for (size_t i = 0; i < cells; i++) {
        r->resident[i].slot = slots + i * r->slots;
        r->resident[i].stash = stash == NULL ? NULL : stash + i * buffers;
    }
    return true;
}

bool tracer_init(struct tracer *r)
{
    const struct run *run = r->s->run;
    r->length_a = r->a;
    tracer_ring(r);
    r->regions = run_regions(run);
    if (run_splits_backward(run))
        r->steps = ARENA_ROOM(r->a, struct step,
                              (size_t)schedule_room(run, schedule_micros(run)));
    return !r->a->failed && tracer_room(r) && levels_init(r);
}

bool trace_stage(struct trace *t, struct memory_fold *f, const struct stage *s,
                 enum trace_step step, struct arena *a)
{
    *t = (struct trace){ .arena = a, .step = step };
    struct tracer *r = ARENA_NEW(a, struct tracer, 1);
    if (r == NULL)
        return false;
    *r = (struct tracer){ .a = a, .f = f, .s = s, .list = t };
    if (!tracer_init(r))
        return false;
    tracer_step(r, step);
    return !r->failed && !t->failed;
}
