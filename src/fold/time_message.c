/*
 * Time of the collectives in the layers, and what of them is left beside the
 * products around them. Owns which collectives an operation is; refuses to know
 * how fast they are. [docs/method.md eq. collectives, eq. step-time]
 */
#include "fold/fold.h"
#include "fold/time_private.h"

#include <math.h>

#include "base/banned.h"

static struct ranks ranks_of(const struct run *run, enum comm_group group)
{
    switch (group) {
    case COMM_TP: return (struct ranks){ run->tp, 1 };
    case COMM_CP: return (struct ranks){ run->cp, run->tp };
    case COMM_EP: return (struct ranks){ run->ep, run->etp };
    case COMM_ETP: return (struct ranks){ run->etp, 1 };
    }
    return (struct ranks){ 1, 1 };
}

/* ---- around attention ---- */

/* Ring: k and v of every other rank's chunk come by while one is computed
 * with; in backward their gradients too. */
static void ring(struct op_clock *o, double forward, double back)
{
    const struct clock *c = o->c;
    const struct run *run = c->run;
    const double hops = (double)(run->cp - 1), cp = (double)run->cp;
    const double bytes =
        (double)op_in(o, 1)->bytes + (double)op_in(o, 2)->bytes;
    /* its ends are the farthest apart */
    const double once = time_send(c, run->tp * run->cp - 1, bytes);
    op_spend(&o->out->forward, TIME_CP, hops * fmax(0, once - forward / cp));
    if (back > 0)
        op_spend(&o->out->input, TIME_CP, hops * fmax(0, 2 * once - back / cp));
}

/* Keys and values come from all ranks before attention begins, again in
 * backward, which reduces their gradients; each time they are put in order. */
static void gathers_keys(struct op_clock *o, bool back)
{
    /* times that its bytes move: read, written; in backward again so, a
       gradient zeroed, chunks of it added (3), put in order */
    enum { ORDERED = 2, SUMMED = 8 };
    const struct clock *c = o->c;
    const struct ranks r = ranks_of(c->run, COMM_CP);
    for (unsigned i = 1; i <= 2; i++) {
        const double bytes = (double)op_in(o, i)->bytes * (double)c->run->cp;
        const double gather = time_wire(c, WIRE_ALL_GATHER, r, bytes);
        const double reduce = time_wire(c, WIRE_REDUCE_SCATTER, r, bytes);
        op_spend(&o->out->forward, TIME_CP, gather);
        op_spend(&o->out->forward, TIME_MEMORY, time_bytes(c, ORDERED * bytes));
        if (!back)
            continue;
        op_spend(&o->out->input, TIME_CP, gather + reduce);
        op_spend(&o->out->input, TIME_MEMORY, time_bytes(c, SUMMED * bytes));
    }
}

/* Where the kernel is not all of it. */
void message_around_attention(struct op_clock *o, double forward, double back)
{
    if (o->c->run->cp <= 1)
        return;
    switch (o->c->run->cp_comm) {
    case CP_P2P: ring(o, forward, back); break;
    case CP_ALL_GATHER: gathers_keys(o, back > 0); break;
    case CP_A2A: /* operations of their own */
    case CP_COMM_COUNT: break;
    }
}

/* ---- operations of their own ---- */

static enum time_part part_of(enum comm_group group)
{
    switch (group) {
    case COMM_TP: return TIME_TP;
    case COMM_CP: return TIME_CP;
    case COMM_EP:
    case COMM_ETP: return TIME_EP;
    }
    return TIME_TP;
}

/* Of what goes to experts: a row for each of a token's, sent once a rank or not. */
static double routed_bytes(const struct op_clock *o)
{
    const struct tensor *in = op_in(o, 0);
    if (!run_sends_tokens_once(o->c->run))
        return (double)in->bytes;
    const double row = (double)in->bytes / (double)max_u64(in->dim[0].n, 1);
    return (double)o->c->p->chosen * row;
}

/* HybridEP's rows lie in its buffer as they came, from which a kernel puts them
 * by expert, or to which it sums them (csrc/hybrid_ep/extension/permute.cu). */
static double hybrid_bytes(const struct op_clock *o)
{
    const struct run *run = o->c->run;
    const double in = (double)op_in(o, 0)->bytes;
    const double out = (double)op_out(o, 0)->bytes;
    const double reached = program_reached(
        (double)run->ep, o->c->p->routed_share, o->c->p->routed);
    return fmax(in, out)
           + fmin(in, out) * fmin(reached, (double)o->c->p->routed);
}

static void add_hybrid(struct op_clock *o)
{
    const struct run *run = o->c->run;
    if (!run_sends_tokens_once(run) || run->moe_flex_backend != FLEX_HYBRIDEP)
        return;
    const double seconds = time_bytes(o->c, hybrid_bytes(o));
    op_spend(&o->out->forward, TIME_MEMORY, seconds);
    if (op_has_grads(o))
        op_spend(&o->out->input, TIME_MEMORY, seconds);
}

/* Forward, and the mirrored collective of backward, which Megatron's column-
 * parallel products start beside the product of the weight's gradient. */
void message_time(struct op_clock *o, enum wire wire, enum wire back)
{
    const struct clock *c = o->c;
    const struct ranks r = ranks_of(c->run, o->op->group);
    const enum time_part part = part_of(o->op->group);
    const bool gathers = wire == WIRE_ALL_GATHER && o->op->kind != OP_VIEW;
    const struct tensor *whole = gathers ? op_out(o, 0) : op_in(o, 0);
    const bool routed = wire == WIRE_A2A && o->op->group == COMM_EP;
    const double bytes = routed ? routed_bytes(o) : (double)whole->bytes;
    /* cast before it is gathered (torchao, float8/float8_tensor_parallel.py) */
    const double gradient = whole->grad_in_8_bits               ? bytes / 2
                            : whole->dtype == DT_FP8 && gathers ? bytes * 2
                                                                : bytes;
    const double there =
        routed ? time_dispatch(c, r, bytes) : time_wire(c, wire, r, bytes);
    if (o->op->kind == OP_VIEW) { /* of the gradient alone */
        op_spend(&o->out->input, part, there);
        return;
    }
    op_spend(&o->out->forward, part, there);
    if (routed)
        add_hybrid(o);
    if (!op_has_grads(o) || o->op->one_way)
        return;
    const double again = routed ? there : time_wire(c, back, r, gradient);
    if (run_is_megatron(c->run) && o->op->group == COMM_TP
        && wire != WIRE_REDUCE_SCATTER)
        o->out->mirrored = again, o->out->input.messages += 1;
    else
        op_spend(&o->out->input, part, again);
}

/* ---- beside products: Megatron's tensor parallelism ---- */

/* Pieces that Transformer Engine's user buffers scatter a product's rows in
 * (pytorch/module/base.py, initialize_ub, num_splits). */
enum { SCATTER_PIECES = 4 };

/* What of a message is left beside so much that is computed, which it slows. */
static double left_of(struct pass *p, double message, double beside)
{
    const double covered = fmin(message, beside);
    p->part[TIME_SLOWED] += covered * SLOWED_INSIDE;
    return message - covered;
}

/* What is gathered for it (core/tensor_parallel/layers.py, LinearWith
 * GradAccumulationAndAsyncCommunication.backward): the input is gathered again
 * beside its gradient's product, where the weight has one that needs it; the
 * gradient is scattered beside the product of the weight's. */
static void gathered_product(struct between_messages *k, struct op_clock *o)
{
    const bool again = k->first.weight > 0 && op_keeps_shard(o->c->p, o->op);
    struct pass *there = &o->out->forward, *back = &o->out->input;
    const double own = 1 / (double)o->c->run->tp;
    back->part[TIME_TP] += left_of(back, k->mirrored, k->first.weight);
    if (again) {
        back->part[TIME_TP] += left_of(back, k->gather, k->first.input);
        back->messages += 1, back->kernels += 1;
    }
    if (k->in_buffers) /* one rank's part after the other; its own is there */
        there->part[TIME_TP] +=
            left_of(there, k->gather, (1 - own) * k->first.forward);
}

static void product(struct between_messages *k, struct op_clock *o)
{
    const struct block_time *t = o->out;
    k->last = (struct product_times){ t->forward.part[TIME_PRODUCTS],
                                      t->input.part[TIME_PRODUCTS],
                                      t->weight.part[TIME_PRODUCTS] };
    if (k->any)
        return;
    k->any = true;
    k->first = k->last;
    if (k->gather > 0)
        gathered_product(k, o);
    k->mirrored = k->gather = 0;
}

static void gathers(struct between_messages *k, struct op_clock *o)
{
    k->gather = o->out->forward.part[TIME_TP];
    k->mirrored = o->out->mirrored;
    k->in_buffers = op_out(o, 0)->shared_out;
    if (k->in_buffers)
        o->out->forward.part[TIME_TP] = 0;
}

/* In user buffers the first pieces go while the others are computed; backward
 * computes with one rank's part of the gradient after the other. */
static void scatters(const struct between_messages *k, struct op_clock *o)
{
    struct pass *there = &o->out->forward, *back = &o->out->input;
    const double most = 1 - 1.0 / SCATTER_PIECES;
    const double others = 1 - 1 / (double)o->c->run->tp;
    const double message = there->part[TIME_TP];
    if (!op_in(o, 0)->shared_out)
        return;
    there->part[TIME_TP] =
        message / SCATTER_PIECES
        + left_of(there, most * message, most * k->last.forward);
    back->part[TIME_TP] =
        left_of(back, back->part[TIME_TP], others * k->last.input);
}

/* The sum of what a branch's first product gives its input in backward is
 * started beside the product of that one's weight; the embedding's is the head's,
 * which has the longest. */
static void sums(const struct between_messages *k, struct op_clock *o)
{
    struct pass *back = &o->out->input;
    const double beside = k->embeds ? (double)INFINITY : k->first.weight;
    back->part[TIME_TP] += left_of(back, o->out->mirrored,
                                   run_sums_beside(o->c->run) ? beside : 0);
}

/* ---- in one operation with products: PyTorch's async tensor parallelism ---- */

/* The others' parts are copied while one rank's part after the other is computed
 * with, first the own one, whose copy the others read. What a product covers is
 * no longer the gather's. */
static void pipelined_product(struct between_messages *k, struct op_clock *o)
{
    const struct block_time *t = o->out;
    const double others = 1 - 1 / (double)o->c->run->tp;
    struct pass *there = &o->out->forward;
    k->last = (struct product_times){ t->forward.part[TIME_PRODUCTS],
                                      t->input.part[TIME_PRODUCTS],
                                      t->weight.part[TIME_PRODUCTS] };
    if (k->gather <= 0 || o->op->in[0] != k->whole)
        return;
    const double left = left_of(there, k->gather, others * k->last.forward);
    there->part[TIME_TP] -= k->gather - left;
    k->gather = left;
}

static void pipelined_gather(struct between_messages *k, struct op_clock *o)
{
    const double part = (double)op_out(o, 0)->bytes / (double)o->c->run->tp;
    struct pass *there = &o->out->forward;
    k->gather = there->part[TIME_TP];
    k->whole = o->op->out[0];
    op_spend(there, TIME_MEMORY, time_bytes(o->c, 2 * part));
}

/* A kernel sums the parts that came. Backward gathers for the product of the
 * input's gradient. */
static void pipelined_scatter(const struct between_messages *k,
                              struct op_clock *o)
{
    struct pass *there = &o->out->forward, *back = &o->out->input;
    const double own = 1 / (double)o->c->run->tp, others = 1 - own;
    there->part[TIME_TP] =
        left_of(there, there->part[TIME_TP], others * k->last.forward);
    back->part[TIME_TP] =
        left_of(back, back->part[TIME_TP], others * k->last.input);
    op_spend(there, TIME_MEMORY,
             time_bytes(o->c, (1 + own) * (double)op_in(o, 0)->bytes));
}

static void pipelined(struct between_messages *k, struct op_clock *o)
{
    if (o->op->kind == OP_LINEAR)
        pipelined_product(k, o);
    else if (o->op->pipelined && o->op->kind == OP_ALL_GATHER)
        pipelined_gather(k, o);
    else if (o->op->pipelined)
        pipelined_scatter(k, o);
}

void message_beside(struct between_messages *k, struct op_clock *o)
{
    const enum op_kind kind = o->op->kind;
    if (o->c->run->async_tp)
        pipelined(k, o);
    if (!run_is_megatron(o->c->run))
        return;
    if (kind == OP_LINEAR)
        product(k, o);
    const bool message = kind == OP_ALL_GATHER || kind == OP_REDUCE_SCATTER
                         || kind == OP_ALL_REDUCE;
    if (!message || o->op->one_way || o->op->group != COMM_TP)
        return;
    o->out->input.part[TIME_TP] += k->mirrored; /* no product came */
    if (kind == OP_REDUCE_SCATTER)
        scatters(k, o);
    if (kind == OP_ALL_REDUCE)
        sums(k, o);
    *k = (struct between_messages){ .embeds = k->embeds };
    if (kind == OP_ALL_GATHER)
        gathers(k, o);
}
