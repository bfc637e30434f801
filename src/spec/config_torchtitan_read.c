/*
 * Owns what the entries of torchtitan's job configuration mean together, in
 * the places they had at each time.
 */
#include "spec/config_torchtitan.h"

#include "base/unit.h"
#include "json/toml.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

/* ---- values ---- */

/* The value at the first of several paths that has one. */
static const struct json *first_of(const struct config *c, const char *paths)
{
    enum { PATH = 96 };
    struct str rest = str_of(paths);
    while (rest.n > 0) {
        char path[PATH];
        struct str one = str_cut(rest, ' ', &rest);
        str_format(path, sizeof(path), "%.*s", (int)one.n, one.p);
        const struct json *v = config_at(c, path);
        if (v != NULL)
            return v;
    }
    return NULL;
}

static bool is_text(const struct json *v, const char *text)
{
    return v != NULL && v->kind == JSON_STRING && str_is(v->text, text);
}

static bool is_on(const struct json *v)
{
    return v != NULL && v->kind == JSON_BOOL && v->truth;
}

static const struct json *or_root(const struct config *c, const struct json *v)
{
    return v != NULL ? v : c->root;
}

/* A whole number of one or more; `otherwise` where the file is silent, 0 after
 * reporting. */
static uint64_t count(struct config *c, const char *paths, uint64_t otherwise)
{
    const struct json *v = first_of(c, paths);
    uint64_t n = 0;
    if (v == NULL)
        return otherwise;
    if (v->kind == JSON_NUMBER && unit_parse_count(v->text, &n) == UNIT_OK
        && n > 0 && n < UINT32_MAX)
        return n;
    diag_hint(config_bad(c, v, MEMPLAN_E_ARG, "'%.*s' takes a whole number",
                         (int)v->key.n, v->key.p),
              "write 1 or more");
    return 0;
}

static void set_count(struct config *c, const struct json *where,
                      enum setup_key key, uint64_t n)
{
    char text[UNIT_TEXT_MAX];
    str_format(text, sizeof(text), "%" PRIu64, n);
    config_set(c, or_root(c, where), key, text);
}

/* Reports a word that is none of those. */
static void bad_word(struct config *c, const struct json *v, const char *known)
{
    diag_hint(config_bad(c, v, MEMPLAN_E_UNKNOWN, "unknown %.*s", (int)v->key.n,
                         v->key.p),
              "known are %s", known);
}

/* ---- layout ---- */

/* Degrees, as parallel_dims.py has them; 0 of shard: what is left. */
struct dims {
    uint64_t replicate, shard, tp, pp, cp;
};

#define REPLICATE                                                              \
    "parallelism.data_parallel_replicate_degree "                              \
    "training.data_parallel_replicate_degree"
#define SHARD                                                                  \
    "parallelism.data_parallel_shard_degree "                                  \
    "training.data_parallel_shard_degree training.data_parallel_degree"
#define PP                                                                     \
    "parallelism.pipeline_parallel_degree "                                    \
    "experimental.pipeline_parallel_degree training.pipeline_parallel_degree"

static struct dims read_dims(struct config *c)
{
    struct dims d = {
        .replicate = count(c, REPLICATE, 1),
        .tp = count(c,
                    "parallelism.tensor_parallel_degree "
                    "training.tensor_parallel_degree",
                    1),
        .pp = count(c, PP, 1),
        .cp = count(c,
                    "parallelism.context_parallel_degree "
                    "experimental.context_parallel_degree",
                    1),
    };
    const struct json *v = first_of(c, SHARD);
    const bool left =
        v == NULL
        || (v->kind == JSON_NUMBER && !(v->number < -1) && !(v->number > -1));
    d.shard = left ? 0 : count(c, SHARD, 0);
    return d;
}

/* fully_shard where states are sharded or sequences are split, else DDP; always
 * since April 2026 (00b7f56), which reads no TOML. */
static bool has_fsdp(const struct dims *d)
{
    return d->shard != 1 || d->cp > 1;
}

/* DDP, where there are replicas; nothing wraps one (parallelize.py: "DDP has not
 * supported > 1D parallelism"). */
static void wraps_nothing(struct config *c, const struct json *shard,
                          const struct dims *d)
{
    if (d->replicate > 1 && (d->tp > 1 || d->pp > 1)) {
        diag_hint(config_bad(c, shard, MEMPLAN_E_CONFLICT,
                             "data_parallel_replicate_degree %" PRIu64
                             " beside tensor or pipeline parallelism, and "
                             "nothing is sharded: torchtitan refuses it",
                             d->replicate),
                  "shard over some ranks, or write "
                  "data_parallel_replicate_degree = 1");
        return;
    }
    config_set(c, shard, KEY_ENGINE, "ddp");
    if (d->replicate == 1)
        config_note(c, "data_parallel_shard_degree 1: nothing is wrapped, as "
                       "torchtitan has it that reads TOML; since April 2026 "
                       "all is (--engine fsdp2 --zero 3 --precision "
                       "bf16-mixed)");
}

static void layout(struct config *c, const struct dims *d)
{
    enum { MOST = 10000000 };
    config_set(c, c->root, KEY_FRAMEWORK, "torchtitan");
    const struct json *shard = first_of(c, SHARD);
    if (d->shard > 0) {
        uint64_t gpus = d->replicate;
        const uint64_t by[] = { d->shard, d->tp, d->pp, d->cp };
        for (size_t i = 0; i < sizeof(by) / sizeof(by[0]); i++)
            gpus = gpus > MOST ? gpus : gpus * by[i];
        set_count(c, shard, KEY_GPUS, gpus);
        /* parallel_dims.py, _validate: the world is their product */
        if (d->replicate <= MOST && d->shard <= MOST)
            set_count(c, shard, KEY_DP, d->replicate * d->shard);
    }
    if (!has_fsdp(d)) {
        wraps_nothing(c, shard, d);
        return;
    }
    if (d->replicate > 1 && d->shard > 0)
        set_count(c, shard, KEY_SHARD_DEGREE, d->shard * d->cp);
    else if (d->replicate > 1)
        config_note(c,
                    "data_parallel_replicate_degree %" PRIu64 " of as many "
                    "GPUs as there are: add --shard-degree, GPUs / (%" PRIu64
                    " x tp x pp)",
                    d->replicate, d->replicate);
    const struct json *how =
        first_of(c, "parallelism.fsdp_reshard_after_forward "
                    "training.fsdp_reshard_after_forward");
    if (how != NULL && !is_text(how, "default") && !is_text(how, "always")
        && !is_text(how, "never")) {
        bad_word(c, how, "default, always, never");
        return;
    }
    const bool never = is_text(how, "never");
    config_set(c, or_root(c, how), KEY_ZERO, never ? "2" : "3");
    if (is_text(how, "always") && d->pp > 1)
        config_set(c, how, KEY_RESHARD_AFTER_FORWARD, "true");
}

/* Of one stage a schedule says nothing; Interleaved1F1B has two chunks a rank
 * where torchtitan has no other word. */
static void schedule(struct config *c, const struct dims *d)
{
    const struct json *v =
        first_of(c, "parallelism.pipeline_parallel_schedule "
                    "experimental.pipeline_parallel_schedule");
    const struct json *csv =
        first_of(c, "parallelism.pipeline_parallel_schedule_csv "
                    "experimental.pipeline_parallel_schedule_csv");
    if (d->pp <= 1) {
        c->s->set[KEY_SCHEDULE] = false;
        return;
    }
    if (csv != NULL && !is_text(csv, ""))
        config_note(c, "pipeline_parallel_schedule_csv is not modelled: the "
                       "named schedule is assumed");
    if (v == NULL)
        config_set(c, c->root, KEY_SCHEDULE, "1f1b");
    else if (c->s->set[KEY_SCHEDULE]
             && schedule_loops((enum schedule)c->s->v[KEY_SCHEDULE].n))
        config_set(c, v, KEY_VPP, "2");
}

/* PyTorch's ZBVZeroBubble and DualPipeV: two parts a rank, down the ranks and up
 * again. */
static bool folds(const struct config *c)
{
    const uint64_t schedule = c->s->v[KEY_SCHEDULE].n;
    return c->s->set[KEY_SCHEDULE]
           && (schedule == SCHED_ZB_V || schedule == SCHED_DUALPIPE_V);
}

static uint64_t layers_named(const struct json *part)
{
    const struct json *one = part->kind == JSON_ARRAY ? part->child : NULL;
    uint64_t n = 0;
    for (; one != NULL; one = one->next)
        n += one->kind == JSON_STRING && one->text.n > 7
             && memcmp(one->text.p, "layers.", 7) == 0;
    return n;
}

/* The rank of a part: they go round the ranks, or down and up. */
static uint64_t part_rank(const struct config *c, uint64_t pp, uint64_t part)
{
    const uint64_t i = part % (2 * pp);
    return folds(c) && i >= pp ? 2 * pp - 1 - i : part % pp;
}

/* Of a rank's parts the first ones are as long as the others, or a layer longer,
 * embedding and head counted in; else they are taken so. */
static void check_lengths(struct config *c, const struct json *list,
                          uint64_t pp)
{
    uint64_t first[SETUP_LIST_MAX], last[SETUP_LIST_MAX], n = 0;
    for (const struct json *part = list->child; part; part = part->next, n++) {
        const uint64_t r = part_rank(c, pp, n);
        const uint64_t end = n == 0 || part->next == NULL ? 1 : 0;
        const uint64_t here = layers_named(part) + end;
        if (n < pp)
            first[r] = last[r] = here;
        if (here <= last[r] && first[r] <= here + 1) {
            last[r] = here;
            continue;
        }
        config_note(c, "module_fqns_per_model_part: a rank's parts are taken "
                       "as equally long, the first ones a layer longer");
        return;
    }
}

/* Each names its layers, "layers.0". */
static void parts(struct config *c, const struct dims *d)
{
    const struct json *list =
        config_at(c, "parallelism.module_fqns_per_model_part");
    uint64_t stage[SETUP_LIST_MAX] = { 0 };
    uint64_t n = 0;
    char text[2048] = "";
    if (d->pp <= 1 || d->pp > SETUP_LIST_MAX || list == NULL
        || list->kind != JSON_ARRAY)
        return;
    for (const struct json *part = list->child; part; part = part->next, n++)
        stage[part_rank(c, d->pp, n)] += layers_named(part);
    const bool wrong = folds(c) ? n != 2 * d->pp : n % d->pp != 0 || n == 0;
    if (wrong) {
        diag_hint(config_bad(c, list, MEMPLAN_E_CONFLICT,
                             "%" PRIu64 " model part%s for %" PRIu64 " rank%s",
                             n, unit_s((double)n), d->pp,
                             unit_s((double)d->pp)),
                  folds(c) ? "two parts on each rank, as the schedule has it"
                           : "as many parts on each rank");
        return;
    }
    for (uint64_t i = 0; i < d->pp; i++)
        str_append(text, sizeof(text), i > 0 ? ",%" PRIu64 : "%" PRIu64,
                   stage[i]);
    if (n > d->pp)
        check_lengths(c, list, d->pp);
    if (!folds(c) && n > d->pp)
        set_count(c, list, KEY_VPP, n / d->pp);
    config_set(c, list, KEY_PIPELINE_LAYERS, text);
}

/* ---- batches ---- */

/* A pipeline cuts the local batch: since April 2025 by the micro-batch's size,
 * before into so many, as many as stages where the file was silent. */
static uint64_t sequences_a_pass(struct config *c, const struct dims *d,
                                 uint64_t local)
{
    static const char number[] = "parallelism.pipeline_parallel_microbatches "
                                 "experimental.pipeline_parallel_microbatches";
    const bool old = first_of(c, "parallelism.pipeline_parallel_degree") == NULL
                     || first_of(c, number) != NULL;
    if (!old)
        return count(c, "parallelism.pipeline_parallel_microbatch_size", 1);
    const uint64_t chunks = folds(c)             ? 2
                            : c->s->set[KEY_VPP] ? c->s->v[KEY_VPP].n
                                                 : 1; /* of the schedule */
    const uint64_t micros = count(c, number, d->pp * chunks);
    return micros > 0 && local % micros == 0 ? local / micros : 0;
}

static void batches(struct config *c, const struct dims *d)
{
    static const char names[] = "training.local_batch_size training.batch_size";
    const struct json *where = first_of(c, names);
    const struct json *all = first_of(c, "training.global_batch_size");
    const uint64_t local = count(c, names, 8);
    const uint64_t pass = d->pp > 1 ? sequences_a_pass(c, d, local) : local;
    if (local == 0)
        return;
    if (pass == 0 || local % pass != 0) {
        diag_hint(config_bad(c, or_root(c, where), MEMPLAN_E_CONFLICT,
                             "a local batch of %" PRIu64 " does not divide "
                             "into the pipeline's micro-batches",
                             local),
                  "torchtitan refuses it: change one of the two");
        return;
    }
    set_count(c, where, KEY_MICRO_BATCH, pass);
    const bool given =
        all != NULL && all->kind == JSON_NUMBER && all->number > 0;
    const bool waits =
        c->s->set[KEY_SCHEDULE] && c->s->v[KEY_SCHEDULE].n == SCHED_GPIPE;
    if (given && (d->pp == 1 || !waits)) {
        config_set_json(c, all, KEY_GLOBAL_BATCH);
        return;
    }
    set_count(c, where, KEY_GRAD_ACCUM, local / pass);
    if (given)
        config_note(c, "global_batch_size is not modelled with GPipe, whose "
                       "schedule is one local batch: local_batch_size is "
                       "assumed");
}

/* ---- number formats ---- */

static const char *dtype(struct config *c, const char *path,
                         const char *otherwise)
{
    static const struct {
        const char *theirs, *ours;
    } known[] = { { "float32", "fp32" },
                  { "bfloat16", "bf16" },
                  { "float16", "fp16" } };
    const struct json *v = config_at(c, path);
    if (v == NULL)
        return otherwise;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (is_text(v, known[i].theirs))
            return known[i].ours;
    }
    bad_word(c, v, "float32, bfloat16, float16");
    return otherwise;
}

/* "float8", "quantize.linear.float8", ... of the list; its entry. */
static const struct json *converter(const struct config *c, const char *name)
{
    const struct json *list = config_at(c, "model.converters");
    const struct json *v = list != NULL ? list->child : NULL;
    for (; v != NULL; v = v->next) {
        if (v->kind == JSON_STRING && str_ends_with(v->text, name))
            break;
    }
    return v;
}

/* torchao's words (float8/config.py, Float8LinearRecipeName); without one
 * tensorwise. */
static void recipe_of(struct config *c, const struct json *recipe)
{
    static const char *const known[] = { "tensorwise", "rowwise",
                                         "rowwise_with_gw_hp" };
    const char *word = recipe == NULL ? known[0] : NULL;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (recipe != NULL && is_text(recipe, known[i]))
            word = known[i];
    }
    if (word == NULL)
        bad_word(c, recipe, "tensorwise, rowwise, rowwise_with_gw_hp");
    else
        config_set(c, or_root(c, recipe), KEY_FP8_RECIPE, word);
}

#define FLOAT8(name)                                                           \
    "quantize.linear.float8." name " quantize.dense.float8." name              \
    " float8." name

/* Weights gathered in 8 bits, which a recipe by name cannot be beside
 * (components/quantization/float8.py); their scales one by one, where they are
 * not made together. */
static void gathers_float8(struct config *c, const struct json *recipe)
{
    const struct json *on =
        first_of(c, FLOAT8("enable_fsdp_float8_all_gather"));
    if (!is_on(on))
        return;
    if (recipe != NULL) {
        diag_hint(config_bad(c, on, MEMPLAN_E_CONFLICT,
                             "enable_fsdp_float8_all_gather beside a "
                             "recipe_name: torchtitan refuses it"),
                  "remove one of the two; without recipe_name it is "
                  "tensorwise");
        return;
    }
    config_set(c, on, KEY_FP8_PARAMS, "true");
    if (!is_on(first_of(c, FLOAT8("precompute_float8_dynamic_scale_for_fsdp"))))
        config_note(c, "precompute_float8_dynamic_scale_for_fsdp is off: the "
                       "all-reduce of each weight's largest element is not "
                       "counted");
}

static void float8(struct config *c)
{
    const struct json *recipe = first_of(c, FLOAT8("recipe_name"));
    config_set(c, or_root(c, recipe), KEY_PRECISION, "fp8-mixed");
    recipe_of(c, recipe);
    gathers_float8(c, recipe);
    if (first_of(c, FLOAT8("filter_fqns")) != NULL)
        config_note(c, "filter_fqns is not modelled: which products stay in 16 "
                       "bits");
}

/* Products in 8 bits: by the converters, by flags before February 2025. */
static bool eight_bits(struct config *c)
{
    const struct json *word = config_at(c, "training.fp8_linear");
    if (converter(c, "mx") != NULL) {
        config_set(c, converter(c, "mx"), KEY_PRECISION, "fp8-mixed");
        config_set(c, converter(c, "mx"), KEY_FP8_RECIPE, "mxfp8");
        return true;
    }
    if (converter(c, "float8") == NULL
        && !is_on(first_of(c, "float8.enable_float8_linear "
                              "training.enable_float8_linear "
                              "training.enable_fp8_linear"))
        && !is_on(word)
        && (word == NULL || word->kind != JSON_STRING || word->text.n == 0))
        return false;
    float8(c);
    return true;
}

/* distributed/utils.py, maybe_enable_amp: fully_shard casts; else autocast,
 * but not beside tp or pp, where weights are what they are. */
static void precision(struct config *c, const struct dims *d)
{
    const char *param = dtype(c, "training.mixed_precision_param", "bf16");
    const char *reduce = dtype(c, "training.mixed_precision_reduce", "fp32");
    const char *stored = dtype(c, "training.dtype", "fp32");
    const bool fsdp = has_fsdp(d);
    const bool casts = fsdp || (d->tp == 1 && d->pp == 1);
    const bool half = strcmp(param, "fp32") != 0;
    char word[UNIT_TEXT_MAX];
    if (fsdp)
        config_set(c, c->root, KEY_REDUCE_DTYPE, reduce);
    if (eight_bits(c))
        return;
    if (strcmp(stored, "fp32") == 0 && casts && half)
        str_format(word, sizeof(word), "%s-%s", param, fsdp ? "mixed" : "amp");
    else
        str_format(word, sizeof(word), "%s", stored);
    config_set(c, c->root, KEY_PRECISION, word);
    if (fsdp && strcmp(stored, "fp32") != 0 && strcmp(stored, param) != 0)
        config_set(c, c->root, KEY_PARAM_DTYPE, param);
}

/* ---- optimizer, layers ---- */

/* Clipping has no switch; what an update in backward has freed, it finds not.
 */
static void optimizer(struct config *c)
{
    const struct json *fused = config_at(c, "optimizer.fused");
    const bool early = is_on(config_at(c, "optimizer.early_step_in_backward"));
    if (config_at(c, "optimizer.implementation") == NULL)
        config_set(c, or_root(c, fused), KEY_OPTIMIZER_IMPL,
                   fused == NULL || is_on(fused) ? "fused" : "foreach");
    if (early)
        config_set(c, config_at(c, "optimizer.early_step_in_backward"),
                   KEY_OPTIMIZER_IN_BACKWARD, "true");
    config_set(c, or_root(c, config_at(c, "training.max_norm")), KEY_CLIP_GRAD,
               early ? "false" : "true");
}

/* "op": a policy of operations; a number: every so manieth layer, 0 each. */
static void selective(struct config *c)
{
    const struct json *v =
        config_at(c, "activation_checkpoint.selective_ac_option");
    const struct str word = v == NULL ? STR("2")
                            : v->kind == JSON_STRING || v->kind == JSON_NUMBER
                                ? v->text
                                : STR("");
    uint64_t every = 0;
    if (str_is(word, "op")) {
        config_set(c, v, KEY_RECOMPUTE, "ops");
    } else if (word.n > 0 && word.p[0] >= '0' && word.p[0] <= '9'
               && unit_parse_count(word, &every) == UNIT_OK) {
        config_set(c, or_root(c, v), KEY_RECOMPUTE, "full");
        set_count(c, v, KEY_RECOMPUTE_EVERY, every > 0 ? every : 1);
    } else {
        bad_word(c, v, "op, and numbers: every so manieth layer");
    }
}

static void checkpoints(struct config *c)
{
    const struct json *mode = config_at(c, "activation_checkpoint.mode");
    if (mode == NULL || is_text(mode, "selective"))
        selective(c);
    else if (is_text(mode, "full") || is_text(mode, "none"))
        config_set(c, mode, KEY_RECOMPUTE,
                   is_text(mode, "full") ? "full" : "none");
    else if (is_text(mode, "memory_budget"))
        diag_hint(config_bad(c, mode, MEMPLAN_E_UNSUPPORTED,
                             "mode 'memory_budget' is not modelled"),
                  "write none, selective or full");
    else
        bad_word(c, mode, "none, selective, full");
}

static bool has_component(const struct config *c, const char *name)
{
    const struct json *list = config_at(c, "compile.components");
    if (list == NULL)
        return true; /* model and loss */
    for (const struct json *v = list->child; v != NULL; v = v->next) {
        if (is_text(v, name))
            return true;
    }
    return false;
}

/* The loss too: of [compile] where it is a component, of [training] since March
 * 2025. */
static void compile(struct config *c)
{
    const struct json *now = config_at(c, "compile.enable");
    const struct json *before = config_at(c, "training.compile");
    const bool model = (is_on(now) && has_component(c, "model"))
                       || (now == NULL && is_on(before));
    const bool loss = (is_on(now) && has_component(c, "loss"))
                      || (now == NULL && is_on(before)
                          && json_member(c->root, "parallelism") != NULL);
    config_set(c, or_root(c, now != NULL ? now : before), KEY_COMPILE,
               model ? "true" : "false");
    config_set(c, or_root(c, now != NULL ? now : before), KEY_LOSS,
               loss && model ? "fused" : "standard");
    if (loss && !model)
        config_note(c, "a compiled loss without compiled layers is not "
                       "modelled: neither is assumed");
}

/* Embedding and head are wrapped since July 2025 (#1094): batches of an older file
 * have their first name (to June 2025), its layers are compiled by [training]. */
static void units(struct config *c, const struct dims *d)
{
    const struct json *old =
        first_of(c, "training.batch_size training.compile");
    if (has_fsdp(d) && old != NULL)
        config_set(c, old, KEY_FSDP_UNITS, "layers");
}

/* Without tensor parallelism it says nothing (parallelize.py). */
static void async_tp(struct config *c, const struct dims *d)
{
    const struct json *v =
        first_of(c, "parallelism.enable_async_tensor_parallel "
                    "experimental.enable_async_tensor_parallel");
    if (d->tp > 1 && is_on(v))
        config_set(c, v, KEY_ASYNC_TP, "true");
}

void config_torchtitan_together(struct config *c)
{
    if (c->d->status != MEMPLAN_OK)
        return; /* a degree that is none is reported by its row */
    const struct dims d = read_dims(c);
    if (c->d->status != MEMPLAN_OK)
        return;
    layout(c, &d);
    schedule(c, &d);
    parts(c, &d);
    batches(c, &d);
    precision(c, &d);
    optimizer(c);
    checkpoints(c);
    compile(c);
    async_tp(c, &d);
    units(c, &d);
    const uint64_t tokens = count(c, "training.seq_len", 2048);
    if (tokens > 0)
        set_count(c, config_at(c, "training.seq_len"), KEY_SEQ_LEN, tokens);
    if (d.pp > 1 && !c->s->set[KEY_PIPELINE_LAYERS])
        config_note(c, "torchtitan counts embedding and head as layers of "
                       "their stages: --pipeline-layers says so");
}

/* Lines that only Python has. */
static bool is_python(const char *text, size_t len)
{
    static const char *const words[] = { "import ", "from ", "def ", "class " };
    for (size_t i = 0; i < len; i++) {
        if (i > 0 && text[i - 1] != '\n')
            continue;
        for (size_t k = 0; k < sizeof(words) / sizeof(words[0]); k++) {
            const size_t n = strlen(words[k]);
            if (len - i >= n && memcmp(text + i, words[k], n) == 0)
                return true;
        }
    }
    return false;
}

struct json *config_parse_torchtitan(struct arena *a, const char *text,
                                     size_t len, struct diag *d)
{
    if (!is_python(text, len))
        return toml_parse(a, text, len, d);
    diag_hint(diag_add(d, MEMPLAN_E_UNSUPPORTED,
                       "Python, as torchtitan's configurations are since "
                       "February 2026: nothing runs it here"),
              "give what it sets as options (--tp, --seq-len, --recompute); "
              "TOML of before is read");
    return NULL;
}
