/*
 * Inside of setup_resolve(): what its three files share. resolve.c decides
 * framework, precision and training run, resolve_layout.c how ranks, layers
 * and batches are split, resolve_check.c what cannot be together and what is
 * not modelled yet. Nothing else includes this.
 */
#ifndef MEMPLAN_SPEC_RESOLVE_H
#define MEMPLAN_SPEC_RESOLVE_H

#include "spec/setup.h"

/* The key's value if the user gave one, else `fallback`, which is stored: the
 * echo of the setup then has it too. */
uint64_t resolve_count(struct run *r, enum setup_key key, uint64_t fallback);
double resolve_real(struct run *r, enum setup_key key, double fallback);
bool resolve_bool(struct run *r, enum setup_key key, bool fallback);

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
bool resolve_is_hf(const struct run *r);       /* its layer code */

void resolve_layout(struct run *r, const struct spec *spec, struct diag *d);
/* GPUs and dp alone, for `compute` without a model. */
void resolve_gpus(struct run *r);

void resolve_check(const struct run *r, const struct spec *spec,
                   struct diag *d);

#endif
