/*
 * Owns the transformer layer of Korthikanti et al. 2022, "Reducing Activation
 * Recomputation in Large Transformer Models", as its section 4 counts it:
 * layer norms keep their input only (mean and deviation are neglected), masks
 * of dropout are one byte, dropout is always there, attention is not fused.
 * From the operations follow its equations:
 *   per layer  sbh (10 + 24/t + 5as/(ht))        (2), tensor parallel
 *              sbh/t (34 + 5as/h)                (4), and sequence parallel
 *              34 sbh/t                          (6), and selective
 *   outside    sbh/t + 4sbh/t (1 + v/h)          section 4.3
 * The paper has f = 4h, as many kv heads as heads, GeLU; other dense decoders
 * are counted by the same rules. Refuses sparse ones.
 */
#include "lower/build.h"

#include "base/banned.h"

/* Masks are there whatever the model's probabilities are. */
#define PAPER_DROPOUT 0.1

/* Keeps its input alone: no statistics among its results. */
static tensor_id norm(struct builder *b, const char *name, tensor_id x)
{
    const struct shape shape = shape_of(b, x);
    const bool rms = b->spec->norm == NORM_RMS;
    tensor_id weight, bias;
    build_norm_weights(b, b->h, &weight, &bias);
    const tensor_id out = build_tensor(b, name, tensor_of(b, x)->dtype, &shape);
    const tensor_id in[] = { x, weight, bias };
    op_result(b, build_op(b, rms ? OP_RMS_NORM : OP_LAYER_NORM, name, in, 3),
              out);
    return out;
}

/* A row-parallel product, reduced, its dropout and the residual sum. */
static tensor_id row(struct builder *b, const struct linear *l,
                     tensor_id residual)
{
    const tensor_id y =
        build_dropout(b, "dropout", build_row(b, l), PAPER_DROPOUT);
    return build_add(b, "residual", residual, y);
}

static tensor_id core_attention(struct builder *b, const tensor_id qkv[3])
{
    const struct shape scores = shape_scores(b);
    const struct shape rows = SHAPE(b->t, b->A);
    build_region(b, REMOD_CORE_ATTN);
    b->core_attention = true;
    /* rows of q are whole heads side by side: each score sums d products */
    const struct shape heads = SHAPE(b->micro, b->a, b->sq, b->d);
    const tensor_id q = build_alias(b, "q", qkv[0], &heads);
    const tensor_id view[] = { qkv[0] };
    op_result(b, build_op(b, OP_VIEW, "q", view, 1), q);
    tensor_id p = build_matmul(b, "scores", q, qkv[1], &scores);
    p = build_softmax(b, "softmax", p, tensor_of(b, p)->dtype);
    p = build_dropout(b, "softmax dropout", p, PAPER_DROPOUT);
    const tensor_id out = build_matmul(b, "context", p, qkv[2], &rows);
    b->core_attention = false;
    build_region_none(b);
    return out;
}

static tensor_id attention(struct builder *b, tensor_id x)
{
    const tensor_id y = norm(b, "input norm", x);
    const struct linear in = linear_of_qkv(b, "qkv", y);
    const tensor_id mixed = build_column(b, &in);
    tensor_id qkv[3];
    const struct shape shapes[3] = { SHAPE(b->t, b->A), SHAPE(b->t, b->K),
                                     SHAPE(b->t, b->K) };
    build_split(b, "split", mixed, qkv, shapes, 3);
    const tensor_id context = core_attention(b, qkv);
    const struct linear out = linear_of_o(b, "projection", context);
    return row(b, &out, x);
}

static tensor_id mlp(struct builder *b, tensor_id x)
{
    const bool gated = b->spec->gated_mlp;
    const tensor_id y = norm(b, "mlp norm", x);
    struct linear in = linear_of_up(b, gated ? "gate" : "h to 4h", y);
    tensor_id g = build_column(b, &in);
    g = build_unary(b, OP_ACTIVATION, "activation", g);
    if (gated) {
        in.name = "up";
        g = build_mul(b, "gated", g, build_column(b, &in));
    }
    const struct linear out = linear_of_down(b, "4h to h", g);
    return row(b, &out, x);
}

static tensor_id layer(struct builder *b, const struct layer_kind *kind,
                       tensor_id x)
{
    (void)kind;
    return mlp(b, attention(b, x));
}

static tensor_id add_positions(struct builder *b, tensor_id x)
{
    const struct shape shape = SHAPE(b->sq, b->h);
    const tensor_id table = build_position_table(b, "position embeddings");
    const tensor_id y = build_embedding(b, "positions", b->ids, table, &shape);
    return build_add(b, "embedding sum", x, y);
}

/* Word and position embeddings, and their dropout (section 4.3). */
static void embedding(struct builder *b)
{
    build_begin(b, BLOCK_EMBED, "embedding");
    const struct shape whole = SHAPE(b->t, b->h), shard = SHAPE(b->tu, b->h);
    const tensor_id table = build_word_table(b, "word embeddings", b->h);
    tensor_id x = build_embedding(b, "embedding", b->ids, table, &whole);
    x = build_all_reduce(b, "embedding", x, COMM_TP);
    if (b->spec->position == POS_LEARNED)
        x = add_positions(b, x);
    if (build_has_sequence_shards(b))
        x = build_copy_as(b, "sequence shard", x, &shard);
    build_end(b, build_dropout(b, "embedding dropout", x, PAPER_DROPOUT));
}

/* Final norm, output layer, cross entropy on fp32 logits (section 4.3). */
static void head(struct builder *b)
{
    tensor_id x = build_begin(b, BLOCK_HEAD, "head");
    if (b->spec->final_norm)
        x = norm(b, "final norm", x);
    const tensor_id weight = build_head_weight(b, "output layer", b->h);
    const struct linear l = linear_of_head(b, "logits", x, weight);
    const tensor_id logits = build_column(b, &l);
    const tensor_id up = build_cast(b, "fp32 logits", logits, DT_FP32);
    const struct shape shape = shape_of(b, up), rows = SHAPE(b->t);
    const tensor_id loss = build_tensor(b, "loss", DT_FP32, &rows);
    const tensor_id kept = build_alias(b, "logits kept", up, &shape);
    const tensor_id in[] = { up, b->labels };
    struct op *op = build_op(b, OP_CROSS_ENTROPY, "cross entropy", in, 2);
    op->place = PLACE_KEPT;
    op_result(b, op, loss);
    op_byproduct(op, kept);
    build_end(b, build_mean(b, "mean loss", loss));
}

void lower_paper(struct builder *b)
{
    const char *what = b->spec->experts > 0 ? "experts" : build_beyond_plain(b);
    if (what != NULL) {
        build_refuse(b, what);
        return;
    }
    embedding(b);
    build_layers(b, layer);
    head(b);
}
