/*
 * Owns the choice of a lowering and the frame around it. Refuses to know what
 * any of them does.
 */
#include "lower/build.h"

#include "base/banned.h"

/* Lowerings that decide for themselves which encoders they have. */
static bool knows_encoders(const struct run *run)
{
    return run->impl == IMPL_HF || run->impl == IMPL_HF_LIGER
           || run->impl == IMPL_MEGATRON || run->impl == IMPL_MEGATRON_LOCAL;
}

static void lower_as(struct builder *b)
{
    if (spec_is_convnet(b->spec)) {
        if (b->run->impl == IMPL_HF)
            lower_convnet(b);
        else
            build_refuse(b, "convolutions");
        return;
    }
    if (b->whole->vision != NULL && b->run->impl != IMPL_HF) {
        build_refuse(b, "vision part");
        return;
    }
    if (b->spec->mel_bins > 0 && b->run->impl != IMPL_HF) {
        build_refuse(b, "spectra");
        return;
    }
    if (b->spec->classes > 0 && b->run->impl != IMPL_HF) {
        build_refuse(b, "layers that times and classes scale");
        return;
    }
    const enum head_kind head = b->spec->head;
    if ((head == HEAD_SEQUENCE || head == HEAD_TOKEN) && !b->spec->bidirectional
        && b->run->impl != IMPL_HF) {
        build_refuse(b, "head for classes");
        return;
    }
    if ((b->spec->bidirectional || b->spec->decoder_layers > 0)
        && !knows_encoders(b->run)) {
        build_refuse(b, "encoders");
        return;
    }
    switch (b->run->impl) {
    case IMPL_HF:
    case IMPL_HF_LIGER: lower_hf(b); return;
    case IMPL_LITGPT: lower_litgpt(b); return;
    case IMPL_MEGATRON: lower_megatron(b); return;
    case IMPL_MEGATRON_LOCAL: lower_megatron_local(b); return;
    case IMPL_TORCHTITAN:
    case IMPL_TORCHTUNE: lower_torchtitan(b); return;
    case IMPL_PAPER: lower_paper(b); return;
    case IMPLEMENTATION_COUNT: break;
    }
    build_refuse(b, "lowering yet");
}

/* ---- adapters ---- */

/* As PEFT: a list is refused where none of its words is a module's
 * (tuners/tuners_utils.py, inject_adapter). */
static void check_targets(struct builder *b)
{
    const uint64_t asked = b->run->lora_targets, has = b->p->lora_words;
    char words[LORA_WORDS_MAX];
    const bool all = asked >> LORA_ALL_LINEAR != 0;
    if (!b->frozen || b->run->virtual_tokens > 0
        || (all ? has != 0 : (asked & has) != 0))
        return;
    memplan_error *e = setup_error(
        b->diag, MEMPLAN_E_CONFLICT, KEY_LORA_TARGETS,
        "target modules %s not found in the '%.40s' model%s",
        lora_words(asked, words), b->spec->model_type,
        b->spec->experts > 0 ? ", whose experts are parameters, no modules"
                             : "");
    const uint64_t named = has & ~LORA_MASK(LORA_ALL_LINEAR);
    if (has == 0)
        diag_hint(e, "no linear is left: name fewer parts in --freeze");
    else if (named != 0)
        diag_hint(e, "it has %s: use some of these%s", lora_words(named, words),
                  b->spec->heads > 0 ? ", or all-linear" : "");
    else
        diag_hint(e, "use --lora-targets all-linear");
}

memplan_status lower_model(struct program *out, const struct spec *spec,
                           const struct run *run, struct arena *a,
                           struct diag *d)
{
    struct builder b;
    build_start(&b, out, spec, run, a, d);
    if (!b.failed) /* else there is nothing to write into */
        lower_as(&b);
    if (!b.failed && d->status == MEMPLAN_OK)
        check_targets(&b);
    return build_finish(&b);
}
