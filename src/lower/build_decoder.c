/*
 * Owns what decoders have in common whatever framework runs them: the tables
 * at both ends, the linears of attention and MLP with their sharding, and
 * products between sequence shards as Megatron runs them. Refuses to know the
 * order of operations: lowerings write it.
 */
#include "lower/build_private.h"

#include "base/banned.h"

/* ---- parameters ---- */

/* The decoder of two stacks looks up the tables of the encoder. */
static bool is_joint(const struct builder *b)
{
    return b->block != NULL && b->block->kind == BLOCK_JOINT
           && b->whole->vision == NULL;
}

/* Whether PEFT trains a copy of what another module has too, for one alone
 * (peft/utils/other.py, ModulesToSaveWrapper). */
static bool is_copied(const struct builder *b, enum lora_full module)
{
    return b->frozen && !b->run->ties_full
           && (b->run->lora_full & LORA_MASK(module)) != 0;
}

/* Whisper's encoder has no words. */
static bool shares_words(const struct builder *b)
{
    return is_joint(b) && b->spec->mel_bins == 0;
}

tensor_id build_word_table(struct builder *b, const char *name,
                           struct dim width)
{
    const bool copied = shares_words(b) && is_copied(b, LORA_FULL_EMBED);
    if (!shares_words(b) && b->p->n_blocks > 0)
        b->p->words = b->p->n_blocks - 1;
    return build_param(b, &(struct param){ .name = name,
                                           .group = PG_EMBED,
                                           .words = true,
                                           .rows = b->V,
                                           .cols = width,
                                           .again = shares_words(b) && !copied,
                                           .elsewhere = copied,
                                           .full_elems = build_product(
                                               b, b->spec->vocab, width.n) });
}

tensor_id build_tied_table(struct builder *b, const char *name,
                           struct dim width)
{
    return build_param(b, &(struct param){ .name = name,
                                           .group = PG_EMBED,
                                           .words = true,
                                           .rows = b->V,
                                           .cols = width,
                                           .full_elems = build_product(
                                               b, b->spec->vocab, width.n),
                                           .tied = true });
}

tensor_id build_position_table(struct builder *b, const char *name)
{
    const uint64_t n = b->spec->learned_positions;
    return build_param(
        b,
        &(struct param){ .name = name,
                         .group = PG_POSITION,
                         .rows = DIM("positions", n),
                         .cols = b->h,
                         .again = is_joint(b) && b->spec->family != FAM_BART });
}

tensor_id build_head_weight(struct builder *b, const char *name,
                            struct dim width)
{
    /* LitGPT copies a tied table (litgpt/scripts/convert_hf_checkpoint.py) */
    const bool shared = b->spec->tied && !run_is_litgpt(b->run);
    const bool tied = shared && !is_copied(b, LORA_FULL_HEAD);
    const tensor_id w =
        build_param(b, &(struct param){ .name = name,
                                        .group = PG_HEAD,
                                        .words = true,
                                        .rows = b->V,
                                        .cols = width,
                                        .full_elems = build_product(
                                            b, b->spec->vocab, width.n),
                                        .matmul = true,
                                        .elsewhere = shared && !tied,
                                        .tied = tied });
    if (!tied)
        build_statistics(b, tensor_of(b, w)->dtype, b->V, width, 1);
    const uint64_t head = LORA_MASK(OPTIMIZER_TARGET_HEAD);
    b->p->tensor[w].projected = !tied && run_projects(b->run)
                                && (b->run->optimizer_targets & head) != 0;
    return w;
}

void build_norm_weights(struct builder *b, struct dim n, tensor_id *weight,
                        tensor_id *bias)
{
    *weight = *bias = TENSOR_NONE;
    if (b->spec->norm != NORM_LAYER_PLAIN)
        *weight = build_norm_weight(b, "weight", n);
    if (b->spec->norm == NORM_LAYER)
        *bias = build_norm_weight(b, "bias", n);
}

/* ---- linears ---- */

struct linear linear_of_q(const struct builder *b, const char *name,
                          tensor_id x)
{
    return (struct linear){ .name = name,
                            .x = x,
                            .in = b->h,
                            .out = b->A,
                            .full_out = b->full_A,
                            .group = PG_ATTENTION,
                            .parallel = PAR_COLUMN,
                            .bias = b->spec->q_bias,
                            .lora = LORA_MASK(LORA_Q) };
}

struct linear linear_of_k(const struct builder *b, const char *name,
                          tensor_id x)
{
    struct linear l = linear_of_q(b, name, x);
    l.out = b->K;
    l.full_out = b->full_K;
    l.bias = b->spec->k_bias;
    l.lora = LORA_MASK(LORA_K);
    return l;
}

struct linear linear_of_v(const struct builder *b, const char *name,
                          tensor_id x)
{
    struct linear l = linear_of_k(b, name, x);
    l.bias = b->spec->v_bias;
    l.lora = LORA_MASK(LORA_V);
    return l;
}

struct linear linear_of_qkv(const struct builder *b, const char *name,
                            tensor_id x)
{
    const struct spec *m = b->spec;
    struct linear l = linear_of_q(b, name, x);
    l.out = b->qkv;
    l.full_out = b->full_A + 2 * b->full_K;
    l.bias = m->q_bias || m->k_bias || m->v_bias;
    l.lora |= LORA_MASK(LORA_K) | LORA_MASK(LORA_V);
    return l;
}

/* PEFT finds modules by the end of their names; these families call the output
 * projections of attention and of the MLP both c_proj. */
static uint64_t c_proj_or(const struct builder *b, enum lora_target own)
{
    const bool apart = b->run->peft == PEFT_IA3 /* its own list says mlp. */
                       || b->run->targets_apart;
    if (apart || (b->spec->family != FAM_QWEN && b->spec->family != FAM_GPT2))
        return LORA_MASK(own);
    return LORA_MASK(LORA_O) | LORA_MASK(LORA_DOWN);
}

struct linear linear_of_o(const struct builder *b, const char *name,
                          tensor_id x)
{
    return (struct linear){ .name = name,
                            .x = x,
                            .in = b->O,
                            .out = b->h,
                            .full_in = b->full_O,
                            .group = PG_ATTENTION,
                            .parallel = PAR_ROW,
                            .bias = b->spec->o_bias,
                            .lora = c_proj_or(b, LORA_O) };
}

struct linear linear_of_up(const struct builder *b, const char *name,
                           tensor_id x)
{
    return (struct linear){ .name = name,
                            .x = x,
                            .in = b->h,
                            .out = b->f,
                            .full_out = build_ffn(b),
                            .group = PG_MLP,
                            .parallel = PAR_COLUMN,
                            .bias = b->spec->mlp_bias,
                            .lora = LORA_MASK(LORA_UP) };
}

struct linear linear_of_down(const struct builder *b, const char *name,
                             tensor_id x)
{
    return (struct linear){ .name = name,
                            .x = x,
                            .in = b->f,
                            .out = b->h,
                            .full_in = build_ffn(b),
                            .group = PG_MLP,
                            .parallel = PAR_ROW,
                            .bias = b->spec->mlp_bias,
                            .lora = c_proj_or(b, LORA_DOWN) };
}

struct linear linear_of_head(const struct builder *b, const char *name,
                             tensor_id x, tensor_id weight)
{
    const struct tensor *t = tensor_of(b, x);
    return (struct linear){ .name = name,
                            .x = x,
                            .in = t->dim[t->rank - 1],
                            .out = b->V,
                            .full_out = b->spec->vocab,
                            .group = PG_HEAD,
                            .weight = weight,
                            .has_weight = true,
                            .parallel = PAR_COLUMN,
                            .bias = b->spec->head_bias };
}

/* ---- what few models have ---- */

const char *build_beyond_plain(const struct builder *b)
{
    const struct spec *m = b->spec;
    if (!pattern_is_all(&m->attends))
        return "layers without attention";
    if (m->attention_gate)
        return "gated attention";
    if (build_is_latent(b))
        return "latent attention";
    if (m->mtp_layers > 0)
        return "multi-token prediction";
    if (m->attention_sinks)
        return "attention sinks";
    if (m->residual_scale)
        return "scaled residual branches";
    if (m->router == ROUTER_INPUT && m->experts > 0)
        return "router scores on the input of experts";
    if (m->qk_norm == QK_UNIT)
        return "norms of rotated queries and keys";
    if (m->head_norm)
        return "normed rows of the head";
    return NULL;
}

/* ---- products between sequence shards ---- */

bool build_has_sequence_shards(const struct builder *b)
{
    return b->run->sequence_parallel && b->run->tp > 1;
}

/* tp_comm_overlap: gathers before, and scatters after, products of attention
 * and MLPs work in buffers of Transformer Engine's, with their gradients. */
static void overlap(struct builder *b, const struct linear *l, tensor_id whole)
{
    b->p->tensor[whole].shared_out =
        b->run->tp_comm_overlap
        && (l->group == PG_ATTENTION || l->group == PG_MLP);
}

/* The product of what is gathered from shards. Backward scatters the input's
 * gradient, whose shard is there, while the weight's is made (tensor_parallel/
 * layers.py; transformer_engine/pytorch/module/linear.py). */
static tensor_id product_of_shards(struct builder *b, const struct linear *l,
                                   struct linear *from_whole)
{
    const struct shape whole = SHAPE(b->t, l->in);
    from_whole->keep = l->x;
    from_whole->has_keep = true;
    from_whole->x = build_collective(b, OP_ALL_GATHER, COMM_TP, l->x, &whole);
    return from_whole->x;
}

static tensor_id scattered_in_backward(struct builder *b,
                                       const struct linear *l, tensor_id y)
{
    struct op *op = &b->p->op[b->p->n_ops - 1];
    if (op->kind == OP_LINEAR && !b->run->tp_comm_overlap && !b->frozen)
        op->back_bytes += tensor_of(b, l->x)->bytes;
    return y;
}

tensor_id build_column(struct builder *b, const struct linear *l)
{
    struct linear from_whole = *l;
    if (!build_has_sequence_shards(b))
        return build_linear(b, l);
    overlap(b, l, product_of_shards(b, l, &from_whole));
    return scattered_in_backward(b, l, build_linear(b, &from_whole));
}

tensor_id build_column_in_buffer(struct builder *b, const struct linear *l)
{
    struct linear from_whole = *l;
    if (!build_has_sequence_shards(b))
        return build_linear(b, l);
    const tensor_id x = product_of_shards(b, l, &from_whole);
    if (!b->frozen) /* linear_with_frozen_weight gathers as others do */
        build_in_global_buffer(b, x, tensor_of(b, x)->bytes);
    return scattered_in_backward(b, l, build_linear(b, &from_whole));
}

tensor_id build_row(struct builder *b, const struct linear *l)
{
    const tensor_id y = build_linear(b, l);
    const struct shape shard = SHAPE(b->tu, b->h);
    if (build_has_sequence_shards(b)) {
        overlap(b, l, y);
        return build_collective(b, OP_REDUCE_SCATTER, COMM_TP, y, &shard);
    }
    return build_all_reduce(b, l->name, y, COMM_TP);
}
