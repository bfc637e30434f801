/*
 * What follows from the class that a file names, `architectures`: the head on
 * the last layer, and how many classes it tells apart. Refuses to know what a
 * head computes.
 */
#include "spec/import.h"

#include "base/banned.h"

/* By the end of a class's name. HEAD_LM: not modelled; of decoders none of
 * these is. */
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

static void choose_head(struct import *im, const struct json *at)
{
    const bool encoder =
        im->v[F_BIDIRECTIONAL].n != 0 && !family_is_vision(im->family);
    for (size_t i = 0; i < COUNT_OF(endings); i++) {
        if (!str_ends_with(at->text, endings[i].text))
            continue;
        if (encoder && endings[i].head != HEAD_LM)
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

/* DistilBERT's classes have one each. */
static void choose_dropout(struct import *im)
{
    struct value *v = im->v;
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
    if (labels->at || !names || names->kind != JSON_OBJECT)
        return;
    uint64_t n = 0;
    for (const struct json *at = names->child; at; at = at->next)
        n++;
    if (n > 0)
        labels->n = n;
}

void import_class(struct import *im)
{
    const struct json *at = class_of(im);
    if (at && im->v[F_HEAD].n != HEAD_NOISE)
        choose_head(im, at);
    choose_dropout(im);
    count_labels(im);
}
