/*
 * What several blocks begin with alike (block.common_ops), walked for the first
 * of them: how its operations leave the slots, and what a backward finds there
 * that comes with the same gradients. Knows no rule of a walk.
 */
#include "fold/walk_private.h"

#include <stddef.h>
#include <string.h>

#include "base/banned.h"

/* A gradient that is there when backward comes to what is common. */
struct common_grad {
    uint32_t slot, refs;
    int32_t buffer;
    bool view;
    uint64_t bytes;
};
enum { COMMON_GRADS = 4 }; /* where there are more, it is walked */

struct common_state {
    uint64_t kept, tmp, wgrad; /* alive */
    struct common_grad grad[COMMON_GRADS];
    unsigned n;
};

/* What a backward from there on finds. */
struct common_back {
    bool known, arrives; /* whether arrivals are noted */
    struct common_state from;
    struct extremum top;
    struct extremum until, since; /* until the first arrival, since the last */
    const struct arrival *arrival;
    uint32_t arrivals;
    uint64_t norms_from; /* of those arrivals' offsets: walk.norms_from */
};

struct walk_common {
    const struct block *of; /* whose is walked; NULL: nobody's */
    struct walk_slot input; /* its input's, before an operation uses it */
    bool owns_input;        /* ... a storage that the block accounts for */
    struct walk_slot *slot; /* [of->common_tensors] as the common operations
                                 leave them, and of the input */
    struct walk_slot used;
    struct walk_slot *at;    /* where lists and these have the input's */
    struct walk_begun begun; /* the operations after these */
    uint32_t made;
    bool special, leaves, outlives, pieces, policy, stays, outside; /* as in
                                                                 struct walk */
    struct common_back back[2][WGRAD_MODES]; /* by walk.unpacks */
};

bool walk_common_init(struct walk_scratch *s, const struct program *p,
                      struct arena *a)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < p->n_blocks; i++)
        most = (uint32_t)max_u64(most, p->block[i].common_tensors);
    s->common = NULL;
    if (most == 0)
        return true;
    s->common = ARENA_ROOM(a, struct walk_common, 1);
    if (s->common == NULL)
        return false;
    s->common->of = NULL;
    s->common->slot = ARENA_ROOM(a, struct walk_slot, most);
    return s->common->slot != NULL;
}

void walk_common_forget(struct walk_common *c)
{
    c->of = NULL;
}

/* ---- slots ---- */

static struct walk_slot *input_of(const struct walk *w)
{
    return &w->slot[w->b->tensor_count];
}

void walk_common_begin(struct walk *w)
{
    w->common->of = NULL;
    w->common->input = *input_of(w);
    w->common->owns_input = input_of(w)->root == input_of(w);
}

void walk_common_keep(struct walk *w, const struct walk_begun *begun)
{
    struct walk_common *c = w->common;
    c->of = w->b;
    memcpy(c->slot, w->slot, w->b->common_tensors * sizeof(*c->slot));
    c->at = input_of(w);
    c->used = *c->at;
    c->begun = *begun;
    c->made = w->n_made;
    c->special = w->special;
    c->leaves = w->leaves;
    c->outlives = w->outlives;
    c->pieces = w->pieces;
    c->policy = w->policy;
    c->stays = w->stays;
    c->outside = w->outside;
    for (unsigned m = 0; m < WGRAD_MODES; m++)
        c->back[false][m].known = c->back[true][m].known = false;
}

/* Of a storage of its own, which either is; how long frames hold it is not the
 * operations' to say. */
static bool same_input(const struct walk_common *c, const struct walk_slot *in)
{
    return c->owns_input && in->root == in && c->input.bytes == in->bytes
           && c->input.wants == in->wants;
}

static void take_input(struct walk *w, const struct walk_common *c)
{
    struct walk_slot *in = input_of(w);
    const struct walk_slot own = *in;
    *in = c->used;
    in->past = own.past;
    in->lingers = own.lingers;
    in->framed = own.framed;
    if (in->last_use >= w->b->common_ops) /* none of these uses it */
        in->last_use = own.last_use;
}

/* Whether tensors are as long there: what follows the common operations may have
 * lengthened the life of what these made. From needs_grad to held all are bools. */
static bool live_alike(const struct walk *w, const struct block *as)
{
    enum {
        FIRST = offsetof(struct tensor, needs_grad),
        SIZE = offsetof(struct tensor, held) + sizeof(bool) - FIRST
    };
    const struct tensor *x = &w->p->tensor[as->tensor_first];
    const struct tensor *y = &w->p->tensor[w->b->tensor_first];
    for (uint32_t i = 0; i < as->common_tensors; i++, x++, y++)
        if (memcmp((const char *)x + FIRST, (const char *)y + FIRST, SIZE) != 0)
            return false;
    return true;
}

static inline void move(struct walk_slot **at, const struct walk_slot *from,
                        struct walk_slot *to)
{
    if (*at == from)
        *at = to;
}

/* The input's slot lies behind those of a block's own tensors. */
static void move_input(struct walk *w, struct walk_common *c,
                       struct walk_slot *to)
{
    const struct walk_slot *from = c->at;
    const uint32_t saved = w->saved_from[w->b->common_ops];
    for (uint32_t i = 0; i < w->b->common_tensors; i++)
        move(&c->slot[i].root, from, to);
    for (struct walk_operand *x = w->operand; x < c->begun.operand; x++) {
        move(&x->slot, from, to);
        move(&x->root, from, to);
    }
    for (uint32_t i = 0; i < saved; i++)
        move(&w->saved[i], from, to);
    move(&c->used.root, from, to);
    c->at = to;
}

bool walk_common_resume(struct walk *w, struct walk_begun *begun)
{
    struct walk_common *c = w->common;
    struct walk_slot *in = input_of(w);
    if (c->of != &w->p->block[w->b->begins_as] || !same_input(c, in)
        || !live_alike(w, c->of))
        return false;
    if (c->at != in)
        move_input(w, c, in);
    memcpy(w->slot, c->slot, w->b->common_tensors * sizeof(*c->slot));
    take_input(w, c);
    *begun = c->begun;
    w->n_made = c->made;
    w->special = w->special || c->special;
    w->leaves = c->leaves;
    w->outlives = w->outlives || c->outlives;
    w->pieces = w->pieces || c->pieces;
    w->policy = c->policy;
    w->stays = w->stays || c->stays;
    w->outside = c->outside;
    return true;
}

/* ---- backward ---- */

/* What is there; false where it is more than is looked at. */
static bool find_state(struct common_state *x, const struct walk *w)
{
    *x = (struct common_state){ w->kept, w->tmp, w->wgrad, .n = 0 };
    const uint32_t n = w->b->common_tensors;
    for (uint32_t i = 0; i <= n; i++) {
        const struct walk_slot *s = i < n ? &w->slot[i] : input_of(w);
        if (s->has_wgrad)
            return false;
        if (s->grad == NO_GRAD)
            continue;
        if (x->n == COMMON_GRADS)
            return false;
        const struct walk_buffer *b = &w->buffer[s->grad];
        x->grad[x->n++] = (struct common_grad){ i, b->refs, s->grad,
                                                s->grad_is_view, b->bytes };
    }
    return w->led || !w->unpacks;
}

static bool same_grad(const struct common_state *x,
                      const struct common_state *y, unsigned i)
{
    const struct common_grad *a = &x->grad[i], *b = &y->grad[i];
    for (unsigned k = 0; k < i; k++)
        if ((x->grad[k].buffer == a->buffer)
            != (y->grad[k].buffer == b->buffer))
            return false;
    return a->slot == b->slot && a->refs == b->refs && a->view == b->view
           && a->bytes == b->bytes;
}

/* Operations beyond have let go of what they saved, each of its own. */
static bool same_state(const struct common_state *x,
                       const struct common_state *y)
{
    bool same = x->kept == y->kept && x->tmp == y->tmp && x->wgrad == y->wgrad
                && x->n == y->n;
    for (unsigned i = 0; same && i < x->n; i++)
        same = same_grad(x, y, i);
    return same;
}

/* Of none there is no operation to say. */
static struct extremum later(struct extremum e, uint32_t ops)
{
    e.op += extremum_total(&e) > 0 ? ops : 0;
    return e;
}

/* The first of the fullest. */
static struct extremum fullest(const struct extremum *first,
                               const struct extremum *second)
{
    return *extremum_fuller(second, first);
}

/* Those of the block that was walked, as this one's. */
static void arrive_again(struct walk *w, const struct common_back *known,
                         uint32_t ops)
{
    for (uint32_t i = 0; i < known->arrivals; i++) {
        struct arrival *a = &w->arrival[w->arrivals++];
        *a = known->arrival[i];
        a->at = later(a->at, ops);
        a->until = later(a->until, ops);
        if (a->offset >= known->norms_from)
            a->offset = a->offset - known->norms_from + w->norms_from;
    }
}

static void take_known(struct walk *w, const struct common_back *known)
{
    const uint32_t ops = w->b->op_first - w->common->of->op_first;
    const struct extremum top = later(known->top, ops);
    w->top = fullest(&w->top, &top);
    if (w->arrival == NULL)
        return;
    const struct extremum until = later(known->until, ops);
    const struct extremum before = fullest(&w->since, &until);
    const uint32_t first = w->arrivals;
    arrive_again(w, known, ops);
    if (known->arrivals > 0) {
        w->arrival[first].until = before;
        w->since = later(known->since, ops);
    } else {
        w->since = before;
    }
}

/* Apart from what was before, and with it. */
static void walk_below(struct walk *w, struct common_back *back,
                       const struct walk_operand *x)
{
    const struct extremum top = w->top, since = w->since;
    const uint32_t first = w->arrivals;
    w->top = w->since = (struct extremum){ 0 };
    walk_backward_ops(w, x, w->b->common_ops, 0);
    back->top = w->top;
    back->since = back->until = w->since;
    back->arrives = w->arrival != NULL;
    back->arrivals = w->arrivals - first;
    back->norms_from = w->norms_from;
    w->top = fullest(&top, &back->top);
    if (w->arrival == NULL)
        return;
    back->arrival = &w->arrival[first];
    if (back->arrivals > 0)
        back->until = w->arrival[first].until;
    const struct extremum before = fullest(&since, &back->until);
    if (back->arrivals > 0)
        w->arrival[first].until = before;
    else
        w->since = before;
}

void walk_common_back(struct walk *w)
{
    const struct walk_operand *x = w->common->begun.operand;
    struct common_back *known = &w->common->back[w->unpacks][w->mode];
    struct common_back other;
    struct common_state from;
    if (!find_state(&from, w)) {
        walk_backward_ops(w, x, w->b->common_ops, 0);
        return;
    }
    if (known->known && known->arrives == (w->arrival != NULL)
        && same_state(&from, &known->from)) {
        take_known(w, known);
        return;
    }
    struct common_back *back = known->known ? &other : known;
    back->from = from;
    walk_below(w, back, x);
    back->known = true;
}
