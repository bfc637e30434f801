/*
 * Owns the linear: its parameters on this rank and in full, its FLOPs, and
 * what autocast, adapters, fp8 and quantised weights make of it. Refuses to
 * know which linears a model has, and the collectives around a sharded one:
 * lowerings write both. [docs/method.md eq. flops]
 */
#include "lower/build_private.h"

#include "base/banned.h"

static uint64_t full_of(struct builder *b, const struct linear *l, bool out)
{
    const uint64_t given = out ? l->full_out : l->full_in;
    const uint64_t here = out ? l->out.n : l->in.n;
    if (given != 0)
        return given;
    if (l->parallel != (out ? PAR_COLUMN : PAR_ROW))
        return here;
    const uint64_t ranks = l->group == PG_EXPERT ? b->run->etp : b->run->tp;
    return build_product(b, here, at_least_one(ranks));
}

uint64_t build_full_in(struct builder *b, const struct linear *l)
{
    return full_of(b, l, false);
}

uint64_t build_full_out(struct builder *b, const struct linear *l)
{
    return full_of(b, l, true);
}

/* PEFT matches a whole's modules by name, and those of a vision part are other
 * than its text's: out_proj, fc1, fc2, of which CLIP's text has the same, and
 * Llama 4's towers o_proj. */
static uint64_t names_of(const struct builder *b, const struct linear *l)
{
    const enum joint joint = b->whole->joint;
    uint64_t other =
        LORA_MASK(LORA_GATE) | LORA_MASK(LORA_UP) | LORA_MASK(LORA_DOWN);
    if (b->whole->vision == NULL || b->spec != b->whole->vision
        || joint == JOINT_CLIP)
        return l->lora;
    if (b->spec->family == FAM_QWEN2_5_VISION) /* an MLP as its text's */
        other = 0;
    if (joint == JOINT_QWEN)
        other |= LORA_MASK(LORA_Q) | LORA_MASK(LORA_K) | LORA_MASK(LORA_V);
    if (joint != JOINT_LLAMA4)
        other |= LORA_MASK(LORA_O);
    return l->lora & ~other;
}

/* nn.Linear's own weight: neither of experts together, nor GPT-2's Conv1D. */
static bool is_module(const struct builder *b, const struct linear *l)
{
    return !l->bare && l->copies <= 1
           && (b->spec->family != FAM_GPT2 || l->group == PG_HEAD);
}

static bool sends_low(const struct builder *b, const struct linear *l)
{
    return build_sends_low(b) && is_module(b, l);
}

/* transformers/trainer_optimizer.py, _setup_low_rank_optimizer. */
static bool is_projected(const struct builder *b, const struct linear *l)
{
    if (!run_projects(b->run) || !is_module(b, l))
        return false;
    const uint64_t wanted = l->group == PG_HEAD
                                ? LORA_MASK(OPTIMIZER_TARGET_HEAD)
                                : names_of(b, l) | LORA_MASK(LORA_ALL_LINEAR);
    return (b->run->optimizer_targets & wanted) != 0;
}

static tensor_id linear_weight(struct builder *b, const struct linear *l)
{
    if (l->has_weight) {
        struct tensor *given = &b->p->tensor[l->weight];
        given->low = given->role == ROLE_PARAM && sends_low(b, l);
        return l->weight;
    }
    const uint64_t full =
        build_product(b, full_of(b, l, false), full_of(b, l, true));
    const tensor_id w = build_param(
        b, &(struct param){ .name = l->name,
                            .group = l->group,
                            .rows = l->out,
                            .cols = l->in,
                            .copies = l->copies,
                            .matmul = true,
                            .bare = l->bare,
                            .of_experts = l->of_experts && b->run->ep > 1,
                            .fixed = l->fixed,
                            .full_elems = build_product(
                                b, full, at_least_one(l->full_copies)) });
    build_statistics(b, tensor_of(b, w)->dtype, l->out, l->in, l->copies);
    struct tensor *t = &b->p->tensor[w];
    t->projected = is_projected(b, l);
    t->low = sends_low(b, l);
    t->fp8 = build_is_fp8(b, l);
    if (t->fp8)
        t->fp8_scale_bytes = build_fp8_weight_scales(b, t->rows, t->cols);
    return w;
}

tensor_id build_linear_bias(struct builder *b, const struct linear *l)
{
    if (!l->bias)
        return TENSOR_NONE;
    const tensor_id id =
        build_param(b, &(struct param){ .name = "bias",
                                        .of = l->name,
                                        .group = l->group,
                                        .rows = l->out,
                                        .copies = l->copies,
                                        .of_linear = true,
                                        .full_elems = build_product(
                                            b, full_of(b, l, true),
                                            at_least_one(l->full_copies)) });
    b->p->tensor[id].low = sends_low(b, l);
    return id;
}

/* ZeRO-3's own linear is one function, whose arguments autocast does not see:
 * within it both are cast, forward and backward, and what it keeps is not
 * (runtime/zero/linear.py, LinearFunctionForZeroStage3). */
static bool casts_inside(const struct builder *b, const struct linear *l,
                         tensor_id weight)
{
    const struct tensor *w = tensor_of(b, weight);
    return build_sends_low(b) && b->autocast && b->run->zero == 3
           && is_module(b, l) && w->role == ROLE_PARAM
           && w->dtype != b->compute;
}

static tensor_id product_in_function(struct builder *b, const struct linear *l,
                                     tensor_id stored, tensor_id bias)
{
    const tensor_id w = build_cast(b, l->name, stored, b->compute);
    b->p->op[b->p->n_ops - 1].keep_in |= CAST_INSIDE;
    const tensor_id x = build_cast(b, l->name, l->x, b->compute);
    const struct shape shape = shape_last(b, x, l->out);
    const tensor_id out = build_tensor(b, l->name, b->compute, &shape);
    const tensor_id in[] = { x, w, bias, x == l->x ? TENSOR_NONE : l->x };
    struct op *op = build_op(b, OP_LINEAR, l->name, in, 4);
    op_result(b, op, out);
    op->keep_in |= CAST_INSIDE;
    op->back_bytes = tensor_of(b, w)->bytes;
    if (x != l->x && needs_grad(b, stored))
        op->back_bytes += tensor_of(b, x)->bytes;
    op->pieces = l->copies;
    op->flop_full = op->flop_causal =
        2.0 * (double)tensor_of(b, x)->elems * (double)l->out.n;
    return out;
}

/* What is kept for the weight's gradient in place of x: an 8-bit copy and its
 * scales (Transformer Engine), or the shard that x was gathered from. They take
 * no part in gradients: x does. */
static struct fp8_input linear_keeps(struct builder *b, const struct linear *l,
                                     tensor_id w)
{
    struct fp8_input q = { TENSOR_NONE, TENSOR_NONE, TENSOR_NONE };
    if (build_is_fp8(b, l) && needs_grad(b, w)) {
        build_fp8_input(b, l, &q);
    } else if (build_is_fp8(b, l)) {
        build_fp8_passing(b, l, &q);
    } else if (l->has_keep && needs_grad(b, w)) {
        const struct shape shape = shape_of(b, l->keep);
        q.keep = build_alias(b, "sequence shard", l->keep, &shape);
    }
    return q;
}

/* The product alone. Operands beyond input and weight are told apart by role:
 * see the rule of OP_LINEAR in save_rule.c. */
static tensor_id linear_product(struct builder *b, const struct linear *l)
{
    const tensor_id stored = linear_weight(b, l);
    const tensor_id bias = build_linear_bias(b, l);
    if (dtype_is_quantised(tensor_of(b, stored)->dtype))
        return build_quantised_product(
            b, &(struct quantised_product){ .name = l->name,
                                            .x = l->x,
                                            .weight = stored,
                                            .bias = bias,
                                            .out = l->out });
    if (casts_inside(b, l, stored))
        return product_in_function(b, l, stored, bias);
    /* autocast's casts are arguments of one call, made from the last to the
       first */
    const tensor_id w = build_autocast(b, l->name, stored);
    if (l->by_view && w != stored)
        b->p->op[b->p->n_ops - 1].keep_in |= CAST_INSIDE;
    const tensor_id x = build_autocast(b, l->name, l->x);
    const struct fp8_input keep = linear_keeps(b, l, stored);
    const struct shape shape = shape_last(b, x, l->out);
    const enum dtype dtype =
        l->has_out_dtype ? l->out_dtype : tensor_of(b, w)->dtype;
    const tensor_id out = build_tensor(b, l->name, dtype, &shape);
    const tensor_id in[] = { x, w, bias, keep.keep, keep.scales };
    struct op *op = build_op(b, OP_LINEAR, l->name, in, 5);
    op_result(b, op, out);
    op->pieces = l->copies;
    op->in_8_bits = b->casts_8 && build_is_in_8_bits(l);
    op->flop_full = op->flop_causal =
        2.0 * (double)tensor_of(b, x)->elems * (double)l->out.n;
    if (l->group == PG_EXPERT
        || l->of_experts) { /* a model's FLOPs are those of its tokens */
        const double all = op->flop_full;
        op->flop_full = op->flop_causal = all * b->routed_share;
        /* padding and experts not chosen; a rank's many are another's few */
        const bool idle = b->all_experts || b->run->moe_padded;
        op->flop_idle = idle && b->routed_share < 1 ? all - op->flop_full : 0;
    }
    if (build_is_fp8(b, l))
        build_fp8_backward(b, l, &keep, op);
    return out;
}

bool build_is_adapted(const struct builder *b, const struct linear *l)
{
    const uint64_t wanted = names_of(b, l) | LORA_MASK(LORA_ALL_LINEAR);
    const bool full =
        l->group == PG_PROJECTOR
        && (b->run->lora_full & LORA_MASK(LORA_FULL_PROJECTOR)) != 0;
    return b->frozen && l->lora != LORA_NEVER && !full && !b->bare
           && b->run->virtual_tokens == 0 && !build_is_frozen(b, l->group)
           && (b->run->lora_targets & wanted) != 0;
}

static bool is_quantised(const struct builder *b, const struct linear *l)
{
    return build_is_packed(b, l->group);
}

/* PEFT's sum of both results: over a plain linear in the wider dtype, then
 * back (peft/tuners/lora/layer.py); over a quantised one the adapter's result
 * is cast first, and added to a copy of the base's (bnb.py, Linear4bit) or
 * into it (gptq.py). */
static tensor_id sum_with_base(struct builder *b, const struct linear *l,
                               tensor_id base, tensor_id y)
{
    const enum dtype result = tensor_of(b, base)->dtype;
    if (!is_quantised(b, l)) {
        y = build_add(b, "lora sum", base, y);
        return build_cast(b, "lora result", y, result);
    }
    if (!b->autocast)
        y = build_cast(b, "lora result", y, result);
    if (b->run->base_dtype == DT_INT4)
        return build_binary_in_place(b, OP_ADD, "lora sum", base, y);
    return build_add(b, "lora sum", base, y);
}

static tensor_id add_to_base(struct builder *b, const struct linear *l,
                             tensor_id base, tensor_id y)
{
    y = build_scale(b, "lora scaling", y);
    return sum_with_base(b, l, base, y);
}

/* DoRA adds to the base's result in the wider dtype whatever that is stored
 * in, and casts back; 4-bit layers under autocast do not. */
static tensor_id add_dora(struct builder *b, const struct linear *l,
                          const struct dora *d, const struct dora_results *r)
{
    const tensor_id y = build_dora_result(b, d, l, r);
    if (b->autocast && is_quantised(b, l))
        return y;
    return build_cast(b, "lora result", y, tensor_of(b, r->base)->dtype);
}

/* The adapter's input in the adapter's dtype; under autocast the quantised
 * layers leave that to autocast. */
static tensor_id adapter_input(struct builder *b, const struct linear *l)
{
    if (b->autocast && is_quantised(b, l))
        return l->x;
    return build_cast(b, "lora input", l->x, build_adapter_dtype(b));
}

/* LitGPT's one matrix for q, k and v (litgpt/lora.py, LoRAQKVLinear): a down
 * projection for each of the three that has adapters, in one matrix. */
struct joined {
    uint64_t n;         /* of the three; 0: it is another matrix */
    uint64_t out;       /* their width */
    bool padded, apart; /* not all have adapters; keys have fewer heads */
};

static struct joined joined_by_litgpt(const struct builder *b,
                                      const struct linear *l)
{
    const uint64_t all = LORA_MASK(LORA_ALL_LINEAR);
    const uint64_t qkv =
        LORA_MASK(LORA_Q) | LORA_MASK(LORA_K) | LORA_MASK(LORA_V);
    uint64_t on = b->run->lora_targets & qkv;
    if ((b->run->lora_targets & all) != 0)
        on = qkv;
    struct joined j = { .padded = on != qkv, .apart = b->K.n != b->A.n };
    if (!run_is_litgpt(b->run) || (l->lora & qkv) != qkv)
        return j;
    const uint64_t q = (on & LORA_MASK(LORA_Q)) != 0;
    const uint64_t kv = ((on & LORA_MASK(LORA_K)) != 0)
                        + (uint64_t)((on & LORA_MASK(LORA_V)) != 0);
    j.n = q + kv;
    j.out = q * b->A.n + kv * b->K.n;
    return j;
}

/* Results by grouped convolution, of heads that differ one by one, which are
 * joined; where not all three have adapters they are put between zeros, by
 * index_copy, which keeps them. */
static tensor_id zero_pad(struct builder *b, tensor_id y, struct dim out)
{
    const struct shape wide = shape_last(b, y, out);
    const struct shape row =
        SHAPE(tensor_of(b, y)->dim[tensor_of(b, y)->rank - 1]);
    const tensor_id places = build_tensor(b, "places", DT_INT64, &row);
    op_byproduct(build_op(b, OP_QUANTIZE, "places", &y, 1), places);
    const tensor_id padded = build_index(b, "zero_pad", y, places, &wide);
    b->p->op[b->p->n_ops - 1].keep_in = 1;
    return padded;
}

/* rank_pattern names a module as lora_targets does. */
static struct dim rank_of(const struct builder *b, const struct linear *l)
{
    const uint64_t names = names_of(b, l);
    struct dim r = b->r;
    if (!b->run->given[KEY_RANK_PATTERN])
        return r;
    for (unsigned i = 0; i < LORA_ALL_LINEAR; i++)
        if ((names >> i & 1) != 0 && b->run->setup.rank[i] != 0) {
            r.n = b->run->setup.rank[i];
            break;
        }
    return r;
}

/* ia3.Linear: 1 * ia3_l.flatten(), which the product keeps. */
static tensor_id ia3_scaling(struct builder *b, struct dim n, uint64_t full)
{
    const tensor_id vector =
        build_param(b, &(struct param){ .name = "ia3_l",
                                        .group = PG_ADAPTER,
                                        .rows = n,
                                        .full_elems = full });
    return build_scale(b, "ia3 scaling", vector);
}

/* PEFT's (IA)3: a vector that the result is multiplied by, or, of
 * feedforward_modules, the input (peft/tuners/ia3/layer.py, Linear.forward). */
static tensor_id ia3_linear(struct builder *b, const struct linear *l)
{
    const bool before = (names_of(b, l) & b->run->feedforward) != 0;
    struct linear own = *l;
    if (before) {
        const enum dtype given = tensor_of(b, l->x)->dtype;
        const tensor_id scaling = ia3_scaling(b, l->in, full_of(b, l, false));
        const tensor_id x =
            build_cast(b, "ia3 input", l->x, build_adapter_dtype(b));
        own.x = build_cast(b, "ia3 scaled",
                           build_mul(b, "ia3 scaled", x, scaling), given);
        own.has_keep = false;
        const tensor_id y = linear_product(b, &own);
        const tensor_id held[] = { l->x, scaling, own.x, x };
        build_op(b, OP_RELEASE, "ia3", held, x == l->x ? 3 : 4);
        return y;
    }
    const tensor_id y = linear_product(b, &own);
    const tensor_id scaling = ia3_scaling(b, l->out, full_of(b, l, true));
    const tensor_id scaled = build_mul(b, "ia3 result", y, scaling);
    const tensor_id z =
        build_cast(b, "ia3 result", scaled, tensor_of(b, y)->dtype);
    const tensor_id held[] = { l->x, scaling };
    build_op(b, OP_RELEASE, "ia3", held, 2);
    return z;
}

/* PEFT's lora.Linear: base(x) + B(A(dropout(x))) * scaling. */
static tensor_id add_adapter(struct builder *b, const struct linear *l,
                             tensor_id base)
{
    const enum dtype stored = b->run->base_dtype;
    if (is_quantised(b, l) && (stored == DT_NF4 || stored == DT_FP4))
        base = build_copy(b, "base result", base);
    struct linear down = { .name = "lora_A",
                           .in = l->in,
                           .out = b->r,
                           .full_in = full_of(b, l, false),
                           .group = PG_ADAPTER,
                           .fixed = l->fixed,
                           .keep = l->keep,
                           .copies = l->copies,
                           .full_copies = l->full_copies };
    const tensor_id input = adapter_input(b, l);
    down.x = build_dropout(b, "lora dropout", input, b->run->lora_dropout);
    down.has_keep = l->has_keep && down.x == l->x;
    struct linear up = { .name = "lora_B",
                         .in = b->r,
                         .out = l->out,
                         .full_out = full_of(b, l, true),
                         .group = PG_ADAPTER,
                         .fixed = l->fixed,
                         .copies = l->copies,
                         .full_copies = l->full_copies };
    const struct joined j = joined_by_litgpt(b, l);
    if (j.n != 0) {
        down.out = DIM("n*r", b->r.n * j.n);
        up.out = DIM("adapted", j.out);
        up.full_out = j.out;
    }
    const bool dora = b->run->lora_variant == LORA_VARIANT_DORA;
    struct dora d;
    if (dora)
        build_dora_norm(b, &d, l, down.x, l->weight);
    up.x = linear_product(b, &down);
    if (j.n != 0) { /* every one has r rows of its own */
        const struct shape rows = shape_last(b, up.x, b->r);
        up.x = build_view(b, "lora_A", up.x, &rows);
    }
    tensor_id y = linear_product(b, &up);
    if (j.n > 1 && j.apart)
        y = build_copy(b, "joined", y);
    if (j.n != 0 && j.padded)
        y = zero_pad(b, y, l->out);
    if (dora)
        y = add_dora(b, l, &d,
                     &(struct dora_results){ .x = down.x,
                                             .base = base,
                                             .lora = y,
                                             .full_out = up.full_out });
    else
        y = add_to_base(b, l, base, y);
    /* the module's argument, and PEFT's x: variables still */
    const tensor_id held[] = { l->x, input };
    build_op(b, OP_RELEASE, "lora input", held, input == l->x ? 1 : 2);
    return y;
}

tensor_id build_linear(struct builder *b, const struct linear *l)
{
    struct linear own = *l; /* DoRA reads the weight too */
    own.weight = linear_weight(b, l);
    own.has_weight = true;
    if (!build_is_frozen(b, l->group))
        b->p->lora_words |= names_of(b, l);
    if (b->run->peft == PEFT_IA3 && build_is_adapted(b, l))
        return ia3_linear(b, &own);
    const tensor_id base = linear_product(b, &own);
    if (!build_is_adapted(b, l) || run_has_bridge_adapters(b->run))
        return base;
    const struct dim rank = b->r;
    b->r = rank_of(b, l);
    const tensor_id y = add_adapter(b, &own, base);
    b->r = rank;
    return y;
}
