/*
 * Which pipeline schedules go with which framework and layout: those that
 * compute gradients of weights apart. Owns refusals, no default.
 */
#include "spec/resolve.h"

#include <inttypes.h>

#include "base/banned.h"

/* Megatron's linears hand their gradients to a store (sail-sg's fork,
 * Transformer Engine's delay_wgrad_compute); torchtitan's ZBVZeroBubble and
 * DualPipeV split autograd's graph instead, and place chunks otherwise. */
static void check_framework(const struct run *r, struct diag *d)
{
    char name[RESOLVE_TEXT_MAX], buf[RESOLVE_TEXT_MAX];
    const bool megatron =
        r->impl == IMPL_MEGATRON || r->impl == IMPL_MEGATRON_LOCAL;
    if (megatron && r->engine == ENGINE_MEGATRON)
        return;
    memplan_error *e = setup_error(
        d, MEMPLAN_E_UNSUPPORTED, KEY_SCHEDULE,
        "schedule '%s' with %s '%s' is not modelled yet",
        resolve_text(r, KEY_SCHEDULE, name),
        setup_field(megatron ? KEY_ENGINE : KEY_IMPLEMENTATION)->key,
        resolve_text(r, megatron ? KEY_ENGINE : KEY_IMPLEMENTATION, buf));
    diag_hint(e, "use --framework megatron, or --schedule 1f1b");
}

/* dualpipe.py, step: asserts all three. */
static void check_dual(const struct run *r, struct diag *d)
{
    if (r->pp % 2 != 0) {
        memplan_error *e = setup_error(
            d, MEMPLAN_E_CONFLICT, KEY_PP,
            "schedule 'dualpipe' pairs stages, pp %" PRIu64 " is odd", r->pp);
        diag_hint(e, "use --pp %" PRIu64, r->pp + 1);
    } else if (r->grad_accum % 2 != 0 || r->grad_accum < 2 * r->pp) {
        memplan_error *e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_GRAD_ACCUM,
                                       "schedule 'dualpipe' cannot run %" PRIu64
                                       " micro-batches through pp %" PRIu64,
                                       r->grad_accum, r->pp);
        diag_hint(e, "use an even number, %" PRIu64 " or more", 2 * r->pp);
    }
}

void resolve_check_schedule(const struct run *r, struct diag *d)
{
    const bool dual = r->schedule == SCHED_DUALPIPE;
    if (r->pp == 1 || (r->schedule != SCHED_ZB_H1 && !dual))
        return;
    check_framework(r, d);
    if (dual)
        check_dual(r, d);
    if (r->offload_activations == OFFLOAD_NONE)
        return;
    char name[RESOLVE_TEXT_MAX];
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OFFLOAD_ACTIVATIONS,
                    "offloaded activations with schedule '%s' are not "
                    "modelled yet",
                    resolve_text(r, KEY_SCHEDULE, name));
    diag_hint(e, "leave it out, or use --schedule 1f1b");
}
