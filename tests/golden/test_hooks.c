/*
 * What FSDP version 1 holds of checkpoints in backward, and when it fetches a
 * layer ahead, against runs of it (tests/oracle/fsdp_hooks.py).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fold/memory.h"
#include "fold/stage.h"
#include "fold/trace.h"
#include "plan/report_data.h"
#include "json/json.h"

#include "memplan/memplan.h"

enum { LAYERS = 4, LINE_MAX = 1024, BATCH_BYTES = 2 * 64 * 128 * 2 };

static const char config[] =
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 4, "
    "\"hidden_size\": 128, \"num_attention_heads\": 4, "
    "\"intermediate_size\": 256, \"vocab_size\": 512, "
    "\"max_position_embeddings\": 64}";

static memplan_report *of_row(const struct json *row)
{
    const char *mode = json_member(row, "recompute")->text.p;
    const bool none = strncmp(mode, "none", 4) == 0;
    const bool reentrant = strncmp(mode, "reentrant", 9) == 0;
    const char *pairs[] = {
        "framework", "hf",        "engine",
        "fsdp",      "zero",      "3",
        "gpus",      "2",         "micro_batch",
        "2",         "seq_len",   "64",
        "precision", "bf16",      "fast",
        "true",      "recompute", none ? "none" : "full",
        "attention", "sdpa",      NULL,
        NULL,        NULL,        NULL,
        NULL,
    };
    size_t n = 20;
    if (!none) {
        pairs[n++] = "recompute_reentrant";
        pairs[n++] = reentrant ? "true" : "false";
    }
    if (json_member(row, "adapters")->truth) {
        pairs[n++] = "lora_rank";
        pairs[n++] = "4";
    }
    memplan_model *model = NULL;
    memplan_setup *setup = NULL;
    memplan_report *report = NULL;
    assert_int_equal(memplan_model_parse(&model, config, sizeof config - 1,
                                         "small", NULL, NULL),
                     MEMPLAN_OK);
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    for (size_t i = 0; pairs[i] != NULL; i += 2)
        assert_int_equal(memplan_setup_set(setup, pairs[i], pairs[i + 1], NULL),
                         MEMPLAN_OK);
    assert_int_equal(memplan_estimate(&report, model, setup, NULL, NULL),
                     MEMPLAN_OK);
    memplan_setup_free(setup);
    memplan_model_free(model);
    return report;
}

static double at(const struct json *row, const char *key, int layer)
{
    const struct json *v = json_member(row, key)->child;
    while (layer-- > 0)
        v = v->next;
    return v->number;
}

/* How often a layer is fetched ahead while another's backward runs. */
static unsigned fetched_ahead(const struct trace *t)
{
    unsigned n = 0;
    for (size_t i = 0; i < t->n; i++) {
        const struct trace_event *e = &t->event[i];
        n += e->birth && e->phase == PHASE_BACKWARD
             && strcmp(e->name, "the unit's before it, prefetched") == 0;
    }
    return n;
}

static unsigned check(const struct json *row)
{
    memplan_report *r = of_row(row);
    struct arena a;
    struct memory_fold f;
    struct stage s;
    struct trace t;
    unsigned bad = 0;
    arena_init(&a, NULL);
    assert_true(memory_fold_init(&f, &r->program, &r->run, &a));
    stage_init(&s, &f, 0, 0);
    assert_true(trace_stage(&t, &f, &s, TRACE_LATER, &a));
    for (int i = 0; i < LAYERS; i++) {
        const uint32_t position = 1 + (uint32_t)i; /* after the embedding */
        const uint64_t inputs = (uint64_t)at(row, "inputs", i);
        const uint64_t grads = (uint64_t)at(row, "gradients", i);
        /* one of them is what this layer's backward began with */
        const uint64_t old = grads > 0 ? grads - 1 : 0;
        bad += stage_hooked_inputs(&s, position) != inputs * BATCH_BYTES;
        bad += stage_hooked_gradients(&s, position) != old * BATCH_BYTES;
    }
    const char *when = json_member(row, "fetches")->child->next->text.p;
    bad += (fetched_ahead(&t) == 0) != (strncmp(when, "never", 5) == 0);
    if (bad > 0)
        print_error("%s, adapters %d: %u differ\n",
                    json_member(row, "recompute")->text.p,
                    json_member(row, "adapters")->truth, bad);
    arena_release(&a);
    memplan_report_free(r);
    return bad;
}

static void hooks_hold_what_they_held(void **state)
{
    (void)state;
    char line[LINE_MAX];
    unsigned rows = 0, bad = 0;
    FILE *in = fopen(MEMPLAN_SOURCE_DIR "/tests/golden/fsdp_hooks.jsonl", "rb");
    assert_non_null(in);
    for (; fgets(line, sizeof line, in) != NULL; rows++) {
        struct arena a;
        struct diag d;
        arena_init(&a, NULL);
        diag_init(&d, NULL);
        const struct json *row = json_parse(&a, line, strlen(line), &d);
        assert_non_null(row);
        bad += check(row);
        arena_release(&a);
    }
    fclose(in);
    assert_int_equal(rows, 6);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hooks_hold_what_they_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
