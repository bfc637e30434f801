/*
 * What the optimizer step allocates for a moment.
 * [docs/method.md eq. step]
 */
#include "fold/engine_private.h"

#include "data/constants.h"

#include "base/banned.h"

/* Lists as large as the weights that a foreach update makes: the denominator's
 * square root (torch/optim/adamw.py, rmsprop.py), Adagrad's and what it divides
 * by it (adagrad.py). The others update in place, in a loop, or in kernels of
 * their own. */
static unsigned foreach_lists(enum optimizer o)
{
    switch (o) {
    case OPT_ADAMW:
    case OPT_LAMB:
    case OPT_RMSPROP:
    case OPT_MUON:
    case OPT_GALORE:
    case OPT_APOLLO:
    case OPT_ADAFACTOR: return 1;
    case OPT_ADAGRAD: return 2;
    case OPT_ADAM8BIT:
    case OPT_PAGED_ADAM8BIT:
    case OPT_PAGED_ADAMW:
    case OPT_ADAM4BIT:
    case OPT_SGD:
    case OPT_MOMENTUM:
    case OPT_LION:
    case OPT_LION8BIT:
    case OPT_GALORE8BIT:
    case OPT_NONE:
    case OPTIMIZER_COUNT: return 0;
    }
    return 0;
}

unsigned engine_update_copies(const struct run *run)
{
    if (run_projects(run))
        return update_temporaries(run, update_size(run));
    switch (run->optimizer_impl) {
    case OPTIMPL_FOREACH: return foreach_lists(run->optimizer);
    case OPTIMPL_FOREACH_2_0: return 2 * foreach_lists(run->optimizer);
    case OPTIMPL_LOOP:
        return update_temporaries(run, dtype_size(run->prec.param));
    case OPTIMPL_FUSED:
    case OPTIMIZER_IMPL_COUNT: break;
    }
    return 0;
}

/* Elements of a loop's temporaries: those of a flat partition where there is
 * one; hooks on gradients update one tensor, and no other before it. */
static uint64_t loop_elems(const struct stage *s, uint64_t own, uint64_t size)
{
    const struct run *run = s->run;
    const uint64_t flat = update_temporaries(run, size) * own;
    if (run->optimizer_in_backward)
        return flat;
    switch (run_sharding(run)) {
    case SHARDING_FLAT: return flat;
    case SHARDING_TENSOR:
    case SHARDING_ROWS:
        if (run->engine == ENGINE_FSDP && !run_adapts(run))
            return s->sum.loop.most; /* fsdp_flat_loop */
        return run->engine == ENGINE_DEEPSPEED
                   ? flat
                   : div_up(s->sum.loop.most, run->shard);
    case SHARDING_NONE: break;
    }
    return s->sum.loop.most;
}

/* Of weights of two types: a list a type, and the loop over the types keeps
 * the first one's until it has made the second's. */
static void step_mixed(struct put *p, const struct stage *s, uint64_t whole,
                       uint64_t rest)
{
    const unsigned lists = foreach_lists(s->run->optimizer);
    switch (s->run->optimizer_impl) {
    case OPTIMPL_FOREACH_2_0:
        PUT(p, TERM_STEP_TMP, "foreach: a second list, of one type's weights",
            F("bytes", max_u64(whole, rest)), A("lists", lists));
        /* fall through */
    case OPTIMPL_FOREACH:
        PUT(p, TERM_STEP_TMP, "foreach: a list as large as the weights",
            F("bytes", whole + rest), A("lists", lists));
        return;
    case OPTIMPL_LOOP:
        PUT(p, TERM_STEP_TMP, "loop: temporaries of one tensor",
            F("largest tensor's bytes", s->sum.largest_trained_bytes),
            A("temporaries", update_temporaries(s->run, FP32)));
        return;
    case OPTIMPL_FUSED:
    case OPTIMIZER_IMPL_COUNT: return;
    }
}

static void step_tensors(struct put *p, const struct stage *s, uint64_t own)
{
    const struct run *run = s->run;
    const uint64_t size = dtype_size(
        run->prec.master == DT_NONE ? run->prec.param : run->prec.master);
    const unsigned lists = foreach_lists(run->optimizer);
    switch (run->optimizer_impl) {
    case OPTIMPL_FOREACH_2_0: /* denom = foreach_add(exp_avg_sq_sqrt, eps) */
        PUT(p, TERM_STEP_TMP, "foreach of PyTorch 2.0: a second list",
            F("elements on this rank", own), A("lists", lists),
            F("bytes", size));
        /* fall through */
    case OPTIMPL_FOREACH:
        PUT(p, TERM_STEP_TMP, "foreach: a list as large as the weights",
            F("elements on this rank", own), A("lists", lists),
            F("bytes", size));
        return;
    case OPTIMPL_LOOP:
        PUT(p, TERM_STEP_TMP, "loop: temporaries of a tensor",
            F("elements, with the last tensor's", loop_elems(s, own, size)),
            F("bytes", size));
        return;
    case OPTIMPL_FUSED: /* DTensor hands the kernel what is the rank's */
        if (s->sum.part_bytes != 0 && run->engine == ENGINE_DDP)
            PUT(p, TERM_STEP_TMP, "own part of gradients of all ranks' parts",
                F("bytes", s->sum.part_bytes));
        return;
    case OPTIMIZER_IMPL_COUNT: return;
    }
}

static uint64_t tensors_bytes(const struct stage *s, uint64_t own)
{
    struct moment m = { .op = "" };
    struct put p = { .m = &m, .only = COMP_COUNT };
    step_tensors(&p, s, own);
    return m.bytes[TERM_STEP_TMP];
}

/* Of AdamW's elements, which Muon's first update comes before. */
static uint64_t rest_moments(const struct put *p, const struct stage *s)
{
    if (!p->makes_moments)
        return 0;
    return 2 * s->sum.loop.elems * dtype_size(s->run->prec.optim);
}

/* torch.optim.Muon matrix by matrix, then AdamW for the rest. Megatron has an
 * update of its own. */
static void step_muon(struct put *p, const struct stage *s)
{
    const struct update_loop *loop = &s->sum.loop;
    const uint64_t later = rest_moments(p, s);
    if (loop->muon > later + tensors_bytes(s, loop->elems))
        PUT(p, TERM_STEP_TMP, "Muon: a matrix's update, iterates, products",
            F("bytes", loop->muon - later));
    else
        step_tensors(p, s, loop->elems);
}

/* The others come first; the fullest step is one that makes projections
 * anew. */
static void step_projected(struct put *p, const struct stage *s)
{
    const struct update_loop *loop = &s->sum.loop;
    const uint64_t size = update_size(s->run);
    const unsigned named = s->run->optimizer == OPT_GALORE8BIT ? 0 : 1;
    const uint64_t projected =
        projected_after(s->run, &loop->projected, named * loop->last * size);
    if (projected > loop->most * size)
        PUT(p, TERM_STEP_TMP, "a matrix's projection anew, or its update",
            F("bytes", projected));
    else
        PUT(p, TERM_STEP_TMP, "loop: temporaries of a tensor",
            F("elements, with the last tensor's", loop->most),
            F("bytes", size));
}

/* What the optimizer's implementation makes while it updates `own` elements. */
static void step_implementation(struct put *p, const struct stage *s,
                                uint64_t own)
{
    const struct run *run = s->run;
    if (run->optimizer == OPT_MUON && run->engine == ENGINE_DDP
        && !run->optimizer_in_backward)
        step_muon(p, s);
    else if (run_projects(run))
        step_projected(p, s);
    else
        step_tensors(p, s, own);
}

void engine_step_shards(struct put *p, const struct stage *s, uint64_t largest)
{
    if (!engine_shards_offloaded(s->run))
        step_implementation(p, s, largest);
}

/* Elements that ZeRO updates at once. */
static uint64_t zero_updates(const struct stage *s)
{
    return s->run->zero == 3 ? s->sub_group : engine_share(s);
}

/* Elements of the gradients that are flattened. */
static uint64_t zero_pieces(const struct stage *s)
{
    return s->run->zero == 3 ? 0 : s->partition;
}

static uint64_t step_list(const struct stage *s, uint64_t own)
{
    struct moment m = { .op = "" };
    struct put p = { .m = &m, .only = COMP_COUNT };
    step_implementation(&p, s, own);
    return m.bytes[TERM_STEP_TMP];
}

/* They are there when the update begins, and not before. */
static uint64_t moments_to_come(const struct stage *s)
{
    struct moment m = { .op = "" };
    struct put p = { .m = &m, .only = COMP_COUNT };
    engine_rest(&p, s);
    return m.bytes[TERM_MOMENTS];
}

/* First the pieces of the gradient beside their flat copy and, where the master
 * weights are of another type, its copy in that; the update begins with the
 * last copy alone. */
static void step_zero(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t grad = dtype_size(run->prec.grad);
    const uint64_t own = zero_updates(s);
    const uint64_t pieces = zero_pieces(s);
    const enum dtype master = run->prec.master;
    const uint64_t wide =
        master != DT_NONE && master != run->prec.grad ? dtype_size(master) : 0;
    if (run_is_bf16_optimizer(run)) {
        PUT(p, TERM_GRADS, "16-bit gradients, freed after the step",
            F("bytes", s->wgrad));
        step_implementation(p, s, own);
        return;
    }
    if (run_sums_in_fp32(run)) { /* it is flat, and the optimizer's gradient */
        engine_zero2_partition(p, s);
        step_implementation(p, s, own);
        return;
    }
    engine_zero3_partition(p, s);
    if (wide != 0)
        PUT(p, TERM_STEP_TMP, "flat gradients, as the master weights are",
            F("P/N, tensor by tensor", own), F("bytes", wide));
    const uint64_t moments = p->makes_moments ? moments_to_come(s) : 0;
    if (pieces * grad + own * grad
        < step_list(s, own) + (wide ? 0 : own * grad) + moments) {
        if (wide == 0)
            PUT(p, TERM_STEP_TMP, "flat gradients",
                F("P/N, tensor by tensor", own), F("bytes", grad));
        step_implementation(p, s, own);
        return;
    }
    if (engine_steps_views(run))
        engine_stepped_grads(p, s);
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

static bool copies_gradients(const struct run *run)
{
    return run->engine == ENGINE_MEGATRON && run->prec.master == DT_FP32
           && run->offload_optimizer == OFFLOAD_NONE
           && run->prec.grad != DT_FP32 && run->prec.optim == DT_FP32;
}

static void gradient_copies(struct put *p, const struct stage *s)
{
    PUT(p, TERM_GRAD_SHARDS, "fp32 gradients of the optimizer's shard",
        F("P / N", engine_share(s)), F("bytes", FP32));
}

/* Megatron's optimizer owns fp32 copies of 16-bit gradients: made before they
 * are clipped, given back when the next step zeroes them (core/optimizer/
 * optimizer.py, prepare_grads, zero_grad). The precision-aware optimizer,
 * without which moments are fp32, reads them as they are (distrib_optimizer.py,
 * decoupled_grad). */
void engine_stepped(struct put *p, const struct stage *s)
{
    fsdp_put_kept(p, s, true);
    if (copies_gradients(s->run) && s->run->framework != FW_MEGATRON_DEEPSPEED)
        gradient_copies(p, s);
}

/* The fork's zero_grad leaves them, and so they stay until they are made anew
 * (megatron/optimizer/optimizer.py, Float16OptimizerWithFloat16Params). */
void engine_kept_copies(struct put *p, const struct stage *s)
{
    if (copies_gradients(s->run) && s->run->framework == FW_MEGATRON_DEEPSPEED)
        gradient_copies(p, s);
}

void engine_step(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    pipe_after(p, s);
    zero3_second_step(p, s);
    if (run->engine == ENGINE_DEEPSPEED
        && (run->zero != 0 || run_is_bf16_pipeline(run))) {
        if (!engine_optimizer_offloaded(run))
            step_zero(p, s);
        else if (s->largest_stays != 0) /* torch.optim.AdamW's own choice */
            PUT(p, TERM_STEP_TMP, "foreach: a list as large as the sub-group",
                F("elements", s->largest_stays), F("bytes", FP32));
        return;
    }
    const bool mixed = states_mixed_bytes(&s->sum) != 0;
    if (engine_updates_in_backward(run) || engine_steps_units(run))
        return;
    if (run->optimizer_in_backward) { /* the largest tensor's, of all */
        const uint64_t largest = s->sum.largest_trained_bytes;
        if (mixed) {
            PUT(p, TERM_WGRAD_TMP, "the gradient that is used up",
                F("bytes of the largest parameter", largest));
            step_mixed(p, s, largest, 0);
            return;
        }
        PUT(p, TERM_WGRAD_TMP, "the gradient that is used up",
            F("largest parameter", s->sum.largest_grad),
            F("bytes per gradient", dtype_size(run->prec.grad)));
        step_implementation(p, s, s->sum.largest_grad);
        return;
    }
    engine_whole_grads(p, s);
    if (engine_shards_offloaded(run))
        return;
    if (engine_optimizer_offloaded(run)) { /* HybridDeviceOptimizer */
        PUT(p, TERM_STEP_TMP, "a weight from the CPU, in fp32",
            F("elements", min_u64(s->sum.largest_grad, engine_share(s))),
            F("bytes", FP32));
        return;
    }
    if (run->engine == ENGINE_DEEPSPEED && run->prec.master != DT_NONE) {
        step_fp16(p, s);
        return;
    }
    if (mixed) {
        step_mixed(p, s, s->sum.whole_bytes, s->sum.adapter_bytes);
        return;
    }
    uint64_t own = s->sum.elems;
    if (run_shards_weights(run))
        own = s->sum.own_elems - s->sum.own_dropped;
    else if (run_sharding(run) == SHARDING_FLAT)
        own = engine_flat_share(run, s->sum.dense_elems, s->sum.expert_elems);
    step_implementation(p, s, own);
}
