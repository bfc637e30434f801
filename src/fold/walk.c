/*
 * The liveness of one block, forward and backward. Owns the rules of an
 * autograd engine that are not save rules: when a tensor dies, where gradient
 * buffers are shared, added in place or made anew, and what a backward kernel
 * needs for a moment. Knows no optimizer, engine or pipeline.
 * [docs/method.md eq. saved, eq. transient]
 */
#include "fold/walk_private.h"

#include "base/banned.h"

static uint32_t more(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* What the operations of a block have. */
struct operands {
    uint32_t in, out;
};

static struct operands operands_of(const struct program *p,
                                   const struct block *b)
{
    struct operands sum = { 0, 0 };
    const struct op *end = &p->op[b->op_first + b->op_count];
    for (const struct op *op = &p->op[b->op_first]; op < end; op++) {
        sum.in += op->n_in;
        sum.out += op->n_out;
    }
    return sum;
}

bool walk_scratch_init(struct walk_scratch *s, const struct program *p,
                       struct arena *a)
{
    uint32_t slots = 0, buffers = 0, operands = 0, ops = 0;
    uint32_t arrivals = p->n_blocks; /* an end of each */
    for (uint32_t i = 0; i < p->n_blocks; i++) {
        const struct block *b = &p->block[i];
        slots = more(slots, b->tensor_count);
        const struct operands n = operands_of(p, b);
        /* one an operand, one more where a second gradient is added to it, and
           the gradients that come in */
        buffers = more(buffers, 2 * n.in + 2);
        operands = more(operands, n.in + n.out);
        ops = more(ops, b->op_count);
        arrivals += n.in; /* weights are among them */
    }
    s->granule = ALLOC_ROUND;
    s->arrivals = 0;
    s->arrivals_room = 2 * arrivals; /* and unpacked */
    s->arrival = ARENA_ROOM(a, struct arrival, s->arrivals_room);
    s->slot = ARENA_ROOM(a, struct walk_slot, (size_t)slots + 2);
    s->way_out = ARENA_ROOM(a, struct walk_way_out, (size_t)slots + 2);
    s->buffer = ARENA_ROOM(a, struct walk_buffer, buffers);
    s->made = ARENA_ROOM(a, struct walk_slot *, (size_t)slots + 1);
    s->ends = ARENA_ROOM(a, uint64_t, (size_t)ops + 1);
    s->operand = ARENA_ROOM(a, struct walk_operand, operands);
    /* a fused kernel may name an operand twice */
    s->saved = ARENA_ROOM(a, struct walk_slot *, (size_t)operands * 2);
    s->saved_from = ARENA_ROOM(a, uint32_t, (size_t)ops + 1);
    if (s->away == AWAY_MODULES) {
        s->modules = ARENA_NEW(a, struct modules_walk, p->n_blocks);
        s->entries_room = operands * 2;
        s->entry = ARENA_ROOM(a, struct module_entry, s->entries_room);
    }
    return walk_common_init(s, p, a) && !a->failed;
}

/* ---- accounting ---- */

/* Counted with what is kept: in a second forward also what the checkpoint had
 * and nobody needs, until its last use. */
static bool counts_as_kept(const struct walk *w, const struct walk_slot *s)
{
    return walk_stays(w, s) || (walk_is_again(w) && s->checkpointed);
}

/* A checkpoint's forward writes what products take in 8 bits as they take it;
 * backward, and what runs for it, has it in 16. */
static inline uint64_t made_bytes(const struct walk *w,
                                  const struct walk_slot *s)
{
    const uint32_t i = (uint32_t)(s - w->slot);
    if (!w->pieces || w->pass != PASS_CHECKPOINT || s->checkpointed
        || i >= w->b->tensor_count)
        return s->bytes;
    const struct tensor *t = &w->p->tensor[w->b->tensor_first + i];
    return t->made_in_8_bits ? walk_round(w, dtype_bytes_of(DT_FP8, t->elems))
                             : s->bytes;
}

COLD static void tell_slot(struct walk *w, const struct walk_slot *s,
                           bool birth)
{
    const uint32_t i = (uint32_t)(s - w->slot);
    const tensor_id id =
        i == w->b->tensor_count ? w->b->input : w->b->tensor_first + i;
    walk_tell(w, (struct walk_event){ .birth = birth,
                                      .what = WALK_TENSOR,
                                      .kept = counts_as_kept(w, s),
                                      .lingers = w->ended && s->lingers,
                                      .away = s->away,
                                      .key = i,
                                      .bytes = made_bytes(w, s),
                                      .name = w->p->tensor[id].name });
}

void walk_slot_alloc(struct walk *w, struct walk_slot *s)
{
    s->live = true;
    if (counts_as_kept(w, s))
        w->kept += s->bytes;
    else
        w->tmp += made_bytes(w, s);
    if (w->tell != NULL)
        tell_slot(w, s, true);
}

void walk_slot_free(struct walk *w, struct walk_slot *s)
{
    if (!s->live || (s->away && (w->reloads || w->holds)))
        return;
    s->live = false;
    if (counts_as_kept(w, s))
        w->kept -= s->bytes;
    else
        w->tmp -= made_bytes(w, s);
    if (w->tell != NULL)
        tell_slot(w, s, false);
}

/* ---- results ---- */

static uint64_t weight_grads(const struct walk *w)
{
    uint64_t sum = 0;
    const struct tensor *t;
    for (tensor_id id = w->b->weights; id != TENSOR_NONE; id = t->next) {
        t = &w->p->tensor[id];
        if (walk_is_weight(w, id) && (!t->again || t->waits))
            sum += walk_round(w, tensor_grad_bytes(t));
    }
    return sum;
}

static bool is_idle(const struct program *p, const struct block *b)
{
    for (uint32_t i = 0; i < b->tensor_count; i++)
        if (p->tensor[b->tensor_first + i].needs_grad)
            return false;
    return true;
}

/* Of those that are on, the ones that the block has. */
static uint64_t regions_of(const struct program *p, const struct block *b,
                           uint64_t regions)
{
    uint64_t here = 0;
    if ((regions & p->regions >> 1) == 0) /* region 0 is none */
        return 0;
    for (uint32_t k = 0; k < b->op_count; k++)
        here |= UINT64_C(1) << p->op[b->op_first + k].region;
    return regions & here >> 1;
}

struct walk walk_on(const struct program *p, const struct block *block,
                    uint64_t regions, const struct walk_scratch *scratch)
{
    return (struct walk){ .p = p,
                          .b = block,
                          .slot = scratch->slot,
                          .way_out = scratch->way_out,
                          .buffer = scratch->buffer,
                          .operand = scratch->operand,
                          .saved = scratch->saved,
                          .saved_from = scratch->saved_from,
                          .made = scratch->made,
                          .ends = scratch->ends,
                          .regions = regions_of(p, block, regions),
                          .granule = scratch->granule,
                          .step = scratch->step,
                          .counted = UINT64_MAX,
                          .bare = scratch->bare,
                          .cudnn = scratch->cudnn,
                          .graph = scratch->graph,
                          .weights_first = scratch->weights_first,
                          .delays = scratch->delays,
                          .result_held = scratch->result_held,
                          .reduce_blocks = scratch->reduce_blocks,
                          .update_copies = scratch->update_copies,
                          .projects = scratch->projects,
                          .tied_table = scratch->tied_table,
                          .persists = scratch->persists,
                          .common = scratch->common };
}

void walk_input_handed(struct walk *w)
{
    const int32_t g = w->slot[w->b->tensor_count].grad;
    if (g != NO_GRAD && !w->buffer[g].stashed)
        w->tmp -= w->buffer[g].bytes;
}

static struct arrived arrived_of(const struct arrival *a, uint32_t n)
{
    struct arrived sum = { 0 };
    for (uint32_t k = 0; k < n; k++) {
        const uint64_t end = a[k].offset + a[k].elems;
        if (a[k].elems == 0)
            continue;
        sum.offset =
            sum.tensors == 0 ? a[k].offset : min_u64(sum.offset, a[k].offset);
        sum.end = max_u64(sum.end, end);
        sum.second = max_u64(sum.second, min_u64(sum.largest, a[k].elems));
        sum.largest = max_u64(sum.largest, a[k].elems);
        sum.latest = a[k].offset;
        sum.elems += a[k].elems;
        sum.tensors++;
    }
    return sum;
}

static void keep_calm(struct calm *best, const struct extremum *e,
                      uint64_t gone)
{
    if (extremum_total(e) + best->gone > extremum_total(&best->e) + gone)
        *best = (struct calm){ *e, gone };
}

/* The first of the fullest moments, in order. */
static struct calm calm_of(const struct arrival *a, uint32_t n, bool goes)
{
    struct calm best = { .e = a[0].until };
    uint64_t gone = 0;
    for (uint32_t k = 0; k < n; k++) {
        keep_calm(&best, &a[k].at, gone);
        gone += goes ? a[k].goes : 0;
        keep_calm(&best, &a[k + 1].until, gone);
    }
    return best;
}

/* A backward that notes when each weight's gradient comes. */
static struct extremum walk_arrivals(struct walk *w, struct block_walk *out,
                                     struct walk_scratch *scratch)
{
    struct arrival *first = &scratch->arrival[scratch->arrivals];
    w->arrival = first;
    w->arrivals = 0;
    walk_lay_out(w);
    const struct extremum top = walk_backward(w, WGRAD_FREE);
    w->arrival[w->arrivals] = (struct arrival){ .until = w->since };
    out->arrivals = w->arrivals;
    if (w->unpacks)
        out->unpacked_arrival = first;
    struct calm *calm = w->unpacks ? out->unpacked_calm : out->calm;
    calm[false] = calm_of(first, w->arrivals, false);
    calm[true] = calm_of(first, w->arrivals, true);
    if (out->arrival == NULL) {
        out->arrival = first;
        out->arrived = arrived_of(first, w->arrivals);
    }
    scratch->arrivals += w->arrivals + 1;
    w->arrival = NULL;
    return top;
}

static void walk_backwards(struct walk *w, struct block_walk *out,
                           unsigned modes, struct walk_scratch *scratch)
{
    struct extremum *top = w->unpacks ? out->unpacked : out->backward;
    for (unsigned m = 0; m < WGRAD_MODES; m++) {
        if ((modes >> m & 1) == 0)
            continue;
        if (out->overlap != NULL)
            w->nodes = &scratch->overlap->backward[m];
        top[m] = m == WGRAD_FREE && (modes & WALK_ARRIVALS) != 0
                     ? walk_arrivals(w, out, scratch)
                     : walk_backward(w, (enum wgrad_mode)m);
        w->nodes = NULL;
    }
}

enum away_how walk_how(const struct walk_scratch *scratch,
                       const struct block *block)
{
    if (block->kind == BLOCK_HEAD && scratch->away_head)
        return AWAY_TENSORS;
    if (scratch->away == AWAY_MODULES) /* prediction's stand in the head */
        return AWAY_MODULES;
    return block->kind == BLOCK_LAYER ? scratch->away : AWAY_NOTHING;
}

/* Of modules, in the stretches between their ends. */
static void walk_modules(struct walk *w, struct modules_walk *out,
                         unsigned modes)
{
    for (unsigned m = 0; m < WGRAD_MODES; m++) {
        if ((modes >> m & 1) == 0)
            continue;
        for (unsigned back = 0; back < 2; back++) {
            w->back = back;
            w->stretch = back ? out->back[m] : out->stayed[m];
            walk_backward(w, (enum wgrad_mode)m);
        }
    }
    w->stretch = NULL;
    w->back = false;
}

/* What is on the host in between. */
static void walk_away(struct walk *w, struct away *out, unsigned modes,
                      enum away_how how)
{
    walk_find_away(w, out, how);
    w->reloads = how == AWAY_LAYERS;
    w->unloads = how == AWAY_TENSORS || how == AWAY_MODULES;
    if (w->unloads)
        out->forward = walk_forward(w, PASS_KEEP);
    if (how == AWAY_MODULES) {
        out->modules = w->modules;
        w->unloads = false;
        walk_modules(w, w->modules, modes);
        return;
    }
    for (unsigned m = 0; m < WGRAD_MODES; m++)
        if ((modes >> m & 1) != 0)
            out->backward[m] = walk_backward(w, (enum wgrad_mode)m);
}

/* What becomes of a storage: of one that the block makes, `t`. */
static void add_slot(struct block_walk *out, const struct walk *w,
                     const struct walk_slot *s, const struct tensor *t,
                     bool result)
{
    const uint64_t bytes = s->bytes;
    if (bytes == 0)
        return;
    if (s->kept)
        out->kept += bytes;
    if (s->checkpointed)
        out->checkpoint += bytes;
    if (s->lingers && !result) {
        out->lingers_nograd += s->checkpointed ? 0 : bytes;
        out->lingers += s->kept ? 0 : bytes;
    }
    if (t == NULL)
        return;
    if (t->held)
        out->held += bytes;
    if (t->framed && !result && !s->kept && !s->lingers)
        out->framed += bytes;
    if (t->handed && w->b->kind == BLOCK_LAYER)
        out->takes += bytes;
    if (t->past && !result) {
        out->past_nograd += s->checkpointed ? 0 : bytes;
        out->past += s->kept ? 0 : bytes;
    }
}

/* Of all that the block makes. */
static void add_slots(struct block_walk *out, const struct walk *w,
                      const struct walk_slot *result)
{
    const struct tensor *t = &w->p->tensor[w->b->tensor_first];
    const struct walk_slot *s = w->slot;
    for (uint32_t i = 0; i < w->b->tensor_count; i++, s++, t++)
        if (!s->checkpointed && !s->lingers && tensor_is_plain(t))
            out->kept += s->kept ? s->bytes : 0;
        else
            add_slot(out, w, s, t, s == result);
}

/* The same where nothing but backward keeps any of it. */
static void add_kept(struct block_walk *out, const struct walk *w)
{
    for (uint32_t i = 0; i < w->b->tensor_count; i++)
        out->kept += w->slot[i].kept ? w->slot[i].bytes : 0;
}

static void walk_alone(struct walk *w, struct block_walk *out,
                       struct overlap_walk *overlap)
{
    w->nodes = overlap == NULL ? NULL : &overlap->forward;
    out->forward = walk_forward(w, PASS_KEEP);
    w->nodes = NULL;
    out->renames = w->renames;
    out->returns = w->returns;
    out->inside = w->inside;
    out->before = w->before;
    out->after = w->top;
}

/* A second forward is the first one where the checkpoint has the input alone,
 * and nothing outlives its last use in one of them only. */
static bool runs_the_same(const struct walk *w, const struct block_walk *out)
{
    if (w->outside || out->checkpoint != w->slot[w->b->tensor_count].bytes)
        return false;
    for (uint32_t i = 0; i < w->b->tensor_count; i++) {
        const struct walk_slot *s = &w->slot[i];
        if (s->bytes > 0 && !s->kept && (s->lingers || s->framed) != s->past)
            return false;
    }
    return true;
}

static void walk_forwards(struct walk *w, struct block_walk *out,
                          unsigned modes, struct overlap_walk *overlap)
{
    const bool checkpoint = (modes & WALK_CHECKPOINT) != 0;
    const bool under = (modes & WALK_UNDER) != 0 && !out->idle;
    const bool again = checkpoint && ((modes & WALK_LONE) == 0 || out->idle);
    const bool same = again && runs_the_same(w, out);
    if (checkpoint)
        out->forward_nograd = walk_forward(w, PASS_CHECKPOINT);
    if (!under || same)
        walk_alone(w, out, overlap);
    if (again)
        out->again = same ? out->forward : walk_forward(w, PASS_AGAIN);
    if ((modes & WALK_EARLY) != 0)
        out->again_early = walk_forward(w, PASS_AGAIN_EARLY);
}

/* Whether what it begins with is walked as that of another one. */
static bool begins_alike(const struct walk *w,
                         const struct walk_scratch *scratch)
{
    const struct block *b = w->b, *as = &w->p->block[b->begins_as];
    return w->common != NULL && b->common_ops > 0 && w->regions == 0
           && b->memory == TENSOR_NONE && as->memory == TENSOR_NONE
           && b->input != TENSOR_NONE && scratch->overlap == NULL
           && walk_how(scratch, b) == AWAY_NOTHING;
}

void walk_block(struct block_walk *out, const struct program *p,
                const struct block *block, uint64_t regions, unsigned modes,
                struct walk_scratch *scratch)
{
    struct walk w = walk_on(p, block, regions, scratch);
    *out = (struct block_walk){ 0 };
    w.begins = begins_alike(&w, scratch);
    if (w.begins)
        walk_init_common(&w);
    else
        walk_init(&w);
    const struct walk_slot *in = &w.slot[block->tensor_count];
    out->keeps_input = in->kept;
    out->idle = is_idle(p, block);
    out->input = in->bytes;
    out->received = w.step == STEP_EAGER || block->input == TENSOR_NONE
                        ? in->bytes
                        : walk_round(&w, p->tensor[block->input].bytes);
    if (block->output != TENSOR_NONE)
        out->output = walk_round(&w, p->tensor[block->output].bytes);
    const struct walk_slot *result =
        block->output == TENSOR_NONE ? NULL : walk_root_of(&w, block->output);
    if (w.step != STEP_EAGER)
        out->output = result == NULL ? 0 : result->bytes;
    out->keeps_output = result != NULL && result != in && result->kept;
    out->checkpoint = in->bytes;
    if (w.special || w.outlives || w.policy || w.outside)
        add_slots(out, &w, result);
    else
        add_kept(out, &w);
    add_slot(out, &w, in, NULL, in == result);
    if (block->memory != TENSOR_NONE && block->memory_waits
        && p->tensor[block->memory].needs_grad)
        out->waiting = walk_round(&w, p->tensor[block->memory].bytes);
    out->wgrad = weight_grads(&w);
    struct overlap_walk *overlap =
        walk_has_nodes(scratch, block) ? scratch->overlap : NULL;
    out->overlap = overlap;
    walk_forwards(&w, out, modes, overlap);
    if ((modes & WALK_UNPACKED) == 0 || out->idle)
        walk_backwards(&w, out, modes, scratch);
    if ((modes & WALK_UNPACKS) != 0) {
        w.unpacks = true;
        walk_backwards(&w, out, modes, scratch);
        out->lead = w.lead;
        w.unpacks = false;
    }
    if ((modes & WALK_SPLIT) != 0)
        walk_halves(&w, out, modes);
    if (walk_how(scratch, block) != AWAY_NOTHING) {
        walk_takes_modules(&w, scratch, walk_modules_of(scratch, p, block));
        walk_away(&w, &out->away, modes, walk_how(scratch, block));
    }
}

static void list_kept(struct walk *w, tensor_id id, const struct op *op,
                      walk_kept_fn *each, void *ctx)
{
    struct walk_slot *s = walk_root_of(w, id);
    if (s == NULL || !s->kept)
        return;
    s->kept = false; /* listed once */
    each(ctx, &w->p->tensor[w->p->tensor[id].storage], op, s->bytes);
}

void walk_kept(const struct program *p, const struct block *block,
               uint64_t regions, struct walk_scratch *scratch,
               walk_kept_fn *each, void *ctx)
{
    struct walk w = walk_on(p, block, regions, scratch);
    walk_init(&w);
    for (uint32_t k = 0; k < block->op_count; k++) {
        const struct op *op = walk_op_at(&w, k);
        tensor_id saved[SAVED_MAX];
        const size_t n = op_saves(p, op, saved);
        for (size_t i = 0; i < n; i++)
            list_kept(&w, saved[i], op, each, ctx);
        if (!walk_region_active(&w, op))
            continue;
        for (unsigned i = 0; i < op->n_in; i++) /* a checkpoint's inputs */
            list_kept(&w, op->in[i], op, each, ctx);
    }
}
