/*
 * Time of an optimizer step on the rank that computes longest: its passes over
 * its blocks, the pipeline around them, what messages between replicas leave
 * uncovered, and the optimizer. [docs/method.md eq. step-time]
 */
#include "fold/fold.h"
#include "fold/schedule.h"
#include "fold/time.h"

#include <math.h>

#include "base/banned.h"

/* Time that a host takes to start a kernel, autograd's work included: PyTorch
 * forward, and backward, where no Python runs. */
#define HOST_FORWARD_S 14e-6
#define HOST_BACKWARD_S 8e-6
/* What is computed beside a message runs so much longer, as the message takes
 * multiprocessors and memory (Calculon, processor_usage: 15 % on NVLink, 2 %
 * on a network). */
#define SLOWED_INSIDE 0.15
#define SLOWED_BETWEEN 0.02

/* A chunk of a rank: the layers that a micro-batch goes through at once. */
struct chunk {
    struct pass forward, input, weight;
};

struct step_clock {
    struct clock c;
    struct block_time block[BLOCK_MAX];
    struct block_states states[BLOCK_MAX];
};

static void add(struct pass *sum, const struct pass *x, double times)
{
    for (int i = 0; i < TIME_PARTS; i++)
        sum->part[i] += times * x->part[i];
    sum->kernels += times * x->kernels;
    sum->hidden += times * x->hidden;
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
static void add_again(struct pass *back, const struct pass *again)
{
    for (int i = 0; i < TIME_PARTS; i++) {
        const bool message = i == TIME_TP || i == TIME_CP || i == TIME_EP;
        back->part[message ? i : TIME_AGAIN] += again->part[i];
    }
    back->kernels += again->kernels;
}

static void add_block(struct chunk *to, const struct step_clock *s, uint32_t b,
                      bool again)
{
    const struct block_time *t = &s->block[b];
    add(&to->forward, &t->forward, 1);
    add(&to->input, &t->input, 1);
    add(&to->weight, &t->weight, 1);
    if (again)
        add_again(&to->input, &t->again);
}

/* Messages of backward that products of weights' gradients cover. */
static void cover(struct chunk *k)
{
    const double covered = fmin(k->input.hidden, total(&k->weight));
    k->input.part[TIME_TP] += k->input.hidden - covered;
    k->input.part[TIME_SLOWED] += covered * SLOWED_INSIDE;
}

/* Messages to experts run beside another micro-batch's pass the other way. */
static void cover_experts(struct chunk *k)
{
    const double sent = k->forward.part[TIME_EP] + k->input.part[TIME_EP];
    const double computed =
        total(&k->forward) + total(&k->input) + total(&k->weight) - sent;
    const double covered = fmin(sent, computed);
    const double left = sent > 0 ? (sent - covered) / sent : 0;
    k->forward.part[TIME_EP] *= left;
    k->input.part[TIME_EP] *= left;
    k->input.part[TIME_SLOWED] += covered * SLOWED_INSIDE;
}

static void host(struct pass *p, double per_kernel)
{
    const double busy = total(p), starts = p->kernels * per_kernel;
    if (starts > busy)
        p->part[TIME_HOST] += starts - busy;
}

/* The layers of a stage, recomputed ones first; embedding and head. */
static void stage_chunk_of(struct chunk *k, const struct step_clock *s,
                           uint64_t stage, uint64_t first)
{
    const struct run *run = s->c.run;
    const struct program *p = s->c.p;
    const uint64_t n = run->stage_layers[stage];
    const bool some =
        run->recompute == RECOMP_FULL || run->recompute == RECOMP_OPS;
    *k = (struct chunk){ 0 };
    for (uint64_t l = 0; l < n && first + l < p->layers; l++)
        add_block(k, s, p->layer_block[first + l],
                  !some || l < run->recompute_layers);
    if (stage == 0)
        add_block(k, s, p->embed, true);
    if (stage == run->pp - 1)
        add_block(k, s, p->head, true);
    cover(k);
    if (schedule_is_dual(run) || run->schedule == SCHED_DUALPIPE_V)
        cover_experts(k);
    host(&k->forward, HOST_FORWARD_S);
    host(&k->input, HOST_BACKWARD_S);
}

static double chunk_total(const struct chunk *k)
{
    return total(&k->forward) + total(&k->input) + total(&k->weight);
}

/* ---- the pipeline ---- */

struct pipe {
    double forward, input, weight; /* mean over the stages */
    double longest;                /* of a stage: all three */
    double sum;                    /* of all stages */
    double send;                   /* of a micro-batch to the next stage */
};

/* Idle time of the longest stage. [docs/method.md eq. zero-bubble] */
static double idle(const struct run *run, const struct pipe *x)
{
    const double p = (double)run->pp, m = (double)run->grad_accum;
    const double v = (double)run_chunks(run);
    const double back = x->input + x->weight;
    const double fill = x->sum - x->longest;
    const double sends = 2 * (p - 1) * x->send;
    switch (run->schedule) {
    case SCHED_ZB_H1: return fmax(0, fill - 2 * (p - 1) * x->weight) + sends;
    case SCHED_ZB_V: return sends;
    case SCHED_DUALPIPE:
        return fmax(0, (p / 2 - 1) * (x->forward + 2 * back - 3 * x->weight))
               + sends;
    case SCHED_DUALPIPE_V:
        return fmax(0, (p - 1) / 2 * (x->forward + 2 * back - 3 * x->weight))
               + sends;
    case SCHED_NAIVE: return m * (x->sum - x->longest) + m * sends;
    case SCHED_INTERLEAVED: return fill / v + sends + 2 * m * (v - 1) * x->send;
    case SCHED_1F1B:
    case SCHED_GPIPE:
    case SCHEDULE_COUNT: break;
    }
    return fill + sends;
}

static double sent_bytes(const struct program *p)
{
    return (double)p->tensor[p->block[p->layer_block[0]].input].bytes;
}

/* ---- between replicas ---- */

/* Weights of a stage that replicas share. */
struct weights {
    double trained, bytes, expert_trained, expert_bytes;
};

static void add_weights(struct weights *w, const struct block_states *b)
{
    w->trained += (double)b->dense_elems;
    w->bytes += (double)(b->bytes - b->expert_bytes);
    w->expert_trained += (double)b->expert_elems;
    w->expert_bytes += (double)b->expert_bytes;
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

/* Of a unit gathered for a pass, and of its gradients. */
struct traffic {
    double gather, reduce;
};

static struct traffic traffic_of(const struct clock *c, const struct weights *w)
{
    const struct run *run = c->run;
    const double size = (double)dtype_size(run->prec.reduce);
    struct traffic t;
    t.gather =
        time_wire(c, WIRE_ALL_GATHER, shards(run, false), w->bytes)
        + time_wire(c, WIRE_ALL_GATHER, shards(run, true), w->expert_bytes);
    t.reduce =
        time_wire(c, WIRE_REDUCE_SCATTER, shards(run, false), w->trained * size)
        + time_wire(c, WIRE_REDUCE_SCATTER, shards(run, true),
                    w->expert_trained * size);
    const struct ranks all = replicas(run, false), some = shards(run, false);
    if (some.n < all.n) /* hybrid: replicas of the shards agree */
        t.reduce +=
            time_wire(c, WIRE_ALL_REDUCE,
                      (struct ranks){ all.n / some.n, all.stride * some.n },
                      w->trained * size / (double)some.n);
    return t;
}

/* What of messages is left after so much computing beside them. */
static void overlap(struct time_result *out, const struct clock *c,
                    double message, double computing, double times)
{
    const double hidden = fmin(message, computing);
    const bool near = wire_inside(c, replicas(c->run, false));
    out->part[TIME_DP] += times * (message - hidden);
    out->part[TIME_SLOWED] +=
        times * hidden * (near ? SLOWED_INSIDE : SLOWED_BETWEEN);
}

/* Gathered whole for every pass, unit by unit, the next one's beside what is
 * computed (ZeRO-3, FSDP): the first gather and the last reduction are bare. */
static void gathers(struct time_result *out, const struct step_clock *s,
                    uint64_t first, uint64_t n)
{
    const struct run *run = s->c.run;
    const struct program *p = s->c.p;
    const double m = (double)run->grad_accum;
    const bool kept = run->engine != ENGINE_DEEPSPEED && run->zero == 2;
    for (uint64_t l = 0; l < n && first + l < p->layers; l++) {
        const uint32_t b = p->layer_block[first + l];
        struct weights w = { 0 };
        add_weights(&w, &s->states[b]);
        const struct traffic t = traffic_of(&s->c, &w);
        const struct block_time *k = &s->block[b];
        const double forward = total(&k->forward);
        const double back =
            total(&k->input) + total(&k->weight)
            + (l < run->recompute_layers || run->recompute == RECOMP_SELECTIVE
                   ? total(&k->again)
                   : 0);
        overlap(out, &s->c, t.gather, l == 0 ? 0 : forward, m);
        overlap(out, &s->c, (kept ? 0 : t.gather) + t.reduce, l == 0 ? 0 : back,
                m);
    }
    const uint32_t ends[] = { p->embed, p->head };
    for (int i = 0; i < 2; i++) {
        struct weights w = { 0 };
        add_weights(&w, &s->states[ends[i]]);
        const struct traffic t = traffic_of(&s->c, &w);
        const struct block_time *k = &s->block[ends[i]];
        overlap(out, &s->c, t.gather, total(&k->forward), m);
        overlap(out, &s->c, (kept ? 0 : t.gather) + t.reduce,
                total(&k->input) + total(&k->weight), m);
    }
}

/* Gradients out and weights in once a step, or each micro-batch. */
static void exchanges(struct time_result *out, const struct step_clock *s,
                      const struct weights *w, const struct chunk *k)
{
    const struct run *run = s->c.run;
    const double m = (double)run->grad_accum;
    const double back = total(&k->input) + total(&k->weight);
    const double size = (double)dtype_size(run->prec.reduce);
    if (run_sharding(run) == SHARDING_NONE) {
        const double t =
            time_wire(&s->c, WIRE_ALL_REDUCE, replicas(run, false),
                      w->trained * size)
            + time_wire(&s->c, WIRE_ALL_REDUCE, replicas(run, true),
                        w->expert_trained * size);
        overlap(out, &s->c, t, run->overlap_comm ? back : 0, 1);
        return;
    }
    const struct traffic t = traffic_of(&s->c, w);
    const bool each = run->engine == ENGINE_DEEPSPEED && run->zero == 2;
    overlap(out, &s->c, t.reduce, run->overlap_comm ? back : 0, each ? m : 1);
    const bool beside = run->overlap_comm && run->engine == ENGINE_MEGATRON;
    overlap(out, &s->c, t.gather, beside ? total(&k->forward) : 0, 1);
}

/* ---- the optimizer ---- */

/* Reads and writes of an element beside its moments: gradient, master copy and
 * weight; each pass of an unfused one reads and writes again. */
static double step_bytes(const struct step_clock *s, uint64_t first, uint64_t n,
                         uint64_t stage)
{
    const struct run *run = s->c.run;
    const struct program *p = s->c.p;
    double elems = 0, moments = 0;
    for (uint64_t l = 0; l < n && first + l < p->layers; l++) {
        const struct block_states *b = &s->states[p->layer_block[first + l]];
        elems += (double)b->own_elems;
        moments += (double)b->own_moment_bytes;
    }
    const struct block_states *e = &s->states[p->embed],
                              *h = &s->states[p->head];
    if (stage == 0) {
        elems += (double)e->own_elems;
        moments += (double)e->own_moment_bytes;
    }
    if (stage == run->pp - 1) {
        elems += (double)h->own_elems;
        moments += (double)h->own_moment_bytes;
    }
    const double master = run->prec.master == DT_NONE
                              ? 0
                              : 2 * (double)dtype_size(run->prec.master);
    const double once = elems
                            * ((double)dtype_size(run->prec.grad) + master
                               + 2 * (double)dtype_size(run->prec.param))
                        + 2 * moments;
    const double passes = run->optimizer_impl == OPTIMPL_FUSED ? 1 : 2.5;
    const double clip =
        run->clip_grad ? 3 * elems * (double)dtype_size(run->prec.grad) : 0;
    return passes * once + clip;
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

/* Each stage once; the longest decides, its neighbours fill and drain. */
static void walk_stages(struct time_result *out, const struct step_clock *s)
{
    const struct run *run = s->c.run;
    const double m = (double)run->grad_accum;
    struct pipe x = { .send = run->pp > 1 ? time_send(
                                  &s->c, run->tp * run->cp * run->dp,
                                  sent_bytes(s->c.p))
                                          : 0 };
    struct chunk longest = { 0 };
    uint64_t first = 0, longest_first = 0;
    const double p = (double)run->pp;
    for (uint64_t i = 0; i < run->pp; i++) {
        struct chunk k;
        stage_chunk_of(&k, s, i, first);
        const double t = chunk_total(&k);
        x.forward += total(&k.forward) / p;
        x.input += total(&k.input) / p;
        x.weight += total(&k.weight) / p;
        x.sum += t;
        if (t > x.longest) {
            x.longest = t;
            longest = k;
            longest_first = first;
            out->stage = i;
        }
        first += run->stage_layers[i];
    }
    put_chunk(out, &longest, m);
    if (run->pp > 1) {
        out->part[TIME_BUBBLE] = idle(run, &x);
        out->bubble = out->part[TIME_BUBBLE] / (m * x.longest);
    }
    const uint64_t n = run->stage_layers[out->stage];
    struct weights w = { 0 };
    for (uint64_t l = 0; l < n && longest_first + l < s->c.p->layers; l++)
        add_weights(&w, &s->states[s->c.p->layer_block[longest_first + l]]);
    if (out->stage == 0)
        add_weights(&w, &s->states[s->c.p->embed]);
    if (out->stage == run->pp - 1)
        add_weights(&w, &s->states[s->c.p->head]);
    if (run_shards_weights(run))
        gathers(out, s, longest_first, n);
    else
        exchanges(out, s, &w, &longest);
    out->part[TIME_OPTIMIZER] +=
        time_bytes(&s->c, step_bytes(s, longest_first, n, out->stage));
}

void fold_time(struct time_result *out, const struct program *p,
               const struct run *run)
{
    *out = (struct time_result){ 0 };
    if (!time_is_known(run))
        return;
    struct step_clock s;
    clock_init(&s.c, p, run);
    for (uint32_t b = 0; b < p->n_blocks; b++) {
        time_block(&s.block[b], &s.c, &p->block[b]);
        states_of_block(&s.states[b], p, &p->block[b], run, b != p->head);
    }
    walk_stages(out, &s);
    for (int i = 0; i < TIME_PARTS; i++)
        out->step_s += out->part[i];
    out->exposed_s = out->part[TIME_TP] + out->part[TIME_CP]
                     + out->part[TIME_EP] + out->part[TIME_DP];
    out->measured = s.c.measured;
    out->source = s.c.speed->source;
    out->known = isfinite(out->step_s) && out->step_s > 0;
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
