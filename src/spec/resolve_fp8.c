/*
 * Owns what 8-bit products are asked for: the recipe, weights and inputs of
 * activation functions kept so, what is said of it and what cannot be together.
 * Refuses to know what a recipe keeps (lower/build_fp8.c).
 */
#include "spec/resolve.h"

#include "base/count.h"

#include <inttypes.h>

#include "base/banned.h"

static bool is_megatron_te(const struct run *r)
{
    return r->impl == IMPL_MEGATRON && r->engine == ENGINE_MEGATRON;
}

/* Recomputed so that their results need not be kept, which a linear that keeps
 * a quantised copy of them would undo: it has to keep its input as it came, and
 * cannot where scales come from history (Megatron-LM
 * core/transformer/transformer_config.py, linear.py of Transformer Engine). */
static uint64_t asks_for_inputs(uint64_t modules)
{
    return modules & (1u << REMOD_MOE_ACT | 1u << REMOD_LAYERNORM);
}

static enum fp8_recipe default_recipe(const struct run *r)
{
    if (r->precision == PREC_FP4_MIXED)
        return FP8_NVFP4;
    if (r->impl == IMPL_TORCHTITAN)
        return FP8_TENSORWISE;
    if (!r->given[KEY_RECOMPUTE_MODULES]
        || asks_for_inputs(r->setup.v[KEY_RECOMPUTE_MODULES].n) == 0)
        return FP8_DELAYED;
    return r->gpu.arch == ARCH_BLACKWELL ? FP8_MXFP8 : FP8_BLOCKWISE;
}

void resolve_fp8(struct run *r)
{
    if (r->prec.fp8)
        r->fp8_recipe = (enum fp8_recipe)resolve_count(r, KEY_FP8_RECIPE,
                                                       default_recipe(r));
    const bool all = r->prec.fp8 && r->fp8_recipe == FP8_DEEPSEEK;
    r->fp8_params = resolve_bool(r, KEY_FP8_PARAMS, false);
    r->fp8_attention = resolve_bool(r, KEY_FP8_ATTENTION, false)
                       && is_megatron_te(r) && r->prec.fp8
                       && r->fp8_recipe == FP8_MXFP8
                       && r->gpu.arch == ARCH_BLACKWELL;
    r->act_fp8 = resolve_bool(r, KEY_ACTIVATION_FUNC_FP8_INPUT_STORE, all);
    r->bf16_first = resolve_count(r, KEY_BF16_LAYERS_AT_START, 0);
    r->bf16_last = resolve_count(r, KEY_BF16_LAYERS_AT_END, 0);
}

void resolve_say_fp8(struct run *r)
{
    if (!r->prec.fp8 || r->impl != IMPL_MEGATRON)
        return;
    char buf[RESOLVE_TEXT_MAX];
    if (r->fp8_recipe == FP8_NVFP4) {
        resolve_note(r, KEY_COUNT,
                     "4-bit products of all linears but the head's, scales "
                     "a block of 16, as Transformer Engine's NVFP4 recipe "
                     "has them (--num-layers-at-start-in-bf16, "
                     "--num-layers-at-end-in-bf16)");
        resolve_assume(r, KEY_MFU,
                       "4-bit products reach the share of their peak that "
                       "8-bit ones do (--mfu)");
        return;
    }
    if (r->fp8_recipe == FP8_DEEPSEEK)
        resolve_note(r, KEY_FP8_RECIPE,
                     "as the DeepSeek-V3 report says; its code is not public: "
                     "fp32 scales a tile of 128, weights in bf16 beside their "
                     "fp8 copies (--fp8-params: without)");
    else if (!r->given[KEY_FP8_RECIPE])
        resolve_assume(r, KEY_FP8_RECIPE,
                       "fp8 scaling %s, as Transformer Engine keeps it "
                       "(--fp8-recipe)",
                       resolve_text(r, KEY_FP8_RECIPE, buf));
}

/* ---- what cannot be ---- */

/* Compute capability 10.0 (Transformer Engine's pytorch/quantization.py,
 * check_mxfp8_support), or gfx950 (torchtitan 0.2.2, mx.py). */
static bool has_mxfp8(const struct run *r)
{
    return r->gpu.arch == ARCH_BLACKWELL || r->gpu.arch == ARCH_CDNA4;
}

static void check_mxfp8(const struct run *r, struct diag *d)
{
    if (r->fp8_recipe != FP8_MXFP8 || r->gpu.peak_fp8_flop_s <= 0
        || has_mxfp8(r))
        return;
    const bool any = asks_for_inputs(r->recompute_modules) == 0
                     || r->recompute != RECOMP_SELECTIVE;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_CONFLICT, KEY_FP8_RECIPE,
                    "fp8_recipe 'mxfp8' on %s, which has no such products: "
                    "they need compute capability 10.0, Blackwell's",
                    r->gpu.name);
    diag_hint(e, "use --fp8-recipe %s, or --gpu b200",
              r->impl == IMPL_TORCHTITAN ? "tensorwise"
              : any                      ? "delayed or blockwise"
                                         : "blockwise");
}

/* Megatron's Transformer Engine has no such recipe; --torchtitan has the words
 * of torchao's (float8/config.py, Float8LinearRecipeName). */
static void refuse_rowwise(const struct run *r, struct diag *d)
{
    char buf[RESOLVE_TEXT_MAX];
    memplan_error *e = setup_error(
        d, MEMPLAN_E_CONFLICT, KEY_FP8_RECIPE,
        "fp8_recipe '%s' is torchao's, which implementation '%s' "
        "does not have",
        r->fp8_recipe == FP8_ROWWISE ? "rowwise" : "rowwise_with_gw_hp",
        resolve_text(r, KEY_IMPLEMENTATION, buf));
    diag_hint(e, "use --fp8-recipe tensorwise, or --framework torchtitan");
}

/* Megatron-LM core/fp4_utils.py; Transformer Engine's pytorch/quantization.py,
 * check_nvfp4_support. */
static void check_fp4(const struct run *r, struct diag *d)
{
    memplan_error *e = NULL;
    if (r->precision != PREC_FP4_MIXED) {
        if (!r->prec.fp8 || r->fp8_recipe != FP8_NVFP4)
            return;
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_FP8_RECIPE,
                        "fp8_recipe 'nvfp4' has products in 4 bits");
        diag_hint(e, "use --fp8-recipe %s, or --precision fp4-mixed%s%s",
                  has_mxfp8(r) ? "mxfp8" : "tensorwise",
                  r->gpu.arch == ARCH_BLACKWELL ? "" : " --gpu b200",
                  is_megatron_te(r) ? "" : " --framework megatron");
        return;
    }
    if (!is_megatron_te(r)) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_PRECISION,
                        "precision 'fp4-mixed' is modelled for Megatron with "
                        "Transformer Engine alone");
        diag_hint(e, "use --precision %s, or --framework megatron%s",
                  r->gpu.peak_fp8_flop_s > 0 ? "fp8-mixed" : "bf16-mixed",
                  r->gpu.arch == ARCH_BLACKWELL ? "" : " --gpu b200");
    } else if (r->gpu.arch != ARCH_BLACKWELL) {
        if (r->gpu.peak_fp4_flop_s > 0) {
            e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_PRECISION,
                            "precision 'fp4-mixed' on %s: Transformer Engine's "
                            "products in 4 bits are Blackwell's",
                            r->gpu.name);
            diag_hint(e, "use --gpu b200");
        }
    } else if (r->fp8_recipe != FP8_NVFP4) {
        char buf[RESOLVE_TEXT_MAX];
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_FP8_RECIPE,
                        "fp8_recipe '%s' with precision 'fp4-mixed'",
                        resolve_text(r, KEY_FP8_RECIPE, buf));
        diag_hint(e, "leave it out: the recipe of 4 bits is nvfp4");
    } else if (r->fp8_params) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_FP8_PARAMS,
                        "'fp8_params' with precision 'fp4-mixed' "
                        "(--fp4-param-gather) is not modelled yet");
        diag_hint(e, "leave it out: weights in 16 bits");
    } else if (r->tp_comm_overlap) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_TP_COMM_OVERLAP,
                        "'tp_comm_overlap' with precision 'fp4-mixed' is not "
                        "modelled yet");
        diag_hint(e, "leave it out");
    } else if (r->act_fp8) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED,
                        KEY_ACTIVATION_FUNC_FP8_INPUT_STORE,
                        "'activation_func_fp8_input_store' with precision "
                        "'fp4-mixed' is not modelled yet");
        diag_hint(e, "leave it out");
    }
}

static void check_recipe(const struct run *r, struct diag *d)
{
    char buf[RESOLVE_TEXT_MAX];
    memplan_error *e = NULL;
    const char *blackwell = has_mxfp8(r) ? "" : " --gpu b200";
    if (r->given[KEY_FP8_RECIPE] && !r->prec.fp8) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_FP8_RECIPE,
                        "fp8_recipe with precision '%s'",
                        resolve_text(r, KEY_PRECISION, buf));
        if (r->setup.v[KEY_FP8_RECIPE].n == FP8_NVFP4) {
            diag_hint(e,
                      "add --precision fp4-mixed%s%s, the precision of that "
                      "recipe",
                      r->gpu.arch == ARCH_BLACKWELL ? "" : " --gpu b200",
                      is_megatron_te(r) ? "" : " --framework megatron");
            return;
        }
        diag_hint(e, "add --precision fp8-mixed%s%s",
                  r->setup.v[KEY_FP8_RECIPE].n == FP8_MXFP8 ? blackwell
                  : r->gpu.peak_fp8_flop_s > 0              ? ""
                                               : " --gpu h100-80gb",
                  r->setup.v[KEY_FP8_RECIPE].n == FP8_DEEPSEEK
                          && r->impl != IMPL_MEGATRON
                      ? " --framework megatron"
                      : "");
        return;
    }
    if (!r->prec.fp8)
        return;
    if (r->fp8_recipe == FP8_DEEPSEEK && r->impl != IMPL_MEGATRON) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_FP8_RECIPE,
                        "fp8_recipe 'deepseek' with implementation '%s' is not "
                        "modelled yet",
                        resolve_text(r, KEY_IMPLEMENTATION, buf));
        diag_hint(e, "use --framework megatron");
    } else if (run_fp8_is_rowwise(r) && r->impl != IMPL_TORCHTITAN) {
        refuse_rowwise(r, d);
    } else if (r->fp8_recipe == FP8_DELAYED && r->impl == IMPL_MEGATRON
               && r->recompute == RECOMP_SELECTIVE
               && asks_for_inputs(r->recompute_modules) != 0) {
        e = setup_error(
            d, MEMPLAN_E_CONFLICT, KEY_FP8_RECIPE,
            "fp8_recipe 'delayed' with recompute_modules moe_act or "
            "layernorm, which quantise again in backward");
        diag_hint(e, "use --fp8-recipe blockwise or tensorwise%s",
                  has_mxfp8(r) ? ", or mxfp8" : "");
    } else {
        check_mxfp8(r, d);
    }
}

static void check_fp8_params(const struct run *r, struct diag *d)
{
    const bool gathered =
        r->impl == IMPL_TORCHTITAN && r->engine == ENGINE_FSDP2;
    const bool some = r->fp8_params && r->prec.fp8;
    memplan_error *e = NULL;
    if (!r->fp8_params || (some && is_megatron_te(r)))
        return;
    if (some && gathered) {
        if (run_fp8_is_whole(r))
            return;
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_FP8_PARAMS,
                        "fp8_params with scales of rows or blocks: torchao "
                        "gathers weights in 8 bits with one scale a tensor "
                        "alone");
        diag_hint(e, "leave it out, or use --fp8-recipe tensorwise");
        return;
    }
    e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_FP8_PARAMS,
                    "'fp8_params' is modelled for 8-bit products of Megatron "
                    "with Transformer Engine and of torchtitan with FSDP2");
    diag_hint(e, "leave it out: weights in 16 bits");
}

static void check_inputs(const struct run *r, const struct spec *s,
                         struct diag *d)
{
    memplan_error *e = NULL;
    if (!r->act_fp8 || !r->given[KEY_ACTIVATION_FUNC_FP8_INPUT_STORE])
        return;
    if (r->impl != IMPL_MEGATRON) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED,
                        KEY_ACTIVATION_FUNC_FP8_INPUT_STORE,
                        "'activation_func_fp8_input_store' is modelled for "
                        "Megatron with Transformer Engine alone");
        diag_hint(e, "leave it out, or use --framework megatron");
    } else if (!s->gated_mlp || s->act != ACT_SILU) {
        e = setup_error(d, MEMPLAN_E_CONFLICT,
                        KEY_ACTIVATION_FUNC_FP8_INPUT_STORE,
                        "activation_func_fp8_input_store is SwiGLU's, and the "
                        "model has another activation function");
        diag_hint(e, "leave it out");
    }
}

/* As Megatron-LM refuses them (core/transformer/transformer_config.py); layers
 * of two stacks it counts each by itself. */
static void check_ends(const struct run *r, const struct spec *s,
                       struct diag *d)
{
    const bool first = r->bf16_first > 0;
    const enum setup_key key =
        first ? KEY_BF16_LAYERS_AT_START : KEY_BF16_LAYERS_AT_END;
    const uint64_t most = spec_blocks(s) / r->pp;
    if (!r->prec.fp8 || (!first && r->bf16_last == 0))
        return;
    const char *name = setup_field(key)->key;
    if (!is_megatron_te(r) || s->decoder_layers > 0 || s->vision != NULL)
        diag_hint(setup_error(d, MEMPLAN_E_UNSUPPORTED, key,
                              "'%s' is modelled for Megatron with Transformer "
                              "Engine and one stack of layers alone",
                              name),
                  "leave it out: all layers have 8-bit products");
    else if (r->fp8_recipe == FP8_DELAYED)
        diag_hint(setup_error(d, MEMPLAN_E_CONFLICT, key,
                              "'%s' with fp8_recipe 'delayed', whose scales "
                              "come from all layers at once",
                              name),
                  "use --fp8-recipe tensorwise or blockwise");
    else if (r->bf16_first > most || r->bf16_last > most)
        diag_hint(setup_error(d, MEMPLAN_E_CONFLICT, key,
                              "%" PRIu64 " and %" PRIu64
                              " layers in bf16, of at most %" PRIu64
                              " at each end, a stage's",
                              r->bf16_first, r->bf16_last, most),
                  "use %" PRIu64 " or less", most);
}

void resolve_check_fp8(const struct run *r, const struct spec *s,
                       struct diag *d)
{
    check_ends(r, s, d);
    if (r->prec.fp8
        && (r->precision == PREC_FP4_MIXED || r->fp8_recipe == FP8_NVFP4)) {
        check_fp4(r, d);
        return;
    }
    check_recipe(r, d);
    check_fp8_params(r, d);
    check_inputs(r, s, d);
}
