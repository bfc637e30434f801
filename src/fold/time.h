/*
 * Time of a step: every operation's kernels by a roofline, messages by their
 * link, and what of them waits for what. [docs/method.md eq. kernels,
 * eq. collectives, eq. step-time]
 */
#ifndef MEMPLAN_FOLD_TIME_H
#define MEMPLAN_FOLD_TIME_H

#include "fold/result.h"
#include "fold/states.h"

#include "data/kernel.h"

struct time_log;
struct copy_note;

/* Time that a host takes to start a kernel, autograd's work included: PyTorch
 * forward, and backward, where no Python runs. */
#define HOST_FORWARD_S 14e-6
#define HOST_BACKWARD_S 8e-6
/* More for a collective than for a kernel, as much as four starts: through c10d it
 * records an event, lets a stream wait for another, and back, and NCCL starts its
 * kernel from a group. Nobody timed it, and no measured row tells but those of
 * DeepSpeed's pipelines (time_exchange.c). */
#define HOST_MESSAGE_S 50e-6
/* Share of the link's rate that copies from and to pinned memory reach
 * (stas00/ml-engineering, network: 55 of 63 GB/s). */
#define HOST_LINK_SHARE 0.87
#define HOST_LINK_SOURCE                                                       \
    "stas00/ml-engineering, network: 0.87 of the link's rate"

/* The machine as a run sees it. */
struct known_products;
struct clock {
    const struct program *p;
    const struct run *run;
    const struct kernel_speed *speed;
    bool measured;
    double slowest;               /* kernel_slowest() of all GPUs */
    struct time_log *log;         /* of an explanation; else NULL */
    struct known_products *known; /* NULL: each product is timed anew */
};

void clock_init(struct clock *c, const struct program *p,
                const struct run *run);

/* ---- time_kernel.c ---- */

/* A product of m x k by k x n, `copies` at once, of operands of a type. */
struct product {
    double m, n, k, copies;
    enum dtype dtype;
    bool fp8;
    double result_bytes; /* of an element; read too where it is added to */
    unsigned align; /* elements at whose multiples all rows begin; 0: enough */
    bool exact;     /* of 8 bits: sums are kept in fp32 */
};
double time_product(const struct clock *c, const struct product *x);
/* What products of a run take that were timed already: blocks have several of a
 * shape. Begins with none: { 0 }. */
enum { KNOWN_PRODUCTS = 32 };
struct known_products {
    struct known_product {
        struct product of;
        double seconds;
    } at[KNOWN_PRODUCTS];
};
/* FLOP/s of the dense peak of a type's products. */
double time_peak(const struct clock *c, enum dtype dtype);
/* Element-wise kernels that move so many bytes. */
double time_bytes(const struct clock *c, double bytes);

/* One pass over a block, by part of the step (up to TIME_EP, and TIME_SLOWED). */
struct pass {
    double part[TIME_PARTS];
    double kernels;     /* that the host starts */
    double messages;    /* collectives among them */
    double again;       /* kernels of forward that backward runs again */
    double checkpoints; /* blocks that it does so for */
};

/* Of one micro-batch. `again`: what of forward runs in backward too. Of an
 * operation, `mirrored`: a collective of backward that products may hide. */
struct block_time {
    struct pass forward, input, weight, again;
    double mirrored;
};
void time_op(struct block_time *out, const struct clock *c,
             const struct op *op);
void time_block(struct block_time *out, const struct clock *c,
                const struct block *b);
/* Of each block of the clock's program. */
void time_blocks(struct block_time *out, const struct clock *c);

/* ---- time_attention.c ---- */

/* A fused kernel's work forward: rows of queries of all heads and sequences (0:
 * not known, as many as fill the GPU), width of a head, FLOP with the mask and
 * without. `efficient`: not the run's kernel but PyTorch's memory-efficient
 * attention. */
struct attended {
    double rows, head, flop, flop_full;
    enum dtype dtype;
    bool efficient;
    bool in_8_bits; /* cuDNN's, MXFP8 */
};
/* Seconds of the kernel, forward or backward. */
double time_attended(const struct clock *c, const struct attended *x,
                     bool back);

/* ---- time_cast.c ---- */

/* Elements of a product's operands. `on_use`: torchao, which casts all of them
 * when they are used; else Transformer Engine. */
struct operands {
    double input, weight, gradient;
    bool on_use, back;
    bool frozen; /* the weight is: the gradient is for one product */
    bool cast;   /* the input is in 8 bits already, by rows */
};
/* What their casts move, by how many kernels, and what those that write against
 * the order of memory would take on one multiprocessor. */
struct cast_pass {
    double bytes, kernels, across_s;
};
struct cast_work {
    struct cast_pass forward, back;
};
void cast_to_8_bits(struct cast_work *out, const struct run *run,
                    const struct operands *x);

/* ---- time_engine.c ---- */

/* Whether a product adds to the gradients of earlier micro-batches; other
 * engines' are summed by kernels of their own. */
bool time_adds_in_product(const struct run *run);
/* Adds what the engine moves in memory around a block's passes, of a rank that
 * trains so many elements in `all` of its blocks. */
void time_engine(struct block_time *out, const struct clock *c,
                 const struct block *b, const struct block_states *s,
                 double all);
/* ... around one gather more of so many bytes. */
double time_engine_gather(const struct clock *c, double bytes);
/* Time of the host for a unit's collectives in a micro-batch, so many gathers of
 * each weight, beyond that of any collective. */
double time_engine_lists(const struct clock *c, const struct block *b,
                         const struct block_states *s, double gathers);

/* ---- time_passes.c ---- */

/* Over the gradients or weights of a step: bytes of an element of the rank's
 * share, or of all that the rank has a gradient of; kernels for each tensor. */
struct optimizer_pass {
    const char *name;
    double own, whole;
    double kernels;
    bool listed; /* by kernels that go through lists of tensors */
    bool waits;  /* the host waits for each tensor's before the next one */
};
enum { OPTIMIZER_PASSES = 8 };
/* `update`: bytes of an own element in the update itself, without its moments. */
struct optimizer_passes {
    struct optimizer_pass at[OPTIMIZER_PASSES];
    unsigned n;
    double update, update_kernels;
    double waits; /* of the host for the GPU, beside those for each tensor */
};
void optimizer_passes_of(struct optimizer_passes *x, const struct run *run);

/* ---- time_optimizer.c ---- */

/* What a rank updates of a block, of flat buffers its part of all of them:
 * elements, bytes of their moments, elements whose moments have 8 bits, and
 * tensors. `whole`: elements before they are cut, in so many tensors.
 * `waited_s`: what the host leaves the GPU idle between tensors that it waits
 * for. */
struct shard_of {
    double elems, moment_bytes, coded, tensors;
    double whole, whole_tensors;
    double waited_s;
};
struct shard_of time_own_share(const struct run *run,
                               const struct block_states *b);
/* Of a block's tensors, shard_of.waited_s. A tied head counts only where
 * `counts_tied`. */
double time_waited(const struct clock *c, const struct optimizer_passes *x,
                   const struct block *b, bool counts_tied);
/* Seconds of a step's passes and its update on the GPU; and what it waits for
 * its host meanwhile, which starts so many kernels while what it need not wait for
 * runs. */
struct update_time {
    double gpu, host;
    double kernels, ahead;
};
struct update_time time_update(const struct clock *c,
                               const struct optimizer_passes *x,
                               const struct shard_of *own);
/* Of one pass, or of the update where it is NULL. */
double time_optimizer_pass(const struct clock *c,
                           const struct optimizer_passes *x,
                           const struct optimizer_pass *pass,
                           const struct shard_of *own);

/* ---- time_wire.c ---- */

/* Ranks that send to each other: how many, and how far apart in the order in
 * which they are numbered (tp, cp, dp, pp). */
struct ranks {
    uint64_t n, stride;
};
/* A collective of a tensor of so many bytes, whole. */
double time_wire(const struct clock *c, enum wire wire, struct ranks r,
                 double bytes);
/* Tokens to their experts, or back, of so many bytes to each of them: once a rank,
 * and between nodes once a node, where the dispatcher can (flex). */
double time_dispatch(const struct clock *c, struct ranks r, double bytes);
/* An all-reduce of two ranks, so far apart: in one node where a node has as many. */
double time_pair(const struct clock *c, uint64_t apart, double bytes);
/* From one rank to another, `stride` away. */
double time_send(const struct clock *c, uint64_t stride, double bytes);
/* Whether all of them are in one node; whether some are. */
bool wire_inside(const struct clock *c, struct ranks r);
bool wire_near(const struct clock *c, struct ranks r);

/* ---- time_offload.c ---- */

/* The share of the optimizer that is the host's, and what is on its disks. */
struct beside_gpu {
    double share;
    struct disk_bytes disk;
};
/* Of a rank: elements that it updates, bytes of its shards of weights, and of
 * checkpoints of a micro-batch that wait beside the GPU; what is computed. Of a
 * layer on average: bytes that Transformer Engine moves, and the passes. */
struct resident {
    const struct beside_gpu *there;
    double own_elems, shard_bytes, checkpoint_bytes;
    double forward, back;
    double layer_bytes, layer_forward, layer_back;
};
/* What Transformer Engine moves of a layer, by block. False: out of memory. */
bool time_away_bytes(uint64_t bytes[BLOCK_MAX], const struct program *p,
                     const struct run *run, struct arena *a);
/* False: out of memory. */
bool time_beside_gpu(struct beside_gpu *x, const struct program *p,
                     const struct run *run, struct arena *a);
void time_offload(struct time_result *out, const struct clock *c,
                  const struct resident *x);
/* Seconds of a copy that nothing hides. */
double time_copy(const struct run *run, const struct copy_note *x);

/* ---- time_exchange.c ---- */

/* Seconds of `bytes` of hidden states, or of their gradient, between two stages:
 * of a part, where each tensor-parallel rank sends one. */
double time_exchange_send(const struct clock *c, double bytes);
/* Adds what a micro-batch's passes take more for the stage before theirs, and
 * for the one after. */
void time_exchange_before(struct pass *forward, struct pass *back,
                          const struct clock *c, double bytes);
void time_exchange_after(struct pass *forward, struct pass *back,
                         const struct clock *c, double bytes);

/* ---- time_pipe.c ---- */

/* A chunk's passes of one micro-batch, messages inside it included. */
struct pipe_pass {
    double forward, input, weight;
    double remade; /* of a backward in two halves, what the second runs again */
};

struct pipe {
    const struct run *run;
    const struct pipe_pass *at; /* [pipe_stages()], in the order of layers */
    const struct rank_order *order; /* memory_result's; NULL: listed anew */
    double send;                    /* hidden states to the next one */
    bool remakes;                   /* there is a pipe_pass.remade */
    double deferred_s; /* of the last one's backward of a micro-batch, what of
                          the first run.deferred_wgrads is done at the end */
};

/* Stages in the order of the layers: chunks of all ranks. Under DualPipe each
 * rank has two, and each stage is on two ranks. */
uint64_t pipe_stages(const struct run *run);
uint64_t pipe_stage(const struct run *run, uint64_t rank, uint64_t chunk);

/* From the first forward to the last backward of so many micro-batches, run
 * event by event; < 0: out of memory, or they wait for each other. */
double pipe_simulated(const struct pipe *x, uint64_t micros, struct arena *a);
/* Of all micro-batches of a step: by formula, where there is one (1F1B, GPipe),
 * or from a few of them. */
double pipe_closed(const struct pipe *x, struct arena *a);
/* Of all of them, run; of very many, the last as long as the busiest rank. */
double pipe_time(const struct pipe *x, struct arena *a);
/* What the busiest rank does for one micro-batch. */
double pipe_busy(const struct pipe *x);
uint64_t pipe_busiest(const struct pipe *x);

/* ---- time_step.c ---- */

/* out->known is false where nothing says how fast the GPU is. Schedules are
 * simulated unless the run is to be fast. `memory`: of the same run, whose states
 * and orders are taken; NULL: found anew. False: out of memory. */
bool fold_time(struct time_result *out, const struct program *p,
               const struct run *run, const struct memory_result *memory,
               struct arena *a);

/* ---- time_explain.c: what an explanation keeps of the walks ---- */

/* A product, or bytes that are moved (k is 0 then). */
struct kernel_note {
    struct product product;
    double bytes, compute_s, memory_s, launch_s;
};
struct wire_note {
    enum wire wire;
    struct ranks ranks;
    double bytes, seconds;
    const char *whose; /* a block's, or what is sent once a step */
};
/* So many times: what hides a message, and of it what is computed, which the
 * message slows by such a share of the time that both take together. */
struct overlap_note {
    double message, beside, computing, slowed, times;
    const char *whose, *pass;
};
/* A block of the busiest rank: how many of them it has in all of its chunks, and
 * how many of those run again. */
struct block_note {
    struct block_time time;
    double count, again;
    double copies; /* seconds in each of what the engine moves in memory */
};
/* Bytes of a rank on their way to or from what is kept beside the GPU, so many
 * times, beside so many seconds. Over the link (TIME_OFFLOAD) one way, `read`;
 * of disks (TIME_DISK) both, which share them. */
struct copy_note {
    enum time_part part;
    const char *name;
    double read, written;
    double beside, times;
};
enum {
    TIME_LOG_KERNELS = 8,
    TIME_LOG_WIRES = 24,
    TIME_LOG_OVERLAPS = 24,
    TIME_LOG_COPIES = 16
};
struct time_log {
    struct kernel_note kernel[TIME_LOG_KERNELS];
    struct wire_note wire[TIME_LOG_WIRES];
    struct overlap_note overlap[TIME_LOG_OVERLAPS];
    struct copy_note copy[TIME_LOG_COPIES];
    struct block_note block[BLOCK_MAX];
    struct optimizer_passes passes;
    struct shard_of own;       /* that its optimizer steps, */
    double here;               /* ... such a share of it on the GPU, */
    double away_elems, away_s; /* and these of all ranks on a node's CPUs */
    double micros;             /* that go through each of its blocks */
    const char *whose, *pass;  /* of the messages to come */
    unsigned n_kernels, n_wires, n_overlaps, n_copies;
};
void time_log_clear(struct time_log *log);
void time_log_kernel(struct time_log *log, struct kernel_note note);
/* Once each. */
void time_log_wire(struct time_log *log, struct wire_note note);
void time_log_overlap(struct time_log *log, struct overlap_note note);
void time_log_copy(struct time_log *log, struct copy_note note);

/* Where a part's rate is from; NULL: the kernels' and links' own source. */
const char *time_part_source(enum time_part part, const struct run *run);

/* fold_time() with the messages between replicas logged. */
bool fold_time_logged(struct time_result *out, const struct program *p,
                      const struct run *run, const struct memory_result *memory,
                      struct arena *a, struct time_log *log);
/* The heaviest operations of each block, and the messages between replicas.
 * False: out of memory. */
bool fold_time_explain(struct explanation *x, const struct program *p,
                       const struct run *run);

#endif
