/*
 * What is cut adds up: over all ranks of any layout, weights, gradients,
 * moments and master weights are those of the model as one GPU has it, each
 * tensor as often as the layout copies it, and the padding of the cut, by its
 * rule. And more shards, or a higher ZeRO stage, hold more of nothing but of
 * buffers that are named here. MEMPLAN_PROPERTY_RUNS asks for more setups.
 *
 * What is expected is counted here, from the parameters of the same model at
 * tp, pp, ep and dp of 1: not from the sums of the fold that is tested.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "memplan/memplan.h"

#include "plan/report_data.h"

#include "trials.h"

enum { CHOICES = 24, TEXT_MAX = 1024 };
struct trial {
    const char *model;
    struct choice c[CHOICES];
};

/* Sizes that few numbers of ranks divide. */
static const char odd[] =
    "{\"model_type\": \"decoder\", \"num_hidden_layers\": 6,"
    "\"hidden_size\": 560, \"num_attention_heads\": 8,"
    "\"intermediate_size\": 1496, \"vocab_size\": 32004}";

/* The first layers without experts; one shared. */
static const char routed[] =
    "{\"model_type\": \"decoder\", \"num_hidden_layers\": 6,"
    "\"hidden_size\": 560, \"num_attention_heads\": 8,"
    "\"intermediate_size\": 1496, \"vocab_size\": 32000,"
    "\"num_experts\": 8, \"num_experts_per_tok\": 2,"
    "\"moe_intermediate_size\": 136, \"n_shared_experts\": 1,"
    "\"first_k_dense_replace\": 2}";

static void set(struct trial *t, const char *key, const char *value)
{
    for (size_t i = 0; i < CHOICES; i++) {
        if (t->c[i].key != NULL && strcmp(t->c[i].key, key) != 0)
            continue;
        t->c[i] = (struct choice){ key, value };
        return;
    }
    fail_msg("no room for %s", key);
}

static uint64_t value_of(const struct trial *t, const char *key)
{
    for (size_t i = 0; i < CHOICES; i++)
        if (t->c[i].key != NULL && strcmp(t->c[i].key, key) == 0)
            return t->c[i].value == NULL ? 1 : strtoul(t->c[i].value, NULL, 10);
    return 1;
}

static const char *describe(const struct trial *t)
{
    static char text[TEXT_MAX];
    size_t n = (size_t)snprintf(text, sizeof text, "%s",
                                t->model == odd      ? "odd"
                                : t->model == routed ? "routed"
                                                     : t->model);
    for (size_t i = 0; i < CHOICES && n < sizeof text; i++)
        if (t->c[i].value != NULL)
            n += (size_t)snprintf(text + n, sizeof text - n, " %s=%s",
                                  t->c[i].key, t->c[i].value);
    return text;
}

/* NULL where it is refused, which is an answer too. */
static memplan_report *estimate(const struct trial *t)
{
    memplan_model *model = NULL;
    memplan_setup *setup = NULL;
    memplan_report *report = NULL;
    assert_int_equal(t->model[0] == '{'
                         ? memplan_model_parse(&model, t->model,
                                               strlen(t->model), "inline", NULL,
                                               NULL)
                         : memplan_model_builtin(&model, t->model, NULL, NULL),
                     MEMPLAN_OK);
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    assert_int_equal(memplan_setup_set(setup, "fast", "true", NULL),
                     MEMPLAN_OK);
    for (size_t i = 0; i < CHOICES; i++)
        if (t->c[i].value != NULL)
            assert_int_equal(
                memplan_setup_set(setup, t->c[i].key, t->c[i].value, NULL),
                MEMPLAN_OK);
    const memplan_status st =
        memplan_estimate(&report, model, setup, NULL, NULL);
    if (st != MEMPLAN_OK)
        assert_true(st == MEMPLAN_E_CONFLICT || st == MEMPLAN_E_UNSUPPORTED);
    memplan_setup_free(setup);
    memplan_model_free(model);
    return report;
}

/* ---- random setups ---- */

static const char *model_of(uint64_t *s)
{
    return PICK(s, "llama-3-8b", "gpt2", "qwen2.5-0.5b", "mixtral-8x7b",
                "deepseek-v2-lite", "qwen1.5-moe-a2.7b", odd, odd, routed,
                routed);
}

static bool has_experts(const char *model)
{
    return model == routed || strstr(model, "mixtral") != NULL
           || strstr(model, "deepseek") != NULL || strstr(model, "moe") != NULL;
}

/* Stages that differ, of the models that have so many layers. */
static const char *stages_of(const char *model, uint64_t *s)
{
    if (model == odd || model == routed)
        return PICK(s, "1,5", "4,2", "3,3");
    if (strcmp(model, "gpt2") == 0)
        return PICK(s, "5,7", "8,4");
    if (strcmp(model, "deepseek-v2-lite") == 0)
        return PICK(s, "13,14", "15,12");
    return strcmp(model, "llama-3-8b") == 0 ? PICK(s, "15,17", "20,12") : NULL;
}

static void megatron(struct trial *t, uint64_t *s)
{
    const bool fsdp = next(s) % 5 == 0;
    const char *pp = fsdp ? "1" : PICK(s, "1", "2", "2", "3");
    /* 27 layers do not make six chunks that are alike: left out */
    const bool alike = strcmp(t->model, "deepseek-v2-lite") != 0;
    const bool chunks = alike && pp[0] == '2' && next(s) % 3 == 0;
    const char *uneven = stages_of(t->model, s);
    set(t, "framework", "megatron");
    set(t, "engine", fsdp ? "megatron-fsdp" : "megatron");
    set(t, "gpus", PICK(s, "8", "24", "48", "96"));
    set(t, "tp", PICK(s, "1", "2", "4"));
    set(t, "pp", pp);
    set(t, "vpp", chunks ? "3" : "1");
    if (pp[0] == '2' && !chunks)
        set(t, "pipeline_layers", uneven);
    set(t, "cp", PICK(s, "1", "1", "2"));
    if (has_experts(t->model)) {
        set(t, "ep", PICK(s, "1", "2", "4"));
        set(t, "etp", PICK(s, "1", "2"));
    }
    set(t, "zero", fsdp ? "3" : PICK(s, "0", "1", "1"));
    /* Megatron-FSDP's groups of ranks with experts are left out: of how many
       each is cut over is not known for sure */
    if (!fsdp || !has_experts(t->model))
        set(t, "shard_degree", next(s) % 4 == 0 ? PICK(s, "2", "3") : NULL);
    set(t, "vocab_multiple", PICK(s, "16", "1024"));
    set(t, "precision", PICK(s, "bf16-mixed", "bf16-mixed", "fp32"));
    set(t, "optimizer", PICK(s, "adamw", "momentum", "sgd"));
}

static void megatron_deepspeed(struct trial *t, uint64_t *s)
{
    const char *pp = PICK(s, "1", "2");
    set(t, "framework", "megatron-deepspeed");
    set(t, "gpus", PICK(s, "8", "24"));
    set(t, "tp", PICK(s, "1", "2", "4"));
    set(t, "pp", pp);
    if (pp[0] == '2')
        set(t, "pipeline_layers", stages_of(t->model, s));
    set(t, "zero", PICK(s, "0", "1", "2", "3"));
    set(t, "vocab_multiple", "1024");
    set(t, "precision", PICK(s, "bf16-mixed", "fp16-mixed"));
    set(t, "attention", "eager");
}

static void deepspeed(struct trial *t, uint64_t *s)
{
    set(t, "framework", "deepspeed");
    set(t, "gpus", PICK(s, "1", "2", "3", "7", "8", "48"));
    set(t, "zero", PICK(s, "0", "1", "2", "3"));
    set(t, "precision",
        PICK(s, "bf16-mixed", "fp16-mixed", "fp32", "bf16", "bf16-amp"));
    set(t, "optimizer", PICK(s, "adamw", "adamw", "lion", "momentum", "sgd"));
}

static void fsdp(struct trial *t, uint64_t *s)
{
    set(t, "framework", "fsdp");
    set(t, "engine", PICK(s, "fsdp", "fsdp2"));
    set(t, "gpus", PICK(s, "2", "6", "8", "48"));
    set(t, "zero", PICK(s, "2", "3"));
    set(t, "shard_degree", next(s) % 3 == 0 ? PICK(s, "2", "3", "6") : NULL);
    set(t, "precision", PICK(s, "bf16-mixed", "fp32", "bf16"));
    set(t, "optimizer", PICK(s, "adamw", "adafactor", "sgd", "muon"));
}

static void torchtitan(struct trial *t, uint64_t *s)
{
    const char *pp = PICK(s, "1", "2");
    set(t, "framework", "torchtitan");
    set(t, "gpus", PICK(s, "8", "24", "48"));
    set(t, "tp", PICK(s, "1", "2", "4"));
    set(t, "pp", pp);
    if (pp[0] == '2')
        set(t, "pipeline_layers", stages_of(t->model, s));
    set(t, "cp", PICK(s, "1", "2"));
    set(t, "attention", "sdpa");
    set(t, "zero", PICK(s, "2", "3"));
    set(t, "shard_degree", next(s) % 3 == 0 ? PICK(s, "2", "3", "4") : NULL);
    set(t, "precision", PICK(s, "bf16-mixed", "fp32"));
    set(t, "optimizer_impl", PICK(s, "fused", "foreach"));
}

static void ddp(struct trial *t, uint64_t *s)
{
    set(t, "framework", "hf");
    set(t, "gpus", PICK(s, "1", "2", "3", "8"));
    set(t, "precision", PICK(s, "bf16-amp", "fp32", "bf16"));
    set(t, "optimizer", PICK(s, "adamw", "adafactor", "sgd", "muon"));
}

enum { FAMILIES = 8 };

static struct trial trial_of(uint64_t seed)
{
    static void (*const family[FAMILIES])(struct trial *, uint64_t *) = {
        megatron, megatron,   megatron, deepspeed,
        fsdp,     torchtitan, ddp,      megatron_deepspeed
    };
    uint64_t s = seed;
    struct trial t = { .model = model_of(&s) };
    set(&t, "seq_len", "256");
    family[seed % FAMILIES](&t, &s);
    return t;
}

/* ---- what is expected ---- */

/* One GPU, which has the whole model, its vocabulary padded alike. */
static struct trial alone(const struct trial *t)
{
    static const char *const ones[] = { "gpus", "tp", "pp", "vpp",
                                        "cp",   "ep", "etp" };
    static const char *const unset[] = { "shard_degree", "pipeline_layers",
                                         "engine" };
    struct trial one = *t;
    for (size_t i = 0; i < CHOICES; i++) {
        for (size_t k = 0; k < sizeof ones / sizeof ones[0]; k++)
            if (one.c[i].value != NULL && strcmp(one.c[i].key, ones[k]) == 0)
                one.c[i].value = "1";
        for (size_t k = 0; k < sizeof unset / sizeof unset[0]; k++)
            if (one.c[i].value != NULL && strcmp(one.c[i].key, unset[k]) == 0)
                one.c[i].value = NULL;
    }
    return one;
}

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
                 what, is, should, (int64_t)(is - should), describe(t));
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
};

static uint64_t up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

/* Ranks over which a tensor's states are cut. Megatron's
 * parallel_state.py: experts' are tp cp dp / (ep etp) ranks, in as many
 * instances as the dense ones'; FSDP: in a hybrid no more than its group. */
static uint64_t shards_of(const struct run *run, bool expert)
{
    const uint64_t dense = run->dp * run->cp;
    const uint64_t all = run->tp * dense / (run->ep * run->etp);
    if (!expert || run->shard == 1)
        return run->shard;
    if (run->engine == ENGINE_MEGATRON)
        return all / (dense / run->shard) == 0 ? 1 : all / (dense / run->shard);
    return all < run->shard || run->shard == dense ? all : run->shard;
}

/* Of n elements, as rows x cols. The rules of the papers and of PyTorch:
 * docs/method.md, eq. optimizers. */
static uint64_t moments_of(const struct run *run, const struct tensor *t,
                           uint64_t rows, uint64_t cols)
{
    const uint64_t size = dtype_size(run->prec.optim);
    const bool matrix = t->rows > 1 && t->cols > 1;
    switch (run->optimizer) {
    case OPT_ADAMW: return 2 * rows * cols * size;
    case OPT_MOMENTUM:
    case OPT_LION: return rows * cols * size;
    case OPT_SGD: return 0;
    case OPT_ADAFACTOR: /* fp32, whatever the weights are */
        return 4 * (matrix && cols > 1 ? rows + cols : rows * cols);
    case OPT_MUON:
        return (t->matmul && t->group != PG_HEAD ? 1 : 2) * rows * cols * size;
    case OPT_ADAM8BIT:
    case OPT_PAGED_ADAM8BIT:
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
    /* experts by rank, and inside by what etp cuts */
    const uint64_t across = !columns ? 1 : expert ? run->etp : parts;
    uint64_t rows = t->rows / (parts / across), cols = t->cols / across;
    check(t->name, elems * parts, t->elems, c->trial);
    check(t->name, rows * cols, elems, c->trial);
    check(t->name, c->ranks % (parts * n), 0, c->trial);
    c->tensors++;
    c->elems += t->elems;
    c->whole += t->elems * (c->ranks / parts);
    c->cut_up += t->elems * (c->ranks / (parts * n));
    c->rounded += c->ranks * up(elems * dtype_size(run->prec.grad), 512);
    c->part[expert] += elems;
    c->moments[expert] += moments_of(run, t, rows, cols);
    if (c->cut == CUT_TENSOR) {
        rows = up(elems, n) / n;
        cols = 1;
    } else if (c->cut == CUT_ROWS) {
        rows = up(rows, n) / n;
    }
    c->padding += c->ranks * rows * cols - c->ranks / n * elems;
    c->own_moments += c->ranks * moments_of(run, t, rows, cols);
}

static void count_block(struct count_of_stage *c, const struct program *p,
                        uint32_t block, bool has_table)
{
    const struct block *b = &p->block[block];
    for (uint32_t i = 0; i < b->tensor_count; i++) {
        const struct tensor *t = &p->tensor[b->tensor_first + i];
        /* a head without the table that it is tied to has a copy */
        if (t->role == ROLE_PARAM && !(t->tied && has_table))
            count_tensor(c, t);
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

static struct held expected(const struct count_of_stage *c)
{
    const struct run *run = c->run;
    const bool ones = c->cut == CUT_TENSOR || c->cut == CUT_ROWS;
    const uint64_t own =
        c->cut_up + (c->cut == CUT_FLAT ? flat_padding(c) : c->padding);
    return (struct held){
        (ones ? own : c->whole) * dtype_size(run->prec.param),
        expected_grads(c),
        (c->cut == CUT_NONE ? c->whole : own) * dtype_size(run->prec.master),
        expected_moments(c),
    };
}

static struct held held_by(const struct stage_result *s, uint64_t ranks)
{
    const uint64_t *b = s->rest.bytes;
    const uint64_t weights = b[TERM_WEIGHTS] + b[TERM_FROZEN];
    const uint64_t grads =
        s->model_states - weights - b[TERM_MASTER] - b[TERM_MOMENTS];
    return (struct held){ weights * ranks, grads * ranks,
                          b[TERM_MASTER] * ranks, b[TERM_MOMENTS] * ranks };
}

/* A stage's layer of the whole model. Chunks of the interleaved schedule are as
 * long as one another, and pp chunks apart (Megatron's
 * get_transformer_layer_offset). */
static uint64_t layer_of(const struct run *run, const struct stage_result *s,
                         uint64_t l)
{
    if (run->vpp == 1)
        return s->first_layer + l;
    const uint64_t each = s->layers / run->vpp;
    return (l / each * run->pp + s->index) * each + l % each;
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
                                .ranks = run->tp * run->cp * run->dp };
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
    const uint64_t multiple = value_of(t, "vocab_multiple");
    uint64_t layers = 0, elems = 0, should = one->params.total;
    const bool tied = one->params.group[PG_HEAD] == 0;
    for (uint64_t k = 0; k < r->memory.n_stages; k++) {
        const struct stage_result *s = &r->memory.stage[k];
        elems += count_stage(r, p, s, t).elems;
        check("first layer", s->first_layer, layer_of(&r->run, s, 0), t);
        if (r->run.vpp == 1)
            check("first layer", s->first_layer, layers, t);
        layers += s->layers;
    }
    check("layers", layers, p->layers, t);
    should += words_padding(one, embed, multiple);
    if (!tied || r->run.pp > 1)
        should += words_padding(one, head, multiple);
    if (tied && r->run.pp > 1)
        should += one->spec.vocab * one->spec.hidden;
    check("elements of all stages", elems, should, t);
}

static void check_states(const memplan_report *r, const memplan_report *one,
                         const struct trial *t)
{
    check_elements(r, one, t);
    for (uint64_t k = 0; k < r->memory.n_stages; k++) {
        const struct stage_result *s = &r->memory.stage[k];
        const struct count_of_stage c = count_stage(r, &one->program, s, t);
        const struct held is = held_by(s, c.ranks), should = expected(&c);
        check("weights", is.weights, should.weights, t);
        check("master weights", is.master, should.master, t);
        check("moments", is.moments, should.moments, t);
        check("gradients", is.grads, should.grads, t);
    }
}

static void test_states_add_up(void **state)
{
    (void)state;
    uint64_t answered = 0, by[FAMILIES] = { 0 };
    for (uint64_t i = 0; i < runs(); i++) {
        const struct trial t = trial_of(i), first = alone(&t);
        memplan_report *r = estimate(&t);
        memplan_report *one = r == NULL ? NULL : estimate(&first);
        if (one != NULL) {
            check_states(r, one, &t);
            answered++;
            by[i % FAMILIES]++;
        }
        memplan_report_free(r);
        memplan_report_free(one);
    }
    assert_true(answered > runs() / 3);
    for (unsigned k = 0; k < FAMILIES; k++)
        assert_true(by[k] > runs() / FAMILIES / 8);
}

/* ---- more shards, higher stages ---- */

/* Adafactor under FSDP 1 is left out: a shard of a flat parameter has no rows
 * and columns to factor, so that two ranks hold a second moment of each element
 * where one held a row and a column of it, and that is as it is. */
static struct trial chain_of(uint64_t seed)
{
    struct trial t = trial_of(seed);
    for (size_t i = 0; i < CHOICES; i++)
        if (t.c[i].value != NULL && strcmp(t.c[i].value, "adafactor") == 0)
            t.c[i].value = "adamw";
    return t;
}

/* Bytes of the peak in terms that may rise. */
static uint64_t named(const struct moment *m, const enum term *terms, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += m->bytes[terms[i]];
    return sum;
}

/* What a chain of values may raise. */
struct rises {
    const enum term *term;
    size_t n;
    bool peak; /* else of states alone */
};

/* Of fp32 weights ZeRO-1 to -3 clone a partition, which stage 0 has not
 * (stage_1_and_2.py, single_partition_of_fp32_groups; stage3.py,
 * fp32_partitioned_groups_flat). */
static uint64_t fp32_partition(const struct stage_result *a,
                               const struct stage_result *b)
{
    return a->rest.bytes[TERM_MASTER] == 0 ? b->rest.bytes[TERM_MASTER] : 0;
}

static void check_less(const memplan_report *before, const memplan_report *r,
                       const struct rises *may, const struct trial *t)
{
    for (uint64_t k = 0; k < r->memory.n_stages; k++) {
        const struct stage_result *a = &before->memory.stage[k];
        const struct stage_result *b = &r->memory.stage[k];
        const uint64_t copy = fp32_partition(a, b);
        const uint64_t some = named(&b->peak, may->term, may->n) + copy;
        if (b->model_states > a->model_states + copy)
            fail_msg("states rise from %" PRIu64 " to %" PRIu64 ": %s",
                     a->model_states, b->model_states, describe(t));
        if (may->peak && b->peak.total - some > a->peak.total)
            fail_msg("the peak rises from %" PRIu64 " to %" PRIu64
                     " beside buffers: %s",
                     a->peak.total, b->peak.total - some, describe(t));
    }
}

/* Sets a key to one value after the other; `scales`: so many GPUs as that
 * times `gpus`. True when two were answered. */
static bool check_chain(struct trial *t, const char *key,
                        const char *const *values, uint64_t gpus,
                        const struct rises *may)
{
    memplan_report *before = NULL;
    unsigned answered = 0;
    for (; *values != NULL; values++) {
        char text[24];
        set(t, key, *values);
        if (gpus != 0) {
            (void)snprintf(text, sizeof text, "%" PRIu64,
                           gpus * strtoul(*values, NULL, 10));
            set(t, "gpus", text);
        }
        memplan_report *r = estimate(t);
        if (r == NULL)
            continue;
        if (before != NULL)
            check_less(before, r, may, t);
        memplan_report_free(before);
        before = r;
        answered++;
    }
    memplan_report_free(before);
    return answered > 1;
}

#define VALUES(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define COUNT_OF(x) (sizeof(x) / sizeof((x)[0]))

static const char *number(uint64_t n, char *text)
{
    (void)snprintf(text, 24, "%" PRIu64, n);
    return text;
}

/* From one rank to two there are DDP's buckets, a second copy of gradients that
 * one rank needs not. */
static void test_more_ranks_never_more(void **state)
{
    (void)state;
    static const enum term buffers[] = { TERM_BUCKETS };
    const struct rises may = { buffers, COUNT_OF(buffers), true };
    unsigned answered = 0;
    for (uint64_t i = 0; i < runs() / 10; i++) {
        struct trial t = chain_of(i);
        set(&t, "shard_degree", NULL);
        const uint64_t one =
            value_of(&t, "tp") * value_of(&t, "pp") * value_of(&t, "cp");
        answered +=
            check_chain(&t, "dp", VALUES("1", "2", "4", "8", "16"), one, &may);
    }
    assert_true(answered > runs() / 30);
}

/* Of so many ranks, in larger groups that share states: nothing may rise. */
static void test_larger_groups_never_more(void **state)
{
    (void)state;
    const struct rises may = { NULL, 0, true };
    unsigned answered = 0;
    for (uint64_t i = 0; i < runs() / 10; i++) {
        struct trial t = chain_of(i);
        char text[24];
        const uint64_t one =
            value_of(&t, "tp") * value_of(&t, "pp") * value_of(&t, "cp");
        set(&t, "gpus", number(16 * one, text));
        answered += check_chain(&t, "shard_degree",
                                VALUES("1", "2", "4", "8", "16"), 0, &may);
    }
    assert_true(answered > runs() / 60);
}

/* With as many data-parallel ranks and, in Megatron and torchtitan, sequence
 * parallelism: states alone, for replicated activations are not its matter.
 * Experts are as whole as ep 1 leaves them. */
static void test_tensor_ranks_never_more_states(void **state)
{
    (void)state;
    const struct rises may = { NULL, 0, false };
    unsigned answered = 0;
    for (uint64_t i = 0; i < runs() / 10; i++) {
        struct trial t = chain_of(i);
        const uint64_t dp = i % 2 == 0 ? 4 : 6;
        set(&t, "ep", NULL);
        set(&t, "etp", NULL);
        set(&t, "shard_degree", NULL);
        set(&t, "vocab_multiple", "1024");
        answered +=
            check_chain(&t, "tp", VALUES("1", "2", "4", "8"),
                        dp * value_of(&t, "pp") * value_of(&t, "cp"), &may);
    }
    assert_true(answered > runs() / 60);
}

/* To each stage from the one below may rise:
 * 1: the flat copy that gradients are reduced in, and the rank's partition of
 *    gradients, which are there beside all gradients, that stage 0 has too;
 * 2: what a bucket sends, in the type of the wire: with a bucket that has room
 *    for all, a copy as large as the gradients of stage 1 (fp32 under autocast);
 * 3: the permanent bucket, which stages 1 and 2 make in backward, and tensors
 *    below the persistence threshold, whole beside their shards; what is
 *    gathered to be used, and fetched ahead.
 * Under FSDP stage 2 shards gradients and states, and has whole weights from
 * forward to backward; stage 3 gathers them again. */
static const struct rises stage_rises[] = {
    { NULL, 0, true },
    { (const enum term[]){ TERM_BUCKETS, TERM_GRAD_SHARDS }, 2, true },
    { (const enum term[]){ TERM_REDUCE_TMP }, 1, true },
    { (const enum term[]){ TERM_BUCKETS, TERM_GATHERED }, 2, true },
};

static void test_higher_stages_never_more(void **state)
{
    (void)state;
    unsigned answered[4] = { 0 };
    static const char *const zero[] = { "0", "1", "2", "3" };
    for (uint64_t i = 0; i < runs() / 6; i++) {
        uint64_t s = i;
        struct trial t = chain_of(i);
        set(&t, "micro_batch", PICK(&s, "1", "4"));
        set(&t, "grad_accum", PICK(&s, "1", "4"));
        set(&t, "recompute", PICK(&s, "none", "full"));
        for (unsigned z = 1; z < 4; z++)
            answered[z] += check_chain(&t, "zero", VALUES(zero[z - 1], zero[z]),
                                       0, &stage_rises[z]);
    }
    for (unsigned z = 1; z < 4; z++)
        assert_true(answered[z] > runs() / 60);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states_add_up),
        cmocka_unit_test(test_more_ranks_never_more),
        cmocka_unit_test(test_larger_groups_never_more),
        cmocka_unit_test(test_tensor_ranks_never_more_states),
        cmocka_unit_test(test_higher_stages_never_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
