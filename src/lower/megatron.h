/*
 * Between the pieces of the Megatron lowering. Nobody else includes this.
 */
#ifndef MEMPLAN_LOWER_MEGATRON_H
#define MEMPLAN_LOWER_MEGATRON_H

#include "lower/build.h"

/* ---- megatron_common.c ---- */

/* Whether a recompute module is asked for. */
bool megatron_recomputes(const struct builder *b, enum recompute_module m);
/* A norm of the model's kind over the last factor. */
tensor_id megatron_norm(struct builder *b, const char *name, tensor_id x,
                        struct dim n);
/* The norm that begins at operation `first` is made again as soon as the
 * gradient of x, what was computed of it last, is there (discard_output_and_
 * register_recompute), where it is its own region. */
void megatron_recalls(struct builder *b, uint32_t first, tensor_id x);
/* What operations keep until the next call waits on the host with what the
 * module keeps, where it is among --offload-modules; OFFMOD_COUNT: with none. */
void megatron_module(struct builder *b, enum offload_module m);
/* All of it goes there, and storages of what is `held` have no memory any more
 * (core/pipeline_parallel/fine_grained_activation_offload.py, bulk_offload). */
void megatron_offloaded(struct builder *b, enum offload_module m,
                        const tensor_id *held, unsigned n);
/* x and the learned positions' rows. */
tensor_id megatron_positions(struct builder *b, tensor_id x);
/* Loss of every token from fp32 logits, which it writes its softmax over. */
tensor_id megatron_cross_entropy(struct builder *b, tensor_id logits,
                                 tensor_id labels);
/* Rows of a table that is shared out by words, before their sum. */
tensor_id megatron_lookup(struct builder *b, tensor_id table, tensor_id ids);
/* What a batch is on the GPU, the rope table, the global memory buffer. Whether
 * attention reads the data loader's mask. */
void megatron_inputs(struct builder *b, bool reads_mask);
/* What of a model, BERT aside, neither kind of layers has; NULL: nothing. */
const char *megatron_missing(const struct builder *b);

/* ---- megatron.c ---- */

/* Words, positions where the model learns them, dropout: `table` looked up by
 * `ids`, reduced or cut to a sequence shard. */
tensor_id megatron_words(struct builder *b, tensor_id table, tensor_id ids);
/* Of a layer's two dropouts, for build_dropout: above 0 where a mask is kept. Of
 * a dropout of 0 none is, but by TorchScript's derivative (symbolic_script.cpp),
 * which core/jit.py had compile the fused kernel before PyTorch 2.2. */
double megatron_residual_dropout(const struct builder *b);
tensor_id megatron_layer(struct builder *b, const struct layer_kind *kind,
                         tensor_id x);
/* Loss of every token, fp32. */
tensor_id megatron_loss(struct builder *b, tensor_id logits, tensor_id labels);

/* ---- megatron_moe.c ---- */

/* The MLP of shared experts, of normed hidden states. */
typedef tensor_id megatron_shared(struct builder *b, tensor_id y);
/* Router, experts, and where the model has them shared ones: of normed hidden
 * states, in their shape, to be added to what came in. */
tensor_id megatron_moe(struct builder *b, tensor_id y, megatron_shared *mlp);
/* The layer's result is there, a sum with `residual`; returns it. */
tensor_id megatron_moe_done(struct builder *b, tensor_id residual, tensor_id x);

/* Where each token goes. */
struct megatron_routing {
    tensor_id probs; /* [tokens, E], zeros where it does not */
    tensor_id map;   /* bool, the same shape */
    tensor_id index; /* of the rows that go to experts, in their order */
};
/* On the way to the experts, with what its callers name until all is done. */
struct megatron_sent {
    struct megatron_routing r;
    tensor_id rows, probs;
    tensor_id permuted, arrived; /* rows as they were sent, and came */
};
/* Numbers of tokens, ranks or experts made of other ones: no gradient. */
tensor_id megatron_map(struct builder *b, const char *name, tensor_id from,
                       enum dtype dtype, const struct shape *shape);
/* Rows of x by index, in this order, as permute() moves them. */
tensor_id megatron_moved_rows(struct builder *b, const char *name, tensor_id x,
                              tensor_id index, const struct shape *shape);
/* So many rows' probabilities of those of all experts; sets r->index. */
tensor_id megatron_permuted_probs(struct builder *b, struct megatron_routing *r,
                                  struct dim rows);
/* Rows are added to where they belong, in `shape`. */
tensor_id megatron_unpermuted(struct builder *b, tensor_id z,
                              const struct megatron_routing *r,
                              const struct shape *shape);
/* What a dispatcher's attributes hold until it is called again; the
 * probabilities with the graph that they came from. */
void megatron_hold_between_calls(struct builder *b,
                                 const struct megatron_sent *s,
                                 tensor_id probs);

/* ---- megatron_flex.c ---- */

/* Whether a kernel of DeepEP's or HybridEP's sends tokens. */
bool megatron_is_flex(const struct builder *b);
/* Tokens to the experts' ranks, once to each, and there by expert. */
struct megatron_sent megatron_flex_sent(struct builder *b, tensor_id y,
                                        const struct megatron_routing *r);
/* ... and back, summed, in the tokens' shape. */
tensor_id megatron_flex_returned(struct builder *b, tensor_id z,
                                 const struct megatron_sent *s);

/* ---- megatron_experts.c ---- */

/* Rows through the rank's experts, in their order; probs: their weights. */
tensor_id megatron_experts(struct builder *b, tensor_id rows, tensor_id probs);
/* Shared experts' result under their own gate, where the model has one. */
tensor_id megatron_gated(struct builder *b, tensor_id y, tensor_id shared);
/* What lies between a layer's products, as fc2's input; probs: of the rows'
 * experts, or TENSOR_NONE. */
void megatron_activation(struct builder *b, tensor_id x, tensor_id probs,
                         struct linear *fc2);

/* ---- megatron_fp8.c ---- */

/* fp8 as in the DeepSeek-V3 report: SwiGLU's result is always made again. */
bool megatron_is_deepseek(const struct builder *b);
/* Linears whose input another operation keeps do so too, under fp8. */
bool megatron_shares_input(const struct builder *b);
/* The linear after attention: its input, and what is kept of that. */
void megatron_context(struct builder *b, tensor_id context, struct linear *out);
/* SwiGLU that keeps its input in 8 bits: fc2's input. */
void megatron_swiglu(struct builder *b, tensor_id z, tensor_id probs,
                     struct linear *fc2);
/* Tokens as they go to their experts, rows of experts before and after their
 * products. */
tensor_id megatron_sent(struct builder *b, tensor_id y);
tensor_id megatron_padded(struct builder *b, const char *name, tensor_id rows);

/* ---- megatron_cp.c: attention of a sequence that is cut over ranks ---- */

/* Factors of shapes outside of attention. */
struct megatron_heads {
    struct dim a, kv, sq, t;
};
/* Whether heads are exchanged for tokens. */
bool megatron_exchanges(const struct builder *b);
/* q, k, v of all tokens and a share of the heads, in place of those given. */
void megatron_scatter_heads(struct builder *b, tensor_id qkv[3],
                            struct megatron_heads *outer);
/* The result of this rank's tokens and all heads. */
tensor_id megatron_gather_heads(struct builder *b, tensor_id context,
                                const struct megatron_heads *outer);
/* The caller's variables, where attention has others. */
void megatron_release_heads(struct builder *b, const tensor_id qkv[3]);
/* What backward has around the kernel that was built last. */
void megatron_exchange_backward(struct builder *b);
/* The kernel built last has keys and values gathered. */
void megatron_gather_keys(struct builder *b, bool copied);

/* ---- megatron_rope.c ---- */

/* Whether queries and keys are turned by PyTorch's kernels. */
bool megatron_turns_unfused(const struct builder *b);
/* x, with tables so wide, as PyTorch's kernels turn it. */
tensor_id megatron_rotated(struct builder *b, const char *name, tensor_id x,
                           struct dim width);

/* ---- megatron_latent.c ---- */

/* q, k and v of latent attention from the normed hidden states. */
void megatron_latent(struct builder *b, tensor_id x, tensor_id qkv[3]);
/* What its variables held until the projection after attention goes. */
void megatron_latent_returns(struct builder *b);

/* ---- megatron_unfused.c ---- */

/* Attention of heads with every step a tensor; a new one, sequence first. */
tensor_id megatron_unfused(struct builder *b, tensor_id qkv[3]);

/* What follows is in a layer's CUDA graph where that part of it is, until
 * b->graphed is false again. [megatron_common.c] */
void megatron_graphed(struct builder *b, enum cuda_graph_scope part);

/* ---- megatron_lora.c ---- */

/* A layer's linears: build_column, build_column_in_buffer, build_row, and the
 * adapter beside them where they have one. */
tensor_id megatron_column(struct builder *b, const struct linear *l);
tensor_id megatron_column_in_buffer(struct builder *b, const struct linear *l);
tensor_id megatron_row(struct builder *b, const struct linear *l);
/* The same of experts, each of them whole on its rank. */
tensor_id megatron_expert(struct builder *b, const struct linear *l);
/* GPTModel.forward has variables: the embedding's result x, to the end of the
 * loss; what the head is given, until here. Without adapters backward needs
 * both. */
void megatron_hold_words(struct builder *b, tensor_id x);
void megatron_let_states_go(struct builder *b, tensor_id x);

/* ---- megatron_mtp.c ---- */

/* Multi-token prediction behind the last layer: x with the losses of the
 * prediction modules attached. `head` is the output layer's weight. */
tensor_id megatron_mtp(struct builder *b, tensor_id x, tensor_id head);

#endif
