/*
 * Tests of the lowerings that other people's formulas describe: the paper,
 * Megatron-core, torchtitan; of the save rules under them; of parameters,
 * FLOPs, adapters, and of what happens when numbers or memory run out.
 */
#include "fold/walk.h"
#include "ir/program.h"
#include "lower/build.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- models and runs, by hand ---- */

static struct spec model(uint64_t layers, uint64_t hidden, uint64_t heads,
                         uint64_t kv_heads, uint64_t ffn, uint64_t vocab)
{
    return (struct spec){ .name = "",
                          .source = "",
                          .model_type = "decoder",
                          .family = FAM_DECODER,
                          .layers = layers,
                          .hidden = hidden,
                          .heads = heads,
                          .kv_heads = kv_heads,
                          .head_dim = hidden / heads,
                          .ffn = ffn,
                          .vocab = vocab,
                          .final_norm = true,
                          .embed_dim = hidden,
                          .rotary_dim = hidden / heads,
                          .logit_scale = 1 };
}

static struct spec llama(uint64_t layers, uint64_t hidden, uint64_t heads,
                         uint64_t kv_heads, uint64_t ffn, uint64_t vocab)
{
    struct spec m = model(layers, hidden, heads, kv_heads, ffn, vocab);
    m.norm = NORM_RMS;
    m.gated_mlp = true;
    m.act = ACT_SILU;
    m.position = POS_ROPE;
    return m;
}

static struct spec gpt(uint64_t layers, uint64_t hidden, uint64_t heads,
                       uint64_t vocab, uint64_t positions)
{
    struct spec m = model(layers, hidden, heads, heads, 4 * hidden, vocab);
    m.norm = NORM_LAYER;
    m.act = ACT_GELU;
    m.position = POS_LEARNED;
    m.learned_positions = positions;
    m.tied = true;
    m.q_bias = m.k_bias = m.v_bias = m.o_bias = m.mlp_bias = true;
    return m;
}

static struct spec mixtral_8x7b(void)
{
    struct spec m = llama(32, 4096, 32, 8, 14336, 32000);
    m.experts = 8;
    m.experts_per_token = 2;
    m.expert_ffn = 14336;
    return m;
}

static struct run run_of(enum implementation impl, const struct spec *m,
                         uint64_t micro, uint64_t seq)
{
    struct run r = { .impl = impl };
    r.tp = r.cp = r.ep = r.etp = r.pp = r.vpp = r.dp = 1;
    r.micro_batch = micro;
    r.seq_len = seq;
    r.vocab = m->vocab;
    r.attention = ATTN_FLASH;
    r.norm_kernel = impl == IMPL_TORCHTITAN ? NORM_FUSED : NORM_EAGER;
    r.prec = (struct precision_bytes){ .param = DT_BF16,
                                       .compute = DT_BF16,
                                       .grad = DT_BF16,
                                       .reduce = DT_BF16,
                                       .master = DT_NONE,
                                       .optim = DT_BF16 };
    r.lora_dtype = r.base_dtype = DT_BF16;
    return r;
}

struct lowered {
    struct program p;
    struct arena arena;
    struct diag diag;
};

static void lower(struct lowered *l, const struct spec *m, const struct run *r)
{
    arena_init(&l->arena, NULL);
    diag_init(&l->diag, NULL);
    assert_int_equal(lower_model(&l->p, m, r, &l->arena, &l->diag), MEMPLAN_OK);
}

/* ---- what is kept ---- */

static bool made_in_region(const struct program *p, const struct block *b,
                           tensor_id storage, unsigned region)
{
    for (uint32_t k = 0; k < b->op_count; k++) {
        const struct op *op = &p->op[b->op_first + k];
        for (unsigned i = 0; i < op->n_out; i++)
            if (op->out[i] == storage)
                return op->region == region;
    }
    return false;
}

/* Bytes of the distinct activations that the block's operations keep, those
 * made and kept in `region` left out (0: none is). */
static uint64_t kept(const struct program *p, const struct block *b,
                     unsigned region)
{
    bool *seen = calloc(p->n_tensors, sizeof(*seen));
    assert_non_null(seen);
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < b->op_count; k++) {
        const struct op *op = &p->op[b->op_first + k];
        tensor_id saved[SAVED_MAX];
        const size_t n = op_saves(p, op, saved);
        assert_true(n <= SAVED_MAX);
        for (size_t i = 0; i < n; i++) {
            const tensor_id root = p->tensor[saved[i]].storage;
            assert_int_equal(p->tensor[root].storage, root);
            if (seen[root] || p->tensor[root].role != ROLE_ACTIVATION)
                continue;
            if (region != 0 && op->region == region
                && made_in_region(p, b, root, region))
                continue;
            seen[root] = true;
            bytes += p->tensor[root].bytes;
        }
    }
    free(seen);
    return bytes;
}

static const struct block *first_layer(const struct program *p)
{
    return &p->block[p->layer_block[0]];
}

static uint64_t kept_layer(const struct spec *m, const struct run *r)
{
    struct lowered l;
    lower(&l, m, r);
    const uint64_t bytes = kept(&l.p, first_layer(&l.p), 0);
    arena_release(&l.arena);
    return bytes;
}

/* ---- Korthikanti et al. ---- */

struct paper_case {
    uint64_t layers, hidden, heads, micro;
};

/* Table 3 of the paper. */
static const struct paper_case paper_cases[] = {
    { 48, 6144, 64, 4 },    /* 22B */
    { 96, 12288, 96, 1 },   /* 175B */
    { 105, 20480, 128, 1 }, /* 530B */
    { 128, 25600, 160, 1 }  /* 1T */
};

static void check_paper(const struct paper_case *c, uint64_t t, bool sp)
{
    enum { S = 2048, V = 51200 };
    const struct spec m = gpt(c->layers, c->hidden, c->heads, V, S);
    struct run r = run_of(IMPL_PAPER, &m, c->micro, S);
    r.tp = t;
    r.sequence_parallel = sp;
    struct lowered l;
    lower(&l, &m, &r);
    const struct block *b = first_layer(&l.p);

    const uint64_t sbh = S * c->micro * c->hidden;
    const uint64_t scores = 5 * c->heads * S * S * c->micro / t;
    const uint64_t linear = sp ? 34 * sbh / t : 10 * sbh + 24 * sbh / t;
    assert_int_equal(kept(&l.p, b, 0), linear + scores);
    assert_int_equal(kept(&l.p, b, 1 + REMOD_CORE_ATTN), linear);
    assert_int_equal(l.p.tensor[b->input].bytes, 2 * sbh / (sp ? t : 1));

    const uint64_t u = sp ? t : 1;
    assert_int_equal(kept(&l.p, &l.p.block[l.p.embed], 0), sbh / u);
    assert_int_equal(kept(&l.p, &l.p.block[l.p.head], 0),
                     4 * sbh / u + 4 * S * c->micro * V / t);
    arena_release(&l.arena);
}

static void test_paper(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(paper_cases) / sizeof(*paper_cases); i++) {
        check_paper(&paper_cases[i], 1, false);
        check_paper(&paper_cases[i], 8, false);
        check_paper(&paper_cases[i], 8, true);
    }
}

static void test_paper_refuses_experts(void **state)
{
    (void)state;
    const struct spec m = mixtral_8x7b();
    const struct run r = run_of(IMPL_PAPER, &m, 1, 128);
    struct program p;
    struct arena a;
    struct diag d;
    arena_init(&a, NULL);
    diag_init(&d, NULL);
    assert_int_equal(lower_model(&p, &m, &r, &a, &d), MEMPLAN_E_UNSUPPORTED);
    arena_release(&a);
}

/* ---- Megatron-core ---- */

struct shape_case {
    uint64_t hidden, heads, kv, ffn, micro, seq, tp, cp;
    bool sp;
};

static const struct shape_case shape_cases[] = {
    { 4096, 32, 32, 11008, 1, 4096, 1, 1, false },
    { 4096, 32, 8, 14336, 2, 8192, 1, 1, false },
    { 4096, 32, 8, 14336, 2, 8192, 4, 1, false },
    { 4096, 32, 8, 14336, 2, 8192, 8, 1, true },
    { 8192, 64, 8, 28672, 1, 8192, 8, 2, true },
    { 2048, 16, 2, 5632, 3, 512, 8, 1, true }, /* fewer kv heads than ranks */
    { 5120, 40, 40, 13824, 1, 2048, 8, 4, true }
};
enum { SHAPE_CASES = sizeof(shape_cases) / sizeof(shape_cases[0]) };

struct sizes {
    uint64_t T, h, A, K, f, a, u, t, s, b;
};

static struct sizes sizes_of(const struct shape_case *c)
{
    const uint64_t d = c->hidden / c->heads;
    return (struct sizes){ .T = c->micro * c->seq / c->cp,
                           .h = c->hidden,
                           .A = c->hidden / c->tp,
                           .K = (c->kv < c->tp ? 1 : c->kv / c->tp) * d,
                           .f = c->ffn / c->tp,
                           .a = c->heads / c->tp,
                           .u = c->sp ? c->tp : 1,
                           .t = c->tp,
                           .s = c->seq,
                           .b = c->micro };
}

static struct run run_case(enum implementation impl, const struct spec *m,
                           const struct shape_case *c)
{
    struct run r = run_of(impl, m, c->micro, c->seq);
    r.tp = c->tp;
    r.cp = c->cp;
    r.sequence_parallel = c->sp;
    return r;
}

enum { RNG = 16 }; /* two int64 of random state, a flash call */

static void test_megatron_gated(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPE_CASES; i++) {
        const struct shape_case *c = &shape_cases[i];
        const struct spec m =
            llama(2, c->hidden, c->heads, c->kv, c->ffn, 32000);
        struct run r = run_case(IMPL_MEGATRON, &m, c);
        const struct sizes z = sizes_of(c);
        const uint64_t want = z.T * (8 * z.h + 8) / z.u
                              + z.T * (4 * z.A + 4 * z.K + 6 * z.f + 4 * z.a)
                              + RNG;
        assert_int_equal(kept_layer(&m, &r), want);

        r.gpu.arch = ARCH_AMPERE; /* flash-attn copies the context */
        assert_int_equal(kept_layer(&m, &r),
                         want + (c->micro > 1 ? 2 * z.T * z.A : 0));
    }
}

static void test_megatron_gpt(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPE_CASES; i++) {
        const struct shape_case *c = &shape_cases[i];
        struct spec m = gpt(2, c->hidden, c->heads, 51200, 8192);
        m.ffn = c->ffn;
        m.kv_heads = c->kv;
        struct run r = run_case(IMPL_MEGATRON, &m, c);
        const struct sizes z = sizes_of(c);
        const uint64_t want = z.T * (8 * z.h + 16) / z.u
                              + z.T * (4 * z.A + 4 * z.K + 4 * z.f + 4 * z.a)
                              + RNG;
        assert_int_equal(kept_layer(&m, &r), want);
        r.hidden_dropout = 0.1;
        assert_int_equal(kept_layer(&m, &r), want + 2 * z.T * z.h / z.u);
        r.hidden_dropout = 0;

        /* not fused: q, k, v repeated, softmax, context */
        r.attention = ATTN_EAGER;
        const uint64_t scores = z.a * z.s * (z.s / c->cp) * z.b;
        const uint64_t eager =
            z.T * (8 * z.h + 16) / z.u + z.T * (8 * z.A + 4 * z.f) + 2 * scores;
        assert_int_equal(kept_layer(&m, &r), eager);
        r.attention_dropout = 0.1;
        assert_int_equal(kept_layer(&m, &r), eager + 3 * scores);
    }
}

static struct spec gpt_of_case(const struct shape_case *c)
{
    struct spec m = gpt(2, c->hidden, c->heads, 51200, 8192);
    m.ffn = c->ffn;
    m.kv_heads = c->kv;
    return m;
}

/* At most 4096 keys, and matrices in fours. */
static bool has_softmax_kernel(const struct shape_case *c)
{
    return c->seq <= 4096 && c->micro * c->heads / c->tp % 4 == 0;
}

/* The one product of q, k, v, or copies of grouped heads, and that product with
 * queries of one group, which stay a view of it; beside the softmax
 * in fp32, where no kernel makes it, its cast. */
static void test_megatron_local(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2 * SHAPE_CASES; k++) {
        const struct shape_case *c = &shape_cases[k / 2];
        const struct spec m = gpt_of_case(c);
        struct run r = run_case(IMPL_MEGATRON_LOCAL, &m, c);
        if (r.cp > 1)
            continue;
        r.attention = ATTN_EAGER;
        r.softmax_fp32 = k % 2 == 1;
        const struct sizes z = sizes_of(c);
        const uint64_t scores = z.a * z.s * z.s * z.b;
        const bool narrow = has_softmax_kernel(c) || !r.softmax_fp32;
        const uint64_t want =
            z.T * (8 * z.h + 16) / z.u + z.T * (8 * z.A + 4 * z.f)
            + (z.K == z.A / z.a && z.a > 1 ? 4 * z.T * z.K : 0)
            + (narrow ? 2 : 6) * scores;
        assert_int_equal(kept_layer(&m, &r), want);
        /* the mask; what is dropped takes the place of the cast */
        const uint64_t dropped = (narrow ? 3 : 1) * scores;
        r.attention_dropout = 0.1;
        assert_int_equal(kept_layer(&m, &r), want + dropped);
        r.hidden_dropout = 0.1;
        assert_int_equal(kept_layer(&m, &r),
                         want + dropped + 2 * z.T * z.h / z.u);
        /* no kernel anywhere */
        const uint64_t before = kept_layer(&m, &r);
        r.plain_softmax = true;
        const bool widens = has_softmax_kernel(c) && r.softmax_fp32;
        assert_int_equal(kept_layer(&m, &r),
                         before + (widens ? 2 : 0) * scores);
    }
}

/* What Megatron-core keeps between steps for scores and gathered sequences. */
static void test_megatron_local_global_buffer(void **state)
{
    (void)state;
    const struct spec m = gpt(2, 1024, 16, 51200, 8192);
    struct run r = run_of(IMPL_MEGATRON_LOCAL, &m, 2, 512);
    struct lowered l;
    r.attention = ATTN_EAGER;
    lower(&l, &m, &r);
    assert_int_equal(first_layer(&l.p)->global_buffer_bytes,
                     2 * 2 * 16 * 512 * 512);
    arena_release(&l.arena);
    r.framework = FW_MEGATRON_DEEPSPEED;
    lower(&l, &m, &r);
    assert_int_equal(first_layer(&l.p)->global_buffer_bytes, 0);
    arena_release(&l.arena);
}

/* Beside an 8-bit copy of [rows, width], tiles down the columns. */
static uint64_t scales_of(enum fp8_recipe recipe, uint64_t rows, uint64_t width)
{
    if (recipe == FP8_DELAYED || recipe == FP8_TENSORWISE)
        return 4;
    if (recipe == FP8_MXFP8 || recipe == FP8_NVFP4) {
        const uint64_t tile = recipe == FP8_MXFP8 ? 32 : 16;
        return div_up(div_up(rows, tile), 4) * 4 * (div_up(width, 128) * 128);
    }
    return div_up(rows, 128) * (div_up(width, 4) * 4) * 4;
}

static uint64_t fp8_layer(const struct sizes *z, enum fp8_recipe recipe)
{
    const uint64_t shard = z->T / z->u;
    /* norms' inputs 2h twice and statistics, their results 1h twice; q, k, v,
       the context 2A and the kernel's; SwiGLU's input 4f, fc2's 1f */
    uint64_t bytes = shard * (6 * z->h + 8) + 2 * scales_of(recipe, shard, z->h)
                     + z->T * (4 * z->A + 4 * z->K + 4 * z->a) + RNG;
    if (recipe == FP8_NVFP4) /* half of that of each copy, not of 4f */
        return bytes - shard * z->h + z->T * (4 * z->f + z->f / 2)
               + scales_of(recipe, z->T, z->f);
    if (recipe == FP8_DEEPSEEK) /* 12 bits in place of 16; 2f and no more */
        return bytes - z->T * z->A / 2 + scales_of(recipe, z->T, z->A)
               + z->T * 2 * z->f + scales_of(recipe, z->T, 2 * z->f);
    if (recipe == FP8_DELAYED) /* the others save the context as it came */
        bytes += z->T * z->A + 4;
    return bytes + z->T * 5 * z->f + scales_of(recipe, z->T, z->f);
}

/* Linears keep their inputs in one byte, with scales (Transformer Engine's
 * tensors: inner_tensor_specs). */
static void test_megatron_fp8(void **state)
{
    (void)state;
    static const enum fp8_recipe recipes[] = { FP8_DELAYED,   FP8_TENSORWISE,
                                               FP8_BLOCKWISE, FP8_MXFP8,
                                               FP8_DEEPSEEK,  FP8_NVFP4 };
    const size_t n = sizeof recipes / sizeof recipes[0];
    for (size_t i = 0; i < SHAPE_CASES * n; i++) {
        const struct shape_case *c = &shape_cases[i % SHAPE_CASES];
        const struct spec m =
            llama(2, c->hidden, c->heads, c->kv, c->ffn, 32000);
        struct run r = run_case(IMPL_MEGATRON, &m, c);
        r.prec.fp8 = true;
        r.fp8_recipe = recipes[i / SHAPE_CASES];
        r.act_fp8 = r.fp8_recipe == FP8_DEEPSEEK;
        const struct sizes z = sizes_of(c);
        assert_int_equal(kept_layer(&m, &r), fp8_layer(&z, r.fp8_recipe));
        if (r.act_fp8 || r.fp8_recipe == FP8_NVFP4)
            continue;
        r.act_fp8 = true; /* cast without scales: 2f for 4f */
        assert_int_equal(kept_layer(&m, &r),
                         fp8_layer(&z, r.fp8_recipe) - z.T * 2 * z.f);
    }
}

/* Of one layer of DeepSeek-V3, what the report says is cached. */
static void test_deepseek_fp8(void **state)
{
    (void)state;
    enum { T = 4096, H = 7168, RQ = 1536, LATENT = 576, HEADS = 128, K = 8 };
    enum { O = HEADS * 128, F = 2048, E = 256, HERE = 4 };
    struct spec m = llama(1, H, HEADS, HEADS, 18432, 129280);
    m.q_rank = RQ;
    m.kv_rank = 512;
    m.nope_dim = m.v_dim = 128;
    m.rope_dim = 64;
    m.head_dim = 192;
    m.latent_norm = true;
    m.experts = E;
    m.experts_per_token = K;
    m.expert_ffn = m.shared_ffn = F;
    struct run r = run_of(IMPL_MEGATRON, &m, 1, T);
    r.gpu.arch = ARCH_HOPPER;
    r.ep = E / HERE;
    r.prec.fp8 = r.act_fp8 = true;
    r.fp8_recipe = FP8_DEEPSEEK;
    r.grouped_gemm = true;
    r.recompute = RECOMP_SELECTIVE;
    r.recompute_modules =
        1u << REMOD_LAYERNORM | 1u << REMOD_MLA_UP_PROJ | 1u << REMOD_MOE_ACT;
    struct lowered l;
    lower(&l, &m, &r);
    struct walk_scratch scratch = { .bare = false };
    struct block_walk w;
    assert_true(walk_scratch_init(&scratch, &l.p, &l.arena));
    walk_block(&w, &l.p, first_layer(&l.p), run_regions(&r), 0, &scratch);
    const uint64_t attention = 2 * T * H + T * 2 * (RQ + LATENT) + T * O * 3 / 2
                               + T / 128 * O * 4 + T * HEADS * 4;
    const uint64_t shared = T * 2 * F + T / 128 * 2 * F * 4;
    const uint64_t routed = T * K * (H + 2 * F) + T * K / 128 * (H + 2 * F) * 4
                            + T * K * 2; /* and their weights */
    /* indices, softmax, rows, probabilities and map by expert; statistics and random states, 512 each, are made
       again or small */
    const uint64_t router = 2 * T * H + T * K * (8 + 4 + 8) + T * E * 3;
    assert_in_range(w.kept, attention + shared + routed + router,
                    attention + shared + routed + router + 4 * 512);
    arena_release(&l.arena);
}

static void test_megatron_moe(void **state)
{
    (void)state;
    const struct spec m = mixtral_8x7b();
    struct run r = run_of(IMPL_MEGATRON, &m, 1, 4096);
    r.grouped_gemm = true;
    const uint64_t T = 4096, h = 4096, K = 1024, f = 14336, k = 2, a = 32;
    const uint64_t dense = T * (8 * h + 8) + T * (4 * h + 4 * K + 4 * a) + RNG;
    const uint64_t routed = T * k * (2 * h + 6 * f + 2);
    /* indices, softmax, rows; probabilities and map by expert */
    const uint64_t maps = T * k * (8 + 4 + 8) + T * 8 * (2 + 1);
    assert_int_equal(kept_layer(&m, &r), dense + maps + routed);
    r.ep = 4; /* balanced: as many tokens come as go */
    assert_int_equal(kept_layer(&m, &r), dense + maps + routed);
    r.tp = 4;
    r.sequence_parallel = true;
    assert_int_equal(kept_layer(&m, &r), T * (8 * h + 8) / 4
                                             + T * (4 * h + 4 * K + 4 * a) / 4
                                             + RNG + maps / 4 + routed / 4);
    r.etp = 4; /* all tokens of the group, a quarter of each expert */
    assert_int_equal(kept_layer(&m, &r),
                     T * (8 * h + 8) / 4 + T * (4 * h + 4 * K + 4 * a) / 4 + RNG
                         + maps / 4 + T * k * (2 * h + 6 * f / 4 + 2));
    r.tp = r.etp = r.ep = 1; /* one map, and one of chunks */
    r.sequence_parallel = false;
    r.moe_permute_fusion = true;
    assert_int_equal(kept_layer(&m, &r), dense + T * k * (8 + 4)
                                             + T * 4 * (2 * 8 + 1)
                                             + 2 * T * k * 4 + routed);
}

/* ---- latent attention, prediction modules ---- */

static struct spec latent(void)
{
    struct spec m = llama(4, 1024, 16, 16, 2816, 32000);
    m.q_rank = 384;
    m.kv_rank = 128;
    m.nope_dim = 64;
    m.rope_dim = 32;
    m.v_dim = 48;
    m.head_dim = 96;
    m.latent_norm = true;
    return m;
}

/* [docs/method.md eq. latent], and the gated MLP's part of eq. megatron */
static void test_megatron_latent(void **state)
{
    (void)state;
    enum { T = 2 * 512, H = 1024, F = 2816, RQ = 384, RKV = 128, DR = 32 };
    enum { HEADS = 16, A = HEADS * 96, O = HEADS * 48 };
    struct spec m = latent();
    for (uint64_t tp = 1; tp <= 4; tp *= 4) {
        struct run r = run_of(IMPL_MEGATRON, &m, 2, 512);
        r.gpu.arch = ARCH_HOPPER;
        r.tp = tp;
        r.sequence_parallel = tp > 1;
        r.rope_fusion = tp > 1;
        const uint64_t compressed = 4 * RQ + 4 + 2 * (RKV + DR) + 2 * RKV + 4;
        const uint64_t attention = 4 * A + 4 * O + 4 * HEADS;
        /* cosines and sines, of tables where the kernel is one */
        const uint64_t turns = r.rope_fusion ? 0 : 512 * 8 * DR;
        assert_int_equal(kept_layer(&m, &r), T * (8 * H + 8 + compressed) / tp
                                                 + T * (attention + 6 * F) / tp
                                                 + turns + RNG);
    }
}

/* At rest: tables of its own in every latent layer; the output layer's gather
 * buffer on the stage that has it. */
static void test_megatron_latent_rest(void **state)
{
    (void)state;
    enum { T = 2 * 512, S = 512, H = 1024, DR = 32 };
    struct spec m = latent();
    struct run r = run_of(IMPL_MEGATRON, &m, 2, S);
    r.tp = 4;
    r.sequence_parallel = true;
    struct lowered l;
    lower(&l, &m, &r);
    const struct block *b = first_layer(&l.p);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < b->tensor_count; i++) {
        const struct tensor *t = &l.p.tensor[b->tensor_first + i];
        bytes += t->role == ROLE_BUFFER ? t->bytes : 0;
    }
    assert_int_equal(bytes, 2 * 4096 * DR * 2 + S * DR * 4);
    assert_int_equal(b->global_buffer_bytes, 0);
    assert_int_equal(l.p.block[l.p.head].global_buffer_bytes, 2 * T * H);
    arena_release(&l.arena);
}

/* Queries from the hidden states, no norms on what is compressed. */
static void test_megatron_latent_plain(void **state)
{
    (void)state;
    enum { T = 512, H = 1024, F = 2816, RKV = 128, DR = 32 };
    enum { HEADS = 16, A = HEADS * 96, O = HEADS * 48 };
    struct spec m = latent();
    m.q_rank = 0;
    m.latent_norm = false;
    struct run r = run_of(IMPL_MEGATRON, &m, 1, 512);
    r.gpu.arch = ARCH_HOPPER;
    assert_int_equal(
        kept_layer(&m, &r),
        T * (8 * H + 8 + 2 * (RKV + DR) + 4 * A + 4 * O + 4 * HEADS + 6 * F)
            + 512 * 8 * DR + RNG);
}

static uint64_t params_of(const struct program *p, const struct block *b,
                          bool tied)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < b->tensor_count; i++) {
        const struct tensor *t = &p->tensor[b->tensor_first + i];
        n += t->role == ROLE_PARAM && t->tied == tied ? t->full_elems : 0;
    }
    return n;
}

/* A module is a layer, a product of twice the width, three norms; it shares
 * the embedding and the head. */
static void test_megatron_mtp(void **state)
{
    (void)state;
    enum { H = 1024, V = 32000, T = 512 };
    struct spec m = latent();
    m.mtp_layers = 2;
    const struct run r = run_of(IMPL_MEGATRON, &m, 1, T);
    struct lowered l;
    lower(&l, &m, &r);
    const struct block *head = &l.p.block[l.p.head];
    const uint64_t layer = params_of(&l.p, first_layer(&l.p), false);
    assert_int_equal(params_of(&l.p, head, true), V * H);
    assert_int_equal(params_of(&l.p, head, false),
                     V * H + H + 2 * (layer + 2 * H * H + 3 * H));
    arena_release(&l.arena);
    /* more: two layers, what they are made of, and two losses */
    m.mtp_layers = 0;
    lower(&l, &m, &r);
    const uint64_t plain = kept(&l.p, &l.p.block[l.p.head], 0);
    const uint64_t one = kept(&l.p, first_layer(&l.p), 0);
    arena_release(&l.arena);
    m.mtp_layers = 2;
    lower(&l, &m, &r);
    /* each: words, rolled ids, three norms' statistics, the joined, the last
       layer's result; fp32 logits, mask and target of the loss. Once: all
       hidden states in one tensor, and what the second module starts from */
    const uint64_t each =
        one + T * (2 * H + 8 + 12 + 4 * H + 2 * H) + T * (4 * V + 1 + 8);
    assert_int_equal(kept(&l.p, &l.p.block[l.p.head], 0),
                     plain + 2 * each + T * 2 * H * (3 + 1));
    arena_release(&l.arena);
}

/* Whole layers are checkpointed: so is a module, to its last norm. */
static void test_megatron_mtp_checkpoint(void **state)
{
    (void)state;
    struct spec m = latent();
    m.mtp_layers = 1;
    for (unsigned full = 0; full < 2; full++) {
        struct run r = run_of(IMPL_MEGATRON, &m, 1, 512);
        r.recompute = full ? RECOMP_FULL : RECOMP_NONE;
        struct lowered l;
        lower(&l, &m, &r);
        const struct block *b = &l.p.block[l.p.head];
        unsigned inside = 0, products = 0;
        for (uint32_t i = 0; i < b->op_count; i++) {
            const struct op *op = &l.p.op[b->op_first + i];
            inside += op->region == REGION_LAYER;
            products += op->kind == OP_LINEAR && op->region == REGION_LAYER;
        }
        /* eh_proj, five of attention, two of the mlp; no output layer */
        assert_int_equal(products, full ? 8 : 0);
        assert_true(full ? inside > products : inside == 0);
        arena_release(&l.arena);
    }
}

static void test_megatron_head(void **state)
{
    (void)state;
    const struct spec m = llama(2, 4096, 32, 8, 14336, 128256);
    struct run r = run_of(IMPL_MEGATRON, &m, 2, 4096);
    r.tp = 4;
    r.sequence_parallel = true;
    struct lowered l;
    lower(&l, &m, &r);
    const uint64_t T = 8192, h = 4096, V = 128256;
    assert_int_equal(kept(&l.p, &l.p.block[l.p.head], 0),
                     T * (4 * h + 4) / 4 + 4 * T * V / 4 + T + 8 * T);
    /* which words are here, and where */
    assert_int_equal(kept(&l.p, &l.p.block[l.p.embed], 0), T * (8 + 1));
    arena_release(&l.arena);
}

/* Megatron's BERT: a GPT's layers, norms first, whatever the file's family
 * has; a product, gelu and norm before the words; the pair of sentences. */
static void test_megatron_bert(void **state)
{
    (void)state;
    enum { B = 2, S = 128, T = B * S, LAYER_H = 256, WORDS = 1024 };
    struct spec m = gpt(2, LAYER_H, 4, WORDS, 512);
    struct run r = run_of(IMPL_MEGATRON, &m, B, S);
    r.gpu.arch = ARCH_HOPPER;
    const uint64_t layer = kept_layer(&m, &r);
    m.family = FAM_BERT;
    m.bidirectional = m.embedding_norm = true;
    m.final_norm = false;
    m.place = PLACE_AFTER_RESIDUAL;
    m.head = HEAD_MASKED_LM;
    assert_int_equal(kept_layer(&m, &r), layer);
    uint64_t head[2];
    for (unsigned pair = 0; pair < 2; pair++) {
        struct lowered l;
        m.head = pair ? HEAD_PRETRAINING : HEAD_MASKED_LM;
        lower(&l, &m, &r);
        head[pair] = kept(&l.p, &l.p.block[l.p.head], 0);
        arena_release(&l.arena);
    }
    /* two norms, the product's input and result, gelu's and the last norm's;
       fp32 softmax, target mask and index */
    const uint64_t norms = 2 * 8 * T;
    assert_int_equal(head[0],
                     5 * 2 * T * LAYER_H + norms + T * (4 * WORDS + 1 + 8));
    /* first token (a view), tanh; fp32 log-softmax and its weight */
    assert_int_equal(head[1], head[0] + B * (2 * LAYER_H + 2 * 4) + 4);
    m.head = HEAD_SEQUENCE;
    struct lowered l;
    arena_init(&l.arena, NULL);
    diag_init(&l.diag, NULL);
    assert_int_equal(lower_model(&l.p, &m, &r, &l.arena, &l.diag),
                     MEMPLAN_E_UNSUPPORTED);
    arena_release(&l.arena);
}

static unsigned copies_of(const struct spec *m, const struct run *r,
                          const char *name)
{
    struct lowered l;
    lower(&l, m, r);
    const struct block *b = first_layer(&l.p);
    unsigned n = 0;
    for (uint32_t i = 0; i < b->op_count; i++) {
        const struct op *op = &l.p.op[b->op_first + i];
        n += op->kind == OP_COPY && strcmp(op->name, name) == 0;
    }
    arena_release(&l.arena);
    return n;
}

/* A mask of padding is kept, a causal one is not: each layer's own. */
static void test_megatron_unfused_mask(void **state)
{
    (void)state;
    enum { B = 2, S = 128, HEADS = 4 };
    struct spec m = gpt(2, 256, HEADS, 1024, 512);
    struct run r = run_of(IMPL_MEGATRON, &m, B, S);
    r.gpu.arch = ARCH_HOPPER;
    r.attention = ATTN_EAGER;
    r.attention_dropout = 0.1;
    const uint64_t causal = kept_layer(&m, &r);
    assert_int_equal(copies_of(&m, &r, "attention mask"), 1);
    m.family = FAM_BERT;
    m.bidirectional = true;
    m.head = HEAD_MASKED_LM;
    assert_int_equal(kept_layer(&m, &r), causal + B * S * S);
}

/* Views of the one product where the kernel knows the layout. */
static void test_megatron_packed(void **state)
{
    (void)state;
    const struct spec learned = gpt(2, 256, 4, 1024, 512);
    const struct spec rotated = llama(2, 256, 4, 4, 512, 1024);
    struct spec grouped = gpt(2, 256, 4, 1024, 512);
    grouped.kv_heads = 2;
    struct run r = run_of(IMPL_MEGATRON, &learned, 2, 128);
    r.gpu.arch = ARCH_HOPPER;
    assert_int_equal(copies_of(&learned, &r, "k"), 0);
    assert_int_equal(copies_of(&rotated, &r, "k"), 1);
    assert_int_equal(copies_of(&grouped, &r, "k"), 1);
    r.gpu.arch = ARCH_AMPERE; /* flash-attn, batch first */
    assert_int_equal(copies_of(&learned, &r, "k"), 1);
    r.attention = ATTN_EAGER;
    assert_int_equal(copies_of(&learned, &r, "k"), 0);
}

/* Two stacks: a decoder layer is a GPT's over the target, and attention to the
 * encoder's result, which is nobody's own. Only the last of them starts its
 * backward without a gradient of that. */
static void test_megatron_stacks(void **state)
{
    (void)state;
    enum { B = 2, S = 128, TARGET = 64, LAYER_H = 256, HEADS = 4 };
    struct spec m = gpt(3, LAYER_H, HEADS, 1024, 512);
    struct run r = run_of(IMPL_MEGATRON, &m, B, S);
    r.gpu.arch = ARCH_HOPPER;
    const uint64_t encoder = kept_layer(&m, &r);
    r.seq_len = TARGET;
    const uint64_t decoder = kept_layer(&m, &r);
    r.seq_len = S;
    r.decoder_seq_len = TARGET;
    m.decoder_layers = 2;
    struct lowered l;
    lower(&l, &m, &r);
    const struct program *p = &l.p;
    assert_int_equal(p->layers, 3 + 1 + 2);
    const struct block *joint = &p->block[p->layer_block[3]];
    const struct block *one = &p->block[p->layer_block[4]];
    const struct block *last = &p->block[p->layer_block[5]];
    assert_int_equal(kept(p, first_layer(p), 0), encoder);
    assert_int_equal(joint->kind, BLOCK_JOINT);
    /* norm, q, context; k and v as long as the source */
    const uint64_t T = (uint64_t)B * TARGET, A = LAYER_H;
    const uint64_t cross = T * (4 * LAYER_H + 8) + T * (4 * A + 4 * HEADS)
                           + (uint64_t)B * S * 4 * A + RNG;
    assert_int_equal(kept(p, one, 0), decoder + cross);
    assert_int_equal(kept(p, last, 0), decoder + cross);
    assert_int_equal(one->memory, p->first_shared);
    assert_true(one->memory_waits && joint->memory_waits);
    assert_false(last->memory_waits);
    assert_int_equal(p->tensor[joint->memory].storage, p->first_shared);
    /* the encoder attends to all, the decoder's own attention does not */
    for (uint32_t k = 0; k < p->n_ops; k++) {
        const struct op *op = &p->op[k];
        const bool masked = op->flop_causal < 0.75 * op->flop_full;
        if (op->kind == OP_FLASH_ATTENTION)
            assert_true(masked
                        == (k > one->op_first
                            && p->tensor[op->in[1]].elems
                                   == p->tensor[op->in[0]].elems));
    }
    arena_release(&l.arena);
}

static void test_megatron_recompute(void **state)
{
    (void)state;
    const struct spec m = llama(2, 4096, 32, 8, 14336, 32000);
    struct run r = run_of(IMPL_MEGATRON, &m, 1, 4096);
    r.recompute = RECOMP_SELECTIVE;
    r.recompute_modules =
        (UINT64_C(1) << REMOD_MLP) | (UINT64_C(1) << REMOD_CORE_ATTN);
    struct lowered l;
    lower(&l, &m, &r);
    const uint64_t T = 4096, h = 4096, K = 1024, f = 14336, a = 32;
    const uint64_t all = T * (8 * h + 8 + 4 * h + 4 * K + 6 * f + 4 * a) + RNG;
    const struct block *b = first_layer(&l.p);
    assert_int_equal(kept(&l.p, b, 0), all);
    /* norm result and statistics, both linears' inputs; x stays */
    assert_int_equal(kept(&l.p, b, 1 + REMOD_MLP),
                     all - T * (2 * h + 4 + 6 * f));
    assert_int_equal(kept(&l.p, b, 1 + REMOD_CORE_ATTN), all - T * 4 * a - RNG);
    arena_release(&l.arena);
}

/* ---- context parallelism of Transformer Engine ---- */

static struct run exchanging(const struct spec *m, enum cp_comm how)
{
    struct run r = run_of(IMPL_MEGATRON, m, 2, 8192);
    r.cp = 4;
    r.cp_comm = how;
    return r;
}

/* Gathered keys are gathered again: a ring keeps as much. Of exchanged heads
 * the result is kept beside what the projection gets for it. */
static void test_megatron_cp_kept(void **state)
{
    (void)state;
    const uint64_t T = 2 * 8192 / 4, A = 4096;
    const struct spec m = llama(2, 4096, 32, 8, 14336, 32000);
    const struct run ring = exchanging(&m, CP_P2P);
    const struct run gathered = exchanging(&m, CP_ALL_GATHER);
    struct run heads = exchanging(&m, CP_A2A);
    const uint64_t all = kept_layer(&m, &ring);
    assert_int_equal(kept_layer(&m, &gathered), all);
    assert_int_equal(kept_layer(&m, &heads), all + 2 * T * A);
    heads.gpu.arch = ARCH_AMPERE; /* flash-attn's, put back in order */
    assert_int_equal(kept_layer(&m, &heads), all + 2 * T * A);
}

/* Heads of q, k, v, and of the result: as many elements as there are. */
static void test_megatron_cp_exchanges(void **state)
{
    (void)state;
    const uint64_t T = 2 * 8192 / 4, A = 4096, K = 1024;
    const struct spec m = llama(2, 4096, 32, 8, 14336, 32000);
    const struct run r = exchanging(&m, CP_A2A);
    struct lowered l;
    lower(&l, &m, &r);
    const struct block *b = first_layer(&l.p);
    uint64_t n = 0, bytes = 0;
    double flop = 0;
    for (uint32_t i = 0; i < b->op_count; i++) {
        const struct op *op = &l.p.op[b->op_first + i];
        flop += op->core_attention ? op->flop_full : 0;
        if (op->kind != OP_ALL_TO_ALL)
            continue;
        assert_int_equal(op->group, COMM_CP);
        assert_int_equal(l.p.tensor[op->in[0]].elems,
                         l.p.tensor[op->out[0]].elems);
        bytes += l.p.tensor[op->in[0]].bytes;
        n++;
    }
    arena_release(&l.arena);
    assert_int_equal(n, 4);
    assert_int_equal(bytes, 2 * T * (2 * A + 2 * K));
    assert_true(flop == 4.0 * (double)T * (double)A * 8192); /* a share */
}

/* Bytes of the layer's attention that are there for its own time alone. */
static void test_megatron_cp_gathers(void **state)
{
    (void)state;
    const uint64_t T = 2 * 8192 / 4, A = 4096, K = 1024, cp = 4;
    const struct spec m = llama(2, 4096, 32, 8, 14336, 32000);
    const struct run r = exchanging(&m, CP_ALL_GATHER);
    struct lowered l;
    lower(&l, &m, &r);
    const struct block *b = first_layer(&l.p);
    const struct op *op = NULL;
    for (uint32_t i = 0; i < b->op_count; i++)
        if (l.p.op[b->op_first + i].core_attention)
            op = &l.p.op[b->op_first + i];
    assert_non_null(op);
    const struct tensor *t = l.p.tensor;
    const uint64_t keys = 2 * cp * T * K, both = 2 * keys;
    assert_int_equal(op->n_out, 6); /* result, statistics, seed */
    assert_int_equal(t[op->out[3]].bytes, keys);
    assert_int_equal(t[op->out[4]].bytes, keys);
    assert_int_equal(t[op->out[5]].bytes, 2 * (2 * T * A));
    /* keys, values, their gradients, those of 9 of 8 chunks, q's; the kernel's
       own scratch, fp32 and grouped heads, is more than what follows it */
    assert_int_equal(op->back_bytes, 2 * both + both / 8 * 9 + 2 * T * A);
    arena_release(&l.arena);
}

/* Regions of the layer's operations of one kind, as a set of bits. */
static unsigned regions_of(const struct spec *m, const struct run *r,
                           enum op_kind kind)
{
    struct lowered l;
    lower(&l, m, r);
    const struct block *b = first_layer(&l.p);
    unsigned set = 0;
    for (uint32_t i = 0; i < b->op_count; i++)
        if (l.p.op[b->op_first + i].kind == kind)
            set |= 1u << l.p.op[b->op_first + i].region;
    arena_release(&l.arena);
    return set;
}

/* moe_act is within moe: both asked for, the outer one decides. */
static void test_megatron_regions(void **state)
{
    (void)state;
    enum { OUTSIDE = 1, ACT = 2 << REMOD_MOE_ACT, MOE = 2 << REMOD_MOE };
    enum { NORM = 2 << REMOD_LAYERNORM, SHARED = 2 << REMOD_SHARED_EXPERTS };
    struct spec m = mixtral_8x7b();
    m.shared_ffn = 1024;
    struct run r = run_of(IMPL_MEGATRON, &m, 1, 4096);
    r.grouped_gemm = true;
    assert_int_equal(regions_of(&m, &r, OP_RMS_NORM), OUTSIDE);
    assert_int_equal(regions_of(&m, &r, OP_SWIGLU), OUTSIDE);
    r.recompute_modules = UINT64_C(1) << REMOD_LAYERNORM;
    assert_int_equal(regions_of(&m, &r, OP_RMS_NORM), OUTSIDE | NORM);
    assert_int_equal(regions_of(&m, &r, OP_SWIGLU), OUTSIDE);
    r.recompute_modules = UINT64_C(1) << REMOD_MOE_ACT;
    assert_int_equal(regions_of(&m, &r, OP_SWIGLU), OUTSIDE | ACT);
    r.recompute_modules |= UINT64_C(1) << REMOD_SHARED_EXPERTS;
    assert_int_equal(regions_of(&m, &r, OP_SWIGLU), SHARED | ACT);
    assert_int_equal(regions_of(&m, &r, OP_TOPK), OUTSIDE);
    r.recompute_modules |= UINT64_C(1) << REMOD_MOE;
    assert_int_equal(regions_of(&m, &r, OP_SWIGLU), MOE);
    assert_int_equal(regions_of(&m, &r, OP_TOPK), MOE);
}

/* The shared expert works on the norm's result, which is kept anyway. */
static void test_megatron_shared_expert(void **state)
{
    (void)state;
    const uint64_t T = 4096, fs = 2048;
    struct spec m = mixtral_8x7b();
    struct run r = run_of(IMPL_MEGATRON, &m, 1, T);
    const uint64_t without = kept_layer(&m, &r);
    m.shared_ffn = fs;
    assert_int_equal(kept_layer(&m, &r), without + 6 * T * fs);
    r.tp = 4;
    const uint64_t cut = kept_layer(&m, &r);
    m.shared_ffn = 0;
    assert_int_equal(cut, kept_layer(&m, &r) + 6 * T * fs / 4);
}

static void test_megatron_inputs(void **state)
{
    (void)state;
    const struct spec m = llama(2, 4096, 32, 8, 14336, 32000);
    struct run r = run_of(IMPL_MEGATRON, &m, 2, 1024);
    uint64_t bytes[3] = { 0 }, shared[3] = { 0 };
    for (unsigned i = 0; i < 3; i++) {
        r.mask = i == 0 ? MASK_NONE : MASK_DATALOADER;
        r.replay_batches = i == 2;
        struct lowered l;
        lower(&l, &m, &r);
        for (uint64_t k = 0; k < l.p.n_input; k++)
            bytes[i] += l.p.tensor[l.p.first_input + k].bytes;
        for (uint64_t k = 0; k < l.p.n_shared; k++)
            shared[i] += l.p.tensor[l.p.first_shared + k].bytes;
        arena_release(&l.arena);
    }
    assert_int_equal(bytes[0], 2 * 1024 * (8 + 8 + 8 + 4));
    /* what no layer keeps goes with forward, unless the step is replayed */
    assert_int_equal(bytes[1], bytes[0]);
    assert_int_equal(shared[1], shared[0] + 2 * 1024 * 1024);
    assert_int_equal(bytes[2], bytes[0] + 2 * 1024 * 1024);
    assert_int_equal(shared[2], shared[0]);
}

static void test_megatron_refuses(void **state)
{
    (void)state;
    struct spec m = gpt(2, 64, 4, 100, 32);
    m.position = POS_ALIBI;
    const struct run r = run_of(IMPL_MEGATRON, &m, 1, 32);
    struct program p;
    struct arena a;
    struct diag d;
    memplan_error slot;
    memplan_errors errs = { &slot, 1, 0 };
    arena_init(&a, NULL);
    diag_init(&d, &errs);
    assert_int_equal(lower_model(&p, &m, &r, &a, &d), MEMPLAN_E_UNSUPPORTED);
    assert_string_equal(slot.message,
                        "implementation megatron has no ALiBi positions");
    arena_release(&a);
}

/* ---- torchtitan ---- */

static void test_torchtitan(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPE_CASES; i++) {
        const struct shape_case *c = &shape_cases[i];
        const struct spec m =
            llama(2, c->hidden, c->heads, c->kv, c->ffn, 32000);
        struct run r = run_case(IMPL_TORCHTITAN, &m, c);
        const struct sizes z = sizes_of(c);
        /* joined halves are copied, and a rank's rows of the table */
        const uint64_t heads =
            4 * z.A + 4 * z.K + 4 * z.a + (c->cp > 1 ? 2 * z.A : 0);
        const uint64_t rest =
            RNG + (c->cp > 1 ? 4 * c->hidden / c->heads * z.T : 0);
        assert_int_equal(kept_layer(&m, &r),
                         z.T * (4 * z.h + 8) / z.u + z.T * 4 * z.h
                             + z.T * (heads + 8 * z.f) + rest);
        /* torchao keeps inputs as they came: from other ranks in 8 bits */
        const uint64_t came = r.tp > 1 && r.sequence_parallel ? 2 : 4;
        r.prec.fp8 = true;
        assert_int_equal(kept_layer(&m, &r),
                         z.T * (4 * z.h + 8) / z.u + z.T * came * z.h
                             + z.T * (heads + 8 * z.f) + rest);
        r.prec.fp8 = false;
        /* fp32: everything but statistics is twice as large */
        r.prec.param = r.prec.compute = DT_FP32;
        assert_int_equal(kept_layer(&m, &r),
                         z.T * (8 * z.h + 8) / z.u + z.T * 8 * z.h
                             + z.T * (2 * heads - 4 * z.a + 16 * z.f) + rest);
        /* FSDP stores fp32 shards and gathers bf16: as bf16 */
        r.prec.compute = DT_BF16;
        assert_int_equal(kept_layer(&m, &r),
                         z.T * (4 * z.h + 8) / z.u + z.T * 4 * z.h
                             + z.T * (heads + 8 * z.f) + rest);
    }
}

/* Qwen3: a norm of each head of q and k, before rope. What attention keeps is
 * of the same size; each norm keeps its input and a deviation a head more. */
static void test_torchtitan_heads(void **state)
{
    (void)state;
    struct spec m = llama(2, 4096, 32, 8, 14336, 32000);
    const struct run r = run_of(IMPL_TORCHTITAN, &m, 1, 1024);
    const uint64_t T = 1024, A = 4096, K = 1024, plain = kept_layer(&m, &r);
    m.qk_norm = QK_PER_HEAD;
    assert_int_equal(kept_layer(&m, &r),
                     plain + T * (2 * A + 2 * K + 4 * 32 + 4 * 8));
    m.qk_norm = QK_NONE;
    m.position = POS_NONE; /* the table is all that rope keeps */
    assert_int_equal(kept_layer(&m, &r), plain);
    struct lowered l;
    lower(&l, &m, &r);
    assert_int_equal(l.p.n_shared, 0);
    arena_release(&l.arena);
}

static void test_torchtune_norm(void **state)
{
    (void)state;
    const struct spec m = llama(2, 4096, 32, 8, 14336, 128256);
    const struct run titan = run_of(IMPL_TORCHTITAN, &m, 1, 1024);
    struct run old = titan;
    struct run tune = run_of(IMPL_TORCHTUNE, &m, 1, 1024);
    old.norm_kernel = NORM_EAGER;
    /* 6h + 4 a norm written out against 2h + 4 */
    assert_int_equal(kept_layer(&m, &old),
                     kept_layer(&m, &titan) + 1024 * 8 * 4096);
    /* keys and values a copy for each of 4 queries */
    assert_int_equal(kept_layer(&m, &tune),
                     kept_layer(&m, &old) + 1024 * 2 * 2 * 3 * 1024);
    tune.norm_kernel = NORM_FUSED;
    assert_int_equal(kept_layer(&m, &tune),
                     kept_layer(&m, &titan) + 1024 * 2 * 2 * 3 * 1024);
}

static void test_torchtitan_head(void **state)
{
    (void)state;
    const struct spec m = llama(2, 4096, 32, 8, 14336, 128256);
    struct run r = run_of(IMPL_TORCHTITAN, &m, 1, 4096);
    struct lowered l;
    lower(&l, &m, &r);
    const uint64_t T = 4096, h = 4096, V = 128256;
    assert_int_equal(kept(&l.p, &l.p.block[l.p.head], 0),
                     T * (4 * h + 4) + 4 * T * V + 4);
    assert_int_equal(l.p.n_shared, 1);
    arena_release(&l.arena);
    r.loss = LOSS_CHUNKED; /* x of the norm, its deviation, dx */
    lower(&l, &m, &r);
    assert_int_equal(kept(&l.p, &l.p.block[l.p.head], 0), T * (4 * h + 4));
    arena_release(&l.arena);
}

/* ---- adapters, autocast, quantised weights ---- */

static void test_lora(void **state)
{
    (void)state;
    const struct spec m = llama(2, 4096, 32, 8, 14336, 32000);
    struct run r = run_of(IMPL_TORCHTITAN, &m, 1, 1024);
    const uint64_t T = 1024, h = 4096, K = 1024, f = 14336, a = 32, k = 16;
    r.lora_rank = k;
    r.lora_targets = LORA_MASK(LORA_Q) | LORA_MASK(LORA_V);
    /* frozen linears keep nothing: down's input goes, the norms' results too
       but for the adapters' sake */
    const uint64_t frozen =
        T * (4 * h + 8 + 4 * h + 4 * K + 4 * a + 6 * f) + RNG;
    assert_int_equal(kept_layer(&m, &r), frozen + T * (2 * h + 2 * 2 * k));
    r.lora_dtype = DT_FP32; /* each adapter casts for itself */
    assert_int_equal(kept_layer(&m, &r), frozen + 2 * T * (4 * h + 4 * k));

    r.lora_dtype = DT_BF16;
    r.base_dtype = DT_NF4;
    assert_int_equal(kept_layer(&m, &r), frozen + T * (2 * h + 2 * 2 * k));
    struct lowered l;
    lower(&l, &m, &r);
    uint64_t trained = 0, quantised = 0;
    for (uint32_t i = 0; i < l.p.n_tensors; i++) {
        const struct tensor *t = &l.p.tensor[i];
        if (t->role != ROLE_PARAM)
            continue;
        trained += t->trainable ? t->full_elems : 0;
        quantised += t->dtype == DT_NF4 ? t->full_elems : 0;
    }
    assert_int_equal(trained, k * (h + h) + k * (h + K));
    assert_int_equal(quantised, h * (2 * h + 2 * K) + 3 * h * f);
    arena_release(&l.arena);
}

/* The graph keeps a 16-bit copy of every linear weight. */
static void test_autocast(void **state)
{
    (void)state;
    const struct spec m = llama(2, 4096, 32, 8, 14336, 32000);
    struct run r = run_of(IMPL_TORCHTITAN, &m, 1, 1024);
    const uint64_t T = 1024, h = 4096, K = 1024, f = 14336, a = 32;
    r.prec.param = DT_FP32;
    r.prec.autocast = true;
    /* norms on fp32: x 4h; a 16-bit copy of the input for each of q, k, v and
       gate, up */
    assert_int_equal(kept_layer(&m, &r),
                     T * (8 * h + 8 + 5 * 2 * h + 4 * h + 4 * K + 4 * a + 8 * f)
                         + RNG + 2 * (h * (2 * h + 2 * K) + 3 * h * f));
}

/* ---- parameters ---- */

static uint64_t parameters(const struct spec *m, const struct run *r)
{
    struct lowered l;
    lower(&l, m, r);
    uint64_t sum = 0;
    for (uint64_t b = 0; b < l.p.n_blocks; b++) {
        const struct block *block = &l.p.block[b];
        uint64_t times = block->kind == BLOCK_LAYER ? 0 : 1;
        for (uint64_t i = 0; i < l.p.layers; i++)
            times += l.p.layer_block[i] == b;
        for (uint32_t i = 0; i < block->tensor_count; i++) {
            const struct tensor *t = &l.p.tensor[block->tensor_first + i];
            if (t->role == ROLE_PARAM && !t->tied)
                sum += times * t->full_elems;
        }
    }
    arena_release(&l.arena);
    return sum;
}

static void check_parameters(const struct spec *m, enum implementation impl,
                             uint64_t want)
{
    struct run r = run_of(impl, m, 1, 128);
    assert_int_equal(parameters(m, &r), want);
    r.vocab = (m->vocab / 1024 + 1) * 1024; /* padding does not count */
    r.tp = 4;
    r.sequence_parallel = true;
    r.ep = m->experts > 0 ? 4 : 1;
    assert_int_equal(parameters(m, &r), want);
}

static void test_parameters(void **state)
{
    (void)state;
    const struct spec llama_7b = llama(32, 4096, 32, 32, 11008, 32000);
    const struct spec llama_3_8b = llama(32, 4096, 32, 8, 14336, 128256);
    const struct spec gpt2 = gpt(12, 768, 12, 50257, 1024);
    const struct spec gpt3 = gpt(96, 12288, 96, 50257, 2048);
    const struct spec mixtral = mixtral_8x7b();
    static const enum implementation both[] = { IMPL_PAPER, IMPL_MEGATRON };
    for (size_t i = 0; i < 2; i++) {
        check_parameters(&llama_7b, both[i], 6738415616);
        check_parameters(&llama_3_8b, both[i], 8030261248);
        check_parameters(&gpt2, both[i], 124439808);
        check_parameters(&gpt3, both[i], 174604259328);
    }
    check_parameters(&llama_7b, IMPL_TORCHTITAN, 6738415616);
    check_parameters(&mixtral, IMPL_MEGATRON, 46702792704);
}

/* ---- FLOPs ---- */

/* Forward and backward of the whole model, a token, against 6 N. */
static void check_flops(const struct spec *m, enum implementation impl,
                        uint64_t seq, const double want[2])
{
    const struct run r = run_of(impl, m, 1, seq);
    struct lowered l;
    lower(&l, m, &r);
    double full = 0, causal = 0;
    for (uint32_t b = 0; b < l.p.n_blocks; b++) {
        const struct block *block = &l.p.block[b];
        const double times = block->kind == BLOCK_LAYER ? (double)m->layers : 1;
        for (uint32_t k = 0; k < block->op_count; k++) {
            full += times * l.p.op[block->op_first + k].flop_full;
            causal += times * l.p.op[block->op_first + k].flop_causal;
        }
    }
    arena_release(&l.arena);
    const double six_n = 6.0 * (double)parameters(m, &r) * (double)seq;
    assert_true(fabs(3 * causal / six_n - want[0]) < 0.00006);
    assert_true(fabs(3 * full / six_n - want[1]) < 0.00006);
}

/* Figures of the worked table in docs/method.md, eq. flops. */
static void test_flops(void **state)
{
    (void)state;
    const struct spec gpt3 = gpt(96, 12288, 96, 50257, 2048);
    const struct spec llama_2_7b = llama(32, 4096, 32, 32, 11008, 32000);
    const struct spec llama_3_8b = llama(32, 4096, 32, 8, 14336, 128256);
    const double gpt3_want[] = { 1.0136, 1.0274 };
    const double llama_2_want[] = { 1.0602, 1.1399 };
    const double llama_3_want[] = { 1.0683, 1.2020 };
    check_flops(&gpt3, IMPL_PAPER, 2048, gpt3_want);
    check_flops(&gpt3, IMPL_MEGATRON, 2048, gpt3_want);
    check_flops(&llama_2_7b, IMPL_MEGATRON, 4096, llama_2_want);
    check_flops(&llama_2_7b, IMPL_TORCHTITAN, 4096, llama_2_want);
    check_flops(&llama_3_8b, IMPL_MEGATRON, 8192, llama_3_want);
}

static void test_sliding_window(void **state)
{
    (void)state;
    struct spec m = llama(4, 4096, 32, 8, 14336, 32000);
    m.sliding_window = 4096;
    m.slides.every = 2;
    const struct run r = run_of(IMPL_MEGATRON, &m, 1, 16384);
    struct lowered l;
    lower(&l, &m, &r);
    assert_int_equal(l.p.n_blocks, 4);
    assert_int_equal(l.p.layer_block[0], l.p.layer_block[2]);
    assert_int_equal(l.p.layer_block[1], l.p.layer_block[3]);
    assert_int_not_equal(l.p.layer_block[0], l.p.layer_block[1]);
    const double s = 16384, w = 4096;
    const double want[2] = { (w * s - w * w / 2) / s, s / 2 };
    for (unsigned i = 0; i < 2; i++) {
        const struct block *b = &l.p.block[l.p.layer_block[i]];
        for (uint32_t k = 0; k < b->op_count; k++) {
            const struct op *op = &l.p.op[b->op_first + k];
            if (!op->core_attention)
                continue;
            assert_true(fabs(op->flop_full - 4 * s * s * 4096) < 1);
            assert_true(fabs(op->flop_causal - 4 * s * want[i] * 4096) < 1);
        }
    }
    arena_release(&l.arena);
}

static void test_layer_pattern(void **state)
{
    (void)state;
    struct spec m = mixtral_8x7b();
    m.sparse.first = 3;
    m.sparse.every = 2;
    const struct run r = run_of(IMPL_MEGATRON, &m, 1, 128);
    struct lowered l;
    lower(&l, &m, &r);
    for (uint64_t i = 0; i < m.layers; i++) {
        const bool moe = i >= 3 && i % 2 == 0;
        assert_string_equal(l.p.block[l.p.layer_block[i]].name,
                            moe ? "moe layer" : "layer");
    }
    arena_release(&l.arena);
}

/* Attention of dense layers is that of layers with experts, tensor by tensor,
 * wherever it lies. */
static void check_common(const struct program *p, const struct block *b)
{
    const struct block *as = &p->block[b->begins_as];
    const uint32_t further = b->tensor_first - as->tensor_first;
    for (uint32_t k = 0; k < b->common_ops; k++) {
        const struct op *x = &p->op[as->op_first + k];
        const struct op *y = &p->op[b->op_first + k];
        assert_int_equal(y->kind, x->kind);
        assert_string_equal(y->name, x->name);
        assert_true(y->flop_causal == x->flop_causal);
        assert_int_equal(y->n_in, x->n_in);
        assert_int_equal(y->n_out, x->n_out);
        for (unsigned i = 0; i < x->n_out; i++)
            assert_int_equal(y->out[i], x->out[i] + further);
        for (unsigned i = 0; i < x->n_in; i++) {
            const struct tensor *t = &p->tensor[y->in[i]];
            if (x->in[i] == as->input)
                assert_int_equal(y->in[i], b->input);
            else if (x->in[i] >= as->tensor_first)
                assert_int_equal(y->in[i], x->in[i] + further);
            else
                assert_int_equal(y->in[i], x->in[i]);
            assert_int_equal(t->bytes, p->tensor[x->in[i]].bytes);
            assert_int_equal(t->needs_grad, p->tensor[x->in[i]].needs_grad);
        }
    }
}

static void test_layers_begin_alike(void **state)
{
    (void)state;
    static const enum implementation impl[] = { IMPL_HF, IMPL_MEGATRON };
    for (size_t i = 0; i < sizeof impl / sizeof impl[0]; i++) {
        struct spec m = mixtral_8x7b();
        m.sparse.first = 3;
        const struct run r = run_of(impl[i], &m, 1, 128);
        struct lowered l;
        lower(&l, &m, &r);
        const struct block *dense = &l.p.block[l.p.layer_block[0]];
        const struct block *moe = &l.p.block[l.p.layer_block[3]];
        assert_ptr_not_equal(dense, moe);
        assert_true(dense->common_ops > 5);
        assert_int_equal(moe->common_ops, dense->common_ops);
        assert_int_equal(moe->begins_as, l.p.layer_block[0]);
        assert_int_equal(dense->begins_as, l.p.layer_block[0]);
        check_common(&l.p, moe);
        arena_release(&l.arena);
    }
}

/* ---- adapters of Megatron-Bridge ---- */

static uint64_t kept_of_layer(const struct spec *m, const struct run *r,
                              uint64_t layer)
{
    struct lowered l;
    lower(&l, m, r);
    const uint64_t bytes = kept(&l.p, &l.p.block[l.p.layer_block[layer]], 0);
    arena_release(&l.arena);
    return bytes;
}

static unsigned gathers_of_layer(const struct spec *m, const struct run *r)
{
    struct lowered l;
    unsigned n = 0;
    lower(&l, m, r);
    const struct block *b = &l.p.block[l.p.layer_block[1]];
    for (uint32_t k = 0; k < b->op_count; k++) {
        const struct op *op = &l.p.op[b->op_first + k];
        n += op->kind == OP_ALL_GATHER && !op->one_way;
    }
    arena_release(&l.arena);
    return n;
}

/* Transformer Engine's layers, which no recording has: against the same layer
 * that is trained, a norm's result whole instead of its shard, and four times
 * the low rank. [method.md eq. bridge-lora] */
static void test_bridge_adapters(void **state)
{
    (void)state;
    enum { T = 512, H = 512, F = 1376, A = 512, RANK = 8, TP = 4 };
    const struct spec m = llama(3, H, 8, 4, F, 32000);
    for (unsigned shards = 0; shards < 2; shards++) {
        const uint64_t u = shards != 0 ? TP : 1;
        struct run r = run_of(IMPL_MEGATRON, &m, 2, 256);
        r.tp = TP;
        r.sequence_parallel = shards != 0;
        const uint64_t trained = kept_of_layer(&m, &r, 1);
        const unsigned gathers = gathers_of_layer(&m, &r);
        r.lora_rank = RANK;
        r.lora_targets = LORA_MASK(LORA_ALL_LINEAR);
        const uint64_t adapted = kept_of_layer(&m, &r, 1);
        assert_int_equal(adapted, trained + 4 * 2 * T * RANK
                                      + 2 * (2 * T * H - 2 * T * H / u));
        /* nothing below the first is trained: its norm has no gradient */
        assert_int_equal(kept_of_layer(&m, &r, 0),
                         adapted - 2 * T * H / u - 4 * T / u);
        assert_int_equal(gathers_of_layer(&m, &r), gathers);
        r.recompute = RECOMP_FULL; /* which asks for one */
        assert_int_equal(kept_of_layer(&m, &r, 0), adapted);
        r.recompute = RECOMP_NONE;
        r.lora_dropout = 0.1;
        assert_int_equal(kept_of_layer(&m, &r, 1),
                         adapted + 2 * T * H + 3 * T * A / TP + T * F / TP);
        r.tp_comm_overlap = true; /* nobody hands on what was gathered */
        assert_int_equal(gathers_of_layer(&m, &r), gathers + 2 * shards);
    }
}

/* Over frozen weights in 8 bits inputs and gradients are cast for the one
 * product each, and not kept. */
static void test_bridge_eight_bits(void **state)
{
    (void)state;
    const struct spec m = llama(3, 512, 8, 4, 1376, 32000);
    struct run r = run_of(IMPL_MEGATRON, &m, 2, 256);
    r.lora_rank = 8;
    r.lora_targets = LORA_MASK(LORA_ALL_LINEAR);
    const uint64_t plain = kept_of_layer(&m, &r, 1);
    r.prec.fp8 = true;
    r.fp8_recipe = FP8_TENSORWISE;
    assert_int_equal(kept_of_layer(&m, &r, 1), plain);
    struct lowered l;
    unsigned casts = 0;
    lower(&l, &m, &r);
    const struct block *b = &l.p.block[l.p.layer_block[1]];
    for (uint32_t k = 0; k < b->op_count; k++) {
        const struct op *op = &l.p.op[b->op_first + k];
        casts += op->kind == OP_QUANTIZE;
        if (op->kind != OP_LINEAR)
            continue;
        const struct tensor *w = &l.p.tensor[op->in[1]];
        assert_int_equal(w->fp8, !w->trainable);
        assert_int_equal(op->back_bytes,
                         w->fp8 ? l.p.tensor[op->out[0]].elems : 0);
    }
    assert_int_equal(casts, 4);
    arena_release(&l.arena);
}

/* Experts of grouped products share an adapter, else they have one each; they
 * are summed as theirs are where ranks share experts out. */
static void test_bridge_experts(void **state)
{
    (void)state;
    enum { RANK = 16, EP = 4, IN = 14336, OUT = 4096, EXPERTS = 8 };
    const struct spec m = mixtral_8x7b();
    for (unsigned i = 0; i < 4; i++) {
        struct run r = run_of(IMPL_MEGATRON, &m, 1, 256);
        const uint64_t here = (i & 1) != 0 ? EXPERTS / EP : EXPERTS;
        struct lowered l;
        uint64_t elems = 0;
        r.ep = EXPERTS / here;
        r.grouped_gemm = (i & 2) != 0;
        r.lora_rank = RANK;
        r.lora_targets = LORA_MASK(LORA_DOWN);
        lower(&l, &m, &r);
        const struct block *b = &l.p.block[l.p.layer_block[1]];
        for (tensor_id k = 0; k < b->tensor_count; k++) {
            const struct tensor *t = &l.p.tensor[b->tensor_first + k];
            if (t->role != ROLE_PARAM || t->group != PG_ADAPTER)
                continue;
            elems += t->elems;
            assert_int_equal(tensor_is_expert(t), r.ep > 1);
        }
        assert_int_equal(elems,
                         RANK * (IN + OUT) * (r.grouped_gemm ? 1 : here));
        arena_release(&l.arena);
    }
}

/* ---- structure ---- */

/* Every operand is there, and made before it is used; blocks chain. */
static void check_structure(const struct program *p, bool leaf)
{
    for (uint32_t b = 0; b < p->n_blocks; b++) {
        const struct block *block = &p->block[b];
        const uint32_t end = block->tensor_first + block->tensor_count;
        for (uint32_t k = 0; k < block->op_count; k++) {
            const struct op *op = &p->op[block->op_first + k];
            assert_in_range(op->n_in, 1, OP_IN_MAX);
            if (op->kind != OP_RELEASE)
                assert_in_range(op->n_out, 1, OP_OUT_MAX);
            assert_non_null(op->name);
            for (unsigned i = 0; i < op->n_in; i++) {
                const struct tensor *t = &p->tensor[op->in[i]];
                assert_true(
                    (op->in[i] >= block->tensor_first && op->in[i] < end)
                    || op->in[i] == block->input || t->role == ROLE_INPUT
                    || t->role == ROLE_SHARED);
            }
            for (unsigned i = 0; i < op->n_out; i++)
                assert_in_range(op->out[i], block->tensor_first, end - 1);
        }
        assert_in_range(block->output, block->tensor_first, end - 1);
        if (block->kind == BLOCK_EMBED)
            continue;
        const struct tensor *in = &p->tensor[block->input];
        assert_int_equal(in->storage, block->input);
        assert_int_equal(in->needs_grad, !leaf || b != p->embed + 1);
        assert_int_equal(in->role, ROLE_ACTIVATION);
    }
}

static void test_structure(void **state)
{
    (void)state;
    static const enum implementation impl[] = { IMPL_PAPER, IMPL_MEGATRON,
                                                IMPL_TORCHTITAN,
                                                IMPL_TORCHTUNE };
    for (unsigned i = 0; i < 4 * 8; i++) {
        const struct spec m = llama(3, 512, 8, 4, 1376, 32000);
        struct run r = run_of(impl[i / 8], &m, 2, 256);
        r.tp = (i & 1) != 0 ? 4 : 1;
        r.sequence_parallel = (i & 5) == 5;
        r.lora_rank = (i & 2) != 0 ? 8 : 0;
        r.lora_targets = LORA_MASK(LORA_ALL_LINEAR);
        r.prec.fp8 = (i & 4) != 0;
        struct lowered l;
        lower(&l, &m, &r);
        check_structure(&l.p, run_has_bridge_adapters(&r));
        assert_int_equal(l.p.tokens, 512);
        arena_release(&l.arena);
    }
}

/* ---- limits ---- */

static void test_overflow(void **state)
{
    (void)state;
    const struct spec m =
        llama(2, UINT64_C(1) << 40, 32, 32, UINT64_C(1) << 40, 32000);
    const struct run r = run_of(IMPL_MEGATRON, &m, 1, 128);
    struct program p;
    struct arena a;
    struct diag d;
    memplan_error slot[4];
    memplan_errors errs = { slot, 4, 0 };
    arena_init(&a, NULL);
    diag_init(&d, &errs);
    assert_int_equal(lower_model(&p, &m, &r, &a, &d), MEMPLAN_E_OVERFLOW);
    assert_int_equal(errs.count, 1);
    arena_release(&a);
}

struct failing {
    size_t calls, fail_at;
};

static void *failing_resize(void *ctx, void *ptr, size_t old_size,
                            size_t new_size)
{
    struct failing *f = ctx;
    (void)old_size;
    if (new_size == 0) {
        free(ptr);
        return NULL;
    }
    return ++f->calls > f->fail_at ? NULL : realloc(ptr, new_size);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    const struct spec m = mixtral_8x7b();
    struct run r = run_of(IMPL_MEGATRON, &m, 1, 128);
    r.lora_rank = 8;
    r.lora_targets = LORA_MASK(LORA_ALL_LINEAR);
    memplan_status status = MEMPLAN_E_NOMEM;
    for (size_t at = 0; status != MEMPLAN_OK; at++) {
        struct failing f = { 0, at };
        const memplan_allocator alloc = { failing_resize, &f };
        struct program p;
        struct arena a;
        struct diag d;
        arena_init(&a, &alloc);
        diag_init(&d, NULL);
        status = lower_model(&p, &m, &r, &a, &d);
        assert_true(status == MEMPLAN_OK || status == MEMPLAN_E_NOMEM);
        arena_release(&a);
        assert_true(at < 100);
    }
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(op_kind_name(OP_LINEAR), "linear");
    assert_string_equal(op_kind_keeps(OP_SOFTMAX), "its result");
    assert_string_equal(op_kind_name(OP_KIND_COUNT), "");
    for (unsigned i = 0; i < PG_COUNT; i++)
        assert_true(param_group_name((enum param_group)i)[0] != '\0');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paper),
        cmocka_unit_test(test_paper_refuses_experts),
        cmocka_unit_test(test_megatron_gated),
        cmocka_unit_test(test_megatron_gpt),
        cmocka_unit_test(test_megatron_local),
        cmocka_unit_test(test_megatron_local_global_buffer),
        cmocka_unit_test(test_megatron_fp8),
        cmocka_unit_test(test_deepseek_fp8),
        cmocka_unit_test(test_megatron_moe),
        cmocka_unit_test(test_megatron_latent),
        cmocka_unit_test(test_megatron_cp_kept),
        cmocka_unit_test(test_megatron_cp_exchanges),
        cmocka_unit_test(test_megatron_cp_gathers),
        cmocka_unit_test(test_megatron_latent_rest),
        cmocka_unit_test(test_megatron_latent_plain),
        cmocka_unit_test(test_megatron_mtp),
        cmocka_unit_test(test_megatron_mtp_checkpoint),
        cmocka_unit_test(test_megatron_head),
        cmocka_unit_test(test_megatron_bert),
        cmocka_unit_test(test_megatron_unfused_mask),
        cmocka_unit_test(test_megatron_packed),
        cmocka_unit_test(test_megatron_stacks),
        cmocka_unit_test(test_megatron_recompute),
        cmocka_unit_test(test_megatron_regions),
        cmocka_unit_test(test_megatron_shared_expert),
        cmocka_unit_test(test_megatron_inputs),
        cmocka_unit_test(test_megatron_refuses),
        cmocka_unit_test(test_torchtitan),
        cmocka_unit_test(test_torchtitan_heads),
        cmocka_unit_test(test_torchtune_norm),
        cmocka_unit_test(test_torchtitan_head),
        cmocka_unit_test(test_lora),
        cmocka_unit_test(test_autocast),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_flops),
        cmocka_unit_test(test_sliding_window),
        cmocka_unit_test(test_layer_pattern),
        cmocka_unit_test(test_layers_begin_alike),
        cmocka_unit_test(test_bridge_adapters),
        cmocka_unit_test(test_bridge_eight_bits),
        cmocka_unit_test(test_bridge_experts),
        cmocka_unit_test(test_structure),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
