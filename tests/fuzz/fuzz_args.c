/*
 * A whole invocation: an argument a line, up to a line "---"; what follows it
 * is standard input, and the file m.json too.
 */
#include "cli.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { ARGS_MAX = 32 };

struct invocation {
    char *text; /* cut up into argv */
    const char *input;
    size_t input_len;
    size_t out, err; /* bytes written */
    char *argv[ARGS_MAX + 2];
    int argc;
};

/* ---- the host ---- */

static const char *host_write(void *ctx, enum host_stream stream,
                              const char *text, size_t len)
{
    struct invocation *in = ctx;
    (void)text;
    *(stream == HOST_OUT ? &in->out : &in->err) += len;
    return NULL;
}

static const char *host_close_out(void *ctx)
{
    (void)ctx;
    return NULL;
}

static enum host_read host_read_file(void *ctx, const char *path, char **text,
                                     size_t *len, const char **why)
{
    const struct invocation *in = ctx;
    if (path && strcmp(path, "folder") == 0)
        return HOST_READ_DIRECTORY;
    if (path && strcmp(path, "m.json") != 0)
        return HOST_READ_ABSENT;
    *text = malloc(in->input_len + 1);
    if (!*text) {
        *why = "no memory";
        return HOST_READ_FAILED;
    }
    memcpy(*text, in->input, in->input_len);
    (*text)[in->input_len] = '\0';
    *len = in->input_len;
    return HOST_READ_OK;
}

static const char *host_write_file(void *ctx, const char *path,
                                   const char *text, size_t len)
{
    (void)ctx;
    (void)text;
    (void)len;
    return strcmp(path, "folder") == 0 ? "it is a folder" : NULL;
}

static bool host_isatty(void *ctx, enum host_stream stream)
{
    const struct invocation *in = ctx;
    return stream == HOST_OUT && in->argc % 2 == 0;
}

static int host_width(void *ctx)
{
    const struct invocation *in = ctx;
    return in->argc % 3 * 60;
}

static const char *host_getenv(void *ctx, const char *name)
{
    (void)ctx;
    (void)name;
    return NULL;
}

/* ---- an input ---- */

static bool invocation_read(struct invocation *in, const uint8_t *data,
                            size_t size)
{
    static char program[] = "memplan";
    *in = (struct invocation){ .text = malloc(size + 1) };
    if (!in->text)
        return false;
    if (size > 0)
        memcpy(in->text, data, size);
    in->text[size] = '\0';
    in->argv[in->argc++] = program;
    char *end = in->text + size;
    char *p = in->text;
    while (p < end && strncmp(p, "---\n", 4) != 0) {
        char *stop = memchr(p, '\n', (size_t)(end - p));
        if (!stop)
            stop = end;
        *stop = '\0';
        if (in->argc <= ARGS_MAX)
            in->argv[in->argc++] = p;
        p = stop + 1;
    }
    p = p < end ? p + 4 : end;
    in->input = p;
    in->input_len = (size_t)(end - p);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct invocation in;
    if (!invocation_read(&in, data, size))
        return 0;
    const struct host host = {
        .ctx = &in,
        .write = host_write,
        .close_out = host_close_out,
        .read_file = host_read_file,
        .write_file = host_write_file,
        .isatty = host_isatty,
        .width = host_width,
        .getenv = host_getenv,
    };
    int status = cli_main(in.argc, in.argv, &host);
    fuzz_require(status >= CLI_OK && status <= CLI_LIMIT, "no such status");
    fuzz_require(status <= CLI_NEGATIVE || in.out == 0,
                 "a failure that wrote to standard output");
    fuzz_require((status <= CLI_NEGATIVE ? in.out : in.err) > 0,
                 "an invocation that says nothing");
    free(in.text);
    return 0;
}
