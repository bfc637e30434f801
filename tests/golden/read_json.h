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

/* Of a recording, its model as a program, laid out as it says. */
static const struct json *lower_recording(
    struct program *p, struct run *run, const char *file,
    void (*lay_out)(struct run *run, const struct json *root), struct arena *a)
{
    struct diag d;
    memplan_error slot[2];
    memplan_errors errs = { slot, 2, 0 };
    struct spec *spec = ARENA_NEW(a, struct spec, 1);
    size_t len;
    diag_init(&d, &errs);
    assert_non_null(spec);
    const struct json *root = read_json(a, file, &len);
    const struct spec_text in = { .root = json_member(root, "config"),
                                  .text = text,
                                  .len = len };
    if (spec_import(spec, &in, a, &d) != MEMPLAN_OK)
        fail_msg("%s", slot[0].message);
    run_bare(run, spec);
    lay_out(run, root);
    if (lower_model(p, spec, run, a, &d) != MEMPLAN_OK)
        fail_msg("%s", slot[0].message);
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
