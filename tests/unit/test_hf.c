/*
 * The Hugging Face lowering against what transformers really keeps: bytes a
 * layer, shared by layers and outside them, of every family and setting that
 * the oracle measured (tests/golden/oracle/, tests/oracle/), and parameter
 * counts of published models.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>

#include "fold/fold.h"
#include "fold/walk.h"
#include "lower/hf.h"
#include "json/json.h"

#include "base/banned.h"

#ifndef MEMPLAN_SOURCE_DIR
#define MEMPLAN_SOURCE_DIR "."
#endif
#define GOLDEN_DIR MEMPLAN_SOURCE_DIR "/tests/golden/oracle"
/* of classes whose code comes with the weights
 * (tests/oracle/remote_saved.py) */
#define REMOTE_DIR MEMPLAN_SOURCE_DIR "/tests/golden/remote"
#define MODELS_DIR MEMPLAN_SOURCE_DIR "/models"

/* ---- lowering ---- */

struct fixture {
    struct arena arena;
    struct diag diag;
    memplan_error slot[8];
    memplan_errors errs;
    struct spec spec;
    struct run run;
    struct program program;
    struct builder builder;
};

static void start(struct fixture *f)
{
    memset(f, 0, sizeof(*f));
    arena_init(&f->arena, NULL);
    diag_init(&f->diag, NULL);
}

static void finish(struct fixture *f)
{
    arena_release(&f->arena);
}

static void set_precision(struct run *r, const char *dtype)
{
    const bool bf16 = strcmp(dtype, "bf16") == 0;
    const bool autocast = strcmp(dtype, "autocast") == 0;
    r->prec.param = bf16 ? DT_BF16 : DT_FP32;
    r->prec.compute = bf16 || autocast ? DT_BF16 : DT_FP32;
    r->prec.autocast = autocast;
}

static enum attention attention_of(const char *text)
{
    if (strcmp(text, "eager") == 0)
        return ATTN_EAGER;
    return strcmp(text, "sdpa") == 0 ? ATTN_SDPA : ATTN_FLASH;
}

static void set_run(struct fixture *f, uint64_t b, uint64_t s,
                    const char *dtype, const char *attention, bool dropout)
{
    struct run *r = &f->run;
    r->impl = IMPL_HF;
    r->gpus = r->dp = r->tp = r->pp = r->vpp = r->cp = r->ep = r->etp = 1;
    r->micro_batch = b;
    r->seq_len = s;
    r->vocab = f->spec.vocab;
    r->loss = LOSS_STANDARD;
    r->base_dtype = DT_NONE;
    r->attention = attention_of(attention);
    set_precision(r, dtype);
    if (!dropout)
        return;
    r->hidden_dropout = f->spec.hidden_dropout;
    r->embed_dropout = f->spec.embed_dropout;
    r->attention_dropout = f->spec.attention_dropout;
    r->head_dropout = f->spec.head_dropout;
    r->act_dropout = f->spec.act_dropout;
}

static void lower(struct fixture *f)
{
    struct builder *b = &f->builder;
    build_start(b, &f->program, &f->spec, &f->run, &f->arena, &f->diag);
    lower_hf(b);
    assert_int_equal(build_finish(b), MEMPLAN_OK);
}

static void import(struct fixture *f, const struct json *config,
                   const char *text, size_t len)
{
    const struct spec_text in = {
        .root = config, .text = text, .len = len, .name = "test"
    };
    if (spec_import(&f->spec, &in, &f->arena, &f->diag) != MEMPLAN_OK)
        fail_msg("%.*s", (int)len, text);
}

static void import_text(struct fixture *f, const char *text)
{
    const size_t len = strlen(text);
    const struct json *config = json_parse(&f->arena, text, len, &f->diag);
    assert_non_null(config);
    import(f, config, text, len);
}

/* ---- what is kept ---- */

struct kept {
    uint64_t made; /* by blocks, position ids included */
    uint64_t shared;
};

/* Over distinct storages that the operations of a block keep. */
static struct kept kept_by(const struct program *p, const struct block *block,
                           bool *seen, bool print)
{
    struct kept sum = { 0 };
    for (uint32_t i = 0; i < block->op_count; i++) {
        const struct op *op = &p->op[block->op_first + i];
        tensor_id saved[SAVED_MAX];
        const size_t n = op_saves(p, op, saved);
        for (size_t j = 0; j < n; j++) {
            const tensor_id id = p->tensor[saved[j]].storage;
            const struct tensor *t = &p->tensor[id];
            const bool places =
                t->role == ROLE_INPUT && strcmp(t->name, "position_ids") == 0;
            if (seen[id] || t->role == ROLE_PARAM || t->role == ROLE_BUFFER
                || (t->role == ROLE_INPUT && !places))
                continue;
            seen[id] = true;
            if (t->role == ROLE_SHARED)
                sum.shared += t->bytes;
            else
                sum.made += t->bytes;
            if (print)
                print_message(
                    "  %10llu %s %s: %s.%s\n", (unsigned long long)t->bytes,
                    dtype_name(t->dtype), block->name, op->name, t->name);
        }
    }
    return sum;
}

struct figures {
    uint64_t layer, shared, outside, param_bytes;
};

static uint64_t weights_of(const struct program *p, const struct block *b)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < b->tensor_count; i++) {
        const struct tensor *t = &p->tensor[b->tensor_first + i];
        sum += t->role == ROLE_PARAM && !t->tied ? t->bytes : 0;
    }
    return sum;
}

/* The middle layer: of some models the first is another. */
static struct figures measure(const struct fixture *f, bool print)
{
    const struct program *p = &f->program;
    struct figures r = { 0 };
    bool *seen = calloc(p->n_tensors, sizeof(*seen));
    assert_non_null(seen);
    r.outside = kept_by(p, &p->block[p->embed], seen, print).made;
    const struct block *layer = &p->block[p->layer_block[p->layers / 2]];
    const struct kept kept = kept_by(p, layer, seen, print);
    r.layer = kept.made;
    r.shared = kept.shared;
    r.outside += kept_by(p, &p->block[p->head], seen, print).made;
    free(seen);
    r.param_bytes =
        weights_of(p, &p->block[p->embed]) + weights_of(p, &p->block[p->head]);
    for (uint64_t i = 0; i < p->layers; i++)
        r.param_bytes += weights_of(p, &p->block[p->layer_block[i]]);
    return r;
}

/* ---- golden files ---- */

static char *read_file(struct arena *a, const char *path, size_t *len)
{
    FILE *file = fopen(path, "rb");
    enum { LIMIT = 1 << 20 };
    if (file == NULL)
        return NULL;
    char *text = arena_alloc(a, LIMIT, 1);
    assert_non_null(text);
    *len = fread(text, 1, LIMIT, file);
    fclose(file);
    return text;
}

static const char *text_of(const struct json *root, const char *key)
{
    const struct json *v = json_member(root, key);
    assert_non_null(v);
    return v->text.p;
}

static uint64_t number_of(const struct json *root, const char *key)
{
    const struct json *v = json_member(root, key);
    assert_non_null(v);
    return (uint64_t)v->number;
}

/* [[bytes, dtype, shape, savers, how many such when more than one], ...] */
static uint64_t bytes_of(const struct json *root, const char *key)
{
    enum { COUNT_INDEX = 4 };
    const struct json *list = json_member(root, key);
    uint64_t sum = 0;
    assert_non_null(list);
    for (const struct json *e = list->child; e != NULL; e = e->next) {
        double count = 1;
        for (const struct json *v = e->child; v != NULL; v = v->next)
            if (v->index == COUNT_INDEX)
                count = v->number;
        sum += (uint64_t)(e->child->number * count);
    }
    return sum;
}

static bool differs(const char *what, const char *name, uint64_t ours,
                    uint64_t measured)
{
    if (ours == measured)
        return false;
    print_error("%s: %s %llu, measured %llu (%+lld)\n", name, what,
                (unsigned long long)ours, (unsigned long long)measured,
                (long long)(ours - measured));
    return true;
}

static bool check_golden(const char *name, const struct json *root,
                         const char *text, size_t len)
{
    struct fixture f;
    start(&f);
    import(&f, json_member(root, "config"), text, len);
    const bool dropout = strstr(name, "-0.json") == NULL;
    set_run(&f, number_of(root, "b"), number_of(root, "s"),
            text_of(root, "dtype"), text_of(root, "attention"), dropout);
    if (json_member(root, "padded") != NULL)
        f.run.mask = MASK_PADDING;
    if (json_member(root, "ssm_kernel") != NULL)
        f.run.ssm_kernel = SSM_KERNEL_TORCH;
    lower(&f);
    const bool print =
        getenv("TEST_HF") != NULL && strstr(name, getenv("TEST_HF")) != NULL;
    const struct figures ours = measure(&f, print);
    bool bad = differs("layer", name, ours.layer, bytes_of(root, "layer"));
    if (json_member(root, "shared_by_layers") != NULL)
        bad |= differs("shared", name, ours.shared,
                       bytes_of(root, "shared_by_layers"));
    if (json_member(root, "outside") != NULL)
        bad |=
            differs("outside", name, ours.outside, bytes_of(root, "outside"));
    bad |= differs("parameters", name, ours.param_bytes,
                   number_of(root, "parameter_bytes"));
    finish(&f);
    return bad;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static void check_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    unsigned files = 0, bad = 0;
    if (dir == NULL)
        skip();
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (!ends_with(e->d_name, ".json"))
            continue;
        struct arena a;
        struct diag d;
        char path[4096];
        size_t len = 0;
        arena_init(&a, NULL);
        diag_init(&d, NULL);
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        const char *text = read_file(&a, path, &len);
        assert_non_null(text);
        const struct json *root = json_parse(&a, text, len, &d);
        /* adapters: tests/golden/test_step.c */
        if (json_member(root, "layer") != NULL) {
            files++;
            bad += check_golden(e->d_name, root, text, len);
        }
        arena_release(&a);
    }
    closedir(dir);
    print_message("%u golden files\n", files);
    assert_int_equal(bad, 0);
}

static void test_golden(void **state)
{
    (void)state;
    check_folder(GOLDEN_DIR);
}

static void test_golden_remote(void **state)
{
    (void)state;
    check_folder(REMOTE_DIR);
}

/* ---- published parameter counts ---- */

/* Parameters of the whole model, a tied head once. */
static uint64_t count_parameters(const struct program *p)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n_blocks; i++) {
        const struct block *block = &p->block[i];
        uint64_t own = 0, times = block->kind == BLOCK_LAYER ? 0 : 1;
        for (uint32_t j = 0; j < block->tensor_count; j++) {
            const struct tensor *t = &p->tensor[block->tensor_first + j];
            if (t->role == ROLE_PARAM && !t->tied)
                own += t->full_elems;
        }
        for (uint64_t j = 0; j < p->layers; j++)
            if (block->kind == BLOCK_LAYER && p->layer_block[j] == i)
                times++;
        sum += own * times;
    }
    return sum;
}

static bool check_model(const char *path, const char *name, bool seen[])
{
    struct fixture f;
    start(&f);
    size_t len = 0;
    const char *text = read_file(&f.arena, path, &len);
    assert_non_null(text);
    const struct json *root = json_parse(&f.arena, text, len, &f.diag);
    assert_non_null(root);
    import(&f, root, text, len);
    bool bad = false;
    if (f.spec.published_parameters != 0 && !spec_is_convnet(&f.spec)) {
        set_run(&f, 1, 32, "bf16", "eager", true);
        f.run.tp = 2; /* full_elems are of the whole model all the same */
        lower(&f);
        bad = differs("parameters", name, count_parameters(&f.program),
                      f.spec.published_parameters);
        seen[f.spec.family] = true;
    }
    finish(&f);
    return bad;
}

/* Every model that is embedded, against the count its source publishes. */
static void test_published_counts(void **state)
{
    (void)state;
    bool seen[FAM_COUNT] = { false };
    unsigned bad = 0, families = 0;
    DIR *dir = opendir(MODELS_DIR);
    if (dir == NULL)
        skip();
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        char path[4096];
        if (!ends_with(e->d_name, ".json"))
            continue;
        snprintf(path, sizeof(path), "%s/%s", MODELS_DIR, e->d_name);
        bad += check_model(path, e->d_name, seen);
    }
    closedir(dir);
    for (unsigned i = 0; i < FAM_COUNT; i++)
        families += seen[i];
    print_message("%u of %u families counted\n", families, (unsigned)FAM_COUNT);
    assert_int_equal(bad, 0);
}

/* ---- counts of transformers' classes ---- */

/* A setup of the user's, resolved. */
static void resolve(struct fixture *f, const struct json *keys,
                    const char *text, size_t len)
{
    static struct setup setup;
    memset(&setup, 0, sizeof(setup));
    assert_int_equal(setup_parse(&setup, keys, text, len, &f->diag),
                     MEMPLAN_OK);
    assert_int_equal(setup_resolve(&f->run, &setup, &f->spec, 0, &f->diag),
                     MEMPLAN_OK);
}

static bool check_count(const char *line, size_t len)
{
    struct fixture f;
    struct params_result r;
    start(&f);
    const struct json *root = json_parse(&f.arena, line, len, &f.diag);
    assert_non_null(root);
    import(&f, json_member(root, "config"), line, len);
    set_run(&f, 1, 32, "bf16", "eager", true);
    if (json_member(root, "lora_rank") != NULL) {
        f.run.lora_rank = number_of(root, "lora_rank");
        f.run.lora_targets = LORA_MASK(LORA_ALL_LINEAR);
    }
    if (json_member(root, "setup") != NULL)
        resolve(&f, json_member(root, "setup"), line, len);
    lower(&f);
    assert_true(fold_params(&r, &f.program, &f.spec));
    char name[128];
    snprintf(name, sizeof(name), "%s", strstr(line, "model_type"));
    bool bad =
        differs("trainable", name, r.trainable, number_of(root, "trainable"));
    if (json_member(root, "all") != NULL)
        bad |= differs("parameters", name, r.total, number_of(root, "all"));
    if (!run_adapts(&f.run)) {
        bad |=
            differs("parameters", name, r.total, number_of(root, "parameters"));
        if (json_member(root, "buffers") != NULL)
            bad |=
                differs("buffers", name, r.buffers, number_of(root, "buffers"));
    }
    if (bad)
        print_error("%.*s\n", (int)len, line);
    finish(&f);
    return bad;
}

static unsigned check_counts(const char *path)
{
    struct arena a;
    size_t len = 0;
    unsigned lines = 0, bad = 0;
    arena_init(&a, NULL);
    char *text = read_file(&a, path, &len);
    if (text == NULL)
        skip();
    for (char *end; len > 0; text = end + 1) {
        end = memchr(text, '\n', len);
        assert_non_null(end);
        *end = '\0';
        bad += check_count(text, (size_t)(end - text));
        len -= (size_t)(end - text) + 1;
        lines++;
    }
    print_message("%u configurations counted\n", lines);
    assert_int_equal(bad, 0);
    arena_release(&a);
    return lines;
}

/* tests/oracle/counts.py: each configuration differs from its family's in one
 * key, or lacks one. */
static void test_class_counts(void **state)
{
    (void)state;
    assert_true(check_counts(MEMPLAN_SOURCE_DIR "/tests/golden/counts.jsonl")
                > 100);
}

/* tests/oracle/remote.py: of classes whose code comes with the weights. */
static void test_remote_counts(void **state)
{
    (void)state;
    assert_true(
        check_counts(MEMPLAN_SOURCE_DIR "/tests/golden/remote_counts.jsonl")
        > 80);
}

/* tests/oracle/adapter_counts.py: what PEFT trains of a model under all-linear,
 * a family each. */
static void test_adapter_counts(void **state)
{
    (void)state;
    assert_true(
        check_counts(MEMPLAN_SOURCE_DIR "/tests/golden/adapter_counts.jsonl")
        > 30);
}

/* ---- variants that the oracle does not measure ---- */

static const char small_llama[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 96, \"head_dim\": 24,"
    " \"num_attention_heads\": 6, \"num_key_value_heads\": 2,"
    " \"intermediate_size\": 208, \"vocab_size\": 1234,"
    " \"num_hidden_layers\": 3, \"max_position_embeddings\": 64}";

enum {
    B = 3,
    S = 40,
    T = B * S,
    H = 96,
    HEADS = 6,
    KV = 2,
    D = 24,
    A = HEADS * D,
    K = KV * D,
    F = 208,
    VOCAB = 1234,
    RNG = 16
};

static void start_llama(struct fixture *f, const char *dtype,
                        const char *attention)
{
    start(f);
    import_text(f, small_llama);
    set_run(f, B, S, dtype, attention, false);
}

/* Liger's norms keep their input, its gated activation gate and up, its loss
 * the gradients of hidden states and head. */
static void test_liger(void **state)
{
    (void)state;
    struct fixture f;
    start_llama(&f, "bf16", "flash");
    f.run.impl = IMPL_HF_LIGER;
    f.run.norm_kernel = NORM_FUSED;
    f.run.loss = LOSS_FUSED;
    lower(&f);
    const struct figures r = measure(&f, false);
    assert_int_equal(r.layer,
                     T * (8 * H + 4 * A + 4 * K + 6 * F + 8 + 4 * HEADS) + RNG);
    assert_int_equal(r.outside, T * (2 * H + 4) + 2 * T * H + 2 * VOCAB * H);
    finish(&f);
}

/* A kernel instead of the chain keeps its input and a number a row; Liger's
 * layers with transformers' norms keep what those do. */
static void test_norm_kernel(void **state)
{
    (void)state;
    uint64_t layer[2][2];
    for (unsigned i = 0; i < 4; i++) {
        struct fixture f;
        start_llama(&f, "bf16", "flash");
        f.run.impl = i / 2 == 0 ? IMPL_HF : IMPL_HF_LIGER;
        f.run.norm_kernel = i % 2 == 0 ? NORM_EAGER : NORM_FUSED;
        lower(&f);
        layer[i / 2][i % 2] = measure(&f, false).layer;
        finish(&f);
    }
    assert_int_equal(layer[0][0] - layer[0][1], 2 * T * 4 * H);
    assert_int_equal(layer[1][0] - layer[1][1], 2 * T * 4 * H);
}

/* Phi-3 small's layer of blocks: k and v are made once for each query head,
 * and copied; of its activation both halves, what was clamped where, the
 * sigmoid and three products are kept. */
static void test_blocks(void **state)
{
    (void)state;
    enum { DA = 16, AA = HEADS * DA, INDEX = 8 };
    struct fixture f;
    start(&f);
    import_text(&f, "{\"model_type\": \"phi3small\", \"hidden_size\": 96,"
                    " \"num_attention_heads\": 6, \"num_key_value_heads\": 2,"
                    " \"ff_intermediate_size\": 208, \"vocab_size\": 1234,"
                    " \"dense_attention_every_n_layers\": 3,"
                    " \"num_hidden_layers\": 3}");
    set_run(&f, B, S, "bf16", "flash", false);
    lower(&f);
    const struct figures r = measure(&f, false);
    const uint64_t norms = 2 * (2 * H + 8), inputs = 2 * 2 * H;
    const uint64_t attention = 5 * 2 * AA + 2 * 4 * HEADS;
    const uint64_t mlp = (4 + 2 + 5 * 2) * F;
    assert_int_equal(r.layer, T * (norms + inputs + attention + mlp)
                                  + (2 + HEADS) * INDEX + RNG);
    assert_int_equal(r.shared, 2 * 2 * S * DA);
    finish(&f);
}

/* Liger's gated activation writes its gradients over gate and up, and its norm
 * over the gradient that comes in: the layer's fullest moment is then the
 * backward of down_proj, where everything kept is still there, with the
 * gradients of the layer's result and of down_proj's input and weight. */
static void test_liger_in_place(void **state)
{
    (void)state;
    struct fixture f;
    struct walk_scratch scratch = { .bare = false };
    struct block_walk w;
    start_llama(&f, "bf16", "flash");
    f.run.impl = IMPL_HF_LIGER;
    f.run.norm_kernel = NORM_FUSED;
    f.run.loss = LOSS_FUSED;
    lower(&f);
    assert_true(walk_scratch_init(&scratch, &f.program, &f.arena));
    scratch.granule = 1;
    scratch.bare = true;
    walk_block(&w, &f.program, &f.program.block[f.program.layer_block[0]], 0,
               1u << WGRAD_FREE, &scratch);
    const struct extremum *top = &w.backward[WGRAD_FREE];
    assert_string_equal(f.program.op[top->op].name, "down_proj");
    assert_int_equal(extremum_total(top),
                     w.kept + 2 * T * H + 2 * T * F + 2 * F * H);
    finish(&f);
}

/* Frozen weights keep no input of theirs; norms still keep what x needs.
 * [PEFT, adapters in the weights' dtype on q and v] */
static void test_lora(void **state)
{
    (void)state;
    enum { R = 8 };
    struct fixture f;
    start_llama(&f, "bf16", "flash");
    f.run.lora_rank = R;
    f.run.lora_dtype = f.run.base_dtype = DT_BF16;
    f.run.lora_targets = LORA_MASK(LORA_Q) | LORA_MASK(LORA_V);
    lower(&f);
    const uint64_t base =
        T * (8 * H + 8 + 4 * A + 4 * K + 4 * HEADS + 6 * F) + RNG;
    assert_int_equal(measure(&f, false).layer, base + T * (2 * H + 2 * 2 * R));
    finish(&f);
}

/* Heads, ffn and vocabulary are halved; norms and the stream are not. */
static void test_tensor_parallel(void **state)
{
    (void)state;
    struct fixture f;
    start_llama(&f, "bf16", "flash");
    f.run.tp = 2;
    lower(&f);
    assert_int_equal(measure(&f, false).layer,
                     T * (16 * H + 8 + (4 * A + 4 * K + 8 * F + 4 * HEADS) / 2)
                         + RNG);
    unsigned reductions = 0;
    const struct block *block = &f.program.block[f.program.layer_block[0]];
    for (uint32_t i = 0; i < block->op_count; i++)
        reductions += f.program.op[block->op_first + i].kind == OP_ALL_REDUCE;
    assert_int_equal(reductions, 2);
    finish(&f);
}

/* With one sequence the heads' reshape is a view: nothing is copied, and the
 * rotated q and the values are kept themselves. */
static void test_one_sequence(void **state)
{
    (void)state;
    struct fixture f;
    start_llama(&f, "bf16", "eager");
    f.run.micro_batch = 1;
    lower(&f);
    assert_int_equal(measure(&f, false).layer,
                     S * (16 * H + 8 + 8 * A + 8 * F) + 6 * HEADS * S * S);
    finish(&f);
}

/* A window shorter than the sequence, or as long: sdpa takes a mask, so k and v
 * are repeated and the efficient kernel keeps the mask as numbers; one a head and
 * padded where PyTorch 2.1 finds rows not aligned. */
static void test_sliding_window(void **state)
{
    (void)state;
    enum { ROWS = 64, PADDED = 48 };
    for (int i = 0; i < 4; i++) {
        const int before = i % 2;
        struct fixture f;
        start_llama(&f, "bf16", "sdpa");
        f.spec.sliding_window = i < 2 ? S / 2 : S;
        f.spec.sliding_layers = f.spec.layers;
        f.run.mask_per_head = before;
        lower(&f);
        const uint64_t mask =
            before ? 2 * B * HEADS * S * PADDED : 2 * B * S * S;
        const uint64_t lse = 4 * B * HEADS * ROWS;
        assert_int_equal(measure(&f, false).layer,
                         T * (16 * H + 8 + 8 * A + 8 * F) + mask + lse + RNG);
        finish(&f);
    }
}

/* Rows that are aligned need no padding: each layer's kernel keeps the mask as
 * it was cast, one for all heads. */
static void test_aligned_mask(void **state)
{
    (void)state;
    enum { LONG = 64, ROWS = 64 };
    struct fixture f;
    start_llama(&f, "bf16", "sdpa");
    f.run.seq_len = LONG;
    f.spec.sliding_window = LONG / 2;
    f.spec.sliding_layers = f.spec.layers;
    lower(&f);
    const uint64_t tokens = B * LONG, mask = 2 * B * LONG * LONG;
    const uint64_t lse = 4 * B * HEADS * ROWS;
    assert_int_equal(measure(&f, false).layer,
                     tokens * (16 * H + 8 + 8 * A + 8 * F) + mask + lse + RNG);
    finish(&f);
}

/* Phi-3's one matrix for gate and up: Liger's kernel takes it whole and keeps
 * it, where transformers keeps its halves and their products. */
static void test_liger_fused_gate_up(void **state)
{
    (void)state;
    uint64_t layer[2];
    for (unsigned i = 0; i < 2; i++) {
        struct fixture f;
        start_llama(&f, "bf16", "flash");
        f.run.impl = i == 0 ? IMPL_HF : IMPL_HF_LIGER;
        f.spec.norm = NORM_LAYER_PLAIN; /* the norms are the same in both */
        f.spec.fused_gate_up = true;
        lower(&f);
        layer[i] = measure(&f, false).layer;
        finish(&f);
    }
    /* act(gate) is kept for its product with up */
    assert_int_equal(layer[0], layer[1] + 2 * T * F);
}

/* A decoder with ALiBi by eager code: the slopes are added before the mask. */
static void test_alibi(void **state)
{
    (void)state;
    struct fixture f;
    start_llama(&f, "bf16", "eager");
    f.spec.family = FAM_DECODER;
    f.spec.position = POS_ALIBI;
    lower(&f);
    unsigned sums = 0;
    const tensor_id alibi = hf_table(&f.builder, HF_ALIBI);
    for (uint32_t i = 0; i < f.program.n_ops; i++) {
        const struct op *op = &f.program.op[i];
        sums += op->kind == OP_ADD && op->n_in == 2 && op->in[1] == alibi;
    }
    assert_int_equal(sums, 1); /* one kind of layer */
    finish(&f);
}

/* What the class does not have is refused when it was asked for. */
static void test_refusals(void **state)
{
    (void)state;
    struct fixture f;
    start_llama(&f, "bf16", "flash");
    f.spec.position = POS_ALIBI;
    f.spec.family = FAM_BLOOM;
    f.run.given[KEY_ATTENTION] = true;
    build_start(&f.builder, &f.program, &f.spec, &f.run, &f.arena, &f.diag);
    lower_hf(&f.builder);
    assert_int_equal(build_finish(&f.builder), MEMPLAN_E_UNSUPPORTED);
    finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_golden_remote),
        cmocka_unit_test(test_published_counts),
        cmocka_unit_test(test_class_counts),
        cmocka_unit_test(test_remote_counts),
        cmocka_unit_test(test_adapter_counts),
        cmocka_unit_test(test_liger),
        cmocka_unit_test(test_norm_kernel),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_liger_in_place),
        cmocka_unit_test(test_lora),
        cmocka_unit_test(test_tensor_parallel),
        cmocka_unit_test(test_one_sequence),
        cmocka_unit_test(test_sliding_window),
        cmocka_unit_test(test_aligned_mask),
        cmocka_unit_test(test_liger_fused_gate_up),
        cmocka_unit_test(test_alibi),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
