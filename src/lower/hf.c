/*
 * Owns a model as transformers' <Family>ForCausalLM: embedding, the order of
 * norms, attention and MLP in a layer, head and loss.
 * Refuses to know the insides of those parts (hf_*.c) and what is kept
 * (ir/save_rule.c). With tp above 1 heads, ffn and vocabulary are sharded, as
 * the class's plan has it (hf_ranks.c).
 */
#include "lower/hf.h"

#include <string.h>

#include "base/banned.h"

bool hf_is_liger(const struct builder *b)
{
    return b->run->impl == IMPL_HF_LIGER;
}

/* ---- embedding ---- */

/* A variable of the model's forward. */
void hf_frame(struct builder *b, tensor_id x)
{
    if (x != TENSOR_NONE)
        b->p->tensor[tensor_of(b, x)->storage].framed = true;
}

/* BertModel, ViTModel, CLIPTextModel, ... have a module that embeds, whose
 * result is a variable; the others what they looked up: inputs_embeds. */
static bool embeds_by_module(const struct builder *b)
{
    const struct spec *m = b->spec;
    if (m->decoder_layers > 0 || m->classes > 0)
        return false;
    return m->bidirectional || m->image > 0 || m->head == HEAD_ONE;
}

static void frame_looked_up(struct builder *b, tensor_id x)
{
    if (!embeds_by_module(b))
        hf_frame(b, x);
}

/* All of the first type unless the data say more: gathered from a buffer by
 * position (BertEmbeddings.forward). */
static tensor_id add_token_types(struct builder *b, tensor_id x)
{
    const struct spec *m = b->spec;
    const struct shape rows = SHAPE(hf_position_rows(b));
    const struct shape shape = shape_of(b, x);
    const tensor_id table =
        build_param(b, &(struct param){ .name = "token_type_embeddings",
                                        .group = PG_POSITION,
                                        .rows = DIM("types", m->token_types),
                                        .cols = b->h });
    const tensor_id ids = build_copy_as(b, "token_type_ids", b->ids, &rows);
    const tensor_id types =
        build_embedding(b, "token types", ids, table, &shape);
    return build_add(b, "embeddings + types", x, types);
}

static tensor_id add_positions(struct builder *b, tensor_id x)
{
    const tensor_id table = build_position_table(b, "position_embedding");
    const struct dim rows = hf_position_rows(b);
    const struct shape shape = SHAPE(rows, b->h), each = SHAPE(rows);
    tensor_id ids = hf_table(b, HF_POSITIONS);
    if (b->spec->family == FAM_BART)
        ids = build_copy_as(b, "positions", b->ids, &each);
    const tensor_id places =
        build_embedding(b, "positions", ids, table, &shape);
    frame_looked_up(b, places);
    return build_add(b, "embeddings + positions", x, places);
}

/* By a number, or by a buffer of one, in the type of the weights
 * (Gemma3TextScaledWordEmbedding). */
static tensor_id scaled_embedding(struct builder *b, tensor_id x)
{
    const bool whole = b->spec->family == FAM_MINICPM3; /* a whole number */
    if (!whole && b->spec->family != FAM_GEMMA3)
        return build_scale(b, "embeddings scaled", x);
    const struct shape one = SHAPE(b->one);
    const tensor_id buffer =
        build_buffer(b, "embed_scale", whole ? DT_INT64 : b->stream, &one);
    const tensor_id scale = build_cast(b, "embed_scale", buffer, b->stream);
    return build_mul(b, "embeddings scaled", x, scale);
}

/* transformers' enable_input_require_grads hooks the module that looks words
 * up: what the class makes of its result has a graph, though nothing of it is
 * trained, and that result is a leaf. */
static void ask_grad(struct builder *b, tensor_id x)
{
    struct tensor *t = &b->p->tensor[x];
    if (b->frozen && !t->needs_grad && b->whole->vision == NULL
        && b->run->virtual_tokens == 0 && build_asks_grad(b))
        t->needs_grad = t->leaf = true;
}

/* GemmaTextScaledWordEmbedding and its like hand out scaled rows. */
static bool scales_in_module(const struct builder *b)
{
    const enum family family = b->spec->family;
    return family == FAM_GEMMA || family == FAM_GEMMA2 || family == FAM_GEMMA3
           || family == FAM_VAULTGEMMA || family == FAM_MINICPM3
           || family == FAM_BART;
}

/* Whether inputs_embeds is what was scaled: by the module, or in place of what
 * it handed out (GraniteModel.forward). */
static bool names_scaled(const struct builder *b)
{
    static const enum family rebind[] = { FAM_GEMMA,       FAM_GEMMA2,
                                          FAM_VAULTGEMMA,  FAM_MINICPM3,
                                          FAM_GRANITE,     FAM_GRANITEMOE,
                                          FAM_GRANITEMOES, FAM_GRANITE_HYB,
                                          FAM_HYPERCLOVAX };
    return b->spec->embed_scale && IS_AMONG(b->spec->family, rebind);
}

/* What the layers take as it is, is their input: next_input, build.c. */
static void settle_leaf(struct builder *b, tensor_id leaf, tensor_id out)
{
    struct tensor *t = &b->p->tensor[leaf];
    if (t->leaf && tensor_of(b, out)->storage == t->storage)
        t->needs_grad = t->leaf = false;
}

static bool scales_late(const struct builder *b) /* after the dropout */
{
    return b->spec->family == FAM_PHI3SMALL;
}

/* What words are looked up as, scaled where that comes first: *leaf is what
 * asks for a gradient, *embeds what has a prompt before it. */
static tensor_id looked_up(struct builder *b, tensor_id *leaf,
                           tensor_id *embeds)
{
    const struct spec *m = b->spec;
    const tensor_id table = build_word_table(b, "embed_tokens", b->e);
    const struct shape shape = SHAPE(b->words, b->e);
    hf_whole_gradient(b, table);
    tensor_id x =
        build_embedding(b, "embed_tokens", hf_own_ids(b), table, &shape);
    if (b->run->kbit_cast == KBIT_CAST_NORMS) /* as from the first layer on */
        x = build_cast(b, "as the norms", x, b->param);
    x = hf_from_rows(b, "embedding all-reduce", x);
    *leaf = x;
    if (!scales_in_module(b))
        ask_grad(b, x);
    const bool inside = m->family == FAM_GEMMA3 || m->family == FAM_FALCON_H1;
    if (inside && m->embed_scale)
        x = scaled_embedding(b, x);
    *embeds = x = hf_with_prompt(b, x);
    const bool again = names_scaled(b);
    if (m->family != FAM_GEMMA3 && !again) /* its embedding scales */
        frame_looked_up(b, x);
    if (m->embed_scale && !scales_late(b) && !inside)
        x = scaled_embedding(b, x);
    if (again)
        frame_looked_up(b, x);
    if (scales_in_module(b))
        ask_grad(b, *leaf = x);
    return x;
}

tensor_id hf_words(struct builder *b)
{
    const struct spec *m = b->spec;
    tensor_id leaf, embeds;
    hf_make_prefix(b);
    tensor_id x = looked_up(b, &leaf, &embeds);
    if (b->e.n != b->h.n) /* OPT-350m */
        x = build_linear(b, &(struct linear){ .name = "project_in",
                                              .x = x,
                                              .in = b->e,
                                              .out = b->h,
                                              .group = PG_EMBED,
                                              .lora = LORA_NAMELESS });
    if (m->family == FAM_GPT_BIGCODE) /* whether or not a kernel reads it */
        (void)hf_causal_buffer(b);
    if (m->token_types > 0)
        x = add_token_types(b, x);
    if (m->position == POS_LEARNED)
        x = add_positions(b, x);
    if (m->embedding_norm)
        x = hf_hidden_norm(b, "embedding norm", x);
    x = build_dropout(b, "embedding dropout", x, b->run->embed_dropout);
    x = scales_late(b) ? scaled_embedding(b, x) : x;
    hf_hold_prompt(b, embeds, x);
    settle_leaf(b, leaf, x);
    return x;
}

static void embed(struct builder *b)
{
    build_begin(b, BLOCK_EMBED, "embedding");
    if (b->whole->vision != NULL)
        build_to_vision(b);
    if (b->spec->image == 0 && b->spec->mel_bins == 0) {
        const tensor_id x = hf_words(b);
        if (embeds_by_module(b) || b->spec->family == FAM_GEMMA3)
            hf_frame(b, x);
        build_end(b, x);
        return;
    }
    const tensor_id x = b->spec->classes > 0    ? hf_dit_embed(b)
                        : b->spec->mel_bins > 0 ? hf_audio_embed(b)
                                                : hf_image_embed(b);
    const tensor_id out =
        build_dropout(b, "embedding dropout", x, b->run->embed_dropout);
    if (embeds_by_module(b))
        hf_frame(b, out);
    build_end(b, out);
}

/* ---- layer ---- */

static tensor_id drop(struct builder *b, tensor_id x)
{
    return build_dropout(b, "hidden dropout", x, b->run->hidden_dropout);
}

/* Granite and MiniCPM: times a constant. */
static tensor_id scaled_branch(struct builder *b, tensor_id y)
{
    return b->spec->residual_scale ? build_scale(b, "branch scaled", y) : y;
}

static tensor_id feed_forward(struct builder *b, const struct layer_kind *kind,
                              tensor_id x)
{
    return kind->moe ? hf_moe(b, x) : hf_mlp(b, x);
}

/* Attention and MLP side by side, on one norm or on two. */
static tensor_id parallel_layer(struct builder *b,
                                const struct layer_kind *kind, tensor_id x)
{
    const struct spec *m = b->spec;
    const tensor_id first = hf_hidden_norm(b, "input_layernorm", x);
    tensor_id second = first;
    if (!m->shared_norm && m->family == FAM_FALCON)
        second = hf_hidden_norm(b, "mlp_layernorm", x);
    tensor_id attention = hf_attention(b, first);
    if (m->family != FAM_STABLELM && m->family != FAM_FALCON)
        attention = drop(b, attention);
    if (!m->shared_norm && m->family != FAM_FALCON)
        second = hf_hidden_norm(b, "post_attention_layernorm", x);
    tensor_id mlp = feed_forward(b, kind, second);
    static const enum family apart[] = { FAM_COHERE, FAM_COHERE2,
                                         FAM_STABLELM };
    if (m->family == FAM_FALCON) {
        mlp =
            build_binary_in_place(b, OP_ADD, "mlp + attention", mlp, attention);
        x = build_add(b, "residual", x, drop(b, mlp));
        hf_hold_frozen(b, "attention_layernorm_out", first);
        hf_hold_frozen(b, "mlp_layernorm_out", second);
        hf_hold_frozen(b, "attention_output", attention);
        return x;
    }
    if (IS_AMONG(m->family, apart)) {
        x = build_add(b, "residual", x, attention);
        x = build_add(b, "residual", x, drop(b, mlp));
    } else {
        mlp = drop(b, mlp);
        const tensor_id both = build_add(b, "mlp + attention", mlp, attention);
        x = build_add(b, "residual", both, x);
        hf_hold(b, "attn_output", attention);
        hf_hold(b, "mlp_output", mlp);
    }
    if (m->family != FAM_GPT_NEOX) /* calls its norms within expressions */
        hf_hold_frozen(b, "hidden_states", first);
    return x;
}

/* The norm of a sum. BERT's modules write one expression, whose operands are
 * variables still (BertSelfOutput.forward, BertOutput.forward). */
static tensor_id normed_sum(struct builder *b, const char *name, tensor_id x,
                            tensor_id y)
{
    const tensor_id sum =
        hf_hidden_norm(b, name, build_add(b, "residual", x, y));
    if (b->spec->bidirectional) {
        hf_hold(b, "input_tensor", x);
        hf_hold(b, "hidden_states", y);
    }
    return sum;
}

/* Where that has a gradient and is not cast it is kept anyway; without a graph
 * nothing else keeps it: in a frozen part, under a checkpoint, and as the input
 * of frozen weights under adapters. */
void hf_hold_frozen(struct builder *b, const char *name, tensor_id x)
{
    const bool frozen = b->run->stops && !tensor_of(b, x)->needs_grad;
    if (b->autocast || frozen || b->frozen || b->run->recompute == RECOMP_FULL)
        hf_hold(b, name, x);
}

static tensor_id attention_half(struct builder *b,
                                const struct layer_kind *kind, tensor_id x,
                                bool cross)
{
    const struct spec *m = b->spec;
    const bool before = m->place == PLACE_PRE || m->place == PLACE_BOTH;
    const bool after = m->place == PLACE_POST || m->place == PLACE_BOTH;
    tensor_id y = x;
    if (m->residual_fp32) { /* MambaBlock.forward */
        y = build_cast(b, "as the weight", x, b->param);
        x = build_cast(b, "residual fp32", x, DT_FP32);
    }
    y = before ? hf_hidden_norm(b, "input_layernorm", y) : y;
    const tensor_id normed = y;
    y = cross ? hf_cross_attention(b, y) : hf_mixer(b, kind->mixer, y);
    if (kind->mixer != MIX_ATTENTION
        && kind->mixer != MIX_CONV) /* a variable, to the mixer's end */
        hf_hold(b, "hidden_states", normed);
    else
        hf_hold_frozen(b, "hidden_states", normed);
    if (after)
        y = hf_hidden_norm(b, "post_attention_layernorm", y);
    if (m->family == FAM_FALCON) /* dropout_add(..., attention_dropout) */
        y = build_dropout(b, "hidden dropout", y, b->run->attention_dropout);
    else if (m->family != FAM_STABLELM && m->family != FAM_PHI3SMALL
             && m->family != FAM_DISTILBERT)
        y = drop(b, y);
    y = scaled_branch(b, y);
    static const enum family named[] = { FAM_GPT2,     FAM_GPT_BIGCODE,
                                         FAM_GPT_NEO,  FAM_FALCON,
                                         FAM_STABLELM, FAM_MPT,
                                         FAM_LLAMA4 };
    if (IS_AMONG(m->family, named))
        b->branch = y; /* attn_output, to the end of the layer */
    if (m->place == PLACE_AFTER_RESIDUAL)
        return normed_sum(b, "self_attn_layer_norm", x, y);
    x = build_add(b, "residual", x, y);
    if (m->family == FAM_BLOOM) /* dropout_add stands in the module */
        hf_leave(b);
    /* attention_layernorm_out, hidden_states */
    if (m->family == FAM_FALCON || m->family == FAM_STABLELM)
        hf_enter(b, normed);
    return x;
}

/* FalconH1DecoderLayer: one norm, two mixers, their sum. */
static tensor_id both_half(struct builder *b, const struct layer_kind *kind,
                           tensor_id x)
{
    const tensor_id normed = hf_hidden_norm(b, "input_layernorm", x);
    tensor_id mamba = hf_mixer(b, kind->mixer, normed);
    mamba = build_scale(b, "mamba scaled", mamba);
    tensor_id y = build_scale(b, "attention input scaled", normed);
    y = build_scale(b, "attention scaled", hf_attention(b, y));
    x = build_add(b, "residual", x,
                  build_add(b, "mamba + attention", mamba, y));
    hf_hold_frozen(b, "hidden_states", normed);
    hf_hold(b, "mamba_hidden_states", mamba);
    hf_hold(b, "attention_hidden_states", y);
    return x;
}

static tensor_id self_attention_half(struct builder *b,
                                     const struct layer_kind *kind, tensor_id x)
{
    return attention_half(b, kind, x, false);
}

static tensor_id serial_layer(struct builder *b, const struct layer_kind *kind,
                              tensor_id x)
{
    const struct spec *m = b->spec;
    const bool before = m->place == PLACE_PRE || m->place == PLACE_BOTH;
    const bool after = m->place == PLACE_POST || m->place == PLACE_BOTH;
    const tensor_id input = x;
    if (kind->mixer != MIX_NONE)
        x = build_part(b, kind, x,
                       m->both_mixers ? both_half : self_attention_half);
    if (kind->place == LAYER_DECODER || kind->place == LAYER_LAST)
        x = attention_half(b, kind, x, true);
    if (m->ffn == 0 /* Mamba */
        || (m->lone_parts && kind->mixer != MIX_NONE))
        return x;
    tensor_id y = before ? hf_hidden_norm(b, "mlp norm", x) : x;
    const tensor_id normed = y;
    y = feed_forward(b, kind, y);
    hf_hold_frozen(b, "hidden_states", normed);
    if (after)
        y = hf_hidden_norm(b, "post_feedforward_layernorm", y);
    y = scaled_branch(b, drop(b, y));
    if (m->place != PLACE_AFTER_RESIDUAL) {
        x = build_add(b, "residual", x, y);
        hf_leave(b);
        return x;
    }
    y = normed_sum(b, "final_layer_norm", x, y);
    if (m->bidirectional) /* by the loop over layers */
        hf_hold(b, "layer input", input);
    return y;
}

/* ---- between two stacks ---- */

/* The encoder ends, and the decoder begins with the labels, moved one place to
 * the right (_shift_right). */
static tensor_id joint(struct builder *b, tensor_id x)
{
    const struct shape whole = shape_of(b, x);
    x = b->spec->final_norm ? hf_hidden_norm(b, "encoder final norm", x)
                            : build_view(b, "encoder's result", x, &whole);
    if (b->spec->relative_buckets > 0)
        x = build_dropout(b, "final dropout", x, b->run->hidden_dropout);
    build_to_decoder(b, x);
    const struct shape rows = SHAPE(b->t), shape = SHAPE(b->t, b->e);
    const tensor_id ids =
        build_copy_as(b, "decoder_input_ids", b->labels, &rows);
    const tensor_id table = build_word_table(b, "embed_tokens", b->e);
    x = build_embedding(b, "embed_tokens", ids, table, &shape);
    hf_frame(b, x);
    if (b->spec->target_positions > 0)
        x = hf_audio_target_positions(b, x);
    else if (b->spec->position == POS_LEARNED)
        x = add_positions(b, x);
    if (b->spec->embedding_norm)
        x = hf_hidden_norm(b, "embedding norm", x);
    return build_dropout(b, "embedding dropout", x, b->run->embed_dropout);
}

tensor_id hf_layer(struct builder *b, const struct layer_kind *kind,
                   tensor_id x)
{
    if (kind->place == LAYER_JOINT) {
        if (b->whole->vision == NULL)
            return joint(b, x);
        x = hf_to_text(b, x);
        hf_frame(b, x);
        return x;
    }
    if (b->spec->classes > 0)
        return hf_dit_layer(b, x);
    const bool seen = b->spec->merge > 0;
    if (kind->deep && seen)
        hf_deep_merger(b, x);
    b->weights = b->branch = TENSOR_NONE;
    hf_take_prefix(b);
    x = b->spec->parallel_residual ? parallel_layer(b, kind, x)
                                   : serial_layer(b, kind, x);
    if (b->weights != TENSOR_NONE) /* hidden_states, _ = self.self_attn(...) */
        hf_hold_frozen(b, "attn_weights", b->weights);
    if (b->branch != TENSOR_NONE)
        hf_hold(b, "attn_output", b->branch);
    return kind->deep && !seen ? hf_add_features(b, x) : x;
}

/* ---- the model ---- */

static void refuse_kernel(struct builder *b)
{
    const bool flash = b->run->attention == ATTN_FLASH;
    const bool eager = b->run->attention == ATTN_EAGER;
    const bool sdpa = hf_kernel(b) == ATTN_SDPA;
    memplan_error *e = diag_add(b->diag, MEMPLAN_E_UNSUPPORTED,
                                "Hugging Face's layers have no %s attention "
                                "for this family",
                                flash   ? "flash"
                                : eager ? "eager"
                                        : "sdpa");
    memcpy(e->key, "attention", sizeof("attention"));
    diag_hint(e, "use --attention %s",
              sdpa                         ? "sdpa"
              : hf_kernel(b) == ATTN_FLASH ? "flash"
                                           : "eager");
}

/* Whether the head's gradient is the words'. */
static bool head_fills_words(const struct program *p)
{
    const struct block *head = &p->block[p->head];
    const struct tensor *t;
    for (tensor_id id = head->weights; id != TENSOR_NONE; id = t->next) {
        t = &p->tensor[id];
        if (t->words && t->tied && t->trainable)
            return true;
    }
    return false;
}

/* ... which is a copy's, cast. */
static bool head_casts_words(const struct program *p)
{
    const struct block *head = &p->block[p->head];
    for (uint32_t i = head->op_first; i < head->op_first + head->op_count; i++)
        if (p->op[i].kind == OP_CAST
            && p->tensor[p->op[i].in[0]].role == ROLE_PARAM
            && p->tensor[p->op[i].in[0]].tied)
            return true;
    return false;
}

/* Where a block uses a tensor again that one below has, backward comes to it
 * first; but the words of a tied head have a gradient by then: a view, which is
 * not added to in place. */
static void gradients_wait(struct builder *b)
{
    struct program *p = b->p;
    if (b->failed) /* lists may be cut */
        return;
    const bool filled = head_fills_words(p), cast = head_casts_words(p);
    for (uint32_t i = 0; i < p->n_blocks; i++) {
        struct tensor *t;
        for (tensor_id id = p->block[i].weights; id != TENSOR_NONE;
             id = t->next) {
            t = &p->tensor[id];
            t->waits = t->again && !(t->words && filled);
            t->sums = t->again && !t->waits && !cast;
        }
    }
}

void lower_hf(struct builder *b)
{
    if (b->run->given[KEY_ATTENTION] && hf_kernel(b) != b->run->attention)
        refuse_kernel(b);
    hf_make_tables(b);
    embed(b);
    build_layers(b, hf_layer);
    hf_head(b);
    gradients_wait(b);
    /* self.self_attn, self.mlp, self.input_layernorm, ...: Llama and what
       descends from it; the older families as they run */
    b->p->norms_last = b->whole->norm == NORM_RMS;
}
