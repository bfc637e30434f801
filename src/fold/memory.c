/*
 * Looks at every moment of the step that can be the fullest, on every stage,
 * and reports the fullest; adds what lies outside the allocator.
 * [docs/method.md eq. peak]
 */
#include "fold/memory.h"

#include "data/constants.h"
#include "fold/simulate.h"
#include "fold/stage.h"

#include "base/banned.h"

static bool moment_at(struct moment *m, const struct stage *s, enum phase phase,
                      uint32_t position, bool later)
{
    return moment_with(m, s, phase, position, later, NULL, COMP_COUNT);
}

/* Gradients, of which frozen weights have none, fill a bucket. */
static bool gradients_reach(const struct stage *s, uint32_t i, uint64_t elems)
{
    const uint64_t all = s->before[s->n].elems;
    const uint64_t low = all - s->before[i + 2].elems;
    const uint64_t high = all - s->before[i - 1].elems;
    return low <= elems && elems <= high;
}

/* A term that comes, goes or bends where so many parameters lie above. */
static bool bends_at(const struct stage *s, uint32_t i, uint64_t elems)
{
    const uint64_t all = s->before[s->n].all_elems;
    const uint64_t low = all - s->before[i + 2].all_elems;
    const uint64_t high = all - s->before[i - 1].all_elems;
    return low <= elems && elems <= high;
}

static bool zero3_bends_at(const struct stage *s, uint32_t i)
{
    const uint64_t all = s->before[s->n].all_elems;
    const uint64_t ahead = min_u64(zero3_ahead(s, i, false), all);
    return bends_at(s, i, ZERO3_MAX_REUSE_ELEMS / 2) || bends_at(s, i, ahead)
           || bends_at(s, i, all - ahead);
}

static bool engine_bends(const struct run *run)
{
    return run->engine == ENGINE_DEEPSPEED
           || run->engine == ENGINE_MEGATRON_FSDP;
}

/* What an engine gathers, or has of gradients, bends here. */
static bool engine_bends_at(const struct stage *s, uint32_t i)
{
    switch (s->run->engine) {
    case ENGINE_MEGATRON_FSDP: return bends_at(s, i, MEGATRON_FSDP_QUEUE_ELEMS);
    case ENGINE_DEEPSPEED: return s->run->zero == 3 && zero3_bends_at(s, i);
    case ENGINE_DDP:
    case ENGINE_FSDP:
    case ENGINE_FSDP2:
    case ENGINE_MEGATRON:
    case ENGINE_COUNT: break;
    }
    return false;
}

/* What a bucket adds is more where it is reduced; in ZeRO-2 some of that stays,
 * and those below have more, too. */
static bool bucket_bends_at(const struct stage *s, uint32_t i)
{
    if (s->run->engine != ENGINE_DEEPSPEED)
        return false;
    if (s->run->offload_optimizer == OFFLOAD_NVME
        && gradients_reach(s, i, s->run->reduce_bucket))
        return true; /* from there on they are on their way to disk */
    if (s->fill == NULL)
        return false;
    return s->run->zero == 3 ? !bucket_calm(s, i)
                             : s->fill[i - 1].reduced != s->fill[i + 2].reduced;
}

static bool alike(const struct stage *s, uint32_t i, uint32_t k)
{
    return stage_block(s, k) == stage_block(s, i)
           && stage_chunk(s, k) == stage_chunk(s, i)
           && stage_recomputed(s, k) == stage_recomputed(s, i);
}

/* Positions one after another that differ in nothing. */
struct row {
    uint32_t first, end;
};

static struct row row_from(const struct stage *s, uint32_t first)
{
    struct row row = { first, first + 1 };
    while (row.end < s->n && alike(s, first, row.end))
        row.end++;
    return row;
}

/* Between equal neighbours on either side, a checkpoint's layers each, a
 * position changes every term by the same amount, but for the engine's that
 * bend: the fullest moment is at an end of such a row or at a bend. A checkpoint
 * of several layers has bends of all of them. */
static bool interior(const struct stage *s, const struct row *row, uint32_t i)
{
    const uint32_t reach = 2 * (uint32_t)min_u64(s->group, 1u << 20);
    return i > reach && i + reach + 1 < s->n && i >= row->first + reach
           && i + reach < row->end && !stage_offloads(s)
           && (s->group == 1 || !engine_bends(s->run))
           && !engine_bends_at(s, i);
}

static void keep_fuller(struct moment *best, const struct moment *m)
{
    if (m->total > best->total)
        *best = *m;
}

static bool look(struct moment *best, const struct stage *s, enum phase phase,
                 uint32_t position, bool later)
{
    struct moment m;
    if (!moment_at(&m, s, phase, position, later))
        return false;
    keep_fuller(best, &m);
    return true;
}

/* Two chunks have a second backward in one micro-batch. */
static unsigned passes_of(const struct stage *s)
{
    return s->run->grad_accum > 1 || s->chunks > 1 ? 2 : 1;
}

static bool look_at_forward(struct moment *best, const struct stage *s,
                            uint32_t i, bool later)
{
    const bool head = s->head && i == s->n - 1;
    return !stage_happens(s, i, false, later)
           || look(best, s, head ? PHASE_LOSS : PHASE_FORWARD, i, later);
}

static bool look_at_backward(struct moment *best, const struct stage *s,
                             uint32_t i, bool later)
{
    bool ok = true;
    if (!stage_happens(s, i, true, later) || !stage_turns(s, i))
        return true;
    if (stage_recomputed(s, i))
        ok = look(best, s, PHASE_RECOMPUTE, i, later);
    return look(best, s, PHASE_BACKWARD, i, later) && ok;
}

static bool look_at_position(struct moment *best, const struct stage *s,
                             uint32_t i)
{
    bool ok = true;
    for (unsigned later = 0; later < passes_of(s); later++) {
        ok = look_at_forward(best, s, i, later != 0) && ok;
        ok = look_at_backward(best, s, i, later != 0) && ok;
    }
    return ok;
}

/* Interior positions one after another where the bucket bends what else grows
 * evenly: from the first and the last of them follows what the bucket adds to
 * at those between. */
struct bends {
    uint32_t first, last;
    enum phase phase;
    bool later;
};

/* Of a line through two positions that lie n apart, rounded up where it is no
 * line. */
static uint64_t evenly(uint64_t first, uint64_t last, uint32_t i, uint32_t n)
{
    return last >= first ? first + div_up(last - first, n) * i
                         : first - (first - last) / n * i;
}

static bool look_between(struct moment *best, const struct stage *s,
                         const struct bends *b)
{
    const uint32_t n = b->last - b->first;
    struct moment first, last;
    bool ok = moment_at(&first, s, b->phase, b->first, b->later)
              && moment_at(&last, s, b->phase, b->last, b->later);
    if (!ok)
        return false;
    keep_fuller(best, &first);
    keep_fuller(best, &last);
    const uint64_t from =
        first.total - moment_of_bucket(s, b->phase, b->first, b->later);
    const uint64_t to =
        last.total - moment_of_bucket(s, b->phase, b->last, b->later);
    const uint64_t most = moment_of_bucket_most(s, b->first);
    for (uint32_t i = b->first + 1; ok && i < b->last; i++) {
        const uint64_t beside = evenly(from, to, i - b->first, n);
        if (bucket_bends_at(s, i) && beside + most > best->total
            && beside + moment_of_bucket(s, b->phase, i, b->later)
                   > best->total)
            ok = look(best, s, b->phase, i, b->later);
    }
    return ok;
}

/* From a position to before another one, all interior. */
static bool look_at_bends(struct moment *best, const struct stage *s,
                          uint32_t from, uint32_t to)
{
    bool ok = true;
    while (from < to && !bucket_bends_at(s, from))
        from++;
    while (from < to && !bucket_bends_at(s, to - 1))
        to--;
    if (to - from < 3 || s->run->offload_optimizer == OFFLOAD_NVME) {
        for (uint32_t i = from; i < to; i++)
            for (unsigned later = 0;
                 later < passes_of(s) && bucket_bends_at(s, i); later++)
                ok = look_at_backward(best, s, i, later != 0) && ok;
        return ok;
    }
    for (unsigned later = 0; later < passes_of(s); later++) {
        struct bends b = { from, to - 1, PHASE_RECOMPUTE, later != 0 };
        if (!stage_happens(s, from, true, b.later) || !stage_turns(s, from))
            continue;
        if (stage_recomputed(s, from))
            ok = look_between(best, s, &b) && ok;
        b.phase = PHASE_BACKWARD;
        ok = look_between(best, s, &b) && ok;
    }
    return ok;
}

static bool look_at_row(struct moment *best, const struct stage *s,
                        const struct row *row)
{
    bool ok = true;
    for (uint32_t i = row->first; i < row->end;) {
        const uint32_t from = i;
        while (i < row->end && interior(s, row, i))
            i++;
        ok = look_at_bends(best, s, from, i) && ok;
        if (i < row->end)
            ok = look_at_position(best, s, i++) && ok;
    }
    return ok;
}

static bool stage_peak(struct moment *best, const struct stage *s)
{
    bool ok = moment_at(best, s, PHASE_REST, 0, false);
    for (struct row row = { 0, 0 }; row.end < s->n;) {
        row = row_from(s, row.end);
        ok = look_at_row(best, s, &row) && ok;
    }
    for (unsigned later = 0; later < passes_of(s) && engine_accumulates(s->run);
         later++)
        if (stage_happens(s, 0, true, later != 0))
            ok = look(best, s, PHASE_ACCUMULATE, 0, later != 0) && ok;
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

/* What follows from the fullest moment. */
static void describe_peak(struct stage_result *out, const struct stage *s)
{
    for (unsigned c = 0; c < COMP_COUNT; c++)
        out->component[c] = 0;
    for (unsigned t = 0; t < TERM_COUNT; t++)
        out->component[term_info((enum term)t)->component] +=
            out->peak.bytes[t];
    out->peak_block = "";
    if (!in_a_block(out->peak.phase) || s->n == 0)
        return;
    const uint32_t i = out->peak.position;
    out->peak_block = s->p->block[stage_block(s, i)].name;
    if (stage_is_layer(s, i))
        out->peak_layer = stage_model_layer(s, i);
}

/* Without the allocator at hand: as much above the peak as in the median of
 * simulated steps, in whole segments. */
static uint64_t reserved_about(uint64_t peak)
{
    const uint64_t over = peak / 1000 * RESERVED_OVER_ALLOCATED_PERMILLE;
    return div_up(peak + over, MIB(2)) * MIB(2);
}

static bool stage_result_of(struct stage_result *out, struct stage *s)
{
    *out =
        (struct stage_result){ .index = s->index,
                               .first_layer = s->first_layer,
                               .layers = s->layers,
                               .low_layers = s->low_layers,
                               .high_layer = s->high_layer,
                               .has_embedding = s->embed,
                               .has_head = s->head,
                               .parameters = s->sum.elems + s->sum.frozen_elems,
                               .in_flight = s->in_flight,
                               .waiting = s->stashes,
                               .peak_block = "" };
    /* what every moment has; PHASE_COUNT adds nothing of its own */
    bool ok = moment_at(&s->rest, s, PHASE_COUNT, 0, false);
    s->has_rest = true;
    ok = moment_at(&out->rest, s, PHASE_REST, 0, false) && ok;
    out->model_states = model_states(s, &out->rest);
    ok = stage_peak(&out->peak, s) && ok;
    out->reserved = reserved_about(out->peak.total);
    describe_peak(out, s);
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
    const bool ampere = run->gpu.arch == ARCH_AMPERE;
    struct outside_row row = { "context",
                               "CUDA context and kernels",
                               run->cuda_context_bytes,
                               1,
                               "stas00/ml-engineering: A100, torch 2.1, lazy "
                               "loading",
                               !ampere };
    if (run->given[KEY_CUDA_CONTEXT]) {
        row.source = "given (cuda_context)";
        row.unverified = false;
    } else if (run_loads_all_kernels(run)) {
        row.source = "bigscience tr11-176B-ml: A100, V100, before lazy loading";
        row.unverified = !ampere && run->gpu.arch != ARCH_VOLTA;
    }
    return row;
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

static void put_outside(struct memory_result *m, const struct run *run,
                        const struct program *p)
{
    outside_add(m, context_of(run));
    outside_add(m, communicators_of(run));
    if (run->tp_comm_overlap)
        outside_add(m, user_buffers_of(run, p));
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

/* The largest figure of any stage. */
static void finish(struct memory_result *out, const struct run *run)
{
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
    out->device_total = out->reserved + out->outside;
    out->capacity = run->capacity_bytes;
    out->headroom = (int64_t)out->capacity - (int64_t)out->device_total;
    out->fits = out->headroom >= 0;
}

/* No sum below can leave 62 bits when every tensor of every layer, several
 * times over (gradients, copies, states) and for every micro-batch that may be
 * in flight, stays below them: checked once, so that the sums need not be. */
static bool fits_62_bits(const struct program *p, const struct run *run)
{
    enum { COPIES = 16 };
    struct count sum = count_of(0);
    uint64_t times[BLOCK_MAX] = { 0 };
    for (uint64_t l = 0; l < p->layers; l++)
        times[p->layer_block[l]]++;
    times[p->embed] = times[p->head] = 1;
    for (uint32_t b = 0; b < p->n_blocks; b++)
        for (uint32_t i = 0; i < p->block[b].tensor_count; i++)
            sum = count_add(
                sum,
                PROD(p->tensor[p->block[b].tensor_first + i].bytes, times[b]));
    /* interleaved: at most 2 p + (v - 1) p + 1 chunks; DualPipe: p + 1 and as
       many that wait for weights' gradients; the others: p */
    const uint64_t flying =
        run->schedule == SCHED_GPIPE ? run->grad_accum : 3 * run->pp * run->vpp;
    sum = count_mul(sum, PROD(COPIES, flying));
    return !sum.over && sum.v < UINT64_C(1) << 62;
}

bool fold_memory(struct memory_result *out, const struct program *p,
                 const struct run *run, struct arena *a, bool *over)
{
    *out = (struct memory_result){ .n_stages = run->pp };
    *over = !fits_62_bits(p, run);
    if (*over)
        return false;
    struct memory_fold f;
    out->stage = ARENA_NEW(a, struct stage_result, (size_t)run->pp);
    if (out->stage == NULL || !memory_fold_init(&f, p, run, a))
        return false;
    uint64_t layer = 0;
    for (uint64_t r = 0; r < run->pp; r++) {
        struct stage s;
        stage_init(&s, &f, r, layer);
        if (!stage_result_of(&out->stage[r], &s))
            *over = true;
        keep_offload(out, &s);
        layer += run->stage_layers[r];
    }
    if (*over)
        return false;
    put_outside(out, run, p);
    finish(out, run);
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
    moment_at(&m, s, sim->phase, sim->position, sim->later);
    if (m.total > sim->allocated || out->rest.total > sim->steady)
        return; /* never: tests/property */
    round_up(&m, sim->allocated);
    round_up(&out->rest, sim->steady);
    out->peak = m;
    out->sim = *sim;
    out->reserved = sim->reserved;
    describe_peak(out, s);
}

/* Where more would be reserved than there is, the allocator gives back what it
 * caches and tries again. */
static bool simulate_within(struct simulated *sim, struct simulating *m,
                            const struct stage *s, uint64_t room)
{
    const struct simulate_limits most = { .device_bytes = room,
                                          .births = SIMULATE_MOST,
                                          .a = m->a };
    struct simulated tight;
    if (!simulate_stage(&tight, &m->f, s, &most))
        return false;
    if (tight.done && !tight.oom)
        *sim = tight;
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
    struct simulate_limits most = { .device_bytes = room,
                                    .births = SIMULATE_MOST,
                                    .a = m->a,
                                    .lengths = m->lengths };
    unsigned n = 0;
    for (; most.order < LENGTH_ORDERS; most.order++) {
        struct simulated x;
        if (!simulate_stage(&x, &m->f, s, &most))
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
    if (!simulate_stage(&sim, &m->f, &s, &most))
        return false;
    m->births += sim.births;
    if (!sim.done)
        return true;
    const uint64_t room = run->capacity_bytes > m->out->outside
                              ? run->capacity_bytes - m->out->outside
                              : 0;
    if (sim.reserved > room && sim.allocated <= room
        && !simulate_within(&sim, m, &s, room))
        return false;
    if (m->lengths != NULL
        && !simulate_lengths(&sim, m, &s, sim.reserved <= room ? room : 0))
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

bool fold_allocator(struct memory_result *out, const struct allocator_input *in)
{
    const struct run *run = in->run;
    struct simulating m = { .out = out, .a = in->a };
    if (!memory_fold_init(&m.f, in->program, run, in->a))
        return false;
    if (run->lengths.kind != LENGTHS_EQUAL)
        m.lengths = &in->lengths;
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
    finish(out, run);
    for (uint64_t r = 0; r < out->n_stages; r++)
        out->retries = out->retries || out->stage[r].sim.retries > 0;
    return true;
}
