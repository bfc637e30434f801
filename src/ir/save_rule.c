/*
 * Owns what an autograd engine keeps of each kind of operation for its
 * backward (pytorch tools/autograd/derivatives.yaml, and the save_for_backward
 * calls of the fused kernels). Refuses to know sizes, architectures and time.
 * An operand is kept only if the gradient of another one needs it.
 * [docs/method.md eq. saved]
 */
#include "ir/program.h"

#include "base/banned.h"

struct saved_list {
    const struct tensor *tensor;
    const struct op *op;
    uint8_t *at;
    size_t n;
};

static void keep(struct saved_list *s, unsigned operand)
{
    if (s->n < SAVED_MAX)
        s->at[s->n++] = (uint8_t)operand;
}

static void keep_in(struct saved_list *s, unsigned i)
{
    if (i < s->op->n_in)
        keep(s, i);
}

static void keep_all_in(struct saved_list *s)
{
    for (unsigned i = 0; i < s->op->n_in; i++)
        keep_in(s, i);
}

/* What is no parameter itself: made of one. */
static void keep_made(struct saved_list *s, unsigned i)
{
    if (i < s->op->n_in && s->tensor[s->op->in[i]].role == ROLE_ACTIVATION)
        keep_in(s, i);
}

/* Results from number `first` on. */
static void keep_out(struct saved_list *s, unsigned first)
{
    for (unsigned i = first; i < s->op->n_out; i++)
        keep(s, s->op->n_in + i);
}

static bool grad(const struct saved_list *s, unsigned i)
{
    return i < s->op->n_in && s->tensor[s->op->in[i]].needs_grad;
}

static bool any_grad(const struct saved_list *s)
{
    for (unsigned i = 0; i < s->op->n_in; i++)
        if (s->tensor[s->op->in[i]].needs_grad)
            return true;
    return false;
}

/* in: x, weight, and, told apart by role, the bias (a parameter), the
 * quantised weight that the second operand was made from (a matrix product's
 * parameter), what is kept in place of x (activations: a copy, its scales).
 * Of a weight cast within the function the stored one is kept. */
static void save_linear(struct saved_list *s)
{
    const bool keeps = grad(s, 1) || (s->op->keep_in & 1) != 0;
    unsigned weight = 1;
    bool replaced = false;
    for (unsigned i = 2; i < s->op->n_in; i++) {
        const struct tensor *t = &s->tensor[s->op->in[i]];
        if (t->role == ROLE_PARAM) {
            weight = t->matmul ? i : weight;
            continue;
        }
        replaced = true;
        if (keeps)
            keep_in(s, i);
    }
    if (keeps && !replaced)
        keep_in(s, 0);
    if (grad(s, 0) && (s->op->keep_in & CAST_INSIDE) == 0)
        keep_in(s, weight);
}

bool op_keeps_shard(const struct program *p, const struct op *op)
{
    for (unsigned i = 2; i < op->n_in; i++)
        if (p->tensor[op->in[i]].role != ROLE_PARAM)
            return true;
    return false;
}

/* Each factor, if the other one's gradient needs it. */
static void save_product(struct saved_list *s)
{
    if (grad(s, 1))
        keep_in(s, 0);
    if (grad(s, 0))
        keep_in(s, 1);
}

static void save_fused(struct saved_list *s)
{
    for (unsigned i = 0; i < s->op->n_in; i++)
        if ((s->op->keep_in >> i & 1) != 0)
            keep_in(s, i);
    for (unsigned i = 0; i < s->op->n_out; i++)
        if ((s->op->keep_out >> i & 1) != 0)
            keep(s, s->op->n_in + i);
}

/* Longer than a screen, and in one piece: a row a kind, so that the compiler
 * names the kind that has none. */
size_t op_saves_operands(const struct program *p, const struct op *op,
                         uint8_t at[SAVED_MAX])
{
    struct saved_list s = { p->tensor, op, at, 0 };
    if (!any_grad(&s))
        return 0;
    switch (op->kind) {
    case OP_LINEAR: save_linear(&s); break;
    case OP_MATMUL:
    case OP_MUL: save_product(&s); break;
    case OP_DIV:
        keep_in(&s, 1);
        if (grad(&s, 1))
            keep_in(&s, 0);
        break;
    case OP_POW:
    case OP_AVG_POOL:
    case OP_ACTIVATION:
    case OP_PYTHON_GELU: keep_in(&s, 0); break;
    case OP_RSQRT:
    case OP_TANH:
    case OP_MASKED_SOFTMAX:
    case OP_RELU: keep_out(&s, 0); break;
    case OP_SOFTMAX: /* in: x, kept by PyTorch before 1.11 */
    case OP_LOG_SOFTMAX:
        if ((op->keep_in & 1) != 0)
            keep_in(&s, 0);
        keep_out(&s, 0);
        break;
    case OP_INDEX: /* in: x, kept where rows are added; indices */
        if ((op->keep_in & 1) != 0)
            keep_in(&s, 0);
        keep_in(&s, 1);
        break;
    case OP_EMBEDDING: /* in: table, indices */
    case OP_WHERE: /* in: x, mask */ keep_in(&s, 1); break;
    case OP_TOPK:
    case OP_DROPOUT:
    case OP_DROPOUT_ADD:
    case OP_CROSS_ENTROPY: /* out: loss, softmax, mask, indices */
        keep_out(&s, 1);
        break;
    case OP_COMPILED_CROSS_ENTROPY: /* out: loss, a copy, softmax, ... */
    case OP_FUSED_CROSS_ENTROPY:    /* out: loss, a chunk, gradients */
        keep_out(&s, 2);
        break;
    case OP_NLL_LOSS: /* in: log-probabilities, labels; out: loss, weight */
        keep_all_in(&s);
        keep_out(&s, 1);
        break;
    case OP_CONV: /* whatever is trained (derivatives.yaml) */
        keep_in(&s, 0);
        keep_in(&s, 1);
        break;
    case OP_BATCH_NORM: /* as the next; out: y, statistics */
    case OP_MAX_POOL:   /* in: x; out: y, places */
    case OP_RMS_NORM:
        keep_in(&s, 0);
        keep_out(&s, 1);
        break;
    case OP_LAYER_NORM: /* in: x, weight, bias; out: y, statistics */
        keep_in(&s, 0);
        keep_made(&s, 1);
        keep_made(&s, 2);
        keep_out(&s, 1);
        break;
    case OP_FLASH_ATTENTION:
        keep_all_in(&s);
        if (op->keep_out != 0)
            save_fused(&s);
        else
            keep_out(&s, 0);
        break;
    case OP_SDPA:
        keep_all_in(&s);
        keep_out(&s, 0);
        break;
    case OP_SWIGLU:
        if (op->keep_in != 0)
            save_fused(&s);
        else
            keep_all_in(&s);
        break;
    case OP_FUSED:
    case OP_FUNCTION:
    case OP_LOOP: save_fused(&s); break;
    case OP_SOLVE: /* in: the system, the right side */
        keep_in(&s, 0);
        keep_out(&s, 0);
        break;
    case OP_ADD:
    case OP_SCALE:
    case OP_NEG:
    case OP_MEAN:
    case OP_CAST:
    case OP_COPY:
    case OP_VIEW:
    case OP_CAT:
    case OP_CUMSUM:
    case OP_QUANTIZE:
    case OP_RELEASE:
    case OP_ALL_REDUCE:
    case OP_ALL_GATHER:
    case OP_REDUCE_SCATTER:
    case OP_ALL_TO_ALL:
    case OP_KIND_COUNT: break;
    }
    return s.n;
}

size_t op_saves(const struct program *p, const struct op *op,
                tensor_id saved[SAVED_MAX])
{
    uint8_t at[SAVED_MAX];
    const size_t n = op_saves_operands(p, op, at);
    for (size_t i = 0; i < n; i++)
        saved[i] = at[i] < op->n_in ? op->in[at[i]] : op->out[at[i] - op->n_in];
    return n;
}

bool op_saves_any(const struct program *p, const struct op *op, bool *result)
{
    tensor_id saved[SAVED_MAX];
    const size_t n = op_saves(p, op, saved);
    *result = false;
    for (size_t i = 0; i < n; i++)
        for (unsigned k = 0; k < op->n_out; k++)
            *result = *result || saved[i] == op->out[k];
    return n > 0;
}

/* ---- names ---- */

#define OP(id, name, keeps) { name, keeps },
static const struct {
    const char *name, *keeps;
} op_text[] = {
#include "ir/op_kind.def"
};
#undef OP

const char *op_kind_name(enum op_kind kind)
{
    return kind < OP_KIND_COUNT ? op_text[kind].name : "";
}

const char *op_kind_keeps(enum op_kind kind)
{
    return kind < OP_KIND_COUNT ? op_text[kind].keeps : "";
}

const char *param_group_name(enum param_group group)
{
    switch (group) {
    case PG_EMBED: return "embedding";
    case PG_POSITION: return "position embedding";
    case PG_ATTENTION: return "attention";
    case PG_SSM: return "state space";
    case PG_CONV: return "convolutions";
    case PG_CONDITION: return "conditioning";
    case PG_MLP: return "mlp";
    case PG_EXPERT: return "experts";
    case PG_SHARED_EXPERT: return "shared experts";
    case PG_ROUTER: return "router";
    case PG_NORM: return "norms";
    case PG_HEAD: return "head";
    case PG_PROJECTOR: return "projector";
    case PG_ADAPTER: return "adapters";
    case PG_COUNT: break;
    }
    return "";
}
