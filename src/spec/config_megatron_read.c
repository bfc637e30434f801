/*
 * Owns what Megatron-LM's flags mean together: stages, batches, who holds the
 * states, recomputation, kernels. [megatron/training/arguments.py, core_v0.16]
 */
#include "spec/config_hf.h"
#include "spec/config_megatron.h"

#include "base/count.h"
#include "base/unit.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

/* ---- values of flags ---- */

static bool has(const struct config *c, const char *flag)
{
    return config_at(c, flag) != NULL;
}

/* True as a flag, or as YAML says it. */
static bool is_word(const struct config *c, const char *flag, const char *word)
{
    const struct json *v = config_at(c, flag);
    return v != NULL && v->kind == JSON_STRING && str_is(v->text, word);
}

/* 0 when absent or no number. */
static uint64_t number(const struct config *c, const char *flag)
{
    const struct json *v = config_at(c, flag);
    uint64_t n = 0;
    if (v != NULL && v->kind == JSON_NUMBER && v->number >= 0
        && v->number < UINT32_MAX)
        return (uint64_t)v->number;
    if (v != NULL && v->kind == JSON_STRING
        && unit_parse_count(v->text, &n) == UNIT_OK && n < UINT32_MAX)
        return n;
    return 0;
}

/* Of a flag that has no setup key to complain. */
static uint64_t count(struct config *c, const char *flag)
{
    const struct json *v = config_at(c, flag);
    const uint64_t n = number(c, flag);
    char shown[CONFIG_PATH_MAX];
    if (v == NULL || n > 0)
        return n;
    memplan_error *e =
        config_bad(c, v, MEMPLAN_E_ARG, "'%s' takes a whole number",
                   config_shown(c, flag, shown));
    diag_hint(e, "write the number itself");
    return 0;
}

static void set_count(struct config *c, const char *flag, enum setup_key key,
                      uint64_t n)
{
    char text[UNIT_TEXT_MAX];
    str_format(text, sizeof(text), "%" PRIu64, n);
    config_set(c, config_at(c, flag), key, text);
}

/* ---- layout ---- */

enum { LAYOUT_MAX = 4096 };

/* "Et*3|(tt|)*6mL", multiplied out; false when it does not read so. */
struct layout {
    struct str in;
    size_t at;
    char out[LAYOUT_MAX];
    size_t n;
};

static uint64_t layout_times(struct layout *l)
{
    uint64_t times = 0;
    if (l->at >= l->in.n || l->in.p[l->at] != '*')
        return 1;
    for (l->at++; l->at < l->in.n && l->in.p[l->at] >= '0'
                  && l->in.p[l->at] <= '9' && times < LAYOUT_MAX;
         l->at++)
        times = times * 10 + (uint64_t)(l->in.p[l->at] - '0');
    return times;
}

/* Repeats what was written from `begin` on. */
static bool layout_repeat(struct layout *l, size_t begin)
{
    const size_t one = l->n - begin;
    const uint64_t times = layout_times(l);
    if (times == 0 || one * times > LAYOUT_MAX - begin)
        return false;
    for (uint64_t i = 1; i < times; i++)
        memcpy(l->out + begin + i * one, l->out + begin, one);
    l->n = begin + one * times;
    return true;
}

static bool layout_spread(struct layout *l)
{
    size_t open = LAYOUT_MAX; /* no parenthesis */
    while (l->at < l->in.n) {
        const char byte = l->in.p[l->at++];
        size_t begin = l->n;
        if (byte == '(') {
            if (open != LAYOUT_MAX)
                return false; /* Megatron has no nested ones */
            open = l->n;
            continue;
        }
        if (byte == ')') {
            if (open == LAYOUT_MAX)
                return false;
            begin = open;
            open = LAYOUT_MAX;
        } else if (l->n < LAYOUT_MAX && memchr("EtmL|", byte, 5) != NULL) {
            l->out[l->n++] = byte;
        } else {
            return false;
        }
        if (!layout_repeat(l, begin))
            return false;
    }
    return open == LAYOUT_MAX;
}

static void set_stages(struct config *c, const char *flag,
                       const uint64_t *stage, uint64_t pp)
{
    char text[LAYOUT_MAX] = "";
    for (uint64_t i = 0; i < pp; i++)
        str_append(text, sizeof(text), i > 0 ? ",%" PRIu64 : "%" PRIu64,
                   stage[i]);
    config_set(c, config_at(c, flag), KEY_PIPELINE_LAYERS, text);
}

static void from_layout(struct config *c, uint64_t pp)
{
    static const char flag[] = "pipeline_model_parallel_layout";
    const struct json *value = config_at(c, flag);
    struct layout l = { .in = value->text };
    uint64_t stage[SETUP_LIST_MAX] = { 0 };
    uint64_t chunks = 1;
    bool good = value->kind == JSON_STRING && layout_spread(&l);
    for (size_t i = 0; good && i < l.n; i++) {
        chunks += l.out[i] == '|';
        stage[(chunks - 1) % pp] += l.out[i] == 't';
    }
    if (!good || chunks % pp != 0) {
        memplan_error *e = config_bad(c, value, MEMPLAN_E_ARG,
                                      "a layout that does not read as stages");
        diag_hint(e,
                  "such as 'Et*3|(tt|)*6mL', with a multiple of %" PRIu64
                  " chunks",
                  pp);
        return;
    }
    set_count(c, flag, KEY_VPP, chunks / pp);
    set_stages(c, flag, stage, pp);
}

/* Layers over stages as Megatron's flags have them; embedding and head count as
 * a layer each where they say so. 0 layers: the script leaves them to others. */
struct ends {
    uint64_t layers, all, pp;
    uint64_t first, last; /* layers of the end stages; 0: such as the others */
    bool embedding, loss;
    uint64_t inner, rest; /* the other stages, and their layers */
};

static struct ends ends_of(struct config *c, uint64_t pp)
{
    struct ends x = {
        .layers = count(c, "num_layers"),
        .pp = pp,
        .first = count(c, "decoder_first_pipeline_num_layers"),
        .last = count(c, "decoder_last_pipeline_num_layers"),
        .embedding = has(c, "account_for_embedding_in_pipeline_split"),
        .loss = has(c, "account_for_loss_in_pipeline_split"),
    };
    x.all = x.layers + x.embedding + x.loss;
    x.inner = pp - (x.first > 0) - (x.last > 0);
    x.rest = x.all > x.first + x.last ? x.all - x.first - x.last : 0;
    return x;
}

static const char *ends_flag(const struct ends *x)
{
    return x->first > 0   ? "decoder_first_pipeline_num_layers"
           : x->last > 0  ? "decoder_last_pipeline_num_layers"
           : x->embedding ? "account_for_embedding_in_pipeline_split"
                          : "account_for_loss_in_pipeline_split";
}

/* What remains, and the numbers next to the one end's that leave a multiple. */
static void hint_ends(struct config *c, const struct ends *x, memplan_error *e)
{
    const uint64_t end = x->first + x->last;
    const bool one = (x->first > 0) != (x->last > 0);
    char other[CONFIG_PATH_MAX];
    if (end == 0) {
        diag_hint(e,
                  "%" PRIu64 " with what counts as one do not divide by "
                  "%" PRIu64 ": leave it out, or add "
                  "--decoder-first-pipeline-num-layers",
                  x->all, x->pp);
        return;
    }
    diag_hint(e, "%" PRIu64 " layers remain for %" PRIu64 " stages", x->rest,
              x->inner);
    if (!one || x->inner == 0)
        return;
    uint64_t below = x->all % x->inner > 0 ? x->all % x->inner : x->inner;
    if (below >= x->all)
        return;
    const uint64_t top = min_u64(end, x->all - 1);
    if (top > below)
        below += (top - below) / x->inner * x->inner;
    str_append(e->hint, sizeof(e->hint), ": write %" PRIu64, below);
    if (below < end && below + x->inner < x->all)
        str_append(e->hint, sizeof(e->hint), " or %" PRIu64, below + x->inner);
    str_append(e->hint, sizeof(e->hint), ", or add %s",
               config_shown(c,
                            x->first > 0 ? "decoder_last_pipeline_num_layers"
                                         : "decoder_first_pipeline_num_layers",
                            other));
}

/* Stages with fewer layers at the ends: said so, or because the embedding and
 * the head count as layers there. */
static void from_ends(struct config *c, const struct ends *x)
{
    uint64_t stage[SETUP_LIST_MAX] = { 0 };
    char shown[CONFIG_PATH_MAX], of[CONFIG_PATH_MAX];
    const char *flag = ends_flag(x);
    if ((x->first | x->last) == 0 && !x->embedding && !x->loss)
        return;
    const uint64_t each = x->inner > 0 ? x->rest / x->inner : 0;
    if (x->layers == 0) {
        config_note(c, "%s without %s: stages are even, or --pipeline-layers",
                    config_shown(c, flag, shown),
                    config_shown(c, "num_layers", of));
        return;
    }
    if (each == 0 || each * x->inner != x->rest) {
        hint_ends(c, x,
                  config_bad(c, config_at(c, flag), MEMPLAN_E_CONFLICT,
                             "%" PRIu64 " layers do not split so over "
                             "%" PRIu64 " stages",
                             x->layers, x->pp));
        return;
    }
    for (uint64_t i = 0; i < x->pp; i++)
        stage[i] = each;
    stage[0] = x->first > 0 ? x->first : each - x->embedding;
    stage[x->pp - 1] = x->last > 0 ? x->last : each - x->loss;
    set_stages(c, flag, stage, x->pp);
}

/* Layers of a virtual stage: of the file's layers, or of the model's, which
 * have to be a multiple (arguments.py, validate_args). */
static void virtual_stages(struct config *c, const struct ends *x)
{
    static const char flag[] = "num_layers_per_virtual_pipeline_stage";
    const uint64_t each = count(c, flag);
    char shown[CONFIG_PATH_MAX];
    if (each == 0)
        return;
    if (x->layers == 0)
        c->s->chunk_layers = (uint32_t)each;
    else if (x->all % (x->pp * each) == 0)
        set_count(c, flag, KEY_VPP, x->all / x->pp / each);
    else
        diag_hint(config_bad(c, config_at(c, flag), MEMPLAN_E_CONFLICT,
                             "%s %" PRIu64 " with %" PRIu64
                             " layers over %" PRIu64 " stages",
                             config_shown(c, flag, shown), each, x->all, x->pp),
                  "write a divisor of the layers of a stage");
}

/* Chunks of a stage: the flag has equal ones alone (transformer_config.py,
 * __post_init__). */
static void check_chunks(struct config *c, const struct ends *x,
                         uint64_t chunks)
{
    static const char flag[] = "num_virtual_stages_per_pipeline_rank";
    const uint64_t each = x->inner > 0 ? x->rest / x->inner : 0;
    char shown[CONFIG_PATH_MAX];
    if (x->layers == 0 || each * x->inner != x->rest
        || (each % chunks == 0 && x->first % chunks == 0
            && x->last % chunks == 0))
        return;
    diag_hint(config_bad(c, config_at(c, flag), MEMPLAN_E_CONFLICT,
                         "%s %" PRIu64 " with %" PRIu64 " layers over %" PRIu64
                         " stages",
                         config_shown(c, flag, shown), chunks, x->all, x->pp),
              "write a divisor of the layers of each stage, or "
              "--pipeline-model-parallel-layout");
}

static void pipeline(struct config *c)
{
    const uint64_t pp = number(c, "pipeline_model_parallel_size");
    if (pp <= 1 || pp > SETUP_LIST_MAX)
        return;
    if (has(c, "pipeline_model_parallel_layout")) {
        from_layout(c, pp);
        return;
    }
    const uint64_t chunks = count(c, "num_virtual_stages_per_pipeline_rank");
    const struct ends ends = ends_of(c, pp);
    if (chunks > 0) {
        set_count(c, "num_virtual_stages_per_pipeline_rank", KEY_VPP, chunks);
        check_chunks(c, &ends, chunks);
    } else {
        virtual_stages(c, &ends);
    }
    from_ends(c, &ends);
}

/* ---- number formats, states ---- */

/* A flag; or NeMo's "bf16", "bf16-mixed", Megatron-Bridge's "bf16_mixed". */
static bool is_half(const struct config *c, const char *format)
{
    static const char *const keys[] = { "precision", "mixed_precision" };
    const size_t n = strlen(format);
    for (size_t i = 0; i < 2; i++) {
        const struct json *v = config_at(c, keys[i]);
        if (v != NULL && v->kind == JSON_STRING && v->text.n >= n
            && memcmp(v->text.p, format, n) == 0)
            return true;
    }
    return has(c, format);
}

static void precision(struct config *c)
{
    const bool bf16 = is_half(c, "bf16"), fp16 = is_half(c, "fp16");
    char a[CONFIG_PATH_MAX], b[CONFIG_PATH_MAX];
    if (bf16 && fp16) {
        memplan_error *e =
            config_bad(c, config_at(c, "fp16"), MEMPLAN_E_CONFLICT,
                       "%s and %s are both given", config_shown(c, "bf16", a),
                       config_shown(c, "fp16", b));
        diag_hint(e, "keep one: Megatron refuses both");
        return;
    }
    if (has(c, "fp8_format"))
        config_set(c, config_at(c, "fp8_format"), KEY_PRECISION, "fp8-mixed");
    else
        config_set(c, c->root, KEY_PRECISION,
                   bf16   ? "bf16-mixed"
                   : fp16 ? "fp16-mixed"
                          : "fp32");
    if (has(c, "main_grads_dtype"))
        return;
    if (has(c, "grad_reduce_in_bf16"))
        config_set(c, c->root, KEY_GRAD_DTYPE, "bf16");
    else if (fp16 && !has(c, "accumulate_allreduce_grads_in_fp32"))
        config_set(c, c->root, KEY_GRAD_DTYPE, "fp16");
}

/* Megatron-DeepSpeed: who holds the states is said in a file of DeepSpeed's,
 * often one that the script itself writes. */
static void deepspeed(struct config *c)
{
    const struct json *file = config_at(c, "deepspeed_config");
    config_set(c, config_at(c, "deepspeed"), KEY_FRAMEWORK,
               "megatron-deepspeed");
    if (file != NULL && file->kind == JSON_STRING
        && memchr(file->text.p, '$', file->text.n) == NULL
        && memchr(file->text.p, ' ', file->text.n) == NULL)
        config_goes_on(c, file, "deepspeed");
    else if (file != NULL)
        config_note(c, "which file --deepspeed-config is the script does not "
                       "say: add --deepspeed FILE");
}

static void states(struct config *c)
{
    static const struct {
        const char *strategy, *zero;
    } strategies[] = { { "no_shard", "0" },
                       { "optim", "1" },
                       { "optim_grads", "2" },
                       { "optim_grads_params", "3" } };
    if (has(c, "deepspeed")) {
        deepspeed(c);
        return;
    }
    config_set(c, c->root, KEY_FRAMEWORK, "megatron");
    if (has(c, "use_torch_fsdp2")) {
        config_set(c, c->root, KEY_ENGINE, "fsdp2");
        return;
    }
    if (!has(c, "use_megatron_fsdp") && !has(c, "use_custom_fsdp")) {
        config_set(c, c->root, KEY_ZERO,
                   has(c, "use_distributed_optimizer") ? "1" : "0");
        return;
    }
    config_set(c, c->root, KEY_ENGINE, "megatron-fsdp");
    for (size_t i = 0; i < sizeof(strategies) / sizeof(strategies[0]); i++) {
        if (is_word(c, "data_parallel_sharding_strategy",
                    strategies[i].strategy)
            || (i == 0 && !has(c, "data_parallel_sharding_strategy")))
            config_set(c, c->root, KEY_ZERO, strategies[i].zero);
    }
}

/* The optimizer's shards are copied over so many groups of ranks. */
static void instances(struct config *c)
{
    const uint64_t n = count(c, "num_distributed_optimizer_instances");
    char shown[CONFIG_PATH_MAX];
    if (n > 1)
        config_note(
            c,
            "%s %" PRIu64 ": add --shard-degree, data-parallel ranks over it",
            config_shown(c, "num_distributed_optimizer_instances", shown), n);
    const struct json *a = config_at(c, "exp_avg_dtype");
    const struct json *b = config_at(c, "exp_avg_sq_dtype");
    const struct str fp32 = STR("fp32");
    const struct str first = a != NULL ? a->text : fp32;
    if (b != NULL && !str_eq(first, b->text))
        config_note(c, "%s is not modelled apart from the first moments'",
                    config_shown(c, "exp_avg_sq_dtype", shown));
}

/* ---- layers ---- */

/* Names of the time before selective recomputation: all of each layer. */
static void recompute_before(struct config *c)
{
    static const char block[] = "activations_checkpoint_method";
    static const char *const counts[] = { "checkpoint_num_layers",
                                          "activations_checkpoint_num_layers" };
    if (!has(c, "checkpoint_activations") && !has(c, block)
        && !has(c, "deepspeed_activation_checkpointing"))
        return;
    config_set(c, c->root, KEY_RECOMPUTE, "full");
    for (size_t i = 0; i < 2; i++) {
        const uint64_t n = count(c, counts[i]);
        if (n > 0)
            set_count(c, counts[i],
                      is_word(c, block, "block") ? KEY_RECOMPUTE_LAYERS
                                                 : KEY_RECOMPUTE_GRANULARITY,
                      n);
    }
}

/* "core_attn mlp", "[core_attn, mlp]" as core_attn,mlp. */
static void add_modules(char list[256], struct str rest)
{
    while (rest.n > 0) {
        struct str word = str_cut(rest, ' ', &rest);
        while (word.n > 0 && memchr("[],", word.p[0], 3) != NULL)
            word = (struct str){ word.p + 1, word.n - 1 };
        while (word.n > 0 && memchr("[],", word.p[word.n - 1], 3) != NULL)
            word.n--;
        if (word.n > 0)
            str_append(list, 256, "%s%.*s", list[0] ? "," : "", (int)word.n,
                       word.p);
    }
}

/* NeMo's names of the same. */
static const struct checkpoints {
    const char *granularity, *method, *layers;
} megatrons = { "recompute_granularity", "recompute_method",
                "recompute_num_layers" },
  nemos = { "activations_checkpoint_granularity",
            "activations_checkpoint_method",
            "activations_checkpoint_num_layers" };

static void recompute(struct config *c)
{
    const struct checkpoints *of =
        has(c, nemos.granularity) ? &nemos : &megatrons;
    const struct json *how = config_at(c, of->granularity);
    const uint64_t n = count(c, of->layers);
    char shown[CONFIG_PATH_MAX];
    if (how == NULL) {
        if (has(c, "recompute_activations"))
            config_set(c, c->root, KEY_RECOMPUTE, "selective");
        else
            recompute_before(c);
        return;
    }
    if (is_word(c, of->granularity, "full")) {
        config_set(c, how, KEY_RECOMPUTE, "full");
        if (n > 0)
            set_count(c, of->layers,
                      is_word(c, of->method, "block")
                          ? KEY_RECOMPUTE_LAYERS
                          : KEY_RECOMPUTE_GRANULARITY,
                      n);
        return;
    }
    if (!is_word(c, of->granularity, "selective")) {
        memplan_error *e = config_bad(c, how, MEMPLAN_E_UNKNOWN, "unknown %s",
                                      config_shown(c, of->granularity, shown));
        diag_hint(e, "write full or selective");
        return;
    }
    config_set(c, how, KEY_RECOMPUTE, "selective");
    const struct json *modules = config_at(c, "recompute_modules");
    const bool several = modules != NULL && modules->kind == JSON_ARRAY;
    char list[256] = "";
    const struct json *one = several ? modules->child : modules;
    for (; one != NULL; one = several ? one->next : NULL) {
        if (one->kind == JSON_STRING)
            add_modules(list, one->text);
    }
    if (list[0] != '\0')
        config_set(c, modules, KEY_RECOMPUTE_MODULES, list);
}

/* A flag of its own says so, or NeMo's YAML, which has a number of layers
 * beside `cpu_offloading: False`. */
static void offloading(struct config *c)
{
    static const char flag[] = "cpu_offloading_num_layers";
    static const char *const off[] = { "cpu_offloading",
                                       "cpu_offloading_activations" };
    for (size_t i = 0; i < 2; i++) /* what is false is there, and null */
        if (json_member(c->root, off[i]) != NULL && !config_is_true(c, off[i]))
            return;
    const struct json *v = config_at(c, flag);
    if (v == NULL || is_word(c, flag, "0")
        || (v->kind == JSON_NUMBER && !(v->number > 0)))
        return;
    set_count(c, flag, KEY_CPU_OFFLOADING_NUM_LAYERS, count(c, flag));
}

/* CUBLAS_WORKSPACE_CONFIG=:4096:8, of a script's or YAML's environment. */
static bool says_deterministic(const struct config *c)
{
    static const char name[] = "CUBLAS_WORKSPACE_CONFIG";
    static const char value[] = ":4096:8";
    enum { BETWEEN = 4 }; /* "=", ": ", quotes */
    const size_t n = sizeof(name) - 1, m = sizeof(value) - 1;
    for (size_t i = 0; i + n + m <= c->len; i++) {
        if (memcmp(c->text + i, name, n) != 0)
            continue;
        for (size_t k = 0; k <= BETWEEN && i + n + k + m <= c->len; k++) {
            if (memcmp(c->text + i + n + k, value, m) == 0)
                return true;
        }
    }
    return false;
}

static void kernels(struct config *c)
{
    char shown[CONFIG_PATH_MAX];
    const bool local = is_word(c, "transformer_impl", "local")
                       || is_word(c, "attention_backend", "local");
    if (local)
        config_set(c, c->root, KEY_IMPLEMENTATION, "megatron-local");
    const bool half = is_half(c, "bf16") || is_half(c, "fp16");
    if (is_word(c, "attention_backend", "unfused") || !half
        || (local && !has(c, "use_flash_attn")))
        config_set(c, c->root, KEY_ATTENTION, "eager");
    else
        config_set(c, c->root, KEY_ATTENTION, "flash");
    if (is_word(c, "moe_token_dispatcher_type", "flex"))
        config_note(c,
                    "%s flex: memory is alltoall's, without DeepEP's "
                    "buffers",
                    config_shown(c, "moe_token_dispatcher_type", shown));
    config_set(c, c->root, KEY_ATTENTION_MASK,
               has(c, "no_create_attention_mask_in_dataloader") ? "none"
                                                                : "dataloader");
    if (!has(c, "sequence_parallel"))
        config_set(c, c->root, KEY_SEQUENCE_PARALLEL, "false");
    if (!has(c, "no_gradient_accumulation_fusion"))
        config_set(c, c->root, KEY_GRAD_ACCUM_FUSION, "true");
    if (!has(c, "deterministic_mode"))
        config_set(c, c->root, KEY_DETERMINISTIC,
                   says_deterministic(c) ? "true" : "false");
    if (has(c, "cross_entropy_loss_fusion")
        && !has(c, "cross_entropy_fusion_impl"))
        config_set(c, c->root, KEY_CE_FUSION, "native");
    if (has(c, "num_experts"))
        config_set(c, c->root, KEY_GROUPED_GEMM,
                   has(c, "moe_grouped_gemm") ? "true" : "false");
    if (count(c, "make_vocab_size_divisible_by") > 0) {
        const uint64_t tp = number(c, "tensor_model_parallel_size");
        set_count(c, "make_vocab_size_divisible_by", KEY_VOCAB_MULTIPLE,
                  count(c, "make_vocab_size_divisible_by") * (tp > 0 ? tp : 1));
    }
}

/* Megatron drops 0.1 out everywhere unless told otherwise. */
static void dropout(struct config *c)
{
    static const char *const flags[] = { "hidden_dropout",
                                         "attention_dropout" };
    double p[2] = { 0.1, 0.1 };
    char a[CONFIG_PATH_MAX], b[CONFIG_PATH_MAX];
    for (size_t i = 0; i < 2; i++) {
        const struct json *v = config_at(c, flags[i]);
        if (v != NULL && v->kind == JSON_NUMBER)
            p[i] = v->number;
        else if (v != NULL)
            unit_parse_real(v->text, &p[i]);
    }
    if (p[0] < p[1] || p[0] > p[1]) {
        config_note(c, "%s and %s differ: the model's are used (--dropout)",
                    config_shown(c, flags[0], a), config_shown(c, flags[1], b));
        return;
    }
    char text[UNIT_TEXT_MAX];
    config_set(c, c->root, KEY_DROPOUT, unit_format_double(text, p[0]));
}

/* The trainer's section of NeMo's YAML; -1 devices are those of a node. */
static void nemo_world(struct config *c)
{
    const struct json *devices = config_at(c, "devices");
    const uint64_t each = number(c, "devices");
    const uint64_t nodes = number(c, "num_nodes");
    if (each > 0) {
        set_count(c, "devices", KEY_GPUS_PER_NODE, each);
        set_count(c, "devices", KEY_GPUS, each * (nodes > 0 ? nodes : 1));
    } else if (devices != NULL) {
        c->s->nodes = (uint32_t)(nodes > 0 ? nodes : 1);
        config_note(c, "devices: all GPUs of a node");
    }
}

/* optim.name. Apex's distributed_fused_adam is sharded as Megatron's
 * distributed optimizer. [nemo/core/optim/optimizers.py] */
static void nemo_optimizer(struct config *c)
{
    static const struct {
        const char *name, *optimizer;
        bool sharded;
    } known[] = {
        { "adam", "adamw", false },
        { "adamw", "adamw", false },
        { "fused_adam", "adamw", false },
        { "megatron_fused_adam", "adamw", false },
        { "distributed_fused_adam", "adamw", true },
        { "mcore_distributed_optim", "adamw", true },
        { "adafactor", "adafactor", false },
        { "rmsprop", "rmsprop", false },
        { "adagrad", "adagrad", false },
        { "sgd", "sgd", false },
    };
    const struct json *name = config_at(c, "optim_name");
    if (name == NULL)
        return;
    if (!has(c, "megatron_amp_O2"))
        config_note(c, "without megatron_amp_O2 NeMo keeps fp32 weights under "
                       "autocast: 16-bit ones are assumed");
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (!is_word(c, "optim_name", known[i].name))
            continue;
        config_set(c, name, KEY_OPTIMIZER, known[i].optimizer);
        if (known[i].sharded)
            config_set(c, name, KEY_ZERO, "1");
        return;
    }
    diag_hint(config_bad(c, name, MEMPLAN_E_UNSUPPORTED,
                         "optim.name '%.*s' is not modelled",
                         (int)(name->text.n < 40 ? name->text.n : 40),
                         name->text.p),
              "such as fused_adam, distributed_fused_adam; the key of it here "
              "is --optimizer");
}

void config_megatron_together(struct config *c)
{
    config_world(c);
    nemo_world(c);
    pipeline(c);
    states(c);
    nemo_optimizer(c);
    precision(c);
    instances(c);
    config_clipping(c, "clip_grad");
    recompute(c);
    offloading(c);
    kernels(c);
    dropout(c);
}
