/*
 * Files that describe several models, a text part and a vision part: which
 * objects those are, and what stands between them. Refuses to know what either
 * part is made of.
 */
#include "spec/import.h"

#include "base/unit.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/banned.h"

static const char *const part_names[PART_COUNT] = { "text", "vision", "all" };

const char *part_name(enum part part)
{
    return part < PART_COUNT ? part_names[part] : "";
}

enum part part_find(const char *name)
{
    int i = 0;
    while (i < PART_COUNT && strcmp(name, part_names[i]) != 0)
        i++;
    return (enum part)i;
}

bool spec_says_part(const struct spec *spec, char text[PART_TEXT_MAX])
{
    if (spec->part != PART_TEXT)
        return false;
    if (spec->parts != NULL)
        str_format(text, PART_TEXT_MAX,
                   "the text part alone, of a file that has a vision part too "
                   "(--part)");
    else if (spec->text_of != NULL)
        str_format(text, PART_TEXT_MAX,
                   "the text part alone: nothing else of a '%.60s' is read",
                   spec->text_of[0] != '\0' ? spec->text_of : "whole file");
    return spec->parts != NULL || spec->text_of != NULL;
}

/* ---- which objects ---- */

/* What the parts are where they do not say it themselves: a whole's class has
 * classes of its own for them. */
static const struct whole {
    const char *type, *class_name;
    const char *text, *vision;
    enum joint joint;
    enum part usual;
    bool flat; /* files may have the text's keys at their top */
    /* whose tie_word_embeddings ties the head; of TIES_TOP what it is there by
     * default */
    enum { TIES_NONE, TIES_TEXT, TIES_TOP, TIES_EITHER } ties;
    bool tied;
    const char *tell; /* a key of its files that no other's have; or NULL */
} wholes[] = {
    { "gemma3", "Gemma3ForConditionalGeneration", "gemma3_text",
      "siglip_vision_model", JOINT_GEMMA3, PART_TEXT, false, TIES_TOP, true,
      "mm_tokens_per_image" },
    { "llama4", "Llama4ForConditionalGeneration", "llama4_text",
      "llama4_vision_model", JOINT_LLAMA4, PART_TEXT, false, TIES_TEXT, false,
      NULL },
    { "llava", "LlavaForConditionalGeneration", "llava_text",
      "clip_vision_model", JOINT_LLAVA, PART_TEXT, false, TIES_EITHER, false,
      "projector_hidden_act" },
    { "clip", "CLIPModel", "clip_text_model", "clip_vision_model", JOINT_CLIP,
      PART_ALL, true, TIES_NONE, false, "logit_scale_init_value" },
    { "qwen2_vl", "Qwen2VLForConditionalGeneration", "qwen2_vl_text",
      "qwen2_vl_vision", JOINT_QWEN, PART_TEXT, true, TIES_EITHER, false,
      "vision_config.embed_dim" },
    { "qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl_text",
      "qwen2_5_vl_vision", JOINT_QWEN, PART_TEXT, true, TIES_EITHER, false,
      "vision_config.fullatt_block_indexes" },
    { "qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe_text",
      "qwen3_vl_moe_vision", JOINT_QWEN, PART_TEXT, false, TIES_TOP, false,
      "text_config.num_experts" },
    { "qwen3_vl", "Qwen3VLForConditionalGeneration", "qwen3_vl_text",
      "qwen3_vl_vision", JOINT_QWEN, PART_TEXT, false, TIES_TOP, false,
      "vision_config.deepstack_visual_indexes" },
    { "qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe_text",
      "qwen3_5_moe_vision", JOINT_QWEN, PART_TEXT, false, TIES_TOP, false,
      NULL },
    { "qwen3_5", "Qwen3_5ForConditionalGeneration", "qwen3_5_text",
      "qwen3_5_vision", JOINT_QWEN, PART_TEXT, false, TIES_TOP, false,
      "text_config.linear_num_value_heads" },
};

static const struct whole *whole_named(const char *type)
{
    for (size_t i = 0; i < COUNT_OF(wholes); i++) {
        if (strcmp(type, wholes[i].type) == 0)
            return &wholes[i];
    }
    return NULL;
}

static const struct whole *whole_of(const struct import *im)
{
    if (im->as != NULL)
        return whole_named(im->as);
    const struct json *at = json_member(im->root, "model_type");
    if (!at || at->kind == JSON_NULL) {
        at = json_member(im->root, "architectures");
        at = at && at->kind == JSON_ARRAY ? at->child : NULL;
    }
    for (size_t i = 0; at && at->kind == JSON_STRING && i < COUNT_OF(wholes);
         i++) {
        if (str_is(at->text, wholes[i].type)
            || str_is(at->text, wholes[i].class_name))
            return &wholes[i];
    }
    return NULL;
}

const char *import_whole_text(const char *type)
{
    const struct whole *whole = whole_named(type);
    if (whole == NULL)
        return NULL;
    return whole->joint == JOINT_LLAVA ? "llama, or what it is" : whole->text;
}

const char *import_nearest_whole(const struct import *im, const char **tell)
{
    for (size_t i = 0; i < COUNT_OF(wholes); i++) {
        *tell = wholes[i].tell;
        if (*tell && import_find(im->root, str_of(*tell)))
            return wholes[i].type;
    }
    return NULL;
}

/* The first of the keys that is there and not null. */
static const struct json *first_of(const struct json *root,
                                   const char *const *keys, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct json *at = json_member(root, keys[i]);
        if (at && at->kind != JSON_NULL)
            return at;
    }
    return NULL;
}

/* CLIP's old files have ..._dict too, which then holds (CLIPConfig). */
const struct json *import_text_part(const struct import *im)
{
    static const char *const keys[] = { "text_config_dict", "text_config",
                                        "llm_config", "language_config" };
    const struct whole *whole = whole_of(im);
    const size_t skip = whole && whole->joint == JOINT_CLIP ? 0 : 1;
    const struct json *at =
        first_of(im->root, keys + skip, COUNT_OF(keys) - skip);
    return !at && whole && whole->flat ? im->root : at;
}

static const struct json *vision_part(const struct import *im,
                                      const struct whole *whole)
{
    static const char *const keys[] = { "vision_config_dict", "vision_config" };
    const bool dict = whole && whole->joint == JOINT_CLIP;
    const struct json *at =
        first_of(im->root, keys + !dict, COUNT_OF(keys) - !dict);
    return !at && dict ? im->root : at;
}

bool import_has_parts(const struct import *im)
{
    const struct json *text = import_text_part(im);
    const struct json *vision = vision_part(im, whole_of(im));
    return text && vision && vision != im->root && text->kind == JSON_OBJECT
           && vision->kind == JSON_OBJECT;
}

const char *import_text_type(const struct import *im)
{
    const struct whole *whole = whole_of(im);
    return whole != NULL ? whole->text : NULL;
}

/* True, false, or NULL. */
static const struct json *tie_flag(const struct json *object)
{
    const struct json *at = json_member(object, "tie_word_embeddings");
    return at && at->kind == JSON_BOOL ? at : NULL;
}

void import_tie_by_whole(struct import *im)
{
    struct value *tied = &im->v[F_TIED];
    const struct whole *whole = whole_of(im);
    const struct json *own = tie_flag(im->object), *top = tie_flag(im->root);
    if (im->object == im->root || im->keys[F_TIED][0] == '\0' || tied->bad)
        return;
    const bool usual =
        im->absent[F_TIED].how == HOW_VALUE && im->absent[F_TIED].n != 0;
    switch (whole != NULL ? whole->ties : TIES_NONE) {
    case TIES_NONE:
        if (!tied->at && top) {
            tied->at = top;
            tied->n = top->truth;
        }
        return;
    case TIES_TEXT:
        tied->at = own;
        tied->n = own ? own->truth : usual;
        return;
    case TIES_TOP:
        tied->at = top;
        tied->n = top ? top->truth : whole->tied;
        return;
    case TIES_EITHER:
        tied->at = top && (top->truth || !own) ? top : own;
        tied->n = (own ? own->truth : usual) || (top && top->truth);
        return;
    }
}

bool import_is_llava(const struct import *im)
{
    const struct whole *whole = whole_of(im);
    return whole != NULL && whole->joint == JOINT_LLAVA;
}

/* ---- between the parts ---- */

/* A key of the whole; what its class has where it is not there. */
static uint64_t whole_count(struct import *im, const char *key, uint64_t usual)
{
    const struct json *at = json_member(im->root, key);
    uint64_t n = usual;
    if (at && at->kind != JSON_NULL)
        (void)import_count(im, at, 1, 2147483648.0, &n);
    return n;
}

static void join_gemma3(struct import *im, struct spec *all)
{
    const struct spec *v = all->vision;
    all->image_tokens = whole_count(im, "mm_tokens_per_image", 256);
    const uint64_t side = v->patch > 0 ? v->image / v->patch : 0;
    const uint64_t tokens = (uint64_t)sqrt((double)all->image_tokens);
    if (tokens > 0 && side >= tokens)
        return;
    memplan_error *e = import_error(
        im, json_member(im->root, "mm_tokens_per_image"), MEMPLAN_E_CONFLICT,
        "'mm_tokens_per_image' (%" PRIu64 ") exceeds the %" PRIu64 " patches "
        "of an image",
        all->image_tokens, side * side);
    diag_hint(e, "use %" PRIu64 " or less", side * side);
}

static void join_llama4(struct spec *all)
{
    const struct spec *v = all->vision;
    const uint64_t side = v->patch > 0 ? v->image / v->patch : 0;
    const double short_side = (double)side * v->pixel_shuffle;
    all->image_tokens = (uint64_t)(short_side * short_side);
}

/* Number i of states, 0 those of the embedding; from the last one backwards
 * below 0. */
static void use_states(struct import *im, const struct json *at, double i,
                       struct spec *all)
{
    const double n = (double)all->vision->layers + 1;
    const double own = i < 0 ? i + n : i;
    if (own >= 0 && own < n && own <= floor(own)) {
        const uint64_t unused = all->vision->layers - (uint64_t)own;
        if (unused < all->unused_layers)
            all->unused_layers = unused;
        return;
    }
    memplan_error *e = import_error(im, at, MEMPLAN_E_CONFLICT,
                                    "'vision_feature_layer' (%g) of a vision "
                                    "part of %" PRIu64 " layer%s",
                                    i, all->vision->layers,
                                    unit_s((double)all->vision->layers));
    diag_hint(e, "use -%" PRIu64 " to %" PRIu64 ", which is the last layer's",
              all->vision->layers + 1, all->vision->layers);
}

/* The class takes a lone 0 for no states at all. */
static bool is_number(struct import *im, const struct json *at, bool lone)
{
    if (at->kind == JSON_NUMBER && (!lone || at->number < 0 || at->number > 0))
        return true;
    memplan_error *e = import_error(
        im, at, MEMPLAN_E_SCHEMA, "'vision_feature_layer' must be %s",
        at->kind == JSON_NUMBER ? "another number than 0"
                                : "a number, or a list of such");
    diag_hint(e, "-2 is the last layer but one");
    return false;
}

static void use_layers(struct import *im, const struct json *at,
                       struct spec *all)
{
    const bool list = at && at->kind == JSON_ARRAY && at->child;
    all->joint_layers = 1;
    all->unused_layers = all->vision->layers;
    if (!at || at->kind == JSON_NULL) {
        use_states(im, at, -2, all);
    } else if (!list) {
        if (is_number(im, at, true))
            use_states(im, at, at->number, all);
    } else {
        all->joint_layers = 0;
        for (at = at->child; at; at = at->next) {
            all->joint_layers++;
            if (is_number(im, at, false))
                use_states(im, at, at->number, all);
        }
    }
}

/* A key that is true or false; with `no`, the word "default" or that one. */
static bool whole_word(struct import *im, const char *key, const char *no,
                       bool usual)
{
    const struct json *at = json_member(im->root, key);
    const bool strategy = no != NULL;
    if (!at || at->kind == JSON_NULL)
        return usual;
    if (!strategy && at->kind == JSON_BOOL)
        return at->truth;
    if (strategy && at->kind == JSON_STRING && str_is(at->text, no))
        return false;
    if (strategy && at->kind == JSON_STRING && str_is(at->text, "default"))
        return true;
    memplan_error *e =
        import_error(im, at, MEMPLAN_E_SCHEMA, "'%s' must be %s", key,
                     strategy ? "\"default\" or \"full\"" : "true or false");
    diag_hint(e, "leave it out for the class's own");
    return usual;
}

static void join_llava(struct import *im, struct spec *all)
{
    const struct json *act = json_member(im->root, "projector_hidden_act");
    all->joint_bias = whole_word(im, "multimodal_projector_bias", NULL, true);
    all->joint_crops =
        whole_word(im, "vision_feature_select_strategy", "full", true);
    all->joint_act = ACT_GELU;
    if (act && act->kind != JSON_NULL)
        (void)import_activation(im, act, &all->joint_act);
    use_layers(im, json_member(im->root, "vision_feature_layer"), all);
    all->image_tokens = all->vision->max_positions - (all->joint_crops ? 1 : 0);
}

static uint64_t merged_tokens(const struct spec *v)
{
    return v->max_positions / (v->merge * v->merge);
}

memplan_status spec_set_whole_image(struct spec *spec, struct spec *vision,
                                    const uint16_t image[3], struct diag *d)
{
    if (spec_set_image(vision, image, d) != MEMPLAN_OK)
        return d->status;
    spec->vision = vision;
    spec->image_tokens = merged_tokens(vision);
    return MEMPLAN_OK;
}

static void join(struct import *im, const struct whole *whole, struct spec *all)
{
    all->joint = whole->joint;
    switch (whole->joint) {
    case JOINT_GEMMA3: join_gemma3(im, all); break;
    case JOINT_LLAMA4: join_llama4(all); break;
    case JOINT_LLAVA: join_llava(im, all); break;
    case JOINT_QWEN: all->image_tokens = merged_tokens(all->vision); break;
    case JOINT_CLIP:
        all->joint_width = whole_count(im, "projection_dim", 512);
        break;
    case JOINT_NONE: break;
    }
}

/* ---- notes ---- */

enum { WHOLE_KEYS = 4 };

static void say_number(struct whole_key *out, const char *key, uint64_t n)
{
    out->key = key;
    str_format(out->value, sizeof(out->value), "%" PRIu64, n);
}

static void say_word(struct whole_key *out, const char *key, const char *word)
{
    out->key = key;
    str_format(out->value, sizeof(out->value), "%s", word);
}

static size_t llava_keys(const struct spec *all, struct whole_key *out)
{
    say_word(&out[0], "vision_feature_select_strategy",
             all->joint_crops ? "\"default\"" : "\"full\"");
    say_word(&out[1], "multimodal_projector_bias",
             all->joint_bias ? "true" : "false");
    out[2].key = "vision_feature_layer";
    out[2].value[0] = '\0';
    if (all->joint_layers == 1)
        str_format(out[2].value, sizeof(out[2].value), "-%" PRIu64,
                   all->unused_layers + 1);
    /* a word of the file, or the class's */
    say_word(&out[3], "projector_hidden_act",
             all->joint_act == ACT_GELU ? "\"gelu\"" : "");
    return 4;
}

static void note_whole(struct import *im, const struct whole *whole,
                       struct spec *all, struct arena *a)
{
    struct whole_key keys[WHOLE_KEYS];
    size_t n = 0;
    switch (all->joint) {
    case JOINT_GEMMA3:
        say_number(&keys[n++], "mm_tokens_per_image", all->image_tokens);
        break;
    case JOINT_LLAVA: n = llava_keys(all, keys); break;
    case JOINT_CLIP:
        say_number(&keys[n++], "projection_dim", all->joint_width);
        break;
    case JOINT_LLAMA4:
    case JOINT_QWEN:
    case JOINT_NONE: break;
    }
    if (whole->ties == TIES_TOP)
        say_word(&keys[n++], "tie_word_embeddings",
                 all->tied ? "true" : "false");
    import_whole_notes(im, all, keys, n, a);
}

/* ---- the parts ---- */

static struct spec *copy_of(struct import *im, const struct spec *spec,
                            struct arena *a)
{
    struct spec *copy = ARENA_NEW(a, struct spec, 1);
    if (copy != NULL)
        *copy = *spec;
    else
        (void)diag_nomem(im->d);
    return copy;
}

/* A part that is there and cannot be read: only who asks for it is told. */
static const char *why_missing(const struct json *at, const struct whole *whole,
                               struct arena *a)
{
    char text[160];
    const struct json *type = json_member(at, "model_type");
    size_t n;
    if (at->kind != JSON_OBJECT)
        n = str_format(text, sizeof(text), "'%.40s' must be an object, not %s",
                       at->key.p, json_kind_name(at->kind));
    else if (type && type->kind == JSON_STRING)
        n = str_format(text, sizeof(text),
                       "a vision part of type '%.40s' is not modelled",
                       type->text.p);
    else
        n = str_format(text, sizeof(text),
                       whole ? "this vision part is not modelled"
                             : "a vision part that does not say its "
                               "'model_type' is not modelled");
    return arena_copy(a, text, n);
}

/* What the vision part says it is; files of Qwen's say the whole's type. */
static const char *vision_type(const struct import *im, const struct json *at,
                               const struct whole *whole)
{
    const struct json *own = json_member(at, "model_type");
    const char *usual = whole != NULL ? whole->vision : "";
    if (at == im->root || !own || own->kind != JSON_STRING)
        return usual;
    struct import named = { 0 };
    const bool strange = im->as != NULL && !import_named(&named, own->text.p);
    return whole != NULL && (strange || str_is(own->text, whole->type))
               ? usual
               : own->text.p;
}

/* Parts of a file whose type is not known: what would join them. */
static const char *unjoined(const struct import *im, const struct whole *whole,
                            struct arena *a)
{
    char text[200];
    const struct json *type = json_member(im->root, "model_type");
    if (whole != NULL)
        return "";
    const bool said = type && type->kind == JSON_STRING;
    const size_t n = str_format(
        text, sizeof(text),
        "what joins the parts of a '%.40s' is not known: if it is a projector "
        "as LLaVA's, --as llava reads it so",
        said ? type->text.p : "file without a 'model_type'");
    return arena_copy(a, text, n);
}

static struct spec *read_vision(struct import *im, const struct json *at,
                                const struct whole *whole, struct arena *a)
{
    struct import v = {
        .root = im->root, .text = im->text, .len = im->len, .d = im->d
    };
    const struct json *own = json_member(at, "model_type");
    if (at->kind != JSON_OBJECT)
        return NULL;
    struct spec *spec = ARENA_NEW(a, struct spec, 1);
    if (spec == NULL) {
        (void)diag_nomem(im->d);
        return NULL;
    }
    *spec = (struct spec){ .name = "", .source = "", .model_type = "" };
    v.object = at;
    v.model_type = vision_type(im, at, whole);
    if ((own && own->kind == JSON_STRING && strlen(own->text.p) < own->text.n)
        || !import_named(&v, v.model_type) || !family_is_vision(v.family))
        return NULL;
    import_object(&v, spec, a);
    spec->part = PART_VISION;
    return spec;
}

void import_parts(struct import *im, struct spec *out, struct arena *a)
{
    const struct whole *whole = whole_of(im);
    if (im->strict || (im->as != NULL && whole == NULL)
        || im->d->status != MEMPLAN_OK)
        return;
    const struct json *at = vision_part(im, whole);
    if (!at || (!whole && im->object == im->root))
        return;
    struct spec_parts *parts = ARENA_NEW(a, struct spec_parts, 1);
    struct spec *vision = read_vision(im, at, whole, a);
    if (parts == NULL) {
        (void)diag_nomem(im->d);
        return;
    }
    *parts = (struct spec_parts){ .usual = PART_TEXT,
                                  .missing = "",
                                  .unjoined = unjoined(im, whole, a) };
    out->parts = parts;
    if (im->d->status != MEMPLAN_OK)
        return;
    parts->part[PART_TEXT] = copy_of(im, out, a);
    if (vision == NULL) {
        parts->missing = why_missing(at, whole, a);
        return;
    }
    vision->name = out->name;
    vision->source = out->source;
    vision->parts = parts;
    parts->part[PART_VISION] = vision;
    if (!whole || whole->joint == JOINT_NONE)
        return;
    struct spec *all = copy_of(im, out, a);
    if (all == NULL)
        return;
    all->part = PART_ALL;
    all->vision = vision;
    all->model_type = whole->type;
    join(im, whole, all);
    note_whole(im, whole, all, a);
    parts->part[PART_ALL] = all;
    parts->usual = whole->usual;
    if (whole->usual == PART_ALL)
        *out = *all;
}
