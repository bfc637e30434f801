/*
 * Owns what is remembered of a stage's moments for the stages like it; which are
 * looked at is peak.c's. [docs/method.md eq. peak]
 */
#include "fold/glances.h"

#include "base/banned.h"

/* Which of the glances a moment is part of: none of others' is the first. */
static uint32_t glance_of(const struct stage *s, const struct instant *when)
{
    if (!moment_has_others(when->phase))
        return 0;
    if (s->others == NULL)
        return 1 + when->later;
    const uint32_t chunk = stage_chunk(s, when->position);
    return 1 + 2 * (SLOT_KINDS * chunk + when->slot) + when->later;
}

/* What a stage does of these at all. */
static uint64_t others_bits(const struct stage *s, uint32_t n)
{
    uint64_t bits = 0;
    for (uint32_t i = 0; s->others != NULL && i + 1 < n; i++)
        bits |= (uint64_t)(s->others[i] != NEVER) << i;
    return bits;
}

void glances_begin(struct glances *seen, const struct stage *s)
{
    const uint32_t n = 1 + 2 * (s->others == NULL ? 1 : SLOT_KINDS * s->chunks);
    seen->n = n <= GLANCES ? n : 0;
    seen->looks = 0;
    seen->last = GLANCES;
    seen->known = others_bits(s, seen->n);
    for (uint32_t i = 0; i < seen->n; i++)
        seen->at[i].nth = 0;
}

void glances_note(struct glances *seen, const struct stage *s,
                  const struct moment *m, const struct pools *pools,
                  enum slot_kind slot)
{
    if (seen->n == 0)
        return;
    const struct instant when = { m->phase, m->position, m->later, slot };
    struct glance *g = &seen->at[glance_of(s, &when)];
    const uint64_t others = m->bytes[TERM_IN_FLIGHT];
    const uint64_t total = m->total - others;
    struct pools x = *pools;
    x.stream[STREAM_COMPUTE] -= others;
    seen->looks++;
    if (g->nth != 0)
        pools_keep(&g->pools, &x);
    else
        g->pools = x;
    if (g->nth != 0 && total <= g->total)
        return;
    g->when = when;
    g->nth = seen->looks;
    g->total = total;
}

void glances_repeat(struct glances *seen, const struct stage *s, uint32_t chunk,
                    uint32_t looks)
{
    struct glance *to = &seen->at[1 + 2 * SLOT_KINDS * chunk];
    for (uint32_t i = 0; i < 2 * SLOT_KINDS; i++) {
        to[i] = *(to + i - 2 * SLOT_KINDS);
        to[i].when.position +=
            stage_chunk_first(s, chunk) - stage_chunk_first(s, chunk - 1);
        to[i].nth += to[i].nth == 0 ? 0 : looks;
    }
    seen->looks += looks;
}

bool glances_know(uint64_t known, const struct stage *s,
                  const struct instant *when)
{
    const uint32_t i = glance_of(s, when);
    return i > 0 && (known >> (i - 1) & 1) != 0;
}

bool glances_widen(struct glances *seen, const struct stage *s)
{
    const uint64_t all = others_bits(s, seen->n) | seen->known;
    if (all == seen->known)
        return false;
    seen->known = all;
    seen->last = GLANCES;
    return true;
}

/* What stages before this one do, and it does not. */
static bool is_gone(const struct glances *seen, const struct stage *s,
                    uint32_t i)
{
    return i > 0 && (seen->known >> (i - 1) & 1) != 0
           && s->others[i - 1] == NEVER;
}

const struct glance *glances_fullest(struct pools *most,
                                     const struct glances *seen,
                                     const struct stage *s)
{
    const struct glance *fullest = &seen->at[0]; /* of a step, there always */
    uint64_t total = 0;
    for (uint32_t i = 0; i < seen->n; i++) {
        const struct glance *g = &seen->at[i];
        if (g->nth == 0 || is_gone(seen, s, i))
            continue;
        const uint64_t others = moment_of_others(s, &g->when);
        struct pools x = g->pools;
        x.stream[STREAM_COMPUTE] += others;
        pools_keep(most, &x);
        if (g->total + others > total
            || (g->total + others == total && g->nth < fullest->nth)) {
            total = g->total + others;
            fullest = g;
        }
    }
    return fullest;
}
