/* What the files of an operation's time share. */
#ifndef MEMPLAN_FOLD_TIME_PRIVATE_H
#define MEMPLAN_FOLD_TIME_PRIVATE_H

#include "fold/time.h"

/* A kernel's start and end (ai-dynamo/aiconfigurator, memory operations). */
#define KERNEL_LATENCY_S 3e-6

/* An operation at a machine, and where its time goes. */
struct op_clock {
    const struct clock *c;
    const struct op *op;
    struct block_time *out;
};

static inline const struct tensor *op_in(const struct op_clock *o, unsigned i)
{
    return &o->c->p->tensor[o->op->in[i]];
}

static inline const struct tensor *op_out(const struct op_clock *o, unsigned i)
{
    return &o->c->p->tensor[o->op->out[i]];
}

static inline bool op_grads(const struct tensor *t)
{
    return t->role == ROLE_PARAM ? t->trainable && !t->in_vain : t->needs_grad;
}

static inline bool op_has_grads(const struct op_clock *o)
{
    for (unsigned i = 0; i < o->op->n_in; i++)
        if (op_grads(op_in(o, i)))
            return true;
    return false;
}

/* One kernel, or message. */
static inline void op_spend(struct pass *p, enum time_part part, double seconds)
{
    if (seconds <= 0)
        return;
    p->part[part] += seconds;
    p->kernels += 1;
    p->messages += part == TIME_TP || part == TIME_CP || part == TIME_EP;
}

/* ---- time_moves.c ---- */

/* Kernels that move so many bytes together. */
struct moved {
    double bytes, kernels;
};
void moves_spend(const struct clock *c, struct pass *p, struct moved m);

double moves_forward_bytes(const struct op_clock *o);
/* One kernel forward, one backward: the result's gradient, what was kept, and
 * the gradients made of them. */
void moves_once(struct op_clock *o);
/* Forward alone. */
void moves_forward(struct op_clock *o);
/* Those whose gradients PyTorch makes in more than one kernel, or in none. */
void moves_cast(struct op_clock *o);
void moves_softmax(struct op_clock *o, bool vocabulary);
void moves_mean(struct op_clock *o);
void moves_strided(struct op_clock *o);
void moves_sum(struct op_clock *o);
void moves_product(struct op_clock *o);
void moves_quotient(struct op_clock *o);
void moves_power(struct op_clock *o);
void moves_root(struct op_clock *o);
void moves_norm(struct op_clock *o);
void moves_chosen(struct op_clock *o);
void moves_rows(struct op_clock *o);
void moves_view(struct op_clock *o);
/* A tensor that several read has as many gradients, which are added up. */
void moves_forks(struct block_time *sum, const struct clock *c,
                 const struct block *b);

#endif
