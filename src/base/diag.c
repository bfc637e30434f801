/*
 * Owns the way of an error from the place that finds it to the caller's array.
 * Refuses to know what errors mean, and allocates nothing: running out of
 * memory must be reportable.
 */
#include "base/diag.h"

#include "base/str.h"

#include <string.h>

#include "base/banned.h"

void diag_init(struct diag *d, memplan_errors *errs)
{
    memset(d, 0, sizeof(*d));
    d->errs = errs;
    d->status = MEMPLAN_OK;
}

/* The next free slot, or the spare one where the report is lost. */
static memplan_error *take_slot(struct diag *d)
{
    memplan_error *e = &d->spare;
    if (d->errs) {
        if (d->errs->item && d->errs->count < d->errs->capacity)
            e = &d->errs->item[d->errs->count];
        d->errs->count++;
    }
    memset(e, 0, sizeof(*e));
    return e;
}

memplan_error *diag_vadd(struct diag *d, memplan_status status,
                         const char *format, va_list args)
{
    if (d->status == MEMPLAN_OK)
        d->status = status;
    memplan_error *e = take_slot(d);
    e->status = status;
    str_vformat(e->message, sizeof(e->message), format, args);
    return e;
}

memplan_error *diag_add(struct diag *d, memplan_status status,
                        const char *format, ...)
{
    va_list args;
    va_start(args, format);
    memplan_error *e = diag_vadd(d, status, format, args);
    va_end(args);
    return e;
}

void diag_hint(memplan_error *e, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    str_vformat(e->hint, sizeof(e->hint), format, args);
    va_end(args);
}

memplan_status diag_nomem(struct diag *d)
{
    diag_add(d, MEMPLAN_E_NOMEM, "%s", memplan_status_text(MEMPLAN_E_NOMEM));
    return MEMPLAN_E_NOMEM;
}
