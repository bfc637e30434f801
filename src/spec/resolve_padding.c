/*
 * Owns batches in which some token is masked: of which models that makes a
 * mask, and what is said where it does not. Refuses to know what the mask costs
 * (lower/hf_tables.c).
 */
#include "spec/resolve.h"

#include "base/banned.h"

/* Why a batch with padding is as one without it; NULL: it is not. */
static const char *no_padding(const struct run *r, const struct spec *spec)
{
    if (!run_is_hf(r) || run_is_litgpt(r))
        return " outside transformers' classes";
    if (r->cp > 1) /* ulysses_sp.py; accelerate's context_parallel hooks */
        return " where ranks have parts of sequences: no mask goes to "
               "attention";
    if (spec->image > 0 || spec->joint == JOINT_CLIP || spec->mel_bins > 0
        || spec_is_convnet(spec))
        return ": padding is modelled of text alone";
    if (spec->decoder_layers > 0)
        return ": padding of encoders with a decoder is not modelled";
    return spec->heads == 0 ? ": state-space layers have no mask of pairs"
                            : NULL;
}

bool resolve_pads(const struct run *r)
{
    return r->given[KEY_ATTENTION_MASK]
           && r->setup.v[KEY_ATTENTION_MASK].n == MASK_PADDING;
}

void resolve_mask(struct run *r, const struct spec *spec)
{
    r->mask =
        (enum attention_mask)resolve_count(r, KEY_ATTENTION_MASK, MASK_NONE);
    if (r->mask == MASK_PADDING && no_padding(r, spec) != NULL)
        r->mask = MASK_NONE;
}

static void say_padding(struct run *r, const struct spec *spec)
{
    const char *why = no_padding(r, spec);
    if (why != NULL)
        resolve_note(r, KEY_ATTENTION_MASK, "'attention_mask' has no effect%s",
                     why);
    else if (spec_hf_attention(spec, r->attention) == ATTN_FLASH)
        resolve_note(r, KEY_ATTENTION_MASK,
                     "flash attention runs over real tokens alone, which are "
                     "counted as all there are: the most");
    if (why == NULL && spec->mixer != MIX_ATTENTION)
        resolve_note(r, KEY_ATTENTION_MASK,
                     "what layers with a state do to padding is not modelled");
}

void resolve_say_padding(struct run *r, const struct spec *spec)
{
    if (resolve_pads(r))
        say_padding(r, spec);
    else if (r->micro_batch > 1 && no_padding(r, spec) == NULL
             && spec_hf_attention(spec, r->attention) != ATTN_EAGER)
        resolve_assume(r, KEY_ATTENTION_MASK,
                       "batches are not padded (--attention-mask)");
}
