/*
 * What follows from the class that a file names, `architectures`: the head on
 * the last layer, and how many classes it tells apart. Refuses to know what a
 * head computes.
 */
#include "spec/import.h"

#include "base/banned.h"

/* As any size (spec_field.c). */
static const double labels_most = 2147483648.0;

/* By the end of a class's name. HEAD_LM: not modelled; of decoders classes of
 * sequences and tokens are (transformers/modeling_layers.py,
 * GenericForSequenceClassification, and what is written like it). */
static const struct ending {
    const char *text;
    enum head_kind head;
} endings[] = {
    { "ForMaskedLM", HEAD_MASKED_LM },
    { "ForPreTraining", HEAD_PRETRAINING },
    { "ForSequenceClassification", HEAD_SEQUENCE },
    { "ForTokenClassification", HEAD_TOKEN },
    { "ForQuestionAnswering", HEAD_SPAN },
    { "ForImageClassification", HEAD_FIRST },
    { "ForMultipleChoice", HEAD_LM },
    { "ForNextSentencePrediction", HEAD_LM },
    { "DoubleHeadsModel", HEAD_LM },
};

static const struct json *class_of(const struct import *im)
{
    const struct json *list = json_member(im->object, "architectures");
    const struct json *at =
        list && list->kind == JSON_ARRAY ? list->child : NULL;
    return at && at->kind == JSON_STRING ? at : NULL;
}

static void refuse_class(struct import *im, const struct json *at)
{
    memplan_error *e =
        import_error(im, at, MEMPLAN_E_UNSUPPORTED,
                     "the head of '%.60s' is not modelled", at->text.p);
    diag_hint(e, "without 'architectures' the model is estimated as a "
                 "language model");
}

static bool is_classified(const struct import *im, enum head_kind head)
{
    static const enum family some[] = {
        FAM_LLAMA, FAM_MISTRAL, FAM_QWEN2, FAM_QWEN3,      FAM_GEMMA,
        FAM_PHI,   FAM_PHI3,    FAM_GPT2,  FAM_STARCODER2, FAM_STABLELM,
    };
    if (head == HEAD_SEQUENCE
        && (im->family == FAM_OPT || im->family == FAM_GPT_NEOX))
        return true;
    return (head == HEAD_SEQUENCE || head == HEAD_TOKEN)
           && IS_AMONG(im->family, some);
}

const char *import_class_keys(const struct import *im)
{
    return is_classified(im, HEAD_SEQUENCE)
               ? "num_labels id2label problem_type classifier_dropout"
               : "";
}

static bool has_classes(const struct import *im)
{
    const uint64_t head = im->v[F_HEAD].n;
    return im->v[F_BIDIRECTIONAL].n == 0
           && (head == HEAD_SEQUENCE || head == HEAD_TOKEN);
}

bool import_class_took(const struct import *im, struct str key)
{
    if (!has_classes(im))
        return false;
    if (str_is(key, "num_labels"))
        return true;
    if (str_is(key, "id2label")) {
        const struct json *given = json_member(im->object, "num_labels");
        return !given || given->kind == JSON_NULL;
    }
    return str_is(key, im->v[F_HEAD].n == HEAD_TOKEN ? "classifier_dropout"
                                                     : "problem_type");
}

static void choose_head(struct import *im, const struct json *at)
{
    const bool encoder =
        im->v[F_BIDIRECTIONAL].n != 0 && !family_is_vision(im->family);
    for (size_t i = 0; i < COUNT_OF(endings); i++) {
        if (!str_ends_with(at->text, endings[i].text))
            continue;
        if ((encoder && endings[i].head != HEAD_LM)
            || is_classified(im, endings[i].head))
            im->v[F_HEAD].n = endings[i].head;
        else
            refuse_class(im, at);
        return;
    }
    if (!encoder || !str_ends_with(at->text, "Model"))
        return;
    if (im->family == FAM_DISTILBERT) /* pools nothing */
        refuse_class(im, at);
    im->v[F_HEAD].n = HEAD_POOLED;
}

/* GenericForTokenClassification, whose sequences have none. */
static void choose_decoder_dropout(struct import *im)
{
    static const char *const keys[] = { "classifier_dropout",
                                        "hidden_dropout" };
    double *x = &im->v[F_HEAD_DROPOUT].x;
    *x = 0;
    if (im->v[F_HEAD].n != HEAD_TOKEN)
        return;
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        const struct json *at = json_member(im->object, keys[i]);
        if (!at || at->kind == JSON_NULL)
            continue;
        (void)import_real(im, at, 0, 1, x);
        return;
    }
    /* StableLmConfig alone has a hidden_dropout */
    *x = im->family == FAM_STABLELM ? 0 : 0.1;
}

/* DistilBERT's classes have one each. */
static void choose_dropout(struct import *im)
{
    struct value *v = im->v;
    if (has_classes(im))
        choose_decoder_dropout(im);
    if (im->family != FAM_DISTILBERT)
        return;
    if (v[F_HEAD].n == HEAD_TOKEN)
        v[F_HEAD_DROPOUT].x = v[F_HIDDEN_DROPOUT].x;
    if (v[F_HEAD].n == HEAD_SPAN)
        v[F_HEAD_DROPOUT].x = v[F_SPAN_DROPOUT].x;
}

/* Classes are counted by their names where no key says how many. */
static void count_labels(struct import *im)
{
    struct value *labels = &im->v[F_LABELS];
    const struct json *names = json_member(im->object, "id2label");
    const struct json *given = json_member(im->object, "num_labels");
    if (has_classes(im) && given && given->kind != JSON_NULL) {
        (void)import_count(im, given, 1, labels_most, &labels->n);
        return;
    }
    if (labels->at || !names || names->kind != JSON_OBJECT)
        return;
    uint64_t n = 0;
    for (const struct json *at = names->child; at; at = at->next)
        n++;
    if (n > 0)
        labels->n = n;
}

/* ForSequenceClassificationLoss, of labels that are whole numbers. */
static void choose_problem(struct import *im)
{
    static const char *const known[] = { "single_label_classification",
                                         "regression",
                                         "multi_label_classification" };
    const struct json *at = json_member(im->object, "problem_type");
    if (im->v[F_HEAD].n != HEAD_SEQUENCE || !has_classes(im))
        return;
    if (!at || at->kind == JSON_NULL) {
        im->v[F_PROBLEM].n =
            im->v[F_LABELS].n == 1 ? PROBLEM_OTHERS : PROBLEM_CLASS;
        return;
    }
    for (size_t i = 0; i < COUNT_OF(known); i++) {
        if (at->kind != JSON_STRING || !str_is(at->text, known[i]))
            continue;
        im->v[F_PROBLEM].n = i == 0 ? PROBLEM_CLASS : PROBLEM_OTHERS;
        return;
    }
    memplan_error *e =
        import_error(im, at, MEMPLAN_E_UNKNOWN, "'problem_type' is not known");
    diag_hint(e, "known: %s, %s, %s", known[0], known[1], known[2]);
}

void import_class(struct import *im)
{
    const struct json *at = class_of(im);
    if (at && im->v[F_HEAD].n != HEAD_NOISE)
        choose_head(im, at);
    choose_dropout(im);
    count_labels(im);
    choose_problem(im);
}
