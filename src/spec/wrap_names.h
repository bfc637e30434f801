/*
 * Names that classes of transformers have for a layer, by which Accelerate is
 * told what FSDP makes a unit of. [transformers/models/<type>/
 * modeling_<type>.py, _no_split_modules, 5.23]
 */
#ifndef MEMPLAN_SPEC_WRAP_NAMES_H
#define MEMPLAN_SPEC_WRAP_NAMES_H

#include "base/str.h"
#include "spec/spec.h"

/* The bit of a name that is known; 0: it is not. */
uint64_t wrap_name_bit(struct str name);
/* Bits of the model's own; 0: they are not known. */
uint64_t wrap_names_of(const struct spec *spec);
/* "LlamaDecoderLayer, GPT2Block" */
enum { WRAP_NAMES_TEXT = 160 };
const char *wrap_names_text(uint64_t set, char buf[WRAP_NAMES_TEXT]);

#endif
