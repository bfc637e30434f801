/*
 * Owns what can be said without an object: the version and the words for a
 * status, both from the public header's own table.
 */
#include "memplan/memplan.h"

#include "base/banned.h"

const char *memplan_version(void)
{
    return MEMPLAN_VERSION;
}

const char *memplan_status_text(memplan_status status)
{
    switch (status) {
#define STATUS_CASE(name, value, text)                                         \
    case MEMPLAN_##name: return text;
        MEMPLAN_STATUS_MAP(STATUS_CASE)
#undef STATUS_CASE
    }
    return "unknown status";
}
