/*
 * Looks rows up in the accelerator catalogue (gpu.def). Knows names, not what
 * the numbers are for.
 */
#include "data/gpu.h"

#include "base/str.h"

#include "base/banned.h"

static const struct gpu rows[] = {
#include "gpu.def"
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* What str_distance looks at: no name is longer. */
enum { NAME_MAX_LEN = 63 };

/* Of Ampere and Blackwell, those with HBM are another chip: GA100 beside GA10x,
 * which move less than 1e12 bytes a second, GB100 beside GB20x, less than
 * 3e12. */
static bool has_hbm(const struct gpu *gpu)
{
    return gpu->bandwidth_bytes_s > (gpu->arch == ARCH_AMPERE ? 1e12 : 3e12);
}

unsigned gpu_capability(const struct gpu *gpu)
{
    switch (gpu->arch) {
    case ARCH_VOLTA: return 70;
    case ARCH_TURING: return 75;
    case ARCH_AMPERE: return has_hbm(gpu) ? 80 : 86;
    case ARCH_ADA: return 89;
    case ARCH_HOPPER: return 90;
    case ARCH_BLACKWELL: return has_hbm(gpu) ? 100 : 120;
    case ARCH_CDNA2:
    case ARCH_CDNA3:
    case ARCH_CDNA4: break;
    }
    return 0;
}

uint32_t gpu_threads_per_sm(const struct gpu *gpu)
{
    switch (gpu->arch) {
    case ARCH_VOLTA: return 2048;
    case ARCH_TURING: return 1024;
    case ARCH_AMPERE: return has_hbm(gpu) ? 2048 : 1536;
    case ARCH_ADA: return 1536;
    case ARCH_HOPPER: return 2048;
    case ARCH_BLACKWELL: return has_hbm(gpu) ? 2048 : 1536;
    case ARCH_CDNA2:
    case ARCH_CDNA3:
    case ARCH_CDNA4: break;
    }
    return 0;
}

size_t gpu_count(void)
{
    return ROWS;
}

const struct gpu *gpu_at(size_t i)
{
    return i < ROWS ? &rows[i] : NULL;
}

static bool is_called(const struct gpu *gpu, struct str name)
{
    if (str_same_name(name, str_of(gpu->name))
        || str_same_name(name, str_of(gpu->title)))
        return true;
    for (struct str rest = str_of(gpu->aliases); rest.n > 0;)
        if (str_same_name(name, str_cut(rest, ' ', &rest)))
            return true;
    return false;
}

const struct gpu *gpu_find(const char *name, size_t len)
{
    if (name == NULL || len == 0)
        return NULL;
    for (size_t i = 0; i < ROWS; i++)
        if (is_called(&rows[i], (struct str){ name, len }))
            return &rows[i];
    return NULL;
}

/* Of its name and its aliases, whichever is nearer. */
static unsigned distance_to(const struct gpu *gpu, struct str name)
{
    unsigned least = str_distance(name, str_of(gpu->name));
    for (struct str rest = str_of(gpu->aliases); rest.n > 0;) {
        const unsigned d = str_distance(name, str_cut(rest, ' ', &rest));
        least = d < least ? d : least;
    }
    return least;
}

const struct gpu *gpu_nearest(const char *name, size_t len)
{
    if (name == NULL || len == 0 || len > NAME_MAX_LEN)
        return NULL;
    const struct gpu *best = NULL;
    size_t least = len / 2 > 1 ? len / 2 + 1 : 2; /* must be below this */
    for (size_t i = 0; i < ROWS; i++) {
        const unsigned d = distance_to(&rows[i], (struct str){ name, len });
        if (d < least) {
            least = d;
            best = &rows[i];
        }
    }
    return best;
}
