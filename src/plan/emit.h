/*
 * Setups as launch files: what emit.c, which writes them and believes nothing,
 * and emit_unsaid.c, which says what they leave to others, share.
 */
#ifndef MEMPLAN_PLAN_EMIT_H
#define MEMPLAN_PLAN_EMIT_H

#include "plan/report_data.h"
#include "spec/config_emit.h"

/* The dialect that is written under that name; NULL after reporting that there
 * is none. */
const struct config_dialect *emit_find_writer(const char *name, struct diag *d);

/* The one whose file a run's is when that is asked for. */
const struct config_dialect *emit_writer_for(const struct config_dialect *of,
                                             const struct run *r,
                                             struct diag *d);

/* Whose file each framework's setup is written as; NULL: nobody's alone. */
const char *emit_own_file(enum framework framework);

/* Whether two runs have a key's value, or both have no use for it. */
bool emit_same_value(const struct run *a, const struct run *b,
                     enum setup_key key);

/* What is written, read by its own dialect into `file`. Returns d's status. */
memplan_status emit_read(struct setup *file, const struct emit *e,
                         struct diag *d);

#endif
