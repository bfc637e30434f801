/*
 * What would make it fit: single changes, each evaluated, and the shortest
 * pile of them that does. Owns the list of changes that people try, in order
 * of how little they cost; the numbers are the estimate's.
 */
#include "plan/plan.h"

#include "base/banned.h"

struct option {
    const char *key;
    const char *value;
};

/* Cheapest first: what costs nothing in time or quality comes before what
 * does. A change that the layout refuses is left out. */
static const struct option options[] = {
    { "attention", "flash" },
    { "zero", "1" },
    { "zero", "2" },
    { "zero", "3" },
    { "loss", "fused" },
    { "recompute", "selective" },
    { "recompute", "full" },
    { "micro_batch", "1" },
    { "optimizer", "adam8bit" },
};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

enum { MOST_DOUBLINGS = 8 };

struct search {
    struct memplan_report *trial;
    const struct spec *spec;
    const struct params_result *params;
    uint64_t now; /* device total as it is, by the closed form */
};

/* By the closed form; what is kept is simulated. */
static bool evaluate(struct search *s, const struct setup *setup)
{
    struct diag d;
    diag_init(&d, NULL);
    return plan_memory(s->trial, s->spec, s->params, setup, &d) == MEMPLAN_OK;
}

static bool apply(struct setup *setup, const char *key, const char *value)
{
    struct diag d;
    diag_init(&d, NULL);
    /* ZeRO above what plain DDP can do needs an engine that shards */
    if (str_is(str_of(key), "zero") && !setup->set[KEY_FRAMEWORK]
        && !setup->set[KEY_ENGINE])
        setup->set[KEY_ZERO] = false;
    return setup_set(setup, str_of(key), str_of(value), &d) == MEMPLAN_OK;
}

static void describe(char *text, size_t size, const char *key,
                     const char *value)
{
    str_append(text, size, "%s--", text[0] == '\0' ? "" : " ");
    for (const char *c = key; *c != '\0'; c++)
        str_append(text, size, "%c", *c == '_' ? '-' : *c);
    str_append(text, size, " %s", value);
}

static bool keep(struct memplan_report *r, struct memplan_report *trial,
                 const char *text)
{
    enum { INSTANT = 20000 }; /* allocations; there are several changes */
    struct diag d;
    diag_init(&d, NULL);
    const struct simulated *sim = &r->memory.stage[r->memory.worst].sim;
    const bool gave_up = sim->steps != 0 && !sim->done;
    const bool instant = !gave_up && sim->births <= INSTANT;
    if (r->n_changes == CHANGE_MAX
        || (instant && plan_allocator(trial, false, &d) != MEMPLAN_OK))
        return false;
    struct change *c = &r->change[r->n_changes++];
    str_format(c->text, sizeof c->text, "%s", text);
    c->device_total = trial->memory.device_total;
    c->peak = trial->memory.peak;
    c->fits = trial->memory.fits;
    return c->fits;
}

/* Each alone, where it helps. */
static void single(struct search *s, struct memplan_report *r,
                   const struct setup *setup, bool helps[N_OPTIONS])
{
    for (size_t i = 0; i < N_OPTIONS; i++) {
        struct setup changed = *setup;
        helps[i] = apply(&changed, options[i].key, options[i].value)
                   && evaluate(s, &changed)
                   && s->trial->memory.device_total < s->now;
        if (!helps[i])
            continue;
        char text[sizeof r->change[0].text] = "";
        describe(text, sizeof text, options[i].key, options[i].value);
        keep(r, s->trial, text);
    }
}

/* More of the same GPUs, at the same micro-batch. */
static void more_gpus(struct search *s, struct memplan_report *r,
                      const struct setup *setup)
{
    struct setup changed = *setup;
    changed.set[KEY_GLOBAL_BATCH] = changed.set[KEY_DP] = false;
    uint64_t gpus = r->run.gpus;
    for (int i = 0; i < MOST_DOUBLINGS; i++) {
        gpus *= 2;
        char value[24];
        str_format(value, sizeof value, "%llu", (unsigned long long)gpus);
        if (!apply(&changed, "gpus", value) || !evaluate(s, &changed))
            return;
        if (!s->trial->memory.fits)
            continue;
        char text[sizeof r->change[0].text] = "";
        describe(text, sizeof text, "gpus", value);
        const size_t before = r->n_changes;
        if (keep(r, s->trial, text) || r->n_changes == before)
            return;
        r->n_changes = before; /* not quite */
    }
}

/* All that helped, one after another, until it fits. */
static void pile(struct search *s, struct memplan_report *r,
                 const struct setup *setup, const bool helps[N_OPTIONS])
{
    struct setup changed = *setup;
    char text[sizeof r->change[0].text] = "";
    uint64_t least = s->now;
    unsigned piled = 0;
    for (size_t i = 0; i < N_OPTIONS; i++) {
        /* of several values of one key the last that helps */
        if (!helps[i]
            || (i + 1 < N_OPTIONS && helps[i + 1]
                && str_is(str_of(options[i].key), options[i + 1].key)))
            continue;
        struct setup more = changed;
        if (!apply(&more, options[i].key, options[i].value)
            || !evaluate(s, &more) || s->trial->memory.device_total >= least)
            continue;
        changed = more;
        least = s->trial->memory.device_total;
        describe(text, sizeof text, options[i].key, options[i].value);
        piled++;
        if (s->trial->memory.fits || i + 1 == N_OPTIONS)
            break;
    }
    if (piled > 1 && evaluate(s, &changed))
        keep(r, s->trial, text);
}

static bool any_fits(const struct memplan_report *r)
{
    for (size_t i = 0; i < r->n_changes; i++)
        if (r->change[i].fits)
            return true;
    return false;
}

/* Segments that grow: costs nothing, and only a simulation tells. */
static void other_segments(struct search *s, struct memplan_report *r,
                           const struct setup *setup)
{
    struct setup changed = *setup;
    if (r->run.fast || r->run.allocator != ALLOC_DEFAULT
        || !apply(&changed, "allocator", "expandable")
        || !evaluate(s, &changed))
        return;
    char text[sizeof r->change[0].text] = "";
    describe(text, sizeof text, "allocator", "expandable");
    const size_t before = r->n_changes;
    keep(r, s->trial, text);
    const struct memory_result *m = &s->trial->memory;
    if (!m->stage[m->worst].sim.done
        || m->device_total >= r->memory.device_total)
        r->n_changes = before;
}

static void find_changes(struct search *s, struct memplan_report *r,
                         const struct setup *setup)
{
    bool helps[N_OPTIONS];
    other_segments(s, r, setup);
    single(s, r, setup, helps);
    more_gpus(s, r, setup);
    if (!any_fits(r))
        pile(s, r, setup, helps);
}

void plan_changes(struct memplan_report *r, const struct spec *spec,
                  const struct params_result *params, const struct setup *setup)
{
    struct memplan_report *trial =
        ARENA_NEW(&r->arena, struct memplan_report, 1);
    if (trial == NULL)
        return;
    arena_init(&trial->arena, &r->arena.alloc);
    struct search s = { trial, spec, params, 0 };
    if (evaluate(&s, setup)) {
        s.now = s.trial->memory.device_total;
        find_changes(&s, r, setup);
    }
    arena_release(&trial->arena);
}
