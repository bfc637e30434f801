/*
 * What the folds find out about one (model, run): plain numbers that know
 * their terms. Filled by src/fold, read by src/plan and src/report.
 */
#ifndef MEMPLAN_FOLD_RESULT_H
#define MEMPLAN_FOLD_RESULT_H

#include "base/arena.h"
#include "ir/program.h"

enum component {
    COMP_PARAMETERS,
    COMP_GRADIENTS,
    COMP_OPTIMIZER,
    COMP_ACTIVATIONS,
    COMP_TEMPORARY,
    COMP_COUNT
};

#define TERM(id, component, key, label, equation) TERM_##id,
enum term {
#include "fold/term.def"
    TERM_COUNT
};
#undef TERM

struct term_info {
    enum component component;
    const char *key;      /* in JSON */
    const char *label;    /* in tables */
    const char *equation; /* heading in docs/method.md */
};

const struct term_info *term_info(enum term term);
const char *component_key(enum component c);   /* "optimizer_states" */
const char *component_label(enum component c); /* "optimizer states" */

/* Moments of the step at which memory is looked at. */
#define PHASE_MAP(X)                                                           \
    X(PHASE_REST, "rest")                                                      \
    X(PHASE_FORWARD, "forward")                                                \
    X(PHASE_LOSS, "loss")                                                      \
    X(PHASE_BACKWARD, "backward")                                              \
    X(PHASE_RECOMPUTE, "recompute")                                            \
    X(PHASE_ACCUMULATE, "gradient accumulation")                               \
    X(PHASE_REDUCE, "gradient reduction")                                      \
    X(PHASE_CLIP, "gradient clipping")                                         \
    X(PHASE_STEP, "optimizer step")
#define PHASE_ENUM(id, text) id,
enum phase { PHASE_MAP(PHASE_ENUM) PHASE_COUNT };
#undef PHASE_ENUM
const char *phase_name(enum phase phase);

/* Whether a block's pass takes turns with another micro-batch's the other way
 * (ep_overlap), and what is alive beside it then. */
struct beside {
    bool is;
    uint8_t node;    /* the part of a layer, + 1; 0: all of the block */
    uint64_t others; /* kept by other chunks in flight */
    uint64_t pass;   /* alive of the other pass; 0: there is none */
    uint32_t
        stale;   /* modules of layers from this position on name a graph whose
                        backward is over */
    bool begins; /* the lowest one's gradient is what a pass has in hand */
};

/* One moment: where in the step, and every byte that is alive then. */
struct moment {
    enum phase phase;
    uint32_t position; /* block position on the stage (embedding, layers,
                               head, in order) */
    bool later;        /* a micro-batch after the first of the step */
    struct beside beside;
    uint64_t bytes[TERM_COUNT];
    uint64_t total;
    const char *op; /* name of the operation at the maximum, or "" */
};

/* The caching allocator's pools: a pair a stream. */
#define SIM_POOL_MAP(X)                                                        \
    X(SIM_LARGE, "large", "large blocks")                                      \
    X(SIM_SMALL, "small", "small blocks")                                      \
    X(SIM_GATHER_LARGE, "gather_large", "large blocks, gather stream")         \
    X(SIM_GATHER_SMALL, "gather_small", "small blocks, gather stream")         \
    X(SIM_REDUCE_LARGE, "reduce_large", "large blocks, reduce stream")         \
    X(SIM_REDUCE_SMALL, "reduce_small", "small blocks, reduce stream")
#define SIM_POOL_ENUM(id, key, text) id,
enum sim_pool { SIM_POOL_MAP(SIM_POOL_ENUM) SIM_POOLS };
#undef SIM_POOL_ENUM
const char *sim_pool_key(enum sim_pool pool);
const char *sim_pool_label(enum sim_pool pool);

struct sim_pool_result {
    uint64_t reserved, segments;
    uint64_t allocated; /* at its own peak */
};

/* What the caching allocator made of a stage's steps. */
struct simulated {
    bool done;                    /* else nothing below is known */
    bool oom;                     /* the device could not grant all of it */
    uint64_t allocated, reserved; /* peaks over the steps */
    uint64_t steady;              /* allocated between steps */
    /* of samples of different lengths, by their order; 0: all alike */
    uint64_t reserved_least, reserved_most;
    uint64_t steps, births, retries;
    /* where allocated was at its peak */
    enum phase phase;
    uint32_t position;
    bool later;
    struct beside beside;
    struct sim_pool_result pool[SIM_POOLS];
};

/* What the allocator reserves, not simulated. */
struct reserve {
    uint64_t rest;     /* alive all the time */
    uint64_t pools;    /* with what comes and goes, each pool at its fullest */
    uint64_t permille; /* of what comes and goes, with its gaps */
    uint64_t about;    /* what is reserved of all that */
    uint64_t
        least; /* of what the peak needs, where there is no room for that */
};

struct stage_result {
    uint64_t index, first_layer, layers;
    uint64_t low_layers;  /* from first_layer on; the others are elsewhere: */
    uint64_t high_layer;  /* from this one on: the second chunk */
    uint64_t high_layers; /* ... so many */
    uint64_t chunks;      /* above 2 there are more, each pp chunks further */
    bool has_embedding, has_head;
    uint64_t parameters;   /* elements on this rank before state sharding */
    uint64_t model_states; /* weights, one set of gradients and optimizer
                               states as this rank holds them, paged moments
                               wherever they are: ZeRO's figure */
    uint64_t in_flight;    /* micro-batches (chunks when interleaved) */
    uint64_t waiting;      /* backwards whose weights' gradients come later */
    uint64_t paged;        /* moments in unified memory */
    uint64_t paged_here;   /* of those, on the device: as far as there is room
                              beside the allocator's, which they give way to */
    struct moment rest;    /* between steps */
    struct moment peak;
    const char *peak_block; /* "layer", "head", ... ; "" in the step */
    uint64_t peak_layer;    /* of the whole model; meaningful for layers */
    uint64_t component[COMP_COUNT]; /* of the peak; add up to peak.total */
    struct reserve reserve;         /* of the closed form */
    uint64_t reserved;
    /* of CUDA graphs: what their pool reserves; what is reserved once they run;
       what of `rest` was not there at the peak, which is of a step before */
    uint64_t graph_pool, graph_reserved, graph_rest;
    struct simulated sim;
};

/* A labelled row outside the allocator: CUDA context, communicators. */
enum { OUTSIDE_MAX = 8 };
struct outside_row {
    const char *key, *label;
    uint64_t bytes;
    uint64_t count; /* communicators: how many */
    const char *source;
    bool unverified;
};

/* ---- what lies beside the GPU ---- */

/* Where bytes are, and which way they move in a step. */
#define OFFLOAD_KIND_MAP(X)                                                    \
    X(OFFLOAD_ON_HOST, "host", "in host memory")                               \
    X(OFFLOAD_ON_PINNED, "pinned", "in host memory, pinned")                   \
    X(OFFLOAD_ON_DISK, "disk", "on disk")                                      \
    X(OFFLOAD_TO_HOST, "to_host", "moved to the host in a step")               \
    X(OFFLOAD_FROM_HOST, "from_host", "moved from the host in a step")         \
    X(OFFLOAD_TO_DISK, "to_disk", "written to disk in a step")                 \
    X(OFFLOAD_FROM_DISK, "from_disk", "read from disk in a step")
#define OFFLOAD_KIND_ENUM(id, key, text) id,
enum offload_kind { OFFLOAD_KIND_MAP(OFFLOAD_KIND_ENUM) OFFLOAD_KINDS };
#undef OFFLOAD_KIND_ENUM
const char *offload_kind_key(enum offload_kind kind);
const char *offload_kind_label(enum offload_kind kind);

struct offload_row {
    const char *label;
    enum offload_kind kind;
    uint64_t bytes;                /* of one GPU */
    const char *formula, *pattern; /* as of a comm_row */
    double factor[4];
};
enum { OFFLOAD_ROW_MAX = 28 };
struct offload_result {
    size_t n;
    uint64_t sum[OFFLOAD_KINDS];
    /* pinned included; of a node: of all its GPUs */
    uint64_t host, host_node, pinned_node, disk_node, node_gpus;
    struct offload_row row[OFFLOAD_ROW_MAX];
};

/* Of a rank's files: elements that a step swaps, their states, which it reads
 * and writes, in so many sub-groups, and gradients; elements of trained weights,
 * bytes of them, and with frozen ones what each pass reads. */
struct disk_bytes {
    uint64_t groups, swapped, states, gradients;
    uint64_t weights, stepped, each_pass;
};

struct memory_result {
    struct stage_result *stage;        /* [n_stages], arena */
    const struct block_states *states; /* [blocks], arena: states.h */
    const struct rank_order *order; /* [ranks that differ], arena: schedule.h;
                                          NULL: not listed */
    uint64_t n_stages, worst;
    uint64_t model_states; /* of the worst stage, as the next two */
    uint64_t steady, peak;
    uint64_t reserved;
    uint64_t reserved_stage; /* whose it is: the one that reserves most */
    bool retries; /* fits only since the allocator gives its cache back */
    size_t n_outside;
    uint64_t device_stage; /* that has most on its device, paged moments too:
                              whose the next three are */
    uint64_t paged, paged_here, paged_on_host;
    uint64_t outside, device_total, capacity;
    int64_t headroom; /* capacity - device_total */
    bool fits;
    /* Last, for a fold clears no rows. */
    struct offload_result offload; /* of the stage with most on its host */
    struct outside_row outside_row[OUTSIDE_MAX];
};

/* Parameters by kind, from the program's weight tensors. */
struct params_result {
    uint64_t total, trainable, frozen, embedding, active, expert;
    uint64_t buffers;              /* elements a checkpoint has beside them */
    uint64_t active_without_input; /* of `active`, what is no mere look-up */
    uint64_t active_without_words; /* without the head's matrix either */
    uint64_t group[PG_COUNT];
};

/* Per token of training data unless said; FLOPs. [method.md eq. flops] */
struct flops_result {
    double forward_causal, forward_full; /* per token, whole model */
    double model_causal, model_full;     /* forward + backward */
    double hardware_causal;              /* with recomputation */
    double six_n;                        /* 6 N, N active parameters; NAN: means
                                            nothing here */
    double linear_forward, attention_forward_causal, head_forward;
};

/* Bytes that one GPU sends in one optimizer step, by purpose. */
struct comm_row {
    const char *key, *label, *collective, *group;
    double bytes;        /* per GPU and step */
    const char *formula; /* "2 * P * w * (n-1)/n" */
    const char *pattern; /* of the numbers put in: a '#' for each factor */
    double factor[4];
    const char *equation;
};
enum { COMM_ROW_MAX = 16 };
struct comm_result {
    struct comm_row row[COMM_ROW_MAX];
    size_t n;
    double total;
};

/* Where the time of a step goes, on the rank that computes longest. */
#define TIME_PART_MAP(X)                                                       \
    X(TIME_PRODUCTS, "matrix_products", "matrix products",                     \
      "sum over products, forward and backward: FLOP / (peak * share)")        \
    X(TIME_ATTENTION, "attention", "attention",                                \
      "sum over the layers' attention, forward and backward")                  \
    X(TIME_MEMORY, "memory_bound", "element-wise kernels",                     \
      "bytes moved / (bandwidth * share), and a latency a kernel")             \
    X(TIME_AGAIN, "recompute", "recomputation",                                \
      "forward kernels that run again in backward")                            \
    X(TIME_HOST, "host", "waiting for the host",                               \
      "kernels * time to start one, beyond what they run")                     \
    X(TIME_TP, "tensor_parallel", "tensor-parallel messages",                  \
      "collectives in the layers that nothing covers")                         \
    X(TIME_CP, "context_parallel", "context-parallel messages",                \
      "collectives in the layers that nothing covers")                         \
    X(TIME_EP, "expert_parallel", "expert-parallel messages",                  \
      "collectives in the layers that nothing covers")                         \
    X(TIME_DP, "data_parallel", "data-parallel messages",                      \
      "gradients out and weights in, less what is computed beside them")       \
    X(TIME_SLOWED, "overlap", "computing slowed by messages",                  \
      "messages beside what is computed * share of the GPU that they take")    \
    X(TIME_BUBBLE, "bubble", "pipeline bubble",                                \
      "other stages' passes and messages while the pipeline fills and drains") \
    X(TIME_OPTIMIZER, "optimizer", "optimizer step",                           \
      "sum over the optimizer's rows below: bytes / (bandwidth * share)")      \
    X(TIME_OFFLOAD, "offload", "transfers to and from the host",               \
      "sum over the link's rows below: bytes / rate, less what hides them")    \
    X(TIME_DISK, "disk", "transfers to and from disks",                        \
      "sum over the disks' rows below: bytes / rate, less what hides them")
#define TIME_PART_ENUM(id, key, text, rule) id,
enum time_part { TIME_PART_MAP(TIME_PART_ENUM) TIME_PARTS };
#undef TIME_PART_ENUM
const char *time_part_key(enum time_part part);
const char *time_part_label(enum time_part part);
const char *time_part_rule(enum time_part part);

/* One optimizer step. [method.md eq. step-time] */
struct time_result {
    bool known;
    bool measured;           /* the GPU's kernels were, not its family's */
    double part[TIME_PARTS]; /* seconds; they add up to step_s */
    double step_s;
    double exposed_s; /* of messages */
    double bubble;    /* idle over busy time of the pipeline */
    uint64_t stage;   /* whose parts these are */
    const char *source;
};

/* ---- explanation: the same folds with their terms kept ---- */

struct explain_entry {
    const char *section; /* "memory / activations", "compute", ... */
    const char *name;    /* "saved by the layers" */
    const char *unit;    /* "B", "FLOP", "s", "h", "USD", "" */
    double value;
    uint64_t bytes;       /* when unit is "B": exact */
    const char *formula;  /* "P * w / N" */
    const char *numbers;  /* "6738415616 * 2 / 64" */
    const char *equation; /* heading in docs/method.md, or "" */
    const char *source;   /* citation, or "" */
    unsigned depth;       /* 0 a sum, 1 its parts, 2 tensors of a part */
};

struct explanation {
    struct arena *arena;
    struct explain_entry *entry;
    size_t n, capacity;
    bool failed; /* out of memory */
};

/* The numbers put into a formula: `pattern` with each '#' replaced by the next
 * value. In the arena; NULL when out of memory. */
const char *explain_numbers(struct arena *a, const char *pattern,
                            const double *value);
#define NUMBERS(a, pattern, ...)                                               \
    explain_numbers((a), (pattern), (const double[]){ __VA_ARGS__ })

/* Adds an entry; strings are kept by pointer (static or in the arena). */
void explain_add(struct explanation *x, struct explain_entry entry);

#endif
