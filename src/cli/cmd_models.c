/* memplan models [MODEL]: the catalogue, or one model of any origin. */
#include "cli.h"

static enum cli_exit models_write_one(struct cli *cli)
{
    memplan_model *model = NULL;
    enum cli_exit r = input_model(cli, &model, cli->operand[0]);
    if (r != CLI_OK)
        return r;
    memplan_status status =
        (cli->import ? memplan_model_write_import : memplan_model_write)(
            model, &cli->style, text_write, &cli->out, cli_errors(cli));
    if (status != MEMPLAN_OK)
        r = message_library(cli, status, CLI_SPEC, NULL);
    memplan_model_free(model);
    return r;
}

enum cli_exit cmd_models(struct cli *cli)
{
    if (cli->operand_count > 0)
        return models_write_one(cli);
    if (cli->import || cli->as != NULL || cli->part != NULL)
        return message_usage(cli, "memplan models --import config.json",
                             "--%s needs a MODEL",
                             cli->import       ? "import"
                             : cli->as != NULL ? "as"
                                               : "part");
    memplan_status status = memplan_models_write(
        &cli->style, text_write, &cli->out, NULL, cli_errors(cli));
    if (status != MEMPLAN_OK)
        return message_library(cli, status, CLI_LIMIT, NULL);
    return CLI_OK;
}
