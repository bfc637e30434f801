/* What the files of Megatron's dialect share. */
#ifndef MEMPLAN_SPEC_CONFIG_MEGATRON_H
#define MEMPLAN_SPEC_CONFIG_MEGATRON_H

#include "spec/config.h"

void config_megatron_together(struct config *c);

#endif
