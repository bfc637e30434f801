/*
 * FSDP's units, the root, and gradients that wait: for the root's reduction, for
 * the last micro-batch. engine_fsdp_gather.c has what is gathered,
 * engine_fsdp_reduce.c what is reduced. Facts from PyTorch 2.x, FSDP1 and
 * fully_shard. [docs/method.md eq. gather, eq. buckets]
 */
#include "fold/engine_fsdp.h"

#include "base/banned.h"

/* Of whole gradients: what waits for the root's reduction. */
struct root_part {
    uint64_t elems, own, wgrad;
};

bool fsdp_head_apart(const struct stage *s)
{
    return s->run->fsdp_units == FSDP_ENDS && s->tied_here == 0;
}

bool fsdp_embed_apart(const struct stage *s)
{
    return s->run->fsdp_units != FSDP_LAYERS && s->tied_here == 0;
}

const struct block_states *fsdp_root_joint(const struct stage *s)
{
    return s->joint < s->n && !fsdp_head_apart(s)
               ? &s->states[stage_block(s, s->joint)]
               : NULL;
}

/* FSDP: what the wrapped layers leave to the root (embedding, norm, head) is
 * gathered in forward and stays to the end of backward. */
uint64_t fsdp_root_bytes(const struct stage *s)
{
    const struct block_states *joint = fsdp_root_joint(s);
    uint64_t bytes = joint != NULL ? joint->bytes - joint->apart_bytes : 0;
    if (s->embed && !fsdp_embed_apart(s))
        bytes += s->states[s->p->embed].bytes;
    if (s->head && !fsdp_head_apart(s))
        bytes += s->states[s->p->head].bytes;
    return bytes;
}

/* Of two units at the ends the embedding's is the last to be reduced. */
static bool embed_is_last(const struct stage *s)
{
    return s->embed && (!fsdp_embed_apart(s) || fsdp_head_apart(s));
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
    if (fsdp_root_joint(s) != NULL)
        bytes += joint_wgrad(s);
    if (embed_is_last(s))
        bytes += s->walk[s->p->embed].wgrad;
    if (s->head && !fsdp_head_apart(s))
        bytes += s->walk[s->p->head].wgrad;
    if (s->waits_from + 1 == s->n && s->head && !fsdp_head_apart(s))
        bytes -= s->waiting;
    return bytes - s->tied_here;
}

static void root_add(struct root_sums *sum, const struct block_states *b)
{
    sum->elems += b->elems;
    sum->cut += b->cut_elems;
    sum->own += b->own_elems;
    sum->largest = max_u64(sum->largest, b->largest_own);
}

struct root_sums fsdp_root_sums(const struct stage *s)
{
    struct root_sums sum = { 0 };
    if (fsdp_root_joint(s) != NULL)
        root_add(&sum, fsdp_root_joint(s));
    if (embed_is_last(s))
        root_add(&sum, &s->states[s->p->embed]);
    if (s->head && !fsdp_head_apart(s))
        root_add(&sum, &s->states[s->p->head]);
    return sum;
}

bool fsdp_is_unit(const struct stage *s, uint32_t position)
{
    switch (s->p->block[stage_block(s, position)].kind) {
    case BLOCK_EMBED: return fsdp_embed_apart(s);
    case BLOCK_JOINT:
    case BLOCK_HEAD: return fsdp_head_apart(s);
    case BLOCK_LAYER: break;
    }
    return true;
}

/* Backward comes to it, or to what it hands on: a unit whose result needs no
 * gradient is not fetched ahead (_runtime_utils.py,
 * _register_pre_backward_hooks, _get_handle_to_prefetch), and so of one that a
 * reentrant checkpoint is around: it ran without a graph. */
bool fsdp_is_fetched_back(const struct stage *s, uint32_t position)
{
    if (stage_checkpoints_units(s) && stage_recomputed(s, position))
        return false;
    const struct block *next = &s->p->block[stage_block(s, position + 1)];
    return s->run->engine != ENGINE_FSDP || !s->run->stops
           || s->p->tensor[next->input].needs_grad;
}

bool fsdp_left_whole(const struct stage *s, uint32_t position)
{
    return s->run->engine == ENGINE_FSDP && s->run->stops && s->run->reshard
           && position == 0 && s->n > 1 && fsdp_unit_bytes(s, position) > 0
           && fsdp_is_fetched_back(s, position);
}

uint64_t fsdp_unit_bytes(const struct stage *s, uint32_t position)
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

/* The hook is of the unit's inputs' gradients, before its weights have theirs
 * (_fsdp_param_group.py, post_backward; to_accumulated_grad_if_needed). */
bool fsdp_casts_later(const struct stage *s)
{
    return s->graph && s->run->engine == ENGINE_FSDP2
           && !fsdp_adds_in_place(s->run);
}

/* In one round of micro-batches the interleaved schedule has all
 * backwards of a chunk one after another, and reduces it before the chunk below
 * begins its own. */
static bool chunk_by_chunk(const struct stage *s)
{
    return fsdp_reduces_at_last(s->run) && s->chunks > 1 && !s->splits
           && s->run->grad_accum == run_round(s->run);
}

/* Where what waits together with a position ends, and where it begins. */
uint32_t fsdp_waits_before(const struct stage *s, uint32_t position)
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
bool fsdp_head_waits(const struct stage *s, uint32_t position)
{
    return s->head && position + 1 < s->n && !fsdp_head_apart(s)
           && fsdp_waits_before(s, position) == s->n;
}

/* As the head's do, which is above. */
static bool joint_waits(const struct stage *s, uint32_t position)
{
    return fsdp_root_joint(s) != NULL && position < s->joint;
}

/* Words are looked up before the images' tower runs, so that their table's
 * gradient is made after that tower's backward; of a tied one the head's is
 * there already. Until then the gradient of their states waits. A decoder's
 * words are looked up after its encoder has run. */
static void joint_grads(struct put *p, const struct stage *s)
{
    const uint32_t joint = stage_block(s, s->joint);
    const struct block *b = &s->p->block[joint];
    const bool first = s->tied_here == 0 && s->p->words == joint;
    uint64_t words = 0;
    for (uint32_t i = 0; i < b->tensor_count && first; i++) {
        const struct tensor *t = &s->p->tensor[b->tensor_first + i];
        if (t->role == ROLE_PARAM && t->words && t->trainable)
            words += round_alloc(tensor_grad_bytes(t));
    }
    PUT(p, TERM_WGRAD_TMP, ROOT_GRADS_LABEL,
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
    if (fsdp_head_waits(s, position))
        PUT(p, TERM_WGRAD_TMP, ROOT_GRADS_LABEL,
            F("bytes", s->walk[s->p->head].wgrad));
    if (joint_waits(s, position))
        joint_grads(p, s);
}

/* Whether the backward at hand is the last: of more than two the one before it
 * is as full or fuller. */
bool fsdp_reduces_now(const struct run *run, bool later)
{
    return later && run->grad_accum == 2 && !fsdp_reduces_at_last(run);
}

/* What else of the root there is above this position. */
static void root_above(const struct stage *s, uint32_t position,
                       struct root_part *out)
{
    *out = (struct root_part){ 0 };
    if (fsdp_head_waits(s, position)) {
        const struct block_states *head = &s->states[s->p->head];
        out->elems += head->elems;
        out->own += head->own_elems;
        out->wgrad += s->walk[s->p->head].wgrad - s->tied_here;
    }
    if (joint_waits(s, position)) {
        const struct block_states *joint = fsdp_root_joint(s);
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
                               ? s->before[fsdp_waits_before(s, position)].elems
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
        F("bytes", !later ? all - upto
                   : fsdp_reduces_now(s->run, later)
                       ? upto
                       : put_less_lacking(p, all)));
}

/* Elements of this rank whose gradients are reduced: those of the layers above,
 * after the first micro-batch all. */
uint64_t fsdp_reduced(const struct stage *s, uint32_t position, bool later)
{
    if (!engine_shards_come(s->run))
        return 0;
    if (chunk_by_chunk(s))
        return s->sum.own_elems
               - s->before[fsdp_waits_before(s, position)].own_elems;
    if (fsdp_defers(s->run) && !fsdp_reduces_now(s->run, later))
        return 0;
    if (later && !fsdp_defers(s->run))
        return s->sum.own_elems;
    struct root_part above;
    root_above(s, position, &above);
    return s->sum.own_elems - s->before[position + 1].own_elems - above.own;
}

/* Hybrid sharding: what the copies' all-reduce works on is kept to the end of
 * backward (_fsdp_collectives.py, foreach_reduce; AllReduceState). */
bool fsdp_keeps_all_reduced(const struct run *run)
{
    return run->engine == ENGINE_FSDP2 && run->dp * run->cp > run->shard;
}

/* It is the gradient, unless that has another type, is there already, or is used
 * up. */
bool fsdp_has_all_reduced(const struct run *run, bool later)
{
    if (!fsdp_keeps_all_reduced(run))
        return false;
    if (engine_steps_units(run))
        return true;
    return engine_shards_come(run)
           && (run->prec.reduce != run->prec.grad
               || (later && !fsdp_defers(run)));
}

void fsdp_all_reduced(struct put *p, const struct stage *s, uint32_t position,
                      bool later)
{
    const struct run *run = s->run;
    if (!fsdp_has_all_reduced(run, later)
        || (fsdp_defers(run) && !fsdp_reduces_now(run, later)))
        return;
    struct root_part above;
    root_above(s, position, &above);
    PUT(p, TERM_REDUCE_TMP, ALL_REDUCED_LABEL,
        F("P/N, tensor by tensor",
          s->sum.own_elems - s->before[position + 1].own_elems - above.own),
        F("bytes", dtype_size(run->prec.reduce)));
}
