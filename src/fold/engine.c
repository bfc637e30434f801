/*
 * What DDP, DeepSpeed, FSDP and Megatron gather into and reduce from at each
 * moment of the step. engine_rest.c has what stays between steps, engine_step.c
 * the optimizer step; engine_fsdp.c, engine_zero.c and engine_megatron.c what is
 * theirs alone. Facts from the sources of DeepSpeed 0.19, PyTorch 2.x (DDP,
 * FSDP1, fully_shard) and Megatron-LM.
 * [docs/method.md eq. states, eq. gather, eq. buckets, eq. step]
 */
#include "fold/engine_private.h"

#include "data/constants.h"

#include "base/banned.h"

bool engine_drops_blocks(const struct run *run)
{
    return engine_reduces_blocks(run) || run->optimizer_in_backward;
}

bool engine_reduces_blocks(const struct run *run)
{
    return run_is_fsdp(run) && run->zero != 0;
}

/* FSDP's CPUOffload and CPUOffloadPolicy: shards, gradients and optimizer live
 * on the CPU; what no parameter holds stays (distributed/fsdp/_flat_param.py,
 * flat_param_to; _runtime_utils.py, _offload_grad). */
bool engine_shards_offloaded(const struct run *run)
{
    return run_is_fsdp(run) && run->offload_params != OFFLOAD_NONE;
}

/* ZeRO-3's offload_param: the 16-bit shards live on the CPU or on disk, of
 * frozen weights too. */
bool engine_zero3_fetches(const struct run *run)
{
    return run_zero_is(run, 3) && run->offload_params != OFFLOAD_NONE;
}

/* ... which one rank alone gathers, too (NoGatherHandle). */
bool engine_zero3_gathers(const struct run *run)
{
    return run_zero_is(run, 3)
           && (run->shard > 1 || run->mics || engine_zero3_fetches(run));
}

/* Of gradient shards: made in backward, gone after the step. */
bool engine_shards_come(const struct run *run)
{
    return !engine_shards_offloaded(run) && !run_keeps_grads(run)
           && !engine_steps_units(run);
}

bool engine_optimizer_offloaded(const struct run *run)
{
    return run->offload_optimizer != OFFLOAD_NONE;
}

/* BF16_Optimizer, in the versions that Megatron-DeepSpeed came with, lets 16-bit
 * gradients go when the next backward begins (0.6.5 to 0.9,
 * BF16_Optimizer.backward, clear_lp_grads): they lie under every forward, and
 * each micro-batch makes its own. */
static bool clears_grads_late(const struct run *run)
{
    return run_pipelines(run) && run_is_bf16_optimizer(run);
}

/* DeepSpeedZeroOptimizer collects gradients in a bucket; BF16_Optimizer does
 * not, and the pipeline engine reduces after the last backward only. */
static bool has_ipg_bucket(const struct run *run)
{
    return run_is_zero_1_or_2(run) && !run_is_bf16_optimizer(run)
           && !run_pipelines(run);
}

/* ... which is a list of gradients that nobody copies without
 * contiguous_gradients. */
static bool has_ipg_buffer(const struct run *run)
{
    return has_ipg_bucket(run) && !run_is_loose(run);
}

/* Before DeepSpeed 0.6 ZeRO-3 had no permanent gradient partition and bucket:
 * each backward made them (0.3.16 to 0.5.10, runtime/zero/stage3.py,
 * grads_in_partition, ipg_buffer). */
bool engine_makes_zero3_grads(const struct run *run)
{
    return run_zero_is(run, 3) && run->zero3_lists;
}

/* Elements a flat buffer has on this rank: padded, cut evenly. */
uint64_t engine_flat_share(const struct run *run, uint64_t dense,
                           uint64_t expert)
{
    const uint64_t n = run->shard, ne = run->expert_shard;
    const uint64_t align =
        run->engine == ENGINE_DEEPSPEED ? ZERO_ALIGN_ELEMS : 1;
    return div_up(dense, n * align) * align
           + div_up(expert, ne * align) * align;
}

uint64_t engine_share(const struct stage *s)
{
    return engine_flat_share(s->run, s->sum.dense_elems, s->sum.expert_elems);
}
void engine_zero2_partition(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    if (engine_optimizer_offloaded(run))
        return;
    PUT(p, TERM_GRAD_SHARDS, zero_partition_label(run),
        F("elements", s->partition),
        F("bytes per gradient", dtype_size(run->prec.grad)));
}

void engine_zero3_partition(struct put *p, const struct stage *s)
{
    if (engine_makes_zero3_grads(s->run) && !engine_optimizer_offloaded(s->run))
        PUT(p, TERM_GRAD_SHARDS, "gradient partition",
            F("P/N, tensor by tensor", s->sum.own_elems),
            F("bytes per gradient", dtype_size(s->run->prec.grad)));
}

bool engine_copies_out(const struct stage *s, uint32_t position, bool later)
{
    return fsdp_copies_out(s, position, later);
}

bool engine_copies_back(const struct stage *s, uint32_t position)
{
    return fsdp_copies_back(s, position);
}

void engine_forward(struct put *p, const struct stage *s, uint32_t position,
                    bool later)
{
    const struct run *run = s->run;
    const uint64_t grad = dtype_size(run->prec.grad);
    if (engine_reduces_blocks(run))
        fsdp_forward(p, s, position, later);
    if (engine_zero3_gathers(run))
        zero3_gather(p, s, position, false);
    if (run_second_parts(run) != 0)
        zero3_second(p, s, zero3_second_forward(s, position, later));
    if (s->pipes)
        pipe_forward(p, s, position);
    fsdp_put_kept(p, s, true);
    engine_checkpoints_leave(p, s, position);
    if (!later) {
        if (clears_grads_late(run))
            PUT(p, TERM_GRADS, "gradients of the backward before",
                F("bytes", s->wgrad));
        return;
    }
    if (run_engine_is_megatron(run) || s->before[s->n].named != 0)
        megatron_forward(p, s, position);
    /* gradients of the micro-batches before */
    if (fsdp_defers(run)) {
        PUT(p, TERM_GRADS, "whole gradients that wait for the last micro-batch",
            F("bytes", put_less_lacking(p, fsdp_deferred_whole(s, s->n - 1))));
    } else if (engine_reduces_blocks(run)) {
        PUT(p, TERM_GRAD_SHARDS, "gradient shards of earlier micro-batches",
            F("P/N, tensor by tensor",
              engine_shards_come(run) ? s->sum.own_elems : 0),
            F("bytes per gradient", grad));
    } else if (run_zero_is(run, 3)) {
        engine_zero3_partition(p, s);
    } else if (run_zero_is(run, 2)) {
        engine_zero2_partition(p, s);
    } else if (engine_wgrad_mode(s, false) == WGRAD_KEEP) {
        PUT(p, TERM_GRADS, "gradients of earlier micro-batches",
            F("bytes", put_less_lacking(p, s->wgrad)));
    }
    if (run_zero_is(run, 1) && has_ipg_buffer(run))
        zero_put_bucket(p, s);
}

/* ---- gradients ---- */

bool engine_updates_in_backward(const struct run *run)
{
    return run->optimizer_in_backward && run->engine == ENGINE_DDP
           && !run->compile;
}

bool engine_steps_units(const struct run *run)
{
    return run->optimizer_in_backward && run->engine == ENGINE_FSDP2;
}

enum wgrad_mode engine_wgrad_mode(const struct stage *s, bool later)
{
    const struct run *run = s->run;
    switch (run->engine) {
    case ENGINE_DDP:
        if (run->optimizer_in_backward)
            return engine_updates_in_backward(run) ? WGRAD_FREE : WGRAD_KEEP;
        return later || run_keeps_grads(run) ? WGRAD_FREE : WGRAD_KEEP;
    case ENGINE_DEEPSPEED:
        if (zero_fills_in(run, later))
            return WGRAD_FREE;
        return later && !clears_grads_late(run) ? WGRAD_FREE : WGRAD_KEEP;
    case ENGINE_FSDP:
    case ENGINE_FSDP2:
        if (later && fsdp_adds_in_place(run))
            return WGRAD_FREE;
        return run->zero == 0 && (later || run_keeps_grads(run)) ? WGRAD_FREE
                                                                 : WGRAD_KEEP;
    case ENGINE_MEGATRON:
        if (run_has_loose_grads(run))
            return later ? WGRAD_FREE : WGRAD_KEEP;
        /* gradient accumulation fusion: the GEMM adds into main_grad */
        return run->impl == IMPL_MEGATRON && run->wgrad_fusion ? WGRAD_NONE
                                                               : WGRAD_FREE;
    case ENGINE_MEGATRON_FSDP:
    case ENGINE_COUNT: break;
    }
    return WGRAD_FREE;
}

/* On their way to disk gradients are cast on the GPU, a bucket's at once
 * (stage3.py, partition_grads: offload_fp32_gradients). */
static void swapped_gradients(struct put *p, const struct stage *s,
                              uint64_t arrived)
{
    const struct run *run = s->run;
    if (run->offload_optimizer != OFFLOAD_NVME || arrived < run->reduce_bucket)
        return;
    PUT(p, TERM_REDUCE_TMP, "fp32 gradients on their way to disk",
        F("reduce_bucket", run->reduce_bucket), F("bytes", FP32),
        D("N", run->shard));
}

/* In the head's backward: whether a weight's gradient is there at its fullest
 * moment. Up to DeepSpeed 0.18.2 that did not matter: the optimizer's backward()
 * made the bucket before it called the loss's (stage_1_and_2.py). */
bool engine_gradients_begun(const struct stage *s, uint32_t position,
                            bool later)
{
    if (s->run->stops && s->before[s->n].elems == s->before[position].elems)
        return false;
    if (!s->head || position + 1 < s->n)
        return true;
    if (s->run->zero_bucket == BUCKET_BACKWARD
        && s->run->engine == ENGINE_DEEPSPEED)
        return true;
    const struct block *b = &s->p->block[s->p->head];
    const uint32_t fullest =
        s->walk[s->p->head].backward[engine_wgrad_mode(s, later)].op;
    for (uint32_t k = fullest; k < b->op_first + b->op_count; k++)
        for (unsigned i = 0; i < s->p->op[k].n_in; i++) {
            const struct tensor *t = &s->p->tensor[s->p->op[k].in[i]];
            if (t->role == ROLE_PARAM && t->trainable)
                return true;
        }
    return false;
}

static void put_zero3_bucket(struct put *p, const struct stage *s)
{
    if (engine_makes_zero3_grads(s->run))
        PUT(p, TERM_BUCKETS, "reduce bucket",
            F("reduce_bucket", s->run->reduce_bucket),
            F("bytes", dtype_size(s->run->prec.reduce)),
            F("buckets", s->run->overlap_comm ? 2 : 1));
}

/* The bucket is made by the first gradient of a backward; ZeRO-1 keeps it to
 * the end of the step. */
static void zero_backward(struct put *p, const struct stage *s,
                          uint32_t position, bool later)
{
    const struct run *run = s->run;
    const uint64_t arrived =
        s->before[s->n].elems - s->before[position + 1].elems;
    if (run_zero_is(run, 1) && has_ipg_buffer(run) && !bucket_fills(s, later)
        && (later || engine_gradients_begun(s, position, later)))
        zero_put_bucket(p, s);
    if (bucket_fills(s, later))
        bucket_put(p, s, p->fill != NULL ? p->fill : &s->fill[position + 1],
                   later);
    if (engine_zero3_gathers(run))
        zero3_gather(p, s, position, true);
    if (run_second_parts(run) != 0)
        zero3_second(p, s, zero3_second_backward(s, position, later));
    swapped_gradients(p, s, arrived);
    engine_zero3_partition(p, s);
    put_zero3_bucket(p, s);
}

static void put_grad_shards(struct put *p, const struct stage *s,
                            uint32_t position, bool later)
{
    fsdp_root_grads(p, s, position, later);
    fsdp_deferred(p, s, position, later);
    PUT(p, TERM_GRAD_SHARDS, "gradient shards",
        F("P/N, tensor by tensor", fsdp_reduced(s, position, later)),
        F("bytes per gradient", dtype_size(s->run->prec.grad)));
    fsdp_all_reduced(p, s, position, later);
}

/* What hooks hold to the end of backward. */
static void put_hooked(struct put *p, const struct stage *s, uint32_t position)
{
    if (s->before[s->n].hooked == 0)
        return;
    PUT(p, TERM_CHECKPOINTS,
        "inputs of checkpoints above, held by FSDP's hooks",
        F("bytes", stage_hooked_inputs(s, position)));
    PUT(p, TERM_BACKWARD_TMP, "gradients of these inputs",
        F("bytes", stage_hooked_gradients(s, position)));
}

void engine_unit_done(struct put *p, const struct stage *s, uint32_t position,
                      bool later, enum unit_done when)
{
    put_hooked(p, s, position);
    loop_backward(p, s, position);
    fsdp_unit_done(p, s, position, later, when);
    put_grad_shards(p, s, position, later);
}

void engine_waits(struct put *p, const struct stage *s, uint32_t position,
                  bool back)
{
    fsdp_waits(p, s, position, back);
}

/* The same of a tensor that two blocks have. FSDP's root has the head's. */
static void put_waiting(struct put *p, const struct stage *s, uint32_t position,
                        bool later)
{
    if (s->waiting == 0)
        return;
    const bool root =
        engine_reduces_blocks(s->run) && s->waits_from + 1 == s->n && s->head;
    if ((engine_wgrad_mode(s, later) == WGRAD_FREE
         || engine_drops_blocks(s->run))
        && !root && s->waits_to <= position && position < s->waits_from)
        PUT(p, TERM_WGRAD_TMP, "gradients that wait for the block below",
            F("bytes", s->waiting));
}

void engine_backward(struct put *p, const struct stage *s, uint32_t position,
                     bool later)
{
    const struct run *run = s->run;
    /* autograd adds both gradients of a shared tensor before it hands them to
       the engine */
    if (s->tied_here != 0
        && (engine_wgrad_mode(s, later) == WGRAD_FREE
            || (run->optimizer_in_backward && !engine_reduces_blocks(run)))
        && position + 1 < s->n)
        PUT(p, TERM_WGRAD_TMP, "the head's gradient of the tied embedding",
            F("bytes", s->tied_here));
    put_waiting(p, s, position, later);
    engine_checkpoints_return(p, s, position);
    if (s->before[s->n].past != 0)
        PUT(p, TERM_SAVED_LAYERS, PAST_LABEL, F("bytes", s->before[s->n].past));
    put_hooked(p, s, position);
    if (run->keep_outputs)
        loop_backward(p, s, position);
    if (run_engine_is_megatron(run) || s->before[s->n].named != 0)
        megatron_backward(p, s, position, later);
    if (run->engine == ENGINE_DEEPSPEED)
        zero_backward(p, s, position, later);
    if (s->pipes)
        pipe_backward(p, s, position);
    fsdp_put_kept(p, s, true);
    if (engine_reduces_blocks(run)) {
        fsdp_backward(p, s, position, later);
        put_grad_shards(p, s, position, later);
        return;
    }
    if (engine_wgrad_mode(s, false) != WGRAD_KEEP || engine_drops_blocks(run))
        return;
    if (later && !clears_grads_late(run))
        PUT(p, TERM_GRADS, "gradients",
            F("bytes", put_less_lacking(p, s->wgrad)));
    else
        PUT(p, TERM_GRADS, "gradients of the blocks above",
            F("bytes", stage_wgrads_above(s, position)));
}

uint64_t engine_gradients(const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t size = dtype_size(run->prec.grad);
    if (!engine_shards_come(run))
        return 0;
    if (engine_reduces_blocks(run) || engine_makes_zero3_grads(run))
        return s->sum.own_elems * size;
    if (run_is_zero_1_or_2(run) && zero_fills_in(run, false))
        return engine_flat_share(run, s->sum.dense_elems, s->sum.expert_elems)
               * size;
    if (engine_wgrad_mode(s, false) == WGRAD_KEEP && !engine_drops_blocks(run))
        return s->wgrad;
    return 0; /* in the buffers at rest */
}

/* ---- after backward ---- */

bool engine_accumulates(const struct run *run, bool later)
{
    return (clears_grads_late(run) && run->vpp == 1)
           || fsdp_casts_waiting(run, later);
}

/* BF16_Optimizer.update_hp_grads: a tensor at a time is cast, then added. */
void engine_accumulate(struct put *p, const struct stage *s)
{
    if (fsdp_casts_waiting(s->run, false)) {
        loop_idle(p, s);
        fsdp_cast_waiting(p, s);
        return;
    }
    PUT(p, TERM_GRADS, "gradients of this backward", F("bytes", s->wgrad));
    PUT(p, TERM_WGRAD_TMP, "a gradient in fp32, to be added",
        F("largest parameter", s->sum.largest_grad), F("bytes", FP32));
    pipe_backward(p, s, 0);
}

static void whole_grads(struct put *p, const struct stage *s, uint64_t own)
{
    if (engine_wgrad_mode(s, false) == WGRAD_KEEP
        && !engine_drops_blocks(s->run))
        PUT(p, TERM_GRADS, "gradients", F("bytes", s->wgrad));
    if (engine_reduces_blocks(s->run) && engine_shards_come(s->run))
        PUT(p, TERM_GRAD_SHARDS, "gradient shards",
            F("P/N, tensor by tensor", own),
            F("bytes per gradient", dtype_size(s->run->prec.grad)));
}

void engine_whole_grads(struct put *p, const struct stage *s)
{
    whole_grads(p, s, s->sum.own_elems);
}

static void zero_reduce_rest(struct put *p, const struct stage *s)
{
    const bool later = s->run->grad_accum > 1;
    const struct bucket_fill fullest = bucket_rest(s, later);
    bucket_put(p, s, &fullest, later);
}

static void zero_reduce(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t wire = dtype_size(run->prec.reduce);
    if (run_is_bf16_optimizer(run)) {
        /* engine.py, allreduce_bucket: in communication_data_type; a flat
           buffer is one tensor, and a bucket of its own */
        if (run_pipelines(run) || (wire != FP32 && run->shard > 1))
            PUT(p, TERM_REDUCE_TMP, "the gradient buffer in 16 bits",
                F("P", s->sum.elems), F("bytes", wire));
        return;
    }
    if (has_ipg_buffer(run) && s->fill == NULL)
        zero_put_bucket(p, s);
    if (s->fill != NULL) {
        zero_reduce_rest(p, s);
        return;
    }
    if (run_zero_is(run, 1) && !run_pipelines(run)) {
        zero1_put(p, s);
        return;
    }
    /* stage 0: the tensor that fills a bucket is still part of it
       (allreduce_no_retain) */
    const uint64_t bucket = run->reduce_bucket + s->sum.largest_grad;
    PUT(p, TERM_REDUCE_TMP, "flattened gradients on their way",
        F("elements",
          run->zero == 1 ? s->bucket : min_u64(bucket, s->sum.elems)),
        F("bytes", wire));
}

void engine_reduce(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    pipe_after(p, s);
    fsdp_put_kept(p, s, false);
    if (fsdp_reduces_at_last(run)) {
        fsdp_first_reduced(p, s);
        return;
    }
    whole_grads(p, s, s->sum.own_elems - fsdp_root_own_to_come(s));
    if (engine_reduces_blocks(run))
        fsdp_root_done(p, s);
    megatron_reduce(p, s);
    if (run->engine != ENGINE_DEEPSPEED)
        return;
    zero_reduce(p, s);
    if (run_second_parts(run) != 0)
        zero3_second(p, s, s->sum.second_elems);
    engine_zero3_partition(p, s);
    put_zero3_bucket(p, s);
}

/* The pipeline's ZeRO-1 reduces gradients where they are, and lets go of those
 * that touch no tensor of this rank's partition as soon as all are reduced
 * (stage_1_and_2.py, independent_gradient_partition_epilogue: zero_grad). */
bool engine_steps_views(const struct run *run)
{
    return run_pipelines(run) && run->zero == 1 && !run_is_bf16_optimizer(run);
}

void engine_stepped_grads(struct put *p, const struct stage *s)
{
    PUT(p, TERM_GRADS, "gradients of tensors that this rank steps",
        F("elements", s->partition),
        F("bytes per gradient", dtype_size(s->run->prec.grad)));
}

/* ZeRO takes norms in double precision, a tensor at a time, be it to clip or to
 * see whether one is infinite (scaled_global_norm). */
static void zero_norms(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t largest = s->sum.largest_grad;
    if (engine_optimizer_offloaded(run))
        return; /* they were taken in backward */
    if (has_ipg_bucket(run)) {
        engine_zero2_partition(p, s);
        PUT(p, TERM_CLIP_TMP,
            "a tensor in double precision for its norm, less what its rank has "
            "no gradients of",
            F("bytes", s->norm));
        return;
    }
    PUT(p, TERM_CLIP_TMP, "a tensor in double precision for its norm",
        F("elements", run_zero_is(run, 3) ? div_up(largest, run->shard)
                                          : min_u64(largest, engine_share(s))),
        F("bytes", 8));
}

/* The others leave one scalar a tensor. */
void engine_clip(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    if (engine_steps_views(run))
        engine_stepped_grads(p, s);
    else if (!has_ipg_bucket(run))
        engine_whole_grads(p, s);
    engine_zero3_partition(p, s);
    zero3_second_step(p, s);
    pipe_after(p, s);
    pipe_clip(p, s);
    if (run->engine == ENGINE_DEEPSPEED && run->zero != 0)
        zero_norms(p, s);
    else if (run->clip_grad && !engine_shards_offloaded(run))
        PUT(p, TERM_CLIP_TMP, "one norm a tensor", A("tensors", s->sum.tensors),
            F("bytes", ALLOC_ROUND));
}
