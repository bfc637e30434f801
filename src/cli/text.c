/*
 * Owns growing texts and the comparison of names. Output is collected here
 * first, because nothing may reach standard output before success is certain.
 */
#include "text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void text_release(struct text *t)
{
    free(t->p);
    *t = (struct text){ 0 };
}

static bool text_reserve(struct text *t, size_t more)
{
    if (t->failed)
        return false;
    if (t->cap - t->n > more)
        return true;
    size_t cap = t->cap ? t->cap : 1024;
    while (cap - t->n <= more && cap <= SIZE_MAX / 2)
        cap *= 2;
    char *p = cap - t->n > more ? realloc(t->p, cap) : NULL;
    if (!p) {
        t->failed = true;
        return false;
    }
    t->p = p;
    t->cap = cap;
    return true;
}

bool text_write(void *ctx, const char *p, size_t n)
{
    struct text *t = ctx;
    if (!text_reserve(t, n))
        return false;
    if (n > 0)
        memcpy(t->p + t->n, p, n);
    t->n += n;
    t->p[t->n] = '\0';
    return true;
}

void text_put(struct text *t, const char *s)
{
    text_write(t, s, strlen(s));
}

void text_format(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0)
        t->failed = true;
    else if (text_reserve(t, (size_t)n)) {
        vsnprintf(t->p + t->n, (size_t)n + 1, format, again);
        t->n += (size_t)n;
    }
    va_end(again);
}

/* Columns that bytes take: characters, and nothing of what sets a colour. */
static size_t columns(const char *p, size_t n)
{
    size_t columns = 0;
    bool escape = false;
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)p[i];
        if (escape || c == '\033')
            escape = c != 'm';
        else
            columns += (c & 0xc0) != 0x80;
    }
    return columns;
}

/* Since the last line break. */
static size_t text_column(const struct text *t)
{
    size_t at = t->n;
    while (at > 0 && t->p[at - 1] != '\n')
        at--;
    return at < t->n ? columns(t->p + at, t->n - at) : 0;
}

void text_tab(struct text *t, size_t column)
{
    do
        text_put(t, " ");
    while (!t->failed && text_column(t) < column);
}

void text_wrap(struct text *t, const char *words, size_t indent, size_t width)
{
    size_t n;
    for (const char *w = text_word(&words, &n); w; w = text_word(&words, &n)) {
        size_t column = text_column(t);
        bool blank = t->n > 0 && t->p[t->n - 1] == ' ';
        if (column > indent && column + !blank + columns(w, n) >= width) {
            while (t->n > 0 && t->p[t->n - 1] == ' ')
                t->n--;
            text_put(t, "\n");
            for (size_t i = 0; i < indent; i++)
                text_put(t, " ");
        } else if (column > 0 && !blank) {
            text_put(t, " ");
        }
        text_write(t, w, n);
    }
}

void text_kebab(char *buf, size_t size, const char *key)
{
    size_t i = 0;
    for (; key[i] && i + 1 < size; i++)
        buf[i] = key[i] == '_' ? '-' : key[i];
    buf[i] = '\0';
}

const char *text_word(const char **rest, size_t *n)
{
    const char *p = *rest;
    while (*p == ' ')
        p++;
    *n = strcspn(p, " ");
    *rest = p + *n;
    return *n ? p : NULL;
}

static char fold_letter(char c)
{
    if (c >= 'A' && c <= 'Z')
        return (char)(c - 'A' + 'a');
    return c == '_' ? '-' : c;
}

enum { DISTANCE_MAX = 48 };

unsigned text_distance(const char *a, const char *b)
{
    size_t n = strlen(a);
    size_t m = strlen(b);
    if (n > DISTANCE_MAX || m > DISTANCE_MAX)
        return DISTANCE_MAX;
    unsigned row[DISTANCE_MAX + 1];
    for (unsigned j = 0; j <= m; j++)
        row[j] = j;
    for (unsigned i = 1; i <= n; i++) {
        unsigned corner = row[0];
        row[0] = i;
        for (unsigned j = 1; j <= m; j++) {
            bool same = fold_letter(a[i - 1]) == fold_letter(b[j - 1]);
            unsigned best = corner + !same;
            corner = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[m];
}

bool text_near(const char *a, const char *b)
{
    size_t n = strlen(a) > strlen(b) ? strlen(a) : strlen(b);
    unsigned distance = text_distance(a, b);
    return distance <= (n < 4 ? 1 : n < 9 ? 2 : 3);
}
