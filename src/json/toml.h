/* TOML in: the same tree as of JSON text, so that what reads one reads both. */
#ifndef MEMPLAN_JSON_TOML_H
#define MEMPLAN_JSON_TOML_H

#include "json/json.h"

/* As json_parse, of TOML 1.0. Dates and times are strings, as written; so are
 * inf and nan, since a number of the tree is finite. A number's `text` is its
 * digits in base ten without '_'. NULL after reporting E_SYNTAX, E_SCHEMA (a
 * key or table twice) or E_RANGE (beyond 64 bits, or double) with line and
 * column, or E_NOMEM. */
struct json *toml_parse(struct arena *a, const char *text, size_t len,
                        struct diag *d);

#endif
