/*
 * What the fuzz targets share. A target is LLVMFuzzerTestOneInput: libFuzzer
 * calls it with what it makes up, replay.c with the files of corpus/.
 */
#ifndef MEMPLAN_FUZZ_H
#define MEMPLAN_FUZZ_H

#include "memplan/memplan.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Aborts, saying why: a finding. */
void fuzz_require(bool holds, const char *why);

/* Every status but OK comes with an error that has a text. */
void fuzz_status(memplan_status status, const memplan_errors *errs);

/* What holds of every estimate; then it is written in all ways. `quiet` says
 * that no name in it can hold "nan" or "inf". */
void fuzz_report(const memplan_report *report, bool quiet);

/* No number is printed as "nan" or "inf", unless `input` has such a word. */
bool fuzz_is_quiet(const uint8_t *input, size_t size);

#endif
