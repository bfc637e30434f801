/*
 * The host seam on POSIX: file descriptors, no stdio, so that every failed
 * write is seen where it happens.
 */
#define _POSIX_C_SOURCE 200809L

#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

static int stream_fd(enum host_stream stream)
{
    return stream == HOST_OUT ? STDOUT_FILENO : STDERR_FILENO;
}

static const char *write_all(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, text, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return strerror(errno);
        text += n;
        len -= (size_t)n;
    }
    return NULL;
}

static const char *posix_write(void *ctx, enum host_stream stream,
                               const char *text, size_t len)
{
    (void)ctx;
    return write_all(stream_fd(stream), text, len);
}

static const char *posix_write_file(void *ctx, const char *path,
                                    const char *text, size_t len)
{
    (void)ctx;
    int fd =
        open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666);
    if (fd < 0)
        return strerror(errno);
    const char *why = write_all(fd, text, len);
    if (close(fd) != 0 && errno != EINTR && !why)
        why = strerror(errno);
    return why;
}

/* Some file systems only say at the end that the disk is full. */
static const char *posix_close_out(void *ctx)
{
    (void)ctx;
    if (close(STDOUT_FILENO) != 0 && errno != EINTR)
        return strerror(errno);
    return NULL;
}

/* Doubles the buffer; NULL when there is no memory, buf is freed then. */
static char *grow(char *buf, size_t *cap)
{
    size_t wanted = *cap ? *cap * 2 : 16384;
    char *bigger = realloc(buf, wanted);
    if (!bigger)
        free(buf);
    else
        *cap = wanted;
    return bigger;
}

static enum host_read read_all(int fd, char **text, size_t *len,
                               const char **why)
{
    char *buf = NULL;
    size_t n = 0;
    size_t cap = 0;
    for (;;) {
        if (cap - n < 2 && !(buf = grow(buf, &cap))) {
            *why = strerror(ENOMEM);
            return HOST_READ_FAILED;
        }
        ssize_t got = read(fd, buf + n, cap - n - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got == 0)
            break;
        n += got > 0 ? (size_t)got : 0;
        if (got < 0 || n > HOST_FILE_MAX) {
            *why = got < 0 ? strerror(errno) : "larger than 64 MiB";
            free(buf);
            return HOST_READ_FAILED;
        }
    }
    buf[n] = '\0';
    *text = buf;
    *len = n;
    return HOST_READ_OK;
}

static enum host_read posix_read_file(void *ctx, const char *path, char **text,
                                      size_t *len, const char **why)
{
    (void)ctx;
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY) : STDIN_FILENO;
    if (fd < 0
        && (errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG))
        return HOST_READ_ABSENT;
    if (fd < 0) {
        *why = strerror(errno);
        return HOST_READ_FAILED;
    }
    struct stat st;
    enum host_read r;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
        r = HOST_READ_DIRECTORY;
    else
        r = read_all(fd, text, len, why);
    if (path)
        close(fd);
    return r;
}

static bool posix_isatty(void *ctx, enum host_stream stream)
{
    (void)ctx;
    return isatty(stream_fd(stream)) == 1;
}

static int posix_width(void *ctx)
{
    (void)ctx;
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0
        && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0)
        return 0;
    return size.ws_col;
}

static const char *posix_getenv(void *ctx, const char *name)
{
    (void)ctx;
    return getenv(name);
}

const struct host host_posix = {
    .write = posix_write,
    .close_out = posix_close_out,
    .read_file = posix_read_file,
    .write_file = posix_write_file,
    .isatty = posix_isatty,
    .width = posix_width,
    .getenv = posix_getenv,
};
