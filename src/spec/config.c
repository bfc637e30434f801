/*
 * Owns the walk over another program's configuration: finds each value's row
 * in the dialect's table, does what the row says, and keeps account of what
 * had none. Knows no dialect.
 */
#include "spec/config_emit.h"

#include "base/unit.h"
#include "json/yaml.h"

#include <stdarg.h>
#include <string.h>

#include "base/banned.h"

enum { VALUE_MAX = 48 };

/* ---- notes ---- */

void config_add_note(struct setup *s, const char *text)
{
    for (size_t i = 0; i < s->notes; i++)
        if (strncmp(s->note[i], text, sizeof(s->note[i]) - 1) == 0)
            return; /* the same file again */
    if (s->notes == SETUP_NOTES_MAX) {
        s->notes_beyond++;
        return;
    }
    str_format(s->note[s->notes++], sizeof(s->note[0]), "%s", text);
}

void config_note(struct config *c, const char *format, ...)
{
    char line[SETUP_NOTE_TEXT];
    str_format(line, sizeof(line), "%s: ", c->name);
    va_list args;
    va_start(args, format);
    size_t n = strlen(line);
    str_vformat(line + n, sizeof(line) - n, format, args);
    va_end(args);
    config_add_note(c->s, line);
}

/* A list of paths under one heading, over as many notes as it needs. */
struct listing {
    const char *heading;
    char line[SETUP_NOTE_TEXT];
};

static void list_flush(struct config *c, struct listing *l)
{
    if (l->line[0] != '\0')
        config_add_note(c->s, l->line);
    l->line[0] = '\0';
}

/* Names of YAML's sections are flags' without their dashes. */
static bool has_dashes(const struct config *c)
{
    return c->table->flags && str_is(c->root->key, CONFIG_DASHES);
}

const char *config_shown(const struct config *c, const char *path,
                         char buf[CONFIG_PATH_MAX])
{
    const bool dashes = has_dashes(c);
    str_format(buf, CONFIG_PATH_MAX, "%s%s", dashes ? CONFIG_DASHES : "", path);
    for (char *p = buf; dashes && *p != '\0'; p++)
        *p = (char)(*p == '_' ? '-' : *p);
    return buf;
}

static void list_path(struct config *c, struct listing *l, const char *entry)
{
    char path[CONFIG_PATH_MAX];
    config_shown(c, entry, path);
    if (l->line[0] != '\0'
        && strlen(l->line) + strlen(path) + sizeof(", ") > sizeof(l->line))
        list_flush(c, l);
    if (l->line[0] == '\0')
        str_format(l->line, sizeof(l->line), "%s: %s: %s", c->name, l->heading,
                   path);
    else
        str_append(l->line, sizeof(l->line), ", %s", path);
}

/* Twice over the file: what matters comes first, and has room for its notes;
 * the second time what has no effect is listed, and nothing else. */
struct walk {
    struct config *c;
    bool idle; /* the second time */
    struct listing unknown, quiet, automatic, shape, branched;
};

/* ---- values ---- */

/* As the file writes it, of a string without its quotes; "" of containers. */
static struct str value_text(const struct config *c, const struct json *value)
{
    struct str text = { "", 0 };
    if (value->kind == JSON_ARRAY || value->kind == JSON_OBJECT)
        return text;
    setup_scalar_text(&text, value, MEMPLAN_TYPE_LIST, c->text, c->len);
    if (value->kind == JSON_BOOL)
        text = value->truth ? STR("true") : STR("false");
    return text;
}

static bool is_auto(const struct json *value)
{
    return value->kind == JSON_STRING && str_is(value->text, "auto");
}

const struct json *config_at(const struct config *c, const char *path)
{
    const struct json *value = c->root;
    struct str rest = str_of(path);
    while (value != NULL && rest.n > 0) {
        char member[CONFIG_PATH_MAX];
        struct str step = str_cut(rest, '.', &rest);
        str_format(member, sizeof(member), "%.*s", (int)step.n, step.p);
        value = json_member(value, member);
    }
    if (value == NULL || value->kind == JSON_NULL
        || (c->table->has_auto && is_auto(value)))
        return NULL;
    return value;
}

/* "theirs=ours": the ours of `value`; empty with *known false. */
static struct str word_of(const char *words, struct str value, bool *known)
{
    struct str rest = str_of(words);
    while (rest.n > 0) {
        struct str ours;
        struct str pair = str_cut(rest, ' ', &rest);
        struct str theirs = str_cut(pair, '=', &ours);
        if (str_same_name(theirs, value)) {
            *known = true;
            return ours;
        }
    }
    *known = false;
    return (struct str){ "", 0 };
}

/* A flag's boolean in the words that HfArgumentParser has for it
 * (transformers/hf_argparser.py, string_to_bool); else the text itself. */
static struct str bool_word(const struct config *c, struct str text)
{
    bool known = false;
    if (c->table != &config_training_args
        || !str_is(c->root->key, CONFIG_DASHES))
        return text;
    const struct str word = word_of("yes=true t=true y=true 1=true no=false "
                                    "f=false n=false 0=false",
                                    text, &known);
    return known ? word : text;
}

bool config_is_true(const struct config *c, const char *path)
{
    const struct json *value = config_at(c, path);
    if (value != NULL && value->kind == JSON_STRING) /* of a flag */
        return str_same_name(bool_word(c, value->text), STR("true"));
    return value != NULL && value->kind == JSON_BOOL && value->truth;
}

static const struct config_row *row_of(const struct config_table *t,
                                       const char *path);
static void path_of(const struct json *value, const struct json *root,
                    char path[CONFIG_PATH_MAX]);

/* Which of the setup's files this one is. */
static uint8_t file_index(struct config *c)
{
    struct setup *s = c->s;
    char name[SETUP_FILE_TEXT];
    str_format(name, sizeof(name), "%s", c->name);
    size_t i = 0;
    while (i < s->files && strcmp(s->file[i], name) != 0)
        i++;
    if (i == s->files && i < SETUP_FILES_MAX)
        memcpy(s->file[s->files++], name, sizeof(name));
    return (uint8_t)(i < SETUP_FILES_MAX ? i : SETUP_FILES_MAX - 1);
}

/* What came of setting a key: who said it, or that entry in the message. */
static void was_set(struct config *c, enum setup_key key,
                    const struct json *where, memplan_error *e)
{
    char path[CONFIG_PATH_MAX], shown[CONFIG_PATH_MAX];
    path_of(where, c->root, path);
    const struct config_row *row = row_of(c->table, path);
    if (e == NULL) {
        c->s->said[key].entry = row != NULL ? row->path : "";
        c->s->said[key].file = file_index(c);
        c->s->said[key].is_flag = has_dashes(c);
        return;
    }
    char message[sizeof(e->message)];
    const char *ours = setup_field(key)->key;
    const char *at = row != NULL ? strstr(e->message, ours) : NULL;
    if (at == NULL)
        return;
    str_format(message, sizeof(message), "%.*s%s%s", (int)(at - e->message),
               e->message, config_shown(c, row->path, shown),
               at + strlen(ours));
    memcpy(e->message, message, sizeof(message));
}

/* Flags of `accelerate launch`, which go before its file's entries. */
static bool is_launchers(enum setup_key key)
{
    return key == KEY_ZERO || key == KEY_OFFLOAD_OPTIMIZER
           || key == KEY_OFFLOAD_PARAMS || key == KEY_TP || key == KEY_PP
           || key == KEY_CP || key == KEY_SHARD_DEGREE;
}

/* TrainingArguments go before what Accelerate's file says of the same. */
static bool is_kept(const struct config *c, enum setup_key key)
{
    static const enum setup_key keys[] = { KEY_GPUS, KEY_GPUS_PER_NODE,
                                           KEY_MICRO_BATCH, KEY_GRAD_ACCUM,
                                           KEY_CLIP_GRAD };
    for (size_t i = 0; c->keeps && i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (keys[i] == key)
            return c->s->set[key];
    }
    return c->keeps && is_launchers(key) && c->s->set[key]
           && c->s->said[key].entry != NULL && c->s->said[key].is_flag
           && c->s->said[key].entry[0] != '\0';
}

void config_set(struct config *c, const struct json *where, enum setup_key key,
                const char *value)
{
    if (is_kept(c, key))
        return;
    was_set(c, key, where,
            setup_set_text(c->s, key, str_of(value), where,
                           (struct setup_source){ c->text, c->len, c->d }));
}

void config_set_json(struct config *c, const struct json *value,
                     enum setup_key key)
{
    if (is_kept(c, key))
        return;
    was_set(c, key, value,
            setup_set_json(c->s, key, value,
                           (struct setup_source){ c->text, c->len, c->d }));
}

void config_clipping(struct config *c, const char *path)
{
    const struct json *norm = config_at(c, path);
    char shown[CONFIG_PATH_MAX];
    double x = 0;
    if (norm == NULL)
        return;
    if (norm->kind == JSON_NUMBER) {
        x = norm->number;
    } else if (norm->kind != JSON_STRING
               || unit_parse_real(norm->text, &x) != UNIT_OK) {
        memplan_error *e =
            config_bad(c, norm, MEMPLAN_E_ARG, "'%s' takes a number",
                       config_shown(c, path, shown));
        diag_hint(e, "such as 1.0; 0 clips nothing");
        return;
    }
    config_set(c, norm, KEY_CLIP_GRAD, x > 0 ? "true" : "false");
}

void config_ulysses(struct config *c, const char *path)
{
    const struct json *n = config_at(c, path);
    if (n == NULL
        || (n->kind == JSON_NUMBER && !(n->number > 1) && !(n->number < 1)))
        return;
    config_set_json(c, n, KEY_CP);
    config_set(c, n, KEY_CP_COMM, "a2a");
}

memplan_error *config_bad(struct config *c, const struct json *where,
                          memplan_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    memplan_error *e = diag_vadd(c->d, status, format, args);
    va_end(args);
    json_locate(e, c->text, c->len, where);
    return e;
}

bool config_says(const struct json *value, const char *word)
{
    if (value == NULL)
        return false;
    if (value->kind == JSON_BOOL)
        return str_is(value->truth ? STR("true") : STR("false"), word);
    return value->kind == JSON_STRING
           && str_same_name(value->text, str_of(word));
}

void config_keep_name(struct config *c, char *buf, size_t size,
                      const struct json *where, struct str name)
{
    str_copy(buf, size, name);
    if (name.n < size)
        return;
    buf[0] = '\0';
    diag_hint(config_bad(c, where, MEMPLAN_E_RANGE,
                         "a name of %zu bytes, where %zu can be read", name.n,
                         size - 1),
              "write a shorter one");
}

void config_goes_on(struct config *c, const struct json *where,
                    const char *dialect)
{
    config_keep_name(c, c->s->pending, sizeof(c->s->pending), where,
                     where->text);
    c->s->pending_dialect = dialect;
}

/* ---- rules ---- */

static void hint_theirs(memplan_error *e, const char *words)
{
    diag_hint(e, "%s", "known are");
    struct str rest = str_of(words);
    for (bool first = true; rest.n > 0;) {
        struct str ours;
        struct str pair = str_cut(rest, ' ', &rest);
        struct str theirs = str_cut(pair, '=', &ours);
        if (ours.n > 0 && ours.p[0] == '?')
            continue; /* known, and not modelled */
        str_append(e->hint, sizeof(e->hint), first ? " %.*s" : ", %.*s",
                   (int)theirs.n, theirs.p);
        first = false;
    }
}

static void set_word(struct config *c, const struct json *value,
                     enum setup_key key, struct str ours)
{
    char word[VALUE_MAX];
    str_format(word, sizeof(word), "%.*s", (int)ours.n, ours.p);
    config_set(c, value, key, word);
}

static void do_words(struct config *c, const struct config_row *row,
                     const struct json *value)
{
    bool known = false;
    char shown[CONFIG_PATH_MAX];
    struct str text = value_text(c, value);
    struct str ours = word_of(row->words, text, &known);
    if (!known)
        ours = word_of(row->words, bool_word(c, text), &known);
    if (!known) {
        memplan_error *e =
            config_bad(c, value, MEMPLAN_E_UNKNOWN, "unknown %s '%.*s'",
                       config_shown(c, row->path, shown),
                       (int)(text.n < VALUE_MAX ? text.n : VALUE_MAX), text.p);
        hint_theirs(e, row->words);
        return;
    }
    if (ours.n == 0)
        return; /* nothing to set: what is there by itself */
    if (str_is(ours, "?")) {
        memplan_error *e = config_bad(
            c, value, MEMPLAN_E_UNSUPPORTED, "%s '%.*s' is not modelled",
            config_shown(c, row->path, shown), (int)text.n, text.p);
        hint_theirs(e, row->words);
        return;
    }
    struct str also;
    if (ours.p[0] == '?') /* refused where it matters */
        ours = (struct str){ ours.p + 1, ours.n - 1 };
    set_word(c, value, row->key, str_cut(ours, '+', &also));
    struct str key = str_cut(also, '=', &also);
    if (key.n > 0)
        set_word(c, value, setup_find_key(key), also);
}

/* Of a file that its program checks: neither, where there are two. */
static bool is_no_bool(const struct config *c, const struct config_row *row,
                       struct str text)
{
    const struct str words = str_of(row->words);
    return c->table->closed != NULL
           && (str_is(words, "true") || str_is(words, "false"))
           && !str_same_name(text, STR("true"))
           && !str_same_name(text, STR("false"));
}

static void do_only(struct config *c, const struct config_row *row,
                    const struct json *value)
{
    char shown[CONFIG_PATH_MAX];
    struct str text = bool_word(c, value_text(c, value));
    if (is_no_bool(c, row, text))
        diag_hint(config_bad(c, value, MEMPLAN_E_SCHEMA, "'%.*s' is %s",
                             (int)value->key.n, value->key.p,
                             json_kind_name(value->kind)),
                  "write true or false");
    else if (!str_same_name(text, str_of(row->words)))
        config_note(c, "%s %.*s is not modelled: %s is assumed",
                    config_shown(c, row->path, shown),
                    (int)(text.n < VALUE_MAX ? text.n : VALUE_MAX), text.p,
                    row->words);
}

static bool has_words(const struct config_row *row)
{
    return row->rule == CONFIG_LATER && row->words[0] != '\0';
}

/* What only a shell knows, where it matters. */
static bool is_shell(const struct config_row *row, const struct json *value)
{
    const bool told = row->rule == CONFIG_SAME || row->rule == CONFIG_WORDS
                      || row->rule == CONFIG_ONLY || has_words(row);
    return told && value->kind == JSON_STRING
           && memchr(value->text.p, '$', value->text.n) != NULL;
}

/* A flag with nothing behind it, where a value is wanted. */
static bool is_bare(const struct config *c, const struct config_row *row,
                    const struct json *value)
{
    bool known = false;
    if (!c->table->flags || value->kind != JSON_BOOL || !value->truth)
        return false;
    if (row->rule == CONFIG_SAME)
        return setup_field(row->key)->type != MEMPLAN_TYPE_BOOL;
    if (row->rule == CONFIG_WORDS)
        word_of(row->words, STR("true"), &known);
    return row->rule == CONFIG_WORDS && !known;
}

/* Values that are none. */
static bool is_no_value(struct config *c, const struct config_row *row,
                        const struct json *value, const char *shown)
{
    if (is_shell(row, value)) {
        memplan_error *e = config_bad(
            c, value, MEMPLAN_E_ARG,
            "'%s' is '%.*s', which the file does "
            "not say",
            shown, (int)(value->text.n < VALUE_MAX ? value->text.n : VALUE_MAX),
            value->text.p);
        diag_hint(e, "write the value itself");
        return true;
    }
    if (!is_bare(c, row, value))
        return false;
    diag_hint(
        config_bad(c, value, MEMPLAN_E_ARG, "no value behind '%s'", shown),
        "write the value on the same line, or leave the flag out");
    return true;
}

static void do_row(struct walk *w, const struct config_row *row,
                   const struct json *value, const char *path)
{
    struct config *c = w->c;
    char shown[CONFIG_PATH_MAX];
    if (is_no_value(c, row, value, config_shown(c, path, shown)))
        return;
    switch (row->rule) {
    case CONFIG_SAME: config_set_json(c, value, row->key); return;
    case CONFIG_WORDS: do_words(c, row, value); return;
    case CONFIG_ONLY: do_only(c, row, value); return;
    case CONFIG_QUIET: list_path(c, &w->quiet, path); return;
    case CONFIG_SHAPE: list_path(c, &w->shape, path); return;
    case CONFIG_ASIDE:
        config_note(c, "%s is not modelled: %s", shown, row->words);
        return;
    case CONFIG_LATER:
        if (has_words(row))
            do_words(c, row, value);
        return;
    }
}

/* ---- the walk ---- */

static const struct config_row *find_row(const struct config_table *t,
                                         struct str path)
{
    for (size_t i = 0; i < t->rows; i++) {
        if (str_is(path, t->row[i].path))
            return &t->row[i];
    }
    return NULL;
}

/* Its own row, or of what it is in. */
static const struct config_row *row_of(const struct config_table *t,
                                       const char *path)
{
    struct str p = str_of(path);
    const struct config_row *row = find_row(t, p);
    while (row == NULL && p.n > 0) {
        do
            p.n--;
        while (p.n > 0 && p.p[p.n] != '.');
        row = find_row(t, p);
    }
    return row;
}

static bool has_rows_below(const struct config_table *t, const char *path)
{
    size_t n = strlen(path);
    for (size_t i = 0; i < t->rows; i++) {
        if (strncmp(t->row[i].path, path, n) == 0 && t->row[i].path[n] == '.')
            return true;
    }
    return false;
}

/* The Trainer's "auto" of a bucket is by the model's size. */
static void leave_open(struct walk *w, const struct config_row *row,
                       const char *path)
{
    const enum setup_key key = row->key;
    if (key == KEY_REDUCE_BUCKET || key == KEY_PREFETCH_BUCKET
        || key == KEY_PERSISTENCE_THRESHOLD)
        w->c->s->automatic[key] = true;
    else
        list_path(w->c, &w->automatic, path);
}

/* One of the objects of a list. */
static bool is_inside(const char *path, const char *objects)
{
    struct str rest = str_of(objects == NULL ? "" : objects);
    while (rest.n > 0) {
        const struct str one = str_cut(rest, ' ', &rest);
        if (strncmp(path, one.p, one.n) == 0 && path[one.n] == '.')
            return true;
    }
    return false;
}

/* Of a file whose program refuses unknown entries in a part of it: one edit
 * from an entry outside of that part, with which it runs by the default. */
static bool is_slip(const struct config_table *t, const char *path,
                    const char *other)
{
    return t->closed != NULL && strchr(path, '.') == NULL
           && str_distance(str_of(path), str_of(other)) == 1;
}

static void unknown_entry(struct walk *w, const struct json *value,
                          const char *path)
{
    struct config *c = w->c;
    char other[CONFIG_PATH_MAX], near[CONFIG_PATH_MAX], text[CONFIG_PATH_MAX];
    const bool known = config_near(c->table, path, other);
    config_shown(c, other, near);
    if (is_inside(path, c->table->closed) || is_slip(c->table, path, other)) {
        memplan_error *e =
            config_bad(c, value, MEMPLAN_E_UNKNOWN, "unknown entry '%s'", path);
        if (known)
            diag_hint(e, "did you mean '%s'?", near);
        else
            diag_hint(e, "leave it out: its program refuses it too");
        return;
    }
    str_format(text, sizeof(text), known ? "%s (did you mean %s?)" : "%s", path,
               near);
    list_path(c, &w->unknown, text);
}

/* A value that its program fills in or leaves alone says nothing here. */
static void read_value(struct walk *w, const struct json *value,
                       const char *path)
{
    const struct config_row *row = row_of(w->c->table, path);
    const bool idle =
        row != NULL && (row->rule == CONFIG_QUIET || row->rule == CONFIG_SHAPE);
    if (value->kind == JSON_NULL || idle != w->idle)
        return;
    if (row == NULL && has_rows_below(w->c->table, path)
        && (w->c->table->closed != NULL
            || (value->kind == JSON_BOOL && !value->truth)))
        return; /* no such object; a closed table's checks say the rest */
    if (row == NULL)
        unknown_entry(w, value, path);
    else if (w->c->table->has_auto && is_auto(value))
        leave_open(w, row, path);
    else
        do_row(w, row, value, path);
    if (value->branched && row != NULL && !idle)
        list_path(w->c, &w->branched, path);
}

/* Depth first without recursion: the tree is as deep as the file says. */
static const struct json *next_of(const struct json *value,
                                  const struct json *root)
{
    while (value != root && value->next == NULL)
        value = value->parent;
    return value == root ? NULL : value->next;
}

static void path_of(const struct json *value, const struct json *root,
                    char path[CONFIG_PATH_MAX])
{
    const struct json *step[JSON_MAX_DEPTH];
    size_t n = 0;
    for (; value != NULL && value != root && n < JSON_MAX_DEPTH;
         value = value->parent)
        step[n++] = value;
    path[0] = '\0';
    while (n-- > 0)
        str_append(path, CONFIG_PATH_MAX, "%s%.*s",
                   path[0] && step[n]->key.n ? "." : "", (int)step[n]->key.n,
                   step[n]->key.p);
}

static void walk_all(struct walk *w)
{
    const struct json *root = w->c->root;
    const struct json *value = root->child;
    while (value != NULL) {
        char path[CONFIG_PATH_MAX];
        path_of(value, root, path);
        const bool opens =
            value->kind == JSON_OBJECT && has_rows_below(w->c->table, path);
        if (!opens)
            read_value(w, value, path);
        value =
            opens && value->child != NULL ? value->child : next_of(value, root);
    }
}

/* A script may start more than one program. */
static void note_launches(struct config *c)
{
    struct config_launcher of;
    if (!str_is(c->root->key, CONFIG_DASHES))
        return;
    config_find_launcher(c->text, c->len, &of);
    if (of.n > 1)
        config_note(c,
                    "%zu commands start programs, the first on line %zu: only "
                    "the last is read, on line %zu",
                    of.n, of.line[0], of.line[1]);
}

/* What YAML says twice, which PyYAML takes the last of. */
static void note_again(struct config *c)
{
    struct yaml_walk w = { .depth = 0 };
    const struct json *v;
    while ((v = yaml_next_again(&w, c->root)) != NULL) {
        char path[CONFIG_PATH_MAX], shown[CONFIG_PATH_MAX];
        path_of(v, c->root, path);
        config_note(c,
                    "%s is there twice, on lines %zu and %zu: the last is "
                    "taken, as by its program",
                    config_shown(c, path, shown), v->before, v->line);
    }
}

memplan_status config_read(struct config *c)
{
    if (c->root->kind != JSON_OBJECT) {
        memplan_error *e = config_bad(c, c->root, MEMPLAN_E_SCHEMA,
                                      "a configuration is an object, not %s",
                                      json_kind_name(c->root->kind));
        /* of a script without a flag, which YAML is lenient enough to take */
        const bool lines = c->root->kind == JSON_STRING && c->text[0] != '"';
        diag_hint(e, "%s",
                  lines ? "there is no flag in it, and no 'key: "
                          "value': where a script names a file of "
                          "these, give that"
                        : "write {\"key\": value, ...}");
        return c->d->status;
    }
    if (config_mistaken(c))
        return c->d->status;
    struct walk w = {
        .c = c,
        .unknown = { .heading = "not known, so ignored" },
        .quiet = { .heading = "no effect on memory or compute" },
        .shape = { .heading = "of the model, which is MODEL's" },
        .automatic = { .heading = "'auto' is for its program to fill in, so "
                                  "not set" },
        .branched = { .heading = "in an if or a case of the script, read as "
                                 "if it were taken" },
    };
    note_launches(c);
    note_again(c);
    walk_all(&w);
    if (c->table->together != NULL)
        c->table->together(c);
    list_flush(c, &w.unknown);
    list_flush(c, &w.automatic);
    list_flush(c, &w.branched);
    w.idle = true;
    walk_all(&w);
    list_flush(c, &w.shape);
    list_flush(c, &w.quiet);
    return c->d->status;
}

/* ---- dialects ---- */

const struct config_dialect *config_dialect(size_t index)
{
    static const struct config_dialect dialects[] = {
        { "deepspeed", json_parse, &config_deepspeed, emit_json, NULL },
        { "training-args", config_parse_training_args, &config_training_args,
          emit_json, NULL },
        { "accelerate", yaml_parse, &config_accelerate, emit_yaml, NULL },
        { "megatron-args", config_parse_args, &config_megatron, emit_flags,
          "megatron" },
        { "torchtitan", config_parse_torchtitan, &config_torchtitan, emit_toml,
          NULL },
        { "torchrun", config_parse_launcher, &config_torchrun, emit_flags,
          NULL },
        { "peft", json_parse, &config_peft, emit_json, NULL },
        { "hostfile", config_parse_hostfile, &config_hostfile, NULL, NULL },
    };
    return index < sizeof(dialects) / sizeof(dialects[0]) ? &dialects[index]
                                                          : NULL;
}
