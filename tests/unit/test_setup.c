/* Setup keys: read, written, defaulted, and every refusal with its hint. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "spec/setup.h"
#include "json/json.h"

/* ---- helpers ---- */

enum { ERRORS_MAX = 16 };

struct case_state {
    struct setup setup;
    struct run run;
    memplan_error slot[ERRORS_MAX];
    memplan_errors errs;
    struct diag diag;
    memplan_status status;
};

static struct case_state cs;

static void fresh(void)
{
    memset(&cs, 0, sizeof(cs));
    cs.errs = (memplan_errors){ cs.slot, ERRORS_MAX, 0 };
    diag_init(&cs.diag, &cs.errs);
}

static memplan_status set(const char *key, const char *value)
{
    return setup_set(&cs.setup, str_of(key), str_of(value), &cs.diag);
}

/* "gpus=64 tp=8" */
static void set_all(const char *pairs)
{
    struct str rest = str_of(pairs);
    while (rest.n > 0) {
        struct str value;
        struct str pair = str_cut(rest, ' ', &rest);
        struct str key = str_cut(pair, '=', &value);
        if (setup_set(&cs.setup, key, value, &cs.diag) != MEMPLAN_OK)
            print_error("%.*s: %s\n", (int)pair.n, pair.p, cs.slot[0].message);
    }
}

static struct spec llama(void)
{
    struct spec s = {
        .name = "llama",
        .source = "",
        .model_type = "llama",
        .layers = 32,
        .hidden = 4096,
        .heads = 32,
        .kv_heads = 8,
        .head_dim = 128,
        .ffn = 14336,
        .vocab = 128256,
        .max_positions = 8192,
        .position = POS_ROPE,
        .rotary_dim = 128,
        .gated_mlp = true,
        .final_norm = true,
        .moe_every = 1,
    };
    return s;
}

static struct spec gpt2(void)
{
    struct spec s = llama();
    s.layers = 12;
    s.hidden = 768;
    s.heads = s.kv_heads = 12;
    s.head_dim = 64;
    s.ffn = 3072;
    s.vocab = 50257;
    s.position = POS_LEARNED;
    s.max_positions = s.learned_positions = 1024;
    s.hidden_dropout = s.embed_dropout = s.attention_dropout = 0.1;
    return s;
}

static struct spec mixtral(void)
{
    struct spec s = llama();
    s.experts = 8;
    s.experts_per_token = 2;
    s.expert_ffn = 14336;
    return s;
}

static struct spec model(char which)
{
    return which == 'g' ? gpt2() : which == 'm' ? mixtral() : llama();
}

static const uint64_t PARAMS = 8030261248;

static const struct run *resolve_as(char which, const char *pairs)
{
    fresh();
    set_all(pairs);
    struct spec s = model(which);
    cs.status = setup_resolve(&cs.run, &cs.setup, &s, PARAMS, &cs.diag);
    return &cs.run;
}

static const struct run *resolved(const char *pairs)
{
    const struct run *r = resolve_as('l', pairs);
    if (cs.status != MEMPLAN_OK)
        print_error("%s: %s\n", pairs, cs.slot[0].message);
    assert_int_equal(cs.status, MEMPLAN_OK);
    return r;
}

static const char *value_text(const struct setup *s, enum setup_key key)
{
    static char buf[4096];
    return setup_value_text(s, key, buf, sizeof(buf));
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        print_error("'%s' is not in '%s'\n", part, text);
        fail();
    }
}

static bool assumes(const struct run *r, const char *part)
{
    for (size_t i = 0; i < r->n_assumptions; i++) {
        if (strstr(r->assumption[i].text, part))
            return true;
    }
    return false;
}

/* ---- the table ---- */

static void table_is_sound(void **state)
{
    (void)state;
    assert_null(setup_field(KEY_COUNT));
    assert_null(setup_field(SIZE_MAX));
    for (size_t k = 0; k < KEY_COUNT; k++) {
        const memplan_field *f = setup_field(k);
        assert_non_null(f);
        assert_true(strlen(f->key) > 0 && strlen(f->key) < 64);
        assert_int_equal(setup_find_key(str_of(f->key)), k);
        assert_true(f->default_text[0] && f->group[0] && f->doc[0]);
        assert_true(f->placeholder[0] && strlen(f->doc) <= 64);
        size_t n = strlen(f->choices);
        assert_true(n == 0
                    || (f->choices[0] != ' ' && f->choices[n - 1] != ' '));
        bool words = f->type == MEMPLAN_TYPE_CHOICE;
        assert_true(!words || n > 0);
    }
    assert_int_equal(setup_find_key(STR("micro-batch")), KEY_MICRO_BATCH);
    assert_int_equal(setup_find_key(STR("")), KEY_COUNT);
}

static void groups_stay_together(void **state)
{
    (void)state;
    for (size_t k = 1; k < KEY_COUNT; k++) {
        const char *group = setup_field(k)->group;
        if (strcmp(group, setup_field(k - 1)->group) == 0)
            continue;
        for (size_t i = 0; i < k; i++)
            assert_string_not_equal(setup_field(i)->group, group);
    }
}

/* key, value, what it reads back as */
static const char *const settable[][3] = {
    { "gpu", "H100", "h100-80gb" },
    { "gpus", "1k", "1000" },
    { "gpus_per_node", "4", "4" },
    { "gpu_memory", "80GiB", "85899345920" },
    { "price", "1.5", "1.5" },
    { "peak_flops", "989T", "989000000000000" },
    { "framework", "fsdp", "fsdp" },
    { "implementation", "paper", "paper" },
    { "engine", "fsdp2", "fsdp2" },
    { "zero", "3", "3" },
    { "shard_degree", "8", "8" },
    { "dp", "2", "2" },
    { "tp", "8", "8" },
    { "pp", "4", "4" },
    { "vpp", "2", "2" },
    { "cp", "2", "2" },
    { "ep", "8", "8" },
    { "etp", "1", "1" },
    { "sequence_parallel", "yes", "true" },
    { "schedule", "gpipe", "gpipe" },
    { "pipeline_layers", "7, 8,8,9", "7,8,8,9" },
    { "micro_batch", "2", "2" },
    { "global_batch", "1Ki", "1024" },
    { "grad_accum", "8", "8" },
    { "seq_len", "8Ki", "8192" },
    { "decoder_seq_len", "128", "128" },
    { "precision", "bf16", "bf16" },
    { "fp8_recipe", "mxfp8", "mxfp8" },
    { "fp8_params", "on", "true" },
    { "param_dtype", "bf16", "bf16" },
    { "grad_dtype", "fp32", "fp32" },
    { "reduce_dtype", "fp16", "fp16" },
    { "master_dtype", "none", "none" },
    { "optimizer_dtype", "int8", "int8" },
    { "optimizer", "lion8bit", "lion8bit" },
    { "optimizer_impl", "loop", "loop" },
    { "optimizer_in_backward", "1", "true" },
    { "clip_grad", "no", "false" },
    { "recompute", "full", "full" },
    { "recompute_modules", "mlp,core_attn", "core_attn,mlp" },
    { "recompute_layers", "4", "4" },
    { "recompute_granularity", "2", "2" },
    { "attention", "eager", "eager" },
    { "loss", "fused", "fused" },
    { "compile", "off", "false" },
    { "dropout", "10%", "0.1" },
    { "attention_mask", "dataloader", "dataloader" },
    { "vocab_multiple", "64", "64" },
    { "cuda_graph", "0", "false" },
    { "ep_overlap", "false", "false" },
    { "lora_rank", "16", "16" },
    { "lora_targets", "q,v", "q,v" },
    { "lora_full_modules", "norm", "norm" },
    { "lora_dtype", "fp16", "fp16" },
    { "base_dtype", "nf4", "nf4" },
    { "double_quant", "true", "true" },
    { "offload_optimizer", "cpu", "cpu" },
    { "offload_params", "nvme", "nvme" },
    { "offload_activations", "none", "none" },
    { "reduce_bucket", "5e8", "500000000" },
    { "allgather_bucket", "2e8", "200000000" },
    { "prefetch_bucket", "0", "0" },
    { "max_live_params", "1G", "1000000000" },
    { "sub_group_size", "1e9", "1000000000" },
    { "persistence_threshold", "100k", "100000" },
    { "overlap_comm", "true", "true" },
    { "ddp_bucket", "25MiB", "26214400" },
    { "allocator", "expandable", "expandable" },
    { "params", "13B", "13000000000" },
    { "tokens", "1.4T", "1400000000000" },
    { "tokens_per_param", "20", "20" },
    { "scaling_law", "hoffmann-3", "hoffmann-3" },
    { "mfu", "45%", "0.45" },
    { "availability", "0.9", "0.9" },
    { "days", "30", "30" },
    { "budget", "1e24", "1e+24" },
};
enum { SETTABLE = sizeof(settable) / sizeof(settable[0]) };

static void every_key_is_settable(void **state)
{
    (void)state;
    assert_int_equal(SETTABLE, KEY_COUNT);
    fresh();
    for (size_t i = 0; i < SETTABLE; i++) {
        enum setup_key key = setup_find_key(str_of(settable[i][0]));
        assert_true(key < KEY_COUNT);
        assert_string_equal(value_text(&cs.setup, key), "");
        assert_int_equal(set(settable[i][0], settable[i][1]), MEMPLAN_OK);
        assert_true(cs.setup.set[key]);
        assert_string_equal(value_text(&cs.setup, key), settable[i][2]);
        /* what is written reads back */
        char text[128];
        str_format(text, sizeof(text), "%s", settable[i][2]);
        assert_int_equal(set(settable[i][0], text), MEMPLAN_OK);
        assert_string_equal(value_text(&cs.setup, key), settable[i][2]);
    }
    assert_int_equal(cs.errs.count, 0);
}

static void check_words(enum setup_key key, const char *const *words,
                        size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct str w = choice_word(setup_field(key)->choices, i);
        assert_true(str_is(w, words[i]));
        assert_int_equal(set(setup_field(key)->key, words[i]), MEMPLAN_OK);
        bool list = setup_field(key)->type == MEMPLAN_TYPE_LIST;
        assert_int_equal(cs.setup.v[key].n, list ? UINT64_C(1) << i : i);
        assert_string_equal(value_text(&cs.setup, key), words[i]);
    }
    assert_int_equal(choice_word(setup_field(key)->choices, count).n, 0);
}

#define WORD(id, text) [id] = text,
#define CHECK_MAP(key, map)                                                    \
    do {                                                                       \
        static const char *const words[] = { map(WORD) };                      \
        check_words(key, words, sizeof(words) / sizeof(words[0]));             \
    } while (0)

static void words_are_their_enum(void **state)
{
    (void)state;
    fresh();
    CHECK_MAP(KEY_FRAMEWORK, FRAMEWORK_MAP);
    CHECK_MAP(KEY_IMPLEMENTATION, IMPLEMENTATION_MAP);
    CHECK_MAP(KEY_ENGINE, ENGINE_MAP);
    CHECK_MAP(KEY_SCHEDULE, SCHEDULE_MAP);
    CHECK_MAP(KEY_PRECISION, PRECISION_MAP);
    CHECK_MAP(KEY_FP8_RECIPE, FP8_RECIPE_MAP);
    CHECK_MAP(KEY_OPTIMIZER, OPTIMIZER_MAP);
    CHECK_MAP(KEY_OPTIMIZER_IMPL, OPTIMIZER_IMPL_MAP);
    CHECK_MAP(KEY_RECOMPUTE, RECOMPUTE_MAP);
    CHECK_MAP(KEY_RECOMPUTE_MODULES, RECOMPUTE_MODULE_MAP);
    CHECK_MAP(KEY_ATTENTION, ATTENTION_MAP);
    CHECK_MAP(KEY_LOSS, LOSS_MAP);
    CHECK_MAP(KEY_LORA_TARGETS, LORA_TARGET_MAP);
    CHECK_MAP(KEY_LORA_FULL_MODULES, LORA_FULL_MAP);
    CHECK_MAP(KEY_OFFLOAD_OPTIMIZER, OFFLOAD_MAP);
    CHECK_MAP(KEY_OFFLOAD_PARAMS, OFFLOAD_MAP);
    CHECK_MAP(KEY_OFFLOAD_ACTIVATIONS, OFFLOAD_MAP);
    CHECK_MAP(KEY_ATTENTION_MASK, ATTENTION_MASK_MAP);
    CHECK_MAP(KEY_ALLOCATOR, ALLOCATOR_MAP);
    CHECK_MAP(KEY_SCALING_LAW, SCALING_LAW_MAP);
    assert_int_equal(cs.errs.count, 0);
}

static void dtype_keys_store_the_enum(void **state)
{
    (void)state;
    static const enum setup_key keys[] = {
        KEY_PARAM_DTYPE,     KEY_GRAD_DTYPE, KEY_REDUCE_DTYPE, KEY_MASTER_DTYPE,
        KEY_OPTIMIZER_DTYPE, KEY_LORA_DTYPE, KEY_BASE_DTYPE,
    };
    static const char *const names[] = { DTYPE_MAP(WORD) };
    fresh();
    for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
        const memplan_field *f = setup_field(keys[k]);
        for (size_t i = 0; choice_word(f->choices, i).n > 0; i++) {
            struct str w = choice_word(f->choices, i);
            assert_int_equal(setup_set(&cs.setup, str_of(f->key), w, &cs.diag),
                             MEMPLAN_OK);
            uint64_t t = cs.setup.v[keys[k]].n;
            assert_true(t < DTYPE_COUNT && str_is(w, names[t]));
            assert_string_equal(dtype_name((enum dtype)t), names[t]);
        }
    }
    assert_int_equal(dtype_bytes_of(DT_NF4, 5), 3);
    assert_int_equal(dtype_bytes_of(DT_BF16, 5), 10);
    assert_int_equal(dtype_size(DT_NONE), 0);
    assert_int_equal(dtype_size(DT_INT64), 8);
}

/* ---- values that are refused ---- */

static const struct bad_value {
    const char *key, *value;
    memplan_status status;
    const char *message, *hint;
} bad_values[] = {
    { "zer", "3", MEMPLAN_E_UNKNOWN, "unknown key 'zer'",
      "did you mean 'zero'?" },
    { "micro_bach", "3", MEMPLAN_E_UNKNOWN, "unknown key 'micro_bach'",
      "did you mean 'micro_batch'?" },
    { "qqqqqqqqqqq", "3", MEMPLAN_E_UNKNOWN, "unknown key", "x-" },
    { "gpus", "many", MEMPLAN_E_ARG, "'gpus' takes a whole number, not 'many'",
      "such as 64" },
    { "gpus", "", MEMPLAN_E_ARG, "'gpus' takes a whole number", "such as" },
    { "gpus", "0", MEMPLAN_E_RANGE, "'gpus' is 0, out of range", "use 1 to" },
    { "gpus", "99999999999999999999999", MEMPLAN_E_RANGE, "'gpus' is 999",
      "use 1 to" },
    { "zero", "4", MEMPLAN_E_RANGE, "'zero' is 4, out of range", "use 0 to 3" },
    { "pp", "513", MEMPLAN_E_RANGE, "'pp' is 513", "use 1 to 512" },
    { "mfu", "1.5", MEMPLAN_E_RANGE, "'mfu' is 1.5", "to 1" },
    { "mfu", "much", MEMPLAN_E_ARG, "'mfu' takes a number, not 'much'",
      "such as 0.45" },
    { "dropout", "-0.1", MEMPLAN_E_RANGE, "'dropout' is -0.1", "use 0 to" },
    { "gpu_memory", "80Gb/s", MEMPLAN_E_ARG, "'gpu_memory' takes a size",
      "such as 80GiB" },
    { "compile", "maybe", MEMPLAN_E_ARG,
      "'compile' takes true or false, not 'maybe'", "true or false" },
    { "framework", "deepsped", MEMPLAN_E_UNKNOWN,
      "unknown framework 'deepsped'", "did you mean 'deepspeed'?" },
    { "framework", "xyzzy", MEMPLAN_E_UNKNOWN, "unknown framework 'xyzzy'",
      "use one of hf, deepspeed, fsdp" },
    { "framework", "", MEMPLAN_E_ARG, "'framework' takes a word",
      "use one of" },
    { "param_dtype", "nf4", MEMPLAN_E_UNKNOWN, "unknown param_dtype 'nf4'",
      "fp32" },
    { "base_dtype", "none", MEMPLAN_E_UNKNOWN, "unknown base_dtype 'none'",
      "use one of bf16" },
    { "lora_targets", "q,w", MEMPLAN_E_UNKNOWN, "unknown lora_targets 'w'",
      "use one of q, k" },
    { "lora_targets", "", MEMPLAN_E_ARG, "'lora_targets' takes a list",
      "use one of q, k" },
    { "lora_targets", "q,", MEMPLAN_E_ARG, "'lora_targets' takes", "use one" },
    { "pipeline_layers", "4,,4", MEMPLAN_E_ARG, "'pipeline_layers' takes",
      "commas" },
    { "pipeline_layers", "4,x", MEMPLAN_E_ARG,
      "'pipeline_layers' takes a list, not 'x'", "commas" },
    { "pipeline_layers", "0,4", MEMPLAN_E_RANGE, "'pipeline_layers' is 0",
      "use 1 to 65535" },
    { "gpu", "a100-80g", MEMPLAN_E_UNKNOWN, "unknown GPU 'a100-80g'",
      "did you mean 'a100-80gb'?" },
    { "gpu", "zzzzzzzzzzzzzzzzzzzzzzzzzzzz", MEMPLAN_E_UNKNOWN, "unknown GPU",
      "'memplan gpus' lists them all" },
};

static void bad_values_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_values) / sizeof(bad_values[0]); i++) {
        const struct bad_value *b = &bad_values[i];
        fresh();
        assert_int_equal(set(b->key, b->value), b->status);
        assert_int_equal(cs.errs.count, 1);
        assert_int_equal(cs.slot[0].status, b->status);
        assert_has(cs.slot[0].message, b->message);
        assert_has(cs.slot[0].hint, b->hint);
        assert_string_equal(cs.slot[0].key, b->key);
        for (size_t k = 0; k < KEY_COUNT; k++)
            assert_false(cs.setup.set[k]);
    }
}

static void negative_counts_are_refused(void **state)
{
    (void)state;
    fresh();
    assert_int_not_equal(set("gpus", "-3"), MEMPLAN_OK);
    assert_true(cs.slot[0].hint[0] != '\0');
}

static void a_refused_value_changes_nothing(void **state)
{
    (void)state;
    fresh();
    assert_int_equal(set("pipeline_layers", "3,5"), MEMPLAN_OK);
    assert_int_equal(set("pipeline_layers", "4,4,x"), MEMPLAN_E_ARG);
    assert_string_equal(value_text(&cs.setup, KEY_PIPELINE_LAYERS), "3,5");
    assert_int_equal(set("lora_targets", "q,k"), MEMPLAN_OK);
    assert_int_equal(set("lora_targets", "v,oops"), MEMPLAN_E_UNKNOWN);
    assert_string_equal(value_text(&cs.setup, KEY_LORA_TARGETS), "q,k");
    /* a later good value of another key is still OK */
    assert_int_equal(set("gpus", "8"), MEMPLAN_OK);

    char many[2 * (SETUP_LIST_MAX + 1) + 1] = "";
    for (size_t i = 0; i <= SETUP_LIST_MAX; i++)
        str_append(many, sizeof(many), i > 0 ? ",1" : "1");
    assert_int_equal(set("pipeline_layers", many), MEMPLAN_E_RANGE);
    many[strlen(many) - 2] = '\0';
    assert_int_equal(set("pipeline_layers", many), MEMPLAN_OK);
    assert_int_equal(cs.setup.pipeline_count, SETUP_LIST_MAX);
}

/* ---- setup files ---- */

static memplan_status parse(const char *text)
{
    struct arena arena;
    arena_init(&arena, NULL);
    struct json *root = json_parse(&arena, text, strlen(text), &cs.diag);
    assert_non_null(root);
    memplan_status status =
        setup_parse(&cs.setup, root, text, strlen(text), &cs.diag);
    arena_release(&arena);
    return status;
}

static void setup_files_are_read(void **state)
{
    (void)state;
    fresh();
    set("tp", "8");
    assert_int_equal(
        parse("{\"gpus\": 64, \"tokens\": \"1.4T\", \"mfu\": 0.45,"
              " \"sequence_parallel\": false, \"gpu\": \"h100\","
              " \"tp\": null, \"pipeline_layers\": [7, 8, \"9\"],"
              " \"lora_targets\": [\"q\", \"v\"], \"optimizer\": \"sgd\","
              " \"params\": 9007199254740993, \"compile\": 1,"
              " \"recompute_modules\": \"mlp,moe\", \"budget\": 1e24,"
              " \"source\": {\"a\": 1}, \"notes\": [], \"x-mine\": null}"),
        MEMPLAN_OK);
    static const struct {
        enum setup_key key;
        const char *text;
    } want[] = {
        { KEY_GPUS, "64" },
        { KEY_TOKENS, "1400000000000" },
        { KEY_MFU, "0.45" },
        { KEY_SEQUENCE_PARALLEL, "false" },
        { KEY_GPU, "h100-80gb" },
        { KEY_TP, "" },
        { KEY_PIPELINE_LAYERS, "7,8,9" },
        { KEY_LORA_TARGETS, "q,v" },
        { KEY_OPTIMIZER, "sgd" },
        { KEY_PARAMS, "9007199254740993" },
        { KEY_COMPILE, "true" },
        { KEY_RECOMPUTE_MODULES, "mlp,moe" },
        { KEY_BUDGET, "1e+24" },
    };
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
        assert_string_equal(value_text(&cs.setup, want[i].key), want[i].text);
}

static const struct bad_file {
    const char *text;
    memplan_status status;
    unsigned line, column;
    const char *pointer, *message, *hint;
} bad_files[] = {
    { "[1]", MEMPLAN_E_SCHEMA, 1, 1, "", "a setup is an object, not an array",
      "write {" },
    { "{\n  \"gpu_s\": 4}", MEMPLAN_E_UNKNOWN, 2, 12, "/gpu_s",
      "unknown key 'gpu_s'", "did you mean 'gpus'?" },
    { "{\"micro-batch\": 4}", MEMPLAN_E_UNKNOWN, 1, 17, "/micro-batch",
      "unknown key 'micro-batch'", "did you mean 'micro_batch'?" },
    { "{\"gpus\": true}", MEMPLAN_E_ARG, 1, 10, "/gpus",
      "'gpus' takes a whole number, not a boolean", "such as 64" },
    { "{\"gpus\": 1.5}", MEMPLAN_E_ARG, 1, 10, "/gpus",
      "'gpus' takes a whole number, not '1.5'", "such as 64" },
    { "{\"gpus\": [1]}", MEMPLAN_E_ARG, 1, 10, "/gpus",
      "'gpus' takes a whole number, not an array", "such as 64" },
    { "{\"framework\": 3}", MEMPLAN_E_ARG, 1, 15, "/framework",
      "'framework' takes a word, not a number", "use one of hf" },
    { "{\"gpu\": {}}", MEMPLAN_E_ARG, 1, 9, "/gpu",
      "'gpu' takes a name, not an object", "" },
    { "{\"lora_targets\": [\"q\", 1]}", MEMPLAN_E_UNKNOWN, 1, 24,
      "/lora_targets/1", "unknown lora_targets '1'", "use one of q" },
    { "{\"lora_targets\": [\"q\", null]}", MEMPLAN_E_ARG, 1, 24,
      "/lora_targets/1", "'lora_targets' takes a list, not null", "use one" },
    { "{\"pipeline_layers\": []}", MEMPLAN_E_ARG, 1, 21, "/pipeline_layers",
      "'pipeline_layers' takes a list, not '[]'", "commas" },
    { "{\"zero\": 4}", MEMPLAN_E_RANGE, 1, 10, "/zero", "'zero' is 4",
      "use 0 to 3" },
};

static void bad_setup_files_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_files) / sizeof(bad_files[0]); i++) {
        const struct bad_file *b = &bad_files[i];
        fresh();
        assert_int_equal(parse(b->text), b->status);
        assert_int_equal(cs.errs.count, 1);
        assert_has(cs.slot[0].message, b->message);
        assert_has(cs.slot[0].hint, b->hint);
        assert_string_equal(cs.slot[0].pointer, b->pointer);
        assert_int_equal(cs.slot[0].line, b->line);
        if (cs.slot[0].column != b->column)
            print_error("%s\n", b->text);
        assert_int_equal(cs.slot[0].column, b->column);
    }
    fresh();
    assert_int_equal(parse("{\"gpus\": 0, \"tpp\": 1, \"pp\": 4}"),
                     MEMPLAN_E_RANGE);
    assert_int_equal(cs.errs.count, 2);
    assert_string_equal(value_text(&cs.setup, KEY_PP), "4");
}

/* ---- defaults ---- */

static const struct defaults {
    const char *pairs;
    enum framework framework;
    enum implementation impl;
    enum engine engine;
    uint64_t zero;
    enum precision precision;
    struct precision_bytes prec;
    enum optimizer_impl optimizer_impl;
    bool overlap, sp;
} defaults[] = {
    { "",
      FW_HF,
      IMPL_HF,
      ENGINE_DDP,
      0,
      PREC_BF16_AMP,
      { DT_FP32, DT_BF16, DT_FP32, DT_FP32, DT_NONE, DT_FP32, true, false },
      OPTIMPL_FUSED,
      true,
      false },
    { "zero=3 gpus=8",
      FW_DEEPSPEED,
      IMPL_HF,
      ENGINE_DEEPSPEED,
      3,
      PREC_BF16_MIXED,
      { DT_BF16, DT_BF16, DT_BF16, DT_BF16, DT_FP32, DT_FP32, false, false },
      OPTIMPL_FUSED,
      true,
      false },
    { "framework=deepspeed",
      FW_DEEPSPEED,
      IMPL_HF,
      ENGINE_DEEPSPEED,
      0,
      PREC_BF16_MIXED,
      { DT_BF16, DT_BF16, DT_BF16, DT_BF16, DT_FP32, DT_FP32, false, false },
      OPTIMPL_FUSED,
      false,
      false },
    { "framework=fsdp",
      FW_FSDP,
      IMPL_HF,
      ENGINE_FSDP,
      3,
      PREC_BF16_MIXED,
      { DT_FP32, DT_BF16, DT_FP32, DT_BF16, DT_NONE, DT_FP32, false, false },
      OPTIMPL_FOREACH,
      true,
      false },
    { "framework=torchtitan",
      FW_TORCHTITAN,
      IMPL_TORCHTITAN,
      ENGINE_FSDP2,
      3,
      PREC_BF16_MIXED,
      { DT_FP32, DT_BF16, DT_FP32, DT_FP32, DT_NONE, DT_FP32, false, false },
      OPTIMPL_FUSED,
      true,
      false },
    { "gpus=64 tp=8",
      FW_MEGATRON,
      IMPL_MEGATRON,
      ENGINE_MEGATRON,
      1,
      PREC_BF16_MIXED,
      { DT_BF16, DT_BF16, DT_FP32, DT_FP32, DT_FP32, DT_FP32, false, false },
      OPTIMPL_FUSED,
      false,
      true },
    { "framework=nemo",
      FW_NEMO,
      IMPL_MEGATRON,
      ENGINE_MEGATRON,
      1,
      PREC_BF16_MIXED,
      { DT_BF16, DT_BF16, DT_FP32, DT_FP32, DT_FP32, DT_FP32, false, false },
      OPTIMPL_FUSED,
      false,
      false },
    { "framework=megatron-deepspeed gpus=8 tp=8",
      FW_MEGATRON_DEEPSPEED,
      IMPL_MEGATRON,
      ENGINE_DEEPSPEED,
      0,
      PREC_BF16_MIXED,
      { DT_BF16, DT_BF16, DT_BF16, DT_BF16, DT_FP32, DT_FP32, false, false },
      OPTIMPL_FUSED,
      false,
      false },
    { "engine=fsdp",
      FW_FSDP,
      IMPL_HF,
      ENGINE_FSDP,
      3,
      PREC_BF16_MIXED,
      { DT_FP32, DT_BF16, DT_FP32, DT_BF16, DT_NONE, DT_FP32, false, false },
      OPTIMPL_FOREACH,
      true,
      false },
    { "implementation=torchtitan precision=bf16",
      FW_TORCHTITAN,
      IMPL_TORCHTITAN,
      ENGINE_FSDP2,
      3,
      PREC_BF16,
      { DT_BF16, DT_BF16, DT_BF16, DT_BF16, DT_NONE, DT_BF16, false, false },
      OPTIMPL_FUSED,
      true,
      false },
    { "gpu=v100-32gb",
      FW_HF,
      IMPL_HF,
      ENGINE_DDP,
      0,
      PREC_FP16_AMP,
      { DT_FP32, DT_FP16, DT_FP32, DT_FP32, DT_NONE, DT_FP32, true, false },
      OPTIMPL_FUSED,
      true,
      false },
    { "gpu=t4 framework=megatron",
      FW_MEGATRON,
      IMPL_MEGATRON,
      ENGINE_MEGATRON,
      1,
      PREC_FP16_MIXED,
      { DT_FP16, DT_FP16, DT_FP16, DT_FP16, DT_FP32, DT_FP32, false, false },
      OPTIMPL_FUSED,
      false,
      false },
    { "precision=fp32",
      FW_HF,
      IMPL_HF,
      ENGINE_DDP,
      0,
      PREC_FP32,
      { DT_FP32, DT_FP32, DT_FP32, DT_FP32, DT_NONE, DT_FP32, false, false },
      OPTIMPL_FUSED,
      true,
      false },
    { "precision=fp8-mixed framework=megatron gpu=h100",
      FW_MEGATRON,
      IMPL_MEGATRON,
      ENGINE_MEGATRON,
      1,
      PREC_FP8_MIXED,
      { DT_BF16, DT_BF16, DT_FP32, DT_FP32, DT_FP32, DT_FP32, false, true },
      OPTIMPL_FUSED,
      false,
      false },
    { "precision=fp16 optimizer=adam8bit",
      FW_HF,
      IMPL_HF,
      ENGINE_DDP,
      0,
      PREC_FP16,
      { DT_FP16, DT_FP16, DT_FP16, DT_FP16, DT_NONE, DT_INT8, false, false },
      OPTIMPL_FUSED,
      true,
      false },
    { "zero=1 grad_dtype=fp32 gpus=8",
      FW_DEEPSPEED,
      IMPL_HF,
      ENGINE_DEEPSPEED,
      1,
      PREC_BF16_MIXED,
      { DT_BF16, DT_BF16, DT_FP32, DT_FP32, DT_FP32, DT_FP32, false, false },
      OPTIMPL_FUSED,
      false,
      false },
    { "framework=fsdp param_dtype=bf16 reduce_dtype=fp32",
      FW_FSDP,
      IMPL_HF,
      ENGINE_FSDP,
      3,
      PREC_BF16_MIXED,
      { DT_FP32, DT_BF16, DT_FP32, DT_FP32, DT_NONE, DT_FP32, false, false },
      OPTIMPL_FOREACH,
      true,
      false },
    { "zero=1 param_dtype=fp32",
      FW_DEEPSPEED,
      IMPL_HF,
      ENGINE_DEEPSPEED,
      1,
      PREC_BF16_MIXED,
      { DT_FP32, DT_BF16, DT_FP32, DT_FP32, DT_NONE, DT_FP32, true, false },
      OPTIMPL_FUSED,
      false,
      false },
    { "lora_rank=8 precision=bf16 lora_dtype=fp32",
      FW_HF,
      IMPL_HF,
      ENGINE_DDP,
      0,
      PREC_BF16,
      { DT_FP32, DT_BF16, DT_FP32, DT_FP32, DT_NONE, DT_FP32, false, false },
      OPTIMPL_FUSED,
      true,
      false },
};

static void defaults_by_framework(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(defaults) / sizeof(defaults[0]); i++) {
        const struct defaults *x = &defaults[i];
        const struct run *r = resolved(x->pairs);
        assert_int_equal(r->framework, x->framework);
        assert_int_equal(r->impl, x->impl);
        assert_int_equal(r->engine, x->engine);
        assert_int_equal(r->zero, x->zero);
        assert_int_equal(r->precision, x->precision);
        assert_int_equal(r->prec.param, x->prec.param);
        assert_int_equal(r->prec.compute, x->prec.compute);
        assert_int_equal(r->prec.grad, x->prec.grad);
        assert_int_equal(r->prec.reduce, x->prec.reduce);
        assert_int_equal(r->prec.master, x->prec.master);
        assert_int_equal(r->prec.optim, x->prec.optim);
        assert_int_equal(r->prec.autocast, x->prec.autocast);
        assert_int_equal(r->prec.fp8, x->prec.fp8);
        assert_int_equal(r->optimizer_impl, x->optimizer_impl);
        assert_int_equal(r->overlap_comm, x->overlap);
        assert_int_equal(r->sequence_parallel, x->sp);
    }
}

static void nothing_set(void **state)
{
    (void)state;
    const struct run *r = resolved("");
    assert_string_equal(r->gpu.name, "a100-80gb");
    assert_int_equal(r->capacity_bytes, r->gpu.visible_bytes);
    assert_true(r->peak_flop_s > 311e12 && r->peak_flop_s < 313e12);
    assert_int_equal(r->gpus, 1);
    assert_int_equal(r->gpus_per_node, 8);
    assert_int_equal(r->micro_batch, 1);
    assert_int_equal(r->grad_accum, 1);
    assert_int_equal(r->global_batch, 1);
    assert_int_equal(r->seq_len, 4096);
    assert_int_equal(r->attention, ATTN_FLASH);
    assert_int_equal(r->recompute, RECOMP_NONE);
    assert_int_equal(r->shard, 1);
    assert_int_equal(r->stage_layers[0], 32);
    assert_int_equal(r->vocab, 128256);
    assert_int_equal(r->reduce_bucket, 500000000);
    assert_int_equal(r->ddp_bucket_bytes, 26214400);
    assert_true(r->clip_grad);
    assert_true(r->tokens > 1.6e11 && r->tokens < 1.61e11);
    assert_true(r->mfu > 0.49 && r->mfu < 0.51);
    static const char *const said[] = {
        "--gpu)",          "--gpus)",      "--framework)", "--seq-len)",
        "--micro-batch)",  "--precision)", "--optimizer)", "--optimizer-impl)",
        "--attention)",    "--recompute)", "--mfu)",       "--tokens)",
        "--availability)", "--price)",
    };
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
        if (!assumes(r, said[i]))
            print_error("%s\n", said[i]);
        assert_true(assumes(r, said[i]));
    }
    assert_true(assumes(r, "161B tokens, 20 per parameter"));
    assert_true(assumes(r, "50 % on Ampere"));
}

static void what_is_given_is_not_assumed(void **state)
{
    (void)state;
    const struct run *r =
        resolved("gpu=h100 gpus=8 framework=fsdp zero=3 seq_len=2048 "
                 "micro_batch=2 precision=bf16-mixed optimizer=adamw "
                 "optimizer_impl=fused attention=sdpa recompute=full mfu=0.4 "
                 "tokens=1T availability=0.9 price=2");
    for (size_t i = 0; i < r->n_assumptions; i++) {
        if (r->given[r->assumption[i].key])
            print_error("%s\n", r->assumption[i].text);
        assert_false(r->given[r->assumption[i].key]);
    }
    assert_int_equal(r->recompute_layers, 32);
    assert_int_equal(r->recompute_granularity, 1);
    assert_int_equal(r->shard, 8);
}

static void every_key_is_echoed(void **state)
{
    (void)state;
    static const enum setup_key absent[] = {
        KEY_DECODER_SEQ_LEN,
        KEY_FP8_RECIPE,
        KEY_RECOMPUTE_MODULES,
        KEY_RECOMPUTE_LAYERS,
        KEY_RECOMPUTE_GRANULARITY,
        KEY_SHARD_DEGREE,
        KEY_LORA_TARGETS,
        KEY_LORA_FULL_MODULES,
        KEY_LORA_DTYPE,
        KEY_BASE_DTYPE,
        KEY_DOUBLE_QUANT,
        KEY_PARAMS,
        KEY_DAYS,
        KEY_BUDGET,
    };
    const struct run *r = resolved("");
    for (size_t k = 0; k < KEY_COUNT; k++) {
        bool may_lack = false;
        for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
            may_lack = may_lack || absent[i] == k;
        if (r->setup.set[k] == may_lack)
            print_error("%s\n", setup_field(k)->key);
        assert_int_equal(r->setup.set[k], !may_lack);
    }
    assert_string_equal(value_text(&r->setup, KEY_PARAM_DTYPE), "fp32");
    assert_string_equal(value_text(&r->setup, KEY_PIPELINE_LAYERS), "32");
    assert_string_equal(value_text(&r->setup, KEY_GPU), "a100-80gb");
}

static void layouts_are_resolved(void **state)
{
    (void)state;
    const struct run *r = resolved("gpus=128 tp=4 pp=4 global_batch=256 "
                                   "micro_batch=2");
    assert_int_equal(r->dp, 8);
    assert_int_equal(r->shard, 8);
    assert_int_equal(r->grad_accum, 16);
    assert_int_equal(r->schedule, SCHED_1F1B);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(r->stage_layers[i], 8);
    assert_int_equal(r->vocab, 128512); /* next multiple of 512 */
    assert_string_equal(value_text(&r->setup, KEY_DP), "8");
    assert_string_equal(value_text(&r->setup, KEY_PIPELINE_LAYERS), "8,8,8,8");

    r = resolved("gpus=16 tp=16"); /* 8 key-value heads, copied twice */
    assert_int_equal(r->dp, 1);
    assert_true(assumes(r, "spans nodes"));

    r = resolved("pp=4 vpp=2");
    assert_int_equal(r->gpus, 4);
    assert_int_equal(r->schedule, SCHED_INTERLEAVED);
    assert_int_equal(r->grad_accum, 4);
    assert_true(assumes(r, "4 GPUs, as the layout needs"));

    r = resolved("gpus=2 pp=2 pipeline_layers=17,15 zero=0");
    assert_int_equal(r->stage_layers[0], 17);
    assert_int_equal(r->shard, 1);
    assert_true(assumes(r, "1 micro-batch a step"));

    r = resolved("gpus=16 cp=2");
    assert_int_equal(r->dp, 8);
    assert_int_equal(r->shard, 16);

    r = resolved("gpus=16 framework=fsdp shard_degree=4");
    assert_int_equal(r->shard, 4);

    r = resolved("gpus=8 global_batch=64 grad_accum=4");
    assert_int_equal(r->micro_batch, 2);
    r = resolved("gpus=8 global_batch=64");
    assert_int_equal(r->grad_accum, 8);
    r = resolved("gpus=8 micro_batch=4 grad_accum=2");
    assert_int_equal(r->global_batch, 64);
    r = resolved("dp=4 tp=2");
    assert_int_equal(r->gpus, 8);
}

static void experts_are_spread(void **state)
{
    (void)state;
    const struct run *r = resolve_as('m', "gpus=64 ep=8 tp=2");
    assert_int_equal(cs.status, MEMPLAN_OK);
    assert_int_equal(r->shard, 32);
    assert_int_equal(r->expert_shard, 8);
    r = resolve_as('m', "ep=8");
    assert_int_equal(cs.status, MEMPLAN_OK);
    assert_int_equal(r->gpus, 8);
    assert_int_equal(r->expert_shard, 1);
    r = resolve_as('m', "gpus=8 ep=8 zero=0");
    assert_int_equal(r->expert_shard, 1);
    assert_int_equal(r->shard, 1);
}

static void models_set_limits(void **state)
{
    (void)state;
    const struct run *r = resolve_as('g', "");
    assert_int_equal(cs.status, MEMPLAN_OK);
    assert_int_equal(r->seq_len, 1024);
    assert_true(assumes(r, "sequence length 1024, the model's limit"));
    assert_true(assumes(r, "dropout"));
    assert_true(r->attention_dropout > 0.09);
    r = resolve_as('g', "dropout=0 framework=megatron");
    assert_true(r->hidden_dropout <= 0 && r->attention_dropout <= 0);
    assert_int_equal(r->vocab, 50304);
    r = resolved("seq_len=16384");
    assert_true(assumes(r, "beyond the model's 8192"));

    fresh();
    struct spec s = llama();
    s.max_positions = 0;
    assert_int_equal(setup_resolve(&cs.run, &cs.setup, &s, PARAMS, &cs.diag),
                     MEMPLAN_OK);
    assert_int_equal(cs.run.seq_len, 2048);
    assert_true(assumes(&cs.run, "names no limit"));
}

static void hardware_is_resolved(void **state)
{
    (void)state;
    const struct run *r = resolved("gpu=v100-32gb");
    assert_int_equal(r->attention, ATTN_SDPA);
    assert_true(assumes(r, "25 % on Volta"));
    r = resolved("gpu=v100-32gb precision=bf16");
    assert_true(assumes(r, "emulated"));
    assert_true(r->peak_flop_s <= r->gpu.peak_fp32_flop_s);
    r = resolved("gpu=h100 precision=fp8-mixed framework=torchtitan");
    assert_true(r->peak_flop_s > 1.9e15);
    assert_int_equal(r->fp8_recipe, FP8_TENSORWISE);
    assert_true(assumes(r, "30 % on Hopper, of the fp8 peak"));
    r = resolved("gpu_memory=40GiB peak_flops=100T price=3.25");
    assert_int_equal(r->capacity_bytes, UINT64_C(40) << 30);
    assert_true(r->peak_flop_s > 99e12 && r->peak_flop_s < 101e12);
    assert_true(r->price_usd_h > 3.24 && r->price_usd_h < 3.26);
}

static void adapters_are_resolved(void **state)
{
    (void)state;
    const struct run *r = resolved("lora_rank=16");
    assert_int_equal(r->lora_dtype, DT_FP32);
    assert_int_equal(r->base_dtype, DT_BF16);
    assert_int_equal(r->lora_targets, 1u << LORA_ALL_LINEAR);
    r = resolved("lora_rank=16 framework=deepspeed zero=2 lora_targets=q,v "
                 "lora_full_modules=norm base_dtype=fp16");
    assert_int_equal(r->lora_dtype, DT_BF16);
    assert_int_equal(r->base_dtype, DT_FP16);
    assert_int_equal(r->prec.master, DT_FP32);
    assert_int_equal(r->lora_targets, 1u << LORA_Q | 1u << LORA_V);
    assert_int_equal(r->lora_full, 1u << LORA_FULL_NORM);
    r = resolved("lora_rank=16 framework=deepspeed lora_dtype=fp32");
    assert_int_equal(r->prec.master, DT_NONE);
    assert_string_equal(value_text(&r->setup, KEY_MASTER_DTYPE), "none");
}

static void selective_recomputation(void **state)
{
    (void)state;
    const struct run *r = resolved("recompute=selective");
    assert_int_equal(r->recompute_modules, 1u << REMOD_CORE_ATTN);
    r = resolved("recompute_modules=mlp,layernorm");
    assert_int_equal(r->recompute, RECOMP_SELECTIVE);
    assert_int_equal(r->recompute_modules,
                     1u << REMOD_MLP | 1u << REMOD_LAYERNORM);
    r = resolved("recompute=full recompute_layers=16");
    assert_int_equal(r->recompute_layers, 16);
}

static void without_a_model(void **state)
{
    (void)state;
    fresh();
    set_all("params=70B gpus=64 gpu=h100 days=7 budget=1e24");
    assert_int_equal(setup_resolve(&cs.run, &cs.setup, NULL, 0, &cs.diag),
                     MEMPLAN_OK);
    assert_int_equal(cs.run.gpus, 64);
    assert_true(cs.run.tokens > 1.39e12 && cs.run.tokens < 1.41e12);
    assert_true(cs.run.params > 6.9e10 && cs.run.params < 7.1e10);
    assert_true(cs.run.days > 6.9 && cs.run.budget_flop > 9e23);
    assert_true(assumes(&cs.run, "40 % on Hopper"));
    fresh();
    assert_int_equal(setup_resolve(&cs.run, &cs.setup, NULL, 0, &cs.diag),
                     MEMPLAN_OK);
    assert_true(cs.run.tokens <= 0);
}

static void bare_runs(void **state)
{
    (void)state;
    struct spec s = llama();
    struct run r;
    run_bare(&r, &s);
    assert_int_equal(r.gpus, 1);
    assert_int_equal(r.micro_batch, 1);
    assert_int_equal(r.seq_len, 1);
    assert_int_equal(r.vocab, s.vocab);
    assert_int_equal(r.stage_layers[0], 32);
    assert_int_equal(r.prec.param, DT_BF16);
    assert_int_equal(r.n_assumptions, 0);
}

/* ---- what cannot be ---- */

static const struct bad_layout {
    const char *pairs;
    memplan_status status;
    const char *key, *message, *hint;
    char model; /* 'l'lama when 0, 'g'pt2, 'm'ixtral */
} bad_layouts[] = {
#define C MEMPLAN_E_CONFLICT
#define U MEMPLAN_E_UNSUPPORTED
    { "gpus=64 tp=3 seq_len=1023", C, "tp", "64 GPUs cannot be split into tp 3",
      "use 1, 2, 4, 8, 16, 32 or 64", 'g' },
    { "gpus=64 tp=4 pp=3", C, "pp",
      "64 GPUs cannot be split into pp 3 beside a group of 4",
      "use 1, 2, 4, 8 or 16", 'g' },
    { "gpus=64 pp=64", C, "pp", "pp 64 needs 64 layers, the model has 32",
      "use 1, 2, 4, 8, 16 or 32", 0 },
    { "gpus=4 tp=8", C, "gpus", "needs 8 GPUs, and there are 4", "use --gpus 8",
      0 },
    { "gpus=16 tp=4 cp=3 seq_len=4080", C, "cp", "cannot be split into cp 3",
      "use 1, 2 or 4", 0 },
    { "gpus=64 tp=8 dp=4", C, "dp", "make dp 8", "use --gpus 32", 0 },
    { "tp=3", C, "tp", "32 attention heads do not split over tp 3",
      "use 1, 2, 4, 8, 16 or 32", 0 },
    { "tp=16 framework=torchtitan", C, "tp",
      "8 key-value heads do not split over tp 16", "use 1, 2, 4 or 8", 0 },
    { "tp=8", C, "tp", "12 attention heads do not split", "use 1, 2, 3", 'g' },
    { "tp=4 vocab_multiple=1", C, "vocab_multiple",
      "vocabulary of 50257 does not split over tp 4",
      "use --vocab-multiple 512", 'g' },
    { "pp=5", C, "pp", "32 layers do not split evenly over pp 5",
      "or give --pipeline-layers", 0 },
    { "pp=2 pipeline_layers=8,8,16", C, "pipeline_layers",
      "has 3 entries for pp 2", "use --pp 3", 0 },
    { "pp=2 pipeline_layers=8,8", C, "pipeline_layers",
      "adds up to 16, the model has 32 layers", "add up to 32", 0 },
    { "pp=4 vpp=3", C, "vpp", "8 layers per stage do not split over vpp 3",
      "use 1, 2, 4 or 8", 0 },
    { "vpp=2", C, "vpp", "vpp 2 without pipeline stages", "--pp 2", 0 },
    { "pp=2 schedule=interleaved", C, "schedule", "one chunk per stage",
      "add --vpp 2", 0 },
    { "pp=2 vpp=2 schedule=1f1b", C, "vpp", "vpp 2 with schedule '1f1b'",
      "use --schedule interleaved", 0 },
    { "pp=4 vpp=2 grad_accum=6", C, "grad_accum",
      "cannot run 6 micro-batches through pp 4", "--grad-accum 8", 0 },
    { "gpus=4 global_batch=100 micro_batch=8", C, "global_batch",
      "global_batch 100 is not a multiple of micro_batch x dp = 32",
      "use 96 or 128", 0 },
    { "gpus=4 global_batch=2", C, "global_batch", "is not a multiple",
      "use 4, or fewer", 0 },
    { "gpus=4 global_batch=10 grad_accum=2", C, "global_batch",
      "not a multiple of grad_accum x dp = 8", "use 8 or 16", 0 },
    { "gpus=4 global_batch=64 micro_batch=2 grad_accum=4", C, "global_batch",
      "is not micro_batch 2 x grad_accum 4 x dp 4 = 32", "--global-batch 32",
      0 },
    { "ep=2", C, "ep", "ep 2 for a model without experts", "leave ep out", 0 },
    { "gpus=6 ep=3", C, "ep", "8 experts do not split over ep 3",
      "use 1, 2, 4 or 8", 'm' },
    { "gpus=12 ep=8", C, "ep", "ep 8 does not divide the 12 ranks",
      "use 1, 2, 3, 4, 6 or 12", 'm' },
    { "seq_len=2048", C, "seq_len", "beyond the model's 1024 learned",
      "use --seq-len 1024 or less", 'g' },
    { "cp=4 seq_len=1001", C, "cp",
      "seq_len 1001 is not a multiple of 8 (2 x cp)",
      "use --seq-len 1000 or 1008", 0 },
    { "tp=2 seq_len=1001", C, "tp", "not a multiple of 2 (tp",
      "use --seq-len 1000 or 1002", 0 },
    { "decoder_seq_len=128", C, "decoder_seq_len", "one stack", "leave it out",
      0 },
    { "framework=hf zero=2", C, "zero",
      "zero 2 with engine 'ddp', which shards nothing",
      "use --framework deepspeed", 0 },
    { "framework=fsdp zero=1", C, "zero", "zero 1 is not something FSDP has",
      "use --zero 2 (shard_grad_op) or 3", 0 },
    { "framework=torchtitan zero=1", C, "zero", "FSDP", "--zero 2", 0 },
    { "framework=megatron zero=3", C, "zero", "zero 3 with engine 'megatron'",
      "fsdp2 or megatron-fsdp", 0 },
    { "framework=megatron-deepspeed pp=2 zero=2", C, "zero",
      "zero 2 under DeepSpeed's pipelines", "use --zero 1", 0 },
    { "gpus=8 framework=fsdp shard_degree=3", C, "shard_degree",
      "does not divide the 8 data-parallel ranks", "use 1, 2, 4 or 8", 0 },
    { "gpus=8 shard_degree=4", C, "shard_degree", "with zero 0", "use --zero 1",
      0 },
    { "framework=megatron precision=bf16-amp", C, "precision",
      "engine 'megatron' has no 32-bit weights", "bf16-mixed", 0 },
    { "precision=fp8-mixed framework=torchtitan", C, "precision",
      "on a100-80gb, which has no fp8", "--gpu h100-80gb", 0 },
    { "precision=tf32 gpu=v100-32gb", C, "precision", "no tf32",
      "--precision fp32", 0 },
    { "fp8_recipe=delayed", C, "fp8_recipe", "fp8_recipe with precision",
      "--precision fp8-mixed", 0 },
    { "param_dtype=none", C, "param_dtype", "param_dtype 'none' leaves",
      "use fp32, bf16 or fp16", 0 },
    { "grad_dtype=int8", U, "grad_dtype", "grad_dtype 'int8' is not modelled",
      "use fp32, bf16 or fp16", 0 },
    { "optimizer_dtype=none", C, "optimizer_dtype", "leaves nothing", "use",
      0 },
    { "attention=flash gpu=v100-32gb", C, "attention", "'flash' on v100-32gb",
      "use --attention sdpa", 0 },
    { "recompute=full recompute_modules=mlp", C, "recompute_modules",
      "without recompute 'selective'", "--recompute selective", 0 },
    { "recompute_layers=4", C, "recompute_layers", "without recompute",
      "add --recompute full", 0 },
    { "recompute_granularity=4", C, "recompute_granularity", "'full'",
      "add --recompute full", 0 },
    { "recompute=full recompute_layers=33", C, "recompute_layers",
      "recompute_layers 33 with 32 layers per stage", "use 32 at most", 0 },
    { "recompute_modules=moe", C, "recompute_modules", "names experts",
      "use core_attn", 0 },
    { "recompute_modules=mla_up_proj", C, "recompute_modules",
      "latent attention", "use core_attn", 0 },
    { "lora_targets=q", C, "lora_targets", "lora_targets without lora_rank",
      "add --lora-rank 16", 0 },
    { "base_dtype=bf16", C, "base_dtype", "without lora_rank", "--lora-rank",
      0 },
    { "lora_rank=8 framework=megatron", U, "lora_rank",
      "lora_rank with framework 'megatron' is not modelled yet",
      "use --framework hf, deepspeed or fsdp", 0 },
    { "params=7B", C, "params", "params beside a model", "leave one", 0 },
    { "offload_optimizer=cpu zero=0 framework=deepspeed", C,
      "offload_optimizer", "with zero 0", "add --zero 1, 2 or 3", 0 },
    { "offload_optimizer=cpu framework=fsdp", U, "offload_optimizer",
      "with engine 'fsdp' is not modelled", "--framework deepspeed", 0 },
    { "framework=deepspeed tp=2", U, "tp",
      "tp 2 with implementation 'hf' is not modelled yet",
      "use --framework megatron or torchtitan", 0 },
    { "framework=torchtitan engine=fsdp pp=2", U, "pp",
      "pp 2 with engine 'fsdp' is not modelled yet", "--framework megatron",
      0 },
    { "pp=2 schedule=zb-h1", U, "schedule",
      "schedule 'zb-h1' is not modelled yet", "1f1b", 0 },
    { "pp=2 schedule=zb-v", U, "schedule", "'zb-v'", "1f1b", 0 },
    { "pp=2 schedule=dualpipe", U, "schedule", "'dualpipe'", "1f1b", 0 },
    { "pp=2 schedule=naive", U, "schedule", "'naive'", "1f1b", 0 },
    { "framework=torchtune", U, "implementation", "'torchtune'",
      "torchtitan or hf", 0 },
    { "implementation=litgpt", U, "implementation", "'litgpt'", "hf", 0 },
    { "implementation=megatron-local", U, "implementation", "'megatron-local'",
      "--implementation megatron", 0 },
    { "engine=megatron-fsdp", U, "engine", "'megatron-fsdp'", "fsdp2", 0 },
    { "cuda_graph=true", U, "cuda_graph", "'cuda_graph' is not modelled yet",
      "leave it out", 0 },
    { "ep_overlap=true", U, "ep_overlap", "'ep_overlap'", "leave it out", 0 },
    { "compile=true", U, "compile", "'compile'", "leave it out", 0 },
    { "offload_params=cpu", U, "offload_params", "'cpu'", "deepspeed", 0 },
    { "offload_activations=cpu", U, "offload_activations", "'cpu'",
      "--recompute full", 0 },
    { "offload_optimizer=nvme framework=deepspeed zero=3", U,
      "offload_optimizer", "'nvme'", "cpu", 0 },
    { "lora_rank=8 base_dtype=nf4", U, "base_dtype", "'nf4'", "bf16", 0 },
    { "lora_rank=8 base_dtype=int8", U, "base_dtype", "'int8'", "bf16", 0 },
    { "lora_rank=8 base_dtype=int4", U, "base_dtype", "'int4'", "bf16", 0 },
    { "lora_rank=8 base_dtype=fp4", U, "base_dtype", "'fp4'", "bf16", 0 },
    { "lora_rank=8 double_quant=true", U, "double_quant", "'double_quant'",
      "leave it out", 0 },
    { "recompute=ops", U, "recompute", "'ops'", "selective or full", 0 },
    { "loss=chunked", U, "loss", "'chunked'", "standard or fused", 0 },
    { "etp=2 tp=2 gpus=8 ep=2", U, "etp", "etp '2'", "leave etp at 1", 'm' },
    { "optimizer_in_backward=true", U, "optimizer_in_backward",
      "'optimizer_in_backward'", "leave it out", 0 },
    { "precision=fp4-mixed gpu=b200", U, "precision", "'fp4-mixed'",
      "fp8-mixed", 0 },
    { "fp8_params=true precision=fp8-mixed gpu=h100 framework=torchtitan", U,
      "fp8_params", "'fp8_params'", "leave it out", 0 },
#undef C
#undef U
};

static void impossible_layouts_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_layouts) / sizeof(bad_layouts[0]); i++) {
        const struct bad_layout *b = &bad_layouts[i];
        resolve_as(b->model ? b->model : 'l', b->pairs);
        if (cs.errs.count != 1 || cs.status != b->status) {
            print_error("%s: %zu errors, status %d\n", b->pairs, cs.errs.count,
                        (int)cs.status);
            for (size_t k = 0; k < cs.errs.count && k < ERRORS_MAX; k++)
                print_error("    %s (%s)\n", cs.slot[k].message,
                            cs.slot[k].hint);
        }
        assert_int_equal(cs.errs.count, 1);
        assert_int_equal(cs.status, b->status);
        assert_has(cs.slot[0].message, b->message);
        assert_has(cs.slot[0].hint, b->hint);
        assert_string_equal(cs.slot[0].key, b->key);
    }
}

static void all_reasons_are_reported(void **state)
{
    (void)state;
    resolve_as('l', "gpus=64 tp=3 zero=3 framework=megatron "
                    "cuda_graph=true recompute_layers=2");
    assert_int_equal(cs.status, MEMPLAN_E_CONFLICT);
    assert_int_equal(cs.errs.count, 5);
}

static void reports_without_room(void **state)
{
    (void)state;
    memset(&cs, 0, sizeof(cs));
    diag_init(&cs.diag, NULL);
    assert_int_equal(set("gpus", "x"), MEMPLAN_E_ARG);
    assert_int_equal(set("gpus", "64"), MEMPLAN_OK);
    assert_int_equal(set("tp", "3"), MEMPLAN_OK);
    diag_init(&cs.diag, NULL);
    struct spec s = llama();
    assert_int_equal(setup_resolve(&cs.run, &cs.setup, &s, 1, &cs.diag),
                     MEMPLAN_E_CONFLICT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_sound),
        cmocka_unit_test(groups_stay_together),
        cmocka_unit_test(every_key_is_settable),
        cmocka_unit_test(words_are_their_enum),
        cmocka_unit_test(dtype_keys_store_the_enum),
        cmocka_unit_test(bad_values_are_refused),
        cmocka_unit_test(negative_counts_are_refused),
        cmocka_unit_test(a_refused_value_changes_nothing),
        cmocka_unit_test(setup_files_are_read),
        cmocka_unit_test(bad_setup_files_are_refused),
        cmocka_unit_test(defaults_by_framework),
        cmocka_unit_test(nothing_set),
        cmocka_unit_test(what_is_given_is_not_assumed),
        cmocka_unit_test(every_key_is_echoed),
        cmocka_unit_test(layouts_are_resolved),
        cmocka_unit_test(experts_are_spread),
        cmocka_unit_test(models_set_limits),
        cmocka_unit_test(hardware_is_resolved),
        cmocka_unit_test(adapters_are_resolved),
        cmocka_unit_test(selective_recomputation),
        cmocka_unit_test(without_a_model),
        cmocka_unit_test(bare_runs),
        cmocka_unit_test(impossible_layouts_are_refused),
        cmocka_unit_test(all_reasons_are_reported),
        cmocka_unit_test(reports_without_room),
    };
    return cmocka_run_group_tests_name("setup", tests, NULL, NULL);
}
