/*
 * Time of a loss over a vocabulary that ranks share: its kernels, and what ranks
 * tell each other of each token. Owns which of them each implementation starts;
 * refuses to know what the logits are. [docs/method.md eq. moves]
 */
#include "fold/fold.h"
#include "fold/time_private.h"

#include <math.h>

#include "base/banned.h"

/* Of a token: its largest logit, its target's, its sum of exponentials. */
enum { TOKEN_BYTES = 4, TOKEN_VALUES = 3 };

static void spend(struct op_clock *o, struct moved there, struct moved back)
{
    moves_spend(o->c, &o->out->forward, there);
    if (op_has_grads(o))
        moves_spend(o->c, &o->out->input, back);
}

/* A message of so many values of each token. Megatron's are also called where a
 * rank is alone, which sends nothing: the host's part is the same. */
static void tells(struct op_clock *o, enum wire wire, double values)
{
    const double tokens = (double)op_out(o, 0)->elems;
    const struct ranks r = { o->c->run->tp, 1 };
    if (r.n > 1)
        op_spend(&o->out->forward, TIME_TP,
                 time_wire(o->c, wire, r, TOKEN_BYTES * values * tokens));
    else
        o->out->forward.messages += 1;
}

/* core/tensor_parallel/cross_entropy.py, the same since 2020: largest, less it,
 * exponentials, sum, over it; back times the loss's gradient. Three of them have
 * a number for each row (tests/oracle/loss_moves.py counts them). What works on
 * tokens alone (masks of targets, their indices, what is at them) moves nothing to
 * speak of, but is started: 12 kernels forward, 6 back. */
static void eager(struct op_clock *o)
{
    enum { WHOLE = 5, OF_TOKENS = 12, OF_TOKENS_BACK = 6 };
    const double n = (double)op_in(o, 0)->bytes;
    const double by_row = moves_lone(o, 2 * n, (double)op_in(o, 0)->elems);
    const double once = n, twice = 2 * n;
    spend(o,
          (struct moved){ once + by_row + twice + once + by_row,
                          WHOLE + OF_TOKENS },
          (struct moved){ by_row, 1 + OF_TOKENS_BACK });
    for (unsigned i = 0; i < TOKEN_VALUES; i++)
        tells(o, WIRE_ALL_REDUCE, 1);
}

/* core/fusions/fused_cross_entropy.py as Inductor compiles it (torch 2.6): an fp32
 * copy and its largest; exponentials and their sum, written, read again and copied
 * over the first; divided. Back: a clone, of which targets are changed, times the
 * loss's gradient in 16 bits and over the softmax. */
static void compiled(struct op_clock *o)
{
    enum { THERE = 7, KERNELS = 6, BACK = 4, KERNELS_BACK = 3 };
    const double n = (double)op_in(o, 0)->bytes;
    const double up = (double)op_out(o, 1)->bytes;
    spend(o, (struct moved){ n + THERE * up, KERNELS },
          (struct moved){ BACK * up + n, KERNELS_BACK });
    tells(o, WIRE_ALL_REDUCE, 1);
    tells(o, WIRE_ALL_REDUCE, TOKEN_VALUES - 1);
}

/* transformer_engine/pytorch/triton/cross_entropy.py, as lowered: largest and sum in
 * one pass, the gradient over the logits in the next; times the loss's in backward.
 * Two tensors are zeroed first. */
static void transformer_engine(struct op_clock *o)
{
    enum { THERE = 3, KERNELS = 4, BACK = 2 };
    const double n = (double)op_in(o, 0)->bytes;
    spend(o, (struct moved){ THERE * n, KERNELS },
          (struct moved){ BACK * n, 1 });
    if (o->c->run->tp > 1)
        tells(o, WIRE_ALL_GATHER, TOKEN_VALUES * (double)o->c->run->tp);
}

/* Of products and loss in chunks of rows, Liger's, as lowered (Liger-Kernel ops/
 * fused_linear_cross_entropy.py): a kernel reads a chunk's logits twice and writes
 * their gradient over them, the input's is copied to its rows, and the weight's, a
 * product of its own, is cast to fp32 and added to the sum: reading and writing that
 * and the cast is as much again for each chunk. One chunk's sum is an operation of its
 * own. */
void time_loss_chunks(struct op_clock *o)
{
    enum { OVER_LOGITS = 3, OF_INPUT = 3, KERNELS = 3, OF_SUM = 2 };
    const struct tensor *x = op_in(o, 0), *chunk = op_out(o, 1);
    if (o->op->n_out < 3 || chunk->rank != 2) /* torchtitan's: eight, in fp32 */
        return;
    const double width = (double)x->dim[x->rank - 1].n;
    const double rows = (double)x->elems / width;
    const double n = ceil(rows / (double)chunk->dim[0].n);
    struct moved m = { n * OVER_LOGITS * (double)chunk->bytes
                           + OF_INPUT * (double)op_out(o, 2)->bytes,
                       n * KERNELS };
    if (o->op->n_out > 3) {
        const struct tensor *w = op_out(o, 3);
        const double up = (double)(w->elems * dtype_size(DT_FP32));
        m.bytes += (n - 1) * (3 * (double)w->bytes + 2 * up);
        m.kernels += (n - 1) * OF_SUM;
    }
    moves_spend(o->c, &o->out->forward, m);
}

void time_loss(struct op_clock *o)
{
    if (o->op->kind == OP_COMPILED_CROSS_ENTROPY)
        compiled(o);
    else if (o->c->run->loss == LOSS_FUSED)
        transformer_engine(o);
    else
        eager(o);
}
