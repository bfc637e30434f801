/*
 * Owns whose activations can wait on the host, and beside what: those of
 * checkpoints (torchtune, TRL), or of layers (Transformer Engine). Changes
 * nothing.
 */
#include "spec/resolve.h"

#include <inttypes.h>

#include "base/banned.h"

/* Megatron's own refusals (core/transformer/transformer_config.py), and
 * Transformer Engine's: the last layer stays (pytorch/cpu_offload.py). */
static void check_beside(const struct run *r, const struct spec *s,
                         struct diag *d)
{
    static const char name[] = "cpu_offloading_num_layers";
    memplan_error *e = NULL;
    if (r->pp > 1) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_CPU_OFFLOADING_NUM_LAYERS,
                        "%s with pp %" PRIu64 ", which Megatron refuses", name,
                        r->pp);
        diag_hint(e, "use --pp 1, or leave it out");
    } else if (r->recompute != RECOMP_NONE) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_CPU_OFFLOADING_NUM_LAYERS,
                        "%s with recomputation, which Megatron refuses", name);
        diag_hint(e, "use --recompute none, or leave it out");
    } else if (r->away_layers >= r->stage_layers[0]) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_CPU_OFFLOADING_NUM_LAYERS,
                        "%s %" PRIu64 " of %" PRIu64
                        " layers: the last one stays",
                        name, r->away_layers, (uint64_t)r->stage_layers[0]);
        diag_hint(e, "use %" PRIu64 " at most",
                  (uint64_t)r->stage_layers[0] - 1);
    } else if (s->decoder_layers > 0) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_CPU_OFFLOADING_NUM_LAYERS,
                        "%s of an encoder-decoder is not modelled yet", name);
        diag_hint(e, "leave it out");
    }
}

static void check_layers(const struct run *r, const struct spec *s,
                         struct diag *d)
{
    char buf[RESOLVE_TEXT_MAX];
    if (r->impl != IMPL_MEGATRON || r->engine == ENGINE_DEEPSPEED) {
        const bool impl = r->impl != IMPL_MEGATRON;
        memplan_error *e = setup_error(
            d, MEMPLAN_E_CONFLICT, KEY_CPU_OFFLOADING_NUM_LAYERS,
            "cpu_offloading_num_layers with %s '%s': it is Transformer "
            "Engine's, in Megatron",
            impl ? "implementation" : "engine",
            resolve_text(r, impl ? KEY_IMPLEMENTATION : KEY_ENGINE, buf));
        diag_hint(e, "use --framework megatron, or leave it out");
    } else if (r->offload_activations != OFFLOAD_CPU) {
        memplan_error *e = setup_error(
            d, MEMPLAN_E_CONFLICT, KEY_OFFLOAD_ACTIVATIONS,
            "offload_activations '%s' with cpu_offloading_num_layers %" PRIu64,
            resolve_text(r, KEY_OFFLOAD_ACTIVATIONS, buf), r->away_layers);
        diag_hint(e, "leave one of them out");
    } else {
        check_beside(r, s, d);
    }
}

/* TRL's, without checkpoints. It takes views of FSDP's flat parameters for
 * activations. */
static void check_tensors(const struct run *r, const struct spec *s,
                          struct diag *d)
{
    char buf[RESOLVE_TEXT_MAX];
    memplan_error *e = NULL;
    if (r->engine != ENGINE_DDP || run_spreads(r)) {
        e = setup_error(
            d, MEMPLAN_E_UNSUPPORTED, KEY_OFFLOAD_ACTIVATIONS,
            "offload_activations 'cpu' without recompute 'full' is "
            "not modelled yet with %s '%s'",
            run_spreads(r) ? "schedule" : "engine",
            resolve_text(r, run_spreads(r) ? KEY_SCHEDULE : KEY_ENGINE, buf));
        diag_hint(e, "add --recompute full, or use --engine ddp");
    } else if (!spec_is_language(s)) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OFFLOAD_ACTIVATIONS,
                        "offload_activations 'cpu' of models that are not of "
                        "language is not modelled yet");
        diag_hint(e, "leave it out");
    }
}

/* OffloadActivations of torchtune and TRL around checkpointed layers: what they
 * keep is one tensor a layer. Without checkpoints it is every tensor kept. */
static void check_checkpoints(const struct run *r, const struct spec *s,
                              struct diag *d)
{
    char buf[RESOLVE_TEXT_MAX];
    if (r->impl == IMPL_MEGATRON && r->engine != ENGINE_DEEPSPEED) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_CONFLICT, KEY_OFFLOAD_ACTIVATIONS,
                        "offload_activations 'cpu' without "
                        "cpu_offloading_num_layers: of how many layers");
        diag_hint(e, "add --cpu-offloading-num-layers; Megatron-DeepSpeed's "
                     "--checkpoint-in-cpu wants --framework "
                     "megatron-deepspeed");
    } else if (r->impl != IMPL_TORCHTUNE && !resolve_is_hf(r)
               && !run_checkpoints_in_cpu(r)) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OFFLOAD_ACTIVATIONS,
                        "offload_activations 'cpu' is not modelled for %s "
                        "layers yet",
                        resolve_text(r, KEY_IMPLEMENTATION, buf));
        diag_hint(e, "leave it out, or use --framework hf, torchtune, or "
                     "megatron with --cpu-offloading-num-layers");
    } else if (r->recompute == RECOMP_NONE && resolve_is_hf(r)
               && !run_prefixes(r)) {
        check_tensors(r, s, d);
    } else if (r->recompute != RECOMP_FULL) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OFFLOAD_ACTIVATIONS,
                        "offload_activations 'cpu' without recompute 'full' "
                        "is not modelled yet");
        diag_hint(e, run_prefixes(r) ? "leave it out" : "add --recompute full");
    }
}

/* Axolotl's Disco, a checkpoint of transformers' layers: its tensors come back
 * to the process's one GPU. */
static void check_disk(const struct run *r, const struct spec *s,
                       struct diag *d)
{
    static const char only[] =
        "offload_activations 'nvme' %s: files of checkpoints are Axolotl's "
        "alone, of transformers' layers";
    char buf[RESOLVE_TEXT_MAX], with[2 * RESOLVE_TEXT_MAX];
    if (!resolve_is_hf(r)) {
        str_format(with, sizeof with, "with implementation '%s'",
                   resolve_text(r, KEY_IMPLEMENTATION, buf));
        diag_hint(setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OFFLOAD_ACTIVATIONS,
                              only, with),
                  "use %s--framework hf",
                  r->impl == IMPL_TORCHTUNE ? "--offload-activations cpu, or "
                                            : "");
    } else if (!spec_is_language(s)) {
        diag_hint(setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OFFLOAD_ACTIVATIONS,
                              only, "of such a model"),
                  "use --offload-activations cpu");
    } else if (r->recompute != RECOMP_FULL) {
        diag_hint(setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OFFLOAD_ACTIVATIONS,
                              only, "without recompute 'full'"),
                  "add --recompute full");
    } else if (!r->recompute_reentrant) {
        diag_hint(setup_error(d, MEMPLAN_E_CONFLICT, KEY_RECOMPUTE_REENTRANT,
                              "offload_activations 'nvme' without "
                              "recompute_reentrant: backward runs inside of "
                              "these checkpoints"),
                  "leave it out");
    } else if (run_spreads(r)) {
        diag_hint(setup_error(d, MEMPLAN_E_CONFLICT, KEY_OFFLOAD_ACTIVATIONS,
                              "offload_activations 'nvme' with schedule "
                              "'naive': files are read to one GPU"),
                  "use --pp 1");
    }
}

void resolve_check_away(const struct run *r, const struct spec *s,
                        struct diag *d)
{
    if (r->away_layers > 0)
        check_layers(r, s, d);
    else if (r->offload_activations == OFFLOAD_CPU)
        check_checkpoints(r, s, d);
    else if (r->offload_activations == OFFLOAD_NVME)
        check_disk(r, s, d);
}
