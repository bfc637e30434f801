/*
 * Micro-batches of different lengths, one after another through one allocator:
 * what depends on the length is made anew for each, what lives from step to
 * step stays where it is. Knows no rule of the allocator.
 */
#include "fold/trace_private.h"

#include "base/banned.h"

struct turns {
    const struct length_code *code;
    struct lengths lengths;
    size_t at;
    bool steps; /* before the next one comes: the last of this step */
    /* of the length at hand; 0: none yet */
    uint64_t length;
    struct program program;
    struct memory_fold fold;
    struct stage stage;
};

bool turns_init(struct tracer *r, const struct length_code *code,
                unsigned order)
{
    struct turns *t = ARENA_NEW(r->a, struct turns, 1);
    if (t == NULL)
        return false;
    lengths_draw(&t->lengths, r->s->run, order, code->all);
    t->code = code;
    r->turns = t;
    return true;
}

bool turns_begin(struct tracer *r)
{
    r->turns->steps = false;
    return r->turns->at < r->turns->lengths.n;
}

static void forget(struct tracer *r)
{
    for (unsigned b = 0; b < BLOCK_MAX; b++)
        for (unsigned k = 0; k < SCRIPTS; k++)
            r->script[b][k] = (struct script){ .n = 0 };
    for (unsigned p = 0; p < PHASE_COUNT; p++)
        r->after[p].v = NULL;
}

/* No micro-batch is alive. */
static bool change(struct tracer *r, uint64_t length)
{
    struct turns *t = r->turns;
    struct arena *a = t->code->a;
    const struct stage *before = r->s;
    arena_rewind(a);
    if (!t->code->lower(t->code->ctx, length, &t->program, a)
        || !memory_fold_init(&t->fold, &t->program, before->run, a))
        return false;
    stage_init(&t->stage, &t->fold, before->index, before->first_layer);
    t->length = length;
    r->s = &t->stage;
    r->f = &t->fold;
    r->length_a = a;
    forget(r);
    return tracer_room(r);
}

void turns_forget(struct tracer *r)
{
    r->turns->length = 0;
}

bool turns_next(struct tracer *r)
{
    struct turns *t = r->turns;
    if (t->at == t->lengths.n || t->steps)
        return false;
    const struct turn *turn = &t->lengths.v[t->at++];
    t->steps = turn->steps;
    if (turn->length != t->length && !change(r, turn->length))
        r->failed = true;
    return !r->failed;
}
