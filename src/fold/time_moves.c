/*
 * Bytes of the kernels that compute little: an operation's forward, and the
 * kernels that PyTorch makes its gradients with (tools/autograd/
 * derivatives.yaml, torch/csrc/autograd/FunctionsManual.cpp). Owns how many
 * there are; refuses to know how fast memory is. [docs/method.md eq. moves]
 */
#include "fold/fold.h"
#include "fold/time_private.h"

#include <math.h>

#include "base/banned.h"

void moves_spend(const struct clock *c, struct pass *p, struct moved m)
{
    if (m.kernels < 1)
        return;
    op_spend(p, TIME_MEMORY,
             time_bytes(c, m.bytes) + (m.kernels - 1) * KERNEL_LATENCY_S);
    p->kernels += m.kernels - 1;
}

double moves_forward_bytes(const struct op_clock *o)
{
    double sum = 0;
    for (unsigned i = 0; i < o->op->n_in; i++)
        sum += (double)op_in(o, i)->bytes;
    for (unsigned i = 0; i < o->op->n_out; i++)
        sum += (double)op_out(o, i)->bytes;
    return sum;
}

/* What a multiprocessor does at most, as timed on an H100, whose memory is faster
 * than that (tests/measured/moves.csv): elements a second of a kernel that cannot
 * load several at once, as operands are broadcast, transposed or slices, or one
 * is widened (2.4 to 4.7 ps each on 132 of them, whatever their size); whose
 * operands differ in type, so that each load asks which (4.2 to 4.4 ps,
 * aten/src/ATen/native/cuda/MemoryAccess.cuh, LoadWithCast); both (4.9 and 5.0:
 * rotary embedding under autocast, in steps of pythia-1.4b and smollm-135m);
 * that 4-bit weights are unpacked to (bitsandbytes, kDequantizeBlockwise); bytes
 * a second of PyTorch's norms and of softmax forward. */
#define LONE_ELEMENTS_S 2.3e9
#define MIXED_ELEMENTS_S 1.75e9
#define MIXED_LONE_ELEMENTS_S 1.5e9
#define UNPACKED_ELEMENTS_S 6.4e9
#define NORM_BYTES_S 15.5e9
#define SOFTMAX_BYTES_S 17.5e9

/* Bytes that others move in the time of so many units, at so many a second on
 * each multiprocessor. */
static double units_as_bytes(const struct op_clock *o, double units,
                             double each)
{
    const struct run *run = o->c->run;
    const double rate = run->gpu.bandwidth_bytes_s * o->c->speed->memory_share;
    return units * rate / (run->gpu.sm_count * each);
}

double moves_lone(const struct op_clock *o, double bytes, double elems)
{
    return fmax(bytes, units_as_bytes(o, elems, LONE_ELEMENTS_S));
}

static double at_most(const struct op_clock *o, double bytes, double each)
{
    return fmax(bytes, units_as_bytes(o, bytes, each));
}

static double backward_bytes(const struct op_clock *o)
{
    tensor_id saved[SAVED_MAX];
    const size_t n = op_saves(o->c->p, o->op, saved);
    double sum = (double)op_out(o, 0)->bytes;
    for (size_t i = 0; i < n; i++)
        sum += (double)o->c->p->tensor[saved[i]].bytes;
    for (unsigned i = 0; i < o->op->n_in; i++)
        if (op_grads(op_in(o, i)))
            sum += (double)op_in(o, i)->bytes;
    return sum;
}

static void back(struct op_clock *o, double bytes, double kernels)
{
    if (op_has_grads(o))
        moves_spend(o->c, &o->out->input, (struct moved){ bytes, kernels });
}

/* What of an operand keeps a kernel from loading several elements at once: it is
 * not in the result's order, or of another type. */
enum odd { OF_SHAPE = 1, OF_TYPE = 2 };

static unsigned oddness(const struct op_clock *o, unsigned i)
{
    const struct tensor *x = op_in(o, i), *y = op_out(o, 0);
    const bool shape = o->op->strided || (x->elems != y->elems && x->elems > 1);
    return (shape ? OF_SHAPE : 0) | (x->dtype != y->dtype ? OF_TYPE : 0);
}

/* Bytes that others move in the time of a kernel over the result's elements. */
static double with_odd(const struct op_clock *o, double bytes, unsigned odd)
{
    static const double each[] = { [OF_SHAPE] = LONE_ELEMENTS_S,
                                   [OF_TYPE] = MIXED_ELEMENTS_S,
                                   [OF_SHAPE | OF_TYPE] =
                                       MIXED_LONE_ELEMENTS_S };
    const double elems = (double)op_out(o, 0)->elems;
    return odd == 0 ? bytes : fmax(bytes, units_as_bytes(o, elems, each[odd]));
}

static void forward(struct op_clock *o, double bytes, unsigned odd)
{
    op_spend(&o->out->forward, TIME_MEMORY,
             time_bytes(o->c, with_odd(o, bytes, odd)));
}

void moves_once(struct op_clock *o)
{
    moves_forward(o);
    back(o, backward_bytes(o), 1);
}

/* clamp_backward (torch/csrc/autograd/FunctionsManual.cpp): which elements lie
 * within each bound, a byte each, whether within both, and the gradient there. */
void moves_clamp(struct op_clock *o)
{
    enum { CHOICE = 2 };
    const double elems = (double)op_out(o, 0)->elems;
    const double bytes = (double)op_out(o, 0)->bytes;
    const double bounds = o->op->bounds;
    const unsigned odd = o->op->strided ? OF_SHAPE : 0;
    const double tests = bounds * with_odd(o, bytes + elems, odd);
    const double both = (bounds - 1) * 3 * elems;
    moves_forward(o);
    back(o, tests + both + with_odd(o, CHOICE * bytes + elems, odd),
         2 * bounds);
}

void moves_forward(struct op_clock *o)
{
    forward(o, moves_forward_bytes(o), o->op->strided ? OF_SHAPE : 0);
}

/* torchtune's are torchao's, which spells it out; others' kernels for int4 were
 * not timed. */
static bool has_kernel_of_4_bits(const struct run *run)
{
    return (run->base_dtype == DT_NF4 || run->base_dtype == DT_FP4)
           && run->impl != IMPL_TORCHTUNE;
}

double moves_unpacked(const struct op_clock *o, const struct tensor *packed,
                      const struct tensor *unpacked)
{
    const double bytes = (double)packed->bytes + (double)unpacked->bytes;
    const double elems = (double)unpacked->elems;
    if (!has_kernel_of_4_bits(o->c->run))
        return bytes;
    return fmax(bytes, units_as_bytes(o, elems, UNPACKED_ELEMENTS_S));
}

/* To more bits one by one, to fewer several at once; out of less than a byte an
 * element by a kernel of its own; integers by a product with their scales, whose
 * type is another. */
void moves_cast(struct op_clock *o)
{
    const struct tensor *x = op_in(o, 0), *y = op_out(o, 0);
    const double bytes = moves_forward_bytes(o), n = (double)y->elems;
    const bool scaled = o->op->strided && x->dtype == DT_INT8;
    if (x->bytes < x->elems && has_kernel_of_4_bits(o->c->run))
        forward(o, moves_unpacked(o, x, y), 0);
    else
        forward(o, bytes,
                (x->bytes < y->bytes ? OF_SHAPE : 0) | (scaled ? OF_TYPE : 0));
    back(o, x->bytes > y->bytes ? moves_lone(o, bytes, n) : bytes, 1);
}

/* Rows of a vocabulary are read again from memory for their largest and for
 * their sum, and the gradient is read twice (cunn_SoftMaxForward, ...Backward);
 * short ones stay in registers, longer ones of the backward in what a block
 * shares. A softmax's, not its logarithm's, begins with a product of gradient
 * and result (aten/src/ATen/native/cuda/SoftMax.cu, softmax_backward_cuda_out). */
void moves_softmax(struct op_clock *o, bool vocabulary)
{
    enum { SHORT_ROW = 1024, SHARED_BYTES = 48 << 10, TIMES = 3, AGAIN = 1 };
    const struct tensor *y = op_out(o, 0);
    const double row = y->rank > 0 ? (double)y->dim[y->rank - 1].n : 1;
    const bool fits =
        row * (double)dtype_size(y->dtype) <= (double)SHARED_BYTES;
    const double there = moves_forward_bytes(o), whole = (double)y->bytes;
    const double each = backward_bytes(o) / TIMES;
    if (vocabulary) {
        forward(o, 2 * there, 0);
        back(o, (TIMES + AGAIN) * each, 1);
        return;
    }
    forward(o, row <= SHORT_ROW ? there : at_most(o, there, SOFTMAX_BYTES_S),
            0);
    if (o->c->run->compile)
        back(o, TIMES * each, 1);
    else
        back(o, TIMES * whole + (fits ? TIMES : TIMES + AGAIN) * each, 2);
}

void moves_spread(struct op_clock *o)
{
    forward(o, (double)op_out(o, 0)->bytes, OF_SHAPE);
}

/* Bloom's, written out: products with numbers, sums of 1 and tanh, two passes
 * each, and products and a sum of tensors, three (modeling_bloom.py,
 * bloom_gelu_forward, bloom_gelu_back). */
void moves_python_gelu(struct op_clock *o)
{
    enum { ONE = 6, TWO = 3, ONE_BACK = 10, TWO_BACK = 8 };
    const double whole = (double)op_out(o, 0)->bytes;
    const struct moved there = { (2 * ONE + 3 * TWO) * whole, ONE + TWO };
    if (o->c->run->compile) {
        moves_once(o);
        return;
    }
    moves_spend(o->c, &o->out->forward, there);
    back(o, (2 * ONE_BACK + 3 * TWO_BACK) * whole, ONE_BACK + TWO_BACK);
}

/* Of a gradient as large as the result, in its type, what makes it the
 * operand's: summed where that was broadcast, cast where it is of another. */
static void fit_operand(struct moved *m, const struct op_clock *o, unsigned i)
{
    const struct tensor *x = op_in(o, i), *y = op_out(o, 0);
    if (x->elems == y->elems && x->dtype == y->dtype)
        return;
    m->bytes += (double)x->bytes;
    m->bytes += (double)y->bytes;
    m->kernels += 1;
}

/* Each term's gradient is the sum's, as it is. */
void moves_sum(struct op_clock *o)
{
    struct moved m = { 0, 0 };
    unsigned odd = 0;
    for (unsigned i = 0; i < o->op->n_in; i++) {
        odd |= oddness(o, i);
        if (op_grads(op_in(o, i)))
            fit_operand(&m, o, i);
    }
    forward(o, moves_forward_bytes(o), odd);
    back(o, m.bytes, m.kernels);
}

/* Each factor's gradient: the result's times the other one. */
void moves_product(struct op_clock *o)
{
    const struct tensor *y = op_out(o, 0);
    const double whole = (double)y->bytes;
    const unsigned of_first = oddness(o, 0);
    const unsigned of_second = o->op->n_in > 1 ? oddness(o, 1) : 0;
    struct moved m = { 0, 0 };
    unsigned odd = of_first | of_second;
    for (unsigned i = 0; i < o->op->n_in; i++) {
        const unsigned other = i == 0 && o->op->n_in > 1 ? 1 : 0;
        const double bytes = 2 * whole + (double)op_in(o, other)->bytes;
        odd |= i > 1 ? oddness(o, i) : 0;
        if (!op_grads(op_in(o, i)))
            continue;
        m.bytes += with_odd(o, bytes, other == 1 ? of_second : of_first);
        m.kernels += 1;
        fit_operand(&m, o, i);
    }
    forward(o, moves_forward_bytes(o), odd);
    back(o, m.bytes, m.kernels);
}

/* g / y, and - g ((x / y) / y): two quotients, a sign, a product. */
void moves_quotient(struct op_clock *o)
{
    enum { OF_DIVISOR = 9, KERNELS = 4 };
    const double whole = (double)op_out(o, 0)->bytes;
    struct moved m = { 0, 0 };
    moves_forward(o);
    if (op_grads(op_in(o, 0))) {
        m.bytes += 2 * whole + (double)op_in(o, 1)->bytes;
        m.kernels += 1;
        fit_operand(&m, o, 0);
    }
    if (op_grads(op_in(o, 1))) {
        m.bytes += OF_DIVISOR * whole + 2 * (double)op_in(o, 1)->bytes;
        m.kernels += KERNELS;
        fit_operand(&m, o, 1);
    }
    back(o, m.bytes, m.kernels);
}

/* A mean's gradient is broadcast and divided. */
void moves_mean(struct op_clock *o)
{
    const double bytes = moves_forward_bytes(o);
    forward(o, bytes, 0);
    back(o, moves_lone(o, bytes, (double)op_in(o, 0)->elems), 1);
}

/* g (e x^(e-1)): a power, and two products. */
void moves_power(struct op_clock *o)
{
    enum { TIMES = 7, KERNELS = 3 };
    moves_forward(o);
    back(o, TIMES * (double)op_out(o, 0)->bytes, KERNELS);
}

/* -g/2 r^3: the same. */
void moves_root(struct op_clock *o)
{
    moves_power(o);
}

/* Negated, joined, or any other that is one kernel in the order of its result;
 * parts of what was joined have theirs as they are. */
void moves_strided(struct op_clock *o)
{
    const double bytes = backward_bytes(o);
    moves_forward(o);
    if (o->op->kind != OP_CAT)
        back(o,
             o->op->strided ? moves_lone(o, bytes, (double)op_out(o, 0)->elems)
                            : bytes,
             1);
}

/* PyTorch's own: the input's gradient by one kernel, weight's and bias's by
 * another that reads the result's and the input again (aten/src/ATen/native/
 * cuda/layer_norm_kernel.cu). Megatron's are one. */
void moves_norm(struct op_clock *o)
{
    const bool own = !run_is_megatron(o->c->run);
    double bytes = backward_bytes(o), kernels = 1;
    bool weights = false;
    const double there = moves_forward_bytes(o);
    forward(o, own ? at_most(o, there, NORM_BYTES_S) : there, 0);
    for (unsigned i = 1; i < o->op->n_in; i++)
        weights = weights || op_grads(op_in(o, i));
    if (weights && own) {
        bytes += (double)op_out(o, 0)->bytes + (double)op_in(o, 0)->bytes;
        kernels += 1;
    }
    back(o, own ? at_most(o, bytes, NORM_BYTES_S) : bytes, kernels);
}

/* One of each row is read; its gradient is zeros but for that. */
void moves_chosen(struct op_clock *o)
{
    enum { KERNELS = 2 };
    const struct tensor *labels = op_in(o, o->op->n_in - 1u);
    const double rows = (double)labels->bytes + (double)op_out(o, 0)->bytes;
    op_spend(&o->out->forward, TIME_MEMORY, time_bytes(o->c, rows));
    back(o, (double)op_in(o, 0)->bytes + rows, KERNELS);
}

/* Rows of a table: what comes out is read and written, not the table; its
 * gradient is a whole table. Where rows are added up it is the other way: zeros,
 * to which each is added (scatter_add), and a gradient that is picked. */
void moves_rows(struct op_clock *o)
{
    const double in = (double)op_in(o, 0)->bytes;
    const double out = (double)op_out(o, 0)->bytes;
    struct moved there = { 2 * out, 1 };
    double again = 2 * out + in;
    if (o->op->rows_once) {
        there.bytes = again = in + out;
    } else if (o->op->rows_summed) {
        there = (struct moved){ in + 3 * out, 2 };
        again = 2 * in;
    }
    moves_spend(o->c, &o->out->forward, there);
    back(o, again, 1);
}

/* Parts by index each have a gradient as large as the whole: zeros, the part
 * copied into them, and all of them added. Parts of a split are joined. */
void moves_view(struct op_clock *o)
{
    const double whole = (double)op_in(o, 0)->bytes;
    const double n = o->op->n_out;
    const bool some = op_out(o, 0)->bytes < op_in(o, 0)->bytes;
    if (some && (o->op->indexed || o->op->n_out == 1)) {
        double parts = 0;
        for (unsigned i = 0; i < o->op->n_out; i++)
            parts += moves_lone(o, 2 * (double)op_out(o, i)->bytes,
                                (double)op_out(o, i)->elems);
        back(o, n * whole + parts + (n - 1) * 3 * whole, 3 * n - 1);
    } else if (some || (o->op->keep_in & 1) != 0) {
        back(o, 2 * whole, 1);
    }
}

/* ---- gradients that meet ---- */

static inline bool reads_again(struct forks *f, const struct block *b,
                               tensor_id id)
{
    const uint32_t own = id - b->tensor_first; /* huge when before it */
    const uint32_t at = id == b->input ? 0 : own + 1;
    if (at >= FORK_TENSORS)
        return false;
    const uint64_t mask = UINT64_C(1) << at % 64;
    const bool before = (f->read[at / 64] & mask) != 0;
    f->read[at / 64] |= mask;
    return before;
}

/* How many of an operation's operands, the first ones, have gradients by it: a
 * linear's others are kept in their place, or made of them. */
static unsigned gradient_operands(const struct op *op)
{
    const bool none = op->kind == OP_RELEASE || op->kind == OP_QUANTIZE;
    if (none)
        return 0;
    return op->kind == OP_LINEAR && op->n_in > 2 ? 2 : op->n_in;
}

void moves_find_forks(struct forks *f, const struct clock *c,
                      const struct block *b, uint32_t first, uint32_t end)
{
    enum { TIMES = 3 };
    if (c->run->compile) /* they are parts of other kernels */
        return;
    const struct tensor *tensor = c->p->tensor;
    const struct op *op = &c->p->op[b->op_first + first];
    for (uint32_t i = first; i < end; i++, op++) {
        const tensor_id *end_of_in = op->in + gradient_operands(op);
        for (const tensor_id *id = op->in; id < end_of_in; id++) {
            const struct tensor *t = &tensor[*id];
            if (!t->needs_grad || t->role == ROLE_PARAM
                || !reads_again(f, b, *id))
                continue;
            f->sums.bytes += TIMES * (double)t->bytes;
            f->sums.kernels += 1;
        }
    }
}

void moves_forks(struct block_time *sum, const struct clock *c,
                 const struct forks *f)
{
    moves_spend(c, &sum->input, f->sums);
}
