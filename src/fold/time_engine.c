/*
 * What an engine moves in memory around its messages: gradients added to those
 * of earlier micro-batches, put into buckets and flat buffers and taken out
 * again, gathered weights put in order. Owns which engine copies what; refuses
 * to know when messages are sent. [docs/method.md eq. engine-copies]
 */
#include "fold/time.h"

#include "fold/engine_private.h"
#include "fold/fold.h"

#include <math.h>

#include "base/banned.h"

/* Bytes of a trained element in backward of a micro-batch, of all of them on
 * average; bytes of a weight's byte in each gather; and whether a tensor has
 * kernels of its own for it. In whichever stream they are: a product's blocks
 * have all registers of a multiprocessor, so that a copy's wait for one to end,
 * and the next product's for the copy. */
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
        return (struct copies){ .apart = true };
    const double bucket = run->dp > 1 ? 4 * size / (double)run->grad_accum : 0;
    return (struct copies){ .back = accumulated(run, size) + bucket,
                            .apart = true };
}

/* The share of full buckets with parts of several ranks, whose shards of all that
 * is trained have as many ends but one between them: such a bucket is flattened
 * into another, and a rank's own part copied back (stage_1_and_2.py,
 * allreduce_and_copy_with_multiple_ranks; _flatten_dense_tensors copies nothing
 * where there is one). */
static double several_owners(const struct run *run, double trained)
{
    const double bucket = fmin((double)run->reduce_bucket, trained);
    return trained > 0 ? fmin(1, (double)(run->shard - 1) * bucket / trained)
                       : 0;
}

/* Tensors flattened, divided, and copied back; or put into a bucket that is
 * divided (stage_1_and_2.py, average_tensor). Cast to what is sent in another
 * type, and back (allreduce_bucket). */
static double collected(const struct run *run, double size, double trained)
{
    const double sent = (double)dtype_size(run->prec.reduce);
    const bool tensors = run->zero == 0 || run_sums_tensors(run);
    const double cast =
        run->prec.reduce == run->prec.param ? 0 : 2 * (size + sent);
    if (tensors)
        return 4 * size + 2 * sent + cast;
    const double again = run_sums_whole(run) ? several_owners(run, trained) : 0;
    return 4 * size + again * (2 * size + 2 * size / (double)run->shard) + cast;
}

/* Fp32 gradients that are flattened, cast to what is sent and divided, cast and
 * copied back (engine.py, allreduce_bucket). */
static double collected_in_fp32(const struct run *run)
{
    const double sent = (double)dtype_size(run->prec.reduce);
    const double cast = run->prec.reduce == DT_FP32 ? 0 : 2 * (FP32 + sent);
    return 2 * FP32 + cast + 2 * sent + 2 * FP32;
}

/* Stages 0 and 1, which reduce once a step. In fp32 a cast, and a sum
 * (BF16_Optimizer.update_hp_grads). */
static struct copies deepspeed_late(const struct run *run, double size,
                                    double trained)
{
    const double m = (double)run->grad_accum;
    struct copies x = { .apart = true };
    if (run->prec.grad == DT_FP32 && run->prec.param == DT_BF16) {
        x.back = size + FP32 + 3 * FP32;
        if (run->dp > 1 && run_is_bf16_optimizer(run))
            x.back += collected_in_fp32(run) / m;
        return x;
    }
    x.back = accumulated(run, size);
    if (run->dp > 1)
        x.back += collected(run, size, trained) / m;
    return x;
}

/* Stage 2 after each backward. Stage 3 flattens
 * its bucket again before that (comm/coalesced_collectives.py), and puts in order
 * what was gathered, tensor by tensor (partition_parameters.py,
 * AllGatherCoalescedHandle.wait), all of it in streams of their own. */
static struct copies deepspeed(const struct run *run, double trained)
{
    const double size = (double)dtype_size(run->prec.param);
    struct copies x = { .apart = true };
    if (run->zero <= 1)
        return deepspeed_late(run, size, trained);
    if (run->shard <= 1)
        return x;
    x.back = run->zero == 2 ? collected(run, size, trained) : 6 * size;
    x.gather = run->zero == 3 ? 2 : 0;
    if (engine_makes_zero3_grads(run)) { /* into a bucket, and a list's pieces
                                            into one; zeroed, and out again */
        x.back = 4 * size;
        x.gather = 3;
    }
    return x;
}

/* Of views into a flat parameter, autograd makes one gradient; it is cast to
 * what it is reduced in, and divided (torch/distributed/fsdp/_runtime_utils.py,
 * _post_backward_hook, _reduce_grad). */
static struct copies fsdp(const struct run *run)
{
    const double size = (double)dtype_size(run_layer_dtype(run));
    if (run_sharding(run) == SHARDING_NONE)
        return (struct copies){ .back = accumulated(run, size), .apart = true };
    const double reduce = (double)dtype_size(run->prec.reduce);
    const double cast =
        run->prec.reduce == run_layer_dtype(run) ? 0 : size + reduce;
    return (struct copies){ .back = 2 * size + cast
                                    + (run->shard > 1 ? 2 * reduce : 0) };
}

/* Gathered shards are split into tensors, gradients put together in the type
 * that they are reduced in, in the layers' stream (_fully_shard/_fsdp_
 * collectives.py: split_with_sizes_copy, chunk_cat). */
static struct copies fsdp2(const struct run *run)
{
    const double size = (double)dtype_size(run_layer_dtype(run));
    if (run_sharding(run) == SHARDING_NONE)
        return (struct copies){ .back = accumulated(run, size), .apart = true };
    return (struct copies){ .back = size + (double)dtype_size(run->prec.reduce),
                            .gather = 2 };
}

/* Megatron's, into main gradients: Megatron-LM 3.0, which came with the paper,
 * does so unless told not to (--no-gradient-accumulation-fusion). */
bool time_adds_in_product(const struct run *run)
{
    return run->engine == ENGINE_MEGATRON
           && (run->impl == IMPL_PAPER
               || (run->impl == IMPL_MEGATRON && run->wgrad_fusion));
}

/* Added to main gradients by a hook (core/distributed/distributed_data_parallel
 * .py), where the product did not. */
static struct copies megatron(const struct run *run, bool embeds)
{
    const bool adds = time_adds_in_product(run);
    const double size = (double)dtype_size(run->prec.param);
    const double main = (double)dtype_size(run->prec.grad);
    return (struct copies){ .back = adds && !embeds ? 0 : size + 2 * main,
                            .apart = true };
}

static struct copies copies_of(const struct run *run, bool embeds,
                               double trained)
{
    switch (run->engine) {
    case ENGINE_DDP: return ddp(run);
    case ENGINE_DEEPSPEED: return deepspeed(run, trained);
    case ENGINE_FSDP: return fsdp(run);
    case ENGINE_FSDP2: return fsdp2(run);
    case ENGINE_MEGATRON: return megatron(run, embeds);
    case ENGINE_MEGATRON_FSDP: /* a flat buffer, which tensors are views of */
    case ENGINE_COUNT: break;
    }
    return (struct copies){ .apart = false };
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
                 const struct block *b, const struct block_states *s,
                 double all)
{
    const struct copies x = copies_of(c->run, b->kind == BLOCK_EMBED, all);
    const double trained = (double)s->dense_elems + (double)s->expert_elems;
    const double kernels = x.apart ? (double)s->tensors : 1;
    const bool kept = c->run->engine == ENGINE_FSDP2 && c->run->zero == 2;
    spend(&out->forward, c, x.gather * (double)s->bytes, kernels);
    if (!kept)
        spend(&out->input, c, x.gather * (double)s->bytes, kernels);
    spend(&out->weight, c, x.back * trained, kernels);
}

/* DeepSpeed before 0.6 gathers and reduces each tensor by itself, as a list of the
 * ranks' pieces, which Python makes and c10d copies one by one, between two
 * torch.cuda.synchronize() (0.3.16, runtime/zero/partition_parameters.py,
 * _allgather_param, _reduce_scatter_gradient; torch 1.8, lib/c10d/
 * ProcessGroupNCCL.cpp, flatten_for_scatter_gather). */
double time_engine_lists(const struct clock *c, const struct block *b,
                         const struct block_states *s, double gathers)
{
    const struct run *run = c->run;
    if (!engine_makes_zero3_grads(run) || run->shard <= 1)
        return 0;
    double gathered = 0;
    for (uint32_t i = 0; i < b->tensor_count; i++) {
        const struct tensor *t = &c->p->tensor[b->tensor_first + i];
        gathered += t->role == ROLE_PARAM && !t->statistic
                    && t->elems > run->persistence_threshold;
    }
    return (double)run->shard * HOST_FORWARD_S
           * (gathers * gathered + (double)s->tensors);
}

double time_engine_gather(const struct clock *c, double bytes)
{
    return time_bytes(c, copies_of(c->run, false, 0).gather * bytes);
}
