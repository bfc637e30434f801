/*
 * Time of an optimizer step on the rank that computes longest: its passes over
 * its blocks, the pipeline around them, and the optimizer; messages between
 * replicas are time_replicas.c's. [docs/method.md eq. step-time]
 */
#include "fold/time_step.h"
#include "fold/engine_private.h"
#include "fold/fold.h"
#include "fold/schedule.h"

#include <math.h>
#include <string.h>

#include "base/banned.h"

/* For a layer that Megatron runs again: states of random generators are read
 * and written, which no kernel does, so that each call takes a start at most. Of a
 * checkpoint 8 (the CPU's and the GPU's: read forward, read again, set, set back), of
 * the dropout that forks them 9 (core/tensor_parallel/random.py @d98e8a64, fork: 4
 * of the GPU's, and the CPU's read twice and compared, in 3 operations). */
#define CHECKPOINT_CALLS 8
#define FORK_CALLS 9
#define HOST_CHECKPOINT_S ((CHECKPOINT_CALLS + FORK_CALLS) * HOST_FORWARD_S)

static void add(struct pass *sum, const struct pass *x, double times)
{
    for (int i = 0; i < TIME_PARTS; i++)
        sum->part[i] += times * x->part[i];
    sum->kernels += times * x->kernels;
    sum->messages += times * x->messages;
    sum->again += times * x->again;
    sum->checkpoints += times * x->checkpoints;
}

/* ---- a stage's passes ---- */

/* What is run again is part of backward; messages stay what they are. */
static void add_again(struct pass *back, const struct pass *again, double times)
{
    for (int i = 0; i < TIME_PARTS; i++) {
        const bool message = i == TIME_TP || i == TIME_CP || i == TIME_EP;
        back->part[message ? i : TIME_AGAIN] += times * again->part[i];
    }
    back->again += times * again->kernels;
    back->messages += times * again->messages;
}

/* A layer that Megatron's own checkpoint runs again. */
static bool forks_random_states(const struct run *run, const struct block *b)
{
    return run_is_megatron(run) && run->recompute == RECOMP_FULL
           && b->kind == BLOCK_LAYER;
}

static void add_blocks(struct chunk *to, const struct step_clock *s,
                       const struct counts *n)
{
    for (uint32_t b = 0; b < s->c.p->n_blocks; b++) {
        const struct block_time *t = &s->block[b];
        if (n->all[b] == 0)
            continue;
        add(&to->forward, &t->forward, n->all[b]);
        add(&to->input, &t->input, n->all[b]);
        add(&to->weight, &t->weight, n->all[b]);
        if (n->again[b] == 0)
            continue;
        add_again(&to->input, &t->again, n->again[b]);
        if (forks_random_states(s->c.run, &s->c.p->block[b]))
            to->input.checkpoints += n->again[b];
    }
}

/* Of a rank's passes, forward or backward, those beside another of the other
 * kind. As many forwards as are in flight have run before there is a backward,
 * and as many backwards are left when there is no forward (schedule_overlapped):
 * so many are alone. DualPipe's are all taken to meet. */
static double share_beside(const struct run *run, uint64_t rank)
{
    if (!run->ep_overlap)
        return 1;
    const double all = (double)(run->grad_accum * run_chunks(run));
    return 1 - fmin(1, (double)stage_in_flight(run, rank) / all);
}

/* Messages to experts run beside another micro-batch's pass the other way. */
static void cover_experts(struct chunk *k, double beside)
{
    const double sent = k->forward.part[TIME_EP] + k->input.part[TIME_EP];
    const double computed = pass_total(&k->forward) + pass_total(&k->input)
                            + pass_total(&k->weight) - sent;
    const double covered = beside * fmin(sent, computed);
    const double left = sent > 0 ? (sent - covered) / sent : 0;
    k->forward.part[TIME_EP] *= left;
    k->input.part[TIME_EP] *= left;
    k->input.part[TIME_SLOWED] += covered * SLOWED_INSIDE;
}

double pass_starts(const struct pass *p, double per_kernel)
{
    return p->kernels * per_kernel + p->again * HOST_FORWARD_S
           + p->messages * HOST_MESSAGE_S + p->checkpoints * HOST_CHECKPOINT_S;
}

/* Products of weights' gradients are started between the others. */
static void host(struct chunk *k, double scale)
{
    const double there = scale * pass_starts(&k->forward, HOST_FORWARD_S)
                         - pass_total(&k->forward);
    const double back = scale
                            * (pass_starts(&k->input, HOST_BACKWARD_S)
                               + pass_starts(&k->weight, HOST_BACKWARD_S))
                        - pass_total(&k->input) - pass_total(&k->weight);
    k->forward.part[TIME_HOST] += fmax(0, there);
    k->input.part[TIME_HOST] += fmax(0, back);
}

/* Where the layers of a chunk lie, and whose stage of the model it is. */
struct place {
    uint64_t first, layers;
    uint64_t before; /* layers of the same rank in chunks before it */
    bool embed, head;
};

/* The first layers of a rank are the recomputed ones; embedding and head. */
static struct counts count_blocks(const struct step_clock *s,
                                  const struct place *at)
{
    const struct run *run = s->c.run;
    const struct program *p = s->c.p;
    const bool some =
        run->recompute == RECOMP_FULL || run->recompute == RECOMP_OPS;
    struct counts n = { { 0 }, { 0 } };
    for (uint64_t l = 0; l < at->layers && at->first + l < p->layers; l++) {
        const uint32_t b = p->layer_block[at->first + l];
        n.all[b]++;
        n.again[b] += !some || at->before + l < run->recompute_layers;
    }
    if (at->embed)
        n.all[p->embed]++, n.again[p->embed]++;
    if (at->head)
        n.all[p->head]++, n.again[p->head]++;
    return n;
}

static double sent_bytes(const struct program *p)
{
    return (double)p->tensor[p->block[p->layer_block[0]].input].bytes;
}

/* Parts of checkpoints, which nothing hides. */
static void gather_checkpoints(struct pass *back, const struct step_clock *s,
                               const struct counts *n)
{
    const struct run *run = s->c.run;
    double layers = 0;
    for (uint32_t b = 0; b < s->c.p->n_blocks; b++)
        layers += s->c.p->block[b].kind == BLOCK_LAYER ? n->again[b] : 0;
    back->part[TIME_TP] +=
        layers / (double)max_u64(run->recompute_granularity, 1)
        * time_wire(&s->c, WIRE_ALL_GATHER, (struct ranks){ run->tp, 1 },
                    sent_bytes(s->c.p));
}

static bool remakes(const struct run *run)
{
    return run->recompute == RECOMP_FULL && schedule_keeps_graph(run);
}

/* In the second half of a backward that is split each weight's gradient has its
 * layer run again (walk_weights.c): the share of backwards that are. */
static void add_remade(struct pass *to, const struct step_clock *s,
                       const struct counts *n, double share)
{
    const struct program *p = s->c.p;
    for (uint32_t b = 0; b < p->n_blocks; b++)
        if (n->again[b] > 0)
            add_again(to, &s->block[b].again,
                      share * n->again[b] * ops_with_weights(p, &p->block[b]));
}

/* One of a rank's, as it takes on the average of micro-batches. */
static void chunk_of(struct chunk *k, const struct step_clock *s,
                     const struct counts *n, uint64_t rank, double split)
{
    const struct run *run = s->c.run;
    *k = (struct chunk){ 0 };
    add_blocks(k, s, n);
    if (split > 0)
        add_remade(&k->weight, s, n, split);
    if (run->distributes_saved)
        gather_checkpoints(&k->input, s, n);
    if (schedule_is_dual(run) || run->schedule == SCHED_DUALPIPE_V
        || run->ep_overlap)
        cover_experts(k, share_beside(run, rank));
    host(k, run->scale[SPEED_HOST]);
}

/* ---- the pipeline ---- */

static double send_seconds(const struct step_clock *s)
{
    return time_exchange_send(&s->c, sent_bytes(s->c.p));
}

/* What a stage does to what its neighbours send. */
static void add_arrivals(struct chunk *k, const struct step_clock *s,
                         bool first, bool last)
{
    const double bytes = sent_bytes(s->c.p);
    if (s->c.run->pp == 1)
        return;
    if (!first)
        time_exchange_before(&k->forward, &k->input, &s->c, bytes);
    if (!last)
        time_exchange_after(&k->forward, &k->input, &s->c, bytes);
}

/* ---- the optimizer ---- */

static void add_share(struct shard_of *sum, const struct shard_of *own,
                      double times)
{
    sum->elems += times * own->elems;
    sum->moment_bytes += times * own->moment_bytes;
    sum->coded += times * own->coded;
    sum->tensors += times * own->tensors;
    sum->whole += times * own->whole;
    sum->whole_tensors += times * own->whole_tensors;
    sum->waited_s += times * own->waited_s;
}

/* Of the blocks of a chunk. */
static struct shard_of own_of(const struct step_clock *s,
                              const struct counts *n)
{
    struct shard_of sum = { .elems = 0 };
    for (uint32_t b = 0; b < s->c.p->n_blocks; b++)
        if (n->all[b] > 0)
            add_share(&sum, &s->own[b], n->all[b]);
    return sum;
}

/* What the host does not step. */
static void put_optimizer(struct time_result *out, const struct step_clock *s,
                          const struct shard_of *own)
{
    const double here = 1 - s->there.share;
    const struct update_time t = time_update(&s->c, &s->passes, own);
    out->part[TIME_OPTIMIZER] += here * t.gpu;
    out->part[TIME_HOST] += here * t.host;
    if (s->c.log == NULL)
        return;
    s->c.log->own = *own;
    s->c.log->passes = s->passes;
    s->c.log->here = here;
}

/* ---- the step ---- */

static void put_pass(struct time_result *out, const struct pass *p, double m)
{
    for (int i = 0; i < TIME_PARTS; i++)
        out->part[i] += m * p->part[i];
}

static void put_chunk(struct time_result *out, const struct chunk *k, double m)
{
    put_pass(out, &k->forward, m);
    put_pass(out, &k->input, m);
    put_pass(out, &k->weight, m);
}

static bool time_is_known(const struct run *run)
{
    return run->peak_flop_s > 0 && run->grad_accum > 0;
}

/* The chunks of a rank, or of all: one after the other in the order of layers. */
static void place_stages(struct place *at, const struct run *run)
{
    const uint64_t n = pipe_stages(run);
    uint64_t first = 0;
    for (uint64_t i = 0; i < n; i++) {
        const bool up = run_folds(run) && i >= run->pp;
        const uint64_t rank = up ? n - 1 - i : i % run->pp;
        const uint64_t chunk = i / run->pp;
        const uint64_t low = run_layers_before(run, rank, chunk);
        const uint64_t high = run_layers_before(run, rank, chunk + 1);
        at[i] = (struct place){ .first = first,
                                .layers = high - low,
                                .before = low,
                                .embed = i == 0,
                                .head = i == n - 1 };
        first += high - low;
    }
}

static void add_place_weights(struct weights *w, const struct step_clock *s,
                              const struct counts *n)
{
    for (uint32_t b = 0; b < s->c.p->n_blocks; b++)
        for (uint32_t i = 0; i < n->all[b]; i++)
            replicas_add_weights(w, &s->states[b]);
}

/* Bytes of a micro-batch's checkpoints that wait beside the GPU. */
static double checkpoints_away(const struct step_clock *s,
                               const struct counts *n)
{
    if (s->c.run->offload_activations == OFFLOAD_NONE
        || s->c.run->away_layers > 0)
        return 0;
    double layers = 0, bytes = 0;
    const enum away_how how = run_away(s->c.run);
    for (uint32_t b = 0; b < s->c.p->n_blocks; b++)
        if (how != AWAY_MODULES || s->c.p->block[b].kind == BLOCK_LAYER)
            bytes += n->all[b] * (double)s->away[b];
    if (how == AWAY_TENSORS || how == AWAY_MODULES)
        return bytes;
    for (uint32_t b = 0; b < s->c.p->n_blocks; b++)
        layers += s->c.p->block[b].kind == BLOCK_LAYER ? n->again[b] : 0;
    if (s->c.run->distributes_saved)
        layers /= (double)s->c.run->tp;
    return layers * sent_bytes(s->c.p) + bytes;
}

/* Of a rank's layers, all but the last go where its backward follows at once. */
static double layers_that_go(const struct run *run, uint64_t rank)
{
    const double layers = (double)run->stage_layers[rank];
    return run_away(run) == AWAY_MODULES && layers > 0
                   && stage_in_flight(run, rank) <= 1
               ? (layers - 1) / layers
               : 1;
}

/* Of layers that Transformer Engine moves, the average; what the host takes is
 * theirs by time. */
static void average_layer(struct resident *x, const struct step_clock *s,
                          const struct place *at, const struct counts *n)
{
    const struct program *p = s->c.p;
    double all[2] = { 0, 0 }, layers[2] = { 0, 0 }, bytes = 0;
    for (uint32_t b = 0; b < p->n_blocks; b++) {
        const struct block_time *t = &s->block[b];
        const double pass[2] = { pass_total(&t->forward),
                                 pass_total(&t->input)
                                     + pass_total(&t->weight) };
        const bool layer = p->block[b].kind == BLOCK_LAYER;
        for (int i = 0; i < 2; i++) {
            all[i] += n->all[b] * pass[i];
            layers[i] += layer ? n->all[b] * pass[i] : 0;
        }
        bytes += layer ? n->all[b] * (double)s->away[b] : 0;
    }
    const double each = 1 / (double)at->layers;
    x->layer_bytes = bytes * each;
    x->layer_forward = x->forward * each * layers[0] / fmax(all[0], 1e-30);
    x->layer_back = x->back * each * layers[1] / fmax(all[1], 1e-30);
}

/* For an explanation: of the busiest rank's chunks. */
static void note_blocks(const struct step_clock *s, const struct counts *n,
                        double micros)
{
    struct time_log *log = s->c.log;
    if (log == NULL)
        return;
    log->micros = micros;
    for (uint32_t b = 0; b < s->c.p->n_blocks; b++) {
        log->block[b].time = s->block[b];
        log->block[b].count += n->all[b];
        log->block[b].again += n->again[b];
    }
}

/* What the busiest rank does, its replicas, its optimizer, and its host. The
 * seconds of its passes. */
static double put_rank(struct time_result *out, const struct step_clock *s,
                       const struct place *at, uint64_t rank)
{
    const struct run *run = s->c.run;
    const bool dual = schedule_is_dual(run);
    const uint64_t chunks = dual ? 2 : run_chunks(run);
    const double m = (double)run->grad_accum / (dual ? 2 : 1);
    struct chunk whole = { 0 };
    struct weights w = { 0 };
    struct shard_of own = { .elems = 0 };
    double kept = 0;
    out->stage = rank;
    for (uint64_t c = 0; c < chunks; c++) {
        const struct place *here = &at[pipe_stage(run, rank, c)];
        struct chunk k;
        const struct counts has = count_blocks(s, here);
        chunk_of(&k, s, &has, rank,
                 remakes(run) ? schedule_split_share(run, rank, c) : 0);
        add_arrivals(&k, s, here->embed, here->head);
        put_chunk(out, &k, m);
        note_blocks(s, &has, m);
        add(&whole.forward, &k.forward, 1);
        add(&whole.input, &k.input, 1);
        add(&whole.weight, &k.weight, 1);
        add_place_weights(&w, s, &has);
        const struct shard_of some = own_of(s, &has);
        add_share(&own, &some, 1);
        kept += checkpoints_away(s, &has);
        if (run_shards_weights(run))
            replicas_gather(out, s, &has, &k);
    }
    if (!run_shards_weights(run))
        replicas_exchange(out, s, &w, &whole);
    put_optimizer(out, s, &own);
    const double busy = m
                        * (pass_total(&whole.forward) + pass_total(&whole.input)
                           + pass_total(&whole.weight));
    if (!run_offloads(run))
        return busy;
    const double n = (double)replicas_shards(run, false).n;
    const double experts = (double)replicas_shards(run, true).n;
    struct resident x = { .there = &s->there,
                          .own_elems = own.elems,
                          .shard_bytes = w.bytes / n + w.expert_bytes / experts,
                          .checkpoint_bytes = kept * layers_that_go(run, rank),
                          .forward = pass_total(&whole.forward),
                          .back = pass_total(&whole.input)
                                  + pass_total(&whole.weight) };
    if (run->away_layers > 0) {
        const struct counts has = count_blocks(s, &at[0]);
        average_layer(&x, s, &at[0], &has);
    }
    time_offload(out, &s->c, &x);
    return busy;
}

/* One after the other of chunks with the same layers. */
static bool same_layers(const struct program *p, const struct place *a,
                        const struct place *b)
{
    return a->layers == b->layers && a->before == b->before
           && a->embed == b->embed && a->head == b->head
           && b->first + b->layers <= p->layers
           && memcmp(&p->layer_block[a->first], &p->layer_block[b->first],
                     (size_t)a->layers)
                  == 0;
}

/* The gradient of the head's weight, of a micro-batch. */
static double deferred_seconds(const struct step_clock *s)
{
    const struct program *p = s->c.p;
    const struct op *op = program_words_product(p);
    struct block_time t;
    if (s->c.run->deferred_wgrads == 0 || op == NULL)
        return 0;
    time_op(&t, &s->c, op);
    return pass_total(&t.weight);
}

/* Each stage once; the busiest rank's parts are told, and what it waits for. */
static bool walk_stages(struct time_result *out, const struct step_clock *s,
                        const struct rank_order *order, struct arena *a)
{
    const struct run *run = s->c.run;
    const uint64_t n = pipe_stages(run);
    const bool again = remakes(run);
    struct place *at = ARENA_NEW(a, struct place, (size_t)n);
    struct pipe_pass *pass = ARENA_NEW(a, struct pipe_pass, (size_t)n);
    if (at == NULL || pass == NULL)
        return false;
    place_stages(at, run);
    if (run->pp == 1) { /* it waits for nobody */
        put_rank(out, s, at, 0);
        return true;
    }
    for (uint64_t i = 0; i < n; i++) {
        struct chunk k;
        if (i > 0 && !run->ep_overlap /* more of a rank's are alone */
            && same_layers(s->c.p, &at[i - 1], &at[i])) {
            pass[i] = pass[i - 1];
            continue;
        }
        const struct counts has = count_blocks(s, &at[i]);
        /* ranks matter to 1F1B's chunks alone, which go round them */
        chunk_of(&k, s, &has, i % run->pp, 0);
        add_arrivals(&k, s, i == 0, i + 1 == n);
        pass[i] =
            (struct pipe_pass){ pass_total(&k.forward), pass_total(&k.input),
                                pass_total(&k.weight), 0 };
        if (!again)
            continue;
        struct chunk split;
        chunk_of(&split, s, &has, i % run->pp, 1);
        pass[i].remade = pass_total(&split.input) - pass_total(&k.input)
                         + pass_total(&split.weight) - pass_total(&k.weight);
    }
    const struct pipe x = { .run = run,
                            .at = pass,
                            .order = order,
                            .remakes = again,
                            .deferred_s = deferred_seconds(s),
                            .send = send_seconds(s) };
    const double busy = put_rank(out, s, at, pipe_busiest(&x));
    replicas_sum_tied(out, s);
    const double all = run->fast ? pipe_closed(&x, a) : pipe_time(&x, a);
    if (all < 0)
        return false;
    out->part[TIME_BUBBLE] = fmax(0, all - busy);
    out->bubble = out->part[TIME_BUBBLE] / busy;
    return true;
}

bool fold_time(struct time_result *out, const struct program *p,
               const struct run *run, const struct memory_result *memory,
               struct arena *a)
{
    return fold_time_logged(out, p, run, memory, a, NULL);
}

/* Of a tied tensor the embedding's block has it, not the head's, but where each is
 * on a rank of its own, which reduces and updates its copy. */
static bool counts_tied(const struct step_clock *s, uint32_t b)
{
    return b != s->c.p->head || run_parts_words(s->c.run);
}

static void find_states(struct step_clock *s, uint32_t b,
                        const struct block_states *states)
{
    const struct program *p = s->c.p;
    if (states != NULL && (b != p->head || !states[b].ties))
        s->states[b] = states[b];
    else
        states_of_block(&s->states[b], p, &p->block[b], s->c.run,
                        counts_tied(s, b));
}

/* Trained, in the blocks of a stage on the average. */
static double trained_elems(const struct step_clock *s)
{
    double sum = 0;
    for (uint32_t b = 0; b < s->c.p->n_blocks; b++)
        sum += (double)program_times(s->c.p, b)
               * ((double)s->states[b].dense_elems
                  + (double)s->states[b].expert_elems);
    return sum / (double)s->c.run->pp;
}

static double moved_seconds(const struct block_time *t)
{
    return t->forward.part[TIME_MEMORY] + t->input.part[TIME_MEMORY]
           + t->weight.part[TIME_MEMORY];
}

bool fold_time_logged(struct time_result *out, const struct program *p,
                      const struct run *run, const struct memory_result *memory,
                      struct arena *a, struct time_log *log)
{
    *out = (struct time_result){ 0 };
    if (!time_is_known(run))
        return true;
    struct step_clock s;
    clock_init(&s.c, p, run);
    struct known_products known = { .at = { { .seconds = 0 } } };
    s.c.known = &known;
    time_blocks(s.block, &s.c);
    optimizer_passes_of(&s.passes, run);
    for (uint32_t b = 0; b < p->n_blocks; b++)
        find_states(&s, b, memory == NULL ? NULL : memory->states);
    const double trained = trained_elems(&s);
    for (uint32_t b = 0; b < p->n_blocks; b++) {
        const double before = log == NULL ? 0 : moved_seconds(&s.block[b]);
        time_engine(&s.block[b], &s.c, &p->block[b], &s.states[b], trained);
        s.own[b] = time_own_share(run, &s.states[b]);
        s.own[b].waited_s =
            time_waited(&s.c, &s.passes, &p->block[b], counts_tied(&s, b));
        if (log != NULL)
            log->block[b].copies = moved_seconds(&s.block[b]) - before;
    }
    for (uint32_t b = 0; b < p->n_blocks; b++)
        s.away[b] = 0;
    const bool away = run_away(run) != AWAY_NOTHING || run_unloads_head(run);
    if (away && !time_away_bytes(s.away, p, run, a))
        return false;
    if (!time_beside_gpu(&s.there, p, run, a))
        return false;
    s.c.log = log; /* blocks are told apart from it */
    if (!walk_stages(out, &s, memory == NULL ? NULL : memory->order, a))
        return false;
    for (int i = 0; i < TIME_PARTS; i++)
        out->step_s += out->part[i];
    out->exposed_s = out->part[TIME_TP] + out->part[TIME_CP]
                     + out->part[TIME_EP] + out->part[TIME_DP];
    out->measured = s.c.measured;
    out->source = s.c.speed->source;
    out->known = isfinite(out->step_s) && out->step_s > 0;
    return true;
}

#define TIME_PART_KEY(id, key, text, rule) key,
#define TIME_PART_TEXT(id, key, text, rule) text,
#define TIME_PART_RULE(id, key, text, rule) rule,

const char *time_part_key(enum time_part part)
{
    static const char *const keys[] = { TIME_PART_MAP(TIME_PART_KEY) };
    return part < TIME_PARTS ? keys[part] : "";
}

const char *time_part_label(enum time_part part)
{
    static const char *const labels[] = { TIME_PART_MAP(TIME_PART_TEXT) };
    return part < TIME_PARTS ? labels[part] : "";
}

const char *time_part_rule(enum time_part part)
{
    static const char *const rules[] = { TIME_PART_MAP(TIME_PART_RULE) };
    return part < TIME_PARTS ? rules[part] : "";
}
