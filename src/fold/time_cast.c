/*
 * What casts of a product's operands cost: to 8 bits before it, or out of
 * 4 and 8 bits to the dtype that it computes in. Owns the kernels that torchao
 * and Transformer Engine cast with; refuses to know what the product takes.
 * [docs/method.md eq. casts]
 */
#include "data/constants.h"
#include "fold/time.h"

#include "base/banned.h"

/* Bytes an element of an operand, of kernels that read 16 bits (2) and write 8
 * (1), in one layout or in both; how many kernels; and where they write against
 * the order of memory, elements a second that a multiprocessor does. */
struct cast_cost {
    double bytes, kernels, across_s;
};

/* Of an input forward, and for the product of the weight's gradient; of a
 * weight forward and backward; of a gradient for both products. */
struct cast_costs {
    struct cast_cost input, again, weight, weight_back, gradient;
};

/* What Inductor makes of a compiled layer of Llama 3 8B, 8192 tokens, beyond the
 * kernels of the same layer in 16 bits (tests/measured/casts.csv: H100, torch
 * 2.11, torchao 0.17). Rows are cast as bytes are moved. What the weight's
 * gradient needs is cast again in backward, down the columns, within the norm's
 * and the activation's kernels, which then write against the order of memory:
 * 2.6 ms of 3.6 in backward of a layer with one scale a tensor, 5.5 of 6.3 with
 * rows and columns. */
#define ACROSS_TENSOR_S 0.65e9
#define ACROSS_ROWS_S 0.79e9

static struct cast_costs compiled(const struct run *run)
{
    switch (run->fp8_recipe) {
    case FP8_DELAYED:
    case FP8_TENSORWISE: /* largest of the tensor in two steps, then the cast */
        return (struct cast_costs){ .input = { 4, 3, 0 },
                                    .again = { 0, 1, ACROSS_TENSOR_S },
                                    .weight = { 5, 3, 0 },
                                    .weight_back = { 3, 1, 0 },
                                    .gradient = { 7, 3, 0 } };
    case FP8_ROWWISE:
        return (struct cast_costs){ .input = { 3, 1, 0 },
                                    .again = { 0, 1, ACROSS_ROWS_S },
                                    .weight = { 5, 1, 0 },
                                    .weight_back = { 6, 2, 0 },
                                    .gradient = { 3, 2, ACROSS_ROWS_S } };
    case FP8_ROWWISE_GW_HP: /* the weight's gradient takes what was there */
        return (struct cast_costs){ .input = { 3, 1, 0 },
                                    .weight = { 5, 1, 0 },
                                    .weight_back = { 6, 3, 0 },
                                    .gradient = { 7.5, 1, 0 } };
    case FP8_BLOCKWISE: /* not timed: the first read is part of what made it */
    case FP8_MXFP8:
    case FP8_NVFP4:
    case FP8_DEEPSEEK:
        return (struct cast_costs){ .input = { 1, 1, 0 },
                                    .again = { 3, 1, 0 },
                                    .weight = { 3, 1, 0 },
                                    .weight_back = { 3, 1, 0 },
                                    .gradient = { 4, 2, 0 } };
    case FP8_RECIPE_COUNT: break;
    }
    return (struct cast_costs){ 0 };
}

/* Not compiled, a cast is a chain of kernels: absolute values (4 bytes an
 * element), their largest (2), to fp32 (6), times the scale (8), clamped (8), to
 * 8 bits (5), and small ones of the scales, as recorded of torchao 0.17
 * (float8/float8_utils.py); 8-bit operands that lie across are copied before the
 * product (float8_ops.py, addmm_float8_unwrapped). */
enum { CHAIN = 33, LAID_OUT = 2 };
enum { CHAIN_KERNELS = 11, ROWS_KERNELS = 14 };

static struct cast_costs eager(const struct run *run)
{
    const double n = run_fp8_is_rowwise(run) ? ROWS_KERNELS : CHAIN_KERNELS;
    const struct cast_cost once = { CHAIN, n, 0 };
    const struct cast_cost across = { CHAIN + LAID_OUT, n + 1, 0 };
    switch (run->fp8_recipe) {
    case FP8_DELAYED:
    case FP8_TENSORWISE:
    case FP8_ROWWISE:
        return (struct cast_costs){ .input = once,
                                    .again = across,
                                    .weight = once,
                                    .weight_back = across,
                                    .gradient = { 2 * CHAIN + LAID_OUT,
                                                  2 * n + 1, 0 } };
    case FP8_ROWWISE_GW_HP:
        return (struct cast_costs){ .input = once,
                                    .weight = once,
                                    .weight_back = across,
                                    .gradient = once };
    case FP8_BLOCKWISE: /* as if a kernel did each pass (torchao testing/
                           training/roofline_utils.py @0598012) */
    case FP8_MXFP8:
    case FP8_NVFP4:
    case FP8_DEEPSEEK:
        return (struct cast_costs){ .input = { 3, 1, 0 },
                                    .again = { 3, 1, 0 },
                                    .weight = { 3, 1, 0 },
                                    .weight_back = { 3, 1, 0 },
                                    .gradient = { 6, 2, 0 } };
    case FP8_RECIPE_COUNT: break;
    }
    return (struct cast_costs){ 0 };
}

/* Transformer Engine: the input's cast is an operation of the program, weights
 * are cast once a step; the gradient goes into both layouts at once, above a
 * frozen weight into one, after the
 * largest was found where it is not history's (csrc/quantizer.cpp). */
static double engine_gradient(const struct run *run, bool frozen)
{
    if (run->fp8_recipe == FP8_NVFP4)
        return 2 + 2 + (frozen ? 1 : 2) * NVFP4_BYTES;
    return (run->fp8_recipe == FP8_TENSORWISE ? 6 : 4) - (frozen ? 1 : 0);
}

static void put(struct cast_pass *p, struct cast_cost c, double elems)
{
    p->bytes += c.bytes * elems;
    p->across_s += c.across_s > 0 ? elems / c.across_s : 0;
    p->kernels += elems > 0 ? c.kernels : 0;
}

void cast_to_8_bits(struct cast_work *out, const struct run *run,
                    const struct operands *x)
{
    *out = (struct cast_work){ 0 };
    if (!x->on_use) {
        put(&out->back,
            (struct cast_cost){ engine_gradient(run, x->frozen), 1, 0 },
            x->gradient);
        return;
    }
    const struct cast_costs c = run->compile ? compiled(run) : eager(run);
    const double weight = run->fp8_params ? 0 : x->weight;
    put(&out->forward, c.input, x->cast ? 0 : x->input);
    put(&out->forward, c.weight, weight);
    if (!x->back)
        return;
    put(&out->back, c.again, x->input);
    put(&out->back, c.weight_back, weight);
    put(&out->back, c.gradient, x->gradient);
}
