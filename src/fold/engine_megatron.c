/*
 * What Megatron-LM holds beside model states: hidden states that a pipeline
 * still names, Transformer Engine's workspaces and dummy gradients, and, under
 * Megatron-FSDP, gathered weights and gradients on their way to their shards.
 * Read at Megatron-LM d98e8a64, TransformerEngine d0067d0d.
 * [docs/method.md eq. pipeline, eq. gather, eq. buckets, eq. constants]
 */
#include "fold/graphs.h"

#include "data/constants.h"

#include "base/banned.h"

static bool is_fsdp(const struct run *run)
{
    return run->engine == ENGINE_MEGATRON_FSDP;
}

/* ---- between steps ---- */

/* A router's product is Transformer Engine's in Megatron's own layers too, where
 * that is installed, whatever moe_router_dtype is but fp64
 * (core/transformer/moe/moe_utils.py, RouterGatingLinearFunction, since
 * 0f058666). */
static bool has_te_products(const struct stage *s)
{
    return s->run->impl == IMPL_MEGATRON
           || (s->run->impl == IMPL_MEGATRON_LOCAL
               && run_engine_is_megatron(s->run) && s->sum.expert_bytes > 0);
}

/* One for plain products, and one a stream for grouped ones. */
static void rest_te_workspaces(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const bool hopper =
        run->gpu.arch == ARCH_HOPPER || run->gpu.arch == ARCH_BLACKWELL;
    const uint64_t bytes =
        hopper ? TE_WORKSPACE_HOPPER_BYTES : TE_WORKSPACE_BYTES;
    PUT(p, TERM_WORKSPACE, "Transformer Engine GEMM workspace",
        F("bytes", bytes));
    if (run->tp_comm_overlap)
        PUT(p, TERM_WORKSPACE,
            "Transformer Engine workspaces of overlapped products",
            A("streams", TE_OVERLAP_STREAMS), F("bytes", bytes));
    if (run->impl == IMPL_MEGATRON && run->grouped_gemm
        && s->sum.expert_bytes > 0)
        PUT(p, TERM_WORKSPACE,
            "Transformer Engine grouped GEMM workspaces, one a stream",
            A("streams", TE_GROUPED_STREAMS), F("bytes", bytes));
}

static void rest_dummies(struct put *p, const struct stage *s)
{
    if (engine_wgrad_mode(s, false) == WGRAD_NONE)
        PUT(p, TERM_WGRAD_TMP,
            "dummy weight gradients under fusion, one a shape",
            F("bytes", s->dummy_wgrads));
}

void megatron_rest(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    if (has_te_products(s))
        rest_te_workspaces(p, s);
    if (!run_engine_is_megatron(run))
        return;
    rest_dummies(p, s);
    graphs_rest(p, s);
    if (s->deferred.micros > 0)
        deferred_rest(p, s);
    if (is_fsdp(run))
        PUT(p, TERM_GRAD_SHARDS, "gradient shards, permanent",
            F("P/N, tensor by tensor", s->sum.own_elems),
            F("bytes per gradient", dtype_size(run->prec.grad)));
}

/* ---- hidden states between pipeline stages ---- */

/* Megatron's pipeline: what a stage received and the gradient that it sends
 * back. [core/pipeline_parallel/schedules.py] */
static uint64_t hidden_bytes(const struct stage *s)
{
    const uint32_t first = s->embed ? 1 : 0;
    if (!run_engine_is_megatron(s->run) || s->run->pp == 1 || first >= s->n)
        return 0;
    return s->walk[stage_block(s, first)].received;
}

/* Chunks of the stage that receive what they work on. */
static uint64_t chunks_receiving(const struct stage *s)
{
    return run_chunks(s->run) - (s->embed ? 1 : 0);
}

/* The iterator that can replay a step (RerunDataIterator) keeps its
 * micro-batches; get_batch puts their tensors on the GPU in place
 * (pretrain_gpt.py since 5e4fc931ba). Ranks that read no data have none. */
static void replayed(struct put *p, const struct stage *s, uint64_t flying)
{
    const struct run *run = s->run;
    if (!run_engine_is_megatron(run) || !run->replay_batches
        || !(s->embed || s->head))
        return;
    PUT(p, TERM_INPUTS, "earlier batches of the step, to be replayed",
        F("micro-batches", run->grad_accum - min_u64(run->grad_accum, flying)),
        F("bytes of one", s->inputs));
}

/* Micro-batches whose inputs count as their own. */
static uint64_t flying(const struct stage *s)
{
    return div_up(s->in_flight, run_chunks(s->run));
}

/* A dispatcher's probabilities are in the graph of what a checkpoint ran again,
 * and that leads to a copy of the checkpoint's input, and its gradient. They go
 * when the layer's next forward has routed: from `position` on they are there.
 * Counted by tests/oracle/megatron_moe.py. */
#define NAMED_LABEL                                                            \
    "checkpoints' inputs that dispatchers name, and their gradients"

/* The same of layers that are scheduled part by part, whose inputs are leaves.
 * Counted by tests/oracle/megatron_overlap.py. */
static void named_stale(struct put *p, const struct stage *s)
{
    const struct beside *of = &p->m->beside;
    const uint64_t there = s->before[s->n].named - s->before[of->stale].named;
    const bool names =
        of->begins
        && s->before[of->stale + 1].named > s->before[of->stale].named;
    PUT(p, TERM_HANDED_OVER,
        "inputs that dispatchers name, and their gradients",
        F("bytes",
          there - (names ? s->walk[stage_block(s, of->stale)].input : 0)));
}

static void named(struct put *p, const struct stage *s, uint32_t position)
{
    if (p->m->beside.is) {
        named_stale(p, s);
        return;
    }
    PUT(p, TERM_HANDED_OVER, NAMED_LABEL,
        F("bytes", s->before[s->n].named - s->before[position].named));
}

/* During a backward: the gradient of the layer right above is what it begins
 * with, where that layer is a checkpoint itself. */
static void named_above(struct put *p, const struct stage *s, uint32_t position)
{
    if (p->m->beside.is) {
        named_stale(p, s);
        return;
    }
    const uint32_t next = stage_recomputed(s, position)
                              ? stage_group_last(s, position) + 1
                              : position + 1;
    const uint64_t there = s->before[s->n].named - s->before[next].named;
    const bool begins = next < s->n && stage_recomputed(s, next)
                        && s->p->block[stage_block(s, next)].names_graph;
    PUT(p, TERM_HANDED_OVER, NAMED_LABEL,
        F("bytes", there - (begins ? s->walk[stage_block(s, next)].input : 0)));
}

/* Every chunk of the model still names its last input (set_input_tensor,
 * transformer_block.py), and with it the gradient. */
void engine_idle(struct put *p, const struct stage *s)
{
    PUT(p, TERM_HANDED_OVER, "last input of each chunk, and its gradient",
        F("chunks", chunks_receiving(s)), F("tensors", 2),
        F("bytes of hidden states", hidden_bytes(s)));
    replayed(p, s, 0);
    named(p, s, 0);
    pipe_idle(p, s);
}

/* With more than pp micro-batches a group the last rank is done with one before
 * the first rank comes to the group's next chunk: what it sent waits there, and
 * gradients the other way round (schedules.py, fwd_recv_buffer_size,
 * bwd_recv_buffer_size). At most. */
static void received_ahead(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    if (run->microbatch_group <= run->pp
        || (s->index != 0 && s->index + 1 != run->pp))
        return;
    PUT(p, TERM_HANDED_OVER, "received hidden states that wait for their turn",
        F("tensors", run->microbatch_group - run->pp),
        F("bytes of hidden states", hidden_bytes(s)));
}

/* While a forward runs, the result of the micro-batch before is still named,
 * and through its graph the input with its gradient; during backward only the
 * gradient that was sent is. The interleaved schedule runs a forward and a
 * backward under the names of the pair before, and receives the next input
 * meanwhile. */
static void handed_over(struct put *p, const struct stage *s, uint64_t tensors)
{
    if (chunks_receiving(s) == 0)
        return;
    if (s->run->schedule == SCHED_INTERLEAVED)
        tensors = 3;
    PUT(p, TERM_HANDED_OVER, "received and sent hidden states still named",
        F("tensors", tensors), F("bytes of hidden states", hidden_bytes(s)));
    received_ahead(p, s);
}

/* ---- Megatron-FSDP ---- */

static uint64_t block_bytes(const struct stage *s, uint32_t position)
{
    return s->states[stage_block(s, position)].bytes;
}

/* Each layer is a unit; what is left (embedding, norm, head) is gathered by the
 * root and stays. [core/distributed/fsdp/src/megatron_fsdp/megatron_fsdp.py] */
static void gathered(struct put *p, const struct stage *s, uint32_t position,
                     uint32_t next)
{
    uint64_t root = 0;
    if (s->embed)
        root += block_bytes(s, 0);
    if (s->head)
        root += block_bytes(s, s->n - 1);
    PUT(p, TERM_GATHERED, "root parameters, gathered for the whole pass",
        F("bytes", root));
    if (stage_is_layer(s, position))
        PUT(p, TERM_GATHERED, "this layer's parameters",
            F("bytes", block_bytes(s, position)));
    if (next < s->n && stage_is_layer(s, next))
        PUT(p, TERM_PREFETCHED, "the next layer's parameters",
            F("bytes", block_bytes(s, next)));
}

/* Whole gradients of the blocks from `position` up: a unit's buffer is freed
 * when more elements than the queue's capacity wait to be reduced, or after
 * the pass. [param_and_grad_buffer.py, wait_for_previous_grad_reduce] */
static void on_their_way(struct put *p, const struct stage *s,
                         uint32_t position)
{
    const uint64_t above = s->before[s->n].elems - s->before[position].elems;
    const uint64_t own = s->states[stage_block(s, position)].elems;
    PUT(p, TERM_REDUCE_TMP, "whole gradients, on their way to the shards",
        F("elements", min_u64(above, MEGATRON_FSDP_QUEUE_ELEMS + own)),
        F("bytes per gradient", dtype_size(s->run->prec.grad)));
}

/* ---- moments ---- */

bool megatron_adds_later(const struct run *run)
{
    return run->engine == ENGINE_MEGATRON;
}

/* Megatron-Bridge gives a checkpoint over frozen words a leaf for its input
 * (src/megatron/bridge/peft/recompute.py), which the graph of the last result
 * names, with its gradient, until the next result is there. */
static void named_leaf(struct put *p, const struct stage *s)
{
    if (!run_has_bridge_adapters(s->run) || !s->embed || s->layers == 0
        || s->run->recompute != RECOMP_FULL
        || s->run->schedule == SCHED_INTERLEAVED)
        return;
    PUT(p, TERM_HANDED_OVER, "the last input of layers and its gradient",
        F("tensors", 2),
        F("bytes of hidden states", s->walk[stage_block(s, 1)].received));
}

void megatron_later(struct put *p, const struct stage *s, uint32_t position,
                    bool back)
{
    handed_over(p, s, back ? 1 : 2);
    if (!back)
        named_leaf(p, s);
    replayed(p, s, flying(s));
    if (!back)
        named(p, s, position + 1);
    if (s->deferred.micros > 0)
        deferred_put(p, s, position, back, true, hidden_bytes(s));
}

void megatron_forward(struct put *p, const struct stage *s, uint32_t position)
{
    megatron_later(p, s, position, false);
    if (is_fsdp(s->run))
        gathered(p, s, position, position + 1);
}

void megatron_backward(struct put *p, const struct stage *s, uint32_t position,
                       bool later)
{
    if (later)
        megatron_later(p, s, position, true);
    else if (s->deferred.micros > 0)
        deferred_put(p, s, position, true, false, hidden_bytes(s));
    named_above(p, s, position);
    if (!is_fsdp(s->run))
        return;
    gathered(p, s, position, position == 0 ? s->n : position - 1);
    on_their_way(p, s, position);
}

void megatron_reduce(struct put *p, const struct stage *s)
{
    if (is_fsdp(s->run) && s->n > 0)
        on_their_way(p, s, 0);
}

/* Tensors move until they are offload_ratio of the rank's range: what stays is
 * less by up to one tensor (hybrid_optimizer.py,
 * _get_sub_optimizer_param_groups). */
void megatron_stays(struct stage *s)
{
    const struct run *run = s->run;
    if (run->engine != ENGINE_MEGATRON || run->offload_optimizer == OFFLOAD_NONE
        || !(run->offload_ratio < 1))
        return;
    s->stays = (uint64_t)((1 - run->offload_ratio) * (double)engine_share(s));
}
