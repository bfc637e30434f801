/*
 * Runs what the documentation shows: in every ```console block each command
 * must print what the block says it prints.
 *
 *     run_docs [--bless] PROGRAM FILE...
 *
 * A line "$ memplan ..." (or "$ build/memplan ...") is a command, and may go
 * on after a backslash; the lines up to the next command, or to the end of the
 * block, are its output, standard error included. A line "..." stands for any
 * lines, none among them. --bless puts the real output there: elided blocks
 * stay elided while their lines differ in numbers only.
 *
 * Blocks tagged sh are not run here; to be there a command must be one that
 * something else runs or that nothing can check (`elsewhere`).
 *
 * The shell runs the commands, in the folder that run_docs was started in.
 * Exit status: 0 all as written, 1 something differs, 2 usage, input, output.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* First words that a block tagged sh may have. */
static const char *const elsewhere[] = {
    "apt-get", "brew",   "cc",  "cd",         "clang-format", "cmake",
    "ctest",   "dnf",    "git", "groff",      "make",         "man",
    "mandoc",  "pacman", "sh",  "pkg-config", "sudo",
};

/* ---- text ---- */

struct buffer {
    char *p;
    size_t n, capacity;
};

static void no_memory(void)
{
    fputs("run_docs: out of memory\n", stderr);
    exit(2);
}

static void buffer_put(struct buffer *b, const char *p, size_t n)
{
    if (b->n + n + 1 > b->capacity) {
        const size_t more = 2 * (b->n + n) + 256;
        char *grown = realloc(b->p, more);
        if (grown == NULL)
            no_memory();
        b->p = grown;
        b->capacity = more;
    }
    if (n > 0)
        memcpy(b->p + b->n, p, n);
    b->n += n;
    b->p[b->n] = '\0';
}

static void buffer_text(struct buffer *b, const char *text)
{
    buffer_put(b, text, strlen(text));
}

struct line {
    const char *p;
    size_t n; /* without the newline */
};

struct lines {
    struct line *at;
    size_t n, capacity;
};

static void lines_add(struct lines *l, struct line line)
{
    if (l->n == l->capacity) {
        const size_t more = 2 * l->capacity + 64;
        struct line *grown = realloc(l->at, more * sizeof *grown);
        if (grown == NULL)
            no_memory();
        l->at = grown;
        l->capacity = more;
    }
    l->at[l->n++] = line;
}

static void lines_split(struct lines *l, const struct buffer *b)
{
    l->n = 0;
    for (size_t i = 0; i < b->n;) {
        const char *end = memchr(b->p + i, '\n', b->n - i);
        const size_t n = end == NULL ? b->n - i : (size_t)(end - b->p) - i;
        lines_add(l, (struct line){ b->p + i, n });
        i += n + 1;
    }
}

static bool line_is(struct line line, const char *text)
{
    return line.n == strlen(text) && memcmp(line.p, text, line.n) == 0;
}

static bool line_begins(struct line line, const char *text)
{
    const size_t n = strlen(text);
    return line.n >= n && memcmp(line.p, text, n) == 0;
}

static struct line first_word(struct line line)
{
    size_t from = 0;
    while (from < line.n && line.p[from] == ' ')
        from++;
    size_t to = from;
    while (to < line.n && line.p[to] != ' ')
        to++;
    return (struct line){ line.p + from, to - from };
}

/* ---- comparison ---- */

typedef bool line_match(struct line expected, struct line got);

static bool same_line(struct line expected, struct line got)
{
    return expected.n == got.n && memcmp(expected.p, got.p, got.n) == 0;
}

/* Of numbers, and of what their width and size move. */
static bool is_number_part(char c)
{
    return c != '\0' && strchr("0123456789 .,%#<+-", c) != NULL;
}

static bool same_words(struct line expected, struct line got)
{
    size_t i = 0, j = 0;
    for (;;) {
        while (i < expected.n && is_number_part(expected.p[i]))
            i++;
        while (j < got.n && is_number_part(got.p[j]))
            j++;
        if (i == expected.n || j == got.n)
            return i == expected.n && j == got.n;
        if (expected.p[i++] != got.p[j++])
            return false;
    }
}

struct match {
    bool ok;
    size_t expected, got; /* the first pair that differs */
};

/* "..." matches any lines: on a difference the last one takes one more. With
 * `pair`, pair[i] is the line of `got` that stands for expected line i. */
static struct match match_lines(const struct line *expected, size_t n_expected,
                                const struct lines *got, line_match *same,
                                size_t *pair)
{
    struct match far = { false, 0, 0 };
    size_t i = 0, j = 0, star = n_expected, taken = 0;
    while (j < got->n || i < n_expected) {
        if (i < n_expected && line_is(expected[i], "...")) {
            star = i++;
            taken = j;
            continue;
        }
        if (i < n_expected && j < got->n && same(expected[i], got->at[j])) {
            if (pair != NULL)
                pair[i] = j;
            i++;
            j++;
            continue;
        }
        if (i >= far.expected) {
            far.expected = i;
            far.got = j;
        }
        if (star == n_expected || taken >= got->n)
            return far;
        i = star + 1;
        j = ++taken;
    }
    return (struct match){ true, i, j };
}

/* ---- commands ---- */

struct run {
    const char *program; /* path of the binary */
    bool bless;
    unsigned commands, differences, failures;
};

static void complain(struct run *r, const char *path, size_t line,
                     const char *what, struct line about)
{
    fprintf(stderr, "%s:%zu: %s%.*s\n", path, line + 1, what, (int)about.n,
            about.n > 0 ? about.p : "");
    r->differences++;
}

/* What a command prints. `build/memplan` is the program, wherever it is;
 * `memplan` is found by PATH. */
static bool run_command(struct buffer *out, const struct run *r,
                        struct line command)
{
    static const char in_tree[] = "build/memplan";
    struct buffer shell = { 0 };
    buffer_text(&shell, "{ ");
    if (line_is(first_word(command), in_tree)) {
        buffer_text(&shell, "'");
        buffer_text(&shell, r->program);
        buffer_text(&shell, "'");
        command.p += sizeof in_tree - 1;
        command.n -= sizeof in_tree - 1;
    }
    buffer_put(&shell, command.p, command.n);
    buffer_text(&shell, "\n} 2>&1 </dev/null");

    FILE *pipe = popen(shell.p, "r");
    free(shell.p);
    if (pipe == NULL)
        return false;
    char chunk[4096];
    size_t n;
    out->n = 0;
    while ((n = fread(chunk, 1, sizeof chunk, pipe)) > 0)
        buffer_put(out, chunk, n);
    const bool read = !ferror(pipe);
    /* the status is the example's own affair: a block may show a failure */
    return pclose(pipe) != -1 && read;
}

/* ---- one example ---- */

struct example {
    const char *path;
    size_t at;       /* line of the command */
    size_t from, to; /* lines of its output */
};

static void report_difference(struct run *r, const struct example *x,
                              const struct lines *file, const struct lines *got,
                              struct match m)
{
    static const struct line nothing = { "", 0 };
    const size_t i = x->from + m.expected;
    const bool more = i >= x->to;
    complain(r, x->path, more ? x->to - 1 : i,
             more ? "expected no more lines" : "expected: ",
             more ? nothing : file->at[i]);
    if (m.got < got->n)
        fprintf(stderr, "    but got: %.*s\n", (int)got->at[m.got].n,
                got->at[m.got].p);
    else
        fputs("    but the output ends\n", stderr);
}

static void put_line(struct buffer *b, struct line line)
{
    buffer_put(b, line.p, line.n);
    buffer_put(b, "\n", 1);
}

/* The output as it shall be written: with the ellipses of before where the
 * words are still the same. */
static void bless_output(struct buffer *text, const struct example *x,
                         const struct lines *file, const struct lines *got)
{
    const struct line *old = file->at + x->from;
    const size_t n = x->to - x->from;
    bool elided = false;
    for (size_t i = 0; i < n; i++)
        elided = elided || line_is(old[i], "...");
    size_t *pair = calloc(n + 1, sizeof *pair);
    if (pair == NULL)
        no_memory();
    if (elided && match_lines(old, n, got, same_words, pair).ok) {
        for (size_t i = 0; i < n; i++)
            put_line(text, line_is(old[i], "...") ? old[i] : got->at[pair[i]]);
    } else {
        if (elided)
            fprintf(stderr, "%s:%zu: note: no longer elided\n", x->path,
                    x->at + 1);
        for (size_t i = 0; i < got->n; i++)
            put_line(text, got->at[i]);
    }
    free(pair);
}

static void run_example(struct run *r, struct buffer *text,
                        const struct example *x, const struct lines *file,
                        struct line command)
{
    struct buffer out = { 0 };
    struct lines got = { 0 };
    r->commands++;
    if (!run_command(&out, r, command)) {
        fprintf(stderr, "%s:%zu: cannot run it\n", x->path, x->at + 1);
        r->failures++;
    }
    lines_split(&got, &out);
    const struct match m =
        match_lines(file->at + x->from, x->to - x->from, &got, same_line, NULL);
    if (!m.ok && r->bless) {
        bless_output(text, x, file, &got);
    } else {
        if (!m.ok)
            report_difference(r, x, file, &got, m);
        for (size_t i = x->from; i < x->to; i++)
            put_line(text, file->at[i]);
    }
    free(got.at);
    free(out.p);
}

/* ---- blocks ---- */

static bool is_memplan(struct line command)
{
    const struct line word = first_word(command);
    return line_is(word, "memplan") || line_is(word, "build/memplan");
}

/* Lines [i, end) of a console block. */
static void console_block(struct run *r, struct buffer *text, const char *path,
                          const struct lines *file, size_t i, size_t end)
{
    while (i < end) {
        if (!line_begins(file->at[i], "$ ")) {
            complain(r, path, i, "no command above this line: ", file->at[i]);
            put_line(text, file->at[i++]);
            continue;
        }
        struct example x = { .path = path, .at = i };
        struct buffer command = { 0 };
        buffer_put(&command, file->at[i].p + 2, file->at[i].n - 2);
        put_line(text, file->at[i]);
        while (command.n > 0 && command.p[command.n - 1] == '\\'
               && i + 1 < end) {
            i++;
            buffer_put(&command, "\n", 1);
            buffer_put(&command, file->at[i].p, file->at[i].n);
            put_line(text, file->at[i]);
        }
        x.from = x.to = ++i;
        while (x.to < end && !line_begins(file->at[x.to], "$ "))
            x.to++;
        const struct line line = { command.p, command.n };
        if (is_memplan(line)) {
            run_example(r, text, &x, file, line);
        } else {
            complain(r, path, x.at,
                     "only memplan runs in a console block, "
                     "tag it sh: ",
                     line);
            for (size_t k = x.from; k < x.to; k++)
                put_line(text, file->at[k]);
        }
        free(command.p);
        i = x.to;
    }
}

static void sh_block(struct run *r, const char *path, const struct lines *file,
                     size_t i, size_t end)
{
    bool goes_on = false;
    for (; i < end; i++) {
        const struct line line = file->at[i];
        const struct line word = first_word(line);
        bool known = goes_on || word.n == 0 || word.p[0] == '#';
        for (size_t k = 0; k < sizeof elsewhere / sizeof *elsewhere; k++)
            known = known || line_is(word, elsewhere[k]);
        if (!known)
            complain(r, path, i,
                     "nothing runs this; make it a console "
                     "block: ",
                     line);
        goes_on = line.n > 0 && line.p[line.n - 1] == '\\';
    }
}

/* ---- files ---- */

static bool read_file(struct buffer *b, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return false;
    char chunk[4096];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0)
        buffer_put(b, chunk, n);
    const bool ok = !ferror(f);
    return fclose(f) == 0 && ok;
}

static bool write_file(const struct buffer *b, const char *path)
{
    FILE *f = fopen(path, "wb");
    if (f == NULL)
        return false;
    const bool ok = fwrite(b->p, 1, b->n, f) == b->n;
    return fclose(f) == 0 && ok;
}

static size_t block_end(const struct lines *file, size_t i)
{
    while (i < file->n && !line_is(file->at[i], "```"))
        i++;
    return i;
}

/* Goes through a file; `text` becomes what it should be. */
static void run_blocks(struct run *r, struct buffer *text, const char *path,
                       const struct lines *file)
{
    for (size_t i = 0; i < file->n; i++) {
        put_line(text, file->at[i]);
        if (!line_begins(file->at[i], "```"))
            continue;
        const size_t from = i + 1, end = block_end(file, from);
        if (end == file->n)
            complain(r, path, i, "this block does not end", (struct line){ 0 });

        if (line_is(file->at[i], "```console")) {
            console_block(r, text, path, file, from, end);
        } else {
            if (line_is(file->at[i], "```sh"))
                sh_block(r, path, file, from, end);
            for (size_t k = from; k < end; k++)
                put_line(text, file->at[k]);
        }
        if (end < file->n)
            put_line(text, file->at[end]);
        i = end;
    }
}

static void run_file(struct run *r, const char *path)
{
    struct buffer old = { 0 }, text = { 0 };
    struct lines file = { 0 };
    if (!read_file(&old, path)) {
        fprintf(stderr, "run_docs: cannot read '%s'\n", path);
        r->failures++;
    } else {
        lines_split(&file, &old);
        run_blocks(r, &text, path, &file);
        const bool changed =
            text.n != old.n
            || (text.n > 0 && memcmp(text.p, old.p, old.n) != 0);
        if (r->bless && changed && !write_file(&text, path)) {
            fprintf(stderr, "run_docs: cannot write '%s'\n", path);
            r->failures++;
        }
    }
    free(file.at);
    free(text.p);
    free(old.p);
}

/* So that `memplan` in a block is this one, prints in English and without
 * colours, and reads nobody's settings. */
static bool prepare(const char *program)
{
    const char *slash = strrchr(program, '/');
    const char *path = getenv("PATH");
    struct buffer b = { 0 };
    if (slash == NULL)
        buffer_text(&b, ".");
    else
        buffer_put(&b, program, (size_t)(slash - program));
    buffer_text(&b, ":");
    buffer_text(&b, path == NULL ? "" : path);
    const bool ok = setenv("PATH", b.p, 1) == 0 && setenv("LC_ALL", "C", 1) == 0
                    && setenv("NO_COLOR", "1", 1) == 0;
    free(b.p);
    return ok;
}

int main(int argc, char **argv)
{
    struct run r = { 0 };
    int at = 1;
    if (at < argc && strcmp(argv[at], "--bless") == 0) {
        r.bless = true;
        at++;
    }
    if (argc - at < 2) {
        fputs("usage: run_docs [--bless] PROGRAM FILE...\n", stderr);
        return 2;
    }
    r.program = argv[at++];
    if (!prepare(r.program))
        return 2;
    for (; at < argc; at++)
        run_file(&r, argv[at]);
    printf("%u commands, %u differences\n", r.commands, r.differences);
    if (r.failures > 0)
        return 2;
    return r.differences > 0 ? 1 : 0;
}
