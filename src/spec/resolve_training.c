/*
 * Owns the defaults of a training run: tokens by a scaling law, utilisation of
 * the GPU's peak, price. Each number has its source beside it. Refuses to know
 * how the run is laid out over GPUs, and what follows from its numbers (time,
 * cost: src/plan).
 */
#include "spec/resolve.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/count.h"
#include "base/unit.h"

#include "data/kernel.h"

#include "base/banned.h"

static double peak_flop_s(const struct run *r)
{
    const struct gpu *g = &r->gpu;
    double fp32 = g->peak_fp32_flop_s, peak = fp32;
    switch (r->precision) {
    case PREC_BF16_MIXED:
    case PREC_BF16_AMP:
    case PREC_BF16: peak = g->peak_bf16_flop_s; break;
    case PREC_FP16_MIXED:
    case PREC_FP16_AMP:
    case PREC_FP16: peak = g->peak_fp16_flop_s; break;
    case PREC_TF32: peak = g->peak_tf32_flop_s; break;
    case PREC_FP8_MIXED: peak = g->peak_fp8_flop_s; break;
    case PREC_FP4_MIXED: peak = g->peak_fp4_flop_s; break;
    case PREC_FP32:
    case PRECISION_COUNT: break;
    }
    return peak > 0 ? peak : fp32;
}

/* FLOPs utilisation of published training runs by GPU generation, in percent
 * of the dense 16-bit peak, and of the fp8 peak for fp8 runs. Taken for what
 * the hardware reaches: what is recomputed is part of it, and not of MFU.
 * Ampere: Korthikanti et al. 2022 (41.7, 51.4, 56.0, 56.3), llm-foundry
 *   medians (51 on 40 GB, 54 on 80 GB), BLOOM 48, OPT-175B 47, MT-NLG 30:
 *   median 51, rounded to 50.
 * Hopper: llm-foundry median 40.4, Llama 3 405B 38 to 43, Megatron-LM's
 *   README 41 to 48. fp8: llm-foundry 14 to 30, Megatron-Bridge 37 to 42.
 * Blackwell: Megatron-Bridge, 405B on B200 37 of the fp8 peak, DeepSeek-V3 on
 *   GB200 31 of the bf16 peak.
 * Volta: GPT-3 21, Megatron-LM 2019 30. The others: no published runs found,
 *   set low. */
static const struct utilisation {
    unsigned percent, percent_fp8;
    const char *name, *source;
} utilisations[] = {
    [ARCH_VOLTA] = { 25, 25, "Volta", "GPT-3, Megatron-LM 2019" },
    [ARCH_TURING] = { 30, 30, "Turing", "no published runs" },
    [ARCH_AMPERE] = { 50, 50, "Ampere", "median of published A100 runs" },
    [ARCH_ADA] = { 30, 20, "Ada", "no published runs" },
    [ARCH_HOPPER] = { 40, 30, "Hopper", "median of published H100 runs" },
    [ARCH_BLACKWELL] = { 35, 35, "Blackwell", "Megatron-Bridge" },
    [ARCH_CDNA2] = { 30, 30, "CDNA 2", "no published runs" },
    [ARCH_CDNA3] = { 30, 30, "CDNA 3", "no published runs" },
    [ARCH_CDNA4] = { 30, 30, "CDNA 4", "no published runs" },
};

/* Collectives over PCIe that nobody timed on these cards. */
static void say_links(struct run *r, const struct kernel_speed *speed,
                      bool measured)
{
    const bool timed =
        measured && speed->wire[WIRE_ALL_REDUCE][WIRE_SIZES - 1].bytes_s > 0;
    if (timed || r->gpus <= 1 || r->gpus_per_node <= 1
        || strncmp(r->gpu.link, "PCIe", 4) != 0)
        return;
    resolve_assume(r, KEY_INTRA_NODE_BANDWIDTH,
                   "collectives of more than 2 GPUs have 0.42 of a link over "
                   "PCIe, as timed on RTX PRO 6000 (--intra-node-bandwidth)");
}

/* One rate alone, another in a group: both are measured, why is not known. */
static void say_products(struct run *r, const struct kernel_speed *speed)
{
    const struct said_part one = { .kind = SAID_SHARE,
                                   .x = speed->in_situ_alone };
    const struct said_part several = { .kind = SAID_SHARE,
                                       .x = speed->in_situ };
    if (speed->in_situ_alone <= 0 || r->prec.fp8)
        return;
    if (r->gpus == 1)
        resolve_say(r, KEY_MFU,
                    "products reach # of their rate by themselves, as in "
                    "measured steps on one GPU; on several #",
                    one, several);
    else
        resolve_say(r, KEY_MFU,
                    "products reach # of their rate by themselves, as in "
                    "measured steps on several GPUs; on one #",
                    several, one);
}

/* Of a model it follows from the predicted step. */
static void say_kernels(struct run *r)
{
    bool measured;
    const struct kernel_speed *speed = kernel_speed_of(&r->gpu, &measured);
    /* fold/time_moves.c, OPTIMIZER_BYTES_S: timed on one H100 */
    const char *limits = r->gpu.arch == ARCH_HOPPER
                             ? ""
                             : "; a multiprocessor moves at most what an "
                               "H100's does";
    say_links(r, speed, measured);
    if (r->given[KEY_MFU])
        return;
    if (measured && speed->stand_in != NULL)
        resolve_say(r, KEY_MFU,
                    speed->own_products
                        ? "the step's time is predicted from products as timed "
                          "on its GPU, other kernels as on ## (--mfu)"
                        : "the step's time is predicted from kernels and links "
                          "as timed on ## (--mfu)",
                    SAY_TEXT(speed->stand_in), SAY_TEXT(limits));
    else if (measured)
        resolve_say(r, KEY_MFU,
                    "the step's time is predicted from kernels and links as "
                    "timed on its GPU# (--mfu)",
                    SAY_TEXT(limits), SAY_NOTHING);
    else if (speed->gpu[0] != '\0')
        resolve_assume(r, KEY_MFU,
                       "the step's time is predicted; kernels of %s are taken "
                       "as those of %s, a chip of the same design%s (--mfu)",
                       r->gpu.name, speed->gpu, limits);
    else if (speed->untimed)
        resolve_assume(r, KEY_MFU,
                       "the step's time is predicted; no kernel or link of %s "
                       "was timed, nor of another %s GPU: rates are guesses%s "
                       "(--mfu)",
                       r->gpu.name, utilisations[r->gpu.arch].name, limits);
    else
        resolve_assume(r, KEY_MFU,
                       "the step's time is predicted; kernels and links of %s "
                       "are taken as those of other %s GPUs%s (--mfu)",
                       r->gpu.name, utilisations[r->gpu.arch].name, limits);
    say_products(r, speed);
    const struct said_part slowest = { .kind = SAID_SLOWEST, .n = r->gpus };
    if (run_at_once(r) > 1)
        resolve_say(r, KEY_MFU,
                    "the slowest of # GPUs, for which all wait, takes # % "
                    "longer than the middle one, as GPUs of one model differ",
                    SAY_COUNT(r->gpus), slowest);
}

static void resolve_mfu(struct run *r, bool model)
{
    const struct utilisation *u = &utilisations[r->gpu.arch];
    unsigned percent = r->prec.fp8 ? u->percent_fp8 : u->percent;
    /* not echoed: it is the hardware's, and 'mfu' the model's */
    r->mfu = r->given[KEY_MFU] ? r->setup.v[KEY_MFU].x : percent / 100.0;
    if (model) {
        say_kernels(r);
        return;
    }
    resolve_assume(r, KEY_MFU, "hardware utilisation %u %% on %s%s (%s; --mfu)",
                   percent, u->name, r->prec.fp8 ? ", of the fp8 peak" : "",
                   u->source);
}

static void resolve_price(struct run *r)
{
    const uint64_t gpu = r->setup.v[KEY_GPU].n;
    const bool listed = gpu < GPU_PRICES_MAX && r->setup.listed[gpu];
    if (listed) {
        r->gpu.price_usd_h = r->setup.listed_price[gpu];
        r->gpu.price_source = "the list of prices that was read";
    }
    bool known = r->given[KEY_PRICE] || listed || r->gpu.price_usd_h > 0;
    r->price_usd_h =
        known ? resolve_real(r, KEY_PRICE, r->gpu.price_usd_h) : (double)NAN;
    r->gpu.price_usd_h = known ? r->price_usd_h : 0;
    if (!known) {
        resolve_assume(r, KEY_PRICE, "no price known for %s (--price)",
                       r->gpu.name);
        return;
    }
    const struct said_part cents = {
        .kind = SAID_CENTS, .n = (uint64_t)(r->price_usd_h * 100 + 0.5)
    };
    resolve_say(r, KEY_PRICE, "price # USD per GPU-hour (#; --price)", cents,
                SAY_TEXT(r->gpu.price_source));
}

static const double COUNT_KEY_MAX = 9e18; /* what a COUNT key may hold */

static void tokens_of_budget(struct run *r, bool sparse)
{
    char tokens[UNIT_TEXT_MAX];
    r->tokens = r->setup.v[KEY_BUDGET].x / (6 * r->params);
    if (r->tokens < COUNT_KEY_MAX) {
        uint64_t whole = max_u64((uint64_t)r->tokens, 1);
        r->tokens = (double)resolve_count(r, KEY_TOKENS, whole);
    }
    resolve_assume(r, KEY_TOKENS,
                   "%s token%s, what the budget pays for at 6 FLOPs a token "
                   "and %sparameter (--tokens)",
                   unit_format_count(tokens, r->tokens), unit_s(r->tokens),
                   sparse ? "active " : "");
}

static void resolve_tokens(struct run *r, const struct spec *spec)
{
    char tokens[UNIT_TEXT_MAX], ratio[UNIT_TEXT_MAX], law[RESOLVE_TEXT_MAX];
    bool sparse = spec && spec->experts > 0;
    const bool free = r->params <= 0 && !r->given[KEY_TOKENS]
                      && !r->given[KEY_TOKENS_PER_PARAM];
    const bool fitted = r->given[KEY_TARGET_LOSS] || r->given[KEY_UNIQUE_TOKENS]
                        || r->given[KEY_INFERENCE_TOKENS]
                        || (free && r->given[KEY_BUDGET]);
    r->law = (enum scaling_law)resolve_count(
        r, KEY_SCALING_LAW, fitted ? LAW_BESIROGLU : LAW_CHINCHILLA);
    r->unique_tokens = r->given[KEY_UNIQUE_TOKENS]
                           ? (double)r->setup.v[KEY_UNIQUE_TOKENS].n
                           : 0;
    r->inference_tokens = r->given[KEY_INFERENCE_TOKENS]
                              ? (double)r->setup.v[KEY_INFERENCE_TOKENS].n
                              : 0;
    r->target_loss =
        r->given[KEY_TARGET_LOSS] ? r->setup.v[KEY_TARGET_LOSS].x : 0;
    r->tokens_per_param = resolve_real(r, KEY_TOKENS_PER_PARAM, 20);
    if (r->given[KEY_TOKENS]) {
        r->tokens = (double)r->setup.v[KEY_TOKENS].n;
        if (r->params <= 0 && r->target_loss <= 0 && !r->given[KEY_BUDGET])
            resolve_assume(r, KEY_SCALING_LAW,
                           "as many parameters as this law has for the tokens: "
                           "%s (--scaling-law)",
                           resolve_text(r, KEY_SCALING_LAW, law));
        return;
    }
    if (r->params <= 0 || r->target_loss > 0)
        return; /* a law says */
    if (r->given[KEY_BUDGET]) {
        tokens_of_budget(r, sparse);
        return;
    }
    r->tokens = r->tokens_per_param * r->params;
    if (r->tokens < COUNT_KEY_MAX)
        resolve_count(r, KEY_TOKENS, (uint64_t)r->tokens);
    const struct said_part all = { .kind = SAID_QUANTITY, .x = r->tokens };
    if (r->given[KEY_TOKENS_PER_PARAM])
        resolve_assume(r, KEY_TOKENS,
                       "%s token%s, %s per %sparameter (--tokens)",
                       unit_format_count(tokens, r->tokens), unit_s(r->tokens),
                       unit_format_double(ratio, r->tokens_per_param),
                       sparse ? "active " : "");
    else
        resolve_say(r, KEY_TOKENS,
                    sparse ? "# tokens, 20 per active parameter (--tokens)"
                           : "# tokens, 20 per parameter (--tokens)",
                    all, SAY_NOTHING);
}

void resolve_training(struct run *r, const struct spec *spec, uint64_t params)
{
    r->params = (double)params;
    if (params == 0 && r->given[KEY_PARAMS])
        r->params = (double)r->setup.v[KEY_PARAMS].n;
    r->peak_flop_s = r->given[KEY_PEAK_FLOPS]
                         ? (double)r->setup.v[KEY_PEAK_FLOPS].n
                         : peak_flop_s(r);
    r->peak_scale = peak_flop_s(r) > 0 ? r->peak_flop_s / peak_flop_s(r) : 1;
    resolve_count(r, KEY_PEAK_FLOPS, (uint64_t)r->peak_flop_s);
    resolve_tokens(r, spec);
    resolve_mfu(r, spec != NULL);
    r->availability = resolve_real(r, KEY_AVAILABILITY, 1);
    resolve_say(r, KEY_AVAILABILITY,
                "no time lost to failures (--availability)", SAY_NOTHING,
                SAY_NOTHING);
    resolve_price(r);
    r->days = r->given[KEY_DAYS] ? r->setup.v[KEY_DAYS].x : 0;
    r->budget_flop = r->given[KEY_BUDGET] ? r->setup.v[KEY_BUDGET].x : 0;
}
