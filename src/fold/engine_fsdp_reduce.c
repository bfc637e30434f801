/*
 * What FSDP joins, casts and reduces a unit's gradients in, and the root's at
 * the end. Facts from PyTorch 2.x, FSDP1 and fully_shard.
 * [docs/method.md eq. buckets]
 */
#include "fold/engine_fsdp.h"

#include "base/banned.h"

/* Version 2's, to the end of the next unit's backward (_fsdp_param_group.py,
 * post_backward, reduce_scatter_state). */
void fsdp_put_scatter(struct put *p, const struct stage *s, uint64_t elems)
{
    PUT(p, TERM_REDUCE_TMP, "reduce-scatter input", F("elements", elems),
        F("bytes", dtype_size(s->run->prec.reduce)));
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
           && !fsdp_comes_after_root(s, position) && b->memory == TENSOR_NONE
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
           && fsdp_is_fetched_back(s, position - 1);
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
    PUT(p, TERM_REDUCE_TMP, REDUCED_LABEL,
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
        PUT(p, TERM_REDUCE_TMP, RECAST_LABEL,
            F("elements of P/N", div_up(elems, s->run->shard)),
            F("bytes", dtype_size(prec->grad)));
}

/* What hooks on shards find, and make, of which the largest has so many
 * elements: shards' gradients are parts of what was reduced, and cast, and go
 * with it (foreach_reduce: _post_accumulate_grad_hooks). */
static void put_stepped(struct put *p, const struct stage *s, uint64_t elems,
                        uint64_t largest)
{
    const struct precision_bytes *prec = &s->run->prec;
    if (prec->reduce == prec->grad || fsdp_keeps_all_reduced(s->run))
        put_reduced(p, s, elems);
    if (prec->reduce != prec->grad)
        PUT(p, TERM_REDUCE_TMP, RECAST_LABEL,
            F("elements of P/N", div_up(elems, s->run->shard)),
            F("bytes", dtype_size(prec->grad)));
    engine_step_shards(p, s, largest);
}

/* The gradient of a unit's last parameter, which a loop's variable holds to the
 * end (foreach_reduce: unsharded_grad). */
static uint64_t last_grad(const struct stage *s, uint32_t block)
{
    const struct block *b = &s->p->block[block];
    const struct tensor *last = NULL;
    bool after = false;
    const struct tensor *t;
    for (tensor_id id = b->weights; id != TENSOR_NONE; id = t->next) {
        t = &s->p->tensor[id];
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
    fsdp_gathered_back(p, s, position, later,
                       when == UNIT_FLATTENED && !scatters(s));
    fsdp_put_in_vain(p, s, position);
    fsdp_put_prefetched(p, s, position);
    if (fsdp_overlaps(s, position)) {
        fsdp_put_prefetched(p, s, position - 1);
        return;
    }
    if (scatters(s)) {
        fsdp_put_scatter(p, s, s->states[b].cut_elems);
        if (when == UNIT_CAST) {
            put_last_grad(p, last_grad(s, b));
            put_recast(p, s, s->states[b].cut_elems);
        } else if (when == UNIT_STEPPED) {
            put_last_grad(p, last_grad(s, b));
            put_stepped(p, s, s->states[b].cut_elems, s->states[b].largest_own);
        }
        return;
    }
    /* what waits is added to in place, by the node that the hook is of */
    if (when == UNIT_FLATTENED || !defers || later)
        put_flat(p, s->walk[b].wgrad);
    if (when == UNIT_CAST && (!defers || fsdp_reduces_now(s->run, later))) {
        put_cast(p, s, s->states[b].elems);
        put_reduced(p, s, s->states[b].elems);
    }
}

static void root_parts(struct put *p, uint64_t bytes)
{
    PUT(p, TERM_WGRAD_TMP, ROOT_GRADS_LABEL, F("bytes", bytes));
}

/* A root's head that is reduced with another chunk, or NULL. */
static const struct block_states *head_of_other(const struct stage *s)
{
    return s->head && !fsdp_head_apart(s) && fsdp_waits_before(s, 0) < s->n
               ? &s->states[s->p->head]
               : NULL;
}

/* The first unit's turn, after the last backward of a pipeline: its weights are
 * cut, its gradients copied to be reduced, all others' are whole. */
void fsdp_first_reduced(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const struct block_states *head = head_of_other(s);
    const uint64_t root =
        fsdp_root_sums(s).cut - (head != NULL ? head->cut_elems : 0);
    const uint64_t root_bytes =
        fsdp_root_bytes(s) - (head != NULL ? head->bytes : 0);
    const struct block_states *unit = &s->states[stage_block(s, 0)];
    const uint64_t elems = root > 0 ? root : unit->cut_elems;
    PUT(p, TERM_GRADS, "whole gradients that wait for the last micro-batch",
        F("bytes", fsdp_deferred_whole(s, 0)));
    PUT(p, TERM_GATHERED, "parameters of the other units",
        F("bytes", s->before[fsdp_waits_before(s, 0)].bytes
                       - (root > 0 ? root_bytes : unit->bytes)));
    fsdp_put_scatter(p, s, elems);
    if (engine_shards_come(run))
        PUT(p, TERM_GRAD_SHARDS, REDUCED_LABEL,
            F("P/N", div_up(elems, run->shard)),
            F("bytes per gradient", dtype_size(run->prec.grad)));
}

/* Of each chunk's last unit, as all its units reduce one after the other when its
 * last backward is over: the next one to reduce lets go of it, or the callback at
 * the root's end, which no root calls (stage.py, run_post_backward;
 * _fsdp_param_group.py, reduce_scatter_state). `first`: the first chunk's too,
 * which is the last to reduce. */
void fsdp_put_kept(struct put *p, const struct stage *s, bool first)
{
    if (!s->run->keep_reduce_scatter)
        return;
    for (uint32_t c = first ? 0 : 1; c < s->chunks; c++) {
        const uint32_t last = stage_chunk_first(s, c + 1) - 1;
        const bool root = s->head && last + 1 == s->n && !fsdp_head_apart(s)
                          && last > stage_chunk_first(s, c);
        const uint32_t i = root ? last - 1 : last; /* the root's is the first */
        PUT(p, TERM_REDUCE_TMP, "reduce-scatter input, kept to the next step's",
            F("elements", s->states[stage_block(s, i)].cut_elems),
            F("bytes", dtype_size(s->run->prec.reduce)));
    }
}

/* What no backward comes to, and so no hook cuts: it stays as forward, or a
 * fetch ahead, left it to the end of the pass (_post_backward_final_callback). */
static void put_left_whole(struct put *p, const struct stage *s)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i + 1 < s->n && s->run->stops; i++)
        if (!stage_comes_back(s, i)
            && (!s->run->reshard || fsdp_left_whole(s, i)))
            bytes += fsdp_unit_bytes(s, i);
    PUT(p, TERM_GATHERED, "frozen units that no backward comes to",
        F("bytes", bytes));
}

/* A reduction of version 2 at the end of the pass. */
struct turn {
    uint64_t elems, own; /* of all shards, of this rank's */
    uint64_t whole;      /* bytes of whole gradients */
    uint64_t last;       /* ... of the last parameter's */
    uint64_t largest;    /* elements: of this rank's shards */
};

static uint64_t wire_bytes(const struct stage *s, uint64_t elems)
{
    return elems * dtype_size(s->run->prec.reduce);
}

static struct turn root_turn(const struct stage *s)
{
    const struct root_sums root = fsdp_root_sums(s);
    const uint32_t at =
        s->head && !fsdp_head_apart(s) ? s->p->head : stage_block(s, 0);
    return (struct turn){
        .elems = root.cut,
        .own = root.own,
        .whole = fsdp_defers(s->run) ? wire_bytes(s, root.elems)
                                     : fsdp_root_wgrads(s),
        .last = root.elems == 0 ? 0 : last_grad(s, at),
        .largest = root.largest,
    };
}

bool fsdp_comes_after_root(const struct stage *s, uint32_t position)
{
    const struct run *run = s->run;
    const uint32_t b = stage_block(s, position);
    const struct block *block = &s->p->block[b];
    return run->engine == ENGINE_FSDP2 && run->zero != 0
           && !fsdp_reduces_at_last(run) && block->kind == BLOCK_LAYER
           && s->states[b].elems > 0 && block->input != TENSOR_NONE
           && !s->p->tensor[block->input].needs_grad;
}

/* The position of such a unit; s->n: none. */
static uint32_t late_unit(const struct stage *s)
{
    uint32_t i = 0;
    while (i < s->n && !fsdp_comes_after_root(s, i))
        i++;
    return i;
}

static struct turn late_turn(const struct stage *s, uint32_t position)
{
    if (position == s->n)
        return (struct turn){ 0 };
    const uint32_t b = stage_block(s, position);
    const uint64_t elems = s->states[b].elems;
    return (struct turn){
        .elems = s->states[b].cut_elems,
        .own = s->states[b].own_elems,
        .whole = fsdp_defers(s->run) ? wire_bytes(s, elems) : s->walk[b].wgrad,
        .last = last_grad(s, b),
        .largest = s->states[b].largest_own,
    };
}

/* What comes of the input, and hooks that update shards make, whichever is
 * more. */
static void put_results(struct put *p, const struct stage *s,
                        const struct turn *t)
{
    struct moment cast = { .op = "" }, stepped = { .op = "" };
    struct put c = { .m = &cast, .only = COMP_COUNT };
    struct put h = { .m = &stepped, .only = COMP_COUNT };
    if (engine_steps_units(s->run)) {
        put_recast(&c, s, t->elems);
        put_stepped(&h, s, t->elems, t->largest);
    }
    put_last_grad(p, t->last);
    if (stepped.total > cast.total)
        put_stepped(p, s, t->elems, t->largest);
    else
        put_recast(p, s, t->elems);
}

/* Beside the input: whole gradients while they are copied there, or what comes
 * of it and the last of them, whichever is more. */
static bool turn_copies(const struct stage *s, const struct turn *t)
{
    struct moment m = { .op = "" };
    struct put p = { .m = &m, .only = COMP_COUNT };
    put_results(&p, s, t);
    return m.total <= t->whole;
}

static void put_turn(struct put *p, const struct stage *s, const struct turn *t)
{
    PUT(p, TERM_REDUCE_TMP, "reduce-scatter input of the last to be reduced",
        F("elements", t->elems), F("bytes", dtype_size(s->run->prec.reduce)));
    if (!p->copied_in && turn_copies(s, t)) {
        root_parts(p, t->whole);
        return;
    }
    put_results(p, s, t);
}

/* What the root's reduction finds of a unit that comes after it: no hook has
 * cut its parameters, nor, with stage 2, those below; the one below was fetched
 * in vain (finalize_backward). */
static void put_late(struct put *p, const struct stage *s, uint32_t position,
                     uint64_t grads)
{
    uint64_t whole = 0;
    if (position == s->n)
        return;
    for (uint32_t i = s->run->reshard ? position : 0; i <= position; i++)
        whole += fsdp_unit_bytes(s, i);
    PUT(p, TERM_GATHERED, "units that no hook cuts", F("bytes", whole));
    fsdp_put_prefetched(p, s, position);
    PUT(p, TERM_WGRAD_TMP, "its whole gradients, reduced after the root's",
        F("bytes", grads));
}

/* The root is the first that lets go of what its copies all-reduced
 * (_fsdp_state.py, _root_post_backward_final_callback). */
static void put_units_all_reduced(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    if (fsdp_has_all_reduced(run, run->grad_accum > 1))
        PUT(p, TERM_REDUCE_TMP, ALL_REDUCED_LABEL,
            F("P/N, tensor by tensor", s->sum.own_elems - fsdp_root_sums(s).own
                                           - late_turn(s, late_unit(s)).own),
            F("bytes", dtype_size(run->prec.reduce)));
}

static void put_root_turn(struct put *p, const struct stage *s)
{
    const uint32_t late = late_unit(s);
    put_units_all_reduced(p, s);
    const struct turn root = root_turn(s);
    put_turn(p, s, &root);
    put_late(p, s, late, late_turn(s, late).whole);
}

static void put_late_turn(struct put *p, const struct stage *s)
{
    const struct turn late = late_turn(s, late_unit(s));
    const bool comes = engine_shards_come(s->run)
                       && (s->run->grad_accum == 1 || fsdp_defers(s->run));
    put_turn(p, s, &late);
    PUT(p, TERM_GRAD_SHARDS, "the root's gradient shards",
        F("P/N, tensor by tensor", comes ? fsdp_root_sums(s).own : 0),
        F("bytes per gradient", dtype_size(s->run->prec.grad)));
}

/* The fuller of both. */
static void root_scattered(struct put *p, const struct stage *s)
{
    struct moment root = { .op = "" }, late = { .op = "" };
    struct put r = { .m = &root, .only = COMP_COUNT };
    struct put l = { .m = &late, .only = COMP_COUNT };
    if (late_unit(s) < s->n) {
        put_root_turn(&r, s);
        put_late_turn(&l, s);
    }
    if (late.total > root.total)
        put_late_turn(p, s);
    else
        put_root_turn(p, s);
}

/* Version 2 reduces when the whole gradients are copied and gone. */
uint64_t fsdp_root_own_to_come(const struct stage *s)
{
    const struct run *run = s->run;
    if ((!flattens(s) && run->engine != ENGINE_FSDP2)
        || (run->grad_accum > 1 && !fsdp_defers(run)))
        return 0;
    return fsdp_root_sums(s).own + late_turn(s, late_unit(s)).own;
}

/* The root's own turn, the last: joined while its parameters are whole, or
 * cast when they are not, whichever is more. */
void fsdp_root_done(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t wire =
        fsdp_root_sums(s).elems * dtype_size(run->prec.reduce);
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
    fsdp_put_in_vain(p, s, 0);
    put_left_whole(p, s);
    if (cast > fsdp_root_bytes(s) + grads + waited) {
        put_flat(p, grads - waited);
        put_cast(p, s, fsdp_root_sums(s).elems);
        put_reduced(p, s, fsdp_root_sums(s).elems);
        return;
    }
    put_flat(p, grads);
    PUT(p, TERM_GATHERED, ROOT_LABEL, F("bytes", fsdp_root_bytes(s)));
    root_parts(p, grads);
}

/* ---- version 2: whole gradients that wait, in the type of the reduction ---- */

/* The root's gradients are cast one after another; bytes in their own type, and
 * in that of the reduction. */
struct casting {
    uint64_t wire;       /* bytes of an element */
    uint64_t gone, done; /* of those so far */
    uint64_t waits, had; /* at the fullest: not gone before, done by then */
};

static void cast_gradient(void *ctx, const struct tensor *t)
{
    struct casting *x = ctx;
    if (!t->trainable)
        return;
    x->done += t->elems * x->wire;
    if (x->done - min_u64(x->done, x->gone)
        > x->had - min_u64(x->had, x->waits)) {
        x->had = x->done;
        x->waits = x->gone;
    }
    x->gone += round_alloc(tensor_grad_bytes(t));
}

bool fsdp_casts_waiting(const struct run *run, bool later)
{
    return run->engine == ENGINE_FSDP2 && run->zero != 0 && !later
           && fsdp_defers(run)
           && !(fsdp_reduces_at_last(run) && run_chunks(run) > 1)
           && !fsdp_adds_in_place(run);
}

/* Its input has no gradient, and so no hook: the callback at the end of the pass
 * does what that would. Elsewhere such a unit is a turn of its own. */
static bool ids_have_a_unit(const struct stage *s)
{
    return fsdp_reduces_at_last(s->run) && s->embed && fsdp_is_unit(s, 0);
}

/* The root's, when all units' are cast (_fsdp_param.py,
 * to_accumulated_grad_if_needed). */
void fsdp_cast_waiting(struct put *p, const struct stage *s)
{
    const uint32_t late = late_unit(s);
    struct casting x = { .wire = dtype_size(s->run->prec.reduce) };
    fsdp_each_root_tensor(s, cast_gradient, &x);
    if (ids_have_a_unit(s))
        fsdp_each_tensor(s, 0, cast_gradient, &x);
    PUT(p, TERM_GRADS, "whole gradients that wait for the last micro-batch",
        F("bytes", fsdp_deferred_whole(s, 0) - x.done + x.had
                       - late_turn(s, late).whole));
    PUT(p, TERM_WGRAD_TMP, "the root's, not yet cast",
        F("bytes", x.gone - x.waits));
    if (late < s->n)
        put_late(p, s, late, s->walk[stage_block(s, late)].wgrad);
    if (!fsdp_reduces_at_last(s->run))
        return;
    fsdp_gathered_back(p, s, 0, false, false);
    pipe_backward(p, s, 0);
    fsdp_put_kept(p, s, true);
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
            F("bytes", fsdp_unit_bytes(s, position - 1)));
    if (head && position > 1)
        PUT(p, TERM_GATHERED, "the one's before that, released",
            F("bytes", fsdp_unit_bytes(s, position - 2)));
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
    if (!back || (s->head && position + 1 == s->n && !fsdp_head_apart(s))) {
        if (s->run->reshard)
            waits_forward(p, s, position);
        return;
    }
    const bool last = position + 1 >= s->n || !fsdp_is_unit(s, position + 1);
    PUT(p, TERM_GATHERED, "the unit's before, released",
        F("bytes", fsdp_unit_bytes(s, last ? position : position + 1)));
    waits_reduced(p, s, position + 1);
    waits_reduced(p, s, position + 2);
}
