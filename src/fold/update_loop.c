/*
 * What an optimizer's loop over tensors holds at its fullest: temporaries of
 * the tensor that it has in hand, the tensor before that a variable still
 * names, and the products of Muon's update.
 * [docs/method.md eq. step]
 */
#include "fold/states.h"

#include "base/unit.h"

#include "base/banned.h"

/* The square root and its quotient (torch/optim/adam.py), the square root alone
 * (adagrad.py, rmsprop.py), the update and its sign (lion_pytorch), its
 * negative (transformers' Adafactor). */
static unsigned temporaries(enum optimizer o)
{
    switch (o) {
    case OPT_ADAMW:
    case OPT_LAMB:
    case OPT_MUON:
    case OPT_GALORE:
    case OPT_APOLLO:
    case OPT_LION:
    case OPT_ADAFACTOR: return 2;
    case OPT_ADAGRAD:
    case OPT_RMSPROP: return 1;
    case OPT_ADAM8BIT:
    case OPT_PAGED_ADAM8BIT:
    case OPT_PAGED_ADAMW:
    case OPT_ADAM4BIT:
    case OPT_SGD:
    case OPT_MOMENTUM:
    case OPT_LION8BIT:
    case OPT_GALORE8BIT:
    case OPT_NONE:
    case OPTIMIZER_COUNT: return 0;
    }
    return 0;
}

/* Emerging Optimizers' Lion, in Megatron Core: one kernel makes a tensor's
 * update, while the last one's has its name (scalar_optimizers/base.py, lion.py). */
static bool is_compiled(const struct run *run)
{
    return run->optimizer == OPT_LION && run_engine_is_megatron(run);
}

/* `denom`, `std`, `avg` of torch/optim name the last tensor's until they name
 * the next one's; so does `norm_grad` of galore_torch and apollo_torch, beside
 * `denom`. */
static unsigned named_before(const struct run *run)
{
    if (is_compiled(run))
        return 1;
    switch (run->optimizer) {
    case OPT_ADAMW:
    case OPT_MUON:
    case OPT_ADAGRAD:
    case OPT_RMSPROP: return 1;
    case OPT_GALORE:
    case OPT_APOLLO: return 2;
    case OPT_LAMB:
    case OPT_LION:
    case OPT_ADAFACTOR:
    case OPT_ADAM8BIT:
    case OPT_PAGED_ADAM8BIT:
    case OPT_PAGED_ADAMW:
    case OPT_ADAM4BIT:
    case OPT_SGD:
    case OPT_MOMENTUM:
    case OPT_LION8BIT:
    case OPT_GALORE8BIT:
    case OPT_NONE:
    case OPTIMIZER_COUNT: return 0;
    }
    return 0;
}

bool update_loops(const struct run *run)
{
    return run->optimizer_impl == OPTIMPL_LOOP || run->optimizer == OPT_MUON
           || run_projects(run);
}

uint64_t update_size(const struct run *run)
{
    return dtype_size(run->prec.master == DT_NONE ? run->prec.param
                                                  : run->prec.master);
}

/* Adafactor works in fp32, beside fp32 copies of a narrower weight and its
 * gradient (transformers/optimization.py). */
unsigned update_temporaries(const struct run *run, uint64_t size)
{
    if (run->optimizer == OPT_ADAFACTOR && size < dtype_size(DT_FP32))
        return (unsigned)(4 * dtype_size(DT_FP32) / size);
    return is_compiled(run) ? 1 : temporaries(run->optimizer);
}

/* A matrix that Muon's own update is for. */
static bool is_muon(const struct run *run, const struct tensor *t)
{
    return run->optimizer == OPT_MUON && t->matmul && t->group != PG_HEAD;
}

/* The update as the gradient's type has it, two iterates X of 16 bits, X X^T
 * and its polynomial: when the second X is made, the first one of a 16-bit
 * update is the update itself (torch/optim/_muon.py). */
static uint64_t muon_bytes(const struct run *run, const struct tensor *t)
{
    const uint64_t side = min_u64(t->rows, t->cols);
    const uint64_t bf16 = dtype_size(DT_BF16);
    return t->elems * update_size(run) + 2 * bf16 * t->elems
           + 2 * bf16 * side * side;
}

/* Under transformers' own plan the optimizer has a group of what is no DTensor,
 * the norms, and so a second loop, whose variables are its own (trainer.py,
 * create_optimizer). */
static bool has_own_loop(const struct run *run, const struct tensor *t)
{
    return run_is_hf(run) && run->tp > 1 && t->elems == t->full_elems;
}

static void loop_take(struct update_loop *l, const struct run *run,
                      const struct tensor *t)
{
    if (is_muon(run, t)) {
        l->muon = max_u64(l->muon, muon_bytes(run, t));
        return;
    }
    if (t->projected) {
        projected_take(&l->projected, run, t);
        return;
    }
    if (has_own_loop(run, t)) { /* of one size, all but all of them */
        const unsigned all =
            update_temporaries(run, update_size(run)) + named_before(run);
        l->most = max_u64(l->most, all * t->elems);
        l->elems += t->elems;
        return;
    }
    const struct update_loop one = {
        .first = t->elems,
        .last = t->elems,
        .most = update_temporaries(run, update_size(run)) * t->elems,
        .elems = t->elems,
    };
    update_loop_add(l, &one, run);
}

void update_loop_of(struct update_loop *l, const struct program *p,
                    const struct block *b, const struct run *run,
                    bool counts_tied)
{
    const struct tensor *t;
    *l = (struct update_loop){ 0 };
    for (int last = 0; last <= 1; last++)
        for (tensor_id id = b->weights; id != TENSOR_NONE; id = t->next) {
            t = &p->tensor[id];
            if (t->role == ROLE_PARAM && t->trainable && !t->dropped
                && !t->statistic && !t->again && (!t->tied || counts_tied)
                && program_comes_last(p, b, t) == (last == 1))
                loop_take(l, run, t);
        }
}

void update_loop_add(struct update_loop *sum, const struct update_loop *next,
                     const struct run *run)
{
    sum->muon = max_u64(sum->muon, next->muon);
    projected_add(&sum->projected, &next->projected, run);
    sum->elems += next->elems;
    sum->most = max_u64(sum->most, next->most);
    if (next->first == 0)
        return;
    /* what is named goes as each temporary takes its name */
    const unsigned made = update_temporaries(run, update_size(run));
    const unsigned named = named_before(run);
    uint64_t meet = made * next->first + min_u64(named, 1) * sum->last;
    if (named > 1)
        meet = max_u64(meet, next->first + named * sum->last);
    sum->most = max_u64(sum->most, meet);
    if (sum->first == 0)
        sum->first = next->first;
    sum->last = next->last;
}
