/*
 * The fullest moment of every stage, and the fullest stage; what lies outside
 * the allocator, and what the allocator makes of it.
 * [docs/method.md eq. peak]
 */
#include "fold/memory.h"

#include "data/constants.h"
#include "fold/glances.h"
#include "fold/schedule.h"
#include "fold/simulate.h"
#include "fold/stage.h"

#include <string.h>

#include "base/banned.h"

static bool in_a_block(enum phase phase)
{
    return phase == PHASE_FORWARD || phase == PHASE_LOSS
           || phase == PHASE_BACKWARD || phase == PHASE_RECOMPUTE;
}

/* Told term by term, which takes no table to be asked. */
static void sum_components(uint64_t sum[COMP_COUNT], const struct moment *m)
{
    for (unsigned c = 0; c < COMP_COUNT; c++)
        sum[c] = 0;
#define TERM(id, component, key, label, equation)                              \
    sum[COMP_##component] += m->bytes[TERM_##id];
#include "fold/term.def"
#undef TERM
}

/* Weights, gradients as the engine holds them when all have come, optimizer
 * states; no buffers. [Rajbhandari et al. 2020, figure 1] */
static uint64_t model_states(const struct stage *s, const struct moment *rest)
{
    uint64_t of[COMP_COUNT];
    sum_components(of, rest);
    return of[COMP_PARAMETERS] + of[COMP_GRADIENTS] + of[COMP_OPTIMIZER]
           + (run_keeps_flat_grads(s->run) ? 0 : engine_gradients(s));
}

/* What follows from the fullest moment. */
static void describe_peak(struct stage_result *out, const struct stage *s)
{
    sum_components(out->component, &out->peak);
    out->peak_block = "";
    if (!in_a_block(out->peak.phase) || s->n == 0)
        return;
    const uint32_t i = out->peak.position;
    out->peak_block = s->p->block[stage_block(s, i)].name;
    if (stage_is_layer(s, i))
        out->peak_layer = stage_model_layer(s, i);
}

static void keep_peak(struct stage_result *out, const struct stage *s,
                      const struct peak *peak)
{
    out->peak = peak->moment;
    out->reserve = pools_reserve(&peak->pools, s, out->peak.total);
    describe_peak(out, s);
}

static uint64_t first_chunk_layers(const struct stage *s)
{
    return s->chunk_at != NULL ? run_layers_before(s->run, s->index, 1)
                               : s->low_layers;
}

static uint64_t second_chunk(const struct stage *s)
{
    return s->chunk_at != NULL ? s->chunk_at[s->run->pp] : s->high_layer;
}

/* Of a flat partition each rank has its part. */
static uint64_t paged_of(const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t all = s->sum.paged_bytes,
                   of_experts = s->sum.expert_paged_bytes;
    return run_sharding(run) == SHARDING_FLAT
               ? div_up(all - of_experts, max_u64(run->shard, 1))
                     + div_up(of_experts, max_u64(run->expert_shard, 1))
               : all;
}

static uint64_t second_chunk_layers(const struct stage *s)
{
    return (s->chunk_at != NULL ? run_layers_before(s->run, s->index, 2)
                                : s->layers)
           - first_chunk_layers(s);
}

/* `seen`: keeps what its peak looked at, or NULL. */
static bool stage_result_of(struct stage_result *out, struct stage *s,
                            struct glances *seen)
{
    *out =
        (struct stage_result){ .index = s->index,
                               .first_layer = s->first_layer,
                               .layers = s->layers,
                               .low_layers = first_chunk_layers(s),
                               .high_layer = second_chunk(s),
                               .high_layers = second_chunk_layers(s),
                               .chunks = s->chunks,
                               .has_embedding = s->embed,
                               .has_head = s->head,
                               .parameters = s->sum.elems + s->sum.frozen_elems,
                               .in_flight = s->in_flight,
                               .waiting = s->stashes,
                               .paged = paged_of(s),
                               .peak_block = "" };
    /* what every moment has; PHASE_COUNT adds nothing of its own */
    bool ok = moment_at(&s->rest, s, PHASE_COUNT, 0, false);
    s->has_rest = true;
    ok = moment_at(&out->rest, s, PHASE_REST, 0, false) && ok;
    out->model_states = model_states(s, &out->rest) + out->paged;
    struct peak peak;
    ok = stage_peak(&peak, s, seen) && ok;
    keep_peak(out, s, &peak);
    return ok;
}

/* Of a stage that differs from the one before in what is in flight alone. */
static bool stage_result_like(struct stage_result *out, const struct stage *s,
                              struct glances *seen)
{
    struct peak peak;
    *out = out[-1];
    out->index = s->index;
    out->first_layer = s->first_layer;
    out->high_layer = second_chunk(s);
    out->in_flight = s->in_flight;
    out->waiting = s->stashes;
    const bool ok = stage_peak_again(&peak, s, seen, &out[-1].peak);
    keep_peak(out, s, &peak);
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

static struct outside_row context_of(const struct run *run)
{
    const struct cuda_context usual = run_cuda_context(run);
    const bool given = run->given[KEY_CUDA_CONTEXT];
    return (struct outside_row){ "context",
                                 "CUDA context and kernels",
                                 run->cuda_context_bytes,
                                 1,
                                 given ? "given (cuda_context)" : usual.source,
                                 !given && usual.unverified };
}

/* One each for data, tensor, pipeline and expert parallelism. */
static struct communicators usual_communicators(const struct run *run)
{
    const uint64_t group[] = { run->dp * run->cp, run->tp, run->pp, run->ep };
    struct communicators n = { 0 };
    if (run_spreads(run)) /* one process */
        return n;
    for (size_t i = 0; i < sizeof group / sizeof group[0]; i++) {
        n.pairs += group[i] == 2;
        n.groups += group[i] > 2;
    }
    return n;
}

static struct outside_row communicators_of(const struct run *run)
{
    struct communicators n = { 0 };
    const char *source = "NVIDIA/nccl#964: 544 MB (2 GPUs), 688 MB (more)";
    if (!pipe_communicators(&n, run))
        n = usual_communicators(run);
    uint64_t bytes = n.pairs * NCCL_PAIR_BYTES + n.groups * NCCL_GROUP_BYTES
                     + n.across * NCCL_NODES_BYTES;
    if (run->gpu.arch == ARCH_VOLTA)
        bytes /= NCCL_VOLTA_SHARE;
    return (struct outside_row){
        "communicators", "NCCL buffers",
        bytes,           n.pairs + n.groups + n.across,
        source,          run->gpu.arch != ARCH_AMPERE || n.across != 0
    };
}

/* Of all tokens that the tensor-parallel ranks have between them, by hidden
 * size. */
static struct outside_row user_buffers_of(const struct run *run,
                                          const struct program *p)
{
    const struct block *layer = &p->block[p->layer_block[0]];
    const uint64_t all = p->tensor[layer->input].elems * run->tp;
    const uint64_t in = run->prec.fp8 ? 1 : 2;
    return (
        struct outside_row){ "user_buffers",
                             "user buffers of overlapped products",
                             all * (TE_BUFFERS_IN * in + TE_BUFFERS_OUT * 2),
                             TE_BUFFERS_IN + TE_BUFFERS_OUT,
                             "read: TransformerEngine module/base.py, "
                             "initialize_ub",
                             true };
}

/* Two parts of what a product scatters, one being read by its rank while the
 * next is made; the parts that are gathered are no larger. One allocation of
 * cuMemCreate, with the ranks' signals behind it (torch/distributed/
 * _symmetric_memory/__init__.py, _pipelined_produce_and_all2all; csrc/
 * distributed/c10d/CUDASymmetricMemory.cu, alloc). */
static struct outside_row symmetric_of(const struct program *p)
{
    enum { PARTS = 2 };
    const struct tensor *x = &p->tensor[p->block[p->layer_block[0]].input];
    const uint64_t bytes = x->bytes * PARTS + SYMMETRIC_SIGNALS_BYTES;
    return (struct outside_row){
        "symmetric_memory",
        "symmetric memory of overlapped products",
        div_up(bytes, SYMMETRIC_GRANULE_BYTES) * SYMMETRIC_GRANULE_BYTES,
        1,
        "read: torch/distributed/_symmetric_memory, get_symm_mem_workspace",
        true
    };
}

static void put_outside(struct memory_result *m, const struct run *run,
                        const struct program *p)
{
    outside_add(m, context_of(run));
    outside_add(m, communicators_of(run));
    if (run->tp_comm_overlap)
        outside_add(m, user_buffers_of(run, p));
    if (run->async_tp)
        outside_add(m, symmetric_of(p));
}

/* ---- beside the GPU ---- */

/* The stage with most on its host; a node's GPUs are taken to be of it. */
static void keep_offload(struct memory_result *out, const struct stage *s)
{
    const struct run *run = s->run;
    struct offload_result o;
    if (!run_offloads(run))
        return;
    fold_offload(&o, s);
    o.host = o.sum[OFFLOAD_ON_HOST] + o.sum[OFFLOAD_ON_PINNED];
    const struct offload_result *most = &out->offload;
    if (most->n != 0
        && most->host + most->sum[OFFLOAD_ON_DISK]
               >= o.host + o.sum[OFFLOAD_ON_DISK])
        return;
    o.node_gpus = min_u64(run->gpus, run->gpus_per_node);
    o.host_node = o.host * o.node_gpus;
    o.pinned_node = o.sum[OFFLOAD_ON_PINNED] * o.node_gpus;
    o.disk_node = o.sum[OFFLOAD_ON_DISK] * o.node_gpus;
    out->offload = o;
}

/* ---- the fold ---- */

/* What of the device is left to the allocator. */
static uint64_t room_of(const struct memory_result *out, const struct run *run)
{
    return run->capacity_bytes > out->outside
               ? run->capacity_bytes - out->outside
               : 0;
}

/* The driver brings paged moments to the device to update them and moves them
 * away for what cudaMalloc asks for. [CUDA C++ Programming Guide, unified
 * memory; bitsandbytes functional.py, get_paged] */
static void page_stage(struct stage_result *s, const struct memory_result *out)
{
    const uint64_t needed = s->reserved + out->outside;
    s->paged_here =
        out->capacity > needed ? min_u64(s->paged, out->capacity - needed) : 0;
}

/* Of such as fill the device the one with most on the host. */
static void put_paged(struct memory_result *out)
{
    struct stage_result *most = &out->stage[out->reserved_stage];
    page_stage(most, out);
    for (uint64_t r = 0; r < out->n_stages; r++) {
        struct stage_result *s = &out->stage[r];
        page_stage(s, out);
        const uint64_t here = s->reserved + s->paged_here,
                       there = most->reserved + most->paged_here;
        if (here > there || (here == there && s->paged > most->paged))
            most = s;
    }
    out->device_stage = most->index;
    out->paged = most->paged;
    out->paged_here = most->paged_here;
    out->paged_on_host = most->paged - most->paged_here;
    out->device_total = most->reserved + out->outside + most->paged_here;
}

/* Graphs have a pool of their own: once they run it is there beside what the
 * others reserve; before, what was. */
static void reserve_graphs(struct stage_result *s, const struct run *run)
{
    if (run->graph_step == STEP_REPLAY)
        s->reserved += s->graph_pool;
    s->reserved = max_u64(s->reserved, s->graph_reserved);
}

void memory_finish(struct memory_result *out, const struct run *run)
{
    const uint64_t room = room_of(out, run);
    for (uint64_t r = 0; r < out->n_stages; r++) {
        struct stage_result *s = &out->stage[r];
        if (!s->sim.done)
            s->reserved = reserve_on(&s->reserve, room);
        if (run->cuda_graph)
            reserve_graphs(s, run);
    }
    out->worst = out->reserved_stage = 0;
    for (uint64_t r = 1; r < out->n_stages; r++) {
        if (out->stage[r].peak.total > out->stage[out->worst].peak.total)
            out->worst = r;
        if (out->stage[r].reserved > out->stage[out->reserved_stage].reserved)
            out->reserved_stage = r;
    }
    const struct stage_result *w = &out->stage[out->worst];
    out->peak = w->peak.total;
    out->steady = w->rest.total;
    out->model_states = w->model_states;
    out->reserved = out->stage[out->reserved_stage].reserved;
    out->capacity = run->capacity_bytes;
    put_paged(out);
    out->headroom = (int64_t)out->capacity - (int64_t)out->device_total;
    out->fits = out->headroom >= 0;
}

/* Of all tensors that a block makes: in halves, whose sums fit. */
static struct count bytes_of(const struct program *p, const struct block *b)
{
    const struct tensor *t = &p->tensor[b->tensor_first];
    const struct tensor *end = t + b->tensor_count;
    uint64_t low = 0, high = 0;
    for (; t < end; t++) {
        low += t->bytes & UINT32_MAX;
        high += t->bytes >> 32;
    }
    high += low >> 32;
    return (struct count){ high << 32 | (low & UINT32_MAX), high >> 32 != 0 };
}

/* No sum below can leave 62 bits when every tensor of every layer, several
 * times over (gradients, copies, states) and for every micro-batch that may be
 * in flight, stays below them: checked once, so that the sums need not be. */
static bool fits_62_bits(const struct program *p, const struct run *run)
{
    enum { COPIES = 16 };
    struct count sum = count_of(0);
    for (uint32_t b = 0; b < p->n_blocks; b++) {
        const struct count once = bytes_of(p, &p->block[b]);
        sum = count_add(sum, count_mul(once, count_of(program_times(p, b))));
    }
    /* interleaved: at most 2 p + (v - 1) 2 p + 1 chunks; DualPipe: p + 1 and
       as many that wait for weights' gradients; the others: p */
    const uint64_t flying =
        run->schedule == SCHED_GPIPE ? run->grad_accum : 3 * run->pp * run->vpp;
    sum = count_mul(sum, PROD(COPIES, flying));
    return !sum.over && sum.v < UINT64_C(1) << 62;
}

/* Each stage; of such as are alike, what is in flight alone. */
static bool fold_stages(struct memory_result *out, struct memory_fold *f)
{
    const struct run *run = f->run;
    const uint64_t n = schedule_is_dual(run) ? run->pp / 2 : run->pp;
    struct stage s, next;
    bool ok = true, like = false;
    uint64_t layer = 0;
    for (uint64_t r = 0; r < n; r++) {
        like = like && f->seen->n > 0 && stage_advance(&s, &next, f);
        if (like)
            ok = stage_result_like(&out->stage[r], &s, f->seen) && ok;
        else
            stage_init(&s, f, r, layer);
        const bool repeats = f->seen != NULL && stage_repeats(&next, &s, f);
        const bool keeps = repeats || (!like && stage_chunks_repeat(&s));
        if (!like)
            ok = stage_result_of(&out->stage[r], &s, keeps ? f->seen : NULL)
                 && ok;
        like = repeats;
        keep_offload(out, &s);
        layer += run->stage_layers[r];
    }
    for (uint64_t r = n; r < run->pp; r++) { /* has what its opposite has */
        out->stage[r] = out->stage[run->pp - 1 - r];
        out->stage[r].index = r;
    }
    return ok;
}

bool fold_memory(struct memory_result *out, const struct program *p,
                 const struct run *run, struct arena *a, bool *over)
{
    memset(out, 0, offsetof(struct memory_result, offload.row));
    out->n_stages = run->pp;
    *over = !fits_62_bits(p, run);
    if (*over)
        return false;
    struct memory_fold f;
    out->stage = ARENA_ROOM(a, struct stage_result, (size_t)run->pp);
    if (out->stage == NULL || !memory_fold_init(&f, p, run, a))
        return false;
    out->states = f.states;
    out->order = schedule_is_short(run) ? f.order : NULL;
    *over = !fold_stages(out, &f);
    if (*over)
        return false;
    put_outside(out, run, p);
    memory_finish(out, run);
    return true;
}

/* ---- the allocator ---- */

/* Of one stage: half a second. Beyond it, the closed form. */
enum { SIMULATE_MOST = 2000000 };

struct simulating {
    struct memory_result *out;
    struct memory_fold f;
    struct arena *a;
    const struct length_code *lengths; /* NULL: all alike */
    uint64_t births;
};

static void round_up(struct moment *m, uint64_t allocated)
{
    m->bytes[TERM_ROUNDING] = allocated - m->total;
    m->total = allocated;
}

/* The peak is where the allocator has handed out most; the closed form knows
 * what is alive there at most, the rest is rounding. */
static void keep_simulated(struct stage_result *out, const struct stage *s,
                           const struct simulated *sim)
{
    struct moment m;
    const struct point of = { sim->phase, sim->position, sim->later,
                              sim->beside };
    moment_of(&m, s, &of, NULL, COMP_COUNT);
    if (m.total > sim->allocated
        || out->rest.total > sim->steady + out->graph_rest)
        return; /* never: tests/property */
    round_up(&m, sim->allocated);
    round_up(&out->rest, sim->steady + out->graph_rest);
    out->peak = m;
    out->sim = *sim;
    out->reserved = sim->reserved;
    describe_peak(out, s);
}

/* Where more would be reserved than there is, the allocator gives back what it
 * caches and tries again: `oom` where that is not enough, and no limit then. */
static bool simulate_on(struct simulated *sim, struct simulating *m,
                        const struct stage *s, struct simulate_limits most,
                        uint64_t room)
{
    struct simulated tight;
    if (!simulate_stage(sim, &m->f, s, &most))
        return false;
    if (!sim->done || sim->reserved <= room || sim->allocated > room)
        return true;
    most.device_bytes = room;
    if (!simulate_stage(&tight, &m->f, s, &most))
        return false;
    if (tight.done && !tight.oom)
        *sim = tight;
    else
        sim->oom = tight.done;
    return true;
}

/* By what is reserved, the least first. */
static void insert(struct simulated *row, unsigned n, const struct simulated *x)
{
    while (n > 0 && row[n - 1].reserved > x->reserved) {
        row[n] = row[n - 1];
        n--;
    }
    row[n] = *x;
}

/* What steps of different lengths leave in the allocator's cache, in an order
 * that leaves no more than half of the others do. What is allocated at the peak
 * is the longest's, which `sim` has. */
static bool simulate_lengths(struct simulated *sim, struct simulating *m,
                             const struct stage *s, uint64_t room)
{
    struct simulated row[LENGTH_ORDERS];
    struct simulate_limits most = { .births = SIMULATE_MOST,
                                    .a = m->a,
                                    .lengths = m->lengths };
    unsigned n = 0;
    for (; most.order < LENGTH_ORDERS; most.order++) {
        struct simulated x;
        if (!simulate_on(&x, m, s, most, room))
            return false;
        if (x.done && !x.oom)
            insert(row, n++, &x);
    }
    if (n == 0)
        return true;
    const struct simulated *median = &row[n / 2];
    sim->reserved_least = max_u64(row[0].reserved, sim->reserved);
    sim->reserved_most = max_u64(row[n - 1].reserved, sim->reserved);
    if (median->reserved < sim->reserved)
        return true;
    sim->reserved = median->reserved;
    sim->retries += median->retries;
    for (unsigned i = 0; i < SIM_POOLS; i++)
        sim->pool[i] = median->pool[i];
    return true;
}

static bool simulate_one(struct simulating *m, uint64_t index)
{
    const struct run *run = m->f.run;
    struct stage s;
    struct simulated sim;
    uint64_t layer = 0;
    for (uint64_t r = 0; r < index; r++)
        layer += run->stage_layers[r];
    stage_init(&s, &m->f, index, layer);
    const struct simulate_limits most = { .births = SIMULATE_MOST, .a = m->a };
    const uint64_t room = room_of(m->out, run);
    if (!simulate_on(&sim, m, &s, most, room))
        return false;
    m->births += sim.births;
    if (!sim.done)
        return true;
    if (m->lengths != NULL
        && !simulate_lengths(&sim, m, &s,
                             sim.reserved <= room ? room : UINT64_MAX))
        return false;
    keep_simulated(&m->out->stage[index], &s, &sim);
    return true;
}

/* The fullest stage that has not been simulated. */
static struct stage_result *next_stage(struct memory_result *out)
{
    struct stage_result *next = NULL;
    for (uint64_t r = 0; r < out->n_stages; r++)
        if (out->stage[r].sim.steps == 0
            && (next == NULL || out->stage[r].peak.total > next->peak.total))
            next = &out->stage[r];
    return next;
}

/* A stage that was not simulated has gaps as the fullest one. */
static void follow(struct memory_result *out, const struct stage_result *first)
{
    const struct reserve *r = &first->reserve;
    if (!first->sim.done || r->pools == r->rest)
        return;
    if (first->sim.retries > 0
        || first->sim.oom) /* the device's end, no gaps */
        return;
    const uint64_t permille = (max_u64(first->sim.reserved, r->rest) - r->rest)
                              * 1000 / (r->pools - r->rest);
    for (uint64_t i = 0; i < out->n_stages; i++) {
        struct reserve *x = &out->stage[i].reserve;
        x->permille = permille;
        x->about = reserve_with_gaps(x->rest, x->pools, permille);
    }
}

bool fold_allocator(struct memory_result *out, const struct allocator_input *in)
{
    const struct run *run = in->run;
    struct simulating m = { .out = out, .a = in->a };
    if (!memory_fold_init(&m.f, in->program, run, in->a))
        return false;
    if (run->lengths.kind != LENGTHS_EQUAL)
        m.lengths = &in->lengths;
    const struct stage_result *first = next_stage(out);
    uint64_t before = 0; /* the next stage takes as many as the last at most */
    for (uint64_t i = 0; i < out->n_stages; i++) {
        struct stage_result *s = next_stage(out);
        if (i > 0 && m.births + (m.births - before) > in->births)
            break;
        before = m.births;
        if (!simulate_one(&m, s->index))
            return false;
        s->sim.steps = max_u64(s->sim.steps, 1); /* has been looked at */
    }
    follow(out, first);
    memory_finish(out, run);
    for (uint64_t r = 0; r < out->n_stages; r++)
        out->retries = out->retries || out->stage[r].sim.retries > 0;
    return true;
}
