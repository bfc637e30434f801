/*
 * Owns the words of a launch script: where one begins and ends, and what $NAME
 * is, as far as the script itself says it. No shell: what only one could tell
 * stays as it is written.
 */
#include "spec/config_words.h"

#include "spec/config_sum.h"

#include "base/count.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

/* ---- words ---- */

bool script_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '"' || c == '\'';
}

bool script_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
           || (c >= '0' && c <= '9') || c == '_';
}

/* A backslash before the end of the line joins it with the next. */
static bool is_joined(const struct script *s)
{
    size_t i = s->at + 1;
    while (i < s->len && (s->text[i] == ' ' || s->text[i] == '\r'))
        i++;
    return s->text[s->at] == '\\' && i < s->len && s->text[i] == '\n';
}

bool script_to_word(struct script *s)
{
    while (s->at < s->len && s->text[s->at] != '\n') {
        const char c = s->text[s->at];
        const bool ends =
            s->at + 1 >= s->len || script_blank(s->text[s->at + 1])
            || s->text[s->at + 1] == '\n' || s->text[s->at + 1] == '-';
        if (c == '#')
            return false;
        if (is_joined(s))
            s->at = (size_t)((const char *)memchr(s->text + s->at, '\n',
                                                  s->len - s->at)
                             - s->text);
        else if (!script_blank(c)
                 && !((c == '(' || c == ')' || c == '\\') && ends))
            return true;
        s->at++;
    }
    return false;
}

struct str script_word(struct script *s)
{
    struct str word = { s->text + s->at, 0 };
    const bool braced = s->at + 1 < s->len && s->text[s->at] == '$'
                        && s->text[s->at + 1] == '{';
    bool inside = braced; /* ${NAME:-"default"} */
    size_t deep = 0;      /* $((A * B)) */
    while (s->at < s->len && s->text[s->at] != '\n' && !is_joined(s)
           && (inside || deep > 0 || !script_blank(s->text[s->at]))) {
        const char c = s->text[s->at];
        inside = inside && c != '}';
        if (c == '(' && (deep > 0 || s->text[s->at - (s->at > 0)] == '$'))
            deep++;
        deep -= c == ')' && deep > 0;
        s->at++;
    }
    word.n = (size_t)(s->text + s->at - word.p);
    const bool opened = memchr(word.p, '(', word.n) != NULL;
    while (word.n > 1
           && (word.p[word.n - 1] == ';'
               || (word.p[word.n - 1] == ')' && !opened)))
        word.n--;
    return word;
}

void script_next_line(struct script *s)
{
    while (s->at < s->len && s->text[s->at] != '\n')
        s->at++;
    s->at += s->at < s->len;
}

/* ---- branches ---- */

/* Behind a quoted text, or at the end. */
static size_t quote_end(const struct script *s, size_t i)
{
    const char quote = s->text[i];
    for (i++; i < s->len && s->text[i] != quote; i++)
        i += s->text[i] == '\\' && quote == '"';
    return i + 1;
}

/* The end of the bytes that are no blank and end no command. */
static size_t word_end(const struct script *s, size_t i)
{
    while (i < s->len && strchr(" \t\r\n;&|()", s->text[i]) == NULL)
        i = s->text[i] == '"' || s->text[i] == '\'' ? quote_end(s, i) : i + 1;
    return min_u64(i, s->len);
}

static bool is_one_of(struct str word, const char *words)
{
    struct str rest = str_of(words);
    while (rest.n > 0) {
        const struct str one = str_cut(rest, ' ', &rest);
        if (word.n == one.n && memcmp(word.p, one.p, one.n) == 0)
            return true;
    }
    return false;
}

/* The shell's words are where a command begins. */
void script_branch(struct branches *b, const struct script *s, size_t to)
{
    bool begins = b->at == 0;
    size_t i = b->at;
    while (i < to && i < s->len) {
        const char c = s->text[i];
        const bool gap = c == ' ' || c == '\t' || c == '\r';
        if (gap || strchr("\n;&|()", c) != NULL) {
            begins = !gap || begins;
            i++;
            continue;
        }
        if (c == '#') {
            while (i < s->len && s->text[i] != '\n')
                i++;
            continue;
        }
        const size_t end = word_end(s, i);
        const struct str word = { s->text + i, end - i };
        if (begins && is_one_of(word, "if case"))
            b->open++;
        else if (begins && is_one_of(word, "fi esac") && b->open > 0)
            b->open--;
        begins = begins && is_one_of(word, "then else elif do");
        i = end;
        /* what a backslash joins goes on */
        if (word.p[word.n - 1] == '\\' && i < s->len && s->text[i] == '\n')
            i++;
    }
    b->at = i;
}

/* ---- what $NAME is ---- */

/* What stands behind the last "NAME=" before `end` that begins a word. */
static struct str assigned(const struct script *s, struct str name, size_t end)
{
    struct str found = { "", 0 };
    for (size_t i = 0; i + name.n + 1 < end; i++) {
        const bool begins = i == 0 || s->text[i - 1] == '\n'
                            || s->text[i - 1] == ' ' || s->text[i - 1] == ';';
        if (!begins || s->text[i + name.n] != '='
            || memcmp(s->text + i, name.p, name.n) != 0)
            continue;
        struct script rest = *s;
        rest.at = i + name.n + 1;
        if (rest.at < s->len && !script_blank(s->text[rest.at]))
            found = script_word(&rest);
        else if (script_to_word(&rest))
            found = script_word(&rest);
    }
    return found;
}

/* "$NAME", "${NAME}" or "${NAME:-default}": its name, and the default. */
static struct str variable(struct str word, struct str *fallback)
{
    struct str name = { word.p + 1, word.n - 1 };
    *fallback = (struct str){ "", 0 };
    if (name.n > 0 && name.p[0] == '{') {
        name = (struct str){ name.p + 1, name.n > 1 ? name.n - 2 : 0 };
        struct str inside = name;
        name = str_cut(inside, ':', fallback);
        if (fallback->n > 0) /* '-' or '=' */
            *fallback = (struct str){ fallback->p + 1, fallback->n - 1 };
        if (fallback->n > 1 && script_blank(fallback->p[0])
            && script_blank(fallback->p[fallback->n - 1])) /* its quotes */
            *fallback = (struct str){ fallback->p + 1, fallback->n - 2 };
    }
    for (size_t i = 0; i < name.n; i++) {
        if (!script_name_byte(name.p[i]))
            return (struct str){ "", 0 };
    }
    return name;
}

/* What is around a sum: "$((8 * N))", "$(expr 8 \* $N)". */
struct around {
    size_t before, behind; /* bytes; before 0: it is none */
};

static struct around sum_around(struct str word)
{
    static const char expr[] = "$(expr ";
    const size_t n = sizeof(expr) - 1;
    if (word.n > 5 && memcmp(word.p, "$((", 3) == 0 && word.p[word.n - 1] == ')'
        && word.p[word.n - 2] == ')')
        return (struct around){ 3, 2 };
    if (word.n > n + 1 && memcmp(word.p, expr, n) == 0
        && word.p[word.n - 1] == ')')
        return (struct around){ n, 1 };
    return (struct around){ 0, 0 };
}

bool script_is_sum(struct str word)
{
    return sum_around(word).before > 0;
}

struct str script_follow(const struct script *s, struct str word, size_t end)
{
    enum { STEPS_MAX = 8 }; /* names of names, before it is a circle */
    for (int i = 0; i < STEPS_MAX && word.n > 1 && word.p[0] == '$'
                    && !script_is_sum(word);
         i++) {
        struct str fallback;
        struct str name = variable(word, &fallback);
        struct str value = { "", 0 };
        if (name.n > 0)
            value = assigned(s, name, end);
        if (value.n == 0)
            value = fallback;
        if (value.n == 0)
            return word;
        word = value;
        end = (size_t)(word.p - s->text);
    }
    return word;
}

/* "$((8*NODES))", "$(($GPUS * ${NODES}))": each name by its value, in
 * parentheses, until there is none; then it is a sum. */
enum { SUM_TEXT = 400, SUM_STEPS = 8 };

/* The name at text[i], with or without its "$"; its value. */
static struct str named(const struct script *s, const char *text, size_t *i,
                        size_t end)
{
    struct str word = { text + *i, 0 }, fallback = { "", 0 };
    const bool dollar = text[*i] == '$';
    const bool brace = dollar && text[*i + 1] == '{';
    size_t n = dollar + brace;
    while (brace ? text[*i + n] != '\0' && text[*i + n] != '}'
                 : script_name_byte(text[*i + n]))
        n++;
    word.n = n + (brace && text[*i + n] == '}');
    *i += word.n;
    struct str name = dollar ? variable(word, &fallback) : word;
    struct str value = { "", 0 };
    if (name.n > 0)
        value = assigned(s, name, end);
    value = value.n > 0 ? value : fallback;
    if (value.n == 0 || value.p < s->text || value.p >= s->text + s->len)
        return value;
    return script_follow(s, value, (size_t)(value.p - s->text));
}

/* Replaces names once; false when one has no value, or there is no room.
 * *more when a value was put in. */
static bool put_values(const struct script *s, char text[SUM_TEXT], size_t end,
                       bool *more)
{
    char out[SUM_TEXT] = "";
    size_t n = 0;
    *more = false;
    for (size_t i = 0; text[i] != '\0';) {
        const char c = text[i];
        const bool inner = c == '$' && text[i + 1] == '(';
        const bool name = !inner && (c == '$' || c == '_' || c > '9');
        if (n + 2 >= SUM_TEXT)
            return false;
        if (!name) {
            out[n] = c;
            n += !inner; /* "$((" within: its parentheses */
            out[n] = '\0';
            i++;
            continue;
        }
        struct str value = named(s, text, &i, end);
        if (value.n == 0 || n + value.n + 3 >= SUM_TEXT)
            return false;
        n = str_append(out, sizeof(out), "(%.*s)", (int)value.n, value.p);
        *more = true;
    }
    memcpy(text, out, sizeof(out));
    return true;
}

static struct str sum_value(struct script *s, struct str word, size_t end)
{
    char text[SUM_TEXT];
    uint64_t n = 0;
    bool more = true;
    if (word.n >= sizeof(text))
        return word;
    const struct around a = sum_around(word);
    str_format(text, sizeof(text), "%.*s", (int)(word.n - a.before - a.behind),
               word.p + a.before);
    for (int i = 0; i < SUM_STEPS && more; i++) {
        if (!put_values(s, text, end, &more))
            return word;
    }
    if (more || !sum_of(str_of(text), &n))
        return word;
    const char *copy = arena_printf(s->arena, "%" PRIu64, n);
    if (copy == NULL)
        diag_nomem(s->diag);
    return copy == NULL ? word : str_of(copy);
}

struct str script_value(struct script *s, struct str word)
{
    const size_t end = (size_t)(word.p - s->text);
    word = script_follow(s, word, end);
    return script_is_sum(word) ? sum_value(s, word, end) : word;
}
