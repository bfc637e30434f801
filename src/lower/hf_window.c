/*
 * Owns what Qwen's vision parts have of their own (transformers 5.23,
 * modeling_qwen2_vl.py, modeling_qwen2_5_vl.py): all images of a micro-batch in
 * one row of patches, attention one image after the other, or one window, and
 * the product at the end that makes one token of some neighbours. Refuses to
 * know norms and MLPs, which are any encoder's.
 */
#include "lower/hf_scan.h"

#include "base/banned.h"

/* ---- what attends to itself: an image, or a window ---- */

struct chunks {
    uint64_t count;   /* of a micro-batch */
    uint64_t squares; /* of their lengths, added up */
    uint64_t padded; /* lengths, each rounded up as the efficient kernel does */
    uint64_t longest;
};

/* What a side is cut into: whole windows, and what is left. */
struct cut {
    uint64_t whole, rest, width;
};

static void add_chunks(struct builder *b, struct chunks *c, uint64_t n,
                       uint64_t length)
{
    enum { EFFICIENT_ROWS = 32 }; /* build_attention */
    if (n == 0 || length == 0)
        return;
    const uint64_t rows = div_up(length, EFFICIENT_ROWS) * EFFICIENT_ROWS;
    c->count += n;
    c->squares += build_product(b, n, build_product(b, length, length));
    c->padded += build_product(b, n, rows);
    c->longest = max_u64(c->longest, length);
}

/* get_vision_window_index: those at the right and lower edge are smaller. */
static struct chunks chunks_of(struct builder *b, bool windows)
{
    const struct spec *m = b->spec;
    const uint64_t side = m->image / m->patch / m->merge;
    const uint64_t each = build_product(b, m->merge, m->merge);
    const uint64_t width =
        windows && m->window_side < side ? m->window_side : side;
    const struct cut c = { side / width, side % width, width };
    const uint64_t edges = c.rest > 0 ? build_product(b, 2, c.whole) : 0;
    struct chunks out = { .count = 0 };
    add_chunks(b, &out, build_product(b, c.whole, c.whole),
               build_product(b, c.width * c.width, each));
    add_chunks(b, &out, edges, build_product(b, c.width * c.rest, each));
    add_chunks(b, &out, 1, build_product(b, c.rest * c.rest, each));
    out.count = build_product(b, out.count, b->micro.n);
    out.squares = build_product(b, out.squares, b->micro.n);
    out.padded = build_product(b, out.padded, b->micro.n);
    return out;
}

/* Scores and their product with v. */
static void chunk_flops(const struct builder *b, struct op *op,
                        const struct chunks *c)
{
    op->flop_full = op->flop_causal =
        4.0 * (double)c->squares * (double)b->a.n * (double)b->d.n;
}

/* Where chunks begin, for flash attention; the order of windows. In the order
 * of enum hf_table. */
void hf_window_tables(struct builder *b)
{
    const struct spec *m = b->spec;
    if (m->window_side > 0) {
        const struct shape order =
            SHAPE(DIM("b*s/m/m", b->t.n / (m->merge * m->merge)));
        build_shared(b, "window_index", DT_INT64, &order);
    }
    for (unsigned windows = 0; windows <= (m->window_side > 0); windows++) {
        const uint64_t n = chunks_of(b, windows != 0).count;
        const struct shape starts = SHAPE(DIM("chunks+1", n + 1));
        if (hf_kernel(b) == ATTN_FLASH)
            build_shared(b, windows != 0 ? "cu_window_seqlens" : "cu_seqlens",
                         DT_INT32, &starts);
    }
    const struct shape taps = SHAPE(b->t, DIM("4", 4));
    if (m->patch_places > 0) {
        build_shared(b, "interp_indices", DT_INT64, &taps);
        build_shared(b, "interp_weights", DT_FP32, &taps);
    }
}

/* ---- kernels ---- */

/* Statistics, and a random state a kernel, beside the result. */
static tensor_id kernel(struct builder *b, enum op_kind kind,
                        const tensor_id in[4], const struct shape statistics[2])
{
    const struct shape shape = shape_of(b, in[0]);
    const tensor_id out =
        build_tensor(b, "attention", tensor_of(b, in[0])->dtype, &shape);
    struct op *op = build_op(b, kind, "attention", in, 4);
    op_result(b, op, out);
    op_byproduct(op, build_tensor(b, "log-sum-exp", DT_FP32, &statistics[0]));
    op_byproduct(op, build_tensor(b, "random state", DT_INT64, &statistics[1]));
    op->core_attention = true;
    return out;
}

/* flash_attn_varlen_func: one kernel, that is told where chunks begin. */
static tensor_id of_flash(struct builder *b, const tensor_id qkv[3],
                          const struct chunks *c)
{
    const struct shape statistics[] = { SHAPE(b->a, b->t), SHAPE(DIM("2", 2)) };
    const tensor_id in[] = { qkv[0], qkv[1], qkv[2],
                             hf_table(b, b->window > 0 ? HF_STARTS_WINDOW
                                                       : HF_STARTS) };
    const tensor_id out = kernel(b, OP_FLASH_ATTENTION, in, statistics);
    chunk_flops(b, &b->p->op[b->p->n_ops - 1], c);
    return out;
}

/* A kernel a chunk, their results joined; flash returns one number unused. */
static tensor_id of_sdpa(struct builder *b, const tensor_id qkv[3],
                         const struct chunks *c)
{
    const bool efficient = !hf_is_half(tensor_of(b, qkv[0])->dtype);
    const struct dim n = DIM("chunks", c->count);
    const struct shape unused = SHAPE(n);
    const struct shape statistics[] = {
        SHAPE(b->a, efficient ? DIM("ceil32(chunks)", c->padded) : b->t),
        SHAPE(n, DIM("2", 2))
    };
    const tensor_id in[] = { qkv[0], qkv[1], qkv[2], TENSOR_NONE };
    const tensor_id out =
        kernel(b, efficient ? OP_SDPA : OP_FLASH_ATTENTION, in, statistics);
    struct op *op = &b->p->op[b->p->n_ops - 1];
    if (!efficient)
        op_byproduct(op, build_tensor(b, "unused", DT_INT64, &unused));
    chunk_flops(b, op, c);
    return build_copy(b, "joined", out);
}

/* ---- eager ---- */

/* What a chunk keeps goes with its backward, its gradients of q, k and v wait
 * for the others'. At the first chunk: the softmax's gradient, that times its
 * result, and theirs, the 16-bit copy gone; at the last; and when each of the
 * three is joined. */
static uint64_t eager_backward(struct builder *b, const tensor_id qkv[3],
                               const struct chunks *c)
{
    const uint64_t each = hf_size(b, qkv[0]), n = max_u64(c->count, 1);
    const uint64_t e = dtype_size(tensor_of(b, qkv[0])->dtype);
    const uint64_t most =
        build_product(b, b->a.n, build_product(b, c->longest, c->longest));
    const uint64_t usual = build_product(b, b->a.n, c->squares / n);
    const uint64_t low = e < 4 ? e : 0;
    const uint64_t kept = (n - 1) * usual * (4 + low);
    const uint64_t first = most * (12 - low) + each / n;
    const uint64_t last = first + (n - 1) * 3 * (each / n);
    const uint64_t end = max_u64(last, 4 * each + usual);
    return max_u64(first, end > kept ? end - kept : 0);
}

/* A loop over chunks, of whose scores one's are there at a time: what stands
 * here as one function keeps what the loop does. */
static tensor_id of_eager(struct builder *b, const tensor_id qkv[3],
                          const struct chunks *c)
{
    const enum dtype dtype = tensor_of(b, qkv[0])->dtype;
    const struct shape shape = shape_of(b, qkv[0]);
    const struct shape all = SHAPE(b->a, DIM("squares", c->squares));
    const struct shape one =
        SHAPE(b->a, DIM("chunk", c->longest), DIM("chunk", c->longest));
    const tensor_id out = build_tensor(b, "context", dtype, &shape);
    struct op *op = build_op(b, OP_FUNCTION, "attention of chunks", qkv, 3);
    op_result(b, op, out);
    op->core_attention = true;
    for (unsigned i = 0; i < 3; i++)
        hf_keep(b, qkv[i]);
    hf_keep(b, hf_temporary(op, build_tensor(b, "softmax", DT_FP32, &all)));
    if (dtype != DT_FP32)
        hf_keep(
            b, hf_temporary(op, build_tensor(b, "probabilities", dtype, &all)));
    (void)hf_temporary(op, build_tensor(b, "scores", DT_FP32, &one));
    hf_finish(b, op, eager_backward(b, qkv, c));
    chunk_flops(b, op, c);
    return build_copy(b, "joined", out);
}

/* ---- the module ---- */

/* apply_rotary_pos_emb_vision: in fp32, and back. */
static void rotate(struct builder *b, tensor_id qkv[3])
{
    const enum dtype dtype = tensor_of(b, qkv[0])->dtype;
    for (unsigned i = 0; i < 2; i++)
        qkv[i] = build_cast(b, "rope fp32", qkv[i], DT_FP32);
    for (unsigned i = 0; i < 2; i++)
        qkv[i] = hf_rotate_part(b, qkv[i], b->d);
    for (unsigned i = 0; i < 2; i++)
        qkv[i] = build_cast(b, "rope", qkv[i], dtype);
}

tensor_id hf_window_attention(struct builder *b, tensor_id x)
{
    const struct chunks c = chunks_of(b, b->window > 0);
    const struct shape heads = SHAPE(b->t, b->a, b->d),
                       rows = SHAPE(b->t, b->A);
    const struct linear l = linear_of_qkv(b, "qkv", x);
    tensor_id qkv[3], y = TENSOR_NONE;
    build_split(b, "q, k, v", build_linear(b, &l), qkv,
                (const struct shape[]){ heads, heads, heads }, 3);
    rotate(b, qkv);
    switch (hf_kernel(b)) {
    case ATTN_FLASH: y = of_flash(b, qkv, &c); break;
    case ATTN_SDPA: y = of_sdpa(b, qkv, &c); break;
    case ATTN_EAGER:
    case ATTENTION_COUNT: y = of_eager(b, qkv, &c); break;
    }
    return build_view(b, "heads merged", y, &rows);
}

/* ---- before the first layer, after the last ---- */

/* Tokens in the order of windows, by an index that is kept. */
static tensor_id in_order(struct builder *b, const char *name, tensor_id x,
                          tensor_id index)
{
    const struct shape shape = shape_of(b, x);
    if (b->spec->window_side == 0)
        return x;
    return build_index(b, name, x, index, &shape);
}

tensor_id hf_window_embed(struct builder *b, tensor_id patches)
{
    if (b->spec->patch_places > 0)
        return hf_add_places(b, patches);
    return in_order(b, "windows", patches, hf_table(b, HF_ORDER));
}

/* PatchMerger: neighbours side by side, through two products. */
tensor_id hf_merger(struct builder *b, tensor_id x)
{
    const struct spec *m = b->spec;
    const uint64_t each = build_product(b, m->merge, m->merge);
    const struct dim wide = DIM("h*m*m", build_product(b, b->h.n, each));
    const struct dim tokens = DIM("b*s/m/m", b->t.n / each);
    const struct shape merged = SHAPE(tokens, wide), order = SHAPE(tokens);
    struct linear l = { .name = "merger.0",
                        .in = wide,
                        .out = wide,
                        .group = PG_PROJECTOR,
                        .bias = true,
                        .lora = LORA_NAMELESS };
    const tensor_id normed = hf_hidden_norm(b, "merger.ln_q", x);
    l.x = build_view(b, "neighbours", normed, &merged);
    l.x = build_activation(b, "merger act", ACT_GELU, build_linear(b, &l));
    l.name = "merger.2";
    l.out = DIM("out", m->vision_width);
    tensor_id y = build_linear(b, &l);
    hf_hold(b, "hidden_states", normed); /* what is called holds it */
    if (m->window_side > 0)
        y = in_order(b, "order of tokens", y,
                     build_copy_as(b, "argsort", b->ids, &order));
    hf_hold(b, "last_hidden_state", x);
    hf_idle_mergers(b);
    return y;
}
