/*
 * Owns multi-token prediction as Megatron-core builds it: behind the last layer
 * a module embeds the tokens one place further, joins them to the hidden
 * states, and runs one more layer; the shared output layer gives it a loss of
 * its own. Refuses to know what a layer is. Read at Megatron-LM d98e8a64,
 * core/transformer/multi_token_prediction.py. [docs/method.md eq. mtp]
 */
#include "lower/megatron.h"

#include "base/banned.h"

struct mtp {
    tensor_id table; /* of words: the first stage's, or a copy of it */
    tensor_id ids, labels;
    struct dim h2;
};

/* roll_tensor: the next token's, one place to the left. */
static tensor_id rolled(struct builder *b, const char *name, tensor_id x)
{
    return build_copy(b, name, x);
}

/* A column-parallel product whose result is gathered along its width, and cut
 * to a sequence shard again. */
static tensor_id project(struct builder *b, tensor_id x, struct dim h2)
{
    const uint64_t tp = max_u64(b->run->tp, 1);
    const struct dim part = DIM(tp > 1 ? "h/tp" : "h", div_up(b->h.n, tp));
    const struct linear l = { .name = "eh_proj",
                              .x = x,
                              .in = h2,
                              .out = part,
                              .full_out = b->spec->hidden,
                              .group = PG_MLP,
                              .parallel = PAR_COLUMN };
    const struct shape whole = SHAPE(b->t, b->h), shard = SHAPE(b->tu, b->h);
    tensor_id y = build_column(b, &l);
    y = build_collective(b, OP_ALL_GATHER, COMM_TP, y, &whole);
    if (build_has_sequence_shards(b))
        y = build_copy_as(b, "sequence shard", y, &shard);
    return y;
}

static tensor_id module(struct builder *b, struct mtp *m, tensor_id x)
{
    const struct layer_kind kind = build_layer_kind(b, b->spec->layers - 1);
    m->ids = rolled(b, "input_ids", m->ids);
    tensor_id words = megatron_words(b, m->table, m->ids);
    const uint32_t first = b->p->n_ops;
    words = megatron_norm(b, "enorm", words, b->h);
    x = megatron_norm(b, "hnorm", x, b->h);
    const struct shape joined = SHAPE(b->tu, m->h2);
    x = build_cat(b, "words, hidden states", words, x, &joined);
    x = megatron_layer(b, &kind, project(b, x, m->h2));
    x = megatron_norm(b, "mtp.final_layernorm", x, b->h);
    build_checkpoint(b, first); /* _checkpointed_forward */
    return x;
}

/* MTPLossAutoScaler: x itself, with a second thing to send gradients to. */
static tensor_id attach(struct builder *b, tensor_id x, tensor_id loss)
{
    const struct shape shape = shape_of(b, x);
    const tensor_id in[] = { x, loss };
    const tensor_id out = build_alias(b, "with the mtp loss", x, &shape);
    op_result(b, build_op(b, OP_ADD, "with the mtp loss", in, 2), out);
    return out;
}

/* One tensor for all hidden states; the losses take views of it. */
static void join(struct builder *b, tensor_id *x, unsigned n)
{
    const struct dim rows = DIM("(1+mtp)*b*s", build_product(b, n, b->tu.n));
    const struct shape all = SHAPE(rows, b->h), one = SHAPE(b->tu, b->h);
    const tensor_id out =
        build_tensor(b, "all hidden states", tensor_of(b, x[0])->dtype, &all);
    op_result(b, build_op(b, OP_CAT, "all hidden states", x, n), out);
    struct shape shapes[OP_OUT_MAX];
    for (unsigned i = 0; i < n; i++)
        shapes[i] = one;
    build_split(b, "hidden states", out, x, shapes, n);
}

tensor_id megatron_mtp(struct builder *b, tensor_id x, tensor_id head)
{
    enum { MOST = 4 };
    _Static_assert(MOST + 1 <= OP_OUT_MAX && MOST + 1 <= OP_IN_MAX,
                   "the hidden states of all modules are joined, and split");
    const uint64_t modules = b->spec->mtp_layers;
    if (modules > MOST) {
        build_refuse(b, "more than four prediction modules");
        return x;
    }
    struct mtp m = { .ids = b->ids, .labels = b->labels };
    m.table = b->spec->tied
                  ? head
                  : build_tied_table(b, "word_embeddings of mtp", b->h);
    m.h2 = DIM("2*h", build_product(b, 2, b->h.n));
    tensor_id each[OP_OUT_MAX] = { x };
    for (unsigned i = 0; i < modules; i++)
        each[i + 1] = module(b, &m, each[i]);
    join(b, each, (unsigned)modules + 1);
    build_node(b, NODE_POST);
    for (unsigned i = 0; i < modules; i++) {
        const struct linear l =
            linear_of_head(b, "mtp.output_layer", each[i + 1], head);
        m.labels = rolled(b, "labels", m.labels);
        const tensor_id logits = build_column_in_buffer(b, &l);
        const tensor_id loss = megatron_loss(b, logits, m.labels);
        each[0] = attach(b, each[0], build_scale(b, "mtp loss", loss));
    }
    return each[0];
}
