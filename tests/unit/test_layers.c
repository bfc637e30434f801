/*
 * The law of docs/architecture.md: a folder of src/ includes only from folders
 * above it, the program sees the public header alone, one file knows cJSON.
 * Held against every #include line.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* From the top: each may include from itself and from those before it. */
static const char *const layers[] = { "memplan", "base",  "json",  "data",
                                      "spec",    "ir",    "lower", "fold",
                                      "plan",    "report" };
enum { LAYERS = sizeof(layers) / sizeof(layers[0]), NAME_MAX_LEN = 128 };

static int layer_of(const char *name, size_t n)
{
    for (int i = 0; i < LAYERS; i++)
        if (strlen(layers[i]) == n && memcmp(layers[i], name, n) == 0)
            return i;
    return -1;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

struct include {
    const char *folder, *file; /* that has the line */
    char name[NAME_MAX_LEN];   /* between quotes or angle brackets */
    bool quoted;
};
typedef void include_fn(const struct include *line);

static bool read_include(const char *text, struct include *out)
{
    char open;
    if (sscanf(text, " # include %c%127[^\">]", &open, out->name) != 2)
        return false;
    out->quoted = open == '"';
    return open == '"' || open == '<';
}

static unsigned each_include_of(const char *folder, const char *file,
                                include_fn *check)
{
    char path[1024], text[1024];
    snprintf(path, sizeof(path), "%s/src/%s/%s", MEMPLAN_SOURCE_DIR, folder,
             file);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    unsigned n = 0;
    struct include line = { .folder = folder, .file = file };
    while (fgets(text, sizeof(text), f) != NULL) {
        if (!read_include(text, &line))
            continue;
        check(&line);
        n++;
    }
    fclose(f);
    return n;
}

/* Every #include of the folder's files. */
static void each_include(const char *folder, include_fn *check)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/src/%s", MEMPLAN_SOURCE_DIR, folder);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    unsigned n = 0;
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL)
        if (ends_with(entry->d_name, ".c") || ends_with(entry->d_name, ".h")
            || ends_with(entry->d_name, ".def"))
            n += each_include_of(folder, entry->d_name, check);
    closedir(dir);
    assert_true(n > 0);
}

/* ---- the library ---- */

static void check_layer(const struct include *line)
{
    const char *slash = strchr(line->name, '/');
    if (!line->quoted || slash == NULL) /* of the system; its own table */
        return;
    const int from = layer_of(line->name, (size_t)(slash - line->name));
    const int to = layer_of(line->folder, strlen(line->folder));
    const bool side_by_side = strcmp(line->folder, "fold") == 0
                              && strncmp(line->name, "lower/", 6) == 0;
    if (from < 0 || from > to || side_by_side)
        fail_msg("src/%s/%s must not include \"%s\"", line->folder, line->file,
                 line->name);
}

static void layers_include_from_above(void **state)
{
    (void)state;
    for (unsigned i = 1; i < LAYERS; i++)
        each_include(layers[i], check_layer);
}

static void check_json(const struct include *line)
{
    if (strstr(line->name, "cJSON") != NULL
        && strcmp(line->file, "json_read.c") != 0)
        fail_msg("src/%s/%s must not include cJSON", line->folder, line->file);
}

static void one_file_knows_cjson(void **state)
{
    (void)state;
    for (unsigned i = 1; i < LAYERS; i++)
        each_include(layers[i], check_json);
    each_include("cli", check_json);
}

static void check_private(const struct include *line)
{
    static const struct {
        const char *name, *folder, *prefix;
    } private[] = {
        { "lower/build_private.h", "lower", "build" },
        { "lower/hf.h", "lower", "hf" },
        { "lower/build.h", "lower", "" },
        { "json/json_scan.h", "json", "" },
        { "spec/resolve.h", "spec", "resolve" },
        { "spec/import.h", "spec", "spec_" },
    };
    for (size_t i = 0; i < sizeof(private) / sizeof(private[0]); i++) {
        if (strcmp(line->name, private[i].name) != 0)
            continue;
        const size_t n = strlen(private[i].prefix);
        if (strcmp(line->folder, private[i].folder) != 0
            || strncmp(line->file, private[i].prefix, n) != 0)
            fail_msg("src/%s/%s must not include \"%s\"", line->folder,
                     line->file, line->name);
    }
}

static void private_headers_stay_private(void **state)
{
    (void)state;
    for (unsigned i = 1; i < LAYERS; i++)
        each_include(layers[i], check_private);
}

/* ---- banned.h ---- */

static char banned_in[NAME_MAX_LEN]; /* the last file that included it */

/* A system header after it would not compile, or would undo it. */
static void check_banned_is_last(const struct include *line)
{
    if (strcmp(banned_in, line->file) == 0 && !ends_with(line->name, ".def")
        && !ends_with(line->name, ".inc"))
        fail_msg("src/%s/%s: %s after base/banned.h", line->folder, line->file,
                 line->name);
    if (strcmp(line->name, "base/banned.h") != 0)
        return;
    if (ends_with(line->file, ".h"))
        fail_msg("src/%s/%s is a header", line->folder, line->file);
    snprintf(banned_in, sizeof(banned_in), "%s", line->file);
}

static void banned_functions_come_last(void **state)
{
    (void)state;
    for (unsigned i = 1; i < LAYERS; i++)
        each_include(layers[i], check_banned_is_last);
}

/* ---- the program ---- */

static void check_program(const struct include *line)
{
    if (line->quoted && strchr(line->name, '/') != NULL
        && strcmp(line->name, "memplan/memplan.h") != 0)
        fail_msg("src/cli/%s must not include \"%s\"", line->file, line->name);
}

static void the_program_sees_the_public_header(void **state)
{
    (void)state;
    each_include("cli", check_program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_include_from_above),
        cmocka_unit_test(one_file_knows_cjson),
        cmocka_unit_test(private_headers_stay_private),
        cmocka_unit_test(banned_functions_come_last),
        cmocka_unit_test(the_program_sees_the_public_header),
    };
    return cmocka_run_group_tests_name("layers", tests, NULL, NULL);
}
