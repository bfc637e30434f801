/*
 * Owns the way from YAML text to the tree that JSON text becomes, and is the
 * only file that knows libyaml. Plain scalars are what PyYAML makes of them
 * (YAML 1.1: yes and on are true); quoted ones are strings. Anchors, tags,
 * several documents and keys that are no scalars are refused: no launcher
 * writes them, and a reader that half understands them guesses.
 *
 * libyaml takes its memory from malloc, not from the caller's allocator, and
 * gives all of it back here; that a request of it failed is reported.
 */
#include "json/json_scan.h"
#include "json/yaml.h"

#include "base/unit.h"

#include <yaml.h>

#include <string.h>

#include "base/banned.h"

struct builder {
    struct arena *arena;
    struct diag *diag;
    const char *text;
    size_t len;
    yaml_parser_t parser;

    /* libyaml counts characters, places are bytes. */
    size_t chars, bytes;

    struct json *root, *parent, *last;
    unsigned depth;
    bool has_key;
    struct str key;
    size_t key_offset, key_line, key_before;
};

/* ---- places ---- */

/* Marks come in the order of the text. */
static size_t offset_of(struct builder *b, yaml_mark_t mark)
{
    if (mark.index < b->chars)
        b->chars = b->bytes = 0;
    while (b->chars < mark.index && b->bytes < b->len) {
        b->bytes++;
        while (b->bytes < b->len && (b->text[b->bytes] & 0xc0) == 0x80)
            b->bytes++;
        b->chars++;
    }
    return b->bytes;
}

static void refuse(struct builder *b, yaml_mark_t mark, memplan_status status,
                   const char *message, const char *hint)
{
    memplan_error *e = diag_add(b->diag, status, "%s", message);
    json_place(e, b->text, b->len, offset_of(b, mark));
    diag_hint(e, "%s", hint);
}

static void refuse_syntax(struct builder *b)
{
    if (b->parser.error == YAML_MEMORY_ERROR) {
        diag_nomem(b->diag);
        return;
    }
    char message[128];
    str_format(message, sizeof(message), "not YAML: %s",
               b->parser.problem != NULL ? b->parser.problem : "bad bytes");
    refuse(b, b->parser.problem_mark, MEMPLAN_E_SYNTAX, message,
           "one 'key: value' a line, deeper ones indented by blanks");
}

/* ---- scalars ---- */

static bool is_word(struct str s, const char *words)
{
    struct str rest = str_of(words);
    while (rest.n > 0) {
        if (str_eq(s, str_cut(rest, ' ', &rest)))
            return true;
    }
    return false;
}

/* A number that JSON would take too, so that its text reads the same. */
static bool is_number(struct str s)
{
    static const char bytes[] = "+-.0123456789eE";
    for (size_t i = 0; i < s.n; i++) {
        if (memchr(bytes, s.p[i], sizeof(bytes) - 1) == NULL)
            return false;
    }
    return s.n > 0;
}

static void take_plain(struct json *v)
{
    struct str s = v->text;
    double x = 0;
    if (is_word(s, "true True TRUE yes Yes YES on On ON")) {
        v->kind = JSON_BOOL;
        v->truth = true;
    } else if (is_word(s, "false False FALSE no No NO off Off OFF")) {
        v->kind = JSON_BOOL;
    } else if (s.n == 0 || is_word(s, "~ null Null NULL")) {
        v->kind = JSON_NULL;
    } else if (is_number(s) && unit_parse_real(s, &x) == UNIT_OK) {
        v->kind = JSON_NUMBER;
        v->number = x;
    }
}

/* ---- the tree ---- */

/* Takes out the value that has the key already; the line of that, or 0. */
static size_t drop_before(struct builder *b, struct str key)
{
    struct json *last = NULL, *v = b->parent->child;
    while (v != NULL && !str_eq(v->key, key)) {
        last = v;
        v = v->next;
    }
    if (v == NULL)
        return 0;
    if (last == NULL)
        b->parent->child = v->next;
    else
        last->next = v->next;
    if (b->last == v)
        b->last = last;
    for (struct json *rest = v->next; rest != NULL; rest = rest->next)
        rest->index--;
    return v->line;
}

static struct json *add_value(struct builder *b, enum json_kind kind,
                              yaml_mark_t mark)
{
    struct json *v = ARENA_NEW(b->arena, struct json, 1);
    if (v == NULL) {
        diag_nomem(b->diag);
        return NULL;
    }
    v->kind = kind;
    v->offset = offset_of(b, mark);
    v->parent = b->parent;
    if (b->has_key) {
        v->key = b->key;
        v->key_offset = b->key_offset;
        v->line = b->key_line;
        v->before = b->key_before;
        b->has_key = false;
    }
    if (b->parent == NULL) {
        b->root = v;
    } else if (b->last == NULL) {
        b->parent->child = v;
    } else {
        b->last->next = v;
        v->index = b->last->index + 1;
    }
    b->last = v;
    return v;
}

static bool wants_key(const struct builder *b)
{
    return b->parent != NULL && b->parent->kind == JSON_OBJECT && !b->has_key;
}

static void take_scalar(struct builder *b, const yaml_event_t *event)
{
    const char *p = (const char *)event->data.scalar.value;
    const size_t n = event->data.scalar.length;
    const char *copy = arena_copy(b->arena, p, n);
    if (copy == NULL) {
        diag_nomem(b->diag);
        return;
    }
    const struct str s = { copy, n };
    if (wants_key(b)) {
        b->key = s;
        b->key_line = event->start_mark.line + 1;
        b->key_before = drop_before(b, s);
        b->key_offset = offset_of(b, event->start_mark);
        b->has_key = true;
        return;
    }
    struct json *v = add_value(b, JSON_STRING, event->start_mark);
    if (v == NULL)
        return;
    v->text = s;
    if (event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        take_plain(v);
}

static void open_value(struct builder *b, enum json_kind kind, yaml_mark_t mark)
{
    if (wants_key(b)) {
        refuse(b, mark, MEMPLAN_E_SCHEMA, "a key that is no word",
               "write 'key: value'");
        return;
    }
    if (b->depth == JSON_MAX_DEPTH) {
        refuse(b, mark, MEMPLAN_E_SYNTAX, "too deep", "nest less");
        return;
    }
    struct json *v = add_value(b, kind, mark);
    if (v == NULL)
        return;
    b->depth++;
    b->parent = v;
    b->last = NULL;
}

static void close_value(struct builder *b)
{
    b->depth--;
    b->last = b->parent;
    b->parent = b->parent->parent;
}

static bool has_anchor(const yaml_event_t *e)
{
    const bool scalar = e->type == YAML_SCALAR_EVENT;
    const bool list = e->type == YAML_SEQUENCE_START_EVENT;
    const bool map = e->type == YAML_MAPPING_START_EVENT;
    return e->type == YAML_ALIAS_EVENT
           || (scalar && (e->data.scalar.anchor || e->data.scalar.tag))
           || (list
               && (e->data.sequence_start.anchor || e->data.sequence_start.tag))
           || (map
               && (e->data.mapping_start.anchor || e->data.mapping_start.tag));
}

/* False at the end. */
static bool take_event(struct builder *b, const yaml_event_t *event)
{
    if (has_anchor(event)) {
        refuse(b, event->start_mark, MEMPLAN_E_UNSUPPORTED,
               "anchors and tags are not read", "write the value itself");
        return false;
    }
    switch (event->type) {
    case YAML_SCALAR_EVENT: take_scalar(b, event); break;
    case YAML_SEQUENCE_START_EVENT:
        open_value(b, JSON_ARRAY, event->start_mark);
        break;
    case YAML_MAPPING_START_EVENT:
        open_value(b, JSON_OBJECT, event->start_mark);
        break;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: close_value(b); break;
    case YAML_DOCUMENT_START_EVENT:
        if (b->root != NULL)
            refuse(b, event->start_mark, MEMPLAN_E_SCHEMA, "a second document",
                   "keep the first, down to '---'");
        break;
    case YAML_STREAM_END_EVENT: return false;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_DOCUMENT_END_EVENT:
    case YAML_ALIAS_EVENT: break;
    }
    return b->diag->status == MEMPLAN_OK;
}

static void build(struct builder *b)
{
    bool more = true;
    while (more) {
        yaml_event_t event;
        if (!yaml_parser_parse(&b->parser, &event)) {
            refuse_syntax(b);
            return;
        }
        more = take_event(b, &event);
        yaml_event_delete(&event);
    }
}

struct json *yaml_parse(struct arena *a, const char *text, size_t len,
                        struct diag *d)
{
    struct builder b = { .arena = a, .diag = d, .text = text, .len = len };
    if (!yaml_parser_initialize(&b.parser)) {
        diag_nomem(d);
        return NULL;
    }
    yaml_parser_set_encoding(&b.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&b.parser, (const unsigned char *)text, len);
    build(&b);
    yaml_parser_delete(&b.parser);
    if (d->status == MEMPLAN_OK && b.root == NULL) {
        memplan_error *e = diag_add(d, MEMPLAN_E_SYNTAX, "an empty file");
        diag_hint(e, "write 'key: value'");
    }
    return d->status == MEMPLAN_OK ? b.root : NULL;
}

const struct json *yaml_next_again(struct yaml_walk *w, const struct json *root)
{
    const struct json *v = root;
    if (w->depth > 0)
        v = w->at[w->depth - 1];
    do {
        if (v->child != NULL && w->depth <= JSON_MAX_DEPTH) {
            w->at[w->depth++] = v = v->child;
            continue;
        }
        while (w->depth > 0 && w->at[w->depth - 1]->next == NULL)
            w->depth--;
        if (w->depth == 0)
            return NULL;
        w->at[w->depth - 1] = v = w->at[w->depth - 1]->next;
    } while (v->before == 0);
    return v;
}

void yaml_refuse_again(const struct json *root, const char *text, size_t len,
                       struct diag *d)
{
    struct yaml_walk w = { .depth = 0 };
    const struct json *v;
    while ((v = yaml_next_again(&w, root)) != NULL) {
        memplan_error *e = diag_add(d, MEMPLAN_E_SCHEMA, "a key twice");
        json_place(e, text, len, v->key_offset);
        diag_hint(e,
                  "keep one of them: its program refuses the file; the first "
                  "is on line %zu",
                  v->before);
    }
}
