/*
 * What a walk knows of a block before it begins: which storages its operations
 * make, use and keep, and when. Owns nothing of what is alive at a moment.
 * [docs/method.md eq. saved]
 */
#include "fold/walk_private.h"

#include "base/banned.h"

/* ---- slots ---- */

/* Megatron's CheckpointWithoutOutput: not even the result stays; it is made
 * again for whoever kept it (megatron/core/tensor_parallel/random.py). The
 * other regions are plain checkpoints, whose result lives on. */
static bool discards_result(const struct op *op)
{
    const unsigned m = op->region - 1u;
    return op->region != 0
           && (m == REMOD_LAYERNORM || m == REMOD_MOE_ACT
               || m == REMOD_MLA_UP_PROJ);
}

/* First and last operation of the run of one region that k is in. */
uint32_t walk_run_first(const struct walk *w, uint32_t k)
{
    while (k > 0 && walk_op_at(w, k - 1)->region == walk_op_at(w, k)->region)
        k--;
    return k;
}

uint32_t walk_run_last(const struct walk *w, uint32_t k)
{
    while (k + 1 < w->b->op_count
           && walk_op_at(w, k + 1)->region == walk_op_at(w, k)->region)
        k++;
    return k;
}

static inline bool is_local(const struct walk *w, const struct tensor *t,
                            tensor_id id)
{
    return t->storage == id && !t->pooled && !t->shared_out
           && (t->role == ROLE_ACTIVATION || id == w->b->input);
}

/* Of a view. */
static struct walk_slot *root_of_view(const struct walk *w, tensor_id storage)
{
    return is_local(w, &w->p->tensor[storage], storage)
               ? walk_slot_of(w, storage)
               : NULL;
}

INLINE void slot_init(struct walk *w, struct walk_slot *s,
                      const struct tensor *t, tensor_id id)
{
    const bool local = is_local(w, t, id);
    *s = (struct walk_slot){
        .root = local              ? s
                : t->storage == id ? NULL
                                   : root_of_view(w, t->storage),
        .bytes = local ? walk_round(w, t->bytes) : 0,
        .grad = NO_GRAD,
        .wants = walk_gives_grad(w, t, id),
        .birth = NEVER_MADE,
    };
}

/* How long the engine, the loop or a frame holds it; of most, no longer than it
 * is used. */
APART void note_holds(struct walk *w, struct walk_slot *s,
                      const struct tensor *t)
{
    s->past = t->past;
    s->lingers = t->lingers || t->past;
    s->framed = t->framed || (t->handed && w->b->kind == BLOCK_EMBED);
    w->outlives = w->outlives || s->lingers || s->framed;
    w->pieces = w->pieces || t->pieces || t->lone || t->made_in_8_bits;
    w->special = true;
}

/* Of what comes in. */
APART void edges_init(struct walk *w)
{
    const struct block *b = w->b;
    struct walk_slot *in = &w->slot[b->tensor_count];
    if (b->input != TENSOR_NONE) {
        slot_init(w, in, &w->p->tensor[b->input], b->input);
        if (!tensor_is_plain(&w->p->tensor[b->input]))
            note_holds(w, in, &w->p->tensor[b->input]);
    } else {
        *in = (struct walk_slot){ .grad = NO_GRAD };
    }
    in->birth = 0;                                 /* no operation makes it */
    in->last_use = b->op_count;                    /* none yet */
    in[1] = (struct walk_slot){ .grad = NO_GRAD }; /* the memory: not its own */
    if (b->memory == TENSOR_NONE)
        return;
    in[1].root = walk_root_of(w, b->memory);
    in[1].wants = walk_gives_grad(w, &w->p->tensor[b->memory], b->memory);
}

/* Of what the block makes, from `first` on. */
APART void slots_init(struct walk *w, uint32_t first)
{
    const struct block *b = w->b;
    const struct tensor *t = &w->p->tensor[b->tensor_first + first];
    struct walk_slot *s = &w->slot[first];
    for (uint32_t i = first; i < b->tensor_count; i++, t++, s++) {
        slot_init(w, s, t, b->tensor_first + i);
        if (tensor_is_plain(t))
            continue;
        note_holds(w, s, t);
        if (!t->held && !t->stays)
            continue;
        s->kept = w->stays = true;
        s->saves_all = 1;
    }
}

/* As walk_root_of(), when slots know theirs. */
static struct walk_slot *root_of(const struct walk *w, tensor_id id)
{
    const struct walk_slot *s = walk_slot_of(w, id);
    return s != NULL ? s->root : walk_root_of(w, id);
}

/* Of no tensor that the block makes. */
static void operand_outside(const struct walk *w, struct walk_operand *x,
                            tensor_id id)
{
    x->slot = walk_slot_of(w, id);
    x->root = root_of(w, id);
    x->wants = walk_wants_grad(w, id);
}

static inline void operand_init(const struct walk *w, struct walk_operand *x,
                                tensor_id id)
{
    const uint32_t i = id - w->b->tensor_first;
    if (i >= w->b->tensor_count) {
        operand_outside(w, x, id);
        return;
    }
    struct walk_slot *s = &w->slot[i];
    *x = (struct walk_operand){ s, s->root, s->wants };
}

/* `x`: the operation's operands. */
APART void note_stand_ins(const struct walk *w, const struct op *op,
                          struct walk_operand *x)
{
    for (unsigned i = 0; i < op->n_in; i++)
        x[i].wants = x[i].wants && !walk_is_stand_in(w, op, i);
}

/* Of what an operation makes: a collective's result, not what is put in order
 * for it; the kernel's results, not what a ring has around them. */
static bool is_stored(const struct op *op, unsigned i)
{
    if (op->kind == OP_REDUCE_SCATTER)
        return i == 0;
    return op->keep_out == 0 || (op->keep_out >> i & 1) != 0;
}

/* What few operations are said to be. `out`: what it makes. */
APART void note_special(struct walk *w, const struct op *op,
                        const struct walk_operand *out)
{
    w->outside = w->outside || op->outside;
    w->leaves = w->leaves || op->returns || op->renames;
    for (unsigned i = 0; i < op->n_out && op->checkpointed; i++)
        if (out[i].root != NULL && is_stored(op, i))
            out[i].root->checkpointed = w->policy = true;
}

/* Returns what comes after its operands. */
static inline struct walk_operand *note_uses(struct walk *w,
                                             const struct op *op, uint32_t k,
                                             struct walk_operand *x)
{
    for (const tensor_id *id = op->in, *end = id + op->n_in; id < end;
         id++, x++) {
        operand_init(w, x, *id);
        if (x->root != NULL)
            x->root->last_use = k;
    }
    if (op->kind == OP_LINEAR && op->n_in > 2)
        note_stand_ins(w, op, x - op->n_in);
    for (const tensor_id *id = op->out, *end = id + op->n_out; id < end;
         id++, x++) {
        operand_init(w, x, *id);
        struct walk_slot *s = x->root;
        if (s == NULL)
            continue;
        s->last_use = k;
        if (s == x->slot)
            s->first_use = k;
        if (s->birth != NEVER_MADE)
            continue;
        s->birth = k;
        w->made[w->n_made++] = s;
    }
    return x;
}

/* Autocast keeps its 16-bit copies of trained weights until its context ends,
 * with or without a graph: of leaves, not of views of them
 * (aten/src/ATen/autocast_mode.cpp, cached_cast). */
static void note_cast(struct walk *w, const struct op *op)
{
    const struct tensor *in = &w->p->tensor[op->in[0]];
    const struct tensor *out = &w->p->tensor[op->out[0]];
    struct walk_slot *s = root_of(w, op->out[0]);
    if (in->role == ROLE_PARAM && (op->keep_in & CAST_INSIDE) == 0
        && (in->trainable || in->in_vain) && out->bytes < in->bytes
        && s != NULL)
        s->lingers = w->outlives = true;
}

/* Made by an active region that does not keep its result. */
bool walk_is_discarded(const struct walk *w, const struct walk_slot *s)
{
    if (walk_is_input(w, s))
        return false;
    const struct op *maker = walk_op_at(w, s->first_use);
    return walk_region_active(w, maker) && discards_result(maker);
}

/* A storage is kept when an operation outside active regions keeps it; inside
 * a region only what comes in from outside is kept, the rest is made again.
 * `x`: the operation's operands. */
static void note_in_region(struct walk *w, const struct op *op, uint32_t first,
                           const struct walk_operand *x, const uint8_t *saved,
                           size_t n)
{
    const bool active = walk_region_active(w, op);
    for (size_t i = 0; i < n; i++) {
        struct walk_slot *s = x[saved[i]].root;
        if (s != NULL
            && (!active || walk_is_input(w, s) || s->first_use < first))
            s->kept = s->kept || !walk_is_discarded(w, s);
    }
    if (!active)
        return;
    /* a checkpoint keeps its inputs, needed or not */
    for (unsigned i = 0; i < op->n_in; i++) {
        struct walk_slot *s = x[i].root;
        if (s != NULL && (walk_is_input(w, s) || s->first_use < first)) {
            s->kept = s->kept || !walk_is_discarded(w, s);
            s->saves_all++;
        }
    }
}

/* `x`: the operation's operands. */
static inline void note_saves(struct walk *w, const struct op *op, uint32_t k,
                              uint32_t first, const struct walk_operand *x)
{
    uint8_t saved[SAVED_MAX];
    const size_t n =
        op_kind_saves(op->kind) ? op_saves_operands(w->p, op, saved) : 0;
    const bool regions = w->regions != 0;
    uint32_t next = w->saved_from[k];
    for (size_t i = 0; i < n; i++) {
        struct walk_slot *s = x[saved[i]].root;
        if (s == NULL)
            continue;
        w->saved[next++] = s;
        s->saves_all++;
        s->kept = s->kept || !regions;
    }
    w->saved_from[k + 1] = next;
    if (regions)
        note_in_region(w, op, first, x, saved, n);
}

/* What operations beside the layer keep outlives a checkpoint around it. */
static void note_outside(struct walk *w, const struct op *op)
{
    if (!op->outside)
        return;
    for (unsigned i = 0; i < op->n_out; i++) {
        struct walk_slot *s = root_of(w, op->out[i]);
        if (s != NULL && s->kept && !walk_is_input(w, s)) /* a view of it */
            s->checkpointed = true;
    }
}

/* Of operations up to before one. */
APART void ops_init(struct walk *w, struct walk_begun *at, uint32_t end)
{
    const struct op *op = walk_op_at(w, at->op);
    struct walk_operand *x = at->operand;
    const bool all = w->step == STEP_EAGER, regions = w->regions != 0;
    uint32_t first = at->first;
    for (uint32_t k = at->op; k < end; k++, op++) {
        const struct walk_operand *own = x;
        x = note_uses(w, op, k, x);
        if (op->kind == OP_CAST)
            note_cast(w, op);
        if (!op_is_plain(op))
            note_special(w, op, x - op->n_out);
        if (regions && (k == 0 || op[-1].region != op->region))
            first = k;
        if (all || walk_counts(w, op))
            note_saves(w, op, k, first, own);
        else
            w->saved_from[k + 1] = w->saved_from[k];
    }
    *at = (struct walk_begun){ x, end, first };
}

static void lists_init(struct walk *w, struct walk_begun *at)
{
    *at = (struct walk_begun){ .operand = w->operand };
    w->saved_from[0] = w->n_made = 0;
}

/* All that is left of it. */
static void init_rest(struct walk *w, struct walk_begun *at)
{
    const struct block *b = w->b;
    ops_init(w, at, b->op_count);
    w->operands_end = at->operand;
    if (w->step != STEP_EAGER)
        walk_graphs_init(w);
    for (uint32_t k = 0; k < b->op_count && w->outside; k++)
        note_outside(w, walk_op_at(w, k));
}

void walk_init(struct walk *w)
{
    struct walk_begun at;
    if (w->common != NULL)
        walk_common_forget(w->common);
    slots_init(w, 0);
    edges_init(w);
    lists_init(w, &at);
    init_rest(w, &at);
}

void walk_init_common(struct walk *w)
{
    struct walk_begun at;
    edges_init(w);
    if (walk_common_resume(w, &at)) {
        slots_init(w, w->b->common_tensors);
    } else {
        slots_init(w, 0);
        lists_init(w, &at);
        walk_common_begin(w);
        ops_init(w, &at, w->b->common_ops);
        walk_common_keep(w, &at);
    }
    init_rest(w, &at);
}
