/*
 * Owns DBRX's experts (modeling_dbrx.py): no grouped products, a loop in Python
 * over experts, each a part of three parameters of all. Refuses to know what
 * stands before and after them. [docs/method.md eq. transient]
 */
#include "lower/hf.h"

#include "base/banned.h"

/* The parameters w1, v1 and w2 of all experts. */
enum { W1, V1, W2, WEIGHTS };
static const char *const names[WEIGHTS] = { "experts.w1", "experts.v1",
                                            "experts.w2" };

struct loop {
    struct routing r;
    tensor_id x;
    tensor_id weight[WEIGHTS];
    struct dim rows; /* of one expert */
    tensor_id sum;   /* of what experts before gave */
};

/* softmax in the logits' dtype, the chosen over their 1-norm, which autocast
 * takes in fp32. */
static struct routing route(struct builder *b, tensor_id x)
{
    const struct dim k = DIM("k", b->spec->experts_per_token);
    const bool autocasts = b->autocast;
    struct routing r;
    const tensor_id logits =
        build_linear(b, &(struct linear){ .name = "router.layer",
                                          .x = x,
                                          .in = b->h,
                                          .out = b->experts,
                                          .group = PG_ROUTER,
                                          .lora = LORA_NAMELESS });
    const enum dtype dtype = tensor_of(b, logits)->dtype;
    b->autocast = false; /* the dtype is said */
    const tensor_id p = build_softmax(b, "router softmax", logits, dtype);
    b->autocast = autocasts;
    const tensor_id top = build_topk(b, "top-k", p, k, &r.indices);
    const struct shape one = shape_last(b, top, b->one);
    const tensor_id norm =
        build_tensor(b, "top-k norm", b->autocast ? DT_FP32 : dtype, &one);
    op_result(b, build_op(b, OP_MEAN, "top-k norm", &top, 1), norm);
    r.weights = build_binary(b, OP_DIV, "routing weights", top, norm);
    return r;
}

/* Made whole, and looked at as [E, F, h]. */
static tensor_id weight_of_all(struct builder *b, const char *name)
{
    const struct spec *m = b->spec;
    const uint64_t ffn = m->expert_ffn == 0 ? m->ffn : m->expert_ffn;
    const struct shape all = SHAPE(b->experts_on, b->fe, b->h);
    const tensor_id w = build_param(
        b, &(struct param){
               .name = name,
               .group = PG_EXPERT,
               .rows = b->fe,
               .cols = b->h,
               .copies = b->experts_on.n,
               .flat = true,
               .full_elems = build_product(b, m->experts,
                                           build_product(b, ffn, m->hidden)) });
    const tensor_id view = build_view(b, name, w, &all);
    /* its gradient is what was summed */
    build_place(b, PLACE_PIECES);
    return view;
}

/* w.view(...)[expert]: backward makes zeros of all experts with the one's
 * gradient in them, seen as the parameter is. */
static tensor_id weight_of_one(struct builder *b, const char *name,
                               tensor_id all)
{
    const struct shape whole = shape_of(b, all), one = SHAPE(b->fe, b->h);
    return build_view(b, name, build_view(b, name, all, &whole), &one);
}

static struct linear product(const struct builder *b, const struct loop *l,
                             unsigned which, tensor_id w)
{
    return (struct linear){ .name = names[which],
                            .x = l->x,
                            .in = which == W2 ? b->fe : b->h,
                            .out = which == W2 ? b->h : b->fe,
                            .group = PG_EXPERT,
                            .weight = w,
                            .has_weight = true };
}

/* index_add_: keeps what is added, and where. */
static void add_rows(struct builder *b, struct loop *l, tensor_id states,
                     tensor_id places)
{
    const struct shape tokens = SHAPE(b->t, b->h);
    const tensor_id in[] = { l->sum, states, places };
    struct op *op = build_op(b, OP_FUNCTION, "index_add_", in, 3);
    op->place = PLACE_GRADIENT;
    op->keep_in = 1u << 1 | 1u << 2;
    const tensor_id out = build_alias(b, "experts summed", l->sum, &tokens);
    op_result(b, &b->p->op[b->p->n_ops - 1], out);
    l->sum = out;
}

/* One turn. */
static void one_expert(struct builder *b, struct loop *l)
{
    const struct shape two = SHAPE(l->rows, DIM("2", 2));
    const struct shape picked = SHAPE(l->rows, b->h);
    const struct shape column = SHAPE(l->rows, b->one);
    const tensor_id x = l->x;
    const tensor_id places =
        build_tensor(b, "places", DT_INT64, &two); /* nonzero() */
    op_byproduct(build_op(b, OP_CAST, "places", &l->r.indices, 1), places);
    tensor_id w[WEIGHTS];
    w[V1] = weight_of_one(b, names[V1], l->weight[V1]);
    w[W1] = weight_of_one(b, names[W1], l->weight[W1]);
    w[W2] = weight_of_one(b, names[W2], l->weight[W2]);
    const tensor_id in = build_index(b, "routed", x, places, &picked);
    struct linear p = product(b, l, W1, w[W1]);
    p.x = in;
    const tensor_id gate = build_linear(b, &p);
    p = product(b, l, V1, w[V1]);
    p.x = in;
    const tensor_id up = build_linear(b, &p);
    const tensor_id act = build_activation(b, "act", b->spec->act, gate);
    p = product(b, l, W2, w[W2]);
    p.x = build_mul(b, "gated", act, up);
    const tensor_id down = build_linear(b, &p);
    hf_hold(b, "x", in);
    hf_hold(b, "up_proj", up);
    const tensor_id weight =
        build_index(b, "its weights", l->r.weights, places, &column);
    add_rows(b, l, build_mul(b, "weighted", down, weight), places);
}

tensor_id hf_dbrx(struct builder *b, tensor_id x)
{
    const uint64_t turns = max_u64(min_u64(b->experts_on.n, b->routed.n), 1);
    const struct shape tokens = SHAPE(b->t, b->h);
    const struct shape hot =
        SHAPE(b->t, DIM("k", b->spec->experts_per_token),
              DIM("E+1", build_product(b, 1, b->experts_on.n) + 1));
    struct loop l = { .x = x,
                      .rows = DIM("b*s*k/E", div_up(b->routed.n, turns)) };
    l.r = route(b, x);
    const tensor_id mask = build_tensor(b, "expert_mask", DT_INT64, &hot);
    op_byproduct(build_op(b, OP_CAST, "one_hot", &l.r.indices, 1), mask);
    l.sum = build_tensor(b, "next_states", tensor_of(b, x)->dtype, &tokens);
    op_byproduct(build_op(b, OP_CAST, "zeros_like", &x, 1), l.sum);
    for (unsigned i = 0; i < WEIGHTS; i++)
        l.weight[i] = weight_of_all(b, names[i]);
    for (uint64_t i = 0; i < turns; i++)
        one_expert(b, &l);
    hf_hold(b, "expert_mask", mask);
    return l.sum;
}
