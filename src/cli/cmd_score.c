/*
 * memplan score: measured runs, each predicted; the error by group. Status 1
 * when the overall median is above --limit-median, or no row is predicted.
 */
#include "cli.h"

#include <stdlib.h>

static enum cli_exit score_file(struct cli *cli, memplan_score *score,
                                const char *path)
{
    struct source source = { 0 };
    char *text = NULL;
    const enum cli_exit r = input_file(cli, &source, &text, path);
    if (r != CLI_OK)
        return r;
    const memplan_status status =
        memplan_score_parse(score, source.text, source.len, cli_errors(cli));
    return input_parsed(cli, status, &source, text);
}

static enum cli_exit score_files(struct cli *cli, memplan_score *score)
{
    enum cli_exit r = CLI_OK;
    for (size_t i = 0; i < cli->operand_count && r == CLI_OK; i++)
        r = score_file(cli, score, cli->operand[i]);
    return r;
}

/* The table is written whether or not the limit holds. */
static enum cli_exit score_answer(struct cli *cli, const memplan_score *score)
{
    bool held = true;
    memplan_status status = MEMPLAN_OK;
    if (cli->limit_median)
        status = memplan_score_held(&held, score, cli->limit_median,
                                    cli_errors(cli));
    if (status != MEMPLAN_OK)
        return message_library(cli, status, CLI_USAGE, NULL);
    status = memplan_score_write(score, cli->by, &cli->style, text_write,
                                 &cli->out, cli_errors(cli));
    if (status != MEMPLAN_OK)
        return message_library(cli, status, CLI_LIMIT, NULL);
    if (memplan_score_predicted(score) == 0)
        return message_error(cli, CLI_NEGATIVE,
                             "each line is a run: id, group, kind, model, "
                             "setup, measured",
                             "no row was predicted");
    return held ? CLI_OK : CLI_NEGATIVE;
}

enum cli_exit cmd_score(struct cli *cli)
{
    memplan_score *score = NULL;
    memplan_status status = memplan_score_new(&score, NULL, cli_errors(cli));
    if (status != MEMPLAN_OK)
        return message_library(cli, status, CLI_LIMIT, NULL);
    enum cli_exit r = input_calibration(cli, NULL, score);
    if (r == CLI_OK)
        r = score_files(cli, score);
    if (r == CLI_OK)
        r = score_answer(cli, score);
    memplan_score_free(score);
    return r;
}
