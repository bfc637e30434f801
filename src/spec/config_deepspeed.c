/*
 * Owns the dialect of DeepSpeed's configuration file (ds_config.json).
 * [deepspeed/runtime/config.py, runtime/zero/config.py, version 0.19]
 */
#include "spec/config_emit.h"

#include "base/unit.h"

#include <string.h>

#include "base/banned.h"

static const struct config_row rows[] = {
    /* batches */
    SAME("train_batch_size", KEY_GLOBAL_BATCH),
    SAME("train_micro_batch_size_per_gpu", KEY_MICRO_BATCH),
    SAME("gradient_accumulation_steps", KEY_GRAD_ACCUM),

    /* number formats */
    LATER("fp16.enabled"),
    LATER("bf16.enabled"),
    LATER("bfloat16.enabled"),
    LATER("fp8"),
    /* pydantic's models, of 0.19.8 (runtime/precision_config.py) */
    QUIET("fp16.loss_scale"),
    QUIET("fp16.initial_scale_power"),
    QUIET("fp16.loss_scale_window"),
    QUIET("fp16.hysteresis"),
    QUIET("fp16.consecutive_hysteresis"),
    QUIET("fp16.min_loss_scale"),
    ONLY("fp16.auto_cast", "false"),
    LATER("fp16.fp16_master_weights_and_grads"),
    QUIET("bf16.check_grad_overflow"),
    ONLY("bf16.immediate_grad_update", "false"),
    LATER("bf16.bf16_master_weights_and_grads"),
    LATER("bf16.bf16_optimizer_states"),
    QUIET("bfloat16.check_grad_overflow"),
    ONLY("bfloat16.immediate_grad_update", "false"),
    LATER("bfloat16.bf16_master_weights_and_grads"),
    LATER("bfloat16.bf16_optimizer_states"),
    LATER("torch_autocast.enabled"),
    LATER("torch_autocast.dtype"),
    ASIDE("torch_autocast.lower_precision_safe_modules",
          "gradients of linears and convolutions are sent in 16 bits"),
    QUIET("torch_autocast"),
    ONLY("amp.enabled", "false"),
    QUIET("amp"),
    WORDS_GIVEN("communication_data_type", KEY_REDUCE_DTYPE,
                "fp32=fp32 fp16=fp16 bf16=bf16 bfp16=bf16"),
    WORDS_GIVEN("data_types.grad_accum_dtype", KEY_GRAD_DTYPE,
                "fp32=fp32 fp16=fp16 bf16=bf16 bfp16=bf16"),

    /* optimizer */
    WORDS("optimizer.type", KEY_OPTIMIZER,
          "AdamW=adamw Adam=adamw FusedAdam=adamw DeepSpeedCPUAdam=adamw "
          "MuAdam=adamw MuAdamW=adamw Lamb=lamb Lion=lion Adagrad=adagrad "
          "SGD=sgd MuSGD=sgd Muon=muon RMSprop=rmsprop OneBitAdam=? "
          "OneBitLamb=? ZeroOneAdam=?"),
    WORDS("optimizer.params.torch_adam", KEY_OPTIMIZER_IMPL,
          "true=foreach false="),
    QUIET("optimizer"),
    LATER("gradient_clipping"),

    /* ZeRO */
    SAME("zero_optimization.stage", KEY_ZERO),
    SAME("zero_optimization.reduce_bucket_size", KEY_REDUCE_BUCKET),
    SAME("zero_optimization.allgather_bucket_size", KEY_ALLGATHER_BUCKET),
    SAME("zero_optimization.overlap_comm", KEY_OVERLAP_COMM),
    SAME_READ("zero_optimization.prefetch_bucket_size", KEY_PREFETCH_BUCKET),
    SAME("zero_optimization.stage3_prefetch_bucket_size", KEY_PREFETCH_BUCKET),
    SAME_READ("zero_optimization.max_live_parameters", KEY_MAX_LIVE_PARAMS),
    SAME("zero_optimization.stage3_max_live_parameters", KEY_MAX_LIVE_PARAMS),
    SAME_READ("zero_optimization.param_persistence_threshold",
              KEY_PERSISTENCE_THRESHOLD),
    SAME("zero_optimization.stage3_param_persistence_threshold",
         KEY_PERSISTENCE_THRESHOLD),
    LATER_SAME("zero_optimization.sub_group_size", KEY_SUB_GROUP_SIZE),
    LATER("zero_optimization.mics_shard_size"),
    SAME_GIVEN("zero_optimization.mics_hierarchical_params_gather",
               KEY_MICS_HIERARCHICAL),
    SAME_GIVEN("zero_optimization.offload_optimizer.device",
               KEY_OFFLOAD_OPTIMIZER),
    SAME_GIVEN("zero_optimization.offload_optimizer.ratio", KEY_OFFLOAD_RATIO),
    SAME_GIVEN("zero_optimization.offload_optimizer.pin_memory",
               KEY_PIN_MEMORY),
    SAME_GIVEN("zero_optimization.offload_optimizer.buffer_count",
               KEY_OPTIMIZER_BUFFERS),
    QUIET("zero_optimization.offload_optimizer.nvme_path"),
    SAME_GIVEN("zero_optimization.offload_optimizer.pipeline_read",
               KEY_PIPELINE_READ),
    SAME_GIVEN("zero_optimization.offload_optimizer.pipeline_write",
               KEY_PIPELINE_WRITE),
    QUIET("zero_optimization.offload_optimizer.fast_init"),
    QUIET("zero_optimization.offload_optimizer.cpuadam_cores_perc"),
    ONLY("zero_optimization.offload_optimizer.super_offload", "false"),
    SAME_GIVEN("zero_optimization.offload_param.device", KEY_OFFLOAD_PARAMS),
    SAME_GIVEN("zero_optimization.offload_param.buffer_count",
               KEY_PARAM_BUFFERS),
    SAME_GIVEN("zero_optimization.offload_param.buffer_size",
               KEY_PARAM_BUFFER_SIZE),
    SAME_GIVEN("zero_optimization.offload_param.max_in_cpu", KEY_MAX_IN_CPU),
    QUIET("zero_optimization.offload_param.nvme_path"),
    QUIET("zero_optimization.offload_param.pin_memory"),
    WORDS_READ("zero_optimization.cpu_offload", KEY_OFFLOAD_OPTIMIZER,
               "true=cpu false="),
    WORDS_READ("zero_optimization.cpu_offload_params", KEY_OFFLOAD_PARAMS,
               "true=cpu false="),
    WORDS_READ("zero_optimization.cpu_offload_param", KEY_OFFLOAD_PARAMS,
               "true=cpu false="),
    QUIET("zero_optimization.cpu_offload_use_pin_memory"),
    SAME_GIVEN("zero_optimization.contiguous_gradients",
               KEY_CONTIGUOUS_GRADIENTS),
    ONLY("zero_optimization.reduce_scatter", "true"),
    ONLY("zero_optimization.allgather_partitions", "true"),
    ONLY("zero_optimization.memory_efficient_linear", "true"),
    ONLY("zero_optimization.parameter_alignment", "false"),
    SAME_GIVEN("zero_optimization.zero_hpz_partition_size",
               KEY_HPZ_PARTITION_SIZE),
    SAME_GIVEN("zero_optimization.zero_quantized_weights",
               KEY_ZERO_QUANTIZED_WEIGHTS),
    ONLY("zero_optimization.zero_quantized_nontrainable_weights", "false"),
    SAME_GIVEN("zero_optimization.zero_quantized_gradients",
               KEY_ZERO_QUANTIZED_GRADIENTS),
    SAME_GIVEN("zero_optimization.round_robin_gradients",
               KEY_ROUND_ROBIN_GRADIENTS),
    QUIET("zero_optimization.load_from_fp32_weights"),
    QUIET("zero_optimization.elastic_checkpoint"),
    ONLY("zero_optimization.legacy_stage1", "false"),
    QUIET("zero_optimization.ignore_unused_parameters"),
    SAME_GIVEN("zero_optimization.use_multi_rank_bucket_allreduce",
               KEY_MULTI_RANK_BUCKET_ALLREDUCE),
    QUIET("zero_optimization.stage3_max_reuse_distance"),
    QUIET("zero_optimization.max_reuse_distance"),
    QUIET("zero_optimization.stage3_model_persistence_threshold"),
    QUIET("zero_optimization.stage3_gather_fp16_weights_on_model_save"),
    QUIET("zero_optimization.stage3_gather_16bit_weights_on_model_save"),
    QUIET("zero_optimization.gather_16bit_weights_on_model_save"),
    QUIET("zero_optimization.override_module_apply"),
    QUIET("zero_optimization.log_trace_cache_warnings"),
    QUIET("zero_optimization.enable_sanity_checks"),
    QUIET("zero_optimization.pipeline_loading_checkpoint"),
    QUIET("zero_optimization.save_muon_momentum_buffer_in_memory"),
    ONLY("zero_optimization.module_granularity_threshold", "0"),
    ONLY("zero_optimization.stage3_module_granularity_threshold", "0"),
    ONLY("zero_optimization.use_all_reduce_for_fetch_params", "false"),
    ONLY("zero_optimization.stage3_use_all_reduce_for_fetch_params", "false"),
    ONLY("zero_optimization.allgather_sequential", "false"),
    ONLY("zero_optimization.stage3_allgather_sequential", "false"),
    ASIDE("zero_optimization.leaf_module", "modules gathered as a whole"),
    ASIDE("zero_optimization.zenflow", "ZenFlow"),
    ASIDE("zero_optimization.zeropp_loco_param", "LoCo's error feedback"),

    /* parallelism and checkpoints of models that ask DeepSpeed for them */
    SAME_GIVEN("tensor_parallel.autotp_size", KEY_TP),
    QUIET("tensor_parallel"),
    ASIDE(
        "activation_checkpointing",
        "it is of models that call deepspeed.checkpointing; --recompute full"),
    LATER("sequence_parallel_size"),
    QUIET("pipeline"),
    ASIDE("compile", "DeepCompile"),
    ASIDE("progressive_layer_drop", "no layer is left out"),
    ASIDE("compression_training", "compression"),
    ASIDE("sparse_attention", "sparse attention"),
    ASIDE("hybrid_engine", "RLHF's hybrid engine"),

    /* what is not seen in memory */
    QUIET("steps_per_print"),
    QUIET("wall_clock_breakdown"),
    QUIET("dump_state"),
    QUIET("memory_breakdown"),
    QUIET("scheduler"),
    QUIET("zero_allow_untested_optimizer"),
    QUIET("zero_force_ds_cpu_optimizer"),
    QUIET("prescale_gradients"),
    QUIET("gradient_predivide_factor"),
    QUIET("gradient_allreduce_op"),
    QUIET("sparse_gradients"),
    QUIET("disable_allgather"),
    QUIET("checkpoint"),
    QUIET("aio"),
    QUIET("flops_profiler"),
    QUIET("comms_logger"),
    QUIET("communication_data_type_seq"),
    QUIET("seq_parallel_communication_data_type"),
    QUIET("tensorboard"),
    QUIET("wandb"),
    QUIET("comet"),
    QUIET("csv_monitor"),
    QUIET("monitor_config"),
    ONLY("elasticity.enabled", "false"), /* else it chooses the batches */
    QUIET("elasticity"),
    QUIET("autotuning"),
    QUIET("data_efficiency"),
    QUIET("curriculum_learning"),
    QUIET("dataloader_drop_last"),
    QUIET("nebula"),
    QUIET("log_level"),
};

/* ---- blocks ---- */

static const struct json *member_at(const struct json *value, const char *path)
{
    struct str rest = str_of(path);
    while (value != NULL && rest.n > 0) {
        char name[CONFIG_PATH_MAX];
        const struct str step = str_cut(rest, '.', &rest);
        str_format(name, sizeof(name), "%.*s", (int)step.n, step.p);
        value = json_member(value, name);
    }
    return value;
}

/* Something else in an object's place. `false` is none; `true` for all of ZeRO
 * is deprecated [zero/config.py, read_zero_config_deprecated]. */
static void check_blocks(struct config *c)
{
    static const struct {
        const char *path, *holds;
    } blocks[] = {
        { "bf16", "\"enabled\": true" },
        { "bfloat16", "\"enabled\": true" },
        { "fp16", "\"enabled\": true" },
        { "amp", "\"enabled\": true" },
        { "torch_autocast", "\"enabled\": true" },
        { "data_types", "\"grad_accum_dtype\": \"fp32\"" },
        { "optimizer", "\"type\": \"AdamW\"" },
        { "optimizer.params", "\"lr\": 1e-4" },
        { "zero_optimization", "\"stage\": 1" },
        { "zero_optimization.offload_optimizer", "\"device\": \"cpu\"" },
        { "zero_optimization.offload_param", "\"device\": \"cpu\"" },
        { "tensor_parallel", "\"autotp_size\": 2" },
    };
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
        const struct json *v = member_at(c->root, blocks[i].path);
        if (v == NULL || v->kind == JSON_OBJECT || v->kind == JSON_NULL
            || (v->kind == JSON_BOOL && !v->truth))
            continue;
        diag_hint(
            config_bad(c, v, MEMPLAN_E_SCHEMA, "'%.*s' is %s", (int)v->key.n,
                       v->key.p,
                       v->kind == JSON_BOOL ? "true" : json_kind_name(v->kind)),
            "write {%s}", blocks[i].holds);
    }
}

/* ---- beside TrainingArguments ---- */

/* Of the Trainer's own format: what accelerate/utils/dataclasses.py,
 * DeepSpeedPlugin.set_mixed_precision, puts where the file has no such part. */
static bool trainer_fills(const struct config *c)
{
    const char *half = c->s->trainer.half;
    if (half == NULL)
        return false;
    const struct json *part = json_member(c->root, half);
    const struct json *on = part == NULL ? NULL : json_member(part, "enabled");
    return part == NULL
           || (on != NULL && on->kind == JSON_STRING
               && str_is(on->text, "auto"));
}

static void mismatch(struct config *c, const struct json *at, const char *path,
                     const char *theirs, const char *value)
{
    diag_hint(config_bad(c, at, MEMPLAN_E_CONFLICT,
                         "%s is not TrainingArguments' %s %s (%s)", path,
                         theirs, value, c->s->trainer.file),
              "write \"auto\" here: the Trainer refuses two values");
}

static void match_format(struct config *c, const char *format, bool said)
{
    char path[CONFIG_PATH_MAX];
    str_format(path, sizeof(path), "%s.enabled", format);
    const struct json *at = config_at(c, path);
    const char *half = c->s->trainer.half;
    const bool theirs = half != NULL && strcmp(half, format) == 0;
    /* a format of theirs excludes the other one */
    if (at == NULL || at->kind != JSON_BOOL || at->truth == theirs
        || (!said && half == NULL))
        return;
    str_append(path, sizeof(path), at->truth ? " true" : " false");
    mismatch(c, at, path, format, theirs ? "true" : "false");
}

static void match_number(struct config *c, const char *path, const char *theirs,
                         double value)
{
    const struct json *at = config_at(c, path);
    char shown[CONFIG_PATH_MAX], text[UNIT_TEXT_MAX];
    if (at == NULL || at->kind != JSON_NUMBER
        || (!(at->number < value) && !(at->number > value)))
        return;
    str_format(shown, sizeof(shown), "%s %g", path, at->number);
    str_format(text, sizeof(text), "%g", value);
    mismatch(c, at, shown, theirs, text);
}

/* transformers/integrations/deepspeed.py, fill_match: "auto" agrees. */
static void match_trainer(struct config *c)
{
    const struct setup_trainer *t = &c->s->trainer;
    if (t->file[0] == '\0')
        return;
    match_format(c, "bf16", t->bf16_said);
    match_format(c, "fp16", t->fp16_said);
    if (t->micro_batch > 0)
        match_number(c, "train_micro_batch_size_per_gpu",
                     "per_device_train_batch_size", t->micro_batch);
    if (t->grad_accum > 0)
        match_number(c, "gradient_accumulation_steps",
                     "gradient_accumulation_steps", t->grad_accum);
    if (t->clip_said)
        match_number(c, "gradient_clipping", "max_grad_norm", t->max_grad_norm);
}

/* ---- number formats ---- */

/* A type as runtime/config.py, DtypeEnum, has it; NULL: none of 16 bits. */
static const char *half_word(struct str s)
{
    static const char *const fp16[] = { "fp16", "float16", "half",
                                        "torch.float16" };
    static const char *const bf16[] = { "bf16", "bfloat16", "torch.bfloat16" };
    for (size_t i = 0; i < sizeof(fp16) / sizeof(fp16[0]); i++)
        if (str_is(s, fp16[i]))
            return "fp16-amp";
    for (size_t i = 0; i < sizeof(bf16) / sizeof(bf16[0]); i++)
        if (str_is(s, bf16[i]))
            return "bf16-amp";
    return NULL;
}

/* runtime/torch_autocast.py: fp32 weights; without a type, which PyTorch has
 * one of, nothing is sent in it. */
static void autocast(struct config *c)
{
    const struct json *type = config_at(c, "torch_autocast.dtype");
    const char *word = type != NULL && type->kind == JSON_STRING
                           ? half_word(type->text)
                           : NULL;
    if (word != NULL) {
        config_set(c, type, KEY_PRECISION, word);
        return;
    }
    const struct json *at =
        type != NULL ? type : config_at(c, "torch_autocast.enabled");
    diag_hint(config_bad(c, at, MEMPLAN_E_UNSUPPORTED,
                         "torch_autocast without a type of 16 bits is not "
                         "modelled"),
              "write \"dtype\": \"bfloat16\" or \"float16\"");
}

/* bf16_optimizer.py and base_optimizer.py, _configure_master_weights: moments
 * of 16 bits only where that is said too. */
static void pure(struct config *c, const struct json *at, bool bf16)
{
    config_set(c, at, KEY_PRECISION, bf16 ? "bf16" : "fp16");
    if (bf16 && config_is_true(c, "bf16.bf16_optimizer_states"))
        config_set(c, at, KEY_OPTIMIZER_DTYPE, "bf16");
}

static void sixteen_bits(struct config *c, const struct json *at, bool bf16)
{
    if (config_is_true(c, "torch_autocast.enabled"))
        config_note(c, "torch_autocast beside 16-bit weights is not modelled: "
                       "they are computed with as they are");
    if (config_is_true(c, bf16 ? "bf16.bf16_master_weights_and_grads"
                               : "fp16.fp16_master_weights_and_grads"))
        pure(c, at, bf16);
    else
        config_set(c, at, KEY_PRECISION, bf16 ? "bf16-mixed" : "fp16-mixed");
}

/* runtime/config.py: 16 bits of one kind, else the weights as they come, which
 * are fp32. "auto" leaves it to TrainingArguments. */
static void precision(struct config *c)
{
    static const char *const parts[] = { "fp16", "bf16", "bfloat16" };
    const struct json *on[3] = { NULL };
    bool automatic = false;
    for (size_t i = 0; i < 3; i++) {
        const struct json *object = json_member(c->root, parts[i]);
        const struct json *enabled =
            object == NULL ? NULL : json_member(object, "enabled");
        if (enabled == NULL || enabled->kind == JSON_NULL)
            continue;
        if (enabled->kind == JSON_BOOL)
            on[i] = enabled->truth ? enabled : NULL;
        else if (enabled->kind == JSON_STRING && str_is(enabled->text, "auto"))
            automatic = true;
        else
            diag_hint(config_bad(c, enabled, MEMPLAN_E_SCHEMA,
                                 "'enabled' is %s",
                                 json_kind_name(enabled->kind)),
                      "write true, false or \"auto\"");
    }
    const struct json *bf16 = on[1] != NULL ? on[1] : on[2];
    if (on[0] != NULL && bf16 != NULL) {
        memplan_error *e = config_bad(c, bf16, MEMPLAN_E_CONFLICT,
                                      "fp16 and bf16 are both enabled");
        diag_hint(e, "enable one of them: DeepSpeed refuses both");
    } else if (on[0] != NULL || bf16 != NULL) {
        sixteen_bits(c, bf16 != NULL ? bf16 : on[0], bf16 != NULL);
    } else if (trainer_fills(c)) {
        sixteen_bits(c, c->root, strcmp(c->s->trainer.half, "bf16") == 0);
    } else if (config_is_true(c, "torch_autocast.enabled")) {
        autocast(c);
    } else if (!automatic) {
        config_set(c, c->root, KEY_PRECISION, "fp32");
    }
}

/* gradient_clipping is 0 where the file has none: no clipping. */
/* No module of DeepSpeed's (to 0.19.8) asks for it. */
static void eight_bits(struct config *c)
{
    if (config_at(c, "fp8") != NULL)
        config_note(c, "fp8: DeepSpeed reads no such section; where the "
                       "program has 8-bit products say --precision fp8-mixed");
}

static void clipping(struct config *c)
{
    if (json_member(c->root, "gradient_clipping") == NULL)
        config_set(c, c->root, KEY_CLIP_GRAD, "false");
    else
        config_clipping(c, "gradient_clipping");
}

/* torch.optim.SGD keeps a buffer only with momentum. */
static void momentum(struct config *c)
{
    const struct json *type = config_at(c, "optimizer.type");
    const struct json *m = config_at(c, "optimizer.params.momentum");
    if (type == NULL || type->kind != JSON_STRING
        || !str_same_name(type->text, STR("sgd")))
        return;
    if (m != NULL && m->kind == JSON_NUMBER && m->number > 0)
        config_set(c, m, KEY_OPTIMIZER, "momentum");
}

/* 0: each parameter is a sub-group (stage3.py, _create_fp16_sub_groups). */
static void sub_groups(struct config *c)
{
    const struct json *n = config_at(c, "zero_optimization.sub_group_size");
    if (n != NULL && n->kind == JSON_NUMBER && !(n->number > 0)
        && !(n->number < 0))
        config_set(c, n, KEY_SUB_GROUP_SIZE, "1");
    else if (n != NULL)
        config_set_json(c, n, KEY_SUB_GROUP_SIZE);
}

/* Numbers whose one value means "not at all". */
static void unless(struct config *c, const char *path, double off,
                   enum setup_key key)
{
    const struct json *value = config_at(c, path);
    if (value == NULL
        || (value->kind == JSON_NUMBER && !(value->number < off)
            && !(value->number > off)))
        return;
    config_set_json(c, value, key);
}

static void together(struct config *c)
{
    /* Megatron-DeepSpeed's script names this file */
    if (!c->s->set[KEY_FRAMEWORK]
        || c->s->v[KEY_FRAMEWORK].n != FW_MEGATRON_DEEPSPEED)
        config_set(c, c->root, KEY_FRAMEWORK, "deepspeed");
    check_blocks(c);
    sub_groups(c);
    match_trainer(c);
    precision(c);
    eight_bits(c);
    clipping(c);
    momentum(c);
    unless(c, "zero_optimization.mics_shard_size", -1, KEY_MICS_SHARD_SIZE);
    config_ulysses(c, "sequence_parallel_size");
}

/* ---- and back ---- */

static void nvme_path(struct emit *e, enum offload where, const char *path)
{
    if (where == OFFLOAD_NVME)
        emit_word(e, path, "/local_nvme");
}

static void emit_precision(struct emit *e, const struct run *r)
{
    const bool bf16 = r->prec.compute == DT_BF16;
    switch (r->precision) {
    case PREC_BF16:
    case PREC_FP16:
        emit_bool(e,
                  bf16 ? "bf16.bf16_master_weights_and_grads"
                       : "fp16.fp16_master_weights_and_grads",
                  true);
        if (bf16 && r->prec.optim == DT_BF16)
            emit_bool(e, "bf16.bf16_optimizer_states", true);
        /* fall through */
    case PREC_BF16_MIXED:
    case PREC_FP16_MIXED:
        emit_bool(e, bf16 ? "bf16.enabled" : "fp16.enabled", true);
        return;
    case PREC_BF16_AMP:
    case PREC_FP16_AMP:
        emit_bool(e, "torch_autocast.enabled", true);
        emit_word(e, "torch_autocast.dtype", bf16 ? "bfloat16" : "float16");
        return;
    case PREC_FP32:
    case PREC_TF32:
    case PREC_FP8_MIXED:
    case PREC_FP4_MIXED:
    case PRECISION_COUNT: return;
    }
}

static void apart(struct emit *e, const struct run *r)
{
    emit_precision(e, r);
    if (r->optimizer == OPT_MOMENTUM) {
        emit_word(e, "optimizer.type", "SGD");
        emit_raw(e, "optimizer.params.momentum", "0.9");
    }
    emit_raw(e, "gradient_clipping", r->clip_grad ? "1.0" : "0.0");
    if (r->mics)
        emit_count(e, "zero_optimization.mics_shard_size", r->shard);
    if (run_exchanges_heads(r))
        emit_count(e, "sequence_parallel_size", r->cp);
    nvme_path(e, r->offload_optimizer,
              "zero_optimization.offload_optimizer.nvme_path");
    nvme_path(e, r->offload_params,
              "zero_optimization.offload_param.nvme_path");
}

const struct config_table config_deepspeed = {
    rows,
    sizeof(rows) / sizeof(rows[0]),
    true,
    false,
    "zero_optimization bf16 fp16 bfloat16",
    together,
    apart,
    NULL,
    BESIDE_MODEL,
};
