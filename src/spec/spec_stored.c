/*
 * How the weights of a file's checkpoint are packed: its quantization_config.
 * Owns the words of transformers' quantizers; what a run makes of them is
 * resolve_stored.c's. [transformers utils/quantization_config.py,
 * quantizers/auto.py]
 */
#include "spec/import.h"

#include <string.h>

#include "data/constants.h"

#include "base/banned.h"

static bool is_true(const struct json *object, const char *key)
{
    const struct json *at = json_member(object, key);
    return at != NULL && at->kind == JSON_BOOL && at->truth;
}

static struct str text_of(const struct json *object, const char *key,
                          const char *usual)
{
    const struct json *at = json_member(object, key);
    return at != NULL && at->kind == JSON_STRING ? at->text : str_of(usual);
}

static uint64_t count_of(const struct json *object, const char *key,
                         uint64_t usual)
{
    enum { MOST = 1 << 20 };
    const struct json *at = json_member(object, key);
    return at != NULL && at->kind == JSON_NUMBER && at->number >= 1
                   && at->number <= MOST
               ? (uint64_t)at->number
               : usual;
}

/* Unknown methods and widths, which another type is, are a ValueError of
 * AutoQuantizationConfig and GPTQConfig (post_init). */
static void check_kind(struct import *im, const struct json *object,
                       const char *key, enum json_kind kind)
{
    const struct json *at = json_member(object, key);
    if (at == NULL || at->kind == JSON_NULL || at->kind == kind)
        return;
    import_error(im, at, MEMPLAN_E_SCHEMA, "'%s' must be %s, not %s", key,
                 json_kind_name(kind), json_kind_name(at->kind));
}

/* Modules that stay as they are; the head does wherever nothing is said. */
static uint64_t left_out(const struct json *object)
{
    static const char *const keys[] = { "llm_int8_skip_modules",
                                        "modules_to_not_convert" };
    uint64_t n = 0;
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        const struct json *list = json_member(object, keys[i]);
        if (list == NULL || list->kind != JSON_ARRAY)
            continue;
        for (const struct json *one = list->child; one; one = one->next)
            n += one->kind == JSON_STRING && !str_is(one->text, "lm_head");
    }
    return n;
}

/* As AutoQuantizationConfig does: the flags decide where they are set. Both are
 * a ValueError of BitsAndBytesConfig. */
static void bitsandbytes(struct import *im, struct stored *s,
                         const struct json *object, bool four)
{
    const struct json *type = json_member(object, "bnb_4bit_quant_type");
    const struct str word = text_of(object, "bnb_4bit_quant_type", "fp4");
    const bool nf4 = str_is(word, "nf4");
    if (four && is_true(object, "load_in_8bit"))
        import_error(im, json_member(object, "load_in_8bit"), MEMPLAN_E_SCHEMA,
                     "'load_in_8bit' beside 'load_in_4bit': weights have one "
                     "of them");
    else if (four && !nf4 && !str_is(word, "fp4"))
        import_error(im, type, MEMPLAN_E_SCHEMA,
                     "'bnb_4bit_quant_type' must be 'nf4' or 'fp4', not '%.*s'",
                     (int)word.n, word.p);
    str_format(s->method, sizeof s->method, "bitsandbytes");
    s->as = !four ? STORED_INT8 : nf4 ? STORED_NF4 : STORED_FP4;
    s->twice = four && is_true(object, "bnb_4bit_use_double_quant");
}

void import_stored(struct import *im, struct spec *out)
{
    const struct json *at = json_member(im->object, "quantization_config");
    if (at == NULL)
        at = json_member(im->root, "quantization_config");
    out->stored = (struct stored){ .as = STORED_PLAIN };
    if (at == NULL || at->kind == JSON_NULL)
        return;
    if (at->kind != JSON_OBJECT) {
        import_error(im, at, MEMPLAN_E_SCHEMA,
                     "'quantization_config' must be an object, not %s",
                     json_kind_name(at->kind));
        return;
    }
    struct stored *s = &out->stored;
    const struct str method = text_of(at, "quant_method", "");
    const bool four = is_true(at, "load_in_4bit");
    check_kind(im, at, "quant_method", JSON_STRING);
    check_kind(im, at, "bits", JSON_NUMBER);
    s->as = STORED_OTHER;
    s->bits = count_of(at, "bits", 0);
    /* -1, one group a row, is none of 128 */
    s->group = json_member(at, "group_size") == NULL
                   ? GPTQ_GROUP
                   : count_of(at, "group_size", 0);
    s->left_out = left_out(at);
    if (four || is_true(at, "load_in_8bit")) {
        bitsandbytes(im, s, at, four);
        return;
    }
    str_format(s->method, sizeof s->method, "%.*s", (int)method.n, method.p);
    if ((str_is(method, "gptq") || str_is(method, "awq")) && s->bits == 4)
        s->as = STORED_INT4;
}
