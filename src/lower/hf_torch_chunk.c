/*
 * Owns Mamba-2's layer as transformers runs it without the packages' kernels:
 * the sequence padded to whole chunks, and einsums over chunks in fp32
 * (mamba2_chunk_scan of models/mamba2). An einsum is a batched product of
 * operands that are copied where their layout wants it. Refuses to know the
 * other state-space layers. [docs/method.md eq. loop]
 */
#include "lower/hf_torch.h"

#include <assert.h>

#include "base/banned.h"

/* Shapes of one layer: b sequences of c chunks of q tokens. */
struct chunks {
    struct dim q, bc;             /* b*c */
    struct shape heads;           /* [b*c, q, H] */
    struct shape values, keys;    /* [b*c, q, H, P], [b*c, q, H, N] */
    struct shape square;          /* [b*c, H, q, q] */
    struct shape states, more;    /* [b*c, H, P, N], [b*(c+1), H, P, N] */
    struct shape between;         /* [b, H, c+1, c+1] */
    struct shape ends, more_ends; /* [b, H, c], [b, H, c+1] */
    bool one;                     /* c is one: no operand but B's, C's and
                                         the states' sum is copied */
};

static struct chunks chunks_of(struct builder *b, const struct ssm_dims *d)
{
    const uint64_t c = d->chunks.n, micro = b->micro.n;
    const struct dim q = DIM("Q", b->spec->ssm.chunk);
    const struct dim bc = DIM("b*chunks", build_product(b, micro, c));
    const struct dim bc1 = DIM("b*(chunks+1)", build_product(b, micro, c + 1));
    const struct dim c1 = DIM("chunks+1", c + 1);
    return (struct chunks){
        .q = q,
        .bc = bc,
        .heads = SHAPE(bc, q, d->heads),
        .values = SHAPE(bc, q, d->heads, d->width),
        .keys = SHAPE(bc, q, d->heads, d->state),
        .square = SHAPE(bc, d->heads, q, q),
        .states = SHAPE(bc, d->heads, d->width, d->state),
        .more = SHAPE(bc1, d->heads, d->width, d->state),
        .between = SHAPE(b->micro, d->heads, c1, c1),
        .ends = SHAPE(b->micro, d->heads, d->chunks),
        .more_ends = SHAPE(b->micro, d->heads, c1),
        .one = c == 1,
    };
}

/* ---- pieces ---- */

tensor_id torch_mask(struct builder *b, tensor_id beside, struct dim side)
{
    const struct shape shape = SHAPE(side, side);
    struct op *op = hf_inside(b, "mask", beside);
    return hf_temporary(op, build_tensor(b, "mask", DT_BOOL, &shape));
}

tensor_id torch_masked(struct builder *b, const char *name, tensor_id x,
                       tensor_id mask)
{
    return build_where(b, name, mask, x);
}

tensor_id torch_cumsum(struct builder *b, const char *name, tensor_id x)
{
    return build_unary(b, OP_CUMSUM, name, x);
}

tensor_id torch_exp(struct builder *b, const char *name, tensor_id x)
{
    return build_unary(b, OP_TANH, name, x);
}

tensor_id torch_clone(struct builder *b, const char *name, tensor_id x)
{
    const tensor_id y = build_copy(b, name, x);
    build_place(b, PLACE_GRADIENT); /* CloneBackward hands it on */
    return y;
}

tensor_id torch_product(struct builder *b, const char *name,
                        const tensor_id x[2], const struct shape *shape,
                        double flops)
{
    const tensor_id y = build_matmul(b, name, x[0], x[1], shape);
    struct op *op = &b->p->op[b->p->n_ops - 1];
    op->flop_full = flops;
    op->flop_causal = 0; /* the recurrence's, which is counted once */
    return y;
}

/* exp(segment_sum(x)): sums of the logs of decays between every two places. */
static tensor_id decays_between(struct builder *b, tensor_id x,
                                const struct shape *shape)
{
    const struct dim side = shape->dim[shape->rank - 1];
    const tensor_id wide = build_view(b, "decays", x, shape);
    const tensor_id below = torch_mask(b, x, side);
    const tensor_id first = torch_masked(b, "decays masked", wide, below);
    const tensor_id sum = torch_cumsum(b, "decays summed", first);
    const tensor_id diagonal = torch_mask(b, x, side);
    const tensor_id last = torch_masked(b, "sums masked", sum, diagonal);
    hf_hold(b, "input_tensor", first);
    return torch_exp(b, "decays", last);
}

/* An operand of an einsum: in autocast's type, and copied where heads do not
 * stand before tokens. */
static tensor_id operand(struct builder *b, const char *name, tensor_id x,
                         bool copied)
{
    x = build_autocast(b, "autocast", x);
    return copied ? torch_clone(b, name, x) : x;
}

static tensor_id einsum(struct builder *b, const char *name,
                        const tensor_id x[2], const struct shape *shape,
                        double flops)
{
    return torch_product(b, name, x, shape, flops);
}

/* ---- mamba2_chunk_scan ---- */

enum { HELD_MAX = 24 }; /* 19 today */

struct chunk_scan {
    tensor_id x, dt, A, B, C; /* A: logs of decays */
    tensor_id skip;           /* D x, in whole chunks */
    tensor_id held[HELD_MAX]; /* variables of the function */
    unsigned n_held;
};

static void hold(struct chunk_scan *s, tensor_id x)
{
    assert(s->n_held < HELD_MAX);
    s->held[s->n_held++] = x;
}

/* repeat_interleave: every head of a group has its B, C. */
static tensor_id repeated(struct builder *b, const struct ssm_dims *d,
                          const char *name, tensor_id x)
{
    const struct shape shape = SHAPE(b->t, d->heads, d->state);
    return build_copy_as(b, name, torch_fp32(b, name, x), &shape);
}

/* Time steps as softplus and clamp leave them, x and A made discrete, all of it
 * padded. */
static void discretise(struct builder *b, const struct ssm_dims *d,
                       const struct chunks *c, struct chunk_scan *s)
{
    const struct shape values = SHAPE(b->t, d->heads, d->width);
    const tensor_id own = ssm_vector(b, d, "dt_bias", d->heads);
    const tensor_id skip = ssm_vector(b, d, "D", d->heads);
    const tensor_id bias =
        build_cast(b, "dt_bias", own, tensor_of(b, s->dt)->dtype);
    tensor_id dt = build_add(b, "dt + bias", s->dt, bias);
    dt = torch_softplus(b, dt);
    dt = build_unary(b, OP_ACTIVATION, "clamp", dt);
    hold(s, dt);
    const tensor_id x =
        torch_fp32(b, "x fp32", build_view(b, "x", s->x, &values));
    const tensor_id B = repeated(b, d, "B", s->B);
    const tensor_id C = repeated(b, d, "C", s->C);
    const tensor_id padded = build_copy_as(b, "x padded", x, &c->values);
    s->skip = build_mul(b, "D x", skip, padded);
    const tensor_id dx = build_mul(b, "x dt", x, torch_fp32(b, "dt fp32", dt));
    const tensor_id A =
        build_mul(b, "A dt", s->A, torch_fp32(b, "dt fp32", dt));
    s->x = build_copy_as(b, "x padded", dx, &c->values);
    s->A = build_copy_as(b, "A padded", A, &c->heads);
    s->B = build_copy_as(b, "B padded", B, &c->keys);
    s->C = build_copy_as(b, "C padded", C, &c->keys);
    const tensor_id list[] = { dx, A, B, C };
    for (unsigned i = 0; i < 4; i++)
        hf_hold(b, "unpadded", list[i]);
    hold(s, s->x);
    hold(s, s->A);
    hold(s, s->B);
    hold(s, s->C);
    hold(s, s->skip);
}

/* Products of one chunk's tokens with one another: scores, decayed, with x. */
static tensor_id inside(struct builder *b, const struct ssm_dims *d,
                        const struct chunks *c, struct chunk_scan *s)
{
    const double pairs = 2 * (double)c->bc.n * (double)c->q.n * (double)c->q.n;
    const double n = (double)b->spec->ssm.state * (double)d->heads.n;
    const tensor_id L = decays_between(b, s->A, &c->square);
    tensor_id x[] = { operand(b, "C", s->C, true),
                      operand(b, "B", s->B, true) };
    const tensor_id G = einsum(b, "scores", x, &c->square, pairs * n);
    const tensor_id M = build_mul(b, "scores decayed", G, L);
    x[0] = operand(b, "scores decayed", M, false);
    x[1] = operand(b, "x", s->x, !c->one);
    const tensor_id y =
        einsum(b, "within chunks", x, &c->values, pairs * (double)d->inner.n);
    hold(s, L);
    hold(s, G);
    hold(s, M);
    hold(s, y);
    return y;
}

/* Every chunk's state, then what is handed on from chunk to chunk. */
static tensor_id handed_on(struct builder *b, const struct chunks *c,
                           struct chunk_scan *s, tensor_id sum,
                           tensor_id states)
{
    const struct ssm *m = &b->spec->ssm;
    const double c1 = (double)c->more_ends.dim[2].n;
    const double flops =
        2 * (double)m->inner * (double)m->state * (double)b->micro.n * c1 * c1;
    const struct tensor *t = tensor_of(b, states);
    struct shape first = c->states;
    first.dim[0] = b->micro;
    struct op *op = hf_inside(b, "previous_states", states);
    const tensor_id none =
        hf_temporary(op, build_tensor(b, "previous_states", t->dtype, &first));
    const tensor_id all = build_cat(b, "states", none, states, &c->more);
    const tensor_id last = build_view(b, "A_cumsum", sum, &c->ends);
    const tensor_id ends =
        build_copy_as(b, "ends of chunks", last, &c->more_ends);
    const tensor_id decay = decays_between(b, ends, &c->between);
    const tensor_id x[] = { operand(b, "decay_chunk", decay, false),
                            operand(b, "states", all, true) };
    const tensor_id handed = einsum(b, "states handed on", x, &c->more, flops);
    hf_hold(b, "states", all);
    hold(s, none);
    hold(s, decay);
    hold(s, handed);
    return handed;
}

static tensor_id states_of(struct builder *b, const struct chunks *c,
                           struct chunk_scan *s, tensor_id sum)
{
    const struct ssm *m = &b->spec->ssm;
    const double each = 2 * (double)m->inner * (double)m->state;
    const tensor_id left = build_unary(b, OP_ADD, "decays to the end", sum);
    const tensor_id decay = torch_exp(b, "decay_states", left);
    const tensor_id B = build_mul(b, "B decayed", s->B, decay);
    tensor_id x[] = { operand(b, "B decayed", B, true),
                      operand(b, "x", s->x, !c->one) };
    const tensor_id states = einsum(b, "states", x, &c->states,
                                    each * (double)c->bc.n * (double)c->q.n);
    hold(s, decay);
    hold(s, B);
    return build_view(b, "states", handed_on(b, c, s, sum, states), &c->states);
}

static tensor_id chunk_scan(struct builder *b, const struct ssm_dims *d,
                            struct chunk_scan *s)
{
    const struct chunks c = chunks_of(b, d);
    const struct ssm *m = &b->spec->ssm;
    const struct shape rows = SHAPE(b->t, d->inner);
    discretise(b, d, &c, s);
    const tensor_id sum = torch_cumsum(b, "A_cumsum", s->A);
    const tensor_id within = inside(b, d, &c, s);
    const tensor_id states = states_of(b, &c, s, sum);
    const tensor_id decay = torch_exp(b, "state_decay_out", sum);
    const tensor_id x[] = { operand(b, "C", s->C, true),
                            operand(b, "states", states, !c.one) };
    const tensor_id from = einsum(b, "from states", x, &c.values,
                                  2 * (double)c.bc.n * (double)c.q.n
                                      * (double)m->inner * (double)m->state);
    b->p->op[b->p->n_ops - 1].flop_causal = hf_scan_flops(b, d);
    const tensor_id off = build_mul(b, "from states decayed", from, decay);
    tensor_id y = build_add(b, "both", within, off);
    y = torch_clone(b, "contiguous", y);
    y = build_add(b, "scan + D x", y, s->skip);
    const tensor_id rest[] = { sum, decay, from, off };
    for (unsigned i = 0; i < 4; i++)
        hold(s, rest[i]);
    for (unsigned i = 0; i < s->n_held; i++)
        hf_hold(b, "the scan's variables", s->held[i]);
    return build_view(b, "scan", y, &rows);
}

/* ---- the layer ---- */

/* Normed by groups, in fp32. */
static tensor_id group_norm(struct builder *b, const struct ssm_dims *d,
                            tensor_id x)
{
    const struct shape rows = SHAPE(b->t, d->inner);
    const struct shape groups = SHAPE(
        b->t, d->groups, DIM("D/G", b->spec->ssm.inner / b->spec->ssm.groups));
    const tensor_id scale = build_norm_weight(b, "norm", d->inner);
    const tensor_id each = build_view(b, "gated", x, &groups);
    const tensor_id square = build_pow(b, "norm square", each);
    const tensor_id mean = build_mean(b, "variance", square);
    const tensor_id eps = build_unary(b, OP_ADD, "variance + eps", mean);
    const tensor_id root = build_rsqrt(b, "rsqrt", eps);
    const tensor_id unit = build_mul(b, "normalised", each, root);
    return build_mul(b, "norm", scale,
                     build_view(b, "normalised", unit, &rows));
}

/* MambaRMSNormGated: gated first, then normed; FalconH1RMSNormGated as a key
 * says; without it the gate alone, which silu leaves in its type. */
static tensor_id gated_norm(struct builder *b, const struct ssm_dims *d,
                            tensor_id x, tensor_id gate)
{
    const struct ssm *m = &b->spec->ssm;
    if (m->gate_norm && m->norm_first)
        x = group_norm(b, d, x);
    const tensor_id up = m->gate_norm ? torch_fp32(b, "gate fp32", gate) : gate;
    const tensor_id act = build_unary(b, OP_ACTIVATION, "silu", up);
    const tensor_id both = build_mul(b, "gated", x, act);
    return m->gate_norm && !m->norm_first ? group_norm(b, d, both) : both;
}

tensor_id torch_mamba2(struct builder *b, const struct ssm_dims *d, tensor_id x)
{
    const struct ssm *m = &b->spec->ssm;
    const enum dtype dtype = tensor_of(b, x)->dtype;
    const struct dim all = DIM("2*D+2*G*N+H", m->inner + d->conv.n + m->heads);
    const struct dim keys = DIM("G*N", BYTES(b, m->groups, m->state));
    const struct shape rows = SHAPE(b->t, d->inner),
                       wide = SHAPE(b->t, d->conv);
    const struct shape steps = SHAPE(b->t, d->heads), key = SHAPE(b->t, keys);
    tensor_id part[3], three[3];
    const tensor_id in = ssm_project_scaled(b, d, x, all);
    struct chunk_scan s = { .A = ssm_decay(
                                b, ssm_vector(b, d, "A_log", d->heads)) };
    build_split(b, "gate, x, B, C, dt", in, part,
                (const struct shape[]){ rows, wide, steps }, 3);
    const struct ssm_conv conv = ssm_conv_params(b, d);
    const tensor_id mixed = torch_conv(b, d, part[1], &conv);
    build_split(b, "x, B, C", mixed, three,
                (const struct shape[]){ rows, key, key }, 3);
    s.x = three[0];
    s.B = three[1];
    s.C = three[2];
    s.dt = part[2];
    const tensor_id scan = chunk_scan(b, d, &s);
    const tensor_id normed = gated_norm(b, d, scan, part[0]);
    const tensor_id low =
        build_cast(b, "scan in the stream's type", normed, dtype);
    const tensor_id y = ssm_project_out(b, d, low);
    const tensor_id frame[] = { in, mixed, scan };
    for (unsigned i = 0; i < 3; i++)
        hf_hold(b, "the mixer's variables", frame[i]);
    return y;
}
