/*
 * Owns the way from what the user names (a path, "-", a catalogue name, the
 * options) to the library's objects. A file that exists wins over a name.
 */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_BYTES = 128 }; /* of a model; more is cut off */

static enum host_read input_read(struct cli *cli, const char *path,
                                 struct source *out, char **text,
                                 const char **why)
{
    bool is_stdin = strcmp(path, "-") == 0;
    if (is_stdin && cli->stdin_taken) {
        *why = "it was read already";
        return HOST_READ_FAILED;
    }
    cli->stdin_taken = cli->stdin_taken || is_stdin;
    out->name = is_stdin ? "<stdin>" : path;
    enum host_read r = cli->host->read_file(
        cli->host->ctx, is_stdin ? NULL : path, text, &out->len, why);
    out->text = r == HOST_READ_OK ? *text : NULL;
    return r;
}

static enum cli_exit input_failed(struct cli *cli, enum host_read r,
                                  const char *path, const char *why)
{
    switch (r) {
    case HOST_READ_OK: return CLI_OK;
    case HOST_READ_ABSENT: why = "no such file"; break;
    case HOST_READ_DIRECTORY: why = "it is a folder"; break;
    case HOST_READ_FAILED: break;
    }
    if (strcmp(path, "-") == 0)
        return message_error(cli, CLI_IO, NULL,
                             "cannot read standard input: %s", why);
    return message_error(cli, CLI_IO, NULL, "cannot read '%s': %s", path, why);
}

enum cli_exit input_file(struct cli *cli, struct source *out, char **text,
                         const char *path)
{
    const char *why = "";
    const enum host_read r = input_read(cli, path, out, text, &why);
    return input_failed(cli, r, path, why); /* `why` is known by now */
}

enum cli_exit input_parsed(struct cli *cli, memplan_status status,
                           const struct source *source, char *text)
{
    const enum cli_exit r =
        status == MEMPLAN_OK ? CLI_OK
                             : message_library(cli, status, CLI_SPEC, source);
    free(text);
    return r;
}

/* False for ".", "..", "/", which say nothing. */
static bool is_telling(const char *name, size_t n)
{
    return n > strspn(name, "./");
}

/* What to call a model whose text does not say: the file's name without
 * ".json"; of a config.json, its folder's, which is how they are kept. */
static void name_of_path(char *buf, size_t size, const char *path)
{
    size_t end = strlen(path);
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    const char *folder = slash;
    while (folder && folder > path && folder[-1] != '/')
        folder--;
    if (slash && strcmp(base, "config.json") == 0
        && is_telling(folder, (size_t)(slash - folder))) {
        end = (size_t)(slash - path);
        base = folder;
    } else if (end >= 5 && strcmp(path + end - 5, ".json") == 0) {
        end -= 5;
    }
    size_t n = path + end > base ? (size_t)(path + end - base) : 0;
    if (n >= size)
        n = size - 1;
    memcpy(buf, base, n);
    buf[n] = '\0';
}

bool input_in_catalogue(const char *name)
{
    memplan_model *model = NULL;
    bool there = memplan_model_builtin(&model, name, NULL, NULL) == MEMPLAN_OK;
    memplan_model_free(model);
    return there;
}

static enum cli_exit model_parse(struct cli *cli, memplan_model **out,
                                 const struct source *source)
{
    char name[NAME_MAX_BYTES] = "stdin";
    if (strcmp(source->name, "<stdin>") != 0)
        name_of_path(name, sizeof(name), source->name);
    memplan_status status = memplan_model_parse_as(
        out, source->text, source->len, name, cli->as, NULL, cli_errors(cli));
    if (status != MEMPLAN_OK)
        return message_library(cli, status, CLI_SPEC, source);
    if (!strchr(source->name, '/') && input_in_catalogue(source->name))
        message_note(cli, "reading the file '%s', not the catalogue's model",
                     source->name);
    return CLI_OK;
}

/* ORG/NAME as model hubs write it, and no path that somebody mistyped. */
static bool is_hub_id(const char *operand)
{
    size_t n = strlen(operand);
    return strchr(operand, '/') && !strchr("./~", operand[0])
           && !(n >= 5 && strcmp(operand + n - 5, ".json") == 0);
}

/* Takes the words away that tell a model trained further from its base, which
 * has the same shapes. buf has room for the whole name. */
static void base_name(char *buf, const char *name)
{
    static const char *const words[] = { "instruct", "chat", "hf", "it",
                                         "base" };
    size_t at = 0;
    buf[0] = '\0';
    for (const char *p = name; *p;) {
        size_t n = strcspn(p, "-");
        bool further = false;
        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
            char word[16] = "";
            if (n < sizeof(word))
                memcpy(word, p, n);
            further = further || text_distance(word, words[i]) == 0;
        }
        if (!further) {
            if (at > 0)
                buf[at++] = '-';
            memcpy(buf + at, p, n);
            at += n;
            buf[at] = '\0';
        }
        p += n + (p[n] == '-');
    }
}

/* What the catalogue has by a name like that, in the library's words; false
 * when it has nothing. */
static bool hint_near(struct cli *cli, struct text *hint, const char *name)
{
    static const char found[] = "did you mean";
    if (input_in_catalogue(name)) {
        text_format(hint, "the catalogue has '%s'", name);
        return true;
    }
    memplan_model *model = NULL;
    if (memplan_model_builtin(&model, name, NULL, cli_errors(cli))
            == MEMPLAN_E_UNKNOWN
        && strncmp(cli->slot[0].hint, found, sizeof(found) - 1) == 0)
        text_put(hint, cli->slot[0].hint);
    memplan_model_free(model);
    return hint->n > 0;
}

/* The same for a name of n bytes, and then for the one of its base. */
static bool hint_like(struct cli *cli, struct text *hint, const char *name,
                      size_t n)
{
    char whole[NAME_MAX_BYTES];
    char base[NAME_MAX_BYTES];
    if (n == 0 || n >= sizeof(whole))
        return false;
    memcpy(whole, name, n);
    whole[n] = '\0';
    base_name(base, whole);
    return hint_near(cli, hint, whole)
           || (strcmp(base, whole) != 0 && hint_near(cli, hint, base));
}

/* An address, or a name on a hub: the catalogue may have the model. */
static enum cli_exit model_remote(struct cli *cli, const char *operand)
{
    struct text hint = { 0 };
    for (const char *p = operand; *p && hint.n == 0;) {
        size_t n = strcspn(p, "/");
        hint_like(cli, &hint, p, n);
        p += n + (p[n] == '/');
    }
    if (hint.n == 0)
        text_put(&hint, "save the model's config.json and name that file");
    enum cli_exit r =
        message_error(cli, CLI_SPEC, hint.p,
                      "no such file: '%s' (nothing is downloaded)", operand);
    text_release(&hint);
    return r;
}

/* A path that is not there. */
static enum cli_exit path_unknown(struct cli *cli, const char *operand)
{
    char name[NAME_MAX_BYTES];
    struct text hint = { 0 };
    name_of_path(name, sizeof(name), operand);
    if (input_in_catalogue(name))
        text_format(&hint, "the catalogue has '%s'", name);
    enum cli_exit r =
        message_error(cli, CLI_SPEC, hint.p, "no such file: '%s'", operand);
    text_release(&hint);
    return r;
}

/* No file has the path and no model the name. */
static enum cli_exit model_unknown(struct cli *cli, const char *operand)
{
    if (strstr(operand, "://") || is_hub_id(operand))
        return model_remote(cli, operand);
    if (strchr(operand, '/'))
        return path_unknown(cli, operand);
    const struct command *command = cli_command_nearest(operand);
    struct text hint = { 0 };
    bool near = hint_like(cli, &hint, operand, strlen(operand));
    if (command && (!near || text_distance(operand, command->name) == 1)) {
        text_release(&hint);
        text_format(&hint, "did you mean the command '%s'?", command->name);
    } else if (!near) {
        text_put(&hint, "'memplan models' lists all; a path to a config.json "
                        "works too");
    }
    enum cli_exit r = message_error(
        cli, CLI_SPEC, hint.p, "no file and no model is called '%s'", operand);
    text_release(&hint);
    return r;
}

static enum cli_exit model_folder(struct cli *cli, const char *operand)
{
    size_t n = strlen(operand);
    struct text path = { 0 };
    text_format(&path, "%s%sconfig.json", operand,
                n > 0 && operand[n - 1] == '/' ? "" : "/");
    char *text = NULL;
    size_t len = 0;
    const char *why = "";
    struct text hint = { 0 };
    if (!path.failed
        && cli->host->read_file(cli->host->ctx, path.p, &text, &len, &why)
               == HOST_READ_OK)
        text_format(&hint, "name its file: %s", path.p);
    free(text);
    enum cli_exit r = message_error(
        cli, CLI_IO, hint.p, "cannot read '%s': it is a folder", operand);
    text_release(&path);
    text_release(&hint);
    return r;
}

/* The part that --part names. */
static enum cli_exit choose_part(struct cli *cli, memplan_model **out)
{
    if (cli->part == NULL)
        return CLI_OK;
    memplan_status status =
        memplan_model_select(*out, cli->part, cli_errors(cli));
    if (status == MEMPLAN_OK)
        return CLI_OK;
    memplan_model_free(*out);
    *out = NULL;
    return message_library(cli, status, CLI_SPEC, NULL);
}

static enum cli_exit read_model(struct cli *cli, memplan_model **out,
                                const char *operand)
{
    struct source source = { 0 };
    char *text = NULL;
    const char *why = "";
    enum host_read r = input_read(cli, operand, &source, &text, &why);
    if (r == HOST_READ_OK) {
        enum cli_exit result = model_parse(cli, out, &source);
        free(text);
        return result;
    }
    if (r == HOST_READ_FAILED)
        return input_failed(cli, r, operand, why);

    memplan_status status =
        memplan_model_builtin(out, operand, NULL, cli_errors(cli));
    if (status == MEMPLAN_OK && cli->as != NULL) {
        memplan_model_free(*out);
        *out = NULL;
        return message_usage(cli, "leave --as out, or name a file",
                             "--as: '%s' is of the catalogue, whose types are "
                             "known",
                             operand);
    }
    if (status == MEMPLAN_OK)
        return CLI_OK;
    if (status != MEMPLAN_E_UNKNOWN)
        return message_library(cli, status, CLI_SPEC, NULL);
    if (r == HOST_READ_DIRECTORY)
        return model_folder(cli, operand);
    return model_unknown(cli, operand);
}

enum cli_exit input_model(struct cli *cli, memplan_model **out,
                          const char *operand)
{
    const enum cli_exit r = read_model(cli, out, operand);
    return r == CLI_OK ? choose_part(cli, out) : r;
}

/* ---- setup ---- */

static enum cli_exit setup_file(struct cli *cli, memplan_setup *setup,
                                const char *path)
{
    struct source source = { 0 };
    char *text = NULL;
    const enum cli_exit r = input_file(cli, &source, &text, path);
    if (r != CLI_OK)
        return r;
    const memplan_status status =
        memplan_setup_parse(setup, source.text, source.len, cli_errors(cli));
    return input_parsed(cli, status, &source, text);
}

static enum cli_exit setup_option(struct cli *cli, memplan_setup *setup,
                                  const struct opt_given *given)
{
    const struct opt_row *row = given->row;
    const char *value = given->value;
    if (row->negative)
        value = "false";
    else if (!value)
        value = "true";
    memplan_status status =
        memplan_setup_set(setup, row->key, value, cli_errors(cli));
    if (status == MEMPLAN_OK)
        return CLI_OK;
    return message_library(cli, status, CLI_USAGE, NULL);
}

static enum cli_exit prices_file(struct cli *cli, memplan_setup *setup,
                                 const char *path)
{
    struct source source = { 0 };
    char *text = NULL;
    const enum cli_exit r = input_file(cli, &source, &text, path);
    if (r != CLI_OK)
        return r;
    const memplan_status status =
        memplan_setup_prices(setup, source.text, source.len, cli_errors(cli));
    return input_parsed(cli, status, &source, text);
}

/* A configuration of another program. What it goes on in is named as seen from
 * where that program starts, or lies beside it. */
static enum cli_exit config_file(struct cli *cli, memplan_setup *setup,
                                 const char *dialect, const char *path)
{
    struct source source = { 0 };
    char *text = NULL;
    const enum cli_exit r = input_file(cli, &source, &text, path);
    if (r != CLI_OK)
        return r;
    const memplan_status status = memplan_setup_import(
        setup, dialect, source.text, source.len, source.name, cli_errors(cli));
    return input_parsed(cli, status, &source, text);
}

enum { FILES_DEEP = 4 }; /* files that name files, before it is a circle */

static enum host_read try_read(struct cli *cli, const char *path)
{
    const char *why = "";
    char *text = NULL;
    size_t len = 0;
    enum host_read r =
        cli->host->read_file(cli->host->ctx, path, &text, &len, &why);
    free(text);
    return r;
}

/* The file that an option names; NULL: there is no such option. */
static const char *given_file(const struct cli *cli, const char *dialect)
{
    for (size_t i = 0; i < cli->line.given_count; i++)
        if (cli->line.given[i].row->id == OPT_ID_CONFIG
            && strcmp(cli->line.given[i].row->name, dialect) == 0)
            return cli->line.given[i].value;
    return NULL;
}

/* Names are of where a program starts, which need not be here. */
static enum cli_exit named_absent(struct cli *cli, const char *path,
                                  const char *dialect, const char *beside)
{
    struct text hint = { 0 };
    text_format(&hint,
                "'%s' names it: it is looked for beside that file and where "
                "memplan starts; start it in the folder that the name is of, "
                "or add --%s FILE",
                path, dialect);
    const enum cli_exit r = message_error(
        cli, CLI_IO, hint.p, "cannot read '%s': no such file", beside);
    text_release(&hint);
    return r;
}

/* The file that `path` goes on in. Of a line that starts a program it need not
 * be here, and a hostfile never: then, or where another one is given, the line
 * is read alone; where it is not here, any file beside a given one: *on is false
 * then. One that is here and cannot be read is an error. */
static enum cli_exit config_next(struct cli *cli, memplan_setup *setup,
                                 const char *path, bool optional, bool *on)
{
    const char *dialect = NULL;
    const char *named = memplan_setup_pending(setup, &dialect);
    const char *slash = strrchr(path, '/');
    const int folder = slash ? (int)(slash - path) + 1 : 0;
    const bool hosts = strcmp(dialect, "hostfile") == 0;
    const char *given = given_file(cli, dialect);
    if (hosts && given != NULL)
        return config_file(cli, setup, dialect, given);
    *on = !optional || given == NULL;
    if (!*on)
        return CLI_OK;
    struct text beside = { 0 }, there = { 0 };
    enum cli_exit r = CLI_OK;
    text_format(&beside, "%.*s%s", named[0] == '/' ? 0 : folder, path, named);
    text_put(&there, named);
    const enum host_read here = try_read(cli, there.p);
    const enum host_read near = try_read(cli, beside.p);
    const bool aside = here != HOST_READ_OK
                       && (near == HOST_READ_OK || here == HOST_READ_ABSENT);
    const bool absent = aside && near == HOST_READ_ABSENT;
    if (absent && given != NULL && !hosts)
        *on = false;
    else if (absent && (optional || hosts))
        memplan_setup_pending_skip(setup);
    else if (absent)
        r = named_absent(cli, path, dialect, beside.p);
    else
        r = config_file(cli, setup, dialect, aside ? beside.p : there.p);
    text_release(&there);
    text_release(&beside);
    return r;
}

static enum cli_exit config_files(struct cli *cli, memplan_setup *setup,
                                  const char *dialect, const char *path)
{
    const bool optional = strcmp(dialect, "torchrun") == 0;
    enum cli_exit r = config_file(cli, setup, dialect, path);
    bool on = true;
    for (int i = 0; i < FILES_DEEP && r == CLI_OK && on; i++) {
        if (memplan_setup_pending(setup, NULL) == NULL)
            return CLI_OK;
        r = config_next(cli, setup, path, optional, &on);
    }
    const char *named = memplan_setup_pending(setup, NULL);
    if (r != CLI_OK || !on || named == NULL)
        return r;
    return message_error(cli, CLI_SPEC,
                         "each names another one: give the last one alone",
                         "'%s' goes on in more than %d files, the next is '%s'",
                         path, FILES_DEEP, named);
}

static enum cli_exit calibration_file(struct cli *cli, const char *path,
                                      memplan_setup *setup,
                                      memplan_score *score)
{
    struct source source = { 0 };
    char *text = NULL;
    const enum cli_exit r = input_file(cli, &source, &text, path);
    if (r != CLI_OK)
        return r;
    const memplan_status status =
        setup ? memplan_setup_calibrate(setup, source.text, source.len,
                                        source.name, cli_errors(cli))
              : memplan_score_calibrate(score, source.text, source.len,
                                        source.name, cli_errors(cli));
    return input_parsed(cli, status, &source, text);
}

enum cli_exit input_calibration(struct cli *cli, memplan_setup *setup,
                                memplan_score *score)
{
    enum cli_exit r = CLI_OK;
    for (size_t i = 0; i < cli->line.given_count && r == CLI_OK; i++)
        if (cli->line.given[i].row->id == OPT_ID_CALIBRATION)
            r = calibration_file(cli, cli->line.given[i].value, setup, score);
    return r;
}

static bool is_config(const struct opt_given *given, const char *dialect)
{
    return given->row->id == OPT_ID_CONFIG
           && strcmp(given->row->key, dialect) == 0;
}

/* DeepSpeed's file leaves some to the Trainer and has to agree with the rest,
 * whichever of the two is named first: it is read behind the last of the
 * Trainer's. Where that is; 0: no file waits. */
static size_t last_of_trainer(const struct cli *cli)
{
    size_t last = 0;
    for (size_t i = 0; i < cli->line.given_count; i++)
        if (is_config(&cli->line.given[i], "training-args"))
            last = i;
    return last;
}

static enum cli_exit config_option(struct cli *cli, memplan_setup *setup,
                                   size_t at)
{
    const struct opt_given *given = cli->line.given;
    const size_t last = last_of_trainer(cli);
    if (at < last && is_config(&given[at], "deepspeed"))
        return CLI_OK;
    enum cli_exit r =
        config_files(cli, setup, given[at].row->key, given[at].value);
    for (size_t i = 0; at == last && i < last && r == CLI_OK; i++)
        if (is_config(&given[i], "deepspeed"))
            r = config_files(cli, setup, given[i].row->key, given[i].value);
    return r;
}

/* Files first, wherever they stand: an option overrides every file. */
static enum cli_exit setup_fill(struct cli *cli, memplan_setup *setup)
{
    enum cli_exit r = input_calibration(cli, setup, NULL);
    for (size_t i = 0; i < cli->line.given_count && r == CLI_OK; i++) {
        const struct opt_given *given = &cli->line.given[i];
        if (given->row->id == OPT_ID_SETUP)
            r = setup_file(cli, setup, given->value);
        else if (given->row->id == OPT_ID_PRICES)
            r = prices_file(cli, setup, given->value);
        else if (given->row->id == OPT_ID_CONFIG)
            r = config_option(cli, setup, i);
    }
    for (size_t i = 0; i < cli->line.given_count && r == CLI_OK; i++) {
        const struct opt_given *given = &cli->line.given[i];
        if (given->row->id == OPT_ID_KEY)
            r = setup_option(cli, setup, given);
    }
    return r;
}

enum cli_exit input_setup(struct cli *cli, memplan_setup **out)
{
    memplan_status status = memplan_setup_new(out, NULL, cli_errors(cli));
    if (status != MEMPLAN_OK)
        return message_library(cli, status, CLI_LIMIT, NULL);
    enum cli_exit r = setup_fill(cli, *out);
    if (r != CLI_OK) {
        memplan_setup_free(*out);
        *out = NULL;
    }
    return r;
}
