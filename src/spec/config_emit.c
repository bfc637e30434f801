/*
 * Owns the way back: a resolved run in the words of another program's launch
 * file. Writes what it can and judges nothing: whoever calls reads the text
 * back by the dialect's own table and refuses what does not come back.
 */
#include "spec/config.h"

#include "base/unit.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

static void say(struct emit *e, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;
static void say(struct emit *e, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const size_t n = strlen(e->text);
    str_vformat(e->text + n, sizeof(e->text) - n, format, args);
    va_end(args);
}

static const char *torch_dtype(enum dtype t)
{
    return t == DT_BF16 ? "bfloat16" : t == DT_FP16 ? "float16" : "float32";
}

/* ---- torchtitan ---- */

static void titan_training(struct emit *e, const struct run *r)
{
    const uint64_t local =
        r->pp > 1 ? r->micro_batch * r->grad_accum : r->micro_batch;
    say(e, "[training]\n");
    say(e, "local_batch_size = %" PRIu64 "\n", local);
    if (r->pp == 1)
        say(e, "global_batch_size = %" PRIu64 "\n", r->global_batch);
    say(e, "seq_len = %" PRIu64 "\n", r->seq_len);
    say(e, "dtype = \"%s\"\n",
        torch_dtype(r->engine == ENGINE_DDP && r->prec.autocast
                        ? DT_FP32
                        : r->prec.param));
    say(e, "mixed_precision_param = \"%s\"\n", torch_dtype(r->prec.compute));
    say(e, "mixed_precision_reduce = \"%s\"\n", torch_dtype(r->prec.reduce));
    if (r->offload_params == OFFLOAD_CPU)
        say(e, "enable_cpu_offload = true\n");
}

static void titan_parallelism(struct emit *e, const struct run *r)
{
    static const char *const names[SCHEDULE_COUNT] = { [SCHED_1F1B] = "1F1B",
                                                       [SCHED_GPIPE] = "GPipe",
                                                       [SCHED_INTERLEAVED] =
                                                           "Interleaved1F1B" };
    const bool fsdp = r->engine == ENGINE_FSDP2;
    const uint64_t shard = fsdp && r->shard >= r->cp ? r->shard / r->cp : 1;
    say(e, "\n[parallelism]\n");
    say(e, "data_parallel_replicate_degree = %" PRIu64 "\n", r->dp / shard);
    say(e, "data_parallel_shard_degree = %" PRIu64 "\n", shard);
    if (fsdp)
        say(e, "fsdp_reshard_after_forward = \"%s\"\n",
            r->zero == 3 ? "always" : "never");
    say(e, "tensor_parallel_degree = %" PRIu64 "\n", r->tp);
    say(e, "context_parallel_degree = %" PRIu64 "\n", r->cp);
    if (r->ep > 1) {
        say(e, "expert_parallel_degree = %" PRIu64 "\n", r->ep);
        say(e, "expert_tensor_parallel_degree = %" PRIu64 "\n", r->etp);
    }
    say(e, "pipeline_parallel_degree = %" PRIu64 "\n", r->pp);
    if (r->pp == 1 || names[r->schedule] == NULL)
        return;
    say(e, "pipeline_parallel_schedule = \"%s\"\n", names[r->schedule]);
    say(e, "pipeline_parallel_microbatch_size = %" PRIu64 "\n", r->micro_batch);
}

static void titan_layers(struct emit *e, const struct run *r)
{
    const bool ops = r->recompute == RECOMP_OPS;
    const bool some = r->recompute == RECOMP_FULL && r->recompute_every > 1;
    say(e, "\n[activation_checkpoint]\nmode = \"%s\"\n",
        ops || some                   ? "selective"
        : r->recompute == RECOMP_FULL ? "full"
                                      : "none");
    if (ops)
        say(e, "selective_ac_option = \"op\"\n");
    if (some)
        say(e, "selective_ac_option = \"%" PRIu64 "\"\n", r->recompute_every);
    if (r->compile)
        say(e, "\n[compile]\nenable = true\ncomponents = [\"model\"%s]\n",
            r->loss == LOSS_FUSED ? ", \"loss\"" : "");
    if (r->deterministic)
        say(e, "\n[debug]\ndeterministic = true\n");
}

void config_emit_torchtitan(struct emit *e, const struct run *r)
{
    static const char *const kernels[OPTIMIZER_IMPL_COUNT] = {
        [OPTIMPL_FOREACH] = "foreach",
        [OPTIMPL_FUSED] = "fused",
        [OPTIMPL_LOOP] = "for-loop"
    };
    const bool mx = r->prec.fp8 && r->fp8_recipe == FP8_MXFP8;
    titan_training(e, r);
    titan_parallelism(e, r);
    titan_layers(e, r);
    say(e, "\n[optimizer]\nname = \"AdamW\"\n");
    if (kernels[r->optimizer_impl] != NULL)
        say(e, "implementation = \"%s\"\n", kernels[r->optimizer_impl]);
    if (r->optimizer_in_backward)
        say(e, "early_step_in_backward = true\n");
    if (r->prec.fp8)
        say(e, "\n[model]\nconverters = [\"quantize.linear.%s\"]\n",
            mx ? "mx" : "float8");
}

/* ---- DeepSpeed ---- */

static void ds_offload(struct emit *e, const char *what, enum offload where)
{
    switch (where) {
    case OFFLOAD_CPU:
        say(e, ",\n    \"%s\": { \"device\": \"cpu\" }", what);
        return;
    case OFFLOAD_NVME:
        say(e,
            ",\n    \"%s\": { \"device\": \"nvme\", "
            "\"nvme_path\": \"/local_nvme\" }",
            what);
        return;
    case OFFLOAD_NONE:
    case OFFLOAD_COUNT: return;
    }
}

static void ds_zero(struct emit *e, const struct run *r)
{
    static const struct {
        enum setup_key key;
        const char *name;
    } buckets[] = {
        { KEY_REDUCE_BUCKET, "reduce_bucket_size" },
        { KEY_ALLGATHER_BUCKET, "allgather_bucket_size" },
        { KEY_PREFETCH_BUCKET, "stage3_prefetch_bucket_size" },
        { KEY_MAX_LIVE_PARAMS, "stage3_max_live_parameters" },
        { KEY_PERSISTENCE_THRESHOLD, "stage3_param_persistence_threshold" },
        { KEY_SUB_GROUP_SIZE, "sub_group_size" },
    };
    say(e, ",\n  \"zero_optimization\": {\n");
    say(e, "    \"stage\": %" PRIu64, r->zero);
    for (size_t i = 0; i < sizeof(buckets) / sizeof(buckets[0]); i++) {
        if (!r->setup.set[buckets[i].key])
            continue;
        say(e, ",\n    \"%s\": ", buckets[i].name);
        say(e, "%" PRIu64, r->setup.v[buckets[i].key].n);
    }
    say(e, ",\n    \"overlap_comm\": %s", r->overlap_comm ? "true" : "false");
    if (r->given[KEY_SHARD_DEGREE])
        say(e, ",\n    \"mics_shard_size\": %" PRIu64, r->shard);
    ds_offload(e, "offload_optimizer", r->offload_optimizer);
    ds_offload(e, "offload_param", r->offload_params);
    say(e, "\n  }");
}

static const char *ds_optimizer(enum optimizer o)
{
    switch (o) {
    case OPT_ADAMW: return "AdamW";
    case OPT_LION: return "Lion";
    case OPT_ADAGRAD: return "Adagrad";
    case OPT_MUON: return "Muon";
    case OPT_LAMB: return "Lamb";
    case OPT_SGD:
    case OPT_MOMENTUM: return "SGD";
    case OPT_ADAM8BIT:
    case OPT_PAGED_ADAM8BIT:
    case OPT_ADAFACTOR:
    case OPT_LION8BIT:
    case OPT_RMSPROP:
    case OPT_ADAM4BIT:
    case OPT_GALORE:
    case OPT_NONE:
    case OPTIMIZER_COUNT: return NULL;
    }
    return NULL;
}

void config_emit_deepspeed(struct emit *e, const struct run *r)
{
    const char *optimizer = ds_optimizer(r->optimizer);
    say(e, "{\n");
    say(e, "  \"train_batch_size\": %" PRIu64 ",\n", r->global_batch);
    say(e, "  \"train_micro_batch_size_per_gpu\": %" PRIu64 ",\n",
        r->micro_batch);
    say(e, "  \"gradient_accumulation_steps\": %" PRIu64 ",\n", r->grad_accum);
    say(e, "  \"gradient_clipping\": %s", r->clip_grad ? "1.0" : "0.0");
    if (r->precision == PREC_BF16_MIXED || r->precision == PREC_FP16_MIXED)
        say(e, ",\n  \"%s\": { \"enabled\": true }",
            r->precision == PREC_BF16_MIXED ? "bf16" : "fp16");
    if (r->given[KEY_GRAD_DTYPE])
        say(e, ",\n  \"data_types\": { \"grad_accum_dtype\": \"%s\" }",
            r->prec.grad == DT_FP32   ? "fp32"
            : r->prec.grad == DT_BF16 ? "bf16"
                                      : "fp16");
    if (optimizer != NULL) {
        say(e, ",\n  \"optimizer\": { \"type\": \"%s\"", optimizer);
        if (r->optimizer == OPT_MOMENTUM)
            say(e, ", \"params\": { \"momentum\": 0.9 }");
        else if (r->optimizer_impl == OPTIMPL_FOREACH)
            say(e, ", \"params\": { \"torch_adam\": true }");
        say(e, " }");
    }
    if (r->tp > 1)
        say(e, ",\n  \"tensor_parallel\": { \"autotp_size\": %" PRIu64 " }",
            r->tp);
    ds_zero(e, r);
    say(e, "\n}\n");
}

/* ---- Megatron-LM ---- */

/* A flag on a line of its own, its number behind it. */
static void flag(struct emit *e, const char *name, uint64_t n)
{
    say(e, " \\\n    --%s %" PRIu64, name, n);
}

static void flag_if(struct emit *e, bool given, const char *words)
{
    if (given)
        say(e, " \\\n    --%s", words);
}

/* torchrun's, then how GPUs and the step's batch are split. */
static void megatron_layout(struct emit *e, const struct run *r)
{
    const uint64_t each =
        r->gpus < r->gpus_per_node ? r->gpus : r->gpus_per_node;
    say(e,
        "torchrun --nnodes %" PRIu64 " --nproc_per_node %" PRIu64
        " pretrain_gpt.py",
        r->gpus / each, each);
    flag(e, "tensor-model-parallel-size", r->tp);
    flag(e, "pipeline-model-parallel-size", r->pp);
    if (r->vpp > 1)
        flag(e, "num-virtual-stages-per-pipeline-rank", r->vpp);
    flag(e, "context-parallel-size", r->cp);
    if (r->ep > 1 || r->etp > 1) {
        flag(e, "expert-model-parallel-size", r->ep);
        flag(e, "expert-tensor-parallel-size", r->etp);
    }
    flag_if(e, r->sequence_parallel, "sequence-parallel");
    flag(e, "micro-batch-size", r->micro_batch);
    flag(e, "global-batch-size", r->global_batch);
    flag(e, "seq-length", r->seq_len);
}

static void megatron_states(struct emit *e, const struct run *r)
{
    static const char *const strategies[] = { "no_shard", "optim",
                                              "optim_grads",
                                              "optim_grads_params" };
    static const char *const recipes[FP8_RECIPE_COUNT] = {
        [FP8_DELAYED] = "delayed",
        [FP8_TENSORWISE] = "tensorwise",
        [FP8_BLOCKWISE] = "blockwise",
        [FP8_MXFP8] = "mxfp8"
    };
    const bool fp16 = r->precision == PREC_FP16_MIXED;
    flag_if(e, r->prec.fp8 || r->precision == PREC_BF16_MIXED, "bf16");
    flag_if(e, fp16, "fp16");
    flag_if(e, fp16 && r->prec.grad == DT_FP32,
            "accumulate-allreduce-grads-in-fp32");
    flag_if(e, r->prec.grad == DT_BF16, "grad-reduce-in-bf16");
    if (r->prec.fp8)
        say(e, " \\\n    --fp8-format hybrid --fp8-recipe %s",
            recipes[r->fp8_recipe]);
    say(e, " \\\n    --optimizer %s",
        r->optimizer == OPT_MOMENTUM ? "sgd"
        : r->optimizer == OPT_MUON   ? "muon"
                                     : "adam");
    if (r->engine == ENGINE_MEGATRON_FSDP)
        say(e,
            " \\\n    --use-megatron-fsdp "
            "--data-parallel-sharding-strategy %s",
            strategies[r->zero]);
    else
        flag_if(e, r->zero == 1, "use-distributed-optimizer");
    flag_if(e, r->overlap_comm, "overlap-grad-reduce");
    flag_if(e, r->offload_optimizer == OFFLOAD_CPU, "optimizer-cpu-offload");
    flag_if(e, !r->clip_grad, "clip-grad 0.0");
}

static void megatron_recompute(struct emit *e, const struct run *r)
{
    enum { WORDS_TEXT = 160 };
    char words[WORDS_TEXT];
    if (r->recompute == RECOMP_FULL && r->given[KEY_RECOMPUTE_LAYERS]) {
        say(e, " \\\n    --recompute-granularity full");
        say(e, " --recompute-method block");
        flag(e, "recompute-num-layers", r->recompute_layers);
    } else if (r->recompute == RECOMP_FULL) {
        say(e, " \\\n    --recompute-granularity full");
        say(e, " --recompute-method uniform");
        flag(e, "recompute-num-layers", r->recompute_granularity);
    } else if (r->recompute == RECOMP_SELECTIVE) {
        char list[WORDS_TEXT];
        str_format(words, sizeof(words), "%s",
                   setup_value_text(&r->setup, KEY_RECOMPUTE_MODULES, list,
                                    sizeof(list)));
        for (char *p = words; *p != '\0'; p++)
            *p = (char)(*p == ',' ? ' ' : *p);
        say(e, " \\\n    --recompute-granularity selective");
        say(e, " --recompute-modules %s", words);
    }
}

static void megatron_kernels(struct emit *e, const struct run *r)
{
    char words[UNIT_TEXT_MAX];
    const bool local = r->impl == IMPL_MEGATRON_LOCAL;
    flag_if(e, local, "transformer-impl local");
    flag_if(e, local && r->attention == ATTN_FLASH, "use-flash-attn");
    flag_if(e, !local && r->attention == ATTN_EAGER,
            "attention-backend unfused");
    flag_if(e,
            strcmp(setup_value_text(&r->setup, KEY_ATTENTION_MASK, words,
                                    sizeof(words)),
                   "none")
                == 0,
            "no-create-attention-mask-in-dataloader");
    if (r->loss == LOSS_FUSED) {
        say(e, " \\\n    --cross-entropy-loss-fusion");
        say(e, " --cross-entropy-fusion-impl %s",
            setup_value_text(&r->setup, KEY_CE_FUSION, words, sizeof(words)));
    }
    flag_if(e, r->deterministic, "deterministic-mode");
    flag_if(e, !r->wgrad_fusion, "no-gradient-accumulation-fusion");
    flag_if(e, r->hidden_dropout <= 0,
            "hidden-dropout 0.0 --attention-dropout 0.0");
}

void config_emit_megatron(struct emit *e, const struct run *r)
{
    megatron_layout(e, r);
    megatron_states(e, r);
    megatron_recompute(e, r);
    megatron_kernels(e, r);
    say(e, "\n");
}
