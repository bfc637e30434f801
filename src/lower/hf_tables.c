/*
 * Owns what transformers' models make once, before their first layer: inputs,
 * rotary tables, masks, biases; and which attention kernel a class has, on
 * which masks depend.
 */
#include "lower/hf.h"

#include "base/banned.h"

/* ---- which kernel ---- */

enum attention hf_kernel(const struct builder *b)
{
    return spec_hf_attention(b->spec, b->run->attention);
}

/* Tokens of an image see one another: two masks whatever layers want
 * (create_masks_for_vision_model). */
static bool sees_images(const struct builder *b)
{
    return b->whole->joint == JOINT_GEMMA3 && b->spec == b->whole;
}

/* The models whose own code makes a mask whatever kernel is there. */
static bool makes_mask(const struct spec *m, enum attention kernel)
{
    /* xformers' kernel does not look at it */
    if (m->family == FAM_BAICHUAN)
        return m->position == POS_ROPE;
    return m->family == FAM_QWEN && kernel == ATTN_SDPA;
}

/* Some token of a batch is masked (masking_utils.py): not of images, which are
 * as long as one another. */
bool hf_pads(const struct builder *b)
{
    return b->run->mask == MASK_PADDING && b->spec->image == 0;
}

bool hf_is_masked(const struct builder *b)
{
    return run_prefixes(b->run) || sees_images(b) || b->window != 0
           || hf_pads(b) || b->spec->family == FAM_FALCON
           || makes_mask(b->spec, ATTN_SDPA) || b->spec->index_heads > 0;
}

/* ---- tables ---- */

static bool slides(const struct builder *b)
{
    const struct spec *m = b->spec;
    return m->sliding_layers > 0 && m->sliding_window <= b->s.n;
}

/* Their models make a causal mask and a windowed one whatever layers want. */
static bool makes_both_masks(enum family family)
{
    return family == FAM_GEMMA2 || family == FAM_GEMMA3 || family == FAM_COHERE2
           || family == FAM_MINISTRAL || family == FAM_OLMO3
           || family == FAM_LLAMA4 || family == FAM_GPT_OSS || family == FAM_CWM
           || family == FAM_VAULTGEMMA || family == FAM_EXAONE_MOE;
}

/* Qwen2MoeModel makes one with a window whether or not a layer has it. */
static bool makes_idle_mask(enum family family)
{
    return family == FAM_QWEN2_MOE;
}

/* Eager adds a mask; the others need one for windows, Falcon always. */
static bool has_mask(const struct builder *b, bool sliding)
{
    const struct spec *m = b->spec;
    const bool mixed = slides(b) && m->sliding_layers < m->layers;
    const bool both = (makes_both_masks(m->family) && m->sliding_layers > 0)
                      || makes_idle_mask(m->family);
    if (b->run->mask == MASK_MODEL && spec_masks_itself(m))
        return !sliding && hf_kernel(b) == ATTN_EAGER;
    if (m->bidirectional)
        return !sliding && hf_pads(b) && hf_kernel(b) != ATTN_FLASH;
    if (m->heads == 0) /* Mamba has no attention */
        return false;
    if (sees_images(b))
        return hf_kernel(b) != ATTN_FLASH;
    switch (hf_kernel(b)) {
    case ATTN_EAGER: return sliding == slides(b) || mixed || both;
    case ATTN_SDPA:
        if (hf_pads(b))
            return sliding == slides(b) || mixed || both;
        if (sliding && makes_idle_mask(m->family))
            return true;
        if (sliding != slides(b) && !mixed)
            return false;
        return sliding || run_prefixes(b->run) || m->family == FAM_FALCON
               || makes_mask(m, ATTN_SDPA) || m->index_heads > 0;
    case ATTN_FLASH:
    case ATTENTION_COUNT: return !sliding && makes_mask(m, ATTN_FLASH);
    }
    return false;
}

static bool has_table(const struct builder *b, enum hf_table which)
{
    const struct spec *m = b->spec;
    const bool rope = (m->position == POS_ROPE && m->family != FAM_GPTJ
                       && m->family != FAM_LLAMA4_VISION)
                      || build_is_latent(b);
    switch (which) {
    case HF_POSITIONS:
        return (m->position == POS_LEARNED && m->image == 0
                && m->family != FAM_BART && m->mel_bins == 0)
               || m->family == FAM_GPTJ || run_cuts_sequences(b->run);
    case HF_COS:
        return rope && (!m->two_ropes || m->sliding_layers < m->layers);
    case HF_SIN: /* complex numbers hold both */
        return has_table(b, HF_COS) && m->family != FAM_DEEPSEEK_V2
               && m->family != FAM_LLAMA4;
    case HF_COS_LOCAL:
    case HF_SIN_LOCAL: return rope && m->two_ropes && m->sliding_layers > 0;
    case HF_ALIBI:
        return m->position == POS_ALIBI && hf_kernel(b) == ATTN_EAGER;
    case HF_MASK: return has_mask(b, false);
    case HF_MASK_SLIDING: return has_mask(b, true);
    case HF_BIAS:
    case HF_BIAS_DECODER:
    case HF_BIAS_CROSS: return m->relative_buckets > 0 && m->family != FAM_UMT5;
    case HF_ORDER: return m->window_side > 0;
    case HF_STARTS: return m->merge > 0 && hf_kernel(b) == ATTN_FLASH;
    case HF_STARTS_WINDOW:
        return m->window_side > 0 && hf_kernel(b) == ATTN_FLASH;
    case HF_TAPS:
    case HF_SHARES: return m->patch_places > 0;
    case HF_IMAGE_MASK:
        return m->vision != NULL && m->vision->deep_layers > 0
               && b->run->images > 0;
    case HF_TABLE_COUNT: break;
    }
    return false;
}

tensor_id hf_table(const struct builder *b, enum hf_table which)
{
    if (!has_table(b, which))
        return TENSOR_NONE;
    const bool input = which < HF_SHARED_FIRST;
    const bool eye = b->spec != b->whole && b->eye_tables != TENSOR_NONE;
    tensor_id id = input ? b->labels + 1
                   : eye ? b->eye_tables
                         : b->p->first_shared;
    for (int i = input ? 0 : HF_SHARED_FIRST; i < (int)which; i++)
        id += has_table(b, (enum hf_table)i);
    return id;
}

tensor_id hf_rope_table(const struct builder *b, enum hf_table which)
{
    const bool sin = which == HF_SIN;
    if (b->local && b->spec->two_ropes)
        return hf_table(b, sin ? HF_SIN_LOCAL : HF_COS_LOCAL);
    return hf_table(b, which);
}

/* The forward of some leaves out the cast. */
static enum dtype rope_dtype(const struct builder *b)
{
    static const enum family wide[] = {
        FAM_FLEX_OLMO,   FAM_OLMO,         FAM_OLMO2,          FAM_OLMO3,
        FAM_QWEN,        FAM_BAICHUAN,     FAM_ERNIE,          FAM_ERNIE_MOE,
        FAM_LLAMA4,      FAM_QWEN2_VISION, FAM_QWEN2_5_VISION, FAM_QWEN3_VISION,
        FAM_DEEPSEEK_V2,
    };
    return IS_AMONG(b->spec->family, wide) ? DT_FP32 : b->stream;
}

/* transformers/masking_utils.py: a number an entry for eager, a bool for
 * sdpa, one for all sequences unless images or padding are in them; MPT turns
 * it into a bool, Falcon's alibi is part of it. */
static void make_mask(struct builder *b, const char *name)
{
    const bool eager = hf_kernel(b) == ATTN_EAGER;
    const bool falcon_alibi =
        b->spec->family == FAM_FALCON && b->spec->position == POS_ALIBI;
    enum dtype dtype = b->stream;
    if (b->spec->family == FAM_MPT
        || (!eager && !falcon_alibi && b->spec->family != FAM_BAICHUAN))
        dtype = DT_BOOL;
    const struct dim heads = falcon_alibi ? b->a : b->one;
    if (b->spec->family == FAM_QWEN && !eager) { /* of words, not of pairs */
        const struct shape words = SHAPE(b->micro, b->one, b->one, b->s);
        build_shared(b, name, b->stream, &words);
        return;
    }
    const bool two = b->spec->decoder_layers > 0; /* the decoder's */
    const struct dim keys = two ? b->s_target : b->s;
    struct dim rows = two ? b->s_target : b->sq;
    if (b->run->mask == MASK_MODEL
        && spec_masks_itself(b->spec)) /* get_extended_attention_mask */
        rows = b->one;
    const struct shape shape = SHAPE(b->micro, heads, rows, keys);
    const tensor_id mask = build_shared(b, name, dtype, &shape);
    if (dtype == DT_BOOL && !eager && !sees_images(b)
        && !hf_pads(b)) /* sdpa_mask expands it */
        b->p->tensor[mask].bytes /= b->micro.n;
    const uint64_t first = b->spec->layers + 1;
    if (two)
        build_span(
            b, &(struct stack_span){ mask, first - 1, first, first, first });
    /* of a class whose end stands in the same forward */
    b->p->tensor[mask].held = b->spec->head == HEAD_ONE;
}

struct dim hf_position_rows(const struct builder *b)
{
    const enum family family = b->spec->family;
    if ((family == FAM_BART && !b->in_decoder) || run_cuts_sequences(b->run))
        return b->t;
    return family == FAM_OPT || family == FAM_ROBERTA ? b->t : b->sq;
}

static struct dim most_positions(const struct builder *b)
{
    return DIM("positions", max_u64(b->spec->max_positions, b->s.n));
}

tensor_id hf_causal_buffer(struct builder *b)
{
    const struct shape square = SHAPE(most_positions(b), most_positions(b));
    return build_buffer(b, "causal buffer", DT_BOOL, &square);
}

tensor_id hf_sincos_buffer(struct builder *b)
{
    const struct shape table =
        SHAPE(most_positions(b), DIM("r", b->spec->rotary_dim));
    return build_buffer(b, "embed_positions", DT_FP32, &table);
}

static void make_inputs(struct builder *b)
{
    const struct spec *m = b->spec;
    const struct shape rows = SHAPE(hf_position_rows(b));
    if (has_table(b, HF_POSITIONS))
        build_input(b,
                    m->family == FAM_BERT || m->family == FAM_DISTILBERT
                        ? "position buffer"
                        : "position_ids",
                    DT_INT64, &rows);
    const struct shape words = SHAPE(b->t);
    if (b->run->mask == MASK_PADDING) /* the collator's */
        build_input(b, "attention_mask", DT_INT64, &words);
    if (m->mel_bins > 0)
        hf_audio_input(b);
    else if (m->classes > 0)
        hf_dit_input(b);
    else if (b->whole->vision != NULL || m->image > 0)
        hf_image_input(b);
}

/* Rotary tables, and masks, of the part at hand. */
static void make_shared(struct builder *b)
{
    const struct spec *m = b->spec;
    const uint64_t r = build_is_latent(b)   ? m->rope_dim
                       : m->rotary_dim == 0 ? m->head_dim
                                            : m->rotary_dim;
    struct shape rope = SHAPE(b->sq, DIM("r", r));
    if (m->family == FAM_GPT_OSS) /* the angles are not repeated */
        rope.dim[1] = DIM("r/2", r / 2);
    if (m->family == FAM_QWEN) /* a cache for twice the longest sequence */
        rope.dim[0] = DIM("2*s", build_product(b, 2, b->sq.n));
    if (family_has_axes(m->family)     /* an axis' positions of each sequence */
        || run_cuts_sequences(b->run)) /* which come with the data */
        rope.dim[0] = b->t;
    static const char *const ropes[] = { "cos", "sin", "local cos",
                                         "local sin" };
    for (unsigned i = 0; i < 4; i++) {
        if (has_table(b, (enum hf_table)(HF_COS + i)))
            b->p->tensor[build_shared(b, ropes[i], rope_dtype(b), &rope)]
                .rotary = true;
    }
    if (has_table(b, HF_ALIBI)) {
        /* MPT: one sequence of them, in fp32 */
        const bool mpt = m->family == FAM_MPT;
        const struct shape each = SHAPE(b->micro, b->a, b->s);
        const struct shape once = SHAPE(b->a, b->s);
        build_shared(b, "alibi", mpt ? DT_FP32 : b->stream,
                     mpt ? &once : &each);
    }
    if (has_table(b, HF_MASK))
        make_mask(b, "attention mask");
    if (has_table(b, HF_MASK_SLIDING))
        make_mask(b, "sliding window mask");
    hf_make_biases(b);
    if (m->merge > 0)
        hf_window_tables(b);
    const struct shape words = SHAPE(b->t);
    if (has_table(b, HF_IMAGE_MASK))
        build_shared(b, "image mask", DT_BOOL, &words);
}

/* Qwen's vision parts have tables of their own, that their layers keep. */
static void make_eye_tables(struct builder *b)
{
    if (b->whole->joint != JOINT_QWEN)
        return;
    build_to_vision(b);
    b->eye_tables = b->p->n_tensors;
    make_shared(b);
    build_to_text(b);
}

void hf_make_tables(struct builder *b)
{
    make_inputs(b);
    hf_dit_shared(b);
    make_shared(b);
    make_eye_tables(b);
    hf_deep_features(b);
    hf_balance_begin(b);
    hf_prompt_labels(b);
    build_memory(b);
    if (b->memory != TENSOR_NONE) /* encoder_outputs */
        b->p->tensor[b->memory].held = true;
    hf_two_towers(b);
    hf_prefix_gradient(b);
}
