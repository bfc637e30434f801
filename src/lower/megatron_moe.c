/*
 * Owns Megatron-core's mixture of experts (core/transformer/moe/, read at
 * d98e8a64 and recorded of 0.16.1): the router, what brings tokens to their
 * experts and back, in operations of PyTorch or, fused, of Transformer Engine;
 * what a layer's dispatcher holds between its calls. Knows neither attention nor
 * what experts are made of. [docs/method.md eq. megatron-experts]
 */
#include "lower/megatron.h"

#include "base/banned.h"

/* ---- router (router.py, moe_utils.py) ---- */

static enum dtype router_dtype(const struct builder *b)
{
    return b->run->moe_router_fp32 ? DT_FP32 : b->compute;
}

static bool is_local(const struct builder *b)
{
    return b->run->impl == IMPL_MEGATRON_LOCAL;
}

static struct shape of_all(const struct builder *b)
{
    return SHAPE(b->tu, b->experts);
}

/* Made for a moment by the operation built last. */
static void passing(struct builder *b, const char *name, enum dtype dtype,
                    const struct shape *shape)
{
    const tensor_id id = build_tensor(b, name, dtype, shape);
    op_byproduct(&b->p->op[b->p->n_ops - 1], id);
}

tensor_id megatron_map(struct builder *b, const char *name, tensor_id from,
                       enum dtype dtype, const struct shape *shape)
{
    const tensor_id map = build_tensor(b, name, dtype, shape);
    op_byproduct(build_op(b, OP_CAST, name, &from, 1), map);
    return map;
}

/* RouterGatingLinearFunction: input and weight are kept as they are, and cast
 * within; Transformer Engine's product casts nothing in forward. */
static tensor_id logits_of(struct builder *b, tensor_id y)
{
    const enum dtype dtype = router_dtype(b);
    const struct shape rows = SHAPE(b->tu, b->h);
    const tensor_id logits =
        build_linear(b, &(struct linear){ .name = "router",
                                          .x = y,
                                          .in = b->h,
                                          .out = b->experts,
                                          .group = PG_ROUTER,
                                          .bias = b->spec->router_bias,
                                          .out_dtype = dtype,
                                          .has_out_dtype = true,
                                          .lora = LORA_NEVER });
    struct op *op = &b->p->op[b->p->n_ops - 1];
    op->keep_in |= 1; /* frozen or not */
    if (dtype == tensor_of(b, y)->dtype)
        return logits;
    op->back_bytes += dtype_bytes_of(dtype, tensor_of(b, y)->elems);
    if (is_local(b))
        passing(b, "router input", dtype, &rows);
    return logits;
}

/* Sigmoids of the logits, with a correction that decides but does not weigh. */
static tensor_id sigmoid_scores(struct builder *b, tensor_id logits,
                                struct dim k, tensor_id *indices)
{
    const enum dtype dtype = tensor_of(b, logits)->dtype;
    const struct shape chosen = SHAPE(b->tu, k);
    const tensor_id up = build_cast(b, "router fp32", logits, DT_FP32);
    const tensor_id each = build_unary(b, OP_TANH, "sigmoid", up);
    const tensor_id scores = build_cast(b, "scores", each, dtype);
    tensor_id top;
    if (b->spec->router == ROUTER_SIGMOID) {
        *indices = build_tensor(b, "top-k indices", DT_INT64, &chosen);
        op_byproduct(build_op(b, OP_CAST, "top-k", &scores, 1), *indices);
        top = build_index(b, "scores", scores, *indices, &chosen);
        b->p->op[b->p->n_ops - 1].keep_in = 1; /* gather: for its shape */
    } else {
        top = build_topk(b, "top-k", scores, k, indices);
    }
    if (k.n <= 1)
        return top;
    const struct shape one = shape_last(b, top, b->one);
    const tensor_id sum = build_tensor(b, "top-k sum", dtype, &one);
    op_result(b, build_op(b, OP_MEAN, "top-k sum", &top, 1), sum);
    return build_binary(b, OP_DIV, "routing weights", top, sum);
}

static tensor_id weights_of(struct builder *b, tensor_id logits, struct dim k,
                            tensor_id *indices)
{
    if (b->spec->router == ROUTER_SIGMOID)
        return sigmoid_scores(b, logits, k, indices);
    const tensor_id top = build_topk(b, "top-k", logits, k, indices);
    const tensor_id p = build_softmax(b, "router softmax", top, DT_FP32);
    return build_cast(b, "routing weights", p, tensor_of(b, logits)->dtype);
}

/* From [tokens, k] to [tokens, E]: zeros, filled; and where. */
static struct megatron_routing spread(struct builder *b, tensor_id weights,
                                      tensor_id indices)
{
    const struct shape all = of_all(b);
    struct megatron_routing r = { .index = TENSOR_NONE };
    r.probs = build_index(b, "probs", weights, indices, &all);
    passing(b, "zeros", tensor_of(b, r.probs)->dtype, &all);
    build_op(b, OP_CAST, "routing map", &indices, 1);
    passing(b, "zeros", DT_INT32, &all);
    passing(b, "ones", DT_INT32, &all);
    r.map = build_tensor(b, "routing map", DT_BOOL, &all);
    op_byproduct(&b->p->op[b->p->n_ops - 1], r.map);
    return r;
}

static tensor_id scores_for_balance(struct builder *b, tensor_id logits)
{
    if (b->spec->router != ROUTER_SIGMOID)
        return build_softmax(b, "balance scores", logits, DT_FP32);
    const tensor_id each = build_unary(b, OP_TANH, "sigmoid", logits);
    const struct shape one = shape_last(b, each, b->one);
    const tensor_id sum =
        build_tensor(b, "scores' sum", tensor_of(b, each)->dtype, &one);
    op_result(b, build_op(b, OP_MEAN, "scores' sum", &each, 1), sum);
    return build_binary(b, OP_DIV, "balance scores", each, sum);
}

/* switch_load_balancing_loss_func and MoEAuxLossAutoScaler: scores of all
 * experts, added up by expert (and sequence), times their tokens' number; the
 * loss hangs on the probabilities. */
static tensor_id balanced(struct builder *b, tensor_id logits, tensor_id probs)
{
    const enum moe_aux_loss kind = b->run->moe_aux_loss;
    if (kind == AUX_LOSS_NONE)
        return probs;
    const bool each = kind == AUX_LOSS_SEQUENCE;
    const struct shape all = shape_of(b, probs), one = SHAPE(b->one);
    const struct shape sums =
        SHAPE(each ? DIM("E*b", build_product(b, b->experts.n, b->micro.n))
                   : b->experts);
    const tensor_id scores = scores_for_balance(b, logits);
    const tensor_id sum =
        build_tensor(b, "scores by expert", tensor_of(b, scores)->dtype, &sums);
    op_result(b, build_op(b, OP_MEAN, "scores by expert", &scores, 1), sum);
    const tensor_id counts =
        megatron_map(b, "tokens of experts", logits,
                     kind == AUX_LOSS_GLOBAL ? DT_FP32 : DT_INT64, &sums);
    const tensor_id products = build_mul(b, "balance", sum, counts);
    const tensor_id loss = build_tensor(b, "balance loss", DT_FP32, &one);
    op_result(b, build_op(b, OP_MEAN, "balance loss", &products, 1), loss);
    const tensor_id in[] = { probs, loss };
    struct op *op = build_op(b, OP_FUNCTION, "balance loss", in, 2);
    op->place = PLACE_GRADIENT;
    op->keep_in = 1u << 1;
    const tensor_id out = build_alias(b, "probs", probs, &all);
    op_result(b, &b->p->op[b->p->n_ops - 1], out);
    return out;
}

static struct megatron_routing route(struct builder *b, tensor_id y)
{
    const struct dim k = DIM("k", b->spec->experts_per_token);
    const tensor_id logits = logits_of(b, y);
    tensor_id indices;
    const tensor_id weights = weights_of(b, logits, k, &indices);
    struct megatron_routing r = spread(b, weights, indices);
    r.probs = balanced(b, logits, r.probs);
    build_op(b, OP_RELEASE, "router", &logits, 1);
    return r;
}

/* ---- by rows (permute, unpermute, sort_chunks_by_idxs) ---- */

/* Of the experts that the routing's tensors are of. */
static struct shape by_expert(const struct builder *b, tensor_id map)
{
    const struct tensor *t = tensor_of(b, map);
    return SHAPE(t->dim[1], t->dim[0]);
}

/* The map by expert, contiguous: true in so many places as there are rows. */
static tensor_id transposed(struct builder *b, tensor_id map)
{
    const struct shape shape = by_expert(b, map);
    const tensor_id mask = build_tensor(b, "map by expert", DT_BOOL, &shape);
    op_byproduct(build_op(b, OP_COPY, "map by expert", &map, 1), mask);
    return mask;
}

/* token_indices.masked_select(map) */
static void index_rows(struct builder *b, struct megatron_routing *r,
                       tensor_id mask, struct dim rows)
{
    const struct shape shape = SHAPE(rows);
    r->index = megatron_map(b, "rows", mask, DT_INT64, &shape);
}

/* probs.T.contiguous().masked_select(mask): both are kept. */
static tensor_id select_probs(struct builder *b, tensor_id probs,
                              tensor_id mask, struct dim rows)
{
    const struct shape shape = by_expert(b, probs), out = SHAPE(rows);
    const tensor_id in[] = { build_copy_as(b, "probs by expert", probs, &shape),
                             mask };
    const tensor_id y =
        build_tensor(b, "permuted probs", tensor_of(b, probs)->dtype, &out);
    struct op *op = build_op(b, OP_FUNCTION, "permuted probs", in, 2);
    op->keep_in = 1u << 0 | 1u << 1;
    op_result(b, op, y);
    return y;
}

tensor_id megatron_moved_rows(struct builder *b, const char *name, tensor_id x,
                              tensor_id index, const struct shape *shape)
{
    const tensor_id y = build_index(b, name, x, index, shape);
    b->p->op[b->p->n_ops - 1].rows_once = b->run->moe_permute_fusion;
    return y;
}

/* Transformer Engine's kernels: one map of int32 for a token's rows and
 * experts (triton/permutation.py, make_row_id_map). */
static void fuse_rows(struct builder *b, struct megatron_routing *r)
{
    const struct tensor *map = tensor_of(b, r->map);
    const struct shape shape =
        SHAPE(map->dim[0], DIM("2*E+1", 2 * map->dim[1].n + 1));
    r->index = megatron_map(b, "row_id_map", r->map, DT_INT32, &shape);
}

tensor_id megatron_permuted_probs(struct builder *b, struct megatron_routing *r,
                                  struct dim rows)
{
    const struct shape shape = SHAPE(rows);
    if (b->run->moe_permute_fusion) {
        fuse_rows(b, r);
        return megatron_moved_rows(b, "permuted probs", r->probs, r->index,
                                   &shape);
    }
    const tensor_id mask = transposed(b, r->map);
    index_rows(b, r, mask, rows);
    return select_probs(b, r->probs, mask, rows);
}

/* What repeats exactly is index_add, which keeps the rows, and makes its zeros
 * twice; scatter_add does neither. */
tensor_id megatron_unpermuted(struct builder *b, tensor_id z,
                              const struct megatron_routing *r,
                              const struct shape *shape)
{
    const bool adds = b->run->deterministic && !b->run->moe_permute_fusion;
    const enum dtype dtype = tensor_of(b, z)->dtype;
    const tensor_id y = megatron_moved_rows(b, "unpermute", z, r->index, shape);
    struct op *op = &b->p->op[b->p->n_ops - 1];
    op->rows_summed = true;
    op->keep_in = adds ? 1 : 0;
    if (adds)
        passing(b, "zeros", dtype, shape);
    return y;
}

/* Chunks of each sender by expert, or back: split and joined, a copy whoever
 * sent them; fused, a kernel that keeps where (made where *map is TENSOR_NONE, of
 * how many tokens there are, a row for each of `few`). */
static tensor_id sorted(struct builder *b, const char *name, tensor_id x,
                        tensor_id few, tensor_id *map)
{
    if (b->experts_on.n <= 1)
        return x;
    const struct shape shape = shape_of(b, x), rows = SHAPE(b->routed);
    if (!b->run->moe_permute_fusion)
        return build_copy(b, name, x);
    if (*map == TENSOR_NONE)
        *map = megatron_map(b, "chunk map", few, DT_INT32, &rows);
    return megatron_moved_rows(b, name, x, *map, &shape);
}

/* ---- dispatchers (token_dispatcher.py) ---- */

void megatron_hold_between_calls(struct builder *b,
                                 const struct megatron_sent *s, tensor_id probs)
{
    const tensor_id held[] = { s->r.map, probs, s->r.index };
    const char *const name[] = { "routing_map", "probs",
                                 "reversed_permutation_mapping" };
    b->block->names_graph = true;
    for (unsigned i = 0; i < 3; i++) {
        const struct shape shape = shape_of(b, held[i]);
        const tensor_id id =
            build_buffer(b, name[i], tensor_of(b, held[i])->dtype, &shape);
        b->p->tensor[id].graphed = b->graphed;
    }
}

/* MoEAllGatherTokenDispatcher: every rank gets the tokens of all that share the
 * experts, into the global buffer, and picks its own. */
static struct dim gathered_tokens(struct builder *b)
{
    return DIM("b*s*ep", build_product(b, build_product(b, b->tu.n, b->run->ep),
                                       max_u64(b->run->etp, 1)));
}

static enum comm_group expert_group(const struct builder *b)
{
    return b->run->ep > 1 ? COMM_EP : COMM_ETP;
}

static tensor_id gathered(struct builder *b, tensor_id x, struct dim width)
{
    const struct shape all = SHAPE(gathered_tokens(b), width);
    if (all.dim[0].n == tensor_of(b, x)->dim[0].n)
        return x;
    return build_collective(b, OP_ALL_GATHER, expert_group(b), x, &all);
}

/* Columns of this rank's experts. */
static tensor_id of_this_rank(struct builder *b, const char *name, tensor_id x)
{
    const struct tensor *t = tensor_of(b, x);
    if (b->experts_on.n == b->experts.n)
        return x;
    const struct shape here = SHAPE(t->dim[0], b->experts_on);
    const bool grad = t->needs_grad;
    if (grad)
        return build_copy_as(b, name, x, &here);
    const tensor_id y = build_tensor(b, name, t->dtype, &here);
    op_byproduct(build_op(b, OP_COPY, name, &x, 1), y);
    return y;
}

static struct megatron_sent gather_tokens(struct builder *b, tensor_id y,
                                          struct megatron_routing r)
{
    const struct shape here = SHAPE(b->routed, b->h);
    struct megatron_sent s = { .permuted = TENSOR_NONE,
                               .arrived = TENSOR_NONE };
    const struct dim tokens = gathered_tokens(b);
    if (tokens.n != b->tu.n) {
        const struct shape all = SHAPE(tokens, b->experts);
        const tensor_id map = build_tensor(b, "routing map", DT_BOOL, &all);
        op_byproduct(build_op(b, OP_COPY, "routing map", &r.map, 1), map);
        r.map = map;
    }
    const tensor_id probs = gathered(b, r.probs, b->experts);
    const tensor_id x = gathered(b, y, b->h);
    if (x != y)
        build_in_global_buffer(b, x, tensor_of(b, x)->bytes);
    r.map = of_this_rank(b, "local map", r.map);
    r.probs = of_this_rank(b, "local probs", probs);
    s.r = r;
    if (b->run->moe_permute_fusion)
        fuse_rows(b, &s.r);
    else
        index_rows(b, &s.r, transposed(b, r.map), b->routed);
    s.rows = megatron_moved_rows(b, "permute", x, s.r.index, &here);
    s.probs = select_probs(b, r.probs, transposed(b, r.map), b->routed);
    megatron_hold_between_calls(b, &s, s.probs);
    return s;
}

static tensor_id scatter_tokens(struct builder *b, tensor_id z,
                                const struct megatron_sent *s)
{
    const struct shape all = SHAPE(gathered_tokens(b), b->h);
    const struct shape back = SHAPE(b->tu, b->h);
    const enum dtype dtype = tensor_of(b, z)->dtype;
    const tensor_id held[] = { z, s->rows, s->probs };
    z = megatron_unpermuted(b, z, &s->r, &all);
    build_op(b, OP_RELEASE, "experts", held, 3);
    if (all.dim[0].n == back.dim[0].n)
        return z;
    const tensor_id named = z;
    z = build_cast(b, "reduced", z, tensor_of(b, s->probs)->dtype);
    z = build_collective(b, OP_REDUCE_SCATTER, expert_group(b), z, &back);
    z = build_cast(b, "reduced", z, dtype);
    build_op(b, OP_RELEASE, "gathered", &named, 1);
    return z;
}

/* Of the all-to-all, before the ranks of an expert gather what they got. */
static struct dim received_rows(const struct builder *b)
{
    const uint64_t etp = max_u64(b->run->etp, 1);
    return DIM("b*s*k", b->routed.n / etp + (b->routed.n % etp != 0));
}

static tensor_id exchanged(struct builder *b, tensor_id x, bool vector)
{
    const struct dim received = received_rows(b);
    const struct shape got = vector ? SHAPE(received) : SHAPE(received, b->h);
    return build_collective(b, OP_ALL_TO_ALL, COMM_EP, x, &got);
}

static tensor_id gathered_rows(struct builder *b, tensor_id x, bool vector)
{
    const struct shape here =
        vector ? SHAPE(b->routed) : SHAPE(b->routed, b->h);
    return b->run->etp <= 1
               ? x
               : build_collective(b, OP_ALL_GATHER, COMM_ETP, x, &here);
}

static struct megatron_sent exchange_tokens(struct builder *b, tensor_id y,
                                            const struct megatron_routing *r)
{
    const struct shape out = SHAPE(b->chosen, b->h);
    struct megatron_sent s = { .r = *r };
    const tensor_id probs = megatron_permuted_probs(b, &s.r, b->chosen);
    s.permuted = megatron_moved_rows(b, "permute", y, s.r.index, &out);
    megatron_hold_between_calls(b, &s, r->probs);
    b->graphed = false;
    build_node(b, NODE_DISPATCH);
    s.arrived = exchanged(b, s.permuted, false);
    s.probs = exchanged(b, probs, true);
    build_node(b, NODE_EXPERTS);
    s.rows = gathered_rows(b, s.arrived, false);
    s.probs = gathered_rows(b, s.probs, true);
    tensor_id map = TENSOR_NONE;
    s.rows = sorted(b, "sort", s.rows, s.probs, &map);
    s.probs = sorted(b, "sort probs", s.probs, s.probs, &map);
    return s;
}

static tensor_id returned(struct builder *b, tensor_id z,
                          const struct megatron_sent *s)
{
    const struct shape sent = SHAPE(b->chosen, b->h), back = SHAPE(b->tu, b->h);
    const struct shape got = SHAPE(received_rows(b), b->h);
    const enum dtype dtype = tensor_of(b, z)->dtype;
    const tensor_id out = z;
    tensor_id map = TENSOR_NONE;
    z = sorted(b, "unsort", z, s->probs, &map);
    const tensor_id held[] = { out, z, s->rows, s->probs };
    if (b->run->etp > 1) {
        z = build_cast(b, "reduced", z, router_dtype(b));
        z = build_collective(b, OP_REDUCE_SCATTER, COMM_ETP, z, &got);
        z = build_cast(b, "reduced", z, dtype);
    }
    build_op(b, OP_RELEASE, "experts", held, 4);
    if (b->run->ep_overlap) { /* the parts' inputs go when these are done */
        build_op(b, OP_RELEASE, "experts", &s->arrived, 1);
        b->sent = z;
    }
    build_node(b, NODE_COMBINE);
    z = build_collective(b, OP_ALL_TO_ALL, COMM_EP, z, &sent);
    return megatron_unpermuted(b, z, &s->r, &back);
}

/* ---- the layer (moe_layer.py) ---- */

/* What the part of a layer up to the experts hands past them it has in hand until
 * it goes itself (TransformerLayerNode.detach). */
static void stay(struct builder *b, tensor_id x)
{
    if (b->run->ep_overlap)
        b->p->tensor[tensor_of(b, x)->storage].stays = true;
}

static bool gathers_tokens(const struct builder *b)
{
    return b->run->moe_dispatcher == DISPATCH_ALLGATHER;
}

static struct megatron_sent sent(struct builder *b, tensor_id x,
                                 const struct megatron_routing *r)
{
    if (gathers_tokens(b))
        return gather_tokens(b, x, *r);
    return megatron_is_flex(b) ? megatron_flex_sent(b, x, r)
                               : exchange_tokens(b, x, r);
}

tensor_id megatron_moe(struct builder *b, tensor_id y, megatron_shared *mlp)
{
    const bool gathers = gathers_tokens(b);
    if (megatron_recomputes(b, REMOD_MOE))
        build_region(b, REMOD_MOE);
    const uint8_t region = b->region;
    tensor_id shared = TENSOR_NONE;
    if (b->spec->shared_ffn > 0) {
        if (region == 0 && megatron_recomputes(b, REMOD_SHARED_EXPERTS))
            build_region(b, REMOD_SHARED_EXPERTS);
        shared = megatron_gated(b, y, mlp(b, y));
        b->region = region;
        stay(b, shared);
    }
    const struct megatron_routing r = route(b, y);
    megatron_graphed(b, GRAPHED_MOE_PREPROCESS);
    const tensor_id x = megatron_sent(b, y);
    const struct megatron_sent s = sent(b, x, &r);
    tensor_id z = megatron_experts(b, s.rows, s.probs);
    z = gathers               ? scatter_tokens(b, z, &s)
        : megatron_is_flex(b) ? megatron_flex_returned(b, z, &s)
                              : returned(b, z, &s);
    if (shared != TENSOR_NONE)
        z = build_add(b, "shared experts", z, shared);
    const tensor_id held[] = { r.map, s.permuted, s.arrived };
    const bool parts = gathers || b->run->ep_overlap;
    build_op(b, OP_RELEASE, "moe layer", held, parts ? 1 : 3);
    build_region_none(b);
    return z;
}

tensor_id megatron_moe_done(struct builder *b, tensor_id residual, tensor_id x)
{
    stay(b, residual);
    if (b->sent != TENSOR_NONE)
        build_op(b, OP_RELEASE, "combine", &b->sent, 1);
    return x;
}
