/*
 * memplan [estimate] MODEL, the main job; memplan explain MODEL, the same
 * report seen with its terms; memplan trace MODEL, the step it comes from.
 */
#include "cli.h"

#include <string.h>

static enum cli_exit estimate_write(struct cli *cli, memplan_view view,
                                    const memplan_model *model,
                                    const memplan_setup *setup)
{
    memplan_report *report = NULL;
    memplan_status status =
        memplan_estimate(&report, model, setup, NULL, cli_errors(cli));
    if (status != MEMPLAN_OK)
        return message_library(cli, status, CLI_SPEC, NULL);
    enum cli_exit r = CLI_OK;
    status = memplan_report_write(report, view, &cli->style, text_write,
                                  &cli->out, cli_errors(cli));
    if (status != MEMPLAN_OK)
        r = message_library(
            cli, status, status == MEMPLAN_E_UNSUPPORTED ? CLI_SPEC : CLI_LIMIT,
            NULL);
    else if (cli->check && !memplan_report_fits(report))
        r = CLI_NEGATIVE;
    memplan_report_free(report);
    return r;
}

/* --find: nothing that fits is a negative answer. */
static enum cli_exit find_write(struct cli *cli, const memplan_model *model,
                                const memplan_setup *setup)
{
    memplan_found *found = NULL;
    uint64_t value = 0;
    memplan_status status =
        memplan_find(&found, model, setup, cli->find, NULL, cli_errors(cli));
    if (status != MEMPLAN_OK)
        return message_library(cli, status, CLI_SPEC, NULL);
    enum cli_exit r =
        memplan_found_value(&value, found) ? CLI_OK : CLI_NEGATIVE;
    status = memplan_found_write(found, &cli->style, text_write, &cli->out,
                                 cli_errors(cli));
    if (status != MEMPLAN_OK)
        r = message_library(cli, status, CLI_LIMIT, NULL);
    memplan_found_free(found);
    return r;
}

/* What is trained a launch file leaves to the code, or to PEFT's own file. */
static void note_unsaid(struct cli *cli, const memplan_setup *setup)
{
    if (strcmp(cli->emit, "peft") == 0 || strcmp(cli->emit, "torchrun") == 0)
        return;
    if (memplan_setup_has(setup, "lora_rank")
        || memplan_setup_has(setup, "peft_type"))
        message_note(cli, strcmp(cli->emit, "megatron") == 0
                              ? "the adapters are not in it: a recipe of "
                                "Megatron-Bridge's has them, as peft.dim and "
                                "peft.target_modules"
                              : "the adapters are not in it: --emit peft "
                                "writes their adapter_config.json");
    if (memplan_setup_has(setup, "freeze_trainable_layers")
        || memplan_setup_has(setup, "freeze"))
        message_note(cli, "what is frozen is not in it: the code freezes it");
}

static enum cli_exit emit_write(struct cli *cli, const memplan_model *model,
                                const memplan_setup *setup)
{
    memplan_status status = memplan_emit(model, setup, cli->emit, text_write,
                                         &cli->out, cli_errors(cli));
    if (status == MEMPLAN_OK) {
        note_unsaid(cli, setup);
        return CLI_OK;
    }
    return message_library(
        cli, status, status == MEMPLAN_E_WRITE ? CLI_LIMIT : CLI_SPEC, NULL);
}

/* As it was given: --json is --format json. */
static const char *format_option(const struct cli *cli)
{
    const char *name = "format";
    for (size_t i = 0; i < cli->line.given_count; i++)
        if (cli->line.given[i].row->id == OPT_ID_JSON
            || cli->line.given[i].row->id == OPT_ID_FORMAT)
            name = cli->line.given[i].row->name;
    return name;
}

/* A launch file is written whole, in its program's own format, or not. */
static enum cli_exit emit_alone(struct cli *cli)
{
    if (cli->emit == NULL)
        return CLI_OK;
    if (cli->find)
        return message_usage(cli, "find the value, then emit a setup with it",
                             "--find and --emit together");
    if (cli->check)
        return message_usage(cli, "check first, without --emit",
                             "--check and --emit together");
    if (cli->style.format != MEMPLAN_FORMAT_TABLE)
        return message_usage(cli,
                             "the launch file has its program's own format",
                             "--%s and --emit together", format_option(cli));
    return CLI_OK;
}

static enum cli_exit estimate_view(struct cli *cli, memplan_view view)
{
    memplan_setup *setup = NULL;
    memplan_model *model = NULL;
    enum cli_exit r = emit_alone(cli);
    if (r == CLI_OK)
        r = input_setup(cli, &setup);
    if (r == CLI_OK)
        r = input_model(cli, &model, cli->operand[0]);
    if (r == CLI_OK)
        r = cli->find   ? find_write(cli, model, setup)
            : cli->emit ? emit_write(cli, model, setup)
                        : estimate_write(cli, view, model, setup);
    memplan_model_free(model);
    memplan_setup_free(setup);
    return r;
}

enum cli_exit cmd_estimate(struct cli *cli)
{
    return estimate_view(cli, MEMPLAN_VIEW_SUMMARY);
}

enum cli_exit cmd_trace(struct cli *cli)
{
    return estimate_view(cli, cli->first_step ? MEMPLAN_VIEW_TRACE_FIRST
                                              : MEMPLAN_VIEW_TRACE);
}

enum cli_exit cmd_explain(struct cli *cli)
{
    return estimate_view(cli, MEMPLAN_VIEW_EXPLAIN);
}
