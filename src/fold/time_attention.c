/*
 * Time of fused attention: which kernel, what it reaches of the peak, and how
 * many blocks it is dealt in. Refuses to know what is sent around it.
 * [docs/method.md eq. kernels]
 */
#include "fold/fold.h"
#include "fold/time_private.h"

#include <math.h>

#include "base/banned.h"

/* Of FlashAttention 2's rate, version 1 where nobody timed it: what an A100
 * shows at 1024 tokens and more (Dao 2023, figure 4). */
#define FLASH_1_SHARE 0.45

/* Of FlashAttention 2's rate on the same GPU (tests/measured/attention.csv),
 * PyTorch's memory-efficient attention where nobody timed it, in 16 and in 32
 * bits, where its share is of a smaller peak. */
#define EFFICIENT_SHARE 0.45
#define EFFICIENT_SHARE_32 1.4

static struct attention_speed efficient_kernel(const struct clock *c,
                                               enum dtype dtype)
{
    const struct kernel_speed *k = c->speed;
    const bool bits32 = dtype == DT_FP32;
    const double share = bits32 ? EFFICIENT_SHARE_32 : EFFICIENT_SHARE;
    struct attention_speed s = bits32 ? k->efficient32 : k->efficient;
    if (s.forward > 0)
        return s;
    s = k->flash2;
    s.forward *= share;
    s.backward *= share;
    return s;
}

/* Which kernel: version 3 and cuDNN's are as fast as each other. */
static struct attention_speed kernel_of(const struct clock *c)
{
    const struct kernel_speed *k = c->speed;
    struct attention_speed s = k->flash2;
    switch (c->run->attention_kernel) {
    case KERNEL_TRITON:
        if (k->triton.forward > 0)
            return k->triton;
        /* fall through */
    case KERNEL_FLASH_1:
        if (k->flash1.forward > 0)
            return k->flash1;
        s.forward *= FLASH_1_SHARE;
        s.backward *= FLASH_1_SHARE;
        return s;
    case KERNEL_FLASH_3:
    case KERNEL_CUDNN: return k->fused;
    case KERNEL_FLASH_2:
    case ATTENTION_KERNEL_COUNT: break;
    }
    return s;
}

/* The same kernels' limit, where one was timed. */
static struct wide_speed limit_of(const struct clock *c,
                                  const struct attended *x)
{
    const struct wide_speed none = { 0, 0 };
    if (x->efficient)
        return x->dtype == DT_FP32 ? none : c->speed->efficient_wide;
    switch (c->run->attention_kernel) {
    case KERNEL_FLASH_3:
    case KERNEL_CUDNN: return c->speed->fused_wide;
    case KERNEL_FLASH_2: return c->speed->flash2_wide;
    case KERNEL_FLASH_1:
    case KERNEL_TRITON:
    case ATTENTION_KERNEL_COUNT: break;
    }
    return none;
}

/* Heads of so many are one tile of the kernel; of queries and keys. */
enum { WHOLE_HEAD = 128 };

/* The memory-efficient kernel's tiles: of queries forward, of keys in backward
 * (torch, transformers/cuda/mem_eff_attention/kernels/generate_kernels.py). */
static double efficient_rows(const struct attended *x, bool back)
{
    enum { HALF_HEAD = 64 };
    if (!back)
        return x->head > WHOLE_HEAD ? 32 : 64;
    const bool whole = x->head > HALF_HEAD && x->head <= WHOLE_HEAD;
    return x->dtype != DT_FP32 && whole ? 128 : 64;
}

/* Rows of the queries that a block has, which computes one head; in backward of
 * the keys. cuDNN's on Blackwell has two tiles of queries a block
 * (tests/measured/attention-heads.csv: its time grows with the heads only once
 * such blocks are more than the multiprocessors). */
static double block_rows(const struct clock *c, const struct attended *x,
                         bool back)
{
    if (x->efficient)
        return efficient_rows(x, back);
    const bool fused = c->run->attention_kernel == KERNEL_CUDNN
                       || c->run->attention_kernel == KERNEL_FLASH_3;
    const bool two = c->run->gpu.arch == ARCH_BLACKWELL && fused;
    return two && !back ? 2 * WHOLE_HEAD : WHOLE_HEAD;
}

/* Rates of cuDNN's kernel in MXFP8 over those of its own in 16 bits, forward and
 * backward, of heads up to 128 and wider ones: means of a GB200 and a GB300 at 4096
 * and 8192 tokens under a causal mask (NVIDIA/cudnn-frontend@3929da2,
 * benchmark/sdpa_benchmark_training/results: llama3.1, dsv3). */
static double bits8_gain(const struct attended *x, bool back)
{
    static const double gain[2][2] = { { 1.28, 0.94 }, { 1.48, 1.31 } };
    return x->in_8_bits ? gain[x->head > WHOLE_HEAD][back] : 1;
}

/* Under a causal mask a query sees half of the keys on average, or fewer. */
static bool is_windowed(const struct attended *x)
{
    return x->flop < 0.499 * x->flop_full;
}

/* What a block begins and ends with is as much as so many keys would take, half
 * of `half` under a causal mask. In a window it computes what lies before the
 * first query's keys and after the last one's, too. */
static double along(const struct clock *c, const struct attended *x,
                    double half, bool back)
{
    const double length = (double)c->run->seq_len;
    if (!is_windowed(x))
        return length / (length + half);
    const double keys = length * x->flop / x->flop_full;
    return keys / (keys + block_rows(c, x, back) + half / 2);
}

/* Share of the peak of a fused kernel that fills the GPU. Heads of less than 128
 * leave the units less to do for what they load; of more, tiles are smaller. What
 * the memory-efficient kernel loses with short sequences is what tiles on the
 * causal mask's edge compute in vain. */
static double share_of(const struct clock *c, const struct attended *x,
                       bool back)
{
    const struct attention_speed s =
        x->efficient ? efficient_kernel(c, x->dtype) : kernel_of(c);
    const struct wide_speed limit = limit_of(c, x);
    const bool no_edge = x->efficient && !(x->flop < x->flop_full);
    const double half = no_edge ? 0 : s.half_tokens;
    const double head = x->head > 0 ? fmin(x->head, WHOLE_HEAD) : WHOLE_HEAD;
    const double part = along(c, x, half, back) * head / (head + s.half_head)
                        * (WHOLE_HEAD + s.half_head) / WHOLE_HEAD;
    const double share = part * (back ? s.backward : s.forward);
    const double most = back ? limit.backward : limit.forward;
    return x->head > WHOLE_HEAD && most > 0 ? fmin(share, most) : share;
}

/* Share of the multiprocessors that compute: blocks are dealt one by one, so
 * that the last ones end half a block apart on average, and none is faster than
 * the longest, under a causal mask twice the mean. */
static double filled(const struct clock *c, const struct attended *x, bool back)
{
    if (x->rows <= 0)
        return 1;
    const double blocks = x->rows / block_rows(c, x, back);
    const double over_mean =
        is_windowed(x) ? 1 : fmin(2, fmax(1, x->flop_full / x->flop));
    const double longest = over_mean * (double)c->run->gpu.sm_count / blocks;
    return 1 / fmax(longest, 1 + longest / 2);
}

/* Backward computes the scores again: five products for the two of forward; in
 * MXFP8 it leaves no block of a window out (the same timings: gpt_oss). */
double time_attended(const struct clock *c, const struct attended *x, bool back)
{
    struct attended a = *x;
    if (back && x->in_8_bits && is_windowed(x))
        a.flop = x->flop_full / 2;
    const double rate = c->run->scale[SPEED_ATTENTION] * time_peak(c, a.dtype)
                        / c->slowest * share_of(c, &a, back)
                        * filled(c, &a, back) * bits8_gain(&a, back);
    return (back ? ATTENTION_BACK_FLOPS : 1) * a.flop / rate + KERNEL_LATENCY_S;
}

/* To MXFP8 along both dimensions, one kernel for queries, keys and values, one for
 * the gradient of what comes out: 2 bytes read, 2 written. */
static void casts_of_attention(struct op_clock *o)
{
    enum { OPERANDS = 3, BYTES = 4 };
    double elems = 0;
    for (unsigned i = 0; i < OPERANDS && i < o->op->n_in; i++)
        elems += (double)op_in(o, i)->elems;
    op_spend(&o->out->forward, TIME_MEMORY, time_bytes(o->c, BYTES * elems));
    if (op_has_grads(o))
        op_spend(&o->out->input, TIME_MEMORY,
                 time_bytes(o->c, BYTES * (double)op_out(o, 0)->elems));
}

/* Rows of the queries are those of the log-sum-exp beside the result. A mask that
 * is a tensor leaves no blocks out. */
void time_attention(struct op_clock *o)
{
    enum { OPERANDS = 3 };
    const bool efficient = o->op->kind == OP_SDPA;
    const bool masked = efficient && o->op->n_in > OPERANDS;
    const struct tensor *q = op_in(o, 0);
    const double rows = o->op->n_out > 1 ? (double)op_out(o, 1)->elems : 0;
    const struct attended x = { .rows = rows,
                                .head = rows > 0 ? (double)q->elems / rows : 0,
                                .flop = masked ? o->op->flop_full
                                               : o->op->flop_causal,
                                .flop_full = o->op->flop_full,
                                .dtype = q->dtype,
                                .efficient = efficient,
                                .in_8_bits = o->op->in_8_bits };
    if (x.in_8_bits)
        casts_of_attention(o);
    const double forward = time_attended(o->c, &x, false);
    const double back = op_has_grads(o) ? time_attended(o->c, &x, true) : 0;
    op_spend(&o->out->forward, TIME_ATTENTION, forward);
    op_spend(&o->out->input, TIME_ATTENTION, back);
    message_around_attention(o, forward, back);
}
