/*
 * Everything the program asks of the machine it runs on. The tests give
 * another one, so that a whole invocation runs inside a test.
 */
#ifndef MEMPLAN_CLI_HOST_H
#define MEMPLAN_CLI_HOST_H

#include <stdbool.h>
#include <stddef.h>

enum host_stream { HOST_OUT, HOST_ERR };

enum host_read {
    HOST_READ_OK,
    HOST_READ_ABSENT,    /* nothing has that path */
    HOST_READ_DIRECTORY, /* a folder has it */
    HOST_READ_FAILED     /* *why says why */
};

/* What no file that memplan reads comes near: 64 MiB. */
#define HOST_FILE_MAX ((size_t)64 << 20)

struct host {
    void *ctx;
    /* Writes everything; NULL, or why it could not, in static storage. */
    const char *(*write)(void *ctx, enum host_stream stream, const char *text,
                         size_t len);
    /* After the last write to HOST_OUT: NULL, or why something was lost. */
    const char *(*close_out)(void *ctx);
    /* A whole file, standard input when path is NULL. *text is malloc()ed,
     * ends in a NUL that *len does not count, and is the caller's. */
    enum host_read (*read_file)(void *ctx, const char *path, char **text,
                                size_t *len, const char **why);
    /* Makes a file, or puts the text in the place of what it holds; NULL, or
     * why it could not, in static storage. */
    const char *(*write_file)(void *ctx, const char *path, const char *text,
                              size_t len);
    bool (*isatty)(void *ctx, enum host_stream stream);
    int (*width)(void *ctx); /* columns of the terminal; 0 unknown */
    const char *(*getenv)(void *ctx, const char *name);
};

extern const struct host host_posix;

#endif
