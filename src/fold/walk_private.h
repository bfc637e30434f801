/*
 * Inside of the walk: what its forward and its backward half share. Nothing
 * else includes this, but a test of its shortcuts.
 */
#ifndef MEMPLAN_FOLD_WALK_PRIVATE_H
#define MEMPLAN_FOLD_WALK_PRIVATE_H

#include "base/cold.h"
#include "fold/walk.h"

/* One a tensor of the block, one for the block's input, one for the encoder's
 * result, of which only the gradient is looked after. Storage-related members
 * are used on the root of a view chain only. */
struct walk_slot {
    uint64_t bytes;         /* as allocated; 0 for weights, inputs, shared */
    struct walk_slot *root; /* walk_root_of() its tensor: itself, where it is a
                               storage that this block accounts for */
    uint32_t birth;         /* operation that makes it or a view of it first,
                               or NEVER_MADE */
    uint32_t first_use;     /* operation that makes it */
    uint32_t last_use;
    uint32_t saves_all; /* operations that keep it */
    uint32_t saves;     /* ... in backward: those not yet done */
    int32_t grad;       /* index of its gradient's buffer, -1 none */
    int32_t stash;      /* buffer that its linear's weight needs, -1 none */
    bool has_wgrad;     /* a weight whose gradient is there already */
    bool live;
    bool grad_is_view; /* of that buffer */
    bool kept;         /* alive from forward to backward */
    bool lingers;      /* to the end of forward: autocast's copy of a weight */
    bool framed;       /* tensor.framed: to the end of the block, and on */
    bool past;         /* ... of forward, of a second one too: tensor.past */
    bool checkpointed; /* kept by a checkpoint around the block */
    bool wants;        /* walk_wants_grad() its tensor */
    bool away;         /* kept, and on the host in between: walk_away.c */
    bool reached;      /* a node that waits leads to it */
    bool result;       /* STEP_CAPTURE: of a graph, there to the end of the
                          block's backward */
    uint64_t offset;   /* a trained weight: elements before it, in the order of
                          the module's parameters; where arrivals are noted */
};

/* When what a slot is of leaves the GPU, where tensors go one by one
 * (AWAY_TENSORS, AWAY_MODULES), and comes back. One a slot. */
struct walk_way_out {
    uint32_t sent;   /* operation that has it copied, or NEVER_SENT; of modules,
                        the group that does */
    uint32_t number; /* of that copy */
    uint32_t gone;   /* operation that lets it go, or NEVER_SENT */
    bool forced;     /* AWAY_MODULES: it goes at `gone`, whoever names it */
    bool remains;    /* ... some operation keeps it on the GPU */
    bool came, coming; /* for the operation before, or the one at hand */
};

/* What an operation takes or makes. */
struct walk_operand {
    struct walk_slot *slot, *root; /* walk_slot_of(), walk_root_of() it */
    bool wants; /* taken, and backward makes a gradient of its own of it */
};

struct walk_buffer {
    uint64_t bytes;
    uint32_t refs;
    tensor_id of; /* the tensor whose gradient it is */
    bool stashed; /* for a weight's gradient, to come later */
    bool in_hand; /* of whoever runs the layer part by part */
};

/* A copy of what an operation of a module saved. */
struct module_entry {
    uint32_t op;
    uint64_t bytes;
    const char *name;
};

/* Runs of recompute regions in one block: Megatron has at most a norm, an
 * attention, a norm, an MLP or MoE part of a few regions. */
enum { DONE_MAX = 16 };

struct walk {
    const struct program *p;
    const struct block *b;
    struct walk_slot *slot;
    struct walk_way_out *way_out; /* [slots] */
    struct walk_buffer *buffer;
    uint32_t n_buffers;
    struct walk_operand *operand, *operands_end; /* of the operations, one
                                                    after another */
    struct walk_slot **saved; /* slots that operations keep, of storages of
                                 the block, one operation after another */
    uint32_t *saved_from;     /* [operations + 1]: where those of one begin */
    struct walk_slot **made;  /* by operations, in order: storages */
    uint32_t n_made;
    uint64_t *ends; /* [operations]: bytes that go when one is over */
    uint64_t regions;
    uint64_t granule;
    bool bare, cudnn, graph, weights_first, delays, result_held;
    uint32_t reduce_blocks; /* see struct walk_scratch */
    unsigned update_copies; /* see struct walk_scratch */
    const struct run *projects;
    bool tied_table;
    uint64_t persists;
    enum graph_step step;
    uint64_t counted; /* all bits while what is allocated counts, else none */
    enum walk_pass pass;
    enum wgrad_mode mode;
    bool walked;   /* slots are no longer as walk_init() left them */
    bool special;  /* there are tensors that are not tensor_is_plain() */
    bool leaves;   /* ... operations with op.returns or op.renames */
    bool outside;  /* there are operations outside of a checkpoint */
    bool outlives; /* ... slots that their last use need not end */
    bool pieces;   /* ... tensor.pieces, tensor.lone or
                      tensor.made_in_8_bits */
    bool policy;   /* ... slots that a checkpoint around the block keeps */
    bool stays;    /* ... or that are held to the end of backward */
    bool unpacks; /* saved tensors go when the formula that took them is done */
    bool reloads; /* what came back from the host stays to the end */
    bool unloads; /* ... comes for an operation, and stays to the next such */
    bool holds;   /* ... and nothing else ends it */
    bool calls;   /* the operation at hand is such; of modules, any */
    struct modules_walk *modules; /* AWAY_MODULES, else NULL */
    struct module_entry *entry;
    uint32_t n_entries;
    uint64_t least_elems;
    bool back;                /* ... the layer's own have gone, and are there */
    struct extremum *stretch; /* ... NULL: nobody asks */
    uint32_t stretches;
    uint64_t copies; /* bytes that come, of what is here: for a moment */
    bool led;        /* the first of them has been asked for */
    uint64_t lead;   /* ... with so much of gradients there */
    bool split;      /* gradients of linears' weights come later */
    bool remakes;    /* ... each makes the layer's tensors once more */
    uint64_t each;   /* ... of which so much stays, and so often there */
    uint32_t times;
    bool topmost; /* ... of the topmost layer of a stage without the head */
    uint32_t done[DONE_MAX]; /* first operations of regions made again */
    uint32_t n_done;
    uint64_t kept, tmp, wgrad; /* alive now */
    struct extremum top;
    bool renames; /* op.renames was met, and what was on top then */
    struct extremum before;
    bool ended;      /* forward is over: what lingers is the stage's */
    bool multiplied; /* a product of matrices was met */
    bool returns;    /* the same of op.returns */
    struct extremum inside;
    struct arrival *arrival; /* NULL: nobody asks */
    uint32_t arrivals;
    struct extremum since;      /* the last arrival */
    struct node_walk *nodes;    /* NULL: nobody asks */
    struct walk_common *common; /* NULL: no blocks begin alike */
    bool begins;         /* ... and this one's walk is one that may be theirs */
    uint64_t norms_from; /* offset of norms' weights where these come last, else
                            NEVER_LAST; where arrivals are noted */
    struct extremum fullest; /* of the parts that are done */
    unsigned node;           /* the one at hand */
    uint32_t at;             /* operation being walked */
    walk_event_fn *tell;     /* NULL: only the sums matter */
    void *ctx;
};

/* Where what comes next of slots is: of the operations up to one. */
struct walk_begun {
    struct walk_operand *operand;
    uint32_t op, first; /* ... and the first of its region's run */
};

enum { NO_GRAD = -1 };
#define NEVER_LAST UINT64_MAX
#define NEVER_MADE UINT32_MAX

/* The slot of a tensor of the block or its input; NULL for any other. */
static inline struct walk_slot *walk_slot_of(const struct walk *w, tensor_id t)
{
    const uint32_t i = t - w->b->tensor_first; /* huge when before it */
    if (i < w->b->tensor_count)
        return &w->slot[i];
    if (t == w->b->input)
        return &w->slot[w->b->tensor_count];
    return t == w->b->memory ? &w->slot[w->b->tensor_count + 1] : NULL;
}

/* The slot of its storage, if the block accounts for it; else NULL. */
static inline struct walk_slot *walk_root_of(const struct walk *w, tensor_id t)
{
    struct walk_slot *s = walk_slot_of(w, w->p->tensor[t].storage);
    return s != NULL && s->root == s ? s : NULL;
}

static inline struct walk_way_out *walk_way_out_of(const struct walk *w,
                                                   const struct walk_slot *s)
{
    return &w->way_out[s - w->slot];
}

/* As allocated: the granule is a power of two. */
static inline uint64_t walk_round(const struct walk *w, uint64_t bytes)
{
    return (bytes + w->granule - 1) & ~(w->granule - 1);
}

static inline bool walk_is_input(const struct walk *w,
                                 const struct walk_slot *s)
{
    return s == &w->slot[w->b->tensor_count];
}

/* True inside a recompute region that is on. */
static inline bool walk_region_active(const struct walk *w, const struct op *op)
{
    return op->region != 0 && (w->regions >> (op->region - 1) & 1) != 0;
}

static inline const struct op *walk_op_at(const struct walk *w, uint32_t k)
{
    return &w->p->op[w->b->op_first + k];
}

/* First and last operation of the run of one region that k is in. */
uint32_t walk_run_first(const struct walk *w, uint32_t k);
uint32_t walk_run_last(const struct walk *w, uint32_t k);
/* Made by an active region that does not keep its result. */
bool walk_is_discarded(const struct walk *w, const struct walk_slot *s);

/* What is alive now. */
static inline struct extremum walk_now(const struct walk *w)
{
    const struct walk_slot *in = &w->slot[w->b->tensor_count];
    return (struct extremum){ w->kept, w->tmp, w->wgrad, w->b->op_first + w->at,
                              in->live && in->kept };
}

/* Looks whether more is alive now than ever before in this walk. */
static inline void walk_note(struct walk *w)
{
    const struct extremum now = walk_now(w);
    if (extremum_total(&now) > extremum_total(&w->top))
        w->top = now;
    if (w->arrival != NULL && extremum_total(&now) > extremum_total(&w->since))
        w->since = now;
}

static inline const struct extremum *extremum_fuller(const struct extremum *a,
                                                     const struct extremum *b)
{
    return extremum_total(a) > extremum_total(b) ? a : b;
}

/* Somebody asks for a block's parts, and it has some. */
static inline bool walk_has_nodes(const struct walk_scratch *scratch,
                                  const struct block *block)
{
    return scratch->overlap != NULL
           && (block->kind == BLOCK_LAYER || block->kind == BLOCK_HEAD);
}

/* ---- walk_graphs.c ---- */

/* Whether what an operation allocates counts: while graphs are captured, what is
 * in them; once they run, what is not, for their pool's blocks are theirs
 * again when they are captured, whoever writes there. */
static inline bool walk_counts(const struct walk *w, const struct op *op)
{
    return w->step == STEP_EAGER || op->graphed == (w->step == STEP_CAPTURE);
}

/* Slots of what does not count have no bytes; what graphs give stays. */
COLD void walk_graphs_init(struct walk *w);
/* ... of the block's input, or its result's gradient, once graphs run: of those
 * that the one below makes, or the one above. */
COLD bool walk_graph_below(const struct walk *w);
COLD bool walk_graph_above(const struct walk *w);

/* ---- walk_nodes.c ---- */

/* The walk comes to a part of the layer, or (LAYER_NODES) to its end. */
COLD void walk_begin_nodes(struct walk *w, bool back);
COLD void walk_comes_to(struct walk *w, unsigned node, bool back);
/* What a part begins its backward with is in hand until it is done. */
COLD void walk_take_in_hand(struct walk *w);

static inline void walk_to_node(struct walk *w, unsigned node, bool back)
{
    if (w->nodes != NULL && node != w->node)
        walk_comes_to(w, node, back);
}

/* A second forward, out of a checkpoint. */
static inline bool walk_is_again(const struct walk *w)
{
    return w->pass == PASS_AGAIN || w->pass == PASS_AGAIN_EARLY;
}

/* Stays beyond its last use, in the pass that is walked. */
static inline bool walk_stays(const struct walk *w, const struct walk_slot *s)
{
    return w->pass == PASS_CHECKPOINT ? s->checkpointed : s->kept;
}

/* ---- walk.c ---- */

struct walk walk_on(const struct program *p, const struct block *block,
                    uint64_t regions, const struct walk_scratch *scratch);
/* [walk_init.c] All slots and lists; the same of a block whose walk may be that of
 * another one up to where they part. */
void walk_init(struct walk *w);
void walk_init_common(struct walk *w);
/* The block below has taken over the gradient of the input. */
void walk_input_handed(struct walk *w);
/* Whether the block's tensors go to the host, and how. */
enum away_how walk_how(const struct walk_scratch *scratch,
                       const struct block *block);

/* Where a block's modules are; NULL: nobody looks at them. */
static inline struct modules_walk *walk_modules_of(
    const struct walk_scratch *scratch, const struct program *p,
    const struct block *block)
{
    return scratch->modules == NULL ? NULL
                                    : &scratch->modules[block - p->block];
}

/* Where what a walk finds of them goes. */
static inline void walk_takes_modules(struct walk *w,
                                      const struct walk_scratch *scratch,
                                      struct modules_walk *to)
{
    w->modules = to;
    w->entry = scratch->entry;
    w->least_elems = scratch->least_elems;
}

void walk_slot_alloc(struct walk *w, struct walk_slot *s);
/* Not what a copy on the host is kept for: walk_away.c. */
void walk_slot_free(struct walk *w, struct walk_slot *s);

/* Whoever listens to the walk. */
COLD void walk_told(struct walk *w, const struct walk_event *e);

static inline void walk_tell(struct walk *w, struct walk_event e)
{
    if (w->tell != NULL)
        walk_told(w, &e);
}

static inline void walk_tell_product(struct walk *w, const struct op *op)
{
    if (w->multiplied || (op->kind != OP_LINEAR && op->kind != OP_MATMUL))
        return;
    w->multiplied = true;
    walk_tell(w, (struct walk_event){ .what = WALK_PRODUCT, .name = op->name });
}

/* A second forward in the midst of a backward, told. Its results go. */
void walk_again(struct walk *w);

/* The fullest moment of forward; to whoever listens, what is kept is live then,
 * and so is the output. [walk_forward.c] */
struct extremum walk_forward(struct walk *w, enum walk_pass pass);
/* After a forward: everything kept is live. [walk_backward.c] */
struct extremum walk_backward(struct walk *w, enum wgrad_mode mode);
/* A backward that is split, and what remains of it. [walk_weights.c] */
void walk_halves(struct walk *w, struct block_walk *out, unsigned modes);
/* Those of a part of a layer, where they are delayed. */
COLD void walk_node_weights(struct walk *w, unsigned node);
/* After the first half: the gradients of linears' weights. */
struct extremum walk_weights(struct walk *w);
/* The same out of a checkpoint; `again`: its layer's second forward, without the
 * input. */
struct extremum walk_remade_weights(struct walk *w,
                                    const struct extremum *again);
/* A weight that only a product uses; norms', biases' and tables' gradients
 * come with their input's, and so does the router's, a plain product. */
static inline bool walk_is_deferrable(const struct walk *w, const struct op *op)
{
    if (op->kind != OP_LINEAR || op->n_in < 2)
        return false;
    const struct tensor *t = &w->p->tensor[op->in[1]];
    return t->role == ROLE_PARAM && t->trainable && t->matmul
           && t->group != PG_ROUTER && t->group != PG_ADAPTER;
}

/* A weight, which has a gradient. */
static inline bool walk_is_weight(const struct walk *w, tensor_id id)
{
    const struct tensor *t = &w->p->tensor[id];
    return t->role == ROLE_PARAM && t->trainable;
}

static inline bool walk_has_weight(const struct walk *w, const struct op *op)
{
    for (unsigned i = 0; i < op->n_in; i++)
        if (walk_is_weight(w, op->in[i]))
            return true;
    return false;
}

/* Whether a weight's gradient comes later, in a split backward; of a graph all
 * weights' do. */
static inline bool walk_defers(const struct walk *w, const struct op *op)
{
    return w->split
           && (w->graph ? walk_has_weight(w, op)
                        : walk_is_deferrable(w, op)
                              && !(w->delays && op->node == NODE_POST));
}

/* A split backward that lets go of nothing (torch/distributed/pipelining/
 * _backward.py, stage_backward_input: retain_graph); but a checkpoint, of what
 * it handed out (torch/utils/checkpoint.py, unpack_hook). */
static inline bool walk_retains(const struct walk *w)
{
    return w->split && w->graph && !w->remakes;
}

/* Whether backward makes a gradient of an operand that has a slot. */
static inline bool walk_gives_grad(const struct walk *w, const struct tensor *t,
                                   tensor_id id)
{
    if (t->role == ROLE_PARAM)
        return t->trainable;
    return (t->role == ROLE_ACTIVATION || id == w->b->memory) && t->needs_grad;
}

/* ... of any: of another block's weight too. */
static inline bool walk_wants_grad(const struct walk *w, tensor_id id)
{
    const struct tensor *t = &w->p->tensor[id];
    return walk_gives_grad(w, t, id)
           && (t->role == ROLE_PARAM || walk_slot_of(w, id) != NULL);
}

/* A linear's operands after the weight are its bias and what it keeps in place
 * of its input; only the bias has a gradient of its own. */
static inline bool walk_is_stand_in(const struct walk *w, const struct op *op,
                                    unsigned i)
{
    return op->kind == OP_LINEAR && i >= 2
           && w->p->tensor[op->in[i]].role != ROLE_PARAM;
}

/* Allocations that live for a moment together: a kernel's, and weights'
 * gradients that do not stay. */
struct walk_parts {
    uint64_t v[PARTS_MAX];
    uint32_t n;
    uint64_t sum;
};

static inline void walk_parts_init(struct walk_parts *parts)
{
    parts->n = 0;
    parts->sum = 0;
}

static inline void walk_parts_add(struct walk_parts *parts, uint64_t bytes)
{
    if (bytes == 0)
        return;
    parts->sum += bytes;
    if (parts->n < PARTS_MAX)
        parts->v[parts->n++] = bytes;
    else
        parts->v[PARTS_MAX - 1] += bytes;
}

/* ---- walk_common.c ---- */

bool walk_common_init(struct walk_scratch *s, const struct program *p,
                      struct arena *a);
/* The lists of the block that was walked are no longer there. */
void walk_common_forget(struct walk_common *c);
/* When the input has its slot: as the common operations leave slots and lists;
 * false where they have to be gone through. Those then begin, and are done. */
bool walk_common_resume(struct walk *w, struct walk_begun *begun);
void walk_common_begin(struct walk *w);
void walk_common_keep(struct walk *w, const struct walk_begun *begun);
/* The rest of a backward, of the common operations. */
void walk_common_back(struct walk *w);

/* ---- walk_backward.c ---- */

/* Operations from before `end` down to `first`; `x`: after their operands. */
void walk_backward_ops(struct walk *w, const struct walk_operand *x,
                       uint32_t end, uint32_t first);

/* ---- walk_kernels.c ---- */

/* What an operation's backward needs beside its results, in bytes: in one piece,
 * and what it adds to `parts`. */
uint64_t walk_workspace(const struct walk *w, const struct op *op,
                        struct walk_parts *parts);
/* Whether it may need any: most linears are of an input and a weight. */
static inline bool walk_has_workspace(const struct walk *w, const struct op *op)
{
    const uint64_t none =
        UINT64_C(1) << OP_MATMUL | UINT64_C(1) << OP_ADD
        | UINT64_C(1) << OP_SCALE | UINT64_C(1) << OP_NEG
        | UINT64_C(1) << OP_DIV | UINT64_C(1) << OP_MEAN
        | UINT64_C(1) << OP_RSQRT | UINT64_C(1) << OP_ACTIVATION
        | UINT64_C(1) << OP_CAST | UINT64_C(1) << OP_COPY
        | UINT64_C(1) << OP_VIEW | UINT64_C(1) << OP_CAT
        | UINT64_C(1) << OP_DROPOUT | UINT64_C(1) << OP_LAYER_NORM
        | UINT64_C(1) << OP_RMS_NORM | UINT64_C(1) << OP_INDEX
        | UINT64_C(1) << OP_TOPK | UINT64_C(1) << OP_WHERE
        | UINT64_C(1) << OP_ALL_REDUCE | UINT64_C(1) << OP_ALL_TO_ALL;
    if (op->kind == OP_LINEAR)
        return op->n_in > 2 || op->back_bytes != 0
               || w->p->tensor[op->in[1]].dtype == DT_INT8;
    return (none >> op->kind & 1) == 0;
}
/* The input of a product that is gathered again for the weight's gradient. */
uint64_t walk_gathers_again(const struct walk *w, const struct op *op);
/* Of factors' gradients, what is more before any is cast to its dtype. */
uint64_t walk_uncast_factors(const struct walk *w, const struct op *op);

/* ---- walk_away.c ---- */

#define NEVER_SENT UINT32_MAX
/* Which of what a layer keeps goes to the host, and what that comes to. */
void walk_find_away(struct walk *w, struct away *sum, enum away_how how);
/* unloads: operation k of forward is over; one of backward needs what it kept,
 * and is told how much of that is copies of what is here; it is over, or all
 * are. */
void walk_let_go(struct walk *w, uint32_t k);
uint64_t walk_call_back(struct walk *w, const struct op *op, uint32_t k);
void walk_called_back(struct walk *w);

/* ---- walk_modules.c ---- */

/* As walk_find_away(), of w->modules. */
void walk_find_modules(struct walk *w, struct away *sum);
/* Operation k of forward is over. */
void walk_modules_let_go(struct walk *w, uint32_t k);
/* Backward begins; its operation at hand, k, is over. */
void walk_modules_come(struct walk *w);
void walk_modules_used(struct walk *w);
void walk_modules_begun(struct walk *w, uint32_t k);

/* ---- walk_arrival.c ---- */

/* Where weights lie among the block's trained ones. */
void walk_lay_out(struct walk *w);
/* A weight's gradient that does not stay: there until its hook has run. */
void walk_gradient_comes(struct walk *w, const struct op *op, unsigned i,
                         uint64_t bytes);
/* Those of an operation, when the next one has what it gave: `bytes` by operand,
 * of which `come` has a bit. */
void walk_gradients_arrive(struct walk *w, const struct op *op,
                           const uint64_t *bytes, uint32_t come);

/* ---- walk_backward.c, for walk_weights.c ---- */

void walk_buffer_release(struct walk *w, int32_t i);
/* What the operation at hand kept. */
void walk_release_saved(struct walk *w);
uint64_t walk_weight_grad(struct walk *w, const struct op *op, tensor_id id);

#endif
