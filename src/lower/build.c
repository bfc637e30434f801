/*
 * Owns the frame of a step program: growing arrays, dtypes, blocks, tensors and
 * the bare operation. Refuses to know what single operations compute (the other
 * build_*.c do), architectures and frameworks (lowerings do) and what is kept
 * (save_rule.c does).
 */
#include "lower/build_private.h"

#include <stddef.h>
#include <string.h>

#include "base/banned.h"

/* A Llama by transformers takes about 90 tensors and 70 operations, DeepSeek-V3
 * 230 and 215, by Megatron 190 and 145. */
enum { FIRST_TENSORS = 256, FIRST_OPS = 224 };

/* ---- numbers ---- */

uint64_t build_product(struct builder *b, uint64_t x, uint64_t y)
{
    return build_checked(b, count_mul(count_of(x), count_of(y)));
}

/* ---- arrays ---- */

/* Room for one more; on failure the last element is used again. */
APART void *grow(struct builder *b, void *array, uint32_t *cap, size_t size)
{
    void *bigger = NULL;
    if (*cap <= UINT32_MAX / 4)
        bigger = arena_room(b->arena, (size_t)*cap * 2, size);
    if (bigger == NULL) {
        b->failed = true;
        return array;
    }
    memcpy(bigger, array, *cap * size);
    *cap *= 2;
    return bigger;
}

APART void grow_tensors(struct builder *b)
{
    struct program *p = b->p;
    p->tensor = grow(b, p->tensor, &b->cap_tensors, sizeof(*p->tensor));
    if (p->n_tensors == b->cap_tensors)
        p->n_tensors--;
}

INLINE tensor_id take_tensor(struct builder *b)
{
    if (b->p->n_tensors == b->cap_tensors)
        grow_tensors(b);
    return b->p->n_tensors++;
}

APART void grow_ops(struct builder *b)
{
    struct program *p = b->p;
    p->op = grow(b, p->op, &b->cap_ops, sizeof(*p->op));
    if (p->n_ops == b->cap_ops)
        p->n_ops--;
}

/* Nothing is said of it. Of operands that it does not have the first are 0, as
 * some are looked at before it is asked how many there are. */
INLINE struct op *take_op(struct builder *b)
{
    enum { SOME_OUT = 2, SOME_IN = 4 };
    if (b->p->n_ops == b->cap_ops)
        grow_ops(b);
    struct op *op = &b->p->op[b->p->n_ops++];
    memset(op, 0, offsetof(struct op, out[SOME_OUT]));
    for (unsigned i = 0; i < SOME_IN; i++)
        op->in[i] = 0;
    memset(&op->name, 0, sizeof *op - offsetof(struct op, name));
    return op;
}

bool build_take_rows(struct builder *b, uint32_t tensors, uint32_t ops)
{
    struct program *p = b->p;
    while (!b->failed && b->cap_tensors - p->n_tensors < tensors)
        p->tensor = grow(b, p->tensor, &b->cap_tensors, sizeof(*p->tensor));
    while (!b->failed && b->cap_ops - p->n_ops < ops)
        p->op = grow(b, p->op, &b->cap_ops, sizeof(*p->op));
    if (b->failed)
        return false;
    p->n_tensors += tensors;
    p->n_ops += ops;
    return true;
}

static void start_arrays(struct builder *b)
{
    struct program *p = b->p;
    b->cap_tensors = FIRST_TENSORS;
    b->cap_ops = FIRST_OPS;
    p->tensor = ARENA_ROOM(b->arena, struct tensor, FIRST_TENSORS);
    p->op = ARENA_ROOM(b->arena, struct op, FIRST_OPS);
    if (p->tensor != NULL && p->op != NULL)
        return;
    b->failed = true;
}

/* ---- frame ---- */

void build_hold(struct builder *b, tensor_id x)
{
    struct tensor *t = &b->p->tensor[tensor_of(b, x)->storage];
    if (t->role == ROLE_ACTIVATION)
        t->held = b->run->keep_outputs;
}

void build_renames(struct builder *b, const char *name)
{
    const tensor_id none = TENSOR_NONE;
    build_op(b, OP_RELEASE, name, &none, 1)->renames =
        b->run->keep_outputs && !b->run->drop_outputs;
}

/* The ends of a model that FSDP makes one unit of, as bits of 'freeze'. */
static uint64_t ends_of_unit(const struct builder *b, enum block_kind kind)
{
    const struct spec *m = b->whole;
    const uint64_t words = UINT64_C(1) << FREEZE_EMBED;
    uint64_t last = m->tied ? 0 : UINT64_C(1) << FREEZE_HEAD;
    if (m->final_norm)
        last |= UINT64_C(1) << FREEZE_NORM;
    if (b->run->fsdp_units == FSDP_LAYERS || m->tied)
        return words | last;
    return kind == BLOCK_EMBED ? words : last;
}

/* FSDP version 1 makes one parameter of what no layer's unit has, and gives
 * modules views of it that no one detaches: all of it gets gradients where some
 * is trained (_flat_param.py, _validate_tensors_to_flatten,
 * _use_unsharded_views). In a model of several parts some always is. */
bool build_joins_trained(const struct builder *b, enum block_kind kind)
{
    const struct run *r = b->run;
    if (r->engine != ENGINE_FSDP || r->zero == 0 || !r->stops || b->frozen
        || kind == BLOCK_LAYER)
        return false;
    return b->whole->vision != NULL
           || (ends_of_unit(b, kind) & ~r->freeze) != 0;
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
    b->frozen = run_adapts(r);
    if (b->frozen && r->base_dtype != DT_NONE)
        b->param = run_unquantised_dtype(r);
    b->stream = b->param;
    b->bare = r->some_layers;
    b->embeds_trained = b->frozen
                            ? (r->lora_full & LORA_MASK(LORA_FULL_EMBED)) != 0
                            : (r->freeze >> FREEZE_EMBED & 1) == 0
                                  || build_joins_trained(b, BLOCK_EMBED);
}

uint64_t build_images(struct builder *b)
{
    const uint64_t each = b->whole->vision != NULL ? b->run->images : 1;
    return build_product(b, b->run->micro_batch, each);
}

void build_idle(struct builder *b)
{
    b->p->n_ops = b->block->op_first;
}

/* Shapes of the text, or of a model that is one part. */
static void start_text(struct builder *b)
{
    b->spec = b->whole;
    b->seqs = b->run->micro_batch;
    b->len = b->run->seq_len;
    if (run_prompts(b->run))
        b->len += b->run->virtual_tokens;
    b->attends_all = b->spec->bidirectional || b->spec->decoder_layers > 0;
    build_dims(b);
}

/* An image is a sequence. */
static void start_vision(struct builder *b)
{
    b->spec = b->whole->vision;
    b->seqs = build_images(b);
    b->len = b->spec->max_positions;
    b->attends_all = true;
    build_dims(b);
}

void build_to_text(struct builder *b)
{
    start_text(b);
}

void build_to_vision(struct builder *b)
{
    start_vision(b);
}

/* Of a model of images a number each, as DiT's times; of spectra none. */
static struct dim ids_dim(const struct builder *b)
{
    if (b->spec->mel_bins > 0)
        return b->one;
    return b->spec->image > 0 ? b->micro : b->words;
}

static void start_routing(struct program *p, const struct spec *spec)
{
    p->routed = spec->experts_per_token;
    p->routed_share =
        spec->router_groups > 1 && spec->router_top_groups > 0
            ? (double)spec->router_top_groups / (double)spec->router_groups
            : 1;
}

void build_start(struct builder *b, struct program *p, const struct spec *spec,
                 const struct run *run, struct arena *a, struct diag *d)
{
    memset(b, 0, sizeof(*b));
    memset(p, 0, sizeof(*p));
    b->p = p;
    b->arena = a;
    b->diag = d;
    b->whole = spec;
    b->run = run;
    b->hidden = b->memory = b->pixels = b->eye_tables = TENSOR_NONE;
    b->deep = b->deep_last = b->balance = TENSOR_NONE;
    b->past_gradient = TENSOR_NONE;
    start_routing(p, spec);
    start_dtypes(b);
    start_text(b);
    start_arrays(b);
    b->words = b->t;
    if (run_prompts(run))
        b->words = DIM("b*s", build_product(b, b->seqs, run->seq_len));
    p->tokens = b->words.n;
    p->layers = spec_blocks(spec);
    p->layer_block = ARENA_NEW(a, uint8_t, p->layers);
    if (p->layer_block == NULL)
        b->failed = true;
    if (b->failed)
        return;
    const struct shape tokens = SHAPE(ids_dim(b)), targets = build_targets(b);
    p->first_input = p->n_tensors;
    b->ids = build_input(b, "input_ids", DT_INT64, &tokens);
    b->labels = build_input(b, "labels", DT_INT64, &targets);
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
                             .begins_as = i,
                             .input = b->hidden,
                             .weights = TENSOR_NONE,
                             .output = TENSOR_NONE,
                             .memory = TENSOR_NONE };
    if (kind == BLOCK_EMBED)
        p->embed = i;
    if (kind == BLOCK_HEAD)
        p->head = i;
    b->block = block;
    b->region = 0;
    b->node = NODE_ATTENTION;
    b->sent = TENSOR_NONE;
    b->core_attention = false;
    return b->hidden;
}

/* Whether a hook gives what a frozen embedding makes a gradient: transformers'
 * enable_input_require_grads, of each part's; gradient_checkpointing_enable and
 * PEFT call it for checkpoints. Of models that are one part it is taken to be
 * called always. */
bool build_asks_grad(const struct builder *b)
{
    if (b->whole->vision == NULL
        && (b->run->stops || run_has_bridge_adapters(b->run)))
        return b->run->recompute == RECOMP_FULL;
    if (b->whole->vision == NULL)
        return true;
    return b->frozen && b->run->recompute == RECOMP_FULL;
}

/* The next block's input: the output itself, or a stand-in for it when that
 * is a view, or needs no gradient. With frozen embeddings the input of a layer
 * needs one all the same: every layer but the first has adapters below it, and
 * PEFT's enable_input_require_grads gives it to the first. Nobody does so for
 * frozen parts: what nothing trained lies below has no gradient. Of a whole
 * with adapters it is asked for under checkpoints alone, of each part. */
static tensor_id next_input(struct builder *b, tensor_id output)
{
    const struct tensor *t = tensor_of(b, output);
    if (t->storage == output && t->needs_grad)
        return output;
    const bool runs = b->seqs > 0; /* there are images, or it is the text */
    const bool grad = t->needs_grad || (runs && build_asks_grad(b));
    const struct shape shape = shape_of(b, output);
    const tensor_id id = build_tensor(b, "hidden_states", t->dtype, &shape);
    b->p->tensor[id].needs_grad = grad;
    return id;
}

void build_end(struct builder *b, tensor_id output)
{
    struct program *p = b->p;
    struct block *block = b->block;
    if (b->seqs == 0)
        build_idle(b);
    block->output = output;
    block->op_count = p->n_ops - block->op_first;
    block->tensor_count = p->n_tensors - block->tensor_first;
    if (block->kind == BLOCK_LAYER && b->run->compile)
        build_fuse(b, block);
    if (block->kind == BLOCK_LAYER && b->run->recompute == RECOMP_OPS)
        build_policy(b, block);
    b->hidden = next_input(b, output);
    b->block = NULL;
}

/* Hugging Face's layers run whole on a rank: degrees go where they come. */
static void hint_others(const struct run *r, memplan_error *e)
{
    const struct {
        const char *name;
        uint64_t n;
    } degree[] = {
        { "tp", r->tp }, { "pp", r->pp }, { "cp", r->cp }, { "ep", r->ep }
    };
    const bool split = r->tp > 1 || r->pp > 1 || r->cp > 1 || r->ep > 1;
    const bool megatron =
        r->impl == IMPL_MEGATRON || r->impl == IMPL_MEGATRON_LOCAL;
    if (r->impl == IMPL_HF)
        return;
    if (r->impl == IMPL_HF_LIGER) {
        diag_hint(e, "%s may have it: use --implementation %s",
                  r->loss == LOSS_CHUNKED ? "LitGPT's layers"
                                          : "Layers without Liger's kernels",
                  r->loss == LOSS_CHUNKED ? "litgpt" : "hf");
        return;
    }
    if (run_is_litgpt(r)) {
        diag_hint(e, "Hugging Face's layers may have it: use %s",
                  r->means_litgpt ? "--loss standard" : "--implementation hf");
        return;
    }
    const bool given = r->given[KEY_IMPLEMENTATION];
    if (split && !megatron) {
        diag_hint(e, "Megatron's layers may have it: use --%s megatron",
                  given ? "implementation" : "framework");
        return;
    }
    diag_hint(e, "Hugging Face's layers may have it: use %s",
              given ? "--implementation hf"
                    : "--framework hf, deepspeed or fsdp");
    for (size_t i = 0; i < sizeof(degree) / sizeof(degree[0]); i++) {
        if (degree[i].n > 1)
            str_append(e->hint, sizeof(e->hint), " and --%s 1", degree[i].name);
    }
}

memplan_error *build_refuse(struct builder *b, const char *what)
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
    hint_others(b->run, e);
    return e;
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
        shape.dim[--shape.rank] = (struct dim){ 0 };
    return shape;
}

COLD static uint64_t elems_checked(struct builder *b, const struct dim *dim,
                                   unsigned rank)
{
    struct count c = count_of(1);
    for (unsigned i = 0; i < rank; i++)
        c = count_mul(c, count_of(dim[i].n));
    c.over = c.over || c.v > ELEMS_MAX;
    return build_checked(b, c);
}

/* Of all factors; count_mul divides, and this runs for every tensor, of which
 * most have a rank of one or two. */
static inline uint64_t elems_of(struct builder *b, const struct dim *dim,
                                unsigned rank)
{
    uint64_t n = rank == 0 ? 1 : dim[0].n, large = n;
    if (rank > 1) {
        n *= dim[1].n;
        large |= dim[1].n;
    }
    for (unsigned i = 2; i < rank; i++) {
        large |= n | dim[i].n;
        n *= dim[i].n;
    }
    return large >> 32 == 0 && n <= ELEMS_MAX ? n : elems_checked(b, dim, rank);
}

INLINE void set_tensor(struct builder *b, tensor_id id, const char *name,
                       enum dtype dtype, const struct dim *dim, uint8_t rank)
{
    struct tensor *t = &b->p->tensor[id];
    const uint64_t elems = elems_of(b, dim, rank);
    memset(t, 0, offsetof(struct tensor, dim));
    memcpy(t->dim, dim, sizeof t->dim); /* 0 beyond the rank */
    t->name = name;
    t->rank = rank;
    t->dtype = dtype;
    t->role = ROLE_ACTIVATION;
    t->storage = id;
    t->elems = elems;
    t->bytes = dtype_bytes_of(dtype, elems);
}

tensor_id build_tensor(struct builder *b, const char *name, enum dtype dtype,
                       const struct shape *shape)
{
    const tensor_id id = take_tensor(b);
    set_tensor(b, id, name, dtype, shape->dim, shape->rank);
    return id;
}

tensor_id build_in_shape_of(struct builder *b, const char *name,
                            enum dtype dtype, tensor_id x)
{
    const tensor_id id = take_tensor(b); /* may move x */
    const struct tensor *of = tensor_of(b, x);
    struct tensor *t = &b->p->tensor[id];
    set_tensor(b, id, name, dtype, of->dim, of->rank);
    if (t->elems != of->elems) { /* experts: copies are not among the factors */
        t->elems = of->elems;
        t->bytes = dtype_bytes_of(dtype, t->elems);
    }
    return id;
}

tensor_id build_like(struct builder *b, const char *name, tensor_id x)
{
    return build_in_shape_of(b, name, tensor_of(b, x)->dtype, x);
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

void build_rests(struct builder *b, tensor_id id)
{
    struct tensor *t = b->p->tensor;
    t[id].next = TENSOR_NONE;
    if (b->block == NULL || b->failed)
        return;
    if (b->block->weights == TENSOR_NONE)
        b->block->weights = id;
    else
        t[b->last_weight].next = id;
    b->last_weight = id;
}

tensor_id build_buffer(struct builder *b, const char *name, enum dtype dtype,
                       const struct shape *shape)
{
    const tensor_id id = build_tensor(b, name, dtype, shape);
    b->p->tensor[id].role = ROLE_BUFFER;
    build_rests(b, id);
    return id;
}

tensor_id build_state(struct builder *b, const char *name, enum dtype dtype,
                      const struct shape *shape)
{
    const tensor_id id = build_buffer(b, name, dtype, shape);
    b->p->tensor[id].full_elems = b->p->tensor[id].elems;
    return id;
}

void build_in_global_buffer(struct builder *b, tensor_id x, uint64_t bytes)
{
    struct program *p = b->p;
    uint64_t *most = &b->block->global_buffer_bytes;
    *most = max_u64(*most, bytes);
    if (x != TENSOR_NONE)
        p->tensor[x].pooled = true;
}

/* ---- operations ---- */

struct op *build_op(struct builder *b, enum op_kind kind, const char *name,
                    const tensor_id *in, unsigned n_in)
{
    struct op *op = take_op(b);
    op->kind = kind;
    op->name = name;
    op->region = b->region;
    b->p->regions |= UINT64_C(1) << b->region;
    op->module = b->module;
    op->graphed = b->graphed;
    op->node = b->node;
    op->core_attention = b->core_attention;
    if (kind == OP_SOFTMAX || kind == OP_LOG_SOFTMAX)
        op->keep_in = (uint32_t)b->run->softmax_input;
    for (unsigned i = 0; i < n_in; i++)
        if (in[i] != TENSOR_NONE && op->n_in < OP_IN_MAX)
            op->in[op->n_in++] = in[i];
    return op;
}

void build_place(struct builder *b, enum backward_place place)
{
    if (b->p->n_ops > 0)
        b->p->op[b->p->n_ops - 1].place = place;
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

tensor_id build_one_result(struct builder *b, enum op_kind kind,
                           const char *name, const tensor_id in[2],
                           tensor_id out)
{
    op_result(b, build_op(b, kind, name, in, 2), out);
    return out;
}
