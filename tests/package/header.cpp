/* header.c, in C++. */
#include <memplan/memplan.h>

int memplan_header_compiles(void);

int memplan_header_compiles(void)
{
    return MEMPLAN_VERSION_MAJOR;
}
