/*
 * When groups of Megatron's fine-grained offloading go and come back, against its
 * own manager, recorded (tests/oracle/megatron_offload.py): which groups of which
 * layer go, and what the end of each module's backward brings.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "memplan/memplan.h"

#include "fold/stage.h"
#include "plan/report_data.h"
#include "json/json.h"

enum { TEXT_MAX = 1 << 18, CONFIG_MAX = 4096, LAYERS_MAX = 64 };

static char text[TEXT_MAX];

static const struct json *read_golden(struct arena *a)
{
    char path[1024];
    struct diag d;
    snprintf(path, sizeof path, "%s/../offload/modules.json",
             MEMPLAN_GOLDEN_DIR);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    assert_true(n < sizeof text);
    diag_init(&d, NULL);
    const struct json *root = json_parse(a, text, n, &d);
    assert_non_null(root);
    return root;
}

static const struct json *at(const struct json *o, const char *key)
{
    const struct json *m = json_member(o, key);
    assert_non_null(m);
    return m;
}

static uint64_t number(const struct json *o, const char *key)
{
    return (uint64_t)at(o, key)->number;
}

static bool names(const struct json *list, const char *word)
{
    for (const struct json *w = list->child; w != NULL; w = w->next)
        if (str_is(w->text, word))
            return true;
    return false;
}

#define NAME(id, word) word,
static const char *const module_name[] = { OFFLOAD_MODULE_MAP(NAME) };
#undef NAME

/* A model whose layers have these modules, each chunk of each rank the same;
 * latent attention where its norm is one. `n`: layers of a chunk. */
static void config_of(char *out, size_t size, const struct json *row,
                      uint32_t *n)
{
    const struct json *layers = at(at(row, "chunks")->child, "layers");
    const uint64_t chunks = number(row, "pp") * number(row, "vpp");
    bool dense[LAYERS_MAX];
    unsigned first = 0;
    *n = 0;
    for (const struct json *l = layers->child; l != NULL; l = l->next)
        dense[(*n)++] = !names(l, "expert_fc1");
    while (first < *n && dense[first])
        first++;
    const bool latent = names(layers->child, "attn_norm");
    int used =
        snprintf(out, size,
                 "{\"model_type\": \"%s\", \"num_hidden_layers\": %u, "
                 "\"hidden_size\": 512, \"num_attention_heads\": 8, "
                 "\"num_key_value_heads\": %d, \"intermediate_size\": 1024, "
                 "\"moe_intermediate_size\": 256, \"num_experts_per_tok\": 2, "
                 "\"vocab_size\": 1024, \"max_position_embeddings\": 4096, ",
                 latent ? "deepseek_v3" : "qwen3_moe", (unsigned)(*n * chunks),
                 latent ? 8 : 4);
    if (latent) {
        snprintf(out + used, size - (size_t)used,
                 "\"n_routed_experts\": 8, \"first_k_dense_replace\": %u, "
                 "\"n_shared_experts\": 1, \"q_lora_rank\": 192, "
                 "\"kv_lora_rank\": 128, \"qk_nope_head_dim\": 64, "
                 "\"qk_rope_head_dim\": 32, \"v_head_dim\": 64, "
                 "\"num_nextn_predict_layers\": 0}",
                 first);
        return;
    }
    used += snprintf(out + used, size - (size_t)used,
                     "\"head_dim\": 64, \"num_experts\": 8, "
                     "\"mlp_only_layers\": [");
    const char *comma = "";
    for (unsigned i = 0; i < *n * chunks; i++) {
        if (!dense[i % *n])
            continue;
        used += snprintf(out + used, size - (size_t)used, "%s%u", comma, i);
        comma = ", ";
    }
    snprintf(out + used, size - (size_t)used, "]}");
}

/* All modules that some layer has. */
static void modules_of(char *out, size_t size, const struct json *row)
{
    out[0] = '\0';
    for (unsigned m = 0; m < OFFMOD_COUNT; m++) {
        bool any = false;
        const struct json *layers = at(at(row, "chunks")->child, "layers");
        for (const struct json *l = layers->child; l != NULL; l = l->next)
            any = any || names(l, module_name[m]);
        const size_t used = strlen(out);
        if (any)
            snprintf(out + used, size - used, "%s%s", used > 0 ? "," : "",
                     module_name[m]);
    }
}

static memplan_report *estimate_row(const struct json *row, uint32_t *n)
{
    char config[CONFIG_MAX], modules[256], pp[24], vpp[24], micros[24];
    memplan_error slot[4];
    memplan_errors errs = { slot, 4, 0 };
    memplan_model *model = NULL;
    memplan_setup *setup = NULL;
    memplan_report *report = NULL;
    config_of(config, sizeof config, row, n);
    modules_of(modules, sizeof modules, row);
    snprintf(pp, sizeof pp, "%u", (unsigned)number(row, "pp"));
    snprintf(vpp, sizeof vpp, "%u", (unsigned)number(row, "vpp"));
    snprintf(micros, sizeof micros, "%u", (unsigned)number(row, "micros"));
    const char *const keys[][2] = {
        { "framework", "megatron" },
        { "gpu", "h100-80gb" },
        { "gpus", pp },
        { "pp", pp },
        { "vpp", vpp },
        { "grad_accum", micros },
        { "seq_len", "1024" },
        { "offload_modules", modules },
        { "fast", "true" },
        { "min_offloaded_tensor_size", "0" },
        { "grouped_gemm", "true" },
    };
    if (memplan_model_parse(&model, config, strlen(config), NULL, NULL, &errs)
        != MEMPLAN_OK)
        fail_msg("model: %s", slot[0].message);
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (memplan_setup_set(setup, keys[i][0], keys[i][1], &errs)
            != MEMPLAN_OK)
            fail_msg("setup: %s", slot[0].message);
    if (memplan_estimate(&report, model, setup, NULL, &errs) != MEMPLAN_OK)
        fail_msg("estimate: %s", slot[0].message);
    memplan_setup_free(setup);
    memplan_model_free(model);
    return report;
}

/* Of the layer at a position; NULL where it has no such module. */
static const struct module_group *group_at(const struct stage *s,
                                           uint32_t position, const char *name)
{
    const struct modules_walk *m =
        s->walk[stage_block(s, position)].away.modules;
    for (uint32_t i = 0; i < m->n; i++)
        if (strcmp(module_name[m->group[i].id], name) == 0)
            return &m->group[i];
    return NULL;
}

static uint64_t bytes_of(const struct stage *s, uint32_t position,
                         const char *name)
{
    const struct module_group *g = group_at(s, position, name);
    assert_non_null(g);
    return g->back;
}

static uint64_t moved_of(const struct stage *s, uint32_t position,
                         const char *name)
{
    const struct module_group *g = group_at(s, position, name);
    return g == NULL ? 0 : g->moved;
}

static void check_goes(const struct stage *s, uint32_t first, uint32_t n,
                       const struct json *goes, const char *what)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t moved = 0;
        for (const struct json *g = goes->child; g != NULL; g = g->next)
            if ((uint32_t)g->child->number == i)
                moved += moved_of(s, first + i, g->child->next->text.p);
        if (stage_module_moves(s, first + i) != moved)
            fail_msg("%s: of layer %u %llu bytes go, not %llu", what, i,
                     (unsigned long long)stage_module_moves(s, first + i),
                     (unsigned long long)moved);
    }
}

/* Modules of a layer end in backward, from the last layer down. */
static void check_back(const struct stage *s, uint32_t first, uint32_t n,
                       const struct json *of, const char *what)
{
    const bool others = at(of, "others")->truth;
    const struct json *back = at(of, "back")->child;
    for (uint32_t i = n; i-- > 0;) {
        const struct modules_walk *m =
            s->walk[stage_block(s, first + i)].away.modules;
        for (uint32_t k = 0; k < m->n; k++, back = back->next) {
            assert_non_null(back);
            uint64_t want = 0;
            if (back->kind == JSON_ARRAY) {
                const struct json *layer = back->child->next;
                want = bytes_of(s, first + (uint32_t)layer->number,
                                layer->next->text.p);
            }
            const uint64_t got = stage_comes(s, first + i, k, others);
            if (got != want)
                fail_msg("%s: end %u of layer %u brings %llu, not %llu", what,
                         k, i, (unsigned long long)got,
                         (unsigned long long)want);
        }
    }
    assert_null(back);
}

static void test_orders(void **state)
{
    (void)state;
    struct arena a;
    unsigned checked = 0;
    arena_init(&a, NULL);
    for (const struct json *row = read_golden(&a)->child; row != NULL;
         row = row->next) {
        struct arena own;
        struct memory_fold f;
        struct stage s;
        uint32_t n;
        char what[128];
        memplan_report *r = estimate_row(row, &n);
        arena_init(&own, NULL);
        assert_true(memory_fold_init(&f, &r->program, &r->run, &own));
        const uint64_t rank = number(row, "rank");
        stage_init(&s, &f, rank, rank * n * number(row, "vpp"));
        snprintf(what, sizeof what, "%s, rank %u of %u, vpp %u",
                 at(row, "name")->text.p, (unsigned)rank,
                 (unsigned)number(row, "pp"), (unsigned)number(row, "vpp"));
        uint32_t first = s.embed ? 1 : 0;
        for (const struct json *c = at(row, "chunks")->child; c != NULL;
             c = c->next, first += n) {
            check_goes(&s, first, n, at(c, "goes"), what);
            check_back(&s, first, n, c, what);
            checked++;
        }
        arena_release(&own);
        memplan_report_free(r);
    }
    arena_release(&a);
    assert_true(checked > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
