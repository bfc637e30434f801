/*
 * Time of messages: inside a node by curves fitted to NCCL's timings, between
 * nodes by what the network cards of a group's ranks carry together. Owns how
 * ranks are placed; refuses to know what is sent when.
 * [docs/method.md eq. collectives]
 */
#include "fold/time.h"

#include "base/count.h"

#include <math.h>

#include "base/banned.h"

/* Share of a network card's rate that large collectives reach, size at which
 * half of that is lost, latency of a first hop and of each doubling of the
 * nodes: all-reduces on 4 nodes of 8 B200 and H200 with EFA reach 74 % of the
 * cards at 1 GiB, 44 % at 256 MiB (stas00/ml-engineering, network). */
#define NET_SHARE 0.80
#define NET_HALF_BYTES 100e6
#define NET_LATENCY_S 40e-6
#define NET_LATENCY_LEVEL_S 10e-6

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

/* Between the sizes that were timed, and beyond them, by the nearest. */
static const struct wire_speed *wire_speed(const struct clock *c,
                                           enum wire wire, double n)
{
    const unsigned size = n <= 2 ? 0 : n <= 4 ? 1 : 2;
    return &c->speed->wire[wire][size];
}

static double inside(const struct clock *c, enum wire wire, double n,
                     double bytes)
{
    const struct wire_speed *w = wire_speed(c, wire, n);
    const double turns = wire == WIRE_ALL_REDUCE ? 2 : 1;
    const double rate =
        fmin(w->bytes_s * c->run->link_scale,
             c->run->gpu.intra_node_bytes_s * (turns > 1 ? 1.2 : 1));
    return w->latency_s
           + turns * (n - 1) / n * bytes / rate
                 * (1 + sqrt(w->half_bytes / bytes));
}

/* The network cards of all ranks of the group carry it together. */
static double between(const struct clock *c, enum wire wire, struct ranks r,
                      double bytes)
{
    const double n = (double)r.n, local = in_node(c, r);
    const double nodes = ceil(n / local);
    const double turns = wire == WIRE_ALL_REDUCE ? 2 : 1;
    /* all to all: each rank sends its own through its own card */
    const double cards = wire == WIRE_A2A ? 1 : local;
    const double sent = wire == WIRE_A2A ? bytes * (n - local) / n
                                         : bytes * (nodes - 1) / nodes;
    const double rate = cards * c->run->gpu.inter_node_bytes_s * NET_SHARE;
    return NET_LATENCY_S + NET_LATENCY_LEVEL_S * log2(nodes) * turns
           + turns * sent / rate * (1 + sqrt(NET_HALF_BYTES / bytes));
}

static double wire_seconds(const struct clock *c, enum wire wire,
                           struct ranks r, double bytes)
{
    if (r.n <= 1 || bytes <= 0)
        return 0;
    const double local = in_node(c, r);
    const double scale = c->run->scale[SPEED_NETWORK];
    const double near = local > 1 ? inside(c, wire, local, bytes) : 0;
    if (local >= (double)r.n)
        return near / scale;
    return fmax(near, between(c, wire, r, bytes)) / scale;
}

double time_wire(const struct clock *c, enum wire wire, struct ranks r,
                 double bytes)
{
    const double seconds = wire_seconds(c, wire, r, bytes);
    if (c->log != NULL && seconds > 0)
        time_log_wire(c->log, (struct wire_note){ wire, r, bytes, seconds });
    return seconds;
}

double time_send(const struct clock *c, uint64_t stride, double bytes)
{
    const struct gpu *gpu = &c->run->gpu;
    const double rate = (double)stride < domain(c)
                            ? gpu->intra_node_bytes_s * SEND_SHARE
                            : gpu->inter_node_bytes_s * NET_SHARE;
    return (SEND_LATENCY_S + bytes / rate) / c->run->scale[SPEED_NETWORK];
}
