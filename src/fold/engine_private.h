/* What the files of the engines share. Nobody else includes this. */
#ifndef MEMPLAN_FOLD_ENGINE_PRIVATE_H
#define MEMPLAN_FOLD_ENGINE_PRIVATE_H

#include "fold/stage.h"

enum { FP16 = 2, FP32 = 4 };

/* ZeRO-1 as it reduces what all backwards have left: what is in its buckets. */
struct zero1 {
    struct bucket_content in[2]; /* by tensor.low */
    uint64_t at;                 /* elements before the next tensor */
    uint64_t moved;              /* ... that are in buckets, or were */
    uint64_t open;               /* ranks before it have all of theirs, ... */
    uint64_t done; /* ... and of partition more than of large gradients that
                      went into it: the most of them */
};

/* What is made of a bucket to send it, in bytes: flattened; cast to the type
 * that is sent. */
struct sent {
    uint64_t copied, cast;
};

/* ---- engine.c ---- */

bool engine_shards_offloaded(const struct run *run);
bool engine_zero3_fetches(const struct run *run);
bool engine_zero3_gathers(const struct run *run);
bool engine_shards_come(const struct run *run);
bool engine_optimizer_offloaded(const struct run *run);
bool engine_makes_zero3_grads(const struct run *run);
/* Elements a flat buffer has on this rank: padded, cut evenly. */
uint64_t engine_flat_share(const struct run *run, uint64_t dense,
                           uint64_t expert);
void engine_zero2_partition(struct put *p, const struct stage *s);
void engine_zero3_partition(struct put *p, const struct stage *s);
void engine_whole_grads(struct put *p, const struct stage *s);
void engine_stepped_grads(struct put *p, const struct stage *s);
/* In the head's backward: whether a weight's gradient is there at its fullest
 * moment. */
bool engine_gradients_begun(const struct stage *s, uint32_t position,
                            bool later);

/* ---- engine_step.c ---- */

/* FSDP version 2's, in a hook: of shards of at most so many elements, one by
 * one. */
void engine_step_shards(struct put *p, const struct stage *s, uint64_t largest);

/* ---- engine_rest.c ---- */

/* fp32 gradients that the optimizer does not give back. */
void engine_kept_copies(struct put *p, const struct stage *s);

/* ---- engine_bucket.c ---- */

/* Whether what is in the bucket is reduced before a gradient has room. */
static inline bool bucket_overflows(const struct stage *s,
                                    const struct bucket_fill *f,
                                    const struct arrival *a)
{
    const struct bucket_content *c = a->low ? &f->low : &f->in;
    return a->elems != 0 && c->tensors > 0
           && c->elems + a->elems > s->run->reduce_bucket;
}

/* Ranks whose partitions a gradient that comes into a bucket touches, and what
 * of it lies in one. */
void bucket_take_ranks(const struct stage *s, struct bucket_content *c,
                       uint64_t first, uint64_t elems);

/* A gradient comes into a bucket that has room for it, whatever ranks it is
 * of. */
static inline void bucket_count(struct bucket_content *c, uint64_t first,
                                uint64_t elems)
{
    c->largest = max_u64(c->largest, elems);
    c->first = first;
    c->elems += elems;
    c->tensors++;
}

/* A gradient comes into a bucket; `first`: elements before it in the ranks'
 * partitions, which matter where each rank has its own part of the
 * gradients. */
static inline void bucket_take_elems(const struct stage *s,
                                     struct bucket_content *c, uint64_t first,
                                     uint64_t elems)
{
    if (s->run->zero == 3)
        c->second = max_u64(c->second, min_u64(c->largest, elems));
    else
        bucket_take_ranks(s, c, first, elems);
    bucket_count(c, first, elems);
    if (elems > s->run->reduce_bucket && !s->loose)
        c->large = elems;
}

/* A tensor comes into a bucket, by the elements before it in the model. */
static inline void bucket_add(const struct stage *s, struct bucket_content *c,
                              uint64_t at, uint64_t elems)
{
    bucket_take_elems(s, c, s->ledger != NULL ? ledger_flat(s, at) : at, elems);
}

/* The same of a gradient of the block at a position. */
static inline void bucket_take(const struct stage *s, uint32_t position,
                               const struct arrival *a, struct bucket_fill *f)
{
    if (a->elems == 0)
        return;
    f->begun = true;
    f->held -= min_u64(f->held, a->goes);
    bucket_add(s, a->low ? &f->low : &f->in,
               s->before[position].elems + a->offset, a->elems);
}

struct sent bucket_sent(const struct stage *s, const struct bucket_content *c,
                        bool low);
/* Whether what is sent of some bucket is of another type than what is in it. */
bool bucket_casts(const struct stage *s);
/* Bytes of a gradient as autograd makes it; in the bucket. */
uint64_t zero_arriving_bytes(const struct run *run);
uint64_t bucket_width(const struct run *run);
/* Stage 3: gradients are made in another type than they are sent in; what was
 * sent in this type is added up in another. */
bool zero3_casts(const struct run *run);
bool zero3_casts_back(const struct run *run, enum dtype sent);
/* ZeRO-1 beside the last of several backwards: all gradients are there. */
bool zero1_has_all(const struct run *run);

/* ---- engine_zero1.c: all gradients are there, reduced one after another ---- */

void zero1_begin(const struct stage *s, struct zero1 *z);
void zero1_add(struct stage *s, struct zero1 *z, uint64_t elems, bool low);
void zero1_end(struct stage *s, struct zero1 *z);
/* What that adds to all gradients. */
void zero1_put(struct put *p, const struct stage *s);

/* ---- engine_fsdp.c, engine_fsdp_gather.c, engine_fsdp_reduce.c ---- */

void fsdp_root_grads(struct put *p, const struct stage *s, uint32_t position,
                     bool later);
/* Of whole gradients that wait for the last micro-batch: whether autograd adds
 * to them; all of them; at a moment of backward. */
bool fsdp_adds_in_place(const struct run *run);
uint64_t fsdp_deferred_whole(const struct stage *s, uint32_t position);
void fsdp_deferred(struct put *p, const struct stage *s, uint32_t position,
                   bool later);
uint64_t fsdp_reduced(const struct stage *s, uint32_t position, bool later);
void fsdp_all_reduced(struct put *p, const struct stage *s, uint32_t position,
                      bool later);
void fsdp_forward(struct put *p, const struct stage *s, uint32_t position,
                  bool later);
bool fsdp_copies_out(const struct stage *s, uint32_t position, bool later);
bool fsdp_copies_back(const struct stage *s, uint32_t position);
void fsdp_backward(struct put *p, const struct stage *s, uint32_t position,
                   bool later);
void fsdp_unit_done(struct put *p, const struct stage *s, uint32_t position,
                    bool later, enum unit_done when);
void fsdp_waits(struct put *p, const struct stage *s, uint32_t position,
                bool back);
/* After the last backward of the pass. */
void fsdp_root_done(struct put *p, const struct stage *s);
void fsdp_first_reduced(struct put *p, const struct stage *s);
/* What stages keep of the step before's reductions (keep_reduce_scatter); of the
 * first chunk too, which is the last to reduce. */
void fsdp_put_kept(struct put *p, const struct stage *s, bool first);
/* Version 2: at the end of a backward whose gradients wait these are cast. */
bool fsdp_casts_waiting(const struct run *run, bool later);
void fsdp_cast_waiting(struct put *p, const struct stage *s);
/* Gradients of the root, which go last: bytes whole; elements, those of all ranks'
 * shards, and of this rank's; of its largest shard. */
struct root_sums {
    uint64_t elems, cut, own, largest;
};
uint64_t fsdp_root_wgrads(const struct stage *s);
struct root_sums fsdp_root_sums(const struct stage *s);
/* Elements of its shard that no micro-batch before the last has reduced. */
uint64_t fsdp_root_own_to_come(const struct stage *s);

/* ---- engine_checkpoints.c ---- */

/* Of checkpoints that leave the GPU, what is there in forward of a block, and in
 * its backward. */
void engine_checkpoints_leave(struct put *p, const struct stage *s,
                              uint32_t position);
void engine_checkpoints_return(struct put *p, const struct stage *s,
                               uint32_t position);

#endif
