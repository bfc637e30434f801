/*
 * Owns the question which program a script's line starts processes with, where
 * that name alone says it, and which GPUs the shell lets it see. Knows no flag.
 */
#include "spec/config.h"

#include <string.h>

#include "base/banned.h"

static bool is_gap(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The next word of a line; empty at its end. */
static struct str next_word(struct str *line)
{
    while (line->n > 0 && is_gap(line->p[0]))
        *line = (struct str){ line->p + 1, line->n - 1 };
    struct str word = { line->p, 0 };
    while (word.n < line->n && !is_gap(word.p[word.n]))
        word.n++;
    *line = (struct str){ line->p + word.n, line->n - word.n };
    return word;
}

/* What stands before a command without being one: NAME=value, nohup. */
static bool is_before(struct str word)
{
    static const char *const words[] = { "exec", "nohup", "time", "sudo",
                                         "env",  "srun",  "&&",   "||",
                                         ";",    "then",  "do",   "export" };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (str_is(word, words[i]))
            return true;
    return memchr(word.p, '=', word.n) != NULL && word.p[0] != '-';
}

/* Of /usr/bin/deepspeed, deepspeed. */
static struct str file_part(struct str word)
{
    for (size_t i = word.n; i > 0; i--)
        if (word.p[i - 1] == '/')
            return (struct str){ word.p + i, word.n - i };
    return word;
}

static const char *launcher_of(struct str word, struct str rest)
{
    const struct str name = file_part(word);
    if (str_is(name, "deepspeed"))
        return "deepspeed";
    if (str_is(name, "torchrun"))
        return "torchrun";
    if (str_is(name, "accelerate-launch")
        || (str_is(name, "accelerate") && str_is(next_word(&rest), "launch")))
        return "accelerate";
    return NULL;
}

/* "0,1,2" are three; 0 where only the shell knows. */
static uint64_t devices_of(struct str word)
{
    struct str list;
    uint64_t n = 0;
    if (!str_is(str_cut(word, '=', &list), "CUDA_VISIBLE_DEVICES"))
        return 0;
    while (list.n > 0) {
        const struct str one = str_cut(list, ',', &list);
        bool digit = false;
        for (size_t i = 0; i < one.n; i++) {
            digit = digit || (one.p[i] >= '0' && one.p[i] <= '9');
            if (one.p[i] == '$')
                return 0;
        }
        n += digit;
    }
    return n;
}

/* A backslash joins a line with the next. */
static bool is_joined(struct str line)
{
    while (line.n > 0 && is_gap(line.p[line.n - 1]))
        line.n--;
    return line.n > 0 && line.p[line.n - 1] == '\\';
}

static size_t line_number(const char *text, const char *at)
{
    size_t n = 1;
    for (; text < at; text++)
        n += *text == '\n';
    return n;
}

/* A command that starts processes, at `from`: of several the last one counts. */
static void found(struct config_launcher *out, const char *text,
                  const char *from, const char *program)
{
    out->line[out->n > 0] = line_number(text, from);
    if (out->n == 0)
        out->line[1] = out->line[0];
    if (out->n > 0 && out->n <= CONFIG_LAUNCHES_MAX)
        out->before[out->n - 1] = out->at;
    out->n++;
    out->at.from = (size_t)(from - text);
    out->program = program;
}

/* What a line starts, if anything; `inside`: its first words are arguments. */
static bool search_line(struct config_launcher *out, const char *text,
                        struct str line, bool inside)
{
    for (struct str word = next_word(&line); word.n > 0 && word.p[0] != '#';
         word = next_word(&line)) {
        const uint64_t visible = inside ? 0 : devices_of(word);
        out->visible = visible > 0 ? visible : out->visible;
        const char *program = inside ? NULL : launcher_of(word, line);
        if (program != NULL)
            found(out, text, word.p, program);
        if (program != NULL)
            return true;
        if (str_is(word, "\\"))
            break;
        inside = word.p[word.n - 1] != ';' && !str_is(word, "&&")
                 && (inside || !is_before(word));
    }
    return inside;
}

void config_find_launcher(const char *text, size_t len,
                          struct config_launcher *out)
{
    struct str rest = { text, len };
    bool goes_on = false; /* a backslash: arguments of the line before */
    uint64_t exported = 0;
    *out = (struct config_launcher){ .program = NULL };
    while (rest.n > 0) {
        const size_t before = out->n;
        const uint64_t last = out->visible;
        struct str line = str_cut(rest, '\n', &rest);
        out->visible = goes_on ? last : exported;
        const bool inside = search_line(out, text, line, goes_on);
        if (out->n == before && !goes_on)
            exported = out->visible;
        if (out->n == before && out->n > 0) /* is of commands after it */
            out->visible = last;
        if (out->n > before || (goes_on && out->n > 0 && out->at.to == 0))
            out->at.to = is_joined(line) ? 0 : (size_t)(line.p - text) + line.n;
        goes_on = inside && is_joined(line);
    }
    if (out->n > 0 && out->at.to == 0)
        out->at.to = len;
}

size_t config_launched_before(const struct config_launcher *of, size_t at)
{
    for (size_t i = 0; i + 1 < of->n && i < CONFIG_LAUNCHES_MAX; i++)
        if (of->before[i].from <= at && at < of->before[i].to)
            return of->before[i].to;
    return at;
}
