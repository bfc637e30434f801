/*
 * Options. One table holds the program's own, every setup key and every
 * assertion; parsing, help and completions are three readings of it.
 */
#ifndef MEMPLAN_CLI_OPT_H
#define MEMPLAN_CLI_OPT_H

#include "text.h"

#include "memplan/memplan.h"

/* What a command takes; a bit set. */
enum opt_part {
    OPT_PART_COMMON = 1 << 0,
    OPT_PART_FORMAT = 1 << 1,
    OPT_PART_SETUP = 1 << 2,
    OPT_PART_CHECK = 1 << 3,
    OPT_PART_ASSERT = 1 << 4,
    OPT_PART_SCORE = 1 << 5,
    OPT_PART_TRACE = 1 << 6, /* and --format svg */
    OPT_PART_MODEL = 1 << 7, /* takes a MODEL */
    OPT_PART_MODELS = 1 << 8,
    OPT_PART_CALIBRATION = 1 << 9, /* reads one */
    OPT_PART_CALIBRATE = 1 << 10,
    OPT_PART_COMPUTE = 1 << 11
};

enum opt_id {
    OPT_ID_KEY,       /* sets the setup key `key` */
    OPT_ID_ASSERTION, /* limit of the assertion `key` */
    OPT_ID_HELP,
    OPT_ID_VERSION,
    OPT_ID_QUIET,
    OPT_ID_COLOR,
    OPT_ID_JSON,
    OPT_ID_FORMAT,
    OPT_ID_SETUP,
    OPT_ID_CONFIG, /* another program's file, of the dialect `key` */
    OPT_ID_CHECK,
    OPT_ID_FIND,
    OPT_ID_EMIT,
    OPT_ID_CASES,
    OPT_ID_BY,
    OPT_ID_LIMIT_MEDIAN,
    OPT_ID_CALIBRATION,
    OPT_ID_OUT,
    OPT_ID_STEP,
    OPT_ID_AS,
    OPT_ID_PART,
    OPT_ID_IMPORT,
    OPT_ID_PRICES,
    OPT_ID_EVERY_GPU
};

enum opt_value { OPT_VALUE_NONE, OPT_VALUE_NEEDED, OPT_VALUE_OPTIONAL };

enum { OPT_NAME_MAX = 48, OPT_ROWS_MAX = 320 };

struct opt_row {
    char name[OPT_NAME_MAX]; /* without dashes: "micro-batch" */
    char letter;             /* 'h', or 0 */
    enum opt_id id;
    enum opt_part part;
    enum opt_value value;
    bool negative; /* --no-compile */
    memplan_type type;
    const char *key;     /* "micro_batch", for the library */
    const char *choices; /* space separated, "" for none */
    const char *default_text;
    const char *group; /* heading in help */
    const char *doc;
    const char *placeholder;
};

struct opt_table {
    struct opt_row row[OPT_ROWS_MAX];
    size_t count;
};

/* False when there are more options than room. */
bool opt_table_init(struct opt_table *table);

/* The row of that exact name, without dashes; NULL when there is none. */
const struct opt_row *opt_find(const struct opt_table *table, const char *name,
                               size_t len);
/* Its value is the name of a file to read. */
bool opt_is_file(const struct opt_row *row);
/* What somebody may have meant; NULL when nothing is near. */
const struct opt_row *opt_nearest(const struct opt_table *table,
                                  const char *name);

struct opt_given {
    const struct opt_row *row;
    const char *value; /* NULL when none was given */
};

/* What the command line says, in its order. */
struct opt_line {
    struct opt_given *given;
    const char **operand;
    size_t given_count;
    size_t operand_count;
    bool operand_is_word; /* the first one came before any "--" */
};

/* Asked about the first operand; false ends the parsing there. */
typedef bool opt_go_on_fn(const char *operand);

/* Reads argv into line, to be freed by opt_line_release in any case. Options
 * and operands in any order, "--" ends the options. On bad usage returns
 * false with what is wrong in `error`, and in `hint` what may have been meant.
 * Without memory the arrays of line are NULL. */
bool opt_parse(struct opt_line *line, const struct opt_table *table, int argc,
               char **argv, opt_go_on_fn *go_on, struct text *error,
               struct text *hint);
void opt_line_release(struct opt_line *line);

#endif
