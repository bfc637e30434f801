/*
 * Owns multi-token prediction of the generic decoder in plain modules, as
 * DeepSeek-V3's report has it (arXiv:2412.19437, section 2.2): transformers has
 * no class that trains it. Refuses to know what a layer is.
 * [docs/method.md eq. mtp]
 */
#include "lower/hf.h"

#include "base/banned.h"

static tensor_id module(struct builder *b, tensor_id table, tensor_id ids,
                        tensor_id x)
{
    const struct layer_kind kind = build_layer_kind(b, b->spec->layers - 1);
    const struct dim h2 = DIM("2*h", build_product(b, 2, b->h.n));
    const struct shape tokens = SHAPE(b->t, b->h), joined = SHAPE(b->t, h2);
    tensor_id words = build_embedding(b, "embed_tokens", ids, table, &tokens);
    words = hf_hidden_norm(b, "enorm", words);
    x = hf_hidden_norm(b, "hnorm", x);
    x = build_cat(b, "words, hidden states", words, x, &joined);
    const struct linear l = { .name = "eh_proj",
                              .x = x,
                              .in = h2,
                              .out = b->h,
                              .group = PG_MLP,
                              .lora = LORA_NAMELESS };
    x = hf_linear(b, &l);
    const uint32_t first = b->p->n_ops;
    x = hf_layer(b, &kind, x);
    build_checkpoint(b, first);
    return hf_hidden_norm(b, "shared_head.norm", x);
}

tensor_id hf_mtp(struct builder *b, tensor_id x, tensor_id head, tensor_id loss)
{
    const struct spec *m = b->spec;
    if (m->mtp_layers == 0)
        return loss;
    const tensor_id table =
        m->tied ? head : build_tied_table(b, "embed_tokens of mtp", b->h);
    tensor_id ids = b->ids;
    for (uint64_t i = 0; i < m->mtp_layers; i++) {
        ids = build_copy(b, "input_ids", ids);
        x = module(b, table, ids, x);
        const struct linear l = linear_of_head(b, "mtp.lm_head", x, head);
        const tensor_id one = hf_words_loss(b, build_linear(b, &l));
        loss = build_add(b, "losses", loss, one);
    }
    return loss;
}
