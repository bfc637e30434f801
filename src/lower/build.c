/*
 * Owns the frame of a step program: growing arrays, the factors of shapes,
 * dtypes, blocks, tensors, parameters, and the bare operation. Refuses to know
 * what single operations compute (the other build_*.c do), architectures and
 * frameworks (lowerings do) and what is kept (save_rule.c does).
 */
#include "lower/build_private.h"

#include <math.h>
#include <string.h>

#include "base/banned.h"

/* A Llama by transformers takes about 90 tensors and 70 operations. */
enum { FIRST_TENSORS = 128, FIRST_OPS = 96 };

/* Above this a tensor's bytes do not fit in 64 bits. */
#define ELEMS_MAX (UINT64_MAX / 8)

/* ---- numbers ---- */

uint64_t build_product(struct builder *b, uint64_t x, uint64_t y)
{
    return build_checked(b, count_mul(count_of(x), count_of(y)));
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
    const uint64_t all = build_product(b, b->seqs, b->len);
    const uint64_t cp = at_least_one(r->cp);
    const uint64_t tp = at_least_one(r->tp);
    if (run_prompts(r))
        return DIM("b*(s+n)", all);
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
    const struct count qkv =
        count_add(count_of(b->A.n), count_mul(count_of(2), count_of(b->K.n)));
    b->qkv = DIM(cut ? "(a+2*kv)*d/tp" : "(a+2*kv)*d", build_checked(b, qkv));
    b->full_A = build_product(b, m->heads, m->head_dim);
    b->full_K = build_product(b, m->kv_heads, m->head_dim);
    b->dv = b->d;
    b->O = b->A;
    b->full_O = b->full_A;
}

static void start_latent_dims(struct builder *b)
{
    const struct spec *m = b->spec;
    const bool cut = b->run->tp > 1;
    b->dv = DIM("dv", m->v_dim);
    b->O = DIM(cut ? "a*dv/tp" : "a*dv", build_product(b, b->a.n, b->dv.n));
    b->full_O = build_product(b, m->heads, m->v_dim);
    b->rq = DIM("rq", m->q_rank);
    b->rkv = DIM("rkv", m->kv_rank);
    b->nope = DIM("dn", m->nope_dim);
    b->rope = DIM("dr", m->rope_dim);
    b->latent = DIM("rkv+dr", m->kv_rank + m->rope_dim);
    b->kv_up = DIM(cut ? "a*(dn+dv)/tp" : "a*(dn+dv)",
                   build_product(b, b->a.n, m->nope_dim + m->v_dim));
}

/* Rows times a factor, rounded up. */
static uint64_t scaled_rows(struct builder *b, uint64_t rows, double factor)
{
    const double n = (double)rows * factor;
    b->over = b->over || !(n < (double)ELEMS_MAX);
    return b->over || !(factor > 1 || factor < 1) ? rows : (uint64_t)ceil(n);
}

/* Balanced, what a rank sends away is what it receives. Uneven, the fullest
 * rank of a group receives more; an expert takes no more than its capacity, and
 * padded always so much (core/transformer/moe/moe_utils.py, get_capacity).
 * Experts that are themselves sharded see the tokens of all their ranks. */
static void start_routed_dims(struct builder *b)
{
    const struct spec *m = b->spec;
    const struct run *r = b->run;
    const uint64_t tp = at_least_one(r->tp), etp = at_least_one(r->etp);
    const bool cut = r->sequence_parallel && tp > etp;
    const uint64_t k = m->experts_per_token;
    const uint64_t rows =
        r->sequence_parallel ? build_product(b, b->tu.n, etp) : b->t.n;
    const bool capped = r->moe_capacity > 0;
    double sent = 1,
           received = r->ep > 1 && r->moe_imbalance > 1 ? r->moe_imbalance : 1;
    if (capped && r->moe_padded)
        sent = received = r->moe_capacity;
    else if (capped && r->moe_capacity < received)
        received = r->moe_capacity;
    if (received < sent)
        sent = received;
    const uint64_t even = build_product(b, rows, k);
    b->chosen =
        DIM("b*s*k", scaled_rows(b, build_product(b, b->tu.n, k), sent));
    b->routed =
        DIM(cut ? "b*s*k*etp/tp" : "b*s*k", scaled_rows(b, even, received));
    b->routed_share = b->routed.n == 0 ? 1 : (double)even / (double)b->routed.n;
}

static void start_expert_dims(struct builder *b)
{
    const struct spec *m = b->spec;
    const struct run *r = b->run;
    const uint64_t tp = at_least_one(r->tp), etp = at_least_one(r->etp);
    b->experts = DIM("E", m->experts);
    b->experts_on =
        DIM(r->ep > 1 ? "E/ep" : "E", div_up(m->experts, at_least_one(r->ep)));
    start_routed_dims(b);
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
    b->micro = DIM("b", b->seqs);
    const char *s = run_prompts(r) ? "s+n" : "s";
    b->s = DIM(s, b->len);
    b->sq = DIM(cp > 1 ? "s/cp" : s, div_up(b->len, cp));
    if (run_prefixes(r))
        b->s = DIM("s+n", b->len + r->virtual_tokens);
    b->t = tokens_dim(b, false);
    b->tu = tokens_dim(b, r->sequence_parallel);
    b->h = DIM("h", m->hidden);
    b->e = DIM("e", m->embed_dim == 0 ? m->hidden : m->embed_dim);
    b->f = DIM(cut ? "f/tp" : "f", div_up(m->ffn, tp));
    b->f2 = DIM(cut ? "2*f/tp" : "2*f", build_product(b, 2, b->f.n));
    b->V = DIM(cut ? "V/tp" : "V",
               div_up(r->vocab == 0 ? m->vocab : r->vocab, tp));
    b->r = DIM("r", r->lora_rank);
    b->s_target = DIM("s_dec", r->decoder_seq_len);
    start_attention_dims(b);
    if (build_is_latent(b))
        start_latent_dims(b);
    if (m->experts > 0)
        start_expert_dims(b);
}

/* ---- frame ---- */

bool dtype_is_quantised(enum dtype t)
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
    case DT_E5M6:
    case DT_NONE:
    case DT_BOOL:
    case DT_INT32:
    case DT_INT64:
    case DTYPE_COUNT: return false;
    }
    return false;
}

bool build_is_litgpt(const struct builder *b)
{
    return b->run->loss == LOSS_CHUNKED
           && (b->run->impl == IMPL_HF || b->run->impl == IMPL_HF_LIGER);
}

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

/* What is not quantised of a quantised model. PEFT's
 * prepare_model_for_kbit_training casts it to fp32 over bitsandbytes' formats,
 * not over GPTQ; where the weights themselves are sharded it is not called
 * (trl's SFTTrainer). PEFT makes adapters in fp32 then: who has them in 16 bits
 * does without the call (fsdp_qlora's train.py, LitGPT), and so does torchtune.
 */
static enum dtype unquantised_dtype(const struct builder *b)
{
    const struct run *r = b->run;
    const bool sharded =
        r->engine == ENGINE_FSDP || r->engine == ENGINE_FSDP2 || r->zero == 3;
    if (r->base_dtype == DT_INT4 || sharded || r->lora_dtype != DT_FP32
        || r->impl == IMPL_TORCHTUNE)
        return b->compute;
    return DT_FP32;
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
        b->param = dtype_is_quantised(r->base_dtype) ? unquantised_dtype(b)
                                                     : r->base_dtype;
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
    start_dims(b);
}

/* An image is a sequence. */
static void start_vision(struct builder *b)
{
    b->spec = b->whole->vision;
    b->seqs = build_images(b);
    b->len = b->spec->max_positions;
    b->attends_all = true;
    start_dims(b);
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
    b->deep = b->deep_last = b->past_gradient = TENSOR_NONE;
    start_dtypes(b);
    start_text(b);
    start_arrays(b);
    b->words = b->t;
    if (run_prompts(run))
        b->words = DIM("b*s", build_product(b, b->seqs, run->seq_len));
    p->tokens = b->words.n;
    p->layers = spec_blocks(spec);
    p->routed = spec->experts_per_token;
    p->routed_share =
        spec->router_groups > 1 && spec->router_top_groups > 0
            ? (double)spec->router_top_groups / (double)spec->router_groups
            : 1;
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
                             .input = b->hidden,
                             .output = TENSOR_NONE,
                             .memory = TENSOR_NONE };
    if (kind == BLOCK_EMBED)
        p->embed = i;
    if (kind == BLOCK_HEAD)
        p->head = i;
    b->block = block;
    b->region = 0;
    b->core_attention = false;
    return b->hidden;
}

/* Whether a hook gives what a frozen embedding makes a gradient: transformers'
 * enable_input_require_grads, of each part's; gradient_checkpointing_enable and
 * PEFT call it for checkpoints. Of models that are one part it is taken to be
 * called always. */
bool build_asks_grad(const struct builder *b)
{
    if (b->whole->vision == NULL && b->run->stops)
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
    if (split && !megatron) {
        diag_hint(e, "Megatron's layers may have it: use --framework megatron");
        return;
    }
    diag_hint(e, "Hugging Face's layers may have it: use --framework hf, "
                 "deepspeed or fsdp");
    for (size_t i = 0; i < sizeof(degree) / sizeof(degree[0]); i++) {
        if (degree[i].n > 1)
            str_append(e->hint, sizeof(e->hint), " and --%s 1", degree[i].name);
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
    hint_others(b->run, e);
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
    return build_checked(b, c);
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

tensor_id build_like(struct builder *b, const char *name, tensor_id x)
{
    const struct shape shape = shape_of(b, x);
    return build_tensor(b, name, tensor_of(b, x)->dtype, &shape);
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

tensor_id build_buffer(struct builder *b, const char *name, enum dtype dtype,
                       const struct shape *shape)
{
    const tensor_id id = build_tensor(b, name, dtype, shape);
    b->p->tensor[id].role = ROLE_BUFFER;
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

/* What 'freeze' calls the ends of a model that is one part, here. */
static enum freeze end_of(const struct builder *b, enum param_group group)
{
    if (b->block->kind != BLOCK_HEAD)
        return FREEZE_EMBED;
    return group == PG_NORM ? FREEZE_NORM : FREEZE_HEAD;
}

/* A tied head is the embedding's table. */
static bool is_frozen_end(const struct builder *b, const struct param *q)
{
    if (!b->run->stops || b->block == NULL)
        return false;
    if (b->block->kind == BLOCK_LAYER)
        return b->below;
    const enum freeze end = q->tied ? FREEZE_EMBED : end_of(b, q->group);
    return (b->run->freeze >> end & 1) != 0;
}

static enum freeze part_of(const struct builder *b, enum param_group group)
{
    if (b->projects || group == PG_PROJECTOR)
        return FREEZE_PROJECTOR;
    return b->spec == b->whole->vision ? FREEZE_VISION : FREEZE_TEXT;
}

bool build_is_frozen(const struct builder *b, enum param_group group)
{
    return (b->run->freeze >> part_of(b, group) & 1) != 0;
}

/* PEFT's modules_to_save beside adapters; words and head of a whole are its
 * text's. */
static bool is_full(const struct builder *b, const struct param *q)
{
    const enum param_group group = q->group;
    const uint64_t full = b->run->lora_full;
    const enum freeze part = part_of(b, group);
    if (part == FREEZE_PROJECTOR)
        return (full & LORA_MASK(LORA_FULL_PROJECTOR)) != 0;
    if (group == PG_NORM)
        return (full & LORA_MASK(LORA_FULL_NORM)) != 0;
    if (part == FREEZE_VISION)
        return false;
    if (group == PG_EMBED)
        return q->words && (full & LORA_MASK(LORA_FULL_EMBED)) != 0;
    return group == PG_HEAD && (full & LORA_MASK(LORA_FULL_HEAD)) != 0;
}

/* An adapter is where build_linear() puts it: in no frozen part. */
static bool could_train(const struct builder *b, const struct param *q)
{
    if (q->group == PG_ADAPTER)
        return true;
    return !build_is_frozen(b, q->group) && !is_frozen_end(b, q)
           && (!b->frozen || is_full(b, q));
}

/* FSDP's policy gathers them in the type that it computes in, whatever their
 * shards have; PEFT casts the input to what it finds (lora/layer.py,
 * _cast_input_dtype). */
enum dtype build_adapter_dtype(const struct builder *b)
{
    const struct run *r = b->run;
    const bool fsdp = r->engine == ENGINE_FSDP || r->engine == ENGINE_FSDP2;
    const bool policy =
        r->precision == PREC_BF16_MIXED || r->precision == PREC_FP16_MIXED;
    return fsdp && r->zero != 0 && policy ? b->compute : r->lora_dtype;
}

static enum dtype param_dtype(const struct builder *b, const struct param *q)
{
    if (q->statistic)
        return q->dtype;
    if (q->wide)
        return DT_FP32;
    if (!b->frozen)
        return b->param;
    if (q->group == PG_ADAPTER)
        return build_adapter_dtype(b);
    /* linears only, and transformers leaves the head as it is; lightning's
       BitsandbytesPrecision does not */
    const bool head = q->group == PG_HEAD && !build_is_litgpt(b);
    if (q->matmul && !head && !q->bare && b->run->base_dtype != DT_NONE)
        return b->run->base_dtype;
    /* Linear4bit casts its bias to the type it computes in, for good */
    if (q->of_linear && q->group != PG_HEAD
        && dtype_is_quantised(b->run->base_dtype))
        return b->compute;
    return b->param;
}

/* PEFT trains a copy of a module in full, and keeps the original beside it
 * (peft/utils/other.py, ModulesToSaveWrapper). */
static void keep_original(struct builder *b, const struct param *q,
                          tensor_id trained)
{
    if (!b->frozen || q->group == PG_ADAPTER || q->tied || q->elsewhere
        || !tensor_of(b, trained)->trainable)
        return;
    struct param original = *q;
    original.name = "original module";
    original.original = true;
    build_param(b, &original);
}

/* runtime/torch_autocast.py, init_autocast_params. */
bool build_sends_low(const struct builder *b)
{
    const struct run *r = b->run;
    return r->engine == ENGINE_DEEPSPEED && r->zero > 0 && r->prec.autocast
           && r->prec.param == DT_FP32;
}

tensor_id build_param(struct builder *b, const struct param *q)
{
    struct shape shape = SHAPE(q->rows);
    if (q->cols.n != 0)
        shape = SHAPE(q->rows, q->cols);
    const tensor_id id = build_tensor(b, q->name, param_dtype(b, q), &shape);
    struct tensor *t = &b->p->tensor[id];
    t->role = ROLE_PARAM;
    t->of = q->of;
    t->group = q->group;
    t->statistic = q->statistic;
    const bool alive = !q->statistic && !q->original && !q->fixed;
    const bool trains = could_train(b, q);
    t->dropped = alive && !trains && !b->in_vain && !b->in_unit
                 && b->block != NULL && build_joins_trained(b, b->block->kind);
    t->trainable = t->needs_grad =
        (alive && !b->in_vain && trains) || t->dropped;
    t->in_vain = b->in_vain && trains;
    t->tied = q->tied || q->again;
    t->again = q->again;
    t->matmul = q->matmul;
    t->words = q->words;
    t->low = q->words && b->whole->tied && build_sends_low(b); /* the head's */
    t->rows = q->rows.n;
    t->cols = at_least_one(q->cols.n);
    if (q->copies > 1) {
        t->rows = build_product(b, t->rows, q->copies);
        t->elems = build_product(b, t->elems, q->copies);
        t->bytes = dtype_bytes_of(t->dtype, t->elems);
    }
    t->full_elems = q->full_elems == 0 ? t->elems : q->full_elems;
    if (q->statistic)
        t->full_elems = 0;
    t->original = q->original;
    t->elsewhere = q->elsewhere;
    keep_original(b, q, id);
    return id;
}

tensor_id build_vector(struct builder *b, const char *name,
                       enum param_group group, struct dim n, uint64_t full)
{
    return build_param(
        b, &(struct param){
               .name = name, .group = group, .rows = n, .full_elems = full });
}

tensor_id build_bias(struct builder *b, const char *of, enum param_group group,
                     struct dim n, uint64_t full)
{
    return build_param(b, &(struct param){ .name = "bias",
                                           .of = of,
                                           .group = group,
                                           .rows = n,
                                           .full_elems = full });
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
    op->place = PLACE_NEW;
    op->region = b->region;
    op->core_attention = b->core_attention;
    op->checkpointed = op->outside = false;
    op->keep_in = kind == OP_SOFTMAX || kind == OP_LOG_SOFTMAX
                      ? (uint32_t)b->run->softmax_input
                      : 0;
    op->keep_out = op->sum_in = 0;
    op->back_bytes = op->stash_bytes = 0;
    op->stash_input = false;
    op->renames = op->returns = false;
    op->flop_full = op->flop_causal = 0;
    op->group = COMM_TP;
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
