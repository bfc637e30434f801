/*
 * The scanner beneath json_parse: JSON text as tokens, one at a time, each with
 * its place; and the characters it is made of. Only src/json includes this.
 */
#ifndef MEMPLAN_JSON_JSON_SCAN_H
#define MEMPLAN_JSON_JSON_SCAN_H

#include "json/json.h"

enum json_token {
    JSON_TOKEN_ERROR, /* reported; the scan is over */
    JSON_TOKEN_END,   /* of a text that was valid */
    JSON_TOKEN_OBJECT,
    JSON_TOKEN_OBJECT_END,
    JSON_TOKEN_ARRAY,
    JSON_TOKEN_ARRAY_END,
    JSON_TOKEN_KEY, /* with the colon after it taken too */
    JSON_TOKEN_STRING,
    JSON_TOKEN_NUMBER,
    JSON_TOKEN_TRUE,
    JSON_TOKEN_FALSE,
    JSON_TOKEN_NULL
};

/* What may come next. */
enum json_expect {
    JSON_EXPECT_VALUE,
    JSON_EXPECT_FIRST_ELEMENT, /* or ']' */
    JSON_EXPECT_FIRST_KEY,     /* or '}' */
    JSON_EXPECT_KEY,
    JSON_EXPECT_COLON,
    JSON_EXPECT_ARRAY_MORE,  /* ',' or ']' */
    JSON_EXPECT_OBJECT_MORE, /* ',' or '}' */
    JSON_EXPECT_END
};

struct json_scan {
    const char *text;
    size_t len;
    size_t pos;   /* of the next byte to look at */
    size_t start; /* of the token just read */
    size_t end;   /* behind it; strings include their quotes */
    enum json_expect expect;
    unsigned depth;
    size_t open[JSON_MAX_DEPTH]; /* where each open bracket is */
    struct diag *diag;
};

void json_scan_init(struct json_scan *s, const char *text, size_t len,
                    struct diag *d);
enum json_token json_scan_next(struct json_scan *s);

/* ---- the text itself (json_text.c) ---- */

/* Fills line, column and offset. */
void json_place(memplan_error *e, const char *text, size_t len, size_t offset);
uint32_t json_line(const char *text, size_t len, size_t offset);

/* Undoes the escapes of a valid string's inside; `out` has room for n bytes.
 * Returns how many there are. */
size_t json_unescape(char *out, const char *p, size_t n);

/* Length of the UTF-8 character at p, of n bytes at most; 0 when it is none. */
size_t json_utf8_length(const char *p, size_t n);
/* The code point of a valid character of that length. */
unsigned json_utf8_decode(const char *p, size_t len);

/* The value of a hexadecimal digit; 16 when it is none. */
unsigned json_hex_value(char c);

/* The halves of what \u escapes write a character past U+FFFF with. */
bool json_is_high_surrogate(unsigned code);
bool json_is_low_surrogate(unsigned code);

/* Text from outside, fit for a message: whole characters only, cut to size,
 * '?' for what would upset a terminal. */
void json_printable(char *buf, size_t size, struct str text);

#endif
