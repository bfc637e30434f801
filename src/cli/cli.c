/*
 * Owns an invocation from argv to exit status: which command, which options
 * it takes, how output may look, and that nothing reaches standard output
 * unless the command succeeded.
 */
#include "cli.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    TAKES_REPORT = OPT_PART_COMMON | OPT_PART_FORMAT | OPT_PART_SETUP
                   | OPT_PART_MODEL | OPT_PART_CALIBRATION,
    TAKES_LIST = OPT_PART_COMMON | OPT_PART_FORMAT
};

static const struct command commands[] = {
    { .name = "estimate",
      .synopsis = "MODEL [options]",
      .summary = "memory per GPU, whether it fits, time and cost (default)",
      .about = "MODEL is a path, '-' for standard input, or a name from the "
               "catalogue (memplan models). A Hugging Face config.json is "
               "taken as it is; a file wins over a name. The command's own "
               "name may be left out.",
      .examples = "llama-7b --zero 3 --gpus 64\tZeRO-3 on 64 GPUs\n"
                  "config.json --gpu h100-80gb --gpus 8 --framework fsdp\t"
                  "a config.json of yours\n"
                  "llama-7b --lora-rank 16 --gpu rtx-4090 --check\t"
                  "status 1 when it does not fit\n"
                  "llama-7b --zero 3 --gpus 8 --find seq_len\t"
                  "the longest sequence that fits\n"
                  "llama-7b --tp 2 --pp 4 --gpus 64 --json\t"
                  "for scripts\n",
      .parts = TAKES_REPORT | OPT_PART_CHECK,
      .operands_min = 1,
      .operands_max = 1,
      .run = cmd_estimate },
    { .name = "compute",
      .synopsis = "[MODEL] [options]",
      .summary = "FLOPs, GPU-hours, days, cost, compute-optimal size",
      .about = "Without MODEL, --params, --tokens, --budget or --target-loss "
               "says how much there is to compute.",
      .examples = "llama-7b --tokens 1T --gpus 256\tdays and cost\n"
                  "--params 13B --tokens 260B --days 7 --mfu 0.4\t"
                  "GPUs for a deadline\n"
                  "llama-7b --tokens 1T --zero 3 --days 30 --every-gpu\t"
                  "what each GPU of the catalogue costs\n",
      .parts = TAKES_REPORT | OPT_PART_COMPUTE,
      .operands_min = 0,
      .operands_max = 1,
      .run = cmd_compute },
    { .name = "explain",
      .synopsis = "MODEL [options]",
      .summary = "every number of estimate: formula, numbers put in, source",
      .about = "MODEL and options are those of estimate.",
      .examples = "llama-7b --zero 3 --gpus 64\twhere each byte comes from\n",
      .parts = TAKES_REPORT,
      .operands_min = 1,
      .operands_max = 1,
      .run = cmd_explain },
    { .name = "trace",
      .synopsis = "MODEL [options]",
      .summary = "the step, allocation by allocation, of the fullest stage",
      .about = "MODEL and options are those of estimate. A table lists what is "
               "alive at the peak, --format csv every allocation and release "
               "in order, --json the same as trace events for Perfetto, "
               "--format svg a picture of them. --step first is the step that "
               "makes the optimizer's states.",
      .examples = "llama-7b --zero 3 --gpus 64\twhat is alive at the peak\n"
                  "gpt2 --json > step.json\topen it in ui.perfetto.dev\n"
                  "gpt2 --format svg > step.svg\topen it in a browser\n",
      .parts = TAKES_REPORT | OPT_PART_TRACE,
      .operands_min = 1,
      .operands_max = 1,
      .run = cmd_trace },
    { .name = "check",
      .synopsis = "MODEL [options] | --cases FILE",
      .summary = "assertions for CI: status 1 when one does not hold",
      .about = "Evaluates one estimate against the assertions given (that it "
               "fits, when none is), or every case of a file: "
               "{\"cases\": [{\"name\", \"model\", \"setup\": {...}, "
               "\"assert\": {\"max_memory\": \"70GiB\"}}]}. Paths in it are "
               "relative to it.",
      .examples = "llama-7b --zero 3 --gpus 64 --max-memory 70GiB\t"
                  "one case\n"
                  "--cases capacity.json\tmany\n",
      .parts = TAKES_REPORT | OPT_PART_ASSERT,
      .operands_min = 0,
      .operands_max = 1,
      .run = cmd_check },
    { .name = "score",
      .synopsis = "FILE... [options]",
      .summary = "predictions against measured runs: the error by group",
      .about = "A FILE has one JSON object a line: {\"id\", \"group\", "
               "\"kind\": \"memory\", \"model\": \"llama-7b\" or a "
               "specification, \"setup\": {...}, \"measured\": {\"metric\": "
               "\"peak_allocated\", \"bytes\": N}}; '-' is standard input. "
               "man memplan has every kind and metric. Rows that cannot be "
               "predicted are skipped, counted by reason.",
      .examples = "tests/measured/memory.jsonl\tthe runs that memplan is "
                  "tested with\n"
                  "mine.jsonl --by zero --limit-median 5%\t"
                  "status 1 when half of the rows are further off\n",
      .parts = TAKES_LIST | OPT_PART_SCORE | OPT_PART_CALIBRATION,
      .operands_min = 1,
      .operands_max = SIZE_MAX,
      .operand = "a FILE of measured runs, or '-'",
      .run = cmd_score },
    { .name = "calibrate",
      .synopsis = "FILE... [options]",
      .summary = "constants of your own cluster, fitted to measured steps",
      .about = "A FILE has measured runs as 'memplan score' reads them; those "
               "of the kind throughput are used, all of one GPU. At most five "
               "constants move: the rates of matrix products, attention, "
               "kernels that move bytes and messages, and the time that the "
               "host takes to start a kernel. --out writes them to a file that "
               "--calibration reads.",
      .examples = "measured.jsonl --out mine.json\tfit, and keep\n",
      .parts = TAKES_LIST | OPT_PART_CALIBRATE,
      .operands_min = 1,
      .operands_max = SIZE_MAX,
      .operand = "a FILE of measured runs, or '-'",
      .run = cmd_calibrate },
    { .name = "models",
      .synopsis = "[MODEL] [options]",
      .summary = "the catalogue of models, or one of them",
      .about = "MODEL is a name from the catalogue, a path, or '-'.",
      .examples = "\tall names\n"
                  "llama-7b\tshapes and parameters by block\n"
                  "config.json\tthe same of a file\n"
                  "--import config.json\twhat was read, filled in, ignored\n"
                  "--as llama config.json\ta type that is not known\n",
      .parts = TAKES_LIST | OPT_PART_MODEL | OPT_PART_MODELS,
      .operands_min = 0,
      .operands_max = 1,
      .run = cmd_models },
    { .name = "gpus",
      .synopsis = "[GPU]",
      .summary = "the catalogue of GPUs, or one of them",
      .about = "",
      .examples = "\tall of them\n"
                  "h100-80gb --json\tone, for scripts\n",
      .parts = TAKES_LIST,
      .operands_min = 0,
      .operands_max = 1,
      .run = cmd_gpus },
    { .name = "completion",
      .synopsis = "bash|zsh|fish",
      .summary = "a completion script for a shell",
      .about = "",
      .examples = "bash > ~/.local/share/bash-completion/completions/memplan\t"
                  "\n",
      .parts = OPT_PART_COMMON,
      .operands_min = 1,
      .operands_max = 1,
      .operand = "a shell: bash, zsh or fish",
      .run = cmd_completion },
    { .name = "help",
      .synopsis = "[COMMAND | OPTION]",
      .summary = "help on a command or an option",
      .about = "",
      .examples = "estimate\tall options\n"
                  "zero\tone option\n",
      .parts = OPT_PART_COMMON,
      .operands_min = 0,
      .operands_max = 1,
      .run = cmd_help },
    { .name = "version",
      .synopsis = "",
      .summary = "the version",
      .about = "",
      .examples = "--json\twith the version of the JSON library\n",
      .parts = TAKES_LIST,
      .operands_min = 0,
      .operands_max = 0,
      .run = cmd_version },
    /* Promised by the documentation; answered, so that nobody takes them for
     * the name of a model. */
    { .name = "plan" },
    { .name = "compare" },
    { .name = "infer" },
};

const struct command *cli_command(size_t index)
{
    if (index >= sizeof(commands) / sizeof(commands[0]))
        return NULL;
    return &commands[index];
}

const struct command *cli_command_find(const char *name)
{
    const struct command *c;
    for (size_t i = 0; (c = cli_command(i)); i++) {
        if (strcmp(c->name, name) == 0)
            return c;
    }
    return NULL;
}

const struct command *cli_command_nearest(const char *name)
{
    const struct command *best = NULL;
    const struct command *c;
    for (size_t i = 0; (c = cli_command(i)); i++) {
        if (c->run && text_near(name, c->name)
            && (!best
                || text_distance(name, c->name)
                       < text_distance(name, best->name)))
            best = c;
    }
    return best;
}

memplan_errors *cli_errors(struct cli *cli)
{
    cli->errs = (memplan_errors){ cli->slot, CLI_ERRORS_MAX, 0 };
    return &cli->errs;
}

/* ---- looks ---- */

static bool cli_colour(const struct cli *cli, const char *when,
                       enum host_stream stream)
{
    const struct host *h = cli->host;
    if (when && strcmp(when, "always") == 0)
        return true;
    if (when && strcmp(when, "never") == 0)
        return false;
    const char *no = h->getenv(h->ctx, "NO_COLOR");
    const char *term = h->getenv(h->ctx, "TERM");
    if ((no && no[0]) || (term && strcmp(term, "dumb") == 0))
        return false;
    return h->isatty(h->ctx, stream);
}

static void cli_looks(struct cli *cli, const char *when)
{
    const struct host *h = cli->host;
    cli->style.colour = cli_colour(cli, when, HOST_OUT);
    cli->colour_errors = cli_colour(cli, when, HOST_ERR);
    int width = h->isatty(h->ctx, HOST_OUT) ? h->width(h->ctx) : 0;
    cli->style.width = width != 0 && width < WIDTH_LEAST ? WIDTH_LEAST : width;
}

static bool choice_index(const char *choices, const char *value, int *out)
{
    size_t n;
    *out = 0;
    for (const char *w = text_word(&choices, &n); w;
         w = text_word(&choices, &n), ++*out) {
        if (strlen(value) == n && memcmp(w, value, n) == 0)
            return true;
    }
    return false;
}

/* ---- options of the program itself ---- */

_Static_assert(MEMPLAN_FORMAT_TABLE == 0 && MEMPLAN_FORMAT_JSON == 1
                   && MEMPLAN_FORMAT_CSV == 2 && MEMPLAN_FORMAT_MARKDOWN == 3
                   && MEMPLAN_FORMAT_SVG == 4,
               "the choices of --format stand in the enum's order");

/* The first command that takes what this one does not. */
static enum cli_exit cli_not_its_option(struct cli *cli,
                                        const struct opt_row *row)
{
    struct text hint = { 0 };
    const struct command *c;
    for (size_t i = 0; (c = cli_command(i)) && hint.n == 0; i++) {
        if (row->id == OPT_ID_OUT)
            text_put(&hint, "results go to standard output: add '> FILE'");
        else if (c->run && (c->parts & row->part))
            text_format(&hint, "'memplan %s' has it", c->name);
    }
    enum cli_exit r = message_usage(cli, hint.p, "'%s' has no option '--%s'",
                                    cli->command->name, row->name);
    text_release(&hint);
    return r;
}

/* An option is refused where it has no meaning, not passed over: somebody who
 * writes `explain --check` waits for a status that never comes. */
static enum cli_exit cli_own_option(struct cli *cli,
                                    const struct opt_given *given,
                                    const char **when)
{
    const struct opt_row *row = given->row;
    if (!(row->part & cli->command->parts))
        return cli_not_its_option(cli, row);
    int index = 0;
    if (row->id != OPT_ID_KEY && row->id != OPT_ID_ASSERTION && row->choices[0]
        && !choice_index(row->choices, given->value, &index)) {
        return message_usage(cli, NULL, "--%s: '%s' is none of: %s", row->name,
                             given->value, row->choices);
    }
    if (row->id == OPT_ID_FORMAT && index == MEMPLAN_FORMAT_SVG
        && !(cli->command->parts & OPT_PART_TRACE))
        return message_usage(cli, "'memplan trace' has one",
                             "--format: there is no picture of '%s'",
                             cli->command->name);
    switch (row->id) {
    case OPT_ID_QUIET: cli->quiet = true; break;
    case OPT_ID_COLOR: *when = given->value; break;
    case OPT_ID_JSON: cli->style.format = MEMPLAN_FORMAT_JSON; break;
    case OPT_ID_FORMAT: cli->style.format = (memplan_format)index; break;
    case OPT_ID_CHECK: cli->check = true; break;
    case OPT_ID_FIND: cli->find = given->value; break;
    case OPT_ID_EMIT: cli->emit = given->value; break;
    case OPT_ID_CASES: cli->cases = given->value; break;
    case OPT_ID_BY: cli->by = given->value; break;
    case OPT_ID_STEP: cli->first_step = index == 1; break;
    case OPT_ID_AS: cli->as = given->value; break;
    case OPT_ID_PART: cli->part = given->value; break;
    case OPT_ID_IMPORT: cli->import = true; break;
    case OPT_ID_EVERY_GPU: cli->every_gpu = true; break;
    case OPT_ID_OUT: cli->file_out = given->value; break;
    case OPT_ID_LIMIT_MEDIAN: cli->limit_median = given->value; break;
    case OPT_ID_KEY:
    case OPT_ID_ASSERTION:
    case OPT_ID_SETUP:
    case OPT_ID_CONFIG:
    case OPT_ID_PRICES:
    case OPT_ID_CALIBRATION:
    case OPT_ID_HELP:
    case OPT_ID_VERSION: break;
    }
    return CLI_OK;
}

static enum cli_exit cli_own_options(struct cli *cli)
{
    const char *when = NULL;
    enum cli_exit r = CLI_OK;
    for (size_t i = 0; i < cli->line.given_count && r == CLI_OK; i++)
        r = cli_own_option(cli, &cli->line.given[i], &when);
    cli_looks(cli, when);
    return r;
}

/* An option without its dashes: "zero=3", or "zero" as one operand too many. */
static bool cli_lacks_dashes(const struct cli *cli, size_t index)
{
    const char *operand = cli->operand[index];
    size_t n = strcspn(operand, "=");
    return (operand[n] == '=' || index >= cli->command->operands_max)
           && opt_find(&cli->table, operand, n);
}

/* What somebody may have meant who gives more operands than there may be. */
static void cli_hint_operands(const struct cli *cli, struct text *hint)
{
    for (size_t i = 0; i < cli->operand_count; i++) {
        if (cli_lacks_dashes(cli, i)) {
            text_format(hint, "did you mean '--%s'?", cli->operand[i]);
            return;
        }
    }
    const char *first = cli->operand[0];
    if (cli->operand != cli->line.operand || input_in_catalogue(first)
        || strpbrk(first, "./"))
        return;
    const struct command *meant = cli_command_nearest(first);
    if (meant)
        text_format(hint, "did you mean 'memplan %s'?", meant->name);
    else
        text_format(hint,
                    "'%s' is taken for the MODEL; 'memplan help' lists "
                    "the commands",
                    first);
}

/* What a file says twice would count twice. */
static enum cli_exit cli_different(struct cli *cli)
{
    for (size_t i = 1; i < cli->operand_count; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(cli->operand[i], cli->operand[j]) == 0)
                return message_usage(cli, NULL, "'%s' is given twice",
                                     cli->operand[i]);
    return CLI_OK;
}

static enum cli_exit cli_operands(struct cli *cli)
{
    const struct command *c = cli->command;
    if (cli->operand_count < c->operands_min)
        return message_usage(cli, NULL, "'%s' needs %s", c->name,
                             c->operand ? c->operand
                                        : "a MODEL: a path, '-' or a "
                                          "catalogue name");
    if (c->operands_max > 1)
        return cli_different(cli);
    if (cli->operand_count <= c->operands_max)
        return CLI_OK;
    struct text hint = { 0 };
    cli_hint_operands(cli, &hint);
    enum cli_exit r = message_usage(cli, hint.p, "one operand too many: '%s'",
                                    cli->operand[c->operands_max]);
    text_release(&hint);
    return r;
}

/* ---- which command ---- */

enum cli_exit cli_not_yet(struct cli *cli, const char *name)
{
    return message_error(
        cli, CLI_USAGE, "'memplan help' lists the commands that are",
        "'%s' is not there yet in version %s", name, memplan_version());
}

/* False for a command that is not there yet: its options are not known. */
static bool cli_known_command(const char *operand)
{
    const struct command *c = cli_command_find(operand);
    return !c || c->run;
}

static void cli_choose_command(struct cli *cli)
{
    const struct opt_line *line = &cli->line;
    cli->command = &commands[0];
    cli->operand = line->operand;
    cli->operand_count = line->operand_count;
    if (!line->operand_is_word)
        return;
    const struct command *named = cli_command_find(line->operand[0]);
    if (!named)
        return;
    cli->command = named;
    cli->operand++;
    cli->operand_count--;
}

static enum cli_exit cli_parse(struct cli *cli, int argc, char **argv)
{
    struct text error = { 0 };
    struct text hint = { 0 };
    enum cli_exit r = CLI_OK;
    if (!opt_table_init(&cli->table))
        return message_error(cli, CLI_LIMIT, NULL, "too many options");
    bool parsed = opt_parse(&cli->line, &cli->table, argc, argv,
                            cli_known_command, &error, &hint);
    if (!cli->line.operand || !cli->line.given)
        return message_error(cli, CLI_LIMIT, NULL, "out of memory");
    cli_choose_command(cli);
    if (!parsed)
        r = message_usage(cli, hint.p, "%s", error.p ? error.p : "");
    else if (!cli->command->run)
        r = cli_not_yet(cli, cli->command->name);
    text_release(&error);
    text_release(&hint);
    return r;
}

/* Help and version are found before anything else is looked at, so that they
 * answer whatever else is wrong with the line. */
static bool cli_asks(int argc, char **argv, const char *name,
                     const char *letter)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], name) == 0 || strcmp(argv[i], letter) == 0)
            return true;
    }
    return false;
}

static enum cli_exit cli_help(struct cli *cli, int argc, char **argv)
{
    if (!opt_table_init(&cli->table))
        return message_error(cli, CLI_LIMIT, NULL, "too many options");
    cli_looks(cli, NULL);
    const struct command *command = NULL;
    for (int i = 1; i < argc && !command; i++)
        command = cli_command_find(argv[i]);
    if (command && !command->run)
        return cli_not_yet(cli, command->name);
    help_write(cli, &cli->out, command);
    return CLI_OK;
}

static enum cli_exit cli_version(struct cli *cli, int argc, char **argv)
{
    if (cli_asks(argc, argv, "--json", "--json"))
        cli->style.format = MEMPLAN_FORMAT_JSON;
    return cmd_version(cli);
}

/* `help --zero`, which is `help zero`. */
static bool cli_asks_option(int argc, char **argv)
{
    return argc == 3 && strcmp(argv[1], "help") == 0
           && strncmp(argv[2], "--", 2) == 0 && argv[2][2];
}

static enum cli_exit cli_dispatch(struct cli *cli, int argc, char **argv)
{
    if (argc < 2) {
        struct text t = { 0 };
        help_write_short(&t);
        if (t.n > 0)
            (void)cli->host->write(cli->host->ctx, HOST_ERR, t.p, t.n);
        text_release(&t);
        return CLI_USAGE;
    }
    if (cli_asks(argc, argv, "--help", "-h"))
        return cli_help(cli, argc, argv);
    if (cli_asks(argc, argv, "--version", "-V"))
        return cli_version(cli, argc, argv);
    char *topic[] = { argv[0], argv[1], argc == 3 ? argv[2] : NULL, NULL };
    if (cli_asks_option(argc, argv)) {
        topic[2] += 2;
        argv = topic;
    }
    enum cli_exit r = cli_parse(cli, argc, argv);
    if (r == CLI_OK)
        r = cli_own_options(cli);
    if (r == CLI_OK)
        r = cli_operands(cli);
    if (r == CLI_OK)
        r = cli->command->run(cli);
    return r;
}

/* The one place that writes to standard output. */
static enum cli_exit cli_flush(struct cli *cli, enum cli_exit r)
{
    if (r > CLI_NEGATIVE)
        return r;
    if (cli->out.failed)
        return message_error(cli, CLI_LIMIT, NULL, "out of memory");
    if (cli->out.n == 0)
        return r;
    const struct host *h = cli->host;
    const char *why = h->write(h->ctx, HOST_OUT, cli->out.p, cli->out.n);
    if (!why)
        why = h->close_out(h->ctx);
    if (why)
        return message_error(cli, CLI_IO, NULL,
                             "cannot write to standard output: %s", why);
    return r;
}

int cli_main(int argc, char **argv, const struct host *host)
{
    static const char no_memory[] = "memplan: out of memory\n";
    struct cli *cli = calloc(1, sizeof(*cli));
    if (!cli) {
        (void)host->write(host->ctx, HOST_ERR, no_memory,
                          sizeof(no_memory) - 1);
        return CLI_LIMIT;
    }
    cli->host = host;
    cli_looks(cli, NULL);
    enum cli_exit r = cli_dispatch(cli, argc, argv);
    r = cli_flush(cli, r);
    text_release(&cli->out);
    opt_line_release(&cli->line);
    free(cli);
    return (int)r;
}
