/*
 * The step program: what one rank computes for one micro-batch, forward, as
 * operations on tensors with identity, already sharded (tp, sp, cp, ep), in
 * blocks: the embedding, each different kind of layer, the head with the loss.
 * A layer kind is stored once; `layer_block` says which kind each layer is.
 * The program knows no optimizer, no engine, no time. Backward is not stored:
 * it follows from the operations and their save rules (save_rule.c), as in an
 * autograd engine.
 */
#ifndef MEMPLAN_IR_PROGRAM_H
#define MEMPLAN_IR_PROGRAM_H

#include <stddef.h>
#include <string.h>

#include "base/arena.h"
#include "base/count.h"
#include "spec/setup.h"

typedef uint32_t tensor_id;
#define TENSOR_NONE UINT32_MAX

/* One factor of a shape, with the symbol that `explain` prints: {"b*s", 4096},
 * {"a*d/tp", 512}. */
struct dim {
    const char *sym;
    uint64_t n;
};

enum tensor_role {
    ROLE_PARAM,  /* a weight, at rest with the engine */
    ROLE_INPUT,  /* token ids, labels: there before forward starts */
    ROLE_SHARED, /* made once a micro-batch, used by every layer: rope
                        tables, an expanded mask; dies with the micro-batch */
    ROLE_BUFFER, /* a module's own table, made once: there at rest */
    ROLE_ACTIVATION
};

enum param_group {
    PG_EMBED,
    PG_POSITION,
    PG_ATTENTION,
    PG_SSM,
    PG_MLP,
    PG_CONV,
    PG_CONDITION,
    PG_EXPERT,
    PG_SHARED_EXPERT,
    PG_ROUTER,
    PG_NORM,
    PG_HEAD,
    PG_PROJECTOR, /* between the parts of a model */
    PG_ADAPTER,
    PG_COUNT
};

enum { TENSOR_RANK_MAX = 4 };

enum { CAST_INSIDE = 2 };

/* What a walk asks of each tensor comes first, in a cache line. */
struct tensor {
    uint64_t elems, bytes; /* on this rank */
    tensor_id storage;     /* itself, or the tensor it is a view of */
    enum dtype dtype;
    enum tensor_role role;
    enum param_group group; /* ROLE_PARAM, as all of the second part */
    uint8_t rank;
    bool needs_grad;
    bool framed;         /* a variable of the model's forward has it until the
                        stack of layers that follows is done, or, of the
                        last one, that forward: op.returns */
    bool pooled;         /* lies in the program's global buffer */
    bool shared_out;     /* ... or in one that ranks share, outside the
                        allocator, and so does its gradient */
    bool grad_in_8_bits; /* cast before it is gathered */
    bool made_in_8_bits; /* compiled: the kernel that makes it casts it for the
                        products that read it, and nobody else needs it in a
                        checkpoint's forward */
    bool lingers;        /* to the end of forward: by a frame above */
    bool stays;          /* to the end of its block's backward, as `past` in a
                        checkpoint that has its graph inside */
    bool past;           /* ... and of backward, for no checkpoint sees it: an
                        attribute of the graph's node has it */
    bool pieces;         /* made in pieces, that are there together only where
                        backward keeps them */
    bool lone;           /* of such pieces the one at hand: there where none of
                        the operation's stay */
    bool rotary;         /* ROLE_SHARED: of positions, not of tokens */
    bool rests;          /* ROLE_SHARED: a buffer of the model, there at all
                        times */
    bool handed;         /* by the embedding's block to layers, which let it go
                        one after another: there to that block's end; of
                        a layer, its part, there from its beginning */
    bool graphed;        /* ROLE_BUFFER: a CUDA graph's, once there are any */
    bool leaf;           /* of the graph, though nothing below it is trained */
    bool held;           /* by engine or loop, beyond its last use: to the end
                        of the block's backward, then as they say;
                        ROLE_SHARED: by a variable, while the loss is
                        computed */

    tensor_id next; /* ROLE_PARAM, ROLE_BUFFER: the block's next such tensor;
                       TENSOR_NONE after the last */

    /* ROLE_PARAM only */
    bool trainable;
    bool matmul;    /* a linear's weight */
    bool tied;      /* another block's tensor again (head: the embedding's) */
    bool again;     /* tied, and its gradient is added to that of the block that
                       has the tensor */
    bool waits;     /* again, and the first to have one: it waits for the other
                       (torch/csrc/autograd/input_buffer.cpp) */
    bool sums;      /* again, and not the first to have one: their sum is a new
                       tensor */
    bool low;       /* of a linear or convolution: DeepSpeed's torch_autocast
                       sends it in 16 bits */
    bool dropped;   /* frozen, and trained for the walks: its gradient is made,
                       and dropped when it is reduced */
    bool in_vain;   /* it could be trained, and no gradient comes to it */
    bool apart;     /* of a layer in that block, which an engine wraps */
    bool original;  /* frozen, beside its trained copy */
    bool elsewhere; /* a trained copy of another block's */
    bool projected; /* its gradient, to a low rank: GaLore, APOLLO */
    bool fp8;       /* copies of it in 8 bits enter the products */
    bool words;     /* a row for each word: the table, the head's weight */
    bool of_experts; /* an adapter of experts that ranks share out: it is summed
                        and sharded over the ranks that have them, as theirs are */
    bool statistic;  /* beside a quantised weight: no parameter, whole on every
                       rank */
    uint64_t grad_copies;     /* its gradient is as large as so many of it: of
                                 the parts of all ranks; 0: 1 */
    uint64_t fp8_scale_bytes; /* beside its copies in 8 bits */
    uint64_t full_elems;      /* before tp, ep sharding; unpadded. ROLE_BUFFER:
                                 of what a checkpoint has, else 0 */
    uint64_t rows, cols;      /* on this rank; cols 1 for vectors */
    uint64_t slab;            /* rows of one index of its first dimension, where
                                 that is another than rows: experts; 0: 1 */
    uint64_t last[2];         /* its last two dimensions, where they are others
                                 than rows and columns; else 0 */

    const char *name; /* "q_proj", "mlp.act": static or arena */
    const char *of;   /* the module that `name` ("bias") is of, or NULL */
    struct dim dim[TENSOR_RANK_MAX];
};

#define OP(id, name, keeps) OP_##id,
enum op_kind {
#include "ir/op_kind.def"
    OP_KIND_COUNT
};
#undef OP

enum comm_group { COMM_TP, COMM_CP, COMM_EP, COMM_ETP };

/* Where a kernel's backward puts the gradients of its activations. */
enum backward_place {
    PLACE_NEW,
    PLACE_KEPT,     /* over what forward kept */
    PLACE_GRADIENT, /* over the result's gradient */
    PLACE_PIECES    /* anew, but in pieces: the result's goes as it comes */
};

enum { OP_IN_MAX = 16, OP_OUT_MAX = 14 };

/* The region of a layer that stands in the head's block (multi-token
 * prediction) where layers are checkpointed whole. */
enum { REGION_LAYER = 1 + REMOD_COUNT };

/* Recompute regions that are on: bit r for op.region == r + 1. */
static inline uint64_t run_regions(const struct run *run)
{
    if (run->recompute == RECOMP_SELECTIVE)
        return run->recompute_modules;
    return run->recompute == RECOMP_FULL ? UINT64_C(1) << (REGION_LAYER - 1)
                                         : 0;
}

/* What walks and folds ask of each operation comes first, in two cache
 * lines. */
/* Parts of a layer with experts that Megatron schedules one by one
 * (TransformerLayerSchedulePlan): attention with the router and all up to the
 * tokens' way; that way; the experts, or a dense MLP; the way back and what
 * follows. What else a head does comes after a layer that it has (PostProcessNode).
 */
enum layer_node {
    NODE_ATTENTION,
    NODE_DISPATCH,
    NODE_EXPERTS,
    NODE_COMBINE,
    NODE_POST,
    NODE_EXPERTS_WEIGHTS, /* in backward, their weights' gradients; no operation
                             is in it */
    NODE_ATTENTION_WEIGHTS,
    LAYER_NODES
};

struct op {
    enum op_kind kind;
    uint8_t n_in, n_out;
    uint8_t node;        /* enum layer_node */
    uint8_t region;      /* recompute region, 0 none: 1 + the bit
                                     number of its recompute_module */
    bool core_attention; /* attention proper: causal halving */
    bool
        registered_late; /* OP_LINEAR: its module comes after the next product's
                             among its parent's */
    enum backward_place place;
    /* OP_FUSED, OP_FUNCTION, OP_LOOP, bits by number: what of in and out its
     * backward needs (OP_SWIGLU, OP_FLASH_ATTENTION: where not 0, instead of
     * its input, its result); which of in are terms of a sum, whose gradients
     * are one. OP_LINEAR: bit 0 of keep_in, its input is kept though no
     * gradient needs it, bit 1 (CAST_INSIDE), not the cast weight but what it
     * is of; OP_CAST: bit 1, autocast does not cache it; OP_INDEX: bit 0, x is
     * kept (index_add); OP_SOFTMAX, OP_LOG_SOFTMAX: bit 0, x is kept; OP_VIEW:
     * bit 0, what its gradient goes to wants it in order: a copy */
    uint32_t keep_in, keep_out, sum_in;
    /* forward FLOPs on this rank for one micro-batch: multiply-adds count 2.
       `full` counts the whole score matrix, `causal` what a causal mask leaves
       (docs/method.md, eq. flops) */
    double flop_full, flop_causal;
    bool stash_input;
    bool indexed;    /* OP_VIEW: parts by index (x[..., :n]), no split */
    bool in_product; /* OP_SWIGLU, OP_QUANTIZE: part of the products around it;
                        OP_LINEAR: the gradient of its result comes cast */
    bool strided;    /* its operands' elements lie apart: heads before tokens;
                        or one is spread over the others: a number for a group */
    bool onto; /* OP_MATMUL: adds to a copy of another operand, spread over
                                     the result (baddbmm) */
    /* OP_LINEAR: operands are cast to 8 bits when they are used, and kept in 16,
       or as they were gathered (torchao). OP_FLASH_ATTENTION: its products are
       in 8 bits */
    bool in_8_bits;
    /* of one operation with the products that read what is gathered, or make
       what is scattered, a rank's part at a time (async_tp) */
    bool pipelined;
    /* no collective mirrors it in backward; OP_VIEW: its gradient is
       all-reduced, forward sends nothing */
    bool one_way;
    /* OP_INDEX: by a kernel that reads each row of the fewer once, and writes or
       sums the others, in backward too (Transformer Engine's permutations) */
    bool rows_once;
    bool rows_summed; /* OP_INDEX: rows are added up into those of the result */
    /* of few: op_is_plain() looks at these four */
    bool checkpointed; /* recompute 'ops': what it makes outlives the
                                     checkpoint around the block */
    bool outside;      /* it stands beside the layer that its block is, and
                                     outside of a checkpoint around that */
    bool renames;      /* OP_RELEASE: from here on the loop's variables are
                                     this micro-batch's, not the last one's */
    bool returns;      /* OP_RELEASE: the forward of the model below the head
                                     does, and what its variables hold goes */
    uint8_t module; /* 1 + enum offload_module: what it keeps waits on the host
                       with that module's; 0: it does not */
    uint8_t bounds; /* OP_ACTIVATION: of a clamp, 1 or 2; 0: of no clamp */
    uint8_t back_pieces; /* OP_FUSED: back_bytes are so many allocations, all
                            of one size; 0: one */
    bool commits; /* OP_RELEASE: ... and goes there now; what it takes has no
                       memory from here on, whoever names it */
    uint32_t recalls; /* 1 + the number of an operation whose region is made
                         again when this one's result has its gradient (a hook
                         on it); 0: when somebody needs it */
    tensor_id out[OP_OUT_MAX]; /* [n_out]: out[0] the result; then what the
                                     kernel makes beside it: mask, mean, lse,
                                     rng */
    tensor_id in[OP_IN_MAX];   /* [n_in], weights among them */
    const char *name;          /* "q_proj" */
    uint64_t
        back_bytes; /* OP_FUSED, OP_FUNCTION, OP_LOOP, OP_LINEAR, OP_SWIGLU,
                            OP_FLASH_ATTENTION, OP_EMBEDDING, OP_ALL_GATHER,
                            OP_REDUCE_SCATTER: for a moment in its backward */
    /* OP_LINEAR whose weight's gradient is put off: what is kept for it in
       place of the result's gradient, and, where `stash_input`, of what forward
       kept; 0: those */
    uint64_t stash_bytes;
    /* more that this implementation computes: experts of tokens that did not
       choose them. No model's FLOPs, but the hardware's */
    double flop_idle;
    uint64_t pieces; /* OP_LINEAR of several experts: its input is kept in so
                        many; else 0 */
    enum comm_group group; /* of collectives */
    bool graphed;          /* runs in a CUDA graph, once there are any */
};

enum block_kind {
    BLOCK_EMBED,
    BLOCK_LAYER,
    BLOCK_JOINT, /* between the stacks of an encoder-decoder; among the layers */
    BLOCK_HEAD
};

struct block {
    enum block_kind kind;
    const char *name; /* "embedding", "layer", "moe layer", "head" */
    uint32_t op_first, op_count;
    uint32_t tensor_first, tensor_count; /* made by this block */
    tensor_id weights; /* the first of its parameters and buffers, which are
                          at rest: tensor.next; TENSOR_NONE: it has none */
    uint64_t layers;   /* so many of the program's are it */
    uint32_t common_ops, common_tensors; /* so many of its first operations, and
                            of its first tensors, are as those of the block
                            begins_as, which may be itself; they take nothing
                            but each other, the input and what blocks before
                            all of these made */
    uint32_t begins_as;
    tensor_id input;              /* hidden states that come in; a placeholder
                                     owned by the block before (embedding:
                                     TENSOR_NONE) */
    tensor_id output;             /* hidden states that go out (head: the
                                     loss) */
    uint64_t global_buffer_bytes; /* largest use of the framework's buffer,
                                     of which a rank has one, never freed */
    tensor_id memory;  /* the encoder's result, where the block makes it or
                         attends to it; what else its layer hands to a block
                         far above, or gets from one far below; else
                         TENSOR_NONE */
    bool hands_far;    /* memory is handed to a block far above, or from one
                         far below: its gradient is there from the backward of
                         the one to that of the other */
    bool open;         /* no module: nobody holds its input until it is done */
    bool holds_input;  /* a variable does, until the loss is there */
    bool holds_output; /* BLOCK_EMBED: likewise its own result */
    bool frames_input; /* ... until the stack of layers that follows is done */
    bool names_graph;  /* its module does, of an operation that its input leads
                         to, until it runs again: a checkpoint's input and that
                         one's gradient stay with it */
    bool memory_waits; /* its gradient is there when backward comes here */
};

enum { BLOCK_MAX = 16, SPAN_MAX = 5 };

/* A ROLE_SHARED tensor of one of two stacks. Forward has it from the layer `made`
 * on, backward down to the layer `last`. Where layers add up their gradients of
 * it the sum is there from the backward of `high` to that of `low`, down to which
 * a checkpoint that runs again has the tensor. */
struct stack_span {
    tensor_id of;
    uint64_t made, last, low, high;
};

struct program {
    struct tensor *tensor;
    struct op *op;
    uint32_t n_tensors, n_ops;
    struct block block[BLOCK_MAX];
    uint32_t n_blocks;
    uint32_t embed, head; /* indices into block */
    uint32_t words;       /* the block whose table of words others share */
    uint8_t *layer_block; /* [layers]: index into block */
    uint64_t layers;
    bool norms_last; /* a layer's, in the order of its module's parameters */
    tensor_id first_shared, n_shared; /* ROLE_SHARED tensors, contiguous */
    struct stack_span span[SPAN_MAX];
    uint32_t n_spans;
    tensor_id first_input, n_input; /* ROLE_INPUT tensors, contiguous */
    uint64_t lora_words; /* LORA_...: --lora-targets that name a linear of it */
    uint64_t regions;    /* that some operation is in: bit op.region */
    uint64_t tokens;     /* of one micro-batch on this rank: b*s/cp */
    uint64_t routed;     /* experts of a token */
    uint64_t chosen;     /* rows that a rank has for experts: tokens times
                            those, up to a capacity */
    double routed_share; /* of all experts, that these may be of */
};

/* Lowers a model as `run` says (implementation, precision, shards). The arrays
 * live in the arena. Reports E_UNSUPPORTED for what an implementation does not
 * have; E_OVERFLOW; E_NOMEM. */
memplan_status lower_model(struct program *out, const struct spec *spec,
                           const struct run *run, struct arena *a,
                           struct diag *d);

/* The product that makes logits, in the head's block; NULL: there is none. */
const struct op *program_words_product(const struct program *p);

/* Of so many places, those that a token's `k` experts are at on average, if any
 * is as likely: a draw for each expert, of the share of places that the router's
 * groups leave it (program.routed_share). */
double program_reached(double places, double share, uint64_t k);

/* How often a block is in the model. */
static inline uint64_t program_times(const struct program *p, uint32_t block)
{
    return block == p->embed || block == p->head ? 1 : p->block[block].layers;
}

/* Layers from `first` to before `end` are a block. */
void program_set_layers(struct program *p, uint64_t first, uint64_t end,
                        uint32_t block);

static inline bool tensor_is_expert(const struct tensor *t)
{
    return t->group == PG_EXPERT || t->of_experts;
}

/* Of the members from checkpointed to returns, all bools, none is set. */
static inline bool op_is_plain(const struct op *op)
{
    enum {
        FIRST = offsetof(struct op, checkpointed),
        SIZE = offsetof(struct op, returns) + sizeof(bool) - FIRST
    };
    static const char none[SIZE];
    return memcmp((const char *)op + FIRST, none, SIZE) == 0;
}

/* Nothing is said of how long it lives, or where it lies: of the members from
 * framed to held, all bools, none is set. */
static inline bool tensor_is_plain(const struct tensor *t)
{
    enum {
        FIRST = offsetof(struct tensor, framed),
        SIZE = offsetof(struct tensor, held) + sizeof(bool) - FIRST
    };
    static const char none[SIZE];
    return memcmp((const char *)t + FIRST, none, SIZE) == 0;
}

/* Of a parameter. */
static inline uint64_t tensor_grad_bytes(const struct tensor *t)
{
    return t->grad_copies > 1 ? t->bytes * t->grad_copies : t->bytes;
}

/* Whether a parameter of a block comes after those of the other kind, in the
 * order in which the module has them: else that of the operations. */
static inline bool program_comes_last(const struct program *p,
                                      const struct block *b,
                                      const struct tensor *t)
{
    return p->norms_last && b->kind == BLOCK_LAYER && t->group == PG_NORM;
}

/* ---- save_rule.c ---- */

enum { SAVED_MAX = OP_IN_MAX + OP_OUT_MAX };

/* OP_RELEASE computes nothing: it stands where a caller lets go of a tensor
 * that it held by name (a Python variable, a frame), and so lengthens its
 * life in forward. */

/* What autograd keeps for the backward of one operation: tensors, views
 * included, parameters included; returns how many. [method.md eq. saved] */
size_t op_saves(const struct program *p, const struct op *op,
                tensor_id saved[SAVED_MAX]);
/* The same as numbers of operands, those that it takes before those that it
 * makes. */
size_t op_saves_operands(const struct program *p, const struct op *op,
                         uint8_t at[SAVED_MAX]);
/* Whether it keeps anything, and whether that is a *result, which is there only
 * once it has run. */
bool op_saves_any(const struct program *p, const struct op *op, bool *result);
/* Whether operations of a kind ever save anything. */
static inline bool op_kind_saves(enum op_kind kind)
{
    const uint64_t nothing =
        UINT64_C(1) << OP_ADD | UINT64_C(1) << OP_SCALE | UINT64_C(1) << OP_NEG
        | UINT64_C(1) << OP_MEAN | UINT64_C(1) << OP_CAST
        | UINT64_C(1) << OP_COPY | UINT64_C(1) << OP_VIEW
        | UINT64_C(1) << OP_CAT | UINT64_C(1) << OP_CUMSUM
        | UINT64_C(1) << OP_QUANTIZE | UINT64_C(1) << OP_RELEASE
        | UINT64_C(1) << OP_ALL_REDUCE | UINT64_C(1) << OP_ALL_GATHER
        | UINT64_C(1) << OP_REDUCE_SCATTER | UINT64_C(1) << OP_ALL_TO_ALL;
    _Static_assert(OP_KIND_COUNT <= 64, "a bit a kind");
    return (nothing >> kind & 1) == 0;
}

/* Of a product: whether another tensor stands for its input in backward. */
bool op_keeps_shard(const struct program *p, const struct op *op);

const char *op_kind_name(enum op_kind kind);
const char *op_kind_keeps(enum op_kind kind);
const char *param_group_name(enum param_group group);

#endif
