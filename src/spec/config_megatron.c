/*
 * Owns the dialect of Megatron-LM's arguments, and of torchrun's before them.
 * [megatron/training/arguments.py, core_v0.16; torch/distributed/run.py]
 */
#include "spec/config_megatron.h"
#include "spec/config_emit.h"

#include "base/unit.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

static const struct config_row rows[] = {
    /* layout */
    SAME("tensor_model_parallel_size", KEY_TP),
    SAME("pipeline_model_parallel_size", KEY_PP),
    SAME("context_parallel_size", KEY_CP),
    SAME_GIVEN("expert_model_parallel_size", KEY_EP),
    SAME_GIVEN("expert_tensor_parallel_size", KEY_ETP),
    SAME("sequence_parallel", KEY_SEQUENCE_PARALLEL),
    WORDS_GIVEN("cp_comm_type", KEY_CP_COMM,
                "p2p=p2p a2a=a2a all_gather=all_gather allgather=? a2a+p2p=?"),
    LATER("nnodes"),
    LATER("nproc_per_node"),
    LATER("num_gpus"), /* deepspeed's */
    LATER("hostfile"),
    LATER("include"),
    LATER("num_processes"), /* accelerate's */
    LATER("num_machines"),
    LATER("devices"), /* NeMo's trainer */
    LATER("num_nodes"),
    SAME_READ("virtual_pipeline_model_parallel_size", KEY_VPP),
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
    SAME_READ("encoder_seq_length", KEY_SEQ_LEN),
    SAME_GIVEN("decoder_seq_length", KEY_DECODER_SEQ_LEN),
    ASIDE("rampup_batch_size", "the full batch is assumed"),

    /* number formats, optimizer, who holds the states */
    LATER("bf16"),
    LATER("fp16"),
    LATER("precision"), /* NeMo's and Megatron-Bridge's YAML */
    LATER("mixed_precision"),
    LATER("fp8_format"),
    WORDS_READ("fp8_recipe", KEY_FP8_RECIPE,
               "delayed=delayed tensorwise=tensorwise blockwise=blockwise "
               "mxfp8=mxfp8"),
    SAME_GIVEN("fp8_param_gather", KEY_FP8_PARAMS),
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
    WORDS_READ("megatron_fsdp_main_params_dtype", KEY_MASTER_DTYPE,
               "fp32=fp32 bf16=bf16 fp16=fp16 auto="),
    WORDS_READ("megatron_fsdp_main_grads_dtype", KEY_GRAD_DTYPE,
               "fp32=fp32 bf16=bf16 fp16=fp16 auto="),
    WORDS_READ("megatron_fsdp_grad_comm_dtype", KEY_REDUCE_DTYPE,
               "fp32=fp32 bf16=bf16 fp16=fp16 auto="),
    LATER("deepspeed"), /* Megatron-DeepSpeed */
    LATER("deepspeed_config"),
    SAME_READ("zero_stage", KEY_ZERO),
    LATER("deepspeed_activation_checkpointing"),
    SAME("overlap_grad_reduce", KEY_OVERLAP_COMM),
    QUIET("overlap_param_gather"),
    QUIET("use_precision_aware_optimizer"),
    SAME_READ("main_grads_dtype", KEY_GRAD_DTYPE),
    SAME_GIVEN("main_params_dtype", KEY_MASTER_DTYPE),
    SAME_GIVEN("exp_avg_dtype", KEY_OPTIMIZER_DTYPE),
    LATER("exp_avg_sq_dtype"),
    WORDS("optimizer_cpu_offload", KEY_OFFLOAD_OPTIMIZER, "true=cpu false="),
    SAME_GIVEN("optimizer_offload_fraction", KEY_OFFLOAD_RATIO),
    QUIET("overlap_cpu_optimizer_d2h_h2d"),
    QUIET("use_torch_optimizer_for_cpu_offload"),
    ASIDE("no_pin_cpu_grads", "see --no-pin-memory"),
    ASIDE("no_pin_cpu_params", "see --no-pin-memory"),
    LATER("clip_grad"),

    /* layers */
    LATER("recompute_granularity"),
    LATER("recompute_method"),
    LATER("recompute_num_layers"),
    LATER("recompute_modules"),
    LATER("recompute_activations"),
    LATER("checkpoint_activations"), /* until December 2021 */
    LATER("checkpoint_num_layers"),
    LATER("activations_checkpoint_method"), /* until July 2022 */
    LATER("activations_checkpoint_num_layers"),
    LATER("activations_checkpoint_granularity"), /* NeMo's */
    ASIDE("num_micro_batches_with_partial_activation_checkpoints",
          "all micro-batches are alike"),
    ASIDE("activations_checkpoint_layers_per_pipeline",
          "all stages recompute alike"),
    LATER("optim_name"), /* NeMo's optim.name */
    LATER("megatron_amp_O2"),
    LATER("attention_backend"),
    LATER("transformer_impl"),
    LATER("use_flash_attn"),
    LATER("use_mcore_models"),
    WORDS("cross_entropy_loss_fusion", KEY_LOSS, "true=fused false="),
    WORDS_READ("cross_entropy_fusion_impl", KEY_CE_FUSION,
               "te=te native=native"),
    LATER("no_create_attention_mask_in_dataloader"),
    SAME_READ("deterministic_mode", KEY_DETERMINISTIC),
    WORDS("no_gradient_accumulation_fusion", KEY_GRAD_ACCUM_FUSION,
          "true=false"),
    WORDS("no_masked_softmax_fusion", KEY_FUSED_SOFTMAX, "true=false"),
    WORDS_GIVEN("moe_token_dispatcher_type", KEY_MOE_DISPATCHER,
                "alltoall=alltoall allgather=allgather alltoall_seq=alltoall "
                "flex=flex"),
    LATER("moe_grouped_gemm"),
    SAME_GIVEN("moe_expert_capacity_factor", KEY_MOE_CAPACITY_FACTOR),
    SAME_GIVEN("moe_pad_expert_input_to_capacity", KEY_MOE_PAD_TO_CAPACITY),
    SAME_GIVEN("moe_permute_fusion", KEY_MOE_PERMUTE_FUSION),
    WORDS_GIVEN("moe_router_dtype", KEY_MOE_ROUTER_DTYPE,
                "none=none fp32=fp32 fp64=?"),
    LATER("moe_router_load_balancing_type"),
    LATER("moe_aux_loss_coeff"),
    WORDS("enable_cuda_graph", KEY_CUDA_GRAPH, "true=true false="),
    WORDS_READ("cuda_graph_impl", KEY_CUDA_GRAPH,
               "none= local=true transformer_engine=true"),
    SAME("overlap_moe_expert_parallel_comm", KEY_EP_OVERLAP),
    SAME("defer_embedding_wgrad_compute", KEY_DEFER_EMBEDDING_WGRAD),
    SAME_GIVEN("wgrad_deferral_limit", KEY_WGRAD_DEFERRAL_LIMIT),
    ASIDE("fp16_lm_cross_entropy", "the loss is in 32 bits"),
    ASIDE("no_bias_gelu_fusion", "bias and activation are one kernel"),
    ASIDE("no_bias_swiglu_fusion", "bias and activation are one kernel"),
    ASIDE("no_bias_dropout_fusion", "bias and dropout are one kernel"),
    ASIDE("no_rope_fusion", "rotary embeddings are one kernel"),
    SAME("distribute_saved_activations", KEY_DISTRIBUTE_SAVED_ACTIVATIONS),
    SAME_READ("partition_activations", KEY_DISTRIBUTE_SAVED_ACTIVATIONS),
    WORDS_READ("checkpoint_in_cpu", KEY_OFFLOAD_ACTIVATIONS, "true=cpu false="),
    ASIDE("fine_grained_activation_offloading", "nothing is offloaded"),
    ASIDE("offload_modules", "nothing is offloaded"),
    ASIDE("activation_offload_fraction", "nothing is offloaded"),
    QUIET("min_offloaded_tensor_size"),
    QUIET("delta_offload_bytes_across_pp_ranks"),
    QUIET("delay_offload_until_cuda_graph"),
    SAME_GIVEN("tp_comm_overlap", KEY_TP_COMM_OVERLAP),
    LATER("hidden_dropout"),
    LATER("attention_dropout"),
    LATER("make_vocab_size_divisible_by"),
    LATER("cpu_offloading"),
    LATER("cpu_offloading_num_layers"),
    LATER("cpu_offloading_activations"),
    QUIET("cpu_offloading_weights"),
    QUIET("cpu_offloading_double_buffering"),
    QUIET("cpu_offloading_retain_pinned_cpu_buffers"),

    ASIDE("empty_unused_memory_level", "the cache stays from step to step"),
    ASIDE("fsdp_double_buffer",
          "weights are gathered into memory of their own"),
    ASIDE("use_nccl_ub", "NCCL's registered buffers are not counted"),
    ASIDE("moe_shared_expert_overlap", "shared experts run before the others"),
    ASIDE("delay_wgrad_compute", "weights' gradients come with the inputs'"),
    ASIDE("overlap_dispatch_backward_with_experts_wgrad",
          "weights' gradients come with the inputs'"),
    ASIDE("ep_overlap_early_attn_memory_release", "see --ep-overlap"),
    ASIDE("step_batch_size_schedule", "the full batch is assumed"),
    ASIDE("moe_paged_stash", "experts keep what they keep"),
    ASIDE("use_transformer_engine_op_fuser", "experts are grouped linears"),
    ASIDE("reuse_grad_buf_for_mxfp8_param_ag",
          "gathered weights have a buffer of their own"),
    ASIDE("fp8_amax_history_len", "histories are as by default"),
    ASIDE("pp_partition_method", "layers alone count; see --pipeline-layers"),
    ASIDE("pad_vocab_size_to", "see --vocab-multiple"),

    /* the model's own */
    SHAPE("embed_layernorm"),
    SHAPE("glu_activation"),
    SHAPE("num_layers"),
    SHAPE("encoder_num_layers"),
    SHAPE("decoder_num_layers"),
    SHAPE("hidden_size"),
    SHAPE("ffn_hidden_size"),
    SHAPE("num_attention_heads"),
    SHAPE("kv_channels"),
    SHAPE("group_query_attention"),
    SHAPE("num_query_groups"),
    SHAPE("num_key_value_heads"),
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
    SHAPE("rope_type"),
    SHAPE("rotary_scaling_factor"),
    SHAPE("mscale"),
    SHAPE("mscale_all_dim"),
    SHAPE("quick_geglu"),
    SHAPE("glu_linear_offset"),
    SHAPE("softmax_type"),
    SHAPE("window_attn_skip_freq"),
    SHAPE("activation_func_clamp_value"),
    SHAPE("enable_gpt_oss"),
    SHAPE("rotary_interleaved"),
    SHAPE("rotary_seq_len_interpolation_factor"),
    SHAPE("use_rope_scaling"),
    SHAPE("rope_scaling_factor"),
    SHAPE("moe_latent_size"),

    /* what is not seen in memory */
    QUIET("jobid"),
    QUIET("tokenizer_name_or_path"),
    QUIET("tee"),
    QUIET("max_restarts"),
    QUIET("abort_on_unmet_fused_kernel_constraints"),
    QUIET("train_weighted_split_paths_path"),
    QUIET("valid_weighted_split_paths_path"),
    QUIET("kill_switch_path"),
    QUIET("norm_target_loss"),
    QUIET("loss_on_targets_only"),
    QUIET("reset_progress"),
    QUIET("log_dir"),
    QUIET("codecarbon_dir"),
    QUIET("adam_beta1"),
    QUIET("adam_beta2"),
    QUIET("adam_eps"),
    SAME_GIVEN("attention_softmax_in_fp32", KEY_SOFTMAX_FP32),
    WORDS_READ("apply_query_key_layer_scaling", KEY_SOFTMAX_FP32,
               "true=true false="),
    QUIET("async_save"),
    QUIET("auto_detect_ckpt_format"),
    QUIET("bert_load"),
    QUIET("calculate_per_token_loss"),
    QUIET("check_weight_hash_across_dp_replicas_interval"),
    QUIET("ckpt_assume_constant_structure"),
    QUIET("ckpt_fully_parallel_load"),
    QUIET("ckpt_fully_parallel_save"),
    QUIET("data_impl"),
    QUIET("decoupled_lr"),
    QUIET("decoupled_min_lr"),
    QUIET("disable_gloo_process_groups"),
    QUIET("dist_ckpt_optim_fully_reshardable"),
    QUIET("epochs"),
    QUIET("hysteresis"),
    QUIET("log_batch_size_to_tensorboard"),
    QUIET("log_learning_rate_to_tensorboard"),
    QUIET("log_loss_scale_to_tensorboard"),
    QUIET("lr_decay_tokens"),
    QUIET("no_ckpt_fully_parallel_save"),
    QUIET("no_persist_layer_norm"),
    QUIET("no_use_tokenizer_model_from_checkpoint_args"),
    QUIET("override_lr_scheduler"),
    QUIET("pretrained_checkpoint"),
    QUIET("test_mode"),
    QUIET("tiktoken_pattern"),
    QUIET("train_data"),
    QUIET("train_tokens"),
    QUIET("use_persistent_ckpt_worker"),
    QUIET("valid_data"),
    QUIET("verify_integrity"),
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
    QUIET("moe_router_bias_update_rate"),
    QUIET("moe_router_enable_expert_bias"),
    QUIET("moe_router_group_topk"),
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
    QUIET("fp8_amax_compute_algo"),
    QUIET("profile"),
    QUIET("profile_step_start"),
    QUIET("profile_step_end"),
    QUIET("profile_ranks"),
    QUIET("use_pytorch_profiler"),
    QUIET("record_memory_history"),
    QUIET("memory_snapshot_path"),
    QUIET("enable_experimental"),
    QUIET("init_model_with_meta_device"),
    QUIET("moe_flex_dispatcher_backend"),
    QUIET("moe_router_force_load_balancing"),
    QUIET("moe_router_fusion"),
    QUIET("moe_per_layer_logging"),
    QUIET("disable_bf16_reduced_precision_matmul"),
    QUIET("save_retain_interval"),
    QUIET("fsdp_manual_registration"),
    QUIET("fine_grained_offloading_max_inflight_offloads"),
    QUIET("export_force_local_attention"),
    QUIET("async_strategy"),
    QUIET("moe_deepep_num_sms"),
    QUIET("moe_hybridep_num_sms"),
};

/* ---- and back ---- */

static void program(struct emit *e, const struct run *r)
{
    const uint64_t each = emit_node(e, r);
    str_append(e->head, sizeof(e->head),
               "torchrun --nnodes %" PRIu64 " --nproc_per_node %" PRIu64
               " pretrain_gpt.py",
               r->gpus / each, each);
}

/* Layers of one chunk: "t*8", "t", or nothing. */
static void chunk(char *text, size_t size, uint64_t layers)
{
    if (layers > 1)
        str_append(text, size, "t*%" PRIu64, layers);
    else if (layers == 1)
        str_append(text, size, "%s", "t");
}

/* Chunk after chunk, in the order in which a micro-batch meets them; those of
 * a stage are as equal as can be, the first ones longer. */
static void layout(struct emit *e, const struct run *r)
{
    enum { LAYOUT_TEXT = 4096 };
    char text[LAYOUT_TEXT] = "E";
    for (uint64_t c = 0; c < r->vpp; c++) {
        for (uint64_t s = 0; s < r->pp; s++) {
            const uint64_t n = r->stage_layers[s];
            if (c + s > 0)
                str_append(text, sizeof(text), "%s", "|");
            chunk(text, sizeof(text),
                  run_chunk_before(n, r->vpp, c + 1)
                      - run_chunk_before(n, r->vpp, c));
        }
    }
    str_append(text, sizeof(text), "%s", "L");
    emit_word(e, "pipeline_model_parallel_layout", text);
}

/* Stages that are not all equal: by a flag where only an end differs. Chunks
 * that are not: by a layout alone. */
static void stages(struct emit *e, const struct run *r)
{
    const uint16_t *n = r->stage_layers;
    const uint64_t inner = r->pp > 2 ? n[1] : 0;
    uint64_t layers = 0;
    bool even = true, ends = r->pp > 2 && r->vpp == 1;
    for (uint64_t i = 0; i < r->pp; i++) {
        layers += n[i];
        even = even && n[i] == n[0] && n[i] % r->vpp == 0;
        ends = ends && (i == 0 || i == r->pp - 1 || n[i] == inner);
    }
    if (r->pp > 1 && !even && !ends) {
        layout(e, r);
        return;
    }
    if (r->vpp > 1)
        emit_count(e, "num_virtual_stages_per_pipeline_rank", r->vpp);
    if (even || r->pp == 1)
        return;
    emit_count(e, "num_layers", layers);
    if (n[0] != inner)
        emit_count(e, "decoder_first_pipeline_num_layers", n[0]);
    if (n[r->pp - 1] != inner)
        emit_count(e, "decoder_last_pipeline_num_layers", n[r->pp - 1]);
}

static void states(struct emit *e, const struct run *r)
{
    static const char *const strategies[] = { "no_shard", "optim",
                                              "optim_grads",
                                              "optim_grads_params" };
    if (r->engine == ENGINE_MEGATRON_FSDP) {
        emit_bool(e, "use_megatron_fsdp", true);
        emit_word(e, "data_parallel_sharding_strategy", strategies[r->zero]);
    } else if (r->engine == ENGINE_FSDP2) {
        emit_bool(e, "use_torch_fsdp2", true);
    } else {
        emit_bool(e, "use_distributed_optimizer", r->zero == 1);
    }
    if (r->given[KEY_MASTER_DTYPE] || r->given[KEY_OPTIMIZER_DTYPE])
        emit_bool(e, "use_precision_aware_optimizer", true);
    if (r->given[KEY_OPTIMIZER_DTYPE])
        emit_word(e, "exp_avg_sq_dtype", dtype_name(r->prec.optim));
    if (!r->clip_grad)
        emit_raw(e, "clip_grad", "0.0");
}

static void precision(struct emit *e, const struct run *r)
{
    static const char *const recipes[FP8_RECIPE_COUNT] = {
        [FP8_DELAYED] = "delayed",
        [FP8_TENSORWISE] = "tensorwise",
        [FP8_BLOCKWISE] = "blockwise",
        [FP8_MXFP8] = "mxfp8",
        [FP8_DEEPSEEK] = "blockwise" /* the nearest that it has */
    };
    const bool fp16 = r->precision == PREC_FP16_MIXED;
    emit_bool(e, "bf16", r->prec.fp8 || r->precision == PREC_BF16_MIXED);
    emit_bool(e, "fp16", fp16);
    emit_bool(e, "accumulate_allreduce_grads_in_fp32",
              fp16 && r->prec.grad == DT_FP32);
    emit_bool(e, "grad_reduce_in_bf16", r->prec.grad == DT_BF16);
    if (r->prec.fp8) {
        emit_word(e, "fp8_format", "hybrid");
        emit_word(e, "fp8_recipe", recipes[r->fp8_recipe]);
    }
}

static void recompute(struct emit *e, const struct run *r)
{
    enum { WORDS_TEXT = 160 };
    char list[WORDS_TEXT], words[WORDS_TEXT];
    const bool block = r->given[KEY_RECOMPUTE_LAYERS];
    if (r->recompute == RECOMP_FULL) {
        emit_word(e, "recompute_granularity", "full");
        emit_word(e, "recompute_method", block ? "block" : "uniform");
        emit_count(e, "recompute_num_layers",
                   block ? r->recompute_layers : r->recompute_granularity);
    } else if (r->recompute == RECOMP_SELECTIVE) {
        str_format(words, sizeof(words), "%s",
                   setup_value_text(&r->setup, KEY_RECOMPUTE_MODULES, list,
                                    sizeof(list)));
        for (char *p = words; *p != '\0'; p++)
            *p = (char)(*p == ',' ? ' ' : *p);
        emit_word(e, "recompute_granularity", "selective");
        emit_raw(e, "recompute_modules", "%s", words);
    }
    if (r->away_layers > 0)
        emit_count(e, "cpu_offloading_num_layers", r->away_layers);
}

/* What repeats exactly is a mode of its own only where it was asked for; it
 * refuses some of NCCL's algorithms. memplan's own default is cuBLAS's
 * workspace, which the environment says alone. */
static void deterministic(struct emit *e, const struct run *r)
{
    if (!r->deterministic)
        return;
    str_append(e->head, sizeof(e->head), "%s",
               "export CUBLAS_WORKSPACE_CONFIG=:4096:8\n");
    if (!r->given[KEY_DETERMINISTIC])
        return;
    str_append(e->head, sizeof(e->head), "%s",
               "export NCCL_ALGO=Ring NVTE_ALLOW_NONDETERMINISTIC_ALGO=0\n");
    emit_bool(e, "deterministic_mode", true);
}

/* Megatron drops 0.1 out where it is told nothing. */
static void dropout(struct emit *e, const struct run *r)
{
    char p[UNIT_TEXT_MAX];
    unit_format_double(p, r->hidden_dropout);
    emit_raw(e, "hidden_dropout", "%s", p);
    unit_format_double(p, r->attention_dropout);
    emit_raw(e, "attention_dropout", "%s", p);
}

static void kernels(struct emit *e, const struct run *r)
{
    char words[64];
    const bool local = r->impl == IMPL_MEGATRON_LOCAL;
    if (local)
        emit_word(e, "transformer_impl", "local");
    emit_bool(e, "use_flash_attn", local && r->attention == ATTN_FLASH);
    if (!local && r->attention == ATTN_EAGER)
        emit_word(e, "attention_backend", "unfused");
    emit_bool(e, "no_create_attention_mask_in_dataloader",
              r->mask == MASK_NONE);
    if (r->loss == LOSS_FUSED)
        emit_word(
            e, "cross_entropy_fusion_impl",
            setup_value_text(&r->setup, KEY_CE_FUSION, words, sizeof(words)));
    if (r->moe_aux_loss != AUX_LOSS_NONE) {
        emit_word(e, "moe_router_load_balancing_type",
                  setup_value_text(&r->setup, KEY_MOE_AUX_LOSS, words,
                                   sizeof(words)));
        emit_raw(e, "moe_aux_loss_coeff", "1e-2");
    }
    dropout(e, r);
}

/* Megatron multiplies by tp itself. */
static void vocabulary(struct emit *e, const struct run *r)
{
    const uint64_t n = r->setup.v[KEY_VOCAB_MULTIPLE].n;
    if (!r->given[KEY_VOCAB_MULTIPLE])
        return;
    if (n % r->tp == 0)
        emit_count(e, "make_vocab_size_divisible_by", n / r->tp);
    else
        emit_refuse(e, KEY_VOCAB_MULTIPLE, "use a multiple of tp %" PRIu64,
                    r->tp);
}

static void apart(struct emit *e, const struct run *r)
{
    deterministic(e, r);
    program(e, r);
    vocabulary(e, r);
    stages(e, r);
    states(e, r);
    precision(e, r);
    recompute(e, r);
    kernels(e, r);
    if (e->spec->experts > 0 && r->etp != r->tp)
        emit_count(e, "expert_tensor_parallel_size", r->etp);
}

const struct config_table config_megatron = {
    rows,       sizeof(rows) / sizeof(rows[0]), false, true,
    NULL,       config_megatron_together,       apart, NULL,
    BESIDE_FEW,
};
