/*
 * Owns the gated delta rule as transformers computes it without flash-linear-
 * attention (torch_chunk_gated_delta_rule of models/qwen3_next): whole chunks
 * of 64 tokens at once for what they are among themselves, then a loop over
 * the chunks that hands the state on. Everything is fp32 but autocast's
 * products. Refuses to know the layer around it (hf_ssm.c).
 * [docs/method.md eq. loop]
 */
#include "lower/hf_torch.h"

#include <assert.h>

#include "base/banned.h"

enum { CHUNK = 64 };

enum { HELD_MAX = 20 }; /* 16 today */

struct delta {
    struct dim q;
    double tokens;             /* with padding, times heads */
    struct shape keys, values; /* [b, H, s', N], [b, H, s', P] */
    struct shape gates;        /* [b, H, s'] */
    struct shape square;       /* [b*chunks, H, 64, 64] */
    struct shape states;       /* [b, H, N, P] */
    uint64_t chunks;
    bool low;    /* autocast's products */
    bool across; /* keys lie token by token: products copy them first */
    tensor_id q_, k, v, beta, g; /* what goes through the chunks */
    tensor_id cum;               /* summed gates */
    tensor_id held[HELD_MAX];    /* variables of the function */
    unsigned n_held;
};

static void hold(struct delta *r, tensor_id x)
{
    assert(r->n_held < HELD_MAX);
    r->held[r->n_held++] = x;
}

static struct delta delta_of(struct builder *b, const struct ssm_dims *d)
{
    const uint64_t c = d->chunks.n, micro = b->micro.n;
    const struct dim padded = DIM("64*chunks", build_product(b, CHUNK, c));
    const struct dim bc = DIM("b*chunks", build_product(b, micro, c));
    const struct dim q = DIM("64", CHUNK);
    return (struct delta){
        .q = q,
        .tokens = (double)micro * (double)padded.n * (double)d->heads.n,
        .keys = SHAPE(b->micro, d->heads, padded, d->state),
        .values = SHAPE(b->micro, d->heads, padded, d->width),
        .gates = SHAPE(b->micro, d->heads, padded),
        .square = SHAPE(bc, d->heads, q, q),
        .states = SHAPE(b->micro, d->heads, d->state, d->width),
        .chunks = c,
        .low = b->autocast,
        .across = b->compute == DT_FP32 && padded.n == b->sq.n
                  && d->groups.n != d->heads.n,
    };
}

/* ---- before the chunks ---- */

/* x over its length. */
static tensor_id unit(struct builder *b, const char *name, tensor_id x)
{
    const tensor_id square = build_mul(b, "square", x, x);
    const tensor_id sum = build_mean(b, "sum", square);
    const tensor_id eps = build_unary(b, OP_ADD, "sum + eps", sum);
    return build_mul(b, name, x, build_rsqrt(b, "inv_norm", eps));
}

/* Heads of keys for every head of values, fp32, of length one, padded. A cast
 * or padding puts them in order by heads; where there is neither they stay as
 * repeat_interleave left them. */
static void prepare(struct builder *b, const struct ssm_dims *d,
                    struct delta *r, const struct ssm_delta *in)
{
    const struct shape wide = SHAPE(b->t, d->heads, d->state);
    const bool grouped = d->groups.n != d->heads.n;
    const tensor_id q =
        grouped ? build_copy_as(b, "q of each head", in->q, &wide) : in->q;
    const tensor_id k =
        grouped ? build_copy_as(b, "k of each head", in->k, &wide) : in->k;
    const tensor_id q32 = torch_fp32(b, "q fp32", q);
    const tensor_id k32 = torch_fp32(b, "k fp32", k);
    const tensor_id v32 = torch_fp32(b, "v fp32", in->v);
    const tensor_id beta = torch_fp32(b, "beta fp32", in->beta);
    hf_hold(b, "query", q);
    hf_hold(b, "key", k);
    const tensor_id q1 = build_scale(b, "q scaled", unit(b, "q normed", q32));
    const tensor_id k1 = unit(b, "k normed", k32);
    r->q_ = build_copy_as(b, "q padded", q1, &r->keys);
    r->k = build_copy_as(b, "k padded", k1, &r->keys);
    r->v = build_copy_as(b, "v padded", v32, &r->values);
    hf_hold(b, "query", q1);
    hf_hold(b, "key", k1);
    hf_hold(b, "value", v32);
    r->beta = build_copy_as(b, "beta padded", beta, &r->gates);
    r->g = build_copy_as(b, "gates padded", in->g, &r->gates);
    hold(r, r->g);
}

/* ---- within chunks ---- */

static tensor_id product(struct builder *b, const struct delta *r,
                         const char *name, tensor_id x, tensor_id y)
{
    const bool copied = r->across && (b->micro.n > 1 || r->chunks > 1);
    tensor_id two[] = { build_autocast(b, "autocast", x),
                        build_autocast(b, "autocast", y) };
    for (unsigned i = 0; i < 2 && copied; i++)
        two[i] = torch_clone(b, "in order", two[i]);
    const struct tensor *t = tensor_of(b, x);
    return torch_product(b, name, two, &r->square,
                         2 * r->tokens * CHUNK * (double)t->dim[t->rank - 1].n);
}

static tensor_id solved(struct builder *b, const struct delta *r,
                        const char *name, const tensor_id in[2])
{
    const struct shape shape = shape_of(b, in[1]);
    const tensor_id y = build_tensor(b, name, DT_FP32, &shape);
    struct op *op = build_op(b, OP_SOLVE, name, in, 2);
    op_result(b, op, y);
    op->flop_full = r->tokens * CHUNK * (double)shape.dim[shape.rank - 1].n;
    return y;
}

/* exp of the differences of summed gates, below the diagonal. */
static tensor_id decays(struct builder *b, struct delta *r)
{
    const tensor_id mask = torch_mask(b, r->g, r->q);
    hold(r, mask);
    r->cum = torch_cumsum(b, "gates summed", r->g);
    const tensor_id two[] = { r->cum, r->cum };
    const tensor_id all =
        build_tensor(b, "differences of gates", DT_FP32, &r->square);
    op_result(b, build_op(b, OP_ADD, "differences of gates", two, 2), all);
    const tensor_id below = torch_masked(b, "differences masked", all, mask);
    return torch_exp(b, "pairwise_decay", below);
}

struct solved {
    tensor_id intra, values, keys; /* "u", "w" of the papers */
};

static struct solved within_chunks(struct builder *b, struct delta *r)
{
    struct solved s;
    const tensor_id vb = build_mul(b, "v_beta", r->v, r->beta);
    const tensor_id kb = build_mul(b, "k_beta", r->k, r->beta);
    const tensor_id pairs = decays(b, r);
    tensor_id scores = product(b, r, "k_beta k", kb, r->k);
    const tensor_id system = build_mul(b, "ut_system", scores, pairs);
    scores = product(b, r, "q k", r->q_, r->k);
    s.intra = build_mul(b, "intra_chunk_attn", scores, pairs);
    const tensor_id exp = torch_exp(b, "decay", r->cum);
    const tensor_id kd = build_mul(b, "decayed_k_beta", kb, exp);
    s.values = solved(b, r, "new_values", (const tensor_id[]){ system, vb });
    s.keys = solved(b, r, "k_cumdecay", (const tensor_id[]){ system, kd });
    const tensor_id names[] = { r->v, r->beta, vb,       kb,     pairs, system,
                                kd,   s.intra, s.values, s.keys, r->cum };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        hold(r, names[i]);
    return s;
}

/* ---- the loop over chunks ---- */

/* The last chunk's state goes nowhere: of one chunk nothing leads back through
 * what would make it. */
static tensor_id unless_last(struct builder *b, const struct delta *r,
                             tensor_id x)
{
    const struct shape shape = shape_of(b, x);
    if (r->chunks > 1)
        return x;
    const tensor_id y = build_view(b, "of no state", x, &shape);
    b->p->tensor[y].needs_grad = false;
    return y;
}

/* A share of x: of all chunks but `less`. */
static void keep_share(struct builder *b, const struct delta *r, struct op *op,
                       const char *name, const struct shape *of, uint64_t less)
{
    struct shape shape = *of;
    const enum dtype dtype = r->low ? b->compute : DT_FP32;
    if (r->chunks <= less)
        return;
    shape.dim[0].n = shape.dim[0].n / r->chunks * (r->chunks - less);
    torch_pieces(b, op, name, dtype, &shape);
}

/* [b*chunks, H, N, P], of all chunks but `less`. */
static struct shape states_of(struct builder *b, const struct delta *r,
                              uint64_t less)
{
    struct shape shape = r->states;
    shape.dim[0] =
        DIM("b*chunks", build_product(b, b->micro.n, r->chunks - less));
    return shape;
}

/* By chunks: [b*chunks, H, 64, width]. */
static struct shape by_chunk(const struct delta *r, const struct shape *x)
{
    struct shape shape = r->square;
    shape.dim[3] = x->dim[3];
    return shape;
}

/* Without autocast the products keep what they are given, and the states that
 * they are of; under it, copies in 16 bits, each its own. */
static void keep_steps(struct builder *b, const struct delta *r, struct op *op,
                       const tensor_id in[6])
{
    const struct shape v = by_chunk(r, &r->values), k = by_chunk(r, &r->keys);
    const struct shape all = states_of(b, r, 0);
    if (!r->low) {
        hf_keep(b, in[3]);
        for (unsigned i = 2; i < 5 && r->chunks > 1; i += 2)
            if (r->across && b->micro.n > 1)
                keep_share(b, r, op, "in order", &k, 1);
            else
                hf_keep(b, in[i]);
        keep_share(b, r, op, "v_new", &v, 0);
        torch_pieces(b, op, "states", DT_FP32, &all);
        return;
    }
    keep_share(b, r, op, "intra_chunk_attn, 16 bits", &r->square, 0);
    keep_share(b, r, op, "v_new, 16 bits", &v, 0);
    keep_share(b, r, op, "v_new, 16 bits", &v, 1);
    keep_share(b, r, op, "query, 16 bits", &k, 1);
    keep_share(b, r, op, "k_cumdecay, 16 bits", &k, 1);
    keep_share(b, r, op, "key, 16 bits", &k, 1);
    torch_pieces(b, op, "states, 16 bits", b->compute, &all);
    torch_pieces(b, op, "states, 16 bits", b->compute, &all);
    if (r->chunks > 1) {
        const struct shape some = states_of(b, r, 1);
        torch_pieces(b, op, "states", DT_FP32, &some);
    }
}

/* ---- the loop's backward, from the last chunk to the first ---- */

/* One chunk's share of each tensor, and the tensors. */
struct share {
    uint64_t values, keys, square, state;
};
struct rewind {
    struct alive a;
    struct share one, all;
    uint64_t chunks;
    bool pieces; /* queries and keys are kept chunk by chunk, as copies */
};

/* A chunk's gradient of what it took from a tensor: as large as that, zeros but
 * for the chunk (select_backward), and added into those that were there, which
 * nobody else holds. */
static void gather(struct alive *a, uint64_t one, uint64_t all, bool first)
{
    alive_take(a, all);
    alive_drop(a, one);
    if (!first)
        alive_drop(a, all);
}

static void add_up(struct alive *a, uint64_t bytes)
{
    alive_take(a, bytes);
    alive_drop(a, 2 * bytes);
}

/* last_recurrent_state * chunk_decay + key @ v_new */
static void rewind_state(struct rewind *w, uint64_t i)
{
    struct alive *a = &w->a;
    const uint64_t keys = w->pieces ? w->one.keys : w->all.keys;
    alive_take(a, w->one.values);
    alive_take(a, w->one.keys);
    alive_drop(a, w->pieces || i == 0 ? keys : 0);
    gather(a, w->one.keys, w->all.keys, i + 2 == w->chunks);
    alive_take(a, i > 0 ? w->one.state : 0);
    alive_touch(a, w->one.state); /* the decay's, before it is summed */
    alive_drop(a, w->one.state);
}

/* core_attn_out[i] = ... + intra_chunk_attn @ v_new, copied into its place */
static void rewind_output(struct rewind *w, uint64_t i)
{
    struct alive *a = &w->a;
    const bool last = i + 1 == w->chunks;
    alive_take(a, w->all.values);
    alive_take(a, w->one.values);
    alive_touch(a, i > 0 ? w->one.values : 0);
    alive_drop(a, i > 0 ? w->all.values : 2 * w->all.values);
    alive_take(a, w->one.values);
    alive_take(a, w->one.square);
    alive_drop(a, w->one.values);
    alive_drop(a, i == 0 ? w->all.square : 0);
    if (!last)
        add_up(a, w->one.values);
    gather(a, w->one.square, w->all.square, last);
}

/* query @ last_recurrent_state */
static void rewind_read(struct rewind *w, uint64_t i)
{
    struct alive *a = &w->a;
    const bool last = i + 1 == w->chunks;
    alive_take(a, i > 0 ? w->one.state : 0);
    alive_take(a, w->one.keys);
    if (w->pieces && i > 0)
        alive_drop(a, w->one.keys);
    else if (!w->pieces && i == 1)
        alive_drop(a, w->all.keys);
    alive_drop(a, w->one.values);
    if (i > 0 && !last)
        add_up(a, w->one.state);
    gather(a, w->one.keys, w->all.keys, last);
}

/* new_values - k_cumdecay @ last_recurrent_state */
static void rewind_correction(struct rewind *w, uint64_t i)
{
    struct alive *a = &w->a;
    const bool last = i + 1 == w->chunks;
    alive_take(a, w->one.values);
    alive_take(a, i > 0 ? w->one.state : 0);
    alive_take(a, w->one.keys);
    alive_drop(a, w->one.state);
    alive_drop(a, w->one.values);
    if (i > 0)
        add_up(a, w->one.state);
    gather(a, w->one.keys, w->all.keys, last);
    gather(a, w->one.values, w->all.values, last);
}

/* Beside the gradients of what the loop took; what it kept goes as it goes. */
static uint64_t loop_backward(struct builder *b, const struct delta *r,
                              const tensor_id in[6])
{
    const uint64_t c = r->chunks;
    struct rewind w = { .a = { .b = b },
                        .all = { .values = hf_size(b, in[0]),
                                 .keys = hf_size(b, in[1]),
                                 .square = hf_size(b, in[3]) },
                        .chunks = c,
                        .pieces = r->across && b->micro.n > 1 };
    const struct share *all = &w.all;
    const struct dim *at = r->states.dim;
    const uint64_t state =
        BYTES(b, at[0].n, at[1].n, at[2].n, at[3].n, dtype_size(DT_FP32));
    w.one = (struct share){ all->values / c, all->keys / c, all->square / c,
                            state };
    alive_take(&w.a, all->values); /* the output's, that comes in */
    alive_take(&w.a, all->square);
    alive_take(&w.a, all->values);
    alive_take(&w.a, BYTES(b, c, state));
    if (c > 1)
        alive_take(&w.a, w.pieces ? BYTES(b, 2, c - 1, w.one.keys)
                                  : BYTES(b, 2, all->keys));
    for (uint64_t i = c; i-- > 0;) {
        if (i + 1 < c)
            rewind_state(&w, i);
        rewind_output(&w, i);
        rewind_read(&w, i);
        rewind_correction(&w, i);
    }
    return w.a.most - all->values;
}

/* Under autocast, whose casts are not followed: one sum beside the chunk's own
 * and what is made of it. */
static uint64_t low_backward(const struct builder *b, const struct delta *r,
                             const tensor_id in[6])
{
    const uint64_t square = hf_size(b, in[3]), values = hf_size(b, in[0]);
    const uint64_t most = max_u64(square, hf_size(b, in[4]));
    const uint64_t c = r->chunks;
    const uint64_t keys = hf_size(b, in[1]);
    if (c == 1) /* nothing but the scores' has a gradient yet */
        return square + values > 2 * keys ? square + values - 2 * keys : 0;
    /* of two, by the time the second chunk's sums exist the 16-bit copies that
       were kept for the last chunk are gone, and these are larger */
    if (c == 2)
        return 0;
    return most + most / c + values / c;
}

/* Of one step, as the next state is added up: what it reads, the decayed state
 * and what comes to it; where backward keeps none, also what is new in values,
 * and the states before and after. */
static void step_variables(struct builder *b, const struct delta *r,
                           struct op *op)
{
    struct shape chunk = by_chunk(r, &r->values), twice = r->states;
    chunk.dim[0] = b->micro;
    twice.dim[0] = DIM("2*b", build_product(b, 2, b->micro.n));
    for (unsigned i = 0; i < 2; i++) {
        const tensor_id at[] = {
            build_tensor(b, "a chunk's variables", DT_FP32, &chunk),
            build_tensor(b, "a chunk's variables", DT_FP32, &twice)
        };
        for (unsigned k = 0; k < 2; k++) {
            (void)hf_temporary(op, at[k]);
            b->p->tensor[at[k]].lone = i > 0;
        }
    }
}

static tensor_id over_chunks(struct builder *b, const struct delta *r,
                             const tensor_id in[6])
{
    const double n = (double)r->keys.dim[3].n, p = (double)r->values.dim[3].n;
    const tensor_id y = build_tensor(b, "core_attn_out", DT_FP32, &r->values);
    struct op *op = build_op(b, OP_LOOP, "delta rule", in, 6);
    op_result(b, op, y);
    keep_steps(b, r, op, in);
    op = &b->p->op[b->p->n_ops - 1];
    step_variables(b, r, op);
    if (r->low) {
        op->back_bytes = low_backward(b, r, in);
    } else {
        op->place = PLACE_KEPT;
        hf_finish(b, op, loop_backward(b, r, in));
    }
    op->flop_causal = (double)b->t.n * (double)r->states.dim[1].n * 8 * n * p;
    op->flop_full = r->tokens * (6 * n * p + 2 * CHUNK * p);
    return y;
}

tensor_id torch_delta_rule(struct builder *b, const struct ssm_dims *d,
                           const struct ssm_delta *in)
{
    struct delta r = delta_of(b, d);
    const enum dtype dtype = tensor_of(b, in->q)->dtype;
    const struct shape rows = SHAPE(b->t, d->heads, d->width);
    const struct shape ends = SHAPE(b->micro, d->heads, d->chunks);
    prepare(b, d, &r, in);
    const struct solved s = within_chunks(b, &r);
    const tensor_id q =
        build_mul(b, "query decayed", r.q_, torch_exp(b, "decay", r.cum));
    const tensor_id cum = unless_last(b, &r, r.cum);
    const tensor_id left = build_unary(b, OP_ADD, "gates to the end", cum);
    const tensor_id k = build_mul(b, "key decayed", unless_last(b, &r, r.k),
                                  torch_exp(b, "decay to the end", left));
    const tensor_id last = torch_exp(
        b, "chunk_decay", build_view(b, "gates of chunks", cum, &ends));
    const tensor_id all[] = { s.values, s.keys, q, s.intra, k, last };
    tensor_id y = over_chunks(b, &r, all);
    hold(&r, q);
    hold(&r, k);
    hold(&r, y);
    y = torch_clone(b, "core_attn_out", y);
    y = build_view(b, "without padding", y, &rows);
    const tensor_id low = build_cast(b, "core_attn_out", y, dtype);
    for (unsigned i = 0; i < r.n_held; i++)
        hf_hold(b, "the rule's variables", r.held[i]);
    return dtype == DT_FP32 ? build_copy_as(b, "in order", low, &rows) : low;
}
