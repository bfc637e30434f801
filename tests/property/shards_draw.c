/*
 * Draws layouts of every framework: ranks, stages, sharding in groups, states
 * beside the GPU, adapters over frozen weights. Knows nothing of what they
 * need.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shards.h"

enum { TEXT_MAX = 1024 };

/* Sizes that few numbers of ranks divide. */
static const char odd[] =
    "{\"model_type\": \"decoder\", \"num_hidden_layers\": 6,"
    "\"hidden_size\": 560, \"num_attention_heads\": 8,"
    "\"intermediate_size\": 1496, \"vocab_size\": 32004}";

/* The first layers without experts; one shared. */
static const char routed[] =
    "{\"model_type\": \"decoder\", \"num_hidden_layers\": 6,"
    "\"hidden_size\": 560, \"num_attention_heads\": 8,"
    "\"intermediate_size\": 1496, \"vocab_size\": 32000,"
    "\"num_experts\": 8, \"num_experts_per_tok\": 2,"
    "\"moe_intermediate_size\": 136, \"n_shared_experts\": 1,"
    "\"first_k_dense_replace\": 2}";

void trial_set(struct trial *t, const char *key, const char *value)
{
    for (size_t i = 0; i < CHOICES; i++) {
        if (t->c[i].key != NULL && strcmp(t->c[i].key, key) != 0)
            continue;
        t->c[i] = (struct choice){ key, value };
        return;
    }
    fail_msg("no room for %s", key);
}

const char *trial_word(const struct trial *t, const char *key)
{
    for (size_t i = 0; i < CHOICES; i++)
        if (t->c[i].key != NULL && strcmp(t->c[i].key, key) == 0)
            return t->c[i].value;
    return NULL;
}

uint64_t trial_number(const struct trial *t, const char *key)
{
    const char *word = trial_word(t, key);
    return word == NULL ? 1 : strtoul(word, NULL, 10);
}

const char *trial_text(const struct trial *t)
{
    static char text[TEXT_MAX];
    const size_t n = (size_t)snprintf(text, sizeof text, "%s",
                                      t->model == odd      ? "odd"
                                      : t->model == routed ? "routed"
                                                           : t->model);
    choices_describe(t->c, CHOICES, text + n, sizeof text - n);
    return text;
}

memplan_report *trial_estimate(const struct trial *t)
{
    return choices_estimate(t->model, NULL, t->c, CHOICES);
}

/* ---- one of each framework ---- */

static const char *model_of(uint64_t *s)
{
    return PICK(s, "llama-3-8b", "gpt2", "qwen2.5-0.5b", "mixtral-8x7b",
                "deepseek-v2-lite", "qwen1.5-moe-a2.7b", odd, odd, routed,
                routed);
}

static bool has_experts(const char *model)
{
    return model == routed || strstr(model, "mixtral") != NULL
           || strstr(model, "deepseek") != NULL || strstr(model, "moe") != NULL;
}

/* Stages that differ, of the models that have so many layers. */
static const char *stages_of(const char *model, uint64_t *s)
{
    if (model == odd || model == routed)
        return PICK(s, "1,5", "4,2", "3,3");
    if (strcmp(model, "gpt2") == 0)
        return PICK(s, "5,7", "8,4");
    if (strcmp(model, "deepseek-v2-lite") == 0)
        return PICK(s, "13,14", "15,12");
    return strcmp(model, "llama-3-8b") == 0 ? PICK(s, "15,17", "20,12") : NULL;
}

/* An end with no layer, which Megatron alone has. */
static const char *bare_of(const char *model, uint64_t *s)
{
    if (model == odd || model == routed)
        return PICK(s, "6,0", "0,6");
    if (strcmp(model, "gpt2") == 0)
        return PICK(s, "12,0", "0,12");
    return strcmp(model, "llama-3-8b") == 0 ? PICK(s, "32,0", "0,32") : NULL;
}

static void megatron(struct trial *t, uint64_t *s)
{
    const bool fsdp = next(s) % 5 == 0;
    const char *pp = fsdp ? "1" : PICK(s, "1", "2", "2", "3");
    const bool chunks = pp[0] == '2' && next(s) % 3 == 0;
    const bool bare = !fsdp && next(s) % 4 == 0;
    const char *uneven = bare ? bare_of(t->model, s) : stages_of(t->model, s);
    trial_set(t, "framework", "megatron");
    trial_set(t, "engine", fsdp ? "megatron-fsdp" : "megatron");
    trial_set(t, "gpus", PICK(s, "8", "24", "48", "96"));
    trial_set(t, "tp", PICK(s, "1", "2", "4"));
    trial_set(t, "pp", pp);
    trial_set(t, "vpp", chunks ? "3" : "1");
    if (pp[0] == '2' && !chunks)
        trial_set(t, "pipeline_layers", uneven);
    trial_set(t, "cp", PICK(s, "1", "1", "2"));
    if (has_experts(t->model)) {
        trial_set(t, "ep", PICK(s, "1", "2", "4"));
        trial_set(t, "etp", PICK(s, "1", "2"));
    }
    trial_set(t, "zero", fsdp ? "3" : PICK(s, "0", "1", "1"));
    trial_set(t, "shard_degree", next(s) % 4 == 0 ? PICK(s, "2", "3") : NULL);
    trial_set(t, "vocab_multiple", PICK(s, "16", "1024"));
    trial_set(t, "precision", PICK(s, "bf16-mixed", "bf16-mixed", "fp32"));
    trial_set(t, "optimizer", PICK(s, "adamw", "momentum", "sgd"));
}

static void megatron_deepspeed(struct trial *t, uint64_t *s)
{
    const char *pp = PICK(s, "1", "2");
    trial_set(t, "framework", "megatron-deepspeed");
    trial_set(t, "gpus", PICK(s, "8", "24"));
    trial_set(t, "tp", PICK(s, "1", "2", "4"));
    trial_set(t, "pp", pp);
    if (pp[0] == '2')
        trial_set(t, "pipeline_layers", stages_of(t->model, s));
    trial_set(t, "zero", PICK(s, "0", "1", "2", "3"));
    trial_set(t, "vocab_multiple", "1024");
    trial_set(t, "precision", PICK(s, "bf16-mixed", "fp16-mixed"));
    trial_set(t, "attention", "eager");
}

static void deepspeed(struct trial *t, uint64_t *s)
{
    trial_set(t, "framework", "deepspeed");
    trial_set(t, "gpus", PICK(s, "1", "2", "3", "7", "8", "48"));
    trial_set(t, "zero", PICK(s, "0", "1", "2", "3"));
    trial_set(t, "precision",
              PICK(s, "bf16-mixed", "fp16-mixed", "fp32", "bf16", "bf16-amp"));
    trial_set(t, "optimizer",
              PICK(s, "adamw", "adamw", "lion", "momentum", "sgd"));
}

static void fsdp(struct trial *t, uint64_t *s)
{
    trial_set(t, "framework", "fsdp");
    trial_set(t, "engine", PICK(s, "fsdp", "fsdp2"));
    trial_set(t, "gpus", PICK(s, "2", "6", "8", "48"));
    trial_set(t, "zero", PICK(s, "2", "3"));
    trial_set(t, "shard_degree",
              next(s) % 3 == 0 ? PICK(s, "2", "3", "6") : NULL);
    trial_set(t, "precision", PICK(s, "bf16-mixed", "fp32", "bf16"));
    trial_set(t, "optimizer", PICK(s, "adamw", "adafactor", "sgd", "muon"));
}

static void torchtitan(struct trial *t, uint64_t *s)
{
    const char *pp = PICK(s, "1", "2");
    trial_set(t, "framework", "torchtitan");
    trial_set(t, "gpus", PICK(s, "8", "24", "48"));
    trial_set(t, "tp", PICK(s, "1", "2", "4"));
    trial_set(t, "pp", pp);
    if (pp[0] == '2')
        trial_set(t, "pipeline_layers", stages_of(t->model, s));
    trial_set(t, "cp", PICK(s, "1", "2"));
    trial_set(t, "attention", "sdpa");
    trial_set(t, "zero", PICK(s, "2", "3"));
    trial_set(t, "shard_degree",
              next(s) % 3 == 0 ? PICK(s, "2", "3", "4") : NULL);
    trial_set(t, "precision", PICK(s, "bf16-mixed", "fp32"));
    trial_set(t, "optimizer_impl", PICK(s, "fused", "foreach"));
}

static void ddp(struct trial *t, uint64_t *s)
{
    trial_set(t, "framework", "hf");
    trial_set(t, "gpus", PICK(s, "1", "2", "3", "8"));
    trial_set(t, "precision", PICK(s, "bf16-amp", "fp32", "bf16"));
    trial_set(t, "optimizer", PICK(s, "adamw", "adafactor", "sgd", "muon"));
}

/* ---- what is rarer ---- */

/* Two chunks on each rank: DualPipe's of two copies, or of a V. */
static void folded(struct trial *t, uint64_t *s)
{
    const char *schedule =
        PICK(s, "dualpipe", "dualpipe", "zb-v", "dualpipe-v");
    const char *pp = PICK(s, "2", "2", "4");
    const bool dual = strcmp(schedule, "dualpipe") == 0;
    megatron(t, s);
    trial_set(t, "engine", "megatron");
    trial_set(t, "zero", PICK(s, "0", "1", "1", "1"));
    trial_set(t, "schedule", schedule);
    trial_set(t, "vpp", NULL);
    trial_set(t, "pp", pp);
    trial_set(t, "pipeline_layers", NULL);
    if (dual && pp[0] == '2')
        trial_set(t, "pipeline_layers", stages_of(t->model, s));
    if (pp[0] == '4')
        trial_set(t, "gpus", PICK(s, "16", "96"));
    if (t->model == odd || t->model == routed)
        t->model = PICK(s, "llama-3-8b", "mixtral-8x7b", "qwen2.5-0.5b");
}

/* ZeRO-3 in groups of ranks: MiCS, or ZeRO++'s second shards. */
static void grouped(struct trial *t, uint64_t *s)
{
    const bool mics = next(s) % 2 == 0;
    deepspeed(t, s);
    trial_set(t, "zero", "3");
    trial_set(t, "gpus", PICK(s, "8", "12", "48"));
    if (mics)
        trial_set(t, "mics_shard_size", PICK(s, "2", "4"));
    else
        trial_set(t, "hpz_partition_size", PICK(s, "2", "4"));
}

/* DeepSpeed's optimizer, and weights of stage 3, beside the GPU. Nothing is
 * pinned that need not be, for that is rounded. */
static void offloaded(struct trial *t, uint64_t *s)
{
    const char *zero = PICK(s, "1", "2", "3", "3", "3");
    const bool weights = zero[0] == '3' && next(s) % 2 == 0;
    deepspeed(t, s);
    trial_set(t, "zero", zero);
    trial_set(t, "offload_optimizer",
              zero[0] == '3' ? PICK(s, "cpu", "nvme", "none") : "cpu");
    if (weights)
        trial_set(t, "offload_params", PICK(s, "cpu", "nvme"));
    trial_set(t, "pin_memory", "false");
    trial_set(t, "optimizer", "adamw");
    if (zero[0] == '3' && next(s) % 3 == 0)
        trial_set(t, "sub_group_size", PICK(s, "20M", "3M"));
}

/* The same of FSDP and of Megatron. */
static void offloaded_elsewhere(struct trial *t, uint64_t *s)
{
    if (next(s) % 2 == 0) {
        fsdp(t, s);
        trial_set(t, "offload_params", "cpu");
        trial_set(t, "optimizer", PICK(s, "adamw", "sgd"));
        trial_set(t, "optimizer_impl", "foreach");
        return;
    }
    megatron(t, s);
    trial_set(t, "engine", "megatron");
    trial_set(t, "zero", "1");
    trial_set(t, "pp", "1");
    trial_set(t, "vpp", NULL);
    trial_set(t, "pipeline_layers", NULL);
    trial_set(t, "optimizer", "adamw");
    trial_set(t, "offload_optimizer", "cpu");
    trial_set(t, "pin_memory", "false");
}

/* Adapters over frozen weights, quantised or not. */
static void adapted(struct trial *t, uint64_t *s)
{
    static void (*const engine[])(struct trial *, uint64_t *) = { deepspeed,
                                                                  fsdp, ddp };
    const uint64_t which = next(s) % 3;
    engine[which](t, s);
    trial_set(t, "optimizer", PICK(s, "adamw", "sgd"));
    trial_set(t, "lora_rank", PICK(s, "8", "64"));
    trial_set(t, "lora_targets", PICK(s, "q,v", "all-linear"));
    trial_set(t, "base_dtype", PICK(s, "bf16", "nf4", "int8"));
    trial_set(t, "lora_dtype", PICK(s, "fp32", "bf16"));
    if (next(s) % 3 == 0)
        trial_set(t, "lora_full_modules", PICK(s, "head", "embed,head"));
    if (which == 0 && next(s) % 2 == 0) {
        trial_set(t, "zero", "3");
        trial_set(t, "gpus", "8");
        trial_set(t, "hpz_partition_size", PICK(s, "2", "4"));
    }
}

/* Experts whole on each rank, cut over a group of them. */
static void hybrid_experts(struct trial *t, uint64_t *s)
{
    t->model = PICK(s, "mixtral-8x7b", "deepseek-v2-lite", "qwen1.5-moe-a2.7b",
                    routed);
    fsdp(t, s);
    trial_set(t, "gpus", PICK(s, "8", "24", "48"));
    trial_set(t, "shard_degree", PICK(s, "2", "4"));
}

struct trial trial_of(uint64_t seed)
{
    static void (*const family[FAMILIES])(struct trial *, uint64_t *) = {
        megatron,
        megatron,
        folded,
        deepspeed,
        fsdp,
        ddp,
        adapted,
        grouped,
        offloaded,
        torchtitan,
        megatron,
        adapted,
        offloaded_elsewhere,
        megatron_deepspeed,
        hybrid_experts,
        folded,
    };
    uint64_t s = seed;
    struct trial t = { .model = model_of(&s) };
    trial_set(&t, "seq_len", "256");
    trial_set(&t, "fast", "true");
    family[seed % FAMILIES](&t, &s);
    return t;
}

struct trial trial_alone(const struct trial *t)
{
    static const char *const ones[] = { "gpus", "tp", "pp", "vpp",
                                        "cp",   "ep", "etp" };
    static const char *const unset[] = {
        "shard_degree",      "pipeline_layers", "engine",
        "schedule",          "mics_shard_size", "hpz_partition_size",
        "offload_optimizer", "offload_params",  "pin_memory",
        "sub_group_size"
    };
    struct trial one = *t;
    for (size_t i = 0; i < CHOICES; i++) {
        for (size_t k = 0; k < sizeof ones / sizeof ones[0]; k++)
            if (one.c[i].value != NULL && strcmp(one.c[i].key, ones[k]) == 0)
                one.c[i].value = "1";
        for (size_t k = 0; k < sizeof unset / sizeof unset[0]; k++)
            if (one.c[i].value != NULL && strcmp(one.c[i].key, unset[k]) == 0)
                one.c[i].value = NULL;
    }
    return one;
}
