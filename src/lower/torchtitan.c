/*
 * Owns the Llama of torchtitan (read at b5bcd76c: models/common/attention.py,
 * feed_forward.py, rope.py) and of torchtune, which differs in its norm. The
 * norm is one kernel, the gated mlp is not, rope is complex arithmetic in fp32
 * that keeps its table only, logits are upcast for the loss:
 *   T (8h + 8 + (4A + 4K + 8f + 4a)/t) bytes a layer in 16 bits;
 * with tensor parallelism the norms work on sequence shards, and what is
 * gathered for the linears is kept whole, for DTensor does not gather again.
 * Refuses what is not Llama-like. [docs/method.md eq. torchtitan]
 */
#include "lower/build.h"

#include "base/banned.h"

/* torchtitan/components/loss.py */
enum { LOSS_CHUNKS = 8 };

static tensor_id norm(struct builder *b, const char *name, tensor_id x,
                      struct dim n)
{
    const tensor_id weight = build_norm_weight(b, name, n);
    if (b->run->norm_kernel == NORM_EAGER)
        return build_rms_norm_written_out(b, name, x, weight);
    return build_rms_norm(b, name, x, weight);
}

/* DTensor's collectives work on the first dimension, and tokens are the second:
 * what is scattered is put in order first, a copy, what was gathered
 * afterwards, where there is more than one sequence (torch/distributed/
 * _functional_collectives.py; torch/_utils.py, _maybe_view_chunk_cat). In one
 * operation with its products forward copies neither: tokens come first in what
 * is gathered, and partial results lie as they are summed. What backward
 * scatters is a sum of several products', and is in no such operation
 * (torch/distributed/_symmetric_memory/__init__.py, _fused_all_gather_matmul,
 * _fused_matmul_reduce_scatter; _inductor/fx_passes/micro_pipeline_tp.py). */
static void order_ranks(struct builder *b, tensor_id y, bool scatters,
                        bool pipelined)
{
    const struct shape whole = SHAPE(b->t, b->h);
    struct op *op = &b->p->op[b->p->n_ops - 1];
    const enum dtype dtype = tensor_of(b, y)->dtype;
    const tensor_id copy = build_tensor(b, "ranks in order", dtype, &whole);
    const bool many = b->run->micro_batch > 1;
    const bool small = scatters && tensor_of(b, op->in[0])->grad_in_8_bits;
    const uint64_t back = dtype_bytes_of(small ? DT_FP8 : b->run->prec.compute,
                                         tensor_of(b, copy)->elems);
    op->pipelined = pipelined;
    if ((scatters || many) && !pipelined)
        op_byproduct(op, copy);
    if (!scatters || many)
        op->back_bytes = back;
}

/* torchao's Float8ColwiseParallel and Float8RowwiseParallel cast before they
 * gather: what goes into a layer's linears, and the gradient of what comes out
 * (float8/float8_tensor_parallel.py); one scale a tensor alone can. */
static bool gathers_8_bits(const struct builder *b)
{
    return b->casts_8 && run_fp8_is_whole(b->run);
}

static tensor_id gather(struct builder *b, tensor_id x, bool pipelined)
{
    const struct shape whole = SHAPE(b->t, b->h);
    if (!build_has_sequence_shards(b))
        return x;
    const tensor_id y = build_collective(b, OP_ALL_GATHER, COMM_TP, x, &whole);
    order_ranks(b, y, false, pipelined);
    return y;
}

/* Looked at with one scale a tensor, in what Inductor of PyTorch 2.6.0 writes for
 * an H100: a norm's and the gate's kernel write 8 bits, of torchao's linears of
 * Llama's layer, and no 16 where no backward is to find them. */
static tensor_id for_linears(struct builder *b, tensor_id x)
{
    b->p->tensor[x].made_in_8_bits = b->run->compile && gathers_8_bits(b);
    return x;
}

static tensor_id gather_for_linears(struct builder *b, tensor_id x)
{
    if (!build_has_sequence_shards(b))
        return for_linears(b, x);
    if (!gathers_8_bits(b))
        return gather(b, x, b->run->async_tp);
    const tensor_id q = build_fp8_copy(b, "in 8 bits", DT_FP8, x);
    op_result(b, build_op(b, OP_QUANTIZE, "in 8 bits", &x, 1), q);
    return gather(b, q, b->run->async_tp);
}

/* The last linear of what is gathered begins backward: for gradients of weights
 * the tokens are put in order, where forward did not. */
static void order_for_weights(struct builder *b, tensor_id gathered)
{
    if (b->run->async_tp && b->run->micro_batch > 1 && !gathers_8_bits(b))
        b->p->op[b->p->n_ops - 1].back_bytes += tensor_of(b, gathered)->bytes;
}

static tensor_id reduce(struct builder *b, tensor_id x, bool pipelined)
{
    const struct shape shard = SHAPE(b->tu, b->h);
    if (!b->run->sequence_parallel)
        return build_all_reduce(b, "reduce", x, COMM_TP);
    if (!build_has_sequence_shards(b))
        return x;
    const tensor_id y =
        build_collective(b, OP_REDUCE_SCATTER, COMM_TP, x, &shard);
    order_ranks(b, y, true, pipelined);
    return y;
}

/* A module's caller has its argument, of what is gathered the shard, until it
 * has the result (torch/nn/modules/module.py, _call_impl). A graph has no
 * callers. */
static void called_with(struct builder *b, tensor_id x)
{
    if (!b->run->compile)
        build_op(b, OP_RELEASE, "argument", &x, 1);
}

static tensor_id reduce_linear(struct builder *b, tensor_id x)
{
    b->p->tensor[x].grad_in_8_bits =
        build_has_sequence_shards(b) && gathers_8_bits(b);
    return reduce(b, x, b->run->async_tp);
}

static const struct op *scatter_before(const struct op *op)
{
    do
        op--;
    while (op->kind != OP_REDUCE_SCATTER);
    return op;
}

/* Inductor gives a buffer that is done with to the next one of its size, and
 * nothing back in between (torch/_inductor/codegen/wrapper.py,
 * FreeIfNotReusedLine): what w2 makes for its scatter lies where what wo made
 * did. */
static void take_over_scattered(struct builder *b)
{
    if (!b->run->compile || !build_has_sequence_shards(b) || b->run->async_tp)
        return;
    struct tensor *t = b->p->tensor;
    const struct op *late = scatter_before(&b->p->op[b->p->n_ops]);
    const struct op *early = scatter_before(late);
    t[late->in[0]].storage = t[early->in[0]].storage;
    t[late->out[1]].storage = t[early->out[1]].storage;
}

/* ---- attention ---- */

/* The table is in the order of places, a rank's tokens are not: each layer
 * takes its rows of it, one for each token where there are many samples
 * (models/llama3/model/model.py, reshape_for_broadcast). torchtune's ring cuts
 * the table itself. */
static tensor_id table_rows(struct builder *b)
{
    const bool many = b->run->micro_batch > 1;
    const struct shape rows = SHAPE(b->sq, b->d), taken = SHAPE(b->t, b->d);
    if (b->run->cp == 1 || b->run->impl == IMPL_TORCHTUNE)
        return build_alias(b, "rows of the table", b->p->first_shared, &rows);
    return build_copy_as(b, "rows at positions", b->p->first_shared,
                         many ? &taken : &rows);
}

/* Complex product in fp32: keeps the table, which every layer shares. */
static tensor_id rotate(struct builder *b, const char *name, tensor_id x,
                        tensor_id table)
{
    if (!build_rotates(b))
        return x;
    const enum dtype dtype = tensor_of(b, x)->dtype;
    tensor_id y = build_cast(b, "rope fp32", x, DT_FP32);
    const struct shape shape = shape_of(b, y);
    y = build_mul_as(b, "rope", y, table, &shape);
    return build_cast(b, name, y, dtype);
}

/* apply_rotary_emb has names for all that it makes of queries and keys, and its
 * caller for what it gave, until it returns. torchtune rotates each by itself. */
static void rotate_both(struct builder *b, tensor_id *q, tensor_id *k,
                        tensor_id table)
{
    if (!build_rotates(b) || b->run->impl == IMPL_TORCHTUNE) {
        *q = rotate(b, "xq", *q, table);
        *k = rotate(b, "xk", *k, table);
        return;
    }
    const enum dtype dtype = tensor_of(b, *q)->dtype;
    const tensor_id q_ = build_cast(b, "rope fp32", *q, DT_FP32);
    const tensor_id k_ = build_cast(b, "rope fp32", *k, DT_FP32);
    const struct shape q_shape = shape_of(b, q_), k_shape = shape_of(b, k_);
    const tensor_id q_out = build_mul_as(b, "rope", q_, table, &q_shape);
    const tensor_id k_out = build_mul_as(b, "rope", k_, table, &k_shape);
    const tensor_id held[] = { *q, *k, q_, k_, q_out, k_out };
    *q = build_cast(b, "xq", q_out, dtype);
    *k = build_cast(b, "xk", k_out, dtype);
    if (!b->run->compile)
        build_op(b, OP_RELEASE, "apply_rotary_emb", held, 6);
}

static tensor_id heads_norm(struct builder *b, const char *name, tensor_id x,
                            struct dim heads)
{
    if (b->spec->qk_norm != QK_PER_HEAD)
        return x;
    const struct shape flat = shape_of(b, x);
    const struct shape split = SHAPE(b->t, heads, b->d);
    tensor_id y = build_view(b, "heads", x, &split);
    y = norm(b, name, y, b->d);
    return build_view(b, "heads", y, &flat);
}

/* torchtune expands keys and values to a copy for each query head
 * (torchtune/modules/attention.py). */
static tensor_id repeat(struct builder *b, const char *name, tensor_id x)
{
    const struct shape heads = SHAPE(b->t, b->A);
    if (b->run->impl != IMPL_TORCHTUNE || b->K.n == b->A.n)
        return x;
    return build_copy_as(b, name, x, &heads);
}

static tensor_id attention(struct builder *b, tensor_id x)
{
    const tensor_id shard = norm(b, "attention_norm", x, b->h);
    const tensor_id y = gather_for_linears(b, shard);
    const struct linear wq = linear_of_q(b, "wq", y);
    const struct linear wk = linear_of_k(b, "wk", y);
    const struct linear wv = linear_of_v(b, "wv", y);
    tensor_id q = build_linear(b, &wq);
    tensor_id k = build_linear(b, &wk);
    tensor_id v = build_linear(b, &wv);
    order_for_weights(b, y);
    const tensor_id table = build_rotates(b) ? table_rows(b) : TENSOR_NONE;
    q = heads_norm(b, "q_norm", q, b->a);
    k = heads_norm(b, "k_norm", k, b->kv);
    rotate_both(b, &q, &k, table);
    k = repeat(b, "k repeated", k);
    v = repeat(b, "v repeated", v);
    tensor_id out = build_attention(
        b, &(struct attention_args){ .name = "sdpa",
                                     .q = q,
                                     .k = k,
                                     .v = v,
                                     .efficient = attention_is_efficient(b) });
    if (b->run->cp > 1) { /* halves that are joined lie heads first */
        build_ring(b);
        out = build_copy(b, "output", out);
    }
    const struct linear wo = linear_of_o(b, "wo", out);
    const tensor_id z = reduce_linear(b, build_linear(b, &wo));
    called_with(b, shard);
    return build_add(b, "residual", x, z);
}

/* ---- feed forward ---- */

/* Of the classes' w1, w2 and w3 the last is computed before w2. */
static void register_late(struct builder *b)
{
    struct op *op = &b->p->op[b->p->n_ops - 1];
    while (op->kind != OP_LINEAR)
        op--;
    op->registered_late = true;
}

static tensor_id feed_forward(struct builder *b, tensor_id x)
{
    const tensor_id shard = norm(b, "ffn_norm", x, b->h);
    const tensor_id y = gather_for_linears(b, shard);
    struct linear w1 = linear_of_up(b, "w1", y);
    const struct linear w3 = linear_of_up(b, "w3", y);
    w1.lora = LORA_MASK(LORA_GATE);
    tensor_id gate = build_linear(b, &w1);
    gate = build_unary(b, OP_ACTIVATION, "activation", gate);
    const tensor_id up = build_linear(b, &w3);
    order_for_weights(b, y);
    register_late(b);
    const struct linear w2 = linear_of_down(
        b, "w2", for_linears(b, build_mul(b, "gated", gate, up)));
    const tensor_id z = reduce_linear(b, build_linear(b, &w2));
    take_over_scattered(b);
    called_with(b, shard);
    return build_add(b, "residual", x, z);
}

static tensor_id layer(struct builder *b, const struct layer_kind *kind,
                       tensor_id x)
{
    (void)kind;
    return feed_forward(b, attention(b, x));
}

/* ---- ends ---- */

/* DTensor has no rule for the gradient of a table in rows: each rank makes all
 * of it, and then a copy of its part (torch/distributed/tensor/_ops/
 * _embedding_ops.py). By then the result's gradient is gone. */
static void whole_table_gradient(struct builder *b, tensor_id table,
                                 tensor_id x)
{
    const struct tensor *t = tensor_of(b, table);
    if (!build_has_sequence_shards(b) || !t->trainable)
        return;
    b->p->op[b->p->n_ops - 1].back_bytes =
        build_product(b, t->bytes, b->run->tp)
        - min_u64(t->bytes, tensor_of(b, x)->bytes);
}

static void embedding(struct builder *b)
{
    build_begin(b, BLOCK_EMBED, "embedding");
    const struct shape whole = SHAPE(b->t, b->h);
    const tensor_id table = build_word_table(b, "tok_embeddings", b->h);
    const tensor_id x =
        build_embedding(b, "tok_embeddings", b->ids, table, &whole);
    whole_table_gradient(b, table, x);
    build_end(b, reduce(b, x, false));
}

/* The gradient of the hidden states gathers chunk by chunk; a chunk has logits
 * in fp32, their log-softmax and its gradient at once. */
static tensor_id chunked_loss(struct builder *b, tensor_id x, tensor_id weight)
{
    const struct shape scalar = SHAPE(b->one), hidden = shape_of(b, x);
    const struct shape chunk =
        SHAPE(DIM("3", 3), DIM("b*s/8", div_up(b->t.n, LOSS_CHUNKS)), b->V);
    const tensor_id loss = build_tensor(b, "loss", DT_FP32, &scalar);
    const tensor_id logits =
        build_tensor(b, "chunk of logits", DT_FP32, &chunk);
    const tensor_id dx =
        build_tensor(b, "input gradient", tensor_of(b, x)->dtype, &hidden);
    const tensor_id in[] = { x, weight, b->labels };
    struct op *op =
        build_op(b, OP_FUSED_CROSS_ENTROPY, "chunked cross entropy", in, 3);
    op_result(b, op, loss);
    op_byproduct(op, logits);
    op_byproduct(op, dx);
    op->flop_full = op->flop_causal =
        2.0 * (double)tensor_of(b, x)->elems * (double)b->V.n;
    return loss;
}

/* torchtune/modules/loss/ce_chunked_output_loss.py: each piece is upcast by
 * itself, compiled or not. */
static tensor_id torchtune_pieces(struct builder *b, tensor_id x,
                                  tensor_id weight)
{
    const bool compiled = b->run->compile;
    return build_cross_entropy_pieces(
        b, x, weight,
        &(struct pieces){ .n = LOSS_CHUNKS,
                          .keep_logits = compiled,
                          .logp = compiled ? DT_NONE : DT_FP32 });
}

/* train.py has the model's result until it has the loss. */
static void linger(struct builder *b, tensor_id x)
{
    b->p->tensor[tensor_of(b, x)->storage].lingers = true;
}

/* torch/distributed/tensor/parallel/loss.py: beside the logits two of their
 * size in forward, the shifted ones and the log-softmax, which stays; in
 * backward the target's entries, the exponential, then their sum and the
 * product. */
static tensor_id parallel_loss(struct builder *b, tensor_id logits)
{
    const struct shape scalar = SHAPE(b->one), whole = shape_of(b, logits);
    const tensor_id in[] = { logits, b->labels };
    const tensor_id loss = build_tensor(b, "loss", DT_FP32, &scalar);
    const tensor_id weight = build_tensor(b, "total weight", DT_FP32, &scalar);
    const tensor_id logp = build_tensor(b, "log-softmax", DT_FP32, &whole);
    const tensor_id shifted =
        build_tensor(b, "shifted logits", DT_FP32, &whole);
    struct op *op = build_op(b, OP_FUSED, "loss_parallel", in, 2);
    op_result(b, op, loss);
    op_byproduct(op, weight);
    op_byproduct(op, logp);
    op_byproduct(op, shifted);
    op->keep_in = 2;  /* labels */
    op->keep_out = 6; /* total weight, log-softmax */
    op->back_bytes = build_product(b, tensor_of(b, logp)->bytes, 2);
    op->back_pieces = 2;
    return loss;
}

static void head(struct builder *b)
{
    const tensor_id x = gather(
        b, norm(b, "norm", build_begin(b, BLOCK_HEAD, "head"), b->h), false);
    const tensor_id weight = build_head_weight(b, "output", b->h);
    if (b->run->loss == LOSS_CHUNKED) {
        build_end(b, b->run->impl == IMPL_TORCHTUNE
                         ? torchtune_pieces(b, x, weight)
                         : chunked_loss(b, x, weight));
        return;
    }
    const struct linear l = linear_of_head(b, "output", x, weight);
    tensor_id logits = build_linear(b, &l);
    if (b->run->loss == LOSS_FUSED || b->run->loss == LOSS_XENTROPY) {
        build_end(b, build_cross_entropy_kernel(b, "loss", logits, b->labels));
        return;
    }
    const tensor_id up = build_cast(b, "fp32 logits", logits, DT_FP32);
    linger(b, b->run->fp32_logits ? up : logits);
    const tensor_id loss = b->run->tp > 1
                               ? parallel_loss(b, up)
                               : build_cross_entropy(b, "loss", up, b->labels);
    build_hold(b, b->run->fp32_logits ? up : logits); /* train.py, pred */
    build_end(b, loss);
}

static const char *missing(const struct builder *b)
{
    const struct spec *m = b->spec;
    if (m->experts > 0)
        return "experts yet";
    if (m->norm != NORM_RMS)
        return "layer norm";
    if (!m->gated_mlp)
        return "mlp without a gate";
    if (m->position != POS_ROPE && m->position != POS_NONE)
        return "positions but rope";
    if (m->place != PLACE_PRE || m->parallel_residual)
        return "other order of norms than Llama's";
    if (m->qk_norm != QK_NONE && m->qk_norm != QK_PER_HEAD)
        return "norm over whole queries and keys";
    if (m->attn_softcap > 0 || m->final_softcap > 0)
        return "soft capping of scores or logits";
    if (m->embed_scale || (m->logit_scale != 0 && m->logit_scale != 1))
        return "scaled embeddings or logits";
    if (m->embed_dim != 0 && m->embed_dim != m->hidden)
        return "embeddings narrower than the hidden size";
    if (b->run->attention == ATTN_EAGER)
        return "eager attention";
    if (b->run->loss == LOSS_FUSED && !b->run->compile)
        return "fused loss but a compiled one (add --compile)";
    return build_beyond_plain(b);
}

/* Two numbers for every two of a head: complex64, for a sample's places
 * (torchtitan/models/llama3/model/args.py, update_from_config); fp32, for all
 * that the model knows (torchtune/modules/position_embeddings.py). */
static void rotary_table(struct builder *b)
{
    const bool tune = b->run->impl == IMPL_TORCHTUNE;
    const uint64_t most = tune ? b->spec->max_positions : 0;
    const struct shape table =
        SHAPE(DIM("positions", max_u64(most, b->run->seq_len)), b->d);
    b->p->tensor[build_shared(b, "freqs_cis", DT_FP32, &table)].rests = true;
}

void lower_torchtitan(struct builder *b)
{
    const char *what = missing(b);
    if (what != NULL) {
        build_refuse(b, what);
        return;
    }
    /* torchao's float8 linear quantises for the product, and keeps its input
       as it came (torchao/float8/float8_linear.py) */
    b->casts_8 = b->fp8;
    b->fp8 = false;
    if (b->spec->position == POS_ROPE)
        rotary_table(b);
    embedding(b);
    build_layers(b, layer);
    head(b);
}
