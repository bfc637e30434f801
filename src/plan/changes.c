/*
 * What would make it fit: single changes, each evaluated, and the shortest
 * pile of them that does. Owns the list of changes that people try, in order
 * of how little they cost; the numbers are the estimate's.
 */
#include "plan/plan.h"

#include <string.h>

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
    { "offload_optimizer", "cpu" },
    { "offload_params", "cpu" },
};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

enum { MOST_DOUBLINGS = 8 };

struct search {
    const struct memplan_report *report;
    struct changes *out;
    struct memplan_report *trial;
    uint64_t now; /* device total as it is, by the closed form */
    uint64_t gpus;
    bool gave_up; /* too many allocations: the closed form is the answer */
    bool failed;  /* out of memory */
};

/* By the closed form, which tells what is worth a simulation. */
static bool evaluate(struct search *s, const struct setup *setup)
{
    struct diag d;
    diag_init(&d, NULL);
    const memplan_status status = plan_memory(
        s->trial, &s->report->spec, &s->report->question->params, setup, &d);
    s->failed = s->failed || status == MEMPLAN_E_NOMEM;
    return status == MEMPLAN_OK;
}

/* Of what was evaluated, as the estimate itself does: what is shown is what
 * the changed command prints. Where the estimate's simulation was given up,
 * each of these would be, after half a second. */
static bool simulate(struct search *s)
{
    struct diag d;
    diag_init(&d, NULL);
    if (s->gave_up || plan_allocator(s->trial, false, &d) == MEMPLAN_OK)
        return true;
    s->failed = true;
    return false;
}

/* The allocator reserves what is allocated at the peak, or more. */
static bool may_fit(const struct search *s)
{
    const struct memory_result *m = &s->trial->memory;
    return m->fits || s->gave_up
           || m->peak + m->outside <= s->trial->run.capacity_bytes;
}

static bool fits(struct search *s)
{
    return may_fit(s) && simulate(s) && s->trial->memory.fits;
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

/* The trial, simulated. */
static void keep(const struct search *s, const char *text)
{
    const struct memory_result *m = &s->trial->memory;
    struct changes *out = s->out;
    if (out->n == CHANGE_MAX
        || m->device_total >= s->report->memory.device_total)
        return;
    struct change *c = &out->row[out->n++];
    str_format(c->text, sizeof c->text, "%s", text);
    c->device_total = m->device_total;
    c->peak = m->peak;
    c->host_node = m->offload.host_node;
    c->fits = m->fits;
    c->lower_stage = s->trial->run.zero < s->report->run.zero;
}

/* FlashAttention has no kernels of 32 bits. */
static bool can_run(const struct memplan_report *trial)
{
    return trial->run.attention != ATTN_FLASH
           || trial->run.prec.compute != DT_FP32;
}

/* ZeRO has nothing to share with nobody: what helps then is what else its
 * engine does, and not what it is asked for. */
static bool shares_nothing(const struct memplan_report *trial,
                           const struct option *o)
{
    return strcmp(o->key, "zero") == 0 && trial->run.shard <= 1;
}

/* Each alone, where it helps. */
static void single(struct search *s, const struct setup *setup,
                   bool helps[N_OPTIONS])
{
    for (size_t i = 0; i < N_OPTIONS; i++) {
        struct setup changed = *setup;
        helps[i] = apply(&changed, options[i].key, options[i].value)
                   && evaluate(s, &changed) && can_run(s->trial)
                   && !shares_nothing(s->trial, &options[i])
                   && s->trial->memory.device_total < s->now;
        if (!helps[i] || !simulate(s))
            continue;
        char text[CHANGE_TEXT_MAX] = "";
        describe(text, sizeof text, options[i].key, options[i].value);
        keep(s, text);
    }
}

/* Sets a number that was given, `times` of it, and says so. */
static bool scale(struct setup *setup, enum setup_key key, uint64_t times,
                  char text[CHANGE_TEXT_MAX])
{
    char value[24];
    const char *name = setup_field(key)->key;
    str_format(value, sizeof value, "%llu",
               (unsigned long long)(setup->v[key].n * times));
    describe(text, CHANGE_TEXT_MAX, name, value);
    return apply(setup, name, value);
}

/* A batch that does not split over so many ranks grows with them. */
static bool evaluate_gpus(struct search *s, const struct setup *setup,
                          uint64_t times, char text[CHANGE_TEXT_MAX])
{
    struct setup changed = *setup;
    text[0] = '\0';
    changed.v[KEY_GPUS].n = s->gpus;
    if (!scale(&changed, KEY_GPUS, times, text)
        || (setup->set[KEY_DP] && !scale(&changed, KEY_DP, times, text)))
        return false;
    return evaluate(s, &changed)
           || (setup->set[KEY_GLOBAL_BATCH]
               && scale(&changed, KEY_GLOBAL_BATCH, times, text)
               && evaluate(s, &changed));
}

/* More of the same GPUs. */
static void more_gpus(struct search *s, const struct setup *setup)
{
    char text[CHANGE_TEXT_MAX];
    s->gpus = s->report->run.gpus;
    for (unsigned i = 1; i <= MOST_DOUBLINGS; i++) {
        if (!evaluate_gpus(s, setup, UINT64_C(1) << i, text))
            return;
        if (!fits(s))
            continue;
        keep(s, text);
        return;
    }
}

/* Of several values of one key the last that helps is the one. */
static bool further_helps(const bool helps[N_OPTIONS], size_t i)
{
    for (size_t k = i + 1; k < N_OPTIONS; k++)
        if (helps[k] && strcmp(options[k].key, options[i].key) == 0)
            return true;
    return false;
}

/* All that helped, one after another, until it fits. */
static void pile(struct search *s, const struct setup *setup,
                 const bool helps[N_OPTIONS])
{
    struct setup changed = *setup;
    char text[CHANGE_TEXT_MAX] = "";
    uint64_t least = s->now;
    unsigned piled = 0;
    for (size_t i = 0; i < N_OPTIONS; i++) {
        if (!helps[i] || further_helps(helps, i))
            continue;
        struct setup more = changed;
        if (!apply(&more, options[i].key, options[i].value)
            || !evaluate(s, &more) || s->trial->memory.device_total >= least)
            continue;
        changed = more;
        least = s->trial->memory.device_total;
        describe(text, sizeof text, options[i].key, options[i].value);
        piled++;
        if (fits(s))
            break;
    }
    if (piled > 1 && evaluate(s, &changed) && simulate(s))
        keep(s, text);
}

static bool any_fits(const struct changes *out)
{
    for (size_t i = 0; i < out->n; i++)
        if (out->row[i].fits)
            return true;
    return false;
}

/* Segments that grow: costs nothing, and only a simulation tells. */
static void other_segments(struct search *s, const struct setup *setup)
{
    const struct run *run = &s->report->run;
    struct setup changed = *setup;
    if (run->fast || s->gave_up || run->allocator != ALLOC_DEFAULT
        || !apply(&changed, "allocator", "expandable") || !evaluate(s, &changed)
        || !simulate(s))
        return;
    char text[CHANGE_TEXT_MAX] = "";
    describe(text, sizeof text, "allocator", "expandable");
    keep(s, text);
}

static void find_changes(struct search *s, const struct setup *setup)
{
    bool helps[N_OPTIONS];
    other_segments(s, setup);
    single(s, setup, helps);
    more_gpus(s, setup);
    if (!any_fits(s->out))
        pile(s, setup, helps);
}

bool report_changes(struct changes *out, const struct memplan_report *report)
{
    out->n = 0;
    if (report->question == NULL)
        return true;
    const struct setup *setup = &report->question->setup;
    const struct simulated *sim =
        &report->memory.stage[report->memory.worst].sim;
    struct search s = { .report = report,
                        .out = out,
                        .trial = plan_report_new(&report->arena.alloc),
                        .gave_up = sim->steps != 0 && !sim->done };
    if (s.trial == NULL)
        return false;
    if (evaluate(&s, setup)) {
        s.now = s.trial->memory.device_total;
        find_changes(&s, setup);
    }
    memplan_report_free(s.trial);
    if (s.failed)
        out->n = 0;
    return !s.failed;
}
