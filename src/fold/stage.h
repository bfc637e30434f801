/*
 * One pipeline stage as the memory fold sees it: a row of positions
 * (embedding, layers, head) with what each block keeps, needs and owns.
 */
#ifndef MEMPLAN_FOLD_STAGE_H
#define MEMPLAN_FOLD_STAGE_H

#include "fold/put.h"
#include "fold/states.h"
#include "fold/walk.h"

/* Sums over the positions before one. */
struct prefix {
    uint64_t kept_layers; /* kept by layers that are not recomputed */
    uint64_t checkpoints; /* inputs kept by recomputed groups */
    uint64_t hooked;      /* of these, what stage_hooks_hold() */
    uint64_t regrown;     /* what recomputed layers keep once recomputed */
    uint64_t lingers;     /* to the end of forward: autocast's copies */
    uint64_t past;        /* of these, to the end of backward */
    uint64_t elems;       /* trained, before sharding */
    uint64_t all_elems;   /* frozen ones too */
    uint64_t bytes;       /* weights as the layers see them */
    uint64_t stored;      /* ... as they are when ZeRO-3 has gathered them */
    uint64_t wgrad;       /* gradients of trained weights */
    uint64_t own_elems;   /* shards */
    uint64_t second;      /* elements of second shards */
    uint64_t held;        /* block_walk.held */
    uint64_t stash;       /* block_walk.stash */
    uint64_t left;        /* block_walk.left */
    uint64_t named;       /* inputs of checkpoints and their gradients, after
                             their backward: block.names_graph */
};

/* A block's result that a variable of the model's forward holds at the positions
 * from `first` to `last`, where nothing else does. */
struct frame {
    uint64_t bytes;
    uint32_t first, last;
};
enum {
    FRAMES_MAX = 5 + SPEC_DEEP_MAX
}; /* two stacks, of each two; what the
                                            first hands on, and its mergers */

/* Of the last stage, bytes that wait for the flush with the gradients of the
 * head's weight: of a micro-batch the head's input and the gradient of its
 * logits; what an input is gathered into. */
struct deferred {
    uint64_t micros; /* 0: nothing waits */
    uint64_t input, gradient, whole;
};

/* Of CUDA graphs of layers, what rests on a stage: inputs, of layers and of
 * micro-batches in flight; bytes of gradients that come to their results; whether
 * PyTorch's own products are in them. */
struct graphs_rest {
    uint64_t inputs, gradients;
    bool multiplies;
};

/* Of a graph: NEVER kept, where that does not occur. */
struct adding {
    uint64_t kept, lacks;
};

/* What a position is, looked up once: every moment asks. */
struct stage_block {
    uint32_t block; /* index into program.block */
    uint32_t chunk;
    uint32_t end;    /* of the first of positions that have one block, one
                        after another: where these end */
    bool recomputed; /* under a checkpoint */
    bool goes;       /* AWAY_MODULES: what its modules keep does */
};

struct stage {
    const struct program *p;
    const struct run *run;
    uint64_t index, first_layer, layers;
    bool embed, head;
    uint64_t tied_here; /* bytes of a gradient that head and embedding of
                                  this rank share; 0 when they do not */
    bool tied_cast;     /* the head's is a tensor of its own, cast */
    bool tied_sum;    /* it is a sum already, with a decoder's, that nobody else
                           has: into it the table's own is added */
    uint64_t waiting; /* bytes of gradients of a tensor that two blocks of
                                  this rank have, from the upper one's backward
                                  to the lower one's, at two positions */
    uint32_t waits_from, waits_to;
    uint64_t in_flight;       /* micro-batches alive at most */
    uint64_t recomputed;      /* the first so many layers are */
    uint64_t every;           /* and of those, each so manieth */
    uint64_t group;           /* layers a checkpoint */
    uint32_t n;               /* positions */
    uint32_t chunks;          /* of schedules that have some, else 1 */
    uint64_t low_layers;      /* of the first chunk, where the second lies */
    uint64_t high_layer;      /* elsewhere in the model: its first layer */
    const uint64_t *chunk_at; /* [chunks], pp apart: their first layers, of the
                                 whole model; NULL but where chunks go down the
                                 ranks again and again */
    uint32_t *chunk_first;    /* [chunks]: positions; NULL: one chunk */
    bool splits;           /* backwards, into inputs' and weights' gradients */
    bool graph;            /* ... by keeping autograd's graph */
    uint64_t *chunk_kept;  /* [chunks]: from forward to backward */
    uint64_t *chunk_stash; /* [chunks]: from there to weights' gradients */
    int64_t *chunk_apart;  /* [chunks]: of a graph, of chunk_stash what no layer
                              keeps, less what lies in a buffer in any case */
    uint64_t *chunk_sent;  /* [chunks]: what the first half of a backward leaves
                              to the next step */
    uint64_t *chunk_added; /* [chunks]: gradients of weights that wait to be
                              added by the next backward */
    uint64_t *chunk_sum;   /* [chunks]: ... what they are added to */
    uint64_t *chunk_cut;   /* [chunks]: ... of it what goes when the last
                              micro-batch's are, and shards stay */
    uint64_t sent_back;    /* of all in a step, at its end */
    uint64_t sent_before;  /* ... by micro-batches that are not walked */
    uint64_t outputs_before; /* the same of pipe_outputs() */
    uint64_t *lacking;     /* [chunks][SLOT_KINDS]: beside others of later ones,
                              what chunks do not have of chunk_sum, or have cut */
    struct adding *adding; /* [chunks][SLOT_KINDS]: as others and lacking, of
                              later ones that find chunk_added */
    uint64_t *met; /* [overlap_room(chunks)]: as others, beside passes that take
                              turns; NEVER where these do not. NULL: none do */
    uint64_t stashes; /* backwards that wait for these, at most */
    uint64_t *others; /* [chunks][SLOT_KINDS][first, later]: kept by
                             the other chunks in flight, at most; NEVER where
                             that does not occur. NULL for 1F1B and GPipe */
    const struct block_walk *walk;     /* by block index */
    const struct block_states *states; /* by block index */
    struct stage_block *at;            /* [n] */
    struct prefix *before;             /* [n + 1] */
    struct block_states sum;           /* over the stage */
    uint64_t wgrad;                /* gradients alive after a whole backward */
    uint64_t shared, inputs;       /* bytes a micro-batch */
    uint64_t global_buffer_bytes;  /* largest use by a block of the stage */
    uint64_t shared_kept;          /* of shared: what backward needs */
    uint64_t span_bytes[SPAN_MAX]; /* of shared_kept: program.span's */
    uint64_t shared_last;          /* ... when all layers have run backward */
    uint64_t shared_late;          /* ... or variables hold while the loss is
                                     computed */
    struct frame frame[FRAMES_MAX];
    uint32_t n_frames;
    uint32_t joint;  /* the position between two stacks; n: none */
    bool hands_far;  /* some block does: block.hands_far */
    uint64_t bucket; /* ZeRO-1, pipelined: elements flattened at once, most */
    uint64_t partition; /* ZeRO: elements of whole tensors that touch one
                              rank's partition; the most, or zero_rank's */
    uint64_t share;     /* ... elements of one */
    const struct tensor **trained; /* ZeRO: room for those of any block */
    struct zero_part *rank;        /* ZeRO-1, -2: each */
    uint64_t *whole;               /* ... ZeRO-2 without a ledger: instead, of
                                      each what zero_part calls so */
    struct zero_ledger *ledger;    /* NULL: partitions come in order */
    bool *ends;    /* FSDP version 1, [shard]: of engine_flat_loop.c */
    bool loose;    /* run_is_loose() */
    bool pipes;    /* run_pipelines() or run_torch_pipelines() */
    uint64_t norm; /* ... bytes beside the fullest partition while norms are
                      taken, of any rank */
    uint64_t made; /* ... ZeRO-1: elements of a partition as it is made, less
                      those of gradients in buckets by then; the most */
    uint64_t sent; /* ... bytes of the same, while a bucket is sent, and of its
                      copies */
    struct bucket_fill *fill; /* [n + 1], when all positions from one on have
                              run backward; NULL: no such bucket */
    struct row_stretch *row;  /* with it: what was found last */
    uint64_t sub_group;       /* ZeRO-3: elements of the largest */
    uint64_t stay_groups;     /* ... of them, with states on the GPU though
                              the optimizer is on the CPU */
    uint64_t stays, largest_stays; /* elements of these, and of the largest;
                              Megatron: of weights */
    uint64_t live_most; /* ZeRO-3: elements that may be gathered at a time */
    uint64_t released, released_bytes; /* ... elements of weights, from the
                              first on, that do not stay gathered from forward
                              to backward; their bytes */
    uint64_t dummy_wgrads;             /* one gradient a shape: see stage.c */
    uint64_t stage_input;      /* received hidden states kept to backward, and
                                what else the pipeline engine holds of one
                                micro-batch */
    uint64_t outputs;          /* of a micro-batch: what the engine holds of the
                                head after its backward */
    uint64_t micro_batch_kept; /* between forward and backward, of one */
    struct away_sums *away;    /* [n + 1], of layers before a position; NULL:
                               activations stay on the GPU */
    struct reload *reload;     /* [n], AWAY_MODULES; else NULL */
    uint64_t ahead; /* ... bytes that are back of the micro-batch that
                                  runs backward next */
    struct deferred deferred;
    struct graphs_rest graphs; /* of STEP_EAGER nothing */
    struct moment rest;        /* between steps: part of every moment */
    bool has_rest;
};

/* Of layers, were they all on the host: what has left the GPU of what they
 * keep, and copies that come back with it. */
struct away_sums {
    uint64_t bytes, copies;
};

/* Modules whose tensors are on the host, at a position. */
struct reload {
    uint32_t end;   /* groups of this position and those above that go */
    uint64_t stays; /* bytes of groups that do not, of a position that goes */
    uint64_t moved; /* not rounded: what goes of one micro-batch */
    uint64_t below; /* ... of those below */
    uint64_t ahead; /* that are back when its backward begins, but its own */
    uint64_t next;  /* ... of the next micro-batch */
    const uint64_t *from; /* [all] what its backward brings back */
    uint32_t own, all;    /* ... without the next micro-batch's, and with */
};

/* What of a rank's partition tensors make. */
struct zero_part {
    uint64_t whole; /* elements of the tensors that touch it */
    uint64_t slice; /* ... that lie in it, of the largest */
    uint64_t gone;  /* elements in buckets up to its first tensor's, in order */
    uint64_t large; /* elements of those larger than the bucket */
    uint64_t nth;   /* of another rank: the one that began at this place */
    uint64_t reduced, reduced_large; /* of whole, of large: so far */
    uint64_t latest;                 /* ... with the latest bucket */
    uint64_t latest_slice; /* of slice: of tensors in the latest bucket */
    unsigned in;           /* bit 1 << tensor.low: in that bucket */
};

/* A trained tensor, in the order of the model's modules. */
struct zero_place {
    uint64_t at;   /* elements before it in that order */
    uint64_t flat; /* ... in the ranks' partitions, one after another */
    uint64_t elems;
};

/* What is left of gradients when a bucket has been reduced, and while the
 * latest is told; of the rank that has most. In elements. */
struct zero_made {
    uint64_t partition, kept;
    uint64_t told_partition, told_kept;
    uint64_t again, again_kept; /* as partition, kept, beside a partition of the
                                   micro-batches before, which is in again */
    uint64_t before, slice; /* ZeRO-2, loose, sums in fp32: a rank's own while
                                   it is reduced, and what is cast to be added */
};

/* Where partitions do not come one after another: tensors are dealt to them in
 * turn, or gradients make them up where they lie (engine_ledger.c). */
struct zero_ledger {
    struct zero_place *place; /* [room] */
    struct zero_made *made;   /* [room + 2]: after each reduction */
    size_t *waiting[2];       /* [room]: places, in each bucket */
    size_t room, places, n_waiting[2];
    uint64_t elems, large; /* reduced so far; of those larger than a bucket */
};

/* ZeRO-1 that reduces beside its backward: a gradient larger than the bucket
 * stays where it was made, on ranks whose partition it does not touch. Of ranks
 * partitions begin with the last's. */
struct zero_beside {
    uint64_t large;      /* elements of those reduced so far */
    uint64_t begun;      /* partitions that have begun */
    uint64_t own;        /* large, and of the partition that began last */
    uint64_t whole, its; /* the fullest of the others: its elements, and what
                            of large is its own; with the optimizer on the
                            CPU the least of the latter */
};

/* What ZeRO has of gradients at some moment of a backward. */
struct bucket_content {
    uint64_t elems, tensors; /* in the bucket */
    uint64_t largest;        /* ... elements of one */
    union {
        uint64_t second; /* ZeRO-3: ... of another */
        uint64_t slice;  /* else: ... of one that lie in one partition, most */
    };
    uint64_t low, high; /* ranks that they are of */
    uint64_t first;     /* of the stage's elements: the latest's */
    uint64_t large;     /* elements of a gradient larger than it, alone;
                                else 0 */
};

struct bucket_fill {
    struct bucket_content in;
    struct bucket_content low; /* torch_autocast: of what is sent in 16 bits,
                                  which has a bucket of its own */
    uint64_t partition; /* elements of the largest rank's partition so far */
    uint64_t kept;      /* ... of gradients that stay beside it */
    union {
        struct zero_beside beside; /* without a ledger */
        struct {
            uint64_t again, again_kept; /* as in zero_made */
        };
    };
    uint64_t held;    /* ZeRO-3: bytes of the running block's weights, there
                         since forward, whose modules' backward is not over;
                         0: it does not matter */
    uint64_t gone;    /* elements reduced */
    uint64_t reduced; /* so many times */
    uint64_t copied;  /* bytes flattened to be sent, at this moment */
    uint64_t packed;  /* bytes of one in 4 bits, sent and received, then */
    uint64_t added;   /* elements that are cast, to be added in fp32, then */
    uint64_t cast;    /* bytes that what is sent is cast to, then */
    uint64_t normed;  /* elements in double precision for a norm, then */
    uint32_t row;     /* of the position that leaves this: the highest of those
                         above it, one after another, that bucket_alike() */
    bool begun;       /* there is a bucket */
};

/* A gradient comes: while what was full is reduced, after that, and when the
 * gradient is in the bucket. */
struct bucket_turn {
    struct bucket_fill reduced, told, after;
};

#define NEVER UINT64_MAX

/* The end of a unit's backward under FSDP. */
enum unit_done {
    UNIT_FLATTENED, /* gradients there one by one, and joined; version 2: in
                       the input of their reduction */
    UNIT_CAST,      /* joined, and cast; its parameters are cut again */
    UNIT_STEPPED    /* version 2: hooks on its shards update them */
};

/* Of tensors that layers share: all, what some operation keeps, and what is
 * held while the loss is computed. */
struct shared_bytes {
    uint64_t all, kept, last, late;
};

/* What all stages share. */
struct memory_fold {
    const struct program *p;
    const struct run *run;
    struct arena *a;
    struct walk_scratch scratch;
    struct block_walk *walk;     /* [p->n_blocks] */
    struct block_states *states; /* [p->n_blocks] */
    struct stage_block *at;
    struct prefix *before;
    struct bucket_fill *fill;
    struct row_stretch *row;
    struct zero_part *rank;
    uint64_t *whole;
    const struct tensor **trained;
    struct zero_ledger *ledger;
    bool *ends;
    /* walked; else NULL */
    uint64_t *chunk_kept, *chunk_stash, *chunk_sent, *chunk_added, *chunk_sum,
        *chunk_cut, *lacking, *others, *met;
    struct adding *adding;
    struct overlap_walk *overlap; /* [p->n_blocks] */
    int64_t *chunk_apart;
    uint32_t *chunk_first;
    uint64_t *chunk_at;       /* [vpp][pp]: first layers, of the whole model */
    struct rank_order *order; /* of the ranks whose memory is looked at, or of
                                 one; where backwards are split */
    size_t orders;
    struct away_sums *away;
    struct reload *reload;              /* AWAY_MODULES */
    uint64_t *reloads;                  /* ... of all their queues */
    struct glances *seen;               /* NULL: of no use */
    struct shared_bytes rotary, shared; /* made once a micro-batch */
    bool span_kept[SPAN_MAX];           /* backward needs program.span's */
    uint64_t resting;                   /* buffers that every stage has */
};

/* Walks every block; false when out of memory. */
bool memory_fold_init(struct memory_fold *f, const struct program *p,
                      const struct run *run, struct arena *a);

/* ---- stage.c ---- */

/* Micro-batches (interleaved: chunks) whose activations a rank holds at most;
 * 0: its order says. */
uint64_t stage_in_flight(const struct run *run, uint64_t rank);
/* One stage at a time: its arrays are f's. */
void stage_init(struct stage *s, struct memory_fold *f, uint64_t index,
                uint64_t first_layer);
/* Whether the stage after this one has the same blocks, no embedding or head,
 * and no engine whose terms ask for more than that: `next` has its place then. */
bool stage_repeats(struct stage *next, const struct stage *s,
                   const struct memory_fold *f);
/* Makes it that one; false where it does something at times in the step when
 * the one before does not: to be made anew. */
bool stage_advance(struct stage *s, const struct stage *next,
                   struct memory_fold *f);
/* Of it, which chunk each position is in, what is in flight beside each chunk
 * [stage_chunk.c], and what variables hold [stage_frames.c]. */
void stage_chunks_place(struct stage *s);
void stage_chunks_init(struct stage *s, struct memory_fold *f);
void stage_frames_init(struct stage *s);
/* The first layer's input is a leaf of the graph, kept for its gradient, where
 * it was received from another rank, or comes from a frozen embedding (PEFT's
 * enable_input_require_grads). 0 where the layer keeps it anyway. */
uint64_t stage_held_input(const struct stage *s);

/* Layer of the stage (0-based) at a position that is one. */
static inline uint64_t stage_layer(const struct stage *s, uint32_t position)
{
    return position - (s->embed ? 1u : 0u);
}

/* The same, of the whole model. */
static inline uint64_t stage_model_layer(const struct stage *s,
                                         uint32_t position)
{
    const uint64_t l = stage_layer(s, position);
    if (s->chunk_at != NULL) {
        const uint64_t chunk = run_layer_chunk(s->run, s->index, l);
        return s->chunk_at[chunk * s->run->pp] + l
               - run_layers_before(s->run, s->index, chunk);
    }
    return l < s->low_layers ? s->first_layer + l
                             : s->high_layer + l - s->low_layers;
}

static inline bool stage_is_layer(const struct stage *s, uint32_t position)
{
    return !(s->embed && position == 0) && !(s->head && position == s->n - 1);
}

/* Index into program.block of a position. */
static inline uint32_t stage_block(const struct stage *s, uint32_t position)
{
    return s->at[position].block;
}

/* Under a checkpoint that PyTorch's split backward comes to twice, and more. */
static inline bool stage_remakes(const struct stage *s, uint32_t position)
{
    return s->graph && s->at[position].recomputed;
}

/* ... and no block of its chunk lies above. */
bool stage_is_topmost(const struct stage *s, uint32_t position);

/* The two halves of a backward that is split. */
static inline const struct extremum *stage_split(const struct stage *s,
                                                 uint32_t position,
                                                 enum wgrad_mode mode)
{
    const struct block_walk *w = &s->walk[stage_block(s, position)];
    return stage_remakes(s, position) ? &w->remade_split[mode]
                                      : &w->split[mode];
}

static inline const struct extremum *stage_weights(const struct stage *s,
                                                   uint32_t position,
                                                   enum wgrad_mode mode)
{
    const struct block_walk *w = &s->walk[stage_block(s, position)];
    return stage_is_topmost(s, position) ? &w->remade_topmost[mode]
           : stage_remakes(s, position)  ? &w->remade_weights[mode]
                                         : &w->weights[mode];
}

/* The first position after those of one block that begin with this one. */
static inline uint32_t stage_row_end(const struct stage *s, uint32_t first)
{
    return s->at[first].end;
}

/* Micro-batches in flight beside the one at work, not interleaved: while
 * the first of the step runs backward, and later. */
uint64_t stage_others(const struct stage *s, bool later);
/* What the sum of a tied embedding's two gradients, where a position's backward
 * ends with it, adds: the sum, and the second gradient where the engine does not
 * keep it. Of two stacks the decoder's is added first, in its own backward:
 * tensor.sums. */
uint64_t stage_tied_sum(const struct stage *s, enum wgrad_mode mode);
/* Bytes of the head's gradient of the embedding's tensor; 0 when untied. */
uint64_t stage_tied_bytes(const struct program *p);
/* The head's product takes a copy of the tied table. */
bool stage_ties_cast(const struct program *p);
/* Checkpoints are around layers, whatever they keep. */
static inline bool run_checkpoints(const struct run *run)
{
    return run->recompute == RECOMP_FULL || run->recompute == RECOMP_OPS;
}
/* Backward finds what it needs as it comes to it (saved-tensor hooks): so the
 * form of checkpoints that is not reentrant does. */
static inline bool run_unpacks(const struct run *run)
{
    return run->recompute == RECOMP_FULL && !run->recompute_reentrant;
}
/* Gradients that the blocks above a position leave where they were made. */
uint64_t stage_wgrads_above(const struct stage *s, uint32_t position);
/* What variables of the model's forward alone hold at a position. */
uint64_t stage_frames(const struct stage *s, uint32_t position);
/* Of FSDP version 1: reentrant checkpoints are around its units, as where
 * transformers' Trainer asks the model for them. */
bool stage_checkpoints_units(const struct stage *s);
/* Hooks of FSDP version 1 hold the input of the checkpoint at a position, and
 * its gradient, to the end of backward. */
bool stage_hooks_hold(const struct stage *s, uint32_t position);
/* In a backward at a position: bytes of such inputs above, and of their
 * gradients but for that which it begins with. */
uint64_t stage_hooked_inputs(const struct stage *s, uint32_t position);
uint64_t stage_hooked_gradients(const struct stage *s, uint32_t position);
/* The same of what the model's forward holds to its end, in the head's block;
 * and of what a micro-batch's layers share. */
uint64_t stage_frames_inside(const struct stage *s);
uint64_t stage_shared_inside(const struct stage *s);
/* Of it, what is there while a block runs backward. */
uint64_t stage_shared_back(const struct stage *s, uint32_t position);
/* ... while it runs forward; and while its checkpoint runs again. */
uint64_t stage_shared_ahead(const struct stage *s, uint32_t position);
uint64_t stage_shared_again(const struct stage *s, uint32_t position);
/* Gradients, in backward, of what blocks below a position handed to such above
 * it: block.hands_far. */
uint64_t stage_far_gradients(const struct stage *s, uint32_t position);
/* Under a checkpoint; one that nothing in has a gradient keeps nothing
 * (torch/utils/checkpoint.py: neither form has a graph then). */
static inline bool stage_recomputed(const struct stage *s, uint32_t position)
{
    return s->at[position].recomputed;
}
/* Whether backward comes to a position of a model with frozen parts, or what it
 * holds is let go there; or is past all and finds its unit whole. */
bool stage_comes_back(const struct stage *s, uint32_t position);
bool stage_turns(const struct stage *s, uint32_t position);
/* True when checkpoints wait on the CPU. */
bool stage_offloads(const struct stage *s);
/* Bytes of a checkpointed layer's input that are this rank's to keep, and what
 * stays on the GPU while other layers work. */
uint64_t stage_checkpoint_part(const struct stage *s,
                               const struct block_walk *w);
uint64_t stage_checkpoint_kept(const struct stage *s,
                               const struct block_walk *w);
/* Chunk that a position is in; first position of one, of the next. */
static inline uint32_t stage_chunk(const struct stage *s, uint32_t position)
{
    return s->at[position].chunk;
}
static inline uint32_t stage_chunk_first(const struct stage *s, uint32_t chunk)
{
    return chunk == 0 ? 0 : chunk == s->chunks ? s->n : s->chunk_first[chunk];
}
/* Sums over the positions before one, of its chunk and of those before. */
const struct prefix *stage_chunk_before(const struct stage *s,
                                        uint32_t position);
/* Kept by the other chunks while one runs so, at most; NEVER where it never
 * does. Only where stage.others is. */
uint64_t stage_others_kept(const struct stage *s, uint32_t position,
                           enum slot_kind kind, bool later);
/* Whether a position is run so in a step: `later` as in struct moment. */
bool stage_happens(const struct stage *s, uint32_t position, bool back,
                   bool later);
/* First and last position of the checkpoint that a recomputed layer is in. */
uint32_t stage_group_first(const struct stage *s, uint32_t position);
uint32_t stage_group_last(const struct stage *s, uint32_t position);
/* Whether checkpoints hand saved tensors over one by one; what of a recomputed
 * layer's backward follows from it. */
bool stage_unpacks(const struct stage *s, uint32_t position);
/* Gradients that are there while a position is run again. */
uint64_t stage_lead(const struct stage *s, uint32_t position);
/* Whether a recomputed layer is run again only as far as backward needs. */
bool stage_stops_early(const struct stage *s, uint32_t position);

/* ---- stage_away.c: activations on the host (Transformer Engine) ---- */

/* Positions from `first` to before `end`. */
struct span {
    uint32_t first, end;
};
/* Layers whose activations wait on the host in each micro-batch, and whether
 * one at a position is of them, or a head whose norm's do; those that do while
 * a position runs, forward or backward; those that are back while it runs
 * backward. */
struct span stage_away_layers(const struct stage *s);
bool stage_goes(const struct stage *s, uint32_t position);
struct span stage_gone(const struct stage *s, uint32_t position);
struct span stage_back(const struct stage *s, uint32_t position);
void stage_away_init(struct stage *s, struct memory_fold *f);
/* A layer whose tensors go one by one; what the layer before one still has on
 * the way when this one begins. */
bool stage_unloads(const struct stage *s, uint32_t position);
uint64_t stage_on_the_way(const struct stage *s, uint32_t position);
/* Bytes that have left the GPU of what layers below a position keep; in its
 * backward, what came back that the layers there do not keep. */
uint64_t stage_gone_bytes(const struct stage *s, uint32_t position);
uint64_t stage_back_bytes(const struct stage *s, uint32_t position);

/* ---- stage_modules.c: activations of modules on the host (Megatron) ---- */

void stage_modules_init(struct stage *s, struct memory_fold *f);
/* What its modules keep is gone when it is done, and back in its backward. */
static inline bool stage_module_goes(const struct stage *s, uint32_t position)
{
    return s->at[position].goes;
}
/* Bytes of it that go down, and come up, in a micro-batch. */
uint64_t stage_module_moves(const struct stage *s, uint32_t position);
/* Bytes of other positions' groups that are back, or stayed, while a position
 * runs forward, or begins backward; `others`: in flight. */
uint64_t stage_ahead(const struct stage *s, uint32_t position, bool back,
                     bool others);
/* ... that the nth end of a module in its backward brings. */
uint64_t stage_comes(const struct stage *s, uint32_t position, uint32_t nth,
                     bool others);
/* The fullest of its backward, and how many of those bytes are there then. */
const struct extremum *stage_modules_fullest(const struct stage *s,
                                             uint32_t position,
                                             enum wgrad_mode mode, bool others,
                                             uint64_t *ahead);

/* ---- moment.c ---- */

/* Bytes that one micro-batch keeps between its forward and its backward. */
uint64_t stage_micro_batch_kept(const struct stage *s);

/* Sets m to what is alive at a moment; true when nothing overflowed. `why`
 * records the terms of component `only`, where it is not NULL. */
struct point {
    enum phase phase;
    uint32_t position;
    bool later;
    struct beside beside;
};
bool moment_of(struct moment *m, const struct stage *s, const struct point *of,
               struct explanation *why, enum component only);

/* The same with nothing beside it. */
static inline bool moment_with(struct moment *m, const struct stage *s,
                               enum phase phase, uint32_t position, bool later,
                               struct explanation *why, enum component only)
{
    const struct point of = { phase, position, later, { .is = false } };
    return moment_of(m, s, &of, why, only);
}

/* ... and unexplained. */
static inline bool moment_at(struct moment *m, const struct stage *s,
                             enum phase phase, uint32_t position, bool later)
{
    return moment_with(m, s, phase, position, later, NULL, COMP_COUNT);
}

/* The same of one kind of backward; whether there is such a one. */
struct instant {
    enum phase phase;
    uint32_t position;
    bool later;
    enum slot_kind slot;
};
bool moment_in_slot(struct moment *m, const struct stage *s,
                    const struct instant *when);
/* Sets the slot to the next kind of backward that the moment has, from
 * SLOT_FORWARD on; a whole one where it has none. False: there are no more. */
bool moment_next_slot(const struct stage *s, struct instant *when);
/* Makes a moment of the first micro-batch, in that kind of slot, the same of a
 * later one; only where megatron_adds_later(). False when a sum overflowed. */
bool moment_make_later(struct moment *m, const struct stage *s,
                       enum slot_kind slot);
/* Whether moment_rise() knows what of a stage's moments follows from a position.
 * [moment_rise.c] */
bool moment_rises(const struct stage *s);
/* Bytes that a forward, backward or second forward has more at the last of a row
 * of equal positions than at the first of it, `when`: less than 0 where it has
 * less. */
int64_t moment_rise(const struct stage *s, const struct instant *when,
                    uint32_t last);
/* The same of the backward of a checkpointed layer beside its second forward, in
 * the slot of `when`, whichever of both that is. */
int64_t moment_rise_back(const struct stage *s, const struct instant *when);
/* A position's fullest moment of a second forward, or of a backward while it
 * runs. [moment.c] */
const struct extremum *moment_again_of(const struct stage *s,
                                       uint32_t position);
const struct extremum *moment_back_of(const struct stage *s,
                                      const struct instant *when);
/* What other micro-batches have of it: TERM_IN_FLIGHT; whether they may. */
bool moment_has_others(enum phase phase);
uint64_t moment_of_others(const struct stage *s, const struct instant *when);

/* moment_at() with, in a block's backward or second forward, what of it depends
 * on how gradients fill DeepSpeed's bucket; there is one. */
bool moment_and_bucket(struct moment *m, uint64_t *bucket,
                       const struct stage *s, enum phase phase,
                       uint32_t position, bool later);

/* ---- engine_stretch.c: a backward that fills a bucket ---- */

/* A block's backward, or the moment when a gradient comes: what is fullest with
 * what ZeRO has of gradients then. */
struct stretch {
    const struct extremum *e;
    struct bucket_fill fill;
    uint64_t total; /* bytes of both */
};
/* ... of one of positions that are alike. */
struct row_stretch {
    bool known, later;
    uint32_t position;
    struct stretch of;
};
void stretch_fullest(struct stretch *best, const struct stage *s,
                     uint32_t position, bool later);
/* Of what the block, or its group under a checkpoint, keeps, that is still
 * there; a checkpoint's input is not of it. */
uint64_t stretch_keeps(const struct stage *s, uint32_t position,
                       const struct extremum *e);
/* The stretch's bytes, with those. */
uint64_t stretch_total(const struct stretch *x, const struct stage *s,
                       uint32_t position);
/* Of a moment what depends on how gradients fill the bucket: that alone of
 * moment_and_bucket(). */
uint64_t moment_of_bucket(const struct stage *s, enum phase phase,
                          uint32_t position, bool later);
/* No less than that in any backward of the block at a position. */
uint64_t moment_of_bucket_most(const struct stage *s, uint32_t position);

/* ---- reserve.c: what the allocator keeps of it, not simulated ---- */

/* The stream that an allocation is made on: a pool of its own. */
enum stream {
    STREAM_COMPUTE,
    STREAM_GATHER, /* all-gather outputs */
    STREAM_REDUCE, /* what gradients are reduced into */
    STREAM_COUNT
};
enum stream engine_stream(const struct run *run, enum term term,
                          const char *what);

/* What cannot take each other's place in the allocator, each at its own fullest
 * moment. */
struct pools {
    uint64_t stream[STREAM_COUNT]; /* compute: in pieces of a layer's size */
    uint64_t flat;                 /* there, as large as the stage's states */
};
/* Of one moment; the fullest of several. */
void pools_of(struct pools *x, const struct stage *s, const struct moment *m);
void pools_keep(struct pools *most, const struct pools *x);
struct reserve pools_reserve(const struct pools *x, const struct stage *s,
                             uint64_t peak);
/* In whole segments. */
uint64_t reserve_with_gaps(uint64_t rest, uint64_t all, uint64_t permille);
/* Where a device has less room than that, what is cached is given back. */
uint64_t reserve_on(const struct reserve *r, uint64_t room);

/* ---- peak.c ---- */

struct glances;
struct peak {
    struct moment moment; /* the fullest of the stage's step */
    struct pools pools;
    struct glances *seen; /* NULL: not kept */
    uint64_t known;       /* as glances.known: not to be looked at again */
    bool rises;           /* moment_rises() */
    /* the first micro-batch's, in a forward or backward, or a second forward;
     * each of the position looked at last */
    struct moment first[2][SLOT_KINDS];
};

/* Whether one of its chunks has no moments of its own, if those of others are
 * kept. */
bool stage_chunks_repeat(const struct stage *s);
/* False when a sum does not fit. `seen`: keeps what it looked at. */
bool stage_peak(struct peak *best, const struct stage *s, struct glances *seen);
/* Bytes at the fullest moment of forwards and backwards alone; 0 when a sum does
 * not fit. */
uint64_t stage_passes_most(const struct stage *s);
/* The same of a stage that differs from that one in what is in flight alone;
 * `seen` then knows what this one does that that one does not, too. `before`:
 * the fullest moment of the stage before this one, or NULL. */
bool stage_peak_again(struct peak *best, const struct stage *s,
                      struct glances *seen, const struct moment *before);

/* ---- loop.c: what the training loop holds of a micro-batch done ---- */

/* While a forward runs, until variables are renamed. */
void loop_forward(struct put *p, const struct stage *s);
/* Of the micro-batch that runs backward, the blocks above. */
void loop_backward(struct put *p, const struct stage *s, uint32_t position);
/* From backward to the end of the step, and from there to the next one. */
void loop_idle(struct put *p, const struct stage *s);
void loop_rest(struct put *p, const struct stage *s);
/* The next forward finds what this one's micro-batch left. */
bool loop_holds_over(const struct stage *s);

/* ---- engine.c: what the engine adds at each moment ---- */

/* Weights, states, permanent buffers: alive all the time. */
void engine_rest(struct put *p, const struct stage *s);
/* Beside that from one step to the next. */
void engine_between(struct put *p, const struct stage *s);
/* Beside that when no micro-batch is under way. [engine_megatron.c] */
void engine_idle(struct put *p, const struct stage *s);
/* From before clipping to the next step's first forward. */
void engine_stepped(struct put *p, const struct stage *s);
/* Gathered weights while the block at `position` runs forward. */
void engine_forward(struct put *p, const struct stage *s, uint32_t position,
                    bool later);
/* Whether that has a moment of its own before the block runs: what was gathered
 * is copied out. Of it, engine_forward with `copies_out`. [FSDP version 2] */
bool engine_copies_out(const struct stage *s, uint32_t position, bool later);
/* ... before its backward: of it, engine_backward with `copies_out`. */
bool engine_copies_back(const struct stage *s, uint32_t position);
/* Gathered weights, buckets and gradients while it runs backward; `later`: a
 * micro-batch after the first. */
void engine_backward(struct put *p, const struct stage *s, uint32_t position,
                     bool later);
/* After a backward, where 16-bit gradients are then added into fp32 ones, or
 * cast to such. */
bool engine_accumulates(const struct run *run, bool later);
void engine_accumulate(struct put *p, const struct stage *s);
/* True where gradients are reduced and stepped from where they were made. */
bool engine_steps_views(const struct run *run);
/* The same when its backward is over. [FSDP version 1] */
void engine_unit_done(struct put *p, const struct stage *s, uint32_t position,
                      bool later, enum unit_done when);
/* What was released and waits for another stream: nobody may use it yet,
 * though it is not allocated. */
void engine_waits(struct put *p, const struct stage *s, uint32_t position,
                  bool back);
/* After the last backward of the step. */
void engine_reduce(struct put *p, const struct stage *s);
void engine_clip(struct put *p, const struct stage *s);
void engine_step(struct put *p, const struct stage *s);
/* In TERM_SAVED_LAYERS, in TERM_WORKSPACE. */
#define PAST_LABEL "inputs that 8-bit layers hold past checkpoints"
#define CUBLAS_LABEL "cuBLAS workspaces, one a thread"

/* Copies of a weight that its own update makes for a moment, and whether that
 * is as soon as its gradient is there: a compiled layer gives all at once. */
unsigned engine_update_copies(const struct run *run);
bool engine_updates_in_backward(const struct run *run);
/* ... of a unit's shards, when its gradients are reduced. */
bool engine_steps_units(const struct run *run);

/* ---- engine_megatron.c: Megatron's part of the above ---- */

void megatron_rest(struct put *p, const struct stage *s);
/* Of cuBLAS, one of a thread and stream. */
uint64_t engine_cublas_workspace(const struct run *run);
/* In micro-batches after the first. */
void megatron_forward(struct put *p, const struct stage *s, uint32_t position);
void megatron_backward(struct put *p, const struct stage *s, uint32_t position,
                       bool later);
void megatron_reduce(struct put *p, const struct stage *s);
/* What a later micro-batch has beside what the first one has at a position; true
 * where that and others in flight are all that it has. */
void megatron_later(struct put *p, const struct stage *s, uint32_t position,
                    bool back);
bool megatron_adds_later(const struct run *run);
/* Sets stays. */
void megatron_stays(struct stage *s);

/* ---- engine_deferred.c: --defer-embedding-wgrad-compute ---- */

/* Sets deferred. */
void deferred_init(struct stage *s);
/* What is kept at a moment, at most; hidden: bytes that a stage receives. */
void deferred_put(struct put *p, const struct stage *s, uint32_t position,
                  bool back, bool later, uint64_t hidden);
/* Between steps. */
void deferred_rest(struct put *p, const struct stage *s);

/* What engine_rest calls them. */
#define WEIGHT_SHARDS "weight shards"
#define FROZEN_SHARDS "frozen weight shards"
#define FROZEN_SCALES "scales of quantised weights"

/* ---- offload.c ---- */

/* What of the stage is on its node's disks. */
void offload_disk(struct disk_bytes *d, const struct stage *s);
/* What of the stage lies beside its GPU; no sums of a node. */
void fold_offload(struct offload_result *o, const struct stage *s);

/* ---- engine_fsdp.c, engine_fsdp_reduce.c, engine_flat.c,
 * engine_flat_loop.c ---- */

/* Sets what the rank with the most of it updates. */
void fsdp_fullest_rank(struct stage *s);
/* Sets what a loop over version 1's pieces of parameters holds, in elements. */
void fsdp_flat_loop(struct stage *s);
/* A wrapped module; what is not belongs to the root. */
bool fsdp_is_unit(const struct stage *s, uint32_t position);
/* Version 1: the first unit, which no backward comes to, is fetched by the one
 * above, as its result has a gradient, and cut when the pass is over. */
bool fsdp_left_whole(const struct stage *s, uint32_t position);
/* Bytes of a unit's parameters; 0 where there is none at a position. */
uint64_t fsdp_unit_bytes(const struct stage *s, uint32_t position);
/* Bytes of parameters that the wrapped layers leave to the root. */
uint64_t fsdp_root_bytes(const struct stage *s);
/* What they are called, in TERM_GATHERED; what waits for the root's reduction, in
 * TERM_WGRAD_TMP; what version 2 makes in the stream that reduces, in
 * TERM_REDUCE_TMP. */
#define ROOT_LABEL "root parameters, gathered for the whole pass"
#define UNIT_LABEL "this unit's parameters"
#define ROOT_GRADS_LABEL "whole gradients of the root, reduced last"
#define REDUCED_LABEL "its shard, reduced"
#define RECAST_LABEL "the same, cast"
#define ALL_REDUCED_LABEL "all-reduced by the copies, kept to the end"

/* Gradients of a split backward wait for the chunk's next one, which casts and
 * adds them (FSDP version 2). */
bool fsdp_casts_later(const struct stage *s);
/* Gradients wait for the last micro-batch, whole; all units' for the last
 * backward of a pipeline. */
bool fsdp_defers(const struct run *run);
bool fsdp_reduces_at_last(const struct run *run);
/* True when a unit's gradients are joined to one when its backward is over. */
bool fsdp_joins(const struct stage *s, uint32_t position);
/* ... and that one reduced in another type. */
bool fsdp_casts_grads(const struct stage *s);
/* True when what a frozen unit gathered goes after the next one's prefetch. */
bool fsdp_overlaps(const struct stage *s, uint32_t position);

/* Elements of a flat buffer on this rank. */
uint64_t engine_share(const struct stage *s);

/* ---- engine_bucket.c: gradients one after another ---- */

/* ZeRO-2 and -3, and ZeRO-1 that reduces beside its only backward. */
bool zero_fills_bucket(const struct run *run);
const char *zero_partition_label(const struct run *run);
void bucket_init(struct stage *s);
/* Whether gradients fill it one by one in such a backward, and the stage has
 * some; whether what there is of them changes with each. */
bool zero_fills_in(const struct run *run, bool later);
bool bucket_fills(const struct stage *s, bool later);
bool bucket_moves(const struct stage *s);
/* The next gradient of the block at a position; before that t->after is what
 * there was. */
void bucket_arrival(const struct stage *s, uint32_t position,
                    const struct arrival *a, struct bucket_turn *t);
/* Nothing is reduced in the backward of the block at a position, nor larger than
 * the bucket: it is as full for the engine all along. */
bool bucket_calm(const struct stage *s, uint32_t position);
/* Stage 3: blocks of one kind at two positions, and all between, find the same in
 * the bucket, and leave the same in it. */
static inline bool bucket_alike(const struct stage *s, uint32_t position,
                                uint32_t other)
{
    return s->fill[position].row == s->fill[other].row;
}
/* After the positions from one on, those before `end`, that are alike. */
static inline uint32_t bucket_row_end(const struct stage *s, uint32_t position,
                                      uint32_t end)
{
    return (uint32_t)min_u64(s->fill[position].row + UINT64_C(1), end);
}
/* What there is when autograd adds the gradients of a tied table, in the block
 * at a position: the sum has not come. */
struct bucket_fill bucket_before_sum(const struct stage *s, uint32_t position);
/* What is left at the end of backward. */
struct bucket_fill bucket_rest(const struct stage *s, bool later);
/* Elements of a tensor's part on this rank in double precision: on their way to
 * an optimizer on the CPU gradients are normed one by one, as they are reduced
 * (stage_1_and_2.py, set_norm_for_param_grad_in_gpu; stage3.py,
 * _constant_buffered_norm2). */
uint64_t zero_normed(const struct run *run, uint64_t share, uint64_t elems);
/* The buckets that are filled, where they are one buffer each. */
void zero_put_bucket(struct put *p, const struct stage *s);
uint64_t bucket_bytes(const struct stage *s, const struct bucket_fill *f,
                      bool later);
/* No less than that, with gradients of so many elements at most. */
uint64_t bucket_most(const struct stage *s, uint64_t largest);
/* The same, term by term. */
void bucket_put(struct put *p, const struct stage *s,
                const struct bucket_fill *f, bool later);

/* engine_ledger.c: whether partitions need one; room for it, false when out of
 * memory. */
bool ledger_needed(const struct run *run);
bool ledger_room(struct memory_fold *f, size_t positions);
/* Whether the stage needs it: no more tensors than ranks, dealt in turn, are in
 * order. */
bool ledger_matters(const struct stage *s);
/* Begins with no tensors; the next one of the stage; all are there. */
void ledger_begin(struct stage *s);
void ledger_add(struct stage *s, uint64_t elems);
void ledger_deal(struct stage *s);
/* Elements before a tensor in the ranks' partitions, by those before it in the
 * model. */
uint64_t ledger_flat(const struct stage *s, uint64_t at);
/* A gradient waits in a bucket; what waits there is reduced, for the nth time of
 * a backward. */
void ledger_take(struct stage *s, bool low, uint64_t at);
void ledger_reduce(struct stage *s, bool low, uint64_t nth);

/* engine_partition.c: sets partition and sub_group. */
void zero_layout(struct stage *s);
/* Elements that are flattened for each reduction of a pipeline's ZeRO-1, bucket
 * after bucket. */
void zero_each_bucket(const struct stage *s,
                      void (*each)(void *ctx, uint64_t elems), void *ctx);
/* engine_zero.c: gathered weights.
 * Elements of all ranks that the step's `index`-th all-gather brings, through
 * a flat buffer; 0: there is no such. */
uint64_t zero_gather_flat(const struct stage *s, uint64_t index);
/* Sets released, released_bytes, and held where a block's backward begins. */
void zero3_layout(struct stage *s);
void zero3_gather(struct put *p, const struct stage *s, uint32_t position,
                  bool backward);
void zero3_second(struct put *p, const struct stage *s, uint64_t elems);
uint64_t zero3_second_forward(const struct stage *s, uint32_t position,
                              bool later);
uint64_t zero3_second_backward(const struct stage *s, uint32_t position,
                               bool later);
void zero3_second_step(struct put *p, const struct stage *s);
/* ZeRO-3: elements that are gathered, or under way, at most. */
uint64_t zero3_most(const struct stage *s, uint32_t position);

/* Bytes of one full set of gradients as this rank holds it, beside what is
 * there at rest already. */
uint64_t engine_gradients(const struct stage *s);

/* What becomes of weight gradients during a backward pass. */
enum wgrad_mode engine_wgrad_mode(const struct stage *s, bool later);
/* True when a block's whole gradients live to the end of its backward and are
 * then reduced to shards (FSDP). */
bool engine_reduces_blocks(const struct run *run);
/* True when a block's whole gradients go with its backward: reduced to shards,
 * or used up by the optimizer. */
bool engine_drops_blocks(const struct run *run);

/* NCCL communicators of a rank: of two ranks, of more, and of ranks on several
 * nodes. */
struct communicators {
    uint64_t pairs, groups, across;
};

/* ---- pipe.c: DeepSpeed's pipeline engine ---- */

/* False when there is no such engine. */
bool pipe_communicators(struct communicators *c, const struct run *run);

uint64_t pipe_micro_batch(const struct stage *s);
/* Hidden states between two stages, on one rank. */
uint64_t pipe_border(const struct stage *s);
/* Of a micro-batch, what the last stage of torch.distributed.pipelining keeps of
 * its result to the end of its backward (fwd_cache), and no operation does. */
uint64_t pipe_logits(const struct stage *s);
/* Of these, what it keeps from the end of backward to the next step's first
 * forward, bytes a micro-batch (output_chunks); beside a pass of a schedule that
 * is not walked, of those that are done; and when all are. */
uint64_t pipe_outputs(const struct stage *s);
uint64_t pipe_outputs_before(const struct stage *s, bool later);
void pipe_put_outputs(struct put *p, const struct stage *s);
void pipe_forward(struct put *p, const struct stage *s, uint32_t position);
void pipe_backward(struct put *p, const struct stage *s, uint32_t position);
void pipe_idle(struct put *p, const struct stage *s);
void pipe_after(struct put *p, const struct stage *s);
/* Beside that, of torch.distributed.pipelining, before gradients are clipped. */
void pipe_clip(struct put *p, const struct stage *s);

#endif
