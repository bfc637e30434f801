/*
 * Owns what follows from several keys of a resolved run: which of a framework's
 * ways it trains in. Reads, and changes nothing.
 */
#include "spec/setup.h"

#include "base/count.h"
#include "data/constants.h"

#include "base/banned.h"

bool run_splits_backward(const struct run *run)
{
    switch (run->schedule) {
    case SCHED_ZB_H1:
    case SCHED_ZB_V:
    case SCHED_DUALPIPE:
    case SCHED_DUALPIPE_V:
    case SCHED_ZB_INTERLEAVED: return run->pp > 1;
    case SCHED_1F1B:
    case SCHED_GPIPE:
    case SCHED_INTERLEAVED:
    case SCHED_NAIVE:
    case SCHEDULE_COUNT: break;
    }
    return false;
}

bool run_spreads(const struct run *run)
{
    return run->schedule == SCHED_NAIVE && run->pp > 1 && run_is_hf(run);
}

static bool ends_count(const struct run *run)
{
    return run_loops(run) && run_torch_pipelines(run);
}

uint64_t run_layers_before(const struct run *run, uint64_t rank, uint64_t chunk)
{
    const uint64_t layers = run->stage_layers[rank];
    if (!ends_count(run))
        return run_chunk_before(layers, run_chunks(run), chunk);
    const uint64_t embed = rank == 0, head = rank + 1 == run->pp;
    const uint64_t before =
        run_chunk_before(layers + embed + head, run->vpp, chunk);
    return min_u64(chunk > 0 ? before - embed : before, layers);
}

uint64_t run_layer_chunk(const struct run *run, uint64_t rank, uint64_t layer)
{
    const uint64_t layers = run->stage_layers[rank];
    if (!ends_count(run))
        return run_chunk_with(layers, run_chunks(run), layer);
    const uint64_t embed = rank == 0, head = rank + 1 == run->pp;
    return run_chunk_with(layers + embed + head, run->vpp, layer + embed);
}

uint64_t run_chunk_first(const struct run *run, uint64_t rank, uint64_t chunk)
{
    uint64_t layer = 0;
    for (uint64_t r = 0; r < run->pp; r++)
        layer += run_layers_before(run, r, r < rank ? chunk + 1 : chunk);
    return layer;
}

bool run_pipelines(const struct run *run)
{
    return run->engine == ENGINE_DEEPSPEED && run->impl == IMPL_MEGATRON_LOCAL
           && run->framework == FW_MEGATRON_DEEPSPEED && run->zero <= 1;
}

bool run_torch_pipelines(const struct run *run)
{
    return run->impl == IMPL_TORCHTITAN && run->pp > 1
           && (run->engine == ENGINE_FSDP2 || run->engine == ENGINE_DDP);
}

bool run_reduces_last(const struct run *run)
{
    return run_is_fsdp(run) && run->grad_sync == SYNC_LAST;
}

bool run_flattens(const struct run *run)
{
    return run_is_zero_1_or_2(run) && !run_pipelines(run);
}

bool run_has_8bit_moments(const struct run *run)
{
    return run->optimizer == OPT_ADAM8BIT
           || run->optimizer == OPT_PAGED_ADAM8BIT
           || run->optimizer == OPT_LION8BIT;
}

bool run_pages(const struct run *run)
{
    return (run->optimizer == OPT_PAGED_ADAM8BIT
            || run->optimizer == OPT_PAGED_ADAMW)
           && run->offload_optimizer == OFFLOAD_NONE
           && run->offload_params == OFFLOAD_NONE;
}

bool run_projects(const struct run *run)
{
    return run->optimizer == OPT_GALORE || run->optimizer == OPT_GALORE8BIT
           || run->optimizer == OPT_APOLLO;
}

bool run_overflows(const struct run *run)
{
    return run_flattens(run) && run->prec.grad == DT_FP16
           && run->offload_optimizer == OFFLOAD_NONE;
}

bool run_gathers_in_8_bits(const struct run *run)
{
    return run->quantized_weights && run_zero_is(run, 3) && run->shard > 1;
}

bool run_reduces_in_4_bits(const struct run *run)
{
    return run->quantized_gradients && run_zero_is(run, 3)
           && run->shard > run->gpus_per_node;
}

bool run_offloads(const struct run *run)
{
    return run->offload_optimizer != OFFLOAD_NONE
           || run->offload_params != OFFLOAD_NONE
           || run->offload_activations != OFFLOAD_NONE;
}

enum away_how run_away(const struct run *run)
{
    if (run->away_layers > 0)
        return AWAY_LAYERS;
    if (run->offload_modules != 0)
        return AWAY_MODULES;
    return run->offload_activations == OFFLOAD_CPU
                   && run->recompute == RECOMP_NONE
               ? AWAY_TENSORS
               : AWAY_NOTHING;
}

bool run_checkpoints_in_cpu(const struct run *run)
{
    return run->offload_activations == OFFLOAD_CPU
           && run->engine == ENGINE_DEEPSPEED && run_is_megatron(run);
}

bool run_unloads_head(const struct run *run)
{
    return run->offload_activations == OFFLOAD_CPU && run_is_hf(run)
           && run->engine == ENGINE_DDP && !run_spreads(run);
}

/* DeepSpeed sets them to None whatever it is told (engine.py, zero_grad),
 * Megatron's are a permanent buffer. */
bool run_keeps_grads(const struct run *run)
{
    return run->zeroes_grads
           && (run->engine == ENGINE_DDP
               || (run_is_fsdp(run) && run->offload_params == OFFLOAD_NONE));
}

/* The flat gradient is let go when the root's forward finds that no parameter
 * has one (_flat_param.py, _reset_flat_param_grad_info_if_needed;
 * _runtime_utils.py, _root_pre_forward). */
bool run_keeps_flat_grads(const struct run *run)
{
    return run->use_orig_params && run->engine == ENGINE_FSDP && run->zero != 0
           && run->offload_params == OFFLOAD_NONE && !run->zeroes_grads;
}

bool run_is_bf16_pipeline(const struct run *run)
{
    return run_pipelines(run) && run->zero == 0 && run->prec.param == DT_BF16
           && run->prec.master == DT_FP32;
}

bool run_is_bf16_optimizer(const struct run *run)
{
    return run->engine == ENGINE_DEEPSPEED
           && (run->zero == 1 || run_is_bf16_pipeline(run))
           && run->prec.param == DT_BF16 && run->prec.grad == DT_FP32
           && run->offload_optimizer == OFFLOAD_NONE;
}

bool run_sends_tokens_once(const struct run *run)
{
    return run->moe_dispatcher == DISPATCH_FLEX && run_is_megatron(run)
           && run->ep > 1 && run->etp <= 1;
}

bool run_sends_parts(const struct run *run)
{
    if (run->pp == 1 || run->tp == 1)
        return false;
    return run->engine == ENGINE_DEEPSPEED
           || (run->engine == ENGINE_MEGATRON && run->scatter_gather
               && !run->sequence_parallel);
}

static bool is_old_stage_1(const struct run *run)
{
    return run_is_old_deepspeed(run) && run->zero == 1;
}

bool run_sums_tensors(const struct run *run)
{
    return run_is_zero_1_or_2(run) && !run_is_bf16_optimizer(run)
           && run->offload_optimizer == OFFLOAD_NONE
           && (!run->contiguous_gradients || is_old_stage_1(run));
}

bool run_sums_whole(const struct run *run)
{
    return run_is_bf16_optimizer(run) || run_sums_tensors(run)
           || (run_is_zero_1_or_2(run) && run->multi_rank_sums);
}

bool run_reduces_beside(const struct run *run)
{
    if (run->engine != ENGINE_DEEPSPEED || !run->overlap_comm)
        return run->overlap_comm;
    return run->zero > 0 && run->pp == 1 && !run_pipelines(run)
           && !run_is_bf16_optimizer(run) && !is_old_stage_1(run);
}

/* What moves to the CPU needs the buffer (stage_1_and_2.py, __init__); stage 1
 * of Megatron-DeepSpeed's years takes no notice of either key (engine.py,
 * _configure_zero_optimizer), nor does BF16_Optimizer. */
static bool collects_as_told(const struct run *run)
{
    return run->engine == ENGINE_DEEPSPEED && run->zero > 0
           && !run_pipelines(run) && !run_is_bf16_optimizer(run)
           && !is_old_stage_1(run);
}

bool run_is_loose(const struct run *run)
{
    return collects_as_told(run) && !run->contiguous_gradients
           && (run->zero == 3 || run->offload_optimizer == OFFLOAD_NONE);
}

bool run_deals_tensors(const struct run *run)
{
    return collects_as_told(run) && run->round_robin_gradients && run->zero < 3
           && run->shard > 1;
}

/* The CUDA of Megatron-DeepSpeed's years; lazy since. */
static bool loads_all_kernels(const struct run *r)
{
    return r->impl == IMPL_MEGATRON_LOCAL
           && r->framework == FW_MEGATRON_DEEPSPEED;
}

struct cuda_context run_cuda_context(const struct run *run)
{
    const bool ampere = run->gpu.arch == ARCH_AMPERE;
    const bool volta = run->gpu.arch == ARCH_VOLTA;
    if (loads_all_kernels(run))
        return (struct cuda_context){
            volta ? CUDA_CONTEXT_EAGER_VOLTA_BYTES : CUDA_CONTEXT_EAGER_BYTES,
            "bigscience tr11-176B-ml: A100, V100, before lazy loading",
            !ampere && !volta
        };
    if (run->gpu.arch == ARCH_HOPPER)
        return (struct cuda_context){
            CUDA_CONTEXT_HOPPER_BYTES,
            "tests/measured/memory-gpu.jsonl: H100, torch 2.11, CUDA 13.0",
            false
        };
    return (struct cuda_context){
        CUDA_CONTEXT_BYTES,
        "stas00/ml-engineering: A100, torch 2.1, lazy loading", !ampere
    };
}

bool dtype_is_quantised(enum dtype t)
{
    switch (t) {
    case DT_INT8:
    case DT_NF4:
    case DT_FP4:
    case DT_INT4: return true;
    case DT_FP32:
    case DT_BF16:
    case DT_FP16:
    case DT_FP8:
    case DT_E5M6:
    case DT_NONE:
    case DT_BOOL:
    case DT_INT32:
    case DT_INT64:
    case DTYPE_COUNT: return false;
    }
    return false;
}

bool run_keeps_experts(const struct run *r)
{
    const enum dtype base = r->base_dtype;
    return run_is_hf(r) && !run_is_litgpt(r) && !r->linear_experts
           && (base == DT_NF4 || base == DT_FP4 || base == DT_INT8);
}

enum dtype run_unquantised_dtype(const struct run *r)
{
    if (!dtype_is_quantised(r->base_dtype))
        return r->base_dtype;
    return r->kbit_cast == KBIT_CAST_NONE ? r->prec.compute : DT_FP32;
}
