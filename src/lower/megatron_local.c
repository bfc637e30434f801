/*
 * Owns the transformer of Megatron without Transformer Engine, in two states:
 *   core  the local layer specification of Megatron-core (Megatron-LM d98e8a64,
 *         core/models/gpt/gpt_layer_specs.py, dot_product_attention.py), whose
 *         attention scores and gathered sequences go into one buffer that is
 *         never freed (core/utils.py, GlobalMemoryBuffer);
 *   fork  Megatron-DeepSpeed (bigscience-workshop 8387ae17,
 *         megatron/model/transformer.py, gpt_model.py), the code of 2021 and
 *         2022, with ALiBi, a norm after the embedding, and logits in fp32 that
 *         the pipeline engine holds.
 * Attention is spelled out: scale, mask and softmax are one kernel where that
 * kernel has the shape, else PyTorch's own. Queries, keys and values stay views
 * of one product. Per layer, in 16 bits, gelu, biases, fused softmax:
 *   T [(8h + 16)/u + (8A + 4f)/t + 2h/u with dropout]
 *   + a b s^2/t (2 + 3 with attention dropout), u as in megatron.c.
 * Refuses experts of the fork, and what neither state has. [docs/method.md eq. local]
 */
#include "lower/megatron.h"
#include "lower/megatron_bert.h"

#include "base/banned.h"

static bool is_fork(const struct builder *b)
{
    return b->run->framework == FW_MEGATRON_DEEPSPEED;
}

/* ---- pieces ---- */

static tensor_id layer_norm(struct builder *b, const char *name, tensor_id x)
{
    const uint8_t outer = b->region;
    if (megatron_recomputes(b, REMOD_LAYERNORM))
        build_region(b, REMOD_LAYERNORM);
    const tensor_id y = megatron_norm(b, name, x, b->h);
    b->region = outer;
    return y;
}

/* Bias, dropout and sum are one kernel (core/fusions/fused_bias_dropout.py). */
static tensor_id add_residual(struct builder *b, tensor_id x, tensor_id y)
{
    return build_dropout_add(b, "residual", y, x, megatron_residual_dropout(b));
}

/* A caller's variable holds x up to here. */
static void let_go(struct builder *b, const char *name, tensor_id x)
{
    build_op(b, OP_RELEASE, name, &x, 1);
}

/* What a Python frame holds by name until it returns. */
struct frame {
    tensor_id held[OP_IN_MAX];
    unsigned n;
};

static void hold(struct frame *f, tensor_id x)
{
    if (f->n < OP_IN_MAX)
        f->held[f->n++] = x;
}

static void leave(struct builder *b, const char *name, const struct frame *f)
{
    if (f->n > 0)
        build_op(b, OP_RELEASE, name, f->held, f->n);
}

static tensor_id column(struct builder *b, const struct linear *l)
{
    return is_fork(b) ? build_column(b, l) : megatron_column_in_buffer(b, l);
}

/* ---- attention ---- */

/* Rows of the score matrix that one block of the fused kernel takes, for more
 * and for at most 128 keys (fused_kernels/scaled_masked_softmax.h). */
enum { SOFTMAX_ROWS = 4, SOFTMAX_SHORT_ROWS = 8, SOFTMAX_SHORT = 128 };
enum { SOFTMAX_KEYS_MIN = 16, SOFTMAX_KEYS_MAX = 4096 };

/* FusedScaleMaskSoftmax.is_kernel_available (core/fusions/fused_softmax.py). */
static bool has_softmax_kernel(struct builder *b)
{
    const uint64_t keys = b->s.n;
    const uint64_t matrices = build_product(b, b->micro.n, b->a.n);
    const uint64_t rows =
        keys > SOFTMAX_SHORT ? SOFTMAX_ROWS : SOFTMAX_SHORT_ROWS;
    return !b->run->plain_softmax && b->compute != DT_FP32
           && keys > SOFTMAX_KEYS_MIN && keys <= SOFTMAX_KEYS_MAX
           && keys % 4 == 0 && matrices % 4 == 0
           && (b->spec->bidirectional ? b->sq.n : matrices) % rows == 0;
}

/* forward_torch_softmax: masked in place. The fork undoes the scaling by the
 * layer's number, on by default there, in a product of its own. */
static tensor_id torch_softmax(struct builder *b, tensor_id scores)
{
    const enum dtype dtype = b->run->softmax_fp32 ? DT_FP32 : b->compute;
    tensor_id x = build_cast(b, "fp32 scores", scores, dtype);
    if (is_fork(b))
        x = build_scale(b, "layer scaling", x);
    x = build_unary_in_place(b, OP_WHERE, "causal mask", x);
    const tensor_id p = build_softmax(b, "softmax", x, dtype);
    const tensor_id y = build_cast(b, "softmax", p, b->compute);
    let_go(b, "masked scores", x);
    return y;
}

static tensor_id masked_softmax(struct builder *b, tensor_id scores)
{
    if (has_softmax_kernel(b))
        return build_unary(b, OP_MASKED_SOFTMAX, "masked softmax", scores);
    return torch_softmax(b, scores);
}

/* A tensor that every layer builds for itself (_build_alibi_tensor). */
static void alibi(struct builder *b)
{
    const struct shape shape = SHAPE(b->micro, b->a, b->one, b->s);
    build_buffer(b, "alibi", b->param, &shape);
}

/* baddbmm takes the empty result, or the slopes, as its first operand, and
 * keeps views of the one product of queries, keys and values. */
static tensor_id scores_of(struct builder *b, tensor_id q, tensor_id k)
{
    const struct shape shape = shape_scores(b);
    const struct shape heads = SHAPE(b->micro, b->a, b->sq, b->d);
    const tensor_id scores =
        build_matmul(b, "scores", build_view(b, "heads", q, &heads), k, &shape);
    if (!is_fork(b)) {
        build_in_global_buffer(b, TENSOR_NONE, tensor_of(b, scores)->bytes);
    } else if (b->spec->position != POS_ALIBI) {
        const enum dtype dtype = tensor_of(b, scores)->dtype;
        op_byproduct(&b->p->op[b->p->n_ops - 1],
                     build_tensor(b, "empty scores", dtype, &shape));
    }
    return scores;
}

static tensor_id spelled_out(struct builder *b, tensor_id qkv[3],
                             struct frame *f)
{
    const struct shape rows = SHAPE(b->t, b->A);
    for (unsigned i = 1; i < 3 && b->kv.n != b->a.n; i++) {
        qkv[i] = build_copy_as(b, "repeat", qkv[i], &rows);
        hold(f, qkv[i]);
    }
    b->core_attention = true;
    const tensor_id scores = scores_of(b, qkv[0], qkv[1]);
    tensor_id p = masked_softmax(b, scores);
    p = build_dropout(b, "attention dropout", p, b->run->attention_dropout);
    const tensor_id context = build_matmul(b, "context", p, qkv[2], &rows);
    b->core_attention = false;
    hold(f, scores);
    hold(f, p);
    return build_copy(b, "context", context);
}

/* FlashSelfAttention: batch-first copies, and the result copied back. */
static tensor_id flash(struct builder *b, const tensor_id qkv[3])
{
    const struct attention_args at = {
        .name = "core attention",
        .q = build_copy(b, "q", qkv[0]),
        .k = build_copy(b, "k", qkv[1]),
        .v = build_copy(b, "v", qkv[2]),
        .efficient = attention_is_efficient(b),
    };
    return build_copy(b, "context", build_attention(b, &at));
}

/* Core attention is a module of its own in Megatron-core, whose variables die
 * with its call; in the fork they live to the end of the whole attention. */
static tensor_id core_attention(struct builder *b, const tensor_id qkv[3],
                                struct frame *f)
{
    const uint8_t outer = b->region;
    struct frame own = { .n = 0 };
    build_region(b, REMOD_CORE_ATTN);
    tensor_id given[3] = { qkv[0], qkv[1], qkv[2] }, out;
    if (b->run->attention == ATTN_EAGER)
        out = spelled_out(b, given, is_fork(b) ? f : &own);
    else
        out = flash(b, given);
    leave(b, "scores", &own);
    b->region = outer;
    for (unsigned i = 0; i < 3; i++)
        hold(f, qkv[i]);
    hold(f, out);
    return out;
}

/* Normed per head; queries of more than one group are no view of the one
 * product, so that they are copied. */
static tensor_id prepared(struct builder *b, tensor_id x, struct dim heads,
                          bool query)
{
    const struct shape flat = shape_of(b, x);
    const struct shape split = SHAPE(b->t, heads, b->d);
    if (query && b->kv.n != b->a.n && b->kv.n > 1)
        x = build_copy(b, "queries", x);
    if (b->spec->qk_norm != QK_PER_HEAD)
        return x;
    x = build_view(b, "heads", x, &split);
    x = megatron_norm(b, "qk norm", x, b->d);
    return build_view(b, "heads", x, &flat);
}

/* What they were before is named as long (attention.py, qkv_output). */
static tensor_id rotated(struct builder *b, tensor_id x, struct frame *f)
{
    if (!build_rotates(b))
        return x;
    if (!is_fork(b))
        hold(f, x);
    return build_copy(b, "rotated", x);
}

/* What went into a part of the layer and came out of it has a name up to the
 * sum (core/transformer/transformer_layer.py, _forward_attention,
 * _forward_mlp). Of the fork see where its layer holds them. */
static tensor_id join(struct builder *b, tensor_id x, tensor_id in,
                      tensor_id out)
{
    const tensor_id names[] = { in, out };
    const tensor_id sum = add_residual(b, x, out);
    if (!is_fork(b))
        build_op(b, OP_RELEASE, "part of a layer", names, 2);
    return sum;
}

/* The fork's layer holds the result to its end. */
static tensor_id attention(struct builder *b, tensor_id x, struct frame *layer)
{
    struct frame own = { .n = 0 };
    const uint32_t first = b->p->n_ops;
    const tensor_id y = layer_norm(b, "input_layernorm", x);
    const struct linear in = linear_of_qkv(b, "query_key_value", y);
    const tensor_id mixed = column(b, &in);
    tensor_id qkv[3];
    const struct shape shapes[3] = { SHAPE(b->t, b->A), SHAPE(b->t, b->K),
                                     SHAPE(b->t, b->K) };
    if (b->spec->position == POS_ALIBI)
        alibi(b);
    build_split(b, "split", mixed, qkv, shapes, 3);
    qkv[0] = prepared(b, qkv[0], b->a, true);
    qkv[1] = prepared(b, qkv[1], b->kv, false);
    qkv[0] = rotated(b, qkv[0], &own);
    qkv[1] = rotated(b, qkv[1], &own);
    const tensor_id context = core_attention(b, qkv, &own);
    const struct linear out = linear_of_o(b, "dense", context);
    const tensor_id z = megatron_row(b, &out);
    megatron_recalls(b, first, z);
    leave(b, "attention", &own);
    if (is_fork(b))
        hold(layer, z);
    return join(b, x, y, z);
}

/* CrossAttention: a norm of its own, queries of the decoder, keys and values
 * views of one product of the encoder's result. */
static tensor_id cross_attention(struct builder *b, tensor_id x)
{
    build_cross_begin(b);
    const tensor_id y = layer_norm(b, "pre_cross_attn_layernorm", x);
    const struct linear lq = linear_of_q(b, "linear_q", y);
    struct linear lkv = linear_of_k(b, "linear_kv", b->memory);
    lkv.out = DIM("2*kv*d/tp", build_product(b, 2, b->K.n));
    lkv.full_out = build_product(b, 2, b->full_K);
    lkv.lora |= LORA_MASK(LORA_V);
    tensor_id qkv[3] = { column(b, &lq), TENSOR_NONE, TENSOR_NONE };
    struct frame own = { .n = 0 };
    const tensor_id mixed = build_keys(b, &lkv);
    const struct shape half = shape_last(b, mixed, b->K);
    build_split(b, "split", mixed, qkv + 1,
                (const struct shape[]){ half, half }, 2);
    const tensor_id context = core_attention(b, qkv, &own);
    const struct linear out = linear_of_o(b, "linear_proj", context);
    const tensor_id z = build_row(b, &out);
    leave(b, "cross attention", &own);
    x = join(b, x, y, z);
    build_cross_end(b);
    return x;
}

/* The fork's norm is part of the table of words (mpu/layers.py,
 * VocabParallelEmbedding). */
static tensor_id words(struct builder *b, tensor_id table, tensor_id ids)
{
    const struct shape shard = SHAPE(b->tu, b->h);
    if (!is_fork(b))
        return megatron_words(b, table, ids);
    tensor_id x = megatron_lookup(b, table, ids);
    x = build_all_reduce(b, "word_embeddings", x, COMM_TP);
    if (b->spec->embedding_norm)
        x = megatron_norm(b, "norm", x, b->h);
    if (b->spec->position == POS_LEARNED)
        x = megatron_positions(b, x);
    if (megatron_is_bert(b))
        x = megatron_bert_types(b, x);
    if (build_has_sequence_shards(b))
        x = build_copy_as(b, "sequence shard", x, &shard);
    if (b->spec->embed_scale)
        x = build_scale(b, "embedding scale", x);
    return build_dropout(b, "embedding dropout", x, b->run->embed_dropout);
}

/* ---- mlp ---- */

static tensor_id mlp_of(struct builder *b, tensor_id y, bool shared)
{
    const bool gated = b->spec->gated_mlp;
    struct linear up = linear_of_up(b, "dense_h_to_4h", y);
    struct linear down = linear_of_down(b, "dense_4h_to_h", TENSOR_NONE);
    if (shared) {
        up.group = down.group = PG_SHARED_EXPERT;
        up.full_out = down.full_in = b->spec->shared_ffn;
        up.out = down.in = b->fs;
    }
    if (gated) {
        up.out = shared ? b->fs2 : b->f2;
        up.full_out = build_product(b, 2, up.full_out);
    }
    up.lora |= LORA_MASK(LORA_GATE);
    const tensor_id z = column(b, &up);
    down.x = gated ? build_swiglu(b, "bias swiglu", z, TENSOR_NONE, TENSOR_NONE)
                   : build_unary(b, OP_ACTIVATION, "bias gelu", z);
    return megatron_row(b, &down);
}

static tensor_id mlp(struct builder *b, tensor_id x, struct frame *layer)
{
    const uint32_t first = b->p->n_ops;
    build_node(b, NODE_EXPERTS);
    const tensor_id y = layer_norm(b, "post_attention_layernorm", x);
    if (is_fork(b))
        hold(layer, y);
    if (megatron_recomputes(b, REMOD_MLP))
        build_region(b, REMOD_MLP);
    const tensor_id out = mlp_of(b, y, false);
    build_region_none(b);
    megatron_recalls(b, first, out);
    return join(b, x, y, out);
}

static tensor_id shared_experts(struct builder *b, tensor_id y)
{
    return mlp_of(b, y, true);
}

static tensor_id moe_mlp(struct builder *b, tensor_id x)
{
    const uint32_t first = b->p->n_ops;
    const tensor_id y = layer_norm(b, "pre_mlp_layernorm", x);
    const tensor_id z = megatron_moe(b, y, shared_experts);
    megatron_recalls(b, first, z);
    return megatron_moe_done(b, x, join(b, x, y, z));
}

/* T5Model.forward: the encoder's last norm, then the decoder's embedding. */
static tensor_id joint(struct builder *b, tensor_id x)
{
    x = megatron_norm(b, "encoder final_layernorm", x, b->h);
    build_to_decoder(b, x);
    const tensor_id table = build_word_table(b, "word_embeddings", b->h);
    return words(b, table, b->target_ids);
}

static tensor_id layer(struct builder *b, const struct layer_kind *kind,
                       tensor_id x)
{
    struct frame own = { .n = 0 };
    if (kind->place == LAYER_JOINT)
        return joint(b, x);
    tensor_id y = attention(b, x, &own);
    if (kind->place == LAYER_DECODER || kind->place == LAYER_LAST)
        y = cross_attention(b, y);
    const tensor_id z = kind->moe ? moe_mlp(b, y) : mlp(b, y, &own);
    leave(b, "layer", &own);
    return z;
}

/* ---- both ends ---- */

static void embedding(struct builder *b)
{
    build_begin(b, BLOCK_EMBED, "embedding");
    const tensor_id table = build_word_table(b, "word_embeddings", b->h);
    const tensor_id x = words(b, table, b->ids);
    megatron_hold_words(b, x);
    build_end(b, x);
}

static tensor_id words_loss(struct builder *b, tensor_id logits)
{
    const tensor_id up = build_cast(b, "fp32 logits", logits, DT_FP32);
    /* pipe_buffers["outputs"] of DeepSpeed's pipeline engine */
    b->p->tensor[up].held = run_pipelines(b->run);
    return build_mean(b, "mean loss", megatron_cross_entropy(b, up, b->labels));
}

static void head(struct builder *b)
{
    tensor_id x = build_begin(b, BLOCK_HEAD, "head");
    if (b->spec->mtp_layers == 0)
        build_node(b, NODE_POST);
    const bool bert = megatron_is_bert(b);
    if (b->spec->final_norm || bert)
        x = megatron_norm(b, "final_layernorm", x, b->h);
    if (bert) {
        build_end(b, megatron_bert_head(b, x, words_loss));
        return;
    }
    const tensor_id weight = build_head_weight(b, "output_layer", b->h);
    const struct linear l = linear_of_head(b, "output_layer", x, weight);
    const tensor_id loss = words_loss(b, column(b, &l));
    megatron_let_states_go(b, x);
    build_end(b, loss);
}

/* ---- what neither has ---- */

static const char *missing(const struct builder *b)
{
    const struct spec *m = b->spec;
    if (megatron_is_bert(b))
        return megatron_bert_missing(b);
    if (m->experts > 0 && is_fork(b))
        return "experts";
    if (build_is_latent(b)) /* DotProductAttention has no k_channels */
        return "latent attention";
    if (b->run->cp > 1)
        return "context parallelism";
    if (m->position == POS_ALIBI && !is_fork(b))
        return "ALiBi positions";
    if (m->embedding_norm && !is_fork(b))
        return "norm after the embedding";
    if (b->run->loss != LOSS_STANDARD)
        return "fused or chunked loss";
    return megatron_missing(b);
}

void lower_megatron_local(struct builder *b)
{
    const char *what = missing(b);
    if (what != NULL) {
        build_refuse(b, what);
        return;
    }
    megatron_inputs(
        b, b->attends_all
               || (b->run->attention == ATTN_EAGER && !has_softmax_kernel(b)));
    embedding(b);
    build_layers(b, layer);
    head(b);
}
