/*
 * Owns the option table and the reading of argv. getopt_long does the parsing;
 * what it does not do is done around it: abbreviations are refused, so that a
 * script still means the same when an option is added, and a name that is
 * none is answered with the one that is near.
 */
#include "opt.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const struct opt_row opt_own[] = {
    { "help", 'h', OPT_ID_HELP, OPT_PART_COMMON, OPT_VALUE_NONE, false,
      MEMPLAN_TYPE_BOOL, "", "", "", "General", "show help and exit", "" },
    { "version", 'V', OPT_ID_VERSION, OPT_PART_COMMON, OPT_VALUE_NONE, false,
      MEMPLAN_TYPE_BOOL, "", "", "", "General", "show the version and exit",
      "" },
    { "quiet", 'q', OPT_ID_QUIET, OPT_PART_COMMON, OPT_VALUE_NONE, false,
      MEMPLAN_TYPE_BOOL, "", "", "", "General", "no notes, only errors", "" },
    { "color", 0, OPT_ID_COLOR, OPT_PART_COMMON, OPT_VALUE_NEEDED, false,
      MEMPLAN_TYPE_CHOICE, "", "auto always never", "auto", "General",
      "colours", "WHEN" },
    { "json", 0, OPT_ID_JSON, OPT_PART_FORMAT, OPT_VALUE_NONE, false,
      MEMPLAN_TYPE_BOOL, "", "", "", "Output", "the same as --format json",
      "" },
    { "format", 0, OPT_ID_FORMAT, OPT_PART_FORMAT, OPT_VALUE_NEEDED, false,
      MEMPLAN_TYPE_CHOICE, "", "table json csv markdown svg", "table", "Output",
      "what to write (svg: only trace)", "FORMAT" },
    { "setup", 0, OPT_ID_SETUP, OPT_PART_SETUP, OPT_VALUE_NEEDED, false,
      MEMPLAN_TYPE_NAME, "", "", "", "Input",
      "read setup keys from a JSON file; options override it", "FILE" },
    { "deepspeed", 0, OPT_ID_CONFIG, OPT_PART_SETUP, OPT_VALUE_NEEDED, false,
      MEMPLAN_TYPE_NAME, "deepspeed", "", "", "Input",
      "read DeepSpeed's configuration, a ds_config.json", "FILE" },
    { "training-args", 0, OPT_ID_CONFIG, OPT_PART_SETUP, OPT_VALUE_NEEDED,
      false, MEMPLAN_TYPE_NAME, "training-args", "", "", "Input",
      "read Hugging Face's TrainingArguments: JSON, YAML, a script", "FILE" },
    { "accelerate", 0, OPT_ID_CONFIG, OPT_PART_SETUP, OPT_VALUE_NEEDED, false,
      MEMPLAN_TYPE_NAME, "accelerate", "", "", "Input",
      "read Hugging Face Accelerate's configuration, a YAML file", "FILE" },
    { "megatron-args", 0, OPT_ID_CONFIG, OPT_PART_SETUP, OPT_VALUE_NEEDED,
      false, MEMPLAN_TYPE_NAME, "megatron-args", "", "", "Input",
      "read Megatron-LM's arguments from a launch script or YAML", "FILE" },
    { "torchtitan", 0, OPT_ID_CONFIG, OPT_PART_SETUP, OPT_VALUE_NEEDED, false,
      MEMPLAN_TYPE_NAME, "torchtitan", "", "", "Input",
      "read torchtitan's job configuration, a TOML file", "FILE" },
    { "torchrun", 0, OPT_ID_CONFIG, OPT_PART_SETUP, OPT_VALUE_NEEDED, false,
      MEMPLAN_TYPE_NAME, "torchrun", "", "", "Input",
      "read GPUs and nodes from a line of torchrun, deepspeed, accelerate",
      "FILE" },
    { "peft", 0, OPT_ID_CONFIG, OPT_PART_SETUP, OPT_VALUE_NEEDED, false,
      MEMPLAN_TYPE_NAME, "peft", "", "", "Input",
      "read PEFT's adapter configuration, an adapter_config.json", "FILE" },
    { "hostfile", 0, OPT_ID_CONFIG, OPT_PART_SETUP, OPT_VALUE_NEEDED, false,
      MEMPLAN_TYPE_NAME, "hostfile", "", "", "Input",
      "read DeepSpeed's hostfile: hosts and their GPUs", "FILE" },
    { "calibration", 0, OPT_ID_CALIBRATION, OPT_PART_CALIBRATION,
      OPT_VALUE_NEEDED, false, MEMPLAN_TYPE_NAME, "", "", "", "Input",
      "predict times with constants that 'memplan calibrate' fitted", "FILE" },
    { "prices", 0, OPT_ID_PRICES, OPT_PART_SETUP, OPT_VALUE_NEEDED, false,
      MEMPLAN_TYPE_NAME, "", "", "", "Input",
      "read US dollars per GPU-hour by GPU from a JSON file", "FILE" },
    { "every-gpu", 0, OPT_ID_EVERY_GPU, OPT_PART_COMPUTE, OPT_VALUE_NONE, false,
      MEMPLAN_TYPE_BOOL, "", "", "", "Output",
      "a line for each GPU of the catalogue: time, cost, energy", "" },
    { "check", 0, OPT_ID_CHECK, OPT_PART_CHECK, OPT_VALUE_NONE, false,
      MEMPLAN_TYPE_BOOL, "", "", "", "Output",
      "exit with status 1 when it does not fit", "" },
    { "find", 0, OPT_ID_FIND, OPT_PART_CHECK, OPT_VALUE_NEEDED, false,
      MEMPLAN_TYPE_CHOICE, "", "micro_batch seq_len gpus layers params", "",
      "Output", "the extreme value that still fits; status 1 when none does",
      "KEY" },
    { "emit", 0, OPT_ID_EMIT, OPT_PART_CHECK, OPT_VALUE_NEEDED, false,
      MEMPLAN_TYPE_CHOICE, "",
      "deepspeed torchtitan megatron accelerate torchrun training-args "
      "megatron-args peft",
      "", "Output", "write the setup as that program's launch file",
      "PROGRAM" },
    { "cases", 0, OPT_ID_CASES, OPT_PART_ASSERT, OPT_VALUE_NEEDED, false,
      MEMPLAN_TYPE_NAME, "", "", "", "Input",
      "read models, setups and assertions from a JSON file", "FILE" },
    { "step", 0, OPT_ID_STEP, OPT_PART_TRACE, OPT_VALUE_NEEDED, false,
      MEMPLAN_TYPE_CHOICE, "", "later first", "later", "Output",
      "which step (first: makes the optimizer's states)", "STEP" },
    { "as", 0, OPT_ID_AS, OPT_PART_MODEL, OPT_VALUE_NEEDED, false,
      MEMPLAN_TYPE_NAME, "", "", "", "Input",
      "read MODEL's file as if it said this model_type", "TYPE" },
    { "part", 0, OPT_ID_PART, OPT_PART_MODEL, OPT_VALUE_NEEDED, false,
      MEMPLAN_TYPE_CHOICE, "", "text vision all", "", "Input",
      "which part of MODEL: of a file with text_config and vision_config",
      "PART" },
    { "import", 0, OPT_ID_IMPORT, OPT_PART_MODELS, OPT_VALUE_NONE, false,
      MEMPLAN_TYPE_BOOL, "", "", "", "Output",
      "how MODEL was understood: read, filled in, ignored", "" },
    { "by", 0, OPT_ID_BY, OPT_PART_SCORE, OPT_VALUE_NEEDED, false,
      MEMPLAN_TYPE_CHOICE, "",
      "group metric zero tp pp vpp cp ep recompute lora base_dtype precision "
      "optimizer offload_optimizer offload_params offload_activations "
      "framework",
      "group", "Output", "what to group the rows by", "KEY" },
    { "out", 0, OPT_ID_OUT, OPT_PART_CALIBRATE, OPT_VALUE_NEEDED, false,
      MEMPLAN_TYPE_NAME, "", "", "", "Output",
      "write the calibration to this file, for --calibration", "FILE" },
    { "limit-median", 0, OPT_ID_LIMIT_MEDIAN, OPT_PART_SCORE, OPT_VALUE_NEEDED,
      false, MEMPLAN_TYPE_REAL, "", "", "", "Output",
      "exit with status 1 when the overall median error is above this", "X" },
};

enum { OPT_OWN_COUNT = sizeof(opt_own) / sizeof(opt_own[0]) };

/* What people write out of habit from elsewhere, and what it is called here:
 * names too different for the distance to find. What bare() takes away is left
 * out of them. */
static const struct {
    const char *habit;
    const char *name; /* and after a blank the value, where there is one */
} opt_habits[] = {
    { "accelerator", "gpu" },
    { "accumulate-grad-batches", "grad-accum" },
    { "activation-checkpointing", "recompute full" },
    { "activation-recomputation", "recompute full" },
    { "amp", "precision bf16-amp" },
    { "attn", "attention" },
    { "attn-implementation", "attention" },
    { "batch", "micro-batch" },
    { "bf16", "precision bf16-amp" },
    { "block", "seq-len" },
    { "bs", "micro-batch" },
    { "checkpoint-activations", "recompute full" },
    { "context", "seq-len" },
    { "context-length", "seq-len" },
    { "context-parallel", "cp" },
    { "cost", "price" },
    { "cpu-offload", "offload-optimizer cpu" },
    { "csv", "format csv" },
    { "data-parallel", "dp" },
    { "ddp", "engine ddp" },
    { "deadline", "days" },
    { "device", "gpu" },
    { "devices", "gpus" },
    { "dtype", "precision" },
    { "expert-model-parallel", "ep" },
    { "expert-parallel", "ep" },
    { "expert-tensor-parallel", "etp" },
    { "flash", "attention flash" },
    { "flash-attention", "attention flash" },
    { "flash-attn", "attention flash" },
    { "flops", "peak-flops" },
    { "fp16", "precision fp16-amp" },
    { "fp32", "precision fp32" },
    { "fp8", "precision fp8-mixed" },
    { "fsdp", "framework fsdp" },
    { "gas", "grad-accum" },
    { "gbs", "global-batch" },
    { "gradient-accumulation", "grad-accum" },
    { "gradient-checkpointing", "recompute full" },
    { "hardware", "gpu" },
    { "length", "seq-len" },
    { "load-in-4bit", "base-dtype nf4" },
    { "load-in-8bit", "base-dtype int8" },
    { "lora", "lora-rank 16" },
    { "lora-r", "lora-rank" },
    { "lora-target-modules", "lora-targets" },
    { "markdown", "format markdown" },
    { "mbs", "micro-batch" },
    { "md", "format markdown" },
    { "megatron", "framework megatron" },
    { "memory", "gpu-memory" },
    { "micro", "micro-batch" }, /* and microbatch-group... begins so */
    { "micro-bs", "micro-batch" },
    { "mixed-precision", "precision" },
    { "model-length", "seq-len" },
    { "model-parallel", "tp" },
    { "nproc-per-node", "gpus-per-node" },
    { "offload", "offload-optimizer cpu" },
    { "optim", "optimizer" },
    { "parameters", "params" },
    { "per-device-batch", "micro-batch" },
    { "per-device-train-batch", "micro-batch" },
    { "pipeline", "pp" },
    { "pipeline-model-parallel", "pp" },
    { "pipeline-parallel", "pp" },
    { "position-embeddings", "seq-len" },
    { "processes", "gpus" },
    { "qlora", "base-dtype nf4 --lora-rank 16" },
    { "recompute-activations", "recompute selective" },
    { "seq", "seq-len" },
    { "seq-length", "seq-len" },
    { "sequence-length", "seq-len" },
    { "sharding", "zero" },
    { "sharding-strategy", "zero" },
    { "stage", "zero" },
    { "svg", "format svg" },
    { "target-modules", "lora-targets" },
    { "tensor-model-parallel", "tp" },
    { "tensor-parallel", "tp" },
    { "tflops", "peak-flops" },
    { "torch-compile", "compile" },
    { "torch-dtype", "precision" },
    { "train-batch", "global-batch" },
    { "train-micro-batch-size-per-gpu", "micro-batch" },
    { "train-tokens", "tokens" },
    { "use-distributed-optimizer", "zero 1" },
    { "use-flash-attn", "attention flash" },
    { "virtual-pipeline-model-parallel", "vpp" },
    { "vram", "gpu-memory" },
    { "world", "gpus" },
    { "zero-optimization", "zero" },
    { "zero-stage", "zero" },
};

/* The same for what no option does. */
static const char operand_advice[] =
    "the model stands by itself: memplan llama-7b --gpus 8";
static const char output_advice[] =
    "results go to standard output: add '> FILE'";
static const char shape_advice[] =
    "shapes stand in the model's config.json, not among the options";
static const char node_advice[] =
    "--gpus counts those of all nodes, --gpus-per-node those of one";
static const char explain_advice[] =
    "'memplan explain MODEL' shows where each number comes from";
static const struct {
    const char *habit;
    const char *advice;
} opt_advice[] = {
    { "attention-heads", shape_advice },
    { "config", operand_advice },
    { "debug", explain_advice },
    { "file", output_advice },
    { "heads", shape_advice },
    { "hidden-size", shape_advice },
    { "layers", shape_advice },
    { "lora-alpha", "it takes no memory: leave it out" },
    { "model", operand_advice },
    { "model-name", operand_advice },
    { "model-name-or-path", operand_advice },
    { "model-path", operand_advice },
    { "nnodes", node_advice },
    { "nodes", node_advice },
    { "output", output_advice },
    { "verbose", explain_advice },
    { "vocab-size", shape_advice },
    { "yaml", "--json is what scripts read" },
};

static struct opt_row *opt_add(struct opt_table *table)
{
    if (table->count == OPT_ROWS_MAX)
        return NULL;
    struct opt_row *row = &table->row[table->count++];
    *row = (struct opt_row){ .key = "",
                             .choices = "",
                             .default_text = "",
                             .group = "",
                             .doc = "",
                             .placeholder = "" };
    return row;
}

static bool opt_add_field(struct opt_table *table, const memplan_field *field)
{
    struct opt_row *row = opt_add(table);
    if (!row)
        return false;
    text_kebab(row->name, sizeof(row->name), field->key);
    row->id = OPT_ID_KEY;
    row->part = OPT_PART_SETUP;
    row->type = field->type;
    row->key = field->key;
    row->choices = field->choices;
    row->default_text = field->default_text;
    row->group = field->group;
    row->doc = field->doc;
    row->placeholder = field->placeholder;
    row->value = OPT_VALUE_NEEDED;
    if (field->type != MEMPLAN_TYPE_BOOL)
        return true;

    row->value = OPT_VALUE_OPTIONAL;
    struct opt_row *no = opt_add(table);
    if (!no)
        return false;
    *no = *row;
    no->value = OPT_VALUE_NONE;
    no->negative = true;
    memmove(no->name + 3, no->name, sizeof(no->name) - 3);
    memcpy(no->name, "no-", 3);
    no->name[sizeof(no->name) - 1] = '\0';
    return true;
}

static bool opt_add_assertion(struct opt_table *table,
                              const memplan_assertion *assertion)
{
    struct opt_row *row = opt_add(table);
    if (!row)
        return false;
    text_kebab(row->name, sizeof(row->name), assertion->name);
    row->id = OPT_ID_ASSERTION;
    row->part = OPT_PART_ASSERT;
    row->type = assertion->type;
    row->key = assertion->name;
    row->group = "Assertions";
    row->doc = assertion->doc;
    row->placeholder = assertion->placeholder;
    row->value = OPT_VALUE_NEEDED;
    return true;
}

bool opt_table_init(struct opt_table *table)
{
    table->count = 0;
    for (size_t i = 0; i < OPT_OWN_COUNT; i++) {
        struct opt_row *row = opt_add(table);
        if (!row)
            return false;
        *row = opt_own[i];
    }
    const memplan_assertion *assertion;
    for (size_t i = 0; (assertion = memplan_check_assertion(i)); i++) {
        if (!opt_add_assertion(table, assertion))
            return false;
    }
    const memplan_field *field;
    for (size_t i = 0; (field = memplan_setup_field(i)); i++) {
        if (!opt_add_field(table, field))
            return false;
    }
    return true;
}

bool opt_is_file(const struct opt_row *row)
{
    return row->id == OPT_ID_SETUP || row->id == OPT_ID_CONFIG
           || row->id == OPT_ID_PRICES || row->id == OPT_ID_CASES
           || row->id == OPT_ID_CALIBRATION;
}

/* What --scaling-law is called where laws are all that is asked about. */
static const char law_name[] = "law", law_row[] = "scaling-law";

const struct opt_row *opt_find(const struct opt_table *table, const char *name,
                               size_t len)
{
    if (len == strlen(law_name) && memcmp(name, law_name, len) == 0) {
        name = law_row;
        len = strlen(law_row);
    }
    for (size_t i = 0; i < table->count; i++) {
        const struct opt_row *row = &table->row[i];
        if (strlen(row->name) == len && memcmp(row->name, name, len) == 0)
            return row;
    }
    return NULL;
}

/* The one option of which the name is an abbreviation. */
static const struct opt_row *opt_begun_by(const struct opt_table *table,
                                          const char *name)
{
    const struct opt_row *found = NULL;
    size_t n = strlen(name);
    for (size_t i = 0; i < table->count && n > 0; i++) {
        if (strncmp(table->row[i].name, name, n) != 0)
            continue;
        if (found)
            return NULL;
        found = &table->row[i];
    }
    return found;
}

/* The name without what names elsewhere begin or end with, "num-gpus" and
 * "tensor-parallel-size"; false when there is nothing to take away. */
static bool bare(char *buf, size_t size, const char *name)
{
    static const char *const begins[] = { "use-", "num-", "n-", "max-" };
    static const char *const ends[] = { "-size", "-degree", "-steps", "-type",
                                        "-level" };
    size_t n = strlen(name);
    if (n >= size)
        return false;
    text_kebab(buf, size, name);
    for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++) {
        size_t k = strlen(begins[i]);
        if (n > k && memcmp(buf, begins[i], k) == 0) {
            memmove(buf, buf + k, n - k + 1);
            n -= k;
        }
    }
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        size_t k = strlen(ends[i]);
        if (n > k && memcmp(buf + n - k, ends[i], k) == 0) {
            n -= k;
            buf[n] = '\0';
        }
    }
    return strlen(name) != n;
}

/* "micro-batch" or "framework fsdp"; NULL when it is nobody's habit. */
static const char *habit_meant(const struct opt_table *table, const char *name)
{
    for (size_t i = 0; i < sizeof(opt_habits) / sizeof(opt_habits[0]); i++) {
        if (text_distance(name, opt_habits[i].habit) == 0)
            return opt_habits[i].name;
    }
    char less[OPT_NAME_MAX];
    if (!bare(less, sizeof(less), name))
        return NULL;
    const struct opt_row *row = opt_find(table, less, strlen(less));
    return row ? row->name : habit_meant(table, less);
}

const struct opt_row *opt_nearest(const struct opt_table *table,
                                  const char *name)
{
    const char *meant = habit_meant(table, name);
    if (meant)
        return opt_find(table, meant, strcspn(meant, " "));
    const struct opt_row *best = opt_begun_by(table, name);
    if (best)
        return best;
    unsigned least = 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct opt_row *row = &table->row[i];
        if (!text_near(name, row->name))
            continue;
        unsigned distance = text_distance(name, row->name);
        if (!best || distance < least) {
            best = row;
            least = distance;
        }
    }
    return best;
}

static const char *advice_on(const char *name)
{
    for (size_t i = 0; i < sizeof(opt_advice) / sizeof(opt_advice[0]); i++) {
        if (text_distance(name, opt_advice[i].habit) == 0)
            return opt_advice[i].advice;
    }
    char less[OPT_NAME_MAX];
    return bare(less, sizeof(less), name) ? advice_on(less) : NULL;
}

/* What to write instead of an option's name that is none. */
static void suggest(struct text *hint, const struct opt_table *table,
                    const char *name)
{
    const char *advice = advice_on(name);
    if (advice) {
        text_put(hint, advice);
        return;
    }
    const char *meant = habit_meant(table, name);
    const struct opt_row *row = meant ? NULL : opt_nearest(table, name);
    if (row)
        meant = row->name;
    if (meant)
        text_format(hint, "did you mean '--%s'?", meant);
}

/* ---- argv ---- */

/* getopt_long's numbers: a row's is beyond every letter. */
enum { OPT_CODE_OPERAND = 1, OPT_CODE_ROW = 256 };

struct opt_scan {
    const struct opt_table *table;
    struct option longs[OPT_ROWS_MAX + 2]; /* a short name, and the end */
    char shorts[2 * OPT_OWN_COUNT + 3];
};

static void opt_scan_init(struct opt_scan *scan, const struct opt_table *table)
{
    memset(scan, 0, sizeof(*scan));
    scan->table = table;
    /* '-': operands come in their place, whatever POSIXLY_CORRECT says;
     * ':': a missing value is told from an unknown option. */
    size_t n = 0;
    scan->shorts[n++] = '-';
    scan->shorts[n++] = ':';
    for (size_t i = 0; i < table->count; i++) {
        const struct opt_row *row = &table->row[i];
        if (strcmp(row->name, law_row) == 0)
            scan->longs[table->count] =
                (struct option){ law_name, required_argument, NULL,
                                 OPT_CODE_ROW + (int)i };
        scan->longs[i].name = row->name;
        scan->longs[i].has_arg = (int)row->value;
        scan->longs[i].val = OPT_CODE_ROW + (int)i;
        if (row->letter)
            scan->shorts[n++] = row->letter;
    }
}

_Static_assert(OPT_VALUE_NONE == no_argument
                   && OPT_VALUE_NEEDED == required_argument
                   && OPT_VALUE_OPTIONAL == optional_argument,
               "enum opt_value is getopt_long's has_arg");

static const struct opt_row *opt_of_code(const struct opt_table *table,
                                         int code)
{
    if (code >= OPT_CODE_ROW)
        return &table->row[code - OPT_CODE_ROW];
    for (size_t i = 0; i < table->count; i++) {
        if (table->row[i].letter && table->row[i].letter == code)
            return &table->row[i];
    }
    return NULL;
}

/* Says that arg, "--zer=3", names no option. */
static void opt_unknown(const struct opt_table *table, const char *arg,
                        struct text *error, struct text *hint)
{
    int len = (int)strcspn(arg, "=");
    text_format(error, "unknown option '%.*s'", len, arg);
    char name[OPT_NAME_MAX];
    size_t n = (size_t)len - 2;
    if (n >= sizeof(name))
        return;
    memcpy(name, arg + 2, n);
    name[n] = '\0';
    suggest(hint, table, name);
}

/* Says that arg, "-zero" or "-x", is no option of one letter. */
static void opt_unknown_letter(const struct opt_table *table, const char *arg,
                               int letter, struct text *error,
                               struct text *hint)
{
    char name[OPT_NAME_MAX] = "";
    size_t n = arg[0] == '-' ? strcspn(arg + 1, "=") : 0;
    if (n > 1 && n < sizeof(name)) {
        memcpy(name, arg + 1, n);
        name[n] = '\0';
        suggest(hint, table, name);
    }
    if (hint->n > 0) {
        text_format(error, "unknown option '-%s'", name);
        return;
    }
    text_format(error, "unknown option '-%c'", letter);
    text_put(hint, "options are written out, such as --gpus; of one letter "
                   "there are");
    for (size_t i = 0; i < table->count; i++) {
        if (table->row[i].letter)
            text_format(hint, " -%c", table->row[i].letter);
    }
}

/* A word that is an option by its exact name. */
static bool opt_is_one(const struct opt_table *table, const char *arg)
{
    return strncmp(arg, "--", 2) == 0
           && opt_find(table, arg + 2, strcspn(arg + 2, "="));
}

/* The value of an option that has none: what follows is an option. */
static bool opt_value_missing(const struct opt_scan *scan,
                              const struct opt_given *given, const char *before)
{
    return given->row->value == OPT_VALUE_NEEDED && given->value == before
           && opt_is_one(scan->table, given->value);
}

/* "--sequence-parallel true": getopt_long takes an optional value after '='
 * only; nobody means a model of that name. */
static bool opt_is_truth_after(const struct opt_given *given, const char *next)
{
    static const char *const truths[] = { "true", "false", "yes",
                                          "no",   "on",    "off" };
    if (given->row->value != OPT_VALUE_OPTIONAL || given->value)
        return false;
    for (size_t i = 0; i < sizeof(truths) / sizeof(truths[0]); i++)
        if (strcmp(next, truths[i]) == 0)
            return true;
    return false;
}

/* What getopt_long refused. */
static bool opt_refused(const struct opt_scan *scan, int code, const char *arg,
                        struct text *e, struct text *hint)
{
    const struct opt_row *row = opt_of_code(scan->table, optopt);
    if (code == ':' && row)
        text_format(e, "option '--%s' needs a value", row->name);
    else if (row && optopt >= OPT_CODE_ROW)
        text_format(e, "option '--%s' takes no value", row->name);
    else
        opt_unknown_letter(scan->table, arg, optopt, e, hint);
    return false;
}

static bool opt_collect(struct opt_line *line, struct opt_scan *scan, int argc,
                        char **argv, opt_go_on_fn *go_on, struct text *error,
                        struct text *hint)
{
    optind = 0; /* starts getopt_long anew */
    opterr = 0;
    for (;;) {
        int at = optind ? optind : 1;
        const char *arg = at < argc ? argv[at] : "";
        if (strncmp(arg, "--", 2) == 0 && arg[2]
            && !opt_is_one(scan->table, arg)) {
            opt_unknown(scan->table, arg, error, hint);
            return false;
        }
        int code = getopt_long(argc, argv, scan->shorts, scan->longs, NULL);
        if (code == -1)
            break;
        if (code == OPT_CODE_OPERAND) {
            line->operand[line->operand_count++] = optarg;
            line->operand_is_word = true;
            if (line->operand_count == 1 && !go_on(optarg))
                return true;
            continue;
        }
        if (code == '?' || code == ':')
            return opt_refused(scan, code, arg, error, hint);
        struct opt_given *given = &line->given[line->given_count++];
        *given = (struct opt_given){ opt_of_code(scan->table, code), optarg };
        if (optind < argc && opt_is_truth_after(given, argv[optind]))
            given->value = argv[optind++];
        if (opt_value_missing(scan, given, argv[optind - 1])) {
            text_format(error, "option '--%s' needs a value", given->row->name);
            return false;
        }
    }
    while (optind < argc)
        line->operand[line->operand_count++] = argv[optind++];
    return true;
}

/* At most how many options there are: a word of letters may hold many. */
static size_t opt_most(int argc, char **argv)
{
    size_t most = (size_t)argc + 1;
    for (int i = 1; i < argc; i++)
        most += argv[i][0] == '-' && argv[i][1] != '-' ? strlen(argv[i]) : 0;
    return most;
}

bool opt_parse(struct opt_line *line, const struct opt_table *table, int argc,
               char **argv, opt_go_on_fn *go_on, struct text *error,
               struct text *hint)
{
    size_t most = opt_most(argc, argv);
    *line = (struct opt_line){ 0 };
    line->given = calloc(most, sizeof(*line->given));
    line->operand = calloc(most, sizeof(*line->operand));
    if (!line->given || !line->operand)
        return false;
    struct opt_scan scan;
    opt_scan_init(&scan, table);
    return opt_collect(line, &scan, argc, argv, go_on, error, hint);
}

void opt_line_release(struct opt_line *line)
{
    free(line->given);
    free(line->operand);
    *line = (struct opt_line){ 0 };
}
