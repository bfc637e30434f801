/*
 * What a pipeline does around its sends: parts of tensors are sent, and gathered
 * where they arrive; DeepSpeed's says them, copies them, and its host waits for the
 * GPU in between. Refuses to know the order of passes (time_pipe.c).
 * [docs/method.md eq. step-time; deepspeed/runtime/pipe/engine.py,
 * deepspeed/runtime/utils.py; Megatron-LM p2p_communication.py]
 */
#include "fold/time.h"

#include "base/banned.h"

/* In DeepSpeed the tensor that says what the part is of goes ahead of it, copied
 * from the host, which waits for the pass before. So nothing is started ahead:
 * these are bare. Of an exchange the two messages of what comes first; the rest
 * start while those are under way. Before 0.12.6 the host read what had arrived,
 * and waited for that (from_meta; since then it keeps what it read once), so that
 * what follows is bare, too: of hidden states two tensors received, two given to
 * the pass, each a clone. */
enum { FIRST_MESSAGES = 2, ARRIVAL_CLONES = 4 };
/* PartitionedTensor.full() until it gathers. */
enum { RESTORE_KERNELS = 3 };

static bool is_deepspeed(const struct clock *c)
{
    return c->run->engine == ENGINE_DEEPSPEED;
}

static double part_bytes(const struct clock *c, double bytes)
{
    return bytes / (double)c->run->tp;
}

static void wait_for_host(struct pass *p, const struct clock *c,
                          double messages, double kernels)
{
    p->part[TIME_HOST] +=
        c->run->scale[SPEED_HOST]
        * (messages * HOST_MESSAGE_S + kernels * HOST_FORWARD_S);
}

static void clone(struct pass *p, const struct clock *c, double bytes)
{
    p->part[TIME_MEMORY] += time_bytes(c, 2 * bytes);
}

static void gather(struct pass *p, const struct clock *c, double bytes)
{
    const struct ranks all = { c->run->tp, 1 };
    p->part[TIME_TP] += time_wire(c, WIRE_ALL_GATHER, all, bytes);
}

/* PartitionedTensor.full(): zeros, parts gathered into them, all cloned. Before
 * all_gather_into_tensor (0.12.4) the rank's own part was copied into them, and
 * parts came in one tensor and were copied out of it (c10d, of a list). */
static void restore(struct pass *p, const struct clock *c, double bytes)
{
    const bool old = run_is_old_deepspeed(c->run);
    const double copied = old ? 2 * part_bytes(c, bytes) + 2 * bytes : 0;
    p->part[TIME_MEMORY] += time_bytes(c, bytes + copied + 2 * bytes);
    gather(p, c, bytes);
    if (old)
        wait_for_host(p, c, 1, RESTORE_KERNELS);
}

double time_exchange_send(const struct clock *c, double bytes)
{
    const struct run *run = c->run;
    const uint64_t stride = run->tp * run->cp * run->dp;
    if (!run_sends_parts(run))
        return time_send(c, stride, bytes);
    return (is_deepspeed(c) ? time_send(c, stride, 0) : 0)
           + time_send(c, stride, part_bytes(c, bytes));
}

static void restores_before(struct pass *forward, struct pass *back,
                            const struct clock *c, double bytes)
{
    const bool parts = run_sends_parts(c->run);
    const double part = parts ? part_bytes(c, bytes) : bytes;
    clone(forward, c, part); /* as received, */
    clone(forward, c, part); /* and for the pass */
    if (!parts)
        return;
    wait_for_host(forward, c, FIRST_MESSAGES,
                  run_is_old_deepspeed(c->run) ? ARRIVAL_CLONES : 0);
    restore(forward, c, bytes);
    clone(back, c, part); /* of the gradient that is sent */
}

void time_exchange_before(struct pass *forward, struct pass *back,
                          const struct clock *c, double bytes)
{
    if (is_deepspeed(c))
        restores_before(forward, back, c, bytes);
    else if (run_sends_parts(c->run))
        gather(forward, c, bytes);
}

void time_exchange_after(struct pass *forward, struct pass *back,
                         const struct clock *c, double bytes)
{
    if (!run_sends_parts(c->run))
        return;
    if (!is_deepspeed(c)) {
        gather(back, c, bytes);
        return;
    }
    clone(forward, c, part_bytes(c, bytes));
    wait_for_host(back, c, FIRST_MESSAGES, 0);
    restore(back, c, bytes); /* its own output, of which it kept a part, */
    restore(back, c, bytes); /* and the gradient */
}
