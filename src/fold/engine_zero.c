/*
 * What DeepSpeed's ZeRO gathers: weights ahead of their modules in stage 3,
 * what stays from forward to backward, second shards, a pipeline's updated
 * weights. Read in DeepSpeed 0.19.8 runtime/zero and held against it
 * (tests/oracle/zero.py). [docs/method.md eq. gather, eq. step]
 */
#include "fold/engine_private.h"

#include "data/constants.h"

#include "base/banned.h"

/* ---- the step's gathered weights ---- */

/* Into a list of the ranks' parts, so that ProcessGroupNCCL::allgather makes a
 * flat buffer for all of them, in shards of the gather bucket at least
 * (all_gather_dp_groups up to DeepSpeed 0.12.4; later versions gather in
 * place). */
uint64_t zero_gather_flat(const struct stage *s, uint64_t index)
{
    const struct run *run = s->run;
    if (!run_pipelines(run) || (run->zero == 0 && !run_is_bf16_pipeline(run)))
        return 0;
    const uint64_t part = engine_share(s);
    const uint64_t shards =
        max_u64(part * run->shard / run->allgather_bucket, 1);
    const uint64_t shard = part / shards;
    if (index >= shards)
        return 0;
    return run->shard * (index + 1 < shards ? shard : part - index * shard);
}

/* ---- ZeRO-3: gathered weights ---- */

/* Up to 0.5.8, which Megatron-DeepSpeed ran with, no more was fetched ahead than
 * one bucket. */
static bool fetches_one_bucket(const struct run *run)
{
    return run->zero3_lists;
}

static uint64_t one_bucket(const struct stage *s, uint32_t position,
                           bool backward)
{
    const struct run *run = s->run;
    const bool turns = backward ? position == 0 : position + 1 == s->n;
    const uint32_t next = backward == turns ? position + 1 : position - 1;
    const struct block_states *n =
        &s->states[stage_block(s, s->n == 1 ? 0 : next)];
    return min_u64(run->prefetch_bucket + n->largest, run->max_live_params);
}

/* max_live_parameters counts 4-bit weights as what they are stored in, elements
 * of the type that is computed in (bnb_4bit_quant_storage). */
static uint64_t live_most(const struct stage *s)
{
    const struct prefix *all = &s->before[s->n];
    const uint64_t most = s->run->max_live_params;
    if (all->bytes >= all->all_elems)
        return most;
    const double stored =
        (double)all->bytes / (double)dtype_size(s->run->prec.compute);
    return min_u64(all->all_elems,
                   (uint64_t)((double)most * (double)all->all_elems / stored));
}

uint64_t zero3_most(const struct stage *s, uint32_t position)
{
    return fetches_one_bucket(s->run) ? one_bucket(s, position, false)
                                      : s->live_most;
}

/* A weight that is used again within max_reuse_distance is not released: the
 * last ones, from forward to backward, about half the distance on either side
 * of the turn; nor is one that fetching ahead has passed by on its way into
 * backward because it was there, and as much is there as may be
 * (partitioned_param_coordinator.py, __params_to_release). */
static uint64_t zero3_kept(const struct stage *s)
{
    const uint64_t near = ZERO3_MAX_REUSE_ELEMS / 2;
    return s->run->prefetch_bucket == 0 || fetches_one_bucket(s->run)
               ? near
               : max_u64(near, zero3_most(s, 0));
}

static uint64_t released_elems(const struct stage *s)
{
    const uint64_t all = s->before[s->n].all_elems, kept = zero3_kept(s);
    return all > kept ? all - kept : 0;
}

static uint64_t kept_upto(const struct stage *s, uint32_t position)
{
    const uint64_t upto = s->before[position + 1].all_elems;
    return upto > s->released ? upto - s->released : 0;
}

/* Where the stage's first so many weights end: in a position, and how far. */
static uint32_t end_of_first(const struct stage *s, uint64_t elems,
                             double *share)
{
    uint32_t i = 0;
    while (i + 1 < s->n && s->before[i + 1].all_elems <= elems)
        i++;
    const struct prefix *from = &s->before[i], *to = &s->before[i + 1];
    const uint64_t each = to->all_elems - from->all_elems;
    *share = each == 0 || elems <= from->all_elems
                 ? 0
                 : (double)(elems - from->all_elems) / (double)each;
    return i;
}

static uint64_t between(uint64_t from, uint64_t to, double share)
{
    return from + (uint64_t)((double)(to - from) * share);
}

/* Of those weights; they need not be of one width. What is sent in autocast's
 * type is copied out in that of the shards, be it adapters' or what lies under
 * them (partition_parameters.py, AllGatherCoalescedHandle.wait). */
static uint64_t bytes_of_first(const struct stage *s, uint64_t elems)
{
    double share;
    const uint32_t i = end_of_first(s, elems, &share);
    return between(s->before[i].stored, s->before[i + 1].stored, share);
}

/* What is there since forward when a block's backward begins; where more is to
 * be fetched than may be there, that comes in the place of what goes. */
static void hold(struct stage *s)
{
    const struct run *run = s->run;
    const uint64_t most =
        run->prefetch_bucket == 0 ? UINT64_MAX : zero3_most(s, 0);
    if (s->fill == NULL || !engine_zero3_gathers(run)
        || fetches_one_bucket(run))
        return;
    for (uint32_t i = 0; i < s->n && s->before[i + 1].all_elems <= most; i++) {
        const struct prefix *here = &s->before[i];
        if (here->all_elems >= s->released)
            s->fill[i + 1].held = here[1].stored - here->stored;
    }
}

void zero3_layout(struct stage *s)
{
    s->live_most = live_most(s);
    s->released = released_elems(s);
    s->released_bytes = bytes_of_first(s, s->released);
    hold(s);
}

/* ---- ZeRO++'s second shards (hpZ) ---- */

/* One is made when its parameter is first released in a step, from then on all
 * gathers take it, and the end of the step drops it (partition_parameters.py,
 * _partition_param_sec; stage3.py, invalidate_secondary_tensor). What stays
 * gathered has none before the step. */
static uint64_t second_of_first(const struct stage *s, uint64_t elems)
{
    double share;
    const uint32_t i = end_of_first(s, elems, &share);
    return between(s->before[i].second, s->before[i + 1].second, share);
}

uint64_t zero3_second_forward(const struct stage *s, uint32_t position,
                              bool later)
{
    const uint64_t upto = s->before[position + 1].all_elems;
    return later ? s->sum.second_elems
                 : second_of_first(s, min_u64(upto, s->released));
}

uint64_t zero3_second_backward(const struct stage *s, uint32_t position,
                               bool later)
{
    const uint64_t upto = s->before[position + 1].all_elems;
    if (later || upto <= s->released)
        return s->sum.second_elems;
    return s->sum.second_elems
           - (second_of_first(s, upto) - second_of_first(s, s->released));
}

void zero3_second(struct put *p, const struct stage *s, uint64_t elems)
{
    PUT(p, TERM_SECOND, "second shards, over hpz_partition_size ranks",
        F("P/N, tensor by tensor, times N/hpz", elems),
        F("bytes per weight", dtype_size(s->run->prec.param)));
}

/* Each module fetches another bucket before it runs, more than it uses: soon as
 * much is there, or under way, as may be. */
static uint64_t zero3_ahead(const struct stage *s, uint32_t position,
                            bool backward)
{
    const struct run *run = s->run;
    const uint64_t all = s->before[s->n].all_elems;
    const uint64_t upto = s->before[position + 1].all_elems;
    const uint64_t there = max_u64(kept_upto(s, position),
                                   s->states[stage_block(s, position)].largest);
    if (run->prefetch_bucket == 0)
        return 0;
    if (fetches_one_bucket(run) || (position == 0 && !backward)) {
        const uint64_t kept = kept_upto(s, position);
        return min_u64(one_bucket(s, position, backward),
                       backward ? upto - kept : all - upto);
    }
    const uint64_t most =
        min_u64(backward ? upto : all, zero3_most(s, position));
    return most > there ? most - there : 0;
}

/* The step begins by cutting what is always gathered, too
 * (stage3.py, _partition_all_parameters). */
void zero3_second_step(struct put *p, const struct stage *s)
{
    const uint64_t parts = run_second_parts(s->run);
    if (parts != 0)
        zero3_second(p, s, s->sum.own_elems * parts);
}

/* Less than a byte each where they are quantised. */
INLINE void put_fetched(struct put *p, const struct stage *s, const char *what,
                        uint64_t elems, uint64_t width)
{
    const struct prefix *all = &s->before[s->n];
    if (width != 0)
        PUT(p, TERM_PREFETCHED, what, F("elements", elems),
            F("bytes per weight", width));
    else
        PUT(p, TERM_PREFETCHED, what,
            F("bytes", (uint64_t)((double)elems * (double)all->bytes
                                  / (double)all->all_elems)));
}

/* MiCS gathers each weight where it will be (mics.py,
 * _flat_all_gather_with_coalescing_manager); of one rank's there is no more
 * than the copy from the host. */
static void zero3_in_place(struct put *p, uint64_t ahead, uint64_t width)
{
    PUT(p, TERM_PREFETCHED, "prefetched", F("elements", ahead),
        F("bytes per weight", width));
}

/* Of those that are gathered together, the ones that the running module has a
 * weight of: the copies are made with the first that is used, the flat buffer is
 * there until the last is. */
static uint64_t zero3_together(const struct stage *s, uint32_t position,
                               uint64_t ahead, bool backward)
{
    const struct block_states *b = &s->states[stage_block(s, position)];
    if (fetches_one_bucket(s->run))
        return ahead;
    if (backward && kept_upto(s, position) != 0)
        return 0; /* they are there since forward */
    return s->run->prefetch_bucket == 0 ? 0 : b->fetched;
}

/* The head's alone, in 8 bits: copied as the last layer has gone, before there
 * are logits. */
static uint64_t zero3_unpacked(const struct stage *s, uint32_t position,
                               uint64_t together, bool backward)
{
    if (backward || position + 2 != s->n)
        return together;
    const struct prefix *head = &s->before[position + 1];
    const uint64_t own = head[1].all_elems - head->all_elems;
    const uint64_t largest = s->states[stage_block(s, position + 1)].largest;
    return max_u64(together, min_u64(largest, own)); /* it may be tied */
}

/* Gathered as int8 with an fp32 scale for a group, into a flat buffer; when the
 * first is used that as fp16, whole; and copies out of it
 * (partition_parameters.py, AllGatherCoalescedHandle.wait, CUDAQuantizer). */
static void zero3_in_8_bits(struct put *p, uint64_t ahead, uint64_t together,
                            uint64_t width)
{
    PUT(p, TERM_PREFETCHED, "fetched ahead: flat gather buffers, in 8 bits",
        F("elements", ahead), A("bytes", 1));
    PUT(p, TERM_PREFETCHED, "their scales",
        F("groups", div_up(ahead, QWZ_GROUP_ELEMS)), F("bytes", FP32));
    PUT(p, TERM_PREFETCHED, "one of them in fp16, and copies out of it",
        F("elements", together), F("bytes", 2 + width));
}

/* Of these, whose modules' backward is over. */
static uint64_t let_go(const struct put *p, const struct stage *s,
                       uint32_t position)
{
    return p->fill == NULL ? 0 : s->fill[position + 1].held - p->fill->held;
}

/* Modules fetch ahead until as much is there as may be: flat gather buffers, and
 * copies out of the one at hand. */
void zero3_gather(struct put *p, const struct stage *s, uint32_t position,
                  bool backward)
{
    const struct block_states *b = &s->states[stage_block(s, position)];
    const struct prefix *upto = &s->before[position + 1];
    const uint64_t kept = kept_upto(s, position);
    if (b->largest == 0 || upto->all_elems == 0)
        return;
    if (kept == 0)
        PUT(p, TERM_GATHERED, "the running module's weight",
            F("bytes of the block's largest parameter", b->largest_bytes));
    else
        PUT(p, TERM_GATHERED, "kept from forward to backward",
            F("bytes of the weights not released",
              upto->stored - s->released_bytes
                  - (backward ? let_go(p, s, position) : 0)));
    const uint64_t ahead = zero3_ahead(s, position, backward);
    const uint64_t together = zero3_together(s, position, ahead, backward);
    const uint64_t width = b->width;
    if (s->run->mics || s->run->shard == 1) {
        zero3_in_place(p, ahead, width);
        return;
    }
    if (run_gathers_in_8_bits(s->run)) {
        zero3_in_8_bits(p, ahead,
                        zero3_unpacked(s, position, together, backward), width);
    } else {
        put_fetched(p, s, "fetched ahead: flat gather buffers", ahead,
                    s->run->prec.autocast ? 0 : width);
        put_fetched(p, s, "copies out of one of them", together, width);
    }
    if (s->run->offload_params != OFFLOAD_NONE)
        PUT(p, TERM_PREFETCHED, "this rank's shards, from the host",
            F("elements", max_u64(together, b->largest)),
            F("bytes per weight", width), D("N", s->run->shard));
}
