/*
 * What expert-parallel overlap does not go with: Megatron's own conditions
 * (core/transformer/transformer_config.py, core/pipeline_parallel), and what is
 * not modelled beside it.
 */
#include "spec/resolve.h"

#include "base/banned.h"

/* One thing that is in the way. */
struct obstacle {
    bool there;
    memplan_status status;
    const char *what, *hint;
};

static bool in_16_bits(const struct run *r)
{
    return r->prec.compute == DT_BF16 || r->prec.compute == DT_FP16;
}

void resolve_check_ep_overlap(const struct run *r, const struct spec *s,
                              struct diag *d)
{
    const bool scheduled = r->pp == 1 ? r->schedule == SCHED_1F1B
                                      : r->schedule == SCHED_INTERLEAVED;
    const struct obstacle all[] = {
        { !resolve_is_megatron(r), MEMPLAN_E_CONFLICT,
          "outside of Megatron's layers", "add --framework megatron" },
        { r->engine != ENGINE_MEGATRON, MEMPLAN_E_UNSUPPORTED,
          "with this engine is not modelled",
          "use --engine megatron, or leave it out" },
        { s->experts == 0, MEMPLAN_E_CONFLICT, "of a model without experts",
          "leave it out" },
        { r->ep <= 1, MEMPLAN_E_CONFLICT, "without expert parallelism",
          "add --ep 2 or more" },
        { r->moe_dispatcher != DISPATCH_ALLTOALL, MEMPLAN_E_CONFLICT,
          "with a dispatcher that gathers", "use --moe-dispatcher alltoall" },
        { !scheduled, MEMPLAN_E_CONFLICT,
          r->pp == 1 ? "with this schedule"
                     : "in a pipeline without virtual stages",
          r->pp == 1 ? "use --schedule 1f1b" : "add --vpp 2 or more" },
        { r->recompute == RECOMP_FULL, MEMPLAN_E_CONFLICT,
          "with recompute 'full'", "use --recompute selective or none" },
        { r->recompute == RECOMP_SELECTIVE
              && (r->recompute_modules >> REMOD_MOE & 1) != 0,
          MEMPLAN_E_CONFLICT, "with recompute_modules 'moe'",
          "use moe_act or shared_experts" },
        { !in_16_bits(r), MEMPLAN_E_CONFLICT, "without bf16 or fp16",
          "use --precision bf16-mixed" },
        { s->mtp_layers > 1, MEMPLAN_E_CONFLICT,
          "with more than one layer of multi-token prediction",
          "leave it out" },
        { run_away(r) != AWAY_NOTHING || r->offload_activations != OFFLOAD_NONE,
          MEMPLAN_E_UNSUPPORTED, "with activations on the host is not modelled",
          "leave one of them out" },
    };
    if (!r->ep_overlap && r->ep_overlap_early)
        resolve_pointless(d, KEY_EP_OVERLAP_EARLY, "ep_overlap",
                          "add --ep-overlap true");
    for (size_t i = 0; r->ep_overlap && i < sizeof all / sizeof all[0]; i++) {
        if (!all[i].there)
            continue;
        memplan_error *e = setup_error(d, all[i].status, KEY_EP_OVERLAP,
                                       "ep_overlap %s", all[i].what);
        diag_hint(e, "%s", all[i].hint);
        return;
    }
}
