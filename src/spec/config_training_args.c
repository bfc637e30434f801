/*
 * Owns the dialect of Hugging Face's TrainingArguments as JSON: what
 * HfArgumentParser reads and TrainingArguments.to_json_string writes.
 * [transformers/training_args.py, version 5.23, and names that it had before]
 */
#include "spec/config_hf.h"

#include "base/banned.h"

static const struct config_row rows[] = {
    /* batches */
    SAME("per_device_train_batch_size", KEY_MICRO_BATCH),
    SAME("per_gpu_train_batch_size", KEY_MICRO_BATCH),
    SAME("gradient_accumulation_steps", KEY_GRAD_ACCUM),
    SAME("max_seq_length", KEY_SEQ_LEN), /* SFTConfig */
    SAME("max_length", KEY_SEQ_LEN),     /* SFTConfig */
    SAME("model_max_length", KEY_SEQ_LEN),
    ONLY("auto_find_batch_size", "false"),

    /* number formats, and who holds what */
    LATER("bf16"),
    LATER("fp16"),
    LATER("tf32"),
    LATER("fsdp"),
    LATER("fsdp_config.version"),
    LATER("fsdp_config.fsdp_version"),
    LATER("fsdp_config.reshard_after_forward"),
    LATER("fsdp_config.fsdp_reshard_after_forward"),
    LATER("fsdp_config.cpu_offload"),
    LATER("fsdp_config.fsdp_cpu_offload"),
    LATER("fsdp_config.activation_checkpointing"),
    LATER("fsdp_config.fsdp_activation_checkpointing"),
    ASIDE("fsdp_config.min_num_params", "each layer is wrapped"),
    ASIDE("fsdp_config.fsdp_min_num_params", "each layer is wrapped"),
    ONLY("fsdp_config.xla", "false"),
    QUIET("fsdp_config.xla_fsdp_v2"),
    QUIET("fsdp_config.xla_fsdp_grad_ckpt"),
    QUIET("fsdp_config.transformer_layer_cls_to_wrap"),
    QUIET("fsdp_config.fsdp_transformer_layer_cls_to_wrap"),
    QUIET("fsdp_config.auto_wrap_policy"),
    QUIET("fsdp_config.backward_prefetch"),
    QUIET("fsdp_config.fsdp_backward_prefetch"),
    ONLY("fsdp_config.forward_prefetch", "false"),
    ONLY("fsdp_config.fsdp_forward_prefetch", "false"),
    ONLY("fsdp_config.limit_all_gathers", "true"),
    ONLY("fsdp_config.fsdp_limit_all_gathers", "true"),
    QUIET("fsdp_config.use_orig_params"),
    QUIET("fsdp_config.fsdp_use_orig_params"),
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
    LATER("adafactor"),
    QUIET("optim_args"),
    QUIET("optim_target_modules"),

    /* layers */
    WORDS("gradient_checkpointing", KEY_RECOMPUTE, "true=full false="),
    WORDS("activation_checkpointing", KEY_RECOMPUTE, "true=full false="),
    SAME("gradient_checkpointing_kwargs.use_reentrant",
         KEY_RECOMPUTE_REENTRANT),
    SAME("activation_checkpointing_kwargs.use_reentrant",
         KEY_RECOMPUTE_REENTRANT),
    SAME("torch_compile", KEY_COMPILE),
    WORDS("use_liger_kernel", KEY_IMPLEMENTATION, "true=hf-liger false="),
    WORDS("use_liger", KEY_IMPLEMENTATION, "true=hf-liger false="),
    ASIDE("liger_kernel_config", "Liger's default kernels are assumed"),
    ASIDE("neftune_noise_alpha", "noise on the embeddings"),
    ASIDE("torch_empty_cache_steps", "the cache is not emptied"),
    ASIDE("parallelism_config", "use --tp, --cp"),
    ONLY("use_cpu", "false"),
    ONLY("no_cuda", "false"),

    /* what is not seen in memory */
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

/* ---- who holds what ---- */

/* A word of `fsdp`: "full_shard auto_wrap", or a list of such. */
static bool has_option(const struct json *fsdp, const char *option)
{
    const struct json *one = fsdp->kind == JSON_ARRAY ? fsdp->child : fsdp;
    for (; one != NULL; one = fsdp->kind == JSON_ARRAY ? one->next : NULL) {
        struct str rest =
            one->kind == JSON_STRING ? one->text : (struct str){ "", 0 };
        while (rest.n > 0) {
            if (str_is(str_cut(rest, ' ', &rest), option))
                return true;
        }
    }
    return false;
}

/* trainer_utils.FSDPOption: transformers refuses any other word. */
static void check_options(struct config *c, const struct json *fsdp)
{
    static const char known[] =
        "full_shard shard_grad_op no_shard hybrid_shard "
        "hybrid_shard_zero2 offload auto_wrap true";
    const struct json *one = fsdp->kind == JSON_ARRAY ? fsdp->child : fsdp;
    for (; one != NULL; one = fsdp->kind == JSON_ARRAY ? one->next : NULL) {
        struct str rest =
            one->kind == JSON_STRING ? one->text : (struct str){ "", 0 };
        bool good = one->kind == JSON_STRING || one->kind == JSON_BOOL;
        while (rest.n > 0) {
            const struct str word = str_cut(rest, ' ', &rest);
            bool found = word.n == 0;
            for (size_t i = 0; choice_word(known, i).n > 0; i++)
                found = found || str_eq(word, choice_word(known, i));
            good = good && found;
        }
        if (!good)
            diag_hint(config_bad(c, one, MEMPLAN_E_UNKNOWN,
                                 "unknown option in 'fsdp'"),
                      "known are full_shard, shard_grad_op, no_shard, "
                      "hybrid_shard, hybrid_shard_zero2, offload, auto_wrap");
    }
}

static bool is_on(const struct json *fsdp)
{
    if (fsdp == NULL)
        return false;
    switch (fsdp->kind) {
    case JSON_BOOL: return fsdp->truth;
    case JSON_STRING: return fsdp->text.n > 0;
    case JSON_ARRAY: return fsdp->child != NULL;
    case JSON_NULL:
    case JSON_NUMBER:
    case JSON_OBJECT: return false;
    }
    return false;
}

/* fsdp_config may write its keys with fsdp_ before them. */
static const struct json *fsdp_entry(const struct config *c, const char *name)
{
    char path[96];
    str_format(path, sizeof(path), "fsdp_config.%s", name);
    const struct json *value = config_at(c, path);
    if (value == NULL) {
        str_format(path, sizeof(path), "fsdp_config.fsdp_%s", name);
        value = config_at(c, path);
    }
    return value;
}

static bool entry_is(const struct json *value, const char *word)
{
    if (value == NULL)
        return false;
    if (value->kind == JSON_BOOL)
        return str_is(value->truth ? STR("true") : STR("false"), word);
    return value->kind == JSON_STRING
           && str_same_name(value->text, str_of(word));
}

/* full_shard is reshard_after_forward, shard_grad_op is not. */
static void fsdp_stage(struct config *c, const struct json *fsdp)
{
    const struct json *reshard = fsdp_entry(c, "reshard_after_forward");
    const bool gathered = has_option(fsdp, "shard_grad_op")
                          || has_option(fsdp, "hybrid_shard_zero2")
                          || entry_is(reshard, "false")
                          || entry_is(reshard, "shard_grad_op");
    if (has_option(fsdp, "no_shard") || entry_is(reshard, "no_shard")) {
        config_set(c, fsdp, KEY_ZERO, "0");
        return;
    }
    config_set(c, fsdp, KEY_ZERO, gathered ? "2" : "3");
    if (has_option(fsdp, "hybrid_shard") || entry_is(reshard, "hybrid_shard"))
        config_note(c, "hybrid_shard shards within a node: add "
                       "--shard-degree, GPUs of a node");
}

static enum config_holder read_fsdp(struct config *c, const struct json *fsdp)
{
    check_options(c, fsdp);
    const struct json *inner = config_at(c, "fsdp_config");
    if (inner != NULL && inner->kind == JSON_STRING)
        diag_hint(config_bad(c, inner, MEMPLAN_E_UNSUPPORTED,
                             "'fsdp_config' in a file of its own"),
                  "write its content here, as an object");
    const struct json *version = fsdp_entry(c, "version");
    const bool one = entry_is(version, "1")
                     || (version != NULL && version->kind == JSON_NUMBER
                         && version->number < 2);
    config_set(c, fsdp, KEY_FRAMEWORK, "fsdp");
    config_set(c, fsdp, KEY_ENGINE, one ? "fsdp" : "fsdp2");
    if (version == NULL)
        config_note(c, "fsdp_config does not say its version: 2, as since "
                       "Transformers 5 (--engine fsdp before)");
    fsdp_stage(c, fsdp);
    if (has_option(fsdp, "offload")
        || entry_is(fsdp_entry(c, "cpu_offload"), "true"))
        config_set(c, fsdp, KEY_OFFLOAD_PARAMS, "cpu");
    const struct json *again = fsdp_entry(c, "activation_checkpointing");
    if (entry_is(again, "true"))
        config_set(c, again, KEY_RECOMPUTE, "full");
    return HOLD_FSDP;
}

/* A DeepSpeed configuration inside this one, or the name of its file. */
static void read_deepspeed(struct config *c, const struct json *value)
{
    config_set(c, value, KEY_FRAMEWORK, "deepspeed");
    if (value->kind == JSON_STRING) {
        config_goes_on(c, value, "deepspeed");
        return;
    }
    struct config inner = *c;
    inner.table = &config_deepspeed;
    inner.root = value;
    config_read(&inner);
}

static enum config_holder who_holds(struct config *c)
{
    const struct json *ds = config_at(c, "deepspeed");
    const struct json *fsdp = config_at(c, "fsdp");
    const bool sharded = is_on(fsdp);
    if (ds != NULL && sharded) {
        memplan_error *e = config_bad(c, ds, MEMPLAN_E_CONFLICT,
                                      "both 'deepspeed' and 'fsdp' are set");
        diag_hint(e, "keep one: the Trainer refuses both");
        return HOLD_DEEPSPEED;
    }
    if (ds != NULL)
        return HOLD_DEEPSPEED;
    if (sharded)
        return read_fsdp(c, fsdp);
    config_set(c, c->root, KEY_FRAMEWORK, "hf");
    return HOLD_DDP;
}

void config_hf_precision(struct config *c, enum config_holder holder,
                         const char *mixed)
{
    const bool half =
        str_is(str_of(mixed), "bf16") || str_is(str_of(mixed), "fp16");
    char word[16];
    str_format(word, sizeof(word), "%s%s", mixed,
               !half                ? ""
               : holder == HOLD_DDP ? "-amp"
                                    : "-mixed");
    config_set(c, c->root, KEY_PRECISION, word);
    if (holder == HOLD_FSDP && half)
        config_set(c, c->root, KEY_REDUCE_DTYPE, mixed);
}

static void precision(struct config *c, enum config_holder h)
{
    const bool bf16 = config_is_true(c, "bf16");
    const bool fp16 = config_is_true(c, "fp16");
    if (bf16 && fp16) {
        memplan_error *e =
            config_bad(c, config_at(c, "fp16"), MEMPLAN_E_CONFLICT,
                       "bf16 and fp16 are both true");
        diag_hint(e, "keep one: TrainingArguments refuses both");
        return;
    }
    const bool tf32 = config_is_true(c, "tf32");
    config_hf_precision(c, h,
                        bf16   ? "bf16"
                        : fp16 ? "fp16"
                        : tf32 ? "tf32"
                               : "fp32");
}

/* ---- optimizer ---- */

/* training_args.py's OptimizerNames. `impl` "" leaves the default. */
static const struct optim {
    const char *name, *optimizer, *impl;
} optims[] = {
    { "adamw_torch", "adamw", "foreach" },
    { "adamw_torch_fused", "adamw", "fused" },
    { "adamw_hf", "adamw", "loop" }, /* before 5: transformers' own */
    { "adamw_anyprecision", NULL, "" },
    { "adamw_torch_4bit", "adam4bit", "" },
    { "adafactor", "adafactor", "" },
    { "sgd", "sgd", "foreach" },
    { "adagrad", "adagrad", "foreach" },
    { "rmsprop", "rmsprop", "foreach" },
    { "adamw_8bit", "adam8bit", "" },
    { "adamw_bnb_8bit", "adam8bit", "" },
    { "paged_adamw_8bit", "paged-adam8bit", "" },
    { "lion_32bit", "lion", "" },
    { "lion_8bit", "lion8bit", "" },
    { "galore_adamw", "galore", "" },
};

static void optimizer(struct config *c)
{
    const struct json *optim = config_at(c, "optim");
    const struct json *old = config_at(c, "adafactor");
    if (old != NULL && old->kind == JSON_BOOL && old->truth) {
        config_set(c, old, KEY_OPTIMIZER, "adafactor");
        return;
    }
    if (optim == NULL)
        return;
    if (optim->kind == JSON_STRING) {
        for (size_t i = 0; i < sizeof(optims) / sizeof(optims[0]); i++) {
            if (!str_is(optim->text, optims[i].name)
                || optims[i].optimizer == NULL)
                continue;
            config_set(c, optim, KEY_OPTIMIZER, optims[i].optimizer);
            if (optims[i].impl[0] != '\0')
                config_set(c, optim, KEY_OPTIMIZER_IMPL, optims[i].impl);
            return;
        }
    }
    memplan_error *e = config_bad(
        c, optim, MEMPLAN_E_UNSUPPORTED, "optim '%.*s' is not modelled",
        (int)(optim->text.n < 40 ? optim->text.n : 40), optim->text.p);
    diag_hint(e, "such as adamw_torch, adamw_torch_fused, adamw_bnb_8bit, "
                 "paged_adamw_8bit, adafactor, lion_32bit, lion_8bit, sgd, "
                 "galore_adamw; the key of it here is --optimizer");
}

/* ---- the rest ---- */

static void ddp_bucket(struct config *c)
{
    const struct json *mb = config_at(c, "ddp_bucket_cap_mb");
    if (mb == NULL || mb->kind != JSON_NUMBER)
        return;
    char bytes[40];
    str_format(bytes, sizeof(bytes), "%.0fMiB", mb->number);
    config_set(c, mb, KEY_DDP_BUCKET, bytes);
}

static void together(struct config *c)
{
    const enum config_holder h = who_holds(c);
    precision(c, h);
    optimizer(c);
    config_clipping(c, "max_grad_norm");
    ddp_bucket(c);
    if (h == HOLD_DEEPSPEED)
        read_deepspeed(c, config_at(c, "deepspeed"));
}

const struct config_table config_training_args = {
    rows, sizeof(rows) / sizeof(rows[0]), false, false, NULL, together, NULL,
};
