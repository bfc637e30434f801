/*
 * Setups that cannot be: the rows of impossible.txt. Each is refused with
 * exactly the message and hint of its row, under a key that the user can set;
 * and what a hint says to write or to leave out is done, is then not refused
 * for the same reason, and one way of it leads to an answer.
 */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "memplan/memplan.h"

enum {
    LINE_MAX_LEN = 1024,
    WORDS_MAX = 24,
    WORD_MAX_LEN = 64,
    ERRORS_MAX = 8,
    LEAST_ROWS = 60
};

struct arguments {
    char model[WORD_MAX_LEN];
    char key[WORDS_MAX][WORD_MAX_LEN];
    char value[WORDS_MAX][WORD_MAX_LEN];
    size_t n;
};

struct answer {
    memplan_status status;
    memplan_error slot[ERRORS_MAX];
    memplan_errors errs;
};

/* "--micro-batch" is micro_batch. */
static void key_of(char key[WORD_MAX_LEN], const char *option)
{
    snprintf(key, WORD_MAX_LEN, "%s", option + 2);
    for (char *c = key; *c != '\0'; c++)
        *c = *c == '-' ? '_' : *c;
}

static struct arguments arguments_of(char *text)
{
    struct arguments a = { .n = 0 };
    char *save = NULL;
    char *word = strtok_r(text, " ", &save);
    snprintf(a.model, sizeof a.model, "%s", word);
    while ((word = strtok_r(NULL, " ", &save)) != NULL) {
        assert_true(a.n < WORDS_MAX && strncmp(word, "--", 2) == 0);
        key_of(a.key[a.n], word);
        word = strtok_r(NULL, " ", &save);
        assert_non_null(word);
        snprintf(a.value[a.n++], WORD_MAX_LEN, "%s", word);
    }
    return a;
}

static void ask(struct answer *out, const struct arguments *a)
{
    memplan_model *model = NULL;
    memplan_setup *setup = NULL;
    memplan_report *report = NULL;
    *out = (struct answer){ .status = MEMPLAN_OK };
    out->errs = (memplan_errors){ out->slot, ERRORS_MAX, 0 };
    assert_int_equal(memplan_model_builtin(&model, a->model, NULL, NULL),
                     MEMPLAN_OK);
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    for (size_t i = 0; i < a->n; i++)
        if (memplan_setup_set(setup, a->key[i], a->value[i], &out->errs)
            != MEMPLAN_OK)
            fail_msg("%s %s: %s", a->key[i], a->value[i], out->slot[0].message);
    out->status = memplan_estimate(&report, model, setup, NULL, &out->errs);
    memplan_report_free(report);
    memplan_setup_free(setup);
    memplan_model_free(model);
}

static void set(struct arguments *a, const char *key, const char *value)
{
    size_t i = 0;
    while (i < a->n && strcmp(a->key[i], key) != 0)
        i++;
    assert_true(i < WORDS_MAX);
    snprintf(a->key[i], WORD_MAX_LEN, "%s", key);
    snprintf(a->value[i], WORD_MAX_LEN, "%s", value);
    a->n += i == a->n;
}

/* The same again, or for another value of the key another refusal of it. */
static bool repeats(const struct answer *answer, const memplan_error *error,
                    bool same_key)
{
    for (size_t i = 0; i < answer->errs.count && i < ERRORS_MAX; i++)
        if (strcmp(answer->slot[i].message, error->message) == 0
            || (same_key && strcmp(answer->slot[i].key, error->key) == 0))
            return true;
    return false;
}

/* What following a row's hint came to. */
struct followed {
    const char *row;
    const struct arguments *a;
    const memplan_error *error;
    unsigned tried, accepted;
};

static void answered(struct followed *f, const struct arguments *changed,
                     const char *key, const char *value)
{
    struct answer after;
    ask(&after, changed);
    f->tried++;
    f->accepted += after.status == MEMPLAN_OK;
    if (repeats(&after, f->error, strcmp(key, f->error->key) == 0))
        fail_msg("%s: with %s %s: %s", f->row, key, value,
                 after.slot[0].message);
}

static void holds_with(struct followed *f, const char *key, const char *value)
{
    struct arguments changed = *f->a;
    set(&changed, key, value);
    answered(f, &changed, key, value);
}

static void holds_without(struct followed *f, const char *key)
{
    struct arguments changed = *f->a;
    size_t i = 0;
    while (i < changed.n && strcmp(changed.key[i], key) != 0)
        i++;
    if (i == changed.n)
        return; /* said of what is there by default */
    changed.n--;
    memmove(changed.key[i], changed.key[i + 1],
            (changed.n - i) * sizeof changed.key[0]);
    memmove(changed.value[i], changed.value[i + 1],
            (changed.n - i) * sizeof changed.value[0]);
    answered(f, &changed, key, "left out");
}

static bool is_value(const char *key, const char *value)
{
    memplan_setup *setup = NULL;
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    const bool good = memplan_setup_set(setup, key, value, NULL) == MEMPLAN_OK;
    memplan_setup_free(setup);
    return good;
}

/* Takes a comma, a colon or a semicolon off the end of a word. */
static bool cut_mark(char *word)
{
    const size_t n = strlen(word);
    if (n < 2 || strchr(",:;", word[n - 1]) == NULL)
        return false;
    word[n - 1] = '\0';
    return true;
}

/* "use 1, 2 or 4", "use fp32 or bf16": values of the key. */
static void try_values(struct followed *f, char *text)
{
    char *save = NULL;
    char *word = strtok_r(text, " ", &save);
    if (word == NULL || strcmp(word, "use") != 0)
        return;
    while ((word = strtok_r(NULL, " ", &save)) != NULL) {
        if (strcmp(word, "or") == 0)
            continue;
        cut_mark(word);
        if (!is_value(f->error->key, word))
            return;
        holds_with(f, f->error->key, word);
    }
}

/* "use --tp 2 or 4", "add --zero 1 or more, or --engine ddp --gpus 1": options
 * that follow one another, or "and", are given together. */
static void try_options(struct followed *f, char *text)
{
    char key[WORD_MAX_LEN] = "";
    char *save = NULL;
    struct arguments changed = *f->a;
    bool together = false;
    for (char *word = strtok_r(text, " ", &save); word != NULL;
         word = strtok_r(NULL, " ", &save)) {
        if (strncmp(word, "--", 2) == 0) {
            if (!together)
                changed = *f->a;
            key_of(key, word);
            continue;
        }
        if (strcmp(word, "or") == 0)
            continue;
        const bool ends = cut_mark(word);
        const bool more =
            key[0] != '\0'
            && (strcmp(word, "and") == 0 || strcmp(word, "with") == 0);
        if (!more && (key[0] == '\0' || !is_value(key, word))) {
            key[0] = '\0';
            continue;
        }
        if (!more)
            set(&changed, key, word);
        together = !ends && (more || strncmp(save, "--", 2) == 0);
        if (!together || strncmp(save, "--", 2) != 0)
            answered(f, &changed, key, word);
    }
}

/* "leave it out", "or leave vpp out". */
static void try_without(struct followed *f, const char *text)
{
    char key[WORD_MAX_LEN];
    for (const char *at = text; (at = strstr(at, "leave ")) != NULL; at++) {
        if (sscanf(at, "leave %63s", key) != 1
            || strncmp(at + strlen("leave ") + strlen(key), " out", 4) != 0)
            continue;
        holds_without(f, strcmp(key, "it") == 0 ? f->error->key : key);
    }
}

static struct followed try_hint(const char *row, const struct arguments *a,
                                const memplan_error *error)
{
    char text[sizeof error->hint];
    struct followed f = { .row = row, .a = a, .error = error };
    snprintf(text, sizeof text, "%s", error->hint);
    try_values(&f, text);
    snprintf(text, sizeof text, "%s", error->hint);
    text[strcspn(text, ";")] = '\0'; /* what is behind it explains */
    try_options(&f, text);
    try_without(&f, error->hint);
    if (f.tried > 0 && f.accepted == 0)
        fail_msg("%s: nothing that '%s' says is accepted", row, error->hint);
    return f;
}

static unsigned check_row(char *line)
{
    char row[LINE_MAX_LEN];
    struct answer answer;
    char *message = strstr(line, " | ");
    assert_non_null(message);
    *message = '\0';
    message += 3;
    char *hint = strstr(message, " | ");
    assert_non_null(hint);
    *hint = '\0';
    hint += 3;
    char *colon = strstr(message, ": ");
    assert_non_null(colon);
    *colon = '\0';
    snprintf(row, sizeof row, "%s", line);
    char key[WORD_MAX_LEN];
    key_of(key, message);
    const struct arguments a = arguments_of(line);
    ask(&answer, &a);
    if (answer.status != MEMPLAN_E_CONFLICT
        && answer.status != MEMPLAN_E_UNSUPPORTED)
        fail_msg("%s: status %d", row, (int)answer.status);
    if (strcmp(answer.slot[0].message, colon + 2) != 0)
        fail_msg("%s: says '%s'", row, answer.slot[0].message);
    if (strcmp(answer.slot[0].hint, hint) != 0)
        fail_msg("%s: hints '%s'", row, answer.slot[0].hint);
    assert_string_equal(answer.slot[0].key, key);
    return try_hint(row, &a, &answer.slot[0]).tried;
}

static void test_rows(void **state)
{
    (void)state;
    char line[LINE_MAX_LEN];
    unsigned rows = 0, tried = 0;
    FILE *f = fopen(MEMPLAN_SOURCE_DIR "/tests/unit/impossible.txt", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '#' || line[0] == '\0')
            continue;
        tried += check_row(line);
        rows++;
    }
    fclose(f);
    assert_true(rows >= LEAST_ROWS);
    assert_true(tried >= LEAST_ROWS);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
