/*
 * Owns mixtures of experts as transformers runs them: the router of each
 * class, grouped products over sorted rows (integrations/moe.py, grouped_mm),
 * the experts that every token takes. Refuses to know what stands before and
 * after them.
 */
#include "lower/hf.h"

#include "base/banned.h"

/* ---- routers ---- */

static struct linear router_of(const struct builder *b, tensor_id x)
{
    return (struct linear){ .name = "router",
                            .x = x,
                            .in = b->h,
                            .out = b->experts,
                            .group = PG_ROUTER,
                            .bias = b->spec->router_bias };
}

/* Of the weight's type, where that is not what adapters have (Ernie's fp32). */
static tensor_id router_factor(struct builder *b, const char *name,
                               const struct dim shape[2], bool wide)
{
    const struct param p = { .name = name,
                             .group = PG_ADAPTER,
                             .rows = shape[0],
                             .cols = shape[1],
                             .wide = wide,
                             .matmul = true };
    return build_autocast(b, name, build_param(b, &p));
}

/* lora.ParamWrapper around a router's weight: W + B A, made before the router
 * turns autocast off. */
static tensor_id adapted_router(struct builder *b, tensor_id weight)
{
    if (!hf_translates(b) || (b->run->lora_targets >> LORA_ALL_LINEAR & 1) == 0)
        return weight;
    const struct shape shape = shape_of(b, weight);
    const struct dim down[] = { b->r, b->h }, up[] = { b->experts, b->r };
    const bool wide =
        tensor_of(b, weight)->dtype == DT_FP32 && b->param != DT_FP32;
    const bool autocasts = b->autocast;
    b->autocast = b->run->prec.autocast;
    const tensor_id in[] = { router_factor(b, "lora_B", up, wide),
                             router_factor(b, "lora_A", down, wide) };
    b->autocast = autocasts;
    const enum dtype dtype = tensor_of(b, in[0])->dtype;
    tensor_id delta = build_tensor(b, "delta_weight", dtype, &shape);
    op_result(b, build_op(b, OP_MATMUL, "delta_weight", in, 2), delta);
    delta = build_scale(b, "delta_weight", delta);
    delta = build_cast(b, "delta_weight", delta, tensor_of(b, weight)->dtype);
    return build_add(b, "router adapted", weight, delta);
}

static tensor_id router_logits(struct builder *b, tensor_id x)
{
    struct linear l = router_of(b, x);
    if (!hf_translates(b))
        return build_linear(b, &l);
    l.weight =
        adapted_router(b, build_param(b, &(struct param){ .name = "router",
                                                          .group = PG_ROUTER,
                                                          .rows = b->experts,
                                                          .cols = b->h,
                                                          .matmul = true }));
    l.has_weight = true;
    return build_linear(b, &l);
}

/* F.linear(x.type(float32), weight.type(float32)) */
static tensor_id logits_in_fp32(struct builder *b, tensor_id x)
{
    /* Ernie's stays in fp32 (_keep_in_fp32_modules_strict) */
    const bool wide = b->spec->family == FAM_ERNIE_MOE;
    struct linear l = router_of(b, build_cast(b, "router input", x, DT_FP32));
    const tensor_id weight = build_param(b, &(struct param){ .name = "router",
                                                             .group = PG_ROUTER,
                                                             .rows = b->experts,
                                                             .cols = b->h,
                                                             .matmul = true,
                                                             .wide = wide });
    l.weight = build_cast(b, "router fp32", adapted_router(b, weight), DT_FP32);
    l.has_weight = true;
    return build_linear(b, &l);
}

/* hidden_states *= torch.empty_like(hidden_states).uniform_(...), in training:
 * MixtralSparseMoeBlock's, MiniMaxM2SparseMoeBlock's; Phimoe's router does it
 * once more. Backward wants the noise. */
static tensor_id jittered(struct builder *b, tensor_id x)
{
    const unsigned times = b->spec->family == FAM_PHIMOE ? 2 : 1;
    const struct shape shape = shape_of(b, x);
    const enum dtype dtype = tensor_of(b, x)->dtype;
    for (unsigned i = 0; i < times && b->spec->router_noise > 0; i++) {
        const tensor_id noise = build_tensor(b, "router noise", dtype, &shape);
        op_result(b, build_op(b, OP_COPY, "router noise", &b->ids, 1), noise);
        x = build_binary_in_place(b, OP_MUL, "x noise", x, noise);
    }
    return x;
}

/* Best k of each row, and what grouped_mm counts of them: rows of each expert,
 * int32, kept by both products. */
static tensor_id choose(struct builder *b, tensor_id scores, tensor_id *indices)
{
    const struct dim k = DIM("k", b->spec->experts_per_token);
    const struct shape ends = SHAPE(b->experts_on);
    const tensor_id top = build_topk(b, "top-k", scores, k, indices);
    op_byproduct(&b->p->op[b->p->n_ops - 1],
                 build_tensor(b, "offsets", DT_INT32, &ends));
    return top;
}

/* The chosen weights sum to one, divided in place, but LFM2's. Autocast sums in
 * fp32. */
static tensor_id renormed(struct builder *b, tensor_id top)
{
    if (!b->spec->router_renorm)
        return top;
    const struct shape shape = shape_of(b, top);
    const struct shape one = shape_last(b, top, b->one);
    const enum dtype dtype = tensor_of(b, top)->dtype;
    const enum dtype wide = b->autocast ? DT_FP32 : dtype;
    const tensor_id sum = build_tensor(b, "top-k sum", wide, &one);
    op_result(b, build_op(b, OP_MEAN, "top-k sum", &top, 1), sum);
    const tensor_id in[] = { top, sum };
    const tensor_id out =
        build_tensor(b, "routing weights",
                     b->spec->family == FAM_LFM2_MOE ? wide : dtype, &shape);
    op_result(b, build_op(b, OP_DIV, "routing weights", in, 2), out);
    return out;
}

/* MixtralTopKRouter; Qwen's and OLMoE's go back to the logits' dtype. */
static struct routing route_softmax(struct builder *b, tensor_id x)
{
    const enum family family = b->spec->family;
    const bool deepseek = family == FAM_DEEPSEEK || family == FAM_DEEPSEEK_V2;
    struct routing r = { .logits = TENSOR_NONE };
    const tensor_id logits =
        deepseek ? logits_in_fp32(b, x) : router_logits(b, x);
    const enum dtype dtype = tensor_of(b, logits)->dtype;
    r.logits = logits;
    const tensor_id up = build_cast(b, "router fp32", logits, DT_FP32);
    const tensor_id p = build_softmax(b, "router softmax", up, DT_FP32);
    r.weights = renormed(b, choose(b, p, &r.indices));
    if (deepseek)
        r.weights = build_scale(b, "routing weights scaled", r.weights);
    else if (family == FAM_JAMBA)
        r.weights =
            build_cast(b, "routing weights", r.weights, tensor_of(b, x)->dtype);
    else if (family != FAM_MIXTRAL && family != FAM_DECODER)
        r.weights = build_cast(b, "routing weights", r.weights, dtype);
    return r;
}

/* GptOssTopKRouter in the logits' dtype, GraniteMoeTopKRouter in fp32. */
static struct routing route_chosen(struct builder *b, tensor_id x)
{
    struct routing r = { .logits = TENSOR_NONE };
    const struct linear l = router_of(b, x);
    tensor_id logits = build_linear(b, &l);
    static const enum family granite[] = { FAM_GRANITEMOE, FAM_GRANITEMOES,
                                           FAM_GRANITE_HYB };
    const bool up = IS_AMONG(b->spec->family, granite);
    if (up)
        logits = build_cast(b, "router fp32", logits, DT_FP32);
    r.logits = logits;
    const tensor_id top = choose(b, logits, &r.indices);
    const enum dtype dtype = tensor_of(b, top)->dtype;
    const bool autocasts = b->autocast;
    b->autocast = false; /* the dtype is said: autocast leaves it */
    r.weights = build_softmax(b, "routing weights", top, dtype);
    b->autocast = autocasts;
    if (up)
        r.weights =
            build_cast(b, "routing weights", r.weights, tensor_of(b, x)->dtype);
    return r;
}

/* DeepseekV3TopkRouter. What it does to choose has no gradient and dies; the
 * chosen scores are gathered from all. */
static struct routing route_sigmoid(struct builder *b, tensor_id x)
{
    const struct dim k = DIM("k", b->spec->experts_per_token);
    struct routing r = { .logits = TENSOR_NONE };
    const bool linear = b->spec->family == FAM_MINIMAX_M2; /* as Mixtral's */
    r.logits = linear ? router_logits(b, x) : logits_in_fp32(b, x);
    const tensor_id logits =
        linear ? build_cast(b, "router fp32", r.logits, DT_FP32) : r.logits;
    const tensor_id scores = build_unary(b, OP_TANH, "sigmoid", logits);
    const struct shape chosen = SHAPE(b->t, k), ends = SHAPE(b->experts_on);
    const struct shape each = SHAPE(b->experts);
    build_state(b, "e_score_correction_bias", DT_FP32, &each);
    r.indices = build_tensor(b, "top-k indices", DT_INT64, &chosen);
    struct op *op = build_op(b, OP_TOPK, "top-k", &scores, 1);
    op_byproduct(op, r.indices);
    op_byproduct(op, build_tensor(b, "offsets", DT_INT32, &ends));
    const tensor_id top = build_index(b, "gather", scores, r.indices, &chosen);
    r.weights = build_scale(b, "routing weights scaled", renormed(b, top));
    return r;
}

/* Lfm2MoeTopKRouter: all of it in the logits' type. */
static struct routing route_lfm2(struct builder *b, tensor_id x)
{
    const struct dim k = DIM("k", b->spec->experts_per_token);
    const struct shape each = SHAPE(b->experts), chosen = SHAPE(b->t, k);
    const struct shape ends = SHAPE(b->experts_on);
    struct routing r = { .logits = TENSOR_NONE };
    const tensor_id scores =
        build_unary(b, OP_TANH, "sigmoid", router_logits(b, x));
    tensor_id top;
    if (b->spec->router_corrected) {
        build_state(b, "expert_bias", DT_FP32, &each);
        r.indices = build_tensor(b, "top-k indices", DT_INT64, &chosen);
        struct op *op = build_op(b, OP_TOPK, "top-k", &scores, 1);
        op_byproduct(op, r.indices);
        op_byproduct(op, build_tensor(b, "offsets", DT_INT32, &ends));
        top = build_index(b, "gather", scores, r.indices, &chosen);
    } else {
        top = choose(b, scores, &r.indices);
    }
    r.weights = build_scale(b, "routing weights scaled", renormed(b, top));
    return r;
}

/* Ernie4_5_MoeTopKRouter: softmax in fp32 without autocast; a corrected copy is
 * chosen from, and the sum is clamped. */
static struct routing route_ernie(struct builder *b, tensor_id x)
{
    const struct dim k = DIM("k", b->spec->experts_per_token);
    const struct shape chosen = SHAPE(b->t, k), ends = SHAPE(b->experts_on);
    const bool autocasts = b->autocast;
    struct routing r = { .logits = TENSOR_NONE };
    b->autocast = false;
    const tensor_id logits = logits_in_fp32(b, x);
    const tensor_id p = build_softmax(b, "router softmax", logits, DT_FP32);
    r.logits = logits;
    build_param(b, &(struct param){ .name = "e_score_correction_bias",
                                    .group = PG_ROUTER,
                                    .rows = b->experts,
                                    .fixed = true,
                                    .wide = true });
    r.indices = build_tensor(b, "top-k indices", DT_INT64, &chosen);
    struct op *op = build_op(b, OP_TOPK, "top-k", &p, 1);
    op_byproduct(op, r.indices);
    op_byproduct(op, build_tensor(b, "offsets", DT_INT32, &ends));
    const tensor_id top = build_index(b, "gather", p, r.indices, &chosen);
    const struct shape one = shape_last(b, top, b->one);
    tensor_id sum = build_tensor(b, "top-k sum", DT_FP32, &one);
    op_result(b, build_op(b, OP_MEAN, "top-k sum", &top, 1), sum);
    sum = build_unary(b, OP_ACTIVATION, "sum clamped", sum);
    const tensor_id in[] = { top, sum };
    const tensor_id out = build_tensor(b, "routing weights", DT_FP32, &chosen);
    op_result(b, build_op(b, OP_DIV, "routing weights", in, 2), out);
    b->autocast = autocasts;
    r.weights = build_cast(b, "routing weights", out, tensor_of(b, x)->dtype);
    return r;
}

/* One choice of sparsemixer, by a sample: the mask of those too far from the
 * best, the others' softmax, the choice and its share. PhimoeMultiplier's
 * backward goes from there to the logits. */
static tensor_id sampled(struct builder *b, tensor_id logits,
                         tensor_id *selected)
{
    const struct shape all = shape_of(b, logits);
    const struct shape one = shape_last(b, logits, b->one);
    const enum dtype dtype =
        b->autocast ? DT_FP32 : tensor_of(b, logits)->dtype;
    const tensor_id out = build_tensor(b, "multiplier", dtype, &one);
    const tensor_id mask =
        build_tensor(b, "mask_logits_threshold", DT_BOOL, &all);
    const tensor_id gates = build_tensor(b, "masked_gates", dtype, &all);
    const tensor_id share = build_tensor(b, "multiplier_o", dtype, &one);
    *selected = build_tensor(b, "selected_experts", DT_INT64, &one);
    struct op *op = build_op(b, OP_FUNCTION, "sparsemixer", &logits, 1);
    op_result(b, op, out);
    op_byproduct(op, mask);
    op_byproduct(op, gates);
    op_byproduct(op, share);
    op_byproduct(op, *selected);
    op->keep_out = 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4;
    return out;
}

/* PhimoeTopKRouter: two experts a token, whatever the file says. */
static struct routing route_sparsemixer(struct builder *b, tensor_id x)
{
    const struct linear l = router_of(b, x);
    const struct dim two = DIM("k", 2);
    const struct shape pair = SHAPE(b->t, two), ends = SHAPE(b->experts_on);
    struct routing r = { .logits = TENSOR_NONE };
    tensor_id first, second;
    const tensor_id logits = build_linear(b, &l);
    r.logits = logits;
    const tensor_id weight = sampled(b, logits, &first);
    const tensor_id other = sampled(b, logits, &second);
    struct op *op = &b->p->op[b->p->n_ops - 1]; /* kept as choose() says */
    op->keep_out |= 1u << op->n_out;
    op_byproduct(op, build_tensor(b, "offsets", DT_INT32, &ends));
    r.weights = build_cat(b, "routing weights", weight, other, &pair);
    r.indices = build_tensor(b, "selected_experts", DT_INT64, &pair);
    const tensor_id in[] = { first, second };
    op_byproduct(build_op(b, OP_CAT, "selected_experts", in, 2), r.indices);
    return r;
}

static struct routing route(struct builder *b, tensor_id x)
{
    if (b->spec->family == FAM_ERNIE_MOE)
        return route_ernie(b, x);
    if (b->spec->family == FAM_PHIMOE)
        return route_sparsemixer(b, x);
    if (b->spec->family == FAM_LFM2_MOE)
        return route_lfm2(b, x);
    switch (b->spec->router) {
    case ROUTER_CHOSEN: return route_chosen(b, x);
    case ROUTER_SIGMOID: return route_sigmoid(b, x);
    case ROUTER_INPUT:
    case ROUTER_SOFTMAX: break;
    }
    return route_softmax(b, x);
}

/* ---- experts ---- */

/* An int64 vector of one entry a routed row, made of the indices. */
static tensor_id places(struct builder *b, const char *name, tensor_id from)
{
    const struct shape rows = SHAPE(b->routed);
    return build_copy_as(b, name, from, &rows);
}

/* lora.ParamWrapper: one product of all experts' adapters, folded into a copy
 * of their weights (peft/tuners/lora/layer.py, _LoraFactorsProxy). Gate and up
 * have the rank of both. */
static tensor_id adapted_experts(struct builder *b, const struct linear *l,
                                 bool row)
{
    const struct shape all = SHAPE(b->experts_on, l->out, l->in);
    const struct dim rank =
        DIM(row ? "r*E" : "2*r*E",
            build_product(b, b->experts_on.n,
                          build_product(b, row ? 1 : 2, b->r.n)));
    const tensor_id weight = build_param(
        b, &(struct param){ .name = l->name,
                            .group = l->group,
                            .rows = l->out,
                            .cols = l->in,
                            .copies = l->copies,
                            .matmul = true,
                            .full_elems = build_product(
                                b, l->full_copies,
                                build_product(b, l->full_in, l->full_out)) });
    const tensor_id down = build_param(b, &(struct param){ .name = "lora_A",
                                                           .group = PG_ADAPTER,
                                                           .rows = rank,
                                                           .cols = l->in,
                                                           .matmul = true });
    const tensor_id up = build_param(b, &(struct param){ .name = "lora_B",
                                                         .group = PG_ADAPTER,
                                                         .rows = l->out,
                                                         .cols = rank,
                                                         .matmul = true });
    const enum dtype dtype = tensor_of(b, weight)->dtype;
    const tensor_id in[] = { build_cast(b, "lora_B", up, dtype),
                             build_cast(b, "lora_A", down, dtype), weight };
    const tensor_id out = build_tensor(b, "experts adapted", dtype, &all);
    struct op *op = build_op(b, OP_MATMUL, "experts adapted", in, 3);
    op_result(b, op, out);
    op->flop_full = op->flop_causal =
        2.0 * (double)rank.n * (double)l->in.n * (double)l->out.n;
    return out;
}

/* What experts take and give. */
static struct dim expert_width(const struct builder *b)
{
    const uint64_t latent = b->spec->expert_latent;
    return latent > 0 ? DIM("h_latent", latent) : b->h;
}

/* One product for all experts: gate and up, up where there is no gate, or (row)
 * down. */
static tensor_id grouped(struct builder *b, const char *name, tensor_id x,
                         bool row)
{
    const struct spec *m = b->spec;
    const uint64_t ffn = m->expert_ffn == 0 ? m->ffn : m->expert_ffn;
    const struct dim wide = expert_width(b);
    const bool gated = m->gated_mlp;
    struct linear l = { .name = name,
                        .x = x,
                        .in = row ? b->fe : wide,
                        .out = row     ? wide
                               : gated ? b->fe2
                                       : b->fe,
                        .group = PG_EXPERT,
                        .full_in = row ? ffn : wide.n,
                        .full_out = row     ? wide.n
                                    : gated ? 2 * ffn
                                            : ffn,
                        .parallel = row ? PAR_ROW : PAR_COLUMN,
                        .copies = b->experts_on.n,
                        .full_copies = m->experts };
    const uint64_t wanted =
        LORA_MASK(row ? LORA_DOWN : LORA_UP) | LORA_MASK(LORA_ALL_LINEAR);
    if (!hf_translates(b))
        return build_linear(b, &l);
    b->p->lora_words |=
        LORA_MASK(LORA_GATE) | LORA_MASK(LORA_UP) | LORA_MASK(LORA_DOWN);
    if ((b->run->lora_targets & wanted) != 0) {
        l.weight = adapted_experts(b, &l, row);
        l.has_weight = true;
    }
    return build_linear(b, &l);
}

/* bias[expert of each row], which a variable then holds. */
static tensor_id pick_bias(struct builder *b, struct dim width,
                           tensor_id expert)
{
    if (!b->spec->expert_bias)
        return TENSOR_NONE;
    const struct shape shape = SHAPE(b->routed, width);
    const tensor_id bias =
        build_param(b, &(struct param){ .name = "expert bias",
                                        .group = PG_EXPERT,
                                        .rows = width,
                                        .copies = b->experts_on.n,
                                        .full_elems = build_product(
                                            b, b->spec->experts, width.n) });
    return build_index(b, "expert bias", bias, expert, &shape);
}

static tensor_id add_bias(struct builder *b, tensor_id y, tensor_id bias)
{
    return bias == TENSOR_NONE
               ? y
               : build_binary_in_place(b, OP_ADD, "+ bias", y, bias);
}

/* GptOssExperts._apply_gate: clamped, (up + 1) gate sigmoid(alpha gate). */
static tensor_id gate_clamped(struct builder *b, const tensor_id part[2])
{
    const tensor_id gate =
        build_unary(b, OP_ACTIVATION, "gate clamped", part[0]);
    b->p->op[b->p->n_ops - 1].bounds = 1;
    const tensor_id up = build_unary(b, OP_ACTIVATION, "up clamped", part[1]);
    b->p->op[b->p->n_ops - 1].bounds = 2;
    const tensor_id scaled = build_scale(b, "alpha gate", gate);
    const tensor_id s = build_unary(b, OP_TANH, "sigmoid", scaled);
    const tensor_id glu = build_mul(b, "glu", gate, s);
    const tensor_id plus = build_unary(b, OP_ADD, "up + 1", up);
    const tensor_id product = build_mul(b, "gated", plus, glu);
    hf_hold(b, "gate", gate);
    hf_hold(b, "up", up);
    return product;
}

/* NemotronHExperts: up, activation, down. */
static tensor_id plain_experts(struct builder *b, tensor_id x)
{
    const tensor_id up = grouped(b, "experts.up", x, false);
    const tensor_id act = build_activation(b, "act", b->spec->act, up);
    return grouped(b, "experts.down", act, true);
}

/* The experts' MLP on [routed, h], sorted by expert; the last bias picked. */
static tensor_id experts(struct builder *b, tensor_id x, tensor_id expert,
                         tensor_id *last)
{
    *last = TENSOR_NONE;
    if (!b->spec->gated_mlp)
        return plain_experts(b, x);
    const tensor_id bias = pick_bias(b, b->fe2, expert);
    const tensor_id up = grouped(b, "experts.gate_up", x, false);
    const tensor_id both = add_bias(b, up, bias);
    const struct shape half = shape_last(b, both, b->fe);
    tensor_id part[2];
    build_split(b, "gate, up", both, part, (const struct shape[]){ half, half },
                2);
    tensor_id product;
    if (b->spec->family == FAM_GPT_OSS) {
        product = gate_clamped(b, part);
        hf_hold(b, "proj_out", both); /* what the gate is called with */
    } else {
        const tensor_id act = build_activation(b, "act", b->spec->act, part[0]);
        product = build_mul(b, "gated", act, part[1]);
    }
    *last = pick_bias(b, b->h, expert);
    if (bias != TENSOR_NONE)
        hf_hold(b, "selected_biases", bias);
    return add_bias(b, grouped(b, "experts.down", product, true), *last);
}

/* Sorted by expert, through the experts, weighted, back in order, summed. */
static tensor_id dispatch(struct builder *b, tensor_id x,
                          const struct routing *r)
{
    const struct dim wide = expert_width(b);
    const struct shape rows = SHAPE(b->routed, wide);
    const struct shape column = SHAPE(b->routed, b->one);
    const struct shape tokens = SHAPE(b->t, wide);
    const tensor_id order = places(b, "order", r->indices);
    tensor_id expert = TENSOR_NONE;
    if (b->spec->expert_bias)
        expert = places(b, "expert of a row", r->indices);
    const tensor_id token = places(b, "order / k", order);
    const tensor_id picked = build_index(b, "routed", x, token, &rows);
    const tensor_id weights =
        build_index(b, "sorted weights", r->weights, order, &column);
    /* autocast does not know grouped_mm: inputs take the weights' dtype */
    const bool autocasts = b->autocast;
    const bool apart = b->spec->family == FAM_GROK; /* a linear each */
    b->autocast = autocasts && apart;
    const tensor_id in =
        apart ? picked : build_cast(b, "routed", picked, b->param);
    tensor_id bias;
    const tensor_id y = experts(b, in, expert, &bias);
    b->autocast = autocasts;
    const tensor_id weighted = build_mul(b, "weighted", y, weights);
    const tensor_id back = places(b, "inverse order", order);
    const tensor_id unsorted =
        build_index(b, "unsorted", weighted, back, &rows);
    const enum dtype dtype = tensor_of(b, unsorted)->dtype;
    const tensor_id sum = build_tensor(b, "experts summed", dtype, &tokens);
    op_result(b, build_op(b, OP_MEAN, "experts summed", &unsorted, 1), sum);
    if (bias != TENSOR_NONE)
        hf_hold(b, "selected_biases", bias);
    if (!apart && !b->run->linear_experts) { /* grouped_mm_experts_forward */
        hf_hold(b, "selected_hidden_states_g", picked);
        hf_hold(b, "proj_out", y);
    }
    return build_cast(b, "experts", sum, tensor_of(b, x)->dtype);
}

/* ---- experts that every token takes ---- */

static tensor_id shared_gated(struct builder *b, struct linear l)
{
    const tensor_id gate = build_linear(b, &l);
    const tensor_id act = build_activation(b, "act", b->spec->act, gate);
    l.name = "shared.up_proj";
    l.lora = hf_mlp_lora(b, LORA_UP);
    return build_mul(b, "gated", act, build_linear(b, &l));
}

/* NemotronHMLP. */
static tensor_id shared_plain(struct builder *b, struct linear l)
{
    l.name = "shared.up_proj";
    l.lora = hf_mlp_lora(b, LORA_UP);
    return build_activation(b, "act", b->spec->act, build_linear(b, &l));
}

/* GraniteMoeSharedMLP: one matrix for gate and up. */
static tensor_id shared_fused(struct builder *b, struct linear l)
{
    tensor_id part[2];
    l.name = "shared.input_linear";
    l.out = DIM("2*fs", build_product(b, 2, b->fs.n));
    l.full_out = 2 * b->spec->shared_ffn;
    l.lora = LORA_NAMELESS;
    const tensor_id both = build_linear(b, &l);
    const struct shape half = shape_last(b, both, b->fs);
    build_split(b, "gate, up", both, part, (const struct shape[]){ half, half },
                2);
    const tensor_id act = build_activation(b, "act", b->spec->act, part[0]);
    return build_mul(b, "gated", act, part[1]);
}

static tensor_id shared_expert(struct builder *b, tensor_id x)
{
    struct linear l = { .name = "shared.gate_proj",
                        .x = x,
                        .in = b->h,
                        .out = b->fs,
                        .full_out = b->spec->shared_ffn,
                        .group = PG_SHARED_EXPERT,
                        .parallel = PAR_COLUMN,
                        .bias = b->spec->mlp_bias,
                        .lora = hf_mlp_lora(b, LORA_GATE) };
    const bool fused = b->spec->family == FAM_GRANITEMOES
                       || b->spec->family == FAM_GRANITE_HYB;
    const tensor_id product = !b->spec->gated_mlp ? shared_plain(b, l)
                              : fused             ? shared_fused(b, l)
                                                  : shared_gated(b, l);
    return build_linear(b,
                        &(struct linear){ .name = "shared.down_proj",
                                          .x = product,
                                          .in = b->fs,
                                          .out = b->h,
                                          .full_in = b->spec->shared_ffn,
                                          .group = PG_SHARED_EXPERT,
                                          .parallel = PAR_ROW,
                                          .bias = b->spec->mlp_bias,
                                          .lora = hf_mlp_lora(b, LORA_DOWN) });
}

/* sigmoid(w x) times the shared expert (Qwen2MoeSparseMoeBlock). */
static tensor_id gated_shared(struct builder *b, tensor_id x, tensor_id shared)
{
    if (!b->spec->shared_gate)
        return shared;
    const tensor_id gate =
        build_linear(b, &(struct linear){ .name = "shared_expert_gate",
                                          .x = x,
                                          .in = b->h,
                                          .out = b->one,
                                          .group = PG_SHARED_EXPERT,
                                          .lora = LORA_NAMELESS });
    const tensor_id s = build_unary(b, OP_TANH, "sigmoid", gate);
    return build_mul(b, "shared gated", s, shared);
}

/* ---- Llama 4 ---- */

/* Llama4Router, an nn.Linear: the chosen logits in a table of all, the others
 * -inf. */
static tensor_id route_input(struct builder *b, tensor_id x)
{
    struct linear l = router_of(b, x);
    l.lora = LORA_NAMELESS;
    const tensor_id logits = build_linear(b, &l);
    const enum dtype dtype = tensor_of(b, logits)->dtype;
    const struct dim k = DIM("k", b->spec->experts_per_token);
    const struct shape all = shape_of(b, logits);
    tensor_id indices;
    const tensor_id top = build_topk(b, "top-k", logits, k, &indices);
    const tensor_id table = build_tensor(b, "router scores", dtype, &all);
    const tensor_id in[] = { top, indices };
    op_result(b, build_op(b, OP_INDEX, "scatter", in, 2), table);
    const tensor_id up = build_cast(b, "scores fp32", table, DT_FP32);
    const tensor_id scores = build_unary(b, OP_TANH, "sigmoid", up);
    return build_cast(b, "router scores", scores, dtype);
}

/* Every token goes through every expert, times its score before; those of
 * experts it did not choose are zeros (Llama4TextMoe). */
static tensor_id moe_of_inputs(struct builder *b, tensor_id x)
{
    const uint64_t n = build_product(b, b->experts_on.n, b->t.n);
    const struct dim every = DIM("E*b*s", n);
    const struct shape rows = SHAPE(every, b->h), column = SHAPE(every, b->one);
    const struct shape tokens = SHAPE(b->t, b->h);
    tensor_id scores = route_input(b, x);
    const tensor_id all = build_copy_as(b, "repeated", x, &rows);
    scores = build_copy_as(b, "scores turned", scores, &column);
    const tensor_id in = build_mul(b, "routed in", all, scores);
    b->all_experts = true;
    b->routed_share =
        (double)b->spec->experts_per_token / (double)b->spec->experts;
    tensor_id bias;
    const tensor_id y = experts(b, in, TENSOR_NONE, &bias);
    const tensor_id shared = shared_expert(b, x);
    const enum dtype dtype = tensor_of(b, y)->dtype;
    const tensor_id sum = build_tensor(b, "experts summed", dtype, &tokens);
    op_result(b, build_op(b, OP_MEAN, "experts summed", &y, 1), sum);
    const tensor_id out =
        build_binary_in_place(b, OP_ADD, "shared + experts", shared, sum);
    hf_hold(b, "routed_in", in);
    hf_hold(b, "routed_out", y);
    return out;
}

/* Between the model's width and the experts' (fc1_latent_proj, fc2_latent_proj).
 */
static tensor_id latent_proj(struct builder *b, tensor_id x, bool back)
{
    const struct dim wide = expert_width(b);
    if (b->spec->expert_latent == 0)
        return x;
    return build_linear(b, &(struct linear){ .name = back ? "fc2_latent_proj"
                                                          : "fc1_latent_proj",
                                             .x = x,
                                             .in = back ? wide : b->h,
                                             .out = back ? b->h : wide,
                                             .group = PG_SHARED_EXPERT,
                                             .bias = b->spec->mlp_bias,
                                             .lora = LORA_NAMELESS });
}

tensor_id hf_moe(struct builder *b, tensor_id x)
{
    const struct spec *m = b->spec;
    tensor_id shared = TENSOR_NONE;
    if (m->router == ROUTER_INPUT)
        return moe_of_inputs(b, x);
    if (m->family == FAM_DBRX)
        return hf_dbrx(b, x);
    x = jittered(b, x);
    const bool first =
        m->shared_ffn > 0 && (m->shared_gate || m->family == FAM_ERNIE_MOE);
    if (first)
        shared = shared_expert(b, x);
    const struct routing r = route(b, x);
    hf_balance_note(b, r.logits);
    tensor_id out = dispatch(b, latent_proj(b, x, false), &r);
    out = build_all_reduce(b, "experts all-reduce", out, COMM_EP);
    out = latent_proj(b, out, true);
    if (m->shared_ffn == 0)
        return out;
    if (!first)
        shared = shared_expert(b, x);
    return build_add(b, "experts + shared", out, gated_shared(b, x, shared));
}
