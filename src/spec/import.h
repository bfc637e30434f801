/*
 * Between the parts of the importer: spec_family.c chooses the family,
 * spec_field.c decodes rows of field.def and family.def into values, spec_fix.c
 * does what a row cannot say, spec_import.c keeps the order and checks fields
 * against one another. Nobody else includes this.
 */
#ifndef MEMPLAN_SPEC_IMPORT_H
#define MEMPLAN_SPEC_IMPORT_H

#include "spec/spec.h"
#include "json/json.h"

enum field_id {
#define FIELD(id, member, type, keys, fallback, min, max) F_##id,
#define HELPER(id, type, keys, fallback, min, max) F_##id,
#include "spec/field.def"
#undef FIELD
#undef HELPER
    F_COUNT
};

enum field_type {
    TYPE_COUNT,
    TYPE_COUNT_OR_AUTO, /* "auto" is as if the key were not there */
    TYPE_BOOL,
    TYPE_REAL,
    TYPE_CHOICE
};

enum how {
    HOW_REQUIRED,     /* an error */
    HOW_VALUE,        /* n */
    HOW_NUMBER,       /* x */
    HOW_SAME,         /* field a */
    HOW_TIMES,        /* n of field a */
    HOW_PRODUCT,      /* field a times field b */
    HOW_RATIO,        /* field a over field b, which must divide it */
    HOW_FLOOR,        /* field a over field b, rounded down */
    HOW_CEIL,         /* field a over n, rounded up */
    HOW_RATIO_UNLESS, /* the same; 0 where field n is above 0 */
    HOW_PICK,         /* n where field a is true, else m */
    HOW_FIELD_IF,     /* field b where field a is true, else field n */
    HOW_ONE_IF        /* 1 where field a is true, else field b */
};

struct fallback {
    enum how how;
    enum field_id a, b;
    uint32_t n, m;
    double x;
};

struct field {
    const char *member; /* "head_dim" */
    enum field_type type;
    const char *keys;
    struct fallback absent;
    double min, max;
};

/* How one family differs in one field. */
struct rule {
    enum family family;
    enum field_id field;
    const char *keys;       /* NULL: the field's; "": the class fixes it */
    struct fallback absent; /* no key */
    struct fallback null;   /* an explicit null */
};

/* Where the value of a key comes from in the text. */
struct value {
    uint64_t n;            /* COUNT, BOOL, CHOICE */
    double x;              /* REAL */
    const struct json *at; /* NULL: not in the file, a fallback */
    bool bad;              /* reported; what depends on it keeps silent */
};

/* A message has no more keys, and no key is longer. */
enum { IMPORT_WORDS = 4, IMPORT_WORD_MAX = 64 };

struct import {
    const struct json *root;
    const struct json *object; /* that the fields are in */
    const char *text;
    size_t len;
    const char *model_type;
    enum family family;
    bool strict; /* "memplan": 1 */
    struct diag *d;
    const char *as; /* family that the caller named; NULL: none */
    const char *keys[F_COUNT];
    bool own[F_COUNT];     /* a row of the family says so */
    bool by_null[F_COUNT]; /* the file says null */
    struct fallback absent[F_COUNT], null[F_COUNT];
    struct value v[F_COUNT];
    char word[IMPORT_WORDS][IMPORT_WORD_MAX]; /* of import_key(), in turn */
    unsigned words;
};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* hidden_act "swiglu" of the generic decoder: silu, and gated. */
enum { ACT_SWIGLU = ACT_GEGELU + 1 };

/* Adds an error about a value of the file. */
memplan_error *import_error(struct import *im, const struct json *at,
                            memplan_status status, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 4, 5)))
#endif
    ;

/* The key that gave a field, else the first one that would; memplan's own word
 * where the family has none. Gone after IMPORT_WORDS more. */
const char *import_key(struct import *im, enum field_id id);

/* The place of a field in the file, else of the object that lacks it. */
const struct json *import_at(const struct import *im, enum field_id id);

/* Reports that a required field is not there. */
void import_missing(struct import *im, enum field_id id);

/* Looks up a key, or "a.b"; NULL when absent. */
const struct json *import_find(const struct json *object, struct str key);

/* ---- words about fields (spec_field.c) ---- */

/* The key that gave the field, else the one that would: "a.b" inside an object.
 * Where the family has none, the generic decoder's, or memplan's own word. */
void import_word(const struct import *im, enum field_id id, char *buf,
                 size_t size);
/* A helper decides other fields only. */
bool import_is_helper(enum field_id id);
/* As JSON: a number, a word in quotes; "" for a choice that has no word. */
void import_value_text(const struct import *im, enum field_id id, char *buf,
                       size_t size);
/* Whether a file could say the value that the field has. */
bool import_can_say(const struct import *im, enum field_id id);

/* What was read, what the class filled in and why, what was passed over.
 * (spec_notes.c) */
void import_notes(struct import *im, struct spec *out, struct arena *a);

/* A key of a whole, and what holds, as JSON; "" for what is said as given. */
struct whole_key {
    const char *key;
    char value[48];
};
/* The same of what stands between its parts. */
void import_whole_notes(struct import *im, struct spec *all,
                        const struct whole_key *keys, size_t n,
                        struct arena *a);

/* The families whose keys are most like the object's, the first one of which
 * `name` is, in the order of the table: more than one where keys do not tell
 * them apart. None can read it: n is 0. (spec_nearest.c) */
struct nearest {
    const char *name[FAM_COUNT];
    size_t n;
};
void import_nearest(const struct import *im, const struct json *object,
                    struct nearest *out);
/* The whole that a key of the file is of no other's, and the key; NULL: none.
 * (spec_parts.c) */
const char *import_nearest_whole(const struct import *im, const char **tell);

/* A size of the object that family `like` reads (FAM_COUNT: under its usual
 * names) and im->family neither reads nor has from elsewhere in it; NULL: none.
 * (spec_nearest.c) */
const struct json *import_unread(const struct import *im, enum family like);

/* Finds family, object and type of the text; false after reporting that none is
 * known. (spec_family.c) */
bool import_choose_family(struct import *im);
/* What no row says of the family, once its fields are decoded. (spec_fix.c) */
void import_fix_family(struct import *im);

/* quantization_config, of the object or of the whole. (spec_stored.c) */
void import_stored(struct import *im, struct spec *out);

/* Reports unknown keys and what is not modelled. */
void import_keys(struct import *im);

/* Gathers the family's rows, then decodes every field. */
void import_rules(struct import *im);
void import_fields(struct import *im);

/* Decodes a number; false after reporting. */
bool import_real(struct import *im, const struct json *at, double min,
                 double max, double *out);

/* Decodes a whole number; false after reporting. Also for "parameters". */
bool import_count(struct import *im, const struct json *at, double min,
                  double max, uint64_t *out);

/* A word of an activation of one operand; false after reporting. */
/* What a word of a choice means; false: none of the field's. */
bool import_word_value(const struct import *im, enum field_id id,
                       struct str text, uint64_t *out);
bool import_activation(struct import *im, const struct json *at,
                       enum activation *out);

/* The language model inside a file that describes more, the type that the
 * whole's class gives it, and the other parts (spec_parts.c). NULL: none. */
const struct json *import_text_part(const struct import *im);
const char *import_text_type(const struct import *im);
/* Of a whole's type, what to call its text part; NULL: no whole. */
const char *import_whole_text(const char *type);
bool import_is_llava(const struct import *im);
/* Of two flags, the text part's and the whole's, the head is tied by that which
 * the whole's class looks at. */
void import_tie_by_whole(struct import *im);
/* The file has an object for each part. */
bool import_has_parts(const struct import *im);
/* After *out is the text part's. */
void import_parts(struct import *im, struct spec *out, struct arena *a);
/* Chooses the family by the name of a model type; false if it is not known. */
bool import_named(struct import *im, const char *type);
/* Whether the class has not that key of its family's. */
bool import_lacks(const struct import *im, const char *key);
/* Decodes im->object as im->family. */
void import_object(struct import *im, struct spec *out, struct arena *a);

/* The shapes of a network of convolutions, which are lists and objects. */
void import_convnet(struct import *im, struct spec *out, struct arena *a);
/* 'layers', a list (spec_conv_list.c). */
void import_conv_list(struct import *im, struct spec *out, struct arena *a);

/* Which layers have what, by lists of the file and steps: after the fields are
 * stored. Lists live in the arena. */
void import_layers(struct import *im, struct spec *out, struct arena *a);
/* The keys of lists that a family reads, one a call; *next starts at 0. NULL
 * when there are no more. */
const char *import_layer_list(enum family family, size_t *next);
/* Of Nemotron-H, which lists blocks of one part each: as many layers as there
 * are of them; which is what. (spec_blocks.c) */
void import_count_blocks(struct import *im);
void import_blocks(struct import *im, struct spec *out, struct arena *a);

/* The family has a field of this key. (spec_keys.c) */
bool import_reads(const struct import *im, struct str key);

/* A key that the family does not look at, or reads apart from the fields. */
bool import_is_inert(const struct import *im, struct str key);

/* What the named class says: after the fields, before they are stored. */
void import_class(struct import *im);

/* The keys that a decoder's classes with a head for classes read, "" where the
 * family has none such; whether the class named has read one. */
const char *import_class_keys(const struct import *im);
bool import_class_took(const struct import *im, struct str key);

/* Families of the generic dialect. */
static inline bool import_is_generic(const struct import *im)
{
    return im->family == FAM_DECODER || im->family == FAM_ENCODER
           || im->family == FAM_ENCODER_DECODER;
}

/* Copies the values to where spec.h wants them. */
void import_store(struct spec *out, const struct import *im);

#endif
