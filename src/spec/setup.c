/*
 * Owns the user's keys: their table, their choices, and how a value and who
 * said it are told. Reading one is setup_value.c's; what keys mean together is
 * the business of setup_resolve().
 */
#include "spec/setup.h"

#include "base/unit.h"
#include "data/constants.h"
#include "data/kernel.h"
#include "json/json.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/banned.h"

/* ---- the table ---- */

static const memplan_field fields[KEY_COUNT] = {
#define AS_TEXT(x) #x
#define TEXT_OF(x) AS_TEXT(x)
#define KEY(id, key, type, choices, default_text, min, max, group, doc, ph)    \
    [KEY_##id] = {                                                             \
        key, MEMPLAN_TYPE_##type, choices, default_text, group, doc, ph, min,  \
        max                                                                    \
    },
#include "spec/setup.def"
#undef KEY
};

const memplan_field *setup_field(size_t key)
{
    return key < KEY_COUNT ? &fields[key] : NULL;
}

enum setup_key setup_find_key(struct str key)
{
    for (int k = 0; k < KEY_COUNT; k++) {
        if (str_same_name(key, str_of(fields[k].key)))
            return (enum setup_key)k;
    }
    return KEY_COUNT;
}

/* ---- choices ---- */

struct str choice_word(const char *choices, size_t index)
{
    struct str rest = str_of(choices);
    struct str word = str_cut(rest, ' ', &rest);
    for (size_t i = 0; i < index && word.n > 0; i++)
        word = str_cut(rest, ' ', &rest);
    return word;
}

static const char *const dtype_names[DTYPE_COUNT] = {
#define DTYPE_NAME(id, text) [id] = text,
    DTYPE_MAP(DTYPE_NAME)
#undef DTYPE_NAME
};

const char *dtype_name(enum dtype t)
{
    return (unsigned)t < DTYPE_COUNT ? dtype_names[t] : "";
}

uint64_t dtype_bytes_of(enum dtype t, uint64_t elems)
{
    if (t == DT_E5M6) /* 12 bits */
        return elems + elems / 2 + elems % 2;
    if (t == DT_NF4 || t == DT_FP4 || t == DT_INT4)
        return elems / 2 + elems % 2;
    return dtype_size(t) * elems;
}

/* Keys whose words are dtypes: they store the enum, so that two keys with
 * different lists of words mean the same by the same number. */
bool setup_is_dtype(enum setup_key key)
{
    return key == KEY_PARAM_DTYPE || key == KEY_GRAD_DTYPE
           || key == KEY_REDUCE_DTYPE || key == KEY_MASTER_DTYPE
           || key == KEY_OPTIMIZER_DTYPE || key == KEY_LORA_DTYPE
           || key == KEY_BASE_DTYPE;
}

/* ---- messages ---- */

memplan_error *setup_error(struct diag *d, memplan_status status,
                           enum setup_key key, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    memplan_error *e = diag_vadd(d, status, format, args);
    va_end(args);
    if ((unsigned)key < KEY_COUNT)
        str_format(e->key, sizeof(e->key), "%s", fields[key].key);
    return e;
}

const char *lora_words(uint64_t set, char buf[LORA_WORDS_MAX])
{
    static const char *const name[] = {
#define LORA_TEXT(id, text) text,
        LORA_TARGET_MAP(LORA_TEXT)
#undef LORA_TEXT
    };
    size_t n = 0;
    buf[0] = '\0';
    for (unsigned i = 0; i < LORA_TARGET_COUNT; i++) {
        if ((set >> i & 1) == 0)
            continue;
        str_format(buf + n, LORA_WORDS_MAX - n, "%s%s", n > 0 ? ", " : "",
                   name[i]);
        n += strlen(buf + n);
    }
    return buf;
}

/* ---- back to text ---- */

static bool has_layer(const struct setup *s, unsigned i)
{
    return i < SETUP_LIST_MAX && (s->layers[i / 64] >> i % 64 & 1) != 0;
}

static void put_layers(const struct setup *s, char *buf, size_t size)
{
    for (unsigned i = 0; i < SETUP_LIST_MAX; i++) {
        unsigned last = i;
        if (!has_layer(s, i))
            continue;
        while (has_layer(s, last + 1))
            last++;
        str_append(buf, size, buf[0] ? ",%u" : "%u", i);
        if (last > i)
            str_append(buf, size, last == i + 1 ? ",%u" : "-%u", last);
        i = last;
    }
}

static void put_ranks(const struct setup *s, char *buf, size_t size)
{
    for (size_t i = 0; i < LORA_TARGET_COUNT; i++) {
        const struct str word =
            choice_word(fields[KEY_LORA_TARGETS].choices, i);
        if (s->rank[i] != 0)
            str_append(buf, size, buf[0] ? ",%.*s=%" PRIu32 : "%.*s=%" PRIu32,
                       (int)word.n, word.p, s->rank[i]);
    }
}

static const char *list_text(const struct setup *s, enum setup_key key,
                             char *buf, size_t size)
{
    if (size == 0)
        return "";
    buf[0] = '\0';
    if (key == KEY_IMAGE) {
        str_format(buf, size, "%ux%ux%u", s->image[0], s->image[1],
                   s->image[2]);
        return buf;
    }
    if (key == KEY_PIPELINE_LAYERS) {
        for (size_t i = 0; i < s->pipeline_count; i++)
            str_append(buf, size, i > 0 ? ",%u" : "%u",
                       (unsigned)s->pipeline_layers[i]);
        return buf;
    }
    if (key == KEY_LAYERS_TO_TRANSFORM) {
        put_layers(s, buf, size);
        return buf;
    }
    if (key == KEY_RANK_PATTERN) {
        put_ranks(s, buf, size);
        return buf;
    }
    if (key == KEY_LENGTHS) {
        for (size_t i = 0; i < s->lengths_count; i++)
            str_append(buf, size, i > 0 ? ",%" PRIu32 : "%" PRIu32,
                       s->lengths[i]);
        return buf;
    }
    for (size_t i = 0; i < 64; i++) {
        struct str word = choice_word(fields[key].choices, i);
        if (word.n == 0)
            break;
        if (s->v[key].n >> i & 1)
            str_append(buf, size, buf[0] ? ",%.*s" : "%.*s", (int)word.n,
                       word.p);
    }
    return buf;
}

static const char *choice_text(enum setup_key key, uint64_t n, char *buf,
                               size_t size)
{
    if (setup_is_dtype(key))
        return dtype_name((enum dtype)n);
    str_copy(buf, size, choice_word(fields[key].choices, (size_t)n));
    return buf;
}

static void append_said(char buf[ASSUMPTION_TEXT], const struct said_part *x)
{
    char word[ASSUMPTION_TEXT];
    switch (x->kind) {
    case SAID_NOTHING: break;
    case SAID_TEXT: str_append(buf, ASSUMPTION_TEXT, "%s", x->text); break;
    case SAID_COUNT: str_append(buf, ASSUMPTION_TEXT, "%" PRIu64, x->n); break;
    case SAID_CHOICE:
        str_append(buf, ASSUMPTION_TEXT, "%s",
                   choice_text(x->key, x->n, word, sizeof word));
        break;
    case SAID_QUANTITY:
        str_append(buf, ASSUMPTION_TEXT, "%s", unit_format_count(word, x->x));
        break;
    case SAID_CENTS:
        str_append(buf, ASSUMPTION_TEXT, "%" PRIu64 ".%02" PRIu64, x->n / 100,
                   x->n % 100);
        break;
    case SAID_SHARE: str_append(buf, ASSUMPTION_TEXT, "%g", x->x); break;
    case SAID_SLOWEST:
        str_append(buf, ASSUMPTION_TEXT, "%.1f",
                   100 * (kernel_slowest(x->n) - 1));
        break;
    }
}

const char *assumption_text(const struct assumption *a,
                            char buf[ASSUMPTION_TEXT])
{
    if (a->pattern == NULL)
        return a->text;
    const char *c = a->pattern, *mark;
    const size_t most = sizeof a->said / sizeof a->said[0];
    buf[0] = '\0';
    for (size_t i = 0; i < most && (mark = strchr(c, '#')) != NULL; i++) {
        str_append(buf, ASSUMPTION_TEXT, "%.*s", (int)(mark - c), c);
        append_said(buf, &a->said[i]);
        c = mark + 1;
    }
    str_append(buf, ASSUMPTION_TEXT, "%s", c);
    return buf;
}

void setup_take(struct setup *to, const struct setup *from)
{
    memcpy(to, from, offsetof(struct setup, note));
    memcpy(to->note, from->note, from->notes * sizeof from->note[0]);
    if (from->files == 0)
        return;
    memcpy(to->said, from->said, sizeof to->said);
    memcpy(to->file, from->file, from->files * sizeof from->file[0]);
}

const char *setup_value_text(const struct setup *s, enum setup_key key,
                             char *buf, size_t size)
{
    if ((unsigned)key >= KEY_COUNT || !s->set[key])
        return "";
    union setup_value v = s->v[key];
    char number[UNIT_TEXT_MAX];
    switch (fields[key].type) {
    case MEMPLAN_TYPE_COUNT:
    case MEMPLAN_TYPE_BYTES: str_format(buf, size, "%" PRIu64, v.n); return buf;
    case MEMPLAN_TYPE_REAL:
        str_format(buf, size, "%s", unit_format_double(number, v.x));
        return buf;
    case MEMPLAN_TYPE_BOOL: return v.n ? "true" : "false";
    case MEMPLAN_TYPE_CHOICE: return choice_text(key, v.n, buf, size);
    case MEMPLAN_TYPE_LIST: return list_text(s, key, buf, size);
    case MEMPLAN_TYPE_NAME: {
        const struct gpu *gpu = gpu_at((size_t)v.n);
        return gpu ? gpu->name : "";
    }
    }
    return "";
}

const char *setup_said(const struct setup *s, enum setup_key key,
                       char buf[SETUP_SAID_TEXT])
{
    const bool read = key < KEY_COUNT && s->files > 0;
    const char *entry = read ? s->said[key].entry : NULL;
    if (entry == NULL)
        return NULL;
    str_format(buf, SETUP_SAID_TEXT, "%s", s->file[s->said[key].file]);
    if (entry[0] == '\0')
        return buf;
    const size_t n = str_append(buf, SETUP_SAID_TEXT, ": %s",
                                s->said[key].is_flag ? "--" : "");
    str_append(buf, SETUP_SAID_TEXT, "%s", entry);
    for (char *p = buf + n; s->said[key].is_flag && *p != '\0'; p++)
        *p = (char)(*p == '_' ? '-' : *p);
    return buf;
}
