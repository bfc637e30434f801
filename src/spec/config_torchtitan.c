/*
 * Owns the dialect of torchtitan's job configuration, the TOML of a training
 * up to February 2026, with the keys of each time: [parallelism] was part of
 * [training] and [experimental] until March 2025. Where a file is silent it is
 * the default of the last one. [torchtitan/config/job_config.py at e347b1e,
 * torchtitan/config_manager.py before 34d815c]
 */
#include "spec/config_torchtitan.h"
#include "spec/config_emit.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

/* torch/distributed/pipelining/schedules.py */
static const char schedules[] =
    "1F1B=1f1b GPipe=gpipe Interleaved1F1B=interleaved ZBVZeroBubble=zb-v "
    "DualPipeV=dualpipe-v LoopedBFS=? InterleavedZeroBubble=zb-interleaved";

/* torch's _RotateMethod */
static const char rotations[] = "allgather=all_gather alltoall=p2p";

static const struct config_row rows[] = {
    /* layout */
    LATER("parallelism.data_parallel_replicate_degree"),
    LATER("training.data_parallel_replicate_degree"),
    LATER("parallelism.data_parallel_shard_degree"),
    LATER("training.data_parallel_shard_degree"),
    LATER("training.data_parallel_degree"),
    ONLY("training.data_parallel_type", "fsdp"),
    LATER("parallelism.fsdp_reshard_after_forward"),
    LATER("training.fsdp_reshard_after_forward"),
    SAME("parallelism.tensor_parallel_degree", KEY_TP),
    SAME_READ("training.tensor_parallel_degree", KEY_TP),
    ONLY("parallelism.disable_loss_parallel", "false"),
    ONLY("training.disable_loss_parallel", "false"),
    ONLY("training.enable_loss_parallel", "true"),
    LATER("parallelism.enable_async_tensor_parallel"),
    LATER("experimental.enable_async_tensor_parallel"),
    SAME("parallelism.pipeline_parallel_degree", KEY_PP),
    SAME_READ("experimental.pipeline_parallel_degree", KEY_PP),
    SAME_READ("training.pipeline_parallel_degree", KEY_PP),
    WORDS("parallelism.pipeline_parallel_schedule", KEY_SCHEDULE, schedules),
    WORDS_READ("experimental.pipeline_parallel_schedule", KEY_SCHEDULE,
               schedules),
    LATER("parallelism.pipeline_parallel_schedule_csv"),
    LATER("experimental.pipeline_parallel_schedule_csv"),
    LATER("parallelism.pipeline_parallel_microbatch_size"),
    LATER("parallelism.pipeline_parallel_microbatches"),
    LATER("experimental.pipeline_parallel_microbatches"),
    ASIDE("parallelism.pipeline_parallel_split_points",
          "see --pipeline-layers, --vpp"),
    ASIDE("experimental.pipeline_parallel_split_points",
          "see --pipeline-layers, --vpp"),
    LATER("parallelism.module_fqns_per_model_part"),
    ASIDE("parallelism.pipeline_parallel_layers_per_stage",
          "see --pipeline-layers, --vpp"),
    ASIDE("parallelism.pipeline_parallel_first_stage_less_layers",
          "see --pipeline-layers"),
    ASIDE("parallelism.pipeline_parallel_last_stage_less_layers",
          "see --pipeline-layers"),
    QUIET("parallelism.pipeline_parallel_expert_parallel_overlap"),
    SAME("parallelism.context_parallel_degree", KEY_CP),
    SAME_READ("experimental.context_parallel_degree", KEY_CP),
    WORDS("parallelism.context_parallel_rotate_method", KEY_CP_COMM, rotations),
    WORDS_READ("experimental.context_parallel_rotate_method", KEY_CP_COMM,
               rotations),
    QUIET("parallelism.context_parallel_load_balancer"),
    SAME_GIVEN("parallelism.expert_parallel_degree", KEY_EP),
    SAME_GIVEN("parallelism.expert_tensor_parallel_degree", KEY_ETP),
    ONLY("parallelism.expert_parallel_comm_backend", "standard"),
    ONLY("parallelism.enable_compiled_autograd", "false"),
    ONLY("experimental.enable_compiled_autograd", "false"),

    /* batches */
    LATER("training.local_batch_size"),
    LATER("training.batch_size"),
    LATER("training.global_batch_size"),
    LATER("training.seq_len"),

    /* number formats */
    LATER("training.dtype"),
    LATER("training.mixed_precision_param"),
    LATER("training.mixed_precision_reduce"),
    LATER("model.converters"),
    LATER("float8.enable_float8_linear"),
    LATER("training.enable_float8_linear"),
    LATER("training.enable_fp8_linear"),
    LATER("training.fp8_linear"),
    LATER("float8.recipe_name"),
    LATER("float8.enable_fsdp_float8_all_gather"),
    LATER("float8.precompute_float8_dynamic_scale_for_fsdp"),
    LATER("float8.filter_fqns"),
    QUIET("float8"),
    QUIET("mx"),
    LATER("quantize.linear.float8.recipe_name"),
    LATER("quantize.linear.float8.enable_fsdp_float8_all_gather"),
    LATER("quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp"),
    LATER("quantize.linear.float8.filter_fqns"),
    LATER("quantize.dense.float8.recipe_name"),
    LATER("quantize.dense.float8.enable_fsdp_float8_all_gather"),
    LATER("quantize.dense.float8.precompute_float8_dynamic_scale_for_fsdp"),
    LATER("quantize.dense.float8.filter_fqns"),
    ASIDE("quantize.grouped_mm", "the experts' products stay in 16 bits"),
    QUIET("quantize"),

    /* optimizer */
    WORDS("optimizer.name", KEY_OPTIMIZER, "AdamW=adamw Adam=adamw"),
    WORDS("optimizer.implementation", KEY_OPTIMIZER_IMPL,
          "fused=fused foreach=foreach for-loop=loop"),
    LATER("optimizer.fused"),
    LATER("optimizer.early_step_in_backward"),
    QUIET("optimizer"),
    LATER("training.max_norm"),
    WORDS("training.enable_cpu_offload", KEY_OFFLOAD_PARAMS, "true=cpu false="),

    /* layers */
    LATER("activation_checkpoint.mode"),
    LATER("activation_checkpoint.selective_ac_option"),
    QUIET("activation_checkpoint"),
    LATER("compile.enable"),
    LATER("compile.components"),
    ONLY("compile.backend", "inductor"),
    QUIET("compile"),
    LATER("training.compile"),
    SAME_GIVEN("debug.deterministic", KEY_DETERMINISTIC),
    SAME_READ("training.deterministic", KEY_DETERMINISTIC),
    QUIET("debug"),

    /* the model's own */
    WORDS_READ("model.norm_type", KEY_NORM_KERNEL, /* to 17 April 2025, #1115 */
               "rmsnorm=eager fused_rmsnorm=fused compiled_rmsnorm=fused "
               "layernorm= np_layernorm="),
    SHAPE("model"),
    SHAPE("hf_transformers"),

    /* what is not seen in memory */
    QUIET("training.dataset"),
    QUIET("training.dataset_path"),
    QUIET("training.dataloader"),
    QUIET("training.steps"),
    QUIET("training.warmup_steps"),
    QUIET("training.gc_freq"),
    QUIET("training.gc_debug"),
    QUIET("training.seed"),
    QUIET("training.debug_moe_force_load_balance"),
    ONLY("validation.enable", "false"),
    ONLY("validation.enabled", "false"),
    QUIET("validation"),
    ONLY("fault_tolerance.enable", "false"),
    QUIET("fault_tolerance"),
    ONLY("memory_estimation.enable", "false"),
    QUIET("memory_estimation"),
    QUIET("experimental"),
    QUIET("job"),
    QUIET("profiling"),
    QUIET("metrics"),
    QUIET("lr_scheduler"),
    QUIET("checkpoint"),
    QUIET("comm"),
    QUIET("estimate"),
};

/* ---- and back ---- */

static const char *torch_dtype(enum dtype t)
{
    return t == DT_BF16 ? "bfloat16" : t == DT_FP16 ? "float16" : "float32";
}

static void training(struct emit *e, const struct run *r)
{
    emit_count(e, "training.local_batch_size",
               r->pp > 1 ? r->micro_batch * r->grad_accum : r->micro_batch);
    if (r->pp == 1)
        emit_count(e, "training.global_batch_size", r->global_batch);
    emit_count(e, "training.seq_len", r->seq_len);
    emit_word(e, "training.dtype",
              torch_dtype(r->engine == ENGINE_DDP && r->prec.autocast
                              ? DT_FP32
                              : r->prec.param));
    emit_word(e, "training.mixed_precision_param",
              torch_dtype(r->prec.compute));
    emit_word(e, "training.mixed_precision_reduce",
              torch_dtype(r->prec.reduce));
}

/* Nothing is wrapped by torchtitan that reads TOML where nothing is sharded. */
static void refuse_alone(struct emit *e, const struct run *r)
{
    if (r->dp * r->cp > 1) /* somebody has said so */
        emit_refuse(e, KEY_SHARD_DEGREE,
                    "torchtitan that reads TOML wraps nothing then: leave it "
                    "out");
    else
        emit_refuse(e, KEY_ENGINE,
                    "without ranks to shard over nothing is wrapped by "
                    "torchtitan that reads TOML: use --engine ddp "
                    "--precision %s",
                    r->tp > 1 || r->pp > 1 ? "fp32" : "bf16-amp");
}

static void parallelism(struct emit *e, const struct run *r)
{
    const bool fsdp = r->engine == ENGINE_FSDP2;
    if (fsdp && r->shard == 1)
        refuse_alone(e, r);
    const uint64_t shard = fsdp && r->shard >= r->cp ? r->shard / r->cp : 1;
    emit_count(e, "parallelism.data_parallel_replicate_degree", r->dp / shard);
    emit_count(e, "parallelism.data_parallel_shard_degree", shard);
    if (fsdp)
        emit_word(e, "parallelism.fsdp_reshard_after_forward",
                  r->reshard                  ? "always"
                  : r->zero == 3 && r->pp > 1 ? "default"
                                              : "never");
    if (r->async_tp)
        emit_bool(e, "parallelism.enable_async_tensor_parallel", true);
    if (r->pp > 1)
        emit_count(e, "parallelism.pipeline_parallel_microbatch_size",
                   r->micro_batch);
}

/* Layers of a part: of one of a rank's chunks. */
static uint64_t part_layers(const struct run *r, uint64_t part)
{
    const bool up = run_folds(r) && part >= r->pp;
    const uint64_t rank = up ? 2 * r->pp - 1 - part : part % r->pp;
    const uint64_t chunk = part / r->pp;
    return run_layers_before(r, rank, chunk + 1)
           - run_layers_before(r, rank, chunk);
}

/* Each part's modules by name: torchtitan's own split counts embedding and head
 * as layers, and has two parts a rank of schedules with chunks. */
static void parts(struct emit *e, const struct run *r)
{
    enum { PARTS_TEXT = 7000 };
    char text[PARTS_TEXT] = "[[\"tok_embeddings\"";
    uint64_t next = 0;
    if (r->pp == 1)
        return;
    const uint64_t n = r->pp * run_chunks(r);
    for (uint64_t s = 0; s < n; s++) {
        for (uint64_t i = 0; i < part_layers(r, s); i++)
            str_append(text, sizeof(text),
                       s > 0 && i == 0 ? "\"layers.%" PRIu64 "\""
                                       : ", \"layers.%" PRIu64 "\"",
                       next++);
        if (s + 1 < n)
            str_append(text, sizeof(text), "%s", "],\n    [");
    }
    str_append(text, sizeof(text), "%s", ", \"norm\", \"output\"]]");
    emit_raw(e, "parallelism.module_fqns_per_model_part", "%s", text);
}

static void layers(struct emit *e, const struct run *r)
{
    static const char option[] = "activation_checkpoint.selective_ac_option";
    const bool ops = r->recompute == RECOMP_OPS;
    const bool some = r->recompute == RECOMP_FULL && r->recompute_every > 1;
    emit_word(e, "activation_checkpoint.mode",
              ops || some                   ? "selective"
              : r->recompute == RECOMP_FULL ? "full"
                                            : "none");
    if (ops)
        emit_word(e, option, "op");
    if (some)
        emit_raw(e, option, "\"%" PRIu64 "\"", r->recompute_every);
    if (!r->compile)
        return;
    emit_bool(e, "compile.enable", true);
    emit_raw(e, "compile.components", "[\"model\"%s]",
             r->loss == LOSS_FUSED ? ", \"loss\"" : "");
}

static bool writes(const struct run *r, const char *path)
{
    if (strcmp(path, "parallelism.context_parallel_rotate_method") == 0)
        return r->cp > 1;
    return r->pp > 1
           || strcmp(path, "parallelism.pipeline_parallel_schedule") != 0;
}

static void gathers_float8(struct emit *e)
{
    emit_bool(e, "quantize.linear.float8.enable_fsdp_float8_all_gather", true);
    emit_bool(e,
              "quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp",
              true);
}

static void apart(struct emit *e, const struct run *r)
{
    const bool mx = r->prec.fp8 && r->fp8_recipe == FP8_MXFP8;
    training(e, r);
    parallelism(e, r);
    parts(e, r);
    layers(e, r);
    if (r->optimizer_in_backward)
        emit_bool(e, "optimizer.early_step_in_backward", true);
    if (r->prec.fp8)
        emit_raw(e, "model.converters", "[\"quantize.linear.%s\"]",
                 mx ? "mx" : "float8");
    if (r->prec.fp8 && run_fp8_is_rowwise(r))
        emit_word(e, "quantize.linear.float8.recipe_name",
                  r->fp8_recipe == FP8_ROWWISE ? "rowwise"
                                               : "rowwise_with_gw_hp");
    if (r->prec.fp8 && r->fp8_params)
        gathers_float8(e);
}

const struct config_table config_torchtitan = {
    rows,       sizeof(rows) / sizeof(rows[0]), false, false,
    NULL,       config_torchtitan_together,     apart, writes,
    BESIDE_FEW,
};
