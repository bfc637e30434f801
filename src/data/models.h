/* The models embedded at build time from models/, sorted by name. */
#ifndef MEMPLAN_DATA_MODELS_H
#define MEMPLAN_DATA_MODELS_H

#include <stddef.h>

struct model_text {
    const char *name; /* file name without ".json" */
    const char *json; /* not NUL-terminated */
    size_t len;
};

size_t model_text_count(void);
const struct model_text *model_text_at(size_t i);
/* With or without ".json"; NULL when there is none. Binary search. */
const struct model_text *model_text_find(const char *name, size_t len);
/* The catalogue's name least unlike this one, NULL when none is near. */
const char *model_text_nearest(const char *name, size_t len);

#endif
