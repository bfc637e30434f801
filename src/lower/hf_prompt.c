/*
 * Owns PEFT's trained tokens before the words: prompt tuning and P-tuning, as
 * PeftModelForCausalLM.forward puts them there (peft/peft_model.py), and what
 * makes them (peft/tuners/prompt_tuning, p_tuning); and prefixes, of which each
 * layer has keys and values alone (tuners/prefix_tuning), in a DynamicCache.
 * Refuses to know the layers that prompts go through as words do.
 */
#include "lower/hf.h"

#include "base/banned.h"

/* Made for all sequences on the host and sent; of each row the first is looked
 * up (PeftModel.get_prompt). */
static tensor_id virtual_ids(struct builder *b)
{
    const struct dim n = DIM("n", b->run->virtual_tokens);
    const struct shape all = SHAPE(b->micro, n);
    return build_copy_as(b, "prompt_tokens", b->ids, &all);
}

/* PEFT makes it in fp32 whatever the model has. */
static tensor_id looked_up(struct builder *b, tensor_id ids, struct dim seqs,
                           struct dim wide)
{
    const struct dim n = DIM("n", b->run->virtual_tokens);
    const struct shape rows = SHAPE(seqs, n, wide);
    const tensor_id table =
        build_param(b, &(struct param){ .name = "prompt_encoder.embedding",
                                        .group = PG_ADAPTER,
                                        .rows = n,
                                        .cols = wide });
    return build_embedding(b, "prompt_encoder", ids, table, &rows);
}

static tensor_id encoder_product(struct builder *b, tensor_id x, struct dim in,
                                 struct dim out)
{
    return build_linear(b, &(struct linear){ .name = "prompt_encoder.mlp_head",
                                             .x = x,
                                             .in = in,
                                             .out = out,
                                             .group = PG_ADAPTER,
                                             .bias = true,
                                             .lora = LORA_NEVER });
}

/* PromptEncoder's: three products, with relu between them. */
static tensor_id encoded(struct builder *b, tensor_id x)
{
    const struct dim wide = DIM("encoder", b->run->encoder_hidden);
    const tensor_id embeds = x;
    x = encoder_product(b, x, b->e, wide);
    x = build_unary(b, OP_RELU, "prompt_encoder.relu", x);
    x = encoder_product(b, x, wide, wide);
    x = build_unary(b, OP_RELU, "prompt_encoder.relu", x);
    x = encoder_product(b, x, wide, b->e);
    hf_hold(b, "input_embeds", embeds);
    return x;
}

void hf_prompt_labels(struct builder *b)
{
    if (!run_prompts(b->run))
        return;
    const struct dim n = DIM("n", b->run->virtual_tokens);
    const struct shape rows = SHAPE(b->t), more = SHAPE(b->micro, n);
    b->labels = build_shared(b, "labels, prompts", DT_INT64, &rows);
    const tensor_id beside = build_shared(b, "prefix_labels", DT_INT64, &more);
    b->p->tensor[b->labels].held = b->p->tensor[beside].held = true;
}

tensor_id hf_with_prompt(struct builder *b, tensor_id x)
{
    if (!run_prompts(b->run))
        return x;
    const struct dim n = DIM("n", b->run->virtual_tokens);
    const struct shape each = SHAPE(b->micro, n, b->e), all = SHAPE(b->t, b->e);
    b->p->tensor[x].needs_grad =
        build_asks_grad(b) && b->run->recompute == RECOMP_FULL;
    tensor_id prompts = looked_up(b, virtual_ids(b), b->one, b->e);
    if (b->run->peft == PEFT_P_TUNING)
        prompts = encoded(b, prompts);
    prompts = build_copy_as(b, "prompts repeated", prompts, &each);
    prompts = build_cast(b, "prompts", prompts, tensor_of(b, x)->dtype);
    hf_linger(b, prompts);
    return build_cat(b, "prompts, words", prompts, x, &all);
}

void hf_hold_prompt(struct builder *b, tensor_id embeds, tensor_id out)
{
    if (!run_prompts(b->run))
        return;
    b->block->holds_output = embeds == out;
    if (embeds == out)
        return;
    b->p->tensor[embeds].framed = false;
    hf_linger(b, embeds);
}

/* ---- prefixes ---- */

/* Keys and values of all layers. */
static struct dim both_dim(struct builder *b)
{
    return DIM("2*layers", build_product(b, 2, b->spec->layers));
}

/* PrefixEncoder's: of each sequence, or a table of a narrower row and two
 * products with tanh between them. */
static tensor_id prefix_rows(struct builder *b)
{
    const struct dim all =
        DIM("2*layers*kv*d", build_product(b, both_dim(b).n, b->K.n));
    const struct dim wide = DIM("encoder", b->run->encoder_hidden);
    const tensor_id ids = virtual_ids(b);
    if (!b->run->prefix_projection)
        return looked_up(b, ids, b->micro, all);
    const tensor_id rows = looked_up(b, ids, b->micro, b->K);
    tensor_id x = encoder_product(b, rows, b->K, wide);
    x = build_unary(b, OP_TANH, "prompt_encoder.tanh", x);
    x = encoder_product(b, x, wide, all);
    hf_hold(b, "prefix_tokens", rows);
    return x;
}

void hf_prefix_gradient(struct builder *b)
{
    if (!run_prefixes(b->run))
        return;
    const struct shape both = SHAPE(DIM("2", 2), b->micro, b->s, b->K);
    b->past_gradient =
        build_tensor(b, "gradient of past_key_values", b->stream, &both);
    b->p->tensor[b->past_gradient].needs_grad = true;
}

/* get_prompt: cast to the model's type, split by layer, and copied into the
 * cache, whose constructor joins each to nothing. A layer joins its part to the
 * words' keys, and values; the gradient of that part is a view of the sum's
 * (CatBackward0), which waits until the engine comes to what was split
 * first. */
void hf_make_prefix(struct builder *b)
{
    if (!run_prefixes(b->run))
        return;
    const struct dim n = DIM("n", b->run->virtual_tokens);
    const struct shape part = SHAPE(both_dim(b), b->micro, n, b->K);
    const struct shape whole = SHAPE(both_dim(b), b->micro, b->s, b->K);
    tensor_id x = build_cast(b, "past_key_values", prefix_rows(b), b->stream);
    x = build_view(b, "past_key_values", x, &part);
    b->p->op[b->p->n_ops - 1].keep_in = 1; /* permuted */
    const tensor_id cache = build_copy_as(b, "cache", x, &part);
    const tensor_id joined = build_tensor(b, "cache", b->stream, &whole);
    struct op *op = build_op(b, OP_VIEW, "cache", &cache, 1);
    op_result(b, op, joined);
    op->place = PLACE_PIECES;
    b->p->tensor[joined].storage = cache;
    b->p->tensor[cache].handed = true;
    b->block->memory = joined;
    b->block->memory_waits = b->block->hands_far = true;
}

void hf_take_prefix(struct builder *b)
{
    if (!run_prefixes(b->run))
        return;
    const struct dim n = DIM("n", b->run->virtual_tokens);
    const struct shape part = SHAPE(b->micro, b->kv, n, b->d);
    b->past_key = build_tensor(b, "past key", b->stream, &part);
    b->past_value = build_tensor(b, "past value", b->stream, &part);
    struct op *op = build_op(b, OP_COPY, "past_key_values", &b->ids, 1);
    op_result(b, op, b->past_key);
    op_byproduct(op, b->past_value);
    struct tensor *const both[] = { &b->p->tensor[b->past_key],
                                    &b->p->tensor[b->past_value] };
    for (unsigned i = 0; i < 2; i++)
        both[i]->needs_grad = both[i]->handed = true;
    b->block->memory = b->past_gradient;
    b->block->hands_far = true;
}

/* DynamicLayer.update: the cache, which the model gives back, has it to the end
 * of the loss. */
static void join(struct builder *b, const char *name, tensor_id past,
                 struct hf_heads *h)
{
    h->rows = b->s;
    const struct shape shape = hf_heads_shape(b, h, h->n);
    h->x = build_cat(b, name, past, h->x, &shape);
    h->layout = HF_HEADS;
    hf_linger(b, h->x);
    build_hold(b, h->x);
}

void hf_with_prefix(struct builder *b, struct hf_heads *k, struct hf_heads *v)
{
    if (!run_prefixes(b->run))
        return;
    join(b, "key_states", b->past_key, k);
    join(b, "value_states", b->past_value, v);
}
