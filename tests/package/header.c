/* The public header, alone, in every language that has to understand it. */
#include <memplan/memplan.h>

int memplan_header_compiles(void);

int memplan_header_compiles(void)
{
    return MEMPLAN_VERSION_MAJOR;
}
