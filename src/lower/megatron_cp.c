/*
 * Owns what Transformer Engine does around attention of a sequence that is cut
 * over ranks, where it is no ring: heads exchanged for tokens (a2a), keys and
 * values gathered (all_gather). Either is one function of autograd, whose
 * backward lets go of nothing before it is over. Refuses to know the kernel.
 *   attention/dot_product_attention/context_parallel.py,
 *   AttnFuncWithCPAndQKVOA2A, AttnFuncWithCPAndKVAllGather
 * [docs/method.md eq. context-parallel]
 */
#include "lower/megatron.h"

#include "base/banned.h"

bool megatron_exchanges(const struct builder *b)
{
    return b->run->cp > 1 && b->run->cp_comm == CP_A2A;
}

static struct dim all_tokens(struct builder *b)
{
    return DIM("b*s", build_product(b, b->micro.n, b->s.n));
}

/* ---- heads for tokens ---- */

/* A copy by rank, what comes in its place, and that in the order of tokens:
 * every rank has a chunk from either end of the sequence. */
static tensor_id to_all_tokens(struct builder *b, tensor_id x,
                               tensor_id *by_rank)
{
    const uint64_t width = tensor_of(b, x)->elems / max_u64(b->t.n, 1);
    const struct dim share = DIM("heads*d/cp", width / b->run->cp);
    const struct shape all = SHAPE(all_tokens(b), share);
    *by_rank = build_copy(b, "heads by rank", x);
    x = build_collective(b, OP_ALL_TO_ALL, COMM_CP, *by_rank, &all);
    return build_copy(b, "tokens in order", x);
}

void megatron_scatter_heads(struct builder *b, tensor_id qkv[3],
                            struct megatron_heads *outer)
{
    const uint64_t cp = b->run->cp;
    tensor_id by_rank[3];
    *outer = (struct megatron_heads){ b->a, b->kv, b->sq, b->t };
    for (unsigned i = 0; i < 3; i++)
        qkv[i] = to_all_tokens(b, qkv[i], &by_rank[i]);
    for (unsigned i = 0; i < 3; i++) /* a list has all three */
        build_op(b, OP_RELEASE, "heads by rank", &by_rank[i], 1);
    b->a = DIM("a/cp", b->a.n / cp);
    b->kv = DIM("kv/cp", b->kv.n / cp);
    b->sq = b->s;
    b->t = all_tokens(b);
}

tensor_id megatron_gather_heads(struct builder *b, tensor_id context,
                                const struct megatron_heads *outer)
{
    b->a = outer->a;
    b->kv = outer->kv;
    b->sq = outer->sq;
    b->t = outer->t;
    const struct shape here = SHAPE(b->t, b->O);
    const tensor_id by_rank = build_copy(b, "tokens by rank", context);
    const tensor_id got =
        build_collective(b, OP_ALL_TO_ALL, COMM_CP, by_rank, &here);
    const tensor_id y = build_copy(b, "heads of all ranks", got);
    build_op(b, OP_RELEASE, "tokens by rank", &by_rank, 1);
    return y;
}

void megatron_release_heads(struct builder *b, const tensor_id qkv[3])
{
    for (unsigned i = 0; megatron_exchanges(b) && i < 3; i++)
        build_op(b, OP_RELEASE, "query, key, value", &qkv[i], 1);
}

/* ---- backward, in one function ---- */

/* What the kernel's backward has beside its results (fold/walk_backward.c,
 * flash_workspace), gone when gradients are sent. */
static uint64_t kernel_scratch(const struct builder *b, const struct op *op)
{
    enum { ROWS = 128 };
    const struct tensor *q = tensor_of(b, op->in[0]);
    const struct tensor *k = tensor_of(b, op->in[1]);
    const uint64_t grouped = k->elems < q->elems ? 2 * q->bytes : 0;
    return div_up(q->elems, ROWS) * ROWS * dtype_size(DT_FP32) + grouped;
}

static uint64_t beyond(uint64_t n, uint64_t less)
{
    return n > less ? n - less : 0;
}

/* While the last gradients come in: the result's gradient as it came, those of
 * q, k, v by rank, what came in their place, and a copy of the last. */
void megatron_exchange_backward(struct builder *b)
{
    struct op *op = &b->p->op[b->p->n_ops - 1];
    uint64_t heads = 0;
    for (unsigned i = 0; i < 3; i++)
        heads += tensor_of(b, op->in[i])->bytes;
    const uint64_t there = tensor_of(b, op->out[0])->bytes + 2 * heads
                           + tensor_of(b, op->in[2])->bytes;
    op->back_bytes = beyond(there, kernel_scratch(b, op));
}

/* ---- keys and values of all tokens ---- */

/* Keys that a rank's two chunks see under a causal mask, as a multiple of all:
 * the one from the front r + 1 of 2 cp chunks, the one from the end 2 cp -
 * r. */
static uint64_t seen_bytes(const struct builder *b, uint64_t all)
{
    const uint64_t chunks = 2 * b->run->cp;
    return b->attends_all ? 2 * all : all + all / chunks;
}

static void by_rank(struct builder *b, struct op *op, const char *name,
                    uint64_t bytes)
{
    const uint64_t size = dtype_size(tensor_of(b, op->in[1])->dtype);
    const struct shape shape = SHAPE(DIM("elements", div_up(bytes, size)));
    op_byproduct(op,
                 build_tensor(b, name, tensor_of(b, op->in[1])->dtype, &shape));
}

/* Forward: keys and values are gathered, then put in order one by one; a half
 * of the result for either chunk, and zeros that packed samples would have
 * been added to. Backward gathers again and has gradients of all keys and
 * values, and of either chunk. Chunks are views, but in flash-attn's order of
 * several sequences (`copied`). */
void megatron_gather_keys(struct builder *b, bool copied)
{
    struct op *op = &b->p->op[b->p->n_ops - 1];
    const uint64_t cp = b->run->cp;
    const uint64_t keys = build_product(b, tensor_of(b, op->in[1])->bytes, cp);
    const uint64_t values =
        build_product(b, tensor_of(b, op->in[2])->bytes, cp);
    const uint64_t all = keys + values, chunks = copied ? all : 0;
    const uint64_t out = tensor_of(b, op->out[0])->bytes;
    const uint64_t scratch = kernel_scratch(b, op);
    op->keep_out = (UINT32_C(1) << op->n_out) - 1; /* and none of these */
    by_rank(b, op, "gathered keys", keys);
    by_rank(b, op, "gathered values", values);
    by_rank(b, op, "results of chunks",
            max_u64(beyond(values, out), 2 * out + chunks));
    op->back_bytes = 2 * all + seen_bytes(b, all) + chunks
                     + tensor_of(b, op->in[0])->bytes + beyond(values, scratch);
}
