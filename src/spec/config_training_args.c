/*
 * Owns the dialect of Hugging Face's TrainingArguments as JSON: what
 * HfArgumentParser reads and TrainingArguments.to_json_string writes.
 * [transformers/training_args.py, version 5.23, and names that it had before]
 */
#include "spec/config_emit.h"
#include "spec/config_hf.h"

#include <string.h>

#include "base/banned.h"

/* What from_pretrained makes the weights. */
#define LOADED "auto= float32= float16= bfloat16="

static const struct config_row rows[] = {
    /* batches */
    SAME("per_device_train_batch_size", KEY_MICRO_BATCH),
    SAME_READ("per_gpu_train_batch_size", KEY_MICRO_BATCH),
    SAME("gradient_accumulation_steps", KEY_GRAD_ACCUM),
    SAME_READ("max_seq_length", KEY_SEQ_LEN), /* SFTConfig */
    SAME_READ("max_length", KEY_SEQ_LEN),     /* SFTConfig */
    SAME_READ("model_max_length", KEY_SEQ_LEN),
    ONLY("auto_find_batch_size", "false"),
    SAME_READ("cutoff_len", KEY_SEQ_LEN), /* LLaMA-Factory */
    SAME_READ("block_size", KEY_SEQ_LEN), /* run_clm.py */
    SAME_READ("max_seq_len", KEY_SEQ_LEN),
    SAME_READ("max_len", KEY_SEQ_LEN), /* OpenRLHF */
    SAME_READ("data.max_len", KEY_SEQ_LEN),
    SAME_READ("micro_train_batch_size", KEY_MICRO_BATCH),
    SAME_READ("train.micro_batch_size", KEY_MICRO_BATCH),
    LATER("train_batch_size"),
    LATER("train.batch_size"),
    SAME_READ("ds.zero_stage", KEY_ZERO),
    LATER("ds.param_dtype"),
    LATER("param_dtype"),
    WORDS_READ("ds.adam_offload", KEY_OFFLOAD_OPTIMIZER, "true=cpu false="),
    WORDS_READ("adam_offload", KEY_OFFLOAD_OPTIMIZER, "true=cpu false="),
    WORDS_READ("model.gradient_checkpointing_enable", KEY_RECOMPUTE,
               "true=full false="),
    WORDS_READ("ds.attn_implementation", KEY_ATTENTION,
               CONFIG_FLASH_NAMES "sdpa= eager=eager"),
    WORDS_READ("attn_impl", KEY_ATTENTION, /* ms-swift; of 4 no times */
               "flash_attn" CONFIG_FLASH_2 CONFIG_FLASH_NAMES
               "flash_attention_4=flash sdpa= eager=eager flex_attention=?"),
    LATER("nnodes"), /* torchrun's, in a script */
    LATER("nproc_per_node"),
    LATER("num_gpus"), /* deepspeed's */
    LATER("num_nodes"),
    LATER("hostfile"),
    LATER("include"),
    LATER("num_processes"), /* accelerate launch's */
    LATER("num_machines"),
    LATER("config_file"),
    LATER_BOOL("use_deepspeed"),
    LATER_BOOL("use_fsdp"),
    LATER("mixed_precision"),
    LATER("deepspeed_config_file"),
    LATER("deepspeed_config"),
    CONFIG_LAUNCH_ROWS,
    SAME_READ("zero_stage", KEY_ZERO),
    SAME_READ("offload_optimizer_device", KEY_OFFLOAD_OPTIMIZER),
    SAME_READ("offload_param_device", KEY_OFFLOAD_PARAMS),

    /* of TRL's and LLaMA-Factory's files beside TrainingArguments */
    LATER("finetuning_type"),
    LATER("tuner_type"), /* ms-swift */
    LATER("train_type"),
    LATER("target_modules"),
    LATER("quant_bits"),
    LATER_BOOL("use_peft_lora"), /* peft's examples */
    LATER_BOOL("use_4bit_quantization"),
    LATER_BOOL("use_8bit_quantization"),
    LATER_BOOL("use_nested_quant"),
    LATER_BOOL("use_bnb_nested_quant"), /* TRL */
    LATER("bnb_4bit_quant_type"),
    LATER_BOOL("bnb_4bit_use_double_quant"),
    LATER_BOOL("double_quantization"), /* LLaMA-Factory */
    LATER_BOOL("disable_gradient_checkpointing"),
    LATER_BOOL("use_reentrant_gc"),
    QUIET("quant_method"),
    QUIET("quantization_method"),
    QUIET("bnb_4bit_compute_dtype"),
    QUIET("bnb_4bit_quant_storage_dtype"),
    QUIET("bnb_4bit_quant_storage"),
    LATER_BOOL("use_flash_attn"),
    LATER("freeze_trainable_layers"),
    LATER("freeze_trainable_modules"),
    LATER("freeze_extra_modules"),
    LATER_BOOL("use_peft"),
    LATER("lora_rank"),
    LATER("lora_r"),
    LATER("lora_target"),
    LATER("lora_target_modules"),
    LATER("lora_dropout"),
    LATER_BOOL("load_in_4bit"),
    LATER_BOOL("load_in_8bit"),
    LATER("quantization_bit"),
    WORDS_READ("use_dora", KEY_LORA_VARIANT, "true=dora false="),
    WORDS_READ("use_rslora", KEY_LORA_VARIANT, "true=rslora false="),
    WORDS_READ("peft_use_dora", KEY_LORA_VARIANT, "true=dora false="),
    WORDS_READ("peft_use_rslora", KEY_LORA_VARIANT, "true=rslora false="),
    QUIET("packing"), /* as here: every sequence is full */
    WORDS_READ("attn_implementation", KEY_ATTENTION,
               CONFIG_FLASH_NAMES
               "sdpa= eager=eager flex_attention=? xformers=sdpa "
               "kernels-community/flash-attn" CONFIG_FLASH_2
               "kernels-community/flash-attn2" CONFIG_FLASH_2
               "kernels-community/flash-attn3" CONFIG_FLASH_3
               "kernels-community/vllm-flash-attn3" CONFIG_FLASH_3),
    WORDS_READ("flash_attn", KEY_ATTENTION,
               "auto= disabled=eager sdpa= false= fa2" CONFIG_FLASH_2
               "fa3" CONFIG_FLASH_3 "flash_attention_2" CONFIG_FLASH_2
               "true" CONFIG_FLASH_2),
    WORDS_READ("enable_liger_kernel", KEY_IMPLEMENTATION,
               "true=hf-liger false="),
    /* fms-hf-tuning's names; its plugins' */
    LATER("peft_method"),
    LATER("r"),
    LATER("num_virtual_tokens"),
    LATER("bnb_qlora"),
    LATER("auto_gptq"),
    SAME_READ("embedding_size_multiple_of", KEY_VOCAB_MULTIPLE),
    WORDS_READ("flash_attn_implementation", KEY_ATTENTION, CONFIG_FLASH_NAMES),
    ASIDE("fused_lora", "see --implementation"),
    ASIDE("fast_kernels", "see --implementation"),
    ASIDE("fast_moe", "experts are transformers'"),
    ASIDE("acceleration_framework_config_file", "its plugins are not read"),
    QUIET("multipack"),
    QUIET("prompt_tuning_init"),
    QUIET("prompt_tuning_init_text"),
    QUIET("training_data_path"),
    QUIET("validation_data_path"),
    QUIET("data_config_path"),
    QUIET("data_formatter_template"),
    QUIET("dataset_conversation_field"),
    QUIET("response_template"),
    QUIET("instruction_template"),
    QUIET("tokenizer_name_or_path"),
    QUIET("save_model_dir"),
    QUIET("trackers"),
    QUIET("enable_reduce_loss_sum"),
    QUIET("trainer_controller_config_file"),
    /* axolotl's names */
    SAME_READ("micro_batch_size", KEY_MICRO_BATCH),
    SAME_READ("sequence_len", KEY_SEQ_LEN),
    LATER("adapter"),
    LATER_BOOL("lora_target_linear"),
    LATER("optimizer"),
    LATER_BOOL("flash_attention"),
    LATER_BOOL("flash_attn_2"),
    LATER_BOOL("sdp_attention"),
    LATER_BOOL("xformers_attention"),
    LATER_BOOL("eager_attention"),
    ASIDE("flex_attention", "see --attention"),
    LATER_BOOL("float16"),
    LATER_BOOL("liger_fused_linear_cross_entropy"),
    LATER_BOOL("liger_rms_norm"),
    QUIET("liger_rope"),
    QUIET("liger_glu_activation"),
    QUIET("liger_swiglu"),
    QUIET("liger_layer_norm"),
    ASIDE("liger_cross_entropy", "see --implementation hf-liger"),
    SAME_READ("tensor_parallel_size", KEY_TP),
    ASIDE("expert_parallel_size", "every rank has all experts"), /* Axolotl's */
    ASIDE("context_parallel_size", "ring attention over parts of sequences"),
    ASIDE("sequence_parallel_degree", "ring attention over parts of sequences"),
    SAME_READ("dp_shard_size", KEY_SHARD_DEGREE),
    QUIET("dp_replicate_size"),
    ASIDE("unfrozen_parameters", "all are trained"),
    LATER_OF("activation_offloading",
             "true= false= legacy= hidden_states= disk="),
    ASIDE("gptq", "the base is not quantized so"),
    ASIDE("flash_attn_cross_entropy", "the loss is transformers'"),
    WORDS_READ("flash_attn_rms_norm", KEY_NORM_KERNEL, "true=fused false="),
    ASIDE("flash_attn_fuse_mlp", "layers are transformers'"),
    ASIDE("lora_mlp_kernel", "adapters are PEFT's own code"),
    ASIDE("lora_qkv_kernel", "adapters are PEFT's own code"),
    ASIDE("lora_o_kernel", "adapters are PEFT's own code"),
    ASIDE("quantize_moe_experts", "experts are as --base-dtype has them"),
    ASIDE("lora_target_parameters", "see --lora-targets"),
    ASIDE("use_scattermoe", "experts are transformers' code"),
    ASIDE("use_sonicmoe", "experts are transformers' code"),
    ASIDE("experts_impl", "experts are transformers' code"),
    ASIDE("fp8", "see --precision fp8-mixed"),
    /* LLaMA-Factory's and ms-swift's */
    ASIDE("use_galore", "see --optimizer galore"),
    ASIDE("use_apollo", "its states are not modelled"),
    ASIDE("use_badam", "all blocks are trained at once"),
    ASIDE("use_adam_mini", "its states are not modelled"),
    ASIDE("use_muon", "see --optimizer muon"),
    ASIDE("use_unsloth", "layers are transformers' code"),
    ASIDE("use_unsloth_gc", "checkpoints stay on the GPU"),
    ASIDE("mixture_of_depths", "every layer sees every token"),
    ASIDE("freeze_vision_tower", "see --freeze"),
    ASIDE("freeze_multi_modal_projector", "see --freeze"),
    ASIDE("freeze_language_model", "see --freeze"),
    ASIDE("freeze_vit", "see --freeze"),
    ASIDE("freeze_aligner", "see --freeze"),
    ASIDE("freeze_llm", "see --freeze"),
    ASIDE("use_kt", "experts on the CPU are not modelled"),
    ASIDE("num_labels", "the head is the model's own"),
    ASIDE("num_generations", "of GRPO and its kin: only training is modelled"),
    ASIDE("use_vllm", "what generates is not modelled"),
    ASIDE("rlhf_type", "no second model is held"),
    ASIDE("reward_model", "no second model is held"),
    ASIDE("ref_model", "no second model is held"),
    ASIDE("teacher_model", "no second model is held"),
    ASIDE("max_completion_length", "see --seq-len"),
    ASIDE("sequence_parallel_size", "see --cp, --cp-comm a2a"),
    ASIDE("cut_cross_entropy",
          "see --loss fused, which keeps no logits either"),
    ASIDE("use_kernels", "layers are transformers' own code"),
    ASIDE("task_type", "the head is the model's own"),
    ASIDE("vit_gradient_checkpointing", "as the text's"),
    ASIDE("resize_token_embeddings_to_32x", "see --vocab-multiple 32"),
    QUIET("padding_free"),
    QUIET("ds.packing_samples"),
    QUIET("packing_samples"),
    SHAPE("base_model"),
    QUIET("lr_scheduler"),
    QUIET("num_epochs"),
    QUIET("sample_packing"),
    QUIET("val_set_size"),

    /* how the weights are loaded */
    LATER_OF("torch_dtype", LOADED),
    LATER_OF("dtype", LOADED),
    LATER_BOOL("pure_bf16"),
    QUIET("lora_alpha"),
    SHAPE("model_name_or_path"),
    SHAPE("model_type"),
    LATER("modules_to_save"),
    LATER("lora_modules_to_save"),
    LATER("additional_target"),
    LATER_BOOL("peft_ensure_weight_tying"),
    ASIDE("beta", "of DPO and its kin: no second model is held"),
    LATER("stage"),
    LATER("rl"),
    LATER("plugins"),
    ONLY("relora", "false"),
    ASIDE("qat", "weights are not quantized in training"),

    /* number formats, and who holds what */
    LATER_OF("bf16", "true= false= auto= full="), /* axolotl's too */
    LATER_BOOL("fp16"),
    LATER_OF("tf32", "true= false= auto="),
    LATER("fsdp"),
    LATER("fsdp_config.version"),
    LATER("fsdp_config.fsdp_version"),
    LATER("fsdp_config.reshard_after_forward"),
    LATER("fsdp_config.fsdp_reshard_after_forward"),
    LATER_BOOL("fsdp_config.cpu_offload"),
    LATER_BOOL("fsdp_config.offload_params"),
    LATER_BOOL("fsdp_config.fsdp_offload_params"),
    LATER("fsdp_config.sharding_strategy"),
    LATER("fsdp_config.fsdp_sharding_strategy"),
    QUIET("fsdp_config.fsdp_auto_wrap_policy"),
    LATER_BOOL("fsdp_config.fsdp_cpu_offload"),
    LATER_BOOL("fsdp_config.activation_checkpointing"),
    LATER_BOOL("fsdp_config.fsdp_activation_checkpointing"),
    ONLY("fsdp_config.min_num_params", "0"), /* each layer is wrapped */
    ONLY("fsdp_config.fsdp_min_num_params", "0"),
    ONLY("fsdp_config.xla", "false"),
    QUIET("fsdp_config.xla_fsdp_v2"),
    QUIET("fsdp_config.xla_fsdp_grad_ckpt"),
    LATER("fsdp_config.transformer_layer_cls_to_wrap"),
    LATER("fsdp_config.fsdp_transformer_layer_cls_to_wrap"),
    QUIET("fsdp_config.auto_wrap_policy"),
    QUIET("fsdp_config.backward_prefetch"),
    QUIET("fsdp_config.fsdp_backward_prefetch"),
    ONLY("fsdp_config.forward_prefetch", "false"),
    ONLY("fsdp_config.fsdp_forward_prefetch", "false"),
    ONLY("fsdp_config.limit_all_gathers", "true"),
    ONLY("fsdp_config.fsdp_limit_all_gathers", "true"),
    LATER_BOOL("fsdp_config.use_orig_params"),
    LATER_BOOL("fsdp_config.fsdp_use_orig_params"),
    QUIET("fsdp_config.sync_module_states"),
    QUIET("fsdp_config.fsdp_sync_module_states"),
    QUIET("fsdp_config.cpu_ram_efficient_loading"),
    QUIET("fsdp_config.fsdp_cpu_ram_efficient_loading"),
    QUIET("fsdp_config.state_dict_type"),
    QUIET("fsdp_config.fsdp_state_dict_type"),
    LATER("deepspeed"),
    LATER("ddp_bucket_cap_mb"),

    /* optimizer */
    LATER("optim"),
    LATER("max_grad_norm"),
    LATER_BOOL("adafactor"),
    LATER("optim_args"),
    LATER("optim_target_modules"),

    /* layers */
    WORDS("gradient_checkpointing", KEY_RECOMPUTE,
          "true=full false= offload= offload_disk= unsloth="),
    WORDS_READ("activation_checkpointing", KEY_RECOMPUTE, "true=full false="),
    LATER("gradient_checkpointing_kwargs"),
    SAME_GIVEN("gradient_checkpointing_kwargs.use_reentrant",
               KEY_RECOMPUTE_REENTRANT),
    SAME_READ("use_reentrant", KEY_RECOMPUTE_REENTRANT),
    SAME_READ("activation_checkpointing_kwargs.use_reentrant",
              KEY_RECOMPUTE_REENTRANT),
    ONLY("activation_checkpointing_kwargs.every_n_layers", "1"),
    ONLY("activation_checkpointing_kwargs.offload", "false"),
    ONLY("gradient_checkpointing_kwargs.every_n_layers", "1"),
    ONLY("gradient_checkpointing_kwargs.offload", "false"),
    SAME_GIVEN("torch_compile", KEY_COMPILE),
    WORDS("use_liger_kernel", KEY_IMPLEMENTATION, "true=hf-liger false="),
    WORDS_READ("use_liger", KEY_IMPLEMENTATION, "true=hf-liger false="),
    ASIDE("liger_kernel_config", "Liger's default kernels are assumed"),
    ASIDE("neftune_noise_alpha", "noise on the embeddings"),
    ASIDE("torch_empty_cache_steps", "the cache is not emptied"),
    ASIDE("parallelism_config", "use --tp, --cp"),
    ONLY("use_cpu", "false"),
    ONLY("no_cuda", "false"),

    /* what is not seen in memory */
    QUIET("chat_template"),
    SHAPE("model"),
    SHAPE("model_name"),
    SHAPE("config_name"),
    SHAPE("model.model_name_or_path"),
    SHAPE("pretrained_model_name_or_path"),
    QUIET("adam.lr"),
    QUIET("add_special_tokens"),
    QUIET("cache_dir"),
    QUIET("chat_template_format"),
    QUIET("ckpt.load_enable"),
    QUIET("ckpt.output_dir"),
    QUIET("ckpt.save_steps"),
    QUIET("data.dataset"),
    QUIET("data.input_key"),
    QUIET("data.max_samples"),
    QUIET("data.output_key"),
    QUIET("dataset_text_field"),
    QUIET("eot_tokens"),
    QUIET("eval.steps"),
    QUIET("init_weights"),
    QUIET("load_from_cache_file"),
    QUIET("logger.logging_steps"),
    QUIET("loss_scale"),
    QUIET("low_cpu_mem_usage"),
    QUIET("max_new_tokens"),
    QUIET("max_train_samples"),
    QUIET("model_author"),
    QUIET("model_class"),
    QUIET("overwrite_cache"),
    QUIET("pref_beta"),
    QUIET("pretraining_dataset"),
    QUIET("split_dataset_ratio"),
    QUIET("splits"),
    QUIET("system"),
    QUIET("temperature"),
    QUIET("tokenizer_name"),
    QUIET("train.max_epochs"),
    QUIET("train_dataset"),
    QUIET("train_on_inputs"),
    QUIET("dataset"),
    QUIET("dataset_dir"),
    QUIET("dataset_kwargs"),
    QUIET("dataset_mixture"),
    QUIET("dataset_name"),
    QUIET("dataset_num_proc"),
    QUIET("dataset_prepared_path"),
    QUIET("dataset_test_split"),
    QUIET("dataset_train_split"),
    QUIET("datasets"),
    QUIET("data_path"),
    QUIET("eval_sample_packing"),
    QUIET("evals_per_epoch"),
    QUIET("lazy_preprocess"),
    QUIET("loss_watchdog_patience"),
    QUIET("loss_watchdog_threshold"),
    QUIET("machine_rank"),
    QUIET("main_process_ip"),
    QUIET("main_process_port"),
    QUIET("master_addr"),
    QUIET("master_port"),
    QUIET("node_rank"),
    QUIET("rdzv_backend"),
    QUIET("rdzv_conf"),
    QUIET("rdzv_endpoint"),
    QUIET("rdzv_id"),
    QUIET("standalone"),
    QUIET("max_prompt_length"),
    QUIET("max_samples"),
    QUIET("model_revision"),
    QUIET("pad_to_sequence_len"),
    QUIET("plot_loss"),
    QUIET("preprocessing_num_workers"),
    QUIET("saves_per_epoch"),
    QUIET("special_tokens"),
    QUIET("strict"),
    QUIET("template"),
    QUIET("tokenizer_type"),
    QUIET("trust_remote_code"),
    QUIET("wandb_entity"),
    QUIET("wandb_name"),
    QUIET("wandb_project"),
    QUIET("output_dir"),
    QUIET("overwrite_output_dir"),
    QUIET("num_train_epochs"),
    QUIET("max_steps"),
    QUIET("learning_rate"),
    QUIET("lr_scheduler_type"),
    QUIET("lr_scheduler_kwargs"),
    QUIET("warmup_steps"),
    QUIET("warmup_ratio"),
    QUIET("weight_decay"),
    QUIET("adam_beta1"),
    QUIET("adam_beta2"),
    QUIET("adam_epsilon"),
    QUIET("average_tokens_across_devices"),
    QUIET("label_smoothing_factor"),
    QUIET("bf16_full_eval"),
    QUIET("fp16_full_eval"),
    QUIET("fp16_backend"),
    QUIET("fp16_opt_level"),
    QUIET("half_precision_backend"),
    QUIET("torch_compile_backend"),
    QUIET("torch_compile_mode"),
    QUIET("use_cache"),
    QUIET("logging_dir"),
    QUIET("logging_strategy"),
    QUIET("logging_steps"),
    QUIET("logging_first_step"),
    QUIET("logging_nan_inf_filter"),
    QUIET("log_on_each_node"),
    QUIET("log_level"),
    QUIET("log_level_replica"),
    QUIET("include_num_input_tokens_seen"),
    QUIET("include_tokens_per_second"),
    QUIET("disable_tqdm"),
    QUIET("report_to"),
    QUIET("run_name"),
    QUIET("project"),
    QUIET("trackio_space_id"),
    QUIET("trackio_bucket_id"),
    QUIET("trackio_static_space_id"),
    QUIET("do_train"),
    QUIET("do_eval"),
    QUIET("do_predict"),
    QUIET("eval_strategy"),
    QUIET("evaluation_strategy"),
    QUIET("eval_steps"),
    QUIET("eval_delay"),
    QUIET("eval_on_start"),
    QUIET("eval_do_concat_batches"),
    QUIET("eval_use_gather_object"),
    QUIET("eval_accumulation_steps"),
    QUIET("per_device_eval_batch_size"),
    QUIET("prediction_loss_only"),
    QUIET("include_for_metrics"),
    QUIET("include_inputs_for_metrics"),
    QUIET("batch_eval_metrics"),
    QUIET("save_only_model"),
    QUIET("save_strategy"),
    QUIET("save_steps"),
    QUIET("save_on_each_node"),
    QUIET("save_safetensors"),
    QUIET("save_total_limit"),
    QUIET("enable_jit_checkpoint"),
    QUIET("push_to_hub"),
    QUIET("push_to_hub_model_id"),
    QUIET("push_to_hub_organization"),
    QUIET("push_to_hub_token"),
    QUIET("hub_token"),
    QUIET("hub_private_repo"),
    QUIET("hub_model_id"),
    QUIET("hub_strategy"),
    QUIET("hub_always_push"),
    QUIET("hub_revision"),
    QUIET("load_best_model_at_end"),
    QUIET("metric_for_best_model"),
    QUIET("greater_is_better"),
    QUIET("ignore_data_skip"),
    QUIET("restore_callback_states_from_checkpoint"),
    QUIET("resume_from_checkpoint"),
    QUIET("full_determinism"),
    QUIET("seed"),
    QUIET("data_seed"),
    QUIET("jit_mode_eval"),
    QUIET("use_ipex"),
    QUIET("use_mps_device"),
    QUIET("accelerator_config"),
    QUIET("dataloader_drop_last"),
    QUIET("dataloader_num_workers"),
    QUIET("dataloader_pin_memory"),
    QUIET("dataloader_persistent_workers"),
    QUIET("dataloader_prefetch_factor"),
    QUIET("dataloader_multiprocessing_context"),
    QUIET("dataloader_in_order"),
    QUIET("remove_unused_columns"),
    QUIET("label_names"),
    QUIET("group_by_length"),
    QUIET("train_sampling_strategy"),
    QUIET("length_column_name"),
    QUIET("ddp_find_unused_parameters"),
    QUIET("ddp_broadcast_buffers"),
    QUIET("ddp_static_graph"),
    QUIET("ddp_backend"),
    QUIET("ddp_timeout"),
    QUIET("debug"),
    QUIET("skip_memory_metrics"),
    QUIET("local_rank"),
    QUIET("tpu_num_cores"),
    QUIET("tpu_metrics_debug"),
    QUIET("mp_parameters"),
    QUIET("past_index"),
    QUIET("ray_scope"),
    QUIET("torchdynamo"),
    QUIET("split_batches"),
    QUIET("dispatch_batches"),
};

/* ---- and back ---- */

/* FSDP has checkpoints of its own, which never are reentrant. */
static bool is_own_checkpoint(const struct run *r)
{
    return run_is_fsdp(r)
           && !(r->given[KEY_RECOMPUTE_REENTRANT] && r->recompute_reentrant);
}

static bool writes(const struct run *r, const char *path)
{
    return !is_own_checkpoint(r)
           || strncmp(path, "gradient_checkpointing",
                      strlen("gradient_checkpointing"))
                  != 0;
}

/* Version 2 as since Transformers 5; version 1 is the releases' before. */
static void put_fsdp(struct emit *e, const struct run *r)
{
    const bool two = r->engine == ENGINE_FSDP2;
    const bool offloads = r->offload_params == OFFLOAD_CPU;
    if (two)
        emit_bool(e, "fsdp", true);
    else
        emit_raw(e, "fsdp", "\"%s auto_wrap%s\"",
                 r->zero == 3   ? "full_shard"
                 : r->zero == 2 ? "shard_grad_op"
                                : "no_shard",
                 offloads ? " offload" : "");
    emit_count(e, "fsdp_config.version", two ? 2 : 1);
    if (two)
        emit_bool(e, "fsdp_config.reshard_after_forward", r->zero == 3);
    else if (!r->use_orig_params)
        emit_bool(e, "fsdp_config.use_orig_params", false);
    if (two && offloads)
        emit_bool(e, "fsdp_config.cpu_offload", true);
    if (r->recompute == RECOMP_FULL && is_own_checkpoint(r))
        emit_bool(e, "fsdp_config.activation_checkpointing", true);
}

/* What DeepSpeed has under a name of its own it makes itself; the rates are
 * the Trainer's. */
static void put_deepspeed(struct emit *e)
{
    static const char *const rates[] = { "lr", "betas", "eps", "weight_decay" };
    emit_table(e, &config_deepspeed, "deepspeed.");
    if (!emit_has(e, "deepspeed.optimizer.type"))
        return;
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        char path[CONFIG_PATH_MAX];
        str_format(path, sizeof(path), "deepspeed.optimizer.params.%s",
                   rates[i]);
        emit_word(e, path, "auto");
    }
}

static void apart(struct emit *e, const struct run *r)
{
    emit_bool(e, "bf16", r->prec.compute == DT_BF16);
    emit_bool(e, "fp16", r->prec.compute == DT_FP16);
    if (r->precision == PREC_TF32)
        emit_bool(e, "tf32", true);
    emit_raw(e, "max_grad_norm", r->clip_grad ? "1.0" : "0.0");
    if (r->offload_activations == OFFLOAD_CPU) /* TRL's, as SFTConfig */
        emit_bool(e, "activation_offloading", true);
    if (r->given[KEY_DDP_BUCKET])
        emit_count(e, "ddp_bucket_cap_mb", r->ddp_bucket_bytes >> 20);
    if (run_is_fsdp(r))
        put_fsdp(e, r);
    if (r->engine == ENGINE_DEEPSPEED)
        put_deepspeed(e);
    if (!emit_has(e, "deepspeed.optimizer.type"))
        config_hf_put_optim(e, r);
}

const struct config_table config_training_args = {
    rows,         sizeof(rows) / sizeof(rows[0]), false, false,
    NULL,         config_training_args_together,  apart, writes,
    BESIDE_MODEL,
};
