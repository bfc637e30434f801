/*
 * What a training takes and costs on each GPU of the catalogue. Owns the order
 * of the answers, and which keys would make it no comparison; each number is
 * compute's. [docs/method.md eq. compute, eq. deadline]
 */
#include "plan/offers.h"

#include <math.h>

#include "base/banned.h"

/* What describes one GPU. */
static void refuse_one(const struct setup *setup, struct diag *d)
{
    static const struct {
        enum setup_key key;
        const char *hint;
    } keys[] = {
        { KEY_GPU, "leave it out, or leave out the question" },
        { KEY_PRICE, "--prices reads a price a GPU from a file" },
        { KEY_PEAK_FLOPS, "leave it out" },
        { KEY_GPU_MEMORY, "leave it out" },
        { KEY_INTRA_NODE_BANDWIDTH, "leave it out" },
        { KEY_INTER_NODE_BANDWIDTH, "leave it out" },
        { KEY_HOST_BANDWIDTH, "leave it out" },
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (!setup->set[keys[i].key])
            continue;
        memplan_error *e = setup_error(
            d, MEMPLAN_E_CONFLICT, keys[i].key,
            "'%s' is of one GPU, and every GPU of the catalogue is asked for",
            setup_field(keys[i].key)->key);
        diag_hint(e, "%s", keys[i].hint);
    }
    if (setup->calibration.rows == 0)
        return;
    memplan_error *e =
        diag_add(d, MEMPLAN_E_CONFLICT,
                 "the calibration '%s' is of %s, and every GPU of the "
                 "catalogue is asked for",
                 setup->calibration.name, setup->calibration.gpu);
    diag_hint(e, "leave --calibration out, or --every-gpu");
}

/* Where GPUs are given it is of so many, whatever a search found. */
static bool is_late(const struct memplan_report *r)
{
    const struct compute_result *c = &r->compute;
    if (!r->run.given[KEY_GPUS])
        return r->deadline.searched && !r->deadline.met;
    return c->has_deadline && c->days > c->deadline_days;
}

static void fill(struct offer *o, const struct memplan_report *r)
{
    const struct compute_result *c = &r->compute;
    o->possible = true;
    o->fits = r->has_model && r->memory.fits;
    o->late = is_late(r);
    o->gpus = c->gpus;
    o->mfu = c->mfu;
    o->step_time_s = c->step_time_s;
    o->days = c->days;
    o->gpu_hours = c->gpu_hours;
    o->price_usd_h = c->price_usd_h;
    o->cost_usd = c->cost_usd;
    o->energy_kwh = c->energy_kwh;
    o->price_source = c->price_source;
}

/* What is impossible is last; what does not fit before it; then what is late, and
 * what nobody has a price of. */
static int rank(const struct memplan_offers *x, const struct offer *o)
{
    if (!o->possible)
        return 4;
    if (x->has_model && !o->fits)
        return 3;
    if (o->late)
        return 2;
    return isfinite(o->cost_usd) ? 0 : 1;
}

static bool before(const struct memplan_offers *x, const struct offer *a,
                   const struct offer *b)
{
    const int one = rank(x, a), other = rank(x, b);
    if (one != other)
        return one < other;
    const bool priced = isfinite(a->cost_usd) && isfinite(b->cost_usd);
    if (priced)
        return a->cost_usd < b->cost_usd;
    if (isfinite(a->cost_usd) != isfinite(b->cost_usd))
        return isfinite(a->cost_usd);
    return one < 4 && a->gpu_hours < b->gpu_hours;
}

/* Keeps the rows in order; equal ones as the catalogue has them. */
static void insert(struct memplan_offers *x, const struct offer *o)
{
    size_t at = x->n++;
    while (at > 0 && before(x, o, &x->row[at - 1])) {
        x->row[at] = x->row[at - 1];
        at--;
    }
    x->row[at] = *o;
}

static memplan_status look(struct memplan_offers *x, struct memplan_report *r,
                           const memplan_model *model, struct setup *setup,
                           struct diag *d)
{
    memplan_error slot;
    memplan_errors errs = { &slot, 1, 0 };
    struct diag own;
    struct offer o = { .gpu = gpu_at(setup->v[KEY_GPU].n)->name };
    diag_init(&own, &errs);
    const memplan_status status = plan_compute_answer(r, model, setup, &own);
    if (status == MEMPLAN_E_NOMEM)
        return diag_nomem(d);
    if (status == MEMPLAN_OK) {
        fill(&o, r);
        x->has_model = r->has_model;
        x->has_gpus = r->run.given[KEY_GPUS];
        x->params = r->compute.params;
        x->tokens = r->compute.tokens;
        x->days = r->run.days;
        str_format(x->name, sizeof x->name, "%s",
                   r->has_model ? r->spec.name : "");
    } else {
        str_format(o.why, sizeof o.why, "%s", slot.message);
    }
    insert(x, &o);
    return MEMPLAN_OK;
}

/* Where none is possible it is not the GPU: what the default says. */
static memplan_status report_why(struct memplan_report *r,
                                 const memplan_model *model,
                                 const struct setup *setup, struct diag *d)
{
    return plan_compute_answer(r, model, setup, d);
}

static memplan_status fill_all(struct memplan_offers *x,
                               struct memplan_report *r,
                               const memplan_model *model,
                               const struct setup *setup, struct diag *d)
{
    struct setup each = *setup;
    bool any = false;
    for (size_t i = 0; gpu_at(i) != NULL && x->n < GPU_PRICES_MAX; i++) {
        each.v[KEY_GPU].n = i;
        each.set[KEY_GPU] = true;
        if (look(x, r, model, &each, d) != MEMPLAN_OK)
            return d->status;
    }
    for (size_t i = 0; i < x->n; i++)
        any = any || x->row[i].possible;
    return any ? MEMPLAN_OK : report_why(r, model, setup, d);
}

memplan_status memplan_offers_new(memplan_offers **out,
                                  const memplan_model *model,
                                  const memplan_setup *setup,
                                  const memplan_allocator *allocator,
                                  memplan_errors *errs)
{
    struct diag d;
    diag_init(&d, errs);
    if (out != NULL)
        *out = NULL;
    if (out == NULL || setup == NULL) {
        diag_add(&d, MEMPLAN_E_ARG, "no place for the offers, or no setup");
        return d.status;
    }
    refuse_one(&setup->setup, &d);
    if (d.status != MEMPLAN_OK)
        return d.status;
    const memplan_allocator a =
        allocator == NULL ? allocator_default() : *allocator;
    memplan_offers *x = a.resize(a.ctx, NULL, 0, sizeof *x);
    struct memplan_report *r = plan_report_new(&a);
    if (x != NULL)
        *x = (struct memplan_offers){ .alloc = a };
    if (x == NULL || r == NULL)
        diag_nomem(&d);
    else
        fill_all(x, r, model, &setup->setup, &d);
    memplan_report_free(r);
    if (d.status != MEMPLAN_OK) {
        memplan_offers_free(x);
        return d.status;
    }
    *out = x;
    return MEMPLAN_OK;
}

void memplan_offers_free(memplan_offers *offers)
{
    if (offers == NULL)
        return;
    const memplan_allocator a = offers->alloc;
    a.resize(a.ctx, offers, sizeof *offers, 0);
}
