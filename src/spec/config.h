/*
 * What other programs' launch files say, as setup keys: a DeepSpeed
 * configuration, Hugging Face's TrainingArguments, ... Each is read into a
 * tree of values; one table per dialect says what each of its keys means here,
 * and this says the rest: which keys have no effect on memory or compute,
 * which have one that is not modelled, which are not known. Nothing is
 * guessed: a value that the table does not have is an error with its place.
 */
#ifndef MEMPLAN_SPEC_CONFIG_H
#define MEMPLAN_SPEC_CONFIG_H

#include "spec/setup.h"
#include "json/json.h"

enum config_rule {
    CONFIG_SAME,  /* the value is one of the setup key's, as it stands */
    CONFIG_WORDS, /* `words` has "theirs=ours ..."; bools are true, false;
                     "theirs=" sets nothing, "theirs=?" is not modelled,
                     "theirs=?ours" is refused once the run is known */
    CONFIG_ONLY,  /* modelled as `words`; any other value is told aside */
    CONFIG_QUIET, /* no effect on memory or compute; so of all below it */
    CONFIG_ASIDE, /* has an effect that is not modelled: `words` says which */
    CONFIG_SHAPE, /* the model's own, which comes from its own file */
    CONFIG_LATER, /* looked at by the dialect's `together`, which knows no
                     other than `words` where there are such */
};

/* The way back: when a row whose rule sets a key is written. */
enum config_write {
    WRITE_NEVER,  /* an older name, or written by the dialect's `apart` */
    WRITE_ALWAYS, /* where the key has a value, and WORDS a word for it */
    WRITE_GIVEN,  /* where the user gave the key */
};

/* One key of a dialect, read and written. `path` joins members of objects by
 * '.'; a row of an object is about all below it that has no row of its own. A
 * word that is only read may set one more key: "theirs=ours+key=value". */
struct config_row {
    const char *path;
    enum config_rule rule;
    enum setup_key key;
    const char *words;
    enum config_write write;
};

/* Rows by what they do, for the tables. */
#define SAME(path, key)                                                        \
    {                                                                          \
        path, CONFIG_SAME, key, "", WRITE_ALWAYS                               \
    }
#define SAME_GIVEN(path, key)                                                  \
    {                                                                          \
        path, CONFIG_SAME, key, "", WRITE_GIVEN                                \
    }
#define SAME_READ(path, key)                                                   \
    {                                                                          \
        path, CONFIG_SAME, key, "", WRITE_NEVER                                \
    }
#define WORDS(path, key, words)                                                \
    {                                                                          \
        path, CONFIG_WORDS, key, words, WRITE_ALWAYS                           \
    }
#define WORDS_GIVEN(path, key, words)                                          \
    {                                                                          \
        path, CONFIG_WORDS, key, words, WRITE_GIVEN                            \
    }
#define WORDS_READ(path, key, words)                                           \
    {                                                                          \
        path, CONFIG_WORDS, key, words, WRITE_NEVER                            \
    }
#define ONLY(path, value)                                                      \
    {                                                                          \
        path, CONFIG_ONLY, KEY_COUNT, value, WRITE_NEVER                       \
    }
#define QUIET(path)                                                            \
    {                                                                          \
        path, CONFIG_QUIET, KEY_COUNT, "", WRITE_NEVER                         \
    }
#define ASIDE(path, why)                                                       \
    {                                                                          \
        path, CONFIG_ASIDE, KEY_COUNT, why, WRITE_NEVER                        \
    }
#define LATER(path)                                                            \
    {                                                                          \
        path, CONFIG_LATER, KEY_COUNT, "", WRITE_NEVER                         \
    }
/* Of these words, "theirs= ..." */
#define LATER_OF(path, words)                                                  \
    {                                                                          \
        path, CONFIG_LATER, KEY_COUNT, words, WRITE_NEVER                      \
    }
#define LATER_BOOL(path) LATER_OF(path, "true= false=")
/* Read by `together`, written by the row. */
#define LATER_SAME(path, key)                                                  \
    {                                                                          \
        path, CONFIG_LATER, key, "", WRITE_ALWAYS                              \
    }
#define SHAPE(path)                                                            \
    {                                                                          \
        path, CONFIG_SHAPE, KEY_COUNT, "", WRITE_NEVER                         \
    }

/* Which keys a dialect's files leave to others, so that they are given beside
 * one: the model's, the GPU's and the run's always. */
enum config_beside {
    BESIDE_FEW,
    BESIDE_MODEL,  /* its code: recomputation, kernels */
    BESIDE_SCRIPT, /* batches and the optimizer too */
    BESIDE_REST,   /* all that the file does not say */
};

struct config;
struct emit;

struct config_table {
    const struct config_row *row;
    size_t rows;
    bool has_auto; /* the word "auto" is for another program to fill in */
    bool flags;    /* its members may be flags of a command line */
    /* What the program itself refuses to have unknown entries in: paths, or
     * NULL. */
    const char *closed;
    /* What keys mean only together. Sees the whole tree; may be NULL. */
    void (*together)(struct config *c);
    /* The way back of `together`: puts what rows alone do not say. NULL where
     * no such file is written. */
    void (*apart)(struct emit *e, const struct run *r);
    /* Whether rows of a path are written for this run; NULL: all. */
    bool (*writes)(const struct run *r, const char *path);
    enum config_beside beside;
};

/* One reading. */
struct config {
    struct setup *s;
    const struct config_table *table;
    const struct json *root; /* of the dialect: a part of the file, perhaps */
    const char *text;        /* the file's, which places are of */
    size_t len;
    const char *name; /* of the file, for notes */
    bool keeps;       /* GPUs, batches and clipping that are set stay so */
    const char *held; /* the flag of the line before that says who holds */
    struct diag *d;
};

/* Reads the tree by its table. Reports every bad value with its place; sets
 * the good ones; adds the notes to c->s. Returns c->d's status. */
memplan_status config_read(struct config *c);

/* Whether its entries are another dialect's; that is reported. */
bool config_mistaken(struct config *c);

enum { CONFIG_PATH_MAX = 160 };

/* The table's entry of the nearest name beside that path, or the object that
 * some are in; whether it is near enough to be meant. */
bool config_near(const struct config_table *t, const char *path,
                 char near[CONFIG_PATH_MAX]);

/* ---- for `together` ---- */

/* The value at a path below the root; NULL when absent, null or "auto". */
const struct json *config_at(const struct config *c, const char *path);

/* Whether it is there, and true; what is neither true nor false its row, a
 * LATER_BOOL, has reported. */
bool config_is_true(const struct config *c, const char *path);

/* A path as the file's user writes it: a flag with its dashes. */
const char *config_shown(const struct config *c, const char *path,
                         char buf[CONFIG_PATH_MAX]);

/* Sets `key` from text, as said at `where`. */
void config_set(struct config *c, const struct json *where, enum setup_key key,
                const char *value);

/* Sets `key` from the value that stands there. */
void config_set_json(struct config *c, const struct json *value,
                     enum setup_key key);

/* Sets clip_grad from the norm at a path: 0 clips nothing. Nothing is set where
 * there is none; what is no number is reported. */
void config_clipping(struct config *c, const char *path);

/* Reports that a value is none of those. Its place is told. */
memplan_error *config_bad(struct config *c, const struct json *where,
                          memplan_status status, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 4, 5)))
#endif
    ;

/* Ulysses over so many ranks, where there is such a number at that path. */
void config_ulysses(struct config *c, const char *path);

/* Whether an entry, if it is there, is that word, of which a file makes a bool
 * perhaps: "true". */
bool config_says(const struct json *value, const char *word);
/* Keeps a name that `where` says, of which no part would do: one that has no
 * room is reported, and buf is empty. */
void config_keep_name(struct config *c, char *buf, size_t size,
                      const struct json *where, struct str name);
/* `where` names a file of that dialect, to be read next; it has the last word
 * (pending_keeps: but for GPUs, batches and clipping). */
void config_goes_on(struct config *c, const struct json *where,
                    const char *dialect);

/* A line for the assumptions, if it is not there yet. */
void config_add_note(struct setup *s, const char *text);
/* The same: "FILE: ...". */
void config_note(struct config *c, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* ---- dialects ---- */

struct config_dialect {
    const char *name; /* as the command line and the library call it */
    /* The text as a tree; NULL after reporting what is wrong, and where. */
    struct json *(*parse)(struct arena *a, const char *text, size_t len,
                          struct diag *d);
    const struct config_table *table;
    /* What was put, as such a file; NULL where none is written. */
    void (*render)(struct emit *e);
    const char *also; /* another name of it, or NULL */
};

/* Number `index`; NULL past the end. */
const struct config_dialect *config_dialect(size_t index);

extern const struct config_table config_deepspeed;
extern const struct config_table config_training_args;
extern const struct config_table config_accelerate;
extern const struct config_table config_megatron;
extern const struct config_table config_torchtitan;
extern const struct config_table config_torchrun;
extern const struct config_table config_peft;
extern const struct config_table config_hostfile;

/* Lines of DeepSpeed's hostfile, as {"hosts": {"worker-0": 8}}. */
struct json *config_parse_hostfile(struct arena *a, const char *text,
                                   size_t len, struct diag *d);

/* torchtitan's TOML; its later configurations in Python are refused. */
struct json *config_parse_torchtitan(struct arena *a, const char *text,
                                     size_t len, struct diag *d);

/* TrainingArguments: JSON, YAML, or a launch script's flags. */
struct json *config_parse_training_args(struct arena *a, const char *text,
                                        size_t len, struct diag *d);

/* The key of a root whose members stood there as flags. */
#define CONFIG_DASHES "--"

/* The commands of a script that start processes, one after another. */
struct config_launches {
    const char *text;
    size_t len, at;
    uint64_t exported;   /* GPUs that CUDA_VISIBLE_DEVICES lists from here on */
    const char *program; /* of this one: deepspeed, accelerate, torchrun */
    uint64_t visible;    /* GPUs that it is let see; 0: not said */
    size_t from, to;     /* its bytes */
};
/* False where there is no further one. */
bool config_next_launch(struct config_launches *l);

/* The last of them, which counts. */
struct config_launcher {
    const char *program; /* NULL: none */
    uint64_t visible;
    size_t n;       /* commands */
    size_t line[2]; /* of the first, of the last */
};
void config_find_launcher(const char *text, size_t len,
                          struct config_launcher *out);
/* Members beside a script's flags, which no flag can be called. */
#define CONFIG_LAUNCHER "(launcher)"
#define CONFIG_VISIBLE "(visible)"

/* Flags of a launch script, or of YAML with MODEL_ARGS, as an object: without
 * their dashes, '-' as '_'; true where nothing follows, else a string. */
struct json *config_parse_args(struct arena *a, const char *text, size_t len,
                               struct diag *d);
/* The same of the Trainer's scripts, of a line that starts processes. */
struct json *config_parse_flags(struct arena *a, const char *text, size_t len,
                                struct diag *d);
struct json *config_parse_launcher(struct arena *a, const char *text,
                                   size_t len, struct diag *d);

#endif
