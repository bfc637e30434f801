/* memplan gpus [GPU]: the catalogue of GPUs. */
#include "cli.h"

enum cli_exit cmd_gpus(struct cli *cli)
{
    const char *name = cli->operand_count > 0 ? cli->operand[0] : NULL;
    memplan_status status = memplan_gpus_write(name, &cli->style, text_write,
                                               &cli->out, cli_errors(cli));
    if (status != MEMPLAN_OK)
        return message_library(cli, status, CLI_USAGE, NULL);
    return CLI_OK;
}
