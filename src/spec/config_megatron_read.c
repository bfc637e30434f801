/*
 * Owns what Megatron-LM's flags mean together: batches, who holds the states,
 * recomputation, kernels; stages are config_megatron_stages.c's.
 * [megatron/training/arguments.py, core_v0.16]
 */
#include "spec/config_hf.h"
#include "spec/config_megatron.h"

#include "base/unit.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

/* ---- values of flags ---- */

bool config_flag_given(const struct config *c, const char *flag)
{
    return config_at(c, flag) != NULL;
}

/* True as a flag, or as YAML says it. */
static bool is_word(const struct config *c, const char *flag, const char *word)
{
    const struct json *v = config_at(c, flag);
    return v != NULL && v->kind == JSON_STRING && str_is(v->text, word);
}

uint64_t config_flag_number(const struct config *c, const char *flag)
{
    const struct json *v = config_at(c, flag);
    uint64_t n = 0;
    if (v != NULL && v->kind == JSON_NUMBER && v->number >= 0
        && v->number < UINT32_MAX)
        return (uint64_t)v->number;
    if (v != NULL && v->kind == JSON_STRING
        && unit_parse_count(v->text, &n) == UNIT_OK && n < UINT32_MAX)
        return n;
    return 0;
}

uint64_t config_flag_count(struct config *c, const char *flag)
{
    const struct json *v = config_at(c, flag);
    const uint64_t n = config_flag_number(c, flag);
    char shown[CONFIG_PATH_MAX];
    if (v == NULL || n > 0)
        return n;
    memplan_error *e =
        config_bad(c, v, MEMPLAN_E_ARG, "'%s' takes a whole number, 1 or more",
                   config_shown(c, flag, shown));
    diag_hint(e, "write the number itself");
    return 0;
}

void config_flag_set(struct config *c, const char *flag, enum setup_key key,
                     uint64_t n)
{
    char text[UNIT_TEXT_MAX];
    str_format(text, sizeof(text), "%" PRIu64, n);
    config_set(c, config_at(c, flag), key, text);
}

/* ---- number formats, states ---- */

static bool has_part(struct str text, const char *part)
{
    const size_t n = strlen(part);
    for (size_t i = 0; i + n <= text.n; i++)
        if (memcmp(text.p + i, part, n) == 0)
            return true;
    return false;
}

/* Lightning's 16 and "16-mixed". */
static bool is_sixteen(const struct json *v)
{
    return v != NULL
           && ((v->kind == JSON_NUMBER && v->number >= 16 && v->number <= 16)
               || (v->kind == JSON_STRING
                   && (str_is(v->text, "16") || str_is(v->text, "16-mixed"))));
}

/* A flag; or NeMo's "bf16", "bf16-mixed", Megatron-Bridge's "bf16_mixed",
 * "nanov2_bf16_with_fp8_...". */
static bool is_half(const struct config *c, const char *format)
{
    static const char *const keys[] = { "precision", "mixed_precision" };
    for (size_t i = 0; i < 2; i++) {
        const struct json *v = config_at(c, keys[i]);
        if (v != NULL && v->kind == JSON_STRING && has_part(v->text, format))
            return true;
    }
    if (str_is(str_of(format), "fp16") && is_sixteen(config_at(c, keys[0])))
        return true;
    return config_flag_given(c, format);
}

/* One each, where nothing is said; without the flag the counts mean nothing. */
static void ends(struct config *c)
{
    static const struct {
        const char *flag;
        enum setup_key key;
    } counts[] = { { "num_layers_at_start_in_bf16", KEY_BF16_LAYERS_AT_START },
                   { "num_layers_at_end_in_bf16", KEY_BF16_LAYERS_AT_END } };
    if (!config_flag_given(c, "first_last_layers_bf16"))
        return;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        const struct json *said = config_at(c, counts[i].flag);
        if (said != NULL)
            config_set_json(c, said, counts[i].key);
        else
            config_flag_set(c, "first_last_layers_bf16", counts[i].key, 1);
    }
}

/* bf16, bf16_mixed, bf16-mixed, 32 and the like; what is longer is a format of
 * its own. */
static void check_mixed(struct config *c, const struct json *v)
{
    if (memchr(v->text.p, '8', v->text.n) == NULL
        && memchr(v->text.p, '4', v->text.n) == NULL)
        return;
    diag_hint(config_bad(c, v, MEMPLAN_E_UNSUPPORTED,
                         "mixed_precision '%.*s' is not modelled",
                         (int)(v->text.n < 60 ? v->text.n : 60), v->text.p),
              "known are bf16_mixed, fp16_mixed and "
              "bf16_with_fp8_{delayed,current,subchannel}_scaling_mixed, "
              "bf16_with_mxfp8_mixed, bf16_with_nvfp4_mixed");
}

/* Megatron-Bridge's names of 8-bit and 4-bit products, each with its options
 * (training/mixed_precision.py). False where it is none of these. */
static bool bridge_precision(struct config *c)
{
    static const struct {
        const char *name, *recipe;
        bool params; /* gathered as stored */
        uint8_t first, last;
    } known[] = {
        { "bf16_with_fp8_delayed_scaling_mixed", "delayed", true, 0, 0 },
        { "bf16_with_mxfp8_mixed", "mxfp8", true, 0, 0 },
        { "bf16_with_fp8_current_scaling_mixed", "tensorwise", true, 1, 1 },
        { "nemotron_h_bf16_with_fp8_current_scaling_mixed", "tensorwise", true,
          2, 2 },
        { "nanov2_bf16_with_fp8_current_scaling_mixed", "blockwise", true, 2,
          2 },
        { "bf16_with_fp8_subchannel_scaling_mixed", "blockwise", false, 0, 0 },
        { "bf16_with_nvfp4_mixed", NULL, true, 0, 0 },
        { "nemotron_3_super_bf16_with_nvfp4_mixed", NULL, true, 0, 14 },
    };
    const struct json *v = config_at(c, "mixed_precision");
    size_t i = 0;
    enum { KNOWN = sizeof(known) / sizeof(known[0]) };
    if (v == NULL || v->kind != JSON_STRING)
        return false;
    while (i < KNOWN && !str_same_name(v->text, str_of(known[i].name)))
        i++;
    if (i == KNOWN) {
        check_mixed(c, v);
        return false;
    }
    config_set(c, v, KEY_PRECISION,
               known[i].recipe != NULL ? "fp8-mixed" : "fp4-mixed");
    if (known[i].recipe != NULL) {
        config_set(c, v, KEY_FP8_RECIPE, known[i].recipe);
        config_set(c, v, KEY_FP8_PARAMS, known[i].params ? "true" : "false");
    } else {
        config_note(c,
                    "mixed_precision %s: weights are gathered in 16 bits, "
                    "not in 4",
                    known[i].name);
    }
    if (known[i].last > 0) {
        config_flag_set(c, "mixed_precision", KEY_BF16_LAYERS_AT_START,
                        known[i].first);
        config_flag_set(c, "mixed_precision", KEY_BF16_LAYERS_AT_END,
                        known[i].last);
    }
    return true;
}

/* Products in fewer bits, each by a flag of its own, or weights' format. */
static void set_precision(struct config *c, const char *weights)
{
    static const struct {
        const char *flag, *precision;
    } flags[] = { { "fp4_format", "fp4-mixed" },
                  { "fp8_format", "fp8-mixed" },
                  { "fp8", "fp8-mixed" } };
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        if (!config_flag_given(c, flags[i].flag))
            continue;
        config_set(c, config_at(c, flags[i].flag), KEY_PRECISION,
                   flags[i].precision);
        return;
    }
    config_set(c, c->root, KEY_PRECISION, weights);
}

static void precision(struct config *c)
{
    const bool bf16 = is_half(c, "bf16"), fp16 = is_half(c, "fp16");
    char a[CONFIG_PATH_MAX], b[CONFIG_PATH_MAX];
    if (bf16 && fp16) {
        memplan_error *e =
            config_bad(c, config_at(c, "fp16"), MEMPLAN_E_CONFLICT,
                       "%s and %s are both given", config_shown(c, "bf16", a),
                       config_shown(c, "fp16", b));
        diag_hint(e, "keep one: Megatron refuses both");
        return;
    }
    if (!bridge_precision(c))
        set_precision(c, bf16 ? "bf16-mixed" : fp16 ? "fp16-mixed" : "fp32");
    if (config_flag_given(c, "main_grads_dtype"))
        return;
    if (config_flag_given(c, "grad_reduce_in_bf16"))
        config_set(c, c->root, KEY_GRAD_DTYPE, "bf16");
    else if (fp16
             && !config_flag_given(c, "accumulate_allreduce_grads_in_fp32"))
        config_set(c, c->root, KEY_GRAD_DTYPE, "fp16");
}

/* From stage 2 on DeepSpeed's pipeline engine is not there anyway. */
static void without_pipeline(struct config *c)
{
    if (config_flag_given(c, "no_pipeline_parallel")
        && config_flag_number(c, "zero_stage") < 2)
        config_note(c, "--no-pipeline-parallel is not modelled below ZeRO-2: "
                       "DeepSpeed's pipeline engine is assumed");
}

/* Megatron-DeepSpeed: who holds the states is said in a file of DeepSpeed's,
 * often one that the script itself writes. */
static void deepspeed(struct config *c)
{
    const struct json *file = config_at(c, "deepspeed_config");
    config_set(c, config_at(c, "deepspeed"), KEY_FRAMEWORK,
               "megatron-deepspeed");
    without_pipeline(c);
    if (file != NULL && file->kind == JSON_STRING
        && memchr(file->text.p, '$', file->text.n) == NULL
        && memchr(file->text.p, ' ', file->text.n) == NULL)
        config_goes_on(c, file, "deepspeed");
    else if (file != NULL)
        config_note(c, "which file --deepspeed-config is the script does not "
                       "say: add --deepspeed FILE");
}

/* Read from September 2021 (Megatron-LM@3f65246) to core 0.6; Megatron-DeepSpeed
 * sets it itself (its arguments.py, validate_args). */
static void bare_sums(struct config *c)
{
    char shown[CONFIG_PATH_MAX];
    static const char flag[] = "no_async_tensor_model_parallel_allreduce";
    if (config_flag_given(c, flag) && !config_flag_given(c, "deepspeed"))
        config_note(c,
                    "%s is ignored, as by Megatron since core 0.7 (May 2024): "
                    "where it is older, say it beside the file",
                    config_shown(c, flag, shown));
}

static void states(struct config *c)
{
    static const struct {
        const char *strategy, *zero;
    } strategies[] = { { "no_shard", "0" },
                       { "optim", "1" },
                       { "optim_grads", "2" },
                       { "optim_grads_params", "3" } };
    if (config_flag_given(c, "deepspeed")) {
        deepspeed(c);
        return;
    }
    config_set(c, c->root, KEY_FRAMEWORK, "megatron");
    if (config_flag_given(c, "use_torch_fsdp2")) {
        config_set(c, c->root, KEY_ENGINE, "fsdp2");
        return;
    }
    if (!config_flag_given(c, "use_megatron_fsdp")
        && !config_flag_given(c, "use_custom_fsdp")) {
        config_set(c, c->root, KEY_ZERO,
                   config_flag_given(c, "use_distributed_optimizer") ? "1"
                                                                     : "0");
        return;
    }
    config_set(c, c->root, KEY_ENGINE, "megatron-fsdp");
    for (size_t i = 0; i < sizeof(strategies) / sizeof(strategies[0]); i++) {
        if (is_word(c, "data_parallel_sharding_strategy",
                    strategies[i].strategy)
            || (i == 0
                && !config_flag_given(c, "data_parallel_sharding_strategy")))
            config_set(c, c->root, KEY_ZERO, strategies[i].zero);
    }
}

/* The optimizer's shards are copied over so many groups of ranks. */
static void instances(struct config *c)
{
    const uint64_t n =
        config_flag_count(c, "num_distributed_optimizer_instances");
    char shown[CONFIG_PATH_MAX];
    if (n > 1)
        config_note(
            c,
            "%s %" PRIu64 ": add --shard-degree, data-parallel ranks over it",
            config_shown(c, "num_distributed_optimizer_instances", shown), n);
    const struct json *a = config_at(c, "exp_avg_dtype");
    const struct json *b = config_at(c, "exp_avg_sq_dtype");
    const struct str fp32 = STR("fp32");
    const struct str first = a != NULL ? a->text : fp32;
    if (b != NULL && !str_eq(first, b->text))
        config_note(c, "%s is not modelled apart from the first moments'",
                    config_shown(c, "exp_avg_sq_dtype", shown));
}

/* ---- layers ---- */

/* Names of the time before selective recomputation: all of each layer. */
static void recompute_before(struct config *c)
{
    static const char block[] = "activations_checkpoint_method";
    static const char *const counts[] = { "checkpoint_num_layers",
                                          "activations_checkpoint_num_layers" };
    if (!config_flag_given(c, "checkpoint_activations")
        && !config_flag_given(c, block)
        && !config_flag_given(c, "deepspeed_activation_checkpointing"))
        return;
    config_set(c, c->root, KEY_RECOMPUTE, "full");
    for (size_t i = 0; i < 2; i++) {
        const uint64_t n = config_flag_count(c, counts[i]);
        if (n > 0)
            config_flag_set(c, counts[i],
                            is_word(c, block, "block")
                                ? KEY_RECOMPUTE_LAYERS
                                : KEY_RECOMPUTE_GRANULARITY,
                            n);
    }
}

/* The number 0, or as a flag says it. */
static bool is_none(const struct json *v)
{
    return v != NULL
           && ((v->kind == JSON_NUMBER && !(v->number > 0) && v->number >= 0)
               || (v->kind == JSON_STRING && str_is(v->text, "0")));
}

/* NeMo's names of the same. */
static const struct checkpoints {
    const char *granularity, *method, *layers;
} megatrons = { "recompute_granularity", "recompute_method",
                "recompute_num_layers" },
  nemos = { "activations_checkpoint_granularity",
            "activations_checkpoint_method",
            "activations_checkpoint_num_layers" };

/* The older name of a module, beside the core of attention or the list
 * (transformer_config.py, __post_init__). */
static void moe_layers(struct config *c)
{
    const struct json *at = config_at(c, "moe_layer_recompute");
    char list[CONFIG_LIST_MAX];
    config_modules(c, "recompute_modules", list);
    if (list[0] == '\0')
        str_append(list, sizeof(list), "core_attn");
    str_append(list, sizeof(list), ",moe");
    config_set(c, at, KEY_RECOMPUTE, "selective");
    config_set(c, at, KEY_RECOMPUTE_MODULES, list);
}

static void recompute(struct config *c)
{
    const struct checkpoints *of =
        config_flag_given(c, nemos.granularity) ? &nemos : &megatrons;
    const struct json *how = config_at(c, of->granularity);
    const bool full = is_word(c, of->granularity, "full");
    const bool block = is_word(c, of->method, "block");
    const bool no_layer = (block || !full) && is_none(config_at(c, of->layers));
    const uint64_t n =
        no_layer || how == NULL ? 0 : config_flag_count(c, of->layers);
    char shown[CONFIG_PATH_MAX];
    if (how == NULL) {
        if (config_flag_given(c, "moe_layer_recompute"))
            moe_layers(c);
        else if (json_member(c->root, nemos.granularity) != NULL)
            return; /* null: the method beside it says nothing of itself */
        else if (config_flag_given(c, "recompute_activations"))
            config_set(c, c->root, KEY_RECOMPUTE, "selective");
        else
            recompute_before(c);
        return;
    }
    if (full) {
        /* a block of no layers is made again, and launchers' YAML has such */
        config_set(c, how, KEY_RECOMPUTE, block && no_layer ? "none" : "full");
        if (n > 0)
            config_flag_set(
                c, of->layers,
                block ? KEY_RECOMPUTE_LAYERS : KEY_RECOMPUTE_GRANULARITY, n);
        return;
    }
    if (!is_word(c, of->granularity, "selective")) {
        memplan_error *e = config_bad(c, how, MEMPLAN_E_UNKNOWN, "unknown %s",
                                      config_shown(c, of->granularity, shown));
        diag_hint(e, "write full or selective");
        return;
    }
    config_set(c, how, KEY_RECOMPUTE, "selective");
    const struct json *modules = config_at(c, "recompute_modules");
    char list[CONFIG_LIST_MAX];
    config_modules(c, "recompute_modules", list);
    if (config_flag_given(c, "moe_layer_recompute"))
        moe_layers(c);
    else if (list[0] != '\0')
        config_set(c, modules, KEY_RECOMPUTE_MODULES, list);
}

/* A flag of its own says so, or NeMo's YAML, which has a number of layers
 * beside `cpu_offloading: False`. */
static void offloading(struct config *c)
{
    static const char flag[] = "cpu_offloading_num_layers";
    static const char *const off[] = { "cpu_offloading",
                                       "cpu_offloading_activations" };
    for (size_t i = 0; i < 2; i++) /* what is false is there, and null */
        if (json_member(c->root, off[i]) != NULL && !config_is_true(c, off[i]))
            return;
    const struct json *v = config_at(c, flag);
    if (v == NULL || is_word(c, flag, "0")
        || (v->kind == JSON_NUMBER && !(v->number > 0)))
        return;
    config_flag_set(c, flag, KEY_CPU_OFFLOADING_NUM_LAYERS,
                    config_flag_count(c, flag));
}

/* Whether what is between a name and its value, and before both on their line,
 * sets one to the other. */
static bool is_set(const struct config *c, size_t name, size_t end,
                   size_t value)
{
    for (size_t i = end; i < value; i++)
        if (strchr("=: '\"", c->text[i]) == NULL)
            return false;
    for (size_t i = name; i > 0 && c->text[i - 1] != '\n'; i--)
        if (c->text[i - 1] == '#')
            return false;
    return value > end;
}

/* NAME=VALUE, of a script's or YAML's environment. */
static bool environment_says(const struct config *c, const char *name,
                             const char *value)
{
    enum { BETWEEN = 4 }; /* "=", ": ", quotes */
    const size_t n = strlen(name), m = strlen(value);
    for (size_t i = 0; i + n + m <= c->len; i++) {
        if (memcmp(c->text + i, name, n) != 0)
            continue;
        for (size_t k = 0; k <= BETWEEN && i + n + k + m <= c->len; k++) {
            if (memcmp(c->text + i + n + k, value, m) == 0
                && is_set(c, i, i + n, i + n + k))
                return true;
        }
    }
    return false;
}

/* A word, or the first of several. */
static const struct json *first_of(const struct config *c, const char *flag)
{
    const struct json *v = config_at(c, flag);
    return v != NULL && v->kind == JSON_ARRAY ? v->child : v;
}

/* A type without a coefficient, 0 by itself, is no loss (router.py). */
static void balance(struct config *c)
{
    static const char *const losses[] = { "aux_loss", "seq_aux_loss",
                                          "global_aux_loss" };
    const struct json *x = first_of(c, "moe_aux_loss_coeff");
    const struct json *type = first_of(c, "moe_router_load_balancing_type");
    if (x == NULL || x->kind != JSON_NUMBER || !(x->number > 0))
        return;
    if (type == NULL)
        config_set(c, x, KEY_MOE_AUX_LOSS, losses[0]);
    for (unsigned i = 0; type != NULL && i < 3; i++)
        if (type->kind == JSON_STRING && str_is(type->text, losses[i]))
            config_set(c, type, KEY_MOE_AUX_LOSS, losses[i]);
}

/* Said to be false where a class has it true, as in YAML: what is false is
 * there, and null. */
static bool is_off(const struct config *c, const char *entry)
{
    return json_member(c->root, entry) != NULL && !config_flag_given(c, entry);
}

/* On unless told otherwise, and latent attention's rope is YaRN unless told so,
 * which alone has the kernels (arguments.py; transformer_config.py). */
static void latent_rope(struct config *c)
{
    const bool none = config_flag_given(c, "no_rope_fusion");
    const bool latent = config_flag_given(c, "multi_latent_attention");
    const bool off = none || is_off(c, "apply_rope_fusion")
                     || is_word(c, "rope_type", "rope");
    if (latent && !off && is_word(c, "position_embedding_type", "rope"))
        config_set(c, c->root, KEY_ROPE_FUSION, "true");
    if (none && !latent)
        config_note(c, "--no-rope-fusion is not modelled: rotary embeddings "
                       "are one kernel");
}

static void fusions(struct config *c)
{
    static const char *const kernels[] = {
        "bias_activation_fusion",  "bias_swiglu_fusion",
        "bias_gelu_fusion",        "bias_dropout_fusion",
        "bias_dropout_add_fusion", "apply_rope_fusion",
    };
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
        if (is_off(c, kernels[i]))
            config_note(c, "%s false is not modelled: one kernel is assumed",
                        kernels[i]);
    if (is_off(c, "grad_reduce_in_fp32"))
        config_note(c, "grad_reduce_in_fp32 false is not modelled: true is "
                       "assumed (--grad-dtype)");
    latent_rope(c);
    bare_sums(c);
    if (is_off(c, "masked_softmax_fusion"))
        config_set(c, c->root, KEY_FUSED_SOFTMAX, "false");
    if (!config_flag_given(c, "no_gradient_accumulation_fusion"))
        config_set(c, c->root, KEY_GRAD_ACCUM_FUSION,
                   is_off(c, "gradient_accumulation_fusion") ? "false"
                                                             : "true");
}

/* Transformer Engine takes the best attention that no variable rules out;
 * --attention-backend sets these (language_module.py, _set_attention_backend). */
static void attention(struct config *c, bool local)
{
    static const char flag[] = "attention_backend";
    const bool half = is_half(c, "bf16") || is_half(c, "fp16");
    const bool told = config_flag_given(c, flag) && !is_word(c, flag, "auto");
    const bool flash = told ? !is_word(c, flag, "fused")
                            : !environment_says(c, "NVTE_FLASH_ATTN", "0");
    const bool fused = told ? !is_word(c, flag, "flash")
                            : !environment_says(c, "NVTE_FUSED_ATTN", "0");
    if (is_word(c, flag, "unfused") || !half
        || (local && !config_flag_given(c, "use_flash_attn"))
        || (!local && !flash && !fused)) {
        config_set(c, c->root, KEY_ATTENTION, "eager");
        return;
    }
    config_set(c, c->root, KEY_ATTENTION, "flash");
    if (!local && !fused)
        config_set(c, c->root, KEY_ATTENTION_KERNEL, "flash2");
}

static void kernels(struct config *c)
{
    char shown[CONFIG_PATH_MAX];
    const bool local = is_word(c, "transformer_impl", "local")
                       || is_word(c, "attention_backend", "local");
    if (local)
        config_set(c, c->root, KEY_IMPLEMENTATION, "megatron-local");
    attention(c, local);
    if (is_word(c, "moe_token_dispatcher_type", "flex"))
        config_note(c,
                    "%s flex: memory is without DeepEP's "
                    "buffers",
                    config_shown(c, "moe_token_dispatcher_type", shown));
    config_set(c, c->root, KEY_ATTENTION_MASK,
               config_flag_given(c, "no_create_attention_mask_in_dataloader")
                   ? "none"
                   : "dataloader");
    if (!config_flag_given(c, "sequence_parallel"))
        config_set(c, c->root, KEY_SEQUENCE_PARALLEL, "false");
    fusions(c);
    if (!config_flag_given(c, "deterministic_mode"))
        config_set(c, c->root, KEY_DETERMINISTIC,
                   environment_says(c, "CUBLAS_WORKSPACE_CONFIG", ":4096:8")
                       ? "true"
                       : "false");
    if (config_flag_given(c, "cross_entropy_loss_fusion")
        && !config_flag_given(c, "cross_entropy_fusion_impl"))
        config_set(c, c->root, KEY_CE_FUSION, "native");
    if (config_flag_given(c, "num_experts"))
        config_set(c, c->root, KEY_GROUPED_GEMM,
                   config_flag_given(c, "moe_grouped_gemm") ? "true" : "false");
    balance(c);
    if (config_flag_count(c, "make_vocab_size_divisible_by") > 0
        && !config_flag_given(c, "no_pad_vocab_size")) {
        const uint64_t tp = config_flag_number(c, "tensor_model_parallel_size");
        config_flag_set(c, "make_vocab_size_divisible_by", KEY_VOCAB_MULTIPLE,
                        config_flag_count(c, "make_vocab_size_divisible_by")
                            * (tp > 0 ? tp : 1));
    }
}

/* Megatron drops 0.1 out everywhere unless told otherwise. */
static void dropout(struct config *c)
{
    static const char *const flags[] = { "hidden_dropout",
                                         "attention_dropout" };
    double p[2] = { 0.1, 0.1 };
    char a[CONFIG_PATH_MAX], b[CONFIG_PATH_MAX];
    for (size_t i = 0; i < 2; i++) {
        const struct json *v = config_at(c, flags[i]);
        if (v != NULL && v->kind == JSON_NUMBER)
            p[i] = v->number;
        else if (v != NULL)
            unit_parse_real(v->text, &p[i]);
    }
    if (p[0] < p[1] || p[0] > p[1]) {
        config_note(c, "%s and %s differ: the model's are used (--dropout)",
                    config_shown(c, flags[0], a), config_shown(c, flags[1], b));
        return;
    }
    char text[UNIT_TEXT_MAX];
    config_set(c, c->root, KEY_DROPOUT, unit_format_double(text, p[0]));
}

/* The trainer's section of NeMo's YAML; -1 devices are those of a node. */
static void nemo_world(struct config *c)
{
    const struct json *devices = config_at(c, "devices");
    const uint64_t each = config_flag_number(c, "devices");
    const uint64_t nodes = config_flag_number(c, "num_nodes");
    if (each > 0) {
        config_flag_set(c, "devices", KEY_GPUS_PER_NODE, each);
        config_flag_set(c, "devices", KEY_GPUS, each * (nodes > 0 ? nodes : 1));
    } else if (devices != NULL) {
        c->s->nodes = (uint32_t)(nodes > 0 ? nodes : 1);
        config_note(c, "devices: all GPUs of a node");
    }
}

/* optim.name. Apex's distributed_fused_adam is sharded as Megatron's
 * distributed optimizer. [nemo/core/optim/optimizers.py] */
static void nemo_optimizer(struct config *c)
{
    static const struct {
        const char *name, *optimizer;
        bool sharded;
    } known[] = {
        { "adam", "adamw", false },
        { "adamw", "adamw", false },
        { "fused_adam", "adamw", false },
        { "megatron_fused_adam", "adamw", false },
        { "distributed_fused_adam", "adamw", true },
        { "mcore_distributed_optim", "adamw", true },
        { "adafactor", "adafactor", false },
        { "rmsprop", "rmsprop", false },
        { "adagrad", "adagrad", false },
        { "sgd", "sgd", false },
    };
    const struct json *name = config_at(c, "optim_name");
    if (name == NULL)
        return;
    if (!config_flag_given(c, "megatron_amp_O2"))
        config_note(c, "without megatron_amp_O2 NeMo keeps fp32 weights under "
                       "autocast: 16-bit ones are assumed");
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (!is_word(c, "optim_name", known[i].name))
            continue;
        config_set(c, name, KEY_OPTIMIZER, known[i].optimizer);
        if (known[i].sharded)
            config_set(c, name, KEY_ZERO, "1");
        return;
    }
    diag_hint(config_bad(c, name, MEMPLAN_E_UNSUPPORTED,
                         "optim.name '%.*s' is not modelled",
                         (int)(name->text.n < 40 ? name->text.n : 40),
                         name->text.p),
              "such as fused_adam, distributed_fused_adam; the key of it here "
              "is --optimizer");
}

/* NeMo 1's own sharding by PyTorch, not Megatron's. */
static void nemo_fsdp(struct config *c)
{
    if (config_flag_given(c, "fsdp") && config_flag_given(c, "optim_name"))
        diag_hint(config_bad(c, config_at(c, "fsdp"), MEMPLAN_E_UNSUPPORTED,
                             "NeMo's fsdp is not modelled"),
                  "without it the optimizer's states are sharded: "
                  "optim.name distributed_fused_adam");
}

void config_megatron_together(struct config *c)
{
    if (config_others_megatron(c))
        return;
    nemo_fsdp(c);
    c->s->megatron_script = true;
    config_world(c);
    nemo_world(c);
    config_megatron_stages(c);
    config_megatron_shape(c);
    states(c);
    nemo_optimizer(c);
    precision(c);
    ends(c);
    instances(c);
    config_clipping(c, config_flag_given(c, "gradient_clip_val")
                           ? "gradient_clip_val"
                           : "clip_grad");
    recompute(c);
    offloading(c);
    config_megatron_offload(c);
    config_megatron_graphs(c);
    kernels(c);
    dropout(c);
    config_megatron_peft(c);
}
