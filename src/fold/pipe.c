/*
 * What moving micro-batches from stage to stage holds beside the engine of the
 * model states. DeepSpeed's pipeline engine: Megatron-DeepSpeed always trains
 * through it up to stage 1, with one stage too; read at DeepSpeed 0.5.10 and
 * 0.7.0, the versions that fork ran with (runtime/pipe/engine.py, schedule.py).
 * torch.distributed.pipelining: torchtitan's; read at PyTorch 2.13 and December
 * 2024 (stage.py). [docs/method.md eq. pipe]
 */
#include "fold/fold.h"
#include "fold/stage.h"

#include "base/banned.h"

/* Buffers of the last stage (TrainSchedule.num_pipe_buffers: at least two). */
enum { LAST_STAGE_BUFFERS = 2 };

/* Hidden states on one rank: whole, or the rank's part where tensor
 * parallelism makes the engine partition what it sends (is_pipe_partitioned).
 */
static uint64_t border(const struct stage *s, bool part)
{
    const uint64_t whole = s->walk[s->p->layer_block[s->first_layer]].input;
    return part ? div_up(whole, s->run->tp) : whole;
}

uint64_t pipe_border(const struct stage *s)
{
    return border(s, false);
}

uint64_t pipe_logits(const struct stage *s)
{
    return run_torch_pipelines(s->run) && s->head ? s->walk[s->p->head].lingers
                                                  : 0;
}

uint64_t pipe_outputs(const struct stage *s)
{
    return s->run->return_outputs ? pipe_logits(s) : 0;
}

uint64_t pipe_outputs_before(const struct stage *s, bool later)
{
    const uint64_t others = stage_others(s, later);
    const uint64_t most = s->run->grad_accum - 1;
    return later && most > others ? (most - others) * pipe_outputs(s) : 0;
}

void pipe_put_outputs(struct put *p, const struct stage *s)
{
    PUT(p, TERM_IN_FLIGHT, "logits of the step's micro-batches",
        F("micro-batches", s->run->grad_accum), F("bytes", pipe_outputs(s)));
}

/* Held of one micro-batch from its forward to its backward: its result, and
 * without tensor parallelism its input, of which forward takes a clone. */
uint64_t pipe_micro_batch(const struct stage *s)
{
    uint64_t bytes = 0;
    /* stage.py, fwd_cache: the result, to the end of its backward */
    if (run_torch_pipelines(s->run))
        return s->head && s->chunks == 1 ? 0 : border(s, false);
    if (!run_pipelines(s->run))
        return 0;
    if (!s->head)
        bytes += border(s, true);
    if (!s->embed && s->run->tp == 1)
        bytes += border(s, false);
    return bytes;
}

/* Made by the first micro-batch of a run, never freed: pipe_recv_buf,
 * grad_layer. */
static void receive_buffers(struct put *p, const struct stage *s)
{
    if (!s->embed)
        PUT(p, TERM_PIPE, "buffer that hidden states are received in",
            F("bytes", border(s, true)));
    if (!s->head)
        PUT(p, TERM_PIPE, "buffer that gradients are received in",
            F("bytes", border(s, true)));
}

/* A buffer for each micro-batch of a step, made before the first one and kept
 * (stage.py, _prepare_forward_infra, _create_grad_recv_info). Hidden states
 * are read where they were received: those in flight are counted with what
 * layers keep. */
static void receive_each(struct put *p, const struct stage *s, uint64_t flying,
                         uint64_t used)
{
    if (!run_torch_pipelines(s->run))
        return;
    const uint64_t m = s->run->grad_accum;
    const uint64_t in = m * (s->chunks - (s->embed ? 1 : 0));
    const uint64_t out = m * (s->chunks - (s->head ? 1 : 0));
    PUT(p, TERM_PIPE, "buffers that hidden states are received in, not in use",
        F("bytes", border(s, false)),
        A("micro-batches", in > flying ? in - flying : 0));
    PUT(p, TERM_PIPE, "buffers that gradients are received in",
        F("bytes", border(s, false)),
        A("micro-batches", out > used ? out - used : 0));
}

/* The last stage's pipe_buffers keep the logits of the micro-batches done,
 * across steps, until others take their place. */
static void outputs(struct put *p, const struct stage *s, uint64_t less)
{
    const uint64_t n = min_u64(s->run->grad_accum, LAST_STAGE_BUFFERS);
    if (s->head)
        PUT(p, TERM_PIPE, "fp32 logits of earlier micro-batches, not let go",
            F("bytes", s->outputs), F("micro-batches", n - less));
}

/* Which of these buffers layers keep: of those that a graph keeps the others
 * were left out there (stage_chunk.c). */
static uint64_t flying(const struct stage *s, uint32_t position)
{
    if (!s->graph)
        return s->in_flight;
    return s->embed && stage_chunk(s, position) == 0 ? 0 : 1;
}

void pipe_forward(struct put *p, const struct stage *s, uint32_t position)
{
    receive_each(p, s, flying(s, position), 0);
    if (!run_pipelines(s->run))
        return;
    receive_buffers(p, s);
    outputs(p, s, 0);
}

void pipe_backward(struct put *p, const struct stage *s, uint32_t position)
{
    /* the topmost block's backward has its gradient among what it works on */
    const bool first =
        position + 1 == stage_chunk_first(s, stage_chunk(s, position) + 1);
    receive_each(p, s, flying(s, position), first ? 1 : 0);
    if (run_torch_pipelines(s->run) && p->slot != SLOT_WEIGHT
        && stage_chunk(s, position) == s->chunks - 1)
        PUT(p, TERM_PIPE, "logits, to the end of the stage's backward",
            F("bytes", pipe_logits(s)));
    if (!run_pipelines(s->run))
        return;
    receive_buffers(p, s);
    /* the head's own are part of its walk */
    outputs(p, s, s->head && position + 1 == s->n ? 1 : 0);
    /* parts are put together again, and live to the end of the backward; the
       result's gradient is counted where it is used, in the topmost block */
    if (!s->head && s->run->tp > 1)
        PUT(p, TERM_PIPE, "the stage's result and its gradient, whole again",
            F("bytes", border(s, false)),
            F("tensors", position + 1 == s->n ? 1 : 2));
}

void pipe_idle(struct put *p, const struct stage *s)
{
    receive_each(p, s, 0, 0);
    if (s->graph)
        PUT(p, TERM_PIPE,
            "gradients of hidden states received, to the next step",
            F("bytes", s->sent_back));
}

/* One tensor of all (schedules.py, _merge_outputs), which nobody names. */
void pipe_clip(struct put *p, const struct stage *s)
{
    PUT(p, TERM_PIPE, "logits of the step's micro-batches, put together",
        F("micro-batches", s->run->grad_accum), F("bytes", pipe_outputs(s)));
}

void pipe_after(struct put *p, const struct stage *s)
{
    if (!run_pipelines(s->run))
        return;
    receive_buffers(p, s);
    outputs(p, s, 0);
}

/* One more, of `ranks` ranks that lie `apart`. */
static void add(struct communicators *c, const struct run *run, uint64_t ranks,
                uint64_t apart)
{
    if (ranks <= 1)
        return;
    if ((ranks - 1) * apart >= run->gpus_per_node)
        c->across++;
    else if (ranks == 2)
        c->pairs++;
    else
        c->groups++;
}

/* torch.distributed makes a communicator for a process group when it is first
 * used. Megatron's own groups for data, tensor and pipeline parallelism are
 * used when data sets are built and in every layer; DeepSpeed's grid makes the
 * same ones again for its reductions, its partitioned transfers and its loss
 * (runtime/pipe/topology.py), one for all ranks of a replica (overflow, norm),
 * and one for the tied embedding's two stages (module.py); barriers use the
 * whole world's, and each neighbour that is sent to has one (ProcessGroupNCCL,
 * getKeySendRecv). Ranks count tensor-parallel neighbours first, then replicas.
 */
bool pipe_communicators(struct communicators *c, const struct run *run)
{
    if (!run_pipelines(run))
        return false;
    const uint64_t stage = run->tp * run->dp;
    const bool pipeline = run->pp > 1;
    add(c, run, run->gpus, 1);
    add(c, run, run->tp, 1);
    add(c, run, run->dp, run->tp);
    add(c, run, run->dp, run->tp);
    add(c, run, run->pp, stage);
    add(c, run, run->pp, stage);
    if (!pipeline) {
        add(c, run, run->tp, 1); /* the replica is this one group */
        return true;
    }
    add(c, run, run->tp * run->pp, run->tp > 1 ? run->dp : stage);
    add(c, run, run->tp, 1);
    add(c, run, 2, stage); /* the next stage */
    add(c, run, 2, stage); /* the tied embedding's, or the stage before */
    return true;
}

/* Whole, whatever is in shards: Megatron's main gradient (core/distributed/
 * finalize_model_grads.py, _allreduce_word_embedding_grads), DeepSpeed's own or, in
 * bf16, its fp32 one (runtime/pipe/engine.py, _exec_reduce_tied_grads). A prediction
 * module's words are the embedding's too. */
double pipe_tied_bytes(const struct program *p, const struct run *run)
{
    if (!run_parts_words(run))
        return 0;
    const struct tensor *t;
    for (tensor_id id = p->block[p->head].weights; id != TENSOR_NONE;
         id = t->next) {
        t = &p->tensor[id];
        if (t->tied && !t->again && t->trainable)
            return (double)(t->elems * dtype_size(run->prec.grad));
    }
    return 0;
}
