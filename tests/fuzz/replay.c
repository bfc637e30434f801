/*
 * Gives the files of a folder to a fuzz target, in the order of their names.
 *
 *     replay_TARGET FOLDER...
 */
#define _POSIX_C_SOURCE 200809L

#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 1024, INPUT_MAX = 1 << 20, FILES_MAX = 4096 };

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* False when it cannot be read. */
static bool replay_file(const char *folder, const char *name, uint8_t *buf)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    if (!f)
        return false;
    size_t n = fread(buf, 1, INPUT_MAX, f);
    bool bad = ferror(f);
    fclose(f);
    if (bad)
        return false;
    /* A copy of exactly that size, so that reading past it is seen. */
    uint8_t *copy = malloc(n > 0 ? n : 1);
    if (!copy)
        return false;
    memcpy(copy, buf, n);
    fprintf(stderr, "%s\n", path); /* the last one is what failed */
    (void)LLVMFuzzerTestOneInput(copy, n);
    free(copy);
    return true;
}

static bool replay_names(const char *folder, char **name, size_t count)
{
    uint8_t *buf = malloc(INPUT_MAX);
    bool good = buf && count > 0;
    if (count > 0)
        qsort(name, count, sizeof(*name), by_name);
    for (size_t i = 0; i < count; i++) {
        if (good && !replay_file(folder, name[i], buf)) {
            fprintf(stderr, "cannot read %s/%s\n", folder, name[i]);
            good = false;
        }
        free(name[i]);
    }
    free(buf);
    return good;
}

static bool replay_folder(const char *folder)
{
    static char *name[FILES_MAX];
    size_t count = 0;
    DIR *d = opendir(folder);
    if (!d) {
        fprintf(stderr, "cannot read %s\n", folder);
        return false;
    }
    const struct dirent *entry;
    while ((entry = readdir(d)) && count < FILES_MAX) {
        size_t n = strlen(entry->d_name) + 1;
        if (entry->d_name[0] == '.')
            continue;
        name[count] = malloc(n);
        if (!name[count])
            break;
        memcpy(name[count++], entry->d_name, n);
    }
    closedir(d);
    return replay_names(folder, name, count);
}

int main(int argc, char **argv)
{
    bool good = argc > 1;
    for (int i = 1; i < argc; i++)
        good = replay_folder(argv[i]) && good;
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
