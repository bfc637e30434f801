/*
 * The trace and its views: sums, order, formats. That the trace equals the
 * closed form over random layouts is tests/property's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "estimate.h"

#include "memplan/memplan.h"

#include "base/unit.h"
#include "fold/trace.h"
#include "plan/report_data.h"
#include "json/json.h"

struct text {
    char *p;
    size_t n;
};

static bool collect(void *ctx, const char *p, size_t n)
{
    struct text *t = ctx;
    t->p = realloc(t->p, t->n + n + 1);
    assert_non_null(t->p);
    memcpy(t->p + t->n, p, n);
    t->n += n;
    t->p[t->n] = '\0';
    return true;
}

#define ESTIMATE(name, ...)                                                    \
    estimate((name), (const char *const[]){ "fast", "true", __VA_ARGS__, NULL })

static struct text view(const memplan_report *r, memplan_format format)
{
    struct text t = { NULL, 0 };
    const memplan_style style = { .format = format };
    assert_int_equal(
        memplan_report_write(r, MEMPLAN_VIEW_TRACE, &style, collect, &t, NULL),
        MEMPLAN_OK);
    return t;
}

static void first_stage(const memplan_report *r, struct arena *a,
                        struct stage *s, struct trace *t)
{
    struct memory_fold *f = ARENA_NEW(a, struct memory_fold, 1);
    assert_non_null(f);
    assert_true(memory_fold_init(f, &r->program, &r->run, a));
    stage_init(s, f, 0, 0);
    assert_true(trace_stage(t, f, s, TRACE_LATER, a));
}

/* Every death has its birth before it; what is left is what rests. */
static void test_births_and_deaths(void **state)
{
    (void)state;
    memplan_report *r = ESTIMATE("gpt2", "gpus", "8", "zero", "2", "grad_accum",
                                 "3", "recompute", "full");
    struct arena a;
    struct stage s;
    struct trace t;
    arena_init(&a, NULL);
    first_stage(r, &a, &s, &t);
    uint64_t *size = ARENA_NEW(&a, uint64_t, (size_t)t.next_id + 1);
    for (size_t i = 0; i < t.n; i++) {
        const struct trace_event *e = &t.event[i];
        assert_int_equal(size[e->id], e->birth ? 0 : e->bytes);
        size[e->id] = e->birth ? e->bytes : 0;
    }
    uint64_t left = 0;
    for (uint32_t id = 0; id <= t.next_id; id++)
        left += size[id];
    assert_int_equal(left, r->memory.steady);
    assert_int_equal(t.peak, r->memory.peak);
    arena_release(&a);
    memplan_report_free(r);
}

static uint64_t births_of(const char *gpu, uint64_t bytes)
{
    memplan_report *r = ESTIMATE("bert-base", "framework", "hf", "gpu", gpu,
                                 "precision", "bf16-amp", "micro_batch", "8",
                                 "seq_len", "512", "optimizer_impl", "fused");
    struct arena a;
    struct stage s;
    struct trace t;
    uint64_t n = 0;
    arena_init(&a, NULL);
    first_stage(r, &a, &s, &t);
    for (size_t i = 0; i < t.n; i++)
        n += t.event[i].birth && t.event[i].bytes == bytes;
    arena_release(&a);
    memplan_report_free(r);
    return n;
}

/* What PyTorch's kernels set aside for partial sums: of the bias of twelve
 * up-projections, of the table. As recorded on an H100; other GPUs' kernels are
 * not known. */
static void test_partial_sums(void **state)
{
    (void)state;
    assert_int_equal(births_of("h100-80gb", UINT64_C(96) << 20), 12);
    assert_int_equal(births_of("h100-80gb", 13839360), 1);
    assert_int_equal(births_of("mi300x", UINT64_C(96) << 20), 0);
    assert_int_equal(births_of("mi300x", 13839360), 0);
}

/* ---- what DeepSpeed's pipeline makes piece by piece ---- */

/* Bytes of all births of a name, the largest, how many; and whether two of them
 * are alive at once. */
struct pieces {
    uint64_t sum, largest, n;
    bool together;
};

static struct pieces pieces_of(const struct trace *t, const char *name)
{
    struct pieces p = { 0 };
    uint64_t alive = 0;
    for (size_t i = 0; i < t->n; i++) {
        const struct trace_event *e = &t->event[i];
        if (strcmp(e->name, name) != 0)
            continue;
        alive = e->birth ? alive + 1 : alive - 1;
        p.together = p.together || alive > 1;
        if (!e->birth)
            continue;
        p.n++;
        p.sum += e->bytes;
        p.largest = e->bytes > p.largest ? e->bytes : p.largest;
    }
    return p;
}

/* What random layouts have shown once in ten thousand. */
static void check_peak(memplan_report *r)
{
    struct arena a;
    struct stage s;
    struct trace t;
    arena_init(&a, NULL);
    first_stage(r, &a, &s, &t);
    assert_int_equal(t.peak, r->memory.peak);
    assert_int_equal(t.live, r->memory.steady);
    arena_release(&a);
    memplan_report_free(r);
}

/* A flat gradient over parts that are frozen, their weights kept gathered. */
static memplan_report *words_over_frozen(void)
{
    static const char vl[] =
        "{\"model_type\": \"qwen2_5_vl\", \"text_config\": {\"hidden_size\": "
        "512, \"num_hidden_layers\": 6, \"vocab_size\": 32000, "
        "\"intermediate_size\": 1024, \"num_attention_heads\": 8, "
        "\"num_key_value_heads\": 2}, \"vision_config\": {\"depth\": 6, "
        "\"hidden_size\": 384, \"num_heads\": 6, \"intermediate_size\": 1024, "
        "\"out_hidden_size\": 512, \"fullatt_block_indexes\": [2, 5]}}";
    static const char *const pairs[][2] = {
        { "fast", "true" },       { "framework", "fsdp" },
        { "engine", "fsdp2" },    { "zero", "2" },
        { "gpus", "1" },          { "seq_len", "256" },
        { "fsdp_units", "ends" }, { "optimizer", "lion" },
        { "freeze", "vision" },   { "attention", "eager" },
        { "images", "2" },        { "image", "3x224x224" },
        { "recompute", "full" },  { "optimizer_impl", "loop" },
    };
    memplan_model *m = NULL;
    memplan_setup *setup = NULL;
    memplan_report *r = NULL;
    assert_int_equal(
        memplan_model_parse(&m, vl, strlen(vl), "inline", NULL, NULL),
        MEMPLAN_OK);
    assert_int_equal(memplan_model_select(m, "all", NULL), MEMPLAN_OK);
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        assert_int_equal(
            memplan_setup_set(setup, pairs[i][0], pairs[i][1], NULL),
            MEMPLAN_OK);
    assert_int_equal(memplan_estimate(&r, m, setup, NULL, NULL), MEMPLAN_OK);
    memplan_setup_free(setup);
    memplan_model_free(m);
    return r;
}

static void test_rare_peaks(void **state)
{
    (void)state;
    check_peak(words_over_frozen());
    /* a table's whole gradient, where one is there already */
    check_peak(ESTIMATE("llama-3-8b", "framework", "hf", "gpus", "2", "tp", "2",
                        "grad_accum", "4", "seq_len", "512", "recompute",
                        "full", "recompute_reentrant", "true", "optimizer",
                        "sgd", "precision", "fp32", "attention", "eager"));
    /* int8 linears over the block's input, which the checkpoint has */
    check_peak(ESTIMATE(
        "bart-large", "framework", "fsdp", "gpus", "1", "micro_batch", "2",
        "seq_len", "512", "recompute", "full", "recompute_reentrant", "true",
        "fsdp_units", "embedding", "optimizer", "adam8bit", "attention",
        "eager", "base_dtype", "int8", "lora_rank", "8", "lora_full_modules",
        "embed,head", "optimizer_impl", "loop"));
}

#define FORK                                                                   \
    "framework", "megatron-deepspeed", "implementation", "megatron-local"

/* GPT-2 XL: 1.64e9 weights on one stage, the largest of 8.2e7. */
static void test_fork_buckets(void **state)
{
    (void)state;
    memplan_report *r =
        ESTIMATE("gpt2-xl", FORK, "gpus", "8", "zero", "1", "tp", "1",
                 "precision", "fp16-mixed", "grad_accum", "2");
    struct arena a;
    struct stage s;
    struct trace t;
    arena_init(&a, NULL);
    first_stage(r, &a, &s, &t);
    const uint64_t all = s.sum.elems;
    /* every gradient is flattened once, in buckets of whole tensors */
    const struct pieces in = pieces_of(&t, "flattened gradients on their way");
    assert_int_equal(in.n, 4);
    assert_int_equal(in.sum, 2 * all);
    assert_int_equal(in.largest, 2 * s.bucket);
    assert_true(s.bucket <= 500000000 && s.bucket > 400000000);
    assert_false(in.together);
    /* every weight is gathered once, in shards of 5e8 or more */
    const struct pieces out = pieces_of(&t, "updated weights, gathered flat");
    assert_int_equal(out.n, all / 500000000);
    assert_true(out.sum >= 2 * all && out.sum < 2 * all + 8 * 64);
    assert_true(out.largest >= 2 * UINT64_C(500000000));
    assert_false(out.together);
    arena_release(&a);
    memplan_report_free(r);
}

/* A tensor larger than the bucket is reduced where it is, a smaller gather
 * bucket makes more shards. */
static void test_fork_small_buckets(void **state)
{
    (void)state;
    memplan_report *r =
        ESTIMATE("gpt2-xl", FORK, "gpus", "8", "zero", "1", "tp", "1",
                 "precision", "fp16-mixed", "reduce_bucket", "1000000");
    struct arena a;
    struct stage s;
    struct trace t;
    arena_init(&a, NULL);
    first_stage(r, &a, &s, &t);
    const struct pieces in = pieces_of(&t, "flattened gradients on their way");
    assert_true(in.largest <= 2000000);
    assert_true(in.sum < s.sum.elems / 100);
    arena_release(&a);
    memplan_report_free(r);
}

/* The fork's BF16_Optimizer adds gradients a tensor at a time, cast to fp32;
 * the other optimizers do nothing of the kind. */
static void test_fork_accumulates(void **state)
{
    (void)state;
    memplan_report *r =
        ESTIMATE("gpt2-xl", FORK, "gpus", "8", "zero", "0", "tp", "1",
                 "precision", "bf16-mixed", "grad_accum", "2");
    struct arena a;
    struct stage s;
    struct trace t;
    arena_init(&a, NULL);
    first_stage(r, &a, &s, &t);
    const struct pieces cast = pieces_of(&t, "a gradient in fp32, to be added");
    assert_int_equal(cast.largest, 4 * s.sum.largest_grad);
    assert_int_equal(cast.sum, 2 * 4 * s.sum.elems); /* two micro-batches */
    assert_false(cast.together);
    assert_true(pieces_of(&t, "updated weights, gathered flat").n > 0);
    arena_release(&a);
    memplan_report_free(r);
    r = ESTIMATE("gpt2-xl", FORK, "gpus", "8", "zero", "1", "tp", "1",
                 "precision", "fp16-mixed", "grad_accum", "2");
    arena_init(&a, NULL);
    first_stage(r, &a, &s, &t);
    assert_int_equal(pieces_of(&t, "a gradient in fp32, to be added").n, 0);
    arena_release(&a);
    memplan_report_free(r);
    r = ESTIMATE("gpt2-xl", "gpus", "8", "zero", "1", "precision",
                 "bf16-mixed");
    arena_init(&a, NULL);
    first_stage(r, &a, &s, &t);
    assert_int_equal(pieces_of(&t, "updated weights, gathered flat").n, 0);
    arena_release(&a);
    memplan_report_free(r);
}

/* `(grad_input + torch.exp(x)) * grad_output` (torch/distributed/tensor/
 * parallel/loss.py): the exponential and the sum are a tensor each. */
static void test_parallel_loss_pieces(void **state)
{
    (void)state;
    memplan_report *r = ESTIMATE("llama-2-7b", "gpus", "8", "framework",
                                 "torchtitan", "tp", "2", "seq_len", "4096");
    struct arena a;
    struct stage s;
    struct trace t;
    arena_init(&a, NULL);
    first_stage(r, &a, &s, &t);
    const uint64_t fp32 = UINT64_C(4) * 4096 * 32000 / 2;
    assert_int_equal(pieces_of(&t, "fp32 logits").largest, fp32);
    const struct pieces loss = pieces_of(&t, "loss_parallel");
    assert_int_equal(loss.n, 2);
    assert_int_equal(loss.largest, fp32);
    assert_true(loss.together);
    arena_release(&a);
    memplan_report_free(r);
}

/* Bytes of a name's births in the forward of the layer in the middle. */
static struct pieces forward_of(const char *name, const char *precision,
                                const char *compile, const char *tp)
{
    memplan_report *r =
        ESTIMATE("llama-2-7b", "gpus", "8", "framework", "torchtitan", "tp", tp,
                 "seq_len", "4096", "recompute", "full", "precision", precision,
                 "gpu", "h100-80gb", "compile", compile);
    struct arena a;
    struct stage s;
    struct trace t;
    arena_init(&a, NULL);
    first_stage(r, &a, &s, &t);
    struct pieces p = { 0 };
    for (size_t i = 0; i < t.n; i++) {
        const struct trace_event *e = &t.event[i];
        if (e->phase != PHASE_FORWARD || e->position != 16 || !e->birth
            || strcmp(e->name, name) != 0)
            continue;
        p.n++;
        p.sum += e->bytes;
    }
    arena_release(&a);
    memplan_report_free(r);
    return p;
}

/* A compiled layer casts what its products take where it is made: three
 * products' input, and the gate's. Their 16 bits are never written. */
static void test_made_in_8_bits(void **state)
{
    (void)state;
    const uint64_t gated = 4096 * 11008, normalised = 4096 * 4096;
    const struct {
        const char *precision, *compile;
        uint64_t each;
    } rows[] = { { "fp8-mixed", "true", 1 },
                 { "bf16-mixed", "true", 2 },
                 { "fp8-mixed", "false", 2 } };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct pieces g =
            forward_of("gated", rows[i].precision, rows[i].compile, "1");
        assert_int_equal(g.sum, rows[i].each * gated);
        const struct pieces n =
            forward_of("ffn_norm", rows[i].precision, rows[i].compile, "1");
        if (rows[i].compile[0] == 't')
            assert_int_equal(n.sum, rows[i].each * normalised);
    }
}

/* In one graph w2's part of the sum lies where wo's did, so does its copy in
 * order of ranks. */
static void test_scattered_in_one_place(void **state)
{
    (void)state;
    for (unsigned compiled = 0; compiled < 2; compiled++) {
        const char *compile = compiled ? "true" : "false";
        assert_int_equal(forward_of("wo", "bf16-mixed", compile, "2").n, 1);
        assert_int_equal(forward_of("w2", "bf16-mixed", compile, "2").n,
                         compiled ? 0 : 1);
        assert_int_equal(
            forward_of("ranks in order", "bf16-mixed", compile, "2").n,
            compiled ? 1 : 2);
    }
}

static void test_inventory(void **state)
{
    (void)state;
    memplan_report *r = ESTIMATE("gpt2", "gpus", "8", "zero", "3");
    struct text t = view(r, MEMPLAN_FORMAT_TABLE);
    assert_non_null(strstr(t.p, "gpt2: what is alive at the peak\n"));
    assert_non_null(strstr(t.p, "optimizer moments"));
    assert_non_null(strstr(t.p, "log-softmax"));
    free(t.p);
    memplan_report_free(r);
}

/* Made at the end of the first step, there all along in later ones. */
static void test_first_step(void **state)
{
    (void)state;
    memplan_report *r = ESTIMATE("gpt2", "gpus", "8", "framework", "fsdp");
    for (unsigned first = 0; first < 2; first++) {
        struct text t = { NULL, 0 };
        const memplan_style style = { .format = MEMPLAN_FORMAT_CSV };
        assert_int_equal(memplan_report_write(r,
                                              first ? MEMPLAN_VIEW_TRACE_FIRST
                                                    : MEMPLAN_VIEW_TRACE,
                                              &style, collect, &t, NULL),
                         MEMPLAN_OK);
        const char *moments = strstr(t.p, "optimizer moments");
        const char *forward = strstr(t.p, ",forward,");
        assert_non_null(moments);
        assert_non_null(forward);
        assert_true((moments > forward) == (first != 0));
        free(t.p);
    }
    memplan_report_free(r);
}

/* Zeroed in place they rest beside the weights, and are made by the first
 * backward. */
static void test_gradients_stay(void **state)
{
    (void)state;
    memplan_report *r =
        ESTIMATE("gpt2", "precision", "fp32", "zero_grad_set_to_none", "false");
    memplan_report *frees = ESTIMATE("gpt2", "precision", "fp32");
    struct arena a;
    struct memory_fold f;
    struct stage s;
    struct trace t;
    arena_init(&a, NULL);
    assert_int_equal(r->memory.stage[0].rest.bytes[TERM_GRADS],
                     r->memory.stage[0].rest.bytes[TERM_WEIGHTS]);
    assert_int_equal(frees->memory.stage[0].rest.bytes[TERM_GRADS], 0);
    assert_int_equal(r->memory.model_states, frees->memory.model_states);
    assert_true(memory_fold_init(&f, &r->program, &r->run, &a));
    stage_init(&s, &f, 0, 0);
    assert_true(trace_stage(&t, &f, &s, TRACE_FIRST, &a));
    bool back = false;
    for (size_t i = 0; i < t.n; i++) {
        back = back || t.event[i].phase == PHASE_BACKWARD;
        assert_true(back || t.event[i].component != COMP_GRADIENTS);
    }
    assert_int_equal(t.live, r->memory.stage[0].rest.total);
    assert_true(t.peak < r->memory.stage[0].peak.total);
    arena_release(&a);
    memplan_report_free(frees);
    memplan_report_free(r);
}

/* To the head's gradient of a tied table its own is added, in a third tensor
 * that stays where it was made; under autocast, in place. */
static void check_tied(const char *precision, bool apart)
{
    memplan_report *r = ESTIMATE("gpt2", "precision", precision, "clip_grad",
                                 "false", "optimizer_impl", "fused");
    const uint64_t words = UINT64_C(50257) * 768 * dtype_size(r->run.prec.grad);
    struct arena a;
    struct stage s;
    struct trace t;
    uint32_t alive[8], n = 0, sum = 0;
    arena_init(&a, NULL);
    first_stage(r, &a, &s, &t);
    for (size_t i = 0; i < t.n; i++) {
        const struct trace_event *e = &t.event[i];
        const bool sums = strcmp(e->name, "sum of tied gradients") == 0;
        if (e->component != COMP_GRADIENTS && !sums)
            continue;
        if (e->bytes != words && e->bytes != round_alloc(words))
            continue;
        if (e->phase == PHASE_REST) /* zero_grad */
            break;
        if (sums && e->birth)
            sum = n + 1;
        if (e->birth)
            alive[n++] = e->id;
        else
            for (uint32_t k = 0; k < n; k++)
                if (alive[k] == e->id)
                    alive[k] = alive[--n];
        assert_true(n < 8);
    }
    assert_int_equal(sum, apart ? 3 : 0); /* beside both */
    assert_int_equal(n, 1);
    arena_release(&a);
    memplan_report_free(r);
}

static void test_tied_sum_stays(void **state)
{
    (void)state;
    check_tied("bf16", true);
    check_tied("bf16-amp", false);
}

/* Version 2 of FSDP copies a unit out to a tensor a parameter; the root's
 * gradients stay where they were made until it is reduced. */
static void test_units(void **state)
{
    (void)state;
    memplan_report *r =
        ESTIMATE("llama-3.1-8b", "gpus", "8", "engine", "fsdp2", "fsdp_units",
                 "layers", "precision", "bf16-mixed");
    struct arena a;
    struct stage s;
    struct trace t;
    unsigned copied = 0, root = 0, heads = 0;
    arena_init(&a, NULL);
    first_stage(r, &a, &s, &t);
    for (size_t i = 0; i < t.n; i++) {
        const struct trace_event *e = &t.event[i];
        if (!e->birth)
            continue;
        if (e->phase == PHASE_FORWARD && e->position == 5)
            copied += strcmp(e->name, UNIT_LABEL) == 0;
        if (e->phase == PHASE_FORWARD && e->position == 0)
            root += strcmp(e->name, ROOT_LABEL) == 0;
        if (strcmp(e->name, ROOT_GRADS_LABEL) == 0)
            heads++;
    }
    assert_int_equal(copied, 9);
    assert_int_equal(root, 3);  /* words, norm, head */
    assert_int_equal(heads, 0); /* not made again */
    arena_release(&a);
    memplan_report_free(r);
}

/* FSDP 1's, that zero_grad does not reach: there up to the next forward, and
 * nowhere twice. */
static void test_flat_gradients_stay(void **state)
{
    (void)state;
    memplan_report *r = ESTIMATE("gpt2", "gpus", "8", "framework", "fsdp");
    memplan_report *frees = ESTIMATE("gpt2", "gpus", "8", "framework", "fsdp",
                                     "use_orig_params", "false");
    const struct stage_result *k = &r->memory.stage[0];
    const struct stage_result *less = &frees->memory.stage[0];
    struct arena a;
    struct memory_fold f;
    struct stage s;
    struct trace t;
    arena_init(&a, NULL);
    assert_int_equal(k->rest.bytes[TERM_GRAD_SHARDS],
                     k->rest.bytes[TERM_WEIGHTS]);
    assert_int_equal(k->rest.total - less->rest.total,
                     k->rest.bytes[TERM_GRAD_SHARDS]);
    assert_int_equal(k->peak.total, less->peak.total);
    assert_int_equal(r->memory.model_states, frees->memory.model_states);
    assert_true(memory_fold_init(&f, &r->program, &r->run, &a));
    stage_init(&s, &f, 0, 0);
    for (unsigned first = 0; first < 2; first++) {
        assert_true(
            trace_stage(&t, &f, &s, first ? TRACE_FIRST : TRACE_LATER, &a));
        uint64_t at_rest = 0, gone = 0;
        for (size_t i = 0; i < t.n; i++) {
            const struct trace_event *e = &t.event[i];
            if (strcmp(e->name, "gradient shards") != 0)
                continue;
            if (e->phase == PHASE_REST && e->birth)
                at_rest += e->bytes;
            if (e->phase == PHASE_FORWARD)
                gone += e->birth ? UINT64_MAX / 2 : e->bytes;
        }
        const uint64_t want = first ? 0 : k->rest.bytes[TERM_GRAD_SHARDS];
        assert_int_equal(at_rest, want);
        assert_int_equal(gone, want);
        assert_int_equal(t.live, k->rest.total);
    }
    arena_release(&a);
    memplan_report_free(frees);
    memplan_report_free(r);
}

/* Under FSDP 2 what a layer's reduction makes takes the place of its whole
 * gradients, but for the last parameter's: shards of half the layer, reduced in
 * 16 bits and cast to 32. */
static void test_reduced_after_copies(void **state)
{
    (void)state;
    memplan_report *r = ESTIMATE("llama-7b", "gpus", "2", "framework", "fsdp",
                                 "engine", "fsdp2", "reduce_dtype", "bf16");
    const uint64_t layer = 4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096;
    const uint64_t norm = 2 * 4096;
    struct arena a;
    struct stage s;
    struct trace t;
    arena_init(&a, NULL);
    first_stage(r, &a, &s, &t);
    uint64_t live = 0, copied = 0;
    unsigned seen = 0;
    for (size_t i = 0; i < t.n && seen == 0; i++) {
        const struct trace_event *e = &t.event[i];
        live = e->birth ? live + e->bytes : live - e->bytes;
        if (e->phase != PHASE_BACKWARD || !e->birth)
            continue;
        if (strcmp(e->name, "reduce-scatter input") == 0)
            copied = live;
        if (strcmp(e->name, "the same, cast") != 0)
            continue;
        assert_int_equal(live - copied,
                         layer / 2 * 2 + layer / 2 * 4 + norm - 2 * layer);
        seen++;
    }
    assert_int_equal(seen, 1);
    arena_release(&a);
    memplan_report_free(r);
}

/* torchtitan's chunks, each a root of its own: with as many micro-batches as
 * stages they are reduced one by one, so that the first chunk's turn, which is
 * last, finds that chunk's layers whole but for the one that is reduced, and the
 * head of the last chunk cut long ago. */
static void test_first_chunk_reduced_last(void **state)
{
    (void)state;
    static const char *const chunks[] = { "2", "3", "4", "7" };
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        memplan_report *r =
            ESTIMATE("qwen2.5-7b", "gpus", "16", "framework", "torchtitan",
                     "pp", "4", "tp", "4", "vpp", chunks[i], "grad_accum", "4");
        struct arena a;
        struct stage s;
        struct memory_fold f;
        struct moment m;
        arena_init(&a, NULL);
        assert_true(memory_fold_init(&f, &r->program, &r->run, &a));
        stage_init(&s, &f, 3, 0);
        assert_true(s.head);
        assert_true(moment_at(&m, &s, PHASE_REDUCE, 0, false));
        const uint64_t layer = s.states[stage_block(&s, 0)].bytes;
        const uint64_t in_chunk = stage_chunk_first(&s, 1);
        assert_int_equal(m.bytes[TERM_GATHERED], (in_chunk - 1) * layer);
        arena_release(&a);
        memplan_report_free(r);
    }
}

static bool made_again(const char *reentrant, const char *what)
{
    memplan_report *r =
        ESTIMATE("llama-7b", "gpus", "1", "recompute", "full",
                 "recompute_reentrant", reentrant, "precision", "bf16");
    struct arena a;
    struct stage s;
    struct trace t;
    arena_init(&a, NULL);
    first_stage(r, &a, &s, &t);
    bool made = false;
    for (size_t i = 0; i < t.n && !made; i++)
        made = t.event[i].birth && t.event[i].phase == PHASE_RECOMPUTE
               && strcmp(t.event[i].name, what) == 0;
    arena_release(&a);
    memplan_report_free(r);
    return made;
}

/* A checkpoint that is not reentrant ends when backward has what it needs: the
 * last product's input, not its result. */
static void test_recomputation_stops_early(void **state)
{
    (void)state;
    assert_true(made_again("false", "up_proj"));
    assert_false(made_again("false", "down_proj"));
    assert_true(made_again("true", "down_proj"));
}

static uint64_t step_bytes(const memplan_report *r)
{
    struct arena a;
    struct memory_fold f;
    struct stage s;
    struct moment m;
    arena_init(&a, NULL);
    assert_true(memory_fold_init(&f, &r->program, &r->run, &a));
    stage_init(&s, &f, 0, 0);
    assert_true(moment_with(&m, &s, PHASE_STEP, 0, true, NULL, COMP_COUNT));
    arena_release(&a);
    return m.bytes[TERM_STEP_TMP];
}

/* Adapters in fp32 beside modules in bf16: PEFT casts the former only, and
 * each has gradients, moments and a foreach list of its own type. */
static void test_modules_in_full(void **state)
{
    (void)state;
#define LORA                                                                   \
    "precision", "bf16", "lora_rank", "8", "lora_targets", "q,v",              \
        "lora_dtype", "fp32", "optimizer_impl"
    memplan_report *adapters = ESTIMATE("llama-7b", LORA, "foreach");
    memplan_report *both = ESTIMATE("llama-7b", LORA, "foreach",
                                    "lora_full_modules", "embed,head");
    memplan_report *old = ESTIMATE("llama-7b", LORA, "foreach-2.0",
                                   "lora_full_modules", "embed,head");
    memplan_report *loop =
        ESTIMATE("llama-7b", LORA, "loop", "lora_full_modules", "embed,head");
    memplan_report *ddp = ESTIMATE("llama-7b", LORA, "fused", "gpus", "8",
                                   "lora_full_modules", "embed,head");
    memplan_report *said =
        ESTIMATE("llama-7b", LORA, "foreach", "optimizer_dtype", "fp32",
                 "lora_full_modules", "embed,head");
    memplan_report *zero_0 = /* which flattens nothing either */
        ESTIMATE("llama-7b", "framework", "deepspeed", "zero", "0", "precision",
                 "fp32", "base_dtype", "bf16", "lora_rank", "8", "lora_targets",
                 "q,v", "lora_full_modules", "embed,head");
#undef LORA
    const uint64_t a = 32 * 2 * 8 * 2 * 4096 * 4; /* rank 8 of q and v, fp32 */
    const uint64_t one = 32000 * 4096 * 2;        /* a module, bf16 */
    const uint64_t *rest = both->memory.stage[0].rest.bytes;
    assert_int_equal(adapters->memory.stage[0].rest.bytes[TERM_WEIGHTS], a);
    assert_int_equal(rest[TERM_WEIGHTS], a + 2 * one);
    assert_int_equal(rest[TERM_MOMENTS], 2 * (a + 2 * one));
    assert_int_equal(step_bytes(adapters), a);
    assert_int_equal(step_bytes(both), a + 2 * one);
    assert_int_equal(step_bytes(old), a + 2 * one + 2 * one);
    assert_int_equal(step_bytes(loop), 2 * one);
    assert_int_equal(ddp->memory.stage[0].rest.bytes[TERM_BUCKETS],
                     a + 2 * one);
    rest = zero_0->memory.stage[0].rest.bytes;
    assert_int_equal(rest[TERM_WEIGHTS], a + 2 * one);
    assert_int_equal(rest[TERM_MOMENTS], 2 * (a + 2 * one));
    assert_int_equal(said->memory.stage[0].rest.bytes[TERM_MOMENTS],
                     2 * (a + 2 * 2 * one));
    memplan_report_free(adapters);
    memplan_report_free(both);
    memplan_report_free(old);
    memplan_report_free(loop);
    memplan_report_free(ddp);
    memplan_report_free(said);
    memplan_report_free(zero_0);
}

/* PyTorch 2.0's foreach keeps two lists, later ones one. */
static void test_foreach_lists(void **state)
{
    (void)state;
    memplan_report *now = ESTIMATE("gpt2", "optimizer_impl", "foreach");
    memplan_report *then = ESTIMATE("gpt2", "optimizer_impl", "foreach-2.0");
    assert_int_equal(step_bytes(then), 2 * step_bytes(now));
    memplan_report_free(now);
    memplan_report_free(then);
}

/* The last line's live bytes are what rests, the largest is the peak. */
static void test_timeline(void **state)
{
    (void)state;
    memplan_report *r = ESTIMATE("gpt2", "gpus", "8", "framework", "fsdp");
    struct text t = view(r, MEMPLAN_FORMAT_CSV);
    unsigned long long most = 0, last = 0;
    size_t lines = 0;
    for (char *line = t.p; *line != '\0';) {
        char *end = strstr(line, "\r\n");
        assert_non_null(end);
        *end = '\0';
        if (lines++ > 0) {
            last = strtoull(strrchr(line, ',') + 1, NULL, 10);
            most = last > most ? last : most;
        }
        line = end + 2;
    }
    assert_true(lines > 100);
    assert_int_equal(most, r->memory.peak);
    assert_int_equal(last, r->memory.steady);
    free(t.p);
    memplan_report_free(r);
}

static void test_trace_events(void **state)
{
    (void)state;
    memplan_report *r = ESTIMATE("gpt2-medium", "gpus", "8", "tp", "2", "pp",
                                 "2", "grad_accum", "4");
    struct text t = view(r, MEMPLAN_FORMAT_JSON);
    struct arena a;
    struct diag d;
    arena_init(&a, NULL);
    diag_init(&d, NULL);
    const struct json *root = json_parse(&a, t.p, t.n, &d);
    assert_non_null(root);
    const struct json *events = json_member(root, "traceEvents");
    assert_non_null(events);
    double most = 0;
    for (const struct json *e = events->child; e != NULL; e = e->next) {
        double sum = 0;
        if (strcmp(json_member(e, "ph")->text.p, "C") != 0)
            continue;
        const struct json *args = json_member(e, "args");
        for (const struct json *c = args->child; c != NULL; c = c->next)
            sum += c->number;
        most = sum > most ? sum : most;
    }
    assert_true(most == (double)r->memory.peak);
    arena_release(&a);
    free(t.p);
    memplan_report_free(r);
}

/* The top of the highest band is where the peak is, in whatever column. */
static void test_picture(void **state)
{
    (void)state;
    char bytes[UNIT_TEXT_MAX];
    memplan_report *r = ESTIMATE("gpt2-medium", "gpus", "8", "tp", "2", "pp",
                                 "2", "grad_accum", "4", "recompute", "full");
    r->spec.name = "a<b>&\"c\"\n";
    struct text t = view(r, MEMPLAN_FORMAT_SVG);
    assert_int_equal(strncmp(t.p, "<svg xmlns=", 11), 0);
    assert_string_equal(t.p + t.n - 7, "</svg>\n");
    assert_non_null(strstr(t.p, "a&lt;b&gt;&amp;&quot;c&quot;: memory over"));
    assert_non_null(strstr(t.p, unit_format_bytes(bytes, r->memory.peak)));
    assert_non_null(strstr(t.p, ">recompute</text>"));
    const char *band = t.p, *circle = strstr(t.p, "<circle");
    unsigned bands = 0;
    for (; (band = strstr(band, "</title></path>")) != NULL; band++)
        bands++;
    assert_int_equal(bands, COMP_COUNT);
    unsigned long y = strtoul(strstr(circle, "cy=\"") + 4, NULL, 10);
    char at[UNIT_TEXT_MAX];
    snprintf(at, sizeof(at), "V%luH", y);
    assert_non_null(strstr(t.p, at));
    free(t.p);
    memplan_report_free(r);
}

static void test_only_a_trace_has_a_picture(void **state)
{
    (void)state;
    const memplan_style svg = { MEMPLAN_FORMAT_SVG, false, 0 };
    memplan_error slot[1];
    memplan_errors errs = { slot, 1, 0 };
    struct text t = { NULL, 0 };
    memplan_report *r = ESTIMATE("gpt2", "gpus", "1");
    assert_int_equal(
        memplan_report_write(r, MEMPLAN_VIEW_SUMMARY, &svg, collect, &t, &errs),
        MEMPLAN_E_ARG);
    assert_non_null(strstr(slot[0].message, "only a trace has a picture"));
    assert_int_equal(
        memplan_report_write(r, MEMPLAN_VIEW_EXPLAIN, &svg, collect, &t, NULL),
        MEMPLAN_E_ARG);
    assert_int_equal(memplan_gpus_write(NULL, &svg, collect, &t, NULL),
                     MEMPLAN_E_ARG);
    assert_int_equal(memplan_models_write(&svg, collect, &t, NULL, NULL),
                     MEMPLAN_E_ARG);
    assert_int_equal(t.n, 0);
    memplan_report_free(r);
}

static void test_refusals(void **state)
{
    (void)state;
    memplan_error slot[1];
    memplan_errors errs = { slot, 1, 0 };
    struct text t = { NULL, 0 };
    memplan_report *r = NULL;
    memplan_setup *setup = NULL;
    assert_int_equal(memplan_setup_new(&setup, NULL, NULL), MEMPLAN_OK);
    assert_int_equal(memplan_setup_set(setup, "params", "1B", NULL),
                     MEMPLAN_OK);
    assert_int_equal(memplan_compute(&r, NULL, setup, NULL, NULL), MEMPLAN_OK);
    errs.count = 0;
    assert_int_equal(
        memplan_report_write(r, MEMPLAN_VIEW_TRACE, NULL, collect, &t, &errs),
        MEMPLAN_E_ARG);
    assert_non_null(strstr(slot[0].message, "only an estimate"));
    memplan_report_free(r);
    memplan_setup_free(setup);
    assert_int_equal(t.n, 0);
}

struct failing {
    long left;
};

static void *failing_resize(void *ctx, void *p, size_t old, size_t size)
{
    struct failing *f = ctx;
    (void)old;
    if (size == 0) {
        free(p);
        return NULL;
    }
    return f->left-- > 0 ? realloc(p, size) : NULL;
}

static void test_memory_runs_out(void **state)
{
    (void)state;
    memplan_report *r = ESTIMATE("gpt2", "gpus", "8", "zero", "3");
    memplan_status st = MEMPLAN_E_NOMEM;
    long n = 0;
    for (; n < 1000 && st != MEMPLAN_OK; n++) {
        struct failing f = { n };
        const memplan_allocator kept = r->arena.alloc;
        struct text t = { NULL, 0 };
        r->arena.alloc = (memplan_allocator){ failing_resize, &f };
        st = memplan_report_write(r, MEMPLAN_VIEW_TRACE, NULL, collect, &t,
                                  NULL);
        r->arena.alloc = kept;
        free(t.p);
        assert_true(st == MEMPLAN_OK || st == MEMPLAN_E_NOMEM);
    }
    assert_int_equal(st, MEMPLAN_OK);
    assert_true(n > 2);
    memplan_report_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_births_and_deaths),
        cmocka_unit_test(test_partial_sums),
        cmocka_unit_test(test_rare_peaks),
        cmocka_unit_test(test_fork_buckets),
        cmocka_unit_test(test_fork_small_buckets),
        cmocka_unit_test(test_fork_accumulates),
        cmocka_unit_test(test_parallel_loss_pieces),
        cmocka_unit_test(test_made_in_8_bits),
        cmocka_unit_test(test_scattered_in_one_place),
        cmocka_unit_test(test_inventory),
        cmocka_unit_test(test_first_step),
        cmocka_unit_test(test_gradients_stay),
        cmocka_unit_test(test_tied_sum_stays),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_flat_gradients_stay),
        cmocka_unit_test(test_reduced_after_copies),
        cmocka_unit_test(test_first_chunk_reduced_last),
        cmocka_unit_test(test_recomputation_stops_early),
        cmocka_unit_test(test_modules_in_full),
        cmocka_unit_test(test_foreach_lists),
        cmocka_unit_test(test_timeline),
        cmocka_unit_test(test_trace_events),
        cmocka_unit_test(test_picture),
        cmocka_unit_test(test_only_a_trace_has_a_picture),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
