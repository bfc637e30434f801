/* The program: cli_main on the machine it runs on. */
#include "cli.h"

int main(int argc, char **argv)
{
    return cli_main(argc, argv, &host_posix);
}
