/*
 * From JSON to a struct spec. Owns the order of things and the checks that look
 * at several fields, whatever the family; spec_family.c chooses that,
 * spec_field.c owns single fields, spec_fix.c what a row cannot say,
 * spec_keys.c the keys that are none. Refuses to know what a shape costs.
 */
#include "spec/import.h"

#include "base/unit.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/banned.h"

/* ---- fields together ---- */

static void divisors(char *buf, size_t size, uint64_t n)
{
    enum { MOST = 16 };
    int found = 0;
    buf[0] = '\0';
    for (uint64_t i = 1; i <= n && found < MOST; i++) {
        if (n % i == 0)
            str_append(buf, size, "%s%" PRIu64, found++ ? ", " : "", i);
    }
}

static void check_heads(struct import *im)
{
    const struct value *h = &im->v[F_HEADS], *kv = &im->v[F_KV_HEADS];
    if (h->bad || kv->bad || kv->n == 0 || h->n % kv->n == 0)
        return;
    char list[200];
    memplan_error *e = import_error(
        im, import_at(im, F_KV_HEADS), MEMPLAN_E_CONFLICT,
        "'%s' (%" PRIu64 ") does not divide '%s' (%" PRIu64 ")",
        import_key(im, F_KV_HEADS), kv->n, import_key(im, F_HEADS), h->n);
    divisors(list, sizeof(list), h->n);
    diag_hint(e, "use one of %s", list);
}

/* A head of the decoder is as wide as divides the hidden size. */
static void check_decoder_heads(struct import *im)
{
    const struct value *h = &im->v[F_HIDDEN], *a = &im->v[F_DECODER_HEADS];
    if (h->bad || a->bad || a->n == 0 || h->n % a->n == 0)
        return;
    import_error(im, import_at(im, F_DECODER_HEADS), MEMPLAN_E_CONFLICT,
                 "'%s' (%" PRIu64 ") does not divide '%s' (%" PRIu64 ")",
                 import_key(im, F_DECODER_HEADS), a->n,
                 import_key(im, F_HIDDEN), h->n);
}

/* What validate_architecture of these classes asks, also where head_dim is
 * given (transformers 5). */
static void check_hidden(struct import *im)
{
    const struct value *h = &im->v[F_HIDDEN], *a = &im->v[F_HEADS];
    const bool asks = im->family == FAM_LLAMA || im->family == FAM_GEMMA2
                      || im->family == FAM_VAULTGEMMA
                      || im->family == FAM_GEMMA3 || im->family == FAM_MINICPM3
                      || im->family == FAM_DEEPSEEK_V2 || im->family == FAM_CWM
                      || im->family == FAM_JAIS2
                      || im->family == FAM_HYPERCLOVAX;
    if (!asks || h->bad || a->bad || im->v[F_HEAD_DIM].bad || a->n == 0
        || h->n % a->n == 0)
        return;
    memplan_error *e = import_error(
        im, import_at(im, F_HIDDEN), MEMPLAN_E_CONFLICT,
        "'%s' (%" PRIu64 ") is not a multiple of '%s' (%" PRIu64 ")",
        import_key(im, F_HIDDEN), h->n, import_key(im, F_HEADS), a->n);
    diag_hint(e,
              "a '%s' must be one, whatever 'head_dim' says: use %" PRIu64
              " or %" PRIu64,
              family_name(im->family), h->n - h->n % a->n,
              h->n + a->n - h->n % a->n);
}

/* The halves of a head are rotated into one another. Of a part, the class
 * rounds up; the smallest heads are for tests (validate_rope). */
static void check_even(struct import *im)
{
    enum { TINY = 4 };
    const struct value *v = im->v;
    const bool latent = v[F_KV_RANK].n > 0;
    const uint64_t width = v[latent ? F_ROPE_DIM : F_HEAD_DIM].n;
    if (width <= TINY || width % 2 == 0 || v[F_ROTARY_DIM].n != width)
        return;
    if (latent) {
        memplan_error *e =
            import_error(im, import_at(im, F_ROPE_DIM), MEMPLAN_E_CONFLICT,
                         "'%s' (%" PRIu64 ") must be even, to rotate",
                         import_key(im, F_ROPE_DIM), width);
        diag_hint(e, "use %" PRIu64 " or %" PRIu64, width - 1, width + 1);
        return;
    }
    memplan_error *e = import_error(
        im, import_at(im, F_HEAD_DIM), MEMPLAN_E_CONFLICT,
        "a head of %" PRIu64 " cannot rotate: its width must be even", width);
    diag_hint(e,
              "change 'head_dim', or '%s' and '%s', of which it is the ratio",
              import_key(im, F_HIDDEN), import_key(im, F_HEADS));
}

static void check_positions(struct import *im)
{
    struct value *v = im->v;
    if (v[F_POSITION].bad)
        return;
    if (v[F_POSITION].n == POS_LEARNED && !v[F_MAX_POSITIONS].at
        && !v[F_MAX_POSITIONS].bad && v[F_MAX_POSITIONS].n == 0)
        import_missing(im, F_MAX_POSITIONS);
    if (v[F_POSITION].n != POS_ROPE) {
        v[F_ROTARY_DIM].n = 0;
        return;
    }
    if (v[F_HEAD_DIM].bad || v[F_ROTARY_PART].bad || v[F_ROTARY_DIM].bad)
        return;
    if (v[F_ROTARY_DIM].n == 0)
        v[F_ROTARY_DIM].n =
            (uint64_t)floor((double)v[F_HEAD_DIM].n * v[F_ROTARY_PART].x);
    if (v[F_ROTARY_DIM].n > v[F_HEAD_DIM].n)
        import_error(im, import_at(im, F_ROTARY_DIM), MEMPLAN_E_CONFLICT,
                     "'rotary_dim' (%" PRIu64 ") exceeds the width of a head "
                     "(%" PRIu64 ")",
                     v[F_ROTARY_DIM].n, v[F_HEAD_DIM].n);
    check_even(im);
}

/* Classes that build their experts whatever the file says: of none they would
 * make a model that does not run. */
static bool needs_experts(enum family family)
{
    static const enum family all[] = {
        FAM_MIXTRAL,     FAM_OLMOE,        FAM_GRANITEMOE,  FAM_PHIMOE,
        FAM_DBRX,        FAM_GPT_OSS,      FAM_GLM4_MOE,    FAM_DOTS1,
        FAM_DEEPSEEK_V3, FAM_DEEPSEEK_V32, FAM_ERNIE_MOE,   FAM_LLAMA4,
        FAM_GROK,        FAM_MINIMAX_M2,   FAM_SOLAR_OPEN,  FAM_GLM4_MOE_LITE,
        FAM_FLEX_OLMO,   FAM_EXAONE_MOE,   FAM_GRANITEMOES,
    };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        if (all[i] == family)
            return true;
    }
    return false;
}

static void no_experts(struct import *im)
{
    memplan_error *e =
        import_error(im, import_at(im, F_EXPERTS), MEMPLAN_E_RANGE,
                     "'%s' is 0, but a '%s' model has experts",
                     import_key(im, F_EXPERTS), family_name(im->family));
    diag_hint(e, "a dense model is of another 'model_type'");
}

static void check_experts(struct import *im)
{
    static const enum field_id parts[] = {
        F_EXPERTS_PER_TOKEN, F_EXPERT_FFN,  F_SHARED_EXPERTS,
        F_SHARED_FFN,        F_FIRST_DENSE, F_ROUTER_BIAS,
    };
    struct value *v = im->v;
    if (v[F_EXPERTS].bad)
        return;
    if (v[F_EXPERTS].n == 0 && needs_experts(im->family)) {
        no_experts(im);
        return;
    }
    const bool said = v[F_EXPERTS].at != NULL; /* that there are none */
    for (size_t i = 0; i < COUNT_OF(parts) && v[F_EXPERTS].n == 0; i++) {
        struct value *part = &v[parts[i]];
        if (part->at && part->n > 0 && !said)
            import_error(im, part->at, MEMPLAN_E_CONFLICT,
                         "'%s' is given, but 'num_experts' is not",
                         part->at->key.p);
    }
    if (v[F_EXPERTS].n == 0) { /* a file may say 0 experts, 2 or 0 per token */
        v[F_EXPERTS_PER_TOKEN].n = v[F_EXPERT_FFN].n = v[F_SHARED_FFN].n = 0;
        return;
    }
    if (v[F_EXPERTS_PER_TOKEN].at && !v[F_EXPERTS_PER_TOKEN].bad
        && v[F_EXPERTS_PER_TOKEN].n == 0)
        diag_hint(import_error(im, v[F_EXPERTS_PER_TOKEN].at, MEMPLAN_E_RANGE,
                               "'%s' is 0, but there %s %" PRIu64 " expert%s",
                               v[F_EXPERTS_PER_TOKEN].at->key.p,
                               v[F_EXPERTS].n == 1 ? "is" : "are",
                               v[F_EXPERTS].n, unit_s((double)v[F_EXPERTS].n)),
                  "use a number from 1 to that");
    if (!v[F_EXPERTS_PER_TOKEN].bad
        && v[F_EXPERTS_PER_TOKEN].n > v[F_EXPERTS].n)
        import_error(im, import_at(im, F_EXPERTS_PER_TOKEN), MEMPLAN_E_CONFLICT,
                     "'%s' (%" PRIu64 ") exceeds '%s' (%" PRIu64 ")",
                     import_key(im, F_EXPERTS_PER_TOKEN),
                     v[F_EXPERTS_PER_TOKEN].n, import_key(im, F_EXPERTS),
                     v[F_EXPERTS].n);
    if (!v[F_LAYERS].bad && v[F_FIRST_DENSE].at
        && v[F_FIRST_DENSE].n > v[F_LAYERS].n)
        import_error(im, import_at(im, F_FIRST_DENSE), MEMPLAN_E_CONFLICT,
                     "'%s' (%" PRIu64 ") exceeds '%s' (%" PRIu64 ")",
                     import_key(im, F_FIRST_DENSE), v[F_FIRST_DENSE].n,
                     import_key(im, F_LAYERS), v[F_LAYERS].n);
}

/* A width of latent attention, and nothing that is compressed. */
static void lacks_rank(struct import *im, const struct value *part)
{
    const bool is_zero = im->v[F_KV_RANK].at != NULL;
    memplan_error *e = import_error(
        im, is_zero ? im->v[F_KV_RANK].at : part->at, MEMPLAN_E_CONFLICT,
        "'%s' is given, but 'kv_lora_rank' is %s", part->at->key.p,
        is_zero ? "0" : "not");
    diag_hint(e, "'kv_lora_rank' is the width that keys and values are "
                 "compressed to: at least 1");
}

/* Null is another thing (DeepseekV3Attention and the others: is None). */
static bool has_no_columns(const struct value *rank)
{
    return rank->at && rank->at->kind == JSON_NUMBER && rank->n == 0
           && !rank->bad;
}

/* Latent attention has four widths, all or none: a key head a query head,
 * and its own rotary part whatever else tells positions. */
static void check_latent(struct import *im)
{
    static const enum field_id parts[] = { F_Q_RANK, F_NOPE_DIM, F_ROPE_DIM,
                                           F_V_DIM };
    struct value *v = im->v;
    if (v[F_KV_RANK].bad)
        return;
    const bool latent = v[F_KV_RANK].n > 0;
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        struct value *part = &v[parts[i]];
        if (!latent && part->at && part->n > 0)
            lacks_rank(im, part);
        else if (latent && parts[i] != F_Q_RANK && part->n == 0 && !part->bad)
            import_missing(im, parts[i]);
    }
    if (!latent)
        return;
    v[F_KV_HEADS] = v[F_HEADS];
    v[F_HEAD_DIM] =
        (struct value){ .n = v[F_NOPE_DIM].n + v[F_ROPE_DIM].n,
                        .bad = v[F_NOPE_DIM].bad || v[F_ROPE_DIM].bad };
    if (im->family != FAM_DECODER && v[F_INDEX_HEADS].n == 0
        && has_no_columns(&v[F_Q_RANK])) {
        diag_hint(import_error(im, v[F_Q_RANK].at, MEMPLAN_E_CONFLICT,
                               "'%s' is 0: the class compresses queries to "
                               "nothing",
                               v[F_Q_RANK].at->key.p),
                  "write null where they are not compressed");
        v[F_Q_RANK].bad = true;
    }
    if (v[F_INDEX_HEADS].n > 0 && v[F_Q_RANK].n == 0 && !v[F_Q_RANK].bad)
        import_error(im, import_at(im, F_Q_RANK), MEMPLAN_E_CONFLICT,
                     "'%s' is 0, but the indexer takes compressed queries",
                     import_key(im, F_Q_RANK));
    if (v[F_INDEX_HEADS].n > 0 && !v[F_INDEX_DIM].bad && !v[F_ROPE_DIM].bad
        && v[F_INDEX_DIM].n < v[F_ROPE_DIM].n)
        import_error(im, import_at(im, F_INDEX_DIM), MEMPLAN_E_CONFLICT,
                     "'%s' (%" PRIu64 ") is less than '%s' (%" PRIu64
                     "), which is a part of it",
                     import_key(im, F_INDEX_DIM), v[F_INDEX_DIM].n,
                     import_key(im, F_ROPE_DIM), v[F_ROPE_DIM].n);
    v[F_LATENT_NORM].n = !v[F_HAS_QK_NORM].at || v[F_HAS_QK_NORM].n;
    v[F_QK_NORM].n = QK_NONE;
    v[F_ROTARY_DIM].n = v[F_ROPE_DIM].n;
}

static void check_offset(struct import *im, enum field_id at,
                         enum field_id every)
{
    const struct value *v = im->v;
    if (v[at].bad || v[every].bad || v[every].n == 0 || v[at].n < v[every].n)
        return;
    memplan_error *e = import_error(
        im, import_at(im, at), MEMPLAN_E_CONFLICT,
        "'%s' (%" PRIu64 ") must be below '%s' (%" PRIu64 ")",
        import_key(im, at), v[at].n, import_key(im, every), v[every].n);
    diag_hint(e, "the first layer is number 0");
}

/* Heads of a state-space layer share their groups' B and C evenly. */
static void check_ssm(struct import *im)
{
    const struct value *heads = &im->v[F_SSM_HEADS];
    const struct value *groups = &im->v[F_SSM_GROUPS];
    if (im->family == FAM_JAMBA) {
        check_offset(im, F_ATTENDS_AT, F_ATTENDS_EVERY);
        check_offset(im, F_MOE_AT, F_MOE_EVERY);
    }
    if (groups->n == 0 || heads->bad || groups->bad
        || heads->n % groups->n == 0)
        return;
    memplan_error *e =
        import_error(im, import_at(im, F_SSM_GROUPS), MEMPLAN_E_CONFLICT,
                     "'%s' (%" PRIu64 ") does not divide '%s' (%" PRIu64 ")",
                     import_key(im, F_SSM_GROUPS), groups->n,
                     import_key(im, F_SSM_HEADS), heads->n);
    char list[200];
    divisors(list, sizeof(list), heads->n);
    diag_hint(e, "use one of %s", list);
}

static void settle(struct import *im)
{
    struct value *v = im->v;
    import_tie_by_whole(im);
    import_fix_family(im);
    import_class(im);
    check_latent(im);
    check_heads(im);
    check_hidden(im);
    check_decoder_heads(im);
    check_positions(im);
    check_experts(im);
    check_ssm(im);
    if (!v[F_USE_SLIDING].n)
        v[F_SLIDING_WINDOW].n = 0;
    if (v[F_SLIDING_WINDOW].n == 0)
        v[F_SLIDING_EVERY].n = v[F_SLIDING_FROM].n = 0;
}

/* ---- the file ---- */

static void check_version(struct import *im)
{
    const struct json *at = json_member(im->root, "memplan");
    im->strict = at != NULL;
    if (!at || (at->kind == JSON_NUMBER && at->number >= 1 && at->number <= 1))
        return;
    memplan_error *e;
    if (at->kind == JSON_NUMBER)
        e = import_error(im, at, MEMPLAN_E_UNSUPPORTED,
                         "this format version is not known");
    else
        e = import_error(im, at, MEMPLAN_E_SCHEMA,
                         "'memplan' must be a number, not %s",
                         json_kind_name(at->kind));
    diag_hint(e, "write \"memplan\": 1");
}

/* A string of the file, in the spec's arena; "" when there is none. In a plain
 * config.json these keys are anybody's, and other kinds are passed over. */
static const char *import_text(struct import *im, const char *key,
                               struct arena *a)
{
    const struct json *at = json_member(im->root, key);
    if (!at || at->kind == JSON_NULL)
        return "";
    if (at->kind == JSON_STRING)
        return arena_copy(a, at->text.p, at->text.n);
    if (im->strict)
        import_error(im, at, MEMPLAN_E_SCHEMA, "'%s' must be a string, not %s",
                     key, json_kind_name(at->kind));
    return "";
}

static void import_head(struct spec *out, struct import *im, const char *name,
                        struct arena *a)
{
    static const double exact_max = 9007199254740992.0; /* 2^53 */
    const struct json *at = json_member(im->root, "parameters");
    if (im->strict && at && at->kind != JSON_NULL)
        (void)import_count(im, at, 1, exact_max, &out->published_parameters);
    out->source = import_text(im, "source", a);
    out->name = import_text(im, "name", a);
    if (out->name && out->name[0] == '\0' && name)
        out->name = arena_copy(a, name, strlen(name));
}

/* The class's own depth and width, of which the file says neither. */
static bool has_default_sizes(const struct import *im)
{
    return im->absent[F_LAYERS].how == HOW_VALUE
           && im->absent[F_HIDDEN].how == HOW_VALUE
           && im->keys[F_LAYERS][0] != '\0' && im->keys[F_HIDDEN][0] != '\0'
           && !im->v[F_LAYERS].at && !im->v[F_HIDDEN].at;
}

void import_object(struct import *im, struct spec *out, struct arena *a)
{
    import_rules(im);
    import_keys(im);
    import_fields(im);
    settle(im);
    import_store(out, im);
    import_layers(im, out, a);
    if (im->family == FAM_CONVNET)
        import_convnet(im, out, a);
    out->family = im->family;
    out->model_type = arena_copy(a, im->model_type, strlen(im->model_type));
    out->read_as = im->as != NULL;
    import_stored(im, out);
    out->default_sizes = has_default_sizes(im);
    out->learned_positions =
        out->position == POS_LEARNED || im->family == FAM_LLAMA4_VISION
            ? out->max_positions + im->v[F_EXTRA_POSITIONS].n
            : 0;
    import_notes(im, out, a);
}

memplan_status spec_import(struct spec *out, const struct spec_text *in,
                           struct arena *a, struct diag *d)
{
    const struct json *root = in->root;
    struct import im = {
        .root = root, .text = in->text, .len = in->len, .as = in->as, .d = d
    };
    *out = (struct spec){ .name = "", .source = "", .model_type = "" };
    im.object = root;
    if (root->kind != JSON_OBJECT) {
        import_error(&im, root, MEMPLAN_E_SCHEMA,
                     "a model specification is an object, not %s",
                     json_kind_name(root->kind));
        return d->status;
    }
    check_version(&im);
    import_head(out, &im, in->name, a);
    if (import_choose_family(&im)) {
        import_object(&im, out, a);
        if (im.object != root)
            out->text_of = import_text(&im, "model_type", a);
        import_parts(&im, out, a);
    }
    if (!out->name || !out->source || !out->model_type
        || (im.object != root && !out->text_of))
        return diag_nomem(d);
    return d->status;
}
