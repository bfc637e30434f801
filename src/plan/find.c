/*
 * The inverse questions: the extreme value that still fits. Owns the search.
 * The closed form, whose peak the allocator can only exceed, says which
 * candidates may fit; the estimate itself, with the allocator, decides.
 * [docs/method.md eq. find]
 */
#include "plan/find.h"

#include "base/count.h"

#include <string.h>

#include "base/banned.h"

enum { AFTER_MAX = 4096 }; /* candidates looked at for the one after */

enum verdict {
    TOO_MUCH,  /* its peak alone is more than there is */
    MAY_FIT,   /* with the allocator it may not */
    REFUSED,   /* no such layout */
    NO_VERDICT /* out of memory */
};

struct search {
    struct candidates c;
    struct memplan_found *found;
    struct memplan_report *trial; /* the last candidate looked at */
    struct arena arena;
    struct diag *d;
    memplan_error why;   /* of the last that was refused */
    memplan_error first; /* of the first */
    bool gave_up;        /* simulations are too long: the closed form answers */
};

/* ---- one candidate ---- */

static enum verdict look(struct search *s, uint64_t index)
{
    memplan_error slot;
    memplan_errors errs = { &slot, 1, 0 };
    struct diag d;
    diag_init(&d, &errs);
    if (!candidates_make(&s->c, index)) {
        diag_nomem(s->d);
        return NO_VERDICT;
    }
    s->found->looked++;
    const memplan_status status = plan_memory(
        s->trial, &s->c.spec, &s->c.model->params, &s->c.changed, &d);
    if (status == MEMPLAN_E_NOMEM) {
        diag_nomem(s->d);
        return NO_VERDICT;
    }
    if (status == MEMPLAN_E_OVERFLOW)
        return TOO_MUCH;
    if (status != MEMPLAN_OK) {
        s->why = slot;
        if (s->found->refused++ == 0)
            s->first = slot;
        return REFUSED;
    }
    const struct memory_result *m = &s->trial->memory;
    return m->peak + m->outside <= m->capacity ? MAY_FIT : TOO_MUCH;
}

/* As the estimate decides it, of the candidate that was looked at. */
static bool confirm(struct search *s)
{
    const struct memory_result *m = &s->trial->memory;
    if (s->trial->run.fast || (s->gave_up && !m->fits))
        return m->fits;
    if (plan_allocator(s->trial, false, s->d) != MEMPLAN_OK)
        return false;
    const struct simulated *sim = &m->stage[m->worst].sim;
    s->gave_up = s->gave_up || (sim->steps != 0 && !sim->done);
    s->found->simulated++;
    return m->fits;
}

/* ---- the last that may fit ---- */

/* Of candidates that each need more than the one before: those that may fit
 * come first. Returns how many these are. */
static uint64_t bisect(struct search *s)
{
    uint64_t low = 0, high = 1; /* `low` of them may fit */
    while (high <= s->c.n && look(s, high - 1) == MAY_FIT) {
        low = high;
        high = min_u64(2 * high, max_u64(s->c.n, high + 1));
    }
    high = min_u64(high, s->c.n + 1);
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        if (look(s, middle - 1) == MAY_FIT)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Of models that grow, with layouts between that are impossible, or that need
 * less than a smaller one: until the peak is twice what there is. */
static uint64_t scan(struct search *s)
{
    uint64_t most = 0;
    for (uint64_t i = 0; i < s->c.n; i++) {
        const enum verdict v = look(s, i);
        const struct memory_result *m = &s->trial->memory;
        if (v == NO_VERDICT)
            break;
        if (v == MAY_FIT)
            most = i + 1;
        else if (v == TOO_MUCH
                 && (s->trial->kind == REPORT_NONE
                     || m->peak / 2 > m->capacity))
            break;
    }
    return most;
}

/* How many candidates have to be considered: those after them do not fit. */
static uint64_t count_considered(struct search *s)
{
    if (s->c.list != NULL)
        return s->c.n;
    return s->c.monotone ? bisect(s) : scan(s);
}

static bool fits(struct search *s, uint64_t index, enum verdict *v)
{
    *v = look(s, index);
    return *v == MAY_FIT && confirm(s);
}

/* Of many GPUs one more node leaves each with hardly less: once so many numbers
 * have been looked at, those are that are a 32nd more. Of a deep model each
 * simulation is long: the further below all that may fit, the wider the step. */
static uint64_t step_back(struct search *s, uint64_t i, enum verdict v,
                          uint64_t considered)
{
    enum { EACH = 128, PART = 32 };
    uint64_t step = 1;
    if (v != REFUSED && s->c.what == FIND_LAYERS)
        step += (considered - i) / 2;
    else if (v != REFUSED && s->c.what == FIND_GPUS
             && s->found->looked - s->found->refused >= EACH)
        step += (s->c.n - i) / PART;
    s->found->passed = s->found->passed || (step > 1 && i > 1);
    return i > step ? i - step : i > 1;
}

/* Candidate i - 1 fits and the one looked at before it, failed - 1, does not:
 * the last of those between that does, as if it did not fit again behind it. */
static uint64_t narrow(struct search *s, uint64_t i, uint64_t failed)
{
    enum verdict v;
    while (failed - i > 1 && s->d->status == MEMPLAN_OK) {
        const uint64_t middle = i + (failed - i) / 2;
        if (fits(s, middle - 1, &v))
            i = middle;
        else
            failed = middle;
    }
    return i;
}

/* Backwards from there: none after the first that fits does, but for numbers of
 * GPUs or layers that were passed over. */
static bool find_best(struct search *s, uint64_t *best)
{
    const uint64_t considered = count_considered(s);
    uint64_t failed = considered + 1;
    enum verdict v;
    for (uint64_t i = considered; i > 0 && s->d->status == MEMPLAN_OK;
         i = step_back(s, i, v, considered)) {
        if (fits(s, i - 1, &v)) {
            *best = narrow(s, i, failed) - 1;
            return s->d->status == MEMPLAN_OK;
        }
        failed = i;
    }
    return false;
}

/* From `index` on, the first that is possible. A list is looked through to the
 * end: of a held batch, thousands of larger numbers of GPUs are impossible. */
static bool find_possible(struct search *s, uint64_t index, uint64_t *out)
{
    const uint64_t most = s->c.list != NULL ? s->c.n
                          : s->c.monotone   ? 1
                                            : AFTER_MAX;
    const uint64_t end = min_u64(s->c.n, index + most);
    for (uint64_t i = index; i < end; i++) {
        const enum verdict v = look(s, i);
        if (v == NO_VERDICT)
            return false;
        if (v != REFUSED && s->trial->kind != REPORT_NONE) {
            *out = i;
            return true;
        }
    }
    return false;
}

/* ---- the answer ---- */

static memplan_status keep(struct search *s, uint64_t index,
                           struct memplan_report **out)
{
    if (look(s, index) == NO_VERDICT)
        return s->d->status;
    /* parameters are the candidate's, which default tokens follow */
    const struct params_result params = s->trial->params;
    *out = plan_report_new(&s->found->alloc);
    if (*out == NULL)
        return diag_nomem(s->d);
    return plan_estimate(*out, &s->c.spec, &params, &s->c.changed, s->d);
}

/* Of what is impossible for every value, the smallest one's reason has no other
 * cause: global_batch over micro_batch x dp is, with micro_batch 1, over dp. */
static memplan_status report_first(struct search *s)
{
    const uint64_t smallest = s->c.what == FIND_GPUS ? s->c.n - 1 : 0;
    if (s->c.n > 0 && look(s, smallest) == REFUSED)
        s->first = s->why;
    if (s->d->status != MEMPLAN_OK)
        return s->d->status;
    memplan_error *e = diag_add(s->d, s->first.status, "%s", s->first.message);
    str_format(e->key, sizeof e->key, "%s", s->first.key);
    diag_hint(e, "%s", s->first.hint);
    return s->d->status;
}

static void say_end(struct search *s, uint64_t best)
{
    char *text = s->found->end;
    if (best + 1 < s->c.n)
        str_format(text, FIND_TEXT, "the next is impossible: %s",
                   s->why.message);
    else if (s->c.what == FIND_GPUS)
        str_format(text, FIND_TEXT, "the layout needs as many");
    else
        str_format(text, FIND_TEXT, "there is no larger candidate");
}

static memplan_status answer(struct search *s)
{
    uint64_t best = 0, other = 0;
    const bool fits = find_best(s, &best);
    if (s->d->status != MEMPLAN_OK)
        return s->d->status;
    if (fits && keep(s, best, &s->found->best) != MEMPLAN_OK)
        return s->d->status;
    const bool after = find_possible(s, fits ? best + 1 : 0, &other);
    if (s->d->status != MEMPLAN_OK)
        return s->d->status;
    if (after)
        return keep(s, other, &s->found->next);
    if (!fits)
        return report_first(s);
    say_end(s, best);
    return MEMPLAN_OK;
}

static memplan_status find(memplan_found *found, const memplan_model *model,
                           const struct setup *setup, struct diag *d)
{
    struct arena arena;
    arena_init(&arena, &found->alloc);
    struct search *s = ARENA_NEW(&arena, struct search, 1);
    struct memplan_report *trial = ARENA_NEW(&arena, struct memplan_report, 1);
    if (s != NULL && trial != NULL) {
        s->found = found;
        s->trial = trial;
        s->d = d;
        arena_init(&s->arena, &found->alloc);
        report_arenas(trial, &found->alloc);
        s->c = (struct candidates){ .what = found->what,
                                    .model = model,
                                    .setup = setup,
                                    .list_arena = &s->arena };
        arena_init(&s->c.arena, &found->alloc);
        if (candidates_init(&s->c, found->held, d) == MEMPLAN_OK)
            answer(s);
        arena_release(&s->c.arena);
        arena_release(&s->arena);
        report_release(trial);
    } else {
        diag_nomem(d);
    }
    arena_release(&arena);
    return d->status;
}

/* ---- the public calls ---- */

static bool known_what(enum find_what *out, const char *what)
{
    for (unsigned i = 0; i < FIND_COUNT; i++) {
        *out = (enum find_what)i;
        if (str_same_name(str_of(find_name(*out)), str_of(what)))
            return true;
    }
    return false;
}

memplan_status memplan_find(memplan_found **out, const memplan_model *model,
                            const memplan_setup *setup, const char *what,
                            const memplan_allocator *allocator,
                            memplan_errors *errs)
{
    struct diag d;
    enum find_what known;
    diag_init(&d, errs);
    if (out != NULL)
        *out = NULL;
    if (out == NULL || model == NULL || setup == NULL || what == NULL) {
        diag_add(&d, MEMPLAN_E_ARG,
                 "no place for the answer, model, setup or "
                 "question");
        return d.status;
    }
    if (!known_what(&known, what)) {
        memplan_error *e = diag_add(&d, MEMPLAN_E_UNKNOWN,
                                    "'%.40s' cannot be looked for", what);
        diag_hint(e, "use micro_batch, seq_len, gpus, layers or params");
        return d.status;
    }
    const memplan_allocator a =
        allocator == NULL ? allocator_default() : *allocator;
    memplan_found *found = a.resize(a.ctx, NULL, 0, sizeof *found);
    if (found == NULL)
        return diag_nomem(&d);
    *found = (struct memplan_found){ .alloc = a, .what = known };
    if (find(found, model, &setup->setup, &d) != MEMPLAN_OK) {
        memplan_found_free(found);
        return d.status;
    }
    *out = found;
    return MEMPLAN_OK;
}

void memplan_found_free(memplan_found *found)
{
    if (found == NULL)
        return;
    const memplan_allocator a = found->alloc;
    memplan_report_free(found->best);
    memplan_report_free(found->next);
    a.resize(a.ctx, found, sizeof *found, 0);
}

bool memplan_found_value(uint64_t *out, const memplan_found *found)
{
    const bool fits = found != NULL && found->best != NULL;
    *out = fits ? find_value(found->what, found->best) : 0;
    return fits;
}

const memplan_report *memplan_found_best(const memplan_found *found)
{
    return found->best;
}

const memplan_report *memplan_found_next(const memplan_found *found)
{
    return found->next;
}
