/*
 * Owns the way from JSON text to our tree, and is the only file that knows
 * cJSON. The scanner goes over the text first, because cJSON takes much that
 * is not JSON; then cJSON parses it; then the scanner's tokens and cJSON's
 * tree are walked side by side: numbers come from cJSON, places and strings
 * from the scanner (cJSON keeps no places, and cuts strings at U+0000).
 *
 * What is not asked of cJSON: valueint (it saturates), cJSON_GetObjectItem (it
 * ignores case), cJSON_InitHooks (it is global to the process: a library must
 * not), cJSON_Version (it writes a static buffer).
 */
#include "json/json_scan.h"

#include <cjson/cJSON.h>

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/banned.h"

_Static_assert(JSON_MAX_DEPTH < CJSON_NESTING_LIMIT,
               "what the scanner passes, cJSON must pass");

enum {
    /* cJSON 1.7.15 copies a number into 64 bytes and refuses longer ones. */
    CJSON_NUMBER_MAX = 63,
    /* Twice what a double tells apart, so that cutting there is harmless. */
    DIGITS_KEPT = 40,
    /* One bad file gets a page of errors, not a million. */
    REPORTS_MAX = 16
};

#define TEXT_OF(x) TEXT_OF_(x)
#define TEXT_OF_(x) #x
#define LIBRARY_VERSION                                                        \
    TEXT_OF(CJSON_VERSION_MAJOR)                                               \
    "." TEXT_OF(CJSON_VERSION_MINOR) "." TEXT_OF(CJSON_VERSION_PATCH)

const char *json_library_name(void)
{
    return "cJSON " LIBRARY_VERSION;
}

const char *json_library_version(void)
{
    return LIBRARY_VERSION;
}

/* ---- long numbers ---- */

/* A number's digits without leading zeros, and the power of ten behind. */
struct short_number {
    char digits[DIGITS_KEPT + 1];
    size_t kept;
    long long exponent;
};

static void add_digit(struct short_number *s, char digit, bool fraction)
{
    bool zero = s->kept == 0 && digit == '0';
    if (!zero && s->kept < DIGITS_KEPT) {
        s->digits[s->kept++] = digit;
        s->exponent -= fraction;
    } else if (zero) {
        s->exponent -= fraction;
    } else {
        s->exponent += !fraction;
    }
}

/* Rewrites a valid number of more than CJSON_NUMBER_MAX bytes in place as a
 * short one of the same value, with blanks behind, so that no other byte of
 * the text moves. */
static void shorten_number(char *p, size_t n)
{
    enum { POWER_MAX = 1000000000 };
    struct short_number s = { .kept = 0 };
    size_t i = p[0] == '-';
    bool fraction = false;
    for (; i < n && p[i] != 'e' && p[i] != 'E'; i++) {
        if (p[i] == '.')
            fraction = true;
        else
            add_digit(&s, p[i], fraction);
    }
    bool negative = i + 1 < n && p[i + 1] == '-';
    long long power = 0;
    for (i++; i < n; i++) {
        if (p[i] >= '0' && p[i] <= '9' && power < POWER_MAX)
            power = power * 10 + (p[i] - '0');
    }
    s.exponent += negative ? -power : power;

    char plain[CJSON_NUMBER_MAX + 1];
    size_t len =
        str_format(plain, sizeof(plain), "%s%se%lld", p[0] == '-' ? "-" : "",
                   s.kept ? s.digits : "0", s.kept ? s.exponent : 0);
    memset(p, ' ', n);
    memcpy(p, plain, len);
}

/* ---- building ---- */

struct reader {
    struct arena *arena;
    struct diag *diag;
    const char *text;
    size_t len;
    struct json_scan scan;

    struct json *root;
    struct json *parent;
    struct json *last; /* child of parent; NULL: none yet */
    struct str key;    /* of the member to come */
    size_t key_offset;
    const cJSON *node;                     /* cJSON's value to come */
    const cJSON *open[JSON_MAX_DEPTH + 1]; /* cJSON's containers */
    unsigned depth;

    size_t widest; /* most members of an object */
    unsigned reports;
};

/* The inside of the string token just scanned, escapes undone. */
static struct str take_string(struct reader *r)
{
    const char *inside = r->text + r->scan.start + 1;
    size_t n = r->scan.end - r->scan.start - 2;
    char *copy = arena_alloc(r->arena, n + 1, 1);
    if (!copy)
        return (struct str){ "", 0 };
    return (struct str){ copy, json_unescape(copy, inside, n) };
}

static memplan_error *report_at(struct reader *r, const struct json *v,
                                memplan_status status, const char *message)
{
    memplan_error *e = diag_add(r->diag, status, "%s", message);
    json_locate(e, r->text, r->len, v);
    r->reports++;
    return e;
}

/* As Python writes it into a model's file: no bound, such as Mamba-2's
 * time_step_limit has none. */
static bool is_infinity(struct str token)
{
    return token.p[token.n - 1] == 'y';
}

static void take_number(struct reader *r, struct json *v)
{
    v->number = r->node->valuedouble;
    struct str token = { r->text + v->offset, r->scan.end - v->offset };
    if (isfinite(v->number) || is_infinity(token) || r->reports >= REPORTS_MAX)
        return;
    char number[40];
    char message[80];
    json_printable(number, sizeof(number), token);
    str_format(message, sizeof(message), "%s%s is beyond a double's range",
               number, token.n >= sizeof(number) ? "..." : "");
    memplan_error *e = report_at(r, v, MEMPLAN_E_RANGE, message);
    diag_hint(e, "the largest number is about 1.8e308");
}

static enum json_kind kind_of(enum json_token token)
{
    switch (token) {
    case JSON_TOKEN_OBJECT: return JSON_OBJECT;
    case JSON_TOKEN_ARRAY: return JSON_ARRAY;
    case JSON_TOKEN_STRING: return JSON_STRING;
    case JSON_TOKEN_NUMBER: return JSON_NUMBER;
    case JSON_TOKEN_TRUE:
    case JSON_TOKEN_FALSE: return JSON_BOOL;
    case JSON_TOKEN_NULL:
    case JSON_TOKEN_KEY:
    case JSON_TOKEN_OBJECT_END:
    case JSON_TOKEN_ARRAY_END:
    case JSON_TOKEN_END:
    case JSON_TOKEN_ERROR: break;
    }
    return JSON_NULL;
}

/* The value of the token just scanned, as the next child of the parent. */
static struct json *append_value(struct reader *r, enum json_token token)
{
    struct json *v = ARENA_NEW(r->arena, struct json, 1);
    if (!v)
        return NULL;
    v->kind = kind_of(token);
    v->offset = r->scan.start;
    v->key = r->key;
    v->key_offset = r->key_offset;
    v->parent = r->parent;
    v->index = r->last ? r->last->index + 1 : 0;
    v->truth = token == JSON_TOKEN_TRUE;
    r->key = (struct str){ "", 0 };
    r->key_offset = 0;
    if (r->last)
        r->last->next = v;
    else if (r->parent)
        r->parent->child = v;
    else
        r->root = v;
    r->last = v;
    if (r->parent && r->parent->kind == JSON_OBJECT && v->index >= r->widest)
        r->widest = v->index + 1;
    return v;
}

/* One token that begins a value. False when memory is out. */
static bool take_value(struct reader *r, enum json_token token)
{
    assert(r->node); /* the same text gave both sides */
    struct json *v = append_value(r, token);
    if (!v)
        return false;
    if (token == JSON_TOKEN_OBJECT || token == JSON_TOKEN_ARRAY) {
        r->open[r->depth++] = r->node;
        r->node = r->node->child;
        r->parent = v;
        r->last = NULL;
        return true;
    }
    if (token == JSON_TOKEN_STRING)
        v->text = take_string(r);
    else if (token == JSON_TOKEN_NUMBER)
        take_number(r, v);
    r->node = r->node->next;
    return true;
}

/* Walks tokens and cJSON's tree side by side. */
static void build(struct reader *r, const cJSON *tree)
{
    json_scan_init(&r->scan, r->text, r->len, r->diag);
    r->node = tree;
    r->key = (struct str){ "", 0 };
    for (;;) {
        enum json_token token = json_scan_next(&r->scan);
        switch (token) {
        case JSON_TOKEN_ERROR:
        case JSON_TOKEN_END: return;
        case JSON_TOKEN_KEY:
            r->key = take_string(r);
            r->key_offset = r->scan.start;
            break;
        case JSON_TOKEN_OBJECT_END:
        case JSON_TOKEN_ARRAY_END:
            r->node = r->open[--r->depth]->next;
            r->last = r->parent;
            r->parent = r->parent->parent;
            break;
        case JSON_TOKEN_OBJECT:
        case JSON_TOKEN_ARRAY:
        case JSON_TOKEN_STRING:
        case JSON_TOKEN_NUMBER:
        case JSON_TOKEN_TRUE:
        case JSON_TOKEN_FALSE:
        case JSON_TOKEN_NULL:
            if (!take_value(r, token))
                return;
            break;
        }
    }
}

/* ---- duplicate keys ---- */

/* By key, then by place. */
static bool member_before(const struct json *a, const struct json *b)
{
    size_t n = a->key.n < b->key.n ? a->key.n : b->key.n;
    int order = n > 0 ? memcmp(a->key.p, b->key.p, n) : 0;
    if (order != 0)
        return order < 0;
    if (a->key.n != b->key.n)
        return a->key.n < b->key.n;
    return a->index < b->index;
}

static void sift_down(const struct json **m, size_t root, size_t n)
{
    for (;;) {
        size_t child = 2 * root + 1;
        if (child >= n)
            return;
        if (child + 1 < n && member_before(m[child], m[child + 1]))
            child++;
        if (!member_before(m[root], m[child]))
            return;
        const struct json *t = m[root];
        m[root] = m[child];
        m[child] = t;
        root = child;
    }
}

/* Heapsort: n log n on the worst text too, where a hash table or the C
 * library's qsort can be driven into n squared. */
static void sort_members(const struct json **m, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sift_down(m, i, n);
    for (size_t i = n; i-- > 1;) {
        const struct json *t = m[0];
        m[0] = m[i];
        m[i] = t;
        sift_down(m, 0, i);
    }
}

static void report_duplicate(struct reader *r, const struct json *first,
                             const struct json *again)
{
    char key[64];
    char message[160];
    json_printable(key, sizeof(key), again->key);
    uint32_t line = json_line(r->text, r->len, first->key_offset);
    str_format(message, sizeof(message),
               "duplicate key \"%s\", first given on line %u", key,
               (unsigned)line);
    memplan_error *e = report_at(r, again, MEMPLAN_E_SCHEMA, message);
    json_place(e, r->text, r->len, again->key_offset);
    diag_hint(e, "keep one of the two");
}

static void check_members(struct reader *r, const struct json *object,
                          const struct json **m)
{
    size_t n = 0;
    for (const struct json *v = object->child; v; v = v->next)
        m[n++] = v;
    sort_members(m, n);
    const struct json *first = n > 0 ? m[0] : NULL;
    for (size_t i = 1; i < n && r->reports < REPORTS_MAX; i++) {
        if (str_eq(first->key, m[i]->key))
            report_duplicate(r, first, m[i]);
        else
            first = m[i];
    }
}

/* The next value in file order, parents before children; NULL at the end. */
static const struct json *next_value(const struct json *v)
{
    if (v->child)
        return v->child;
    while (v && !v->next)
        v = v->parent;
    return v ? v->next : NULL;
}

/* False when memory is out. */
static bool check_duplicates(struct reader *r)
{
    if (r->widest < 2)
        return true;
    memplan_allocator mem = r->arena->alloc;
    size_t size = r->widest * sizeof(const struct json *);
    const struct json **members = mem.resize(mem.ctx, NULL, 0, size);
    if (!members)
        return false;
    for (const struct json *v = r->root; v; v = next_value(v)) {
        if (v->kind == JSON_OBJECT)
            check_members(r, v, members);
    }
    mem.resize(mem.ctx, members, size, 0);
    return true;
}

/* ---- the whole ---- */

/* Scans; *clean is then the text that cJSON may see: its own copy where there
 * are numbers too long for cJSON. False after reporting. */
static bool scan_text(struct reader *r, const char **clean)
{
    char *copy = NULL;
    *clean = r->text;
    json_scan_init(&r->scan, r->text, r->len, r->diag);
    for (;;) {
        enum json_token token = json_scan_next(&r->scan);
        size_t n = r->scan.end - r->scan.start;
        if (token == JSON_TOKEN_ERROR)
            return false;
        if (token == JSON_TOKEN_END)
            return true;
        if (token != JSON_TOKEN_NUMBER)
            continue;
        struct str number = { r->text + r->scan.start, n };
        if (n <= CJSON_NUMBER_MAX && !is_infinity(number))
            continue;
        if (!copy)
            copy = arena_copy(r->arena, r->text, r->len);
        if (!copy) {
            diag_nomem(r->diag);
            return false;
        }
        if (is_infinity(number))
            memcpy(copy + r->scan.end - strlen("Infinity"), "1e999999", 8);
        else
            shorten_number(copy + r->scan.start, n);
        *clean = copy;
    }
}

struct json *json_parse(struct arena *a, const char *text, size_t len,
                        struct diag *d)
{
    struct reader r = { .arena = a, .diag = d, .text = text, .len = len };
    const char *clean = text;
    if (!scan_text(&r, &clean))
        return NULL;

    /* The text is JSON: that cJSON has no tree means that it has no memory. */
    cJSON *tree = cJSON_ParseWithLength(clean, len);
    if (!tree) {
        diag_nomem(d);
        return NULL;
    }
    build(&r, tree);
    cJSON_Delete(tree);
    if (a->failed || !check_duplicates(&r)) {
        diag_nomem(d);
        return NULL;
    }
    return r.reports == 0 ? r.root : NULL;
}

/* ---- asking ---- */

const struct json *json_member(const struct json *object, const char *key)
{
    if (!object || object->kind != JSON_OBJECT)
        return NULL;
    struct str wanted = str_of(key);
    for (const struct json *v = object->child; v; v = v->next) {
        if (str_eq(v->key, wanted))
            return v;
    }
    return NULL;
}

/* Writes one "/step" of a pointer at buf, '~' and '/' escaped. Returns its
 * length; 0 when there is no room for the whole. */
static size_t write_step(char *buf, size_t size, const struct json *v)
{
    char piece[24];
    if (v->parent->kind == JSON_ARRAY) {
        size_t n = str_format(piece, sizeof(piece), "/%zu", v->index);
        return n < size ? str_format(buf, size, "%s", piece) : 0;
    }

    size_t n = str_format(buf, size, "/");
    struct str key = v->key;
    while (key.n > 0) {
        size_t len = json_utf8_length(key.p, key.n);
        struct str step = { key.p, len };
        if (key.p[0] == '~')
            step = STR("~0");
        else if (key.p[0] == '/')
            step = STR("~1");
        json_printable(piece, sizeof(piece), step);
        size_t wide = strlen(piece);
        if (n + wide >= size)
            return 0;
        memcpy(buf + n, piece, wide + 1);
        n += wide;
        key.p += len;
        key.n -= len;
    }
    return n;
}

void json_pointer(const struct json *value, char *buf, size_t size)
{
    const struct json *path[JSON_MAX_DEPTH + 1];
    size_t steps = 0;
    if (size == 0)
        return;
    buf[0] = '\0';
    for (const struct json *v = value; v && v->parent; v = v->parent) {
        if (steps == sizeof(path) / sizeof(path[0]))
            return;
        path[steps++] = v;
    }
    while (steps > 0) {
        size_t n = write_step(buf, size, path[--steps]);
        if (n == 0) {
            buf[0] = '\0';
            return;
        }
        buf += n;
        size -= n;
    }
}

void json_locate(memplan_error *e, const char *text, size_t len,
                 const struct json *value)
{
    if (!value)
        return;
    json_pointer(value, e->pointer, sizeof(e->pointer));
    json_place(e, text, len, value->offset);
}

const char *json_kind_name(enum json_kind kind)
{
    switch (kind) {
    case JSON_NULL: return "null";
    case JSON_BOOL: return "a boolean";
    case JSON_NUMBER: return "a number";
    case JSON_STRING: return "a string";
    case JSON_ARRAY: return "an array";
    case JSON_OBJECT: return "an object";
    }
    return "a value";
}
