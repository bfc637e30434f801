/*
 * Owns what a row of field.def or family.def cannot say of a family: keys that
 * mean two things, widths that follow from others. Refuses to know what is so
 * for every family (spec_import.c).
 */
#include "spec/import.h"

#include "base/unit.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

/* falcon-40b as first published has a model_type instead of the key. The old
 * generation has one kv head or all of them, whatever num_kv_heads says; the
 * new one has two norms side by side, but falcon-11b one. */
static void fix_falcon(struct import *im)
{
    struct value *v = im->v;
    const struct json *kv = v[F_KV_HEADS].at;
    if (!v[F_NEW_FALCON].at
        && (strcmp(im->model_type, "RefinedWeb") == 0
            || (kv && str_is(kv->key, "n_head_kv"))))
        v[F_NEW_FALCON].n = 1;
    bool new = v[F_NEW_FALCON].n != 0;
    if (!new) {
        v[F_KV_HEADS].n = v[F_MULTI_QUERY].n ? 1 : v[F_HEADS].n;
        v[F_KV_HEADS].bad = v[F_HEADS].bad || v[F_MULTI_QUERY].bad;
    }
    v[F_SHARED_NORM].n =
        v[F_PARALLEL].n && (!new || v[F_PARALLEL_NORMS].n == 1);
    if (new && !v[F_PARALLEL].n && !v[F_PARALLEL].bad)
        import_error(im, import_at(im, F_PARALLEL), MEMPLAN_E_UNSUPPORTED,
                     "a new falcon decoder without 'parallel_attn' is not "
                     "modelled");
}

/* Qwen 1: half of intermediate_size for each of the two parallel matrices. */
static void fix_qwen(struct import *im)
{
    struct value *f = &im->v[F_FFN];
    if (f->bad)
        return;
    if (f->n % 2 != 0) {
        memplan_error *e =
            import_error(im, import_at(im, F_FFN), MEMPLAN_E_CONFLICT,
                         "'%s' (%" PRIu64 ") must be even in a 'qwen' model",
                         import_key(im, F_FFN), f->n);
        diag_hint(e, "it is twice the width of a matrix");
        f->bad = true;
        return;
    }
    f->n /= 2;
}

static void fix_opt(struct import *im)
{
    if (!im->v[F_NORM_FIRST].n)
        im->v[F_FINAL_NORM].n = 0;
}

/* Shared experts: so many of the expert's width, or one of a width. */
static void fix_shared_experts(struct import *im)
{
    const struct value *n = &im->v[F_SHARED_EXPERTS];
    struct value *width = &im->v[F_SHARED_FFN];
    if (n->bad || width->bad || im->v[F_EXPERT_FFN].bad || n->n == 0)
        return;
    uint64_t sum = n->n * im->v[F_EXPERT_FFN].n;
    if (width->at && width->n != sum) {
        import_error(im, width->at, MEMPLAN_E_CONFLICT,
                     "'%s' is %" PRIu64 ", but %" PRIu64
                     " shared experts are %" PRIu64 " wide",
                     width->at->key.p, width->n, n->n, sum);
        return;
    }
    width->n = sum;
}

/* Two rows of the table are for padding (create_position_ids_from_input_ids):
 * the key counts them. */
static void fix_roberta(struct import *im)
{
    struct value *rows = &im->v[F_MAX_POSITIONS];
    const uint64_t padding = im->v[F_EXTRA_POSITIONS].n;
    if (rows->at && !rows->bad && rows->n > padding)
        rows->n -= padding;
}

/* The class takes it over from the file, whatever feed_forward_proj says. */
static void check_gated(struct import *im)
{
    const struct json *at = json_member(im->object, "is_gated_act");
    const bool gated = im->v[F_GATED].n != 0;
    if (!at || at->kind != JSON_BOOL || at->truth == gated)
        return;
    memplan_error *e =
        import_error(im, at, MEMPLAN_E_CONFLICT,
                     "'is_gated_act' is %s, but 'feed_forward_proj' is %s",
                     at->truth ? "true" : "false", gated ? "gated" : "not");
    diag_hint(e,
              "write \"feed_forward_proj\": \"%s\", or leave "
              "'is_gated_act' out",
              at->truth ? "gated-gelu" : "relu");
}

/* "relu", "gated-gelu": the latter is GPT-2's gelu written out, in T5Config. */
static void fix_t5(struct import *im)
{
    const struct json *at = json_member(im->object, "feed_forward_proj");
    if (!at || at->kind == JSON_NULL) {
        const bool later = im->family != FAM_T5; /* MT5Config, UMT5Config */
        im->v[F_GATED].n = later;
        im->v[F_ACT].n = later ? ACT_GELU_NEW : ACT_RELU;
        return;
    }
    im->v[F_GATED].n = true;
    if (at->kind == JSON_STRING && str_is(at->text, "gated-gelu")) {
        im->v[F_ACT].n = ACT_GELU_NEW;
    } else if (at->kind == JSON_STRING && str_is(at->text, "gated-silu")) {
        im->v[F_ACT].n = ACT_SILU;
    } else {
        im->v[F_GATED].n = false;
        if (at->kind == JSON_STRING && str_is(at->text, "relu"))
            return;
        memplan_error *e = import_error(im, at, MEMPLAN_E_UNKNOWN,
                                        "'feed_forward_proj' is not known");
        diag_hint(e, "known: relu, gated-gelu, gated-silu");
    }
}

/* Whole patches, and the token of the class. */
static void fix_images(struct import *im)
{
    const struct value *image = &im->v[F_IMAGE], *patch = &im->v[F_PATCH];
    struct value *tokens = &im->v[F_MAX_POSITIONS];
    tokens->bad = image->bad || patch->bad;
    if (tokens->bad)
        return;
    const uint64_t side = image->n / patch->n;
    tokens->at = image->at ? image->at : patch->at;
    tokens->n = side * side + im->v[F_CLASS_TOKEN].n;
    if (side > 0)
        return;
    import_error(im, import_at(im, F_PATCH), MEMPLAN_E_CONFLICT,
                 "'%s' (%" PRIu64 ") exceeds '%s' (%" PRIu64 ")",
                 import_key(im, F_PATCH), patch->n, import_key(im, F_IMAGE),
                 image->n);
    tokens->bad = true;
}

/* No file says how large an image is; the processor lets up to so many pixels
 * through as they are (Qwen2VLImageProcessor: size.longest_edge, 28*28*1280).
 * The largest square of whole tokens. A window is one of whole tokens too. */
static void fix_qwen_images(struct import *im)
{
    enum { LONGEST_EDGE = 28 * 28 * 1280 };
    struct value *v = im->v, *window = &v[F_WINDOW_SIDE];
    const uint64_t unit = v[F_PATCH].n * v[F_MERGE].n;
    v[F_IMAGE].bad = v[F_PATCH].bad || v[F_MERGE].bad;
    if (v[F_IMAGE].bad)
        return;
    uint64_t side = 1;
    while ((side + 1) * unit * ((side + 1) * unit) <= LONGEST_EDGE)
        side++;
    v[F_IMAGE].n = side * unit;
    fix_images(im);
    if (im->family != FAM_QWEN2_5_VISION || v[F_WINDOW_PIXELS].bad)
        return;
    window->n = v[F_WINDOW_PIXELS].n / v[F_MERGE].n / v[F_PATCH].n;
    const uint64_t patches = window->n * v[F_MERGE].n;
    v[F_SLIDING_WINDOW].n = patches * patches;
    if (window->n > 0)
        return;
    memplan_error *e = import_error(
        im, import_at(im, F_WINDOW_PIXELS), MEMPLAN_E_CONFLICT,
        "'%s' (%" PRIu64 ") is less than one token of %" PRIu64 " pixels",
        import_key(im, F_WINDOW_PIXELS), v[F_WINDOW_PIXELS].n, unit);
    diag_hint(e, "use a multiple of %" PRIu64, unit);
}

static void fix_whisper(struct import *im)
{
    const struct value *h = &im->v[F_HIDDEN], *a = &im->v[F_DECODER_HEADS];
    if (h->bad || a->bad)
        return;
    if (h->n % 2 != 0) /* sinusoids() */
        import_error(im, import_at(im, F_HIDDEN), MEMPLAN_E_CONFLICT,
                     "'%s' (%" PRIu64 ") must be even: half of a position is "
                     "sines, half cosines",
                     import_key(im, F_HIDDEN), h->n);
}

/* Under its older name the class is a DiT by the kind of its norms only
 * (diffusers, models/model_loading_utils.py, _fetch_remapped_cls_from_config).
 */
static void check_dit_norm(struct import *im)
{
    const struct json *at = json_member(im->object, "norm_type");
    if (at ? at->kind == JSON_STRING
           : strcmp(im->model_type, "Transformer2DModel") != 0)
        return;
    memplan_error *e =
        at ? import_error(im, at, MEMPLAN_E_SCHEMA,
                          "'norm_type' must be a string, not %s",
                          json_kind_name(at->kind))
           : import_error(im, im->object, MEMPLAN_E_SCHEMA,
                          "'norm_type' is missing in a 'Transformer2DModel'");
    diag_hint(e, "a DiT says \"norm_type\": \"ada_norm_zero\"");
}

/* A token a patch. The original's output has a variance for each channel. */
static void fix_dit(struct import *im)
{
    struct value *v = im->v;
    const struct value *image = &v[F_IMAGE], *patch = &v[F_PATCH];
    if (im->family == FAM_DIT_DIFFUSERS) {
        v[F_HIDDEN] =
            (struct value){ .n = v[F_HEADS].n * v[F_HEAD_DIM].n,
                            .bad = v[F_HEADS].bad || v[F_HEAD_DIM].bad };
        v[F_EMBED_DIM] = v[F_HIDDEN];
        v[F_FFN].n = 4 * v[F_HIDDEN].n;
        check_dit_norm(im);
    } else {
        v[F_OUT_CHANNELS].n = v[F_CHANNELS].n * (v[F_LEARN_SIGMA].n ? 2 : 1);
    }
    fix_images(im);
    if (image->bad || patch->bad || image->n % patch->n == 0)
        return;
    memplan_error *e = import_error(
        im, import_at(im, F_PATCH), MEMPLAN_E_CONFLICT,
        "'%s' (%" PRIu64 ") does not divide '%s' (%" PRIu64 ")",
        import_key(im, F_PATCH), patch->n, import_key(im, F_IMAGE), image->n);
    diag_hint(e, "an image is made of whole patches");
}

/* Every width the generic types can do without, and those they cannot. */
static void fix_generic(struct import *im)
{
    struct value *v = im->v;
    if (v[F_SHARED_NORM].n && !v[F_PARALLEL].n && !v[F_PARALLEL].bad)
        import_error(im, import_at(im, F_SHARED_NORM), MEMPLAN_E_CONFLICT,
                     "'shared_norm' needs 'parallel_residual'");
    if (v[F_ACT].n == ACT_SWIGLU) {
        v[F_ACT].n = ACT_SILU;
        if (!v[F_GATED].n && !v[F_GATED].bad)
            import_error(im, import_at(im, F_GATED), MEMPLAN_E_CONFLICT,
                         "'hidden_act' is swiglu, but 'gated_mlp' is false");
    }
    bool all_sparse = v[F_EXPERTS].n > 0 && v[F_EXPERT_FFN].at
                      && v[F_FIRST_DENSE].n == 0 && v[F_MOE_EVERY].n == 1;
    if (v[F_FFN].at)
        ;
    else if (all_sparse)
        v[F_FFN] = (struct value){ .n = v[F_EXPERT_FFN].n,
                                   .bad = v[F_EXPERT_FFN].bad };
    else if (v[F_GATED].n)
        import_missing(im, F_FFN);
    else
        v[F_FFN] =
            (struct value){ .n = 4 * v[F_HIDDEN].n, .bad = v[F_HIDDEN].bad };
    if (v[F_EXPERTS].n == 0)
        return;
    if (!v[F_EXPERT_FFN].at)
        v[F_EXPERT_FFN] =
            (struct value){ .n = v[F_FFN].n, .bad = v[F_FFN].bad };
    if (!v[F_EXPERTS_PER_TOKEN].at)
        import_missing(im, F_EXPERTS_PER_TOKEN);
}

/* 13B has alibi, under the same name; only the width tells. NormHead is of
 * version 2, which has the larger vocabulary. */
static void fix_baichuan(struct import *im)
{
    enum { BAICHUAN1_VOCAB = 64000, HIDDEN_13B = 5120 };
    struct value *v = im->v;
    v[F_HEAD_NORM].n = v[F_VOCAB].n > BAICHUAN1_VOCAB;
    if (v[F_HIDDEN].n == HIDDEN_13B)
        v[F_POSITION].n = POS_ALIBI;
}

/* The vocabulary is padded by the class; of a head no more rotates than there
 * is (MixFormerSequentialConfig). */
static void fix_phi_msft(struct import *im)
{
    struct value *v = im->v;
    const uint64_t pad = v[F_PAD_VOCAB].n;
    if (!v[F_VOCAB].bad && !v[F_PAD_VOCAB].bad)
        v[F_VOCAB].n = (v[F_VOCAB].n + pad - 1) / pad * pad;
    if (!v[F_HEAD_DIM].bad && v[F_ROTARY_DIM].n > v[F_HEAD_DIM].n)
        v[F_ROTARY_DIM].n = v[F_HEAD_DIM].n;
}

/* Both ways to the inner width agree (Mamba2Config.validate_architecture);
 * where the width of a head is not said it is what makes them. */
static void fix_mamba2(struct import *im)
{
    struct value *v = im->v;
    struct value *heads = &v[F_SSM_HEADS];
    if (heads->bad || v[F_SSM_HEAD_DIM].bad || v[F_SSM_INNER].bad)
        return;
    if (v[F_SSM_HEAD_DIM].n == 0)
        v[F_SSM_HEAD_DIM].n = v[F_SSM_INNER].n / heads->n;
    const uint64_t width = heads->n * v[F_SSM_HEAD_DIM].n;
    if (width == v[F_SSM_INNER].n)
        return;
    char inner[80];
    const bool keyed = im->keys[F_SSM_INNER][0] && !im->by_null[F_SSM_INNER];
    if (keyed)
        str_format(inner, sizeof(inner), "'%s'", import_key(im, F_SSM_INNER));
    else
        str_format(inner, sizeof(inner), "'%s' times 'hidden_size'",
                   import_key(im, F_EXPAND));
    memplan_error *e = import_error(
        im, import_at(im, F_SSM_HEADS), MEMPLAN_E_CONFLICT,
        "%" PRIu64 " head%s of %" PRIu64 " %s %" PRIu64
        " channels, but %s is %" PRIu64,
        heads->n, unit_s((double)heads->n), v[F_SSM_HEAD_DIM].n,
        heads->n == 1 ? "is" : "are", width, inner, v[F_SSM_INNER].n);
    if (keyed)
        diag_hint(e, "change '%s', '%s' or '%s'", import_key(im, F_SSM_HEADS),
                  import_key(im, F_SSM_HEAD_DIM), import_key(im, F_SSM_INNER));
    else
        diag_hint(e, "change '%s', '%s', '%s' or 'hidden_size'",
                  import_key(im, F_SSM_HEADS), import_key(im, F_SSM_HEAD_DIM),
                  import_key(im, F_EXPAND));
    heads->bad = true;
}

/* Without experts the shared MLP is all there is, and intermediate_size says
 * nothing; positions are rotated or not told at all
 * (GraniteMoeHybridDecoderLayer, GraniteMoeHybridModel). */
static void fix_granite_hybrid(struct import *im)
{
    struct value *v = im->v;
    const struct json *at = json_member(im->object, "position_embedding_type");
    if (at && at->kind == JSON_STRING && str_is(at->text, "rope"))
        v[F_POSITION].n = POS_ROPE;
    fix_mamba2(im);
    if (v[F_EXPERTS].bad || v[F_EXPERTS].n > 0 || v[F_SHARED_FFN].bad)
        return;
    if (v[F_SHARED_FFN].n == 0) {
        diag_hint(import_error(im, import_at(im, F_SHARED_FFN),
                               MEMPLAN_E_CONFLICT,
                               "'%s' is 0, and there are no experts",
                               import_key(im, F_SHARED_FFN)),
                  "without experts it is the MLP's width: at least 1");
        v[F_SHARED_FFN].bad = true;
    }
    v[F_FFN] = v[F_SHARED_FFN];
    v[F_FUSED_GATE_UP].n = 1;
}

/* Lfm2MLP: int(2 f / 3), times a factor, up to a multiple. */
static void fix_lfm2(struct import *im)
{
    struct value *v = im->v, *f = &v[F_FFN];
    const uint64_t of = v[F_FFN_MULTIPLE].n;
    if (f->bad || v[F_FFN_MULTIPLE].bad || v[F_FFN_MULTIPLIER].bad
        || !v[F_FFN_ADJUST].n)
        return;
    f->n = 2 * f->n / 3;
    f->n = (uint64_t)(v[F_FFN_MULTIPLIER].x * (double)f->n);
    f->n = of * ((f->n + of - 1) / of);
    if (f->n > 0)
        return;
    diag_hint(import_error(im, import_at(im, F_FFN), MEMPLAN_E_RANGE,
                           "'%s' makes an MLP of width 0",
                           import_key(im, F_FFN)),
              "two thirds of it, times block_ffn_dim_multiplier, are less "
              "than 1");
    f->bad = true;
}

/* Fewer than two experts: an MLP (JambaMambaDecoderLayer). */
static void fix_jamba(struct import *im)
{
    struct value *v = im->v;
    if (v[F_EXPERTS].n == 1)
        v[F_EXPERTS].n = 0;
    if (v[F_EXPERTS].n == 0)
        v[F_EXPERTS_PER_TOKEN].n = v[F_EXPERT_FFN].n = 0;
}

/* A list of [[types], times]: how many layers that is; 0 where it is none. */
static uint64_t layers_of_types(struct import *im, const struct json *all)
{
    uint64_t sum = 0;
    for (const struct json *one = all->child; one; one = one->next) {
        const struct json *types = one->kind == JSON_ARRAY ? one->child : NULL;
        uint64_t n = 0, times = 0;
        if (!types || types->kind != JSON_ARRAY || !types->next) {
            memplan_error *e =
                import_error(im, one, MEMPLAN_E_SCHEMA,
                             "an entry of '%s' must be a list of types and how "
                             "many times they stand",
                             all->key.p);
            diag_hint(e, "[[[\"global\", \"local\"], 12]] is 24 layers");
            return 0;
        }
        for (const struct json *at = types->child; at; at = at->next)
            n++;
        if (!import_count(im, types->next, 1, 1e6, &times))
            return 0;
        sum += n * times;
    }
    return sum;
}

/* Which layers are local changes no size, but all have to be there. */
static void fix_gpt_neo(struct import *im)
{
    const struct json *at = json_member(im->object, "attention_types");
    const struct value *layers = &im->v[F_LAYERS];
    if (!at || at->kind == JSON_NULL)
        return;
    if (at->kind != JSON_ARRAY) {
        memplan_error *e =
            import_error(im, at, MEMPLAN_E_SCHEMA,
                         "'attention_types' must be a list, not %s",
                         json_kind_name(at->kind));
        diag_hint(e, "[[[\"global\", \"local\"], 12]] is 24 layers");
        return;
    }
    const uint64_t n = layers_of_types(im, at);
    if (n == 0 || layers->bad || n == layers->n)
        return;
    memplan_error *e =
        import_error(im, at, MEMPLAN_E_CONFLICT,
                     "'attention_types' has %" PRIu64 " layer%s, '%s' %" PRIu64,
                     n, unit_s((double)n), import_key(im, F_LAYERS), layers->n);
    diag_hint(e, "[[[\"global\", \"local\"], 12]] is 24 layers");
}

/* InternLM3Config.validate_architecture: Llama's class has one key a module. */
static void fix_internlm3(struct import *im)
{
    const struct value *q = &im->v[F_Q_BIAS], *mlp = &im->v[F_MLP_BIAS];
    if (q->bad || mlp->bad || q->n == mlp->n)
        return;
    memplan_error *e = import_error(
        im, import_at(im, q->at ? F_Q_BIAS : F_MLP_BIAS), MEMPLAN_E_CONFLICT,
        "'qkv_bias' and 'bias' differ, which the class refuses");
    diag_hint(e, "give both the same value");
}

/* HeliumAttention's output projection is square. */
static void fix_helium(struct import *im)
{
    const struct value *v = im->v;
    if (v[F_HIDDEN].bad || v[F_HEADS].bad || v[F_HEAD_DIM].bad
        || v[F_HEADS].n * v[F_HEAD_DIM].n == v[F_HIDDEN].n)
        return;
    memplan_error *e = import_error(
        im, import_at(im, F_HEAD_DIM), MEMPLAN_E_CONFLICT,
        "%" PRIu64 " head%s of %" PRIu64 " %s not 'hidden_size' (%" PRIu64 ")",
        v[F_HEADS].n, unit_s((double)v[F_HEADS].n), v[F_HEAD_DIM].n,
        v[F_HEADS].n == 1 ? "is" : "are", v[F_HIDDEN].n);
    diag_hint(e, "the class projects them by a square matrix");
}

void import_fix_family(struct import *im)
{
    if (im->family == FAM_FALCON)
        fix_falcon(im);
    else if (im->family == FAM_QWEN)
        fix_qwen(im);
    else if (im->family == FAM_OPT)
        fix_opt(im);
    else if (im->family == FAM_ROBERTA)
        fix_roberta(im);
    else if (im->family == FAM_BAICHUAN)
        fix_baichuan(im);
    else if (im->family == FAM_PHI_MSFT)
        fix_phi_msft(im);
    else if (im->v[F_MERGE].n > 0)
        fix_qwen_images(im);
    else if (im->family == FAM_VIT || family_is_vision(im->family))
        fix_images(im);
    else if (im->family == FAM_DIT || im->family == FAM_DIT_DIFFUSERS)
        fix_dit(im);
    else if (im->family == FAM_WHISPER)
        fix_whisper(im);
    else if (family_is_t5(im->family)) {
        fix_t5(im);
        check_gated(im);
    } else if (im->family == FAM_MAMBA2 || im->family == FAM_BAMBA
               || im->family == FAM_FALCON_H1)
        fix_mamba2(im);
    else if (im->family == FAM_GRANITE_HYB)
        fix_granite_hybrid(im);
    else if (im->family == FAM_LFM2)
        fix_lfm2(im);
    else if (im->family == FAM_NEMOTRON_H)
        import_count_blocks(im);
    else if (im->family == FAM_JAMBA)
        fix_jamba(im);
    else if (im->family == FAM_HELIUM)
        fix_helium(im);
    else if (im->family == FAM_INTERNLM3)
        fix_internlm3(im);
    else if (im->family == FAM_GPT_NEO)
        fix_gpt_neo(im);
    else if (import_is_generic(im))
        fix_generic(im);
    if (im->v[F_EXPERTS].n > 0)
        fix_shared_experts(im);
}
