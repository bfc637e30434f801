/*
 * What all ranks of a layout hold of weights, gradients, moments and master
 * weights, counted from the parameters of the same model at tp, pp, ep and dp
 * of 1: not from the sums of the fold that is tested.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "shards.h"

static bool is_named(const char *name, const char *const *names)
{
    for (; name != NULL && *names != NULL; names++)
        if (strcmp(name, *names) == 0)
            return true;
    return false;
}

/* The second of two products that tensor parallelism cuts: by columns, and its
 * bias not at all (Megatron's RowParallelLinear). */
static bool is_row_parallel(const char *name)
{
    return is_named(name, (const char *const[]){
                              "linear_proj", "linear_fc2", "experts.linear_fc2",
                              "dense", "dense_4h_to_h", "wo", "w2", NULL });
}

/* On every rank alike: norms, positions, routers, and what makes latents
 * (megatron/core/transformer: multi_latent_attention.py, "duplicated"). */
static bool is_replicated(const struct tensor *t)
{
    return t->group == PG_NORM || t->group == PG_POSITION
           || t->group == PG_ROUTER || is_row_parallel(t->of)
           || is_named(t->name, (const char *const[]){
                                    "shared_expert_gate", "linear_q_down_proj",
                                    "linear_kv_down_proj", NULL });
}

enum cut { CUT_NONE, CUT_FLAT, CUT_TENSOR, CUT_ROWS };

static enum cut cut_of(const struct run *run)
{
    if (run->shard == 1)
        return CUT_NONE;
    switch (run->engine) {
    case ENGINE_DDP: return CUT_NONE;
    case ENGINE_DEEPSPEED:
        return run->zero == 3  ? CUT_TENSOR
               : run->zero > 0 ? CUT_FLAT
                               : CUT_NONE;
    case ENGINE_FSDP: return CUT_TENSOR;
    case ENGINE_FSDP2: return CUT_ROWS;
    case ENGINE_MEGATRON: return run->zero == 0 ? CUT_NONE : CUT_FLAT;
    case ENGINE_MEGATRON_FSDP: return CUT_TENSOR;
    case ENGINE_COUNT: break;
    }
    return CUT_NONE;
}

static void check(const char *what, uint64_t is, uint64_t should,
                  const struct trial *t)
{
    if (is != should)
        fail_msg("%s: %" PRIu64 " bytes on all ranks, should be %" PRIu64
                 " (%" PRId64 "): %s",
                 what, is, should, (int64_t)(is - should), trial_text(t));
}

/* What all ranks of a stage hold. */
struct held {
    uint64_t weights, grads, master, moments;
};

/* A layout, and sums over tensors of one of its stages. */
struct count_of_stage {
    const struct run *run;
    const struct trial *trial;
    enum cut cut;
    uint64_t ranks;   /* of the stage */
    uint64_t tensors; /* trained */
    uint64_t elems;   /* of the stage's tensors, were they whole */
    /* elements that all ranks have, each as often as it is copied: were
     nothing sharded, and sharded, without padding */
    uint64_t whole, cut_up;
    uint64_t padding;     /* elements, where tensors are cut one by one */
    uint64_t rounded;     /* bytes of whole gradients, in the allocator's
                            blocks of 512 */
    uint64_t part[2];     /* of one rank's: dense, expert elements */
    uint64_t moments[2];  /* ... their moments' bytes, unsharded */
    uint64_t own_moments; /* bytes on all ranks, where cut one by one */
    uint64_t whole_bytes; /* of `whole` weights */
    uint64_t pinned;      /* bytes of shards on all ranks, each tensor's rounded
                           up as pinned memory is */
    uint64_t frozen;      /* bytes on all ranks */
    uint64_t second;      /* ... of those that hpZ has a second shard of */
};

/* Of DualPipe two ranks of the pipeline hold each stage. */
static uint64_t copies_of(const struct run *run)
{
    return run->schedule == SCHED_DUALPIPE && run->pp > 1 ? 2 : 1;
}

static bool is_offloaded(const struct run *run)
{
    return run->offload_optimizer != OFFLOAD_NONE
           || run->offload_params != OFFLOAD_NONE;
}

/* PyTorch's pinned memory (CachingHostAllocator). */
static uint64_t power_of_two(uint64_t n)
{
    uint64_t p = 1;
    while (p < n)
        p *= 2;
    return n == 0 ? 0 : p;
}

static uint64_t up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

/* Ranks over which a tensor's states are cut. Megatron's
 * parallel_state.py: experts' are tp cp dp / (ep etp) ranks, in as many
 * instances as the dense ones', Megatron-FSDP's too; FSDP: in a hybrid no more
 * than its group. */
static uint64_t shards_of(const struct run *run, bool expert)
{
    const uint64_t dense = run->dp * run->cp * copies_of(run);
    const uint64_t all = run->tp * dense / (run->ep * run->etp);
    if (!expert || run->shard == 1)
        return run->shard;
    if (run->engine == ENGINE_MEGATRON || run->engine == ENGINE_MEGATRON_FSDP)
        return all / (dense / run->shard) == 0 ? 1 : all / (dense / run->shard);
    return all < run->shard || run->shard == dense ? all : run->shard;
}

/* PEFT's copies of modules that are trained in full are as these, where no
 * engine has one type for all (peft/utils/other.py, ModulesToSaveWrapper). */
static uint64_t weight_size(const struct run *run, const struct tensor *t)
{
    const bool loose = run->engine == ENGINE_DDP
                       || (run->engine == ENGINE_DEEPSPEED && run->zero == 0);
    const bool own = loose && run->lora_full != 0 && t->group != PG_ADAPTER
                     && run->prec.master == DT_NONE;
    return dtype_size(own ? t->dtype : run->prec.param);
}

/* Of n elements, as rows x cols. The rules of the papers and of PyTorch:
 * docs/method.md, eq. optimizers. */
static uint64_t moments_of(const struct run *run, const struct tensor *t,
                           uint64_t rows, uint64_t cols)
{
    const bool mixed = weight_size(run, t) != dtype_size(run->prec.param);
    const uint64_t size =
        mixed ? weight_size(run, t) : dtype_size(run->prec.optim);
    const bool matrix = t->rows > 1 && t->cols > 1;
    const uint64_t *last = t->last;
    switch (run->optimizer) {
    case OPT_ADAMW: return 2 * rows * cols * size;
    case OPT_MOMENTUM:
    case OPT_LION: return rows * cols * size;
    case OPT_SGD: return 0;
    case OPT_ADAFACTOR: /* fp32, whatever the weights are */
        if (last[0] != 0 && cols > 1)
            return 4 * (rows * cols / last[0] + rows * cols / last[1]);
        return 4 * (matrix && cols > 1 ? rows + cols : rows * cols);
    case OPT_MUON:
        return (t->matmul && t->group != PG_HEAD ? 1 : 2) * rows * cols * size;
    case OPT_ADAM8BIT:
    case OPT_PAGED_ADAM8BIT:
    case OPT_PAGED_ADAMW:
    case OPT_LION8BIT:
    case OPT_ADAM4BIT:
    case OPT_ADAGRAD:
    case OPT_RMSPROP:
    case OPT_LAMB:
    case OPT_GALORE:
    case OPT_GALORE8BIT:
    case OPT_APOLLO:
    case OPT_NONE:
    case OPTIMIZER_COUNT: break;
    }
    fail_msg("no such optimizer in the trials");
    return 0;
}

/* Of so many rows; experts that are one tensor are cut between experts. */
static uint64_t rows_of(const struct tensor *t, uint64_t rows, uint64_t n)
{
    const uint64_t slab = t->slab == 0 ? 1 : t->slab;
    return up(rows / slab, n) / n * slab;
}

/* A rank's share of n elements that are cut one tensor at a time. */
static uint64_t share_of(const struct count_of_stage *c, const struct tensor *t,
                         uint64_t n)
{
    switch (c->cut) {
    case CUT_NONE:
    case CUT_FLAT: break;
    case CUT_TENSOR: return up(t->elems, n) / n;
    case CUT_ROWS: return rows_of(t, t->rows, n) * t->cols;
    }
    return t->elems;
}

/* What no optimizer sees, in a type of its own; tables of scales are on every
 * rank (bitsandbytes). */
static void count_frozen(struct count_of_stage *c, const struct tensor *t)
{
    const bool second = c->run->hpz_partition_size > 1 && c->run->zero == 3;
    if (t->statistic) {
        c->frozen += c->ranks * t->bytes;
        return;
    }
    const uint64_t n = shards_of(c->run, t->group == PG_EXPERT);
    const uint64_t bytes =
        c->ranks * dtype_bytes_of(t->dtype, share_of(c, t, n));
    c->elems += t->elems;
    c->frozen += bytes;
    if (second)
        c->second += bytes * (c->run->shard / c->run->hpz_partition_size);
}

static void count_tensor(struct count_of_stage *c, const struct tensor *t)
{
    const struct run *run = c->run;
    const bool expert = t->group == PG_EXPERT;
    const uint64_t parts = expert             ? run->ep * run->etp
                           : is_replicated(t) ? 1
                                              : run->tp;
    const uint64_t n = shards_of(run, expert);
    const uint64_t elems = t->elems / parts;
    const bool columns = is_row_parallel(t->name);
    const bool mixed = weight_size(run, t) != dtype_size(run->prec.param);
    const uint64_t grad_size =
        mixed ? weight_size(run, t) : dtype_size(run->prec.grad);
    /* experts by rank, and inside by what etp cuts */
    const uint64_t across = !columns ? 1 : expert ? run->etp : parts;
    uint64_t rows = t->rows / (parts / across), cols = t->cols / across;
    check(t->name, elems * parts, t->elems, c->trial);
    check(t->name, rows * cols, elems, c->trial);
    check(t->name, c->ranks % (parts * n), 0, c->trial);
    c->tensors++;
    c->elems += t->elems;
    c->whole += t->elems * (c->ranks / parts);
    c->whole_bytes += t->elems * (c->ranks / parts) * weight_size(run, t);
    c->cut_up += t->elems * (c->ranks / (parts * n));
    c->rounded += c->ranks * up(elems * grad_size, 512);
    c->part[expert] += elems;
    c->moments[expert] += moments_of(run, t, rows, cols);
    if (c->cut == CUT_TENSOR) {
        rows = up(elems, n) / n;
        cols = 1;
    } else if (c->cut == CUT_ROWS) {
        rows = rows_of(t, rows, n);
    }
    c->padding += c->ranks * rows * cols - c->ranks / n * elems;
    c->pinned +=
        c->ranks * power_of_two(rows * cols * dtype_size(run->prec.param));
    c->own_moments += c->ranks * moments_of(run, t, rows, cols);
}

static void count_block(struct count_of_stage *c, const struct program *p,
                        uint32_t block, bool has_table)
{
    const struct block *b = &p->block[block];
    for (uint32_t i = 0; i < b->tensor_count; i++) {
        const struct tensor *t = &p->tensor[b->tensor_first + i];
        /* a head without the table that it is tied to has a copy */
        if (t->role != ROLE_PARAM || t->again || (t->tied && has_table))
            continue;
        if (t->trainable)
            count_tensor(c, t);
        else
            count_frozen(c, t);
    }
}

/* Elements that padding the end of a flat buffer adds, over all ranks:
 * DeepSpeed's to twice the ranks (stage_1_and_2.py,
 * nccl_start_alignment_factor), Megatron's to what an even cut needs; that it
 * aligns its buffers' ends to 64 and 128 elements is not modelled. */
static uint64_t flat_padding(const struct count_of_stage *c)
{
    const uint64_t q = c->run->engine == ENGINE_DEEPSPEED ? 2 : 1;
    uint64_t sum = 0;
    for (unsigned expert = 0; expert < 2; expert++) {
        const uint64_t n = shards_of(c->run, expert != 0);
        const uint64_t part = c->part[expert];
        sum += c->ranks / n * (up(part, n * q) - part);
    }
    return sum;
}

/* Scalars of each trained tensor, in blocks of 512 bytes: the step's number of
 * torch's fused Adam, the root mean square of transformers' Adafactor. */
static uint64_t scalars(const struct count_of_stage *c)
{
    const struct run *run = c->run;
    const bool torch = run->engine == ENGINE_DDP || run->engine == ENGINE_FSDP
                       || run->engine == ENGINE_FSDP2;
    const bool counts = torch && run->optimizer == OPT_ADAMW
                        && run->optimizer_impl == OPTIMPL_FUSED;
    if (is_offloaded(run)) /* on the host */
        return 0;
    return counts || run->optimizer == OPT_ADAFACTOR ? 512 * c->tensors : 0;
}

static uint64_t expected_moments(const struct count_of_stage *c)
{
    uint64_t sum = c->ranks * scalars(c);
    switch (c->cut) {
    case CUT_NONE: return sum + c->ranks * (c->moments[0] + c->moments[1]);
    case CUT_TENSOR:
    case CUT_ROWS: return sum + c->own_moments;
    case CUT_FLAT: break;
    }
    for (unsigned expert = 0; expert < 2; expert++) {
        const uint64_t n = shards_of(c->run, expert != 0);
        sum += c->ranks * (up(c->moments[expert], n) / n);
    }
    return sum;
}

static uint64_t expected_grads(const struct count_of_stage *c)
{
    const struct run *run = c->run;
    const uint64_t size = dtype_size(run->prec.grad);
    if (run->engine == ENGINE_MEGATRON)
        return c->whole * size;
    const bool ones = c->cut == CUT_TENSOR || c->cut == CUT_ROWS;
    if (run->zero == 2 && run->engine == ENGINE_DEEPSPEED)
        return (c->cut_up + flat_padding(c)) * size;
    if (ones || (run->zero == 3 && run->engine == ENGINE_DEEPSPEED)
        || run->engine == ENGINE_FSDP || run->engine == ENGINE_FSDP2)
        return (c->cut_up + c->padding) * size;
    return c->rounded;
}

/* Beside the GPU DeepSpeed and Megatron step fp32, whatever the weights are. */
static uint64_t master_size(const struct run *run)
{
    const bool away = run->offload_optimizer != OFFLOAD_NONE
                      && run->engine != ENGINE_FSDP
                      && run->engine != ENGINE_FSDP2;
    return away && run->prec.master == DT_NONE ? 4
                                               : dtype_size(run->prec.master);
}

/* On the host as one flat tensor, pinned whatever the run says; FSDP's one by
 * one; on a disk as they are. */
static uint64_t expected_weights(const struct count_of_stage *c, uint64_t own)
{
    const struct run *run = c->run;
    const bool ones = c->cut == CUT_TENSOR || c->cut == CUT_ROWS;
    const uint64_t size = dtype_size(run->prec.param);
    if (run->offload_params == OFFLOAD_CPU)
        return run->engine == ENGINE_DEEPSPEED
                   ? c->ranks * power_of_two(own / c->ranks * size)
                   : c->pinned;
    return ones || run->offload_params != OFFLOAD_NONE ? own * size
                                                       : c->whole_bytes;
}

static struct held expected(const struct count_of_stage *c)
{
    const struct run *run = c->run;
    const uint64_t own =
        c->cut_up + (c->cut == CUT_FLAT ? flat_padding(c) : c->padding);
    return (struct held){
        expected_weights(c, own) + c->frozen,
        expected_grads(c),
        (c->cut == CUT_NONE ? c->whole : own) * master_size(run),
        expected_moments(c),
    };
}

/* Of a rank, under these names. */
static uint64_t beside(const memplan_report *r, const char *label)
{
    const struct offload_result *o = &r->memory.offload;
    uint64_t sum = 0;
    for (size_t i = 0; i < o->n; i++)
        if (o->row[i].kind <= OFFLOAD_ON_DISK
            && strcmp(o->row[i].label, label) == 0)
            sum += o->row[i].bytes;
    return sum;
}

/* On the GPU, and beside it. */
static struct held held_by(const memplan_report *r,
                           const struct stage_result *s, uint64_t ranks)
{
    const uint64_t *b = s->rest.bytes;
    const uint64_t weights = b[TERM_WEIGHTS] + b[TERM_FROZEN];
    const uint64_t grads = s->model_states - weights - b[TERM_SECOND]
                           - b[TERM_MASTER] - b[TERM_MOMENTS];
    const uint64_t flat =
        r->run.offload_params == OFFLOAD_CPU ? beside(r, "weights, flat") : 0;
    return (struct held){
        (weights + flat + beside(r, "weights") + beside(r, "weight shards"))
            * ranks,
        grads * ranks,
        (b[TERM_MASTER] + beside(r, "master weights")) * ranks,
        (b[TERM_MOMENTS] + beside(r, "optimizer moments")) * ranks,
    };
}

/* Layers before a pipeline rank's. */
static uint64_t layers_before(const struct run *run, uint64_t rank)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < rank; i++)
        sum += run->stage_layers[i];
    return sum;
}

static uint64_t chunk_length(const struct run *run, uint64_t stage,
                             uint64_t chunk)
{
    const uint64_t n = run->stage_layers[stage];
    return n / run->vpp + (chunk < n % run->vpp ? 1 : 0);
}

/* Behind a chunk comes the next stage's, and behind the last stage's the first
 * one's next (Megatron's PipelineParallelLayerLayout.get_layer_offset). */
static uint64_t interleaved(const struct run *run, uint64_t stage, uint64_t l)
{
    uint64_t before = 0;
    for (uint64_t c = 0; c < run->vpp; c++) {
        for (uint64_t k = 0; k < run->pp; k++) {
            const uint64_t n = chunk_length(run, k, c);
            if (k == stage && l < n)
                return before + l;
            l -= k == stage ? n : 0;
            before += n;
        }
    }
    return UINT64_MAX;
}

/* A rank's layer of the whole model. DualPipe's chunks are stages r and p - 1 - r
 * (dualpipe.py); a V's the r-th of 2 p pieces and the last but r. */
static uint64_t layer_of(const struct run *run, const struct stage_result *s,
                         uint64_t l)
{
    const uint64_t last = run->pp - 1;
    if (copies_of(run) > 1) {
        const uint64_t low =
            s->index < last - s->index ? s->index : last - s->index;
        const uint64_t n = run->stage_layers[low];
        return l < n ? layers_before(run, low) + l
                     : layers_before(run, last - low) + l - n;
    }
    if (run_folds(run)) {
        const uint64_t half = s->layers / 2;
        const uint64_t piece = l < half ? s->index : 2 * run->pp - 1 - s->index;
        return piece * half + l % half;
    }
    return run->vpp == 1 ? s->first_layer + l : interleaved(run, s->index, l);
}

static struct count_of_stage count_stage(const memplan_report *r,
                                         const struct program *whole,
                                         const struct stage_result *s,
                                         const struct trial *t)
{
    const struct run *run = &r->run;
    struct count_of_stage c = { .run = run,
                                .trial = t,
                                .cut = cut_of(run),
                                .ranks = run->tp * run->cp * run->dp
                                         * copies_of(run) };
    if (s->has_embedding)
        count_block(&c, whole, whole->embed, false);
    for (uint64_t l = 0; l < s->layers; l++)
        count_block(&c, whole, whole->layer_block[layer_of(run, s, l)], false);
    if (s->has_head)
        count_block(&c, whole, whole->head, s->has_embedding);
    return c;
}

/* Rows of words that a multiple adds (Megatron's _vocab_size_with_padding),
 * to each table of a stage. */
static uint64_t words_padding(const memplan_report *one, const struct block *b,
                              uint64_t multiple)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < b->tensor_count; i++) {
        const struct tensor *t = &one->program.tensor[b->tensor_first + i];
        if (t->role == ROLE_PARAM && t->words)
            sum += (up(one->spec.vocab, multiple) - one->spec.vocab) * t->cols;
    }
    return sum;
}

/* Each layer is on one stage, and the elements of all stages are the model's
 * parameters: with words that are padded, and a second table where a tied head
 * is on another stage than the table. */
static void check_elements(const memplan_report *r, const memplan_report *one,
                           const struct trial *t)
{
    const struct program *p = &one->program;
    const struct block *embed = &p->block[p->embed], *head = &p->block[p->head];
    const uint64_t multiple = trial_number(t, "vocab_multiple");
    uint64_t layers = 0, elems = 0, should = one->params.total;
    const bool tied = one->params.group[PG_HEAD] == 0;
    const uint64_t copies = copies_of(&r->run);
    const bool apart = r->run.pp > 1 && copies == 1 && !run_folds(&r->run);
    for (uint64_t k = 0; k < r->memory.n_stages; k++) {
        const struct stage_result *s = &r->memory.stage[k];
        elems += count_stage(r, p, s, t).elems;
        check("first layer", s->first_layer, layer_of(&r->run, s, 0), t);
        if (r->run.vpp == 1 && s->low_layers == s->layers)
            check("first layer", s->first_layer, layers, t);
        layers += s->layers;
    }
    check("layers", layers, copies * p->layers, t);
    should += words_padding(one, embed, multiple);
    if (!tied || apart)
        should += words_padding(one, head, multiple);
    if (tied && apart)
        should += one->spec.vocab * one->spec.hidden;
    check("elements of all stages", elems, copies * should, t);
}

void check_states(const memplan_report *r, const memplan_report *one,
                  const struct trial *t)
{
    const struct run *run = &r->run;
    const bool nvme = run->offload_optimizer == OFFLOAD_NVME;
    check_elements(r, one, t);
    for (uint64_t k = 0; k < r->memory.n_stages; k++) {
        const struct stage_result *s = &r->memory.stage[k];
        const struct count_of_stage c = count_stage(r, &one->program, s, t);
        const struct held is = held_by(r, s, c.ranks), should = expected(&c);
        check("weights", is.weights, should.weights, t);
        check("second shards", s->rest.bytes[TERM_SECOND] * c.ranks, c.second,
              t);
        if (nvme) { /* in files together, but for small ones */
            const uint64_t both =
                beside(r, "master weights and optimizer moments")
                + beside(r, "states of sub-groups within 1 MiB");
            check("states on disk", both * c.ranks,
                  should.master + should.moments, t);
            continue;
        }
        check("master weights", is.master, should.master, t);
        check("moments", is.moments, should.moments, t);
        if (!is_offloaded(run))
            check("gradients", is.grads, should.grads, t);
    }
}
