/*
 * Chunks of a stage's layers, groups of layers under one checkpoint, and what is
 * in flight beside a position by the order of the schedule.
 * [docs/method.md eq. pipeline]
 */
#include "fold/overlap.h"

#include "base/banned.h"

static uint64_t find_first_layer(const struct stage *s, uint64_t chunk)
{
    return s->low_layers != s->layers
               ? s->low_layers
               : run_layers_before(s->run, s->index, chunk);
}

void stage_chunks_place(struct stage *s)
{
    for (uint32_t c = 1; c < s->chunks; c++)
        s->chunk_first[c] =
            (uint32_t)find_first_layer(s, c) + (s->embed ? 1u : 0u);
    for (uint32_t i = 0, c = 0; i < s->n; i++) {
        while (c + 1 < s->chunks && i >= s->chunk_first[c + 1])
            c++;
        s->at[i].chunk = c;
    }
}

static uint64_t chunk_first_layer(const struct stage *s, uint32_t chunk)
{
    if (chunk == 0)
        return 0;
    return chunk == s->chunks ? s->layers
                              : stage_layer(s, s->chunk_first[chunk]);
}

const struct prefix *stage_chunk_before(const struct stage *s,
                                        uint32_t position)
{
    const uint32_t last = position < s->n ? position : s->n - 1;
    return &s->before[stage_chunk_first(s, stage_chunk(s, last))];
}

uint64_t stage_others_kept(const struct stage *s, uint32_t position,
                           enum slot_kind kind, bool later)
{
    const uint32_t chunk = stage_chunk(s, position);
    return s->others[2 * (SLOT_KINDS * chunk + kind) + later];
}

bool stage_happens(const struct stage *s, uint32_t position, bool back,
                   bool later)
{
    const struct run *run = s->run;
    for (unsigned k = 0; k < SLOT_KINDS && s->others != NULL; k++)
        if (back == (k != SLOT_FORWARD)
            && stage_others_kept(s, position, (enum slot_kind)k, later)
                   != NEVER)
            return true;
    if (s->others != NULL)
        return false;
    if (!later)
        return true;
    /* with no more micro-batches than fit in flight, all forwards come before
       the first backward */
    return back ? run->grad_accum > 1 : run->grad_accum > s->in_flight;
}

/* Layers of a chunk are checkpointed in groups from its first on. */
static uint64_t layer_in_chunk(const struct stage *s, uint32_t position)
{
    return stage_layer(s, position)
           - chunk_first_layer(s, stage_chunk(s, position));
}

uint32_t stage_group_first(const struct stage *s, uint32_t position)
{
    if (s->group == 1) /* as most are: no need to divide */
        return position;
    return position - (uint32_t)(layer_in_chunk(s, position) % s->group);
}

uint32_t stage_group_last(const struct stage *s, uint32_t position)
{
    if (s->group == 1)
        return position;
    const uint64_t l = stage_layer(s, position);
    const uint64_t first = l - layer_in_chunk(s, position) % s->group;
    uint64_t end = min_u64(first + s->group, s->recomputed);
    end = min_u64(end, chunk_first_layer(s, stage_chunk(s, position) + 1));
    return position + (uint32_t)(end - 1 - l);
}

bool stage_is_topmost(const struct stage *s, uint32_t position)
{
    return stage_remakes(s, position)
           && position + 1
                  == stage_chunk_first(s, stage_chunk(s, position) + 1);
}

/* Else the head's backward follows its forward at once. In a last round of fewer
 * micro-batches forwards come to it sooner, and backwards do not. */
static bool heads_wait(const struct run *run)
{
    return run->microbatch_group > 0
           && run->grad_accum % run->microbatch_group != 0;
}

static uint64_t chunk_kept(const struct stage *s, uint32_t chunk)
{
    const struct prefix *from = &s->before[stage_chunk_first(s, chunk)];
    const struct prefix *to = &s->before[stage_chunk_first(s, chunk + 1)];
    const uint64_t embed =
        s->embed && chunk == 0 ? s->walk[s->p->embed].kept : 0;
    const bool waits = s->splits || heads_wait(s->run);
    const uint64_t head = waits && s->head && chunk == s->chunks - 1
                              ? s->walk[s->p->head].kept
                              : 0;
    return to->kept_layers - from->kept_layers + to->checkpoints
           - from->checkpoints + embed + head;
}

/* What PyTorch's stages keep beside (torch/distributed/pipelining/stage.py): the
 * result to the end of the second half (backward_state), logits of the first
 * one; of the input the buffer that it came in is there all along, and its
 * gradient stays its .grad. Where the V turns a buffer is the other chunk's
 * tensor. */
static void graph_keeps(struct stage *s, uint32_t c, uint64_t border)
{
    const bool first = s->embed && c == 0;
    const bool last = s->head && c == s->chunks - 1;
    const bool turns = run_folds(s->run) && s->index + 1 == s->run->pp;
    const uint64_t result = last || (turns && c == 0) ? 0 : border;
    const uint64_t input = first ? 0 : border;
    s->chunk_kept[c] +=
        result + (last ? pipe_logits(s) : 0) - input - s->stage_input;
    s->chunk_stash[c] += result - input;
    s->chunk_apart[c] = (int64_t)result - (int64_t)input;
    s->chunk_sent[c] = first || (turns && c == 1) ? 0 : border;
    const struct prefix *from = &s->before[stage_chunk_first(s, c)];
    const struct prefix *to = &s->before[stage_chunk_first(s, c + 1)];
    const uint64_t grads = to->wgrad - from->wgrad;
    s->chunk_added[c] = fsdp_casts_later(s) ? grads : 0;
    const bool sums = fsdp_defers(s->run) && s->run->engine == ENGINE_FSDP2;
    const uint64_t sum =
        (to->elems - from->elems) * dtype_size(s->run->prec.reduce);
    s->chunk_sum[c] = sums ? sum : grads;
    s->chunk_cut[c] = sums ? sum - sum / s->run->shard : 0;
}

/* In those that are not walked no backward of DualPipe's is split, each of the
 * others. */
static void graph_init(struct stage *s, uint64_t micros)
{
    const bool all = s->run->schedule != SCHED_DUALPIPE_V;
    s->sent_before = 0;
    for (uint32_t c = 0; c < s->chunks; c++) {
        graph_keeps(s, c, pipe_border(s));
        if (all)
            s->sent_before += (s->run->grad_accum - micros) * s->chunk_sent[c];
    }
    s->sent_back = s->sent_before;
}

void stage_chunks_init(struct stage *s, struct memory_fold *f)
{
    s->chunk_kept = f->chunk_kept;
    s->chunk_stash = f->chunk_stash;
    s->chunk_apart = f->chunk_apart;
    s->chunk_sent = f->chunk_sent;
    s->chunk_added = f->chunk_added;
    s->chunk_sum = f->chunk_sum;
    s->chunk_cut = f->chunk_cut;
    s->others = f->others;
    s->lacking = f->lacking;
    s->adding = f->adding;
    for (uint32_t c = 0; c < s->chunks; c++) {
        s->chunk_kept[c] = chunk_kept(s, c);
        s->chunk_stash[c] = s->before[stage_chunk_first(s, c + 1)].stash
                            - s->before[stage_chunk_first(s, c)].stash;
    }
    for (uint32_t i = 0; i < 2 * SLOT_KINDS * s->chunks; i++)
        s->others[i] = NEVER;
    for (uint32_t i = 0; i < SLOT_KINDS * s->chunks && s->graph; i++)
        s->adding[i].kept = NEVER;
    const uint64_t micros = schedule_micros(s->run);
    if (s->graph)
        graph_init(s, micros);
    s->outputs_before = (s->run->grad_accum - micros) * pipe_outputs(s);
    s->met = f->met;
    if (s->splits)
        schedule_split_kept(s, micros, &f->order[s->index % f->orders]);
    else if (s->met != NULL)
        overlap_kept(s, micros);
    else
        schedule_interleaved_kept(s, micros, s->others);
}
