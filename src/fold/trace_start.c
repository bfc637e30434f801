/*
 * What the start of a run leaves in the allocator's cache, where that is known:
 * Megatron-DeepSpeed builds the weights tensor by tensor, flattens them, and
 * runs a step without gradients that makes the optimizer's states (DeepSpeed
 * 0.5.10, runtime/zero/stage_1_and_2.py, runtime/fp16/fused_optimizer.py; 0.7.0,
 * runtime/bf16_optimizer.py); so do ZeRO-1 and -2, but for that step. Owns
 * nothing that is alive afterwards.
 */
#include "fold/trace_private.h"

#include "base/banned.h"

static hold_id born(struct tracer *r, uint64_t bytes)
{
    return tracer_birth(r, COMP_TEMPORARY, "start", bytes, STREAM_COMPUTE);
}

static hold_id *tensors_born(struct tracer *r)
{
    const uint64_t size = dtype_size(r->s->run->prec.param);
    hold_id *id = ARENA_NEW(r->a, hold_id, r->trained.n + 1);
    if (id == NULL) {
        r->failed = true;
        return NULL;
    }
    for (size_t i = 0; i < r->trained.n; i++)
        id[i] = born(r, r->trained.v[i] * size);
    return id;
}

static void tensors_die(struct tracer *r, hold_id *id)
{
    for (size_t i = 0; id != NULL && i < r->trained.n; i++)
        tracer_death(r, &id[i]);
}

/* DeepSpeedZeroOptimizer: since February 2026 the weights are flattened where
 * they are if the copy fits beside them, before by way of the CPU, with an
 * emptied cache; then a clone of the rank's partition on its way to the master
 * weights' type, and gradients of zero (runtime/zero/stage_1_and_2.py, __init__,
 * initialize_optimizer_states). */
static void start_zero(struct tracer *r)
{
    const struct run *run = r->s->run;
    const uint64_t all = r->s->sum.elems;
    const uint64_t own = div_up(all, run->shard);
    const uint64_t size = dtype_size(run->prec.param);
    const uint64_t wide = dtype_size(run->prec.master);
    const bool here = run->zero_flatten == FLATTEN_GPU
                      && 2 * all * size <= run->capacity_bytes;
    hold_id *made = here ? tensors_born(r) : NULL;
    hold_id flat = born(r, all * size);
    tensors_die(r, made);
    hold_id half = born(r, own * size);
    if (run->offload_optimizer == OFFLOAD_NONE) {
        const bool same = run->prec.master == run->prec.param;
        hold_id master = same ? half : born(r, own * wide);
        if (!same)
            tracer_death(r, &half);
        hold_id zeros = born(r, own * wide);
        tracer_death(r, &zeros);
        tracer_death(r, &master);
    } else {
        tracer_death(r, &half);
    }
    tracer_death(r, &flat); /* they are born again where they lay */
}

void trace_start(struct tracer *r)
{
    const struct run *run = r->s->run;
    if (run->engine == ENGINE_FSDP && run->zero != 0) {
        trace_wrap(r);
        return;
    }
    if (run_flattens(run)) {
        start_zero(r);
        return;
    }
    if (!run_pipelines(run) || run->prec.master == DT_NONE)
        return;
    const uint64_t size = dtype_size(run->prec.param);
    const uint64_t all = r->s->sum.elems;
    const uint64_t own =
        run_sharding(run) == SHARDING_FLAT ? div_up(all, run->shard) : all;
    const bool bf16 = run->prec.grad != run->prec.param; /* BF16_Optimizer */
    const bool by_way_of_cpu = run->zero == 1 && !bf16;  /* move_to_cpu */
    hold_id *made = tensors_born(r), *clones = NULL;
    if (by_way_of_cpu)
        tensors_die(r, made);
    else if (!bf16)
        clones = tensors_born(r);
    hold_id half = born(r, own * size); /* clone().float() */
    levels_after(r, PHASE_REST);
    tracer_death(r, &half);
    tensors_die(r, clones);
    if (!by_way_of_cpu)
        tensors_die(r, made);
    if (bf16)
        return; /* it has its gradients already */
    hold_id zeros = born(r, own * dtype_size(run->prec.master));
    tracer_death(r, &zeros);
}
