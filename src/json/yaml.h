/* YAML in: the same tree as of JSON text, so that what reads one reads both. */
#ifndef MEMPLAN_JSON_YAML_H
#define MEMPLAN_JSON_YAML_H

#include "json/json.h"

/* As json_parse, of YAML 1.1 as PyYAML reads it. NULL after reporting
 * E_SYNTAX, E_SCHEMA (a key twice, a second document), E_UNSUPPORTED (anchors,
 * tags) with line and column, or E_NOMEM. */
struct json *yaml_parse(struct arena *a, const char *text, size_t len,
                        struct diag *d);

#endif
