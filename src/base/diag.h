/*
 * Reporting into a caller's memplan_errors. A `struct diag` follows one public
 * call: it remembers the first status, so that decoding can go on past a bad
 * field and still return what went wrong first.
 */
#ifndef MEMPLAN_BASE_DIAG_H
#define MEMPLAN_BASE_DIAG_H

#include "base/cold.h"
#include "memplan/memplan.h"

#include <stdarg.h>

struct diag {
    memplan_errors *errs;  /* may be NULL */
    memplan_status status; /* of the first report; MEMPLAN_OK when none */
    memplan_error spare;   /* filled where there is no room in errs */
};

void diag_init(struct diag *d, memplan_errors *errs);

/* Adds an error and returns its slot, never NULL, so that pointer, line, key
 * or hint can be filled in. The message is printf-formatted. */
COLD memplan_error *diag_add(struct diag *d, memplan_status status,
                             const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;
COLD memplan_error *diag_vadd(struct diag *d, memplan_status status,
                              const char *format, va_list args)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 0)))
#endif
    ;
/* What to write instead, into a slot of diag_add. */
COLD void diag_hint(memplan_error *e, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;
/* Out of memory: message and status, no slot wanted. Returns E_NOMEM. */
COLD memplan_status diag_nomem(struct diag *d);

#endif
