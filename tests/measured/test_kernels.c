/*
 * Kernels and collectives against timings of others (*.csv: ai-dynamo/
 * aiconfigurator@095f58a, Apache-2.0): how far src/data/kernel.def is off, held
 * by a bound. With MEMPLAN_FIT=1 it fits the constants anew, each GPU's apart,
 * and prints rows for that file.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fold/time.h"

#include "base/banned.h"

enum { POINTS_MAX = 4096, FREE_MAX = 5, LINE_LEN = 320 };

/* What the timings in 8 bits have in them beside the product: kernels that find
 * the largest of its 16-bit input and cast it. Bytes an element that take as long
 * at the memory's bandwidth, and what starting them takes. */
struct cast {
    double bytes, launch_s;
};

static const struct timed {
    const char *in_file, *gpu;
    double product, product8; /* median |error| that the rows have */
    struct cast cast;         /* fitted with the products in 8 bits */
} gpus[] = {
    { "a100_sxm", "a100-80gb", 0.04, 0, { 0, 0 } },
    { "h100_sxm", "h100-80gb", 0.03, 0.03, { 8.3, 8.2e-6 } },
    { "h200_sxm", "h200", 0.03, 0.03, { 10, 8.4e-6 } },
    { "b200_sxm", "b200", 0.05, 0.05, { 8.8, 13e-6 } },
    { "b300_sxm", "b300", 0.07, 0.05, { 8.5, 12e-6 } },
    { "gb200", "gb200", 0.06, 0.05, { 9.3, 12e-6 } },
    { "gb300", "gb300", 0.04, 0.04, { 9.1, 12e-6 } },
    { "l40s", "l40s", 0.07, 0.09, { 4, 0 } },
    { "rtx_pro_6000_server", "rtx-pro-6000", 0.03, 0.05, { 4.3, 6.4e-6 } },
};

struct point {
    double x[3]; /* m, n, k; bytes, ranks */
    double seconds;
};

static struct point points[POINTS_MAX];
static size_t n_points;

/* ---- the model of a GPU ---- */

static struct run run_on;
static struct kernel_speed speed_on;
static struct clock clock_on = { .run = &run_on,
                                 .speed = &speed_on,
                                 .slowest = 1 };

static void on_gpu(const char *name)
{
    const struct gpu *gpu = gpu_find(name, strlen(name));
    assert_non_null(gpu);
    run_on = (struct run){ .gpu = *gpu,
                           .peak_scale = 1,
                           .link_scale = 1,
                           .scale = { 1, 1, 1, 1, 1 },
                           .gpus_per_node = 8,
                           .peak_flop_s = gpu->peak_bf16_flop_s };
    speed_on = *kernel_speed_of(gpu, &clock_on.measured);
    speed_on.in_situ = speed_on.in_situ8 = 1;
}

static double product_seconds(const struct point *p, bool fp8)
{
    const struct product x = { .m = p->x[0],
                               .n = p->x[1],
                               .k = p->x[2],
                               .copies = 1,
                               .dtype = DT_BF16,
                               .fp8 = fp8,
                               .result_bytes = 2 };
    return time_product(&clock_on, &x);
}

static double wire_seconds(const struct point *p, enum wire wire)
{
    return time_wire(&clock_on, wire, (struct ranks){ (uint64_t)p->x[1], 1 },
                     p->x[0]);
}

/* ---- files ---- */

static FILE *csv(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tests/measured/%s.csv", MEMPLAN_SOURCE_DIR,
             name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    return f;
}

static void read_products(const char *gpu, const char *dtype)
{
    char line[LINE_LEN], g[32], d[16];
    FILE *f = csv("gemm");
    n_points = 0;
    while (fgets(line, sizeof line, f)) {
        struct point p = { .seconds = 0 };
        double us;
        if (sscanf(line, "%31[^,],%15[^,],%lf,%lf,%lf,%lf", g, d, &p.x[0],
                   &p.x[1], &p.x[2], &us)
                != 6
            || strcmp(g, gpu) != 0 || strcmp(d, dtype) != 0)
            continue;
        p.seconds = us * 1e-6;
        assert_true(n_points < POINTS_MAX);
        points[n_points++] = p;
    }
    fclose(f);
}

/* From 64 KiB on: below it, latency is all. */
static void read_collectives(const char *gpu, const char *op, int ranks)
{
    enum { LEAST = 65536 };
    char line[LINE_LEN], g[32], v[16], o[32];
    FILE *f = csv("collectives");
    n_points = 0;
    while (fgets(line, sizeof line, f)) {
        struct point p = { .seconds = 0 };
        double us;
        if (sscanf(line, "%31[^,],%15[^,],%31[^,],%lf,%lf,%lf", g, v, o,
                   &p.x[1], &p.x[0], &us)
                != 6
            || strcmp(g, gpu) != 0 || strcmp(o, op) != 0 || (int)p.x[1] != ranks
            || p.x[0] < LEAST)
            continue;
        p.seconds = us * 1e-6;
        points[n_points++] = p;
    }
    fclose(f);
}

/* ---- errors ---- */

static int by_size(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

struct errors {
    double median, p90, mean; /* mean: of |log| */
};

static struct errors errors_of(double (*seconds)(const struct point *, int),
                               int which)
{
    static double e[POINTS_MAX];
    struct errors out = { 0, 0, 0 };
    for (size_t i = 0; i < n_points; i++) {
        const double ratio = seconds(&points[i], which) / points[i].seconds;
        e[i] = fabs(ratio - 1);
        out.mean += fabs(log(ratio)) / (double)n_points;
    }
    qsort(e, n_points, sizeof e[0], by_size);
    out.median = n_points > 0 ? e[n_points / 2] : 0;
    out.p90 = n_points > 0 ? e[n_points * 9 / 10] : 0;
    return out;
}

static struct cast cast_on;

static double of_product(const struct point *p, int fp8)
{
    if (!fp8)
        return product_seconds(p, false);
    return product_seconds(p, true) + cast_on.launch_s
           + cast_on.bytes * p->x[0] * p->x[2] / run_on.gpu.bandwidth_bytes_s;
}

static double of_wire(const struct point *p, int wire)
{
    return wire_seconds(p, (enum wire)wire);
}

/* ---- the fit: Nelder and Mead 1965, in logarithms ---- */

struct fit {
    double *value[FREE_MAX];
    size_t n;
    double (*seconds)(const struct point *, int);
    int which;
};

static double cost(const struct fit *f, const double *x)
{
    for (size_t i = 0; i < f->n; i++)
        *f->value[i] = exp(x[i]);
    return errors_of(f->seconds, f->which).mean;
}

struct vertex {
    double x[FREE_MAX], cost;
};

static int by_cost(const void *x, const void *y)
{
    const struct vertex *a = x, *b = y;
    return (a->cost > b->cost) - (a->cost < b->cost);
}

static struct vertex along(const struct fit *f, const struct vertex *from,
                           const struct vertex *worst, double step)
{
    struct vertex v;
    for (size_t i = 0; i < f->n; i++)
        v.x[i] = from->x[i] + step * (from->x[i] - worst->x[i]);
    v.cost = cost(f, v.x);
    return v;
}

static void improve(const struct fit *f, struct vertex *v)
{
    struct vertex mid = { { 0 }, 0 };
    qsort(v, f->n + 1, sizeof *v, by_cost);
    for (size_t k = 0; k < f->n; k++)
        for (size_t i = 0; i < f->n; i++)
            mid.x[i] += v[k].x[i] / (double)f->n;
    struct vertex *worst = &v[f->n];
    const struct vertex mirrored = along(f, &mid, worst, 1);
    if (mirrored.cost < v[0].cost) {
        const struct vertex far = along(f, &mid, worst, 2);
        *worst = far.cost < mirrored.cost ? far : mirrored;
        return;
    }
    if (mirrored.cost < v[f->n - 1].cost) {
        *worst = mirrored;
        return;
    }
    const struct vertex near = along(f, &mid, worst, -0.5);
    if (near.cost < worst->cost) {
        *worst = near;
        return;
    }
    for (size_t k = 1; k <= f->n; k++) {
        for (size_t i = 0; i < f->n; i++)
            v[k].x[i] = (v[k].x[i] + v[0].x[i]) / 2;
        v[k].cost = cost(f, v[k].x);
    }
}

static void fit(const struct fit *f)
{
    enum { ROUNDS = 300 };
    struct vertex v[FREE_MAX + 1];
    for (size_t k = 0; k <= f->n; k++) {
        for (size_t i = 0; i < f->n; i++)
            v[k].x[i] = log(fmax(*f->value[i], 1e-9)) + (k == i + 1 ? 0.3 : 0);
        v[k].cost = cost(f, v[k].x);
    }
    for (int i = 0; i < ROUNDS; i++)
        improve(f, v);
    qsort(v, f->n + 1, sizeof *v, by_cost);
    (void)cost(f, v[0].x);
}

static void fit_product(struct product_speed *s, bool fp8)
{
    struct fit f = { .value = { &s->share, &s->depth, &s->quantum,
                                &s->launch_s },
                     .n = 4,
                     .seconds = of_product,
                     .which = fp8 };
    if (fp8) { /* starts as one of 16 bits does */
        s->launch_s = speed_on.bits16.launch_s;
        f.value[3] = &cast_on.launch_s;
        f.value[4] = &cast_on.bytes;
        f.n = 5;
    }
    fit(&f);
}

static void fit_wire(struct wire_speed *w, enum wire wire)
{
    const struct fit f = { .value = { &w->latency_s, &w->bytes_s,
                                      &w->half_bytes },
                           .n = 3,
                           .seconds = of_wire,
                           .which = (int)wire };
    fit(&f);
}

static const char *const ops[WIRES] = {
    [WIRE_ALL_REDUCE] = "all_reduce",
    [WIRE_ALL_GATHER] = "all_gather",
    [WIRE_REDUCE_SCATTER] = "reduce_scatter",
    [WIRE_A2A] = "alltoall",
};
static const int sizes[WIRE_SIZES] = { 2, 4, 8 };

static void print_product(const char *name, const struct product_speed *s,
                          struct errors e)
{
    print_message("    .%s = { %.3g, %.2ge-6, %.3g, %.2g }, median %.1f %%, "
                  "90th %.1f %%\n",
                  name, s->share, s->launch_s * 1e6, s->depth, s->quantum,
                  100 * e.median, 100 * e.p90);
}

static void fit_gpu(const struct timed *t)
{
    on_gpu(t->gpu);
    print_message("%s\n", t->gpu);
    read_products(t->in_file, "bf16");
    fit_product(&speed_on.bits16, false);
    print_product("bits16", &speed_on.bits16, errors_of(of_product, 0));
    read_products(t->in_file, "fp8");
    if (n_points > 0) {
        cast_on = (struct cast){ 8, 10e-6 };
        fit_product(&speed_on.bits8, true);
        print_product("bits8", &speed_on.bits8, errors_of(of_product, 1));
        print_message("    with casts of %.2g B an element and %.2g us\n",
                      cast_on.bytes, cast_on.launch_s * 1e6);
    }
    for (int w = 0; w < WIRES; w++) {
        print_message("        [%d] = {", w);
        for (int i = 0; i < WIRE_SIZES; i++) {
            struct wire_speed *s = &speed_on.wire[w][i];
            read_collectives(t->in_file, ops[w], sizes[i]);
            if (n_points > 0)
                fit_wire(s, (enum wire)w);
            print_message(" { %.3ge-6, %.4ge9, %.3ge6 },", s->latency_s * 1e6,
                          s->bytes_s / 1e9, s->half_bytes / 1e6);
        }
        print_message(" }\n");
    }
}

/* ---- tests ---- */

static void test_products_are_as_timed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++) {
        const struct timed *t = &gpus[i];
        on_gpu(t->gpu);
        for (int fp8 = 0; fp8 < 2; fp8++) {
            read_products(t->in_file, fp8 ? "fp8" : "bf16");
            const double bound = fp8 ? t->product8 : t->product;
            cast_on = t->cast;
            const struct errors e = errors_of(of_product, fp8);
            if (n_points > 0 && e.median > bound)
                fail_msg("%s, %s: median error %.1f %%, at most %.1f %%",
                         t->gpu, fp8 ? "fp8" : "bf16", 100 * e.median,
                         100 * bound);
            assert_true(n_points > 1000 || fp8 == 1);
        }
    }
}

static void test_collectives_are_as_timed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++) {
        on_gpu(gpus[i].gpu);
        for (int w = 0; w < WIRES; w++) {
            for (int k = 0; k < WIRE_SIZES; k++) {
                if (!(speed_on.wire[w][k].bytes_s > 0))
                    continue; /* L40S: the machine's, kernel.def */
                read_collectives(gpus[i].in_file, ops[w], sizes[k]);
                const struct errors e = errors_of(of_wire, w);
                if (e.median > 0.21)
                    fail_msg("%s, %s of %d: median error %.1f %%", gpus[i].gpu,
                             ops[w], sizes[k], 100 * e.median);
            }
        }
    }
}

/* ---- an H100 (tests/oracle/gpu_time.py) ---- */

/* Back to back, 16 bits: with what a step alone on the GPU reaches. */
static double of_alone(const struct point *p, int fp8)
{
    speed_on.in_situ =
        kernel_speed_of(&run_on.gpu, &clock_on.measured)->in_situ_alone;
    return product_seconds(p, fp8 != 0);
}

static void test_products_of_a_step_are_as_timed(void **state)
{
    (void)state;
    char line[LINE_LEN];
    double us, pause;
    FILE *f = csv("products");
    on_gpu("h100-80gb");
    n_points = 0;
    while (fgets(line, sizeof line, f)) {
        struct point p = { .seconds = 0 };
        if (sscanf(line, "h100-80gb,bf16,%*[^,],%lf,%lf,%lf,%lf,%lf", &p.x[0],
                   &p.x[1], &p.x[2], &pause, &us)
                != 5
            || fmod(p.x[0], 8) > 0 || fmod(p.x[1], 8) > 0
            || fmod(p.x[2], 8) > 0)
            continue;
        p.seconds = us;
        points[n_points++] = p;
    }
    fclose(f);
    const struct errors e = errors_of(of_alone, 0);
    print_message("products back to back: median %.1f %%, 90th %.1f %%\n",
                  100 * e.median, 100 * e.p90);
    assert_true(n_points > 70);
    assert_true(e.median <= 0.15);
}

static double of_sustained_8(const struct point *p, int exact)
{
    const struct product x = { .m = p->x[0],
                               .n = p->x[1],
                               .k = p->x[2],
                               .copies = 1,
                               .dtype = DT_BF16,
                               .fp8 = true,
                               .result_bytes = 2,
                               .exact = exact != 0 };
    return time_product(&clock_on, &x);
}

/* Back to back, 8 bits, with scales of tensors: the tensor cores' fast sums, and
 * those kept in fp32. */
static void test_products_in_8_bits_are_as_sustained(void **state)
{
    (void)state;
    static const char *const layout[] = { "tensor-fast", "tensor-exact" };
    char line[LINE_LEN], name[32];
    double pause;
    on_gpu("h100-80gb");
    speed_on.in_situ8 =
        kernel_speed_of(&run_on.gpu, &clock_on.measured)->in_situ8;
    for (int exact = 0; exact < 2; exact++) {
        FILE *f = csv("products");
        n_points = 0;
        while (fgets(line, sizeof line, f)) {
            struct point p = { .seconds = 0 };
            if (sscanf(line, "h100-80gb,fp8,%31[^,],%lf,%lf,%lf,%lf,%lf", name,
                       &p.x[0], &p.x[1], &p.x[2], &pause, &p.seconds)
                    == 6
                && strcmp(name, layout[exact]) == 0)
                points[n_points++] = p;
        }
        fclose(f);
        const struct errors e = errors_of(of_sustained_8, exact);
        assert_true(n_points == 12);
        assert_true(e.median <= 0.03);
    }
}

struct timed_attention {
    double heads, length, width, causal, forward, backward;
    double window; /* keys that a query sees at most; 0: all before it */
    bool in_8_bits;
    bool efficient;
    enum dtype dtype;
};

static double attention_seconds(const struct timed_attention *t, bool back)
{
    const double rows = t->heads * t->length;
    const double full = 4 * rows * t->length * t->width;
    const double w = t->window / t->length;
    const double seen = w > 0 ? w - w * w / 2 : t->causal > 0 ? 0.5 : 1;
    run_on.seq_len = (uint64_t)t->length;
    return time_attended(&clock_on,
                         &(struct attended){ .rows = rows,
                                             .head = t->width,
                                             .flop = seen * full,
                                             .flop_full = full,
                                             .dtype = t->dtype,
                                             .efficient = t->efficient,
                                             .in_8_bits = t->in_8_bits },
                         back);
}

/* Of the backend, forward and backward, one after the other as in a step, of
 * what takes 0.1 ms and more. */
static double attention_error(const char *backend, enum attention_kernel kernel,
                              bool efficient)
{
    static double e[POINTS_MAX];
    char line[LINE_LEN + LINE_LEN], name[32];
    size_t n = 0;
    FILE *f = csv("attention");
    run_on.attention_kernel = kernel;
    while (fgets(line, sizeof line, f)) {
        struct timed_attention t = { .efficient = efficient, .dtype = DT_BF16 };
        double batch, heads;
        if (sscanf(line,
                   "h100-80gb,%31[^,],%lf,%lf,%*[^,],%lf,%lf,%lf,%*[^,],%*[^,],"
                   "%lf,%lf",
                   name, &batch, &heads, &t.length, &t.width, &t.causal,
                   &t.forward, &t.backward)
                != 8
            || strcmp(name, backend) != 0 || t.forward < 1e-4)
            continue;
        t.heads = batch * heads;
        const double forward = attention_seconds(&t, false);
        const double back = attention_seconds(&t, true);
        e[n++] = fabs(forward / t.forward - 1);
        e[n++] = fabs(back / t.backward - 1);
        /* one row each: what the limit is of */
        if (t.width > 128 && (e[n - 2] > 0.13 || e[n - 1] > 0.03))
            fail_msg("%s: %g and %g s, timed %g and %g", name, forward, back,
                     t.forward, t.backward);
    }
    fclose(f);
    assert_true(n >= 36);
    qsort(e, n, sizeof e[0], by_size);
    return e[n / 2];
}

static void test_attention_is_as_timed(void **state)
{
    (void)state;
    on_gpu("h100-80gb");
    const double cudnn = attention_error("cudnn", KERNEL_CUDNN, false);
    const double flash = attention_error("flash", KERNEL_FLASH_2, false);
    const double efficient = attention_error("efficient", KERNEL_CUDNN, true);
    print_message("attention: cuDNN median %.1f %%, FlashAttention 2 %.1f %%, "
                  "memory-efficient %.1f %%\n",
                  100 * cudnn, 100 * flash, 100 * efficient);
    assert_true(cudnn <= 0.05);
    assert_true(flash <= 0.04);
    assert_true(efficient <= 0.03);
}

/* In fp32 two kernels of a step were timed: without tensor cores, 7 times as
 * long as in 16 bits. */
static void test_attention_in_32_bits_is_as_timed(void **state)
{
    (void)state;
    const struct timed_attention t = { .heads = 2 * 8,
                                       .length = 1024,
                                       .width = 256,
                                       .causal = 1,
                                       .efficient = true,
                                       .dtype = DT_FP32 };
    on_gpu("h100-80gb");
    assert_true(fabs(attention_seconds(&t, false) / 325.4e-6 - 1) < 0.02);
    assert_true(fabs(attention_seconds(&t, true) / 1045.6e-6 - 1) < 0.02);
}

static void by_cudnn(const char *gpu, struct timed_attention *t, double heads)
{
    on_gpu(gpu);
    run_on.attention_kernel = KERNEL_CUDNN;
    t->heads = heads;
}

/* Sorts them; the median, and what nine of ten are below, are no more. */
static void hold_errors(const char *what, double *e, size_t n, double median,
                        double most)
{
    qsort(e, n, sizeof e[0], by_size);
    print_message("%s: median %.1f %%, 90th percentile %.1f %%, worst %.1f "
                  "%%\n",
                  what, 100 * e[n / 2], 100 * e[(9 * n) / 10], 100 * e[n - 1]);
    assert_true(e[n / 2] <= median);
    assert_true(e[(9 * n) / 10] <= most);
}

/* cuDNN's, heads of 64: in windows of 128 and 1024 tokens, forward and backward,
 * which nothing was fitted to, and under a causal mask, forward, which the width
 * of Blackwell's heads is from. */
static void test_windows_are_as_timed(void **state)
{
    static double e[64];
    char line[LINE_LEN], name[32];
    size_t n = 0;
    (void)state;
    FILE *f = csv("attention-windows");
    while (fgets(line, sizeof line, f)) {
        struct timed_attention t = { .causal = 1, .dtype = DT_BF16 };
        double batch, heads;
        const int got = sscanf(line, "%31[^,],%lf,%lf,%lf,%lf,%lf,%lf,%lf",
                               name, &batch, &heads, &t.length, &t.window,
                               &t.width, &t.forward, &t.backward);
        if (got < 7)
            continue;
        by_cudnn(name, &t, batch * heads);
        e[n++] = fabs(attention_seconds(&t, false) / t.forward * 1e6 - 1);
        if (got == 8)
            e[n++] = fabs(attention_seconds(&t, true) / t.backward * 1e6 - 1);
    }
    fclose(f);
    assert_true(n == 35);
    hold_errors("windows, heads of 64", e, n, 0.08, 0.17);
}

/* What 8 bits are worth, of cuDNN's kernel in MXFP8 over its own in 16. */
static void test_attention_in_8_bits_is_as_timed(void **state)
{
    static double e[64];
    char line[LINE_LEN], name[32];
    size_t n = 0;
    (void)state;
    FILE *f = csv("attention-8bits");
    while (fgets(line, sizeof line, f)) {
        struct timed_attention t = { .causal = 1, .dtype = DT_BF16 };
        double batch, heads, forward8, backward8;
        if (sscanf(line, "%31[^,],%lf,%lf,%lf,%lf,%lf,%lf,%lf,%lf,%lf", name,
                   &batch, &heads, &t.length, &t.window, &t.width, &t.forward,
                   &t.backward, &forward8, &backward8)
            != 10)
            continue;
        by_cudnn(name, &t, batch * heads);
        const double forward = attention_seconds(&t, false);
        const double back = attention_seconds(&t, true);
        t.in_8_bits = true;
        const double there = attention_seconds(&t, false) / forward;
        const double and_back = attention_seconds(&t, true) / back;
        e[n++] = fabs(there / (forward8 / t.forward) - 1);
        e[n++] = fabs(and_back / (backward8 / t.backward) - 1);
    }
    fclose(f);
    assert_true(n == 60);
    hold_errors("8 bits over 16", e, n, 0.09, 0.3);
}

/* How many heads a GPU has, of 4 to 256, decides what it reaches: seconds a head
 * over those of the most heads, forward. Nothing was fitted to these. */
static void heads_error(const char *in_file, const char *gpu,
                        enum attention_kernel kernel, double length)
{
    double most = 0, timed_of_most = 0, predicted_of_most = 0;
    static double ratio[64][2], e[64];
    char line[LINE_LEN], name[32];
    size_t n = 0;
    on_gpu(gpu);
    run_on.attention_kernel = kernel;
    FILE *f = csv("attention-heads");
    while (fgets(line, sizeof line, f)) {
        struct timed_attention t = { .causal = 1, .dtype = DT_BF16 };
        double batch, heads, us;
        if (sscanf(line, "%31[^,],%lf,%lf,%*[^,],%lf,%lf,%lf", name, &batch,
                   &heads, &t.length, &t.width, &us)
                != 6
            || strcmp(name, in_file) != 0 || t.length != length)
            continue;
        t.heads = batch * heads;
        ratio[n][0] = us / t.heads;
        ratio[n][1] = attention_seconds(&t, false) / t.heads;
        if (t.heads > most) {
            most = t.heads;
            timed_of_most = ratio[n][0];
            predicted_of_most = ratio[n][1];
        }
        n++;
    }
    fclose(f);
    assert_true(n == 10 && most == 256);
    for (size_t i = 0; i < n; i++)
        e[i] =
            fabs(ratio[i][1] / predicted_of_most / (ratio[i][0] / timed_of_most)
                 - 1);
    qsort(e, n, sizeof e[0], by_size);
    print_message(
        "%s, %g tokens: a head of few median %.1f %%, worst %.1f %%\n", gpu,
        length, 100 * e[n / 2], 100 * e[n - 1]);
    assert_true(e[n / 2] <= 0.12);
    assert_true(e[n - 1] <= 0.45);
}

static void test_few_heads_fill_less(void **state)
{
    (void)state;
    for (double length = 2048; length <= 8192; length *= 2) {
        heads_error("a100_sxm", "a100-80gb", KERNEL_FLASH_2, length);
        heads_error("h100_sxm", "h100-80gb", KERNEL_FLASH_2, length);
        heads_error("b200_sxm", "b200", KERNEL_CUDNN, length);
    }
}

/* Large operands of kernels that load several elements at once. */
static void test_moves_are_as_timed(void **state)
{
    (void)state;
    static const char *const plain[] = {
        "add", "mul", "add_fp32", "silu", "relu", "copy", "scale", "to_bf16"
    };
    char line[LINE_LEN + LINE_LEN], name[32];
    unsigned n = 0;
    FILE *f = csv("moves");
    on_gpu("h100-80gb");
    while (fgets(line, sizeof line, f)) {
        double bytes, elems, seconds;
        if (sscanf(line, "h100-80gb,%31[^,],%lf,%*[^,],%*[^,],%lf,%lf", name,
                   &elems, &bytes, &seconds)
                != 4
            || elems < 3e7)
            continue;
        for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
            if (strcmp(name, plain[i]) != 0)
                continue;
            const double got = time_bytes(&clock_on, bytes);
            n++;
            if (fabs(got / seconds - 1) > 0.2)
                fail_msg("%s of %.0f bytes: %.3g s, timed %.3g s", name, bytes,
                         got, seconds);
        }
    }
    fclose(f);
    assert_true(n == 16);
}

static void test_fit(void **state)
{
    (void)state;
    if (getenv("MEMPLAN_FIT") == NULL)
        skip();
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++)
        fit_gpu(&gpus[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fit),
        cmocka_unit_test(test_products_are_as_timed),
        cmocka_unit_test(test_collectives_are_as_timed),
        cmocka_unit_test(test_products_of_a_step_are_as_timed),
        cmocka_unit_test(test_products_in_8_bits_are_as_sustained),
        cmocka_unit_test(test_attention_is_as_timed),
        cmocka_unit_test(test_windows_are_as_timed),
        cmocka_unit_test(test_attention_in_8_bits_is_as_timed),
        cmocka_unit_test(test_attention_in_32_bits_is_as_timed),
        cmocka_unit_test(test_few_heads_fill_less),
        cmocka_unit_test(test_moves_are_as_timed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
