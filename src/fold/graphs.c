/*
 * CUDA graphs of Megatron's layers: what of them rests, and which of a run's
 * steps needs most. A layer's graph has an input of its own for each micro-batch
 * in flight, made before it is captured, as are the gradients that come to its
 * results, one of a kind. [Megatron-LM d98e8a64 core/transformer/cuda_graphs.py,
 * TECudaGraphHelper, core/transformer/transformer_layer.py,
 * get_layer_static_inputs; transformer_engine/pytorch/graph.py at d0067d0d;
 * docs/method.md eq. graphs]
 */
#include "fold/graphs.h"

#include "data/constants.h"
#include "fold/allocator.h"
#include "fold/schedule.h"

#include <string.h>

#include "base/banned.h"

/* ---- what a block's graphs are ---- */

/* Operations one after another that are in one. */
static uint64_t graphs_of(const struct stage *s, uint32_t block)
{
    const struct block *b = &s->p->block[block];
    const struct op *op = &s->p->op[b->op_first];
    uint64_t n = 0;
    for (uint32_t k = 0; k < b->op_count; k++)
        n += op[k].graphed && (k == 0 || !op[k - 1].graphed);
    return n;
}

static bool is_made_in_graph(const struct stage *s, const struct block *b,
                             tensor_id id)
{
    const struct op *op = &s->p->op[b->op_first];
    for (uint32_t k = 0; k < b->op_count; k++)
        for (unsigned i = 0; i < op[k].n_out; i++)
            if (op[k].out[i] == id)
                return op[k].graphed;
    return false;
}

/* A result, once: the first operation outside that takes it, or none does. */
static bool is_first_use(const struct stage *s, const struct block *b,
                         uint32_t at, unsigned nth)
{
    const struct op *op = &s->p->op[b->op_first];
    const tensor_id id = op[at].in[nth];
    for (uint32_t k = 0; k <= at; k++)
        for (unsigned i = 0; i < (k == at ? nth : op[k].n_in); i++)
            if (op[k].in[i] == id && !op[k].graphed)
                return false;
    return true;
}

static uint64_t gradient_of(const struct stage *s, tensor_id id)
{
    const struct tensor *t = &s->p->tensor[id];
    return t->needs_grad ? div_up(t->bytes, ALLOC_ROUND) * ALLOC_ROUND : 0;
}

/* Gradients that come to what the graphs of a block give. */
static uint64_t result_gradients(const struct stage *s, uint32_t block)
{
    const struct block *b = &s->p->block[block];
    const struct op *op = &s->p->op[b->op_first];
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < b->op_count; k++)
        for (unsigned i = 0; i < op[k].n_in && !op[k].graphed; i++)
            if (op[k].kind != OP_RELEASE && is_made_in_graph(s, b, op[k].in[i])
                && is_first_use(s, b, k, i))
                bytes += gradient_of(s, op[k].in[i]);
    if (b->kind == BLOCK_LAYER && is_made_in_graph(s, b, b->output))
        bytes += gradient_of(s, b->output);
    return bytes;
}

/* Whether PyTorch's own products run there. */
static bool multiplies(const struct stage *s, uint32_t block)
{
    const struct block *b = &s->p->block[block];
    const struct op *op = &s->p->op[b->op_first];
    for (uint32_t k = 0; k < b->op_count; k++)
        if (op[k].graphed && op[k].kind == OP_MATMUL)
            return true;
    return false;
}

/* ---- inputs ---- */

/* Of a chunk, its layers; of all that are in flight, at most. */
struct flying {
    const struct stage *s;
    uint64_t now, most;
};

static uint64_t graphs_between(const struct stage *s, uint32_t from,
                               uint32_t to)
{
    uint64_t n = 0;
    for (uint32_t i = from; i < to; i++)
        n += graphs_of(s, stage_block(s, i));
    return n;
}

/* Those of a chunk whose backward is over are taken again. */
static bool fly(void *ctx, const struct slot *slot)
{
    struct flying *f = ctx;
    const uint64_t n =
        graphs_between(f->s, stage_chunk_first(f->s, slot->chunk),
                       stage_chunk_first(f->s, slot->chunk + 1));
    if (slot->kind == SLOT_FORWARD)
        f->now += n;
    else
        f->now -= n;
    f->most = max_u64(f->most, f->now);
    return true;
}

static uint64_t inputs_most(const struct stage *s)
{
    struct flying f = { .s = s };
    if (s->chunks == 1)
        return graphs_between(s, 0, s->n) * s->in_flight;
    const uint64_t micros = schedule_micros(s->run);
    schedule_interleaved(s, &micros, fly, &f);
    return f.most;
}

/* Of blocks that differ in size; those alike share theirs. */
static uint64_t all_result_gradients(const struct stage *s)
{
    uint64_t seen[BLOCK_MAX], sum = 0;
    unsigned n = 0;
    for (uint32_t i = 0; i < s->n; i = stage_row_end(s, i)) {
        const uint64_t bytes = result_gradients(s, stage_block(s, i));
        bool known = false;
        for (unsigned k = 0; k < n; k++)
            known = known || seen[k] == bytes;
        if (known || n == BLOCK_MAX)
            continue;
        seen[n++] = bytes;
        sum += bytes;
    }
    return sum;
}

void graphs_init(struct stage *s)
{
    s->graphs = (struct graphs_rest){ 0 };
    if (s->run->graph_step == STEP_EAGER)
        return;
    s->graphs.inputs = inputs_most(s);
    s->graphs.gradients = all_result_gradients(s);
    for (uint32_t i = 0; i < s->n; i = stage_row_end(s, i))
        s->graphs.multiplies =
            s->graphs.multiplies || multiplies(s, stage_block(s, i));
}

/* ---- between steps ---- */

/* As the layers get it: in 16 bits. */
static uint64_t hidden_bytes(const struct stage *s)
{
    const struct program *p = s->p;
    const struct tensor *t =
        &p->tensor[p->block[p->layer_block[s->first_layer]].input];
    return div_up(t->elems * dtype_size(DT_BF16), ALLOC_ROUND) * ALLOC_ROUND;
}

void graphs_rest(struct put *p, const struct stage *s)
{
    const struct run *run = s->run;
    const struct graphs_rest *g = &s->graphs;
    const bool attends = run->cuda_graph_scope == 0
                         || (run->cuda_graph_scope >> GRAPHED_ATTN & 1) != 0;
    if (g->inputs == 0)
        return;
    PUT(p, TERM_GRAPHS, "graphs' own inputs: hidden states",
        F("of layers and micro-batches in flight", g->inputs),
        F("bytes", hidden_bytes(s)));
    if (attends)
        PUT(p, TERM_GRAPHS, "graphs' own inputs: attention masks",
            F("of layers and micro-batches in flight", g->inputs),
            F("b", run->micro_batch), F("s/cp", run->seq_len / run->cp),
            F("s", run->seq_len));
    PUT(p, TERM_GRAPHS, "gradients that come to graphs' results",
        F("bytes", g->gradients));
    PUT(p, TERM_GRAPHS, "the last gradient that goes out of a graph",
        F("bytes", hidden_bytes(s)));
    if (g->multiplies)
        PUT(p, TERM_WORKSPACE,
            "cuBLAS workspaces of the streams that graphs warm up and are "
            "captured on",
            A("streams", GRAPH_STREAMS), A("a stream", CUBLAS_WORKSPACES),
            F("bytes", engine_cublas_workspace(run)));
}

/* ---- all steps of a run ---- */

/* What is allocated in the pool when most is: of passes, beside what rests. */
static bool find_pools(uint64_t *pool, const struct memory_result *capture,
                       const struct program *p, const struct run *run,
                       struct arena *a)
{
    struct memory_fold f;
    uint64_t layer = 0;
    if (!memory_fold_init(&f, p, run, a))
        return false;
    for (uint64_t r = 0; r < run->pp; r++) {
        const uint64_t rest = capture->stage[r].rest.total;
        struct stage s;
        stage_init(&s, &f, r, layer);
        layer += run->stage_layers[r];
        if (s.graphs.inputs > 0)
            pool[r] = div_up(max_u64(stage_passes_most(&s), rest) - rest,
                             ALLOCATOR_ROUND_SEGMENT)
                      * ALLOCATOR_ROUND_SEGMENT;
    }
    return true;
}

/* What is there once graphs run: their pool is reserved beside what the others
 * use. */
static void keep_steady(struct memory_result *out,
                        const struct memory_result *replay,
                        const uint64_t *pool)
{
    for (uint64_t r = 0; r < out->n_stages; r++) {
        struct stage_result *s = &out->stage[r];
        const struct stage_result *runs = &replay->stage[r];
        s->graph_pool = pool[r];
        s->graph_reserved = runs->reserved + pool[r];
        s->graph_rest =
            max_u64(runs->rest.total, s->rest.total) - s->rest.total;
        s->rest = runs->rest;
    }
}

bool fold_graphs(struct memory_result *out, const struct program *p,
                 struct run *run, struct arena *a, bool *over)
{
    struct memory_result *of = ARENA_NEW(a, struct memory_result, GRAPH_STEPS);
    uint64_t *pool = ARENA_NEW(a, uint64_t, (size_t)run->pp);
    enum graph_step most = STEP_CAPTURE;
    *over = false;
    if (of == NULL || pool == NULL)
        return false;
    for (unsigned i = 0; i < GRAPH_STEPS; i++) {
        run->graph_step = (enum graph_step)i;
        if (i == STEP_EAGER && run->cuda_graph_warmup_steps == 0)
            continue;
        if (!fold_memory(&of[i], p, run, a, over)
            || (i == STEP_CAPTURE && !find_pools(pool, &of[i], p, run, a)))
            return false;
        if (i == STEP_EAGER || of[i].peak > of[most].peak)
            most = run->graph_step;
    }
    run->graph_step = most;
    *out = of[most];
    keep_steady(out, &of[STEP_REPLAY], pool);
    memory_finish(out, run);
    return true;
}
