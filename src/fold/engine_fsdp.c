/*
 * What FSDP gathers and reduces around a block: its units, the root, the copies
 * on their way. Facts from PyTorch 2.x, FSDP1 and fully_shard.
 * [docs/method.md eq. gather, eq. buckets]
 */
#include "fold/engine_private.h"

#include "data/constants.h"

#include "base/banned.h"

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
uint64_t fsdp_root_wgrads(const struct stage *s)
{
    uint64_t bytes = 0;
    if (s->embed)
        bytes += s->walk[s->p->embed].wgrad;
    if (s->head && !ends_apart(s))
        bytes += s->walk[s->p->head].wgrad;
    return bytes - s->tied_here;
}

uint64_t fsdp_root_elems(const struct stage *s)
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
void fsdp_root_grads(struct put *p, const struct stage *s, uint32_t position)
{
    if (s->head && position + 1 < s->n && !ends_apart(s))
        PUT(p, TERM_WGRAD_TMP, "the head's whole gradients, reduced last",
            F("bytes", s->walk[s->p->head].wgrad));
}

/* Elements of this rank whose gradients are reduced: those of the layers above,
 * after the first micro-batch all. */
uint64_t fsdp_reduced(const struct stage *s, uint32_t position, bool later)
{
    if (!engine_shards_come(s->run))
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
    if (engine_shards_offloaded(s->run) && s->run->engine == ENGINE_FSDP)
        PUT(p, TERM_PREFETCHED, "its shard, on the way from the CPU",
            F("bytes", div_up(whole, s->run->shard)));
}

void fsdp_forward(struct put *p, const struct stage *s, uint32_t position)
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

void fsdp_backward(struct put *p, const struct stage *s, uint32_t position)
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
