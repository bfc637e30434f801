/*
 * Owns what a sequence is: its length, an encoder-decoder's targets, the images
 * in it, whether ranks cut it, and the padded vocabulary of its words.
 */
#include "spec/resolve.h"

#include "base/count.h"
#include "base/unit.h"

#include <inttypes.h>

#include "base/banned.h"

enum {
    SEQ_LEN_CAP = 4096,     /* longer only when asked for */
    SEQ_LEN_UNKNOWN = 2048, /* when the model's file names no limit */
    VOCAB_MULTIPLE = 128    /* Megatron's --make-vocab-size-divisible-by */
};

/* The echo has the image of the model that reads some, and takes others. */
static void resolve_image(struct run *r, const struct spec *spec)
{
    const bool whole = spec->vision != NULL && spec->vision->merge > 0;
    const struct spec *eye = whole ? spec->vision : spec;
    const bool square = eye->image > 0; /* ViT's */
    if (eye->channels == 0
        || (square && eye->family != FAM_VIT && eye->merge == 0))
        return;
    r->setup.image[0] = (uint16_t)eye->channels;
    r->setup.image[1] = (uint16_t)(square ? eye->image : eye->resnet.height);
    r->setup.image[2] =
        (uint16_t)(square ? eye->image : eye->resnet.width_pixels);
    resolve_count(r, KEY_IMAGE, IMAGE_RANK);
    if (eye->merge > 0)
        resolve_assume(r, KEY_IMAGE,
                       "images of %" PRIu64 " x %" PRIu64 " pixels, the "
                       "largest square that the processor's defaults leave "
                       "as it is (--image)",
                       eye->image, eye->image);
}

/* What `tokens` are of, where they are not all the model's words. */
static void say_tokens(struct run *r, const struct spec *spec)
{
    if (spec_is_convnet(spec))
        resolve_note(r, KEY_COUNT, "an image counts as one token");
    else if (spec->joint == JOINT_CLIP && spec->vision != NULL)
        resolve_note(r, KEY_COUNT,
                     "a word's position counts as one token; the %" PRIu64
                     " of the image beside them do not, and their FLOPs are "
                     "in those of a token",
                     spec->vision->max_positions);
    else if (spec->channels > 0)
        resolve_note(r, KEY_COUNT, "a patch counts as one token%s",
                     spec->class_token ? ", and the class token too" : "");
    else if (spec->decoder_layers > 0)
        resolve_note(r, KEY_COUNT,
                     "a position of the source%s counts as one token; targets "
                     "do not, and their FLOPs are in those of a token",
                     spec->mel_bins > 0 ? ", two frames of the spectrum," : "");
}

/* Images among the words of a sequence; CLIP's are beside them. */
static void resolve_images(struct run *r, const struct spec *spec)
{
    if (spec->image_tokens > 0)
        r->images = resolve_count(r, KEY_IMAGES, 1);
}

/* Of positions that are learned, those that virtual tokens have. */
static uint64_t virtual_places(const struct run *r, const struct spec *spec)
{
    if (spec->position != POS_LEARNED || !r->given[KEY_PEFT_TYPE])
        return 0;
    const uint64_t type = r->setup.v[KEY_PEFT_TYPE].n;
    if (type == PEFT_LORA || type == PEFT_IA3)
        return 0;
    return r->given[KEY_NUM_VIRTUAL_TOKENS]
               ? r->setup.v[KEY_NUM_VIRTUAL_TOKENS].n
               : VIRTUAL_TOKENS;
}

static void resolve_length(struct run *r, const struct spec *spec)
{
    uint64_t limit = spec->max_positions;
    uint64_t usual = limit > 0 ? min_u64(limit, SEQ_LEN_CAP) : SEQ_LEN_UNKNOWN;
    if (spec->merge > 0) /* an image is as long as it is */
        usual = limit;
    const uint64_t taken = virtual_places(r, spec);
    if (taken > 0 && taken < limit)
        usual = min_u64(usual, limit - taken);
    r->seq_len = resolve_count(r, KEY_SEQ_LEN, usual);
    resolve_lengths(r);
    say_tokens(r, spec);
    if (limit == 0 && !spec_is_convnet(spec))
        resolve_assume(r, KEY_SEQ_LEN,
                       "sequence length %" PRIu64 ", as the model names no "
                       "limit (--seq-len)",
                       r->seq_len);
    else if (!spec_is_convnet(spec))
        resolve_say(
            r, KEY_SEQ_LEN, "sequence length #, # (--seq-len)",
            SAY_COUNT(r->seq_len),
            SAY_TEXT(r->seq_len + taken == limit && taken > 0
                         ? "the model's limit without the virtual tokens"
                     : limit <= SEQ_LEN_CAP ? "the model's limit"
                                            : "less than the model's limit"));
    if (limit > 0 && r->seq_len > limit && spec->position != POS_LEARNED)
        resolve_note(r, KEY_SEQ_LEN,
                     "sequence length %" PRIu64
                     " is beyond the model's %" PRIu64 " (--seq-len)",
                     r->seq_len, limit);
}

static void resolve_targets(struct run *r, const struct spec *spec)
{
    if (spec->decoder_layers == 0)
        return;
    const uint64_t own = spec->target_positions;
    r->decoder_seq_len =
        resolve_count(r, KEY_DECODER_SEQ_LEN, own > 0 ? own : r->seq_len);
    if (own > 0)
        resolve_assume(r, KEY_DECODER_SEQ_LEN,
                       "targets of %" PRIu64 " token%s, the model's limit "
                       "(--decoder-seq-len)",
                       own, unit_s((double)own));
    else
        resolve_assume(r, KEY_DECODER_SEQ_LEN,
                       "targets as long as sources (--decoder-seq-len)");
}

static void resolve_shards(struct run *r, const struct spec *spec)
{
    bool usual_sp =
        r->tp > 1 && !run_is_hf(r)
        && (run_engine_is_megatron(r) || r->impl == IMPL_TORCHTITAN);
    const bool encodes = spec->bidirectional && resolve_is_megatron(r);
    r->sequence_parallel =
        resolve_bool(r, KEY_SEQUENCE_PARALLEL, usual_sp && !encodes);
    if (usual_sp && encodes)
        resolve_assume(r, KEY_SEQUENCE_PARALLEL,
                       "no sequence parallelism beside tp: of an encoder it is "
                       "not modelled (--sequence-parallel)");
    else if (usual_sp)
        resolve_assume(r, KEY_SEQUENCE_PARALLEL,
                       "sequence parallelism beside tp "
                       "(--sequence-parallel)");
    if (r->tp == 1 && r->sequence_parallel) { /* Megatron does so as well */
        r->sequence_parallel = false;
        resolve_force(r, KEY_SEQUENCE_PARALLEL, 0);
        resolve_note(r, KEY_SEQUENCE_PARALLEL,
                     "'sequence_parallel' has no effect with tp 1");
    }
}

void resolve_sequence(struct run *r, const struct spec *spec)
{
    resolve_image(r, spec);
    resolve_images(r, spec);
    resolve_length(r, spec);
    resolve_targets(r, spec);
    resolve_shards(r, spec);
}

void resolve_vocab(struct run *r, const struct spec *spec)
{
    uint64_t usual = resolve_is_megatron(r) ? VOCAB_MULTIPLE * r->tp : 1;
    uint64_t multiple = resolve_count(r, KEY_VOCAB_MULTIPLE, usual);
    r->vocab = div_up(spec->vocab, multiple) * multiple;
    if (r->vocab != spec->vocab)
        resolve_assume(r, KEY_VOCAB_MULTIPLE,
                       "vocabulary padded from %" PRIu64 " to %" PRIu64
                       " (--vocab-multiple)",
                       spec->vocab, r->vocab);
}
