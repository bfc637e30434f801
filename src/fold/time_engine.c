/*
 * What an engine moves in memory around its messages: gradients added to those
 * of earlier micro-batches, put into buckets and flat buffers and taken out
 * again, gathered weights put in order. Owns which engine copies what; refuses
 * to know when messages are sent. [docs/method.md eq. engine-copies]
 */
#include "fold/time.h"

#include "fold/fold.h"

#include "base/banned.h"

/* Bytes of a trained element in backward of a micro-batch, of all of them on
 * average; bytes of a weight's byte in each gather; and whether a tensor has
 * kernels of its own for it. */
struct copies {
    double back, gather;
    bool apart;
};

/* Read twice and written: every gradient but the first, which autograd takes as
 * it is (torch/csrc/autograd/functions/accumulate_grad.h), if there is none. */
static double accumulated(const struct run *run, double size)
{
    const double m = (double)run->grad_accum;
    return 3 * size * (run_keeps_grads(run) ? 1 : (m - 1) / m);
}

/* Into its bucket, divided by the number of replicas on the way, and back out of
 * it (torch/csrc/distributed/c10d/reducer.cpp, gradient_as_bucket_view=False). */
static struct copies ddp(const struct run *run)
{
    const double size = (double)dtype_size(run->prec.param);
    if (run->optimizer_in_backward)
        return (struct copies){ 0, 0, true };
    const double bucket = run->dp > 1 ? 4 * size / (double)run->grad_accum : 0;
    return (struct copies){ accumulated(run, size) + bucket, 0, true };
}

/* BF16_Optimizer.update_hp_grads: a cast to fp32, and a sum in it. */
static double accumulated_in_fp32(double size)
{
    return size + 4 + 3 * 4;
}

/* Stages 0 and 1 reduce once a step, stage 2 after each backward: a bucket is
 * filled and divided (stage_1_and_2.py, average_tensor), without one the tensors
 * are flattened and copied back too (engine.py, allreduce_no_retain). Stage 3
 * fills its bucket, flattens it again and divides that (comm/coalesced_
 * collectives.py); what is gathered is put in order, tensor by tensor
 * (partition_parameters.py, AllGatherCoalescedHandle.wait). */
static struct copies deepspeed(const struct run *run)
{
    const double size = (double)dtype_size(run->prec.param);
    const double m = (double)run->grad_accum;
    const bool fp32 = run->zero <= 1 && run->prec.grad == DT_FP32
                      && run->prec.param == DT_BF16;
    const bool alone = run->shard <= 1 && run->dp <= 1;
    switch (run->zero) {
    case 0:
    case 1:
        if (fp32)
            return (struct copies){ accumulated_in_fp32(size), 0, true };
        return (struct copies){
            accumulated(run, size)
                + (alone ? 0 : (run->zero == 0 ? 6 : 4) * size / m),
            0, true
        };
    case 2: return (struct copies){ alone ? 0 : 4 * size, 0, true };
    default: return (struct copies){ 6 * size, alone ? 0 : 2, true };
    }
}

/* Of views into a flat parameter, autograd makes one gradient; it is divided
 * before it is reduced (torch/distributed/fsdp/_runtime_utils.py, _reduce_grad).
 */
static struct copies fsdp(const struct run *run)
{
    const double size = (double)dtype_size(run_layer_dtype(run));
    if (run_sharding(run) == SHARDING_NONE)
        return (struct copies){ accumulated(run, size), 0, true };
    return (struct copies){ 4 * size, 0, false };
}

/* Gathered shards are split into tensors, gradients put together in the type
 * that they are reduced in (_fully_shard/_fsdp_collectives.py: split_with_sizes_
 * copy, chunk_cat). */
static struct copies fsdp2(const struct run *run)
{
    const double size = (double)dtype_size(run_layer_dtype(run));
    if (run_sharding(run) == SHARDING_NONE)
        return (struct copies){ accumulated(run, size), 0, true };
    return (struct copies){ size + (double)dtype_size(run->prec.reduce), 2,
                            false };
}

/* Added to main gradients by a hook (core/distributed/distributed_data_parallel
 * .py), where the product did not: Megatron-LM 3.0, which came with the paper,
 * does so unless told not to (--no-gradient-accumulation-fusion). */
static struct copies megatron(const struct run *run, const struct block *b)
{
    const bool adds = run->impl == IMPL_PAPER
                      || (run->impl == IMPL_MEGATRON && run->wgrad_fusion);
    const bool fused = adds && b->kind != BLOCK_EMBED;
    const double size = (double)dtype_size(run->prec.param);
    const double main = (double)dtype_size(run->prec.grad);
    return (struct copies){ fused ? 0 : size + 2 * main, 0, true };
}

static struct copies copies_of(const struct run *run, const struct block *b)
{
    switch (run->engine) {
    case ENGINE_DDP: return ddp(run);
    case ENGINE_DEEPSPEED: return deepspeed(run);
    case ENGINE_FSDP: return fsdp(run);
    case ENGINE_FSDP2: return fsdp2(run);
    case ENGINE_MEGATRON: return megatron(run, b);
    case ENGINE_MEGATRON_FSDP: /* a flat buffer, which tensors are views of */
    case ENGINE_COUNT: break;
    }
    return (struct copies){ 0, 0, false };
}

static void spend(struct pass *p, const struct clock *c, double bytes,
                  double kernels)
{
    if (bytes <= 0)
        return;
    p->part[TIME_MEMORY] += time_bytes(c, bytes);
    p->kernels += kernels;
}

void time_engine(struct block_time *out, const struct clock *c,
                 const struct block *b, const struct block_states *s)
{
    const struct copies x = copies_of(c->run, b);
    const double trained = (double)s->dense_elems + (double)s->expert_elems;
    const double kernels = x.apart ? (double)s->tensors : 1;
    const bool kept = c->run->engine == ENGINE_FSDP2 && c->run->zero == 2;
    spend(&out->forward, c, x.gather * (double)s->bytes, kernels);
    if (!kept)
        spend(&out->input, c, x.gather * (double)s->bytes, kernels);
    spend(&out->weight, c, x.back * trained, kernels);
}
