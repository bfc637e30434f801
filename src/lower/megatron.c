/*
 * Owns the transformer of Megatron-core with Transformer Engine, read at
 * Megatron-LM d98e8a64 and TransformerEngine d0067d0d: fused norms and linears
 * that keep the norm's result as a sequence shard and gather it again in
 * backward, fused rope that keeps nothing, one attention kernel, fused gated
 * activations, vocabulary-parallel embedding and cross entropy, experts by
 * all-to-all and grouped products. Refuses architectures that Megatron has not.
 *   gated   T [(8h + 8)/u + (4A + 4K + 6f + 4a)/t]
 *   GPT     T [(8h + 16)/u + (4A + 4K + 4f + 4a)/t + 2h/u with dropout]
 * bytes a layer in 16 bits, u = t with sequence parallelism, else 1.
 * [docs/method.md eq. megatron]
 */
#include "lower/megatron.h"
#include "lower/megatron_bert.h"

#include "base/banned.h"

/* A norm of its own can be recomputed; one that is part of a linear is not
 * (core/transformer/transformer_layer.py: not where it is an IdentityOp). */
static tensor_id layer_norm(struct builder *b, const char *name, tensor_id x,
                            bool fused)
{
    const uint8_t outer = b->region;
    if (!fused && megatron_recomputes(b, REMOD_LAYERNORM))
        build_region(b, REMOD_LAYERNORM);
    const tensor_id y = megatron_norm(b, name, x, b->h);
    b->region = outer;
    return y;
}

double megatron_residual_dropout(const struct builder *b)
{
    return b->run->dropout_mask ? 1 : b->run->hidden_dropout;
}

/* core/fusions/fused_bias_dropout.py */
static tensor_id add_residual(struct builder *b, tensor_id x, tensor_id y)
{
    y = build_dropout(b, "dropout", y, megatron_residual_dropout(b));
    return build_add(b, "residual", x, y);
}

/* ---- attention ---- */

/* Transformer Engine prefers flash-attn over cuDNN before Hopper, and takes it
 * where cuDNN's backward would not repeat exactly: on Blackwell with dropout
 * (common/fused_attn/fused_attn.cpp, nvte_get_fused_attn_backend). */
static bool takes_flash_attn(const struct builder *b)
{
    const struct run *r = b->run;
    return r->attention != ATTN_EAGER
           && (r->gpu.arch == ARCH_AMPERE || r->gpu.arch == ARCH_ADA
               || (r->gpu.arch == ARCH_BLACKWELL && r->deterministic
                   && r->attention_dropout > 0));
}

/* Heads of q, k and v in turns are a layout that the kernels know: views of the
 * mixed tensor (get_qkv_layout, sbh3d; of keys and values alone sbh2d). Groups
 * of queries are not, nor is a rotated or normed q beside them. flash-attn
 * wants batch first, and context parallelism buffers of its own: copies. */
static bool stays_packed(const struct builder *b)
{
    return !build_rotates(b) && b->spec->qk_norm == QK_NONE && b->kv.n == b->a.n
           && b->run->cp == 1 && !takes_flash_attn(b);
}

/* Rotated, or made contiguous (get_qkv_layout): either way new tensors, and
 * the mixed one is freed. */
static tensor_id own_copy(struct builder *b, const char *name, tensor_id x,
                          struct dim heads, bool normed)
{
    if (stays_packed(b))
        return x;
    if (!normed)
        return build_copy(b, name, x);
    const struct shape flat = shape_of(b, x);
    const struct shape split = SHAPE(b->t, heads, b->d);
    tensor_id y = build_copy(b, "contiguous", x);
    y = build_view(b, "heads", y, &split);
    y = megatron_norm(b, "qk norm", y, b->d);
    y = build_view(b, "heads", y, &flat);
    return build_rotates(b) ? build_copy(b, name, y) : y;
}

/* flash-attn's result has to be copied back to sequence-first order. */
static bool copies_context(const struct builder *b)
{
    return takes_flash_attn(b) && b->run->micro_batch > 1;
}

static tensor_id core_attention(struct builder *b, const tensor_id given[3])
{
    const uint8_t outer = b->region;
    const bool exchanges = megatron_exchanges(b);
    tensor_id qkv[3] = { given[0], given[1], given[2] };
    struct megatron_heads heads;
    build_region(b, REMOD_CORE_ATTN);
    const bool again = megatron_recomputes(b, REMOD_CORE_ATTN);
    megatron_module(b, again ? OFFMOD_COUNT : OFFMOD_CORE_ATTN);
    if (exchanges)
        megatron_scatter_heads(b, qkv, &heads);
    tensor_id out;
    if (b->run->attention == ATTN_EAGER) {
        out = megatron_unfused(b, qkv);
    } else {
        out = build_attention(
            b, &(struct attention_args){ .name = "core attention",
                                         .q = qkv[0],
                                         .k = qkv[1],
                                         .v = qkv[2] });
        if (exchanges)
            megatron_exchange_backward(b);
        else if (b->run->cp > 1 && b->run->cp_comm == CP_ALL_GATHER)
            megatron_gather_keys(b, copies_context(b));
    }
    if (exchanges)
        out = megatron_gather_heads(b, out, &heads);
    if (copies_context(b))
        out = build_copy(b, "context", out);
    b->region = outer;
    if (!again)
        megatron_offloaded(b, OFFMOD_CORE_ATTN, given, 3);
    return out;
}

static void project(struct builder *b, tensor_id y, tensor_id qkv[3])
{
    /* the shard is kept
       (transformer_engine/pytorch/module/layernorm_linear.py) */
    const struct linear in = linear_of_qkv(b, "linear_qkv", y);
    const tensor_id mixed = megatron_column(b, &in);
    const struct shape shapes[3] = { SHAPE(b->t, b->A), SHAPE(b->t, b->K),
                                     SHAPE(b->t, b->K) };
    build_split(b, "split", mixed, qkv, shapes, 3);
    const bool normed = b->spec->qk_norm == QK_PER_HEAD;
    const bool unfused = megatron_turns_unfused(b);
    for (unsigned i = 0; i < 2; i++)
        qkv[i] = unfused ? megatron_rotated(b, i == 0 ? "q" : "k", qkv[i], b->d)
                         : own_copy(b, i == 0 ? "q" : "k", qkv[i],
                                    i == 0 ? b->a : b->kv, normed);
    qkv[2] = own_copy(b, "v", qkv[2], b->kv, false);
}

static tensor_id attention(struct builder *b, const struct layer_kind *kind,
                           tensor_id x)
{
    (void)kind;
    const uint32_t first = b->p->n_ops;
    const bool latent = build_is_latent(b);
    megatron_graphed(b, GRAPHED_ATTN);
    megatron_module(b, latent ? OFFMOD_ATTN_NORM : OFFMOD_QKV_LINEAR);
    const tensor_id y = layer_norm(b, "input_layernorm", x, !latent);
    tensor_id qkv[3];
    megatron_module(b, OFFMOD_QKV_LINEAR);
    if (latent)
        megatron_latent(b, y, qkv);
    else
        project(b, y, qkv);
    megatron_offloaded(b, OFFMOD_QKV_LINEAR, &y, latent ? 1 : 0);
    if (b->spec->attention_sinks) /* one logit a head (softmax_type) */
        build_vector(b, "softmax_offset", PG_ATTENTION, b->a, b->spec->heads);
    const tensor_id context = core_attention(b, qkv);
    megatron_module(b, OFFMOD_ATTN_PROJ);
    struct linear out = linear_of_o(b, "linear_proj", context);
    megatron_context(b, context, &out);
    const tensor_id projected = megatron_row(b, &out);
    megatron_offloaded(b, OFFMOD_ATTN_PROJ, &context, 1);
    megatron_recalls(b, first, projected);
    if (build_is_latent(b))
        megatron_latent_returns(b);
    megatron_release_heads(b, qkv);
    const tensor_id sum = add_residual(b, x, projected);
    if (latent)
        megatron_offloaded(b, OFFMOD_ATTN_NORM, &x, 1);
    b->graphed = false;
    return sum;
}

/* CrossAttention: a norm of its own, queries of the decoder, keys and values of
 * the encoder's result (core/transformer/attention.py). */
static tensor_id cross_attention(struct builder *b, tensor_id x)
{
    build_cross_begin(b);
    const tensor_id y = layer_norm(b, "pre_cross_attn_layernorm", x, false);
    const struct linear lq = linear_of_q(b, "linear_q", y);
    struct linear lkv = linear_of_k(b, "linear_kv", b->memory);
    lkv.out = DIM("2*kv*d/tp", build_product(b, 2, b->K.n));
    lkv.full_out = build_product(b, 2, b->full_K);
    lkv.lora |= LORA_MASK(LORA_V);
    tensor_id qkv[3] = { build_column(b, &lq), TENSOR_NONE, TENSOR_NONE };
    const tensor_id mixed = build_keys(b, &lkv);
    const struct shape half = shape_last(b, mixed, b->K);
    build_split(b, "split", mixed, qkv + 1,
                (const struct shape[]){ half, half }, 2);
    qkv[1] = own_copy(b, "k", qkv[1], b->kv, false);
    qkv[2] = own_copy(b, "v", qkv[2], b->kv, false);
    const tensor_id context = core_attention(b, qkv);
    struct linear out = linear_of_o(b, "linear_proj", context);
    megatron_context(b, context, &out);
    x = add_residual(b, x, build_row(b, &out));
    build_cross_end(b);
    return x;
}

/* ---- mlp ---- */

static tensor_id mlp_of(struct builder *b, tensor_id y, bool shared)
{
    const bool gated = b->spec->gated_mlp;
    struct linear fc1 = linear_of_up(b, "linear_fc1", y);
    struct linear fc2 = linear_of_down(b, "linear_fc2", TENSOR_NONE);
    if (shared) {
        fc1.group = fc2.group = PG_SHARED_EXPERT;
        fc1.full_out = fc2.full_in = b->spec->shared_ffn;
        fc1.out = fc2.in = b->fs;
    }
    if (gated) {
        fc1.out = shared ? b->fs2 : b->f2;
        fc1.full_out = build_product(b, 2, fc1.full_out);
    }
    fc1.lora |= LORA_MASK(LORA_GATE);
    /* the router keeps the same input (shared_experts.py); or it is made
       again */
    fc1.keeps_input = shared
                          ? megatron_shares_input(b)
                                && !megatron_recomputes(b, REMOD_SHARED_EXPERTS)
                          : megatron_is_deepseek(b)
                                && megatron_recomputes(b, REMOD_LAYERNORM);
    megatron_activation(b, megatron_column(b, &fc1), TENSOR_NONE, &fc2);
    return megatron_row(b, &fc2);
}

/* With Transformer Engine the norm is part of the first linear, and of what is
 * recomputed. */
static tensor_id dense_mlp(struct builder *b, tensor_id x)
{
    const bool fused = !megatron_is_deepseek(b);
    build_node(b, NODE_EXPERTS);
    megatron_graphed(b, GRAPHED_MLP);
    if (megatron_recomputes(b, REMOD_MLP))
        build_region(b, REMOD_MLP);
    megatron_module(b, fused ? OFFMOD_COUNT : OFFMOD_MLP_NORM);
    const tensor_id y = layer_norm(b, "pre_mlp_layernorm", x, fused);
    megatron_module(b, OFFMOD_COUNT);
    const tensor_id z = mlp_of(b, y, false);
    build_region_none(b);
    const tensor_id sum = add_residual(b, x, z);
    if (!fused)
        megatron_offloaded(b, OFFMOD_MLP_NORM, &x, 1);
    b->graphed = false;
    return sum;
}

/* ---- experts ---- */

static tensor_id shared_experts(struct builder *b, tensor_id y)
{
    return mlp_of(b, y, true);
}

static tensor_id moe_mlp(struct builder *b, tensor_id x)
{
    const uint32_t first = b->p->n_ops;
    megatron_graphed(b, GRAPHED_MOE_ROUTER);
    megatron_module(b, OFFMOD_MLP_NORM);
    const tensor_id y = layer_norm(b, "pre_mlp_layernorm", x, false);
    megatron_module(b, OFFMOD_COUNT);
    const tensor_id z = megatron_moe(b, y, shared_experts);
    megatron_recalls(b, first, z);
    const tensor_id sum = add_residual(b, x, z);
    megatron_offloaded(b, OFFMOD_MLP_NORM, &x, 1);
    return megatron_moe_done(b, x, sum);
}

/* ---- blocks ---- */

/* T5Model.forward: the encoder's last norm, then the decoder's embedding. */
static tensor_id joint(struct builder *b, tensor_id x)
{
    x = megatron_norm(b, "encoder final_layernorm", x, b->h);
    build_to_decoder(b, x);
    const tensor_id table = build_word_table(b, "word_embeddings", b->h);
    return megatron_words(b, table, b->target_ids);
}

tensor_id megatron_layer(struct builder *b, const struct layer_kind *kind,
                         tensor_id x)
{
    if (kind->place == LAYER_JOINT)
        return joint(b, x);
    x = build_part(b, kind, x, attention);
    if (kind->place == LAYER_DECODER || kind->place == LAYER_LAST)
        x = cross_attention(b, x);
    return kind->moe ? moe_mlp(b, x) : dense_mlp(b, x);
}

/* core/models/common/embeddings/language_model_embedding.py */
tensor_id megatron_words(struct builder *b, tensor_id table, tensor_id ids)
{
    const struct spec *m = b->spec;
    const struct shape shard = SHAPE(b->tu, b->h);
    const bool learned = m->position == POS_LEARNED;
    const bool bert = megatron_is_bert(b);
    tensor_id x = megatron_lookup(b, table, ids);
    if (build_has_sequence_shards(b) && !learned) {
        x = build_collective(b, OP_REDUCE_SCATTER, COMM_TP, x, &shard);
    } else {
        x = build_all_reduce(b, "word_embeddings", x, COMM_TP);
        if (learned)
            x = megatron_positions(b, x);
        if (bert)
            x = megatron_bert_types(b, x);
        if (build_has_sequence_shards(b))
            x = build_copy_as(b, "sequence shard", x, &shard);
    }
    if (m->embed_scale)
        x = build_scale(b, "embedding scale", x);
    return build_dropout(b, "embedding dropout", x, b->run->embed_dropout);
}

static void embedding(struct builder *b)
{
    build_begin(b, BLOCK_EMBED, "embedding");
    const tensor_id table = build_word_table(b, "word_embeddings", b->h);
    const tensor_id x = megatron_words(b, table, b->ids);
    megatron_hold_words(b, x);
    build_end(b, x);
}

/* transformer_engine/pytorch/cross_entropy.py: forward already writes the
 * logits' gradient over the logits. */
static tensor_id te_cross_entropy(struct builder *b, tensor_id logits)
{
    const struct shape shape = shape_of(b, logits), rows = SHAPE(b->t);
    const tensor_id loss = build_tensor(b, "loss", DT_FP32, &rows);
    const tensor_id grad =
        build_alias(b, "gradient of the logits", logits, &shape);
    const tensor_id in[] = { logits, b->labels };
    struct op *op = build_op(b, OP_CROSS_ENTROPY, "cross entropy", in, 2);
    op->place = PLACE_KEPT;
    op_result(b, op, loss);
    op_byproduct(op, grad);
    return build_mean(b, "mean loss", loss);
}

/* core/fusions/fused_cross_entropy.py under torch.compile: the exponentials
 * get a tensor of their own beside the fp32 copy and the logits. */
static tensor_id compiled_cross_entropy(struct builder *b, tensor_id logits)
{
    const struct shape shape = shape_of(b, logits), rows = SHAPE(b->t);
    const tensor_id in[] = { logits, b->labels };
    struct op *op =
        build_op(b, OP_COMPILED_CROSS_ENTROPY, "compiled cross entropy", in, 2);
    const tensor_id loss = build_tensor(b, "loss", DT_FP32, &rows);
    op_result(b, op, loss);
    op_byproduct(op, build_tensor(b, "fp32 logits", DT_FP32, &shape));
    op_byproduct(op, build_tensor(b, "softmax", DT_FP32, &shape));
    op_byproduct(op, build_tensor(b, "target mask", DT_BOOL, &rows));
    op_byproduct(op, build_tensor(b, "target", DT_INT64, &rows));
    return build_mean(b, "mean loss", loss);
}

/* core/tensor_parallel/cross_entropy.py: an fp32 copy of the logits becomes
 * the softmax in place; target mask and indices are kept beside it. */
tensor_id megatron_loss(struct builder *b, tensor_id logits, tensor_id labels)
{
    if (b->run->loss == LOSS_FUSED)
        return b->run->ce_fusion == CE_TE ? te_cross_entropy(b, logits)
                                          : compiled_cross_entropy(b, logits);
    const tensor_id up = build_cast(b, "fp32 logits", logits, DT_FP32);
    return megatron_cross_entropy(b, up, labels);
}

static tensor_id cross_entropy(struct builder *b, tensor_id logits)
{
    return build_mean(b, "mean loss", megatron_loss(b, logits, b->labels));
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
        build_end(b, megatron_bert_head(b, x, cross_entropy));
        return;
    }
    const tensor_id weight = build_head_weight(b, "output_layer", b->h);
    if (b->spec->mtp_layers > 0)
        x = megatron_mtp(b, x, weight);
    const struct linear l = linear_of_head(b, "output_layer", x, weight);
    const tensor_id loss = cross_entropy(b, build_column_in_buffer(b, &l));
    megatron_let_states_go(b, x);
    build_end(b, loss);
}

/* ---- what Megatron has not ---- */

static const char *missing(const struct builder *b)
{
    const struct spec *m = b->spec;
    if (megatron_is_bert(b))
        return megatron_bert_missing(b);
    if (m->position == POS_ALIBI)
        return "ALiBi positions";
    if (m->embedding_norm)
        return "norm after the embedding";
    if (m->head_norm)
        return "normed rows of the head";
    if (m->mtp_layers > 0 && m->position == POS_LEARNED)
        return "multi-token prediction with learned positions";
    if (b->run->loss == LOSS_CHUNKED)
        return "chunked loss";
    return megatron_missing(b);
}

void lower_megatron(struct builder *b)
{
    const char *what = missing(b);
    if (what != NULL) {
        build_refuse(b, what);
        return;
    }
    megatron_inputs(b, b->attends_all);
    embedding(b);
    build_layers(b, megatron_layer);
    head(b);
}
