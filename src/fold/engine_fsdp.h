/*
 * What the files of FSDP share: units, the root, what waits for its reduction.
 * Nobody else includes this.
 */
#ifndef MEMPLAN_FOLD_ENGINE_FSDP_H
#define MEMPLAN_FOLD_ENGINE_FSDP_H

#include "fold/engine_private.h"

/* ---- engine_fsdp.c ---- */

/* Embedding and head as units of their own; a tensor that both have cannot be
 * in two. */
bool fsdp_head_apart(const struct stage *s);
bool fsdp_embed_apart(const struct stage *s);
/* What lies between two stacks, a projector, the words of a text with images:
 * no layer's unit either. NULL: there is nothing, or it is no part of the
 * root. */
const struct block_states *fsdp_root_joint(const struct stage *s);
/* Backward comes to it, or to what it hands on: it is fetched ahead. */
bool fsdp_is_fetched_back(const struct stage *s, uint32_t position);
/* The backward at hand is the last of two micro-batches. */
bool fsdp_reduces_now(const struct run *run, bool later);
/* Version 2's copies keep to the end of backward what they all-reduced. */
bool fsdp_keeps_all_reduced(const struct run *run);
/* ... beside the gradient shards. */
bool fsdp_has_all_reduced(const struct run *run, bool later);
/* Where what waits for the last backward together with a position ends. */
uint32_t fsdp_waits_before(const struct stage *s, uint32_t position);
/* The head's gradients go with the root's, after those at a position. */
bool fsdp_head_waits(const struct stage *s, uint32_t position);

/* ---- engine_fsdp_gather.c ---- */

/* Gathered parameters in backward; of `own`: while the unit itself is whole. */
void fsdp_gathered_back(struct put *p, const struct stage *s, uint32_t position,
                        bool later, bool own);
/* A layer that runs forward and not backward, and the unit below. */
void fsdp_put_in_vain(struct put *p, const struct stage *s, uint32_t position);
void fsdp_put_prefetched(struct put *p, const struct stage *s,
                         uint32_t position);

/* ---- engine_fsdp_reduce.c ---- */

/* Version 2's input of a reduction of so many elements. */
void fsdp_put_scatter(struct put *p, const struct stage *s, uint64_t elems);
/* Version 2 reduces the unit after the root, for the hook that would do it before
 * is on inputs that have a gradient, and there is none (_fsdp_param_group.py,
 * _register_post_backward_hook; _fsdp_state.py,
 * _root_post_backward_final_callback). */
bool fsdp_comes_after_root(const struct stage *s, uint32_t position);

/* ---- engine_flat.c ---- */

/* Calls `each` for the parameters of a position, or of the root, in their order. */
void fsdp_each_tensor(const struct stage *s, uint32_t position,
                      void (*each)(void *ctx, const struct tensor *t),
                      void *ctx);
void fsdp_each_root_tensor(const struct stage *s,
                           void (*each)(void *ctx, const struct tensor *t),
                           void *ctx);

#endif
