/*
 * memplan check: assertions on one estimate, given as options, or on many,
 * given in a file. Status 1 when one does not hold.
 */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

static enum cli_exit check_write(struct cli *cli, const memplan_check *check,
                                 bool held)
{
    memplan_status status = memplan_check_write(check, &cli->style, text_write,
                                                &cli->out, cli_errors(cli));
    if (status != MEMPLAN_OK)
        return message_library(cli, status, CLI_LIMIT, NULL);
    return held ? CLI_OK : CLI_NEGATIVE;
}

/* ---- one case ---- */

struct assertions {
    const char **name;
    const char **limit;
    size_t count;
};

static bool assertions_collect(struct assertions *a,
                               const struct opt_line *line)
{
    a->count = 0;
    a->name = calloc(line->given_count + 1, sizeof(*a->name));
    a->limit = calloc(line->given_count + 1, sizeof(*a->limit));
    if (!a->name || !a->limit)
        return false;
    for (size_t i = 0; i < line->given_count; i++) {
        if (line->given[i].row->id != OPT_ID_ASSERTION)
            continue;
        a->name[a->count] = line->given[i].row->key;
        a->limit[a->count++] = line->given[i].value;
    }
    return true;
}

static void assertions_release(struct assertions *a)
{
    free(a->name);
    free(a->limit);
}

static enum cli_exit check_report(struct cli *cli, memplan_check *check,
                                  const memplan_model *model,
                                  const memplan_report *report)
{
    struct assertions a = { 0 };
    enum cli_exit r;
    bool held = false;
    if (!assertions_collect(&a, &cli->line)) {
        r = message_error(cli, CLI_LIMIT, NULL, "out of memory");
    } else {
        memplan_status status =
            memplan_check_case(&held, check, memplan_model_name(model), report,
                               a.name, a.limit, a.count, cli_errors(cli));
        r = status == MEMPLAN_OK
                ? check_write(cli, check, held)
                : message_library(cli, status, CLI_USAGE, NULL);
    }
    assertions_release(&a);
    return r;
}

static enum cli_exit check_one(struct cli *cli, memplan_check *check)
{
    memplan_setup *setup = NULL;
    memplan_model *model = NULL;
    memplan_report *report = NULL;
    enum cli_exit r = input_setup(cli, &setup);
    if (r == CLI_OK)
        r = input_model(cli, &model, cli->operand[0]);
    if (r == CLI_OK) {
        memplan_status status =
            memplan_estimate(&report, model, setup, NULL, cli_errors(cli));
        if (status != MEMPLAN_OK)
            r = message_library(cli, status, CLI_SPEC, NULL);
    }
    if (r == CLI_OK)
        r = check_report(cli, check, model, report);
    memplan_report_free(report);
    memplan_model_free(model);
    memplan_setup_free(setup);
    return r;
}

/* ---- a file of cases ---- */

struct case_loader {
    struct cli *cli;
    const char *cases_path;
    char *text; /* of the model loaded last */
};

/* A path in the file is relative to the file. */
static bool load_model_text(void *ctx, const char *name, const char **text,
                            size_t *len)
{
    struct case_loader *loader = ctx;
    const struct host *h = loader->cli->host;
    struct text path = { 0 };
    const char *slash = strrchr(loader->cases_path, '/');
    if (slash && name[0] != '/')
        text_write(&path, loader->cases_path,
                   (size_t)(slash - loader->cases_path) + 1);
    text_put(&path, name);
    free(loader->text);
    loader->text = NULL;
    const char *why = "";
    bool read = !path.failed
                && h->read_file(h->ctx, path.p, &loader->text, len, &why)
                       == HOST_READ_OK;
    *text = loader->text;
    text_release(&path);
    return read;
}

static enum cli_exit check_many(struct cli *cli, memplan_check *check)
{
    struct source source = { 0 };
    char *text = NULL;
    enum cli_exit r = input_file(cli, &source, &text, cli->cases);
    if (r == CLI_OK) {
        struct case_loader loader = { cli, source.name, NULL };
        bool held = false;
        memplan_status status =
            memplan_check_parse(&held, check, source.text, source.len,
                                load_model_text, &loader, cli_errors(cli));
        r = status == MEMPLAN_OK
                ? check_write(cli, check, held)
                : message_library(cli, status, CLI_SPEC, &source);
        free(loader.text);
    }
    free(text);
    return r;
}

/* With --cases the file says everything; an option beside it would be lost. */
static enum cli_exit check_arguments(struct cli *cli)
{
    if (!cli->cases && cli->operand_count == 0)
        return message_usage(cli, NULL, "'check' needs MODEL or --cases FILE");
    if (!cli->cases)
        return CLI_OK;
    if (cli->operand_count > 0)
        return message_usage(cli, "write the model into the file",
                             "--cases takes no MODEL beside it: '%s'",
                             cli->operand[0]);
    for (size_t i = 0; i < cli->line.given_count; i++) {
        const struct opt_row *row = cli->line.given[i].row;
        if (row->id == OPT_ID_CALIBRATION)
            return message_usage(cli, "name a MODEL: it is of one GPU",
                                 "--cases takes no '--calibration' beside it");
        if (row->part == OPT_PART_SETUP || row->id == OPT_ID_ASSERTION)
            return message_usage(cli, "write it into the file",
                                 "--cases takes no '--%s' beside it",
                                 row->name);
    }
    return CLI_OK;
}

enum cli_exit cmd_check(struct cli *cli)
{
    enum cli_exit r = check_arguments(cli);
    if (r != CLI_OK)
        return r;
    memplan_check *check = NULL;
    memplan_status status = memplan_check_new(&check, NULL, cli_errors(cli));
    if (status != MEMPLAN_OK)
        return message_library(cli, status, CLI_LIMIT, NULL);
    r = cli->cases ? check_many(cli, check) : check_one(cli, check);
    memplan_check_free(check);
    return r;
}
