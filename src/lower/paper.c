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

static bool sequence_parallel(const struct builder *b)
{
    return b->run->sequence_parallel && b->run->tp > 1;
}

/* Keeps its input alone: no statistics among its results. */
static tensor_id norm(struct builder *b, const char *name, tensor_id x)
{
    const struct shape shape = shape_of(b, x);
    const bool rms = b->spec->norm == NORM_RMS;
    tensor_id weight = TENSOR_NONE, bias = TENSOR_NONE;
    if (b->spec->norm != NORM_LAYER_PLAIN)
        weight = build_norm_weight(b, "weight", b->h);
    if (b->spec->norm == NORM_LAYER)
        bias = build_norm_weight(b, "bias", b->h);
    const tensor_id out = build_tensor(b, name, tensor_of(b, x)->dtype, &shape);
    const tensor_id in[] = { x, weight, bias };
    op_result(b, build_op(b, rms ? OP_RMS_NORM : OP_LAYER_NORM, name, in, 3),
              out);
    return out;
}

/* A column-parallel product. Its input is gathered where it is a shard, and
 * gathered again in backward: the shard is kept (section 4.2.2). */
static tensor_id column(struct builder *b, struct linear l)
{
    l.in = b->h;
    l.parallel = PAR_COLUMN;
    if (sequence_parallel(b)) {
        const struct shape whole = SHAPE(b->t, b->h);
        l.keep = l.x;
        l.has_keep = true;
        l.x = build_collective(b, OP_ALL_GATHER, COMM_TP, l.x, &whole);
    }
    return build_linear(b, &l);
}

/* A row-parallel product, reduced, its dropout and the residual sum. */
static tensor_id row(struct builder *b, struct linear l, tensor_id residual)
{
    l.out = b->h;
    l.parallel = PAR_ROW;
    tensor_id y = build_linear(b, &l);
    const struct shape shard = SHAPE(b->tu, b->h);
    if (sequence_parallel(b))
        y = build_collective(b, OP_REDUCE_SCATTER, COMM_TP, y, &shard);
    else
        y = build_all_reduce(b, l.name, y, COMM_TP);
    y = build_dropout(b, "dropout", y, PAPER_DROPOUT);
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
    const struct spec *m = b->spec;
    const tensor_id y = norm(b, "input norm", x);
    const tensor_id mixed =
        column(b, (struct linear){ .name = "qkv",
                                   .x = y,
                                   .out = b->qkv,
                                   .group = PG_ATTENTION,
                                   .full_out = b->full_A + 2 * b->full_K,
                                   .bias = m->q_bias || m->k_bias || m->v_bias,
                                   .lora = LORA_MASK(LORA_Q) | LORA_MASK(LORA_K)
                                           | LORA_MASK(LORA_V) });
    tensor_id qkv[3];
    const struct shape shapes[3] = { SHAPE(b->t, b->A), SHAPE(b->t, b->K),
                                     SHAPE(b->t, b->K) };
    build_split(b, "split", mixed, qkv, shapes, 3);
    const tensor_id context = core_attention(b, qkv);
    return row(b,
               (struct linear){ .name = "projection",
                                .x = context,
                                .in = b->A,
                                .full_in = b->full_A,
                                .group = PG_ATTENTION,
                                .bias = m->o_bias,
                                .lora = LORA_MASK(LORA_O) },
               x);
}

static tensor_id mlp(struct builder *b, tensor_id x)
{
    const struct spec *m = b->spec;
    const tensor_id y = norm(b, "mlp norm", x);
    struct linear in = { .name = m->gated_mlp ? "gate" : "h to 4h",
                         .x = y,
                         .out = b->f,
                         .full_out = m->ffn,
                         .group = PG_MLP,
                         .bias = m->mlp_bias,
                         .lora = LORA_MASK(LORA_UP) };
    tensor_id g = column(b, in);
    g = build_unary(b, OP_ACTIVATION, "activation", g);
    if (m->gated_mlp) {
        in.name = "up";
        g = build_mul(b, "gated", g, column(b, in));
    }
    return row(b,
               (struct linear){ .name = "4h to h",
                                .x = g,
                                .in = b->f,
                                .full_in = m->ffn,
                                .group = PG_MLP,
                                .bias = m->mlp_bias,
                                .lora = LORA_MASK(LORA_DOWN) },
               x);
}

static tensor_id layer(struct builder *b, const struct layer_kind *kind,
                       tensor_id x)
{
    (void)kind;
    return mlp(b, attention(b, x));
}

static tensor_id positions(struct builder *b)
{
    const struct shape shape = SHAPE(b->sq, b->h);
    const tensor_id table = build_param(
        b,
        &(struct param){ .name = "position embeddings",
                         .group = PG_POSITION,
                         .rows = DIM("positions", b->spec->learned_positions),
                         .cols = b->h });
    return build_embedding(b, "positions", b->ids, table, &shape);
}

/* Word and position embeddings, and their dropout (section 4.3). */
static void embedding(struct builder *b)
{
    const struct spec *m = b->spec;
    build_begin(b, BLOCK_EMBED, "embedding");
    const struct shape whole = SHAPE(b->t, b->h), shard = SHAPE(b->tu, b->h);
    const tensor_id table = build_param(
        b,
        &(struct param){ .name = "word embeddings",
                         .group = PG_EMBED,
                         .rows = b->V,
                         .cols = b->h,
                         .full_elems = build_product(b, m->vocab, m->hidden) });
    tensor_id x = build_embedding(b, "embedding", b->ids, table, &whole);
    x = build_all_reduce(b, "embedding", x, COMM_TP);
    if (m->position == POS_LEARNED)
        x = build_add(b, "embedding sum", x, positions(b));
    if (sequence_parallel(b))
        x = build_copy_as(b, "sequence shard", x, &shard);
    build_end(b, build_dropout(b, "embedding dropout", x, PAPER_DROPOUT));
}

/* Final norm, output layer, cross entropy on fp32 logits (section 4.3). */
static void head(struct builder *b)
{
    const struct spec *m = b->spec;
    tensor_id x = build_begin(b, BLOCK_HEAD, "head");
    if (m->final_norm)
        x = norm(b, "final norm", x);
    const tensor_id weight = build_param(
        b, &(struct param){ .name = "output layer",
                            .group = PG_HEAD,
                            .rows = b->V,
                            .cols = b->h,
                            .full_elems = build_product(b, m->vocab, m->hidden),
                            .matmul = true,
                            .tied = m->tied });
    const tensor_id logits = column(b, (struct linear){ .name = "logits",
                                                        .x = x,
                                                        .out = b->V,
                                                        .group = PG_HEAD,
                                                        .weight = weight,
                                                        .has_weight = true,
                                                        .bias = m->head_bias,
                                                        .full_out = m->vocab });
    const tensor_id up = build_cast(b, "fp32 logits", logits, DT_FP32);
    const struct shape shape = shape_of(b, up), rows = SHAPE(b->t);
    const tensor_id loss = build_tensor(b, "loss", DT_FP32, &rows);
    const tensor_id kept = build_alias(b, "logits kept", up, &shape);
    const tensor_id in[] = { up, b->labels };
    struct op *op = build_op(b, OP_CROSS_ENTROPY, "cross entropy", in, 2);
    op_result(b, op, loss);
    op_byproduct(op, kept);
    build_end(b, build_mean(b, "mean loss", loss));
}

void lower_paper(struct builder *b)
{
    if (b->spec->experts > 0) {
        build_refuse(b, "experts");
        return;
    }
    embedding(b);
    build_layers(b, layer);
    head(b);
}
