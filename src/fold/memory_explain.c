/*
 * Unfolds the memory fold: the same moments and walks, with their terms kept.
 */
#include "fold/memory.h"

#include "base/str.h"
#include "fold/stage.h"

#include "base/banned.h"

struct kept_list {
    struct explanation *x;
    const char *section;
    uint64_t granule; /* bytes of the allocator's blocks */
};

/* Tensors of that shape that lie in one: experts' weights. */
static uint64_t tensors_in(const struct tensor *t)
{
    uint64_t one = 1;
    for (unsigned i = 0; i < t->rank; i++)
        one *= t->dim[i].n;
    return one != 0 && t->elems % one == 0 ? t->elems / one : 1;
}

/* Its sizes, or their symbols. */
static void append_shape(char *buf, size_t size, const struct tensor *t,
                         bool numbers)
{
    const uint64_t tensors = tensors_in(t);
    if (tensors > 1 && numbers)
        str_append(buf, size, "%llu * ", (unsigned long long)tensors);
    else if (tensors > 1)
        str_append(buf, size, "tensors * ");
    for (unsigned i = 0; i < t->rank; i++) {
        const char *link = i == 0 ? "" : " * ";
        if (numbers)
            str_append(buf, size, "%s%llu", link,
                       (unsigned long long)t->dim[i].n);
        else
            str_append(buf, size, "%s%s", link, t->dim[i].sym);
    }
    const uint64_t size_of = dtype_size(t->dtype);
    if (!numbers)
        str_append(buf, size, " * %s", dtype_name(t->dtype));
    else if (size_of != 0)
        str_append(buf, size, " * %llu", (unsigned long long)size_of);
    else /* of 4 bits, or 12 */
        str_append(buf, size, " * %llu / 8",
                   (unsigned long long)dtype_bytes_of(t->dtype, 8));
}

/* Bytes of a storage: of no more than it asks for, in whole blocks. */
static const char *shape_text(const struct kept_list *l, const struct tensor *t,
                              uint64_t bytes, bool numbers)
{
    char buf[160] = "";
    const bool whole = bytes == t->bytes;
    if (numbers && !whole)
        str_append(buf, sizeof buf, "ceil(");
    append_shape(buf, sizeof buf, t, numbers);
    if (!whole)
        str_append(buf, sizeof buf,
                   numbers ? " / %llu) * %llu" : ", in blocks of %llu B",
                   (unsigned long long)l->granule,
                   (unsigned long long)l->granule);
    return arena_copy(l->x->arena, buf, str_of(buf).n);
}

static void explain_kept(void *ctx, const struct tensor *t, const struct op *op,
                         uint64_t bytes)
{
    struct kept_list *l = ctx;
    struct arena *a = l->x->arena;
    explain_add(l->x, (struct explain_entry){
                          .section = l->section,
                          .name = t->name,
                          .unit = "B",
                          .value = (double)bytes,
                          .bytes = bytes,
                          .formula = shape_text(l, t, bytes, false),
                          .numbers = shape_text(l, t, bytes, true),
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
    const uint64_t regions = run_regions(run);
    for (uint32_t b = 0; b < f->p->n_blocks; b++) {
        const struct block *block = &f->p->block[b];
        struct kept_list l = {
            x,
            arena_printf(x->arena, "kept for backward by one %s", block->name),
            f->scratch.granule
        };
        explain_add(
            x, (struct explain_entry){ .section = l.section,
                                       .name = "sum",
                                       .unit = "B",
                                       .value = (double)f->walk[b].kept,
                                       .bytes = f->walk[b].kept,
                                       .formula = "sum over the storages below",
                                       .numbers = "",
                                       .equation = "saved",
                                       .source = "",
                                       .depth = 0 });
        walk_kept(f->p, block, regions, &f->scratch, explain_kept, &l);
    }
}

static void explain_sum(struct explanation *x, const char *section,
                        const char *name, uint64_t bytes)
{
    explain_add(x,
                (struct explain_entry){ .section = section,
                                        .name = name,
                                        .unit = "B",
                                        .value = (double)bytes,
                                        .bytes = bytes,
                                        .formula = "sum over the terms below",
                                        .numbers = "",
                                        .equation = "peak",
                                        .source = "",
                                        .depth = 0 });
}

/* What the simulated allocator hands out beyond what was asked for. */
static void explain_rounding(struct explanation *x, const struct moment *m)
{
    const uint64_t bytes = m->bytes[TERM_ROUNDING];
    if (bytes == 0)
        return;
    explain_add(
        x, (struct explain_entry){
               .section = "",
               .name = term_info(TERM_ROUNDING)->label,
               .unit = "B",
               .value = (double)bytes,
               .bytes = bytes,
               .formula = "handed out - alive",
               .numbers = arena_printf(x->arena, "%llu - %llu",
                                       (unsigned long long)m->total,
                                       (unsigned long long)(m->total - bytes)),
               .equation = "reserved",
               .source = "blocks of 512 B; up to 1 MiB is not split off "
                         "(CUDACachingAllocator.cpp, should_split)",
               .depth = 1 });
}

/* The moment once for each component, so that its terms stand together. */
static void explain_moment(struct explanation *x, const struct stage *s,
                           const struct moment *m, const char *what)
{
    struct arena *a = x->arena;
    explain_sum(x, what, phase_name(m->phase), m->total);
    for (unsigned c = 0; c < COMP_COUNT; c++) {
        uint64_t sum = 0;
        for (unsigned t = 0; t < TERM_COUNT; t++)
            if (term_info((enum term)t)->component == c)
                sum += m->bytes[t];
        const char *name = component_label((enum component)c);
        const char *section = arena_printf(a, "%s: %s", what, name);
        explain_sum(x, section, name, sum);
        const size_t first = x->n;
        struct moment again;
        const struct point of = { m->phase, m->position, m->later, m->beside };
        moment_of(&again, s, &of, x, (enum component)c);
        if (c == COMP_TEMPORARY)
            explain_rounding(x, m);
        for (size_t i = first; i < x->n; i++)
            x->entry[i].section = section;
    }
}

static void explain_part(struct explanation *x, const char *section,
                         const char *name, uint64_t bytes)
{
    if (bytes == 0)
        return;
    explain_add(x, (struct explain_entry){ .section = section,
                                           .name = name,
                                           .unit = "B",
                                           .value = (double)bytes,
                                           .bytes = bytes,
                                           .formula = "simulated",
                                           .numbers = "",
                                           .equation = "reserved",
                                           .source = "",
                                           .depth = 2 });
}

/* Where the difference lies: in each pool what it never hands out at one time,
 * and what pools hold that are not fullest at the peak. */
static void explain_pools(struct explanation *x, const char *section,
                          const struct simulated *sim)
{
    uint64_t peaks = 0, reserved = 0;
    for (unsigned i = 0; i < SIM_POOLS; i++) {
        peaks += sim->pool[i].allocated;
        reserved += sim->pool[i].reserved;
    }
    if (reserved != sim->reserved) /* some was given back */
        return;
    for (unsigned i = 0; i < SIM_POOLS; i++) {
        const struct sim_pool_result *p = &sim->pool[i];
        explain_part(x, section,
                     arena_printf(x->arena, "%s: free, in %llu segment%s",
                                  sim_pool_label((enum sim_pool)i),
                                  (unsigned long long)p->segments,
                                  p->segments == 1 ? "" : "s"),
                     p->reserved - p->allocated);
    }
    explain_part(x, section, "pools that are not fullest at the peak",
                 peaks - sim->allocated);
}

static const char *reserved_formula(struct explanation *x,
                                    const struct reserve *r, bool cached)
{
    return cached ? arena_printf(x->arena,
                                 "rest + (pools at their fullest - rest) * "
                                 "%.3f, up to a multiple of 2 MiB",
                                 (double)r->permille / 1000)
                  : "what there is: cached segments are given back";
}

/* Told from moments: of a device that has no more, all that it has. */
static struct explain_entry reserved_told(struct explanation *x,
                                          const struct stage_result *s)
{
    const struct reserve *r = &s->reserve;
    const bool cached = s->reserved == r->about;
    return (struct explain_entry){
        .formula = reserved_formula(x, r, cached),
        .numbers =
            cached ? arena_printf(
                x->arena, "%llu + (%llu - %llu) * %.3f",
                (unsigned long long)r->rest, (unsigned long long)r->pools,
                (unsigned long long)r->rest, (double)r->permille / 1000)
                   : "",
        .source = "gaps: median of simulated setups"
    };
}

/* Once graphs run, where that is what most is reserved for. */
static bool explain_graphs(struct explanation *x, const char *section,
                           const struct memory_result *m)
{
    const struct stage_result *s = &m->stage[m->reserved_stage];
    const uint64_t pool = s->graph_pool;
    const bool runs = m->reserved == s->graph_reserved
                      || (s->sim.done && m->reserved == s->sim.reserved + pool);
    if (pool == 0 || !runs)
        return false;
    explain_add(
        x, (struct explain_entry){
               .section = section,
               .name = "reserved by the allocator",
               .unit = "B",
               .value = (double)m->reserved,
               .bytes = m->reserved,
               .formula = "beside CUDA graphs + their pool",
               .numbers = arena_printf(x->arena, "%llu + %llu",
                                       (unsigned long long)m->reserved - pool,
                                       (unsigned long long)pool),
               .equation = "graphs",
               .source = "read: transformer_engine/pytorch/graph.py",
               .depth = 1 });
    return true;
}

static void explain_reserved(struct explanation *x, const char *section,
                             const struct memory_result *m)
{
    const struct stage_result *s = &m->stage[m->reserved_stage];
    if (explain_graphs(x, section, m))
        return;
    const uint64_t more = m->reserved - s->peak.total;
    struct explain_entry e = { .formula = "peak + fragmentation",
                               .numbers = arena_printf(
                                   x->arena, "%llu + %llu",
                                   (unsigned long long)s->peak.total,
                                   (unsigned long long)more),
                               .source = "the caching allocator, simulated" };
    if (!s->sim.done)
        e = reserved_told(x, s);
    e.section = section;
    e.name = "reserved by the allocator";
    e.unit = "B";
    e.value = (double)m->reserved;
    e.bytes = m->reserved;
    e.equation = "reserved";
    e.depth = 1;
    explain_add(x, e);
    if (!s->sim.done)
        return;
    explain_part(x, section, "fragmentation", more);
    explain_pools(x, section, &s->sim);
}

static void explain_paged(struct explanation *x, const char *section,
                          const struct memory_result *m)
{
    if (m->paged == 0)
        return;
    const uint64_t reserved = m->stage[m->device_stage].reserved;
    explain_add(x, (struct explain_entry){
                       .section = section,
                       .name = "paged moments",
                       .unit = "B",
                       .value = (double)m->paged_here,
                       .bytes = m->paged_here,
                       .formula = "min(moments, capacity - reserved - outside)",
                       .numbers = arena_printf(x->arena,
                                               "min(%llu, %llu - %llu - %llu)",
                                               (unsigned long long)m->paged,
                                               (unsigned long long)m->capacity,
                                               (unsigned long long)reserved,
                                               (unsigned long long)m->outside),
                       .equation = "optimizers",
                       .source = "bitsandbytes functional.py, get_paged",
                       .depth = 1 });
}

/* With paged moments another stage than the one that reserves most may have
 * more on its device. */
static struct explain_entry device_sum(struct explanation *x,
                                       const struct memory_result *m)
{
    const uint64_t stage = m->device_stage;
    const uint64_t reserved = m->stage[stage].reserved;
    struct explain_entry e = { .formula = "reserved + outside", .source = "" };
    if (m->paged == 0) {
        e.numbers =
            arena_printf(x->arena, "%llu + %llu", (unsigned long long)reserved,
                         (unsigned long long)m->outside);
        return e;
    }
    e.numbers = arena_printf(
        x->arena, "%llu + %llu + %llu", (unsigned long long)reserved,
        (unsigned long long)m->outside, (unsigned long long)m->paged_here);
    e.formula = "reserved + outside + paged";
    if (stage != m->reserved_stage)
        e.formula =
            arena_printf(x->arena, "reserved + outside + paged, of stage %llu",
                         (unsigned long long)stage);
    return e;
}

static void explain_outside(struct explanation *x,
                            const struct memory_result *m)
{
    const char *section = "on the device";
    for (size_t i = 0; i < m->n_outside; i++) {
        const struct outside_row *r = &m->outside_row[i];
        explain_add(x, (struct explain_entry){ .section = section,
                                               .name = r->label,
                                               .unit = "B",
                                               .value = (double)r->bytes,
                                               .bytes = r->bytes,
                                               .formula = "measured constant",
                                               .numbers = "",
                                               .equation = "constants",
                                               .source = r->source,
                                               .depth = 1 });
    }
    explain_paged(x, section, m);
    explain_reserved(x, section, m);
    struct explain_entry e = device_sum(x, m);
    e.section = section;
    e.name = "device total";
    e.unit = "B";
    e.value = (double)m->device_total;
    e.bytes = m->device_total;
    e.equation = "peak";
    explain_add(x, e);
}

/* Bytes in host memory and on disk, and what moves there and back. */
static void explain_offload(struct explanation *x,
                            const struct offload_result *o)
{
    for (unsigned k = 0; k < OFFLOAD_KINDS; k++) {
        if (o->sum[k] == 0)
            continue;
        const char *section =
            arena_printf(x->arena, "offload: %s, one GPU",
                         offload_kind_label((enum offload_kind)k));
        explain_sum(x, section, "sum", o->sum[k]);
        x->entry[x->n - 1].equation = "offload";
        for (size_t i = 0; i < o->n; i++) {
            const struct offload_row *r = &o->row[i];
            if (r->kind != (enum offload_kind)k)
                continue;
            explain_add(
                x, (struct explain_entry){ .section = section,
                                           .name = r->label,
                                           .unit = "B",
                                           .value = (double)r->bytes,
                                           .bytes = r->bytes,
                                           .formula = r->formula,
                                           .numbers = explain_numbers(
                                               x->arena, r->pattern, r->factor),
                                           .equation = "offload",
                                           .source = "",
                                           .depth = 1 });
        }
    }
}

static void explain_node(struct explanation *x, const char *name,
                         uint64_t bytes, const struct offload_result *o)
{
    if (bytes == 0)
        return;
    explain_add(x, (struct explain_entry){
                       .section = "offload: a node",
                       .name = name,
                       .unit = "B",
                       .value = (double)bytes,
                       .bytes = bytes,
                       .formula = "of one GPU * GPUs of a node",
                       .numbers = arena_printf(
                           x->arena, "%llu * %llu",
                           (unsigned long long)(bytes / o->node_gpus),
                           (unsigned long long)o->node_gpus),
                       .equation = "offload",
                       .source = "",
                       .depth = 1 });
}

/* The worst stage, in the steps that a run looks at. */
static bool worst_stage(struct stage *s, struct memory_fold *f,
                        const struct memory_result *memory,
                        const struct program *p, const struct run *run,
                        struct arena *a)
{
    uint64_t layer = 0;
    if (!memory_fold_init(f, p, run, a))
        return false;
    for (uint64_t r = 0; r < memory->worst; r++)
        layer += run->stage_layers[r];
    stage_init(s, f, memory->worst, layer);
    return true;
}

/* Between steps graphs are there, whichever steps the peak is of. */
static bool explain_rest(struct explanation *x, const struct stage *s,
                         const struct memory_result *memory)
{
    const struct moment *rest = &memory->stage[memory->worst].rest;
    if (!s->run->cuda_graph) {
        explain_moment(x, s, rest, "between steps");
        return true;
    }
    struct run *runs = ARENA_NEW(x->arena, struct run, 1);
    struct memory_fold f;
    struct stage after;
    if (runs == NULL)
        return false;
    *runs = *s->run;
    runs->graph_step = STEP_REPLAY;
    if (!worst_stage(&after, &f, memory, s->p, runs, x->arena))
        return false;
    explain_moment(x, &after, rest, "between steps");
    return true;
}

bool explain_memory(struct explanation *x, const struct memory_result *memory,
                    const struct program *p, const struct run *run)
{
    struct memory_fold f;
    struct stage s;
    if (!worst_stage(&s, &f, memory, p, run, x->arena))
        return false;
    const struct stage_result *w = &memory->stage[memory->worst];
    explain_moment(x, &s, &w->peak, "peak");
    if (!explain_rest(x, &s, memory))
        return false;
    explain_blocks(x, &f);
    explain_outside(x, memory);
    explain_offload(x, &memory->offload);
    explain_node(x, "host memory", memory->offload.host_node, &memory->offload);
    explain_node(x, "of that, pinned", memory->offload.pinned_node,
                 &memory->offload);
    explain_node(x, "disk", memory->offload.disk_node, &memory->offload);
    return !x->failed && !x->arena->failed;
}
