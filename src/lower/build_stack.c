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

#include "base/banned.h"

/* ---- kinds ---- */

static enum layer_place place_of(const struct spec *m, uint64_t i)
{
    if (m->decoder_layers == 0)
        return LAYER_ONLY;
    if (i < m->layers)
        return LAYER_ENCODER;
    if (i == m->layers)
        return LAYER_JOINT;
    return i == m->layers + m->decoder_layers ? LAYER_LAST : LAYER_DECODER;
}

struct layer_kind build_layer_kind(const struct builder *b, uint64_t i)
{
    const struct spec *m = b->spec;
    struct layer_kind kind = { .place = place_of(m, i) };
    const uint64_t every = at_least_one(m->moe_every);
    if (kind.place == LAYER_JOINT)
        return kind;
    kind.moe = m->experts > 0 && i >= m->first_dense
               && (i - m->first_dense + 1) % every == 0;
    const bool slides = i >= m->sliding_from
                        && (m->sliding_every == 0 || i % m->sliding_every == 0);
    if (slides && m->sliding_window < b->s.n)
        kind.window = m->sliding_window;
    return kind;
}

static const char *name_of_kind(const struct layer_kind *kind)
{
    switch (kind->place) {
    case LAYER_ENCODER: return "encoder layer";
    case LAYER_JOINT: return "decoder embedding";
    case LAYER_DECODER: return "decoder layer";
    case LAYER_LAST: return "last decoder layer";
    case LAYER_ONLY:
    case LAYER_PLACES: break;
    }
    if (kind->moe)
        return kind->window != 0 ? "sliding moe layer" : "moe layer";
    return kind->window != 0 ? "sliding layer" : "layer";
}

static void attend_to_memory(struct builder *b, bool waits)
{
    b->block->memory = b->memory;
    b->block->memory_waits = waits;
}

void build_layers(struct builder *b, layer_fn *layer)
{
    struct program *p = b->p;
    enum { NOT_YET = 0 }; /* block 0 is never a layer */
    uint8_t known[LAYER_PLACES][2][2] = { { { NOT_YET } } };
    for (uint64_t i = 0; i < p->layers; i++) {
        const struct layer_kind kind = build_layer_kind(b, i);
        uint8_t *index = &known[kind.place][kind.moe][kind.window != 0];
        if (*index == NOT_YET) {
            *index = (uint8_t)p->n_blocks;
            const bool joint = kind.place == LAYER_JOINT;
            const tensor_id x = build_begin(
                b, joint ? BLOCK_JOINT : BLOCK_LAYER, name_of_kind(&kind));
            if (kind.place == LAYER_DECODER || kind.place == LAYER_LAST)
                attend_to_memory(b, kind.place == LAYER_DECODER);
            b->window = kind.window;
            const tensor_id out = layer(b, &kind, x);
            b->window = 0;
            build_end(b, out);
        }
        if (p->layer_block != NULL)
            p->layer_block[i] = *index;
    }
}

/* ---- two stacks ---- */

struct shape build_targets(const struct builder *b)
{
    if (b->s_target.n == 0)
        return SHAPE(b->t);
    return SHAPE(DIM("b*s_dec", b->micro.n * b->s_target.n));
}

void build_memory(struct builder *b)
{
    if (b->spec->decoder_layers == 0)
        return;
    const struct shape shape = SHAPE(b->tu, b->h);
    b->memory = build_shared(b, "encoder's result", b->stream, &shape);
    b->p->tensor[b->memory].needs_grad = true;
}

void build_to_decoder(struct builder *b, tensor_id x)
{
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
