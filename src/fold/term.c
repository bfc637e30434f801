/*
 * The table of memory terms, the names of components and phases, and the one
 * way to add bytes to a moment.
 */
#include <math.h>

#include "fold/put.h"

#include "base/str.h"
#include "base/unit.h"

#include "base/banned.h"

static const struct term_info terms[TERM_COUNT] = {
#define TERM(id, component, key, label, equation)                              \
    [TERM_##id] = { COMP_##component, key, label, equation },
#include "fold/term.def"
#undef TERM
};

const struct term_info *term_info(enum term term)
{
    return &terms[term];
}

const char *component_key(enum component c)
{
    switch (c) {
    case COMP_PARAMETERS: return "parameters";
    case COMP_GRADIENTS: return "gradients";
    case COMP_OPTIMIZER: return "optimizer_states";
    case COMP_ACTIVATIONS: return "activations";
    case COMP_TEMPORARY: return "temporary";
    case COMP_COUNT: break;
    }
    return "";
}

const char *component_label(enum component c)
{
    return c == COMP_OPTIMIZER ? "optimizer states" : component_key(c);
}

const char *phase_name(enum phase phase)
{
    static const char *const names[PHASE_COUNT] = {
#define PHASE_TEXT(id, text) [id] = text,
        PHASE_MAP(PHASE_TEXT)
#undef PHASE_TEXT
    };
    return names[phase];
}

const char *offload_kind_key(enum offload_kind kind)
{
    static const char *const keys[OFFLOAD_KINDS] = {
#define OFFLOAD_KIND_KEY(id, key, text) [id] = key,
        OFFLOAD_KIND_MAP(OFFLOAD_KIND_KEY)
#undef OFFLOAD_KIND_KEY
    };
    return keys[kind];
}

const char *offload_kind_label(enum offload_kind kind)
{
    static const char *const labels[OFFLOAD_KINDS] = {
#define OFFLOAD_KIND_TEXT(id, key, text) [id] = text,
        OFFLOAD_KIND_MAP(OFFLOAD_KIND_TEXT)
#undef OFFLOAD_KIND_TEXT
    };
    return labels[kind];
}

const char *sim_pool_key(enum sim_pool pool)
{
    static const char *const keys[SIM_POOLS] = {
#define SIM_POOL_KEY(id, key, text) [id] = key,
        SIM_POOL_MAP(SIM_POOL_KEY)
#undef SIM_POOL_KEY
    };
    return keys[pool];
}

const char *sim_pool_label(enum sim_pool pool)
{
    static const char *const labels[SIM_POOLS] = {
#define SIM_POOL_TEXT(id, key, text) [id] = text,
        SIM_POOL_MAP(SIM_POOL_TEXT)
#undef SIM_POOL_TEXT
    };
    return labels[pool];
}

void explain_add(struct explanation *x, struct explain_entry entry)
{
    if (x->n == x->capacity) {
        const size_t more = x->capacity == 0 ? 64 : 2 * x->capacity;
        struct explain_entry *e =
            ARENA_NEW(x->arena, struct explain_entry, more);
        if (e == NULL) {
            x->failed = true;
            return;
        }
        for (size_t i = 0; i < x->n; i++)
            e[i] = x->entry[i];
        x->entry = e;
        x->capacity = more;
    }
    x->entry[x->n++] = entry;
}

/* Whole numbers to the last digit, so that they multiply out. */
static const char *number_text(char buf[UNIT_TEXT_MAX], double value)
{
    const bool whole = fabs(value) < 1e15 && value == floor(value);
    return whole ? unit_format_double(buf, value)
                 : unit_format_short(buf, value);
}

const char *explain_numbers(struct arena *a, const char *pattern,
                            const double *value)
{
    char text[256] = "";
    for (const char *c = pattern; *c != '\0'; c++) {
        char buf[UNIT_TEXT_MAX];
        if (*c == '#')
            str_append(text, sizeof text, "%s", number_text(buf, *value++));
        else
            str_append(text, sizeof text, "%c", *c);
    }
    return arena_copy(a, text, str_of(text).n);
}

/* "P * 4 / N", or the same with the numbers. */
static const char *factors_text(struct arena *a, const struct factor *f,
                                size_t n, bool numbers)
{
    char buf[512] = "";
    for (unsigned divides = 0; divides < 2; divides++) {
        for (size_t i = 0; i < n; i++) {
            if ((f[i].kind == FACTOR_DIVIDES) != (divides != 0))
                continue;
            const char *link = divides != 0 ? " / " : buf[0] != 0 ? " * " : "";
            if (numbers || f[i].sym[0] == '\0')
                str_append(buf, sizeof buf, "%s%llu", link,
                           (unsigned long long)f[i].v);
            else
                str_append(buf, sizeof buf, "%s%s", link, f[i].sym);
        }
    }
    return arena_copy(a, buf, str_of(buf).n);
}

static void explain_term(struct put *p, enum term term, const char *what,
                         const struct factor *f, size_t n, uint64_t bytes)
{
    struct arena *a = p->why->arena;
    explain_add(p->why, (struct explain_entry){
                            .section = component_label(terms[term].component),
                            .name = what,
                            .unit = "B",
                            .value = (double)bytes,
                            .bytes = bytes,
                            .formula = factors_text(a, f, n, false),
                            .numbers = factors_text(a, f, n, true),
                            .equation = terms[term].equation,
                            .source = "",
                            .depth = 1,
                        });
    if (a->failed)
        p->why->failed = true;
}

/* How many allocations the factors speak of. */
static uint64_t pieces_of(const struct factor *f, size_t n)
{
    uint64_t pieces = 1;
    for (size_t i = 0; i < n; i++) {
        if (f[i].kind == FACTOR_PIECES)
            pieces *= f[i].v; /* a handful */
        if (f[i].kind == FACTOR_TENSORS)
            return PIECES_TENSORS;
    }
    return pieces;
}

void put_tell(struct put *p, enum term term, const char *what,
              const struct factor *f, size_t n)
{
    const uint64_t bytes = put_quotient(f, n).v;
    if (p->each != NULL)
        p->each(p->ctx,
                &(struct put_event){ term, what, bytes, pieces_of(f, n) });
    if (p->why != NULL && terms[term].component == p->only)
        explain_term(p, term, what, f, n, bytes);
}
