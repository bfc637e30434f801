/* Other programs' configurations: their tables, what each of their keys means
 * here, and what is said of the rest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "spec/config.h"

/* ---- reading ---- */

enum { ERRORS_MAX = 16 };

static struct {
    struct setup setup;
    memplan_error slot[ERRORS_MAX];
    memplan_errors errs;
    memplan_status status;
} got;

static const struct config_dialect *dialect_of(const char *name)
{
    size_t i = 0;
    while (config_dialect(i) != NULL
           && strcmp(config_dialect(i)->name, name) != 0)
        i++;
    assert_non_null(config_dialect(i));
    return config_dialect(i);
}

/* Into the setup as it is. */
static void read_bytes(const char *dialect, const char *text, size_t len)
{
    got.errs = (memplan_errors){ got.slot, ERRORS_MAX, 0 };
    struct diag d;
    diag_init(&d, &got.errs);
    struct arena a;
    arena_init(&a, NULL);
    const struct config_dialect *of = dialect_of(dialect);
    const struct json *root = of->parse(&a, text, len, &d);
    if (root != NULL)
        config_read(&(struct config){ .s = &got.setup,
                                      .table = of->table,
                                      .root = root,
                                      .text = text,
                                      .len = len,
                                      .name = "f",
                                      .d = &d });
    arena_release(&a);
    got.status = d.status;
}

static void import_bytes(const char *dialect, const char *text, size_t len)
{
    memset(&got, 0, sizeof(got));
    read_bytes(dialect, text, len);
}

static void import(const char *dialect, const char *text)
{
    import_bytes(dialect, text, strlen(text));
}

static const char *value(const char *key)
{
    static char buf[256];
    return setup_value_text(&got.setup, setup_find_key(str_of(key)), buf,
                            sizeof(buf));
}

/* "zero=3 micro_batch=4"; a key that is not to be set has nothing behind '='. */
static void has(const char *pairs)
{
    struct str rest = str_of(pairs);
    while (rest.n > 0) {
        struct str want;
        struct str key = str_cut(str_cut(rest, ' ', &rest), '=', &want);
        char name[64];
        char wanted[64];
        str_format(name, sizeof(name), "%.*s", (int)key.n, key.p);
        str_format(wanted, sizeof(wanted), "%.*s", (int)want.n, want.p);
        if (strcmp(value(name), wanted) != 0)
            fail_msg("%s is '%s', not '%s'", name, value(name), wanted);
    }
}

static void noted(const char *part)
{
    for (size_t i = 0; i < got.setup.notes; i++) {
        if (strstr(got.setup.note[i], part) != NULL)
            return;
    }
    fail_msg("no note says '%s'", part);
}

static void unnoted(const char *part)
{
    for (size_t i = 0; i < got.setup.notes; i++)
        assert_null(strstr(got.setup.note[i], part));
}

static void refused(memplan_status status, const char *message, size_t line)
{
    assert_int_equal(got.status, status);
    assert_string_equal(got.slot[0].message, message);
    assert_int_equal(got.slot[0].line, line);
    assert_true(got.slot[0].hint[0] != '\0');
}

static void hinted(const char *part)
{
    assert_int_not_equal(got.status, MEMPLAN_OK);
    if (strstr(got.slot[0].hint, part) == NULL)
        fail_msg("hints '%s', not '%s'", got.slot[0].hint, part);
}

/* ---- tables ---- */

static void check_value(const struct config_row *row, struct str key,
                        struct str ours)
{
    struct setup s = { .notes = 0 };
    struct diag d;
    diag_init(&d, NULL);
    if (setup_set(&s, key, ours, &d) != MEMPLAN_OK)
        fail_msg("%s: '%.*s' is no value", row->path, (int)ours.n, ours.p);
}

/* A FlashAttention's name says which kernel it is, but where it has no times
 * of its own. */
static void check_flash(const struct config_row *row, struct str theirs,
                        struct str ours, struct str also)
{
    if (row->key == KEY_ATTENTION && row->write == WRITE_NEVER
        && str_is(ours, "flash") && !str_is(theirs, "flash_attention_4")
        && !str_is(also, "attention_kernel"))
        fail_msg("%s: '%.*s' is no kernel", row->path, (int)theirs.n, theirs.p);
}

/* A table whose row cannot work is a mistake of ours. */
static void check_words(const struct config_row *row)
{
    struct str rest = str_of(row->words);
    assert_true(rest.n > 0);
    while (rest.n > 0) {
        struct str ours, also;
        struct str theirs = str_cut(str_cut(rest, ' ', &rest), '=', &ours);
        if (ours.n == 0 || str_is(ours, "?")) /* nothing set, not modelled */
            continue;
        if (ours.p[0] == '?') /* refused once the run is known */
            ours = (struct str){ ours.p + 1, ours.n - 1 };
        ours = str_cut(ours, '+', &also);
        check_value(row, str_of(setup_field(row->key)->key), ours);
        assert_true(also.n == 0 || row->write == WRITE_NEVER);
        struct str value, key = str_cut(also, '=', &value);
        check_flash(row, theirs, ours, key);
        if (also.n > 0)
            check_value(row, key, value);
    }
}

/* Only one of an Accelerate file's blocks is written. */
static bool by_blocks(const struct config_table *t, const char *a,
                      const char *b)
{
    const char *dot = strchr(a, '.');
    return t->writes != NULL
           && (dot == NULL || strncmp(a, b, (size_t)(dot - a)) != 0);
}

/* A key is written in one place. */
static void check_written(const struct config_table *t, size_t i)
{
    const struct config_row *row = &t->row[i];
    assert_true(row->key < KEY_COUNT);
    for (size_t k = 0; k < i && row->write != WRITE_NEVER; k++) {
        if (t->row[k].key == row->key && t->row[k].write != WRITE_NEVER
            && !by_blocks(t, row->path, t->row[k].path))
            fail_msg("%s and %s are both written", t->row[k].path, row->path);
    }
}

static void check_row(const struct config_table *t, size_t i)
{
    const struct config_row *row = &t->row[i];
    for (size_t k = 0; k < i; k++) {
        if (strcmp(t->row[k].path, row->path) == 0)
            fail_msg("%s has two rows", row->path);
    }
    switch (row->rule) {
    case CONFIG_SAME: check_written(t, i); break;
    case CONFIG_WORDS:
        check_written(t, i);
        check_words(row);
        break;
    case CONFIG_ONLY:
    case CONFIG_ASIDE: assert_true(row->words[0] != '\0'); break;
    case CONFIG_QUIET:
    case CONFIG_SHAPE: assert_int_equal(row->key, KEY_COUNT); break;
    case CONFIG_LATER:
        assert_true((row->key < KEY_COUNT) == (row->write != WRITE_NEVER));
        for (const char *p = strchr(row->words, '='); p != NULL;
             p = strchr(p + 1, '='))
            assert_true(p[1] == ' ' || p[1] == '\0'); /* sets nothing */
        break;
    }
}

static void test_tables(void **state)
{
    (void)state;
    for (size_t i = 0; config_dialect(i) != NULL; i++) {
        for (size_t k = 0; k < config_dialect(i)->table->rows; k++)
            check_row(config_dialect(i)->table, k);
    }
}

/* ---- DeepSpeed ---- */

static void test_deepspeed(void **state)
{
    (void)state;
    import("deepspeed",
           "{\"bf16\": {\"enabled\": true}, \"gradient_clipping\": 1.0,\n"
           " \"train_micro_batch_size_per_gpu\": 4,\n"
           " \"gradient_accumulation_steps\": 2, \"steps_per_print\": 10,\n"
           " \"zero_optimization\": {\"stage\": 3, \"sub_group_size\": 1e8,\n"
           "   \"offload_optimizer\": {\"device\": \"cpu\"},\n"
           "   \"stage3_prefetch_bucket_size\": \"auto\",\n"
           "   \"stage3_max_live_parameters\": 5e8}, \"nonsense\": 1}");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("framework=deepspeed precision=bf16-mixed clip_grad=true micro_batch=4 "
        "grad_accum=2 zero=3 sub_group_size=100000000 offload_optimizer=cpu "
        "max_live_params=500000000 prefetch_bucket=");
    noted("f: not known, so ignored: nonsense");
    assert_true(got.setup.automatic[KEY_PREFETCH_BUCKET]);
    assert_false(got.setup.automatic[KEY_REDUCE_BUCKET]);
    noted("f: no effect on memory or compute: steps_per_print");
}

/* What the file leaves out is DeepSpeed's default. */
static void test_deepspeed_defaults(void **state)
{
    (void)state;
    import("deepspeed", "{}");
    has("precision=fp32 clip_grad=false zero= reduce_bucket= optimizer=");
    import("deepspeed", "{\"bf16\": {\"enabled\": \"auto\"}, "
                        "\"gradient_clipping\": \"auto\"}");
    has("precision= clip_grad=");
    noted("f: 'auto' is for its program to fill in, so not set: bf16.enabled, "
          "gradient_clipping");
    import("deepspeed", "{\"gradient_clipping\": 0}");
    has("clip_grad=false");
    import("deepspeed", "{\"zero_optimization\": {\"sub_group_size\": 0}}");
    has("sub_group_size=1");
}

static void test_deepspeed_words(void **state)
{
    (void)state;
    import("deepspeed",
           "{\"optimizer\": {\"type\": \"Adam\", "
           "\"params\": {\"torch_adam\": true}},"
           "\"communication_data_type\": \"bfp16\","
           "\"fp16\": {\"enabled\": true},"
           "\"zero_optimization\": {\"cpu_offload\": true, "
           "\"mics_shard_size\": 8, \"zero_hpz_partition_size\": 1, "
           "\"mics_hierarchical_params_gather\": true, "
           "\"contiguous_gradients\": false, "
           "\"round_robin_gradients\": true, "
           "\"use_multi_rank_bucket_allreduce\": false}}");
    has("optimizer=adamw optimizer_impl=foreach reduce_dtype=bf16 "
        "precision=fp16-mixed offload_optimizer=cpu mics_shard_size=8 "
        "mics_hierarchical_params_gather=true contiguous_gradients=false "
        "round_robin_gradients=true multi_rank_bucket_allreduce=false "
        "shard_degree=");
    import("deepspeed", "{\"optimizer\": {\"type\": \"SGD\", "
                        "\"params\": {\"momentum\": 0.9}},"
                        "\"zero_optimization\": {\"mics_shard_size\": -1, "
                        "\"zero_hpz_partition_size\": 8}}");
    has("optimizer=momentum mics_shard_size= hpz_partition_size=8");
    import("deepspeed", "{\"zero_optimization\": {\"offload_optimizer\": "
                        "{\"device\": \"cpu\", \"ratio\": 0.3}}}");
    has("offload_optimizer=cpu offload_ratio=0.3");
    import("deepspeed", "{\"zero_optimization\": {"
                        "\"zero_quantized_weights\": true, "
                        "\"zero_quantized_nontrainable_weights\": true, "
                        "\"zero_quantized_gradients\": true}}");
    has("zero_quantized_weights=true zero_quantized_gradients=true");
    noted("zero_optimization.zero_quantized_nontrainable_weights true is not "
          "modelled: false is assumed");
    import("deepspeed", "{\"sequence_parallel_size\": 4}");
    has("cp=4 cp_comm=a2a");
    import("deepspeed", "{\"sequence_parallel_size\": 1}");
    has("cp= cp_comm=");
    import("accelerate", "distributed_type: DEEPSPEED\nparallelism_config:\n"
                         "  parallelism_config_sp_size: 8\n"
                         "  parallelism_config_sp_attn_implementation: sdpa\n");
    has("cp=8 cp_comm=a2a attention=sdpa");
}

static void test_deepspeed_formats(void **state)
{
    (void)state;
    import("deepspeed", "{\"torch_autocast\": {\"enabled\": true, "
                        "\"dtype\": \"bfloat16\", "
                        "\"lower_precision_safe_modules\": "
                        "[\"torch.nn.Linear\"]}}");
    has("precision=bf16-amp");
    noted("f: torch_autocast.lower_precision_safe_modules is not modelled: "
          "gradients of linears and convolutions are sent in 16 bits");
    import("deepspeed", "{\"torch_autocast\": {\"enabled\": true, "
                        "\"dtype\": \"half\"}}");
    has("precision=fp16-amp");
    import("deepspeed", "{\"torch_autocast\": {\"enabled\": false}}");
    has("precision=fp32");
    import("deepspeed", "{\"torch_autocast\": {\"enabled\": true}}");
    refused(MEMPLAN_E_UNSUPPORTED,
            "torch_autocast without a type of 16 bits is not modelled", 1);
    import("deepspeed", "{\"torch_autocast\": {\"enabled\": true, "
                        "\"dtype\": \"bf16\"}, "
                        "\"bf16\": {\"enabled\": true}}");
    has("precision=bf16-mixed");
    noted("f: torch_autocast beside 16-bit weights is not modelled: they are "
          "computed with as they are");
    import("deepspeed", "{\"bf16\": {\"enabled\": true, "
                        "\"bf16_master_weights_and_grads\": true, "
                        "\"bf16_optimizer_states\": true}}");
    has("precision=bf16 optimizer_dtype=bf16");
    import("deepspeed", "{\"bf16\": {\"enabled\": true, "
                        "\"bf16_master_weights_and_grads\": true}}");
    has("precision=bf16 optimizer_dtype=");
    import("deepspeed", "{\"fp16\": {\"enabled\": true, "
                        "\"fp16_master_weights_and_grads\": true}}");
    has("precision=fp16");
}

/* DeepSpeed itself refuses what zero_optimization does not know. */
static void test_deepspeed_typos(void **state)
{
    (void)state;
    import("deepspeed", "{\"zero_optimization\":\n{\"stge\": 3}}");
    refused(MEMPLAN_E_UNKNOWN, "unknown entry 'zero_optimization.stge'", 2);
    assert_string_equal(got.slot[0].hint,
                        "did you mean 'zero_optimization.stage'?");
    import("deepspeed", "{\"zero_optimization\": {\"offload_param\": "
                        "{\"devise\": \"cpu\"}}}");
    refused(MEMPLAN_E_UNKNOWN,
            "unknown entry 'zero_optimization.offload_param.devise'", 1);
    import("deepspeed", "{\"zero_optimization\": {\"stage\": 3, "
                        "\"offload_param\": false}}");
    assert_int_equal(got.status, MEMPLAN_OK);
    import("deepspeed", "{\n\"train_batch_sise\": 8}");
    refused(MEMPLAN_E_UNKNOWN, "unknown entry 'train_batch_sise'", 2);
    assert_string_equal(got.slot[0].hint, "did you mean 'train_batch_size'?");
    import("deepspeed", "{\"zero_optimisation\": {\"stage\": 3}}");
    refused(MEMPLAN_E_UNKNOWN, "unknown entry 'zero_optimisation'", 1);
    hinted("did you mean 'zero_optimization'?");
    import("deepspeed", "{\"gradient_cliping_by\": 1}");
    assert_int_equal(got.status, MEMPLAN_OK);
    noted("gradient_cliping_by (did you mean gradient_clipping?)");
}

static void test_deepspeed_refused(void **state)
{
    (void)state;
    import("deepspeed", "[1]");
    refused(MEMPLAN_E_SCHEMA, "a configuration is an object, not an array", 1);
    import("deepspeed", "{\n\"fp16\": {\"enabled\": true},\n"
                        "\"bf16\": {\"enabled\": true}}");
    refused(MEMPLAN_E_CONFLICT, "fp16 and bf16 are both enabled", 3);
    import("deepspeed", "{\n\"optimizer\": {\"type\": \"OneBitAdam\"}}");
    refused(MEMPLAN_E_UNSUPPORTED,
            "optimizer.type 'OneBitAdam' is not modelled", 2);
    import("deepspeed", "{\n\"optimizer\": {\"type\": \"Adan\"}}");
    refused(MEMPLAN_E_UNKNOWN, "unknown optimizer.type 'Adan'", 2);
    import("deepspeed", "{\n\n\"zero_optimization\": {\"stage\": 4}}");
    refused(MEMPLAN_E_RANGE, "'zero_optimization.stage' is 4, out of range", 3);
    import("deepspeed", "{\"zero_optimization\": {\"stage\": [3]}}");
    assert_int_equal(got.status, MEMPLAN_E_ARG);
    import("deepspeed", "{\"gradient_clipping\": \"yes\"}");
    refused(MEMPLAN_E_ARG, "'gradient_clipping' takes a number", 1);
    import("deepspeed", "{\"fp16\": {\"enabled\": 1}}");
    refused(MEMPLAN_E_SCHEMA, "'enabled' is a number", 1);
}

/* Something else where an object, or true or false, has to be. */
static void test_deepspeed_kinds(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message, *hint;
    } bad[] = {
        { "{\"bf16\": true}", "'bf16' is true", "write {\"enabled\": true}" },
        { "{\"fp16\": \"auto\"}", "'fp16' is a string",
          "write {\"enabled\": true}" },
        { "{\"optimizer\": \"AdamW\"}", "'optimizer' is a string",
          "write {\"type\": \"AdamW\"}" },
        { "{\"zero_optimization\": 3}", "'zero_optimization' is a number",
          "write {\"stage\": 1}" },
        { "{\"zero_optimization\": {\"offload_optimizer\": true}}",
          "'offload_optimizer' is true", "write {\"device\": \"cpu\"}" },
        { "{\"zero_optimization\": {\"reduce_scatter\": \"yes\"}}",
          "'reduce_scatter' is a string", "write true or false" },
        { "{\"zero_optimization\": {\"allgather_partitions\": 1}}",
          "'allgather_partitions' is a number", "write true or false" },
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        import("deepspeed", bad[i].text);
        refused(MEMPLAN_E_SCHEMA, bad[i].message, 1);
        assert_string_equal(got.slot[0].hint, bad[i].hint);
        assert_int_equal(got.errs.count, 1);
    }
    import("deepspeed", "{\"zero_optimization\": false, \"bf16\": null}");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("zero= precision=fp32");
}

/* ---- TrainingArguments ---- */

static void test_training_args(void **state)
{
    (void)state;
    import("training-args",
           "{\"per_device_train_batch_size\": 4, \"bf16\": true,"
           "\"gradient_accumulation_steps\": 8, \"max_grad_norm\": 0.0,"
           "\"gradient_checkpointing\": true,"
           "\"gradient_checkpointing_kwargs\": {\"use_reentrant\": true},"
           "\"optim\": \"adamw_torch_fused\", \"ddp_bucket_cap_mb\": 50,"
           "\"output_dir\": \"o\", \"my_own\": 1, \"fsdp\": [],"
           "\"fsdp_config\": {\"min_num_params\": 0}, \"deepspeed\": null}");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("framework=hf micro_batch=4 grad_accum=8 precision=bf16-amp "
        "clip_grad=false recompute=full recompute_reentrant=true "
        "optimizer=adamw optimizer_impl=fused ddp_bucket=52428800");
    noted("f: not known, so ignored: my_own");
}

static void test_training_args_fsdp(void **state)
{
    (void)state;
    import("training-args", "{\"fsdp\": \"full_shard auto_wrap offload\","
                            "\"bf16\": true, \"fsdp_config\": {\"version\": 1,"
                            "\"activation_checkpointing\": true}}");
    has("framework=fsdp engine=fsdp zero=3 offload_params=cpu recompute=full "
        "precision=bf16-mixed reduce_dtype=bf16");
    import("training-args",
           "{\"fsdp\": \"full_shard\", \"fsdp_config\": {\"version\": \"1\","
           "\"bogus\": 1, \"min_num_params\": 5}}");
    has("engine=fsdp zero=3");
    noted("not known, so ignored: fsdp_config.bogus");
    noted("fsdp_config.min_num_params 5 is not modelled: 0 is assumed");
    import("training-args", "{\"fsdp\": \"full_shard\","
                            "\"torch_dtype\": \"bfloat16\"}");
    has("zero=3 precision=bf16"); /* no mixed precision: as they are loaded */
    import("training-args", "{\"fsdp\": [\"shard_grad_op\", \"auto_wrap\"]}");
    has("framework=fsdp engine=fsdp2 zero=2 precision=fp32");
    noted("fsdp_config does not say its version");
    import("training-args",
           "{\"fsdp\": true, \"fsdp_config\": {\"fsdp_version\": 2, "
           "\"reshard_after_forward\": false}}");
    has("engine=fsdp2 zero=2");
}

static void test_training_args_deepspeed(void **state)
{
    (void)state;
    import("training-args",
           "{\"per_device_train_batch_size\": 2, \"bf16\": true,"
           "\"deepspeed\": {\"train_micro_batch_size_per_gpu\": \"auto\","
           "\"bf16\": {\"enabled\": \"auto\"}, "
           "\"gradient_clipping\": \"auto\","
           "\"zero_optimization\": {\"stage\": 2}}}");
    has("framework=deepspeed zero=2 micro_batch=2 precision=bf16-mixed "
        "clip_grad=");
    import("training-args", "{\"deepspeed\": \"configs/ds.json\"}");
    has("framework=deepspeed");
    assert_string_equal(got.setup.pending, "configs/ds.json");
    assert_string_equal(got.setup.pending_dialect, "deepspeed");
}

/* transformers/integrations/deepspeed.py, trainer_config_process; accelerate/
 * utils/dataclasses.py, DeepSpeedPlugin.set_mixed_precision. */
static void beside(const char *args, const char *ds)
{
    import("training-args", args);
    assert_int_equal(got.status, MEMPLAN_OK);
    read_bytes("deepspeed", ds, strlen(ds));
}

static void test_training_args_fill(void **state)
{
    (void)state;
    beside("{\"bf16\": true, \"deepspeed\": \"d\"}", "{\"zero_optimization\": "
                                                     "{\"stage\": 2}}");
    has("precision=bf16-mixed");
    beside("{\"fp16\": true, \"deepspeed\": \"d\"}", "{}");
    has("precision=fp16-mixed");
    beside("{\"deepspeed\": \"d\"}", "{}");
    has("precision=fp32");
    import("training-args", "{\"bf16\": true, \"deepspeed\": {}}");
    has("precision=bf16-mixed");
    /* an "auto" of the other format says nothing against it */
    beside("{\"bf16\": true, \"deepspeed\": \"d\"}",
           "{\"fp16\": {\"enabled\": \"auto\"}}");
    has("precision=bf16-mixed");
    /* the part is there, and not on */
    beside("{\"bf16\": true, \"deepspeed\": \"d\"}", "{\"bf16\": {}}");
    has("precision=fp32");
    import("deepspeed", "{}");
    has("precision=fp32");
}

static void test_training_args_mismatch(void **state)
{
    (void)state;
    beside("{\"bf16\": true, \"deepspeed\": \"d\"}",
           "{\n\"bf16\": {\"enabled\": false}}");
    refused(MEMPLAN_E_CONFLICT,
            "bf16.enabled false is not TrainingArguments' bf16 true (f)", 2);
    hinted("write \"auto\" here");
    beside("{\"bf16\": false, \"deepspeed\": \"d\"}",
           "{\"bf16\": {\"enabled\": true}}");
    refused(MEMPLAN_E_CONFLICT,
            "bf16.enabled true is not TrainingArguments' bf16 false (f)", 1);
    beside("{\"bf16\": true, \"deepspeed\": \"d\"}",
           "{\"fp16\": {\"enabled\": true}}");
    refused(MEMPLAN_E_CONFLICT,
            "fp16.enabled true is not TrainingArguments' fp16 false (f)", 1);
    beside("{\"per_device_train_batch_size\": 2}",
           "{\"train_micro_batch_size_per_gpu\": 4}");
    refused(MEMPLAN_E_CONFLICT,
            "train_micro_batch_size_per_gpu 4 is not TrainingArguments' "
            "per_device_train_batch_size 2 (f)",
            1);
    beside("{\"per_device_train_batch_size\": 2, \"auto_find_batch_size\": "
           "true}",
           "{\"train_micro_batch_size_per_gpu\": 4}");
    assert_int_equal(got.status, MEMPLAN_OK);
    beside("torchrun t.py --gradient_accumulation_steps 8",
           "{\"gradient_accumulation_steps\": 1}");
    refused(MEMPLAN_E_CONFLICT,
            "gradient_accumulation_steps 1 is not TrainingArguments' "
            "gradient_accumulation_steps 8 (f)",
            1);
    beside("{\"max_grad_norm\": 0.5}", "{\"gradient_clipping\": 1.0}");
    refused(MEMPLAN_E_CONFLICT,
            "gradient_clipping 1 is not TrainingArguments' max_grad_norm 0.5 "
            "(f)",
            1);
    beside("{\"bf16\": true, \"max_grad_norm\": 0.5, "
           "\"gradient_accumulation_steps\": 8, "
           "\"per_device_train_batch_size\": 2}",
           "{\"bf16\": {\"enabled\": \"auto\"}, \"gradient_clipping\": "
           "\"auto\", \"gradient_accumulation_steps\": 8, "
           "\"train_micro_batch_size_per_gpu\": \"auto\"}");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("precision=bf16-mixed micro_batch=2");
}

static void test_training_args_refused(void **state)
{
    (void)state;
    import("training-args", "{\"bf16\": true,\n\"fp16\": true}");
    refused(MEMPLAN_E_CONFLICT, "bf16 and fp16 are both true", 2);
    import("training-args", "{\"deepspeed\": \"x\", \"fsdp\": \"full_shard\"}");
    refused(MEMPLAN_E_CONFLICT, "both 'deepspeed' and 'fsdp' are set", 1);
    import("training-args",
           "{\"fsdp\": \"full_shard\", \"gradient_checkpointing\": true,\n"
           "\"fsdp_config\": {\"activation_checkpointing\": true}}");
    refused(MEMPLAN_E_CONFLICT,
            "both gradient_checkpointing and FSDP's own "
            "activation_checkpointing are true",
            2);
    import("training-args",
           "{\"fsdp\": \"full_shard\", \"gradient_checkpointing\": false,\n"
           "\"fsdp_config\": {\"activation_checkpointing\": true}}");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("recompute=full");
    import("training-args", "{\"fsdp\":\n\"full_shrad\"}");
    refused(MEMPLAN_E_UNKNOWN, "unknown option in 'fsdp'", 2);
    import("training-args", "{\"fsdp\": [\"full_shard\", 3]}");
    refused(MEMPLAN_E_UNKNOWN, "unknown option in 'fsdp'", 1);
    import("training-args",
           "{\"fsdp\": \"full_shard\", \"fsdp_config\": \"my.json\"}");
    refused(MEMPLAN_E_UNSUPPORTED, "'fsdp_config' in a file of its own", 1);
    import("training-args",
           "{\"optim\": \"galore_adamw_layerwise\", \"optim_args\": \"rank=64, "
           "update_proj_gap=100, scale=0.10\", \"optim_target_modules\": "
           "[\".*.attn.*\", \".*.mlp.*\"]}");
    has("optimizer=galore optimizer_in_backward=true optimizer_rank=64 "
        "optimizer_targets=all-linear");
    import("training-args",
           "{\"optim\": \"apollo_adamw\", \"optim_target_modules\": "
           "\"all-linear\"}");
    has("optimizer=apollo optimizer_in_backward= optimizer_rank= "
        "optimizer_targets=all-linear,head");
    import("training-args", "{\"optim\": \"galore_adamw_8bit\", "
                            "\"optim_target_modules\": [\"q_proj\", \"mlp\"]}");
    has("optimizer=galore8bit optimizer_targets=q,gate,up,down");
    import("training-args", "{\"optim\": \"galore_adamw\",\n"
                            "\"optim_target_modules\": [\"wide\"]}");
    refused(MEMPLAN_E_UNKNOWN, "matrices that are not known", 2);
    import("training-args", "{\"optim\": \"apollo_adamw\",\n"
                            "\"optim_args\": \"proj=svd\"}");
    refused(MEMPLAN_E_UNSUPPORTED, "proj=svd is not modelled", 2);
    import("training-args", "{\"optim\": \"sgd\", \"optim_args\": "
                            "\"momentum=0.9\"}");
    has("optimizer=momentum optimizer_impl=foreach");
    import("training-args", "{\"optim_args\": \"rank=64\",\n"
                            "\"optim\": \"galore_adamw\"}");
    refused(MEMPLAN_E_CONFLICT,
            "the Trainer refuses it without optim_target_modules", 2);
    import("training-args", "{\"optim\": \"adalomo\"}");
    refused(MEMPLAN_E_UNSUPPORTED,
            "optim 'adalomo' is not modelled: it updates a weight when "
            "the next one's gradient comes, in backward",
            1);
    import("training-args", "{\"optim\": \"galore_adafactor\"}");
    refused(MEMPLAN_E_UNSUPPORTED,
            "optim 'galore_adafactor' is not modelled: the factored moments "
            "of a projected gradient",
            1);
    import("training-args", "{\"optim\": \"ademamix\"}");
    refused(MEMPLAN_E_UNSUPPORTED, "optim 'ademamix' is not modelled", 1);
    import("training-args", "{\"max_grad_norm\": [1]}");
    refused(MEMPLAN_E_ARG, "'max_grad_norm' takes a number", 1);
    import("training-args", "{\"optim\": 3}");
    assert_int_equal(got.status, MEMPLAN_E_UNSUPPORTED);
}

/* What is neither true nor false is not taken for false. */
static void test_training_args_booleans(void **state)
{
    (void)state;
    static const char *const keys[] = { "bf16",
                                        "fp16",
                                        "tf32",
                                        "load_in_4bit",
                                        "load_in_8bit",
                                        "use_flash_attn",
                                        "use_peft",
                                        "adafactor",
                                        "fsdp_config.cpu_offload",
                                        "fsdp_config.activation_checkpointing",
                                        "use_dora",
                                        "gradient_checkpointing" };
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        static const char *const values[] = { "\"maybe\"", "2", "[true]" };
        static const char *const shown[] = { "maybe", "2", "" };
        for (size_t k = 0; k < 3; k++) {
            char text[128], message[128];
            const char *dot = strchr(keys[i], '.');
            str_format(text, sizeof(text), "{%s\n\"%s\": %s%s}",
                       dot != NULL ? "\"fsdp_config\": {" : "",
                       dot != NULL ? dot + 1 : keys[i], values[k],
                       dot != NULL ? "}" : "");
            str_format(message, sizeof(message), "unknown %s '%s'", keys[i],
                       shown[k]);
            import("training-args", text);
            refused(MEMPLAN_E_UNKNOWN, message, 2);
            hinted("known are true, false");
        }
    }
    import("training-args", "{\"torch_dtype\": \"bfloat17\"}");
    refused(MEMPLAN_E_UNKNOWN, "unknown torch_dtype 'bfloat17'", 1);
    hinted("known are auto, float32, float16, bfloat16");
    import("training-args", "{\"bf16\": \"true\", \"tf32\": null}");
    has("precision=bf16-amp");
    import("training-args", "bf16: yes\ngradient_checkpointing: on\n");
    has("precision=bf16-amp recompute=full");
    import("training-args", "adapter: lora\nbf16: auto\ntf32: auto\n");
    has("precision=bf16-amp");
    import("training-args", "tf32: auto\n");
    has("precision=tf32");
}

/* A flag's in the words of transformers' string_to_bool. */
static void test_training_args_boolean_flags(void **state)
{
    (void)state;
    static const char *const on[] = { "", "True", "yes", "t", "Y", "1" };
    static const char *const off[] = { "false", "no", "F", "n", "0" };
    char text[96];
    for (size_t i = 0; i < sizeof(on) / sizeof(on[0]); i++) {
        str_format(text, sizeof(text),
                   "t.py --bf16 %s --gradient_checkpointing %s\n", on[i],
                   on[i]);
        import("training-args", text);
        has("precision=bf16-amp recompute=full");
    }
    for (size_t i = 0; i < sizeof(off) / sizeof(off[0]); i++) {
        str_format(text, sizeof(text),
                   "t.py --bf16 %s --gradient_checkpointing %s\n", off[i],
                   off[i]);
        import("training-args", text);
        assert_int_equal(got.status, MEMPLAN_OK);
        has("precision=fp32 recompute=");
    }
    import("training-args", "t.py --load-in-4bit maybe\n");
    refused(MEMPLAN_E_UNKNOWN, "unknown load_in_4bit 'maybe'", 1);
    import("training-args", "t.py --bf16 $BF16\n");
    refused(MEMPLAN_E_ARG, "'bf16' is '$BF16', which the file does not say", 1);
}

/* Adapters of no rank are not all of the model. */
static void test_adapter_ranks(void **state)
{
    (void)state;
    import("peft", "{\"peft_type\": \"LORA\",\n\"r\": 0}");
    refused(MEMPLAN_E_RANGE, "'r' of adapters is a whole number of one or more",
            2);
    import("peft", "{\"r\": -4}");
    refused(MEMPLAN_E_RANGE, "'r' of adapters is a whole number of one or more",
            1);
    import("peft", "{\"r\": \"x\"}");
    assert_int_not_equal(got.status, MEMPLAN_OK);
    import("peft", "{\"r\": 4, \"use_dora\": true}");
    has("lora_rank=4 lora_variant=dora");
    import("peft", "{\"r\": 4,\n\"use_dora\": \"yes\"}");
    refused(MEMPLAN_E_UNKNOWN, "unknown use_dora 'yes'", 2);
    import("peft", "{\"r\": 4,\n\"use_rslora\": 1}");
    refused(MEMPLAN_E_UNKNOWN, "unknown use_rslora '1'", 2);
    import("training-args", "{\"use_peft\": true,\n\"lora_r\": 0}");
    refused(MEMPLAN_E_RANGE,
            "'lora_r' of adapters is a whole number of one or more", 2);
    import("training-args", "peft_method: lora\nr: 0\n");
    refused(MEMPLAN_E_RANGE, "'r' of adapters is a whole number of one or more",
            2);
    import("training-args", "t.py --use_peft --lora_r 0\n");
    refused(MEMPLAN_E_RANGE,
            "'lora_r' of adapters is a whole number of one or more", 1);
    import("training-args", "{\"use_peft\": false, \"lora_r\": 0}");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("lora_rank=");
}

/* However much of a file has no effect, what matters is said. */
static void test_notes_have_room(void **state)
{
    (void)state;
    char text[8192] = "{";
    const struct config_table *t = &config_training_args;
    for (size_t i = 0; i < t->rows; i++) {
        if (t->row[i].rule == CONFIG_QUIET && !strchr(t->row[i].path, '.'))
            str_append(text, sizeof(text), "\"%s\": 1, ", t->row[i].path);
    }
    str_append(text, sizeof(text), "%s", "\"neftune_noise_alpha\": 5}");
    import("training-args", text);
    assert_int_equal(got.status, MEMPLAN_OK);
    assert_non_null(strstr(got.setup.note[0], "neftune_noise_alpha is not"));
    noted("no effect on memory or compute: ");
}

/* A script's flags, and the YAML of programs that hand them on. */
static void test_training_args_elsewhere(void **state)
{
    (void)state;
    import("training-args",
           "# torchrun\ntorchrun --nproc_per_node=4 train.py \\\n"
           "  --bf16 True --fp16 False --per_device_train_batch_size 2 \\\n"
           "  --fsdp \"full_shard auto_wrap\" --model_max_length 2048 \\\n"
           "  --gradient_checkpointing True --max_grad_norm 0\n");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("framework=fsdp zero=3 gpus=4 gpus_per_node=4 micro_batch=2 "
        "seq_len=2048 precision=bf16-mixed recompute=full clip_grad=false");
    import("training-args",
           "torchrun train.py --deepspeed $CONFIG --bf16 --nproc_per_node 1");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("framework=deepspeed precision=bf16-mixed");
    noted("add --deepspeed FILE");
    import("training-args", "finetuning_type: lora\nlora_target: all\n"
                            "quantization_bit: 4\ncutoff_len: 1024\n"
                            "stage: dpo\nbf16: true\n"
                            "deepspeed: ds.json # a comment with --flag\n");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("lora_rank=8 lora_targets=all-linear base_dtype=nf4 double_quant=true "
        "seq_len=1024 framework=deepspeed");
    noted("stage 'dpo' is not modelled");
    import("training-args", "use_peft: true\nlora_r: 32\nload_in_8bit: true\n"
                            "lora_target_modules: [q_proj, v_proj]\n"
                            "torch_dtype: bfloat16\nbf16: true\n"
                            "attn_implementation: flash_attention_2\n");
    has("lora_rank=32 lora_targets=q,v base_dtype=int8 precision=bf16-amp "
        "attention=flash attention_kernel=flash2");
    import("training-args", "attn_implementation: sdpa\n");
    has("attention= attention_kernel=");
    import("training-args",
           "attn_implementation: kernels-community/vllm-flash-attn3\n");
    has("attention=flash attention_kernel=flash3");
    import("training-args", "attn_impl: flash_attn\n");
    has("attention=flash attention_kernel=flash2");
    import("training-args", "attn_implementation: flash_attention_3\n");
    has("attention=flash attention_kernel=flash3");
    import("training-args", "flash_attn: true\n");
    has("attention=flash attention_kernel=flash2");
    import("training-args", "attn_impl: flash_attention_4\n");
    has("attention=flash attention_kernel=");
    import("training-args", "flash_attn: fa2\n");
    has("attention=flash attention_kernel=flash2");
    import("training-args", "sdp_attention: true\n");
    has("attention=sdpa attention_kernel=");
    import("training-args", "adapter: qlora\nload_in_4bit: true\n"
                            "lora_target_linear: true\nmicro_batch_size: 2\n"
                            "sequence_len: 4096\noptimizer: adamw_bnb_8bit\n"
                            "bf16: auto\nflash_attention: true\n");
    has("base_dtype=nf4 lora_targets=all-linear micro_batch=2 seq_len=4096 "
        "optimizer=adam8bit precision=bf16-amp attention=flash "
        "attention_kernel=flash2");
}

/* What LLaMA-Factory, ms-swift, axolotl, OpenRLHF and peft's examples have in
 * words, and by defaults, of their own. */
static void test_training_args_kin(void **state)
{
    (void)state;
    import("training-args", "stage: sft\ntemplate: llama3\nbf16: true\n");
    has("lora_rank=8 recompute=full recompute_reentrant=true");
    import("training-args", "finetuning_type: full\nbf16: true\n"
                            "disable_gradient_checkpointing: true\n");
    has("lora_rank= recompute=none");
    import("training-args",
           "swift sft \\\n --tuner_type lora --target_modules all-linear "
           "--quant_bits 4 --torch_dtype bfloat16 --deepspeed zero2_offload "
           "--attn_impl flash_attn --gradient_accumulation_steps "
           "$(expr 16 / 4)\n");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("framework=deepspeed zero=2 offload_optimizer=cpu overlap_comm=false "
        "reduce_bucket=200000000 lora_rank=8 lora_dropout=0.05 "
        "lora_targets=all-linear base_dtype=nf4 double_quant=true "
        "precision=bf16-mixed recompute=full attention=flash grad_accum=4");
    import("training-args",
           "base_model: x\nadapter: lora\nlora_r: 4\n"
           "lora_target_modules: 'layers.[\\d]+.(mlp).(up|down|q)_proj'\n"
           "gradient_checkpointing: offload\noptimizer: paged_adamw_32bit\n"
           "fsdp_version: 2\nfsdp_config:\n  offload_params: true\n"
           "bf16: auto\n");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("lora_rank=4 lora_targets=q,up,down recompute=full engine=fsdp2 "
        "offload_activations=cpu optimizer=paged-adamw offload_params=cpu "
        "zero=3 precision=bf16-mixed");
    noted("of the pattern in 'lora_target_modules' the matrices are read");
    import("training-args",
           "deepspeed --module openrlhf.cli.train_sft --ds.zero_stage 2 "
           "--train.micro_batch_size 2 --train.batch_size 256 "
           "--data.max_len 4096 --ds.param_dtype bf16 --ds.adam_offload "
           "--model.gradient_checkpointing_enable\n");
    has("framework=deepspeed zero=2 micro_batch=2 global_batch=256 "
        "seq_len=4096 precision=bf16-mixed offload_optimizer=cpu "
        "recompute=full");
    import("training-args", "t.py --use_peft_lora True --lora_r 8 "
                            "--use_4bit_quantization True --use_nested_quant "
                            "True --use_flash_attn True --use_reentrant False "
                            "--lora_target_modules query_key_value --bf16\n");
    has("lora_rank=8 base_dtype=nf4 double_quant=true attention=flash "
        "recompute_reentrant=false lora_targets=q,k,v");
    import("training-args", "lora_r: 16\nbf16: true\npacking: true\n");
    has("lora_rank=");
    noted("lora_r without adapters: all is trained");
    noted("TRL's trainers recompute");
}

/* fms-hf-tuning's: PEFT's own words, fms-acceleration's plugins. */
static void test_training_args_fms(void **state)
{
    (void)state;
    import("training-args",
           "accelerate launch tuning/sft_trainer.py --training_data_path d "
           "--peft_method lora --target_modules q_proj v_proj "
           "--embedding_size_multiple_of 8 --save_model_dir out "
           "--fast_kernels True True True\n");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("lora_rank=8 lora_dropout=0.05 lora_targets=q,v attention=flash "
        "attention_kernel=flash2 precision=bf16-amp vocab_multiple=8 "
        "lora_dtype=");
    noted("fast_kernels is not modelled");
    import("training-args", "training_data_path: d\n"
                            "use_flash_attn: false\n");
    has("lora_rank= attention= precision=bf16");
    import("training-args", "peft_method: lora\nr: 32\nlora_dropout: 0.1\n"
                            "bnb_qlora: [nf4, false]\nbf16: true\n");
    has("lora_rank=32 lora_dropout=0.1 base_dtype=nf4 double_quant=true "
        "kbit_cast=none");
    import("training-args", "peft_method: lora\nbnb_qlora: false\n"
                            "auto_gptq: false\n");
    has("lora_rank=8 base_dtype= kbit_cast=");
    import("training-args", "t.py --peft_method lora --bnb_qlora fp4 True\n");
    has("base_dtype=fp4 kbit_cast=");
    import("training-args",
           "peft_method: lora\nauto_gptq: [triton_v2]\nfp16: true\n");
    has("base_dtype=int4 gptq_kernel=triton_v2 precision=fp16-amp");
    import("training-args", "peft_method: pt\n");
    has("peft_type=prompt-tuning num_virtual_tokens=8 lora_rank=");
    import("training-args", "peft_method: pt\nnum_virtual_tokens: 16\n");
    has("peft_type=prompt-tuning num_virtual_tokens=16");
    import("training-args", "peft_method: alora\n");
    refused(MEMPLAN_E_UNSUPPORTED, "peft_method 'alora' is not modelled", 1);
}

/* TRL's adapters over quantised weights, and whose are not TRL's. */
static void test_training_args_trl_adapters(void **state)
{
    (void)state;
    import("training-args", "use_peft: true\nload_in_4bit: true\n");
    has("base_dtype=nf4 lora_dtype=bf16 kbit_cast=");
    noted("as TRL has it since 0.26");
    import("training-args", "t.py --use_peft_lora --use_8bit_quantization\n");
    has("base_dtype=int8 lora_dtype=bf16");
    import("training-args", "use_peft: true\nbf16: true\n");
    has("base_dtype= lora_dtype=");
    import("training-args", "adapter: qlora\nload_in_4bit: true\n");
    has("base_dtype=nf4 lora_dtype=");
}

static void test_training_args_elsewhere_refused(void **state)
{
    (void)state;
    import("training-args", "finetuning_type: oft\n");
    refused(MEMPLAN_E_UNSUPPORTED, "finetuning_type 'oft' is not modelled", 1);
    import("training-args", "use_peft: true\nlora_target_modules: [fc9]\n");
    refused(MEMPLAN_E_UNKNOWN, "'fc9' is none of the matrices that are known",
            2);
    import("training-args", "attn_implementation: flex_attention\n");
    refused(MEMPLAN_E_UNSUPPORTED,
            "attn_implementation 'flex_attention' is not modelled", 1);
}

/* ---- torchrun ---- */

static void test_torchrun(void **state)
{
    (void)state;
    import("torchrun", "torchrun --nnodes=2 --nproc_per_node 8 "
                       "--rdzv_backend c10d train.py --lr 1\n");
    has("gpus=16 gpus_per_node=8 framework= micro_batch=");
    noted("not known, so ignored: --lr");
    import("torchrun", "torchrun --nnodes 1:4 --nproc_per_node 8 x.py\n");
    has("gpus=32 gpus_per_node=8");
    noted("--nnodes 1:4: 4 nodes are taken (--gpus)");
    import("torchrun", "torchrun --nnodes $N --nproc_per_node 8 x.py\n");
    has("gpus=8 gpus_per_node=8");
    noted("--nnodes is $N, which the file does not say: one node is taken");
    import("torchrun", "torchrun --nnodes 4:2 --nproc_per_node 8 x.py\n");
    refused(MEMPLAN_E_ARG, "'--nnodes' is '4:2'", 1);
    import("torchrun", "torchrun --nnodes 2 train.py\n");
    has("gpus=2 gpus_per_node=1");
}

/* As many as a node has, or as only the shell knows. */
static void test_torchrun_whole_nodes(void **state)
{
    (void)state;
    static const char *const all[] = { "=gpu", " auto", " $GPUS" };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        char text[80];
        str_format(text, sizeof(text),
                   "torchrun --nnodes 2 --nproc_per_node%s train.py\n", all[i]);
        import("torchrun", text);
        assert_int_equal(got.status, MEMPLAN_OK);
        has("gpus= gpus_per_node=");
        assert_int_equal(got.setup.nodes, 2);
        noted("is all GPUs of a node");
    }
    import("torchrun", "torchrun\\\n --nproc_per_node=cpu train.py\n");
    refused(MEMPLAN_E_ARG, "'--nproc-per-node' is 'cpu'", 2);
    import("torchrun", "torchrun --nproc_per_node --nnodes 2\n");
    refused(MEMPLAN_E_ARG, "no value behind '--nproc-per-node'", 1);
    import("torchrun", "torchrun --nproc_per_node 8 --nnodes 0\n");
    refused(MEMPLAN_E_RANGE, "'--nnodes' is 0, out of range", 1);
    import("torchrun", "torchrun --nproc_per_node 0 --nnodes 1\n");
    refused(MEMPLAN_E_RANGE, "'--nproc-per-node' is 0, out of range", 1);
    import("torchrun", "python train.py\n");
    refused(MEMPLAN_E_SYNTAX, "no flag in the file", 0);
    assert_non_null(strstr(got.slot[0].hint, "torchrun --nnodes 2"));
}

/* Lines that start with other programs than torchrun. */
static void test_other_launchers(void **state)
{
    (void)state;
    import("torchrun", "accelerate launch --num_processes 16 --num_machines 2 "
                       "--config_file a.yaml train.py\n");
    has("gpus=16 gpus_per_node=8");
    assert_string_equal(got.setup.pending, "a.yaml");
    assert_string_equal(got.setup.pending_dialect, "accelerate");
    assert_true(got.setup.pending_keeps);
    import("torchrun", "accelerate launch --config_file $FILE train.py\n");
    noted("add --accelerate FILE");
    import("torchrun", "accelerate launch --num_processes 4 x.py\n");
    has("gpus=4 gpus_per_node=4");
    import("torchrun", "accelerate launch --num_processes $N x.py\n");
    has("gpus=");
    noted("--num-processes is no number there: give --gpus");
    import("torchrun", "deepspeed --num_nodes 2 --num_gpus=8 x.py\n");
    has("gpus=16 gpus_per_node=8");
    import("torchrun", "deepspeed --num_nodes $N --num_gpus=4 x.py\n");
    has("gpus=4 gpus_per_node=4");
    import("torchrun", "deepspeed --num_nodes x --num_gpus=4 x.py\n");
    refused(MEMPLAN_E_ARG, "'--num-nodes' is 'x'", 1);
    import("torchrun", "accelerate launch --num_processes 16 --num_machines $N "
                       "x.py\n");
    has("gpus=16 gpus_per_node=");
    noted("how many machines the file does not say");
    import("torchrun", "deepspeed --num_nodes=2 x.py\n");
    has("gpus= gpus_per_node=");
    assert_int_equal(got.setup.nodes, 2);
    import("torchrun", "deepspeed --hostfile h --master_port 1 x.py\n");
    noted("without --num_gpus");
    assert_string_equal(got.setup.hosts.file, "h");
    import("torchrun", "deepspeed --hostfile $H --master_port 1 x.py\n");
    noted("which file --hostfile is the line does not say");
    import("torchrun", "deepspeed --hostfile h --num_gpus 4 --num_nodes 2 x\n");
    has("gpus=8 gpus_per_node=4");
    assert_string_equal(got.setup.hosts.file, "");
    import("torchrun", "deepspeed --include a --exclude b x.py\n");
    refused(MEMPLAN_E_CONFLICT, "--include and --exclude at once", 1);
    import("torchrun", "deepspeed --exclude b --num_gpus 2 x.py\n");
    refused(MEMPLAN_E_CONFLICT, "--num_nodes or --num_gpus beside --exclude",
            1);
    import("torchrun", "deepspeed --include localhost:0,1,2,5 x.py\n");
    has("gpus=4 gpus_per_node=4");
    import("torchrun", "deepspeed --include=a:0,1@b:2,3 x.py\n");
    has("gpus=4 gpus_per_node=2");
    import("torchrun", "deepspeed --include a@b x.py\n");
    has("gpus=");
    noted("--include does not number");
    import("torchrun",
           "accelerate launch --num_processes 5 --num_machines 2 x.py\n");
    refused(MEMPLAN_E_CONFLICT, "5 processes on 2 machines", 1);
}

/* GPUs of a node that the line leaves to its launcher; 0: gpus is set. */
static void node_of(const char *line, uint32_t nodes, const char *want)
{
    static const char *const dialects[] = { "torchrun", "training-args" };
    for (size_t i = 0; i < 2; i++) {
        import(dialects[i], line);
        assert_int_equal(got.status, MEMPLAN_OK);
        assert_int_equal(got.setup.nodes, nodes);
        has(want);
    }
}

static void test_launchers_unsaid(void **state)
{
    (void)state;
    node_of("deepspeed train.py --deepspeed ds.json\n", 1, "gpus=");
    noted("without --num_gpus it is all GPUs of a node");
    node_of("deepspeed --master_port 29501 train.py\n", 1, "gpus=");
    node_of("deepspeed train.py\n", 1, "gpus=");
    node_of("cd x && NCCL_DEBUG=INFO nohup \\\n  /opt/bin/deepspeed t.py\n", 1,
            "gpus=");
    node_of("deepspeed --exclude localhost:0,3 t.py\n", 1, "gpus=");
    assert_int_equal(got.setup.left_out, 2);
    noted("but for those of --exclude");
    node_of("deepspeed --exclude a:0@b:1 t.py\n", 1, "gpus=");
    assert_int_equal(got.setup.left_out, 0);
    noted("--exclude has no GPUs of one node alone");
    node_of("deepspeed --include localhost:0,2 t.py\n", 0, "gpus=2");
    node_of("deepspeed --include a@b t.py\n", 2, "gpus=");
    node_of("export CUDA_VISIBLE_DEVICES=0,1,5\ndeepspeed t.py\n", 0, "gpus=3");
    noted("by CUDA_VISIBLE_DEVICES");
    node_of(
        "export CUDA_VISIBLE_DEVICES=0,1,5\ndeepspeed a.py\ndeepspeed b.py\n",
        0, "gpus=3");
    node_of("CUDA_VISIBLE_DEVICES=0,1 deepspeed a.py\ndeepspeed t.py\n", 1,
            "gpus=");
    node_of("CUDA_VISIBLE_DEVICES=$IDS deepspeed t.py\n", 1, "gpus=");
    node_of("accelerate launch train.py\n", 1, "gpus=");
    noted("without --num_processes it is all GPUs of a node");
    node_of("L=\"accelerate launch --multi_gpu\"\n$L t.py\n", 1, "gpus=");
    node_of("accelerate launch --gpu_ids 0,1,2 t.py\n", 0, "gpus=3");
    node_of("accelerate launch --gpu_ids all t.py\n", 1, "gpus=");
    node_of("torchrun --master_port 1 t.py\n", 0, "gpus=");
    noted("it is one process a node");
    /* no launcher: what installs one, what shows one, another's argument */
    node_of("pip install accelerate==1 \\\n  deepspeed --upgrade\n", 0,
            "gpus=");
    node_of("# deepspeed t.py\npython t.py --name deepspeed\n", 0, "gpus=");
    assert_int_equal(got.setup.notes > 1, 0);
}

/* launch.py's flags that only together mean something. */
static void test_launched_together(void **state)
{
    (void)state;
    import("torchrun", "accelerate launch --use_deepspeed t.py\n");
    has("framework=deepspeed zero=2");
    noted("without zero_stage it is 2, Accelerate's default");
    import("torchrun", "accelerate launch --use_deepspeed t.py "
                       "--deepspeed ds.json\n");
    has("framework=deepspeed zero=");
    import("torchrun", "accelerate launch --use_fsdp --use_deepspeed t.py\n");
    refused(MEMPLAN_E_CONFLICT, "both --use_fsdp and --use_deepspeed", 1);
    import("torchrun", "accelerate launch --multi_gpu --use_fsdp t.py\n");
    refused(MEMPLAN_E_CONFLICT, "both --use_fsdp and --multi_gpu", 1);
    import("training-args",
           "accelerate launch --use_megatron_lm --megatron_lm_tp_degree 2 "
           "--megatron_lm_pp_degree 4 --megatron_lm_num_micro_batches 8 "
           "--megatron_lm_use_distributed_optimizer true t.py\n");
    has("framework=megatron tp=2 pp=4 grad_accum=8 zero=1 "
        "sequence_parallel=false deterministic=false");
    import("torchrun", "accelerate launch --use_fsdp --fsdp_version 2 "
                       "--use_parallelism_config "
                       "--parallelism_config_tp_size 2 t.py\n");
    has("framework=fsdp engine=fsdp2 tp=2");
    import("torchrun", "accelerate launch --use_parallelism_config "
                       "--parallelism_config_tp_size 2 t.py\n");
    refused(MEMPLAN_E_CONFLICT,
            "--use_parallelism_config without --use_fsdp --fsdp_version 2", 1);
    import("torchrun",
           "accelerate launch --parallelism_config_tp_size 2 t.py\n");
    refused(MEMPLAN_E_CONFLICT,
            "--parallelism_config_tp_size without --use_parallelism_config", 1);
    import("accelerate", "distributed_type: DEEPSPEED\n"
                         "deepspeed_config: {}\n");
    has("framework=deepspeed zero=2");
    import("torchrun", "distributed_type: FSDP\nnum_processes: 16\n"
                       "fsdp_config: {fsdp_version: 2}\n");
    refused(MEMPLAN_E_SCHEMA, "these are entries of another program's file", 1);
    assert_non_null(strstr(got.slot[0].hint, "--accelerate FILE"));
}

/* Who holds what, where the line says it. */
static void test_launched_holders(void **state)
{
    static const char *const dialects[] = { "torchrun", "training-args" };
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        import(
            dialects[i],
            "accelerate launch --num_processes 8 --use_fsdp "
            "--fsdp_version 2 --fsdp_reshard_after_forward false --mixed_precision bf16 "
            "--fsdp_offload_params true --fsdp_activation_checkpointing "
            "true --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP x.py\n");
        assert_int_equal(got.status, MEMPLAN_OK);
        has("framework=fsdp engine=fsdp2 zero=2 precision=bf16-mixed "
            "offload_params=cpu recompute=full");
        assert_int_equal(got.setup.notes, 0);
        import(dialects[i], "accelerate launch --use_fsdp --num_processes 16 "
                            "--num_machines 2 --fsdp_sharding_strategy "
                            "HYBRID_SHARD x.py\n");
        has("engine=fsdp zero=3 shard_degree=8");
        import(dialects[i], "accelerate launch --use_fsdp --fsdp_version 3 "
                            "x.py\n");
        refused(MEMPLAN_E_RANGE, "there is no such fsdp_version", 1);
        import(dialects[i], "accelerate launch --use_fsdp "
                            "--fsdp_sharding_strategy HALF x.py\n");
        refused(MEMPLAN_E_UNKNOWN, "unknown fsdp_sharding_strategy", 1);
    }
    import("torchrun", "accelerate launch --use_deepspeed --zero_stage 2 "
                       "--mixed_precision fp16 x.py\n");
    has("framework=deepspeed zero=2 precision=fp16-mixed");
    import("torchrun", "accelerate launch --mixed_precision fp15 x.py\n");
    refused(MEMPLAN_E_UNKNOWN, "unknown '--mixed-precision'", 1);
    import("torchrun", "deepspeed --num_gpus 4 x.py --deepspeed ds.json "
                       "--per_device_train_batch_size 4\n");
    has("gpus=4 framework=");
    assert_string_equal(got.setup.pending, "ds.json");
    assert_string_equal(got.setup.pending_dialect, "deepspeed");
    noted("--training-args reads them too");
}

/* A script of the Trainer's under those. */
static void test_training_args_launched(void **state)
{
    (void)state;
    import("training-args", "deepspeed --num_gpus 4 t.py --deepspeed "
                            "--deepspeed_config ds.json --bf16 True\n");
    has("framework=deepspeed gpus=4");
    assert_string_equal(got.setup.pending, "ds.json");
    import("training-args",
           "accelerate launch --config_file=c/z3.yaml --num_processes 4 t.py "
           "--bf16 True --per_device_train_batch_size 2\n");
    has("framework=hf precision=bf16-amp gpus=4");
    assert_string_equal(got.setup.pending, "c/z3.yaml");
    assert_string_equal(got.setup.pending_dialect, "accelerate");
    assert_true(got.setup.pending_keeps);
    import("training-args", "accelerate launch --use_deepspeed --zero_stage 3 "
                            "--mixed_precision bf16 t.py --output_dir o\n");
    has("framework=deepspeed zero=3 precision=bf16-mixed");
    import("training-args", "accelerate launch --use_fsdp "
                            "--fsdp_sharding_strategy 2 t.py --fp16\n");
    has("framework=fsdp engine=fsdp zero=2 precision=fp16-mixed");
}

/* ---- Accelerate ---- */

static void test_accelerate(void **state)
{
    (void)state;
    import("accelerate", "distributed_type: FSDP\nparallelism_config:\n"
                         "  parallelism_config_cp_size: 2\n");
    has("cp=2 cp_comm=all_gather");
    import("accelerate", "distributed_type: FSDP\nparallelism_config:\n"
                         "  parallelism_config_cp_comm_strategy: alltoall\n"
                         "  parallelism_config_cp_size: 4\n");
    has("cp=4 cp_comm=p2p");
    import("accelerate", "compute_environment: LOCAL_MACHINE\n"
                         "deepspeed_config:\n"
                         "  gradient_accumulation_steps: 4\n"
                         "  gradient_clipping: 1.0\n"
                         "  offload_optimizer_device: cpu\n"
                         "  zero3_init_flag: false\n"
                         "  zero_stage: 2\n"
                         "distributed_type: DEEPSPEED\n"
                         "downcast_bf16: 'no'\n"
                         "mixed_precision: bf16 # as written\n"
                         "num_machines: 2\n"
                         "num_processes: 16\n"
                         "surprise: [1, 2]\n");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("framework=deepspeed zero=2 grad_accum=4 clip_grad=true gpus=16 "
        "gpus_per_node=8 offload_optimizer=cpu precision=bf16-mixed");
    noted("zero3_init_flag false is not modelled: true is assumed");
    noted("f: not known, so ignored: surprise");
}

static void test_accelerate_fsdp(void **state)
{
    (void)state;
    import("accelerate", "distributed_type: FSDP\n"
                         "fsdp_config: {fsdp_sharding_strategy: HYBRID_SHARD,"
                         " fsdp_offload_params: yes}\n"
                         "mixed_precision: fp16\n");
    has("framework=fsdp engine=fsdp zero=3 offload_params=cpu "
        "precision=fp16-mixed reduce_dtype=fp16");
    noted("HYBRID_SHARD shards within a node");
    import("accelerate", "distributed_type: FSDP\nnum_machines: 2\n"
                         "num_processes: 16\nfsdp_config: "
                         "{fsdp_sharding_strategy: HYBRID_SHARD_ZERO2}\n");
    has("zero=2 shard_degree=8");
    import("accelerate", "distributed_type: FSDP\n"
                         "fsdp_config:\n  fsdp_version: 2\n"
                         "  fsdp_reshard_after_forward: false\n");
    has("engine=fsdp2 zero=2 precision=fp32");
    import("accelerate", "distributed_type: FSDP\n"
                         "fsdp_config:\n  fsdp_sharding_strategy: 2\n");
    has("engine=fsdp zero=2");
}

/* Of version 1; Accelerate warns that the other has no such thing. */
static void test_orig_params(void **state)
{
    (void)state;
    import("accelerate", "distributed_type: FSDP\n"
                         "fsdp_config:\n  fsdp_use_orig_params: false\n");
    has("engine=fsdp use_orig_params=false");
    assert_int_equal(got.setup.notes, 0);
    import("accelerate", "distributed_type: FSDP\n"
                         "fsdp_config:\n  fsdp_version: 2\n"
                         "  fsdp_use_orig_params: true\n");
    has("engine=fsdp2");
    assert_false(got.setup.set[KEY_USE_ORIG_PARAMS]);
    noted("use_orig_params is nothing of FSDP 2");
    import("torchrun", "accelerate launch --use_fsdp --fsdp_use_orig_params "
                       "false x.py\n");
    has("engine=fsdp use_orig_params=false");
    import("training-args",
           "{\"fsdp\": \"full_shard auto_wrap\", \"fsdp_config\": "
           "{\"version\": 1, \"use_orig_params\": \"false\"}}");
    has("engine=fsdp use_orig_params=false");
    import("training-args",
           "{\"fsdp\": \"full_shard auto_wrap\", \"fsdp_config\": "
           "{\"version\": 1, \"fsdp_use_orig_params\": true}}");
    has("engine=fsdp use_orig_params=true");
    import("training-args",
           "{\"fsdp\": true, \"fsdp_config\": {\"use_orig_params\": true}}");
    has("engine=fsdp2");
    assert_false(got.setup.set[KEY_USE_ORIG_PARAMS]);
}

static void test_accelerate_others(void **state)
{
    (void)state;
    import("accelerate", "distributed_type: NO\nmixed_precision: no\n"
                         "dynamo_config:\n  dynamo_backend: INDUCTOR\n");
    has("framework=hf precision=fp32 compile=true");
    import("accelerate", "distributed_type: MULTI_GPU\n"
                         "mixed_precision: 'fp16'\n");
    has("framework=hf precision=fp16-amp");
    import("accelerate", "distributed_type: MEGATRON_LM\n"
                         "megatron_lm_config:\n"
                         "  megatron_lm_tp_degree: 2\n"
                         "  megatron_lm_use_distributed_optimizer: true\n"
                         "  megatron_lm_gradient_clipping: 0\n");
    has("framework=megatron tp=2 zero=1 clip_grad=false");
    import("accelerate", "distributed_type: DEEPSPEED\ndeepspeed_config: "
                         "{deepspeed_config_file: ds.json}\n");
    assert_string_equal(got.setup.pending, "ds.json");
}

static void test_accelerate_refused(void **state)
{
    (void)state;
    import("accelerate", "a: 1\nmixed_precision: fp4\n");
    refused(MEMPLAN_E_UNKNOWN, "unknown mixed_precision", 2);
    import("accelerate", "# \xc3\xa9\xc3\xa9\ndistributed_type: XLA\n");
    refused(MEMPLAN_E_UNSUPPORTED, "distributed_type 'XLA'", 2);
    assert_int_equal(got.slot[0].column, 19);
    import("accelerate", "num_machines: 3\nnum_processes: 16\n");
    refused(MEMPLAN_E_CONFLICT,
            "num_processes is not a multiple of num_machines", 2);
    import("accelerate", "distributed_type: DEEPSPEED\nmixed_precision: bf16\n"
                         "deepspeed_config:\n"
                         "  deepspeed_config_file: ds.json\n"
                         "  zero3_init_flag: true\n");
    refused(MEMPLAN_E_CONFLICT, "beside deepspeed_config_file: mixed_precision",
            2);
    import("accelerate", "distributed_type: DEEPSPEED\nmixed_precision: bf16\n"
                         "deepspeed_config:\n"
                         "  deepspeed_config_file: ds.json\n"
                         "  zero_stage: 3\n"
                         "  gradient_accumulation_steps: 2\n");
    refused(MEMPLAN_E_CONFLICT,
            "beside deepspeed_config_file: gradient_accumulation_steps, "
            "zero_stage, mixed_precision",
            6);
    hinted("Accelerate refuses it");
    import("accelerate", "num_processes: eight\n");
    assert_int_equal(got.status, MEMPLAN_E_ARG);
}

/* ---- Megatron ---- */

static const char megatron_script[] =
    "#!/bin/bash\n"
    "TP=8 # of a node\n"
    "PP=${PP:-4}\n"
    "NODES=\"$1\"\n"
    "MODEL=(\n"
    "    --num-layers 96 # --hidden-size 1\n"
    "    --seq-length 2048)\n"
    "ARGS=\"--micro-batch-size 2 --global-batch-size=1536 \\\n"
    "   --bf16 --clip-grad 0\"\n"
    "torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py ${MODEL[@]} \\\n"
    "  $ARGS --tensor-model-parallel-size $TP --use-distributed-optimizer \\\n"
    "  --pipeline-model-parallel-size ${PP} --sequence-parallel \\\n"
    "  --recompute-granularity selective --recompute-modules core_attn mlp \\\n"
    "  --num-layers-per-virtual-pipeline-stage 12 --save $NODES --new-flag\n";

static void test_megatron(void **state)
{
    (void)state;
    import("megatron-args", megatron_script);
    assert_int_equal(got.status, MEMPLAN_OK);
    has("framework=megatron zero=1 tp=8 pp=4 vpp=2 micro_batch=2 "
        "global_batch=1536 precision=bf16-mixed clip_grad=false gpus=32 "
        "gpus_per_node=8 seq_len=2048 sequence_parallel=true "
        "recompute=selective recompute_modules=core_attn,mlp dropout=0.1 "
        "attention=flash attention_mask=dataloader deterministic=false");
    noted("not known, so ignored: --new-flag");
    noted("of the model, which is MODEL's: --num-layers");
}

/* $((...)) of numbers and of what the script assigns. */
static void test_megatron_sums(void **state)
{
    (void)state;
    import("megatron-args",
           "GPUS=8\nNODES=${N:-4}\nWORLD=$(($GPUS*$NODES))\n"
           "BATCH=$(( (WORLD + 2 * ${GPUS}) / 3 ))\n"
           "torchrun --nproc_per_node $GPUS --nnodes $NODES x.py \\\n"
           "  --global-batch-size $BATCH --micro-batch-size $((7 % 4 - 2))\n");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("gpus=32 global_batch=16 micro_batch=1");
    static const char *const bad[] = { "$((8/0))",
                                       "$((A+1))",
                                       "$((2-3))",
                                       "$((8 * ))",
                                       "$(((8))",
                                       "$((2**3))",
                                       "$((9999999999999999*9))" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[80];
        str_format(text, sizeof(text), "A=$((A+1)) --micro-batch-size %s",
                   bad[i]);
        import("megatron-args", text);
        assert_int_equal(got.status, MEMPLAN_E_ARG);
    }
}

/* "$ARGS" is another list of flags, and NeMo's flags are paths. */
static void test_megatron_arrays(void **state)
{
    (void)state;
    import("megatron-args",
           "ARGS=\" \\\n --bf16 --swiglu\"\nPP=2\n"
           "x.py --pipeline-model-parallel-size $PP $ARGS $MORE \\\n"
           " --trainer.strategy.tensor-model-parallel-size 4 "
           "--trainer.devices 8 --trainer.num-nodes 2\n");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("pp=2 tp=4 gpus=16 precision=bf16-mixed");
}

static void test_megatron_fp4(void **state)
{
    (void)state;
    import("megatron-args", "x.py --bf16 --fp4-format e2m1 --fp4-recipe nvfp4 "
                            "--first-last-layers-bf16\n");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("precision=fp4-mixed fp8_recipe= num_layers_at_start_in_bf16=1");
    import("megatron-args",
           "x.py --bf16 --fp4-format e2m1 --fp4-param-gather\n");
    noted("--fp4-param-gather");
}

/* One at each end where no count is said; counts alone say nothing. */
static void test_megatron_bf16_ends(void **state)
{
    (void)state;
    import("megatron-args", "x.py --bf16 --fp8-format hybrid --fp8-recipe "
                            "tensorwise --first-last-layers-bf16 "
                            "--num-layers-at-start-in-bf16 3\n");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("precision=fp8-mixed num_layers_at_start_in_bf16=3 "
        "num_layers_at_end_in_bf16=1");
    import("megatron-args", "x.py --bf16 --fp8-format hybrid "
                            "--num-layers-at-start-in-bf16 3\n");
    has("precision=fp8-mixed num_layers_at_start_in_bf16=");
}

/* DeepSpeed's pipeline engine is not there from stage 2 on. */
static void test_megatron_without_pipeline(void **state)
{
    (void)state;
    import("megatron-args",
           "x.py --deepspeed --zero-stage 1 --no-pipeline-parallel\n");
    noted("f: --no-pipeline-parallel is not modelled below ZeRO-2: DeepSpeed's "
          "pipeline engine is assumed");
    import("megatron-args", "x.py --deepspeed --no-pipeline-parallel\n");
    noted("--no-pipeline-parallel is not modelled below ZeRO-2");
    import("megatron-args",
           "x.py --deepspeed --zero-stage 3 --no-pipeline-parallel\n");
    assert_int_equal(got.status, MEMPLAN_OK);
    for (size_t i = 0; i < got.setup.notes; i++)
        assert_null(strstr(got.setup.note[i], "--no-pipeline-parallel"));
}

/* A flag that is nearly one of Megatron's, and one without its value. */
static void test_megatron_typos(void **state)
{
    (void)state;
    import("megatron-args", "--tensor-model-paralel-size 8");
    noted("f: not known, so ignored: --tensor-model-paralel-size (did you mean "
          "--tensor-model-parallel-size?)");
    import("megatron-args", "--bf16 --micro-batch-size --fp8-recipe");
    refused(MEMPLAN_E_ARG, "no value behind '--micro-batch-size'", 1);
    import("megatron-args", "--micro-batch-size none");
    refused(MEMPLAN_E_ARG,
            "'--micro-batch-size' takes a whole number, not 'none'", 1);
}

/* Sections: names are those of flags. */
static void test_megatron_sections(void **state)
{
    (void)state;
    import("megatron-args", "trainer:\n  devices: 8\n  num_nodes: 4\n"
                            "  precision: bf16-mixed\n"
                            "model:\n  tensor_model_parallel_size: 2\n"
                            "  sequence_parallel: false\n"
                            "  recompute_granularity: selective\n"
                            "  recompute_modules: [core_attn, mlp]\n"
                            "train:\n  micro_batch_size: 2\n");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("gpus=32 gpus_per_node=8 tp=2 precision=bf16-mixed micro_batch=2 "
        "sequence_parallel=false recompute_modules=core_attn,mlp "
        "attention=flash");
    import("megatron-args", "mixed_precision: fp16_mixed\nddp:\n");
    has("precision=fp16-mixed");
    import("megatron-args", "train:\n  micro_batch_size: none\n");
    refused(MEMPLAN_E_ARG,
            "'micro_batch_size' takes a whole number, not 'none'", 2);
}

/* NeMo's own words for recomputation and optimizers. */
static void test_megatron_nemo(void **state)
{
    (void)state;
    import("megatron-args",
           "name: gpt\ntrainer:\n  devices: -1\n  num_nodes: 4\n"
           "model:\n  megatron_amp_O2: False\n"
           "  activations_checkpoint_granularity: full\n"
           "  activations_checkpoint_method: block\n"
           "  activations_checkpoint_num_layers: 3\n"
           "  optim:\n    name: distributed_fused_adam\n"
           "    sched:\n      name: CosineAnnealing\n");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("recompute=full recompute_layers=3 optimizer=adamw zero=1 gpus=");
    assert_int_equal(got.setup.nodes, 4);
    noted("without megatron_amp_O2");
    import("megatron-args", "model:\n"
                            "  activations_checkpoint_granularity: selective\n"
                            "  optim:\n    name: novograd\n");
    has("recompute=selective");
    refused(MEMPLAN_E_UNSUPPORTED, "optim.name 'novograd' is not modelled", 4);
    import("megatron-args",
           "model:\n  activations_checkpoint_granularity: x\n");
    refused(MEMPLAN_E_UNKNOWN, "unknown activations_checkpoint_granularity", 2);
}

/* Megatron-Bridge's section of adapters, whose names another one has too. */
static void test_megatron_bridge(void **state)
{
    (void)state;
    import("megatron-args",
           "model:\n  bf16: true\n  dropout: 0.5\n"
           "peft:\n  _target_: megatron.bridge.peft.lora.LoRA\n"
           "  target_modules: [linear_qkv, '*.linear_proj', linear_fc1]\n"
           "  dim: 16\n  alpha: 32\n  dropout: 0.1\n"
           "  dropout_position: post\n");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("lora_rank=16 lora_targets=q,k,v,o,gate,up lora_dropout=0.1");
    noted("dropout_position is not modelled");
    import("megatron-args", "peft:\n  dim: 16\n  normalize_moe_lora: false\n"
                            "  share_expert_adapters: false\n");
    has("lora_rank=16");
    noted("peft_share_expert_adapters false is not modelled: true is assumed");
    import("megatron-args", "peft:\n  target_modules: [linear_fc2]\n");
    has("lora_rank=32 lora_targets=down");
    import("megatron-args",
           "model:\n  bf16: true\npeft:\n  _target_: a.b.LoRA\n");
    has("lora_rank=32 lora_targets=");
    import("megatron-args", "model:\n  bf16: true\npeft: null\n");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("lora_rank=");
    import("megatron-args", "model:\n  bf16: true\npeft: lora\n");
    refused(MEMPLAN_E_UNSUPPORTED, "adapters by the name 'lora' are not read",
            3);
    import("megatron-args", "model:\n  peft:\n    peft_scheme: lora\n"
                            "    lora_tuning:\n      adapter_dim: 32\n");
    refused(MEMPLAN_E_UNSUPPORTED, "adapters by the name 'lora' are not read",
            3);
    import("megatron-args", "model:\n  bf16: true\npeft: none\n");
    assert_int_equal(got.status, MEMPLAN_OK);
    import("megatron-args", "peft:\n  dim: 8\n"
                            "  target_modules: ['*.layers.0.*.linear_qkv']\n");
    refused(MEMPLAN_E_UNSUPPORTED,
            "peft.target_modules '*.layers.0.*.linear_qkv' is not modelled", 3);
    import("megatron-args",
           "peft:\n  _target_: megatron.bridge.peft.dora.DoRA\n  dim: 8\n");
    refused(MEMPLAN_E_UNSUPPORTED,
            "peft._target_ 'megatron.bridge.peft.dora.DoRA' is not modelled",
            2);
}

/* Patterns of the same linears of every layer are their names. */
static void test_megatron_bridge_patterns(void **state)
{
    static const struct {
        const char *patterns, *targets; /* NULL: of other linears, or fewer */
    } rows[] = {
        { "'*.linear_qkv', '*.linear_proj'", "q,k,v,o" },
        { "'*.layers.*.linear_qkv', '*.mlp.*linear_fc1'", "q,k,v,gate,up" },
        { "'*self_attention.linear_proj', linear_fc2", "o,down" },
        { "'*linear_fc*'", "gate,up,down" },
        { "'decoder.layers.*.linear_qkv'", "q,k,v" },
        { "'*linear_fc.', linear_fc1", "gate,up,down" },
        { "'*.layers.*.linear_q?v'", NULL },
        { "'*.layers.7.*linear_qkv'", NULL },
        { "'*.mlp.linear_fc1'", NULL },
        { "'*linear_*'", NULL },
        { "'*'", NULL },
        { "'*.linear_q'", NULL },
        { "3", NULL },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[160];
        snprintf(text, sizeof(text), "peft:\n  target_modules: [%s]\n",
                 rows[i].patterns);
        import("megatron-args", text);
        if (rows[i].targets == NULL) {
            assert_int_equal(got.status, MEMPLAN_E_UNSUPPORTED);
            hinted("use linear_qkv, linear_proj");
            continue;
        }
        assert_int_equal(got.status, MEMPLAN_OK);
        snprintf(text, sizeof(text), "lora_rank=32 lora_targets=%s",
                 rows[i].targets);
        has(text);
    }
}

/* What its class fails at, or takes otherwise. */
static void test_megatron_bridge_refused(void **state)
{
    static const struct {
        const char *line, *message;
    } rows[] = {
        { "dim: null", "peft.dim takes a whole number, 1 or more" },
        { "dim: '16'", "peft.dim takes a whole number, 1 or more" },
        { "dim: 0", "peft.dim takes a whole number, 1 or more" },
        { "dropout: null", "peft.dropout takes a number from 0 to 1" },
        { "dropout: '0.1'", "peft.dropout takes a number from 0 to 1" },
        { "target_modules: null",
          "peft.target_modules without names is every linear, the head's "
          "too, which is not modelled" },
        { "target_modules: []",
          "peft.target_modules without names is every linear, the head's "
          "too, which is not modelled" },
        { "target_modules: linear_qkv",
          "peft.target_modules takes a list of names" },
        { "exclude_modules: [linear_fc1]",
          "peft.exclude_modules beside target_modules: Megatron-Bridge "
          "refuses it" },
        { "dropout_position: 3", "unknown peft.dropout_position" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[160];
        snprintf(text, sizeof(text), "peft:\n  _target_: a.LoRA\n  %s\n",
                 rows[i].line);
        import("megatron-args", text);
        assert_int_not_equal(got.status, MEMPLAN_OK);
        assert_string_equal(got.slot[0].message, rows[i].message);
        assert_int_equal(got.slot[0].line, 3);
        assert_true(got.slot[0].hint[0] != '\0');
    }
    import("megatron-args",
           "peft:\n  exclude_modules: []\n  dim: 8\n  dropout: 0\n");
    has("lora_rank=8 lora_targets= lora_dropout=0");
}

/* Usage and cases of a script's own arguments are no flags of Megatron's. */
static void test_megatron_usage(void **state)
{
    (void)state;
    import("megatron-args", "echo \"  --bf16  16 bits\"\n"
                            "case $1 in\n  --fp16)\n    A=2 ;;\nesac\n"
                            "ARGS=(\n  --micro-batch-size $A\n  --swiglu)\n");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("precision=fp32 micro_batch=2");
    noted("MODEL's: --swiglu");
}

/* What stands in a branch is told, but for one that is over, and one that the
 * command itself is in. */
static void test_script_branches(void **state)
{
    (void)state;
    import("megatron-args", "if [ $A ]; then T=4; else T=2; fi\n"
                            "torchrun pretrain_gpt.py --bf16 "
                            "--tensor-model-parallel-size $T\n");
    has("tp=2");
    noted("read as if it were taken: --tensor-model-parallel-size");
    import("megatron-args", "case $A in\n 7b) X=\"--micro-batch-size 2\" ;;\n"
                            "esac\ntorchrun pretrain_gpt.py $X --bf16\n");
    has("micro_batch=2");
    noted("read as if it were taken: --micro-batch-size");
    import("megatron-args",
           "if [ $A ]; then # it isn't\n  D=1\nelif [ $B ]; then\n  if x; "
           "then D=2; fi\nfi\nT=2\n"
           "torchrun pretrain_gpt.py --bf16 --tensor-model-parallel-size $T\n");
    has("tp=2");
    assert_int_equal(got.setup.notes, 0);
    import("training-args", "if true; then\n  torchrun --nproc_per_node 2 a.py "
                            "\\\n --bf16 True\nfi\n");
    has("precision=bf16-amp");
    assert_int_equal(got.setup.notes, 0);
}

/* One kernel for latent attention's rope unless told otherwise. */
static void test_megatron_latent_rope(void **state)
{
    static const char latent[] = "--multi-latent-attention --bf16 "
                                 "--position-embedding-type rope ";
    static const struct {
        const char *more;
        bool fused;
    } cases[] = { { "", true },
                  { "--no-rope-fusion", false },
                  { "--rope-type rope", false },
                  { "--rope-type yarn", true } };
    char text[256];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, "%s%s", latent, cases[i].more);
        import("megatron-args", text);
        has(cases[i].fused ? "rope_fusion=true" : "rope_fusion=");
        unnoted("rope-fusion");
    }
    import("megatron-args", "--bf16 --no-rope-fusion");
    noted("--no-rope-fusion is not modelled: rotary embeddings are one kernel");
}

/* What a script says of a time before, and of DeepSpeed under Megatron. */
static void test_megatron_before(void **state)
{
    (void)state;
    import("megatron-args", "--checkpoint-activations --fp16 "
                            "--checkpoint-num-layers 2");
    has("recompute=full recompute_granularity=2");
    import("megatron-args", "--activations-checkpoint-method block --bf16 "
                            "--activations-checkpoint-num-layers 4");
    has("recompute=full recompute_layers=4");
    import("megatron-args", "--deepspeed --deepspeed_config ds.json "
                            "--zero-stage 1 --bf16 --no-bias-gelu-fusion");
    has("framework=megatron-deepspeed zero=1");
    assert_string_equal(got.setup.pending, "ds.json");
    noted("--no-bias-gelu-fusion is not modelled");
    import("megatron-args", "--deepspeed --deepspeed_config $F --fp16");
    noted("add --deepspeed FILE");
}

/* Names that name themselves, as `A=${A:-8}`, are what they were before. */
static void test_megatron_names(void **state)
{
    (void)state;
    import("megatron-args", "G=8\nN=2\nG=${G:-4}\nN=${N:-1}\n"
                            "W=$(($G*$N))\n--global-batch-size $W "
                            "--micro-batch-size $G\n");
    has("global_batch=16 micro_batch=8");
}

/* TE's attention in 32 bits is spelled out; a dispatcher by another's bytes. */
static void test_megatron_kernels(void **state)
{
    (void)state;
    import("megatron-args", "--moe-token-dispatcher-type flex");
    has("attention=eager moe_dispatcher=flex");
    noted("flex: memory is without DeepEP's");
    import("megatron-args", "--bf16\n--context-parallel-size 2\n"
                            "--cp-comm-type all_gather");
    has("cp=2 cp_comm=all_gather");
    import("megatron-args", "--bf16\n--cp-comm-type allgather");
    refused(MEMPLAN_E_UNSUPPORTED, "--cp-comm-type 'allgather' is not modelled",
            2);
    import("megatron-args", "--bf16\n--cp-comm-type a2a+p2p\n"
                            "--hierarchical-context-parallel-sizes 2 2");
    assert_int_equal(got.status, MEMPLAN_OK);
    noted("f: --hierarchical-context-parallel-sizes is not modelled: keys and "
          "values go round one ring of all ranks");
}

/* Whose cross entropy Megatron takes where the script does not say. */
static void test_megatron_loss(void **state)
{
    (void)state;
    import("megatron-args", "--cross-entropy-loss-fusion");
    has("loss=fused ce_fusion=native");
    import("megatron-args", "--cross-entropy-loss-fusion "
                            "--cross-entropy-fusion-impl te");
    has("loss=fused ce_fusion=te");
}

/* Flags that are not there are off, or what Megatron has by itself. */
static void test_megatron_absent(void **state)
{
    (void)state;
    import("megatron-args", "--tensor-model-parallel-size 8\n"
                            "NNODES=${SLURM_NNODES:-\"4\"}\n"
                            "torchrun --nproc_per_node 8 --nnodes $NNODES x.py "
                            "--deterministic-mode\n");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("sequence_parallel=false grad_accum_fusion=true deterministic=true "
        "zero=0 precision=fp32 gpus=32");
}

/* Flags of Megatron's years before core 0.7, and as they are in YAML. */
static void test_megatron_old_messages(void **state)
{
    (void)state;
    import("megatron-args", "--tensor-model-parallel-size 2 "
                            "--no-async-tensor-model-parallel-allreduce "
                            "--no-scatter-gather-tensors-in-pipeline");
    has("async_tensor_model_parallel_allreduce= "
        "scatter_gather_tensors_in_pipeline=false");
    noted("--no-async-tensor-model-parallel-allreduce is ignored, as by "
          "Megatron since core 0.7 (May 2024): where it is older, say it "
          "beside the file");
    import("megatron-args", "--tensor-model-parallel-size 2 --deepspeed "
                            "--no-async-tensor-model-parallel-allreduce");
    has("framework=megatron-deepspeed async_tensor_model_parallel_allreduce=");
    unnoted("is ignored");
    import("megatron-args", "model_parallel:\n  tensor_model_parallel_size: 2\n"
                            "  async_tensor_model_parallel_allreduce: True\n"
                            "scatter_gather_tensors_in_pipeline: True\n");
    noted("f: no effect on memory or compute: "
          "async_tensor_model_parallel_allreduce, "
          "scatter_gather_tensors_in_pipeline");
}

static void test_megatron_yaml(void **state)
{
    (void)state;
    import("megatron-args", "ENV_VARS:\n"
                            "  CUBLAS_WORKSPACE_CONFIG: ':4096:8'\n"
                            "MODEL_ARGS:\n"
                            "  --num-layers: 12\n"
                            "  --micro-batch-size: 4\n"
                            "  --fp16: true\n"
                            "  --use-distributed-optimizer: false\n"
                            "  --transformer-impl: local\n"
                            "  --recompute-granularity: full\n"
                            "  --recompute-num-layers: 2\n"
                            "  --hidden-dropout: 0.0\n"
                            "  --attention-dropout: 0.0\n"
                            "  --tensor-model-parallel-size: 2\n"
                            "  --make-vocab-size-divisible-by: 64\n");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("zero=0 micro_batch=4 precision=fp16-mixed grad_dtype=fp16 "
        "implementation=megatron-local attention=eager recompute=full "
        "deterministic=true recompute_granularity=2 dropout=0 "
        "vocab_multiple=128");
}

/* Of the attention kernels that Transformer Engine has, what a script's
 * environment or --attention-backend rules out. */
static void test_megatron_backend(void **state)
{
    (void)state;
    static const char rest[] = "--num-layers 12 --hidden-size 768 "
                               "--num-attention-heads 12 --seq-length 1024 "
                               "--micro-batch-size 1 --bf16 ";
    static const char none[] = "attention=flash attention_kernel=";
    static const char flash[] = "attention=flash attention_kernel=flash2";
    static const char eager[] = "attention=eager attention_kernel=";
    static const struct {
        const char *before, *after, *want;
    } cases[] = {
        { "", "--attention-backend flash", flash },
        { "", "--attention-backend fused", none },
        { "", "--attention-backend auto", none },
        { "", "--attention-backend unfused", eager },
        { "export NVTE_FUSED_ATTN=0\n", "", flash },
        { "export NVTE_FLASH_ATTN=0\n", "", none },
        { "export NVTE_FLASH_ATTN=0 NVTE_FUSED_ATTN=0\n", "", eager },
        { "# export NVTE_FUSED_ATTN=0\n", "", none },
        { "export NVTE_FUSED_ATTN=1\n", "", none },
        { "export NVTE_FUSED_ATTN_X=0\n", "", none },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, "%spretrain_gpt.py %s%s\n", cases[i].before,
                 rest, cases[i].after);
        import("megatron-args", text);
        assert_int_equal(got.status, MEMPLAN_OK);
        has(cases[i].want);
    }
}

static void test_megatron_stages(void **state)
{
    (void)state;
    import("megatron-args", "--pipeline-model-parallel-size 4 "
                            "--pipeline-model-parallel-layout "
                            "'Ettt|(tt|)*6mL'");
    has("vpp=2 pipeline_layers=5,4,4,2");
    import("megatron-args", "--pipeline-model-parallel-size 4 "
                            "--pipeline-model-parallel-layout "
                            "'Et*3|t*4|t*4|L'");
    has("vpp=1 pipeline_layers=3,4,4,0");
    import("megatron-args", "--pipeline-model-parallel-size 4 --num-layers 30 "
                            "--account-for-embedding-in-pipeline-split "
                            "--account-for-loss-in-pipeline-split");
    has("pipeline_layers=7,8,8,7 vpp=");
    import("megatron-args", "model:\n  num_layers: 30\n"
                            "  pipeline_model_parallel_size: 4\n"
                            "  num_layers_in_first_pipeline_stage: 7\n"
                            "  num_layers_in_last_pipeline_stage: 7\n");
    has("pipeline_layers=7,8,8,7 vpp=");
    import("megatron-args", "--pipeline-model-parallel-size 4 --num-layers 14 "
                            "--decoder-first-pipeline-num-layers 2");
    has("pipeline_layers=2,4,4,4");
    import("megatron-args", "--pipeline-model-parallel-size 2\n"
                            "--pipeline-model-parallel-layout t*99999999|t\n");
    refused(MEMPLAN_E_ARG, "a layout that does not read as stages", 2);
    import("megatron-args", "--pipeline-model-parallel-size 4 --num-layers 15 "
                            "--decoder-first-pipeline-num-layers 2");
    refused(MEMPLAN_E_CONFLICT, "15 layers do not split so over 4 stages", 1);
    hinted("13 layers remain for 3 stages: write 3, or add "
           "--decoder-last-pipeline-num-layers");
    import("megatron-args", "--pipeline-model-parallel-size 4 --num-layers 32 "
                            "--decoder-first-pipeline-num-layers 7");
    hinted("25 layers remain for 3 stages: write 5 or 8, or add "
           "--decoder-last-pipeline-num-layers");
    import("megatron-args", "--pipeline-model-parallel-size 4 --num-layers 33 "
                            "--decoder-last-pipeline-num-layers 2");
    hinted("31 layers remain for 3 stages: write 3, or");
    import("megatron-args", "--pipeline-model-parallel-size 4 --num-layers 32 "
                            "--account-for-embedding-in-pipeline-split "
                            "--account-for-loss-in-pipeline-split");
    hinted("34 with what counts as one do not divide by 4: leave it out");
    import("megatron-args", "--pipeline-model-parallel-size 4 "
                            "--num-layers-per-virtual-pipeline-stage 2");
    has("vpp=");
    assert_int_equal(got.setup.chunk_layers, 2);
    import("megatron-args", "--pipeline-model-parallel-size 4 --num-layers 8 "
                            "--num-layers-per-virtual-pipeline-stage 3");
    refused(MEMPLAN_E_CONFLICT,
            "--num-layers-per-virtual-pipeline-stage 3 with 8 layers over 4 "
            "stages",
            1);
    import("megatron-args", "--pipeline-model-parallel-size 4 --num-layers 32 "
                            "--num-layers-per-virtual-pipeline-stage 3");
    refused(MEMPLAN_E_CONFLICT,
            "--num-layers-per-virtual-pipeline-stage 3 with 32 layers over 4 "
            "stages",
            1);
    import("megatron-args", "--pipeline-model-parallel-size 4 --num-layers 30 "
                            "--account-for-embedding-in-pipeline-split "
                            "--account-for-loss-in-pipeline-split "
                            "--num-layers-per-virtual-pipeline-stage 4");
    has("pipeline_layers=7,8,8,7 vpp=2");
    import("megatron-args", "--pipeline-model-parallel-size 4 --num-layers 32 "
                            "--num-virtual-stages-per-pipeline-rank 3");
    refused(MEMPLAN_E_CONFLICT,
            "--num-virtual-stages-per-pipeline-rank 3 with 32 layers over 4 "
            "stages",
            1);
    import("megatron-args", "--pipeline-model-parallel-size 4 "
                            "--account-for-loss-in-pipeline-split");
    noted("without --num-layers: stages are even, or --pipeline-layers");
}

static void test_megatron_refused(void **state)
{
    (void)state;
    import("megatron-args", "a\n--tensor-model-parallel-size $TP\n");
    refused(MEMPLAN_E_ARG,
            "'--tensor-model-parallel-size' is '$TP', which the file does not "
            "say",
            2);
    import("megatron-args", "A=$B\nB=$A\n--tensor-model-parallel-size $B\n");
    assert_int_equal(got.status, MEMPLAN_E_ARG);
    import("megatron-args", "echo nothing\n");
    refused(MEMPLAN_E_SYNTAX, "no flag in the file", 0);
    import("megatron-args", "--bf16 --fp16");
    refused(MEMPLAN_E_CONFLICT, "--bf16 and --fp16 are both given", 1);
    import("megatron-args", "--recompute-granularity all");
    refused(MEMPLAN_E_UNKNOWN, "unknown --recompute-granularity", 1);
    import("megatron-args", "--recompute-granularity full "
                            "--recompute-num-layers many");
    refused(MEMPLAN_E_ARG,
            "'--recompute-num-layers' takes a whole number, 1 or more", 1);
    import("megatron-args", "--clip-grad yes");
    refused(MEMPLAN_E_ARG, "'--clip-grad' takes a number", 1);
    import("megatron-args", "--");
    assert_int_equal(got.status, MEMPLAN_E_SYNTAX);
    import_bytes("megatron-args", "--bf16\0--fp16", 13);
    refused(MEMPLAN_E_SYNTAX, "not a text: it has a byte 0", 0);
}

/* ---- torchtitan ---- */

/* What a file without a word says: job_config.py's defaults. */
static void test_torchtitan_defaults(void **state)
{
    (void)state;
    import("torchtitan", "");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("framework=torchtitan engine= zero=3 gpus= micro_batch=8 grad_accum=1 "
        "seq_len=2048 precision=bf16-mixed reduce_dtype=fp32 recompute=full "
        "recompute_every=2 compile=false loss=standard optimizer_impl=fused "
        "clip_grad=true offload_params=");
}

static void test_torchtitan(void **state)
{
    (void)state;
    import("torchtitan",
           "[job]\ndescription = 'x'\n"
           "[model]\nname = \"llama3\"\nconverters = [\"float8\"]\n"
           "[optimizer]\nname = 'AdamW'\nimplementation = 'for-loop'\n"
           "[training]\nlocal_batch_size = 4\nglobal_batch_size = 1_024\n"
           "seq_len = 8_192\nenable_cpu_offload = true\nnonsense = 1\n"
           "[parallelism]\ndata_parallel_replicate_degree = 2\n"
           "data_parallel_shard_degree = 8\ntensor_parallel_degree = 4\n"
           "context_parallel_degree = 2\n"
           "context_parallel_rotate_method = 'alltoall'\n"
           "fsdp_reshard_after_forward = 'never'\n"
           "[activation_checkpoint]\nmode = 'selective'\n"
           "selective_ac_option = 'op'\n"
           "[compile]\nenable = true\n");
    assert_int_equal(got.status, MEMPLAN_OK);
    has("gpus=128 dp=16 shard_degree=16 tp=4 cp=2 cp_comm=p2p zero=2 micro_batch=4 grad_accum= "
        "global_batch=1024 seq_len=8192 precision=fp8-mixed "
        "fp8_recipe=tensorwise optimizer_impl=loop offload_params=cpu "
        "recompute=ops compile=true loss=fused");
    noted("f: not known, so ignored: training.nonsense");
    noted("f: of the model, which is MODEL's: model.name");
}

/* Without tensor parallelism it says nothing; of [experimental] until March
 * 2025. */
static void test_torchtitan_async(void **state)
{
    (void)state;
    import("torchtitan", "[parallelism]\ntensor_parallel_degree = 8\n"
                         "enable_async_tensor_parallel = true\n");
    has("tp=8 async_tp=true");
    import("torchtitan",
           "[training]\ntensor_parallel_degree = 2\n"
           "[experimental]\nenable_async_tensor_parallel = true\n");
    has("tp=2 async_tp=true");
    import("torchtitan", "parallelism.enable_async_tensor_parallel = true\n");
    has("async_tp=");
    import("torchtitan", "[parallelism]\ntensor_parallel_degree = 8\n"
                         "enable_async_tensor_parallel = false\n");
    has("async_tp=");
}

/* As of 2024; a layer norm is the model's. */
static void test_torchtitan_norm(void **state)
{
    (void)state;
    import("torchtitan", "model.norm_type = 'rmsnorm'\n");
    has("norm_kernel=eager");
    import("torchtitan", "model.norm_type = 'compiled_rmsnorm'\n");
    has("norm_kernel=fused");
    import("torchtitan", "model.norm_type = 'np_layernorm'\n");
    has("norm_kernel=");
}

static void test_torchtitan_pipeline(void **state)
{
    (void)state;
    import("torchtitan", "training.local_batch_size = 16\n"
                         "[parallelism]\npipeline_parallel_degree = 4\n"
                         "pipeline_parallel_schedule = 'Interleaved1F1B'\n"
                         "pipeline_parallel_microbatch_size = 2\n");
    has("pp=4 schedule=interleaved vpp=2 micro_batch=2 grad_accum=8 zero=3 "
        "reshard_after_forward=");
    import("torchtitan", "[parallelism]\npipeline_parallel_degree = 2\n"
                         "pipeline_parallel_schedule = 'ZBVZeroBubble'\n");
    has("schedule=zb-v vpp=");
    import("torchtitan", "[parallelism]\npipeline_parallel_degree = 2\n"
                         "pipeline_parallel_schedule = 'ZBV'\n");
    assert_string_equal(got.slot[0].hint,
                        "known are 1F1B, GPipe, Interleaved1F1B, "
                        "ZBVZeroBubble, DualPipeV, InterleavedZeroBubble");
    import("torchtitan",
           "[parallelism]\npipeline_parallel_degree = 2\n"
           "pipeline_parallel_schedule = 'InterleavedZeroBubble'\n");
    has("schedule=zb-interleaved vpp=2");
    import("torchtitan",
           "[parallelism]\npipeline_parallel_degree = 2\n"
           "pipeline_parallel_schedule = 'InterleavedZeroBubble'\n"
           "module_fqns_per_model_part = [['tok_embeddings', 'layers.0'],\n"
           "['layers.1', 'layers.2'], ['layers.3', 'layers.4'],\n"
           "['layers.5', 'norm', 'output']]\n");
    has("schedule=zb-interleaved vpp=2 pipeline_layers=3,3");
    import("torchtitan",
           "[parallelism]\npipeline_parallel_degree = 2\n"
           "pipeline_parallel_schedule = 'DualPipeV'\n"
           "module_fqns_per_model_part = [['tok_embeddings', 'layers.0'],\n"
           "['layers.1', 'layers.2'], ['layers.3'], ['norm', 'output']]\n");
    has("schedule=dualpipe-v vpp= pipeline_layers=1,3");
    import("torchtitan",
           "[parallelism]\npipeline_parallel_degree = 2\n"
           "pipeline_parallel_schedule = 'ZBVZeroBubble'\n"
           "module_fqns_per_model_part = [['tok_embeddings', 'layers.0'],\n"
           "['layers.1'], ['layers.2', 'layers.3'], ['norm', 'output']]\n");
    noted("f: module_fqns_per_model_part: a rank's parts are taken as "
          "equally long, the first ones a layer longer");
    import("torchtitan",
           "[parallelism]\npipeline_parallel_degree = 2\n"
           "pipeline_parallel_schedule = 'ZBVZeroBubble'\n"
           "module_fqns_per_model_part = [['layers.0'], ['layers.1']]\n");
    refused(MEMPLAN_E_CONFLICT, "2 model parts for 2 ranks", 4);
    import("torchtitan", "[parallelism]\ncontext_parallel_degree = 0\n");
    refused(MEMPLAN_E_RANGE,
            "'parallelism.context_parallel_degree' is 0, out of range", 2);
    assert_int_equal(got.errs.count, 1);
    import("torchtitan", "[parallelism]\n"
                         "pipeline_parallel_schedule = '1F1B'\n");
    has("schedule= pp=");
    import("torchtitan", "[parallelism]\npipeline_parallel_degree = 2\n"
                         "module_fqns_per_model_part = [['tok_embeddings', "
                         "'layers.0'], ['layers.1', 'layers.2', 'norm']]\n");
    has("pipeline_layers=1,2 vpp=");
    import("torchtitan", "[parallelism]\npipeline_parallel_degree = 2\n"
                         "module_fqns_per_model_part = [['layers.0']]\n");
    refused(MEMPLAN_E_CONFLICT, "1 model part for 2 ranks", 3);
    import("torchtitan", "training.batch_size = 16\n"
                         "[experimental]\npipeline_parallel_degree = 4\n"
                         "pipeline_parallel_schedule = 'gpipe'\n");
    has("pp=4 schedule=gpipe micro_batch=4 grad_accum=4 zero=3");
    import("torchtitan", "training.global_batch_size = 64\n"
                         "[parallelism]\npipeline_parallel_degree = 4\n"
                         "pipeline_parallel_schedule = 'GPipe'\n");
    has("micro_batch=1 grad_accum=8 global_batch=");
    noted("global_batch_size is not modelled with GPipe");
}

/* Without fully_shard: DDP under autocast, and neither beside tp. */
static void test_torchtitan_ddp(void **state)
{
    (void)state;
    import("torchtitan", "[parallelism]\ndata_parallel_replicate_degree = 8\n"
                         "data_parallel_shard_degree = 1\n");
    has("engine=ddp gpus=8 precision=bf16-amp zero= shard_degree=");
    import("torchtitan", "[parallelism]\ntensor_parallel_degree = 8\n"
                         "data_parallel_shard_degree = 1\n");
    has("engine=ddp gpus=8 tp=8 precision=fp32");
    noted("since April 2026 all is (--engine fsdp2 --zero 3 --precision "
          "bf16-mixed)");
    import("torchtitan", "[parallelism]\ndata_parallel_replicate_degree = 2\n"
                         "data_parallel_shard_degree = 1\n"
                         "tensor_parallel_degree = 4\n");
    refused(MEMPLAN_E_CONFLICT,
            "data_parallel_replicate_degree 2 beside tensor or pipeline "
            "parallelism, and nothing is sharded: torchtitan refuses it",
            3);
    import("torchtitan", "[parallelism]\ndata_parallel_replicate_degree = 2\n"
                         "data_parallel_shard_degree = 1\n"
                         "context_parallel_degree = 2\n"
                         "tensor_parallel_degree = 4\n");
    has("engine= zero=3 gpus=16 tp=4 cp=2 shard_degree=2");
    import("torchtitan", "parallelism.data_parallel_replicate_degree = 2\n");
    noted("add --shard-degree");
}

static void test_torchtitan_formats(void **state)
{
    (void)state;
    import("torchtitan", "training.dtype = 'bfloat16'\n");
    has("precision=bf16 param_dtype= reduce_dtype=fp32");
    import("torchtitan", "training.mixed_precision_param = 'float32'\n"
                         "optimizer.fused = false\n");
    has("precision=fp32 optimizer_impl=foreach");
    import("torchtitan", "float8.enable_float8_linear = true\n"
                         "float8.recipe_name = 'rowwise'\n"
                         "activation_checkpoint.selective_ac_option = 3\n");
    has("precision=fp8-mixed fp8_recipe=rowwise fp8_params= recompute=full "
        "recompute_every=3");
    import("torchtitan", "model.converters = ['quantize.linear.mx']\n"
                         "optimizer.early_step_in_backward = true\n");
    has("fp8_recipe=mxfp8 optimizer_in_backward=true clip_grad=false");
}

/* components/quantization/float8.py: a recipe by name, or weights gathered. */
static void test_torchtitan_float8(void **state)
{
    (void)state;
#define FLOAT8                                                                 \
    "model.converters = ['quantize.linear.float8']\n[quantize.linear.float8]\n"
    import("torchtitan", FLOAT8 "recipe_name = 'rowwise_with_gw_hp'\n");
    has("precision=fp8-mixed fp8_recipe=rowwise_with_gw_hp fp8_params=");
    import("torchtitan", FLOAT8 "enable_fsdp_float8_all_gather = true\n");
    has("fp8_recipe=tensorwise fp8_params=true");
    noted("precompute_float8_dynamic_scale_for_fsdp is off");
    import("torchtitan", FLOAT8 "enable_fsdp_float8_all_gather = true\n"
                                "precompute_float8_dynamic_scale_for_fsdp "
                                "= true\n");
    has("fp8_recipe=tensorwise fp8_params=true");
    for (size_t i = 0; i < got.setup.notes; i++)
        assert_null(strstr(got.setup.note[i], "precompute"));
    import("torchtitan", FLOAT8 "enable_fsdp_float8_all_gather = true\n"
                                "recipe_name = 'tensorwise'\n");
    assert_int_equal(got.status, MEMPLAN_E_CONFLICT);
    import("torchtitan", FLOAT8 "recipe_name = 'row'\n");
    refused(MEMPLAN_E_UNKNOWN, "unknown recipe_name", 3);
    hinted("known are tensorwise, rowwise, rowwise_with_gw_hp");
#undef FLOAT8
}

static void test_torchtitan_refused(void **state)
{
    (void)state;
    import("torchtitan", "[activation_checkpoint]\nmode = 'memory_budget'");
    refused(MEMPLAN_E_UNSUPPORTED, "mode 'memory_budget' is not modelled", 2);
    import("torchtitan", "activation_checkpoint.selective_ac_option = 'x'");
    refused(MEMPLAN_E_UNKNOWN, "unknown selective_ac_option", 1);
    import("torchtitan", "import torch\n\ndef llama3_8b():\n    return 1\n");
    refused(MEMPLAN_E_UNSUPPORTED,
            "Python, as torchtitan's configurations are since February 2026: "
            "nothing runs it here",
            0);
    import("torchtitan", "training.seq_len = '8192'");
    refused(MEMPLAN_E_ARG, "'seq_len' takes a whole number", 1);
    assert_int_equal(got.errs.count, 1);
    import("torchtitan", "\ntraining.batch_size = 'x'");
    refused(MEMPLAN_E_ARG, "'batch_size' takes a whole number", 2);
    import("torchtitan", "training.dtype = 'fp8'");
    refused(MEMPLAN_E_UNKNOWN, "unknown dtype", 1);
    import("torchtitan", "[parallelism]\npipeline_parallel_degree = 2\n"
                         "pipeline_parallel_schedule = 'LoopedBFS'");
    refused(MEMPLAN_E_UNSUPPORTED,
            "parallelism.pipeline_parallel_schedule 'LoopedBFS' is not "
            "modelled",
            3);
    import("torchtitan", "[parallelism]\npipeline_parallel_degree = 2\n"
                         "pipeline_parallel_schedule = 'x'");
    refused(MEMPLAN_E_UNKNOWN,
            "unknown parallelism.pipeline_parallel_schedule 'x'", 3);
    import("torchtitan", "[parallelism]\npipeline_parallel_degree = 2\n"
                         "pipeline_parallel_microbatch_size = 3");
    refused(MEMPLAN_E_CONFLICT,
            "a local batch of 8 does not divide into the pipeline's "
            "micro-batches",
            1);
    import("torchtitan", "optimizer.name = 'SGD'");
    refused(MEMPLAN_E_UNKNOWN, "unknown optimizer.name 'SGD'", 1);
    import("torchtitan", "a = 1\na = 2");
    refused(MEMPLAN_E_SCHEMA, "'a' is there already", 2);
}

/* ---- YAML ---- */

static void test_yaml_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
        memplan_status status;
        size_t line;
    } bad[] = {
        { "", "an empty file", MEMPLAN_E_SYNTAX, 0 },
        { "a: &x 1\nb: *x\n", "anchors and tags are not read",
          MEMPLAN_E_UNSUPPORTED, 1 },
        { "a: !!int 1\n", "anchors and tags are not read",
          MEMPLAN_E_UNSUPPORTED, 1 },
        { "a: 1\n---\nb: 2\n", "a second document", MEMPLAN_E_SCHEMA, 2 },
        { "? [a]\n: 1\n", "a key that is no word", MEMPLAN_E_SCHEMA, 1 },
        { "a: [1, 2\n", "not YAML: did not find expected ',' or ']'",
          MEMPLAN_E_SYNTAX, 2 },
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        import("accelerate", bad[i].text);
        refused(bad[i].status, bad[i].message, bad[i].line);
    }
    import("accelerate", "- 1\n- 2\n");
    refused(MEMPLAN_E_SCHEMA, "a configuration is an object, not an array", 1);
}

static void test_yaml_deep(void **state)
{
    (void)state;
    char text[400];
    memset(text, '[', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    import("accelerate", text);
    refused(MEMPLAN_E_SYNTAX, "too deep", 1);
}

/* What a line takes of these hosts. */
static void takes(const char *some, bool excludes, uint32_t nodes,
                  uint32_t gpus)
{
    static const char text[] =
        "w-0 slots=8\n#w-9 slots=9\n\n w-1  slots=8 max=2\r\nw-2 slots=4";
    struct diag d;
    struct arena a;
    memset(&got, 0, sizeof(got));
    got.errs = (memplan_errors){ got.slot, ERRORS_MAX, 0 };
    diag_init(&d, &got.errs);
    arena_init(&a, NULL);
    str_format(got.setup.hosts.some, sizeof(got.setup.hosts.some), "%s", some);
    got.setup.hosts.excludes = excludes;
    got.setup.hosts.nodes = nodes;
    got.setup.hosts.gpus = gpus;
    const struct json *root =
        config_parse_hostfile(&a, text, sizeof(text) - 1, &d);
    assert_non_null(root);
    got.status = config_read(&(struct config){ .s = &got.setup,
                                               .table = &config_hostfile,
                                               .root = root,
                                               .text = text,
                                               .len = sizeof(text) - 1,
                                               .name = "hosts",
                                               .d = &d });
    arena_release(&a);
}

static void test_hostfile(void **state)
{
    (void)state;
    takes("", false, 0, 0);
    has("gpus=20 gpus_per_node=8");
    noted("hosts have 4 to 8 GPUs");
    takes("", false, 2, 0);
    has("gpus=16 gpus_per_node=8");
    takes("", false, 5, 0);
    noted("--num_nodes 5 of 3 hosts");
    takes("", false, 0, 2);
    has("gpus=6 gpus_per_node=2");
    takes("w-1:0,2,2@w-1:3", false, 0, 0);
    has("gpus=3 gpus_per_node=3");
    takes("w-1:7@w-2", true, 0, 0);
    has("gpus=15 gpus_per_node=8");
    takes("w-3", false, 0, 0);
    refused(MEMPLAN_E_UNKNOWN, "no host 'w-3', which the line includes", 1);
    takes("w-2:4", false, 0, 0);
    refused(MEMPLAN_E_RANGE, "no GPU '4' on 'w-2'", 1);
    takes("w-0@w-1@w-2", true, 0, 0);
    refused(MEMPLAN_E_CONFLICT, "no GPU is left of the hosts of this file", 1);
    import("hostfile", "w-0 slots=8\nw-1 slots=x\n");
    refused(MEMPLAN_E_SYNTAX, "no host and its number of GPUs", 2);
    import("hostfile", "w-0 slots=8\nw-0 slots=8\n");
    refused(MEMPLAN_E_CONFLICT, "this host is there already", 2);
    import("hostfile", "# w-0 slots=8\n");
    assert_int_equal(got.status, MEMPLAN_E_SYNTAX);
}

/* Each command of a line has its own flags, however many there are. */
static void test_commands_of_a_line(void **state)
{
    (void)state;
    enum { MANY = 50, TEXT = 8192 };
    char text[TEXT] = "";
    for (unsigned i = 0; i < MANY; i++)
        str_append(text, sizeof(text), "torchrun --nproc_per_node %u a.py; ",
                   i + 1);
    import("torchrun", text);
    has("gpus=50 gpus_per_node=50");
    noted("50 commands start programs");
    import("torchrun", "torchrun --nproc_per_node 2 a && "
                       "torchrun --nnodes 3 --nproc_per_node 4 b || x\n");
    has("gpus=12 gpus_per_node=4");
    import("torchrun", "torchrun --nproc_per_node 2 \"a; torchrun\" --nnodes 2 "
                       "2>&1 | tee x --nnodes 9\n");
    has("gpus=4 gpus_per_node=2");
    import("torchrun", "CUDA_VISIBLE_DEVICES=0 deepspeed a; "
                       "CUDA_VISIBLE_DEVICES=1,2,3 deepspeed b\n");
    has("gpus=3");
    import("torchrun", "export CUDA_VISIBLE_DEVICES=0,1; python a; "
                       "CUDA_VISIBLE_DEVICES=3 python c; deepspeed b &\n");
    has("gpus=2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostfile),
        cmocka_unit_test(test_commands_of_a_line),
        cmocka_unit_test(test_accelerate),
        cmocka_unit_test(test_accelerate_fsdp),
        cmocka_unit_test(test_orig_params),
        cmocka_unit_test(test_accelerate_others),
        cmocka_unit_test(test_accelerate_refused),
        cmocka_unit_test(test_megatron),
        cmocka_unit_test(test_megatron_absent),
        cmocka_unit_test(test_megatron_sums),
        cmocka_unit_test(test_megatron_arrays),
        cmocka_unit_test(test_megatron_fp4),
        cmocka_unit_test(test_megatron_bf16_ends),
        cmocka_unit_test(test_megatron_without_pipeline),
        cmocka_unit_test(test_megatron_typos),
        cmocka_unit_test(test_megatron_loss),
        cmocka_unit_test(test_script_branches),
        cmocka_unit_test(test_megatron_latent_rope),
        cmocka_unit_test(test_megatron_before),
        cmocka_unit_test(test_megatron_sections),
        cmocka_unit_test(test_megatron_usage),
        cmocka_unit_test(test_megatron_names),
        cmocka_unit_test(test_megatron_kernels),
        cmocka_unit_test(test_notes_have_room),
        cmocka_unit_test(test_training_args_elsewhere),
        cmocka_unit_test(test_training_args_kin),
        cmocka_unit_test(test_training_args_fms),
        cmocka_unit_test(test_training_args_trl_adapters),
        cmocka_unit_test(test_training_args_elsewhere_refused),
        cmocka_unit_test(test_torchrun),
        cmocka_unit_test(test_torchrun_whole_nodes),
        cmocka_unit_test(test_launched_holders),
        cmocka_unit_test(test_launchers_unsaid),
        cmocka_unit_test(test_launched_together),
        cmocka_unit_test(test_other_launchers),
        cmocka_unit_test(test_training_args_launched),
        cmocka_unit_test(test_megatron_nemo),
        cmocka_unit_test(test_megatron_bridge),
        cmocka_unit_test(test_megatron_bridge_patterns),
        cmocka_unit_test(test_megatron_bridge_refused),
        cmocka_unit_test(test_megatron_old_messages),
        cmocka_unit_test(test_megatron_yaml),
        cmocka_unit_test(test_megatron_backend),
        cmocka_unit_test(test_megatron_stages),
        cmocka_unit_test(test_megatron_refused),
        cmocka_unit_test(test_torchtitan_defaults),
        cmocka_unit_test(test_torchtitan),
        cmocka_unit_test(test_torchtitan_async),
        cmocka_unit_test(test_torchtitan_norm),
        cmocka_unit_test(test_torchtitan_pipeline),
        cmocka_unit_test(test_torchtitan_ddp),
        cmocka_unit_test(test_torchtitan_formats),
        cmocka_unit_test(test_torchtitan_float8),
        cmocka_unit_test(test_torchtitan_refused),
        cmocka_unit_test(test_yaml_refused),
        cmocka_unit_test(test_yaml_deep),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_deepspeed),
        cmocka_unit_test(test_deepspeed_defaults),
        cmocka_unit_test(test_deepspeed_words),
        cmocka_unit_test(test_deepspeed_formats),
        cmocka_unit_test(test_deepspeed_typos),
        cmocka_unit_test(test_deepspeed_refused),
        cmocka_unit_test(test_deepspeed_kinds),
        cmocka_unit_test(test_training_args),
        cmocka_unit_test(test_training_args_fsdp),
        cmocka_unit_test(test_training_args_deepspeed),
        cmocka_unit_test(test_training_args_fill),
        cmocka_unit_test(test_training_args_mismatch),
        cmocka_unit_test(test_training_args_refused),
        cmocka_unit_test(test_training_args_booleans),
        cmocka_unit_test(test_training_args_boolean_flags),
        cmocka_unit_test(test_adapter_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
