/*
 * How a model's text is understood: the notes, the specification that says all
 * of it (which is the same model again), and texts read as another type.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "memplan/memplan.h"

#include "data/models.h"
#include "plan/report_data.h"
#include "json/json.h"

enum { TEXT_MAX = 1 << 20 };

struct text {
    char p[TEXT_MAX];
    size_t n;
};

static bool take(void *ctx, const char *piece, size_t n)
{
    struct text *t = ctx;
    assert_true(t->n + n < TEXT_MAX);
    memcpy(t->p + t->n, piece, n);
    t->n += n;
    t->p[t->n] = '\0';
    return true;
}

static struct text shown;

static const char *import_of(const memplan_model *m, memplan_format format)
{
    const memplan_style style = { .format = format };
    shown.n = 0;
    assert_int_equal(memplan_model_write_import(m, &style, take, &shown, NULL),
                     MEMPLAN_OK);
    return shown.p;
}

static memplan_model *parse(const char *json, size_t n, const char *as)
{
    memplan_error slot[4];
    memplan_errors errs = { slot, 4, 0 };
    memplan_model *m = NULL;
    if (memplan_model_parse_as(&m, json, n, "it", as, NULL, &errs)
        != MEMPLAN_OK)
        fail_msg("%s: %s (%s)\n%s", slot[0].pointer, slot[0].message,
                 slot[0].hint, json);
    return m;
}

/* Everything of a specification but its name, source and notes. */
static void check_same(const char *name, const memplan_model *x,
                       const memplan_model *y)
{
    if (memplan_model_parameters(x) != memplan_model_parameters(y))
        fail_msg("%s: %llu parameters, not %llu", name,
                 (unsigned long long)memplan_model_parameters(y),
                 (unsigned long long)memplan_model_parameters(x));
    for (uint64_t i = 0; i < x->spec.layers; i++) {
        assert_int_equal(pattern_has(&x->spec.slides, i),
                         pattern_has(&y->spec.slides, i));
        assert_int_equal(pattern_has(&x->spec.rotates, i),
                         pattern_has(&y->spec.rotates, i));
        assert_int_equal(pattern_has(&x->spec.sparse, i),
                         pattern_has(&y->spec.sparse, i));
    }
    assert_int_equal(x->spec.sliding_window, y->spec.sliding_window);
    assert_int_equal(x->spec.head, y->spec.head);
    assert_int_equal(x->spec.labels, y->spec.labels);
    assert_int_equal(x->spec.problem, y->spec.problem);
    assert_true(!(x->spec.head_dropout < y->spec.head_dropout)
                && !(x->spec.head_dropout > y->spec.head_dropout));
    assert_int_equal(x->spec.act, y->spec.act);
    assert_int_equal(x->spec.rotary_dim, y->spec.rotary_dim);
    assert_true(!(x->spec.hidden_dropout < y->spec.hidden_dropout)
                && !(x->spec.hidden_dropout > y->spec.hidden_dropout));
}

static void check_whole(const memplan_model *x, const memplan_model *y)
{
    assert_int_equal(x->spec.joint, y->spec.joint);
    assert_int_equal(x->spec.joint_width, y->spec.joint_width);
    assert_int_equal(x->spec.joint_layers, y->spec.joint_layers);
    assert_int_equal(x->spec.joint_act, y->spec.joint_act);
    assert_int_equal(x->spec.joint_bias, y->spec.joint_bias);
    assert_int_equal(x->spec.joint_crops, y->spec.joint_crops);
    assert_int_equal(x->spec.unused_layers, y->spec.unused_layers);
    assert_int_equal(x->spec.image_tokens, y->spec.image_tokens);
}

/* The specification in the JSON of an import is the same model. */
static void check_round_trip(const char *name, const memplan_model *m)
{
    struct arena a;
    struct diag d;
    arena_init(&a, NULL);
    diag_init(&d, NULL);
    const char *json = import_of(m, MEMPLAN_FORMAT_JSON);
    const struct json *root = json_parse(&a, json, shown.n, &d);
    assert_non_null(root);
    const struct json *spec = json_member(root, "spec");
    assert_non_null(spec);
    const size_t n = json_value_length(json, shown.n, spec->offset);
    memplan_model *again = parse(json + spec->offset, n, NULL);
    if (m->spec.part == PART_ALL)
        assert_int_equal(memplan_model_select(again, "all", NULL), MEMPLAN_OK);
    check_same(name, m, again);
    if (m->spec.part == PART_ALL)
        check_whole(m, again);
    memplan_model_free(again);
    arena_release(&a);
}

static void test_catalogue(void **state)
{
    (void)state;
    const char *name;
    for (size_t i = 0; (name = memplan_builtin_name(i)) != NULL; i++) {
        memplan_model *m = NULL;
        assert_int_equal(memplan_model_builtin(&m, name, NULL, NULL),
                         MEMPLAN_OK);
        if (m->spec.part != PART_ALL)
            check_round_trip(name, m);
        const struct spec_parts *parts = m->spec.parts;
        if (parts != NULL && parts->part[PART_VISION] != NULL) {
            assert_int_equal(memplan_model_select(m, "vision", NULL),
                             MEMPLAN_OK);
            check_round_trip(name, m);
        }
        if (parts != NULL && parts->part[PART_ALL] != NULL) {
            assert_int_equal(memplan_model_select(m, "all", NULL), MEMPLAN_OK);
            check_round_trip(name, m);
        }
        memplan_model_free(m);
    }
}

/* A whole that differs from its class in all that joins its parts. */
static void test_whole(void **state)
{
    static const char json[] =
        "{\"model_type\": \"llava\", \"projector_hidden_act\": \"relu\","
        "\"vision_feature_layer\": 3, \"multimodal_projector_bias\": false,"
        "\"vision_feature_select_strategy\": \"full\", \"ignore_index\": -100,"
        "\"text_config\": {\"model_type\": \"llama\", \"vocab_size\": 99},"
        "\"vision_config\": {\"model_type\": \"siglip_vision_model\"}}";
    (void)state;
    memplan_model *m = parse(json, strlen(json), NULL);
    assert_int_equal(memplan_model_select(m, "all", NULL), MEMPLAN_OK);
    assert_int_equal(m->spec.unused_layers, 9);
    assert_int_equal(m->spec.joint_act, ACT_RELU);
    check_round_trip("llava", m);
    const char *text = import_of(m, MEMPLAN_FORMAT_TABLE);
    assert_non_null(strstr(text, "the whole: read from the file"));
    assert_non_null(strstr(text, "text part (llama): read from the file"));
    assert_non_null(strstr(text, "ignore_index"));
    text = import_of(m, MEMPLAN_FORMAT_CSV);
    assert_non_null(strstr(text, "read,text_config.vocab_size,99,99,"));
    memplan_model_free(m);
}

/* ---- what the notes say ---- */

#define MISTRAL                                                                \
    "{\"model_type\": \"mistral\", \"hidden_size\": 64, "                      \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 16, "                  \
    "\"intermediate_size\": 128, \"vocab_size\": 100, "                        \
    "\"sliding_window\": null, \"rope_theta\": 1e4, "                          \
    "\"architectures\": [\n  \"MistralForCausalLM\"]}"

static const struct spec_note *note(const memplan_model *m, const char *key)
{
    for (size_t i = 0; i < m->spec.notes; i++) {
        if (strcmp(m->spec.note[i].key, key) == 0)
            return &m->spec.note[i];
    }
    fail_msg("no note on %s", key);
    return NULL;
}

static void check_note(const memplan_model *m, const char *key,
                       const struct spec_note *want)
{
    const struct spec_note *got = note(m, key);
    assert_int_equal(got->origin, want->origin);
    assert_string_equal(got->value, want->value);
    assert_string_equal(got->given, want->given);
    assert_string_equal(got->why, want->why);
}

static void test_notes(void **state)
{
    (void)state;
    memplan_model *m = parse(MISTRAL, strlen(MISTRAL), NULL);
    check_note(m, "hidden_size",
               &(struct spec_note){ NOTE_READ, "", "64", "64", "", true });
    check_note(m, "num_key_value_heads",
               &(struct spec_note){ NOTE_DEFAULT, "", "8", "",
                                    "default of mistral", true });
    check_note(m, "head_dim",
               &(struct spec_note){ NOTE_DEFAULT, "", "4", "",
                                    "hidden_size / num_attention_heads",
                                    true });
    check_note(m, "sliding_window",
               &(struct spec_note){ NOTE_DEFAULT, "", "0", "null",
                                    "default of mistral (the file says null)",
                                    true });
    check_note(m, "rope_theta",
               &(struct spec_note){ NOTE_IGNORED, "", "", "1e4", "", true });
    check_note(m, "architectures",
               &(struct spec_note){ NOTE_LIST, "", "",
                                    "[\"MistralForCausalLM\"]", "", true });
    assert_non_null(strstr(import_of(m, MEMPLAN_FORMAT_TABLE),
                           "ignored: nothing about memory"));
    assert_non_null(strstr(import_of(m, MEMPLAN_FORMAT_CSV),
                           "defaults,num_key_value_heads,8,"));
    assert_non_null(
        strstr(import_of(m, MEMPLAN_FORMAT_MARKDOWN), "| hidden_size"));
    memplan_model_free(m);
}

/* A decoder's classes: what was read of a file is told so, and is said again. */
static void test_classes(void **state)
{
#define CLASSES(class, more)                                                   \
    "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": " \
    "2, \"num_attention_heads\": 4, \"vocab_size\": 100, "                     \
    "\"intermediate_size\": 8, \"architectures\": [\"LlamaFor" class           \
        "Classification\"], " more "}"
    static const char *const texts[] = {
        CLASSES("Sequence", "\"num_labels\": 7, \"problem_type\": "
                            "\"multi_label_classification\""),
        CLASSES("Sequence", "\"id2label\": {\"0\": \"a\"}"),
        CLASSES("Token", "\"num_labels\": 5, \"classifier_dropout\": 0.25"),
    };
#undef CLASSES
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        memplan_model *m = parse(texts[i], strlen(texts[i]), NULL);
        check_round_trip(texts[i], m);
        memplan_model_free(m);
    }
    memplan_model *m = parse(texts[2], strlen(texts[2]), NULL);
    check_note(
        m, "num_labels",
        &(struct spec_note){ NOTE_READ, "num_labels", "5", "5", "", true });
    check_note(m, "classifier_dropout",
               &(struct spec_note){ NOTE_READ, "classifier_dropout", "0.25",
                                    "0.25", "", true });
    memplan_model_free(m);
}

/* What the class decides, and what it makes of a value. */
static void test_class(void **state)
{
    (void)state;
    memplan_model *m = NULL;
    assert_int_equal(memplan_model_builtin(&m, "qwen-7b", NULL, NULL),
                     MEMPLAN_OK);
    const struct spec_note *n = note(m, "intermediate_size");
    assert_string_equal(n->value, "11008");
    assert_string_equal(n->given, "22016");
    assert_non_null(
        strstr(import_of(m, MEMPLAN_FORMAT_TABLE), "the file says 22016"));
    n = note(m, "attention_bias");
    assert_int_equal(n->origin, NOTE_CLASS);
    assert_string_equal(n->value, "true");
    memplan_model_free(m);
}

/* ---- as another type ---- */

#define CAT                                                                    \
    "{\"model_type\": \"long_cat\", \"hidden_size\": 64, "                     \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, "                   \
    "\"intermediate_size\": 128, \"vocab_size\": 100}"

static void test_as(void **state)
{
    (void)state;
    memplan_error slot[4];
    memplan_errors errs = { slot, 4, 0 };
    memplan_model *m = parse(CAT, strlen(CAT), "llama");
    memplan_report *report = NULL;
    memplan_setup *setup = NULL;
    assert_string_equal(m->spec.model_type, "llama");
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    assert_int_equal(memplan_estimate(&report, m, setup, NULL, NULL),
                     MEMPLAN_OK);
    const memplan_style style = { .format = MEMPLAN_FORMAT_TABLE };
    shown.n = 0;
    assert_int_equal(memplan_report_write(report, MEMPLAN_VIEW_SUMMARY, &style,
                                          take, &shown, NULL),
                     MEMPLAN_OK);
    assert_non_null(strstr(shown.p, "read as a 'llama' model"));
    memplan_report_free(report);
    memplan_setup_free(setup);
    memplan_model_free(m);

    assert_int_equal(
        memplan_model_parse_as(&m, CAT, strlen(CAT), NULL, "lama", NULL, &errs),
        MEMPLAN_E_UNKNOWN);
    assert_null(m);
    assert_string_equal(slot[0].hint, "did you mean 'llama'?");
    errs.count = 0;
    assert_int_equal(
        memplan_model_parse_as(&m, CAT, strlen(CAT), NULL, "zzz", NULL, &errs),
        MEMPLAN_E_UNKNOWN);
    assert_string_equal(slot[0].hint, "the fields are those of 'llama'");
    /* sizes under names that the class does not read */
    static const char *const others[] = { "whisper", "bart" };
    for (size_t i = 0; i < 2; i++) {
        errs.count = 0;
        assert_int_equal(memplan_model_parse_as(&m, CAT, strlen(CAT), NULL,
                                                others[i], NULL, &errs),
                         MEMPLAN_E_CONFLICT);
        assert_non_null(strstr(slot[0].message, "is not read by it"));
        assert_string_equal(slot[0].hint, "the fields are those of 'llama'");
    }
    /* a whole */
    errs.count = 0;
    assert_int_equal(memplan_model_parse_as(&m, CAT, strlen(CAT), NULL,
                                            "gemma3", NULL, &errs),
                     MEMPLAN_E_UNSUPPORTED);
    assert_non_null(strstr(slot[0].hint, "gemma3_text"));
    /* a nested language model whose type is not known */
    static const char nested[] =
        "{\"model_type\": \"cats_and_dogs\", \"text_config\": " CAT "}";
    m = parse(nested, strlen(nested), "llama");
    assert_int_equal(m->spec.hidden, 64);
    memplan_model_free(m);
}

/* ---- every file under another name ---- */

static char renamed[TEXT_MAX];

/* Every "model_type" is "supernova", and "architectures" is no key. */
static void rename_types(const char *json, size_t n)
{
    static const char type[] = "\"model_type\"";
    size_t to = 0;
    for (size_t i = 0; i < n; i++) {
        if (strncmp(json + i, type, sizeof(type) - 1) == 0) {
            i = (size_t)(strchr(strchr(json + i, ':'), ',') - json);
            to += (size_t)snprintf(renamed + to, sizeof(renamed) - to,
                                   "%s: \"supernova\"", type);
        }
        if (strncmp(json + i, "\"architectures", 14) == 0) {
            to += (size_t)snprintf(renamed + to, sizeof(renamed) - to, "\"x-");
            i++;
        }
        renamed[to++] = json[i];
    }
    renamed[to] = '\0';
}

/* What the hint says behind --as, and where the keys do not decide, what else:
 * names with spaces and commas between. */
static const char *offered(void)
{
    static char names[sizeof(((memplan_error *)NULL)->hint)];
    memplan_error slot[2];
    memplan_errors errs = { slot, 2, 0 };
    memplan_model *m = NULL;
    if (memplan_model_parse(&m, renamed, strlen(renamed), "it", NULL, &errs)
        == MEMPLAN_OK)
        fail_msg("read without a name: %.200s", renamed);
    const char *at = strstr(slot[0].hint, "--as ");
    const char *more = strstr(slot[0].hint, "as much those of ");
    if (at == NULL)
        return NULL;
    at += 5;
    (void)snprintf(names, sizeof(names), "%.*s %s", (int)strcspn(at, " "), at,
                   more ? more + 17 : "");
    return names;
}

/* The same family, or one that makes the same of the file. */
static bool is_same(const char *name, const memplan_model *own)
{
    memplan_model *m = NULL;
    if (strcmp(name, family_name(own->spec.family)) == 0
        || strcmp(name, own->spec.model_type) == 0)
        return true;
    if (memplan_model_parse_as(&m, renamed, strlen(renamed), "it", name, NULL,
                               NULL)
        != MEMPLAN_OK)
        return false;
    const bool same =
        memplan_model_parameters(m) == memplan_model_parameters(own);
    memplan_model_free(m);
    return same;
}

static bool names_itself(const struct model_text *t, const memplan_model *own)
{
    char name[64];
    bool same = false;
    rename_types(t->json, t->len);
    const char *names = offered();
    for (const char *at = names; at && *at != '\0' && !same;) {
        const size_t n = strcspn(at, " ,");
        (void)snprintf(name, sizeof(name), "%.*s", (int)n, at);
        same = is_same(name, own);
        at += n + strspn(at + n, " ,");
    }
    if (!same)
        print_message("%s: %s, not %s\n", t->name,
                      names ? names : "no family is near",
                      family_name(own->spec.family));
    return same;
}

static bool is_generic_file(enum family family)
{
    return family == FAM_DECODER || family == FAM_ENCODER
           || family == FAM_ENCODER_DECODER || family == FAM_CONVNET;
}

static void test_nearest(void **state)
{
    (void)state;
    const char *name;
    size_t wrong = 0;
    for (size_t i = 0; (name = memplan_builtin_name(i)) != NULL; i++) {
        memplan_model *m = NULL;
        assert_int_equal(memplan_model_builtin(&m, name, NULL, NULL),
                         MEMPLAN_OK);
        bool strange = memplan_model_select(m, "text", NULL) != MEMPLAN_OK
                       || is_generic_file(m->spec.family)
                       || family_is_part(m->spec.family);
        if (!strange)
            wrong += !names_itself(model_text_find(name, strlen(name)), m);
        memplan_model_free(m);
    }
    assert_int_equal(wrong, 0);
}

/* Named by a key of its own, and the same when it is read as that. */
static bool names_whole(const struct model_text *t, const memplan_model *own)
{
    const char *type = own->spec.model_type;
    memplan_model *as = NULL;
    rename_types(t->json, t->len);
    const char *names = offered();
    const bool same =
        names != NULL && strncmp(names, type, strlen(type)) == 0
        && memplan_model_parse_as(&as, renamed, strlen(renamed), "it", type,
                                  NULL, NULL)
               == MEMPLAN_OK
        && memplan_model_select(as, "all", NULL) == MEMPLAN_OK
        && memplan_model_parameters(as) == memplan_model_parameters(own);
    if (!same)
        print_message("%s: %s, not %s\n", t->name, names ? names : "nothing",
                      type);
    memplan_model_free(as);
    return same;
}

/* Files of several parts, none of a type that is known. */
static void test_nearest_whole(void **state)
{
    (void)state;
    const char *name;
    size_t wholes = 0, wrong = 0;
    for (size_t i = 0; (name = memplan_builtin_name(i)) != NULL; i++) {
        memplan_model *m = NULL;
        assert_int_equal(memplan_model_builtin(&m, name, NULL, NULL),
                         MEMPLAN_OK);
        if (memplan_model_select(m, "all", NULL) == MEMPLAN_OK) {
            wholes++;
            wrong += !names_whole(model_text_find(name, strlen(name)), m);
        }
        memplan_model_free(m);
    }
    assert_int_equal(wrong, 0);
    assert_true(wholes >= 13);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_catalogue), cmocka_unit_test(test_whole),
        cmocka_unit_test(test_notes),     cmocka_unit_test(test_classes),
        cmocka_unit_test(test_class),     cmocka_unit_test(test_as),
        cmocka_unit_test(test_nearest),   cmocka_unit_test(test_nearest_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
