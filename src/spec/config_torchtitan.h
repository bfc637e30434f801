/* What the files of torchtitan's dialect share. */
#ifndef MEMPLAN_SPEC_CONFIG_TORCHTITAN_H
#define MEMPLAN_SPEC_CONFIG_TORCHTITAN_H

#include "spec/config.h"

void config_torchtitan_together(struct config *c);

#endif
