/*
 * Owns LitGPT's GPT (read at 0.5.13: litgpt/model.py, lora.py), one class for
 * the decoders that it has: a matrix for q, k and v, rotation by tables in fp32
 * and a copy of its result, keys and values repeated for every head, norms
 * written out; and the head and loss of its scripts (utils.py,
 * finetune/full.py, finetune/lora.py, pretrain.py): logits that lightning's
 * Fabric hands out in fp32 (fabric/wrappers.py, convert_output), a loss over 128
 * rows at a time. Refuses experts, latent attention and layers of
 * another make.
 * [docs/method.md eq. litgpt]
 */
#include "lower/build.h"

#include "base/banned.h"

/* lm_head_chunk_size of the scripts for adapters, a sequence's rows; chunk_size
 * of the loss where logits are whole, rows of all. */
enum { LITGPT_PIECE = 128 };

/* A variable of Python has it up to here. */
static void hold(struct builder *b, const char *name, tensor_id x)
{
    build_op(b, OP_RELEASE, name, &x, 1);
}

/* ---- norms ---- */

static tensor_id rms_norm(struct builder *b, const char *name, tensor_id x,
                          tensor_id weight)
{
    const enum dtype dtype = tensor_of(b, x)->dtype;
    const tensor_id up = build_cast(b, "norm fp32", x, DT_FP32);
    const tensor_id square = build_mul(b, "norm square", up, up);
    const tensor_id mean = build_mean(b, "norm_x", square);
    const tensor_id eps = build_unary(b, OP_ADD, "norm_x + eps", mean);
    const tensor_id unit =
        build_mul(b, "x_normed", up, build_rsqrt(b, "rsqrt", eps));
    const tensor_id w = build_cast(b, "weight fp32", weight, DT_FP32);
    const tensor_id y = build_cast(b, name, build_mul(b, name, unit, w), dtype);
    hold(b, "x", up);
    hold(b, "x_normed", unit);
    return y;
}

static tensor_id norm(struct builder *b, const char *name, tensor_id x,
                      struct dim n)
{
    const tensor_id weight = build_norm_weight(b, name, n);
    if (b->spec->norm == NORM_RMS && b->run->norm_kernel == NORM_FUSED)
        return build_rms_norm(b, name, x, weight);
    if (b->spec->norm == NORM_RMS)
        return rms_norm(b, name, x, weight);
    const tensor_id bias = b->spec->norm == NORM_LAYER
                               ? build_bias(b, name, PG_NORM, n, 0)
                               : TENSOR_NONE;
    return build_layer_norm(b, name, x, weight, bias);
}

/* ---- attention ---- */

static struct dim rotated_dim(const struct builder *b)
{
    const uint64_t r = b->spec->rotary_dim;
    return r == 0 ? b->d : DIM("r", r);
}

/* (x * cos) + (rotated * sin), with tables in fp32; what is left of a head is
 * joined, though it be nothing: a copy, head by head. */
static tensor_id rotate(struct builder *b, const char *name, tensor_id x)
{
    const enum dtype dtype = tensor_of(b, x)->dtype;
    const struct dim r = rotated_dim(b);
    const struct dim half = DIM("r/2", r.n / 2);
    const struct shape whole = shape_of(b, x);
    const struct shape turns = shape_last(b, x, r);
    const struct shape part = shape_last(b, x, half);
    const tensor_id cos = b->p->first_shared, sin = cos + 1;
    const uint32_t first = b->p->n_ops;
    tensor_id cut[2] = { x, TENSOR_NONE }, x1[2];
    if (r.n != b->d.n) {
        const struct shape rest = shape_last(b, x, DIM("d-r", b->d.n - r.n));
        build_slices(b, "rotary part", x, cut,
                     (const struct shape[]){ turns, rest }, 2);
    }
    build_slices(b, "halves", cut[0], x1, (const struct shape[]){ part, part },
                 2);
    const tensor_id minus = build_neg(b, "-x2", x1[1]);
    const tensor_id turned = build_cat(b, "rotated", minus, x1[0], &turns);
    const tensor_id straight = build_mul(b, "x cos", cut[0], cos);
    const tensor_id crossed = build_mul(b, "rotated sin", turned, sin);
    const tensor_id sum = build_add(b, "roped", straight, crossed);
    const tensor_id roped = build_cast(b, "roped", sum, dtype);
    for (uint32_t i = first; i < b->p->n_ops; i++)
        b->p->op[i].strided = true;
    hold(b, "rotated", turned);
    if (r.n != b->d.n)
        return build_cat(b, name, roped, cut[1], &whole);
    return build_copy(b, name, roped);
}

static tensor_id heads_normed(struct builder *b, const char *name, tensor_id x,
                              struct dim heads, struct dim width)
{
    const struct shape split = SHAPE(b->t, heads, b->d);
    if (b->spec->qk_norm == QK_FULL)
        x = norm(b, name, x, width);
    x = build_view(b, "heads", x, &split);
    return b->spec->qk_norm == QK_PER_HEAD ? norm(b, name, x, b->d) : x;
}

/* repeat_interleave: a copy. */
static tensor_id repeat(struct builder *b, const char *name, tensor_id x)
{
    const struct shape heads = SHAPE(b->t, b->a, b->d);
    return b->K.n == b->A.n ? x : build_copy_as(b, name, x, &heads);
}

struct qkv {
    tensor_id q, k, v;
};

/* One mask of all pairs, of zeros and -inf; of windows a second one. */
static tensor_id mask(struct builder *b)
{
    const struct shape pairs = SHAPE(b->sq, b->s);
    const enum dtype dtype = b->compute;
    const tensor_id out = build_tensor(b, "mask", dtype, &pairs);
    op_result(b, build_op(b, OP_CAST, "mask", &b->ids, 1), out);
    return out;
}

/* Soft caps want scores: no kernel has them. */
static tensor_id capped(struct builder *b, const struct qkv *x)
{
    const struct shape square = shape_scores(b);
    const struct shape heads = SHAPE(b->t, b->a, b->d);
    const tensor_id product = build_matmul(b, "q @ k.mT", x->q, x->k, &square);
    tensor_id scores = build_scale(b, "scores", product);
    scores = build_scale(b, "scores / cap", scores);
    scores = build_unary(b, OP_TANH, "tanh", scores);
    scores = build_scale(b, "scores * cap", scores);
    scores = build_binary(b, OP_ADD, "scores + mask", scores, mask(b));
    const enum dtype dtype = tensor_of(b, scores)->dtype;
    scores = build_softmax(b, "softmax", scores, DT_FP32);
    scores = build_cast(b, "scores", scores, dtype);
    return build_matmul(b, "scores @ v", scores, x->v, &heads);
}

/* F.scaled_dot_product_attention; flash's result lies head by head as its q
 * does, and is copied when tokens are put first. Flash has no masks. */
static tensor_id one_kernel(struct builder *b, const struct qkv *x)
{
    const bool masked = b->window != 0;
    const bool efficient =
        masked || b->d.n > FLASH_HEAD_MAX || attention_is_efficient(b);
    const tensor_id bias = masked ? mask(b) : TENSOR_NONE;
    const tensor_id out =
        build_attention(b, &(struct attention_args){ .name = "attention",
                                                     .q = x->q,
                                                     .k = x->k,
                                                     .v = x->v,
                                                     .efficient = efficient });
    struct op *op = &b->p->op[b->p->n_ops - 1];
    if (masked && op->n_in < OP_IN_MAX)
        op->in[op->n_in++] = bias;
    if (efficient)
        return out;
    build_flash_unused(b);
    return out;
}

static tensor_id attention(struct builder *b, tensor_id x)
{
    const struct linear l = linear_of_qkv(b, "qkv", x);
    const tensor_id qkv = build_linear(b, &l);
    tensor_id part[3];
    build_split(b, "q, k, v", qkv, part,
                (const struct shape[]){ SHAPE(b->t, b->A), SHAPE(b->t, b->K),
                                        SHAPE(b->t, b->K) },
                3);
    struct qkv at = {
        .q = heads_normed(b, "norm_q", part[0], b->a, b->A),
        .k = heads_normed(b, "norm_k", part[1], b->kv, b->K),
        .v = part[2],
    };
    if (build_rotates(b)) {
        at.q = rotate(b, "q", at.q);
        at.k = rotate(b, "k", at.k);
    }
    at.k = repeat(b, "k repeated", at.k);
    at.v = repeat(b, "v repeated", at.v);
    b->core_attention = true;
    tensor_id y =
        b->spec->attn_softcap > 0 ? capped(b, &at) : one_kernel(b, &at);
    b->core_attention = false;
    const struct shape rows = SHAPE(b->t, b->A);
    const bool flat = b->p->op[b->p->n_ops - 1].kind == OP_SDPA;
    y = flat ? build_view(b, "y", y, &rows) : build_copy_as(b, "y", y, &rows);
    hold(b, "qkv", qkv);
    hold(b, "q", at.q);
    hold(b, "k", at.k);
    const struct linear proj = linear_of_o(b, "proj", y);
    return build_linear(b, &proj);
}

/* ---- MLP ---- */

static tensor_id mlp(struct builder *b, tensor_id x)
{
    const struct linear fc = linear_of_up(b, "fc_2", x);
    struct linear gate = fc;
    gate.name = "fc_1";
    gate.lora = LORA_MASK(LORA_GATE);
    tensor_id y;
    if (b->spec->gated_mlp) {
        const tensor_id one = build_linear(b, &gate);
        const tensor_id two = build_linear(b, &fc);
        const tensor_id act = build_unary(b, OP_ACTIVATION, "act", one);
        y = build_mul(b, "gated", act, two);
        hold(b, "x_fc_1", one);
    } else {
        y = build_unary(b, OP_ACTIVATION, "act", build_linear(b, &fc));
    }
    const struct linear proj = linear_of_down(b, "proj", y);
    return build_linear(b, &proj);
}

/* ---- layer ---- */

static tensor_id layer(struct builder *b, const struct layer_kind *kind,
                       tensor_id x)
{
    const struct spec *m = b->spec;
    const bool after = m->place == PLACE_POST || m->place == PLACE_BOTH;
    const bool before = m->place == PLACE_PRE || m->place == PLACE_BOTH;
    (void)kind;
    tensor_id normed = before ? norm(b, "norm_1", x, b->h) : x;
    tensor_id y = attention(b, normed);
    if (after)
        y = norm(b, "post_attention_norm", y, b->h);
    if (m->parallel_residual && !m->shared_norm)
        normed = norm(b, "norm_2", x, b->h);
    x = build_add(b, "residual", y, x);
    if (!m->parallel_residual)
        normed = before ? norm(b, "norm_2", x, b->h) : x;
    tensor_id z = mlp(b, normed);
    if (after)
        z = norm(b, "post_mlp_norm", z, b->h);
    hold(b, "attention_output", y);
    hold(b, "x_normed", normed);
    return build_add(b, "residual", z, x);
}

/* ---- ends ---- */

static void embedding(struct builder *b)
{
    const struct shape whole = SHAPE(b->t, b->h);
    build_begin(b, BLOCK_EMBED, "embedding");
    const tensor_id table = build_word_table(b, "wte", b->h);
    tensor_id x = build_embedding(b, "wte", b->ids, table, &whole);
    if (b->spec->embed_scale)
        x = build_scale(b, "embeddings scaled", x);
    build_end(b, x);
}

/* Logits, of which the loop has a name until it has the next ones. */
static void outputs(struct builder *b, tensor_id x)
{
    hold(b, "logits", x);
    build_hold(b, x);
}

/* ---- the head in pieces: adapters ---- */

/* Autocast casts a weight that is not trained for every product anew, and each
 * keeps its copy (aten/src/ATen/autocast_mode.cpp, cached_cast). */
static void cast_for_pieces(struct builder *b, tensor_id x, tensor_id weight,
                            uint64_t rows)
{
    const uint64_t others = div_up(b->t.n, max_u64(rows, 1)) - 1;
    const struct tensor *w = tensor_of(b, weight);
    if (!b->autocast || w->trainable || w->dtype == b->compute || others == 0)
        return;
    const struct shape shape = SHAPE(DIM("pieces - 1", others), b->V, b->e);
    struct op *op = build_op(b, OP_FUSED, "lm_head", &x, 1);
    op_result(b, op, build_tensor(b, "lm_head cast", b->compute, &shape));
    op->keep_out = 1;
}

/* A packed weight is dequantised for each piece, with the logits of those
 * before it there. */
static tensor_id head_in_pieces(struct builder *b, tensor_id x,
                                tensor_id weight, uint64_t rows)
{
    const struct linear l = linear_of_head(b, "lm_head", x, weight);
    if (!dtype_is_quantised(tensor_of(b, weight)->dtype) || rows >= b->t.n) {
        cast_for_pieces(b, x, weight, rows);
        return build_linear(b, &l);
    }
    const struct shape shape = SHAPE(DIM("rows before", b->t.n - rows), b->V);
    const tensor_id before =
        build_tensor(b, "logits of pieces before", b->compute, &shape);
    op_byproduct(build_op(b, OP_QUANTIZE, "lm_head", &x, 1), before);
    const tensor_id logits = build_linear(b, &l);
    hold(b, "logits of pieces before", before);
    return logits;
}

/* The last piece without its last row, of many sequences a copy: while the loss
 * is computed. */
static tensor_id last_piece(struct builder *b, tensor_id up)
{
    const uint64_t left = b->sq.n % LITGPT_PIECE;
    const uint64_t n = left == 0 ? min_u64(LITGPT_PIECE, b->sq.n) : left;
    const struct shape rows = SHAPE(b->micro, DIM("last - 1", n - 1), b->V);
    if (b->micro.n == 1 || n == 1)
        return TENSOR_NONE;
    const tensor_id copy = build_tensor(b, "last piece", DT_FP32, &rows);
    op_byproduct(build_op(b, OP_QUANTIZE, "last piece", &up, 1), copy);
    return copy;
}

/* The loop has a list of the pieces to the end of the next forward, and of each
 * the loss keeps its log-softmax. */
static tensor_id in_pieces(struct builder *b, tensor_id x, tensor_id weight)
{
    const uint64_t rows = build_product(b, b->micro.n, LITGPT_PIECE);
    const tensor_id logits =
        build_logits_cap(b, head_in_pieces(b, x, weight, rows));
    const tensor_id up = build_cast(b, "logits fp32", logits, DT_FP32);
    if (up != logits)
        build_place(b, PLACE_PIECES);
    outputs(b, up);
    build_renames(b, "logits");
    const tensor_id last = last_piece(b, up);
    const tensor_id loss = build_cross_entropy_of_list(b, up, rows);
    if (last != TENSOR_NONE)
        hold(b, "logits", last);
    return loss;
}

/* ---- the head as a whole: full training ---- */

/* finetune/full.py leaves the last row of each sequence out, pretrain.py has
 * labels that are shifted. Backward joins the pieces' gradients, and puts them
 * into one of all rows. The loop has the logits until it has the next ones. */
static tensor_id whole(struct builder *b, tensor_id x, tensor_id weight)
{
    const struct linear l = linear_of_head(b, "lm_head", x, weight);
    const tensor_id logits = build_logits_cap(b, build_linear(b, &l));
    const tensor_id up = build_cast(b, "logits fp32", logits, DT_FP32);
    tensor_id labels = b->labels;
    tensor_id rows = up;
    outputs(b, up);
    build_renames(b, "logits");
    if (b->run->shift_logits)
        rows = build_shifted_logits(b, up, &labels);
    return build_cross_entropy_of_split(b, rows, labels, LITGPT_PIECE);
}

static tensor_id loss(struct builder *b, tensor_id x, tensor_id weight)
{
    if (b->run->loss == LOSS_CHUNKED)
        return in_pieces(b, x, weight);
    return whole(b, x, weight);
}

static void head(struct builder *b)
{
    const tensor_id x =
        norm(b, "ln_f", build_begin(b, BLOCK_HEAD, "head"), b->h);
    build_end(b, loss(b, x, build_head_weight(b, "lm_head", b->h)));
}

/* Of the sequence length that the scripts set (model.max_seq_length). */
static void rotary_tables(struct builder *b)
{
    const struct shape table = SHAPE(b->sq, rotated_dim(b));
    b->p->tensor[build_shared(b, "cos", DT_FP32, &table)].rests = true;
    b->p->tensor[build_shared(b, "sin", DT_FP32, &table)].rests = true;
}

static const char *missing(const struct builder *b)
{
    const struct spec *m = b->spec;
    if (m->mixer != MIX_ATTENTION)
        return "state-space layers";
    if (m->experts > 0)
        return "experts yet";
    if (m->head != HEAD_LM)
        return "head but one for words";
    if (m->position != POS_ROPE)
        return "positions but rope";
    if (m->place != PLACE_PRE && m->place != PLACE_BOTH
        && m->place != PLACE_POST)
        return "layers without norms";
    if (m->qk_norm == QK_EACH_HEAD || m->qk_norm == QK_UNIT)
        return "such norms of queries and keys";
    if (m->embed_dim != 0 && m->embed_dim != m->hidden)
        return "embeddings narrower than the hidden size";
    if (m->logit_scale != 0 && m->logit_scale != 1)
        return "scaled logits";
    if (b->d.n % FLASH_HEAD_MULTIPLE != 0)
        return "heads of such a size (a multiple of 8) yet";
    if (b->run->attention == ATTN_EAGER && !(m->attn_softcap > 0))
        return "eager attention";
    if (b->run->loss == LOSS_FUSED || b->run->loss == LOSS_XENTROPY)
        return "fused loss";
    return build_beyond_plain(b);
}

/* No family's habits. */
static void forget_family(struct builder *b)
{
    struct spec *plain = ARENA_NEW(b->arena, struct spec, 1);
    b->failed = b->failed || plain == NULL;
    if (plain == NULL)
        return;
    *plain = *b->spec;
    plain->family = FAM_DECODER;
    b->spec = plain;
}

void lower_litgpt(struct builder *b)
{
    const char *what = missing(b);
    if (what != NULL) {
        build_refuse(b, what);
        return;
    }
    forget_family(b);
    rotary_tables(b);
    embedding(b);
    build_layers(b, layer);
    head(b);
}
