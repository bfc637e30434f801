/* docs/recordings.md: what was recorded, by family, and how far memplan is from
 * it. The page is what the test makes of the recordings, to the byte; with
 * MEMPLAN_BLESS set the test writes it. */
#ifndef MEMPLAN_TESTS_RECORDINGS_H
#define MEMPLAN_TESTS_RECORDINGS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORDING_NAME = 48, RECORDING_FAMILIES = 256, PAGE_MAX = 1 << 16 };

struct recording {
    char family[RECORDING_NAME];
    unsigned files;
    unsigned kept_apart; /* files whose kept bytes are not ours */
    double peak_apart;   /* largest |ours / measured - 1| */
};

static struct recording recordings[RECORDING_FAMILIES];
static size_t n_recordings;

/* "mixtral" of "mixtral-long", "llava, parts" of "part-llava-siglip-...". */
static struct recording *recording_of(const char *family)
{
    static const char part[] = "part-";
    char name[RECORDING_NAME];
    const int is_part = strncmp(family, part, sizeof part - 1) == 0;
    const char *begin = family + (is_part ? sizeof part - 1 : 0);
    snprintf(name, sizeof name, "%.*s%s", (int)strcspn(begin, "-"), begin,
             is_part ? ", parts" : "");
    for (size_t i = 0; i < n_recordings; i++) {
        if (strcmp(recordings[i].family, name) == 0)
            return &recordings[i];
    }
    struct recording *r =
        &recordings[n_recordings < RECORDING_FAMILIES - 1 ? n_recordings++
                                                          : n_recordings];
    snprintf(r->family, sizeof r->family, "%s", name);
    return r;
}

static int recording_order(const void *a, const void *b)
{
    return strcmp(((const struct recording *)a)->family,
                  ((const struct recording *)b)->family);
}

static void page_write(char *page, size_t size)
{
    unsigned files = 0, apart = 0;
    size_t n = 0;
    qsort(recordings, n_recordings, sizeof recordings[0], recording_order);
    for (size_t i = 0; i < n_recordings; i++) {
        files += recordings[i].files;
        apart += recordings[i].kept_apart;
    }
    n += (size_t)snprintf(
        page + n, size - n,
        "# Recordings of PyTorch\n\n"
        "Written by `tests/golden/test_step.c` from `tests/golden/oracle`, and "
        "held by it.\n"
        "Each recording is a run of the real class: what autograd kept, by "
        "storage, and the\n"
        "most that lived in forward and backward (`tests/oracle/README.md`). "
        "Kept bytes are\n"
        "compared to the byte, peaks phase by phase.\n\n"
        "%u recordings; kept bytes differ in %u.\n\n"
        "| model type | recordings | kept bytes differ in | peaks differ by at "
        "most |\n"
        "| --- | ---: | ---: | ---: |\n",
        files, apart);
    for (size_t i = 0; i < n_recordings && n < size; i++)
        n += (size_t)snprintf(
            page + n, size - n, "| %s | %u | %u | %.2f %% |\n",
            recordings[i].family, recordings[i].files, recordings[i].kept_apart,
            100 * recordings[i].peak_apart);
}

/* True when the page of the tree is that of these recordings. */
static bool page_is_current(void)
{
    static char page[PAGE_MAX], there[PAGE_MAX];
    const char *path = MEMPLAN_SOURCE_DIR "/docs/recordings.md";
    page_write(page, sizeof page);
    const char *mode = getenv("MEMPLAN_BLESS") != NULL ? "w" : "r";
    FILE *f = fopen(path, mode);
    if (f == NULL)
        return false;
    if (mode[0] == 'w')
        fputs(page, f);
    else
        there[fread(there, 1, sizeof there - 1, f)] = '\0';
    fclose(f);
    if (mode[0] == 'w' || strcmp(page, there) == 0)
        return true;
    printf("docs/recordings.md is of other recordings: run this test with "
           "MEMPLAN_BLESS=1\n");
    return false;
}

#endif
