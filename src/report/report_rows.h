/*
 * A report as a stream of named values, in the order of the JSON schemas
 * memplan.estimate/1 and memplan.compute/1. JSON, CSV and the lookup by path
 * are visitors of it, so that the three cannot disagree. Rows of plain fields
 * are tables: a key, a unit, an offset.
 */
#ifndef MEMPLAN_REPORT_REPORT_ROWS_H
#define MEMPLAN_REPORT_REPORT_ROWS_H

#include "plan/report_data.h"
#include "report/out.h"
#include "json/json.h"

enum value_kind {
    VALUE_NONE,
    VALUE_U64,
    VALUE_I64,
    VALUE_REAL,
    VALUE_BOOL,
    VALUE_TEXT
};

struct value {
    enum value_kind kind;
    const char *unit; /* "B", "s", ...; "" for a bare number */
    union {
        uint64_t u64;
        int64_t i64;
        double real;
        bool truth;
        const char *text; /* valid during the visit */
    };
};

/* begin: false to skip everything up to the end, which is then not told.
 * Keys are NULL inside arrays and for the top object. */
struct visitor {
    bool (*begin)(struct visitor *v, const char *key, bool array);
    void (*end)(struct visitor *v, bool array);
    void (*value)(struct visitor *v, const char *key, struct value value);
};

void report_visit(const struct memplan_report *report,
                  const struct answers *answers, struct visitor *v);

/* ---- rows ---- */

enum row_kind { ROW_U32, ROW_U64, ROW_I64, ROW_REAL, ROW_BOOL, ROW_TEXT };

struct row {
    const char *key, *unit;
    enum row_kind kind;
    bool zero_is_none;
    size_t offset;
};

#define ROW_KIND(T, member)                                                    \
    _Generic(((T *)0)->member, uint32_t: ROW_U32, uint64_t: ROW_U64,           \
             int64_t: ROW_I64, double: ROW_REAL, bool: ROW_BOOL,               \
             const char *: ROW_TEXT)
#define ROW_AS(T, member, key, unit, zero_is_none)                             \
    {                                                                          \
        key, unit, ROW_KIND(T, member), zero_is_none, offsetof(T, member)      \
    }
#define ROW(T, member, key, unit) ROW_AS(T, member, key, unit, false)
/* For members that say "not known" with 0 or "". */
#define ROW_OR_NONE(T, member, key, unit) ROW_AS(T, member, key, unit, true)

struct value row_value(const struct row *row, const void *base);
/* base NULL: every value is absent. */
void visit_rows(struct visitor *v, const struct row *row, size_t n,
                const void *base);
void visit_value(struct visitor *v, const char *key, struct value value);
void visit_text(struct visitor *v, const char *key, const char *text);
void visit_u64(struct visitor *v, const char *key, const char *unit,
               uint64_t n);
void visit_real(struct visitor *v, const char *key, const char *unit, double x);
void visit_bool(struct visitor *v, const char *key, bool truth);

/* As JSON and CSV print it; "" for an absent one. Short texts only: a text is
 * returned itself. */
enum { VALUE_TEXT_MAX = 40 };
const char *value_text(char buf[VALUE_TEXT_MAX], struct value value);

#define ROW_COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

/* ---- the two visitors that write ---- */

struct json_visitor {
    struct visitor base;
    struct json_writer w;
};
/* Call json_end(&v->w) at the end. */
void json_visitor_init(struct json_visitor *v, struct out *o);

#endif
