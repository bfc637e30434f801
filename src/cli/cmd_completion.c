/*
 * memplan completion SHELL: a script made from the tables, with the names of
 * models and GPUs in it. Which values follow an option is a table's row too;
 * only the shells' own languages are written here.
 */
#include "cli.h"

#include <string.h>

/* ---- what the three have in common ---- */

static void put_names(struct text *t, const char *(*name)(size_t),
                      const char *before)
{
    const char *s;
    for (size_t i = 0; (s = name(i)); i++) {
        text_put(t, i ? before : "");
        text_put(t, s);
    }
}

static const char *command_name(size_t index)
{
    const struct command *c = cli_command(index);
    return c && c->run ? c->name : NULL;
}

/* An option whose value is a file: one of the program's own names. */
static bool takes_file(const struct opt_row *row)
{
    return opt_is_file(row);
}

static bool takes_gpu(const struct opt_row *row)
{
    return row->id == OPT_ID_KEY && strcmp(row->key, "gpu") == 0;
}

/* The words that may follow, space separated; false when any may. */
static bool put_values(struct text *t, const struct opt_row *row)
{
    if (takes_gpu(row))
        put_names(t, memplan_gpu_name, " ");
    else if (row->choices[0])
        text_put(t, row->choices);
    else
        return false;
    while (t->n > 0 && t->p[t->n - 1] == ' ')
        t->n--;
    return true;
}

/* In single quotes of a shell. */
static void put_quoted(struct text *t, const char *s, const char *escape)
{
    for (; *s; s++) {
        if (*s == '\'')
            text_put(t, "'\\''");
        else {
            if (strchr(escape, *s))
                text_put(t, "\\");
            text_write(t, s, 1);
        }
    }
}

static void put_head(struct text *t, const char *shell)
{
    text_format(t, "# memplan %s; written by 'memplan completion %s'\n",
                memplan_version(), shell);
}

/* ---- bash ---- */

static void bash_values(struct cli *cli, struct text *t)
{
    for (size_t i = 0; i < cli->table.count; i++) {
        const struct opt_row *row = &cli->table.row[i];
        if (row->value != OPT_VALUE_NEEDED)
            continue;
        text_format(t, "    --%s)\n        COMPREPLY=(", row->name);
        if (takes_file(row)) {
            text_put(t, "$(compgen -f -- \"$cur\")");
        } else {
            struct text words = { 0 };
            if (put_values(&words, row) && row->type == MEMPLAN_TYPE_LIST)
                text_format(t,
                            "$(compgen -P \"${cur%%\"${cur##*,}\"}\" -W '%s' "
                            "-- \"${cur##*,}\")",
                            words.p);
            else if (words.n > 0)
                text_format(t, "$(compgen -W '%s' -- \"$cur\")", words.p);
            text_release(&words);
        }
        text_put(t, ")\n        return ;;\n");
    }
}

static void bash_script(struct cli *cli, struct text *t)
{
    put_head(t, "bash");
    text_put(t, "_memplan()\n{\n"
                "    local cur=${COMP_WORDS[COMP_CWORD]}\n"
                "    local prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                "    # bash hands over '--key=value' in three words\n"
                "    if [[ $cur == '=' ]]; then\n"
                "        cur=\n"
                "    elif [[ $prev == '=' ]]; then\n"
                "        prev=${COMP_WORDS[COMP_CWORD-2]}\n"
                "    fi\n"
                "    local models='");
    put_names(t, memplan_builtin_name, " ");
    text_put(t, "'\n    case $prev in\n");
    bash_values(cli, t);
    text_put(t, "    esac\n"
                "    if [[ $cur == -* ]]; then\n"
                "        COMPREPLY=($(compgen -W '");
    for (size_t i = 0; i < cli->table.count; i++)
        text_format(t, "%s--%s", i ? " " : "", cli->table.row[i].name);
    text_put(t, "' -- \"$cur\"))\n"
                "        return\n"
                "    fi\n"
                "    case $COMP_CWORD:${COMP_WORDS[1]} in\n"
                "    1:*) models=\"");
    put_names(t, command_name, " ");
    text_put(t, " $models\" ;;\n"
                "    *:gpus)\n        COMPREPLY=($(compgen -W '");
    put_names(t, memplan_gpu_name, " ");
    text_put(t, "' -- \"$cur\"))\n        return ;;\n"
                "    *:completion)\n"
                "        COMPREPLY=($(compgen -W 'bash zsh fish' -- "
                "\"$cur\"))\n        return ;;\n"
                "    *:help)\n        COMPREPLY=($(compgen -W '");
    put_names(t, command_name, " ");
    text_put(t, "' -- \"$cur\"))\n        return ;;\n"
                "    *:score|*:calibrate)\n"
                "        COMPREPLY=($(compgen -f -- \"$cur\"))\n"
                "        return ;;\n"
                "    esac\n"
                "    COMPREPLY=($(compgen -f -- \"$cur\")\n"
                "               $(compgen -W \"$models\" -- \"$cur\"))\n"
                "}\n"
                "complete -o filenames -F _memplan memplan\n");
}

/* ---- zsh ---- */

static void zsh_option(struct text *t, const struct opt_row *row)
{
    static const char special[] = "[]:\\";
    text_format(t, "        '--%s%s[", row->name,
                row->value == OPT_VALUE_NEEDED ? "=" : "");
    put_quoted(t, row->doc, special);
    text_put(t, "]");
    if (row->value == OPT_VALUE_NEEDED) {
        text_put(t, ":");
        put_quoted(t, row->placeholder, special);
        text_put(t, ":");
        struct text words = { 0 };
        if (takes_file(row))
            text_put(t, "_files");
        else if (put_values(&words, row))
            text_format(t, "(%s)", words.p);
        text_release(&words);
    }
    text_put(t, "' \\\n");
}

static void zsh_script(struct cli *cli, struct text *t)
{
    text_put(t, "#compdef memplan\n");
    put_head(t, "zsh");
    text_put(t, "_memplan_operands()\n{\n"
                "    local -a commands models gpus\n"
                "    commands=(\n");
    const struct command *c;
    for (size_t i = 0; (c = cli_command(i)) && c->run; i++) {
        text_format(t, "        '%s:", c->name);
        put_quoted(t, c->summary, "\\");
        text_put(t, "'\n");
    }
    text_put(t, "    )\n    models=(");
    put_names(t, memplan_builtin_name, " ");
    text_put(t, ")\n    gpus=(");
    put_names(t, memplan_gpu_name, " ");
    text_put(t, ")\n"
                "    case $CURRENT:${words[2]} in\n"
                "    2:*) _describe command commands ;;\n"
                "    *:gpus) compadd -a gpus; return ;;\n"
                "    *:completion) compadd bash zsh fish; return ;;\n"
                "    *:help) _describe command commands; return ;;\n"
                "    *:score|*:calibrate) _files; return ;;\n"
                "    esac\n"
                "    compadd -a models\n"
                "    _files\n"
                "}\n"
                "_memplan()\n{\n"
                "    _arguments -S \\\n");
    for (size_t i = 0; i < cli->table.count; i++)
        zsh_option(t, &cli->table.row[i]);
    text_put(t, "        '*:model:_memplan_operands'\n"
                "}\n"
                "if [[ $funcstack[1] == _memplan ]]; then\n"
                "    _memplan \"$@\"\n"
                "else\n"
                "    compdef _memplan memplan\n"
                "fi\n");
}

/* ---- fish ---- */

static void fish_option(struct text *t, const struct opt_row *row)
{
    text_format(t, "complete -c memplan -l %s", row->name);
    if (row->letter)
        text_format(t, " -s %c", row->letter);
    if (takes_file(row))
        text_put(t, " -r -F");
    else if (row->value == OPT_VALUE_NEEDED) {
        text_put(t, " -x");
        struct text words = { 0 };
        if (put_values(&words, row))
            text_format(t, " -a '%s'", words.p);
        text_release(&words);
    }
    text_put(t, " -d '");
    put_quoted(t, row->doc, "\\");
    text_put(t, "'\n");
}

static void fish_script(struct cli *cli, struct text *t)
{
    put_head(t, "fish");
    const struct command *c;
    for (size_t i = 0; (c = cli_command(i)) && c->run; i++) {
        text_format(t,
                    "complete -c memplan -n __fish_use_subcommand -a %s "
                    "-d '",
                    c->name);
        put_quoted(t, c->summary, "");
        text_put(t, "'\n");
    }
    text_put(t, "complete -c memplan -n 'not __fish_seen_subcommand_from gpus "
                "completion help score calibrate' -a '");
    put_names(t, memplan_builtin_name, " ");
    text_put(t, "'\n"
                "complete -c memplan -n '__fish_seen_subcommand_from gpus' "
                "-f -a '");
    put_names(t, memplan_gpu_name, " ");
    text_put(t, "'\n"
                "complete -c memplan -n '__fish_seen_subcommand_from "
                "completion' -f -a 'bash zsh fish'\n"
                "complete -c memplan -n '__fish_seen_subcommand_from help' "
                "-f -a '");
    put_names(t, command_name, " ");
    text_put(t, "'\n");
    for (size_t i = 0; i < cli->table.count; i++)
        fish_option(t, &cli->table.row[i]);
}

enum cli_exit cmd_completion(struct cli *cli)
{
    const char *shell = cli->operand[0];
    if (strcmp(shell, "bash") == 0)
        bash_script(cli, &cli->out);
    else if (strcmp(shell, "zsh") == 0)
        zsh_script(cli, &cli->out);
    else if (strcmp(shell, "fish") == 0)
        fish_script(cli, &cli->out);
    else
        return message_usage(cli, NULL, "'%s' is none of: bash, zsh, fish",
                             shell);
    return CLI_OK;
}
