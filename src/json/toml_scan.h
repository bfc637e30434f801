/* The scalars and words beneath toml_parse. Only src/json includes this. */
#ifndef MEMPLAN_JSON_TOML_SCAN_H
#define MEMPLAN_JSON_TOML_SCAN_H

#include "json/json_scan.h"

struct toml_scan {
    struct arena *arena;
    struct diag *diag;
    const char *text;
    size_t len, at;
};

/* Reports what is wrong at `offset`; false, so that callers return it. */
bool toml_refuse(struct toml_scan *s, size_t offset, memplan_status status,
                 const char *message, const char *hint);

/* The byte at s->at; '\n' of "\r\n" and '\0' at the end, which no text that
 * toml_scan_check let pass has otherwise. */
char toml_peek(const struct toml_scan *s);

/* Over blanks and tabs. */
void toml_skip_blanks(struct toml_scan *s);
/* Over a comment, if there is one, and the end of the line; false when
 * something else stands there. */
bool toml_skip_end(struct toml_scan *s);

/* Once, before anything is read: UTF-8, and no control characters. */
bool toml_scan_check(struct toml_scan *s);

/* One part of a key: bare or quoted, on one line. */
bool toml_take_key(struct toml_scan *s, struct str *out);

/* A string, number, bool, date or time: fills kind, text, number, truth. */
bool toml_take_scalar(struct toml_scan *s, struct json *v);

#endif
