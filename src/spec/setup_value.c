/*
 * Owns the reading of a setup key's value, from text and from JSON, and what is
 * said of one that is none; and setup files, which are such values. Knows one
 * key at a time.
 */
#include "spec/setup.h"

#include "base/unit.h"
#include "json/json.h"

#include <string.h>

#include "base/banned.h"

static bool in_bounds(enum setup_key key, double x)
{
    return x >= setup_field(key)->min && x <= setup_field(key)->max;
}

static uint64_t dtype_of(struct str word)
{
    uint64_t t = 0;
    while (t < DTYPE_COUNT && !str_is(word, dtype_name((enum dtype)t)))
        t++;
    return t;
}

/* ---- what is wrong ---- */

enum { QUOTED_MAX = 40 }; /* bytes of a bad value that a message repeats */

/* For %.*s. */
static int quoted(struct str s)
{
    return (int)(s.n < QUOTED_MAX ? s.n : QUOTED_MAX);
}

/* "one of a, b, c", as far as it fits. */
static void hint_words(memplan_error *e, const char *choices)
{
    diag_hint(e, "%s", "use one of ");
    struct str word = choice_word(choices, 0);
    for (size_t i = 1; word.n > 0; i++) {
        struct str next = choice_word(choices, i);
        str_append(e->hint, sizeof(e->hint), "%.*s%s", (int)word.n, word.p,
                   next.n > 0 ? ", " : "");
        word = next;
    }
}

/* "q_proj", as PEFT and the classes call it, is q. */
static struct str short_name(const char *choices, struct str value)
{
    static const char tail[] = "_proj";
    const size_t n = sizeof(tail) - 1;
    if (value.n <= n || memcmp(value.p + value.n - n, tail, n) != 0)
        return value;
    const struct str name = { value.p, value.n - n };
    for (size_t i = 0; choice_word(choices, i).n > 0; i++)
        if (str_eq(choice_word(choices, i), name))
            return name;
    return value;
}

/* A framework presets implementation and engine; these are one of the two. */
static const char *half_framework(struct str given)
{
    static const struct {
        const char *name, *hint;
    } halves[] = {
        { "fsdp2", "use --framework fsdp --engine fsdp2" },
        { "ddp", "use --framework hf, whose engine is ddp" },
        { "megatron-fsdp", "use --framework megatron --zero 3" },
        { "litgpt", "use --implementation litgpt" },
        { "hf-liger", "use --implementation hf-liger" },
        { "liger", "use --implementation hf-liger" },
        { "megatron-local",
          "use --framework megatron --implementation megatron-local" },
        { "paper", "use --framework megatron --implementation paper" },
    };
    for (size_t i = 0; i < sizeof halves / sizeof halves[0]; i++)
        if (str_eq(given, str_of(halves[i].name)))
            return halves[i].hint;
    return NULL;
}

static memplan_error *bad_choice(struct diag *d, enum setup_key key,
                                 struct str given)
{
    const char *choices = setup_field(key)->choices;
    const struct str value = short_name(choices, given);
    const char *why, *hint;
    if (key == KEY_OPTIMIZER && optimizer_absent(given, &why, &hint)) {
        memplan_error *e = setup_error(d, MEMPLAN_E_UNSUPPORTED, key,
                                       "optimizer '%.*s' is not modelled: %s",
                                       quoted(given), given.p, why);
        diag_hint(e, "%s", hint);
        return e;
    }
    struct str best = { "", 0 };
    unsigned least = UINT32_MAX;
    struct str word = choice_word(choices, 0);
    for (size_t i = 1; word.n > 0; i++) {
        unsigned distance = str_distance(value, word);
        if (distance < least) {
            least = distance;
            best = word;
        }
        word = choice_word(choices, i);
    }

    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNKNOWN, key, "unknown %s '%.*s'",
                    setup_field(key)->key, quoted(given), given.p);
    const char *instead = key == KEY_FRAMEWORK ? half_framework(given) : NULL;
    if (instead != NULL)
        diag_hint(e, "%s", instead);
    else if (str_near(value, best, least))
        diag_hint(e, "did you mean '%.*s'?", (int)best.n, best.p);
    else
        hint_words(e, choices);
    return e;
}

static memplan_error *bad_gpu(struct diag *d, struct str value)
{
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNKNOWN, KEY_GPU, "unknown GPU '%.*s'",
                    quoted(value), value.p);
    const struct gpu *near = gpu_nearest(value.p, value.n);
    if (near)
        diag_hint(e, "did you mean '%s'? 'memplan gpus' lists them all",
                  near->name);
    else
        diag_hint(e, "'memplan gpus' lists them all; gpu_memory and "
                     "peak_flops describe one that is not there");
    return e;
}

static memplan_error *bad_key(struct diag *d, struct str key)
{
    int best = 0;
    unsigned least = UINT32_MAX;
    for (int k = 0; k < KEY_COUNT; k++) {
        unsigned distance = str_distance(key, str_of(setup_field(k)->key));
        if (distance < least) {
            least = distance;
            best = k;
        }
    }
    memplan_error *e = setup_error(d, MEMPLAN_E_UNKNOWN, KEY_COUNT,
                                   "unknown key '%.*s'", quoted(key), key.p);
    str_format(e->key, sizeof(e->key), "%.*s", quoted(key), key.p);
    if (str_near(key, str_of(setup_field(best)->key), least))
        diag_hint(e, "did you mean '%s'?", setup_field(best)->key);
    else
        diag_hint(e, "'memplan help setup' lists the keys; names that begin "
                     "with 'x-' are free for notes");
    return e;
}

/* What a type wants, and an example. */
static const struct wanted {
    const char *what, *example;
} wanted[] = {
    [MEMPLAN_TYPE_COUNT] = { "a whole number", "such as 64, 8k, 13B or 1.4T" },
    [MEMPLAN_TYPE_BYTES] = { "a size", "such as 80GiB, 24GB or 25MiB" },
    [MEMPLAN_TYPE_REAL] = { "a number", "such as 0.45, 45% or 1e24" },
    [MEMPLAN_TYPE_BOOL] = { "true or false", "write true or false" },
    [MEMPLAN_TYPE_CHOICE] = { "a word", "" },
    [MEMPLAN_TYPE_LIST] = { "a list", "separate entries by commas: 7,8,8,7" },
    [MEMPLAN_TYPE_NAME] = { "a name", "" },
};

/* Speeds are a second's, in plain numbers: no unit is read behind them. */
static const char *speed_example(enum setup_key key)
{
    if (key == KEY_PEAK_FLOPS)
        return "this is FLOP a second: such as 312e12";
    if (key == KEY_INTRA_NODE_BANDWIDTH || key == KEY_INTER_NODE_BANDWIDTH
        || key == KEY_HOST_BANDWIDTH || key == KEY_NVME_BANDWIDTH)
        return "these are bytes a second: such as 300e9";
    return NULL;
}

static memplan_error *bad_form(struct diag *d, enum setup_key key,
                               struct str value)
{
    const struct wanted *w = &wanted[setup_field(key)->type];
    memplan_error *e =
        setup_error(d, MEMPLAN_E_ARG, key, "'%s' takes %s, not '%.*s'",
                    setup_field(key)->key, w->what, quoted(value), value.p);
    if (setup_field(key)->choices[0] != '\0')
        hint_words(e, setup_field(key)->choices);
    else if (w == &wanted[MEMPLAN_TYPE_COUNT] && setup_field(key)->max < 100)
        diag_hint(e, "use %.0f to %.0f", setup_field(key)->min,
                  setup_field(key)->max);
    else
        diag_hint(e, "%s",
                  key == KEY_IMAGE                 ? "such as 3x32x32"
                  : key == KEY_RANK_PATTERN        ? "such as q=16,down=64"
                  : key == KEY_LAYERS_TO_TRANSFORM ? "such as 0,1,16-31"
                  : speed_example(key) != NULL     ? speed_example(key)
                                                   : w->example);
    return e;
}

/* A size without its unit: 24 for 24GiB, or, as bucket_cap_mb has it, 25 for
 * 25MiB. What is too small as bytes only. */
static const char *lacking_unit(enum setup_key key, double x)
{
    const memplan_field *f = setup_field(key);
    const bool mib = key == KEY_DDP_BUCKET;
    const double unit = mib ? 1 << 20 : 1 << 30;
    if (f->type != MEMPLAN_TYPE_BYTES || !(x > 0) || x >= f->min
        || !in_bounds(key, x * unit))
        return NULL;
    return mib ? "MiB" : "GiB";
}

/* A share without its sign: 40 for 40%. */
static bool lacks_percent(enum setup_key key, double x)
{
    const memplan_field *f = setup_field(key);
    return f->type == MEMPLAN_TYPE_REAL && f->max <= 1 && x > 1
           && in_bounds(key, x / 100);
}

static memplan_error *bad_range(struct diag *d, enum setup_key key,
                                struct str value)
{
    const memplan_field *f = setup_field(key);
    char low[UNIT_TEXT_MAX], high[UNIT_TEXT_MAX];
    double x = 0;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_RANGE, key, "'%s' is %.*s, out of range",
                    f->key, quoted(value), value.p);
    diag_hint(e, "use %s to %s", unit_format_double(low, f->min),
              unit_format_double(high, f->max));
    if (memchr(value.p, '%', value.n) != NULL
        || unit_parse_real(value, &x) != UNIT_OK)
        return e;
    if (lacks_percent(key, x))
        str_append(e->hint, sizeof(e->hint), ", or %.*s%%", quoted(value),
                   value.p);
    if (speed_example(key) != NULL && x > 0 && x < f->min)
        diag_hint(e, "%s", speed_example(key));
    const char *unit = lacking_unit(key, x);
    if (unit != NULL)
        diag_hint(e, "these are bytes: write %.*s%s", quoted(value), value.p,
                  unit);
    return e;
}

/* ---- one value ---- */

/* Readers below store on success and return NULL, else the error. */

static memplan_error *read_whole(uint64_t *out, enum setup_key key,
                                 struct str value, struct diag *d)
{
    uint64_t n = 0;
    enum unit_result got = setup_field(key)->type == MEMPLAN_TYPE_BYTES
                               ? unit_parse_bytes(value, &n)
                               : unit_parse_count(value, &n);
    if (got == UNIT_BAD)
        return bad_form(d, key, value);
    if (got == UNIT_RANGE || !in_bounds(key, (double)n))
        return bad_range(d, key, value);
    *out = n;
    return NULL;
}

static memplan_error *read_real(double *out, enum setup_key key,
                                struct str value, struct diag *d)
{
    double x = 0;
    enum unit_result got = unit_parse_real(value, &x);
    if (got == UNIT_BAD)
        return bad_form(d, key, value);
    if (got == UNIT_RANGE || !in_bounds(key, x))
        return bad_range(d, key, value);
    *out = x;
    return NULL;
}

static memplan_error *read_bool(uint64_t *out, enum setup_key key,
                                struct str value, struct diag *d)
{
    static const char words[] = "false true no yes off on 0 1";
    for (uint64_t i = 0; i < 8; i++) {
        if (str_same_name(value, choice_word(words, i))) {
            *out = i % 2;
            return NULL;
        }
    }
    return bad_form(d, key, value);
}

static memplan_error *read_choice(uint64_t *out, enum setup_key key,
                                  struct str value, struct diag *d)
{
    if (value.n == 0)
        return bad_form(d, key, value);
    struct str word = choice_word(setup_field(key)->choices, 0);
    for (size_t i = 0; word.n > 0;) {
        if (str_same_name(value, word)) {
            *out = setup_is_dtype(key) ? dtype_of(word) : i;
            return NULL;
        }
        word = choice_word(setup_field(key)->choices, ++i);
    }
    return bad_choice(d, key, value);
}

static memplan_error *read_gpu(uint64_t *out, struct str value, struct diag *d)
{
    const struct gpu *gpu = gpu_find(value.p, value.n);
    if (!gpu)
        return bad_gpu(d, value);
    *out = (uint64_t)(gpu - gpu_at(0));
    return NULL;
}

/* A list as it grows, apart from the setup until all of it is good. */
struct list {
    uint64_t bits;
    uint32_t number[SETUP_LIST_MAX];
    size_t count;
    uint64_t layers[LAYER_WORDS];
    uint32_t rank[LORA_TARGET_COUNT];
};

static size_t list_most(enum setup_key key)
{
    return key == KEY_LENGTHS ? (size_t)LENGTHS_MAX : (size_t)SETUP_LIST_MAX;
}

/* A number, or the first and the last of a range: "3", "16-31". */
static memplan_error *add_layers(struct list *list, enum setup_key key,
                                 struct str entry, struct diag *d)
{
    const bool range = memchr(entry.p, '-', entry.n) != NULL;
    uint64_t first = 0, last = 0;
    struct str rest = entry;
    const struct str low = range ? str_trim(str_cut(entry, '-', &rest)) : entry;
    memplan_error *e = read_whole(&first, key, low, d);
    if (e)
        return e;
    last = first;
    e = range ? read_whole(&last, key, str_trim(rest), d) : NULL;
    if (e)
        return e;
    if (last < first)
        return bad_form(d, key, entry);
    for (uint64_t i = first; i <= last; i++) {
        list->count += (list->layers[i / 64] >> i % 64 & 1) == 0;
        list->layers[i / 64] |= UINT64_C(1) << i % 64;
    }
    return NULL;
}

/* "down=64": a word of lora_targets, and a number. */
static memplan_error *add_rank(struct list *list, enum setup_key key,
                               struct str entry, struct diag *d)
{
    const char *words = setup_field(KEY_LORA_TARGETS)->choices;
    uint64_t n = 0;
    struct str rest;
    if (memchr(entry.p, '=', entry.n) == NULL)
        return bad_form(d, key, entry);
    const struct str name = str_trim(str_cut(entry, '=', &rest));
    size_t i = 0;
    while (i < LORA_ALL_LINEAR && !str_same_name(name, choice_word(words, i)))
        i++;
    if (i == LORA_ALL_LINEAR)
        return bad_form(d, key, entry);
    memplan_error *e = read_whole(&n, key, str_trim(rest), d);
    if (e)
        return e;
    list->count += list->rank[i] == 0;
    list->rank[i] = (uint32_t)n;
    return NULL;
}

static memplan_error *list_add(struct list *list, enum setup_key key,
                               struct str entry, struct diag *d)
{
    uint64_t n = 0;
    memplan_error *e = NULL;
    if (key == KEY_LAYERS_TO_TRANSFORM)
        return add_layers(list, key, entry, d);
    if (key == KEY_RANK_PATTERN)
        return add_rank(list, key, entry, d);
    if (setup_field(key)->choices[0] != '\0') {
        e = read_choice(&n, key, entry, d);
        if (!e)
            list->bits |= UINT64_C(1) << n;
        return e;
    }
    e = read_whole(&n, key, entry, d);
    if (e)
        return e;
    if (list->count == list_most(key)) {
        e = setup_error(d, MEMPLAN_E_RANGE, key, "'%s' has too many entries",
                        setup_field(key)->key);
        diag_hint(e, "use %zu at most", list_most(key));
        return e;
    }
    list->number[list->count++] = (uint32_t)n;
    return NULL;
}

static void list_store(struct setup *s, enum setup_key key,
                       const struct list *list)
{
    if (key == KEY_PIPELINE_LAYERS) {
        for (size_t i = 0; i < list->count; i++)
            s->pipeline_layers[i] = (uint16_t)list->number[i];
        s->pipeline_count = list->count;
        s->v[key].n = list->count;
    } else if (key == KEY_IMAGE) {
        for (size_t i = 0; i < IMAGE_RANK; i++)
            s->image[i] = (uint16_t)list->number[i];
        s->v[key].n = list->count;
    } else if (key == KEY_LENGTHS) {
        memcpy(s->lengths, list->number, list->count * sizeof s->lengths[0]);
        s->lengths_count = list->count;
        s->v[key].n = list->count;
    } else if (key == KEY_LAYERS_TO_TRANSFORM) {
        memcpy(s->layers, list->layers, sizeof s->layers);
        s->v[key].n = list->count;
    } else if (key == KEY_RANK_PATTERN) {
        memcpy(s->rank, list->rank, sizeof s->rank);
        s->v[key].n = list->count;
    } else {
        s->v[key].n = list->bits;
    }
    s->set[key] = true;
}

/* An image has three sizes, whatever stands between them. */
static memplan_error *bad_image(const struct list *list, enum setup_key key,
                                struct diag *d)
{
    if (key != KEY_IMAGE || list->count == IMAGE_RANK)
        return NULL;
    memplan_error *e = setup_error(d, MEMPLAN_E_ARG, key,
                                   "'image' takes channels, height and width");
    diag_hint(e, "such as 3x32x32");
    return e;
}

static memplan_error *read_list(struct setup *s, enum setup_key key,
                                struct str value, struct diag *d)
{
    struct list list = { .count = 0 };
    struct str rest = value;
    const bool crosses =
        key == KEY_IMAGE && memchr(value.p, 'x', value.n) != NULL;
    const char between = crosses ? 'x' : ',';
    do {
        bool more = memchr(rest.p, between, rest.n) != NULL;
        struct str entry = str_trim(str_cut(rest, between, &rest));
        memplan_error *e = list_add(&list, key, entry, d);
        if (e)
            return e;
        if (!more)
            break;
    } while (true);
    memplan_error *e = bad_image(&list, key, d);
    if (!e)
        list_store(s, key, &list);
    return e;
}

static memplan_error *read_value(struct setup *s, enum setup_key key,
                                 struct str value, struct diag *d)
{
    value = str_trim(value);
    union setup_value v = { 0 };
    memplan_error *e = NULL;
    s->said[key].entry = NULL;
    switch (setup_field(key)->type) {
    case MEMPLAN_TYPE_COUNT:
    case MEMPLAN_TYPE_BYTES: e = read_whole(&v.n, key, value, d); break;
    case MEMPLAN_TYPE_REAL: e = read_real(&v.x, key, value, d); break;
    case MEMPLAN_TYPE_BOOL: e = read_bool(&v.n, key, value, d); break;
    case MEMPLAN_TYPE_CHOICE: e = read_choice(&v.n, key, value, d); break;
    case MEMPLAN_TYPE_LIST:
        return value.n > 0 ? read_list(s, key, value, d)
                           : bad_form(d, key, value);
    case MEMPLAN_TYPE_NAME: e = read_gpu(&v.n, value, d); break;
    }
    if (e)
        return e;
    s->v[key] = v;
    s->set[key] = true;
    return NULL;
}

memplan_status setup_set(struct setup *s, struct str key, struct str value,
                         struct diag *d)
{
    enum setup_key k = setup_find_key(key);
    memplan_error *e =
        k == KEY_COUNT ? bad_key(d, key) : read_value(s, k, value, d);
    return e ? e->status : MEMPLAN_OK;
}

/* ---- setup files ---- */

static bool is_free_key(struct str key)
{
    return str_is(key, "source") || str_is(key, "notes")
           || (key.n >= 2 && key.p[0] == 'x' && key.p[1] == '-');
}

/* A number as it stands in the text: 64-bit integers keep all their digits.
 * TOML's reader has taken it apart. */
static struct str number_text(const struct json *value, const char *text,
                              size_t len)
{
    static const char bytes[] = "+-.0123456789eEInfity"; /* Infinity too */
    if (value->text.n > 0)
        return value->text;
    struct str s = { text + value->offset, 0 };
    while (value->offset + s.n < len
           && memchr(bytes, s.p[s.n], sizeof(bytes) - 1) != NULL)
        s.n++;
    return s;
}

/* The value's text; false when its kind cannot be one of this key's. */
bool setup_scalar_text(struct str *out, const struct json *value,
                       memplan_type type, const char *text, size_t len)
{
    switch (value->kind) {
    case JSON_STRING: *out = value->text; return true;
    case JSON_NUMBER:
        *out = number_text(value, text, len);
        return type != MEMPLAN_TYPE_CHOICE && type != MEMPLAN_TYPE_NAME;
    case JSON_BOOL:
        *out = value->truth ? STR("true") : STR("false");
        return type == MEMPLAN_TYPE_BOOL;
    case JSON_NULL:
    case JSON_ARRAY:
    case JSON_OBJECT: return false;
    }
    return false;
}

static memplan_error *bad_kind(struct diag *d, enum setup_key key,
                               const struct json *value)
{
    const struct wanted *w = &wanted[setup_field(key)->type];
    memplan_error *e = setup_error(
        d, MEMPLAN_E_ARG, key, "'%s' takes %s, not %s", setup_field(key)->key,
        w->what, json_kind_name(value->kind));
    if (setup_field(key)->choices[0] != '\0')
        hint_words(e, setup_field(key)->choices);
    else
        diag_hint(e, "%s", w->example);
    return e;
}

/* An array for a list. Stores all or nothing; *at is the entry at fault. */
static memplan_error *member_array(struct setup *s, enum setup_key key,
                                   const struct json *array,
                                   const struct json **at,
                                   struct setup_source src)
{
    struct list list = { .count = 0 };
    for (const struct json *v = array->child; v; v = v->next) {
        struct str entry;
        *at = v;
        if (!setup_scalar_text(&entry, v, MEMPLAN_TYPE_LIST, src.text, src.len))
            return bad_kind(src.d, key, v);
        memplan_error *e = list_add(&list, key, entry, src.d);
        if (e)
            return e;
    }
    if (list.count == 0 && list.bits == 0) {
        *at = array;
        return bad_form(src.d, key, STR("[]"));
    }
    *at = array;
    memplan_error *e = bad_image(&list, key, src.d);
    if (!e)
        list_store(s, key, &list);
    return e;
}

memplan_error *setup_set_json(struct setup *s, enum setup_key key,
                              const struct json *value, struct setup_source src)
{
    const struct json *at = value;
    memplan_error *e = NULL;
    struct str text;
    if (value->kind == JSON_NULL)
        s->set[key] = false;
    else if (value->kind == JSON_ARRAY
             && setup_field(key)->type == MEMPLAN_TYPE_LIST)
        e = member_array(s, key, value, &at, src);
    else
        e = setup_scalar_text(&text, value, setup_field(key)->type, src.text,
                              src.len)
                ? read_value(s, key, text, src.d)
                : bad_kind(src.d, key, value);
    if (e)
        json_locate(e, src.text, src.len, at);
    return e;
}

memplan_error *setup_set_text(struct setup *s, enum setup_key key,
                              struct str value, const struct json *where,
                              struct setup_source from)
{
    memplan_error *e = read_value(s, key, value, from.d);
    if (e)
        json_locate(e, from.text, from.len, where);
    return e;
}

static void read_member(struct setup *s, const struct json *value,
                        struct setup_source src)
{
    if (is_free_key(value->key))
        return;
    enum setup_key key = setup_find_key(value->key);
    if (key == KEY_COUNT || !str_is(value->key, setup_field(key)->key))
        json_locate(bad_key(src.d, value->key), src.text, src.len, value);
    else
        setup_set_json(s, key, value, src);
}

memplan_status setup_parse(struct setup *s, const struct json *root,
                           const char *text, size_t len, struct diag *d)
{
    if (root->kind != JSON_OBJECT) {
        memplan_error *e =
            diag_add(d, MEMPLAN_E_SCHEMA, "a setup is an object, not %s",
                     json_kind_name(root->kind));
        diag_hint(e, "write {\"gpus\": 64, \"zero\": 3}");
        json_locate(e, text, len, root);
        return d->status;
    }
    struct setup_source src = { text, len, d };
    for (const struct json *v = root->child; v; v = v->next)
        read_member(s, v, src);
    return d->status;
}
