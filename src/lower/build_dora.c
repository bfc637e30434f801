/*
 * Owns DoRA as PEFT writes it: the norms of the weights that the adapter makes,
 * new in each forward and no part of the graph, and the magnitudes that scale
 * both results (peft/tuners/lora/dora.py). Refuses to know which linears have
 * adapters, and their two products: build_linear.c does.
 * [docs/method.md eq. dora]
 */
#include "lower/build_private.h"

#include "base/banned.h"

/* What a kernel makes that no gradient comes to. */
static tensor_id made(struct builder *b, const char *name, enum dtype dtype,
                      struct dim rows, struct dim cols, tensor_id from)
{
    const struct shape shape = SHAPE(rows, cols);
    const tensor_id t = build_tensor(b, name, dtype, &shape);
    op_byproduct(build_op(b, OP_QUANTIZE, name, &from, 1), t);
    return t;
}

static void hold(struct dora *d, tensor_id t)
{
    if (t != TENSOR_NONE)
        d->held[d->n++] = t;
}

/* B A, as the product of an identity by both (get_lora_weight), in the input's
 * dtype. Its graph lives as long as the function: the identity, which the first
 * product keeps, and what it makes. */
static tensor_id product_of_adapters(struct builder *b, struct dora *d,
                                     const struct linear *l, tensor_id x)
{
    const enum dtype stored = build_adapter_dtype(b),
                     wide = tensor_of(b, x)->dtype;
    const enum dtype dtype = b->autocast ? b->compute : stored;
    tensor_id eye = made(b, "identity", stored, l->in, l->in, x);
    const tensor_id whole = eye;
    if (dtype != stored)
        eye = made(b, "identity", dtype, l->in, l->in, eye);
    const tensor_id down = made(b, "lora_A", dtype, l->in, b->r, eye);
    const tensor_id up = made(b, "lora_B", dtype, l->in, l->out, down);
    build_op(b, OP_RELEASE, "identity", &whole, 1);
    hold(d, eye);
    hold(d, down);
    return dtype == wide ? up : made(b, "B A", wide, l->out, l->in, up);
}

/* The base's weight in the input's dtype: itself, a cast, or dequantised. */
static tensor_id weight_of(struct builder *b, const struct linear *l,
                           tensor_id x, tensor_id weight)
{
    const enum dtype stored = tensor_of(b, weight)->dtype;
    const enum dtype wide = tensor_of(b, x)->dtype;
    if (dtype_is_quantised(stored)) {
        weight = made(b, "dequantised", b->compute, l->out, l->in, x);
        if (wide != b->compute)
            weight = made(b, "weight", wide, l->out, l->in, weight);
        return weight;
    }
    return stored == wide ? weight
                          : made(b, "weight", wide, l->out, l->in, weight);
}

void build_dora_norm(struct builder *b, struct dora *d, const struct linear *l,
                     tensor_id x, tensor_id weight)
{
    *d = (struct dora){ .n = 0 };
    const enum dtype wide = tensor_of(b, x)->dtype;
    const tensor_id change = product_of_adapters(b, d, l, x);
    hold(d, change);
    d->weight = weight_of(b, l, x, weight);
    if (d->weight != weight)
        hold(d, d->weight);
    tensor_id sum = made(b, "scaled B A", wide, l->out, l->in, change);
    sum = made(b, "W + B A", wide, l->out, l->in, sum);
    const struct dim one = DIM("1", 1);
    d->norm = made(b, "norm of W + B A", wide, one, l->out, sum);
    build_op(b, OP_RELEASE, "W + B A", &sum, 1);
}

/* Without dropout the base's result less its bias; else its product once more,
 * of what dropout left. */
static tensor_id base_result(struct builder *b, const struct dora *d,
                             const struct linear *l, tensor_id x,
                             tensor_id base)
{
    if (b->run->lora_dropout > 0) {
        const tensor_id w = build_autocast(b, "weight", d->weight);
        const tensor_id in[] = { build_autocast(b, "input", x), w };
        const struct shape shape = shape_last(b, x, l->out);
        const tensor_id out =
            build_tensor(b, "base result", tensor_of(b, w)->dtype, &shape);
        struct op *op = build_op(b, OP_LINEAR, "base result", in, 2);
        op_result(b, op, out);
        op->flop_full = op->flop_causal =
            2.0 * (double)tensor_of(b, x)->elems * (double)l->out.n;
        return out;
    }
    return l->bias ? build_scale(b, "base less bias", base) : base;
}

tensor_id build_dora_result(struct builder *b, const struct dora *d,
                            const struct linear *l,
                            const struct dora_results *r)
{
    const tensor_id magnitude =
        build_param(b, &(struct param){ .name = "lora_magnitude_vector",
                                        .group = PG_ADAPTER,
                                        .rows = l->out,
                                        .fixed = l->fixed,
                                        .full_elems = r->full_out });
    const tensor_id scale =
        build_binary(b, OP_DIV, "magnitude over norm", magnitude, d->norm);
    const tensor_id base = base_result(b, d, l, r->x, r->base);
    const tensor_id less = build_scale(b, "less one", scale);
    const tensor_id first = build_mul(b, "dora base", less, base);
    tensor_id y = build_mul(b, "dora result", scale, r->lora);
    y = build_scale(b, "lora scaling", y);
    y = build_add(b, "dora sum", first, y);
    build_op(b, OP_RELEASE, "dora", d->held, d->n);
    return build_add(b, "lora sum", r->base, y);
}
