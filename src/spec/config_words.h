/* A launch script at a place, and its words. (config_words.c) */
#ifndef MEMPLAN_SPEC_CONFIG_WORDS_H
#define MEMPLAN_SPEC_CONFIG_WORDS_H

#include "spec/config.h"

/* How many of a script's if ... fi and case ... esac are open at a place. */
struct branches {
    size_t at, open;
};

struct script {
    bool last_part; /* "--a.b.name" is name */
    bool launches;  /* the line's own launcher counts too */
    struct arena *arena;
    struct diag *diag;
    const char *text;
    size_t len, at;
    bool in_case; /* between case and esac */
    struct config_launcher launcher;
    struct config_launches earlier; /* the command at hand, or the next one */
    size_t launched;                /* its number, from 1 */
    size_t around;                  /* branches that the last command is in */
    struct branches branches;       /* at the last flag */
    struct json *root, *last;
};

/* Between words: a quote is one too. */
bool script_blank(char c);
bool script_name_byte(char c);

/* To the next word of this line; false at its end. A parenthesis that stands
 * alone belongs to an array of the shell's. */
bool script_to_word(struct script *s);
/* The word at hand, which is passed. */
struct str script_word(struct script *s);
/* Whether it is one that sums up: "$((8 * N))". */
bool script_is_sum(struct str word);
void script_next_line(struct script *s);

/* On to a place that is not before the last. */
void script_branch(struct branches *b, const struct script *s, size_t to);

/* What $NAME is, at `end`, as far as names alone say it. A positional
 * parameter, "$1", is the caller's: nothing here says it. */
struct str script_follow(const struct script *s, struct str word, size_t end);
/* The same at the word itself, sums worked out. */
struct str script_value(struct script *s, struct str word);

#endif
