/*
 * Time of what a run keeps beside the GPU: its way over the link to the host,
 * beside what is computed or bare, the update on the CPU, and disks. Refuses to
 * know what is kept there (offload.c). [docs/method.md eq. step-time]
 */
#include "fold/engine_private.h"
#include "fold/time.h"
#include "fold/walk.h"

#include "base/count.h"
#include "data/constants.h"

#include <math.h>

#include "base/banned.h"

/* Share of the link's rate that copies from and to pinned memory reach
 * (stas00/ml-engineering, network: 55 of 63 GB/s). */
#define HOST_LINK_SHARE 0.87
/* Seconds in which a node's CPUs update an element by Adam: 11.6e9 in 8.2 s by
 * DeepSpeedCPUAdam, in 56 s by PyTorch's, of one process
 * (deepspeedai/DeepSpeed, pull request 735). */
#define CPU_ADAM_S (8.2 / 11.6e9)
#define CPU_TORCH_ADAM_S (56 / 11.6e9)

static bool is_fsdp(const struct run *run)
{
    return run->engine == ENGINE_FSDP || run->engine == ENGINE_FSDP2;
}

/* ZeRO-3 moves whole sub-groups, and so more than the ratio. */
static bool look_at_stage(struct beside_gpu *x, const struct program *p,
                          const struct run *run, struct arena *a)
{
    struct memory_fold f;
    struct stage s;
    if (!memory_fold_init(&f, p, run, a))
        return false;
    stage_init(&s, &f, 0, 0);
    if (x->share > 0 && s.sum.own_elems != 0)
        x->share = 1 - (double)s.stays / (double)s.sum.own_elems;
    offload_disk(&x->disk, &s);
    return true;
}

static bool on_disk(const struct run *run)
{
    return run->offload_optimizer == OFFLOAD_NVME
           || run->offload_params == OFFLOAD_NVME;
}

bool time_beside_gpu(struct beside_gpu *x, const struct program *p,
                     const struct run *run, struct arena *a)
{
    *x = (struct beside_gpu){ .share = 0 };
    if (is_fsdp(run)) { /* gradients are where the shards are */
        x->share = run->offload_params != OFFLOAD_NONE ? 1 : 0;
        return true;
    }
    x->share = run->offload_optimizer != OFFLOAD_NONE ? run->offload_ratio : 0;
    const bool part = x->share > 0 && x->share < 1 && engine_zero_is(run, 3);
    return !(part || on_disk(run)) || look_at_stage(x, p, run, a);
}

static double over_link(const struct clock *c, double bytes)
{
    return bytes / (c->run->gpu.host_link_bytes_s * HOST_LINK_SHARE);
}

/* So many times: what is computed does not cover of a copy beside it. */
static void beside(struct time_result *out, double copy, double computing,
                   double times)
{
    out->part[TIME_OFFLOAD] += times * fmax(0, copy - computing);
}

/* All ranks of a node share its disks. */
static double from_disk(const struct run *run, uint64_t bytes)
{
    const uint64_t ranks = min_u64(run->gpus, run->gpus_per_node);
    return (double)bytes * (double)ranks / run->nvme_bytes_s;
}

static double to_disk(const struct run *run, uint64_t bytes)
{
    return from_disk(run, bytes) / NVME_WRITE_SHARE;
}

/* Shards of weights come for each pass, ahead of it, those on a disk too. */
static void weights_come(struct time_result *out, const struct clock *c,
                         const struct resident *x)
{
    const struct run *run = c->run;
    const double m = (double)run->grad_accum;
    const double once = fmax(over_link(c, x->shard_bytes),
                             from_disk(run, x->there->disk.each_pass));
    if (run->offload_params == OFFLOAD_NONE)
        return;
    beside(out, once, x->forward, m);
    if (!is_fsdp(run) || run->reshard)
        beside(out, once, x->back, m);
}

/* Gradients go down beside backward: in ZeRO-3 those summed so far come up
 * beside them, at the other way's rate. Then down to fp32, bare, where the step
 * wants it so (stage3.py, partition_grads; cpu_offloading). */
static void gradients_go(struct time_result *out, const struct clock *c,
                         const struct resident *x)
{
    const struct run *run = c->run;
    const double m = (double)run->grad_accum;
    const double moved = x->own_elems * x->there->share;
    const double size = (double)dtype_size(run->prec.grad);
    const double wide = over_link(c, 4 * moved);
    switch (run->engine) {
    case ENGINE_DEEPSPEED:
        if (run->zero < 3) {
            beside(out, wide, x->back, 1);
            break;
        }
        beside(out, over_link(c, size * x->own_elems), x->back, m);
        beside(out, wide, 0, 1);
        break;
    case ENGINE_FSDP:
    case ENGINE_FSDP2:
        beside(out, over_link(c, size * moved), x->back,
               run->grad_sync == SYNC_LAST ? 1 : m);
        break;
    case ENGINE_DDP:
    case ENGINE_MEGATRON:
    case ENGINE_MEGATRON_FSDP:
    case ENGINE_COUNT: beside(out, wide, 0, 1); break;
    }
}

/* Stepped weights go back to where forward reads them. */
static void weights_return(struct time_result *out, const struct clock *c,
                           const struct resident *x)
{
    const struct run *run = c->run;
    const double moved = x->own_elems * x->there->share;
    if (is_fsdp(run) || run->offload_params != OFFLOAD_NONE)
        return;
    const double size = run->engine == ENGINE_DEEPSPEED
                            ? (double)dtype_size(run->prec.param)
                            : 4;
    beside(out, over_link(c, size * moved), 0, 1);
}

/* All ranks of a node share its CPUs. */
static double updated_on_host(const struct run *run, double elems)
{
    const double ranks = (double)min_u64(run->gpus, run->gpus_per_node);
    return elems * ranks
           * (run->engine == ENGINE_DEEPSPEED ? CPU_ADAM_S : CPU_TORCH_ADAM_S);
}

bool time_away_bytes(uint64_t bytes[BLOCK_MAX], const struct program *p,
                     const struct run *run, struct arena *a)
{
    struct walk_scratch scratch = { .away = run_away(run),
                                    .away_head = run_unloads_head(run) };
    if (!walk_scratch_init(&scratch, p, a))
        return false;
    for (uint32_t b = 0; b < p->n_blocks; b++) {
        struct block_walk w;
        walk_block(&w, p, &p->block[b], run_regions(run), 0, &scratch);
        bytes[b] = w.away.moved;
    }
    return true;
}

/* Transformer Engine's layers, n of L: what the first kept is on its way when the
 * second begins, and the last one begins when all has gone; what the last of
 * them kept is on its way back when the last but one of all begins backward, and
 * the first waits for all. With one layer on the GPU at a time nothing is
 * computed beside a copy (stage_away.c). All layers alike. */
static void layers_wait(struct time_result *out, const struct clock *c,
                        const struct resident *x)
{
    const double layers = (double)c->run->stage_layers[0];
    const double n = (double)c->run->away_layers;
    const double m = (double)c->run->grad_accum;
    const double beside_them = layers - n > 1 ? layers - 2 : 0;
    const double copies = over_link(c, n * x->layer_bytes);
    beside(out, copies, beside_them * x->layer_forward, m);
    beside(out, copies, beside_them * x->layer_back, m);
}

/* Sub-groups of the optimizer's states come from the disk, are stepped in so
 * many seconds, and go back, one after the other. Piped, the next is read, or the
 * last one written, beside that: reads and writes share the disks
 * (pipelined_optimizer_swapper.py). Their gradients were written beside backward,
 * and stepped weights are, before the next sub-group. */
static void sub_groups_swap(struct time_result *out, const struct run *run,
                            const struct resident *x, double stepping)
{
    const struct disk_bytes *d = &x->there->disk;
    const double n = (double)max_u64(d->groups, 1), step = stepping / n;
    const double in = from_disk(run, d->states + d->gradients) / n;
    const double back = to_disk(run, d->states) / n;
    const double read = run->pipeline_read ? in : 0;
    const double written = run->pipeline_write ? back : 0;
    const double bare = in - read + back - written;
    beside(out, to_disk(run, d->gradients), x->back, 1);
    out->part[TIME_OFFLOAD] +=
        n * bare + read + written + (n - 1) * fmax(0, read + written - step);
    out->part[TIME_OFFLOAD] += to_disk(run, d->stepped);
}

void time_offload(struct time_result *out, const struct clock *c,
                  const struct resident *x)
{
    const struct run *run = c->run;
    const double share = x->there->share;
    const double stepping = updated_on_host(run, share * x->own_elems);
    weights_come(out, c, x);
    if (share > 0) {
        gradients_go(out, c, x);
        weights_return(out, c, x);
        out->part[TIME_OPTIMIZER] += stepping;
    }
    if (on_disk(run))
        sub_groups_swap(out, run, x, stepping);
    if (run->away_layers > 0)
        layers_wait(out, c, x);
    const double kept = over_link(c, x->checkpoint_bytes);
    beside(out, kept, x->forward, (double)run->grad_accum);
    beside(out, kept, x->back, (double)run->grad_accum);
}
