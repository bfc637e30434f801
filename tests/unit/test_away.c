/*
 * Activations on the host, layer by layer (Transformer Engine) or tensor by
 * tensor (TRL): which tensors go, and when, by hand from their rules and beside
 * recordings.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "estimate.h"

#include "memplan/memplan.h"

#include "fold/trace.h"
#include "plan/report_data.h"

enum { T = 2048, H = 1024, A = 16, F = 4096 };

static const char six[] =
    "{\"model_type\": \"decoder\", \"num_hidden_layers\": 6, "
    "\"hidden_size\": 1024, \"num_attention_heads\": 16, "
    "\"intermediate_size\": 4096, \"vocab_size\": 32000, "
    "\"max_position_embeddings\": 4096, \"norm\": \"rmsnorm\", "
    "\"gated_mlp\": true, \"position_embedding\": \"rope\", "
    "\"tie_word_embeddings\": false}";

static const char experts[] =
    "{\"model_type\": \"decoder\", \"num_hidden_layers\": 6, "
    "\"hidden_size\": 1024, \"num_attention_heads\": 16, "
    "\"num_experts\": 32, \"num_experts_per_tok\": 2, "
    "\"moe_intermediate_size\": 512, "
    "\"intermediate_size\": 4096, \"vocab_size\": 32000, "
    "\"max_position_embeddings\": 4096, \"norm\": \"rmsnorm\", "
    "\"gated_mlp\": true, \"position_embedding\": \"rope\", "
    "\"tie_word_embeddings\": false}";

static memplan_model *parsed(const char *text)
{
    memplan_model *model = NULL;
    assert_int_equal(
        memplan_model_parse(&model, text, strlen(text), "inline", NULL, NULL),
        MEMPLAN_OK);
    return model;
}

static memplan_report *with(const char *text, const char *layers,
                            const char *accum)
{
    return estimate_model(
        parsed(text),
        (const char *const[]){ "framework", "megatron", "gpu", "h100-80gb",
                               "seq_len", "2048", "grad_accum", accum,
                               "cpu_offloading_num_layers", layers, "fast",
                               "true", NULL });
}

struct fixture {
    memplan_report *r;
    struct arena a;
    struct memory_fold f;
    struct stage s;
};

static void begin(struct fixture *x, memplan_report *r)
{
    x->r = r;
    arena_init(&x->a, NULL);
    assert_true(memory_fold_init(&x->f, &r->program, &r->run, &x->a));
    stage_init(&x->s, &x->f, 0, 0);
}

static void end(struct fixture *x)
{
    arena_release(&x->a);
    memplan_report_free(x->r);
}

/* Of the 16-bit tensors of a token: both norms' inputs and results, q, k, v,
 * the context, gate and up side by side, their product. What stays has fewer
 * than 256 Ki elements: the norms' statistics, a number a token, the softmax's,
 * one for each of 16 heads; the random state. The rotary table of 64 angles a
 * token, 128 Ki numbers, stays where all share it. */
static void test_which_tensors_go(void **state)
{
    (void)state;
    struct fixture x;
    begin(&x, with(six, "2", "1"));
    const struct block_walk *w = &x.s.walk[stage_block(&x.s, 1)];
    assert_int_equal(w->away.bytes, (uint64_t)T * 2 * (4 * H + 4 * H + 3 * F));
    assert_int_equal(w->away.moved, w->away.bytes);
    assert_int_equal(w->kept - w->away.bytes, (uint64_t)T * 4 * (2 + A) + 512);
    assert_int_equal(w->away.copies, 0);
    /* eight of 4 MiB, gate and up of 32 MiB, the product of 16 MiB */
    assert_int_equal(w->away.pinned,
                     (uint64_t)8 * T * H * 2 + (uint64_t)T * 3 * F * 2);
    end(&x);
}

/* What both ways of a step move, and what waits: of each of 4 micro-batches. */
static void test_host(void **state)
{
    (void)state;
    memplan_report *r = with(six, "3", "4");
    const struct offload_result *o = &r->memory.offload;
    const uint64_t one = (uint64_t)T * 2 * (8 * H + 3 * F);
    assert_int_equal(o->sum[OFFLOAD_ON_PINNED], 3 * one);
    assert_int_equal(o->sum[OFFLOAD_TO_HOST], 4 * 3 * one);
    assert_int_equal(o->sum[OFFLOAD_FROM_HOST], 4 * 3 * one);
    memplan_report_free(r);
}

/* A table of 4096 x 128 numbers goes with each layer, and each has its own when
 * it is back; what all share stays. */
static void test_rotary_copies(void **state)
{
    (void)state;
    struct fixture x;
    begin(&x, estimate("llama-7b",
                       (const char *const[]){
                           "framework", "megatron", "gpu", "h100-80gb", "gpus",
                           "8", "seq_len", "4096", "cpu_offloading_num_layers",
                           "4", "fast", "true", NULL }));
    const uint64_t table = (uint64_t)4096 * 128 * 4;
    const struct away *w = &x.s.walk[stage_block(&x.s, 1)].away;
    assert_int_equal(w->copies, table);
    assert_int_equal(w->moved, w->bytes + table);
    assert_int_equal(x.s.sum.buffer_bytes, table);
    /* when the third of them runs backward the first two are back, too */
    assert_int_equal(stage_back_bytes(&x.s, 3), 3 * table);
    end(&x);
}

/* Grouped products keep a part of their input for each expert: 128 tokens of
 * 1024, or 512, numbers are fewer than 256 Ki, and keep the whole here. What
 * the activation keeps is one tensor of all experts. */
static void test_parts_of_experts_stay(void **state)
{
    (void)state;
    struct fixture x;
    begin(&x, with(experts, "2", "1"));
    const struct block_walk *w = &x.s.walk[stage_block(&x.s, 1)];
    const uint64_t attention = (uint64_t)T * 2 * 6 * H;
    const uint64_t norm = (uint64_t)T * 2 * H * 2; /* the second one's, alone */
    const uint64_t gates = (uint64_t)2 * T * 2 * 512 * 2;
    assert_in_range(w->away.bytes, attention + norm + gates,
                    attention + norm + gates + (uint64_t)2 * T * H * 2);
    assert_true(w->kept - w->away.bytes
                >= (uint64_t)2 * T * (H + 512) * 2); /* both products' */
    end(&x);
}

/* Layers whose tensors are on the GPU when each event of a micro-batch is over:
 * forward, layer by layer, and backward from the last one's begin, then the
 * embedding's. Recorded with Transformer Engine's class (pytorch/cpu_offload.py
 * at d0067d0d) around six equal layers on an H100:
 * torch.cuda.memory_allocated() in units of what a layer's tensors take. */
static void test_order(void **state)
{
    (void)state;
    static const struct {
        const char *n;
        unsigned forward[6], back[6], embedding;
    } recorded[] = {
        { "2", { 1, 2, 3, 4, 4, 4 }, { 4, 4, 4, 3, 2, 1 }, 1 },
        { "5", { 1, 1, 1, 1, 1, 1 }, { 1, 1, 1, 1, 1, 1 }, 1 },
    };
    for (size_t k = 0; k < 2; k++) {
        struct fixture x;
        begin(&x, with(six, recorded[k].n, "1"));
        for (uint32_t i = 0; i < 6; i++) {
            const struct span gone = stage_gone(&x.s, 1 + i);
            assert_int_equal(i + 1 - (gone.end - gone.first),
                             recorded[k].forward[i]);
            const struct span then = stage_gone(&x.s, 6 - i);
            assert_int_equal(6 - i - (then.end - then.first),
                             recorded[k].back[i]);
        }
        const struct span last = stage_back(&x.s, 0);
        assert_int_equal(last.end - last.first, recorded[k].embedding);
        assert_int_equal(stage_back_bytes(&x.s, 0),
                         x.s.walk[stage_block(&x.s, 1)].away.bytes);
        end(&x);
    }
}

/* What came back stays to the end of its layer's backward, when nothing else of
 * the layer is left. */
static void test_stays_to_the_end(void **state)
{
    (void)state;
    struct fixture x;
    begin(&x, with(six, "3", "1"));
    const struct block_walk *w = &x.s.walk[stage_block(&x.s, 1)];
    const enum wgrad_mode mode = engine_wgrad_mode(&x.s, false);
    assert_true(extremum_total(&w->away.backward[mode])
                > extremum_total(&w->backward[mode]));
    assert_true(w->away.backward[mode].kept >= w->away.bytes);
    end(&x);
}

/* Copies of five layers of six have nothing beside them, of one four layers. */
static void test_time(void **state)
{
    (void)state;
    static const char *const n[] = { "0", "1", "5" };
    double step[3], away[3];
    for (size_t i = 0; i < 3; i++) {
        memplan_report *r = with(six, n[i], "1");
        assert_int_equal(
            memplan_report_number(&step[i], r, "compute.step_time_s"),
            MEMPLAN_OK);
        away[i] = r->time.part[TIME_OFFLOAD];
        memplan_report_free(r);
    }
    const double one = (double)T * 2 * (8 * H + 3 * F);
    assert_true(away[0] <= 0);
    assert_true(away[2] > 2 * 5 * one / 64e9);
    assert_true(away[2] < 2 * 5 * one / 40e9);
    assert_true(away[1] < away[2] / 5);
    assert_true(step[2] > step[0]);
}

/* ---- tensor by tensor ---- */

/* Recorded with TRL's OffloadActivations (models/activation_offloading.py at
 * f2cd5771) around transformers' LlamaForCausalLM on an H100: 2048 wide, 5632
 * in the middle, 32000 words, a sequence of 4096, SDPA, bf16, gradients zeroed
 * in place; MiB above weights, gradients and cuBLAS's workspace, the most in
 * backward. */
static memplan_report *unloaded(const char *layers, const char *recompute)
{
    char text[512];
    (void)snprintf(text, sizeof text,
                   "{\"model_type\": \"llama\", \"hidden_size\": 2048, "
                   "\"intermediate_size\": 5632, \"num_hidden_layers\": %s, "
                   "\"num_attention_heads\": 16, \"num_key_value_heads\": 16, "
                   "\"vocab_size\": 32000, \"max_position_embeddings\": 8192, "
                   "\"tie_word_embeddings\": false}",
                   layers);
    return estimate_model(parsed(text),
                          (const char *const[]){ "framework",
                                                 "hf",
                                                 "gpu",
                                                 "h100-80gb",
                                                 "precision",
                                                 "bf16",
                                                 "attention",
                                                 "sdpa",
                                                 "seq_len",
                                                 "4096",
                                                 "optimizer",
                                                 "none",
                                                 "zero_grad_set_to_none",
                                                 "false",
                                                 "recompute",
                                                 recompute,
                                                 "offload_activations",
                                                 "cpu",
                                                 "fast",
                                                 "true",
                                                 NULL });
}

static void test_recorded_peaks(void **state)
{
    (void)state;
    static const struct {
        const char *layers, *recompute;
        double mib;
    } recorded[] = { { "8", "none", 2446.34 },
                     { "16", "none", 3342.59 },
                     { "8", "full", 1550.11 },
                     { "16", "full", 1550.11 } };
    for (size_t i = 0; i < 4; i++) {
        memplan_report *r = unloaded(recorded[i].layers, recorded[i].recompute);
        const struct moment *m = &r->memory.stage[0].peak;
        const uint64_t above = m->total - m->bytes[TERM_WEIGHTS]
                               - m->bytes[TERM_GRADS]
                               - m->bytes[TERM_WORKSPACE];
        const double mib = (double)above / (1 << 20);
        assert_true(mib > recorded[i].mib - 0.1 && mib < recorded[i].mib + 0.1);
        memplan_report_free(r);
    }
}

/* What the head's norm keeps goes and comes too, beside layers and beside
 * checkpoints. */
static void test_head_is_on_the_host(void **state)
{
    (void)state;
    for (unsigned full = 0; full < 2; full++) {
        struct fixture x;
        begin(&x, unloaded("2", full ? "full" : "none"));
        const struct block_walk *layer = &x.s.walk[stage_block(&x.s, 1)];
        const struct block_walk *head = &x.s.walk[stage_block(&x.s, 3)];
        const struct offload_result *o = &x.r->memory.offload;
        const uint64_t one = full ? layer->checkpoint : layer->away.moved;
        assert_true(head->away.moved > 0);
        assert_int_equal(o->sum[OFFLOAD_TO_HOST], 2 * one + head->away.moved);
        assert_int_equal(o->sum[OFFLOAD_FROM_HOST], 2 * one + head->away.moved);
        end(&x);
    }
}

/* What two operations keep one after the other stays: fp32 inputs of both norms
 * and their deviations, both norms' results, of which products keep several,
 * the context; and what is below 1 KiB: random states. 112.03 MiB a layer were
 * recorded. */
static void test_kept_twice_stays(void **state)
{
    (void)state;
    enum { TOKENS = 4096, WIDE = 2048 };
    struct fixture x;
    begin(&x, unloaded("8", "none"));
    const struct block_walk *w = &x.s.walk[stage_block(&x.s, 1)];
    assert_int_equal(w->kept - w->away.bytes,
                     (uint64_t)TOKENS * WIDE * (2 * 4 + 3 * 2)
                         + (uint64_t)2 * TOKENS * 4 + 2 * 512);
    /* on the way when the layer is done: what the product of both kept, and
       what the last one does */
    assert_int_equal(w->away.left, (uint64_t)3 * TOKENS * 5632 * 2);
    end(&x);
}

/* ---- paged moments ---- */

static memplan_report *paged(const char *capacity, const char *optimizer)
{
    return estimate("smollm-1.7b",
                    (const char *const[]){
                        "framework", "hf", "gpu", "h100-80gb", "gpu_memory",
                        capacity, "optimizer", optimizer, "embedding_states",
                        "8bit", "fast", "true", NULL });
}

/* A byte each, or four, of two moments of 1,711 M elements but those of 49
 * norms of 2,048, which are not paged; on the device as far as there is room,
 * and whether all fits does not depend on them. */
static void test_paged_moments(void **state)
{
    (void)state;
    const uint64_t elems = 1711376384 - UINT64_C(49) * 2048;
    static const struct {
        const char *optimizer;
        uint64_t bytes;
    } rows[] = { { "paged-adam8bit", 1 }, { "paged-adamw", 4 } };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        memplan_report *r = paged("80GiB", rows[i].optimizer);
        const struct memory_result *m = &r->memory;
        assert_int_equal(m->paged, 2 * rows[i].bytes * elems);
        assert_int_equal(m->paged_here, m->paged);
        assert_int_equal(m->device_total, m->reserved + m->outside + m->paged);
        const uint64_t rest = m->reserved + m->outside;
        memplan_report_free(r);

        char tight[32];
        (void)snprintf(tight, sizeof(tight), "%llu",
                       (unsigned long long)(rest + 1000));
        r = paged(tight, rows[i].optimizer);
        assert_true(r->memory.fits);
        assert_int_equal(r->memory.paged_here, 1000);
        assert_int_equal(r->memory.headroom, 0);
        memplan_report_free(r);

        (void)snprintf(tight, sizeof(tight), "%llu",
                       (unsigned long long)(rest / 2));
        r = paged(tight, rows[i].optimizer);
        assert_false(r->memory.fits);
        assert_int_equal(r->memory.paged_here, 0);
        memplan_report_free(r);
    }
}

static bool says_paged(const memplan_report *r)
{
    char buf[ASSUMPTION_TEXT];
    for (size_t i = 0; i < r->run.n_assumptions; i++)
        if (strstr(assumption_text(&r->run.assumption[i], buf),
                   "paged moments are in unified memory")
            != NULL)
            return true;
    return false;
}

/* The host has the moments in full where it steps the optimizer. */
static void test_offloaded_moments_are_not_paged(void **state)
{
    (void)state;
    memplan_report *r =
        estimate("smollm-1.7b",
                 (const char *const[]){ "framework", "fsdp", "gpus", "2",
                                        "offload_params", "cpu", "optimizer",
                                        "paged-adamw", "fast", "true", NULL });
    assert_int_equal(r->memory.paged, 0);
    assert_false(says_paged(r));
    memplan_report_free(r);
}

/* Adapters of fewer than 100,000 elements each are no reason to speak of it. */
static void test_small_tensors_are_not_paged(void **state)
{
    (void)state;
    memplan_report *r = estimate(
        "smollm-1.7b",
        (const char *const[]){ "framework", "hf", "lora_rank", "8", "optimizer",
                               "paged-adamw", "fast", "true", NULL });
    assert_int_equal(r->memory.paged, 0);
    assert_false(says_paged(r));
    memplan_report_free(r);
    r = paged("80GiB", "paged-adamw");
    assert_true(says_paged(r));
    /* beside what the allocator has of them */
    assert_true(r->memory.model_states > r->memory.paged);
    memplan_report_free(r);
}

static memplan_report *spread(const char *capacity)
{
    return estimate(
        "smollm-1.7b",
        (const char *const[]){ "framework",   "hf",        "gpus",
                               "2",           "pp",        "2",
                               "schedule",    "naive",     "pipeline_layers",
                               "8,16",        "recompute", "full",
                               "micro_batch", "8",         "gpu_memory",
                               capacity,      "optimizer", "paged-adamw",
                               "fast",        "true",      NULL });
}

/* The first GPU reserves most, for its logits; the second has most with what is
 * paged. */
static void test_paged_of_each_stage(void **state)
{
    (void)state;
    memplan_report *r = spread("80GiB");
    const struct memory_result *m = &r->memory;
    const struct stage_result *first = &m->stage[0], *last = &m->stage[1];
    assert_int_equal(m->reserved_stage, 0);
    assert_int_equal(m->device_stage, 1);
    assert_true(first->paged > 0 && first->paged < last->paged);
    assert_int_equal(m->device_total,
                     last->reserved + m->outside + last->paged);
    assert_int_equal(m->paged_on_host, 0);
    char tight[32];
    (void)snprintf(tight, sizeof(tight), "%llu",
                   (unsigned long long)(first->reserved + m->outside + 1000));
    memplan_report_free(r);

    r = spread(tight);
    m = &r->memory;
    assert_true(m->fits);
    assert_int_equal(m->headroom, 0);
    assert_int_equal(m->stage[0].paged_here, 1000);
    assert_int_equal(m->device_stage, 1);
    assert_true(m->paged_here > 1000);
    assert_int_equal(m->paged_on_host, m->paged - m->paged_here);
    memplan_report_free(r);
}

static memplan_report *of_experts(const char *optimizer)
{
    return estimate_model(
        parsed(experts),
        (const char *const[]){ "framework", "megatron", "gpu", "h100-80gb",
                               "gpus", "16", "ep", "8", "optimizer", optimizer,
                               "fast", "true", NULL });
}

/* Of a flat partition: 8 bytes an element that the rank has of dense tensors,
 * sixteenths, and of experts', halves of an eighth; norms and routers, less than
 * 100,000 elements, are not paged. The update reads and writes as much as where
 * the allocator has it. */
static void test_paged_parts_of_experts(void **state)
{
    (void)state;
    memplan_report *r = of_experts("paged-adamw");
    const uint64_t expert = UINT64_C(6) * 32 * 3 * 512 * H / 8 / 2;
    const uint64_t dense =
        (UINT64_C(6) * 4 * H * H + UINT64_C(2) * 32000 * H) / 16;
    const uint64_t most = 8 * (expert + dense);
    assert_true(r->memory.paged >= most);
    assert_true(r->memory.paged <= most + most / 100); /* padded vocabulary */
    const double paged_s = r->time.part[TIME_OPTIMIZER];
    memplan_report_free(r);
    r = of_experts("adamw");
    assert_true(paged_s >= r->time.part[TIME_OPTIMIZER]);
    memplan_report_free(r);
}

/* Checkpoints of the first stage wait for as many micro-batches as there are
 * stages. */
static void test_checkpoints_in_flight(void **state)
{
    (void)state;
    static const char *const accum[] = { "1", "2", "8" };
    static const uint64_t flying[] = { 1, 2, 2 };
    for (size_t i = 0; i < 3; i++) {
        memplan_report *r = estimate_model(
            parsed(six), (const char *const[]){ "framework",
                                                "megatron-deepspeed",
                                                "gpu",
                                                "h100-80gb",
                                                "gpus",
                                                "2",
                                                "pp",
                                                "2",
                                                "zero",
                                                "1",
                                                "seq_len",
                                                "2048",
                                                "recompute",
                                                "full",
                                                "offload_activations",
                                                "cpu",
                                                "grad_accum",
                                                accum[i],
                                                "fast",
                                                "true",
                                                NULL });
        assert_int_equal(r->memory.offload.host, flying[i] * 3 * T * H * 2);
        assert_int_equal(r->memory.offload.sum[OFFLOAD_ON_PINNED], 0);
        memplan_report_free(r);
    }
}

/* ---- module by module: Megatron ---- */

static memplan_report *with_modules(const char *modules, const char *pp)
{
    return estimate_model(
        parsed(six), (const char *const[]){
                         "framework", "megatron", "gpu", "h100-80gb", "gpus",
                         pp, "pp", pp, "seq_len", "2048", "grad_accum", "4",
                         "offload_modules", modules, "fast", "true", NULL });
}

/* A layer's tensors of T * H elements in 16 bits: those that leave the GPU, and
 * the copies that come back. */
static void check_hidden(const char *modules, uint64_t gone, uint64_t back)
{
    struct fixture x;
    const uint64_t each = (uint64_t)T * H * 2;
    begin(&x, with_modules(modules, "1"));
    const struct away *w = &x.s.walk[stage_block(&x.s, 1)].away;
    uint64_t copies = 0;
    for (uint32_t i = 0; i < w->modules->n; i++)
        copies += w->modules->group[i].back;
    assert_int_equal(w->bytes, gone * each);
    assert_int_equal(copies, back * each);
    assert_int_equal(w->moved, back * each);
    /* the last layer's stay, the others' go */
    for (uint32_t i = 1; i <= 6; i++)
        assert_int_equal(stage_module_goes(&x.s, i), i < 6);
    end(&x);
}

static void test_modules(void **state)
{
    (void)state;
    /* q, k, v; the context, which linear_proj keeps here, comes back too */
    check_hidden("core_attn", 3, 4);
    /* ... and for both */
    check_hidden("core_attn,attn_proj", 4, 5);
    /* what the norm that is part of it keeps, and its result */
    check_hidden("qkv_linear", 2, 2);
}

/* The pipeline has what came from another rank, which is a copy now. */
static void test_stage_input(void **state)
{
    (void)state;
    static const char *const modules[] = { "core_attn", "qkv_linear" };
    for (size_t i = 0; i < 2; i++) {
        struct fixture x;
        begin(&x, with_modules(modules[i], "3"));
        stage_init(&x.s, &x.f, 1, 2);
        const uint64_t each = (uint64_t)T * H * 2;
        assert_int_equal(x.s.in_flight, 2);
        assert_int_equal(stage_held_input(&x.s), i * each);
        end(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_which_tensors_go),
        cmocka_unit_test(test_host),
        cmocka_unit_test(test_rotary_copies),
        cmocka_unit_test(test_parts_of_experts_stay),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_stays_to_the_end),
        cmocka_unit_test(test_time),
        cmocka_unit_test(test_recorded_peaks),
        cmocka_unit_test(test_head_is_on_the_host),
        cmocka_unit_test(test_kept_twice_stays),
        cmocka_unit_test(test_paged_moments),
        cmocka_unit_test(test_offloaded_moments_are_not_paged),
        cmocka_unit_test(test_small_tensors_are_not_paged),
        cmocka_unit_test(test_paged_of_each_stage),
        cmocka_unit_test(test_paged_parts_of_experts),
        cmocka_unit_test(test_checkpoints_in_flight),
        cmocka_unit_test(test_modules),
        cmocka_unit_test(test_stage_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
