/*
 * The builder that lowerings write with: one call a primitive operation, each
 * with its dtypes, shapes, FLOPs and gradient flags filled in. A lowering says
 * what a framework computes; what is kept follows (ir/save_rule.c).
 *
 * Once build_start() has succeeded, every function may be called after an
 * allocation failed or a number overflowed: the program is nonsense then, and
 * build_finish() says so once.
 */
#ifndef MEMPLAN_LOWER_BUILD_H
#define MEMPLAN_LOWER_BUILD_H

#include "ir/program.h"

struct shape {
    uint8_t rank;
    struct dim dim[TENSOR_RANK_MAX];
};

/* SHAPE(b->t, b->h): a struct shape of up to four struct dim. */
#define SHAPE(...)                                                             \
    ((struct shape){ sizeof((struct dim[]){ __VA_ARGS__ })                     \
                         / sizeof(struct dim),                                 \
                     { __VA_ARGS__ } })

#define DIM(sym, n) ((struct dim){ (sym), (n) })

enum layer_place {
    LAYER_ONLY, /* of the only stack */
    LAYER_ENCODER,
    LAYER_VISION, /* before those of the text */
    LAYER_JOINT,  /* no layer: what stands between the stacks */
    LAYER_DECODER,
    LAYER_LAST, /* of the decoder: its backward is the first to want a
                   gradient of the encoder's result */
    LAYER_PLACES
};

/* One kind of layer. */
struct layer_kind {
    enum layer_place place;
    enum mixer mixer;
    bool moe;
    bool first;      /* of its stack, whose position bias it looks up for all */
    bool narrow;     /* comes in as the embedding gave it; the sums after it
                        are wider (residual_fp32) */
    bool no_rope;    /* though the model has rotary embeddings */
    bool deep;       /* before it, outside of its checkpoint, a merger of its
                        vision part takes the states; behind it, of a text, they
                        are added */
    bool bare;       /* without adapters, where other layers have them */
    bool below;      /* below those that freeze_trainable_layers trains */
    bool leaf;       /* nothing below is trained: its input needs no gradient */
    bool half;       /* in 16 bits, of a model with 8-bit products */
    bool local;      /* a window with tables, or a kernel, of its own */
    uint64_t window; /* sliding window shorter than the sequence; 0 none */
};

/* What the layer built last begins with: build_part(). */
struct beginning {
    struct layer_kind kind;
    uint32_t block;                                    /* the first of these */
    uint32_t op_first, n_ops, tensor_first, n_tensors; /* no operations: none */
    tensor_id input, result;
    tensor_id weights, branch; /* as the builder had them then */
    uint8_t module;
    uint64_t global_buffer_bytes;
};

enum { FRAME_MAX = 8 };

struct builder {
    struct program *p;
    struct arena *arena;
    struct diag *diag;
    const struct spec *spec;  /* of the part at hand */
    const struct spec *whole; /* ... of all of them */
    const struct run *run;
    uint64_t seqs, len; /* sequences of a micro-batch, how long they are */
    struct dim words;   /* b*s, of the data: t less virtual tokens */

    /* Common factors of shapes, on this rank. */
    struct dim one;
    struct dim micro; /* b */
    struct dim s, sq; /* s: whole (keys of attention); s/cp (queries) */
    struct dim t, tu; /* tokens: b*s/cp; where sequence parallel, /tp */
    struct dim h, d;
    struct dim a, kv;      /* heads: a/tp, kv/tp (at least one) */
    struct dim A, K;       /* a*d/tp, kv*d/tp */
    struct dim qkv;        /* (a+2*kv)*d/tp */
    struct dim dv, O;      /* width of a value; a*dv/tp: what attention gives */
    struct dim rq, rkv;    /* latent attention: widths of the compressed */
    struct dim nope, rope; /* ... and of a head's two parts */
    struct dim latent;     /* rkv+rope: what keys and values come from */
    struct dim kv_up;      /* a*(nope+dv)/tp */
    struct dim f, f2;      /* f/tp, 2*f/tp */
    struct dim V;          /* padded vocabulary / tp */
    struct dim e;          /* embed_dim */
    struct dim r;          /* lora rank */
    struct dim experts;    /* all of them: E */
    struct dim experts_on; /* E/ep */
    struct dim chosen;     /* rows that a rank sends to experts: tokens k */
    struct dim once;       /* ... once to a rank, whatever experts it has */
    struct dim routed;     /* rows of expert inputs */
    double routed_share;   /* of them under balanced, dropless routing */
    bool all_experts;      /* every token goes through every expert */
    struct dim fe, fe2;    /* expert ffn / etp, twice that */
    struct dim fs, fs2;    /* shared experts' ffn / tp, twice that */

    /* The same, of the whole model: for full_elems. */
    uint64_t full_A, full_K, full_O;

    struct dim s_target; /* of an encoder-decoder: s of the second stack */

    enum dtype param;   /* weights as stored */
    enum dtype compute; /* of matrix products */
    enum dtype stream;  /* residual stream: what an embedding gives */
    bool autocast;
    bool fp8;      /* linears keep fp8 inputs (Transformer Engine); a
                           lowering whose framework does not clears it */
    bool casts_8;  /* ... and casts operands to 8 bits when they are used */
    bool frozen;   /* lora: all but adapters and lora_full */
    bool projects; /* what follows is the projector's, whatever it is */
    bool embeds_trained; /* what looks words up has a gradient */
    bool bare;           /* no adapters in what follows: layers_to_transform */
    bool below;          /* ... and nothing trained: freeze_trainable_layers */
    bool in_vain;        /* nothing uses the result of what follows */
    bool in_unit;        /* what follows is a layer, that an engine wraps */

    /* ROLE_INPUT tensors that build_start() makes: int64 [tokens]. */
    tensor_id ids, labels;
    tensor_id pixels;     /* of images */
    tensor_id eye_tables; /* the first shared tensor that is a vision part's
                             own, beside those of its text; TENSOR_NONE */
    tensor_id deep;       /* what mergers beside the last one hand on, as who
                             takes it sees it; TENSOR_NONE */
    tensor_id balance;    /* logits of all routers, as the head sees them where
                             it has a loss of them; TENSOR_NONE */
    tensor_id deep_last;  /* the same of a merger in the head; TENSOR_NONE */
    tensor_id target_ids; /* of a decoder with an encoder, where they come
                             with the data */

    /* State. */
    tensor_id hidden;  /* what the next block's input will be */
    tensor_id memory;  /* the encoder's result: ROLE_SHARED; TENSOR_NONE */
    tensor_id weights; /* attention's, where they were made: the layer has
                            them in a variable */
    tensor_id branch;  /* attention's result, where that is one too */
    tensor_id sent;    /* what experts send back, where the part of a layer that
                          does has it in hand to its end; TENSOR_NONE */
    tensor_id frame[FRAME_MAX]; /* variables of what is being built */
    unsigned n_frame;
    tensor_id past_key, past_value; /* of a prefix, in the layer at hand */
    tensor_id past_gradient;        /* what its backward leaves of these */
    bool in_decoder;                /* of two stacks */
    bool attends_all;               /* no causal mask in the next operations */
    struct block *block;            /* being built, or NULL */
    tensor_id last_weight;          /* of block.weights */
    uint8_t region;                 /* of the next operations */
    uint8_t module;                 /* likewise: struct op */
    bool graphed;                   /* likewise */
    uint8_t node;                   /* ... enum layer_node */
    bool core_attention;            /* of the next operations */
    uint64_t window;                /* sliding window of the layer; 0 none */
    bool no_rope;                   /* the layer does not rotate */
    bool local;     /* it has the tables, or kernel, of such layers */
    bool first;     /* it looks its stack's position bias up */
    bool in_layers; /* build_layers() builds one */
    struct beginning part;
    uint32_t cap_tensors, cap_ops;
    bool over, failed;
};

/* ---- frame (build.c) ---- */

/* b->failed says that there was no memory: call build_finish() then. */
void build_start(struct builder *b, struct program *p, const struct spec *spec,
                 const struct run *run, struct arena *a, struct diag *d);
/* Reports E_NOMEM, E_OVERFLOW. Returns diag's status. */
memplan_status build_finish(struct builder *b);

/* Shared tensors (rope tables, expanded masks), after build_start and before
 * the first block. */
tensor_id build_shared(struct builder *b, const char *name, enum dtype dtype,
                       const struct shape *shape);
/* One more ROLE_INPUT tensor (position ids, a mask from the data loader),
 * after build_start and before any build_shared. */
tensor_id build_input(struct builder *b, const char *name, enum dtype dtype,
                      const struct shape *shape);

/* A module's own table in the current block, there at rest (ALiBi slopes). */
tensor_id build_buffer(struct builder *b, const char *name, enum dtype dtype,
                       const struct shape *shape);
/* The same, of what a checkpoint has: counted beside the parameters (a router's
 * correction, running means). */
tensor_id build_state(struct builder *b, const char *name, enum dtype dtype,
                      const struct shape *shape);
/* The framework's global buffer is at least so large; x, unless TENSOR_NONE,
 * lies in it and has no memory of its own. */
void build_in_global_buffer(struct builder *b, tensor_id x, uint64_t bytes);

/* Begins a block and returns its input (TENSOR_NONE for the embedding). The
 * input needs a gradient. */
tensor_id build_begin(struct builder *b, enum block_kind kind,
                      const char *name);
void build_end(struct builder *b, tensor_id output);

/* ---- stacks (build_stack.c) ---- */

/* Of layer i. */
struct layer_kind build_layer_kind(const struct builder *b, uint64_t i);
typedef tensor_id layer_fn(struct builder *b, const struct layer_kind *kind,
                           tensor_id x);
/* Calls `layer` once for each kind of layer that the model has, between
 * build_begin and build_end, and fills program.layer_block. Sets b->window,
 * b->no_rope and b->local. */
void build_layers(struct builder *b, layer_fn *layer);
/* What `make` builds of a layer, to which it does not matter whether experts
 * follow: where the layer begins with it, and another kind's has, a copy.
 * (build_part.c) */
tensor_id build_part(struct builder *b, const struct layer_kind *kind,
                     tensor_id x, layer_fn *make);

/* Whether what a frozen embedding makes is asked for a gradient. */
bool build_asks_grad(const struct builder *b);
/* Whether what is frozen in a block of this kind gets gradients all the same,
 * as its unit's trained weights do. */
bool build_joins_trained(const struct builder *b, enum block_kind kind);
/* Whether 'freeze' names the part that a parameter of this group is in here. */
bool build_is_frozen(const struct builder *b, enum param_group group);
/* The training loop holds x beyond its backward, by name or through the graph
 * of what it names; where the loop does that (keep_outputs). */
void build_hold(struct builder *b, tensor_id x);
/* From here on its names are this micro-batch's. */
void build_renames(struct builder *b, const char *name);

/* [b*s] of what the loss is of. */
struct shape build_targets(const struct builder *b);
/* Of an encoder-decoder, with the shared tensors: the encoder's result. */
void build_memory(struct builder *b);
void build_span(struct builder *b, const struct stack_span *span);
/* In the joint: x, a tensor of its own, is the encoder's result. What follows
 * is of the decoder: shapes are, and a causal mask is on. */
void build_to_decoder(struct builder *b, tensor_id x);
/* Images of a micro-batch. */
uint64_t build_images(struct builder *b);
/* No images, so that the operations of the block so far do not run: of what
 * they made the weights are left. */
void build_idle(struct builder *b);
/* What follows is of the vision part, of the text part. (build.c) */
void build_to_vision(struct builder *b);
void build_to_text(struct builder *b);
/* Width of the MLP of the stack at hand, in the whole model. */
uint64_t build_ffn(const struct builder *b);
/* Keys and values come from the encoder's result, up to build_cross_end. */
void build_cross_begin(struct builder *b);
void build_cross_end(struct builder *b);

/* Reports E_UNSUPPORTED: "<impl> has no <what>", with a hint where other layers
 * may have it. */
COLD memplan_error *build_refuse(struct builder *b, const char *what);

/* Attention through compressed queries, keys and values (MLA). */
static inline bool build_is_latent(const struct builder *b)
{
    return b->spec->kv_rank > 0;
}

/* The layer at hand turns its queries and keys. */
static inline bool build_rotates(const struct builder *b)
{
    return b->spec->position == POS_ROPE && !b->no_rope;
}

/* x * y elements; too large is noted and reported by build_finish. */
uint64_t build_product(struct builder *b, uint64_t x, uint64_t y);

/* Operations until the next call, or the next block, are of this part of a
 * layer. */
static inline void build_node(struct builder *b, enum layer_node node)
{
    b->node = (uint8_t)node;
}

/* Operations until the next call carry this recompute region. */
static inline void build_region(struct builder *b, enum recompute_module m)
{
    b->region = (uint8_t)(1 + m);
}
/* All operations from `first` on are one checkpoint, where whole layers are
 * (all of them: a number of layers means those of a stage). */
static inline void build_checkpoint(struct builder *b, uint32_t first)
{
    if (b->run->recompute != RECOMP_FULL || b->run->given[KEY_RECOMPUTE_LAYERS]
        || b->run->recompute_every > 1)
        return;
    for (uint32_t i = first; i < b->p->n_ops; i++)
        b->p->op[i].region = REGION_LAYER;
    b->p->regions |= UINT64_C(1) << REGION_LAYER;
}
/* All operations from `first` on stand outside of the block's checkpoint. */
static inline void build_outside(struct builder *b, uint32_t first)
{
    for (uint32_t i = first; i < b->p->n_ops; i++)
        b->p->op[i].outside = true;
}
static inline void build_region_none(struct builder *b)
{
    b->region = 0;
}

static inline const struct tensor *tensor_of(const struct builder *b,
                                             tensor_id id)
{
    return &b->p->tensor[id];
}
struct shape shape_of(const struct builder *b, tensor_id id);
/* The tensor's shape with its last factor replaced, or left out. */
struct shape shape_last(const struct builder *b, tensor_id id, struct dim d);
struct shape shape_rows(const struct builder *b, tensor_id id);

/* ---- tensors (build.c) ---- */

/* An activation with its own storage. needs_grad is set by the operation. */
tensor_id build_tensor(struct builder *b, const char *name, enum dtype dtype,
                       const struct shape *shape);
/* An activation in the storage of `of`. */
tensor_id build_alias(struct builder *b, const char *name, tensor_id of,
                      const struct shape *shape);

struct param {
    const char *name;
    const char *of; /* a bias: the module it is of */
    enum param_group group;
    struct dim rows, cols; /* cols {NULL, 0}: a vector */
    uint64_t copies;       /* experts on this rank; 0 means 1 */
    uint64_t last[2];      /* a convolution's; see struct tensor */
    uint64_t full_elems;   /* 0: as on this rank */
    bool matmul, tied;
    bool again;       /* see struct tensor */
    bool statistic;   /* of a quantised weight: no parameter */
    enum dtype dtype; /* of a statistic */
    bool original;    /* frozen beside its trained copy */
    bool elsewhere;   /* what it is a copy of is another block's */
    bool fixed;       /* the class never trains it */
    bool wide;        /* in fp32 whatever the others are */
    bool of_linear;   /* a linear's bias */
    bool words;       /* see struct tensor */
    bool bare;        /* a matrix that is no linear's */
    bool flat;        /* copies are rows of one matrix */
    bool of_experts;  /* see struct tensor */
};
tensor_id build_param(struct builder *b, const struct param *param);
/* Whether linears' gradients and weights are sent in autocast's type
 * (DeepSpeed's torch_autocast). */
bool build_sends_low(const struct builder *b);
/* A vector: norm weight, bias. full 0: as on this rank. */
tensor_id build_vector(struct builder *b, const char *name,
                       enum param_group group, struct dim n, uint64_t full);
tensor_id build_bias(struct builder *b, const char *of, enum param_group group,
                     struct dim n, uint64_t full);
/* A weight of a norm, whole on each rank. */
tensor_id build_norm_weight(struct builder *b, const char *name, struct dim n);

/* ---- operations: for new primitives (build.c) ---- */

/* Adds an operation in the current block, region and core_attention flag, and
 * gives out[0] its needs_grad. Operands TENSOR_NONE are left out. Returns the
 * operation, valid until the next one is added. */
struct op *build_op(struct builder *b, enum op_kind kind, const char *name,
                    const tensor_id *in, unsigned n_in);
void op_result(struct builder *b, struct op *op, tensor_id out);
/* Of the operation built last. */
void build_place(struct builder *b, enum backward_place place);
/* One more thing the kernel makes: mask, statistics. Never needs a gradient.*/
void op_byproduct(struct op *op, tensor_id out);

/* ---- linear (build_linear.c) ---- */

enum parallel {
    PAR_NONE,   /* whole on each rank */
    PAR_COLUMN, /* out is sharded */
    PAR_ROW     /* in is sharded; the caller adds the reduction */
};

#define LORA_MASK(target) (UINT64_C(1) << (target))
enum { LORA_NEVER = 0 };
/* A linear that no word names: all-linear alone adapts it. */
#define LORA_NAMELESS LORA_MASK(LORA_ALL_LINEAR)

struct linear {
    const char *name;
    tensor_id x;
    struct dim in, out;         /* on this rank */
    uint64_t full_in, full_out; /* 0: in, out times tp where parallel says */
    enum param_group group;
    enum parallel parallel;
    bool bias;
    uint64_t lora; /* LORA_MASK(LORA_Q) | ...: adapted when one of
                                 them, or all-linear, is asked for */
    uint64_t copies, full_copies; /* experts here, in all; 0 means 1 */
    tensor_id weight;             /* an existing one (tied), set has_weight */
    bool has_weight;
    tensor_id keep; /* kept in place of x (its shard, where x was
                                 gathered for the product), set has_keep */
    bool has_keep;
    /* under fp8 */
    bool in_16_bits;  /* this one is not in 8 bits */
    bool keeps_input; /* as it came, to quantise it again (save_original_input)
                         */
    tensor_id made_from[2]; /* its input is made again from these, kept instead
                               of it, set has_made_from */
    bool has_made_from;
    enum dtype out_dtype; /* set has_out_dtype: else compute dtype */
    bool has_out_dtype;
    bool bare;       /* the class has a parameter, no linear */
    bool of_experts; /* an adapter of theirs: rows that came to them */
    bool fixed;      /* the class never trains it: nor its adapter, which has no
                   gradient */
    bool by_view;    /* its product takes a view of the weight: autocast's copy
                   is not cached */
};
/* x W^T (+ bias), with what precision, lora and quantisation make of it:
 * casts of input and weight under autocast, a quantised copy of the input that
 * is kept under fp8, adapters, dequantisation. */
tensor_id build_linear(struct builder *b, const struct linear *l);
/* Its bias alone, for a caller that adds it; TENSOR_NONE where it has none. */
tensor_id build_linear_bias(struct builder *b, const struct linear *l);

/* Whether adapters are asked for beside it. */
bool build_is_adapted(const struct builder *b, const struct linear *l);
/* Its width in the whole model, of what comes in, and what comes out. */
uint64_t build_full_in(struct builder *b, const struct linear *l);
uint64_t build_full_out(struct builder *b, const struct linear *l);

/* A copy of x in a format of 8 or 12 bits, and the scales that the recipe has
 * for so many pieces of it; the caller adds the operation. (build_fp8.c) */
tensor_id build_fp8_copy(struct builder *b, const char *name, enum dtype dtype,
                         tensor_id x);
tensor_id build_fp8_scales(struct builder *b, tensor_id x, uint64_t parts);

/* ---- what decoders have in common (build_decoder.c) ---- */

/* Of adapters' weights as they are computed with. */
enum dtype build_adapter_dtype(const struct builder *b);
/* Whether frozen linears of a group are packed in base_dtype. */
bool build_is_packed(const struct builder *b, enum param_group group);

/* [V, width]: table of words, weight of the head. The latter is tied where the
 * model says so. */
tensor_id build_word_table(struct builder *b, const char *name,
                           struct dim width);
tensor_id build_head_weight(struct builder *b, const char *name,
                            struct dim width);
/* The embedding's tensor again, for a block that looks words up too. */
tensor_id build_tied_table(struct builder *b, const char *name,
                           struct dim width);
/* [learned positions, h] */
tensor_id build_position_table(struct builder *b, const char *name);
/* Parameters of the model's kind of norm: TENSOR_NONE where it has none. */
void build_norm_weights(struct builder *b, struct dim n, tensor_id *weight,
                        tensor_id *bias);

/* The linears of a layer, column-parallel from h but for o and down, which are
 * row-parallel back to it; for a lowering to change where its own differs. */
struct linear linear_of_q(const struct builder *b, const char *name,
                          tensor_id x);
struct linear linear_of_k(const struct builder *b, const char *name,
                          tensor_id x);
struct linear linear_of_v(const struct builder *b, const char *name,
                          tensor_id x);
struct linear linear_of_qkv(const struct builder *b, const char *name,
                            tensor_id x);
struct linear linear_of_o(const struct builder *b, const char *name,
                          tensor_id x);
struct linear linear_of_up(const struct builder *b, const char *name,
                           tensor_id x);
struct linear linear_of_down(const struct builder *b, const char *name,
                             tensor_id x);
/* To logits, by an existing weight. */
struct linear linear_of_head(const struct builder *b, const char *name,
                             tensor_id x, tensor_id weight);

/* What of the model a lowering of plain decoders has not, or NULL. */
const char *build_beyond_plain(const struct builder *b);

/* Sequence parallelism over more than one rank. */
bool build_has_sequence_shards(const struct builder *b);
/* A column-parallel product. Where x is a sequence shard it is gathered
 * first, and gathered again in backward: the shard is kept. */
tensor_id build_column(struct builder *b, const struct linear *l);
/* The same by Megatron-core's own linear, which gathers into its global buffer
 * (core/tensor_parallel/layers.py). */
tensor_id build_column_in_buffer(struct builder *b, const struct linear *l);
/* The same of the encoder's result, as long as the source. (build_stack.c) */
tensor_id build_keys(struct builder *b, const struct linear *l);
/* A row-parallel product to h, reduced, to a sequence shard where there are
 * such. */
tensor_id build_row(struct builder *b, const struct linear *l);

/* ---- elementwise: names as in PyTorch (build_ops.c) ---- */

tensor_id build_unary(struct builder *b, enum op_kind kind, const char *name,
                      tensor_id x); /* SCALE NEG POW RSQRT SIGMOID TANH ... */
tensor_id build_unary_in_place(struct builder *b, enum op_kind kind,
                               const char *name, tensor_id x);
/* ADD MUL DIV: broadcasts, promotes to the wider dtype. */
tensor_id build_binary(struct builder *b, enum op_kind kind, const char *name,
                       tensor_id x, tensor_id y);
tensor_id build_binary_in_place(struct builder *b, enum op_kind kind,
                                const char *name, tensor_id x, tensor_id y);
tensor_id build_add(struct builder *b, const char *name, tensor_id x,
                    tensor_id y);
tensor_id build_mul(struct builder *b, const char *name, tensor_id x,
                    tensor_id y);
/* An outer product, larger than both. */
tensor_id build_mul_as(struct builder *b, const char *name, tensor_id x,
                       tensor_id y, const struct shape *shape);
tensor_id build_scale(struct builder *b, const char *name, tensor_id x);
tensor_id build_neg(struct builder *b, const char *name, tensor_id x);
tensor_id build_pow(struct builder *b, const char *name, tensor_id x);
tensor_id build_rsqrt(struct builder *b, const char *name, tensor_id x);
/* Over the last factor, which becomes one. */
tensor_id build_mean(struct builder *b, const char *name, tensor_id x);
/* x itself when it has that dtype. */
tensor_id build_cast(struct builder *b, const char *name, tensor_id x,
                     enum dtype dtype);
/* What autocast does to an operand: a cast to the compute dtype; x itself
 * without autocast. A weight is cast once a block. */
tensor_id build_autocast(struct builder *b, const char *name, tensor_id x);
/* x in fp32 under autocast, for the kernels it runs so. */
tensor_id build_autocast_up(struct builder *b, tensor_id x);
tensor_id build_copy(struct builder *b, const char *name, tensor_id x);
/* A copy of another shape: repeat_kv, contiguous() of a slice. */
tensor_id build_copy_as(struct builder *b, const char *name, tensor_id x,
                        const struct shape *shape);
tensor_id build_view(struct builder *b, const char *name, tensor_id x,
                     const struct shape *shape);
/* One operation with several views of x: split, chunk, unbind (n <= 4). */
void build_split(struct builder *b, const char *name, tensor_id x,
                 tensor_id *out, const struct shape *shapes, unsigned n);
/* The same by index: x[..., :k] and the rest. */
void build_slices(struct builder *b, const char *name, tensor_id x,
                  tensor_id *out, const struct shape *shapes, unsigned n);
tensor_id build_cat(struct builder *b, const char *name, tensor_id x,
                    tensor_id y, const struct shape *shape);
tensor_id build_cat3(struct builder *b, const char *name, const tensor_id x[3],
                     const struct shape *shape);
/* mask: bool, shared or input */
tensor_id build_where(struct builder *b, const char *name, tensor_id mask,
                      tensor_id x);
/* x itself when p is 0. */
tensor_id build_dropout(struct builder *b, const char *name, tensor_id x,
                        double p);
/* residual + dropout(x) in one kernel; build_add when p is 0. */
tensor_id build_dropout_add(struct builder *b, const char *name, tensor_id x,
                            tensor_id residual, double p);
/* relu squared, gelu_new and gelu_fast are written out in primitives, as
 * transformers/activations.py has them; the others are one kernel. */
tensor_id build_activation(struct builder *b, const char *name,
                           enum activation act, tensor_id x);

/* ---- norms (build_ops.c) ---- */

/* weight, bias: TENSOR_NONE for none. Over the last factor. */
tensor_id build_layer_norm(struct builder *b, const char *name, tensor_id x,
                           tensor_id weight, tensor_id bias);
tensor_id build_rms_norm(struct builder *b, const char *name, tensor_id x,
                         tensor_id weight); /* fused */
/* transformers' LlamaRMSNorm: upcast, four kernels, downcast, weight (not
 * TENSOR_NONE). */
tensor_id build_rms_norm_written_out(struct builder *b, const char *name,
                                     tensor_id x, tensor_id weight);

/* ---- attention (build_attention.c) ---- */

/* Last factor of x is summed over. FLOPs are halved in the causal convention
 * (or cut to the window) while b->core_attention. */
tensor_id build_matmul(struct builder *b, const char *name, tensor_id x,
                       tensor_id y, const struct shape *shape);
/* dtype of the result; bf16 is cast first when it differs, as PyTorch does. */
tensor_id build_softmax(struct builder *b, const char *name, tensor_id x,
                        enum dtype dtype);
struct attention_args {
    const char *name;
    tensor_id q, k, v; /* [tokens, A], [tokens, K] or any shape as large */
    bool efficient;    /* memory-efficient kernel; else flash, cuDNN */
};
/* One kernel; result of q's shape, of v's in latent attention. */
tensor_id build_attention(struct builder *b, const struct attention_args *at);
/* Above this head size PyTorch's flash kernel is not used (sdp_utils.cpp); it
 * wants heads of such a multiple (pad_last_dim of transformers/attention.cpp;
 * flash_attn_interface.py). */
enum { FLASH_HEAD_MAX = 256, FLASH_HEAD_MULTIPLE = 8 };
/* _scaled_dot_product_flash_attention, built last, also returns, and keeps, an
 * empty uint64 (derivatives.yaml: unused). */
void build_flash_unused(struct builder *b);
/* Which kernel scaled_dot_product_attention picks: flash has no fp32. */
bool attention_is_efficient(const struct builder *b);
/* [b, a/tp, s/cp, s] */
struct shape shape_scores(const struct builder *b);

/* ---- embedding, loss, routing (build_loss.c; swiglu: build_ops.c) ---- */

tensor_id build_embedding(struct builder *b, const char *name,
                          tensor_id indices, tensor_id table,
                          const struct shape *shape);
tensor_id build_nll_loss(struct builder *b, const char *name, tensor_id logp,
                         tensor_id labels); /* a scalar */
/* F.cross_entropy: log-softmax and negative log-likelihood. */
tensor_id build_cross_entropy(struct builder *b, const char *name,
                              tensor_id logits, tensor_id labels);
/* One kernel over whole logits as they come: their gradient has their dtype,
 * two numbers a row are kept (torch.compile; flash-attn's and Apex's xentropy
 * one, which reads the logits once). */
tensor_id build_cross_entropy_kernel(struct builder *b, const char *name,
                                     tensor_id logits, tensor_id labels);
/* The head and the loss over so many pieces of the sequence, whose logits are
 * there at once: LitGPT's, torchtune's. Kept: the logits where `keep_logits`,
 * and log-softmaxes in `logp` (DT_NONE: compiled, two numbers a row). In
 * backward one piece has gradients of logits, and the head's gradient is summed
 * up. */
struct pieces {
    uint64_t n;
    bool keep_logits;
    enum dtype logp;
};
tensor_id build_cross_entropy_pieces(struct builder *b, tensor_id x,
                                     tensor_id weight,
                                     const struct pieces *how);
/* Gemma's final_logit_softcapping: cap * tanh(logits / cap), of other models
 * the logits. */
tensor_id build_logits_cap(struct builder *b, tensor_id logits);
/* A copy (of one sequence a view) without the last row of each sequence, and
 * its labels. */
tensor_id build_shifted_logits(struct builder *b, tensor_id logits,
                               tensor_id *labels);
/* LitGPT's chunked_cross_entropy over a list of pieces, each of at most
 * piece_rows rows of `logits`; over whole logits, which it splits: their
 * gradient is joined out of the pieces'. Log-softmaxes are kept, in the type of
 * the logits. */
tensor_id build_cross_entropy_of_list(struct builder *b, tensor_id logits,
                                      uint64_t piece_rows);
tensor_id build_cross_entropy_of_split(struct builder *b, tensor_id logits,
                                       tensor_id labels, uint64_t piece_rows);
/* Liger's: logits in chunks of `chunk` rows, never whole. */
tensor_id build_fused_cross_entropy(struct builder *b, const char *name,
                                    tensor_id x, tensor_id weight,
                                    struct dim chunk);
/* The chunk rows Liger picks. */
struct dim fused_cross_entropy_chunk(const struct builder *b);
/* gate and up in one tensor; or in two (up TENSOR_NONE for one). probs:
 * routing weights to multiply by, TENSOR_NONE for none. */
tensor_id build_swiglu(struct builder *b, const char *name, tensor_id gate,
                       tensor_id up, tensor_id probs);
/* values; *indices int64. */
tensor_id build_topk(struct builder *b, const char *name, tensor_id x,
                     struct dim k, tensor_id *indices);
tensor_id build_index(struct builder *b, const char *name, tensor_id x,
                      tensor_id indices, const struct shape *shape);

/* ---- collectives (build_loss.c): x itself in a group of one rank ---- */

tensor_id build_all_reduce(struct builder *b, const char *name, tensor_id x,
                           enum comm_group group); /* in place */
tensor_id build_collective(struct builder *b, enum op_kind kind,
                           enum comm_group group, tensor_id x,
                           const struct shape *shape);

/* ---- build_ring.c ---- */

/* What the attention built last has where torch's context_parallel is around
 * it. */
void build_ring(struct builder *b);

/* ---- lowerings ---- */

void lower_hf(struct builder *b); /* also hf-liger */
void lower_convnet(struct builder *b);
void lower_megatron(struct builder *b);
void lower_megatron_local(struct builder *b);
void lower_torchtitan(struct builder *b);
void lower_litgpt(struct builder *b);
void lower_paper(struct builder *b);

#endif
