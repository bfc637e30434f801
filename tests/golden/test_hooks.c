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

#include "unit/estimate.h"

#include "fold/engine_fsdp.h"
#include "fold/memory.h"
#include "fold/stage.h"
#include "plan/report_data.h"
#include "json/json.h"

#include "memplan/memplan.h"

enum { LAYERS = 4, LINE_MAX = 1024, BATCH_BYTES = 2 * 64 * 128 * 2 };

static const char config[] =
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 4, "
    "\"hidden_size\": 128, \"num_attention_heads\": 4, "
    "\"intermediate_size\": 256, \"vocab_size\": 512, "
    "\"max_position_embeddings\": 64}";

/* What is trained: "adapters", the layers that have some, or all; "trained",
 * the last layers alone. */
static size_t trained(const char **pairs, const struct json *row, char *list,
                      size_t size)
{
    size_t n = 0, length = 0;
    const struct json *adapted = json_member(row, "adapters")->child;
    for (const struct json *i = adapted; i != NULL; i = i->next)
        length += (size_t)snprintf(list + length, size - length, "%s%d",
                                   i == adapted ? "" : ",", (int)i->number);
    if (adapted != NULL) {
        pairs[n++] = "lora_rank";
        pairs[n++] = "4";
        pairs[n++] = "lora_targets";
        pairs[n++] = "q";
        pairs[n++] = "layers_to_transform";
        pairs[n++] = list;
    } else if (json_member(row, "trained")->number < LAYERS) {
        pairs[n++] = "freeze";
        pairs[n++] = "embed,norm,head";
        snprintf(list, size, "%d", (int)json_member(row, "trained")->number);
        pairs[n++] = "freeze_trainable_layers";
        pairs[n++] = list;
    }
    return n;
}

static memplan_report *of_row(const struct json *row)
{
    char list[2 * LAYERS + 1];
    const char *mode = json_member(row, "recompute")->text.p;
    const bool none = strncmp(mode, "none", 4) == 0;
    const bool reentrant = strncmp(mode, "reentrant", 9) == 0;
    const char *pairs[32] = {
        "framework", "hf",        "engine",
        "fsdp",      "zero",      "3",
        "gpus",      "2",         "micro_batch",
        "2",         "seq_len",   "64",
        "precision", "bf16",      "fast",
        "true",      "recompute", none ? "none" : "full",
        "attention", "sdpa",
    };
    size_t n = 20;
    if (!none) {
        pairs[n++] = "recompute_reentrant";
        pairs[n++] = reentrant ? "true" : "false";
        if (reentrant) {
            pairs[n++] = "recompute_in_unit";
            pairs[n++] = strstr(mode, " inside") != NULL ? "true" : "false";
        }
    }
    n += trained(pairs + n, row, list, sizeof list);
    memplan_model *model = NULL;
    assert_int_equal(memplan_model_parse(&model, config, sizeof config - 1,
                                         "small", NULL, NULL),
                     MEMPLAN_OK);
    return estimate_model(model, pairs);
}

static const struct json *at(const struct json *row, const char *key, int layer)
{
    const struct json *v = json_member(row, key)->child;
    while (layer-- > 0)
        v = v->next;
    return v;
}

/* When the layer below is fetched while a layer's backward runs: it is there
 * all the while, or but when the layer is done. */
static const char *fetches_below(const struct stage *s, uint32_t position)
{
    struct moment m;
    assert_true(moment_at(&m, s, PHASE_BACKWARD, position, false));
    if (m.bytes[TERM_PREFETCHED] > 0)
        return "begin";
    return fsdp_is_unit(s, position - 1)
                   && fsdp_is_fetched_back(s, position - 1)
               ? "end"
               : "never";
}

static unsigned check(const struct json *row, unsigned number)
{
    memplan_report *r = of_row(row);
    struct arena a;
    struct memory_fold f;
    struct stage s;
    unsigned bad = 0;
    arena_init(&a, NULL);
    assert_true(memory_fold_init(&f, &r->program, &r->run, &a));
    stage_init(&s, &f, 0, 0);
    for (int i = 0; i < LAYERS; i++) {
        const uint32_t position = 1 + (uint32_t)i; /* after the embedding */
        const uint64_t inputs = (uint64_t)at(row, "inputs", i)->number;
        const uint64_t grads = (uint64_t)at(row, "gradients", i)->number;
        /* one of them is what this layer's backward began with, where that is
           held at all */
        const bool begins =
            i + 1 < LAYERS && stage_hooks_hold(&s, position + 1);
        const uint64_t old = grads - (begins ? 1 : 0);
        bad += stage_hooked_inputs(&s, position) != inputs * BATCH_BYTES;
        bad += stage_hooked_gradients(&s, position) != old * BATCH_BYTES;
        const char *when = fetches_below(&s, position);
        bad += strncmp(at(row, "fetches", i)->text.p, when, strlen(when)) != 0;
    }
    if (bad > 0)
        print_error("row %u: %u differ\n", number, bad);
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
        bad += check(row, rows + 1);
        arena_release(&a);
    }
    fclose(in);
    assert_int_equal(rows, 25);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hooks_hold_what_they_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
