/* memplan version: the number after the last space, as GNU asks. */
#include "cli.h"

enum cli_exit cmd_version(struct cli *cli)
{
    if (cli->style.format == MEMPLAN_FORMAT_JSON)
        text_format(&cli->out,
                    "{\n"
                    "  \"schema\": \"memplan.version/1\",\n"
                    "  \"version\": \"%s\",\n"
                    "  \"json_library\": \"%s\"\n"
                    "}\n",
                    memplan_version(), memplan_json_library());
    else
        text_format(&cli->out, "memplan %s\n", memplan_version());
    return CLI_OK;
}
