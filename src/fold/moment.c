/*
 * What is alive at one moment of the step: what the blocks keep and need
 * (walk.c) and what the engine adds (engine.c). Owns the order of the step.
 * [docs/method.md eq. peak, eq. recompute]
 */
#include "fold/stage.h"

#include "base/banned.h"

/* ---- activations ---- */

static uint64_t edge_kept(const struct stage *s, uint32_t position,
                          enum block_kind kind)
{
    const uint32_t b = kind == BLOCK_EMBED ? s->p->embed : s->p->head;
    const bool there = kind == BLOCK_EMBED
                           ? s->embed && position > 0
                                 && stage_chunk_before(s, position) == s->before
                           : s->head && position == s->n;
    return there ? s->walk[b].kept : 0;
}

/* Everything one micro-batch keeps between its forward and its backward. The
 * head keeps nothing of another micro-batch, but under GPipe: its backward
 * follows its forward at once. */
uint64_t stage_micro_batch_kept(const struct stage *s)
{
    const struct prefix *all = &s->before[s->n];
    const bool waits = s->run->schedule == SCHED_GPIPE;
    return all->kept_layers + all->checkpoints + edge_kept(s, s->n, BLOCK_EMBED)
           + (waits ? edge_kept(s, s->n, BLOCK_HEAD) + pipe_logits(s) : 0)
           + s->shared_kept + s->inputs + s->stage_input;
}

/* How many layers of one kind lie before a position; of recomputed ones, how
 * many checkpoints. */
static uint64_t layers_before(const struct stage *s, uint32_t position,
                              uint32_t block, bool recomputed)
{
    uint64_t n = 0;
    const uint32_t from =
        (uint32_t)(stage_chunk_before(s, position) - s->before);
    for (uint32_t i = from; i < position; i++) {
        if (!stage_is_layer(s, i) || stage_block(s, i) != block
            || stage_recomputed(s, i) != recomputed)
            continue;
        n += !recomputed || stage_group_first(s, i) == i;
    }
    return n;
}

/* Transformer Engine's, layer by layer: what has left, and what is back. */
static void put_away(struct put *p, const struct stage *s, uint32_t position)
{
    const struct span gone = stage_gone(s, position);
    for (uint32_t k = 0; k < s->p->n_blocks; k++) {
        const struct block_walk *w = &s->walk[k];
        const uint64_t n = layers_before(s, gone.end, k, false);
        PUT(p, TERM_SAVED_LAYERS, "kept by the layers before, on the GPU",
            F("layers", layers_before(s, position, k, false) - n),
            F("bytes kept by one", w->kept));
        PUT(p, TERM_SAVED_LAYERS,
            "left of layers whose tensors are on the host", F("layers", n),
            F("bytes left of one", w->kept - w->away.bytes));
    }
}

/* Megatron's, module by module: what has left. */
static void put_modules(struct put *p, const struct stage *s, uint32_t position)
{
    const uint32_t first =
        (uint32_t)(stage_chunk_before(s, position) - s->before);
    for (uint32_t k = 0; k < s->p->n_blocks; k++) {
        const struct block_walk *w = &s->walk[k];
        uint64_t n[2] = { 0, 0 };
        for (uint32_t i = first; i < position; i++)
            if (stage_is_layer(s, i) && stage_block(s, i) == k)
                n[stage_module_goes(s, i)]++;
        PUT(p, TERM_SAVED_LAYERS, "kept by the layers before, on the GPU",
            F("layers", n[false]), F("bytes kept by one", w->kept));
        PUT(p, TERM_SAVED_LAYERS,
            "left of layers whose modules' tensors are on the host",
            F("layers", n[true]),
            F("bytes left of one", w->kept - w->away.bytes));
    }
}

/* The sums are at hand; only an explanation needs them kind by kind. */
static void put_layers(struct put *p, const struct stage *s, uint32_t position)
{
    if (s->away != NULL && p->m->phase == PHASE_BACKWARD)
        PUT(p, TERM_SAVED_LAYERS, "came back from the host, and waits",
            F("bytes", stage_back_bytes(s, position)));
    if (s->away != NULL && p->why != NULL) {
        put_away(p, s, position);
        return;
    }
    if (s->reload != NULL && p->why != NULL) {
        put_modules(p, s, position);
        return;
    }
    const struct prefix *b = &s->before[position];
    const struct prefix *from = stage_chunk_before(s, position);
    if (p->why == NULL) {
        PUT(p, TERM_SAVED_LAYERS, "",
            F("bytes",
              b->kept_layers - from->kept_layers
                  - (s->away == NULL ? 0 : stage_gone_bytes(s, position))));
        PUT(p, TERM_CHECKPOINTS, "",
            F("bytes", b->checkpoints - from->checkpoints));
        return;
    }
    for (uint32_t k = 0; k < s->p->n_blocks; k++) {
        PUT(p, TERM_SAVED_LAYERS, "kept by the layers before",
            F("layers", layers_before(s, position, k, false)),
            F("bytes kept by one", s->walk[k].kept));
        PUT(p, TERM_CHECKPOINTS, "kept by the checkpoints before",
            F("checkpoints", layers_before(s, position, k, true)),
            F("bytes kept by one", stage_checkpoint_kept(s, &s->walk[k])));
    }
}

bool moment_has_others(enum phase phase)
{
    switch (phase) {
    case PHASE_REST:
    case PHASE_REDUCE:
    case PHASE_CLIP:
    case PHASE_STEP:
    case PHASE_COUNT: return false;
    case PHASE_FORWARD:
    case PHASE_LOSS:
    case PHASE_BACKWARD:
    case PHASE_RECOMPUTE:
    case PHASE_ACCUMULATE: break;
    }
    return true;
}

uint64_t moment_of_others(const struct stage *s, const struct instant *when)
{
    if (!moment_has_others(when->phase))
        return 0;
    if (s->others == NULL)
        return s->micro_batch_kept * stage_others(s, when->later)
               + pipe_outputs_before(s, when->later);
    const uint64_t most =
        stage_others_kept(s, when->position, when->slot, when->later);
    return most == NEVER ? 0 : most;
}

static void put_beside(struct put *p)
{
    PUT(p, TERM_IN_FLIGHT, "other chunks in flight",
        F("bytes", p->m->beside.others));
    PUT(p, TERM_IN_FLIGHT, "the pass of another micro-batch, beside this one",
        F("bytes", p->m->beside.pass));
}

/* What gradients lack beside the fullest of others. */
static uint64_t lacking(const struct stage *s, uint32_t position,
                        enum slot_kind slot, bool later)
{
    return s->graph && later
               ? s->lacking[SLOT_KINDS * stage_chunk(s, position) + slot]
               : 0;
}

static void put_others(struct put *p, const struct stage *s, uint32_t position)
{
    if (p->m->beside.is) {
        put_beside(p);
        return;
    }
    if (s->others == NULL) {
        PUT(p, TERM_IN_FLIGHT, "other micro-batches of this stage",
            F("bytes of one", s->micro_batch_kept),
            F("in flight beside this one", stage_others(s, p->m->later)));
        PUT(p, TERM_IN_FLIGHT, "logits of micro-batches that are done",
            F("bytes", pipe_outputs_before(s, p->m->later)));
        return;
    }
    const uint64_t most = stage_others_kept(s, position, p->slot, p->m->later);
    p->lacks = lacking(s, position, p->slot, p->m->later);
    PUT(p, TERM_IN_FLIGHT,
        s->splits ? "in flight, or waiting for weights' gradients"
                  : "other chunks in flight",
        F("bytes", most == NEVER ? 0 : most));
}

/* Whether another micro-batch is in flight beside the one at hand. */
static bool has_others(const struct put *p, const struct stage *s,
                       uint32_t position)
{
    if (s->others == NULL)
        return stage_others(s, p->m->later) > 0;
    const uint64_t most = stage_others_kept(s, position, p->slot, p->m->later);
    return most != NEVER && most > 0;
}

/* Of modules whose tensors went to the host: ahead of their backward. */
static void put_ahead(struct put *p, uint64_t bytes)
{
    PUT(p, TERM_SAVED_LAYERS, "back from the host ahead of its backward",
        F("bytes", bytes));
}

/* Kept by the positions before one, and what a micro-batch has all along. */
static void put_kept(struct put *p, const struct stage *s, uint32_t position)
{
    PUT(p, TERM_SAVED_EMBED, "kept by the embedding",
        F("bytes", edge_kept(s, position, BLOCK_EMBED)));
    put_layers(p, s, position);
    const enum phase phase = p->m->phase;
    PUT(p, TERM_SHARED, "made once a micro-batch",
        F("bytes", phase == PHASE_FORWARD     ? stage_shared_ahead(s, position)
                   : phase == PHASE_RECOMPUTE ? stage_shared_again(s, position)
                   : p->inside                ? stage_shared_inside(s)
                   : phase == PHASE_LOSS      ? s->shared_late
                                         : stage_shared_back(s, position)));
    PUT(p, TERM_INPUTS, "token ids and labels", F("bytes", s->inputs));
    PUT(p, TERM_SAVED_LAYERS, "hidden states at the stage's borders",
        F("bytes", s->stage_input));
    put_others(p, s, position);
}

/* Left by the blocks above, whose weights' gradients come later. */
static void put_stash(struct put *p, const struct stage *s, uint32_t position)
{
    if (p->slot != SLOT_INPUT)
        return;
    const uint32_t end = stage_chunk_first(s, stage_chunk(s, position) + 1);
    PUT(p, TERM_SAVED_LAYERS, "kept above for weights' gradients",
        F("bytes", s->before[end].stash - s->before[position + 1].stash));
}

/* Of a graph: gradients of weights that the micro-batch before has left, of the
 * blocks that this one's backward has not come to; as far as the fullest of
 * others in flight was not beside a pass that found none. */
static void put_added(struct put *p, const struct stage *s, uint32_t position)
{
    if (!s->graph || !p->m->later)
        return;
    const struct adding *adding =
        &s->adding[SLOT_KINDS * stage_chunk(s, position) + p->slot];
    if (adding->kept == NEVER)
        return;
    const uint64_t most =
        stage_others_kept(s, position, p->slot, true) + adding->lacks;
    const uint64_t with = adding->kept + s->before[position + 1].wgrad
                          - stage_chunk_before(s, position)->wgrad
                          + lacking(s, position, p->slot, true);
    PUT(p, TERM_GRADS, "of the micro-batch before, not yet added",
        F("bytes", with > most ? with - most : 0));
}

static enum term kept_term(const struct stage *s, uint32_t position)
{
    switch (s->p->block[stage_block(s, position)].kind) {
    case BLOCK_EMBED: return TERM_SAVED_EMBED;
    case BLOCK_HEAD: return TERM_SAVED_HEAD;
    case BLOCK_JOINT:
    case BLOCK_LAYER: break;
    }
    return stage_recomputed(s, position) ? TERM_RECOMPUTED : TERM_SAVED_LAYERS;
}

static const char *op_name(const struct stage *s, const struct extremum *e)
{
    return s->p->n_ops == 0 ? "" : s->p->op[e->op].name;
}

/* What the loop holds goes where its variables get other values, in the midst
 * of a block, and what those of the model's forward hold where that returns:
 * the fullest side of these. */
static const struct extremum *forward_extremum(struct put *p,
                                               const struct stage *s,
                                               const struct block_walk *w)
{
    const uint64_t held = loop_holds_over(s) ? s->before[s->n].held : 0;
    const bool after =
        w->renames
        && extremum_total(&w->before) + held < extremum_total(&w->after);
    const struct extremum *e = after || !w->renames ? &w->after : &w->before;
    if (w->returns) {
        const uint64_t out = s->shared_late + stage_frames(s, p->m->position);
        const uint64_t in = stage_shared_inside(s) + stage_frames_inside(s);
        p->inside = extremum_total(&w->inside) + in + held
                    > extremum_total(e) + out + (after ? 0 : held);
    }
    if (!after || p->inside)
        loop_forward(p, s);
    return p->inside ? &w->inside : e;
}

static void put_frames(struct put *p, const struct stage *s, uint32_t position)
{
    PUT(p, TERM_FORWARD_TMP, "held to the end of forward: autocast's copies",
        F("bytes", s->before[position].lingers
                       - stage_chunk_before(s, position)->lingers));
    PUT(p, TERM_FORWARD_TMP, "results that the model's variables hold",
        F("bytes",
          p->inside ? stage_frames_inside(s) : stage_frames(s, position)));
}

static void put_forward(struct put *p, const struct stage *s, uint32_t position,
                        bool later)
{
    const struct block_walk *w = &s->walk[stage_block(s, position)];
    const bool re = stage_recomputed(s, position);
    const unsigned node = p->m->beside.node;
    const struct extremum *e = &w->forward_nograd;
    if (re)
        loop_forward(p, s);
    else
        e = forward_extremum(p, s, w);
    if (node > 0)
        e = &w->overlap->forward.top[node - 1];
    if (stage_unloads(s, position) || stage_module_goes(s, position))
        e = &w->away.forward;
    if (s->reload != NULL)
        put_ahead(p,
                  stage_ahead(s, position, false, has_others(p, s, position)));
    PUT(p, TERM_SAVED_LAYERS, "of the layer before, on its way to the host",
        F("bytes", stage_on_the_way(s, position)));
    p->m->op = op_name(s, e);
    put_kept(p, s, position);
    PUT(p, kept_term(s, position), "kept by this block so far",
        F("bytes", e->kept));
    PUT(p, TERM_FORWARD_TMP, "alive for a moment in this block",
        F("bytes", e->tmp));
    put_frames(p, s, position);
    engine_forward(p, s, position, later);
}

/* Before a block of its own unit runs, FSDP version 2 copies out what was
 * gathered for it. */
static void put_copied_out(struct put *p, const struct stage *s,
                           uint32_t position, bool later)
{
    const struct block_walk *w = &s->walk[stage_block(s, position)];
    p->m->op = "all-gather copy-out";
    p->copies_out = true;
    p->inside = w->returns;
    loop_forward(p, s);
    PUT(p, TERM_SAVED_LAYERS, "of the layer before, on its way to the host",
        F("bytes", stage_on_the_way(s, position)));
    put_kept(p, s, position);
    PUT(p, TERM_FORWARD_TMP, "the block's input", F("bytes", w->input));
    put_frames(p, s, position);
    engine_forward(p, s, position, later);
    p->copies_out = false;
}

/* The fuller of both. */
static void put_fullest_forward(struct put *p, const struct stage *s)
{
    const uint32_t position = p->m->position;
    const bool later = p->m->later;
    if (!engine_copies_out(s, position, later)) {
        put_forward(p, s, position, later);
        return;
    }
    struct moment runs = *p->m, copied = *p->m;
    struct put q = { .m = &runs, .only = COMP_COUNT, .slot = p->slot };
    struct put c = { .m = &copied, .only = COMP_COUNT, .slot = p->slot };
    put_forward(&q, s, position, later);
    put_copied_out(&c, s, position, later);
    p->over = p->over || q.over || c.over;
    if (copied.total > runs.total)
        put_copied_out(p, s, position, later);
    else
        put_forward(p, s, position, later);
}

const struct extremum *moment_again_of(const struct stage *s, uint32_t position)
{
    const struct block_walk *w = &s->walk[stage_block(s, position)];
    return stage_stops_early(s, position) ? &w->again_early : &w->again;
}

const struct extremum *moment_back_of(const struct stage *s,
                                      const struct instant *when)
{
    const uint32_t i = when->position;
    const struct block_walk *w = &s->walk[stage_block(s, i)];
    const enum wgrad_mode mode = engine_wgrad_mode(s, when->later);
    return when->slot == SLOT_INPUT ? stage_split(s, i, mode)
           : stage_unpacks(s, i)    ? &w->unpacked[mode]
           : stage_goes(s, i)       ? &w->away.backward[mode]
                                    : &w->backward[mode];
}

/* A checkpoint runs its group forward again, gradients of its result waiting.
 */
static void put_recompute(struct put *p, const struct stage *s,
                          uint32_t position, bool later)
{
    const struct block_walk *w = &s->walk[stage_block(s, position)];
    const uint32_t first = stage_group_first(s, position);
    const struct extremum *e = moment_again_of(s, position);
    p->m->op = op_name(s, e);
    put_kept(p, s, first);
    PUT(p, TERM_CHECKPOINTS, "input of this checkpoint",
        F("bytes", s->walk[stage_block(s, first)].input));
    uint64_t own = e->kept, tmp = e->tmp;
    if (position == first) /* the input is the checkpoint */
        *(w->keeps_input ? &own : &tmp) -= w->input;
    PUT(p, TERM_RECOMPUTED, "made again in this checkpoint",
        F("bytes",
          s->before[position].regrown - s->before[first].regrown + own));
    PUT(p, TERM_FORWARD_TMP, "alive for a moment in this block",
        F("bytes", tmp));
    PUT(p, TERM_BACKWARD_TMP, "gradients that wait for what is made again",
        F("bytes", stage_lead(s, position)));
    PUT(p, TERM_BACKWARD_TMP, "gradients of features handed to layers above",
        F("bytes", stage_far_gradients(s, stage_group_last(s, position))));
    put_stash(p, s, stage_group_last(s, position));
    put_added(p, s, stage_group_last(s, position));
    engine_backward(p, s, stage_group_last(s, position), later);
}

/* The gradient that a block's backward hands on; an embedding has none, nor
 * what nothing trained lies below. */
static uint64_t below(const struct stage *s, uint32_t position)
{
    const uint32_t i = stage_block(s, position);
    if (i == s->p->embed || !s->p->tensor[s->p->block[i].input].needs_grad)
        return 0;
    return s->walk[i].input;
}

/* After the embedding's backward under a tied head, nothing of the block is
 * left but weight gradients: the head's, which waited, the table's own, and
 * their sum; and what the loop holds. 0 when there is no such moment. */
static uint64_t tied_moment(const struct stage *s, uint32_t position,
                            enum wgrad_mode mode)
{
    const struct block_walk *w = &s->walk[stage_block(s, position)];
    if (stage_block(s, position) != s->p->words)
        return 0;
    return stage_tied_sum(s, mode) == 0
               ? 0
               : stage_tied_sum(s, mode) + below(s, position) + w->held
                     + (mode == WGRAD_KEEP ? w->wgrad : 0);
}

static void put_far(struct put *p, const struct stage *s, uint32_t position)
{
    PUT(p, TERM_BACKWARD_TMP, "gradients of features handed to layers above",
        F("bytes", stage_far_gradients(s, position)));
}

static void put_wgrad(struct put *p, const struct stage *s, uint64_t bytes)
{
    if (engine_drops_blocks(s->run))
        PUT(p, TERM_WGRAD_TMP, "whole gradients of this block",
            F("bytes", bytes));
    else
        PUT(p, TERM_GRADS, "gradients of this block so far", F("bytes", bytes));
}

/* The engine's part, of a block's backward that is told in stretches. */
static void put_engine(struct put *p, const struct stage *s, uint32_t position,
                       bool later, const struct bucket_fill *fill)
{
    p->fill = fill;
    engine_backward(p, s, position, later);
    p->fill = NULL;
}

static void put_backward(struct put *p, const struct stage *s,
                         uint32_t position, bool later)
{
    const struct block_walk *w = &s->walk[stage_block(s, position)];
    const enum wgrad_mode mode = engine_wgrad_mode(s, later);
    const struct instant when = { PHASE_BACKWARD, position, later, p->slot };
    const struct extremum *e = moment_back_of(s, &when);
    const bool re = stage_recomputed(s, position);
    const uint64_t tied = tied_moment(s, position, mode);
    if (p->m->beside.node > 0)
        e = &w->overlap->backward[mode].top[p->m->beside.node - 1];
    struct stretch stretch;
    struct bucket_fill unsummed;
    uint64_t ahead = 0;
    if (s->reload != NULL)
        e = stage_modules_fullest(s, position, mode, has_others(p, s, position),
                                  &ahead);
    uint64_t total = extremum_total(e), beside = 0;
    const bool fills = bucket_fills(s, later);
    if (fills) {
        stretch_fullest(&stretch, s, position, later);
        e = stretch.e;
        total = stretch.total;
    }
    if (fills && p->bucket != NULL)
        *p->bucket = stretch_total(&stretch, s, position);
    if (fills && tied != 0) {
        unsummed = bucket_before_sum(s, position);
        beside = bucket_bytes(s, &unsummed, later);
    }
    const struct bucket_fill *fill = fills ? &stretch.fill : NULL;
    p->m->op = op_name(s, e);
    if (tied != 0 && tied + beside > total) {
        fill = fills ? &unsummed : NULL;
        p->m->op = "sum of tied gradients";
        put_kept(p, s, position);
        if (ahead != 0)
            put_ahead(p, ahead);
        PUT(p, TERM_WGRAD_TMP, "sum of the tied embedding's gradients",
            F("bytes", stage_tied_sum(s, mode)));
        PUT(p, TERM_BACKWARD_TMP, "gradient of the block's input",
            F("bytes", below(s, position)));
        PUT(p, TERM_OUTPUTS, "outputs of this block", F("bytes", w->held));
        put_wgrad(p, s, mode == WGRAD_KEEP ? w->wgrad : 0);
        put_far(p, s, position);
        put_engine(p, s, position, later, fill);
        return;
    }
    if (re) {
        const uint32_t first = stage_group_first(s, position);
        put_kept(p, s, first);
        PUT(p, TERM_CHECKPOINTS, "input of this checkpoint",
            F("bytes", s->walk[stage_block(s, first)].input));
        if (s->run->recompute_reentrant)
            PUT(p, TERM_RECOMPUTED, "the recomputed result, held by its frame",
                F("bytes", w->output));
    } else {
        put_kept(p, s, position);
    }
    if (ahead != 0)
        put_ahead(p, ahead);
    PUT(p, kept_term(s, position), "kept by this block, not yet used",
        F("bytes", stretch_keeps(s, position, e)));
    PUT(p, TERM_BACKWARD_TMP, "gradients of activations in this block",
        F("bytes", e->tmp));
    put_wgrad(p, s, e->wgrad);
    put_stash(p, s, position);
    put_added(p, s, position);
    put_far(p, s, position);
    put_engine(p, s, position, later, fill);
}

/* Of a graph, from the first block up: those above wait, and of those below what
 * the graph holds. */
static void put_graph_weights(struct put *p, const struct stage *s,
                              uint32_t position)
{
    const uint32_t end = stage_chunk_first(s, stage_chunk(s, position) + 1);
    const struct prefix *from = stage_chunk_before(s, position);
    PUT(p, TERM_SAVED_LAYERS, "kept above for weights' gradients",
        F("bytes", s->before[end].stash - s->before[position + 1].stash));
    PUT(p, TERM_SAVED_LAYERS, "kept below by autograd's graph",
        F("bytes", s->before[position].left - from->left));
    PUT(p, TERM_SAVED_LAYERS, "hidden states at the stage's borders",
        F("bytes", s->stage_input));
}

/* Beside what the block itself has: of a graph the gradients of the blocks
 * below, which the chunk's next backward adds to others; or all of the chunk's,
 * which those of the micro-batch before have left, and these are added to. */
static uint64_t added_below(const struct stage *s, uint32_t position)
{
    return fsdp_casts_later(s) ? s->before[position].wgrad
                                     - stage_chunk_before(s, position)->wgrad
                               : 0;
}

static bool weights_find(const struct stage *s, uint32_t position, bool later)
{
    const uint32_t chunk = stage_chunk(s, position);
    if (!s->graph || !later
        || s->adding[SLOT_KINDS * chunk + SLOT_WEIGHT].kept == NEVER)
        return false;
    const struct adding *found = &s->adding[SLOT_KINDS * chunk + SLOT_WEIGHT];
    const enum wgrad_mode mode = engine_wgrad_mode(s, later);
    const struct extremum *e = stage_weights(s, position, mode);
    return found->kept + lacking(s, position, SLOT_WEIGHT, later)
               + extremum_total(stage_weights(s, position, WGRAD_FREE))
           > stage_others_kept(s, position, SLOT_WEIGHT, later) + found->lacks
                 + added_below(s, position) + extremum_total(e);
}

static void put_found(struct put *p, const struct stage *s, uint32_t position)
{
    const uint32_t chunk = stage_chunk(s, position);
    const struct adding *found = &s->adding[SLOT_KINDS * chunk + SLOT_WEIGHT];
    const uint64_t kept = found->kept;
    const uint64_t added = min_u64(kept, s->chunk_added[chunk]);
    p->lacks = found->lacks;
    PUT(p, TERM_IN_FLIGHT, "in flight, or waiting for weights' gradients",
        F("bytes", kept - added));
    PUT(p, TERM_GRADS, "of the micro-batch before, not yet added",
        F("bytes", added));
}

/* Gradients of linears' weights on their own, from the last block down: those
 * below wait, and so does what is in flight. */
static void put_weights(struct put *p, const struct stage *s, uint32_t position,
                        bool later)
{
    const bool finds = weights_find(s, position, later);
    const enum wgrad_mode mode =
        finds ? WGRAD_FREE : engine_wgrad_mode(s, later);
    const struct extremum *e = stage_weights(s, position, mode);
    const uint64_t below =
        s->before[position].stash - stage_chunk_before(s, position)->stash;
    p->m->op = op_name(s, e);
    if (s->graph)
        put_graph_weights(p, s, position);
    else
        PUT(p, TERM_SAVED_LAYERS, "kept below for weights' gradients",
            F("bytes", below));
    if (finds) {
        put_found(p, s, position);
    } else {
        put_others(p, s, position);
        PUT(p, TERM_GRADS, "of the blocks below, to be added",
            F("bytes", s->graph ? added_below(s, position) : 0));
    }
    if (stage_remakes(s, position)) {
        PUT(p, TERM_CHECKPOINTS, "input of this checkpoint",
            F("bytes", s->walk[stage_block(s, position)].input));
        PUT(p, TERM_RECOMPUTED, "made again for each weight so far",
            F("bytes", e->kept));
    } else {
        PUT(p, kept_term(s, position), "kept by this block, not yet used",
            F("bytes", e->kept));
    }
    PUT(p, TERM_BACKWARD_TMP, "gradients of activations in this block",
        F("bytes", e->tmp));
    put_wgrad(p, s, e->wgrad);
    engine_backward(p, s, position, later);
}

/* FSDP version 1 joins a unit's gradients when nothing of the unit is left but
 * the gradient of its input. */
static void put_unit_done(struct put *p, const struct stage *s,
                          uint32_t position, bool later, enum unit_done when)
{
    const struct block_walk *w = &s->walk[stage_block(s, position)];
    const bool re = stage_recomputed(s, position);
    const uint32_t first = re ? stage_group_first(s, position) : position;
    const bool two = s->run->engine == ENGINE_FSDP2;
    p->m->op = when == UNIT_STEPPED     ? "optimizer step"
               : two                    ? "reduce-scatter"
               : when == UNIT_FLATTENED ? "flat gradient"
                                        : "flat gradient cast";
    put_kept(p, s, first);
    if (position != first) {
        PUT(p, TERM_CHECKPOINTS, "input of this checkpoint",
            F("bytes", s->walk[stage_block(s, first)].input));
        PUT(p, TERM_RECOMPUTED, "made again in this checkpoint",
            F("bytes", s->before[position].regrown - s->before[first].regrown));
        if (s->run->recompute_reentrant)
            PUT(p, TERM_RECOMPUTED, "the recomputed result, held by its frame",
                F("bytes", w->output));
    }
    if (position > 0) /* frozen parts below have none */
        PUT(p, TERM_BACKWARD_TMP, "gradient of the block's input",
            F("bytes", below(s, position)));
    if (when == UNIT_FLATTENED)
        put_wgrad(p, s, w->wgrad);
    put_far(p, s, position);
    engine_unit_done(p, s, position, later, when);
}

enum { ENDS = 4 }; /* of a backward: while it runs, then enum unit_done */

static void put_end(struct put *p, const struct stage *s, unsigned end)
{
    const struct moment *m = p->m;
    if (p->slot == SLOT_WEIGHT)
        put_weights(p, s, m->position, m->later);
    else if (end == 0)
        put_backward(p, s, m->position, m->later);
    else
        put_unit_done(p, s, m->position, m->later, (enum unit_done)(end - 1));
}

static bool has_slot(const struct stage *s, const struct instant *when,
                     enum slot_kind slot)
{
    return stage_others_kept(s, when->position, slot, when->later) != NEVER
           && (slot != SLOT_WEIGHT || when->phase != PHASE_RECOMPUTE);
}

bool moment_next_slot(const struct stage *s, struct instant *when)
{
    const bool first = when->slot == SLOT_FORWARD;
    for (unsigned k = when->slot + 1; k < SLOT_KINDS; k++) {
        if (!has_slot(s, when, (enum slot_kind)k))
            continue;
        when->slot = (enum slot_kind)k;
        return true;
    }
    when->slot = SLOT_BACKWARD;
    return first;
}

/* Whole backwards and halves of one leave others in flight. */
static void put_fullest_slot(struct put *p, const struct stage *s,
                             void (*put)(struct put *p, const struct stage *s))
{
    uint64_t most = 0;
    p->slot = SLOT_BACKWARD;
    struct instant when = { p->m->phase, p->m->position, p->m->later,
                            SLOT_FORWARD };
    while (s->splits && moment_next_slot(s, &when)) {
        struct moment m = *p->m;
        struct put q = { .m = &m, .only = COMP_COUNT, .slot = when.slot };
        put(&q, s);
        p->over = p->over || q.over;
        if (m.total > most) {
            most = m.total;
            p->slot = when.slot;
        }
    }
    put(p, s);
}

static unsigned ends_of(const struct stage *s, uint32_t position)
{
    if (fsdp_joins(s, position))
        return 2 + fsdp_casts_grads(s) + engine_steps_units(s->run);
    return fsdp_overlaps(s, position) ? 2 : 1;
}

/* Before a unit's backward, FSDP version 2 copies out what was fetched for it. */
static void put_copied_back(struct put *p, const struct stage *s)
{
    const uint32_t position = p->m->position;
    const struct block_walk *w = &s->walk[stage_block(s, position)];
    p->m->op = "all-gather copy-out";
    put_kept(p, s, position);
    if (stage_recomputed(s, position)) /* on the host it comes after that */
        PUT(p, TERM_CHECKPOINTS, "input of this checkpoint",
            F("bytes", stage_offloads(s) ? 0 : w->input));
    else
        PUT(p, kept_term(s, position), "kept by this block, not yet used",
            F("bytes", w->kept));
    PUT(p, TERM_BACKWARD_TMP, "gradient of the block's result",
        F("bytes", below(s, position + 1)));
    put_far(p, s, position);
    p->copies_out = true;
    engine_backward(p, s, position, p->m->later);
    p->copies_out = false;
}

static uint64_t copied_back(const struct put *p, const struct stage *s)
{
    if (!engine_copies_back(s, p->m->position))
        return 0;
    struct moment m = *p->m;
    struct put q = { .m = &m, .only = COMP_COUNT, .slot = p->slot };
    put_copied_back(&q, s);
    return m.total;
}

/* The fullest of them. */
static void put_fullest_end(struct put *p, const struct stage *s)
{
    unsigned best = 0;
    const uint64_t copied = copied_back(p, s);
    uint64_t most = 0;
    const bool adds = s->graph && p->slot == SLOT_INPUT; /* no gradients */
    const unsigned ends = adds ? 1 : ends_of(s, p->m->position);
    for (unsigned end = 0; (copied > 0 || ends > 1) && end < ends; end++) {
        struct moment m = *p->m;
        struct put q = { .m = &m, .only = COMP_COUNT, .slot = p->slot };
        put_end(&q, s, end);
        p->over = p->over || q.over;
        if (m.total > most) {
            most = m.total;
            best = end;
        }
    }
    if (copied > most)
        put_copied_back(p, s);
    else
        put_end(p, s, best);
}

static void put_recomputed(struct put *p, const struct stage *s)
{
    if (p->bucket != NULL)
        *p->bucket =
            moment_of_bucket(s, PHASE_RECOMPUTE, p->m->position, p->m->later);
    put_recompute(p, s, p->m->position, p->m->later);
}

/* ---- moments ---- */

static void put_moment(struct put *p, const struct stage *s)
{
    const struct moment *m = p->m;
    if (p->why != NULL || !s->has_rest)
        engine_rest(p, s);
    switch (m->phase) {
    case PHASE_REST:
        loop_rest(p, s);
        pipe_put_outputs(p, s);
        engine_between(p, s);
        engine_idle(p, s);
        engine_stepped(p, s);
        return;
    case PHASE_FORWARD:
    case PHASE_LOSS: put_fullest_forward(p, s); return;
    case PHASE_BACKWARD: put_fullest_slot(p, s, put_fullest_end); return;
    case PHASE_RECOMPUTE: put_fullest_slot(p, s, put_recomputed); return;
    case PHASE_ACCUMULATE:
        p->slot = SLOT_BACKWARD;
        put_kept(p, s, 0);
        engine_accumulate(p, s);
        return;
    case PHASE_REDUCE:
        loop_idle(p, s);
        pipe_put_outputs(p, s);
        engine_idle(p, s);
        engine_reduce(p, s);
        return;
    case PHASE_CLIP:
        loop_idle(p, s);
        pipe_put_outputs(p, s);
        engine_idle(p, s);
        engine_stepped(p, s);
        engine_clip(p, s);
        return;
    case PHASE_STEP:
        loop_idle(p, s);
        pipe_put_outputs(p, s);
        engine_idle(p, s);
        engine_stepped(p, s);
        engine_step(p, s);
        return;
    case PHASE_COUNT: return;
    }
}

/* With what every moment has, as far as that is known. */
static void begin(struct moment *m, const struct stage *s, enum phase phase,
                  uint32_t position, bool later)
{
    if (s->has_rest)
        *m = s->rest;
    else
        *m = (struct moment){ .op = "" };
    m->phase = phase;
    m->position = position;
    m->later = later;
}

bool moment_in_slot(struct moment *m, const struct stage *s,
                    const struct instant *when)
{
    begin(m, s, when->phase, when->position, when->later);
    struct put p = { .m = m, .only = COMP_COUNT, .slot = when->slot };
    if (when->phase == PHASE_RECOMPUTE)
        put_recomputed(&p, s);
    else
        put_fullest_end(&p, s);
    return !p.over;
}

bool moment_make_later(struct moment *m, const struct stage *s,
                       enum slot_kind slot)
{
    struct put p = { .m = m, .only = COMP_COUNT, .slot = slot };
    m->total -= m->bytes[TERM_IN_FLIGHT] + m->bytes[TERM_DEFERRED];
    m->bytes[TERM_IN_FLIGHT] = m->bytes[TERM_DEFERRED] = 0;
    m->later = true;
    put_others(&p, s, m->position);
    megatron_later(&p, s, m->position, slot != SLOT_FORWARD);
    return !p.over;
}

bool moment_of(struct moment *m, const struct stage *s, const struct point *of,
               struct explanation *why, enum component only)
{
    if (why == NULL)
        begin(m, s, of->phase, of->position, of->later);
    else
        *m = (struct moment){ of->phase, of->position, of->later, .op = "" };
    m->beside = of->beside;
    struct put p = { .m = m, .why = why, .only = only };
    put_moment(&p, s);
    return !p.over;
}

bool moment_and_bucket(struct moment *m, uint64_t *bucket,
                       const struct stage *s, enum phase phase,
                       uint32_t position, bool later)
{
    begin(m, s, phase, position, later);
    struct put p = { .m = m, .only = COMP_COUNT, .bucket = bucket };
    put_moment(&p, s);
    return !p.over;
}
