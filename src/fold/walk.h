/*
 * Walks one block of the step program forward and backward as an autograd
 * engine would, and finds out what stays, and how much is alive at most.
 */
#ifndef MEMPLAN_FOLD_WALK_H
#define MEMPLAN_FOLD_WALK_H

#include "ir/program.h"

struct run;

/* PyTorch's caching allocator hands out multiples of this
 * (c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize). */
enum { ALLOC_ROUND = 512 };

static inline uint64_t round_to(uint64_t bytes, uint64_t granule)
{
    return div_up(bytes, granule) * granule;
}

static inline uint64_t round_alloc(uint64_t bytes)
{
    return round_to(bytes, ALLOC_ROUND);
}

/* PyTorch's cache of pinned memory hands out powers of two
 * (ATen/core/CachingHostAllocator.h, allocate). */
static inline uint64_t round_to_power(uint64_t bytes)
{
    uint64_t n = 1;
    while (n < bytes && n < UINT64_C(1) << 62)
        n *= 2;
    return bytes == 0 ? 0 : n;
}

/* What becomes of a weight's gradient once it is computed. */
enum wgrad_mode {
    WGRAD_KEEP, /* stays: .grad of the first micro-batch */
    WGRAD_FREE, /* added to, or copied into, what exists, and freed */
    WGRAD_NONE, /* matmul weights: the kernel adds into the existing buffer */
    WGRAD_MODES
};

/* The fullest moment of a walk. */
struct extremum {
    uint64_t kept;  /* of what backward needs */
    uint64_t tmp;   /* everything else but weight gradients */
    uint64_t wgrad; /* weight gradients of this block so far */
    uint32_t op;    /* index into program.op */
    bool input;     /* the block's own is among what backward needs */
};

static inline uint64_t extremum_total(const struct extremum *e)
{
    return e->kept + e->tmp + e->wgrad;
}

/* A walk of a layer, part by part in its order. */
struct node_walk {
    struct extremum top[LAYER_NODES]; /* the fullest moment of each */
    struct extremum end[LAYER_NODES]; /* what is alive when it is done */
};

/* What a layer's parts have while another micro-batch's pass runs between. */
struct overlap_walk {
    struct node_walk forward, backward[WGRAD_MODES];
};

/* A weight's gradient that an engine takes as it comes (WGRAD_FREE). */
struct arrival {
    uint64_t elems;  /* 0: its first part only, or of a part unsharded */
    bool low;        /* tensor.low */
    uint64_t goes;   /* bytes of the weight, were it gathered: its module's
                      backward is over with it; 0: it stays */
    uint64_t offset; /* of the weight, among the block's trained ones */
    struct extremum until; /* the fullest since the one before */
    struct extremum at;    /* when the engine is told */
};

/* A block's fullest moment where an engine makes nothing of any arrival, and what
 * of its weights has gone by then. */
struct calm {
    struct extremum e;
    uint64_t gone;
};

/* Gradients that arrive, of all the weights of a block that are no other
 * block's. */
struct arrived {
    uint64_t elems, tensors;
    uint64_t largest, second; /* elements of one, of another */
    uint64_t offset, end; /* where the first of them lies, and the last ends */
    uint64_t latest;      /* offset of the one that arrives last */
};

/* Modules whose tensors wait on the host (AWAY_MODULES). */
struct module_group {
    enum offload_module id;
    uint32_t first, commit; /* operations of the block: it begins, it is done */
    uint64_t back;          /* bytes on the GPU when it is back */
    uint64_t moved, pinned; /* not rounded; on the host, tensor by tensor */
};
struct modules_walk {
    struct module_group group[OFFMOD_COUNT]; /* in the order that they begin */
    uint32_t n, committed;
    uint32_t order[OFFMOD_COUNT]; /* of group: as they are done */
    bool named_input; /* the block's input is among what goes, and its callers
                         still name it */
    /* backward, up to where the first module is done, and so on: of a layer
       whose tensors stayed, and where they have gone and are back */
    struct extremum stayed[WGRAD_MODES][OFFMOD_COUNT + 1];
    struct extremum back[WGRAD_MODES][OFFMOD_COUNT + 1];
};

struct block_walk {
    uint64_t kept;          /* alive from forward to backward; the block's input
                         counts when it is among it */
    uint64_t input, output; /* hidden states in and out */
    uint64_t received;      /* ... in, where another rank sent them */
    uint64_t waiting;       /* gradient of the encoder's result that comes in */
    bool keeps_input, keeps_output;
    bool idle; /* nothing of it has a gradient: backward does not come here */
    uint64_t lingers;           /* to the end of forward, and not kept: weights
                         that autocast casts and caches, tensor.lingers */
    uint64_t lingers_nograd;    /* the same under a checkpoint */
    uint64_t past, past_nograd; /* of these, to the end of backward */
    uint64_t wgrad;             /* gradients of all its trained weights */
    struct extremum forward;    /* relative to a state without the input */
    bool renames, returns;      /* in it op.renames, op.returns */
    struct extremum inside;     /* of forward, up to where it returns */
    struct extremum before, after;  /* ... from there to where the loop renames,
                         and since the last of these */
    uint64_t held;                  /* of kept: tensor.held */
    uint64_t framed;                /* tensor.framed, neither kept nor output */
    uint64_t takes;                 /* of what the embedding handed on */
    uint64_t checkpoint;            /* kept by a checkpoint around the block:
                         its input, and what a policy says */
    struct extremum forward_nograd; /* under a checkpoint: `kept` is what a
                         policy says */
    struct extremum again;          /* forward a second time, out of a
                         checkpoint: all that backward needs is kept */
    struct extremum again_early;    /* the same, ended where all is made that
                         backward needs; WALK_EARLY only */
    struct extremum backward[WGRAD_MODES]; /* `kept` falls as it goes */
    struct extremum split[WGRAD_MODES];    /* WALK_SPLIT: the same without the
                         gradients of linears' weights, for which what they
                         need stays */
    struct extremum weights[WGRAD_MODES];  /* these, later */
    struct extremum unpacked[WGRAD_MODES]; /* WALK_UNPACKS: backward out of a
                         checkpoint that hands saved tensors over one by one */
    uint64_t lead; /* and the gradients that are there when it asks for the
                         first of them */
    /* WALK_ARRIVALS: in order; one more at the end, of which only `until` is
       meant; else NULL. The same, unpacked */
    struct arrival *arrival, *unpacked_arrival;
    uint32_t arrivals;
    struct arrived arrived;
    /* where weights stay, and where they go; unpacked */
    struct calm calm[2], unpacked_calm[2];
    struct away {
        uint64_t bytes;  /* of kept: goes to the host; scratch.away */
        uint64_t moved;  /* the same, not rounded; and of copies */
        uint64_t pinned; /* on the host, tensor by tensor */
        uint64_t copies; /* what layers share, each its own when it is back */
        const struct modules_walk *modules; /* AWAY_MODULES, else NULL */
        uint64_t left; /* AWAY_TENSORS: of bytes, still on the way when the
                            layer is done */
        struct extremum forward;               /* AWAY_TENSORS, AWAY_MODULES */
        struct extremum backward[WGRAD_MODES]; /* what came back stays; AWAY_
                            TENSORS: comes when it is needed */
    } away;
    uint64_t stash;     /* between the two: inputs of linears and gradients of
                         their results; of a graph all that was kept */
    bool stashes_input; /* the block's input is among it */
    uint64_t left;      /* of a graph, with all these gradients there */
    /* WALK_REMAKES: the same of a layer under a checkpoint, whose input is not
       counted here; of `weights` the layer's tensors are there once more for
       each gradient */
    struct extremum remade_split[WGRAD_MODES], remade_weights[WGRAD_MODES];
    struct extremum remade_topmost[WGRAD_MODES]; /* ... with nothing above it */
    uint64_t remade_stash, remade_left;
    const struct overlap_walk *overlap; /* of a layer; NULL: nobody asks */
};

/* One slot a tensor: see walk.c. Room for the largest block. */
struct walk_slot;
struct walk_way_out;
struct walk_scratch {
    struct walk_slot *slot;
    struct walk_way_out *way_out; /* see struct walk, as the next six */
    struct walk_buffer *buffer;
    struct walk_operand *operand;
    struct walk_slot **saved, **made;
    uint32_t *saved_from;
    uint64_t *ends;
    struct arrival *arrival; /* [arrivals_room] */
    uint32_t arrivals, arrivals_room;
    bool bare; /* without what kernels need for a moment, as where no GPU
                         runs them */
    uint32_t reduce_blocks; /* that the GPU runs at once, where PyTorch's kernel
                               sums rows; 0: another one does */
    bool cudnn;             /* whose attention it is */
    bool graph;             /* a split backward keeps all of autograd's graph */
    enum graph_step step;   /* of a run with CUDA graphs: whose it is */
    bool weights_first;     /* a linear's gradient, before its input's */
    bool delays;            /* ... later than that, in a part of its own */
    bool result_held; /* a layer's result's gradient, to the end of its backward
                       */
    uint64_t granule; /* allocations are multiples of it, a power of two:
                         ALLOC_ROUND, or 1 to count bytes of tensors */
    unsigned update_copies; /* of a weight, where WGRAD_FREE is its update */
    const struct run *projects; /* with it: of a projected one, by rank */
    bool tied_table;            /* with it: the head's gradient waits */
    uint64_t persists;          /* weights of so many elements stay gathered */
    enum away_how away;         /* what layers keep goes to the host */
    bool away_head;       /* so does what the head's norm keeps, one by one */
    uint64_t least_elems; /* AWAY_MODULES: of what goes */
    struct modules_walk *modules; /* ... [p->n_blocks] */
    struct module_entry *entry;   /* ... */
    uint32_t entries_room;
    struct overlap_walk *overlap; /* for the next block's; NULL: nobody asks */
    struct walk_common *common; /* of the blocks walked so far; NULL: no two of
                                     the program's begin alike */
};

/* Allocates scratch for every block of p, as `away` is set; false when out of
 * memory. */
bool walk_scratch_init(struct walk_scratch *s, const struct program *p,
                       struct arena *a);

/* `regions` is the set of recompute regions that are active: bit r for
 * op.region == r + 1. modes: bit m for enum wgrad_mode m, and WALK_CHECKPOINT
 * for forward_nograd and again, WALK_EARLY for again_early, WALK_SPLIT for split
 * and weights, WALK_ARRIVALS, beside WGRAD_FREE, for arrivals (of each block
 * once, there is room for no more), WALK_UNPACKS for unpacked and lead; beside
 * it WALK_UNPACKED, for no other backward where the block has one. Beside
 * WALK_CHECKPOINT, where the block has a backward: WALK_UNDER, for no forward
 * that is not under the checkpoint; WALK_LONE, for no `again`; beside it and
 * WALK_SPLIT: WALK_REMAKES, for what is remade. No allocation. */
enum {
    WALK_EARLY = 1u << 8,
    WALK_SPLIT = 1u << 9,
    WALK_ARRIVALS = 1u << 10,
    WALK_UNPACKS = 1u << 11,
    WALK_CHECKPOINT = 1u << 12,
    WALK_UNPACKED = 1u << 13,
    WALK_UNDER = 1u << 14,
    WALK_LONE = 1u << 15,
    WALK_REMAKES = 1u << 16
};
void walk_block(struct block_walk *out, const struct program *p,
                const struct block *block, uint64_t regions, unsigned modes,
                struct walk_scratch *scratch);

/* Allocations of a backward kernel that live for a moment, at most. */
enum { PARTS_MAX = 8 };

/* What happens in a walk, for whoever wants to follow it. */
enum walk_what {
    WALK_TENSOR,    /* a storage of the block or its input: `slot` */
    WALK_GRADIENT,  /* a gradient of an activation */
    WALK_WGRAD,     /* a weight's gradient that stays */
    WALK_WORKSPACE, /* what a backward kernel has for a moment */
    WALK_AGAIN,     /* a region's result made a second time */
    WALK_RENAMES,   /* op.renames: no memory of the block */
    WALK_RETURNS,   /* op.returns, likewise */
    WALK_PRODUCT,   /* the first product of matrices, likewise */
    WALK_ARRIVAL,   /* a weight's gradient that goes when the engine has it */
    WALK_ARRIVES,   /* the engine is told of it: no memory of the block */
    WALK_BACK,      /* AWAY_MODULES: a copy that is back, for one operation */
    WALK_AHEAD,     /* ... the next group comes: no memory of the block */
    WALK_NODE,      /* part `key` of a layer begins, LAYER_NODES: all are done:
                       no memory of the block */
    WALK_REMADE,    /* death: of all that was made again of a WALK_TENSOR */
    WALK_STASH      /* birth: a WALK_GRADIENT stays for its weight's gradient;
                       death: that is there */
};
struct walk_event {
    bool birth;
    enum walk_what what;
    bool kept;    /* WALK_TENSOR: lives to backward; a WALK_GRADIENT's death:
                     it is the input's, which the block below takes over */
    bool away;    /* WALK_TENSOR, kept: walk_slot.away */
    bool lingers; /* a WALK_TENSOR's death: no longer the block's, there to the
                     end of forward */
    uint32_t key; /* tells apart the live ones of one kind */
    uint64_t bytes;
    const char *name; /* of the tensor, or of the operation */
};
typedef void walk_event_fn(void *ctx, const struct walk_event *e);

/* What a forward is for. */
enum walk_pass {
    PASS_KEEP,       /* what backward needs stays */
    PASS_CHECKPOINT, /* what a policy says stays, else nothing */
    PASS_AGAIN,      /* after PASS_CHECKPOINT: what backward needs is made */
    PASS_AGAIN_EARLY /* ... and no more: without the result */
};

/* Which direction of a block is told, and how. */
enum walk_way {
    TELL_FORWARD,
    TELL_AWAY, /* ... of a layer whose tensors go to the host */
    TELL_BACKWARD,
    TELL_UNPACKED, /* ... whose saved tensors are unpacked */
    TELL_RELOADED, /* ... of a layer whose tensors went to the host */
    TELL_SPLIT,    /* the two halves of a backward that is split */
    TELL_WEIGHTS,
    TELL_REMADE_SPLIT, /* ... of a layer under a checkpoint */
    TELL_REMADE_WEIGHTS,
    TELL_REMADE_TOPMOST /* ... the topmost of a stage */
};

struct walk_telling {
    const struct program *p;
    const struct block *block;
    uint64_t regions;
    enum walk_way way;
    enum walk_pass pass;  /* of TELL_FORWARD */
    enum wgrad_mode mode; /* of every backward */
    walk_event_fn *tell;
    void *ctx;
};

/* One direction of one block, told event by event. Forward begins with the
 * birth of the input and leaves what is kept and the output alive; a second
 * one begins with what the first left. Backward starts with what forward kept,
 * and ends with the death of the input's gradient, which the block below takes
 * over. The sums are those of walk_block(). */
void walk_tell_block(const struct walk_telling *how,
                     struct walk_scratch *scratch);

/* Lists what a block keeps: calls `each` with the storage and the first
 * operation that keeps it. For `explain`. */
typedef void walk_kept_fn(void *ctx, const struct tensor *t,
                          const struct op *op, uint64_t bytes);
void walk_kept(const struct program *p, const struct block *block,
               uint64_t regions, struct walk_scratch *scratch,
               walk_kept_fn *each, void *ctx);

#endif
