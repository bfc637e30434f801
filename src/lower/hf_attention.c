/*
 * Owns attention proper as transformers calls it: eager in primitives,
 * scaled_dot_product_attention with the kernel that CUDA picks, FlashAttention
 * 2; and the output projection. Which reshapes copy follows from the layout of
 * q, k and v. Refuses to know how these came to be.
 */
#include "lower/hf.h"

#include "base/banned.h"

/* ---- operands ---- */

static struct hf_heads autocast(struct builder *b, struct hf_heads h)
{
    const tensor_id x = build_autocast(b, "autocast", h.x);
    if (x != h.x && h.layout == HF_SLICE)
        h.layout = HF_TOKENS; /* a copy keeps the order, not the gaps */
    h.x = x;
    return h;
}

static struct hf_heads cast(struct builder *b, struct hf_heads h,
                            enum dtype dtype)
{
    const tensor_id x = build_cast(b, "cast", h.x, dtype);
    if (x != h.x && h.layout == HF_SLICE)
        h.layout = HF_TOKENS;
    h.x = x;
    return h;
}

/* repeat_kv: expand, then a reshape that copies, unless one head serves all:
 * then it stays a view, as h.n says, whose gradients are summed only when
 * backward comes here. Falcon leaves that to the products. */
static struct hf_heads repeat_kv(struct builder *b, const char *name,
                                 struct hf_heads h)
{
    const bool expands = b->spec->family != FAM_FALCON;
    if (h.n.n == b->a.n || (h.n.n == 1 && !expands))
        return h;
    const struct shape shape = hf_heads_shape(b, &h, b->a);
    if (h.n.n == 1) {
        h.x = build_view(b, name, h.x, &shape);
        return h;
    }
    h.x = build_copy_as(b, name, h.x, &shape);
    h.layout = HF_HEADS;
    h.n = b->a;
    return h;
}

/* What matmul makes of a 4-D operand: bmm wants b and heads in one factor. A
 * view does for one batch, or where heads lie together. */
static tensor_id operand(struct builder *b, const char *name, struct hf_heads h)
{
    h = autocast(b, h);
    const bool dense =
        h.layout == HF_HEADS || (h.layout == HF_TOKENS && b->a.n == 1);
    if (b->micro.n == 1 || (dense && h.n.n == b->a.n))
        return h.x;
    struct shape shape = shape_of(b, h.x); /* [b, heads, s, width] */
    shape.dim[1] = b->a;
    return build_copy_as(b, name, h.x, &shape);
}

/* The heads of one token side by side again: [b*s, a*d]. */
static tensor_id merge(struct builder *b, tensor_id x, bool copies)
{
    const struct shape shape = SHAPE(b->t, b->O);
    if (copies && b->a.n > 1)
        return build_copy_as(b, "heads merged", x, &shape);
    return build_view(b, "heads merged", x, &shape);
}

/* The module's variables, to the end of what it calls: of scores, beside which
 * they count. */
static void hold_operands(struct builder *b, const struct hf_qkv *o)
{
    hf_hold(b, "query_states", o->q.x);
    hf_hold(b, "key_states", o->k.x);
    hf_hold(b, "value_states", o->v.x);
}

/* ---- eager ---- */

void hf_enter(struct builder *b, tensor_id x)
{
    if (x != TENSOR_NONE && b->n_frame < FRAME_MAX)
        b->frame[b->n_frame++] = x;
}

void hf_leave(struct builder *b)
{
    for (unsigned i = 0; i < b->n_frame; i++)
        hf_hold(b, "variables", b->frame[i]);
    b->n_frame = 0;
}

/* Falcon and BLOOM have names for what becomes of scores; Falcon none for the
 * masked ones, and without alibi one for the scores and what becomes of them. */
static void name_scores(struct builder *b, uint32_t first, uint32_t end)
{
    const bool falcon = b->spec->family == FAM_FALCON;
    if (!falcon && b->spec->family != FAM_BLOOM)
        return;
    const bool named = !falcon || hf_table(b, HF_ALIBI) != TENSOR_NONE;
    for (uint32_t k = first; named && k < (falcon ? end - 1 : end); k++)
        hf_enter(b, b->p->op[k].out[0]);
    for (uint32_t k = first; !named && k < end - 1; k++)
        hf_hold(b, "attention_scores", b->p->op[k].out[0]);
}

static tensor_id eager(struct builder *b, const struct hf_qkv *o)
{
    struct hf_heads q = o->q, k = o->k;
    if (hf_scores_in_fp32(b->spec->family)) {
        q = cast(b, q, DT_FP32);
        k = cast(b, k, DT_FP32);
    }
    k = repeat_kv(b, "k repeated", k);
    const struct hf_heads v = repeat_kv(b, "v repeated", o->v);
    const struct shape square = shape_scores(b);
    const struct shape heads = SHAPE(b->micro, b->a, b->sq, b->dv);
    b->core_attention = true;
    const tensor_id repeated = k.x;
    q = autocast(b, q);
    k = autocast(b, k);
    const tensor_id left = operand(b, "q", q), right = operand(b, "k", k);
    tensor_id scores = build_matmul(b, "scores", left, right, &square);
    const uint32_t first = b->p->n_ops - 1;
    b->p->op[first].onto = b->spec->family == FAM_BLOOM; /* alibi.baddbmm() */
    scores = hf_biased(b, o, scores);
    const uint32_t end = b->p->n_ops;
    const tensor_id p = b->spec->attention_sinks
                            ? hf_with_sinks(b, scores)
                            : hf_probabilities(b, o, scores);
    const tensor_id low = build_autocast(b, "autocast", p);
    const tensor_id context =
        build_matmul(b, "context", low, operand(b, "v", v), &heads);
    b->core_attention = false;
    hold_operands(b, o);
    hf_hold(b, "key_states", repeated);
    name_scores(b, first, end);
    hf_hold_frozen(b, "value_states", v.x);
    b->weights = b->spec->attention_sinks ? low : p; /* .to(), and a name */
    return merge(b, context, true);
}

/* ---- scaled_dot_product_attention ---- */

/* at::_safe_softmax also looks which entries are -inf, and which rows have no
 * others (aten/src/ATen/native/transformers/attention.cpp). */
static tensor_id safe_softmax(struct builder *b, tensor_id scores)
{
    const struct shape square = shape_of(b, scores);
    const tensor_id masked =
        build_tensor(b, "masked entries", DT_BOOL, &square);
    op_result(b, build_op(b, OP_CAST, "masked entries", &scores, 1), masked);
    b->p->tensor[masked].needs_grad = false;
    const tensor_id p = build_softmax(b, "softmax", scores, DT_FP32);
    hf_hold(b, "masked entries", masked);
    return p;
}

/* The mask as a number an entry: from a bool, or the causal one, which serves
 * all sequences. */
static tensor_id mask_in_math(struct builder *b, const struct hf_qkv *o,
                              bool masked, enum dtype dtype)
{
    const struct shape causal = SHAPE(b->sq, b->s);
    const tensor_id given = masked ? hf_mask(b, o) : TENSOR_NONE;
    if (given == TENSOR_NONE && b->attends_all)
        return TENSOR_NONE;
    if (given != TENSOR_NONE && tensor_of(b, given)->dtype != DT_BOOL)
        return given;
    const struct shape shape =
        given == TENSOR_NONE ? causal : shape_of(b, given);
    const tensor_id mask =
        build_tensor(b, "mask", given == TENSOR_NONE ? DT_FP32 : dtype, &shape);
    const tensor_id from = given == TENSOR_NONE ? b->ids : given;
    op_result(b, build_op(b, OP_WHERE, "mask", &from, 1), mask);
    return mask;
}

/* at::_scaled_dot_product_attention_math: q and k times the root of the scale;
 * half precision goes to fp32 and back. What it names lives to its end. */
static tensor_id sdpa_math(struct builder *b, struct hf_qkv *o, bool masked)
{
    const enum dtype dtype = tensor_of(b, o->q.x)->dtype;
    const bool autocasts = b->autocast;
    const struct shape square = shape_scores(b);
    const struct shape heads = SHAPE(b->micro, b->a, b->sq, b->dv);
    struct hf_heads *const all[] = { &o->q, &o->k, &o->v };
    b->autocast = false; /* below autograd: dtypes are as they are */
    b->core_attention = true;
    for (unsigned i = 0; i < 3; i++)
        *all[i] = cast(b, *all[i], DT_FP32);
    const tensor_id wide = o->q.x;
    const tensor_id mask = mask_in_math(b, o, masked, dtype);
    o->k = repeat_kv(b, "k repeated", o->k);
    o->v = repeat_kv(b, "v repeated", o->v);
    const tensor_id expanded = o->k.x;
    for (unsigned i = 0; i < 2; i++) {
        all[i]->x = build_scale(b, "scaled", all[i]->x);
        if (all[i]->layout == HF_SLICE)
            all[i]->layout = HF_TOKENS;
    }
    const tensor_id left = operand(b, "q", o->q);
    const tensor_id right = operand(b, "k", o->k);
    tensor_id p = build_matmul(b, "scores", left, right, &square);
    p = mask == TENSOR_NONE
            ? build_unary_in_place(b, OP_ADD, "masked", p)
            : build_binary_in_place(b, OP_ADD, "masked", p, mask);
    p = safe_softmax(b, p);
    p = build_dropout(b, "attention dropout", p, b->run->attention_dropout);
    tensor_id context =
        build_matmul(b, "context", p, operand(b, "v", o->v), &heads);
    context = build_cast(b, "context", context, dtype);
    hf_hold(b, "query_acc", wide);
    hf_hold(b, "query", o->q.x);
    hf_hold(b, "key_expanded", expanded);
    if (mask != TENSOR_NONE)
        hf_hold(b, "attn_mask", mask);
    b->core_attention = false;
    b->autocast = autocasts;
    return merge(b, context, true);
}

/* QWenAttention.forward (Qwen/Qwen-7B, modeling_qwen.py): of the keys that a
 * collator says are words, in each layer a mask of all pairs. */
static tensor_id qwen_mask(struct builder *b)
{
    const tensor_id words = hf_table(b, HF_MASK);
    const struct shape pairs = SHAPE(b->sq, b->s);
    const struct shape all = SHAPE(b->micro, b->one, b->sq, b->s);
    const tensor_id causal = build_tensor(b, "causal mask", DT_BOOL, &pairs);
    op_result(b, build_op(b, OP_CAST, "causal mask", &b->ids, 1), causal);
    const tensor_id mask =
        build_tensor(b, "mask", tensor_of(b, words)->dtype, &all);
    const tensor_id in[] = { words, causal };
    op_result(b, build_op(b, OP_WHERE, "mask", in, 2), mask);
    hf_enter(b, causal);
    hf_enter(b, mask);
    return mask;
}

/* Rows of a mask that are not aligned are written out, in today's PyTorch of
 * as many heads as the mask has, before of all. */
static tensor_id aligned(struct builder *b, tensor_id bias)
{
    const bool each = b->run->mask_per_head;
    const uint64_t to = each ? MASK_ALIGN_BEFORE : MASK_ALIGN;
    if (b->s.n % to == 0)
        return bias;
    struct shape padded = shape_of(b, bias);
    if (each)
        padded = SHAPE(b->micro, b->a, b->sq, b->s);
    padded.dim[padded.rank - 1] =
        DIM(each ? "ceil16(s)" : "ceil8(s)", (b->s.n / to + 1) * to);
    return build_copy_as(b, "mask padded", bias, &padded);
}

/* Of all sequences: where the kernel gives a bias a gradient, that is of each of
 * them, in rows of 16 (aten/src/ATen/native/transformers/cuda/
 * attention_backward.cu, grad_bias), and summed up afterwards. */
static tensor_id of_each_sequence(struct builder *b, tensor_id bias)
{
    enum { GRADIENT_ALIGN = 16 };
    const uint64_t rows = div_up(b->s.n, GRADIENT_ALIGN);
    const struct shape each =
        SHAPE(b->micro, b->a, b->sq,
              DIM("ceil16(s)", build_product(b, rows, GRADIENT_ALIGN)));
    return build_view(b, "mask of each sequence", bias, &each);
}

/* The mask as the efficient kernel takes it: a number an entry. Every layer
 * does this again. */
static tensor_id attention_bias(struct builder *b, const struct hf_qkv *o,
                                enum dtype dtype)
{
    const bool own = b->spec->family == FAM_QWEN;
    tensor_id bias = own ? qwen_mask(b) : hf_mask(b, o);
    if (tensor_of(b, bias)->dtype == DT_BOOL) {
        const struct shape rows = shape_of(b, bias);
        const tensor_id out = build_tensor(b, "mask", dtype, &rows);
        op_result(b, build_op(b, OP_WHERE, "mask", &bias, 1), out);
        bias = out;
    }
    return aligned(b, build_cast(b, "mask", bias, dtype));
}

static bool pads_heads(const struct builder *b)
{
    return b->d.n % FLASH_HEAD_MULTIPLE != 0;
}

static void pad_head(struct builder *b, const char *name, struct hf_heads *h)
{
    const uint64_t wide = div_up(b->d.n, FLASH_HEAD_MULTIPLE);
    struct shape shape = shape_of(b, h->x);
    shape.dim[shape.rank - 1] = DIM("ceil8(d)", wide * FLASH_HEAD_MULTIPLE);
    h->x = build_copy_as(b, name, h->x, &shape);
}

static tensor_id one_kernel(struct builder *b, const struct hf_qkv *o,
                            tensor_id bias, bool efficient)
{
    const tensor_id out =
        build_attention(b, &(struct attention_args){ .name = "attention",
                                                     .q = o->q.x,
                                                     .k = o->k.x,
                                                     .v = o->v.x,
                                                     .efficient = efficient });
    struct op *op = &b->p->op[b->p->n_ops - 1];
    if (bias != TENSOR_NONE && op->n_in < OP_IN_MAX)
        op->in[op->n_in++] = bias;
    return out;
}

/* Of heads that have no such width padded copies, and of the result, which is
 * kept, a part. */
static tensor_id flash_kernel(struct builder *b, struct hf_qkv *o,
                              tensor_id sinks, bool unused)
{
    const struct shape heads = shape_of(b, o->q.x);
    const double full = (double)b->d.n;
    double wide = full;
    if (pads_heads(b)) {
        pad_head(b, "q padded", &o->q);
        pad_head(b, "k padded", &o->k);
        pad_head(b, "v padded", &o->v);
        const struct shape padded = shape_of(b, o->q.x);
        wide = (double)padded.dim[padded.rank - 1].n;
    }
    const tensor_id out = one_kernel(b, o, sinks, false);
    struct op *op = &b->p->op[b->p->n_ops - 1];
    op->flop_full *= full / wide; /* the model's */
    op->flop_causal *= full / wide;
    if (unused)
        build_flash_unused(b);
    if (run_rings(b->run))
        build_ring(b);
    /* empty_like(q): the result lies as q does (csrc/flash_attn/flash_api.cpp,
       mha_fwd); halves of it that are joined lie heads first */
    const bool copies =
        o->q.layout == HF_HEADS || pads_heads(b) || run_rings(b->run);
    return merge(b,
                 pads_heads(b) ? build_view(b, "attention", out, &heads) : out,
                 copies);
}

static tensor_id sdpa(struct builder *b, struct hf_qkv *o)
{
    const struct hf_qkv given = *o;
    const bool masked = hf_is_masked(b);
    const bool big = b->d.n > FLASH_HEAD_MAX;
    /* sdpa_attention_forward repeats where it cannot group; Falcon calls the
       kernel itself */
    if ((masked || big) && b->spec->family != FAM_FALCON) {
        o->k = repeat_kv(b, "k repeated", o->k);
        o->v = repeat_kv(b, "v repeated", o->v);
        o->k.n = o->v.n = b->a;
    }
    o->q = autocast(b, o->q);
    o->k = autocast(b, o->k);
    o->v = autocast(b, o->v);
    const enum dtype dtype = tensor_of(b, o->q.x)->dtype;
    if (o->bias != TENSOR_NONE) {
        /* flash takes no mask, cuDNN's kernel none with a gradient
           (sdp_utils_cpp.h, check_attn_mask_shape) */
        tensor_id made;
        tensor_id bias = hf_bias_as_mask(b, o->bias, dtype, &made);
        bias = of_each_sequence(b, aligned(b, bias));
        const tensor_id context = one_kernel(b, o, bias, true);
        hf_hold(b, "attention_mask", made);
        return merge(b, context, false);
    }
    /* flash has one width for q, k and v (sdp_utils.cpp) */
    const bool narrow = b->dv.n != b->d.n;
    if (hf_is_half(dtype) && !masked && !big && !narrow) {
        return flash_kernel(b, o, TENSOR_NONE, true);
    }
    if (o->k.n.n != b->a.n) {
        const tensor_id context = sdpa_math(b, o, masked);
        hold_operands(b, &given);
        return context;
    }
    const tensor_id bias = masked ? attention_bias(b, o, dtype) : TENSOR_NONE;
    /* the kernel's result lies sequence by sequence; ChatGLM's rows do not */
    const bool copies = b->spec->family == FAM_CHATGLM && b->micro.n > 1;
    return merge(b, one_kernel(b, o, bias, true), copies);
}

/* ---- FlashAttention 2 ---- */

/* Rows of the batch's real tokens, of heads that lie token by token: a copy
 * where they do not (modeling_flash_attention_utils.py, _index_first_axis). */
static tensor_id real_rows(struct builder *b, const struct hf_heads *h,
                           tensor_id places)
{
    const struct shape shape = shape_of(b, h->x);
    tensor_id x = h->x;
    if (h->layout == HF_HEADS && h->n.n > 1)
        x = build_copy_as(b, "token by token", x, &shape);
    return build_index(b, "real tokens", x, places, &shape);
}

/* _upad_input, flash_attn_varlen_func, pad_input: as if all tokens were real,
 * which is the most. */
static tensor_id unpadded(struct builder *b, struct hf_qkv *o)
{
    const struct shape rows = SHAPE(b->t);
    const struct shape begins = SHAPE(DIM("b+1", b->micro.n + 1));
    const tensor_id places = build_tensor(b, "indices", DT_INT64, &rows);
    const tensor_id starts = build_tensor(b, "cu_seqlens", DT_INT32, &begins);
    op_result(b, build_op(b, OP_CAST, "indices", &b->ids, 1), places);
    op_result(b, build_op(b, OP_CAST, "cu_seqlens", &b->ids, 1), starts);
    o->k.x = real_rows(b, &o->k, places);
    o->v.x = real_rows(b, &o->v, places);
    o->q.x = real_rows(b, &o->q, places);
    const tensor_id out = one_kernel(b, o, starts, false);
    const struct shape heads = shape_of(b, out);
    return merge(b, build_index(b, "all tokens", out, places, &heads), false);
}

static tensor_id flash(struct builder *b, struct hf_qkv *o)
{
    o->q = autocast(b, o->q);
    o->k = autocast(b, o->k);
    o->v = autocast(b, o->v);
    /* gpt-oss: a kernel that takes its sinks
       (kernels-community/vllm-flash-attn3) */
    const tensor_id sinks =
        b->spec->attention_sinks ? hf_sinks(b) : TENSOR_NONE;
    if (hf_pads(b) && sinks == TENSOR_NONE && !pads_heads(b))
        return unpadded(b, o);
    return flash_kernel(b, o, sinks, false);
}

/* ---- the module ---- */

static tensor_id output_of(struct builder *b, tensor_id context)
{
    struct linear l = linear_of_o(b, "o_proj", context);
    if (b->spec->mixer == MIX_CONV) /* out_proj, as of a convolution */
        l.lora |= LORA_MASK(LORA_OUT_PROJ);
    return hf_from_rows(b, "attention all-reduce", hf_linear(b, &l));
}

/* ChatGLM's keys and values, whatever the kernel: a copy for every head, in
 * the order of the tokens (SelfAttention.forward). */
static void expand(struct builder *b, struct hf_qkv *o)
{
    struct hf_heads *const both[] = { &o->k, &o->v };
    for (unsigned i = 0; i < 2 && o->k.n.n != b->a.n; i++) {
        const struct shape shape = hf_heads_shape(b, both[i], b->a);
        both[i]->x = build_copy_as(b, "expanded", both[i]->x, &shape);
        both[i]->layout = HF_TOKENS;
    }
    o->k.n = o->v.n = b->a;
}

/* The module's variables, which attention keeps, but where it sees others. */
static void hold_states(struct builder *b, const tensor_id qkv[3])
{
    static const char *const names[] = { "query_states", "key_states",
                                         "value_states" };
    for (unsigned i = 0; i < 3; i++) {
        if (hf_exchanges(b))
            hf_hold(b, names[i], qkv[i]);
        else
            hf_hold_frozen(b, names[i], qkv[i]);
    }
}

static tensor_id attention_of(struct builder *b, struct hf_qkv *o)
{
    hf_with_prefix(b, &o->k, &o->v);
    o->bias = hf_bias(b);
    const tensor_id q = o->q.x, k = o->k.x, v = o->v.x;
    tensor_id context = TENSOR_NONE;
    struct hf_shard shard = { .positions = TENSOR_NONE };
    if (b->spec->family == FAM_CHATGLM)
        expand(b, o);
    if (hf_exchanges(b))
        hf_scatter_heads(b, o, &shard);
    const struct hf_qkv given = *o;
    switch (hf_kernel(b)) {
    case ATTN_SDPA: context = sdpa(b, o); break;
    case ATTN_FLASH: context = flash(b, o); break;
    case ATTN_EAGER:
    case ATTENTION_COUNT: context = eager(b, o); break;
    }
    if (hf_exchanges(b))
        context = hf_gather_heads(b, &given, context, &shard);
    if (b->spec->attention_gate) {
        const tensor_id s = build_unary(b, OP_TANH, "sigmoid", o->gate);
        context = build_mul(b, "gated", context, s);
    }
    const tensor_id y = output_of(b, context);
    if (b->spec->family == FAM_BLOOM || b->spec->family == FAM_FALCON)
        hf_enter(b, o->fused);
    if (b->spec->family != FAM_BLOOM)
        hf_leave(b);
    if (o->bias != TENSOR_NONE)
        hf_hold(b, "position_bias", o->bias);
    hold_states(b, (const tensor_id[]){ q, k, v });
    return y;
}

/* Queries scaled by place: Llama4TextAttention where nothing rotates, in fp32;
 * Ministral3Attention everywhere, by a factor in their own type. */
static tensor_id tuned(struct builder *b, tensor_id q)
{
    const enum dtype dtype = tensor_of(b, q)->dtype;
    const bool narrow = b->spec->family == FAM_MINISTRAL3;
    const struct shape one = SHAPE(b->sq, b->one), rows = SHAPE(b->sq);
    const tensor_id places = build_copy_as(b, "places", b->ids, &rows);
    const tensor_id scale = build_tensor(b, "attn_scales", DT_FP32, &one);
    op_result(b, build_op(b, OP_CAST, "attn_scales", &places, 1), scale);
    if (narrow)
        return build_mul(b, "q tuned", q,
                         build_cast(b, "attn_scales", scale, dtype));
    return build_cast(b, "q tuned", build_mul(b, "q tuned", q, scale), dtype);
}

/* HunYuanDenseV1Attention and Llama4TextAttention norm what has rotated. */
static void norm_rotated(struct builder *b, struct hf_qkv *o)
{
    if (b->spec->family == FAM_MINISTRAL3
        || (b->spec->tunes_temperature && b->no_rope))
        o->q.x = tuned(b, o->q.x);
    if (b->spec->qk_norm == QK_UNIT && build_rotates(b)) {
        o->q.x = hf_unit_norm(b, "q", o->q.x);
        o->k.x = hf_unit_norm(b, "k", o->k.x);
    }
    if (b->spec->family != FAM_HUNYUAN)
        return;
    const struct shape q = shape_of(b, o->q.x), k = shape_of(b, o->k.x);
    o->q.x = build_view(b, "q", hf_norm_heads(b, "q", o->q.x, b->a), &q);
    o->k.x = build_view(b, "k", hf_norm_heads(b, "k", o->k.x, b->kv), &k);
}

tensor_id hf_attention(struct builder *b, tensor_id x)
{
    struct hf_qkv o = { .fused = TENSOR_NONE };
    if (b->spec->block_stride > 0)
        return output_of(b, hf_blocks(b, x));
    if (b->spec->merge > 0)
        return output_of(b, hf_window_attention(b, x));
    o.mask = TENSOR_NONE;
    if (b->spec->family == FAM_GPT_NEO)
        o.causal = hf_causal_buffer(b);
    if (build_is_latent(b)) {
        hf_latent(b, x, &o);
    } else {
        hf_project(b, x, &o);
        if (b->spec->family == FAM_FALCON_H1) /* key_multiplier */
            o.k.x = build_scale(b, "k scaled", o.k.x);
        hf_rope(b, &o);
        norm_rotated(b, &o);
    }
    return attention_of(b, &o);
}

tensor_id hf_cross_attention(struct builder *b, tensor_id x)
{
    struct hf_qkv o = { .fused = TENSOR_NONE };
    o.mask = TENSOR_NONE;
    build_cross_begin(b);
    hf_project_cross(b, x, &o);
    const tensor_id y = attention_of(b, &o);
    build_cross_end(b);
    return y;
}
