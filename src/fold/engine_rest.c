/*
 * What an engine holds between steps: weights, master copies, gradients,
 * moments, permanent buffers. [docs/method.md eq. states]
 */
#include "fold/engine_private.h"

#include "data/constants.h"

#include "base/banned.h"

/* Weights of two types and the scales of those in fewer bits: three products,
 * where a moment has one term. Tensors of an odd number of 4-bit elements make a
 * byte more each. */
static void explain_packed(struct put *p, const struct block_states *b)
{
    struct moment sum = { 0 };
    p->m = &sum;
    p->each = NULL;
    const uint64_t n = b->packed_elems, bits = 8 * b->packed_bytes / n;
    const uint64_t others = b->frozen_elems - n;
    const uint64_t rest =
        b->frozen_bytes - b->packed_bytes - b->statistic_bytes;
    if (n * bits == 8 * b->packed_bytes)
        PUT(p, TERM_FROZEN, "frozen weights of base_dtype", F("P_base", n),
            F("bits", bits), D("bits of a byte", 8));
    else
        PUT(p, TERM_FROZEN, "frozen weights of base_dtype",
            F("bytes", b->packed_bytes));
    if (others != 0 && rest % others == 0)
        PUT(p, TERM_FROZEN, "other frozen weights",
            F("(P_frozen - P_base)", others),
            F("bytes per weight", rest / others));
    else
        PUT(p, TERM_FROZEN, "other frozen weights", F("bytes", rest));
    PUT(p, TERM_FROZEN, "scales of base_dtype, tensor by tensor",
        F("bytes", b->statistic_bytes));
}

/* As elements times a size where all have the same. */
static void put_frozen(struct put *p, const struct stage *s)
{
    const uint64_t n = s->sum.frozen_elems, bytes = s->sum.frozen_bytes;
    if (n != 0 && bytes % n == 0) {
        PUT(p, TERM_FROZEN, "frozen weights", F("P_frozen", n),
            F("bytes per frozen weight", bytes / n));
        return;
    }
    struct put why = *p, told = *p;
    if (p->why != NULL && s->sum.packed_elems != 0) {
        told.why = NULL;
        explain_packed(&why, &s->sum);
    }
    PUT(&told, TERM_FROZEN, "frozen weights, scales included",
        F("bytes", bytes));
    p->over = told.over;
}

static void put_trained(struct put *p, const struct stage *s)
{
    const uint64_t mixed = states_mixed_bytes(&s->sum);
    if (mixed != 0)
        PUT(p, TERM_WEIGHTS, "adapters, and modules in full, as they are",
            F("bytes", mixed));
    else if (s->run->fp8_params && !run_adapts(s->run))
        PUT(p, TERM_WEIGHTS, "weights, without those of linears",
            F("P - P_linear", s->sum.elems - s->sum.fp8_elems),
            F("bytes per weight", dtype_size(s->run->prec.param)));
    else
        PUT(p, TERM_WEIGHTS, "weights", F("P", s->sum.elems),
            F("bytes per weight", dtype_size(s->run->prec.param)));
}

/* Transformer Engine's caches, or the weights themselves: as they are for
 * forward, turned round for backward. Tensor cores of Blackwell read either
 * way, so that one scale a tensor needs no second copy (csrc/quantizer.cpp,
 * is_non_tn_fp8_gemm_supported). */
static void put_fp8(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const bool one = run_fp8_is_whole(run) && run->gpu.arch == ARCH_BLACKWELL;
    if (!run->prec.fp8 || run->impl != IMPL_MEGATRON)
        return;
    if (run->fp8_recipe == FP8_NVFP4)
        PUT(p, TERM_FP8_WEIGHTS, "fp4 weights and their transposes",
            F("2 P_linear / 2", s->sum.fp8_elems));
    else
        PUT(p, TERM_FP8_WEIGHTS,
            one ? "fp8 weights" : "fp8 weights and their transposes",
            F("P_linear", s->sum.fp8_elems), A("copies", one ? 1 : 2));
    if (s->sum.fp8_scale_bytes != 0)
        PUT(p, TERM_FP8_WEIGHTS, "their scales",
            F("bytes", s->sum.fp8_scale_bytes));
}

static void rest_weights(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t size = dtype_size(run->prec.param);
    if (engine_shards_offloaded(run) || engine_zero3_fetches(run)) {
        PUT(p, TERM_FROZEN, FROZEN_SCALES, F("bytes", s->sum.statistic_bytes));
    } else if (run_shards_weights(run)) {
        PUT(p, TERM_WEIGHTS, WEIGHT_SHARDS,
            F("P/N, tensor by tensor", s->sum.own_elems),
            F("bytes per weight", size));
        PUT(p, TERM_FROZEN, FROZEN_SHARDS,
            F("bytes of P/N, tensor by tensor", s->sum.own_frozen_bytes));
        if (run_second_parts(run) != 0) /* which nothing drops */
            PUT(p, TERM_SECOND, "second shards of frozen weights",
                F("bytes of P/N, tensor by tensor",
                  s->sum.own_frozen_bytes - s->sum.statistic_bytes),
                F("N/hpz_partition_size", run_second_parts(run)));
    } else {
        put_trained(p, s);
        put_frozen(p, s);
    }
    put_fp8(p, s);
    if (run_zero_is(run, 3))
        PUT(p, TERM_GATHERED, "parameters below the persistence threshold",
            F("elements", s->sum.persistent_elems),
            F("bytes per weight", size));
}

static void rest_master(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t size = dtype_size(run->prec.master);
    if (size == 0)
        return;
    switch (run_sharding(run)) {
    case SHARDING_NONE:
        PUT(p, TERM_MASTER, "master weights", F("P", s->sum.elems),
            F("bytes per master weight", size));
        return;
    case SHARDING_FLAT:
        PUT(p, TERM_MASTER, "master weights, sharded",
            F("P / N",
              engine_flat_share(run, s->sum.dense_elems, s->sum.expert_elems)),
            F("bytes per master weight", size));
        return;
    case SHARDING_TENSOR:
    case SHARDING_ROWS:
        PUT(p, TERM_MASTER, "master weights, sharded",
            F("P/N, tensor by tensor", s->sum.own_elems),
            F("bytes per master weight", size));
        return;
    }
}

/* Bytes of moments: an element's times the elements, where the optimizer
 * treats all of them alike. */
static void put_moments(struct put *p, const struct run *run, const char *sym,
                        uint64_t elems, uint64_t bytes, uint64_t ranks)
{
    const char *rule = optimizer_rule(run->optimizer);
    if (elems != 0 && bytes % elems == 0)
        PUT(p, TERM_MOMENTS, rule, F(sym, elems),
            F("bytes per element", bytes / elems), D("N", ranks));
    else
        PUT(p, TERM_MOMENTS, rule, F("bytes", bytes), D("N", ranks));
}

/* torch's fused kernels read the number of the step from the GPU: a scalar a
 * tensor (torch/optim/adam.py, _init_group); DeepSpeed's and Megatron's fused
 * Adam count on the host. */
static bool counts_on_gpu(const struct run *run)
{
    return run->optimizer == OPT_ADAMW && run->optimizer_impl == OPTIMPL_FUSED
           && (run->engine == ENGINE_DDP || run_is_fsdp(run));
}

static void rest_scalars(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    if (counts_on_gpu(run))
        PUT(p, TERM_MOMENTS, "the step's number, a scalar a tensor",
            A("tensors", s->sum.tensors), F("bytes", ALLOC_ROUND));
    /* transformers/optimization.py, Adafactor: state["RMS"] */
    if (run->optimizer == OPT_ADAFACTOR)
        PUT(p, TERM_MOMENTS, "root mean square, a scalar a tensor",
            A("tensors", s->sum.tensors), F("bytes", ALLOC_ROUND));
    if (run->optimizer == OPT_APOLLO) /* apollo.py: state["scaled_grad"] */
        PUT(p, TERM_MOMENTS, "norm of the last update, a scalar a matrix",
            A("matrices", s->sum.loop.projected.count),
            F("bytes", ALLOC_ROUND));
    /* galore_torch 1.0's positional arguments set bitsandbytes' max_unorm, for
       which each state has a norm (optim/optimizer.py, unorm_vec) */
    if (run->optimizer == OPT_GALORE8BIT)
        PUT(p, TERM_MOMENTS, "norm of the update, a scalar a tensor",
            A("tensors", s->sum.tensors), F("bytes", ALLOC_ROUND));
    if (run_has_8bit_moments(run) || run->optimizer == OPT_GALORE8BIT)
        PUT(p, TERM_MOMENTS, "tables of 8-bit codes, for each optimizer",
            A("moments", run->optimizer == OPT_LION8BIT ? 1 : 2),
            F("optimizers", run->optimizer_in_backward ? s->sum.coded : 1),
            F("bytes", BNB_CODE_BYTES));
}

static void rest_moments(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const struct block_states *sum = &s->sum;
    rest_scalars(p, s);
    switch (run_sharding(run)) {
    case SHARDING_NONE:
        put_moments(p, run, "P", sum->elems, sum->moment_bytes, 1);
        return;
    case SHARDING_FLAT:
        put_moments(p, run, "P", sum->dense_elems, sum->dense_moment_bytes,
                    run->shard);
        put_moments(p, run, "P_expert", sum->expert_elems,
                    sum->moment_bytes - sum->dense_moment_bytes,
                    run->expert_shard);
        return;
    case SHARDING_TENSOR:
    case SHARDING_ROWS:
        put_moments(p, run, "P/N, tensor by tensor",
                    sum->own_elems - sum->own_dropped, sum->own_moment_bytes,
                    1);
        return;
    }
}

/* Of an optimizer on the CPU, the part that is not: fp32 weights, two moments,
 * and fp32 gradients that are never given back (stage3.py,
 * initialize_optimizer_states; hybrid_optimizer.py, _set_sub_optimizer_grads:
 * where main gradients are fp32, these). Megatron's fp32 weights need no copy
 * (_get_sub_optimizer_param_groups). */
static void rest_stays(struct put *p, const struct stage *s)
{
    if (run_zero_is(s->run, 3) || s->run->prec.param != DT_FP32)
        PUT(p, TERM_MASTER, "master weights that stay on the GPU",
            F("elements", s->stays), F("bytes", FP32));
    PUT(p, TERM_MOMENTS, "their moments", F("elements", s->stays),
        A("moments", 2), F("bytes", FP32));
    if (run_zero_is(s->run, 3) || s->run->prec.grad != DT_FP32)
        PUT(p, TERM_GRAD_SHARDS, "their fp32 gradients",
            F("elements", s->stays), F("bytes", FP32));
}

/* A dict of a step's gradients that each parameter of the partition refers to
 * (tensor_fragment.gradient_dict); where one overflowed, the optimizer let go
 * of it by making another, and what was in it stayed for good
 * (stage_1_and_2.py, step, 0.8.2 to 0.17.0). */
static void rest_overflow(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    if (run->zero_overflow == OVERFLOW_KEPT && run_overflows(run))
        PUT(p, TERM_GRAD_SHARDS,
            "gradient partition of the first step that overflowed",
            F("elements", s->partition),
            F("bytes per gradient", dtype_size(run->prec.grad)));
}

static void rest_grads(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t size = dtype_size(run->prec.grad);
    if (run->engine == ENGINE_MEGATRON)
        PUT(p, TERM_GRAD_BUFFER,
            run_has_loose_grads(run) ? "main gradients, of the step before"
                                     : "main gradients, a permanent buffer",
            F("P", s->sum.elems), F("bytes per gradient", size));
    engine_kept_copies(p, s);
    if (run_keeps_grads(run)) {
        if (engine_reduces_blocks(run))
            PUT(p, TERM_GRAD_SHARDS, "gradient shards, zeroed in place",
                F("P/N, tensor by tensor", s->sum.own_elems),
                F("bytes per gradient", size));
        else
            PUT(p, TERM_GRADS, "gradients, zeroed in place",
                F("bytes", s->wgrad));
    }
    if (run_is_bf16_optimizer(run))
        PUT(p, TERM_GRAD_BUFFER, "fp32 gradient buffer (BF16_Optimizer)",
            F("P", s->sum.elems), F("bytes per gradient", FP32));
    if (run_zero_is(run, 3) && !engine_optimizer_offloaded(run)
        && !engine_makes_zero3_grads(run))
        PUT(p, TERM_GRAD_SHARDS, "gradient partition, permanent",
            F("P/N, tensor by tensor", s->sum.own_elems),
            F("bytes per gradient", size));
    rest_overflow(p, s);
}

/* Under torch_autocast one for each type that is sent, in that type. */
static void put_permanent_bucket(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t low = s->sum.low_elems;
    if (low == 0 || low < s->sum.elems)
        PUT(p, TERM_BUCKETS, "reduce bucket, permanent",
            F("reduce_bucket", run->reduce_bucket),
            F("bytes", dtype_size(run->prec.reduce)));
    if (low != 0)
        PUT(p, TERM_BUCKETS, "reduce bucket of linears, permanent",
            F("reduce_bucket", run->reduce_bucket),
            F("bytes", dtype_size(run->prec.compute)));
}

uint64_t engine_cublas_workspace(const struct run *run)
{
    const bool hopper =
        run->gpu.arch == ARCH_HOPPER || run->gpu.arch == ARCH_BLACKWELL;
    return hopper || run->deterministic ? CUBLAS_WORKSPACE_HOPPER_BYTES
                                        : CUBLAS_WORKSPACE_BYTES;
}

static void rest_buffers(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const bool ddp = run->engine == ENGINE_DDP && run->dp * run->cp > 1;
    const uint64_t mixed = states_mixed_bytes(&s->sum);
    if (ddp && mixed != 0)
        PUT(p, TERM_BUCKETS, "DDP buckets, a second copy of the gradients",
            F("bytes", mixed));
    else if (ddp)
        PUT(p, TERM_BUCKETS, "DDP buckets, a second copy of the gradients",
            F("P", s->sum.elems),
            F("bytes per gradient", dtype_size(run->prec.grad)));
    if (run_zero_is(run, 3) && !engine_makes_zero3_grads(run)
        && !run_is_loose(run))
        put_permanent_bucket(p, s);
    if (run_is_zero_1_or_2(run) && engine_optimizer_offloaded(run))
        PUT(p, TERM_BUCKETS, "gradient buffer for the way to the CPU",
            F("largest parameter", s->sum.largest_grad),
            F("bytes per gradient", dtype_size(run->prec.grad)));
    PUT(p, TERM_WORKSPACE, "tables of modules",
        F("bytes", s->sum.buffer_bytes));
    PUT(p, TERM_WORKSPACE, "Megatron's global buffer",
        F("bytes of its largest use", s->global_buffer_bytes));
    PUT(p, TERM_WORKSPACE, CUBLAS_LABEL, A("workspaces", CUBLAS_WORKSPACES),
        F("bytes", engine_cublas_workspace(run)));
    if (run->async_tp && !run->prec.fp8) /* 8-bit ones have none that stays */
        PUT(p, TERM_WORKSPACE,
            "cuBLAS workspaces of the second stream, one a thread",
            A("workspaces", CUBLAS_WORKSPACES),
            F("bytes", engine_cublas_workspace(run)));
}

void engine_rest(struct put *p, const struct stage *s)
{
    rest_weights(p, s);
    rest_grads(p, s);
    if (!engine_optimizer_offloaded(s->run)) {
        rest_master(p, s);
        rest_moments(p, s);
    } else if (s->stays != 0) {
        rest_stays(p, s);
    }
    rest_buffers(p, s);
    megatron_rest(p, s);
}

/* Parameters' own gradients are views of the flat ones: zero_grad frees these
 * only where the flat ones are what the optimizer has. */
void engine_between(struct put *p, const struct stage *s)
{
    if (run_keeps_flat_grads(s->run))
        PUT(p, TERM_GRAD_SHARDS, "flat gradients, up to the next forward",
            F("P/N, tensor by tensor", s->sum.own_elems),
            F("bytes per gradient", dtype_size(s->run->prec.grad)));
}
