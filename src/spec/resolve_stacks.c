/*
 * Owns what cannot be of models that are no plain stack of layers over words:
 * encoder-decoders and images. Changes nothing.
 */
#include "spec/resolve.h"
#include "spec/wrap_names.h"

#include "base/count.h"
#include "base/unit.h"

#include <inttypes.h>
#include <math.h>

#include "base/banned.h"

/* Two stacks of layers: whole on a rank, a checkpoint a layer. */
static void check_stacks(const struct run *r, const struct spec *s,
                         struct diag *d)
{
    memplan_error *e = NULL;
    if (s->decoder_layers == 0)
        return;
    if (r->pp > 1) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_PP,
                        "pp %" PRIu64 " of an encoder-decoder is not modelled",
                        r->pp);
        diag_hint(e, "leave pp out: Megatron-LM's pretrain_t5.py refuses it "
                     "too");
    }
    if (r->cp > 1) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_CP,
                        "cp %" PRIu64 " of an encoder-decoder is not modelled",
                        r->cp);
        diag_hint(e, "leave cp out");
    }
    if (r->recompute_granularity > 1) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_RECOMPUTE_GRANULARITY,
                        "checkpoints of several layers of an encoder-decoder "
                        "are not modelled");
        diag_hint(e, "leave recompute_granularity out");
    }
    if (r->recompute_every > 1) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_RECOMPUTE_EVERY,
                        "a choice of the layers of an encoder-decoder is not "
                        "modelled");
        diag_hint(e, "leave recompute_every out");
    }
    const uint64_t rows =
        s->target_positions > 0 ? s->target_positions : s->max_positions;
    if (s->position == POS_LEARNED && rows > 0 && r->decoder_seq_len > rows) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_DECODER_SEQ_LEN,
                        "decoder_seq_len %" PRIu64
                        " is beyond the model's %" PRIu64 " learned positions",
                        r->decoder_seq_len, rows);
        diag_hint(e, "use --decoder-seq-len %" PRIu64 " or less", rows);
    }
    if (r->sequence_parallel && r->tp > 1 && r->decoder_seq_len % r->tp != 0) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_DECODER_SEQ_LEN,
                        "decoder_seq_len %" PRIu64
                        " is not a multiple of tp, for sequence parallelism",
                        r->decoder_seq_len);
        diag_hint(e, "use --decoder-seq-len %" PRIu64,
                  div_up(r->decoder_seq_len, r->tp) * r->tp);
    }
}

/* An image, or a spectrum, is one sequence, as long as the model says. */
static void check_image(const struct run *r, const struct spec *s,
                        struct diag *d)
{
    memplan_error *e = NULL;
    if (s->channels == 0 && s->mel_bins == 0)
        return;
    if (r->seq_len != s->max_positions) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_SEQ_LEN,
                        "seq_len %" PRIu64 " for %s, each of which makes "
                        "%" PRIu64,
                        r->seq_len, s->channels > 0 ? "images" : "spectra",
                        s->max_positions);
        diag_hint(e, "leave it out: the model's file says how %s they are%s",
                  s->channels > 0 ? "large" : "long",
                  s->channels > 0
                      ? ""
                      : "; targets are as long as --decoder-seq-len");
    }
    if (spec_is_convnet(s) && run_adapts(r)) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_LORA_RANK,
                        "adapters of convolutions are not modelled");
        diag_hint(e, "leave lora_rank out");
    }
    if (s->n_conv > 0 && r->recompute == RECOMP_FULL) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_RECOMPUTE,
                        "recompute full of a list of layers is not modelled: "
                        "nothing says which layers a checkpoint holds");
        diag_hint(e, "leave recompute out; a 'resnet' is checkpointed block by "
                     "block");
    }
    if (spec_is_convnet(s) && r->tp > 1) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_TP,
                        "tp %" PRIu64 " of convolutions is not modelled",
                        r->tp);
        diag_hint(e, "leave tp out: data parallelism is what they use");
    }
    if (spec_is_convnet(s) && r->pp > 1) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_PP,
                        "pp %" PRIu64 " of convolutions is not modelled",
                        r->pp);
        diag_hint(e, "leave pp out: data parallelism is what they use");
    }
}

/* Widths that Llama 4's class takes as they come, and stumbles over: of four
 * patches side by side, of its adapter, of the projector. */
static void check_adapter(const struct spec *s, struct diag *d)
{
    const struct spec *v = s->vision != NULL ? s->vision : s;
    if (!(v->pixel_shuffle > 0))
        return;
    const double side = (double)(v->image / v->patch) * v->pixel_shuffle;
    const double wide =
        (double)v->hidden / (v->pixel_shuffle * v->pixel_shuffle);
    const double ffn = (double)v->ffn;
    memplan_error *e = NULL;
    if (side < floor(side) || side > floor(side))
        e = diag_add(d, MEMPLAN_E_CONFLICT,
                     "'pixel_shuffle_ratio' %g of %" PRIu64 " patches a side",
                     v->pixel_shuffle, v->image / v->patch);
    else if (wide < ffn || wide > ffn)
        e = diag_add(d, MEMPLAN_E_CONFLICT,
                     "'intermediate_size' (%" PRIu64 ") of Llama 4's vision "
                     "part is not 'hidden_size' / 'pixel_shuffle_ratio' "
                     "squared (%g), which its adapter takes",
                     v->ffn, wide);
    else if (v->adapter_in != v->adapter_out)
        e = diag_add(d, MEMPLAN_E_CONFLICT,
                     "'projector_input_dim' (%" PRIu64
                     ") is not 'projector_output_dim' (%" PRIu64 ")",
                     v->adapter_in, v->adapter_out);
    else if (s->vision != NULL && v->vision_width != v->adapter_out)
        e = diag_add(d, MEMPLAN_E_CONFLICT,
                     "'vision_output_dim' (%" PRIu64
                     ") is not 'projector_output_dim' (%" PRIu64 ")",
                     v->vision_width, v->adapter_out);
    if (e != NULL)
        diag_hint(e, "make them agree in 'vision_config': the class does not "
                     "run so");
}

/* Every vision part of Qwen's is made for one text's width. The classes take
 * what they are given, and stumble when they run over images. */
static void check_qwen(const struct run *r, const struct spec *s,
                       struct diag *d)
{
    const struct spec *v = s->vision;
    if (v == NULL || s->joint != JOINT_QWEN || r->images == 0
        || v->vision_width == s->hidden)
        return;
    memplan_error *e = diag_add(d, MEMPLAN_E_CONFLICT,
                                "the vision part makes tokens of %" PRIu64
                                " numbers, the text's have %" PRIu64,
                                v->vision_width, s->hidden);
    diag_hint(e, "\"%s\": %" PRIu64 " in 'vision_config', or use --part text",
              v->family == FAM_QWEN2_VISION ? "hidden_size" : "out_hidden_size",
              s->hidden);
}

/* Features of mergers are added behind the text's first layers. */
static void check_mergers(const struct spec *s, struct diag *d)
{
    const struct spec *v = s->vision != NULL ? s->vision : s;
    const uint64_t most = s->vision != NULL && s->layers < SPEC_DEEP_MAX
                              ? s->layers
                              : SPEC_DEEP_MAX;
    if (v->deep_layers <= most)
        return;
    memplan_error *e =
        diag_add(d, MEMPLAN_E_UNSUPPORTED,
                 "%" PRIu64 " layers of the vision part with a merger of "
                 "their own are not modelled, %" PRIu64 " at most are",
                 v->deep_layers, most);
    diag_hint(e, "name fewer in 'deepstack_visual_indexes'");
}

static void whole_only(const struct spec *s, enum setup_key key, uint64_t n,
                       struct diag *d)
{
    if (s->vision == NULL || n <= 1)
        return;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, key,
                    "%s %" PRIu64 " of two parts at once is not modelled",
                    setup_field(key)->key, n);
    diag_hint(e, "leave it out, or choose a part with --part");
}

/* Modules trained in full beside adapters: of a part that is trained. */
static void check_full(const struct run *r, const struct spec *s,
                       struct diag *d)
{
    const uint64_t ends =
        UINT64_C(1) << LORA_FULL_EMBED | UINT64_C(1) << LORA_FULL_HEAD;
    const bool projector = (r->lora_full >> LORA_FULL_PROJECTOR & 1) != 0;
    memplan_error *e;
    if (projector && s->vision == NULL) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_LORA_FULL_MODULES,
                        "lora_full_modules projector of a model that is one "
                        "part");
        diag_hint(e, s->parts != NULL && s->parts->part[PART_ALL] != NULL
                         ? "add --part all, or leave projector out"
                         : "leave projector out");
    }
    if ((projector && (r->freeze >> FREEZE_PROJECTOR & 1) != 0)
        || ((r->lora_full & ends) != 0
            && (r->freeze >> FREEZE_TEXT & 1) != 0)) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_LORA_FULL_MODULES,
                        "lora_full_modules of a part that is frozen");
        diag_hint(e, "leave it out of --freeze, or of --lora-full-modules");
    }
}

/* Words, final norm and head of a model that is one part. */
static bool check_frozen_ends(const struct run *r, const struct spec *s,
                              struct diag *d)
{
    memplan_error *e;
    if (s->vision != NULL || s->decoder_layers > 0 || spec_is_convnet(s)) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_FREEZE,
                        "freeze embed, norm or head of a model of two stacks "
                        "is not modelled");
        diag_hint(e, s->vision != NULL ? "use text, vision or projector"
                                       : "leave it out");
        return true;
    }
    if (run_adapts(r)) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_FREEZE,
                        "freeze embed, norm or head beside adapters, under "
                        "which they are frozen");
        diag_hint(e, "leave it out; --lora-full-modules trains them");
        return true;
    }
    if (r->impl != IMPL_HF) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_FREEZE,
                        "freeze outside Hugging Face's layers is not modelled");
        diag_hint(e, "use --framework hf, deepspeed or fsdp");
        return true;
    }
    return false;
}

/* What no layer's unit has is frozen in part (_flat_param.py,
 * _validate_tensors_to_flatten). */
static bool mixes_root(const struct run *r, const struct spec *s)
{
    const bool layers = r->fsdp_units == FSDP_LAYERS || s->tied;
    const uint64_t head = s->tied ? FREEZE_EMBED : FREEZE_HEAD;
    uint64_t root = UINT64_C(1) << FREEZE_NORM;
    if (s->vision != NULL)
        return true;
    if (layers)
        root |= UINT64_C(1) << FREEZE_EMBED;
    if (layers || r->fsdp_units != FSDP_ENDS)
        root |= UINT64_C(1) << head;
    return (r->freeze & root) != 0 && (r->freeze & root) != root;
}

static void check_mixed_root(const struct run *r, const struct spec *s,
                             struct diag *d)
{
    if (r->use_orig_params || r->freeze == 0 || !mixes_root(r, s))
        return;
    memplan_error *e = setup_error(
        d, MEMPLAN_E_CONFLICT, KEY_USE_ORIG_PARAMS,
        "use_orig_params false, where what no layer has is frozen in part: "
        "PyTorch wants one or the other of a flat parameter");
    diag_hint(e, s->vision != NULL
                     ? "leave it out"
                     : "leave it out, or use --freeze embed,norm,head");
}

/* FSDP version 1's units are frozen or trained as a whole; what no layer has is
 * one of them. */
static void check_frozen_units(const struct run *r, const struct spec *s,
                               struct diag *d)
{
    memplan_error *e;
    if (r->engine != ENGINE_FSDP || r->zero == 0)
        return;
    if (run_adapts(r)) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_FREEZE,
                        "freeze beside adapters with FSDP version 1 is not "
                        "modelled");
        diag_hint(e, "use --engine fsdp2, ddp or --framework deepspeed");
    } else if (s->vision != NULL && r->fsdp_units != FSDP_LAYERS) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_FSDP_UNITS,
                        "fsdp_units other than layers of a model of several "
                        "parts, some frozen, with FSDP version 1 is not "
                        "modelled");
        diag_hint(e, "use --fsdp-units layers, or --engine fsdp2");
    } else if (s->vision != NULL && s->vision->deep_layers > 0) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_FREEZE,
                        "freeze with FSDP version 1 of a vision part whose "
                        "layers have mergers is not modelled");
        diag_hint(e, "use --engine fsdp2, ddp or --framework deepspeed");
    }
    check_mixed_root(r, s, d);
}

/* What can be frozen, and where. */
static void check_freeze(const struct run *r, const struct spec *s,
                         struct diag *d)
{
    const uint64_t all = (UINT64_C(1) << FREEZE_EMBED) - 1;
    const uint64_t ends = r->freeze & ~all;
    memplan_error *e;
    if (r->freeze == 0)
        return;
    if (ends != 0 && r->given[KEY_FREEZE] && check_frozen_ends(r, s, d))
        return;
    const bool words = (ends >> FREEZE_EMBED & 1) != 0 && s->tied;
    if (r->frozen_layers == spec_blocks(s) && (ends >> FREEZE_NORM & 1) != 0
        && ((ends >> FREEZE_HEAD & 1) != 0 || words)) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_FREEZE,
                        "freeze of all parts leaves nothing to train");
        diag_hint(e, "use --freeze embed,head, or --freeze-trainable-layers 1");
        return;
    }
    if (s->vision == NULL && ends != r->freeze) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_FREEZE,
                        "freeze of a model that is one part");
        if (s->parts != NULL && s->parts->part[PART_ALL] != NULL)
            diag_hint(e, "add --part all, or leave freeze out");
        else
            diag_hint(e, "use embed, norm or head; adapters over frozen "
                         "weights are --lora-rank 16");
    } else if (r->freeze == all) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_FREEZE,
                        "freeze of all parts leaves nothing to train");
        diag_hint(e, "leave one out: text, vision or projector");
    }
    check_frozen_units(r, s, d);
}

/* Where there are images to count. */
static void refuse_images(const struct run *r, const struct spec *s,
                          struct diag *d)
{
    const bool clip = s->joint == JOINT_CLIP && r->setup.v[KEY_IMAGES].n == 1;
    if (!r->given[KEY_IMAGES] || clip)
        return;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_CONFLICT, KEY_IMAGES, "images of a model %s",
                    s->joint == JOINT_CLIP ? "that pairs each text with one"
                    : s->image > 0         ? "of images alone"
                                           : "without pictures");
    if (s->joint == JOINT_CLIP)
        diag_hint(e, "leave images out; --micro-batch counts pairs");
    else if (s->image > 0)
        diag_hint(e, "leave it out; --micro-batch counts images");
    else if (s->parts != NULL && s->parts->part[PART_ALL] != NULL)
        diag_hint(e, "add --part all: its file has a vision part too");
    else
        diag_hint(e, "leave it out");
}

/* Their tokens are among those of the text; without any, nothing trains what
 * they go through. */
static void check_images(const struct run *r, const struct spec *s,
                         struct diag *d)
{
    const uint64_t unseen =
        UINT64_C(1) << FREEZE_VISION | UINT64_C(1) << FREEZE_PROJECTOR;
    const uint64_t tokens = r->images * s->image_tokens;
    memplan_error *e;
    if (s->image_tokens == 0) {
        refuse_images(r, s, d);
        return;
    }
    if (r->seq_len < tokens) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_SEQ_LEN,
                        "seq_len %" PRIu64 " is less than the %" PRIu64
                        " token%s of %s",
                        r->seq_len, tokens, unit_s((double)tokens),
                        r->images == 1 ? "an image" : "its images");
        diag_hint(e, "use --seq-len %" PRIu64 " or more%s", tokens,
                  r->images == 1 ? "" : ", or fewer --images");
    }
    if (r->images == 0 && (r->freeze & unseen) != unseen) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_IMAGES,
                        "images 0 leaves a trained vision part without "
                        "gradients");
        diag_hint(e, "add --freeze vision,projector");
    }
}

/* What a layer within a checkpoint hands to the loss has a gradient before the
 * checkpoint is run again. */
static void check_handed(const struct run *r, const struct spec *s,
                         struct diag *d)
{
    if (s->vision != NULL || s->deep_layers == 0
        || r->recompute_granularity <= 1)
        return;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_RECOMPUTE_GRANULARITY,
                    "checkpoints of several layers, of which some have a "
                    "merger of their own, are not modelled");
    diag_hint(e, "leave recompute_granularity out");
}

/* Two parts are whole on a rank, a checkpoint a layer. */
static void check_parts(const struct run *r, const struct spec *s,
                        struct diag *d)
{
    check_adapter(s, d);
    check_qwen(r, s, d);
    check_mergers(s, d);
    check_handed(r, s, d);
    check_freeze(r, s, d);
    check_full(r, s, d);
    whole_only(s, KEY_TP, r->tp, d);
    whole_only(s, KEY_PP, r->pp, d);
    whole_only(s, KEY_CP, r->cp, d);
    whole_only(s, KEY_RECOMPUTE_GRANULARITY, r->recompute_granularity, d);
    whole_only(s, KEY_RECOMPUTE_EVERY, r->recompute_every, d);
    check_images(r, s, d);
}

static void check_encoder(const struct run *r, const struct spec *s,
                          struct diag *d)
{
    if (!s->bidirectional || !resolve_is_megatron(r) || !r->sequence_parallel
        || r->tp == 1 || spec_is_convnet(s))
        return; /* of convolutions: said above */
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_SEQUENCE_PARALLEL,
                    "sequence parallelism of an encoder is not "
                    "modelled");
    diag_hint(e, "leave it out, or add --no-sequence-parallel");
}

/* Accelerate looks for the class by its name (utils/dataclasses.py,
 * set_auto_wrap_policy; fsdp_utils.py, fsdp2_prepare_auto_wrap_policy). */
static void check_wraps(const struct run *r, const struct spec *s,
                        struct diag *d)
{
    char asked[WRAP_NAMES_TEXT], has[WRAP_NAMES_TEXT];
    const uint64_t wraps = r->setup.wraps;
    if (!run_is_fsdp(r) || r->zero == 0 || wraps == 0)
        return;
    const uint64_t own = wrap_names_of(s);
    if (own == 0 || (wraps & ~own) == 0)
        return;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_CONFLICT, KEY_FSDP_UNITS,
                    "there is no class %s to wrap in the '%.40s' model",
                    wrap_names_text(wraps & ~own, asked), s->model_type);
    diag_hint(e,
              "its layers are %s: write that as "
              "fsdp_transformer_layer_cls_to_wrap",
              wrap_names_text(own, has));
}

void resolve_check_stacks(const struct run *r, const struct spec *spec,
                          struct diag *d)
{
    check_stacks(r, spec, d);
    check_wraps(r, spec, d);
    check_image(r, spec, d);
    check_encoder(r, spec, d);
    check_parts(r, spec, d);
}
