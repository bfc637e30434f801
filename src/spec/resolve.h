/*
 * Inside of setup_resolve(): what its files share. resolve.c decides framework,
 * optimizer and adapters, resolve_precision.c and resolve_fp8.c number formats,
 * resolve_kernels.c kernels and buffers, resolve_layout.c how ranks, layers and
 * batches are split, resolve_training.c tokens, utilisation and price;
 * resolve_notes.c says what is taken for granted and what has no effect,
 * resolve_check*.c what cannot be together and what is not modelled yet.
 * Nothing else includes this.
 */
#ifndef MEMPLAN_SPEC_RESOLVE_H
#define MEMPLAN_SPEC_RESOLVE_H

#include "spec/setup.h"

/* The key's value if the user gave one, else `fallback`, which is stored: the
 * echo of the setup then has it too. */
uint64_t resolve_count(struct run *r, enum setup_key key, uint64_t fallback);
double resolve_real(struct run *r, enum setup_key key, double fallback);
bool resolve_bool(struct run *r, enum setup_key key, bool fallback);
/* Whatever the user gave. */
uint64_t resolve_force(struct run *r, enum setup_key key, uint64_t value);

/* Adds an assumption about a key, unless the user gave it. */
void resolve_assume(struct run *r, enum setup_key key, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;
/* The same, about a key that the user gave too. */
void resolve_note(struct run *r, enum setup_key key, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;

/* As resolve_assume(), of a text that is made when it is read: `pattern` with
 * the two for its '#'. Texts are static. */
void resolve_say(struct run *r, enum setup_key key, const char *pattern,
                 struct said_part first, struct said_part second);
#define SAY_NOTHING ((struct said_part){ .kind = SAID_NOTHING })
#define SAY_TEXT(s) ((struct said_part){ .kind = SAID_TEXT, .text = (s) })
#define SAY_COUNT(c) ((struct said_part){ .kind = SAID_COUNT, .n = (c) })
/* The word of a CHOICE key's value. */
static inline struct said_part resolve_word(const struct run *r,
                                            enum setup_key key)
{
    return (struct said_part){ .kind = SAID_CHOICE,
                               .key = key,
                               .n = r->setup.v[key].n };
}

/* Of prompts and prefixes, where none are given. */
enum { VIRTUAL_TOKENS = 20 };

/* Word of a CHOICE key's value, for messages: static text or in buf. */
enum { RESOLVE_TEXT_MAX = 48 };
const char *resolve_text(const struct run *r, enum setup_key key,
                         char buf[RESOLVE_TEXT_MAX]);

/* Hint "use 1, 2, 4 or 8": the divisors of n > 0, the small ones if many. */
COLD void resolve_hint_divisors(memplan_error *e, uint64_t n);

bool resolve_is_megatron(const struct run *r); /* its layer code */

/* ---- resolve_precision.c ---- */

void resolve_precision(struct run *r, const struct spec *spec);
/* The key's dtype if the user gave one, else t, which is stored. */
enum dtype resolve_dtype(struct run *r, enum setup_key key, enum dtype t);
/* What ZeRO steps, and moments of it; after adapters and offloading. */
void resolve_masters(struct run *r);
/* Of an optimizer's moments, where they are not of a format of their own. */
enum dtype resolve_moments(enum optimizer o, enum dtype otherwise);
/* Once layout is known. */
void resolve_say_precision(struct run *r);
void resolve_say_emulation(struct run *r);

/* ---- resolve_fp8.c ---- */

void resolve_fp8(struct run *r);
void resolve_say_fp8(struct run *r);
void resolve_check_fp8(const struct run *r, const struct spec *s,
                       struct diag *d);

/* ---- resolve_kernels.c ---- */

void resolve_recompute(struct run *r);
void resolve_kernels(struct run *r, const struct spec *spec);
void resolve_buffers(struct run *r, const struct spec *spec);

/* ---- resolve_padding.c ---- */

/* The setup says that batches are padded, whatever the model makes of it. */
bool resolve_pads(const struct run *r);
/* Who masks: with padding, only where some layer gets a mask by it. */
void resolve_mask(struct run *r, const struct spec *spec);
void resolve_say_padding(struct run *r, const struct spec *spec);

/* ---- resolve_lengths.c ---- */

/* Once seq_len is known. */
void resolve_lengths(struct run *r);
void resolve_check_lengths(const struct run *r, const struct spec *s,
                           struct diag *d);

/* ---- resolve_stages.c ---- */

void resolve_stages(struct run *r, const struct spec *spec, struct diag *d);

/* After the degrees (resolve_sequence.c). */
void resolve_sequence(struct run *r, const struct spec *spec);
void resolve_vocab(struct run *r, const struct spec *spec);
void resolve_layout(struct run *r, const struct spec *spec, struct diag *d);

/* GPUs and dp alone, for `compute` without a model. */
void resolve_gpus(struct run *r);

/* params: of the model, those a token sees; 0 takes the key's. spec: NULL for
 * none. */
void resolve_training(struct run *r, const struct spec *spec, uint64_t params);

void resolve_notes(struct run *r, const struct spec *spec);

/* What a model with two stacks, or of images, cannot have. */
void resolve_check_stacks(const struct run *r, const struct spec *spec,
                          struct diag *d);

/* What one with state-space layers or linear attention cannot have. */
void resolve_check_mixers(const struct run *r, const struct spec *spec,
                          struct diag *d);

/* ---- resolve_check_ranks.c ---- */

/* What Hugging Face's layers cannot have over several ranks. */
void resolve_check_ranks(const struct run *r, const struct spec *spec,
                         struct diag *d);

/* ---- resolve_check_schedule.c ---- */

/* Reports that a schedule cannot run so many micro-batches; a hint is left to
 * the caller. */
COLD memplan_error *resolve_bad_micros(const struct run *r, struct diag *d);
void resolve_check_schedule(const struct run *r, const struct spec *s,
                            struct diag *d);

/* ---- resolve_check_engine.c ---- */

void resolve_check_zero(const struct run *r, struct diag *d);
void resolve_check_offload(const struct run *r, const struct spec *s,
                           struct diag *d);
void resolve_check_projection(const struct run *r, const struct spec *s,
                              struct diag *d);
void resolve_check_precision(const struct run *r, struct diag *d);
void resolve_check_peak(const struct run *r, struct diag *d);

/* ---- resolve_check_zero.c ---- */

void resolve_check_zero_3(const struct run *r, struct diag *d);

/* ---- resolve_away.c ---- */

void resolve_say_away(struct run *r, const struct spec *spec);

/* ---- resolve_graphs.c ---- */

void resolve_graphs(struct run *r);
void resolve_say_graphs(struct run *r);
void resolve_check_graphs(const struct run *r, const struct spec *s,
                          struct diag *d);

/* ---- resolve_check_overlap.c ---- */

void resolve_check_ep_overlap(const struct run *r, const struct spec *s,
                              struct diag *d);

/* ---- resolve_check_away.c ---- */

void resolve_check_away(const struct run *r, const struct spec *s,
                        struct diag *d);

/* ---- resolve_check_kernels.c ---- */

/* Reports a key that means nothing `without` another. */
COLD void resolve_pointless(struct diag *d, enum setup_key key,
                            const char *without, const char *hint);

/* Something that stands beside a key, and should not. */
struct obstacle {
    bool here;
    enum setup_key key;
    memplan_status status;
    const char *what, *hint;
};
/* Reports the first that is here; false where none is. */
COLD bool resolve_refuse(struct diag *d, const struct obstacle *list, size_t n);

void resolve_check_recompute(const struct run *r, const struct spec *spec,
                             struct diag *d);
void resolve_check_attention(const struct run *r, const struct spec *s,
                             struct diag *d);
void resolve_check_outputs(const struct run *r, struct diag *d);

/* ---- resolve_adapters.c ---- */

/* Adapters and what is frozen, once the formats are known. */
void resolve_adapters(struct run *r, const struct spec *spec);
void resolve_check_adapters(const struct run *r, const struct spec *s,
                            struct diag *d);

/* ---- resolve_litgpt.c: nothing of other layers ---- */

void resolve_say_litgpt(struct run *r);
void resolve_check_litgpt(const struct run *r, struct diag *d);

/* ---- resolve_bridge.c: adapters of Megatron's layers ---- */

void resolve_check_bridge(const struct run *r, const struct spec *s,
                          struct diag *d);

/* ---- resolve_stored.c ---- */

/* Whether frozen weights are those of the checkpoint, which are packed; their
 * type, or else the one computed in; what is said of it. */
bool resolve_takes_stored(const struct run *r, const struct spec *spec);
enum dtype resolve_stored_base(const struct run *r, const struct spec *spec);
void resolve_say_stored(struct run *r, const struct spec *spec);
/* Keys given that change nothing (resolve_moot.c). */
void resolve_say_moot(struct run *r, const struct spec *spec);

/* ---- resolve_shape.c ---- */

/* Says where MODEL is another than a launch file's own. */
void resolve_compare_shape(struct run *r, const struct spec *spec);

/* ---- resolve_check.c ---- */

void resolve_check(const struct run *r, const struct spec *spec,
                   struct diag *d);
/* Onto a hint that names a framework whose layers are whole: degrees that chose
 * another one go too. */
void resolve_hint_whole(const struct run *r, memplan_error *e);
/* Where adapters are modelled whatever the model is. */
void resolve_hint_adapters(const struct run *r, memplan_error *e);
/* The same for `compute` without a model. */
void resolve_check_alone(const struct run *r, struct diag *d);

#endif
