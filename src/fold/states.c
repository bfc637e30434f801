/*
 * Sums weight tensors into what an engine keeps of them. Owns the optimizers'
 * state sizes and the rules by which tensors are cut into shards. Knows
 * nothing of time: which of it is alive when is engine.c's.
 */
#include "fold/states.h"

#include "data/constants.h"

#include "base/banned.h"

enum sharding run_sharding(const struct run *run)
{
    if (run->shard <= 1)
        return SHARDING_NONE;
    switch (run->engine) {
    case ENGINE_DDP: return SHARDING_NONE;
    case ENGINE_DEEPSPEED:
        return run->zero == 0
                   ? run_is_bf16_pipeline(run) ? SHARDING_FLAT : SHARDING_NONE
               : run->zero == 3 ? SHARDING_TENSOR
                                : SHARDING_FLAT;
    case ENGINE_FSDP: return run->zero == 0 ? SHARDING_NONE : SHARDING_TENSOR;
    case ENGINE_FSDP2: return run->zero == 0 ? SHARDING_NONE : SHARDING_ROWS;
    case ENGINE_MEGATRON: return run->zero == 0 ? SHARDING_NONE : SHARDING_FLAT;
    case ENGINE_MEGATRON_FSDP: return SHARDING_TENSOR;
    case ENGINE_COUNT: break;
    }
    return SHARDING_NONE;
}

bool run_shards_weights(const struct run *run)
{
    const enum sharding s = run_sharding(run);
    return s == SHARDING_TENSOR || s == SHARDING_ROWS;
}

uint64_t run_second_parts(const struct run *run)
{
    return run_zero_is(run, 3) && run->hpz_partition_size > 1
               ? run->shard / run->hpz_partition_size
               : 0;
}

enum dtype run_layer_dtype(const struct run *run)
{
    return run_is_fsdp(run) && !run->prec.autocast ? run->prec.compute
                                                   : run->prec.param;
}

/* 8-bit moments in blocks with one fp32 constant each; small tensors stay in
 * fp32 (bitsandbytes). */
static uint64_t moment_8bit(uint64_t n)
{
    if (n < BNB_MIN_8BIT_ELEMS)
        return 4 * n;
    return n + 4 * div_up(n, BNB_BLOCK_ELEMS);
}

/* Where blocks come out even, else as the weights are; each has a code table
 * of its own (torchao/optim/adam.py, _new_buffer; subclass_4bit.py, zeros). */
static uint64_t moment_4bit(const struct run *run, uint64_t n)
{
    const enum dtype dtype =
        run->prec.master == DT_NONE ? run->prec.param : run->prec.master;
    if (n < BNB_MIN_8BIT_ELEMS || n % AO_4BIT_BLOCK_ELEMS != 0)
        return n * dtype_size(dtype);
    return n / 2 + 4 * (n / AO_4BIT_BLOCK_ELEMS) + AO_4BIT_CODE_BYTES;
}

/* The Trainer tells bitsandbytes that moments of nn.Embedding are fp32
 * (transformers/trainer.py, create_optimizer). */
static bool has_fp32_moments(const struct run *run, const struct tensor *t)
{
    return run->embedding_states == EMBEDDING_STATES_FP32
           && (t->group == PG_EMBED || t->group == PG_POSITION);
}

/* Of a paged moment the driver does not move small tensors and the blocks'
 * constants, which are plain tensors (optim/optimizer.py, get_state_buffer,
 * init_state). */
static uint64_t moment_paged(const struct run *run, const struct tensor *t,
                             uint64_t n)
{
    if (!run_pages(run) || n < BNB_MIN_PAGED_ELEMS)
        return 0;
    const bool fp32 =
        run->optimizer == OPT_PAGED_ADAMW || has_fp32_moments(run, t);
    return fp32 ? 4 * n : n;
}

static uint64_t moment_bnb(const struct run *run, const struct tensor *t,
                           uint64_t n)
{
    const bool fp32 =
        run->optimizer == OPT_PAGED_ADAMW || has_fp32_moments(run, t);
    return (fp32 ? 4 * n : moment_8bit(n)) - moment_paged(run, t, n);
}

/* Two moments of low rank on the long side, and the projection. */
static uint64_t moments_projected(const struct run *run, const struct tensor *t,
                                  uint64_t size)
{
    const uint64_t n = projected_elems(run, t);
    const uint64_t moment =
        run->optimizer == OPT_GALORE8BIT ? moment_8bit(n) : n * size;
    return 2 * moment + projection_elems(run, t) * update_size(run);
}

/* PEFT makes adapters in a type of their own; its copies of modules that are
 * trained in full have the frozen weights' (peft/utils/other.py,
 * ModulesToSaveWrapper). Engines that flatten gradients, or keep a master copy,
 * have one type for all. */
static bool is_whole(const struct run *run, const struct tensor *t)
{
    return run->lora_full != 0 && t->group != PG_ADAPTER
           && (run->engine == ENGINE_DDP || run_zero_is(run, 0))
           && run->prec.master == DT_NONE && t->dtype != run->prec.param;
}

uint64_t states_mixed_bytes(const struct block_states *s)
{
    return s->whole_bytes == 0 ? 0 : s->whole_bytes + s->adapter_bytes;
}

/* Of a moment: as the weights that it belongs to, unless a key says. */
static enum dtype moment_dtype(const struct run *run, const struct tensor *t)
{
    return is_whole(run, t) && !run->given[KEY_OPTIMIZER_DTYPE]
               ? t->dtype
               : run->prec.optim;
}

/* A row and a column of second moments, of tensors of more dimensions one for
 * each matrix that the last two make (transformers/optimization.py,
 * Adafactor.step). Flat shards have none to factor. */
static uint64_t moments_factored(const struct run *run, const struct tensor *t,
                                 uint64_t rows, uint64_t cols)
{
    const uint64_t n = rows * cols;
    const enum sharding sharding = run_sharding(run);
    if (sharding == SHARDING_FLAT || sharding == SHARDING_TENSOR)
        return n;
    if (t->last[1] != 0)
        return n / t->last[0] + n / t->last[1];
    return t->cols > 1 && t->rows > 1 ? rows + cols : n;
}

uint64_t optimizer_bytes(const struct run *run, const struct tensor *t,
                         uint64_t rows, uint64_t cols)
{
    const uint64_t n = rows * cols;
    const uint64_t size = dtype_size(moment_dtype(run, t));
    const bool hidden_matrix = t->matmul && t->group != PG_HEAD;
    switch (run->optimizer) {
    case OPT_ADAMW:
    case OPT_LAMB: return 2 * n * size;
    case OPT_ADAM8BIT:
    case OPT_PAGED_ADAM8BIT:
    case OPT_PAGED_ADAMW: return 2 * moment_bnb(run, t, n);
    case OPT_ADAM4BIT: return 2 * moment_4bit(run, n);
    case OPT_LION8BIT: return moment_bnb(run, t, n);
    case OPT_MOMENTUM:
    case OPT_LION:
    case OPT_ADAGRAD:
    case OPT_RMSPROP: return n * size;
    case OPT_ADAFACTOR: return 4 * moments_factored(run, t, rows, cols);
    case OPT_MUON: /* momentum for hidden matrices, AdamW for the rest */
        return hidden_matrix ? n * size : 2 * n * size;
    case OPT_GALORE:
    case OPT_APOLLO:
    case OPT_GALORE8BIT:
        if (t->projected)
            return moments_projected(run, t, size);
        return 2
               * (run->optimizer == OPT_GALORE8BIT ? moment_8bit(n) : n * size);
    case OPT_SGD:
    case OPT_NONE:
    case OPTIMIZER_COUNT: break;
    }
    return 0;
}

const char *optimizer_rule(enum optimizer o)
{
    switch (o) {
    case OPT_ADAMW:
    case OPT_PAGED_ADAMW:
    case OPT_LAMB: return "two moments";
    case OPT_ADAM8BIT:
    case OPT_PAGED_ADAM8BIT:
        return "two 8-bit moments, an fp32 constant per 256 elements";
    case OPT_ADAM4BIT:
        return "two 4-bit moments, an fp32 constant per 128 elements";
    case OPT_LION8BIT:
        return "one 8-bit moment, an fp32 constant per 256 elements";
    case OPT_MOMENTUM:
    case OPT_LION:
    case OPT_ADAGRAD:
    case OPT_RMSPROP: return "one moment";
    case OPT_ADAFACTOR:
        return "a row and a column of second moments per matrix";
    case OPT_MUON: return "one moment for matrices, two for the rest";
    case OPT_GALORE:
    case OPT_APOLLO:
        return "two moments of low rank and a projection per matrix";
    case OPT_GALORE8BIT:
        return "two 8-bit moments of low rank and a projection per matrix";
    case OPT_SGD:
    case OPT_NONE:
    case OPTIMIZER_COUNT: break;
    }
    return "none";
}

/* This rank's share of one tensor, padding included: the worst rank. */
static void shard_shape(const struct run *run, const struct tensor *t,
                        uint64_t *rows, uint64_t *cols)
{
    const uint64_t n = tensor_is_expert(t) ? run->expert_shard : run->shard;
    *rows = t->rows;
    *cols = t->cols;
    switch (run_sharding(run)) {
    case SHARDING_NONE:
    case SHARDING_FLAT: return;
    case SHARDING_TENSOR:
        *rows = div_up(t->elems, n);
        *cols = 1;
        return;
    case SHARDING_ROWS: {
        const uint64_t slab = max_u64(t->slab, 1);
        *rows = div_up(t->rows / slab, n) * slab;
        return;
    }
    }
}

uint64_t states_own_elems(const struct run *run, const struct tensor *t)
{
    uint64_t rows, cols;
    shard_shape(run, t, &rows, &cols);
    return rows * cols;
}

/* Elements of all ranks' shards, as FSDP 2 gathers and reduces them: each has as
 * much as the first (_fsdp_param.py, _init_sharded_param; _fsdp_collectives.py,
 * _get_dim0_padded_size). */
static uint64_t cut_elems(const struct run *run, const struct tensor *t)
{
    if (run_sharding(run) != SHARDING_ROWS || t->bytes < t->elems)
        return t->elems; /* packed ones are cut as bytes */
    return states_own_elems(run, t)
           * (tensor_is_expert(t) ? run->expert_shard : run->shard);
}

/* Whether a tensor's moments have a table of codes. */
static bool has_codes(const struct run *run, const struct tensor *t)
{
    if (!run_has_8bit_moments(run) && run->optimizer != OPT_GALORE8BIT)
        return false;
    const uint64_t n = t->projected ? projected_elems(run, t) : t->elems;
    return n >= BNB_MIN_8BIT_ELEMS
           && (run->optimizer == OPT_GALORE8BIT || !has_fp32_moments(run, t));
}

static void add_trained(struct block_states *s, const struct tensor *t,
                        const struct run *run)
{
    uint64_t rows, cols;
    shard_shape(run, t, &rows, &cols);
    const uint64_t whole = optimizer_bytes(run, t, t->rows, t->cols);
    s->elems += t->elems;
    s->own_elems += rows * cols;
    s->cut_elems += cut_elems(run, t);
    s->expert_cut_elems += tensor_is_expert(t) ? cut_elems(run, t) : 0;
    if (t->dropped) { /* under FSDP alone: no optimizer sees it */
        s->own_dropped += rows * cols;
        s->dropped += t->elems;
        s->dense_elems += t->elems;
        return;
    }
    s->tensors++;
    s->largest_own = max_u64(s->largest_own, rows * cols);
    s->low_elems += t->low ? t->elems : 0;
    const bool coded = has_codes(run, t);
    s->coded += coded;
    s->own_coded_elems += coded && !t->projected ? rows * cols : 0;
    if (is_whole(run, t))
        s->whole_bytes += t->bytes;
    else if (t->group == PG_ADAPTER)
        s->adapter_bytes += t->bytes;
    s->largest_trained_bytes = max_u64(s->largest_trained_bytes, t->bytes);
    if (t->elems > run->persistence_threshold)
        s->second_elems += rows * cols * run_second_parts(run);
    s->own_moment_bytes += rows == t->rows && cols == t->cols
                               ? whole
                               : optimizer_bytes(run, t, rows, cols);
    const uint64_t paged = 2 * moment_paged(run, t, rows * cols);
    s->paged_bytes += paged;
    s->moment_bytes += whole;
    if (tensor_is_expert(t)) {
        s->expert_elems += t->elems;
        s->expert_paged_bytes += paged;
        s->expert_coded_elems += coded && !t->projected ? rows * cols : 0;
    } else {
        s->dense_elems += t->elems;
        s->dense_moment_bytes += whole;
    }
}

/* bitsandbytes' stay whole on each rank; torchao's NF4Tensor, torchtune's, is
 * cut with its scales (torchao/dtypes/nf4tensor.py, nf4_split). */
static uint64_t own_statistic(const struct run *run, uint64_t bytes)
{
    return run->impl == IMPL_TORCHTUNE && run_shards_weights(run)
               ? div_up(bytes, run->shard)
               : bytes;
}

/* Of a weight at rest: a frozen part's is stored as the trained ones are, and
 * what no gradient comes to; what lies under adapters in a type of its own. */
enum dtype states_frozen_dtype(const struct run *run, const struct tensor *t)
{
    if (run_adapts(run))
        return t->dtype;
    return run->stops || t->in_vain ? run->prec.param : t->dtype;
}

/* torchao's float8 linears are cast before FSDP2 gathers them
 * (torchao/float8/fsdp_utils.py, fsdp_pre_all_gather); torchtitan leaves the
 * head as it is, and asks for it where weights are sharded by dp, not by cp
 * alone (torchtitan/components/quantization/float8.py). */
static uint64_t gathered_bytes(const struct run *run, const struct tensor *t)
{
    const bool eight = run->fp8_params && run->engine == ENGINE_FSDP2
                       && run->shard > run->cp && t->matmul
                       && t->group != PG_HEAD && t->group != PG_ROUTER
                       && t->group != PG_EXPERT;
    if (t->low) /* by ZeRO-3 (partition_parameters.py, get_allgather_dtype) */
        return t->elems * dtype_size(run->prec.compute);
    const uint64_t elems = cut_elems(run, t);
    return eight               ? elems
           : elems == t->elems ? t->bytes
                               : dtype_bytes_of(t->dtype, elems);
}

/* A frozen weight that is nowhere but in Transformer Engine's 8 bits. */
static bool is_in_eight_bits(const struct tensor *t, const struct run *run)
{
    return t->fp8 && run->fp8_params && run->impl == IMPL_MEGATRON;
}

/* Tensors that ZeRO-3 fetches ahead in one gather, so far. */
struct fetch {
    uint64_t elems, tensors;
};

/* It ends with the tensor that fills the bucket; of several a flat buffer is
 * made, one alone is gathered where it will be (partitioned_param_coordinator.py,
 * fetch_sub_module; partition_parameters.py, all_gather_coalesced). */
static void add_fetched(struct block_states *s, struct fetch *f,
                        const struct tensor *t, const struct run *run)
{
    if (t->elems <= run->persistence_threshold)
        return;
    f->elems += t->elems;
    f->tensors++;
    if (f->tensors > 1)
        s->fetched = max_u64(s->fetched, f->elems);
    if (f->elems >= run->prefetch_bucket)
        *f = (struct fetch){ 0, 0 };
}

void states_of_block(struct block_states *s, const struct program *p,
                     const struct block *block, const struct run *run,
                     bool counts_tied)
{
    struct fetch together = { 0, 0 };
    *s = (struct block_states){ 0 };
    const struct tensor *t;
    for (tensor_id id = block->weights; id != TENSOR_NONE; id = t->next) {
        t = &p->tensor[id];
        if (t->role == ROLE_BUFFER) {
            if (!t->graphed || run->graph_step == STEP_EAGER)
                s->buffer_bytes += t->bytes;
            continue;
        }
        if (t->statistic) { /* of no engine's concern: stays as it is */
            s->frozen_bytes += t->bytes;
            s->own_frozen_bytes += own_statistic(run, t->bytes);
            s->statistic_bytes += t->bytes;
            continue;
        }
        s->ties = s->ties || t->tied;
        add_fetched(s, &together, t, run);
        if (t->elems > s->largest) {
            s->largest = t->elems;
            s->largest_bytes = t->bytes;
        }
        if (t->trainable) {
            s->grad_elems += t->elems;
            s->part_bytes += t->grad_copies > 1 ? t->bytes : 0;
            s->largest_grad = max_u64(s->largest_grad, t->elems);
        }
        if ((t->tied && !counts_tied) || t->again)
            continue;
        s->bytes += gathered_bytes(run, t);
        s->stored_bytes += t->bytes;
        if (t->apart)
            s->apart_bytes += gathered_bytes(run, t);
        if (tensor_is_expert(t))
            s->expert_bytes += t->bytes;
        if (t->trainable || run_shards_weights(run)) {
            s->sent_bytes += gathered_bytes(run, t);
            s->expert_sent_bytes +=
                tensor_is_expert(t) ? gathered_bytes(run, t) : 0;
        }
        if (t->fp8) {
            s->fp8_elems += t->elems;
            s->fp8_scale_bytes += t->fp8_scale_bytes;
        }
        if (t->elems <= run->persistence_threshold)
            s->persistent_elems += t->elems;
        if (t->trainable) {
            add_trained(s, t, run);
        } else if (!is_in_eight_bits(t, run)) {
            uint64_t rows, cols;
            shard_shape(run, t, &rows, &cols);
            const enum dtype dtype = states_frozen_dtype(run, t);
            s->frozen_elems += t->elems;
            s->frozen_bytes += dtype_bytes_of(dtype, t->elems);
            if (dtype == run->base_dtype) {
                s->packed_elems += t->elems;
                s->packed_bytes += dtype_bytes_of(dtype, t->elems);
            }
            s->own_frozen_bytes += dtype_bytes_of(dtype, rows * cols);
        }
    }
    if (s->largest != 0)
        s->width = s->largest_bytes / s->largest;
    if (update_loops(run))
        update_loop_of(&s->loop, p, block, run, counts_tied);
}
