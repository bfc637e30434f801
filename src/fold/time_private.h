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
    const struct tensor *tensor; /* the program's */
};

static inline const struct tensor *op_in(const struct op_clock *o, unsigned i)
{
    return &o->tensor[o->op->in[i]];
}

static inline const struct tensor *op_out(const struct op_clock *o, unsigned i)
{
    return &o->tensor[o->op->out[i]];
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

/* ---- time_attention.c ---- */

/* A fused kernel, and the messages around it. */
void time_attention(struct op_clock *o);

/* ---- time_message.c ---- */

/* What is computed beside a message runs so much longer, as the message takes
 * multiprocessors and memory (Calculon, processor_usage: 15 % on NVLink, 2 %
 * on a network): one kernel of NCCL sends over both where several ranks of a
 * group are in a node. */
#define SLOWED_INSIDE 0.15
#define SLOWED_BETWEEN 0.02
#define SLOWED_SOURCE "Isaev et al. 2023, Calculon (processor_usage)"

/* A linear's: forward, of its input's gradient, of its weight's. */
struct product_times {
    double forward, input, weight;
};

/* Since the last tensor-parallel message of a block: the first product and the
 * last, and of a gather the seconds, and of what backward mirrors it by, until a
 * product reads it. */
struct between_messages {
    struct product_times first, last;
    double gather, mirrored;
    bool any, in_buffers, embeds;
    tensor_id whole; /* async_tp: what the last gather made; `gather` is what no
                        product of it has covered yet */
};

/* A collective, and what backward mirrors it by. */
void message_time(struct op_clock *o, enum wire wire, enum wire back);
/* Where attention's kernel is not all of it: context parallelism. */
void message_around_attention(struct op_clock *o, double forward, double back);
/* What Megatron's messages, and async_tp's, leave beside the products around
 * them; of each
 * operation of a block, in order. */
void message_beside(struct between_messages *k, struct op_clock *o);

/* ---- time_loss.c ---- */

/* A loss over a vocabulary that ranks share. */
void time_loss(struct op_clock *o);
/* What one in chunks of rows moves beside its products, more than once. */
void time_loss_chunks(struct op_clock *o);

/* ---- time_moves.c ---- */

/* Kernels that move so many bytes together. */
struct moved {
    double bytes, kernels;
};
void moves_spend(const struct clock *c, struct pass *p, struct moved m);

double moves_forward_bytes(const struct op_clock *o);
/* Of a kernel over so many elements that it loads one at a time, as an operand is
 * broadcast: bytes that others move in that time. */
double moves_lone(const struct op_clock *o, double bytes, double elems);
/* One kernel forward, one backward: the result's gradient, what was kept, and
 * the gradients made of them. */
void moves_once(struct op_clock *o);
void moves_clamp(struct op_clock *o);
/* Forward alone. */
void moves_forward(struct op_clock *o);
/* Those whose gradients PyTorch makes in more than one kernel, or in none. */
void moves_cast(struct op_clock *o);
void moves_softmax(struct op_clock *o, bool vocabulary);
void moves_python_gelu(struct op_clock *o);
/* What a product adds to, copied over its result. */
void moves_spread(struct op_clock *o);
/* As bytes that others move in that time: weights in base_dtype, unpacked. */
double moves_unpacked(const struct op_clock *o, const struct tensor *packed,
                      const struct tensor *unpacked);
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
/* A tensor that several read has as many gradients, which are added up. Of a
 * block of more tensors, the rest are taken to be read once. */
enum { FORK_TENSORS = 2048 };
struct forks {
    uint64_t read[FORK_TENSORS / 64]; /* a bit each; what comes in first */
    struct moved sums;
};
/* Those of operations from `first` on, before `end`; then their time. */
void moves_find_forks(struct forks *f, const struct clock *c,
                      const struct block *b, uint32_t first, uint32_t end);
void moves_forks(struct block_time *sum, const struct clock *c,
                 const struct forks *f);

#endif
