/*
 * Owns the way back: puts what a dialect's table and its `apart` say of a run,
 * and renders it as JSON, YAML, TOML or command-line flags. Knows no dialect,
 * and judges nothing: the caller reads the text again.
 */
#include "spec/config_emit.h"

#include "base/unit.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/banned.h"

/* ---- entries ---- */

static size_t folder_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot != NULL ? (size_t)(dot - path) + 1 : 0;
}

/* Behind the last entry that shares the most of its folders. */
static size_t place_of(const struct emit *e, const char *path)
{
    for (size_t n = folder_of(path); n > 0;) {
        for (size_t i = e->entries; i > 0; i--) {
            if (strncmp(e->entry[i - 1].path, path, n) == 0)
                return i;
        }
        for (n--; n > 0 && path[n - 1] != '.'; n--)
            ;
    }
    return e->entries;
}

static void put(struct emit *e, const char *below, const char *value)
{
    char path[CONFIG_PATH_MAX];
    str_format(path, sizeof(path), "%s%s", e->prefix, below);
    for (size_t i = 0; i < e->entries; i++) {
        if (strcmp(e->entry[i].path, path) == 0) {
            e->entry[i].value = value;
            return;
        }
    }
    if (e->entries == EMIT_ENTRIES) {
        diag_add(e->d, MEMPLAN_E_OVERFLOW, "too many entries for a file");
        return;
    }
    const size_t at = place_of(e, path);
    memmove(&e->entry[at + 1], &e->entry[at],
            (e->entries - at) * sizeof(e->entry[0]));
    str_format(e->entry[at].path, sizeof(e->entry[at].path), "%s", path);
    e->entry[at].value = value;
    e->entries++;
}

bool emit_has(const struct emit *e, const char *path)
{
    size_t i = 0;
    while (i < e->entries && strcmp(e->entry[i].path, path) != 0)
        i++;
    return i < e->entries;
}

void emit_raw(struct emit *e, const char *path, const char *format, ...)
{
    char *value = e->values + e->used;
    const size_t room = sizeof(e->values) - e->used;
    va_list args;
    va_start(args, format);
    const size_t n = str_vformat(value, room, format, args);
    va_end(args);
    if (n + 1 >= room) {
        diag_add(e->d, MEMPLAN_E_OVERFLOW, "values too long for a file");
        return;
    }
    e->used += n + 1;
    put(e, path, value);
}

void emit_count(struct emit *e, const char *path, uint64_t n)
{
    emit_raw(e, path, "%" PRIu64, n);
}

void emit_bool(struct emit *e, const char *path, bool value)
{
    emit_raw(e, path, "%s", value ? "true" : "false");
}

void emit_word(struct emit *e, const char *path, const char *word)
{
    emit_raw(e, path, "\"%s\"", word);
}

void emit_refuse(struct emit *e, enum setup_key key, const char *hint, ...)
{
    enum { TEXT = 256 };
    char value[TEXT];
    memplan_error *error = setup_error(
        e->d, MEMPLAN_E_UNSUPPORTED, key, "%s '%s' has no word in a file of %s",
        setup_field(key)->key,
        setup_value_text(&e->run->setup, key, value, TEXT), e->asked);
    va_list args;
    va_start(args, hint);
    str_vformat(error->hint, sizeof(error->hint), hint, args);
    va_end(args);
}

void emit_refuse_given(struct emit *e, const enum setup_key *key, size_t n,
                       const char *hint)
{
    for (size_t i = 0; i < n; i++) {
        if (e->run->given[key[i]])
            emit_refuse(e, key[i], "%s", hint);
    }
}

uint64_t emit_node(struct emit *e, const struct run *r)
{
    const uint64_t each =
        r->gpus < r->gpus_per_node ? r->gpus : r->gpus_per_node;
    uint64_t fits = each;
    while (r->gpus % fits != 0)
        fits--;
    if (fits != each)
        emit_refuse(e, KEY_GPUS,
                    "nodes of %" PRIu64 " would not be full: use "
                    "--gpus-per-node %" PRIu64,
                    each, fits);
    return each;
}

/* ---- rows ---- */

/* Their word for ours; empty where there is none. */
static struct str their_word(const char *words, struct str ours)
{
    struct str rest = str_of(words);
    while (rest.n > 0) {
        struct str value;
        struct str theirs = str_cut(str_cut(rest, ' ', &rest), '=', &value);
        if (value.n > 0 && str_eq(value, ours))
            return theirs;
    }
    return (struct str){ "", 0 };
}

/* true, 8, 1e9: as it stands; "1F1B" is a word. */
static bool is_bare(struct str value)
{
    double x = 0;
    return str_is(value, "true") || str_is(value, "false")
           || (value.n > 0 && value.p[0] >= '0' && value.p[0] <= '9'
               && value.p[value.n - 1] >= '0' && value.p[value.n - 1] <= '9'
               && unit_parse_real(value, &x) == UNIT_OK);
}

static void put_value(struct emit *e, const struct config_row *row,
                      struct str value)
{
    emit_raw(e, row->path, is_bare(value) ? "%.*s" : "\"%.*s\"", (int)value.n,
             value.p);
}

static void put_row(struct emit *e, const struct config_row *row)
{
    enum { TEXT = 2048 };
    char buf[TEXT];
    const struct run *r = e->run;
    if (row->write == WRITE_NEVER || !r->setup.set[row->key]
        || (row->write == WRITE_GIVEN && !r->given[row->key]))
        return;
    struct str value =
        str_of(setup_value_text(&r->setup, row->key, buf, sizeof(buf)));
    if (row->rule == CONFIG_WORDS)
        value = their_word(row->words, value);
    if (value.n > 0)
        put_value(e, row, value);
}

void emit_table(struct emit *e, const struct config_table *t,
                const char *prefix)
{
    const char *before = e->prefix;
    e->prefix = prefix;
    for (size_t i = 0; i < t->rows; i++) {
        if (t->writes == NULL || t->writes(e->run, t->row[i].path))
            put_row(e, &t->row[i]);
    }
    t->apart(e, e->run);
    e->prefix = before;
}

bool config_emit(struct emit *e, const struct config_dialect *dialect,
                 const struct run *run, struct diag *d)
{
    *e = (struct emit){ .d = d,
                        .run = run,
                        .spec = e->spec,
                        .asked = e->asked,
                        .dialect = dialect,
                        .prefix = "" };
    emit_table(e, dialect->table, "");
    if (d->status == MEMPLAN_OK)
        dialect->render(e);
    if (d->status == MEMPLAN_OK && strlen(e->text) + 1 >= sizeof(e->text))
        diag_add(d, MEMPLAN_E_OVERFLOW, "too much text for a file");
    return d->status == MEMPLAN_OK;
}

/* ---- formats ---- */

static void say(struct emit *e, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;
static void say(struct emit *e, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const size_t n = strlen(e->text);
    str_vformat(e->text + n, sizeof(e->text) - n, format, args);
    va_end(args);
}

static size_t depth_of(const char *path, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += path[i] == '.';
    return n;
}

/* Folders, with their dots, that two paths share. */
static size_t shared(const char *a, const char *b)
{
    size_t n = 0;
    for (size_t i = 0; a[i] != '\0' && a[i] == b[i]; i++)
        n = a[i] == '.' ? i + 1 : n;
    return n;
}

static void indent(struct emit *e, size_t depth)
{
    for (size_t i = 0; i < depth; i++)
        say(e, "  ");
}

/* Objects open from what is shared with the entry before, down to this one. */
static void open_folders(struct emit *e, const char *path, size_t from,
                         bool json)
{
    while (from < folder_of(path)) {
        const size_t n = (size_t)(strchr(path + from, '.') - path);
        indent(e, depth_of(path, from) + json);
        say(e, json ? "\"%.*s\": {\n" : "%.*s:\n", (int)(n - from),
            path + from);
        from = n + 1;
    }
}

void emit_json(struct emit *e)
{
    say(e, "{");
    const char *before = "";
    for (size_t i = 0; i < e->entries; i++) {
        const char *path = e->entry[i].path;
        const size_t same = shared(before, path);
        for (size_t deep = depth_of(before, strlen(before));
             deep > depth_of(path, same); deep--) {
            say(e, "\n");
            indent(e, deep);
            say(e, "}");
        }
        say(e, i > 0 ? ",\n" : "\n");
        open_folders(e, path, same, true);
        indent(e, depth_of(path, strlen(path)) + 1);
        say(e, "\"%s\": %s", path + folder_of(path), e->entry[i].value);
        before = path;
    }
    for (size_t deep = depth_of(before, strlen(before)); deep > 0; deep--) {
        say(e, "\n");
        indent(e, deep);
        say(e, "}");
    }
    say(e, "\n}\n");
}

void emit_yaml(struct emit *e)
{
    const char *before = "";
    for (size_t i = 0; i < e->entries; i++) {
        const char *path = e->entry[i].path;
        open_folders(e, path, shared(before, path), false);
        indent(e, depth_of(path, strlen(path)));
        say(e, "%s: %s\n", path + folder_of(path), e->entry[i].value);
        before = path;
    }
}

void emit_toml(struct emit *e)
{
    const char *before = "";
    for (size_t i = 0; i < e->entries; i++) {
        const char *path = e->entry[i].path;
        const size_t n = folder_of(path);
        if (n > 0
            && (i == 0 || n != folder_of(before)
                || strncmp(before, path, n) != 0))
            say(e, "%s[%.*s]\n", i > 0 ? "\n" : "", (int)n - 1, path);
        say(e, "%s = %s\n", path + n, e->entry[i].value);
        before = path;
    }
}

/* In single quotes where a shell would take it apart, but for words that are no
 * string: several arguments. */
static void say_argument(struct emit *e, const char *value)
{
    const size_t n = strlen(value);
    const bool word = n >= 2 && value[0] == '"';
    const struct str text = { value + word, n - 2 * (size_t)word };
    bool plain = true;
    for (size_t i = 0; i < text.n; i++)
        plain = plain && strchr("|*()[]{}\"$&;<>", text.p[i]) == NULL
                && !(word && text.p[i] == ' ');
    say(e, plain ? " %.*s" : " '%.*s'", (int)text.n, text.p);
}

void emit_flags(struct emit *e)
{
    say(e, "%s", e->head);
    for (size_t i = 0; i < e->entries; i++) {
        const char *value = e->entry[i].value;
        char shown[CONFIG_PATH_MAX];
        if (strcmp(value, "false") == 0)
            continue;
        str_format(shown, sizeof(shown), "%s", e->entry[i].path);
        for (char *p = shown; *p != '\0'; p++)
            *p = (char)(*p == '_' ? '-' : *p);
        say(e, " \\\n    --%s", shown);
        if (strcmp(value, "true") != 0)
            say_argument(e, value);
    }
    say(e, "\n");
}
