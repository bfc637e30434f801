/*
 * A pipeline's schedule run event by event over the stages' passes. Owns what
 * waits for what; refuses to know what a pass is made of.
 * [docs/method.md eq. step-time]
 */
#include "fold/time_pipe.h"

#include "fold/schedule.h"

#include <math.h>

#include "base/banned.h"

static double later(double a, double b)
{
    return b > a ? b : a;
}

/* ---- orders ---- */

/* What a stage does of any micro-batch so: rows of simulation.done that it waits
 * for and fills, one after another for micro-batches, and how long. */
struct timed {
    const double *needs;
    double *sets;
    double hop;   /* what it waits for is so long on its way to it */
    double sends; /* its rank waits so long for its own result to be sent */
    double time;
};

/* What a rank does at once, of micro-batches one after another: a pass, or two
 * that run beside each other. They begin when either can. */
struct unit {
    const double *needs[2];
    double *sets[2];
    double hop[2], time;
};
enum { UNITS = 4 };

/* Of backwards that are split: a rank's refrain at hand, and how many there were
 * before it. Steps that come once are looked up as they come. */
struct singing {
    const struct rank_order *of;
    uint32_t next, times; /* 0: all is done */
    const struct step *step, *end;
    struct unit unit[UNITS]; /* of steps that come again, */
    struct unit *at, *last;  /* ... the next, and where they end; */
    uint32_t time;           /* so often all have come */
    uint32_t before; /* micro-batches left out, of those that came before */
    const struct timed *pass[SPLIT_CHUNKS_MAX]; /* of the rank's chunks */
    double clock;
};

/* A pass of micro-batches one after another. Where backwards are not split,
 * SLOT_INPUT is the same with what the last stage defers left out. */
struct spell {
    uint32_t micro, n, pass; /* the first; the first rank's pass */
};

/* Of a rank's forwards, or backwards: the next one, and how many like it are
 * left of the spell at hand; of none it is one that never can. */
struct lane {
    const double *needs;
    double *sets, hop, sends, time;
    uint64_t left;
    const struct spell *spell, *end; /* after that */
};

struct lanes {
    struct lane there, back;
    int64_t room; /* so many more forwards may come now */
    double clock;
};

/* Both ends of DualPipe do the same at the same time: half of its ranks are run,
 * and the micro-batches of a direction. */
struct simulation {
    const struct pipe *x;
    uint64_t micros, stages, ranks;
    bool dual, joins;
    uint64_t cut;         /* micro-batches that are listed and not run */
    struct singing *song; /* [ranks], where backwards are split */
    uint64_t round;       /* else micro-batches that go one after another */
    struct lanes *lanes;  /* ... of the ranks */
    double *done; /* [ROWS], then forward and backward, [stages], of [micros]:
                     when it is; < 0: not */
    struct timed *pass; /* [stages][SLOT_KINDS] */
};

/* What nothing comes before, what nobody waits for, and what never comes. */
enum { ROW_THERE, ROW_NOBODY, ROW_NEVER, ROWS };

static double *row(const struct simulation *s, uint64_t i)
{
    return &s->done[i * s->micros];
}

/* Where that of a stage's forwards, or backwards, begins. */
static double *row_of(const struct simulation *s, bool back, uint64_t stage)
{
    return row(s, ROWS + (back ? s->stages : 0) + stage);
}

/* What each waits for, and whose it is. */
static struct timed pass_of(const struct simulation *s, enum slot_kind kind,
                            uint64_t stage)
{
    const struct pipe_pass *at = &s->x->at[stage];
    const bool first = stage == 0, last = stage + 1 == s->stages;
    const double send = s->x->send, wait = pipe_blocks(s->x->run) ? send : 0;
    const double held = pipe_takes_turns(s->x->run) ? send : 0;
    struct timed p = { .sets = row(s, ROW_NOBODY) };
    switch (kind) {
    case SLOT_FORWARD:
        p.needs = first ? row(s, ROW_THERE) : row_of(s, false, stage - 1);
        p.sets = row_of(s, false, stage);
        p.hop = first ? 0 : send - held;
        p.sends = last ? 0 : wait;
        p.time = at->forward + (first ? 0 : held);
        break;
    case SLOT_BACKWARD:
    case SLOT_INPUT:
        p.needs = last ? row_of(s, false, stage) : row_of(s, true, stage + 1);
        p.sets = row_of(s, true, stage);
        p.hop = last ? 0 : send - held;
        p.sends = first ? 0 : wait;
        p.time = at->input + (kind == SLOT_INPUT ? 0 : at->weight)
                 + (last ? 0 : held);
        if (kind == SLOT_INPUT && !run_splits_backward(s->x->run))
            p.time += at->weight - (last ? s->x->deferred_s : 0);
        break;
    case SLOT_WEIGHT:
        p.needs = row_of(s, true, stage);
        p.time = at->weight + at->remade;
        break;
    case SLOT_KINDS: break;
    }
    return p;
}

/* ---- in short ---- */

/* DualPipe's forward and the backward after it are one, kernels of both beside
 * each other: they begin and end together, but for the first backward of a rank
 * in the middle [deepseek-ai/DualPipe, dualpipe.py, step 4]. */
static bool is_joined(const struct simulation *s, const struct step *x,
                      const struct step *end)
{
    return s->joins && x->kind == SLOT_FORWARD && x + 1 < end
           && x[1].kind == SLOT_BACKWARD && x[1].micro >> s->dual > 0;
}

/* Of DualPipe the k-th micro-batch of direction d is 2 k + d. */
static inline size_t micro_of(const struct simulation *s,
                              const struct singing *o, const struct step *x)
{
    return (x->micro >> s->dual) - o->before;
}

static inline void put_pass(struct unit *u, unsigned which,
                            const struct simulation *s, const struct singing *o,
                            const struct step *x)
{
    const struct timed *p = &o->pass[x->chunk][x->kind];
    const size_t k = micro_of(s, o, x);
    u->needs[which] = p->needs + k;
    u->sets[which] = p->sets + k;
    u->hop[which] = p->hop;
    u->time = which == 0 ? p->time : u->time + p->time;
}

/* Returns what comes after it. */
static inline const struct step *put_unit(struct unit *u,
                                          const struct simulation *s,
                                          const struct singing *o,
                                          const struct step *x,
                                          const struct step *end)
{
    put_pass(u, 0, s, o, x);
    if (is_joined(s, x, end)) {
        put_pass(u, 1, s, o, x + 1);
        return x + 2;
    }
    u->needs[1] = row(s, ROW_THERE);
    u->sets[1] = row(s, ROW_NOBODY);
    u->hop[1] = 0;
    return x + 1;
}

static void next_refrain(const struct simulation *s, struct singing *o)
{
    o->times = o->time = 0;
    if (o->next == o->of->n)
        return;
    const struct refrain *x = &o->of->refrain[o->next];
    o->times = x->times - (o->next == o->of->steady ? (uint32_t)s->cut : 0);
    o->before = o->next > o->of->steady ? (uint32_t)s->cut : 0;
    o->next++;
    o->step = o->end;
    o->end += x->steps;
    if (o->times == 1)
        return;
    o->at = o->last = o->unit;
    while (o->step < o->end)
        o->step = put_unit(o->last++, s, o, o->step, o->end);
}

/* Micro-batches of a direction that are listed and not run. */
static uint64_t cut_of(const struct simulation *s)
{
    return s->x->run->grad_accum / (s->dual ? 2 : 1) - s->micros;
}

/* Whether memory's orders are those that run. */
static bool is_listed(const struct simulation *s)
{
    const struct rank_order *all = s->x->order;
    const uint64_t cut = cut_of(s);
    for (uint64_t r = 0; all != NULL && cut > 0 && r < s->ranks; r++)
        if (all[r].steady == REFRAINS_MAX
            || all[r].refrain[all[r].steady].times <= cut)
            return false;
    return all != NULL;
}

static const struct rank_order *list_orders(const struct simulation *s,
                                            struct arena *a)
{
    const struct run *run = s->x->run;
    const uint64_t both = s->dual ? 2 * s->micros : s->micros;
    const size_t n = (size_t)schedule_short_room(run, both);
    struct rank_order *all = ARENA_ROOM(a, struct rank_order, (size_t)s->ranks);
    struct step *step = ARENA_ROOM(a, struct step, (size_t)s->ranks * n);
    for (uint64_t r = 0; !a->failed && r < s->ranks; r++) {
        all[r].step = &step[r * n];
        schedule_short(&all[r], run, r, both);
    }
    return all;
}

static bool start_singing(struct simulation *s, struct arena *a)
{
    const struct run *run = s->x->run;
    const uint64_t chunks = s->dual ? 2 : run_chunks(run);
    const bool listed = is_listed(s);
    const struct rank_order *of = listed ? s->x->order : list_orders(s, a);
    s->cut = listed ? cut_of(s) : 0;
    s->song = ARENA_ROOM(a, struct singing, (size_t)s->ranks);
    for (uint64_t r = 0; !a->failed && r < s->ranks; r++) {
        struct singing *o = &s->song[r];
        for (uint64_t c = 0; c < chunks; c++)
            o->pass[c] = &s->pass[pipe_stage(run, r, c) * SLOT_KINDS];
        o->of = &of[r];
        o->end = of[r].step;
        o->next = 0;
        o->clock = 0;
        next_refrain(s, o);
    }
    return !a->failed;
}

/* Of the k-th micro-batches; false where what it waits for is not there yet. */
static inline bool run_unit(const struct unit *u, size_t k, double *clock)
{
    const double first = u->needs[0][k], second = u->needs[1][k];
    if (first < 0 || second < 0)
        return false;
    const double ready = later(*clock, first + u->hop[0]);
    *clock = later(ready, second + u->hop[1]) + u->time;
    u->sets[0][k] = u->sets[1][k] = *clock;
    return true;
}

/* The same of a pass that nothing runs beside. */
static inline bool run_alone(const struct timed *p, size_t k, double *clock)
{
    const double there = p->needs[k];
    if (there < 0)
        return false;
    p->sets[k] = *clock = later(*clock, there + p->hop) + p->time;
    return true;
}

/* Each once. Returns whether any has. */
static bool run_steps(const struct simulation *s, struct singing *o)
{
    const struct step *x = o->step, *const end = o->end;
    double clock = o->clock;
    while (x < end) {
        const struct step *next = x + 1;
        if (is_joined(s, x, end)) {
            struct unit u;
            next = put_unit(&u, s, o, x, end);
            if (!run_unit(&u, 0, &clock))
                break;
        } else if (!run_alone(&o->pass[x->chunk][x->kind], micro_of(s, o, x),
                              &clock)) {
            break;
        }
        x = next;
    }
    const bool moved = x > o->step;
    o->step = x;
    o->clock = clock;
    return moved;
}

static bool run_refrain(struct singing *o)
{
    const struct unit *const last = o->last;
    struct unit *u = o->at;
    double clock = o->clock;
    uint32_t k = o->time;
    if (!run_unit(u, k, &clock))
        return false;
    do {
        if (++u < last)
            continue;
        u = o->unit;
        if (++k == o->times)
            break;
    } while (run_unit(u, k, &clock));
    o->at = u;
    o->time = k;
    o->clock = clock;
    return true;
}

/* As far as what a rank waits for is there. */
static bool run_order(const struct simulation *s, struct singing *o)
{
    bool moved = false;
    while (o->times > 0) {
        const bool once = o->times == 1;
        if (!(once ? run_steps(s, o) : run_refrain(o)))
            break;
        moved = true;
        if (once ? o->step < o->end : o->time < o->times)
            break;
        next_refrain(s, o);
    }
    return moved;
}

/* ---- forwards and backwards by turns ---- */

/* Those that are deferred may end in the midst of one. */
static size_t spells_of(const struct simulation *s)
{
    const struct run *run = s->x->run;
    return (size_t)(div_up(s->micros, s->round) * run_chunks(run)) + 1;
}

/* Of micro-batches from `first` on, as they come to a stage of the first rank. */
static struct spell spell_of(const struct simulation *s, uint64_t first,
                             uint64_t stage, enum slot_kind kind)
{
    return (struct spell){ .micro = (uint32_t)first,
                           .n = (uint32_t)min_u64(s->round, s->micros - first),
                           .pass = (uint32_t)(stage * SLOT_KINDS + kind) };
}

/* Backwards of the chunk that the head is in: of those that are deferred, and of
 * the others. Returns how many there are. */
static size_t put_last_spells(const struct simulation *s, struct spell *to,
                              uint64_t first, uint64_t stage)
{
    const uint64_t all = s->x->run->deferred_wgrads;
    to[0] = spell_of(s, first, stage, SLOT_BACKWARD);
    if (all <= first)
        return 1;
    const uint32_t n = (uint32_t)min_u64(all - first, to[0].n);
    to[1] = to[0];
    to[0] = spell_of(s, first, stage, SLOT_INPUT);
    to[0].n = n;
    to[1].micro += n;
    to[1].n -= n;
    return to[1].n > 0 ? 2 : 1;
}

/* Rounds of micro-batches go through the chunks, backward from the last; other
 * ranks' are the same of the stages beside. Returns how many spells go back. */
static size_t put_spells(const struct simulation *s, struct spell *there,
                         struct spell *back)
{
    const uint64_t chunks = run_chunks(s->x->run);
    size_t n = 0, m = 0;
    for (uint64_t first = 0; first < s->micros; first += s->round) {
        for (uint64_t c = 0; c < chunks; c++) {
            const uint64_t stage = pipe_stage(s->x->run, 0, c);
            const uint64_t last = pipe_stage(s->x->run, 0, chunks - 1 - c);
            there[n++] = spell_of(s, first, stage, SLOT_FORWARD);
            if (c == 0)
                m += put_last_spells(s, &back[m], first, last);
            else
                back[m++] = spell_of(s, first, last, SLOT_BACKWARD);
        }
    }
    return m;
}

/* False where there is none. */
static bool next_spell(const struct simulation *s, struct lane *l,
                       uint64_t rank)
{
    if (l->spell == l->end) {
        l->needs = row(s, ROW_NEVER);
        return false;
    }
    const struct spell *x = l->spell++;
    const struct timed *p = &s->pass[x->pass + rank * SLOT_KINDS];
    l->left = x->n;
    l->needs = p->needs + x->micro;
    l->sets = p->sets + x->micro;
    l->hop = p->hop;
    l->sends = p->sends;
    l->time = p->time;
    return true;
}

static bool merge_ranks(struct simulation *s, struct arena *a)
{
    const size_t n = spells_of(s);
    struct spell *there = ARENA_ROOM(a, struct spell, n);
    struct spell *back = ARENA_ROOM(a, struct spell, n);
    s->lanes = ARENA_NEW(a, struct lanes, (size_t)s->ranks);
    if (a->failed)
        return false;
    const size_t m = put_spells(s, there, back);
    for (uint64_t r = 0; r < s->ranks; r++) {
        struct lanes *o = &s->lanes[r];
        o->there = (struct lane){ .spell = there, .end = there + n - 1 };
        o->back = (struct lane){ .spell = back, .end = back + m };
        o->room = (int64_t)stage_in_flight(s->x->run, r);
        next_spell(s, &o->there, r);
        next_spell(s, &o->back, r);
    }
    return true;
}

/* A rank's forwards are over: only backwards come. */
#define NO_ROOM (INT64_MIN / 2)

/* If what it waits for is there. */
static inline bool run_next(struct lane *l, double *clock)
{
    const double there = *l->needs;
    if (there < 0)
        return false;
    const double done = later(*clock, there + l->hop) + l->time;
    *l->sets++ = done;
    *clock = done + l->sends;
    l->needs++;
    l->left--;
    return true;
}

/* Forwards until so many are ahead, then one of each, then backwards. */
static bool run_turns(const struct simulation *s, struct lanes *o,
                      uint64_t rank)
{
    struct lane *there = &o->there, *back = &o->back;
    int64_t room = o->room;
    double clock = o->clock;
    bool moved = false;
    for (;; moved = true) {
        if (room > 0) {
            if (!run_next(there, &clock))
                break;
            room--;
            if (there->left == 0 && !next_spell(s, there, rank))
                room = NO_ROOM;
        } else {
            if (!run_next(back, &clock))
                break;
            room++;
            if (back->left == 0)
                next_spell(s, back, rank);
        }
    }
    o->room = room;
    o->clock = clock;
    return moved;
}

/* ---- all ranks ---- */

static bool run_rank(struct simulation *s, uint64_t rank)
{
    return s->song != NULL ? run_order(s, &s->song[rank])
                           : run_turns(s, &s->lanes[rank], rank);
}

/* What the last rank does when its last backward is over. */
static double flush(const struct pipe *x, uint64_t rank)
{
    return rank + 1 < x->run->pp
               ? 0
               : (double)x->run->deferred_wgrads * x->deferred_s;
}

/* When a rank's last pass is over; < 0: not yet. */
static double end_of(const struct simulation *s, uint64_t rank)
{
    double clock;
    bool over;
    if (s->song != NULL) {
        clock = s->song[rank].clock;
        over = s->song[rank].times == 0;
    } else {
        clock = s->lanes[rank].clock;
        over = s->lanes[rank].there.left == 0 && s->lanes[rank].back.left == 0;
    }
    return over ? clock + flush(s->x, rank) : -1;
}

/* Rounds over the ranks, to and fro, each as far as it comes. */
static double run_all(struct simulation *s)
{
    const uint64_t p = s->ranks;
    double longest = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint64_t r = 0; r < p; r++)
            moved = run_rank(s, r) || moved;
        for (uint64_t r = p - 1; r-- > 0;) /* the last one has just run */
            moved = run_rank(s, r) || moved;
    }
    for (uint64_t r = 0; r < p; r++) {
        const double end = end_of(s, r);
        if (end < 0)
            return -1; /* an order that waits for itself */
        longest = fmax(longest, end);
    }
    return longest;
}

static bool simulation_init(struct simulation *s, struct arena *a)
{
    const uint64_t rows = ROWS + 2 * s->stages;
    s->done = ARENA_ROOM(a, double, (size_t)(rows * s->micros));
    s->pass = ARENA_ROOM(a, struct timed, (size_t)s->stages * SLOT_KINDS);
    if (a->failed)
        return false;
    double *x = s->done;
    while (x < row(s, ROW_NEVER))
        *x++ = 0;
    for (const double *end = row(s, rows); x < end; x++)
        *x = -1;
    for (uint64_t i = 0; i < s->stages; i++)
        for (unsigned k = 0; k < SLOT_KINDS; k++)
            s->pass[i * SLOT_KINDS + k] = pass_of(s, (enum slot_kind)k, i);
    return true;
}

double pipe_run(struct pipe_run *out, const struct pipe *x, uint64_t micros,
                struct arena *a)
{
    const bool dual = schedule_is_dual(x->run);
    struct simulation s = { .x = x,
                            .micros = dual ? micros / 2 : micros,
                            .round = pipe_round(x->run),
                            .stages = pipe_stages(x->run),
                            .ranks = dual ? x->run->pp / 2 : x->run->pp,
                            .dual = dual,
                            .joins =
                                dual || x->run->schedule == SCHED_DUALPIPE_V };
    if (!simulation_init(&s, a)
        || !(run_splits_backward(x->run) ? start_singing(&s, a)
                                         : merge_ranks(&s, a)))
        return -1;
    *out = (struct pipe_run){ .micros = s.micros,
                              .round = s.round,
                              .forward = row_of(&s, false, 0) };
    return run_all(&s);
}
