/*
 * JSON in and out. json_scan.c is a strict iterative scanner (RFC 8259, UTF-8,
 * depth) that runs before cJSON sees a byte, because cJSON accepts much that
 * is not JSON, and that gives every value its place in the text. json_read.c
 * is the only includer of cJSON.h, turns its tree into ours, in an arena, and
 * refuses duplicate keys. json_write.c is a streaming writer.
 */
#ifndef MEMPLAN_JSON_JSON_H
#define MEMPLAN_JSON_JSON_H

#include "base/arena.h"
#include "base/diag.h"
#include "base/str.h"

/* ---- reading ---- */

enum json_kind {
    JSON_NULL,
    JSON_BOOL,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
};

struct json {
    enum json_kind kind;
    struct str key;     /* in an object; unescaped; else empty */
    struct str text;    /* JSON_STRING: unescaped, NUL-terminated copy;
                           JSON_NUMBER: of TOML, its digits, else empty */
    double number;      /* JSON_NUMBER: finite always */
    bool truth;         /* JSON_BOOL */
    struct json *child; /* JSON_ARRAY, JSON_OBJECT: first; in file order */
    struct json *next;
    struct json *parent;
    size_t index;      /* position in the parent */
    size_t offset;     /* of the value in the text, in bytes */
    size_t key_offset; /* of the key; 0 when it has none */
    /* Of YAML: the key's line; that of the same key before, whose value is
     * gone, or 0. */
    size_t line, before;
    bool branched; /* of a script: in an if or a case that may not come there */
};

enum { JSON_MAX_DEPTH = 64 };

/* Parses; NULL after reporting E_SYNTAX with line and column (what was found,
 * what was expected), or E_NOMEM, E_RANGE for a number beyond double.
 * A UTF-8 byte order mark is an error that says so, the bare word NaN one that
 * says what to write instead; Infinity and -Infinity are numbers, as Python's
 * json writes them. Syntax ends at the first
 * error; of numbers out of range and duplicate keys up to 16 are reported.
 * Duplicate keys in one object are valid JSON and bad input: E_SCHEMA, at the
 * second key, naming the first one's line. Strings may hold U+0000: their
 * length counts, not the NUL behind them. */
struct json *json_parse(struct arena *a, const char *text, size_t len,
                        struct diag *d);

/* The member of an object, exact case; NULL when absent (or not an object). */
const struct json *json_member(const struct json *object, const char *key);

/* RFC 6901 pointer of a value: as many whole steps as there is room for, '?'
 * for control characters. */
void json_pointer(const struct json *value, char *buf, size_t size);

/* Fills pointer, line, column and offset of an error about `value`, of the
 * text that it was parsed from. The place is the value's, not its key's. */
void json_locate(memplan_error *e, const char *text, size_t len,
                 const struct json *value);

/* Length of the object or array at `offset` of a text that was parsed. */
size_t json_value_length(const char *text, size_t len, size_t offset);

/* What a value is, for messages: "a string", "null", "a number". */
const char *json_kind_name(enum json_kind kind);

/* "cJSON 1.7.15", and "1.7.15". Of the header compiled against. */
const char *json_library_name(void);
const char *json_library_version(void);

/* ---- writing ---- */

/* Writes JSON as it is told, with commas, and newline-and-two-spaces
 * indentation when `pretty`; the first failed write is sticky. */
struct json_writer {
    memplan_write_fn *write;
    void *ctx;
    bool pretty;
    bool failed;
    bool first; /* nothing in the current container yet */
    bool after_key;
    unsigned depth;
};

void json_writer_init(struct json_writer *w, bool pretty,
                      memplan_write_fn *write, void *ctx);
void json_begin_object(struct json_writer *w);
void json_end_object(struct json_writer *w);
void json_begin_array(struct json_writer *w);
void json_end_array(struct json_writer *w);
void json_key(struct json_writer *w, const char *key);
void json_string(struct json_writer *w, const char *text); /* NULL: null */
void json_u64(struct json_writer *w, uint64_t v);
void json_number(struct json_writer *w, double v); /* not finite: null */
void json_bool(struct json_writer *w, bool v);
void json_null(struct json_writer *w);
/* A value that is JSON already. */
void json_raw(struct json_writer *w, const char *json);
void json_end(struct json_writer *w); /* final newline */

#endif
