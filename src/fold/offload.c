/*
 * What lies beside the GPU: bytes in the host's memory and on its disks that
 * one rank holds there, and what it moves over in a step. Owns which buffers an
 * engine keeps on the host, which are pinned, and how pinned ones are rounded;
 * what is left on the GPU is engine.c's. Read: DeepSpeed 0.19.8 runtime/zero,
 * runtime/swap_tensor; PyTorch 2.13 distributed/fsdp; Megatron-LM
 * core/optimizer/cpu_offloading. [docs/method.md eq. offload]
 */
#include "fold/engine_private.h"

#include "data/constants.h"

#include "base/banned.h"

/* ---- rows ---- */

enum { FACTORS = 3 };

struct product {
    const char *formula, *pattern;
    uint64_t factor[FACTORS]; /* 0: there are no more */
    bool exact;               /* pinned, and not rounded up */
};

static void add(struct offload_result *o, enum offload_kind kind,
                const char *label, struct product x)
{
    struct count c = count_of(1);
    for (size_t i = 0; i < FACTORS && (i == 0 || x.factor[i] != 0); i++)
        c = count_mul(c, count_of(x.factor[i]));
    uint64_t bytes = c.over ? UINT64_MAX : c.v;
    if (kind == OFFLOAD_ON_PINNED && !x.exact
        && bytes != round_to_power(bytes)) {
        bytes = round_to_power(bytes);
        x.formula = "elements * bytes, up to a power of two";
        x.pattern = "# * #, up to a power of two";
    }
    if (bytes == 0 || o->n == OFFLOAD_ROW_MAX)
        return;
    struct offload_row *row = &o->row[o->n++];
    *row = (struct offload_row){ .label = label,
                                 .kind = kind,
                                 .bytes = bytes,
                                 .formula = x.formula,
                                 .pattern = x.pattern };
    for (size_t i = 0; i < FACTORS; i++)
        row->factor[i] = (double)x.factor[i];
    o->sum[kind] += bytes;
}

/* Elements of so many bytes. */
static struct product elements(uint64_t n, uint64_t size)
{
    return (
        struct product){ "elements * bytes", "# * #", { n, size, 0 }, false };
}

static struct product sum(const char *formula, uint64_t bytes)
{
    return (struct product){ formula, "#", { bytes, 0, 0 }, true };
}

/* A pageable buffer where the run pins nothing. */
static enum offload_kind pinned(const struct run *run)
{
    return run->pin_memory ? OFFLOAD_ON_PINNED : OFFLOAD_ON_HOST;
}

static void moves(struct offload_result *o, enum offload_kind way,
                  const char *label, struct product x)
{
    add(o, way, label, x);
}

/* ---- what is summed over tensors ---- */

static const char TENSOR_BY_TENSOR[] =
    "sum over tensors, each rounded to a power of two";
static const char BY_SUB_GROUP[] =
    "sum over sub-groups, each rounded to a power of two";

struct tensor_sums {
    uint64_t group;           /* elements of the sub-group at hand */
    uint64_t groups, stay;    /* before it; the first of all are on the GPU */
    uint64_t gone;            /* elements of the sub-groups before */
    uint64_t by_group;        /* as stepped, pinned sub-group by sub-group */
    uint64_t fp32_by_tensor;  /* the same, tensor by tensor */
    uint64_t weights;         /* trained ones, pinned tensor by tensor */
    uint64_t frozen;          /* frozen ones */
    uint64_t whole;           /* ... trained, not cut into shards */
    uint64_t frozen_bytes;    /* not rounded */
    uint64_t in_memory;       /* elements of sub-groups within max_in_cpu */
    uint64_t steps_in_memory; /* of sub-groups too small for a disk */
};

/* Bytes of a weight that DeepSpeed steps, and of its gradient then: of 16 bits
 * with bf16_master_weights_and_grads (base_optimizer.py,
 * _configure_master_weights). */
static uint64_t stepped(const struct run *run)
{
    return run->engine == ENGINE_DEEPSPEED && run->prec.master != DT_NONE
               ? dtype_size(run->prec.master)
               : FP32;
}

static bool is_here(const struct stage *s, const struct tensor *t)
{
    return t->role == ROLE_PARAM && !t->statistic && !t->again
           && !(t->tied && s->tied_here != 0);
}

/* A sub-group is swapped as one; a tensor within 1 MiB is not (swap_tensor/
 * utils.py, MIN_AIO_BYTES). */
static void end_group(struct tensor_sums *t, const struct run *run)
{
    const uint64_t size = t->group * stepped(run);
    if (t->groups++ >= t->stay)
        t->by_group += round_to_power(size);
    if (t->gone + t->group <= run->max_in_cpu)
        t->in_memory += t->group;
    if (size < SWAP_MIN_BYTES)
        t->steps_in_memory += t->group;
    t->gone += t->group;
    t->group = 0;
}

static void add_tensor(struct tensor_sums *x, const struct run *run,
                       const struct tensor *t)
{
    const uint64_t n = t->group == PG_EXPERT ? run->expert_shard : run->shard;
    const uint64_t share = run->engine == ENGINE_FSDP2
                               ? states_own_elems(run, t)
                               : div_up(t->elems, n);
    const uint64_t bytes = t->trainable ? share * dtype_size(run->prec.param)
                                        : dtype_bytes_of(t->dtype, share);
    if (!t->trainable) {
        x->frozen += round_to_power(bytes);
        x->frozen_bytes += bytes;
        return;
    }
    x->weights += round_to_power(bytes);
    x->fp32_by_tensor += round_to_power(share * FP32);
    x->whole += round_to_power(t->elems * dtype_size(run->prec.param));
    x->group += share;
    if (x->group >= run->sub_group_size)
        end_group(x, run);
}

static struct tensor_sums sums_of(const struct stage *s)
{
    struct tensor_sums x = { .stay = s->stay_groups };
    for (uint32_t i = 0; i < s->n; i++) {
        const struct block *b = &s->p->block[stage_block(s, i)];
        const struct tensor *t;
        for (tensor_id id = b->weights; id != TENSOR_NONE; id = t->next) {
            t = &s->p->tensor[id];
            if (is_here(s, t))
                add_tensor(&x, s->run, t);
        }
    }
    if (x.group != 0)
        end_group(&x, s->run);
    return x;
}

/* ---- DeepSpeed ---- */

static uint64_t aligned(uint64_t elems, uint64_t size)
{
    const uint64_t align = SWAP_ALIGN_BYTES / size;
    return div_up(elems, align) * align;
}

static uint64_t moments(const struct stage *s)
{
    if (run_sharding(s->run) != SHARDING_FLAT)
        return s->sum.own_moment_bytes;
    const struct block_states *b = &s->sum;
    return div_up(b->dense_moment_bytes, s->run->shard)
           + div_up(b->moment_bytes - b->dense_moment_bytes,
                    s->run->expert_shard);
}

/* ... of what moves. What stays is whole elements, of a flat partition up to an
 * element a group more than bytes come to; two fp32 moments of each
 * (resolve_check_engine.c, check_fp32_states). */
static uint64_t moments_away(const struct stage *s)
{
    const uint64_t all = moments(s), stay = s->stays * 2 * FP32;
    return all > stay ? all - stay : 0;
}

static const char MASTER[] = "master weights", MOMENTS[] = "optimizer moments",
                  GRADS[] = "gradients for the step",
                  DOWN[] = "gradients, down", UP[] = "weights, up",
                  PARTITION[] = "gradient partition";

/* Stages 1 and 2 (stage_1_and_2.py): master copy, a 16-bit buffer of its way
 * back, gradients, all pinned; in stage 2 between micro-batches whole tensors in
 * 16 bits (accumulated_grads_in_cpu). */
static void zero_flat(struct offload_result *o, const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t own = engine_share(s), w = dtype_size(run->prec.param);
    const uint64_t g = dtype_size(run->prec.grad), m = run->grad_accum;
    const uint64_t size = stepped(run);
    const enum offload_kind kind = pinned(run);
    add(o, kind, MASTER, elements(own, size));
    add(o, kind, "weights on their way back", elements(own, w));
    add(o, kind, GRADS, elements(own, size));
    add(o, OFFLOAD_ON_HOST, MOMENTS, sum("bytes / N", moments(s)));
    add(o, kind, "buffer of one gradient", elements(s->sum.largest_grad, w));
    if (m > 1 && run->zero == 2) { /* stage 1 reduces the last one's */
        add(o, OFFLOAD_ON_HOST, "gradients of earlier micro-batches",
            elements(s->partition, g));
        moves(o, OFFLOAD_TO_HOST, "gradients of earlier micro-batches",
              (struct product){ "elements * bytes * micro-batches",
                                "# * # * #",
                                { s->partition, g, m },
                                false });
        moves(o, OFFLOAD_FROM_HOST, "gradients of earlier micro-batches",
              (struct product){ "elements * bytes * (micro-batches - 1)",
                                "# * # * #",
                                { s->partition, g, m - 1 },
                                false });
    }
    moves(o, OFFLOAD_TO_HOST, DOWN, elements(own, size));
    moves(o, OFFLOAD_FROM_HOST, UP, elements(own, w));
}

/* Stage 3, gradients of a micro-batch: down into the partition, up again for
 * the norm, and after the last one down in fp32 (stage3.py, partition_grads). */
static void zero3_gradients(struct offload_result *o, const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t own = s->sum.own_elems, g = dtype_size(run->prec.grad);
    const struct product each = { "elements * bytes * micro-batches",
                                  "# * # * #",
                                  { own, g, run->grad_accum },
                                  false };
    add(o, pinned(run), PARTITION, elements(own, g));
    moves(o, OFFLOAD_TO_HOST, PARTITION, each);
    moves(o, OFFLOAD_FROM_HOST, PARTITION, each);
    moves(o, OFFLOAD_TO_HOST, DOWN, elements(own - s->stays, stepped(run)));
    if (run->offload_params == OFFLOAD_NONE)
        moves(o, OFFLOAD_FROM_HOST, UP,
              elements(own - s->stays, dtype_size(run->prec.param)));
}

static struct disk_bytes disk_of(const struct stage *s,
                                 const struct tensor_sums *x)
{
    const struct run *run = s->run;
    const uint64_t own = s->sum.own_elems;
    struct disk_bytes d = { .groups = x->groups };
    if (run->offload_optimizer == OFFLOAD_NVME && own > 0) {
        d.swapped = own - x->steps_in_memory;
        d.gradients = d.swapped * stepped(run);
        d.states = d.gradients + moments(s) / own * d.swapped;
    }
    if (run->offload_params == OFFLOAD_NVME) {
        d.weights = own - x->in_memory;
        d.stepped = d.weights * dtype_size(run->prec.param);
        d.each_pass = d.stepped + x->frozen_bytes;
    }
    return d;
}

void offload_disk(struct disk_bytes *d, const struct stage *s)
{
    const struct tensor_sums x = sums_of(s);
    *d = disk_of(s, &x);
}

/* Buffers of one sub-group each, as many as are set; states and gradients in
 * files (swap_tensor/optimizer_utils.py). */
static void zero3_swapped(struct offload_result *o, const struct stage *s,
                          const struct tensor_sums *x)
{
    const struct run *run = s->run;
    const struct disk_bytes d = disk_of(s, x);
    const uint64_t size = stepped(run);
    add(o, OFFLOAD_ON_PINNED, "swap buffers of the optimizer",
        (struct product){
            "buffers * elements * bytes",
            "# * # * #",
            { run->optimizer_buffers, aligned(s->sub_group, size), size },
            true });
    add(o, OFFLOAD_ON_HOST, "states of sub-groups within 1 MiB",
        sum("bytes", moments(s) + s->sum.own_elems * size - d.states));
    add(o, OFFLOAD_ON_DISK, "master weights and optimizer moments",
        sum("bytes", d.states));
    add(o, OFFLOAD_ON_DISK, GRADS, elements(d.swapped, size));
    moves(o, OFFLOAD_TO_DISK, GRADS, elements(d.swapped, size));
    moves(o, OFFLOAD_TO_DISK, "states, stepped", sum("bytes", d.states));
    moves(o, OFFLOAD_FROM_DISK, GRADS, elements(d.swapped, size));
    moves(o, OFFLOAD_FROM_DISK, "states, to be stepped",
          sum("bytes", d.states));
}

static void zero3_optimizer(struct offload_result *o, const struct stage *s,
                            const struct tensor_sums *x)
{
    const struct run *run = s->run;
    zero3_gradients(o, s);
    if (run->offload_optimizer == OFFLOAD_NVME) {
        zero3_swapped(o, s, x);
        return;
    }
    const uint64_t away = s->sum.own_elems - s->stays;
    add(o, OFFLOAD_ON_HOST, MASTER, elements(away, stepped(run)));
    add(o, OFFLOAD_ON_HOST, MOMENTS, sum("bytes", moments_away(s)));
    if (run->pin_memory)
        add(o, OFFLOAD_ON_PINNED, GRADS, sum(BY_SUB_GROUP, x->by_group));
    else
        add(o, OFFLOAD_ON_HOST, GRADS, elements(away, stepped(run)));
}

/* Of the weights' shards, sub-groups within max_in_cpu stay in memory; their
 * files were written all the same (partition_parameters.py,
 * _partition_param; stage3.py, _create_param_groups_fp16_flat_cpu_memory). */
static void zero3_swapped_weights(struct offload_result *o,
                                  const struct stage *s,
                                  const struct tensor_sums *x, uint64_t passes)
{
    const struct run *run = s->run;
    const uint64_t w = dtype_size(run->prec.param);
    const struct disk_bytes d = disk_of(s, x);
    add(o, OFFLOAD_ON_PINNED, "swap buffers of weights",
        (struct product){
            "buffers * elements * bytes",
            "# * # * #",
            { run->param_buffers, aligned(run->param_buffer_elems, w), w },
            true });
    if (d.weights != 0)
        add(o, OFFLOAD_ON_PINNED, "a sub-group's weights on their way back",
            (struct product){ "elements * bytes",
                              "# * #",
                              { aligned(s->sub_group, w), w, 0 },
                              true });
    add(o, OFFLOAD_ON_DISK, "weights",
        sum("bytes", s->sum.own_elems * w + x->frozen_bytes));
    moves(o, OFFLOAD_TO_DISK, "weights, stepped", elements(d.weights, w));
    moves(o, OFFLOAD_FROM_DISK, "weights of each pass",
          (struct product){
              "bytes * passes", "# * #", { d.each_pass, passes, 0 }, false });
}

static void zero3_weights(struct offload_result *o, const struct stage *s,
                          const struct tensor_sums *x)
{
    const struct run *run = s->run;
    const bool nvme = run->offload_params == OFFLOAD_NVME;
    const uint64_t w = dtype_size(run->prec.param), own = s->sum.own_elems;
    const uint64_t passes = 2 * run->grad_accum;
    add(o, OFFLOAD_ON_PINNED, "weights, flat",
        elements(nvme ? min_u64(own, run->max_in_cpu) : own, w));
    if (nvme)
        zero3_swapped_weights(o, s, x, passes);
    else if (run->pin_memory)
        add(o, OFFLOAD_ON_PINNED, "frozen weights",
            sum(TENSOR_BY_TENSOR, x->frozen));
    else
        add(o, OFFLOAD_ON_HOST, "frozen weights",
            sum("bytes", x->frozen_bytes));
    moves(o, OFFLOAD_FROM_HOST, "weights of each pass",
          (struct product){ "bytes * passes",
                            "# * #",
                            { own * w + x->frozen_bytes, passes, 0 },
                            false });
    if (run->offload_optimizer == OFFLOAD_NONE)
        moves(o, OFFLOAD_TO_HOST, "weights, stepped", elements(own, FP32));
}

static void deepspeed(struct offload_result *o, const struct stage *s)
{
    const struct run *run = s->run;
    if (run->zero < 3) {
        if (engine_optimizer_offloaded(run))
            zero_flat(o, s);
        return;
    }
    const struct tensor_sums x = sums_of(s);
    if (engine_optimizer_offloaded(run))
        zero3_optimizer(o, s, &x);
    if (run->offload_params != OFFLOAD_NONE)
        zero3_weights(o, s, &x);
}

/* ---- FSDP ---- */

/* Version 1 has a flat tensor a unit, and pinned gradients beside frozen ones
 * too (_flat_param.py, init_flat_param_attributes); version 2 pins shards
 * tensor by tensor (_fsdp_param.py), gradients as they come down
 * (_fsdp_collectives.py). */
static void fsdp(struct offload_result *o, const struct stage *s)
{
    const struct run *run = s->run;
    const bool flat = run->engine == ENGINE_FSDP;
    const struct tensor_sums x = sums_of(s);
    const uint64_t own = s->sum.own_elems, m = run->grad_accum;
    const uint64_t w = dtype_size(run->prec.param);
    const uint64_t g = dtype_size(run->prec.grad);
    const uint64_t passes = (run->reshard ? 2 : 1) * m;
    add(o, OFFLOAD_ON_PINNED, "weight shards",
        sum(TENSOR_BY_TENSOR, x.weights));
    add(o, OFFLOAD_ON_PINNED, "frozen weight shards",
        sum(TENSOR_BY_TENSOR, x.frozen));
    add(o, OFFLOAD_ON_PINNED, "gradient shards",
        sum(TENSOR_BY_TENSOR, x.weights / w * g));
    if (flat)
        add(o, OFFLOAD_ON_PINNED, "room for gradients of frozen weights",
            sum(TENSOR_BY_TENSOR, x.frozen));
    add(o, OFFLOAD_ON_HOST, MOMENTS, sum("bytes", moments(s)));
    moves(o, OFFLOAD_FROM_HOST, "shards of each pass",
          (struct product){ "bytes * passes",
                            "# * #",
                            { own * w + x.frozen_bytes, passes, 0 },
                            false });
    moves(o, OFFLOAD_TO_HOST, "gradient shards",
          (struct product){ "elements * bytes * micro-batches",
                            "# * # * #",
                            { own, g, run->grad_sync == SYNC_LAST ? 1 : m },
                            false });
}

/* ---- Megatron ---- */

/* HybridDeviceOptimizer, of what of the rank's range is on the CPU: pinned fp32
 * weights and gradients, tensor by tensor, and moments (hybrid_optimizer.py);
 * weights go up in fp32 and are cast there. */
static void megatron(struct offload_result *o, const struct stage *s)
{
    const uint64_t own = engine_share(s) - s->stays;
    add(o, pinned(s->run), MASTER, elements(own, FP32));
    add(o, pinned(s->run), GRADS, elements(own, FP32));
    add(o, OFFLOAD_ON_HOST, MOMENTS, sum("bytes / N", moments_away(s)));
    moves(o, OFFLOAD_TO_HOST, DOWN, elements(own, FP32));
    moves(o, OFFLOAD_FROM_HOST, UP, elements(own, FP32));
}

/* ---- activations ---- */

/* What moves of a micro-batch, in a step. */
static struct product of_each(const struct stage *s, uint64_t bytes)
{
    return (struct product){ "bytes of a micro-batch * micro-batches",
                             "# * #",
                             { bytes, s->run->grad_accum, 0 },
                             false };
}

/* `bytes` of a micro-batch, of all that are there at a time. */
static struct product in_flight(const struct stage *s, uint64_t bytes,
                                bool exact)
{
    return (struct product){
        s->chunks > 1 ? "bytes of a chunk * chunks in flight"
                      : "bytes of a micro-batch * micro-batches in flight",
        "# * #",
        { div_up(bytes, s->chunks), s->in_flight, 0 },
        exact
    };
}

/* What layers keep, and a head's norm, tensor by tensor; Transformer Engine pins
 * always. */
static void layers_away(struct offload_result *o, const struct stage *s,
                        const char *label)
{
    uint64_t moved = 0, held = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct away *w = &s->walk[stage_block(s, i)].away;
        if (!stage_goes(s, i))
            continue;
        moved += w->moved;
        held += w->pinned;
    }
    const struct product each = of_each(s, moved);
    const bool pins = s->run->pin_memory || run_away(s->run) == AWAY_LAYERS;
    if (pins)
        add(o, OFFLOAD_ON_PINNED, label, sum(TENSOR_BY_TENSOR, held));
    else
        add(o, OFFLOAD_ON_HOST, label, sum("bytes", moved));
    moves(o, OFFLOAD_TO_HOST, label, each);
    moves(o, OFFLOAD_FROM_HOST, label, each);
}

/* What modules keep. All of the first step goes; after it the groups that stay
 * do not, and pinned memory is as it was: a pool of shapes that is never freed,
 * or PyTorch's cache (OffloadTensorPool). */
static void modules_away(struct offload_result *o, const struct stage *s)
{
    static const char label[] = "what modules keep";
    uint64_t moved = 0, held = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct away *w = &s->walk[stage_block(s, i)].away;
        moved += stage_module_moves(s, i);
        held += w->pinned;
    }
    const struct product each = of_each(s, moved);
    add(o, OFFLOAD_ON_PINNED, label, in_flight(s, held, true));
    moves(o, OFFLOAD_TO_HOST, label, each);
    moves(o, OFFLOAD_FROM_HOST, label, each);
}

/* In files, by way of memory that is not pinned, and each read twice: by the
 * layer's backward and ahead of it, the second time from the page cache
 * (offload_disk.py, _save_tensor_to_disk, load_tensor, _prefetch_worker). */
static void activations_on_disk(struct offload_result *o, const struct stage *s,
                                uint64_t n, uint64_t bytes)
{
    static const char label[] = "checkpoints";
    const uint64_t m = s->run->grad_accum;
    const struct product each = of_each(s, bytes);
    if (n == 0)
        return;
    add(o, OFFLOAD_ON_HOST, "checkpoints that are being written",
        (struct product){ "tensors * bytes",
                          "# * #",
                          { min_u64(n, DISCO_WRITERS), bytes / n, 0 },
                          false });
    add(o, OFFLOAD_ON_DISK, label, sum("bytes", bytes));
    moves(o, OFFLOAD_TO_HOST, label, each);
    moves(o, OFFLOAD_TO_DISK, label, each);
    moves(o, OFFLOAD_FROM_DISK, label, each);
    moves(o, OFFLOAD_FROM_HOST, label,
          (struct product){ "bytes of a micro-batch * micro-batches * reads",
                            "# * # * #",
                            { bytes, m, 2 },
                            false });
}

/* Inputs of checkpointed layers, each in pinned memory of its own
 * (OffloadActivations of torchtune and TRL); what stands beside a layer keeps
 * its own on the GPU. */
static void activations(struct offload_result *o, const struct stage *s)
{
    uint64_t bytes = 0, held = 0, n = 0;
    const bool pins = s->run->pin_memory && !run_checkpoints_in_cpu(s->run);
    for (uint32_t i = 0; i < s->n; i++) {
        if (!stage_recomputed(s, i) || stage_group_first(s, i) != i)
            continue;
        const struct block_walk *w = &s->walk[stage_block(s, i)];
        const uint64_t one = stage_checkpoint_part(s, w);
        bytes += one;
        n++;
        held += pins ? round_to_power(one) : one;
    }
    if (s->run->offload_activations == OFFLOAD_NVME) {
        activations_on_disk(o, s, n, bytes);
        return;
    }
    const struct product each = of_each(s, bytes);
    const enum offload_kind where = pins ? OFFLOAD_ON_PINNED : OFFLOAD_ON_HOST;
    if (s->in_flight > 1)
        add(o, where, "checkpoints", in_flight(s, held, false));
    else
        add(o, where, "checkpoints", sum(TENSOR_BY_TENSOR, held));
    moves(o, OFFLOAD_TO_HOST, "checkpoints", each);
    moves(o, OFFLOAD_FROM_HOST, "checkpoints", each);
    if (s->head && run_unloads_head(s->run)) /* no checkpoint is around it */
        layers_away(o, s, "the head's norm");
}

void fold_offload(struct offload_result *o, const struct stage *s)
{
    const struct run *run = s->run;
    *o = (struct offload_result){ .n = 0 };
    if (run->engine == ENGINE_DEEPSPEED)
        deepspeed(o, s);
    else if (engine_shards_offloaded(run))
        fsdp(o, s);
    else if (engine_optimizer_offloaded(run))
        megatron(o, s);
    if (s->reload != NULL)
        modules_away(o, s);
    else if (s->away != NULL)
        layers_away(o, s, "activations");
    else if (stage_offloads(s))
        activations(o, s);
}
