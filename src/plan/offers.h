/*
 * What is inside a memplan_offers: the same training on each GPU of the
 * catalogue, for the file that computes it and the one that writes it.
 */
#ifndef MEMPLAN_PLAN_OFFERS_H
#define MEMPLAN_PLAN_OFFERS_H

#include "plan/plan.h"

enum { OFFER_TEXT = 200 };

struct offer {
    const char *gpu; /* of the catalogue */
    bool possible;
    char why[OFFER_TEXT]; /* why it is not */
    bool fits;            /* without a model: not asked */
    bool late; /* of those given, or of any number, none is in time */
    double gpus, mfu, step_time_s, days, gpu_hours;
    double price_usd_h, cost_usd, energy_kwh; /* NAN: not known */
    const char *price_source;
};

struct memplan_offers {
    memplan_allocator alloc;
    struct offer row[GPU_PRICES_MAX]; /* the cheapest that fits first */
    size_t n;
    bool has_model, has_gpus;    /* how many is given */
    double params, tokens, days; /* days: asked for; 0: not */
    char name[OFFER_TEXT];
};

#endif
