/*
 * Setups that a launch file has no word for: the rows of unsaid.txt. Each is
 * refused with exactly the message and hint of its row, under a key that the
 * user can set, and nothing is written.
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

enum { LINE_MAX_LEN = 1024, COLUMNS = 4, ERRORS_MAX = 8, LEAST_ROWS = 30 };

struct answer {
    memplan_status status;
    memplan_error slot[ERRORS_MAX];
    memplan_errors errs;
    size_t written;
};

static bool count_bytes(void *ctx, const char *text, size_t len)
{
    (void)text;
    ((struct answer *)ctx)->written += len;
    return true;
}

/* "--micro-batch 4 --gpus 8" into the setup. */
static void set_options(memplan_setup *setup, char *options)
{
    char *save = NULL;
    for (char *key = strtok_r(options, " ", &save); key != NULL;
         key = strtok_r(NULL, " ", &save)) {
        const char *value = strtok_r(NULL, " ", &save);
        assert_true(strncmp(key, "--", 2) == 0 && value != NULL);
        for (char *c = key; *c != '\0'; c++)
            *c = *c == '-' ? '_' : *c;
        assert_int_equal(memplan_setup_set(setup, key + 2, value, NULL),
                         MEMPLAN_OK);
    }
}

static void ask(struct answer *a, const memplan_model *model,
                const char *program, char *options)
{
    memplan_setup *setup = NULL;
    memset(a, 0, sizeof *a);
    a->errs = (memplan_errors){ a->slot, ERRORS_MAX, 0 };
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    set_options(setup, options);
    a->status = memplan_emit(model, setup, program, count_bytes, a, &a->errs);
    memplan_setup_free(setup);
}

/* Cuts "a | b | c | d" and the blanks around each. */
static bool cut(char *line, char *column[COLUMNS])
{
    for (int i = 0; i < COLUMNS; i++) {
        char *bar = strstr(line, " | ");
        column[i] = line;
        if ((bar == NULL) != (i == COLUMNS - 1))
            return false;
        if (bar == NULL)
            break;
        *bar = '\0';
        line = bar + 3;
    }
    return true;
}

static void check_row(const memplan_model *model, char *line)
{
    char *column[COLUMNS] = { NULL };
    struct answer a;
    if (!cut(line, column))
        fail_msg("not four columns: %s", line);
    ask(&a, model, column[0], column[1]);
    if (strcmp(a.slot[0].message, column[2]) != 0
        || strcmp(a.slot[0].hint, column[3]) != 0)
        fail_msg("%s: '%s' | '%s', not '%s' | '%s'", column[0],
                 a.slot[0].message, a.slot[0].hint, column[2], column[3]);
    assert_int_equal(a.status, MEMPLAN_E_UNSUPPORTED);
    assert_int_equal(a.written, 0);
}

static void test_unsaid(void **state)
{
    (void)state;
    char line[LINE_MAX_LEN];
    memplan_model *model = NULL;
    unsigned rows = 0;
    FILE *f = fopen(MEMPLAN_SOURCE_DIR "/tests/unit/unsaid.txt", "r");
    assert_non_null(f);
    assert_int_equal(memplan_model_builtin(&model, "llama-7b", NULL, NULL),
                     MEMPLAN_OK);
    while (fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '#' || line[0] == '\0')
            continue;
        check_row(model, line);
        rows++;
    }
    fclose(f);
    memplan_model_free(model);
    assert_true(rows >= LEAST_ROWS);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_unsaid) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
