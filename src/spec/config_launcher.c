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

/* ---- words ---- */

static char at_of(const struct config_launches *l, size_t i)
{
    return i < l->len ? l->text[i] : '\n';
}

/* Behind the line that a backslash here joins with the next; 0: it does not. */
static size_t joined(const struct config_launches *l, size_t i)
{
    if (at_of(l, i) != '\\')
        return 0;
    for (i++; is_gap(at_of(l, i));)
        i++;
    return i < l->len && l->text[i] == '\n' ? i + 1 : 0;
}

/* Of a comment: to the end of its line, or behind it where that is joined. */
static size_t comment_end(const struct config_launches *l, size_t i)
{
    while (at_of(l, i) != '\n' && joined(l, i) == 0)
        i++;
    return joined(l, i) != 0 ? joined(l, i) : i;
}

/* Bytes of what ends a command, here; 0: it does not end. "2>&1" is a word. */
static size_t end_of(const struct config_launches *l, size_t i, bool in_word)
{
    const char c = at_of(l, i), next = at_of(l, i + 1);
    const bool alone = !in_word && (is_gap(next) || next == '\n');
    if (c == '\n' || c == ';')
        return 1;
    if ((c == '&' || c == '|') && next == c)
        return 2;
    return (c == '&' || c == '|') && alone ? 1 : 0;
}

/* The next word of a command; empty behind its last one. */
static struct str next_word(struct config_launches *l)
{
    char quote = '\0';
    for (;;) {
        const size_t on = joined(l, l->at);
        if (on != 0)
            l->at = on;
        else if (at_of(l, l->at) == '#')
            l->at = comment_end(l, l->at);
        else if (is_gap(at_of(l, l->at)))
            l->at++;
        else
            break;
    }
    struct str word = { l->text + l->at, 0 };
    for (size_t i = l->at; i < l->len && l->text[i] != '\n'; i++) {
        const char c = l->text[i];
        if (quote == '\0'
            && (is_gap(c) || joined(l, i) != 0 || end_of(l, i, word.n > 0) > 0))
            break;
        if (c == '"' || c == '\'')
            quote = quote == '\0' ? c : quote == c ? '\0' : quote;
        word.n++;
    }
    l->at += word.n;
    return word;
}

/* ---- commands ---- */

/* What stands before a command without being one: NAME=value, nohup. */
static bool is_before(struct str word)
{
    static const char *const words[] = { "exec", "nohup", "time",   "sudo",
                                         "env",  "srun",  "export", "then",
                                         "do",   "else",  "if",     "!",
                                         "{",    "(" };
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

static const char *launcher_of(struct config_launches l, struct str word)
{
    const struct str name = file_part(word);
    if (str_is(name, "deepspeed"))
        return "deepspeed";
    if (str_is(name, "torchrun"))
        return "torchrun";
    if (str_is(name, "accelerate-launch")
        || (str_is(name, "accelerate") && str_is(next_word(&l), "launch")))
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

static size_t line_number(const char *text, const char *at)
{
    size_t n = 1;
    for (; text < at; text++)
        n += *text == '\n';
    return n;
}

/* One command: whether it starts processes. An assignment alone is for those
 * that come after it. */
static bool next_command(struct config_launches *l)
{
    uint64_t seen = 0;
    bool inside = false;
    l->program = NULL;
    for (struct str word = next_word(l); word.n > 0; word = next_word(l)) {
        const uint64_t visible = inside ? 0 : devices_of(word);
        seen = visible > 0 ? visible : seen;
        if (!inside)
            l->program = launcher_of(*l, word);
        if (!inside && l->program != NULL)
            l->from = (size_t)(word.p - l->text);
        inside = inside || !is_before(word);
    }
    l->to = l->at;
    l->at += l->at < l->len ? end_of(l, l->at, false) : 0;
    l->exported = seen > 0 && !inside ? seen : l->exported;
    l->visible = seen > 0 ? seen : l->exported;
    return l->program != NULL;
}

bool config_next_launch(struct config_launches *l)
{
    while (l->at < l->len)
        if (next_command(l))
            return true;
    return false;
}

void config_find_launcher(const char *text, size_t len,
                          struct config_launcher *out)
{
    struct config_launches l = { .text = text, .len = len };
    *out = (struct config_launcher){ .program = NULL };
    while (config_next_launch(&l)) {
        const size_t line = line_number(text, text + l.from);
        out->line[0] = out->n == 0 ? line : out->line[0];
        out->line[1] = line;
        out->program = l.program;
        out->visible = l.visible;
        out->n++;
    }
}
