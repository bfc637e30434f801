/*
 * What expert-parallel overlap does not go with: Megatron's own conditions
 * (core/transformer/transformer_config.py, core/pipeline_parallel), and what is
 * not modelled beside it.
 */
#include "spec/resolve.h"

#include "base/banned.h"

static bool in_16_bits(const struct run *r)
{
    return r->prec.compute == DT_BF16 || r->prec.compute == DT_FP16;
}

/* Megatron's own layers have a backward_dw() that does nothing (core/
 * tensor_parallel/layers.py). Transformer Engine's store takes the input gathered,
 * and of experts the gradients' own memory (pytorch/module/grouped_linear.py,
 * wgrad_list). */
static void check_delayed(const struct run *r, struct diag *d)
{
    const struct obstacle all[] = {
        { r->impl != IMPL_MEGATRON, KEY_DELAY_WGRAD, MEMPLAN_E_CONFLICT,
          "delay_wgrad_compute with Megatron's own layers, which delay nothing",
          "use --implementation megatron" },
        { !r->wgrad_fusion, KEY_DELAY_WGRAD, MEMPLAN_E_UNSUPPORTED,
          "delay_wgrad_compute without fused gradients of weights is not "
          "modelled",
          "use --grad-accum-fusion true, or leave it out" },
        { r->tp > 1, KEY_DELAY_WGRAD, MEMPLAN_E_UNSUPPORTED,
          "delay_wgrad_compute with tensor parallelism is not modelled",
          "use --tp 1, or leave it out" },
    };
    resolve_refuse(d, all, sizeof all / sizeof all[0]);
}

void resolve_check_ep_overlap(const struct run *r, const struct spec *s,
                              struct diag *d)
{
    const bool scheduled = r->pp == 1 || r->schedule == SCHED_INTERLEAVED;
    const struct obstacle all[] = {
        { !resolve_is_megatron(r), KEY_EP_OVERLAP, MEMPLAN_E_CONFLICT,
          "ep_overlap outside of Megatron's layers",
          "add --framework megatron" },
        { r->engine != ENGINE_MEGATRON, KEY_EP_OVERLAP, MEMPLAN_E_UNSUPPORTED,
          "ep_overlap with this engine is not modelled",
          "use --engine megatron, or leave it out" },
        { s->experts == 0, KEY_EP_OVERLAP, MEMPLAN_E_CONFLICT,
          "ep_overlap of a model without experts", "leave it out" },
        { r->ep <= 1, KEY_EP_OVERLAP, MEMPLAN_E_CONFLICT,
          "ep_overlap without expert parallelism", "add --ep 2 or more" },
        { r->moe_dispatcher == DISPATCH_ALLGATHER, KEY_EP_OVERLAP,
          MEMPLAN_E_CONFLICT, "ep_overlap with a dispatcher that gathers",
          "use --moe-dispatcher alltoall" },
        { !scheduled, KEY_EP_OVERLAP, MEMPLAN_E_CONFLICT,
          "ep_overlap in a pipeline without virtual stages",
          "add --vpp 2 or more" },
        { r->recompute == RECOMP_FULL, KEY_EP_OVERLAP, MEMPLAN_E_CONFLICT,
          "ep_overlap with recompute 'full'",
          "use --recompute selective or none" },
        { r->recompute == RECOMP_SELECTIVE
              && (r->recompute_modules >> REMOD_MOE & 1) != 0,
          KEY_EP_OVERLAP, MEMPLAN_E_CONFLICT,
          "ep_overlap with recompute_modules 'moe'",
          "use moe_act or shared_experts" },
        { !in_16_bits(r), KEY_EP_OVERLAP, MEMPLAN_E_CONFLICT,
          "ep_overlap without bf16 or fp16", "use --precision bf16-mixed" },
        { s->mtp_layers > 1, KEY_EP_OVERLAP, MEMPLAN_E_CONFLICT,
          "ep_overlap with more than one layer of multi-token prediction",
          "leave it out" },
        { run_away(r) != AWAY_NOTHING || r->offload_activations != OFFLOAD_NONE,
          KEY_EP_OVERLAP, MEMPLAN_E_UNSUPPORTED,
          "ep_overlap with activations on the host is not modelled",
          "leave one of them out" },
    };
    if (!r->ep_overlap && r->ep_overlap_early)
        resolve_pointless(d, KEY_EP_OVERLAP_EARLY, "ep_overlap",
                          "add --ep-overlap true");
    if (!r->ep_overlap && r->delay_wgrad)
        resolve_pointless(d, KEY_DELAY_WGRAD, "ep_overlap",
                          "add --ep-overlap true");
    if (r->ep_overlap)
        resolve_refuse(d, all, sizeof all / sizeof all[0]);
    if (r->ep_overlap && r->delay_wgrad)
        check_delayed(r, d);
}
