/*
 * Owns slices of text: comparing names, cutting, and formatting into buffers
 * of fixed size. ASCII only where letters matter, so that no locale has a say.
 */
#include "base/str.h"

#include <stdio.h>
#include <string.h>

#include "base/banned.h"

struct str str_of(const char *text)
{
    if (!text)
        return (struct str){ "", 0 };
    return (struct str){ text, strlen(text) };
}

bool str_eq(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

bool str_is(struct str a, const char *text)
{
    return str_eq(a, str_of(text));
}

/* What a byte counts as in a name. */
static char fold_name_byte(char c)
{
    if (c >= 'A' && c <= 'Z')
        return (char)(c - 'A' + 'a');
    if (c == '-' || c == ' ')
        return '_';
    return c;
}

bool str_same_name(struct str a, struct str b)
{
    if (a.n != b.n)
        return false;
    for (size_t i = 0; i < a.n; i++) {
        if (fold_name_byte(a.p[i]) != fold_name_byte(b.p[i]))
            return false;
    }
    return true;
}

bool str_ends_with(struct str a, const char *suffix)
{
    struct str s = str_of(suffix);
    if (s.n > a.n)
        return false;
    return s.n == 0 || memcmp(a.p + (a.n - s.n), s.p, s.n) == 0;
}

struct str str_cut(struct str a, char sep, struct str *rest)
{
    for (size_t i = 0; i < a.n; i++) {
        if (a.p[i] == sep) {
            *rest = (struct str){ a.p + i + 1, a.n - i - 1 };
            return (struct str){ a.p, i };
        }
    }
    *rest = (struct str){ a.n ? a.p + a.n : a.p, 0 };
    return a;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

struct str str_trim(struct str a)
{
    while (a.n > 0 && is_blank(a.p[0])) {
        a.p++;
        a.n--;
    }
    while (a.n > 0 && is_blank(a.p[a.n - 1]))
        a.n--;
    return a;
}

/* ---- likeness ---- */

enum { NAME_MAX_COMPARED = 63 };

static unsigned min_unsigned(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Damerau-Levenshtein in its "optimal string alignment" form: insertions,
 * deletions, substitutions and swaps of neighbours cost 1 each. Three rows of
 * the table are enough: a swap looks back two. */
unsigned str_distance(struct str a, struct str b)
{
    unsigned rows[3][NAME_MAX_COMPARED + 1];
    size_t an = a.n < NAME_MAX_COMPARED ? a.n : NAME_MAX_COMPARED;
    size_t bn = b.n < NAME_MAX_COMPARED ? b.n : NAME_MAX_COMPARED;
    for (size_t j = 0; j <= bn; j++)
        rows[0][j] = (unsigned)j;

    for (size_t i = 1; i <= an; i++) {
        unsigned *row = rows[i % 3];
        const unsigned *above = rows[(i + 2) % 3];
        const unsigned *twice = rows[(i + 1) % 3];
        char x = fold_name_byte(a.p[i - 1]);
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= bn; j++) {
            char y = fold_name_byte(b.p[j - 1]);
            unsigned best = above[j - 1] + (x != y);
            best = min_unsigned(best, above[j] + 1);
            best = min_unsigned(best, row[j - 1] + 1);
            if (i > 1 && j > 1 && x == fold_name_byte(b.p[j - 2])
                && y == fold_name_byte(a.p[i - 2]))
                best = min_unsigned(best, twice[j - 2] + 1);
            row[j] = best;
        }
    }
    return rows[an % 3][bn];
}

/* One slip in three letters: "zer" is near "zero", "tp" near "dp", and two
 * words of nothing in common are not. */
bool str_near(struct str a, struct str b, unsigned distance)
{
    size_t longer = a.n > b.n ? a.n : b.n;
    return distance <= (longer + 1) / 3;
}

/* ---- formatting ---- */

/* A cut through the middle of a UTF-8 sequence leaves bytes that are no
 * character: the length without them. */
static size_t trim_cut_character(const char *buf, size_t n)
{
    size_t i = n;
    while (i > 0 && n - i < 3 && ((unsigned char)buf[i - 1] & 0xC0) == 0x80)
        i--;
    if (i == 0)
        return n;

    unsigned char lead = (unsigned char)buf[i - 1];
    size_t wanted = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    return n - (i - 1) < wanted ? i - 1 : n;
}

enum { DIGITS_MAX = 20 }; /* of 64 bits */

/* Where they begin, in the end of the buffer. */
static const char *write_digits(char digits[DIGITS_MAX], unsigned long long v)
{
    char *c = digits + DIGITS_MAX;
    do {
        *--c = (char)('0' + v % 10);
        v /= 10;
    } while (v != 0);
    return c;
}

/* Of text that need not end in NUL. */
static size_t length_upto(const char *text, size_t most)
{
    const char *end = memchr(text, '\0', most);
    return end != NULL ? (size_t)(end - text) : most;
}

/* Text, %s, %.*s, %u, %lu and %llu, which is most of what an estimate says, at a
 * fifth of what vsnprintf() takes for it; -1 for anything else, and where there
 * is no room. */
static int format_words(char *buf, size_t size, const char *format,
                        va_list args)
{
    char digits[DIGITS_MAX];
    size_t n = 0;
    for (const char *c = format; *c != '\0'; c++) {
        const char *word = c;
        size_t len = 1;
        if (*c == '%') {
            unsigned longs = 0;
            while (*++c == 'l')
                longs++;
            if (longs == 0 && strncmp(c, ".*s", 3) == 0) {
                const int most = va_arg(args, int);
                word = va_arg(args, const char *);
                if (word == NULL || most < 0)
                    return -1;
                len = length_upto(word, (size_t)most);
                c += 2;
            } else if (*c == 's' && longs == 0) {
                word = va_arg(args, const char *);
                if (word == NULL)
                    return -1;
                len = strlen(word);
            } else if (*c == 'u' && longs <= 2) {
                word = write_digits(
                    digits, longs == 0   ? va_arg(args, unsigned)
                            : longs == 1 ? va_arg(args, unsigned long)
                                         : va_arg(args, unsigned long long));
                len = (size_t)(digits + DIGITS_MAX - word);
            } else {
                return -1;
            }
        } else {
            len = strcspn(c, "%");
            c += len - 1;
        }
        if (len >= size - n)
            return -1;
        memcpy(buf + n, word, len);
        n += len;
    }
    buf[n] = '\0';
    return (int)n;
}

size_t str_vformat(char *buf, size_t size, const char *format, va_list args)
{
    if (size == 0)
        return 0;
    va_list words;
    va_copy(words, args);
    int len = format_words(buf, size, format, words);
    va_end(words);
    if (len >= 0)
        return (size_t)len;
    len = vsnprintf(buf, size, format, args);
    if (len < 0) {
        buf[0] = '\0';
        return 0;
    }
    if ((size_t)len < size)
        return (size_t)len;
    size_t kept = trim_cut_character(buf, size - 1);
    buf[kept] = '\0';
    return kept;
}

size_t str_format(char *buf, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t len = str_vformat(buf, size, format, args);
    va_end(args);
    return len;
}

size_t str_append(char *buf, size_t size, const char *format, ...)
{
    if (size == 0)
        return 0;
    size_t len = strlen(buf);
    if (len >= size)
        return len;

    va_list args;
    va_start(args, format);
    len += str_vformat(buf + len, size - len, format, args);
    va_end(args);
    return len;
}

size_t str_append_item(char *buf, size_t size, const char *item)
{
    const bool first = size == 0 || buf[0] == '\0';
    return str_append(buf, size, "%s%s", first ? "" : ", ", item);
}
