/*
 * Owns the keys of CUDA graphs: what of Megatron's layers is in graphs, what is
 * said of them, and what they do not go with: Megatron's own conditions
 * (core/transformer/transformer_config.py at d98e8a64), and what is not modelled.
 */
#include "spec/resolve.h"

#include <inttypes.h>

#include "base/banned.h"

enum { MLM_GRAPH_WARMUP_STEPS = 3 }; /* transformer_config.py */

void resolve_graphs(struct run *r)
{
    r->cuda_graph = resolve_bool(r, KEY_CUDA_GRAPH, false);
    r->graph_step = STEP_EAGER;
    if (!r->cuda_graph)
        return;
    r->cuda_graph_impl = (enum cuda_graph_impl)resolve_count(
        r, KEY_CUDA_GRAPH_IMPL, GRAPHS_OF_TE);
    r->cuda_graph_scope = resolve_count(r, KEY_CUDA_GRAPH_SCOPE, 0);
    r->cuda_graph_warmup_steps =
        resolve_count(r, KEY_CUDA_GRAPH_WARMUP_STEPS, MLM_GRAPH_WARMUP_STEPS);
}

void resolve_say_graphs(struct run *r)
{
    if (!r->cuda_graph)
        return;
    resolve_note(r, KEY_CUDA_GRAPH,
                 "CUDA graphs as Megatron-LM of August 2026 has them with "
                 "Transformer Engine 2.7 and later, captured after %" PRIu64
                 " steps without: the peak is of all these steps; their pool "
                 "is reserved, and what is in it counts as allocated while it "
                 "is captured alone",
                 r->cuda_graph_warmup_steps);
    resolve_note(r, KEY_CUDA_GRAPH,
                 "the time to start kernels is counted as without graphs");
}

/* ---- what they do not go with ---- */

static bool graphs(const struct run *r, enum cuda_graph_scope part)
{
    return (r->cuda_graph_scope >> part & 1) != 0;
}

/* Else their other conditions say nothing. */
static bool check_whose(const struct run *r, struct diag *d)
{
    const struct obstacle list[] = {
        { !resolve_is_megatron(r), KEY_CUDA_GRAPH, MEMPLAN_E_UNSUPPORTED,
          "cuda_graph outside of Megatron's layers is not modelled yet: of "
          "torch.compile, mode reduce-overhead, trees of graphs share pools of "
          "their own",
          "add --framework megatron, or leave it out" },
        { resolve_is_megatron(r)
              && (r->engine != ENGINE_MEGATRON || r->impl != IMPL_MEGATRON),
          KEY_CUDA_GRAPH, MEMPLAN_E_UNSUPPORTED,
          "cuda_graph is modelled for Megatron's own engine and Transformer "
          "Engine's layers alone",
          "use --framework megatron, or leave it out" },
        { r->cuda_graph_impl == GRAPHS_LOCAL, KEY_CUDA_GRAPH_IMPL,
          MEMPLAN_E_UNSUPPORTED,
          "cuda_graph_impl 'local' is not modelled yet: its graphs' inputs lie "
          "in a pool that their outputs share",
          "use --cuda-graph-impl transformer_engine, or leave out cuda_graph" },
        { r->cuda_graph_impl == GRAPHS_FULL_ITERATION, KEY_CUDA_GRAPH_IMPL,
          MEMPLAN_E_UNSUPPORTED,
          "cuda_graph_impl 'full_iteration' is not modelled yet: all that a "
          "step makes is in its pool, and its batches are copies",
          "use --cuda-graph-impl transformer_engine, or leave out cuda_graph" },
    };
    return resolve_refuse(d, list, sizeof list / sizeof list[0]);
}

static bool has_dense_layers(const struct spec *s)
{
    for (uint64_t i = 0; i < s->layers && s->experts > 0; i++)
        if (!pattern_has(&s->sparse, i))
            return true;
    return s->experts == 0;
}

static bool check_scope(const struct run *r, const struct spec *s,
                        struct diag *d)
{
    const bool routes =
        graphs(r, GRAPHED_MOE_ROUTER) || graphs(r, GRAPHED_MOE_PREPROCESS);
    const bool experts = s->experts > 0;
    const struct obstacle list[] = {
        { graphs(r, GRAPHED_MAMBA), KEY_CUDA_GRAPH_SCOPE, MEMPLAN_E_CONFLICT,
          "cuda_graph_scope 'mamba': there are no such layers here",
          "leave out mamba" },
        { graphs(r, GRAPHED_MOE), KEY_CUDA_GRAPH_SCOPE, MEMPLAN_E_UNSUPPORTED,
          "cuda_graph_scope 'moe' is not modelled yet: Megatron has it for "
          "experts whose inputs are padded to a capacity",
          "use moe_router,moe_preprocess" },
        { routes && !experts, KEY_CUDA_GRAPH_SCOPE, MEMPLAN_E_CONFLICT,
          "cuda_graph_scope of experts, which the model has not",
          "use attn,mlp" },
        { graphs(r, GRAPHED_MOE_PREPROCESS) && !graphs(r, GRAPHED_MOE_ROUTER),
          KEY_CUDA_GRAPH_SCOPE, MEMPLAN_E_CONFLICT,
          "cuda_graph_scope 'moe_preprocess' without 'moe_router', which "
          "Megatron refuses",
          "add moe_router" },
        { graphs(r, GRAPHED_MLP) && !has_dense_layers(s), KEY_CUDA_GRAPH_SCOPE,
          MEMPLAN_E_CONFLICT,
          "cuda_graph_scope 'mlp' of a model without dense layers, which "
          "Megatron refuses",
          "use attn,moe_router,moe_preprocess" },
        { r->cuda_graph_scope == 0 && experts, KEY_CUDA_GRAPH_SCOPE,
          MEMPLAN_E_UNSUPPORTED,
          "graphs of whole layers of experts are not modelled yet: Megatron "
          "has them for experts whose inputs are padded to a capacity",
          "add --cuda-graph-scope attn,moe_router,moe_preprocess" },
        { graphs(r, GRAPHED_MOE_PREPROCESS) && r->moe_capacity > 0,
          KEY_CUDA_GRAPH_SCOPE, MEMPLAN_E_CONFLICT,
          "cuda_graph_scope 'moe_preprocess' with a capacity, which Megatron "
          "refuses",
          "leave out moe_preprocess" },
        { routes && r->moe_dispatcher != DISPATCH_ALLTOALL,
          KEY_CUDA_GRAPH_SCOPE, MEMPLAN_E_UNSUPPORTED,
          "graphs of routers with this dispatcher are not modelled yet",
          "use --moe-dispatcher alltoall, or --cuda-graph-scope attn" },
    };
    return resolve_refuse(d, list, sizeof list / sizeof list[0]);
}

static bool check_recompute(const struct run *r, struct diag *d)
{
    const bool selects = r->recompute == RECOMP_SELECTIVE;
    const bool routes = graphs(r, GRAPHED_MOE_ROUTER);
    const struct obstacle list[] = {
        { r->recompute == RECOMP_FULL, KEY_CUDA_GRAPH, MEMPLAN_E_CONFLICT,
          "graphs of layers with recompute 'full', which Megatron refuses",
          "use --recompute selective or none" },
        { selects && routes && (r->recompute_modules >> REMOD_MOE & 1) != 0,
          KEY_CUDA_GRAPH_SCOPE, MEMPLAN_E_CONFLICT,
          "cuda_graph_scope 'moe_router' with recompute_modules 'moe', which "
          "Megatron refuses",
          "use moe_act, or leave out moe_router" },
        { selects && routes
              && (r->recompute_modules >> REMOD_LAYERNORM & 1) != 0,
          KEY_CUDA_GRAPH_SCOPE, MEMPLAN_E_UNSUPPORTED,
          "cuda_graph_scope 'moe_router' with recompute_modules 'layernorm' is "
          "not modelled yet",
          "leave out one of them" },
    };
    return resolve_refuse(d, list, sizeof list / sizeof list[0]);
}

static void check_beside(const struct run *r, const struct spec *s,
                         struct diag *d)
{
    const bool other = r->pp > 1 && r->schedule != SCHED_1F1B
                       && r->schedule != SCHED_INTERLEAVED;
    const struct obstacle list[] = {
        { run_away(r) != AWAY_NOTHING || r->offload_activations != OFFLOAD_NONE,
          KEY_CUDA_GRAPH, MEMPLAN_E_UNSUPPORTED,
          "cuda_graph with activations on the host is not modelled yet",
          "leave one of them out" },
        { r->ep_overlap, KEY_CUDA_GRAPH, MEMPLAN_E_UNSUPPORTED,
          "cuda_graph with ep_overlap is not modelled yet",
          "leave one of them out" },
        { other, KEY_CUDA_GRAPH, MEMPLAN_E_UNSUPPORTED,
          "cuda_graph is modelled for schedules 1f1b and interleaved, "
          "Megatron's own",
          "leave out --schedule" },
        { s->decoder_layers > 0 || s->bidirectional, KEY_CUDA_GRAPH,
          MEMPLAN_E_UNSUPPORTED,
          "cuda_graph of models that are no decoders is not modelled yet",
          "leave it out" },
        { r->lengths.kind != LENGTHS_EQUAL, KEY_CUDA_GRAPH, MEMPLAN_E_CONFLICT,
          "cuda_graph of samples that differ in length: a graph's shapes are "
          "fixed",
          "leave one of them out" },
    };
    resolve_refuse(d, list, sizeof list / sizeof list[0]);
}

void resolve_check_graphs(const struct run *r, const struct spec *s,
                          struct diag *d)
{
    static const enum setup_key keys[] = { KEY_CUDA_GRAPH_IMPL,
                                           KEY_CUDA_GRAPH_SCOPE,
                                           KEY_CUDA_GRAPH_WARMUP_STEPS };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && !r->cuda_graph; i++)
        if (r->given[keys[i]])
            resolve_pointless(d, keys[i], "cuda_graph",
                              "add --cuda-graph true");
    if (r->cuda_graph && !check_whose(r, d) && !check_scope(r, s, d)
        && !check_recompute(r, d))
        check_beside(r, s, d);
}
