/*
 * What DDP, DeepSpeed, FSDP and Megatron keep of model states, and the buffers
 * they gather into and reduce from, at each moment of the step. Facts from the
 * sources of DeepSpeed 0.19, PyTorch 2.x (DDP, FSDP1, fully_shard) and
 * Megatron-LM. [docs/method.md eq. states, eq. gather, eq. buckets, eq. step]
 */
#include "fold/stage.h"

#include "data/constants.h"

#include "base/banned.h"

enum { FP32 = 4 };

static bool is_fsdp(const struct run *run)
{
    return run->engine == ENGINE_FSDP || run->engine == ENGINE_FSDP2;
}

bool engine_drops_blocks(const struct run *run)
{
    return engine_reduces_blocks(run) || run->optimizer_in_backward;
}

bool engine_reduces_blocks(const struct run *run)
{
    return is_fsdp(run) && run->zero != 0;
}

static bool zero_is(const struct run *run, uint64_t stage)
{
    return run->engine == ENGINE_DEEPSPEED && run->zero == stage;
}

static bool zero_1_or_2(const struct run *run)
{
    return zero_is(run, 1) || zero_is(run, 2);
}

static bool overlaps(const struct run *run)
{
    return run->overlap_comm;
}

/* FSDP's CPUOffload and CPUOffloadPolicy: shards, gradients and optimizer live
 * on the CPU; what no parameter holds stays (distributed/fsdp/_flat_param.py,
 * flat_param_to; _runtime_utils.py, _offload_grad). */
static bool shards_offloaded(const struct run *run)
{
    return is_fsdp(run) && run->offload_params != OFFLOAD_NONE;
}

static bool optimizer_offloaded(const struct run *run)
{
    return run->offload_optimizer != OFFLOAD_NONE;
}

/* DeepSpeed keeps a whole fp32 gradient buffer on every rank when stage 1 is
 * told to accumulate in fp32, and under a pipeline in bf16 at stage 0 too,
 * which shards the states then as stage 1 does (BF16_Optimizer). */
static bool keeps_fp32_buffer(const struct run *run)
{
    return (zero_is(run, 1) || run_is_bf16_pipeline(run))
           && run->prec.grad == DT_FP32 && run->prec.param == DT_BF16
           && !optimizer_offloaded(run);
}

/* ... and in the versions that Megatron-DeepSpeed came with lets 16-bit
 * gradients go when the next backward begins (0.6.5 to 0.9,
 * BF16_Optimizer.backward, clear_lp_grads): they lie under every forward, and
 * each micro-batch makes its own. */
static bool clears_grads_late(const struct run *run)
{
    return run_pipelines(run) && keeps_fp32_buffer(run);
}

/* DeepSpeedZeroOptimizer collects gradients in a bucket; BF16_Optimizer does
 * not, and the pipeline engine reduces after the last backward only. */
static bool has_ipg_bucket(const struct run *run)
{
    return zero_1_or_2(run) && !keeps_fp32_buffer(run) && !run_pipelines(run);
}

/* Before DeepSpeed 0.6, as Megatron-DeepSpeed ran it, ZeRO-3 had no permanent
 * gradient partition and bucket: each backward made them (0.3.16 to 0.5.10,
 * runtime/zero/stage3.py, grads_in_partition, ipg_buffer). */
static bool makes_zero3_grads(const struct run *run)
{
    return zero_is(run, 3) && run->impl == IMPL_MEGATRON_LOCAL
           && run->framework == FW_MEGATRON_DEEPSPEED;
}

/* fp16 under Megatron: the optimizer owns fp32 copies of its gradients. The
 * precision-aware optimizer, without which moments are fp32, reads them as they
 * are (core/optimizer/distrib_optimizer.py, decoupled_grad). */
static bool copies_fp16_grads(const struct run *run)
{
    return run->engine == ENGINE_MEGATRON && run->prec.master == DT_FP32
           && run->prec.grad != DT_FP32 && run->prec.optim == DT_FP32;
}

/* Elements a flat buffer has on this rank: padded, cut evenly. */
static uint64_t flat_share(const struct run *run, uint64_t dense,
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
    return flat_share(s->run, s->sum.dense_elems, s->sum.expert_elems);
}

/* ---- at rest ---- */

/* As elements times a size where all have the same. */
static void put_frozen(struct put *p, const struct stage *s)
{
    const uint64_t n = s->sum.frozen_elems, bytes = s->sum.frozen_bytes;
    if (n != 0 && bytes % n == 0)
        PUT(p, TERM_FROZEN, "frozen weights", F("P_frozen", n),
            F("bytes per frozen weight", bytes / n));
    else
        PUT(p, TERM_FROZEN, "frozen weights, scales included",
            F("bytes", bytes));
}

static void rest_weights(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t size = dtype_size(run->prec.param);
    if (shards_offloaded(run)) {
        PUT(p, TERM_FROZEN, "scales of quantised weights",
            F("bytes", s->sum.statistic_bytes));
    } else if (run_shards_weights(run)) {
        PUT(p, TERM_WEIGHTS, "weight shards",
            F("P/N, tensor by tensor", s->sum.own_elems),
            F("bytes per weight", size));
        PUT(p, TERM_FROZEN, "frozen weight shards",
            F("bytes of P/N, tensor by tensor", s->sum.own_frozen_bytes));
    } else {
        PUT(p, TERM_WEIGHTS, "weights", F("P", s->sum.elems),
            F("bytes per weight", size));
        put_frozen(p, s);
    }
    if (run->prec.fp8 && run->impl == IMPL_MEGATRON) /* its own caches */
        PUT(p, TERM_FP8_WEIGHTS, "fp8 weights and their transposes",
            F("P_linear", s->sum.matmul_elems), A("copies", 2));
    if (zero_is(run, 3))
        PUT(p, TERM_GATHERED, "parameters below the persistence threshold",
            F("elements", s->sum.persistent_elems),
            F("bytes per weight", size));
}

static void rest_master(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t size = dtype_size(run->prec.master);
    if (size == 0)
        return;
    switch (run_sharding(run)) {
    case SHARDING_NONE:
        PUT(p, TERM_MASTER, "master weights", F("P", s->sum.elems),
            F("bytes per master weight", size));
        return;
    case SHARDING_FLAT:
        PUT(p, TERM_MASTER, "master weights, sharded",
            F("P / N",
              flat_share(run, s->sum.dense_elems, s->sum.expert_elems)),
            F("bytes per master weight", size));
        return;
    case SHARDING_TENSOR:
    case SHARDING_ROWS:
        PUT(p, TERM_MASTER, "master weights, sharded",
            F("P/N, tensor by tensor", s->sum.own_elems),
            F("bytes per master weight", size));
        return;
    }
}

/* Bytes of moments: an element's times the elements, where the optimizer
 * treats all of them alike. */
static void put_moments(struct put *p, const struct run *run, const char *sym,
                        uint64_t elems, uint64_t bytes, uint64_t ranks)
{
    const char *rule = optimizer_rule(run->optimizer);
    if (elems != 0 && bytes % elems == 0)
        PUT(p, TERM_MOMENTS, rule, F(sym, elems),
            F("bytes per element", bytes / elems), D("N", ranks));
    else
        PUT(p, TERM_MOMENTS, rule, F("bytes", bytes), D("N", ranks));
}

/* torch's fused kernels read the number of the step from the GPU: a scalar a
 * tensor (torch/optim/adam.py, _init_group); DeepSpeed's and Megatron's fused
 * Adam count on the host. */
static bool counts_on_gpu(const struct run *run)
{
    return run->optimizer == OPT_ADAMW && run->optimizer_impl == OPTIMPL_FUSED
           && (run->engine == ENGINE_DDP || is_fsdp(run));
}

static void rest_moments(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const struct block_states *sum = &s->sum;
    /* bitsandbytes' get_paged: managed memory, none of the allocator's; the
       driver moves it to the host when the GPU is full */
    if (run->optimizer == OPT_PAGED_ADAM8BIT)
        return;
    if (counts_on_gpu(run))
        PUT(p, TERM_MOMENTS, "the step's number, a scalar a tensor",
            A("tensors", sum->tensors), F("bytes", ALLOC_ROUND));
    switch (run_sharding(run)) {
    case SHARDING_NONE:
        put_moments(p, run, "P", sum->elems, sum->moment_bytes, 1);
        return;
    case SHARDING_FLAT:
        put_moments(p, run, "P", sum->dense_elems, sum->dense_moment_bytes,
                    run->shard);
        put_moments(p, run, "P_expert", sum->expert_elems,
                    sum->moment_bytes - sum->dense_moment_bytes,
                    run->expert_shard);
        return;
    case SHARDING_TENSOR:
    case SHARDING_ROWS:
        put_moments(p, run, "P/N, tensor by tensor", sum->own_elems,
                    sum->own_moment_bytes, 1);
        return;
    }
}

static void rest_grads(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t size = dtype_size(run->prec.grad);
    if (run->engine == ENGINE_MEGATRON) {
        PUT(p, TERM_GRAD_BUFFER, "main gradients, a permanent buffer",
            F("P", s->sum.elems), F("bytes per gradient", size));
        if (copies_fp16_grads(run))
            PUT(p, TERM_GRAD_SHARDS, "fp32 gradients of the optimizer's shard",
                F("P / N",
                  flat_share(run, s->sum.dense_elems, s->sum.expert_elems)),
                F("bytes", FP32));
    }
    if (keeps_fp32_buffer(run))
        PUT(p, TERM_GRAD_BUFFER, "fp32 gradient buffer (BF16_Optimizer)",
            F("P", s->sum.elems), F("bytes per gradient", FP32));
    if (zero_is(run, 3) && !optimizer_offloaded(run) && !makes_zero3_grads(run))
        PUT(p, TERM_GRAD_SHARDS, "gradient partition, permanent",
            F("P/N, tensor by tensor", s->sum.own_elems),
            F("bytes per gradient", size));
}

static void rest_buffers(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    if (run->engine == ENGINE_DDP && run->dp * run->cp > 1)
        PUT(p, TERM_BUCKETS, "DDP buckets, a second copy of the gradients",
            F("P", s->sum.elems),
            F("bytes per gradient", dtype_size(run->prec.grad)));
    if (zero_is(run, 3) && !makes_zero3_grads(run))
        PUT(p, TERM_BUCKETS, "reduce bucket, permanent",
            F("reduce_bucket", run->reduce_bucket),
            F("bytes", dtype_size(run->prec.reduce)));
    if (zero_1_or_2(run) && optimizer_offloaded(run))
        PUT(p, TERM_BUCKETS, "gradient buffer for the way to the CPU",
            F("largest parameter", s->sum.largest_grad),
            F("bytes per gradient", dtype_size(run->prec.grad)));
    PUT(p, TERM_WORKSPACE, "tables of modules",
        F("bytes", s->sum.buffer_bytes));
    PUT(p, TERM_WORKSPACE, "Megatron's global buffer",
        F("bytes of its largest use", s->global_buffer_bytes));
    const bool hopper =
        run->gpu.arch == ARCH_HOPPER || run->gpu.arch == ARCH_BLACKWELL;
    PUT(p, TERM_WORKSPACE, "cuBLAS workspaces, one a thread",
        A("workspaces", CUBLAS_WORKSPACES),
        F("bytes", hopper || run->deterministic ? CUBLAS_WORKSPACE_HOPPER_BYTES
                                                : CUBLAS_WORKSPACE_BYTES));
}

void engine_rest(struct put *p, const struct stage *s)
{
    rest_weights(p, s);
    rest_grads(p, s);
    if (!optimizer_offloaded(s->run)) {
        rest_master(p, s);
        rest_moments(p, s);
    }
    rest_buffers(p, s);
    megatron_rest(p, s);
}

/* ---- gathered parameters ---- */

/* Embedding and head are units of their own; a tensor that both have cannot be
 * in two. */
static bool ends_apart(const struct stage *s)
{
    return s->run->fsdp_units == FSDP_ENDS && s->tied_here == 0;
}

/* FSDP: what the wrapped layers leave to the root (embedding, norm, head) is
 * gathered in forward and stays to the end of backward. */
static uint64_t root_bytes(const struct stage *s)
{
    uint64_t bytes = 0;
    if (ends_apart(s))
        return 0;
    if (s->embed)
        bytes += s->states[s->p->embed].bytes;
    if (s->head)
        bytes += s->states[s->p->head].bytes;
    return bytes;
}

/* Whole gradients that wait for the last reduction. */
static uint64_t root_grads(const struct stage *s)
{
    uint64_t bytes = 0;
    if (s->embed)
        bytes += s->walk[s->p->embed].wgrad;
    if (s->head && !ends_apart(s))
        bytes += s->walk[s->p->head].wgrad;
    return bytes - s->tied_here;
}

static uint64_t root_elems(const struct stage *s)
{
    uint64_t elems = 0;
    if (s->embed)
        elems += s->states[s->p->embed].elems;
    if (s->head && !ends_apart(s))
        elems += s->states[s->p->head].elems;
    return elems;
}

static bool is_layer(const struct stage *s, uint32_t position)
{
    return s->p->block[stage_block(s, position)].kind == BLOCK_LAYER;
}

static bool is_unit(const struct stage *s, uint32_t position)
{
    return is_layer(s, position) || ends_apart(s);
}

static uint64_t unit_bytes(const struct stage *s, uint32_t position)
{
    if (position >= s->n || !is_unit(s, position))
        return 0;
    return s->states[stage_block(s, position)].bytes;
}

/* Gradients of the root's part above `position`: whole until the root's own
 * reduction, the last of the pass. */
static void fsdp_root_grads(struct put *p, const struct stage *s,
                            uint32_t position)
{
    if (s->head && position + 1 < s->n && !ends_apart(s))
        PUT(p, TERM_WGRAD_TMP, "the head's whole gradients, reduced last",
            F("bytes", s->walk[s->p->head].wgrad));
}

/* Elements of this rank whose gradients are reduced: those of the layers above,
 * after the first micro-batch all. */
static uint64_t fsdp_reduced(const struct stage *s, uint32_t position,
                             bool later)
{
    if (shards_offloaded(s->run))
        return 0;
    if (later)
        return s->sum.own_elems;
    const bool waits = s->head && position + 1 < s->n && !ends_apart(s);
    const uint64_t head = waits ? s->states[s->p->head].own_elems : 0;
    return s->sum.own_elems - s->before[position + 1].own_elems - head;
}

/* SHARD_GRAD_OP, reshard_after_forward=False: whole from forward to backward.
 */
static void fsdp_whole(struct put *p, const struct stage *s, uint32_t position)
{
    const uint64_t upto = s->before[position + 1].bytes;
    const uint64_t edge = root_bytes(s);
    const uint64_t first = s->embed ? s->states[s->p->embed].bytes : 0;
    uint64_t bytes = upto;
    if ((position + 1 < s->n || !s->head) && !ends_apart(s))
        bytes += edge - first; /* the root's other part */
    PUT(p, TERM_GATHERED, "parameters gathered so far", F("bytes", bytes));
}

/* FSDP2 keeps an all-gather's output to the end of the next copy-out; the last
 * layer's, to the end of the model's forward, which computes the loss in
 * transformers and not in torchtitan and torchtune (_fsdp_param_group.py,
 * wait_for_unshard; _fsdp_state.py, _post_forward). */
static void fsdp2_gather_output(struct put *p, const struct stage *s,
                                uint32_t position)
{
    const bool head = s->head && position + 1 == s->n;
    /* the root's comes first, and goes when the first layer's is there */
    if (position == 0) {
        PUT(p, TERM_PREFETCHED, "the root's all-gather output",
            F("bytes", root_bytes(s)));
        if (s->embed)
            PUT(p, TERM_PREFETCHED, "the first layer's all-gather output",
                F("bytes", unit_bytes(s, 1)));
    }
    const bool without_loss =
        s->run->impl == IMPL_TORCHTITAN || s->run->impl == IMPL_TORCHTUNE;
    if (head && (position == 0 || without_loss))
        return;
    PUT(p, TERM_PREFETCHED, "all-gather output, kept to the next copy-out",
        F("bytes",
          unit_bytes(s, head && !ends_apart(s) ? position - 1 : position)));
}

/* FSDP1 gathers from a copy of the shard on the GPU, gone with the gather. */
static void shard_on_its_way(struct put *p, const struct stage *s,
                             uint64_t whole)
{
    if (shards_offloaded(s->run) && s->run->engine == ENGINE_FSDP)
        PUT(p, TERM_PREFETCHED, "its shard, on the way from the CPU",
            F("bytes", div_up(whole, s->run->shard)));
}

static void fsdp_forward(struct put *p, const struct stage *s,
                         uint32_t position)
{
    if (s->run->engine == ENGINE_FSDP2)
        fsdp2_gather_output(p, s, position);
    if (s->run->zero == 2) {
        fsdp_whole(p, s, position);
        return;
    }
    PUT(p, TERM_GATHERED, "root parameters, gathered for the whole pass",
        F("bytes", root_bytes(s)));
    PUT(p, TERM_GATHERED, "this unit's parameters",
        F("bytes", unit_bytes(s, position)));
    if (s->run->engine == ENGINE_FSDP) {
        PUT(p, TERM_PREFETCHED, "the next unit's parameters",
            F("bytes", unit_bytes(s, position + 1)));
        shard_on_its_way(p, s, unit_bytes(s, position + 1));
    }
}

static void fsdp_backward(struct put *p, const struct stage *s,
                          uint32_t position)
{
    const struct run *run = s->run;
    if (run->zero == 2) {
        fsdp_whole(p, s, position);
    } else {
        PUT(p, TERM_GATHERED, "root parameters, gathered for the whole pass",
            F("bytes", root_bytes(s)));
        PUT(p, TERM_GATHERED, "this unit's parameters",
            F("bytes", unit_bytes(s, position)));
        if (position > 0) {
            PUT(p, TERM_PREFETCHED, "the unit's before it, prefetched",
                F("bytes", unit_bytes(s, position - 1)));
            shard_on_its_way(p, s, unit_bytes(s, position - 1));
        }
    }
    if (run->engine == ENGINE_FSDP2 && position + 1 < s->n
        && is_unit(s, position + 1)) {
        const struct block_states *next =
            &s->states[stage_block(s, position + 1)];
        PUT(p, TERM_REDUCE_TMP, "reduce-scatter input of the unit above",
            F("elements", next->elems),
            F("bytes", dtype_size(run->prec.reduce)));
    }
}

static void zero2_partition(struct put *p, const struct stage *s, bool later)
{
    const struct run *run = s->run;
    if (optimizer_offloaded(run))
        return;
    PUT(p, TERM_GRAD_SHARDS, "gradient partition, tensors whole",
        F("elements", s->partition),
        F("bytes per gradient", dtype_size(run->prec.grad)),
        A("partitions", later ? 2 : 1));
}

static void zero3_partition(struct put *p, const struct stage *s)
{
    if (makes_zero3_grads(s->run) && !optimizer_offloaded(s->run))
        PUT(p, TERM_GRAD_SHARDS, "gradient partition",
            F("P/N, tensor by tensor", s->sum.own_elems),
            F("bytes per gradient", dtype_size(s->run->prec.grad)));
}

/* torchtune lets go of the latest tensors when their copies must have arrived
 * (torchtune/training/_activation_offloading.py, max_fwd_stash_size). */
static void offload_stash(struct put *p, const struct stage *s,
                          uint32_t position)
{
    enum { STASH = 5 };
    if (!stage_offloads(s) || s->layers == 0)
        return;
    const uint32_t first = s->embed ? 1 : 0;
    const uint64_t passed = position > first ? position - first : 0;
    PUT(p, TERM_CHECKPOINTS, "checkpoints on their way to the CPU",
        F("checkpoints", min_u64(min_u64(passed, s->recomputed), STASH)),
        F("bytes", s->walk[stage_block(s, first)].input));
}

void engine_forward(struct put *p, const struct stage *s, uint32_t position,
                    bool later)
{
    const struct run *run = s->run;
    const uint64_t grad = dtype_size(run->prec.grad);
    if (engine_reduces_blocks(run))
        fsdp_forward(p, s, position);
    if (zero_is(run, 3) && run->shard > 1)
        zero3_gather(p, s, position, false);
    pipe_forward(p, s);
    offload_stash(p, s, position);
    if (!later) {
        if (clears_grads_late(run))
            PUT(p, TERM_GRADS, "gradients of the backward before",
                F("bytes", s->wgrad));
        return;
    }
    megatron_forward(p, s, position, later);
    /* gradients of the micro-batches before */
    if (engine_reduces_blocks(run)) {
        PUT(p, TERM_GRAD_SHARDS, "gradient shards of earlier micro-batches",
            F("P/N, tensor by tensor",
              shards_offloaded(run) ? 0 : s->sum.own_elems),
            F("bytes per gradient", grad));
    } else if (zero_is(run, 3)) {
        zero3_partition(p, s);
    } else if (zero_is(run, 2)) {
        zero2_partition(p, s, false);
    } else if (engine_wgrad_mode(s, false) == WGRAD_KEEP) {
        PUT(p, TERM_GRADS, "gradients of earlier micro-batches",
            F("bytes", s->wgrad));
    }
    if (zero_is(run, 1) && has_ipg_bucket(run))
        PUT(p, TERM_BUCKETS, "reduce bucket",
            F("reduce_bucket", run->reduce_bucket),
            F("bytes", dtype_size(run->prec.reduce)),
            A("buckets", overlaps(run) ? 2 : 1));
}

/* ---- gradients ---- */

enum wgrad_mode engine_wgrad_mode(const struct stage *s, bool later)
{
    const struct run *run = s->run;
    switch (run->engine) {
    case ENGINE_DDP:
        if (run->optimizer_in_backward) /* a compiled layer gives all at once */
            return run->compile ? WGRAD_KEEP : WGRAD_FREE;
        return later ? WGRAD_FREE : WGRAD_KEEP;
    case ENGINE_DEEPSPEED:
        if (run->zero >= 2)
            return WGRAD_FREE;
        return later && !clears_grads_late(run) ? WGRAD_FREE : WGRAD_KEEP;
    case ENGINE_FSDP:
    case ENGINE_FSDP2: return run->zero == 0 && later ? WGRAD_FREE : WGRAD_KEEP;
    case ENGINE_MEGATRON:
        /* gradient accumulation fusion: the GEMM adds into main_grad */
        return run->impl == IMPL_MEGATRON && run->wgrad_fusion ? WGRAD_NONE
                                                               : WGRAD_FREE;
    case ENGINE_MEGATRON_FSDP:
    case ENGINE_COUNT: break;
    }
    return WGRAD_FREE;
}

/* Copies that a reduction of a full bucket makes, once so many gradients have
 * come that it is full: in ZeRO-3 always; in ZeRO-2 of a bucket that belongs to
 * more than one rank, first the one in which a rank's partition ends
 * (allreduce_bucket flattens a list; a single slice is no copy). */
static void bucket_copy(struct put *p, const struct stage *s, uint64_t arrived)
{
    const struct run *run = s->run;
    if (arrived < zero_first_copy(s))
        return;
    PUT(p, TERM_REDUCE_TMP, "copy of a full bucket while it is reduced",
        F("reduce_bucket", run->reduce_bucket),
        F("bytes", dtype_size(run->prec.reduce)));
}

/* In the head's backward: whether a weight's gradient is there at its fullest
 * moment. */
static bool gradients_begun(const struct stage *s, uint32_t position,
                            bool later)
{
    if (!s->head || position + 1 < s->n)
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

static void zero3_bucket(struct put *p, const struct stage *s)
{
    if (makes_zero3_grads(s->run))
        PUT(p, TERM_BUCKETS, "reduce bucket",
            F("reduce_bucket", s->run->reduce_bucket),
            F("bytes", dtype_size(s->run->prec.reduce)),
            F("buckets", overlaps(s->run) ? 2 : 1));
}

/* The bucket is made by the first gradient of a backward, the partition when a
 * first bucket is full; ZeRO-1 keeps its bucket to the end of the step. */
static void zero_backward(struct put *p, const struct stage *s,
                          uint32_t position, bool later)
{
    const struct run *run = s->run;
    const uint64_t arrived =
        s->before[s->n].elems - s->before[position + 1].elems;
    const bool kept = later && zero_is(run, 1);
    if (has_ipg_bucket(run) && (kept || gradients_begun(s, position, later)))
        PUT(p, TERM_BUCKETS, "reduce bucket",
            F("reduce_bucket", run->reduce_bucket),
            F("bytes", dtype_size(run->prec.reduce)),
            A("buckets", overlaps(run) ? 2 : 1));
    const uint64_t largest = s->states[stage_block(s, position)].largest_grad;
    if (has_ipg_bucket(run) && zero_is(run, 2) && largest > run->reduce_bucket
        && arrived > 0)
        PUT(p, TERM_WGRAD_TMP,
            "a gradient larger than the bucket, until the "
            "next one comes",
            F("elements", largest), F("bytes", dtype_size(run->prec.grad)));
    if (zero_is(run, 2)) {
        if (arrived >= run->reduce_bucket)
            zero2_partition(p, s, later);
        else if (later)
            zero2_partition(p, s, false);
        bucket_copy(p, s, arrived);
    }
    if (zero_is(run, 3) && run->shard > 1) {
        zero3_gather(p, s, position, true);
        bucket_copy(p, s, arrived);
    }
    zero3_partition(p, s);
    zero3_bucket(p, s);
}

void engine_backward(struct put *p, const struct stage *s, uint32_t position,
                     bool later)
{
    const struct run *run = s->run;
    const uint64_t grad = dtype_size(run->prec.grad);
    /* autograd adds both gradients of a shared tensor before it hands them to
       the engine */
    if ((engine_wgrad_mode(s, later) == WGRAD_FREE
         || run->optimizer_in_backward)
        && position + 1 < s->n)
        PUT(p, TERM_WGRAD_TMP, "the head's gradient of the tied embedding",
            F("bytes", s->tied_here));
    megatron_backward(p, s, position, later);
    if (run->engine == ENGINE_DEEPSPEED)
        zero_backward(p, s, position, later);
    pipe_backward(p, s, position);
    if (engine_reduces_blocks(run)) {
        fsdp_backward(p, s, position);
        fsdp_root_grads(p, s, position);
        PUT(p, TERM_GRAD_SHARDS, "gradient shards",
            F("P/N, tensor by tensor", fsdp_reduced(s, position, later)),
            F("bytes per gradient", grad));
        return;
    }
    if (engine_wgrad_mode(s, false) != WGRAD_KEEP || engine_drops_blocks(run))
        return;
    if (later && !clears_grads_late(run))
        PUT(p, TERM_GRADS, "gradients", F("bytes", s->wgrad));
    else
        PUT(p, TERM_GRADS, "gradients of the blocks above",
            F("bytes", s->before[s->n].wgrad - s->before[position + 1].wgrad));
}

uint64_t engine_gradients(const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t size = dtype_size(run->prec.grad);
    if (shards_offloaded(run))
        return 0;
    if (engine_reduces_blocks(run) || makes_zero3_grads(run))
        return s->sum.own_elems * size;
    if (zero_is(run, 2))
        return flat_share(run, s->sum.dense_elems, s->sum.expert_elems) * size;
    if (engine_wgrad_mode(s, false) == WGRAD_KEEP && !engine_drops_blocks(run))
        return s->wgrad;
    return 0; /* in the buffers at rest */
}

/* ---- after backward ---- */

static void whole_grads(struct put *p, const struct stage *s)
{
    if (engine_wgrad_mode(s, false) == WGRAD_KEEP
        && !engine_drops_blocks(s->run))
        PUT(p, TERM_GRADS, "gradients", F("bytes", s->wgrad));
    if (engine_reduces_blocks(s->run) && !shards_offloaded(s->run))
        PUT(p, TERM_GRAD_SHARDS, "gradient shards",
            F("P/N, tensor by tensor", s->sum.own_elems),
            F("bytes per gradient", dtype_size(s->run->prec.grad)));
}

/* ZeRO-1 without overlap reduces all gradients at the end, bucket by bucket:
 * those of a bucket are freed as they are copied into it, then the partition is
 * made. */
static void zero1_reduce(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t first = min_u64(run->reduce_bucket, s->sum.elems);
    if (s->partition > first && !overlaps(run) && !optimizer_offloaded(run))
        PUT(p, TERM_GRAD_SHARDS,
            "gradient partition, less the first bucket's gradients",
            F("elements", s->partition - first),
            F("bytes per gradient", dtype_size(run->prec.grad)));
}

static void zero_reduce(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t wire = dtype_size(run->prec.reduce);
    if (keeps_fp32_buffer(run)) {
        /* engine.py, allreduce_bucket: in communication_data_type; a flat
           buffer is one tensor, and a bucket of its own */
        if (run_pipelines(run) || (wire != FP32 && run->shard > 1))
            PUT(p, TERM_REDUCE_TMP, "the gradient buffer in 16 bits",
                F("P", s->sum.elems), F("bytes", wire));
        return;
    }
    if (has_ipg_bucket(run))
        PUT(p, TERM_BUCKETS, "reduce bucket",
            F("reduce_bucket", run->reduce_bucket), F("bytes", wire),
            A("buckets", overlaps(run) ? 2 : 1));
    if (zero_is(run, 2))
        zero2_partition(p, s, run->grad_accum > 1);
    if (zero_is(run, 1) && !run_pipelines(run)) {
        zero1_reduce(p, s);
        return;
    }
    /* the tensor that fills a bucket is still part of it
       (allreduce_no_retain) */
    const uint64_t bucket =
        run->reduce_bucket + (run->zero == 0 ? s->sum.largest_grad : 0);
    PUT(p, TERM_REDUCE_TMP, "flattened gradients on their way",
        F("elements", min_u64(bucket, s->sum.elems)), F("bytes", wire));
}

void engine_reduce(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t wire = dtype_size(run->prec.reduce);
    whole_grads(p, s);
    pipe_after(p, s);
    if (engine_reduces_blocks(run))
        PUT(p, TERM_WGRAD_TMP, "whole gradients of the root group",
            F("bytes", root_grads(s)));
    if (engine_reduces_blocks(run) && run->engine == ENGINE_FSDP2)
        PUT(p, TERM_REDUCE_TMP, "reduce-scatter input of the root group",
            F("elements", root_elems(s)), F("bytes", wire));
    megatron_reduce(p, s);
    if (run->engine != ENGINE_DEEPSPEED)
        return;
    zero_reduce(p, s);
    zero3_partition(p, s);
    zero3_bucket(p, s);
}

/* ZeRO takes norms in double precision, a tensor at a time; the others leave
 * one scalar a tensor. */
void engine_clip(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    if (has_ipg_bucket(run))
        zero2_partition(p, s, false);
    else
        whole_grads(p, s);
    zero3_partition(p, s);
    pipe_after(p, s);
    if (!run->clip_grad || shards_offloaded(run))
        return;
    if (run->engine == ENGINE_DEEPSPEED && run->zero != 0) {
        const uint64_t own = zero_is(run, 3)
                                 ? div_up(s->sum.largest_grad, run->shard)
                                 : min_u64(s->sum.largest_grad,
                                           flat_share(run, s->sum.dense_elems,
                                                      s->sum.expert_elems));
        PUT(p, TERM_CLIP_TMP, "a tensor in double precision for its norm",
            F("elements", own), F("bytes", 8));
        return;
    }
    PUT(p, TERM_CLIP_TMP, "one norm a tensor", A("tensors", s->sum.tensors),
        F("bytes", ALLOC_ROUND));
}

/* Lists as large as the weights that a foreach update makes, and temporaries
 * of one tensor that a loop makes: the denominator's square root and, in a
 * loop, its quotient (torch/optim/adamw.py, adagrad.py, rmsprop.py). The
 * others update in place, or in kernels of their own. */
static unsigned denominators(enum optimizer o)
{
    switch (o) {
    case OPT_ADAMW:
    case OPT_LAMB:
    case OPT_ADAGRAD:
    case OPT_RMSPROP:
    case OPT_MUON:
    case OPT_GALORE:
    case OPT_ADAFACTOR: return 1;
    case OPT_ADAM8BIT:
    case OPT_PAGED_ADAM8BIT:
    case OPT_ADAM4BIT:
    case OPT_SGD:
    case OPT_MOMENTUM:
    case OPT_LION:
    case OPT_LION8BIT:
    case OPT_NONE:
    case OPTIMIZER_COUNT: return 0;
    }
    return 0;
}

/* The tensor that a loop has in hand: a flat partition where there is one. */
static uint64_t largest_updated(const struct stage *s, uint64_t own)
{
    const struct run *run = s->run;
    switch (run_sharding(run)) {
    case SHARDING_FLAT: return own;
    case SHARDING_TENSOR:
    case SHARDING_ROWS:
        return run->engine == ENGINE_DEEPSPEED
                   ? own
                   : div_up(s->sum.largest_grad, run->shard);
    case SHARDING_NONE: break;
    }
    return s->sum.largest_grad;
}

/* What the optimizer's implementation makes while it updates `own` elements. */
static void step_implementation(struct put *p, const struct stage *s,
                                uint64_t own)
{
    const struct run *run = s->run;
    const uint64_t size = dtype_size(
        run->prec.master == DT_NONE ? run->prec.param : run->prec.master);
    const unsigned lists = denominators(run->optimizer);
    switch (run->optimizer_impl) {
    case OPTIMPL_FOREACH:
        PUT(p, TERM_STEP_TMP, "foreach: a list as large as the weights",
            F("elements on this rank", own), A("lists", lists),
            F("bytes", size));
        return;
    case OPTIMPL_LOOP:
        PUT(p, TERM_STEP_TMP, "loop: two temporaries of one tensor",
            F("largest tensor", largest_updated(s, own)),
            A("temporaries", 2 * lists), F("bytes", size));
        return;
    case OPTIMPL_FUSED:
    case OPTIMIZER_IMPL_COUNT: return;
    }
}

/* Elements that ZeRO updates at once. */
static uint64_t zero_updates(const struct stage *s)
{
    return s->run->zero == 3 ? s->sub_group : engine_share(s);
}

/* Elements of the gradients that are flattened. A pipeline's are not
 * contiguous: the tensors themselves. */
static uint64_t zero_pieces(const struct stage *s, uint64_t own)
{
    if (s->run->zero == 3)
        return 0;
    return run_pipelines(s->run) ? own : s->partition;
}

static uint64_t step_list(const struct stage *s, uint64_t own)
{
    struct moment m = { .op = "" };
    struct put p = { .m = &m, .only = COMP_COUNT };
    step_implementation(&p, s, own);
    return m.bytes[TERM_STEP_TMP];
}

/* First the pieces of the gradient beside their flat copy and its fp32 copy;
 * the update begins with the fp32 copy alone. */
static void step_zero(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t grad = dtype_size(run->prec.grad);
    const uint64_t own = zero_updates(s);
    const uint64_t pieces = zero_pieces(s, own);
    const uint64_t wide = run->prec.master != DT_NONE ? FP32 : 0;
    if (keeps_fp32_buffer(run)) {
        PUT(p, TERM_GRADS, "16-bit gradients, freed after the step",
            F("bytes", s->wgrad));
        step_implementation(p, s, own);
        return;
    }
    zero3_partition(p, s);
    if (wide != 0)
        PUT(p, TERM_STEP_TMP, "fp32 copy of the flat gradients",
            F("P/N, tensor by tensor", own), F("bytes", FP32));
    if (pieces * grad + own * grad
        < step_list(s, own) + (wide ? 0 : own * grad)) {
        if (wide == 0)
            PUT(p, TERM_STEP_TMP, "flat gradients",
                F("P/N, tensor by tensor", own), F("bytes", grad));
        step_implementation(p, s, own);
        return;
    }
    if (run_pipelines(run))
        PUT(p, TERM_GRADS, "gradients that this rank steps", F("P / N", pieces),
            F("bytes per gradient", grad));
    else
        PUT(p, TERM_GRAD_SHARDS, "gradient partition, tensors whole",
            F("elements", pieces), F("bytes per gradient", grad));
    PUT(p, TERM_STEP_TMP, "flat gradients", F("P/N, tensor by tensor", own),
        F("bytes", grad));
}

/* Stage 0 with master weights (FP16_Optimizer): a list of fp32 gradients and
 * their flat copy, then the flat copy alone. */
static void step_fp16(struct put *p, const struct stage *s)
{
    const uint64_t all = s->sum.elems;
    PUT(p, TERM_STEP_TMP, "fp32 gradients, flattened", F("P", all),
        F("bytes", FP32));
    if (step_list(s, all) > all * FP32)
        step_implementation(p, s, all);
    else
        PUT(p, TERM_STEP_TMP, "fp32 gradients", F("P", all), T("bytes", FP32));
}

void engine_step(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    pipe_after(p, s);
    if (run->engine == ENGINE_DEEPSPEED
        && (run->zero != 0 || run_is_bf16_pipeline(run))) {
        if (!optimizer_offloaded(run))
            step_zero(p, s);
        return;
    }
    if (run->optimizer_in_backward) { /* the largest tensor's, of all */
        PUT(p, TERM_WGRAD_TMP, "the gradient that is used up",
            F("largest parameter", s->sum.largest_grad),
            F("bytes per gradient", dtype_size(run->prec.grad)));
        step_implementation(p, s, s->sum.largest_grad);
        return;
    }
    whole_grads(p, s);
    if (shards_offloaded(run))
        return;
    if (run->engine == ENGINE_DEEPSPEED && run->prec.master != DT_NONE) {
        step_fp16(p, s);
        return;
    }
    uint64_t own = s->sum.elems;
    if (run_shards_weights(run))
        own = s->sum.own_elems;
    else if (run_sharding(run) == SHARDING_FLAT)
        own = flat_share(run, s->sum.dense_elems, s->sum.expert_elems);
    step_implementation(p, s, own);
}
