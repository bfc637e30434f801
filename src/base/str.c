/*
 * Owns slices of text: comparing names, cutting, and formatting into buffers
 * of fixed size. ASCII only where letters matter, so that no locale has a say.
 */
#include "base/str.h"

#include <math.h>
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

void str_copy(char *buf, size_t size, struct str text)
{
    const size_t n = text.n < size ? text.n : size - 1;
    memcpy(buf, text.p, n);
    buf[n] = '\0';
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

enum { DIGITS_MAX = 24 }; /* of 64 bits, and a point */

/* At least so many, before `end`; where they begin. */
static char *write_digits(char *end, unsigned long long v, int least)
{
    char *c = end;
    do {
        *--c = (char)('0' + v % 10);
        v /= 10;
    } while (v != 0 || end - c < least);
    return c;
}

/* Of text that need not end in NUL. */
static size_t length_upto(const char *text, size_t most)
{
    const char *end = memchr(text, '\0', most);
    return end != NULL ? (size_t)(end - text) : most;
}

/* v to `decimals`, as a whole number of the last of them: rounded as printf()
 * does, by what the double is exactly, a tie to even. False where that is left
 * to printf(). */
static bool round_decimals(unsigned long long *out, double v, int decimals)
{
    static const double power[] = { 1, 10, 100, 1000 };
    if (decimals < 0 || decimals > 3 || !(v >= 0 && v < 1e12) || signbit(v))
        return false;
    const double scaled = v * power[decimals];
    const double lost = fma(v, power[decimals], -scaled);
    const unsigned long long whole = (unsigned long long)scaled;
    const double beyond = scaled - (double)whole - 0.5 + lost;
    *out = whole + (beyond > 0 || (!(beyond < 0) && whole % 2 == 1) ? 1 : 0);
    return true;
}

/* "%02u": what stands between '%' and the letter. */
struct directive {
    int width, precision; /* -1: none */
    unsigned longs;
    char letter;
};

/* Returns its last character. */
static const char *read_directive(struct directive *d, const char *c,
                                  va_list *args)
{
    *d = (struct directive){ -1, -1, 0, '\0' };
    if (c[0] == '0' && c[1] >= '1' && c[1] <= '9') {
        d->width = c[1] - '0';
        c += 2;
    }
    if (*c == '.') {
        d->precision = 0;
        if (*++c == '*') {
            d->precision = va_arg(*args, int);
            c++;
        }
        for (; *c >= '0' && *c <= '9'; c++)
            d->precision = 10 * d->precision + (*c - '0');
    }
    for (; *c == 'l'; c++)
        d->longs++;
    d->letter = *c;
    return c;
}

/* What it comes to, text of its own or in `digits`; false: left to printf(). */
static bool convert(struct str *out, const struct directive *d,
                    char digits[DIGITS_MAX], va_list *args)
{
    char *const end = digits + DIGITS_MAX;
    char *c = end;
    unsigned long long v;
    if (d->letter == 's' && d->longs == 0 && d->width < 0) {
        out->p = va_arg(*args, const char *);
        if (out->p == NULL)
            return false;
        out->n = d->precision < 0 ? strlen(out->p)
                                  : length_upto(out->p, (size_t)d->precision);
        return true;
    }
    if (d->letter == 'u' && d->longs <= 2 && d->precision < 0) {
        v = d->longs == 0   ? va_arg(*args, unsigned)
            : d->longs == 1 ? va_arg(*args, unsigned long)
                            : va_arg(*args, unsigned long long);
    } else if (d->letter == 'f' && d->longs == 0 && d->width < 0
               && round_decimals(&v, va_arg(*args, double), d->precision)) {
        for (int i = 0; i < d->precision; i++, v /= 10)
            *--c = (char)('0' + v % 10);
        if (d->precision > 0)
            *--c = '.';
    } else {
        return false;
    }
    out->p = c = write_digits(c, v, d->width);
    out->n = (size_t)(end - c);
    return true;
}

/* Text, %s, %u and %f with a few decimals, which is most of what an estimate
 * says, at a fifth of what vsnprintf() takes for it; -1 for anything else, and
 * where there is no room. */
static int format_words(char *buf, size_t size, const char *format,
                        va_list *args)
{
    char digits[DIGITS_MAX];
    size_t n = 0;
    for (const char *c = format; *c != '\0'; c++) {
        struct str word = { c, 0 };
        struct directive d;
        if (*c != '%') {
            const char *end = strchr(c, '%');
            word.n = end != NULL ? (size_t)(end - c) : strlen(c);
            c += word.n - 1;
        } else if (c[1] == '%') {
            word.n = 1;
            c++;
        } else {
            c = read_directive(&d, c + 1, args);
            if (!convert(&word, &d, digits, args))
                return -1;
        }
        if (word.n >= size - n)
            return -1;
        memcpy(buf + n, word.p, word.n);
        n += word.n;
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
    int len = format_words(buf, size, format, &words);
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
