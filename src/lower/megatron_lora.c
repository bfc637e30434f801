/*
 * Owns the linears of Megatron's layers with adapters beside them, as
 * Megatron-Bridge has them (read at 067f987d: src/megatron/bridge/peft/lora.py,
 * lora_layers.py, utils.py, class ParallelLinearAdapter): two of Megatron-core's
 * own linears, in 16 bits whatever the layer's are, split over ranks as the
 * layer's is. Refuses what resolve_bridge.c refuses.
 * [docs/method.md eq. bridge-lora]
 */
#include "lower/megatron.h"

#include "base/banned.h"

/* ---- messages that the layer's own linears have not ---- */

static struct op *last_op(struct builder *b)
{
    return &b->p->op[b->p->n_ops - 1];
}

/* What goes into a column-parallel product: its gradient is summed over ranks,
 * where it lies (core/tensor_parallel/layers.py, allreduce_dgrad). */
static tensor_id summed_in_backward(struct builder *b, tensor_id x)
{
    const struct shape shape = shape_of(b, x);
    if (b->run->tp <= 1)
        return x;
    const tensor_id y = build_view(b, "adapter input", x, &shape);
    last_op(b)->one_way = true;
    last_op(b)->group = COMM_TP;
    return y;
}

/* gather_from_tensor_model_parallel_region: ranks' parts one after another, then
 * side by side; of the gradient a rank takes a copy of its part. */
static tensor_id gathered_columns(struct builder *b, tensor_id x,
                                  struct dim whole)
{
    const struct shape shape = shape_last(b, x, whole);
    if (b->run->tp <= 1)
        return x;
    const tensor_id parts =
        build_collective(b, OP_ALL_GATHER, COMM_TP, x, &shape);
    last_op(b)->one_way = true;
    const tensor_id y = build_copy(b, "adapter result", parts);
    build_place(b, PLACE_GRADIENT);
    build_op(b, OP_RELEASE, "output_parallel", &x, 1);
    return y;
}

/* scatter_to_sequence_parallel_region: the first rows, seen in the whole, whose
 * gradient is gathered. */
static tensor_id own_rows(struct builder *b, tensor_id x)
{
    const struct shape shard = SHAPE(b->tu, b->h);
    if (!build_has_sequence_shards(b))
        return x;
    const tensor_id y = build_view(b, "sequence shard", x, &shard);
    last_op(b)->one_way = true;
    last_op(b)->group = COMM_TP;
    return y;
}

/* ---- ParallelLinearAdapter.forward ---- */

static struct dim rank_share(const struct builder *b)
{
    return b->run->tp > 1 ? DIM("r/tp", b->r.n / b->run->tp) : b->r;
}

/* linear_in, of all tokens: whole rows of the low rank. */
static tensor_id to_low_rank(struct builder *b, const struct linear *l,
                             tensor_id x)
{
    const bool row = l->parallel == PAR_ROW;
    struct linear in = { .name = "adapter.linear_in",
                         .x = x,
                         .in = l->in,
                         .out = row ? b->r : rank_share(b),
                         .full_in = build_full_in(b, l),
                         .full_out = b->r.n,
                         .group = PG_ADAPTER };
    if (!row) {
        /* disable_grad_reduce: the gradient of a gather sums it */
        if (!build_has_sequence_shards(b))
            in.x = summed_in_backward(b, x);
        return gathered_columns(b, build_linear(b, &in), b->r);
    }
    const tensor_id y = build_linear(b, &in);
    if (b->run->tp <= 1)
        return y;
    const tensor_id sum = build_all_reduce(b, in.name, y, COMM_TP);
    last_op(b)->one_way = true;
    return sum;
}

static struct dim out_share(const struct builder *b, const struct linear *l)
{
    if (l->parallel != PAR_ROW || b->run->tp <= 1)
        return l->out;
    return DIM("h/tp", l->out.n / b->run->tp);
}

/* linear_out, column-parallel whatever the layer's is. */
static tensor_id from_low_rank(struct builder *b, const struct linear *l,
                               tensor_id x)
{
    const struct linear out = { .name = "adapter.linear_out",
                                .x = summed_in_backward(b, x),
                                .in = b->r,
                                .out = out_share(b, l),
                                .full_in = b->r.n,
                                .full_out = build_full_out(b, l),
                                .group = PG_ADAPTER };
    const tensor_id y = build_linear(b, &out);
    if (l->parallel != PAR_ROW)
        return y;
    return own_rows(b, gathered_columns(b, y, l->out));
}

/* `given` is a variable of the caller's. */
static tensor_id summed(struct builder *b, tensor_id base, tensor_id y,
                        tensor_id given)
{
    y = build_scale(b, "lora scaling", y);
    y = build_add(b, "lora sum", base, y);
    build_op(b, OP_RELEASE, "lora input", &given, 1);
    return y;
}

/* LoRALinear.forward: `base`, the layer's result, and the adapter's of x. */
static tensor_id adapted(struct builder *b, const struct linear *l,
                         tensor_id base, tensor_id x, bool gathers)
{
    const struct shape whole = SHAPE(b->t, l->in);
    const tensor_id given = x;
    x = build_dropout(b, "lora dropout", x, b->run->lora_dropout);
    if (gathers)
        x = build_collective(b, OP_ALL_GATHER, COMM_TP, x, &whole);
    return summed(b, base, from_low_rank(b, l, to_low_rank(b, l, x)), given);
}

/* ---- experts ---- */

/* Grouped products share one adapter, which ranks keep alike
 * (share_expert_adapters); experts one after another have one each. */
tensor_id megatron_expert(struct builder *b, const struct linear *l)
{
    const tensor_id base = build_linear(b, l);
    if (!build_is_adapted(b, l))
        return base;
    const bool shared = b->run->grouped_gemm;
    struct linear in = { .name = "adapter.linear_in",
                         .in = l->in,
                         .out = b->r,
                         .full_in = build_full_in(b, l),
                         .full_out = b->r.n,
                         .group = PG_ADAPTER,
                         .of_experts = true,
                         .copies = shared ? 1 : l->copies,
                         .full_copies = shared ? 1 : l->full_copies };
    struct linear out = in;
    in.x = build_dropout(b, "lora dropout", l->x, b->run->lora_dropout);
    out.name = "adapter.linear_out";
    out.in = b->r;
    out.out = l->out;
    out.full_in = b->r.n;
    out.full_out = build_full_out(b, l);
    out.x = build_linear(b, &in);
    return summed(b, base, build_linear(b, &out), l->x);
}

/* ---- both ends, whose weights are frozen ---- */

void megatron_hold_words(struct builder *b, tensor_id x)
{
    if (!run_has_bridge_adapters(b->run))
        return;
    b->p->tensor[tensor_of(b, x)->storage].framed = true;
    b->block->holds_output = true;
}

void megatron_let_states_go(struct builder *b, tensor_id x)
{
    if (run_has_bridge_adapters(b->run))
        build_op(b, OP_RELEASE, "hidden_states", &x, 1);
}

/* ---- linears of layers ---- */

/* Transformer Engine's fused norm and linear hands on what it gathered, unless
 * it gathers piece by piece while it computes (return_layernorm_output_gathered,
 * utils.py, get_adapter_attributes_from_linear). */
static bool hands_on(const struct builder *b, const struct linear *l)
{
    const bool fused = l->group != PG_SHARED_EXPERT
                       && !(l->group == PG_MLP && megatron_is_deepseek(b));
    return b->run->impl == IMPL_MEGATRON && fused && !b->run->tp_comm_overlap;
}

tensor_id megatron_column(struct builder *b, const struct linear *l)
{
    const bool shards = build_has_sequence_shards(b);
    if (!build_is_adapted(b, l))
        return build_column(b, l);
    if (!shards || !hands_on(b, l))
        return adapted(b, l, build_column(b, l), l->x, shards);
    const struct shape whole = SHAPE(b->t, l->in);
    struct linear own = *l;
    own.x = build_collective(b, OP_ALL_GATHER, COMM_TP, l->x, &whole);
    return adapted(b, &own, build_linear(b, &own), own.x, false);
}

tensor_id megatron_column_in_buffer(struct builder *b, const struct linear *l)
{
    if (!build_is_adapted(b, l))
        return build_column_in_buffer(b, l);
    return adapted(b, l, build_column_in_buffer(b, l), l->x,
                   build_has_sequence_shards(b));
}

tensor_id megatron_row(struct builder *b, const struct linear *l)
{
    const tensor_id base = build_row(b, l);
    return build_is_adapted(b, l) ? adapted(b, l, base, l->x, false) : base;
}
