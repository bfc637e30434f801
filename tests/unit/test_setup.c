/* Setup keys: read, written, defaulted, and every refusal with its hint. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "spec/setup.h"
#include "json/json.h"

/* ---- helpers ---- */

enum { ERRORS_MAX = 16 };

struct case_state {
    struct setup setup;
    struct run run;
    memplan_error slot[ERRORS_MAX];
    memplan_errors errs;
    struct diag diag;
    memplan_status status;
};

static struct case_state cs;

static void fresh(void)
{
    memset(&cs, 0, sizeof(cs));
    cs.errs = (memplan_errors){ cs.slot, ERRORS_MAX, 0 };
    diag_init(&cs.diag, &cs.errs);
}

static memplan_status set(const char *key, const char *value)
{
    return setup_set(&cs.setup, str_of(key), str_of(value), &cs.diag);
}

/* "gpus=64 tp=8" */
static void set_all(const char *pairs)
{
    struct str rest = str_of(pairs);
    while (rest.n > 0) {
        struct str value;
        struct str pair = str_cut(rest, ' ', &rest);
        struct str key = str_cut(pair, '=', &value);
        if (setup_set(&cs.setup, key, value, &cs.diag) != MEMPLAN_OK)
            print_error("%.*s: %s\n", (int)pair.n, pair.p, cs.slot[0].message);
    }
}

static struct spec llama(void)
{
    struct spec s = {
        .name = "llama",
        .source = "",
        .model_type = "llama",
        .layers = 32,
        .hidden = 4096,
        .heads = 32,
        .kv_heads = 8,
        .head_dim = 128,
        .ffn = 14336,
        .vocab = 128256,
        .max_positions = 8192,
        .position = POS_ROPE,
        .rotary_dim = 128,
        .gated_mlp = true,
        .final_norm = true,
    };
    return s;
}

static struct spec gpt2(void)
{
    struct spec s = llama();
    s.layers = 12;
    s.hidden = 768;
    s.heads = s.kv_heads = 12;
    s.head_dim = 64;
    s.ffn = 3072;
    s.vocab = 50257;
    s.position = POS_LEARNED;
    s.max_positions = s.learned_positions = 1024;
    s.hidden_dropout = s.embed_dropout = s.attention_dropout = 0.1;
    return s;
}

static struct spec mixtral(void)
{
    struct spec s = llama();
    s.experts = 8;
    s.experts_per_token = 2;
    s.expert_ffn = 14336;
    return s;
}

/* Two modules that predict tokens after the next. */
static struct spec predicting(void)
{
    struct spec s = mixtral();
    s.mtp_layers = 2;
    return s;
}

/* For a group of eleven: 'e'verything splits, or one thing does not. */
static struct spec eleven(char which)
{
    struct spec s = llama();
    s.heads = s.kv_heads = 11;
    s.hidden = which == 'h' ? 1000 : 11 * 128;
    s.ffn = which == 'f' ? 1000 : 11 * 128;
    s.shared_ffn = which == 's' ? 1000 : 0;
    return s;
}

static struct spec latent(void)
{
    struct spec s = llama();
    s.kv_rank = 512;
    s.nope_dim = s.rope_dim = s.head_dim / 2;
    s.v_dim = s.head_dim;
    return s;
}

static struct spec model(char which)
{
    if (strchr("ehfs", which) != NULL)
        return eleven(which);
    return which == 'g'   ? gpt2()
           : which == 'm' ? mixtral()
           : which == 'p' ? predicting()
           : which == 'a' ? latent()
                          : llama();
}

static const uint64_t PARAMS = 8030261248;

static const struct run *resolve_as(char which, const char *pairs)
{
    fresh();
    set_all(pairs);
    struct spec s = model(which);
    cs.status = setup_resolve(&cs.run, &cs.setup, &s, PARAMS, &cs.diag);
    return &cs.run;
}

static const struct run *resolved(const char *pairs)
{
    const struct run *r = resolve_as('l', pairs);
    if (cs.status != MEMPLAN_OK)
        print_error("%s: %s\n", pairs, cs.slot[0].message);
    assert_int_equal(cs.status, MEMPLAN_OK);
    return r;
}

static const char *value_text(const struct setup *s, enum setup_key key)
{
    static char buf[4096];
    return setup_value_text(s, key, buf, sizeof(buf));
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        print_error("'%s' is not in '%s'\n", part, text);
        fail();
    }
}

static bool assumes(const struct run *r, const char *part)
{
    for (size_t i = 0; i < r->n_assumptions; i++) {
        char buf[ASSUMPTION_TEXT];
        if (strstr(assumption_text(&r->assumption[i], buf), part))
            return true;
    }
    return false;
}

/* ---- the table ---- */

static void table_is_sound(void **state)
{
    (void)state;
    assert_null(setup_field(KEY_COUNT));
    assert_null(setup_field(SIZE_MAX));
    for (size_t k = 0; k < KEY_COUNT; k++) {
        const memplan_field *f = setup_field(k);
        assert_non_null(f);
        assert_true(strlen(f->key) > 0 && strlen(f->key) < 64);
        assert_int_equal(setup_find_key(str_of(f->key)), k);
        assert_true(f->default_text[0] && f->group[0] && f->doc[0]);
        assert_true(f->placeholder[0] && strlen(f->doc) <= 64);
        size_t n = strlen(f->choices);
        assert_true(n == 0
                    || (f->choices[0] != ' ' && f->choices[n - 1] != ' '));
        bool words = f->type == MEMPLAN_TYPE_CHOICE;
        assert_true(!words || n > 0);
        const bool number = f->type == MEMPLAN_TYPE_COUNT
                            || f->type == MEMPLAN_TYPE_BYTES
                            || f->type == MEMPLAN_TYPE_REAL;
        assert_true(f->min >= 0 && (number ? f->max > f->min : true));
        assert_true(number || f->type == MEMPLAN_TYPE_LIST || f->max <= 0);
    }
    assert_int_equal(setup_field(KEY_ZERO)->max, 3);
    assert_int_equal(setup_find_key(STR("micro-batch")), KEY_MICRO_BATCH);
    assert_int_equal(setup_find_key(STR("")), KEY_COUNT);
}

static void groups_stay_together(void **state)
{
    (void)state;
    for (size_t k = 1; k < KEY_COUNT; k++) {
        const char *group = setup_field(k)->group;
        if (strcmp(group, setup_field(k - 1)->group) == 0)
            continue;
        for (size_t i = 0; i < k; i++)
            assert_string_not_equal(setup_field(i)->group, group);
    }
}

/* key, value, what it reads back as */
static const char *const settable[][3] = {
    { "gpu", "H100", "h100-80gb" },
    { "gpus", "1k", "1000" },
    { "gpus_per_node", "4", "4" },
    { "gpu_memory", "80GiB", "85899345920" },
    { "price", "1.5", "1.5" },
    { "peak_flops", "989T", "989000000000000" },
    { "intra_node_bandwidth", "300e9", "300000000000" },
    { "inter_node_bandwidth", "50G", "50000000000" },
    { "host_bandwidth", "25G", "25000000000" },
    { "nvme_bandwidth", "27e9", "27000000000" },
    { "framework", "fsdp", "fsdp" },
    { "implementation", "paper", "paper" },
    { "engine", "fsdp2", "fsdp2" },
    { "zero", "3", "3" },
    { "shard_degree", "8", "8" },
    { "dp", "2", "2" },
    { "tp", "8", "8" },
    { "pp", "4", "4" },
    { "vpp", "2", "2" },
    { "cp", "2", "2" },
    { "ep", "8", "8" },
    { "etp", "1", "1" },
    { "sequence_parallel", "yes", "true" },
    { "schedule", "gpipe", "gpipe" },
    { "pipeline_layers", "7, 8,8,9", "7,8,8,9" },
    { "image", "3x32x48", "3x32x48" },
    { "micro_batch", "2", "2" },
    { "global_batch", "1Ki", "1024" },
    { "grad_accum", "8", "8" },
    { "seq_len", "8Ki", "8192" },
    { "decoder_seq_len", "128", "128" },
    { "images", "0", "0" },
    { "precision", "bf16", "bf16" },
    { "fp8_recipe", "mxfp8", "mxfp8" },
    { "fp8_params", "on", "true" },
    { "activation_func_fp8_input_store", "on", "true" },
    { "num_layers_at_start_in_bf16", "2", "2" },
    { "num_layers_at_end_in_bf16", "1", "1" },
    { "param_dtype", "bf16", "bf16" },
    { "grad_dtype", "fp32", "fp32" },
    { "reduce_dtype", "fp16", "fp16" },
    { "master_dtype", "none", "none" },
    { "optimizer_dtype", "int8", "int8" },
    { "optimizer", "lion8bit", "lion8bit" },
    { "optimizer_impl", "loop", "loop" },
    { "embedding_states", "8bit", "8bit" },
    { "optimizer_rank", "64", "64" },
    { "optimizer_targets", "q,head", "q,head" },
    { "optimizer_in_backward", "1", "true" },
    { "lora_variant", "dora", "dora" },
    { "clip_grad", "no", "false" },
    { "zero_grad_set_to_none", "no", "false" },
    { "recompute", "full", "full" },
    { "recompute_modules", "mlp,core_attn", "core_attn,mlp" },
    { "recompute_layers", "4", "4" },
    { "recompute_granularity", "2", "2" },
    { "recompute_every", "2", "2" },
    { "recompute_reentrant", "yes", "true" },
    { "distribute_saved_activations", "yes", "true" },
    { "attention", "eager", "eager" },
    { "loss", "fused", "fused" },
    { "drop_outputs", "yes", "true" },
    { "keep_outputs", "yes", "true" },
    { "compile", "off", "false" },
    { "dropout", "10%", "0.1" },
    { "attention_mask", "dataloader", "dataloader" },
    { "vocab_multiple", "64", "64" },
    { "attention_kernel", "flash1", "flash1" },
    { "ssm_kernel", "fused", "fused" },
    { "norm_kernel", "eager", "eager" },
    { "ce_fusion", "native", "native" },
    { "cp_comm", "a2a", "a2a" },
    { "deterministic", "yes", "true" },
    { "replay_batches", "yes", "true" },
    { "moe_flex_dispatcher_backend", "hybridep", "hybridep" },
    { "moe_dispatcher", "allgather", "allgather" },
    { "grad_accum_fusion", "no", "false" },
    { "defer_embedding_wgrad_compute", "yes", "true" },
    { "wgrad_deferral_limit", "2", "2" },
    { "microbatch_group_size_per_vp_stage", "8", "8" },
    { "return_outputs", "yes", "true" },
    { "keep_reduce_scatter", "yes", "true" },
    { "fused_softmax", "no", "false" },
    { "softmax_fp32", "yes", "true" },
    { "softmax_input", "yes", "true" },
    { "dropout_mask", "yes", "true" },
    { "zero3_lists", "no", "false" },
    { "grouped_gemm", "no", "false" },
    { "moe_imbalance", "1.5", "1.5" },
    { "moe_expert_capacity_factor", "1.25", "1.25" },
    { "moe_pad_expert_input_to_capacity", "yes", "true" },
    { "rope_fusion", "yes", "true" },
    { "moe_permute_fusion", "yes", "true" },
    { "use_transformer_engine_op_fuser", "yes", "true" },
    { "fp8_dot_product_attention", "yes", "true" },
    { "moe_router_dtype", "fp32", "fp32" },
    { "moe_aux_loss", "seq_aux_loss", "seq_aux_loss" },
    { "tp_comm_overlap", "on", "true" },
    { "async_tp", "on", "true" },
    { "cuda_graph", "0", "false" },
    { "cuda_graph_impl", "local", "local" },
    { "cuda_graph_scope", "moe_router,attn", "attn,moe_router" },
    { "cuda_graph_warmup_steps", "0", "0" },
    { "ep_overlap", "yes", "true" },
    { "ep_overlap_early_attn_memory_release", "yes", "true" },
    { "delay_wgrad_compute", "yes", "true" },
    { "lengths", "60,500,2k", "60,500,2000" },
    { "length_mean", "3234", "3234" },
    { "length_std", "2548", "2548" },
    { "samples", "5k", "5000" },
    { "too_long", "drop", "drop" },
    { "lora_rank", "16", "16" },
    { "lora_targets", "q,v", "q,v" },
    { "lora_full_modules", "norm", "norm" },
    { "lora_dtype", "fp16", "fp16" },
    { "base_dtype", "nf4", "nf4" },
    { "double_quant", "true", "true" },
    { "gptq_kernel", "triton_v2", "triton_v2" },
    { "linear_experts", "true", "true" },
    { "kbit_cast", "norms", "norms" },
    { "lora_dropout", "0.05", "0.05" },
    { "freeze", "vision,projector", "vision,projector" },
    { "offload_optimizer", "cpu", "cpu" },
    { "offload_params", "nvme", "nvme" },
    { "offload_activations", "none", "none" },
    { "cpu_offloading_num_layers", "3", "3" },
    { "offload_modules", "moe_act,core_attn", "core_attn,moe_act" },
    { "min_offloaded_tensor_size", "64k", "64000" },
    { "peft_type", "ia3", "ia3" },
    { "layers_to_transform", "0,2-5, 7,8", "0,2-5,7,8" },
    { "rank_pattern", "q=16, down = 64", "q=16,down=64" },
    { "feedforward_modules", "up,down", "up,down" },
    { "num_virtual_tokens", "20", "20" },
    { "prefix_projection", "true", "true" },
    { "ensure_weight_tying", "true", "true" },
    { "encoder_hidden_size", "1k", "1000" },
    { "freeze_trainable_layers", "2", "2" },
    { "pin_memory", "false", "false" },
    { "optimizer_buffers", "5", "5" },
    { "param_buffers", "6", "6" },
    { "param_buffer_size", "1e9", "1000000000" },
    { "max_in_cpu", "0", "0" },
    { "pipeline_read", "true", "true" },
    { "pipeline_write", "true", "true" },
    { "reduce_bucket", "5e8", "500000000" },
    { "allgather_bucket", "2e8", "200000000" },
    { "prefetch_bucket", "0", "0" },
    { "max_live_params", "1G", "1000000000" },
    { "sub_group_size", "1e9", "1000000000" },
    { "persistence_threshold", "100k", "100000" },
    { "hpz_partition_size", "8", "8" },
    { "mics_shard_size", "8", "8" },
    { "mics_hierarchical_params_gather", "true", "true" },
    { "offload_ratio", "0.5", "0.5" },
    { "zero_quantized_weights", "true", "true" },
    { "zero_quantized_gradients", "true", "true" },
    { "overlap_comm", "true", "true" },
    { "contiguous_gradients", "off", "false" },
    { "round_robin_gradients", "yes", "true" },
    { "multi_rank_bucket_allreduce", "no", "false" },
    { "async_tensor_model_parallel_allreduce", "no", "false" },
    { "scatter_gather_tensors_in_pipeline", "yes", "true" },
    { "ddp_bucket", "25MiB", "26214400" },
    { "cuda_context", "1343MiB", "1408237568" },
    { "fsdp_units", "ends", "ends" },
    { "reshard_after_forward", "off", "false" },
    { "use_orig_params", "no", "false" },
    { "zero_flatten", "cpu", "cpu" },
    { "fp32_logits", "yes", "true" },
    { "shift_logits", "yes", "true" },
    { "recompute_in_unit", "yes", "true" },
    { "mask_per_head", "yes", "true" },
    { "zero_bucket", "backward", "backward" },
    { "zero_overflow", "kept", "kept" },
    { "zero_rank", "first", "first" },
    { "grad_sync", "each", "each" },
    { "allocator", "expandable", "expandable" },
    { "fast", "true", "true" },
    { "params", "13B", "13000000000" },
    { "tokens", "1.4T", "1400000000000" },
    { "tokens_per_param", "20", "20" },
    { "scaling_law", "hoffmann-3", "hoffmann-3" },
    { "mfu", "45%", "0.45" },
    { "availability", "0.9", "0.9" },
    { "days", "30", "30" },
    { "budget", "1e24", "1e+24" },
    { "target_loss", "2.5", "2.5" },
    { "unique_tokens", "100B", "100000000000" },
    { "inference_tokens", "1T", "1000000000000" },
};
enum { SETTABLE = sizeof(settable) / sizeof(settable[0]) };

static void every_key_is_settable(void **state)
{
    (void)state;
    assert_int_equal(SETTABLE, KEY_COUNT);
    fresh();
    for (size_t i = 0; i < SETTABLE; i++) {
        enum setup_key key = setup_find_key(str_of(settable[i][0]));
        assert_true(key < KEY_COUNT);
        assert_string_equal(value_text(&cs.setup, key), "");
        assert_int_equal(set(settable[i][0], settable[i][1]), MEMPLAN_OK);
        assert_true(cs.setup.set[key]);
        assert_string_equal(value_text(&cs.setup, key), settable[i][2]);
        /* what is written reads back */
        char text[128];
        str_format(text, sizeof(text), "%s", settable[i][2]);
        assert_int_equal(set(settable[i][0], text), MEMPLAN_OK);
        assert_string_equal(value_text(&cs.setup, key), settable[i][2]);
    }
    assert_int_equal(cs.errs.count, 0);
}

static void check_words(enum setup_key key, const char *const *words,
                        size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct str w = choice_word(setup_field(key)->choices, i);
        assert_true(str_is(w, words[i]));
        assert_int_equal(set(setup_field(key)->key, words[i]), MEMPLAN_OK);
        bool list = setup_field(key)->type == MEMPLAN_TYPE_LIST;
        assert_int_equal(cs.setup.v[key].n, list ? UINT64_C(1) << i : i);
        assert_string_equal(value_text(&cs.setup, key), words[i]);
    }
    assert_int_equal(choice_word(setup_field(key)->choices, count).n, 0);
}

#define WORD(id, text) [id] = text,
#define CHECK_MAP(key, map)                                                    \
    do {                                                                       \
        static const char *const words[] = { map(WORD) };                      \
        check_words(key, words, sizeof(words) / sizeof(words[0]));             \
    } while (0)

static void words_are_their_enum(void **state)
{
    (void)state;
    fresh();
    CHECK_MAP(KEY_FRAMEWORK, FRAMEWORK_MAP);
    CHECK_MAP(KEY_IMPLEMENTATION, IMPLEMENTATION_MAP);
    CHECK_MAP(KEY_ENGINE, ENGINE_MAP);
    CHECK_MAP(KEY_SCHEDULE, SCHEDULE_MAP);
    CHECK_MAP(KEY_PRECISION, PRECISION_MAP);
    CHECK_MAP(KEY_FP8_RECIPE, FP8_RECIPE_MAP);
    CHECK_MAP(KEY_OPTIMIZER, OPTIMIZER_MAP);
    CHECK_MAP(KEY_OPTIMIZER_IMPL, OPTIMIZER_IMPL_MAP);
    CHECK_MAP(KEY_RECOMPUTE, RECOMPUTE_MAP);
    CHECK_MAP(KEY_RECOMPUTE_MODULES, RECOMPUTE_MODULE_MAP);
    CHECK_MAP(KEY_ATTENTION, ATTENTION_MAP);
    CHECK_MAP(KEY_LOSS, LOSS_MAP);
    CHECK_MAP(KEY_LORA_TARGETS, LORA_TARGET_MAP);
    CHECK_MAP(KEY_LORA_VARIANT, LORA_VARIANT_MAP);
    CHECK_MAP(KEY_EMBEDDING_STATES, EMBEDDING_STATES_MAP);
    CHECK_MAP(KEY_LORA_FULL_MODULES, LORA_FULL_MAP);
    CHECK_MAP(KEY_FREEZE, FREEZE_MAP);
    CHECK_MAP(KEY_OFFLOAD_OPTIMIZER, OFFLOAD_MAP);
    CHECK_MAP(KEY_OFFLOAD_PARAMS, OFFLOAD_MAP);
    CHECK_MAP(KEY_OFFLOAD_ACTIVATIONS, OFFLOAD_MAP);
    CHECK_MAP(KEY_ATTENTION_MASK, ATTENTION_MASK_MAP);
    CHECK_MAP(KEY_ALLOCATOR, ALLOCATOR_MAP);
    CHECK_MAP(KEY_SCALING_LAW, SCALING_LAW_MAP);
    assert_int_equal(cs.errs.count, 0);
}

static void dtype_keys_store_the_enum(void **state)
{
    (void)state;
    static const enum setup_key keys[] = {
        KEY_PARAM_DTYPE,     KEY_GRAD_DTYPE, KEY_REDUCE_DTYPE, KEY_MASTER_DTYPE,
        KEY_OPTIMIZER_DTYPE, KEY_LORA_DTYPE, KEY_BASE_DTYPE,
    };
    static const char *const names[] = { DTYPE_MAP(WORD) };
    fresh();
    for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
        const memplan_field *f = setup_field(keys[k]);
        for (size_t i = 0; choice_word(f->choices, i).n > 0; i++) {
            struct str w = choice_word(f->choices, i);
            assert_int_equal(setup_set(&cs.setup, str_of(f->key), w, &cs.diag),
                             MEMPLAN_OK);
            uint64_t t = cs.setup.v[keys[k]].n;
            assert_true(t < DTYPE_COUNT && str_is(w, names[t]));
            assert_string_equal(dtype_name((enum dtype)t), names[t]);
        }
    }
    assert_int_equal(dtype_bytes_of(DT_NF4, 5), 3);
    assert_int_equal(dtype_bytes_of(DT_BF16, 5), 10);
    assert_int_equal(dtype_size(DT_NONE), 0);
    assert_int_equal(dtype_size(DT_INT64), 8);
}

/* ---- values that are refused ---- */

static const struct bad_value {
    const char *key, *value;
    memplan_status status;
    const char *message, *hint;
} bad_values[] = {
    { "zer", "3", MEMPLAN_E_UNKNOWN, "unknown key 'zer'",
      "did you mean 'zero'?" },
    { "micro_bach", "3", MEMPLAN_E_UNKNOWN, "unknown key 'micro_bach'",
      "did you mean 'micro_batch'?" },
    { "qqqqqqqqqqq", "3", MEMPLAN_E_UNKNOWN, "unknown key", "x-" },
    { "gpus", "many", MEMPLAN_E_ARG, "'gpus' takes a whole number, not 'many'",
      "such as 64" },
    { "gpus", "", MEMPLAN_E_ARG, "'gpus' takes a whole number", "such as" },
    { "gpus", "0", MEMPLAN_E_RANGE, "'gpus' is 0, out of range", "use 1 to" },
    { "gpus", "99999999999999999999999", MEMPLAN_E_RANGE, "'gpus' is 999",
      "use 1 to" },
    { "zero", "4", MEMPLAN_E_RANGE, "'zero' is 4, out of range", "use 0 to 3" },
    { "pp", "513", MEMPLAN_E_RANGE, "'pp' is 513", "use 1 to 512" },
    { "mfu", "1.5", MEMPLAN_E_RANGE, "'mfu' is 1.5", "to 1" },
    { "mfu", "much", MEMPLAN_E_ARG, "'mfu' takes a number, not 'much'",
      "such as 0.45" },
    { "dropout", "-0.1", MEMPLAN_E_RANGE, "'dropout' is -0.1", "use 0 to" },
    { "gpu_memory", "80Gb/s", MEMPLAN_E_ARG, "'gpu_memory' takes a size",
      "such as 80GiB" },
    { "compile", "maybe", MEMPLAN_E_ARG,
      "'compile' takes true or false, not 'maybe'", "true or false" },
    { "framework", "deepsped", MEMPLAN_E_UNKNOWN,
      "unknown framework 'deepsped'", "did you mean 'deepspeed'?" },
    { "framework", "xyzzy", MEMPLAN_E_UNKNOWN, "unknown framework 'xyzzy'",
      "use one of hf, deepspeed, fsdp" },
    { "framework", "", MEMPLAN_E_ARG, "'framework' takes a word",
      "use one of" },
    { "param_dtype", "nf4", MEMPLAN_E_UNKNOWN, "unknown param_dtype 'nf4'",
      "fp32" },
    { "base_dtype", "none", MEMPLAN_E_UNKNOWN, "unknown base_dtype 'none'",
      "use one of bf16" },
    { "lora_targets", "q,w", MEMPLAN_E_UNKNOWN, "unknown lora_targets 'w'",
      "use one of q, k" },
    { "lora_targets", "", MEMPLAN_E_ARG, "'lora_targets' takes a list",
      "use one of q, k" },
    { "lora_targets", "q,", MEMPLAN_E_ARG, "'lora_targets' takes", "use one" },
    { "image", "3x32", MEMPLAN_E_ARG,
      "'image' takes channels, height and width", "such as 3x32x32" },
    { "image", "32", MEMPLAN_E_ARG, "'image' takes channels, height and width",
      "such as 3x32x32" },
    { "image", "3x0x32", MEMPLAN_E_RANGE, "'image' is 0", "use 1" },
    { "image", "3xax3", MEMPLAN_E_ARG, "'image' takes a list", "3x32x32" },
    { "pipeline_layers", "4,,4", MEMPLAN_E_ARG, "'pipeline_layers' takes",
      "commas" },
    { "pipeline_layers", "4,x", MEMPLAN_E_ARG,
      "'pipeline_layers' takes a list, not 'x'", "commas" },
    { "pipeline_layers", "65536,4", MEMPLAN_E_RANGE,
      "'pipeline_layers' is 65536", "use 0 to 65535" },
    { "gpu", "a100-80g", MEMPLAN_E_UNKNOWN, "unknown GPU 'a100-80g'",
      "did you mean 'a100-80gb'?" },
    { "gpu", "zzzzzzzzzzzzzzzzzzzzzzzzzzzz", MEMPLAN_E_UNKNOWN, "unknown GPU",
      "'memplan gpus' lists them all" },
};

static void bad_values_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_values) / sizeof(bad_values[0]); i++) {
        const struct bad_value *b = &bad_values[i];
        fresh();
        assert_int_equal(set(b->key, b->value), b->status);
        assert_int_equal(cs.errs.count, 1);
        assert_int_equal(cs.slot[0].status, b->status);
        assert_has(cs.slot[0].message, b->message);
        assert_has(cs.slot[0].hint, b->hint);
        assert_string_equal(cs.slot[0].key, b->key);
        for (size_t k = 0; k < KEY_COUNT; k++)
            assert_false(cs.setup.set[k]);
    }
}

/* What a hint says to write is taken; else it is the range alone. */
static const struct range_hint {
    const char *key, *value, *hint, *instead;
} range_hints[] = {
    { "gpu_memory", "24", "these are bytes: write 24GiB", "24GiB" },
    { "gpu_memory", "0.5", "these are bytes: write 0.5GiB", "0.5GiB" },
    { "gpu_memory", "1e30", "use 1048576 to 9e+18", "9e18" },
    { "gpu_memory", "0", "use 1048576 to 9e+18", "1048576" },
    { "gpu_memory", "9e9GiB", "use 1048576 to 9e+18", NULL },
    { "cuda_context", "0", "use 1 to 1000000000000", "1" },
    { "cuda_context", "0.5", "these are bytes: write 0.5GiB", "0.5GiB" },
    { "ddp_bucket", "2e15", "use 1 to 1e+15", "1e15" },
    { "microbatch_group_size_per_vp_stage", "4097", "use 1 to 4096", "4096" },
    { "ddp_bucket", "0.5", "these are bytes: write 0.5MiB", "0.5MiB" },
    { "ddp_bucket", "0", "use 1 to 1e+15", "1" },
    { "lora_dropout", "50", "use 0 to 0.999, or 50%", "50%" },
    { "lora_dropout", "100", "use 0 to 0.999", "0.999" },
    { "lora_dropout", "250%", "use 0 to 0.999", NULL },
    { "mfu", "40", "use 0.0001 to 1, or 40%", "40%" },
    { "mfu", "100", "use 0.0001 to 1, or 100%", "100%" },
    { "mfu", "101", "use 0.0001 to 1", "1" },
};

static void hints_out_of_range_are_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(range_hints) / sizeof(range_hints[0]); i++) {
        const struct range_hint *r = &range_hints[i];
        fresh();
        assert_int_equal(set(r->key, r->value), MEMPLAN_E_RANGE);
        assert_string_equal(cs.slot[0].hint, r->hint);
        fresh();
        if (r->instead)
            assert_int_equal(set(r->key, r->instead), MEMPLAN_OK);
    }
}

static void negative_counts_are_refused(void **state)
{
    (void)state;
    fresh();
    assert_int_not_equal(set("gpus", "-3"), MEMPLAN_OK);
    assert_true(cs.slot[0].hint[0] != '\0');
}

static void a_refused_value_changes_nothing(void **state)
{
    (void)state;
    fresh();
    assert_int_equal(set("image", "1, 28,20"), MEMPLAN_OK);
    assert_string_equal(value_text(&cs.setup, KEY_IMAGE), "1x28x20");
    assert_int_equal(set("pipeline_layers", "3,5"), MEMPLAN_OK);
    assert_int_equal(set("pipeline_layers", "4,4,x"), MEMPLAN_E_ARG);
    assert_string_equal(value_text(&cs.setup, KEY_PIPELINE_LAYERS), "3,5");
    assert_int_equal(set("lora_targets", "q,k"), MEMPLAN_OK);
    assert_int_equal(set("lora_targets", "v,oops"), MEMPLAN_E_UNKNOWN);
    assert_string_equal(value_text(&cs.setup, KEY_LORA_TARGETS), "q,k");
    /* a later good value of another key is still OK */
    assert_int_equal(set("gpus", "8"), MEMPLAN_OK);

    assert_int_equal(set("lengths", "60,100000000"), MEMPLAN_OK);
    assert_string_equal(value_text(&cs.setup, KEY_LENGTHS), "60,100000000");
    assert_int_equal(set("lengths", "60,0"), MEMPLAN_E_RANGE);

    char many[2 * (SETUP_LIST_MAX + 1) + 1] = "";
    for (size_t i = 0; i <= SETUP_LIST_MAX; i++)
        str_append(many, sizeof(many), i > 0 ? ",1" : "1");
    assert_int_equal(set("pipeline_layers", many), MEMPLAN_E_RANGE);
    many[strlen(many) - 2] = '\0';
    assert_int_equal(set("pipeline_layers", many), MEMPLAN_OK);
    assert_int_equal(cs.setup.pipeline_count, SETUP_LIST_MAX);
    assert_int_equal(set("lengths", many), MEMPLAN_E_RANGE);
    many[2 * LENGTHS_MAX - 1] = '\0';
    assert_int_equal(set("lengths", many), MEMPLAN_OK);
    assert_int_equal(cs.setup.lengths_count, LENGTHS_MAX);
}

/* ---- setup files ---- */

static memplan_status parse(const char *text)
{
    struct arena arena;
    arena_init(&arena, NULL);
    struct json *root = json_parse(&arena, text, strlen(text), &cs.diag);
    assert_non_null(root);
    memplan_status status =
        setup_parse(&cs.setup, root, text, strlen(text), &cs.diag);
    arena_release(&arena);
    return status;
}

static void setup_files_are_read(void **state)
{
    (void)state;
    fresh();
    set("tp", "8");
    assert_int_equal(
        parse("{\"gpus\": 64, \"tokens\": \"1.4T\", \"mfu\": 0.45,"
              " \"sequence_parallel\": false, \"gpu\": \"h100\","
              " \"tp\": null, \"pipeline_layers\": [7, 8, \"9\"],"
              " \"lora_targets\": [\"q\", \"v\"], \"optimizer\": \"sgd\","
              " \"params\": 9007199254740993, \"compile\": 1,"
              " \"recompute_modules\": \"mlp,moe\", \"budget\": 1e24,"
              " \"source\": {\"a\": 1}, \"notes\": [], \"x-mine\": null}"),
        MEMPLAN_OK);
    static const struct {
        enum setup_key key;
        const char *text;
    } want[] = {
        { KEY_GPUS, "64" },
        { KEY_TOKENS, "1400000000000" },
        { KEY_MFU, "0.45" },
        { KEY_SEQUENCE_PARALLEL, "false" },
        { KEY_GPU, "h100-80gb" },
        { KEY_TP, "" },
        { KEY_PIPELINE_LAYERS, "7,8,9" },
        { KEY_LORA_TARGETS, "q,v" },
        { KEY_OPTIMIZER, "sgd" },
        { KEY_PARAMS, "9007199254740993" },
        { KEY_COMPILE, "true" },
        { KEY_RECOMPUTE_MODULES, "mlp,moe" },
        { KEY_BUDGET, "1e+24" },
    };
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
        assert_string_equal(value_text(&cs.setup, want[i].key), want[i].text);
}

static const struct bad_file {
    const char *text;
    memplan_status status;
    unsigned line, column;
    const char *pointer, *message, *hint;
} bad_files[] = {
    { "[1]", MEMPLAN_E_SCHEMA, 1, 1, "", "a setup is an object, not an array",
      "write {" },
    { "{\n  \"gpu_s\": 4}", MEMPLAN_E_UNKNOWN, 2, 12, "/gpu_s",
      "unknown key 'gpu_s'", "did you mean 'gpus'?" },
    { "{\"micro-batch\": 4}", MEMPLAN_E_UNKNOWN, 1, 17, "/micro-batch",
      "unknown key 'micro-batch'", "did you mean 'micro_batch'?" },
    { "{\"gpus\": true}", MEMPLAN_E_ARG, 1, 10, "/gpus",
      "'gpus' takes a whole number, not a boolean", "such as 64" },
    { "{\"gpus\": 1.5}", MEMPLAN_E_ARG, 1, 10, "/gpus",
      "'gpus' takes a whole number, not '1.5'", "such as 64" },
    { "{\"gpus\": [1]}", MEMPLAN_E_ARG, 1, 10, "/gpus",
      "'gpus' takes a whole number, not an array", "such as 64" },
    { "{\"framework\": 3}", MEMPLAN_E_ARG, 1, 15, "/framework",
      "'framework' takes a word, not a number", "use one of hf" },
    { "{\"gpu\": {}}", MEMPLAN_E_ARG, 1, 9, "/gpu",
      "'gpu' takes a name, not an object", "" },
    { "{\"lora_targets\": [\"q\", 1]}", MEMPLAN_E_UNKNOWN, 1, 24,
      "/lora_targets/1", "unknown lora_targets '1'", "use one of q" },
    { "{\"lora_targets\": [\"q\", null]}", MEMPLAN_E_ARG, 1, 24,
      "/lora_targets/1", "'lora_targets' takes a list, not null", "use one" },
    { "{\"pipeline_layers\": []}", MEMPLAN_E_ARG, 1, 21, "/pipeline_layers",
      "'pipeline_layers' takes a list, not '[]'", "commas" },
    { "{\"zero\": 4}", MEMPLAN_E_RANGE, 1, 10, "/zero", "'zero' is 4",
      "use 0 to 3" },
};

static void bad_setup_files_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_files) / sizeof(bad_files[0]); i++) {
        const struct bad_file *b = &bad_files[i];
        fresh();
        assert_int_equal(parse(b->text), b->status);
        assert_int_equal(cs.errs.count, 1);
        assert_has(cs.slot[0].message, b->message);
        assert_has(cs.slot[0].hint, b->hint);
        assert_string_equal(cs.slot[0].pointer, b->pointer);
        assert_int_equal(cs.slot[0].line, b->line);
        if (cs.slot[0].column != b->column)
            print_error("%s\n", b->text);
        assert_int_equal(cs.slot[0].column, b->column);
    }
    fresh();
    assert_int_equal(parse("{\"gpus\": 0, \"tpp\": 1, \"pp\": 4}"),
                     MEMPLAN_E_RANGE);
    assert_int_equal(cs.errs.count, 2);
    assert_string_equal(value_text(&cs.setup, KEY_PP), "4");
}

/* ---- defaults ---- */

static const struct defaults {
    const char *pairs;
    enum framework framework;
    enum implementation impl;
    enum engine engine;
    uint64_t zero;
    enum precision precision;
    struct precision_bytes prec;
    enum optimizer_impl optimizer_impl;
    bool overlap, sp;
} defaults[] = {
    { "",
      FW_HF,
      IMPL_HF,
      ENGINE_DDP,
      0,
      PREC_BF16_AMP,
      { DT_FP32, DT_BF16, DT_FP32, DT_FP32, DT_NONE, DT_FP32, true, false },
      OPTIMPL_FUSED,
      true,
      false },
    { "zero=3 gpus=8",
      FW_DEEPSPEED,
      IMPL_HF,
      ENGINE_DEEPSPEED,
      3,
      PREC_BF16_MIXED,
      { DT_BF16, DT_BF16, DT_BF16, DT_BF16, DT_FP32, DT_FP32, false, false },
      OPTIMPL_FUSED,
      true,
      false },
    { "framework=deepspeed",
      FW_DEEPSPEED,
      IMPL_HF,
      ENGINE_DEEPSPEED,
      0,
      PREC_BF16_MIXED,
      { DT_BF16, DT_BF16, DT_BF16, DT_BF16, DT_FP32, DT_FP32, false, false },
      OPTIMPL_FUSED,
      false,
      false },
    { "framework=fsdp",
      FW_FSDP,
      IMPL_HF,
      ENGINE_FSDP,
      3,
      PREC_BF16_MIXED,
      { DT_FP32, DT_BF16, DT_FP32, DT_BF16, DT_NONE, DT_FP32, false, false },
      OPTIMPL_FUSED,
      true,
      false },
    { "framework=torchtitan",
      FW_TORCHTITAN,
      IMPL_TORCHTITAN,
      ENGINE_FSDP2,
      3,
      PREC_BF16_MIXED,
      { DT_FP32, DT_BF16, DT_FP32, DT_FP32, DT_NONE, DT_FP32, false, false },
      OPTIMPL_FUSED,
      true,
      false },
    { "gpus=64 tp=8",
      FW_MEGATRON,
      IMPL_MEGATRON,
      ENGINE_MEGATRON,
      1,
      PREC_BF16_MIXED,
      { DT_BF16, DT_BF16, DT_FP32, DT_FP32, DT_FP32, DT_FP32, false, false },
      OPTIMPL_FUSED,
      false,
      true },
    { "framework=nemo",
      FW_NEMO,
      IMPL_MEGATRON,
      ENGINE_MEGATRON,
      1,
      PREC_BF16_MIXED,
      { DT_BF16, DT_BF16, DT_FP32, DT_FP32, DT_FP32, DT_FP32, false, false },
      OPTIMPL_FUSED,
      false,
      false },
    { "framework=megatron-deepspeed gpus=8 tp=8",
      FW_MEGATRON_DEEPSPEED,
      IMPL_MEGATRON,
      ENGINE_DEEPSPEED,
      0,
      PREC_BF16_MIXED,
      { DT_BF16, DT_BF16, DT_BF16, DT_BF16, DT_FP32, DT_FP32, false, false },
      OPTIMPL_FUSED,
      false,
      false },
    { "engine=fsdp",
      FW_FSDP,
      IMPL_HF,
      ENGINE_FSDP,
      3,
      PREC_BF16_MIXED,
      { DT_FP32, DT_BF16, DT_FP32, DT_BF16, DT_NONE, DT_FP32, false, false },
      OPTIMPL_FUSED,
      true,
      false },
    { "implementation=torchtitan precision=bf16",
      FW_TORCHTITAN,
      IMPL_TORCHTITAN,
      ENGINE_FSDP2,
      3,
      PREC_BF16,
      { DT_BF16, DT_BF16, DT_BF16, DT_BF16, DT_NONE, DT_BF16, false, false },
      OPTIMPL_FUSED,
      true,
      false },
    { "gpu=v100-32gb",
      FW_HF,
      IMPL_HF,
      ENGINE_DDP,
      0,
      PREC_FP16_AMP,
      { DT_FP32, DT_FP16, DT_FP32, DT_FP32, DT_NONE, DT_FP32, true, false },
      OPTIMPL_FUSED,
      true,
      false },
    { "gpu=t4 framework=megatron",
      FW_MEGATRON,
      IMPL_MEGATRON,
      ENGINE_MEGATRON,
      1,
      PREC_FP16_MIXED,
      { DT_FP16, DT_FP16, DT_FP16, DT_FP16, DT_FP32, DT_FP32, false, false },
      OPTIMPL_FUSED,
      false,
      false },
    { "precision=fp32",
      FW_HF,
      IMPL_HF,
      ENGINE_DDP,
      0,
      PREC_FP32,
      { DT_FP32, DT_FP32, DT_FP32, DT_FP32, DT_NONE, DT_FP32, false, false },
      OPTIMPL_FUSED,
      true,
      false },
    { "precision=fp8-mixed framework=megatron gpu=h100",
      FW_MEGATRON,
      IMPL_MEGATRON,
      ENGINE_MEGATRON,
      1,
      PREC_FP8_MIXED,
      { DT_BF16, DT_BF16, DT_FP32, DT_FP32, DT_FP32, DT_FP32, false, true },
      OPTIMPL_FUSED,
      false,
      false },
    { "engine=fsdp2 precision=bf16 optimizer=adam4bit",
      FW_TORCHTITAN,
      IMPL_TORCHTITAN,
      ENGINE_FSDP2,
      3,
      PREC_BF16,
      { DT_BF16, DT_BF16, DT_BF16, DT_BF16, DT_NONE, DT_INT4, false, false },
      OPTIMPL_FUSED,
      true,
      false },
    { "optimizer=rmsprop",
      FW_HF,
      IMPL_HF,
      ENGINE_DDP,
      0,
      PREC_BF16_AMP,
      { DT_FP32, DT_BF16, DT_FP32, DT_FP32, DT_NONE, DT_FP32, true, false },
      OPTIMPL_FOREACH,
      true,
      false },
    { "precision=fp16 optimizer=adam8bit",
      FW_HF,
      IMPL_HF,
      ENGINE_DDP,
      0,
      PREC_FP16,
      { DT_FP16, DT_FP16, DT_FP16, DT_FP16, DT_NONE, DT_INT8, false, false },
      OPTIMPL_FUSED,
      true,
      false },
    { "zero=1 grad_dtype=fp32 gpus=8",
      FW_DEEPSPEED,
      IMPL_HF,
      ENGINE_DEEPSPEED,
      1,
      PREC_BF16_MIXED,
      { DT_BF16, DT_BF16, DT_FP32, DT_BF16, DT_FP32, DT_FP32, false, false },
      OPTIMPL_FUSED,
      false,
      false },
    { "zero=3 grad_dtype=fp32 gpus=8",
      FW_DEEPSPEED,
      IMPL_HF,
      ENGINE_DEEPSPEED,
      3,
      PREC_BF16_MIXED,
      { DT_BF16, DT_BF16, DT_FP32, DT_BF16, DT_FP32, DT_FP32, false, false },
      OPTIMPL_FUSED,
      true,
      false },
    { "framework=fsdp param_dtype=bf16 reduce_dtype=fp32",
      FW_FSDP,
      IMPL_HF,
      ENGINE_FSDP,
      3,
      PREC_BF16_MIXED,
      { DT_FP32, DT_BF16, DT_FP32, DT_FP32, DT_NONE, DT_FP32, false, false },
      OPTIMPL_FUSED,
      true,
      false },
    { "zero=1 param_dtype=fp32",
      FW_DEEPSPEED,
      IMPL_HF,
      ENGINE_DEEPSPEED,
      1,
      PREC_BF16_MIXED,
      { DT_FP32, DT_BF16, DT_FP32, DT_FP32, DT_FP32, DT_FP32, true, false },
      OPTIMPL_FUSED,
      false,
      false },
    { "lora_rank=8 precision=bf16 lora_dtype=fp32",
      FW_HF,
      IMPL_HF,
      ENGINE_DDP,
      0,
      PREC_BF16,
      { DT_FP32, DT_BF16, DT_FP32, DT_FP32, DT_NONE, DT_FP32, false, false },
      OPTIMPL_FUSED,
      true,
      false },
};

static void defaults_by_framework(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(defaults) / sizeof(defaults[0]); i++) {
        const struct defaults *x = &defaults[i];
        const struct run *r = resolved(x->pairs);
        assert_int_equal(r->framework, x->framework);
        assert_int_equal(r->impl, x->impl);
        assert_int_equal(r->engine, x->engine);
        assert_int_equal(r->zero, x->zero);
        assert_int_equal(r->precision, x->precision);
        assert_int_equal(r->prec.param, x->prec.param);
        assert_int_equal(r->prec.compute, x->prec.compute);
        assert_int_equal(r->prec.grad, x->prec.grad);
        assert_int_equal(r->prec.reduce, x->prec.reduce);
        assert_int_equal(r->prec.master, x->prec.master);
        assert_int_equal(r->prec.optim, x->prec.optim);
        assert_int_equal(r->prec.autocast, x->prec.autocast);
        assert_int_equal(r->prec.fp8, x->prec.fp8);
        assert_int_equal(r->optimizer_impl, x->optimizer_impl);
        assert_int_equal(r->overlap_comm, x->overlap);
        assert_int_equal(r->sequence_parallel, x->sp);
    }
}

static void nothing_set(void **state)
{
    (void)state;
    const struct run *r = resolved("");
    assert_string_equal(r->gpu.name, "a100-80gb");
    assert_int_equal(r->capacity_bytes, r->gpu.visible_bytes);
    assert_true(r->peak_flop_s > 311e12 && r->peak_flop_s < 313e12);
    assert_int_equal(r->gpus, 1);
    assert_int_equal(r->gpus_per_node, 8);
    assert_int_equal(r->micro_batch, 1);
    assert_int_equal(r->grad_accum, 1);
    assert_int_equal(r->global_batch, 1);
    assert_int_equal(r->seq_len, 4096);
    assert_int_equal(r->attention, ATTN_FLASH);
    assert_int_equal(r->recompute, RECOMP_NONE);
    assert_int_equal(r->shard, 1);
    assert_int_equal(r->stage_layers[0], 32);
    assert_int_equal(r->vocab, 128256);
    assert_int_equal(r->reduce_bucket, 500000000);
    assert_int_equal(r->ddp_bucket_bytes, 26214400);
    assert_true(r->clip_grad);
    assert_true(r->tokens > 1.6e11 && r->tokens < 1.61e11);
    assert_true(r->mfu > 0.49 && r->mfu < 0.51);
    static const char *const said[] = {
        "--gpu)",
        "--gpus)",
        "--framework)",
        "--seq-len)",
        "--micro-batch)",
        "--precision)",
        "--optimizer)",
        "--optimizer-impl)",
        "--attention-kernel)",
        "--recompute)",
        "--mfu)",
        "--tokens)",
        "--availability)",
        "--price)",
    };
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
        if (!assumes(r, said[i]))
            print_error("%s\n", said[i]);
        assert_true(assumes(r, said[i]));
    }
    assert_true(assumes(r, "161B tokens, 20 per parameter"));
    assert_true(assumes(r, "timed on its GPU"));
}

static void what_is_given_is_not_assumed(void **state)
{
    (void)state;
    const struct run *r =
        resolved("gpu=h100 gpus=8 framework=fsdp zero=3 seq_len=2048 "
                 "micro_batch=2 precision=bf16-mixed optimizer=adamw "
                 "optimizer_impl=fused attention=sdpa recompute=full mfu=0.4 "
                 "tokens=1T availability=0.9 price=2");
    for (size_t i = 0; i < r->n_assumptions; i++) {
        enum setup_key key = r->assumption[i].key;
        if (key == KEY_COUNT)
            continue;
        char buf[ASSUMPTION_TEXT];
        if (r->given[key])
            print_error("%s\n", assumption_text(&r->assumption[i], buf));
        assert_false(r->given[key]);
    }
    assert_int_equal(r->recompute_layers, 32);
    assert_int_equal(r->recompute_granularity, 1);
    assert_int_equal(r->shard, 8);
}

static void every_key_is_echoed(void **state)
{
    (void)state;
    static const enum setup_key absent[] = {
        KEY_DECODER_SEQ_LEN,
        KEY_IMAGE,
        KEY_IMAGES,
        KEY_LENGTHS,
        KEY_LENGTH_MEAN,
        KEY_LENGTH_STD,
        KEY_SAMPLES,
        KEY_TOO_LONG,
        KEY_FP8_RECIPE,
        KEY_RECOMPUTE_MODULES,
        KEY_RECOMPUTE_LAYERS,
        KEY_RECOMPUTE_GRANULARITY,
        KEY_RECOMPUTE_EVERY,
        KEY_RECOMPUTE_REENTRANT,
        KEY_MOE_CAPACITY_FACTOR,
        KEY_MFU,
        KEY_SHARD_DEGREE,
        KEY_LORA_TARGETS,
        KEY_LORA_FULL_MODULES,
        KEY_ENSURE_WEIGHT_TYING,
        KEY_LORA_DTYPE,
        KEY_BASE_DTYPE,
        KEY_DOUBLE_QUANT,
        KEY_GPTQ_KERNEL,
        KEY_LINEAR_EXPERTS,
        KEY_KBIT_CAST,
        KEY_RECOMPUTE_IN_UNIT,
        KEY_LORA_DROPOUT,
        KEY_LORA_VARIANT,
        KEY_PEFT_TYPE,
        KEY_LAYERS_TO_TRANSFORM,
        KEY_RANK_PATTERN,
        KEY_FEEDFORWARD_MODULES,
        KEY_NUM_VIRTUAL_TOKENS,
        KEY_PREFIX_PROJECTION,
        KEY_ENCODER_HIDDEN_SIZE,
        KEY_FREEZE,
        KEY_FREEZE_TRAINABLE_LAYERS,
        KEY_MIN_OFFLOADED_TENSOR_SIZE,
        KEY_CUDA_GRAPH_IMPL,
        KEY_CUDA_GRAPH_SCOPE,
        KEY_CUDA_GRAPH_WARMUP_STEPS,
        KEY_PARAMS,
        KEY_DAYS,
        KEY_BUDGET,
        KEY_TARGET_LOSS,
        KEY_UNIQUE_TOKENS,
        KEY_INFERENCE_TOKENS,
    };
    const struct run *r = resolved("");
    for (size_t k = 0; k < KEY_COUNT; k++) {
        bool may_lack = false;
        for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
            may_lack = may_lack || absent[i] == k;
        if (r->setup.set[k] == may_lack)
            print_error("%s\n", setup_field(k)->key);
        assert_int_equal(r->setup.set[k], !may_lack);
    }
    assert_string_equal(value_text(&r->setup, KEY_PARAM_DTYPE), "fp32");
    assert_string_equal(value_text(&r->setup, KEY_PIPELINE_LAYERS), "32");
    assert_string_equal(value_text(&r->setup, KEY_GPU), "a100-80gb");
}

static void layouts_are_resolved(void **state)
{
    (void)state;
    const struct run *r = resolved("gpus=128 tp=4 pp=4 global_batch=256 "
                                   "micro_batch=2");
    assert_int_equal(r->dp, 8);
    assert_int_equal(r->shard, 8);
    assert_int_equal(r->grad_accum, 16);
    assert_int_equal(r->schedule, SCHED_1F1B);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(r->stage_layers[i], 8);
    assert_int_equal(r->vocab, 128512); /* next multiple of 512 */
    assert_string_equal(value_text(&r->setup, KEY_DP), "8");
    assert_string_equal(value_text(&r->setup, KEY_PIPELINE_LAYERS), "8,8,8,8");

    r = resolved("gpus=16 tp=16"); /* 8 key-value heads, copied twice */
    assert_int_equal(r->dp, 1);
    assert_true(assumes(r, "spans nodes"));

    r = resolved("gpus=4 pp=4 vpp=2 microbatch_group_size_per_vp_stage=16");
    assert_int_equal(r->grad_accum, 16);
    r = resolved("gpus=2 framework=torchtitan engine=ddp");
    assert_int_equal(r->ddp_bucket_bytes, 104857600);
    r = resolved("pp=4 vpp=2");
    assert_int_equal(r->gpus, 4);
    assert_int_equal(r->schedule, SCHED_INTERLEAVED);
    assert_int_equal(r->grad_accum, 4);
    assert_true(assumes(r, "4 GPUs, as the layout needs"));

    assert_false(assumes(r, "chunks of a stage differ"));
    r = resolved("pp=4 vpp=3"); /* of 8 layers a stage */
    assert_true(assumes(r, "--pipeline-model-parallel-layout alone"));
    r = resolved("pp=5 vpp=2"); /* of 7 and of 6 */
    assert_true(assumes(r, "--pipeline-model-parallel-layout alone"));

    r = resolved("gpus=2 pp=2 pipeline_layers=17,15 zero=0");
    assert_int_equal(r->stage_layers[0], 17);
    assert_int_equal(r->shard, 1);
    assert_true(assumes(r, "1 micro-batch a step"));

    r = resolved("gpus=16 cp=2");
    assert_int_equal(r->dp, 8);
    assert_int_equal(r->shard, 16);

    r = resolved("gpus=16 framework=fsdp shard_degree=4");
    assert_int_equal(r->shard, 4);

    r = resolved("gpus=8 global_batch=64 grad_accum=4");
    assert_int_equal(r->micro_batch, 2);
    r = resolved("gpus=8 global_batch=64");
    assert_int_equal(r->grad_accum, 8);
    r = resolved("gpus=8 micro_batch=4 grad_accum=2");
    assert_int_equal(r->global_batch, 64);
    r = resolved("dp=4 tp=2");
    assert_int_equal(r->gpus, 8);
}

static void experts_are_spread(void **state)
{
    (void)state;
    const struct run *r = resolve_as('m', "gpus=64 ep=8 tp=2 etp=1");
    assert_int_equal(cs.status, MEMPLAN_OK);
    assert_int_equal(r->shard, 32);
    assert_int_equal(r->expert_shard, 8);
    r = resolve_as('m', "gpus=64 ep=8 tp=2 etp=1 shard_degree=8");
    assert_int_equal(r->shard, 8);
    assert_int_equal(r->expert_shard, 2); /* four instances */
    r = resolve_as('m', "gpus=64 ep=8 tp=2 etp=1 shard_degree=8 "
                        "engine=megatron-fsdp zero=3");
    assert_int_equal(r->shard, 8);
    assert_int_equal(r->expert_shard, 2);
    /* Megatron splits experts like everything else, */
    r = resolve_as('m', "gpus=64 ep=8 tp=2");
    assert_int_equal(r->etp, 2);
    assert_int_equal(r->expert_shard, 4);
    assert_true(assumes(r, "experts split over tp too"));
    r = resolve_as('m', "ep=8 tp=2");
    assert_int_equal(r->gpus, 16);
    /* where there are ranks enough */
    r = resolve_as('m', "gpus=8 ep=8 tp=2");
    assert_int_equal(cs.status, MEMPLAN_OK);
    assert_int_equal(r->etp, 1);
    assert_int_equal(r->expert_shard, 1);
    assert_true(assumes(r, "Megatron's default, tp 2, x ep 8 does not divide "
                           "the 8 ranks of a stage"));
    r = resolve_as('m', "gpus=8 ep=8 tp=2 etp=1");
    assert_false(assumes(r, "Megatron's default"));
    r = resolve_as('m', "ep=8");
    assert_int_equal(cs.status, MEMPLAN_OK);
    assert_int_equal(r->gpus, 8);
    assert_int_equal(r->expert_shard, 1);
    r = resolve_as('m', "gpus=8 ep=8 zero=0");
    assert_int_equal(r->expert_shard, 1);
    assert_int_equal(r->shard, 1);
}

static void models_set_limits(void **state)
{
    (void)state;
    const struct run *r = resolve_as('g', "");
    assert_int_equal(cs.status, MEMPLAN_OK);
    assert_int_equal(r->seq_len, 1024);
    assert_true(assumes(r, "sequence length 1024, the model's limit"));
    assert_true(assumes(r, "dropout"));
    assert_true(r->attention_dropout > 0.09);
    r = resolve_as('g', "dropout=0 framework=megatron");
    assert_true(r->hidden_dropout <= 0 && r->attention_dropout <= 0);
    assert_int_equal(r->vocab, 50304);
    r = resolved("seq_len=16384");
    assert_true(assumes(r, "beyond the model's 8192"));

    fresh();
    struct spec s = llama();
    s.max_positions = 0;
    assert_int_equal(setup_resolve(&cs.run, &cs.setup, &s, PARAMS, &cs.diag),
                     MEMPLAN_OK);
    assert_int_equal(cs.run.seq_len, 2048);
    assert_true(assumes(&cs.run, "names no limit"));
}

static void hardware_is_resolved(void **state)
{
    (void)state;
    const struct run *r = resolved("gpu=v100-32gb");
    assert_int_equal(r->attention, ATTN_SDPA);
    assert_true(assumes(r, "nor of another Volta GPU"));
    r = resolved("gpu=v100-32gb precision=bf16");
    assert_true(assumes(r, "emulated"));
    assert_true(r->peak_flop_s <= r->gpu.peak_fp32_flop_s);
    r = resolved("gpu=h100 precision=fp8-mixed framework=torchtitan");
    assert_true(r->peak_flop_s > 1.9e15);
    assert_int_equal(r->fp8_recipe, FP8_TENSORWISE);
    assert_true(assumes(r, "timed on its GPU"));
    r = resolved("tokens_per_param=30");
    assert_true(assumes(r, "241B tokens, 30 per parameter"));
    r = resolved("gpu_memory=40GiB peak_flops=100T price=3.25");
    assert_int_equal(r->capacity_bytes, UINT64_C(40) << 30);
    assert_true(r->peak_flop_s > 99e12 && r->peak_flop_s < 101e12);
    assert_true(r->price_usd_h > 3.24 && r->price_usd_h < 3.26);
}

static void adapters_are_resolved(void **state)
{
    (void)state;
    const struct run *r = resolved("lora_rank=16");
    assert_int_equal(r->lora_dtype, DT_FP32);
    assert_int_equal(r->base_dtype, DT_BF16);
    assert_int_equal(r->lora_targets, 1u << LORA_ALL_LINEAR);
    r = resolved("lora_rank=16 framework=deepspeed zero=2 lora_targets=q,v "
                 "lora_full_modules=norm base_dtype=fp16");
    assert_int_equal(r->lora_dtype, DT_BF16);
    assert_int_equal(r->base_dtype, DT_FP16);
    assert_int_equal(r->prec.master, DT_FP32);
    assert_int_equal(r->lora_targets, 1u << LORA_Q | 1u << LORA_V);
    assert_int_equal(r->lora_full, 1u << LORA_FULL_NORM);
    /* DeepSpeed casts them, but those that zero.Init came before */
    r = resolved("lora_rank=16 framework=deepspeed zero=2 lora_dtype=fp32");
    assert_int_equal(r->lora_dtype, DT_BF16);
    assert_int_equal(r->prec.master, DT_FP32);
    assert_string_equal(value_text(&r->setup, KEY_LORA_DTYPE), "bf16");
    r = resolved("lora_rank=16 framework=deepspeed zero=3 lora_dtype=fp32");
    assert_int_equal(r->lora_dtype, DT_FP32);
    assert_int_equal(r->prec.master, DT_FP32);
    assert_int_equal(r->prec.optim, DT_FP32);
    r = resolved("lora_rank=16 framework=deepspeed lora_dtype=fp32 "
                 "precision=bf16-amp");
    assert_int_equal(r->prec.master, DT_NONE);
    assert_string_equal(value_text(&r->setup, KEY_MASTER_DTYPE), "none");
    /* what makes prompts is in fp32 in PEFT, and cast by DeepSpeed */
    r = resolved("peft_type=prefix-tuning framework=hf precision=bf16");
    assert_int_equal(r->lora_dtype, DT_FP32);
    assert_int_equal(r->prec.master, DT_NONE);
    r = resolved("peft_type=prefix-tuning framework=deepspeed zero=2");
    assert_int_equal(r->lora_dtype, DT_BF16);
    assert_int_equal(r->prec.master, DT_FP32);
}

/* What the optimizer steps, and moments of its type. */
static void masters_and_moments(void **state)
{
    (void)state;
    static const struct {
        const char *pairs;
        enum dtype master, moments;
    } cases[] = {
        { "framework=deepspeed zero=0 precision=fp32", DT_NONE, DT_FP32 },
        { "framework=deepspeed zero=1 precision=fp32", DT_FP32, DT_FP32 },
        { "framework=deepspeed zero=3 precision=fp32", DT_FP32, DT_FP32 },
        { "framework=deepspeed zero=2 precision=bf16-amp", DT_FP32, DT_FP32 },
        { "framework=deepspeed zero=2 precision=bf16", DT_BF16, DT_BF16 },
        { "framework=deepspeed zero=3 precision=bf16", DT_BF16, DT_BF16 },
        { "framework=deepspeed zero=2 precision=bf16 master_dtype=none",
          DT_NONE, DT_BF16 },
        { "framework=deepspeed zero=2 precision=bf16 offload_optimizer=cpu",
          DT_BF16, DT_FP32 }, /* DeepSpeedCPUAdam's own */
        { "framework=deepspeed zero=2 precision=bf16 offload_optimizer=cpu "
          "optimizer_dtype=bf16",
          DT_BF16, DT_BF16 },
        { "framework=deepspeed zero=2 precision=bf16 offload_optimizer=cpu "
          "optimizer=momentum",
          DT_BF16, DT_BF16 },
        { "framework=deepspeed zero=2 precision=bf16 optimizer=adam8bit",
          DT_BF16, DT_INT8 },
        { "framework=hf precision=bf16", DT_NONE, DT_BF16 },
        { "framework=hf precision=bf16 master_dtype=fp32", DT_FP32, DT_FP32 },
        { "framework=megatron precision=bf16-mixed master_dtype=bf16", DT_BF16,
          DT_FP32 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct run *r = resolved(cases[i].pairs);
        assert_int_equal(r->prec.master, cases[i].master);
        assert_int_equal(r->prec.optim, cases[i].moments);
        assert_int_equal(r->setup.v[KEY_MASTER_DTYPE].n, r->prec.master);
        assert_int_equal(r->setup.v[KEY_OPTIMIZER_DTYPE].n, r->prec.optim);
    }
}

/* SDPA has PyTorch's FlashAttention-2. */
static void a_kernel_of_flash_alone(void **state)
{
    (void)state;
    const struct run *r = resolved("attention=sdpa attention_kernel=flash1");
    assert_int_equal(r->attention_kernel, KERNEL_FLASH_2);
    r = resolved("attention=flash attention_kernel=flash1");
    assert_int_equal(r->attention_kernel, KERNEL_FLASH_1);
}

static void selective_recomputation(void **state)
{
    (void)state;
    const struct run *r = resolved("recompute=selective framework=megatron");
    assert_int_equal(r->recompute_modules, 1u << REMOD_CORE_ATTN);
    r = resolved("recompute=selective implementation=paper");
    assert_int_equal(r->recompute_modules, 1u << REMOD_CORE_ATTN);
    r = resolved("recompute_modules=mlp,layernorm framework=megatron");
    assert_int_equal(r->recompute, RECOMP_SELECTIVE);
    assert_int_equal(r->recompute_modules,
                     1u << REMOD_MLP | 1u << REMOD_LAYERNORM);
    r = resolved("recompute=full recompute_layers=16");
    assert_int_equal(r->recompute_layers, 16);
}

static memplan_status resolve_alone(const char *pairs)
{
    fresh();
    set_all(pairs);
    cs.status = setup_resolve(&cs.run, &cs.setup, NULL, 0, &cs.diag);
    return cs.status;
}

static void without_a_model(void **state)
{
    (void)state;
    assert_int_equal(
        resolve_alone("params=70B gpus=64 gpu=h100 days=7 mfu=0.4 price=2 "
                      "gpus_per_node=4 gpu_memory=80GiB peak_flops=900T "
                      "precision=fp8-mixed availability=0.9 "
                      "tokens_per_param=20 scaling_law=kaplan"),
        MEMPLAN_OK);
    assert_int_equal(cs.run.gpus, 64);
    assert_true(cs.run.tokens > 1.39e12 && cs.run.tokens < 1.41e12);
    assert_true(cs.run.params > 6.9e10 && cs.run.params < 7.1e10);
    assert_true(cs.run.days > 6.9);
    assert_int_equal(resolve_alone("params=70B gpu=h100"), MEMPLAN_OK);
    assert_true(assumes(&cs.run, "40 % on Hopper"));
    assert_true(assumes(&cs.run, "20 per parameter"));
    assert_int_equal(resolve_alone(""), MEMPLAN_OK);
    assert_true(cs.run.tokens <= 0);
}

static void keys_that_need_a_model(void **state)
{
    (void)state;
    static const enum setup_key alone[] = {
        KEY_GPU,
        KEY_GPUS,
        KEY_GPUS_PER_NODE,
        KEY_GPU_MEMORY,
        KEY_PRICE,
        KEY_PEAK_FLOPS,
        KEY_PRECISION,
        KEY_PARAMS,
        KEY_TOKENS,
        KEY_DAYS,
        KEY_BUDGET,
        KEY_MFU,
        KEY_AVAILABILITY,
        KEY_SCALING_LAW,
        KEY_TOKENS_PER_PARAM,
        KEY_TARGET_LOSS,
        KEY_UNIQUE_TOKENS,
        KEY_INFERENCE_TOKENS,
        KEY_INTRA_NODE_BANDWIDTH,
        KEY_INTER_NODE_BANDWIDTH,
    };
    for (size_t i = 0; i < SETTABLE; i++) {
        enum setup_key key = setup_find_key(str_of(settable[i][0]));
        bool needs = true;
        for (size_t k = 0; k < sizeof(alone) / sizeof(alone[0]); k++)
            needs = needs && alone[k] != key;
        fresh();
        set(settable[i][0], settable[i][1]);
        setup_resolve(&cs.run, &cs.setup, NULL, 0, &cs.diag);
        assert_int_equal(cs.errs.count, needs);
        if (!needs)
            continue;
        assert_int_equal(cs.slot[0].status, MEMPLAN_E_CONFLICT);
        assert_has(cs.slot[0].message, "' needs a model");
        assert_has(cs.slot[0].hint, "name a model, or leave it out");
        assert_string_equal(cs.slot[0].key, settable[i][0]);
    }
    resolve_alone("params=7B tp=2 recompute=full lora_rank=8");
    assert_int_equal(cs.errs.count, 3); /* each of them */
    assert_has(cs.slot[1].message, "'recompute' needs a model");
}

/* With a model and without: no peak of another format is taken instead. */
static void formats_a_gpu_lacks(void **state)
{
    (void)state;
    static const char *const lacking[][2] = {
        { "precision=fp8-mixed gpu=a100-80gb", "has no fp8" },
        { "precision=tf32 gpu=v100-32gb", "has no tf32" },
        { "precision=fp4-mixed gpu=h100", "has no fp4" },
    };
    char pairs[80];
    for (size_t i = 0; i < sizeof(lacking) / sizeof(lacking[0]); i++) {
        str_format(pairs, sizeof(pairs), "params=7B %s", lacking[i][0]);
        assert_int_equal(resolve_alone(pairs), MEMPLAN_E_CONFLICT);
        assert_int_equal(cs.errs.count, 1);
        assert_has(cs.slot[0].message, lacking[i][1]);
        assert_string_equal(cs.slot[0].key, "precision");
        assert_true(cs.slot[0].hint[0] != '\0');
        resolve_as('l', lacking[i][0]);
        assert_true(cs.status != MEMPLAN_OK);
    }
    assert_int_equal(resolve_alone("params=7B gpu=v100-32gb precision=bf16"),
                     MEMPLAN_OK);
    assert_true(assumes(&cs.run, "emulated"));
}

static void budgets_decide_tokens(void **state)
{
    (void)state;
    const struct run *r = resolved("budget=1e24");
    assert_int_equal(r->setup.v[KEY_TOKENS].n, 20754824970131); /* C / 6N */
    assert_true(r->tokens > 2.0754e13 && r->tokens < 2.0755e13);
    assert_true(assumes(r, "what the budget pays for"));
    assert_false(assumes(r, "per parameter"));
    assert_int_equal(resolve_alone("params=7B budget=1e21"), MEMPLAN_OK);
    assert_int_equal(cs.run.setup.v[KEY_TOKENS].n, 23809523809);
    assert_int_equal(resolve_alone("tokens=1T budget=1e24"), MEMPLAN_OK);
    assert_int_equal(resolve_alone("budget=1e24"), MEMPLAN_OK);
    assert_false(cs.run.setup.set[KEY_TOKENS]);
    resolve_alone("params=7B tokens=1T budget=1e24");
    assert_int_equal(cs.errs.count, 1);
    assert_int_equal(cs.slot[0].status, MEMPLAN_E_CONFLICT);
    assert_string_equal(cs.slot[0].key, "budget");
    assert_has(cs.slot[0].message, "6 N D");
    assert_has(cs.slot[0].hint, "leave one of the three out");
}

/* ---- what is assumed and what has no effect ---- */

static const struct said {
    const char *pairs, *text;
    char model;
    bool absent;
} said[] = {
    { "framework=deepspeed zero=3", "built sharded (zero.Init)", 0, false },
    { "framework=megatron zero=3", "stage 3 is Megatron-FSDP", 0, false },
    { "framework=deepspeed zero=2", "zero.Init", 0, true },
    { "framework=fsdp", "each layer is wrapped, nothing else", 0, false },
    { "framework=torchtitan", "each layer is wrapped", 0, false },
    { "", "is wrapped", 0, true },
    { "implementation=litgpt", "framework hf: plain DDP", 0, false },
    { "implementation=litgpt", "finetune/full.py does", 0, false },
    { "implementation=litgpt shift_logits=false", "full.py", 0, true },
    { "implementation=litgpt dropout=0.1", "'dropout' has no effect", 0,
      false },
    { "implementation=litgpt lora_rank=8", "pieces of 128 tokens", 0, false },
    { "implementation=litgpt lora_rank=8", "dropout 0.05", 0, false },
    { "implementation=litgpt lora_rank=8", "before 0.44", 0, true },
    { "implementation=litgpt lora_rank=8 precision=bf16 base_dtype=nf4",
      "bitsandbytes before 0.44", 0, false },
    { "lora_rank=8 loss=standard", "LitGPT", 0, true },
    { "loss=chunked", "LitGPT's layers and scripts", 0, false },
    { "implementation=litgpt lora_rank=8", "queries and values", 0, false },
    { "lora_rank=8", "adapters on all linear layers", 0, false },
    { "lora_rank=8 framework=megatron", "on all linear layers", 0, false },
    { "lora_rank=8 framework=megatron", "linear_proj and MLPs", 'a', false },
    { "cuda_graph=true framework=megatron", "captured after 3 steps", 0,
      false },
    { "cuda_graph=true framework=megatron", "time to start kernels", 0, false },
    { "framework=fsdp grad_accum=2", "after every micro-batch", 0, false },
    { "framework=fsdp grad_accum=2 grad_sync=last",
      "after the last micro-batch", 0, true },
    { "framework=hf engine=fsdp gpus=8 grad_accum=2",
      "after the last micro-batch", 0, false },
    { "framework=fsdp grad_accum=2 grad_sync=each", "'grad_sync'", 0, true },
    { "framework=fsdp grad_sync=each", "'grad_sync' has no effect", 0, false },
    { "framework=hf fp32_logits=true shift_logits=false",
      "'shift_logits' has no effect beside", 0, false },
    { "framework=hf shift_logits=true", "'shift_logits'", 0, true },
    { "framework=hf grad_accum=2 grad_sync=last", "'grad_sync' has no effect",
      0, false },
    { "framework=torchtitan grad_accum=2", "after every micro-batch", 0,
      false },
    { "framework=fsdp", "after every micro-batch", 0, true },
    { "framework=megatron", "balanced expert routing", 'm', false },
    { "framework=megatron", "expert", 0, true },
    { "framework=megatron", "20 per active parameter", 'm', false },
    { "", "20 per parameter", 0, false },
    { "budget=1e24 framework=megatron", "per active", 'm', true },
    { "framework=megatron", "(--attention-mask)", 0, false },
    { "framework=megatron attention_mask=none", "-mask)", 0, true },
    { "", "-mask)", 0, true },
    { "framework=hf micro_batch=2", "not padded (--attention-mask)", 0, false },
    { "framework=hf micro_batch=2 attention=eager", "-mask)", 0, true },
    { "framework=hf micro_batch=2 attention_mask=none", "-mask)", 0, true },
    { "framework=megatron micro_batch=2", "not padded", 0, true },
    { "", "flash attention", 0, false },
    { "precision=fp32", "sdpa attention", 0, false },
    { "precision=bf16", "flash attention", 0, false },
    { "implementation=paper", "flash", 0, true },
    { "implementation=paper", "attention spelled out", 0, false },
    { "", "predicted from kernels and links as timed on its GPU", 0, false },
    { "gpu=rtx-3090",
      "products as timed on its GPU, other kernels as on the A100", 0, false },
    { "gpu=rtx-3090", "links as timed on its GPU", 0, true },
    { "gpu=a100-40gb", "kernels and links as timed on the A100 of 80 GB", 0,
      false },
    { "gpu=a10", "kernels of a10 are taken as those of rtx-a6000", 0, false },
    { "gpu=h20", "kernels and links of h20 are taken as those of other", 0,
      false },
    { "gpu=v100-32gb", "of v100-32gb was timed, nor of another Volta GPU", 0,
      false },
    { "gpu=v100-32gb", "taken as those of other", 0, true },
    { "gpu=mi250x", "nor of another CDNA 2 GPU: rates are guesses", 0, false },
    { "mfu=0.4", "(--mfu)", 0, true },
    { "optimizer=rmsprop", "foreach", 0, false },
    { "optimizer=adagrad framework=fsdp", "foreach", 0, false },
    { "optimizer=adamw framework=fsdp", "fused", 0, false },
    { "implementation=paper", "as the model's file says", 'g', true },
    { "implementation=torchtitan", "as the model's file says", 'g', true },
    { "framework=megatron", "as the model's file says", 'g', false },

    { "ddp_bucket=1MiB", "'ddp_bucket'", 0, true },
    { "framework=megatron microbatch_group_size_per_vp_stage=8",
      "'microbatch_group_size_per_vp_stage' has no effect but in Megatron's", 0,
      false },
    { "framework=megatron pp=2 vpp=2 gpus=2 grad_accum=8 "
      "microbatch_group_size_per_vp_stage=4",
      "'microbatch_group_size_per_vp_stage'", 0, true },
    { "framework=torchtitan gpus=2 return_outputs=true",
      "'return_outputs' has no effect but in torchtitan's pipelines", 0,
      false },
    { "framework=torchtitan gpus=2 keep_reduce_scatter=true",
      "'keep_reduce_scatter' has no effect but in torchtitan's pipelines that "
      "FSDP shards",
      0, false },
    { "framework=torchtitan gpus=4 pp=2 grad_accum=2 return_outputs=true "
      "keep_reduce_scatter=true",
      "has no effect", 0, true },
    { "framework=nemo lora_rank=8 ensure_weight_tying=true",
      "has no effect in Megatron's layers", 0, false },
    { "ddp_bucket=25 gpus=2", "(--ddp-bucket 25MiB)", 0, false },
    { "ddp_bucket=1024 gpus=2", "ddp_bucket counts", 0, true },
    { "fsdp_units=ends", "'fsdp_units' has no effect without FSDP", 0, false },
    { "optimizer=paged-adamw optimizer_dtype=bf16",
      "'optimizer_dtype' has no effect", 0, false },
    { "optimizer=adam8bit optimizer_dtype=bf16",
      "'optimizer_dtype' has no effect: bitsandbytes' moments are in 8 bits", 0,
      false },
    { "optimizer=adam4bit optimizer_dtype=bf16",
      "'optimizer_dtype' has no effect: torchao's", 0, false },
    { "optimizer=adafactor optimizer_dtype=bf16",
      "'optimizer_dtype' has no effect", 0, false },
    { "optimizer=sgd optimizer_dtype=bf16", "'sgd', which has no moments", 0,
      false },
    { "optimizer=lion optimizer_dtype=bf16", "'optimizer_dtype' has no effect",
      0, true },
    { "framework=megatron-deepspeed recompute=full offload_activations=cpu "
      "pin_memory=true",
      "'pin_memory' has no effect on checkpoints", 0, false },
    { "framework=megatron-deepspeed recompute=full offload_activations=cpu "
      "offload_optimizer=cpu zero=2 pin_memory=true",
      "'pin_memory' has no effect", 0, true },
    { "zero_bucket=backward framework=deepspeed zero=3",
      "'zero_bucket' has no effect", 0, false },
    { "zero_overflow=kept framework=deepspeed zero=2",
      "'zero_overflow' has no effect", 0, false },
    { "zero_overflow=kept framework=deepspeed zero=3 precision=fp16-mixed",
      "'zero_overflow' has no effect", 0, false },
    { "zero_overflow=kept framework=deepspeed zero=2 precision=fp16-mixed",
      "'zero_overflow' has no effect", 0, true },
    { "zero_overflow=kept framework=deepspeed zero=2 precision=fp16-mixed "
      "offload_optimizer=cpu",
      "'zero_overflow' has no effect", 0, false },
    { "zero_rank=first framework=deepspeed zero=3 gpus=4",
      "'zero_rank' has no effect", 0, false },
    { "zero_rank=first framework=deepspeed zero=2 gpus=1",
      "'zero_rank' has no effect", 0, false },
    { "zero_rank=first framework=deepspeed zero=2 gpus=4",
      "'zero_rank' has no effect", 0, true },
    { "zero_flatten=cpu framework=deepspeed zero=3",
      "'zero_flatten' has no effect", 0, false },
    { "zero_flatten=cpu framework=deepspeed zero=2",
      "'zero_flatten' has no effect", 0, true },
    { "framework=deepspeed zero=2", "flattened on the GPU", 0, false },
    { "framework=deepspeed zero=2 zero_flatten=cpu", "flattened on the GPU", 0,
      true },
    { "use_orig_params=true", "'use_orig_params' has no effect without FSDP", 0,
      false },
    { "framework=fsdp", "gradients stay between steps, up to the next forward",
      0, false },
    { "framework=fsdp use_orig_params=false", "gradients stay between steps", 0,
      true },
    { "framework=fsdp offload_params=cpu", "gradients stay between steps", 0,
      true },
    { "framework=fsdp zero_grad_set_to_none=false",
      "gradients stay between steps", 0, true },
    { "framework=fsdp engine=fsdp2", "gradients stay between steps", 0, true },
    { "framework=hf", "gradients stay between steps", 0, true },
    { "fsdp_units=ends framework=fsdp", "'fsdp_units'", 0, true },
    { "fsdp_units=embedding framework=fsdp",
      "each layer is wrapped, and the embedding", 0, false },
    { "ddp_bucket=1MiB fast=true", "'ddp_bucket' has no effect", 0, false },
    { "ddp_bucket=1MiB zero=1", "'ddp_bucket' has no effect", 0, false },
    { "allgather_bucket=9 framework=deepspeed",
      "'allgather_bucket' has no effect", 0, false },
    { "allgather_bucket=9 framework=megatron-deepspeed zero=1 gpus=8",
      "'allgather_bucket' has no effect: weights", 0, false },
    { "allgather_bucket=9 framework=megatron-deepspeed zero=1 gpus=8 "
      "implementation=megatron-local",
      "'allgather_bucket'", 0, true },
    { "allgather_bucket=9 framework=megatron-deepspeed zero=1 gpus=8 "
      "implementation=megatron-local fast=true",
      "'allgather_bucket' has no effect with fast", 0, false },
    { "allocator=expandable fast=true", "'allocator' has no effect", 0, false },
    { "allocator=expandable", "'allocator'", 0, true },
    { "allocator=default", "'allocator'", 0, true },
    { "framework=megatron gpu=b200 precision=fp8-mixed fp8_recipe=mxfp8",
      "'fp8_recipe' has no effect", 0, true },
    { "framework=torchtitan gpu=h100 precision=fp8-mixed "
      "fp8_recipe=tensorwise",
      "'fp8_recipe' has no effect", 0, false },
    { "framework=megatron gpu=h100 precision=fp8-mixed", "fp8 scaling delayed",
      0, false },
    { "framework=megatron gpu=h100 precision=fp8-mixed "
      "recompute_modules=layernorm",
      "fp8 scaling blockwise", 0, false },
    { "framework=megatron gpu=b200 precision=fp8-mixed "
      "recompute_modules=layernorm",
      "fp8 scaling mxfp8", 0, false },
    { "framework=megatron gpu=b200 precision=fp4-mixed",
      "4-bit products of all linears but the head's", 0, false },
    { "framework=megatron gpu=h100 precision=fp8-mixed fp8_recipe=deepseek",
      "its code is not public", 0, false },
    { "framework=megatron recompute=selective recompute_layers=2",
      "'recompute_layers' has no effect", 0, false },
    { "framework=megatron recompute=selective recompute_granularity=2",
      "'recompute_granularity' has no effect", 0, false },
    { "recompute=full recompute_layers=2", "'recompute_layers'", 0, true },
    { "implementation=paper recompute_modules=mlp",
      "'recompute_modules' has no effect", 0, false },
    { "implementation=paper recompute_modules=core_attn", "'recompute_modules'",
      0, true },
    { "framework=torchtitan", "RMSNorm in one kernel", 0, false },
    { "framework=torchtitan compile=true",
      "the last RMSNorm, which is not compiled, in one kernel", 0, false },
    { "framework=torchtitan norm_kernel=eager", "RMSNorm", 0, true },
    { "implementation=paper norm_kernel=eager",
      "'norm_kernel' has no effect: of a norm the paper", 0, false },
    { "implementation=paper norm_kernel=eager", "Megatron's norms", 0, true },
    { "framework=hf norm_kernel=fused", "'norm_kernel'", 0, true },
    { "framework=megatron norm_kernel=eager",
      "'norm_kernel' has no effect: Megatron's", 0, false },
    { "attention_kernel=flash1 attention=sdpa",
      "'attention_kernel' has no effect", 0, false },
    { "attention_kernel=flash1", "'attention_kernel'", 0, true },
    { "attention_kernel=flash3 attention=sdpa gpu=a100-80gb",
      "'attention_kernel' has no effect", 0, false },
    { "framework=megatron", "as fast as flash2", 0, false },
    { "framework=megatron gpu=h100-80gb", "as fast as cudnn", 0, false },
    { "gpu=h100-80gb", "as fast as cudnn", 0, false },
    { "gpu=b200", "as fast as cudnn", 0, false },
    { "gpu=b300", "as fast as cudnn", 0, false },
    { "gpu=b100", "as fast as cudnn", 0, false },
    { "gpu=rtx-5090", "as fast as flash2", 0, false },
    { "framework=torchtitan gpu=h200", "as fast as cudnn", 0, false },
    { "framework=megatron loss=fused", "'loss' has no effect", 0, true },
    { "framework=megatron loss=fused", "deterministic kernels", 0, true },
    { "framework=megatron", "deterministic kernels", 0, false },
    { "framework=megatron", "weight gradients not fused", 0, false },
    { "framework=megatron grad_accum_fusion=true", "not fused", 0, true },
    { "attention=eager", "eager attention", 0, true },
    { "framework=megatron ce_fusion=native", "'ce_fusion' has no effect", 0,
      false },
    { "framework=megatron attention=eager fused_softmax=false",
      "'fused_softmax' has no effect", 0, false },
    { "framework=megatron attention=eager softmax_fp32=true",
      "'softmax_fp32' has no effect", 0, false },
    { "framework=megatron implementation=megatron-local attention=eager "
      "fused_softmax=false",
      "'fused_softmax'", 0, true },
    { "framework=hf grouped_gemm=true", "'grouped_gemm' has no effect", 0,
      false },
    { "framework=megatron grouped_gemm=true",
      "'grouped_gemm' has no effect but in Megatron with experts", 0, false },
    { "framework=megatron tp=2 pp=2 etp=4 gpus=8",
      "'etp' has no effect without experts", 0, false },
    { "framework=megatron moe_dispatcher=allgather",
      "'moe_dispatcher' has no effect", 0, false },
    { "moe_imbalance=2", "'moe_imbalance' has no effect without experts", 0,
      false },
    { "moe_imbalance=2", "without expert parallelism", 'm', false },
    { "gpus=8 ep=8 moe_imbalance=2", "the rank whose experts get most", 'm',
      false },
    { "gpus=8 ep=8 moe_imbalance=2", "balanced expert routing", 'm', true },
    { "moe_imbalance=2", "without expert parallelism", 0, true },
    { "framework=hf moe_pad_expert_input_to_capacity=true",
      "'moe_pad_expert_input_to_capacity' has no effect", 'm', false },
    { "framework=megatron moe_expert_capacity_factor=0.5",
      "tokens above an expert's capacity are dropped", 'm', false },
    { "framework=megatron moe_expert_capacity_factor=1",
      "tokens above an expert's capacity are dropped", 'm', true },
    { "gpus=8 ep=8 moe_imbalance=2 moe_expert_capacity_factor=1.5",
      "tokens above an expert's capacity are dropped", 'm', false },
    { "framework=megatron moe_expert_capacity_factor=1.5 "
      "moe_pad_expert_input_to_capacity=true",
      "experts compute padding", 'm', false },
    { "framework=hf moe_permute_fusion=true",
      "'moe_permute_fusion' has no effect", 'm', false },
    { "framework=megatron implementation=megatron-local "
      "moe_permute_fusion=true",
      "no effect without Transformer Engine", 'm', false },
    { "framework=megatron moe_permute_fusion=true",
      "'moe_permute_fusion' has no effect", 'm', true },
    { "framework=hf rope_fusion=true", "'rope_fusion' has no effect", 0,
      false },
    { "framework=megatron ep=2 moe_flex_dispatcher_backend=hybridep",
      "no effect without --moe-dispatcher flex", 'm', false },
    { "framework=megatron rope_fusion=true", "'rope_fusion' has no effect", 'm',
      false },
    { "framework=megatron gpus=2 moe_dispatcher=flex",
      "'moe_dispatcher' has no effect: a rank has all experts", 'm', false },
    { "framework=megatron gpus=4 tp=2 ep=2 moe_dispatcher=flex",
      "of experts that are split (--etp) memory is alltoall's", 'm', false },
    { "framework=megatron gpus=4 tp=2 ep=2 etp=1 moe_dispatcher=flex",
      "moe_dispatcher", 'm', true },
    { "framework=megatron gpus=2 ep=2 moe_expert_capacity_factor=2",
      "no expert gets more tokens than its capacity", 'm', false },
    { "framework=hf moe_router_dtype=fp32", "'moe_router_dtype' has no effect",
      'm', false },
    { "framework=megatron moe_aux_loss=aux_loss",
      "'moe_aux_loss' has no effect but in Megatron with experts", 0, false },
    { "ssm_kernel=torch", "'ssm_kernel' has no effect", 0, false },
    { "framework=hf moe_expert_capacity_factor=2",
      "'moe_expert_capacity_factor' has no effect", 'm', false },
    { "framework=hf moe_pad_expert_input_to_capacity=true "
      "moe_expert_capacity_factor=2",
      "'moe_pad_expert_input_to_capacity' has no effect", 'm', false },
    { "framework=megatron tp=2 cp_comm=a2a", "'cp_comm' has no effect", 0,
      false },
    { "framework=megatron cp=2 cp_comm=a2a", "'cp_comm'", 0, true },
    { "framework=hf cp_comm=a2a", "'cp_comm' has no effect", 0, false },
    { "implementation=paper loss=fused", "'loss' has no effect", 0, false },
    { "loss=fused", "'loss'", 0, true },
    { "framework=megatron attention=sdpa", "'attention' has no effect", 0,
      false },
    { "framework=megatron attention=eager", "'attention'", 0, true },
    { "framework=torchtitan attention=sdpa", "'attention' has no effect", 0,
      false },
    { "framework=torchtitan attention=sdpa precision=fp32", "'attention'", 0,
      true },
    { "attention=sdpa", "'attention'", 0, true },
    { "implementation=paper attention=flash", "'attention' has no effect", 0,
      false },
    { "implementation=paper dropout=0", "'dropout' has no effect", 0, false },
    { "framework=torchtitan dropout=0.1", "'dropout' has no effect", 0, false },
    { "framework=torchtitan dropout=0", "'dropout'", 0, true },
    { "attention_mask=dataloader", "'attention_mask' has no effect", 0, false },
    { "attention_mask=none", "'attention_mask'", 0, true },
    { "attention=eager attention_mask=model",
      "'attention_mask' has no effect but in BERT and RoBERTa", 0, false },
    { "framework=megatron attention_mask=dataloader", "'attention_mask'", 0,
      true },
    { "framework=hf attention_mask=padding", "'attention_mask'", 0, true },
    { "framework=hf attention_mask=padding", "sdpa attention", 0, false },
    { "framework=hf attention_mask=padding attention=flash",
      "flash attention runs over real tokens alone", 0, false },
    { "framework=megatron attention_mask=padding",
      "'attention_mask' has no effect outside transformers'", 0, false },
    { "framework=hf attention_mask=padding cp=2 gpus=2 cp_comm=a2a",
      "'attention_mask' has no effect where ranks have parts", 0, false },
    { "overlap_comm=true", "'overlap_comm' has no effect", 0, false },
    { "zero=3 overlap_comm=true", "'overlap_comm'", 0, true },
    { "zero=2 overlap_comm=true", "'overlap_comm'", 0, true },
    { "reduce_bucket=9", "'reduce_bucket' has no effect without DeepSpeed", 0,
      false },
    { "reduce_bucket=9 zero=1", "'reduce_bucket'", 0, true },
    { "prefetch_bucket=9 zero=2", "'prefetch_bucket' has no effect", 0, false },
    { "max_live_params=9 zero=2", "'max_live_params' has no effect", 0, false },
    { "sub_group_size=9 framework=fsdp", "'sub_group_size' has no effect", 0,
      false },
    { "persistence_threshold=9", "'persistence_threshold' has no effect", 0,
      false },
    { "persistence_threshold=9 zero=3", "'persistence_threshold'", 0, true },
    { "gpus=8 hpz_partition_size=4 zero=2",
      "'hpz_partition_size' has no effect", 0, false },
    { "gpus=8 hpz_partition_size=4 zero=3", "'hpz_partition_size'", 0, true },
    { "gpus=8 mics_shard_size=4 zero=2", "'mics_shard_size' has no effect", 0,
      false },
    { "gpus=8 mics_hierarchical_params_gather=true zero=3",
      "'mics_hierarchical_params_gather' has no effect", 0, false },
    { "gpus=8 zero_quantized_weights=true zero=2",
      "'zero_quantized_weights' has no effect", 0, false },
    { "gpus=8 zero_quantized_weights=true zero=3", "'zero_quantized_weights'",
      0, true },
    { "gpus=8 zero_quantized_gradients=true zero=3",
      "'zero_quantized_gradients' has no effect", 0, false },
    { "gpus=16 zero_quantized_gradients=true zero=3",
      "'zero_quantized_gradients'", 0, true },
    { "framework=deepspeed gpus=2 zero=2 contiguous_gradients=false",
      "'contiguous_gradients' has no effect", 0, true },
    { "framework=deepspeed gpus=2 zero=3 contiguous_gradients=false "
      "offload_optimizer=cpu",
      "'contiguous_gradients' has no effect", 0, true },
    { "framework=deepspeed gpus=2 zero=2 contiguous_gradients=false "
      "offload_optimizer=cpu",
      "'contiguous_gradients' has no effect", 0, false },
    { "framework=deepspeed gpus=2 zero=0 contiguous_gradients=false",
      "'contiguous_gradients' has no effect", 0, false },
    { "framework=megatron gpus=2 tp=2 implementation=megatron-local "
      "async_tensor_model_parallel_allreduce=false",
      "'async_tensor_model_parallel_allreduce' has no effect but in "
      "megatron-local's layers under tensor parallelism without sequence "
      "parallelism",
      0, false },
    { "framework=megatron gpus=2 tp=2 sequence_parallel=false "
      "implementation=megatron-local "
      "async_tensor_model_parallel_allreduce=false",
      "'async_tensor_model_parallel_allreduce' has no effect", 0, true },
    { "framework=megatron gpus=2 tp=2 sequence_parallel=false "
      "async_tensor_model_parallel_allreduce=false",
      "'async_tensor_model_parallel_allreduce' has no effect", 0, false },
    { "framework=megatron-deepspeed gpus=2 tp=2 "
      "async_tensor_model_parallel_allreduce=true",
      "'async_tensor_model_parallel_allreduce' has no effect", 0, true },
    { "framework=megatron gpus=4 tp=2 pp=2 grad_accum=2 "
      "scatter_gather_tensors_in_pipeline=true",
      "'scatter_gather_tensors_in_pipeline' has no effect but in Megatron's "
      "pipelines under tensor parallelism without sequence parallelism",
      0, false },
    { "framework=megatron gpus=4 tp=2 pp=2 grad_accum=2 "
      "sequence_parallel=false scatter_gather_tensors_in_pipeline=true",
      "'scatter_gather_tensors_in_pipeline' has no effect", 0, true },
    { "framework=deepspeed gpus=2 zero=2 multi_rank_bucket_allreduce=false",
      "'multi_rank_bucket_allreduce' has no effect", 0, true },
    { "framework=deepspeed gpus=1 zero=2 multi_rank_bucket_allreduce=false",
      "'multi_rank_bucket_allreduce' has no effect but in DeepSpeed's ZeRO-1 "
      "and -2 on several ranks",
      0, false },
    { "framework=deepspeed gpus=2 zero=3 multi_rank_bucket_allreduce=false",
      "'multi_rank_bucket_allreduce' has no effect", 0, false },
    { "framework=deepspeed gpus=2 zero=1 precision=bf16-mixed grad_dtype=fp32 "
      "multi_rank_bucket_allreduce=false",
      "'multi_rank_bucket_allreduce' has no effect", 0, false },
    { "framework=deepspeed gpus=2 zero=3 multi_rank_bucket_allreduce=true",
      "'multi_rank_bucket_allreduce' has no effect", 0, true },
    { "framework=deepspeed gpus=2 zero=1 round_robin_gradients=true",
      "'round_robin_gradients' has no effect", 0, true },
    { "framework=deepspeed gpus=1 zero=1 round_robin_gradients=true",
      "'round_robin_gradients' has no effect", 0, false },
    { "framework=deepspeed gpus=2 zero=3 round_robin_gradients=true",
      "'round_robin_gradients' has no effect", 0, false },
    { "framework=deepspeed gpus=2 zero=2 round_robin_gradients=false",
      "'round_robin_gradients' has no effect", 0, true },
    { "gpus=8 offload_ratio=0.5 zero=3", "'offload_ratio' has no effect", 0,
      false },
    { "schedule=gpipe", "'schedule' has no effect with pp 1", 0, false },
    { "schedule=gpipe pp=2", "'schedule'", 0, true },
    { "sequence_parallel=true", "'sequence_parallel' has no effect with tp 1",
      0, false },
    { "sequence_parallel=false", "'sequence_parallel'", 0, true },
    { "optimizer=none optimizer_impl=loop", "'optimizer_impl' has no effect", 0,
      false },
    { "embedding_states=8bit", "'embedding_states' has no effect without", 0,
      false },
    { "optimizer=adam8bit", "states of embeddings in fp32", 0, false },
    { "optimizer_rank=8", "'optimizer_rank' has no effect without galore", 0,
      false },
    { "optimizer_targets=q optimizer=muon", "'optimizer_targets' has no effect",
      0, false },
    { "optimizer=apollo", "projections of rank 128", 0, false },
    { "optimizer=galore optimizer_targets=q", "all matrices", 0, true },
    { "framework=deepspeed optimizer=lion8bit", "embeddings in 8 bits", 0,
      false },
    { "pin_memory=false", "'pin_memory' has no effect where nothing", 0,
      false },
    { "pin_memory=false zero=2 offload_optimizer=cpu", "'pin_memory'", 0,
      true },
    { "cpu_offloading_num_layers=3 framework=megatron pin_memory=false",
      "'pin_memory' has no effect: Transformer Engine", 0, false },
    { "cpu_offloading_num_layers=3 framework=megatron",
      "activations of the first 3 of ", 0, false },
    { "offload_modules=core_attn framework=megatron", "that modules keep wait",
      0, false },
    { "offload_modules=core_attn framework=megatron", "has no effect", 0,
      true },
    { "offload_modules=attn_norm framework=megatron",
      "'attn_norm' has no effect", 0, false },
    { "offload_modules=expert_fc1 framework=megatron",
      "'expert_fc1' has no effect", 0, false },
    { "offload_modules=core_attn framework=megatron recompute=selective",
      "'core_attn' has no effect", 0, false },
    { "offload_modules=qkv_linear framework=megatron pin_memory=false",
      "'pin_memory' has no effect: Megatron", 0, false },
    { "pp=2 gpus=2 framework=megatron", "which are never all at work", 0,
      false },
    { "pp=2 gpus=2 framework=megatron grad_accum=4",
      "which are never all at work", 0, true },
    { "offload_activations=cpu", "as TRL's OffloadActivations", 0, false },
    { "offload_activations=cpu recompute=full", "as TRL's OffloadActivations",
      0, true },
    { "offload_activations=nvme recompute=full", "checkpoints in files", 0,
      false },
    { "offload_activations=nvme recompute=full nvme_bandwidth=3000000000",
      "'nvme_bandwidth' has no effect", 0, true },
    { "optimizer_buffers=5 zero=3 offload_optimizer=cpu",
      "'optimizer_buffers' has no effect without", 0, false },
    { "max_in_cpu=0 zero=3 offload_params=cpu",
      "'max_in_cpu' has no effect without", 0, false },
    { "pipeline_read=true zero=3 offload_params=cpu",
      "'pipeline_read' has no effect without", 0, false },
    { "pipeline_write=true zero=3 offload_optimizer=nvme", "'pipeline_write'",
      0, true },
    { "nvme_bandwidth=20e9 zero=3 offload_optimizer=cpu",
      "'nvme_bandwidth' has no effect where nothing", 0, false },
    { "zero=2 offload_optimizer=cpu optimizer_impl=loop",
      "'optimizer_impl' has no effect", 0, false },
    { "optimizer_impl=loop", "'optimizer_impl'", 0, true },
};

static void what_is_said(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
        const struct said *x = &said[i];
        const struct run *r = resolve_as(x->model ? x->model : 'l', x->pairs);
        if (cs.status != MEMPLAN_OK || assumes(r, x->text) == x->absent)
            print_error("%s: %s %s\n", x->pairs, x->text, cs.slot[0].message);
        assert_int_equal(cs.status, MEMPLAN_OK);
        assert_int_equal(assumes(r, x->text), !x->absent);
        assert_true(r->n_assumptions < ASSUMPTION_MAX);
    }
}

/* Of more than there is room for the rest is counted, not dropped. */
static void what_has_no_room_is_counted(void **state)
{
    (void)state;
    struct run run = *resolve_as('l', "");
    while (run.n_assumptions < ASSUMPTION_MAX)
        run_assume(&run, KEY_COUNT, "one of many");
    run_assume(&run, KEY_COUNT, "the first too many");
    assert_true(assumes(&run, "1 more assumption, for which there is no room"));
    run_assume(&run, KEY_COUNT, "the next");
    run_say(&run, KEY_COUNT, "and # more", 3);
    assert_true(
        assumes(&run, "3 more assumptions, for which there is no room"));
    assert_int_equal(run.n_assumptions, ASSUMPTION_MAX + 1);
}

static void what_has_no_effect_has_none(void **state)
{
    (void)state;
    const struct run *r = resolved("schedule=gpipe grad_accum=8");
    assert_int_equal(r->schedule, SCHED_1F1B);
    r = resolved("recompute=selective recompute_layers=2 framework=megatron");
    assert_int_equal(r->recompute_layers, 32);
    assert_string_equal(value_text(&r->setup, KEY_RECOMPUTE_LAYERS), "32");
    r = resolve_as('g', "framework=torchtitan");
    assert_true(r->hidden_dropout <= 0);
    r = resolved("implementation=paper");
    assert_int_equal(r->attention, ATTN_EAGER);
}

static void bare_runs(void **state)
{
    (void)state;
    struct spec s = llama();
    struct run r;
    run_bare(&r, &s);
    assert_int_equal(r.gpus, 1);
    assert_int_equal(r.micro_batch, 1);
    assert_int_equal(r.seq_len, 1);
    assert_int_equal(r.vocab, s.vocab);
    assert_int_equal(r.stage_layers[0], 32);
    assert_int_equal(r.prec.param, DT_BF16);
    assert_int_equal(r.n_assumptions, 0);
}

/* ---- what cannot be ---- */

static const struct bad_layout {
    const char *pairs;
    memplan_status status;
    const char *key, *message, *hint;
    char model; /* 'l'lama when 0, 'g'pt2, 'm'ixtral, or eleven() */
} bad_layouts[] = {
#define C MEMPLAN_E_CONFLICT
#define U MEMPLAN_E_UNSUPPORTED
    { "gpus=64 tp=3 seq_len=1023", C, "tp", "64 GPUs cannot be split into tp 3",
      "use 1, 2 or 4", 'g' },
    { "gpus=8 ep=8 moe_imbalance=8.5", C, "moe_imbalance",
      "one rank would get more than all tokens",
      "use --moe-imbalance 8 or less", 'm' },
    { "gpus=8 ep=8 moe_pad_expert_input_to_capacity=true", C,
      "moe_pad_expert_input_to_capacity", "without a capacity",
      "--moe-expert-capacity-factor 1.0", 'm' },
    { "gpus=64 tp=4 pp=3", C, "pp",
      "64 GPUs cannot be split into pp 3 beside a group of 4",
      "use 1, 2, 4, 8 or 16", 'g' },
    { "gpus=64 pp=64", C, "pp", "pp 64 needs 64 layers, the model has 32",
      "use 1, 2, 4, 8, 16 or 32", 0 },
    { "gpus=4 tp=8", C, "gpus", "needs 8 GPUs, and there are 4", "use --gpus 8",
      0 },
    { "gpus=16 tp=4 cp=3 seq_len=4080", C, "cp", "cannot be split into cp 3",
      "use 1, 2 or 4", 0 },
    { "gpus=64 tp=8 dp=4", C, "dp", "make dp 8", "use --gpus 32", 0 },
    { "tp=3", C, "tp", "32 attention heads do not split over tp 3",
      "use 1, 2, 4, 8, 16 or 32", 0 },
    { "tp=16 framework=torchtitan", C, "tp",
      "8 key-value heads do not split over tp 16", "use 1, 2, 4 or 8", 0 },
    { "tp=8", C, "tp", "12 attention heads do not split", "use 1, 2, 3", 'g' },
    { "tp=4 vocab_multiple=1", C, "vocab_multiple",
      "vocabulary of 50257 does not split over tp 4",
      "use --vocab-multiple 512", 'g' },
    { "pp=5 vpp=8", C, "vpp", "pp 5 x vpp 8 chunks for 32 layers",
      "use --vpp 6 or less", 0 },
    { "pp=2 pipeline_layers=8,8,16", C, "pipeline_layers",
      "has 3 entries for pp 2", "use --pp 3", 0 },
    { "pp=2 pipeline_layers=8,8", C, "pipeline_layers",
      "adds up to 16, the model has 32 layers", "add up to 32", 0 },
    { "framework=megatron pp=4 pipeline_layers=16,0,16,0", C, "pipeline_layers",
      "stage 1 of pipeline_layers has no layer",
      "the first and the last may have none", 0 },
    { "framework=torchtitan pp=2 pipeline_layers=32,0", C, "pipeline_layers",
      "stage 1 of pipeline_layers has no layer", "give it 1 or more", 0 },
    { "framework=megatron pp=2 vpp=2 pipeline_layers=32,0", C,
      "pipeline_layers", "stage 1 of pipeline_layers has no layer",
      "give it 1 or more", 0 },
    { "pp=4 vpp=9", C, "vpp", "pp 4 x vpp 9 chunks for 32 layers",
      "use --vpp 8 or less", 0 },
    { "vpp=2", C, "vpp", "vpp 2 without pipeline stages", "--pp 2", 0 },
    { "pp=2 schedule=interleaved", C, "schedule", "one chunk per stage",
      "add --vpp 2", 0 },
    { "pp=2 vpp=2 schedule=1f1b", C, "vpp", "vpp 2 with schedule '1f1b'",
      "use --schedule interleaved", 0 },
    { "pp=4 vpp=2 grad_accum=6", C, "grad_accum",
      "cannot run 6 micro-batches through pp 4", "--grad-accum 8", 0 },
    { "gpus=4 global_batch=100 micro_batch=8", C, "global_batch",
      "global_batch 100 is not a multiple of micro_batch x dp = 32",
      "use 96 or 128", 0 },
    { "gpus=4 global_batch=2", C, "global_batch", "is not a multiple",
      "use 4, or fewer", 0 },
    { "gpus=4 global_batch=10 grad_accum=2", C, "global_batch",
      "not a multiple of grad_accum x dp = 8", "use 8 or 16", 0 },
    { "gpus=4 global_batch=64 micro_batch=2 grad_accum=4", C, "global_batch",
      "is not micro_batch 2 x grad_accum 4 x dp 4 = 32", "--global-batch 32",
      0 },
    { "ep=2", C, "ep", "ep 2 for a model without experts", "leave ep out", 0 },
    { "gpus=6 ep=3", C, "ep", "8 experts do not split over ep 3", "use 1 or 2",
      'm' },
    { "gpus=12 ep=8", C, "ep", "ep 8 does not divide the 12 ranks",
      "use 1, 2 or 4", 'm' },
    { "seq_len=2048", C, "seq_len", "beyond the model's 1024 learned",
      "use --seq-len 1024 or less", 'g' },
    { "cp=4 seq_len=1001", C, "cp",
      "seq_len 1001 is not a multiple of 8 (2 x cp)",
      "use --seq-len 1000 or 1008", 0 },
    { "tp=2 seq_len=1001", C, "tp", "not a multiple of 2 (tp",
      "use --seq-len 1000 or 1002", 0 },
    { "decoder_seq_len=128", C, "decoder_seq_len", "one stack", "leave it out",
      0 },
    { "framework=hf zero=2", C, "zero",
      "zero 2 with engine 'ddp', which shards nothing",
      "use --framework deepspeed", 0 },
    { "framework=fsdp zero=1", C, "zero", "zero 1 is not something FSDP has",
      "use --zero 2 (shard_grad_op) or 3", 0 },
    { "framework=torchtitan zero=1", C, "zero", "FSDP", "--zero 2", 0 },
    { "framework=megatron zero=2", C, "zero", "zero 2 with engine 'megatron'",
      "or 3 for Megatron-FSDP", 0 },
    { "framework=megatron-deepspeed pp=2 zero=2", C, "zero",
      "zero 2 under DeepSpeed's pipelines", "use --zero 1", 0 },
    { "gpus=8 framework=fsdp shard_degree=3", C, "shard_degree",
      "does not divide the 8 data-parallel ranks", "use 1, 2, 4 or 8", 0 },
    { "gpus=8 shard_degree=4", C, "shard_degree", "with zero 0", "use --zero 1",
      0 },
    { "gpus=8 zero=3 hpz_partition_size=3", C, "hpz_partition_size",
      "does not divide the 8 data-parallel ranks", "use 1, 2, 4 or 8", 0 },
    { "gpus=8 zero=3 hpz_partition_size=2 shard_degree=4",
      MEMPLAN_E_UNSUPPORTED, "hpz_partition_size", "beside tp, cp",
      "leave hpz_partition_size out", 0 },
    { "gpus=8 zero=3 hpz_partition_size=2 offload_params=cpu",
      MEMPLAN_E_UNSUPPORTED, "hpz_partition_size", "with offload_params",
      "leave it out, or leave offload_params out", 0 },
    { "framework=megatron-deepspeed gpus=8 zero=3 hpz_partition_size=2", C,
      "hpz_partition_size", "had none", "use --framework deepspeed", 0 },
    { "framework=megatron precision=bf16-amp", C, "precision",
      "engine 'megatron' has no 32-bit weights", "bf16-mixed", 0 },
    { "precision=fp8-mixed framework=torchtitan", C, "precision",
      "on a100-80gb, which has no fp8", "--gpu h100-80gb", 0 },
    { "precision=tf32 gpu=v100-32gb", C, "precision", "no tf32",
      "--precision fp32", 0 },
    { "fp8_recipe=delayed", C, "fp8_recipe", "fp8_recipe with precision",
      "--precision fp8-mixed", 0 },
    { "param_dtype=none", C, "param_dtype", "param_dtype 'none' leaves",
      "use fp32, bf16 or fp16", 0 },
    { "grad_dtype=int8", U, "grad_dtype", "grad_dtype 'int8' is not modelled",
      "use fp32, bf16 or fp16", 0 },
    { "optimizer_dtype=none", C, "optimizer_dtype", "leaves nothing", "use",
      0 },
    { "attention=flash gpu=v100-32gb", C, "attention", "'flash' on v100-32gb",
      "use --attention sdpa", 0 },
    { "recompute=full recompute_modules=mlp", C, "recompute_modules",
      "without recompute 'selective'", "--recompute selective", 0 },
    { "recompute_layers=4", C, "recompute_layers", "without recompute",
      "add --recompute full", 0 },
    { "recompute_every=2", C, "recompute_every", "'full'",
      "add --recompute full", 0 },
    { "recompute=full recompute_every=2 recompute_layers=4", C,
      "recompute_every", "beside recompute_layers", "leave it out", 0 },
    { "recompute_granularity=4", C, "recompute_granularity", "'full'",
      "add --recompute full", 0 },
    { "recompute_reentrant=true", C, "recompute_reentrant", "'full'",
      "add --recompute full", 0 },
    { "recompute=full distribute_saved_activations=true", C,
      "distribute_saved_activations", "without Megatron's layers",
      "--framework megatron", 0 },
    { "framework=megatron distribute_saved_activations=true", C,
      "distribute_saved_activations", "'full'", "--recompute full", 0 },
    { "framework=megatron recompute=full distribute_saved_activations=true", C,
      "distribute_saved_activations", "tp above 1", "leave it out", 0 },
    { "framework=megatron recompute=full distribute_saved_activations=true "
      "gpus=8 tp=2",
      C, "distribute_saved_activations", "sequence_parallel",
      "leave one of the two out", 0 },
    { "recompute=full recompute_layers=33", C, "recompute_layers",
      "recompute_layers 33 with 32 layers per stage", "use 32 at most", 0 },
    { "recompute=selective", U, "recompute",
      "selective recompute is not modelled for hf layers yet",
      "with flash attention it saves nothing", 0 },
    { "recompute=selective attention=eager", U, "recompute", "for hf layers",
      "--recompute full, or --framework megatron", 0 },
    { "recompute_modules=mlp framework=torchtitan", U, "recompute_modules",
      "not modelled for torchtitan layers yet", "--recompute full", 0 },
    { "recompute_modules=mlp implementation=hf-liger", U, "recompute_modules",
      "for hf-liger layers", "--recompute full", 0 },
    { "budget=1e24 tokens=1T", C, "budget", "budget beside a model and tokens",
      "leave budget out, or leave tokens out", 0 },
    { "grad_dtype=bf16", C, "grad_dtype",
      "grad_dtype 'bf16' with engine 'ddp', whose gradients have the weights' "
      "dtype, fp32",
      "leave it out, or use --param-dtype bf16", 0 },
    { "zero=0 framework=deepspeed grad_dtype=fp32", C, "grad_dtype",
      "with engine 'deepspeed' and zero 0", "--zero 1, 2 or 3", 0 },
    { "zero=0 framework=deepspeed grad_dtype=fp32 precision=fp16-mixed", C,
      "grad_dtype", "zero 0", "leave it out, or use --zero 2 or 3", 0 },
    { "zero=1 framework=deepspeed grad_dtype=bf16 precision=fp16-mixed", C,
      "grad_dtype", "zero 1", "leave it out, or use --zero 3", 0 },
    { "zero=2 grad_dtype=fp16", C, "grad_dtype",
      "with engine 'deepspeed' and zero 2", "--zero 3", 0 },
    { "zero=1 framework=deepspeed grad_dtype=fp16", C, "grad_dtype",
      "with engine 'deepspeed' and zero 1", "--zero 3", 0 },
    { "zero=2 grad_dtype=fp32 lora_rank=8", U, "grad_dtype",
      "'fp32' of adapters in bf16 under ZeRO-2", "--zero 1 or 3", 0 },
    { "zero=2 grad_dtype=fp32 framework=megatron-deepspeed", C, "grad_dtype",
      "zero 2, whose gradients have the weights' dtype, bf16", "use --zero 1",
      0 },
    { "zero=3 grad_dtype=fp32 framework=megatron-deepspeed "
      "precision=fp16-mixed",
      C, "grad_dtype", "zero 3, whose gradients have", "leave it out", 0 },
    { "framework=fsdp master_dtype=bf16", C, "master_dtype",
      "master_dtype 'bf16' with engine 'fsdp'",
      "the fp32 shards are the master copy", 0 },
    { "framework=torchtitan master_dtype=bf16", C, "master_dtype",
      "with engine 'fsdp2'", "the fp32 shards are the master copy", 0 },
    { "framework=torchtitan zero=0", C, "zero",
      "zero 0 with engine 'fsdp2', which always shards",
      "use --zero 2 or 3, or --framework hf", 0 },
    { "fp32_logits=true framework=megatron", U, "fp32_logits",
      "modelled with hf, torchtitan and torchtune layers", "leave it out", 0 },
    { "fp32_logits=true framework=hf loss=fused", U, "fp32_logits",
      "loss 'standard' only", "leave it out", 0 },
    { "shift_logits=true framework=megatron", U, "shift_logits",
      "'shift_logits' is of hf layers", "leave it out", 0 },
    { "shift_logits=true framework=hf loss=fused", U, "shift_logits",
      "loss 'standard'", "leave it out", 0 },
    { "lora_rank=8 kbit_cast=norms", C, "kbit_cast", "base_dtype 'bf16'",
      "--base-dtype nf4", 0 },
    { "lora_rank=8 base_dtype=nf4 gptq_kernel=triton_v2", C, "gptq_kernel",
      "base_dtype 'nf4'", "--base-dtype int4", 0 },
    { "gptq_kernel=triton_v2", C, "gptq_kernel", "lora_rank", "--lora-rank 16",
      0 },
    { "recompute_in_unit=true framework=fsdp recompute=full", C,
      "recompute_in_unit", "recompute_in_unit without", "leave it out", 0 },
    { "keep_outputs=true framework=torchtitan gpus=2 pp=2 grad_accum=2", U,
      "keep_outputs", "'keep_outputs' with implementation 'torchtitan'",
      "--implementation hf", 0 },
    { "framework=fsdp zero=0", U, "zero",
      "zero 0 with engine 'fsdp' (NO_SHARD) is not modelled yet",
      "use --framework hf", 0 },
    { "optimizer=galore zero=1", U, "optimizer",
      "optimizer 'galore' with engine 'deepspeed' is not modelled yet",
      "--framework hf", 0 },
    { "optimizer=galore8bit framework=fsdp", U, "optimizer", "engine 'fsdp'",
      "--optimizer adamw", 0 },
    { "optimizer=apollo framework=megatron", U, "optimizer",
      "engine 'megatron'", "--framework hf", 0 },
    { "optimizer=apollo framework=fsdp gpus=8", U, "optimizer",
      "sharded states", "--framework hf", 0 },
    { "optimizer=apollo framework=hf lora_rank=8", U, "optimizer",
      "of adapters, which are of low rank already", "leave out --lora-rank",
      0 },
    { "recompute_modules=moe framework=megatron", C, "recompute_modules",
      "names experts", "use core_attn", 0 },
    { "recompute_modules=mla_up_proj framework=megatron", C,
      "recompute_modules", "latent attention", "use core_attn", 0 },
    { "lora_targets=q", C, "lora_targets", "lora_targets without lora_rank",
      "add --lora-rank 16", 0 },
    { "base_dtype=bf16", C, "base_dtype", "without lora_rank", "--lora-rank",
      0 },
    { "lora_rank=8 framework=megatron-deepspeed", U, "lora_rank",
      "lora_rank with framework 'megatron-deepspeed' is not modelled yet",
      "use --framework hf, deepspeed or fsdp", 0 },
    { "lora_rank=8 framework=megatron implementation=paper", U, "lora_rank",
      "lora_rank with implementation 'paper' is not modelled yet",
      "use --implementation megatron", 0 },
    { "lora_rank=8 framework=megatron zero=3", U, "lora_rank",
      "lora_rank with engine 'megatron-fsdp' is not modelled yet",
      "use --zero 1", 0 },
    { "lora_rank=8 framework=megatron lora_targets=q,v", C, "lora_targets",
      "q, k and v are one matrix of Megatron's layers, linear_qkv",
      "use --lora-targets q,k,v", 0 },
    { "lora_rank=8 framework=megatron lora_targets=o,up", C, "lora_targets",
      "gate and up are one matrix of Megatron's layers, linear_fc1",
      "use --lora-targets o,gate,up", 0 },
    { "lora_rank=6 framework=megatron tp=4 gpus=4", C, "lora_rank",
      "lora_rank 6 does not split over tp 4", "use --lora-rank 4", 0 },
    { "lora_rank=8 framework=megatron lora_dtype=fp32", C, "lora_dtype",
      "has adapters in the model's type, bf16", "use --lora-dtype bf16", 0 },
    { "lora_rank=8 framework=megatron base_dtype=nf4", C, "base_dtype",
      "has frozen weights in the model's type, bf16", "use --base-dtype bf16",
      0 },
    { "lora_rank=8 framework=megatron lora_full_modules=head", C,
      "lora_full_modules", "trains nothing beside adapters", "leave it out",
      0 },
    { "params=7B", C, "params", "params beside a model", "leave it out", 0 },
    { "offload_optimizer=cpu zero=0 framework=deepspeed", C,
      "offload_optimizer", "with zero 0", "add --zero 1, 2 or 3", 0 },
    { "offload_optimizer=cpu framework=fsdp", C, "offload_optimizer",
      "with engine 'fsdp'", "--offload-params cpu", 0 },
    { "offload_params=cpu framework=fsdp offload_optimizer=none", C,
      "offload_params", "without the optimizer", "leave offload_optimizer out",
      0 },
    { "offload_params=cpu framework=deepspeed zero=2", C, "offload_params",
      "offload_params 'cpu' with zero 2", "use --zero 3", 0 },
    { "offload_params=nvme engine=fsdp2 zero=3", C, "offload_params",
      "has no place on disk", "--offload-params cpu", 0 },
    { "offload_optimizer=nvme framework=deepspeed zero=2", C,
      "offload_optimizer", "with zero 2", "use --zero 3", 0 },
    { "offload_optimizer=nvme framework=deepspeed zero=3 optimizer=lion", U,
      "offload_optimizer", "another optimizer", "adamw", 0 },
    { "offload_optimizer=nvme framework=deepspeed zero=3 optimizer_buffers=3",
      C, "optimizer_buffers", "fewer swap buffers", "4 or more", 0 },
    { "offload_params=nvme framework=deepspeed zero=3 param_buffer_size=1e6", C,
      "param_buffer_size", "less than a shard of the embedding",
      "use --param-buffer-size", 0 },
    { "offload_optimizer=nvme framework=megatron zero=1", C,
      "offload_optimizer", "no place on disk", "--offload-optimizer cpu", 0 },
    { "offload_optimizer=cpu framework=megatron zero=0", C, "offload_optimizer",
      "without the distributed optimizer", "--zero 1", 0 },
    { "offload_params=cpu framework=megatron", U, "offload_params",
      "with engine 'megatron'", "keeps its weights on the GPU", 0 },
    { "framework=deepspeed tp=2", U, "tp",
      "DeepSpeed's AutoTP (tp 2) is not modelled yet",
      "--engine fsdp2, or megatron", 0 },
    { "framework=fsdp engine=fsdp gpus=4 tp=2", C, "tp",
      "tp 2 with FSDP 1, which takes no DTensors", "--engine fsdp2", 0 },
    { "framework=torchtitan engine=fsdp pp=2", U, "pp",
      "pp 2 with engine 'fsdp' is not modelled yet", "--framework megatron",
      0 },
    { "pp=2 schedule=zb-h1 framework=torchtitan", U, "schedule",
      "schedule 'zb-h1' with implementation 'torchtitan' is not modelled",
      "1f1b", 0 },
    { "pp=3 schedule=dualpipe framework=megatron", C, "pp", "odd", "--pp 4",
      0 },
    { "pp=2 schedule=dualpipe framework=megatron grad_accum=2", C, "grad_accum",
      "cannot run 2 micro-batches", "4 or more", 0 },
    { "pp=2 vpp=2 schedule=zb-h1 framework=megatron", C, "vpp", "no chunks",
      "interleaved", 0 },
    { "pp=2 vpp=2 schedule=zb-v framework=megatron", C, "vpp",
      "its own two chunks", "leave vpp out", 0 },
    { "pp=32 schedule=zb-v framework=megatron", C, "pp",
      "32 layers do not split over 2 x pp 32", "even", 0 },
    { "pp=2 schedule=dualpipe-v framework=megatron grad_accum=3", C,
      "grad_accum", "cannot run 3 micro-batches", "use 4 or more", 0 },
    { "engine=megatron-fsdp zero=2", U, "zero",
      "zero 2 with engine 'megatron-fsdp'", "use --zero 3", 0 },
    { "cuda_graph=true", U, "cuda_graph", "reduce-overhead",
      "--framework megatron", 0 },
    { "cuda_graph=true framework=megatron implementation=megatron-local", U,
      "cuda_graph", "Transformer Engine's layers alone", "--framework megatron",
      0 },
    { "cuda_graph=true framework=megatron engine=megatron-fsdp", U,
      "cuda_graph", "Megatron's own engine", "--framework megatron", 0 },
    { "cuda_graph=true framework=megatron cuda_graph_impl=local", U,
      "cuda_graph_impl", "'local' is not modelled", "transformer_engine", 0 },
    { "cuda_graph=true framework=megatron cuda_graph_impl=full_iteration", U,
      "cuda_graph_impl", "'full_iteration' is not modelled",
      "transformer_engine", 0 },
    { "cuda_graph=true framework=megatron cuda_graph_scope=mamba", C,
      "cuda_graph_scope", "no such layers", "leave out mamba", 0 },
    { "cuda_graph=true framework=megatron cuda_graph_scope=moe", U,
      "cuda_graph_scope", "padded to a capacity", "moe_router", 'm' },
    { "cuda_graph=true framework=megatron cuda_graph_scope=attn,moe_router", C,
      "cuda_graph_scope", "which the model has not", "attn,mlp", 0 },
    { "cuda_graph=true framework=megatron cuda_graph_scope=moe_preprocess", C,
      "cuda_graph_scope", "without 'moe_router'", "add moe_router", 'm' },
    { "cuda_graph=true framework=megatron cuda_graph_scope=mlp", C,
      "cuda_graph_scope", "without dense layers", "use attn", 'm' },
    { "cuda_graph=true framework=megatron", U, "cuda_graph_scope",
      "whole layers of experts", "--cuda-graph-scope attn", 'm' },
    { "cuda_graph=true framework=megatron moe_expert_capacity_factor=2 "
      "cuda_graph_scope=moe_router,moe_preprocess",
      C, "cuda_graph_scope", "with a capacity", "leave out moe_preprocess",
      'm' },
    { "cuda_graph=true framework=megatron moe_dispatcher=allgather "
      "cuda_graph_scope=attn,moe_router",
      U, "cuda_graph_scope", "this dispatcher", "alltoall", 'm' },
    { "cuda_graph=true framework=megatron recompute=full", C, "cuda_graph",
      "recompute 'full'", "selective", 0 },
    { "cuda_graph=true framework=megatron recompute_modules=moe "
      "cuda_graph_scope=moe_router",
      C, "cuda_graph_scope", "recompute_modules 'moe'", "moe_act", 'm' },
    { "cuda_graph=true framework=megatron recompute_modules=layernorm "
      "cuda_graph_scope=moe_router",
      U, "cuda_graph_scope", "recompute_modules 'layernorm'",
      "leave out one of them", 'm' },
    { "cuda_graph=true framework=megatron offload_modules=core_attn", U,
      "cuda_graph", "activations on the host", "leave one of them out", 0 },
    { "cuda_graph=true framework=megatron gpus=8 ep=2 ep_overlap=true "
      "cuda_graph_scope=attn",
      U, "cuda_graph", "with ep_overlap", "leave one of them out", 'm' },
    { "cuda_graph=true framework=megatron gpus=4 pp=4 schedule=zb-h1 "
      "grad_accum=8",
      U, "cuda_graph", "1f1b and interleaved", "leave out --schedule", 0 },
    { "cuda_graph_scope=attn framework=megatron", C, "cuda_graph_scope",
      "without cuda_graph", "--cuda-graph true", 0 },
    { "ep_overlap=true", C, "ep_overlap", "outside of Megatron",
      "--framework megatron", 0 },
    { "ep_overlap=true framework=megatron", C, "ep_overlap",
      "a model without experts", "leave it out", 0 },
    { "ep_overlap=true framework=megatron", C, "ep_overlap",
      "without expert parallelism", "--ep 2", 'm' },
    { "ep_overlap=true framework=megatron engine=megatron-fsdp zero=3 gpus=8 "
      "ep=2",
      U, "ep_overlap", "with this engine", "--engine megatron", 'm' },
    { "ep_overlap=true framework=megatron gpus=8 ep=2 moe_dispatcher=allgather",
      C, "ep_overlap", "a dispatcher that gathers", "alltoall", 'm' },
    { "ep_overlap=true framework=megatron gpus=8 ep=2 pp=2 grad_accum=4", C,
      "ep_overlap", "without virtual stages", "--vpp 2", 'm' },
    { "ep_overlap=true framework=megatron gpus=8 ep=2 recompute=full", C,
      "ep_overlap", "recompute 'full'", "selective", 'm' },
    { "ep_overlap=true framework=megatron gpus=8 ep=2 recompute_modules=moe", C,
      "ep_overlap", "recompute_modules 'moe'", "moe_act", 'm' },
    { "ep_overlap=true framework=megatron gpus=8 ep=2 precision=fp32", C,
      "ep_overlap", "without bf16 or fp16", "--precision bf16-mixed", 'm' },
    { "ep_overlap=true framework=megatron gpus=8 ep=2 "
      "offload_modules=core_attn",
      U, "ep_overlap", "activations on the host", "leave one of them out",
      'm' },
    { "ep_overlap=true framework=megatron gpus=8 ep=2", C, "ep_overlap",
      "more than one layer of multi-token prediction", "leave it out", 'p' },
    { "ep_overlap_early_attn_memory_release=true", C,
      "ep_overlap_early_attn_memory_release", "without ep_overlap",
      "--ep-overlap true", 0 },
    { "delay_wgrad_compute=true", C, "delay_wgrad_compute",
      "without ep_overlap", "--ep-overlap true", 0 },
    { "ep_overlap=true framework=megatron gpus=8 ep=2 delay_wgrad_compute=true "
      "implementation=megatron-local",
      C, "delay_wgrad_compute", "which delay nothing",
      "--implementation megatron", 'm' },
    { "ep_overlap=true framework=megatron gpus=8 ep=2 delay_wgrad_compute=true "
      "grad_accum_fusion=false",
      U, "delay_wgrad_compute", "without fused gradients of weights",
      "--grad-accum-fusion true", 'm' },
    { "ep_overlap=true framework=megatron gpus=8 ep=2 tp=2 "
      "delay_wgrad_compute=true grad_accum_fusion=true",
      U, "delay_wgrad_compute", "with tensor parallelism", "--tp 1", 'm' },
    { "compile=true", U, "compile", "'compile'", "leave it out", 0 },
    { "framework=megatron compile=true", U, "compile", "for megatron layers",
      "--implementation torchtitan", 0 },
    { "offload_params=cpu", U, "offload_params", "engine 'ddp'",
      "--framework deepspeed", 0 },
    { "offload_activations=cpu framework=megatron", C, "offload_activations",
      "without cpu_offloading_num_layers", "--cpu-offloading-num-layers", 0 },
    { "offload_activations=cpu framework=torchtitan", U, "offload_activations",
      "for torchtitan layers", "--framework hf, torchtune", 0 },
    { "cpu_offloading_num_layers=3", C, "cpu_offloading_num_layers",
      "with implementation 'hf'", "--framework megatron", 0 },
    { "cpu_offloading_num_layers=3 framework=megatron-deepspeed zero=1", C,
      "cpu_offloading_num_layers", "with engine 'deepspeed'",
      "--framework megatron", 0 },
    { "cpu_offloading_num_layers=3 framework=megatron offload_activations=none",
      C, "offload_activations", "'none' with cpu_offloading_num_layers 3",
      "leave one of them out", 0 },
    { "cpu_offloading_num_layers=3 framework=megatron pp=2 gpus=2", C,
      "cpu_offloading_num_layers", "with pp 2", "--pp 1", 0 },
    { "cpu_offloading_num_layers=3 framework=megatron recompute=selective", C,
      "cpu_offloading_num_layers", "with recomputation", "--recompute none",
      0 },
    { "offload_modules=core_attn", C, "offload_modules",
      "with implementation 'hf'", "--framework megatron", 0 },
    { "offload_modules=core_attn framework=megatron-deepspeed zero=1", C,
      "offload_modules", "with engine 'deepspeed'", "--framework megatron", 0 },
    { "offload_modules=core_attn framework=megatron offload_activations=none",
      C, "offload_activations", "'none' with offload_modules",
      "leave one of them out", 0 },
    { "offload_modules=core_attn framework=megatron "
      "cpu_offloading_num_layers=3",
      C, "offload_modules", "with cpu_offloading_num_layers",
      "leave one of them out", 0 },
    { "offload_modules=attn_proj framework=megatron", C, "offload_modules",
      "'attn_proj' without 'core_attn'", "add core_attn", 0 },
    { "offload_modules=core_attn framework=megatron recompute=full", U,
      "offload_modules", "with recompute 'full'", "--recompute selective", 0 },
    { "offload_modules=core_attn framework=megatron pp=2 gpus=2 "
      "schedule=gpipe",
      U, "offload_modules", "for schedules 1f1b and interleaved",
      "leave out --schedule", 0 },
    { "min_offloaded_tensor_size=1k framework=megatron", C,
      "min_offloaded_tensor_size", "offload_modules",
      "add --offload-modules core_attn", 0 },
    { "offload_activations=cpu framework=torchtune", U, "offload_activations",
      "without recompute 'full'", "--recompute full", 0 },
    { "offload_activations=cpu framework=fsdp gpus=8", U, "offload_activations",
      "without recompute 'full' is not modelled yet with engine 'fsdp'",
      "--recompute full", 0 },
    { "offload_activations=nvme", U, "offload_activations",
      "'nvme' without recompute 'full'", "--recompute full", 0 },
    { "offload_activations=nvme recompute=full framework=torchtune", U,
      "offload_activations", "with implementation 'torchtune'",
      "--offload-activations cpu, or --framework hf", 0 },
    { "lora_rank=8 double_quant=true", C, "double_quant", "base_dtype 'bf16'",
      "--base-dtype nf4", 0 },
    { "lora_rank=8 base_dtype=int4 double_quant=true", C, "double_quant",
      "base_dtype 'int4'", "--base-dtype nf4", 0 },
    { "lora_dropout=0.1", C, "lora_dropout", "without lora_rank", "--lora-rank",
      0 },
    { "keep_outputs=true framework=megatron", U, "keep_outputs",
      "implementation 'megatron'", "leave it out", 0 },
    { "recompute=ops", U, "recompute", "'ops'", "--recompute full", 0 },
    { "framework=torchtitan fp8_params=true recompute=ops", U, "fp8_params",
      "'fp8_params'", "leave it out", 0 },
    { "gpus=8 tp=8 sequence_parallel=true seq_len=4", C, "tp",
      "seq_len 4 is not a multiple of 8", "use --seq-len 8", 0 },
    { "gpus=5040 tp=11 seq_len=4092", C, "tp",
      "5040 GPUs cannot be split into tp 11", "use 1", 'e' },
    { "gpus=5040 zero=3 shard_degree=11", C, "shard_degree",
      "shard_degree 11 does not divide the 5040",
      "use 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14 ...", 0 },
    { "gpus=11 tp=11 seq_len=4092", C, "tp", "1000 hidden channels do not",
      "use 1", 'h' },
    { "gpus=11 tp=11 seq_len=4092", C, "tp", "1000 feed-forward channels do",
      "use 1", 'f' },
    { "gpus=11 tp=11 seq_len=4092", C, "tp", "1000 shared-expert channels do",
      "use 1", 's' },
    { "etp=8 tp=2 gpus=8 ep=2", C, "etp",
      "etp 8 does not divide the 4 ranks that hold the same experts",
      "use 1, 2 or 4", 'm' },
    { "framework=megatron loss=fused deterministic=true", C, "deterministic",
      "deterministic with loss 'fused'", "leave it out, or use", 0 },
    { "framework=fsdp optimizer_in_backward=true gpus=8", U,
      "optimizer_in_backward", "with engine 'fsdp' on 8 GPUs", "leave it out",
      0 },
    { "framework=hf optimizer_in_backward=true zero_grad_set_to_none=false", C,
      "zero_grad_set_to_none", "with optimizer_in_backward",
      "leave out --zero-grad-set-to-none", 0 },
    { "optimizer=rmsprop optimizer_impl=foreach-2.0", U, "optimizer_impl",
      "'foreach-2.0' with optimizer 'rmsprop'", "--optimizer-impl foreach", 0 },
    { "framework=hf optimizer_in_backward=true grad_accum=2", C,
      "optimizer_in_backward", "with 2 micro-batches", "--grad-accum 1", 0 },
    { "precision=fp4-mixed gpu=b200", U, "precision", "'fp4-mixed'",
      "fp8-mixed", 0 },
    { "precision=fp4-mixed gpu=b200 framework=torchtitan gpus=8", U,
      "precision", "Transformer Engine alone", "--framework megatron", 0 },
    { "precision=fp4-mixed gpu=mi355x framework=megatron", C, "precision",
      "are Blackwell's", "--gpu b200", 0 },
    { "precision=fp4-mixed gpu=b200 framework=megatron fp8_recipe=mxfp8", C,
      "fp8_recipe", "'mxfp8' with precision", "leave it out", 0 },
    { "precision=fp8-mixed gpu=b200 framework=megatron fp8_recipe=nvfp4", C,
      "fp8_recipe", "in 4 bits", "--precision fp4-mixed", 0 },
    { "precision=fp4-mixed gpu=b200 framework=megatron fp8_params=true", U,
      "fp8_params", "not modelled yet", "leave it out", 0 },
    { "precision=fp4-mixed gpu=b200 framework=megatron tp=2 gpus=2 "
      "tp_comm_overlap=true",
      U, "tp_comm_overlap", "not modelled yet", "leave it out", 0 },
    { "precision=fp4-mixed gpu=b200 framework=megatron "
      "activation_func_fp8_input_store=true",
      U, "activation_func_fp8_input_store", "not modelled yet", "leave it out",
      0 },
    { "precision=bf16-mixed gpu=b200 framework=megatron fp8_recipe=nvfp4", C,
      "fp8_recipe", "with precision 'bf16-mixed'", "--precision fp4-mixed", 0 },
    { "fp8_params=true precision=fp8-mixed gpu=h100 framework=torchtitan "
      "engine=ddp",
      U, "fp8_params", "'fp8_params'", "leave it out", 0 },
    { "framework=torchtitan gpus=8 zero=2 reshard_after_forward=true", C,
      "reshard_after_forward", "with zero 2", "--zero 3", 0 },
    { "framework=fsdp engine=fsdp2 gpus=8 use_orig_params=true", C,
      "use_orig_params", "no flat parameters", "--engine fsdp", 0 },
#undef C
#undef U
};

static void impossible_layouts_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_layouts) / sizeof(bad_layouts[0]); i++) {
        const struct bad_layout *b = &bad_layouts[i];
        resolve_as(b->model ? b->model : 'l', b->pairs);
        if (cs.errs.count != 1 || cs.status != b->status) {
            print_error("%s: %zu errors, status %d\n", b->pairs, cs.errs.count,
                        (int)cs.status);
            for (size_t k = 0; k < cs.errs.count && k < ERRORS_MAX; k++)
                print_error("    %s (%s)\n", cs.slot[k].message,
                            cs.slot[k].hint);
        }
        assert_int_equal(cs.errs.count, 1);
        assert_int_equal(cs.status, b->status);
        assert_has(cs.slot[0].message, b->message);
        assert_has(cs.slot[0].hint, b->hint);
        assert_string_equal(cs.slot[0].key, b->key);
    }
}

/* Each stage that a refused grad_dtype's hint names has it: the hint is taken,
 * as it is written, for all formats, with adapters, offloading and without. */
static void follow_stages(const char *pairs, uint64_t *followed)
{
    char hint[256], again[256];
    resolve_as('l', pairs);
    if (cs.errs.count == 0 || strcmp(cs.slot[0].key, "grad_dtype") != 0)
        return;
    (void)snprintf(hint, sizeof(hint), "%s", cs.slot[0].hint);
    const char *at = strstr(hint, "--zero ");
    for (at = at ? at + strlen("--zero ") : ""; *at != '\0'; at++) {
        if (*at < '0' || *at > '3')
            continue;
        (void)snprintf(again, sizeof(again), "%s zero=%c", pairs + 7, *at);
        resolve_as('l', again);
        if (cs.errs.count != 0)
            print_error("%s: %s\n", again, cs.slot[0].message);
        assert_int_equal(cs.errs.count, 0);
        ++*followed;
    }
}

static void hinted_stages_have_the_dtype(void **state)
{
    (void)state;
    static const char *const formats[] = { "bf16-mixed", "fp16-mixed", "fp32",
                                           "bf16-amp", "fp16-amp" };
    static const char *const grads[] = { "fp32", "bf16", "fp16" };
    static const char *const others[] = {
        "framework=deepspeed", "framework=deepspeed lora_rank=8",
        "framework=deepspeed offload_optimizer=cpu",
        "framework=megatron-deepspeed"
    };
    uint64_t followed = 0;
    for (size_t i = 0; i < 4 * 5 * 3 * 4; i++) {
        char pairs[256];
        (void)snprintf(pairs, sizeof(pairs),
                       "zero=%zu %s gpus=8 precision=%s grad_dtype=%s", i % 4,
                       others[i / 60], formats[i / 12 % 5], grads[i / 4 % 3]);
        follow_stages(pairs, &followed);
    }
    assert_true(followed > 50);
}

static void all_reasons_are_reported(void **state)
{
    (void)state;
    resolve_as('l', "gpus=64 tp=3 zero=2 framework=megatron "
                    "cuda_graph=true cuda_graph_impl=local "
                    "recompute_layers=2");
    assert_int_equal(cs.status, MEMPLAN_E_CONFLICT);
    assert_int_equal(cs.errs.count, 5);
}

static void reports_without_room(void **state)
{
    (void)state;
    memset(&cs, 0, sizeof(cs));
    diag_init(&cs.diag, NULL);
    assert_int_equal(set("gpus", "x"), MEMPLAN_E_ARG);
    assert_int_equal(set("gpus", "64"), MEMPLAN_OK);
    assert_int_equal(set("tp", "3"), MEMPLAN_OK);
    diag_init(&cs.diag, NULL);
    struct spec s = llama();
    assert_int_equal(setup_resolve(&cs.run, &cs.setup, &s, 1, &cs.diag),
                     MEMPLAN_E_CONFLICT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_sound),
        cmocka_unit_test(groups_stay_together),
        cmocka_unit_test(every_key_is_settable),
        cmocka_unit_test(words_are_their_enum),
        cmocka_unit_test(dtype_keys_store_the_enum),
        cmocka_unit_test(bad_values_are_refused),
        cmocka_unit_test(hints_out_of_range_are_taken),
        cmocka_unit_test(negative_counts_are_refused),
        cmocka_unit_test(a_refused_value_changes_nothing),
        cmocka_unit_test(setup_files_are_read),
        cmocka_unit_test(bad_setup_files_are_refused),
        cmocka_unit_test(defaults_by_framework),
        cmocka_unit_test(nothing_set),
        cmocka_unit_test(what_is_given_is_not_assumed),
        cmocka_unit_test(every_key_is_echoed),
        cmocka_unit_test(layouts_are_resolved),
        cmocka_unit_test(experts_are_spread),
        cmocka_unit_test(models_set_limits),
        cmocka_unit_test(hardware_is_resolved),
        cmocka_unit_test(adapters_are_resolved),
        cmocka_unit_test(masters_and_moments),
        cmocka_unit_test(a_kernel_of_flash_alone),
        cmocka_unit_test(selective_recomputation),
        cmocka_unit_test(without_a_model),
        cmocka_unit_test(keys_that_need_a_model),
        cmocka_unit_test(formats_a_gpu_lacks),
        cmocka_unit_test(budgets_decide_tokens),
        cmocka_unit_test(what_is_said),
        cmocka_unit_test(what_has_no_room_is_counted),
        cmocka_unit_test(what_has_no_effect_has_none),
        cmocka_unit_test(bare_runs),
        cmocka_unit_test(impossible_layouts_are_refused),
        cmocka_unit_test(hinted_stages_have_the_dtype),
        cmocka_unit_test(all_reasons_are_reported),
        cmocka_unit_test(reports_without_room),
    };
    return cmocka_run_group_tests_name("setup", tests, NULL, NULL);
}
