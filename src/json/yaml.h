/* YAML in: the same tree as of JSON text, so that what reads one reads both. */
#ifndef MEMPLAN_JSON_YAML_H
#define MEMPLAN_JSON_YAML_H

#include "json/json.h"

/* As json_parse, of YAML 1.1 as PyYAML reads it: of a key twice the last value
 * is there, `before` says so. NULL after reporting E_SYNTAX, E_SCHEMA (a second
 * document), E_UNSUPPORTED (anchors, tags) with line and column, or E_NOMEM. */
struct json *yaml_parse(struct arena *a, const char *text, size_t len,
                        struct diag *d);

/* Where a walk over what has a `before` is; not by parents, of which values of
 * another tree have their own. */
struct yaml_walk {
    const struct json *at[JSON_MAX_DEPTH + 1];
    size_t depth;
};
/* The next one below the root, in order; NULL behind the last. */
const struct json *yaml_next_again(struct yaml_walk *w,
                                   const struct json *root);
/* Reports each of them, for programs that refuse such files (OmegaConf). */
void yaml_refuse_again(const struct json *root, const char *text, size_t len,
                       struct diag *d);

#endif
