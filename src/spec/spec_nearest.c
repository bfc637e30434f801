/*
 * Which family the keys of a file are those of, where its own name is not
 * known, and which sizes of it another family would pass over. Refuses to read
 * sizes.
 */
#include "spec/import.h"

#include <string.h>

#include "base/banned.h"

/* ---- keys ---- */

enum { KEYS_MAX = 256, PATH_MAX_ = 96 };

/* A key of the object, or "a.b" of an object in it. */
struct file_key {
    char path[PATH_MAX_];
    struct str text;
    bool said;       /* neither null, false nor 0 */
    unsigned fields; /* families that read it as a field */
};

struct file_keys {
    struct file_key key[KEYS_MAX];
    size_t n;
};

static bool says_something(const struct json *at)
{
    return !(
        at->kind == JSON_NULL || (at->kind == JSON_BOOL && !at->truth)
        || (at->kind == JSON_NUMBER && !(at->number > 0 || at->number < 0)));
}

static void add_key(struct file_keys *all, const char *holder,
                    const struct json *at)
{
    if (all->n == KEYS_MAX)
        return;
    struct file_key *key = &all->key[all->n++];
    size_t n = str_format(key->path, sizeof(key->path), "%s%s%s", holder,
                          holder[0] ? "." : "", at->key.p);
    key->text = (struct str){ key->path, n };
    key->said = says_something(at);
    key->fields = 0;
}

static void gather(struct file_keys *all, const struct json *object)
{
    all->n = 0;
    for (const struct json *at = object->child; at; at = at->next) {
        if (at->kind != JSON_OBJECT)
            add_key(all, "", at);
        for (const struct json *in = at->kind == JSON_OBJECT ? at->child : NULL;
             in; in = in->next)
            add_key(all, at->key.p, in);
    }
}

static bool is_candidate(const struct import *one)
{
    return !import_is_generic(one) && one->family != FAM_CONVNET
           && !family_is_part(one->family);
}

/* How many families read each key. */
static void count_readers(struct file_keys *all)
{
    struct import one = { 0 };
    for (int f = 0; f < FAM_COUNT; f++) {
        one.family = (enum family)f;
        if (!is_candidate(&one))
            continue;
        import_rules(&one);
        for (size_t i = 0; i < all->n; i++)
            all->key[i].fields += import_reads(&one, all->key[i].text)
                                  || import_is_inert(&one, all->key[i].text);
    }
}

/* ---- fields ---- */

static bool is_given(const struct import *one, const struct json *object,
                     int id)
{
    struct str rest = str_of(one->keys[id]);
    while (rest.n > 0) {
        const struct json *at = import_find(object, str_cut(rest, ' ', &rest));
        if (at != NULL && at->kind != JSON_NULL)
            return true;
    }
    return false;
}

/* What makes a layer another kind of layer: a file of such says how many. */
static bool is_kind(const struct import *one, int id)
{
    if (one->absent[F_LONE_PARTS].n != 0 && id != F_SSM_STATE)
        return false; /* its list may have none of them */
    return (id == F_EXPERTS || id == F_EXPERT_FFN || id == F_SHARED_FFN
            || id == F_KV_RANK || id == F_SSM_STATE)
           && one->keys[id][0] != '\0' && one->absent[id].how == HOW_VALUE
           && one->absent[id].n > 0;
}

/* A file that leaves these to defaults is not like the class that has them
 * (Gemma 3 has all). */
static bool is_needed(const struct import *one, int id)
{
    const bool shape =
        id == F_LAYERS || id == F_HIDDEN || id == F_HEADS || id == F_VOCAB;
    return one->absent[id].how == HOW_REQUIRED || is_kind(one, id)
           || (shape && one->keys[id][0] != '\0');
}

/* Windows that the class has and does not use. */
static bool is_idle_window(const struct import *one, int id)
{
    return (id == F_SLIDING_WINDOW || id == F_SLIDING_FROM)
           && one->absent[F_USE_SLIDING].n == 0
           && !is_given(one, one->object, F_USE_SLIDING);
}

/* A size that the class has and the file does not say. */
static bool is_assumed(const struct import *one, int id)
{
    return !is_idle_window(one, id) && id != F_ACT && id != F_PAD_VOCAB
           && one->own[id] && one->keys[id][0] != '\0'
           && one->absent[id].how == HOW_VALUE && one->absent[id].n > 1;
}

/* A norm's epsilon is no field, but its name tells which norm it is. */
static bool has_other_norm(const struct import *one, const struct json *object)
{
    const bool rms = json_member(object, "rms_norm_eps") != NULL
                     || json_member(object, "rms_norm_epsilon") != NULL;
    const bool layer = json_member(object, "layer_norm_eps") != NULL
                       || json_member(object, "layer_norm_epsilon") != NULL
                       || json_member(object, "norm_epsilon") != NULL;
    const bool is_rms = one->absent[F_NORM].n == NORM_RMS;
    return rms != layer && rms != is_rms;
}

/* A class's activation is its own, whatever the size, and so is the part of a
 * head that rotates: what a file says of these tells classes apart. */
static bool has_other_act(const struct import *one, const struct json *object)
{
    static const char *const keys[] = { "hidden_activation", "hidden_act",
                                        "activation_function" };
    const struct json *at = NULL;
    uint64_t n = 0;
    for (size_t i = 0; i < COUNT_OF(keys) && (!at || at->kind != JSON_STRING);
         i++)
        at = json_member(object, keys[i]);
    return at && at->kind == JSON_STRING && one->absent[F_ACT].how == HOW_VALUE
           && import_word_value(one, F_ACT, at->text, &n)
           && n != one->absent[F_ACT].n;
}

static bool has_other_rotation(const struct import *one,
                               const struct json *object)
{
    const struct json *at = json_member(object, "partial_rotary_factor");
    const struct fallback *usual = &one->absent[F_ROTARY_PART];
    return at && at->kind == JSON_NUMBER && usual->how == HOW_NUMBER
           && (at->number < usual->x || at->number > usual->x);
}

/* ---- likeness ---- */

/* What counts against a family: a key that others read and it does not; a size
 * that the file would have to say. What few read tells more than what all
 * do. */
enum {
    COST_UNREAD = 4,
    COST_ASSUMED = 2,
    COST_NORM = 3,
    COST_OTHER = 1,
    GAIN_RARE = 12
};

struct likeness {
    size_t missing, read;
    long cost;
};

static void like(struct likeness *out, struct import *one,
                 const struct file_keys *all)
{
    *out = (struct likeness){ 0 };
    import_rules(one);
    for (int id = 0; id < F_COUNT; id++) {
        const bool given = is_given(one, one->object, id);
        out->missing += is_needed(one, id) && !given;
        out->cost += is_assumed(one, id) && !given ? COST_ASSUMED : 0;
    }
    out->cost += has_other_norm(one, one->object) ? COST_NORM : 0;
    out->cost += has_other_act(one, one->object) ? COST_OTHER : 0;
    out->cost += has_other_rotation(one, one->object) ? COST_OTHER : 0;
    for (size_t i = 0; i < all->n; i++) {
        const struct file_key *key = &all->key[i];
        const bool mine =
            import_reads(one, key->text) || import_is_inert(one, key->text);
        out->read += mine;
        if (mine)
            out->cost -= GAIN_RARE / (long)key->fields;
        else if (key->said && key->fields > 0)
            out->cost += COST_UNREAD;
    }
}

/* Below 0 where x is the nearer one. */
static int compare(const struct likeness *x, const struct likeness *y)
{
    if (x->missing != y->missing)
        return x->missing < y->missing ? -1 : 1;
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    return (x->read < y->read) - (x->read > y->read);
}

/* Fields that a family may miss, and keys that it has to know at least, to be
 * spoken of. */
enum { MISSING_MAX = 1, READ_MIN = 3 };

void import_nearest(const struct import *im, const struct json *object,
                    struct nearest *out)
{
    struct import one = { .root = im->root, .object = object };
    struct likeness best = { MISSING_MAX + 1, 0, 0 };
    struct file_keys all;
    out->n = 0;
    gather(&all, object);
    count_readers(&all);
    for (int f = 0; f < FAM_COUNT; f++) {
        struct likeness it;
        one.family = (enum family)f;
        if (!is_candidate(&one))
            continue;
        like(&it, &one, &all);
        const int order = compare(&it, &best);
        if (it.read < READ_MIN || it.missing > MISSING_MAX || order > 0)
            continue;
        if (order < 0)
            out->n = 0;
        best = it;
        out->name[out->n++] = family_name(one.family);
    }
}

/* ---- what another family passes over ---- */

static bool is_size(const struct import *like, int id)
{
    return id == F_LAYERS || id == F_HIDDEN || id == F_HEADS || id == F_FFN
           || id == F_VOCAB || like->absent[id].how == HOW_REQUIRED;
}

const struct json *import_unread(const struct import *im, enum family like)
{
    struct import mine = { .family = im->family };
    struct import one = { .family = like == FAM_COUNT ? FAM_DECODER : like };
    import_rules(&mine);
    import_rules(&one);
    for (int id = 0; id < F_COUNT; id++) {
        if (!is_size(&one, id) || is_given(&mine, im->object, id))
            continue;
        struct str rest = str_of(one.keys[id]);
        while (rest.n > 0) {
            const struct str key = str_cut(rest, ' ', &rest);
            const struct json *at = import_find(im->object, key);
            if (at && says_something(at) && !import_reads(&mine, key)
                && !import_is_inert(&mine, key))
                return at;
        }
    }
    return NULL;
}
