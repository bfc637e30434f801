/*
 * Owns the writing of a step program: growing arrays, shapes, dtypes, FLOPs,
 * which tensors need gradients, and what autocast, adapters, fp8 and
 * quantised weights make of a linear. Refuses to know architectures and
 * frameworks (lowerings do) and what is kept (save_rule.c does).
 * [docs/method.md eq. flops]
 */
#include "lower/build.h"

#include <string.h>

#include "base/banned.h"

/* A Llama by transformers takes about 90 tensors and 70 operations. */
enum { FIRST_TENSORS = 128, FIRST_OPS = 96 };

/* Above this a tensor's bytes do not fit in 64 bits. */
#define ELEMS_MAX (UINT64_MAX / 8)

/* ---- numbers ---- */

static uint64_t checked(struct builder *b, struct count c)
{
    b->over = b->over || c.over;
    return c.v;
}

uint64_t build_product(struct builder *b, uint64_t x, uint64_t y)
{
    return checked(b, count_mul(count_of(x), count_of(y)));
}

static uint64_t at_least_one(uint64_t n)
{
    return n == 0 ? 1 : n;
}

/* ---- arrays ---- */

/* Room for one more; on failure the last element is used again. */
static void *grow(struct builder *b, void *array, uint32_t *cap, size_t size)
{
    void *bigger = NULL;
    if (*cap <= UINT32_MAX / 4)
        bigger = arena_alloc(b->arena, (size_t)*cap * 2, size);
    if (bigger == NULL) {
        b->failed = true;
        return array;
    }
    memcpy(bigger, array, *cap * size);
    *cap *= 2;
    return bigger;
}

static tensor_id take_tensor(struct builder *b)
{
    struct program *p = b->p;
    if (p->n_tensors == b->cap_tensors)
        p->tensor = grow(b, p->tensor, &b->cap_tensors, sizeof(*p->tensor));
    if (p->n_tensors == b->cap_tensors)
        p->n_tensors--;
    return p->n_tensors++;
}

static struct op *take_op(struct builder *b)
{
    struct program *p = b->p;
    if (p->n_ops == b->cap_ops)
        p->op = grow(b, p->op, &b->cap_ops, sizeof(*p->op));
    if (p->n_ops == b->cap_ops)
        p->n_ops--;
    return &p->op[p->n_ops++];
}

static void start_arrays(struct builder *b)
{
    struct program *p = b->p;
    b->cap_tensors = FIRST_TENSORS;
    b->cap_ops = FIRST_OPS;
    p->tensor = ARENA_NEW(b->arena, struct tensor, FIRST_TENSORS);
    p->op = ARENA_NEW(b->arena, struct op, FIRST_OPS);
    if (p->tensor != NULL && p->op != NULL)
        return;
    b->failed = true;
}

/* ---- factors of shapes ---- */

static struct dim tokens_dim(struct builder *b, bool sequence_shard)
{
    const struct run *r = b->run;
    const uint64_t all = build_product(b, r->micro_batch, r->seq_len);
    const uint64_t cp = at_least_one(r->cp);
    const uint64_t tp = at_least_one(r->tp);
    if (!sequence_shard || tp == 1)
        return DIM(cp > 1 ? "b*s/cp" : "b*s", div_up(all, cp));
    return DIM(cp > 1 ? "b*s/cp/tp" : "b*s/tp", div_up(div_up(all, cp), tp));
}

static void start_attention_dims(struct builder *b)
{
    const struct spec *m = b->spec;
    const uint64_t tp = at_least_one(b->run->tp);
    const bool cut = tp > 1;
    b->a = DIM(cut ? "a/tp" : "a", div_up(m->heads, tp));
    /* fewer kv heads than ranks: each rank has a copy of one */
    if (m->kv_heads < tp)
        b->kv = DIM("1", 1);
    else
        b->kv = DIM(cut ? "kv/tp" : "kv", div_up(m->kv_heads, tp));
    b->d = DIM("d", m->head_dim);
    b->A = DIM(cut ? "a*d/tp" : "a*d", build_product(b, b->a.n, b->d.n));
    b->K = DIM(!cut                  ? "kv*d"
               : b->kv.sym[0] == '1' ? "d"
                                     : "kv*d/tp",
               build_product(b, b->kv.n, b->d.n));
    b->qkv =
        DIM(cut ? "(a+2*kv)*d/tp" : "(a+2*kv)*d",
            checked(b, count_add(count_of(b->A.n),
                                 count_mul(count_of(2), count_of(b->K.n)))));
    b->full_A = build_product(b, m->heads, m->head_dim);
    b->full_K = build_product(b, m->kv_heads, m->head_dim);
}

static void start_expert_dims(struct builder *b)
{
    const struct spec *m = b->spec;
    const struct run *r = b->run;
    const uint64_t tp = at_least_one(r->tp), etp = at_least_one(r->etp);
    b->experts = DIM("E", m->experts);
    b->experts_on =
        DIM(r->ep > 1 ? "E/ep" : "E", div_up(m->experts, at_least_one(r->ep)));
    /* balanced routing: what a rank sends away is what it receives; experts
       that are themselves sharded see the tokens of all their ranks */
    const bool cut = r->sequence_parallel && tp > etp;
    const uint64_t rows =
        r->sequence_parallel ? build_product(b, b->tu.n, etp) : b->t.n;
    b->routed = DIM(cut ? "b*s*k*etp/tp" : "b*s*k",
                    build_product(b, rows, m->experts_per_token));
    const uint64_t ffn = m->expert_ffn == 0 ? m->ffn : m->expert_ffn;
    b->fe = DIM(etp > 1 ? "f/etp" : "f", div_up(ffn, etp));
    b->fe2 = DIM(etp > 1 ? "2*f/etp" : "2*f", build_product(b, 2, b->fe.n));
    b->fs = DIM(tp > 1 ? "f_shared/tp" : "f_shared", div_up(m->shared_ffn, tp));
    b->fs2 = DIM(tp > 1 ? "2*f_shared/tp" : "2*f_shared",
                 build_product(b, 2, b->fs.n));
}

static void start_dims(struct builder *b)
{
    const struct spec *m = b->spec;
    const struct run *r = b->run;
    const uint64_t tp = at_least_one(r->tp), cp = at_least_one(r->cp);
    const bool cut = tp > 1;
    b->one = DIM("1", 1);
    b->micro = DIM("b", r->micro_batch);
    b->s = DIM("s", r->seq_len);
    b->sq = DIM(cp > 1 ? "s/cp" : "s", div_up(r->seq_len, cp));
    b->t = tokens_dim(b, false);
    b->tu = tokens_dim(b, r->sequence_parallel);
    b->h = DIM("h", m->hidden);
    b->e = DIM("e", m->embed_dim == 0 ? m->hidden : m->embed_dim);
    b->f = DIM(cut ? "f/tp" : "f", div_up(m->ffn, tp));
    b->f2 = DIM(cut ? "2*f/tp" : "2*f", build_product(b, 2, b->f.n));
    b->V = DIM(cut ? "V/tp" : "V",
               div_up(r->vocab == 0 ? m->vocab : r->vocab, tp));
    b->r = DIM("r", r->lora_rank);
    start_attention_dims(b);
    if (m->experts > 0)
        start_expert_dims(b);
}

/* ---- frame ---- */

static bool is_quantised(enum dtype t)
{
    switch (t) {
    case DT_INT8:
    case DT_NF4:
    case DT_FP4:
    case DT_INT4: return true;
    case DT_FP32:
    case DT_BF16:
    case DT_FP16:
    case DT_FP8:
    case DT_NONE:
    case DT_BOOL:
    case DT_INT32:
    case DT_INT64:
    case DTYPE_COUNT: return false;
    }
    return false;
}

/* The weights that a forward sees. Stored in fp32 and without autocast, they
 * are gathered in the compute dtype (FSDP's MixedPrecisionPolicy). */
static void start_dtypes(struct builder *b)
{
    const struct run *r = b->run;
    b->compute = r->prec.compute;
    b->autocast = r->prec.autocast && b->compute != DT_FP32;
    b->param = r->prec.autocast ? r->prec.param : b->compute;
    b->fp8 = r->prec.fp8;
    b->frozen = r->lora_rank > 0;
    if (b->frozen && r->base_dtype != DT_NONE)
        b->param = is_quantised(r->base_dtype) ? b->compute : r->base_dtype;
    b->stream = b->param;
}

void build_start(struct builder *b, struct program *p, const struct spec *spec,
                 const struct run *run, struct arena *a, struct diag *d)
{
    memset(b, 0, sizeof(*b));
    memset(p, 0, sizeof(*p));
    b->p = p;
    b->arena = a;
    b->diag = d;
    b->spec = spec;
    b->run = run;
    b->hidden = TENSOR_NONE;
    start_dtypes(b);
    start_dims(b);
    start_arrays(b);
    p->tokens = b->t.n;
    p->layers = spec->layers;
    p->layer_block = ARENA_NEW(a, uint8_t, spec->layers);
    if (p->layer_block == NULL)
        b->failed = true;
    if (b->failed)
        return;
    const struct shape tokens = SHAPE(b->t);
    p->first_input = p->n_tensors;
    b->ids = build_input(b, "input_ids", DT_INT64, &tokens);
    b->labels = build_input(b, "labels", DT_INT64, &tokens);
}

memplan_status build_finish(struct builder *b)
{
    if (b->failed)
        return diag_nomem(b->diag);
    if (b->over)
        diag_add(b->diag, MEMPLAN_E_OVERFLOW,
                 "a tensor of this model has more than 2^61 elements");
    return b->diag->status;
}

tensor_id build_begin(struct builder *b, enum block_kind kind, const char *name)
{
    struct program *p = b->p;
    const uint32_t i = p->n_blocks < BLOCK_MAX ? p->n_blocks++ : BLOCK_MAX - 1;
    struct block *block = &p->block[i];
    *block = (struct block){ .kind = kind,
                             .name = name,
                             .op_first = p->n_ops,
                             .tensor_first = p->n_tensors,
                             .input = b->hidden,
                             .output = TENSOR_NONE };
    if (kind == BLOCK_EMBED)
        p->embed = i;
    if (kind == BLOCK_HEAD)
        p->head = i;
    b->block = block;
    b->region = 0;
    b->core_attention = false;
    return b->hidden;
}

/* The next block's input: the output itself, or a stand-in for it when that
 * is a view, or needs no gradient. With frozen embeddings the input of a layer
 * needs one all the same: every layer but the first has adapters below it, and
 * PEFT's enable_input_require_grads gives it to the first. */
static tensor_id next_input(struct builder *b, tensor_id output)
{
    const struct tensor *t = tensor_of(b, output);
    if (t->storage == output && t->needs_grad)
        return output;
    const struct shape shape = shape_of(b, output);
    const tensor_id id = build_tensor(b, "hidden_states", t->dtype, &shape);
    b->p->tensor[id].needs_grad = true;
    return id;
}

void build_end(struct builder *b, tensor_id output)
{
    struct program *p = b->p;
    struct block *block = b->block;
    block->output = output;
    block->op_count = p->n_ops - block->op_first;
    block->tensor_count = p->n_tensors - block->tensor_first;
    b->hidden = next_input(b, output);
    b->block = NULL;
}

static struct layer_kind kind_of_layer(const struct builder *b, uint64_t i)
{
    const struct spec *m = b->spec;
    struct layer_kind kind = { 0 };
    const uint64_t every = at_least_one(m->moe_every);
    kind.moe = m->experts > 0 && i >= m->first_dense
               && (i - m->first_dense + 1) % every == 0;
    const bool slides = i >= m->sliding_from
                        && (m->sliding_every == 0 || i % m->sliding_every == 0);
    if (slides && m->sliding_window < b->s.n)
        kind.window = m->sliding_window;
    return kind;
}

static const char *name_of_kind(const struct layer_kind *kind)
{
    if (kind->moe)
        return kind->window != 0 ? "sliding moe layer" : "moe layer";
    return kind->window != 0 ? "sliding layer" : "layer";
}

void build_layers(struct builder *b, layer_fn *layer)
{
    struct program *p = b->p;
    enum { NOT_YET = 0 }; /* block 0 is never a layer */
    uint8_t known[2][2] = { { NOT_YET } };
    for (uint64_t i = 0; i < p->layers; i++) {
        const struct layer_kind kind = kind_of_layer(b, i);
        uint8_t *index = &known[kind.moe][kind.window != 0];
        if (*index == NOT_YET) {
            *index = (uint8_t)p->n_blocks;
            const tensor_id x =
                build_begin(b, BLOCK_LAYER, name_of_kind(&kind));
            b->window = kind.window;
            const tensor_id out = layer(b, &kind, x);
            b->window = 0;
            build_end(b, out);
        }
        if (p->layer_block != NULL)
            p->layer_block[i] = *index;
    }
}

void build_refuse(struct builder *b, const char *what)
{
    static const char *const name[] = {
#define IMPL_TEXT(id, text) text,
        IMPLEMENTATION_MAP(IMPL_TEXT)
#undef IMPL_TEXT
    };
    memplan_error *e =
        diag_add(b->diag, MEMPLAN_E_UNSUPPORTED, "implementation %s has no %s",
                 name[b->run->impl], what);
    memcpy(e->key, "implementation", sizeof("implementation"));
}

/* ---- tensors ---- */

struct shape shape_of(const struct builder *b, tensor_id id)
{
    const struct tensor *t = tensor_of(b, id);
    struct shape shape = { .rank = t->rank };
    memcpy(shape.dim, t->dim, sizeof(shape.dim));
    return shape;
}

struct shape shape_last(const struct builder *b, tensor_id id, struct dim d)
{
    struct shape shape = shape_of(b, id);
    if (shape.rank > 0)
        shape.dim[shape.rank - 1] = d;
    return shape;
}

struct shape shape_rows(const struct builder *b, tensor_id id)
{
    struct shape shape = shape_of(b, id);
    if (shape.rank > 0)
        shape.rank--;
    return shape;
}

static uint64_t elems_of(struct builder *b, const struct shape *shape)
{
    struct count c = count_of(1);
    for (unsigned i = 0; i < shape->rank; i++) {
        const uint64_t n = shape->dim[i].n;
        /* count_mul divides, and this runs for every tensor */
        if (((c.v | n) >> 32) == 0)
            c.v *= n;
        else
            c = count_mul(c, count_of(n));
    }
    c.over = c.over || c.v > ELEMS_MAX;
    return checked(b, c);
}

static void set_shape(struct builder *b, struct tensor *t,
                      const struct shape *shape, enum dtype dtype)
{
    t->rank = shape->rank;
    memcpy(t->dim, shape->dim, shape->rank * sizeof(t->dim[0]));
    t->dtype = dtype;
    t->elems = elems_of(b, shape);
    t->bytes = dtype_bytes_of(dtype, t->elems);
}

tensor_id build_tensor(struct builder *b, const char *name, enum dtype dtype,
                       const struct shape *shape)
{
    const tensor_id id = take_tensor(b);
    struct tensor *t = &b->p->tensor[id];
    *t =
        (struct tensor){ .name = name, .role = ROLE_ACTIVATION, .storage = id };
    set_shape(b, t, shape, dtype);
    return id;
}

tensor_id build_alias(struct builder *b, const char *name, tensor_id of,
                      const struct shape *shape)
{
    const enum dtype dtype = tensor_of(b, of)->dtype;
    const tensor_id id = build_tensor(b, name, dtype, shape);
    b->p->tensor[id].storage = b->p->tensor[of].storage;
    return id;
}

tensor_id build_input(struct builder *b, const char *name, enum dtype dtype,
                      const struct shape *shape)
{
    const tensor_id id = build_tensor(b, name, dtype, shape);
    b->p->tensor[id].role = ROLE_INPUT;
    b->p->n_input++;
    return id;
}

tensor_id build_shared(struct builder *b, const char *name, enum dtype dtype,
                       const struct shape *shape)
{
    const tensor_id id = build_tensor(b, name, dtype, shape);
    b->p->tensor[id].role = ROLE_SHARED;
    if (b->p->n_shared++ == 0)
        b->p->first_shared = id;
    return id;
}

static bool is_trainable(const struct builder *b, enum param_group group)
{
    const uint64_t full = b->run->lora_full;
    if (!b->frozen || group == PG_ADAPTER)
        return true;
    if (group == PG_EMBED || group == PG_POSITION)
        return (full & LORA_MASK(LORA_FULL_EMBED)) != 0;
    if (group == PG_HEAD)
        return (full & LORA_MASK(LORA_FULL_HEAD)) != 0;
    return group == PG_NORM && (full & LORA_MASK(LORA_FULL_NORM)) != 0;
}

static enum dtype param_dtype(const struct builder *b, const struct param *q)
{
    if (!b->frozen)
        return b->param;
    if (q->group == PG_ADAPTER)
        return b->run->lora_dtype;
    /* bitsandbytes leaves the head as it is, and quantises linears only */
    if (q->matmul && q->group != PG_HEAD && b->run->base_dtype != DT_NONE)
        return b->run->base_dtype;
    return b->param;
}

tensor_id build_param(struct builder *b, const struct param *q)
{
    struct shape shape = SHAPE(q->rows);
    if (q->cols.n != 0)
        shape = SHAPE(q->rows, q->cols);
    const tensor_id id = build_tensor(b, q->name, param_dtype(b, q), &shape);
    struct tensor *t = &b->p->tensor[id];
    t->role = ROLE_PARAM;
    t->group = q->group;
    t->trainable = t->needs_grad = is_trainable(b, q->group);
    t->tied = q->tied;
    t->matmul = q->matmul;
    t->rows = q->rows.n;
    t->cols = at_least_one(q->cols.n);
    if (q->copies > 1) {
        t->rows = build_product(b, t->rows, q->copies);
        t->elems = build_product(b, t->elems, q->copies);
        t->bytes = dtype_bytes_of(t->dtype, t->elems);
    }
    t->full_elems = q->full_elems == 0 ? t->elems : q->full_elems;
    return id;
}

tensor_id build_vector(struct builder *b, const char *name,
                       enum param_group group, struct dim n, uint64_t full)
{
    return build_param(
        b, &(struct param){
               .name = name, .group = group, .rows = n, .full_elems = full });
}

tensor_id build_norm_weight(struct builder *b, const char *name, struct dim n)
{
    return build_vector(b, name, PG_NORM, n, 0);
}

/* ---- operations ---- */

struct op *build_op(struct builder *b, enum op_kind kind, const char *name,
                    const tensor_id *in, unsigned n_in)
{
    struct op *op = take_op(b);
    op->kind = kind;
    op->name = name;
    op->n_in = op->n_out = 0;
    op->region = b->region;
    op->core_attention = b->core_attention;
    op->flop_full = op->flop_causal = 0;
    op->group = COMM_TP;
    for (unsigned i = 0; i < n_in; i++)
        if (in[i] != TENSOR_NONE && op->n_in < OP_IN_MAX)
            op->in[op->n_in++] = in[i];
    return op;
}

void op_byproduct(struct op *op, tensor_id out)
{
    if (op->n_out < OP_OUT_MAX)
        op->out[op->n_out++] = out;
}

void op_result(struct builder *b, struct op *op, tensor_id out)
{
    bool grad = false;
    for (unsigned i = 0; i < op->n_in; i++)
        grad = grad || b->p->tensor[op->in[i]].needs_grad;
    b->p->tensor[out].needs_grad = grad;
    op_byproduct(op, out);
}

/* An operation with one result of its own. */
static tensor_id one_result(struct builder *b, enum op_kind kind,
                            const char *name, const tensor_id in[2],
                            tensor_id out)
{
    op_result(b, build_op(b, kind, name, in, 2), out);
    return out;
}

static bool needs_grad(const struct builder *b, tensor_id id)
{
    return b->p->tensor[id].needs_grad;
}

/* ---- linear ---- */

static uint64_t full_of(struct builder *b, const struct linear *l, bool out)
{
    const uint64_t given = out ? l->full_out : l->full_in;
    const uint64_t here = out ? l->out.n : l->in.n;
    if (given != 0)
        return given;
    if (l->parallel != (out ? PAR_COLUMN : PAR_ROW))
        return here;
    const uint64_t ranks = l->group == PG_EXPERT ? b->run->etp : b->run->tp;
    return build_product(b, here, at_least_one(ranks));
}

static tensor_id linear_weight(struct builder *b, const struct linear *l)
{
    if (l->has_weight)
        return l->weight;
    const uint64_t full =
        build_product(b, full_of(b, l, false), full_of(b, l, true));
    return build_param(
        b, &(struct param){ .name = l->name,
                            .group = l->group,
                            .rows = l->out,
                            .cols = l->in,
                            .copies = l->copies,
                            .matmul = true,
                            .full_elems = build_product(
                                b, full, at_least_one(l->full_copies)) });
}

static tensor_id linear_bias(struct builder *b, const struct linear *l)
{
    if (!l->bias)
        return TENSOR_NONE;
    return build_param(b, &(struct param){ .name = "bias",
                                           .group = l->group,
                                           .rows = l->out,
                                           .copies = l->copies,
                                           .full_elems = build_product(
                                               b, full_of(b, l, true),
                                               at_least_one(l->full_copies)) });
}

/* What is kept for the weight's gradient in place of x: an fp8 copy
 * (Transformer Engine), or the shard that x was gathered from. Such an operand
 * takes no part in gradients: x does. */
static tensor_id linear_keeps(struct builder *b, const struct linear *l,
                              tensor_id x, tensor_id w)
{
    const tensor_id from = l->has_keep ? l->keep : x;
    const struct shape shape = shape_of(b, from);
    const bool in_fp8 = b->fp8 && l->group != PG_HEAD && l->group != PG_ROUTER
                        && l->group != PG_ADAPTER;
    if (in_fp8 && needs_grad(b, w)) {
        const tensor_id q = build_tensor(b, "fp8 input", DT_FP8, &shape);
        op_byproduct(build_op(b, OP_QUANTIZE, l->name, &from, 1), q);
        return q;
    }
    if (!l->has_keep)
        return TENSOR_NONE;
    return build_alias(b, "sequence shard", from, &shape);
}

/* The product alone. Operands beyond input and weight are told apart by role:
 * see the rule of OP_LINEAR in save_rule.c. */
static tensor_id linear_product(struct builder *b, const struct linear *l)
{
    const tensor_id stored = linear_weight(b, l);
    const tensor_id bias = linear_bias(b, l);
    const tensor_id x = build_autocast(b, l->name, l->x);
    tensor_id w = stored, master = TENSOR_NONE;
    if (is_quantised(tensor_of(b, stored)->dtype)) {
        /* dequantised for the product, and again in backward: bitsandbytes'
           MatMul4Bit keeps the quantised weight only */
        w = build_cast(b, "dequantised weight", stored, b->compute);
        master = stored;
    } else {
        w = build_autocast(b, l->name, stored);
    }
    const tensor_id keep = linear_keeps(b, l, x, stored);
    const struct shape shape = shape_last(b, x, l->out);
    const enum dtype dtype =
        l->has_out_dtype ? l->out_dtype : tensor_of(b, w)->dtype;
    const tensor_id out = build_tensor(b, l->name, dtype, &shape);
    const tensor_id in[] = { x, w, bias, master, keep };
    struct op *op = build_op(b, OP_LINEAR, l->name, in, 5);
    op_result(b, op, out);
    op->flop_full = op->flop_causal =
        2.0 * (double)tensor_of(b, x)->elems * (double)l->out.n;
    return out;
}

static bool is_adapted(const struct builder *b, const struct linear *l)
{
    const uint64_t wanted = l->lora | LORA_MASK(LORA_ALL_LINEAR);
    return b->frozen && l->lora != LORA_NEVER
           && (b->run->lora_targets & wanted) != 0;
}

/* PEFT's lora.Linear: base(x) + B(A(x)) * scaling, in the adapters' dtype,
 * then back (peft/tuners/lora/layer.py). */
static tensor_id add_adapter(struct builder *b, const struct linear *l,
                             tensor_id base)
{
    const enum dtype dtype = b->run->lora_dtype;
    const enum dtype result = tensor_of(b, base)->dtype;
    struct linear down = { .name = "lora_A",
                           .in = l->in,
                           .out = b->r,
                           .full_in = full_of(b, l, false),
                           .group = PG_ADAPTER,
                           .keep = l->keep,
                           .copies = l->copies,
                           .full_copies = l->full_copies };
    down.x = build_cast(b, "lora input", l->x, dtype);
    down.has_keep = l->has_keep && down.x == l->x;
    struct linear up = { .name = "lora_B",
                         .in = b->r,
                         .out = l->out,
                         .full_out = full_of(b, l, true),
                         .group = PG_ADAPTER,
                         .copies = l->copies,
                         .full_copies = l->full_copies };
    up.x = linear_product(b, &down);
    tensor_id y = linear_product(b, &up);
    y = build_scale(b, "lora scaling", y);
    y = build_add(b, "lora sum", base, y);
    return build_cast(b, "lora result", y, result);
}

tensor_id build_linear(struct builder *b, const struct linear *l)
{
    const tensor_id base = linear_product(b, l);
    if (!is_adapted(b, l))
        return base;
    return add_adapter(b, l, base);
}

/* ---- elementwise ---- */

static int width_rank(enum dtype t)
{
    if (t == DT_FP32)
        return 2;
    return t == DT_BF16 || t == DT_FP16 ? 1 : 0;
}

static enum dtype promote(enum dtype x, enum dtype y)
{
    return width_rank(y) > width_rank(x) ? y : x;
}

static tensor_id like(struct builder *b, const char *name, tensor_id x)
{
    const struct shape shape = shape_of(b, x);
    return build_tensor(b, name, tensor_of(b, x)->dtype, &shape);
}

tensor_id build_unary(struct builder *b, enum op_kind kind, const char *name,
                      tensor_id x)
{
    const tensor_id in[] = { x, TENSOR_NONE };
    return one_result(b, kind, name, in, like(b, name, x));
}

tensor_id build_unary_in_place(struct builder *b, enum op_kind kind,
                               const char *name, tensor_id x)
{
    const tensor_id in[] = { x, TENSOR_NONE };
    const struct shape shape = shape_of(b, x);
    return one_result(b, kind, name, in, build_alias(b, name, x, &shape));
}

tensor_id build_binary(struct builder *b, enum op_kind kind, const char *name,
                       tensor_id x, tensor_id y)
{
    const tensor_id in[] = { x, y };
    const struct tensor *tx = tensor_of(b, x), *ty = tensor_of(b, y);
    const enum dtype dtype = promote(tx->dtype, ty->dtype);
    const struct shape shape = shape_of(b, ty->elems > tx->elems ? y : x);
    return one_result(b, kind, name, in, build_tensor(b, name, dtype, &shape));
}

tensor_id build_binary_in_place(struct builder *b, enum op_kind kind,
                                const char *name, tensor_id x, tensor_id y)
{
    const tensor_id in[] = { x, y };
    const struct shape shape = shape_of(b, x);
    return one_result(b, kind, name, in, build_alias(b, name, x, &shape));
}

tensor_id build_add(struct builder *b, const char *name, tensor_id x,
                    tensor_id y)
{
    return build_binary(b, OP_ADD, name, x, y);
}

tensor_id build_mul(struct builder *b, const char *name, tensor_id x,
                    tensor_id y)
{
    return build_binary(b, OP_MUL, name, x, y);
}

tensor_id build_scale(struct builder *b, const char *name, tensor_id x)
{
    return build_unary(b, OP_SCALE, name, x);
}

tensor_id build_neg(struct builder *b, const char *name, tensor_id x)
{
    return build_unary(b, OP_NEG, name, x);
}

/* Autocast runs these in fp32 (aten/src/ATen/autocast_mode.h). */
static tensor_id autocast_up(struct builder *b, tensor_id x)
{
    return b->autocast ? build_cast(b, "autocast", x, DT_FP32) : x;
}

tensor_id build_pow(struct builder *b, const char *name, tensor_id x)
{
    return build_unary(b, OP_POW, name, autocast_up(b, x));
}

tensor_id build_rsqrt(struct builder *b, const char *name, tensor_id x)
{
    return build_unary(b, OP_RSQRT, name, autocast_up(b, x));
}

tensor_id build_mean(struct builder *b, const char *name, tensor_id x)
{
    const tensor_id in[] = { x, TENSOR_NONE };
    const struct shape shape = shape_last(b, x, b->one);
    const enum dtype dtype = tensor_of(b, x)->dtype;
    return one_result(b, OP_MEAN, name, in,
                      build_tensor(b, name, dtype, &shape));
}

tensor_id build_cast(struct builder *b, const char *name, tensor_id x,
                     enum dtype dtype)
{
    if (tensor_of(b, x)->dtype == dtype)
        return x;
    const tensor_id in[] = { x, TENSOR_NONE };
    struct shape shape = shape_of(b, x);
    const uint64_t elems = tensor_of(b, x)->elems;
    const tensor_id out = build_tensor(b, name, dtype, &shape);
    struct tensor *t = &b->p->tensor[out];
    if (t->elems != elems) { /* experts: copies are not among the factors */
        t->elems = elems;
        t->bytes = dtype_bytes_of(dtype, elems);
    }
    return one_result(b, OP_CAST, name, in, out);
}

/* Autocast caches its copies of weights until the forward is over. */
static tensor_id cached_cast(const struct builder *b, tensor_id w)
{
    if (b->block == NULL || w < b->block->tensor_first
        || w + 1 == b->p->n_tensors)
        return TENSOR_NONE;
    for (uint32_t i = b->p->n_ops; i-- > b->block->op_first;) {
        const struct op *op = &b->p->op[i];
        if (op->kind == OP_CAST && op->in[0] == w)
            return op->out[0];
    }
    return TENSOR_NONE;
}

tensor_id build_autocast(struct builder *b, const char *name, tensor_id x)
{
    const struct tensor *t = tensor_of(b, x);
    if (!b->autocast || t->dtype == b->compute)
        return x;
    if (t->role == ROLE_PARAM) {
        const tensor_id cast = cached_cast(b, x);
        if (cast != TENSOR_NONE)
            return cast;
    }
    return build_cast(b, name, x, b->compute);
}

tensor_id build_copy(struct builder *b, const char *name, tensor_id x)
{
    return build_unary(b, OP_COPY, name, x);
}

tensor_id build_copy_as(struct builder *b, const char *name, tensor_id x,
                        const struct shape *shape)
{
    const tensor_id in[] = { x, TENSOR_NONE };
    const enum dtype dtype = tensor_of(b, x)->dtype;
    return one_result(b, OP_COPY, name, in,
                      build_tensor(b, name, dtype, shape));
}

tensor_id build_view(struct builder *b, const char *name, tensor_id x,
                     const struct shape *shape)
{
    const tensor_id in[] = { x, TENSOR_NONE };
    return one_result(b, OP_VIEW, name, in, build_alias(b, name, x, shape));
}

void build_split(struct builder *b, const char *name, tensor_id x,
                 tensor_id *out, const struct shape *shapes, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        out[i] = build_alias(b, name, x, &shapes[i]);
    struct op *op = build_op(b, OP_VIEW, name, &x, 1);
    for (unsigned i = 0; i < n; i++)
        op_result(b, op, out[i]);
}

tensor_id build_cat(struct builder *b, const char *name, tensor_id x,
                    tensor_id y, const struct shape *shape)
{
    const tensor_id in[] = { x, y };
    const enum dtype dtype =
        promote(tensor_of(b, x)->dtype, tensor_of(b, y)->dtype);
    return one_result(b, OP_CAT, name, in, build_tensor(b, name, dtype, shape));
}

tensor_id build_where(struct builder *b, const char *name, tensor_id mask,
                      tensor_id x)
{
    const tensor_id in[] = { x, mask };
    return one_result(b, OP_WHERE, name, in, like(b, name, x));
}

tensor_id build_dropout(struct builder *b, const char *name, tensor_id x,
                        double p)
{
    if (!(p > 0))
        return x;
    const struct shape shape = shape_of(b, x);
    const tensor_id out = like(b, name, x);
    const tensor_id mask = build_tensor(b, "dropout mask", DT_BOOL, &shape);
    struct op *op = build_op(b, OP_DROPOUT, name, &x, 1);
    op_result(b, op, out);
    op_byproduct(op, mask);
    return out;
}

/* ---- activations ---- */

/* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), transformers'
 * NewGELUActivation: five tensors of x's size are kept. */
static tensor_id gelu_new(struct builder *b, const char *name, tensor_id x)
{
    const tensor_id half = build_scale(b, "half x", x);
    const tensor_id cube = build_pow(b, "x cubed", x);
    const tensor_id scaled = build_scale(b, "cube scaled", cube);
    const tensor_id sum = build_add(b, "tanh sum", x, scaled);
    const tensor_id inner = build_scale(b, "tanh input", sum);
    const tensor_id tanh = build_unary(b, OP_TANH, "tanh", inner);
    const tensor_id plus = build_unary(b, OP_ADD, "1 + tanh", tanh);
    return build_mul(b, name, half, plus);
}

/* 0.5 x (1 + tanh(0.79788 x (1 + 0.044715 x x))), transformers'
 * FastGELUActivation. */
static tensor_id gelu_fast(struct builder *b, const char *name, tensor_id x)
{
    const tensor_id half = build_scale(b, "half x", x);
    const tensor_id outer = build_scale(b, "x scaled", x);
    const tensor_id small = build_scale(b, "x small", x);
    const tensor_id square = build_mul(b, "x squared", small, x);
    const tensor_id factor = build_unary(b, OP_ADD, "1 + square", square);
    const tensor_id inner = build_mul(b, "tanh input", outer, factor);
    const tensor_id tanh = build_unary(b, OP_TANH, "tanh", inner);
    const tensor_id plus = build_unary(b, OP_ADD, "1 + tanh", tanh);
    return build_mul(b, name, half, plus);
}

tensor_id build_activation(struct builder *b, const char *name,
                           enum activation act, tensor_id x)
{
    switch (act) {
    case ACT_SILU:
    case ACT_GELU:
    case ACT_GELU_TANH:
    case ACT_GELU_BLOOM: return build_unary(b, OP_ACTIVATION, name, x);
    case ACT_GELU_NEW: return gelu_new(b, name, x);
    case ACT_GELU_FAST: return gelu_fast(b, name, x);
    case ACT_RELU: return build_unary(b, OP_RELU, name, x);
    case ACT_RELU2:
        return build_pow(b, name, build_unary(b, OP_RELU, "relu", x));
    }
    return x;
}

/* ---- norms ---- */

tensor_id build_layer_norm(struct builder *b, const char *name, tensor_id x,
                           tensor_id weight, tensor_id bias)
{
    x = autocast_up(b, x);
    const struct shape rows = shape_rows(b, x);
    const tensor_id out = like(b, name, x);
    const tensor_id mean = build_tensor(b, "mean", DT_FP32, &rows);
    const tensor_id rstd = build_tensor(b, "rstd", DT_FP32, &rows);
    const tensor_id in[] = { x, weight, bias };
    struct op *op = build_op(b, OP_LAYER_NORM, name, in, 3);
    op_result(b, op, out);
    op_byproduct(op, mean);
    op_byproduct(op, rstd);
    return out;
}

tensor_id build_rms_norm(struct builder *b, const char *name, tensor_id x,
                         tensor_id weight)
{
    const struct shape rows = shape_rows(b, x);
    const tensor_id out = like(b, name, x);
    const tensor_id rstd = build_tensor(b, "rstd", DT_FP32, &rows);
    const tensor_id in[] = { x, weight };
    struct op *op = build_op(b, OP_RMS_NORM, name, in, 2);
    op_result(b, op, out);
    op_byproduct(op, rstd);
    return out;
}

tensor_id build_rms_norm_written_out(struct builder *b, const char *name,
                                     tensor_id x, tensor_id weight)
{
    const enum dtype dtype = tensor_of(b, x)->dtype;
    const tensor_id up = build_cast(b, "norm fp32", x, DT_FP32);
    const tensor_id square = build_pow(b, "norm square", up);
    const tensor_id mean = build_mean(b, "variance", square);
    const tensor_id eps = build_unary(b, OP_ADD, "variance + eps", mean);
    const tensor_id root = build_rsqrt(b, "rsqrt", eps);
    const tensor_id unit = build_mul(b, "normalised", up, root);
    const tensor_id down = build_cast(b, "normalised", unit, dtype);
    if (weight == TENSOR_NONE)
        return down;
    return build_mul(b, name, weight, down);
}

/* ---- attention ---- */

/* Keys that a query attends to under a causal mask, on average over the
 * sequence, as a share of all s of them. */
static double causal_share(const struct builder *b)
{
    const double s = (double)b->s.n;
    if (b->window == 0 || b->window >= b->s.n)
        return 0.5;
    const double w = (double)b->window;
    return (w * s - w * w / 2) / s / s;
}

tensor_id build_matmul(struct builder *b, const char *name, tensor_id x,
                       tensor_id y, const struct shape *shape)
{
    const tensor_id in[] = { build_autocast(b, "autocast", x),
                             build_autocast(b, "autocast", y) };
    const tensor_id out =
        build_tensor(b, name, tensor_of(b, in[0])->dtype, shape);
    struct op *op = build_op(b, OP_MATMUL, name, in, 2);
    op_result(b, op, out);
    const struct tensor *t = tensor_of(b, x);
    const uint64_t inner = t->rank == 0 ? 1 : t->dim[t->rank - 1].n;
    op->flop_full = 2.0 * (double)tensor_of(b, out)->elems * (double)inner;
    op->flop_causal =
        op->flop_full * (b->core_attention ? causal_share(b) : 1.0);
    return out;
}

tensor_id build_softmax(struct builder *b, const char *name, tensor_id x,
                        enum dtype dtype)
{
    if (b->autocast)
        dtype = DT_FP32;
    /* CUDA has a kernel from fp16 to fp32, none from bf16
       (aten/src/ATen/native/SoftMax.cpp) */
    if (tensor_of(b, x)->dtype == DT_BF16)
        x = build_cast(b, "softmax input", x, dtype);
    const tensor_id in[] = { x, TENSOR_NONE };
    const struct shape shape = shape_of(b, x);
    return one_result(b, OP_SOFTMAX, name, in,
                      build_tensor(b, name, dtype, &shape));
}

struct shape shape_scores(const struct builder *b)
{
    return SHAPE(b->micro, b->a, b->sq, b->s);
}

bool attention_is_efficient(const struct builder *b)
{
    return b->run->attention == ATTN_SDPA && b->compute == DT_FP32;
}

tensor_id build_attention(struct builder *b, const struct attention_args *at)
{
    /* the efficient kernel pads its statistics to this many rows
       (aten/src/ATen/native/transformers/cuda/attention.cu) */
    enum { EFFICIENT_ROWS = 32 };
    const tensor_id in[] = { build_autocast(b, "autocast", at->q),
                             build_autocast(b, "autocast", at->k),
                             build_autocast(b, "autocast", at->v) };
    struct dim rows = b->sq;
    if (at->efficient)
        rows =
            DIM("ceil32(s)",
                checked(b, count_round_up(count_of(b->sq.n), EFFICIENT_ROWS)));
    const struct shape lse_shape = SHAPE(b->micro, b->a, rows);
    const struct shape rng_shape = SHAPE(DIM("2", 2));
    const tensor_id out = like(b, at->name, in[0]);
    const tensor_id lse = build_tensor(b, "log-sum-exp", DT_FP32, &lse_shape);
    const tensor_id rng = build_tensor(b, "random state", DT_INT64, &rng_shape);
    struct op *op = build_op(b, at->efficient ? OP_SDPA : OP_FLASH_ATTENTION,
                             at->name, in, 3);
    op_result(b, op, out);
    op_byproduct(op, lse);
    op_byproduct(op, rng);
    op->core_attention = true;
    /* scores and their product with v: 2 multiply-adds an element of q, a key*/
    op->flop_full = 4.0 * (double)tensor_of(b, in[0])->elems * (double)b->s.n;
    op->flop_causal = op->flop_full * causal_share(b);
    return out;
}

/* ---- embedding, loss ---- */

tensor_id build_embedding(struct builder *b, const char *name,
                          tensor_id indices, tensor_id table,
                          const struct shape *shape)
{
    const tensor_id in[] = { table, indices };
    const enum dtype dtype = tensor_of(b, table)->dtype;
    return one_result(b, OP_EMBEDDING, name, in,
                      build_tensor(b, name, dtype, shape));
}

tensor_id build_log_softmax(struct builder *b, const char *name, tensor_id x)
{
    return build_unary(b, OP_LOG_SOFTMAX, name, autocast_up(b, x));
}

tensor_id build_nll_loss(struct builder *b, const char *name, tensor_id logp,
                         tensor_id labels)
{
    const tensor_id in[] = { logp, labels };
    const struct shape scalar = SHAPE(b->one);
    const enum dtype dtype = tensor_of(b, logp)->dtype;
    const tensor_id loss = build_tensor(b, name, dtype, &scalar);
    const tensor_id weight = build_tensor(b, "total weight", dtype, &scalar);
    struct op *op = build_op(b, OP_NLL_LOSS, name, in, 2);
    op_result(b, op, loss);
    op_byproduct(op, weight);
    return loss;
}

tensor_id build_cross_entropy(struct builder *b, const char *name,
                              tensor_id logits, tensor_id labels)
{
    const tensor_id logp = build_log_softmax(b, "log-softmax", logits);
    return build_nll_loss(b, name, logp, labels);
}

/* liger_kernel/ops/fused_linear_cross_entropy.py: as many rows as make the
 * chunk's logits about as large as the input. */
struct dim fused_cross_entropy_chunk(const struct builder *b)
{
    const uint64_t times = div_up(b->V.n, at_least_one(b->h.n));
    const uint64_t rows = div_up(b->t.n, at_least_one(times));
    uint64_t chunk = 1;
    while (chunk < rows && chunk <= UINT64_MAX / 2)
        chunk *= 2;
    return DIM("chunk", chunk);
}

tensor_id build_fused_cross_entropy(struct builder *b, const char *name,
                                    tensor_id x, tensor_id weight,
                                    struct dim chunk)
{
    x = build_autocast(b, "autocast", x);
    weight = build_autocast(b, "autocast", weight);
    const struct shape scalar = SHAPE(b->one);
    const struct shape rows = SHAPE(chunk, b->V);
    const struct shape weight_shape = shape_of(b, weight);
    const enum dtype dtype = tensor_of(b, x)->dtype;
    const tensor_id loss = build_tensor(b, name, DT_FP32, &scalar);
    const tensor_id dx = like(b, "input gradient", x);
    tensor_id dw = TENSOR_NONE;
    if (needs_grad(b, weight))
        dw = build_tensor(b, "head gradient", tensor_of(b, weight)->dtype,
                          &weight_shape);
    const tensor_id logits = build_tensor(b, "logits chunk", dtype, &rows);
    const tensor_id in[] = { x, weight, b->labels };
    struct op *op = build_op(b, OP_FUSED_CROSS_ENTROPY, name, in, 3);
    op_result(b, op, loss);
    op_byproduct(op, logits);
    op_byproduct(op, dx);
    if (dw != TENSOR_NONE)
        op_byproduct(op, dw);
    op->flop_full = op->flop_causal =
        2.0 * (double)tensor_of(b, x)->elems * (double)b->V.n;
    return loss;
}

tensor_id build_swiglu(struct builder *b, const char *name, tensor_id gate,
                       tensor_id up, tensor_id probs)
{
    struct shape shape = shape_of(b, gate);
    if (up == TENSOR_NONE && shape.rank > 0) {
        struct dim *last = &shape.dim[shape.rank - 1];
        last->n /= 2;
        if (last->sym[0] == '2' && last->sym[1] == '*')
            last->sym += 2;
    }
    const tensor_id in[] = { gate, up, probs };
    const enum dtype dtype = tensor_of(b, gate)->dtype;
    const tensor_id out = build_tensor(b, name, dtype, &shape);
    op_result(b, build_op(b, OP_SWIGLU, name, in, 3), out);
    return out;
}

/* ---- routing ---- */

tensor_id build_topk(struct builder *b, const char *name, tensor_id x,
                     struct dim k, tensor_id *indices)
{
    const struct shape shape = shape_last(b, x, k);
    const enum dtype dtype = tensor_of(b, x)->dtype;
    const tensor_id values = build_tensor(b, name, dtype, &shape);
    *indices = build_tensor(b, "top-k indices", DT_INT64, &shape);
    struct op *op = build_op(b, OP_TOPK, name, &x, 1);
    op_result(b, op, values);
    op_byproduct(op, *indices);
    return values;
}

tensor_id build_index(struct builder *b, const char *name, tensor_id x,
                      tensor_id indices, const struct shape *shape)
{
    const tensor_id in[] = { x, indices };
    const enum dtype dtype = tensor_of(b, x)->dtype;
    return one_result(b, OP_INDEX, name, in,
                      build_tensor(b, name, dtype, shape));
}

tensor_id build_index_add(struct builder *b, const char *name, tensor_id acc,
                          tensor_id indices, tensor_id src)
{
    const tensor_id in[] = { acc, indices, src };
    const struct shape shape = shape_of(b, acc);
    const tensor_id out = build_alias(b, name, acc, &shape);
    op_result(b, build_op(b, OP_INDEX_ADD, name, in, 3), out);
    return out;
}

/* ---- collectives ---- */

static uint64_t group_ranks(const struct builder *b, enum comm_group group)
{
    switch (group) {
    case COMM_TP: return b->run->tp;
    case COMM_CP: return b->run->cp;
    case COMM_EP: return b->run->ep;
    }
    return 1;
}

tensor_id build_all_reduce(struct builder *b, const char *name, tensor_id x,
                           enum comm_group group)
{
    if (group_ranks(b, group) <= 1)
        return x;
    const tensor_id out = build_unary_in_place(b, OP_ALL_REDUCE, name, x);
    b->p->op[b->p->n_ops - 1].group = group;
    return out;
}

tensor_id build_collective(struct builder *b, enum op_kind kind,
                           enum comm_group group, tensor_id x,
                           const struct shape *shape)
{
    if (group_ranks(b, group) <= 1)
        return x;
    const tensor_id in[] = { x, TENSOR_NONE };
    const enum dtype dtype = tensor_of(b, x)->dtype;
    const char *name = op_kind_name(kind);
    const tensor_id out = build_tensor(b, name, dtype, shape);
    one_result(b, kind, name, in, out);
    b->p->op[b->p->n_ops - 1].group = group;
    return out;
}
