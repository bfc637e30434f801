/*
 * Owns what stands between a vision part and a text part, and on CLIP's two
 * towers: norms and adapters at the end of the first, projectors, image tokens
 * in place of words, products to one width. Refuses to know the layers.
 */
#include "lower/hf.h"

#include "base/banned.h"

/* ---- the end of a vision part ---- */

static struct linear projection(tensor_id x, const char *name, struct dim in,
                                struct dim out)
{
    return (struct linear){ .name = name,
                            .x = x,
                            .in = in,
                            .out = out,
                            .group = PG_PROJECTOR,
                            .lora = LORA_NAMELESS };
}

/* A product of the vision part's own. */
static struct linear product(tensor_id x, const char *name, struct dim in,
                             struct dim out)
{
    struct linear l = projection(x, name, in, out);
    l.group = PG_MLP;
    l.lora = LORA_NAMELESS;
    return l;
}

/* Llama4VisionPixelShuffleMLP: patches side by side become one token, in two
 * copies (pixel_shuffle). */
static tensor_id adapter(struct builder *b, tensor_id x)
{
    const struct spec *m = b->spec;
    const uint64_t side = m->image / m->patch;
    const uint64_t fewer = (uint64_t)((double)side * m->pixel_shuffle);
    const struct dim tokens =
        DIM("tokens", build_product(b, b->micro.n, fewer * fewer));
    const struct dim in = DIM("f", m->ffn), mid = DIM("in", m->adapter_in);
    const struct dim out = DIM("out", m->adapter_out);
    const struct shape patches =
        SHAPE(b->micro, DIM("patches", side * side), b->h);
    const struct shape shuffled = SHAPE(tokens, in);
    const tensor_id states = x;
    x = build_view(b, "patches", x, &patches);
    x = build_copy(b, "pixel shuffle", x);
    x = build_copy_as(b, "pixel shuffle", x, &shuffled);
    const tensor_id pixels = x;
    struct linear l = product(x, "adapter fc1", in, mid);
    x = build_activation(b, "adapter act", ACT_GELU, build_linear(b, &l));
    l = product(x, "adapter fc2", out, out);
    x = build_activation(b, "adapter act", ACT_GELU, build_linear(b, &l));
    hf_hold(b, "hidden_state", states);
    hf_hold(b, "encoded_patches", pixels);
    return x;
}

/* MultiheadAttention's one matrix, which it splits into the query's rows and
 * those of keys and values: both parts' gradients wait for each other. */
static void head_weights(struct builder *b, tensor_id parts[2])
{
    const uint64_t h = b->h.n;
    const tensor_id weight = build_param(
        b, &(struct param){ .name = "head in_proj",
                            .group = PG_HEAD,
                            .rows = DIM("3*h", build_product(b, 3, h)),
                            .cols = b->h,
                            .matmul = true });
    const struct dim both = DIM("2*h", build_product(b, 2, h));
    build_split(b, "head in_proj", weight, parts,
                (const struct shape[]){ SHAPE(b->h, b->h), SHAPE(both, b->h) },
                2);
}

/* Autocast does not cache what it casts of a part. */
static tensor_id head_product(struct builder *b, const char *name, tensor_id x,
                              struct dim out, tensor_id weight)
{
    struct linear l = projection(x, name, b->h, out);
    l.group = PG_HEAD;
    l.lora = LORA_NEVER;
    l.bias = true;
    l.weight = weight;
    l.has_weight = true;
    return build_linear(b, &l);
}

/* Keys and values lie sequence by sequence, and are wanted place by place: a
 * copy before their product (matmul folds it), one after. */
static void head_keys(struct builder *b, tensor_id x, tensor_id weight,
                      tensor_id kv[2])
{
    const struct shape heads = SHAPE(b->micro, b->a, b->sq, b->d);
    x = build_copy(b, "states", build_autocast(b, "autocast", x));
    const tensor_id both =
        head_product(b, "head in_proj k, v", x,
                     DIM("2*h", build_product(b, 2, b->h.n)), weight);
    const tensor_id copy = build_copy(b, "k, v", both);
    kv[0] = build_view(b, "k", copy, &heads); /* kv[0], kv[1]: of each the */
    kv[1] = build_view(b, "v", copy, &heads); /* gradient is both's, filled */
}

/* torch.nn.functional.multi_head_attention_forward, whose weights are asked
 * for: bmm, softmax, bmm, of one query a sequence. */
static tensor_id head_attention(struct builder *b, tensor_id q,
                                const tensor_id kv[2])
{
    const struct shape query = SHAPE(b->micro, b->a, b->d);
    const struct shape scores = SHAPE(b->micro, b->a, b->sq);
    q = build_view(b, "q", build_scale(b, "q scaled", q), &query);
    tensor_id p = build_matmul(b, "scores", q, kv[0], &scores);
    p = build_softmax(b, "softmax", p, tensor_of(b, p)->dtype);
    return build_matmul(b, "context", p, kv[1], &query);
}

/* SiglipMultiheadAttentionPoolingHead: one learned query a sequence. */
static tensor_id pooling_head(struct builder *b, tensor_id states)
{
    const struct shape one = SHAPE(b->micro, b->h);
    const tensor_id probe = build_param(
        b, &(struct param){ .name = "probe", .group = PG_HEAD, .rows = b->h });
    const tensor_id query = build_copy_as(b, "probe", probe, &one);
    tensor_id weight[2], kv[2];
    head_weights(b, weight);
    const tensor_id q =
        head_product(b, "head in_proj q", query, b->h, weight[0]);
    head_keys(b, states, weight[1], kv);
    const tensor_id context = head_attention(b, q, kv);
    struct linear l = projection(build_view(b, "context", context, &one),
                                 "head out_proj", b->h, b->h);
    l.group = PG_HEAD;
    l.lora = LORA_NEVER;
    l.bias = true;
    const tensor_id x = build_linear(b, &l);
    const tensor_id y = hf_mlp(b, hf_hidden_norm(b, "head norm", x));
    hf_hold(b, "last_hidden_state", states);
    return build_add(b, "residual", x, y);
}

/* CLIP's text hands on its last word's state: the place of the largest id,
 * which a copy in 32 bits tells (CLIPTextModel.forward). */
static tensor_id last_word(struct builder *b, tensor_id x)
{
    const struct shape one = SHAPE(b->micro, b->h);
    const struct shape pairs = SHAPE(DIM("2", 2), b->micro);
    const struct shape all = SHAPE(b->t);
    const tensor_id normed = hf_hidden_norm(b, "final norm", x);
    const tensor_id ids = build_copy_as(b, "ids as int32", b->ids, &all);
    b->p->tensor[ids].dtype = DT_INT32;
    b->p->tensor[ids].bytes /= 2;
    const tensor_id places =
        build_copy_as(b, "sequence, place", b->ids, &pairs);
    const tensor_id pooled = build_index(b, "pooled", normed, places, &one);
    hf_hold_frozen(b, "encoder_outputs", x);
    return pooled;
}

/* SigLIP's norm is of all patches; CLIP's of the token of the class, after it
 * is taken out, in the text before. */
tensor_id hf_states(struct builder *b, tensor_id x)
{
    const struct shape one = SHAPE(b->micro, b->h);
    if (b->spec->merge > 0) {
        const uint64_t last = b->spec->layers - 1;
        if (b->spec->deep_layers > 0 && pattern_has(&b->spec->deep, last))
            hf_deep_merger(b, x);
        return hf_merger(b, x);
    }
    if (b->spec->head == HEAD_ONE && !b->spec->bidirectional)
        return last_word(b, x);
    if (b->spec->head == HEAD_ONE)
        x = build_view(b, "class", x, &one);
    x = hf_hidden_norm(b, "post_layernorm", x);
    if (b->spec->pooling_head && b->whole->vision == NULL)
        return pooling_head(b, x);
    if (b->spec->pooling_head) { /* text is handed what comes before it */
        const bool in_vain = b->in_vain;
        b->in_vain = true;
        const struct shape shape = shape_of(b, x);
        (void)pooling_head(b, build_alias(b, "states", x, &shape));
        b->in_vain = in_vain;
    }
    return b->spec->pixel_shuffle > 0 ? adapter(b, x) : x;
}

/* ---- projectors ---- */

/* Of all images of a micro-batch. */
static struct dim image_tokens(struct builder *b)
{
    return DIM("tokens",
               build_product(b, build_images(b), b->whole->image_tokens));
}

/* Gemma3MultiModalProjector: averages of squares of patches, which are made
 * contiguous for it, normed. */
static tensor_id project_gemma3(struct builder *b, tensor_id x, struct dim in)
{
    const struct dim tokens = image_tokens(b);
    const struct shape shape = SHAPE(tokens, in);
    const tensor_id whole = build_copy(b, "patches, transposed", x);
    const tensor_id pooled =
        build_tensor(b, "avg_pool", tensor_of(b, whole)->dtype, &shape);
    op_result(b, build_op(b, OP_ACTIVATION, "avg_pool", &whole, 1), pooled);
    x = hf_norm(b, &(struct hf_norm){ .name = "mm_soft_emb_norm",
                                      .x = pooled,
                                      .kind = NORM_RMS,
                                      .n = in });
    struct linear l = projection(x, "mm_input_projection", in, b->h);
    l.lora = LORA_NEVER; /* a parameter of the projector's own */
    l.bare = true;
    return build_linear(b, &l);
}

/* Images one by one, and joined again (LlavaModel.get_image_features): a copy,
 * which the model hands out. */
static tensor_id project_llava(struct builder *b, tensor_id x, struct dim in)
{
    const struct spec *m = b->whole;
    struct dim wide = in;
    if (m->joint_layers > 1)
        wide = DIM("layers*h_v", build_product(b, m->joint_layers, in.n));
    struct linear l = projection(x, "linear_1", wide, b->h);
    l.bias = m->joint_bias;
    x = build_activation(b, "projector act", m->joint_act, build_linear(b, &l));
    l = projection(x, "linear_2", b->h, b->h);
    l.bias = m->joint_bias;
    x = build_linear(b, &l);
    hf_frame(b, x); /* pooler_output */
    return build_copy(b, "images joined", x);
}

/* b is the text's. */
static tensor_id project(struct builder *b, tensor_id x)
{
    const struct spec *v = b->whole->vision;
    const struct dim width = DIM("h_v", v->hidden);
    switch (b->whole->joint) {
    case JOINT_GEMMA3: return project_gemma3(b, x, width);
    case JOINT_LLAMA4: {
        const struct linear l = projection(
            x, "projector", DIM("vision_output", v->vision_width), b->h);
        return build_linear(b, &l);
    }
    case JOINT_LLAVA: return project_llava(b, x, width);
    case JOINT_QWEN:    /* hf_merger has done the rest */
        hf_frame(b, x); /* of mm_encoder_outputs, as the input is */
        hf_join_features(b);
        return build_copy(b, "images joined", x);
    case JOINT_CLIP:
    case JOINT_NONE: break;
    }
    return x;
}

/* ---- between the parts ---- */

/* A tensor in LlavaModel's mm_encoder_outputs, to the end of its text. */
static void hand_out(struct builder *b, tensor_id x)
{
    const tensor_id root = tensor_of(b, x)->storage;
    if (root == tensor_of(b, b->block->input)->storage)
        b->block->frames_input = true;
    else if (b->p->tensor[root].role == ROLE_ACTIVATION)
        hf_frame(b, root);
}

/* What backward would need of operations from `op` on, whose result is handed
 * out; to none of which, nor to a tensor from `first` on, a gradient comes. */
static void hold_graph(struct builder *b, uint32_t op, tensor_id first)
{
    struct program *p = b->p;
    for (; op < p->n_ops; op++) {
        tensor_id saved[SAVED_MAX];
        const size_t n = op_saves(p, &p->op[op], saved);
        for (size_t i = 0; i < n; i++)
            hand_out(b, saved[i]);
    }
    for (; first < p->n_tensors; first++) {
        struct tensor *t = &p->tensor[first];
        t->in_vain = t->in_vain || t->trainable;
        t->trainable = t->needs_grad = false;
    }
}

/* A view of states as if a gradient came to it. */
static tensor_id states_again(struct builder *b, tensor_id x, bool needs_grad)
{
    const struct shape shape = shape_of(b, x);
    const tensor_id again = build_alias(b, "states", x, &shape);
    b->p->tensor[again].needs_grad = needs_grad;
    return again;
}

/* The unused layers. A checkpoint's graph is its input. */
static tensor_id unused_layers(struct builder *b, tensor_id x)
{
    const struct layer_kind kind = { .place = LAYER_VISION };
    const bool re = b->run->recompute == RECOMP_FULL;
    const bool needs_grad = tensor_of(b, x)->needs_grad;
    for (uint64_t i = 0; i < b->whole->unused_layers; i++) {
        const uint32_t op = b->p->n_ops;
        const tensor_id first = b->p->n_tensors;
        if (i == 0 || needs_grad)
            hand_out(b, x);
        b->in_unit = true;
        x = hf_layer(b, &kind, states_again(b, x, needs_grad && !re));
        b->in_unit = false;
        for (tensor_id id = first; id < b->p->n_tensors; id++)
            b->p->tensor[id].apart = b->p->tensor[id].role == ROLE_PARAM;
        hold_graph(b, re ? b->p->n_ops : op, first);
    }
    return x;
}

/* What a class runs after the layer whose states it uses: the other layers,
 * SigLIP's norm and head. Its weights are there, and no gradient comes to them;
 * but last_hidden_state is handed out, and its graph with it: of SigLIP's norm
 * too, not of what pooler_output was before the image's features took its
 * place (CLIP's norm, SigLIP's head). */
static void run_in_vain(struct builder *b, tensor_id x)
{
    const bool trained = tensor_of(b, x)->needs_grad;
    const bool one = b->spec->head == HEAD_ONE;
    x = unused_layers(b, x);
    const uint32_t op = b->p->n_ops;
    const tensor_id first = b->p->n_tensors;
    const tensor_id last = hf_states(b, states_again(b, x, trained && !one));
    hand_out(b, one ? x : last);
    hold_graph(b, one ? b->p->n_ops : op, first);
}

/* LlavaModel.get_image_features: the states of one layer, before any norm, or
 * of several side by side: here as often those of the last of these, as the
 * others are kept by the layer that they go into. A slice is copied by the
 * product that takes it, or by autocast before. */
static tensor_id llava_states(struct builder *b, tensor_id x)
{
    const uint64_t n = b->whole->joint_layers;
    const struct dim tokens = image_tokens(b);
    const struct shape shape = SHAPE(tokens, b->h);
    run_in_vain(b, x);
    if (b->whole->joint_crops)
        x = build_view(b, "all but the first", x, &shape);
    if (n > 1) {
        const struct shape wide =
            SHAPE(tokens, DIM("layers*h_v", build_product(b, n, b->h.n)));
        const tensor_id all = build_tensor(b, "states side by side",
                                           tensor_of(b, x)->dtype, &wide);
        op_result(b, build_op(b, OP_CAT, "states side by side", &x, 1), all);
        return all;
    }
    if (!b->whole->joint_crops || b->autocast)
        return x;
    return build_copy(b, "in order", x);
}

static tensor_id clip_product(struct builder *b, const char *name, tensor_id x,
                              uint64_t in)
{
    const struct linear l = projection(
        x, name, DIM("h", in), DIM("projection", b->whole->joint_width));
    return build_linear(b, &l);
}

/* CLIP's vision is done when its text begins: what it hands on waits. */
static tensor_id to_second_tower(struct builder *b, tensor_id x)
{
    x = clip_product(b, "visual_projection", x, b->spec->hidden);
    b->p->tensor[x].storage = b->memory;
    b->block->memory = x;
    b->block->memory_waits = true;
    b->block->holds_input = true; /* vision_outputs.last_hidden_state */
    build_to_text(b);
    x = hf_words(b);
    hf_hold_frozen(b, "vision_outputs", b->block->input);
    return x;
}

/* The image's in place of its words (masked_scatter): a copy of the words' with
 * some of them overwritten, by a mask of one byte a word, which is kept. */
static tensor_id put_image(struct builder *b, tensor_id words, tensor_id image)
{
    const struct shape each = SHAPE(b->t);
    tensor_id mask = hf_table(b, HF_IMAGE_MASK);
    if (mask == TENSOR_NONE) {
        mask = build_tensor(b, "image mask", DT_BOOL, &each);
        op_result(b, build_op(b, OP_COPY, "image mask", &b->ids, 1), mask);
    }
    image = build_cast(b, "image features", image, tensor_of(b, words)->dtype);
    if (b->whole->joint == JOINT_LLAVA || b->whole->joint == JOINT_LLAMA4) {
        hf_linger(b, image);
        build_hold(b, image);
    }
    if (b->whole->joint == JOINT_QWEN) /* image_embeds */
        hf_frame(b, image);
    b->p->tensor[tensor_of(b, words)->storage].framed = false; /* renamed */
    const tensor_id rest = build_where(b, "words", mask, words);
    if (tensor_of(b, rest)->needs_grad)
        return build_binary_in_place(b, OP_ADD, "image tokens", rest, image);
    /* frozen words: the image's gradient needs the mask all the same */
    const tensor_id in[] = { rest, image, mask };
    const struct shape shape = shape_of(b, rest);
    const tensor_id out = build_alias(b, "image tokens", rest, &shape);
    struct op *op = build_op(b, OP_FUSED, "image tokens", in, 3);
    op_result(b, op, out);
    op->keep_in = 4;
    return out;
}

tensor_id hf_to_text(struct builder *b, tensor_id x)
{
    if (b->whole->joint == JOINT_QWEN) { /* the projector, and what it takes */
        b->projects = true;
        b->block->frames_input = true;
    }
    x = b->whole->joint == JOINT_LLAVA ? llava_states(b, x) : hf_states(b, x);
    if (b->whole->joint == JOINT_CLIP)
        return to_second_tower(b, x);
    build_to_text(b);
    b->projects = true;
    x = project(b, x);
    b->projects = false;
    if (b->run->images > 0)
        return put_image(b, hf_words(b), x);
    build_idle(b);
    return hf_words(b);
}

/* Whether a gradient comes to CLIP's vision, or to the product that ends it. */
static bool vision_is_trained(const struct builder *b)
{
    const struct run *r = b->run;
    const bool vision = (r->freeze >> FREEZE_VISION & 1) == 0;
    const bool product = (r->freeze >> FREEZE_PROJECTOR & 1) == 0;
    const uint64_t projector = LORA_MASK(LORA_FULL_PROJECTOR);
    if (build_joins_trained(b, BLOCK_JOINT))
        return true;
    if (!b->frozen || vision || build_asks_grad(b))
        return vision || product || build_asks_grad(b);
    return product
           && ((r->lora_targets & LORA_MASK(LORA_ALL_LINEAR)) != 0
               || (r->lora_full & projector) != 0);
}

void hf_two_towers(struct builder *b)
{
    const struct shape shape =
        SHAPE(b->micro, DIM("projection", b->whole->joint_width));
    if (b->whole->joint != JOINT_CLIP)
        return;
    b->memory = build_shared(b, "image features",
                             b->autocast ? b->compute : b->stream, &shape);
    b->p->tensor[b->memory].needs_grad = vision_is_trained(b);
}

/* ---- CLIP's loss ---- */

/* x / |x|, of which autocast runs the powers in fp32 (_get_vector_norm). */
static tensor_id unit_length(struct builder *b, tensor_id x)
{
    const tensor_id up =
        b->autocast ? build_cast(b, "autocast", x, DT_FP32) : x;
    const tensor_id sum =
        build_mean(b, "sum of squares", build_pow(b, "squares", up));
    const tensor_id norm = build_pow(b, "length", sum);
    return build_binary(b, OP_DIV, "unit length", x, norm);
}

static tensor_id direction_loss(struct builder *b, tensor_id logits)
{
    const struct shape each = SHAPE(b->micro);
    const tensor_id places = build_copy_as(b, "places", b->labels, &each);
    return build_cross_entropy(b, "loss", logits, places);
}

tensor_id hf_contrast(struct builder *b, tensor_id x)
{
    const struct shape square = SHAPE(b->micro, b->micro);
    b->block->memory = b->memory;
    x = clip_product(b, "text_projection", hf_states(b, x), b->spec->hidden);
    const tensor_id image =
        build_autocast(b, "autocast", unit_length(b, b->memory));
    const tensor_id text = build_autocast(b, "autocast", unit_length(b, x));
    const tensor_id scale =
        build_param(b, &(struct param){ .name = "logit_scale",
                                        .group = PG_PROJECTOR,
                                        .rows = b->one,
                                        .fixed = b->frozen });
    tensor_id logits = build_matmul(b, "logits", text, image, &square);
    const enum dtype dtype = tensor_of(b, logits)->dtype;
    logits =
        build_mul(b, "logits scaled", logits,
                  build_unary(b, OP_TANH, "exp", build_autocast_up(b, scale)));
    b->p->tensor[logits].dtype = dtype;
    const tensor_id first = direction_loss(b, logits);
    const tensor_id turned = build_view(b, "transposed", logits, &square);
    return build_scale(b, "loss",
                       build_add(b, "loss", first, direction_loss(b, turned)));
}
