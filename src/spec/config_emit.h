/*
 * The way back: a resolved run as another program's launch file. Rows of the
 * dialect's table that are written, and what its `apart` adds, are put as
 * entries in the order of the file; then the whole is rendered. Whoever calls
 * reads the text again by the same table and believes nothing before.
 */
#ifndef MEMPLAN_SPEC_CONFIG_EMIT_H
#define MEMPLAN_SPEC_CONFIG_EMIT_H

#include "spec/config.h"

enum { EMIT_TEXT = 16384, EMIT_ENTRIES = 96, EMIT_VALUES = 8192 };

struct emit {
    struct diag *d;
    const char *asked;       /* what the user calls the file */
    const struct spec *spec; /* the run's model */
    /* Written by the caller's leave. */
    const struct run *run;
    const struct config_dialect *dialect; /* that it is read back by */

    const char *prefix; /* of paths: where a table is put inside another */
    char head[512];     /* before the entries: environment, program */
    struct {
        char path[CONFIG_PATH_MAX];
        const char *value; /* as in JSON: words in double quotes */
    } entry[EMIT_ENTRIES];
    size_t entries;
    char values[EMIT_VALUES];
    size_t used;
    char text[EMIT_TEXT];
};

/* Writes `run`; `asked` and `spec` are there. False after reporting what has no
 * word there. */
bool config_emit(struct emit *e, const struct config_dialect *dialect,
                 const struct run *run, struct diag *d);

/* ---- for `apart` ---- */

/* Entries of one object stand together; one that is there already changes. */
void emit_count(struct emit *e, const char *path, uint64_t n);
void emit_bool(struct emit *e, const char *path, bool value);
void emit_word(struct emit *e, const char *path, const char *word);
/* A number with a fraction, a list, words of a flag: as it stands in the file. */
void emit_raw(struct emit *e, const char *path, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;

bool emit_has(const struct emit *e, const char *path);

/* Rows and `apart` of another dialect, below `prefix` ("deepspeed."). */
void emit_table(struct emit *e, const struct config_table *t,
                const char *prefix);

/* Reports that a key's value has no word there. */
void emit_refuse(struct emit *e, enum setup_key key, const char *hint, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;

/* The same of those of the keys that the user gave. */
void emit_refuse_given(struct emit *e, const enum setup_key *key, size_t n,
                       const char *hint);

/* GPUs of a node, where all nodes are full, or there is one; else reported. */
uint64_t emit_node(struct emit *e, const struct run *r);

/* ---- formats ---- */

void emit_json(struct emit *e);
void emit_yaml(struct emit *e);
void emit_toml(struct emit *e);  /* the first member is the table */
void emit_flags(struct emit *e); /* "--path-of-it value", true alone */

#endif
