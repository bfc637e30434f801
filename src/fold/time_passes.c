/*
 * What an engine's optimizer step moves around the update itself: overflow
 * checks, copies of gradients in fp32, flat copies, norms, clipping, weights in 16
 * bits, and which of it the host waits for. Owns which engine does what; refuses
 * to know how long it takes. [docs/method.md eq. optimizer-passes]
 */
#include "fold/time.h"

#include "fold/engine_private.h"
#include "fold/fold.h"

#include "base/banned.h"

enum { FP64 = 8, BOOL = 1 };

/* Kernels of an update of one tensor in a loop (torch/optim, _single_tensor_*):
 * AdamW's weights, two moments in two kernels, or one and a lerp, square root,
 * quotient, sum, quotient. Others than these are not counted. */
static double looped_kernels(enum optimizer o)
{
    switch (o) {
    case OPT_ADAMW: return 8;
    case OPT_RMSPROP: return 6;
    case OPT_ADAGRAD: return 5;
    case OPT_MOMENTUM: return 4;
    case OPT_SGD: return 2;
    case OPT_ADAM8BIT:
    case OPT_PAGED_ADAM8BIT:
    case OPT_PAGED_ADAMW:
    case OPT_ADAFACTOR:
    case OPT_LION:
    case OPT_LION8BIT:
    case OPT_MUON:
    case OPT_LAMB:
    case OPT_ADAM4BIT:
    case OPT_GALORE:
    case OPT_GALORE8BIT:
    case OPT_APOLLO:
    case OPT_NONE:
    case OPTIMIZER_COUNT: break;
    }
    return 0;
}

static struct optimizer_pass *put(struct optimizer_passes *x, const char *name,
                                  double own, double kernels)
{
    struct optimizer_pass *p = &x->at[x->n++];
    *p =
        (struct optimizer_pass){ .name = name, .own = own, .kernels = kernels };
    return p;
}

/* By kernels over lists of tensors. */
static void put_listed(struct optimizer_passes *x, const char *name, double own)
{
    put(x, name, own, 0)->listed = true;
}

static double size_of(enum dtype t)
{
    return (double)dtype_size(t);
}

/* What is not DeepSpeed's or Apex's kernel is a loop, or lists of tensors. */
static void put_update(struct optimizer_passes *x, const struct run *run,
                       double bytes)
{
    x->update = run->optimizer == OPT_NONE ? 0 : bytes;
    x->update_kernels = run->optimizer_impl == OPTIMPL_LOOP
                            ? looped_kernels(run->optimizer)
                            : 0;
}

/* ---- PyTorch ---- */

/* GradScaler unscales fp32 gradients of weights that autocast reads in fp16
 * (torch/amp/grad_scaler.py, _unscale_grads_), or looks for infinities in the same
 * kernel; a fused update asks nobody whether there are (_maybe_opt_step). */
static bool scales_loss(const struct run *run)
{
    return run->prec.compute == DT_FP16 && run->prec.param == DT_FP32;
}

/* torch/nn/utils/clip_grad.py: norms, and a product in place, of lists of tensors
 * or one by one; of gradients that are left, which none is of weights that are
 * updated in backward. */
static void pytorch(struct optimizer_passes *x, const struct run *run)
{
    const double g = size_of(run->prec.grad);
    const bool loop = run->optimizer_impl == OPTIMPL_LOOP;
    if (scales_loss(run)) {
        put_listed(x, "gradients unscaled, checked", 2 * g);
        x->waits += run->optimizer_impl == OPTIMPL_FUSED ? 0 : 1;
    }
    if (run->clip_grad && !run->optimizer_in_backward) {
        put_listed(x, "norms", g);
        put_listed(x, "clipping", 2 * g);
        x->at[x->n - 1].kernels = loop ? 2 : 0; /* norms' too */
    }
    if (run_keeps_grads(run)) /* zero_grad(set_to_none=False) */
        put_listed(x, "gradients zeroed", g);
    put_update(x, run,
               g + 2 * size_of(run->prec.master)
                   + 2 * size_of(run->prec.param));
}

/* ---- DeepSpeed ---- */

static double cast_to(double master, double g)
{
    return g == master ? 0 : g + master;
}

/* In Megatron-DeepSpeed's years `float(x.float().sum())`: a cast, a sum, and a copy
 * that the host waits for. Today the largest and the smallest, through which NaN
 * goes too, ten kernels of one number to test these, and that is asked for
 * (runtime/utils.py, CheckOverflow, has_inf_or_nan; 0.19.8). */
enum { SUMMED_KERNELS = 3, EXTREMES_KERNELS = 13 };

static struct optimizer_pass *put_check(struct optimizer_passes *x,
                                        const struct run *run)
{
    const double g = size_of(run->prec.grad);
    if (run_is_old_deepspeed(run))
        return put(x, "overflow check", cast_to(FP32, g) + FP32,
                   SUMMED_KERNELS);
    return put(x, "overflow check", 2 * g, EXTREMES_KERNELS);
}

/* fp16/fused_optimizer.py, step: of one flat tensor, also in bf16 (engine.py,
 * DDP_BFLOAT16). fp16/unfused_optimizer.py, of all optimizers but DeepSpeed's and
 * Apex's FusedAdam: tensor by tensor, norms of 16-bit gradients, cast. Norms and
 * flags that .item() brings: three. */
static void fp16_optimizer(struct optimizer_passes *x, const struct run *run,
                           bool flat)
{
    const double g = size_of(run->prec.grad), p = size_of(run->prec.param);
    put_check(x, run)->waits = true;
    if (!flat)
        put(x, "norms", cast_to(FP32, g) + FP32, 2);
    put(x, "gradients in fp32", cast_to(FP32, g), 1);
    if (flat) {
        put(x, "gradients flattened", 2 * FP32, 0);
        put(x, "norm", FP32, 0);
    }
    put(x, "unscaling, clipping", 2 * FP32, flat ? 0 : 1);
    put_update(x, run, FP32 + 2 * FP32);
    put(x, "weights in 16 bits", FP32 + p, 1);
    x->waits = 3;
}

/* ... step_fused_lamb: flattened, and once more for the norm; FusedLamb reads
 * 16-bit gradients and unscales them. */
static void lamb_optimizer(struct optimizer_passes *x, const struct run *run)
{
    const double g = size_of(run->prec.grad), p = size_of(run->prec.param);
    put(x, "gradients flattened, twice", 4 * g, 0);
    put(x, "norm", cast_to(FP32, g) + FP32, 0);
    put_update(x, run, g + 2 * FP32 + p);
    put(x, "weights in 16 bits", FP32 + p, 1);
    x->waits = 2;
}

/* runtime/bf16_optimizer.py, step: norm and clipping are of whole gradients on
 * every rank; the buffer is zeroed, and today again by its zero_grad, which
 * engine.py calls (_take_model_step). */
static void bf16_optimizer(struct optimizer_passes *x, const struct run *run)
{
    const bool old = run_is_old_deepspeed(run);
    struct optimizer_pass *norm = put(x, "norms", 0, old ? 2 : 1);
    norm->whole = FP32;
    norm->waits = old; /* .item() of each; now summed up on the GPU */
    if (run->clip_grad)
        put(x, "clipping", 0, 1)->whole = 2 * FP32;
    put_update(x, run, FP32 + 2 * FP32);
    put(x, "weights in 16 bits", FP32 + size_of(run->prec.param), 0);
    put(x, "gradient buffer zeroed", 0, 0)->whole = old ? FP32 : 2 * FP32;
    x->waits = old ? 1 : 2; /* whether the norm is above 0, and to clip */
}

/* zero/stage_1_and_2.py, has_overflow: of an fp32 model not (engine.py,
 * check_grad_overflow), in Megatron-DeepSpeed's years of all, each tensor's waited
 * for. */
static void put_partition_check(struct optimizer_passes *x,
                                const struct run *run)
{
    const bool old = run_is_old_deepspeed(run);
    if (old || run->prec.param != DT_FP32)
        put_check(x, run)->waits = old;
    /* the check and the norm, and that again to clip by it */
    x->waits += old ? 2 : (run->prec.param != DT_FP32) + 1 + run->clip_grad;
}

/* ... of each tensor in double precision (get_grad_norm_direct). */
static void put_norms_in_double(struct optimizer_passes *x, double g,
                                bool waits)
{
    put(x, "norms in fp64", g + FP64 + FP64, waits ? 3 : 2)->waits = waits;
}

/* Of a flat gradient: as the master weights are, scaled, then back. `scales`:
 * whether there is a factor or not. */
static void put_flat_step(struct optimizer_passes *x, const struct run *run,
                          bool scales)
{
    const double g = size_of(run->prec.grad);
    const double master = size_of(run->prec.master);
    if (run->prec.grad != run->prec.master)
        put(x, "gradients as master weights are", g + master, 0);
    if (scales)
        put(x, "unscaling, clipping", 2 * master, 0);
    put_update(x, run, master + 2 * master);
    put(x, "weights from master weights", master + size_of(run->prec.param), 0);
}

static void zero_1_or_2(struct optimizer_passes *x, const struct run *run)
{
    const double g = size_of(run->prec.grad);
    const bool old = run_is_old_deepspeed(run);
    put_partition_check(x, run);
    put_norms_in_double(x, g, old);
    if (!run_sums_in_fp32(run)) /* else it is flat */
        put(x, "gradients flattened", 2 * g, 0);
    put_flat_step(x, run, old || run->clip_grad || run->prec.param == DT_FP16);
}

/* zero/stage3.py: isinf and isnan of the partition as it is, any of each; in fp16
 * alone, in Megatron-DeepSpeed's years always. Before 0.6 sums of what was cast,
 * in backward, and a norm a tensor that the host waits for. */
static void zero_3(struct optimizer_passes *x, const struct run *run)
{
    const double g = size_of(run->prec.grad);
    const bool lists = engine_makes_zero3_grads(run);
    const bool checks = run->prec.param == DT_FP16 || run_is_old_deepspeed(run);
    if (lists)
        put(x, "overflow check", cast_to(FP32, g) + FP32, 2);
    else if (checks)
        put(x, "overflow check", 2 * g + (g + BOOL) + BOOL + (g + BOOL) + BOOL,
            0);
    x->waits = checks ? 2 : 1; /* and for the norm */
    put_norms_in_double(x, g, lists);
    put(x, "gradients flattened", 2 * g, 0);
    put_flat_step(x, run, true);
}

/* Stage 0 without master weights (engine.py, clip_fp32_gradients; utils.py,
 * clip_grad_norm_): a tensor at a time. */
static void without_masters(struct optimizer_passes *x, const struct run *run)
{
    const double g = size_of(run->prec.grad);
    if (run->clip_grad) {
        put(x, "norms", g == FP32 ? FP32 : g + 2 * FP32, 1);
        put(x, "clipping", 2 * g, 1);
    }
    put_update(x, run, g + 2 * size_of(run->prec.param));
}

static void deepspeed(struct optimizer_passes *x, const struct run *run)
{
    if (run_is_bf16_optimizer(run))
        bf16_optimizer(x, run);
    else if (run->zero == 3)
        zero_3(x, run);
    else if (run->zero > 0)
        zero_1_or_2(x, run);
    else if (run->prec.master == DT_NONE)
        without_masters(x, run);
    else if (run->optimizer == OPT_LAMB)
        lamb_optimizer(x, run);
    else
        fp16_optimizer(x, run,
                       run->optimizer == OPT_ADAMW
                           && run->optimizer_impl == OPTIMPL_FUSED);
}

/* ---- Megatron ---- */

/* With --use-precision-aware-optimizer Transformer Engine's kernel reads main
 * gradients as they are and writes the weights (distrib_optimizer.py,
 * decoupled_grad); without it moments are fp32. */
static bool is_precision_aware(const struct run *run)
{
    return run->prec.master != DT_NONE && run->prec.optim != DT_FP32;
}

/* Since core 0.18 (April 2026) all gradients are multiplied, by 1 where their norm
 * is within the limit; before it they were left alone there, where that of a run
 * is but for few of its steps (clip_grads.py, clip_grad_by_total_norm_fp32). Its
 * layers without Transformer Engine are of the years before. */
static bool multiplies_always(const struct run *run)
{
    return run->impl != IMPL_MEGATRON_LOCAL && run->impl != IMPL_PAPER;
}

/* core/optimizer/optimizer.py, step; distrib_optimizer.py of shards: main
 * gradients in fp32 where they are not (.float()), unscaled in fp16, norm and
 * scale over lists, Adam, main weights to the model's: of shards and in bf16 tensor
 * by tensor (_multi_tensor_copy_this_to_that).
 * The buffer is zeroed before the next step, whole (zero_grad_buffer). */
static void megatron(struct optimizer_passes *x, const struct run *run)
{
    const double g = size_of(run->prec.grad), p = size_of(run->prec.param);
    const bool aware = is_precision_aware(run);
    const double main = aware ? g : FP32;
    if (g != main)
        put(x, "main gradients in fp32", g + main, 1);
    if (run->prec.param == DT_FP16) {
        put_listed(x, "gradients unscaled, checked", 2 * main);
        x->waits++;
    }
    if (run->clip_grad) {
        put_listed(x, "norm", main);
        if (multiplies_always(run))
            put_listed(x, "clipping", 2 * main);
    }
    const bool masters = run->prec.master != DT_NONE;
    const double weights =
        2 * size_of(masters ? run->prec.master : run->prec.param);
    put_update(x, run, main + weights + (aware ? p : 0));
    const bool lists =
        run->prec.param == DT_FP16 && run_sharding(run) == SHARDING_NONE;
    if (masters && !aware)
        put(x, "weights from main weights", size_of(run->prec.master) + p,
            lists ? 0 : 1);
    if (run->engine == ENGINE_MEGATRON)
        put(x, "gradient buffer zeroed", 0, 0)->whole = g;
}

void optimizer_passes_of(struct optimizer_passes *x, const struct run *run)
{
    *x = (struct optimizer_passes){ .n = 0 };
    if (run->optimizer == OPT_NONE) {
        pytorch(x, run);
        return;
    }
    switch (run->engine) {
    case ENGINE_DEEPSPEED: deepspeed(x, run); return;
    case ENGINE_MEGATRON:
    case ENGINE_MEGATRON_FSDP: megatron(x, run); return;
    case ENGINE_DDP:
    case ENGINE_FSDP:
    case ENGINE_FSDP2:
    case ENGINE_COUNT: pytorch(x, run); return;
    }
}
