/*
 * Time of an optimizer step on the rank that computes longest: its passes over
 * its blocks, the pipeline around them, what messages between replicas leave
 * uncovered, and the optimizer. [docs/method.md eq. step-time]
 */
#include "fold/engine_private.h"
#include "fold/fold.h"
#include "fold/schedule.h"
#include "fold/time_private.h"

#include "data/constants.h"

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

/* A chunk of a rank: the layers that a micro-batch goes through at once. */
struct chunk {
    struct pass forward, input, weight;
};

struct step_clock {
    struct clock c;
    struct block_time block[BLOCK_MAX];
    struct block_states states[BLOCK_MAX];
    struct shard_of own[BLOCK_MAX];
    struct optimizer_passes passes;
    uint64_t away[BLOCK_MAX]; /* bytes that a layer sends to its host */
    struct beside_gpu there;
};

static void add(struct pass *sum, const struct pass *x, double times)
{
    for (int i = 0; i < TIME_PARTS; i++)
        sum->part[i] += times * x->part[i];
    sum->kernels += times * x->kernels;
    sum->messages += times * x->messages;
    sum->again += times * x->again;
    sum->checkpoints += times * x->checkpoints;
}

static double total(const struct pass *p)
{
    double sum = 0;
    for (int i = 0; i < TIME_PARTS; i++)
        sum += p->part[i];
    return sum;
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

/* Blocks of a chunk, and how many of them run forward again in backward. */
struct counts {
    uint32_t all[BLOCK_MAX], again[BLOCK_MAX];
};

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
    const double computed =
        total(&k->forward) + total(&k->input) + total(&k->weight) - sent;
    const double covered = beside * fmin(sent, computed);
    const double left = sent > 0 ? (sent - covered) / sent : 0;
    k->forward.part[TIME_EP] *= left;
    k->input.part[TIME_EP] *= left;
    k->input.part[TIME_SLOWED] += covered * SLOWED_INSIDE;
}

/* What the host takes to start a pass's kernels, of `per_kernel` each. */
static double starts(const struct pass *p, double per_kernel)
{
    return p->kernels * per_kernel + p->again * HOST_FORWARD_S
           + p->messages * HOST_MESSAGE_S + p->checkpoints * HOST_CHECKPOINT_S;
}

/* Products of weights' gradients are started between the others. */
static void host(struct chunk *k, double scale)
{
    const double there =
        scale * starts(&k->forward, HOST_FORWARD_S) - total(&k->forward);
    const double back = scale
                            * (starts(&k->input, HOST_BACKWARD_S)
                               + starts(&k->weight, HOST_BACKWARD_S))
                        - total(&k->input) - total(&k->weight);
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

/* ---- between replicas ---- */

/* Weights of a stage that replicas share. */
struct weights {
    double trained, bytes, expert_trained, expert_bytes;
};

static void add_weights(struct weights *w, const struct block_states *b)
{
    w->trained += (double)(b->cut_elems - b->expert_cut_elems);
    w->bytes += (double)(b->sent_bytes - b->expert_sent_bytes);
    w->expert_trained += (double)b->expert_cut_elems;
    w->expert_bytes += (double)b->expert_sent_bytes;
}

static struct ranks replicas(const struct run *run, bool experts)
{
    const uint64_t dense = run->dp * run->cp * run_copies(run);
    if (!experts)
        return (struct ranks){ dense, run->tp };
    return (struct ranks){
        max_u64(dense * run->tp / max_u64(run->ep * run->etp, 1), 1),
        run->ep * run->etp
    };
}

static struct ranks shards(const struct run *run, bool experts)
{
    struct ranks r = replicas(run, experts);
    r.n = min_u64(r.n, max_u64(experts ? run->expert_shard : run->shard, 1));
    return r;
}

/* Of a unit gathered for a pass, so many times in backward, and of its gradients.
 * `late`: when it is needed, not ahead. */
struct traffic {
    double gather, reduce, gathers_back;
    bool late;
};

/* qgZ: all-to-all in 4 bits inside a node, and of its sums between nodes. */
static double reduced_in_4_bits(const struct clock *c, double elems)
{
    const uint64_t node = c->run->gpus_per_node;
    const struct ranks inside = { node, 1 };
    const struct ranks across = { c->run->shard / node, node };
    return time_wire(c, WIRE_A2A, inside, elems / 2)
           + time_wire(c, WIRE_A2A, across, elems / 2 / (double)node);
}

/* Gradients, summed for all ranks. */
static double sum_seconds(const struct clock *c, const struct weights *w)
{
    const struct run *run = c->run;
    const double size = (double)dtype_size(run->prec.reduce);
    return time_wire(c, WIRE_ALL_REDUCE, replicas(run, false),
                     w->trained * size)
           + time_wire(c, WIRE_ALL_REDUCE, replicas(run, true),
                       w->expert_trained * size);
}

static struct traffic traffic_of(const struct clock *c, const struct weights *w)
{
    const struct run *run = c->run;
    const double size = (double)dtype_size(run->prec.reduce);
    struct traffic t = { .gathers_back = 1 };
    /* ZeRO++'s qwZ: a byte of each, scales aside */
    const double share = run_gathers_in_8_bits(run)
                             ? 1 / (double)dtype_size(run->prec.param)
                             : 1;
    t.gather =
        time_wire(c, WIRE_ALL_GATHER, shards(run, false), w->bytes * share)
        + time_wire(c, WIRE_ALL_GATHER, shards(run, true),
                    w->expert_bytes * share);
    if (run_reduces_in_4_bits(run)) {
        t.reduce = reduced_in_4_bits(c, w->trained);
        return t;
    }
    if (run_sums_whole(run)) {
        t.reduce = sum_seconds(c, w);
        return t;
    }
    t.reduce =
        time_wire(c, WIRE_REDUCE_SCATTER, shards(run, false), w->trained * size)
        + time_wire(c, WIRE_REDUCE_SCATTER, shards(run, true),
                    w->expert_trained * size);
    const struct ranks all = replicas(run, false), some = shards(run, false);
    const double times = run->mics ? 1 / (double)run->grad_accum : 1;
    if (some.n < all.n) /* hybrid: replicas of the shards agree; MiCS's once */
        t.reduce +=
            times
            * time_wire(c, WIRE_ALL_REDUCE,
                        (struct ranks){ all.n / some.n, all.stride * some.n },
                        w->trained * size / (double)some.n);
    return t;
}

/* Beside messages: what is computed, and the time that the GPU waits for its
 * host, which is no slower for them. */
struct hiding {
    double computing, waiting;
};

static struct hiding hiding_of(const struct pass *p)
{
    const double waiting = p->part[TIME_HOST];
    return (struct hiding){ total(p) - waiting, waiting };
}

/* What of messages is left after so much beside them. */
static void overlap(struct time_result *out, const struct clock *c,
                    double message, struct hiding beside, double times)
{
    const double all = beside.computing + beside.waiting;
    if (c->log != NULL)
        time_log_overlap(c->log, message, all, times);
    const bool near = wire_near(c, replicas(c->run, false));
    out->part[TIME_DP] += times * fmax(0, message - all);
    out->part[TIME_SLOWED] += times * fmin(message, beside.computing)
                              * (near ? SLOWED_INSIDE : SLOWED_BETWEEN);
}

/* Beside a unit's messages. */
struct computed {
    struct hiding forward, back;
};

/* Of a chunk's waits a block has as much as of the kernels that forward starts. */
static struct computed computed_of(const struct block_time *t, bool again,
                                   const struct chunk *k)
{
    const double share = starts(&t->forward, HOST_FORWARD_S)
                         / fmax(starts(&k->forward, HOST_FORWARD_S), 1e-30);
    return (struct computed){
        { total(&t->forward), share * k->forward.part[TIME_HOST] },
        { total(&t->input) + total(&t->weight) + (again ? total(&t->again) : 0),
          share * k->input.part[TIME_HOST] }
    };
}

/* Whose messages an explanation says the next ones are. */
static void tell(const struct clock *c, const char *whose, const char *pass)
{
    if (c->log == NULL)
        return;
    c->log->whose = whose;
    c->log->pass = pass;
}

static void unit_passes(struct time_result *out, const struct step_clock *s,
                        const struct traffic *t, const char *whose,
                        struct computed beside, double times)
{
    const struct run *run = s->c.run;
    const bool kept = run->engine != ENGINE_DEEPSPEED && run->zero == 2;
    const double back = kept ? 0 : t->gather * t->gathers_back;
    if (t->late) {
        tell(&s->c, whose, "gathered");
        overlap(out, &s->c, t->gather + back, (struct hiding){ 0, 0 }, times);
        tell(&s->c, whose, "reduced");
        overlap(out, &s->c, t->reduce, beside.back, times);
        return;
    }
    tell(&s->c, whose, "forward");
    overlap(out, &s->c, t->gather, beside.forward, times);
    tell(&s->c, whose, "backward");
    overlap(out, &s->c, back + t->reduce, beside.back, times);
}

/* Elements of the weights of a block: of the largest, of all, and of those that
 * are used again only after so many others. */
struct sizes {
    double largest, all, far;
};

/* The block's next weight; `id` may be one already. */
static tensor_id next_weight(const struct program *p, tensor_id id)
{
    while (id != TENSOR_NONE
           && (p->tensor[id].role != ROLE_PARAM || p->tensor[id].statistic))
        id = p->tensor[id].next;
    return id;
}

/* From a weight's second forward to its backward there is twice what comes after
 * it. */
static struct sizes sizes_of(const struct step_clock *s, uint32_t block)
{
    const struct program *p = s->c.p;
    const tensor_id first = next_weight(p, p->block[block].weights);
    struct sizes z = { 0, 0, 0 };
    for (tensor_id id = first; id != TENSOR_NONE;
         id = next_weight(p, p->tensor[id].next)) {
        const double elems = (double)p->tensor[id].elems;
        z.largest = elems > z.largest ? elems : z.largest;
        z.all += elems;
    }
    double after = z.all;
    for (tensor_id id = first; id != TENSOR_NONE;
         id = next_weight(p, p->tensor[id].next)) {
        after -= (double)p->tensor[id].elems;
        if (2 * after < (double)ZERO3_MAX_REUSE_ELEMS)
            break;
        z.far += (double)p->tensor[id].elems;
    }
    return z;
}

/* DeepSpeed fetches nothing ahead while one weight alone is more than may be
 * there; and one that is used again too far ahead is let go between a layer's
 * second forward and its backward (zero/partitioned_param_coordinator.py,
 * fetch_sub_module, __params_to_release). `again`: the share of such layers that
 * have one. */
static void limit_fetches(struct traffic *t, const struct step_clock *s,
                          uint32_t block, double again)
{
    const struct run *run = s->c.run;
    if (run->engine != ENGINE_DEEPSPEED)
        return;
    const bool twice = run->recompute == RECOMP_FULL
                       && s->c.p->block[block].kind == BLOCK_LAYER;
    const struct sizes z = sizes_of(s, block);
    t->late = z.largest > (double)run->max_live_params
              || engine_makes_zero3_grads(run);
    if (twice && z.far > 0)
        t->gathers_back += again * z.far / z.all;
}

/* Gathered whole for every pass, unit by unit, the next one's beside what is
 * computed (ZeRO-3, FSDP): the first gather and the last reduction are bare. */
static void gathers(struct time_result *out, const struct step_clock *s,
                    const struct counts *n, const struct chunk *k)
{
    const struct run *run = s->c.run;
    const double m = (double)run->grad_accum;
    bool begun = false;
    for (uint32_t b = 0; b < s->c.p->n_blocks; b++) {
        struct weights w = { 0 };
        if (n->all[b] == 0)
            continue;
        const char *name = s->c.p->block[b].name;
        add_weights(&w, &s->states[b]);
        tell(&s->c, name, "");
        struct traffic t = traffic_of(&s->c, &w);
        limit_fetches(&t, s, b, (double)n->again[b] / n->all[b]);
        const struct computed beside =
            computed_of(&s->block[b], n->again[b] > 0, k);
        const bool bare = !begun && s->c.p->block[b].kind == BLOCK_LAYER;
        const double all = n->all[b] - (bare ? 1 : 0);
        begun = begun || bare;
        unit_passes(out, s, &t, name, beside, m * all);
        if (bare)
            unit_passes(out, s, &t, "first gather, last reduction",
                        (struct computed){ { 0, 0 }, { 0, 0 } }, m);
        out->part[TIME_MEMORY] +=
            m * n->all[b] * (t.gathers_back - 1)
            * time_engine_gather(&s->c, w.bytes + w.expert_bytes);
        out->part[TIME_HOST] +=
            m * n->all[b] * run->scale[SPEED_HOST]
            * time_engine_lists(&s->c, &s->c.p->block[b], &s->states[b],
                                1 + t.gathers_back);
    }
}

/* Gradients out and weights in once a step, or each micro-batch. */
static void exchanges(struct time_result *out, const struct step_clock *s,
                      const struct weights *w, const struct chunk *k)
{
    const struct run *run = s->c.run;
    const double m = (double)run->grad_accum;
    const struct hiding none = { 0, 0 };
    struct hiding back = hiding_of(&k->input);
    back.computing += total(&k->weight);
    if (!run_reduces_beside(run))
        back = none;
    tell(&s->c, "a stage's weights", "gradients");
    if (run_sharding(run) == SHARDING_NONE) {
        overlap(out, &s->c, sum_seconds(&s->c, w), back, 1);
        return;
    }
    const struct traffic t = traffic_of(&s->c, w);
    const bool each = run->engine == ENGINE_DEEPSPEED && run->zero == 2;
    overlap(out, &s->c, t.reduce, back, each ? m : 1);
    const bool beside = run->overlap_comm && run->engine == ENGINE_MEGATRON;
    tell(&s->c, "a stage's weights", "gathered");
    overlap(out, &s->c, t.gather, beside ? hiding_of(&k->forward) : none, 1);
}

/* After the pipeline's last backward and the replicas' sum, so that nothing hides
 * it; whichever rank is busiest waits, as all do for clipping. */
static void sum_tied(struct time_result *out, const struct step_clock *s)
{
    const struct run *run = s->c.run;
    const double bytes = pipe_tied_bytes(s->c.p, run);
    const uint64_t stage = run->tp * run->cp * run->dp;
    if (bytes <= 0)
        return;
    tell(&s->c, "tied words", "gradients");
    overlap(out, &s->c, time_pair(&s->c, stage * (run->pp - 1), bytes),
            (struct hiding){ 0, 0 }, 1);
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
            add_weights(w, &s->states[b]);
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
        const double pass[2] = { total(&t->forward),
                                 total(&t->input) + total(&t->weight) };
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
            gathers(out, s, &has, &k);
    }
    if (!run_shards_weights(run))
        exchanges(out, s, &w, &whole);
    put_optimizer(out, s, &own);
    const double busy =
        m
        * (total(&whole.forward) + total(&whole.input) + total(&whole.weight));
    if (!run_offloads(run))
        return busy;
    const double n = (double)shards(run, false).n;
    const double experts = (double)shards(run, true).n;
    struct resident x = { .there = &s->there,
                          .own_elems = own.elems,
                          .shard_bytes = w.bytes / n + w.expert_bytes / experts,
                          .checkpoint_bytes = kept * layers_that_go(run, rank),
                          .forward = total(&whole.forward),
                          .back = total(&whole.input) + total(&whole.weight) };
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
    return total(&t.weight);
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
        pass[i] = (struct pipe_pass){ total(&k.forward), total(&k.input),
                                      total(&k.weight), 0 };
        if (!again)
            continue;
        struct chunk split;
        chunk_of(&split, s, &has, i % run->pp, 1);
        pass[i].remade = total(&split.input) - total(&k.input)
                         + total(&split.weight) - total(&k.weight);
    }
    const struct pipe x = { .run = run,
                            .at = pass,
                            .order = order,
                            .remakes = again,
                            .deferred_s = deferred_seconds(s),
                            .send = send_seconds(s) };
    const double busy = put_rank(out, s, at, pipe_busiest(&x));
    sum_tied(out, s);
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
    for (uint32_t b = 0; b < p->n_blocks; b++) {
        find_states(&s, b, memory == NULL ? NULL : memory->states);
        const double before = log == NULL ? 0 : moved_seconds(&s.block[b]);
        time_engine(&s.block[b], &s.c, &p->block[b], &s.states[b]);
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
