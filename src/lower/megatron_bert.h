/*
 * What Megatron's BERT has beside a GPT, whoever computes its layers: the
 * third table of embeddings, the head. Only Megatron's lowerings include this.
 */
#ifndef MEMPLAN_LOWER_MEGATRON_BERT_H
#define MEMPLAN_LOWER_MEGATRON_BERT_H

#include "lower/build.h"

static inline bool megatron_is_bert(const struct builder *b)
{
    return b->spec->family == FAM_BERT;
}

/* What it lacks of the model; NULL for nothing. */
const char *megatron_bert_missing(const struct builder *b);

/* What the data loader adds to tokens, labels and loss mask. */
void megatron_bert_inputs(struct builder *b);

/* Embeddings with those of the token types, where the model has the pair
 * loss. */
tensor_id megatron_bert_types(struct builder *b, tensor_id x);

/* The head up to the loss of words, which `words_loss` computes of the
 * vocabulary-parallel logits; then the loss of the pair. x is normed. */
typedef tensor_id megatron_loss_fn(struct builder *b, tensor_id logits);
tensor_id megatron_bert_head(struct builder *b, tensor_id x,
                             megatron_loss_fn *words_loss);

#endif
