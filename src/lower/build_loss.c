/*
 * Owns what looks up and scatters rows: embedding, the losses over the
 * vocabulary, routing to experts; and the collectives between ranks. Refuses
 * to know which layers are sharded, and how many bytes a collective sends
 * (fold/comm.c does).
 */
#include "lower/build_private.h"

#include "base/banned.h"

/* ---- embedding, loss ---- */

tensor_id build_embedding(struct builder *b, const char *name,
                          tensor_id indices, tensor_id table,
                          const struct shape *shape)
{
    const tensor_id in[] = { table, indices };
    const enum dtype dtype = tensor_of(b, table)->dtype;
    return build_one_result(b, OP_EMBEDDING, name, in,
                            build_tensor(b, name, dtype, shape));
}

tensor_id build_nll_loss(struct builder *b, const char *name, tensor_id logp,
                         tensor_id labels)
{
    const tensor_id in[] = { logp, labels };
    const struct shape scalar = SHAPE(b->one);
    const enum dtype dtype = tensor_of(b, logp)->dtype;
    const tensor_id loss = build_tensor(b, name, dtype, &scalar);
    const tensor_id weight = build_tensor(b, "total weight", dtype, &scalar);
    struct op *op = build_op(b, OP_NLL_LOSS, name, in, 2);
    op_result(b, op, loss);
    op_byproduct(op, weight);
    return loss;
}

/* at::cross_entropy_loss asks log_softmax for the dtype of the logits, which
 * autocast respects; nll_loss it runs in fp32 (LossNLL.cpp, autocast_mode.h).
 */
tensor_id build_cross_entropy(struct builder *b, const char *name,
                              tensor_id logits, tensor_id labels)
{
    const tensor_id logp =
        build_unary(b, OP_LOG_SOFTMAX, "log-softmax", logits);
    return build_nll_loss(b, name, build_autocast_up(b, logp), labels);
}

tensor_id build_cross_entropy_kernel(struct builder *b, const char *name,
                                     tensor_id logits, tensor_id labels)
{
    const struct shape scalar = SHAPE(b->one), rows = SHAPE(b->t);
    const tensor_id in[] = { logits, labels };
    const tensor_id loss = build_tensor(b, name, DT_FP32, &scalar);
    const tensor_id max = build_tensor(b, "row maximum", DT_FP32, &rows);
    const tensor_id log = build_tensor(b, "row logarithm", DT_FP32, &rows);
    struct op *op = build_op(b, OP_FUSED, "cross entropy kernel", in, 2);
    op_result(b, op, loss);
    op_byproduct(op, max);
    op_byproduct(op, log);
    op->keep_in = 3;  /* logits, labels */
    op->keep_out = 6; /* maximum, logarithm */
    return loss;
}

static uint64_t pieces_backward(struct builder *b, tensor_id weight,
                                const struct pieces *how)
{
    /* of a piece: the gradient of its log-softmax, the one of its logits */
    const uint64_t logp = how->logp == DT_NONE ? 0 : dtype_size(how->logp);
    const uint64_t bytes =
        2 * logp
        + (logp == dtype_size(b->compute) ? 0 : dtype_size(b->compute));
    const uint64_t rows = div_up(b->t.n, at_least_one(how->n));
    const uint64_t piece =
        build_product(b, build_product(b, rows, b->V.n), bytes);
    const struct tensor *w = tensor_of(b, weight);
    return piece + (w->needs_grad ? w->bytes : 0);
}

tensor_id build_cross_entropy_pieces(struct builder *b, tensor_id x,
                                     tensor_id weight, const struct pieces *how)
{
    x = build_autocast(b, "autocast", x);
    weight = build_autocast(b, "autocast", weight);
    const struct shape scalar = SHAPE(b->one), whole = SHAPE(b->t, b->V);
    const struct shape rows = SHAPE(b->t, DIM("2", 2));
    const bool numbers = how->logp == DT_NONE;
    const tensor_id loss = build_tensor(b, "loss", DT_FP32, &scalar);
    const tensor_id logits = build_tensor(b, "logits", b->compute, &whole);
    const tensor_id logp =
        numbers ? build_tensor(b, "row statistics", DT_FP32, &rows)
                : build_tensor(b, "log-softmax", how->logp, &whole);
    const tensor_id in[] = { x, weight, b->labels };
    struct op *op = build_op(b, OP_FUSED, "loss in pieces", in, 3);
    op_result(b, op, loss);
    op_byproduct(op, logits);
    op_byproduct(op, logp);
    op->keep_in = tensor_of(b, weight)->needs_grad ? 7 : 6;
    op->keep_out = how->keep_logits ? 6 : 4; /* logits, log-softmax */
    op->back_bytes = pieces_backward(b, weight, how);
    op->flop_full = op->flop_causal =
        2.0 * (double)tensor_of(b, x)->elems * (double)b->V.n;
    return loss;
}

tensor_id build_logits_cap(struct builder *b, tensor_id logits)
{
    if (!(b->spec->final_softcap > 0))
        return logits;
    logits = build_scale(b, "logits / cap", logits);
    logits = build_unary(b, OP_TANH, "tanh", logits);
    return build_scale(b, "logits * cap", logits);
}

tensor_id build_shifted_logits(struct builder *b, tensor_id logits,
                               tensor_id *labels)
{
    const uint64_t n = b->sq.n > 1 ? b->sq.n - 1 : 1;
    const struct shape rows = SHAPE(b->micro, DIM("s-1", n), b->V);
    const struct shape tokens = SHAPE(b->micro, DIM("s-1", n));
    const tensor_id view = build_view(b, "shift_logits", logits, &rows);
    *labels = b->labels;
    if (b->micro.n == 1) /* contiguous(): of one sequence the view is */
        return view;
    *labels = build_copy_as(b, "shift_labels", *labels, &tokens);
    return build_copy_as(b, "shift_logits", view, &rows);
}

/* litgpt/utils.py, chunked_cross_entropy, over pieces of `rows` rows, of which
 * in[0] to in[n - 2] are some, before the labels. Backward goes from piece to
 * piece: its log-softmax is gone when it has the gradient of its logits; two
 * gradients of a piece are there beside the others. */
static struct op *loss_of_pieces(struct builder *b, const tensor_id *in,
                                 unsigned n, uint64_t rows)
{
    const struct shape scalar = SHAPE(b->one);
    const enum dtype dtype = tensor_of(b, in[0])->dtype;
    uint64_t elems = 0;
    for (unsigned i = 0; i + 1 < n; i++)
        elems += tensor_of(b, in[i])->elems;
    const uint64_t all = elems / at_least_one(b->V.n);
    const struct shape whole =
        SHAPE(all == b->t.n ? b->t : DIM("b*(s-1)", all), b->V);
    struct op *op = build_op(b, OP_FUSED, "chunked cross entropy", in, n);
    op_result(b, op, build_tensor(b, "loss", dtype, &scalar));
    op_byproduct(op, build_tensor(b, "log-softmax", dtype, &whole));
    op->keep_in = 1U << (n - 1); /* labels */
    op->keep_out = 2;            /* log-softmax */
    op->place = PLACE_KEPT;
    op->back_bytes = build_product(
        b, build_product(b, min_u64(rows, all), b->V.n), 2 * dtype_size(dtype));
    return op;
}

tensor_id build_cross_entropy_of_list(struct builder *b, tensor_id logits,
                                      uint64_t piece_rows)
{
    const tensor_id in[] = { logits, b->labels };
    struct op *op = loss_of_pieces(b, in, 2, piece_rows);
    op->keep_in |= 1; /* the caller's list */
    return op->out[0];
}

tensor_id build_cross_entropy_of_split(struct builder *b, tensor_id logits,
                                       tensor_id labels, uint64_t piece_rows)
{
    const uint64_t all = tensor_of(b, logits)->elems / at_least_one(b->V.n);
    const uint64_t first = min_u64(piece_rows, all);
    const struct shape parts[] = { SHAPE(DIM("128", first), b->V),
                                   SHAPE(DIM("rows after", all - first),
                                         b->V) };
    tensor_id in[3] = { logits, labels };
    if (first == all)
        return loss_of_pieces(b, in, 2, piece_rows)->out[0];
    build_split(b, "pieces", logits, in, parts, 2);
    in[2] = labels;
    return loss_of_pieces(b, in, 3, piece_rows)->out[0];
}

/* liger_kernel/ops/fused_linear_cross_entropy.py: as many rows as make the
 * chunk's logits about as large as the input. */
struct dim fused_cross_entropy_chunk(const struct builder *b)
{
    const uint64_t times = div_up(b->V.n, at_least_one(b->h.n));
    const uint64_t rows = div_up(b->t.n, at_least_one(times));
    uint64_t chunk = 1;
    while (chunk < rows && chunk <= UINT64_MAX / 2)
        chunk *= 2;
    return DIM("chunk", chunk);
}

/* A chunk's share of the head gradient is a product of its own, and then the
 * same in fp32: grad_weight += torch.mm(...).float(). */
static void add_chunk(struct builder *b, tensor_id logits,
                      const struct shape *weight, enum dtype dtype)
{
    struct op *op = build_op(b, OP_COPY, "head gradient sum", &logits, 1);
    op_byproduct(op, build_tensor(b, "chunk's head gradient", dtype, weight));
    op_byproduct(op, build_tensor(b, "head gradient fp32", DT_FP32, weight));
}

tensor_id build_fused_cross_entropy(struct builder *b, const char *name,
                                    tensor_id x, tensor_id weight,
                                    struct dim chunk)
{
    x = build_autocast(b, "autocast", x);
    weight = build_autocast(b, "autocast", weight);
    const struct shape scalar = SHAPE(b->one);
    const struct shape rows = SHAPE(chunk, b->V);
    const struct shape weight_shape = shape_of(b, weight);
    const enum dtype dtype = tensor_of(b, x)->dtype;
    const tensor_id loss = build_tensor(b, name, DT_FP32, &scalar);
    const tensor_id dx = build_like(b, "input gradient", x);
    tensor_id dw = TENSOR_NONE;
    if (needs_grad(b, weight))
        dw = build_tensor(b, "head gradient", tensor_of(b, weight)->dtype,
                          &weight_shape);
    const tensor_id logits = build_tensor(b, "logits chunk", dtype, &rows);
    const tensor_id in[] = { x, weight, b->labels };
    struct op *op = build_op(b, OP_FUSED_CROSS_ENTROPY, name, in, 3);
    op->place = PLACE_KEPT;
    op_result(b, op, loss);
    op_byproduct(op, logits);
    op_byproduct(op, dx);
    if (dw != TENSOR_NONE)
        op_byproduct(op, dw);
    op->flop_full = op->flop_causal =
        2.0 * (double)tensor_of(b, x)->elems * (double)b->V.n;
    if (dw != TENSOR_NONE)
        add_chunk(b, logits, &weight_shape, dtype);
    return loss;
}

/* ---- routing ---- */

tensor_id build_topk(struct builder *b, const char *name, tensor_id x,
                     struct dim k, tensor_id *indices)
{
    const struct shape shape = shape_last(b, x, k);
    const enum dtype dtype = tensor_of(b, x)->dtype;
    const tensor_id values = build_tensor(b, name, dtype, &shape);
    *indices = build_tensor(b, "top-k indices", DT_INT64, &shape);
    struct op *op = build_op(b, OP_TOPK, name, &x, 1);
    op_result(b, op, values);
    op_byproduct(op, *indices);
    return values;
}

tensor_id build_index(struct builder *b, const char *name, tensor_id x,
                      tensor_id indices, const struct shape *shape)
{
    const tensor_id in[] = { x, indices };
    const enum dtype dtype = tensor_of(b, x)->dtype;
    return build_one_result(b, OP_INDEX, name, in,
                            build_tensor(b, name, dtype, shape));
}

/* ---- collectives ---- */

static uint64_t group_ranks(const struct builder *b, enum comm_group group)
{
    switch (group) {
    case COMM_TP: return b->run->tp;
    case COMM_CP: return b->run->cp;
    case COMM_EP: return b->run->ep;
    case COMM_ETP: return b->run->etp;
    }
    return 1;
}

tensor_id build_all_reduce(struct builder *b, const char *name, tensor_id x,
                           enum comm_group group)
{
    if (group_ranks(b, group) <= 1)
        return x;
    const tensor_id out = build_unary_in_place(b, OP_ALL_REDUCE, name, x);
    b->p->op[b->p->n_ops - 1].group = group;
    return out;
}

tensor_id build_collective(struct builder *b, enum op_kind kind,
                           enum comm_group group, tensor_id x,
                           const struct shape *shape)
{
    if (group_ranks(b, group) <= 1)
        return x;
    const tensor_id in[] = { x, TENSOR_NONE };
    const enum dtype dtype = tensor_of(b, x)->dtype;
    const char *name = op_kind_name(kind);
    const tensor_id out = build_tensor(b, name, dtype, shape);
    build_one_result(b, kind, name, in, out);
    b->p->op[b->p->n_ops - 1].group = group;
    return out;
}
