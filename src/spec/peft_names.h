/*
 * Names that classes of transformers have for modules with adapters, and which
 * of ours each is. [transformers/models/<type>/modeling_<type>.py, 5.23]
 */
#ifndef MEMPLAN_SPEC_PEFT_NAMES_H
#define MEMPLAN_SPEC_PEFT_NAMES_H

#include "base/str.h"
#include "spec/setup.h"
#include "spec/spec.h"

enum { PEFT_NAMES_MAX = 64, PEFT_NAMES_TEXT = 200 };

/* Place of a name that is known; PEFT_NAMES_MAX: it is not. */
unsigned peft_name_find(struct str name);
/* In order of LORA_Q, ..., LORA_DOWN the names of Llama; NULL past the end. */
const char *peft_module(unsigned i);
/* LORA_...: what the name is in some class. */
uint64_t peft_name_words(unsigned i);
/* Bits of the names that the model's class has; 0: that is not known. */
uint64_t peft_names_of(const struct spec *spec);
/* Names that are other matrices in every class. */
uint64_t peft_names_vague(void);
/* LORA_...: what a class that has `of` means by `names`. */
uint64_t peft_names_words(uint64_t names, uint64_t of);
/* "q_proj, v_proj" */
const char *peft_names_text(uint64_t names, char buf[PEFT_NAMES_TEXT]);

#endif
