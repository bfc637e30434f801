/*
 * Owns PEFT's trained tokens before the words: prompt tuning and P-tuning, as
 * PeftModelForCausalLM.forward puts them there (peft/peft_model.py), and what
 * makes them (peft/tuners/prompt_tuning, p_tuning). Refuses to know the layers
 * that they go through as words do.
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
static tensor_id looked_up(struct builder *b, tensor_id ids)
{
    const struct dim n = DIM("n", b->run->virtual_tokens);
    const struct shape one = SHAPE(b->one, n, b->e);
    const tensor_id table =
        build_param(b, &(struct param){ .name = "prompt_encoder.embedding",
                                        .group = PG_ADAPTER,
                                        .rows = n,
                                        .cols = b->e });
    return build_embedding(b, "prompt_encoder", ids, table, &one);
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
    tensor_id prompts = looked_up(b, virtual_ids(b));
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
