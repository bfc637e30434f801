/*
 * Owns the defaults of a setup: GPU, framework, optimizer, adapters, and the
 * order in which all is resolved. Each default that matters is said in an
 * assumption with the option that changes it. Refuses to know number formats,
 * kernels, layout and training run (resolve_*.c), and to reject: what cannot be
 * together is found in resolve_layout.c and resolve_check*.c.
 */
#include "spec/resolve.h"

#include "base/count.h"
#include "base/unit.h"
#include "data/constants.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/banned.h"

/* ---- tools ---- */

uint64_t resolve_count(struct run *r, enum setup_key key, uint64_t fallback)
{
    if (!r->setup.set[key]) {
        r->setup.v[key].n = fallback;
        r->setup.set[key] = true;
    }
    return r->setup.v[key].n;
}

double resolve_real(struct run *r, enum setup_key key, double fallback)
{
    if (!r->setup.set[key]) {
        r->setup.v[key].x = fallback;
        r->setup.set[key] = true;
    }
    return r->setup.v[key].x;
}

bool resolve_bool(struct run *r, enum setup_key key, bool fallback)
{
    return resolve_count(r, key, fallback) != 0;
}

uint64_t resolve_force(struct run *r, enum setup_key key, uint64_t value)
{
    r->setup.v[key].n = value;
    r->setup.set[key] = true;
    return value;
}

/* NULL where there is no room: then one more is counted. */
static struct assumption *next_assumption(struct run *r)
{
    if (r->n_assumptions < ASSUMPTION_MAX) {
        r->assumptions_beyond = 0;
        return &r->assumption[r->n_assumptions++];
    }
    struct assumption *last = &r->assumption[ASSUMPTION_MAX];
    r->n_assumptions = ASSUMPTION_MAX + 1;
    r->assumptions_beyond++;
    last->key = KEY_COUNT;
    last->pattern = NULL;
    str_format(last->text, sizeof(last->text),
               "%zu more assumption%s, for which there is no room here",
               r->assumptions_beyond, unit_s((double)r->assumptions_beyond));
    return NULL;
}

static void add_assumption(struct run *r, enum setup_key key,
                           const char *format, va_list args)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 0)))
#endif
    ;
static void add_assumption(struct run *r, enum setup_key key,
                           const char *format, va_list args)
{
    struct assumption *a = next_assumption(r);
    if (a == NULL)
        return;
    a->key = key;
    a->pattern = NULL;
    str_vformat(a->text, sizeof(a->text), format, args);
}

static void add_pattern(struct run *r, enum setup_key key, const char *pattern,
                        struct said_part first, struct said_part second)
{
    struct assumption *a = next_assumption(r);
    if (a == NULL)
        return;
    a->key = key;
    a->pattern = pattern;
    a->said[0] = first;
    a->said[1] = second;
}

void resolve_say(struct run *r, enum setup_key key, const char *pattern,
                 struct said_part first, struct said_part second)
{
    if (!r->given[key])
        add_pattern(r, key, pattern, first, second);
}

void run_say(struct run *run, enum setup_key key, const char *pattern,
             uint64_t n)
{
    add_pattern(run, key, pattern, SAY_COUNT(n), SAY_NOTHING);
}

void resolve_assume(struct run *r, enum setup_key key, const char *format, ...)
{
    if (r->given[key])
        return;
    va_list args;
    va_start(args, format);
    add_assumption(r, key, format, args);
    va_end(args);
}

void run_assume(struct run *run, enum setup_key key, const char *text)
{
    resolve_note(run, key, "%s", text);
}

void resolve_note(struct run *r, enum setup_key key, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_assumption(r, key, format, args);
    va_end(args);
}

const char *resolve_text(const struct run *r, enum setup_key key,
                         char buf[RESOLVE_TEXT_MAX])
{
    return setup_value_text(&r->setup, key, buf, RESOLVE_TEXT_MAX);
}

bool resolve_is_megatron(const struct run *r)
{
    return r->impl == IMPL_MEGATRON || r->impl == IMPL_MEGATRON_LOCAL;
}

static bool above_one(const struct run *r, enum setup_key key)
{
    return r->given[key] && r->setup.v[key].n > 1;
}

/* ---- GPU ---- */

static const char DEFAULT_GPU[] = "a100-80gb";
enum {
    DEFAULT_GPUS_PER_NODE = 8, /* DGX, HGX and what clouds rent */
    GPUS_MAX = 10000000        /* of setup.def */
};

static uint64_t default_gpu_index(void)
{
    const struct gpu *gpu = gpu_find(DEFAULT_GPU, sizeof(DEFAULT_GPU) - 1);
    return gpu ? (uint64_t)(gpu - gpu_at(0)) : 0;
}

/* --gpus beside a file whose machines are smaller makes more of them. */
static void say_files_nodes(struct run *r, uint64_t gpus)
{
    char said[SETUP_SAID_TEXT], other[SETUP_SAID_TEXT];
    if (gpus <= r->gpus_per_node
        || setup_said(&r->setup, KEY_GPUS_PER_NODE, said) == NULL
        || setup_said(&r->setup, KEY_GPUS, other) != NULL)
        return;
    resolve_note(r, KEY_GPUS_PER_NODE,
                 "nodes of %" PRIu64 " GPU%s, as in %s (--gpus-per-node)",
                 r->gpus_per_node, unit_s((double)r->gpus_per_node), said);
}

/* Nodes of a launch file that leaves to each of them how many GPUs it has. */
static void resolve_nodes(struct run *r)
{
    const uint64_t nodes = r->setup.nodes;
    const uint64_t gpus = r->given[KEY_GPUS] ? r->setup.v[KEY_GPUS].n : 0;
    if (nodes > 0 && gpus > 0 && gpus % nodes == 0 && !r->setup.one_node)
        resolve_count(r, KEY_GPUS_PER_NODE, gpus / nodes);
    r->gpus_per_node =
        resolve_count(r, KEY_GPUS_PER_NODE, DEFAULT_GPUS_PER_NODE);
    say_files_nodes(r, gpus);
    if (nodes == 0 || gpus > 0)
        return;
    r->given[KEY_GPUS] = true;
    const uint64_t all = min_u64(nodes * r->gpus_per_node, GPUS_MAX);
    const uint64_t out = r->setup.left_out;
    resolve_count(r, KEY_GPUS, all > out ? all - out : 1);
    if (nodes == 1)
        resolve_assume(r, KEY_GPUS_PER_NODE,
                       "a node of %" PRIu64 " GPU%s (--gpus-per-node, --gpus)",
                       r->gpus_per_node, unit_s((double)r->gpus_per_node));
    else
        resolve_assume(r, KEY_GPUS_PER_NODE,
                       "%" PRIu64 " GPU%s on each of %" PRIu64
                       " nodes (--gpus-per-node, --gpus)",
                       r->gpus_per_node, unit_s((double)r->gpus_per_node),
                       nodes);
}

/* Bytes per second of a link; one that a GPU has not stays unset. */
static double resolve_rate(struct run *r, enum setup_key key, double usual)
{
    if (r->given[key])
        return (double)r->setup.v[key].n;
    if (usual > 0)
        resolve_count(r, key, (uint64_t)usual);
    return usual;
}

static void resolve_gpu(struct run *r)
{
    uint64_t index =
        r->given[KEY_GPU] ? r->setup.v[KEY_GPU].n : default_gpu_index();
    const struct gpu *gpu = gpu_at((size_t)index);
    r->gpu = gpu ? *gpu : *gpu_at(0);
    resolve_count(r, KEY_GPU, index);
    resolve_say(r, KEY_GPU, "GPU # (--gpu)", SAY_TEXT(r->gpu.name),
                SAY_NOTHING);

    if (r->given[KEY_GPU_MEMORY]) {
        r->gpu.visible_bytes = r->setup.v[KEY_GPU_MEMORY].n;
        r->gpu.memory_bytes = r->gpu.visible_bytes;
    }
    r->capacity_bytes = resolve_count(r, KEY_GPU_MEMORY, r->gpu.visible_bytes);
    const double link = r->gpu.intra_node_bytes_s;
    r->gpu.intra_node_bytes_s = resolve_rate(r, KEY_INTRA_NODE_BANDWIDTH, link);
    r->link_scale = link > 0 ? r->gpu.intra_node_bytes_s / link : 1;
    r->gpu.inter_node_bytes_s =
        resolve_rate(r, KEY_INTER_NODE_BANDWIDTH, r->gpu.inter_node_bytes_s);
    r->gpu.host_link_bytes_s =
        resolve_rate(r, KEY_HOST_BANDWIDTH, r->gpu.host_link_bytes_s);
    resolve_nodes(r);
}

/* ---- framework ---- */

static const struct preset {
    enum implementation impl;
    enum engine engine;
    const char *what;
    const char *around; /* the same around other layers */
} presets[FRAMEWORK_COUNT] = {
    [FW_HF] = { IMPL_HF, ENGINE_DDP, "Hugging Face layers, plain DDP",
                "plain DDP" },
    [FW_DEEPSPEED] = { IMPL_HF, ENGINE_DEEPSPEED,
                       "Hugging Face layers, DeepSpeed", "DeepSpeed" },
    [FW_FSDP] = { IMPL_HF, ENGINE_FSDP, "Hugging Face layers, FSDP", "FSDP" },
    [FW_TORCHTITAN] = { IMPL_TORCHTITAN, ENGINE_FSDP2,
                        "torchtitan layers, FSDP2", "FSDP2" },
    [FW_MEGATRON] = { IMPL_MEGATRON, ENGINE_MEGATRON,
                      "Megatron Core, Transformer Engine", "Megatron Core" },
    [FW_MEGATRON_DEEPSPEED] = { IMPL_MEGATRON, ENGINE_DEEPSPEED,
                                "Megatron layers, DeepSpeed", "DeepSpeed" },
    [FW_TORCHTUNE] = { IMPL_TORCHTUNE, ENGINE_FSDP2, "torchtune", "torchtune" },
    [FW_NEMO] = { IMPL_MEGATRON, ENGINE_MEGATRON, "NeMo on Megatron Core",
                  "NeMo on Megatron Core" },
};

static bool impl_given_as(const struct run *r, enum implementation impl)
{
    return r->given[KEY_IMPLEMENTATION]
           && r->setup.v[KEY_IMPLEMENTATION].n == impl;
}

static bool megatron_code_given(const struct run *r)
{
    return impl_given_as(r, IMPL_MEGATRON)
           || impl_given_as(r, IMPL_MEGATRON_LOCAL)
           || impl_given_as(r, IMPL_PAPER);
}

/* The framework whose parts the user named, else the rule of the manual:
 * megatron for model parallelism, deepspeed for ZeRO, else hf. */
static enum framework default_framework(const struct run *r)
{
    if (r->given[KEY_ENGINE]) {
        switch ((enum engine)r->setup.v[KEY_ENGINE].n) {
        case ENGINE_DDP: return FW_HF;
        case ENGINE_DEEPSPEED:
            return megatron_code_given(r) ? FW_MEGATRON_DEEPSPEED
                                          : FW_DEEPSPEED;
        case ENGINE_FSDP: return FW_FSDP;
        case ENGINE_FSDP2: return FW_TORCHTITAN;
        case ENGINE_MEGATRON:
        case ENGINE_MEGATRON_FSDP: return FW_MEGATRON;
        case ENGINE_COUNT: break;
        }
    }
    if (megatron_code_given(r))
        return FW_MEGATRON;
    if (r->given[KEY_SCHEDULE] && r->setup.v[KEY_SCHEDULE].n == SCHED_NAIVE)
        return FW_HF;
    if (impl_given_as(r, IMPL_TORCHTITAN))
        return FW_TORCHTITAN;
    if (impl_given_as(r, IMPL_TORCHTUNE))
        return FW_TORCHTUNE;
    /* its scripts' strategy of more than one device */
    if (impl_given_as(r, IMPL_LITGPT))
        return above_one(r, KEY_GPUS) ? FW_FSDP : FW_HF;
    if (above_one(r, KEY_TP) || above_one(r, KEY_PP) || above_one(r, KEY_CP)
        || above_one(r, KEY_EP))
        return FW_MEGATRON;
    return r->given[KEY_ZERO] ? FW_DEEPSPEED : FW_HF;
}

static uint64_t default_zero(enum engine engine)
{
    switch (engine) {
    case ENGINE_FSDP:
    case ENGINE_FSDP2:
    case ENGINE_MEGATRON_FSDP: return 3; /* reshard_after_forward */
    case ENGINE_MEGATRON: return 1;      /* --use-distributed-optimizer */
    case ENGINE_DDP:
    case ENGINE_DEEPSPEED:
    case ENGINE_COUNT: return 0;
    }
    return 0;
}

static void resolve_framework(struct run *r)
{
    r->framework =
        (enum framework)resolve_count(r, KEY_FRAMEWORK, default_framework(r));
    const struct preset *p = &presets[r->framework];
    r->impl =
        (enum implementation)resolve_count(r, KEY_IMPLEMENTATION, p->impl);
    /* torchtune has no other layers than its own, kin of torchtitan's */
    if (r->framework == FW_TORCHTUNE && r->impl == IMPL_TORCHTITAN) {
        resolve_force(r, KEY_IMPLEMENTATION, IMPL_TORCHTUNE);
        r->impl = IMPL_TORCHTUNE;
        resolve_note(r, KEY_IMPLEMENTATION,
                     "torchtune's own layers, which are kin of torchtitan's "
                     "(--implementation)");
    }
    /* transformers has no loss in pieces: LitGPT's scripts are meant */
    if (r->impl == IMPL_HF && r->given[KEY_LOSS]
        && r->setup.v[KEY_LOSS].n == LOSS_CHUNKED) {
        resolve_force(r, KEY_IMPLEMENTATION, IMPL_LITGPT);
        r->impl = IMPL_LITGPT;
        r->means_litgpt = true;
        resolve_note(r, KEY_IMPLEMENTATION,
                     "LitGPT's layers and scripts, whose loss is in pieces "
                     "(--implementation)");
    }
    r->engine = (enum engine)resolve_count(r, KEY_ENGINE, p->engine);
    r->zero = resolve_count(r, KEY_ZERO, default_zero(r->engine));
    if (r->engine == ENGINE_MEGATRON && r->zero == 3) {
        /* --data-parallel-sharding-strategy optim_grads_params */
        r->engine =
            (enum engine)resolve_force(r, KEY_ENGINE, ENGINE_MEGATRON_FSDP);
        resolve_note(r, KEY_ENGINE,
                     "Megatron's stage 3 is Megatron-FSDP (--engine)");
    }
}

static void say_framework(struct run *r)
{
    const struct preset *p = &presets[r->framework];
    if (!r->given[KEY_IMPLEMENTATION] || !r->given[KEY_ENGINE])
        resolve_say(r, KEY_FRAMEWORK, "framework #: # (--framework)",
                    resolve_word(r, KEY_FRAMEWORK),
                    SAY_TEXT(r->impl == p->impl ? p->what : p->around));
    if (r->zero > 0)
        resolve_say(r, KEY_ZERO, "ZeRO stage #, usual with # (--zero)",
                    SAY_COUNT(r->zero), resolve_word(r, KEY_ENGINE));
}

/* ---- optimizer ---- */

/* What each framework runs when told nothing: transformers' TrainingArguments
 * optim="adamw_torch_fused" (under FSDP too), DeepSpeed's FusedAdam,
 * torchtitan's implementation="fused", Transformer Engine's FusedAdam in
 * Megatron. None asks for a fused RMSprop or Adagrad, and torch has none on
 * GPUs: there torch's own default applies, foreach. SGD's foreach makes no
 * list, so that it counts as fused. */
static enum optimizer_impl default_optimizer_impl(const struct run *r)
{
    switch (r->optimizer) {
    case OPT_ADAMW:
    case OPT_SGD:
    case OPT_MOMENTUM: /* LitGPT says nothing, so that PyTorch chooses */
        return run_is_litgpt(r) ? OPTIMPL_FOREACH : OPTIMPL_FUSED;
    case OPT_LION: /* of Emerging Optimizers, in Megatron Core */
        return run_engine_is_megatron(r) ? OPTIMPL_LOOP : OPTIMPL_FUSED;
    case OPT_ADAGRAD:
    case OPT_RMSPROP: return OPTIMPL_FOREACH;
    case OPT_ADAFACTOR:
    case OPT_MUON:
    case OPT_GALORE:
    case OPT_APOLLO: return OPTIMPL_LOOP;
    case OPT_ADAM8BIT: /* bitsandbytes, DeepSpeed, torchao: own kernels */
    case OPT_PAGED_ADAM8BIT:
    case OPT_PAGED_ADAMW:
    case OPT_LION8BIT:
    case OPT_GALORE8BIT:
    case OPT_LAMB:
    case OPT_ADAM4BIT:
    case OPT_NONE:
    case OPTIMIZER_COUNT: return OPTIMPL_FUSED;
    }
    return OPTIMPL_FUSED;
}

/* The Trainer's default rank; the paper's own runs of 7B have 1024 (GaLore's
 * README). [transformers/trainer_optimizer.py] */
static void resolve_projection(struct run *r)
{
    r->optimizer_rank = resolve_count(r, KEY_OPTIMIZER_RANK, 128);
    r->optimizer_targets =
        resolve_count(r, KEY_OPTIMIZER_TARGETS, 1u << LORA_ALL_LINEAR);
    if (!run_projects(r))
        return;
    resolve_assume(r, KEY_OPTIMIZER_RANK,
                   "projections of rank %" PRIu64 " (--optimizer-rank)",
                   r->optimizer_rank);
    resolve_assume(r, KEY_OPTIMIZER_TARGETS,
                   "projections of all matrices of layers "
                   "(--optimizer-targets)");
}

/* torchtune's recipes do not (recipes/configs, clip_grad_norm: null; but for its
 * vision models' and GRPO's), and in backward there is nothing to clip. */
static bool clips_unless_told(const struct run *r)
{
    return r->impl != IMPL_TORCHTUNE
           && !(r->optimizer_in_backward && r->engine == ENGINE_FSDP2);
}

static void resolve_optimizer(struct run *r)
{
    r->optimizer_impl = (enum optimizer_impl)resolve_count(
        r, KEY_OPTIMIZER_IMPL, default_optimizer_impl(r));
    r->embedding_states = (enum embedding_states)resolve_count(
        r, KEY_EMBEDDING_STATES,
        r->framework == FW_HF ? EMBEDDING_STATES_FP32 : EMBEDDING_STATES_8BIT);
    if (run_has_8bit_moments(r))
        resolve_assume(r, KEY_EMBEDDING_STATES,
                       "states of embeddings in %s (--embedding-states)",
                       r->embedding_states == EMBEDDING_STATES_FP32 ? "fp32"
                                                                    : "8 bits");
    resolve_projection(r);
    r->optimizer_in_backward =
        resolve_bool(r, KEY_OPTIMIZER_IN_BACKWARD, false);
    r->clip_grad = resolve_bool(r, KEY_CLIP_GRAD, clips_unless_told(r));
    r->zeroes_grads = !resolve_bool(r, KEY_ZERO_GRAD_SET_TO_NONE, true);
    resolve_say(r, KEY_OPTIMIZER, "optimizer # (--optimizer)",
                resolve_word(r, KEY_OPTIMIZER), SAY_NOTHING);
    if (r->optimizer != OPT_NONE)
        resolve_say(r, KEY_OPTIMIZER_IMPL,
                    "# optimizer step (--optimizer-impl)",
                    resolve_word(r, KEY_OPTIMIZER_IMPL), SAY_NOTHING);
}

/* ---- the whole ---- */

_Static_assert(offsetof(struct run, setup) == 0, "what is before `given`");

/* Texts of assumptions are not cleared: n_assumptions says how many count. Nor
 * is a setup that another is copied over. */
static void start(struct run *r, const struct setup *setup)
{
    const size_t own = offsetof(struct run, given);
    memset((char *)r + own, 0, offsetof(struct run, assumption) - own);
    r->n_assumptions = 0;
    if (setup) {
        setup_take(&r->setup, setup);
        memcpy(r->given, setup->set, sizeof(r->given));
    } else {
        memset(&r->setup, 0, sizeof(r->setup));
    }
    r->gpus = r->dp = r->tp = r->pp = r->vpp = r->cp = r->ep = r->etp = 1;
    r->shard = r->expert_shard = 1;
    r->micro_batch = r->grad_accum = r->global_batch = r->seq_len = 1;
    r->images = 1;
    for (int i = 0; i < SPEED_SCALES; i++)
        r->scale[i] = 1;
}

/* Why a calibration changes nothing; NULL: it does. */
static const char *idle_calibration(const struct run *r, bool model)
{
    bool moved = false;
    for (int i = 0; i < SPEED_SCALES; i++)
        moved = moved || fabs(r->setup.calibration.scale[i] - 1) > 0;
    if (!model)
        return "without a model no step is predicted";
    if (r->given[KEY_MFU])
        return "'mfu' is given, no step is predicted";
    return moved ? NULL : "its constants are 1";
}

/* A speed at the end of what a machine's can be is none. */
static void say_bounds(struct run *r, const struct calibration *c)
{
    char text[ASSUMPTION_TEXT];
    int n = 0;
    str_format(text, sizeof text,
               "constants of '%s' stopped at a bound:", c->name);
    for (int i = 0; i < SPEED_SCALES; i++)
        if (c->bound[i])
            str_append(text, sizeof text, "%s %s", n++ > 0 ? "," : "",
                       speed_scale_name((enum speed_scale)i));
    if (n > 0)
        resolve_note(r, KEY_COUNT,
                     "%s; no speed of a machine: a row's unit or setup is not "
                     "the run's",
                     text);
}

/* A calibration is of one GPU's speeds. */
static void resolve_calibration(struct run *r, bool model, struct diag *d)
{
    const struct calibration *c = &r->setup.calibration;
    char text[ASSUMPTION_TEXT];
    if (c->rows == 0)
        return;
    if (strcmp(c->gpu, r->gpu.name) != 0) {
        memplan_error *e =
            diag_add(d, MEMPLAN_E_CONFLICT,
                     "the calibration '%s' is of %s, the GPU is %s", c->name,
                     c->gpu, r->gpu.name);
        str_format(e->key, sizeof(e->key), "gpu");
        diag_hint(e, "leave --calibration out, or measure on that GPU");
        return;
    }
    const char *idle = idle_calibration(r, model);
    if (idle != NULL) {
        resolve_note(r, KEY_COUNT, "the calibration '%s' changes nothing: %s",
                     c->name, idle);
        return;
    }
    str_format(text, sizeof text, "calibrated by '%s' (%zu row%s):", c->name,
               c->rows, c->rows == 1 ? "" : "s");
    for (int i = 0; i < SPEED_SCALES; i++) {
        r->scale[i] = c->scale[i];
        str_append(text, sizeof text, "%s %s %.3g", i > 0 ? "," : "",
                   speed_scale_name((enum speed_scale)i), c->scale[i]);
    }
    resolve_note(r, KEY_COUNT, "%s", text);
    say_bounds(r, c);
}

/* What is in a file is taken back by an option beside it. */
static void hint_beside(memplan_error *e, bool said)
{
    char dashes[sizeof(e->key)];
    str_format(dashes, sizeof(dashes), "%s", e->key);
    for (char *p = dashes; *p != '\0'; p++)
        *p = (char)(*p == '_' ? '-' : *p);
    str_append(e->hint, sizeof(e->hint), "; beside the file: --%s%s",
               said ? "no-" : "", dashes);
}

/* A key that a launch file said is found again by the file's own word. */
static void name_files(const struct setup *setup, struct diag *d, size_t from)
{
    const size_t count = d->errs == NULL ? 0 : d->errs->count;
    for (size_t i = from; i < count && i < d->errs->capacity; i++) {
        char said[SETUP_SAID_TEXT];
        memplan_error *e = &d->errs->item[i];
        const enum setup_key key = setup_find_key(str_of(e->key));
        if (setup_said(setup, key, said) == NULL)
            continue;
        str_append(e->message, sizeof(e->message), " (%s)", said);
        if (strncmp(e->hint, "leave it out", strlen("leave it out")) == 0
            && setup_field(key)->type == MEMPLAN_TYPE_BOOL)
            hint_beside(e, setup->v[key].n != 0);
    }
}

static void resolve_all(struct run *run, const struct spec *spec,
                        uint64_t params, struct diag *d)
{
    resolve_gpu(run);
    resolve_calibration(run, spec != NULL, d);
    resolve_framework(run);
    resolve_precision(run, spec);
    if (!spec) {
        resolve_gpus(run);
        resolve_say_emulation(run);
        resolve_training(run, NULL, params);
        resolve_check_alone(run, d);
        return;
    }
    say_framework(run);
    resolve_layout(run, spec, d);
    resolve_say_precision(run);
    resolve_say_emulation(run);
    resolve_say_fp8(run);
    resolve_optimizer(run);
    resolve_recompute(run);
    resolve_kernels(run, spec);
    resolve_adapters(run, spec);
    resolve_buffers(run, spec);
    resolve_masters(run);
    resolve_compare_shape(run, spec);
    resolve_notes(run, spec);
    resolve_training(run, spec, params);
    resolve_check(run, spec, d);
}

/* A framework presets the engine and the layers; what is given has the last
 * word. */
static void leave_presets(const struct setup *setup, struct diag *d,
                          size_t from)
{
    static const struct {
        enum setup_key key;
        const char *option;
    } parts[] = { { KEY_ENGINE, "--engine" },
                  { KEY_IMPLEMENTATION, "--implementation" } };
    const size_t count = d->errs == NULL ? 0 : d->errs->count;
    for (size_t i = from; i < count && i < d->errs->capacity; i++) {
        memplan_error *e = &d->errs->item[i];
        const char *joint = "; without ";
        if (strstr(e->hint, "--framework") == NULL)
            continue;
        for (size_t k = 0; k < sizeof(parts) / sizeof(parts[0]); k++) {
            if (!setup->set[parts[k].key]
                || strstr(e->hint, parts[k].option) != NULL)
                continue;
            str_append(e->hint, sizeof(e->hint), "%s%s", joint,
                       parts[k].option);
            joint = " and ";
        }
        if (strcmp(joint, " and ") == 0)
            str_append(e->hint, sizeof(e->hint), " beside it");
    }
}

memplan_status setup_resolve(struct run *run, const struct setup *setup,
                             const struct spec *spec, uint64_t params,
                             struct diag *d)
{
    const size_t errors = d->errs == NULL ? 0 : d->errs->count;
    start(run, setup);
    resolve_all(run, spec, params, d);
    if (setup != NULL && d->status != MEMPLAN_OK) {
        name_files(setup, d, errors);
        leave_presets(setup, d, errors);
    }
    return d->status;
}

void run_bare(struct run *run, const struct spec *spec)
{
    start(run, NULL);
    resolve_gpu(run);
    run->n_assumptions = 0;
    run->framework = FW_HF;
    run->impl = IMPL_HF;
    run->engine = ENGINE_DDP;
    run->precision = PREC_BF16;
    run->prec = (struct precision_bytes){
        .param = DT_BF16,
        .compute = DT_BF16,
        .grad = DT_BF16,
        .reduce = DT_BF16,
        .master = DT_NONE,
        .optim = DT_BF16,
    };
    run->stage_layers[0] = (uint16_t)min_u64(spec_blocks(spec), UINT16_MAX);
    run->decoder_seq_len = spec->decoder_layers > 0 ? 1 : 0;
    run->optimizer = OPT_NONE;
    run->optimizer_impl = OPTIMPL_FUSED;
    run->attention = ATTN_FLASH;
    run->vocab = spec->vocab;
    run->lora_dtype = run->base_dtype = DT_BF16;
    run->peak_flop_s = run->gpu.peak_bf16_flop_s;
    run->availability = run->mfu = run->peak_scale = run->link_scale = 1;
}
