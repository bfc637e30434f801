/*
 * Looks embedded specifications up by name. The rows are generated from the
 * folder models/ (embed.cmake); what is in the texts is not known here.
 */
#include "data/models.h"

#include "base/str.h"

#include <string.h>

#include "models.inc"

#include "base/banned.h"

enum { MODELS = sizeof models / sizeof models[0] };

size_t model_text_count(void)
{
    return MODELS;
}

const struct model_text *model_text_at(size_t i)
{
    return i < MODELS ? &models[i] : NULL;
}

static struct str without_suffix(const char *name, size_t len)
{
    struct str text = { name, len };
    if (str_ends_with(text, ".json"))
        text.n -= strlen(".json");
    return text;
}

/* As strcmp, of a slice and a name. */
static int compare(struct str text, const char *name)
{
    size_t n = strlen(name);
    int order = memcmp(text.p, name, text.n < n ? text.n : n);
    if (order != 0)
        return order;
    return text.n < n ? -1 : text.n > n;
}

const struct model_text *model_text_find(const char *name, size_t len)
{
    struct str text = without_suffix(name, len);
    size_t low = 0, high = MODELS;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare(text, models[middle].name);
        if (order == 0)
            return &models[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* The next word of a name, between its dashes. */
static struct str word_of(struct str *rest)
{
    struct str word = { rest->p, 0 };
    while (word.n < rest->n && rest->p[word.n] != '-' && rest->p[word.n] != '_')
        word.n++;
    const size_t used = word.n + (word.n < rest->n);
    *rest = (struct str){ rest->p + used, rest->n - used };
    return word;
}

/* All words of `few` are among those of `many`, in order: "llama-70b" in
 * "llama-2-70b". */
static bool has_words(struct str many, struct str few)
{
    while (few.n > 0) {
        const struct str want = word_of(&few);
        bool found = false;
        while (!found && many.n > 0)
            found = str_same_name(word_of(&many), want);
        if (!found)
            return false;
    }
    return true;
}

/* A name that only lacks something: the shortest that has it all. */
static const char *longer_name(struct str text)
{
    const char *best = NULL;
    for (size_t i = 0; text.n > 0 && i < MODELS; i++)
        if (has_words(str_of(models[i].name), text)
            && (best == NULL || strlen(models[i].name) < strlen(best)))
            best = models[i].name;
    return best;
}

const char *model_text_nearest(const char *name, size_t len)
{
    struct str text = without_suffix(name, len);
    const char *best = longer_name(text);
    unsigned least = 0;
    if (best != NULL)
        return best;
    for (size_t i = 0; i < MODELS; i++) {
        unsigned far = str_distance(text, str_of(models[i].name));
        if (!best || far < least) {
            best = models[i].name;
            least = far;
        }
    }
    return best && str_near(text, str_of(best), least) ? best : NULL;
}
