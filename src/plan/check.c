/*
 * Owns assertions: the table of them, reading their limits, and holding them
 * against a report, which is asked by path like any user would.
 */
#include "plan/check.h"

#include "data/constants.h"

#include "base/unit.h"

#include "base/banned.h"

#define BYTES MEMPLAN_TYPE_BYTES
#define REAL MEMPLAN_TYPE_REAL
static const struct assertion assertions[] = {
    { { "fits", MEMPLAN_TYPE_BOOL, "memory.fits", "whether it fits on the GPU",
        "BOOL" },
      IS,
      false },
    { { "max_memory", BYTES, "memory.device_total",
        "at most this much of the GPU, as nvidia-smi shows it", "BYTES" },
      AT_MOST,
      false },
    { { "max_peak", BYTES, "memory.peak_allocated",
        "at most this much allocated by the framework", "BYTES" },
      AT_MOST,
      false },
    { { "min_headroom", BYTES, "memory.headroom",
        "at least this much left free, in bytes or as 5% of the GPU", "BYTES" },
      AT_LEAST,
      true },
    { { "max_gpu_hours", REAL, "compute.gpu_hours",
        "at most this many GPU-hours", "HOURS" },
      AT_MOST,
      false },
    { { "max_days", REAL, "compute.days", "at most this many days", "DAYS" },
      AT_MOST,
      false },
    { { "max_cost", REAL, "compute.cost_usd", "at most this many US dollars",
        "USD" },
      AT_MOST,
      false },
    { { "max_step_time", REAL, "compute.step_time_s",
        "at most this many seconds a step", "SECONDS" },
      AT_MOST,
      false },
    { { "min_tokens_per_s", REAL, "compute.tokens_per_s",
        "at least this many tokens a second on all GPUs", "N" },
      AT_LEAST,
      false },
    { { "min_mfu", REAL, "compute.mfu", "at least this model FLOPs utilisation",
        "X" },
      AT_LEAST,
      false },
    { { "max_parameters", MEMPLAN_TYPE_COUNT, "model.parameters",
        "at most this many parameters", "N" },
      AT_MOST,
      false },
};
#undef BYTES
#undef REAL
enum { ASSERTIONS = sizeof(assertions) / sizeof(assertions[0]) };

const memplan_assertion *memplan_check_assertion(size_t index)
{
    return index < ASSERTIONS ? &assertions[index].told : NULL;
}

/* ---- limits ---- */

static const struct assertion *find_assertion(struct str name)
{
    for (size_t i = 0; i < ASSERTIONS; i++) {
        if (str_same_name(name, str_of(assertions[i].told.name)))
            return &assertions[i];
    }
    return NULL;
}

static memplan_error *unknown_assertion(struct str name, struct diag *d)
{
    const char *best = NULL;
    unsigned least = 0;
    for (size_t i = 0; i < ASSERTIONS; i++) {
        struct str known = str_of(assertions[i].told.name);
        unsigned distance = str_distance(name, known);
        if (str_near(name, known, distance) && (!best || distance < least)) {
            best = assertions[i].told.name;
            least = distance;
        }
    }
    memplan_error *e =
        diag_add(d, MEMPLAN_E_UNKNOWN, "there is no assertion '%.*s'",
                 (int)(name.n < 64 ? name.n : 64), name.p);
    if (best)
        diag_hint(e, "did you mean '%s'?", best);
    else
        diag_hint(e, "such as max_memory, min_headroom, max_gpu_hours");
    return e;
}

static memplan_error *bad_limit(const struct assertion *a, struct str text,
                                enum unit_result result, struct diag *d)
{
    static const char *const wanted[] = {
        [MEMPLAN_TYPE_COUNT] = "a whole number, such as 7e9 or 7B",
        [MEMPLAN_TYPE_BYTES] = "a size, such as 70GiB",
        [MEMPLAN_TYPE_REAL] = "a number of 0 or more, such as 0.45 or 2000",
        [MEMPLAN_TYPE_BOOL] = "true or false",
        [MEMPLAN_TYPE_CHOICE] = "",
        [MEMPLAN_TYPE_LIST] = "",
        [MEMPLAN_TYPE_NAME] = "",
    };
    int n = (int)(text.n < 64 ? text.n : 64);
    bool range = result == UNIT_RANGE;
    memplan_error *e = diag_add(d, range ? MEMPLAN_E_RANGE : MEMPLAN_E_ARG,
                                range ? "'%s': '%.*s' is out of range"
                                      : "'%s': '%.*s' is no limit",
                                a->told.name, n, text.p);
    diag_hint(e, "write %s%s", wanted[a->told.type],
              a->of_capacity ? ", or 5%" : "");
    return e;
}

static enum unit_result read_real(double *out, struct str text)
{
    uint64_t n = 0;
    enum unit_result r = unit_parse_real(text, out);
    if (r == UNIT_OK && *out < 0) /* nothing that is limited is */
        return UNIT_RANGE;
    if (r != UNIT_BAD)
        return r;
    r = unit_parse_count(text, &n); /* "100k" */
    *out = (double)n;
    return r;
}

static enum unit_result read_bool(double *out, struct str text)
{
    bool yes = str_same_name(text, STR("true"));
    *out = yes ? 1 : 0;
    return yes || str_same_name(text, STR("false")) ? UNIT_OK : UNIT_BAD;
}

static enum unit_result read_limit(struct limit *out, struct str text)
{
    uint64_t n = 0;
    enum unit_result r = UNIT_BAD;
    switch (out->assertion->told.type) {
    case MEMPLAN_TYPE_BYTES:
        out->share = out->assertion->of_capacity && str_ends_with(text, "%");
        if (out->share) {
            r = unit_parse_real(text, &out->value);
            return r == UNIT_OK && (out->value < 0 || out->value > 1)
                       ? UNIT_RANGE
                       : r;
        }
        r = unit_parse_bytes(text, &n);
        out->value = (double)n;
        /* "40" is 40 bytes, and never meant */
        return r == UNIT_OK && n != 0 && n < MIB(1) ? UNIT_BAD : r;
    case MEMPLAN_TYPE_COUNT:
        r = unit_parse_count(text, &n);
        out->value = (double)n;
        return r;
    case MEMPLAN_TYPE_REAL: return read_real(&out->value, text);
    case MEMPLAN_TYPE_BOOL: return read_bool(&out->value, text);
    case MEMPLAN_TYPE_CHOICE:
    case MEMPLAN_TYPE_LIST:
    case MEMPLAN_TYPE_NAME: break;
    }
    return r;
}

memplan_error *check_limit(struct limit *out, struct str name, struct str text,
                           struct diag *d)
{
    text = str_trim(text);
    *out = (struct limit){ .assertion = find_assertion(name) };
    if (!out->assertion)
        return unknown_assertion(name, d);
    enum unit_result r = read_limit(out, text);
    return r == UNIT_OK ? NULL : bad_limit(out->assertion, text, r, d);
}

/* ---- evaluation ---- */

static bool holds(enum relation relation, double actual, double limit)
{
    switch (relation) {
    case AT_MOST: return actual <= limit;
    case AT_LEAST: return actual >= limit;
    case IS: return !(actual < limit) && !(actual > limit);
    }
    return false;
}

/* What the report does not know is not within any limit. */
static struct outcome evaluate(const memplan_report *report, struct limit limit)
{
    const struct assertion *a = limit.assertion;
    struct outcome o = { .limit = limit };
    if (a->told.type == MEMPLAN_TYPE_BOOL) {
        o.known = true;
        o.actual = memplan_report_fits(report) ? 1 : 0;
    } else {
        o.known = memplan_report_number(&o.actual, report, a->told.path)
                  == MEMPLAN_OK;
    }
    double capacity = 0;
    if (limit.share
        && memplan_report_number(&capacity, report, "memory.capacity")
               != MEMPLAN_OK)
        o.known = false;
    if (limit.share)
        o.limit.value = limit.value * capacity;
    o.ok = o.known && holds(a->relation, o.actual, o.limit.value);
    return o;
}

bool check_evaluate(bool *held, memplan_check *check, struct str name,
                    const memplan_report *report, const struct limit *limit,
                    size_t n)
{
    static const struct limit fits = { .assertion = &assertions[0],
                                       .value = 1 };
    const size_t count = n > 0 ? n : 1;
    struct arena *a = &check->arena;
    struct check_case *c = ARENA_NEW(a, struct check_case, 1);
    struct outcome *outcome = ARENA_NEW(a, struct outcome, count);
    const char *copy = arena_copy(a, name.p, name.n);
    if (a->failed)
        return false;

    bool ok = true;
    for (size_t i = 0; i < count; i++) {
        outcome[i] = evaluate(report, n > 0 ? limit[i] : fits);
        ok = ok && outcome[i].ok;
    }
    *c = (struct check_case){
        .name = copy, .ok = ok, .outcome = outcome, .n = count
    };
    if (check->last)
        check->last->next = c;
    else
        check->first = c;
    check->last = c;
    *held = ok;
    return true;
}

/* ---- public ---- */

memplan_status memplan_check_new(memplan_check **out,
                                 const memplan_allocator *allocator,
                                 memplan_errors *errs)
{
    struct diag d;
    struct arena arena;
    diag_init(&d, errs);
    if (!out) {
        diag_add(&d, MEMPLAN_E_ARG, "no place for the check");
        return d.status;
    }
    arena_init(&arena, allocator);
    *out = ARENA_NEW(&arena, struct memplan_check, 1);
    if (!*out) {
        arena_release(&arena);
        return diag_nomem(&d);
    }
    (*out)->arena = arena;
    return MEMPLAN_OK;
}

void memplan_check_free(memplan_check *check)
{
    if (!check)
        return;
    struct arena arena = check->arena; /* the check lies in it */
    arena_release(&arena);
}

memplan_status memplan_check_case(bool *held, memplan_check *check,
                                  const char *case_name,
                                  const memplan_report *report,
                                  const char *const *names,
                                  const char *const *limits, size_t count,
                                  memplan_errors *errs)
{
    struct diag d;
    bool ok = false;
    diag_init(&d, errs);
    if (held)
        *held = false;
    if (!check || !report || (count > 0 && (!names || !limits))) {
        diag_add(&d, MEMPLAN_E_ARG, "no check, report or assertions");
        return d.status;
    }
    check->arena.failed = false; /* memory may be there again */
    struct limit *limit = ARENA_NEW(&check->arena, struct limit, count);
    if (!limit)
        return diag_nomem(&d);
    for (size_t i = 0; i < count; i++)
        check_limit(&limit[i], str_of(names[i]), str_of(limits[i]), &d);
    if (d.status != MEMPLAN_OK)
        return d.status;
    if (!check_evaluate(&ok, check, str_of(case_name), report, limit, count))
        return diag_nomem(&d);
    if (held)
        *held = ok;
    return MEMPLAN_OK;
}
