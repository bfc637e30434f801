/* A text that grows, and the few things the program does with words. */
#ifndef MEMPLAN_CLI_TEXT_H
#define MEMPLAN_CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Zeroed: empty. A failure is sticky: what is added after it is lost. */
struct text {
    char *p; /* ends in NUL once something was added */
    size_t n;
    size_t cap;
    bool failed;
};

void text_release(struct text *t);

/* A memplan_write_fn; ctx is a struct text. */
bool text_write(void *ctx, const char *p, size_t n);
void text_put(struct text *t, const char *s);
void text_format(struct text *t, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;
/* Blanks up to `column` of the line being written, at least one. */
void text_tab(struct text *t, size_t column);
/* Words, broken so that lines end before `width` and go on at `indent`. Goes
 * on in the line being written. */
void text_wrap(struct text *t, const char *words, size_t indent, size_t width);

/* "micro_batch" as an option spells it: "micro-batch"; cut to size. */
void text_kebab(char *buf, size_t size, const char *key);

/* The next of space-separated words: its start, *n its length; NULL when there
 * is none left. *rest is where to go on. */
const char *text_word(const char **rest, size_t *n);

/* How many single changes lead from one name to the other ('_' is '-', letters
 * of either case are the same); a big number for long names. */
unsigned text_distance(const char *a, const char *b);
/* Few enough for "did you mean". */
bool text_near(const char *a, const char *b);

#endif
