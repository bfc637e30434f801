/*
 * Owns what Whisper has in place of words: spectra, two convolutions, and the
 * positions of both stacks (transformers, WhisperEncoder, WhisperDecoder).
 * Refuses to know the layers, which are any encoder-decoder's.
 */
#include "lower/hf.h"

#include "base/banned.h"

enum { TAPS = 3, STRIDE = 2 }; /* of the second; the first has none */

/* In the weights' type: the class casts nothing. */
void hf_audio_input(struct builder *b)
{
    const struct shape spectra =
        SHAPE(b->micro, DIM("mel", b->spec->mel_bins),
              DIM("2*s", build_product(b, STRIDE, b->sq.n)));
    b->ids = build_input(b, "input_features", b->stream, &spectra);
}

/* From x, `in` channels of it. */
static tensor_id convolution(struct builder *b, const char *name, tensor_id x,
                             struct dim in, struct dim columns)
{
    const struct dim taps = DIM("c_in*k", build_product(b, in.n, TAPS));
    const tensor_id weight =
        build_param(b, &(struct param){ .name = name,
                                        .group = PG_CONV,
                                        .rows = b->h,
                                        .cols = taps,
                                        .last = { in.n, TAPS },
                                        .matmul = true });
    const tensor_id bias = build_bias(b, name, PG_CONV, b->h, 0);
    const tensor_id all[] = { build_autocast(b, name, x),
                              build_autocast(b, name, weight),
                              build_autocast(b, name, bias) };
    const struct shape shape = SHAPE(b->micro, b->h, columns);
    const tensor_id y =
        build_tensor(b, name, tensor_of(b, all[1])->dtype, &shape);
    struct op *op = build_op(b, OP_CONV, name, all, 3);
    op_result(b, op, y);
    op->flop_full = op->flop_causal =
        2.0 * (double)tensor_of(b, y)->elems * (double)taps.n;
    return y;
}

/* Sines that are a parameter, and not trained: looked up by a range. */
static tensor_id sines(struct builder *b)
{
    const struct shape places = SHAPE(b->sq), shape = SHAPE(b->sq, b->h);
    const tensor_id table = build_param(
        b, &(struct param){ .name = "embed_positions",
                            .group = PG_POSITION,
                            .rows = DIM("positions", b->spec->max_positions),
                            .cols = b->h,
                            .fixed = true });
    const tensor_id all = build_copy_as(b, "all_positions", b->labels, &places);
    return build_embedding(b, "embed_positions", all, table, &shape);
}

tensor_id hf_audio_embed(struct builder *b)
{
    const struct dim all = DIM("2*s", build_product(b, STRIDE, b->sq.n));
    const struct dim mel = DIM("mel", b->spec->mel_bins);
    const struct shape tokens = SHAPE(b->t, b->h);
    tensor_id x = convolution(b, "conv1", b->ids, mel, all);
    x = build_unary(b, OP_ACTIVATION, "gelu", x);
    x = convolution(b, "conv2", x, b->h, b->sq);
    x = build_unary(b, OP_ACTIVATION, "gelu", x);
    x = build_view(b, "columns", x, &tokens);
    return build_add(b, "embeddings + positions", x, sines(b));
}

/* weight[position_ids]: every sequence has its own. */
tensor_id hf_audio_target_positions(struct builder *b, tensor_id x)
{
    const struct shape rows = SHAPE(b->t), shape = SHAPE(b->t, b->h);
    const tensor_id table = build_param(
        b, &(struct param){ .name = "position_embedding",
                            .group = PG_POSITION,
                            .rows = DIM("positions", b->spec->target_positions),
                            .cols = b->h });
    const tensor_id ids = build_copy_as(b, "position_ids", b->labels, &rows);
    const tensor_id places = build_index(b, "positions", table, ids, &shape);
    return build_add(b, "embeddings + positions", x, places);
}
