/*
 * Owns the order of layers: their kinds, each lowered once, and the two stacks
 * of an encoder-decoder, of which the second attends to the first's result.
 * Refuses to know what a layer does.
 *
 * The encoder's result lives as long as a micro-batch does: it is a ROLE_SHARED
 * tensor that the joint between the stacks fills. Its gradient is handed from
 * decoder layer to decoder layer, as that of the hidden states is.
 */
#include "lower/build_private.h"

#include <string.h>

#include "base/banned.h"

/* ---- kinds ---- */

static enum layer_place place_of(const struct spec *m, uint64_t i)
{
    const uint64_t before = spec_vision_blocks(m);
    if (i < before)
        return i + 1 == before ? LAYER_JOINT : LAYER_VISION;
    i -= before;
    if (m->decoder_layers == 0)
        return LAYER_ONLY;
    if (i < m->layers)
        return LAYER_ENCODER;
    if (i == m->layers)
        return LAYER_JOINT;
    return i == m->layers + m->decoder_layers ? LAYER_LAST : LAYER_DECODER;
}

/* Of a whole with adapters, the first layer of a part to which nothing trained
 * hands on its states, b->hidden. */
static bool part_at_leaf(const struct builder *b, uint64_t i)
{
    const struct spec *m = b->whole;
    const enum freeze part = i == 0 ? FREEZE_VISION : FREEZE_TEXT;
    return b->frozen && m->vision != NULL
           && (i == 0 || i == spec_vision_blocks(m))
           && (b->run->freeze >> part & 1) == 0
           && !b->p->tensor[b->hidden].needs_grad;
}

/* Frozen embeddings, and nobody calls PEFT's enable_input_require_grads. */
static bool starts_at_leaf(const struct builder *b)
{
    const uint64_t embed = LORA_MASK(LORA_FULL_EMBED);
    if (run_has_bridge_adapters(b->run)) /* PEFT.__call__, recompute.py */
        return !build_asks_grad(b);
    return b->frozen && run_is_litgpt(b->run)
           && (b->run->lora_full & embed) == 0;
}

/* Layers that freeze_trainable_layers leaves frozen. */
static bool is_below(const struct builder *b, uint64_t i)
{
    return i < b->run->frozen_layers;
}

/* Of a model whose adapters, or trained layers, begin further up: all layers up
 * to the first of these, that one too. */
static bool stack_at_leaf(const struct builder *b, uint64_t i)
{
    if (!b->run->stops || b->whole->vision != NULL || build_asks_grad(b)
        || b->embeds_trained)
        return false;
    for (uint64_t k = 0; k < i; k++)
        if (run_adapts(b->run) ? run_adapts_layer(b->run, k) : !is_below(b, k))
            return false;
    return true;
}

/* Of Qwen's vision parts some attend to windows of an image. */
static uint64_t vision_window(const struct spec *m, uint64_t i)
{
    const bool slides = m->sliding_window > 0 && pattern_has(&m->slides, i);
    return slides && m->sliding_window < m->max_positions ? m->sliding_window
                                                          : 0;
}

/* A merger takes the states of the layer before. */
static bool is_deep(const struct spec *vision, uint64_t i)
{
    return vision->deep_layers > 0 && i > 0
           && pattern_has(&vision->deep, i - 1);
}

/* transformers makes a window's mask from as many tokens on as it is wide
 * (masking_utils.py, _ignore_causal_mask_sdpa). */
static bool windows(const struct builder *b)
{
    const uint64_t wide = b->whole->sliding_window;
    return wide < b->s.n || (wide == b->s.n && run_is_hf(b->run));
}

/* First and last layers that Megatron leaves in bf16 (core/fp8_utils.py,
 * is_first_last_bf16_layer). */
static bool is_half(const struct builder *b, uint64_t i)
{
    const struct run *r = b->run;
    return b->fp8 && (i < r->bf16_first || i + r->bf16_last >= b->p->layers);
}

struct layer_kind build_layer_kind(const struct builder *b, uint64_t i)
{
    const struct spec *m = b->whole;
    struct layer_kind kind = { .place = place_of(m, i),
                               .leaf = (i == 0 && starts_at_leaf(b))
                                       || part_at_leaf(b, i)
                                       || stack_at_leaf(b, i),
                               .bare = !run_adapts_layer(b->run, i),
                               .below = is_below(b, i),
                               .half = is_half(b, i) };
    if (kind.place == LAYER_VISION)
        kind.window = vision_window(m->vision, i);
    if (kind.place == LAYER_VISION)
        kind.deep = is_deep(m->vision, i);
    if (kind.place == LAYER_JOINT || kind.place == LAYER_VISION)
        return kind;
    i -= spec_vision_blocks(m);
    kind.deep = m->vision == NULL
                    ? is_deep(m, i)
                    : b->run->images > 0 && i < m->vision->deep_layers;
    kind.mixer = m->lone_parts && !pattern_has(&m->mixes, i) ? MIX_NONE
                 : pattern_has(&m->attends, i)               ? MIX_ATTENTION
                                                             : m->mixer;
    kind.narrow = m->residual_fp32 && i == 0 && b->stream != DT_FP32;
    kind.moe = m->experts > 0 && pattern_has(&m->sparse, i);
    kind.first = m->relative_buckets > 0 && m->family != FAM_UMT5
                 && (i == 0 || i == m->layers + 1);
    if (kind.mixer != MIX_ATTENTION)
        return kind;
    kind.no_rope = m->position == POS_ROPE && !pattern_has(&m->rotates, i);
    const bool slides = m->sliding_window > 0 && pattern_has(&m->slides, i);
    if (slides && windows(b))
        kind.window = m->sliding_window;
    kind.local = slides && (m->two_ropes || m->block_stride > 0);
    return kind;
}

/* All layers after that one are of its kind: nothing is left to begin or end. */
static bool kinds_settled(const struct builder *b, uint64_t i)
{
    const struct spec *m = b->whole;
    return i > 0 && m->vision == NULL && m->decoder_layers == 0
           && m->deep_layers == 0 && !b->run->stops && !b->run->some_layers
           && !is_below(b, i) && i >= b->run->bf16_first
           && b->run->bf16_last == 0
           && (m->mixer == MIX_ATTENTION || pattern_settled(&m->attends, i))
           && (!m->lone_parts || pattern_settled(&m->mixes, i))
           && (m->experts == 0 || pattern_settled(&m->sparse, i))
           && (m->position != POS_ROPE || pattern_settled(&m->rotates, i))
           && (m->sliding_window == 0 || pattern_settled(&m->slides, i));
}

/* Attention is what a layer has unless it says, but where it is all there is.
 */
static const char *mixer_word(const struct layer_kind *kind,
                              const struct spec *m)
{
    const bool lone = m->lone_parts;
    if (m->both_mixers)
        return "hybrid ";
    switch (kind->mixer) {
    case MIX_MAMBA:
    case MIX_MAMBA2: return "mamba ";
    case MIX_DELTA: return "delta net ";
    case MIX_CONV: return "conv ";
    case MIX_NONE: return kind->moe ? "" : "mlp ";
    case MIX_ATTENTION: return lone ? "attention " : "";
    case MIXER_COUNT: break;
    }
    return "";
}

/* "sliding moe layer"; in the arena, or static. */
static const char *name_of_kind(struct builder *b,
                                const struct layer_kind *kind)
{
    char text[80];
    switch (kind->place) {
    case LAYER_ENCODER:
        return kind->first ? "first encoder layer" : "encoder layer";
    case LAYER_VISION:
        if (kind->window > 0)
            return kind->leaf ? "first window vision layer"
                              : "window vision layer";
        if (kind->deep)
            return "vision layer, merger";
        return kind->leaf ? "first vision layer" : "vision layer";
    case LAYER_JOINT:
        if (b->whole->vision == NULL)
            return "decoder embedding";
        return b->whole->joint == JOINT_CLIP ? "text embedding"
                                             : "projector, words";
    case LAYER_DECODER:
        return kind->first ? "first decoder layer" : "decoder layer";
    case LAYER_LAST:
        return kind->first ? "only decoder layer" : "last decoder layer";
    case LAYER_ONLY:
    case LAYER_PLACES: break;
    }
    const bool plain = !kind->below && !kind->bare && !kind->leaf
                       && !kind->narrow && kind->window == 0 && !kind->local
                       && !kind->no_rope && !kind->moe && !kind->deep
                       && !kind->half && kind->mixer == MIX_ATTENTION
                       && !b->spec->lone_parts;
    if (plain)
        return "layer";
    const size_t n = str_format(
        text, sizeof(text), "%s%s%s%s%s%s%slayer%s",
        kind->below  ? "frozen "
        : kind->bare ? "plain "
                     : "",
        kind->leaf || kind->narrow ? "first " : "", kind->half ? "bf16 " : "",
        kind->window == 0 && !kind->local ? ""
        : b->spec->chunked                ? "chunked "
                                          : "sliding ",
        kind->no_rope ? "nope " : "", mixer_word(kind, b->spec),
        kind->moe ? "moe " : "",
        !kind->deep                ? ""
        : b->whole->vision == NULL ? ", merger"
                                   : ", + features");
    const char *name = arena_copy(b->arena, text, n);
    b->failed = b->failed || name == NULL;
    return name != NULL ? name : "layer";
}

bool build_begins_alike(const struct layer_kind *x, const struct layer_kind *y)
{
    return x->place == y->place && x->mixer == y->mixer && x->first == y->first
           && x->narrow == y->narrow && x->no_rope == y->no_rope
           && x->bare == y->bare && x->below == y->below && x->leaf == y->leaf
           && x->deep == y->deep && x->half == y->half && x->window == y->window
           && x->local == y->local;
}

static bool same_kind(const struct layer_kind *x, const struct layer_kind *y)
{
    return build_begins_alike(x, y) && x->moe == y->moe;
}

static void attend_to_memory(struct builder *b, bool waits)
{
    b->block->memory = b->memory;
    b->block->memory_waits = waits;
}

void build_layers(struct builder *b, layer_fn *layer)
{
    struct program *p = b->p;
    struct layer_kind known[BLOCK_MAX];
    const uint32_t first = p->n_blocks;
    const bool eight = b->fp8;
    for (uint64_t i = 0, end; i < p->layers; i = end) {
        const struct layer_kind kind = build_layer_kind(b, i);
        uint32_t at = first;
        while (at < p->n_blocks && !same_kind(&known[at], &kind))
            at++;
        if (at == p->n_blocks && at < BLOCK_MAX) {
            known[at] = kind;
            const bool joint = kind.place == LAYER_JOINT;
            const tensor_id x = build_begin(
                b, joint ? BLOCK_JOINT : BLOCK_LAYER, name_of_kind(b, &kind));
            if (kind.place == LAYER_DECODER || kind.place == LAYER_LAST)
                attend_to_memory(b, kind.place == LAYER_DECODER);
            if (kind.leaf)
                b->p->tensor[x].needs_grad = false;
            b->window = kind.window;
            b->no_rope = kind.no_rope;
            b->local = kind.local;
            b->bare = kind.bare;
            b->below = kind.below;
            b->first = kind.first;
            b->fp8 = eight && !kind.half;
            b->in_layers = true;
            const tensor_id out = layer(b, &kind, x);
            b->in_layers = false;
            b->window = 0;
            b->no_rope = b->local = b->below = b->first = false;
            b->bare = b->run->some_layers;
            b->fp8 = eight;
            build_end(b, out);
        }
        end = kinds_settled(b, i) ? p->layers : i + 1;
        program_set_layers(p, i, end, at);
    }
}

/* ---- two stacks ---- */

struct shape build_targets(const struct builder *b)
{
    if (b->s_target.n == 0)
        return SHAPE(b->spec->image > 0 ? b->micro : b->words);
    return SHAPE(DIM("b*s_dec", b->micro.n * b->s_target.n));
}

void build_span(struct builder *b, const struct stack_span *span)
{
    if (b->p->n_spans == SPAN_MAX) { /* a family with more needs a larger one */
        b->failed = true;
        return;
    }
    b->p->span[b->p->n_spans++] = *span;
}

void build_memory(struct builder *b)
{
    if (b->spec->decoder_layers == 0)
        return;
    const struct shape shape = SHAPE(b->tu, b->h);
    b->memory = build_shared(b, "encoder's result", b->stream, &shape);
    b->p->tensor[b->memory].needs_grad = true;
    const uint64_t first = b->spec->layers + 1; /* the decoder's */
    build_span(
        b, &(struct stack_span){ b->memory, first - 1, first, first, first });
}

/* Heads and widths that the second stack has for itself. */
static void decoder_widths(struct builder *b)
{
    const struct spec *m = b->spec;
    const uint64_t tp = at_least_one(b->run->tp);
    if (m->decoder_ffn > 0) {
        b->f.n = div_up(m->decoder_ffn, tp);
        b->f2.n = build_product(b, 2, b->f.n);
    }
    if (m->decoder_heads > 0) {
        b->a.n = b->kv.n = div_up(m->decoder_heads, tp);
        b->d.n = b->dv.n = m->hidden / m->decoder_heads;
    }
}

uint64_t build_ffn(const struct builder *b)
{
    const struct spec *m = b->spec;
    return b->in_decoder && m->decoder_ffn > 0 ? m->decoder_ffn : m->ffn;
}

void build_to_decoder(struct builder *b, tensor_id x)
{
    decoder_widths(b);
    const uint64_t tp = at_least_one(b->run->tp);
    const uint64_t tokens = build_product(b, b->micro.n, b->s_target.n);
    b->p->tensor[x].storage = b->memory;
    b->in_decoder = true;
    b->block->memory = x;
    b->block->memory_waits = true;
    b->s = b->sq = b->s_target;
    b->t = b->tu = DIM("b*s_dec", tokens);
    if (b->run->sequence_parallel && tp > 1)
        b->tu = DIM("b*s_dec/tp", div_up(tokens, tp));
    b->attends_all = b->spec->bidirectional;
}

tensor_id build_keys(struct builder *b, const struct linear *l)
{
    struct linear from_whole = *l;
    if (!build_has_sequence_shards(b))
        return build_linear(b, l);
    const struct shape whole =
        SHAPE(DIM("b*s", build_product(b, b->micro.n, b->run->seq_len)), b->h);
    from_whole.keep = l->x;
    from_whole.has_keep = true;
    from_whole.x = build_collective(b, OP_ALL_GATHER, COMM_TP, l->x, &whole);
    return build_linear(b, &from_whole);
}

void build_cross_begin(struct builder *b)
{
    b->s = DIM("s", b->run->seq_len);
    b->attends_all = true;
}

void build_cross_end(struct builder *b)
{
    b->s = b->s_target;
    b->attends_all = b->spec->bidirectional;
}
