/*
 * Owns the way from TOML text to the tree that JSON text becomes: lines, tables
 * and which of them may be said twice.
 *
 * Our own, since Debian has no C library for TOML whose errors have a column,
 * and those outside it would be a download of as many lines as this: the
 * grammar is small, and half of it is in toml_scalar.c. Iterative, as every
 * reader here: the nesting is the file's.
 */
#include "json/toml.h"
#include "json/toml_scan.h"

#include <string.h>

#include "base/banned.h"

/* How a table or array came to be, which decides what may be added to it. */
enum made {
    MADE_VALUE,    /* by "= {...}" or "= [...]": nothing */
    MADE_IMPLICIT, /* [a.b] made a: anything, and [a] itself once */
    MADE_HEADER,   /* [a]: tables below it */
    MADE_DOTTED,   /* a.b = 1 made a: more keys of the same section, tables */
    MADE_TABLES,   /* [[a]]: elements */
};

/* What the tree is made of here; v is first, so that a struct json of the tree
 * is one of these. */
struct node {
    struct json v;
    enum made made;
    size_t section; /* MADE_DOTTED: by whose lines */
    struct node *last;
    struct node *outer; /* while open: what it was opened in */
    size_t own_section; /* while open, of an inline table */
    bool wants_comma;
};

struct reader {
    struct toml_scan scan;
    struct node *root, *table; /* the one whose lines are read */
    size_t section, sections;
};

static struct node *node_of(struct json *v)
{
    return (struct node *)v; /* the first member */
}

static bool refuse(struct reader *r, size_t offset, const char *message,
                   const char *hint)
{
    return toml_refuse(&r->scan, offset, MEMPLAN_E_SYNTAX, message, hint);
}

/* ---- the tree ---- */

/* A key, and where it is. */
struct name {
    struct str text;
    size_t offset;
};

static struct node *child_of(const struct node *parent, struct str key)
{
    for (struct json *v = parent->v.child; v != NULL; v = v->next) {
        if (str_eq(v->key, key))
            return node_of(v);
    }
    return NULL;
}

static unsigned depth_of(const struct node *n)
{
    unsigned depth = 0;
    for (const struct json *v = &n->v; v->parent != NULL; v = v->parent)
        depth++;
    return depth;
}

static struct node *add_node(struct reader *r, struct node *parent,
                             struct name name, enum json_kind kind)
{
    if (parent != NULL && depth_of(parent) + 1 >= JSON_MAX_DEPTH) {
        refuse(r, name.offset, "too deep", "nest less");
        return NULL;
    }
    struct node *n = ARENA_NEW(r->scan.arena, struct node, 1);
    if (n == NULL) {
        diag_nomem(r->scan.diag);
        return NULL;
    }
    n->v.kind = kind;
    n->v.key = name.text;
    n->v.key_offset = name.offset;
    n->v.offset = name.offset;
    if (parent == NULL)
        return n;
    n->v.parent = &parent->v;
    if (parent->last == NULL) {
        parent->v.child = &n->v;
    } else {
        parent->last->v.next = &n->v;
        n->v.index = parent->last->v.index + 1;
    }
    parent->last = n;
    return n;
}

static struct node *refuse_twice(struct reader *r, struct name name,
                                 const struct node *first)
{
    memplan_error *e =
        diag_add(r->scan.diag, MEMPLAN_E_SCHEMA, "'%.*s' is there already",
                 (int)(name.text.n < 60 ? name.text.n : 60), name.text.p);
    json_place(e, r->scan.text, r->scan.len, name.offset);
    diag_hint(
        e, "the first is on line %u: keep one of them",
        (unsigned)json_line(r->scan.text, r->scan.len, first->v.key_offset));
    return NULL;
}

/* ---- keys ---- */

/* Takes one part of a key; *more when a dot follows it. */
static bool take_part(struct reader *r, struct name *out, bool *more)
{
    toml_skip_blanks(&r->scan);
    out->offset = r->scan.at;
    if (!toml_take_key(&r->scan, &out->text))
        return false;
    toml_skip_blanks(&r->scan);
    *more = toml_peek(&r->scan) == '.';
    r->scan.at += *more;
    return true;
}

/* The table that a dotted key of `section` goes through. */
static struct node *through_dot(struct reader *r, struct node *table,
                                struct name name, size_t section)
{
    struct node *n = child_of(table, name.text);
    if (n == NULL) {
        n = add_node(r, table, name, JSON_OBJECT);
        if (n == NULL)
            return NULL;
    } else if (n->v.kind != JSON_OBJECT
               || (n->made != MADE_IMPLICIT
                   && (n->made != MADE_DOTTED || n->section != section))) {
        return refuse_twice(r, name, n);
    }
    n->made = MADE_DOTTED;
    n->section = section;
    return n;
}

/* "a.b.c =" of `table`: the table of the last part, and that part. */
static struct node *take_dotted(struct reader *r, struct node *table,
                                size_t section, struct name *out)
{
    bool more = true;
    while (more) {
        if (!take_part(r, out, &more))
            return NULL;
        if (more)
            table = through_dot(r, table, *out, section);
        if (table == NULL)
            return NULL;
    }
    if (toml_peek(&r->scan) != '=') {
        refuse(r, r->scan.at, "'=' is expected here", "write key = value");
        return NULL;
    }
    r->scan.at++;
    toml_skip_blanks(&r->scan);
    const struct node *first = child_of(table, out->text);
    return first == NULL ? table : refuse_twice(r, *out, first);
}

/* ---- values ---- */

/* Begins a value: all of it when it is a scalar, else its first bracket. What
 * is open then; NULL after an error. */
static struct node *begin_value(struct reader *r, struct node *parent,
                                struct name name, struct node *open)
{
    const char c = toml_peek(&r->scan);
    const enum json_kind kind = c == '['   ? JSON_ARRAY
                                : c == '{' ? JSON_OBJECT
                                           : JSON_NULL;
    const size_t offset = r->scan.at;
    if (parent->v.kind == JSON_ARRAY)
        name.offset = offset;
    struct node *n = add_node(r, parent, name, kind);
    if (n == NULL)
        return NULL;
    n->v.offset = offset;
    open->wants_comma = true;
    if (kind == JSON_NULL)
        return toml_take_scalar(&r->scan, &n->v) ? open : NULL;
    r->scan.at++;
    n->outer = open;
    n->own_section = ++r->sections;
    return n;
}

static void skip_lines(struct reader *r)
{
    do
        toml_skip_blanks(&r->scan);
    while (r->scan.at < r->scan.len && toml_skip_end(&r->scan));
}

/* Lines and comments may stand anywhere in an array, and a comma at its end. */
static struct node *array_step(struct reader *r, struct node *open)
{
    skip_lines(r);
    const size_t at = r->scan.at;
    const bool comma = open->wants_comma && toml_peek(&r->scan) == ',';
    if (comma) {
        r->scan.at++;
        skip_lines(r);
    }
    if (toml_peek(&r->scan) == ']') {
        r->scan.at++;
        return open->outer;
    }
    if (r->scan.at == r->scan.len) {
        refuse(r, open->v.offset, "an array without its end",
               "close it with ']'");
        return NULL;
    }
    if (open->wants_comma && !comma) {
        refuse(r, at, "',' or ']' is expected here", "write [1, 2, 3]");
        return NULL;
    }
    return begin_value(r, open, (struct name){ { "", 0 }, 0 }, open);
}

/* On one line, and no comma at its end. */
static struct node *inline_step(struct reader *r, struct node *open)
{
    toml_skip_blanks(&r->scan);
    const char c = toml_peek(&r->scan);
    if (c == '}') {
        r->scan.at++;
        return open->outer;
    }
    if (open->wants_comma && c != ',') {
        refuse(r, r->scan.at, "',' or '}' is expected here",
               "an inline table is on one line: {a = 1, b = 2}");
        return NULL;
    }
    r->scan.at += open->wants_comma;
    struct name name;
    struct node *table = take_dotted(r, open, open->own_section, &name);
    return table == NULL ? NULL : begin_value(r, table, name, open);
}

static bool take_value(struct reader *r, struct node *table, struct name name)
{
    struct node *open = begin_value(r, table, name, r->root);
    while (open != NULL && open != r->root)
        open = open->v.kind == JSON_ARRAY ? array_step(r, open)
                                          : inline_step(r, open);
    return open != NULL;
}

/* ---- lines ---- */

/* The table that a header's name goes through. */
static struct node *through_header(struct reader *r, struct node *table,
                                   struct name name)
{
    struct node *n = child_of(table, name.text);
    if (n == NULL) {
        n = add_node(r, table, name, JSON_OBJECT);
        if (n != NULL)
            n->made = MADE_IMPLICIT;
        return n;
    }
    if (n->made == MADE_TABLES)
        return n->last;
    return n->made == MADE_VALUE ? refuse_twice(r, name, n) : n;
}

static struct node *open_table(struct reader *r, struct node *parent,
                               struct name name)
{
    struct node *n = child_of(parent, name.text);
    if (n != NULL && n->made != MADE_IMPLICIT)
        return refuse_twice(r, name, n);
    if (n == NULL)
        n = add_node(r, parent, name, JSON_OBJECT);
    if (n != NULL)
        n->made = MADE_HEADER;
    return n;
}

static struct node *open_element(struct reader *r, struct node *parent,
                                 struct name name)
{
    struct node *list = child_of(parent, name.text);
    if (list != NULL && list->made != MADE_TABLES)
        return refuse_twice(r, name, list);
    if (list == NULL)
        list = add_node(r, parent, name, JSON_ARRAY);
    if (list == NULL)
        return NULL;
    list->made = MADE_TABLES;
    struct node *n =
        add_node(r, list, (struct name){ { "", 0 }, name.offset }, JSON_OBJECT);
    if (n != NULL)
        n->made = MADE_HEADER;
    return n;
}

static bool take_header(struct reader *r)
{
    const size_t begin = r->scan.at++;
    const bool tables = toml_peek(&r->scan) == '[';
    struct node *parent = r->root;
    struct name name;
    bool more = true;
    r->scan.at += tables;
    while (more) {
        if (!take_part(r, &name, &more))
            return false;
        if (more)
            parent = through_header(r, parent, name);
        if (parent == NULL)
            return false;
    }
    for (int i = 0; i < 1 + tables; i++, r->scan.at++) {
        if (toml_peek(&r->scan) != ']')
            return refuse(r, begin, "a table's name without its end",
                          tables ? "write [[name]]" : "write [name]");
    }
    r->table =
        tables ? open_element(r, parent, name) : open_table(r, parent, name);
    r->section = ++r->sections;
    return r->table != NULL;
}

static bool take_pair(struct reader *r)
{
    struct name name;
    struct node *table = take_dotted(r, r->table, r->section, &name);
    return table != NULL && take_value(r, table, name);
}

static bool take_line(struct reader *r)
{
    toml_skip_blanks(&r->scan);
    const char c = toml_peek(&r->scan);
    if (c == '[') {
        if (!take_header(r))
            return false;
    } else if (c != '#' && c != '\n' && c != '\0') {
        if (!take_pair(r))
            return false;
    }
    toml_skip_blanks(&r->scan);
    if (!toml_skip_end(&r->scan))
        return refuse(r, r->scan.at, "the end of the line is expected here",
                      "one 'key = value' a line; strings stand in quotes");
    return true;
}

struct json *toml_parse(struct arena *a, const char *text, size_t len,
                        struct diag *d)
{
    struct reader r = {
        .scan = { .arena = a, .diag = d, .text = text, .len = len },
    };
    if (!toml_scan_check(&r.scan))
        return NULL;
    r.root = add_node(&r, NULL, (struct name){ { "", 0 }, 0 }, JSON_OBJECT);
    r.table = r.root;
    if (r.root == NULL)
        return NULL;
    r.root->made = MADE_HEADER;
    while (r.scan.at < len) {
        if (!take_line(&r))
            return NULL;
    }
    return &r.root->v;
}
