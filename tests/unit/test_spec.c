/*
 * The importer of model specifications: counts that follow from what it read
 * equal published ones, class defaults, and what it says about bad files. The
 * count here is a closed formula of its own, so that a mistake of the importer
 * and one of the step program do not hide each other.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/models.h"
#include "spec/import.h"
#include "json/json.h"

enum { ERRORS_MAX = 16 };

struct fixture {
    struct arena arena;
    struct spec spec;
    memplan_error slot[ERRORS_MAX];
    memplan_errors errs;
    memplan_status status;
};

static void load(struct fixture *f, const char *text, size_t len)
{
    struct diag d;
    arena_init(&f->arena, NULL);
    f->errs = (memplan_errors){ f->slot, ERRORS_MAX, 0 };
    diag_init(&d, &f->errs);
    struct json *root = json_parse(&f->arena, text, len, &d);
    assert_non_null(root);
    const struct spec_text in = {
        .root = root, .text = text, .len = len, .name = "given"
    };
    f->status = spec_import(&f->spec, &in, &f->arena, &d);
}

static void load_good(struct fixture *f, const char *text, size_t len)
{
    load(f, text, len);
    if (f->status != MEMPLAN_OK)
        print_error("%s: %s\n", f->slot[0].pointer, f->slot[0].message);
    assert_int_equal(f->status, MEMPLAN_OK);
    assert_int_equal(f->errs.count, 0);
}

/* ---- parameters, in closed form ---- */

static uint64_t norm_params(enum norm_kind kind, uint64_t width)
{
    switch (kind) {
    case NORM_RMS:
    case NORM_LAYER_NOBIAS: return width;
    case NORM_LAYER: return 2 * width;
    case NORM_LAYER_PLAIN: return 0;
    }
    return 0;
}

/* Down to the compressed, their norms, up to the heads, and out. */
static uint64_t latent_params(const struct spec *s)
{
    const uint64_t q = s->heads * (s->nope_dim + s->rope_dim);
    const uint64_t down = s->kv_rank + s->rope_dim;
    uint64_t n = s->hidden * down + s->heads * s->v_dim * s->hidden;
    n += s->kv_rank * s->heads * (s->nope_dim + s->v_dim);
    n += s->q_rank ? s->q_rank * (s->hidden + q) : s->hidden * q;
    n += s->latent_norm ? s->kv_rank + s->q_rank : 0;
    n += s->q_bias ? down + s->q_rank : 0;
    if (s->index_heads > 0) /* of queries, keys and heads; a norm */
        n += s->index_heads * (s->q_rank * s->index_dim + s->hidden)
             + (s->hidden + 2) * s->index_dim;
    return n + (s->o_bias ? s->hidden : 0);
}

/* A mixer's own norms among them. */
static uint64_t mixer_params(const struct spec *s)
{
    const struct ssm *m = &s->ssm;
    const uint64_t conv =
        s->mixer == MIX_MAMBA ? m->inner : m->inner + 2 * m->groups * m->state;
    uint64_t n = conv * m->conv + (m->conv_bias ? conv : 0);
    n += m->inner * s->hidden + (m->bias ? s->hidden : 0);
    if (s->mixer == MIX_MAMBA) {
        n += 2 * m->inner * s->hidden + (m->bias ? 2 * m->inner : 0);
        n += m->inner * (m->rank + 2 * m->state) + m->rank * m->inner;
        n += m->inner * (m->state + 2);
        return n + (m->norms ? m->rank + 2 * m->state : 0);
    }
    n += s->hidden * (m->inner + conv) + 2 * m->heads;
    if (s->mixer == MIX_DELTA)
        return n + s->hidden * 2 * m->heads + m->head_dim;
    n += s->hidden * m->heads + (m->bias ? m->inner + conv + m->heads : 0);
    return n + m->heads + m->inner;
}

static uint64_t attention_params(const struct spec *s)
{
    if (s->kv_rank > 0)
        return latent_params(s);
    uint64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    uint64_t n = 2 * s->hidden * q + 2 * s->hidden * kv;
    n += s->attention_gate ? s->hidden * q + (s->q_bias ? q : 0) : 0;
    n += s->q_bias ? q : 0;
    n += s->k_bias ? kv : 0;
    n += s->v_bias ? kv : 0;
    n += s->o_bias ? s->hidden : 0;
    if (s->qk_norm == QK_UNIT)
        return n;
    if (s->qk_norm == QK_PER_HEAD)
        n += 2 * norm_params(s->qk_norm_kind, s->head_dim);
    else if (s->qk_norm != QK_NONE)
        n += norm_params(s->qk_norm_kind, q) + norm_params(s->qk_norm_kind, kv);
    n += s->attention_sinks ? s->heads : 0;
    return n;
}

static uint64_t mlp_params(const struct spec *s, uint64_t width)
{
    uint64_t ups = s->gated_mlp ? 2 : 1;
    uint64_t n = (ups + 1) * s->hidden * width;
    return n + (s->mlp_bias ? ups * width + s->hidden : 0);
}

static uint64_t sparse_params(const struct spec *s)
{
    uint64_t n = s->experts * mlp_params(s, s->expert_ffn);
    n += s->hidden * s->experts + (s->router_bias ? s->experts : 0);
    n += s->expert_bias ? s->experts * (2 * s->expert_ffn + s->hidden) : 0;
    n += s->shared_gate ? s->hidden : 0;
    n += s->family == FAM_ERNIE_MOE ? s->experts : 0; /* never trained */
    return n + (s->shared_ffn ? mlp_params(s, s->shared_ffn) : 0);
}

static uint64_t norms_params(const struct spec *s)
{
    uint64_t one = norm_params(s->norm, s->hidden);
    if (s->place == PLACE_BOTH)
        return 4 * one;
    return s->parallel_residual && s->shared_norm ? one : 2 * one;
}

/* What a head has beside words. */
static uint64_t head_params(const struct spec *s)
{
    const uint64_t square = s->hidden * s->hidden + s->hidden;
    const uint64_t class = s->hidden + 1;
    switch (s->head) {
    case HEAD_LM: return 0;
    case HEAD_MASKED_LM: return square + norm_params(s->norm, s->hidden);
    case HEAD_PRETRAINING:
        return 2 * square + norm_params(s->norm, s->hidden) + 2 * class;
    case HEAD_POOLED: return square;
    case HEAD_SEQUENCE: return square + s->labels * class;
    case HEAD_FIRST:
    case HEAD_TOKEN: return s->labels * class;
    case HEAD_SPAN: return 2 * class;
    case HEAD_ONE:
    case HEAD_STATES: return 0;
    case HEAD_NOISE: break;
    }
    return 0;
}

static bool has_words(const struct spec *s)
{
    return s->head == HEAD_LM || s->head == HEAD_MASKED_LM
           || s->head == HEAD_PRETRAINING;
}

/* DiT: embedders of times and classes, rows for each norm and gate, the last
 * product; the original's sines. */
static uint64_t conditioned_params(const struct spec *s)
{
    const uint64_t h = s->hidden;
    const uint64_t each = 256 * h + h + h * h + h + (s->classes + 1) * h;
    const uint64_t pixels = s->patch * s->patch * s->out_channels;
    uint64_t n = s->layers * (h + 1) * 6 * h + (h + 1) * (2 * h + pixels);
    n += s->shared_embedder ? each + s->max_positions * h : s->layers * each;
    return s->classes > 0 ? n : 0;
}

/* A block of Nemotron-H: one part, and the norm before it. */
static uint64_t lone_params(const struct spec *s, uint64_t i)
{
    const uint64_t one = norm_params(s->norm, s->hidden);
    if (!pattern_has(&s->mixes, i))
        return one
               + (pattern_has(&s->sparse, i) ? sparse_params(s)
                                             : mlp_params(s, s->ffn));
    return one
           + (pattern_has(&s->attends, i) ? attention_params(s)
                                          : mixer_params(s));
}

static uint64_t count_params(const struct spec *s)
{
    uint64_t one = norm_params(s->norm, s->hidden), n = head_params(s);
    for (uint64_t i = 0; i < s->layers; i++) {
        bool sparse = s->experts && pattern_has(&s->sparse, i);
        if (s->lone_parts) {
            n += lone_params(s, i);
            continue;
        }
        n +=
            pattern_has(&s->attends, i) ? attention_params(s) : mixer_params(s);
        n += s->ffn == 0 ? one : norms_params(s);
        n += sparse ? sparse_params(s) : mlp_params(s, s->ffn);
    }
    n += s->decoder_layers
         * (2 * attention_params(s) + 3 * one
            + mlp_params(s, s->decoder_ffn ? s->decoder_ffn : s->ffn));
    n += conditioned_params(s) + s->target_positions * s->hidden;
    if (s->mel_bins > 0)
        n += s->hidden * (3 * (s->mel_bins + s->hidden) + 2);
    n += 2 * s->relative_buckets * s->heads;
    if (s->decoder_layers > 0) /* what stands between two stacks */
        n += (s->final_norm ? one : 0) + (s->embedding_norm ? one : 0)
             + (s->family == FAM_BART ? s->learned_positions * s->hidden : 0);
    n += (s->tied || !has_words(s) ? 1 : 2) * s->vocab * s->embed_dim;
    n += s->token_types * s->hidden;
    if (s->image > 0)
        n += s->hidden
             * (s->channels * s->patch * s->patch + (s->classes > 0 ? 1 : 2));
    if (s->embed_dim != s->hidden)
        n += 2 * s->embed_dim * s->hidden;
    n += s->learned_positions * s->hidden;
    n += (s->final_norm ? one : 0) + (s->embedding_norm ? one : 0);
    return n + (s->head_bias && has_words(s) ? s->vocab : 0);
}

/* Exact figures: published, or sums of the shapes of published tensors. */
static const struct {
    const char *name;
    uint64_t count;
} exact[] = {
    { "baichuan2-7b", UINT64_C(7505973248) },
    { "bart-large", UINT64_C(406291456) },
    { "dit-xl-2", UINT64_C(675129632) },
    { "whisper-base", UINT64_C(72593920) },
    { "whisper-large-v3", UINT64_C(1543490560) },
    { "whisper-large-v3-turbo", UINT64_C(808878080) },
    { "whisper-medium", UINT64_C(763857920) },
    { "whisper-small", UINT64_C(241734912) },
    { "bert-base", UINT64_C(109514298) },
    { "bert-large", UINT64_C(335174458) },
    { "bloom-176b", UINT64_C(176247271424) },
    { "bloom-1b7", UINT64_C(1722408960) },
    { "bloom-3b", UINT64_C(3002557440) },
    { "bloom-7b1", UINT64_C(7069016064) },
    { "codellama-7b", UINT64_C(6738546688) },
    { "command-r-plus", UINT64_C(103810674688) },
    { "command-r", UINT64_C(34980831232) },
    { "falcon-180b", UINT64_C(178557088768) },
    { "falcon-40b", UINT64_C(41303293952) },
    { "falcon-7b", UINT64_C(6921720704) },
    { "gemma-2-2b", UINT64_C(2614341888) },
    { "gemma-2-9b", UINT64_C(9241705984) },
    { "gemma-3-1b", UINT64_C(999885952) },
    { "grok-1", UINT64_C(315684820992) },
    { "phi-3-small-8k", UINT64_C(7392272384) },
    { "deepseek-v3.2", UINT64_C(671877929216) },
    { "llama-4-maverick", UINT64_C(400711848960) },
    { "llama-4-scout", UINT64_C(107769861120) },
    { "minicpm3-4b", UINT64_C(4073875968) },
    { "gemma-7b", UINT64_C(8537680896) },
    { "gpt-j-6b", UINT64_C(6050882784) },
    { "gpt-neo-125m", UINT64_C(125198592) },
    { "gpt-neo-2.7b", UINT64_C(2651307520) },
    { "gpt-neox-20b", UINT64_C(20554567680) },
    { "gpt2-large", UINT64_C(774030080) },
    { "gpt2-xl", UINT64_C(1557611200) },
    { "gpt2", UINT64_C(124439808) },
    { "internlm-20b", UINT64_C(20088714240) },
    { "llama-13b", UINT64_C(13015864320) },
    { "llama-2-13b", UINT64_C(13015864320) },
    { "llama-2-70b", UINT64_C(68976648192) },
    { "llama-2-7b", UINT64_C(6738415616) },
    { "llama-3-70b", UINT64_C(70553706496) },
    { "llama-3-8b", UINT64_C(8030261248) },
    { "llama-3.1-405b", UINT64_C(405853388800) },
    { "llama-3.1-70b", UINT64_C(70553706496) },
    { "llama-3.1-8b", UINT64_C(8030261248) },
    { "llama-30b", UINT64_C(32528943616) },
    { "llama-65b", UINT64_C(65285660672) },
    { "llama-7b", UINT64_C(6738415616) },
    { "mistral-7b-v0.3", UINT64_C(7248023552) },
    { "mistral-nemo-12b", UINT64_C(12247782400) },
    { "mistral-small-24b", UINT64_C(23572403200) },
    { "mixtral-8x7b", UINT64_C(46702792704) },
    { "mpt-30b", UINT64_C(29957200896) },
    { "olmo-2-13b", UINT64_C(13716198400) },
    { "olmo-2-1b", UINT64_C(1484916736) },
    { "olmo-2-32b", UINT64_C(32234279936) },
    { "olmo-7b", UINT64_C(6888095744) },
    { "opt-1.3b", UINT64_C(1315758080) },
    { "opt-125m", UINT64_C(125239296) },
    { "opt-13b", UINT64_C(12853473280) },
    { "opt-175b", UINT64_C(174604468224) },
    { "opt-30b", UINT64_C(29974540288) },
    { "opt-66b", UINT64_C(65719701504) },
    { "phi-3-mini-4k", UINT64_C(3821079552) },
    { "phi-4-mini", UINT64_C(3836021760) },
    { "phi-4", UINT64_C(14659507200) },
    { "pythia-1.4b", UINT64_C(1414647808) },
    { "pythia-14m", UINT64_C(14067712) },
    { "pythia-160m", UINT64_C(162322944) },
    { "pythia-2.8b", UINT64_C(2775208960) },
    { "pythia-31m", UINT64_C(30494720) },
    { "pythia-6.9b", UINT64_C(6857302016) },
    { "qwen-72b", UINT64_C(72287920128) },
    { "qwen2-72b", UINT64_C(72706203648) },
    { "qwen2-7b", UINT64_C(7615616512) },
    { "qwen2.5-1.5b", UINT64_C(1543714304) },
    { "qwen2.5-14b", UINT64_C(14770033664) },
    { "qwen2.5-3b", UINT64_C(3085938688) },
    { "qwen2.5-72b", UINT64_C(72706203648) },
    { "qwen2.5-7b", UINT64_C(7615616512) },
    { "qwen3-0.6b", UINT64_C(596049920) },
    { "qwen3-1.7b", UINT64_C(1720574976) },
    { "qwen3-14b", UINT64_C(14768307200) },
    { "qwen3-8b", UINT64_C(8190735360) },
    { "roberta-base", UINT64_C(124697433) },
    { "roberta-large", UINT64_C(355412057) },
    { "santacoder", UINT64_C(1124886528) },
    { "smollm-360m", UINT64_C(361821120) },
    { "smollm2-1.7b", UINT64_C(1711376384) },
    { "smollm3-3b", UINT64_C(3075098624) },
    { "stablelm-2-1.6b", UINT64_C(1644515328) },
    { "stablelm-2-12b", UINT64_C(12143185920) },
    { "starcoder", UINT64_C(15517456384) },
    { "starcoder2-15b", UINT64_C(15957889024) },
    { "starcoder2-3b", UINT64_C(3030371328) },
    { "starcoder2-7b", UINT64_C(7173923840) },
    { "flan-t5-large", UINT64_C(783150080) },
    { "mt5-large", UINT64_C(1229581312) },
    { "t5-11b", UINT64_C(11307321344) },
    { "t5-3b", UINT64_C(2851598336) },
    { "t5-base", UINT64_C(222903552) },
    { "t5-small", UINT64_C(60506624) },
    { "t5-v1_1-xxl", UINT64_C(11135332352) },
    { "tinyllama-1.1b", UINT64_C(1100048384) },
    { "vit-base-patch16-224-in21k", UINT64_C(86389248) },
    { "vit-huge-patch14-224-in21k", UINT64_C(632404480) },
    { "vit-large-patch16-224", UINT64_C(304326632) },
    { "yi-9b", UINT64_C(8829407232) },
    { "chatglm3-6b", UINT64_C(6243584000) },
    { "dbrx", UINT64_C(131596523520) },
    { "deepseek-moe-16b", UINT64_C(16375728128) },
    { "deepseek-v2-lite", UINT64_C(15706484224) },
    { "deepseek-v3", UINT64_C(671026404352) },
    { "glm-4-32b-0414", UINT64_C(32566081536) },
    { "glm-4.5", UINT64_C(352797814784) },
    { "gpt-oss-20b", UINT64_C(20914757184) },
    { "granite-3.1-1b-a400m", UINT64_C(1334628352) },
    { "internlm2-20b", UINT64_C(19861149696) },
    { "kimi-k2", UINT64_C(1026408209408) },
    { "minicpm-2b", UINT64_C(2724880896) },
    { "olmoe-1b-7b", UINT64_C(6919161856) },
    { "phi-1.5", UINT64_C(1418270720) },
    { "phi-2", UINT64_C(2779683840) },
    { "phi-3.5-moe", UINT64_C(41873153344) },
    { "qwen1.5-moe-a2.7b", UINT64_C(14315784192) },
    { "qwen3-235b-a22b", UINT64_C(235093634560) },
    { "qwen3-30b-a3b", UINT64_C(30532122624) },
    { "mamba-370m", UINT64_C(371516416) },
    { "mamba-790m", UINT64_C(793204224) },
    { "mamba-2.8b", UINT64_C(2768345600) },
    { "mamba2-130m", UINT64_C(128989632) },
    { "mamba2-370m", UINT64_C(368346624) },
    { "mamba2-780m", UINT64_C(780161280) },
    { "mamba2-1.3b", UINT64_C(1343757312) },
    { "mamba2-2.7b", UINT64_C(2702599680) },
    { "jamba-v0.1", UINT64_C(51570323328) },
    { "jamba-1.5-large", UINT64_C(398555145696) },
    { "qwen3-next-80b-a3b", UINT64_C(79674391296) },
};

static const struct model_text *find_model(const char *name)
{
    return model_text_find(name, strlen(name));
}

static void test_exact_counts(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(exact); i++) {
        struct fixture f;
        const struct model_text *m = find_model(exact[i].name);
        if (!m)
            fail_msg("no model %s", exact[i].name);
        load_good(&f, m->json, m->len);
        if (count_params(&f.spec) != exact[i].count)
            fail_msg("%s: %llu parameters, not %llu", exact[i].name,
                     (unsigned long long)count_params(&f.spec),
                     (unsigned long long)exact[i].count);
        arena_release(&f.arena);
    }
}

static void test_catalogue(void **state)
{
    (void)state;
    assert_true(model_text_count() > 100);
    assert_null(model_text_at(model_text_count()));
    for (size_t i = 0; i < model_text_count(); i++) {
        const struct model_text *m = model_text_at(i);
        struct fixture f;
        if (i > 0)
            assert_true(strcmp(model_text_at(i - 1)->name, m->name) < 0);
        assert_ptr_equal(find_model(m->name), m);
        load_good(&f, m->json, m->len);
        assert_string_equal(f.spec.name, m->name);
        assert_true(f.spec.source[0] != '\0');
        /* of networks of convolutions: test_convnets */
        if (f.spec.published_parameters && !spec_is_convnet(&f.spec)
            && f.spec.published_parameters != count_params(&f.spec))
            fail_msg("%s: %llu parameters, the file says %llu", m->name,
                     (unsigned long long)count_params(&f.spec),
                     (unsigned long long)f.spec.published_parameters);
        arena_release(&f.arena);
    }
}

static void test_find(void **state)
{
    (void)state;
    assert_non_null(find_model("llama-7b"));
    assert_ptr_equal(find_model("llama-7b.json"), find_model("llama-7b"));
    assert_null(find_model("llama-7"));
    assert_null(find_model("llama-7b."));
    assert_null(find_model(""));
    assert_null(find_model(".json"));
    assert_null(find_model("zzz"));
    assert_string_equal(model_text_nearest("lama-7b", 7), "llama-7b");
    assert_string_equal(model_text_nearest("llama7b.json", 12), "llama-7b");
    assert_null(model_text_nearest("qqqqqqqqqqqq", 12));
}

/* ---- class defaults and traps ---- */

#define CORE                                                                   \
    "\"hidden_size\": 64, \"num_hidden_layers\": 2, "                          \
    "\"num_attention_heads\": 4, \"vocab_size\": 100"
#define FILE_OF(type, more) "{\"model_type\": \"" type "\", " CORE more "}"

/* A specification points into its arena (names, lists of layers): all that a
 * test asks for live until the last one ends. */
static struct {
    struct arena *arena;
    size_t count, capacity;
} kept;

static struct spec spec_of(const char *text)
{
    struct fixture f;
    load_good(&f, text, strlen(text));
    if (kept.count == kept.capacity) {
        kept.capacity = kept.capacity * 2 + 16;
        kept.arena = realloc(kept.arena, kept.capacity * sizeof *kept.arena);
        assert_non_null(kept.arena);
    }
    kept.arena[kept.count++] = f.arena;
    return f.spec;
}

static int release_kept(void **state)
{
    (void)state;
    while (kept.count > 0)
        arena_release(&kept.arena[--kept.count]);
    free(kept.arena);
    kept.arena = NULL;
    kept.capacity = 0;
    return 0;
}

static void test_kv_heads(void **state)
{
    (void)state;
    struct spec s = spec_of(FILE_OF("llama", ", \"intermediate_size\": 8"));
    assert_int_equal(s.kv_heads, 4);
    s = spec_of("{\"model_type\": \"mistral\", \"hidden_size\": 64, "
                "\"num_hidden_layers\": 2, \"num_attention_heads\": 16, "
                "\"vocab_size\": 9, \"intermediate_size\": 8}");
    assert_int_equal(s.kv_heads, 8);
    s = spec_of(FILE_OF("mistral", ", \"intermediate_size\": 8, "
                                   "\"num_key_value_heads\": null"));
    assert_int_equal(s.kv_heads, 4);
    s = spec_of(FILE_OF("gpt_bigcode", ", \"n_positions\": 8"));
    assert_int_equal(s.kv_heads, 1);
    assert_int_equal(s.learned_positions, 8);
    s = spec_of(FILE_OF("gpt_bigcode", ", \"n_positions\": 8, "
                                       "\"multi_query\": false"));
    assert_int_equal(s.kv_heads, 4);
    s = spec_of(FILE_OF("mpt", ", \"attn_config\": {\"kv_n_heads\": 2}"));
    assert_int_equal(s.kv_heads, 2);
    assert_int_equal(s.position, POS_ALIBI);
}

/* Heads by the class's name; classes counted by their names; RoBERTa's table
 * has two rows for padding, and its key counts them. */
static void test_encoders(void **state)
{
    (void)state;
    struct spec s = spec_of(FILE_OF("bert", ", \"intermediate_size\": 8"));
    assert_true(s.bidirectional && s.tied && s.embedding_norm);
    assert_int_equal(s.head, HEAD_MASKED_LM);
    assert_int_equal(s.token_types, 2);
    assert_int_equal(s.learned_positions, 512);
    assert_int_equal(s.place, PLACE_AFTER_RESIDUAL);
    s = spec_of(FILE_OF("bert",
                        ", \"intermediate_size\": 8, \"architectures\": "
                        "[\"BertForSequenceClassification\"], \"id2label\": "
                        "{\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"}"));
    assert_int_equal(s.head, HEAD_SEQUENCE);
    assert_int_equal(s.labels, 3);
    s = spec_of(FILE_OF("bert", ", \"intermediate_size\": 8, "
                                "\"architectures\": [\"BertModel\"], "
                                "\"classifier_dropout\": null"));
    assert_int_equal(s.head, HEAD_POOLED);
    assert_true(s.head_dropout > 0.09 && s.head_dropout < 0.11);
    s = spec_of(FILE_OF("roberta", ", \"intermediate_size\": 8, "
                                   "\"max_position_embeddings\": 514"));
    assert_int_equal(s.max_positions, 512);
    assert_int_equal(s.learned_positions, 514);
    s = spec_of(FILE_OF("encoder", ", \"gated_mlp\": false"));
    assert_true(s.bidirectional && s.final_norm);
    assert_int_equal(s.head, HEAD_LM);
}

/* Decoders' heads for classes (modeling_layers.py): what their class reads of a
 * file is known where the text says "memplan": 1, too. */
static void test_classes_of_decoders(void **state)
{
#define CLASSES(class, more)                                                   \
    FILE_OF("llama",                                                           \
            ", \"intermediate_size\": 8, \"memplan\": 1, "                     \
            "\"architectures\": [\"LlamaFor" class "Classification\"], " more)
    (void)state;
    struct spec s = spec_of(CLASSES("Sequence", "\"num_labels\": 3"));
    assert_int_equal(s.head, HEAD_SEQUENCE);
    assert_int_equal(s.labels, 3);
    assert_int_equal(s.problem, PROBLEM_CLASS);
    s = spec_of(CLASSES("Sequence", "\"num_labels\": 1"));
    assert_int_equal(s.problem, PROBLEM_OTHERS);
    s = spec_of(CLASSES("Sequence", "\"id2label\": {\"0\": \"a\"}, "
                                    "\"problem_type\": "
                                    "\"single_label_classification\""));
    assert_int_equal(s.labels, 1);
    assert_int_equal(s.problem, PROBLEM_CLASS);
    s = spec_of(CLASSES("Token", "\"classifier_dropout\": 0.25"));
    assert_int_equal(s.head, HEAD_TOKEN);
    assert_true(s.head_dropout >= 0.25 && s.head_dropout <= 0.25);
    s = spec_of(CLASSES("Token", "\"classifier_dropout\": null"));
    assert_true(s.head_dropout > 0.09 && s.head_dropout < 0.11);
#undef CLASSES
}

/* Parameters of a residual network, by hand: blocks' convolutions and norms. */
static uint64_t resnet_params(const struct spec *s)
{
    const struct resnet *r = &s->resnet;
    uint64_t in = r->width, wide = r->bottleneck ? 4 : 1;
    const uint64_t taps = r->small_stem ? 9 : 49;
    uint64_t n = s->channels * taps * r->width + 2 * r->width;
    for (uint64_t i = 0; i < r->stages; i++) {
        const uint64_t w = r->width << i, out = w * wide;
        for (uint64_t k = 0; k < r->blocks[i]; k++, in = out) {
            n += r->bottleneck ? in * w + 9 * w * w + w * out + 4 * w + 2 * out
                               : 9 * in * w + 9 * w * w + 4 * w;
            n += in != out ? in * out + 2 * out : 0;
        }
    }
    return n + in * s->labels + s->labels;
}

static void test_convnets(void **state)
{
    (void)state;
    unsigned found = 0;
    for (size_t i = 0; i < model_text_count(); i++) {
        const struct model_text *m = model_text_at(i);
        struct fixture f;
        load_good(&f, m->json, m->len);
        if (f.spec.resnet.stages > 0) {
            found++;
            if (f.spec.published_parameters > 0)
                assert_int_equal(resnet_params(&f.spec),
                                 f.spec.published_parameters);
            assert_true(f.spec.resnet.small_stem
                        == (f.spec.published_parameters == 0));
            /* what that network has when it is built */
            if (strcmp(m->name, "resnet-18-cifar") == 0)
                assert_int_equal(resnet_params(&f.spec), 11173962);
            if (strcmp(m->name, "resnet-50-cifar") == 0)
                assert_int_equal(resnet_params(&f.spec), 23520842);
        }
        arena_release(&f.arena);
    }
    assert_int_equal(found, 10);
    const struct spec s =
        spec_of("{\"model_type\": \"convnet\", \"input\": [1, 28, 20], "
                "\"num_classes\": 7, \"resnet\": {\"blocks\": [2, 1], "
                "\"bottleneck\": false, \"width\": 16, \"stem\": \"cifar\"}}");
    assert_int_equal(s.layers, 3);
    assert_int_equal(s.channels, 1);
    assert_int_equal(s.resnet.width_pixels, 20);
    assert_int_equal(s.labels, 7);
    assert_true(s.resnet.small_stem && !s.resnet.bottleneck);
}

#define LIST_OF(layers)                                                        \
    "{\"model_type\": \"convnet\", \"input\": [3, 32, 30], \"num_classes\": "  \
    "10, \"layers\": [" layers "]}"
#define CONV_OF(more)                                                          \
    "{\"type\": \"conv2d\", \"out\": 8, \"kernel\": 3" more "}"
#define ENDS ", {\"type\": \"flatten\"}, {\"type\": \"linear\", \"out\": 10}"

static void assert_says(const char *text, const char *message)
{
    struct fixture f;
    load(&f, text, strlen(text));
    if (f.errs.count == 0 || strstr(f.slot[0].message, message) == NULL)
        fail_msg("%s: %s", message,
                 f.errs.count == 0 ? "no error" : f.slot[0].message);
    assert_true(f.slot[0].line > 0);
    arena_release(&f.arena);
}

/* PyTorch's formula: pooling_output_shape, the last window begins inside. */
static void test_layers_of_a_convnet(void **state)
{
    (void)state;
    static const char text[] = LIST_OF(CONV_OF(
        ", \"stride\": [2, 1], \"padding\": 1, \"name\": \"first\"") ", {\"type\": \"maxpool2d\", \"kernel\": 2, \"ceil_mode\": true, "
                                                                     "\"stride\": 3}, " CONV_OF(
                                                                         ", \"dilation\": 2, \"groups\": 4") ", {\"type\": \"relu\"}, {\"type\": \"avgpool2d\", \"output\": 1}" ENDS);
    struct fixture f;
    load_good(&f, text, strlen(text));
    const struct spec s = f.spec;
    assert_int_equal(s.n_conv, 7);
    assert_int_equal(s.layers, 1);
    assert_string_equal(s.conv[0].name, "first");
    assert_int_equal(s.conv[0].gives.side[0], 16);
    assert_int_equal(s.conv[0].gives.side[1], 30);
    assert_int_equal(s.conv[1].gives.side[0], 6);
    assert_int_equal(s.conv[1].gives.side[1], 10);
    assert_int_equal(s.conv[2].gives.side[0], 2);
    assert_int_equal(s.conv[2].gives.side[1], 6);
    assert_int_equal(s.conv[2].groups, 4);
    assert_true(s.conv[2].bias && !s.conv[3].in_place);
    assert_int_equal(s.conv[4].gives.side[1], 1);
    assert_true(s.conv[5].gives.flat);
    assert_int_equal(s.conv[5].gives.channels, 8);
    arena_release(&f.arena);
}

/* Each names the layer, and says what came in. */
static void test_layers_that_cannot_be(void **state)
{
    static const struct {
        const char *file, *says;
    } cases[] = {
        { LIST_OF(CONV_OF("")), "layer 1 (conv2d) is the last and gives "
                                "8x30x28, not the 10 of 'num_classes'" },
        { LIST_OF(CONV_OF("") ", {\"type\": \"linear\", \"out\": 10, "
                              "\"name\": \"fc\"}"),
          "layer 2 ('fc', linear) wants a row of numbers, but what comes in "
          "is 8x30x28" },
        { LIST_OF(CONV_OF(", \"name\": \"a\"") ", " CONV_OF(
              "") ", {\"type\": \"add\", \"from\": \"a\"}" ENDS),
          "layer 3 (add) adds 8x28x26 to 8x30x28, which layer 1 gives" },
        { LIST_OF(CONV_OF(", \"stride\": 40") ", " CONV_OF("") ENDS),
          "layer 2 (conv2d) has a window of 3x3, but what comes in is 8x1x1" },
        { LIST_OF(CONV_OF(", \"groups\": 2") ENDS),
          "layer 1 (conv2d) has 2 groups and makes 8 channels, but what comes "
          "in is 3x32x30" },
        { LIST_OF("{\"type\": \"flatten\"}, " CONV_OF("")),
          "layer 2 (conv2d) wants channels x height x width, but 2880 numbers "
          "come in" },
        { LIST_OF(CONV_OF("") ", " CONV_OF("") ", {\"type\": \"relu\", "
                                               "\"inplace\": true, \"input\": "
                                               "1}" ENDS),
          "layer 3 (relu) is in place, over what layer 2 (conv2d) keeps for "
          "backward" },
        { LIST_OF("{\"type\": \"dropout\"}, " CONV_OF(
              "") ", {\"type\": \"relu\", \"input\": 0}" ENDS),
          "layer 3 takes what comes before the first layer that is trained, "
          "which is not modelled" },
        { LIST_OF("{\"type\": \"conv3d\"}"),
          "layer 1 has a 'type' that is not known" },
        { LIST_OF("{\"type\": \"conv2d\", \"kernel\": 3}"),
          "layer 1 has no 'out'" },
        { LIST_OF("{\"type\": \"conv2d\", \"out\": 3}"),
          "layer 1 has no 'kernel'" },
        { LIST_OF(CONV_OF(", \"kernal\": 3") ENDS),
          "layer 1 has a key 'kernal' that a conv2d has not" },
        { LIST_OF(CONV_OF("") ", {\"type\": \"add\"}" ENDS),
          "layer 2 has no 'from'" },
        { LIST_OF(CONV_OF("") ", {\"type\": \"add\", \"from\": 2}" ENDS),
          "layer 2 has a 'from' that is no earlier layer" },
        { LIST_OF(CONV_OF(", \"name\": \"a\"") ", {\"type\": \"relu\", "
                                               "\"name\": \"a\"}" ENDS),
          "layer 2 ('a') has the name of an earlier layer" },
        { LIST_OF(CONV_OF(", \"padding\": [1, 2, 3]") ENDS),
          "layer 1 has sides that are not two" },
        { LIST_OF(CONV_OF("") ", {\"type\": \"maxpool2d\", \"kernel\": 2, "
                              "\"padding\": 2}" ENDS),
          "layer 2 is padded by more than half its kernel" },
        { LIST_OF(CONV_OF("") ", {\"type\": \"avgpool2d\", \"kernel\": 2, "
                              "\"output\": 1}" ENDS),
          "layer 2 has both 'output' and 'kernel'" },
        { LIST_OF(CONV_OF("") ", {\"type\": \"dropout\", \"p\": 1}" ENDS),
          "layer 2 has a 'p' that is no probability" },
        { LIST_OF("7"), "layer 1 is no object" },
        { LIST_OF(""), "'layers' must be a list of 1 to 1000 layers" },
        { LIST_OF("{\"type\": \"flatten\"}"),
          "no layer of 'layers' has anything to train" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_says(cases[i].file, cases[i].says);
}

/* T5's activation and gate are one word; a stack without a number of layers is
 * as deep as the other. */
static void test_two_stacks(void **state)
{
    (void)state;
    struct spec s = spec_of(FILE_OF("t5", ", \"feed_forward_proj\": "
                                          "\"gated-gelu\", \"d_kv\": 8"));
    assert_int_equal(s.decoder_layers, 2);
    assert_int_equal(s.head_dim, 8);
    assert_true(s.gated_mlp && s.act == ACT_GELU_NEW);
    assert_true(s.final_norm && !s.bidirectional);
    s = spec_of(FILE_OF("t5", ", \"num_decoder_layers\": 5"));
    assert_int_equal(s.decoder_layers, 5);
    assert_true(!s.gated_mlp && s.act == ACT_RELU && s.tied);
    s = spec_of(FILE_OF("mt5", "")); /* whose class has another default */
    assert_true(s.gated_mlp && s.act == ACT_GELU_NEW && !s.tied);
    s = spec_of(FILE_OF("bart",
                        ", \"encoder_layers\": 2, \"decoder_layers\": 4,"
                        " \"decoder_attention_heads\": 4"));
    assert_int_equal(s.layers, 2);
    assert_int_equal(spec_of(FILE_OF("bart", "")).layers, 2);
    assert_int_equal(s.decoder_layers, 4);
    assert_int_equal(s.learned_positions, 1026);
}

/* A class's defaults are those of Whisper tiny; a decoder has its own
 * widths. */
static void test_whisper(void **state)
{
    (void)state;
    struct spec s = spec_of("{\"model_type\": \"whisper\"}");
    assert_int_equal(count_params(&s), 37760640);
    assert_int_equal(s.max_positions, 1500);
    assert_int_equal(s.target_positions, 448);
    assert_true(s.q_bias && !s.k_bias && s.v_bias && s.o_bias && s.tied);
    s = spec_of("{\"model_type\": \"whisper\", \"decoder_layers\": 2, "
                "\"decoder_ffn_dim\": 512, \"decoder_attention_heads\": 12}");
    assert_int_equal(s.layers, 4);
    assert_int_equal(s.decoder_layers, 2);
    assert_int_equal(s.decoder_ffn, 512);
    assert_int_equal(s.decoder_heads, 12);
}

/* The original of Peebles and Xie, and diffusers' class under both names. */
static void test_dit(void **state)
{
    (void)state;
    struct spec s = spec_of("{\"model_type\": \"dit\"}");
    assert_int_equal(count_params(&s), 675129632);
    assert_int_equal(s.max_positions, 256);
    assert_int_equal(s.out_channels, 8);
    s = spec_of("{\"model_type\": \"dit\", \"learn_sigma\": false}");
    assert_int_equal(s.out_channels, 4);
    s = spec_of("{\"_class_name\": \"DiTTransformer2DModel\", "
                "\"out_channels\": 8}");
    assert_int_equal(count_params(&s), 749826464);
    assert_int_equal(s.hidden, 1152);
    s = spec_of("{\"_class_name\": \"Transformer2DModel\", \"norm_type\": "
                "\"ada_norm_zero\", \"norm_elementwise_affine\": true}");
    assert_int_equal(s.norm, NORM_LAYER);
    assert_int_equal(s.out_channels, 4);
    assert_false(s.shared_embedder);
}

/* ViT's sequence: its patches and the class. */
static void test_vit(void **state)
{
    (void)state;
    const struct spec s = spec_of(
        "{\"model_type\": \"vit\", \"hidden_size\": 64, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
        "\"intermediate_size\": 8, \"image_size\": 60, \"patch_size\": 16}");
    assert_int_equal(s.max_positions, 10);
    assert_int_equal(s.head, HEAD_FIRST);
    assert_int_equal(s.channels, 3);
}

/* falcon-7b as saved by newer transformers says num_kv_heads 71. */
static void test_falcon(void **state)
{
    (void)state;
    struct spec s = spec_of(FILE_OF("falcon", ", \"num_kv_heads\": 4"));
    assert_int_equal(s.kv_heads, 1);
    assert_true(s.parallel_residual && s.shared_norm && s.tied);
    assert_int_equal(s.ffn, 256);
    assert_int_equal(s.max_positions, 2048);
    s = spec_of(FILE_OF("falcon", ", \"multi_query\": false, \"alibi\": true, "
                                  "\"parallel_attn\": false, \"bias\": true"));
    assert_int_equal(s.kv_heads, 4);
    assert_int_equal(s.position, POS_ALIBI);
    assert_int_equal(s.rotary_dim, 0);
    assert_true(s.q_bias && s.v_bias && s.o_bias && s.mlp_bias);
    assert_false(s.parallel_residual || s.shared_norm);
    s = spec_of("{\"model_type\": \"RefinedWeb\", \"hidden_size\": 64, "
                "\"n_layer\": 2, \"n_head\": 4, \"n_head_kv\": 2, "
                "\"vocab_size\": 9}");
    assert_int_equal(s.family, FAM_FALCON);
    assert_int_equal(s.kv_heads, 2);
    assert_false(s.shared_norm);
    s = spec_of(FILE_OF("RefinedWebModel", ""));
    assert_int_equal(s.kv_heads, 1);
    s = spec_of(FILE_OF("falcon", ", \"new_decoder_architecture\": true, "
                                  "\"num_ln_in_parallel_attn\": 1"));
    assert_true(s.shared_norm);
    assert_int_equal(s.kv_heads, 4);
    /* As saved by newer transformers: null is what the generation has. */
    s = spec_of(FILE_OF("falcon", ", \"num_ln_in_parallel_attn\": null"));
    assert_true(s.shared_norm);
    s = spec_of(FILE_OF("falcon", ", \"new_decoder_architecture\": true, "
                                  "\"num_ln_in_parallel_attn\": null"));
    assert_false(s.shared_norm);
    /* A bound that no field reads, as Python's json writes it. */
    s = spec_of(FILE_OF("falcon", ", \"time_step_limit\": [0.0, Infinity]"));
    assert_int_equal(s.kv_heads, 1);
}

static void test_opt(void **state)
{
    (void)state;
    struct spec s = spec_of(
        FILE_OF("opt", ", \"ffn_dim\": 8, \"max_position_embeddings\": 10"));
    assert_int_equal(s.learned_positions, 12);
    assert_int_equal(s.max_positions, 10);
    assert_int_equal(s.place, PLACE_PRE);
    assert_true(s.final_norm && s.q_bias && s.o_bias && s.mlp_bias);
    s = spec_of(FILE_OF("opt", ", \"ffn_dim\": 8, \"n_positions\": 10, "
                               "\"do_layer_norm_before\": false, "
                               "\"word_embed_proj_dim\": 32"));
    assert_int_equal(s.place, PLACE_AFTER_RESIDUAL);
    assert_false(s.final_norm);
    assert_int_equal(s.embed_dim, 32);
    s = spec_of(FILE_OF("opt", ", \"ffn_dim\": 8, \"n_positions\": 10, "
                               "\"_remove_final_layer_norm\": true, "
                               "\"layer_norm_elementwise_affine\": false, "
                               "\"enable_bias\": false"));
    assert_int_equal(s.place, PLACE_PRE);
    assert_int_equal(s.norm, NORM_LAYER_PLAIN);
    assert_false(s.final_norm || s.q_bias || s.o_bias || s.mlp_bias);
}

static void test_head_dim(void **state)
{
    (void)state;
    struct spec s = spec_of(FILE_OF(
        "gemma", ", \"num_key_value_heads\": 4, \"intermediate_size\": 8"));
    assert_int_equal(s.head_dim, 256);
    s = spec_of(FILE_OF(
        "qwen3", ", \"num_key_value_heads\": 4, \"intermediate_size\": 8"));
    assert_int_equal(s.head_dim, 128);
    assert_int_equal(s.qk_norm, QK_PER_HEAD);
    s = spec_of(FILE_OF(
        "qwen3",
        ", \"num_key_value_heads\": 4, \"intermediate_size\": 8, \"head_dim\": null"));
    assert_int_equal(s.head_dim, 16);
    s = spec_of(FILE_OF("mistral", ", \"intermediate_size\": 8, "
                                   "\"num_key_value_heads\": 2, "
                                   "\"head_dim\": 24"));
    assert_int_equal(s.head_dim, 24);
    assert_int_equal(s.rotary_dim, 24);
}

/* No key says that these are there. */
static void test_silent_biases(void **state)
{
    (void)state;
    struct spec s = spec_of(FILE_OF(
        "qwen2", ", \"num_key_value_heads\": 4, \"intermediate_size\": 8"));
    assert_true(s.q_bias && s.k_bias && s.v_bias);
    assert_false(s.o_bias || s.mlp_bias);
    s = spec_of(FILE_OF("qwen", ", \"intermediate_size\": 8"));
    assert_true(s.q_bias && s.fused_qkv);
    assert_false(s.o_bias || s.mlp_bias);
    assert_int_equal(s.ffn, 4);
    s = spec_of(FILE_OF("gptj", ", \"rotary_dim\": 8"));
    assert_true(s.head_bias && s.mlp_bias && s.shared_norm);
    assert_false(s.q_bias || s.o_bias);
    assert_int_equal(s.rotary_dim, 8);
    s = spec_of(FILE_OF("gptj", ", \"rotary_dim\": null"));
    assert_int_equal(s.rotary_dim, 16);
    s = spec_of(FILE_OF("gpt_neo", ", \"n_positions\": 8"));
    assert_true(s.o_bias && s.mlp_bias);
    assert_false(s.q_bias || s.k_bias || s.v_bias);
    s = spec_of(
        FILE_OF("starcoder2",
                ", \"num_key_value_heads\": 4, \"intermediate_size\": 8"));
    assert_true(s.q_bias && s.o_bias && s.mlp_bias && s.tied);
}

static void test_norms(void **state)
{
    (void)state;
    struct spec s = spec_of(FILE_OF("gpt_neox", ", \"intermediate_size\": 8"));
    assert_true(s.parallel_residual);
    assert_false(s.shared_norm);
    assert_int_equal(s.rotary_dim, 4);
    s = spec_of(FILE_OF("olmo", ", \"intermediate_size\": 8"));
    assert_int_equal(s.norm, NORM_LAYER_PLAIN);
    s = spec_of(FILE_OF("olmo2", ", \"intermediate_size\": 8"));
    assert_int_equal(s.place, PLACE_POST);
    assert_int_equal(s.qk_norm, QK_FULL);
    s = spec_of(
        FILE_OF("cohere", ", \"intermediate_size\": 8, \"use_qk_norm\": true"));
    assert_int_equal(s.qk_norm, QK_EACH_HEAD);
    assert_true(s.parallel_residual && s.shared_norm && s.tied);
    assert_true(s.logit_scale > 0.0624 && s.logit_scale < 0.0626);
    s = spec_of(FILE_OF(
        "stablelm", ", \"num_key_value_heads\": 4, \"intermediate_size\": 8, "
                    "\"use_parallel_residual\": true"));
    assert_true(s.shared_norm);
    assert_int_equal(s.qk_norm, QK_NONE);
    s = spec_of(FILE_OF("mpt", ", \"no_bias\": false, \"max_seq_len\": 8, "
                               "\"attn_config\": {\"alibi\": false}"));
    assert_int_equal(s.norm, NORM_LAYER);
    assert_int_equal(s.learned_positions, 8);
    assert_true(s.q_bias && s.o_bias && s.mlp_bias);
}

static void test_activations(void **state)
{
    (void)state;
    /* transformers does not look at hidden_act here */
    struct spec s = spec_of(FILE_OF(
        "gemma", ", \"num_key_value_heads\": 4, \"intermediate_size\": 8, "
                 "\"hidden_act\": \"gelu\""));
    assert_int_equal(s.act, ACT_GELU_TANH);
    s = spec_of(FILE_OF("gemma2", ", \"intermediate_size\": 8, "
                                  "\"hidden_activation\": \"gelu\""));
    assert_int_equal(s.act, ACT_GELU);
    s = spec_of(FILE_OF(
        "starcoder2", ", \"num_key_value_heads\": 4, \"intermediate_size\": 8, "
                      "\"activation_function\": \"gelu\", "
                      "\"hidden_act\": \"gelu_pytorch_tanh\""));
    assert_int_equal(s.act, ACT_GELU_TANH);
    s = spec_of(FILE_OF("llama", ", \"intermediate_size\": 8, "
                                 "\"hidden_act\": \"swish\""));
    assert_int_equal(s.act, ACT_SILU);
    s = spec_of(FILE_OF("falcon", ", \"activation\": \"relu2\""));
    assert_int_equal(s.act, ACT_RELU2);
    s = spec_of(FILE_OF("bloom", ""));
    assert_int_equal(s.act, ACT_GELU_BLOOM);
    assert_true(s.embedding_norm && s.tied);
    s = spec_of(FILE_OF("gpt_neox", ", \"intermediate_size\": 8, "
                                    "\"hidden_act\": \"gelu_fast\""));
    assert_int_equal(s.act, ACT_GELU_FAST);
    s = spec_of(FILE_OF("gpt2", ", \"n_positions\": 8, \"n_inner\": null"));
    assert_int_equal(s.act, ACT_GELU_NEW);
    assert_int_equal(s.ffn, 256);
    s = spec_of(FILE_OF("opt", ", \"n_positions\": 8, \"ffn_dim\": 8"));
    assert_int_equal(s.act, ACT_RELU);
}

static void test_windows(void **state)
{
    (void)state;
    struct spec s = spec_of(FILE_OF(
        "qwen2", ", \"num_key_value_heads\": 4, \"intermediate_size\": 8, "
                 "\"sliding_window\": 32"));
    assert_int_equal(s.sliding_window, 0);
    s = spec_of(FILE_OF(
        "qwen2", ", \"num_key_value_heads\": 4, \"intermediate_size\": 8, "
                 "\"sliding_window\": 32, "
                 "\"use_sliding_window\": true, "
                 "\"max_window_layers\": 1"));
    assert_int_equal(s.sliding_window, 32);
    assert_int_equal(s.slides.first, 1);
    s = spec_of(FILE_OF("gemma2", ", \"intermediate_size\": 8, "
                                  "\"final_logit_softcapping\": null"));
    assert_int_equal(s.sliding_window, 4096);
    assert_int_equal(s.slides.every, 2);
    assert_true(s.attn_softcap > 49.0 && s.final_softcap < 1.0);
    s = spec_of(FILE_OF("gemma2", ", \"intermediate_size\": 8, "
                                  "\"sliding_window\": null"));
    assert_int_equal(s.sliding_window, 0);
    assert_int_equal(s.slides.every, 0);
}

static void test_numbers(void **state)
{
    (void)state;
    struct spec s =
        spec_of(FILE_OF("llama", ", \"intermediate_size\": 8.0, "
                                 "\"max_position_embeddings\": 131072.0"));
    assert_int_equal(s.max_positions, 131072);
    /* ignored in a plain config.json */
    s = spec_of(FILE_OF("llama", ", \"intermediate_size\": 8, \"name\": 3, "
                                 "\"rms_norm_epz\": [], \"parameters\": {}, "
                                 "\"layer_types\": [\"full_attention\", "
                                 "\"full_attention\"], "
                                 "\"num_experts\": 0, \"head_dim\": null"));
    assert_int_equal(s.published_parameters, 0);
    /* two names of one thing may agree */
    s = spec_of(FILE_OF("falcon", ", \"n_head\": 4, \"n_layer\": 2"));
    assert_int_equal(s.heads, 4);
}

static void test_decoder(void **state)
{
    (void)state;
    struct spec s = spec_of(FILE_OF("decoder", ", \"gated_mlp\": false"));
    assert_int_equal(s.ffn, 256);
    assert_int_equal(s.norm, NORM_RMS);
    assert_int_equal(s.act, ACT_SILU);
    assert_int_equal(s.position, POS_ROPE);
    assert_false(s.q_bias || s.o_bias || s.mlp_bias || s.head_bias || s.tied);
    s = spec_of(FILE_OF(
        "decoder",
        ", \"memplan\": 1, \"x-mine\": [1], \"notes\": 1, "
        "\"intermediate_size\": 8, \"norm\": \"layernorm\", "
        "\"hidden_act\": \"swiglu\", \"position_embedding\": \"learned\", "
        "\"max_position_embeddings\": 16, \"attention_bias\": true, "
        "\"attention_out_bias\": true, \"mlp_bias\": true, "
        "\"lm_head_bias\": true, \"qk_norm\": true, "
        "\"parallel_residual\": true, \"shared_norm\": true, "
        "\"embedding_norm\": true, \"sliding_window\": 4, "
        "\"hidden_dropout\": 0.1, \"attention_dropout\": 0.2, "
        "\"parameters\": 12, \"q_lora_rank\": null, "
        "\"num_nextn_predict_layers\": 0"));
    assert_int_equal(s.published_parameters, 12);
    assert_int_equal(s.norm, NORM_LAYER);
    assert_int_equal(s.act, ACT_SILU);
    assert_true(s.gated_mlp && s.shared_norm && s.embedding_norm);
    assert_int_equal(s.learned_positions, 16);
    assert_int_equal(s.qk_norm, QK_PER_HEAD);
    assert_true(s.v_bias && s.o_bias && s.mlp_bias && s.head_bias);
    assert_int_equal(s.sliding_window, 4);
    assert_true(s.embed_dropout > 0.09 && s.attention_dropout > 0.19);
    s = spec_of(FILE_OF("decoder", ", \"position_embedding\": \"none\", "
                                   "\"intermediate_size\": 8"));
    assert_int_equal(s.position, POS_NONE);
}

static void test_experts(void **state)
{
    (void)state;
    struct spec s = spec_of(FILE_OF("mixtral", ", \"intermediate_size\": 8, "
                                               "\"num_key_value_heads\": 2"));
    assert_int_equal(s.experts, 8);
    assert_int_equal(s.experts_per_token, 2);
    assert_int_equal(s.expert_ffn, 8);
    assert_int_equal(s.sparse.every, 1);
    s = spec_of(FILE_OF("decoder",
                        ", \"num_experts\": 4, \"num_experts_per_tok\": 2, "
                        "\"moe_intermediate_size\": 16, "
                        "\"n_shared_experts\": 3, \"router_bias\": true"));
    assert_int_equal(s.ffn, 16);
    assert_int_equal(s.shared_ffn, 48);
    assert_true(s.router_bias);
    s = spec_of(FILE_OF("decoder",
                        ", \"num_experts\": 4, \"num_experts_per_tok\": 2, "
                        "\"intermediate_size\": 32, "
                        "\"first_k_dense_replace\": 1, "
                        "\"shared_expert_intermediate_size\": 24"));
    assert_int_equal(s.expert_ffn, 32);
    assert_int_equal(s.sparse.first, 1);
    assert_int_equal(s.shared_ffn, 24);
}

enum which { SPARSE, SLIDES, ROTATES };

/* Of layer i, in a text of four layers: what the pattern holds of each. */
static void check_pattern(const char *text, enum which which, const char *want)
{
    struct fixture f;
    load_good(&f, text, strlen(text));
    const struct pattern *p = which == SLIDES    ? &f.spec.slides
                              : which == ROTATES ? &f.spec.rotates
                                                 : &f.spec.sparse;
    for (uint64_t i = 0; i < f.spec.layers; i++)
        assert_int_equal(pattern_has(p, i), want[i] == '1');
    arena_release(&f.arena);
}

#define EXPERTS                                                                \
    "\"n_routed_experts\": 4, \"num_experts_per_tok\": 1, "                    \
    "\"n_shared_experts\": 1, \"num_key_value_heads\": 4, "
#define FOUR(type, more)                                                       \
    "{\"model_type\": \"" type "\", \"hidden_size\": 64, "                     \
    "\"num_hidden_layers\": 4, \"num_attention_heads\": 4, "                   \
    "\"vocab_size\": 100, \"intermediate_size\": 8, " more "}"

static void test_patterns(void **state)
{
    (void)state;
    check_pattern(FOUR("qwen3_moe", "\"mlp_only_layers\": []"), SPARSE, "1111");
    check_pattern(FOUR("qwen3_moe", "\"mlp_only_layers\": [0, 3]"), false,
                  "0110");
    check_pattern(FOUR("qwen3_moe", "\"mlp_only_layers\": [1], "
                                    "\"decoder_sparse_step\": 2"),
                  SPARSE, "0001");
    check_pattern(FOUR("deepseek_v3", "\"first_k_dense_replace\": 2"), false,
                  "0011");
    check_pattern(
        FOUR("gpt_oss", "\"num_key_value_heads\": 4, \"sliding_window\": 8"),
        SLIDES, "1010");
    check_pattern(
        FOUR(
            "gpt_oss",
            "\"num_key_value_heads\": 4, \"layer_types\": [\"full_attention\", "
            "\"sliding_attention\", \"full_attention\", "
            "\"full_attention\"]"),
        SLIDES, "0100");
    check_pattern(FOUR("ernie4_5_moe", "\"moe_layer_start_index\": 1, "
                                       "\"moe_layer_end_index\": 2"),
                  SPARSE, "0110");
    check_pattern(FOUR("ernie4_5_moe", "\"moe_layer_end_index\": -1"), SPARSE,
                  "0111");
    check_pattern(FOUR("ernie4_5_moe", "\"moe_layer_interval\": 2"), SPARSE,
                  "0101");
    check_pattern(FOUR("dots1", EXPERTS "\"max_window_layers\": 3"), SLIDES,
                  "0001");
}

#define LLAMA4 "\"num_key_value_heads\": 4"
#define GEMMA3(more) FOUR("gemma3_text", more)
#define TYPES(a, b, c, d)                                                      \
    "\"layer_types\": [\"" a "_attention\", \"" b "_attention\", \"" c         \
    "_attention\", \"" d "_attention\"]"

/* All but the last of each so many, and lists in place of that. */
static void test_steps(void **state)
{
    (void)state;
    check_pattern(FOUR("smollm3", "\"num_key_value_heads\": 4"), ROTATES,
                  "1110");
    check_pattern(FOUR("smollm3", "\"no_rope_layer_interval\": 2"), ROTATES,
                  "1010");
    check_pattern(FOUR("smollm3", "\"no_rope_layers\": null"), ROTATES, "1110");
    check_pattern(FOUR("smollm3", "\"no_rope_layers\": [0, 1, 0, 0, 1]"),
                  ROTATES, "0100");
    check_pattern(FOUR("smollm3", "\"sliding_window\": 8, "
                                  "\"use_sliding_window\": true"),
                  SLIDES, "0001");
    check_pattern(GEMMA3("\"sliding_window_pattern\": 3"), SLIDES, "1101");
    check_pattern(GEMMA3("\"num_key_value_heads\": 2"), SLIDES, "1111");
    check_pattern(GEMMA3(TYPES("full", "sliding", "full", "full")), SLIDES,
                  "0100");
    check_pattern(FOUR("cohere2", "\"sliding_window_pattern\": 2"), SLIDES,
                  "1010");
    check_pattern(FOUR("cohere2", TYPES("full", "full", "sliding", "full")),
                  ROTATES, "0010");
    check_pattern(FOUR("llama4_text", LLAMA4), ROTATES, "1110");
    check_pattern(FOUR("llama4_text", LLAMA4), SLIDES, "1110");
    check_pattern(FOUR("llama4_text", LLAMA4), SPARSE, "1111");
    check_pattern(FOUR("llama4_text", LLAMA4 ", \"no_rope_layers\": []"),
                  ROTATES, "1110");
    check_pattern(
        FOUR("llama4_text", LLAMA4 ", \"interleave_moe_layer_step\": 2"),
        SPARSE, "0101");
    check_pattern(FOUR("llama4_text", LLAMA4 ", \"moe_layers\": [0, 2]"),
                  SPARSE, "1010");
    check_pattern(FOUR("llama4_text", LLAMA4 ", \"moe_layers\": []"), SPARSE,
                  "0000");
    check_pattern(FOUR("llama4_text",
                       LLAMA4 ", " TYPES("full", "chunked", "full", "full")),
                  SLIDES, "0100");
    check_pattern(FOUR("deepseek_v32",
                       "\"mlp_layer_types\": [\"dense\", \"sparse\", "
                       "\"sparse\", \"dense\"]"),
                  SPARSE, "0110");
    check_pattern(FOUR("olmo3", "\"sliding_window\": 8"), SLIDES, "1110");
    check_pattern(FOUR("exaone4", "\"num_key_value_heads\": 4"), ROTATES,
                  "1110");
    check_pattern(FOUR("exaone4", "\"num_key_value_heads\": 4, "
                                  "\"sliding_window_pattern\": \"LLG\", " TYPES(
                                      "sliding", "full", "full", "sliding")),
                  ROTATES, "1001");
    check_pattern(FOUR("exaone4", "\"num_key_value_heads\": 4, "
                                  "\"sliding_window\": null, "
                                  "\"sliding_window_pattern\": null, " TYPES(
                                      "full", "full", "full", "full")),
                  ROTATES, "1111");
    check_pattern(FOUR("glm4_moe_lite",
                       "\"mlp_layer_types\": [\"dense\", \"sparse\", "
                       "\"sparse\", \"dense\", \"sparse\"]"),
                  SPARSE, "0110");
    check_pattern(FOUR("ministral", "\"num_key_value_heads\": 4, "
                                    "\"head_dim\": 16"),
                  SLIDES, "1111");
}

/* Counts are those of transformers' classes with these configurations. */
static void test_state_spaces(void **state)
{
    (void)state;
    struct spec s = spec_of("{\"model_type\": \"mamba\", \"hidden_size\": "
                            "768, \"num_hidden_layers\": 32, \"vocab_size\": "
                            "50280}");
    assert_int_equal(count_params(&s), UINT64_C(159308544));
    assert_int_equal(s.ssm.rank, 48);
    assert_int_equal(s.heads + s.head_dim + s.ffn, 0);
    assert_true(s.tied && s.residual_fp32 && !pattern_has(&s.attends, 31));
    s = spec_of("{\"model_type\": \"mamba\", \"hidden_size\": 64, "
                "\"num_hidden_layers\": 2, \"vocab_size\": 100, "
                "\"expand\": 3, \"intermediate_size\": 100, "
                "\"time_step_rank\": \"auto\"}");
    assert_int_equal(s.ssm.inner, 100); /* outlives the product */
    assert_int_equal(s.ssm.rank, 4);
    s = spec_of("{\"model_type\": \"mamba2\", \"hidden_size\": 4096, "
                "\"num_hidden_layers\": 64, \"vocab_size\": 32768}");
    assert_int_equal(count_params(&s), UINT64_C(7285403648));
    s = spec_of("{\"model_type\": \"mamba2\", \"hidden_size\": 4096, "
                "\"num_hidden_layers\": 64, \"vocab_size\": 32768, "
                "\"use_bias\": true, \"use_conv_bias\": false, "
                "\"intermediate_size\": 77}");
    assert_int_equal(count_params(&s), UINT64_C(7286198272));
    assert_int_equal(s.ssm.inner, 8192);
}

/* Which layers attend, and which have experts. */
static void test_hybrids(void **state)
{
    (void)state;
#define JAMBA                                                                  \
    "{\"model_type\": \"jamba\", \"hidden_size\": 4096, "                      \
    "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, "                 \
    "\"vocab_size\": 65536, \"intermediate_size\": 14336"
    struct spec s = spec_of(JAMBA "}");
    assert_int_equal(count_params(&s), UINT64_C(51570323328));
    for (uint64_t i = 0; i < 32; i++) {
        assert_int_equal(pattern_has(&s.attends, i), i % 8 == 4);
        assert_int_equal(pattern_has(&s.sparse, i), i % 2 == 1);
    }
    s = spec_of(JAMBA ", \"num_experts\": 1, \"num_experts_per_tok\": 1}");
    assert_int_equal(count_params(&s), UINT64_C(9290690432));
    s = spec_of(JAMBA ", \"num_local_experts\": 4}");
    assert_int_equal(count_params(&s), UINT64_C(17746669440));
    s = spec_of(JAMBA ", \"mamba_proj_bias\": true, "
                      "\"mamba_conv_bias\": false}");
    assert_int_equal(count_params(&s), UINT64_C(51570667392));
#undef JAMBA
    /* granite-4.0-h-350m, which says 0 of 0 experts; a key of both names is set
       after the class's own (attribute_map) */
#define GRANITE                                                                \
    "{\"model_type\": \"granitemoehybrid\", \"hidden_size\": 768, "            \
    "\"num_attention_heads\": 12, \"num_key_value_heads\": 4, "                \
    "\"vocab_size\": 100352, \"num_local_experts\": 0, "                       \
    "\"num_experts_per_tok\": 0, \"intermediate_size\": 2048, "                \
    "\"shared_intermediate_size\": 2048, \"mamba_n_heads\": 48, "              \
    "\"mamba_d_head\": 32, \"mamba_d_state\": 128, "                           \
    "\"tie_word_embeddings\": true, \"num_hidden_layers\": "
    s = spec_of(GRANITE "2}");
    assert_int_equal(count_params(&s), 94077472);
    s = spec_of(GRANITE "2, \"layers_block_type\": [\"attention\", \"mamba\"], "
                        "\"layer_types\": [\"mamba\", \"mamba\"]}");
    assert_int_equal(count_params(&s), 91867280);
    assert_true(pattern_has(&s.attends, 0) && !pattern_has(&s.attends, 1));
    assert_int_equal(s.mixer, MIX_MAMBA2);
    s = spec_of(GRANITE "1, \"layer_types\": [\"attention\"]}");
    assert_int_equal(s.mixer, MIX_ATTENTION);
#undef GRANITE
    s = spec_of("{\"model_type\": \"qwen3_next\", \"hidden_size\": 2048, "
                "\"num_hidden_layers\": 6, \"num_attention_heads\": 16, "
                "\"vocab_size\": 100, \"full_attention_interval\": 3}");
    for (uint64_t i = 0; i < 6; i++)
        assert_int_equal(pattern_has(&s.attends, i), i % 3 == 2);
    assert_int_equal(s.rotary_dim, 64);
    assert_true(s.attention_gate && s.qk_norm == QK_PER_HEAD);
    s = spec_of("{\"model_type\": \"qwen3_next\", \"hidden_size\": 2048, "
                "\"num_hidden_layers\": 48, \"num_attention_heads\": 16, "
                "\"vocab_size\": 151936, \"num_experts\": 0, "
                "\"num_experts_per_tok\": 2}");
    assert_int_equal(count_params(&s), UINT64_C(3824499456));
    /* what the classes of transformers 5.23 have on the meta device */
    s = spec_of("{\"model_type\": \"qwen3_5_text\"}");
    assert_int_equal(count_params(&s), UINT64_C(8953803264));
    s = spec_of("{\"model_type\": \"qwen3_5_moe_text\"}");
    assert_int_equal(count_params(&s), UINT64_C(34660610688));
}

static void test_dispatch(void **state)
{
    (void)state;
    struct spec s =
        spec_of("{\"architectures\": [\"GPTNeoXForCausalLM\"], " CORE
                ", \"intermediate_size\": 8}");
    assert_int_equal(s.family, FAM_GPT_NEOX);
    s = spec_of("{\"architectures\": [\"QWenLMHeadModel\"], " CORE
                ", \"intermediate_size\": 8}");
    assert_int_equal(s.family, FAM_QWEN);
    /* a language model inside, the tie flag beside it */
    s = spec_of(
        "{\"model_type\": \"llava\", \"vision_config\": {}, "
        "\"tie_word_embeddings\": true, \"vocab_size\": 7, "
        "\"text_config\": " FILE_OF(
            "qwen2",
            ", \"num_key_value_heads\": 4, \"intermediate_size\": 8") "}");
    assert_int_equal(s.family, FAM_QWEN2);
    assert_int_equal(s.vocab, 100);
    assert_true(s.tied);
    /* windows where the generic decoder's list says so */
    s = spec_of("{\"memplan\": 1, \"model_type\": \"decoder\", " CORE
                ", \"intermediate_size\": 8, \"sliding_window\": 4, "
                "\"layer_types\": [\"full_attention\", "
                "\"sliding_attention\"]}");
    assert_int_equal(s.sliding_layers, 1);
    assert_string_equal(family_name(FAM_GPT_NEOX), "gpt_neox");
    assert_string_equal(family_name(FAM_COUNT), "");
}

static void test_names(void **state)
{
    (void)state;
    struct fixture f;
    const char *text = FILE_OF("llama", ", \"intermediate_size\": 8");
    load_good(&f, text, strlen(text));
    assert_string_equal(f.spec.name, "given");
    assert_string_equal(f.spec.source, "");
    assert_string_equal(f.spec.model_type, "llama");
    arena_release(&f.arena);
    text = FILE_OF("RefinedWebModel", ", \"name\": \"n\", \"source\": \"s\"");
    load_good(&f, text, strlen(text));
    assert_string_equal(f.spec.name, "n");
    assert_string_equal(f.spec.source, "s");
    assert_string_equal(f.spec.model_type, "RefinedWebModel");
    arena_release(&f.arena);
}

/* Fields are decoded in order: a fallback may use rows above it only. */
static void test_table_order(void **state)
{
    (void)state;
    for (int family = 0; family < FAM_COUNT; family++) {
        struct import im = { .family = (enum family)family };
        import_rules(&im);
        for (int id = 1; id < F_COUNT; id++) {
            assert_true((int)im.absent[id].a < id);
            assert_true((int)im.absent[id].b < id);
            assert_true((int)im.null[id].a < id);
            assert_true((int)im.null[id].b < id);
        }
    }
}

/* ---- bad files ---- */

/* Line 1 says the type, 2 to 6 the five numbers, 7 what is added. */
#define LLAMA(h, l, a, f, v)                                                   \
    "{\"model_type\": \"llama\",\n\"hidden_size\": " h                         \
    ",\n\"num_hidden_layers\": " l ",\n\"num_attention_heads\": " a            \
    ",\n\"intermediate_size\": " f ",\n\"vocab_size\": " v "}"
#define WITH(type, more)                                                       \
    "{\"model_type\": \"" type "\",\n\"hidden_size\": 64,\n"                   \
    "\"num_hidden_layers\": 2,\n\"num_attention_heads\": 4,\n"                 \
    "\"vocab_size\": 100,\n\"intermediate_size\": 8,\n" more "}"
#define STRICT(type, more) WITH(type, "\"memplan\": 1,\n" more)
#define BARE(type, more)                                                       \
    "{\"model_type\": \"" type "\",\n\"hidden_size\": 64,\n"                   \
    "\"num_hidden_layers\": 2,\n\"num_attention_heads\": 4,\n"                 \
    "\"vocab_size\": 100" more "}"

static const struct bad {
    const char *text;
    memplan_status status;
    uint32_t line;
    const char *message;
    const char *hint; /* part of it */
} bads[] = {
    /* no object, no type, no such type */
    { "[1]", MEMPLAN_E_SCHEMA, 1, "is an object, not an array", "" },
    { "\n7", MEMPLAN_E_SCHEMA, 2, "is an object, not a number", "" },
    { "{}", MEMPLAN_E_SCHEMA, 1, "'model_type' is missing", "known: decoder" },
    { "{\"architectures\": []}", MEMPLAN_E_SCHEMA, 1, "'model_type' is missing",
      "llama" },
    { "{\n\"model_type\": 3}", MEMPLAN_E_SCHEMA, 2,
      "must be a string, not a number", "known: decoder" },
    { "{\n\"architectures\": [3]}", MEMPLAN_E_SCHEMA, 2,
      "must be a string, not a number", "" },
    { WITH("lama", "\"x\": 1"), MEMPLAN_E_UNKNOWN, 1,
      "unknown model type 'lama'", "the nearest name is 'llama'" },
    { WITH("qwen2_xl", "\"x\": 1"), MEMPLAN_E_UNKNOWN, 1,
      "unknown model type 'qwen2_xl'", "the nearest name is 'qwen2'" },
    { WITH("mine", "\"rms_norm_eps\": 1e-6"), MEMPLAN_E_UNKNOWN, 1,
      "unknown model type 'mine'",
      "those of 'llama': if the layers are too, --as llama" },
    { "{\"model_type\": \"mine\", \"n_embd\": 8, \"n_layer\": 1, "
      "\"n_head\": 1}",
      MEMPLAN_E_UNKNOWN, 1, "unknown model type", "those of 'gpt2'" },
    { WITH("long_cat", "\"rms_norm_eps\": 1e-6, \"kv_lora_rank\": 512"),
      MEMPLAN_E_UNKNOWN, 1, "unknown model type 'long_cat'",
      "--as minicpm3 reads it so" },
    { WITH("long_cat", "\"rms_norm_eps\": 1e-6, \"kv_lora_rank\": 512, "
                       "\"n_routed_experts\": 64, \"topk_method\": \"greedy\", "
                       "\"num_experts_per_tok\": 6, \"q_lora_rank\": null, "
                       "\"moe_intermediate_size\": 1408, "
                       "\"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, "
                       "\"v_head_dim\": 128, \"n_shared_experts\": 2"),
      MEMPLAN_E_UNKNOWN, 1, "unknown model type 'long_cat'",
      "--as deepseek_v" },
    { "{\"model_type\": \"gemma3\",\n\"text_config\": " WITH(
          "supernova", "\"rms_norm_eps\": 1e-6") "}",
      MEMPLAN_E_UNKNOWN, 2, "unknown model type 'supernova'",
      "--as llama reads it so" },
    { "{\"model_type\": \"llava_tex\", \"width\": 3}", MEMPLAN_E_UNKNOWN, 1,
      "unknown model type 'llava_tex'", "a decoder (or encoder) of any name" },
    { WITH("llama\\u0000x", "\"x\": 1"), MEMPLAN_E_SCHEMA, 1,
      "the model type has a NUL inside", "" },
    { WITH("deepseek_v32", "\"q_lora_rank\": null"), MEMPLAN_E_SCHEMA, 7,
      "'q_lora_rank' cannot be null", "the class's own 1536" },
    { WITH("decoder", "\"sliding_window\": 8,\n\"layer_types\": "
                      "[\"full_attention\"]"),
      MEMPLAN_E_CONFLICT, 8, "'layer_types' has 1 entry", "one entry a layer" },
    { WITH("decoder", "\"sliding_window\": 8,\n\"layer_types\": "
                      "[\"full_attention\", \"linear_attention\"]"),
      MEMPLAN_E_UNKNOWN, 8,
      "a 'decoder' model has no layer of type 'linear_attention'",
      "use one of full_attention, sliding_attention" },
    { WITH("qwen3", "\"num_key_value_heads\": 4,\n\"layer_types\": "
                    "[\"full_attention\", \"linear_attention\"]"),
      MEMPLAN_E_UNKNOWN, 8,
      "a 'qwen3' model has no layer of type 'linear_attention'",
      "use one of full_attention, sliding_attention" },
    { BARE("qwen3", ",\n\"intermediate_size\": 8"), MEMPLAN_E_CONFLICT, 1,
      "'num_key_value_heads' (32) does not divide", "use one of 1, 2, 4" },
    { WITH("gemma", "\"num_key_value_heads\": null"), MEMPLAN_E_SCHEMA, 7,
      "'num_key_value_heads' cannot be null", "the class's own 16" },
    { WITH("decoder", "\"layer_types\": "
                      "[\"full_attention\", \"sliding_attention\"]"),
      MEMPLAN_E_CONFLICT, 7, "there is no 'sliding_window'", "add" },
    { WITH("encoder", "\"layer_types\": "
                      "[\"full_attention\", \"full_attention\"]"),
      MEMPLAN_E_UNSUPPORTED, 7, "a list of layers is not modelled", "" },
    { "{\"model_type\": \"long_cat\", \"width\": 3}", MEMPLAN_E_UNKNOWN, 1,
      "unknown model type 'long_cat'", "a decoder (or encoder) of any name" },
    { "{\"architectures\":\n[\"LlamaForCausalLN\"]}", MEMPLAN_E_UNKNOWN, 2,
      "unknown model type 'LlamaForCausalLN'", "" },
    /* one number */
    { LLAMA("\"64\"", "2", "4", "8", "100"), MEMPLAN_E_SCHEMA, 2,
      "'hidden_size' must be a whole number, not a string",
      "without quotes: \"hidden_size\": 64" },
    { LLAMA("\"big\"", "2", "4", "8", "100"), MEMPLAN_E_SCHEMA, 2,
      "'hidden_size' must be a whole number, not a string", "" },
    { LLAMA("[64]", "2", "4", "8", "100"), MEMPLAN_E_SCHEMA, 2,
      "'hidden_size' must be a whole number, not an array", "" },
    { LLAMA("64", "true", "4", "8", "100"), MEMPLAN_E_SCHEMA, 3,
      "'num_hidden_layers' must be a whole number, not", "" },
    { LLAMA("64", "0", "4", "8", "100"), MEMPLAN_E_RANGE, 3,
      "'num_hidden_layers' is 0, out of range", "from 1 to 10000" },
    { LLAMA("64", "10001", "4", "8", "100"), MEMPLAN_E_RANGE, 3,
      "'num_hidden_layers' is 10001", "from 1 to 10000" },
    { LLAMA("64", "-2", "4", "8", "100"), MEMPLAN_E_RANGE, 3,
      "'num_hidden_layers' is -2, out of range", "" },
    { LLAMA("64", "2", "4", "1e300", "100"), MEMPLAN_E_RANGE, 5,
      "'intermediate_size' is 1e+300, out of range", "" },
    { LLAMA("64", "2", "4", "8", "100.5"), MEMPLAN_E_SCHEMA, 6,
      "'vocab_size' is 100.5, but must be a whole number", "" },
    { LLAMA("64", "2", "4", "4294967296", "100"), MEMPLAN_E_RANGE, 5,
      "'intermediate_size' is", "" },
    { WITH("llama", "\"tie_word_embeddings\": 1"), MEMPLAN_E_SCHEMA, 7,
      "'tie_word_embeddings' must be true or false, not a number", "" },
    { WITH("llama", "\"tie_word_embeddings\": \"true\""), MEMPLAN_E_SCHEMA, 7,
      "'tie_word_embeddings' must be true or false, not a string",
      "without quotes" },
    { WITH("llama", "\"attention_dropout\": 1.5"), MEMPLAN_E_RANGE, 7,
      "'attention_dropout' is 1.5, out of range", "from 0 to 1" },
    { WITH("llama", "\"attention_dropout\": \"0.1\""), MEMPLAN_E_SCHEMA, 7,
      "'attention_dropout' must be a number, not a string", "0.1" },
    { WITH("llama", "\"hidden_act\": \"sillu\""), MEMPLAN_E_UNKNOWN, 7,
      "'hidden_act' cannot be 'sillu'", "did you mean 'silu'?" },
    { WITH("llama", "\"hidden_act\": \"hyperbolic\""), MEMPLAN_E_UNKNOWN, 7,
      "'hidden_act' cannot be", "known: silu, swish, gelu" },
    { WITH("llama", "\"hidden_act\": \"swiglu\""), MEMPLAN_E_UNKNOWN, 7,
      "'hidden_act' cannot be 'swiglu'", "" },
    { WITH("llama", "\"hidden_act\": 4"), MEMPLAN_E_SCHEMA, 7,
      "'hidden_act' must be a string, not a number", "" },
    { WITH("decoder", "\"norm\": \"layer\""), MEMPLAN_E_UNKNOWN, 7,
      "'norm' cannot be 'layer'", "rmsnorm, layernorm" },
    { WITH("decoder", "\"position_embedding\": \"rotary\""), MEMPLAN_E_UNKNOWN,
      7, "cannot be 'rotary'", "rope, learned, alibi" },
    /* what is missing */
    { "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 4, "
      "\"vocab_size\": 9, \"n_positions\": 8}",
      MEMPLAN_E_SCHEMA, 1, "'hidden_size' is missing",
      "any of these gives it: hidden_size n_embd n_embed d_model" },
    { "{\"model_type\": \"llama\", \"hidden_size\": null, "
      "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
      "\"vocab_size\": 9, \"intermediate_size\": 8}",
      MEMPLAN_E_SCHEMA, 1, "'hidden_size' is missing", "" },
    { WITH("llama", "\"head_dim\":\n17"), MEMPLAN_E_CONFLICT, 8,
      "a head of 17 cannot rotate", "change 'head_dim'" },
    { "{\"model_type\": \"gemma2\", \"hidden_size\": 66, "
      "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
      "\"num_key_value_heads\": 4, \"vocab_size\": 9, "
      "\"intermediate_size\": 8}",
      MEMPLAN_E_CONFLICT, 1, "'hidden_size' (66) is not a multiple of",
      "use 64 or 68" },
    { WITH("gpt_neo", "\"n_positions\": 8, \"attention_types\":\n\"global\""),
      MEMPLAN_E_SCHEMA, 8, "'attention_types' must be a list, not a string",
      "12]] is 24 layers" },
    { WITH("gpt_neo", "\"n_positions\": 8, \"attention_types\":\n"
                      "[[[\"global\"], 3]]"),
      MEMPLAN_E_CONFLICT, 8, "'attention_types' has 3 layers",
      "12]] is 24 layers" },
    { "{\"model_type\": \"t5\", \"d_model\": 64, \"num_layers\": 2, "
      "\"num_heads\": 4, \"d_ff\": 8, \"vocab_size\": 9,\n"
      "\"is_gated_act\": true}",
      MEMPLAN_E_CONFLICT, 2,
      "'is_gated_act' is true, but 'feed_forward_proj' is not",
      "\"feed_forward_proj\": \"gated-gelu\"" },
    { "{\"model_type\": \"bart\", \"d_model\": 64, \"vocab_size\": 9,\n"
      "\"tie_word_embeddings\": false}",
      MEMPLAN_E_UNSUPPORTED, 2, "a table of words for each stack", "" },
    { BARE("llama", ""), MEMPLAN_E_SCHEMA, 1, "'intermediate_size' is missing",
      "intermediate_size n_inner" },
    { BARE("qwen", ""), MEMPLAN_E_SCHEMA, 1, "'intermediate_size' is missing",
      "a gated MLP has no usual width" },
    { BARE("decoder", ""), MEMPLAN_E_SCHEMA, 1,
      "'intermediate_size' is missing", "" },
    { BARE("gpt2", ""), MEMPLAN_E_SCHEMA, 1,
      "'max_position_embeddings' is missing", "n_positions" },
    { WITH("decoder", "\"position_embedding\": \"learned\""), MEMPLAN_E_SCHEMA,
      1, "'max_position_embeddings' is missing", "" },
    { "{\"model_type\": \"llama\", \"hidden_size\": 64, "
      "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
      "\"intermediate_size\": 8}",
      MEMPLAN_E_SCHEMA, 1, "'vocab_size' is missing",
      "add \"vocab_size\": ..." },
    { "{\"model_type\": \"mistral3\",\n\"text_config\": "
      "{\"model_type\": \"llama\", \"hidden_size\": 8, "
      "\"num_attention_heads\": 1, \"vocab_size\": 9, "
      "\"intermediate_size\": 8}}",
      MEMPLAN_E_SCHEMA, 2, "'num_hidden_layers' is missing", "" },
    /* fields that contradict one another */
    { WITH("llama", "\"n_embd\": 128"), MEMPLAN_E_CONFLICT, 7,
      "'n_embd' contradicts 'hidden_size'", "keep one of them" },
    { WITH("llama", "\"num_key_value_heads\": 3"), MEMPLAN_E_CONFLICT, 7,
      "'num_key_value_heads' (3) does not divide 'num_attention_heads' (4)",
      "use one of 1, 2, 4" },
    { WITH("mistral", "\"head_dim\": 16"), MEMPLAN_E_CONFLICT, 1,
      "'num_key_value_heads' (8) does not divide", "use one of 1, 2, 4" },
    { LLAMA("64", "2", "3", "8", "100"), MEMPLAN_E_CONFLICT, 4,
      "'num_attention_heads' (3) does not divide 'hidden_size' (64)",
      "or give 'head_dim'" },
    { "{\"model_type\": \"gpt2\", \"n_embd\": 64,\n\"n_layer\": 2, "
      "\"n_head\": 3, \"vocab_size\": 9, \"n_positions\": 8}",
      MEMPLAN_E_CONFLICT, 2, "'n_head' (3) does not divide 'n_embd' (64)",
      "no key in a 'gpt2' model" },
    { BARE("gptj", ",\n\"rotary_dim\": 32"), MEMPLAN_E_CONFLICT, 6,
      "'rotary_dim' (32) exceeds the width of a head (16)", "" },
    { BARE("qwen", ",\n\"intermediate_size\": 9"), MEMPLAN_E_CONFLICT, 6,
      "'intermediate_size' (9) must be even", "twice the width" },
    { WITH("decoder", "\"hidden_act\": \"swiglu\",\n\"gated_mlp\": false"),
      MEMPLAN_E_CONFLICT, 8, "'hidden_act' is swiglu", "" },
    { WITH("decoder", "\"shared_norm\": true"), MEMPLAN_E_CONFLICT, 7,
      "'shared_norm' needs 'parallel_residual'", "" },
    { WITH("decoder", "\"num_experts_per_tok\": 2"), MEMPLAN_E_CONFLICT, 7,
      "'num_experts_per_tok' is given, but 'num_experts' is not", "" },
    { WITH("decoder", "\"num_experts\": 4"), MEMPLAN_E_SCHEMA, 1,
      "'num_experts_per_tok' is missing", "" },
    { WITH("decoder", "\"num_experts\": 4,\n\"num_experts_per_tok\": 5"),
      MEMPLAN_E_CONFLICT, 8,
      "'num_experts_per_tok' (5) exceeds 'num_experts' (4)", "" },
    { WITH("decoder", "\"num_experts\": 4, \"num_experts_per_tok\": 2,\n"
                      "\"first_k_dense_replace\": 3"),
      MEMPLAN_E_CONFLICT, 8,
      "'first_k_dense_replace' (3) exceeds 'num_hidden_layers' (2)", "" },
    { WITH("decoder", "\"num_experts\": 4, \"num_experts_per_tok\": 2,\n"
                      "\"n_shared_experts\": 2,\n"
                      "\"shared_expert_intermediate_size\": 9"),
      MEMPLAN_E_CONFLICT, 9, "but 2 shared experts are 16 wide", "" },
    /* what is not modelled */
    { WITH("llama", "\"num_local_experts\": 8"), MEMPLAN_E_UNSUPPORTED, 7,
      "a mixture of experts is not modelled in a 'llama' model",
      "without 'num_local_experts'" },
    { WITH("mixtral", "\"num_key_value_heads\": 4,\n\"num_experts\": 8"),
      MEMPLAN_E_UNSUPPORTED, 8, "a mixture of experts", "" },
    { WITH("llama", "\"kv_lora_rank\": 512"), MEMPLAN_E_UNSUPPORTED, 7,
      "multi-head latent attention is not modelled", "" },
    { WITH("llama", "\"num_nextn_predict_layers\": 1"), MEMPLAN_E_UNSUPPORTED,
      7, "multi-token prediction is not modelled", "" },
    { WITH("decoder", "\"v_head_dim\": 16"), MEMPLAN_E_CONFLICT, 7,
      "'v_head_dim' is given, but 'kv_lora_rank' is not", "" },
    { WITH("decoder", "\"kv_lora_rank\": 8, \"qk_nope_head_dim\": 8,\n"
                      "\"v_head_dim\": 8"),
      MEMPLAN_E_SCHEMA, 1, "'qk_rope_head_dim' is missing", "" },
    { WITH("qwen3_moe", "\"mlp_only_layers\":\n[0, 9999]"), MEMPLAN_E_RANGE, 8,
      "'mlp_only_layers' is 9999", "from 0 to 1" },
    { WITH(
          "gpt_oss",
          "\"num_key_value_heads\": 4, \"layer_types\":\n[\"full_attention\"]"),
      MEMPLAN_E_CONFLICT, 8, "has 1 entry", "one entry a layer" },
    { WITH("mamba", "\"time_step_rank\": \"big\""), MEMPLAN_E_SCHEMA, 7,
      "'time_step_rank' must be a whole number, not a string", "" },
    { WITH("bamba", "\"num_key_value_heads\": 4,\n\"mamba_n_heads\": 8,\n"
                    "\"mamba_d_head\": 64"),
      MEMPLAN_E_CONFLICT, 8,
      "8 heads of 64 are 512 channels, but 'mamba_expand' times 'hidden_size' "
      "is 128",
      "change 'mamba_n_heads', 'mamba_d_head', 'mamba_expand'" },
    { WITH("granitemoehybrid",
           "\"mamba_n_heads\": 8,\n\"num_experts_per_tok\": 0"),
      MEMPLAN_E_RANGE, 8, "'num_experts_per_tok' is 0, but there are 8 experts",
      "from 1" },
    { WITH("granitemoehybrid", "\"mamba_n_heads\": 8, \"num_local_experts\": 0,"
                               "\n\"shared_intermediate_size\": 0"),
      MEMPLAN_E_CONFLICT, 8,
      "'shared_intermediate_size' is 0, and there are no experts",
      "at least 1" },
    { WITH("bamba", "\"num_key_value_heads\": 4, \"mamba_n_heads\": 8,\n"
                    "\"layer_types\": [\"mamba\", \"attention\"]"),
      MEMPLAN_E_UNSUPPORTED, 8,
      "a list of layers (but attn_layer_indices) is not modelled",
      "without 'layer_types'" },
    { WITH("granitemoehybrid", "\"mamba_n_heads\": 8,\n\"layer_types\": "
                               "[\"mamba\", \"sliding_attention\"]"),
      MEMPLAN_E_UNKNOWN, 8,
      "a 'granitemoehybrid' model has no layer of type 'sliding_attention'",
      "use one of full_attention, linear_attention" },
    { WITH("nemotron_h",
           "\"num_key_value_heads\": 4,\n"
           "\"layers_block_type\": [\"mamba\",\n\"sliding_attention\"]"),
      MEMPLAN_E_UNKNOWN, 9,
      "a 'nemotron_h' model has no block of type 'sliding_attention'",
      "use one of linear_attention, moe, full_attention, mlp" },
    { WITH("nemotron_h", "\"num_key_value_heads\": 4,\n"
                         "\"layers_block_type\": [\"mlp\", 3]"),
      MEMPLAN_E_SCHEMA, 8, "a block's type must be a string, not a number",
      "linear_attention" },
    { WITH("nemotron_h", "\"num_key_value_heads\": 4,\n"
                         "\"layer_types\": []"),
      MEMPLAN_E_RANGE, 8, "'layer_types' has 0 blocks, out of range", "" },
    { WITH("nemotron_h", "\"num_key_value_heads\": 4,\n"
                         "\"hybrid_override_pattern\": \"M-M|\""),
      MEMPLAN_E_UNKNOWN, 8, "has a letter of no block", "* attention" },
    { WITH("nemotron_h", "\"num_key_value_heads\": 4,\n"
                         "\"hybrid_override_pattern\": 52"),
      MEMPLAN_E_SCHEMA, 8, "must be a list, or letters, not a number", "" },
    { WITH("nemotron_h", "\"num_key_value_heads\": 4,\n"
                         "\"hybrid_override_pattern\": \"M-E\",\n"
                         "\"n_routed_experts\": 0"),
      MEMPLAN_E_CONFLICT, 9,
      "'n_routed_experts' is 0, but a block of experts is listed", "without" },
    { WITH("nemotron_h", "\"num_key_value_heads\": 4,\n"
                         "\"mamba_hidden_act\": \"gelu\""),
      MEMPLAN_E_UNSUPPORTED, 8, "this activation of Mamba's is not modelled",
      "" },
    { WITH("falcon_h1", "\"num_key_value_heads\": 4,\n\"mamba_n_heads\": 8,\n"
                        "\"mamba_d_head\": 64"),
      MEMPLAN_E_CONFLICT, 8,
      "8 heads of 64 are 512 channels, but 'mamba_d_ssm' is 1024", "change" },
    { WITH("falcon_h1", "\"num_key_value_heads\": 4,\n\"mamba_n_heads\": 8,\n"
                        "\"mamba_d_ssm\": 256, \"mamba_d_head\": 64"),
      MEMPLAN_E_CONFLICT, 8,
      "8 heads of 64 are 512 channels, but 'mamba_d_ssm' is 256",
      "change 'mamba_n_heads', 'mamba_d_head' or 'mamba_d_ssm'" },
    { WITH("lfm2", "\"num_key_value_heads\": 4,\n\"layer_types\": "
                   "[\"conv\", \"mamba\"]"),
      MEMPLAN_E_UNKNOWN, 8, "a 'lfm2' model has no layer of type 'mamba'",
      "use one of full_attention, conv" },
    { WITH("lfm2", "\"num_key_value_heads\": 4,\n"
                   "\"block_ffn_dim_multiplier\": 0.1"),
      MEMPLAN_E_RANGE, 6, "'intermediate_size' makes an MLP of width 0",
      "block_ffn_dim_multiplier" },
    { WITH("lfm2_moe", "\"num_key_value_heads\": 4"), MEMPLAN_E_SCHEMA, 1,
      "'layer_types' is missing", "conv or full_attention" },
    { WITH("mamba2", "\"num_heads\": 3"), MEMPLAN_E_CONFLICT, 7,
      "3 heads of 64 are 192 channels", "'num_heads', 'head_dim'" },
    { WITH("nemotron_h", "\"num_key_value_heads\": 4,\n"
                         "\"mamba_num_heads\": 4"),
      MEMPLAN_E_CONFLICT, 1,
      "'mamba_n_groups' (8) does not divide 'mamba_num_heads' (4)",
      "use one of 1, 2" },
    { WITH("mamba2", "\"num_heads\": 2,\n\"n_groups\": 3"), MEMPLAN_E_CONFLICT,
      8, "'n_groups' (3) does not divide 'num_heads' (2)", "use one of 1, 2" },
    { WITH("jamba", "\"num_key_value_heads\": 2,\n\"attn_layer_offset\": 8"),
      MEMPLAN_E_CONFLICT, 8,
      "'attn_layer_offset' (8) must be below 'attn_layer_period' (8)",
      "number 0" },
    { WITH("qwen3_next", "\"linear_num_key_heads\": 12"), MEMPLAN_E_CONFLICT, 7,
      "does not divide 'linear_num_value_heads' (32)", "1, 2, 4, 8" },
    { WITH("chatglm", "\"padded_vocab_size\": 8, \"ffn_hidden_size\": 8,\n"
                      "\"pre_seq_len\": 128"),
      MEMPLAN_E_UNSUPPORTED, 8, "a trained prefix is not modelled", "" },
    { WITH("chatglm", "\"padded_vocab_size\": 8, \"ffn_hidden_size\": 8,\n"
                      "\"fp32_residual_connection\": true"),
      MEMPLAN_E_UNSUPPORTED, 8, "a residual in fp32 is not modelled", "" },
    { WITH("chatglm", "\"padded_vocab_size\": 8, \"ffn_hidden_size\": 8,\n"
                      "\"position_encoding_2d\": true"),
      MEMPLAN_E_UNSUPPORTED, 8, "the first generation is not modelled", "" },
    { BARE("bart", ",\n\"encoder_layers\": 7"), MEMPLAN_E_CONFLICT, 3,
      "'num_hidden_layers' contradicts 'encoder_layers'", "" },
    { WITH("llama", "\"is_encoder_decoder\": true"), MEMPLAN_E_UNSUPPORTED, 7,
      "an encoder, or attention to one, is not modelled", "" },
    { WITH("llama", "\"vision_config\": {}"), MEMPLAN_E_UNSUPPORTED, 7,
      "a vision or audio part is not modelled", "" },
    { WITH("llama", "\"layer_types\": [\"full_attention\",\n\"mamba\"]"),
      MEMPLAN_E_UNSUPPORTED, 8, "a layer of this type is not modelled",
      "full_attention sliding_attention" },
    { WITH("llama", "\"architectures\": [\"LlamaForQuestionAnswering\"]"),
      MEMPLAN_E_UNSUPPORTED, 7,
      "head of 'LlamaForQuestionAnswering' is not modelled",
      "without 'architectures'" },
    { BARE("mpt", ",\n\"attn_config\": {\"qk_ln\": true}"),
      MEMPLAN_E_UNSUPPORTED, 6, "a norm on queries and keys of MPT", "" },
    { BARE("mpt", ",\n\"attn_config\": {\"rope\": true}"),
      MEMPLAN_E_UNSUPPORTED, 6, "rotary MPT", "" },
    { BARE("mpt", ",\n\"attn_config\": {\"attn_type\": \"x\"}"),
      MEMPLAN_E_UNSUPPORTED, 6, "this attention", "multihead_attention" },
    { BARE("mpt", ",\n\"norm_type\": \"rmsnorm\""), MEMPLAN_E_UNSUPPORTED, 6,
      "this norm", "layernorm" },
    { BARE("mpt", ",\n\"ffn_config\": {\"ffn_type\": \"mptgeglu\"}"),
      MEMPLAN_E_UNSUPPORTED, 6, "this MLP", "mptmlp" },
    { WITH("starcoder2", "\"mlp_type\": \"gated\""), MEMPLAN_E_UNSUPPORTED, 7,
      "this MLP", "default" },
    { WITH("starcoder2", "\"norm_type\": \"rms\""), MEMPLAN_E_UNSUPPORTED, 7,
      "this norm", "layer_norm" },
    { BARE("falcon", ",\n\"new_decoder_architecture\": true,\n"
                     "\"parallel_attn\": false"),
      MEMPLAN_E_UNSUPPORTED, 7, "without 'parallel_attn' is not modelled", "" },
    /* our own dialect is strict */
    { STRICT("llama", "\"hidden_sise\": 64"), MEMPLAN_E_UNKNOWN, 8,
      "unknown key 'hidden_sise'", "did you mean 'hidden_size'?" },
    { STRICT("llama", "\"color\": 64"), MEMPLAN_E_UNKNOWN, 8,
      "unknown key 'color'", "'x-color' is ignored" },
    { STRICT("llama", "\"use_qkv_bias\": true"), MEMPLAN_E_UNKNOWN, 8,
      "unknown key 'use_qkv_bias'", "" },
    { STRICT("llama", "\"text_config\": {}"), MEMPLAN_E_UNSUPPORTED, 8,
      "a nested language model is not modelled in a 'llama' model", "" },
    { BARE("mpt", ", \"memplan\": 1,\n\"attn_config\": {\"alibbi\": true}"),
      MEMPLAN_E_UNKNOWN, 6, "unknown key 'alibbi'",
      "did you mean 'attn_config.alibi'?" },
    { BARE("mpt", ",\n\"attn_config\": 3"), MEMPLAN_E_SCHEMA, 6,
      "'attn_config' must be an object, not a number", "" },
    { WITH("llama", "\"memplan\": 2"), MEMPLAN_E_UNSUPPORTED, 7,
      "this format version is not known", "\"memplan\": 1" },
    { WITH("llama", "\"memplan\": \"1\""), MEMPLAN_E_SCHEMA, 7,
      "'memplan' must be a number, not a string", "\"memplan\": 1" },
    /* classes of a decoder */
    { WITH("llama", "\"architectures\": [\"LlamaForTokenClassification\"],\n"
                    "\"classifier_dropout\": 2"),
      MEMPLAN_E_RANGE, 8, "'classifier_dropout' is 2, out of range",
      "use a number from 0 to 1" },
    { WITH("llama", "\"architectures\": [\"LlamaForTokenClassification\"],\n"
                    "\"classifier_dropout\": \"a tenth\""),
      MEMPLAN_E_SCHEMA, 8, "'classifier_dropout' must be a number", "" },
    { WITH("llama", "\"architectures\": [\"LlamaForSequenceClassification\"],\n"
                    "\"problem_type\": \"classes\""),
      MEMPLAN_E_UNKNOWN, 8, "'problem_type' is not known", "regression" },
    /* layers apart */
    { WITH("smollm3", "\"no_rope_layers\": [1]"), MEMPLAN_E_CONFLICT, 7,
      "'no_rope_layers' has 1 entry, but there are 2 layers",
      "one entry a layer" },
    { WITH("smollm3", "\"no_rope_layers\": [1, 2]"), MEMPLAN_E_RANGE, 7,
      "is 2, out of range", "" },
    { WITH("smollm3", "\"no_rope_layer_interval\": 0"), MEMPLAN_E_RANGE, 7,
      "is 0, out of range", "" },
    { WITH("gemma3_text", "\"sliding_window_pattern\": \"LLG\""),
      MEMPLAN_E_SCHEMA, 7, "must be a whole number, not a string", "" },
    { WITH("gemma3_text", "\"use_bidirectional_attention\": true"),
      MEMPLAN_E_UNSUPPORTED, 7, "attention in both directions is not modelled",
      "" },
    { WITH("gemma3_text", "\"layer_types\": [\"full_attention\"]"),
      MEMPLAN_E_CONFLICT, 7, "'layer_types' has 1 entry", "" },
    { WITH("gemma3_text", "\"layer_types\": []"), MEMPLAN_E_CONFLICT, 7,
      "'layer_types' has 0 entries", "" },
    { WITH("llama", "\"layer_types\": [\"full_attention\"]"),
      MEMPLAN_E_CONFLICT, 7, "'layer_types' has 1 entry, but there are 2",
      "one entry a layer" },
    { WITH("llama", "\"layer_types\": [\"full_attention\", "
                    "\"full_attention\"],\n\"mlp_layer_types\": [\"dense\"]"),
      MEMPLAN_E_CONFLICT, 8, "'mlp_layer_types' has 1 entry", "" },
    { WITH("llama", "\"layer_types\": \"full_attention\""), MEMPLAN_E_SCHEMA, 7,
      "'layer_types' must be a list of words, not a string", "" },
    { WITH("llama", "\"layer_types\": {}"), MEMPLAN_E_SCHEMA, 7,
      "'layer_types' must be a list of words, not an object", "" },
    { WITH("llama", "\"layer_types\": [1, 1]"), MEMPLAN_E_SCHEMA, 7,
      "'layer_types' must be a list of words, not this", "one word a layer" },
    { WITH("gemma3_text", "\"mlp_layer_types\": [\"dense\"]"),
      MEMPLAN_E_CONFLICT, 7, "'mlp_layer_types' has 1 entry", "" },
    { WITH("glm4_moe_lite", "\"mlp_layer_types\": [\"dense\"]"),
      MEMPLAN_E_CONFLICT, 7, "'mlp_layer_types' has 1 entry", "" },
    { WITH("gemma3_text", "\"sliding_window_pattern\": null"),
      MEMPLAN_E_CONFLICT, 7, "'sliding_window_pattern' is null",
      "a number of layers" },
    { WITH("exaone_moe",
           "\"num_key_value_heads\": 4, \"sliding_window_pattern\": null"),
      MEMPLAN_E_CONFLICT, 7, "'sliding_window_pattern' is null",
      "a number of layers" },
    { WITH("smollm3", "\"no_rope_layer_interval\": null"), MEMPLAN_E_CONFLICT,
      7, "'no_rope_layer_interval' is null", "" },
    { WITH("smollm3", "\"no_rope_layers\": []"), MEMPLAN_E_CONFLICT, 7,
      "'no_rope_layers' has 0 entries", "" },
    { WITH("exaone4", "\"num_key_value_heads\": 4, \"sliding_window\": null"),
      MEMPLAN_E_CONFLICT, 7, "layer 0 slides, but there is no 'sliding_window'",
      "without sliding_attention" },
    { WITH("qwen2", "\"num_key_value_heads\": 4, "
                    "\"layer_types\": [\"full_attention\", "
                    "\"sliding_attention\"]"),
      MEMPLAN_E_CONFLICT, 7,
      "layer 1 slides, but there is no "
      "'sliding_window'",
      "use_sliding_window" },
    { WITH("deepseek_v3", "\"q_lora_rank\": 0"), MEMPLAN_E_CONFLICT, 7,
      "'q_lora_rank' is 0: the class compresses queries to nothing",
      "write null" },
    { WITH("llama4_text", "\"num_key_value_heads\": 4, \"moe_layers\": [2]"),
      MEMPLAN_E_RANGE, 7, "is 2, out of range", "" },
    { WITH("llama4_text", "\"num_key_value_heads\": 4, \"moe_layers\": 1"),
      MEMPLAN_E_SCHEMA, 7, "'moe_layers' must be a list, not a number", "" },
    { WITH("deepseek_v32", "\"mlp_layer_types\": [\"dense\", \"thin\"]"),
      MEMPLAN_E_UNKNOWN, 7, "an MLP of no known type", "dense, sparse" },
    { WITH("deepseek_v32", "\"index_head_dim\": 32"), MEMPLAN_E_CONFLICT, 7,
      "'index_head_dim' (32) is less than 'qk_rope_head_dim' (64)", "" },
    { WITH("deepseek_v32", "\"q_lora_rank\": 0"), MEMPLAN_E_CONFLICT, 7,
      "'q_lora_rank' is 0, but the indexer", "" },
    { WITH("grok-1", "\"num_experts\": 0, \"num_key_value_heads\": 4"),
      MEMPLAN_E_RANGE, 7,
      "'num_experts' is 0, but a 'grok-1' model has experts",
      "another 'model_type'" },
    { WITH("mixtral", "\"num_key_value_heads\": 4,\n\"num_local_experts\": 0"),
      MEMPLAN_E_RANGE, 8, "but a 'mixtral' model has experts", "" },
    { WITH("ministral", "\"num_key_value_heads\": 4"), MEMPLAN_E_SCHEMA, 1,
      "'head_dim' is missing", "" },
    { WITH("dots1", "\"n_shared_experts\": 1, \"num_experts_per_tok\": 1, "
                    "\"num_key_value_heads\": 4"),
      MEMPLAN_E_SCHEMA, 1, "'n_routed_experts' is missing", "" },
    { STRICT("llama", "\"source\": 3"), MEMPLAN_E_SCHEMA, 8,
      "'source' must be a string, not a number", "" },
    { STRICT("llama", "\"name\": true"), MEMPLAN_E_SCHEMA, 8,
      "'name' must be a string, not", "" },
    { STRICT("llama", "\"parameters\": 0"), MEMPLAN_E_RANGE, 8,
      "'parameters' is 0, out of range", "" },
    { STRICT("llama", "\"parameters\": \"7B\""), MEMPLAN_E_SCHEMA, 8,
      "'parameters' must be a whole number, not a string", "" },
};

static void show(const char *text, const struct fixture *f)
{
    print_error("%s\n", text);
    for (size_t i = 0; i < f->errs.count && i < ERRORS_MAX; i++)
        print_error("%d %u:%u %s: %s [%s]\n", (int)f->slot[i].status,
                    (unsigned)f->slot[i].line, (unsigned)f->slot[i].column,
                    f->slot[i].pointer, f->slot[i].message, f->slot[i].hint);
}

static void test_bad_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bads); i++) {
        const struct bad *b = &bads[i];
        struct fixture f;
        load(&f, b->text, strlen(b->text));
        const memplan_error *e = &f.slot[0];
        bool ok = f.errs.count == 1 && f.status == b->status
                  && e->status == b->status && e->line == b->line
                  && e->column > 0 && strstr(e->message, b->message)
                  && strstr(e->hint, b->hint);
        if (!ok)
            show(b->text, &f);
        assert_true(ok);
        arena_release(&f.arena);
    }
}

/* Every bad field of a file in one go, each with its own place. */
static void test_all_at_once(void **state)
{
    (void)state;
    const char *text = LLAMA("\"64\"", "0", "4", "-1", "1e300");
    static const char *const pointers[] = { "/num_hidden_layers",
                                            "/hidden_size", "/vocab_size",
                                            "/intermediate_size" };
    struct fixture f;
    load(&f, text, strlen(text));
    assert_int_equal(f.errs.count, COUNT_OF(pointers));
    assert_int_equal(f.status, f.slot[0].status);
    for (size_t i = 0; i < COUNT_OF(pointers); i++)
        assert_string_equal(f.slot[i].pointer, pointers[i]);
    arena_release(&f.arena);
}

/* Where memory runs out, each allocation in turn. */
struct scarce {
    memplan_allocator real;
    int left;
};

static void *scarce_resize(void *ctx, void *ptr, size_t old_size,
                           size_t new_size)
{
    struct scarce *s = ctx;
    if (new_size > 0 && s->left-- <= 0)
        return NULL;
    return s->real.resize(s->real.ctx, ptr, old_size, new_size);
}

static void test_no_memory(void **state)
{
    (void)state;
    const char *text = FILE_OF("llama", ", \"intermediate_size\": 8");
    struct arena tree;
    struct diag d;
    diag_init(&d, NULL);
    arena_init(&tree, NULL);
    struct json *root = json_parse(&tree, text, strlen(text), &d);
    struct scarce s = { allocator_default(), 0 };
    memplan_allocator alloc = { scarce_resize, &s };
    struct arena a;
    struct spec spec;
    arena_init(&a, &alloc);
    const struct spec_text in = { .root = root,
                                  .text = text,
                                  .len = strlen(text) };
    assert_int_equal(spec_import(&spec, &in, &a, &d), MEMPLAN_E_NOMEM);
    arena_release(&a);
    arena_release(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_counts),
        cmocka_unit_test(test_catalogue),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_kv_heads),
        cmocka_unit_test(test_encoders),
        cmocka_unit_test(test_classes_of_decoders),
        cmocka_unit_test(test_convnets),
        cmocka_unit_test(test_layers_of_a_convnet),
        cmocka_unit_test(test_layers_that_cannot_be),
        cmocka_unit_test(test_two_stacks),
        cmocka_unit_test(test_vit),
        cmocka_unit_test(test_whisper),
        cmocka_unit_test(test_dit),
        cmocka_unit_test(test_falcon),
        cmocka_unit_test(test_opt),
        cmocka_unit_test(test_head_dim),
        cmocka_unit_test(test_silent_biases),
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_decoder),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_state_spaces),
        cmocka_unit_test(test_hybrids),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_dispatch),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_table_order),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_all_at_once),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("spec", tests, NULL, release_kept);
}
