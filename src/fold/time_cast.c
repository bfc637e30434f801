/*
 * Bytes that casts of a product's operands move: to 8 bits before it, or out of
 * 4 and 8 bits to the dtype that it computes in. Owns the kernels that torchao
 * and Transformer Engine cast with; refuses to know what the product takes.
 * [docs/method.md eq. casts]
 */
#include "fold/time.h"

#include "base/banned.h"

/* Bytes an element of an operand, of kernels that read 16 bits (2) and write 8
 * (1), in one layout or in both; and how many kernels. */
struct cast_cost {
    double bytes, kernels;
};

/* Of an input or a gradient, in both layouts: forward's part, and what waits
 * for the product of the weight's gradient; of a weight forward and backward. */
struct cast_costs {
    struct cast_cost now, later, weight, weight_back;
};

/* torchao (testing/training/roofline_utils.py @0598012, which lists kernels by
 * recipe): compiled, the kernel that makes the operand does the first read. */
static struct cast_costs torchao(const struct run *run)
{
    const double read = run->compile ? 0 : 2;
    switch (run->fp8_recipe) {
    case FP8_DELAYED:
    case FP8_TENSORWISE: /* largest of the tensor in two steps, then the cast */
        return (
            struct cast_costs){ { read + 4, 3 }, { 0, 0 }, { 5, 3 }, { 3, 1 } };
    case FP8_BLOCKWISE:
    case FP8_MXFP8:
    case FP8_DEEPSEEK: /* rows and columns each by a kernel of their own */
        return (
            struct cast_costs){ { read + 1, 1 }, { 3, 1 }, { 3, 1 }, { 3, 1 } };
    case FP8_RECIPE_COUNT: break;
    }
    return (struct cast_costs){ 0 };
}

/* Transformer Engine: the input's cast is an operation of the program, weights
 * are cast once a step; the gradient goes into both layouts at once, after the
 * largest was found where it is not history's (csrc/quantizer.cpp). */
static double engine_gradient(const struct run *run)
{
    return run->fp8_recipe == FP8_TENSORWISE ? 6 : 4;
}

static void put(double *bytes, double *kernels, struct cast_cost c,
                double elems)
{
    *bytes += c.bytes * elems;
    *kernels += elems > 0 ? c.kernels : 0;
}

void cast_to_8_bits(struct cast_bytes *out, const struct run *run,
                    const struct operands *x)
{
    *out = (struct cast_bytes){ 0 };
    if (!x->on_use) {
        put(&out->back, &out->back_kernels,
            (struct cast_cost){ engine_gradient(run), 1 }, x->gradient);
        return;
    }
    const struct cast_costs c = torchao(run);
    const double weight = run->fp8_params ? 0 : x->weight;
    put(&out->forward, &out->forward_kernels, c.now, x->input);
    put(&out->forward, &out->forward_kernels, c.weight, weight);
    put(&out->back, &out->back_kernels, c.later, x->input);
    put(&out->back, &out->back_kernels, c.weight_back, weight);
    put(&out->back, &out->back_kernels, c.now, x->gradient);
    put(&out->back, &out->back_kernels, c.later, x->gradient);
}
