/*
 * Owns samples of different lengths: what the setup says of them, and where it
 * cannot be. Refuses to know what follows for the allocator (src/fold).
 */
#include "spec/resolve.h"

#include "base/unit.h"

#include <inttypes.h>

#include "base/banned.h"

enum { SAMPLES = 1000 };

void resolve_lengths(struct run *r)
{
    const bool listed = r->given[KEY_LENGTHS];
    if (!listed && !r->given[KEY_LENGTH_MEAN])
        return;
    struct spread *s = &r->lengths;
    s->kind = listed ? LENGTHS_LISTED : LENGTHS_GAMMA;
    s->mean = listed ? 0 : (double)r->setup.v[KEY_LENGTH_MEAN].n;
    s->std =
        r->given[KEY_LENGTH_STD] ? (double)r->setup.v[KEY_LENGTH_STD].n : 0;
    s->samples = resolve_count(r, KEY_SAMPLES, SAMPLES);
    s->too_long =
        (enum too_long)resolve_count(r, KEY_TOO_LONG, TOO_LONG_TRUNCATE);
    resolve_assume(r, KEY_SAMPLES,
                   "%" PRIu64 " sample%s of different lengths (--samples)",
                   s->samples, unit_s((double)s->samples));
    const uint64_t longest = listed && r->setup.lengths_count > 0
                                 ? r->setup.lengths[r->setup.lengths_count - 1]
                                 : r->seq_len;
    if (longest < r->seq_len)
        resolve_note(r, KEY_COUNT,
                     "the fullest moment is of %" PRIu64
                     " tokens; the longest sample has %" PRIu64
                     ": give --seq-len %" PRIu64,
                     r->seq_len, longest, longest);
    resolve_assume(r, KEY_TOO_LONG,
                   "samples beyond %" PRIu64
                   " tokens are cut (--too-long drop leaves them out)",
                   r->seq_len);
}

/* ---- what cannot be ---- */

static void check_alone(const struct run *r, struct diag *d)
{
    static const enum setup_key keys[] = { KEY_SAMPLES, KEY_TOO_LONG };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (r->given[keys[i]])
            resolve_pointless(d, keys[i], "lengths or length_mean",
                              "add --length-mean and --length-std, or "
                              "--lengths");
    if (r->given[KEY_LENGTH_STD])
        resolve_pointless(d, KEY_LENGTH_STD, "length_mean",
                          "add --length-mean");
}

static bool ascends(const struct setup *s)
{
    for (size_t i = 1; i < s->lengths_count; i++)
        if (s->lengths[i] < s->lengths[i - 1])
            return false;
    return true;
}

static void check_given(const struct run *r, struct diag *d)
{
    const bool listed = r->given[KEY_LENGTHS];
    memplan_error *e;
    if (listed && !ascends(&r->setup)) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_LENGTHS,
                        "'lengths' do not ascend");
        diag_hint(e, "write them from the shortest sample to the longest, at "
                     "even quantiles: 60,500,2000");
    }
    if (listed && (r->given[KEY_LENGTH_MEAN] || r->given[KEY_LENGTH_STD])) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_LENGTHS,
                        "'lengths' beside a mean or a deviation");
        diag_hint(e, "leave it out, or leave mean and deviation out");
    }
    if (!listed && !r->given[KEY_LENGTH_STD]) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_LENGTH_MEAN,
                        "'length_mean' without 'length_std'");
        diag_hint(e, "add --length-std, the samples' standard deviation");
    }
}

/* Why all sequences of such a run are of one length; NULL: they are not. */
static const char *padded(const struct run *r, const struct spec *s)
{
    if (!spec_is_language(s) || s->channels > 0 || s->mel_bins > 0)
        return "a model that reads no words alone";
    if (s->vision != NULL)
        return "a model of words and images";
    if (s->decoder_layers > 0)
        return "an encoder-decoder";
    if (s->block_stride > 0)
        return "a model that pads sequences to whole blocks";
    if (r->pp > 1)
        return "a pipeline";
    if (r->cp > 1 || r->sequence_parallel)
        return "sequences that are split over ranks";
    return NULL;
}

void resolve_check_lengths(const struct run *r, const struct spec *s,
                           struct diag *d)
{
    if (r->lengths.kind == LENGTHS_EQUAL) {
        check_alone(r, d);
        return;
    }
    check_given(r, d);
    const char *why = padded(r, s);
    if (why == NULL)
        return;
    const enum setup_key key =
        r->lengths.kind == LENGTHS_LISTED ? KEY_LENGTHS : KEY_LENGTH_MEAN;
    memplan_error *e = setup_error(d, MEMPLAN_E_UNSUPPORTED, key,
                                   "'%s' with %s is not modelled yet",
                                   setup_field(key)->key, why);
    diag_hint(e, "leave it out: all sequences have seq_len");
}
