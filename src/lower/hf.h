/*
 * Between the pieces of the Hugging Face lowering: tables made once a
 * micro-batch, tensors of heads with their layout in memory, norms, attention,
 * MLPs. Nobody else includes this. What it reproduces is transformers 5.23 on
 * torch 2.13, models/<family>/modeling_<family>.py.
 */
#ifndef MEMPLAN_LOWER_HF_H
#define MEMPLAN_LOWER_HF_H

#include "lower/build.h"

/* ---- hf.c ---- */

tensor_id hf_layer(struct builder *b, const struct layer_kind *kind,
                   tensor_id x);
/* ---- hf_tables.c ---- */

/* What a model makes before its first layer. The inputs first: their order is
 * that of the tensors. */
enum hf_table {
    HF_POSITIONS, /* position ids */
    HF_SHARED_FIRST,
    HF_COS = HF_SHARED_FIRST,
    HF_SIN,
    HF_COS_LOCAL, /* of layers with a window, where these differ */
    HF_SIN_LOCAL,
    HF_ALIBI,
    HF_MASK,
    HF_MASK_SLIDING,
    HF_BIAS, /* T5's, of each attention */
    HF_BIAS_DECODER,
    HF_BIAS_CROSS,
    HF_ORDER, /* of patches, in windows; where images begin, and windows */
    HF_STARTS,
    HF_STARTS_WINDOW,
    HF_TAPS, /* rows of the table of places that each patch's comes from, and
                their shares */
    HF_SHARES,
    HF_IMAGE_MASK, /* where a text has an image */
    HF_TABLE_COUNT
};

/* Buffers that a class registers: at rest too, whatever the kernel needs.
 * [positions, positions] of the longest sequence, and GPT-J's sines. */
tensor_id hf_causal_buffer(struct builder *b);
tensor_id hf_sincos_buffer(struct builder *b);

/* All of them, before the first block. */
void hf_make_tables(struct builder *b);
/* TENSOR_NONE where the model has none. */
tensor_id hf_table(const struct builder *b, enum hf_table which);

/* Rows of positions: OPT and RoBERTa count them in each sequence. */
struct dim hf_position_rows(const struct builder *b);

/* HF_COS or HF_SIN, of the layer at hand. */
tensor_id hf_rope_table(const struct builder *b, enum hf_table which);

/* The kernel of the class: what is asked for, or eager where the class has
 * nothing else. */
enum attention hf_kernel(const struct builder *b);
/* A mask goes to the kernel: layers with a window, Falcon always. */
bool hf_is_masked(const struct builder *b);
/* Some token of a batch is masked, by which attention gets a mask or leaves it
 * out. */
bool hf_pads(const struct builder *b);
/* Fused kernels of Liger replace transformers' modules. */
bool hf_is_liger(const struct builder *b);

static inline bool hf_is_half(enum dtype t)
{
    return t == DT_BF16 || t == DT_FP16;
}

/* ---- hf_relative.c: T5's position biases ---- */

/* With the shared tensors. */
void hf_make_biases(struct builder *b);
/* Of the attention at hand, looked up in the first layer of a stack; TENSOR_NONE
 * where the model has none. */
tensor_id hf_bias(struct builder *b);
/* ... as the kernel takes it, with the mask in it; *made: what transformers'
 * function around that has in a variable. */
tensor_id hf_bias_as_mask(struct builder *b, tensor_id bias, enum dtype dtype,
                          tensor_id *made);

/* ---- hf_image.c ---- */

/* The tensor of pixels, with the inputs. */
void hf_image_input(struct builder *b);
/* Each patch of x times one weight. */
tensor_id hf_patch_product(struct builder *b, tensor_id x);
/* Patches, the token of the class, positions. */
tensor_id hf_image_embed(struct builder *b);

/* ---- hf_parts.c ---- */

/* What a part of a model hands on: its normed states, or one of each sequence.
 */
tensor_id hf_states(struct builder *b, tensor_id x);
/* From the last layer of a vision part to the first of the text. */
tensor_id hf_to_text(struct builder *b, tensor_id x);
/* Of CLIP: where the image's features wait, with the shared tensors. */
void hf_two_towers(struct builder *b);
/* From the text's last layer to the loss of both towers. */
tensor_id hf_contrast(struct builder *b, tensor_id x);

/* Words, and what a family does to them before the first layer. (hf.c) */
tensor_id hf_words(struct builder *b);
/* ---- hf_prompt.c ---- */

/* Labels as long as the sequence, with the shared tensors. */
void hf_prompt_labels(struct builder *b);
/* x, words, behind virtual tokens, where there are such; x itself else. */
tensor_id hf_with_prompt(struct builder *b, tensor_id x);
/* PEFT's forward has what that gave in a variable, to the end of the loss; `out`
 * is what the layers get. */
void hf_hold_prompt(struct builder *b, tensor_id embeds, tensor_id out);
struct hf_heads;

/* What a layer's backward leaves, beside the shared tensors; keys and values of
 * all layers, in the embedding's block; those of the layer at hand; and they
 * before its own. Nothing where no prefix is trained. */
void hf_prefix_gradient(struct builder *b);
void hf_make_prefix(struct builder *b);
void hf_take_prefix(struct builder *b);
void hf_with_prefix(struct builder *b, struct hf_heads *k, struct hf_heads *v);

/* ---- hf_audio.c ---- */

/* The tensor of spectra, with the inputs. */
void hf_audio_input(struct builder *b);
/* Two convolutions and positions. */
tensor_id hf_audio_embed(struct builder *b);
/* The decoder's own table of positions, added. */
tensor_id hf_audio_target_positions(struct builder *b, tensor_id x);

/* ---- hf_dit.c ---- */

/* Latents, times and classes, with the inputs. */
void hf_dit_input(struct builder *b);
/* What the layers share of times and classes, with the tables. */
void hf_dit_shared(struct builder *b);
tensor_id hf_dit_embed(struct builder *b);
tensor_id hf_dit_layer(struct builder *b, tensor_id x);
/* To the loss. */
tensor_id hf_dit_head(struct builder *b, tensor_id x);

/* ---- hf_head.c ---- */

/* The block on the last layer, to the loss. */
void hf_head(struct builder *b);

/* Of logits against the words (the next ones, but in encoders). */
tensor_id hf_words_loss(struct builder *b, tensor_id logits);

/* A variable of Python holds x up to here. */
void hf_hold(struct builder *b, const char *name, tensor_id x);
/* ... of the whole model's forward, up to its end. */
void hf_linger(struct builder *b, tensor_id x);
/* ... up to the end of the stack of layers that follows, and of the norm on its
 * last. (hf.c) */
void hf_frame(struct builder *b, tensor_id x);
/* The same of a variable to the end of what it is handed to: only where no graph
 * keeps it. */
void hf_hold_frozen(struct builder *b, const char *name, tensor_id x);
/* The same of what it returns, which the training loop may hold on to. */
void hf_outputs(struct builder *b, const char *name, tensor_id x);

/* ---- hf_norm.c ---- */

struct hf_norm {
    const char *name;
    tensor_id x;
    enum norm_kind kind;
    struct dim n;  /* parameters, on this rank */
    uint64_t full; /* of them in the whole model; 0: n */
};
/* Over the last factor of x, as the family's class computes it. */
tensor_id hf_norm(struct builder *b, const struct hf_norm *n);
/* x over its root mean square, in fp32, without a weight (Llama 4). */
tensor_id hf_unit_norm(struct builder *b, const char *name, tensor_id x);
/* The model's own norm over the hidden size. */
tensor_id hf_hidden_norm(struct builder *b, const char *name, tensor_id x);

/* ---- heads ---- */

/* Where the [b, heads, s, d] that attention sees really lies. It decides
 * whether a reshape is a view or a copy. */
enum hf_layout {
    HF_TOKENS, /* transposed [b, s, heads, d]: dense */
    HF_HEADS,  /* contiguous */
    HF_SLICE   /* part of a larger tensor */
};

struct hf_heads {
    tensor_id x;
    enum hf_layout layout;
    struct dim n;    /* heads */
    struct dim rows; /* of a sequence, where not s/cp: keys of another */
};

struct hf_qkv {
    struct hf_heads q, k, v;
    tensor_id gate;    /* where the model has one */
    tensor_id fused;   /* q, k and v side by side; TENSOR_NONE */
    enum dtype hidden; /* of attention's input: Falcon's softmax takes it */
    tensor_id mask;    /* of this layer alone; TENSOR_NONE: the model's */
    tensor_id causal;  /* GPT-Neo's buffer */
    tensor_id bias;    /* T5's; TENSOR_NONE */
};

/* [b, heads, s/cp, d] */
static inline struct shape hf_shape(const struct builder *b, struct dim heads)
{
    return SHAPE(b->micro, heads, b->sq, b->d);
}

/* [b, heads, rows, d] */
static inline struct shape hf_heads_shape(const struct builder *b,
                                          const struct hf_heads *h,
                                          struct dim heads)
{
    return SHAPE(b->micro, heads, h->rows.n != 0 ? h->rows : b->sq, b->d);
}

/* ---- hf_project.c: from hidden states to q, k, v ---- */

void hf_project(struct builder *b, tensor_id x, struct hf_qkv *out);
/* k and v of the encoder's result. */
void hf_project_cross(struct builder *b, tensor_id x, struct hf_qkv *out);

/* ---- hf_ulysses.c: heads exchanged for tokens around attention ---- */

/* Factors of shapes outside of it, and what its module holds. */
struct hf_shard {
    struct dim a, kv, A, K, O, sq, t;
    tensor_id positions;
};
bool hf_exchanges(const struct builder *b);
void hf_scatter_heads(struct builder *b, struct hf_qkv *o,
                      struct hf_shard *shard);
tensor_id hf_gather_heads(struct builder *b, const struct hf_qkv *o,
                          tensor_id context, const struct hf_shard *shard);

/* ---- hf_latent.c: the same, rotated already ---- */

void hf_latent(struct builder *b, tensor_id x, struct hf_qkv *out);

/* One norm for each head of x, [b, s, heads, d]. */
tensor_id hf_norm_heads(struct builder *b, const char *name, tensor_id x,
                        struct dim heads);

/* ---- hf_rope.c ---- */

void hf_rope(struct builder *b, struct hf_qkv *qkv);
/* The rotary part of latent attention's queries or keys, by half. */
tensor_id hf_rotate_part(struct builder *b, tensor_id x, struct dim d);
/* Neighbours as complex numbers, in fp32 (deepseek_v2, llama4). */
tensor_id hf_rotate_complex(struct builder *b, tensor_id x);
/* Halves (or neighbours) of x's last factor d, each turned on its own. */
tensor_id hf_rotate_halves(struct builder *b, tensor_id x, struct dim d);

/* ---- hf_index.c ---- */

/* DeepSeek V3.2's choice of keys, of a layer's input and the compressed
 * queries: a mask of the layer's own, true (or most negative) where a query
 * does not look. */
tensor_id hf_index(struct builder *b, tensor_id x, tensor_id q);

/* ---- hf_scores.c ---- */

/* Whether the class computes scores in fp32 whatever its weights are. */
bool hf_scores_in_fp32(enum family family);
/* The mask of the attention at hand; TENSOR_NONE where there is none. */
tensor_id hf_mask(const struct builder *b, const struct hf_qkv *o);
/* gpt-oss's, one a head. */
tensor_id hf_sinks(struct builder *b);
/* Scores scaled, biased and masked; and their softmax, beside sinks or not, with
 * its dropout. */
tensor_id hf_biased(struct builder *b, const struct hf_qkv *o,
                    tensor_id scores);
tensor_id hf_with_sinks(struct builder *b, tensor_id scores);
tensor_id hf_probabilities(struct builder *b, const struct hf_qkv *o,
                           tensor_id scores);

/* ---- hf_attention.c ---- */

tensor_id hf_attention(struct builder *b, tensor_id x);
/* To the encoder's result. */
/* Variables of a module's forward, or a layer's; they go when it returns. */
void hf_enter(struct builder *b, tensor_id x);
void hf_leave(struct builder *b);
tensor_id hf_cross_attention(struct builder *b, tensor_id x);

/* ---- hf_ssm.c ---- */

/* What a layer mixes tokens with, attention among it. */
tensor_id hf_mixer(struct builder *b, enum mixer mixer, tensor_id x);

/* ---- hf_blocks.c ---- */

/* Phi-3 small's attention, of which every layer's kernel has its own layout:
 * what o_proj takes. */
tensor_id hf_blocks(struct builder *b, tensor_id x);
/* Its MLP's activation, of gate and up in one. */
tensor_id hf_gegelu(struct builder *b, tensor_id both);

/* ---- hf_window.c: Qwen's vision parts ---- */

/* With the shared tensors. */
void hf_window_tables(struct builder *b);
/* Patches as the first layer takes them. */
tensor_id hf_window_embed(struct builder *b, tensor_id patches);
/* What the output projection takes. */
tensor_id hf_window_attention(struct builder *b, tensor_id x);
/* From the last layer to tokens of the text's width. */
tensor_id hf_merger(struct builder *b, tensor_id x);

/* ---- hf_deep.c: Qwen3-VL's ---- */

/* Places of each patch, resampled from a table. */
tensor_id hf_add_places(struct builder *b, tensor_id x);
/* What the text's first layers, or the loss, will be handed: with the tables. */
void hf_deep_features(struct builder *b);
/* A merger of the states that come to a layer, or to the last merger. */
void hf_deep_merger(struct builder *b, tensor_id x);
/* Mergers that nothing uses. */
void hf_idle_mergers(struct builder *b);
/* Behind the text's first layers: their states with images' added. */
tensor_id hf_add_features(struct builder *b, tensor_id x);
/* In the loss of a vision part that is all of the model. */
tensor_id hf_deep_loss(struct builder *b, tensor_id loss);
/* Joined by image, as the text takes them. */
void hf_join_features(struct builder *b);

/* ---- hf_mlp.c ---- */

/* PEFT moves adapters named gate, up and down to the experts' fused weights:
 * from shared experts and dense layers too. */
bool hf_translates(const struct builder *b);
/* What adapts a linear of that name outside the experts. */
uint64_t hf_mlp_lora(const struct builder *b, enum lora_target target);

tensor_id hf_mlp(struct builder *b, tensor_id x);

/* ---- hf_balance.c ---- */

/* Before the layers: b->balance, where the head has a loss of routers' logits. */
void hf_balance_begin(struct builder *b);
/* A router's, which the head sees; nothing where it has no such loss. */
void hf_balance_note(struct builder *b, tensor_id logits);
/* The head's loss with that of the routers, or as it is. */
tensor_id hf_balance_loss(struct builder *b, tensor_id loss);

/* ---- hf_mtp.c ---- */

/* `loss` and those of the prediction modules; `head` is the weight of the
 * model's. */
tensor_id hf_mtp(struct builder *b, tensor_id x, tensor_id head,
                 tensor_id loss);

/* ---- hf_moe.c ---- */

struct routing {
    tensor_id weights; /* [b*s, k] */
    tensor_id indices;
    tensor_id logits; /* as the router returns them */
};
tensor_id hf_moe(struct builder *b, tensor_id x);

/* ---- hf_dbrx.c ---- */

/* Its router, and experts one after another. */
tensor_id hf_dbrx(struct builder *b, tensor_id x);

/* ---- hf_ranks.c: tensor parallelism by a class's plan ---- */

/* In front of a column-parallel product, of rank's own weight: x as it is. */
tensor_id hf_to_columns(struct builder *b, tensor_id x);
/* The sum over ranks of what a row-parallel product, or a lookup in a rank's
 * part of the table, gave. */
tensor_id hf_from_rows(struct builder *b, const char *name, tensor_id x);
/* Ids as the lookup in a part takes them. */
tensor_id hf_own_ids(struct builder *b);
void hf_whole_gradient(struct builder *b, tensor_id table);
/* Whole logits, of each rank's share. */
tensor_id hf_whole_logits(struct builder *b, tensor_id logits);

/* x W^T, then + bias as a second operation that autocast does not touch
 * (FalconLinear); for other families one kernel. */
tensor_id hf_linear(struct builder *b, const struct linear *l);

#endif
