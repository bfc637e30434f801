/*
 * Which ranks share what: rank 0's groups, how many there are of each and over
 * how many nodes one lies. Owns the order of ranks, which is the same in
 * Megatron (tp-cp-ep-dp-pp), in DeepSpeed's topology (pipe, data, model) and in
 * torchtitan's mesh (pp, dp_replicate, dp_shard, cp, tp): tensor parallelism
 * innermost, stages outermost. [docs/method.md eq. groups]
 */
#include "plan/plan.h"

#include "base/unit.h"
#include "fold/states.h"

#include <inttypes.h>

#include "base/banned.h"

struct group {
    const char *name, *shares;
    uint64_t size, stride; /* ranks 0, stride, 2 stride ... */
    uint64_t count;        /* of such groups; 0: as many as make up all ranks */
    uint64_t far; /* half of them begin here: DualPipe's other copy; 0: none */
};

enum { GROUPS_MAX = 12, RANKS_SHOWN = 8, RANKS_TEXT = 160 };

static void add(struct group *g, size_t *n, struct group group)
{
    if (group.size > 1)
        g[(*n)++] = group;
}

static const char *context_shares(enum cp_comm how)
{
    switch (how) {
    case CP_P2P: break;
    case CP_A2A:
        return "parts of the same sequences; heads for tokens around attention";
    case CP_ALL_GATHER:
        return "parts of the same sequences; keys and values gathered";
    case CP_COMM_COUNT: break;
    }
    return "parts of the same sequences";
}

/* What is in shards, and how often. */
static void add_shards(struct group *g, size_t *n, const struct run *r)
{
    const uint64_t data = r->dp * r->cp;
    if (r->shard == 1 && data == 1)
        return;
    /* DualPipe's rank p has stage p as rank pp - 1 - p has it too */
    const uint64_t far = r->shard > data ? r->tp * data * (r->pp - 1) : 0;
    add(g, n,
        (struct group){ "shards", "one copy of the states (zero)", r->shard,
                        r->tp, 0, far });
    if (r->shard > 1)
        add(g, n,
            (struct group){ "replicas", "copies of the same shard",
                            data / r->shard, r->tp * r->shard, 0, 0 });
    if (run_second_parts(r) > 0)
        add(g, n,
            (struct group){ "hpz", "a second copy of the weights",
                            r->hpz_partition_size, r->tp, 0, 0 });
}

static void add_tied(struct group *g, size_t *n, const struct run *r)
{
    const uint64_t stage = r->tp * r->dp * r->cp;
    if (run_parts_words(r))
        add(g, n,
            (struct group){ "tied", "words and head, which are one tensor", 2,
                            stage * (r->pp - 1), stage, 0 });
}

/* The groups of more than one rank. Experts are spread over all ranks of a
 * stage: expert-tensor parallelism innermost, then ep, then what is left. */
static size_t list_groups(struct group g[GROUPS_MAX], const struct run *r,
                          bool experts, bool tied)
{
    const uint64_t stage = r->tp * r->dp * r->cp;
    size_t n = 0;
    add(g, &n,
        (struct group){ "tp",
                        "parts of each matrix, and activations of "
                        "the same tokens",
                        r->tp, 1, 0, 0 });
    add(g, &n,
        (struct group){ "cp", context_shares(r->cp_comm), r->cp, r->tp, 0, 0 });
    add(g, &n,
        (struct group){ "dp", "copies of the parameters; other sequences",
                        r->dp, r->tp * r->cp, 0, 0 });
    add_shards(g, &n, r);
    if (experts && (r->ep > 1 || r->etp != r->tp)) {
        add(g, &n,
            (struct group){ "etp", "parts of each expert's matrices", r->etp, 1,
                            0, 0 });
        add(g, &n,
            (struct group){ "ep", "the experts of a layer, a share each", r->ep,
                            r->etp, 0, 0 });
        add(g, &n,
            (struct group){ "expert dp", "copies of the same experts",
                            stage / (r->ep * r->etp), r->ep * r->etp, 0, 0 });
        if (r->expert_shard < stage / (r->ep * r->etp))
            add(g, &n,
                (struct group){ "expert shards",
                                "one copy of these experts' states (zero)",
                                r->expert_shard, r->ep * r->etp, 0, 0 });
    }
    add(g, &n,
        (struct group){ "pp", "the layers, a stage each", r->pp, stage, 0, 0 });
    if (tied)
        add_tied(g, &n, r);
    return n;
}

static uint64_t rank_at(const struct group *g, uint64_t i)
{
    const uint64_t half = g->size / 2;
    if (g->far == 0 || i < half)
        return i * g->stride;
    return g->far + (i - half) * g->stride;
}

/* Nodes are filled one after the other. */
static uint64_t nodes_of(const struct group *g, uint64_t node)
{
    uint64_t n = 1;
    for (uint64_t i = 1; i < g->size && g->far > 0; i++)
        n += rank_at(g, i) / node != rank_at(g, i - 1) / node;
    if (g->far > 0)
        return n;
    return g->stride >= node ? g->size : (g->size - 1) * g->stride / node + 1;
}

/* "0, 8, 16 ... 56" */
static void rank_words(char text[RANKS_TEXT], const struct group *g)
{
    const uint64_t shown = g->size > RANKS_SHOWN ? 3 : g->size;
    text[0] = '\0';
    for (uint64_t i = 0; i < shown; i++)
        str_append(text, RANKS_TEXT, "%s%" PRIu64, i > 0 ? ", " : "",
                   rank_at(g, i));
    if (shown < g->size)
        str_append(text, RANKS_TEXT, " ... %" PRIu64, rank_at(g, g->size - 1));
}

bool explain_groups(struct explanation *x, const struct run *run, bool experts,
                    bool tied)
{
    struct group g[GROUPS_MAX];
    const size_t n = list_groups(g, run, experts, tied);
    for (size_t i = 0; i < n; i++) {
        char ranks[RANKS_TEXT];
        const uint64_t nodes = nodes_of(&g[i], run->gpus_per_node);
        const uint64_t joined = run->gpu.link_gpus;
        const uint64_t count =
            g[i].count > 0 ? g[i].count : run->gpus / g[i].size;
        const bool linked = nodes > 1 && joined > run->gpus_per_node
                            && nodes_of(&g[i], joined) == 1;
        rank_words(ranks, &g[i]);
        explain_add(
            x,
            (struct explain_entry){
                .section = "groups of rank 0",
                .name =
                    arena_printf(x->arena, "%s: %s", g[i].name, g[i].shares),
                .unit = "ranks",
                .value = (double)g[i].size,
                .formula = arena_printf(
                    x->arena, "stride %" PRIu64 "%s; %" PRIu64 " such group%s",
                    g[i].stride,
                    g[i].far > 0 ? ", on both ranks of its stages" : "", count,
                    unit_s((double)count)),
                .numbers = arena_printf(
                    x->arena, "ranks %s: %" PRIu64 " node%s%s", ranks, nodes,
                    nodes > 1 ? "s" : "", linked ? ", joined by NVLink" : ""),
                .equation = "groups",
                .source = "" });
    }
    return !x->failed;
}
