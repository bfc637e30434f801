/*
 * Owns the factors of shapes: heads, widths, tokens and experts as one rank has
 * them, with the names that formulas show. Refuses to know what is made of
 * them.
 */
#include "lower/build_private.h"

#include <math.h>

#include "base/banned.h"

static struct dim tokens_dim(struct builder *b, bool sequence_shard)
{
    const struct run *r = b->run;
    const uint64_t all = build_product(b, b->seqs, b->len);
    const uint64_t cp = at_least_one(r->cp);
    const uint64_t tp = at_least_one(r->tp);
    if (run_prompts(r))
        return DIM("b*(s+n)", all);
    if (!sequence_shard || tp == 1)
        return DIM(cp > 1 ? "b*s/cp" : "b*s", div_up(all, cp));
    return DIM(cp > 1 ? "b*s/cp/tp" : "b*s/tp", div_up(div_up(all, cp), tp));
}

static void start_attention_dims(struct builder *b)
{
    const struct spec *m = b->spec;
    const uint64_t tp = at_least_one(b->run->tp);
    const bool cut = tp > 1;
    b->a = DIM(cut ? "a/tp" : "a", div_up(m->heads, tp));
    /* fewer kv heads than ranks: each rank has a copy of one */
    if (m->kv_heads < tp)
        b->kv = DIM("1", 1);
    else
        b->kv = DIM(cut ? "kv/tp" : "kv", div_up(m->kv_heads, tp));
    b->d = DIM("d", m->head_dim);
    b->A = DIM(cut ? "a*d/tp" : "a*d", build_product(b, b->a.n, b->d.n));
    b->K = DIM(!cut                  ? "kv*d"
               : b->kv.sym[0] == '1' ? "d"
                                     : "kv*d/tp",
               build_product(b, b->kv.n, b->d.n));
    const struct count qkv =
        count_add(count_of(b->A.n), count_mul(count_of(2), count_of(b->K.n)));
    b->qkv = DIM(cut ? "(a+2*kv)*d/tp" : "(a+2*kv)*d", build_checked(b, qkv));
    b->full_A = build_product(b, m->heads, m->head_dim);
    b->full_K = build_product(b, m->kv_heads, m->head_dim);
    b->dv = b->d;
    b->O = b->A;
    b->full_O = b->full_A;
}

static void start_latent_dims(struct builder *b)
{
    const struct spec *m = b->spec;
    const bool cut = b->run->tp > 1;
    b->dv = DIM("dv", m->v_dim);
    b->O = DIM(cut ? "a*dv/tp" : "a*dv", build_product(b, b->a.n, b->dv.n));
    b->full_O = build_product(b, m->heads, m->v_dim);
    b->rq = DIM("rq", m->q_rank);
    b->rkv = DIM("rkv", m->kv_rank);
    b->nope = DIM("dn", m->nope_dim);
    b->rope = DIM("dr", m->rope_dim);
    b->latent = DIM("rkv+dr", m->kv_rank + m->rope_dim);
    b->kv_up = DIM(cut ? "a*(dn+dv)/tp" : "a*(dn+dv)",
                   build_product(b, b->a.n, m->nope_dim + m->v_dim));
}

/* Rows times a factor, rounded up. */
static uint64_t scaled_rows(struct builder *b, uint64_t rows, double factor)
{
    const double n = (double)rows * factor;
    b->over = b->over || !(n < (double)ELEMS_MAX);
    return b->over || !(factor > 1 || factor < 1) ? rows : (uint64_t)ceil(n);
}

/* Balanced, what a rank sends away is what it receives. Uneven, the fullest
 * rank of a group receives more; an expert takes no more than its capacity, and
 * padded always so much (core/transformer/moe/moe_utils.py, get_capacity).
 * Experts that are themselves sharded see the tokens of all their ranks. */
static void start_routed_dims(struct builder *b)
{
    const struct spec *m = b->spec;
    const struct run *r = b->run;
    const uint64_t tp = at_least_one(r->tp), etp = at_least_one(r->etp);
    const bool cut = r->sequence_parallel && tp > etp;
    const uint64_t k = m->experts_per_token;
    const uint64_t rows =
        r->sequence_parallel ? build_product(b, b->tu.n, etp) : b->t.n;
    const bool capped = r->moe_capacity > 0;
    double sent = 1,
           received = r->ep > 1 && r->moe_imbalance > 1 ? r->moe_imbalance : 1;
    if (capped && r->moe_padded)
        sent = received = r->moe_capacity;
    else if (capped && r->moe_capacity < received)
        received = r->moe_capacity;
    if (received < sent)
        sent = received;
    const uint64_t even = build_product(b, rows, k);
    b->chosen =
        DIM("b*s*k", scaled_rows(b, build_product(b, b->tu.n, k), sent));
    if (k > 0)
        b->p->chosen = b->chosen.n;
    b->routed =
        DIM(cut ? "b*s*k*etp/tp" : "b*s*k", scaled_rows(b, even, received));
    const double reached =
        program_reached((double)at_least_one(r->ep), b->p->routed_share, k);
    b->once = DIM("b*s*ranks of k",
                  scaled_rows(b, b->tu.n, fmin(reached, (double)k) * received));
    b->routed_share = b->routed.n == 0 ? 1 : (double)even / (double)b->routed.n;
}

static void start_expert_dims(struct builder *b)
{
    const struct spec *m = b->spec;
    const struct run *r = b->run;
    const uint64_t tp = at_least_one(r->tp), etp = at_least_one(r->etp);
    b->experts = DIM("E", m->experts);
    b->experts_on =
        DIM(r->ep > 1 ? "E/ep" : "E", div_up(m->experts, at_least_one(r->ep)));
    start_routed_dims(b);
    const uint64_t ffn = m->expert_ffn == 0 ? m->ffn : m->expert_ffn;
    b->fe = DIM(etp > 1 ? "f/etp" : "f", div_up(ffn, etp));
    b->fe2 = DIM(etp > 1 ? "2*f/etp" : "2*f", build_product(b, 2, b->fe.n));
    b->fs = DIM(tp > 1 ? "f_shared/tp" : "f_shared", div_up(m->shared_ffn, tp));
    b->fs2 = DIM(tp > 1 ? "2*f_shared/tp" : "2*f_shared",
                 build_product(b, 2, b->fs.n));
}

void build_dims(struct builder *b)
{
    const struct spec *m = b->spec;
    const struct run *r = b->run;
    const uint64_t tp = at_least_one(r->tp), cp = at_least_one(r->cp);
    const bool cut = tp > 1;
    b->one = DIM("1", 1);
    b->micro = DIM("b", b->seqs);
    const char *s = run_prompts(r) ? "s+n" : "s";
    b->s = DIM(s, b->len);
    b->sq = DIM(cp > 1 ? "s/cp" : s, div_up(b->len, cp));
    if (run_prefixes(r))
        b->s = DIM("s+n", b->len + r->virtual_tokens);
    b->t = tokens_dim(b, false);
    b->tu = tokens_dim(b, r->sequence_parallel);
    b->h = DIM("h", m->hidden);
    b->e = DIM("e", m->embed_dim == 0 ? m->hidden : m->embed_dim);
    b->f = DIM(cut ? "f/tp" : "f", div_up(m->ffn, tp));
    b->f2 = DIM(cut ? "2*f/tp" : "2*f", build_product(b, 2, b->f.n));
    b->V = DIM(cut ? "V/tp" : "V",
               div_up(r->vocab == 0 ? m->vocab : r->vocab, tp));
    b->r = DIM("r", r->lora_rank);
    b->s_target = DIM("s_dec", r->decoder_seq_len);
    start_attention_dims(b);
    if (build_is_latent(b))
        start_latent_dims(b);
    if (m->experts > 0)
        start_expert_dims(b);
}
