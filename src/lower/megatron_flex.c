/*
 * Owns Megatron-core's flexible dispatcher (core/transformer/moe/
 * token_dispatcher.py and fused_a2a.py, read at d98e8a64; not recorded): tokens
 * that DeepEP or HybridEP send once to each rank that has experts of theirs, and
 * what these libraries allocate. Their communication buffers are outside the
 * allocator. [docs/method.md eq. megatron-experts]
 */
#include "lower/megatron.h"

#include "base/banned.h"

bool megatron_is_flex(const struct builder *b)
{
    return run_sends_tokens_once(b->run);
}

static bool is_hybrid(const struct builder *b)
{
    return b->run->moe_flex_backend == FLEX_HYBRIDEP;
}

static tensor_id in_fp32(struct builder *b, const char *name, tensor_id probs)
{
    return tensor_of(b, probs)->dtype == DT_FP32
               ? probs
               : build_cast(b, name, probs, DT_FP32);
}

/* Probabilities go with their tokens, in the same kernel; whose backward has
 * what it needs to know where from (ctx.handle). */
static tensor_id sent_probs(struct builder *b, tensor_id probs,
                            const tensor_id handle[3],
                            const struct shape *shape)
{
    const tensor_id in[] = { probs, handle[0], handle[1], handle[2] };
    const tensor_id y = build_tensor(b, "dispatched probs", DT_FP32, shape);
    struct op *op = build_op(b, OP_FUNCTION, "dispatched probs", in, 4);
    op->keep_in = 1u << 1 | 1u << 2 | 1u << 3;
    op_result(b, op, y);
    return y;
}

/* HybridEPDispatch: rows come by expert, padded where products of 8 bits want
 * it (csrc/hybrid_ep/executor/executor.cu of DeepEP's branch hybrid-ep: the
 * maps). */
static struct megatron_sent by_hybrid(struct builder *b, tensor_id y,
                                      const struct megatron_routing *r)
{
    const struct dim all = DIM("b*s*ep", build_product(b, b->tu.n, b->run->ep));
    const struct dim ranks = DIM("ep", b->run->ep);
    const struct shape sparse = SHAPE(b->tu, ranks);
    const struct shape dense = SHAPE(all, b->experts_on);
    const struct shape rows = SHAPE(b->routed, b->h), few = SHAPE(b->routed);
    struct megatron_sent s = { .r = *r, .permuted = TENSOR_NONE };
    const tensor_id probs = in_fp32(b, "probs fp32", r->probs);
    build_node(b, NODE_DISPATCH);
    const tensor_id handle[] = {
        megatron_map(b, "sparse_to_dense_map", r->map, DT_INT32, &sparse),
        megatron_map(b, "local_expert_routing_map", r->map, DT_BOOL, &dense),
        megatron_map(b, "dense_to_expert_map", r->map, DT_INT32, &dense)
    };
    s.rows = s.arrived = build_collective(b, OP_ALL_TO_ALL, COMM_EP, y, &rows);
    s.probs = sent_probs(b, probs, handle, &few);
    build_node(b, NODE_EXPERTS);
    s.r.index = s.probs;
    megatron_hold_between_calls(b, &s, probs);
    return s;
}

/* FusedDispatch, then a permutation of what came. */
static struct megatron_sent by_deepep(struct builder *b, tensor_id y,
                                      const struct megatron_routing *r)
{
    const struct dim k = DIM("k", b->spec->experts_per_token);
    const struct dim ranks = DIM("ep", b->run->ep);
    const struct shape of_ranks = SHAPE(b->tu, ranks), from = SHAPE(b->once);
    const struct shape came = SHAPE(b->once, b->h), top = SHAPE(b->once, k);
    const struct shape here = SHAPE(b->once, b->experts_on);
    const struct shape rows = SHAPE(b->routed, b->h);
    struct megatron_sent s = { .r = *r, .permuted = TENSOR_NONE };
    tensor_id indices;
    const tensor_id probs =
        in_fp32(b, "token probs fp32",
                build_topk(b, "token probs", r->probs, k, &indices));
    build_node(b, NODE_DISPATCH);
    const tensor_id handle[] = {
        megatron_map(b, "is_token_in_rank", indices, DT_BOOL, &of_ranks),
        megatron_map(b, "send_head", indices, DT_INT32, &of_ranks),
        megatron_map(b, "recv_src_idx", indices, DT_INT32, &from)
    };
    s.arrived = build_collective(b, OP_ALL_TO_ALL, COMM_EP, y, &came);
    const tensor_id sent = sent_probs(b, probs, handle, &top);
    build_node(b, NODE_EXPERTS);
    const tensor_id places =
        megatron_map(b, "dispatched indices", indices, DT_INT64, &top);
    s.r.map = megatron_map(b, "dispatched map", places, DT_BOOL, &here);
    s.r.probs =
        build_index(b, "dispatched probs by expert", sent, places, &here);
    s.probs = megatron_permuted_probs(b, &s.r, b->routed);
    s.rows = megatron_moved_rows(b, "permute", s.arrived, s.r.index, &rows);
    megatron_hold_between_calls(b, &s, probs);
    return s;
}

struct megatron_sent megatron_flex_sent(struct builder *b, tensor_id y,
                                        const struct megatron_routing *r)
{
    b->graphed = false;
    return is_hybrid(b) ? by_hybrid(b, y, r) : by_deepep(b, y, r);
}

tensor_id megatron_flex_returned(struct builder *b, tensor_id z,
                                 const struct megatron_sent *s)
{
    const struct shape came = SHAPE(b->once, b->h), back = SHAPE(b->tu, b->h);
    const tensor_id out = z;
    if (!is_hybrid(b))
        z = megatron_unpermuted(b, z, &s->r, &came);
    const tensor_id held[] = { out, s->rows, s->probs };
    build_op(b, OP_RELEASE, "experts", held, 3);
    if (b->run->ep_overlap) { /* the parts' inputs go when these are done
                                 (should_free_input) */
        build_op(b, OP_RELEASE, "experts", &s->arrived, 1);
        b->sent = z;
    }
    build_node(b, NODE_COMBINE);
    return build_collective(b, OP_ALL_TO_ALL, COMM_EP, z, &back);
}
