/*
 * Inside of the trace: what lives through the steps of a stage. Its events go
 * to a list (trace.c), to the allocator (simulate.c), or both. Nothing else
 * includes this.
 */
#ifndef MEMPLAN_FOLD_TRACE_PRIVATE_H
#define MEMPLAN_FOLD_TRACE_PRIVATE_H

#include "fold/allocator.h"
#include "fold/lengths.h"
#include "fold/schedule.h"
#include "fold/trace.h"

/* A handle of what is alive: an index into tracer.hold. */
typedef uint32_t hold_id;
enum { NO_HOLD = 0 };

struct hold {
    uint64_t bytes;
    struct allocator_block *block; /* NULL when nothing is simulated */
    const char *name;
    uint32_t event; /* id of its events */
    hold_id next;   /* free ones; of a tensor that is made again and again, the
                       one before */
    enum component component;
    enum stream stream;
    bool waits; /* for another stream: used, but not allocated */
};

/* What is alive of one block of one micro-batch. */
struct resident {
    hold_id *slot;  /* by slot, NO_HOLD when dead */
    hold_id *stash; /* by gradient: kept for a weight's; else NULL */
    hold_id checkpoint;
    hold_id copies; /* what came back of what layers share */
};

/* What the engine holds of one thing: allocations, the latest last. */
struct level {
    enum term term;
    bool waits;       /* released, not to be used again yet */
    const char *what; /* temporaries are told apart by it; else "" */
    hold_id *piece;
    size_t n, capacity;
    uint64_t bytes, want, pieces;
    uint64_t whole; /* what it will be, where it is made in turn */
};
enum { LEVEL_MAX = 64 };

/* What the levels are to be, somewhere in the step. */
struct target {
    uint32_t level;
    uint64_t bytes, pieces;
};
struct targets {
    struct target *v;
    uint32_t n;
};

enum { TARGETS = 16 }; /* a position, see tracer.at */

/* Sizes of the tensors that something is cut into, in elements. */
struct sizes {
    uint64_t *v;
    size_t n;
    uint64_t sum;
};

/* A walk of a block, written down. */
struct script {
    struct walk_event *v;
    uint32_t n, capacity;
    bool written;
    /* of a layer that is told part by part */
    uint32_t from[LAYER_NODES], to[LAYER_NODES];
    uint32_t node; /* the one at hand, + 1; 0: none yet */
};
enum {
    SCRIPT_FORWARD = PASS_KEEP,
    SCRIPT_CHECKPOINT = PASS_CHECKPOINT,
    SCRIPT_AGAIN = PASS_AGAIN,
    SCRIPT_AGAIN_EARLY = PASS_AGAIN_EARLY,
    SCRIPT_BACKWARD,
    SCRIPT_SPLIT = SCRIPT_BACKWARD + WGRAD_MODES,
    SCRIPT_WEIGHTS = SCRIPT_SPLIT + WGRAD_MODES,
    SCRIPT_UNPACKED = SCRIPT_WEIGHTS + WGRAD_MODES,
    SCRIPT_RELOADED = SCRIPT_UNPACKED + WGRAD_MODES,
    SCRIPT_REMADE_SPLIT = SCRIPT_RELOADED + WGRAD_MODES,
    SCRIPT_REMADE_WEIGHTS = SCRIPT_REMADE_SPLIT + WGRAD_MODES,
    SCRIPT_REMADE_TOPMOST = SCRIPT_REMADE_WEIGHTS + WGRAD_MODES,
    SCRIPT_AWAY = SCRIPT_REMADE_TOPMOST + WGRAD_MODES /* forward */
};
enum { SCRIPTS = SCRIPT_AWAY + 1 };

struct simulation;

struct tracer {
    struct arena *a;
    struct arena *length_a; /* what holds for one length alone */
    struct memory_fold *f;
    const struct stage *s, *whole_stage;
    struct trace *list;     /* NULL: not listed */
    struct simulation *sim; /* NULL: not simulated */
    struct turns *turns;    /* NULL: micro-batches of one length */
    bool failed;            /* out of memory */
    bool settled;           /* simulated: all is as in the step before */
    bool tight;             /* simulated: on a device with an end */
    uint64_t regions;

    struct hold *hold;
    uint32_t holds, hold_capacity;
    hold_id spare;

    struct script script[BLOCK_MAX][SCRIPTS];
    struct script *writing;
    struct resident *resident; /* [ring][positions] */
    uint32_t ring;             /* micro-batches alive at a time, at most */
    struct step *steps; /* [schedule_room()], where backwards are split */
    uint32_t slots;     /* of one resident */
    hold_id *buffer;    /* gradients of the running block */
    hold_id *wgrad;     /* gradients of its weights */
    uint32_t n_wgrads;
    hold_id *back;  /* copies that modules of the running block kept */
    uint32_t ended; /* ... ends of them so far */
    hold_id workspace[PARTS_MAX], again, arriving[OP_IN_MAX];
    struct bucket_turn turn;   /* DeepSpeed's bucket */
    struct bucket_fill bucket; /* ... as the levels have it */
    uint32_t arrived;          /* gradients of the running block */
    hold_id hidden, grad;      /* change hands between blocks */

    struct level level[LEVEL_MAX];
    uint32_t n_levels;
    /* [positions][forward, backward, flattened, cast, copied out, weights]
       [first, later] */
    struct targets *at;
    struct targets after[PHASE_COUNT];
    struct sizes trained, frozen, trained_blocks, frozen_blocks;
    struct sizes unit; /* FSDP's, at hand */

    /* where we are */
    enum trace_step step;
    enum phase phase;
    uint32_t position, micro;
    bool later;
    enum slot_kind slot;
    struct beside beside;
    bool done;                           /* a micro-batch has run backward */
    bool multiplied[2];                  /* a product of matrices: in forward,
                                            in the backward's thread */
    uint64_t other_micros, other_chunks; /* in flight beside this one */
    uint64_t missing;                    /* struct slot, as the next */
    int64_t apart;
    bool adds;
    /* of backwards that keep autograd's graph: weights' gradients to be added,
       by chunk and in all; what is there to the next step */
    uint64_t left[SPLIT_CHUNKS_MAX], left_sum, sent;
    uint64_t outputs; /* pipe_outputs() of micro-batches that are done */
    struct resident *here;
    uint32_t hidden_slot; /* slot of the block's input */
    bool waits;           /* what is born was released */
    uint32_t skip;        /* slot that is not told, + 1: the checkpoint */
    bool keeps_checkpoint;
    bool remakes; /* a layer's tensors, for each gradient of a weight */
};

/* ---- trace_tell.c: what is alive ---- */

hold_id tracer_birth(struct tracer *r, enum component c, const char *name,
                     uint64_t bytes, enum stream stream);
/* On the stream that computes. */
hold_id tracer_born(struct tracer *r, enum component c, const char *name,
                    uint64_t bytes);
void tracer_death(struct tracer *r, hold_id *id);
/* Of a slot of the block at hand, with all that was made again of it. */
void tracer_all_die(struct tracer *r, uint32_t slot);
/* The same memory under another name: what one block hands to the next. */
hold_id tracer_handed(struct tracer *r, hold_id *from, enum component c,
                      const char *name, uint64_t bytes);
const struct block *tracer_block(const struct tracer *r, uint32_t position);
/* Tells the walk of the block at hand: forward, or a part of backward. */
void tracer_play(struct tracer *r, unsigned which);
/* The same of a part of a layer. */
void tracer_play_node(struct tracer *r, unsigned which, enum layer_node node);

/* ---- trace_away.c: activations on the host ---- */

/* A position begins forward, or is done: what the layer before had on the way. */
void trace_left(struct tracer *r, bool begins);
/* A position begins forward, or backward: what leaves the GPU then, and what
 * comes back. */
void trace_leaves(struct tracer *r, bool back);
void trace_comes_back(struct tracer *r);
/* All of backward is over. */
void trace_away_ends(struct tracer *r);

/* ---- trace.c ---- */

bool tracer_init(struct tracer *r);
/* A block of a micro-batch begins. */
void tracer_enter(struct tracer *r, enum phase phase, uint32_t micro,
                  uint32_t position);
/* A micro-batch at a position, forward; backward: `held` is a checkpoint's
 * result. The block's result changes hands; gradients do, when it is done. */
void trace_forward(struct tracer *r, uint32_t micro, uint32_t position);
void trace_backward(struct tracer *r, uint32_t micro, uint32_t position,
                    hold_id *held);
void trace_hand_on(struct tracer *r);
void trace_begin_backward(struct tracer *r);
void trace_hand_over_wgrads(struct tracer *r);
/* What is as large as the program at hand; all of it dead. */
bool tracer_room(struct tracer *r);
/* One step, from rest to rest. */
void tracer_step(struct tracer *r, enum trace_step step);

/* ---- trace_overlap.c: two passes that take turns ---- */

/* Of the step, all that comes before gradients are reduced. */
void trace_overlapped(struct tracer *r);

/* ---- trace_levels.c: what the engine holds ---- */

bool levels_init(struct tracer *r);
/* While a block runs, and what a micro-batch has all along. */
void levels_at(struct tracer *r, enum phase phase, uint32_t position);
/* To where they are before the block at hand runs forward, where that is a
 * moment: engine_copies_out. */
void levels_copied_out(struct tracer *r);
void levels_copied_back(struct tracer *r, uint32_t position);
/* While a block runs backward: DeepSpeed's bucket has changed. */
void levels_bucket(struct tracer *r, const struct bucket_fill *fill);
/* While a block runs backward: so much of others comes back from the host. */
void levels_ahead(struct tracer *r, uint64_t bytes);
/* When a unit's backward is over: FSDP version 1. */
void levels_done(struct tracer *r, enum unit_done when);
/* Outside of the blocks. */
void levels_after(struct tracer *r, enum phase phase);
/* In PHASE_REDUCE: FSDP version 2's root has copied its gradients. */
void levels_copied_in(struct tracer *r);
/* While a micro-batch's gradients are added to those before. */
void levels_accumulate(struct tracer *r);
/* All of a term goes. */
void levels_drop(struct tracer *r, enum term term);
/* A unit of FSDP version 2 has run: the next one's parameters come when its own
 * are gone. */
void levels_reshard(struct tracer *r);
/* What variables of the model's forward hold does. */
void levels_return(struct tracer *r);
/* A product of matrices runs: cuBLAS has its workspace from then on. */
void levels_product(struct tracer *r);
/* What is there already becomes the engine's: a gradient that stays where it was
 * made, a weight that the start of a run made. */
void levels_take(struct tracer *r, enum term term, const char *what,
                 hold_id id);
/* One of so many bytes goes; false where there is none. */
bool levels_give(struct tracer *r, enum term term, const char *what,
                 uint64_t bytes);
/* What variables of the model's forward hold on where a block is done. */
void levels_frame(struct tracer *r, hold_id id);
/* What autocast has cast, or a node's attribute has (`past`), where a block is
 * done. */
void levels_linger(struct tracer *r, hold_id id, bool past);

/* One allocation of a level. */
void level_piece(struct tracer *r, struct level *l, uint64_t bytes);

/* ---- trace_cut.c: in which pieces the engine allocates ---- */

/* What a tensor weighs against others of its level. */
uint64_t trace_size_of(const struct tracer *r, const struct tensor *t);
/* So many bytes where there are none yet; beside those that there are. */
void level_fill(struct tracer *r, struct level *l, uint64_t bytes);
void level_add(struct tracer *r, struct level *l, uint64_t bytes);

/* ---- trace_units.c ---- */

/* Before a block runs forward, where FSDP version 2 gathers then; when it has
 * fetched the unit below. */
void units_gather(struct tracer *r);
void units_prefetched(struct tracer *r);
/* When a micro-batch has run backward, and others are still to come. Returns
 * whether the root has a turn. */
bool units_root(struct tracer *r);
/* The root's gradients are reduced. */
void units_reduced(struct tracer *r);

/* ---- trace_start.c ---- */

/* Before the first step, for what it leaves behind. */
void trace_start(struct tracer *r);
/* The same under FSDP version 1. [trace_wrap.c] */
void trace_wrap(struct tracer *r);

/* ---- trace_flats.c ---- */

/* The buckets of a reduction, the tensors of an accumulation, the shards of a
 * gather: one at a time, where a moment knows the largest. */
void trace_reduce(struct tracer *r);
void trace_accumulate(struct tracer *r);
void trace_gather(struct tracer *r);

/* ---- trace_turns.c: micro-batches of different lengths ---- */

/* From here on. False when out of memory. */
bool turns_init(struct tracer *r, const struct length_code *code,
                unsigned order);
/* A step begins; false when no micro-batch is left for it. */
bool turns_begin(struct tracer *r);
/* The next one's program; false when there is none before the step. */
bool turns_next(struct tracer *r);
/* The stage has been put back: no length is at hand. */
void turns_forget(struct tracer *r);

/* ---- simulate.c ---- */

void simulate_birth(struct tracer *r, struct hold *h);
void simulate_death(struct tracer *r, struct hold *h);
/* After so many backwards with `left` forwards still to come (micro-batches;
 * interleaved: groups of them): how many may be left out, since all of them
 * would be as those before. */
uint64_t simulate_skip(struct tracer *r, uint64_t backward, uint64_t left);

#endif
