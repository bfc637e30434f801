/*
 * Owns how things are split: GPUs into tp, pp, cp and dp, states over ranks,
 * a step's batch into passes. Every split must come out
 * whole; when one does not, the hint names the values that would.
 */
#include "spec/resolve.h"

#include "base/count.h"
#include "base/unit.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

enum { SHOWN_MAX = 12 }; /* values that a hint lists */

/* ---- GPUs ---- */

void resolve_hint_divisors(memplan_error *e, uint64_t n)
{
    uint64_t list[SHOWN_MAX] = { 1 };
    size_t count = 1;
    for (uint64_t i = 2; i <= n / i && count < SHOWN_MAX; i++) {
        if (n % i == 0)
            list[count++] = i;
    }
    for (size_t i = count; i-- > 0 && count < SHOWN_MAX;) {
        if (n / list[i] != list[i]) /* the other of the pair */
            list[count++] = n / list[i];
    }
    bool all = list[count - 1] == n;
    diag_hint(e, "use %" PRIu64, list[0]);
    for (size_t i = 1; i < count; i++)
        str_append(e->hint, sizeof(e->hint), "%s%" PRIu64,
                   all && i + 1 == count ? " or " : ", ", list[i]);
    if (!all)
        str_append(e->hint, sizeof(e->hint), " ...");
}

static const struct degree {
    enum setup_key key;
    const char *name;
} degrees[] = { { KEY_TP, "tp" }, { KEY_PP, "pp" }, { KEY_CP, "cp" } };
enum { DEGREES = sizeof(degrees) / sizeof(degrees[0]) };

/* Of `n` GPUs the degrees of this kind that the model can be split into too:
 * tp has to divide the heads. */
static uint64_t degrees_of(enum setup_key key, uint64_t n,
                           const struct spec *spec)
{
    return key == KEY_TP && spec->heads > 0 ? gcd_u64(n, spec->heads) : n;
}

/* Blames the first degree with which the product no longer divides. */
static void report_split(const struct run *r, const struct spec *spec,
                         struct diag *d)
{
    uint64_t group = r->tp * r->pp * r->cp;
    if (group > r->gpus) {
        enum setup_key key = r->given[KEY_GPUS] ? KEY_GPUS : KEY_TP;
        memplan_error *e = setup_error(
            d, MEMPLAN_E_CONFLICT, key,
            "tp %" PRIu64 " x pp %" PRIu64 " x cp %" PRIu64 " needs %" PRIu64
            " GPUs, and there %s %" PRIu64,
            r->tp, r->pp, r->cp, group, r->gpus == 1 ? "is" : "are", r->gpus);
        diag_hint(e,
                  "use --gpus %" PRIu64 " or a multiple, or less of tp, pp "
                  "and cp",
                  group);
        return;
    }
    uint64_t before = 1;
    for (size_t i = 0; i < DEGREES; i++) {
        uint64_t n = r->setup.v[degrees[i].key].n;
        if (r->gpus % (before * n) == 0) {
            before *= n;
            continue;
        }
        memplan_error *e =
            setup_error(d, MEMPLAN_E_CONFLICT, degrees[i].key,
                        "%" PRIu64 " GPU%s cannot be split into %s %" PRIu64,
                        r->gpus, unit_s((double)r->gpus), degrees[i].name, n);
        if (before > 1)
            str_append(e->message, sizeof(e->message),
                       " beside a group of %" PRIu64, before);
        resolve_hint_divisors(
            e, degrees_of(degrees[i].key, r->gpus / before, spec));
        return;
    }
}

void resolve_gpus(struct run *r)
{
    r->gpus = resolve_count(r, KEY_GPUS, 1);
    resolve_assume(r, KEY_GPUS,
                   r->given[KEY_DAYS]
                       ? "as many GPUs as finish in time (--gpus)"
                       : "1 GPU (--gpus)");
    r->dp = r->gpus;
}

/* Without `gpus`: as many as the degrees need, at least one. */
static uint64_t gpus_needed(const struct run *r)
{
    uint64_t dp = r->given[KEY_DP]
                      ? r->setup.v[KEY_DP].n
                      : r->ep * r->etp / gcd_u64(r->ep * r->etp, r->tp * r->cp);
    return r->tp * r->pp * r->cp * dp;
}

static bool split_gpus(struct run *r, const struct spec *spec, struct diag *d)
{
    uint64_t group = r->tp * r->pp * r->cp;
    r->gpus = resolve_count(r, KEY_GPUS, gpus_needed(r));
    if (r->gpus == 1)
        resolve_assume(r, KEY_GPUS, "1 GPU (--gpus)");
    else
        resolve_assume(r, KEY_GPUS,
                       "%" PRIu64 " GPUs, as the layout needs (--gpus)",
                       r->gpus);
    if (r->gpus % group != 0) {
        report_split(r, spec, d);
        return false;
    }
    r->dp = r->gpus / group;
    if (r->given[KEY_DP] && r->setup.v[KEY_DP].n != r->dp) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_CONFLICT, KEY_DP,
                        "dp %" PRIu64 " contradicts the rest: %" PRIu64
                        " GPU%s / (tp %" PRIu64 " x pp %" PRIu64
                        " x cp %" PRIu64 ") make%s dp %" PRIu64,
                        r->setup.v[KEY_DP].n, r->gpus, unit_s((double)r->gpus),
                        r->tp, r->pp, r->cp, r->gpus == 1 ? "s" : "", r->dp);
        char said[SETUP_SAID_TEXT];
        const bool of_file = setup_said(&r->setup, KEY_DP, said) != NULL;
        diag_hint(e, "%s, or use --gpus %" PRIu64,
                  of_file ? "change it there" : "leave dp out",
                  r->setup.v[KEY_DP].n * group);
        return false;
    }
    resolve_count(r, KEY_DP, r->dp);
    if (r->tp > r->gpus_per_node)
        resolve_note(r, KEY_TP,
                     "tp %" PRIu64 " spans nodes of %" PRIu64 " GPU%s: slow "
                     "(--tp, --gpus-per-node)",
                     r->tp, r->gpus_per_node, unit_s((double)r->gpus_per_node));
    return true;
}

/* ---- states over ranks ---- */

/* Of ranks over which states are sharded, where a key says how many. */
static bool check_degree(const struct run *r, enum setup_key key,
                         uint64_t ranks, struct diag *d)
{
    const uint64_t n = r->setup.v[key].n;
    const char *name = setup_field(key)->key;
    memplan_error *e = NULL;
    if (!r->given[key] || n == 0
        || (key == KEY_MICS_SHARD_SIZE && !run_zero_is(r, 3)))
        return true;
    if (r->zero == 0 && !run_is_bf16_pipeline(r)) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, key,
                        "%s %" PRIu64 " with zero 0, which shards nothing",
                        name, n);
        diag_hint(e, "leave it out, or use --zero 1 or more");
    } else if (ranks % n != 0) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, key,
                        "%s %" PRIu64 " does not divide the %" PRIu64
                        " data-parallel ranks (dp x cp)",
                        name, n, ranks);
        resolve_hint_divisors(e, ranks);
    }
    return e == NULL;
}

/* Groups of ranks with all states each are MiCS in DeepSpeed's ZeRO-3, by
 * whichever key. */
static void resolve_mics(struct run *r, uint64_t ranks)
{
    const uint64_t mics = run_zero_is(r, 3) && r->given[KEY_MICS_SHARD_SIZE]
                              ? r->setup.v[KEY_MICS_SHARD_SIZE].n
                              : 0;
    r->shard = resolve_count(r, KEY_SHARD_DEGREE, mics != 0 ? mics : ranks);
    r->mics = mics != 0 || (run_zero_is(r, 3) && r->shard < ranks);
    if (r->mics && mics == 0)
        r->setup.v[KEY_MICS_SHARD_SIZE].n = r->shard;
}

/* Groups with all states each. Megatron's instances of the distributed
 * optimizer are as many for experts, and have to come out even
 * (parallel_state.py, intra_partial_expert_data_parallel_size). Megatron-FSDP
 * shards experts over that group too (core 0.20, fsdp/mcore_fsdp_adapter.py,
 * _init_dist_index; 0.16 has no mesh for them there, and takes the others'). */
static void shard_experts(struct run *r, const struct spec *spec,
                          uint64_t instances, struct diag *d)
{
    const uint64_t all = r->expert_shard;
    const bool megatron = run_engine_is_megatron(r);
    if (megatron && spec->experts != 0 && all % instances != 0) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_CONFLICT, KEY_SHARD_DEGREE,
                        "shard_degree %" PRIu64 " makes %" PRIu64
                        " groups, which the %" PRIu64
                        " ranks that hold the same experts do not split into",
                        r->shard, instances, all);
        diag_hint(e, "leave it out");
        return;
    }
    r->expert_shard =
        megatron ? max_u64(all / instances, 1) : min_u64(all, r->shard);
}

/* Experts are spread over all ranks of a stage, tp included: Megatron's
 * parallel_state.py, expert data parallel = tp cp dp / (etp ep). */
static void shard_states(struct run *r, const struct spec *spec, struct diag *d)
{
    uint64_t ranks = r->dp * r->cp;
    uint64_t stage = ranks * r->tp;
    const uint64_t copies = run_copies(r);
    resolve_count(r, KEY_MICS_SHARD_SIZE, 0);
    r->mics_hierarchical = resolve_bool(r, KEY_MICS_HIERARCHICAL, false);
    if (stage % r->ep != 0) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_CONFLICT, KEY_EP,
                        "ep %" PRIu64 " does not divide the %" PRIu64
                        " ranks of a stage (tp x cp x dp)",
                        r->ep, stage);
        resolve_hint_divisors(e, gcd_u64(stage, max_u64(spec->experts, 1)));
        return;
    }
    if (stage / r->ep % r->etp != 0) {
        memplan_error *e =
            setup_error(d, MEMPLAN_E_CONFLICT, KEY_ETP,
                        "etp %" PRIu64 " does not divide the %" PRIu64
                        " ranks that hold the same experts (tp x cp x dp / "
                        "ep)",
                        r->etp, stage / r->ep);
        resolve_hint_divisors(e, stage / r->ep);
        return;
    }
    if (!check_degree(r, KEY_SHARD_DEGREE, copies * ranks, d)
        || !check_degree(r, KEY_MICS_SHARD_SIZE, copies * ranks, d))
        return;
    if (r->zero == 0 && !run_is_bf16_pipeline(r))
        return;
    resolve_mics(r, copies * ranks);
    r->expert_shard = copies * stage / (r->ep * r->etp);
    if (r->given[KEY_SHARD_DEGREE] || r->mics)
        shard_experts(r, spec, copies * ranks / r->shard, d);
}

/* Megatron's default does not come out even: its own script would not start,
 * a setup says that it is not taken. */
static void without_expert_tp(struct run *r, bool even, uint64_t ranks,
                              struct diag *d)
{
    if (even) {
        resolve_note(r, KEY_ETP,
                     "experts whole (--etp 1): tp %" PRIu64
                     ", Megatron's default, does not divide their width",
                     r->tp);
        return;
    }
    if (!r->setup.megatron_script || ranks % r->ep != 0) {
        resolve_note(r, KEY_ETP,
                     "experts whole (--etp 1): Megatron's default, tp %" PRIu64
                     ", x ep %" PRIu64 " does not divide the %" PRIu64
                     " ranks of a stage",
                     r->tp, r->ep, ranks);
        return;
    }
    memplan_error *e = setup_error(
        d, MEMPLAN_E_CONFLICT, KEY_ETP,
        "experts are split over tp by default, and etp %" PRIu64
        " x ep %" PRIu64 " does not divide the %" PRIu64 " rank%s of a stage",
        r->tp, r->ep, ranks, unit_s((double)ranks));
    diag_hint(e, "use --etp 1, in the script --expert-tensor-parallel-size 1");
}

/* Megatron splits experts like everything else unless told otherwise
 * (model_parallel_config.py: expert_tensor_parallel_size is tp); where that
 * does not come out even, they are taken as whole. */
static void resolve_expert_tp(struct run *r, const struct spec *spec,
                              struct diag *d)
{
    const uint64_t ffn = spec->expert_ffn == 0 ? spec->ffn : spec->expert_ffn;
    const uint64_t ranks =
        r->given[KEY_GPUS] ? r->setup.v[KEY_GPUS].n / r->pp : r->tp * r->ep;
    const bool usual = resolve_is_megatron(r) && spec->experts > 0 && r->tp > 1;
    const bool even = ranks % (r->tp * r->ep) == 0;
    const bool like_tp = usual && ffn % r->tp == 0 && even;
    r->etp = resolve_count(r, KEY_ETP, like_tp ? r->tp : 1);
    if (spec->experts == 0) /* groups of ranks that nothing uses */
        r->etp = 1;
    if (like_tp)
        resolve_assume(r, KEY_ETP,
                       "experts split over tp too, Megatron's default (--etp)");
    else if (usual && !r->given[KEY_ETP])
        without_expert_tp(r, even, ranks, d);
}

/* ---- schedule ---- */

/* device_map is of one process: nothing that runs one for each GPU has it. */
static void check_one_process(const struct run *r, struct diag *d)
{
    char buf[RESOLVE_TEXT_MAX];
    if (!r->given[KEY_SCHEDULE] || !run_is_hf(r) || r->gpus == 1
        || r->setup.v[KEY_SCHEDULE].n != SCHED_NAIVE || r->engine == ENGINE_DDP)
        return;
    memplan_error *e = setup_error(
        d, MEMPLAN_E_CONFLICT, KEY_SCHEDULE,
        "schedule 'naive' with engine '%s': device_map is of one process",
        resolve_text(r, KEY_ENGINE, buf));
    diag_hint(e, "leave it out, or use --framework hf");
}

static void resolve_schedule(struct run *r, struct diag *d)
{
    check_one_process(r, d);
    const bool spread = run_is_hf(r) && r->engine == ENGINE_DDP;
    enum schedule usual = r->vpp > 1 ? SCHED_INTERLEAVED
                          : spread   ? SCHED_NAIVE
                                     : SCHED_1F1B;
    r->schedule = (enum schedule)resolve_count(r, KEY_SCHEDULE, usual);
    if (r->pp == 1 && r->vpp == 1 && r->schedule != SCHED_1F1B) {
        r->schedule = (enum schedule)resolve_force(r, KEY_SCHEDULE, SCHED_1F1B);
        if (r->given[KEY_SCHEDULE])
            resolve_note(r, KEY_SCHEDULE, "'schedule' has no effect with pp 1");
    }
    char buf[RESOLVE_TEXT_MAX];
    memplan_error *e = NULL;
    if (r->vpp > 1 && r->pp == 1) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_VPP,
                        "vpp %" PRIu64 " without pipeline stages", r->vpp);
        diag_hint(e, "add --pp 2 or more, or leave vpp out");
    } else if (schedule_loops(r->schedule) && r->vpp == 1) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_SCHEDULE,
                        "schedule '%s' with one chunk per stage",
                        resolve_text(r, KEY_SCHEDULE, buf));
        diag_hint(e, "add --vpp 2 or more, or use --schedule 1f1b");
    } else if (r->vpp > 1 && !schedule_loops(r->schedule)) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_VPP,
                        "vpp %" PRIu64 " with schedule '%s', which has %s",
                        r->vpp, resolve_text(r, KEY_SCHEDULE, buf),
                        run_folds(r) ? "its own two chunks" : "no chunks");
        diag_hint(e, "use --schedule interleaved, or leave vpp out");
    }
}

static void say_schedule(struct run *r)
{
    if (r->schedule == SCHED_ZB_V && r->pp > 1)
        resolve_note(r, KEY_SCHEDULE,
                     "zb-v: the order in which forward and both halves of "
                     "backward are equally long");
    if (run_spreads(r))
        resolve_note(r, KEY_SCHEDULE,
                     "device_map: one process, one GPU at work at a time; "
                     "what yours says is --pipeline-layers");
    if (r->schedule != SCHED_DUALPIPE)
        return;
    resolve_note(r, KEY_SCHEDULE,
                 "DualPipe: two copies of the weights and of their gradients; "
                 "gradients are summed, and states sharded, over both");
}

/* ---- a step's batch ---- */

static void report_batch(const struct run *r, uint64_t unit, const char *what,
                         struct diag *d)
{
    uint64_t given = r->global_batch;
    uint64_t below = given / unit * unit;
    memplan_error *e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_GLOBAL_BATCH,
                                   "global_batch %" PRIu64
                                   " is not a multiple of %s = %" PRIu64,
                                   given, what, unit);
    if (below > 0)
        diag_hint(e, "use %" PRIu64 " or %" PRIu64, below, below + unit);
    else
        diag_hint(e, "use %" PRIu64 ", or fewer data-parallel ranks", unit);
}

static void check_batch_product(const struct run *r, struct diag *d)
{
    uint64_t product = r->micro_batch * r->grad_accum * r->dp;
    if (product == r->global_batch)
        return;
    memplan_error *e = setup_error(
        d, MEMPLAN_E_CONFLICT, KEY_GLOBAL_BATCH,
        "global_batch %" PRIu64 " is not micro_batch %" PRIu64
        " x grad_accum %" PRIu64 " x dp %" PRIu64 " = %" PRIu64,
        r->global_batch, r->micro_batch, r->grad_accum, r->dp, product);
    diag_hint(e, "leave one of the three out, or use --global-batch %" PRIu64,
              product);
}

/* Two of three imply the third; with global_batch alone micro_batch is 1. */
static void batch_from_global(struct run *r, struct diag *d)
{
    r->global_batch = r->setup.v[KEY_GLOBAL_BATCH].n;
    bool accum_given = r->given[KEY_GRAD_ACCUM];
    if (accum_given && !r->given[KEY_MICRO_BATCH]) {
        r->grad_accum = r->setup.v[KEY_GRAD_ACCUM].n;
        uint64_t unit = r->grad_accum * r->dp;
        if (r->global_batch % unit != 0) {
            report_batch(r, unit, "grad_accum x dp", d);
            return;
        }
        r->micro_batch =
            resolve_count(r, KEY_MICRO_BATCH, r->global_batch / unit);
        return;
    }
    r->micro_batch = resolve_count(r, KEY_MICRO_BATCH, 1);
    if (accum_given) {
        r->grad_accum = r->setup.v[KEY_GRAD_ACCUM].n;
        check_batch_product(r, d);
        return;
    }
    uint64_t unit = r->micro_batch * r->dp;
    if (r->global_batch % unit != 0) {
        report_batch(r, unit, "micro_batch x dp", d);
        return;
    }
    r->grad_accum = resolve_count(r, KEY_GRAD_ACCUM, r->global_batch / unit);
}

/* With two for each stage every schedule but GPipe, which holds all, has as
 * many in flight as with any more. */
static uint64_t usual_micros(const struct run *r)
{
    const bool fills = r->setup.fill_pipeline && !run_spreads(r);
    const uint64_t round = max_u64(r->microbatch_group, r->pp);
    if (r->pp > 1 && (fills || run_copies(r) > 1 || run_folds(r)))
        return 2 * round;
    return r->vpp > 1 ? round : 1;
}

static void say_micros(struct run *r)
{
    const char *all = run_spreads(r)       ? ""
                      : r->grad_accum == 1 ? ", which are never all at work"
                      : !r->setup.fill_pipeline    ? ""
                      : r->schedule == SCHED_GPIPE ? ", all in flight at once"
                                                   : ", enough to fill them";
    resolve_assume(r, KEY_GRAD_ACCUM,
                   "%" PRIu64 " micro-batch%s a step through %" PRIu64
                   " pipeline stages%s (--grad-accum, --global-batch)",
                   r->grad_accum, r->grad_accum > 1 ? "es" : "", r->pp, all);
}

/* Megatron's interleaved schedule walks micro-batches in groups of pp, or what
 * it is told, and refuses a rest of fewer than pp (pipeline_parallel/
 * schedules.py). PyTorch's does not walk so many as it cannot part into equal
 * rounds (run_round()). */
static bool in_rounds(const struct run *r, uint64_t micros)
{
    const uint64_t rounds = max_u64(micros / r->pp, 1);
    const uint64_t group = max_u64(r->microbatch_group, r->pp);
    return run_torch_pipelines(r)
               ? micros % rounds == 0
               : micros >= group
                     && (micros % group == 0 || micros % group >= r->pp);
}

/* Other schedules go by themselves; groups of fewer than the stages are refused
 * by Megatron's own. */
static void group_micros(struct run *r, struct diag *d)
{
    const bool groups = run_loops(r) && run_is_megatron(r);
    const uint64_t group = resolve_count(r, KEY_MICROBATCH_GROUP, r->pp);
    r->microbatch_group = 0;
    if (!r->given[KEY_MICROBATCH_GROUP])
        return;
    if (!groups) {
        resolve_note(r, KEY_MICROBATCH_GROUP,
                     "'microbatch_group_size_per_vp_stage' has no effect but "
                     "in Megatron's interleaved schedule");
        return;
    }
    r->microbatch_group = group;
    if (r->microbatch_group < r->pp)
        diag_hint(setup_error(d, MEMPLAN_E_CONFLICT, KEY_MICROBATCH_GROUP,
                              "microbatch_group_size_per_vp_stage %" PRIu64
                              " is less than pp %" PRIu64
                              ": Megatron refuses it",
                              r->microbatch_group, r->pp),
                  "use %" PRIu64 " or more", r->pp);
}

static void split_batch(struct run *r, struct diag *d)
{
    bool global = r->given[KEY_GLOBAL_BATCH];
    group_micros(r, d);
    if (global) {
        batch_from_global(r, d);
    } else {
        r->micro_batch = resolve_count(r, KEY_MICRO_BATCH, 1);
        r->grad_accum = resolve_count(r, KEY_GRAD_ACCUM, usual_micros(r));
        r->global_batch = resolve_count(r, KEY_GLOBAL_BATCH,
                                        r->micro_batch * r->grad_accum * r->dp);
    }
    if (!global || !r->given[KEY_GRAD_ACCUM])
        resolve_say(r, KEY_MICRO_BATCH, "micro-batch # (--micro-batch)",
                    SAY_COUNT(r->micro_batch), SAY_NOTHING);
    if (r->pp > 1 && !global)
        say_micros(r);
    if (!run_loops(r) || in_rounds(r, r->grad_accum) || d->status != MEMPLAN_OK)
        return;
    uint64_t more = r->grad_accum + 1;
    while (!in_rounds(r, more))
        more++;
    diag_hint(resolve_bad_micros(r, d),
              "use --grad-accum %" PRIu64 ", or a multiple of %" PRIu64, more,
              max_u64(r->microbatch_group, r->pp));
}

/* ---- all of it ---- */

/* device_map takes the GPUs there are. */
static uint64_t spread_over(const struct run *r)
{
    const bool naive =
        r->given[KEY_SCHEDULE] && r->setup.v[KEY_SCHEDULE].n == SCHED_NAIVE;
    return naive && run_is_hf(r) && r->engine == ENGINE_DDP
                   && r->given[KEY_GPUS]
               ? r->setup.v[KEY_GPUS].n
               : 1;
}

/* Layers of a virtual stage, as a launch file says them, of this model. */
static uint64_t chunks_of(const struct run *r, const struct spec *spec,
                          struct diag *d)
{
    const uint64_t each = r->setup.chunk_layers;
    const uint64_t stage = div_up(spec_blocks(spec), r->pp);
    if (each == 0 || r->pp <= 1)
        return 1;
    if (stage % each != 0 && !r->given[KEY_VPP])
        diag_hint(setup_error(d, MEMPLAN_E_CONFLICT, KEY_VPP,
                              "virtual stages of %" PRIu64
                              " layers do not divide a stage of %" PRIu64,
                              each, stage),
                  "write a divisor of %" PRIu64
                  " in the file, or --vpp beside it",
                  stage);
    return max_u64(stage / each, 1);
}

void resolve_layout(struct run *r, const struct spec *spec, struct diag *d)
{
    r->tp = resolve_count(r, KEY_TP, 1);
    r->pp = resolve_count(r, KEY_PP, spread_over(r));
    r->vpp = resolve_count(r, KEY_VPP, chunks_of(r, spec, d));
    r->cp = resolve_count(r, KEY_CP, 1);
    r->ep = resolve_count(r, KEY_EP, 1);
    resolve_expert_tp(r, spec, d);
    resolve_sequence(r, spec);
    resolve_vocab(r, spec);
    bool split = split_gpus(r, spec, d);
    resolve_schedule(r, d);
    say_schedule(r);
    resolve_stages(r, spec, d);
    if (!split)
        return;
    shard_states(r, spec, d);
    split_batch(r, d);
}
