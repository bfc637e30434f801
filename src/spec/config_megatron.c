/*
 * Owns the dialect of Megatron-LM's arguments, and of torchrun's before them.
 * [megatron/training/arguments.py, core_v0.16; torch/distributed/run.py]
 */
#include "spec/config.h"

#include "base/unit.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

static const struct config_row rows[] = {
    /* layout */
    SAME("tensor_model_parallel_size", KEY_TP),
    SAME("pipeline_model_parallel_size", KEY_PP),
    SAME("context_parallel_size", KEY_CP),
    SAME("expert_model_parallel_size", KEY_EP),
    SAME("expert_tensor_parallel_size", KEY_ETP),
    SAME("sequence_parallel", KEY_SEQUENCE_PARALLEL),
    WORDS("cp_comm_type", KEY_CP_COMM, "p2p=p2p a2a=a2a"),
    LATER("nnodes"),
    LATER("nproc_per_node"),
    LATER("num_layers_per_virtual_pipeline_stage"),
    LATER("num_virtual_stages_per_pipeline_rank"),
    LATER("decoder_first_pipeline_num_layers"),
    LATER("decoder_last_pipeline_num_layers"),
    LATER("account_for_embedding_in_pipeline_split"),
    LATER("account_for_loss_in_pipeline_split"),
    LATER("pipeline_model_parallel_layout"),

    /* batches */
    SAME("micro_batch_size", KEY_MICRO_BATCH),
    SAME("global_batch_size", KEY_GLOBAL_BATCH),
    SAME("seq_length", KEY_SEQ_LEN),
    SAME("encoder_seq_length", KEY_SEQ_LEN),
    SAME("decoder_seq_length", KEY_DECODER_SEQ_LEN),
    ASIDE("rampup_batch_size", "the full batch is assumed"),

    /* number formats, optimizer, who holds the states */
    LATER("bf16"),
    LATER("fp16"),
    LATER("fp8_format"),
    WORDS("fp8_recipe", KEY_FP8_RECIPE,
          "delayed=delayed tensorwise=tensorwise blockwise=blockwise "
          "mxfp8=mxfp8"),
    SAME("fp8_param_gather", KEY_FP8_PARAMS),
    ASIDE("fp4_format", "see --precision fp4-mixed"),
    LATER("accumulate_allreduce_grads_in_fp32"),
    LATER("grad_reduce_in_bf16"),
    WORDS("optimizer", KEY_OPTIMIZER,
          "adam=adamw sgd=momentum muon=muon dist_muon=muon"),
    LATER("use_distributed_optimizer"),
    LATER("num_distributed_optimizer_instances"),
    LATER("use_megatron_fsdp"),
    LATER("use_custom_fsdp"),
    LATER("use_torch_fsdp2"),
    LATER("data_parallel_sharding_strategy"),
    SAME("overlap_grad_reduce", KEY_OVERLAP_COMM),
    QUIET("overlap_param_gather"),
    QUIET("use_precision_aware_optimizer"),
    SAME("main_grads_dtype", KEY_GRAD_DTYPE),
    SAME("main_params_dtype", KEY_MASTER_DTYPE),
    SAME("exp_avg_dtype", KEY_OPTIMIZER_DTYPE),
    LATER("exp_avg_sq_dtype"),
    WORDS("optimizer_cpu_offload", KEY_OFFLOAD_OPTIMIZER, "true=cpu false="),
    LATER("clip_grad"),

    /* layers */
    LATER("recompute_granularity"),
    LATER("recompute_method"),
    LATER("recompute_num_layers"),
    LATER("recompute_modules"),
    LATER("recompute_activations"),
    LATER("attention_backend"),
    LATER("transformer_impl"),
    LATER("use_flash_attn"),
    LATER("use_mcore_models"),
    WORDS("cross_entropy_loss_fusion", KEY_LOSS, "true=fused false="),
    WORDS("cross_entropy_fusion_impl", KEY_CE_FUSION, "te=te native=native"),
    LATER("no_create_attention_mask_in_dataloader"),
    SAME("deterministic_mode", KEY_DETERMINISTIC),
    WORDS("no_gradient_accumulation_fusion", KEY_GRAD_ACCUM_FUSION,
          "true=false"),
    WORDS("no_masked_softmax_fusion", KEY_FUSED_SOFTMAX, "true=false"),
    WORDS("moe_token_dispatcher_type", KEY_MOE_DISPATCHER,
          "alltoall=alltoall allgather=allgather"),
    LATER("moe_grouped_gemm"),
    SAME("moe_expert_capacity_factor", KEY_MOE_CAPACITY_FACTOR),
    SAME("moe_pad_expert_input_to_capacity", KEY_MOE_PAD_TO_CAPACITY),
    WORDS("enable_cuda_graph", KEY_CUDA_GRAPH, "true=true false="),
    WORDS("cuda_graph_impl", KEY_CUDA_GRAPH,
          "none= local=true transformer_engine=true"),
    SAME("overlap_moe_expert_parallel_comm", KEY_EP_OVERLAP),
    LATER("hidden_dropout"),
    LATER("attention_dropout"),
    LATER("make_vocab_size_divisible_by"),
    ASIDE("cpu_offloading_num_layers", "see --offload-activations"),

    /* the model's own */
    SHAPE("num_layers"),
    SHAPE("encoder_num_layers"),
    SHAPE("decoder_num_layers"),
    SHAPE("hidden_size"),
    SHAPE("ffn_hidden_size"),
    SHAPE("num_attention_heads"),
    SHAPE("kv_channels"),
    SHAPE("group_query_attention"),
    SHAPE("num_query_groups"),
    SHAPE("max_position_embeddings"),
    SHAPE("position_embedding_type"),
    SHAPE("use_rotary_position_embeddings"),
    SHAPE("rotary_percent"),
    SHAPE("rotary_base"),
    SHAPE("no_position_embedding"),
    SHAPE("normalization"),
    SHAPE("norm_epsilon"),
    SHAPE("apply_layernorm_1p"),
    SHAPE("swiglu"),
    SHAPE("squared_relu"),
    SHAPE("disable_bias_linear"),
    SHAPE("add_qkv_bias"),
    SHAPE("untie_embeddings_and_output_weights"),
    SHAPE("qk_layernorm"),
    SHAPE("multi_latent_attention"),
    SHAPE("q_lora_rank"),
    SHAPE("kv_lora_rank"),
    SHAPE("qk_head_dim"),
    SHAPE("qk_pos_emb_head_dim"),
    SHAPE("v_head_dim"),
    SHAPE("num_experts"),
    SHAPE("moe_router_topk"),
    SHAPE("moe_ffn_hidden_size"),
    SHAPE("moe_layer_freq"),
    SHAPE("moe_shared_expert_intermediate_size"),
    SHAPE("mtp_num_layers"),
    SHAPE("vocab_size"),
    SHAPE("window_size"),

    /* what is not seen in memory */
    QUIET("adam_beta1"),
    QUIET("adam_beta2"),
    QUIET("adam_eps"),
    QUIET("attention_softmax_in_fp32"),
    QUIET("apply_query_key_layer_scaling"),
    QUIET("async_save"),
    QUIET("ckpt_format"),
    QUIET("data_args_path"),
    QUIET("data_cache_path"),
    QUIET("data_path"),
    QUIET("dataloader_type"),
    QUIET("ddp_average_in_collective"),
    QUIET("distributed_backend"),
    QUIET("distributed_timeout_minutes"),
    QUIET("dist_ckpt_strictness"),
    QUIET("eod_mask_loss"),
    QUIET("eval_interval"),
    QUIET("eval_iters"),
    QUIET("exit_duration_in_mins"),
    QUIET("exit_interval"),
    QUIET("exit_signal_handler"),
    QUIET("init_method_std"),
    QUIET("initial_loss_scale"),
    QUIET("load"),
    QUIET("log_interval"),
    QUIET("log_memory_to_tensorboard"),
    QUIET("log_num_zeros_in_grad"),
    QUIET("log_params_norm"),
    QUIET("log_progress"),
    QUIET("log_straggler"),
    QUIET("log_throughput"),
    QUIET("log_timers_to_tensorboard"),
    QUIET("log_validation_ppl_to_tensorboard"),
    QUIET("log_world_size_to_tensorboard"),
    QUIET("logging_level"),
    QUIET("loss_scale"),
    QUIET("loss_scale_window"),
    QUIET("lr"),
    QUIET("lr_decay_iters"),
    QUIET("lr_decay_samples"),
    QUIET("lr_decay_style"),
    QUIET("lr_warmup_fraction"),
    QUIET("lr_warmup_init"),
    QUIET("lr_warmup_iters"),
    QUIET("lr_warmup_samples"),
    QUIET("manual_gc"),
    QUIET("manual_gc_interval"),
    QUIET("master_addr"),
    QUIET("master_port"),
    QUIET("merge_file"),
    QUIET("min_loss_scale"),
    QUIET("min_lr"),
    QUIET("mock_data"),
    QUIET("moe_aux_loss_coeff"),
    QUIET("moe_permute_fusion"),
    QUIET("moe_router_bias_update_rate"),
    QUIET("moe_router_dtype"),
    QUIET("moe_router_enable_expert_bias"),
    QUIET("moe_router_group_topk"),
    QUIET("moe_router_load_balancing_type"),
    QUIET("moe_router_num_groups"),
    QUIET("moe_router_pre_softmax"),
    QUIET("moe_router_score_function"),
    QUIET("moe_router_topk_scaling_factor"),
    QUIET("moe_z_loss_coeff"),
    QUIET("mtp_loss_scaling_factor"),
    QUIET("no_check_for_nan_in_loss_and_grad"),
    QUIET("no_load_optim"),
    QUIET("no_load_rng"),
    QUIET("no_mmap_bin_files"),
    QUIET("no_save_optim"),
    QUIET("no_save_rng"),
    QUIET("node_rank"),
    QUIET("num_workers"),
    QUIET("override_opt_param_scheduler"),
    QUIET("rdzv_backend"),
    QUIET("rdzv_endpoint"),
    QUIET("rdzv_id"),
    QUIET("reset_attention_mask"),
    QUIET("reset_position_ids"),
    QUIET("rerun_mode"),
    QUIET("save"),
    QUIET("save_interval"),
    QUIET("seed"),
    QUIET("sgd_momentum"),
    QUIET("split"),
    QUIET("tensorboard_dir"),
    QUIET("tensorboard_log_interval"),
    QUIET("tensorboard_queue_size"),
    QUIET("test_data_path"),
    QUIET("timing_log_level"),
    QUIET("timing_log_option"),
    QUIET("tokenizer_model"),
    QUIET("tokenizer_type"),
    QUIET("tp_comm_overlap"),
    QUIET("train_data_path"),
    QUIET("train_iters"),
    QUIET("train_samples"),
    QUIET("use_checkpoint_args"),
    QUIET("use_checkpoint_opt_param_scheduler"),
    QUIET("use_dist_ckpt"),
    QUIET("use_tp_pp_dp_mapping"),
    QUIET("valid_data_path"),
    QUIET("vocab_file"),
    QUIET("wandb_entity"),
    QUIET("wandb_exp_name"),
    QUIET("wandb_project"),
    QUIET("wandb_save_dir"),
    QUIET("weight_decay"),
    QUIET("weight_decay_incr_style"),
    QUIET("start_weight_decay"),
    QUIET("end_weight_decay"),
};

/* ---- values of flags ---- */

static bool has(const struct config *c, const char *flag)
{
    return config_at(c, flag) != NULL;
}

/* True as a flag, or as YAML says it. */
static bool is_word(const struct config *c, const char *flag, const char *word)
{
    const struct json *v = config_at(c, flag);
    return v != NULL && v->kind == JSON_STRING && str_is(v->text, word);
}

/* 0 when absent or no number. */
static uint64_t number(const struct config *c, const char *flag)
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

/* Of a flag that has no setup key to complain. */
static uint64_t count(struct config *c, const char *flag)
{
    const struct json *v = config_at(c, flag);
    const uint64_t n = number(c, flag);
    if (v == NULL || n > 0)
        return n;
    memplan_error *e =
        config_bad(c, v, MEMPLAN_E_ARG, "'%s' takes a whole number", flag);
    diag_hint(e, "write the number itself");
    return 0;
}

static void set_count(struct config *c, const char *flag, enum setup_key key,
                      uint64_t n)
{
    char text[UNIT_TEXT_MAX];
    str_format(text, sizeof(text), "%" PRIu64, n);
    config_set(c, config_at(c, flag), key, text);
}

/* ---- layout ---- */

/* The script's name may stand behind torchrun's last flag. */
static bool first_number(const struct json *value, uint64_t *out)
{
    struct str rest;
    return value->kind == JSON_STRING
           && unit_parse_count(str_cut(value->text, ' ', &rest), out) == UNIT_OK
           && *out < UINT32_MAX;
}

/* torchrun's --nproc_per_node may be a word (gpu, auto), --nnodes a range. */
static void world(struct config *c)
{
    const struct json *each = config_at(c, "nproc_per_node");
    const struct json *nodes = config_at(c, "nnodes");
    uint64_t per_node = 0, n = 1;
    if (each == NULL || !first_number(each, &per_node))
        return;
    set_count(c, "nproc_per_node", KEY_GPUS_PER_NODE, per_node);
    if (nodes == NULL || first_number(nodes, &n))
        set_count(c, "nproc_per_node", KEY_GPUS, n * per_node);
    else
        config_note(c, "nnodes is no number there: give --gpus");
}

enum { LAYOUT_MAX = 4096 };

/* "Et*3|(tt|)*6mL", multiplied out; false when it does not read so. */
struct layout {
    struct str in;
    size_t at;
    char out[LAYOUT_MAX];
    size_t n;
};

static uint64_t layout_times(struct layout *l)
{
    uint64_t times = 0;
    if (l->at >= l->in.n || l->in.p[l->at] != '*')
        return 1;
    for (l->at++; l->at < l->in.n && l->in.p[l->at] >= '0'
                  && l->in.p[l->at] <= '9' && times < LAYOUT_MAX;
         l->at++)
        times = times * 10 + (uint64_t)(l->in.p[l->at] - '0');
    return times;
}

/* Repeats what was written from `begin` on. */
static bool layout_repeat(struct layout *l, size_t begin)
{
    const size_t one = l->n - begin;
    const uint64_t times = layout_times(l);
    if (times == 0 || one * times > LAYOUT_MAX - begin)
        return false;
    for (uint64_t i = 1; i < times; i++)
        memcpy(l->out + begin + i * one, l->out + begin, one);
    l->n = begin + one * times;
    return true;
}

static bool layout_spread(struct layout *l)
{
    size_t open = LAYOUT_MAX; /* no parenthesis */
    while (l->at < l->in.n) {
        const char byte = l->in.p[l->at++];
        size_t begin = l->n;
        if (byte == '(') {
            if (open != LAYOUT_MAX)
                return false; /* Megatron has no nested ones */
            open = l->n;
            continue;
        }
        if (byte == ')') {
            if (open == LAYOUT_MAX)
                return false;
            begin = open;
            open = LAYOUT_MAX;
        } else if (l->n < LAYOUT_MAX && memchr("EtmL|", byte, 5) != NULL) {
            l->out[l->n++] = byte;
        } else {
            return false;
        }
        if (!layout_repeat(l, begin))
            return false;
    }
    return open == LAYOUT_MAX;
}

static void set_stages(struct config *c, const char *flag,
                       const uint64_t *stage, uint64_t pp)
{
    char text[LAYOUT_MAX] = "";
    for (uint64_t i = 0; i < pp; i++)
        str_append(text, sizeof(text), i > 0 ? ",%" PRIu64 : "%" PRIu64,
                   stage[i]);
    config_set(c, config_at(c, flag), KEY_PIPELINE_LAYERS, text);
}

static void from_layout(struct config *c, uint64_t pp)
{
    static const char flag[] = "pipeline_model_parallel_layout";
    const struct json *value = config_at(c, flag);
    struct layout l = { .in = value->text };
    uint64_t stage[SETUP_LIST_MAX] = { 0 };
    uint64_t chunks = 1;
    bool good = value->kind == JSON_STRING && layout_spread(&l);
    for (size_t i = 0; good && i < l.n; i++) {
        chunks += l.out[i] == '|';
        stage[(chunks - 1) % pp] += l.out[i] == 't';
    }
    if (!good || chunks % pp != 0) {
        memplan_error *e = config_bad(c, value, MEMPLAN_E_ARG,
                                      "a layout that does not read as stages");
        diag_hint(e,
                  "such as 'Et*3|(tt|)*6mL', with a multiple of %" PRIu64
                  " chunks",
                  pp);
        return;
    }
    set_count(c, flag, KEY_VPP, chunks / pp);
    set_stages(c, flag, stage, pp);
}

/* Stages with fewer layers at the ends: said so, or because the embedding and
 * the head count as layers there. */
static void from_ends(struct config *c, uint64_t pp, uint64_t layers)
{
    const uint64_t first = count(c, "decoder_first_pipeline_num_layers");
    const uint64_t last = count(c, "decoder_last_pipeline_num_layers");
    const bool embedding = has(c, "account_for_embedding_in_pipeline_split");
    const bool loss = has(c, "account_for_loss_in_pipeline_split");
    uint64_t stage[SETUP_LIST_MAX] = { 0 };
    if ((first | last) == 0 && !embedding && !loss)
        return;
    const char *flag = first > 0   ? "decoder_first_pipeline_num_layers"
                       : last > 0  ? "decoder_last_pipeline_num_layers"
                       : embedding ? "account_for_embedding_in_pipeline_split"
                                   : "account_for_loss_in_pipeline_split";
    const uint64_t inner = pp - (first > 0) - (last > 0);
    const uint64_t all = layers + embedding + loss;
    const uint64_t each =
        inner > 0 && all >= first + last ? (all - first - last) / inner : 0;
    if (layers == 0 || each == 0 || each * inner != all - first - last) {
        memplan_error *e = config_bad(c, config_at(c, flag), MEMPLAN_E_CONFLICT,
                                      "%" PRIu64 " layers do not split so over "
                                      "%" PRIu64 " stages",
                                      layers, pp);
        diag_hint(e, "--num-layers of the file says how many there are");
        return;
    }
    for (uint64_t i = 0; i < pp; i++)
        stage[i] = each;
    stage[0] = first > 0 ? first : each - embedding;
    stage[pp - 1] = last > 0 ? last : each - loss;
    set_stages(c, flag, stage, pp);
}

static void pipeline(struct config *c)
{
    const uint64_t pp = number(c, "pipeline_model_parallel_size");
    const uint64_t layers = count(c, "num_layers");
    if (pp <= 1 || pp > SETUP_LIST_MAX)
        return;
    const uint64_t each = count(c, "num_layers_per_virtual_pipeline_stage");
    if (has(c, "pipeline_model_parallel_layout")) {
        from_layout(c, pp);
        return;
    }
    const uint64_t chunks = count(c, "num_virtual_stages_per_pipeline_rank");
    if (chunks > 0)
        set_count(c, "num_virtual_stages_per_pipeline_rank", KEY_VPP, chunks);
    else if (each > 0 && layers >= pp * each)
        set_count(c, "num_layers_per_virtual_pipeline_stage", KEY_VPP,
                  layers / pp / each);
    from_ends(c, pp, layers);
}

/* ---- number formats, states ---- */

static void precision(struct config *c)
{
    const bool bf16 = has(c, "bf16"), fp16 = has(c, "fp16");
    if (bf16 && fp16) {
        memplan_error *e =
            config_bad(c, config_at(c, "fp16"), MEMPLAN_E_CONFLICT,
                       "--bf16 and --fp16 are both given");
        diag_hint(e, "keep one: Megatron refuses both");
        return;
    }
    if (has(c, "fp8_format"))
        config_set(c, config_at(c, "fp8_format"), KEY_PRECISION, "fp8-mixed");
    else
        config_set(c, c->root, KEY_PRECISION,
                   bf16   ? "bf16-mixed"
                   : fp16 ? "fp16-mixed"
                          : "fp32");
    if (has(c, "main_grads_dtype"))
        return;
    if (has(c, "grad_reduce_in_bf16"))
        config_set(c, c->root, KEY_GRAD_DTYPE, "bf16");
    else if (fp16 && !has(c, "accumulate_allreduce_grads_in_fp32"))
        config_set(c, c->root, KEY_GRAD_DTYPE, "fp16");
}

static void states(struct config *c)
{
    static const struct {
        const char *strategy, *zero;
    } strategies[] = { { "no_shard", "0" },
                       { "optim", "1" },
                       { "optim_grads", "2" },
                       { "optim_grads_params", "3" } };
    config_set(c, c->root, KEY_FRAMEWORK, "megatron");
    if (has(c, "use_torch_fsdp2")) {
        config_set(c, c->root, KEY_ENGINE, "fsdp2");
        return;
    }
    if (!has(c, "use_megatron_fsdp") && !has(c, "use_custom_fsdp")) {
        config_set(c, c->root, KEY_ZERO,
                   has(c, "use_distributed_optimizer") ? "1" : "0");
        return;
    }
    config_set(c, c->root, KEY_ENGINE, "megatron-fsdp");
    for (size_t i = 0; i < sizeof(strategies) / sizeof(strategies[0]); i++) {
        if (is_word(c, "data_parallel_sharding_strategy",
                    strategies[i].strategy)
            || (i == 0 && !has(c, "data_parallel_sharding_strategy")))
            config_set(c, c->root, KEY_ZERO, strategies[i].zero);
    }
}

/* The optimizer's shards are copied over so many groups of ranks. */
static void instances(struct config *c)
{
    const uint64_t n = count(c, "num_distributed_optimizer_instances");
    if (n > 1)
        config_note(c,
                    "num_distributed_optimizer_instances %" PRIu64
                    ": add --shard-degree, data-parallel ranks over it",
                    n);
    const struct json *a = config_at(c, "exp_avg_dtype");
    const struct json *b = config_at(c, "exp_avg_sq_dtype");
    const struct str fp32 = STR("fp32");
    const struct str first = a != NULL ? a->text : fp32;
    if (b != NULL && !str_eq(first, b->text))
        config_note(c, "exp_avg_sq_dtype is not modelled apart from "
                       "exp_avg_dtype");
}

/* ---- layers ---- */

static void recompute(struct config *c)
{
    const struct json *how = config_at(c, "recompute_granularity");
    const uint64_t n = count(c, "recompute_num_layers");
    if (how == NULL) {
        if (has(c, "recompute_activations"))
            config_set(c, c->root, KEY_RECOMPUTE, "selective");
        return;
    }
    if (is_word(c, "recompute_granularity", "full")) {
        config_set(c, how, KEY_RECOMPUTE, "full");
        if (n > 0)
            set_count(c, "recompute_num_layers",
                      is_word(c, "recompute_method", "block")
                          ? KEY_RECOMPUTE_LAYERS
                          : KEY_RECOMPUTE_GRANULARITY,
                      n);
        return;
    }
    if (!is_word(c, "recompute_granularity", "selective")) {
        memplan_error *e = config_bad(c, how, MEMPLAN_E_UNKNOWN,
                                      "unknown recompute_granularity");
        diag_hint(e, "write full or selective");
        return;
    }
    config_set(c, how, KEY_RECOMPUTE, "selective");
    const struct json *modules = config_at(c, "recompute_modules");
    char list[256] = "";
    struct str rest = modules != NULL ? modules->text : (struct str){ "", 0 };
    while (rest.n > 0) {
        struct str word = str_cut(rest, ' ', &rest);
        while (word.n > 0 && memchr("[],", word.p[0], 3) != NULL)
            word = (struct str){ word.p + 1, word.n - 1 };
        while (word.n > 0 && memchr("[],", word.p[word.n - 1], 3) != NULL)
            word.n--;
        if (word.n > 0)
            str_append(list, sizeof(list), "%s%.*s", list[0] ? "," : "",
                       (int)word.n, word.p);
    }
    if (list[0] != '\0')
        config_set(c, modules, KEY_RECOMPUTE_MODULES, list);
}

/* CUBLAS_WORKSPACE_CONFIG=:4096:8, of a script's or YAML's environment. */
static bool says_deterministic(const struct config *c)
{
    static const char name[] = "CUBLAS_WORKSPACE_CONFIG";
    static const char value[] = ":4096:8";
    enum { BETWEEN = 4 }; /* "=", ": ", quotes */
    const size_t n = sizeof(name) - 1, m = sizeof(value) - 1;
    for (size_t i = 0; i + n + m <= c->len; i++) {
        if (memcmp(c->text + i, name, n) != 0)
            continue;
        for (size_t k = 0; k <= BETWEEN && i + n + k + m <= c->len; k++) {
            if (memcmp(c->text + i + n + k, value, m) == 0)
                return true;
        }
    }
    return false;
}

static void kernels(struct config *c)
{
    const bool local = is_word(c, "transformer_impl", "local")
                       || is_word(c, "attention_backend", "local");
    if (local)
        config_set(c, c->root, KEY_IMPLEMENTATION, "megatron-local");
    if (is_word(c, "attention_backend", "unfused")
        || (local && !has(c, "use_flash_attn")))
        config_set(c, c->root, KEY_ATTENTION, "eager");
    else
        config_set(c, c->root, KEY_ATTENTION, "flash");
    config_set(c, c->root, KEY_ATTENTION_MASK,
               has(c, "no_create_attention_mask_in_dataloader") ? "none"
                                                                : "dataloader");
    if (!has(c, "sequence_parallel"))
        config_set(c, c->root, KEY_SEQUENCE_PARALLEL, "false");
    if (!has(c, "no_gradient_accumulation_fusion"))
        config_set(c, c->root, KEY_GRAD_ACCUM_FUSION, "true");
    if (!has(c, "deterministic_mode"))
        config_set(c, c->root, KEY_DETERMINISTIC,
                   says_deterministic(c) ? "true" : "false");
    if (has(c, "num_experts"))
        config_set(c, c->root, KEY_GROUPED_GEMM,
                   has(c, "moe_grouped_gemm") ? "true" : "false");
    if (count(c, "make_vocab_size_divisible_by") > 0) {
        const uint64_t tp = number(c, "tensor_model_parallel_size");
        set_count(c, "make_vocab_size_divisible_by", KEY_VOCAB_MULTIPLE,
                  count(c, "make_vocab_size_divisible_by") * (tp > 0 ? tp : 1));
    }
}

/* Megatron drops 0.1 out everywhere unless told otherwise. */
static void dropout(struct config *c)
{
    static const char *const flags[] = { "hidden_dropout",
                                         "attention_dropout" };
    double p[2] = { 0.1, 0.1 };
    for (size_t i = 0; i < 2; i++) {
        const struct json *v = config_at(c, flags[i]);
        if (v != NULL && v->kind == JSON_NUMBER)
            p[i] = v->number;
        else if (v != NULL)
            unit_parse_real(v->text, &p[i]);
    }
    if (p[0] < p[1] || p[0] > p[1]) {
        config_note(c, "hidden_dropout and attention_dropout differ: the "
                       "model's are used (--dropout)");
        return;
    }
    char text[UNIT_TEXT_MAX];
    config_set(c, c->root, KEY_DROPOUT, unit_format_double(text, p[0]));
}

static void together(struct config *c)
{
    world(c);
    pipeline(c);
    states(c);
    precision(c);
    instances(c);
    config_clipping(c, "clip_grad");
    recompute(c);
    kernels(c);
    dropout(c);
}

const struct config_table config_megatron = {
    rows,
    sizeof(rows) / sizeof(rows[0]),
    false,
    together,
};
