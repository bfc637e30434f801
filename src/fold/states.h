/*
 * Model states: what one rank holds of weights, master copies and optimizer
 * moments, by block, sharded as the engine shards.
 * [docs/method.md eq. states, eq. optimizers]
 */
#ifndef MEMPLAN_FOLD_STATES_H
#define MEMPLAN_FOLD_STATES_H

#include "fold/result.h"

/* A matrix whose gradient is projected: bytes of the matrix, of what its
 * moments are of, and of making a new projection. */
struct projected {
    uint64_t whole, low, refresh;
};

/* Those, updated one after the other. */
struct projected_loop {
    struct projected first, last;
    uint64_t most;  /* bytes of temporaries that are there at once */
    uint64_t freed; /* bytes of gradients that are gone when all are updated */
    uint64_t count;
};

/* The tensors that an optimizer updates one after the other, in the order of
 * their module's parameters; without the matrices of Muon's own update, and
 * before those that are projected. */
struct update_loop {
    uint64_t first, last; /* elements; 0: none in the loop */
    uint64_t most;        /* elements of temporaries that are there at once */
    uint64_t elems;       /* of all */
    uint64_t muon;        /* bytes that Muon's update of one matrix holds */
    struct projected_loop projected;
};

/* Elements and bytes of one block on this rank; `own` is after sharding. */
struct block_states {
    uint64_t elems, frozen_elems; /* before sharding, embeddings included */
    uint64_t dense_elems, expert_elems;  /* trained ones, by shard group */
    uint64_t fp8_elems, fp8_scale_bytes; /* of weights with copies in 8 bits */
    uint64_t bytes;        /* as the layers see them, all weights */
    uint64_t stored_bytes; /* ... in the types of their shards */
    uint64_t apart_bytes;  /* of those, in layers within the block */
    uint64_t expert_bytes; /* of those, the experts' */
    /* of `bytes`, what ranks gather of each other: all that are in shards, else
     * what was updated; of those, the experts' */
    uint64_t sent_bytes, expert_sent_bytes;
    uint64_t grad_elems; /* trained, tied copies included */
    uint64_t
        part_bytes; /* of weights whose gradients are of all ranks' parts */
    uint64_t largest, largest_grad; /* elements of one tensor */
    uint64_t largest_own;           /* ... of a trained one's shard */
    uint64_t largest_bytes;         /* of the largest */
    uint64_t width;                 /* ... of its elements; 0: less than 1 */
    uint64_t fetched;               /* ZeRO-3: elements of tensors that are
                                       gathered together, the most */
    bool ties; /* a tied tensor is among them, which counts or does not */
    uint64_t tensors; /* trained ones */
    /* modules trained in full beside adapters of another type, and those */
    uint64_t whole_bytes, adapter_bytes;
    uint64_t largest_trained_bytes;
    uint64_t coded;              /* tensors whose moments have 8 bits */
    uint64_t own_coded_elems;    /* of those, this rank's shard */
    uint64_t expert_coded_elems; /* of own_coded_elems, experts' */
    uint64_t own_elems;          /* trained, this rank's shard */
    /* ... of all ranks, as FSDP 2 pads them; of those, experts' */
    uint64_t cut_elems, expert_cut_elems;
    uint64_t own_dropped; /* of those, not updated: tensor.dropped */
    uint64_t dropped;     /* of elems */
    uint64_t packed_elems, packed_bytes; /* frozen, in base_dtype; likewise */
    uint64_t frozen_bytes; /* before sharding, statistics included */
    uint64_t own_frozen_bytes;
    uint64_t statistic_bytes;    /* of frozen_bytes: what no engine moves */
    uint64_t own_moment_bytes;   /* of the optimizer, this rank's shard */
    uint64_t moment_bytes;       /* unsharded */
    uint64_t dense_moment_bytes; /* unsharded, without experts */
    uint64_t paged_bytes;        /* moments in unified memory, as own_... */
    uint64_t expert_paged_bytes; /* of those, experts' */
    uint64_t persistent_elems;   /* ZeRO-3: too small to be released */
    uint64_t second_elems;       /* ZeRO-3, trained: second shards of others */
    uint64_t low_elems;          /* trained: sent in autocast's type */
    uint64_t buffer_bytes;       /* tables of modules */
    struct update_loop loop;
};

/* How an engine cuts tensors into shards. */
enum sharding {
    SHARDING_NONE,   /* every rank holds everything */
    SHARDING_FLAT,   /* one flat buffer, cut evenly (ZeRO-1, -2, Megatron) */
    SHARDING_TENSOR, /* each tensor flattened, padded, cut (ZeRO-3, FSDP1) */
    SHARDING_ROWS    /* each tensor by rows, padded (FSDP2) */
};

/* Of the optimizer's states and master copy. */
enum sharding run_sharding(const struct run *run);
/* Elements of a tensor's shard, the largest of all ranks'; what is not cut, or
 * cut as part of a flat buffer: all of it. */
uint64_t states_own_elems(const struct run *run, const struct tensor *t);
/* True when the weights themselves are sharded between steps. */
bool run_shards_weights(const struct run *run);
/* Shards that make one of the second shards that ZeRO++ keeps of weights
 * (hpZ); 0: it keeps none. */
uint64_t run_second_parts(const struct run *run);
/* The weights as layers see them: FSDP gathers its fp32 shards as the compute
 * type. */
enum dtype run_layer_dtype(const struct run *run);

/* A tied head counts only where `counts_tied` (a stage without embedding). */
void states_of_block(struct block_states *out, const struct program *p,
                     const struct block *block, const struct run *run,
                     bool counts_tied);

/* Bytes of optimizer moments for one tensor of rows x cols. */
uint64_t optimizer_bytes(const struct run *run, const struct tensor *t,
                         uint64_t rows, uint64_t cols);

/* Of a weight that is not trained, at rest. */
enum dtype states_frozen_dtype(const struct run *run, const struct tensor *t);

/* Bytes of the trained weights where adapters and modules trained in full
 * differ in type, so that no element has one size; else 0. */
uint64_t states_mixed_bytes(const struct block_states *s);

/* ---- update_loop.c ---- */

/* Whether tensors are updated one by one. */
bool update_loops(const struct run *run);
void update_loop_of(struct update_loop *l, const struct program *p,
                    const struct block *b, const struct run *run,
                    bool counts_tied);
/* `next` comes after `sum`. */
void update_loop_add(struct update_loop *sum, const struct update_loop *next,
                     const struct run *run);
/* Temporaries of one tensor, each of `size` bytes an element. */
unsigned update_temporaries(const struct run *run, uint64_t size);

/* Bytes of an element as the optimizer has it. */
uint64_t update_size(const struct run *run);

/* ---- update_projected.c ---- */

/* Elements of a moment, and of the projection. */
uint64_t projected_elems(const struct run *run, const struct tensor *t);
uint64_t projection_elems(const struct run *run, const struct tensor *t);
/* Bytes at the fullest of a matrix's update, with nothing before it. */
uint64_t projected_alone(const struct run *run, const struct tensor *t);
/* ... of all of them, after a tensor of `last` bytes that is not projected. */
uint64_t projected_after(const struct run *run,
                         const struct projected_loop *loop, uint64_t last);
void projected_take(struct projected_loop *l, const struct run *run,
                    const struct tensor *t);
/* `next` comes after `sum`. */
void projected_add(struct projected_loop *sum,
                   const struct projected_loop *next, const struct run *run);

/* In words: "2 moments of 4 B". For `explain`. */
const char *optimizer_rule(enum optimizer o);

#endif
