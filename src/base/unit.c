/*
 * Owns numbers as people write them: "80GiB", "1.4T", "45%", and back. Whole
 * numbers are computed exactly, in 128 bits. Refuses to ask the locale: digits
 * are read here, and strtod sees only text without a decimal point.
 */
#include "base/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"

/* ---- reading ---- */

/* 128 bits, lowest limb first: no integer of that width is portable. */
struct wide {
    uint32_t limb[4];
};

/* w = w * f + add; false, and w as it was, when that does not fit. */
static bool wide_mul_add(struct wide *w, uint32_t f, uint32_t add)
{
    struct wide r;
    uint64_t carry = add;
    for (size_t i = 0; i < 4; i++) {
        carry += (uint64_t)w->limb[i] * f;
        r.limb[i] = (uint32_t)(carry & UINT32_MAX);
        carry >>= 32;
    }
    if (carry != 0)
        return false;
    *w = r;
    return true;
}

/* w = w / f; returns the remainder. */
static uint32_t wide_div(struct wide *w, uint32_t f)
{
    uint64_t rest = 0;
    for (size_t i = 4; i-- > 0;) {
        rest = rest << 32 | w->limb[i];
        w->limb[i] = (uint32_t)(rest / f);
        rest %= f;
    }
    return (uint32_t)rest;
}

static bool wide_is_zero(const struct wide *w)
{
    return (w->limb[0] | w->limb[1] | w->limb[2] | w->limb[3]) == 0;
}

/* A decimal number: digits * 10^exponent. */
struct decimal {
    struct wide digits;
    long exponent;
    bool negative;
    bool cut; /* some non-zero digit had no room, after the 38th */
};

/* Far beyond any number that fits, far below what a long holds. */
enum { EXPONENT_MAX = 100000 };

static void skip(struct str *s, size_t n)
{
    s->p += n;
    s->n -= n;
}

static bool starts_with(struct str s, char c)
{
    return s.n > 0 && s.p[0] == c;
}

/* Takes digits, with single '_' between them, off the front; false when there
 * is not even one or an underscore stands alone. */
static bool take_digits(struct str *s, struct decimal *d, bool fraction)
{
    bool any = false;
    while (s->n > 0) {
        if (s->p[0] == '_' && any && s->n > 1 && is_digit(s->p[1]))
            skip(s, 1);
        if (!is_digit(s->p[0]))
            break;
        uint32_t digit = (uint32_t)(s->p[0] - '0');
        if (!d->cut && wide_mul_add(&d->digits, 10, digit)) {
            d->exponent -= fraction;
        } else {
            d->cut = d->cut || digit != 0;
            d->exponent += !fraction && d->exponent < EXPONENT_MAX;
        }
        any = true;
        skip(s, 1);
    }
    return any;
}

/* Takes "e9" off the front. No digit after the 'e' means that it was not an
 * exponent, and is left to be refused as a suffix. */
static void take_exponent(struct str *s, struct decimal *d)
{
    struct str t = *s;
    if (!starts_with(t, 'e') && !starts_with(t, 'E'))
        return;
    skip(&t, 1);
    bool negative = starts_with(t, '-');
    if (negative || starts_with(t, '+'))
        skip(&t, 1);
    if (t.n == 0 || !is_digit(t.p[0]))
        return;

    long value = 0;
    for (; t.n > 0 && is_digit(t.p[0]); skip(&t, 1)) {
        if (value < EXPONENT_MAX)
            value = value * 10 + (t.p[0] - '0');
    }
    d->exponent += negative ? -value : value;
    *s = t;
}

/* Takes a number off the front of *s; false when there is none. */
static bool take_decimal(struct str *s, struct decimal *d)
{
    *d = (struct decimal){ .exponent = 0 };
    d->negative = starts_with(*s, '-');
    if (d->negative)
        skip(s, 1);

    bool any = take_digits(s, d, false);
    if (starts_with(*s, '.')) {
        skip(s, 1);
        if (!take_digits(s, d, true))
            return false;
        any = true;
    }
    if (any)
        take_exponent(s, d);
    return any;
}

/* digits * 10^exponent as an integer below 2^63; *whole says whether nothing
 * was cut off behind the point. */
static bool decimal_to_u64(struct decimal *d, uint64_t *out, bool *whole)
{
    *whole = !d->cut;
    *out = 0;
    if (wide_is_zero(&d->digits))
        return true;
    if (d->negative)
        return false;
    for (; d->exponent > 0; d->exponent--) {
        if (!wide_mul_add(&d->digits, 10, 0))
            return false;
    }
    for (; d->exponent < 0 && !wide_is_zero(&d->digits); d->exponent++) {
        if (wide_div(&d->digits, 10) != 0)
            *whole = false;
    }
    const uint32_t *limb = d->digits.limb;
    if (limb[3] != 0 || limb[2] != 0 || limb[1] > INT32_MAX)
        return false;
    *out = (uint64_t)limb[1] << 32 | limb[0];
    return true;
}

/* What follows a number: a power of 1000 or of 1024. */
struct suffix {
    const char *text;
    unsigned thousands;
    unsigned kibis;
};

static const struct suffix count_suffixes[] = {
    { "", 0, 0 },   { "k", 1, 0 },  { "M", 2, 0 },  { "B", 3, 0 },
    { "G", 3, 0 },  { "T", 4, 0 },  { "P", 5, 0 },  { "Ki", 0, 1 },
    { "Mi", 0, 2 }, { "Gi", 0, 3 }, { "Ti", 0, 4 },
};

/* No bare "G": whether "80G" is 80 GB or 80 GiB is for the user to say. */
static const struct suffix byte_suffixes[] = {
    { "", 0, 0 },    { "B", 0, 0 },   { "kB", 1, 0 },  { "MB", 2, 0 },
    { "GB", 3, 0 },  { "TB", 4, 0 },  { "PB", 5, 0 },  { "KiB", 0, 1 },
    { "MiB", 0, 2 }, { "GiB", 0, 3 }, { "TiB", 0, 4 }, { "PiB", 0, 5 },
};

static const struct suffix *find_suffix(const struct suffix *table, size_t n,
                                        struct str text)
{
    for (size_t i = 0; i < n; i++) {
        if (str_same_name(text, str_of(table[i].text)))
            return &table[i];
    }
    return NULL;
}

static enum unit_result parse_scaled(struct str text, uint64_t *out,
                                     bool *whole, const struct suffix *table,
                                     size_t n)
{
    struct decimal d;
    *out = 0;
    text = str_trim(text);
    if (!take_decimal(&text, &d))
        return UNIT_BAD;
    const struct suffix *suffix = find_suffix(table, n, str_trim(text));
    if (!suffix)
        return UNIT_BAD;

    d.exponent += 3L * suffix->thousands;
    for (unsigned i = 0; i < suffix->kibis; i++) {
        if (!wide_mul_add(&d.digits, 1024, 0))
            return UNIT_RANGE;
    }
    return decimal_to_u64(&d, out, whole) ? UNIT_OK : UNIT_RANGE;
}

enum unit_result unit_parse_count(struct str text, uint64_t *out)
{
    bool whole = true;
    const size_t n = sizeof(count_suffixes) / sizeof(count_suffixes[0]);
    enum unit_result r = parse_scaled(text, out, &whole, count_suffixes, n);
    if (r == UNIT_OK && !whole) {
        *out = 0;
        return UNIT_BAD;
    }
    return r;
}

enum unit_result unit_parse_bytes(struct str text, uint64_t *out)
{
    bool whole = true;
    const size_t n = sizeof(byte_suffixes) / sizeof(byte_suffixes[0]);
    return parse_scaled(text, out, &whole, byte_suffixes, n);
}

enum unit_result unit_parse_real(struct str text, double *out)
{
    struct decimal d;
    *out = 0;
    text = str_trim(text);
    if (!take_decimal(&text, &d))
        return UNIT_BAD;
    text = str_trim(text);
    if (str_is(text, "%"))
        d.exponent -= 2;
    else if (text.n > 0)
        return UNIT_BAD;

    /* "45e-2" for 0.45: strtod rounds it right and, as there is no point in
     * it, alike in every locale. */
    char digits[UNIT_TEXT_MAX];
    size_t at = sizeof(digits);
    digits[--at] = '\0';
    do
        digits[--at] = (char)('0' + wide_div(&d.digits, 10));
    while (!wide_is_zero(&d.digits));
    char plain[2 * UNIT_TEXT_MAX];
    str_format(plain, sizeof(plain), "%s%se%ld", d.negative ? "-" : "",
               digits + at, d.exponent);
    double value = strtod(plain, NULL);
    if (!isfinite(value))
        return UNIT_RANGE;
    *out = value;
    return UNIT_OK;
}

/* ---- writing ---- */

/* The locale's decimal point, of any length, becomes '.'; the rest of a
 * printed number is the same everywhere. */
static void use_dot(char *text)
{
    size_t n = strspn(text, "+-0123456789");
    size_t point = strcspn(text + n, "+-0123456789eE");
    if (point == 0 || text[n] == '\0')
        return;
    text[n] = '.';
    memmove(text + n + 1, text + n + point, strlen(text + n + point) + 1);
}

/* True after writing what is not a number. */
static bool format_special(char buf[UNIT_TEXT_MAX], double value)
{
    if (isfinite(value))
        return false;
    const char *text = isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
    str_format(buf, UNIT_TEXT_MAX, "%s", text);
    return true;
}

const char *unit_format_double(char buf[UNIT_TEXT_MAX], double value)
{
    if (format_special(buf, value))
        return buf;
    for (int digits = 15; digits <= 17; digits++) {
        str_format(buf, UNIT_TEXT_MAX, "%.*g", digits, value);
        /* The same locale wrote and reads it. */
        double back = strtod(buf, NULL);
        if (!(back < value) && !(back > value))
            break;
    }
    use_dot(buf);
    return buf;
}

const char *unit_format_short(char buf[UNIT_TEXT_MAX], double value)
{
    if (format_special(buf, value))
        return buf;
    str_format(buf, UNIT_TEXT_MAX, "%.6g", value);
    use_dot(buf);
    return buf;
}

const char *unit_s(double n)
{
    return n < 1 || n > 1 ? "s" : "";
}

const char *unit_format_flop(char buf[UNIT_TEXT_MAX], double flop)
{
    if (format_special(buf, flop))
        return buf;
    str_format(buf, UNIT_TEXT_MAX, "%.2e", flop);
    use_dot(buf);
    return buf;
}

const char *unit_format_bytes(char buf[UNIT_TEXT_MAX], uint64_t bytes)
{
    static const char *const units[] = { "B",   "KiB", "MiB", "GiB",
                                         "TiB", "PiB", "EiB" };
    const size_t last = sizeof(units) / sizeof(units[0]) - 1;
    if (bytes < 1024) {
        str_format(buf, UNIT_TEXT_MAX, "%u B", (unsigned)bytes);
        return buf;
    }

    size_t unit = 0;
    double value = (double)bytes;
    /* Units change where the number printed would read 1024.0. */
    while (unit < last && value >= 1023.95) {
        value /= 1024;
        unit++;
    }
    str_format(buf, UNIT_TEXT_MAX, "%.*f", value < 99.995 ? 2 : 1, value);
    use_dot(buf);
    str_append(buf, UNIT_TEXT_MAX, " %s", units[unit]);
    return buf;
}

/* Zeros at the end of a fraction, and a point left bare. */
static void drop_zeros(char *text)
{
    if (!strchr(text, '.'))
        return;
    size_t n = strlen(text);
    while (text[n - 1] == '0')
        n--;
    if (text[n - 1] == '.')
        n--;
    text[n] = '\0';
}

const char *unit_format_count(char buf[UNIT_TEXT_MAX], double count)
{
    static const char *const units[] = { "", "k", "M", "B", "T", "P" };
    const size_t last = sizeof(units) / sizeof(units[0]) - 1;
    if (format_special(buf, count))
        return buf;

    size_t unit = 0;
    double value = fabs(count);
    /* 999.5 would print as 1000 with three digits. */
    for (; unit < last && value >= 999.5; unit++)
        value /= 1000;
    if (value >= 999.5 || (value > 0 && value < 0.01))
        return unit_format_flop(buf, count);

    int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    str_format(buf, UNIT_TEXT_MAX, "%s%.*f", count < 0 ? "-" : "", decimals,
               value);
    use_dot(buf);
    drop_zeros(buf);
    str_append(buf, UNIT_TEXT_MAX, "%s", units[unit]);
    return buf;
}

const char *unit_format_grouped(char buf[UNIT_TEXT_MAX], double value,
                                int decimals)
{
    if (format_special(buf, value))
        return buf;
    if (decimals < 0)
        decimals = 0;
    if (decimals > 9)
        decimals = 9;
    /* Past 2^63 the digits are noise, and past 40 characters nowhere. */
    if (fabs(value) >= 1e18)
        return unit_format_flop(buf, value);

    char plain[UNIT_TEXT_MAX];
    str_format(plain, sizeof(plain), "%.*f", decimals, value);
    use_dot(plain);
    size_t sign = plain[0] == '-';
    size_t whole = strspn(plain + sign, "0123456789");
    size_t n = 0;
    if (sign && strspn(plain + 1, "0.") != strlen(plain + 1))
        buf[n++] = '-';
    for (size_t i = 0; i < whole; i++) {
        if (i > 0 && (whole - i) % 3 == 0)
            buf[n++] = ',';
        buf[n++] = plain[sign + i];
    }
    str_format(buf + n, UNIT_TEXT_MAX - n, "%s", plain + sign + whole);
    return buf;
}
