/*
 * Owns the feed-forward parts: gated, plain, and the mixture of experts with
 * grouped products (transformers/integrations/moe.py, grouped_mm). Refuses to
 * know what stands before and after them.
 */
#include "lower/hf.h"

#include "base/banned.h"

/* ---- dense ---- */

/* MptMLP takes 4 d whatever expansion_ratio says. */
static uint64_t full_ffn(const struct builder *b)
{
    const struct spec *m = b->spec;
    return m->family == FAM_MPT ? 4 * m->hidden : m->ffn;
}

static struct dim ffn(const struct builder *b)
{
    if (b->spec->family != FAM_MPT)
        return b->f;
    return DIM(b->f.sym, div_up(full_ffn(b), max_u64(b->run->tp, 1)));
}

static tensor_id down(struct builder *b, tensor_id x)
{
    struct linear l = linear_of_down(b, "down_proj", x);
    l.in = ffn(b);
    l.full_in = full_ffn(b);
    return build_all_reduce(b, "mlp all-reduce", hf_linear(b, &l), COMM_TP);
}

static struct linear up_of(const struct builder *b, tensor_id x)
{
    struct linear l = linear_of_up(b, "up_proj", x);
    l.out = ffn(b);
    l.full_out = full_ffn(b);
    return l;
}

/* One matrix for gate and up (Phi-3): two views of its result. */
static tensor_id fused_gate_up(struct builder *b, tensor_id x)
{
    struct linear l = up_of(b, x);
    l.name = "gate_up_proj";
    l.out = b->f2;
    l.full_out = 2 * b->spec->ffn;
    l.lora |= LORA_MASK(LORA_GATE);
    const tensor_id both = hf_linear(b, &l);
    if (hf_is_liger(b))
        return build_swiglu(b, "swiglu", both, TENSOR_NONE, TENSOR_NONE);
    const struct shape half = shape_last(b, both, b->f);
    tensor_id part[2];
    build_split(b, "gate, up", both, part, (const struct shape[]){ half, half },
                2);
    const tensor_id act = build_activation(b, "act", b->spec->act, part[0]);
    return build_mul(b, "gated", part[1], act);
}

/* liger_kernel/ops/swiglu.py: the gradients are written over the factors. */
static tensor_id liger_swiglu(struct builder *b, tensor_id gate, tensor_id up)
{
    const tensor_id out = build_swiglu(b, "swiglu", gate, up, TENSOR_NONE);
    build_place(b, PLACE_KEPT);
    return out;
}

static tensor_id gated(struct builder *b, tensor_id x)
{
    struct linear l = up_of(b, x);
    l.name = "gate_proj";
    l.lora = LORA_MASK(LORA_GATE);
    const tensor_id gate = hf_linear(b, &l);
    l = up_of(b, x);
    if (hf_is_liger(b))
        return liger_swiglu(b, gate, hf_linear(b, &l));
    const tensor_id act = build_activation(b, "act", b->spec->act, gate);
    return build_mul(b, "gated", act, hf_linear(b, &l));
}

tensor_id hf_mlp(struct builder *b, tensor_id x)
{
    if (b->spec->gated_mlp)
        return down(b,
                    b->spec->fused_gate_up ? fused_gate_up(b, x) : gated(b, x));
    const struct linear l = up_of(b, x);
    return down(b, build_activation(b, "act", b->spec->act, hf_linear(b, &l)));
}

/* ---- mixture of experts ---- */

struct routing {
    tensor_id weights; /* [b*s, k], fp32 */
    tensor_id indices;
};

/* MixtralTopKRouter: softmax in fp32, then the chosen ones sum to one. */
static struct routing route(struct builder *b, tensor_id x)
{
    const struct dim k = DIM("k", b->spec->experts_per_token);
    struct routing r;
    const tensor_id logits =
        build_linear(b, &(struct linear){ .name = "router",
                                          .x = x,
                                          .in = b->h,
                                          .out = b->experts,
                                          .group = PG_ROUTER,
                                          .bias = b->spec->router_bias });
    const tensor_id up = build_cast(b, "router fp32", logits, DT_FP32);
    const tensor_id p = build_softmax(b, "router softmax", up, DT_FP32);
    const tensor_id top = build_topk(b, "top-k", p, k, &r.indices);
    /* rows of each expert, int32: made of the indices, kept by both grouped
       products */
    const struct shape ends = SHAPE(b->experts_on);
    op_byproduct(&b->p->op[b->p->n_ops - 1],
                 build_tensor(b, "offsets", DT_INT32, &ends));
    const tensor_id sum = build_mean(b, "top-k sum", top);
    r.weights = build_binary(b, OP_DIV, "routing weights", top, sum);
    return r;
}

/* An int64 vector of one entry a routed row, made of the indices. */
static tensor_id places(struct builder *b, const char *name, tensor_id from)
{
    const struct shape rows = SHAPE(b->routed);
    return build_copy_as(b, name, from, &rows);
}

/* One product for all experts: gate and up, or (row) down. */
static tensor_id grouped(struct builder *b, const char *name, tensor_id x,
                         bool row)
{
    const struct spec *m = b->spec;
    const uint64_t ffn = m->expert_ffn == 0 ? m->ffn : m->expert_ffn;
    return build_linear(
        b, &(struct linear){ .name = name,
                             .x = x,
                             .in = row ? b->fe : b->h,
                             .out = row ? b->h : b->fe2,
                             .group = PG_EXPERT,
                             .full_in = row ? ffn : m->hidden,
                             .full_out = row ? m->hidden : 2 * ffn,
                             .parallel = row ? PAR_ROW : PAR_COLUMN,
                             .copies = b->experts_on.n,
                             .full_copies = m->experts });
}

/* The experts' MLP on [routed, h], sorted by expert. */
static tensor_id experts(struct builder *b, tensor_id x)
{
    const tensor_id both = grouped(b, "experts.gate_up", x, false);
    const struct shape half = shape_last(b, both, b->fe);
    tensor_id part[2];
    build_split(b, "gate, up", both, part, (const struct shape[]){ half, half },
                2);
    const tensor_id act = build_activation(b, "act", b->spec->act, part[0]);
    const tensor_id product = build_mul(b, "gated", act, part[1]);
    return grouped(b, "experts.down", product, true);
}

/* Sorted by expert, through the experts, weighted, back in order, summed. */
static tensor_id dispatch(struct builder *b, tensor_id x,
                          const struct routing *r)
{
    const struct shape rows = SHAPE(b->routed, b->h);
    const struct shape column = SHAPE(b->routed, b->one);
    const struct shape tokens = SHAPE(b->t, b->h);
    const tensor_id order = places(b, "order", r->indices);
    const tensor_id token = places(b, "order / k", order);
    const tensor_id picked = build_index(b, "routed", x, token, &rows);
    const tensor_id weights =
        build_index(b, "sorted weights", r->weights, order, &column);
    /* autocast does not know grouped_mm: inputs take the weights' dtype */
    const bool autocasts = b->autocast;
    b->autocast = false;
    const tensor_id in = build_cast(b, "routed", picked, b->param);
    const tensor_id y = experts(b, in);
    b->autocast = autocasts;
    const tensor_id weighted = build_mul(b, "weighted", y, weights);
    const tensor_id back = places(b, "inverse order", order);
    const tensor_id unsorted =
        build_index(b, "unsorted", weighted, back, &rows);
    const enum dtype dtype = tensor_of(b, unsorted)->dtype;
    const tensor_id sum = build_tensor(b, "experts summed", dtype, &tokens);
    op_result(b, build_op(b, OP_MEAN, "experts summed", &unsorted, 1), sum);
    return build_cast(b, "experts", sum, tensor_of(b, x)->dtype);
}

tensor_id hf_moe(struct builder *b, tensor_id x)
{
    const struct routing r = route(b, x);
    tensor_id out = dispatch(b, x, &r);
    out = build_all_reduce(b, "experts all-reduce", out, COMM_EP);
    if (b->spec->shared_ffn == 0)
        return out;
    /* a gated expert that every token takes */
    struct linear l = { .name = "shared.gate_proj",
                        .x = x,
                        .in = b->h,
                        .out = b->fs,
                        .full_out = b->spec->shared_ffn,
                        .group = PG_SHARED_EXPERT,
                        .parallel = PAR_COLUMN };
    const tensor_id gate = build_linear(b, &l);
    const tensor_id act = build_activation(b, "act", b->spec->act, gate);
    l.name = "shared.up_proj";
    const tensor_id product = build_mul(b, "gated", act, build_linear(b, &l));
    const tensor_id shared =
        build_linear(b, &(struct linear){ .name = "shared.down_proj",
                                          .x = product,
                                          .in = b->fs,
                                          .out = b->h,
                                          .full_in = b->spec->shared_ffn,
                                          .group = PG_SHARED_EXPERT,
                                          .parallel = PAR_ROW });
    return build_add(b, "experts + shared", out, shared);
}
