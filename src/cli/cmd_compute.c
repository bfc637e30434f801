/* memplan compute [MODEL]: FLOPs, time and money; no memory. */
#include "cli.h"

static enum cli_exit compute_write(struct cli *cli, const memplan_model *model,
                                   const memplan_setup *setup)
{
    memplan_report *report = NULL;
    memplan_status status =
        memplan_compute(&report, model, setup, NULL, cli_errors(cli));
    /* Without a model, what is missing is an option. */
    if (status != MEMPLAN_OK)
        return message_library(cli, status, model ? CLI_SPEC : CLI_USAGE, NULL);
    enum cli_exit r = CLI_OK;
    status = memplan_report_write(report, MEMPLAN_VIEW_SUMMARY, &cli->style,
                                  text_write, &cli->out, cli_errors(cli));
    if (status != MEMPLAN_OK)
        r = message_library(cli, status, CLI_LIMIT, NULL);
    memplan_report_free(report);
    return r;
}

static enum cli_exit offers_write(struct cli *cli, const memplan_model *model,
                                  const memplan_setup *setup)
{
    memplan_offers *offers = NULL;
    memplan_status status =
        memplan_offers_new(&offers, model, setup, NULL, cli_errors(cli));
    if (status != MEMPLAN_OK)
        return message_library(cli, status, model ? CLI_SPEC : CLI_USAGE, NULL);
    enum cli_exit r = CLI_OK;
    status = memplan_offers_write(offers, &cli->style, text_write, &cli->out,
                                  cli_errors(cli));
    if (status != MEMPLAN_OK)
        r = message_library(cli, status, CLI_LIMIT, NULL);
    memplan_offers_free(offers);
    return r;
}

enum cli_exit cmd_compute(struct cli *cli)
{
    memplan_setup *setup = NULL;
    memplan_model *model = NULL;
    enum cli_exit r = input_setup(cli, &setup);
    if (r == CLI_OK && cli->operand_count > 0)
        r = input_model(cli, &model, cli->operand[0]);
    if (r == CLI_OK)
        r = cli->every_gpu ? offers_write(cli, model, setup)
                           : compute_write(cli, model, setup);
    memplan_model_free(model);
    memplan_setup_free(setup);
    return r;
}
