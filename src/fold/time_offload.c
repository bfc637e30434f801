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

/* Seconds in which a node's CPUs update an element by Adam: 11.6e9 in 8.2 s by
 * DeepSpeedCPUAdam, in 56 s by PyTorch's, of one process
 * (deepspeedai/DeepSpeed, pull request 735). */
#define CPU_ADAM_S (8.2 / 11.6e9)
#define CPU_TORCH_ADAM_S (56 / 11.6e9)

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
    if (run_is_fsdp(run)) { /* gradients are where the shards are */
        x->share = run->offload_params != OFFLOAD_NONE ? 1 : 0;
        return true;
    }
    x->share = run->offload_optimizer != OFFLOAD_NONE ? run->offload_ratio : 0;
    const bool part = x->share > 0 && x->share < 1 && run_zero_is(run, 3);
    return !(part || on_disk(run)) || look_at_stage(x, p, run, a);
}

static double link_rate(const struct run *run)
{
    return run->gpu.host_link_bytes_s * HOST_LINK_SHARE;
}

/* All ranks of a node share its disks. */
static double on_disks(const struct run *run, double read, double written)
{
    const double ranks = (double)min_u64(run->gpus, run->gpus_per_node);
    return (read + written / NVME_WRITE_SHARE) * ranks / run->nvme_bytes_s;
}

double time_copy(const struct run *run, const struct copy_note *x)
{
    const double seconds = x->part == TIME_DISK
                               ? on_disks(run, x->read, x->written)
                               : x->read / link_rate(run);
    return x->times * fmax(0, seconds - x->beside);
}

static void copied(struct time_result *out, const struct clock *c,
                   struct copy_note x)
{
    const double seconds = time_copy(c->run, &x);
    out->part[x.part] += seconds;
    if (c->log != NULL && x.read + x.written > 0 && x.times > 0)
        time_log_copy(c->log, x);
}

/* Over the link. */
static void link_moves(struct time_result *out, const struct clock *c,
                       struct copy_note x)
{
    x.part = TIME_OFFLOAD;
    copied(out, c, x);
}

static void disks_move(struct time_result *out, const struct clock *c,
                       struct copy_note x)
{
    x.part = TIME_DISK;
    copied(out, c, x);
}

/* Shards of weights come for each pass, ahead of it. */
static void weights_come(struct time_result *out, const struct clock *c,
                         const struct resident *x, double weights)
{
    const struct run *run = c->run;
    struct copy_note pass = { .name = "weights for forward",
                              .read = weights,
                              .beside = x->forward,
                              .times = (double)run->grad_accum };
    link_moves(out, c, pass);
    if (run_is_fsdp(run) && !run->reshard)
        return;
    pass.name = "weights for backward";
    pass.beside = x->back;
    link_moves(out, c, pass);
}

/* What of them is on disks, and the last micro-batch's gradients, written beside
 * its backward: what the disks take for both is hidden once, by what is computed
 * or comes over the link meanwhile. */
static void disks_beside_passes(struct time_result *out, const struct clock *c,
                                const struct resident *x, double link)
{
    const struct disk_bytes *d = &x->there->disk;
    const double m = (double)c->run->grad_accum;
    struct copy_note pass = { .name = "weights for forward",
                              .read = (double)d->each_pass,
                              .beside = fmax(x->forward, link),
                              .times = m };
    disks_move(out, c, pass);
    pass.name = "weights for backward";
    pass.beside = fmax(x->back, link);
    pass.times = m - 1;
    disks_move(out, c, pass);
    pass.name = d->each_pass == 0 ? "gradients of the last backward"
                : d->gradients == 0
                    ? "weights for the last backward"
                    : "weights for the last backward, and its gradients";
    pass.written = (double)d->gradients;
    pass.times = 1;
    disks_move(out, c, pass);
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
    struct copy_note each = { .name = "gradients of a micro-batch",
                              .read = size * moved,
                              .beside = x->back,
                              .times = m };
    struct copy_note wide = { .name = "gradients for the step",
                              .read = FP32 * moved,
                              .times = 1 };
    switch (run->engine) {
    case ENGINE_DEEPSPEED:
        if (run->zero < 3) {
            wide.beside = x->back;
        } else {
            each.read = size * x->own_elems;
            link_moves(out, c, each);
        }
        link_moves(out, c, wide);
        break;
    case ENGINE_FSDP:
    case ENGINE_FSDP2:
        each.times = run->grad_sync == SYNC_LAST ? 1 : m;
        link_moves(out, c, each);
        break;
    case ENGINE_DDP:
    case ENGINE_MEGATRON:
    case ENGINE_MEGATRON_FSDP:
    case ENGINE_COUNT: link_moves(out, c, wide); break;
    }
}

/* Stepped weights go back to where forward reads them. */
static void weights_return(struct time_result *out, const struct clock *c,
                           const struct resident *x)
{
    const struct run *run = c->run;
    const double moved = x->own_elems * x->there->share;
    if (run_is_fsdp(run) || run->offload_params != OFFLOAD_NONE)
        return;
    const double size = run->engine == ENGINE_DEEPSPEED
                            ? (double)dtype_size(run->prec.param)
                            : FP32;
    link_moves(out, c,
               (struct copy_note){ .name = "stepped weights",
                                   .read = size * moved,
                                   .times = 1 });
}

/* All ranks of a node share its CPUs. */
static double updated_on_host(const struct clock *c, double elems)
{
    const struct run *run = c->run;
    const double ranks = (double)min_u64(run->gpus, run->gpus_per_node);
    const double each =
        run->engine == ENGINE_DEEPSPEED ? CPU_ADAM_S : CPU_TORCH_ADAM_S;
    if (c->log != NULL) {
        c->log->away_elems = elems * ranks;
        c->log->away_s = each;
    }
    return elems * ranks * each;
}

bool time_away_bytes(uint64_t bytes[BLOCK_MAX], const struct program *p,
                     const struct run *run, struct arena *a)
{
    struct walk_scratch scratch = { .away = run_away(run),
                                    .away_head = run_unloads_head(run),
                                    .least_elems = run->offload_min_elems };
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
    struct copy_note copies = { .name = "what layers keep",
                                .read = n * x->layer_bytes,
                                .beside = beside_them * x->layer_forward,
                                .times = m };
    link_moves(out, c, copies);
    copies.beside = beside_them * x->layer_back;
    link_moves(out, c, copies);
}

/* Sub-groups of the optimizer's states come from the disk, are stepped in so
 * many seconds, and go back, one after the other. Piped, the next is read, or the
 * last one written, beside that: reads and writes share the disks
 * (pipelined_optimizer_swapper.py). Stepped weights are written before the next
 * sub-group. */
static void sub_groups_swap(struct time_result *out, const struct clock *c,
                            const struct resident *x, double stepping)
{
    const struct run *run = c->run;
    const struct disk_bytes *d = &x->there->disk;
    const double n = (double)max_u64(d->groups, 1);
    const double in = (double)(d->states + d->gradients) / n;
    const double back = (double)d->states / n;
    const double read = run->pipeline_read ? in : 0;
    const double written = run->pipeline_write ? back : 0;
    disks_move(out, c,
               (struct copy_note){ .name = "states of sub-groups",
                                   .read = in - read,
                                   .written = back - written,
                                   .times = n });
    disks_move(out, c,
               (struct copy_note){ .name = "states of the first "
                                           "sub-group",
                                   .read = read,
                                   .written = written,
                                   .times = 1 });
    disks_move(out, c,
               (struct copy_note){ .name = "states beside another "
                                           "sub-group's step",
                                   .read = read,
                                   .written = written,
                                   .beside = stepping / n,
                                   .times = n - 1 });
    disks_move(out, c,
               (struct copy_note){ .name = "stepped weights",
                                   .written = (double)d->stepped,
                                   .times = 1 });
}

/* Checkpoints, or what modules keep, go as they are made, and come back ahead of
 * their backward: on a
 * disk, twice, while the GPU does the layer above. What the disk takes for them
 * is hidden by what the link takes, too. */
static void checkpoints_wait(struct time_result *out, const struct clock *c,
                             const struct resident *x)
{
    const bool disk = c->run->offload_activations == OFFLOAD_NVME;
    const double link = x->checkpoint_bytes / link_rate(c->run);
    const bool waits = run_checkpoints_in_cpu(c->run);
    const bool modules = run_away(c->run) == AWAY_MODULES;
    struct copy_note kept = { .name =
                                  modules ? "what modules keep" : "checkpoints",
                              .read = x->checkpoint_bytes,
                              .beside = waits ? 0 : x->forward,
                              .times = (double)c->run->grad_accum };
    struct copy_note file = { .name = "checkpoints, written",
                              .written = kept.read,
                              .beside = fmax(x->forward, link),
                              .times = kept.times };
    link_moves(out, c, kept);
    kept.beside = waits ? 0 : x->back;
    kept.read *= disk ? 2 : 1;
    link_moves(out, c, kept);
    if (!disk)
        return;
    disks_move(out, c, file);
    file = (struct copy_note){ .name = "checkpoints, read",
                               .read = x->checkpoint_bytes,
                               .beside = fmax(x->back, 2 * link),
                               .times = kept.times };
    disks_move(out, c, file);
}

void time_offload(struct time_result *out, const struct clock *c,
                  const struct resident *x)
{
    const struct run *run = c->run;
    const double share = x->there->share;
    const double stepping = updated_on_host(c, share * x->own_elems);
    const double weights =
        run->offload_params == OFFLOAD_NONE ? 0 : x->shard_bytes;
    weights_come(out, c, x, weights);
    if (share > 0) {
        gradients_go(out, c, x);
        weights_return(out, c, x);
        out->part[TIME_OPTIMIZER] += stepping;
    }
    if (on_disk(run)) {
        disks_beside_passes(out, c, x, weights / link_rate(run));
        sub_groups_swap(out, c, x, stepping);
    }
    if (run->away_layers > 0)
        layers_wait(out, c, x);
    checkpoints_wait(out, c, x);
}
