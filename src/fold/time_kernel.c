/*
 * Time of a block's kernels, forward and backward: products by their shape,
 * attention by its length, all else by the bytes it moves. Owns the roofline;
 * refuses to know how often a block runs. [docs/method.md eq. kernels]
 */
#include "data/constants.h"
#include "fold/fold.h"
#include "fold/time_private.h"

#include <math.h>
#include <string.h>

#include "base/banned.h"

/* Share of the memory's bandwidth that a product's operands are read with. */
#define PRODUCT_MEMORY_SHARE 0.85
/* Of a product's rate, convolutions by cuDNN. */
#define CONV_SHARE 0.67

/* What a multiprocessor computes at most of 16-bit products whose rows are not
 * read 16 bytes at a time: those at odd multiples of 2 bytes, and at 4 or 8. An
 * H100 does 112 to 153 and 251 to 294 TFLOP/s (torch 2.11, 8192 x 4096 x 50257,
 * 50258 and 11007, 11006), where aligned rows reach 700; for an A100 the first is
 * what nanoGPT says of 50257 words and 50304, 25 % of a step of GPT-2
 * (karpathy/nanoGPT@0194d45). */
#define ODD_ROWS_FLOP_S 1e12
#define EVEN_ROWS_FLOP_S 2e12

void clock_init(struct clock *c, const struct program *p, const struct run *run)
{
    *c = (struct clock){ .p = p,
                         .run = run,
                         .slowest = kernel_slowest(run_at_once(run)) };
    c->speed = kernel_speed_of(&run->gpu, &c->measured);
}

/* ---- products ---- */

static bool is_in_4_bits(const struct clock *c, const struct product *x)
{
    return x->fp8 && c->run->fp8_recipe == FP8_NVFP4;
}

static double peak_of(const struct clock *c, const struct product *x)
{
    const struct gpu *g = &c->run->gpu;
    double peak = 0;
    if (x->fp8)
        peak = is_in_4_bits(c, x) ? g->peak_fp4_flop_s : g->peak_fp8_flop_s;
    else if (x->dtype == DT_BF16)
        peak = g->peak_bf16_flop_s;
    else if (x->dtype == DT_FP16)
        peak = g->peak_fp16_flop_s;
    else if (x->dtype == DT_FP32 && c->run->precision != PREC_TF32)
        peak = g->peak_fp32_flop_s;
    else if (x->dtype == DT_FP32)
        peak = g->peak_tf32_flop_s;
    return peak > 0 ? peak * c->run->peak_scale : c->run->peak_flop_s;
}

double time_peak(const struct clock *c, enum dtype dtype)
{
    return peak_of(c, &(struct product){ .dtype = dtype });
}

/* ceil() of what is not negative, without a call where integers are exact. */
static inline double up(double x)
{
    const double exact = 9007199254740992.0; /* 2^53: beyond it all are whole */
    if (!(x < exact))
        return x;
    const double whole = (double)(int64_t)x;
    return whole < x ? whole + 1 : whole;
}

/* Work of the best tiling over the work asked for, units idle in the last wave
 * included. Smaller tiles, which come later, load more for what they compute:
 * where that is as much as the best so far, none of them is better. */
static double quantised(const struct product *x, double units)
{
    enum { S64, S128, S256, FIRST_OF_64 = 3 };
    static const double side[] = { 64, 128, 256 };
    static const struct {
        uint8_t m, n;
        double penalty;
    } tiles[] = { { S256, S128, 1 },    { S128, S256, 1 },
                  { S128, S128, 1.06 }, { S256, S64, 1.06 },
                  { S64, S256, 1.06 },  { S128, S64, 1.2 },
                  { S64, S128, 1.2 },   { S64, S64, 1.5 } };
    const double work = x->m * x->n * x->copies;
    double m[] = { 0, up(x->m / 128), up(x->m / 256) };
    double n[] = { 0, up(x->n / 128), up(x->n / 256) };
    double best = (double)INFINITY;
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++) {
        if (best <= work * tiles[i].penalty)
            break;
        if (i == FIRST_OF_64) {
            m[S64] = up(x->m / 64);
            n[S64] = up(x->n / 64);
        }
        const double count = m[tiles[i].m] * n[tiles[i].n] * x->copies;
        const double cost = up(count / units) * units * side[tiles[i].m]
                            * side[tiles[i].n] * tiles[i].penalty;
        best = cost < best ? cost : best;
    }
    return best / work;
}

static double operand_bytes(const struct clock *c, const struct product *x)
{
    const double size = is_in_4_bits(c, x) ? NVFP4_BYTES
                        : x->fp8           ? 1
                                           : (double)dtype_size(x->dtype);
    return x->copies
           * (size * (x->m * x->k + x->k * x->n)
              + x->result_bytes * x->m * x->n);
}

/* Without tensor cores, which is what clocks fall for. */
static bool is_plain(const struct clock *c, const struct product *x)
{
    return !x->fp8 && x->dtype == DT_FP32 && c->run->precision != PREC_TF32
           && c->speed->share32 > 0;
}

/* Rows that are read 16 bytes at a time begin at multiples of 8 elements; a
 * compiler pads them. */
static double rows_limit(const struct clock *c, const struct product *x)
{
    const bool bits16 = !x->fp8 && (x->dtype == DT_BF16 || x->dtype == DT_FP16);
    if (!bits16 || x->align == 0 || x->align % 8 == 0 || c->run->compile)
        return (double)INFINITY;
    return (double)c->run->gpu.sm_count
           * (x->align % 2 == 0 ? EVEN_ROWS_FLOP_S : ODD_ROWS_FLOP_S);
}

/* Of a product's rate alone, in a step, which is the slowest GPU's. */
static double in_situ(const struct clock *c, const struct product *x)
{
    const struct kernel_speed *s = c->speed;
    const bool alone = c->run->gpus == 1 && s->in_situ_alone > 0;
    double share = alone ? s->in_situ_alone : s->in_situ;
    if (x->fp8)
        share =
            x->exact && s->exact8 > 0 ? s->in_situ8 * s->exact8 : s->in_situ8;
    return share / c->slowest;
}

static double product_seconds(const struct clock *c, const struct product *x)
{
    const struct product_speed *s =
        x->fp8 ? &c->speed->bits8 : &c->speed->bits16;
    const bool plain = is_plain(c, x);
    const double share = plain ? c->speed->share32 : s->share;
    const double flop = 2 * x->m * x->n * x->k * x->copies;
    const double waves = quantised(x, (double)c->run->gpu.sm_count);
    const double rate =
        fmin(peak_of(c, x) * share * (plain ? 1 : in_situ(c, x)),
             rows_limit(c, x))
        * c->run->scale[SPEED_PRODUCTS];
    const double compute =
        flop / rate * (1 + s->quantum * (waves - 1)) * (1 + s->depth / x->k);
    const double memory =
        operand_bytes(c, x)
        / (c->run->gpu.bandwidth_bytes_s * PRODUCT_MEMORY_SHARE);
    if (c->log != NULL)
        time_log_kernel(c->log, (struct kernel_note){ *x, 0, compute, memory,
                                                      s->launch_s });
    return fmax(compute, memory) + s->launch_s;
}

/* Only sums of 8 bits are kept otherwise. */
static bool same_product(const struct product *a, const struct product *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k
           && a->copies == b->copies && a->dtype == b->dtype && a->fp8 == b->fp8
           && (a->exact == b->exact || !a->fp8)
           && a->result_bytes == b->result_bytes && a->align == b->align;
}

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Where it would be: the highest bits of a multiplicative hash. */
static struct known_product *place_of(struct known_products *known,
                                      const struct product *x)
{
    enum { LOG_PLACES = 5, BITS = 64 };
    const uint64_t key = bits_of(x->m) + 3 * bits_of(x->n) + 5 * bits_of(x->k);
    return &known
                ->at[key * UINT64_C(0x9E3779B97F4A7C15) >> (BITS - LOG_PLACES)];
}

double time_product(const struct clock *c, const struct product *x)
{
    if (!(x->m >= 1) || !(x->n >= 1) || !(x->k >= 1) || !(x->copies >= 1))
        return 0;
    if (c->known == NULL || c->log != NULL)
        return product_seconds(c, x);
    struct known_product *place = place_of(c->known, x);
    if (!same_product(&place->of, x)) {
        place->of = *x;
        place->seconds = product_seconds(c, x);
    }
    return place->seconds;
}

double time_bytes(const struct clock *c, double bytes)
{
    if (bytes <= 0)
        return 0;
    const double memory =
        bytes
        / (c->run->gpu.bandwidth_bytes_s * c->speed->memory_share
           * c->run->scale[SPEED_MEMORY]);
    if (c->log != NULL)
        time_log_kernel(c->log,
                        (struct kernel_note){ .bytes = bytes,
                                              .memory_s = memory,
                                              .launch_s = KERNEL_LATENCY_S });
    return memory + KERNEL_LATENCY_S;
}

/* ---- one operation ---- */

/* Of rows of these lengths: 1, 2, 4 or 8. */
static unsigned rows_align(double a, double b)
{
    const uint64_t lengths = (uint64_t)a | (uint64_t)b | 8;
    return (unsigned)(lengths & (~lengths + 1));
}

static double last_dim(const struct tensor *t)
{
    return t->rank == 0 ? 1 : (double)t->dim[t->rank - 1].n;
}

/* A compiler casts what several linears read once. */
static bool is_cast_before(const struct op_clock *o)
{
    const struct op *first = o->c->p->op;
    const tensor_id x = o->op->in[0];
    if (!o->c->run->compile || !o->op->in_8_bits)
        return false;
    for (const struct op *op = o->op; op-- > first;) {
        if (op->kind == OP_LINEAR && op->in_8_bits && op->in[0] == x)
            return true;
        if (op->n_out > 0 && op->out[0] == x)
            return false;
    }
    return false;
}

static struct moved cast_moves(const struct op_clock *o,
                               const struct cast_pass *p)
{
    const struct clock *c = o->c;
    const double rate = c->run->gpu.bandwidth_bytes_s * c->speed->memory_share;
    return (struct moved){
        p->bytes + p->across_s * rate / (double)c->run->gpu.sm_count, p->kernels
    };
}

static void casts(struct op_clock *o)
{
    const struct tensor *x = op_in(o, 0), *w = op_in(o, 1);
    const bool any = op_grads(x) || op_grads(w);
    struct cast_work b;
    cast_to_8_bits(
        &b, o->c->run,
        &(struct operands){ .input = is_cast_before(o) ? 0 : (double)x->elems,
                            .cast = x->dtype == DT_FP8,
                            .weight = (double)w->elems,
                            .gradient = any && !o->op->in_product
                                            ? (double)op_out(o, 0)->elems
                                            : 0,
                            .on_use = o->op->in_8_bits,
                            .back = any,
                            .frozen = !op_grads(w) });
    moves_spend(o->c, &o->out->forward, cast_moves(o, &b.forward));
    moves_spend(o->c, &o->out->input, cast_moves(o, &b.back));
}

/* Whose weight is unpacked for the product: again in backward, for which the
 * packed one is kept (bitsandbytes, MatMul4Bit). */
static void unpacks_again(struct op_clock *o)
{
    const struct tensor *w = op_in(o, 1);
    for (unsigned i = 2; i < o->op->n_in; i++) {
        const struct tensor *packed = op_in(o, i);
        if (packed->elems == w->elems && packed->bytes < w->bytes)
            op_spend(&o->out->input, TIME_MEMORY,
                     time_bytes(o->c, moves_unpacked(o, packed, w)));
    }
}

/* Its gradient sums rows; autocast casts it and that. */
static void bias(struct op_clock *o)
{
    const struct tensor *x = op_in(o, 0), *y = op_out(o, 0), *b = op_in(o, 2);
    const double both =
        (double)b->bytes + (double)(b->elems * dtype_size(x->dtype));
    const struct moved cast = { both, b->dtype != x->dtype ? 1 : 0 };
    moves_spend(o->c, &o->out->forward, cast);
    if (!op_grads(op_in(o, 1)))
        return;
    op_spend(&o->out->weight, TIME_MEMORY, time_bytes(o->c, (double)y->bytes));
    moves_spend(o->c, &o->out->weight, cast);
}

/* Sums of a product in 8 bits kept in fp32: Transformer Engine and torchao ask
 * for that in backward (recipe.py, fp8_gemm_dgrad; float8/config.py,
 * use_fast_accum), and with scales of blocks forward too. */
static bool sums_exactly(const struct run *run, bool back)
{
    return back || run->fp8_recipe == FP8_BLOCKWISE
           || run->fp8_recipe == FP8_DEEPSEEK;
}

/* x W: its gradients are two products, of other shapes. */
static void linear(struct op_clock *o)
{
    const struct tensor *x = op_in(o, 0), *w = op_in(o, 1), *y = op_out(o, 0);
    const double k = last_dim(x), n = last_dim(y);
    const double flop = o->op->flop_full + o->op->flop_idle;
    const double copies =
        fmax(1, floor((double)w->elems / fmax(k * n, 1) + 0.5));
    const bool fp8 = (w->fp8 || o->op->in_8_bits) && o->c->run->prec.fp8;
    struct product p = { .m = flop / (2 * k * n * copies),
                         .n = n,
                         .k = k,
                         .copies = copies,
                         .dtype = x->dtype,
                         .fp8 = fp8,
                         .exact = sums_exactly(o->c->run, false),
                         .result_bytes = (double)dtype_size(y->dtype),
                         .align = rows_align(k, n) };
    const double m = p.m;
    if (fp8)
        casts(o);
    op_spend(&o->out->forward, TIME_PRODUCTS, time_product(o->c, &p));
    p.n = k, p.k = n;
    p.exact = sums_exactly(o->c->run, true);
    if (op_grads(x))
        unpacks_again(o);
    if (op_grads(x))
        op_spend(&o->out->input, TIME_PRODUCTS, time_product(o->c, &p));
    p.m = n, p.n = k, p.k = m;
    p.fp8 = fp8 && o->c->run->fp8_recipe != FP8_ROWWISE_GW_HP;
    if (time_adds_in_product(o->c->run))
        p.result_bytes = 2 * (double)dtype_size(o->c->run->prec.grad);
    if (op_grads(w))
        op_spend(&o->out->weight, TIME_PRODUCTS, time_product(o->c, &p));
    if (o->op->n_in > 2 && op_in(o, 2)->role == ROLE_PARAM)
        bias(o);
}

/* Batches of matrices: the last two dimensions of the first operand say which. */
static void matmul(struct op_clock *o)
{
    const struct tensor *x = op_in(o, 0);
    const double k = last_dim(x);
    const double m = x->rank < 2 ? 1 : (double)x->dim[x->rank - 2].n;
    const double copies = (double)x->elems / fmax(k * m, 1);
    const double flop = o->op->flop_full;
    struct product p = { .m = m,
                         .n = flop / (2 * fmax((double)x->elems, 1)),
                         .k = k,
                         .copies = copies,
                         .dtype = x->dtype,
                         .result_bytes = (double)dtype_size(x->dtype),
                         .align = rows_align(k, last_dim(op_out(o, 0))) };
    const enum time_part part =
        o->op->core_attention ? TIME_ATTENTION : TIME_PRODUCTS;
    const double n = p.n, written = p.result_bytes;
    if (o->op->onto) {
        moves_spread(o);
        p.result_bytes = 2 * written;
    }
    op_spend(&o->out->forward, part, time_product(o->c, &p));
    p.result_bytes = written;
    p.n = k, p.k = n;
    if (op_grads(x))
        op_spend(&o->out->input, part, time_product(o->c, &p));
    p.m = k, p.n = n, p.k = m;
    if (o->op->n_in > 1 && op_grads(op_in(o, 1)))
        op_spend(&o->out->input, part, time_product(o->c, &p));
}

/* FLOPs of products whose shapes the operation does not say. */
static double plain_products(const struct op_clock *o, double flop, double part)
{
    const struct product x = { .dtype = op_in(o, 0)->dtype };
    const double share = part * o->c->speed->bits16.share;
    return flop
           / (peak_of(o->c, &x) * share * in_situ(o->c, &x)
              * o->c->run->scale[SPEED_PRODUCTS]);
}

static void with_products(struct op_clock *o)
{
    const double flop = o->op->flop_full;
    const double back = op_backward_products(o->c->p, o->op);
    moves_once(o);
    if (flop <= 0)
        return;
    op_spend(&o->out->forward, TIME_PRODUCTS, plain_products(o, flop, 1));
    op_spend(&o->out->input, TIME_PRODUCTS, plain_products(o, back * flop, 1));
}

static void convolution(struct op_clock *o)
{
    const double flop = o->op->flop_full;
    const double back = op_backward_products(o->c->p, o->op);
    const double least = time_bytes(o->c, moves_forward_bytes(o));
    const double once = plain_products(o, flop, CONV_SHARE);
    op_spend(&o->out->forward, TIME_PRODUCTS, fmax(once, least));
    op_spend(&o->out->input, TIME_PRODUCTS, back * fmax(once, least));
}

/* Of a view: the gradient of a part is gathered. */
static enum wire wire_of_gradient(const struct op_clock *o)
{
    return op_out(o, 0)->elems < op_in(o, 0)->elems ? WIRE_ALL_GATHER
                                                    : WIRE_ALL_REDUCE;
}

/* Exhaustive: a new kind does not compile until it has its time. */
static void op_time(struct op_clock *o)
{
    switch (o->op->kind) {
    case OP_LINEAR: linear(o); break;
    case OP_MATMUL: matmul(o); break;
    case OP_FLASH_ATTENTION:
    case OP_SDPA: time_attention(o); break;
    case OP_CONV: convolution(o); break;
    case OP_EMBEDDING:
    case OP_INDEX: moves_rows(o); break;
    case OP_VIEW:
        moves_view(o);
        if (o->op->one_way && op_has_grads(o))
            message_time(o, wire_of_gradient(o), WIRE_ALL_REDUCE);
        break;
    case OP_ADD: moves_sum(o); break;
    case OP_MUL: moves_product(o); break;
    case OP_DIV: moves_quotient(o); break;
    case OP_POW: moves_power(o); break;
    case OP_RSQRT: moves_root(o); break;
    case OP_NLL_LOSS: moves_chosen(o); break;
    case OP_CROSS_ENTROPY:
    case OP_COMPILED_CROSS_ENTROPY: time_loss(o); break;
    case OP_LAYER_NORM:
    case OP_RMS_NORM: moves_norm(o); break;
    case OP_CAST: moves_cast(o); break;
    case OP_SOFTMAX: moves_softmax(o, false); break;
    case OP_LOG_SOFTMAX: moves_softmax(o, true); break;
    case OP_MEAN: moves_mean(o); break;
    case OP_PYTHON_GELU: moves_python_gelu(o); break;
    case OP_NEG:
    case OP_CAT: moves_strided(o); break;
    case OP_FUSED:
    case OP_FUNCTION:
    case OP_LOOP:
    case OP_SOLVE: with_products(o); break;
    case OP_FUSED_CROSS_ENTROPY:
        with_products(o);
        time_loss_chunks(o);
        break;
    case OP_ACTIVATION:
        if (o->op->bounds > 0)
            moves_clamp(o);
        else
            moves_once(o);
        break;
    case OP_SCALE:
    case OP_TANH:
    case OP_MASKED_SOFTMAX:
    case OP_RELU:
    case OP_COPY:
    case OP_DROPOUT:
    case OP_DROPOUT_ADD:
    case OP_BATCH_NORM:
    case OP_MAX_POOL:
    case OP_AVG_POOL:
    case OP_CUMSUM:
    case OP_WHERE:
    case OP_TOPK: moves_once(o); break;
    case OP_SWIGLU:
    case OP_QUANTIZE:
        if (!o->op->in_product)
            moves_once(o);
        break;
    case OP_ALL_REDUCE:
        message_time(o, WIRE_ALL_REDUCE, WIRE_ALL_REDUCE);
        break;
    case OP_ALL_GATHER:
        message_time(o, WIRE_ALL_GATHER, WIRE_REDUCE_SCATTER);
        break;
    case OP_REDUCE_SCATTER:
        message_time(o, WIRE_REDUCE_SCATTER, WIRE_ALL_GATHER);
        break;
    case OP_ALL_TO_ALL: message_time(o, WIRE_A2A, WIRE_A2A); break;
    case OP_RELEASE:
    case OP_KIND_COUNT: break;
    }
}

static void add_pass(struct pass *sum, const struct pass *x)
{
    for (int i = 0; i < TIME_PARTS; i++)
        sum->part[i] += x->part[i];
    sum->kernels += x->kernels;
    sum->messages += x->messages;
}

/* Most operations have no part in most passes; what messages leave beside
 * products is in any. */
static void add_any(struct pass *sum, const struct pass *x)
{
    if (x->kernels != 0 || x->messages != 0)
        add_pass(sum, x);
}

static void add_time(struct block_time *sum, const struct block_time *x)
{
    add_any(&sum->forward, &x->forward);
    add_any(&sum->input, &x->input);
    add_any(&sum->weight, &x->weight);
}

void time_op(struct block_time *out, const struct clock *c, const struct op *op)
{
    struct op_clock o = { c, op, out, c->p->tensor };
    *out = (struct block_time){ 0 };
    op_time(&o);
}

/* Of operations of a block so far. */
struct ops_time {
    struct block_time once,
        twice; /* backward runs the forward of these again */
    struct forks forks;
};

/* Those from `first` on, before `end`. */
static void time_ops(struct ops_time *x, const struct clock *c,
                     const struct block *b, uint32_t first, uint32_t end)
{
    const uint32_t again = ops_run_again(c->p, b, c->run);
    struct between_messages k = { .embeds = b->kind == BLOCK_EMBED };
    const struct op *op = &c->p->op[b->op_first + first];
    const bool any = c->run->recompute != RECOMP_NONE;
    struct op_clock o = { .c = c, .tensor = c->p->tensor };
    for (uint32_t i = first; i < end; i++, op++) {
        const bool twice =
            any && i < again && op_runs_again(op, c->run, b->kind);
        o.op = op;
        o.out = twice ? &x->twice : &x->once;
        if (c->run->tp == 1) {
            op_time(&o);
            continue;
        }
        struct block_time one = { 0 };
        struct block_time *sum = o.out;
        o.out = &one;
        op_time(&o);
        message_beside(&k, &o);
        add_time(sum, &one);
    }
    x->once.input.part[TIME_TP] += k.mirrored;
    moves_find_forks(&x->forks, c, b, first, end);
}

static void end_ops(struct block_time *out, const struct clock *c,
                    const struct ops_time *x)
{
    *out = x->once;
    out->mirrored = 0; /* of an operation */
    out->again = x->twice.forward;
    add_time(out, &x->twice);
    moves_forks(out, c, &x->forks);
}

void time_block(struct block_time *out, const struct clock *c,
                const struct block *b)
{
    struct ops_time x = { .forks = { .sums = { 0, 0 } } };
    time_ops(&x, c, b, 0, b->op_count);
    end_ops(out, c, &x);
}

/* Whether an operation's time is its own, and what is common to blocks is run
 * again of all of them, or of none. */
static bool has_common(const struct clock *c, const struct block *b)
{
    const struct block *as = &c->p->block[b->begins_as];
    return b->common_ops > 0 && c->run->tp == 1
           && ops_run_again(c->p, b, c->run) >= b->common_ops
           && ops_run_again(c->p, as, c->run) >= b->common_ops;
}

void time_blocks(struct block_time *out, const struct clock *c)
{
    struct ops_time common;
    uint32_t whose = BLOCK_MAX;
    for (uint32_t i = 0; i < c->p->n_blocks; i++) {
        const struct block *b = &c->p->block[i];
        if (!has_common(c, b)) {
            time_block(&out[i], c, b);
            continue;
        }
        if (whose != b->begins_as) {
            common = (struct ops_time){ .forks = { .sums = { 0, 0 } } };
            time_ops(&common, c, b, 0, b->common_ops);
            whose = b->begins_as;
        }
        struct ops_time x = common;
        time_ops(&x, c, b, b->common_ops, b->op_count);
        end_ops(&out[i], c, &x);
    }
}
