/*
 * Time of messages: inside a node by curves fitted to NCCL's timings, between
 * nodes by what the network cards of a group's ranks carry together. Owns how
 * ranks are placed; refuses to know what is sent when.
 * [docs/method.md eq. collectives]
 */
#include "fold/time.h"

#include "base/count.h"

#include <math.h>
#include <string.h>

#include "base/banned.h"

/* Share of the network cards' rate that a ring's large messages reach: all-reduces
 * on 4 nodes of 8 B200 and H200 with EFA 95 % at 16 GiB, 90 % at 1 GiB
 * (stas00/ml-engineering, network, where "busbw" is what each link of the ring
 * carries); on 2 nodes of 8 A100 with InfiniBand, in training, 97 %. */
#define NET_SHARE 0.95
/* The same of one rank's messages to others, through its own card. */
#define NET_OWN_SHARE 0.80
/* NCCL's own latencies, of its protocol for large messages (src/graph/tuning.cc
 * @5067397): before a collective, and of each step inside a node and between,
 * of a ring and of a tree, whose rate is so much less. */
#define NET_BASE_S 8.4e-6
#define RING_NEAR_S 3.4e-6
#define TREE_NEAR_S 4e-6
#define NET_STEP_S 14e-6
#define TREE_SHARE 0.92
/* Of an exchange of all with all: a first hop, and each doubling of the nodes. */
#define NET_LATENCY_S 40e-6
#define NET_LATENCY_LEVEL_S 10e-6

/* The same of DeepEP's kernels: 58 and 51 GB/s on H800 with cards of 50, of
 * tokens that 4 and 8 nodes get, the sender's own among them (deepseek-ai/
 * DeepEP@dd758ca, docs/legacy.md, normal kernels; 43 on 2 nodes). */
#define NET_DISPATCH_SHARE 0.88

/* A point-to-point message inside a node: share of the link
 * (stas00/ml-engineering, network: 274 of 300, 376 of 450, 746 of 900 GB/s). */
#define SEND_SHARE 0.85
#define SEND_LATENCY_S 8e-6

/* GPUs that NVLink joins: more than a node has, in racks. */
static double domain(const struct clock *c)
{
    return (double)max_u64(c->run->gpus_per_node, c->run->gpu.link_gpus);
}

/* Ranks of a group that are in one node. */
static double in_node(const struct clock *c, struct ranks r)
{
    const double slots = domain(c) / (double)r.stride;
    if (slots < 1)
        return 1;
    return fmin((double)r.n, floor(slots));
}

bool wire_inside(const struct clock *c, struct ranks r)
{
    return in_node(c, r) >= (double)r.n;
}

bool wire_near(const struct clock *c, struct ranks r)
{
    return in_node(c, r) > 1;
}

/* Collectives over PCIe where nobody timed them: share of the link, latency and
 * size at which half is lost. An RTX PRO 6000's have 33 of 63 GB/s on 2 ranks, 24
 * to 29 on 4 and 8 (tests/measured/collectives.csv). */
#define PCIE_SHARE_PAIR 0.53
#define PCIE_SHARE 0.42
#define PCIE_LATENCY_S 9e-6
#define PCIE_HALF_BYTES 0.2e6

/* Another link than its family's timings are of. */
static bool over_pcie(const struct clock *c)
{
    return strncmp(c->run->gpu.link, "PCIe", 4) == 0;
}

/* Between the sizes that were timed, and beyond them, by the nearest. */
static struct wire_speed wire_speed(const struct clock *c, enum wire wire,
                                    double n)
{
    const unsigned size = n <= 2 ? 0 : n <= 4 ? 1 : 2;
    const struct wire_speed *timed = &c->speed->wire[wire][size];
    if (timed->bytes_s > 0 && (c->measured || !over_pcie(c)))
        return *timed;
    const double share = n <= 2 ? PCIE_SHARE_PAIR : PCIE_SHARE;
    return (struct wire_speed){ PCIE_LATENCY_S,
                                share * c->run->gpu.intra_node_bytes_s
                                    / c->run->link_scale,
                                PCIE_HALF_BYTES };
}

/* Of the rate that was timed over another link, as much as this one has of it. */
static double share_of_link(const struct clock *c)
{
    const double timed = c->speed->link_bytes_s;
    const double own = c->run->gpu.intra_node_bytes_s / c->run->link_scale;
    return timed > 0 && own < timed && !over_pcie(c) ? own / timed : 1;
}

/* What a link between `local` ranks of a node carries around a ring, of n ranks
 * in all. */
static double carried_inside(const struct clock *c, enum wire wire,
                             double local, double n, double bytes)
{
    const struct wire_speed w = wire_speed(c, wire, local);
    const double turns = wire == WIRE_ALL_REDUCE ? 2 : 1;
    const double rate =
        fmin(w.bytes_s * share_of_link(c) * c->run->link_scale,
             c->run->gpu.intra_node_bytes_s * (turns > 1 ? 1.2 : 1));
    return turns * (n - 1) / n * bytes / rate
           * (1 + sqrt(w.half_bytes / bytes));
}

static double inside(const struct clock *c, enum wire wire, double n,
                     double bytes)
{
    return wire_speed(c, wire, n).latency_s
           + carried_inside(c, wire, n, n, bytes);
}

/* The network cards of all ranks of the group carry it together: around a ring of
 * all ranks, whose links between nodes carry as much as those inside, the slower
 * of them tells, and whose every step is waited for, or, to add up for all, along a tree. */
static double between(const struct clock *c, enum wire wire, struct ranks r,
                      double bytes)
{
    const double n = (double)r.n, local = in_node(c, r);
    const double nodes = ceil(n / local);
    const double turns = wire == WIRE_ALL_REDUCE ? 2 : 1;
    const double rate = local * c->run->gpu.inter_node_bytes_s * NET_SHARE;
    const double near =
        local > 1 ? carried_inside(c, wire, local, n, bytes) : 0;
    const double carried = fmax(near, turns * bytes * (n - 1) / n / rate);
    const double ring =
        turns * (nodes * NET_STEP_S + (n - nodes) * RING_NEAR_S) + carried;
    if (wire != WIRE_ALL_REDUCE)
        return NET_BASE_S + ring;
    const double tree =
        turns * (ceil(log2(nodes)) * NET_STEP_S + (local - 1) * TREE_NEAR_S)
        + carried / TREE_SHARE;
    return NET_BASE_S + fmin(ring, tree);
}

/* Each rank sends its own through its own card, to all others at once: there are
 * no steps that wait for each other, as a ring's pieces do. */
static double exchanged(const struct clock *c, struct ranks r, double bytes,
                        double share)
{
    const double n = (double)r.n, local = in_node(c, r);
    return NET_LATENCY_S + NET_LATENCY_LEVEL_S * log2(ceil(n / local))
           + bytes * (n - local) / n / (c->run->gpu.inter_node_bytes_s * share);
}

/* Copies of a token that go to so many places, of those that its experts get. */
static double copies_sent(const struct clock *c, double places)
{
    const uint64_t k = c->p->routed;
    return fmin(1, program_reached(places, c->p->routed_share, k) / (double)k);
}

double time_dispatch(const struct clock *c, struct ranks r, double bytes)
{
    if (c->run->moe_dispatcher != DISPATCH_FLEX || c->p->routed == 0)
        return time_wire(c, WIRE_A2A, r, bytes);
    const double local = in_node(c, r), ranks = (double)r.n;
    const double once = bytes * copies_sent(c, ranks);
    const double near = local > 1 ? inside(c, WIRE_A2A, local, once) : 0;
    const double far =
        wire_inside(c, r)
            ? 0
            : exchanged(c, r, bytes * copies_sent(c, ceil(ranks / local)),
                        NET_DISPATCH_SHARE);
    const double seconds = fmax(near, far) / c->run->scale[SPEED_NETWORK];
    if (c->log != NULL)
        time_log_wire(c->log,
                      (struct wire_note){ WIRE_A2A, r, once, seconds, "" });
    return seconds;
}

static double wire_seconds(const struct clock *c, enum wire wire,
                           struct ranks r, double bytes)
{
    if (r.n <= 1 || bytes <= 0)
        return 0;
    const double local = in_node(c, r);
    const double scale = c->run->scale[SPEED_NETWORK];
    if (local < (double)r.n && wire != WIRE_A2A)
        return between(c, wire, r, bytes) / scale;
    const double near = local > 1 ? inside(c, wire, local, bytes) : 0;
    if (local >= (double)r.n)
        return near / scale;
    return fmax(near, exchanged(c, r, bytes, NET_OWN_SHARE)) / scale;
}

double time_wire(const struct clock *c, enum wire wire, struct ranks r,
                 double bytes)
{
    const double seconds = wire_seconds(c, wire, r, bytes);
    if (c->log != NULL && seconds > 0)
        time_log_wire(c->log,
                      (struct wire_note){ wire, r, bytes, seconds, "" });
    return seconds;
}

double time_pair(const struct clock *c, uint64_t apart, double bytes)
{
    const bool near = (double)apart < domain(c);
    return time_wire(c, WIRE_ALL_REDUCE, (struct ranks){ 2, near ? 1 : apart },
                     bytes);
}

double time_send(const struct clock *c, uint64_t stride, double bytes)
{
    const struct gpu *gpu = &c->run->gpu;
    const double rate = (double)stride < domain(c)
                            ? gpu->intra_node_bytes_s * SEND_SHARE
                            : gpu->inter_node_bytes_s * NET_OWN_SHARE;
    return (SEND_LATENCY_S + bytes / rate) / c->run->scale[SPEED_NETWORK];
}
