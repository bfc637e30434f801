/*
 * memplan calibrate: constants of the user's own cluster from steps measured
 * on it. The table goes to standard output, the file to --out.
 */
#include "cli.h"

#include <stdlib.h>

static enum cli_exit read_rows(struct cli *cli, memplan_calibration *c,
                               const char *path)
{
    struct source source = { 0 };
    char *text = NULL;
    const enum cli_exit r = input_file(cli, &source, &text, path);
    if (r != CLI_OK)
        return r;
    const memplan_status status =
        memplan_calibration_parse(c, source.text, source.len, cli_errors(cli));
    return input_parsed(cli, status, &source, text);
}

static enum cli_exit write_to(struct cli *cli, const memplan_calibration *c,
                              const memplan_style *style, struct text *to)
{
    const memplan_status status =
        memplan_calibration_write(c, style, text_write, to, cli_errors(cli));
    if (status != MEMPLAN_OK)
        return message_library(cli, status, CLI_LIMIT, NULL);
    return CLI_OK;
}

static enum cli_exit write_file(struct cli *cli, const memplan_calibration *c)
{
    const memplan_style style = { .format = MEMPLAN_FORMAT_JSON };
    const struct host *h = cli->host;
    struct text text = { 0 };
    enum cli_exit r = write_to(cli, c, &style, &text);
    if (r == CLI_OK && text.failed)
        r = message_error(cli, CLI_LIMIT, NULL, "out of memory");
    if (r == CLI_OK) {
        const char *why = h->write_file(h->ctx, cli->file_out, text.p, text.n);
        if (why)
            r = message_error(cli, CLI_IO, NULL, "cannot write '%s': %s",
                              cli->file_out, why);
    }
    text_release(&text);
    return r;
}

/* The table says it itself. */
static void note_doubts(struct cli *cli, const memplan_calibration *c)
{
    double n = 0;
    if (cli->style.format == MEMPLAN_FORMAT_TABLE)
        return;
    if (memplan_calibration_number(&n, c, "at_bound") == MEMPLAN_OK && n >= 1)
        message_note(cli, "%.0f of the constants stopped at %s bound", n,
                     n > 1 ? "their" : "its");
    if (memplan_calibration_number(&n, c, "stray") == MEMPLAN_OK && n >= 1)
        message_note(cli,
                     "%.0f of the rows %s further off than a constant may "
                     "move: look for a figure in another unit",
                     n, n > 1 ? "are" : "is");
}

enum cli_exit cmd_calibrate(struct cli *cli)
{
    memplan_calibration *c = NULL;
    memplan_status status = memplan_calibration_new(&c, NULL, cli_errors(cli));
    if (status != MEMPLAN_OK)
        return message_library(cli, status, CLI_LIMIT, NULL);
    enum cli_exit r = CLI_OK;
    for (size_t i = 0; i < cli->operand_count && r == CLI_OK; i++)
        r = read_rows(cli, c, cli->operand[i]);
    if (r == CLI_OK) {
        status = memplan_calibration_fit(c, cli_errors(cli));
        if (status != MEMPLAN_OK)
            r = message_library(cli, status, CLI_SPEC, NULL);
    }
    if (r == CLI_OK)
        note_doubts(cli, c);
    if (r == CLI_OK)
        r = write_to(cli, c, &cli->style, &cli->out);
    if (r == CLI_OK && cli->file_out)
        r = write_file(cli, c);
    memplan_calibration_free(c);
    return r;
}
