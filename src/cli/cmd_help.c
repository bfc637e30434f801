/*
 * Help, read off the tables: commands, options, their groups, choices and
 * defaults. Nothing here names an option.
 */
#include "cli.h"

#include <string.h>

enum {
    COMMAND_COLUMN = 14,
    HELP_COLUMN = 30,        /* where descriptions begin */
    HELP_COLUMN_NARROW = 10, /* on a terminal where that leaves no room */
    HELP_NARROW = 60,
    HELP_WIDEST = 100 /* longer lines read badly, however wide the terminal */
};

static size_t help_width(const struct cli *cli)
{
    size_t width = cli->style.width > 0 ? (size_t)cli->style.width : 80;
    return width < HELP_WIDEST ? width : HELP_WIDEST;
}

static void put_heading(const struct cli *cli, struct text *t, const char *s)
{
    text_put(t, "\n");
    text_put(t, cli->style.colour ? "\033[1m" : "");
    text_put(t, s);
    text_put(t, ":");
    text_put(t, cli->style.colour ? "\033[0m\n" : "\n");
}

static size_t help_column(const struct cli *cli)
{
    return help_width(cli) < HELP_NARROW ? HELP_COLUMN_NARROW : HELP_COLUMN;
}

/* Brings the cursor to the column of descriptions. */
static void put_column(struct text *t, size_t used, size_t column)
{
    if (used + 2 > column) {
        text_put(t, "\n");
        for (size_t i = 0; i < column; i++)
            text_put(t, " ");
        return;
    }
    text_tab(t, column);
}

/* ---- commands ---- */

static void put_examples(const struct cli *cli, struct text *t,
                         const struct command *c)
{
    put_heading(cli, t, "Examples");
    for (const char *p = c->examples; *p;) {
        size_t n = strcspn(p, "\t");
        size_t doc = strcspn(p + n + 1, "\n");
        if (doc > 0)
            text_format(t, "  # %.*s\n", (int)doc, p + n + 1);
        bool whole = strcmp(c->name, "estimate") == 0;
        text_format(t, "  memplan%s%s%s%.*s\n", whole ? "" : " ",
                    whole ? "" : c->name, n > 0 ? " " : "", (int)n, p);
        p += n + 1 + doc + 1;
    }
}

static void put_commands(const struct cli *cli, struct text *t)
{
    put_heading(cli, t, "Commands");
    const struct command *c;
    for (size_t i = 0; (c = cli_command(i)); i++) {
        if (!c->run)
            continue;
        text_format(t, "  %s", c->name);
        text_tab(t, COMMAND_COLUMN);
        text_wrap(t, c->summary, COMMAND_COLUMN, help_width(cli));
        text_put(t, "\n");
    }
}

/* ---- options ---- */

/* True when help shows the row by itself; --no-x is shown with --x. */
static bool row_shown(const struct opt_row *row, unsigned parts)
{
    return (row->part & parts) && !row->negative;
}

static void put_option_name(struct text *t, const struct opt_row *row)
{
    if (row->letter)
        text_format(t, "  -%c, ", row->letter);
    else
        text_put(t, "      ");
    text_format(t, "--%s%s", row->value == OPT_VALUE_OPTIONAL ? "[no-]" : "",
                row->name);
    if (row->value == OPT_VALUE_NEEDED)
        text_format(t, " %s", row->placeholder[0] ? row->placeholder : "VALUE");
}

static void put_option(const struct cli *cli, struct text *t,
                       const struct opt_row *row)
{
    struct text name = { 0 };
    put_option_name(&name, row);
    if (name.p)
        text_put(t, name.p);
    size_t column = help_column(cli);
    put_column(t, name.n, column);
    text_release(&name);

    size_t width = help_width(cli);
    text_wrap(t, row->doc, column, width);
    struct text more = { 0 };
    if (row->choices[0]) {
        text_put(&more,
                 row->type == MEMPLAN_TYPE_LIST ? "(list of " : "(one of ");
        const char *rest = row->choices;
        size_t n;
        const char *w = text_word(&rest, &n);
        while (w) {
            text_write(&more, w, n);
            w = text_word(&rest, &n);
            text_put(&more, w ? ", " : ")");
        }
    }
    if (row->default_text[0])
        text_format(&more, "%s[%s]", more.n ? " " : "", row->default_text);
    if (more.p)
        text_wrap(t, more.p, column, width);
    text_release(&more);
    text_put(t, "\n");
}

static void put_group(const struct cli *cli, struct text *t, unsigned parts,
                      const char *group)
{
    put_heading(cli, t, group);
    for (size_t i = 0; i < cli->table.count; i++) {
        const struct opt_row *row = &cli->table.row[i];
        if (row_shown(row, parts) && strcmp(row->group, group) == 0)
            put_option(cli, t, row);
    }
}

/* Groups in the order in which the table first names them; what every command
 * has comes last. */
static void put_options(const struct cli *cli, struct text *t, unsigned parts)
{
    unsigned special = parts & ~(unsigned)OPT_PART_COMMON;
    for (size_t i = 0; i < cli->table.count; i++) {
        const struct opt_row *row = &cli->table.row[i];
        bool first = row_shown(row, special);
        for (size_t j = 0; first && j < i; j++) {
            const struct opt_row *before = &cli->table.row[j];
            first = !(row_shown(before, special)
                      && strcmp(before->group, row->group) == 0);
        }
        if (first)
            put_group(cli, t, special, row->group);
    }
    put_group(cli, t, OPT_PART_COMMON, "General");
}

/* ---- pages ---- */

static void put_numbers(const struct cli *cli, struct text *t)
{
    text_put(t, "\n");
    text_wrap(t,
              "Counts take SI suffixes (13B, 1.4T, 260e9), sizes byte units "
              "(80GiB, 24GB). Every option of a setup is also a key of a JSON "
              "setup file (--micro-batch is \"micro_batch\"). What is not "
              "given is derived, and listed under assumptions.",
              0, help_width(cli));
    text_put(t, "\n");
}

static void help_command(struct cli *cli, struct text *t,
                         const struct command *c)
{
    bool whole = strcmp(c->name, "estimate") == 0;
    text_format(t, "Usage: memplan %s%s%s\n", whole ? "[estimate]" : c->name,
                c->synopsis[0] ? " " : "", c->synopsis);
    text_format(t, "\n%s\n", c->summary);
    put_examples(cli, t, c);
    if (c->about[0]) {
        text_put(t, "\n");
        text_wrap(t, c->about, 0, help_width(cli));
        text_put(t, "\n");
    }
    if (c->parts & OPT_PART_SETUP)
        put_numbers(cli, t);
    put_options(cli, t, c->parts);
}

static void help_overview(struct cli *cli, struct text *t)
{
    size_t width = help_width(cli);
    text_wrap(t,
              "memplan: how much memory each GPU needs to train a model, "
              "and why",
              0, width);
    text_put(t, "\n\nUsage: memplan [COMMAND] MODEL [options]\n");
    put_examples(cli, t, cli_command(0));
    put_commands(cli, t);
    put_heading(cli, t, "Exit status");
    text_put(t,
             "  0  success\n"
             "  1  a negative answer: check, estimate --check, --find, score "
             "--limit-median\n"
             "  2  usage\n"
             "  3  bad model or impossible setup\n"
             "  4  reading or writing failed\n"
             "  5  a number too large, or out of memory\n"
             "\n");
    text_wrap(t,
              "'memplan help COMMAND' lists a command's options, "
              "'memplan help OPTION' explains one.",
              0, width);
    text_put(t, "\n");
}

void help_write(struct cli *cli, struct text *t, const struct command *command)
{
    if (command)
        help_command(cli, t, command);
    else
        help_overview(cli, t);
}

void help_write_short(struct text *t)
{
    text_put(t, "Usage: memplan [COMMAND] MODEL [options]\n"
                "\n"
                "  memplan llama-7b --zero 3 --gpus 64\n"
                "\n"
                "try 'memplan help'\n");
}

/* ---- one option ---- */

static const char *type_text(memplan_type type)
{
    switch (type) {
    case MEMPLAN_TYPE_COUNT: return "a whole number: 64, 13B, 260e9";
    case MEMPLAN_TYPE_BYTES: return "a size: 80GiB, 24GB, or bytes";
    case MEMPLAN_TYPE_REAL: return "a number: 0.45, 45%";
    case MEMPLAN_TYPE_BOOL: return "true or false";
    case MEMPLAN_TYPE_CHOICE: return "one of these words";
    case MEMPLAN_TYPE_LIST: return "a list with commas";
    case MEMPLAN_TYPE_NAME: return "a name";
    }
    return "";
}

static bool takes(const memplan_field *f, double x)
{
    return x >= f->min && x <= f->max;
}

/* Examples are values that the key takes: a factor may begin at 1. Whole
 * numbers that those of others do not fit have their range. */
static void put_key_value(struct text *t, const memplan_field *f)
{
    if (f->type == MEMPLAN_TYPE_COUNT && (!takes(f, 64) || !takes(f, 260e9)))
        text_format(t, "a whole number, %.15g to %.15g", f->min, f->max);
    else if (f->type == MEMPLAN_TYPE_REAL && !takes(f, 0.45))
        text_put(t, "a number: 1.5, 2");
    else
        text_put(t, type_text(f->type));
}

static void put_value(struct text *t, const struct opt_row *row)
{
    const memplan_field *f = memplan_setup_field(0);
    for (size_t i = 1; f && strcmp(f->key, row->key) != 0; i++)
        f = memplan_setup_field(i);
    if (row->id == OPT_ID_KEY && f)
        put_key_value(t, f);
    else if (opt_is_file(row))
        text_put(t, "a path, or '-' for standard input");
    else
        text_put(t, type_text(row->type));
}

/* Of a setup file: each is an option too, and has a page of its own. */
static void put_keys(struct cli *cli, struct text *t)
{
    text_put(t, "  keys     ");
    for (size_t i = 0; i < cli->table.count; i++) {
        const struct opt_row *row = &cli->table.row[i];
        if (row->id == OPT_ID_KEY && !row->negative)
            text_wrap(t, row->key, 11, help_width(cli));
    }
    text_put(t, "\n\n'memplan help KEY' explains one.\n");
}

static void help_option(struct cli *cli, struct text *t,
                        const struct opt_row *row)
{
    struct text name = { 0 };
    put_option_name(&name, row);
    if (name.p) {
        const char *shown = name.p + strspn(name.p, " ");
        text_format(t, "%s\n\n", shown);
    }
    text_release(&name);
    text_put(t, "  ");
    text_wrap(t, row->doc, 2, help_width(cli));
    text_put(t, "\n\n");
    if (row->value != OPT_VALUE_NONE) {
        text_put(t, "  value    ");
        put_value(t, row);
        text_put(t, "\n");
    }
    if (row->choices[0]) {
        text_put(t, "  choices  ");
        text_wrap(t, row->choices, 11, help_width(cli));
        text_put(t, "\n");
    }
    if (row->default_text[0]) {
        text_put(t, "  default  ");
        text_wrap(t, row->default_text, 11, help_width(cli));
        text_put(t, "\n");
    }
    if (row->id == OPT_ID_KEY)
        text_format(t, "  in JSON  \"%s\"\n", row->key);
    if (row->id == OPT_ID_SETUP)
        put_keys(cli, t);
}

enum cli_exit cmd_help(struct cli *cli)
{
    if (cli->operand_count == 0) {
        help_overview(cli, &cli->out);
        return CLI_OK;
    }
    const char *topic = cli->operand[0];
    const struct command *command = cli_command_find(topic);
    if (command && command->run) {
        help_command(cli, &cli->out, command);
        return CLI_OK;
    }
    if (command)
        return cli_not_yet(cli, topic);
    char name[OPT_NAME_MAX];
    text_kebab(name, sizeof(name), topic + strspn(topic, "-"));
    const struct opt_row *row = opt_find(&cli->table, name, strlen(name));
    if (row) {
        help_option(cli, &cli->out, row);
        return CLI_OK;
    }
    command = cli_command_nearest(topic);
    row = opt_nearest(&cli->table, name);
    struct text hint = { 0 };
    if (command || row)
        text_format(&hint, "did you mean 'memplan help %s'?",
                    command ? command->name : row->name);
    enum cli_exit r = message_usage(
        cli, hint.p, "no command and no option is called '%s'", topic);
    text_release(&hint);
    return r;
}
