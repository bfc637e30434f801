/*
 * When what modules of layers keep is back on the GPU: Megatron's fine-grained
 * offloading. Of a chunk's groups the last of each name stay where its backward
 * follows its forward at once; else all go, and as many as a chunk has names
 * are back ahead. The end of each module's backward brings back the latest that
 * is away, of the next chunk's where none is left. Of the first step, where all go
 * and none is ahead, nothing is known here. [Megatron-LM core/pipeline_parallel/
 * fine_grained_activation_offload.py at d98e8a64, post_warmup_callback,
 * should_bulk_offload, bulk_reload; docs/method.md eq. offload]
 */
#include "fold/stage.h"

#include "base/banned.h"

static const struct modules_walk *modules_at(const struct stage *s,
                                             uint32_t position)
{
    return s->walk[stage_block(s, position)].away.modules;
}

static unsigned names_at(const struct stage *s, uint32_t position)
{
    const struct modules_walk *m = modules_at(s, position);
    unsigned names = 0;
    for (uint32_t i = 0; i < m->n; i++)
        names |= 1u << m->group[i].id;
    return names;
}

/* The backward of this chunk follows its forward at once. */
static bool turns_at_once(const struct stage *s, uint32_t chunk)
{
    return s->chunks == 1 ? s->in_flight <= 1
                          : s->head && chunk + 1 == s->chunks;
}

/* Most names that a chunk of the rank has. */
static uint32_t names_most(const struct stage *s)
{
    uint32_t most = 0;
    for (uint32_t c = 0; c < s->chunks; c++) {
        unsigned names = 0;
        uint32_t n = 0;
        const uint32_t end = stage_chunk_first(s, c + 1);
        for (uint32_t i = stage_chunk_first(s, c); i < end; i++)
            names |= names_at(s, i);
        for (; names != 0; names &= names - 1)
            n++;
        most = n > most ? n : most;
    }
    return most;
}

/* Groups that go, in the order in which they come back. */
struct queue {
    uint64_t *bytes;
    uint32_t n, ptr; /* of them; that are back */
};

/* Those of a position that goes, but `stays`. */
static void line_up(struct queue *q, const struct stage *s, uint32_t i,
                    unsigned stays)
{
    const struct modules_walk *m = modules_at(s, i);
    struct reload *r = &s->reload[i];
    for (uint32_t k = m->committed; k-- > 0;) {
        const struct module_group *g = &m->group[m->order[k]];
        if ((stays >> g->id & 1) != 0) {
            r->stays += g->back;
            continue;
        }
        q->bytes[q->n++] = g->back;
        r->moved += g->moved;
    }
}

static uint64_t all_of(const struct modules_walk *m)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < m->n; i++)
        sum += m->group[i].back;
    return sum;
}

/* From its last layer down: which go, in q; what stays of those below each. */
static void chunk_goes(struct queue *q, const struct stage *s, uint32_t c)
{
    const bool once = turns_at_once(s, c);
    const uint32_t first = stage_chunk_first(s, c);
    unsigned seen = 0;
    uint64_t below = 0;
    for (uint32_t i = stage_chunk_first(s, c + 1); i-- > first;) {
        struct reload *r = &s->reload[i];
        const unsigned names = names_at(s, i);
        const unsigned stays = once ? names & ~seen : 0;
        seen |= names;
        *r = (struct reload){ 0 };
        s->at[i].goes = stays != names;
        if (s->at[i].goes)
            line_up(q, s, i, stays);
        r->end = q->n;
    }
    for (uint32_t i = first; i < stage_chunk_first(s, c + 1); i++) {
        s->reload[i].below = below;
        below += s->reload[i].stays;
    }
}

/* Bytes of the queue from one place to before another; those of another chunk
 * apart. */
static void comes(struct queue *q, uint32_t own, uint32_t to, uint64_t *mine,
                  uint64_t *next)
{
    for (; q->ptr < to && q->ptr < q->n; q->ptr++)
        *(q->ptr < own ? mine : next) += q->bytes[q->ptr];
}

static void chunk_comes_back(struct queue *q, const struct stage *s, uint32_t c,
                             uint32_t ahead)
{
    const bool once = turns_at_once(s, c);
    const uint32_t first = stage_chunk_first(s, c);
    const uint32_t end = stage_chunk_first(s, c + 1), own = q->n;
    uint64_t mine = 0, next = 0;
    for (uint32_t i = 0; i < ahead && i < own && !once; i++)
        q->bytes[q->n++] = q->bytes[i]; /* the next one's, which is alike */
    for (uint32_t i = first; i < end; i++)
        mine += s->reload[i].stays;
    comes(q, own, once ? 0 : ahead, &mine, &next);
    for (uint32_t i = end; i-- > first;) {
        struct reload *r = &s->reload[i];
        comes(q, own, r->end, &mine, &next);
        mine -= s->at[i].goes ? all_of(modules_at(s, i)) : 0;
        r->ahead = mine;
        r->next = next;
        r->from = q->bytes + q->ptr;
        r->own = own > q->ptr ? own - q->ptr : 0;
        r->all = q->n - q->ptr;
        comes(q, own, q->ptr + modules_at(s, i)->n, &mine, &next);
    }
}

void stage_modules_init(struct stage *s, struct memory_fold *f)
{
    const uint32_t ahead = names_most(s);
    struct queue q = { .bytes = f->reloads };
    s->reload = f->reload;
    s->ahead = 0;
    for (uint32_t c = 0; c < s->chunks; c++) {
        uint64_t most = 0;
        chunk_goes(&q, s, c);
        for (uint32_t i = 0; i < ahead && i < q.n; i++)
            most += q.bytes[i];
        if (!turns_at_once(s, c))
            s->ahead = max_u64(s->ahead, most);
        chunk_comes_back(&q, s, c, ahead);
        q = (struct queue){ .bytes = q.bytes + q.n };
    }
}

uint64_t stage_module_moves(const struct stage *s, uint32_t position)
{
    return s->reload[position].moved;
}

uint64_t stage_ahead(const struct stage *s, uint32_t position, bool back,
                     bool others)
{
    if (s->reload == NULL)
        return 0;
    const struct reload *r = &s->reload[position];
    const bool once = turns_at_once(s, stage_chunk(s, position));
    if (back)
        return r->ahead + (others ? r->next : 0);
    return r->below + (others && !once ? s->ahead : 0);
}

uint64_t stage_comes(const struct stage *s, uint32_t position, uint32_t nth,
                     bool others)
{
    const struct reload *r = &s->reload[position];
    return nth < (others ? r->all : r->own) ? r->from[nth] : 0;
}

const struct extremum *stage_modules_fullest(const struct stage *s,
                                             uint32_t position,
                                             enum wgrad_mode mode, bool others,
                                             uint64_t *ahead)
{
    const struct modules_walk *m = modules_at(s, position);
    const struct extremum *e =
        stage_module_goes(s, position) ? m->back[mode] : m->stayed[mode];
    const struct extremum *most = e;
    uint64_t there = stage_ahead(s, position, true, others);
    *ahead = there;
    for (uint32_t i = 0; i < m->n; i++) {
        there += stage_comes(s, position, i, others);
        if (extremum_total(&e[i + 1]) + there <= extremum_total(most) + *ahead)
            continue;
        most = &e[i + 1];
        *ahead = there;
    }
    return most;
}
