/*
 * memplan [estimate] MODEL, the main job; memplan explain MODEL, the same
 * report seen with its terms; memplan trace MODEL, the step it comes from.
 */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
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

enum { UNSAID_MAX = 192, UNSAID_TEXT = 768 }; /* more than there are keys */

/* "--lora-rank, --lora-targets" of those that one hint is of, as many as there
 * is room for; cleared. */
static void take_options(memplan_errors *unsaid, const char *hint,
                         char text[UNSAID_TEXT])
{
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < unsaid->count && i < unsaid->capacity; i++) {
        memplan_error *e = &unsaid->item[i];
        if (e->key[0] == '\0' || strcmp(e->hint, hint) != 0)
            continue;
        if (n + sizeof e->key + sizeof ", --" > UNSAID_TEXT)
            return;
        n += (size_t)snprintf(text + n, UNSAID_TEXT - n, "%s--%s",
                              n > 0 ? ", " : "", e->key);
        e->key[0] = '\0';
    }
}

/* What the file leaves to others: a note of each that says some of it. */
static void note_unsaid(struct cli *cli, const memplan_model *model,
                        const memplan_setup *setup)
{
    char text[UNSAID_TEXT], hint[sizeof(((memplan_error *)0)->hint)];
    memplan_error *item = calloc(UNSAID_MAX, sizeof *item);
    memplan_errors unsaid = { item, item != NULL ? UNSAID_MAX : 0, 0 };
    const memplan_status status =
        memplan_emit_unsaid(model, setup, cli->emit, &unsaid, NULL);
    if (item == NULL || status != MEMPLAN_OK)
        message_note(
            cli, "what is not in it cannot be told: %s",
            memplan_status_text(item == NULL ? MEMPLAN_E_NOMEM : status));
    for (size_t i = 0; i < unsaid.count && i < unsaid.capacity; i++) {
        if (item[i].key[0] == '\0')
            continue;
        memcpy(hint, item[i].hint, sizeof hint);
        take_options(&unsaid, hint, text);
        for (char *p = text; *p != '\0'; p++)
            *p = (char)(*p == '_' ? '-' : *p);
        message_note(cli, "not in it: %s; %s", text, hint);
    }
    free(item);
}

static enum cli_exit emit_write(struct cli *cli, const memplan_model *model,
                                const memplan_setup *setup)
{
    memplan_status status = memplan_emit(model, setup, cli->emit, text_write,
                                         &cli->out, cli_errors(cli));
    if (status == MEMPLAN_OK) {
        note_unsaid(cli, model, setup);
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
