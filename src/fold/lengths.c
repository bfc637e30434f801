/*
 * Draws lengths: a fixed sequence of random numbers, turned into samples by
 * the distribution, into micro-batches by padding to the longest. Knows nothing
 * of memory.
 */
#include "fold/lengths.h"

#include "base/count.h"

#include <math.h>

#include "base/banned.h"

/* No shorter sample is drawn. */
enum { SHORTEST = 16 };

/* While gradients find their places among what is cached any micro-batch
 * matters. Against all of them so few leave out 0.3 % of gpt2 trained in full in
 * the median of orders, 13 % in the worst, with adapters 1 and 2 % (tests/unit). */
static uint64_t first_kept(const struct run *run)
{
    return run_adapts(run) ? 4 : 16;
}

struct draw {
    const struct run *run;
    uint64_t state;
    double shape, scale; /* of a gamma distribution */
};

/* splitmix64 */
static double random01(struct draw *x)
{
    uint64_t z = x->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return ((double)(z >> 11) + 0.5) / 9007199254740992.0; /* 2^53 */
}

/* Box and Muller 1958 */
static double normal(struct draw *x)
{
    const double pi = 3.14159265358979323846;
    const double radius = sqrt(-2 * log(random01(x)));
    return radius * cos(2 * pi * random01(x));
}

/* Marsaglia and Tsang 2000; a shape below 1 by way of the one above. */
static double gamma_draw(struct draw *x)
{
    const double third = 1.0 / 3;
    const bool small = x->shape < 1;
    const double low = small ? pow(random01(x), 1 / x->shape) : 1;
    const double d = (small ? x->shape + 1 : x->shape) - third;
    for (;;) {
        const double n = normal(x), u = random01(x);
        const double root = 1 + n * third / sqrt(d);
        const double v = root * root * root;
        if (v > 0 && log(u) < n * n / 2 + d - d * v + d * log(v))
            return low * x->scale * d * v;
    }
}

static double listed(struct draw *x)
{
    const struct setup *s = &x->run->setup;
    const double at = random01(x) * (double)(s->lengths_count - 1);
    const size_t i = (size_t)at;
    if (i + 1 >= s->lengths_count)
        return s->lengths[s->lengths_count - 1];
    const double low = s->lengths[i], high = s->lengths[i + 1];
    return low + (high - low) * (at - (double)i);
}

/* Tokens of a sample; 0: left out. */
static uint64_t sample(struct draw *x)
{
    const struct run *run = x->run;
    const double tokens =
        run->lengths.kind == LENGTHS_LISTED ? listed(x) : gamma_draw(x);
    if (tokens > (double)run->seq_len)
        return run->lengths.too_long == TOO_LONG_DROP ? 0 : run->seq_len;
    const uint64_t whole = (uint64_t)(tokens + 0.5);
    return min_u64(max_u64(whole, SHORTEST), run->seq_len);
}

/* Padded to its longest; 0 when no more come. */
static uint64_t micro_batch(struct draw *x, uint64_t *samples)
{
    uint64_t longest = 0;
    for (uint64_t n = 0; n<x->run->micro_batch && * samples> 0;) {
        const uint64_t tokens = sample(x);
        --*samples;
        n += tokens != 0;
        longest = max_u64(longest, tokens);
    }
    return longest;
}

static void add(struct lengths *out, uint64_t length, uint64_t step)
{
    if (out->n == TURNS_MAX)
        out->n--; /* never: so many do not come by chance */
    if (out->n > 0)
        out->v[out->n - 1].steps = out->v[out->n - 1].step != step;
    out->v[out->n++] = (struct turn){ (uint32_t)length, true, step };
}

/* Where masks are written out for each head it is more of the two that a
 * shorter one needs whose rows are not aligned. */
static bool pads_mask(const struct run *run, uint64_t length)
{
    return run->mask_per_head && length % MASK_ALIGN_BEFORE != 0;
}

void lengths_draw(struct lengths *out, const struct run *run, unsigned order,
                  bool all)
{
    const struct spread *s = &run->lengths;
    struct draw x = { .run = run, .state = (uint64_t)order << 32 };
    x.shape = s->std > 0 ? s->mean / s->std * (s->mean / s->std) : 1;
    x.scale = s->mean / x.shape;
    uint64_t samples = max_u64(s->samples / run->dp, 1), first = 0;
    uint64_t longest[2] = { 0, 0 }; /* whose masks are padded, and others */
    out->n = 0;
    for (uint64_t i = 0;; i++) {
        const uint64_t step = i / run->grad_accum;
        const uint64_t length = micro_batch(&x, &samples);
        const bool begins = i % run->grad_accum == 0;
        if (length == 0)
            break;
        first = begins ? length : first;
        uint64_t *most = &longest[pads_mask(run, length) ? 0 : 1];
        if (length <= *most && i >= first_kept(x.run) && !all)
            continue;
        *most = max_u64(length, *most);
        const bool there = out->n > 0 && out->v[out->n - 1].step == step;
        if (!begins && !there)
            add(out, first, step);
        add(out, length, step);
    }
    const uint64_t most = max_u64(longest[0], longest[1]);
    if (out->n == 0)
        add(out, run->seq_len, 0);
    for (size_t i = 0; i < out->n; i++)
        if (out->v[i].length == most || most == 0)
            out->v[i].length = (uint32_t)run->seq_len;
}
