/*
 * What a model with state-space layers or linear attention cannot have: the
 * conditions of the kernels that transformers' classes call, and what no
 * implementation here has of them. Changes nothing.
 */
#include "spec/resolve.h"

#include <inttypes.h>

#include "base/banned.h"

static memplan_error *conflict(struct diag *d, enum setup_key key,
                               const struct spec *s, const char *what)
{
    return setup_error(d, MEMPLAN_E_CONFLICT, key, "a '%s' model: %s",
                       s->model_type, what);
}

/* ---- kernels ---- */

/* Nemotron-H's list of layers may have attention and MLPs alone. */
static bool scans(const struct spec *s)
{
    uint64_t i = 0;
    while (i < s->layers
           && (pattern_has(&s->attends, i)
               || (s->lone_parts && !pattern_has(&s->mixes, i))))
        i++;
    return s->heads == 0 || i < s->layers;
}

/* causal-conv1d 1.6, csrc/causal_conv1d.cpp; mamba_ssm 2.3, csrc/
 * selective_scan/selective_scan.cpp and ops/triton/ssd_combined.py; fla 0.5,
 * ops/common/chunk_delta_h.py. */
static void check_kernels(const struct spec *s, struct diag *d)
{
    enum { TAPS_MIN = 2, TAPS_MAX = 4, STATE_MAX = 256, ROW = 8 };
    const struct ssm *m = &s->ssm;
    const uint64_t channels = m->inner + 2 * m->groups * m->state;
    const enum setup_key key = KEY_IMPLEMENTATION;
    if (m->conv < TAPS_MIN || m->conv > TAPS_MAX)
        diag_hint(
            conflict(d, key, s, "causal-conv1d has kernels of 2 to 4 taps"),
            "the model's is %" PRIu64 " wide", m->conv);
    /* Nemotron-H's own is of its MLPs (spec_keys.c) */
    if (s->act != ACT_SILU && s->family != FAM_NEMOTRON_H)
        diag_hint(
            conflict(d, key, s, "causal-conv1d has no activation but silu"),
            "change 'hidden_act'");
    if (s->mixer != MIX_MAMBA2 && m->state > STATE_MAX)
        diag_hint(conflict(d, key, s, "its kernel has states of 256 at most"),
                  "the model's is %" PRIu64, m->state);
    if (s->mixer == MIX_MAMBA2 && channels % ROW != 0)
        diag_hint(conflict(d, key, s,
                           "its kernel convolves a multiple of 8 channels"),
                  "the model has %" PRIu64, channels);
    if (s->mixer == MIX_MAMBA2 && !m->gate_norm) {
        memplan_error *e = setup_error(
            d, MEMPLAN_E_UNSUPPORTED, KEY_SSM_KERNEL,
            "mamba-ssm's kernel of a '%s' model without mamba_rms_norm is not "
            "modelled yet",
            s->model_type);
        diag_hint(e, "use --ssm-kernel torch");
    }
    if (s->mixer == MIX_MAMBA && m->bias && !m->norms)
        diag_hint(conflict(d, key, s, "mamba_inner_fn cannot train 'use_bias'"),
                  "write \"use_bias\": false");
}

/* B and C come from norms; with fp32 weights they are no longer of the scan's
 * type (selective_scan.cpp: B.scalar_type() == input_type). */
static void check_types(const struct run *r, const struct spec *s,
                        struct diag *d)
{
    const enum dtype norms = run_adapts(r) && r->base_dtype != DT_NONE
                                 ? r->base_dtype
                                 : r->prec.param;
    if (!r->prec.autocast || !s->ssm.norms || norms != DT_FP32)
        return;
    memplan_error *e = conflict(d, KEY_PRECISION, s,
                                "under autocast its norms give the scan fp32, "
                                "which the kernel refuses");
    diag_hint(e, "use --precision bf16 or bf16-mixed");
}

/* ---- adapters ---- */

static bool has_target(const struct run *r, enum lora_target t)
{
    return (r->lora_targets >> t & 1) != 0;
}

static void check_adapters(const struct run *r, const struct spec *s,
                           struct diag *d)
{
    memplan_error *e;
    if (!run_adapts(r))
        return;
    if (dtype_bytes_of(r->base_dtype, 8) < 16) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_BASE_DTYPE,
                        "base_dtype '%s' of a '%s' model is not modelled yet",
                        dtype_name(r->base_dtype), s->model_type);
        diag_hint(e, "use --base-dtype bf16");
    }
    if (!scans(s))
        return;
    if (s->heads > 0 && s->mixer != MIX_MAMBA2) /* MIX_CONV: modules all */
        return;
    const bool out =
        has_target(r, LORA_ALL_LINEAR) || has_target(r, LORA_OUT_PROJ);
    /* PEFT knows neither Granite nor Bamba (mamba_model_types) */
    if (out && s->heads > 0 && s->family != FAM_NEMOTRON_H
        && s->family != FAM_FALCON_H1) {
        if (r->ssm_kernel == SSM_KERNEL_TORCH)
            return;
        e = conflict(d, KEY_LORA_TARGETS, s,
                     "adapters on out_proj are not called by the kernel");
        diag_hint(e, "use --lora-targets in_proj, or --ssm-kernel torch");
    } else if (out) {
        e = conflict(d, KEY_LORA_TARGETS, s,
                     "PEFT refuses adapters on out_proj, which the kernel "
                     "takes as it is"); /* whether there is one or not */
        diag_hint(e, "use --lora-targets in_proj");
    } else if (has_target(r, LORA_X_PROJ)
               && r->ssm_kernel == SSM_KERNEL_FUSED) {
        e = conflict(d, KEY_LORA_TARGETS, s,
                     "adapters on x_proj are not called by the kernel");
        diag_hint(e, "use --lora-targets in_proj");
    }
}

/* ---- the whole ---- */

static void check_loss(const struct run *r, const struct spec *s,
                       struct diag *d)
{
    if (r->loss != LOSS_CHUNKED)
        return;
    const bool given = r->given[KEY_LOSS];
    memplan_error *e =
        given ? setup_error(
            d, MEMPLAN_E_UNSUPPORTED, KEY_LOSS,
            "loss 'chunked' of a '%s' model, which LitGPT has not",
            s->model_type)
              : setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_IMPLEMENTATION,
                            "implementation 'litgpt' of a '%s' model, which "
                            "LitGPT has not",
                            s->model_type);
    diag_hint(e, "%s", given ? "leave it out" : "use --implementation hf");
}

void resolve_check_mixers(const struct run *r, const struct spec *s,
                          struct diag *d)
{
    if (s->mixer == MIX_ATTENTION || !run_is_hf(r))
        return;
    check_loss(r, s, d);
    if (r->ssm_kernel == SSM_KERNEL_FUSED && scans(s)) {
        check_kernels(s, d);
        check_types(r, s, d);
    }
    check_adapters(r, s, d);
}
