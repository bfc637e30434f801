/*
 * Owns the exchanges around attention of a sequence that is cut over ranks, as
 * DeepSpeed's UlyssesSPAttentionHF does them: heads for tokens before, tokens
 * for heads after, and what its variables hold on the way. Refuses to know the
 * kernel in between, which sees all tokens and a share of the heads.
 * [docs/method.md eq. ulysses]
 */
#include "lower/hf.h"

#include "base/banned.h"

bool hf_exchanges(const struct builder *b)
{
    return run_exchanges_heads(b->run);
}

/* ---- factors of shapes ---- */

static void to_all_tokens(struct builder *b, struct hf_shard *shard)
{
    const uint64_t cp = b->run->cp;
    shard->a = b->a;
    shard->kv = b->kv;
    shard->A = b->A;
    shard->K = b->K;
    shard->O = b->O;
    shard->sq = b->sq;
    shard->t = b->t;
    b->a = DIM("a/cp", b->a.n / cp);
    b->kv = DIM("kv/cp", max_u64(b->kv.n / cp, 1));
    b->A = b->O = DIM("a*d/cp", build_product(b, b->a.n, b->d.n));
    b->K = DIM("kv*d/cp", build_product(b, b->kv.n, b->d.n));
    b->sq = b->s;
    b->t = DIM("b*s", build_product(b, b->micro.n, b->s.n));
}

static void to_all_heads(struct builder *b, const struct hf_shard *shard)
{
    b->a = shard->a;
    b->kv = shard->kv;
    b->A = shard->A;
    b->K = shard->K;
    b->O = shard->O;
    b->sq = shard->sq;
    b->t = shard->t;
}

/* ---- before ---- */

/* A copy in another order, whose gradient is its result's, seen in that. */
static tensor_id reorder(struct builder *b, const char *name, tensor_id x)
{
    const tensor_id y = build_copy(b, name, x);
    build_place(b, PLACE_GRADIENT);
    return y;
}

/* Shards of heads by rank, with as many of keys and values as there are ranks;
 * of each rank's tokens these heads. */
static void scatter(struct builder *b, struct hf_heads *h)
{
    const struct dim ranks = DIM("cp", b->run->cp);
    if (h->n.n < ranks.n) { /* repeat_interleave */
        const struct shape each = hf_shape(b, ranks);
        h->x = build_copy_as(b, "heads repeated", h->x, &each);
        h->n = ranks;
    }
    const struct dim heads = DIM("a/cp", h->n.n / ranks.n);
    const struct shape all = SHAPE(b->micro, heads, b->s, b->d);
    const tensor_id sent = reorder(b, "by rank", h->x);
    h->x = build_collective(b, OP_ALL_TO_ALL, COMM_CP, sent, &all);
    h->n = heads;
}

/* Each layer gathers them, as kernels tell packed samples by them. */
static void gather_positions(struct builder *b, struct hf_shard *shard)
{
    const struct shape two =
        SHAPE(DIM("2", 2), b->micro, b->s); /* and the list of the pieces */
    shard->positions = build_copy_as(b, "positions of all tokens",
                                     hf_table(b, HF_POSITIONS), &two);
}

void hf_scatter_heads(struct builder *b, struct hf_qkv *o,
                      struct hf_shard *shard)
{
    struct hf_heads *const all[] = { &o->q, &o->k, &o->v };
    gather_positions(b, shard);
    for (unsigned i = 0; i < 3; i++)
        scatter(b, all[i]);
    for (unsigned i = 0; i < 3; i++) {
        all[i]->x = build_copy(b, "heads first", all[i]->x);
        all[i]->layout = HF_HEADS;
    }
    to_all_tokens(b, shard);
}

/* ---- after ---- */

tensor_id hf_gather_heads(struct builder *b, const struct hf_qkv *o,
                          tensor_id context, const struct hf_shard *shard)
{
    const bool several = b->micro.n > 1;
    /* flash-attn's result is put in the order of tokens first, then sequences,
       where heads come together; sdpa's in that of sequences */
    const bool ordered = hf_kernel(b) == ATTN_FLASH && b->a.n > 1;
    const tensor_id merged = context;
    to_all_heads(b, shard);
    const struct shape here = SHAPE(b->t, b->O);
    if (several && !ordered)
        context = reorder(b, "tokens first", context);
    context = build_collective(b, OP_ALL_TO_ALL, COMM_CP, context, &here);
    context = build_copy(b, "heads of all ranks", context);
    hf_hold(b, "query_layer", o->q.x);
    hf_hold(b, "key_layer", o->k.x);
    hf_hold(b, "value_layer", o->v.x);
    hf_hold(b, "context_layer", merged);
    hf_hold(b, "position_ids", shard->positions);
    return several ? reorder(b, "attn_output", context) : context;
}
