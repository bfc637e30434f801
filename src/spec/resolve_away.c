/*
 * Owns what is said of activations that wait on the host: which go, as which
 * version has it, and what has no effect beside.
 */
#include "spec/resolve.h"

#include "base/unit.h"

#include <inttypes.h>

#include "base/banned.h"

/* Norms that are part of a linear, and experts that there are none of, are no
 * modules (core/transformer/transformer_layer.py, _set_offload_modules). */
static uint64_t missing_modules(const struct run *r, const struct spec *spec)
{
    const bool experts = spec->experts > 0;
    const uint64_t grouped = experts && r->grouped_gemm ? 0 : 1;
    return r->offload_modules
           & ((spec->kv_rank > 0 ? 0 : UINT64_C(1) << OFFMOD_ATTN_NORM)
              | (experts ? 0 : UINT64_C(1) << OFFMOD_MLP_NORM)
              | grouped << OFFMOD_EXPERT_FC1 | grouped << OFFMOD_MOE_ACT
              | ((r->recompute_modules >> REMOD_CORE_ATTN & 1)
                 << OFFMOD_CORE_ATTN));
}

/* Released before the copy is over, a block waits for it: only `reserved` and
 * the seconds depend on how fast that is. */
static void say_modules(struct run *r, const struct spec *spec)
{
#define MODULE_NAME(id, text) text,
    static const char *const name[] = { OFFLOAD_MODULE_MAP(MODULE_NAME) };
#undef MODULE_NAME
    if (r->offload_modules == 0)
        return;
    resolve_note(r, KEY_OFFLOAD_MODULES,
                 "tensors of %" PRIu64 " element%s and more that modules keep "
                 "wait on the CPU, as in Megatron-LM of August 2026 from the "
                 "second step on; what a copy still reads is taken as free",
                 r->offload_min_elems, unit_s((double)r->offload_min_elems));
    const uint64_t missing = missing_modules(r, spec);
    for (unsigned i = 0; i < OFFMOD_COUNT; i++)
        if ((missing >> i & 1) != 0)
            resolve_note(r, KEY_OFFLOAD_MODULES,
                         "'%s' has no effect: there is no such module of its "
                         "own here",
                         name[i]);
    if (!r->pin_memory && r->offload_optimizer == OFFLOAD_NONE)
        resolve_note(r, KEY_PIN_MEMORY,
                     "'pin_memory' has no effect: Megatron pins all");
}

/* Another order before (cpu_offload_v1.py). */
void resolve_say_away(struct run *r, const struct spec *spec)
{
    if (run_away(r) == AWAY_TENSORS)
        resolve_note(
            r, KEY_OFFLOAD_ACTIVATIONS,
            "what is kept waits on the CPU, tensors of 1 KiB and more, "
            "as TRL's OffloadActivations of 2026 has it: what two "
            "operations keep one after the other stays");
    if (r->offload_activations == OFFLOAD_NVME)
        resolve_note(
            r, KEY_OFFLOAD_ACTIVATIONS,
            "checkpoints in files, as Axolotl 0.9.2 to 0.11 has them "
            "(gradient_checkpointing: offload_disk): as many as may be "
            "unwritten, 8, are on the GPU, which is behind the CPU");
    say_modules(r, spec);
    if (r->away_layers == 0)
        return;
    resolve_note(r, KEY_CPU_OFFLOADING_NUM_LAYERS,
                 "activations of the first %" PRIu64 " of %" PRIu64
                 " layers wait on the CPU, tensors of 256 Ki elements and "
                 "more, in the order of Transformer Engine 2.10 and later",
                 r->away_layers, (uint64_t)r->stage_layers[0]);
    if (!r->pin_memory && r->offload_optimizer == OFFLOAD_NONE)
        resolve_note(r, KEY_PIN_MEMORY,
                     "'pin_memory' has no effect: Transformer Engine pins all");
}
