/* A recording of FOLDER, which whoever includes this defines; its text stays in
 * `text` until the next one is read. */
#ifndef MEMPLAN_TESTS_READ_JSON_H
#define MEMPLAN_TESTS_READ_JSON_H

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "json/json.h"

enum { TEXT_MAX = 1 << 16 };

static char text[TEXT_MAX];

static const struct json *read_json(struct arena *a, const char *file,
                                    size_t *len)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", FOLDER, file);
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        fail_msg("cannot open '%s'", path);
    *len = fread(text, 1, sizeof text, f);
    fclose(f);
    struct diag d;
    diag_init(&d, NULL);
    const struct json *root = json_parse(a, text, *len, &d);
    assert_non_null(root);
    return root;
}

/* All recordings of FOLDER; returns how many there are. *bad: the sum of what
 * `differences` says of each. */
static unsigned each_recording(unsigned (*differences)(const char *file),
                               unsigned *bad)
{
    DIR *dir = opendir(FOLDER);
    assert_non_null(dir);
    unsigned files = 0;
    *bad = 0;
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (strstr(e->d_name, ".json") == NULL)
            continue;
        files++;
        *bad += differences(e->d_name);
    }
    closedir(dir);
    return files;
}

#endif
