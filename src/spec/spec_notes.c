/*
 * How a file was understood, key by key, for people and for a normalised file:
 * what was read, what the class filled in and why, what it decides by itself,
 * what was passed over. Refuses to decide anything.
 */
#include "spec/import.h"

#include <string.h>

#include "base/banned.h"

/* ---- why ---- */

static void word_of(const struct import *im, enum field_id id, char buf[96])
{
    import_word(im, id, buf, 96);
}

/* "hidden_size / num_attention_heads" */
static void why_of(const struct import *im, enum field_id id, char *buf,
                   size_t size)
{
    const struct fallback *f =
        im->by_null[id] ? &im->null[id] : &im->absent[id];
    char a[96], b[96];
    word_of(im, f->a, a);
    word_of(im, f->b, b);
    buf[0] = '\0';
    switch (f->how) {
    case HOW_SAME: str_format(buf, size, "as %s", a); return;
    case HOW_TIMES: str_format(buf, size, "%u x %s", f->n, a); return;
    case HOW_PRODUCT: str_format(buf, size, "%s x %s", a, b); return;
    case HOW_RATIO:
    case HOW_RATIO_UNLESS: str_format(buf, size, "%s / %s", a, b); return;
    case HOW_FLOOR: str_format(buf, size, "floor(%s / %s)", a, b); return;
    case HOW_CEIL: str_format(buf, size, "ceil(%s / %u)", a, f->n); return;
    case HOW_PICK:
    case HOW_FIELD_IF:
    case HOW_ONE_IF: str_format(buf, size, "follows from %s", a); return;
    case HOW_REQUIRED:
    case HOW_VALUE:
    case HOW_NUMBER: break;
    }
    if (im->keys[id][0] == '\0')
        return;
    str_format(buf, size, im->own[id] ? "default of %s" : "default",
               family_name(im->family));
    if (im->by_null[id])
        str_append(buf, size, " (the file says null)");
}

/* ---- the notes ---- */

struct notes {
    struct import *im;
    struct arena *a;
    struct spec_note *item;
    size_t n, room;
    bool failed;
};

static const char *keep(struct notes *s, const char *text)
{
    const char *kept = arena_copy(s->a, text, strlen(text));
    s->failed = s->failed || kept == NULL;
    return kept;
}

static void add(struct notes *s, const struct spec_note *note)
{
    if (s->n < s->room)
        s->item[s->n++] = *note;
}

/* The same JSON without blanks between its parts. */
static const char *keep_short(struct notes *s, const char *json, size_t n)
{
    char *kept = arena_copy(s->a, json, n);
    bool quoted = false;
    size_t to = 0;
    s->failed = s->failed || kept == NULL;
    for (size_t i = 0; kept != NULL && i < n; i++) {
        const char c = kept[i];
        const bool blank = c == ' ' || c == '\n' || c == '\r' || c == '\t';
        if (quoted && c == '\\' && i + 1 < n)
            kept[to++] = kept[i++];
        else if (c == '"')
            quoted = !quoted;
        if (quoted || !blank)
            kept[to++] = kept[i];
    }
    if (kept != NULL)
        kept[to] = '\0';
    return kept;
}

/* A value of the file, as JSON. */
static const char *json_of(struct notes *s, const struct json *at)
{
    const char *from = s->im->text + at->offset, *end = from;
    const char *stop = s->im->text + s->im->len;
    if (at->kind == JSON_ARRAY || at->kind == JSON_OBJECT) {
        end = from + json_value_length(s->im->text, s->im->len, at->offset);
    } else if (at->kind == JSON_STRING) {
        for (end++; end < stop && *end != '"'; end++)
            end += *end == '\\';
        end += end < stop;
    } else {
        while (end < stop && strchr(",]} \t\r\n", *end) == NULL)
            end++;
    }
    return keep_short(s, from, (size_t)(end - from));
}

/* One of the field's own keys, and no value that follows from another's. */
static bool is_own_key(const struct import *im, enum field_id id)
{
    const struct str key = im->v[id].at->key;
    struct str rest = str_of(im->keys[id]);
    while (rest.n > 0) {
        const struct str one = str_cut(rest, ' ', &rest);
        const size_t from = one.n > key.n ? one.n - key.n : 0;
        if (one.n >= key.n && memcmp(one.p + from, key.p, key.n) == 0
            && (from == 0 || one.p[from - 1] == '.'))
            return true;
    }
    return false;
}

static void note_field(struct notes *s, enum field_id id)
{
    const struct import *im = s->im;
    const struct value *v = &im->v[id];
    if (v->at != NULL && !is_own_key(im, id))
        return;
    char key[96], value[64], why[256] = "";
    import_word(im, id, key, sizeof(key));
    import_value_text(im, id, value, sizeof(value));
    struct spec_note note = { .origin = NOTE_READ, .given = "", .why = "" };
    const bool nothing = v->n == 0 && !(v->x > 0) && !(v->x < 0);
    if (v->at != NULL) {
        note.given = json_of(s, v->at);
    } else {
        note.origin = im->keys[id][0] != '\0' ? NOTE_DEFAULT : NOTE_CLASS;
        why_of(im, id, why, sizeof(why));
        note.why = keep(s, why);
        if (im->by_null[id] && nothing) /* 0 may be another thing */
            note.given = "null";
    }
    /* nothing is said of what has no word, of what a class has not, and of
       what no class decides in another way */
    if (v->at == NULL
        && (value[0] == '\0' || (nothing && !import_can_say(im, id))
            || (note.origin == NOTE_CLASS
                && (!im->own[id] || import_is_helper(id)))))
        return;
    note.key = keep(s, key);
    note.value = keep(s, value);
    note.sayable = import_can_say(im, id);
    add(s, &note);
}

/* Keys that are read apart from the fields. */
static bool is_list(const struct import *im, struct str key)
{
    static const char *const others[] = { "id2label", "feed_forward_proj",
                                          "input", "resnet", "layers" };
    const char *list;
    for (size_t next = 0; (list = import_layer_list(im->family, &next));) {
        if (str_is(key, list))
            return true;
    }
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        if (str_is(key, others[i]) && import_is_inert(im, key))
            return true;
    }
    return str_is(key, "architectures") || str_is(key, "quantization_config");
}

static bool is_head(struct str key)
{
    return str_is(key, "memplan") || str_is(key, "name")
           || str_is(key, "source") || str_is(key, "notes")
           || str_is(key, "parameters") || str_is(key, "model_type");
}

/* A value that a field came from, or an object with such. */
static bool was_read(const struct import *im, const struct json *at)
{
    if (at == im->object)
        return true;
    for (int id = 0; id < F_COUNT; id++) {
        const struct json *from = im->v[id].at;
        if (from != NULL && (from == at || from->parent == at))
            return true;
    }
    return false;
}

static void note_rest(struct notes *s, const struct json *object)
{
    const struct import *im = s->im;
    for (const struct json *at = object->child; at; at = at->next) {
        if (was_read(im, at) || (object == im->root && is_head(at->key))
            || str_is(at->key, "model_type"))
            continue;
        struct spec_note note = { .origin = NOTE_IGNORED,
                                  .value = "",
                                  .why = "" };
        if (object == im->object && import_class_took(im, at->key)) {
            note.origin = NOTE_READ;
            note.value = json_of(s, at);
            note.sayable = true;
        } else if (is_list(im, at->key))
            note.origin = NOTE_LIST;
        else if (object == im->object && import_reads(im, at->key)) {
            if (at->kind == JSON_NULL) /* said where the field is */
                continue;
            note.why = "says the same again";
        }
        note.key = keep(s, at->key.p);
        note.given = json_of(s, at);
        add(s, &note);
    }
}

static size_t members(const struct json *object)
{
    size_t n = 0;
    for (const struct json *at = object->child; at; at = at->next)
        n++;
    return n;
}

/* Sizes that parameters follow from. */
static bool is_size(const struct import *im, enum field_id id)
{
    static const enum field_id sizes[] = {
        F_LAYERS,
        F_DECODER_LAYERS,
        F_HIDDEN,
        F_HEADS,
        F_DECODER_HEADS,
        F_KV_HEADS,
        F_KV_GROUPS,
        F_HEAD_DIM,
        F_Q_RANK,
        F_KV_RANK,
        F_NOPE_DIM,
        F_ROPE_DIM,
        F_V_DIM,
        F_INDEX_HEADS,
        F_INDEX_DIM,
        F_VOCAB,
        F_FFN,
        F_FFN_MULTIPLE,
        F_DECODER_FFN,
        F_SSM_HEADS,
        F_SSM_HEAD_DIM,
        F_SSM_INNER,
        F_SSM_STATE,
        F_SSM_GROUPS,
        F_SSM_CONV,
        F_PATCH,
        F_IMAGE,
        F_CHANNELS,
        F_ADAPTER_IN,
        F_ADAPTER_OUT,
        F_VISION_WIDTH,
        F_CLASSES,
        F_TARGET_POSITIONS,
        F_MEL,
        F_EXPERTS,
        F_EXPERT_FFN,
        F_SHARED_FFN,
        F_EXPAND,
        F_RELATIVE_BUCKETS,
    };
    if (id == F_MAX_POSITIONS)
        return im->v[F_POSITION].n == POS_LEARNED;
    if (id == F_EXPERTS_PER_TOKEN || id == F_SHARED_EXPERTS
        || id == F_FIRST_DENSE)
        return im->v[F_EXPERTS].n > 0;
    if (id == F_MOE_EVERY || id == F_ATTENDS_EVERY) /* 1: all layers */
        return im->v[id].n > 1;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        if (sizes[i] == id)
            return true;
    }
    return false;
}

/* A number of the class that stands in for a key which is not there. */
static bool is_defaulted(const struct import *im, enum field_id id)
{
    const struct fallback *f =
        im->by_null[id] ? &im->null[id] : &im->absent[id];
    return is_size(im, id) && im->v[id].at == NULL && im->keys[id][0] != '\0'
           && f->how == HOW_VALUE && im->v[id].n > 0;
}

static const char *defaulted(struct notes *s)
{
    enum { ROOM = 150 }; /* of an assumption (ASSUMPTION_TEXT) */
    char list[ROOM] = "", one[96 + 64 + 4], key[96], value[64];
    for (int i = 0; i < F_COUNT; i++) {
        const enum field_id id = (enum field_id)i;
        if (!is_defaulted(s->im, id))
            continue;
        import_word(s->im, id, key, sizeof(key));
        import_value_text(s->im, id, value, sizeof(value));
        str_format(one, sizeof(one), "%s%s %s", list[0] ? ", " : "", key,
                   value);
        if (strlen(list) + strlen(one) + sizeof(", ...") > ROOM) {
            str_append(list, sizeof(list), ", ...");
            break;
        }
        str_append(list, sizeof(list), "%s", one);
    }
    return keep(s, list);
}

void import_notes(struct import *im, struct spec *out, struct arena *a)
{
    struct notes s = { .im = im, .a = a };
    if (im->d->status != MEMPLAN_OK)
        return;
    s.room = F_COUNT + members(im->root)
             + (im->object != im->root ? members(im->object) : 0);
    s.item = ARENA_NEW(a, struct spec_note, s.room);
    if (s.item == NULL) {
        (void)diag_nomem(im->d);
        return;
    }
    for (int id = 0; id < F_COUNT; id++)
        note_field(&s, (enum field_id)id);
    out->defaulted = defaulted(&s);
    note_rest(&s, im->object);
    out->own_notes = s.n;
    if (im->object != im->root)
        note_rest(&s, im->root);
    if (s.failed)
        (void)diag_nomem(im->d);
    out->note = s.item;
    out->notes = s.n;
}

/* ---- of a whole ---- */

static bool is_part(const struct import *im, const struct json *at)
{
    return at == im->object
           || (at->kind == JSON_OBJECT
               && (str_is(at->key, "vision_config")
                   || str_is(at->key, "vision_config_dict")));
}

static void note_whole_key(struct notes *s, const struct whole_key *key)
{
    const struct json *at = json_member(s->im->root, key->key);
    const bool read = at != NULL && at->kind != JSON_NULL;
    add(s, &(struct spec_note){ .origin = read ? NOTE_READ : NOTE_DEFAULT,
                                .key = key->key,
                                .value = keep(s, key->value),
                                .given = read ? json_of(s, at) : "",
                                .why = read ? "" : "default",
                                .sayable = true });
}

static bool is_among(struct str key, const struct whole_key *keys, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (str_is(key, keys[i].key))
            return true;
    }
    return false;
}

void import_whole_notes(struct import *im, struct spec *all,
                        const struct whole_key *keys, size_t n, struct arena *a)
{
    struct notes s = { .im = im, .a = a, .room = n + members(im->root) };
    s.item = ARENA_NEW(a, struct spec_note, s.room);
    if (s.item == NULL) {
        (void)diag_nomem(im->d);
        return;
    }
    for (size_t i = 0; i < n; i++)
        note_whole_key(&s, &keys[i]);
    for (const struct json *at = im->root->child; at; at = at->next) {
        if (is_part(im, at) || is_head(at->key) || is_among(at->key, keys, n)
            || im->object == im->root || was_read(im, at))
            continue;
        add(&s, &(struct spec_note){ .origin = NOTE_IGNORED,
                                     .key = keep(&s, at->key.p),
                                     .value = "",
                                     .given = json_of(&s, at),
                                     .why = "" });
    }
    if (s.failed)
        (void)diag_nomem(im->d);
    all->note = s.item;
    all->notes = all->own_notes = s.n;
}
