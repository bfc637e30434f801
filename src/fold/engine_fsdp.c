/*
 * What FSDP gathers and reduces around a block: its units, the root, the copies
 * on their way. Facts from PyTorch 2.x, FSDP1 and fully_shard.
 * [docs/method.md eq. gather, eq. buckets]
 */
#include "fold/engine_private.h"

#include "data/constants.h"

#include "base/banned.h"

/* Of whole gradients: what waits for the root's reduction. */
struct root_part {
    uint64_t elems, own, wgrad;
};

/* Embedding and head as units of their own; a tensor that both have cannot be
 * in two. */
static bool head_apart(const struct stage *s)
{
    return s->run->fsdp_units == FSDP_ENDS && s->tied_here == 0;
}

static bool embed_apart(const struct stage *s)
{
    return s->run->fsdp_units != FSDP_LAYERS && s->tied_here == 0;
}

/* What lies between two stacks: a projector, the words of a text with images.
 * No layer's unit either. */
static const struct block_states *root_joint(const struct stage *s)
{
    return s->joint < s->n && !head_apart(s)
               ? &s->states[stage_block(s, s->joint)]
               : NULL;
}

/* FSDP: what the wrapped layers leave to the root (embedding, norm, head) is
 * gathered in forward and stays to the end of backward. */
static uint64_t root_bytes(const struct stage *s)
{
    const struct block_states *joint = root_joint(s);
    uint64_t bytes = joint != NULL ? joint->bytes - joint->apart_bytes : 0;
    if (s->embed && !embed_apart(s))
        bytes += s->states[s->p->embed].bytes;
    if (s->head && !head_apart(s))
        bytes += s->states[s->p->head].bytes;
    return bytes;
}

/* Of two units at the ends the embedding's is the last to be reduced. */
static bool embed_is_last(const struct stage *s)
{
    return s->embed && (!embed_apart(s) || head_apart(s));
}

/* Less what waits for the block that has the tensor. */
static uint64_t joint_wgrad(const struct stage *s)
{
    return s->walk[stage_block(s, s->joint)].wgrad
           - (s->waits_from == s->joint ? s->waiting : 0);
}

/* Whole gradients that wait for the last reduction. */
uint64_t fsdp_root_wgrads(const struct stage *s)
{
    uint64_t bytes = 0;
    if (root_joint(s) != NULL)
        bytes += joint_wgrad(s);
    if (embed_is_last(s))
        bytes += s->walk[s->p->embed].wgrad;
    if (s->head && !head_apart(s))
        bytes += s->walk[s->p->head].wgrad;
    if (s->waits_from + 1 == s->n && s->head && !head_apart(s))
        bytes -= s->waiting;
    return bytes - s->tied_here;
}

uint64_t fsdp_root_elems(const struct stage *s)
{
    const struct block_states *joint = root_joint(s);
    uint64_t elems = joint != NULL ? joint->elems : 0;
    if (embed_is_last(s))
        elems += s->states[s->p->embed].elems;
    if (s->head && !head_apart(s))
        elems += s->states[s->p->head].elems;
    return elems;
}

bool fsdp_is_unit(const struct stage *s, uint32_t position)
{
    switch (s->p->block[stage_block(s, position)].kind) {
    case BLOCK_EMBED: return embed_apart(s);
    case BLOCK_JOINT:
    case BLOCK_HEAD: return head_apart(s);
    case BLOCK_LAYER: break;
    }
    return true;
}

/* Backward comes to it, or to what it hands on: a unit whose result needs no
 * gradient is not fetched ahead (_runtime_utils.py,
 * _register_pre_backward_hooks, _get_handle_to_prefetch), and so of one that a
 * reentrant checkpoint is around: it ran without a graph. */
static bool is_fetched_back(const struct stage *s, uint32_t position)
{
    if (stage_checkpoints_units(s) && stage_recomputed(s, position))
        return false;
    const struct block *next = &s->p->block[stage_block(s, position + 1)];
    return s->run->engine != ENGINE_FSDP || !s->run->stops
           || s->p->tensor[next->input].needs_grad;
}

static uint64_t unit_bytes(const struct stage *s, uint32_t position)
{
    if (position >= s->n || !fsdp_is_unit(s, position))
        return 0;
    return s->states[stage_block(s, position)].bytes;
}

/* ---- gradients that wait for the last micro-batch ---- */

/* no_sync, set_requires_gradient_sync(False): until then each rank adds up
 * whole gradients (_runtime_utils.py, _post_backward_hook; version 2, in the
 * type of the reduction: _fsdp_param.py, to_accumulated_grad_if_needed). */
bool fsdp_defers(const struct run *run)
{
    return engine_reduces_blocks(run) && run->grad_sync == SYNC_LAST
           && (run->grad_accum > 1 || run_torch_pipelines(run));
}

/* PyTorch's pipelining lets no backward reduce, nor cut weights again: after
 * the last one it has every unit do both, one after the other
 * (distributed/pipelining/stage.py, backward_maybe_with_nosync). */
bool fsdp_reduces_at_last(const struct run *run)
{
    return fsdp_defers(run) && run_torch_pipelines(run);
}

/* Version 1's are views of the flat gradient, joined before they are added. */
bool fsdp_adds_in_place(const struct run *run)
{
    return fsdp_defers(run) && run->engine == ENGINE_FSDP2
           && dtype_size(run_layer_dtype(run)) == dtype_size(run->prec.reduce);
}

/* With no more micro-batches than stages the interleaved schedule has all
 * backwards of a chunk one after another, and reduces it before the chunk below
 * begins its own. */
static bool chunk_by_chunk(const struct stage *s)
{
    return fsdp_reduces_at_last(s->run) && s->chunks > 1 && !s->splits
           && s->run->grad_accum <= s->run->pp;
}

/* Where what waits together with a position ends, and where it begins. */
static uint32_t waits_before(const struct stage *s, uint32_t position)
{
    return chunk_by_chunk(s)
               ? stage_chunk_first(s, stage_chunk(s, position) + 1)
               : s->n;
}

static uint32_t waits_after(const struct stage *s, uint32_t position)
{
    return chunk_by_chunk(s) ? stage_chunk_first(s, stage_chunk(s, position))
                             : 0;
}

/* The head's gradients go with the root's. */
static bool head_waits(const struct stage *s, uint32_t position)
{
    return s->head && position + 1 < s->n && !head_apart(s)
           && waits_before(s, position) == s->n;
}

/* As the head's do, which is above. */
static bool joint_waits(const struct stage *s, uint32_t position)
{
    return root_joint(s) != NULL && position < s->joint;
}

/* Words are looked up before the images' tower runs, so that their table's
 * gradient is made after that tower's backward; of a tied one the head's is
 * there already. Until then the gradient of their states waits. */
static void joint_grads(struct put *p, const struct stage *s)
{
    const uint32_t joint = stage_block(s, s->joint);
    const struct block *b = &s->p->block[joint];
    uint64_t words = 0;
    for (uint32_t i = 0; i < b->tensor_count && s->tied_here == 0; i++) {
        const struct tensor *t = &s->p->tensor[b->tensor_first + i];
        if (t->role == ROLE_PARAM && t->words && t->trainable)
            words += round_alloc(tensor_grad_bytes(t));
    }
    PUT(p, TERM_WGRAD_TMP, "whole gradients between the stacks, as well",
        F("bytes", joint_wgrad(s) - words));
    if (words > 0)
        PUT(p, TERM_BACKWARD_TMP, "the words' gradient, which waits",
            F("bytes", s->walk[joint].output));
}

/* Gradients of the root's part above `position`: whole until the root's own
 * reduction, the last of the pass. */
void fsdp_root_grads(struct put *p, const struct stage *s, uint32_t position,
                     bool later)
{
    if (engine_wgrad_mode(s, later) == WGRAD_FREE)
        return; /* added to those of the micro-batch before */
    if (head_waits(s, position))
        PUT(p, TERM_WGRAD_TMP, "the head's whole gradients, reduced last",
            F("bytes", s->walk[s->p->head].wgrad));
    if (joint_waits(s, position))
        joint_grads(p, s);
}

/* Whether the backward at hand is the last: of more than two the one before it
 * is as full or fuller. */
static bool reduces_now(const struct run *run, bool later)
{
    return later && run->grad_accum == 2 && !fsdp_reduces_at_last(run);
}

/* What else of the root there is above this position. */
static void root_above(const struct stage *s, uint32_t position,
                       struct root_part *out)
{
    *out = (struct root_part){ 0 };
    if (head_waits(s, position)) {
        const struct block_states *head = &s->states[s->p->head];
        out->elems += head->elems;
        out->own += head->own_elems;
        out->wgrad += s->walk[s->p->head].wgrad - s->tied_here;
    }
    if (joint_waits(s, position)) {
        const struct block_states *joint = root_joint(s);
        out->elems += joint->elems;
        out->own += joint->own_elems;
        out->wgrad += joint_wgrad(s);
    }
}

uint64_t fsdp_deferred_whole(const struct stage *s, uint32_t position)
{
    if (s->run->engine != ENGINE_FSDP2)
        return s->wgrad;
    const uint64_t elems = chunk_by_chunk(s)
                               ? s->before[waits_before(s, position)].elems
                                     - s->before[waits_after(s, position)].elems
                               : s->sum.elems; /* a tied tensor once */
    return elems * dtype_size(s->run->prec.reduce);
}

/* Of the positions up to this one, and of what waits with the root. */
static uint64_t deferred_upto(const struct stage *s, uint32_t position)
{
    const struct prefix *to = &s->before[position + 1];
    const uint64_t most = fsdp_deferred_whole(s, position);
    struct root_part above;
    root_above(s, position, &above);
    const uint64_t below = s->before[waits_after(s, position)].elems;
    if (s->run->engine == ENGINE_FSDP2)
        return min_u64(most, (to->elems - below + above.elems)
                                 * dtype_size(s->run->prec.reduce));
    return min_u64(most, to->wgrad + above.wgrad);
}

/* From the first micro-batch on those of the units above; at last those that
 * are not yet reduced. */
void fsdp_deferred(struct put *p, const struct stage *s, uint32_t position,
                   bool later)
{
    if (!fsdp_defers(s->run))
        return;
    const uint64_t all = fsdp_deferred_whole(s, position);
    const uint64_t upto = deferred_upto(s, position);
    PUT(p, TERM_GRADS, "whole gradients that wait for the last micro-batch",
        F("bytes", !later                       ? all - upto
                   : reduces_now(s->run, later) ? upto
                                                : all));
}

/* Elements of this rank whose gradients are reduced: those of the layers above,
 * after the first micro-batch all. */
uint64_t fsdp_reduced(const struct stage *s, uint32_t position, bool later)
{
    if (!engine_shards_come(s->run))
        return 0;
    if (chunk_by_chunk(s))
        return s->sum.own_elems
               - s->before[waits_before(s, position)].own_elems;
    if (fsdp_defers(s->run) && !reduces_now(s->run, later))
        return 0;
    if (later && !fsdp_defers(s->run))
        return s->sum.own_elems;
    struct root_part above;
    root_above(s, position, &above);
    return s->sum.own_elems - s->before[position + 1].own_elems - above.own;
}

/* Hybrid sharding: what the copies' all-reduce works on is kept to the end of
 * backward; it is the gradient, unless that has another type or is there
 * already (_fsdp_collectives.py, foreach_reduce; AllReduceState). */
void fsdp_all_reduced(struct put *p, const struct stage *s, uint32_t position,
                      bool later)
{
    const struct run *run = s->run;
    if (run->engine != ENGINE_FSDP2 || !engine_shards_come(run)
        || run->dp * run->cp <= run->shard
        || (fsdp_defers(run) && !reduces_now(run, later))
        || (run->prec.reduce == run->prec.grad && (fsdp_defers(run) || !later)))
        return;
    struct root_part above;
    root_above(s, position, &above);
    PUT(p, TERM_REDUCE_TMP, "all-reduced by the copies, kept to the end",
        F("P/N, tensor by tensor",
          s->sum.own_elems - s->before[position + 1].own_elems - above.own),
        F("bytes", dtype_size(run->prec.reduce)));
}

/* Version 1 leaves them whole where it does not reduce (_runtime_utils.py,
 * _should_free_in_backward). */
static bool stays_whole(const struct stage *s, bool back, bool later)
{
    if (fsdp_reduces_at_last(s->run))
        return back || later;
    if (s->run->engine != ENGINE_FSDP || !fsdp_defers(s->run))
        return false;
    return back ? !reduces_now(s->run, later) : later;
}

/* SHARD_GRAD_OP, reshard_after_forward=False: whole from forward to backward,
 * of the positions before `end`. */
static void fsdp_whole(struct put *p, const struct stage *s, uint32_t position,
                       uint32_t end)
{
    const uint64_t upto = s->before[end].bytes;
    uint64_t bytes = upto;
    if (end < s->n && head_waits(s, position))
        bytes += s->states[s->p->head].bytes; /* the root's other parts */
    if (root_joint(s) != NULL && end <= s->joint)
        bytes += root_joint(s)->bytes - root_joint(s)->apart_bytes;
    PUT(p, TERM_GATHERED, "parameters gathered so far", F("bytes", bytes));
}

/* Cut after forward, not after backward: the positions from this one on. */
static void fsdp_whole_above(struct put *p, const struct stage *s,
                             uint32_t position)
{
    uint64_t bytes = s->before[s->n].bytes - s->before[position].bytes;
    if (s->embed && position > 0 && !embed_apart(s))
        bytes += s->states[s->p->embed].bytes;
    PUT(p, TERM_GATHERED, "parameters that backwards leave whole",
        F("bytes", bytes));
}

/* Of the model's forward, which hooks are around: transformers computes the
 * loss in it, LitGPT does not. */
static bool loss_is_outside(const struct stage *s)
{
    return s->run->impl == IMPL_TORCHTITAN || s->run->impl == IMPL_TORCHTUNE
           || s->run->loss == LOSS_CHUNKED;
}

/* FSDP2 keeps an all-gather's output to the end of the next copy-out; the last
 * layer's, to the end of the model's forward (_fsdp_param_group.py,
 * wait_for_unshard; _fsdp_state.py, _post_forward). */
static void fsdp2_gather_output(struct put *p, const struct stage *s,
                                uint32_t position)
{
    const bool head = s->head && position + 1 == s->n;
    /* the root's comes first, and goes when the first layer's is there */
    if (position == 0) {
        PUT(p, TERM_PREFETCHED, "the root's all-gather output",
            F("bytes", root_bytes(s)));
        if (s->embed)
            PUT(p, TERM_PREFETCHED, "the first layer's all-gather output",
                F("bytes", unit_bytes(s, 1)));
    }
    if (head && (position == 0 || loss_is_outside(s)))
        return;
    PUT(p, TERM_PREFETCHED, "all-gather output, kept to the next copy-out",
        F("bytes",
          unit_bytes(s, head && !head_apart(s) ? position - 1 : position)));
}

/* FSDP1 gathers from a copy of the shard on the GPU, gone with the gather. */
static void shard_on_its_way(struct put *p, const struct stage *s,
                             uint64_t whole)
{
    if (engine_shards_offloaded(s->run) && s->run->engine == ENGINE_FSDP)
        PUT(p, TERM_PREFETCHED, "its shard, on the way from the CPU",
            F("bytes", div_up(whole, s->run->shard)));
}

void fsdp_forward(struct put *p, const struct stage *s, uint32_t position,
                  bool later)
{
    const bool there = later && fsdp_reduces_at_last(s->run);
    if (s->run->engine == ENGINE_FSDP2 && !there)
        fsdp2_gather_output(p, s, position);
    if (!s->run->reshard) {
        fsdp_whole(p, s, position,
                   stays_whole(s, false, later) ? s->n : position + 1);
        return;
    }
    if (there) {
        fsdp_whole_above(p, s, position);
        return;
    }
    PUT(p, TERM_GATHERED, "root parameters, gathered for the whole pass",
        F("bytes", root_bytes(s)));
    PUT(p, TERM_GATHERED, "this unit's parameters",
        F("bytes", unit_bytes(s, position)));
    shard_on_its_way(p, s, unit_bytes(s, position));
}

/* A unit prefetches when the gradient of its result is there. The root's are
 * the logits where the loss is computed outside: after the loss, as the head's
 * are (_runtime_utils.py, _register_pre_backward_hooks; _fsdp_state.py,
 * _register_pre_backward_hook). */
static bool prefetches(const struct stage *s, uint32_t position, bool later)
{
    const bool head = s->head && position + 1 == s->n;
    const bool after_loss = loss_is_outside(s) || head_apart(s);
    /* adapters, units of their own, come first: the layer before is fetched by
       the first of them, at the end (peft/utils/other.py,
       fsdp_auto_wrap_policy) */
    const bool adapters =
        s->run->engine == ENGINE_FSDP && s->run->lora_rank > 0 && !head;
    return position > 0 && !adapters
           && (!head || !after_loss
               || engine_gradients_begun(s, position, later));
}

/* Of `own`: while the unit itself is whole. */
static void backward_gathered(struct put *p, const struct stage *s,
                              uint32_t position, bool later, bool own)
{
    if (!s->run->reshard) {
        fsdp_whole(p, s, position,
                   stays_whole(s, true, later) ? waits_before(s, position)
                   : own                       ? position + 1
                                               : position);
        return;
    }
    if (fsdp_reduces_at_last(s->run)) {
        fsdp_whole_above(p, s, position);
    } else {
        PUT(p, TERM_GATHERED, "root parameters, gathered for the whole pass",
            F("bytes", root_bytes(s)));
        PUT(p, TERM_GATHERED, "this unit's parameters",
            F("bytes", own ? unit_bytes(s, position) : 0));
    }
}

/* A layer that runs forward and not backward: the unit above fetches it ahead,
 * and it stays to the end of the pass (_runtime_utils.py,
 * _post_backward_final_callback; _fsdp_param_group.py, finalize_backward); a
 * frozen one until its input's gradient is there. */
static void put_in_vain(struct put *p, const struct stage *s, uint32_t position)
{
    const struct block_states *joint = root_joint(s);
    const bool frozen = (s->run->freeze >> FREEZE_VISION & 1) != 0
                        && s->run->engine == ENGINE_FSDP;
    if (joint != NULL && s->run->reshard && position <= s->joint + 1
        && (!frozen || position >= s->joint))
        PUT(p, TERM_PREFETCHED, "an unused layer's, prefetched in vain",
            F("bytes", joint->apart_bytes));
}

static void put_prefetched(struct put *p, const struct stage *s,
                           uint32_t position)
{
    const struct block_states *joint = root_joint(s);
    if (!s->run->reshard || position == 0 || !is_fetched_back(s, position - 1)
        || (joint != NULL && joint->apart_bytes > 0 && position == s->joint))
        return;
    PUT(p, TERM_PREFETCHED, "the unit's before it, prefetched",
        F("bytes", unit_bytes(s, position - 1)));
    shard_on_its_way(p, s, unit_bytes(s, position - 1));
}

/* Version 2's, to the end of the next unit's backward (_fsdp_param_group.py,
 * post_backward, reduce_scatter_state). */
static void put_scatter(struct put *p, const struct stage *s, uint64_t elems)
{
    PUT(p, TERM_REDUCE_TMP, "reduce-scatter input", F("elements", elems),
        F("bytes", dtype_size(s->run->prec.reduce)));
}

void fsdp_backward(struct put *p, const struct stage *s, uint32_t position,
                   bool later)
{
    const struct run *run = s->run;
    backward_gathered(p, s, position, later, true);
    put_in_vain(p, s, position);
    if (prefetches(s, position, later))
        put_prefetched(p, s, position);
    if (fsdp_defers(run) && !reduces_now(run, later))
        return;
    if (run->engine == ENGINE_FSDP2 && position + 1 < s->n
        && fsdp_is_unit(s, position + 1)) {
        const struct block_states *next =
            &s->states[stage_block(s, position + 1)];
        put_scatter(p, s, next->elems);
    }
}

/* ---- version 1: flat gradients ---- */

/* Parameters are views of one flat parameter: their gradients are joined to its
 * gradient, which then is cast, where it is reduced in another type
 * (_flat_param.py, _get_unflat_views_unaligned: torch.split, whose backward is
 * torch.cat; _runtime_utils.py, _post_backward_hook). Adapters are units of
 * their own, each a matrix. */
static bool flattens(const struct stage *s)
{
    return s->run->engine == ENGINE_FSDP && s->run->zero != 0
           && !run_adapts(s->run);
}

/* Version 2 copies a unit's gradients into the input of its reduce-scatter, its
 * parameters gone, and the input of the unit above (_fsdp_collectives.py,
 * foreach_reduce). */
static bool scatters(const struct stage *s)
{
    const struct run *run = s->run;
    return run->engine == ENGINE_FSDP2 && run->zero != 0 && !fsdp_defers(run)
           && !run_adapts(run);
}

bool fsdp_joins(const struct stage *s, uint32_t position)
{
    const struct block *b = &s->p->block[stage_block(s, position)];
    return (flattens(s) || scatters(s)) && fsdp_is_unit(s, position)
           && b->memory == TENSOR_NONE
           && s->walk[stage_block(s, position)].wgrad > 0;
}

/* Version 1 cuts a frozen unit in a hook on its input, after the hook of the
 * unit below, whose result that is: which has fetched the one before it by then
 * (_runtime_utils.py, _register_post_backward_reshard_only_hook). */
bool fsdp_overlaps(const struct stage *s, uint32_t position)
{
    return s->run->stops && flattens(s) && s->run->reshard && position > 1
           && fsdp_is_unit(s, position) && fsdp_is_unit(s, position - 1)
           && s->states[stage_block(s, position)].elems == 0
           && is_fetched_back(s, position - 1);
}

static bool casts(const struct stage *s)
{
    return flattens(s)
           && s->sum.bytes != s->sum.elems * dtype_size(s->run->prec.reduce);
}

bool fsdp_casts_grads(const struct stage *s)
{
    return casts(s) || scatters(s);
}

static void put_flat(struct put *p, uint64_t bytes)
{
    PUT(p, TERM_WGRAD_TMP, "the flat gradient", F("bytes", bytes));
}

static void put_cast(struct put *p, const struct stage *s, uint64_t elems)
{
    if (casts(s))
        PUT(p, TERM_REDUCE_TMP, "the flat gradient, cast to be reduced",
            F("elements", elems), F("bytes", dtype_size(s->run->prec.reduce)));
}

/* The result is made while what is reduced and what that was cast from are
 * there (_runtime_utils.py, _get_reduce_scatter_tensors). */
static void put_reduced(struct put *p, const struct stage *s, uint64_t elems)
{
    PUT(p, TERM_REDUCE_TMP, "its shard, reduced",
        F("elements of P/N", div_up(elems, s->run->shard)),
        F("bytes", dtype_size(s->run->prec.reduce)));
}

/* Version 2 casts what it reduced to the shards' dtype (_fsdp_collectives.py,
 * foreach_reduce, _to_dtype_if_needed). */
static void put_recast(struct put *p, const struct stage *s, uint64_t elems)
{
    const struct precision_bytes *prec = &s->run->prec;
    put_reduced(p, s, elems);
    if (prec->reduce != prec->grad)
        PUT(p, TERM_REDUCE_TMP, "the same, cast",
            F("elements of P/N", div_up(elems, s->run->shard)),
            F("bytes", dtype_size(prec->grad)));
}

/* The gradient of a unit's last parameter, which a loop's variable holds to the
 * end (foreach_reduce: unsharded_grad). */
static uint64_t last_grad(const struct stage *s, uint32_t block)
{
    const struct block *b = &s->p->block[block];
    const struct tensor *last = NULL;
    bool after = false;
    for (uint32_t i = 0; i < b->tensor_count; i++) {
        const struct tensor *t = &s->p->tensor[b->tensor_first + i];
        const bool late = program_comes_last(s->p, b, t);
        if (t->role != ROLE_PARAM || !t->trainable || t->statistic || t->tied
            || (after && !late))
            continue;
        last = t;
        after = late;
    }
    if (last == NULL)
        return 0;
    return fsdp_defers(s->run) ? last->elems * dtype_size(s->run->prec.reduce)
                               : round_alloc(tensor_grad_bytes(last));
}

static void put_last_grad(struct put *p, uint64_t bytes)
{
    PUT(p, TERM_WGRAD_TMP, "the last parameter's whole gradient, which waits",
        F("bytes", bytes));
}

void fsdp_unit_done(struct put *p, const struct stage *s, uint32_t position,
                    bool later, enum unit_done when)
{
    const uint32_t b = stage_block(s, position);
    const bool defers = fsdp_defers(s->run);
    backward_gathered(p, s, position, later,
                      when == UNIT_FLATTENED && !scatters(s));
    put_in_vain(p, s, position);
    put_prefetched(p, s, position);
    if (fsdp_overlaps(s, position)) {
        put_prefetched(p, s, position - 1);
        return;
    }
    if (scatters(s)) {
        put_scatter(p, s, s->states[b].elems);
        if (when == UNIT_CAST) {
            put_last_grad(p, last_grad(s, b));
            put_recast(p, s, s->states[b].elems);
        }
        return;
    }
    /* what waits is added to in place, by the node that the hook is of */
    if (when == UNIT_FLATTENED || !defers || later)
        put_flat(p, s->walk[b].wgrad);
    if (when == UNIT_CAST && (!defers || reduces_now(s->run, later))) {
        put_cast(p, s, s->states[b].elems);
        put_reduced(p, s, s->states[b].elems);
    }
}

/* Version 2 reduces when the whole gradients are copied and gone. */
uint64_t fsdp_root_own_to_come(const struct stage *s)
{
    const struct block_states *joint = root_joint(s);
    const struct run *run = s->run;
    if ((!flattens(s) && run->engine != ENGINE_FSDP2)
        || (run->grad_accum > 1 && !fsdp_defers(run)))
        return 0;
    uint64_t own = joint != NULL ? joint->own_elems : 0;
    if (embed_is_last(s))
        own += s->states[s->p->embed].own_elems;
    if (s->head && !head_apart(s))
        own += s->states[s->p->head].own_elems;
    return own;
}

static void root_parts(struct put *p, uint64_t bytes)
{
    PUT(p, TERM_WGRAD_TMP, "whole gradients of the root group",
        F("bytes", bytes));
}

/* The first unit's turn, after the last backward of a pipeline: its weights are
 * cut, its gradients copied to be reduced, all others' are whole. */
void fsdp_first_reduced(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t root = fsdp_root_elems(s);
    const struct block_states *unit = &s->states[stage_block(s, 0)];
    const uint64_t elems = root > 0 ? root : unit->elems;
    PUT(p, TERM_GRADS, "whole gradients that wait for the last micro-batch",
        F("bytes", fsdp_deferred_whole(s, 0)));
    PUT(p, TERM_GATHERED, "parameters of the other units",
        F("bytes", s->before[waits_before(s, 0)].bytes
                       - (root > 0 ? root_bytes(s) : unit->bytes)));
    put_scatter(p, s, elems);
    if (engine_shards_come(run))
        PUT(p, TERM_GRAD_SHARDS, "its shard, reduced",
            F("P/N", div_up(elems, run->shard)),
            F("bytes per gradient", dtype_size(run->prec.grad)));
}

/* What no backward comes to, and so no hook cuts: it stays as forward, or a
 * fetch ahead, left it to the end of the pass (_post_backward_final_callback). */
static void put_left_whole(struct put *p, const struct stage *s)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i + 1 < s->n && s->run->stops; i++)
        if (!stage_turns(s, i)
            && (!s->run->reshard || (i == 0 && is_fetched_back(s, i))))
            bytes += unit_bytes(s, i);
    PUT(p, TERM_GATHERED, "frozen units that no backward comes to",
        F("bytes", bytes));
}

/* Version 2's, beside the input of its reduce-scatter: whole gradients while
 * they are copied there, or what comes of it and the last of them, whichever is
 * more. */
static void root_scattered(struct put *p, const struct stage *s)
{
    const struct precision_bytes *prec = &s->run->prec;
    const uint64_t elems = fsdp_root_elems(s);
    const uint64_t wire = elems * dtype_size(prec->reduce);
    const uint64_t whole = fsdp_defers(s->run) ? wire : fsdp_root_wgrads(s);
    const uint32_t at =
        s->head && !head_apart(s) ? s->p->head : stage_block(s, 0);
    const uint64_t last = elems == 0 ? 0 : last_grad(s, at);
    const uint64_t sizes =
        dtype_size(prec->reduce)
        + (prec->reduce == prec->grad ? 0 : dtype_size(prec->grad));
    PUT(p, TERM_REDUCE_TMP, "reduce-scatter input of the root group",
        F("elements", elems), F("bytes", dtype_size(prec->reduce)));
    if (div_up(elems, s->run->shard) * sizes + last <= whole) {
        root_parts(p, whole);
        return;
    }
    put_last_grad(p, last);
    put_recast(p, s, elems);
}

/* The root's own turn, the last: joined while its parameters are whole, or
 * cast when they are not, whichever is more. */
void fsdp_root_done(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t wire = fsdp_root_elems(s) * dtype_size(run->prec.reduce);
    const uint64_t grads = fsdp_root_wgrads(s);
    const uint64_t waited = fsdp_defers(run) ? grads : 0;
    if (run->engine == ENGINE_FSDP2) {
        root_scattered(p, s);
        return;
    }
    if (!flattens(s)) {
        root_parts(p, grads);
        return;
    }
    const uint64_t cast = casts(s) ? wire + div_up(wire, run->shard) : 0;
    PUT(p, TERM_GRADS, "whole gradients that wait for the last micro-batch",
        F("bytes", waited));
    put_in_vain(p, s, 0);
    put_left_whole(p, s);
    if (cast > root_bytes(s) + grads + waited) {
        put_flat(p, grads - waited);
        put_cast(p, s, fsdp_root_elems(s));
        put_reduced(p, s, fsdp_root_elems(s));
        return;
    }
    put_flat(p, grads);
    PUT(p, TERM_GATHERED, "root parameters, gathered for the whole pass",
        F("bytes", root_bytes(s)));
    root_parts(p, grads);
}

/* ---- version 1: blocks that wait for another stream ---- */

/* The CPU runs ahead of the GPU until the limiter stops it: before a gather it
 * waits for the last release but one (_limiter_utils.py; _unshard). Until then
 * the allocator may not use what was released again, since another stream
 * still works on it (record_stream). */
static void waits_forward(struct put *p, const struct stage *s,
                          uint32_t position)
{
    const bool head = s->head && position + 1 == s->n;
    if (position > 0)
        PUT(p, TERM_GATHERED, "the unit's before, released",
            F("bytes", unit_bytes(s, position - 1)));
    if (head && position > 1)
        PUT(p, TERM_GATHERED, "the one's before that, released",
            F("bytes", unit_bytes(s, position - 2)));
}

/* Reductions end a unit later than the backward that they follow. */
static void waits_reduced(struct put *p, const struct stage *s,
                          uint32_t position)
{
    if (!flattens(s) || position >= s->n || !fsdp_is_unit(s, position))
        return;
    const uint32_t b = stage_block(s, position);
    put_flat(p, s->walk[b].wgrad);
    put_cast(p, s, s->states[b].elems);
}

void fsdp_waits(struct put *p, const struct stage *s, uint32_t position,
                bool back)
{
    if (s->run->engine != ENGINE_FSDP || s->run->zero == 0)
        return;
    if (!back || (s->head && position + 1 == s->n && !head_apart(s))) {
        if (s->run->reshard)
            waits_forward(p, s, position);
        return;
    }
    const bool last = position + 1 >= s->n || !fsdp_is_unit(s, position + 1);
    PUT(p, TERM_GATHERED, "the unit's before, released",
        F("bytes", unit_bytes(s, last ? position : position + 1)));
    waits_reduced(p, s, position + 1);
    waits_reduced(p, s, position + 2);
}
