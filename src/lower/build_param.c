/*
 * Owns weights: in which type each is stored, which are trained beside
 * adapters and frozen parts, and what lies beside those that are. Refuses to
 * know which weights a model has (lowerings do).
 */
#include "lower/build_private.h"

#include "base/banned.h"

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
    const bool policy =
        r->precision == PREC_BF16_MIXED || r->precision == PREC_FP16_MIXED;
    return run_is_fsdp(r) && r->zero != 0 && policy ? b->compute
                                                    : r->lora_dtype;
}

bool build_is_packed(const struct builder *b, enum param_group group)
{
    const enum family family = b->spec->family;
    const bool apart =
        group == PG_EXPERT
            ? family == FAM_GROK
            : group != PG_ROUTER || family == FAM_GROK || family == FAM_DBRX;
    return dtype_is_quantised(b->run->base_dtype) && group != PG_HEAD
           && (apart || !run_keeps_experts(b->run));
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
    const bool head = q->group == PG_HEAD && !run_is_litgpt(b->run);
    const bool stays = dtype_is_quantised(b->run->base_dtype)
                       && (q->group == PG_EXPERT || q->group == PG_ROUTER)
                       && !build_is_packed(b, q->group);
    if (stays)
        return b->param;
    if (q->matmul && !head && !q->bare && b->run->base_dtype != DT_NONE)
        return b->run->base_dtype;
    /* Linear4bit casts its bias to the type it computes in, for good */
    if (q->of_linear && q->group != PG_HEAD
        && dtype_is_quantised(b->run->base_dtype))
        return b->compute;
    /* trl casts words and head back (peft_module_casting_to_bf16) */
    const bool ends = q->group == PG_HEAD || q->group == PG_EMBED;
    return ends && b->run->kbit_cast == KBIT_CAST_NORMS ? b->compute : b->param;
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

/* Experts' weights are one tensor of three dimensions in transformers, biases of
 * two; Megatron has tensors of each. */
static void stack_copies(const struct builder *b, const struct param *q,
                         struct tensor *t)
{
    const bool stacked = run_is_hf(b->run) && !q->flat;
    if (stacked)
        t->slab = q->rows.n;
    if (q->cols.n != 0 && !q->flat) {
        t->last[0] = q->rows.n;
        t->last[1] = q->cols.n;
    } else if (stacked) {
        t->last[0] = q->copies;
        t->last[1] = q->rows.n;
    }
}

tensor_id build_param(struct builder *b, const struct param *q)
{
    struct shape shape = SHAPE(q->rows);
    if (q->cols.n != 0)
        shape = SHAPE(q->rows, q->cols);
    const tensor_id id = build_tensor(b, q->name, param_dtype(b, q), &shape);
    struct tensor *t = &b->p->tensor[id];
    t->role = ROLE_PARAM;
    build_rests(b, id);
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
    t->of_experts = q->of_experts;
    t->low = q->words && b->whole->tied && build_sends_low(b); /* the head's */
    t->rows = q->rows.n;
    t->cols = at_least_one(q->cols.n);
    t->last[0] = q->last[0];
    t->last[1] = q->last[1];
    if (q->copies > 1) {
        stack_copies(b, q, t);
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
