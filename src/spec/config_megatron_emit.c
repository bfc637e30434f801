/*
 * Owns what a run says in Megatron-LM's arguments beyond the rows of
 * config_megatron.c: flags that stand for several keys, or for their defaults.
 * [megatron/training/arguments.py, core_v0.16]
 */
#include "spec/config_emit.h"
#include "spec/config_megatron.h"

#include "base/unit.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

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

/* Stages that are not all equal: by a flag where only an end differs, and has
 * layers. Chunks that are not: by a layout alone. */
static void stages(struct emit *e, const struct run *r)
{
    const uint16_t *n = r->stage_layers;
    const uint64_t inner = r->pp > 2 ? n[1] : 0;
    uint64_t layers = 0;
    bool even = true, ends = r->pp > 2 && r->vpp == 1;
    for (uint64_t i = 0; i < r->pp; i++) {
        layers += n[i];
        even = even && n[i] == n[0] && n[i] % r->vpp == 0;
        ends = ends && n[i] > 0 && (i == 0 || i == r->pp - 1 || n[i] == inner);
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
    if (r->precision == PREC_FP4_MIXED) {
        emit_word(e, "fp4_format", "e2m1");
    } else if (r->prec.fp8) {
        emit_word(e, "fp8_format", "hybrid");
        emit_word(e, "fp8_recipe", recipes[r->fp8_recipe]);
    }
    if (r->prec.fp8 && r->bf16_first + r->bf16_last > 0) {
        emit_bool(e, "first_last_layers_bf16", true);
        emit_raw(e, "num_layers_at_start_in_bf16", "%" PRIu64, r->bf16_first);
        emit_raw(e, "num_layers_at_end_in_bf16", "%" PRIu64, r->bf16_last);
    }
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
    if (!local && r->attention == ATTN_FLASH && r->given[KEY_ATTENTION_KERNEL]
        && r->attention_kernel == KERNEL_FLASH_2)
        emit_word(e, "attention_backend", "flash");
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

void config_megatron_apart(struct emit *e, const struct run *r)
{
    deterministic(e, r);
    program(e, r);
    vocabulary(e, r);
    stages(e, r);
    states(e, r);
    precision(e, r);
    config_megatron_keeps(e, r);
    config_megatron_emit_graphs(e, r);
    kernels(e, r);
    if (e->spec->experts > 0 && r->etp != r->tp)
        emit_count(e, "expert_tensor_parallel_size", r->etp);
}
