/*
 * What Megatron's last stage keeps where the gradients of its output layer's
 * weight wait for the pipeline's flush (--defer-embedding-wgrad-compute): of
 * which micro-batches, and at what time. Read at Megatron-LM d98e8a64.
 * [docs/method.md eq. deferred]
 */
#include "fold/schedule.h"

#include "base/banned.h"

/* What the product of words keeps of a micro-batch, and what its input is
 * gathered from shards into. [core/tensor_parallel/layers.py,
 * ColumnParallelLinear.forward, LinearWithGradAccumulationAndAsyncCommunication]
 */
void deferred_init(struct stage *s)
{
    const struct program *p = s->p;
    const uint64_t shards = s->run->sequence_parallel ? s->run->tp : 1;
    const struct op *op = s->head && s->run->deferred_wgrads > 0
                              ? program_words_product(p)
                              : NULL;
    if (op == NULL) {
        s->deferred.micros = 0;
        return;
    }
    const uint64_t whole = p->tensor[op->in[0]].bytes;
    s->deferred = (struct deferred){ .micros = s->run->deferred_wgrads,
                                     .input = whole / shards,
                                     .gradient = p->tensor[op->out[0]].bytes,
                                     .whole = shards > 1 ? whole : 0 };
}

/* Micro-batches that have run the head's backward before the last forward of a
 * chunk begins: groups of as many as there are stages go through the chunks. */
static uint64_t before_last_forward(const struct stage *s, uint32_t chunk)
{
    const uint64_t micros = s->run->grad_accum, pp = s->run->pp;
    if (s->chunks == 1)
        return micros - 1;
    const uint64_t round = pp * s->chunks;
    const uint64_t forwards = micros * s->chunks - round + (chunk + 1) * pp;
    const uint64_t back = forwards - min_u64(forwards, s->in_flight);
    return back / round * pp + min_u64(back % round, pp);
}

/* The same at a moment of the step when there are most of them: of the head's
 * own backward they are there when it is over. */
static uint64_t done_at(const struct stage *s, uint32_t position, bool back,
                        bool later)
{
    const uint32_t chunk = stage_chunk(s, position);
    const bool own = chunk + 1 == s->chunks;
    if (!back)
        return later ? before_last_forward(s, chunk) : 0;
    if (later)
        return s->run->grad_accum - (position + 1 == s->n ? 1 : 0);
    if (own)
        return position + 1 == s->n ? 0 : 1;
    return s->run->pp;
}

/* The input is no copy without a graph: that leads to what the stage received
 * and to the gradient of it. Of the micro-batch at work the stage has both
 * anyway; without chunks, what of the one before has names still is
 * engine_megatron.c's, handed_over. */
static uint64_t hidden_tensors(const struct stage *s, uint32_t position,
                               bool back, uint64_t done)
{
    const uint64_t limit = s->deferred.micros;
    const bool below =
        stage_chunk(s, position) + 1 == s->chunks && position + 1 < s->n;
    const uint64_t own = back && below && done <= limit ? 1 : 0;
    const uint64_t others = min_u64(done, limit) - own;
    const bool named = s->chunks == 1 && s->run->grad_accum - 1 <= limit;
    return others == 0 || !named ? 2 * others : 2 * others - (back ? 1 : 2);
}

void deferred_put(struct put *p, const struct stage *s, uint32_t position,
                  bool back, bool later, uint64_t hidden)
{
    const uint64_t done = done_at(s, position, back, later);
    const uint64_t n = min_u64(done, s->deferred.micros);
    PUT(p, TERM_DEFERRED, "gradients of logits, for the head's weight",
        A("micro-batches", n), F("bytes of one", s->deferred.gradient));
    PUT(p, TERM_DEFERRED, "inputs of the output layer, for its weight",
        A("micro-batches", n), F("bytes of one", s->deferred.input));
    PUT(p, TERM_DEFERRED, "hidden states that these lead to, and gradients",
        A("tensors", hidden_tensors(s, position, back, done)),
        F("bytes of hidden states", hidden));
}

/* The flush gathers inputs in turn into two buffers that stay (core/utils.py,
 * drain_embedding_wgrad_compute). */
void deferred_rest(struct put *p, const struct stage *s)
{
    enum { BUFFERS = 2 };
    PUT(p, TERM_WORKSPACE, "inputs gathered for deferred weight gradients",
        A("buffers", min_u64(s->deferred.micros, BUFFERS)),
        F("bytes", s->deferred.whole));
}
