/*
 * How many GPUs finish in so many days. Owns which numbers are looked at: those
 * that a layout allows, each with the step that it has there, as utilisation
 * falls where more GPUs share the work, and with what it leaves in memory.
 * [docs/method.md eq. deadline]
 */
#include "plan/deadline.h"

#include "base/count.h"
#include "base/unit.h"

#include <inttypes.h>
#include <math.h>

#include "base/banned.h"

enum { GPUS_MOST = 10000000 }; /* of setup.def */
/* Of two numbers that hold as much on each GPU, one is asked of the allocator. */
enum { AS_MUCH_BYTES = 1 << 20 };

struct hunt {
    struct memplan_report *trial;
    const struct deadline_question *q;
    struct setup setup; /* with the number of GPUs open */
    struct deadline_result *out;
    struct diag *d;
    double asked; /* days */
    /* numbers of GPUs: inside a node, and beyond it */
    uint64_t unit, node, nodes, most;
    uint64_t shares; /* of a global batch that is held; 0: it grows */
    bool in_memory;  /* numbers where the setup does not fit are not enough */
    struct {
        uint64_t device_total;
        bool fits;
    } settled; /* the last one, by the closed form and by the allocator */
};

static uint64_t lcm(uint64_t a, uint64_t b)
{
    return a / gcd_u64(a, b) * b;
}

static memplan_status evaluate(struct hunt *h, struct memplan_report *r,
                               uint64_t gpus, struct diag *d)
{
    h->setup.v[KEY_GPUS].n = gpus;
    h->setup.set[KEY_GPUS] = true;
    h->setup.automatic[KEY_GPUS] = false;
    return plan_compute_spec(r, h->q->spec, h->q->params, &h->setup, d);
}

/* Keeps what is enough with the fewest GPUs, or else is over first. */
static void keep(struct hunt *h, uint64_t gpus, bool met)
{
    struct deadline_result *out = h->out;
    const struct compute_result *c = &h->trial->compute;
    const bool better = out->gpus == 0 || (met && !out->met)
                        || (met && (double)gpus < out->gpus)
                        || (!out->met && c->days < out->days);
    if (!better)
        return;
    out->met = met;
    out->gpus = (double)gpus;
    out->days = c->days;
    out->mfu = c->mfu;
}

static bool fits(struct hunt *h, struct diag *d)
{
    const struct memory_result *m = &h->trial->memory;
    const uint64_t total = m->device_total, last = h->settled.device_total;
    const uint64_t apart = total > last ? total - last : last - total;
    if (m->fits || (last > 0 && apart <= AS_MUCH_BYTES))
        return m->fits || h->settled.fits;
    if (plan_settle_fits(h->trial, d) != MEMPLAN_OK)
        diag_nomem(h->d);
    h->settled.device_total = total;
    h->settled.fits = m->fits;
    return m->fits;
}

/* Whether so many are enough. One that is impossible is not. */
static bool enough(struct hunt *h, uint64_t gpus)
{
    memplan_error slot;
    memplan_errors errs = { &slot, 1, 0 };
    struct diag d;
    diag_init(&d, &errs);
    h->out->looked++;
    const memplan_status status = evaluate(h, h->trial, gpus, &d);
    if (status == MEMPLAN_E_NOMEM)
        diag_nomem(h->d);
    if (status != MEMPLAN_OK)
        return false;
    const bool met = h->trial->compute.days <= h->asked * (1 + 1e-9)
                     && (!h->in_memory || fits(h, &d));
    keep(h, gpus, met);
    return met;
}

/* ---- which numbers ---- */

/* Number i from 1: all that the layout divides within a node, whole nodes
 * beyond. */
static uint64_t candidate(const struct hunt *h, uint64_t i)
{
    const uint64_t inside = h->node / h->unit;
    if (i <= inside)
        return i * h->unit;
    return (h->node / h->nodes + i - inside) * h->nodes;
}

static uint64_t count_candidates(const struct hunt *h)
{
    const uint64_t inside = h->node / h->unit;
    if (h->most <= h->node)
        return h->most / h->unit;
    return inside + h->most / h->nodes - h->node / h->nodes;
}

/* Ranks of experts and of shards have to come out even too. */
static void set_numbers(struct hunt *h, const struct memplan_report *r)
{
    const struct run *run = &r->run;
    const uint64_t layout = run->tp * run->pp * run->cp;
    h->unit = layout;
    if (r->spec.experts > 0)
        h->unit = lcm(h->unit, run->ep * run->etp * run->pp);
    if (run->given[KEY_SHARD_DEGREE] || run->mics)
        h->unit = lcm(h->unit, run->shard * run->tp * run->pp);
    h->node = run->gpus_per_node;
    h->nodes = lcm(h->unit, h->node);
    h->shares = 0;
    double ranks;
    if (run->given[KEY_GLOBAL_BATCH]) {
        const uint64_t micro =
            run->given[KEY_MICRO_BATCH] ? run->micro_batch : 1;
        h->shares = max_u64(run->global_batch / micro, 1);
        ranks = (double)h->shares;
    } else { /* there is one step to be shared at the most */
        const double each = (double)run->micro_batch * (double)run->grad_accum
                            * (double)run->seq_len;
        ranks = fmax(floor(r->compute.tokens / each), 1);
    }
    h->most = (uint64_t)fmin(ranks * (double)layout, GPUS_MOST);
}

/* Each rank has as many sequences of the global batch as the others. */
static bool is_even(const struct hunt *h, uint64_t gpus, uint64_t layout)
{
    return gpus % layout == 0 && h->shares % (gpus / layout) == 0;
}

static void look_at_shares(struct hunt *h, uint64_t layout)
{
    const uint64_t n = count_candidates(h);
    for (uint64_t i = 1; i <= n && h->d->status == MEMPLAN_OK; i++) {
        const uint64_t gpus = candidate(h, i);
        if (is_even(h, gpus, layout) && enough(h, gpus))
            return;
    }
}

/* Beyond a node, where whole ones are not enough: other shares of the batch,
 * with a node that is not all used. */
static void look_at_parts(struct hunt *h, uint64_t layout)
{
    const uint64_t most = min_u64(h->shares, h->most / layout);
    for (uint64_t dp = 1; dp <= most && h->d->status == MEMPLAN_OK; dp++) {
        const uint64_t gpus = dp * layout;
        const bool other =
            gpus > h->node && gpus % h->unit == 0 && gpus % h->nodes != 0;
        if (other && h->shares % dp == 0 && enough(h, gpus))
            return;
    }
}

/* More GPUs are never slower where each keeps its work, nor do they hold more
 * each: the first that is enough is between one that is and one that is not. */
static void bisect(struct hunt *h)
{
    const uint64_t n = count_candidates(h);
    uint64_t low = 0, high = 1;
    while (high < n && h->d->status == MEMPLAN_OK
           && !enough(h, candidate(h, high))) {
        low = high;
        high = min_u64(2 * high, n);
    }
    if (high == n && n > 0 && !enough(h, candidate(h, n)))
        return;
    while (high - low > 1 && h->d->status == MEMPLAN_OK) {
        const uint64_t middle = low + (high - low) / 2;
        if (enough(h, candidate(h, middle)))
            high = middle;
        else
            low = middle;
    }
}

/* What is left beyond the last whole node, where that is not enough. */
static void look_at_rest(struct hunt *h)
{
    const uint64_t n = count_candidates(h);
    uint64_t gpus = (n > 0 ? candidate(h, n) : 0) + h->unit;
    while (gpus <= h->most && h->d->status == MEMPLAN_OK && !enough(h, gpus))
        gpus += h->unit;
}

/* ---- the answer ---- */

static void say_searched(struct memplan_report *r)
{
    const struct deadline_result *x = &r->deadline;
    char text[ASSUMPTION_TEXT], held[80];
    if (r->run.given[KEY_GLOBAL_BATCH])
        str_format(held, sizeof held, "global_batch is held");
    else
        str_format(held, sizeof held,
                   "the batch grows with them (--global-batch holds it)");
    str_format(text, sizeof text,
               "GPUs for a deadline: of %" PRIu64 " number%s looked at, each "
               "with its own %smemory; %s",
               x->looked, unit_s((double)x->looked),
               r->compute.mfu_given ? "" : "step and ", held);
    run_assume(&r->run, KEY_DAYS, text);
}

static void look(struct hunt *h, uint64_t layout)
{
    if (h->shares > 0)
        look_at_shares(h, layout);
    else
        bisect(h);
    if (h->out->met)
        return;
    if (h->shares > 0)
        look_at_parts(h, layout);
    else
        look_at_rest(h);
}

/* Time alone decides where nothing that is in time fits. */
static void search(struct hunt *h, const struct memplan_report *r)
{
    const uint64_t layout = r->run.tp * r->run.pp * r->run.cp;
    set_numbers(h, r);
    h->in_memory = true;
    look(h, layout);
    if (h->out->met || h->d->status != MEMPLAN_OK)
        return;
    h->in_memory = false;
    look(h, layout);
    h->out->too_large = h->out->met;
}

memplan_status plan_deadline(struct memplan_report *r,
                             const struct deadline_question *q, struct diag *d)
{
    const bool open =
        q->decides && !q->setup->set[KEY_GPUS] && !q->setup->set[KEY_DP];
    const memplan_allocator alloc = r->arena.alloc;
    struct memplan_report *trial = plan_report_new(&alloc);
    struct deadline_result found = { .searched = true };
    struct hunt h = { .trial = trial,
                      .q = q,
                      .setup = *q->setup,
                      .out = &found,
                      .d = d,
                      .asked = r->run.days };
    if (trial == NULL)
        return diag_nomem(d);
    h.setup.set[KEY_DP] = false;
    search(&h, r);
    memplan_report_free(trial);
    if (d->status != MEMPLAN_OK)
        return d->status;
    if (found.gpus > 0 && open
        && evaluate(&h, r, (uint64_t)found.gpus, d) != MEMPLAN_OK)
        return d->status;
    found.searched = found.gpus > 0;
    r->deadline = found;
    if (found.searched)
        say_searched(r);
    return MEMPLAN_OK;
}
