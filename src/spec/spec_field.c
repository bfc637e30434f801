/*
 * Decodes the rows of field.def, as family.def changes them, into values. Owns
 * types, ranges, aliases, fallbacks, and what is said about a field that is
 * wrong. Refuses to know any family by name: spec_fix.c does.
 */
#include "spec/import.h"

#include "base/unit.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/banned.h"

/* Sizes that no model comes near, so that a slip of the pen is an error and
 * not an estimate; products of them are checked where they are formed. */
#define SIZE_LIMIT 2147483648.0
#define HEADS_MAX 1048576
#define LAYERS_MAX 10000
#define EXPERTS_MAX 65536

#define REQUIRED                                                               \
    {                                                                          \
        .how = HOW_REQUIRED                                                    \
    }
#define VALUE(n_)                                                              \
    {                                                                          \
        .how = HOW_VALUE, .n = (n_)                                            \
    }
#define NUMBER(x_)                                                             \
    {                                                                          \
        .how = HOW_NUMBER, .x = (x_)                                           \
    }
#define SAME_AS(a_)                                                            \
    {                                                                          \
        .how = HOW_SAME, .a = F_##a_                                           \
    }
#define TIMES(a_, n_)                                                          \
    {                                                                          \
        .how = HOW_TIMES, .a = F_##a_, .n = (n_)                               \
    }
#define PRODUCT(a_, b_)                                                        \
    {                                                                          \
        .how = HOW_PRODUCT, .a = F_##a_, .b = F_##b_                           \
    }
#define RATIO(a_, b_)                                                          \
    {                                                                          \
        .how = HOW_RATIO, .a = F_##a_, .b = F_##b_                             \
    }
#define CEIL(a_, n_)                                                           \
    {                                                                          \
        .how = HOW_CEIL, .a = F_##a_, .n = (n_)                                \
    }
#define FLOOR(a_, b_)                                                          \
    {                                                                          \
        .how = HOW_FLOOR, .a = F_##a_, .b = F_##b_                             \
    }
#define RATIO_UNLESS(a_, b_, n_)                                               \
    {                                                                          \
        .how = HOW_RATIO_UNLESS, .a = F_##a_, .b = F_##b_, .n = F_##n_         \
    }
#define FIELD_IF(a_, b_, n_)                                                   \
    {                                                                          \
        .how = HOW_FIELD_IF, .a = F_##a_, .b = F_##b_, .n = F_##n_             \
    }
#define PICK(a_, n_, m_)                                                       \
    {                                                                          \
        .how = HOW_PICK, .a = F_##a_, .n = (n_), .m = (m_)                     \
    }
#define ONE_IF(a_, b_)                                                         \
    {                                                                          \
        .how = HOW_ONE_IF, .a = F_##a_, .b = F_##b_                            \
    }

static const struct field fields[F_COUNT] = {
#define FIELD(id, member_, type_, keys_, fallback, min_, max_)                 \
    [F_##id] = { .member = #member_,                                           \
                 .type = TYPE_##type_,                                         \
                 .keys = keys_,                                                \
                 .absent = fallback,                                           \
                 .min = min_,                                                  \
                 .max = max_ },
#define HELPER(id, type_, keys_, fallback, min_, max_)                         \
    [F_##id] = { .member = "",                                                 \
                 .type = TYPE_##type_,                                         \
                 .keys = keys_,                                                \
                 .absent = fallback,                                           \
                 .min = min_,                                                  \
                 .max = max_ },
#include "spec/field.def"
#undef FIELD
#undef HELPER
};

static const struct rule rules[] = {
#define NUL(f, id, keys_, fallback, null_)                                     \
    { .family = FAM_##f,                                                       \
      .field = F_##id,                                                         \
      .keys = keys_,                                                           \
      .absent = fallback,                                                      \
      .null = null_ },
#define KEY(f, id, keys_, fallback) NUL_SAME(f, id, keys_, fallback)
#define DEF(f, id, fallback) NUL_SAME(f, id, NULL, fallback)
#define FIX(f, id, fallback) NUL_SAME(f, id, "", fallback)
#define NUL_SAME(f, id, keys_, ...)                                            \
    { .family = FAM_##f,                                                       \
      .field = F_##id,                                                         \
      .keys = keys_,                                                           \
      .absent = __VA_ARGS__,                                                   \
      .null = __VA_ARGS__ },
#include "spec/family.def"
#undef NUL
#undef KEY
#undef DEF
#undef FIX
#undef NUL_SAME
};

static const struct choice {
    const char *text;
    enum field_id field;
    unsigned value;
} choices[] = {
    { "silu", F_ACT, ACT_SILU },
    { "swish", F_ACT, ACT_SILU },
    { "gelu", F_ACT, ACT_GELU },
    { "gelu_pytorch_tanh", F_ACT, ACT_GELU_TANH },
    { "gelu-approximate", F_ACT, ACT_GELU_TANH },
    { "gelu_new", F_ACT, ACT_GELU_NEW },
    { "gelu_fast", F_ACT, ACT_GELU_FAST },
    { "quick_gelu", F_ACT, ACT_GELU_QUICK },
    { "relu", F_ACT, ACT_RELU },
    { "relu2", F_ACT, ACT_RELU2 },
    { "gegelu", F_ACT, ACT_GEGELU },
    { "swiglu", F_ACT, ACT_SWIGLU },
    { "rmsnorm", F_NORM, NORM_RMS },
    { "layernorm", F_NORM, NORM_LAYER },
    { "rope", F_POSITION, POS_ROPE },
    { "learned", F_POSITION, POS_LEARNED },
    { "alibi", F_POSITION, POS_ALIBI },
    { "none", F_POSITION, POS_NONE },
};

/* ---- places and messages ---- */

memplan_error *import_error(struct import *im, const struct json *at,
                            memplan_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    memplan_error *e = diag_vadd(im->d, status, format, args);
    va_end(args);
    json_locate(e, im->text, im->len, at);
    return e;
}

/* The first of a list of keys is as long as this. */
static int first_len(const char *keys)
{
    return (int)strcspn(keys, " ");
}

const char *import_key(struct import *im, enum field_id id)
{
    if (im->v[id].at)
        return im->v[id].at->key.p;
    const char *keys = im->keys[id];
    if (keys[0] == '\0')
        return fields[id].member;
    char *word = im->word[im->words++ % IMPORT_WORDS];
    str_format(word, IMPORT_WORD_MAX, "%.*s", first_len(keys), keys);
    return word;
}

const struct json *import_at(const struct import *im, enum field_id id)
{
    return im->v[id].at ? im->v[id].at : im->object;
}

void import_missing(struct import *im, enum field_id id)
{
    const char *keys = im->keys[id];
    memplan_error *e = import_error(im, im->object, MEMPLAN_E_SCHEMA,
                                    "'%.*s' is missing", first_len(keys), keys);
    if (keys[first_len(keys)] != '\0')
        diag_hint(e, "any of these gives it: %s", keys);
    else if (id == F_FFN)
        diag_hint(e, "give '%s': a gated MLP has no usual width", keys);
    else
        diag_hint(e, "add \"%s\": ...", keys);
    im->v[id].bad = true;
}

const struct json *import_find(const struct json *object, struct str key)
{
    struct str rest;
    for (;;) {
        struct str part = str_cut(key, '.', &rest);
        if (!object || object->kind != JSON_OBJECT)
            return NULL;
        const struct json *child = object->child;
        while (child && !str_eq(child->key, part))
            child = child->next;
        if (!child || rest.n == 0)
            return child;
        object = child;
        key = rest;
    }
}

/* ---- one value ---- */

/* Its key; of an entry of a list the list's. */
static const char *name_of(const struct json *at)
{
    if (at->key.n == 0 && at->parent != NULL)
        at = at->parent;
    return at->key.n > 0 ? at->key.p : "";
}

static void wrong_kind(struct import *im, const struct json *at,
                       const char *wanted)
{
    memplan_error *e =
        import_error(im, at, MEMPLAN_E_SCHEMA, "'%s' must be %s, not %s",
                     name_of(at), wanted, json_kind_name(at->kind));
    double number;
    if (at->kind == JSON_STRING
        && (unit_parse_real(at->text, &number) == UNIT_OK
            || str_is(at->text, "true") || str_is(at->text, "false")))
        diag_hint(e, "write it without quotes: \"%s\": %.40s", name_of(at),
                  at->text.p);
}

bool import_real(struct import *im, const struct json *at, double min,
                 double max, double *out)
{
    char value[UNIT_TEXT_MAX], low[UNIT_TEXT_MAX], high[UNIT_TEXT_MAX];
    if (at->kind != JSON_NUMBER) {
        wrong_kind(im, at, "a number");
        return false;
    }
    if (!(at->number >= min && at->number <= max)) {
        memplan_error *e =
            import_error(im, at, MEMPLAN_E_RANGE, "'%s' is %s, out of range",
                         name_of(at), unit_format_double(value, at->number));
        diag_hint(e, "use a number from %s to %s", unit_format_double(low, min),
                  unit_format_double(high, max));
        return false;
    }
    *out = at->number;
    return true;
}

bool import_count(struct import *im, const struct json *at, double min,
                  double max, uint64_t *out)
{
    char value[UNIT_TEXT_MAX];
    double x;
    if (at->kind != JSON_NUMBER) {
        wrong_kind(im, at, "a whole number");
        return false;
    }
    if (!import_real(im, at, min, max, &x))
        return false;
    if (x != floor(x)) {
        import_error(im, at, MEMPLAN_E_SCHEMA,
                     "'%s' is %s, but must be a whole number", name_of(at),
                     unit_format_double(value, x));
        return false;
    }
    *out = (uint64_t)x;
    return true;
}

static bool import_bool(struct import *im, const struct json *at, uint64_t *out)
{
    if (at->kind != JSON_BOOL) {
        wrong_kind(im, at, "true or false");
        return false;
    }
    *out = at->truth;
    return true;
}

/* swiglu says two things, of which only the generic decoder can hear the
 * second. */
static bool has_choice(const struct import *im, const struct choice *c,
                       enum field_id id)
{
    return c->field == id
           && (c->value != ACT_SWIGLU || id != F_ACT || import_is_generic(im));
}

static void unknown_choice(struct import *im, enum field_id id,
                           const struct json *at)
{
    memplan_error *e =
        import_error(im, at, MEMPLAN_E_UNKNOWN, "'%s' cannot be '%.40s'",
                     at->key.p, at->text.p);
    const char *best = NULL;
    unsigned least = 0;
    char list[200] = "";
    for (size_t i = 0; i < COUNT_OF(choices); i++) {
        if (!has_choice(im, &choices[i], id))
            continue;
        unsigned far = str_distance(str_of(choices[i].text), at->text);
        if (!best || far < least) {
            best = choices[i].text;
            least = far;
        }
        str_append_item(list, sizeof(list), choices[i].text);
    }
    if (best && str_near(str_of(best), at->text, least))
        diag_hint(e, "did you mean '%s'? known: %s", best, list);
    else
        diag_hint(e, "known: %s", list);
}

bool import_word_value(const struct import *im, enum field_id id,
                       struct str text, uint64_t *out)
{
    for (size_t i = 0; i < COUNT_OF(choices); i++) {
        if (has_choice(im, &choices[i], id) && str_is(text, choices[i].text)) {
            *out = choices[i].value;
            return true;
        }
    }
    return false;
}

static bool import_choice(struct import *im, enum field_id id,
                          const struct json *at, uint64_t *out)
{
    if (at->kind != JSON_STRING) {
        wrong_kind(im, at, "a string");
        return false;
    }
    if (import_word_value(im, id, at->text, out))
        return true;
    unknown_choice(im, id, at);
    return false;
}

static struct value decode(struct import *im, enum field_id id,
                           const struct json *at)
{
    const struct field *f = &fields[id];
    struct value v = { .at = at };
    switch (f->type) {
    case TYPE_COUNT_OR_AUTO:
    case TYPE_COUNT: v.bad = !import_count(im, at, f->min, f->max, &v.n); break;
    case TYPE_BOOL: v.bad = !import_bool(im, at, &v.n); break;
    case TYPE_REAL: v.bad = !import_real(im, at, f->min, f->max, &v.x); break;
    case TYPE_CHOICE: v.bad = !import_choice(im, id, at, &v.n); break;
    }
    return v;
}

bool import_activation(struct import *im, const struct json *at,
                       enum activation *out)
{
    const struct value v = decode(im, F_ACT, at);
    if (v.bad)
        return false;
    if (v.n < ACT_GEGELU) {
        *out = (enum activation)v.n;
        return true;
    }
    memplan_error *e =
        import_error(im, at, MEMPLAN_E_SCHEMA, "'%s' takes no gate", at->key.p);
    diag_hint(e, "use gelu, or another activation without one");
    return false;
}

/* ---- one field ---- */

static void ratio(struct import *im, enum field_id id, const struct fallback *f)
{
    uint64_t a = im->v[f->a].n, b = im->v[f->b].n;
    if (a % b == 0) {
        im->v[id].n = a / b;
        return;
    }
    memplan_error *e =
        import_error(im, import_at(im, f->b), MEMPLAN_E_CONFLICT,
                     "'%s' (%" PRIu64 ") does not divide '%s' (%" PRIu64 ")",
                     import_key(im, f->b), b, import_key(im, f->a), a);
    if (im->keys[id][0])
        diag_hint(e, "change one of them, or give '%s'", im->keys[id]);
    else
        diag_hint(e, "change one of them: '%s' has no key in a '%s' model",
                  fields[id].member, im->model_type);
    im->v[id].bad = true;
}

/* A fallback's arguments are rows above, decoded already. */
static bool uses_bad(const struct import *im, const struct fallback *f)
{
    switch (f->how) {
    case HOW_REQUIRED:
    case HOW_VALUE:
    case HOW_NUMBER: return false;
    case HOW_SAME:
    case HOW_TIMES:
    case HOW_CEIL:
    case HOW_PICK: return im->v[f->a].bad;
    case HOW_PRODUCT:
    case HOW_RATIO:
    case HOW_FLOOR:
    case HOW_ONE_IF: return im->v[f->a].bad || im->v[f->b].bad;
    case HOW_RATIO_UNLESS:
    case HOW_FIELD_IF:
        return im->v[f->a].bad || im->v[f->b].bad || im->v[f->n].bad;
    }
    return true;
}

static void fall_back(struct import *im, enum field_id id,
                      const struct fallback *f)
{
    struct value *v = &im->v[id];
    const struct value *a = &im->v[f->a], *b = &im->v[f->b];
    if (uses_bad(im, f)) {
        v->bad = true;
        return;
    }
    switch (f->how) {
    case HOW_REQUIRED: import_missing(im, id); break;
    case HOW_VALUE: v->n = f->n; break;
    case HOW_NUMBER: v->x = f->x; break;
    case HOW_SAME:
        v->n = a->n;
        v->x = a->x;
        break;
    case HOW_TIMES: v->n = a->n * f->n; break;
    case HOW_PRODUCT: v->n = a->n * b->n; break;
    case HOW_RATIO: ratio(im, id, f); break;
    case HOW_FLOOR: v->n = a->n / b->n; break;
    case HOW_CEIL: v->n = a->n / f->n + (a->n % f->n != 0); break;
    case HOW_RATIO_UNLESS:
        if (im->v[f->n].n == 0)
            ratio(im, id, f);
        break;
    case HOW_PICK: v->n = a->n ? f->n : f->m; break;
    case HOW_FIELD_IF: v->n = a->n ? b->n : im->v[f->n].n; break;
    case HOW_ONE_IF: v->n = a->n ? 1 : b->n; break;
    }
}

static void check_alias(struct import *im, enum field_id id,
                        const struct value *other)
{
    const struct value *v = &im->v[id];
    if (v->bad || other->bad)
        return;
    double d = v->x - other->x;
    if (v->n == other->n && d >= 0 && d <= 0)
        return;
    memplan_error *e =
        import_error(im, other->at, MEMPLAN_E_CONFLICT, "'%s' contradicts '%s'",
                     other->at->key.p, v->at->key.p);
    diag_hint(e, "they mean the same: keep one of them");
}

/* The tie flag of a nested text_config may sit beside it. */
static const struct json *find_for(const struct import *im, enum field_id id,
                                   struct str key)
{
    const struct json *at = import_find(im->object, key);
    if (id == F_TIED && !at && im->object != im->root)
        at = import_find(im->root, key);
    return at;
}

/* A class takes null as it is, and then has no number: its default is for a
 * key that is not there. NUL rows say where null means something. */
static bool null_is_nothing(const struct import *im, enum field_id id)
{
    const struct fallback *absent = &im->absent[id], *null = &im->null[id];
    const bool plain =
        fields[id].type == TYPE_COUNT || fields[id].type == TYPE_BOOL;
    if (null->how == HOW_REQUIRED && absent->how == HOW_VALUE)
        return true;
    return plain && null->how == HOW_VALUE && absent->how == HOW_VALUE
           && null->n == absent->n && null->n != 0;
}

static void refuse_null(struct import *im, enum field_id id,
                        const struct json *at)
{
    char value[64] = "";
    im->v[id].n = im->absent[id].n;
    import_value_text(im, id, value, sizeof(value));
    im->v[id].bad = true;
    memplan_error *e = import_error(im, at, MEMPLAN_E_SCHEMA,
                                    "'%s' cannot be null", at->key.p);
    diag_hint(e, "leave it out for the class's own %s, or write a value",
              value);
}

/* Mamba2Config wants a number for its heads' width. */
static bool takes_auto(const struct import *im, enum field_id id)
{
    return fields[id].type == TYPE_COUNT_OR_AUTO
           && !(id == F_SSM_HEAD_DIM && im->family == FAM_MAMBA2);
}

static void import_field(struct import *im, enum field_id id)
{
    const struct json *null = NULL;
    struct str rest = str_of(im->keys[id]);
    while (rest.n > 0) {
        const struct json *at = find_for(im, id, str_cut(rest, ' ', &rest));
        if (!at)
            continue;
        if (at->kind == JSON_NULL) {
            null = at;
            continue;
        }
        if (takes_auto(im, id) && at->kind == JSON_STRING
            && str_is(at->text, "auto"))
            continue;
        struct value v = decode(im, id, at);
        if (!im->v[id].at)
            im->v[id] = v;
        else
            check_alias(im, id, &v);
    }
    im->by_null[id] = null != NULL;
    if (im->v[id].at)
        return;
    if (null && null_is_nothing(im, id))
        refuse_null(im, id, null);
    else
        fall_back(im, id, null ? &im->null[id] : &im->absent[id]);
}

/* ---- words ---- */

bool import_is_helper(enum field_id id)
{
    return fields[id].member[0] == '\0';
}

/* The first of a list of keys; true when there is one. */
static bool first_key(struct str *out, const char *keys)
{
    struct str rest = str_of(keys);
    *out = str_cut(rest, ' ', &rest);
    return out->n > 0;
}

/* The key of the generic decoder, which has one for most things. */
static bool generic_key(struct str *out, enum field_id id)
{
    for (size_t i = 0; i < COUNT_OF(rules); i++) {
        if (rules[i].family == FAM_DECODER && rules[i].field == id
            && rules[i].keys != NULL)
            return first_key(out, rules[i].keys);
    }
    return first_key(out, fields[id].keys);
}

void import_word(const struct import *im, enum field_id id, char *buf,
                 size_t size)
{
    const struct json *at = im->v[id].at;
    struct str key;
    if (at && at->parent && at->parent->key.n > 0 && at->parent != im->object)
        str_format(buf, size, "%s.%s", at->parent->key.p, at->key.p);
    else if (at)
        str_format(buf, size, "%s", at->key.p);
    else if (first_key(&key, im->keys[id]) || generic_key(&key, id))
        str_format(buf, size, "%.*s", (int)key.n, key.p);
    else
        str_format(buf, size, "%s", fields[id].member);
}

void import_value_text(const struct import *im, enum field_id id, char *buf,
                       size_t size)
{
    const struct value *v = &im->v[id];
    char text[UNIT_TEXT_MAX];
    buf[0] = '\0';
    switch (fields[id].type) {
    case TYPE_COUNT:
    case TYPE_COUNT_OR_AUTO: str_format(buf, size, "%" PRIu64, v->n); break;
    case TYPE_BOOL: str_format(buf, size, v->n ? "true" : "false"); break;
    case TYPE_REAL:
        str_format(buf, size, "%s", unit_format_double(text, v->x));
        break;
    case TYPE_CHOICE:
        for (size_t i = 0; i < COUNT_OF(choices) && buf[0] == '\0'; i++) {
            if (choices[i].field == id && choices[i].value == v->n)
                str_format(buf, size, "\"%s\"", choices[i].text);
        }
        break;
    }
}

bool import_can_say(const struct import *im, enum field_id id)
{
    const struct field *f = &fields[id];
    const struct value *v = &im->v[id];
    char text[64];
    if (im->keys[id][0] == '\0')
        return false;
    switch (f->type) {
    case TYPE_COUNT:
    case TYPE_COUNT_OR_AUTO:
        return (double)v->n >= f->min && (double)v->n <= f->max;
    case TYPE_REAL: return v->x >= f->min && v->x <= f->max;
    case TYPE_BOOL: return true;
    case TYPE_CHOICE: import_value_text(im, id, text, sizeof(text)); break;
    }
    return text[0] != '\0';
}

/* ---- all of them ---- */

void import_rules(struct import *im)
{
    for (int id = 0; id < F_COUNT; id++) {
        im->keys[id] = fields[id].keys;
        im->absent[id] = im->null[id] = fields[id].absent;
        im->own[id] = false;
    }
    for (size_t i = 0; i < COUNT_OF(rules); i++) {
        if (rules[i].family != im->family)
            continue;
        enum field_id id = rules[i].field;
        im->keys[id] = rules[i].keys ? rules[i].keys : fields[id].keys;
        im->absent[id] = rules[i].absent;
        im->null[id] = rules[i].null;
        im->own[id] = true;
    }
}

void import_fields(struct import *im)
{
    for (int id = 0; id < F_COUNT; id++)
        import_field(im, (enum field_id)id);
}

#define STORE_COUNT(v) (v).n
#define STORE_COUNT_OR_AUTO(v) (v).n
#define STORE_BOOL(v) ((v).n != 0)
#define STORE_REAL(v) (v).x
#define STORE_CHOICE(v) (unsigned)(v).n

void import_store(struct spec *out, const struct import *im)
{
#define FIELD(id, member_, type, keys, fallback, min, max)                     \
    out->member_ = STORE_##type(im->v[F_##id]);
#define HELPER(id, type, keys, fallback, min, max)
#include "spec/field.def"
#undef FIELD
#undef HELPER
}
