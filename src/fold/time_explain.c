/*
 * The time of a step with its terms: the same walks with a log, of which the
 * heaviest operations of a block and all messages are told. Owns words alone;
 * every number is time_kernel.c's, time_wire.c's or time_step.c's.
 * [docs/method.md eq. kernels, eq. collectives, eq. step-time]
 */
#include "fold/fold.h"
#include "fold/schedule.h"
#include "fold/time_private.h"

#include "base/count.h"
#include "data/constants.h"

#include <inttypes.h>
#include <math.h>

#include "base/banned.h"

enum { HEAVIEST = 8, KERNELS_TEXT = 600 };

const char *time_part_source(enum time_part part, const struct run *run)
{
    if (part == TIME_SLOWED)
        return SLOWED_SOURCE;
    if (part == TIME_OFFLOAD)
        return HOST_LINK_SOURCE;
    if (part != TIME_DISK)
        return NULL;
    return run->given[KEY_NVME_BANDWIDTH] ? "--nvme-bandwidth" : NVME_SOURCE;
}

/* ---- the log ---- */

void time_log_clear(struct time_log *log)
{
    log->n_kernels = log->n_wires = log->n_overlaps = log->n_copies = 0;
    log->whose = log->pass = "";
    log->here = log->away_elems = log->away_s = 0;
    for (int b = 0; b < BLOCK_MAX; b++)
        log->block[b].count = log->block[b].again = 0;
}

void time_log_kernel(struct time_log *log, struct kernel_note note)
{
    if (log->n_kernels < TIME_LOG_KERNELS)
        log->kernel[log->n_kernels++] = note;
}

void time_log_wire(struct time_log *log, struct wire_note note)
{
    for (unsigned i = 0; i < log->n_wires; i++) {
        const struct wire_note *w = &log->wire[i];
        if (w->wire == note.wire && w->ranks.n == note.ranks.n
            && w->ranks.stride == note.ranks.stride
            && fabs(w->bytes - note.bytes) < 0.5)
            return;
    }
    note.whose = log->whose;
    if (log->n_wires < TIME_LOG_WIRES)
        log->wire[log->n_wires++] = note;
}

void time_log_overlap(struct time_log *log, struct overlap_note note)
{
    note.whose = log->whose;
    note.pass = log->pass;
    if (log->n_overlaps < TIME_LOG_OVERLAPS && note.message > 0
        && note.times > 0)
        log->overlap[log->n_overlaps++] = note;
}

void time_log_copy(struct time_log *log, struct copy_note note)
{
    if (log->n_copies < TIME_LOG_COPIES)
        log->copy[log->n_copies++] = note;
}

/* ---- kernels of a block ---- */

static double sum_pass(const struct pass *p)
{
    double sum = 0;
    for (int i = 0; i < TIME_PARTS; i++)
        sum += p->part[i];
    return sum;
}

static double sum_op(const struct block_time *t)
{
    return sum_pass(&t->forward) + sum_pass(&t->input) + sum_pass(&t->weight)
           + t->mirrored;
}

struct heavy {
    const struct op *op;
    struct block_time time;
    struct time_log log;
};

struct top {
    struct heavy row[HEAVIEST];
    size_t n;
};

static void keep(struct top *top, const struct heavy *h)
{
    const double mine = sum_op(&h->time);
    size_t at = top->n;
    while (at > 0 && mine > sum_op(&top->row[at - 1].time))
        at--;
    if (at == HEAVIEST)
        return;
    if (top->n < HEAVIEST)
        top->n++;
    for (size_t i = top->n - 1; i > at; i--)
        top->row[i] = top->row[i - 1];
    top->row[at] = *h;
}

/* What decides: the units, the memory, or the kernel's start. */
static const char *bound(const struct kernel_note *k)
{
    if (k->launch_s > k->compute_s && k->launch_s > k->memory_s)
        return "latency";
    return k->compute_s >= k->memory_s ? "products" : "memory";
}

static void kernel_words(char *text, const struct kernel_note *k, bool first)
{
    const struct product *x = &k->product;
    const double seconds = fmax(k->compute_s, k->memory_s) + k->launch_s;
    str_append(text, KERNELS_TEXT, first ? "" : "; ");
    if (x->copies > 1)
        str_append(text, KERNELS_TEXT, "%.0f of ", x->copies);
    if (x->k > 0)
        str_append(text, KERNELS_TEXT,
                   "%.0f x %.0f x %.0f: %.3g ms, %.0f "
                   "TFLOP/s, by %s",
                   x->m, x->n, x->k, seconds * 1e3,
                   2 * x->m * x->n * x->k * x->copies / seconds / 1e12,
                   bound(k));
    else
        str_append(text, KERNELS_TEXT, "%.4g MB: %.3g ms, by %s",
                   k->bytes / 1e6, seconds * 1e3, bound(k));
}

static void message_words(char *text, const struct wire_note *w,
                          const struct clock *c)
{
    static const char *const names[WIRES] = { "all-reduce", "all-gather",
                                              "reduce-scatter", "all-to-all" };
    str_append(text, KERNELS_TEXT,
               "%s of %.4g MB among %" PRIu64 " ranks, stride %" PRIu64
               ", %s: %.3g ms",
               names[w->wire], w->bytes / 1e6, w->ranks.n, w->ranks.stride,
               wire_inside(c, w->ranks) ? "inside a node" : "across nodes",
               w->seconds * 1e3);
}

static const char *op_words(struct arena *a, const struct heavy *h,
                            const struct clock *c)
{
    char text[KERNELS_TEXT] = "";
    const double forward = sum_pass(&h->time.forward);
    for (unsigned i = 0; i < h->log.n_kernels; i++)
        kernel_words(text, &h->log.kernel[i], i == 0);
    for (unsigned i = 0; i < h->log.n_wires; i++) {
        str_append(text, KERNELS_TEXT, text[0] != '\0' ? "; " : "");
        message_words(text, &h->log.wire[i], c);
    }
    if (h->time.mirrored > 0)
        str_append(text, KERNELS_TEXT,
                   "; of backward beside the products of weights' gradients");
    const double back = sum_pass(&h->time.input) + sum_pass(&h->time.weight);
    const double flop = h->op->flop_causal;
    if (text[0] == '\0' && flop > 0 && forward > 0) {
        str_append(text, KERNELS_TEXT, "forward %.3g ms, %.0f TFLOP/s",
                   forward * 1e3, flop / forward / 1e12);
        if (back > 0 && h->op->core_attention)
            str_append(text, KERNELS_TEXT,
                       "; backward %.3g ms, %.0f TFLOP/s of %g times as many",
                       back * 1e3, ATTENTION_BACK_FLOPS * flop / back / 1e12,
                       ATTENTION_BACK_FLOPS);
    }
    return arena_copy(a, text, str_of(text).n);
}

static void explain_op(struct explanation *x, const struct clock *c,
                       const struct block *b, const struct heavy *h)
{
    const bool wire = h->log.n_wires > 0;
    explain_add(
        x, (struct explain_entry){
               .section = "time of a step",
               .name = arena_printf(x->arena, "%s, %s: %s", b->name,
                                    op_kind_name(h->op->kind), h->op->name),
               .unit = "s",
               .value = sum_op(&h->time),
               .formula = "a micro-batch, forward and backward, in one block",
               .numbers = op_words(x->arena, h, c),
               .equation = wire ? "collectives" : "kernels",
               .source = "",
               .depth = 2 });
}

static void explain_block(struct explanation *x, const struct clock *clock,
                          const struct block *b)
{
    struct top *top = ARENA_NEW(x->arena, struct top, 1);
    struct heavy *h = ARENA_NEW(x->arena, struct heavy, 1);
    if (top == NULL || h == NULL) {
        x->failed = true;
        return;
    }
    top->n = 0;
    time_log_clear(&h->log);
    struct clock c = *clock;
    c.log = &h->log;
    for (uint32_t i = 0; i < b->op_count; i++) {
        h->op = &c.p->op[b->op_first + i];
        h->log.n_kernels = h->log.n_wires = h->log.n_overlaps = 0;
        h->log.n_copies = 0;
        time_op(&h->time, &c, h->op);
        if (sum_op(&h->time) > 0)
            keep(top, h);
    }
    for (size_t i = 0; i < top->n; i++)
        explain_op(x, &c, b, &top->row[i]);
}

/* ---- a block's parts ---- */

/* Seconds of a part in one block, without what runs again. */
static double part_of(const struct block_time *t, int part)
{
    return t->forward.part[part] + t->input.part[part] + t->weight.part[part];
}

static bool is_message(int part)
{
    return part == TIME_TP || part == TIME_CP || part == TIME_EP;
}

/* ... and of it in what runs again, which is a part of its own. */
static double again_of(const struct block_time *t, int part)
{
    double sum = 0;
    if (is_message(part))
        return t->again.part[part];
    for (int i = 0; part == TIME_AGAIN && i < TIME_PARTS; i++)
        sum += is_message(i) ? 0 : t->again.part[i];
    return sum;
}

/* Messages to experts that run beside another pass are not a sum of blocks', nor
 * is what they slow. */
static bool adds_up(int part, const struct run *run)
{
    const bool beside = schedule_is_dual(run) || run->ep_overlap
                        || run->schedule == SCHED_DUALPIPE_V;
    return part == TIME_PRODUCTS || part == TIME_ATTENTION
           || part == TIME_MEMORY || part == TIME_AGAIN || part == TIME_TP
           || part == TIME_CP
           || ((part == TIME_EP || part == TIME_SLOWED) && !beside);
}

/* What all blocks of a kind have of each part of a step. */
static void explain_parts(struct explanation *x, const struct block *b,
                          const struct block_note *n, double micros,
                          const struct run *run)
{
    for (int i = 0; i < TIME_PARTS; i++) {
        const double once = part_of(&n->time, i);
        const double again = again_of(&n->time, i);
        const double all = n->count * once + n->again * again;
        if (!adds_up(i, run) || !(all > 0))
            continue;
        const bool both = once > 0 && n->again * again > 0;
        const double count = once > 0 ? n->count : n->again;
        explain_add(
            x,
            (struct explain_entry){
                .section = "time of a step",
                .name = arena_printf(x->arena, "%s: %s", b->name,
                                     time_part_label((enum time_part)i)),
                .unit = "s",
                .value = micros * all,
                .formula = both ? "micro-batches * (blocks * seconds in each + "
                                  "those run again * seconds)"
                                : "micro-batches * blocks * seconds in each",
                .numbers = both ? arena_printf(
                               x->arena, "%.6g * (%.6g * %.6g + %.6g * %.6g)",
                               micros, n->count, once, n->again, again)
                                : NUMBERS(x->arena, "# * # * #", micros, count,
                                          once > 0 ? once : again),
                .equation = "step-time",
                .source = "",
                .depth = 2 });
    }
    if (n->count > 0 && n->copies > 0)
        explain_add(
            x, (struct explain_entry){
                   .section = "time of a step",
                   .name = arena_printf(
                       x->arena, "%s: copies of the engine, in these", b->name),
                   .unit = "s",
                   .value = micros * n->count * n->copies,
                   .formula = "micro-batches * blocks * seconds in each",
                   .numbers = NUMBERS(x->arena, "# * # * #", micros, n->count,
                                      n->copies),
                   .equation = "engine-copies",
                   .source = "",
                   .depth = 2 });
}

/* ---- messages between replicas ---- */

/* What is left of a message, and what it slows. */
static void explain_overlap(struct explanation *x, const struct overlap_note *o)
{
    struct explain_entry e = { .section = "time of a step",
                               .unit = "s",
                               .equation = "step-time",
                               .source = "",
                               .depth = 2 };
    e.name = arena_printf(x->arena, "between replicas, what is left: %s, %s",
                          o->whose, o->pass);
    e.value = o->times * fmax(0, o->message - o->beside);
    e.formula = "times * max(0, message - what hides it)";
    e.numbers =
        NUMBERS(x->arena, "# * max(0, # - #)", o->times, o->message, o->beside);
    explain_add(x, e);
    if (!(o->computing > 0))
        return;
    e.name = arena_printf(x->arena, "between replicas, what is slowed: %s, %s",
                          o->whose, o->pass);
    e.value = o->times * fmin(o->message, o->computing) * o->slowed;
    e.formula = "times * min(message, what is computed beside) * share";
    e.numbers = NUMBERS(x->arena, "# * min(#, #) * #", o->times, o->message,
                        o->computing, o->slowed);
    explain_add(x, e);
}

static void explain_wires(struct explanation *x, const struct clock *c,
                          const struct time_log *log)
{
    for (unsigned i = 0; i < log->n_wires; i++) {
        char text[KERNELS_TEXT] = "";
        message_words(text, &log->wire[i], c);
        explain_add(x,
                    (struct explain_entry){
                        .section = "time of a step",
                        .name = arena_printf(x->arena, "between replicas: %s",
                                             log->wire[i].whose),
                        .unit = "s",
                        .value = log->wire[i].seconds,
                        .formula = "the longer of inside and across nodes",
                        .numbers = arena_copy(x->arena, text, str_of(text).n),
                        .equation = "collectives",
                        .source = "",
                        .depth = 2 });
    }
    for (unsigned i = 0; i < log->n_overlaps; i++)
        explain_overlap(x, &log->overlap[i]);
}

/* ---- what is kept beside the GPU ---- */

static const char *disk_numbers(struct arena *a, const struct run *run,
                                const struct copy_note *n)
{
    const double ranks = (double)min_u64(run->gpus, run->gpus_per_node);
    const double reads = run->nvme_bytes_s, writes = reads * NVME_WRITE_SHARE;
    if (n->written <= 0)
        return NUMBERS(a, "# * max(0, # * # / # - #)", n->times, n->read, ranks,
                       reads, n->beside);
    if (n->read <= 0)
        return NUMBERS(a, "# * max(0, # * # / # - #)", n->times, n->written,
                       ranks, writes, n->beside);
    return NUMBERS(a, "# * max(0, # * # / # + # * # / # - #)", n->times,
                   n->read, ranks, reads, n->written, ranks, writes, n->beside);
}

static void explain_copy(struct explanation *x, const struct run *run,
                         const struct copy_note *n)
{
    const bool disk = n->part == TIME_DISK;
    explain_add(
        x,
        (struct explain_entry){
            .section = "time of a step",
            .name = arena_printf(x->arena, "%s: %s",
                                 disk ? "disks" : "host's link", n->name),
            .unit = "s",
            .value = time_copy(run, n),
            .formula = disk ? "times * max(0, bytes * ranks of a node / rate - "
                              "what hides it)"
                            : "times * max(0, bytes / (rate * share) - what "
                              "hides it)",
            .numbers =
                disk ? disk_numbers(x->arena, run, n)
                     : NUMBERS(x->arena, "# * max(0, # / (# * #) - #)",
                               n->times, n->read, run->gpu.host_link_bytes_s,
                               HOST_LINK_SHARE, n->beside),
            .equation = "step-time",
            .source = time_part_source(n->part, run),
            .depth = 2 });
}

/* ---- the optimizer ---- */

static void explain_step(struct explanation *x, const char *name, double value,
                         const char *formula, const char *numbers,
                         const char *equation)
{
    explain_add(x, (struct explain_entry){
                       .section = "time of a step",
                       .name = arena_printf(x->arena, "optimizer: %s", name),
                       .unit = "s",
                       .value = value,
                       .formula = formula,
                       .numbers = numbers,
                       .equation = equation,
                       .source = "",
                       .depth = 2 });
}

/* As fast as it is with the start of a kernel in it. */
static void explain_pass(struct explanation *x, const struct clock *c,
                         const struct time_log *log,
                         const struct optimizer_pass *p)
{
    const struct shard_of *own = &log->own;
    const double seconds = time_optimizer_pass(c, &log->passes, p, own);
    const double each = p->whole > 0 ? p->whole : p->own;
    const double elems = p->whole > 0 ? own->whole : own->elems;
    if (!(seconds > 0)) /* a cast to the same type */
        return;
    explain_step(x, p->name, log->here * seconds,
                 p->waits ? "share on the GPU * elements * bytes / rate; the "
                            "host waits for each tensor's"
                          : "share on the GPU * elements * bytes / rate",
                 NUMBERS(x->arena, "# * # * # / #", log->here, elems, each,
                         elems * each / seconds),
                 "optimizer-passes");
}

static void explain_update(struct explanation *x, const struct clock *c,
                           const struct time_log *log)
{
    const struct shard_of *own = &log->own;
    const double seconds = time_optimizer_pass(c, &log->passes, NULL, own);
    const double bytes =
        own->elems * log->passes.update + 2 * own->moment_bytes;
    if (!(seconds > 0))
        return;
    explain_step(x, "update", log->here * seconds,
                 "share on the GPU * (elements * bytes + 2 * moments) / rate",
                 NUMBERS(x->arena, "# * (# * # + 2 * #) / #", log->here,
                         own->elems, log->passes.update, own->moment_bytes,
                         bytes / seconds),
                 "optimizer-passes");
}

static void explain_host(struct explanation *x, const struct clock *c,
                         const struct time_log *log)
{
    const struct update_time t = time_update(c, &log->passes, &log->own);
    const double start = HOST_FORWARD_S * c->run->scale[SPEED_HOST];
    if (t.host > 0)
        explain_step(x, "waiting for the host", log->here * t.host,
                     "share on the GPU * (max(0, kernels * start - passes that "
                     "are not waited for) + starts that tensors leave bare + "
                     "waits * start)",
                     NUMBERS(x->arena, "# * (max(0, # * # - #) + # + # * #)",
                             log->here, t.kernels, start, t.ahead,
                             log->own.waited_s, log->passes.waits, start),
                     "optimizer-passes");
}

static void explain_optimizer(struct explanation *x, const struct clock *c,
                              const struct time_log *log)
{
    if (log->away_elems > 0)
        explain_step(x, "update on the CPUs", log->away_elems * log->away_s,
                     "elements of all ranks of a node * seconds of one",
                     NUMBERS(x->arena, "# * #", log->away_elems, log->away_s),
                     "step-time");
    if (!(log->here > 0))
        return;
    for (unsigned i = 0; i < log->passes.n; i++)
        explain_pass(x, c, log, &log->passes.at[i]);
    explain_update(x, c, log);
    explain_host(x, c, log);
}

bool fold_time_explain(struct explanation *x, const struct program *p,
                       const struct run *run)
{
    struct clock c;
    struct time_result again;
    struct time_log *log = ARENA_NEW(x->arena, struct time_log, 1);
    if (log == NULL)
        return false;
    time_log_clear(log);
    clock_init(&c, p, run);
    if (!fold_time_logged(&again, p, run, NULL, x->arena, log))
        return false;
    for (uint32_t b = 0; b < p->n_blocks; b++) {
        explain_parts(x, &p->block[b], &log->block[b], log->micros, run);
        explain_block(x, &c, &p->block[b]);
    }
    explain_optimizer(x, &c, log);
    explain_wires(x, &c, log);
    for (unsigned i = 0; i < log->n_copies; i++)
        explain_copy(x, run, &log->copy[i]);
    return !x->failed;
}
