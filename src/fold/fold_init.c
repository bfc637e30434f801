/*
 * Readies the memory fold of a program: walks each of its blocks as its stages
 * will run them, finds what they share, and makes room for the largest stage.
 * Knows no stage. [docs/method.md eq. pipeline]
 */
#include "fold/fold.h"
#include "fold/glances.h"
#include "fold/overlap.h"

#include "base/banned.h"

/* Most operations do not: no need to ask what they save. */
static bool has_operand(const struct program *p, const struct op *op,
                        tensor_id id)
{
    for (unsigned i = 0; i < op->n_in; i++)
        if (p->tensor[op->in[i]].storage == id)
            return true;
    for (unsigned i = 0; i < op->n_out; i++)
        if (p->tensor[op->out[i]].storage == id)
            return true;
    return false;
}

static bool some_op_saves(const struct program *p, uint32_t from, uint32_t to,
                          tensor_id id)
{
    for (uint32_t k = from; k < to; k++) {
        tensor_id saved[SAVED_MAX];
        if (!op_kind_saves(p->op[k].kind) || !has_operand(p, &p->op[k], id))
            continue;
        const size_t n = op_saves(p, &p->op[k], saved);
        for (size_t i = 0; i < n; i++)
            if (p->tensor[saved[i]].storage == id)
                return true;
    }
    return false;
}

/* Rope tables are kept, a mask that is only added is not. */
static struct shared_bytes shared_of(const struct program *p, bool rotary)
{
    const struct block *words_of = &p->block[p->embed];
    struct shared_bytes sum = { 0 };
    for (tensor_id id = p->first_shared; id < p->first_shared + p->n_shared;
         id++) {
        const struct tensor *t = &p->tensor[id];
        if (t->rotary != rotary || t->rests)
            continue;
        const bool kept = some_op_saves(p, 0, p->n_ops, id);
        const bool words = some_op_saves(
            p, words_of->op_first, words_of->op_first + words_of->op_count, id);
        const uint64_t bytes = round_alloc(t->bytes);
        sum.all += t->storage == id ? bytes : 0;
        sum.kept += kept ? bytes : 0;
        sum.last += words ? bytes : 0;
        sum.late += kept || t->held ? bytes : 0;
    }
    return sum;
}

static uint64_t resting_of(const struct program *p)
{
    uint64_t bytes = 0;
    for (tensor_id id = p->first_shared; id < p->first_shared + p->n_shared;
         id++)
        bytes += p->tensor[id].rests ? p->tensor[id].bytes : 0;
    return bytes;
}

/* Of every block. Two chunks have a second backward in one micro-batch. */
static unsigned modes_needed(const struct run *run)
{
    const struct stage s = { .run = run };
    const bool later =
        run->grad_accum > 1 || run_chunks(run) > 1 || schedule_is_dual(run);
    return 1u << engine_wgrad_mode(&s, false)
           | (later ? 1u << engine_wgrad_mode(&s, true) : 0)
           | (run_splits_backward(run) ? WALK_SPLIT : 0)
           | (schedule_keeps_graph(run) ? 1u << WGRAD_FREE : 0)
           | (zero_fills_bucket(run) ? WALK_ARRIVALS : 0);
}

/* Of layers beside; `most`: that a stage has. */
static unsigned modes_of_layers(const struct run *run, uint64_t most)
{
    const bool each =
        run->recompute_layers >= most && run->recompute_every <= 1;
    const bool early = checkpoint_stops_early(run);
    const bool lone = early && run->recompute_granularity <= 1;
    return (run_checkpoints(run) ? WALK_CHECKPOINT : 0)
           | (early ? WALK_EARLY : 0)
           | (run_checkpoints(run) && each ? WALK_UNDER : 0)
           | (lone ? WALK_LONE : 0) | (run_unpacks(run) ? WALK_UNPACKS : 0)
           | (run_unpacks(run) && each ? WALK_UNPACKED : 0)
           | (run_checkpoints(run) && schedule_keeps_graph(run) ? WALK_REMAKES
                                                                : 0);
}

/* Of all ranks where these are short. */
static bool orders_room(struct memory_fold *f)
{
    const struct run *run = f->run;
    const size_t steps = (size_t)schedule_room(run, schedule_micros(run));
    const uint64_t ranks = schedule_is_dual(run) ? run->pp / 2 : run->pp;
    f->orders = schedule_is_short(run) ? (size_t)ranks : 1;
    f->order = ARENA_ROOM(f->a, struct rank_order, f->orders);
    struct step *step = ARENA_ROOM(f->a, struct step, f->orders * steps);
    if (f->a->failed)
        return false;
    for (size_t i = 0; i < f->orders; i++)
        f->order[i].step = &step[i * steps];
    return true;
}

static bool chunks_room(struct memory_fold *f)
{
    const bool two = schedule_is_dual(f->run) || run_folds(f->run);
    const size_t chunks = two ? 2 : (size_t)f->run->vpp;
    f->chunk_first = ARENA_NEW(f->a, uint32_t, chunks);
    f->chunk_kept = ARENA_NEW(f->a, uint64_t, chunks);
    f->chunk_stash = ARENA_NEW(f->a, uint64_t, chunks);
    f->others = ARENA_NEW(f->a, uint64_t, 2 * SLOT_KINDS * chunks);
    if (f->run->ep_overlap)
        f->met = ARENA_NEW(f->a, uint64_t, overlap_room((uint32_t)chunks));
    if (schedule_keeps_graph(f->run)) {
        f->chunk_apart = ARENA_NEW(f->a, int64_t, chunks);
        f->chunk_sent = ARENA_NEW(f->a, uint64_t, chunks);
        f->chunk_added = ARENA_NEW(f->a, uint64_t, chunks);
        f->chunk_sum = ARENA_NEW(f->a, uint64_t, chunks);
        f->chunk_cut = ARENA_NEW(f->a, uint64_t, chunks);
        f->lacking = ARENA_NEW(f->a, uint64_t, SLOT_KINDS * chunks);
        f->adding = ARENA_NEW(f->a, struct adding, SLOT_KINDS * chunks);
    }
    return (!run_splits_backward(f->run) || orders_room(f)) && !f->a->failed;
}

/* Where the chunks of all ranks begin, in the order of the layers. */
static bool chunks_place(struct memory_fold *f)
{
    const struct run *run = f->run;
    uint64_t layer = 0;
    f->chunk_at = ARENA_NEW(f->a, uint64_t, (size_t)(run->pp * run->vpp));
    if (f->chunk_at == NULL)
        return false;
    for (uint64_t c = 0; c < run->vpp; c++) {
        for (uint64_t r = 0; r < run->pp; r++) {
            f->chunk_at[c * run->pp + r] = layer;
            layer +=
                run_layers_before(run, r, c + 1) - run_layers_before(run, r, c);
        }
    }
    return true;
}

static bool ranks_room(struct memory_fold *f, size_t positions)
{
    if (f->run->engine == ENGINE_FSDP)
        f->ends = ARENA_NEW(f->a, bool, (size_t)f->run->shard);
    if (f->run->engine != ENGINE_DEEPSPEED)
        return !f->a->failed;
    uint32_t most = 0;
    for (uint32_t b = 0; b < f->p->n_blocks; b++)
        most = (uint32_t)max_u64(most, f->p->block[b].tensor_count);
    f->trained = ARENA_ROOM(f->a, const struct tensor *, most);
    if (f->run->zero < 3) /* zero_layout() sets all */
        f->rank = ARENA_ROOM(f->a, struct zero_part, (size_t)f->run->shard);
    if (f->run->zero == 2)
        f->whole = ARENA_ROOM(f->a, uint64_t, (size_t)f->run->shard);
    if (zero_fills_bucket(f->run))
        f->fill = ARENA_ROOM(f->a, struct bucket_fill, positions);
    if (f->fill != NULL)
        f->row = ARENA_NEW(f->a, struct row_stretch, 1);
    if (ledger_needed(f->run) && !ledger_room(f, positions))
        return false;
    return !f->a->failed;
}

/* Transformer Engine has kernels and an order of its own, a compiler makes
 * them. */
static void kernels_init(struct walk_scratch *scratch, const struct run *run)
{
    const bool torch = run->impl != IMPL_MEGATRON && run->impl != IMPL_PAPER;
    enum { BLOCK = 128 };
    scratch->cudnn = run->attention_kernel == KERNEL_CUDNN;
    scratch->graph = schedule_keeps_graph(run);
    scratch->delays = run->delay_wgrad;
    scratch->weights_first = torch && run->impl != IMPL_MEGATRON_LOCAL;
    scratch->reduce_blocks =
        torch && !run->compile
            ? run->gpu.sm_count * (gpu_threads_per_sm(&run->gpu) / BLOCK)
            : 0;
}

/* The frame of a reentrant checkpoint's backward has what it was given
 * (torch/utils/checkpoint.py; megatron/core/tensor_parallel/random.py,
 * CheckpointFunction): known of layers where each is a checkpoint. */
static bool holds_results(const struct run *run)
{
    bool each = run->recompute == RECOMP_FULL && run->recompute_reentrant
                && run->recompute_every <= 1 && run->recompute_granularity <= 1;
    for (uint64_t r = 0; r < run->pp; r++)
        each = each && run->recompute_layers >= run->stage_layers[r];
    return each;
}

/* A queue a chunk: all that comes back, and the next micro-batch's first. */
static bool modules_room(struct memory_fold *f, size_t positions)
{
    f->scratch.away = AWAY_MODULES;
    f->scratch.least_elems = f->run->offload_min_elems;
    f->reload = ARENA_NEW(f->a, struct reload, positions);
    f->reloads = ARENA_NEW(f->a, uint64_t, 2 * OFFMOD_COUNT * positions);
    return !f->a->failed;
}

bool memory_fold_init(struct memory_fold *f, const struct program *p,
                      const struct run *run, struct arena *a)
{
    *f = (struct memory_fold){ .p = p, .run = run, .a = a };
    uint64_t most = 0;
    for (uint64_t r = 0; r < run->pp; r++)
        most = max_u64(most, run->stage_layers[r]);
    most *= schedule_is_dual(run) ? 2 : 1;
    f->at = ARENA_ROOM(a, struct stage_block, (size_t)most + 3);
    f->before = ARENA_ROOM(a, struct prefix, (size_t)most + 3);
    if ((run->pp > 2 || schedule_walked(run)) && !run->ep_overlap)
        f->seen = ARENA_ROOM(a, struct glances, 1);
    if (run->ep_overlap)
        f->overlap = ARENA_NEW(a, struct overlap_walk, p->n_blocks);
    const bool modules = run_away(run) == AWAY_MODULES;
    if (modules && !modules_room(f, (size_t)most + 3))
        return false;
    if (run_away(run) != AWAY_NOTHING && !modules)
        f->away = ARENA_NEW(a, struct away_sums, (size_t)most + 3);
    f->walk = ARENA_ROOM(a, struct block_walk, p->n_blocks);
    f->states = ARENA_ROOM(a, struct block_states, p->n_blocks);
    if (f->at == NULL || f->before == NULL || f->walk == NULL
        || f->states == NULL || a->failed
        || !walk_scratch_init(&f->scratch, p, a)
        || (schedule_walked(run) && !chunks_room(f))
        || (run_loops(run) && !chunks_place(f)))
        return false;
    if (!ranks_room(f, (size_t)most + 3))
        return false;
    f->scratch.persists = run->persistence_threshold;
    f->scratch.away = run_away(run);
    f->scratch.away_head = run_unloads_head(run);
    if (engine_updates_in_backward(run))
        f->scratch.update_copies = engine_update_copies(run);
    if (engine_updates_in_backward(run) && run_projects(run))
        f->scratch.projects = run;
    f->scratch.tied_table = stage_tied_bytes(p) != 0;
    f->scratch.step = run->graph_step;
    if (run->graph_step != STEP_EAGER) /* what counts differs */
        f->scratch.common = NULL;
    kernels_init(&f->scratch, run);
    /* as does the loop over layers that are run part by part
       (TransformerModelChunkSchedulePlan.run) */
    f->scratch.result_held = holds_results(run) || run->ep_overlap;
    f->rotary = shared_of(p, true);
    f->shared = shared_of(p, false);
    for (uint32_t i = 0; i < p->n_spans; i++)
        f->span_kept[i] = some_op_saves(p, 0, p->n_ops, p->span[i].of);
    f->resting = resting_of(p);
    const uint64_t regions = run_regions(run);
    const unsigned modes = modes_needed(run);
    const unsigned layers = modes | modes_of_layers(run, most);
    for (uint32_t b = 0; b < p->n_blocks; b++) {
        f->scratch.overlap = f->overlap == NULL ? NULL : &f->overlap[b];
        walk_block(&f->walk[b], p, &p->block[b], regions,
                   p->block[b].kind == BLOCK_LAYER ? layers : modes,
                   &f->scratch);
        states_of_block(&f->states[b], p, &p->block[b], run, true);
    }
    return true;
}
