/*
 * Owns what standard error says: usage errors, errors in texts in the form
 * editors can jump to, with the line and a caret, and notes. On a terminal
 * words are broken before its last column; elsewhere each message and each hint
 * is one line, for grep and for editors. Refuses to know what is wrong; only
 * how it is shown.
 */
#include "cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    MESSAGE_MAX = 1024,
    EXCERPT_WIDTH = 68, /* of a line of the source; longer ones are cut */
    EXCERPT_BEFORE = 40 /* of them at most before the caret */
};

static void message_send(struct cli *cli, struct text *t)
{
    /* A failed write of an error has nowhere to be reported. */
    if (t->n > 0)
        (void)cli->host->write(cli->host->ctx, HOST_ERR, t->p, t->n);
    text_release(t);
}

/* From users: what would move the cursor of a terminal becomes '?'. */
static void put_clean(struct text *t, const char *s)
{
    for (; *s; s++) {
        bool control = (unsigned char)*s < ' ' || *s == '\177';
        text_write(t, control ? "?" : s, 1);
    }
}

static void put_label(const struct cli *cli, struct text *t)
{
    text_put(t, cli->colour_errors ? "\033[1;31merror:\033[0m " : "error: ");
}

/* Asked when it is needed: what is wrong on the command line is told before
 * anything of it is known. */
static size_t message_width(const struct cli *cli)
{
    const struct host *h = cli->host;
    const int width = h->isatty(h->ctx, HOST_ERR) ? h->width(h->ctx) : 0;
    return width > 0 && width < WIDTH_LEAST ? WIDTH_LEAST : (size_t)width;
}

/* Ends the line: broken on a terminal, going on at `indent`. */
static void put_line(const struct cli *cli, struct text *t, struct text *line,
                     size_t indent)
{
    const size_t width = message_width(cli);
    const char *p = line->p ? line->p : "";
    if (width > 0) {
        for (; *p == ' '; p++)
            text_put(t, " ");
        text_wrap(t, p, indent, width);
    } else {
        text_put(t, p);
    }
    text_put(t, "\n");
    t->failed = t->failed || line->failed;
    text_release(line);
}

enum { MESSAGE_INDENT = 4, HINT_INDENT = 8 };

static void put_hint(const struct cli *cli, struct text *t, const char *hint)
{
    struct text line = { 0 };
    if (!hint || !hint[0])
        return;
    text_put(&line, "  hint: ");
    put_clean(&line, hint);
    put_line(cli, t, &line, HINT_INDENT);
}

static void put_plain(const struct cli *cli, struct text *t, const char *format,
                      va_list args)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 0)))
#endif
    ;

static void put_plain(const struct cli *cli, struct text *t, const char *format,
                      va_list args)
{
    char buf[MESSAGE_MAX];
    struct text line = { 0 };
    int n = vsnprintf(buf, sizeof(buf), format, args);
    text_put(&line, "memplan: ");
    put_clean(&line, buf);
    text_put(&line, n < MESSAGE_MAX ? "" : "...");
    put_line(cli, t, &line, MESSAGE_INDENT);
}

enum cli_exit message_error(struct cli *cli, enum cli_exit status,
                            const char *hint, const char *format, ...)
{
    struct text t = { 0 };
    va_list args;
    va_start(args, format);
    put_plain(cli, &t, format, args);
    va_end(args);
    put_hint(cli, &t, hint);
    message_send(cli, &t);
    return status;
}

static void put_try(const struct cli *cli, struct text *t)
{
    text_format(t, "try 'memplan help%s%s'\n", cli->command ? " " : "",
                cli->command ? cli->command->name : "");
}

enum cli_exit message_usage(struct cli *cli, const char *hint,
                            const char *format, ...)
{
    struct text t = { 0 };
    va_list args;
    va_start(args, format);
    put_plain(cli, &t, format, args);
    va_end(args);
    put_hint(cli, &t, hint);
    put_try(cli, &t);
    message_send(cli, &t);
    return CLI_USAGE;
}

void message_note(struct cli *cli, const char *format, ...)
{
    if (cli->quiet)
        return;
    char buf[MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(buf, sizeof(buf), format, args);
    va_end(args);
    struct text t = { 0 }, line = { 0 };
    text_put(&line, "memplan: note: ");
    put_clean(&line, buf);
    put_line(cli, &t, &line, MESSAGE_INDENT);
    message_send(cli, &t);
}

/* ---- errors in a text ---- */

/* How many bytes the character at p takes, 1 for a byte that begins none. */
static size_t char_bytes(const char *p, const char *end)
{
    unsigned char c = (unsigned char)*p;
    size_t n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 1;
    if (c >= 0xf5 || n > (size_t)(end - p))
        return 1;
    for (size_t i = 1; i < n; i++) {
        if (((unsigned char)p[i] & 0xc0) != 0x80)
            return 1;
    }
    return n;
}

/* One character of the source, one column wide; tabs become blanks. */
static size_t put_char(struct text *t, const char *p, const char *end)
{
    size_t n = char_bytes(p, end);
    unsigned char c = (unsigned char)*p;
    if (n > 1)
        text_write(t, p, n);
    else if (c == '\t')
        text_put(t, " ");
    else if (c < ' ' || c >= 0x7f)
        text_put(t, "?");
    else
        text_write(t, p, 1);
    return n;
}

static const char *find_line(const struct source *source, uint32_t line)
{
    const char *p = source->text;
    const char *end = p + source->len;
    for (uint32_t at = 1; at < line; at++) {
        p = memchr(p, '\n', (size_t)(end - p));
        if (!p)
            return NULL;
        p++;
    }
    return p;
}

/* The line and a caret below its column. A long line is shown in part, the
 * place in view: files without line breaks are common. */
static void put_excerpt(struct text *t, const struct source *source,
                        const memplan_error *e)
{
    const char *p = find_line(source, e->line);
    if (!p || e->column == 0)
        return;
    const char *end = source->text + source->len;
    const char *stop = memchr(p, '\n', (size_t)(end - p));
    if (stop)
        end = stop;
    if (end > p && end[-1] == '\r')
        end--;
    size_t room = (size_t)(end - p);
    const char *caret = p + (e->column - 1 < room ? e->column - 1 : room);

    const char *from = p;
    while (caret - from > EXCERPT_BEFORE)
        from += char_bytes(from, end);
    text_format(t, "%5u | %s", (unsigned)e->line, from > p ? "..." : "");
    size_t blanks = from > p ? 3 : 0;
    size_t shown = 0;
    for (const char *q = from; q < end && shown < EXCERPT_WIDTH; shown++) {
        blanks += q < caret;
        q += put_char(t, q, end);
        if (shown + 1 == EXCERPT_WIDTH && q < end)
            text_put(t, "...");
    }
    text_put(t, "\n      | ");
    for (size_t i = 0; i < blanks; i++)
        text_put(t, " ");
    text_put(t, "^\n");
}

static void put_in_source(const struct cli *cli, struct text *t,
                          const memplan_error *e, const struct source *source)
{
    struct text line = { 0 };
    put_clean(&line, source->name);
    text_put(&line, ":");
    if (e->line > 0)
        text_format(&line, "%u:", (unsigned)e->line);
    if (e->line > 0 && e->column > 0)
        text_format(&line, "%u:", (unsigned)e->column);
    text_put(&line, " ");
    put_label(cli, &line);
    if (e->pointer[0]) {
        put_clean(&line, e->pointer);
        text_put(&line, ": ");
    }
    put_clean(&line, e->message);
    put_line(cli, t, &line, MESSAGE_INDENT);
    if (e->line > 0 && source->text)
        put_excerpt(t, source, e);
    put_hint(cli, t, e->hint);
}

/* About the command line: the option that sets the key is named. */
static void put_on_line(const struct cli *cli, struct text *t,
                        const memplan_error *e)
{
    char option[OPT_NAME_MAX];
    struct text line = { 0 };
    text_kebab(option, sizeof(option), e->key);
    text_put(&line, "memplan: ");
    if (option[0])
        text_format(&line, "--%s: ", option);
    put_clean(&line, e->message);
    put_line(cli, t, &line, MESSAGE_INDENT);
    put_hint(cli, t, e->hint);
}

/* The user can mend some of what fails; `wrong` says where. */
static enum cli_exit exit_of(memplan_status status, enum cli_exit wrong)
{
    switch (status) {
    case MEMPLAN_OK: return CLI_OK;
    case MEMPLAN_E_ARG:
    case MEMPLAN_E_SYNTAX:
    case MEMPLAN_E_SCHEMA:
    case MEMPLAN_E_RANGE:
    case MEMPLAN_E_CONFLICT:
    case MEMPLAN_E_UNKNOWN:
    case MEMPLAN_E_UNSUPPORTED: return wrong;
    case MEMPLAN_E_WRITE: return CLI_IO;
    case MEMPLAN_E_NOMEM:
    case MEMPLAN_E_OVERFLOW: return CLI_LIMIT;
    }
    return CLI_LIMIT;
}

/* In the order of the text: found is not the order in which one mends. */
static void sort_by_place(memplan_error *item, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        const memplan_error e = item[i];
        size_t j = i;
        for (; j > 0 && item[j - 1].offset > e.offset; j--)
            item[j] = item[j - 1];
        item[j] = e;
    }
}

enum cli_exit message_library(struct cli *cli, memplan_status status,
                              enum cli_exit wrong, const struct source *source)
{
    enum cli_exit result = exit_of(status, wrong);
    /* Results go to a text in memory: a failed write is lack of memory. */
    if (status == MEMPLAN_E_WRITE && cli->out.failed)
        result = CLI_LIMIT;
    size_t kept = cli->errs.count < cli->errs.capacity ? cli->errs.count
                                                       : cli->errs.capacity;
    if (source)
        sort_by_place(cli->errs.item, kept);
    struct text t = { 0 };
    for (size_t i = 0; i < kept; i++) {
        if (source)
            put_in_source(cli, &t, &cli->errs.item[i], source);
        else
            put_on_line(cli, &t, &cli->errs.item[i]);
    }
    if (kept == 0)
        text_format(&t, "memplan: %s\n", memplan_status_text(status));
    if (cli->errs.count > kept)
        text_format(&t, "memplan: and %zu more\n", cli->errs.count - kept);
    if (result == CLI_USAGE)
        put_try(cli, &t);
    message_send(cli, &t);
    return result;
}
