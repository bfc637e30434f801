/* What the files of Megatron's dialect share. */
#ifndef MEMPLAN_SPEC_CONFIG_MEGATRON_H
#define MEMPLAN_SPEC_CONFIG_MEGATRON_H

#include "spec/config.h"

void config_megatron_together(struct config *c);

struct emit;
/* The other way: what no row says (config_megatron_emit.c). */
void config_megatron_apart(struct emit *e, const struct run *r);

/* Stages and chunks, from a layout, the ends' layers, or layers of a chunk. */
void config_megatron_stages(struct config *c);

/* What the file says of its model, into c->s->shape. */
void config_megatron_shape(struct config *c);

/* ---- config_megatron_keeps.c ---- */

enum { CONFIG_LIST_MAX = 256 };

/* "core_attn mlp", "[core_attn, mlp]", or several, as core_attn,mlp. */
void config_modules(const struct config *c, const char *flag,
                    char list[CONFIG_LIST_MAX]);
/* Modules whose activations wait on the host. */
void config_megatron_offload(struct config *c);
/* Megatron-Bridge's adapters. [config_megatron_peft.c] */
void config_megatron_peft(struct config *c);
/* CUDA graphs of layers, and back. [config_megatron_graphs.c] */
void config_megatron_graphs(struct config *c);
void config_megatron_emit_graphs(struct emit *e, const struct run *r);
/* Of a list key, each word an argument of its own (argparse, nargs). */
void config_emit_modules(struct emit *e, const struct run *r, const char *flag,
                         enum setup_key key);
/* What is made again, and what waits there, as flags. */
void config_megatron_keeps(struct emit *e, const struct run *r);

/* ---- values of flags ---- */

bool config_flag_given(const struct config *c, const char *flag);

/* 0 when absent or no number. */
uint64_t config_flag_number(const struct config *c, const char *flag);

/* The same of a flag that has no setup key to complain: reports what is none. */
uint64_t config_flag_count(struct config *c, const char *flag);

/* Sets a key to n, as the flag's doing. */
void config_flag_set(struct config *c, const char *flag, enum setup_key key,
                     uint64_t n);

#endif
