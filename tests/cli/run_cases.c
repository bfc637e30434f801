/*
 * Runs the cases of the command line, the files tests/cli/NAME.t, inside this
 * process: cli_main on a host made of the case's own files, environment and
 * terminal.
 *
 *     run_cases [--bless] FILE.t...
 *
 * A case is sections, each a line "== NAME" and what follows it, word for
 * word; what stands before the first one is a comment. An absent section is
 * empty, an absent exit is 0.
 *
 *     args             words; 'single quotes' hold blanks
 *     stdin            standard input
 *     file PATH        a file
 *     folder PATH      a folder
 *     denied PATH      a file that cannot be read or written
 *     env              lines NAME=VALUE
 *     tty              words: stdout, stderr, a number of columns
 *     full             writing to standard output fails
 *     stdout, stderr   what must come out, exactly
 *     stdout ~         lines, each of which must be somewhere in it
 *     wrote PATH ~     lines, each of which must be in what was written there
 *     exit             the status
 *
 * --bless writes what came out into the files, except into "~" sections.
 */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SECTIONS_MAX = 32, ARGS_MAX = 64, WORDS_MAX = 4096 };

struct section {
    const char *head; /* after "== ", ends in NUL */
    const char *body; /* ends in NUL */
    size_t len;
};

struct test_case {
    const char *path;
    char *text; /* cut up by the sections */
    char *comment;
    struct section section[SECTIONS_MAX];
    size_t count;
    struct text out;
    struct text err;
    struct text file; /* the one that was written */
    char file_path[256];
    int status;
};

/* ---- reading a case ---- */

static char *read_whole(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    struct text t = { 0 };
    char buf[4096];
    size_t n;
    while ((n = fread(buf, 1, sizeof(buf), f)) > 0)
        text_write(&t, buf, n);
    text_write(&t, "", 0);
    bool bad = ferror(f) || t.failed;
    fclose(f);
    if (!bad)
        return t.p;
    text_release(&t);
    return NULL;
}

/* The next line that begins a section, NULL when there is none. */
static char *next_head(char *p)
{
    while (p && strncmp(p, "== ", 3) != 0) {
        p = strchr(p, '\n');
        p = p ? p + 1 : NULL;
    }
    return p;
}

/* One case a file: what stands under a head that was there would be passed over. */
static bool heads_differ(const struct test_case *c, const char *path)
{
    for (size_t i = 1; i < c->count; i++)
        for (size_t k = 0; k < i; k++) {
            if (strcmp(c->section[i].head, c->section[k].head) != 0)
                continue;
            printf("%s: '== %s' twice\n", path, c->section[i].head);
            return false;
        }
    return true;
}

static bool case_read(struct test_case *c, const char *path)
{
    memset(c, 0, sizeof(*c));
    c->path = path;
    c->text = read_whole(path);
    if (!c->text)
        return false;
    char *p = next_head(c->text);
    c->comment = c->text;
    while (p && c->count < SECTIONS_MAX) {
        struct section *s = &c->section[c->count++];
        *p = '\0'; /* ends the body before */
        s->head = p + 3;
        char *end = strchr(p + 3, '\n');
        if (!end)
            return false;
        *end = '\0';
        s->body = end + 1;
        p = next_head(end + 1);
        s->len = p ? (size_t)(p - s->body) : strlen(s->body);
    }
    return c->count > 0 && !p && heads_differ(c, path);
}

static const struct section *case_find(const struct test_case *c,
                                       const char *head)
{
    for (size_t i = 0; i < c->count; i++) {
        if (strcmp(c->section[i].head, head) == 0)
            return &c->section[i];
    }
    return NULL;
}

static const struct section *case_find_path(const struct test_case *c,
                                            const char *kind, const char *path)
{
    char head[512];
    snprintf(head, sizeof(head), "%s %s", kind, path);
    return case_find(c, head);
}

/* ---- the host of a case ---- */

static const char *test_write(void *ctx, enum host_stream stream,
                              const char *text, size_t len)
{
    struct test_case *c = ctx;
    if (stream == HOST_OUT && case_find(c, "full"))
        return "No space left on device";
    text_write(stream == HOST_OUT ? &c->out : &c->err, text, len);
    return NULL;
}

static const char *test_close_out(void *ctx)
{
    (void)ctx;
    return NULL;
}

static enum host_read test_read_file(void *ctx, const char *path, char **text,
                                     size_t *len, const char **why)
{
    struct test_case *c = ctx;
    const struct section *s =
        path ? case_find_path(c, "file", path) : case_find(c, "stdin");
    if (path && case_find_path(c, "folder", path))
        return HOST_READ_DIRECTORY;
    if (path && case_find_path(c, "denied", path)) {
        *why = "Permission denied";
        return HOST_READ_FAILED;
    }
    if (path && !s)
        return HOST_READ_ABSENT;
    struct text copy = { 0 };
    text_write(&copy, s ? s->body : "", s ? s->len : 0);
    *text = copy.p;
    *len = copy.n;
    return HOST_READ_OK;
}

static const char *test_write_file(void *ctx, const char *path,
                                   const char *text, size_t len)
{
    struct test_case *c = ctx;
    if (case_find_path(c, "denied", path))
        return "Permission denied";
    snprintf(c->file_path, sizeof(c->file_path), "%s", path);
    text_write(&c->file, text, len);
    return NULL;
}

static const char *case_tty(const struct test_case *c, const char *word)
{
    const struct section *s = case_find(c, "tty");
    return s ? strstr(s->body, word) : NULL;
}

static bool test_isatty(void *ctx, enum host_stream stream)
{
    return case_tty(ctx, stream == HOST_OUT ? "stdout" : "stderr") != NULL;
}

static int test_width(void *ctx)
{
    const struct section *s = case_find(ctx, "tty");
    size_t skip = s ? strcspn(s->body, "0123456789") : 0;
    return s ? (int)strtol(s->body + skip, NULL, 10) : 0;
}

static const char *test_getenv(void *ctx, const char *name)
{
    static char value[256];
    const struct section *s = case_find(ctx, "env");
    size_t n = strlen(name);
    for (const char *p = s ? s->body : ""; *p;) {
        size_t line = strcspn(p, "\n");
        if (line > n && strncmp(p, name, n) == 0 && p[n] == '=') {
            snprintf(value, sizeof(value), "%.*s", (int)(line - n - 1),
                     p + n + 1);
            return value;
        }
        p += line + (p[line] == '\n');
    }
    return NULL;
}

/* ---- running it ---- */

struct words {
    char buf[WORDS_MAX];
    char *argv[ARGS_MAX + 1];
    int argc;
};

static bool words_split(struct words *w, const char *s)
{
    static char program[] = "memplan";
    size_t n = 0;
    w->argc = 0;
    w->argv[w->argc++] = program;
    for (;;) {
        s += strspn(s, " \n");
        if (!*s)
            break;
        if (w->argc == ARGS_MAX)
            return false;
        w->argv[w->argc++] = &w->buf[n];
        bool quoted = false;
        for (; *s && (quoted || !strchr(" \n", *s)); s++) {
            if (n + 2 > sizeof(w->buf))
                return false;
            if (*s == '\'')
                quoted = !quoted;
            else
                w->buf[n++] = *s;
        }
        w->buf[n++] = '\0';
    }
    w->argv[w->argc] = NULL;
    return true;
}

static bool case_run(struct test_case *c)
{
    static struct words words;
    const struct section *args = case_find(c, "args");
    if (!words_split(&words, args ? args->body : ""))
        return false;
    const struct host host = {
        .ctx = c,
        .write = test_write,
        .close_out = test_close_out,
        .read_file = test_read_file,
        .write_file = test_write_file,
        .isatty = test_isatty,
        .width = test_width,
        .getenv = test_getenv,
    };
    text_write(&c->out, "", 0);
    text_write(&c->err, "", 0);
    c->status = cli_main(words.argc, words.argv, &host);
    return !c->out.failed && !c->err.failed;
}

/* ---- comparing ---- */

static bool all_fragments(const struct section *s, const struct text *got,
                          const char *name)
{
    bool good = true;
    char line[512];
    for (const char *p = s->body; *p;) {
        size_t n = strcspn(p, "\n");
        snprintf(line, sizeof(line), "%.*s", (int)n, p);
        if (!strstr(got->p, line)) {
            printf("  %s does not contain: %s\n", name, line);
            good = false;
        }
        p += n + (p[n] == '\n');
    }
    return good;
}

static bool case_stream(const struct test_case *c, const char *name,
                        const struct text *got)
{
    char head[16];
    snprintf(head, sizeof(head), "%s ~", name);
    const struct section *part = case_find(c, head);
    if (part) {
        bool good = all_fragments(part, got, name);
        if (!good)
            printf("  --- %s is\n%s", name, got->p);
        return good;
    }
    const struct section *s = case_find(c, name);
    if (strcmp(s ? s->body : "", got->p) == 0)
        return true;
    printf("  --- %s should be\n%s  --- %s is\n%s", name, s ? s->body : "",
           name, got->p);
    return false;
}

/* A file is written where the case says so, and nowhere else. */
static bool case_wrote(const struct test_case *c)
{
    char head[300];
    for (size_t i = 0; i < c->count && c->file.n == 0; i++) {
        if (strncmp(c->section[i].head, "wrote ", 6) != 0)
            continue;
        printf("  nothing was written: %s\n", c->section[i].head);
        return false;
    }
    if (c->file.n == 0)
        return true;
    snprintf(head, sizeof(head), "wrote %s ~", c->file_path);
    const struct section *s = case_find(c, head);
    if (!s)
        printf("  wrote %s\n", c->file_path);
    return s && all_fragments(s, &c->file, c->file_path);
}

/* "1 layers": the word after the number behind `at`, where that is one. */
static bool is_plural_of_one(const char *text, const char *at)
{
    static const char *const words[] = {
        "GPUs",       "nodes",   "ranks",  "stages",      "layers",
        "heads",      "tokens",  "steps",  "numbers",     "parameters",
        "experts",    "samples", "images", "copies",      "entries",
        "candidates", "rows",    "groups", "such groups",
    };
    if (at > text && strchr(" (,\n", at[-1]) == NULL)
        return false;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        const size_t n = strlen(words[i]);
        if (strncmp(at + 2, words[i], n) == 0
            && strchr(" ,;:.)\n", at[2 + n]) != NULL)
            return true;
    }
    return false;
}

static bool case_grammar(const struct text *got)
{
    const char *at = got->n > 0 ? got->p : "";
    while ((at = strstr(at, "1 ")) != NULL) {
        if (is_plural_of_one(got->p, at)) {
            printf("  one of many: %.30s\n", at);
            return false;
        }
        at++;
    }
    return true;
}

static bool case_compare(const struct test_case *c)
{
    const struct section *s = case_find(c, "exit");
    int wanted = s ? (int)strtol(s->body, NULL, 10) : 0;
    bool good = case_stream(c, "stdout", &c->out);
    good = case_stream(c, "stderr", &c->err) && good;
    good = case_wrote(c) && good;
    good = case_grammar(&c->out) && case_grammar(&c->err) && good;
    if (c->status != wanted) {
        printf("  exit status is %d, should be %d\n", c->status, wanted);
        good = false;
    }
    return good;
}

/* ---- blessing ---- */

static bool is_result(const char *head)
{
    return strcmp(head, "stdout") == 0 || strcmp(head, "stderr") == 0
           || strcmp(head, "exit") == 0;
}

static void bless_stream(FILE *f, const struct test_case *c, const char *name,
                         const struct text *got)
{
    char head[16];
    snprintf(head, sizeof(head), "%s ~", name);
    if (got->n > 0 && !case_find(c, head))
        fprintf(f, "== %s\n%s%s", name, got->p,
                got->p[got->n - 1] == '\n' ? "" : "\n");
}

static bool case_bless(const struct test_case *c)
{
    FILE *f = fopen(c->path, "wb");
    if (!f)
        return false;
    if (c->comment != c->section[0].head - 3)
        fputs(c->comment, f);
    for (size_t i = 0; i < c->count; i++) {
        const struct section *s = &c->section[i];
        if (!is_result(s->head))
            fprintf(f, "== %s\n%s", s->head, s->body);
    }
    bless_stream(f, c, "stdout", &c->out);
    bless_stream(f, c, "stderr", &c->err);
    if (c->status != 0)
        fprintf(f, "== exit\n%d\n", c->status);
    return fclose(f) == 0;
}

static bool case_pass(const char *path, bool bless)
{
    struct test_case c;
    bool good = case_read(&c, path) && case_run(&c);
    if (!good)
        printf("%s: not a case that can be run\n", path);
    else if (bless)
        good = case_bless(&c);
    else if (!(good = case_compare(&c)))
        printf("%s: failed\n", path);
    free(c.text);
    text_release(&c.out);
    text_release(&c.err);
    text_release(&c.file);
    return good;
}

int main(int argc, char **argv)
{
    bool bless = argc > 1 && strcmp(argv[1], "--bless") == 0;
    bool good = true;
    for (int i = 1 + bless; i < argc; i++)
        good = case_pass(argv[i], bless) && good;
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
