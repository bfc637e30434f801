/*
 * Owns whose activations can wait on the host, and beside what: those of
 * checkpoints (torchtune, TRL), of layers (Transformer Engine), or of modules
 * (Megatron). Changes nothing.
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

/* Of Transformer Engine's layers in Megatron, beside no other way to the CPU;
 * false where `what`, of a key, is told so. */
static bool goes_with_megatron(const struct run *r, enum setup_key key,
                               const char *what, struct diag *d)
{
    char buf[RESOLVE_TEXT_MAX];
    memplan_error *e = NULL;
    const char *hint = "leave one of them out";
    if (r->impl != IMPL_MEGATRON || r->engine == ENGINE_DEEPSPEED) {
        const bool impl = r->impl != IMPL_MEGATRON;
        e = setup_error(
            d, MEMPLAN_E_CONFLICT, key,
            "%s with %s '%s': it is Transformer Engine's, in Megatron",
            setup_field(key)->key, impl ? "implementation" : "engine",
            resolve_text(r, impl ? KEY_IMPLEMENTATION : KEY_ENGINE, buf));
        hint = "use --framework megatron, or leave it out";
    } else if (r->offload_activations != OFFLOAD_CPU) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_OFFLOAD_ACTIVATIONS,
                        "offload_activations '%s' with %s",
                        resolve_text(r, KEY_OFFLOAD_ACTIVATIONS, buf), what);
    }
    if (e == NULL)
        return true;
    diag_hint(e, "%s", hint);
    return false;
}

static void check_layers(const struct run *r, const struct spec *s,
                         struct diag *d)
{
    enum { WHAT_MAX = 64 };
    char what[WHAT_MAX];
    str_format(what, sizeof what, "cpu_offloading_num_layers %" PRIu64,
               r->away_layers);
    if (goes_with_megatron(r, KEY_CPU_OFFLOADING_NUM_LAYERS, what, d))
        check_beside(r, s, d);
}

/* ---- modules ---- */

static bool offloads(const struct run *r, enum offload_module m)
{
    return (r->offload_modules >> m & 1) != 0;
}

/* Megatron's own refusals (core/transformer/transformer_config.py,
 * training/arguments.py). */
static bool check_modules_refused(const struct run *r, struct diag *d)
{
    const bool experts =
        offloads(r, OFFMOD_EXPERT_FC1) || offloads(r, OFFMOD_MOE_ACT);
    const struct obstacle list[] = {
        { r->away_layers > 0, KEY_OFFLOAD_MODULES, MEMPLAN_E_CONFLICT,
          "offload_modules with cpu_offloading_num_layers, which Megatron "
          "refuses",
          "leave one of them out" },
        { offloads(r, OFFMOD_ATTN_PROJ) && !offloads(r, OFFMOD_CORE_ATTN),
          KEY_OFFLOAD_MODULES, MEMPLAN_E_CONFLICT,
          "offload_modules 'attn_proj' without 'core_attn', which Megatron "
          "refuses: core_attn's backward needs attn_proj's input",
          "add core_attn" },
        { experts && (r->recompute_modules >> REMOD_MOE & 1) != 0,
          KEY_OFFLOAD_MODULES, MEMPLAN_E_CONFLICT,
          "offload_modules of experts with recompute_modules 'moe', which "
          "Megatron refuses: all of them is made again",
          "leave out moe, or expert_fc1 and moe_act" },
    };
    return resolve_refuse(d, list, sizeof list / sizeof list[0]);
}

static void check_modules_known(const struct run *r, const struct spec *s,
                                struct diag *d)
{
    const bool other = r->pp > 1 && r->schedule != SCHED_1F1B
                       && r->schedule != SCHED_INTERLEAVED;
    const struct obstacle list[] = {
        { r->recompute == RECOMP_FULL, KEY_OFFLOAD_MODULES,
          MEMPLAN_E_UNSUPPORTED,
          "offload_modules with recompute 'full' is not modelled yet",
          "use --recompute selective" },
        { other, KEY_OFFLOAD_MODULES, MEMPLAN_E_UNSUPPORTED,
          "offload_modules is modelled for schedules 1f1b and interleaved, "
          "Megatron's own",
          "leave out --schedule" },
        { s->decoder_layers > 0, KEY_OFFLOAD_MODULES, MEMPLAN_E_UNSUPPORTED,
          "offload_modules of an encoder-decoder is not modelled yet",
          "leave it out" },
        { s->mtp_layers > 1, KEY_OFFLOAD_MODULES, MEMPLAN_E_UNSUPPORTED,
          "offload_modules of more than one prediction module is not modelled "
          "yet",
          "leave it out" },
        { run_adapts(r), KEY_OFFLOAD_MODULES, MEMPLAN_E_UNSUPPORTED,
          "offload_modules with adapters is not modelled yet", "leave it out" },
    };
    resolve_refuse(d, list, sizeof list / sizeof list[0]);
}

static void check_modules(const struct run *r, const struct spec *s,
                          struct diag *d)
{
    if (goes_with_megatron(r, KEY_OFFLOAD_MODULES, "offload_modules", d)
        && !check_modules_refused(r, d))
        check_modules_known(r, s, d);
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
        diag_hint(e, "add --cpu-offloading-num-layers, or --offload-modules; "
                     "Megatron-DeepSpeed's --checkpoint-in-cpu wants "
                     "--framework megatron-deepspeed");
    } else if (r->impl != IMPL_TORCHTUNE && !run_is_hf(r)
               && !run_checkpoints_in_cpu(r)) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OFFLOAD_ACTIVATIONS,
                        "offload_activations 'cpu' is not modelled for %s "
                        "layers yet",
                        resolve_text(r, KEY_IMPLEMENTATION, buf));
        diag_hint(e, "leave it out, or use --framework hf, torchtune, or "
                     "megatron with --cpu-offloading-num-layers");
    } else if (r->recompute == RECOMP_NONE && run_is_hf(r)
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
    if (!run_is_hf(r)) {
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
    if (r->given[KEY_MIN_OFFLOADED_TENSOR_SIZE] && r->offload_modules == 0)
        resolve_pointless(d, KEY_MIN_OFFLOADED_TENSOR_SIZE, "offload_modules",
                          "add --offload-modules core_attn");
    if (r->offload_modules != 0)
        check_modules(r, s, d);
    else if (r->away_layers > 0)
        check_layers(r, s, d);
    else if (r->offload_activations == OFFLOAD_CPU)
        check_checkpoints(r, s, d);
    else if (r->offload_activations == OFFLOAD_NVME)
        check_disk(r, s, d);
}
