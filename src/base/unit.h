/*
 * Numbers as people write them, and back. No locale, no strtod on slices.
 */
#ifndef MEMPLAN_BASE_UNIT_H
#define MEMPLAN_BASE_UNIT_H

#include "base/str.h"

enum unit_result { UNIT_OK, UNIT_BAD, UNIT_RANGE };

/* "64", "13B", "1.4T", "260e9", "8k" (=8000), "8Ki" (=8192), "1_000_000".
 * Suffixes k M B G T P, Ki Mi Gi Ti. Must come out whole and < 2^63. */
enum unit_result unit_parse_count(struct str text, uint64_t *out);

/* "80GiB", "24GB", "512 MiB", "1024" (bytes), "1.5TiB". Must come out below
 * 2^63; fractions of a byte are cut. */
enum unit_result unit_parse_bytes(struct str text, uint64_t *out);

/* "0.45", "1e-3", "45%" (= 0.45). Finite. */
enum unit_result unit_parse_real(struct str text, double *out);

enum { UNIT_TEXT_MAX = 40 };

/* "12.55 GiB", "512 B": binary units, 2 decimals below 100, 1 above. */
const char *unit_format_bytes(char buf[UNIT_TEXT_MAX], uint64_t bytes);
/* "6.74B", "260B", "1.4T": 3 significant digits. */
const char *unit_format_count(char buf[UNIT_TEXT_MAX], double count);
/* "45,139", "1,335.5": thousands separated, `decimals` digits after the dot */
const char *unit_format_grouped(char buf[UNIT_TEXT_MAX], double value,
                                int decimals);
/* Shortest text that reads back as the same double ("%.17g" at worst). */
const char *unit_format_double(char buf[UNIT_TEXT_MAX], double value);
/* "6.07e+09", "4.5", "12345.6": at most 6 significant digits. */
const char *unit_format_short(char buf[UNIT_TEXT_MAX], double value);
/* The plural's ending of so many things: "" of one. */
const char *unit_s(double n);
/* "2.03e+22" style for FLOPs. */
const char *unit_format_flop(char buf[UNIT_TEXT_MAX], double flop);

#endif
