/*
 * Schedules that are walked: in which order a stage runs its chunks forward and
 * backward, and what the others keep meanwhile. Interleaved [Narayanan et al.
 * 2021; Megatron-LM schedules.py,
 * forward_backward_pipelining_with_interleaving]; ZB-H1 [Qi et al. 2024;
 * sail-sg/zero-bubble-pipeline-parallelism, zb-h1-quick-start]; ZB-V
 * [the same, section 6; PyTorch's ScheduleZBVZeroBubble, which takes F, B and W
 * as equally long]; DualPipe [DeepSeek-V3, arXiv:2412.19437 section 3.2.1;
 * deepseek-ai/DualPipe dualpipe.py and dualpipev.py, step]
 */
#ifndef MEMPLAN_FOLD_SCHEDULE_H
#define MEMPLAN_FOLD_SCHEDULE_H

#include "fold/stage.h"

/* One chunk of one micro-batch, in one direction. */
struct slot {
    enum slot_kind kind;
    bool later; /* forward: after the first backward of the step; backward: of
                   a micro-batch after the first; weights: after the second
                   backward */
    uint32_t micro, chunk;
    uint32_t other_micros, other_chunks; /* in flight beside this one */
    uint32_t waiting; /* for weights' gradients, this one not counted */
    bool adds;        /* finds its weights' gradients, to be added */
    bool reduces;     /* its chunk's gradients go with it */
    uint64_t missing; /* of all weights' gradients: of chunks that have none */
    uint64_t kept;    /* by those chunks' blocks */
    int64_t apart;    /* of a graph: of that what no block keeps */
};

/* False stops. */
typedef bool slot_fn(void *ctx, const struct slot *slot);

/* Whether there are chunks, or backwards in two halves, to walk through. */
bool schedule_walked(const struct run *run);
/* ... by keeping autograd's graph from one to the other: PyTorch's pipelines. */
bool schedule_keeps_graph(const struct run *run);
/* Where a stage is on two ranks, in opposite directions. */
bool schedule_is_dual(const struct run *run);

/* Micro-batches after which everything has occurred that ever does.
 * Interleaved: it goes in rounds, and the third is as those after it. */
uint64_t schedule_micros(const struct run *run);
/* One chunk of one micro-batch, where backwards are split. */
struct step {
    uint8_t kind, chunk; /* enum slot_kind */
    bool later;          /* as in struct slot */
    bool beside;         /* another chunk of the micro-batch is in flight */
    uint32_t micro;
};
/* Steps of a rank for so many micro-batches, at most; 0: they are not split. */
uint64_t schedule_room(const struct run *run, uint64_t micros);
/* Lists them in order; says how many. Backwards of PyTorch's first stage are not
 * split. */
size_t schedule_steps(struct step *to, const struct run *run, uint64_t rank,
                      uint64_t micros);
/* Steps one after another, which come so many times, each time of the next
 * micro-batches. */
struct refrain {
    uint32_t steps, times;
};
enum { REFRAINS_MAX = 16 };
/* The same order in short: steps of each refrain are listed once. */
struct rank_order {
    struct step *step; /* [schedule_short_room()] */
    struct refrain refrain[REFRAINS_MAX];
    uint32_t n;
    uint32_t steady; /* the one that comes as much more often as there are more
                        micro-batches; REFRAINS_MAX: none */
};
uint64_t schedule_short_room(const struct run *run, uint64_t micros);
void schedule_short(struct rank_order *to, const struct run *run, uint64_t rank,
                    uint64_t micros);
/* Whether it is much shorter, however many micro-batches there are. */
bool schedule_is_short(const struct run *run);
/* Of PyTorch's backwards of a rank's chunk the share that is split. */
double schedule_split_share(const struct run *run, uint64_t rank,
                            uint64_t chunk);
/* The same as slots; room: [schedule_room(micros)]. */
void schedule_walk(const struct stage *s, uint64_t micros, struct step *room,
                   slot_fn *each, void *ctx);

/* Sets what of them the stage has most of: others, in_flight, stashes. Where no
 * graph is kept that is told from the order in short, which is listed to `to`;
 * its steps have room. */
void schedule_split_kept(struct stage *s, uint64_t micros,
                         struct rank_order *to);

/* The same, interleaved only. *micros may become less meanwhile, by groups
 * that have not begun. */
void schedule_interleaved(const struct stage *s, const uint64_t *micros,
                          slot_fn *each, void *ctx);
/* The same where a forward runs beside a backward (ep_overlap): one of them is
 * NULL while there is no other. Each counts among what is in flight beside the
 * other. */
typedef bool passes_fn(void *ctx, const struct slot *forward,
                       const struct slot *backward);
void schedule_overlapped(const struct stage *s, const uint64_t *micros,
                         passes_fn *each, void *ctx);
/* What each chunk has of the others, at most, without a call a slot: there are
 * hundreds on each rank. */
void schedule_interleaved_kept(const struct stage *s, uint64_t micros,
                               uint64_t *most);
#endif
