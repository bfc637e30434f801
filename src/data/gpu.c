/*
 * Looks rows up in the accelerator catalogue (gpu.def). Knows names, not what
 * the numbers are for.
 */
#include "data/gpu.h"

#include <stdbool.h>
#include <string.h>

static const struct gpu rows[] = {
#include "gpu.def"
};

enum { ROWS = sizeof rows / sizeof rows[0], NAME_MAX_LEN = 64 };

size_t gpu_count(void)
{
    return ROWS;
}

const struct gpu *gpu_at(size_t i)
{
    return i < ROWS ? &rows[i] : NULL;
}

/* Letters to lower case, '_' and ' ' to '-'; ASCII only. */
static char fold(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return (char)(c - 'A' + 'a');
    }
    return c == '_' || c == ' ' ? '-' : c;
}

static bool same(const char *a, size_t a_len, const char *b, size_t b_len)
{
    if (a_len != b_len) {
        return false;
    }
    for (size_t i = 0; i < a_len; i++) {
        if (fold(a[i]) != fold(b[i])) {
            return false;
        }
    }
    return true;
}

/* The length of the first alias in a list; 0 at its end. */
static size_t alias_len(const char *list)
{
    return strcspn(list, " ");
}

static const char *next_alias(const char *alias)
{
    alias += alias_len(alias);
    return *alias == ' ' ? alias + 1 : alias;
}

const struct gpu *gpu_find(const char *name, size_t len)
{
    if (name == NULL || len == 0) {
        return NULL;
    }
    for (size_t i = 0; i < ROWS; i++) {
        const struct gpu *gpu = &rows[i];
        if (same(name, len, gpu->name, strlen(gpu->name))
            || same(name, len, gpu->title, strlen(gpu->title))) {
            return gpu;
        }
        for (const char *a = gpu->aliases; *a != '\0'; a = next_alias(a)) {
            if (same(name, len, a, alias_len(a))) {
                return gpu;
            }
        }
    }
    return NULL;
}

static size_t min3(size_t a, size_t b, size_t c)
{
    const size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Levenshtein's distance, folded; both lengths at most NAME_MAX_LEN. */
static size_t edits(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t row[NAME_MAX_LEN + 1];

    for (size_t j = 0; j <= b_len; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= a_len; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            const size_t above = row[j];
            const size_t swap =
                diagonal + (fold(a[i - 1]) == fold(b[j - 1]) ? 0 : 1);
            row[j] = min3(above + 1, row[j - 1] + 1, swap);
            diagonal = above;
        }
    }
    return row[b_len];
}

const struct gpu *gpu_nearest(const char *name, size_t len)
{
    if (name == NULL || len == 0 || len > NAME_MAX_LEN) {
        return NULL;
    }

    const struct gpu *best = NULL;
    size_t least = len / 2 > 1 ? len / 2 + 1 : 2; /* must be below this */
    for (size_t i = 0; i < ROWS; i++) {
        const struct gpu *gpu = &rows[i];
        const size_t by_name = edits(name, len, gpu->name, strlen(gpu->name));
        if (by_name < least) {
            least = by_name;
            best = gpu;
        }
        for (const char *a = gpu->aliases; *a != '\0'; a = next_alias(a)) {
            const size_t by_alias = edits(name, len, a, alias_len(a));
            if (by_alias < least) {
                least = by_alias;
                best = gpu;
            }
        }
    }
    return best;
}
