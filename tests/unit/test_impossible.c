/*
 * Setups that cannot be: the rows of impossible.txt. Each is refused with
 * exactly the message and hint of its row, under a key that the user can set;
 * and what a hint says to write is written, and is then not refused for the
 * same reason.
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

/* Digits alone, or with the comma after them. */
static bool is_number(char *word)
{
    const size_t n = strspn(word, "0123456789");
    if (n == 0 || (word[n] != '\0' && strcmp(word + n, ",") != 0))
        return false;
    word[n] = '\0';
    return true;
}

static void holds_with(const char *row, const struct arguments *a,
                       const memplan_error *error, const char *key,
                       const char *value)
{
    struct arguments changed = *a;
    struct answer after;
    set(&changed, key, value);
    ask(&after, &changed);
    if (repeats(&after, error, strcmp(key, error->key) == 0))
        fail_msg("%s: with %s %s: %s", row, key, value, after.slot[0].message);
}

/* "use 1, 2 or 4": values of the key; "use --tp 2", "add --zero 1": a key. */
static unsigned try_hint(const char *row, const struct arguments *a,
                         const memplan_error *error)
{
    char text[sizeof error->hint], key[WORD_MAX_LEN];
    char *save = NULL;
    unsigned tried = 0;
    snprintf(text, sizeof text, "%s", error->hint);
    char *word = strtok_r(text, " ", &save);
    if (word == NULL || (strcmp(word, "use") != 0 && strcmp(word, "add") != 0))
        return 0;
    word = strtok_r(NULL, " ", &save);
    if (word != NULL && strncmp(word, "--", 2) == 0) {
        key_of(key, word);
        word = strtok_r(NULL, " ,:", &save);
        if (word == NULL || strspn(word, "(") > 0)
            return 0;
        holds_with(row, a, error, key, word);
        return 1;
    }
    for (; word != NULL; word = strtok_r(NULL, " ", &save)) {
        if (strcmp(word, "or") == 0)
            continue;
        if (!is_number(word))
            break;
        holds_with(row, a, error, error->key, word);
        tried++;
    }
    return tried;
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
    return try_hint(row, &a, &answer.slot[0]);
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
