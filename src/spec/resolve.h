/*
 * Inside of setup_resolve(): what its five files share. resolve.c decides
 * framework, precision and kernels, resolve_layout.c how ranks, layers and
 * batches are split, resolve_training.c tokens, utilisation and price;
 * resolve_notes.c says what is taken for granted and what has no effect,
 * resolve_check.c what cannot be together and what is not modelled yet.
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

/* Word of a CHOICE key's value, for messages: static text or in buf. */
enum { RESOLVE_TEXT_MAX = 48 };
const char *resolve_text(const struct run *r, enum setup_key key,
                         char buf[RESOLVE_TEXT_MAX]);

/* Hint "use 1, 2, 4 or 8": the divisors of n > 0, the small ones if many. */
void resolve_hint_divisors(memplan_error *e, uint64_t n);

bool resolve_is_fsdp(const struct run *r);     /* either version */
bool resolve_is_megatron(const struct run *r); /* its layer code */
bool resolve_is_hf(const struct run *r);
/* Code of transformers has no loss in pieces: LitGPT's scripts are meant. */
bool resolve_is_litgpt(const struct run *r); /* its layer code */

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

void resolve_check(const struct run *r, const struct spec *spec,
                   struct diag *d);
/* The same for `compute` without a model. */
void resolve_check_alone(const struct run *r, struct diag *d);

#endif
