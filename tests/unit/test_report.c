/*
 * Reports as they are written. The reports are filled by hand, so that no
 * change of a formula shows up here; the complete outputs are in
 * report_expected.h. Run with the argument "print" to see them.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/report_data.h"
#include "report/out.h"
#include "report/report_view.h"
#include "json/json.h"

#include "report_expected.h"

#define MIB ((uint64_t)1048576)
#define GIB ((uint64_t)1073741824)

/* ---- a writer that can fail ---- */

struct sink {
    char text[1 << 16];
    size_t n;
    size_t calls, fail_at; /* fails from this call on; 0: never */
    size_t after_failure;
};

static bool sink_write(void *ctx, const char *text, size_t len)
{
    struct sink *s = ctx;
    s->calls++;
    if (s->fail_at != 0 && s->calls > s->fail_at)
        s->after_failure++;
    if (s->fail_at != 0 && s->calls >= s->fail_at)
        return false;
    assert_true(s->n + len < sizeof(s->text));
    memcpy(s->text + s->n, text, len);
    s->n += len;
    s->text[s->n] = '\0';
    return true;
}

static struct sink sink;

static void sink_reset(void)
{
    memset(&sink, 0, sizeof(sink));
}

/* ---- the reports ---- */

static struct stage_result stages[2];

static void set_term(struct stage_result *s, enum term term, uint64_t bytes)
{
    s->peak.bytes[term] = bytes;
    s->peak.total += bytes;
    s->component[term_info(term)->component] += bytes;
}

static void fill_stages(void)
{
    memset(stages, 0, sizeof(stages));
    for (uint64_t i = 0; i < 2; i++) {
        struct stage_result *s = &stages[i];
        s->index = i;
        s->first_layer = 16 * i;
        s->low_layers = 16;
        s->layers = 16;
        s->has_embedding = i == 0;
        s->has_head = i == 1;
        s->parameters = 3369207808 + i;
        s->in_flight = 2 - i;
        s->model_states = 18 * GIB;
        s->rest.total = 20 * GIB + i;
        s->peak.phase = PHASE_BACKWARD;
        s->peak_block = i == 0 ? "layer" : "head";
        s->peak_layer = i == 0 ? 15 : 0;
        s->peak.op = i == 0 ? "q_proj" : "";
        set_term(s, TERM_WEIGHTS, 6 * GIB);
        set_term(s, TERM_MASTER, 4 * GIB);
        set_term(s, TERM_MOMENTS, 8 * GIB);
        set_term(s, TERM_SAVED_LAYERS, 9 * GIB);
        set_term(s, TERM_IN_FLIGHT, (2 - i) * 512 * MIB);
        set_term(s, TERM_INPUTS, 32768);
        set_term(s, TERM_BACKWARD_TMP, 100 * MIB);
    }
}

static void set_key(struct setup *s, const char *key, const char *value)
{
    struct diag d;
    diag_init(&d, NULL);
    assert_int_equal(setup_set(s, str_of(key), str_of(value), &d), MEMPLAN_OK);
}

static void assume(struct run *run, const char *text)
{
    struct assumption *a = &run->assumption[run->n_assumptions++];
    a->key = KEY_COUNT;
    a->pattern = NULL;
    str_format(a->text, sizeof(a->text), "%s", text);
}

static void fill_run(struct run *run)
{
    run->gpu = *gpu_find("a100-80gb", 9);
    run->capacity_bytes = 79 * GIB;
    run->peak_flop_s = 312e12;
    run->engine = ENGINE_MEGATRON;
    run->gpus = 64;
    run->dp = 16;
    run->tp = run->pp = 2;
    run->vpp = run->cp = run->ep = run->etp = 1;
    run->zero = 1;
    run->micro_batch = 1;
    run->global_batch = 256;
    run->seq_len = 2048;
    run->price_usd_h = 2;
    set_key(&run->setup, "tp", "2");
    set_key(&run->setup, "gpu", "a100-80gb");
    set_key(&run->setup, "price", "2");
    set_key(&run->setup, "sequence_parallel", "true");
    set_key(&run->setup, "pipeline_layers", "16,16");
    assume(run, "optimizer adamw (--optimizer)");
    assume(run, "price 2 USD per GPU-hour, which is a long assumption whose "
                "line has to be broken (--price)");
}

static void fill_laws(struct law_answers *c)
{
    c->params = 7e9;
    c->tokens = 140e9;
    c->tokens_optimal = 140e9;
    c->tokens_per_param_optimal = 20;
    c->budget_flops = 5.88e21;
    c->n_laws = 2;
    c->chosen_law = 0;
    c->law[0] = (struct law_result){
        .law = LAW_CHINCHILLA,
        .params = 7e9,
        .tokens = 140e9,
        .tokens_per_param = 20,
        .range_note = "",
        .source = "a rule of thumb",
    };
    c->law[1] = (struct law_result){
        .law = LAW_BESIROGLU,
        .params = 6.5e9,
        .tokens = 150e9,
        .tokens_per_param = 23.1,
        .has_range = true,
        .params_low = 6e9,
        .params_high = 7e9,
        .tokens_low = 140e9,
        .tokens_high = 160e9,
        .range_note = "a guess",
        .source = "Besiroglu et al. 2024",
    };
}

static void fill_compute(struct compute_result *c)
{
    *c = (struct compute_result){
        .params = 7e9,
        .tokens = 140e9,
        .flops_6nd = 5.88e21,
        .mfu = 0.5,
        .mfu_full = (double)NAN,
        .hfu = 0.5,
        .peak_flop_s = 312e12,
        .gpu_hours = 10000.5,
        .days = 6.5,
        .cost_usd = (double)NAN,
        .gpus = 64,
        .step_time_s = (double)NAN,
        .tokens_per_s = 250000,
        .tokens_per_step = (double)NAN,
        .steps = (double)NAN,
        .communication_bytes = (double)NAN,
        .bubble_fraction = (double)NAN,
        .availability = 1,
        .price_usd_h = (double)NAN,
        .price_source = "",
    };
}

static struct memplan_report report;

static void fill_memory(struct memory_result *m, uint64_t capacity)
{
    fill_stages();
    m->stage = stages;
    m->n_stages = 2;
    m->worst = 0;
    m->model_states = stages[0].model_states;
    m->steady = stages[0].rest.total;
    m->peak = stages[0].peak.total;
    m->reserved = m->peak + 300 * MIB;
    stages[0].reserved = m->reserved;
    stages[0].sim = (struct simulated){
        .done = true,
        .allocated = m->peak,
        .reserved = m->reserved,
        .steps = 3,
        .pool = { [SIM_LARGE] = { m->reserved, 40, m->peak } }
    };
    m->outside_row[0] =
        (struct outside_row){ "context", "CUDA context",  480 * MIB,
                              1,         "a measurement", false };
    m->outside_row[1] = (struct outside_row){
        "communicators", "NCCL buffers", 600 * MIB, 3, "", true
    };
    m->n_outside = 2;
    m->outside = 1080 * MIB;
    m->device_total = m->reserved + m->outside;
    m->capacity = capacity;
    m->headroom = (int64_t)capacity - (int64_t)m->device_total;
    m->fits = m->headroom >= 0;
}

static const struct memplan_report *estimate(uint64_t capacity)
{
    memset(&report, 0, sizeof(report));
    arena_init(&report.arena, NULL);
    report.kind = REPORT_ESTIMATE;
    report.has_model = true;
    report.spec.name = "tiny|model";
    report.spec.model_type = "llama";
    report.spec.source = "";
    report.params = (struct params_result){ .total = 7000000001,
                                            .trainable = 7000000001,
                                            .embedding = 262144000,
                                            .active = 7000000001 };
    report.program.n_blocks = 3;
    report.program.block[0] =
        (struct block){ .kind = BLOCK_EMBED, .name = "embedding" };
    report.program.block[1] =
        (struct block){ .kind = BLOCK_LAYER, .name = "layer" };
    report.program.block[2] =
        (struct block){ .kind = BLOCK_HEAD, .name = "head" };
    fill_run(&report.run);
    report.run.capacity_bytes = capacity;
    fill_memory(&report.memory, capacity);
    fill_compute(&report.compute);
    struct compute_result *c = &report.compute;
    c->has_exact = true;
    c->flops_per_token = 4.3e10;
    c->flops_per_token_full = 4.5e10;
    c->mfu_full = 0.52;
    c->model_flops = 6.02e21;
    c->model_flops_full = 6.3e21;
    c->hardware_flops = 7e21;
    c->step_time_s = 2.0972;
    c->tokens_per_step = 524288;
    c->steps = 267028.8;
    c->cost_usd = 20001;
    c->price_usd_h = 2;
    c->price_source = "a cloud, 2026-01";
    c->communication_bytes = 1e10;
    c->bubble_fraction = 0.0625;
    report.comm.n = 1;
    report.comm.row[0] = (struct comm_row){ .key = "gradients",
                                            .label = "gradients",
                                            .collective = "reduce-scatter",
                                            .group = "data parallel",
                                            .bytes = 1e10,
                                            .equation = "communication" };
    return &report;
}

static const struct memplan_report *compute(void)
{
    memset(&report, 0, sizeof(report));
    arena_init(&report.arena, NULL);
    report.kind = REPORT_COMPUTE;
    fill_run(&report.run);
    report.run.pp = 1;
    fill_compute(&report.compute);
    report.compute.has_deadline = true;
    report.compute.deadline_days = 7;
    report.compute.gpus = 60;
    report.compute.gpus_needed = 60;
    report.compute.gpus_in_nodes = 64;
    return &report;
}

/* ---- comparing ---- */

static void write_with(const struct memplan_report *r, memplan_format format,
                       int width, bool colour)
{
    static const struct changes two = {
        { { "--zero 3", 18 * GIB, 17 * GIB, true, 0, false },
          { "--recompute full", 25 * GIB, 24 * GIB, false, 0, false } },
        2
    };
    struct answers answers = { .changes.n = 0 };
    const memplan_style style = { format, colour, width };
    struct out o;
    sink_reset();
    out_init(&o, &style, sink_write, &sink);
    if (!memplan_report_fits(r))
        answers.changes = two;
    fill_laws(&answers.laws);
    report_write_summary(&o, r, &answers);
    assert_int_equal(out_close(&o, NULL), MEMPLAN_OK);
}

/* The echo of the setup is setup.def's affair: "{...}" stands for it. */
static void cut_setup(void)
{
    char *from = strstr(sink.text, "\"setup\": {");
    char *to = from ? strstr(from, "\n  }") : NULL;
    if (!to)
        return;
    from += strlen("\"setup\": {");
    memmove(from + 3, to + 3, strlen(to + 3) + 1);
    memcpy(from, "...", 3);
}

/* Likewise the lines of CSV that begin with "setup.". */
static void cut_setup_lines(void)
{
    char *line;
    while ((line = strstr(sink.text, "\nsetup"))) {
        char *end = strchr(line + 1, '\n');
        memmove(line, end, strlen(end) + 1);
    }
}

static bool printing;

static void same_lines(const char *name, const char *const *expected)
{
    const char *at = sink.text;
    if (printing)
        printf("== %s\n%s", name, sink.text);
    for (size_t i = 0; !printing && expected[i]; i++) {
        size_t n = strlen(expected[i]);
        size_t got = strcspn(at, "\n");
        if (got != n || memcmp(at, expected[i], n) != 0)
            fail_msg("%s, line %zu: '%.*s', expected '%s'", name, i + 1,
                     (int)got, at, expected[i]);
        at += got + (at[got] == '\n');
    }
    if (!printing && *at != '\0')
        fail_msg("%s goes on: '%.60s'", name, at);
}

static const struct json *parsed(struct arena *a)
{
    struct diag d;
    diag_init(&d, NULL);
    const struct json *root = json_parse(a, sink.text, sink.n, &d);
    assert_non_null(root);
    return root;
}

/* No line of a terminal ends in blanks or is wider than it. */
static void check_lines(size_t width)
{
    for (const char *at = sink.text; *at != '\0';) {
        size_t n = strcspn(at, "\n");
        assert_true(n == 0 || at[n - 1] != ' ');
        if (n > width)
            fail_msg("wider than %zu: '%.*s'", width, (int)n, at);
        at += n + 1;
    }
}

/* ---- tests ---- */

static void estimate_as_text(void **state)
{
    (void)state;
    write_with(estimate(79 * GIB), MEMPLAN_FORMAT_TABLE, 0, false);
    same_lines("estimate_text", estimate_text);
    write_with(estimate(24 * GIB), MEMPLAN_FORMAT_TABLE, 64, false);
    same_lines("estimate_narrow", estimate_narrow);
    write_with(estimate(24 * GIB), MEMPLAN_FORMAT_MARKDOWN, 64, true);
    same_lines("estimate_markdown", estimate_markdown);
}

static void estimate_as_json(void **state)
{
    struct arena a;
    (void)state;
    arena_init(&a, NULL);
    write_with(estimate(24 * GIB), MEMPLAN_FORMAT_JSON, 0, false);
    const struct json *root = parsed(&a);
    const struct json *setup = json_member(root, "setup");
    for (size_t i = 0; setup_field(i); i++)
        assert_non_null(json_member(setup, setup_field(i)->key));
    assert_true(json_member(setup, "zero")->kind == JSON_NULL);
    assert_true(json_member(setup, "tp")->number == 2);
    assert_true(json_member(setup, "sequence_parallel")->truth);
    assert_string_equal(json_member(setup, "gpu")->text.p, "a100-80gb");
    const struct json *layers = json_member(setup, "pipeline_layers");
    assert_true(layers->child->next->number == 16);
    arena_release(&a);
    cut_setup();
    same_lines("estimate_json", estimate_json);
    write_with(estimate(24 * GIB), MEMPLAN_FORMAT_CSV, 0, false);
    cut_setup_lines();
    same_lines("estimate_csv", estimate_csv);
}

static void compute_in_all_formats(void **state)
{
    struct arena a;
    (void)state;
    write_with(compute(), MEMPLAN_FORMAT_TABLE, 0, false);
    same_lines("compute_text", compute_text);
    write_with(compute(), MEMPLAN_FORMAT_MARKDOWN, 0, false);
    same_lines("compute_markdown", compute_markdown);
    arena_init(&a, NULL);
    write_with(compute(), MEMPLAN_FORMAT_JSON, 0, false);
    parsed(&a);
    arena_release(&a);
    cut_setup();
    same_lines("compute_json", compute_json);
    write_with(compute(), MEMPLAN_FORMAT_CSV, 0, false);
    cut_setup_lines();
    same_lines("compute_csv", compute_csv);
}

static void explanation_in_all_formats(void **state)
{
    static struct explain_entry entries[] = {
        { "peak", "backward", "B", 3e9, 3000000000, "the sum", "", "peak", "",
          0 },
        { "parameters", "weights", "B", 3e9, 2999998976, "P * w / N",
          "6e9 * 2 / 4", "states", "Rajbhandari et al. 2020", 1 },
        { "temporary", "a \"buffer\", small", "B", 512, 512, "", "", "", "",
          1 },
        { "parameters", "of which, embedding", "B", 512, 512, "", "", "", "",
          2 },
        { "compute", "6 N D", "FLOP", 5.88e21, 0, "6 * N * D", "", "", "", 0 },
        { "compute", "MFU", "", 0.45, 0, "", "", "", "as given", 0 },
        { "rest", "between steps", "B", 1024, 1024, "", "", "", "", 0 },
        { "parameters", "weights", "B", 1024, 1024, "", "", "", "", 1 },
    };
    static const struct {
        memplan_format format;
        const char *name;
        const char *const *expected;
    } formats[] = {
        { MEMPLAN_FORMAT_TABLE, "explain_text", explain_text },
        { MEMPLAN_FORMAT_MARKDOWN, "explain_markdown", explain_markdown },
        { MEMPLAN_FORMAT_JSON, "explain_json", explain_json },
        { MEMPLAN_FORMAT_CSV, "explain_csv", explain_csv },
    };
    struct explanation x = { .entry = entries, .n = 8, .capacity = 8 };
    (void)state;
    estimate(79 * GIB);
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        memplan_style style = { formats[i].format, false, 0 };
        struct out o;
        sink_reset();
        out_init(&o, &style, sink_write, &sink);
        explain_write(&o, &report, &x);
        assert_int_equal(out_close(&o, NULL), MEMPLAN_OK);
        same_lines(formats[i].name, formats[i].expected);
    }
}

static void every_width_is_kept(void **state)
{
    (void)state;
    for (int width = 1; width <= 140; width++) {
        write_with(estimate(24 * GIB), MEMPLAN_FORMAT_TABLE, width, false);
        check_lines(width < 60 ? 60 : (size_t)width);
        write_with(compute(), MEMPLAN_FORMAT_TABLE, width, false);
        check_lines(width < 60 ? 60 : (size_t)width);
    }
}

static void colour_is_for_tables(void **state)
{
    (void)state;
    write_with(estimate(24 * GIB), MEMPLAN_FORMAT_TABLE, 80, true);
    assert_non_null(strstr(sink.text, "\033[1;31mDOES NOT FIT: "));
    write_with(estimate(79 * GIB), MEMPLAN_FORMAT_TABLE, 80, true);
    assert_non_null(strstr(sink.text, "\033[1;32mfits: "));
    write_with(estimate(79 * GIB), MEMPLAN_FORMAT_TABLE, 80, false);
    assert_null(strchr(sink.text, '\033'));
    write_with(estimate(79 * GIB), MEMPLAN_FORMAT_JSON, 80, true);
    assert_null(strchr(sink.text, '\033'));
}

/* Names come from other people's files. */
static void escape_sequences_do_not_get_through(void **state)
{
    (void)state;
    estimate(79 * GIB);
    report.spec.name = "x\033[2Jy\n";
    write_with(&report, MEMPLAN_FORMAT_TABLE, 0, false);
    assert_memory_equal(sink.text, "x?[2Jy?: ", 9);
    write_with(&report, MEMPLAN_FORMAT_JSON, 0, false);
    assert_non_null(strstr(sink.text, "x\\u001b[2Jy\\n"));
}

static void numbers_are_found_by_path(void **state)
{
    const struct memplan_report *r = estimate(24 * GIB);
    uint64_t n = 1;
    (void)state;
    assert_int_equal(memplan_report_bytes(&n, r, "memory.peak_allocated"),
                     MEMPLAN_OK);
    assert_true(n == stages[0].peak.total);
    assert_int_equal(memplan_report_bytes(&n, r, "memory.stages[1].in_flight"),
                     MEMPLAN_OK);
    assert_true(n == 1);
    assert_int_equal(memplan_report_bytes(&n, r, "memory.stages[0].peak_layer"),
                     MEMPLAN_OK);
    assert_true(n == 15);
    assert_int_equal(
        memplan_report_bytes(&n, r, "memory.outside_rows[1].bytes"),
        MEMPLAN_OK);
    assert_true(n == 600 * MIB);
    assert_int_equal(memplan_report_bytes(&n, r, "setup.tp"), MEMPLAN_OK);
    assert_true(n == 2);
}

static void other_numbers_are_found_by_path(void **state)
{
    const struct memplan_report *r = estimate(24 * GIB);
    double x = 1;
    (void)state;
    assert_int_equal(memplan_report_number(&x, r, "compute.gpu_hours"),
                     MEMPLAN_OK);
    assert_true(x == 10000.5);
    assert_int_equal(memplan_report_number(&x, r, "memory.headroom"),
                     MEMPLAN_OK);
    assert_true(x == (double)r->memory.headroom && x < 0);
}

static void what_is_not_there_is_unknown(void **state)
{
    static const char *const absent[] = {
        "",
        "memory",
        "memory.",
        "memory.nothing",
        "schema",
        "model.name",
        "memory.fits",
        "memory.headroom",
        "memory.stages",
        "setup.zero",
        "memory.stages[2].layers",
        "memory.stages[0]",
        "memory.stages.0",
        "memory.peak_allocated.x",
        "compute.exposed_communication_s",
        "memor",
        "memory.stages[1].peak_layer",
        ".memory.peak_allocated",
    };
    const struct memplan_report *r = estimate(24 * GIB);
    uint64_t n = 1;
    double x = 1;
    (void)state;
    for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++) {
        n = 1;
        assert_int_equal(memplan_report_bytes(&n, r, absent[i]),
                         MEMPLAN_E_UNKNOWN);
        assert_true(n == 0);
    }
    assert_int_equal(memplan_report_bytes(&n, r, "compute.gpu_hours"),
                     MEMPLAN_E_UNKNOWN);
    assert_int_equal(memplan_report_bytes(&n, r, NULL), MEMPLAN_E_UNKNOWN);
    assert_int_equal(memplan_report_bytes(&n, NULL, "memory.outside"),
                     MEMPLAN_E_UNKNOWN);
    assert_int_equal(memplan_report_number(&x, compute(), "cost_usd"),
                     MEMPLAN_E_UNKNOWN);
    assert_true(x == 0);
}

static void fits_is_of_estimates(void **state)
{
    (void)state;
    assert_true(memplan_report_fits(estimate(79 * GIB)));
    assert_false(memplan_report_fits(estimate(24 * GIB)));
    assert_false(memplan_report_fits(compute()));
    assert_false(memplan_report_fits(NULL));
}

/* Changes are made anew: tests/unit/test_plan.c. */
static void every_number_in_json_is_found(void **state)
{
    const memplan_style style = { MEMPLAN_FORMAT_CSV, false, 0 };
    (void)state;
    sink_reset();
    assert_int_equal(memplan_report_write(estimate(24 * GIB),
                                          MEMPLAN_VIEW_SUMMARY, &style,
                                          sink_write, &sink, NULL),
                     MEMPLAN_OK);
    for (const char *at = strchr(sink.text, '\n') + 1; *at != '\0';) {
        char path[128], value[64];
        double x = 0, wanted = 0;
        size_t n = strcspn(at, ",");
        size_t v = strcspn(at + n + 1, ",");
        str_format(path, sizeof(path), "%.*s", (int)n, at);
        str_format(value, sizeof(value), "%.*s", (int)v, at + n + 1);
        bool number = unit_parse_real(str_of(value), &wanted) == UNIT_OK;
        memplan_status status =
            memplan_report_number(&x, estimate(24 * GIB), path);
        if ((status == MEMPLAN_OK) != number)
            fail_msg("%s = %s", path, value);
        assert_true(!number || x == wanted);
        at = strchr(at, '\n') + 1;
    }
}

/* A writer that fails at its first, second, ... call: E_WRITE each time, and
 * it is not called again. */
static void failed_writes_are_told(void **state)
{
    (void)state;
    for (int format = 0; format <= MEMPLAN_FORMAT_MARKDOWN; format++) {
        memplan_style style = { (memplan_format)format, false, 0 };
        memplan_status status = MEMPLAN_E_WRITE;
        size_t at = 0;
        while (status != MEMPLAN_OK) {
            memplan_error slot;
            memplan_errors errs = { &slot, 1, 0 };
            sink_reset();
            sink.fail_at = ++at;
            status =
                memplan_report_write(estimate(24 * GIB), MEMPLAN_VIEW_SUMMARY,
                                     &style, sink_write, &sink, &errs);
            assert_int_equal(sink.after_failure, 0);
            assert_true(errs.count == (status == MEMPLAN_OK ? 0 : 1));
            assert_true(status == MEMPLAN_OK || status == MEMPLAN_E_WRITE);
            assert_true(status == MEMPLAN_OK || slot.status == status);
        }
        assert_true(at > 2);
    }
}

static void nothing_to_write_is_an_error(void **state)
{
    struct memplan_report none = { .kind = REPORT_NONE };
    (void)state;
    sink_reset();
    assert_int_equal(memplan_report_write(&none, MEMPLAN_VIEW_SUMMARY, NULL,
                                          sink_write, &sink, NULL),
                     MEMPLAN_E_ARG);
    assert_int_equal(memplan_report_write(NULL, MEMPLAN_VIEW_SUMMARY, NULL,
                                          sink_write, &sink, NULL),
                     MEMPLAN_E_ARG);
    assert_int_equal(sink.calls, 0);
}

/* ---- catalogues ---- */

static void gpus_in_all_formats(void **state)
{
    struct arena a;
    memplan_style style = { MEMPLAN_FORMAT_JSON, false, 0 };
    memplan_error slot;
    memplan_errors errs = { &slot, 1, 0 };
    size_t n = 0;
    (void)state;
    arena_init(&a, NULL);
    sink_reset();
    assert_int_equal(memplan_gpus_write(NULL, &style, sink_write, &sink, NULL),
                     MEMPLAN_OK);
    for (const struct json *v = parsed(&a)->child; v; v = v->next)
        n += json_member(v, "visible_bytes") != NULL;
    assert_true(n == gpu_count());
    sink_reset();
    assert_int_equal(
        memplan_gpus_write("A100", &style, sink_write, &sink, NULL),
        MEMPLAN_OK);
    assert_true(json_member(parsed(&a), "peak_fp8_flop_s")->kind == JSON_NULL);
    arena_release(&a);
    for (int format = 0; format <= MEMPLAN_FORMAT_MARKDOWN; format++) {
        style.format = (memplan_format)format;
        style.width = 60;
        sink_reset();
        assert_int_equal(
            memplan_gpus_write(NULL, &style, sink_write, &sink, NULL),
            MEMPLAN_OK);
        if (style.format == MEMPLAN_FORMAT_TABLE)
            check_lines(60);
        sink_reset();
        assert_int_equal(
            memplan_gpus_write("a10", &style, sink_write, &sink, NULL),
            MEMPLAN_OK);
        assert_non_null(strstr(sink.text, "unverified"));
    }
    assert_int_equal(
        memplan_gpus_write("a10O", &style, sink_write, &sink, &errs),
        MEMPLAN_E_UNKNOWN);
    assert_non_null(strstr(slot.hint, "a10"));
}

static memplan_model *load_model(void)
{
    static const char json[] =
        "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"intermediate_size\":128,"
        "\"vocab_size\":256,\"max_position_embeddings\":128,"
        "\"tie_word_embeddings\":true,\"num_key_value_heads\":2}";
    memplan_model *model = NULL;
    assert_int_equal(
        memplan_model_parse(&model, json, sizeof(json) - 1, "mini", NULL, NULL),
        MEMPLAN_OK);
    return model;
}

static void model_blocks_add_up(void **state)
{
    struct arena a;
    memplan_style style = { MEMPLAN_FORMAT_JSON, false, 0 };
    memplan_model *model = load_model();
    double sum = 0, groups = 0;
    (void)state;
    arena_init(&a, NULL);
    sink_reset();
    assert_int_equal(
        memplan_model_write(model, &style, sink_write, &sink, NULL),
        MEMPLAN_OK);
    const struct json *root = parsed(&a);
    assert_string_equal(json_member(root, "name")->text.p, "mini");
    assert_true(json_member(root, "source")->kind == JSON_NULL);
    const struct json *b = json_member(root, "blocks")->child;
    for (; b; b = b->next) {
        double tensors = 0;
        const struct json *t = json_member(b, "tensors")->child;
        for (; t; t = t->next)
            tensors += json_member(t, "parameters")->number;
        assert_true(tensors == json_member(b, "parameters")->number);
        sum += tensors * json_member(b, "count")->number;
    }
    const struct json *g = json_member(root, "groups")->child;
    for (; g; g = g->next)
        groups += g->number;
    assert_true(sum == (double)memplan_model_parameters(model));
    assert_true(groups == sum);
    arena_release(&a);
    for (int format = 0; format <= MEMPLAN_FORMAT_MARKDOWN; format++) {
        style.format = (memplan_format)format;
        sink_reset();
        assert_int_equal(
            memplan_model_write(model, &style, sink_write, &sink, NULL),
            MEMPLAN_OK);
        assert_non_null(strstr(sink.text, "embed"));
    }
    memplan_model_free(model);
}

static void models_are_listed(void **state)
{
    struct arena a;
    memplan_style style = { MEMPLAN_FORMAT_JSON, false, 0 };
    size_t n = 0;
    (void)state;
    if (!memplan_builtin_name(0))
        return;
    arena_init(&a, NULL);
    sink_reset();
    assert_int_equal(
        memplan_models_write(&style, sink_write, &sink, NULL, NULL),
        MEMPLAN_OK);
    for (const struct json *v = parsed(&a)->child; v; v = v->next, n++) {
        assert_true(json_member(v, "parameters")->number > 0);
        assert_true(json_member(v, "source")->kind == JSON_STRING);
    }
    assert_null(memplan_builtin_name(n));
    assert_non_null(memplan_builtin_name(n - 1));
    arena_release(&a);
    style = (memplan_style){ MEMPLAN_FORMAT_TABLE, false, 70 };
    sink_reset();
    assert_int_equal(
        memplan_models_write(&style, sink_write, &sink, NULL, NULL),
        MEMPLAN_OK);
    check_lines(70);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(estimate_as_text),
        cmocka_unit_test(estimate_as_json),
        cmocka_unit_test(compute_in_all_formats),
        cmocka_unit_test(explanation_in_all_formats),
        cmocka_unit_test(every_width_is_kept),
        cmocka_unit_test(colour_is_for_tables),
        cmocka_unit_test(escape_sequences_do_not_get_through),
        cmocka_unit_test(numbers_are_found_by_path),
        cmocka_unit_test(other_numbers_are_found_by_path),
        cmocka_unit_test(what_is_not_there_is_unknown),
        cmocka_unit_test(fits_is_of_estimates),
        cmocka_unit_test(every_number_in_json_is_found),
        cmocka_unit_test(failed_writes_are_told),
        cmocka_unit_test(nothing_to_write_is_an_error),
        cmocka_unit_test(gpus_in_all_formats),
        cmocka_unit_test(model_blocks_add_up),
        cmocka_unit_test(models_are_listed),
    };
    printing = argc > 1 && strcmp(argv[1], "print") == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
