/*
 * The program as a function of its arguments and its host. Commands write
 * results into cli->out, which reaches standard output only after success.
 */
#ifndef MEMPLAN_CLI_CLI_H
#define MEMPLAN_CLI_CLI_H

#include "host.h"
#include "opt.h"
#include "text.h"

#include "memplan/memplan.h"

/* Exit status: part of the interface. */
enum cli_exit {
    CLI_OK = 0,
    CLI_NEGATIVE = 1, /* "does not fit", only where that was asked */
    CLI_USAGE = 2,    /* the command line */
    CLI_SPEC = 3,     /* the model, or an impossible setup */
    CLI_IO = 4,       /* a read or a write failed */
    CLI_LIMIT = 5     /* overflow, out of memory */
};

/* How many errors are shown; of the others only how many there are. */
enum { CLI_ERRORS_MAX = 20 };
enum { WIDTH_LEAST = 40 }; /* lines of a narrower terminal are as long */

struct cli {
    const struct host *host;
    const struct command *command;
    struct opt_table table;
    struct opt_line line;
    const char **operand; /* of the command, its own name left out */
    size_t operand_count;

    memplan_style style;
    bool colour_errors;
    bool quiet;
    bool check;               /* --check */
    const char *find;         /* --find KEY, or NULL */
    const char *emit;         /* --emit DIALECT, or NULL */
    const char *cases;        /* --cases FILE, or NULL */
    const char *by;           /* --by KEY, or NULL */
    bool first_step;          /* --step first */
    const char *as;           /* --as TYPE, or NULL */
    const char *part;         /* --part PART, or NULL */
    bool import;              /* --import */
    bool every_gpu;           /* --every-gpu */
    const char *file_out;     /* --out FILE, or NULL */
    const char *limit_median; /* --limit-median X, or NULL */
    bool stdin_taken;         /* standard input can be read once */

    struct text out;
    memplan_error slot[CLI_ERRORS_MAX];
    memplan_errors errs; /* for library calls: cli_errors() empties it */
};

typedef enum cli_exit cli_run_fn(struct cli *cli);

struct command {
    const char *name;
    const char *synopsis; /* after "memplan NAME " */
    const char *summary;  /* one line */
    const char *about;    /* paragraphs for help; "" for none */
    const char *examples; /* lines "ARGUMENTS\tWHAT\n" */
    unsigned parts;       /* enum opt_part set: which options it takes */
    size_t operands_min, operands_max;
    const char *operand; /* what it needs, in words; NULL: a model */
    cli_run_fn *run;     /* NULL: not there yet */
};

/* Row number `index` of the commands; NULL past the end. */
const struct command *cli_command(size_t index);
const struct command *cli_command_find(const char *name);
/* The command that somebody may have meant, NULL when none is near. */
const struct command *cli_command_nearest(const char *name);

/* Says that a command of that name comes in a later version. */
enum cli_exit cli_not_yet(struct cli *cli, const char *name);

/* A whole invocation. Returns the exit status. */
int cli_main(int argc, char **argv, const struct host *host);

/* cli->errs, emptied, for the next call into the library. */
memplan_errors *cli_errors(struct cli *cli);

/* ---- message.c: everything that goes to standard error ---- */

/* A text that errors are about. name NULL: the command line. */
struct source {
    const char *name;
    const char *text;
    size_t len;
};

/* "memplan: ...", with a hint unless hint is NULL or "". Returns status. */
enum cli_exit message_error(struct cli *cli, enum cli_exit status,
                            const char *hint, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 4, 5)))
#endif
    ;
/* The same with CLI_USAGE and a line that names the page to read. */
enum cli_exit message_usage(struct cli *cli, const char *hint,
                            const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;
/* "memplan: note: ...", unless --quiet. */
void message_note(struct cli *cli, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;
/* Shows cli->errs, which a call into the library filled before it returned
 * status. `wrong` is the exit status for what the user can mend; the status
 * overrides it where it is another kind of failure. */
enum cli_exit message_library(struct cli *cli, memplan_status status,
                              enum cli_exit wrong, const struct source *source);

/* ---- input.c: what operands and options name ---- */

/* The model: a path, "-", or a catalogue name. */
enum cli_exit input_model(struct cli *cli, memplan_model **out,
                          const char *operand);
/* Whether the catalogue has a model of exactly that name. */
bool input_in_catalogue(const char *name);
/* The setup that --setup files and then the options describe. */
enum cli_exit input_setup(struct cli *cli, memplan_setup **out);
/* The calibration that --calibration names, into the setup or else the score;
 * the last one named. */
enum cli_exit input_calibration(struct cli *cli, memplan_setup *setup,
                                memplan_score *score);
/* Reads a file that must be there, or standard input for "-". `text` is
 * malloc()ed, or NULL. */
enum cli_exit input_file(struct cli *cli, struct source *out, char **text,
                         const char *path);
/* What the library made of it: reports what is wrong, and frees the text. */
enum cli_exit input_parsed(struct cli *cli, memplan_status status,
                           const struct source *source, char *text);

/* ---- one function a command ---- */

cli_run_fn cmd_estimate, cmd_compute, cmd_explain, cmd_trace, cmd_check,
    cmd_score, cmd_calibrate, cmd_models, cmd_gpus, cmd_completion, cmd_help,
    cmd_version;

/* Help on one command, or the overview for NULL, into a text. */
void help_write(struct cli *cli, struct text *t, const struct command *command);
/* What is said to somebody who gives no arguments. */
void help_write_short(struct text *t);

#endif
