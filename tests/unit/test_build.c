/*
 * Tests of the builder under the lowerings: arrays that grow and fail to, what
 * autocast makes of a weight, what a linear's parameters are in full, the
 * parts that decoders share; and of every refusal of a lowering, by its text.
 */
#include "lower/build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "estimate.h"
#include "plan/report_data.h"

/* ---- a small Llama ---- */

static struct spec llama(void)
{
    return (struct spec){ .name = "",
                          .source = "",
                          .model_type = "decoder",
                          .family = FAM_DECODER,
                          .layers = 2,
                          .hidden = 64,
                          .heads = 4,
                          .kv_heads = 2,
                          .head_dim = 16,
                          .ffn = 128,
                          .vocab = 1000,
                          .final_norm = true,
                          .embed_dim = 64,
                          .rotary_dim = 16,
                          .logit_scale = 1,
                          .norm = NORM_RMS,
                          .gated_mlp = true,
                          .act = ACT_SILU,
                          .position = POS_ROPE };
}

static struct run run_as(enum implementation impl)
{
    struct run r = { .impl = impl };
    r.tp = r.cp = r.ep = r.etp = r.pp = r.vpp = r.dp = 1;
    r.micro_batch = 2;
    r.seq_len = 32;
    r.vocab = 1000;
    r.attention = ATTN_FLASH;
    r.prec = (struct precision_bytes){ .param = DT_BF16,
                                       .compute = DT_BF16,
                                       .grad = DT_BF16,
                                       .reduce = DT_BF16,
                                       .master = DT_NONE,
                                       .optim = DT_BF16 };
    r.lora_dtype = r.base_dtype = DT_BF16;
    return r;
}

struct fixture {
    struct spec spec;
    struct run run;
    struct arena arena;
    struct diag diag;
    memplan_error slot;
    memplan_errors errs;
    struct program p;
    struct builder b;
};

static void prepare(struct fixture *f, enum implementation impl,
                    const memplan_allocator *alloc)
{
    memset(f, 0, sizeof(*f));
    f->spec = llama();
    f->run = run_as(impl);
    f->errs = (memplan_errors){ &f->slot, 1, 0 };
    arena_init(&f->arena, alloc);
    diag_init(&f->diag, &f->errs);
}

static void start(struct fixture *f)
{
    build_start(&f->b, &f->p, &f->spec, &f->run, &f->arena, &f->diag);
}

static unsigned count_ops(const struct program *p, enum op_kind kind)
{
    unsigned n = 0;
    for (uint32_t i = 0; i < p->n_ops; i++)
        n += p->op[i].kind == kind;
    return n;
}

/* ---- arrays ---- */

enum { MANY = 3000 };

static void build_many(struct fixture *f)
{
    struct builder *b = &f->b;
    const struct shape shape = SHAPE(b->t, b->h);
    tensor_id x = build_tensor(b, "x", DT_BF16, &shape);
    build_begin(b, BLOCK_EMBED, "embedding");
    for (int i = 0; i < MANY; i++)
        x = build_neg(b, "minus", x);
    build_end(b, x);
}

static void arrays_grow(void **state)
{
    (void)state;
    struct fixture f;
    prepare(&f, IMPL_PAPER, NULL);
    start(&f);
    build_many(&f);
    assert_int_equal(build_finish(&f.b), MEMPLAN_OK);
    assert_int_equal(f.p.n_ops, MANY);
    assert_int_equal(f.p.n_tensors, 2 + 1 + MANY + 1);
    for (uint32_t i = 1; i < f.p.n_ops; i++)
        assert_int_equal(f.p.op[i].in[0], f.p.op[i - 1].out[0]);
    arena_release(&f.arena);
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

/* Each growth fails once: the builder goes on in the room that it has, and
 * says so at the end. */
static void arrays_fail_to_grow(void **state)
{
    (void)state;
    memplan_status status = MEMPLAN_E_NOMEM;
    unsigned begun = 0;
    for (size_t at = 0; status != MEMPLAN_OK; at++) {
        assert_true(at < 100);
        struct failing failing = { 0, at };
        const memplan_allocator alloc = { failing_resize, &failing };
        struct fixture f;
        prepare(&f, IMPL_PAPER, &alloc);
        start(&f);
        if (!f.b.failed) {
            build_many(&f);
            assert_true(f.p.n_ops <= f.b.cap_ops);
            assert_true(f.p.n_tensors <= f.b.cap_tensors);
            begun++;
        }
        status = build_finish(&f.b);
        assert_true(status == MEMPLAN_OK || status == MEMPLAN_E_NOMEM);
        arena_release(&f.arena);
    }
    assert_true(begun > 2);
}

/* ---- linears ---- */

static uint64_t full_elems(struct fixture *f, const struct linear *l)
{
    const uint32_t first = f->p.n_tensors;
    build_linear(&f->b, l);
    for (uint32_t i = first; i < f->p.n_tensors; i++)
        if (f->p.tensor[i].role == ROLE_PARAM)
            return f->p.tensor[i].full_elems;
    return 0;
}

/* Where a lowering does not say how large a sharded side is in full, it is as
 * many times larger as there are ranks. */
static void sharded_linears_in_full(void **state)
{
    (void)state;
    struct fixture f;
    prepare(&f, IMPL_PAPER, NULL);
    f.run.tp = 4;
    f.run.etp = 2;
    start(&f);
    const struct shape shape = SHAPE(f.b.t, f.b.h);
    struct linear l = { .name = "w", .in = f.b.h, .out = DIM("n", 10) };
    l.x = build_tensor(&f.b, "x", DT_BF16, &shape);
    build_begin(&f.b, BLOCK_EMBED, "embedding");
    l.group = PG_MLP;
    assert_int_equal(full_elems(&f, &l), 64 * 10);
    l.parallel = PAR_COLUMN;
    assert_int_equal(full_elems(&f, &l), 64 * 10 * 4);
    l.parallel = PAR_ROW;
    assert_int_equal(full_elems(&f, &l), 64 * 4 * 10);
    l.group = PG_EXPERT;
    l.copies = 3;
    l.full_copies = 6;
    assert_int_equal(full_elems(&f, &l), 64 * 2 * 10 * 6);
    l.full_in = 100;
    assert_int_equal(full_elems(&f, &l), 100 * 10 * 6);
    arena_release(&f.arena);
}

/* Autocast casts a weight once in a block, however often it is used, and all
 * the experts of it. */
static void weights_are_cast_once(void **state)
{
    (void)state;
    struct fixture f;
    prepare(&f, IMPL_PAPER, NULL);
    f.run.prec.param = DT_FP32;
    f.run.prec.autocast = true;
    start(&f);
    struct builder *b = &f.b;
    build_begin(b, BLOCK_EMBED, "embedding");
    const struct shape shape = SHAPE(b->t, b->h);
    const tensor_id x = build_tensor(b, "x", DT_BF16, &shape);
    const struct param param = { .name = "w",
                                 .group = PG_EXPERT,
                                 .rows = DIM("n", 10),
                                 .cols = b->h,
                                 .copies = 3,
                                 .matmul = true };
    struct linear l = { .name = "w",
                        .x = x,
                        .in = b->h,
                        .out = DIM("n", 10),
                        .group = PG_EXPERT,
                        .has_weight = true };
    l.weight = build_param(b, &param);
    build_linear(b, &l);
    const tensor_id y = build_linear(b, &l);
    assert_int_equal(count_ops(&f.p, OP_CAST), 1);
    const struct op *cast = &f.p.op[0];
    assert_int_equal(cast->kind, OP_CAST);
    assert_int_equal(f.p.tensor[cast->out[0]].elems, 3 * 10 * 64);
    assert_int_equal(f.p.tensor[cast->out[0]].bytes, 2 * 3 * 10 * 64);
    build_end(b, y);

    build_begin(b, BLOCK_HEAD, "head"); /* another block, another cast */
    build_linear(b, &l);
    assert_int_equal(count_ops(&f.p, OP_CAST), 2);
    arena_release(&f.arena);
}

static void ranks_of_groups(void **state)
{
    (void)state;
    struct fixture f;
    prepare(&f, IMPL_PAPER, NULL);
    f.run.cp = 2;
    start(&f);
    const struct shape shape = SHAPE(f.b.t, f.b.h);
    const tensor_id x = build_tensor(&f.b, "x", DT_BF16, &shape);
    assert_int_equal(build_all_reduce(&f.b, "r", x, COMM_TP), x);
    assert_int_equal(build_all_reduce(&f.b, "r", x, COMM_EP), x);
    const tensor_id y = build_all_reduce(&f.b, "r", x, COMM_CP);
    assert_int_not_equal(y, x);
    assert_int_equal(f.p.tensor[y].storage, x);
    assert_int_equal(f.p.op[f.p.n_ops - 1].group, COMM_CP);
    arena_release(&f.arena);
}

/* ---- refusals ---- */

typedef void change_fn(struct spec *m, struct run *r);

static void with_alibi(struct spec *m, struct run *r)
{
    (void)r;
    m->position = POS_ALIBI;
}
static void with_parallel(struct spec *m, struct run *r)
{
    (void)r;
    m->parallel_residual = true;
}
static void with_post_norm(struct spec *m, struct run *r)
{
    (void)r;
    m->place = PLACE_POST;
}
static void with_narrow_embedding(struct spec *m, struct run *r)
{
    (void)r;
    m->embed_dim = 32;
}
static void with_embedding_norm(struct spec *m, struct run *r)
{
    (void)r;
    m->embedding_norm = true;
}
static void with_full_qk_norm(struct spec *m, struct run *r)
{
    (void)r;
    m->qk_norm = QK_FULL;
}
static void with_attention_cap(struct spec *m, struct run *r)
{
    (void)r;
    m->attn_softcap = 50;
}
static void with_final_cap(struct spec *m, struct run *r)
{
    (void)r;
    m->final_softcap = 30;
}
static void with_logit_scale(struct spec *m, struct run *r)
{
    (void)r;
    m->logit_scale = 0.5;
}
static void with_embedding_scale(struct spec *m, struct run *r)
{
    (void)r;
    m->embed_scale = true;
}
static void with_layer_norm(struct spec *m, struct run *r)
{
    (void)r;
    m->norm = NORM_LAYER;
}
static void with_plain_mlp(struct spec *m, struct run *r)
{
    (void)r;
    m->gated_mlp = false;
}
static void with_experts(struct spec *m, struct run *r)
{
    (void)r;
    m->experts = 8;
    m->experts_per_token = 2;
}
static void with_states(struct spec *m, struct run *r)
{
    (void)r;
    m->mixer = MIX_MAMBA;
    m->position = POS_NONE;
}
static void with_chunked_loss(struct spec *m, struct run *r)
{
    (void)m;
    r->loss = LOSS_CHUNKED;
}
static void with_fused_loss(struct spec *m, struct run *r)
{
    (void)m;
    r->loss = LOSS_FUSED;
}
static void with_eager(struct spec *m, struct run *r)
{
    (void)m;
    r->attention = ATTN_EAGER;
}
static void with_residual_scale(struct spec *m, struct run *r)
{
    (void)r;
    m->residual_scale = true;
}
static void with_head_norm(struct spec *m, struct run *r)
{
    (void)r;
    m->head_norm = true;
}
static void with_bidirectional(struct spec *m, struct run *r)
{
    (void)r;
    m->bidirectional = true;
}
static void with_relative_positions(struct spec *m, struct run *r)
{
    (void)r;
    m->relative_buckets = 32;
}
static void with_learned_prediction(struct spec *m, struct run *r)
{
    (void)r;
    m->position = POS_LEARNED;
    m->mtp_layers = 1;
}
static void with_four_predictions(struct spec *m, struct run *r)
{
    (void)r;
    m->mtp_layers = 4;
}
static void with_five_predictions(struct spec *m, struct run *r)
{
    (void)r;
    m->mtp_layers = 5;
}
static void with_context_ranks(struct spec *m, struct run *r)
{
    (void)m;
    r->cp = 2;
}
static void with_nothing(struct spec *m, struct run *r)
{
    (void)m;
    (void)r;
}

static void with_alibi_in_fork(struct spec *m, struct run *r)
{
    m->position = POS_ALIBI;
    m->embedding_norm = true;
    r->framework = FW_MEGATRON_DEEPSPEED;
}

static const struct refusal {
    enum implementation impl;
    change_fn *change;
    const char *what; /* NULL: it has this */
} refusals[] = {
    { IMPL_PAPER, with_nothing, NULL },
    { IMPL_PAPER, with_experts, "paper has no experts" },
    { IMPL_LITGPT, with_nothing, NULL },
    { IMPL_LITGPT, with_experts, "litgpt has no experts yet" },
    { IMPL_LITGPT, with_states, "litgpt has no state-space layers" },
    { IMPL_LITGPT, with_alibi, "litgpt has no positions but rope" },
    { IMPL_LITGPT, with_logit_scale, "litgpt has no scaled logits" },
    { IMPL_LITGPT, with_eager, "litgpt has no eager attention" },
    { IMPL_LITGPT, with_fused_loss, "litgpt has no fused loss" },
    { IMPL_LITGPT, with_narrow_embedding,
      "litgpt has no embeddings narrower than the hidden size" },
    { IMPL_LITGPT, with_residual_scale,
      "litgpt has no scaled residual branches" },
    { IMPL_LITGPT, with_head_norm, "litgpt has no normed rows of the head" },
    { IMPL_LITGPT, with_full_qk_norm, NULL },
    { IMPL_LITGPT, with_attention_cap, NULL },
    { IMPL_LITGPT, with_chunked_loss, NULL },
    { IMPL_HF, with_nothing, NULL },
    { IMPL_HF, with_chunked_loss, "hf has no chunked loss" },
    { IMPL_MEGATRON, with_nothing, NULL },
    { IMPL_MEGATRON, with_embedding_scale, NULL },
    { IMPL_MEGATRON, with_experts, NULL },
    { IMPL_MEGATRON, with_alibi, "megatron has no ALiBi positions" },
    { IMPL_MEGATRON, with_parallel,
      "megatron has no parallel attention and mlp" },
    { IMPL_MEGATRON, with_post_norm,
      "megatron has no norms after attention and mlp" },
    { IMPL_MEGATRON, with_narrow_embedding,
      "megatron has no embeddings narrower than the hidden size" },
    { IMPL_MEGATRON, with_embedding_norm,
      "megatron has no norm after the embedding" },
    { IMPL_MEGATRON, with_full_qk_norm,
      "megatron has no norm over whole queries and keys" },
    { IMPL_MEGATRON, with_attention_cap,
      "megatron has no soft capping of scores or logits" },
    { IMPL_MEGATRON, with_final_cap,
      "megatron has no soft capping of scores or logits" },
    { IMPL_MEGATRON, with_logit_scale, "megatron has no scaled logits" },
    { IMPL_MEGATRON, with_chunked_loss, "megatron has no chunked loss" },
    { IMPL_MEGATRON, with_residual_scale,
      "megatron has no scaled residual branches" },
    { IMPL_MEGATRON, with_head_norm,
      "megatron has no normed rows of the head" },
    { IMPL_MEGATRON, with_bidirectional, "megatron has no encoders but BERT" },
    { IMPL_MEGATRON, with_relative_positions,
      "megatron has no relative position biases" },
    { IMPL_MEGATRON, with_learned_prediction,
      "megatron has no multi-token prediction with learned positions" },
    { IMPL_MEGATRON, with_four_predictions, NULL },
    { IMPL_MEGATRON, with_five_predictions,
      "megatron has no more than four prediction modules" },
    { IMPL_MEGATRON_LOCAL, with_nothing, NULL },
    { IMPL_MEGATRON_LOCAL, with_embedding_scale, NULL },
    { IMPL_MEGATRON_LOCAL, with_layer_norm, NULL },
    { IMPL_MEGATRON_LOCAL, with_plain_mlp, NULL },
    { IMPL_MEGATRON_LOCAL, with_eager, NULL },
    { IMPL_MEGATRON_LOCAL, with_experts, NULL },
    { IMPL_MEGATRON_LOCAL, with_context_ranks,
      "megatron-local has no context parallelism" },
    { IMPL_MEGATRON_LOCAL, with_bidirectional,
      "megatron-local has no encoders but BERT" },
    { IMPL_MEGATRON_LOCAL, with_relative_positions,
      "megatron-local has no relative position biases" },
    { IMPL_MEGATRON_LOCAL, with_alibi,
      "megatron-local has no ALiBi positions" },
    { IMPL_MEGATRON_LOCAL, with_alibi_in_fork, NULL },
    { IMPL_MEGATRON_LOCAL, with_parallel,
      "megatron-local has no parallel attention and mlp" },
    { IMPL_MEGATRON_LOCAL, with_post_norm,
      "megatron-local has no norms after attention and mlp" },
    { IMPL_MEGATRON_LOCAL, with_narrow_embedding,
      "megatron-local has no embeddings narrower than the hidden size" },
    { IMPL_MEGATRON_LOCAL, with_embedding_norm,
      "megatron-local has no norm after the embedding" },
    { IMPL_MEGATRON_LOCAL, with_full_qk_norm,
      "megatron-local has no norm over whole queries and keys" },
    { IMPL_MEGATRON_LOCAL, with_attention_cap,
      "megatron-local has no soft capping of scores or logits" },
    { IMPL_MEGATRON_LOCAL, with_logit_scale,
      "megatron-local has no scaled logits" },
    { IMPL_MEGATRON_LOCAL, with_chunked_loss,
      "megatron-local has no fused or chunked loss" },
    { IMPL_MEGATRON_LOCAL, with_fused_loss,
      "megatron-local has no fused or chunked loss" },
    { IMPL_TORCHTITAN, with_nothing, NULL },
    { IMPL_TORCHTITAN, with_bidirectional, "torchtitan has no encoders" },
    { IMPL_TORCHTITAN, with_chunked_loss, NULL },
    { IMPL_TORCHTITAN, with_experts, "torchtitan has no experts yet" },
    { IMPL_TORCHTITAN, with_layer_norm, "torchtitan has no layer norm" },
    { IMPL_TORCHTITAN, with_plain_mlp, "torchtitan has no mlp without a gate" },
    { IMPL_TORCHTITAN, with_alibi, "torchtitan has no positions but rope" },
    { IMPL_TORCHTITAN, with_parallel,
      "torchtitan has no other order of norms than Llama's" },
    { IMPL_TORCHTITAN, with_post_norm,
      "torchtitan has no other order of norms than Llama's" },
    { IMPL_TORCHTITAN, with_full_qk_norm,
      "torchtitan has no norm over whole queries and keys" },
    { IMPL_TORCHTITAN, with_final_cap,
      "torchtitan has no soft capping of scores or logits" },
    { IMPL_TORCHTITAN, with_logit_scale,
      "torchtitan has no scaled embeddings or logits" },
    { IMPL_TORCHTITAN, with_embedding_scale,
      "torchtitan has no scaled embeddings or logits" },
    { IMPL_TORCHTITAN, with_narrow_embedding,
      "torchtitan has no embeddings narrower than the hidden size" },
    { IMPL_TORCHTITAN, with_eager, "torchtitan has no eager attention" },
    { IMPL_TORCHTITAN, with_fused_loss,
      "torchtitan has no fused loss but a compiled one (add --compile)" },
};

static void what_is_missing_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        const struct refusal *row = &refusals[i];
        struct fixture f;
        prepare(&f, row->impl, NULL);
        row->change(&f.spec, &f.run);
        const memplan_status status =
            lower_model(&f.p, &f.spec, &f.run, &f.arena, &f.diag);
        if (row->what == NULL) {
            assert_int_equal(status, MEMPLAN_OK);
        } else {
            char want[sizeof(f.slot.message)] = "implementation ";
            strncat(want, row->what, sizeof(want) - strlen(want) - 1);
            if (status != MEMPLAN_E_UNSUPPORTED)
                fail_msg("not refused: %s", row->what);
            assert_int_equal(f.errs.count, 1);
            assert_string_equal(f.slot.message, want);
            assert_string_equal(f.slot.key, "implementation");
        }
        arena_release(&f.arena);
    }
}

/* ---- torchtitan's tensor parallelism ---- */

static const struct op *first_of(const memplan_report *r, enum op_kind kind)
{
    const struct program *p = &r->program;
    const struct block *b = &p->block[p->layer_block[0]];
    for (uint32_t i = 0; i < b->op_count; i++)
        if (p->op[b->op_first + i].kind == kind)
            return &p->op[b->op_first + i];
    return NULL;
}

#define TITAN(precision, async)                                                \
    ((const char *const[]){ "framework", "torchtitan", "gpus", "8", "tp", "8", \
                            "compile", "true", "gpu", "h100-80gb",             \
                            "precision", precision, "async_tp", async,         \
                            "seq_len", "4096", "micro_batch", "2", NULL })

/* What is gathered, and what is to be scattered, is put in order by a copy, not
 * so in one operation with the products; what backward scatters is, always, and
 * what it gathers for weights. */
static void copies_between_ranks(void **state)
{
    (void)state;
    const uint64_t whole = 2 * UINT64_C(2) * 4096 * 8192;
    for (unsigned i = 0; i < 4; i++) {
        const bool async = i % 2 != 0, small = i / 2 != 0;
        memplan_report *r =
            estimate("llama-3-70b", TITAN(small ? "fp8-mixed" : "bf16-mixed",
                                          async ? "true" : "false"));
        const struct op *gather = first_of(r, OP_ALL_GATHER);
        const struct op *scatter = first_of(r, OP_REDUCE_SCATTER);
        const struct tensor *t = r->program.tensor;
        assert_int_equal(gather->n_out, async ? 1 : 2);
        assert_int_equal(scatter->n_out, async ? 1 : 2);
        assert_int_equal(gather->pipelined && scatter->pipelined, async);
        assert_int_equal(gather->back_bytes, whole);
        assert_int_equal(scatter->back_bytes, small ? whole / 2 : whole);
        assert_int_equal(t[gather->out[0]].bytes, small ? whole / 2 : whole);
        assert_int_equal(t[scatter->in[0]].bytes, whole);
        assert_int_equal(t[scatter->in[0]].grad_in_8_bits, small);
        const struct op *last = gather + 3; /* of queries, keys, values */
        assert_int_equal(last->kind, OP_LINEAR);
        assert_int_equal(last->back_bytes, async && !small ? whole : 0);
        memplan_report_free(r);
    }
}

/* Two of a rank's parts, and the signals, in granules of 2 MiB. */
static void memory_that_ranks_share(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        memplan_report *r =
            estimate("llama-3-70b", TITAN("bf16-mixed", i ? "true" : "false"));
        const struct memory_result *m = &r->memory;
        const struct outside_row *last = &m->outside_row[m->n_outside - 1];
        const uint64_t part = UINT64_C(2) * 4096 / 8 * 8192 * 2;
        assert_int_equal(strcmp(last->key, "symmetric_memory") == 0, i);
        if (i)
            assert_int_equal(last->bytes, 2 * part + (UINT64_C(2) << 20));
        memplan_report_free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_grow),
        cmocka_unit_test(arrays_fail_to_grow),
        cmocka_unit_test(sharded_linears_in_full),
        cmocka_unit_test(weights_are_cast_once),
        cmocka_unit_test(ranks_of_groups),
        cmocka_unit_test(copies_between_ranks),
        cmocka_unit_test(memory_that_ranks_share),
        cmocka_unit_test(what_is_missing_is_named),
    };
    return cmocka_run_group_tests_name("build", tests, NULL, NULL);
}
