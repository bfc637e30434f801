/* Slices of text: pointer and length, not owned, not NUL-terminated. */
#ifndef MEMPLAN_BASE_STR_H
#define MEMPLAN_BASE_STR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct str {
    const char *p;
    size_t n;
};

#define STR(literal) ((struct str){ (literal), sizeof(literal) - 1 })

struct str str_of(const char *text); /* NULL gives an empty slice */
bool str_eq(struct str a, struct str b);
bool str_is(struct str a, const char *text);
/* Names: ASCII case and the difference between '-', '_' and ' ' ignored. */
bool str_same_name(struct str a, struct str b);
bool str_ends_with(struct str a, const char *suffix);
/* Splits at the first `sep`: returns the part before it, *rest the part after
 * (empty when there is no sep). */
struct str str_cut(struct str a, char sep, struct str *rest);
struct str str_trim(struct str a); /* blanks and tabs off both ends */
/* How unlike two names are (Damerau-Levenshtein, folded as in str_same_name,
 * first 63 bytes): 0 equal. */
unsigned str_distance(struct str a, struct str b);
/* True when distance is small enough for "did you mean". */
bool str_near(struct str a, struct str b, unsigned distance);

/* Not of ctype.h, whose functions ask the locale. */
static inline bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Copies as much as fits into `size`, not 0, and ends it in NUL. */
void str_copy(char *buf, size_t size, struct str text);

/* snprintf that always terminates and tolerates size 0; returns the length
 * the text now has (cut to size - 1, never through a UTF-8 character). The
 * decimal point is the locale's: write fractions with unit_format_*. */
size_t str_vformat(char *buf, size_t size, const char *format, va_list args)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 0)))
#endif
    ;
size_t str_format(char *buf, size_t size, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;
/* The same, at the end of what is in buf already. */
size_t str_append(char *buf, size_t size, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;
/* The same of one more item of a list, "a, b": with a comma but for the
 * first. */
size_t str_append_item(char *buf, size_t size, const char *item);

#endif
