/*
 * Owns the dialect of Hugging Face Accelerate's configuration file, the YAML
 * that `accelerate config` writes. [accelerate/commands/config/,
 * utils/launch.py, utils/dataclasses.py]
 */
#include "spec/config_emit.h"
#include "spec/config_hf.h"
#include "spec/wrap_names.h"

#include "base/count.h"
#include "base/unit.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

static const struct config_row rows[] = {
    LATER("distributed_type"),
    LATER("mixed_precision"),
    SAME("num_processes", KEY_GPUS),
    LATER("num_machines"),

    LATER("deepspeed_config.deepspeed_config_file"),
    SAME("deepspeed_config.zero_stage", KEY_ZERO),
    SAME("deepspeed_config.gradient_accumulation_steps", KEY_GRAD_ACCUM),
    LATER("deepspeed_config.gradient_clipping"),
    SAME_GIVEN("deepspeed_config.offload_optimizer_device",
               KEY_OFFLOAD_OPTIMIZER),
    SAME_GIVEN("deepspeed_config.offload_param_device", KEY_OFFLOAD_PARAMS),
    QUIET("deepspeed_config.offload_optimizer_nvme_path"),
    QUIET("deepspeed_config.offload_param_nvme_path"),
    ONLY("deepspeed_config.zero3_init_flag", "true"),
    QUIET("deepspeed_config.zero3_save_16bit_model"),
    QUIET("deepspeed_config.deepspeed_multinode_launcher"),
    QUIET("deepspeed_config.deepspeed_hostfile"),
    QUIET("deepspeed_config.deepspeed_exclusion_filter"),
    QUIET("deepspeed_config.deepspeed_inclusion_filter"),
    QUIET("deepspeed_config.deepspeed_moe_layer_cls_names"),
    QUIET("deepspeed_config.seq_parallel_communication_data_type"),

    CONFIG_FSDP_ROWS("fsdp_config.", WORDS),
    ONLY("fsdp_config.fsdp_mixed_precision_policy", "false"),

    CONFIG_MEGATRON_ROWS("megatron_lm_config.", SAME, SAME_GIVEN, WORDS),
    QUIET("megatron_lm_config"),

    CONFIG_PARALLEL_ROWS("parallelism_config."),

    SAME_READ("gradient_accumulation_steps", KEY_GRAD_ACCUM),
    WORDS_GIVEN("dynamo_config.dynamo_backend", KEY_COMPILE,
                "INDUCTOR=true EAGER=false NO=false"),
    QUIET("dynamo_config"),
    ASIDE("fp8_config", "see --precision fp8-mixed, --fp8-recipe"),
    ONLY("use_cpu", "false"),
    QUIET("compute_environment"),
    QUIET("debug"),
    QUIET("downcast_bf16"),
    QUIET("enable_cpu_affinity"),
    QUIET("gpu_ids"),
    QUIET("machine_rank"),
    QUIET("main_process_ip"),
    QUIET("main_process_port"),
    QUIET("main_training_function"),
    QUIET("rdzv_backend"),
    QUIET("same_network"),
    QUIET("tpu_env"),
    QUIET("tpu_use_cluster"),
    QUIET("tpu_use_sudo"),
    QUIET("ipex_config"),
    QUIET("mpirun_config"),
    QUIET("deepspeed_fields_from_accelerate_config"),
};

/* Accelerate would go by the line, and take of the file what is left. */
static void against_line(struct config *c, const struct json *type)
{
    diag_hint(config_bad(c, type, MEMPLAN_E_CONFLICT,
                         "the line that names this file says --%s", c->held),
              "keep one: leave the flag out, or write the distributed_type "
              "that it means");
}

/* distributed_type decides which of the file's blocks counts. */
static enum config_holder who_holds(struct config *c)
{
    static const struct {
        const char *type, *framework, *flag;
        enum config_holder holder;
    } types[] = {
        { "NO", "hf", "multi_gpu", HOLD_DDP },
        { "MULTI_GPU", "hf", "multi_gpu", HOLD_DDP },
        { "DEEPSPEED", "deepspeed", "use_deepspeed", HOLD_DEEPSPEED },
        { "FSDP", "fsdp", "use_fsdp", HOLD_FSDP },
        { "MEGATRON_LM", "megatron", "use_megatron_lm", HOLD_MEGATRON },
    };
    const struct json *type = config_at(c, "distributed_type");
    if (type == NULL || type->kind == JSON_BOOL) { /* YAML's bare NO */
        config_set(c, c->root, KEY_FRAMEWORK, "hf");
        return HOLD_DDP;
    }
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (type->kind == JSON_STRING && str_is(type->text, types[i].type)) {
            if (c->held != NULL && strcmp(c->held, types[i].flag) != 0)
                against_line(c, type);
            config_set(c, type, KEY_FRAMEWORK, types[i].framework);
            return types[i].holder;
        }
    }
    memplan_error *e =
        config_bad(c, type, MEMPLAN_E_UNSUPPORTED, "distributed_type '%.*s'",
                   (int)(type->text.n < 40 ? type->text.n : 40), type->text.p);
    diag_hint(e, "known are NO, MULTI_GPU, DEEPSPEED, FSDP, MEGATRON_LM");
    return HOLD_DDP;
}

/* Hybrid sharding's shards are the GPUs of a node. */
static void within_node(struct config *c, const struct json *how,
                        const char *name)
{
    char each[UNIT_TEXT_MAX];
    if (!c->s->set[KEY_GPUS_PER_NODE]) {
        config_note(c,
                    "%s shards within a node: add --shard-degree, GPUs of a "
                    "node",
                    name);
        return;
    }
    str_format(each, sizeof(each), "%" PRIu64, c->s->v[KEY_GPUS_PER_NODE].n);
    config_set(c, how, KEY_SHARD_DEGREE, each);
}

/* A flag's value is a text, a file's may be a number. */
static bool is_count(const struct json *value, double n)
{
    double x = value->number;
    if (value->kind == JSON_STRING
        && unit_parse_real(value->text, &x) != UNIT_OK)
        return false;
    return (value->kind == JSON_NUMBER || value->kind == JSON_STRING)
           && !(x < n) && !(x > n);
}

static const struct json *below(const struct config *c, const char *at,
                                const char *name)
{
    char path[CONFIG_PATH_MAX];
    str_format(path, sizeof(path), "%s%s", at, name);
    return config_at(c, path);
}

/* As `accelerate config` counts them, and as its names are. */
static void sharding(struct config *c, const struct json *how)
{
    static const struct {
        const char *name;
        double number;
        const char *zero;
    } ways[] = {
        { "FULL_SHARD", 1, "3" },         { "SHARD_GRAD_OP", 2, "2" },
        { "NO_SHARD", 3, "0" },           { "HYBRID_SHARD", 4, "3" },
        { "HYBRID_SHARD_ZERO2", 5, "2" },
    };
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        if (!config_says(how, ways[i].name) && !is_count(how, ways[i].number))
            continue;
        config_set(c, how, KEY_ZERO, ways[i].zero);
        if (i >= 3)
            within_node(c, how, ways[i].name);
        return;
    }
    memplan_error *e =
        config_bad(c, how, MEMPLAN_E_UNKNOWN, "unknown fsdp_sharding_strategy");
    diag_hint(e, "write FULL_SHARD, SHARD_GRAD_OP, HYBRID_SHARD, "
                 "HYBRID_SHARD_ZERO2 or NO_SHARD");
}

void config_orig_params(struct config *c, const struct json *value, bool two)
{
    if (value == NULL)
        return;
    if (two)
        config_note(c,
                    "use_orig_params is nothing of FSDP 2: Accelerate leaves "
                    "it aside");
    else
        config_set_json(c, value, KEY_USE_ORIG_PARAMS);
}

static void add_wraps(struct config *c, struct str list)
{
    while (list.n > 0) {
        struct str one = str_cut(list, ',', &list);
        while (one.n > 0 && one.p[0] == ' ')
            one = (struct str){ one.p + 1, one.n - 1 };
        while (one.n > 0 && one.p[one.n - 1] == ' ')
            one.n--;
        c->s->wraps |= wrap_name_bit(one);
    }
}

void config_hf_wraps(struct config *c)
{
    static const char *const paths[] = {
        "fsdp_transformer_layer_cls_to_wrap",
        "fsdp_config.fsdp_transformer_layer_cls_to_wrap",
        "fsdp_config.transformer_layer_cls_to_wrap",
    };
    c->s->wraps = 0;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        const struct json *at = config_at(c, paths[i]);
        if (at == NULL)
            continue;
        if (at->kind == JSON_STRING)
            add_wraps(c, at->text);
        for (const struct json *one = at->child; one != NULL; one = one->next)
            if (one->kind == JSON_STRING)
                add_wraps(c, one->text);
    }
}

/* Version and stage of it. */
static void read_fsdp(struct config *c, const char *at)
{
    const struct json *version = below(c, at, "fsdp_version");
    const bool two = version != NULL && is_count(version, 2);
    const struct json *how = below(
        c, at, two ? "fsdp_reshard_after_forward" : "fsdp_sharding_strategy");
    if (version != NULL && !two && !is_count(version, 1))
        diag_hint(config_bad(c, version, MEMPLAN_E_RANGE,
                             "there is no such fsdp_version"),
                  "write 1 or 2");
    config_set(c, c->root, KEY_ENGINE, two ? "fsdp2" : "fsdp");
    config_orig_params(c, below(c, at, "fsdp_use_orig_params"), two);
    if (how == NULL || config_says(how, "true"))
        config_set(c, how != NULL ? how : c->root, KEY_ZERO, "3");
    else if (config_says(how, "false"))
        config_set(c, how, KEY_ZERO, "2");
    else
        sharding(c, how);
}

/* accelerate/utils/dataclasses.py, DeepSpeedPlugin: stage 2 where nothing says
 * another. */
static void default_stage(struct config *c)
{
    if (c->s->set[KEY_ZERO])
        return;
    config_set(c, c->root, KEY_ZERO, "2");
    config_note(c, "without zero_stage it is 2, Accelerate's default (--zero)");
}

/* Megatron-LM's defaults, but what the rows of keys at a path say. */
static void megatron(struct config *c, const char *at)
{
    char path[CONFIG_PATH_MAX];
    config_set(c, c->root, KEY_DETERMINISTIC, "false");
    if (below(c, at, "megatron_lm_sequence_parallelism") == NULL)
        config_set(c, c->root, KEY_SEQUENCE_PARALLEL, "false");
    str_format(path, sizeof(path), "%smegatron_lm_gradient_clipping", at);
    config_clipping(c, path);
}

/* 0: absent, or no number of ranks. */
static uint64_t ranks_of(const struct json *v)
{
    uint64_t n = 0;
    if (v != NULL && v->kind == JSON_NUMBER && v->number >= 1
        && v->number < UINT16_MAX)
        return (uint64_t)v->number;
    if (v != NULL && v->kind == JSON_STRING
        && unit_parse_count(v->text, &n) == UNIT_OK && n < UINT16_MAX)
        return n;
    return 0;
}

/* FSDP shards over dp_shard and cp together (parallelism_config.py,
 * dp_shard_cp_dim_names); without the first that is cp alone, where there are
 * copies. */
static void sharded(struct config *c, const char *at)
{
    const struct json *shard = below(c, at, "parallelism_config_dp_shard_size");
    const struct json *copies =
        below(c, at, "parallelism_config_dp_replicate_size");
    const uint64_t cp = ranks_of(below(c, at, "parallelism_config_cp_size"));
    const uint64_t by = shard != NULL ? ranks_of(shard) : 1;
    char text[UNIT_TEXT_MAX];
    if (shard == NULL && ranks_of(copies) < 2)
        return;
    if (by == 0) {
        config_set_json(c, shard, KEY_SHARD_DEGREE);
        return;
    }
    str_format(text, sizeof(text), "%" PRIu64, by * (cp > 0 ? cp : 1));
    config_set(c, shard != NULL ? shard : copies, KEY_SHARD_DEGREE, text);
}

/* Accelerate's context parallelism is torch's: TorchContextParallelConfig. */
static void split(struct config *c, const char *at)
{
    char path[CONFIG_PATH_MAX];
    const struct json *n = below(c, at, "parallelism_config_cp_size");
    const struct json *how =
        below(c, at, "parallelism_config_cp_comm_strategy");
    if (n != NULL)
        config_set_json(c, n, KEY_CP);
    if (n != NULL && !is_count(n, 1))
        config_set(c, n, KEY_CP_COMM,
                   how != NULL && str_is(how->text, "alltoall") ? "p2p"
                                                                : "all_gather");
    sharded(c, at);
    str_format(path, sizeof(path), "%sparallelism_config_sp_size", at);
    n = config_at(c, path);
    if (n != NULL && !is_count(n, 1))
        config_ulysses(c, path);
}

/* launch.py refuses it of others, and without its flag looks at none of it. */
static void launched_split(struct config *c)
{
    static const char *const sizes[] = { "tp", "cp", "sp", "dp_shard" };
    const bool meant = config_is_true(c, "use_parallelism_config");
    const struct json *version = config_at(c, "fsdp_version");
    const struct json *said = config_at(c, "use_parallelism_config");
    for (size_t i = 0; !meant && i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char path[CONFIG_PATH_MAX];
        str_format(path, sizeof(path), "parallelism_config_%s_size", sizes[i]);
        const struct json *size = config_at(c, path);
        if (size != NULL && config_at(c, "config_file") == NULL)
            diag_hint(config_bad(c, size, MEMPLAN_E_CONFLICT,
                                 "--%s without --use_parallelism_config", path),
                      "add --use_parallelism_config: without it Accelerate "
                      "looks at none of them");
    }
    if (meant
        && (!config_is_true(c, "use_fsdp") || version == NULL
            || !is_count(version, 2)))
        diag_hint(config_bad(c, said, MEMPLAN_E_CONFLICT,
                             "--use_parallelism_config without --use_fsdp "
                             "--fsdp_version 2"),
                  "add them: Accelerate refuses it so");
    split(c, "");
}

/* What of launch.py's flags says who holds what; NULL: none. */
static const struct json *holder_flag(struct config *c, const char **name)
{
    static const char *const flags[] = { "use_fsdp", "use_deepspeed",
                                         "use_megatron_lm", "multi_gpu" };
    const struct json *first = NULL;
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        if (!config_is_true(c, flags[i]))
            continue;
        if (first != NULL)
            diag_hint(config_bad(c, config_at(c, flags[i]), MEMPLAN_E_CONFLICT,
                                 "both --%s and --%s", *name, flags[i]),
                      "keep one: Accelerate takes one of them at a time");
        else
            *name = flags[i];
        first = first != NULL ? first : config_at(c, flags[i]);
    }
    return first;
}

bool config_launched(struct config *c, enum config_holder *holder)
{
    const char *name = "";
    const struct json *flag = holder_flag(c, &name);
    launched_split(c);
    c->s->pending_held = flag != NULL ? name : NULL;
    if (flag == NULL || strcmp(name, "multi_gpu") == 0)
        return false;
    if (strcmp(name, "use_fsdp") == 0) {
        config_set(c, flag, KEY_FRAMEWORK, "fsdp");
        read_fsdp(c, "");
        *holder = HOLD_FSDP;
    } else if (strcmp(name, "use_megatron_lm") == 0) {
        config_set(c, flag, KEY_FRAMEWORK, "megatron");
        megatron(c, "");
        *holder = HOLD_MEGATRON;
    } else {
        config_set(c, flag, KEY_FRAMEWORK, "deepspeed");
        *holder = HOLD_DEEPSPEED;
        if (config_deepspeed_file(c) == NULL
            && config_at(c, "config_file") == NULL)
            default_stage(c);
    }
    return true;
}

/* Processes are GPUs; each machine has as many. */
static void machines(struct config *c)
{
    const struct json *n = config_at(c, "num_machines");
    const struct json *all = config_at(c, "num_processes");
    if (n == NULL || n->kind != JSON_NUMBER || all == NULL
        || all->kind != JSON_NUMBER || !(n->number >= 1)
        || !(n->number <= UINT32_MAX) || !(all->number <= UINT32_MAX))
        return;
    const uint64_t count = (uint64_t)n->number;
    const uint64_t gpus = (uint64_t)all->number;
    if (gpus % count != 0) {
        memplan_error *e = config_bad(c, all, MEMPLAN_E_CONFLICT,
                                      "num_processes is not a multiple of "
                                      "num_machines");
        diag_hint(e, "it counts the GPUs of all machines");
        return;
    }
    char each[UNIT_TEXT_MAX];
    str_format(each, sizeof(each), "%" PRIu64, gpus / count);
    config_set(c, n, KEY_GPUS_PER_NODE, each);
}

/* The Trainer's own format, where this file is one that its script names. */
static const char *trainers_format(const struct config *c)
{
    if (!c->keeps || !c->s->set[KEY_PRECISION])
        return NULL;
    switch ((enum precision)c->s->v[KEY_PRECISION].n) {
    case PREC_BF16_AMP:
    case PREC_BF16_MIXED:
    case PREC_BF16: return "bf16";
    case PREC_FP16_AMP:
    case PREC_FP16_MIXED:
    case PREC_FP16: return "fp16";
    case PREC_TF32: return "tf32";
    case PREC_FP32:
    case PREC_FP8_MIXED:
    case PREC_FP4_MIXED:
    case PRECISION_COUNT: break;
    }
    return NULL;
}

static void precision(struct config *c, enum config_holder h)
{
    const char *trainers = trainers_format(c);
    if (trainers != NULL) {
        if (h != HOLD_DDP) /* which has read it */
            config_hf_precision(c, h, trainers);
        return;
    }
    const struct json *mixed = config_at(c, "mixed_precision");
    const bool word = mixed != NULL && mixed->kind == JSON_STRING;
    const bool bf16 = word && str_is(mixed->text, "bf16");
    const bool fp16 = word && str_is(mixed->text, "fp16");
    const bool none = mixed == NULL || mixed->kind == JSON_BOOL
                      || (word && str_is(mixed->text, "no"));
    /* without autocast weights stay as another file has them loaded */
    if (none && c->s->set[KEY_PRECISION]
        && c->s->v[KEY_PRECISION].n == (uint64_t)PREC_BF16)
        return;
    if (word && str_is(mixed->text, "fp8")) {
        config_set(c, mixed, KEY_PRECISION, "fp8-mixed");
    } else if (bf16 || fp16 || none) {
        config_hf_precision(c, h, bf16 ? "bf16" : fp16 ? "fp16" : "fp32");
    } else {
        memplan_error *e =
            config_bad(c, mixed, MEMPLAN_E_UNKNOWN, "unknown mixed_precision");
        diag_hint(e, "write no, fp16, bf16 or fp8");
    }
}

/* accelerate/utils/dataclasses.py, DeepSpeedPlugin._deepspeed_config_checks, of
 * what commands/launch.py, launch_command, finds in this file. */
static void check_beside_file(struct config *c)
{
    static const char *const refused[] = { "gradient_accumulation_steps",
                                           "gradient_clipping",
                                           "zero_stage",
                                           "offload_optimizer_device",
                                           "offload_param_device",
                                           "offload_param_nvme_path",
                                           "offload_optimizer_nvme_path",
                                           "zero3_save_16bit_model" };
    const struct json *first = NULL;
    char names[CONFIG_PATH_MAX * 2] = "";
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        const struct json *v = below(c, "deepspeed_config.", refused[i]);
        if (v == NULL)
            continue;
        str_append(names, sizeof(names), first != NULL ? ", %s" : "%s",
                   refused[i]);
        first = first != NULL ? first : v;
    }
    const struct json *mixed = config_at(c, "mixed_precision");
    if (mixed != NULL && !c->s->line_mixed) {
        str_append(names, sizeof(names), "%s",
                   first != NULL ? ", mixed_precision" : "mixed_precision");
        first = first != NULL ? first : mixed;
    }
    if (first != NULL)
        diag_hint(config_bad(c, first, MEMPLAN_E_CONFLICT,
                             "beside deepspeed_config_file: %s", names),
                  "Accelerate refuses it: say it in the DeepSpeed file alone");
}

/* What FSDP's plugin has, the Trainer refuses beside its own (trainer.py,
 * create_accelerator_and_postprocess). */
static void recompute(struct config *c)
{
    static const char path[] = "fsdp_config.fsdp_activation_checkpointing";
    c->s->fsdp_checkpoints = config_is_true(c, path);
    if (c->s->fsdp_checkpoints && c->s->trainer.checkpoints)
        config_both_recompute(c, config_at(c, path));
}

static void together(struct config *c)
{
    const enum config_holder h = who_holds(c);
    const struct json *file =
        config_at(c, "deepspeed_config.deepspeed_config_file");
    machines(c);
    config_hf_wraps(c);
    if (h == HOLD_FSDP) {
        read_fsdp(c, "fsdp_config.");
        recompute(c);
    }
    split(c, "parallelism_config.");
    if (h == HOLD_DEEPSPEED)
        config_clipping(c, "deepspeed_config.gradient_clipping");
    if (h == HOLD_DEEPSPEED && file == NULL)
        default_stage(c);
    if (h == HOLD_MEGATRON)
        megatron(c, "megatron_lm_config.");
    if (h == HOLD_DEEPSPEED && file != NULL)
        check_beside_file(c);
    if (h == HOLD_DEEPSPEED && file != NULL && file->kind == JSON_STRING)
        config_goes_on(c, file, "deepspeed");
    else
        precision(c, h);
}

/* ---- and back ---- */

static enum config_holder holder_of(const struct run *r)
{
    switch (r->engine) {
    case ENGINE_DDP: return HOLD_DDP;
    case ENGINE_DEEPSPEED: return HOLD_DEEPSPEED;
    case ENGINE_FSDP:
    case ENGINE_FSDP2: return HOLD_FSDP;
    case ENGINE_MEGATRON:
    case ENGINE_MEGATRON_FSDP: return HOLD_MEGATRON;
    case ENGINE_COUNT: break;
    }
    return HOLD_DDP;
}

/* Each block of the file is of one distributed_type. */
static bool writes(const struct run *r, const char *path)
{
    static const struct {
        const char *block;
        enum config_holder holder;
    } blocks[] = {
        { "deepspeed_config.", HOLD_DEEPSPEED },
        { "fsdp_config.", HOLD_FSDP },
        { "parallelism_config.", HOLD_FSDP },
        { "megatron_lm_config.", HOLD_MEGATRON },
    };
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
        if (strncmp(path, blocks[i].block, strlen(blocks[i].block)) == 0)
            return holder_of(r) == blocks[i].holder
                   && (r->engine != ENGINE_FSDP || path[0] != 'p');
    }
    return true;
}

/* Sizes whose product is the number of processes, as Accelerate wants it. */
static void put_split(struct emit *e, const struct run *r)
{
    const uint64_t all = r->dp * r->cp;
    if (!r->given[KEY_SHARD_DEGREE] && r->tp == 1 && r->cp == 1)
        return;
    if (r->shard % r->cp != 0)
        emit_refuse(e, KEY_SHARD_DEGREE,
                    "states are sharded over context parallel ranks too: use "
                    "a multiple of %llu",
                    (unsigned long long)r->cp);
    emit_count(e, "parallelism_config.parallelism_config_dp_shard_size",
               r->shard / r->cp);
    if (r->shard < all)
        emit_count(e, "parallelism_config.parallelism_config_dp_replicate_size",
                   all / r->shard);
    if (r->tp > 1)
        emit_count(e, "parallelism_config.parallelism_config_tp_size", r->tp);
    if (!run_rings(r))
        return;
    emit_count(e, "parallelism_config.parallelism_config_cp_size", r->cp);
    emit_word(e, "parallelism_config.parallelism_config_cp_comm_strategy",
              r->cp_comm == CP_P2P ? "alltoall" : "allgather");
}

static void put_fsdp(struct emit *e, const struct run *r)
{
    const bool two = r->engine == ENGINE_FSDP2;
    const bool hybrid = r->given[KEY_SHARD_DEGREE] && r->shard < r->dp;
    emit_count(e, "fsdp_config.fsdp_version", two ? 2 : 1);
    if (two)
        emit_bool(e, "fsdp_config.fsdp_reshard_after_forward", r->zero == 3);
    else
        emit_word(e, "fsdp_config.fsdp_sharding_strategy",
                  r->zero == 0   ? "NO_SHARD"
                  : r->zero == 3 ? (hybrid ? "HYBRID_SHARD" : "FULL_SHARD")
                  : hybrid       ? "HYBRID_SHARD_ZERO2"
                                 : "SHARD_GRAD_OP");
    if (!two)
        emit_bool(e, "fsdp_config.fsdp_use_orig_params", r->use_orig_params);
    if (!two && hybrid && r->shard != r->gpus_per_node)
        emit_refuse(e, KEY_SHARD_DEGREE,
                    "version 1 shards over a node (HYBRID_SHARD): use --engine "
                    "fsdp2, or --shard-degree %llu",
                    (unsigned long long)min_u64(r->gpus_per_node, r->gpus));
    if (two)
        put_split(e, r);
    if (r->cp > 1 && !(two && run_rings(r)))
        emit_refuse(e, KEY_CP,
                    "context parallelism is torch's there: use %s--cp-comm "
                    "all_gather or p2p",
                    two ? "" : "--engine fsdp2 ");
    emit_word(e, "fsdp_config.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP");
}

/* Buckets are in a file of DeepSpeed's own. */
static void put_deepspeed(struct emit *e, const struct run *r)
{
    static const enum setup_key keys[] = {
        KEY_REDUCE_BUCKET,
        KEY_ALLGATHER_BUCKET,
        KEY_PREFETCH_BUCKET,
        KEY_MAX_LIVE_PARAMS,
        KEY_PERSISTENCE_THRESHOLD,
        KEY_SUB_GROUP_SIZE,
        KEY_OVERLAP_COMM,
        KEY_CONTIGUOUS_GRADIENTS,
        KEY_ROUND_ROBIN_GRADIENTS,
        KEY_SHARD_DEGREE,
        KEY_HPZ_PARTITION_SIZE,
        KEY_MICS_SHARD_SIZE,
        KEY_MICS_HIERARCHICAL,
        KEY_ZERO_QUANTIZED_WEIGHTS,
        KEY_ZERO_QUANTIZED_GRADIENTS,
        KEY_OFFLOAD_RATIO,
        KEY_MULTI_RANK_BUCKET_ALLREDUCE,
    };
    emit_raw(e, "deepspeed_config.gradient_clipping",
             r->clip_grad ? "1.0" : "0.0");
    emit_bool(e, "deepspeed_config.zero3_init_flag", true);
    if (r->offload_optimizer == OFFLOAD_NVME)
        emit_word(e, "deepspeed_config.offload_optimizer_nvme_path",
                  "/local_nvme");
    if (r->offload_params == OFFLOAD_NVME)
        emit_word(e, "deepspeed_config.offload_param_nvme_path", "/local_nvme");
    emit_refuse_given(e, keys, sizeof(keys) / sizeof(keys[0]),
                      "a file of DeepSpeed's own says it: --emit deepspeed");
    if (!run_exchanges_heads(r))
        return;
    emit_count(e, "parallelism_config.parallelism_config_sp_size", r->cp);
    emit_word(e, "parallelism_config.parallelism_config_sp_backend",
              "deepspeed");
    emit_word(e, "parallelism_config.parallelism_config_sp_attn_implementation",
              r->attention == ATTN_SDPA ? "sdpa" : "flash_attention_2");
}

static void put_megatron(struct emit *e, const struct run *r)
{
    static const enum setup_key keys[] = { KEY_VPP, KEY_PIPELINE_LAYERS,
                                           KEY_RECOMPUTE_MODULES,
                                           KEY_RECOMPUTE_LAYERS,
                                           KEY_RECOMPUTE_GRANULARITY };
    emit_raw(e, "megatron_lm_config.megatron_lm_gradient_clipping",
             r->clip_grad ? "1.0" : "0.0");
    if (e->spec->experts > 0 && r->etp != r->tp)
        emit_count(e,
                   "megatron_lm_config.megatron_lm_expert_tensor_parallel_"
                   "size",
                   r->etp);
    emit_refuse_given(e, keys, sizeof(keys) / sizeof(keys[0]),
                      "Megatron-LM's own script says it: --emit megatron");
}

static void apart(struct emit *e, const struct run *r)
{
    static const char *const types[] = { [HOLD_DDP] = "MULTI_GPU",
                                         [HOLD_FSDP] = "FSDP",
                                         [HOLD_DEEPSPEED] = "DEEPSPEED",
                                         [HOLD_MEGATRON] = "MEGATRON_LM" };
    const enum config_holder h = holder_of(r);
    if (run_spreads(r))
        emit_refuse(e, KEY_SCHEDULE,
                    "one process needs no launcher: python train.py, with "
                    "device_map=\"auto\"");
    emit_word(e, "compute_environment", "LOCAL_MACHINE");
    emit_word(e, "distributed_type",
              h == HOLD_DDP && r->gpus == 1 ? "NO" : types[h]);
    emit_count(e, "num_machines", r->gpus / emit_node(e, r));
    emit_count(e, "machine_rank", 0);
    emit_word(e, "mixed_precision",
              r->prec.fp8                  ? "fp8"
              : r->prec.compute == DT_BF16 ? "bf16"
              : r->prec.compute == DT_FP16 ? "fp16"
                                           : "no");
    if (h == HOLD_FSDP)
        put_fsdp(e, r);
    if (h == HOLD_DEEPSPEED)
        put_deepspeed(e, r);
    if (h == HOLD_MEGATRON)
        put_megatron(e, r);
}

const struct config_table config_accelerate = {
    rows,          sizeof(rows) / sizeof(rows[0]),
    false,         false,
    NULL,          together,
    apart,         writes,
    BESIDE_SCRIPT,
};
