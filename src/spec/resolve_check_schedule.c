/*
 * Which pipeline schedules go with which framework and layout: those that
 * compute gradients of weights apart, or the head's at the end. Owns refusals, no
 * default.
 */
#include "spec/resolve.h"

#include "base/unit.h"

#include <inttypes.h>

#include "base/banned.h"

/* Megatron's linears hand their gradients to a store (sail-sg's fork,
 * Transformer Engine's delay_wgrad_compute); PyTorch's split autograd's
 * graph (torch/distributed/pipelining). */
static void check_framework(const struct run *r, struct diag *d)
{
    char name[RESOLVE_TEXT_MAX], buf[RESOLVE_TEXT_MAX];
    const bool megatron = resolve_is_megatron(r);
    const bool loops = r->schedule == SCHED_ZB_INTERLEAVED;
    if (megatron && r->engine == ENGINE_MEGATRON && !loops)
        return;
    const bool torch = run_folds(r) || loops;
    const bool none = r->impl == IMPL_TORCHTITAN && !torch;
    if (run_torch_pipelines(r) && torch)
        return;
    memplan_error *e = setup_error(
        d, MEMPLAN_E_UNSUPPORTED, KEY_SCHEDULE,
        "schedule '%s' with %s '%s' is not modelled%s",
        resolve_text(r, KEY_SCHEDULE, name),
        setup_field(megatron ? KEY_ENGINE : KEY_IMPLEMENTATION)->key,
        resolve_text(r, megatron ? KEY_ENGINE : KEY_IMPLEMENTATION, buf),
        none ? ": PyTorch has no such schedule" : " yet");
    if (none)
        diag_hint(e, "use --schedule zb-v, dualpipe-v or 1f1b");
    else if (loops)
        diag_hint(e, "use --framework torchtitan, or --schedule interleaved");
    else
        diag_hint(e, "use --framework megatron, or --schedule 1f1b");
}

/* A policy's tensors are there once (torch/utils/checkpoint.py,
 * _CachedTorchDispatchMode), and a reentrant checkpoint's backward is no
 * autograd.grad's (CheckpointFunction.backward). */
static void check_checkpoints(const struct run *r, struct diag *d)
{
    const struct {
        bool bad;
        enum setup_key key;
        memplan_status status;
        const char *why, *hint;
    } rows[] = {
        { r->recompute == RECOMP_OPS, KEY_RECOMPUTE, MEMPLAN_E_CONFLICT,
          ": PyTorch stops at the second half of the backward, \"Trying to "
          "backward an extra time\"",
          "use --recompute full, --recompute none, or --schedule interleaved "
          "--vpp 2" },
        { r->recompute == RECOMP_FULL && r->recompute_reentrant,
          KEY_RECOMPUTE_REENTRANT, MEMPLAN_E_CONFLICT,
          ": PyTorch stops at the first half of the backward, "
          "\"torch.utils.checkpoint is incompatible with .grad()\"",
          "leave it out" },
        { r->recompute == RECOMP_FULL && r->recompute_granularity > 1,
          KEY_RECOMPUTE_GRANULARITY, MEMPLAN_E_UNSUPPORTED,
          " is not modelled, which runs all layers of a checkpoint again for "
          "each weight",
          "leave it out" },
    };
    char name[RESOLVE_TEXT_MAX], buf[RESOLVE_TEXT_MAX];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].bad)
            diag_hint(setup_error(d, rows[i].status, rows[i].key,
                                  "%s '%s' with schedule '%s'%s",
                                  setup_field(rows[i].key)->key,
                                  resolve_text(r, rows[i].key, buf),
                                  resolve_text(r, KEY_SCHEDULE, name),
                                  rows[i].why),
                      "%s", rows[i].hint);
}

/* stage.py, backward_maybe_with_nosync. */
static void check_sync(const struct run *r, struct diag *d)
{
    char name[RESOLVE_TEXT_MAX], buf[RESOLVE_TEXT_MAX];
    if (r->engine != ENGINE_FSDP2 || r->grad_sync == SYNC_LAST)
        return;
    diag_hint(setup_error(d, MEMPLAN_E_CONFLICT, KEY_GRAD_SYNC,
                          "grad_sync '%s' with schedule '%s': PyTorch's "
                          "stages reduce gradients once a step",
                          resolve_text(r, KEY_GRAD_SYNC, buf),
                          resolve_text(r, KEY_SCHEDULE, name)),
              "leave it out");
}

/* schedules.py, _check_torch_compile_compatibility. */
static void check_torch(const struct run *r, struct diag *d)
{
    char name[RESOLVE_TEXT_MAX];
    resolve_text(r, KEY_SCHEDULE, name);
    if (r->compile)
        diag_hint(setup_error(d, MEMPLAN_E_CONFLICT, KEY_COMPILE,
                              "compiled layers with schedule '%s': PyTorch "
                              "refuses them",
                              name),
                  "leave it out, or use --schedule interleaved --vpp 2");
    if (r->prec.fp8)
        diag_hint(setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_PRECISION,
                              "products in 8 bits with schedule '%s' and "
                              "torchtitan's layers are not modelled yet",
                              name),
                  "use --precision bf16-mixed, or --schedule interleaved "
                  "--vpp 2");
    const enum setup_key old[] = { KEY_RETURN_OUTPUTS,
                                   KEY_KEEP_REDUCE_SCATTER };
    const bool asked[] = { r->return_outputs, r->keep_reduce_scatter };
    for (size_t i = 0; i < sizeof(old) / sizeof(old[0]); i++)
        if (asked[i])
            diag_hint(setup_error(d, MEMPLAN_E_UNSUPPORTED, old[i],
                                  "'%s' with schedule '%s' is not modelled",
                                  setup_field(old[i])->key, name),
                      "leave it out, or use --schedule 1f1b");
    check_checkpoints(r, d);
}

memplan_error *resolve_bad_micros(const struct run *r, struct diag *d)
{
    char name[RESOLVE_TEXT_MAX], group[UNIT_TEXT_MAX] = "";
    if (r->microbatch_group > 0)
        str_format(group, sizeof(group), ", %" PRIu64 " at a time",
                   r->microbatch_group);
    return setup_error(d, MEMPLAN_E_CONFLICT, KEY_GRAD_ACCUM,
                       "schedule '%s' cannot run %" PRIu64
                       " micro-batches through pp %" PRIu64 "%s",
                       resolve_text(r, KEY_SCHEDULE, name), r->grad_accum,
                       r->pp, group);
}

static void report_micros(const struct run *r, struct diag *d,
                          const char *number)
{
    diag_hint(resolve_bad_micros(r, d), "use %s%" PRIu64 " or more", number,
              2 * r->pp);
}

/* dualpipe.py, step: asserts all three. */
static void check_dual(const struct run *r, struct diag *d)
{
    if (r->pp % 2 != 0) {
        memplan_error *e = setup_error(
            d, MEMPLAN_E_CONFLICT, KEY_PP,
            "schedule 'dualpipe' pairs stages, pp %" PRIu64 " is odd", r->pp);
        const uint64_t gpus = r->gpus / r->pp * (r->pp + 1);
        diag_hint(e, "use --pp %" PRIu64, r->pp + 1);
        if (r->given[KEY_GPUS] && r->gpus % (r->tp * r->cp * (r->pp + 1)) != 0)
            str_append(e->hint, sizeof(e->hint), " --gpus %" PRIu64, gpus);
    } else if (r->grad_accum % 2 != 0 || r->grad_accum < 2 * r->pp) {
        report_micros(r, d, "an even number, ");
    }
}

/* Both halves of a rank are equally long (arguments.py of sail-sg's fork:
 * layers over 2 pp), torchtitan's have a layer each; dualpipev.py, step, asserts
 * the number of micro-batches, as ScheduleDualPipeV does. */
static void check_v(const struct run *r, struct diag *d)
{
    char name[RESOLVE_TEXT_MAX];
    const bool torch = run_torch_pipelines(r);
    uint64_t layers = 0;
    bool even = true;
    for (uint64_t i = 0; i < r->pp; i++) {
        layers += r->stage_layers[i];
        even =
            even
            && (torch ? r->stage_layers[i] > 1 : r->stage_layers[i] % 2 == 0);
    }
    if (!even && torch) {
        diag_hint(setup_error(d, MEMPLAN_E_CONFLICT, KEY_PP,
                              "schedule '%s' has two stages a rank, %" PRIu64
                              " layers leave one of 2 x pp %" PRIu64 " without",
                              resolve_text(r, KEY_SCHEDULE, name), layers,
                              r->pp),
                  "use a smaller --pp, or give each rank 2 layers or more "
                  "(--pipeline-layers)");
    } else if (!even) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_CONFLICT, KEY_PP,
                        "schedule '%s' has two halves a rank, %" PRIu64
                        " layers do not split over 2 x pp %" PRIu64,
                        resolve_text(r, KEY_SCHEDULE, name), layers, r->pp);
        uint64_t pp = r->pp - 1;
        while (pp > 1
               && (layers % (2 * pp) != 0 || r->gpus % (pp * r->tp) != 0))
            pp--;
        if (pp > 1)
            diag_hint(e, "use --pp %" PRIu64 ", or ", pp);
        str_append(e->hint, sizeof(e->hint), "%s",
                   "make every stage's number of layers even "
                   "(--pipeline-layers)");
    } else if (r->schedule == SCHED_DUALPIPE_V && r->grad_accum < 2 * r->pp) {
        report_micros(r, d, "");
    }
}

/* A process for each rank of tp or cp, and one for all GPUs of device_map:
 * transformers takes tp_plan or device_map, not both (distributed/utils.py,
 * 5.23). */
static void check_ranks_apart(enum setup_key key, uint64_t n, struct diag *d)
{
    const char *name = setup_field(key)->key;
    if (n == 1)
        return;
    memplan_error *e = setup_error(
        d, MEMPLAN_E_CONFLICT, key,
        "%s %" PRIu64 " with schedule 'naive': device_map is of one process",
        name, n);
    diag_hint(e, "use --%s 1, or --pp 1 without --schedule", name);
}

/* transformers/trainer.py: no device_map in a distributed run. */
static void check_spread(const struct run *r, struct diag *d)
{
    check_ranks_apart(KEY_TP, r->tp, d);
    check_ranks_apart(KEY_CP, r->cp, d);
    if (r->dp == 1 || r->tp > 1 || r->cp > 1)
        return;
    memplan_error *e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_GPUS,
                                   "%" PRIu64 " GPUs for pp %" PRIu64
                                   " of schedule 'naive': one process "
                                   "spreads one model, there are no replicas",
                                   r->gpus, r->pp);
    diag_hint(e, "use --gpus %" PRIu64 ", or --pp %" PRIu64, r->pp, r->gpus);
}

/* Buffers for the head's gradients are GPTModel's (core/models/gpt/gpt_model.py);
 * core/model_parallel_config.py asks for stages and for fused gradients. Each of
 * Megatron's own products looks for such buffers and fails, and Transformer
 * Engine's do not look (core/tensor_parallel/layers.py, ColumnParallelLinear).
 */
static void check_deferred(const struct run *r, const struct spec *s,
                           struct diag *d)
{
    const enum setup_key key = KEY_DEFER_EMBEDDING_WGRAD;
    const bool gpt =
        spec_is_language(s) && s->decoder_layers == 0 && !s->bidirectional;
    const struct {
        bool bad;
        memplan_status status;
        const char *why, *hint;
    } rows[] = {
        { r->engine != ENGINE_MEGATRON, MEMPLAN_E_CONFLICT,
          "outside Megatron's engine",
          "use --framework megatron --grad-accum-fusion" },
        { r->impl == IMPL_MEGATRON_LOCAL, MEMPLAN_E_CONFLICT,
          "with Megatron's own layers, whose products fail for want of the "
          "head's buffers",
          "use --implementation megatron" },
        { r->impl != IMPL_MEGATRON, MEMPLAN_E_CONFLICT, "outside Megatron",
          "use --implementation megatron" },
        { r->pp == 1, MEMPLAN_E_CONFLICT, "without pipeline stages",
          "add --pp 2 or more" },
        { r->schedule != SCHED_1F1B && r->schedule != SCHED_INTERLEAVED,
          MEMPLAN_E_CONFLICT, "under a schedule that Megatron-LM has not",
          "use --schedule 1f1b, or --vpp" },
        { !r->wgrad_fusion, MEMPLAN_E_CONFLICT,
          "without fused gradients of weights", "add --grad-accum-fusion" },
        { !gpt, MEMPLAN_E_CONFLICT, "but in Megatron's GPT models",
          "leave it out" },
        { s->mtp_layers > 0, MEMPLAN_E_UNSUPPORTED,
          "with multi-token prediction is not modelled", "leave it out" },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (!rows[i].bad)
            continue;
        diag_hint(setup_error(d, rows[i].status, key, "'%s' %s",
                              setup_field(key)->key, rows[i].why),
                  "%s", rows[i].hint);
        return;
    }
}

/* PyTorch has no such limit, nor a model so many layers to split. */
static void check_loops(const struct run *r, struct diag *d)
{
    if (r->vpp <= SPLIT_CHUNKS_MAX)
        return;
    char name[RESOLVE_TEXT_MAX];
    diag_hint(setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_VPP,
                          "vpp %" PRIu64 " with schedule '%s' is not modelled",
                          r->vpp, resolve_text(r, KEY_SCHEDULE, name)),
              "use --vpp %d or less", SPLIT_CHUNKS_MAX);
}

void resolve_check_schedule(const struct run *r, const struct spec *s,
                            struct diag *d)
{
    if (run_spreads(r))
        check_spread(r, d);
    if (run_torch_pipelines(r))
        check_sync(r, d);
    if (r->deferred_wgrads > 0)
        check_deferred(r, s, d);
    if (!run_splits_backward(r))
        return;
    check_framework(r, d);
    if (run_torch_pipelines(r) && (run_folds(r) || run_loops(r)))
        check_torch(r, d);
    if (r->schedule == SCHED_DUALPIPE)
        check_dual(r, d);
    if (run_folds(r))
        check_v(r, d);
    if (run_loops(r))
        check_loops(r, d);
    if (r->offload_activations == OFFLOAD_NONE)
        return;
    char name[RESOLVE_TEXT_MAX];
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_OFFLOAD_ACTIVATIONS,
                    "offloaded activations with schedule '%s' are not "
                    "modelled yet",
                    resolve_text(r, KEY_SCHEDULE, name));
    diag_hint(e, "leave it out, or use --schedule 1f1b");
}
