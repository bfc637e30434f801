/*
 * Owns the dialect of lines that start a process for each GPU, torchrun's,
 * deepspeed's and accelerate's: how many GPUs, on how many nodes, who holds
 * what where the line says it, and which file has the rest. What their program
 * trains is in other files.
 */
#include "spec/config_emit.h"
#include "spec/config_hf.h"

#include "base/unit.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/banned.h"

static const struct config_row rows[] = {
    LATER("nnodes"),
    LATER("nproc_per_node"),
    LATER("num_processes"),
    LATER("num_machines"),
    LATER("num_gpus"),
    LATER("num_nodes"),
    LATER("hostfile"),
    LATER("include"),
    LATER("config_file"),
    QUIET("rdzv_backend"),
    QUIET("rdzv_endpoint"),
    QUIET("rdzv_id"),
    QUIET("rdzv_conf"),
    QUIET("node_rank"),
    QUIET("master_addr"),
    QUIET("master_port"),
    QUIET("max_restarts"),
    QUIET("standalone"),
    QUIET("job.config_file"),
    QUIET("machine_rank"),
    QUIET("main_process_ip"),
    QUIET("main_process_port"),
    QUIET("config"),
    LATER("use_fsdp"),
    LATER("use_deepspeed"),
    LATER("mixed_precision"),
    LATER("deepspeed"),
    LATER("deepspeed_config"),
    LATER("deepspeed_config_file"),
    SAME_READ("zero_stage", KEY_ZERO),
    SAME_READ("offload_optimizer_device", KEY_OFFLOAD_OPTIMIZER),
    SAME_READ("offload_param_device", KEY_OFFLOAD_PARAMS),
    SAME_READ("gradient_accumulation_steps", KEY_GRAD_ACCUM),
    CONFIG_LAUNCH_ROWS,
};

/* ---- how many processes ---- */

/* What starts a process for each GPU, and by which flags it is told on how
 * many nodes. [torch/distributed/run.py; deepspeed/launcher/runner.py;
 * accelerate/commands/launch.py] */
static const struct launcher {
    const char *each, *nodes;
    uint64_t unsaid; /* processes of a node where no flag says; 0: its GPUs */
} torchrun = { "nproc_per_node", "nnodes", 1 },
  deepspeed = { "num_gpus", "num_nodes", 0 };

enum { NODES_MAX = 1000000 };

/* The script's name may stand behind torchrun's last flag. */
static struct str first_word(const struct json *value)
{
    struct str rest;
    return value->kind == JSON_STRING ? str_cut(value->text, ' ', &rest)
                                      : (struct str){ "", 0 };
}

static bool is_number(const struct json *value, uint64_t *out)
{
    if (value->kind == JSON_NUMBER && value->number >= 0
        && value->number <= NODES_MAX) {
        *out = (uint64_t)value->number;
        return true;
    }
    return unit_parse_count(first_word(value), out) == UNIT_OK;
}

/* A count of processes or nodes; what none can be is reported. */
static bool read_number(struct config *c, const char *flag, uint64_t *out)
{
    const struct json *value = config_at(c, flag);
    char shown[CONFIG_PATH_MAX];
    if (value == NULL || !is_number(value, out))
        return false;
    if (*out >= 1 && *out <= NODES_MAX)
        return true;
    diag_hint(config_bad(c, value, MEMPLAN_E_RANGE,
                         "'%s' is %" PRIu64 ", out of range",
                         config_shown(c, flag, shown), *out),
              "use 1 to %d", NODES_MAX);
    return false;
}

static void set_count(struct config *c, const char *flag, enum setup_key key,
                      uint64_t n)
{
    const struct json *where = config_at(c, flag);
    char text[UNIT_TEXT_MAX];
    str_format(text, sizeof(text), "%" PRIu64, n);
    config_set(c, where != NULL ? where : c->root, key, text);
}

/* As many as a node has: --gpus or --gpus-per-node says it, if not the file. */
static void whole_nodes(struct config *c, uint64_t nodes, const char *flag)
{
    const struct json *value = config_at(c, flag);
    char shown[CONFIG_PATH_MAX];
    c->s->nodes = (uint32_t)nodes;
    config_shown(c, flag, shown);
    if (value == NULL)
        config_note(c, "without %s it is all GPUs of a node", shown);
    else
        config_note(c, "%s %.*s is all GPUs of a node", shown,
                    (int)first_word(value).n, first_word(value).p);
}

static void bad_number(struct config *c, const char *flag, const char *hint)
{
    const struct json *value = config_at(c, flag);
    const struct str word = first_word(value);
    char shown[CONFIG_PATH_MAX];
    config_shown(c, flag, shown);
    diag_hint(
        value->kind == JSON_BOOL
            ? config_bad(c, value, MEMPLAN_E_ARG, "no value behind '%s'", shown)
            : config_bad(c, value, MEMPLAN_E_ARG, "'%s' is '%.*s'", shown,
                         (int)(word.n < 40 ? word.n : 40), word.p),
        "%s", hint);
}

/* "gpu", "auto", or a name that only the shell knows; "cpu" is no GPU. */
static bool is_all(struct config *c, const char *flag)
{
    const struct str word = first_word(config_at(c, flag));
    if (str_is(word, "gpu") || str_is(word, "auto") || str_is(word, "-1")
        || memchr(word.p, '$', word.n) != NULL)
        return true;
    bad_number(c, flag, "write the number of GPUs of a node, or gpu for all");
    return false;
}

/* "1:4" is a job that runs on as many as there are, 4 at most. */
static bool is_range(struct str word, uint64_t *most)
{
    struct str upper;
    uint64_t least = 0;
    return unit_parse_count(str_cut(word, ':', &upper), &least) == UNIT_OK
           && unit_parse_count(upper, most) == UNIT_OK && least >= 1
           && *most >= least && *most <= NODES_MAX;
}

/* How many nodes. False where only the shell knows: that is told, and one node
 * is taken; what no shell makes a number of is reported. */
static bool read_nodes(struct config *c, const char *flag, uint64_t *n)
{
    const struct json *value = config_at(c, flag);
    char shown[CONFIG_PATH_MAX];
    if (value == NULL || read_number(c, flag, n) || c->d->status != MEMPLAN_OK)
        return true;
    const struct str word = first_word(value);
    config_shown(c, flag, shown);
    if (is_range(word, n)) {
        config_note(c, "%s %.*s: %" PRIu64 " node%s taken (--gpus)", shown,
                    (int)word.n, word.p, *n, *n == 1 ? " is" : "s are");
        return true;
    }
    *n = 1;
    if (memchr(word.p, '$', word.n) != NULL)
        return false;
    bad_number(c, flag, "write the number of nodes");
    return false;
}

static void note_one_node(struct config *c, const char *flag)
{
    char shown[CONFIG_PATH_MAX];
    const struct str word = first_word(config_at(c, flag));
    config_note(c,
                "%s is %.*s, which the file does not say: one node is taken "
                "(--gpus)",
                config_shown(c, flag, shown), (int)(word.n < 40 ? word.n : 40),
                word.p);
}

/* Nodes of so many processes each. */
static void read_launcher(struct config *c, const struct launcher *of)
{
    const struct json *each = config_at(c, of->each);
    const struct json *nodes = config_at(c, of->nodes);
    uint64_t per_node = of->unsaid, n = 1;
    if (each == NULL && nodes == NULL)
        return;
    const bool fixed = read_nodes(c, of->nodes, &n);
    const bool counted =
        each == NULL ? of->unsaid > 0 : read_number(c, of->each, &per_node);
    if (c->d->status != MEMPLAN_OK)
        return;
    if (counted)
        set_count(c, of->each, KEY_GPUS_PER_NODE, per_node);
    if (!fixed)
        note_one_node(c, of->nodes);
    if (counted)
        set_count(c, of->each, KEY_GPUS, n * per_node);
    else if (each == NULL || is_all(c, of->each))
        whole_nodes(c, n, of->each);
}

/* --num_processes counts those of all machines. */
static void read_accelerate(struct config *c)
{
    uint64_t all = 0, machines = 1;
    char shown[CONFIG_PATH_MAX];
    const struct json *value = config_at(c, "num_processes");
    const bool several = config_at(c, "num_machines") != NULL;
    const bool fixed = read_nodes(c, "num_machines", &machines);
    if (!fixed && c->d->status == MEMPLAN_OK)
        config_note(c, "how many machines the file does not say: "
                       "--gpus-per-node does");
    if (value == NULL && several && fixed)
        whole_nodes(c, machines, "num_processes");
    if (value == NULL || c->d->status != MEMPLAN_OK)
        return;
    if (!read_number(c, "num_processes", &all)) {
        if (c->d->status == MEMPLAN_OK)
            config_note(c, "%s is no number there: give --gpus",
                        config_shown(c, "num_processes", shown));
        return;
    }
    set_count(c, "num_processes", KEY_GPUS, all);
    if (fixed && all % machines == 0)
        set_count(c, several ? "num_machines" : "num_processes",
                  KEY_GPUS_PER_NODE, all / machines);
    else if (fixed)
        diag_hint(config_bad(c, value, MEMPLAN_E_CONFLICT,
                             "%" PRIu64 " processes on %" PRIu64 " machines",
                             all, machines),
                  "--num_processes counts the GPUs of all machines");
}

/* "localhost:0,1,2@worker-1:0": GPUs by number, of DeepSpeed's hosts. */
static void read_include(struct config *c)
{
    const struct json *value = config_at(c, "include");
    struct str rest = value == NULL ? (struct str){ "", 0 } : first_word(value);
    uint64_t gpus = 0, nodes = 0;
    bool numbered = rest.n > 0;
    while (rest.n > 0) {
        struct str slots;
        str_cut(str_cut(rest, '@', &rest), ':', &slots);
        numbered = numbered && slots.n > 0;
        nodes++;
        while (slots.n > 0)
            gpus += str_cut(slots, ',', &slots).n > 0;
    }
    if (numbered && gpus % nodes == 0) {
        set_count(c, "include", KEY_GPUS_PER_NODE, gpus / nodes);
        set_count(c, "include", KEY_GPUS, gpus);
    } else if (value != NULL) {
        config_note(c, "--include does not number the GPUs of each node: give "
                       "--gpus");
        c->s->nodes = (uint32_t)nodes;
    }
}

/* ---- where no flag counts them ---- */

static bool names_file(const struct json *value)
{
    return value != NULL && value->kind == JSON_STRING
           && memchr(value->text.p, '$', value->text.n) == NULL;
}

/* One node, and of it all GPUs, or those that something numbers. */
static void one_node(struct config *c, const char *why, uint64_t gpus)
{
    char text[UNIT_TEXT_MAX];
    if (gpus > 0) {
        str_format(text, sizeof(text), "%" PRIu64, gpus);
        config_set(c, c->root, KEY_GPUS, text);
        config_note(c, "%s it is %" PRIu64 " GPU%s of a node (--gpus)", why,
                    gpus, unit_s((double)gpus));
        return;
    }
    c->s->nodes = 1;
    c->s->one_node = true;
    config_note(c, "%s it is all GPUs of a node", why);
}

/* The same, unless the file that the line names says how many. */
static void maybe_one_node(struct config *c)
{
    c->s->nodes = 1;
    c->s->one_node = true;
}

/* "0,1,2": so many; 0 where it is another word. */
static uint64_t numbered(struct str list)
{
    uint64_t n = 0;
    while (list.n > 0) {
        uint64_t id = 0;
        const struct str one = str_cut(list, ',', &list);
        if (one.n == 0)
            continue;
        if (!(one.n == 1 && one.p[0] == '0')
            && unit_parse_count(one, &id) != UNIT_OK)
            return 0;
        n++;
    }
    return n;
}

/* "localhost:0": one GPU fewer, where that is the only host. */
static void read_exclude(struct config *c)
{
    const struct json *value = config_at(c, "exclude");
    struct str slots;
    if (value == NULL)
        return;
    const struct str word = first_word(value);
    str_cut(word, ':', &slots);
    const uint64_t out =
        memchr(word.p, '@', word.n) == NULL ? numbered(slots) : 0;
    one_node(c,
             out > 0 ? "without --num_gpus, but for those of --exclude,"
                     : "--exclude has no GPUs of one node alone: without it",
             0);
    c->s->left_out = (uint32_t)out;
}

/* runner.py and launch.py of accelerate: what CUDA sees where nothing says how
 * many; accelerate starts them all too, not one (torch.cuda.device_count). */
static void read_unsaid(struct config *c)
{
    const struct json *of = config_at(c, CONFIG_LAUNCHER);
    const struct json *seen = config_at(c, CONFIG_VISIBLE);
    const struct json *ids = config_at(c, "gpu_ids");
    const uint64_t visible = seen != NULL ? (uint64_t)seen->number : 0;
    const bool flags = config_is_true(c, "multi_gpu")
                       || config_is_true(c, "use_fsdp")
                       || config_is_true(c, "use_deepspeed")
                       || config_is_true(c, "use_megatron_lm") || ids != NULL;
    const bool ds = of != NULL && str_is(of->text, "deepspeed");
    const bool acc = (of != NULL && str_is(of->text, "accelerate")) || flags;
    if (ds && config_at(c, "exclude") != NULL)
        read_exclude(c);
    else if (ds)
        one_node(c,
                 visible > 0 ? "without --num_gpus, by CUDA_VISIBLE_DEVICES,"
                             : "without --num_gpus",
                 visible);
    else if (acc && names_file(config_at(c, "config_file")))
        maybe_one_node(c);
    else if (acc && ids != NULL)
        one_node(c, "without --num_processes, by --gpu_ids,",
                 numbered(first_word(ids)));
    else if (acc)
        one_node(c,
                 visible > 0
                     ? "without --num_processes, by CUDA_VISIBLE_DEVICES,"
                     : "without --num_processes",
                 visible);
    else if (of != NULL)
        config_note(c, "without --nproc_per_node it is one process a node");
}

/* A count that the line gives, if only the shell knows it. */
static bool says_count(struct config *c)
{
    static const char *const flags[] = { "nproc_per_node", "nnodes",
                                         "num_gpus",       "num_nodes",
                                         "num_processes",  "num_machines",
                                         "include" };
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        if (config_at(c, flags[i]) != NULL)
            return true;
    return false;
}

/* runner.py takes one of them alone. */
static void check_filters(struct config *c)
{
    const struct json *in = config_at(c, "include");
    const struct json *out = config_at(c, "exclude");
    const struct json *of = config_at(c, CONFIG_LAUNCHER);
    if (of == NULL || !str_is(of->text, "deepspeed"))
        return;
    if (in != NULL && out != NULL)
        diag_hint(config_bad(c, out, MEMPLAN_E_CONFLICT,
                             "--include and --exclude at once"),
                  "use one of them");
    else if ((in != NULL || out != NULL)
             && (config_at(c, "num_nodes") != NULL
                 || config_at(c, "num_gpus") != NULL))
        diag_hint(config_bad(c, in != NULL ? in : out, MEMPLAN_E_CONFLICT,
                             "--num_nodes or --num_gpus beside --%s",
                             in != NULL ? "include" : "exclude"),
                  "DeepSpeed takes one or the other");
}

static uint32_t count_at(struct config *c, const char *flag)
{
    uint64_t n = 0;
    const struct json *value = config_at(c, flag);
    return value != NULL && is_number(value, &n) ? (uint32_t)n : 0;
}

/* Which hosts DeepSpeed starts on is said in another file, but where the line
 * has both numbers. */
static void name_hosts(struct config *c, size_t notes)
{
    const struct json *file = config_at(c, "hostfile");
    const struct json *in = config_at(c, "include");
    const struct json *some = in != NULL ? in : config_at(c, "exclude");
    struct setup_hosts *of = &c->s->hosts;
    *of = (struct setup_hosts){ .nodes = count_at(c, "num_nodes"),
                                .gpus = count_at(c, "num_gpus") };
    if (file == NULL || (of->nodes > 0 && of->gpus > 0))
        return;
    if (!names_file(file)) {
        config_note(c, "which file --hostfile is the line does not say: add "
                       "--hostfile FILE");
        return;
    }
    config_keep_name(c, of->file, sizeof(of->file), file, first_word(file));
    if (some != NULL)
        config_keep_name(c, of->some, sizeof(of->some), some, first_word(some));
    of->excludes = in == NULL;
    of->note_first = notes;
    of->note_end = c->s->notes;
}

void config_world(struct config *c)
{
    const size_t notes = c->s->notes;
    check_filters(c);
    read_launcher(c, &torchrun);
    if (config_at(c, "devices") == NULL) /* NeMo's num_nodes */
        read_launcher(c, &deepspeed);
    read_accelerate(c);
    read_include(c);
    c->s->left_out = 0;
    if (!says_count(c) && str_is(c->root->key, CONFIG_DASHES))
        read_unsaid(c);
    name_hosts(c, notes);
}

/* accelerate's --mixed_precision; the file that it names has its own. */
static void mixed_precision(struct config *c, enum config_holder h)
{
    const struct json *mixed = config_at(c, "mixed_precision");
    const struct str word =
        mixed != NULL ? first_word(mixed) : (struct str){ "", 0 };
    if (mixed == NULL)
        return;
    if (str_is(word, "bf16") || str_is(word, "fp16"))
        config_hf_precision(c, h, str_is(word, "bf16") ? "bf16" : "fp16");
    else if (str_is(word, "no"))
        config_hf_precision(c, h, "fp32");
    else if (str_is(word, "fp8"))
        config_set(c, mixed, KEY_PRECISION, "fp8-mixed");
    else
        diag_hint(config_bad(c, mixed, MEMPLAN_E_UNKNOWN,
                             "unknown '--mixed-precision'"),
                  "write no, fp16, bf16 or fp8");
}

/* The file that the line names, which may lie elsewhere. */
static void goes_on(struct config *c)
{
    const struct json *file = config_at(c, "config_file");
    const struct json *ds = config_deepspeed_file(c);
    if (names_file(file)) {
        config_goes_on(c, file, "accelerate");
        c->s->pending_keeps = true; /* flags go before it */
    }
    if (file == NULL && names_file(ds))
        config_goes_on(c, ds, "deepspeed");
    if (file != NULL && !names_file(file))
        config_note(c, "which file --config_file is the line does not say: "
                       "add --accelerate FILE");
    if (file == NULL && ds != NULL && !names_file(ds))
        config_note(c, "which file DeepSpeed's is the line does not say: add "
                       "--deepspeed FILE");
}

/* Flags of the program itself are another dialect's. */
static void name_dialect(struct config *c)
{
    if (config_at(c, "per_device_train_batch_size") != NULL)
        config_note(c, "its program has TrainingArguments: --training-args "
                       "reads them too");
    else if (config_at(c, "tensor_model_parallel_size") != NULL
             || config_at(c, "micro_batch_size") != NULL)
        config_note(c, "its program is Megatron-LM's: --megatron-args reads "
                       "its flags too");
}

static void together(struct config *c)
{
    enum config_holder h = HOLD_DDP;
    config_world(c);
    (void)config_launched(c, &h);
    config_hf_wraps(c);
    mixed_precision(c, h);
    goes_on(c);
    name_dialect(c);
}

/* ---- and back ---- */

static const char meets[] =
    " --rdzv_backend c10d --rdzv_endpoint $HEAD_NODE:29500";

static void say(struct emit *e, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;
static void say(struct emit *e, const char *format, ...)
{
    va_list args;
    const size_t n = strlen(e->head);
    va_start(args, format);
    str_vformat(e->head + n, sizeof(e->head) - n, format, args);
    va_end(args);
}

static void put_world(struct emit *e, const char *program, uint64_t nodes,
                      uint64_t each)
{
    say(e, "%s --nnodes %" PRIu64 " --nproc_per_node %" PRIu64 "%s", program,
        nodes, each, nodes > 1 ? meets : "");
}

/* A recipe, and what its configuration calls the setup's numbers. [torchtune
 * 0.6, recipes/configs/llama3] */
static void put_tune(struct emit *e, const struct run *r, uint64_t each)
{
    const bool one = r->gpus == 1;
    if (one)
        say(e, "tune run");
    else
        put_world(e, "tune run", r->gpus / each, each);
    say(e, " %s_finetune_%s \\\n    --config config.yaml",
        r->lora_rank > 0 ? "lora" : "full",
        one ? "single_device" : "distributed");
    say(e,
        " batch_size=%" PRIu64 " gradient_accumulation_steps=%" PRIu64
        " \\\n    tokenizer.max_seq_len=%" PRIu64
        " enable_activation_checkpointing=%s",
        r->micro_batch, r->grad_accum, r->seq_len,
        r->recompute == RECOMP_FULL ? "True" : "False");
    if (r->offload_activations == OFFLOAD_CPU)
        say(e, " enable_activation_offloading=True");
    if (r->tp > 1)
        say(e, " tensor_parallel_dim=%" PRIu64, r->tp);
    if (r->cp > 1) /* since 0.7 */
        say(e, " context_parallel_dim=%" PRIu64, r->cp);
    if (r->lora_rank > 0)
        say(e, " model.lora_rank=%" PRIu64, r->lora_rank);
}

/* What is started otherwise, and how. */
static const char *other_launcher(const struct run *r)
{
    if (run_spreads(r))
        return "one process needs no launcher: python train.py, with "
               "device_map=\"auto\"";
    if (r->framework == FW_NEMO)
        return "NeMo's recipes take trainer.devices, trainer.num_nodes and "
               "the layout as arguments; Megatron-LM's line is --framework "
               "megatron";
    if (r->framework == FW_MEGATRON_DEEPSPEED)
        return "its script has Megatron-LM's flags and DeepSpeed's file: see "
               "--emit megatron with --framework megatron";
    return NULL;
}

/* Scripts of models without TrainingArguments, of weights in 16 bits under DDP
 * and of Ulysses without DeepSpeed have the rest in their own words. */
static bool has_arguments(const struct emit *e, const struct run *r)
{
    return !spec_is_convnet(e->spec) && e->spec->family != FAM_DIT
           && e->spec->family != FAM_DIT_DIFFUSERS
           && (r->engine != ENGINE_DDP
               || (r->precision != PREC_BF16 && r->precision != PREC_FP16))
           && (r->engine == ENGINE_DEEPSPEED || r->cp == 1);
}

/* Of how the ranks are split TrainingArguments say nothing: Accelerate's file
 * does under FSDP 2, else the script. */
static void refuse_layout(struct emit *e, const struct run *r)
{
    if (r->framework != FW_HF && r->framework != FW_FSDP
        && r->framework != FW_DEEPSPEED)
        return;
    const char *file =
        "Accelerate's file says it, and starts it: --emit accelerate";
    if (r->tp > 1)
        emit_refuse(e, KEY_TP, "%s",
                    r->engine == ENGINE_FSDP2
                        ? file
                        : "the line is that of --tp 1: from_pretrained's "
                          "tp_plan=\"auto\" says it, in the script");
    if (r->engine == ENGINE_FSDP2 && r->given[KEY_SHARD_DEGREE]
        && r->shard < r->dp)
        emit_refuse(e, KEY_SHARD_DEGREE, "%s", file);
}

/* Programs that take the rest from a file, as --emit writes it. */
static const char *program_of(const struct emit *e, const struct run *r)
{
    return r->framework == FW_TORCHTITAN
               ? "-m torchtitan.train --job.config_file torchtitan.toml"
           : has_arguments(e, r) ? "train.py training_args.json"
                                 : "train.py";
}

static void apart(struct emit *e, const struct run *r)
{
    const char *other = other_launcher(r);
    if (other != NULL)
        emit_refuse(e, run_spreads(r) ? KEY_SCHEDULE : KEY_FRAMEWORK, "%s",
                    other);
    refuse_layout(e, r);
    const uint64_t each = emit_node(e, r);
    if (r->framework == FW_TORCHTUNE) {
        put_tune(e, r, each);
        return;
    }
    put_world(e, "torchrun", r->gpus / each, each);
    say(e, " \\\n    %s", program_of(e, r));
}

const struct config_table config_torchrun = {
    rows,        sizeof(rows) / sizeof(rows[0]),
    false,       true,
    NULL,        together,
    apart,       NULL,
    BESIDE_REST,
};
