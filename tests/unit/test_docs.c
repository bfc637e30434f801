/*
 * The documentation names everything that the tables have: each setup key with
 * its choices and default, each assertion, each equation, each field of a
 * model; README.md says how much is tested, and how far off it is. What it says about them is the
 * reader's to judge.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fold/result.h"
#include "memplan/memplan.h"

enum { NAME_MAX_LEN = 64, PATH_MAX_LEN = 512, ENTRY_MAX_LEN = 4096 };

/* ---- files and words ---- */

static char *read_path(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        fail_msg("cannot read %s", path);
    const size_t capacity = (size_t)1 << 20;
    char *text = malloc(capacity + 1);
    assert_non_null(text);
    const size_t n = fread(text, 1, capacity, f);
    assert_true(n < capacity);
    text[n] = '\0';
    fclose(f);
    return text;
}

/* `name` is relative to the source tree. */
static char *read_source(const char *name)
{
    char path[PATH_MAX_LEN];
    snprintf(path, sizeof path, "%s/%s", MEMPLAN_SOURCE_DIR, name);
    return read_path(path);
}

static bool is_word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
           || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

static bool has_word(const char *text, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = strstr(text, word); p != NULL;
         p = strstr(p + 1, word)) {
        if ((p == text || !is_word_char(p[-1])) && !is_word_char(p[n]))
            return true;
    }
    return false;
}

/* The next of a space separated list; false at its end. */
static bool next_word(char word[NAME_MAX_LEN], const char **list)
{
    *list += strspn(*list, " ");
    const size_t n = strcspn(*list, " ");
    if (n == 0)
        return false;
    assert_true(n < NAME_MAX_LEN);
    memcpy(word, *list, n);
    word[n] = '\0';
    *list += n;
    return true;
}

/* ---- memplan.1 ---- */

/* What the page says about an option, line ends as blanks: from its .It to the
 * next one. Empty when it says nothing. */
static void option_entry(char entry[ENTRY_MAX_LEN], const char *page,
                         const char *key)
{
    char item[NAME_MAX_LEN + 16] = ".It Fl -";
    size_t n = strlen(item);
    for (const char *c = key; *c != '\0' && n + 1 < sizeof item; c++)
        item[n++] = *c == '_' ? '-' : *c;
    item[n] = '\0';

    entry[0] = '\0';
    const char *at = strstr(page, item);
    while (at != NULL && at[n] != ' ' && at[n] != '\n')
        at = strstr(at + 1, item);
    if (at == NULL)
        return;
    const char *next = strstr(at + 1, "\n.It ");
    const char *end = strstr(at + 1, "\n.El");
    if (next != NULL && (end == NULL || next < end))
        end = next;
    assert_non_null(end);
    const size_t len = (size_t)(end - at);
    assert_true(len < ENTRY_MAX_LEN);
    for (size_t i = 0; i < len; i++)
        entry[i] = at[i] == '\n' ? ' ' : at[i];
    entry[len] = '\0';
}

static void page_has_every_setup_key(void **state)
{
    (void)state;
    char *page = read_source("docs/memplan.1");
    unsigned missing = 0;
    const memplan_field *f;
    for (size_t i = 0; (f = memplan_setup_field(i)) != NULL; i++) {
        char entry[ENTRY_MAX_LEN], word[NAME_MAX_LEN];
        option_entry(entry, page, f->key);
        if (entry[0] == '\0') {
            print_error("memplan.1: no entry for %s\n", f->key);
            missing++;
            continue;
        }
        const char *choices = f->choices;
        while (next_word(word, &choices)) {
            if (has_word(entry, word))
                continue;
            print_error("memplan.1: %s: no word of '%s'\n", f->key, word);
            missing++;
        }
        if (strstr(entry, f->default_text) == NULL) {
            print_error("memplan.1: %s: the default is not '%s'\n", f->key,
                        f->default_text);
            missing++;
        }
    }
    free(page);
    assert_int_equal(missing, 0);
}

/* An option of the page is in the tables, or the program's own. */
static bool is_option(const char *name)
{
    static const char *const own[] = { "help",
                                       "version",
                                       "quiet",
                                       "color",
                                       "json",
                                       "format",
                                       "setup",
                                       "check",
                                       "cases",
                                       "by",
                                       "limit_median",
                                       "calibration",
                                       "prices",
                                       "every_gpu",
                                       "out",
                                       "step",
                                       "as",
                                       "import",
                                       "part",
                                       "deepspeed",
                                       "training_args",
                                       "accelerate",
                                       "megatron_args",
                                       "torchtitan",
                                       "torchrun",
                                       "hostfile",
                                       "peft",
                                       "emit",
                                       "find" };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(own[i], name) == 0)
            return true;
    const memplan_field *f;
    for (size_t i = 0; (f = memplan_setup_field(i)) != NULL; i++)
        if (strcmp(f->key, name) == 0)
            return true;
    const memplan_assertion *a;
    for (size_t i = 0; (a = memplan_check_assertion(i)) != NULL; i++)
        if (strcmp(a->name, name) == 0)
            return true;
    return false;
}

static void page_has_no_other_option(void **state)
{
    (void)state;
    static const char item[] = "\n.It Fl -";
    char *page = read_source("docs/memplan.1");
    unsigned strange = 0;
    for (const char *p = strstr(page, item); p != NULL;
         p = strstr(p + 1, item)) {
        const char *from = p + sizeof item - 1;
        const size_t n = strcspn(from, " \n");
        char name[NAME_MAX_LEN];
        assert_true(n < sizeof name);
        for (size_t i = 0; i < n; i++)
            name[i] = from[i];
        for (size_t i = 0; i < n; i++)
            if (name[i] == '-')
                name[i] = '_';
        name[n] = '\0';
        if (is_option(name))
            continue;
        print_error("memplan.1: there is no option of '%s'\n", name);
        strange++;
    }
    free(page);
    assert_int_equal(strange, 0);
}

static void page_has_every_assertion(void **state)
{
    (void)state;
    char *page = read_source("docs/memplan.1");
    unsigned missing = 0;
    const memplan_assertion *a;
    for (size_t i = 0; (a = memplan_check_assertion(i)) != NULL; i++) {
        char entry[ENTRY_MAX_LEN];
        option_entry(entry, page, a->name);
        if (entry[0] != '\0')
            continue;
        print_error("memplan.1: no entry for assertion %s\n", a->name);
        missing++;
    }
    free(page);
    assert_int_equal(missing, 0);
}

/* ---- method.md ---- */

/* An anchor, and a heading right below it. */
static bool has_equation(const char *method, const char *name, size_t n)
{
    char anchor[NAME_MAX_LEN + 32];
    snprintf(anchor, sizeof anchor, "<a id=\"eq-%.*s\"></a>\n", (int)n, name);
    const char *at = strstr(method, anchor);
    if (at == NULL) {
        print_error("method.md: no equation '%.*s'\n", (int)n, name);
        return false;
    }
    at += strlen(anchor);
    at += strspn(at, "\n");
    return at[0] == '#';
}

static void method_has_the_equation_of_every_term(void **state)
{
    (void)state;
    char *method = read_source("docs/method.md");
    unsigned missing = 0;
    for (int t = 0; t < TERM_COUNT; t++) {
        const char *name = term_info((enum term)t)->equation;
        missing += !has_equation(method, name, strlen(name));
    }
    free(method);
    assert_int_equal(missing, 0);
}

static size_t name_length(const char *p)
{
    size_t n = 0;
    while ((p[n] >= 'a' && p[n] <= 'z') || p[n] == '-')
        n++;
    return n;
}

/* Every equation that stands in `text` behind `before`. */
static unsigned missing_equations(const char *method, const char *text,
                                  const char *before, unsigned *found)
{
    unsigned missing = 0;
    for (const char *p = strstr(text, before); p != NULL;
         p = strstr(p + 1, before)) {
        const char *name = p + strlen(before);
        const size_t n = name_length(name);
        if (n == 0)
            continue;
        *found += 1;
        missing += !has_equation(method, name, n);
    }
    return missing;
}

/* Sources cite "[docs/method.md eq. NAME, eq. NAME]", and name what explain
 * prints as `.equation = "NAME"`. */
static void method_has_what_the_sources_cite(void **state)
{
    (void)state;
    static const char *const folders[] = { "include/memplan", "src/ir",
                                           "src/lower", "src/fold",
                                           "src/plan" };
    char *method = read_source("docs/method.md");
    unsigned missing = 0, found = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[PATH_MAX_LEN];
        snprintf(path, sizeof path, "%s/%s", MEMPLAN_SOURCE_DIR, folders[i]);
        DIR *folder = opendir(path);
        assert_non_null(folder);
        const struct dirent *entry;
        while ((entry = readdir(folder)) != NULL) {
            const char *dot = strrchr(entry->d_name, '.');
            if (dot == NULL
                || (strcmp(dot, ".c") != 0 && strcmp(dot, ".h") != 0))
                continue;
            snprintf(path, sizeof path, "%s/%s/%s", MEMPLAN_SOURCE_DIR,
                     folders[i], entry->d_name);
            char *text = read_path(path);
            missing += missing_equations(method, text, "eq. ", &found);
            missing +=
                missing_equations(method, text, ".equation = \"", &found);
            free(text);
        }
        closedir(folder);
    }
    free(method);
    assert_true(found > 0);
    assert_int_equal(missing, 0);
}

struct text {
    char *p;
    size_t n;
};

static bool append(void *ctx, const char *text, size_t len)
{
    struct text *t = ctx;
    char *grown = realloc(t->p, t->n + len + 1);
    assert_non_null(grown);
    memcpy(grown + t->n, text, len);
    t->p = grown;
    t->n += len;
    t->p[t->n] = '\0';
    return true;
}

static void method_has_what_explain_prints(void **state)
{
    (void)state;
    static const char *const setups[] = {
        "{\"gpus\": 64, \"zero\": 3, \"recompute\": \"full\"}",
        "{\"gpus\": 8, \"framework\": \"fsdp\", \"grad_accum\": 4}",
        "{\"gpus\": 8, \"zero\": 1}",
    };
    char *method = read_source("docs/method.md");
    unsigned missing = 0, found = 0;
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++) {
        memplan_model *model = NULL;
        memplan_setup *setup = NULL;
        memplan_report *report = NULL;
        const memplan_style style = { .format = MEMPLAN_FORMAT_JSON };
        struct text text = { 0 };
        assert_int_equal(memplan_model_builtin(&model, "llama-7b", NULL, NULL),
                         MEMPLAN_OK);
        assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
        assert_int_equal(
            memplan_setup_parse(setup, setups[i], strlen(setups[i]), NULL),
            MEMPLAN_OK);
        assert_int_equal(memplan_estimate(&report, model, setup, NULL, NULL),
                         MEMPLAN_OK);
        assert_int_equal(memplan_report_write(report, MEMPLAN_VIEW_EXPLAIN,
                                              &style, append, &text, NULL),
                         MEMPLAN_OK);
        missing +=
            missing_equations(method, text.p, "\"equation\": \"", &found);
        free(text.p);
        memplan_report_free(report);
        memplan_setup_free(setup);
        memplan_model_free(model);
    }
    free(method);
    assert_true(found > 0);
    assert_int_equal(missing, 0);
}

/* ---- adding-a-model.md ---- */

/* Keys that fields have in most families, and those of the generic decoder. */
static const char *const field_keys[] = {
#define FIELD(id, member, type, keys, fallback, min, max) keys,
#define HELPER(id, type, keys, fallback, min, max) keys,
#include "spec/field.def"
#undef FIELD
#undef HELPER
};

struct family_row {
    const char *family, *keys;
};

static const struct family_row family_rows[] = {
#define FIX(family, field, fallback) { #family, "" },
#define DEF(family, field, fallback) { #family, "" },
#define KEY(family, field, keys, fallback) { #family, keys },
#define NUL(family, field, keys, fallback, null) { #family, keys },
#include "spec/family.def"
#undef FIX
#undef DEF
#undef KEY
#undef NUL
};

/* Of other names of one thing, the first is the one to write. */
static unsigned missing_key(const char *page, const char *keys)
{
    char word[NAME_MAX_LEN], quoted[NAME_MAX_LEN + 2];
    if (!next_word(word, &keys))
        return 0;
    snprintf(quoted, sizeof quoted, "`%s`", word);
    if (strstr(page, quoted) != NULL)
        return 0;
    print_error("adding-a-model.md: no %s\n", quoted);
    return 1;
}

static void model_page_has_every_key_of_the_decoder(void **state)
{
    (void)state;
    char *page = read_source("docs/adding-a-model.md");
    unsigned missing = 0;
    for (size_t i = 0; i < sizeof field_keys / sizeof *field_keys; i++)
        missing += missing_key(page, field_keys[i]);
    for (size_t i = 0; i < sizeof family_rows / sizeof *family_rows; i++)
        if (strcmp(family_rows[i].family, "DECODER") == 0)
            missing += missing_key(page, family_rows[i].keys);
    free(page);
    assert_int_equal(missing, 0);
}

/* ---- adding-a-gpu.md ---- */

/* The fields of struct gpu, read off the first row. */
/* What the page shows can be taken over as it stands. */
static void model_page_has_files_that_parse(void **state)
{
    static const char fence[] = "```json\n";
    unsigned files = 0;
    (void)state;
    char *page = read_source("docs/adding-a-model.md");
    for (char *p = strstr(page, fence); p != NULL; p = strstr(p, fence)) {
        p += sizeof fence - 1;
        const size_t n = (size_t)(strstr(p, "```") - p);
        memplan_model *model = NULL;
        memplan_error slot[1];
        memplan_errors errs = { slot, 1, 0 };
        if (memplan_model_parse(&model, p, n, NULL, NULL, &errs) != MEMPLAN_OK)
            fail_msg("%.40s...: %s", p, slot[0].message);
        memplan_model_free(model);
        files++;
    }
    free(page);
    assert_true(files >= 3);
}

static void gpu_page_has_every_field(void **state)
{
    (void)state;
    char *page = read_source("docs/adding-a-gpu.md");
    char *row = read_source("src/data/gpu.def");
    unsigned missing = 0, found = 0;
    const char *end = strstr(row, "\n},");
    assert_non_null(end);
    for (const char *p = strstr(row, "\n    ."); p != NULL && p < end;
         p = strstr(p + 1, "\n    .")) {
        char field[NAME_MAX_LEN], quoted[NAME_MAX_LEN + 2];
        const char *from = p + 6;
        const size_t n = strcspn(from, " =");
        assert_true(n < sizeof field);
        memcpy(field, from, n);
        field[n] = '\0';
        snprintf(quoted, sizeof quoted, "`%s`", field);
        found++;
        if (strstr(page, quoted) != NULL)
            continue;
        print_error("adding-a-gpu.md: no %s\n", quoted);
        missing++;
    }
    free(row);
    free(page);
    assert_true(found > 10);
    assert_int_equal(missing, 0);
}

/* ---- README.md: how much is held against what ---- */

/* Text files of at most this many bytes are read as far as their model's type,
 * which stands in their first lines. */
enum { HEAD_MAX = 1 << 14, TYPES_MAX = 512 };

struct recordings {
    unsigned files, types;
    char type[TYPES_MAX][NAME_MAX_LEN];
};

static void add_type(struct recordings *r, const char *head)
{
    static const char key[] = "\"model_type\": \"";
    const char *at = strstr(head, key);
    char word[NAME_MAX_LEN];
    if (at == NULL) /* a list of layers has none */
        return;
    at += sizeof key - 1;
    const size_t n = strcspn(at, "\"");
    assert_true(n < sizeof word);
    memcpy(word, at, n);
    word[n] = '\0';
    for (unsigned i = 0; i < r->types; i++)
        if (strcmp(r->type[i], word) == 0)
            return;
    assert_true(r->types < TYPES_MAX);
    memcpy(r->type[r->types++], word, n + 1);
}

static void count_recordings(struct recordings *r)
{
    static const char folder[] = MEMPLAN_SOURCE_DIR "/tests/golden/oracle";
    static char head[HEAD_MAX];
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        char path[PATH_MAX_LEN];
        if (strstr(e->d_name, ".json") == NULL)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        head[fread(head, 1, sizeof head - 1, f)] = '\0';
        fclose(f);
        r->files++;
        add_type(r, head);
    }
    closedir(dir);
}

static unsigned lines_of(const char *name)
{
    char *text = read_source(name);
    unsigned n = 0;
    for (const char *c = text; *c != '\0'; c++)
        n += *c == '\n';
    free(text);
    return n;
}

/* "over N words": N is right when there are more than N, and not by much. */
static bool is_stated(const char *page, const char *words, unsigned count)
{
    const char *at = strstr(page, words);
    assert_non_null(at);
    while (at > page && (at[-1] == ' ' || at[-1] == '\n'))
        at--;
    while (at > page && at[-1] >= '0' && at[-1] <= '9')
        at--;
    const unsigned long stated = strtoul(at, NULL, 10);
    if (count >= stated && count <= stated + stated / 10)
        return true;
    print_error("README.md: over %lu %s, there are %u\n", stated, words, count);
    return false;
}

static void readme_counts_what_is_there(void **state)
{
    (void)state;
    static struct recordings r;
    count_recordings(&r);
    const struct {
        const char *words;
        unsigned count;
    } figures[] = {
        { "recordings of", r.files },
        { "model types under", r.types },
        { "published files and", lines_of("tests/golden/published.jsonl") },
        { "configurations of transformers' classes",
          lines_of("tests/golden/counts.jsonl") },
        { "malformed ones", lines_of("tests/golden/mutations.jsonl") },
    };
    char *page = read_source("README.md");
    unsigned wrong = 0;
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        wrong += !is_stated(page, figures[i].words, figures[i].count);
    free(page);
    assert_int_equal(wrong, 0);
}

/* Rows, then the median's error, the 90th percentile's and the worst's. */
enum { FIGURES = 4 };
struct figure {
    double value;
    double half; /* of its last place */
    bool percent;
};

/* "1,649", "4.8 %"; false: something else. */
static bool read_figure(struct figure *f, const char *cell, size_t n)
{
    char text[NAME_MAX_LEN], *end;
    size_t k = 0;
    if (n >= sizeof text)
        return false;
    for (size_t i = 0; i < n; i++)
        if (cell[i] != ',' && cell[i] != ' ')
            text[k++] = cell[i];
    text[k] = '\0';
    f->value = strtod(text, &end);
    f->percent = *end == '%';
    const char *point = strchr(text, '.');
    f->half = 0.5;
    for (const char *c = point; c != NULL && c + 1 < end; c++)
        f->half /= 10;
    return end != text && end[f->percent] == '\0';
}

/* The first of a table's row that stand side by side. */
static bool read_figures(struct figure row[FIGURES], const char *line)
{
    unsigned n = 0;
    while (n < FIGURES && *line == '|') {
        const size_t length = strcspn(++line, "|\n");
        n = read_figure(&row[n], line, length) && row[n].percent == (n > 0)
                ? n + 1
                : 0;
        line += length;
    }
    return n == FIGURES;
}

static bool rounds_to(const struct figure exact[FIGURES],
                      const struct figure row[FIGURES])
{
    for (unsigned i = 0; i < FIGURES; i++) {
        const double off = exact[i].value - row[i].value;
        const double most = i == 0 ? 0 : row[i].half + exact[i].half + 1e-9;
        if (off > most || off < -most)
            return false;
    }
    return true;
}

static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end == NULL ? NULL : end + 1;
}

static bool is_row_of(const char *page, const struct figure row[FIGURES])
{
    struct figure exact[FIGURES];
    for (const char *line = page; line != NULL; line = next_line(line))
        if (read_figures(exact, line) && rounds_to(exact, row))
            return true;
    return false;
}

/* Each row of errors is one of accuracy.md, rounded. */
static void readme_has_the_errors_of_the_page(void **state)
{
    (void)state;
    char *readme = read_source("README.md");
    char *page = read_source("docs/accuracy.md");
    unsigned rows = 0, wrong = 0;
    struct figure row[FIGURES];
    for (const char *line = readme; line != NULL; line = next_line(line)) {
        if (!read_figures(row, line))
            continue;
        rows++;
        if (is_row_of(page, row))
            continue;
        print_error("README.md: no row of accuracy.md is %.*s\n",
                    (int)strcspn(line, "\n"), line);
        wrong++;
    }
    free(page);
    free(readme);
    assert_true(rows > 10);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_has_every_setup_key),
        cmocka_unit_test(page_has_no_other_option),
        cmocka_unit_test(page_has_every_assertion),
        cmocka_unit_test(method_has_the_equation_of_every_term),
        cmocka_unit_test(method_has_what_the_sources_cite),
        cmocka_unit_test(method_has_what_explain_prints),
        cmocka_unit_test(model_page_has_every_key_of_the_decoder),
        cmocka_unit_test(model_page_has_files_that_parse),
        cmocka_unit_test(gpu_page_has_every_field),
        cmocka_unit_test(readme_counts_what_is_there),
        cmocka_unit_test(readme_has_the_errors_of_the_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
