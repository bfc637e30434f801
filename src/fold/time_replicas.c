/*
 * Messages between replicas: weights gathered for every pass or once a step,
 * gradients summed or scattered, and what of that is computed beside. Refuses to
 * know how long a collective takes (time_wire.c). [docs/method.md eq. step-time]
 */
#include "fold/time_step.h"

#include "fold/engine_private.h"
#include "fold/fold.h"

#include "data/constants.h"

#include <math.h>

#include "base/banned.h"

void replicas_add_weights(struct weights *w, const struct block_states *b)
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

struct ranks replicas_shards(const struct run *run, bool experts)
{
    struct ranks r = replicas(run, experts);
    r.n = min_u64(r.n, max_u64(experts ? run->expert_shard : run->shard, 1));
    return r;
}

/* Of a unit gathered for a pass, so many times in backward, and of its gradients.
 * `late`: when it is needed, not ahead; of those in backward `bare_back` are, and
 * `second_back` beside a second forward. */
struct traffic {
    double gather, reduce, gathers_back, bare_back, second_back;
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
    t.gather = time_wire(c, WIRE_ALL_GATHER, replicas_shards(run, false),
                         w->bytes * share)
               + time_wire(c, WIRE_ALL_GATHER, replicas_shards(run, true),
                           w->expert_bytes * share);
    if (run_reduces_in_4_bits(run)) {
        t.reduce = reduced_in_4_bits(c, w->trained);
        return t;
    }
    if (run_sums_whole(run)) {
        t.reduce = sum_seconds(c, w);
        return t;
    }
    t.reduce = time_wire(c, WIRE_REDUCE_SCATTER, replicas_shards(run, false),
                         w->trained * size)
               + time_wire(c, WIRE_REDUCE_SCATTER, replicas_shards(run, true),
                           w->expert_trained * size);
    const struct ranks all = replicas(run, false),
                       some = replicas_shards(run, false);
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
    return (struct hiding){ pass_total(p) - waiting, waiting };
}

/* What of messages is left after so much beside them. */
static void overlap(struct time_result *out, const struct clock *c,
                    double message, struct hiding beside, double times)
{
    const double all = beside.computing + beside.waiting;
    const bool near = wire_near(c, replicas(c->run, false));
    const double slowed = near ? SLOWED_INSIDE : SLOWED_BETWEEN;
    if (c->log != NULL)
        time_log_overlap(c->log,
                         (struct overlap_note){ .message = message,
                                                .beside = all,
                                                .computing = beside.computing,
                                                .slowed = slowed,
                                                .times = times });
    out->part[TIME_DP] += times * fmax(0, message - all);
    out->part[TIME_SLOWED] += times * fmin(message, beside.computing) * slowed;
}

/* Beside a unit's messages. */
struct computed {
    struct hiding forward, back;
};

/* Of a chunk's waits a block has as much as of the kernels that forward starts. */
static struct computed computed_of(const struct block_time *t, bool again,
                                   const struct chunk *k)
{
    const double share =
        pass_starts(&t->forward, HOST_FORWARD_S)
        / fmax(pass_starts(&k->forward, HOST_FORWARD_S), 1e-30);
    return (struct computed){ { pass_total(&t->forward),
                                share * k->forward.part[TIME_HOST] },
                              { pass_total(&t->input) + pass_total(&t->weight)
                                    + (again ? pass_total(&t->again) : 0),
                                share * k->input.part[TIME_HOST] } };
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
    const double back =
        kept ? 0
             : t->gather * (t->gathers_back - t->bare_back - t->second_back);
    const double bare = kept ? 0 : t->gather * t->bare_back;
    if (t->late) {
        tell(&s->c, whose, "gathered");
        overlap(out, &s->c, t->gather + back, (struct hiding){ 0, 0 }, times);
        tell(&s->c, whose, "reduced");
        overlap(out, &s->c, t->reduce, beside.back, times);
        return;
    }
    tell(&s->c, whose, "forward");
    overlap(out, &s->c, t->gather, beside.forward, times);
    if (bare > 0) {
        tell(&s->c, whose, "gathered in backward");
        overlap(out, &s->c, bare, (struct hiding){ 0, 0 }, times);
        overlap(out, &s->c, t->gather, beside.forward, times * t->second_back);
    }
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

/* Whether an operation's weight is trained. */
static bool trains(const struct program *p, const struct op *op)
{
    for (uint8_t i = 0; i < op->n_in; i++) {
        const struct tensor *t =
            op->in[i] == TENSOR_NONE ? NULL : &p->tensor[op->in[i]];
        if (t != NULL && t->role == ROLE_PARAM && t->trainable && !t->dropped)
            return true;
    }
    return false;
}

/* Of a layer's forward, the share after the last adapter. */
static double share_after_adapters(const struct step_clock *s, uint32_t block)
{
    const struct block *b = &s->c.p->block[block];
    struct clock c = s->c;
    c.log = NULL;
    double after = 0;
    for (uint32_t i = b->op_count; i > 0; i--) {
        const struct op *op = &c.p->op[b->op_first + i - 1];
        if (trains(c.p, op))
            break;
        struct block_time t;
        time_op(&t, &c, op);
        after += pass_total(&t.forward);
    }
    const double all = pass_total(&s->block[block].forward);
    return all > 0 ? fmin(1, after / all) : 0;
}

/* FSDP 1 gathers each adapter by itself, and its host waits, before it asks for a
 * gather, until the unit before the last one is done (_limiter_utils.py, two in
 * flight; peft/utils/other.py, fsdp_auto_wrap_policy): a layer's begins with
 * what comes after the last adapter of the layer before. In backward the first
 * adapter asks for it, at the end of a layer. Around a reentrant checkpoint's unit it
 * is gathered for the second forward, too, and its backward's, whose hooks were
 * made then, begins beside that (tests/golden/fsdp_hooks.jsonl). */
static void hold_fetches(struct traffic *t, struct computed *beside,
                         const struct step_clock *s, uint32_t block,
                         double again)
{
    const struct run *run = s->c.run;
    if (run->engine != ENGINE_FSDP || !run_is_hf(run)
        || s->c.p->block[block].kind != BLOCK_LAYER)
        return;
    const bool around = run->recompute == RECOMP_FULL
                        && run->recompute_reentrant && !run->recompute_in_unit;
    t->gathers_back += around ? again : 0;
    if (!run_adapts(run) || s->states[block].elems == s->states[block].dropped)
        return;
    const double after = share_after_adapters(s, block);
    beside->forward.computing *= after;
    beside->forward.waiting *= after;
    t->second_back = around ? again : 0;
    t->bare_back = t->gathers_back - t->second_back;
}

void replicas_gather(struct time_result *out, const struct step_clock *s,
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
        replicas_add_weights(&w, &s->states[b]);
        tell(&s->c, name, "");
        struct traffic t = traffic_of(&s->c, &w);
        limit_fetches(&t, s, b, (double)n->again[b] / n->all[b]);
        struct computed beside = computed_of(&s->block[b], n->again[b] > 0, k);
        hold_fetches(&t, &beside, s, b, (double)n->again[b] / n->all[b]);
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

void replicas_exchange(struct time_result *out, const struct step_clock *s,
                       const struct weights *w, const struct chunk *k)
{
    const struct run *run = s->c.run;
    const double m = (double)run->grad_accum;
    const struct hiding none = { 0, 0 };
    struct hiding back = hiding_of(&k->input);
    back.computing += pass_total(&k->weight);
    if (!run_reduces_beside(run))
        back = none;
    tell(&s->c, "a stage's weights", "gradients");
    if (run_sharding(run) == SHARDING_NONE) {
        overlap(out, &s->c, sum_seconds(&s->c, w), back, 1);
        return;
    }
    const struct traffic t = traffic_of(&s->c, w);
    const bool each = run_zero_is(run, 2);
    overlap(out, &s->c, t.reduce, back, each ? m : 1);
    const bool beside = run->overlap_comm && run->engine == ENGINE_MEGATRON;
    tell(&s->c, "a stage's weights", "gathered");
    overlap(out, &s->c, t.gather, beside ? hiding_of(&k->forward) : none, 1);
}

void replicas_sum_tied(struct time_result *out, const struct step_clock *s)
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
